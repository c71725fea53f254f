//! Pages of lists: `$top`, `$skipToken`, `nextLink`.
//!
//! G1 `nextLink` is absolute, keeps the query of the request, and goes on where the page ended even when documents were
//!    written in between: its token is a place in the order, not a count.

use control::{Control, Page};
use model::Document;
use serde_json::{Value, json};

use crate::{call::Call, problem::Problem};

/// Items of a page when the client does not say; more than a screen, cheap enough to answer at once (performance C3).
pub(crate) const PAGE: usize = 100;
/// Most items of a page.
pub(crate) const MAX_PAGE: usize = 1000;
/// Documents looked at for one page of a filtered list: then the page is answered short, with a link to the rest.
pub(crate) const MAX_SCAN: usize = 5_000;

/// Documents asked of the store at once when most of them may be filtered out.
const MIN_STEP: usize = 100;

/// The page that was asked for.
pub(crate) struct Wanted {
    /// Where the page before ended.
    pub after: Option<String>,
    pub limit: usize,
    /// `$top`: the whole list ends there.
    pub top: Option<usize>,
}

impl Wanted {
    pub fn of(call: &Call) -> Result<Wanted, Problem> {
        let number = |name: &str| match call.query.get(name) {
            None | Some("") => Ok(None),
            Some(text) => match text.parse::<usize>() {
                Ok(n) if n > 0 => Ok(Some(n)),
                _ => Err(Problem::bad(format!(
                    "{name} is {}, it must be a number above 0",
                    wire::names::shown(text)
                ))),
            },
        };
        let top = number("$top")?;
        let size = number("$maxpagesize")?.or(number("count")?);
        Ok(Wanted {
            after: ["$skipToken", "$skip"]
                .iter()
                .find_map(|name| call.query.get(name))
                .filter(|t| !t.is_empty())
                .map(str::to_owned),
            limit: size.or(top).unwrap_or(PAGE).min(MAX_PAGE),
            top,
        })
    }
}

/// The body of a list.
pub(crate) fn body(call: &Call, items: Vec<Value>, next: Option<String>) -> Value {
    match next {
        Some(token) => json!({"value": items, "nextLink": link(call, &token)}),
        None => json!({"value": items, "nextLink": null}),
    }
}

/// The URL of the next page (G1).
pub(crate) fn link(call: &Call, token: &str) -> String {
    format!(
        "{}{}?{}",
        call.base.url(),
        call.path,
        call.query.replacing("$skipToken", token)
    )
}

/// The documents of `page` that `take` renders, until the page of the client is full or `MAX_SCAN` were looked at.
pub(crate) fn filtered(
    control: &Control,
    page: &mut Page,
    wanted: &Wanted,
    mut take: impl FnMut(&Document) -> Result<Option<Value>, Problem>,
) -> Result<(Vec<Value>, Option<String>), Problem> {
    page.after.clone_from(&wanted.after);
    let (mut items, mut scanned) = (Vec::new(), 0);
    loop {
        page.limit = (wanted.limit - items.len()).max(MIN_STEP);
        let (documents, next) = control.page(page)?;
        let count = documents.len();
        scanned += count;
        for (i, document) in documents.iter().enumerate() {
            items.extend(take(document)?);
            if items.len() < wanted.limit {
                continue;
            }
            let last = i + 1 == count && next.is_none();
            let goes_on = !last && wanted.top.is_none();
            return Ok((items, goes_on.then(|| control.behind(page, document))));
        }
        match next {
            None => return Ok((items, None)),
            Some(next) if scanned >= MAX_SCAN => return Ok((items, Some(next))),
            Some(next) => page.after = Some(next),
        }
    }
}
