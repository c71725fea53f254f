//! Files in: the YAML that `az ml` users have → the document that a client PUTs, and what has to happen before it can be sent.
//!
//! 1 nothing in a file is silently ignored: an unknown key is an error with the nearest known key;
//! 2 a text field keeps the characters that were written (`1.10`, `010`, `2022-02-03`);
//! 3 every message has a place, the rule and the value; independent errors are reported together;
//! 4 what a file may cost is bounded before it is spent, and no bytes make the loader panic.
//!
//! Not YAML → model: the document is the contract, and `zaffre create -f` goes the way that the SDK goes.

mod assets;
mod compute;
mod datastore;
mod deployment;
mod diagnostic;
mod draft;
mod duration;
mod effective;
mod emit;
mod endpoint;
mod fields;
mod job;
mod kind;
mod kubernetes;
mod limits;
mod load;
mod machine;
mod online;
mod parallel;
mod pipeline;
mod reference;
pub(crate) mod report;
mod resources;
mod scalar;
mod set;
mod sweep;
pub(crate) mod text;
pub(crate) mod tree;
mod workspace;

pub use compute::{DEFAULT_IDLE_SECONDS, DEFAULT_MAX_INSTANCES, DEFAULT_SIZE};
pub use diagnostic::{Diagnostic, Place};
pub use draft::{AssetKind, DefaultNote, Draft, Kind, LabelRef, LocalAsset, ShortRef, put};
pub use duration::iso8601;
pub use effective::render;
pub use load::{DEFAULT_LOCATION, LoadOptions, Refused, load, load_flags};
pub use report::Files;
pub use set::Override;

/// The YAML of a value in block style.
pub(crate) fn block_yaml(value: &serde_json::Value) -> String {
    emit::yaml(value, &|_| None)
}
