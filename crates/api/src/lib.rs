//! The way in over HTTP: ARM, the data plane that the SDK reads, and blobs. See ARCHITECTURE.md.
//!
//! A1 one route table (`table::ROUTES`); every route names its Azure action and who may use it;
//! A2 a write is answered after the loop has made it durable;
//! A3 the server never opens a path that a client sent: blobs are reached through `Blobs` alone;
//! A4 nothing about a long-running operation is stored: its state is read from what it acts on.

mod access;
mod agents;
mod arm;
mod blob;
mod call;
mod condition;
mod identity;
mod kept;
mod kube;
mod paging;
mod plane;
mod problem;
mod query;
mod reply;
mod route;
mod runs;
mod seal;
mod show;
mod table;
mod time;

pub use access::{SAS_KEY_BYTES, SasKey, TokenDigest};
pub use agents::{AgentChannel, Agents, NODE_KEY_BYTES, NodeKey, PROTOCOL as AGENT_PROTOCOL};
pub use identity::{Fetch, Identities, IdentityClock, JOB_KEY_BYTES, JobKey, KeepKeys, Outside};
pub use kube::PREFIX as KUBE_PREFIX;
pub use plane::open::CLOUD;
pub use route::{ARM_BODY_LIMIT, Guard, Route, Routes};
pub use runs::{RUN_KEY_BYTES, RunKey};
pub use seal::{SEAL_KEY_BYTES, SealKey};
pub use table::ROUTES;

use axum::http::HeaderMap;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use control::{Control, StoreError};
use model::{BlobPath, DocKey, Document, JobId, Kind, Time, Workspace};
use problem::Problem;
use serde_json::Value;
use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};
use wire::{
    arm::{Invalid, datastore::Reach, link::Look},
    places::Places,
};

/// The end of the path of a key that means the newest version (`wire::places::LATEST`).
const NEWEST: &str = "@latest";
/// Versions looked at together for one that is not archived.
const NEWEST_LOOKED_AT: usize = 16;

/// How the connection reached the server; the binary puts it among the request's extensions. Absent: https.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plain, from this machine.
    Http,
    /// TLS.
    Https,
}

impl Scheme {
    /// As in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

/// What the routes work with.
pub struct Api {
    control: Control,
    token: TokenDigest,
    identities: Identities,
    sas: SasKey,
    location: String,
    /// Workspaces known to exist.
    workspaces: RwLock<HashMap<Arc<Workspace>, Arc<Places>>>,
    /// The workspace that always exists.
    home: Arc<Workspace>,
    started: Time,
    finalizing: plane::history::FirstCalls,
    sweep: blob::blocks::Sweep,
    kept: kept::Kept,
    kube: kube::State,
    room: Room,
    /// Where connections of agents go, and the key of their credentials; without an engine that has any, none is let in.
    agents: Option<(NodeKey, Agents)>,
    /// The key of the credentials of runs; without one, no job is let in.
    runs: Option<RunKey>,
    experiments: plane::mlflow::Names,
    keep: Keep,
    seal: SealKey,
    stores: Stores,
}

/// Whether the disk is above its reserve; the message says what is short.
type Room = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Attaches what lies behind a container of attached files, or detaches it; the message says why it cannot be.
type Stores = Box<dyn Fn(&BlobPath, Option<&Reach>) -> Result<(), String> + Send + Sync>;

/// Keeps a secret under its digest, durably, before anything names it.
type Keep = Box<dyn Fn(&str, &[u8]) -> std::io::Result<()> + Send + Sync>;

impl Api {
    /// Routes over `control`. `home` always exists, whether or not a document says so; `location` is what resources report.
    /// Reads the workspaces there are, so it blocks.
    pub fn new(
        control: Control,
        token: TokenDigest,
        sas: SasKey,
        home: &Arc<Workspace>,
        location: &str,
    ) -> Result<Self, StoreError> {
        let mut workspaces = HashMap::new();
        for workspace in control.store().workspaces()? {
            if workspace == *home
                || control
                    .get(&DocKey::new(&workspace, Kind::Workspace, ""))?
                    .is_some()
            {
                workspaces.insert(workspace.clone(), Arc::new(Places::of(&workspace)));
            }
        }
        workspaces
            .entry(home.clone())
            .or_insert_with(|| Arc::new(Places::of(home)));
        let turns = control.turns();
        let identities = Identities::fleeting();
        identities.read(&control)?;
        Ok(Api {
            control,
            token,
            identities,
            sas,
            location: location.to_owned(),
            workspaces: RwLock::new(workspaces),
            kept: kept::Kept::new(turns),
            home: home.clone(),
            started: time::now(),
            finalizing: plane::history::FirstCalls::default(),
            kube: kube::State::default(),
            sweep: blob::blocks::Sweep::since(time::now()),
            room: Box::new(|| Ok(())),
            agents: None,
            runs: None,
            experiments: plane::mlflow::Names::default(),
            keep: Box::new(|_, _| Err(std::io::ErrorKind::Unsupported.into())),
            seal: SealKey::fleeting(),
            stores: Box::new(|_, _| Ok(())),
        })
    }

    /// Refuses uploads while `room` says that the disk is short: its reserve is for what runs. The loop refuses commands.
    #[must_use]
    pub fn with_room(
        mut self,
        room: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.room = Box::new(room);
        self
    }

    /// Signs tokens with keys that outlive this process. Reads who there is, so it blocks.
    pub fn with_identities(mut self, identities: Identities) -> Result<Self, StoreError> {
        identities.read(&self.control)?;
        self.identities = identities;
        Ok(self)
    }

    /// Lets agents in whose credentials `key` has signed.
    #[must_use]
    pub fn with_agents(mut self, key: NodeKey, agents: Agents) -> Self {
        self.agents = Some((key, agents));
        self
    }

    /// Lets jobs log what they measure, with credentials that `key` has signed.
    #[must_use]
    pub fn with_runs(mut self, key: RunKey) -> Self {
        self.runs = Some(key);
        self
    }

    /// Keeps the kubeconfigs of attached clusters: `keep` gets the digest and the text, and returns once it is durable.
    #[must_use]
    pub fn with_kubeconfigs(
        mut self,
        keep: impl Fn(&str, &[u8]) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.keep = Box::new(keep);
        self
    }

    /// The run whose credential the headers carry.
    fn run_of(&self, headers: &HeaderMap) -> Option<JobId> {
        self.runs.as_ref()?.run(headers)
    }

    /// Seals the secrets inside documents with a key that outlives the process; without one they open until it ends.
    #[must_use]
    pub fn with_seal(mut self, key: SealKey) -> Self {
        self.seal = key;
        self
    }

    /// Attaches datastores as they are declared, those that there are already at once. Reads documents, so it blocks. What cannot
    /// be attached is told, and does not stop the others.
    pub fn with_stores(
        mut self,
        stores: impl Fn(&BlobPath, Option<&Reach>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<Self, StoreError> {
        self.stores = Box::new(stores);
        for workspace in self.workspaces_known() {
            let mut page = arm::workspaces::page(&workspace, Kind::Datastore, None, false);
            loop {
                let (documents, next) = self.control.page(&page)?;
                for document in &documents {
                    if let Err(why) = arm::datastores::attach(&self, document) {
                        tracing::warn!(datastore = %document.key.path, why, "it cannot be attached");
                    }
                }
                match next {
                    Some(next) => page.after = Some(next),
                    None => break,
                }
            }
        }
        Ok(self)
    }

    /// The workspace spelled as first written, if it exists.
    fn workspace(&self, named: &Arc<Workspace>) -> Result<Option<Arc<Workspace>>, Problem> {
        let known = self
            .workspaces
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((known, _)) = known.get_key_value(named) {
            return Ok(Some(known.clone()));
        }
        drop(known);
        let stored = self.control.get(&DocKey::new(named, Kind::Workspace, ""))?;
        Ok(stored.map(|document| self.learn(document.key.workspace)))
    }

    fn learn(&self, workspace: Arc<Workspace>) -> Arc<Workspace> {
        let mut known = self
            .workspaces
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((known, _)) = known.get_key_value(&workspace) {
            return known.clone();
        }
        known.insert(workspace.clone(), Arc::new(Places::of(&workspace)));
        workspace
    }

    /// A workspace that was deleted.
    fn forget(&self, workspace: &Arc<Workspace>) {
        let mut known = self
            .workspaces
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        known.remove(workspace);
    }

    fn workspaces_known(&self) -> Vec<Arc<Workspace>> {
        let known = self
            .workspaces
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        known.keys().cloned().collect()
    }

    fn places(&self, workspace: &Arc<Workspace>) -> Arc<Places> {
        let known = self
            .workspaces
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        match known.get(workspace) {
            Some(places) => places.clone(),
            None => Arc::new(Places::of(workspace)),
        }
    }

    /// The workspace that a container belongs to.
    fn owner(&self, container: &str) -> Option<Arc<Workspace>> {
        let known = self
            .workspaces
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let mut all = known.iter();
        all.find_map(|(w, places)| places.owns(container).then(|| w.clone()))
    }

    /// The document of a step, a trial, a pipeline or a sweep with where its outputs lie: its run knows, not the document.
    fn located(&self, document: Option<Document>) -> Result<Option<Document>, StoreError> {
        let document = match document {
            Some(document) if document.key.kind == Kind::Job => document,
            other => return Ok(other),
        };
        let id = JobId::new(&document.key.workspace, document.key.path.clone());
        let run = self.control.run(&id)?;
        let family = run.filter(|r| r.spec.part.is_some() || r.spec.is_parent());
        Ok(Some(match family {
            Some(run) => wire::view::job::located(&document, &run),
            None => document,
        }))
    }

    /// The newest version of an asset that is not archived, as every client understands `@latest` (wire §7).
    fn newest(&self, key: &DocKey, name: &str) -> Result<Option<Document>, StoreError> {
        let mut page = arm::workspaces::page(&key.workspace, key.kind, Some(name), true);
        page.limit = NEWEST_LOOKED_AT;
        loop {
            let (documents, next) = self.control.page(&page)?;
            let shown = |d: &Document| {
                let body: Result<Value, _> = serde_json::from_str(&d.json);
                !body.is_ok_and(|b| arm::assets::archived(&b))
            };
            // versions of one moment: the one that was written last, or counts highest
            let order = |d: &Document| {
                let version = d.key.path.as_str().rsplit('/').next();
                let number = version.and_then(|v| v.parse::<u64>().ok());
                (d.created, d.generation, number)
            };
            let newest = documents.into_iter().filter(shown).max_by_key(order);
            if newest.is_some() {
                return Ok(newest);
            }
            match next {
                Some(next) => page.after = Some(next),
                None => return Ok(None),
            }
        }
    }

    /// Lets `wire` find documents. A store that cannot be read is an error of ours, never a missing document.
    fn looking<T>(&self, work: impl FnOnce(Look<'_>) -> Result<T, Invalid>) -> Result<T, Problem> {
        let broken = RefCell::new(None);
        let find = |key: &DocKey| match key.path.as_str().strip_suffix(NEWEST) {
            Some(name) => self.newest(key, name),
            None => self.control.get(key),
        };
        let look = |key: &DocKey| match find(key).and_then(|d| self.located(d)) {
            Ok(found) => found,
            Err(error) => {
                broken.replace(Some(error));
                None
            }
        };
        let result = work(&look);
        match broken.take() {
            Some(error) => Err(error.into()),
            None => Ok(result?),
        }
    }
}

/// Everything that is answered over HTTP.
pub fn router(api: Api) -> Routes {
    Routes::new(api)
}

/// Runs `work` where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Problem::internal("the request", &error)),
    }
}

fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
