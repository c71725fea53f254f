//! What is wrong with a file, where, by which rule, and what to write instead.

use std::fmt;

/// Where a diagnostic points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A position in a file.
    File {
        /// Name as the caller gave it.
        file: String,
        /// Line, from 1.
        line: u32,
        /// Column in characters, from 1.
        column: u32,
        /// The line itself, without its end.
        text: String,
    },
    /// A flag of the command line, `--set a.b=c`.
    Flag(String),
}

/// One thing that is wrong, or worth a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where.
    pub place: Place,
    /// The key that it is about, `settings.retry_settings.timeout`; empty for the whole file.
    pub path: String,
    /// The thing, the rule and the value; lower case, no full stop.
    pub message: String,
    /// What to do instead.
    pub hint: Option<String>,
}

/// `file:line:column: message`
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File {
                file, line, column, ..
            } => write!(f, "{file}:{line}:{column}: {}", self.message),
            Place::Flag(flag) => write!(f, "{flag}: {}", self.message),
        }
    }
}

impl Diagnostic {
    /// The message, the line of the file with a mark under the place, and the hint, each on lines of their own.
    pub fn render(&self) -> String {
        use fmt::Write as _;
        /// Longest part of a line that is shown; a longer one is cut around the mark.
        const WIDTH: usize = 96;
        let mut out = self.to_string();
        if let Place::File {
            line, column, text, ..
        } = &self.place
            && !text.trim().is_empty()
        {
            let at = usize::try_from(*column).unwrap_or(1).saturating_sub(1);
            let skip = if at >= WIDTH { at - WIDTH / 2 } else { 0 };
            let shown: String = text
                .chars()
                .skip(skip)
                .take(WIDTH)
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect();
            let number = line.to_string();
            let margin = " ".repeat(number.len());
            let blank: String = shown
                .chars()
                .take(at - skip)
                .map(|c| if wide(c) { '\u{3000}' } else { ' ' })
                .collect();
            let _ = write!(
                out,
                "\n{margin} |\n{number} | {}\n{margin} | {blank}^",
                shown.trim_end()
            );
        }
        if let Some(hint) = &self.hint {
            let _ = write!(out, "\nhint: {hint}");
        }
        out
    }
}

/// Does a terminal give this character two columns? Enough for the mark to stand right under Japanese text.
fn wide(c: char) -> bool {
    matches!(u32::from(c), 0x1100..=0x115F | 0x2E80..=0xA4CF | 0xAC00..=0xD7A3 | 0xF900..=0xFAFF | 0xFE30..=0xFE6F | 0xFF00..=0xFF60 | 0xFFE0..=0xFFE6 | 0x2_0000..=0x3_FFFD)
}
