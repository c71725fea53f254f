//! Series: samples in a file of their own, so that the loop's commits never wait for them.
//!
//! A series keeps `SERIES_KEPT`: each write drops what is older than that before its newest sample, two look-ups in the index.
//!
//! The file's commits are not synced (`synchronous=NORMAL`); a thread syncs its WAL within a second of a write. So a
//! sample survives the death of the process at once and the loss of power after a second.

use model::Time;
use port::{SERIES_KEPT, StoreError};
use rusqlite::{Connection, OptionalExtension};
use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::{
    failpoint::{at, step},
    sqlite::{Steps, Trouble, open_file, signed, unsigned},
};

const STEPS: Steps = Steps {
    name: "series.db",
    steps: &[include_str!("../migrations/series-0001.sql")],
    synchronous: "NORMAL",
};

/// How much of the last samples the loss of power may take.
const AT_RISK: Duration = Duration::from_secs(1);

/// Opened when first used: a start waits for one file less.
pub(crate) struct Samples {
    folder: PathBuf,
    open: Mutex<Option<Open>>,
}

struct Open {
    db: Connection,
    sync: Arc<Syncer>,
    thread: Option<JoinHandle<()>>,
}

struct Syncer {
    wal: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Clean,
    /// Written since the last sync.
    Dirty,
    /// Sync what is there and end.
    Closing,
}

impl Samples {
    pub(crate) fn new(folder: &Path) -> Self {
        Samples {
            folder: folder.to_owned(),
            open: Mutex::new(None),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Open) -> Result<T, Trouble>) -> Result<T, StoreError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let open = match &mut *open {
            Some(open) => open,
            none => none.insert(Open::new(&self.folder)?),
        };
        work(open).map_err(|trouble| trouble.into_store(0))
    }

    pub(crate) fn append(
        &self,
        series: &str,
        samples: &[(Time, String)],
    ) -> Result<(), StoreError> {
        if samples.is_empty() {
            return Ok(());
        }
        self.with(|open| {
            write(&mut open.db, series, samples)?;
            open.sync.mark(State::Dirty);
            Ok(())
        })
    }

    pub(crate) fn range(
        &self,
        series: &str,
        from: Time,
        to: Time,
    ) -> Result<Vec<(Time, String)>, StoreError> {
        self.with(|open| read(&open.db, series, from, to))
    }

    pub(crate) fn names(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.with(|open| names(&open.db, prefix))
    }

    pub(crate) fn forget(&self, prefix: &str) -> Result<(), StoreError> {
        self.with(|open| {
            let names = names(&open.db, prefix)?;
            if names.is_empty() {
                return Ok(());
            }
            forget(&mut open.db, &names)?;
            open.sync.mark(State::Dirty);
            Ok(())
        })
    }
}

impl Open {
    fn new(folder: &Path) -> Result<Self, StoreError> {
        let db = open_file(folder, &STEPS)?;
        let sync = Arc::new(Syncer {
            wal: folder.join(format!("{}-wal", STEPS.name)),
            state: Mutex::new(State::Clean),
            changed: Condvar::new(),
        });
        let runs = sync.clone();
        let thread = std::thread::Builder::new()
            .name("series".into())
            .spawn(move || runs.run())?;
        Ok(Open {
            db,
            sync,
            thread: Some(thread),
        })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.sync.mark(State::Closing);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that syncs the series has panicked");
        }
    }
}

impl Syncer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn mark(&self, now: State) {
        let mut state = self.lock();
        if *state != State::Closing {
            *state = now;
            self.changed.notify_one();
        }
    }

    fn run(&self) {
        loop {
            let state = self
                .changed
                .wait_while(self.lock(), |state| *state == State::Clean)
                .unwrap_or_else(PoisonError::into_inner);
            // More may come within the second: one sync for all of it.
            let end = Instant::now() + AT_RISK;
            let left = |end: Instant| end.saturating_duration_since(Instant::now());
            let mut state = self
                .changed
                .wait_timeout_while(state, left(end), |state| {
                    *state == State::Dirty && !left(end).is_zero()
                })
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            let closing = *state == State::Closing;
            if !closing {
                *state = State::Clean;
            }
            drop(state);
            if let Err(error) = at("series.sync", || File::open(&self.wal)?.sync_data()) {
                // The samples stay in the kernel's hands and are tried again with the next ones.
                tracing::warn!(%error, "the newest samples are not synced");
            }
            if closing {
                return;
            }
        }
    }
}

fn write(db: &mut Connection, series: &str, samples: &[(Time, String)]) -> Result<(), Trouble> {
    let change = step("series.begin", || Ok::<_, Trouble>(db.transaction()?))?;
    let id: Option<i64> = change
        .prepare_cached("SELECT id FROM series WHERE name = ?1")?
        .query_row([series], |row| row.get(0))
        .optional()?;
    let id = match id {
        Some(id) => id,
        None => change
            .prepare_cached("INSERT INTO series (name) VALUES (?1)")?
            .insert([series])?,
    };
    {
        // Samples of one time keep the order they came in.
        let mut put = change.prepare_cached(
            "INSERT INTO sample (series, time, number, value)
             SELECT ?1, ?2, coalesce(max(number), -1) + 1, ?3 FROM sample WHERE series = ?1 AND time = ?2",
        )?;
        for (time, value) in samples {
            put.execute((id, signed(time.0), value))?;
        }
        change
            .prepare_cached(
                "DELETE FROM sample WHERE series = ?1 AND time < (
                     SELECT max(time) FROM sample WHERE series = ?1 AND time < (
                         SELECT max(time) FROM sample WHERE series = ?1) - ?2)",
            )?
            .execute((id, signed(SERIES_KEPT.0)))?;
    }
    step("series.commit", || Ok(change.commit()?))
}

fn forget(db: &mut Connection, names: &[String]) -> Result<(), Trouble> {
    let change = step("series.begin", || Ok::<_, Trouble>(db.transaction()?))?;
    for name in names {
        for sql in [
            "DELETE FROM sample WHERE series = (SELECT id FROM series WHERE name = ?1)",
            "DELETE FROM series WHERE name = ?1",
        ] {
            change.prepare_cached(sql)?.execute([name])?;
        }
    }
    step("series.commit", || Ok(change.commit()?))
}

fn read(
    db: &Connection,
    series: &str,
    from: Time,
    to: Time,
) -> Result<Vec<(Time, String)>, Trouble> {
    let mut find = db.prepare_cached(
        "WITH s AS (SELECT id FROM series WHERE name = ?1)
         SELECT time, number, value FROM sample, s WHERE series = s.id AND time >= ?2 AND time < ?3
         UNION ALL
         SELECT * FROM (SELECT time, number, value FROM sample, s WHERE series = s.id AND time < ?2
                        ORDER BY time DESC, number DESC LIMIT 1)
         ORDER BY time, number",
    )?;
    let found = find
        .query_map((series, signed(from.0), signed(to.0)), |row| {
            Ok((Time(unsigned(row.get(0)?)), row.get(2)?))
        })?
        .collect::<Result<_, _>>()?;
    Ok(found)
}

fn names(db: &Connection, prefix: &str) -> Result<Vec<String>, Trouble> {
    let mut find = db.prepare_cached("SELECT name FROM series WHERE name >= ?1 ORDER BY name")?;
    let mut rows = find.query([prefix])?;
    let mut names = Vec::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        if !name.starts_with(prefix) {
            break;
        }
        names.push(name);
    }
    Ok(names)
}
