//! Query strings: names compare without case, unknown ones are ignored, every text is accepted.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Everything that is not an unreserved character of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// The same for paths, which keep their slashes.
const PATH: &AsciiSet = &RESERVED.remove(b'/');

/// `text` so that it survives in a query.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// `text` so that it survives in a path; slashes stay.
pub(crate) fn encode_path(text: &str) -> String {
    utf8_percent_encode(text, PATH).to_string()
}

/// The pairs of a query, decoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(text: &str) -> Query {
        Query(
            text.split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name), decode(value))
                })
                .collect(),
        )
    }
    /// The last value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .rev()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
    }
    /// The same query with `name` set to `value`, as text.
    pub fn replacing(&self, name: &str, value: &str) -> String {
        let mut out = String::new();
        for (n, v) in self.0.iter().filter(|(n, _)| !n.eq_ignore_ascii_case(name)) {
            out.push_str(&format!("{}={}&", encode_name(n), encode(v)));
        }
        out.push_str(&format!("{}={}", encode_name(name), encode(value)));
        out
    }
}

/// `$` stays readable: `$skipToken`.
fn encode_name(name: &str) -> String {
    encode(name).replace("%24", "$")
}

fn decode(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded_and_replaced() {
        let query = Query::parse("api-version=1&$orderBy=createdtime%20desc&$top=1&x=a+b&&y");
        assert_eq!(query.get("$ORDERBY"), Some("createdtime desc"));
        assert_eq!(query.get("x"), Some("a b"));
        assert_eq!(query.get("y"), Some(""));
        assert_eq!(query.get("z"), None);
        assert_eq!(
            query.replacing("$skipToken", "a/b"),
            "api-version=1&$orderBy=createdtime%20desc&$top=1&x=a%20b&y=&$skipToken=a%2Fb"
        );
    }
}
