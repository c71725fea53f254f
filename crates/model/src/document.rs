//! Intent: the documents that users sent, kept as sent.
//!
//! D1 a document is stored byte for byte; what is read into fields is a view of it;
//! D2 its key compares without case (see `id`), its spelling is the first one written;
//! D3 `generation` grows with every accepted write of the key and is the ETag; a document that comes after a removed one
//!    has none of its generations.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::{
    cluster::{ClusterSpec, Quotas},
    id::{ComputeId, JobId, Name, Workspace},
    instance_type::InstanceType,
    kubernetes::KubernetesSpec,
    unit::Time,
};

/// What a document describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A workspace; its path is empty, its scope says all.
    Workspace,
    /// A cluster or another compute.
    Compute,
    /// A datastore.
    Datastore,
    /// A code version, path `name/version`.
    Code,
    /// A model version, path `name/version`.
    Model,
    /// An environment version, path `name/version`.
    Environment,
    /// A data version, path `name/version`.
    Data,
    /// A component version, path `name/version`.
    Component,
    /// A batch endpoint.
    BatchEndpoint,
    /// A batch deployment, path `endpoint/deployment`.
    BatchDeployment,
    /// An online endpoint.
    OnlineEndpoint,
    /// A job.
    Job,
    /// The quotas of a location, path = location.
    Quota,
    /// An instance type of the embedded cluster, a Kubernetes object; its scope is `DocKey::instance_type`'s.
    InstanceType,
    /// Who may sign in, path = its name; its scope is `DocKey::of_server`'s.
    Identity,
    /// A role of an identity, path = its name; its scope is `DocKey::of_server`'s.
    RoleAssignment,
    /// A role that somebody has defined, path = its id; its scope is `DocKey::of_server`'s.
    RoleDefinition,
    /// What MLflow tracks beside the jobs: `runs/ID`, `experiments/NAME`, `models/ID`.
    Tracked,
}

/// The key of a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocKey {
    /// Where.
    pub workspace: Arc<Workspace>,
    /// What.
    pub kind: Kind,
    /// Its name, or `name/version`, or `endpoint/deployment`.
    pub path: Name,
}

impl DocKey {
    /// The key of `path` among the `kind`s of `workspace`.
    pub fn new(workspace: &Arc<Workspace>, kind: Kind, path: impl Into<Name>) -> Self {
        DocKey {
            workspace: workspace.clone(),
            kind,
            path: path.into(),
        }
    }
    /// The key of an instance type: it belongs to the cluster, and so to no workspace of a user.
    pub fn instance_type(name: &str) -> Self {
        DocKey::of_server(Kind::InstanceType, name)
    }
    /// The key of something that belongs to the server, and so to no workspace of a user.
    pub fn of_server(kind: Kind, path: &str) -> Self {
        DocKey::new(&Workspace::new("", "", ""), kind, path)
    }
    /// The key of a job's document.
    pub fn job(id: &JobId) -> Self {
        DocKey::new(id.workspace(), Kind::Job, id.name())
    }
    /// The key of a compute's document.
    pub fn compute(id: &ComputeId) -> Self {
        DocKey::new(id.workspace(), Kind::Compute, id.name())
    }
}

#[derive(Serialize, Deserialize)]
struct StoredKey {
    subscription: Name,
    group: Name,
    workspace: Name,
    kind: Kind,
    path: Name,
}
impl Serialize for DocKey {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        StoredKey {
            subscription: self.workspace.subscription.clone(),
            group: self.workspace.group.clone(),
            workspace: self.workspace.name.clone(),
            kind: self.kind,
            path: self.path.clone(),
        }
        .serialize(s)
    }
}
impl<'de> Deserialize<'de> for DocKey {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let k = StoredKey::deserialize(d)?;
        Ok(DocKey {
            workspace: Arc::new(Workspace {
                subscription: k.subscription,
                group: k.group,
                name: k.workspace,
            }),
            kind: k.kind,
            path: k.path,
        })
    }
}

/// A document as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Its key.
    pub key: DocKey,
    /// Grows with each write, also over a removal (D3).
    pub generation: u64,
    /// The JSON as sent (D1).
    pub json: Arc<str>,
    /// First written.
    pub created: Time,
    /// Last written.
    pub modified: Time,
    /// Who wrote it last.
    pub by: Arc<str>,
}

/// What a decision needs of a document; everything else is only stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Declared {
    /// A cluster of nodes.
    Cluster(Arc<ClusterSpec>),
    /// A Kubernetes compute.
    Kubernetes(Arc<KubernetesSpec>),
    /// An instance type of the embedded cluster.
    InstanceType(Arc<InstanceType>),
    /// The quotas of the workspace.
    Quotas(Arc<Quotas>),
    /// Nothing that is decided about.
    #[default]
    Other,
}
