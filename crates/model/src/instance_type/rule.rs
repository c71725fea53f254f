//! The rules of an instance type, once: what each says, where it holds, and which sentence of the documentation it is.

use super::{
    Amounts, DEVICES, MAX_AMOUNT, MAX_CORES, MAX_DEVICES, MAX_LABEL_VALUE, MAX_MEMORY,
    MAX_SELECTOR, NANO, Written, quoted,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Which rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Rule {
    /// The name is missing.
    NameMissing,
    /// The name is no DNS subdomain.
    Name,
    /// The name is too long.
    NameLength,
    /// The selector has too many labels.
    SelectorSize,
    /// A key of the selector is no label key.
    SelectorKey,
    /// A value of the selector is no label value.
    SelectorValue,
    /// A value of the selector is too long.
    SelectorValueLength,
    /// A field that must be there is not.
    Required,
    /// A quantity is too long to be one.
    AmountLength,
    /// A quantity is the empty text.
    Empty,
    /// Not an amount of cores, or not above zero.
    Cpu,
    /// More cores than are counted.
    CpuMost,
    /// Not an amount of memory, or not above zero.
    Memory,
    /// More memory than is counted.
    MemoryMost,
    /// Not a whole number of GPUs.
    Gpu,
    /// Not a whole number of another device.
    Device,
    /// More devices than are counted.
    DeviceMost,
    /// A GPU under requests.
    GpuRequest,
    /// Another device under requests.
    DeviceRequest,
    /// A device that has no name here.
    DeviceUnknown,
    /// The request of cores is above the limit.
    CpuOrder,
    /// The request of memory is above the limit.
    MemoryOrder,
}

/// What Kubernetes calls the trouble. The first four stop it from looking at the rules of the fifth and sixth kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FaultKind {
    /// `Required value`.
    Required,
    /// `Too long`.
    TooLong,
    /// `Too many`.
    TooMany,
    /// `Invalid value` found by the type of the value; only `wire` meets it.
    Type,
    /// `Invalid value`.
    Invalid,
    /// `Forbidden`.
    Forbidden,
}

impl FaultKind {
    /// The words that begin a message.
    pub fn words(self) -> &'static str {
        match self {
            FaultKind::Required => "Required value",
            FaultKind::TooLong => "Too long",
            FaultKind::TooMany => "Too many",
            FaultKind::Type | FaultKind::Invalid => "Invalid value",
            FaultKind::Forbidden => "Forbidden",
        }
    }

    /// The word in a `Status`.
    pub fn reason(self) -> &'static str {
        match self {
            FaultKind::Required => "FieldValueRequired",
            FaultKind::TooLong => "FieldValueTooLong",
            FaultKind::TooMany => "FieldValueTooMany",
            FaultKind::Type => "FieldValueTypeInvalid",
            FaultKind::Invalid => "FieldValueInvalid",
            FaultKind::Forbidden => "FieldValueForbidden",
        }
    }

    /// Does Kubernetes leave the rules of our definition unchecked when it meets one of these?
    pub fn blocks(self) -> bool {
        match self {
            FaultKind::Required | FaultKind::TooLong | FaultKind::TooMany | FaultKind::Type => true,
            FaultKind::Invalid | FaultKind::Forbidden => false,
        }
    }
}

/// One rule as the table has it.
#[derive(Debug, PartialEq, Eq)]
pub struct RuleRow {
    /// Which.
    pub rule: Rule,
    /// Where the rule is written down: numbers of the behaviour specification, or `kubernetes`, or `ours`.
    pub source: &'static str,
    /// Where it holds; `{}` stands for `requests` or `limits`, `DEVICE` for a name of `DEVICES`.
    pub path: &'static str,
    /// What Kubernetes calls a breach.
    pub kind: FaultKind,
    /// What is said. Empty where Kubernetes says nothing more than the kind.
    pub message: &'static str,
}

const fn row(
    rule: Rule,
    source: &'static str,
    path: &'static str,
    kind: FaultKind,
    message: &'static str,
) -> RuleRow {
    RuleRow {
        rule,
        source,
        path,
        kind,
        message,
    }
}

/// Every rule. The definition for Kubernetes takes its messages from here too.
pub const RULES: [RuleRow; 22] = {
    use FaultKind::{Forbidden, Invalid, Required, TooLong, TooMany};
    [
        row(
            Rule::NameMissing,
            "R-21",
            "metadata.name",
            Required,
            "name or generateName is required",
        ),
        row(
            Rule::Name,
            "R-21, kubernetes",
            "metadata.name",
            Invalid,
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
        row(
            Rule::NameLength,
            "R-21, kubernetes",
            "metadata.name",
            Invalid,
            "must be no more than 253 characters",
        ),
        row(
            Rule::SelectorSize,
            "ours",
            "spec.nodeSelector",
            TooMany,
            "must have at most 64 items",
        ),
        row(
            Rule::SelectorKey,
            "R-27, kubernetes",
            "spec.nodeSelector",
            Invalid,
            "every key must be a label key, such as \"mylabel\" or \"example.com/mylabel\"",
        ),
        row(
            Rule::SelectorValue,
            "R-27, kubernetes",
            "spec.nodeSelector[KEY]",
            Invalid,
            "must be a label value: letters, digits, \"-\", \"_\" and \".\", a letter or digit first and last, or empty",
        ),
        row(
            Rule::SelectorValueLength,
            "R-27, kubernetes",
            "spec.nodeSelector.KEY",
            TooLong,
            "may not be more than 63 bytes",
        ),
        row(
            Rule::Required,
            "R-22, R-23, R-24, R-25",
            "spec.resources.{}.cpu, spec.resources.{}.memory",
            Required,
            "",
        ),
        row(
            Rule::AmountLength,
            "ours",
            "spec.resources.{}",
            TooLong,
            "may not be more than 64 bytes",
        ),
        row(
            Rule::Empty,
            "R-22, R-23, R-24, R-25",
            "spec.resources.{}.cpu, spec.resources.{}.memory",
            Invalid,
            "must not be empty",
        ),
        row(
            Rule::Cpu,
            "R-22, R-24, D-6",
            "spec.resources.{}.cpu",
            Invalid,
            "must be a CPU quantity above zero, such as \"700m\" or \"1\"",
        ),
        row(
            Rule::CpuMost,
            "ours",
            "spec.resources.{}.cpu",
            Invalid,
            "must be at most 1M cores",
        ),
        row(
            Rule::Memory,
            "R-23, R-25, D-6",
            "spec.resources.{}.memory",
            Invalid,
            "must be a memory quantity above zero, such as \"1500Mi\" or \"2Gi\"",
        ),
        row(
            Rule::MemoryMost,
            "ours",
            "spec.resources.{}.memory",
            Invalid,
            "must be at most 1Ei",
        ),
        row(
            Rule::Gpu,
            "R-26, C-11",
            "spec.resources.limits.nvidia.com/gpu",
            Invalid,
            "must be a whole number of GPUs",
        ),
        row(
            Rule::Device,
            "ours",
            "spec.resources.limits.DEVICE",
            Invalid,
            "must be a whole number of devices",
        ),
        row(
            Rule::DeviceMost,
            "ours",
            "spec.resources.limits.DEVICE",
            Invalid,
            "must be at most 999999",
        ),
        row(
            Rule::GpuRequest,
            "R-26, D-7",
            "spec.resources.requests.nvidia.com/gpu",
            Forbidden,
            "GPUs are given under limits only",
        ),
        row(
            Rule::DeviceRequest,
            "ours",
            "spec.resources.requests.DEVICE",
            Forbidden,
            "devices are given under limits only",
        ),
        row(
            Rule::DeviceUnknown,
            "ours",
            "spec.resources.{}.NAME",
            Forbidden,
            "not a resource of an instance type",
        ),
        row(
            Rule::CpuOrder,
            "ours",
            "spec.resources.requests.cpu",
            Invalid,
            "the cpu request must not be above the cpu limit",
        ),
        row(
            Rule::MemoryOrder,
            "ours",
            "spec.resources.requests.memory",
            Invalid,
            "the memory request must not be above the memory limit",
        ),
    ]
};

impl Rule {
    /// Its row of the table.
    pub fn row(self) -> &'static RuleRow {
        // The order of the table is the order of the enum; a test compares them.
        &RULES[self as usize]
    }
    /// What is said when it is broken.
    pub fn message(self) -> &'static str {
        self.row().message
    }
    /// What Kubernetes calls a breach.
    pub fn kind(self) -> FaultKind {
        self.row().kind
    }
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeFault {
    /// The field, `spec.resources.requests.cpu`.
    pub path: Box<str>,
    /// The value as messages show it, `"0"` or `0`; none where Kubernetes does not show one.
    pub value: Option<Box<str>>,
    /// The rule.
    pub rule: Rule,
    /// What is said: the words of the rule, with the values where it compares two.
    pub message: Box<str>,
}

impl TypeFault {
    /// The message without the field: `Invalid value: "0": must be …`.
    pub fn body(&self) -> String {
        let parts = [
            Some(self.rule.kind().words()),
            self.value.as_deref(),
            Some(&*self.message).filter(|message| !message.is_empty()),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
    }
}

/// What a Kubernetes API server prints for it (T3).
impl fmt::Display for TypeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}
impl std::error::Error for TypeFault {}

/// The words of `SelectorKey` with the key, for a reader that knows where the key stands.
pub fn key_message(key: &str) -> String {
    let key = format!("key \"{key}\"");
    Rule::SelectorKey.message().replacen("every key", &key, 1)
}

/// The words of `CpuOrder` and `MemoryOrder` with the values; `what` is `cpu` or `memory`. The definition for
/// Kubernetes passes the expressions that yield the values.
pub fn order_message(what: &str, request: &str, limit: &str) -> String {
    format!("the {what} request ({request}) must not be above the {what} limit ({limit})")
}

type Faults = Vec<TypeFault>;

fn fault(faults: &mut Faults, rule: Rule, path: &str, value: Option<Box<str>>) {
    say(faults, rule, path, value, rule.message().into());
}

fn say(faults: &mut Faults, rule: Rule, path: &str, value: Option<Box<str>>, message: Box<str>) {
    faults.push(TypeFault {
        path: path.into(),
        value,
        rule,
        message,
    });
}

///
pub(super) fn name(faults: &mut Faults, name: &str) {
    const PATH: &str = "metadata.name";
    if name.is_empty() {
        return fault(faults, Rule::NameMissing, PATH, None);
    }
    for rule in name_faults(name) {
        fault(faults, rule, PATH, Some(quoted(name)));
    }
}

/// The rules of DNS subdomains that a text breaks.
pub fn name_faults(name: &str) -> Vec<Rule> {
    let mut broken = Vec::new();
    if name.len() > MAX_SUBDOMAIN {
        broken.push(Rule::NameLength);
    }
    if !labels_of_dns(name) {
        broken.push(Rule::Name);
    }
    broken
}

/// Longest DNS subdomain.
const MAX_SUBDOMAIN: usize = 253;
/// Longest name of a label, behind its domain.
const MAX_LABEL_NAME: usize = 63;

fn labels_of_dns(name: &str) -> bool {
    name.split('.').all(|label| {
        let bytes = label.as_bytes();
        let edge = |c: Option<&u8>| c.is_some_and(|c| matches!(c, b'a'..=b'z' | b'0'..=b'9'));
        edge(bytes.first())
            && edge(bytes.last())
            && bytes
                .iter()
                .all(|c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    })
}

/// The text behind the domain of a label key, and every label value that is not empty.
fn label_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
}

/// Is this a value that a label can have: letters, digits, `-`, `_` and `.`, or nothing?
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || (value.len() <= MAX_LABEL_VALUE && label_text(value))
}

/// Is this a key that a label can have: a name, or a domain, `/` and a name?
pub fn is_label_key(key: &str) -> bool {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    domain.is_none_or(|domain| domain.len() <= MAX_SUBDOMAIN && labels_of_dns(domain))
        && name.len() <= MAX_LABEL_NAME
        && label_text(name)
}

/// What is wrong with a label, by the rules that Kubernetes has for those of its nodes.
pub fn label_fault(key: &str, value: &str) -> Option<String> {
    if !is_label_key(key) {
        return Some(format!(
            "key `{key}` is not a label: at most {MAX_LABEL_NAME} letters, digits, -, _ and ., the first and the last a letter \
             or digit, behind an optional domain and a /"
        ));
    }
    if value.chars().count() > MAX_LABEL_VALUE {
        return Some(format!(
            "the value of {key} has more than {MAX_LABEL_VALUE} characters"
        ));
    }
    (!is_label_value(value)).then(|| {
        format!("value `{value}` is not one of a label: letters, digits, -, _ and ., the first and the last a letter or digit")
    })
}

/// The wrong key is not named: a rule that did would cost more than Kubernetes allows. `key_message` names it.
pub(super) fn selector(faults: &mut Faults, selector: &BTreeMap<Box<str>, Box<str>>) {
    const PATH: &str = "spec.nodeSelector";
    if selector.len() > MAX_SELECTOR {
        let size = selector.len().to_string();
        fault(faults, Rule::SelectorSize, PATH, Some(size.into()));
    }
    if selector.keys().any(|key| !is_label_key(key)) {
        fault(faults, Rule::SelectorKey, PATH, None);
    }
    for (key, value) in selector {
        if value.chars().count() > MAX_LABEL_VALUE {
            let path = format!("{PATH}.{key}");
            fault(faults, Rule::SelectorValueLength, &path, None);
        } else if !is_label_value(value) {
            let path = format!("{PATH}[{key}]");
            fault(faults, Rule::SelectorValue, &path, Some(quoted(value)));
        }
    }
}

/// and no devices.
pub(super) fn requests(faults: &mut Faults, amounts: &Amounts) {
    const PATH: &str = "spec.resources.requests";
    both(faults, PATH, amounts);
    for (name, written) in &amounts.devices {
        let path = format!("{PATH}.{name}");
        if too_long(faults, &path, written) {
            continue;
        }
        match &**name {
            super::GPU => fault(faults, Rule::GpuRequest, &path, None),
            name if DEVICES.contains(&name) => fault(faults, Rule::DeviceRequest, &path, None),
            _ => fault(faults, Rule::DeviceUnknown, &path, None),
        }
    }
}

///
pub(super) fn limits(faults: &mut Faults, amounts: &Amounts) {
    const PATH: &str = "spec.resources.limits";
    both(faults, PATH, amounts);
    for (name, written) in &amounts.devices {
        let path = format!("{PATH}.{name}");
        let rule = match &**name {
            super::GPU => Rule::Gpu,
            name if DEVICES.contains(&name) => Rule::Device,
            _ => {
                fault(faults, Rule::DeviceUnknown, &path, None);
                continue;
            }
        };
        if too_long(faults, &path, written) {
            continue;
        }
        match written.nano {
            Some(nano) if nano >= 0 && nano % NANO == 0 => {
                if nano > i128::from(MAX_DEVICES) * NANO {
                    fault(faults, Rule::DeviceMost, &path, Some(written.shown()));
                }
            }
            _ => fault(faults, rule, &path, Some(written.shown())),
        }
    }
}

fn both(faults: &mut Faults, path: &str, amounts: &Amounts) {
    let cores = i128::from(MAX_CORES) * NANO;
    let bytes = i128::from(MAX_MEMORY) * NANO;
    amount(
        faults,
        &format!("{path}.cpu"),
        &amounts.cpu,
        (Rule::Cpu, Rule::CpuMost, cores),
    );
    amount(
        faults,
        &format!("{path}.memory"),
        &amounts.memory,
        (Rule::Memory, Rule::MemoryMost, bytes),
    );
}

fn amount(
    faults: &mut Faults,
    path: &str,
    written: &Option<Written>,
    (above_zero, at_most, most): (Rule, Rule, i128),
) {
    let Some(written) = written else {
        return fault(faults, Rule::Required, path, None);
    };
    if too_long(faults, path, written) {
        return;
    }
    let rule = match written.nano {
        _ if written.is_empty_text() => Rule::Empty,
        Some(nano) if nano > most => at_most,
        Some(nano) if nano > 0 => return,
        _ => above_zero,
    };
    fault(faults, rule, path, Some(written.shown()));
}

fn too_long(faults: &mut Faults, path: &str, written: &Written) -> bool {
    let long = written.quoted && written.text.chars().count() > MAX_AMOUNT;
    if long {
        fault(faults, Rule::AmountLength, path, None);
    }
    long
}

/// A pod whose request is above its limit cannot exist, so no type describes one.
pub(super) fn order(faults: &mut Faults, requests: &Amounts, limits: &Amounts) {
    let pairs = [
        ("cpu", Rule::CpuOrder, &requests.cpu, &limits.cpu),
        (
            "memory",
            Rule::MemoryOrder,
            &requests.memory,
            &limits.memory,
        ),
    ];
    for (what, rule, request, limit) in pairs {
        let (Some(request), Some(limit)) = (request, limit) else {
            continue;
        };
        // Only `Some` of both: a text without an amount is above nothing.
        let above = request
            .nano
            .zip(limit.nano)
            .is_some_and(|(request, limit)| request > limit);
        if above {
            let message = order_message(what, &request.text, &limit.text);
            let path = format!("spec.resources.requests.{what}");
            say(faults, rule, &path, None, message.into());
        }
    }
}
