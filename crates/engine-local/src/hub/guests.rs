//! Agents on other machines: they come by themselves, with a credential that the server's route has checked. Some have one
//! task and go with it (pods of a job); others are nodes of a cluster and take one after the other.
//!
//! U1 a guest is expected before it comes; one with one task says nothing of any other;
//! U2 its silence means nothing: whoever expects it knows when its machine is gone, and says so (`Release`);
//! U3 the tasks of a gang are prepared when all their pods have addresses, and begin together as everywhere (J1).

use super::{
    Hub, Means, News, PEER, Peer,
    nodes::Node,
    tasks::{bring, far},
    token,
};
use crate::{
    agent::folder_name,
    environment::recipe,
    gang::{Address, Gang},
    mirror::Plan,
    protocol::{Frames, Held},
    resolve,
};
use model::{
    BlobPath, NodeId, Place, TaskId, TaskSpec,
    engine::{InputSpec, Placement, Program},
    instance_type::GPU,
};
use rustix::event::epoll;
use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

/// Where the mirrors of the tasks of a pod lie, each in a folder of its own.
pub const MIRRORS: &str = "/zaffre/work/mirror";

/// Where the mirror of a task lies in its pod.
fn mirror(task: &TaskId) -> PathBuf {
    Path::new(MIRRORS).join(folder_name(task))
}

/// Where the first process of a pod is reached. A pod has all ports for itself: this is the one that torch takes by itself.
const PORT: u16 = 29_500;

fn address(host: String) -> Address {
    Address { host, port: PORT }
}

/// What is told of guests.
pub enum Wish {
    /// One may come, for this task.
    Expect(NodeId, TaskId, Arc<Held>),
    /// One may come that is a node.
    ExpectNode(NodeId),
    /// Nothing that it says counts any more.
    Release(NodeId),
    /// Where a task is reached.
    Address(TaskId, Box<str>),
    /// It has come.
    Guest(NodeId, UnixStream),
}

/// The files of a task: a function of what it is.
pub fn plan(task: &TaskId, placement: &Placement, spec: &TaskSpec) -> Plan {
    let text = |path: &BlobPath| path.as_str().to_owned();
    let below = |tail: &str| format!("{}/{tail}", spec.artifacts.as_str());
    let mut fetch: Vec<String> = spec.code.iter().map(text).collect();
    let sources = spec.inputs.values().filter_map(|input| match input {
        InputSpec::Literal(_) => None,
        InputSpec::Path { source, .. } => Some(source),
    });
    let mut sources: Vec<&BlobPath> = sources.collect();
    if let Program::Pool(pool) = &spec.program
        && let Some(listed) = sources.iter().position(|s| **s == pool.root)
    {
        sources.remove(listed); // piece by piece, below; another input may be the same folder, and wants all of it
    }
    fetch.extend(sources.into_iter().map(text));
    fetch.extend(spec.model.iter().map(|m| text(&m.source)));
    let mut later = Vec::new();
    let mut push = vec![text(&spec.artifacts)];
    match &spec.program {
        // What earlier attempts have left, and this task's own logs.
        Program::Command { .. } => fetch.extend(["outputs", "logs"].map(below)),
        // Of the input, what it is lent; its logs are its node's alone.
        Program::Pool(pool) => {
            fetch.push(text(&pool.listing));
            later.push(text(&pool.root));
            push.push(text(&pool.shared_output));
        }
    }
    let nowhere = vec![address(String::new()); placement.gang.len().max(1)];
    if let Ok(gang) = Gang::new(task, &placement.gang, nowhere, &spec.variables) {
        let logs = (0..gang.processes).map(|local| gang.log_name(local));
        fetch.extend(logs.map(|name| below(&name)));
    }
    let kept = spec.outputs.values().filter(|o| o.address.is_none());
    push.extend(kept.map(|o| text(o.kept())));
    Plan {
        root: mirror(task),
        fetch,
        later,
        push,
        requirements: Vec::new(),
    }
}

impl Hub {
    /// Takes in what is told of a guest.
    pub fn grant(&mut self, wish: Wish, now: Instant) {
        match wish {
            Wish::Expect(id, task, held) => {
                if self.nodes.contains_key(&id) {
                    return;
                }
                self.nodes.insert(id.clone(), Node::guest(now, false));
                self.grant_files(&id, &task, &held);
                self.hold(&task, id, Some(held));
            }
            Wish::ExpectNode(id) => {
                if !self.nodes.contains_key(&id) {
                    self.nodes.insert(id.clone(), Node::guest(now, true));
                    self.dirty_nodes.insert(id);
                }
            }
            Wish::Release(id) => self.release(&id),
            Wish::Address(task, ip) => {
                if self.ips.insert(task, ip.clone()).as_ref() != Some(&ip) {
                    self.prepare_guests();
                }
            }
            Wish::Guest(id, stream) => self.welcome(id, stream),
        }
    }

    /// A task of a guest may use its files.
    pub fn grant_files(&self, node: &NodeId, task: &TaskId, held: &Held) {
        let plan = plan(task, &held.placement, &held.spec);
        self.grants.give(node, task, plan);
    }

    fn release(&mut self, id: &NodeId) {
        self.grants.take(id);
        let Some(node) = self.nodes.get_mut(id).filter(|n| n.guest) else {
            return;
        };
        if let Some(peer) = node.peer.take() {
            self.peers.remove(&peer);
        }
        self.nodes.remove(id);
        self.dirty_nodes.insert(id.clone());
        let gone = self.tasks.iter().filter(|(_, e)| e.node == *id);
        let gone: Vec<TaskId> = gone.map(|(task, _)| task.clone()).collect();
        for task in gone {
            self.ips.remove(&task);
            self.drop_task(&task);
        }
    }

    fn welcome(&mut self, id: NodeId, stream: UnixStream) {
        if !self.nodes.get(&id).is_some_and(|n| n.guest) || stream.set_nonblocking(true).is_err() {
            return;
        }
        // One that has not said a word yet gives way to the next of the same node.
        self.peers
            .retain(|_, peer| peer.node.is_some() || peer.guest.as_ref() != Some(&id));
        let number = self.number();
        let data = epoll::EventData::new_u64(token(PEER, number));
        if epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN).is_err() {
            return;
        }
        let peer = Peer {
            stream,
            frames: Frames::default(),
            out: Vec::new(),
            sent: 0,
            writes: false,
            node: None,
            guest: Some(id),
        };
        self.peers.insert(number, peer);
    }

    /// The files of a guest's task; nothing for one of this machine.
    pub fn plan_of(&self, task: &TaskId) -> Option<Plan> {
        let entry = self.tasks.get(task)?;
        let held = entry.held.as_ref()?;
        self.nodes.get(&entry.node).filter(|n| n.guest)?;
        let mut plan = plan(task, &held.placement, &held.spec);
        let model = held.spec.model.as_ref();
        let model = model.and_then(|m| self.means.blobs.local(&m.source));
        let recipe = recipe::of(&held.spec, model.as_deref());
        plan.requirements = recipe.map(|r| r.requirements).unwrap_or_default();
        Some(plan)
    }

    /// Looks at every guest's task that waits for its gang (U3).
    pub fn prepare_guests(&mut self) {
        let waiting = self
            .tasks
            .iter()
            .filter(|(_, e)| e.known && !e.preparing && e.held.is_some());
        let waiting: Vec<TaskId> = waiting
            .filter(|(_, e)| self.nodes.get(&e.node).is_some_and(|n| n.guest))
            .map(|(task, _)| task.clone())
            .collect();
        for task in waiting {
            self.prepare(&task);
        }
    }

    /// Prepares a guest's task: nothing is built here, the image is the environment.
    pub fn prepare_guest(&mut self, task: &TaskId, held: &Arc<Held>) {
        let gang = &held.placement.gang;
        let addresses = if gang.len() > 1 {
            let ips = gang.iter().map(|member| self.ips.get(member));
            let Some(ips) = ips.collect::<Option<Vec<_>>>() else {
                return self.preparing(task, "the other pods of its gang".to_owned());
            };
            ips.into_iter().map(|ip| address(ip.to_string())).collect()
        } else {
            vec![address("127.0.0.1".to_owned())]
        };
        let Some(entry) = self.tasks.get_mut(task) else {
            return;
        };
        entry.preparing = true;
        let far = far(&self.means.blobs, &held.spec);
        if far.is_empty() {
            let outcome = order_of_guest(&self.means, task, held, addresses).map(Box::new);
            return self.prepared(task, outcome);
        }
        let (shared, means) = (self.shared.clone(), self.means.clone());
        let (task, held) = (task.clone(), held.clone());
        let work = move || {
            let tell = |what: &str| {
                shared.news(News::Preparing(task.clone(), what.to_owned()));
            };
            let order = bring(&means.blobs, &far, &tell)
                .and_then(|()| order_of_guest(&means, &task, &held, addresses).map(Box::new));
            shared.news(News::Prepared(task.clone(), order));
        };
        if let Err(e) = std::thread::Builder::new()
            .name("datastore".into())
            .spawn(work)
        {
            tracing::error!("what lies elsewhere cannot be brought: {e}");
        }
    }
}

fn order_of_guest(
    means: &Means,
    task: &TaskId,
    held: &Held,
    addresses: Vec<Address>,
) -> Result<crate::protocol::Order, String> {
    let (placement, spec) = (&held.placement, &held.spec);
    if matches!(spec.program, Program::Pool(_)) && placement.place.pod().is_some() {
        return Err("batch deployments run on the nodes of a cluster".to_owned());
    }
    let model = spec
        .model
        .as_ref()
        .and_then(|m| means.blobs.local(&m.source));
    let recipe = recipe::of(spec, model.as_deref())?;
    let mut notes = recipe.notes;
    if let Some(python) = recipe.python {
        notes.push(format!(
            "Python {python} is asked for: the image's own is taken"
        ));
    }
    if let (Some(image), Place::On(_)) = (&spec.environment.image, &placement.place) {
        notes.push(format!(
            "image {image} is asked for: the node has its own, and its Python is taken"
        ));
    }
    let limits = match &placement.place {
        Place::Matching(pod) => &pod.limits,
        Place::On(_) => &spec.limits,
    };
    let gpus = limits.devices.get(GPU).copied();
    let given = resolve::Given {
        blobs: &means.blobs,
        python: PathBuf::from("python3"), // the agent finds the image's
        notes,
        runtime: Path::new(""), // it has its own
        shims: Path::new(""),
        variables: means.variables.of(&task.job),
        addresses,
        gpus: gpus.map(|count| (0..count).collect()), // a container sees its own from 0 on
        mirror: Some(&mirror(task)),
        own_user: false,
    };
    resolve::order(task, placement, spec, given)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{
        Attempt, JobId, Millis, Resources, Workspace,
        engine::{EnvironmentSpec, OutputSpec, Packages, PoolSpec, RowFormat},
    };
    use std::collections::BTreeMap;

    #[test]
    fn the_input_of_a_pool_comes_piece_by_piece_and_its_outputs_go_home() {
        let path = |text: &str| BlobPath::new(text).unwrap();
        let pool = PoolSpec {
            workers: 1,
            script: Some("score.py".into()),
            arguments: Vec::new(),
            rows: None,
            shutdown: true,
            listing: path("runs/listing"),
            root: path("in/rows"),
            group: 1,
            timeout: Millis(1000),
            format: RowFormat::Csv,
            collect: true,
            header: false,
            shared_output: path("runs/shared"),
            logging_level: "info".into(),
        };
        let input = |text| InputSpec::Path {
            source: path(text),
            copy: false,
        };
        let output = OutputSpec {
            target: path("out/files"),
            file: false,
            address: None,
            register: None,
            remote: None,
        };
        let mut spec = TaskSpec {
            program: Program::Pool(pool),
            environment: EnvironmentSpec {
                label: "e:1".into(),
                image: None,
                packages: Packages::None,
            },
            code: None,
            inputs: BTreeMap::from([
                ("model".into(), input("in/model")),
                ("rows".into(), input("in/rows")),
            ]),
            outputs: BTreeMap::from([("files".into(), output)]),
            model: None,
            variables: BTreeMap::new(),
            limits: Resources::default(),
            artifacts: path("runs/j"),
        };
        let workspace = Workspace::new("s", "g", "w");
        let task = TaskId {
            job: JobId::new(&workspace, "j"),
            index: 0,
            attempt: Attempt(1),
        };
        let compute = model::ComputeId::new(&workspace, "c");
        let placement = Placement {
            place: Place::On(NodeId {
                compute,
                ordinal: 0,
                incarnation: 1,
            }),
            gang: vec![task.clone()],
        };
        let first = plan(&task, &placement, &spec);
        assert_eq!(first.later, ["in/rows"]);
        assert_eq!(first.fetch[..2], ["in/model", "runs/listing"]);
        assert_eq!(first.push, ["runs/j", "runs/shared", "out/files"]);

        spec.inputs.insert("whole".into(), input("in/rows"));
        let second = plan(&task, &placement, &spec);
        assert!(
            second.fetch.contains(&"in/rows".to_owned()),
            "all of it for the other"
        );
    }
}
