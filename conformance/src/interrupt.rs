//! The end by SIGINT, SIGTERM or SIGHUP: reports it, leaves no temporary file behind, and ends with 128 and
//! the signal's number.
//!
//! Commands that launch ranks don't come here: their launcher takes the signals, and ends the ranks first.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rerail_linux::bootstrap::server::Signals;

use crate::exit::{Exit, interrupted};

/// Files that must not outlive this process.
static TEMPORARY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn temporary() -> MutexGuard<'static, Vec<PathBuf>> {
    TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for signals in a thread of its own. To be called before other threads are started, which would take
/// them.
pub fn watch() {
    // Where the system gives no descriptor, signals do what they do by default.
    let Ok(signals) = Signals::catch() else { return };
    let waiting = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let Ok(signal) = signals.wait() else { return };
        let files = temporary();
        for file in &*files {
            let _ = std::fs::remove_file(file);
        }
        // Behind "^C", and what is left of a progress bar.
        let line = if std::io::stderr().is_terminal() { "\n" } else { "" };
        eprintln!("{line}rerail: {}", interrupted(signal));
        // `files` stays locked until the end: no file is made behind our back.
        std::process::exit(Exit::by_signal(signal).code().into());
    });
    // Without the thread the mask would keep the signals for ever; dropped with the closure, it is as it was.
    drop(waiting);
}

/// Makes a file that is removed if a signal ends this process before [`done_with`]. No signal ends it
/// while `make` runs.
///
/// # Errors
/// Those of `make`.
pub fn make<T, E>(file: &Path, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let mut files = temporary();
    let made = make()?;
    files.push(file.to_owned());
    Ok(made)
}

/// The file is removed or has its name.
pub fn done_with(file: &Path) {
    temporary().retain(|known| known != file);
}
