//! What callers ask of the loop, and what they get.

use model::{
    Answer, ComputeId, Declared, DocKey, Document, JobId, Kind, Millis, Real, Refusal, RunSpec, Why,
};
use std::{fmt, sync::Arc};

/// What must be true of the document that is there (ETags).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Anything, also nothing.
    Any,
    /// Nothing may be there (`If-None-Match: *`).
    Absent,
    /// Something must be there (`If-Match: *`).
    Present,
    /// This generation must be there (`If-Match: "n"`).
    Generation(u64),
}

/// A document to write.
#[derive(Clone, Debug)]
pub struct Put {
    /// Its key. An existing one keeps its first spelling.
    pub key: DocKey,
    /// As sent.
    pub json: Arc<str>,
    /// What decisions need of it.
    pub declared: Declared,
    /// What must be there.
    pub condition: Condition,
    /// Who writes.
    pub by: Arc<str>,
}

/// A request to the loop.
#[derive(Clone, Debug)]
pub enum Request {
    /// Write a document.
    Put(Put),
    /// Remove a document, and with it those of kind `children` below its path.
    Remove {
        /// Which.
        key: DocKey,
        /// Kind of the documents below it, which go too (the deployments of an endpoint).
        children: Option<Kind>,
        /// What must be there; absent is `NotFound` in any case.
        condition: Condition,
    },
    /// Start a run.
    Submit {
        /// Its id.
        id: JobId,
        /// Its document.
        json: Arc<str>,
        /// Resolved.
        spec: Arc<RunSpec>,
        /// A repeat with the same id is answered with the first run.
        request: Option<Box<str>>,
        /// Who submits.
        by: Arc<str>,
    },
    /// Give a run up.
    Cancel {
        /// Which.
        job: JobId,
    },
    /// Take nodes away.
    Preempt {
        /// Of which cluster.
        compute: ComputeId,
        /// How many; `None` for all.
        nodes: Option<u32>,
        /// Notice before the kill.
        notice: Millis,
        /// Offer no new node for so long.
        hold: Option<Millis>,
    },
    /// A trial reports the primary metric of its sweep.
    Measured {
        /// The trial.
        job: JobId,
        /// The value.
        value: Real,
    },
    /// Why does it wait?
    Explain {
        /// Which.
        job: JobId,
    },
}

/// What a request did. Durable.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// What the World says.
    pub answer: Answer,
    /// The document as it is stored now, for writes.
    pub document: Option<Document>,
    /// Whether the document was there before.
    pub existed: bool,
    /// For `Explain`.
    pub why: Option<Why>,
}

/// Why a request was not done. Nothing was stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The World refused it.
    Refused(Refusal),
    /// The condition does not hold.
    Precondition {
        /// The generation that is there.
        have: Option<u64>,
    },
    /// Too many requests wait.
    Busy {
        /// The limit.
        limit: usize,
    },
    /// The disk is short (507).
    Full {
        /// Which limit.
        message: String,
    },
    /// The store could not be read.
    Store {
        /// In its words.
        message: String,
    },
    /// The loop has ended or is ending.
    Stopped,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(
                Refusal::NotFound { message }
                | Refusal::Conflict { message }
                | Refusal::Invalid { message, .. },
            )
            | Failure::Full { message }
            | Failure::Store { message } => f.write_str(message),
            Failure::Precondition { have: Some(g) } => {
                write!(f, "the condition does not hold: generation {g} is there")
            }
            Failure::Precondition { have: None } => {
                f.write_str("the condition does not hold: nothing is there")
            }
            Failure::Busy { limit } => write!(f, "more than {limit} requests wait"),
            Failure::Stopped => f.write_str("the server is stopping"),
        }
    }
}
impl std::error::Error for Failure {}
