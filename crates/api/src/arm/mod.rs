//! ARM: the resources of a workspace.

pub(crate) mod assets;
pub(crate) mod batch;
pub(crate) mod computes;
pub(crate) mod datastores;
pub(crate) mod invoke;
pub(crate) mod job_list;
pub(crate) mod jobs;
pub(crate) mod location;
pub(crate) mod metrics;
pub(crate) mod online;
pub(crate) mod operations;
pub(crate) mod put;
pub(crate) mod templates;
pub(crate) mod workspaces;
