//! Names and ids. Azure compares ids without case and shows them as they were first written; so do these types.
//!
//! N1 two names that differ only in ASCII case are one name: equal, same order, same hash;
//! N2 an id never changes its spelling: the first one written is kept;
//! N3 ids of different kinds do not mix: `Id<Compute>` is not `Id<Job>`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{cmp::Ordering, fmt, hash, marker::PhantomData, sync::Arc};

use crate::unit::Attempt;

/// A text compared without ASCII case (N1) and kept as first written (N2).
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Name(Arc<str>);

impl Name {
    /// The text as first written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    fn folded(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.bytes().map(|b| b.to_ascii_lowercase())
    }
}

impl<T: Into<Arc<str>>> From<T> for Name {
    fn from(text: T) -> Self {
        Name(text.into())
    }
}
impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}
impl Eq for Name {}
impl Ord for Name {
    // Names are the keys of every map, so this is among the most called functions: no fold where bytes are equal.
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        let (a, b) = (self.0.as_bytes(), other.0.as_bytes());
        for (x, y) in a.iter().zip(b) {
            if x != y {
                let order = x.to_ascii_lowercase().cmp(&y.to_ascii_lowercase());
                if order != Ordering::Equal {
                    return order;
                }
            }
        }
        a.len().cmp(&b.len())
    }
}
impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl hash::Hash for Name {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        for b in self.folded() {
            state.write_u8(b);
        }
        state.write_u8(0xff);
    }
}
impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a resource lives: subscription, resource group and workspace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Workspace {
    /// Subscription id, a GUID in Azure; any text here.
    pub subscription: Name,
    /// Resource group.
    pub group: Name,
    /// Workspace name.
    pub name: Name,
}

impl Workspace {
    /// A workspace of these three names.
    pub fn new(subscription: &str, group: &str, name: &str) -> Arc<Self> {
        Arc::new(Workspace {
            subscription: subscription.into(),
            group: group.into(),
            name: name.into(),
        })
    }
}

/// The kinds that have typed ids. Never built: they only tell ids apart (N3).
pub mod kind {
    /// A cluster or another compute target.
    #[derive(Debug)]
    pub enum Compute {}
    /// A job, and the run that it is.
    #[derive(Debug)]
    pub enum Job {}
}

/// The id of one `K` in one workspace.
pub struct Id<K> {
    workspace: Arc<Workspace>,
    name: Name,
    kind: PhantomData<fn() -> K>,
}
/// The id of a compute.
pub type ComputeId = Id<kind::Compute>;
/// The id of a job.
pub type JobId = Id<kind::Job>;

impl<K> Id<K> {
    /// The id of `name` in `workspace`. Naming rules are checked in `wire`, where the text comes in.
    pub fn new(workspace: &Arc<Workspace>, name: impl Into<Name>) -> Self {
        Id {
            workspace: workspace.clone(),
            name: name.into(),
            kind: PhantomData,
        }
    }
    /// The workspace.
    pub fn workspace(&self) -> &Arc<Workspace> {
        &self.workspace
    }
    /// The name inside the workspace, as first written.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }
}

// By hand: derives would demand that the marker `K` itself be `Clone`, `Ord`, …
impl<K> Clone for Id<K> {
    fn clone(&self) -> Self {
        Id {
            workspace: self.workspace.clone(),
            name: self.name.clone(),
            kind: PhantomData,
        }
    }
}
impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<K> Eq for Id<K> {}
impl<K> Ord for Id<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        let scope = if Arc::ptr_eq(&self.workspace, &other.workspace) {
            Ordering::Equal
        } else {
            self.workspace.cmp(&other.workspace)
        };
        scope.then_with(|| self.name.cmp(&other.name))
    }
}
impl<K> PartialOrd for Id<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<K> hash::Hash for Id<K> {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.workspace.hash(state);
        self.name.hash(state);
    }
}
impl<K> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_str())
    }
}
/// The name alone: what a person reads in a message.
impl<K> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_str())
    }
}

/// Stored as `subscription/group/workspace/name`; the first three hold no slash, the name may.
fn write_path(workspace: &Workspace, name: &str) -> String {
    format!(
        "{}/{}/{}/{name}",
        workspace.subscription, workspace.group, workspace.name
    )
}
fn read_path(text: &str) -> Option<(Arc<Workspace>, &str)> {
    let mut parts = text.splitn(4, '/');
    let (s, g, w, name) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    Some((Workspace::new(s, g, w), name))
}

impl<K> Serialize for Id<K> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&write_path(&self.workspace, self.name.as_str()))
    }
}
impl<'de, K> Deserialize<'de> for Id<K> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let (workspace, name) = read_path(&text).ok_or_else(|| {
            de::Error::custom(format!(
                "id {text:?} is not subscription/group/workspace/name"
            ))
        })?;
        Ok(Id::new(&workspace, name))
    }
}

/// One node of a compute. A node that returns is a new node: `incarnation` only grows for an ordinal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    /// The cluster.
    pub compute: ComputeId,
    /// Place in the cluster, from 0, below `max_instances`.
    pub ordinal: u32,
    /// How many nodes stood at this place before.
    pub incarnation: u32,
}
impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}.{}", self.compute, self.ordinal, self.incarnation)
    }
}
impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One attempt of one task of a job: a process on a node. `attempt` is the fencing token.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The job this is a part of.
    pub job: JobId,
    /// Rank in a gang, or the number of a batch host; from 0.
    pub index: u32,
    /// Grows with each start of this index; work of an older attempt is never accepted.
    pub attempt: Attempt,
}
impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}.{}", self.job, self.index, self.attempt.0)
    }
}
impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Stored as `ID#a.b`, so that both ids can be keys of a JSON object.
fn read_numbered(text: &str) -> Option<(Arc<Workspace>, &str, u32, u32)> {
    let (id, numbers) = text.rsplit_once('#')?;
    let (a, b) = numbers.split_once('.')?;
    let (workspace, name) = read_path(id)?;
    Some((workspace, name, a.parse().ok()?, b.parse().ok()?))
}
impl Serialize for NodeId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let id = write_path(&self.compute.workspace, self.compute.name());
        s.serialize_str(&format!("{id}#{}.{}", self.ordinal, self.incarnation))
    }
}
impl<'de> Deserialize<'de> for NodeId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let (workspace, name, ordinal, incarnation) = read_numbered(&text)
            .ok_or_else(|| de::Error::custom(format!("{text:?} is not a node id")))?;
        Ok(NodeId {
            compute: Id::new(&workspace, name),
            ordinal,
            incarnation,
        })
    }
}
impl Serialize for TaskId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let id = write_path(&self.job.workspace, self.job.name());
        s.serialize_str(&format!("{id}#{}.{}", self.index, self.attempt.0))
    }
}
impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let (workspace, name, index, attempt) = read_numbered(&text)
            .ok_or_else(|| de::Error::custom(format!("{text:?} is not a task id")))?;
        Ok(TaskId {
            job: Id::new(&workspace, name),
            index,
            attempt: Attempt(attempt),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_compare_without_case_and_keep_their_spelling() {
        let (a, b) = (Name::from("Low-Pri"), Name::from("low-pri"));
        assert_eq!(a, b);
        assert_eq!(a.cmp(&b), Ordering::Equal);
        assert_eq!(a.as_str(), "Low-Pri");
        assert_ne!(Name::from("学習"), Name::from("学"));
        let folded = |t: &str| t.to_ascii_lowercase();
        let texts = ["", "a", "B", "ab", "AB", "a_", "aZ", "_", "é", "Éa"];
        for (x, y) in texts.iter().flat_map(|x| texts.map(|y| (*x, y))) {
            assert_eq!(
                Name::from(x).cmp(&Name::from(y)),
                folded(x).as_bytes().cmp(folded(y).as_bytes()),
                "{x} {y}"
            );
        }
    }

    #[test]
    fn ids_survive_storage() {
        let w = Workspace::new("s", "g", "w");
        let node = NodeId {
            compute: Id::new(&w, "low-pri/cluster#1"),
            ordinal: 3,
            incarnation: 7,
        };
        let text = serde_json::to_string(&node).unwrap();
        assert_eq!(text, r#""s/g/w/low-pri/cluster#1#3.7""#);
        assert_eq!(serde_json::from_str::<NodeId>(&text).unwrap(), node);
        assert!(serde_json::from_str::<TaskId>(r#""s/g/w""#).is_err());
    }
}
