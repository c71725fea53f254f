//! What the server puts into the environment of a job's processes.

use model::JobId;
use std::{collections::BTreeMap, fmt, sync::Arc};

type Of = dyn Fn(&JobId) -> BTreeMap<String, String> + Send + Sync;

/// Environment variables by job. They may hold a secret of the job, so they are made when a process is about to start and are
/// never printed (I9). A variable of the user wins over one of the same name here.
#[derive(Clone)]
pub struct Variables(Arc<Of>);

impl Variables {
    /// Those that `of` says.
    pub fn new(of: impl Fn(&JobId) -> BTreeMap<String, String> + Send + Sync + 'static) -> Self {
        Variables(Arc::new(of))
    }

    /// The variables of a job.
    pub(crate) fn of(&self, job: &JobId) -> BTreeMap<String, String> {
        (self.0)(job)
    }
}

impl Default for Variables {
    /// None.
    fn default() -> Self {
        Variables::new(|_| BTreeMap::new())
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Variables")
    }
}
