//! `If-Match` and `If-None-Match` of ARM documents: the generation is the ETag (D3).
//!
//! | header | nothing there | generation matches | another one |
//! |---|---|---|---|
//! | none | 201 | 200 | 200 |
//! | `If-Match: *` | 412 | 200 | 200 |
//! | `If-Match: "n"` | 412 | 200 | 412 |
//! | `If-None-Match: *` | 201 | 412 | 412 |

use axum::http::{HeaderMap, header};
use control::Condition;

use crate::problem::Problem;

/// What the headers ask for.
pub(crate) fn read(headers: &HeaderMap) -> Result<Condition, Problem> {
    let field = |name| {
        headers
            .get(name)
            .map(|v| v.to_str().unwrap_or_default().trim())
    };
    match (field(header::IF_MATCH), field(header::IF_NONE_MATCH)) {
        (None, None) => Ok(Condition::Any),
        (Some(_), Some(_)) => Err(Problem::bad(
            "If-Match and If-None-Match cannot be combined",
        )),
        (Some("*"), None) => Ok(Condition::Present),
        (Some(tag), None) => generation(tag).map(Condition::Generation).ok_or_else(|| {
            Problem::precondition(format!(
                "no document here ever had the ETag {}",
                wire::names::shown(tag)
            ))
        }),
        (None, Some("*")) => Ok(Condition::Absent),
        (None, Some(tag)) => Err(Problem::bad(format!(
            "If-None-Match takes * here, not {}",
            wire::names::shown(tag)
        ))),
    }
}

fn generation(tag: &str) -> Option<u64> {
    tag.strip_prefix('"')
        .and_then(|t| t.strip_suffix('"'))
        .unwrap_or(tag)
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&'static str, &'static str)]) -> Result<Condition, u16> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        read(&headers).map_err(|p| p.status.as_u16())
    }

    #[test]
    fn the_table_of_conditions() {
        assert_eq!(of(&[]), Ok(Condition::Any));
        assert_eq!(of(&[("if-match", "*")]), Ok(Condition::Present));
        assert_eq!(of(&[("if-match", "\"7\"")]), Ok(Condition::Generation(7)));
        assert_eq!(of(&[("if-match", "7")]), Ok(Condition::Generation(7)));
        assert_eq!(
            of(&[("if-match", "W/\"7\"")]),
            Err(412),
            "a weak tag never matches"
        );
        assert_eq!(of(&[("if-none-match", "*")]), Ok(Condition::Absent));
        assert_eq!(of(&[("if-none-match", "\"7\"")]), Err(400));
        assert_eq!(of(&[("if-none-match", "*"), ("if-match", "*")]), Err(400));
    }
}
