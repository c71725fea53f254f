//! Objects as rows, with the columns of the definition: what `kubectl get` prints.

use model::Time;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

use crate::time;

/// How much of an object stands beside its row (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    Nothing,
    Metadata,
    Whole,
}

struct Column {
    definition: Value,
    path: Vec<String>,
    date: bool,
}

/// The columns of instance types, from the definition: the name, and the printer columns.
static TYPES: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let definition = wire::crd::definition();
    let columns = definition["spec"]["versions"][0]["additionalPrinterColumns"].as_array();
    let mut all = vec![name_column()];
    all.extend(columns.into_iter().flatten().map(|column| {
        let text = |key: &str| column[key].as_str().unwrap_or_default();
        Column {
            definition: json!({
                "name": text("name"), "type": text("type"), "format": text("format"),
                "description": text("description"),
                "priority": column["priority"].as_i64().unwrap_or(0),
            }),
            path: path(text("jsonPath")),
            date: text("type") == "date",
        }
    }));
    all
});

/// Those of definitions.
static DEFINITIONS: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let created = Column {
        definition: json!({
            "name": "Created At", "type": "date", "format": "",
            "description": "CreationTimestamp is when the object was made.", "priority": 0,
        }),
        path: path(".metadata.creationTimestamp"),
        date: false,
    };
    vec![name_column(), created]
});

fn name_column() -> Column {
    Column {
        definition: json!({
            "name": "Name", "type": "string", "format": "name",
            "description": "The name, unique in the cluster.", "priority": 0,
        }),
        path: path(".metadata.name"),
        date: false,
    }
}

/// `.a.b\.c` as its keys: the part of JSONPath that printer columns here use.
fn path(text: &str) -> Vec<String> {
    let (mut keys, mut key) = (Vec::new(), String::new());
    let mut chars = text.strip_prefix('.').unwrap_or(text).chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => key.extend(chars.next()),
            '.' => keys.push(std::mem::take(&mut key)),
            c => key.push(c),
        }
    }
    keys.push(key);
    keys
}

/// The table of instance types.
pub(super) fn types(
    objects: &[Value],
    list: Map<String, Value>,
    beside: Beside,
    now: Time,
) -> Value {
    table(&TYPES, objects, list, beside, now)
}

/// The table of definitions.
pub(super) fn definitions(objects: &[Value], list: Map<String, Value>, beside: Beside) -> Value {
    table(&DEFINITIONS, objects, list, beside, time::now())
}

fn table(
    columns: &[Column],
    objects: &[Value],
    list: Map<String, Value>,
    beside: Beside,
    now: Time,
) -> Value {
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells: Vec<Value> = columns.iter().map(|c| cell(c, object, now)).collect();
            let object = match beside {
                Beside::Nothing => Value::Null,
                Beside::Metadata => json!({
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                    "metadata": object["metadata"],
                }),
                Beside::Whole => object.clone(),
            };
            json!({"cells": cells, "object": object})
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list,
        "columnDefinitions": columns.iter().map(|c| &c.definition).collect::<Vec<_>>(),
        "rows": rows,
    })
}

fn cell(column: &Column, object: &Value, now: Time) -> Value {
    let value = column
        .path
        .iter()
        .try_fold(object, |value, key| value.get(key));
    match value {
        None | Some(Value::Null) => Value::Null,
        Some(Value::String(text)) if column.date => match time::parse(text) {
            Some(then) => age(now.0 / 1000, then.0 / 1000).into(),
            None => "<unknown>".into(),
        },
        Some(Value::String(text)) => text.as_str().into(),
        Some(other) => sorted(other).to_string().into(),
    }
}

/// A map prints its keys in order.
fn sorted(value: &Value) -> Value {
    let mut value = value.clone();
    if let Value::Object(map) = &mut value {
        map.sort_keys();
    }
    value
}

/// How long ago, as Kubernetes says it: two units at most, the coarser the older.
fn age(now: u64, then: u64) -> String {
    let Some(seconds) = now.checked_sub(then) else {
        return if then - now > 1 { "<invalid>" } else { "0s" }.into();
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let two = |whole: u64, unit: &str, rest: u64, small: &str| match rest {
        0 => format!("{whole}{unit}"),
        rest => format!("{whole}{unit}{rest}{small}"),
    };
    match (seconds, minutes, hours) {
        (0..120, ..) => format!("{seconds}s"),
        (_, 0..10, _) => two(minutes, "m", seconds % 60, "s"),
        (_, 0..180, _) => format!("{minutes}m"),
        (_, _, 0..8) => two(hours, "h", minutes % 60, "m"),
        (_, _, 0..48) => format!("{hours}h"),
        (_, _, 0..192) => two(hours / 24, "d", hours % 24, "h"),
        (_, _, 0..17_520) => format!("{}d", hours / 24),
        (_, _, 0..70_080) => two(hours / 24 / 365, "y", hours / 24 % 365, "d"),
        _ => format!("{}y", hours / 24 / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_those_of_kubectl() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (100_000, "27h"),
            (180_000, "2d2h"),
            (800_000, "9d"),
            (64_000_000, "2y10d"),
            (400_000_000, "12y"),
        ] {
            assert_eq!(age(1_000_000_000 + seconds, 1_000_000_000), text);
        }
        assert_eq!(age(10, 11), "0s");
        assert_eq!(age(10, 12), "<invalid>");
    }

    #[test]
    fn a_row_has_the_columns_of_the_definition() {
        let object = json!({
            "metadata": {"name": "a", "creationTimestamp": "2026-11-30T00:00:00Z"},
            "spec": {"nodeSelector": {"z": "1", "b": "2"}, "resources": {
                "requests": {"cpu": "700m", "memory": 1024},
                "limits": {"cpu": 1, "memory": "2Gi", "nvidia.com/gpu": 1}}},
        });
        let now = time::parse("2026-11-30T00:01:00Z").unwrap();
        let table = types(
            std::slice::from_ref(&object),
            Map::new(),
            Beside::Metadata,
            now,
        );
        let names: Vec<&str> = table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "Name",
                "CPU-Request",
                "Memory-Request",
                "CPU-Limit",
                "Memory-Limit",
                "GPU",
                "Node-Selector",
                "Age"
            ]
        );
        assert_eq!(
            table["rows"][0]["cells"],
            json!([
                "a",
                "700m",
                "1024",
                "1",
                "2Gi",
                "1",
                r#"{"b":"2","z":"1"}"#,
                "60s"
            ])
        );
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        let whole = types(&[object], Map::new(), Beside::Whole, now);
        assert_eq!(whole["rows"][0]["object"]["spec"]["nodeSelector"]["z"], "1");
    }
}
