//! Models, environments, data and code: versions that never change their content, and the containers that hold them.
//!
//! V1 a version keeps its path for ever; tags, description and the archive flag may change (wire §2);
//! V2 a container is what its versions make it; a document of its own only says description, tags and whether it is archived.

use axum::http::StatusCode;
use model::{Declared, DocKey, Document, Kind, Name};
use serde_json::Value;
use std::{collections::HashMap, sync::Arc};
use wire::{
    arm::{field::Field, link::Links},
    places::Place,
    view,
};

use super::{datastores, put, workspaces::page};
use crate::{
    Api,
    access::Scope,
    call::Call,
    condition, paging,
    problem::{Answer, Problem},
    reply, show, time,
};

/// Versions read at once when a container is made of them.
const STEP: usize = 1000;
/// Documents read at once for a list of containers, at least.
const MIN_STEP: usize = 16;

/// The kind that the collection of the path names.
fn kind(call: &Call) -> Result<Kind, Problem> {
    let segment = call.param("assets");
    [
        ("models", Kind::Model),
        ("environments", Kind::Environment),
        ("data", Kind::Data),
        ("codes", Kind::Code),
        ("components", Kind::Component),
    ]
    .into_iter()
    .find_map(|(name, kind)| name.eq_ignore_ascii_case(segment).then_some(kind))
    .ok_or_else(|| {
        Problem::new(
            StatusCode::NOT_FOUND,
            "InvalidResourceType",
            format!("a workspace has no {}", wire::names::shown(segment)),
        )
    })
}

/// `model` in messages.
fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Model => "model",
        Kind::Environment => "environment",
        Kind::Data => "data asset",
        Kind::Code => "code asset",
        Kind::Component => "component",
        Kind::Workspace
        | Kind::Compute
        | Kind::Datastore
        | Kind::BatchEndpoint
        | Kind::BatchDeployment
        | Kind::OnlineEndpoint
        | Kind::Job
        | Kind::InstanceType
        | Kind::Identity
        | Kind::RoleAssignment
        | Kind::RoleDefinition
        | Kind::Tracked
        | Kind::Quota => "asset",
    }
}

/// The name in the path. The SDK puts `azureml:NAME` there when a program says `azureml:NAME@latest` of an input.
fn name(call: &Call) -> &str {
    let name = call.param("n");
    name.strip_prefix("azureml:").unwrap_or(name)
}

fn version_key(api: &Api, call: &Call) -> Result<DocKey, Problem> {
    let path = format!("{}/{}", call.param("n"), call.param("v"));
    call.key(api, kind(call)?, path)
}

fn missing(key: &DocKey) -> Problem {
    Problem::missing(format!(
        "{} {} does not exist in workspace {}",
        word(key.kind),
        wire::names::shown(&key.path.as_str().replacen('/', ":", 1)),
        key.workspace.name
    ))
}

/// GET a version.
pub(crate) fn get_version(api: &Arc<Api>, call: &Call) -> Answer {
    let path = format!("{}/{}", name(call), call.param("v"));
    let key = call.key(api, kind(call)?, path)?;
    let document = api.control.get(&key)?.ok_or_else(|| missing(&key))?;
    let view = view::asset::version(&document);
    Ok(reply::document(StatusCode::OK, &document, &view))
}

/// PUT a version (V1).
pub(crate) async fn put_version(api: Arc<Api>, call: Call) -> Answer {
    let key = version_key(&api, &call)?;
    let body: Value = call.json()?;
    let stored = put::put(&api, &key, condition::read(&call.headers)?, |before| {
        let draft = put::as_sent(&key, call.text()?, &body, before)?;
        on_a_datastore(&api, &key, &body)?;
        Ok(draft)
    })
    .await?;
    let view = view::asset::version(&stored.document);
    Ok(stored.respond(&view))
}

/// A path in an attached datastore names one that is there.
fn on_a_datastore(api: &Api, key: &DocKey, body: &Value) -> Result<(), Problem> {
    let places = api.places(&key.workspace);
    api.looking(|look| {
        let links = Links {
            places: &places,
            look,
        };
        let p = Field::root(body).get("properties");
        for name in ["modelUri", "dataUri", "codeUri"] {
            let field = p.get(name);
            let Some(text) = field.text()? else { continue };
            if let Ok(Place::Attached { datastore, .. }) = places.locate(text) {
                links.attached(&field, &datastore)?;
            }
        }
        Ok(())
    })
}

/// DELETE a version. Files stay: another version or a running job may use them.
pub(crate) async fn delete_version(api: Arc<Api>, call: Call) -> Answer {
    let key = version_key(&api, &call)?;
    Ok(
        match put::remove(&api, key, None, condition::read(&call.headers)?).await? {
            put::Removed::Now => reply::empty(StatusCode::OK),
            put::Removed::WasNotThere => reply::empty(StatusCode::NO_CONTENT),
        },
    )
}

/// Which documents a list shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listed {
    Active,
    Archived,
    All,
}

impl Listed {
    pub fn of(call: &Call) -> Listed {
        match call.query.get("listViewType") {
            Some(v) if v.eq_ignore_ascii_case("All") => Listed::All,
            Some(v) if v.eq_ignore_ascii_case("ArchivedOnly") => Listed::Archived,
            _ => Listed::Active,
        }
    }
    pub fn shows(self, archived: bool) -> bool {
        match self {
            Listed::All => true,
            Listed::Active => !archived,
            Listed::Archived => archived,
        }
    }
}

/// Whether a document is archived.
pub(crate) fn archived(body: &Value) -> bool {
    body["properties"]["isArchived"] == Value::Bool(true)
}

/// GET the versions of a container; with `hash` (code), the versions of all containers that hold the same files.
pub(crate) fn versions(api: &Arc<Api>, call: &Call) -> Answer {
    let kind = kind(call)?;
    let workspace = call.workspace(api)?;
    let wanted = paging::Wanted::of(call)?;
    let hash = call
        .query
        .get("hash")
        .filter(|h| kind == Kind::Code && !h.is_empty());
    let listed = Listed::of(call);
    let newest = call
        .query
        .get("$orderBy")
        .is_none_or(|order| order.to_ascii_lowercase().ends_with("desc"));
    let parent = hash.is_none().then(|| name(call));
    let mut page = page(&workspace, kind, parent, newest);
    let (items, next) = paging::filtered(&api.control, &mut page, &wanted, |document| {
        if hash.is_some_and(|h| !document.json.contains(h)) {
            return Ok(None);
        }
        let body = put::body(document)?;
        let matches = match hash {
            Some(hash) => body["properties"]["properties"]["hash_sha256"] == hash,
            None => listed.shows(archived(&body)),
        };
        Ok(matches.then(|| view::asset::version(document)))
    })?;
    Ok(reply::ok(&paging::body(call, items, next)))
}

/// The versions of one name, and the document of the container itself.
#[derive(Default)]
pub(crate) struct Container {
    pub own: Option<Document>,
    pub versions: Vec<Document>,
}

fn versions_of(api: &Api, key: &DocKey) -> Result<Vec<Document>, Problem> {
    let mut page = page(&key.workspace, key.kind, Some(key.path.as_str()), false);
    page.limit = STEP;
    let mut all = Vec::new();
    loop {
        let (documents, next) = api.control.page(&page)?;
        all.extend(documents);
        match next {
            Some(next) => page.after = Some(next),
            None => return Ok(all),
        }
    }
}

/// GET a container: `nextVersion` is what a client without a version takes.
pub(crate) fn get_container(api: &Arc<Api>, call: &Call) -> Answer {
    let key = call.key(api, kind(call)?, name(call))?;
    let container = Container {
        own: api.control.get(&key)?,
        versions: versions_of(api, &key)?,
    };
    if container.own.is_none() && container.versions.is_empty() {
        return Err(missing(&key));
    }
    Ok(reply::ok(&show::container(&container)?))
}

/// PUT a container: description, tags, archived (V2).
pub(crate) async fn put_container(api: Arc<Api>, call: Call) -> Answer {
    let key = call.key(&api, kind(&call)?, call.param("n"))?;
    wire::names::check_asset(word(key.kind), key.path.as_str())
        .map_err(|e| Problem::user(e.to_string()).target("/name"))?;
    let body: Value = call.json()?;
    if !body["properties"].is_object() {
        return Err(Problem::bad("properties is required").target("/properties"));
    }
    let stored = put::put(&api, &key, condition::read(&call.headers)?, |_| {
        Ok(put::Draft {
            json: call.text()?.into(),
            declared: Declared::Other,
            warnings: Vec::new(),
        })
    })
    .await?;
    let found = key.clone();
    let state = api.clone();
    let versions = crate::blocking(move || versions_of(&state, &found)).await?;
    let container = Container {
        own: Some(stored.document.clone()),
        versions,
    };
    let view = show::container(&container)?;
    Ok(stored.respond(&view))
}

/// GET the containers of a kind.
pub(crate) fn containers(api: &Arc<Api>, call: &Call) -> Answer {
    let kind = kind(call)?;
    let workspace = call.workspace(api)?;
    let wanted = paging::Wanted::of(call)?;
    let mut page = page(&workspace, kind, None, false);
    page.after = wanted.after.clone();
    let mut groups = Groups {
        api,
        listed: Listed::of(call),
        items: Vec::new(),
        versions: Vec::new(),
        own: HashMap::new(),
        from: None,
    };
    let mut scanned = 0;
    let next = 'pages: loop {
        // Often one version each, and one more shows that the last of them is whole.
        let missing = wanted.limit.saturating_sub(groups.items.len()) + 1;
        page.limit = missing.clamp(MIN_STEP, STEP);
        let (documents, more) = api.control.page(&page)?;
        for document in documents {
            scanned += 1;
            let ended = groups.end_before(&document)?;
            if let Some(last) =
                ended.filter(|_| groups.items.len() >= wanted.limit || scanned > paging::MAX_SCAN)
            {
                break 'pages Some(api.control.behind(&page, &last));
            }
            groups.take(&document)?;
            if groups.items.len() >= wanted.limit {
                break 'pages Some(api.control.behind(&page, &document));
            }
        }
        match more {
            Some(more) => page.after = Some(more),
            None => {
                groups.end()?;
                break None;
            }
        }
    };
    Ok(reply::ok(&paging::body(
        call,
        groups.items,
        next.filter(|_| wanted.top.is_none()),
    )))
}

/// Documents in the order of their paths, one after the other, as the containers that they make. Those of one name follow each
/// other; the document of the container itself stands before them, with others in between (`a`, `a-b/1`, `a/1`).
struct Groups<'a> {
    api: &'a Api,
    listed: Listed,
    items: Vec<Value>,
    versions: Vec<Document>,
    /// Documents of containers whose versions have not come yet.
    own: HashMap<Name, Document>,
    /// The first path that was seen, lower-cased: a container's document from there on is in `own`.
    from: Option<String>,
}

impl Groups<'_> {
    /// Shows the container whose versions came last unless `next` is one of them; returns the last of them.
    fn end_before(&mut self, next: &Document) -> Result<Option<Document>, Problem> {
        let goes_on = self.versions.first().is_some_and(|first| {
            next.key.path.as_str().contains('/')
                && name_of(first).eq_ignore_ascii_case(name_of(next))
        });
        if goes_on { Ok(None) } else { self.end() }
    }

    /// Takes the next document. A container without versions is shown at once.
    fn take(&mut self, document: &Document) -> Result<(), Problem> {
        let path = document.key.path.as_str();
        if self.from.is_none() {
            self.from = Some(path.to_ascii_lowercase());
        }
        if path.contains('/') {
            self.versions.push(document.clone());
        } else if self.is_empty(document)? {
            self.show(Container {
                own: Some(document.clone()),
                versions: Vec::new(),
            })?;
        } else {
            self.own.insert(document.key.path.clone(), document.clone());
        }
        Ok(())
    }

    /// Shows the container whose versions were taken last; returns the last of them.
    fn end(&mut self) -> Result<Option<Document>, Problem> {
        let versions = std::mem::take(&mut self.versions);
        let (Some(first), Some(last)) = (versions.first(), versions.last().cloned()) else {
            return Ok(None);
        };
        let name = name_of(first);
        let key = DocKey::new(&first.key.workspace, first.key.kind, name);
        let was_seen = self
            .from
            .as_ref()
            .is_some_and(|from| name.to_ascii_lowercase() >= *from);
        let own = if was_seen {
            self.own.remove(&key.path)
        } else {
            self.api.control.get(&key)?
        };
        self.show(Container { own, versions })?;
        Ok(Some(last))
    }

    fn is_empty(&self, own: &Document) -> Result<bool, Problem> {
        let key = &own.key;
        let mut below = page(&key.workspace, key.kind, Some(key.path.as_str()), false);
        below.limit = 1;
        Ok(self.api.control.page(&below)?.0.is_empty())
    }

    fn show(&mut self, container: Container) -> Result<(), Problem> {
        let view = show::container(&container)?;
        if self.listed.shows(archived(&view)) {
            self.items.push(view);
        }
        Ok(())
    }
}

fn name_of(document: &Document) -> &str {
    let path = document.key.path.as_str();
    path.split_once('/').map_or(path, |(name, _)| name)
}

/// POST startPendingUpload: a fresh container and a signature for it.
pub(crate) fn pending_upload(api: &Arc<Api>, call: &Call) -> Answer {
    kind(call)?;
    let workspace = call.workspace(api)?;
    let id = uuid::Uuid::new_v4().to_string();
    let container = api
        .places(&workspace)
        .upload(&id)
        .ok_or_else(|| Problem::internal("naming an upload", &"a UUID was refused"))?;
    let sas = api.sas.sign(
        Scope::Container(container.as_str()),
        datastores::ALL,
        time::now(),
    );
    let site = show::site(api, &call.base);
    Ok(reply::ok(&view::asset::pending_upload(
        &site, &workspace, &container, &id, &sas,
    )))
}
