//! The Python that the stock `azure-ai-ml` runs in: a virtual environment that is made once per target folder and set of
//! requirements, or the one that `ZAFFRE_SDK_PYTHON` names.

use super::venv;
use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// What the flows import. `setuptools` as far as it still has the `pkg_resources` that the SDK asks for.
pub const REQUIREMENTS: [&str; 5] = [
    "azure-ai-ml==1.35.2",
    "azure-identity==1.27.0",
    "pyjwt",
    "requests",
    "setuptools<81",
];

/// The Python of the flows, of the programs and of the corpus.
pub fn python() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| venv::python("ZAFFRE_SDK_PYTHON", &REQUIREMENTS))
}

/// Bytes of a program's output as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
