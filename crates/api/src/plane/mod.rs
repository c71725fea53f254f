//! The data plane: what the SDK asks beside ARM, under base URLs that the workspace's discovery URL gives.

pub(crate) mod data;
pub(crate) mod history;
pub(crate) mod mlflow;
pub(crate) mod open;
