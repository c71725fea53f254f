//! What callers ask for: checked against the World as it is at this point of the turn, answered with what became of it.

use model::{
    Answer, ClusterSpec, Command, ComputeId, Declared, DocKey, Document, Event, JobId, Kind,
    KubernetesSpec, NodeId, NodeState, Outcome, Refusal, RunEvent, RunSpec, Why, Work,
};
use std::sync::Arc;

use crate::{quota, turn::Turning};

/// Azure's code for a body that breaks a rule.
const BAD_ARGUMENT: &str = "BadArgument";

pub(crate) fn no_compute(compute: &ComputeId) -> Refusal {
    Refusal::NotFound {
        message: format!("compute {compute} does not exist"),
    }
}

impl Turning<'_> {
    pub fn command(&mut self, command: Command) -> Result<Answer, Refusal> {
        match command {
            Command::Put { document, declared } => self.put(document, declared),
            Command::Remove { key } => self.remove(key),
            Command::Submit {
                id,
                document,
                spec,
                request,
            } => self.submit(&id, document, spec, request),
            Command::Cancel { job } => self.cancel(&job),
            Command::Preempt {
                compute,
                nodes,
                notice,
                hold,
            } => self.preempt(&compute, nodes, notice, hold),
        }
    }

    fn put(&mut self, document: Document, declared: Declared) -> Result<Answer, Refusal> {
        let id = || ComputeId::new(&document.key.workspace, document.key.path.clone());
        match &declared {
            Declared::Cluster(spec) => self.may_declare(&id(), spec)?,
            Declared::Kubernetes(spec) => self.may_attach(&id(), spec)?,
            Declared::InstanceType(_) | Declared::Quotas(_) | Declared::Other => {}
        }
        self.emit_event(Event::Declared { document, declared });
        Ok(Answer::Stored)
    }

    /// A compute never changes its kind or its cluster: its jobs know where they are.
    fn may_attach(&self, id: &ComputeId, spec: &KubernetesSpec) -> Result<(), Refusal> {
        let refuse = |message: String| Err(Refusal::Conflict { message });
        if self.world.view.clusters.contains_key(id) {
            return refuse(format!(
                "compute {id} is a cluster: delete it before {id} is attached"
            ));
        }
        match self.world.view.kubernetes.get(id) {
            Some(known) if known.deleting => refuse(format!("compute {id} is being deleted")),
            Some(known) if known.spec.is_attached() != spec.is_attached() => refuse(format!(
                "compute {id} is attached to another cluster: detach it first"
            )),
            Some(known) if known.spec.namespace != spec.namespace => refuse(format!(
                "namespace of compute {id} is {} and cannot become {}: detach it and attach it again",
                known.spec.namespace, spec.namespace
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn may_declare(&self, id: &ComputeId, spec: &ClusterSpec) -> Result<(), Refusal> {
        if self.world.view.kubernetes.contains_key(id) {
            return Err(Refusal::Conflict {
                message: format!(
                    "compute {id} is a Kubernetes compute: detach it before {id} is created"
                ),
            });
        }
        if let Some(known) = self.world.view.clusters.get(id) {
            if known.deleting {
                return Err(Refusal::Conflict {
                    message: format!("compute {id} is being deleted"),
                });
            }
            let (old, new) = (&known.spec, spec);
            let fixed = if old.size.name != new.size.name {
                Some(("size", old.size.name.to_string(), new.size.name.to_string()))
            } else if old.tier != new.tier {
                Some(("tier", old.tier.to_string(), new.tier.to_string()))
            } else {
                None
            };
            if let Some((what, from, to)) = fixed {
                return Err(Refusal::Invalid {
                    code: BAD_ARGUMENT,
                    message: format!(
                        "{what} of compute {id} is {from} and cannot become {to}: delete it and create it again"
                    ),
                });
            }
        }
        quota::may_always_have(self.world, id, spec)
    }

    fn remove(&mut self, key: DocKey) -> Result<Answer, Refusal> {
        if key.kind == Kind::Job {
            self.may_forget(&JobId::new(&key.workspace, key.path.clone()))?;
        }
        if key.kind != Kind::Compute {
            self.emit_event(Event::Withdrawn { key, at: self.now });
            return Ok(Answer::Stored);
        }
        let id = ComputeId::new(&key.workspace, key.path.clone());
        let view = &self.world.view;
        let cluster = view.clusters.get(&id).map(|c| c.deleting);
        let kubernetes = || view.kubernetes.get(&id).map(|k| k.deleting);
        let Some(deleting) = cluster.or_else(kubernetes) else {
            return Err(no_compute(&id));
        };
        if deleting {
            return Ok(Answer::Stored);
        }
        self.emit_event(Event::Withdrawn { key, at: self.now });
        let pool = self.world.pools.get(&id).map(|p| p.runs.clone());
        let pods = self.world.pods.get(&id).map(|p| p.runs.clone());
        let runs = pool.or(pods);
        for job in runs.unwrap_or_default().into_values() {
            let compute = id.name().into();
            self.give_up(&job, Outcome::Canceled(Why::ComputeDeleted { compute }));
        }
        Ok(Answer::Stored)
    }

    /// A job that goes on keeps its document: whoever looks for it must find it.
    fn may_forget(&self, job: &JobId) -> Result<(), Refusal> {
        match self.world.run(job) {
            Some(run) if !run.state.is_done() => Err(Refusal::Conflict {
                message: format!("job {job} has not ended, it is {}", run.state.name()),
            }),
            _ => Ok(()),
        }
    }

    fn submit(
        &mut self,
        id: &JobId,
        document: Document,
        spec: Arc<RunSpec>,
        request: Option<Box<str>>,
    ) -> Result<Answer, Refusal> {
        if let Some(known) = request
            .as_deref()
            .and_then(|r| self.world.requests.run(r))
            .filter(|known| known.workspace() == id.workspace())
        {
            return Ok(Answer::Run {
                id: known.clone(),
                repeat: true,
            });
        }
        if self.world.run(id).is_some() {
            return Err(Refusal::Conflict {
                message: format!("job {id} already exists"),
            });
        }
        let compute = &spec.compute;
        let view = &self.world.view;
        if let Some(record) = view.kubernetes.get(compute).filter(|k| !k.deleting) {
            self.world.may_submit_pods(record, &spec)?;
            let event = RunEvent::Submitted {
                document,
                spec,
                request,
            };
            self.emit_run(id, event);
            return Ok(Answer::Run {
                id: id.clone(),
                repeat: false,
            });
        }
        let cluster = self.world.view.clusters.get(compute);
        let Some(cluster) = cluster.filter(|c| !c.deleting) else {
            return Err(no_compute(compute));
        };
        let (need, max) = (spec.instances, cluster.spec.max);
        match &spec.work {
            Work::Command if need > max => {
                return Err(Refusal::Invalid {
                    code: BAD_ARGUMENT,
                    message: format!(
                        "{} of compute {compute}",
                        Why::TooManyInstances { need, max }
                    ),
                });
            }
            Work::Command => {}
            Work::Batch(batch) => self.may_resume(batch)?,
        }
        let event = RunEvent::Submitted {
            document,
            spec,
            request,
        };
        self.emit_run(id, event);
        Ok(Answer::Run {
            id: id.clone(),
            repeat: false,
        })
    }

    fn cancel(&mut self, job: &JobId) -> Result<Answer, Refusal> {
        if self.world.run(job).is_none() {
            return Err(Refusal::NotFound {
                message: format!("job {job} does not exist"),
            });
        }
        self.give_up(job, Outcome::Canceled(Why::CancelAsked));
        Ok(Answer::Canceling)
    }

    /// Nodes of a cluster whose deletion is under way, as far as they hold no task.
    pub fn let_all_go(&mut self, compute: &ComputeId) {
        let nodes: Vec<(NodeId, NodeState)> = self
            .world
            .view
            .nodes_of(compute)
            .map(|n| (n.id.clone(), n.state.clone()))
            .collect();
        for (id, state) in nodes {
            match state {
                NodeState::Preparing | NodeState::Idle | NodeState::Unusable { .. } => {
                    self.let_go(&id);
                }
                NodeState::Preempted => self.emit_node(&id, model::NodeEvent::Gone),
                NodeState::Running { .. } | NodeState::Leaving { .. } => {}
            }
        }
    }
}
