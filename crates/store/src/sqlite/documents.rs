//! The index of documents: by key, and in pages (T3).
//!
//! A page goes on after a place in the order, not after a count, so writes between two pages neither repeat nor hide
//! anything that stays where it is.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use model::{DocKey, Document, Kind, Name, Time, Workspace};
use port::{Page, StoreError};
use rusqlite::{Connection, Row, types::Value};
use std::{collections::BTreeMap, io, sync::Arc};

use super::{Trouble, signed, unsigned};

/// Most documents of one page, whatever is asked for: some megabytes.
const PAGE: usize = 5_000;

/// What a kind is called in the store. Never changed: it is part of the format.
pub(super) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Workspace => "workspace",
        Kind::Compute => "compute",
        Kind::Datastore => "datastore",
        Kind::Code => "code",
        Kind::Component => "component",
        Kind::Model => "model",
        Kind::Environment => "environment",
        Kind::Data => "data",
        Kind::BatchEndpoint => "batch-endpoint",
        Kind::BatchDeployment => "batch-deployment",
        Kind::OnlineEndpoint => "online-endpoint",
        Kind::Job => "job",
        Kind::Quota => "quota",
        Kind::InstanceType => "instancetype",
        Kind::Identity => "identity",
        Kind::RoleAssignment => "role-assignment",
        Kind::RoleDefinition => "role-definition",
        Kind::Tracked => "tracked",
    }
}

/// The key of a workspace's row.
pub(super) fn fold_workspace(w: &Workspace) -> String {
    let mut text = format!("{}/{}/{}", w.subscription, w.group, w.name);
    text.make_ascii_lowercase();
    text
}

/// A document's row but for its place in the table.
pub(super) struct Stored<'a> {
    pub workspace: &'a Workspace,
    pub kind: Kind,
    pub folded: &'a str,
    pub spelled: &'a str,
    pub generation: u64,
    pub json: &'a str,
    pub created: u64,
    pub modified: u64,
    pub by: &'a str,
    pub seq: u64,
}

impl Stored<'_> {
    /// Covers every column, and how the workspace is spelled.
    pub(super) fn crc(&self) -> u32 {
        let w = self.workspace;
        let mut crc = crc32fast::Hasher::new();
        let names = [&w.subscription, &w.group, &w.name].map(Name::as_str);
        let texts = [
            kind_name(self.kind),
            self.folded,
            self.spelled,
            self.by,
            self.json,
        ];
        for part in names.into_iter().chain(texts) {
            crc.update(&(part.len() as u64).to_le_bytes());
            crc.update(part.as_bytes());
        }
        for number in [self.generation, self.created, self.modified, self.seq] {
            crc.update(&number.to_le_bytes());
        }
        crc.finalize()
    }
}

const COLUMNS: &str = "document.folded, spelled, generation, json, created, modified, by, seq, crc";
/// Of `COLUMNS`.
const COLUMN_COUNT: usize = 9;

fn read(workspace: &Arc<Workspace>, kind: Kind, row: &Row<'_>) -> Result<Document, Trouble> {
    let text = |column: usize| -> Result<&str, Trouble> {
        let value = row.get_ref(column)?;
        value
            .as_str()
            .map_err(|e| Trouble::corrupt(0, format!("a document is damaged: {e}")))
    };
    let number = |column: usize| -> Result<u64, Trouble> { Ok(unsigned(row.get(column)?)) };
    let stored = Stored {
        workspace,
        kind,
        folded: text(0)?,
        spelled: text(1)?,
        generation: number(2)?,
        json: text(3)?,
        created: number(4)?,
        modified: number(5)?,
        by: text(6)?,
        seq: number(7)?,
    };
    if stored.crc() != row.get::<_, u32>(8)? {
        return Err(Trouble::corrupt(
            stored.seq,
            format!(
                "the checksum of document {:?}, which it wrote, does not fit",
                stored.spelled
            ),
        ));
    }
    Ok(Document {
        key: DocKey {
            workspace: workspace.clone(),
            kind,
            path: Name::from(stored.spelled),
        },
        generation: stored.generation,
        json: stored.json.into(),
        created: Time(stored.created),
        modified: Time(stored.modified),
        by: stored.by.into(),
    })
}

/// The row of a workspace and how it is spelled.
pub(super) fn workspace(
    db: &Connection,
    named: &Workspace,
) -> Result<Option<(i64, Arc<Workspace>)>, Trouble> {
    let mut find =
        db.prepare_cached("SELECT id, subscription, grp, name FROM workspace WHERE folded = ?1")?;
    let mut rows = find.query([fold_workspace(named)])?;
    match rows.next()? {
        None => Ok(None),
        Some(row) => Ok(Some((row.get(0)?, spelled(row)?))),
    }
}

fn spelled(row: &Row<'_>) -> Result<Arc<Workspace>, rusqlite::Error> {
    spelled_at(row, 1)
}

/// Of the three columns from `first` on.
fn spelled_at(row: &Row<'_>, first: usize) -> Result<Arc<Workspace>, rusqlite::Error> {
    let text = |column: usize| row.get::<_, String>(first + column);
    Ok(Workspace::new(&text(0)?, &text(1)?, &text(2)?))
}

pub(super) fn workspaces(db: &Connection) -> Result<Vec<Arc<Workspace>>, Trouble> {
    let mut find =
        db.prepare_cached("SELECT id, subscription, grp, name FROM workspace ORDER BY folded")?;
    let all = find.query_map([], spelled)?.collect::<Result<_, _>>()?;
    Ok(all)
}

pub(super) fn get(db: &Connection, key: &DocKey) -> Result<Option<Document>, Trouble> {
    // One statement: each is a transaction of its own, with its locks.
    let mut find = db.prepare_cached(&format!(
        "SELECT {COLUMNS}, subscription, grp, name FROM workspace JOIN document ON workspace = workspace.id
         WHERE workspace.folded = ?1 AND kind = ?2 AND document.folded = ?3"
    ))?;
    let folded = key.path.as_str().to_ascii_lowercase();
    let mut rows = find.query((fold_workspace(&key.workspace), kind_name(key.kind), folded))?;
    match rows.next()? {
        None => Ok(None),
        Some(row) => read(&spelled_at(row, COLUMN_COUNT)?, key.kind, row).map(Some),
    }
}

/// A place in the order of a page: where the next one begins.
#[derive(Debug, PartialEq)]
struct Position {
    newest_first: bool,
    created: u64,
    folded: String,
}

impl Position {
    fn token(&self) -> String {
        let mut bytes = vec![u8::from(self.newest_first)];
        if self.newest_first {
            bytes.extend_from_slice(&self.created.to_be_bytes());
        }
        bytes.extend_from_slice(self.folded.as_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }
    fn read(token: &str, newest_first: bool) -> Option<Position> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (bytes, crc) = bytes.split_last_chunk::<4>()?;
        if u32::from_be_bytes(*crc) != crc32fast::hash(bytes) {
            return None;
        }
        let (order, bytes) = bytes.split_first()?;
        let (created, folded) = match (*order, newest_first) {
            (0, false) => (0, bytes),
            (1, true) => {
                let (created, rest) = bytes.split_first_chunk::<8>()?;
                (u64::from_be_bytes(*created), rest)
            }
            _ => return None,
        };
        Some(Position {
            newest_first,
            created,
            folded: String::from_utf8(folded.to_vec()).ok()?,
        })
    }
}

pub(super) fn page(
    db: &Connection,
    page: &Page,
) -> Result<(Vec<Document>, Option<String>), Trouble> {
    let after = match &page.after {
        None => None,
        Some(token) => Some(Position::read(token, page.newest_first).ok_or_else(|| {
            StoreError::Io(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{token:?} is no token of such a page"),
            ))
        })?),
    };
    let limit = page.limit.min(PAGE);
    let Some((id, workspace)) = workspace(db, &page.workspace)? else {
        return Ok((Vec::new(), None));
    };
    let (sql, bounds) = bounds(page, after);
    let mut find = db.prepare_cached(&sql)?;
    let more = i64::try_from(limit + 1).expect("a page is small");
    let mut values = BTreeMap::from([
        (":workspace", Value::Integer(id)),
        (":kind", Value::Text(kind_name(page.kind).to_owned())),
        (":limit", Value::Integer(more)),
    ]);
    values.extend(bounds);
    let parameters: Vec<(&str, &dyn rusqlite::ToSql)> = values
        .iter()
        .map(|(name, value)| (*name, value as &dyn rusqlite::ToSql))
        .collect();
    let mut rows = find.query(parameters.as_slice())?;
    let mut documents: Vec<Document> = Vec::with_capacity(limit.min(256));
    while let Some(row) = rows.next()? {
        if documents.len() == limit {
            let next = documents.last().map(|last| behind(page, last));
            return Ok((documents, next));
        }
        documents.push(read(&workspace, page.kind, row)?);
    }
    Ok((documents, None))
}

pub(super) fn behind(page: &Page, document: &Document) -> String {
    let place = Position {
        newest_first: page.newest_first,
        created: document.created.0,
        folded: document.key.path.as_str().to_ascii_lowercase(),
    };
    place.token()
}

/// The query of a page and the values of its bounds.
fn bounds(page: &Page, after: Option<Position>) -> (String, Vec<(&'static str, Value)>) {
    let mut sql =
        format!("SELECT {COLUMNS} FROM document WHERE workspace = :workspace AND kind = :kind");
    let mut values = Vec::new();
    if let Some(parent) = &page.parent {
        // Everything that begins with `parent/`: '0' is the character after '/'.
        let parent = parent.to_ascii_lowercase();
        sql.push_str(" AND folded >= :from AND folded < :to");
        values.push((":from", Value::Text(format!("{parent}/"))));
        values.push((":to", Value::Text(format!("{parent}0"))));
    }
    match (page.newest_first, after) {
        (false, None) => sql.push_str(" ORDER BY folded"),
        (false, Some(after)) => {
            sql.push_str(" AND folded > :after ORDER BY folded");
            values.push((":after", Value::Text(after.folded)));
        }
        (true, after) => {
            // The children of one parent are few: found by path and sorted. All others come from the index by time,
            // which the unary plus keeps from being used.
            let created = if page.parent.is_some() {
                "+created"
            } else {
                "created"
            };
            if let Some(after) = after {
                sql.push_str(&format!(
                    " AND {created} <= :created AND ({created} < :created OR folded > :after)"
                ));
                values.push((":created", Value::Integer(signed(after.created))));
                values.push((":after", Value::Text(after.folded)));
            }
            sql.push_str(&format!(" ORDER BY {created} DESC, folded"));
        }
    }
    sql.push_str(" LIMIT :limit");
    (sql, values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_token_is_its_place_and_nothing_else_is_a_token(
            newest_first in any::<bool>(),
            created in any::<u64>(),
            folded in ".{0,40}",
            bit in any::<prop::sample::Index>(),
        ) {
            let place = Position {
                newest_first,
                created: if newest_first { created } else { 0 },
                folded,
            };
            let token = place.token();
            prop_assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
            prop_assert_eq!(Position::read(&token, !newest_first), None);
            prop_assert_eq!(Position::read(&token, newest_first), Some(place));
            let mut bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Position::read(&URL_SAFE_NO_PAD.encode(bytes), newest_first), None);
        }
    }
}
