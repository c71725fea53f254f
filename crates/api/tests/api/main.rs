//! The crate from outside: every route over a real loop, memory adapters and a fake engine.

mod assets;
mod batch;
mod blobs;
mod blocks;
mod computes;
mod fuzz;
mod hostile;
mod identity;
mod jobs;
mod kube;
mod mlflow;
mod online;
mod pipelines;
mod references;
mod roles;
mod routes;
mod server;
mod targets;
mod workspaces;
