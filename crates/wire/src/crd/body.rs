//! The body of an apply request, which is YAML; JSON is YAML too.

use serde_json::Value;

use super::scalar;
use crate::yaml::{
    report::{Report, Source},
    tree,
};

/// The one object that the text holds, or why it cannot be read.
pub fn from_yaml(text: &str) -> Result<Value, String> {
    let files = |_: &str| Err(String::new());
    let report = Report::new(&files);
    let source = report.source(Source::File {
        name: String::new(),
        text: text.to_owned(),
    });
    match tree::parse_all(text, source) {
        Ok(documents) => match documents.as_slice() {
            [one] => Ok(scalar::json(one, &|at| scalar::in_quotes(text, at))),
            several => Err(format!("{} documents where one is wanted", several.len())),
        },
        Err(malformed) => Err(format!("line {}: {}", malformed.at.line, malformed.message)),
    }
}

#[cfg(test)]
mod tests {
    use super::from_yaml;
    use serde_json::json;

    #[test]
    fn yaml_and_json_are_read_as_kubernetes_reads_them() {
        let read = from_yaml("spec:\n  limits: {cpu: '1', nvidia.com/gpu: 1}\n").unwrap();
        assert_eq!(
            read,
            json!({"spec": {"limits": {"cpu": "1", "nvidia.com/gpu": 1}}})
        );
        assert_eq!(
            from_yaml(r#"{"a":{"b":"x: y"}}"#).unwrap(),
            json!({"a": {"b": "x: y"}})
        );
        assert!(from_yaml("a: [").is_err() && from_yaml("a: 1\n---\nb: 2\n").is_err());
    }
}
