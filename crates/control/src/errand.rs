//! Errands: listing an input and publishing an output. They take time, so they run beside the loop on threads of their own;
//! the loop sees them as it sees an engine.
//!
//! R1 an errand is repeatable: begun again after a crash it ends in the same files;
//! R2 what is listed is what is read: the digest in the log is of the bytes that workers map;
//! R3 an output is copied span by span in index order, each checked against its CRC, and appears whole or not at all;
//! R4 an existing output is never overwritten, unless it is this very run's own (a crash between publish and its event); one
//!    that is there already is found with the listing, before any node is paid for.

use model::{
    BlobPath, Bytes, Errand, ErrandSeen, JobId, Observed, RunRecord, Work,
    batch::{BatchOutput, BatchSpec, Span},
    engine::{PoolSpec, Program, TaskSpec},
};
use plan::World;
use port::{Bell, BlobError, BlobInfo, Blobs, Store, listing};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

/// Metadata of an output that says which run wrote it (R4).
const WRITER: &str = "zaffre_run";
/// Bytes copied at once; a span larger than this is copied alone.
const COPY: usize = 1 << 20;

type Seen = BTreeMap<Errand, ErrandSeen>;

/// The errands under way and those just finished.
pub(crate) struct Errands {
    store: Arc<dyn Store>,
    blobs: Arc<dyn Blobs>,
    bell: Bell,
    seen: Arc<Mutex<Seen>>,
}

impl Errands {
    pub(crate) fn new(store: Arc<dyn Store>, blobs: Arc<dyn Blobs>, bell: Bell) -> Self {
        Errands {
            store,
            blobs,
            bell,
            seen: Arc::default(),
        }
    }

    /// Puts the errands into what is observed; returns those that are finished and so are seen now.
    pub(crate) fn observe(&self, observed: &mut Observed) -> Vec<Errand> {
        let mut finished = Vec::new();
        for (errand, seen) in self.lock().iter() {
            observed.errands.insert_mut(errand.clone(), seen.clone());
            if *seen != ErrandSeen::Busy {
                observed.marks.errands.insert(errand.clone());
                finished.push(errand.clone());
            }
        }
        finished
    }

    /// Forgets finished errands whose end is durable now.
    pub(crate) fn drop_finished(&self, finished: &[Errand]) {
        if !finished.is_empty() {
            self.lock().retain(|e, _| !finished.contains(e));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an errand unless it is under way.
    pub(crate) fn start(&self, errand: &Errand, world: &World) {
        let (Errand::List(job) | Errand::Publish(job) | Errand::Send(job)) = errand;
        let Some(run) = world.view.runs.get(job) else {
            return;
        };
        let task = run.spec.task.clone();
        let batch = Plan::of(run, world);
        if batch.is_none() && !matches!(errand, Errand::Send(_)) {
            return;
        }
        if self
            .lock()
            .insert(errand.clone(), ErrandSeen::Busy)
            .is_some()
        {
            return;
        }
        let (store, blobs, bell, seen) = (
            self.store.clone(),
            self.blobs.clone(),
            self.bell.clone(),
            self.seen.clone(),
        );
        let named = errand.clone();
        let work = move || {
            let end = match (&named, &batch) {
                (Errand::List(job), Some(batch)) => list(blobs.as_ref(), job, batch),
                (Errand::Publish(job), Some(batch)) => {
                    publish(store.as_ref(), blobs.as_ref(), job, batch)
                }
                (Errand::Send(_), _) => send(blobs.as_ref(), &task),
                (Errand::List(_) | Errand::Publish(_), None) => {
                    Err("it is of a batch run, and this is none".to_owned())
                }
            };
            let end = end.unwrap_or_else(|message| ErrandSeen::Failed {
                message: message.into(),
            });
            seen.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(named, end);
            bell.ring();
        };
        if let Err(error) = std::thread::Builder::new()
            .name("errand".into())
            .spawn(work)
        {
            tracing::error!(%error, ?errand, "no thread for an errand; the next turn tries again");
            self.lock().remove(errand);
        }
    }

    /// Removes what a completed run needs no more. Beside the loop: a folder may be large.
    pub(crate) fn discard(&self, record: &RunRecord) {
        // A reused step has sent nothing: what it names is another's.
        let own = record.spec.sends() && record.held_node;
        if own {
            self.discard_sent(&record.spec.task);
        }
        let (Work::Batch(batch), Program::Pool(pool)) =
            (&record.spec.work, &record.spec.task.program)
        else {
            return;
        };
        let (blobs, segment, listing) = (
            self.blobs.clone(),
            batch.segment.clone(),
            pool.listing.clone(),
        );
        let work = move || {
            for path in [segment, listing] {
                match blobs.delete(&path) {
                    Ok(()) | Err(BlobError::NotFound(_)) => {}
                    Err(error) => tracing::warn!(%error, "a file of a completed run stays behind"),
                }
            }
        };
        if let Err(error) = std::thread::Builder::new()
            .name("discard".into())
            .spawn(work)
        {
            tracing::warn!(%error, "files of a completed run stay behind");
        }
    }
}

impl Errands {
    /// Removes outputs that are where they belong.
    fn discard_sent(&self, task: &Arc<TaskSpec>) {
        let (blobs, task) = (self.blobs.clone(), task.clone());
        let work = move || {
            for remote in task.outputs.values().filter_map(|o| o.sent()) {
                let file = blobs.info(&remote.staged).is_ok();
                let gone = match file {
                    true => blobs.delete(&remote.staged),
                    false => blobs.delete_folder(&remote.staged),
                };
                if let Err(error) = gone {
                    tracing::warn!(%error, "an output that was sent stays here too");
                }
            }
        };
        if let Err(error) = std::thread::Builder::new()
            .name("discard".into())
            .spawn(work)
        {
            tracing::warn!(%error, "outputs that were sent stay here too");
        }
    }
}

/// Sends the outputs of a run to the datastores where they belong (R1).
fn send(blobs: &dyn Blobs, task: &TaskSpec) -> Result<ErrandSeen, String> {
    for (name, output) in &task.outputs {
        let Some(remote) = output.sent() else {
            continue;
        };
        match blobs.send(&remote.staged, &output.target) {
            // a task that has written nothing has sent all of it
            Ok(()) | Err(BlobError::NotFound(_)) => {}
            Err(error) => {
                let kept = remote.staged.as_str();
                let kept = kept.split_once('/').map_or(kept, |(_, inner)| inner);
                return Err(format!(
                    "output {name} cannot be sent to datastore {}: {error}; it is kept as {kept} in the workspace's own datastore",
                    remote.datastore
                ));
            }
        }
    }
    Ok(ErrandSeen::Sent)
}

/// What an errand needs, taken out of the World when it starts.
struct Plan {
    batch: BatchSpec,
    pool: PoolSpec,
    header: Option<Box<str>>,
}

impl Plan {
    fn of(run: &RunRecord, world: &World) -> Option<Plan> {
        match (&run.spec.work, &run.spec.task.program) {
            (Work::Batch(batch), Program::Pool(pool)) => Some(Plan {
                batch: batch.as_ref().clone(),
                pool: pool.clone(),
                header: world.header(&run.id),
            }),
            _ => None,
        }
    }
}

/// A writer that also computes the digest of what passes.
struct Hashing<W> {
    to: W,
    sha: Sha256,
}
impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.to.write(bytes)?;
        self.sha.update(&bytes[..n]);
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Where the rows go.
fn target(plan: &Plan, file: &str) -> Result<BlobPath, String> {
    let target = plan.batch.output_folder.join(file);
    target.ok_or_else(|| format!("output_file_name {file:?} is not a legal name"))
}

/// R4: whether an output that is there is another's.
fn is_anothers(info: &BlobInfo, job: &JobId) -> bool {
    info.metadata.get(WRITER).map(String::as_str) != Some(job.name())
}

fn there_already(target: &BlobPath) -> String {
    format!("the output {target} already exists; an output is never overwritten")
}

fn list(blobs: &dyn Blobs, job: &JobId, plan: &Plan) -> Result<ErrandSeen, String> {
    if let BatchOutput::AppendRow { file } = &plan.batch.output {
        let target = target(plan, file)?;
        if blobs
            .info(&target)
            .is_ok_and(|info| is_anothers(&info, job))
        {
            return Err(there_already(&target));
        }
    }
    let text =
        |e: &dyn std::fmt::Display| format!("the input {} cannot be listed: {e}", plan.batch.input);
    blobs.bring(&plan.batch.input).map_err(|e| text(&e))?;
    let to = blobs.write(&plan.pool.listing).map_err(|e| text(&e))?;
    let hashing = Hashing {
        to: io::BufWriter::with_capacity(COPY, to),
        sha: Sha256::new(),
    };
    let mut writer = listing::Writer::new(hashing).map_err(|e| text(&e))?;
    let mut failed = None;
    let root = format!("{}/", plan.pool.root);
    let mut push = |path: &str| {
        if let (None, Some(relative)) = (&failed, path.strip_prefix(&root)) {
            failed = writer.push(relative.as_bytes()).err();
        }
    };
    if plan.batch.input_is_folder {
        blobs
            .walk(&plan.batch.input, &mut |path| push(path.as_str()))
            .map_err(|e| text(&e))?;
    } else {
        blobs.info(&plan.batch.input).map_err(|e| text(&e))?;
        push(plan.batch.input.as_str());
    }
    if let Some(e) = failed {
        return Err(text(&e));
    }
    let (files, hashing) = writer.finish().map_err(|e| text(&e))?;
    let digest: String = hashing
        .sha
        .finalize()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let to = hashing.to.into_inner().map_err(|e| text(&e.error()))?;
    to.finish(false, None, BTreeMap::new())
        .map_err(|e| text(&e))?;
    Ok(ErrandSeen::Listed {
        files,
        digest: digest.into(),
    })
}

fn publish(
    store: &dyn Store,
    blobs: &dyn Blobs,
    job: &JobId,
    plan: &Plan,
) -> Result<ErrandSeen, String> {
    let BatchOutput::AppendRow { file } = &plan.batch.output else {
        return Err("this run has no output file".into());
    };
    let target = target(plan, file)?;
    let text = |e: &dyn std::fmt::Display| format!("the output {target} cannot be written: {e}");

    let (mut segments, mut pieces): (Vec<BlobPath>, Vec<Piece>) = (Vec::new(), Vec::new());
    store
        .spans(job, &mut |segment, spans| {
            let at = segments
                .iter()
                .position(|s| s == segment)
                .unwrap_or_else(|| {
                    segments.push(segment.clone());
                    segments.len() - 1
                });
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            pieces.extend(spans.iter().map(|s| Piece::new(at, s)));
        })
        .map_err(|e| text(&e))?;
    pieces.sort_unstable_by_key(|p| p.index);
    if let Some(twice) = pieces.windows(2).find(|w| w[0].index == w[1].index) {
        return Err(format!("mini-batch {} is committed twice", twice[0].index)); // B5; the log makes it impossible
    }

    let writer = blobs.write(&target).map_err(|e| text(&e))?;
    let mut out = io::BufWriter::with_capacity(COPY, writer);
    if let Some(header) = &plan.header {
        writeln!(out, "{header}").map_err(|e| text(&e))?;
    }
    copy(blobs, &segments, &pieces, &mut out).map_err(|e| text(&e))?;
    let writer = out.into_inner().map_err(|e| text(&e.error()))?;
    let mark = BTreeMap::from([(WRITER.to_owned(), job.to_string())]);
    let info = match writer.finish(true, None, mark) {
        Ok(info) => info,
        Err(BlobError::Exists(_)) => {
            let there = blobs.info(&target).map_err(|e| text(&e))?;
            if is_anothers(&there, job) {
                return Err(there_already(&target));
            }
            there
        }
        Err(e) => return Err(text(&e)),
    };
    Ok(ErrandSeen::Published {
        bytes: Bytes(info.len),
    })
}

/// A span and the segment that it lies in. All of a run are held at once, so it is kept small: what is not needed is left out.
struct Piece {
    offset: u64,
    segment: u32,
    index: u32,
    len: u32,
    crc: u32,
}

impl Piece {
    fn new(segment: u32, span: &Span) -> Piece {
        Piece {
            offset: span.offset,
            segment,
            index: span.index,
            len: span.len,
            crc: span.crc,
        }
    }

    fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

/// Copies pieces in order. Neighbours in a segment are read together, so the cost is that of the bytes.
fn copy(
    blobs: &dyn Blobs,
    segments: &[BlobPath],
    pieces: &[Piece],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(COPY);
    let mut left = pieces;
    while let Some(first) = left.first() {
        let (mut end, mut joined) = (first.end(), 1);
        while let Some(next) = left.get(joined) {
            let neighbour = next.segment == first.segment && next.offset == end;
            if !neighbour || next.end() - first.offset > COPY as u64 {
                break;
            }
            (end, joined) = (next.end(), joined + 1);
        }
        let (together, after) = left.split_at(joined);
        let path = &segments[first.segment as usize];
        let bytes = usize::try_from(end - first.offset).map_err(io::Error::other)?;
        buffer.resize(bytes, 0);
        read_exact(blobs, path, first.offset, &mut buffer)?;
        let mut rest: &[u8] = &buffer;
        for piece in together {
            let (bytes, after) = rest.split_at(piece.len as usize);
            if crc32fast::hash(bytes) != piece.crc {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "the rows of mini-batch {} are damaged in {path} at {}",
                        piece.index, piece.offset
                    ),
                ));
            }
            rest = after;
        }
        out.write_all(&buffer)?;
        left = after;
    }
    Ok(())
}

fn read_exact(
    blobs: &dyn Blobs,
    path: &BlobPath,
    offset: u64,
    buffer: &mut [u8],
) -> io::Result<()> {
    let mut at = 0;
    while at < buffer.len() {
        match blobs
            .read_at(path, offset + at as u64, &mut buffer[at..])
            .map_err(io::Error::other)?
        {
            0 => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!("{path} ends too early"),
                ));
            }
            n => at += n,
        }
    }
    Ok(())
}
