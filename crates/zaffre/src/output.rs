//! Results on stdout, in the forms of `az`: json, jsonc, yaml, yamlc, table, tsv, none.
//!
//! O1 only results go to stdout; everything else goes to stderr;
//! O2 a closed pipe ends the output silently;
//! O3 `--query` is applied before formatting and the order of `{...}` is kept;
//! O4 a table is at most 100 columns wide.

pub mod query;
pub mod table;

use crate::failure::Failure;
use clap::ValueEnum;
use serde_json::Value;
use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

pub use table::Columns;

/// A form of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Indented JSON.
    Json,
    /// Indented JSON, coloured on a terminal.
    Jsonc,
    /// YAML.
    Yaml,
    /// YAML, coloured on a terminal.
    Yamlc,
    /// Columns for people.
    Table,
    /// Tab-separated values without a header.
    Tsv,
    /// Nothing.
    None,
}

/// How results are printed.
#[derive(Clone, Debug)]
pub struct Output {
    /// The form; a table on a terminal and JSON elsewhere when not given.
    pub format: Format,
    /// A JMESPath expression.
    pub query: Option<String>,
}

impl Output {
    /// What the flags say, else what suits where stdout goes.
    pub fn new(format: Option<Format>, query: Option<String>) -> Self {
        let format = format.unwrap_or_else(|| {
            if io::stdout().is_terminal() {
                Format::Table
            } else {
                Format::Json
            }
        });
        Output { format, query }
    }

    /// Prints a result. `columns` are the table's when no query chose others.
    pub fn show(&self, value: &Value, columns: Columns) -> Result<(), Failure> {
        let queried = match &self.query {
            Some(query) => Some(query::search(query, value)?),
            None => None,
        };
        let text = render(
            queried.as_ref().unwrap_or(value),
            self.format,
            queried.is_none().then_some(columns),
        );
        write(&text)
    }

    /// Prints lines for people, except where a form for programs was asked for: then the value.
    pub fn show_or(&self, value: &Value, asked: Option<Format>, text: &str) -> Result<(), Failure> {
        if self.query.is_some() || asked.is_some_and(|f| f != Format::Table) {
            self.show(value, &[])
        } else {
            write(text)
        }
    }
}

fn render(value: &Value, format: Format, columns: Option<Columns>) -> String {
    match format {
        Format::None => String::new(),
        Format::Json | Format::Jsonc => {
            let mut text =
                serde_json::to_string_pretty(value).expect("a JSON value can be written");
            if format == Format::Jsonc && colour_stdout() {
                text = highlight(&text);
            }
            text.push('\n');
            text
        }
        Format::Yaml | Format::Yamlc => {
            let mut text =
                serde_saphyr::to_string(value).expect("a JSON value can be written as YAML");
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text
        }
        Format::Table => table::render(value, columns.unwrap_or(&[])),
        Format::Tsv => tsv(value),
    }
}

/// Rows of tab-separated values as `az` prints them: no header, nested values left empty.
fn tsv(value: &Value) -> String {
    fn cell(value: &Value) -> String {
        match value {
            Value::Null => "None".into(),
            Value::Bool(b) => (if *b { "True" } else { "False" }).into(),
            Value::Number(n) => n.to_string(),
            Value::String(s) => s.replace(['\t', '\n', '\r'], " "),
            Value::Array(items) => items.len().to_string(),
            Value::Object(_) => String::new(),
        }
    }
    fn row(value: &Value) -> String {
        let cells: Vec<String> = match value {
            Value::Array(items) => items.iter().map(cell).collect(),
            Value::Object(fields) => fields.values().map(cell).collect(),
            single => vec![cell(single)],
        };
        cells.join("\t")
    }
    let rows: Vec<String> = match value {
        Value::Array(items) => items.iter().map(row).collect(),
        Value::Null => return String::new(),
        single => vec![row(single)],
    };
    rows.iter().map(|row| format!("{row}\n")).collect()
}

/// Whether colour may be used on stdout.
fn colour_stdout() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Whether colour may be used on stderr.
pub fn colour_stderr() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Keys of pretty-printed JSON in blue.
fn highlight(json: &str) -> String {
    json.lines()
        .map(|line| {
            let body = line.trim_start();
            let indent = &line[..line.len() - body.len()];
            match body.split_once("\": ") {
                Some((key, rest)) if body.starts_with('"') => {
                    format!("{indent}\x1b[34m{key}\"\x1b[0m: {rest}")
                }
                _ => line.to_owned(),
            }
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// Writes to stdout; a closed pipe is no error (O2).
pub fn write(text: &str) -> Result<(), Failure> {
    write_bytes(text.as_bytes())
}

/// Writes bytes to stdout; a closed pipe is no error (O2).
pub fn write_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| Failure::failed(format!("stdout: {error}"))),
    }
}

/// Says something to the person at the terminal, on stderr; whether anybody reads it does not matter.
pub fn say(text: &str) {
    let mut err = io::stderr().lock();
    // Nothing can be told to somebody whose stderr is closed.
    drop(writeln!(err, "{text}"));
}

/// Prints why a command is not done.
pub fn complain(failure: &Failure) {
    let label = if colour_stderr() {
        "\x1b[1;31merror\x1b[0m"
    } else {
        "error"
    };
    say(&format!("{label}: {}", failure.message));
    if let Some(hint) = &failure.hint {
        say(&format!("hint: {hint}"));
    }
}

/// Whether warnings are left out (`--only-show-errors`).
static ERRORS_ONLY: AtomicBool = AtomicBool::new(false);

/// Leaves out every warning from here on.
pub fn only_errors() {
    ERRORS_ONLY.store(true, Ordering::Relaxed);
}

/// What was warned of so far.
static WARNED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Says something that deserves attention, once: what the server says again of a file that was read here is not repeated.
pub fn warn(text: &str) {
    if ERRORS_ONLY.load(Ordering::Relaxed) {
        return;
    }
    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    if warned.iter().any(|said| said.ends_with(text)) {
        return;
    }
    warned.push(text.to_owned());
    drop(warned);
    let label = if colour_stderr() {
        "\x1b[1;33mwarning\x1b[0m"
    } else {
        "warning"
    };
    say(&format!("{label}: {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tsv_has_no_header_and_one_line_per_item() {
        let list = json!([{"name": "a", "n": 1, "deep": {"x": 1}}, {"name": "b\tc", "n": null, "deep": null}]);
        assert_eq!(tsv(&list), "a\t1\t\nb c\tNone\tNone\n");
        assert_eq!(tsv(&json!("one")), "one\n");
    }

    #[test]
    fn json_ends_with_a_line_break_and_none_is_empty() {
        assert_eq!(
            render(&json!({"a": 1}), Format::Json, None),
            "{\n  \"a\": 1\n}\n"
        );
        assert_eq!(render(&json!({"a": 1}), Format::None, None), "");
    }

    #[test]
    fn yaml_keeps_the_order_and_quotes_what_needs_it() {
        let text = render(
            &json!({"b": "1.10", "a": [1, "x"], "c": null}),
            Format::Yaml,
            None,
        );
        let back: std::collections::BTreeMap<String, Value> =
            serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back["b"], json!("1.10"));
        assert!(
            text.find("b:").unwrap() < text.find("a:").unwrap(),
            "{text}"
        );
    }
}
