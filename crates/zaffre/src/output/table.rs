//! Tables for people: a header line, plain columns, at most 100 wide (O4).
//!
//! A cell that does not fit is cut with an ellipsis: the widest column gives way first. Width is counted in terminal
//! columns, so Japanese text lines up.

use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A table's columns: title and JSON pointer of the value.
pub type Columns = &'static [(&'static str, &'static str)];

/// Widest table, in terminal columns: what fits beside a margin on every screen and in every bug report.
pub const WIDTH_LIMIT: usize = 100;

/// Narrowest that a column is cut to.
const NARROWEST: usize = 8;

/// Renders a list of objects, or one object, as a table.
pub fn render(value: &Value, columns: Columns) -> String {
    let rows: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Null => return String::new(),
        single => vec![single],
    };
    if !columns.is_empty() {
        let titles = columns
            .iter()
            .map(|(title, _)| (*title).to_owned())
            .collect();
        let cells = rows.iter().map(|row| {
            columns
                .iter()
                .map(|(_, at)| cell(row.pointer(at).unwrap_or(&Value::Null)))
                .collect()
        });
        return draw(titles, cells.collect());
    }
    let mut titles: Vec<String> = vec![];
    for row in &rows {
        if let Value::Object(fields) = row {
            for (name, field) in fields {
                if !field.is_object() && !field.is_array() && !titles.contains(name) {
                    titles.push(name.clone());
                }
            }
        }
    }
    if titles.is_empty() {
        let cells = rows.iter().map(|row| match row {
            Value::Array(items) => items.iter().map(cell).collect(),
            single => vec![cell(single)],
        });
        return draw(vec!["Result".into()], cells.collect());
    }
    let cells = rows.iter().map(|row| {
        titles
            .iter()
            .map(|name| cell(row.get(name).unwrap_or(&Value::Null)))
            .collect()
    });
    let cells = cells.collect();
    draw(titles.iter().map(|name| heading(name)).collect(), cells)
}

/// `provisioning_state` as `az` heads it: `Provisioning_state`.
fn heading(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(b) => (if *b { "yes" } else { "no" }).into(),
        Value::Number(n) => n.to_string(),
        Value::String(s) => s.replace(['\n', '\r', '\t'], " "),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => fields
            .iter()
            .map(|(k, v)| format!("{k}={}", cell(v)))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

/// Draws titles and rows within the limit.
pub fn draw(titles: Vec<String>, rows: Vec<Vec<String>>) -> String {
    let widths = fit(&titles, &rows);
    let numeric: Vec<bool> = (0..titles.len())
        .map(|at| {
            let mut some = false;
            rows.iter().all(|row| {
                row.get(at).is_none_or(|text| {
                    some |= !text.is_empty();
                    text.bytes()
                        .all(|b| b.is_ascii_digit() || b == b'.' || b == b'-')
                })
            }) && some
        })
        .collect();
    let line = |cells: &[String]| {
        let mut out = String::new();
        for ((text, width), right) in cells.iter().zip(&widths).zip(&numeric) {
            let text = cut(text, *width);
            let gap = " ".repeat(width.saturating_sub(text.width()));
            let (before, after) = if *right {
                (gap.as_str(), "")
            } else {
                ("", gap.as_str())
            };
            out.push_str(&format!("{before}{text}{after}  "));
        }
        format!("{}\n", out.trim_end())
    };
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    [line(&titles), line(&rule)]
        .into_iter()
        .chain(rows.iter().map(|row| line(row)))
        .collect()
}

/// The width of each column so that all of it fits.
fn fit(titles: &[String], rows: &[Vec<String>]) -> Vec<usize> {
    let mut widths: Vec<usize> = titles
        .iter()
        .enumerate()
        .map(|(at, title)| {
            rows.iter()
                .filter_map(|row| row.get(at))
                .map(|text| text.width())
                .chain([title.width()])
                .max()
                .unwrap_or(0)
        })
        .collect();
    let gaps = 2 * widths.len().saturating_sub(1);
    let room = WIDTH_LIMIT.saturating_sub(gaps);
    loop {
        let sum: usize = widths.iter().sum();
        let Some(widest) = widths.iter_mut().max() else {
            break;
        };
        if sum <= room || *widest <= NARROWEST {
            break;
        }
        *widest -= (sum - room)
            .min(*widest - NARROWEST)
            .min((*widest / 4).max(1));
    }
    widths
}

fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        if used + c.width().unwrap_or(0) + 1 > width {
            break;
        }
        used += c.width().unwrap_or(0);
        out.push(c);
    }
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_line_up_and_numbers_stand_right() {
        let list = json!([{"name": "low-pri-cluster", "n": 2}, {"name": "b", "n": 10}]);
        assert_eq!(
            render(&list, &[("Name", "/name"), ("Nodes", "/n")]),
            "Name             Nodes\n---------------  -----\nlow-pri-cluster      2\nb                   10\n"
        );
    }

    #[test]
    fn no_table_is_wider_than_the_limit() {
        let list = json!([{"a": "x".repeat(90), "b": "クラスター".repeat(20), "c": "short"}]);
        let text = render(&list, &[]);
        for line in text.lines() {
            assert!(
                line.width() <= WIDTH_LIMIT,
                "{} columns: {line}",
                line.width()
            );
        }
        assert!(
            text.contains("short"),
            "a narrow column is never cut: {text}"
        );
    }

    #[test]
    fn nothing_is_no_table() {
        assert_eq!(render(&Value::Null, &[]), "");
    }
}
