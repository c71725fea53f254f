//! A database file: opened with the right modes, brought to the present format.
//!
//! S5: `user_version` is the number of steps that were taken; each step and its number are one transaction.

use port::StoreError;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, config::DbConfig};
use std::{
    fs::OpenOptions,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
    time::Duration,
};

use super::Trouble;
use crate::failpoint::step;

/// "Zaff": tells a file of ours from any other SQLite file.
const APPLICATION: i32 = 0x5a61_6666;
/// Pages of WAL after which it is copied into the database and reused: 4 MiB, some hundred appends.
const WAL_PAGES: u32 = 1_000;
/// A WAL that one large transaction made longer is cut to this when it is reused. Above `WAL_PAGES`, so that the file
/// keeps its steady size otherwise.
const WAL_BYTES: u32 = 16 << 20;
/// With less than this free, an I/O error of SQLite is taken for a full disk.
pub(super) const LEAST_FREE: u64 = 1 << 20;
/// Nobody else writes; this covers the moments in which a checkpoint holds a lock.
pub(super) const BUSY: Duration = Duration::from_secs(5);
/// Statements kept prepared per connection; there are about thirty.
pub(super) const STATEMENTS: usize = 64;

/// A kind of file and the steps that make its format.
pub(crate) struct Steps {
    /// Name in the data folder.
    pub name: &'static str,
    /// Step `i` (from 0) leads to format `i + 1`.
    pub steps: &'static [&'static str],
    /// `FULL`: a commit is synced; `NORMAL`: only checkpoints are.
    pub synchronous: &'static str,
}

/// Opens the file for writing.
pub(crate) fn open(folder: &Path, kind: &Steps) -> Result<Connection, StoreError> {
    try_open(folder, kind).map_err(|trouble| trouble.into_store(0))
}

fn try_open(folder: &Path, kind: &Steps) -> Result<Connection, Trouble> {
    let path = folder.join(kind.name);
    // SQLite would make it readable for all; the WAL takes its mode from here.
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)?;
    file.set_permissions(PermissionsExt::from_mode(0o600))?;
    // Before SQLite opens it: closing any descriptor of a file drops all locks that the process has on it.
    drop(file);

    let mut db = Connection::open_with_flags(
        &path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    db.busy_timeout(BUSY)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    let found: u32 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let known = u32::try_from(kind.steps.len()).expect("formats are few");
    if found > known {
        return Err(StoreError::TooNew { found, known }.into());
    }
    if found > 0 {
        let application: i32 = db.query_row("PRAGMA application_id", [], |row| row.get(0))?;
        if application != APPLICATION {
            return Err(Trouble::corrupt(
                0,
                format!("{} is a database of another program", path.display()),
            ));
        }
    }
    db.pragma_update(None, "synchronous", kind.synchronous)?;
    let mode: String = db.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(Trouble::Io(std::io::Error::other(format!(
            "{}: the file system cannot hold a WAL (journal mode is {mode})",
            path.display()
        ))));
    }
    db.execute_batch(&format!(
        "PRAGMA wal_autocheckpoint={WAL_PAGES}; PRAGMA journal_size_limit={WAL_BYTES};"
    ))?;
    // The WAL stays when the store is closed: a file that is there already is cheaper to write than a new one.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    for (number, sql) in (1_u32..).zip(kind.steps).skip(found as usize) {
        migrate(&mut db, number, sql)?;
    }
    Ok(db)
}

fn migrate(db: &mut Connection, number: u32, sql: &str) -> Result<(), Trouble> {
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    step("migrate.step", || {
        Ok::<_, Trouble>(change.execute_batch(sql)?)
    })?;
    change.pragma_update(None, "application_id", APPLICATION)?;
    change.pragma_update(None, "user_version", number)?;
    step("migrate.commit", || Ok(change.commit()?))
}
