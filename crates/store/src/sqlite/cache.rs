//! Documents that were read of late, so that a client that asks again and again does not cost a look-up each time.
//!
//! Q1 what is found here is what the file says: a write takes its documents out before it is committed, and nothing that
//!    was read before the end of that commit comes in after it.

use model::{DocKey, Document, Event, RunEvent};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Bytes of documents in each of the two generations: some thousand documents.
const GENERATION: usize = 4 << 20;
/// What a document takes besides its texts.
const OVERHEAD: usize = 512;

#[derive(Default)]
pub(super) struct Cache(Mutex<Shelf>);

#[derive(Default)]
struct Shelf {
    young: HashMap<DocKey, Document>,
    /// Asked for before `young` began; what is asked for again becomes young.
    old: HashMap<DocKey, Document>,
    /// Of `young`.
    bytes: usize,
    /// Counts beginnings and ends of commits: odd while one is under way.
    commits: u64,
}

/// When a document was looked for, to be shown when it is put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked(u64);

impl Cache {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, key: &DocKey) -> Result<Document, Asked> {
        let mut shelf = self.shelf();
        if let Some(document) = shelf.young.get(key) {
            return Ok(document.clone());
        }
        match shelf.old.remove(key) {
            Some(document) => {
                shelf.add(document.clone());
                Ok(document)
            }
            None => Err(Asked(shelf.commits)),
        }
    }

    /// Keeps what was read after `asked`, unless there was a commit in between (Q1).
    pub(super) fn put(&self, asked: Asked, document: &Document) {
        let mut shelf = self.shelf();
        if asked.0 == shelf.commits && asked.0.is_multiple_of(2) {
            shelf.add(document.clone());
        }
    }

    /// Takes out what these events change. To be followed by `committed`, however the commit ends.
    pub(super) fn commit(&self, events: &[Event]) {
        let mut shelf = self.shelf();
        shelf.commits += 1;
        for key in events.iter().filter_map(changed) {
            if let Some(document) = shelf.young.remove(key) {
                shelf.bytes -= size(&document);
            }
            shelf.old.remove(key);
        }
    }
    pub(super) fn committed(&self) {
        self.shelf().commits += 1;
    }
}

impl Shelf {
    fn add(&mut self, document: Document) {
        let size = size(&document);
        if self.bytes + size > GENERATION {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        if size <= GENERATION && self.young.insert(document.key.clone(), document).is_none() {
            self.bytes += size;
        }
    }
}

fn size(document: &Document) -> usize {
    OVERHEAD + document.json.len() + document.key.path.as_str().len()
}

/// The document that an event changes.
pub(super) fn changed(event: &Event) -> Option<&DocKey> {
    match event {
        Event::Declared { document, .. }
        | Event::Run {
            event: RunEvent::Submitted { document, .. },
            ..
        } => Some(&document.key),
        Event::Withdrawn { key, .. } => Some(key),
        Event::ComputeGone { .. }
        | Event::CapacityHeld { .. }
        | Event::Node { .. }
        | Event::Run { .. }
        | Event::Batch { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Declared, Kind, Time, Workspace};

    fn document(name: &str, generation: u64, len: usize) -> Document {
        Document {
            key: DocKey::new(&Workspace::new("s", "g", "w"), Kind::Model, name),
            generation,
            json: "x".repeat(len).into(),
            created: Time(1),
            modified: Time(1),
            by: "me".into(),
        }
    }
    fn asked(cache: &Cache, name: &str) -> Asked {
        cache.get(&document(name, 1, 0).key).unwrap_err()
    }

    #[test]
    fn what_was_read_before_a_commit_ended_is_not_kept() {
        let cache = Cache::default();
        let event = Event::Declared {
            document: document("A", 2, 9),
            declared: Declared::Other,
        };
        let old = document("a", 1, 9);
        let before = asked(&cache, "a");
        cache.put(before, &old);
        assert_eq!(cache.get(&old.key).unwrap(), old);
        cache.commit(std::slice::from_ref(&event));
        let during = asked(&cache, "a");
        cache.put(during, &old);
        cache.put(before, &old);
        asked(&cache, "a");
        cache.committed();
        cache.put(during, &old);
        cache.put(before, &old);
        let after = asked(&cache, "a");
        cache.put(after, &document("a", 2, 9));
        assert_eq!(cache.get(&old.key).unwrap().generation, 2);
    }

    #[test]
    fn it_holds_a_bounded_number_and_keeps_what_is_asked_for() {
        let cache = Cache::default();
        let hot = document("hot", 1, 1000);
        cache.put(asked(&cache, "hot"), &hot);
        for i in 0..20_000 {
            let name = format!("m{i}");
            cache.put(asked(&cache, &name), &document(&name, 1, 1000));
            assert_eq!(cache.get(&hot.key).unwrap(), hot);
        }
        let shelf = cache.shelf();
        let held = (shelf.young.len() + shelf.old.len()) * 1000;
        assert!(held > GENERATION / 2 && held < 2 * GENERATION, "{held}");
    }
}
