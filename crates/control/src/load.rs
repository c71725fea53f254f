//! Reading the World back: checkpoint, then the log after it.
//!
//! L1 a checkpoint says its format; one of another format is told by its numbers, not by the first thing it lacks.

use model::{Declared, Document, Event};
use plan::{FORMAT, World};
use port::{Store, StoreError};
use serde::Deserialize;
use thiserror::Error;

/// Why the loop could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The checkpoint was written by a version with another form of the World (L1).
    #[error("its checkpoint has format {found}, this version reads format {FORMAT}")]
    Format {
        /// `0`: from before formats were numbered.
        found: u32,
    },
    /// The checkpoint has our format and is none of ours.
    #[error("its checkpoint of format {FORMAT} cannot be read: {0}")]
    Checkpoint(String),
    /// A stored document is no longer accepted.
    #[error("stored document {key}: {message}")]
    Document {
        /// Which.
        key: String,
        /// The rule it breaks now.
        message: String,
    },
    /// The thread could not be started.
    #[error("cannot start the loop: {0}")]
    Thread(std::io::Error),
}

/// The World as of the last durable event, and that event's number.
pub(crate) fn world(
    store: &dyn Store,
    read: fn(&Document) -> Result<Declared, String>,
) -> Result<(World, u64), StartError> {
    let loaded = store.load()?;
    let mut world = match loaded.snapshot {
        Some(bytes) => read_snapshot(&bytes)?,
        None => World::default(),
    };
    for mut event in loaded.tail {
        // A log keeps documents, not what was read from them: today's reader reads them again.
        if let Event::Declared { document, declared } = &mut event {
            *declared = read(document).map_err(|message| StartError::Document {
                key: document.key.path.to_string(),
                message,
            })?;
        }
        world.apply(&event);
    }
    Ok((world, loaded.seq))
}

/// What is read of a checkpoint that cannot be read whole.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    format: u32,
}

fn read_snapshot(bytes: &[u8]) -> Result<World, StartError> {
    serde_json::from_slice(bytes).map_err(|error| match serde_json::from_slice(bytes) {
        Ok(Head { format: found }) if found != FORMAT => StartError::Format { found },
        _ => StartError::Checkpoint(error.to_string()),
    })
}

/// The World as bytes, for a checkpoint.
pub(crate) fn snapshot(world: &World) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(world).map_err(|e| StoreError::Io(std::io::Error::other(e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checkpoints of one cluster and one batch run: of format 1, and of the time before formats were numbered.
    const ONE: &[u8] = include_bytes!("../tests/data/checkpoint-1.json");
    const UNNUMBERED: &[u8] = include_bytes!("../tests/data/checkpoint-unnumbered.json");

    #[test]
    fn a_checkpoint_of_our_format_is_read() {
        let world = read_snapshot(ONE).unwrap();
        assert_eq!((world.view.clusters.size(), world.view.runs.size()), (1, 1));
    }

    #[test]
    fn another_format_is_told_by_its_number() {
        for (bytes, found) in [(UNNUMBERED, 0), (br#"{"format":9,"new":[]}"#, 9)] {
            let refused = read_snapshot(bytes).err().unwrap();
            assert_eq!(
                refused.to_string(),
                format!("its checkpoint has format {found}, this version reads format 1")
            );
        }
        let broken = read_snapshot(br#"{"format":1}"#).err().unwrap().to_string();
        assert!(
            broken.contains("of format 1 cannot be read: missing field"),
            "{broken}"
        );
    }
}
