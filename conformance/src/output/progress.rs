//! A progress bar on standard error, where that is a terminal; else nothing.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar, or nothing where it would not be visible.
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A bar over bytes. `wanted`: `false` for ranks other than the one that draws, and for `--json`.
    pub fn bytes(wanted: bool, total: u64, what: &str) -> Progress {
        let template = "{msg:18} [{bar:32}] {bytes}/{total_bytes} {decimal_bytes_per_sec} {eta}";
        Progress::new(wanted, total, what, template)
    }

    /// A bar over named steps.
    pub fn steps(wanted: bool, total: u64, what: &str) -> Progress {
        Progress::new(wanted, total, what, "[{bar:32}] {pos}/{len} {msg}")
    }

    fn new(wanted: bool, total: u64, what: &str, template: &str) -> Progress {
        if !wanted || !std::io::stderr().is_terminal() {
            return Progress { bar: None };
        }
        let bar = ProgressBar::new(total);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_owned());
        Progress { bar: Some(bar) }
    }

    /// There is more to be done than expected.
    pub fn set_total(&self, total: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(total);
        }
    }

    /// So much is done.
    pub fn set(&self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }

    /// The current step.
    pub fn set_status(&self, what: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            bar.set_message(what());
        }
    }

    /// Takes the bar away.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
