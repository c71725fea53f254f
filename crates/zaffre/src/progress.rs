//! Progress for the person at the terminal: a spinner or a bar on stderr for anything over a second. Elsewhere one line when a
//! step ends, so that a log shows what was done and nothing blinks in it.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{io::IsTerminal, time::Duration};

/// How often a spinner turns.
const TICK: Duration = Duration::from_millis(100);

/// Whether progress is shown at all.
pub fn wanted() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    std::io::stderr().is_terminal() && !set("CI")
}

/// A spinner or bar; draws nothing where nobody looks.
pub struct Progress(ProgressBar);

impl Progress {
    /// A spinner with a text.
    pub fn spinner(text: &str) -> Self {
        let bar = if wanted() {
            ProgressBar::new_spinner()
        } else {
            ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden())
        };
        bar.set_style(
            ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}")
                .expect("the template is a constant"),
        );
        bar.set_message(text.to_owned());
        bar.enable_steady_tick(TICK);
        Progress(bar)
    }

    /// A bar over `total` steps.
    pub fn bar(text: &str, total: u64) -> Self {
        let progress = Progress::spinner(text);
        progress.total(total);
        progress
    }

    /// Turns it into a bar over `total` steps, once the number is known.
    pub fn total(&self, total: u64) {
        if self.0.length() != Some(total) {
            let template = "{spinner} [{bar:24}] {pos}/{len} {wide_msg} {elapsed}";
            self.0.set_style(
                ProgressStyle::with_template(template)
                    .expect("the template is a constant")
                    .progress_chars("=> "),
            );
            self.0.set_length(total);
        }
    }

    /// Changes the text.
    pub fn text(&self, text: &str) {
        self.0.set_message(text.to_owned());
    }

    /// Sets how far it is.
    pub fn at(&self, done: u64) {
        self.0.set_position(done);
    }

    /// One step further.
    pub fn step(&self, steps: u64) {
        self.0.inc(steps);
    }

    /// Runs something that prints, with the progress out of the way.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }

    /// Takes it off the screen.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
