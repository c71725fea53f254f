//! Adapters that keep everything in memory: for the tests of other crates, and the plainest statement of what the
//! ports promise. They pass the same contract as the durable ones. Dropped, they are gone.

use model::{
    BlobPath, Declared, DocKey, Document, Event, JobId, RunEvent, RunRecord, Time, Workspace,
    batch::Span,
};
use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    Append, BlobError, BlobInfo, BlobWriter, Blobs, Loaded, Page, Series, Store, StoreError,
};

/// Documents, events, spans and series in memory.
#[derive(Default)]
pub struct MemoryStore(Mutex<Shelf>);

#[derive(Default)]
struct Shelf {
    snapshot: Option<(u64, Vec<u8>)>,
    /// Events after the snapshot; the last one has number `seq`.
    tail: Vec<Event>,
    seq: u64,
    documents: BTreeMap<DocKey, Document>,
    records: BTreeMap<JobId, RunRecord>,
    spans: BTreeMap<JobId, Vec<(BlobPath, Vec<Span>)>>,
    series: BTreeMap<String, Vec<(Time, String)>>,
}

impl Shelf {
    fn write(&mut self, document: &Document) {
        match self.documents.get_mut(&document.key) {
            // D2: the first spelling stays, and so does the first time.
            Some(old) => {
                let (key, created) = (old.key.clone(), old.created);
                *old = Document {
                    key,
                    created,
                    ..document.clone()
                };
            }
            None => {
                let mut document = document.clone();
                if let Some(workspace) = self.workspace(&document.key.workspace) {
                    document.key.workspace = workspace;
                }
                self.documents.insert(document.key.clone(), document);
            }
        }
    }
    /// The workspace as first spelled, while it holds a document.
    fn workspace(&self, named: &Arc<Workspace>) -> Option<Arc<Workspace>> {
        let same = |key: &&DocKey| key.workspace == *named;
        self.documents
            .keys()
            .find(same)
            .map(|key| key.workspace.clone())
    }
    fn index(&mut self, event: &Event) {
        match event {
            Event::Declared { document, .. } => self.write(document),
            Event::Withdrawn { key, .. } => {
                self.documents.remove(key);
                if key.kind == model::Kind::Job {
                    let job = JobId::new(&key.workspace, key.path.clone());
                    self.records.remove(&job);
                    self.spans.remove(&job);
                }
            }
            Event::Run {
                event: RunEvent::Submitted { document, .. },
                ..
            } => self.write(document),
            Event::Run {
                run,
                event: RunEvent::Retired { record },
                ..
            } => {
                self.records.insert(run.clone(), record.as_ref().clone());
            }
            Event::ComputeGone { .. }
            | Event::CapacityHeld { .. }
            | Event::Node { .. }
            | Event::Run { .. }
            | Event::Batch { .. } => {}
        }
    }
}

/// As a store would give it back: what decisions need of a document is read from the document again.
fn stored(event: &Event) -> Event {
    match event {
        Event::Declared { document, .. } => Event::Declared {
            document: document.clone(),
            declared: Declared::default(),
        },
        other => other.clone(),
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn load(&self) -> Result<Loaded, StoreError> {
        let shelf = self.shelf();
        Ok(Loaded {
            snapshot: shelf.snapshot.as_ref().map(|(_, bytes)| bytes.clone()),
            tail: shelf.tail.clone(),
            seq: shelf.seq,
        })
    }
    fn append(&self, turn: &Append<'_>) -> Result<u64, StoreError> {
        let mut shelf = self.shelf();
        if turn.after != shelf.seq {
            return Err(StoreError::Conflict {
                have: shelf.seq,
                expected: turn.after,
            });
        }
        for event in turn.events {
            shelf.index(event);
            shelf.tail.push(stored(event));
        }
        shelf.seq += turn.events.len() as u64;
        for (from, to) in turn.copies {
            let copied = shelf.spans.get(from).cloned().unwrap_or_default();
            shelf.spans.entry(to.clone()).or_default().extend(copied);
        }
        for (job, segment, spans) in turn.spans {
            shelf
                .spans
                .entry(job.clone())
                .or_default()
                .push((segment.clone(), spans.clone()));
        }
        Ok(shelf.seq)
    }
    fn checkpoint(&self, at: u64, snapshot: &[u8]) -> Result<(), StoreError> {
        let mut shelf = self.shelf();
        let last = shelf.snapshot.as_ref().map_or(0, |(at, _)| *at);
        if at < last || at > shelf.seq {
            return Err(StoreError::Conflict {
                have: if at < last { last } else { shelf.seq },
                expected: at,
            });
        }
        let drop = usize::try_from(at - last).map_err(io::Error::other)?;
        shelf.tail.drain(..drop);
        shelf.snapshot = Some((at, snapshot.to_vec()));
        Ok(())
    }
    fn get(&self, key: &DocKey) -> Result<Option<Document>, StoreError> {
        Ok(self.shelf().documents.get(key).cloned())
    }
    fn page(&self, page: &Page) -> Result<(Vec<Document>, Option<String>), StoreError> {
        let shelf = self.shelf();
        let below = page
            .parent
            .as_ref()
            .map(|p| format!("{}/", p.to_ascii_lowercase()));
        let place = |d: &Document| place(page, d);
        let after = match &page.after {
            None => None,
            Some(token) => Some(read_token(token)?),
        };
        let mut found: Vec<&Document> = shelf
            .documents
            .values()
            .filter(|d| d.key.workspace == page.workspace && d.key.kind == page.kind)
            .filter(|d| {
                below
                    .as_ref()
                    .is_none_or(|below| fold(d).starts_with(below))
            })
            .filter(|d| after.as_ref().is_none_or(|after| place(d) > *after))
            .collect();
        found.sort_by_key(|d| place(d));
        let more = found.len() > page.limit;
        found.truncate(page.limit);
        let next = found
            .last()
            .filter(|_| more)
            .map(|last| self.behind(page, last));
        Ok((found.into_iter().cloned().collect(), next))
    }
    fn behind(&self, page: &Page, document: &Document) -> String {
        let (time, path) = place(page, document);
        format!("{time}:{path}")
    }
    fn workspaces(&self) -> Result<Vec<Arc<Workspace>>, StoreError> {
        let mut all: Vec<_> = self
            .shelf()
            .documents
            .keys()
            .map(|k| k.workspace.clone())
            .collect();
        all.dedup();
        Ok(all)
    }
    fn record(&self, job: &JobId) -> Result<Option<RunRecord>, StoreError> {
        Ok(self.shelf().records.get(job).cloned())
    }
    fn spans(
        &self,
        job: &JobId,
        take: &mut dyn FnMut(&BlobPath, &[Span]),
    ) -> Result<(), StoreError> {
        let blocks = self.shelf().spans.get(job).cloned().unwrap_or_default();
        for (segment, spans) in &blocks {
            take(segment, spans);
        }
        Ok(())
    }
}

fn fold(d: &Document) -> String {
    d.key.path.as_str().to_ascii_lowercase()
}

/// Where a document stands in the order of a page: ascending by this pair.
fn place(page: &Page, d: &Document) -> (u64, String) {
    let time = if page.newest_first {
        u64::MAX - d.created.0
    } else {
        0
    };
    (time, fold(d))
}

fn read_token(token: &str) -> Result<(u64, String), StoreError> {
    token
        .split_once(':')
        .and_then(|(time, path)| Some((time.parse().ok()?, path.to_owned())))
        .ok_or_else(|| {
            StoreError::Io(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{token:?} is no token of a page"),
            ))
        })
}

impl Series for MemoryStore {
    fn append(&self, series: &str, samples: &[(Time, String)]) -> Result<(), StoreError> {
        let mut shelf = self.shelf();
        let all = shelf.series.entry(series.to_owned()).or_default();
        all.extend_from_slice(samples);
        all.sort_by_key(|(time, _)| *time);
        if let Some((newest, _)) = all.last() {
            let limit = newest.0.saturating_sub(crate::SERIES_KEPT.0);
            let old = all.partition_point(|(time, _)| time.0 < limit);
            all.drain(..old.saturating_sub(1));
        }
        Ok(())
    }
    fn range(&self, series: &str, from: Time, to: Time) -> Result<Vec<(Time, String)>, StoreError> {
        let shelf = self.shelf();
        let Some(all) = shelf.series.get(series) else {
            return Ok(Vec::new());
        };
        let first = all.partition_point(|(time, _)| *time < from);
        let end = all.partition_point(|(time, _)| *time < to).max(first);
        Ok(all[first.saturating_sub(1)..end].to_vec())
    }
    fn names(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let shelf = self.shelf();
        let from = shelf.series.range(prefix.to_owned()..);
        Ok(from
            .map(|(name, _)| name.clone())
            .take_while(|name| name.starts_with(prefix))
            .collect())
    }
    fn forget(&self, prefix: &str) -> Result<(), StoreError> {
        let mut shelf = self.shelf();
        shelf.series.retain(|name, _| !name.starts_with(prefix));
        Ok(())
    }
}

/// Blobs in memory.
#[derive(Clone, Default)]
pub struct MemoryBlobs(Arc<Mutex<Room>>);

#[derive(Default)]
struct Room {
    blobs: BTreeMap<BlobPath, Blob>,
    /// Counts writes: the ETag, and a clock that is good enough here.
    writes: u64,
}

struct Blob {
    bytes: Vec<u8>,
    info: BlobInfo,
}

impl Room {
    fn put(
        &mut self,
        path: &BlobPath,
        bytes: Vec<u8>,
        md5: Option<String>,
        metadata: BTreeMap<String, String>,
    ) -> BlobInfo {
        self.writes += 1;
        let info = BlobInfo {
            len: bytes.len() as u64,
            modified: Time(self.writes),
            etag: format!("{:x}", self.writes),
            md5,
            metadata,
        };
        let blob = Blob {
            bytes,
            info: info.clone(),
        };
        self.blobs.insert(path.clone(), blob);
        info
    }
    /// A name cannot be a blob and a folder at once.
    fn check(&self, path: &BlobPath) -> Result<(), BlobError> {
        let bad = |rule| BlobError::BadName {
            path: path.to_string(),
            rule,
        };
        if !path.as_str().contains('/') {
            return Err(bad("a blob lies in a container: `container/name`"));
        }
        let mut parents = path.as_str().match_indices('/').skip(1);
        if parents.any(|(at, _)| {
            BlobPath::new(&path.as_str()[..at]).is_some_and(|p| self.blobs.contains_key(&p))
        }) {
            return Err(bad("a part of its path is a blob"));
        }
        if self.below(path).next().is_some() {
            return Err(bad("a folder of this name holds other blobs"));
        }
        Ok(())
    }
    /// Everything below a folder: one run in byte order, since all of it begins with `folder/`.
    fn below(&self, folder: &BlobPath) -> impl Iterator<Item = (&BlobPath, &Blob)> {
        let prefix = format!("{folder}/");
        // U+0001 is the least character of a name, so no path below sorts before this one.
        let first = folder.join("\u{1}");
        first
            .into_iter()
            .flat_map(|first| self.blobs.range(first..))
            .take_while(move |(path, _)| path.as_str().starts_with(&prefix))
    }
}

impl MemoryBlobs {
    /// No blobs.
    pub fn new() -> Self {
        Self::default()
    }
    fn room(&self) -> MutexGuard<'_, Room> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Writer {
    to: MemoryBlobs,
    path: BlobPath,
    bytes: Vec<u8>,
}
impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
impl BlobWriter for Writer {
    fn add(&mut self, blob: &BlobPath, part: Range<u64>) -> Result<u64, BlobError> {
        let bytes = self.to.read(blob, u64::MAX)?;
        let [from, to] = [part.start, part.end]
            .map(|at| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len()));
        self.bytes.extend_from_slice(&bytes[from..to.max(from)]);
        Ok(to.saturating_sub(from) as u64)
    }
    fn finish(
        self: Box<Self>,
        create_only: bool,
        md5: Option<String>,
        metadata: BTreeMap<String, String>,
    ) -> Result<BlobInfo, BlobError> {
        let mut room = self.to.room();
        room.check(&self.path)?;
        if create_only && room.blobs.contains_key(&self.path) {
            return Err(BlobError::Exists(self.path));
        }
        Ok(room.put(&self.path, self.bytes, md5, metadata))
    }
}

impl Blobs for MemoryBlobs {
    fn write(&self, path: &BlobPath) -> Result<Box<dyn BlobWriter>, BlobError> {
        self.room().check(path)?;
        Ok(Box::new(Writer {
            to: self.clone(),
            path: path.clone(),
            bytes: Vec::new(),
        }))
    }
    fn info(&self, path: &BlobPath) -> Result<BlobInfo, BlobError> {
        let room = self.room();
        let blob = room.blobs.get(path);
        blob.map(|b| b.info.clone())
            .ok_or_else(|| BlobError::NotFound(path.clone()))
    }
    fn read_at(&self, path: &BlobPath, offset: u64, buf: &mut [u8]) -> Result<usize, BlobError> {
        let room = self.room();
        let Some(blob) = room.blobs.get(path) else {
            return Err(BlobError::NotFound(path.clone()));
        };
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(blob.bytes.len());
        let n = buf.len().min(blob.bytes.len() - from);
        buf[..n].copy_from_slice(&blob.bytes[from..from + n]);
        Ok(n)
    }
    fn set_metadata(
        &self,
        path: &BlobPath,
        metadata: BTreeMap<String, String>,
    ) -> Result<BlobInfo, BlobError> {
        let mut room = self.room();
        let Some(old) = room.blobs.remove(path) else {
            return Err(BlobError::NotFound(path.clone()));
        };
        Ok(room.put(path, old.bytes, old.info.md5, metadata))
    }
    fn delete(&self, path: &BlobPath) -> Result<(), BlobError> {
        match self.room().blobs.remove(path) {
            Some(_) => Ok(()),
            None => Err(BlobError::NotFound(path.clone())),
        }
    }
    fn delete_folder(&self, path: &BlobPath) -> Result<(), BlobError> {
        let mut room = self.room();
        let gone: Vec<BlobPath> = room.below(path).map(|(path, _)| path.clone()).collect();
        for path in gone {
            room.blobs.remove(&path);
        }
        Ok(())
    }
    fn list(
        &self,
        folder: &BlobPath,
        after: Option<&BlobPath>,
        limit: usize,
    ) -> Result<Vec<(BlobPath, BlobInfo)>, BlobError> {
        Ok(self
            .room()
            .below(folder)
            .filter(|(path, _)| after.is_none_or(|after| *path > after))
            .take(limit)
            .map(|(path, blob)| (path.clone(), blob.info.clone()))
            .collect())
    }
    fn walk(&self, folder: &BlobPath, take: &mut dyn FnMut(BlobPath)) -> Result<(), BlobError> {
        let paths: Vec<BlobPath> = self
            .room()
            .below(folder)
            .map(|(path, _)| path.clone())
            .collect();
        paths.into_iter().for_each(take);
        Ok(())
    }
    fn append(&self, segment: &BlobPath, pieces: &[Arc<[u8]>]) -> Result<u64, BlobError> {
        let mut room = self.room();
        let mut bytes = match room.blobs.remove(segment) {
            Some(old) => old.bytes,
            None => {
                room.check(segment)?;
                Vec::new()
            }
        };
        let at = bytes.len() as u64;
        pieces
            .iter()
            .for_each(|piece| bytes.extend_from_slice(piece));
        room.put(segment, bytes, None, BTreeMap::new());
        Ok(at)
    }
    fn local(&self, _: &BlobPath) -> Option<PathBuf> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract;

    #[test]
    fn the_store_in_memory_keeps_the_contract() {
        contract::store(&|| {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
            Box::new(move || store.clone())
        });
    }
    #[test]
    fn the_series_in_memory_keep_the_contract() {
        contract::series(&|| {
            let series: Arc<dyn Series> = Arc::new(MemoryStore::new());
            Box::new(move || series.clone())
        });
    }
    #[test]
    fn the_blobs_in_memory_keep_the_contract() {
        contract::blobs(&|| {
            let blobs: Arc<dyn Blobs> = Arc::new(MemoryBlobs::new());
            Box::new(move || blobs.clone())
        });
    }
}
