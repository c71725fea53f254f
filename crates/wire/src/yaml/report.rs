//! What is gathered while a file is read: what is wrong, what deserves a warning, what was defaulted, what must happen before
//! the document can be sent.

use super::{
    diagnostic::{Diagnostic, Place},
    draft::{AssetKind, DefaultNote, LabelRef, LocalAsset, ShortRef},
};
use std::cell::{Cell, RefCell};

/// After this many errors the rest adds nothing that a reader would use.
const MAX_ERRORS: usize = 50;

/// A position in one of the texts that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At {
    /// Index of the text: the file, a flag, or a file beside it.
    pub source: u16,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// A text that places point into.
pub(crate) enum Source {
    File { name: String, text: String },
    Flag(String),
}

/// Reads a file beside the YAML by the path written in it.
pub type Files<'a> = &'a dyn Fn(&str) -> Result<Vec<u8>, String>;

/// The gathering place of one load. Shared by reference, so that readers of nested maps need no exclusive borrow.
pub(crate) struct Report<'a> {
    sources: RefCell<Vec<Source>>,
    errors: RefCell<Vec<(At, Diagnostic)>>,
    more_errors: Cell<usize>,
    warnings: RefCell<Vec<Diagnostic>>,
    pub defaults: RefCell<Vec<DefaultNote>>,
    pub locals: RefCell<Vec<LocalAsset>>,
    pub labels: RefCell<Vec<LabelRef>>,
    pub refs: RefCell<Vec<ShortRef>>,
    pub unsupported: RefCell<Vec<String>>,
    pub files: Files<'a>,
}

impl<'a> Report<'a> {
    pub fn new(files: Files<'a>) -> Self {
        Report {
            sources: RefCell::default(),
            errors: RefCell::default(),
            more_errors: Cell::default(),
            warnings: RefCell::default(),
            defaults: RefCell::default(),
            locals: RefCell::default(),
            labels: RefCell::default(),
            refs: RefCell::default(),
            unsupported: RefCell::default(),
            files,
        }
    }

    /// Takes in one more text and gives the index that places in it carry.
    pub fn source(&self, source: Source) -> u16 {
        let mut sources = self.sources.borrow_mut();
        sources.push(source);
        u16::try_from(sources.len() - 1).expect("a command line has fewer than 65,536 flags")
    }

    pub fn error(&self, at: At, path: &str, message: impl Into<String>) {
        self.error_with(at, path, message, None);
    }

    pub fn error_hint(
        &self,
        at: At,
        path: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.error_with(at, path, message, Some(hint.into()));
    }

    pub fn error_with(&self, at: At, path: &str, message: impl Into<String>, hint: Option<String>) {
        let diagnostic = self.diagnostic(at, path, message.into(), hint);
        let mut errors = self.errors.borrow_mut();
        if errors.len() < MAX_ERRORS {
            errors.push((at, diagnostic));
        } else {
            self.more_errors.set(self.more_errors.get() + 1);
        }
    }

    pub fn warn(&self, at: At, path: &str, message: impl Into<String>) {
        let diagnostic = self.diagnostic(at, path, message.into(), None);
        let mut warnings = self.warnings.borrow_mut();
        // a key is looked at more than once by some readers
        if !warnings.contains(&diagnostic) {
            warnings.push(diagnostic);
        }
    }

    /// Names a feature that the file asks for and Zaffre does not run yet.
    pub fn unsupported(&self, feature: impl Into<String>) {
        self.unsupported.borrow_mut().push(feature.into());
    }

    pub fn diagnostic(
        &self,
        at: At,
        path: &str,
        message: String,
        hint: Option<String>,
    ) -> Diagnostic {
        let place = match self.sources.borrow().get(usize::from(at.source)) {
            Some(Source::Flag(flag)) => Place::Flag(flag.clone()),
            Some(Source::File { name, text }) => Place::File {
                file: name.clone(),
                line: at.line,
                column: at.column,
                text: line_of(text, at.line),
            },
            None => Place::File {
                file: String::new(),
                line: at.line,
                column: at.column,
                text: String::new(),
            },
        };
        Diagnostic {
            place,
            path: path.to_owned(),
            message,
            hint,
        }
    }

    pub fn failed(&self) -> bool {
        !self.errors.borrow().is_empty()
    }

    /// The errors in the order of the file.
    pub fn take_errors(&self) -> Vec<Diagnostic> {
        let mut errors = self.errors.take();
        errors.sort_by_key(|(at, _)| *at);
        let more = self.more_errors.get();
        if more > 0
            && let Some((_, last)) = errors.last_mut()
        {
            last.hint = Some(format!("there are {more} more errors"));
        }
        errors
            .into_iter()
            .map(|(_, diagnostic)| diagnostic)
            .collect()
    }

    pub fn take_warnings(&self) -> Vec<Diagnostic> {
        self.warnings.take()
    }

    /// Notes that a default applies to a key that the file does not have.
    pub fn default(&self, path: &str, value: serde_json::Value, source: &'static str) {
        self.defaults.borrow_mut().push(DefaultNote {
            path: path.to_owned(),
            value,
            source,
        });
    }

    /// Notes something that lies beside the file and whose id or address goes to `pointer`.
    pub fn local(&self, pointer: &str, kind: AssetKind, path: Option<String>) {
        self.locals
            .borrow_mut()
            .push(LocalAsset::new(pointer, kind, path));
    }
}

fn line_of(text: &str, line: u32) -> String {
    let index = usize::try_from(line)
        .unwrap_or(usize::MAX)
        .saturating_sub(1);
    text.split('\n')
        .nth(index)
        .unwrap_or_default()
        .trim_end_matches('\r')
        .to_owned()
}
