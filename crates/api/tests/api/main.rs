//! The crate from outside: every route over a real loop, memory adapters and a fake engine.

mod blobs;
mod hostile;
mod routes;
mod server;
