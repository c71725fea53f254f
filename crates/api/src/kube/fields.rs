//! Who set which field: `managedFields`, as far as server-side apply needs it.
//!
//! N1 what is owned are leaves: our objects have maps and scalars, and a list is a leaf;
//! N2 an entry keeps its time while its set stays, so that a write that changes nothing is seen to change nothing (K3).

use model::Time;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use wire::crd::API_VERSION;

/// A path of keys.
pub(super) type Path = Vec<String>;
/// The leaves that somebody set.
pub(super) type Paths = BTreeSet<Path>;

/// Managers by update that are kept apart; the oldest of more become one, as in Kubernetes.
const UPDATERS: usize = 10;
/// What those are called.
const ANCIENT: &str = "ancient-changes";
/// Entries that are read of what a client sends.
const MAX_ENTRIES: usize = 100;
/// Depth of a field set that is read: twice that of our objects.
const MAX_DEPTH: usize = 16;

/// How a field was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// What one manager set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub manager: String,
    pub operation: Operation,
    pub time: String,
    pub paths: Paths,
}

impl Entry {
    pub fn is(&self, manager: &str, operation: Operation) -> bool {
        self.manager == manager && self.operation == operation
    }
}

/// The leaves of an object that somebody can own.
pub(super) fn leaves(object: &Value) -> Paths {
    let mut paths = Paths::new();
    for key in ["labels", "annotations"] {
        gather(
            &object["metadata"][key],
            &mut vec!["metadata".into(), key.into()],
            &mut paths,
        );
    }
    gather(&object["spec"], &mut vec!["spec".into()], &mut paths);
    paths
}

fn gather(value: &Value, path: &mut Path, paths: &mut Paths) {
    match value {
        Value::Null => {}
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                path.push(key.clone());
                gather(value, path, paths);
                path.pop();
            }
        }
        _ => {
            paths.insert(path.clone());
        }
    }
}

/// The value at a path.
pub(super) fn at<'v>(object: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

/// `.spec.resources.limits.cpu`
pub(super) fn shown(path: &[String]) -> String {
    path.iter().map(|key| format!(".{key}")).collect()
}

/// The entries of an object; `None` when they are not what they should be.
pub(super) fn read(object: &Value) -> Option<Vec<Entry>> {
    let list = match &object["metadata"]["managedFields"] {
        Value::Null => return Some(Vec::new()),
        Value::Array(list) if list.len() <= MAX_ENTRIES => list,
        _ => return None,
    };
    let mut entries = Vec::new();
    // One empty entry is how a client asks for a fresh start.
    for entry in list.iter().filter(|entry| **entry != json!({})) {
        let operation = match entry["operation"].as_str()? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        let mut paths = Paths::new();
        set(&entry["fieldsV1"], &mut Vec::new(), &mut paths)?;
        entries.push(Entry {
            manager: entry["manager"].as_str().unwrap_or_default().to_owned(),
            operation,
            time: entry["time"].as_str().unwrap_or_default().to_owned(),
            paths,
        });
    }
    Some(entries)
}

/// Reads `FieldsV1`: `f:` before a key, `.` for the map itself, which is a leaf only when nothing is below.
fn set(fields: &Value, path: &mut Path, paths: &mut Paths) -> Option<()> {
    let map = fields.as_object()?;
    if path.len() > MAX_DEPTH {
        return None;
    }
    let mut below = false;
    for (key, inner) in map {
        let Some(key) = key.strip_prefix("f:") else {
            continue;
        };
        below = true;
        path.push(key.to_owned());
        set(inner, path, paths)?;
        path.pop();
    }
    if !below && !path.is_empty() {
        paths.insert(path.clone());
    }
    Some(())
}

/// The entries as an object carries them.
pub(super) fn write(entries: &[Entry]) -> Value {
    let entry = |entry: &Entry| {
        let mut fields = Value::Object(Map::new());
        for path in &entry.paths {
            let mut at = &mut fields;
            for key in path {
                at = &mut at[format!("f:{key}")];
                if at.is_null() {
                    *at = Value::Object(Map::new());
                }
            }
        }
        json!({
            "manager": entry.manager, "operation": entry.operation.name(), "apiVersion": API_VERSION,
            "time": entry.time, "fieldsType": "FieldsV1", "fieldsV1": fields,
        })
    };
    entries.iter().map(entry).collect()
}

/// The entries after an update by `manager`: what it changed is its own from then on, what is gone is nobody's.
pub(super) fn updated(
    mut entries: Vec<Entry>,
    before: &Value,
    after: &Value,
    manager: &str,
    now: Time,
) -> Vec<Entry> {
    let (old, new) = (leaves(before), leaves(after));
    let changed: Paths = new
        .iter()
        .filter(|path| at(before, path) != at(after, path))
        .cloned()
        .collect();
    for entry in &mut entries {
        let own = entry.is(manager, Operation::Update);
        entry.paths.retain(|path| {
            let gone = old.contains(path) && !new.contains(path);
            !gone && (own || !changed.contains(path))
        });
    }
    if !changed.is_empty() {
        add(&mut entries, manager, Operation::Update, changed, now);
    }
    entries.retain(|entry| !entry.paths.is_empty());
    bounded(entries)
}

fn add(entries: &mut Vec<Entry>, manager: &str, operation: Operation, more: Paths, now: Time) {
    let time = crate::time::seconds(now);
    match entries.iter_mut().find(|e| e.is(manager, operation)) {
        Some(entry) => {
            entry.paths.extend(more);
            entry.time = time;
        }
        None => entries.push(Entry {
            manager: manager.to_owned(),
            operation,
            time,
            paths: more,
        }),
    }
}

/// Gives `manager` exactly these fields by apply.
pub(super) fn owned(entries: &mut Vec<Entry>, manager: &str, paths: Paths, now: Time) {
    if let Some(entry) = entries.iter_mut().find(|e| e.is(manager, Operation::Apply)) {
        if entry.paths != paths {
            entry.paths = paths;
            entry.time = crate::time::seconds(now);
        }
    } else {
        add(entries, manager, Operation::Apply, paths, now);
    }
    entries.retain(|entry| !entry.paths.is_empty());
}

fn bounded(mut entries: Vec<Entry>) -> Vec<Entry> {
    let updaters = |entries: &[Entry]| {
        let update = |e: &&Entry| e.operation == Operation::Update;
        entries.iter().filter(update).count()
    };
    while updaters(&entries) > UPDATERS {
        let mut old: Vec<usize> = (0..entries.len())
            .filter(|&i| entries[i].operation == Operation::Update)
            .collect();
        old.sort_by(|&a, &b| entries[a].time.cmp(&entries[b].time));
        let (first, second) = (old[0], old[1]);
        let taken = std::mem::take(&mut entries[second].paths);
        entries[first].manager = ANCIENT.into();
        entries[first].paths.extend(taken);
        entries.remove(second);
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_796_005_898_000);

    fn object(cpu: &str) -> Value {
        json!({"metadata": {"name": "a", "labels": {"x": "1"}},
            "spec": {"nodeSelector": {"a/b": "c"}, "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}}})
    }

    #[test]
    fn entries_are_read_back_as_written() {
        let entries = updated(Vec::new(), &Value::Null, &object("1"), "kubectl", NOW);
        let mut with = object("1");
        with["metadata"]["managedFields"] = write(&entries);
        assert_eq!(
            with["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:nodeSelector"],
            json!({"f:a/b": {}})
        );
        assert_eq!(read(&with).unwrap(), entries);
        with["metadata"]["managedFields"][0]["operation"] = "Steal".into();
        assert_eq!(read(&with), None);
        let dots = json!({"metadata": {"managedFields": [{"manager": "m", "operation": "Update",
            "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:x": {}}}, "f:spec": {".": {}}}}]}});
        let read = read(&dots).unwrap();
        assert_eq!(
            read[0].paths.iter().map(|p| shown(p)).collect::<Vec<_>>(),
            [".metadata.labels.x", ".spec"]
        );
    }

    #[test]
    fn a_changed_field_changes_hands_and_a_removed_one_is_nobodys() {
        let first = updated(Vec::new(), &Value::Null, &object("1"), "one", NOW);
        let mut after = object("2");
        after["metadata"]["labels"] = json!({});
        let second = updated(
            first.clone(),
            &object("1"),
            &after,
            "two",
            Time(NOW.0 + 5000),
        );
        let of = |name: &str| {
            second
                .iter()
                .find(|e| e.manager == name)
                .unwrap()
                .paths
                .len()
        };
        assert_eq!((of("one"), of("two")), (2, 2), "{second:?}");
        assert_eq!(
            updated(
                first.clone(),
                &object("1"),
                &object("1"),
                "two",
                Time(NOW.0 + 5000)
            ),
            first,
            "N2"
        );
    }

    #[test]
    fn managers_are_bounded() {
        let mut entries = Vec::new();
        let mut before = object("0");
        for n in 0..40u64 {
            let mut after = before.clone();
            after["metadata"]["labels"][format!("l{n}")] = "x".into();
            entries = updated(
                entries,
                &before,
                &after,
                &format!("m{n}"),
                Time(NOW.0 + n * 1000),
            );
            before = after;
        }
        assert_eq!(entries.len(), UPDATERS);
        assert_eq!(entries.iter().map(|e| e.paths.len()).sum::<usize>(), 40);
    }
}
