//! Taking over the finished mini-batches of a run that ended.

use model::{BatchEvent, BatchSpec, JobId, Outcome, Ranges, Refusal, RunRecord, Why, Work};

use crate::{turn::Turning, world::World};

/// What a batch run that may have ended has to give.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resumable {
    /// Digest of its model, code and settings.
    pub fingerprint: Box<str>,
    /// Digest of its listing; empty when it was never listed.
    pub digest: Box<str>,
    /// Mini-batches there were.
    pub total: u32,
    /// Those whose rows are committed.
    pub done: Ranges,
    /// Their rows.
    pub rows: u64,
    /// Their items without a returned element.
    pub failed_items: u64,
    /// Whether the run has ended.
    pub ended: bool,
    /// The header line of its rows.
    pub header: Option<Box<str>>,
}

/// What the record of a retired batch run has to give; `None` for another kind of run.
pub fn resumable(record: &RunRecord) -> Option<Resumable> {
    let (Work::Batch(spec), Some(progress)) = (&record.spec.work, &record.progress) else {
        return None;
    };
    let kept = record.kept.as_ref();
    Some(Resumable {
        fingerprint: spec.fingerprint.clone(),
        digest: progress.digest.clone(),
        total: progress.total,
        done: kept.map(|k| k.done.clone()).unwrap_or_default(),
        rows: progress.rows,
        failed_items: kept.map_or(0, |k| k.failed_items),
        ended: record.state.is_done(),
        header: kept.and_then(|k| k.header.clone()),
    })
}

impl World {
    /// The same of a run that is still in the World.
    fn resumable(&self, job: &JobId) -> Option<Resumable> {
        let mut found = resumable(self.run(job)?)?;
        let batch = self.batch(job)?;
        found.done = batch.done();
        found.failed_items = batch.short_items;
        found.header = batch.header.clone();
        Some(found)
    }
}

impl Turning<'_> {
    fn source(&self, job: &JobId) -> Option<Resumable> {
        if self.world.run(job).is_some() {
            self.world.resumable(job)
        } else {
            (self.archive.resumable)(job)
        }
    }

    /// Whether a run may resume the one that it names; checked when it is submitted.
    pub fn may_resume(&self, spec: &BatchSpec) -> Result<(), Refusal> {
        let Some(from) = &spec.resume_from else {
            return Ok(());
        };
        let Some(source) = self.source(from) else {
            return Err(Refusal::NotFound {
                message: format!("job {from} to resume from does not exist or is no batch job"),
            });
        };
        if !source.ended {
            return Err(Refusal::Conflict {
                message: format!("job {from} to resume from has not ended: cancel it first"),
            });
        }
        if source.fingerprint != spec.fingerprint {
            return Err(Refusal::Invalid {
                code: "CannotResume",
                message: format!(
                    "cannot resume from job {from}: model, code or deployment settings have changed since"
                ),
            });
        }
        Ok(())
    }

    /// After the listing: takes over what the run it resumes has finished. Whether the run goes on.
    pub fn take_over(&mut self, job: &JobId, spec: &BatchSpec) -> bool {
        let Some(from) = &spec.resume_from else {
            return true;
        };
        let Some(record) = self.world.run(job) else {
            return false;
        };
        let (total, digest) = record
            .progress
            .as_ref()
            .map_or((0, Box::from("")), |p| (p.total, p.digest.clone()));
        let differs = match self.source(from) {
            None => Some("its record is gone".to_owned()),
            Some(s) if s.digest.is_empty() => return true, // it never got so far: nothing to take over
            Some(s) if s.digest != digest => Some(format!(
                "the input has changed: its listing was {}, now it is {digest}",
                s.digest
            )),
            Some(s) if s.total != total => Some(format!(
                "it had {} mini-batches, now there are {total}",
                s.total
            )),
            Some(s) if s.fingerprint != spec.fingerprint => {
                Some("model, code or deployment settings have changed".to_owned())
            }
            Some(s) => {
                if s.done.is_empty() {
                    return true;
                }
                let event = BatchEvent::Resumed {
                    from: from.clone(),
                    done: s.done,
                    rows: s.rows,
                    failed_items: s.failed_items,
                    header: s.header,
                };
                self.emit_batch(job, event);
                self.copies.push((from.clone(), job.clone()));
                None
            }
        };
        let Some(message) = differs else {
            return true;
        };
        let why = Why::CannotResume {
            from: from.clone(),
            message: message.into(),
        };
        self.give_up(job, Outcome::Failed(why));
        false
    }
}
