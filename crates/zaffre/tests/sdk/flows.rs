//! The conformance flows that are not played to their end: what the suite leaves out, and what the table of compatibility says.

/// Flows that do not pass yet, and why. One that passes must leave the list, so it only becomes shorter.
pub const NOT_YET: &[(&str, &str)] = &[];

/// Flows about online endpoints as a whole, which are not served yet.
pub const ONLINE: [&str; 2] = ["07_online_k8s", "08_online_managed"];
