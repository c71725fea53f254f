//! A file that has been read: the document to send, and what must be done before it can be sent.

use super::diagnostic::Diagnostic;
use crate::names::{self, version_id};
use model::Workspace;
use serde_json::{Map, Value};
use std::fmt;

/// The kinds of file that Zaffre runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `type: amlcompute`
    AmlCompute,
    /// `type: kubernetes`, a compute.
    Kubernetes,
    /// A model version.
    Model,
    /// An environment version.
    Environment,
    /// A data version.
    Data,
    /// A batch endpoint.
    BatchEndpoint,
    /// A batch deployment of a model, in any of its three forms.
    BatchDeployment,
    /// A command job.
    CommandJob,
    /// A sweep job.
    SweepJob,
    /// A pipeline job.
    PipelineJob,
    /// A component version.
    Component,
    /// `type: computeinstance`
    ComputeInstance,
    /// `type: virtualmachine`
    VirtualMachine,
    /// `type: synapsespark`
    SynapseSpark,
    /// An online endpoint, managed or on Kubernetes.
    OnlineEndpoint,
    /// An online deployment, managed or on Kubernetes.
    OnlineDeployment,
    /// A datastore of any type.
    Datastore,
    /// A workspace.
    Workspace,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 18] = [
        Kind::AmlCompute,
        Kind::Model,
        Kind::Environment,
        Kind::Data,
        Kind::BatchEndpoint,
        Kind::BatchDeployment,
        Kind::CommandJob,
        Kind::Kubernetes,
        Kind::SweepJob,
        Kind::PipelineJob,
        Kind::Component,
        Kind::ComputeInstance,
        Kind::VirtualMachine,
        Kind::SynapseSpark,
        Kind::OnlineEndpoint,
        Kind::OnlineDeployment,
        Kind::Datastore,
        Kind::Workspace,
    ];

    /// The words of a message: `batch deployment`.
    pub fn word(self) -> &'static str {
        match self {
            Kind::AmlCompute => "compute cluster",
            Kind::Kubernetes => "kubernetes compute",
            Kind::Model => "model",
            Kind::Environment => "environment",
            Kind::Data => "data asset",
            Kind::BatchEndpoint => "batch endpoint",
            Kind::BatchDeployment => "batch deployment",
            Kind::CommandJob => "command job",
            Kind::SweepJob => "sweep job",
            Kind::PipelineJob => "pipeline job",
            Kind::Component => "component",
            Kind::ComputeInstance => "compute instance",
            Kind::VirtualMachine => "virtual machine compute",
            Kind::SynapseSpark => "synapse spark compute",
            Kind::OnlineEndpoint => "online endpoint",
            Kind::OnlineDeployment => "online deployment",
            Kind::Datastore => "datastore",
            Kind::Workspace => "workspace",
        }
    }

    /// The word with its article: `an environment`.
    pub fn one(self) -> String {
        let article = match self {
            Kind::Environment | Kind::OnlineEndpoint | Kind::OnlineDeployment => "an",
            _ => "a",
        };
        format!("{article} {self}")
    }

    /// The command that takes such a file.
    pub fn command(self) -> &'static str {
        match self {
            Kind::AmlCompute => "compute create",
            Kind::Kubernetes => "compute attach",
            Kind::Model => "model create",
            Kind::Environment => "environment create",
            Kind::Data => "data create",
            Kind::BatchEndpoint => "batch-endpoint create",
            Kind::BatchDeployment => "batch-deployment create",
            Kind::CommandJob | Kind::SweepJob | Kind::PipelineJob => "job create",
            Kind::Component => "component create",
            Kind::ComputeInstance => "compute create",
            Kind::VirtualMachine | Kind::SynapseSpark => "compute attach",
            Kind::OnlineEndpoint => "online-endpoint create",
            Kind::OnlineDeployment => "online-deployment create",
            Kind::Datastore => "datastore create",
            Kind::Workspace => "workspace create",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What a local asset becomes on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AssetKind {
    /// A folder of code: upload, make a code version, put its id.
    Code,
    /// A model: upload, make a model version, put its id (or, for a model file, its address).
    Model,
    /// The file or folder of a data asset: upload, put its address.
    Data,
    /// An environment written inside the file: make an environment version, put its id.
    Environment,
    /// The build context of an environment: upload, put its address.
    BuildContext,
    /// An input of a job: upload, put its address.
    Input,
}

/// Something that has to exist on the server before the document can be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalAsset {
    /// JSON pointer into the document where the resulting id or address goes.
    pub pointer: String,
    /// What it is.
    pub kind: AssetKind,
    /// Path to upload, with `/` between its parts, relative to the file that names it; absent when there is nothing to upload.
    pub path: Option<String>,
    /// The asset's own document, for an asset written inside the file.
    pub body: Option<Value>,
    /// JSON pointer into `body` where the address of the upload goes.
    pub upload_pointer: Option<String>,
    /// Name and version given to an asset written inside the file; without a name it is anonymous.
    pub name: Option<String>,
    /// See `name`.
    pub version: Option<String>,
    /// Datastore to upload to, when the file names one.
    pub datastore: Option<String>,
}

impl LocalAsset {
    pub(super) fn new(pointer: &str, kind: AssetKind, path: Option<String>) -> Self {
        LocalAsset {
            pointer: pointer.to_owned(),
            kind,
            path,
            body: None,
            upload_pointer: None,
            name: None,
            version: None,
            datastore: None,
        }
    }
}

/// A reference by label, which the server resolves to a version when the document is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRef {
    /// JSON pointer into the document.
    pub pointer: String,
    /// What is referred to.
    pub kind: names::Kind,
    /// Name of the asset.
    pub name: String,
    /// `latest`, also when the file gives no version.
    pub label: String,
}

/// A reference by name that becomes a full id once the workspace is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortRef {
    /// JSON pointer into the document.
    pub pointer: String,
    /// What is referred to.
    pub kind: names::Kind,
    /// The end of the id, behind the workspace: `computes/NAME` or `models/NAME/versions/VERSION`.
    pub tail: String,
}

/// A key that the file does not have and the value that applies.
#[derive(Clone, Debug, PartialEq)]
pub struct DefaultNote {
    /// The key, `settings.mini_batch_size`.
    pub path: String,
    /// The value.
    pub value: Value,
    /// Where the default comes from.
    pub source: &'static str,
}

/// A file that has been read.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// What it is.
    pub kind: Kind,
    /// Name, when given.
    pub name: Option<String>,
    /// Version of an asset, when given.
    pub version: Option<String>,
    /// Endpoint of a deployment.
    pub parent: Option<String>,
    /// The document that is PUT.
    pub body: Value,
    /// What has to be uploaded or created first, in this order.
    pub locals: Vec<LocalAsset>,
    /// References by label.
    pub labels: Vec<LabelRef>,
    /// References by name that `expand` turns into ids.
    pub refs: Vec<ShortRef>,
    /// Values that apply without being written.
    pub defaults: Vec<DefaultNote>,
    /// What deserves a look.
    pub warnings: Vec<Diagnostic>,
    /// Features that the file asks for and Zaffre does not run yet; `validate` accepts them, `create` refuses, naming them.
    pub unsupported: Vec<String>,
    /// The file in its own spelling with every default filled in.
    pub effective: Map<String, Value>,
}

impl Draft {
    /// Turns every reference by name into a full id of this workspace.
    pub fn expand(&mut self, workspace: &Workspace) {
        for reference in std::mem::take(&mut self.refs) {
            self.put(
                &reference.pointer,
                format!("{}/{}", names::workspace_id(workspace), reference.tail),
            );
        }
    }

    /// Puts the version that a label turned out to mean.
    pub fn resolve(&mut self, label: &LabelRef, version: &str, workspace: &Workspace) {
        self.put(
            &label.pointer,
            version_id(workspace, label.kind, &label.name, version),
        );
    }

    /// Puts an id or an address where a pointer of `locals`, `labels` or `refs` says.
    pub fn put(&mut self, pointer: &str, value: impl Into<Value>) {
        put(&mut self.body, pointer, value.into());
    }
}

/// Puts a value at a JSON pointer into a document, making the objects on the way.
pub fn put(body: &mut Value, pointer: &str, value: Value) {
    let mut at = body;
    for key in pointer.split('/').skip(1) {
        let key = key.replace("~1", "/").replace("~0", "~");
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = at
            .as_object_mut()
            .expect("made an object above")
            .entry(key)
            .or_insert(Value::Null);
    }
    *at = value;
}

/// One key as a part of a JSON pointer.
pub(super) fn pointer_part(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
