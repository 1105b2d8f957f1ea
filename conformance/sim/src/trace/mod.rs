//! What happened, as lines: time in nanoseconds, origin, event. Nothing in a line depends on addresses, hash
//! orders or the machine, so that equal seeds give equal traces to the byte.

mod message;
mod tap;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use rerail_core::time::Time;

use crate::cover::{Coverage, Observer, Path};

pub use message::message_history;
pub use tap::Tap;

/// The origin of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The simulation itself: faults, phases.
    Cluster,
    /// A rank's process.
    Rank(u32),
    /// A port of the fabric.
    Port(u32),
    /// A device.
    Device(u32),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Cluster => f.write_str("world"),
            Subject::Rank(rank) => write!(f, "rank {rank}"),
            Subject::Port(port) => write!(f, "port {port}"),
            Subject::Device(device) => write!(f, "hca {device}"),
        }
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When.
    pub at: Time,
    /// The origin.
    pub subject: Subject,
    /// What.
    pub what: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>14} {:<9} {}", self.at.0, self.subject, self.what)
    }
}

/// A trace that all parts of a simulation write to. Off, it costs a branch.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    lines: Option<Rc<RefCell<Vec<Line>>>>,
    observer: Option<Rc<RefCell<Observer>>>,
}

impl Trace {
    /// One that keeps nothing.
    pub fn off() -> Self {
        Trace::default()
    }

    /// One that keeps every line.
    pub fn on() -> Self {
        Trace { lines: Some(Rc::default()), observer: None }
    }

    /// One that keeps no line, and watches which rare paths are taken.
    pub fn watching() -> Self {
        Trace { lines: None, observer: Some(Rc::default()) }
    }

    /// The observer of the paths that are taken, where there is one.
    pub(crate) fn observer(&self) -> Option<Rc<RefCell<Observer>>> {
        self.observer.clone()
    }

    /// A rare path was taken.
    pub(crate) fn took(&self, path: Path) {
        if let Some(observer) = &self.observer {
            observer.borrow_mut().note(path);
        }
    }

    /// Which paths were taken, where there is an observer.
    pub fn coverage(&self) -> Coverage {
        self.observer.as_ref().map(|observer| observer.borrow().coverage()).unwrap_or_default()
    }

    /// Whether lines are kept: check before making an expensive one.
    pub fn is_on(&self) -> bool {
        self.lines.is_some()
    }

    /// Writes a line: `trace.note(now, subject, format_args!(..))`.
    pub fn note(&self, at: Time, subject: Subject, what: fmt::Arguments<'_>) {
        if let Some(lines) = &self.lines {
            lines.borrow_mut().push(Line { at, subject, what: what.to_string() });
        }
    }

    /// All lines so far; they are gone from the trace.
    pub fn take(&self) -> Vec<Line> {
        self.lines.as_ref().map(|lines| lines.take()).unwrap_or_default()
    }
}
