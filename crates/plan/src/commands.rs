//! What callers ask for: checked against the World as it is at this point of the turn, answered with what became of it.

use model::{
    Answer, ClusterSpec, Command, ComputeId, Declared, DocKey, Document, Event, JobId, Kind,
    KubernetesSpec, NodeId, NodeState, Outcome, Refusal, RunEvent, RunSpec, Why, Work,
};
use std::sync::Arc;

use crate::{quota, turn::Turning};

/// Azure's code for a body that breaks a rule.
const BAD_ARGUMENT: &str = "BadArgument";

/// A refusal of a step, with its name.
fn in_step(step: &str, refusal: Refusal) -> Refusal {
    let told = |message: String| format!("step {step}: {message}");
    match refusal {
        Refusal::NotFound { message } => Refusal::NotFound {
            message: told(message),
        },
        Refusal::Conflict { message } => Refusal::Conflict {
            message: told(message),
        },
        Refusal::Invalid { code, message } => Refusal::Invalid {
            code,
            message: told(message),
        },
    }
}

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
            Command::Measured { job, value } => self.measured(&job, value),
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
            let pods = |spec: &ClusterSpec| match &spec.pods {
                Some(pods) => pods.kubernetes.to_string(),
                None => "this machine".to_owned(),
            };
            let fixed = if pods(old) != pods(new) {
                Some(("place of the nodes", pods(old), pods(new)))
            } else if old.size.name != new.size.name {
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
        self.has_a_place(id, spec)?;
        quota::may_always_have(self.world, id, spec)
    }

    /// Nodes that are pods need an attached cluster to be pods of.
    fn has_a_place(&self, id: &ComputeId, spec: &ClusterSpec) -> Result<(), Refusal> {
        let Some(pods) = &spec.pods else {
            return Ok(());
        };
        let at = ComputeId::new(id.workspace(), pods.kubernetes.clone());
        let refuse = |what: &str| Refusal::Invalid {
            code: BAD_ARGUMENT,
            message: format!(
                "the nodes of compute {id} are to be pods of {}, which {what}: attach it first (zaffre compute attach --type kubernetes)",
                pods.kubernetes
            ),
        };
        match self.world.view.kubernetes.get(&at) {
            Some(record) if record.deleting => Err(refuse("is being detached")),
            Some(record) if record.spec.is_attached() => Ok(()),
            Some(_) => Err(refuse("is no cluster but this machine")),
            None => Err(refuse("is no Kubernetes compute of the workspace")),
        }
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
            // nothing is decided about one that is only a document; whether that is there was asked before (`control`)
            self.emit_event(Event::Withdrawn { key, at: self.now });
            return Ok(Answer::Stored);
        };
        if deleting {
            return Ok(Answer::Stored);
        }
        self.has_no_nodes(&id)?;
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

    /// A cluster's pods are told to end through its compute: that stays as long as others have nodes there.
    fn has_no_nodes(&self, id: &ComputeId) -> Result<(), Refusal> {
        let there = |spec: &ClusterSpec| {
            let pods = spec.pods.as_ref();
            pods.is_some_and(|p| ComputeId::new(id.workspace(), p.kubernetes.clone()) == *id)
        };
        let clusters = self.world.view.clusters.iter();
        let of_it = clusters.filter(|(c, r)| c.workspace() == id.workspace() && there(&r.spec));
        let names: Vec<&str> = of_it.map(|(c, _)| c.name()).collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(Refusal::Conflict {
            message: format!(
                "compute {id} has the nodes of {}: delete {} first",
                names.join(", "),
                if names.len() == 1 { "it" } else { "them" }
            ),
        })
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
        self.may_submit(&spec)?;
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

    /// Whether a run, and everything that it is made of, can run where it says.
    pub fn may_submit(&self, spec: &RunSpec) -> Result<(), Refusal> {
        match &spec.work {
            Work::Pipeline(pipeline) => {
                for (name, step) in &pipeline.steps {
                    self.may_submit(&step.run).map_err(|r| in_step(name, r))?;
                }
                return Ok(());
            }
            Work::Sweep(sweep) => return self.may_submit(&sweep.trial),
            Work::Command | Work::Batch(_) => {}
        }
        let compute = &spec.compute;
        let view = &self.world.view;
        if let Some(record) = view.kubernetes.get(compute).filter(|k| !k.deleting) {
            return self.world.may_submit_pods(record, spec);
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
            Work::Batch(batch) => self.may_resume(batch)?,
            Work::Command | Work::Pipeline(_) | Work::Sweep(_) => {}
        }
        Ok(())
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
