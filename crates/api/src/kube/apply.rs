//! Server-side apply: a manager says all that it wants; what others set differently is a conflict, what it no longer says goes.

use model::Time;
use serde_json::{Value, json};

use super::{
    fields::{self, Entry, Operation, Path, Paths},
    refused::Refused,
};
use wire::crd::API_VERSION;

/// Whether fields of others are taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Force {
    No,
    Yes,
}

/// Fields of one other manager that would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    manager: String,
    operation: Operation,
    paths: Vec<Path>,
}

impl Conflict {
    fn with(&self) -> String {
        match self.operation {
            Operation::Apply => format!("{:?}", self.manager),
            Operation::Update => format!("{:?} using {API_VERSION}", self.manager),
        }
    }
}

/// The live object with what `manager` applies, and who owns what then.
pub(super) fn apply(
    live: &Value,
    mut entries: Vec<Entry>,
    applied: &Value,
    manager: &str,
    force: Force,
    now: Time,
) -> Result<(Value, Vec<Entry>), Vec<Conflict>> {
    let wanted = fields::leaves(applied);
    let changes =
        |path: &Path| wanted.contains(path) && fields::at(live, path) != fields::at(applied, path);
    let mut conflicts = Vec::new();
    for entry in entries
        .iter_mut()
        .filter(|e| !e.is(manager, Operation::Apply))
    {
        let paths: Vec<Path> = entry.paths.iter().filter(|p| changes(p)).cloned().collect();
        if paths.is_empty() {
            continue;
        }
        entry.paths.retain(|path| !paths.contains(path));
        conflicts.push(Conflict {
            manager: entry.manager.clone(),
            operation: entry.operation,
            paths,
        });
    }
    if force == Force::No && !conflicts.is_empty() {
        return Err(conflicts);
    }
    let mut object = live.clone();
    merge(&mut object, applied);
    let mut dropped = Paths::new();
    for entry in &entries {
        if entry.is(manager, Operation::Apply) {
            dropped.extend(entry.paths.difference(&wanted).cloned());
        }
    }
    for path in dropped {
        let kept = entries
            .iter()
            .any(|e| !e.is(manager, Operation::Apply) && e.paths.contains(&path));
        if !kept {
            remove(&mut object, &path);
        }
    }
    fields::owned(&mut entries, manager, wanted, now);
    Ok((object, entries))
}

/// Lays one object over another; unlike a merge patch a null changes nothing.
fn merge(target: &mut Value, over: &Value) {
    let Value::Object(changes) = over else {
        *target = over.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in changes.iter().filter(|(_, value)| !value.is_null()) {
        merge(&mut target[key.as_str()], value);
    }
}

/// Removes a field, and the maps above it that are empty then.
fn remove(object: &mut Value, path: &[String]) {
    let (Some((key, rest)), Some(map)) = (path.split_first(), object.as_object_mut()) else {
        return;
    };
    if rest.is_empty() {
        map.shift_remove(key);
        return;
    }
    if let Some(inner) = map.get_mut(key) {
        remove(inner, rest);
        if inner.as_object().is_some_and(serde_json::Map::is_empty) {
            map.shift_remove(key);
        }
    }
}

/// The refusal with every conflict, as `kubectl apply --server-side` shows it.
pub(super) fn refuse(name: &str, conflicts: &[Conflict]) -> Refused {
    let count: usize = conflicts.iter().map(|c| c.paths.len()).sum();
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let mut message = format!("Apply failed with {count} conflict{}: ", plural(count));
    let mut causes = Vec::new();
    let groups: Vec<String> = conflicts
        .iter()
        .map(|conflict| {
            let with = conflict.with();
            causes.extend(conflict.paths.iter().map(|path| {
                json!({"reason": "FieldManagerConflict", "message": format!("conflict with {with}"),
                    "field": fields::shown(path)})
            }));
            match conflict.paths.as_slice() {
                [one] => format!("conflict with {with}: {}", fields::shown(one)),
                several => several
                    .iter()
                    .fold(format!("conflicts with {with}:"), |text, path| {
                        format!("{text}\n- {}", fields::shown(path))
                    }),
            }
        })
        .collect();
    message.push_str(&groups.join("\n"));
    let mut refused = Refused::new(409, "Conflict", message);
    *refused.details = json!({"name": name, "group": wire::crd::GROUP, "kind": wire::crd::PLURAL, "causes": causes});
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_796_005_898_000);

    fn applied(cpu: &str, selector: Value) -> Value {
        json!({"metadata": {"name": "a"}, "spec": {"nodeSelector": selector, "resources": {"limits": {"cpu": cpu}}}})
    }

    #[test]
    fn what_is_no_longer_said_goes() {
        let first = applied("1", json!({"a": "b", "c": "d"}));
        let (live, entries) =
            apply(&json!({}), Vec::new(), &first, "kubectl", Force::No, NOW).unwrap();
        assert_eq!(live, first);
        let second = applied("1", json!({"c": "d"}));
        let (live, entries) = apply(&live, entries, &second, "kubectl", Force::No, NOW).unwrap();
        assert_eq!(live, second);
        let third =
            json!({"metadata": {"name": "a"}, "spec": {"resources": {"limits": {"cpu": "1"}}}});
        let (live, entries) = apply(&live, entries, &third, "kubectl", Force::No, NOW).unwrap();
        assert_eq!(live, third, "an emptied map goes too");
        let (_, same) = apply(
            &live,
            entries.clone(),
            &third,
            "kubectl",
            Force::No,
            Time(NOW.0 + 9000),
        )
        .unwrap();
        assert_eq!(same, entries, "N2");
    }

    #[test]
    fn what_another_set_differently_is_a_conflict_until_it_is_forced() {
        let first = applied("1", json!({"a": "b"}));
        let (live, entries) = apply(&json!({}), Vec::new(), &first, "one", Force::No, NOW).unwrap();
        let other = applied("2", json!({"a": "b"}));
        let conflicts = apply(&live, entries.clone(), &other, "two", Force::No, NOW).unwrap_err();
        let refused = refuse("a", &conflicts);
        assert_eq!(
            refused.message,
            "Apply failed with 1 conflict: conflict with \"one\": .spec.resources.limits.cpu"
        );
        assert_eq!(
            refused.details["causes"][0]["field"],
            ".spec.resources.limits.cpu"
        );
        let (live, entries) = apply(&live, entries, &other, "two", Force::Yes, NOW).unwrap();
        assert_eq!(live, other);
        let of = |name: &str| {
            entries
                .iter()
                .find(|e| e.manager == name)
                .unwrap()
                .paths
                .len()
        };
        assert_eq!(
            (of("one"), of("two")),
            (1, 2),
            "the same value is owned by both"
        );
        let without =
            json!({"metadata": {"name": "a"}, "spec": {"resources": {"limits": {"cpu": "2"}}}});
        let (live, _) = apply(&live, entries, &without, "two", Force::No, NOW).unwrap();
        assert_eq!(live, other, "the other one still wants the selector");
    }
}
