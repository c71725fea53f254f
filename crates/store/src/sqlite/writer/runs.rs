//! What is kept of a run: its record, and the blocks of spans of its rows.

use model::{BlobPath, JobId, RunRecord, batch::Span};
use rusqlite::OptionalExtension;
use std::io;

use super::{Place, SEGMENTS, Writer};
use crate::sqlite::{
    Trouble,
    events::{self, VERSION, fold_job},
    signed,
    spans::{SPANS_PER_BLOCK, encode},
};

impl Writer {
    /// Everything that is kept of a run.
    pub(super) fn forget(&mut self, job: &JobId) -> Result<(), Trouble> {
        self.places.retain(|(of, _), _| of != job);
        let Some(run) = self.find_run(job)? else {
            return Ok(());
        };
        for sql in [
            "DELETE FROM span WHERE run = ?1",
            "DELETE FROM segment WHERE run = ?1",
            "DELETE FROM run WHERE id = ?1",
        ] {
            self.db.prepare_cached(sql)?.execute([run])?;
        }
        Ok(())
    }

    pub(super) fn record(&self, seq: u64, job: &JobId, record: &RunRecord) -> Result<(), Trouble> {
        let json = serde_json::to_string(record).map_err(io::Error::other)?;
        let crc = events::crc(seq, VERSION, json.as_bytes());
        self.db
            .prepare_cached(
                "INSERT INTO run (folded, seq, version, crc, record) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (folded) DO UPDATE SET seq = excluded.seq, version = excluded.version,
                     crc = excluded.crc, record = excluded.record",
            )?
            .execute((fold_job(job), signed(seq), VERSION, crc, json))?;
        Ok(())
    }

    fn find_run(&self, job: &JobId) -> Result<Option<i64>, Trouble> {
        let mut find = self
            .db
            .prepare_cached("SELECT id FROM run WHERE folded = ?1")?;
        Ok(find
            .query_row([fold_job(job)], |row| row.get(0))
            .optional()?)
    }

    fn make_run(&self, seq: u64, job: &JobId) -> Result<i64, Trouble> {
        match self.find_run(job)? {
            Some(run) => Ok(run),
            None => Ok(self
                .db
                .prepare_cached("INSERT INTO run (folded, seq) VALUES (?1, ?2)")?
                .insert((fold_job(job), signed(seq)))?),
        }
    }

    /// Where the next block of a run in a segment goes.
    fn place(&mut self, seq: u64, job: &JobId, segment: &BlobPath) -> Result<Place, Trouble> {
        let key = (job.clone(), segment.clone());
        if let Some(place) = self.places.get(&key) {
            return Ok(*place);
        }
        let run = self.make_run(seq, job)?;
        let found: Option<i64> = self
            .db
            .prepare_cached("SELECT number FROM segment WHERE run = ?1 AND path = ?2")?
            .query_row((run, segment.as_str()), |row| row.get(0))
            .optional()?;
        let number = match found {
            Some(number) => number,
            None => {
                let next = "SELECT coalesce(max(number), 0) + 1 FROM segment WHERE run = ?1";
                let next: i64 = self
                    .db
                    .prepare_cached(next)?
                    .query_row([run], |row| row.get(0))?;
                self.db
                    .prepare_cached("INSERT INTO segment (run, number, path) VALUES (?1, ?2, ?3)")?
                    .execute((run, next, segment.as_str()))?;
                next
            }
        };
        let place = Place {
            run,
            segment: number,
            next: self.last_block(run)? + 1,
        };
        // Two segments of one run count the same blocks: only one of them is remembered.
        self.places.retain(|(of, _), _| of != job);
        if self.places.len() >= SEGMENTS {
            self.places.clear();
        }
        self.places.insert(key, place);
        Ok(place)
    }

    fn last_block(&self, run: i64) -> Result<i64, Trouble> {
        let mut find = self
            .db
            .prepare_cached("SELECT coalesce(max(number), 0) FROM span WHERE run = ?1")?;
        Ok(find.query_row([run], |row| row.get(0))?)
    }

    pub(super) fn spans(
        &mut self,
        seq: u64,
        job: &JobId,
        segment: &BlobPath,
        spans: &[Span],
    ) -> Result<(), Trouble> {
        if spans.is_empty() {
            return Ok(());
        }
        let mut place = self.place(seq, job, segment)?;
        let mut write = self.db.prepare_cached(
            "INSERT INTO span (run, number, segment, block) VALUES (?1, ?2, ?3, ?4)",
        )?;
        for block in spans.chunks(SPANS_PER_BLOCK) {
            write.execute((place.run, place.next, place.segment, encode(block)))?;
            place.next += 1;
        }
        drop(write);
        self.places.insert((job.clone(), segment.clone()), place);
        Ok(())
    }

    pub(super) fn copy(&mut self, seq: u64, from: &JobId, to: &JobId) -> Result<(), Trouble> {
        let Some(old) = self.find_run(from)? else {
            return Ok(());
        };
        let segments: Vec<(i64, String)> = self
            .db
            .prepare_cached("SELECT number, path FROM segment WHERE run = ?1")?
            .query_map([old], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let mut base = None;
        for (number, path) in segments {
            let path = BlobPath::new(&path).ok_or_else(|| {
                Trouble::corrupt(seq, format!("run {from}: {path:?} is no path of a segment"))
            })?;
            let place = self.place(seq, to, &path)?;
            // The blocks of a run have different numbers, so they still do when all are moved by the same amount.
            let base = *base.get_or_insert(place.next - 1);
            self.db
                .prepare_cached(
                    "INSERT INTO span (run, number, segment, block)
                     SELECT ?1, ?2 + number, ?3, block FROM span WHERE run = ?4 AND segment = ?5",
                )?
                .execute((place.run, base, place.segment, old, number))?;
        }
        self.places.retain(|(of, _), _| of != to);
        Ok(())
    }
}
