//! A few reading connections, lent out one at a time.

use rusqlite::{Connection, OpenFlags};
use std::{
    path::PathBuf,
    sync::{Condvar, Mutex, PoisonError},
};

use super::{
    Trouble,
    file::{BUSY, STATEMENTS},
};

/// Reads are short and the machine has few cores; more connections would only hold more page caches (2 MiB each).
const READERS: usize = 4;

pub(super) struct Readers {
    file: PathBuf,
    shelf: Mutex<Shelf>,
    returned: Condvar,
}

#[derive(Default)]
struct Shelf {
    idle: Vec<Connection>,
    lent: usize,
}

impl Readers {
    pub(super) fn new(file: PathBuf) -> Self {
        Readers {
            file,
            shelf: Mutex::default(),
            returned: Condvar::new(),
        }
    }

    /// Does `work` with a connection; waits for one when all are lent.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let mut lent = self.lend()?;
        let done = work(
            lent.db
                .as_mut()
                .expect("a lent connection is there until it is returned"),
        );
        if done.is_err() {
            lent.db = None; // whatever state it is in, the next reader gets a fresh one
        }
        done
    }

    fn lend(&self) -> Result<Lent<'_>, Trouble> {
        let shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shelf = self
            .returned
            .wait_while(shelf, |shelf| shelf.lent >= READERS)
            .unwrap_or_else(PoisonError::into_inner);
        shelf.lent += 1;
        let db = shelf.idle.pop();
        drop(shelf);
        let mut lent = Lent { to: self, db };
        if lent.db.is_none() {
            lent.db = Some(self.connect()?);
        }
        Ok(lent)
    }

    fn connect(&self) -> Result<Connection, Trouble> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&self.file, flags)?;
        db.busy_timeout(BUSY)?;
        db.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(db)
    }
}

struct Lent<'a> {
    to: &'a Readers,
    db: Option<Connection>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut shelf = self.to.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.lent -= 1;
        shelf.idle.extend(self.db.take());
        drop(shelf);
        self.to.returned.notify_one();
    }
}
