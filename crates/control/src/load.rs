//! Reading the World back: checkpoint, then the log after it.

use model::{Declared, Document, Event};
use plan::World;
use port::{Store, StoreError};
use thiserror::Error;

/// Why the loop could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The checkpoint was written by a version with another form of the World.
    #[error("the checkpoint cannot be read: {0}")]
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
        Some(bytes) => {
            serde_json::from_slice(&bytes).map_err(|e| StartError::Checkpoint(e.to_string()))?
        }
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

/// The World as bytes, for a checkpoint.
pub(crate) fn snapshot(world: &World) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(world).map_err(|e| StoreError::Io(std::io::Error::other(e)))
}
