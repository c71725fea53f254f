//! A place in a JSON document that knows its own address, so that every refusal names it.
//!
//! F1 `null` and absent are the same thing, as the SDK treats them;
//! F2 a key is found as written, else case-blind (clients send `InputData` and `inputData`).

use super::{Invalid, time::parse_duration};
use crate::names::{nearest, shown};
use model::Millis;
use serde_json::{Map, Value};
use std::{collections::BTreeMap, ops::RangeInclusive};

/// Entries of a map that a client sends (tags, variables, inputs): far more than anybody writes, few enough to stay cheap.
pub const MAX_ENTRIES: usize = 1_000;
/// Linux refuses a longer single string when a program is started (`MAX_ARG_STRLEN`), so commands and variables stop here.
pub const MAX_STRING: usize = 128 * 1024 - 1;

/// Members that hold secrets.
const SECRET_PLACES: [&str; 3] = ["credentials", "secrets", "administratorAccount"];

/// One place in a document: its value, if there is one, and its address.
#[derive(Clone, Debug)]
pub struct Field<'a> {
    value: Option<&'a Value>,
    path: String,
}

impl<'a> Field<'a> {
    /// The whole document.
    pub fn root(value: &'a Value) -> Field<'a> {
        Field {
            value: Some(value),
            path: String::new(),
        }
    }
    /// An address alone, for refusals of something that was read earlier.
    pub fn at(path: impl Into<String>) -> Field<'a> {
        Field {
            value: None,
            path: path.into(),
        }
    }
    /// The member `key`; absent when this is no object.
    pub fn get(&self, key: &str) -> Field<'a> {
        let value = self.value.and_then(Value::as_object).and_then(|map| {
            map.get(key).or_else(|| {
                map.iter()
                    .find(|(k, _)| k.eq_ignore_ascii_case(key))
                    .map(|(_, v)| v)
            })
        });
        Field {
            value: value.filter(|v| !v.is_null()),
            path: format!(
                "{}/{}",
                self.path,
                key.replace('~', "~0").replace('/', "~1")
            ),
        }
    }
    /// The value, unless absent or null (F1).
    pub fn value(&self) -> Option<&'a Value> {
        self.value
    }
    /// Its address, a JSON pointer.
    pub fn path(&self) -> &str {
        if self.path.is_empty() {
            "/"
        } else {
            &self.path
        }
    }
    /// The last part of its address: how the field is called.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
    /// A refusal of this place; `rule` goes on after the field's name.
    pub fn refuse(&self, rule: impl AsRef<str>) -> Invalid {
        let name = match self.name() {
            "" => "the document",
            name => name,
        };
        Invalid::validation(self.path(), format!("{name} {}", rule.as_ref()))
    }
    /// The same for something that Azure has and Zaffre has not.
    pub fn unsupported(&self, rule: impl AsRef<str>) -> Invalid {
        Invalid::unsupported(self.path(), format!("{} {}", self.name(), rule.as_ref()))
    }
    fn wrong(&self, wanted: &str, value: &Value) -> Invalid {
        let kind = if self.is_secret() {
            bare_kind(value).into()
        } else {
            kind(value)
        };
        self.refuse(format!("is {kind}, expected {wanted}"))
    }
    /// Whether secrets stand here or below: who writes one a level too high must not find it in a message and its logs (I9).
    fn is_secret(&self) -> bool {
        let mut parts = self.path.split('/');
        parts.any(|part| SECRET_PLACES.iter().any(|s| s.eq_ignore_ascii_case(part)))
    }
    /// The refusal of a required field that is absent.
    pub fn missing(&self) -> Invalid {
        self.refuse("is required")
    }

    /// An object.
    pub fn object(&self) -> Result<Option<&'a Map<String, Value>>, Invalid> {
        match self.value {
            None => Ok(None),
            Some(Value::Object(map)) if map.len() > MAX_ENTRIES => Err(self.refuse(format!(
                "has {} entries, allowed are {MAX_ENTRIES}",
                map.len()
            ))),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(other) => Err(self.wrong("an object", other)),
        }
    }
    /// This place, which must be an object.
    pub fn need_object(self) -> Result<Field<'a>, Invalid> {
        match self.object()? {
            Some(_) => Ok(self),
            None => Err(self.missing()),
        }
    }
    /// This place, which must be an object when it is there.
    pub fn maybe_object(self) -> Result<Field<'a>, Invalid> {
        self.object()?;
        Ok(self)
    }
    /// The members of an object that are not null, in the order of the document.
    pub fn entries(&self) -> Result<Vec<(&'a str, Field<'a>)>, Invalid> {
        let map = self.object()?.into_iter().flatten();
        Ok(map
            .map(|(key, _)| (key.as_str(), self.get(key)))
            .filter(|(_, field)| field.value.is_some())
            .collect())
    }
    /// The elements of an array.
    pub fn items(&self) -> Result<Vec<Field<'a>>, Invalid> {
        match self.value {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => Ok(items
                .iter()
                .enumerate()
                .map(|(i, v)| Field {
                    value: Some(v).filter(|v| !v.is_null()),
                    path: format!("{}/{i}", self.path),
                })
                .collect()),
            Some(other) => Err(self.wrong("a list", other)),
        }
    }
    /// A text.
    pub fn text(&self) -> Result<Option<&'a str>, Invalid> {
        match self.value {
            None => Ok(None),
            Some(Value::String(text)) if text.contains('\0') => {
                Err(self.refuse("holds a NUL character"))
            }
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong("a text", other)),
        }
    }
    /// A text that is there and not empty.
    pub fn need_text(&self) -> Result<&'a str, Invalid> {
        match self.text()? {
            None => Err(self.missing()),
            Some("") => Err(self.refuse("is empty")),
            Some(text) => Ok(text),
        }
    }
    /// A whole number in a range.
    pub fn whole(&self, allowed: RangeInclusive<i64>) -> Result<Option<i64>, Invalid> {
        let Some(value) = self.value else {
            return Ok(None);
        };
        let number = value.as_i64().ok_or_else(|| match value {
            Value::Number(n) => self.refuse(format!("is {n}, expected a whole number")),
            other => self.wrong("a whole number", other),
        })?;
        if allowed.contains(&number) {
            Ok(Some(number))
        } else if number < *allowed.start() {
            Err(self.refuse(format!(
                "is {number}, at least {} is needed",
                allowed.start()
            )))
        } else {
            Err(self.refuse(format!("is {number}, at most {} is allowed", allowed.end())))
        }
    }
    /// A whole number in a range that fits 32 bits, with a default.
    pub fn count(&self, allowed: RangeInclusive<u32>, default: u32) -> Result<u32, Invalid> {
        let range = i64::from(*allowed.start())..=i64::from(*allowed.end());
        Ok(self
            .whole(range)?
            .map_or(default, |n| u32::try_from(n).expect("inside a u32 range")))
    }
    /// True or false.
    pub fn flag(&self) -> Result<Option<bool>, Invalid> {
        match self.value {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.wrong("true or false", other)),
        }
    }
    /// One of some words, compared without case (A2).
    pub fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<Option<T>, Invalid> {
        let Some(text) = self.text()? else {
            return Ok(None);
        };
        let found = choices
            .iter()
            .find(|(word, _)| word.eq_ignore_ascii_case(text));
        match found {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
                Err(self.refuse(format!(
                    "is `{}`, known are {}",
                    shown(text),
                    words.join(", ")
                )))
            }
        }
    }
    /// An ISO 8601 duration.
    pub fn duration(&self) -> Result<Option<Millis>, Invalid> {
        let Some(text) = self.text()? else {
            return Ok(None);
        };
        parse_duration(text).map(Some).ok_or_else(|| {
            self.refuse(format!(
                "is `{}`, expected a duration that is not negative, such as PT2M or P1DT12H",
                shown(text)
            ))
        })
    }
    /// A map of texts in which numbers, truth values and null became text (B1#12); a warning names each.
    pub fn texts(
        &self,
        warnings: &mut Vec<String>,
    ) -> Result<BTreeMap<Box<str>, Box<str>>, Invalid> {
        let mut out = BTreeMap::new();
        for (key, value) in self.object()?.into_iter().flatten() {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                Value::Bool(_) | Value::Number(_) => value.to_string(),
                other => return Err(self.get(key).wrong("a text", other)),
            };
            if !value.is_string() {
                warnings.push(format!(
                    "{}/{} is {} and became the text `{text}`; quote it to keep what was written",
                    self.path(),
                    shown(key),
                    kind(value)
                ));
            }
            out.insert(key.as_str().into(), text.into());
        }
        Ok(out)
    }
    /// Environment variables: `texts` with the rules of the operating system.
    pub fn variables(
        &self,
        warnings: &mut Vec<String>,
    ) -> Result<BTreeMap<Box<str>, Box<str>>, Invalid> {
        let out = self.texts(warnings)?;
        for (name, value) in &out {
            let place = self.get(name);
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(place.refuse(format!(
                    "`{}` is no name of an environment variable",
                    shown(name)
                )));
            }
            if value.contains('\0') {
                return Err(place.refuse("holds a NUL character"));
            }
            if name.len() + value.len() + 2 > MAX_STRING {
                return Err(place.refuse(format!(
                    "has {} bytes, allowed are {MAX_STRING} with its name",
                    value.len()
                )));
            }
        }
        Ok(out)
    }
    /// Refuses members that start with `prefix` and are not among `known`, naming the nearest.
    pub fn known_only(&self, prefix: &str, known: &[&str]) -> Result<(), Invalid> {
        for key in self.object()?.into_iter().flatten().map(|(key, _)| key) {
            if key.starts_with(prefix) && !known.contains(&key.as_str()) {
                let near = nearest(key, known.iter().copied()).unwrap_or_default();
                return Err(self
                    .get(key)
                    .refuse(format!("is not known, known are {}", known.join(", ")))
                    .hint(format!("did you mean {near}")));
            }
        }
        Ok(())
    }
}

/// What a JSON value is, and nothing of it.
fn bare_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// What a JSON value is, in words and with the value when it is short.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(flag) => format!("the truth value {flag}"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text `{}`", shown(text)),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}
