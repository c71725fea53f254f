//! Request ids that made a run, so that a repeat gives the first one.

use model::JobId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

use crate::limits::KEEP_REQUESTS;

/// The last ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Requests {
    runs: BTreeMap<Box<str>, JobId>,
    order: VecDeque<Box<str>>,
}

impl Requests {
    /// The run that this request made.
    pub fn run(&self, request: &str) -> Option<&JobId> {
        self.runs.get(request)
    }
    pub fn knows(&self, request: &str) -> bool {
        self.runs.contains_key(request)
    }
    /// Remembers a request; the oldest one is forgotten.
    pub fn remember(&mut self, request: &str, run: &JobId) {
        if self.runs.insert(request.into(), run.clone()).is_none() {
            self.order.push_back(request.into());
        }
        while self.order.len() > KEEP_REQUESTS {
            if let Some(oldest) = self.order.pop_front() {
                self.runs.remove(&oldest);
            }
        }
    }
}
