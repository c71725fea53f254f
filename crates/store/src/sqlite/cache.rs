//! Documents that were read or written of late, so that what is asked for again and again does not cost a look-up each time.
//!
//! Q1 what is found here is what the file says: a write takes its documents out before it is committed and brings what it
//!    made of them when it has been; what was read beside it is kept only if no commit changed it meanwhile.

use model::{DocKey, Document, Event, RunEvent};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Bytes of documents in each of the two generations: some thousand documents.
const GENERATION: usize = 4 << 20;
/// What a document takes besides its texts.
const OVERHEAD: usize = 512;
/// Changes that are remembered, so that a reader that was slower than a commit can tell whether it concerns him.
const CHANGES: usize = 1024;

/// What a commit made of a document; `None` when it removed it.
pub(super) type Change = (DocKey, Option<Document>);

#[derive(Default)]
pub(super) struct Cache(Mutex<Shelf>);

#[derive(Default)]
struct Shelf {
    young: HashMap<DocKey, Document>,
    /// Asked for before `young` began; what is asked for again becomes young.
    old: HashMap<DocKey, Document>,
    /// Of `young`.
    bytes: usize,
    /// Commits that have ended, however they did.
    ended: u64,
    /// What the last commits changed, each with the number of its commit, the one under way included.
    changes: VecDeque<(u64, DocKey)>,
    /// The last commit of which a change was forgotten.
    forgotten: u64,
}

/// How many commits had ended when a document was looked for, to be shown when it is put.
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
            None => Err(Asked(shelf.ended)),
        }
    }

    /// Keeps what was read after `asked`, unless a commit that had not ended then changes it (Q1).
    pub(super) fn put(&self, asked: Asked, document: &Document) {
        let mut shelf = self.shelf();
        let mut since = shelf.changes.iter().rev().take_while(|c| c.0 > asked.0);
        if shelf.forgotten <= asked.0 && since.all(|(_, key)| *key != document.key) {
            shelf.add(document.clone());
        }
    }

    /// Takes out what these events change. To be followed by `committed`, however the commit ends.
    pub(super) fn commit(&self, events: &[Event]) {
        let mut shelf = self.shelf();
        let number = shelf.ended + 1;
        for key in events.iter().filter_map(changed) {
            shelf.remove(key);
            shelf.changes.push_back((number, key.clone()));
        }
        while shelf.changes.len() > CHANGES {
            let oldest = shelf.changes.pop_front();
            shelf.forgotten = oldest.map_or(number, |(commit, _)| commit);
        }
    }

    /// Ends the commit; `made` is what it wrote, in order, and nothing when it failed.
    pub(super) fn committed(&self, made: Vec<Change>) {
        let mut shelf = self.shelf();
        shelf.ended += 1;
        for (key, document) in made {
            match document {
                Some(document) => shelf.add(document),
                None => shelf.remove(&key),
            }
        }
    }
}

impl Shelf {
    fn add(&mut self, document: Document) {
        let size = size(&document);
        if self.bytes + size > GENERATION {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.old.remove(&document.key);
        if size <= GENERATION {
            self.bytes += size;
            if let Some(before) = self.young.insert(document.key.clone(), document) {
                self.bytes -= self::size(&before);
            }
        }
    }

    fn remove(&mut self, key: &DocKey) {
        if let Some(document) = self.young.remove(key) {
            self.bytes -= size(&document);
        }
        self.old.remove(key);
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

    fn declared(document: &Document) -> Event {
        Event::Declared {
            document: document.clone(),
            declared: Declared::Other,
        }
    }

    #[test]
    fn what_was_read_beside_a_commit_that_changed_it_is_not_kept() {
        let cache = Cache::default();
        let (old, new) = (document("a", 1, 9), document("A", 2, 9));
        let other = document("b", 1, 9);
        let before = asked(&cache, "a");
        cache.put(before, &old);
        assert_eq!(cache.get(&old.key).unwrap(), old);

        cache.commit(&[declared(&new)]);
        let during = asked(&cache, "a");
        cache.put(during, &old);
        cache.put(before, &old);
        asked(&cache, "a");
        cache.put(asked(&cache, "b"), &other);
        assert_eq!(cache.get(&other.key).unwrap(), other, "nobody changes it");
        cache.committed(Vec::new());
        cache.put(during, &old);
        cache.put(before, &old);
        let after = asked(&cache, "a");
        cache.put(after, &new);
        assert_eq!(cache.get(&old.key).unwrap().generation, 2);
    }

    #[test]
    fn what_a_commit_wrote_is_there_and_what_it_removed_is_not() {
        let cache = Cache::default();
        let (first, second) = (document("a", 1, 9), document("a", 2, 9));
        let gone = |key: &DocKey| Event::Withdrawn {
            key: key.clone(),
            at: Time(2),
        };
        cache.commit(&[declared(&first)]);
        cache.committed(vec![(first.key.clone(), Some(first.clone()))]);
        assert_eq!(cache.get(&first.key).unwrap(), first);
        cache.commit(&[gone(&first.key), declared(&second)]);
        let made = vec![
            (first.key.clone(), None),
            (first.key.clone(), Some(second.clone())),
        ];
        cache.committed(made);
        assert_eq!(cache.get(&first.key).unwrap(), second);
        let asked_then = Asked(1);
        cache.commit(&[gone(&first.key)]);
        cache.committed(vec![(first.key.clone(), None)]);
        cache.put(asked_then, &second);
        asked(&cache, "a");
    }

    #[test]
    fn a_reader_slower_than_all_that_is_remembered_keeps_nothing() {
        let cache = Cache::default();
        let slow = asked(&cache, "a");
        for i in 0..=CHANGES {
            cache.commit(&[declared(&document(&format!("m{i}"), 1, 9))]);
            cache.committed(Vec::new());
        }
        cache.put(slow, &document("a", 1, 9));
        asked(&cache, "a");
        assert_eq!(cache.shelf().changes.len(), CHANGES);
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
