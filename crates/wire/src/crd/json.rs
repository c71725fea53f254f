//! JSON with an eye on keys that are given twice: the last wins, as in Kubernetes, and each is told.

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

use super::walk::join;

/// The value, and the paths that were given twice. The parser's own limit bounds the depth.
pub(super) fn read(body: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut twice = Vec::new();
    let mut parser = serde_json::Deserializer::from_slice(body);
    let value = Node {
        path: String::new(),
        twice: &mut twice,
    }
    .deserialize(&mut parser)?;
    parser.end()?;
    Ok((value, twice))
}

struct Node<'t> {
    path: String,
    twice: &'t mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Value, D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number is too large"))?;
        Ok(Value::Number(number))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        let Node { path, twice } = self;
        while let Some(item) = items.next_element_seed(Node {
            path: format!("{path}[{}]", list.len()),
            twice: &mut *twice,
        })? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let Node { path, twice } = self;
        while let Some(key) = entries.next_key::<String>()? {
            let path = join(&path, &key);
            if map.contains_key(&key) {
                twice.push(path.clone());
            }
            let value = entries.next_value_seed(Node {
                path,
                twice: &mut *twice,
            })?;
            map.insert(key, value);
        }
        if map.len() > MAX_KEYS {
            return Err(A::Error::custom("a map has too many keys"));
        }
        Ok(Value::Object(map))
    }
}

/// Keys of one map: far above any honest object.
const MAX_KEYS: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn keys_that_are_given_twice_are_told_with_their_path() {
        let (value, twice) = read(br#"{"a":{"b":1,"b":[{"c":null,"c":2.5}]},"a.b":-1}"#).unwrap();
        assert_eq!(twice, ["a.b", "a.b[0].c"]);
        assert_eq!(value, serde_json::json!({"a":{"b":[{"c":2.5}]},"a.b":-1}));
        assert!(read(b"{} x").is_err() && read("[".repeat(1000).as_bytes()).is_err());
    }
}
