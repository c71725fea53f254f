//! A database file: opened with the right modes, brought to the present format.
//!
//! S5: `user_version` is the number of steps that were taken; each step and its number are one transaction.

use port::StoreError;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, config::DbConfig};
use std::{
    fs::{self, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::Duration,
};

use super::{Trouble, wal};
use crate::failpoint::{at, step};

/// "Zaff": tells a file of ours from any other SQLite file.
const APPLICATION: i32 = 0x5a61_6666;
/// Pages of WAL after which it is copied into the database and reused: 16 MiB, some hundred appends. A page that was written often
/// in between is copied once.
const WAL_PAGES: u32 = 4_000;
/// A WAL that one large transaction made longer is cut to this when it is reused. Above `WAL_PAGES`, so that the file
/// keeps its steady size otherwise.
const WAL_BYTES: u32 = 32 << 20;
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
    match fs::symlink_metadata(&path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(folder, kind)?,
        Err(error) => return Err(error.into()),
    }
    let torn = kind.synchronous == "FULL" && look_at_wal(folder, kind)? == wal::End::Torn;
    let mut db = connect(&path)?;
    let found: u32 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let known = u32::try_from(kind.steps.len()).expect("formats are few");
    let application: i32 = db.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if application != APPLICATION {
        return Err(Trouble::corrupt(
            0,
            format!("{} is a database of another program", path.display()),
        ));
    }
    if found > known {
        return Err(StoreError::TooNew { found, known }.into());
    }
    db.pragma_update(None, "synchronous", kind.synchronous)?;
    write_ahead(&db, &path)?;
    if torn {
        // A new generation: what is left of the torn write is never counted again (A2 of `wal`).
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
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

/// Refuses a WAL that lost what was acknowledged, before SQLite drops it in silence.
fn look_at_wal(folder: &Path, kind: &Steps) -> Result<wal::End, Trouble> {
    let mut head = [0; 18];
    let read = fs::File::open(folder.join(kind.name)).and_then(|mut f| f.read_exact(&mut head));
    let page = match (read, u16::from_be_bytes([head[16], head[17]])) {
        (Ok(()), 1) => 65_536,
        (Ok(()), size) if size >= 512 && size.is_power_of_two() => usize::from(size),
        _ => return Ok(wal::End::Clean), // no database: SQLite says so
    };
    let path = folder.join(format!("{}-wal", kind.name));
    let end = wal::end(&path, page)?;
    if let wal::End::Damaged { frame } = end {
        return Err(Trouble::Io(io::Error::other(format!(
            "{}: frame {frame} is damaged and acknowledged transactions follow it; \
             bring the folder back from a copy, or remove this file to lose what it holds",
            path.display()
        ))));
    }
    Ok(end)
}

fn connect(path: &Path) -> Result<Connection, Trouble> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(BUSY)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(db)
}

fn write_ahead(db: &Connection, path: &Path) -> Result<(), Trouble> {
    let mode: String = db.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
    if mode == "wal" {
        return Ok(());
    }
    Err(Trouble::Io(io::Error::other(format!(
        "{}: the file system cannot hold a WAL (journal mode is {mode})",
        path.display()
    ))))
}

/// Makes the file under another name, whole, and renames it: two syncs, where SQLite by itself needs seven to be safe.
fn make(folder: &Path, kind: &Steps) -> Result<(), Trouble> {
    let made = folder.join(format!("{}.new", kind.name));
    match fs::remove_file(&made) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    // SQLite would make it readable for all; the WAL takes its mode from here.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&made)?;
    let mut db = connect(&made)?;
    db.execute_batch("PRAGMA synchronous=OFF; PRAGMA journal_mode=MEMORY;")?;
    for (number, sql) in (1_u32..).zip(kind.steps) {
        migrate(&mut db, number, sql)?;
    }
    write_ahead(&db, &made)?;
    db.close().map_err(|(_, error)| error)?;
    let made_durable = at("store.make_sync", || fs::File::open(&made)?.sync_all())
        .and_then(|()| {
            at("store.make_rename", || {
                fs::rename(&made, folder.join(kind.name))
            })
        })
        .and_then(|()| {
            at("store.make_sync_folder", || {
                fs::File::open(folder)?.sync_all()
            })
        });
    Ok(made_durable?)
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
