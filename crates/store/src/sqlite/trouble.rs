//! What can go wrong inside, and what of it the port knows.

use port::StoreError;
use rusqlite::ErrorCode;
use std::io;

use crate::reserve::is_full;

/// An error on its way out.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// SQLite said so.
    Sql(rusqlite::Error),
    /// The system, or a point of failure, said so.
    Io(io::Error),
    /// It has its final form already.
    Store(StoreError),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Trouble::Sql(error)
    }
}
impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Io(error)
    }
}
impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Trouble::Store(error)
    }
}

impl Trouble {
    /// A row that is not what was written (S2). `at` names the event that wrote it.
    pub(crate) fn corrupt(at: u64, message: impl Into<String>) -> Self {
        Trouble::Store(StoreError::Corrupt {
            at,
            message: message.into(),
        })
    }

    /// Names the event, for damage that SQLite finds itself.
    pub(crate) fn at(self, at: u64) -> Self {
        Trouble::Store(self.into_store(at))
    }

    /// The port's form; `at` is the event that was being looked at, for damage that SQLite finds itself.
    pub(crate) fn into_store(self, at: u64) -> StoreError {
        match self {
            Trouble::Store(error) => error,
            Trouble::Io(error) if is_full(&error) => StoreError::Full {
                message: error.to_string(),
            },
            Trouble::Io(error) => StoreError::Io(error),
            Trouble::Sql(error) => match error.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => StoreError::Full {
                    message: error.to_string(),
                },
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt {
                    at,
                    message: error.to_string(),
                },
                _ => StoreError::Io(io::Error::other(error)),
            },
        }
    }
}
