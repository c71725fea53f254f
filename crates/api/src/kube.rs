//! One resource of the Kubernetes API: instance types, so that stock `kubectl` works without a cluster.
//!
//! Below `PREFIX`, which `kubectl` keeps in front of every path, so that nothing here meets a path of ARM. It is not an API
//! server: what is not in the table is a 404 or 405 with a `Status`.
//!
//! K1 an object is stored without `resourceVersion`: it is the revision of the write, rendered (`TypeRecord::revision`);
//! K2 a write names the generation of the document it was made from: two writers cannot overwrite each other;
//! K3 a write that changes nothing writes nothing: the resourceVersion stays;
//! K4 a watch holds a position, never events: it reads what the loop published, and wakes by the loop's turns;
//! K5 every refusal is a `Status` object, 401 too, and none says anything before the token was right (I8);
//! K6 the one status above 500 that a client can cause is Kubernetes' own: 504 for a revision that was not made yet.

mod apply;
mod crd;
mod delete;
mod discovery;
mod fields;
mod object;
mod openapi;
mod options;
mod patch;
mod read;
mod refused;
mod review;
mod select;
mod settle;
mod table;
mod watch;
mod write;

pub(crate) use crd::{list as definitions, one as definition};
pub(crate) use delete::delete;
pub(crate) use discovery::{
    core, group, groups, resources, resources_of_definitions, resources_of_reviews, version,
};
pub(crate) use openapi::{document as openapi, index as openapi_index, v2 as openapi_v2};
pub(crate) use read::{get, list};
pub(crate) use refused::{Refused, denied, nothing_here, wrong_method};
pub(crate) use review::review;
pub(crate) use write::{create, patch, replace};

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// Where the API begins; `zaffre kubeconfig` writes it behind the server's address.
pub const PREFIX: &str = "/kube";
/// Watches at once; the connections of the port are more.
const WATCHES: usize = 128;

/// What the routes here keep between requests; all of it may be forgotten.
pub(crate) struct State {
    watches: Arc<Semaphore>,
    /// Lists that somebody is paging through, oldest first.
    paged: Mutex<VecDeque<model::view::Types>>,
}

impl Default for State {
    fn default() -> Self {
        State {
            watches: Arc::new(Semaphore::new(WATCHES)),
            paged: Mutex::default(),
        }
    }
}

/// Whether a path lies here.
pub(crate) fn holds(path: &str) -> bool {
    let rest = path
        .get(..PREFIX.len())
        .filter(|start| start.eq_ignore_ascii_case(PREFIX))
        .map(|_| &path[PREFIX.len()..]);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
