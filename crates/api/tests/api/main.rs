//! The crate from outside: every route over a real loop, memory adapters and a fake engine.

mod assets;
mod batch;
mod blobs;
mod computes;
mod hostile;
mod jobs;
mod kube;
mod mlflow;
mod routes;
mod server;
