//! Instance types: a named size for work on Kubernetes, made of a node selector and of resources (R-1, R-3).
//!
//! T1 an `InstanceType` has passed every rule of `RULES`; there is no other way to one than `new` and the event log;
//! T2 all that is wrong is told at once, each with its place, its rule and its value, in the order of the fields;
//! T3 a message is the one that a Kubernetes API server prints for the same object with our definition installed: both take
//!    the words of `Rule`, so that the two doors cannot drift apart.
//!
//! Text forms of quantities are `wire`'s: it says what was written and which amount that is, in billionths, so that
//! comparisons are as exact as Kubernetes' (`Written`).

mod rule;
mod selector;

pub use rule::{
    FaultKind, RULES, Rule, RuleRow, TypeFault, is_label_key, is_label_value, key_message,
    label_fault, name_faults, order_message,
};
pub use selector::{SelectorConflict, SelectorMode, merge_selectors};

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt::Write as _};

use crate::unit::{Bytes, MilliCpu, Resources};

/// The type of work that names none (R-8, R-16, R-32). Whoever creates one of this name overrides the built-in (R-15).
pub const DEFAULT_INSTANCE_TYPE: &str = "defaultinstancetype";
/// The device that Azure's documentation speaks of (R-26).
pub const GPU: &str = "nvidia.com/gpu";
/// Devices that a type may limit: NVIDIA's, which is Azure's own, and others as an extension of ours. A fixed list, since a
/// structural schema has either known keys or any keys under `limits`, and with any keys a slip such as `nvidia.com/gpus`
/// would give a type without a GPU and no error.
pub const DEVICES: [&str; 8] = [
    GPU,
    "nvidia.com/gpu.shared",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "habana.ai/gaudi",
    "aws.amazon.com/neuron",
    "google.com/tpu",
];
/// Labels that a selector may ask for: a hundred times what honest ones have, and it bounds the cost of the rules.
pub const MAX_SELECTOR: usize = 64;
/// Characters of a quantity: the longest honest one has about forty.
pub const MAX_AMOUNT: usize = 64;
/// Characters of a label's value: Kubernetes' own limit.
pub const MAX_LABEL_VALUE: usize = 63;
/// Cores that a type may ask for: more than any node has, and they fit the units when many are added.
pub const MAX_CORES: u64 = 1_000_000;
/// Bytes that a type may ask for, 1 EiB: for the same reason.
pub const MAX_MEMORY: u64 = 1 << 60;
/// Devices of one name that a type may ask for: six digits.
pub const MAX_DEVICES: u32 = 999_999;

/// Billionths of a unit: how `wire` says an exact amount.
const NANO: i128 = 1_000_000_000;
const NANO_PER_MILLI: i128 = 1_000_000;

/// A named size: where pods may run and what they get (R-3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceType {
    name: Box<str>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    node_selector: BTreeMap<Box<str>, Box<str>>,
    requests: Resources,
    limits: Resources,
}

/// What was written, before the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unchecked {
    /// Its name; empty when none is given.
    pub name: Box<str>,
    /// Labels that a node must carry.
    pub node_selector: BTreeMap<Box<str>, Box<str>>,
    /// What the scheduler reserves.
    pub requests: Amounts,
    /// What a pod may not pass.
    pub limits: Amounts,
}

/// One side of the resources, as written. An absent amount is `None`; so is a null, which is dropped (C-11).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// `cpu`.
    pub cpu: Option<Written>,
    /// `memory`.
    pub memory: Option<Written>,
    /// Everything else, by name.
    pub devices: BTreeMap<Box<str>, Written>,
}

/// An amount as it was written, and its exact value when it is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    text: Box<str>,
    quoted: bool,
    nano: Option<i128>,
}

impl Written {
    /// A text with the amount that it means, in billionths; `None` when it means none.
    pub fn text(text: &str, nano: Option<i128>) -> Self {
        Written {
            text: text.into(),
            quoted: true,
            nano,
        }
    }

    /// A whole number.
    pub fn number(n: i64) -> Self {
        Written {
            text: n.to_string().into(),
            quoted: false,
            nano: Some(i128::from(n) * NANO),
        }
    }

    /// As messages show it: a text in quotes, a number without.
    fn shown(&self) -> Box<str> {
        if self.quoted {
            quoted(&self.text)
        } else {
            self.text.clone()
        }
    }

    fn is_empty_text(&self) -> bool {
        self.quoted && self.text.is_empty()
    }
}

/// A text in quotes, with the escapes that Kubernetes' messages have (Go's `%q`).
pub fn quoted(text: &str) -> Box<str> {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{C}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{B}' => out.push_str("\\v"),
            '\0'..='\u{1F}' | '\u{7F}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c if !c.is_ascii() && !printed(c) => {
                let _ = match u32::from(c) {
                    n @ ..0x1_0000 => write!(out, "\\u{n:04x}"),
                    n => write!(out, "\\U{n:08x}"),
                };
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out.into()
}

/// Go prints what Rust prints behind a letter, where a mark that joins it is no stranger.
fn printed(c: char) -> bool {
    let behind_a_letter: String = ['a', c].iter().collect();
    behind_a_letter.escape_debug().count() == 2
}

impl InstanceType {
    /// A type that meets every rule (R-20 to R-27), or all that is wrong with it (T2).
    pub fn new(written: Unchecked) -> Result<InstanceType, Vec<TypeFault>> {
        let mut faults = Vec::new();
        rule::name(&mut faults, &written.name);
        rule::selector(&mut faults, &written.node_selector);
        rule::requests(&mut faults, &written.requests);
        rule::limits(&mut faults, &written.limits);
        rule::order(&mut faults, &written.requests, &written.limits);
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(InstanceType {
            name: written.name,
            node_selector: written.node_selector,
            requests: resources(&written.requests),
            limits: resources(&written.limits),
        })
    }

    /// The built-in `defaultinstancetype` (R-9, C-1): 100m and 2Gi, at most 2 cores and 2Gi, no GPU, any node (R-10).
    pub fn default_type() -> InstanceType {
        let of = |cpu| Resources {
            cpu: MilliCpu(cpu),
            memory: Bytes(2 << 30),
            devices: BTreeMap::new(),
        };
        InstanceType {
            name: DEFAULT_INSTANCE_TYPE.into(),
            node_selector: BTreeMap::new(),
            requests: of(100),
            limits: of(2000),
        }
    }

    /// Its name, unique in the cluster (R-21).
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Labels that a node must carry (R-6); none means any node that the extension selects (R-7).
    pub fn node_selector(&self) -> &BTreeMap<Box<str>, Box<str>> {
        &self.node_selector
    }
    /// What the scheduler reserves. No devices (R-26).
    pub fn requests(&self) -> &Resources {
        &self.requests
    }
    /// What a pod may not pass, and its devices; a device that is not there is not given, however "none" was written.
    pub fn limits(&self) -> &Resources {
        &self.limits
    }
}

/// The units of amounts that have passed the rules; below a unit they round up, as Kubernetes does.
fn resources(amounts: &Amounts) -> Resources {
    let in_units = |written: &Option<Written>, unit| {
        let nano = written.as_ref().and_then(|written| written.nano);
        let nano = nano.unwrap_or_default();
        u64::try_from(nano / unit + i128::from(nano % unit != 0)).unwrap_or_default()
    };
    let count = |written: &Written| {
        let whole = written.nano.unwrap_or_default() / NANO;
        u32::try_from(whole).ok().filter(|count| *count > 0)
    };
    Resources {
        cpu: MilliCpu(in_units(&amounts.cpu, NANO_PER_MILLI)),
        memory: Bytes(in_units(&amounts.memory, NANO)),
        devices: amounts
            .devices
            .iter()
            .filter_map(|(name, written)| Some((name.clone(), count(written)?)))
            .collect(),
    }
}

#[cfg(test)]
mod tests;
