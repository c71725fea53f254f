//! Names, their rules, and every way in which a file can point at something: `azureml:name:version`, ARM ids, datastore URIs.
//!
//! M1 a name that is refused is shown escaped, so that a line break or a control character can be seen;
//! M2 ids compare case-blind and keep the spelling they came with;
//! M3 a reference that Zaffre understands but cannot follow (a registry) is refused by name, never taken for a path.

use model::Workspace;
use std::fmt;

/// The provider segment of every id.
pub const PROVIDER: &str = "Microsoft.MachineLearningServices";
/// Longest name and longest version of an asset or a job: Azure's own limit.
pub const MAX_ASSET_NAME: usize = 255;
/// Azure's limits on the name of a cluster or an instance.
pub const COMPUTE_NAME: std::ops::RangeInclusive<usize> = 3..=24;
/// Azure's limits on the name of an endpoint or a deployment.
pub const ENDPOINT_NAME: std::ops::RangeInclusive<usize> = 3..=32;
/// An ARM id or a URI longer than this is refused before it is taken apart.
pub const MAX_REFERENCE: usize = 4096;

/// Why a name or a reference is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name breaks a rule of its kind.
    #[error("{} `{}` {rule}", titled(.what), shown(.name))]
    Rule {
        /// `compute`, `endpoint`, `version`, …
        what: &'static str,
        /// The name as given.
        name: String,
        /// What is wrong, as the end of a sentence.
        rule: String,
    },
    /// The text looks like a reference but is none.
    #[error("`{}` is not a reference: {rule}", shown(.text))]
    Reference {
        /// The text as given.
        text: String,
        /// What is wrong.
        rule: String,
    },
    /// The reference points into a registry.
    #[error("`{}` points into the registry `{}`: zaffre does not reach registries yet", shown(.text), shown(.registry))]
    Registry {
        /// The text as given.
        text: String,
        /// The registry.
        registry: String,
    },
}

/// A version is called by its own name, everything else has one.
fn titled(what: &str) -> String {
    if what == "version" {
        what.to_owned()
    } else {
        format!("{what} name")
    }
}

/// A name as a message shows it: control and invisible characters escaped (M1), cut when very long.
pub fn shown(name: &str) -> String {
    const MOST: usize = 64;
    let mut out = String::new();
    for c in name.chars().take(MOST) {
        match c {
            '\\' | '\'' | '"' => out.push(c),
            c => out.extend(c.escape_debug()),
        }
    }
    if name.chars().nth(MOST).is_some() {
        out.push('…');
    }
    out
}

/// An id or a path as a message shows it: whole, control and invisible characters escaped (M1).
pub fn shown_all(path: &str) -> String {
    let escaped = |c: char| match c {
        '\\' | '\'' | '"' => c.to_string(),
        c => c.escape_debug().to_string(),
    };
    path.chars().take(MAX_REFERENCE).map(escaped).collect()
}

/// The name of a cluster or an instance: 3 to 24 letters, digits and hyphens, a letter first.
pub fn check_compute(name: &str) -> Result<(), NameError> {
    let refuse = refusal("compute", name);
    printable(&refuse, name)?;
    length(&refuse, name, &COMPUTE_NAME)?;
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(refuse("must start with a letter"));
    }
    only(&refuse, name, "-", "letters, digits and -")
}

/// Azure's portal also wants a letter somewhere after a hyphen in a compute's name; `Some` explains when there is none.
pub fn compute_name_advice(name: &str) -> Option<String> {
    let (_, after) = name.rsplit_once('-')?;
    (!after.contains(|c: char| c.is_ascii_alphabetic())).then(|| {
        format!(
            "compute name `{}` has no letter after its last -, which azure refuses",
            shown(name)
        )
    })
}

/// The name of an endpoint: `^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`, 3 to 32 characters.
pub fn check_endpoint(name: &str) -> Result<(), NameError> {
    endpoint_rule("endpoint", name)
}

/// The name of a deployment: the rule of endpoints.
pub fn check_deployment(name: &str) -> Result<(), NameError> {
    endpoint_rule("deployment", name)
}

fn endpoint_rule(what: &'static str, name: &str) -> Result<(), NameError> {
    let refuse = refusal(what, name);
    printable(&refuse, name)?;
    length(&refuse, name, &ENDPOINT_NAME)?;
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(refuse("must start with a letter"));
    }
    if name.ends_with('-') {
        return Err(refuse("must not end with -"));
    }
    only(&refuse, name, "-", "letters, digits and -")
}

/// The name of a model, an environment, a data asset or a code asset (`what`): at most 255 letters, digits, `-`, `_` and `.`.
pub fn check_asset(what: &'static str, name: &str) -> Result<(), NameError> {
    let refuse = refusal(what, name);
    printable(&refuse, name)?;
    length(&refuse, name, &(1..=MAX_ASSET_NAME))?;
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
        return Err(refuse("must start with a letter, a digit or _"));
    }
    only(&refuse, name, "-_.", "letters, digits, - _ and .")
}

/// The version of an asset: text, with the rule of asset names.
pub fn check_version(version: &str) -> Result<(), NameError> {
    check_asset("version", version)
}

/// The name of a job.
pub fn check_job(name: &str) -> Result<(), NameError> {
    check_asset("job", name)
}

fn refusal<'n>(what: &'static str, name: &'n str) -> impl Fn(&str) -> NameError + 'n {
    move |rule| NameError::Rule {
        what,
        name: name.to_owned(),
        rule: rule.to_owned(),
    }
}

fn printable(refuse: &impl Fn(&str) -> NameError, name: &str) -> Result<(), NameError> {
    if name.contains(['<', '>']) {
        return Err(refuse("still holds a placeholder <…> of the documentation"));
    }
    match name.chars().find(|c| c.is_control()) {
        Some('\n' | '\r') => Err(refuse("holds a line break")),
        Some(_) => Err(refuse("holds a control character")),
        None => Ok(()),
    }
}

fn length(
    refuse: &impl Fn(&str) -> NameError,
    name: &str,
    allowed: &std::ops::RangeInclusive<usize>,
) -> Result<(), NameError> {
    let count = name.chars().count();
    if count == 0 {
        Err(refuse("is empty"))
    } else if !allowed.contains(&count) {
        Err(refuse(&format!(
            "has {count} characters, allowed are {} to {}",
            allowed.start(),
            allowed.end()
        )))
    } else {
        Ok(())
    }
}

fn only(
    refuse: &impl Fn(&str) -> NameError,
    name: &str,
    marks: &str,
    allowed: &str,
) -> Result<(), NameError> {
    match name
        .chars()
        .find(|c| !c.is_ascii_alphanumeric() && !marks.contains(*c))
    {
        Some(c) => Err(refuse(&format!(
            "holds `{}`, allowed are {allowed}",
            shown(&c.to_string())
        ))),
        None => Ok(()),
    }
}

/// Are these the same id (M2)?
pub fn same_id(a: &str, b: &str) -> bool {
    a.trim_end_matches('/')
        .eq_ignore_ascii_case(b.trim_end_matches('/'))
}

/// What kind of thing a reference points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A compute target.
    Compute,
    /// A code version.
    Code,
    /// A model version.
    Model,
    /// An environment version.
    Environment,
    /// A data version.
    Data,
    /// A component version.
    Component,
}

impl Kind {
    /// The collection in an id: `models`.
    pub fn collection(self) -> &'static str {
        match self {
            Kind::Compute => "computes",
            Kind::Code => "codes",
            Kind::Model => "models",
            Kind::Environment => "environments",
            Kind::Data => "data",
            Kind::Component => "components",
        }
    }

    /// The word in a message: `model`.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Compute => "compute",
            Kind::Code => "code",
            Kind::Model => "model",
            Kind::Environment => "environment",
            Kind::Data => "data",
            Kind::Component => "component",
        }
    }

    /// The word with its article: `an environment`.
    pub fn one(self) -> String {
        let article = if self == Kind::Environment { "an" } else { "a" };
        format!("{article} {self}")
    }

    fn of_collection(text: &str) -> Option<Kind> {
        [
            Kind::Compute,
            Kind::Code,
            Kind::Model,
            Kind::Environment,
            Kind::Data,
            Kind::Component,
        ]
        .into_iter()
        .find(|kind| kind.collection().eq_ignore_ascii_case(text))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// `/subscriptions/S/resourceGroups/G/providers/Microsoft.MachineLearningServices/workspaces/W` of a workspace.
pub fn workspace_id(workspace: &Workspace) -> String {
    format!(
        "/subscriptions/{}/resourceGroups/{}/providers/{PROVIDER}/workspaces/{}",
        workspace.subscription, workspace.group, workspace.name
    )
}

/// The id of a compute of this workspace.
pub fn compute_id(workspace: &Workspace, name: &str) -> String {
    format!("{}/computes/{name}", workspace_id(workspace))
}

/// The id of a version of an asset of this workspace.
pub fn version_id(workspace: &Workspace, kind: Kind, name: &str, version: &str) -> String {
    format!(
        "{}/{}/{name}/versions/{version}",
        workspace_id(workspace),
        kind.collection()
    )
}

/// Which version a short reference means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// `name:version`
    Version(String),
    /// `name@label`
    Label(String),
    /// The name alone.
    Open,
}

/// A full ARM id of something in a workspace, spelled as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArmId {
    /// Subscription.
    pub subscription: String,
    /// Resource group.
    pub group: String,
    /// Workspace.
    pub workspace: String,
    /// Kind, when it is one of those that files point at.
    pub kind: Option<Kind>,
    /// Name.
    pub name: String,
    /// Version or label, when the id has one.
    pub pin: Pin,
    /// The id as it was written, without `azureml:`.
    pub text: String,
}

/// Something that a file points at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// `azureml:name:version`, `azureml:name@label`, `azureml:name`; also `azureml://models/M/versions/V`, which names its kind.
    Short {
        /// Kind, when the reference itself says it.
        kind: Option<Kind>,
        /// Name.
        name: String,
        /// Version or label.
        pin: Pin,
    },
    /// `azureml://locations/L/workspaces/W/models/M/versions/V`, or with `resourceGroups/G` in place of the location: an id of the
    /// run history, which calls a workspace by its name or by its UUID.
    Located {
        /// Resource group, when the reference says it.
        group: Option<String>,
        /// Workspace: name or UUID.
        workspace: String,
        /// Kind.
        kind: Kind,
        /// Name.
        name: String,
        /// Version or label.
        pin: Pin,
    },
    /// A full ARM id, with or without `azureml:`.
    Arm(ArmId),
    /// `azureml://datastores/D/paths/P` or the long form with its workspace.
    Datastore {
        /// The workspace of the long form: subscription, resource group, name.
        scope: Option<(String, String, String)>,
        /// Datastore.
        datastore: String,
        /// Path inside the datastore.
        path: String,
    },
    /// `azureml://jobs/J/outputs/O[/paths/P]`
    JobOutput {
        /// Job.
        job: String,
        /// Output.
        output: String,
        /// Path inside the output; empty means all of it.
        path: String,
    },
}

impl Reference {
    /// Takes a reference apart. The text must begin with `azureml:` or with `/subscriptions/`.
    pub fn parse(text: &str) -> Result<Reference, NameError> {
        let refuse = |rule: &str| NameError::Reference {
            text: text.to_owned(),
            rule: rule.to_owned(),
        };
        if text.len() > MAX_REFERENCE {
            return Err(refuse(&format!(
                "it has {} bytes, allowed are {MAX_REFERENCE}",
                text.len()
            )));
        }
        if text.chars().any(char::is_control) {
            return Err(refuse("it holds a control character"));
        }
        if let Some(rest) = strip_prefix_blind(text, "azureml://") {
            return uri(text, rest);
        }
        let rest = strip_prefix_blind(text, "azureml:").unwrap_or(text);
        if let Some(rest) = strip_prefix_blind(rest, "azureml://") {
            return uri(text, rest); // a client has put the prefix before an address that has it
        }
        if strip_prefix_blind(rest, "/subscriptions/").is_some() {
            return arm(rest).map(Reference::Arm).ok_or_else(|| {
                refuse("an id is /subscriptions/S/resourceGroups/G/providers/Microsoft.MachineLearningServices/workspaces/W/KIND/NAME[/versions/V]")
            });
        }
        if rest.len() == text.len() {
            return Err(refuse("it begins with azureml: or with /subscriptions/"));
        }
        if rest.contains('/') {
            return Err(refuse(
                "a short reference is azureml:NAME:VERSION or azureml:NAME@latest",
            ));
        }
        short(rest).ok_or_else(|| {
            refuse("a short reference is azureml:NAME:VERSION or azureml:NAME@latest")
        })
    }
}

/// Does this text claim to be a reference? A path never does.
pub fn is_reference(text: &str) -> bool {
    strip_prefix_blind(text, "azureml:").is_some()
        || strip_prefix_blind(text, "/subscriptions/").is_some()
}

fn short(rest: &str) -> Option<Reference> {
    let (name, pin) = if let Some((name, label)) = rest.rsplit_once('@') {
        (name, Pin::Label(label.to_owned()))
    } else if let Some((name, version)) = rest.split_once(':') {
        (name, Pin::Version(version.to_owned()))
    } else {
        (rest, Pin::Open)
    };
    let empty = name.is_empty() || matches!(&pin, Pin::Version(v) | Pin::Label(v) if v.is_empty());
    (!empty).then(|| Reference::Short {
        kind: None,
        name: name.to_owned(),
        pin,
    })
}

fn arm(text: &str) -> Option<ArmId> {
    let segments: Vec<&str> = text
        .trim_start_matches('/')
        .trim_end_matches('/')
        .split('/')
        .collect();
    let fixed = [
        "subscriptions",
        "resourceGroups",
        "providers",
        PROVIDER,
        "workspaces",
    ];
    let at = [0, 2, 4, 5, 6];
    if segments.len() < 10 || segments.iter().any(|s| s.is_empty()) {
        return None;
    }
    if fixed
        .iter()
        .zip(at)
        .any(|(word, i)| !segments[i].eq_ignore_ascii_case(word))
    {
        return None;
    }
    let pin = match &segments[10..] {
        [] => Pin::Open,
        [word, version] if word.eq_ignore_ascii_case("versions") => {
            Pin::Version((*version).to_owned())
        }
        [word, label] if word.eq_ignore_ascii_case("labels") => Pin::Label((*label).to_owned()),
        _ => return None,
    };
    Some(ArmId {
        subscription: segments[1].to_owned(),
        group: segments[3].to_owned(),
        workspace: segments[7].to_owned(),
        kind: Kind::of_collection(segments[8]),
        // azure-ai-ml makes such ids of `azureml:NAME@latest`
        name: strip_prefix_blind(segments[9], "azureml:")
            .unwrap_or(segments[9])
            .to_owned(),
        pin,
        text: text.trim_end_matches('/').to_owned(),
    })
}

fn uri(text: &str, rest: &str) -> Result<Reference, NameError> {
    let refuse = |rule: &str| NameError::Reference {
        text: text.to_owned(),
        rule: rule.to_owned(),
    };
    // only the head is taken apart: a path may hold empty segments and end with a slash
    let segment: Vec<&str> = rest.splitn(10, '/').collect();
    let is = |i: usize, word: &str| segment.get(i).is_some_and(|s| s.eq_ignore_ascii_case(word));
    let named = |i: usize| {
        segment
            .get(i)
            .filter(|s| !s.is_empty())
            .map(|s| (*s).to_owned())
    };
    let tail = |i: usize| segment.get(i..).unwrap_or_default().join("/");
    if is(0, "registries") {
        let registry = named(1).ok_or_else(|| refuse("a registry has a name"))?;
        return Err(NameError::Registry {
            text: text.to_owned(),
            registry,
        });
    }
    if is(0, "datastores") && is(2, "paths") {
        let datastore = named(1).ok_or_else(|| refuse("the datastore has no name"))?;
        return Ok(Reference::Datastore {
            scope: None,
            datastore,
            path: tail(3),
        });
    }
    if is(0, "subscriptions")
        && is(2, "resourcegroups")
        && is(4, "workspaces")
        && is(6, "datastores")
        && is(8, "paths")
    {
        let part = |i| named(i).ok_or_else(|| refuse("a part of the datastore's address is empty"));
        let scope = Some((part(1)?, part(3)?, part(5)?));
        return Ok(Reference::Datastore {
            scope,
            datastore: part(7)?,
            path: tail(9),
        });
    }
    if is(0, "jobs")
        && is(2, "outputs")
        && (segment.len() <= 4 || is(4, "paths") || segment[4..] == [""])
    {
        let part = |i| {
            named(i).ok_or_else(|| {
                refuse("an output is azureml://jobs/JOB/outputs/OUTPUT[/paths/PATH]")
            })
        };
        return Ok(Reference::JobOutput {
            job: part(1)?,
            output: part(3)?,
            path: tail(5),
        });
    }
    // azureml://models/M/versions/V, and the same behind locations/L/workspaces/W or resourceGroups/G/workspaces/W
    let start = if is(2, "workspaces") && (is(0, "locations") || is(0, "resourcegroups")) {
        4
    } else {
        0
    };
    let pin = match named(start + 3) {
        Some(version) if is(start + 2, "versions") => Some(Pin::Version(version)),
        Some(label) if is(start + 2, "labels") => Some(Pin::Label(label)),
        _ => None,
    };
    if let (Some(kind), Some(name), Some(pin), None) = (
        segment.get(start).and_then(|s| Kind::of_collection(s)),
        named(start + 1),
        pin,
        segment.get(start + 4),
    ) {
        if start == 0 {
            return Ok(Reference::Short {
                kind: Some(kind),
                name,
                pin,
            });
        }
        let part = |i| named(i).ok_or_else(|| refuse("a part of the id is empty"));
        return Ok(Reference::Located {
            group: if is(0, "resourcegroups") {
                Some(part(1)?)
            } else {
                None
            },
            workspace: part(3)?,
            kind,
            name,
            pin,
        });
    }
    Err(refuse(
        "known are azureml://datastores/D/paths/P, azureml://jobs/J/outputs/O and azureml://models/M/versions/V",
    ))
}

fn strip_prefix_blind<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix)
        .then(|| &text[prefix.len()..])
}

/// The candidate that is written most like `word`: fewest edits, then the longest common beginning, then the first. Case-blind.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let word = word.to_ascii_lowercase();
    candidates.into_iter().min_by_key(|candidate| {
        let candidate = candidate.to_ascii_lowercase();
        let common = word
            .bytes()
            .zip(candidate.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        (distance(&word, &candidate), std::cmp::Reverse(common))
    })
}

/// The nearest candidate when it is near enough to be a slip of the pen: at most a third of the word differs.
pub fn did_you_mean<'c>(
    word: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    let found = nearest(word, candidates)?;
    let edits = distance(&word.to_ascii_lowercase(), &found.to_ascii_lowercase());
    (edits <= (word.chars().count() / 3).max(1)).then_some(found)
}

/// Edits (insert, delete, replace, swap of neighbours) between two words. Words are cut at a length that bounds the work.
fn distance(a: &str, b: &str) -> usize {
    const LONGEST: usize = 64;
    let (a, b): (Vec<char>, Vec<char>) = (
        a.chars().take(LONGEST).collect(),
        b.chars().take(LONGEST).collect(),
    );
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = last[j] + usize::from(a[i] != b[j]);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests;
