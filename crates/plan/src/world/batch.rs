//! What an event does to the mini-batches of a run.

use model::{BatchEvent, JobId, Progress, Ranges, TaskId, Time, Work};

use super::{Illegal, World, illegal};
use crate::batch::Batch;

impl World {
    pub(super) fn apply_batch(
        &mut self,
        job: &JobId,
        event: &BatchEvent,
        at: Time,
    ) -> Result<(), Illegal> {
        let (record, live) = self.parts(job)?;
        let (Some(batch), Some(progress), Work::Batch(spec)) =
            (&mut live.batch, &mut record.progress, &record.spec.work)
        else {
            return Err(illegal(format!("run {job} has no mini-batches")));
        };
        match event {
            BatchEvent::Listed {
                files,
                total,
                digest,
            } => {
                batch.list(*files, spec.mini_batch_size.max(1), *total);
                (progress.files, progress.total) = (*files, *total);
                progress.digest = digest.clone();
                progress.listed = true;
                record.why = None;
            }
            BatchEvent::Resumed {
                done,
                rows,
                failed_items,
                header,
                ..
            } => {
                batch.done.extend(done);
                batch.short_items += failed_items;
                batch.header = batch.header.take().or_else(|| header.clone());
                progress.resumed = batch.done.count();
                progress.done = batch.done.count();
                progress.rows += rows;
                progress.failed_items += failed_items;
            }
            BatchEvent::Lent {
                task,
                lend,
                indices,
            } => lent(batch, task, *lend, indices, at)?,
            BatchEvent::Taken {
                task,
                seq,
                done,
                rows,
                failed_items,
                short,
                returned,
                discarded,
                header,
            } => {
                let lent = batch.lent;
                let host = batch.host_mut(task).ok_or_else(|| no_host(task))?;
                let released = host.release(done) + host.release(returned);
                host.taken = *seq;
                batch.lent = lent - released;
                batch.done.extend(done);
                batch.front.extend(returned);
                batch.short_items += failed_items;
                if !done.is_empty() {
                    batch.crashes = 0;
                }
                if batch.header.is_none() {
                    batch.header.clone_from(header);
                }
                progress.done = batch.done.count();
                progress.rows += rows;
                progress.failed_items += failed_items;
                progress.short += short;
                progress.discarded += u64::from(*discarded);
            }
            BatchEvent::Failed {
                task, index, last, ..
            } => failed(batch, progress, task, *index, *last)?,
            BatchEvent::Lost {
                task,
                rerun,
                returned,
            } => {
                let host = batch.host_mut(task).ok_or_else(|| no_host(task))?;
                let released = host.release(returned);
                batch.lent -= released;
                batch.front.extend(returned);
                progress.rerun += u64::from(rerun.len());
                if spec.max_preemptions.is_some() {
                    for index in rerun.iter() {
                        *batch.losses.entry(index).or_default() += 1;
                    }
                }
            }
            BatchEvent::Published { bytes } => progress.published = Some(*bytes),
        }
        progress.lent = batch.lent;
        if let BatchEvent::Lent { task, .. }
        | BatchEvent::Taken { task, .. }
        | BatchEvent::Failed { task, .. }
        | BatchEvent::Lost { task, .. } = event
        {
            live.weigh(task.index);
        }
        self.reseat(job);
        Ok(())
    }
}

fn no_host(task: &TaskId) -> Illegal {
    illegal(format!("no host {task}"))
}

fn lent(
    batch: &mut Batch,
    task: &TaskId,
    lend: u64,
    indices: &Ranges,
    at: Time,
) -> Result<(), Illegal> {
    let end = indices.spans().last().map_or(0, |&(_, end)| end);
    batch.front.subtract(indices);
    batch.next = batch.next.max(end);
    batch.lent += indices.len();
    let host = batch.host_mut(task).ok_or_else(|| no_host(task))?;
    host.lends.push((lend, indices.clone()));
    host.lend = lend;
    host.goal = host.held();
    host.lent_at = at;
    Ok(())
}

fn failed(
    batch: &mut Batch,
    progress: &mut Progress,
    task: &TaskId,
    index: u32,
    last: bool,
) -> Result<(), Illegal> {
    let host = batch.host_mut(task).ok_or_else(|| no_host(task))?;
    let released = host.release(&Ranges::span(index, index + 1));
    batch.lent -= released;
    *batch.failures.entry(index).or_default() += 1;
    if last {
        batch.failed.insert(index);
        batch.failures.remove(&index);
        progress.failed += 1;
        progress.failed_items += u64::from(batch.inputs(index));
    } else {
        batch.front.insert(index);
        progress.retries += 1;
    }
    Ok(())
}
