//! The protocol of a gate (L-23) in all orders of its steps: a reader takes a claim back while the owner's
//! system call is at any of its steps, is stopped before it, or comes late. The steps are those of the
//! kernel: it looks a range up, writes it, and comes to the next one.

use std::collections::BTreeSet;

/// Units of the claim.
const UNITS: u8 = 2;

/// Where the owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Writer {
    /// Outside of the kernel, where it may be stopped for any time.
    Outside,
    /// The first word's page was found writable.
    Resolved,
    /// The first word is written.
    Started,
    /// The second word is written: it writes the target, so many units of it so far.
    Writing(u8),
    /// The third word is written, or the call was refused; it is outside of the kernel again.
    Over,
}

/// Where the reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reader {
    Waiting,
    /// The page is read-only.
    Closed,
    /// It has looked: no write is in progress or can begin.
    TakenBack,
}

/// What a reader looks at when it has closed the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// Whether a first word has no third one; then it waits, unless the owner is outside of the kernel.
    Started,
    /// Only whether the target was written.
    Finished,
    /// As the first, for a gate whose first word is in the same range as the target.
    OneRange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    writer: Writer,
    reader: Reader,
    /// The gate's words.
    started: bool,
    finished: bool,
    /// A unit was written after the reader had taken the claim back.
    is_written_late: bool,
}

/// All states that follow.
fn steps(state: State, check: Check) -> Vec<State> {
    let mut next = Vec::new();
    let is_open = state.reader == Reader::Waiting;
    match state.writer {
        Writer::Outside => {
            next.push(State { writer: if is_open { Writer::Resolved } else { Writer::Over }, ..state });
        }
        // The look-up may be older than the change.
        Writer::Resolved if check == Check::OneRange => {
            next.push(State { writer: Writer::Writing(0), started: true, ..state });
        }
        Writer::Resolved => next.push(State { writer: Writer::Started, started: true, ..state }),
        Writer::Started => {
            next.push(State { writer: if is_open { Writer::Writing(0) } else { Writer::Over }, ..state });
        }
        Writer::Writing(UNITS) if is_open => next.push(State { writer: Writer::Over, finished: true, ..state }),
        // The third word is refused: all is written, and the gate does not show it.
        Writer::Writing(UNITS) => next.push(State { writer: Writer::Over, ..state }),
        Writer::Writing(units) => {
            let is_written_late = state.is_written_late || state.reader == Reader::TakenBack;
            next.push(State { writer: Writer::Writing(units + 1), is_written_late, ..state });
        }
        Writer::Over => {}
    }
    match state.reader {
        Reader::Waiting => next.push(State { reader: Reader::Closed, ..state }),
        Reader::Closed => {
            let is_passed = state.started && !state.finished;
            // As it finds of a process that is stopped, has ended or has left.
            let is_outside = matches!(state.writer, Writer::Outside | Writer::Over);
            if check == Check::Finished || !is_passed || is_outside {
                next.push(State { reader: Reader::TakenBack, ..state });
            }
        }
        Reader::TakenBack => {}
    }
    next
}

/// Every state that can be reached.
fn reach(check: Check) -> BTreeSet<State> {
    let (writer, reader) = (Writer::Outside, Reader::Waiting);
    let first = State { writer, reader, started: false, finished: false, is_written_late: false };
    let (mut seen, mut left) = (BTreeSet::from([first]), vec![first]);
    while let Some(state) = left.pop() {
        left.extend(steps(state, check).into_iter().filter(|next| seen.insert(*next)));
    }
    seen
}

/// L-23: once a claim is taken back its owner writes nothing of it any more; and it can always be taken back.
#[test]
fn no_unit_is_written_once_its_claim_is_taken_back() {
    let states = reach(Check::Started);
    assert!(states.iter().all(|state| !state.is_written_late), "{states:?}");
    assert!(states.len() > 20);
    let ends = |state: &&State| steps(**state, Check::Started).is_empty();
    assert!(states.iter().filter(ends).all(|state| state.reader == Reader::TakenBack), "a reader waits for ever");
    // In each order: before the call, in the middle of it, after it.
    for writer in [Writer::Outside, Writer::Resolved, Writer::Started, Writer::Over] {
        assert!(states.iter().any(|state| state.reader == Reader::TakenBack && state.writer == writer), "{writer:?}");
    }
}

/// That the model can fail: the end of the write alone proves nothing, and neither does one range.
#[test]
fn gate_check_without_all_three_words_misses_a_late_write() {
    for check in [Check::Finished, Check::OneRange] {
        assert!(reach(check).iter().any(|state| state.is_written_late), "{check:?}");
    }
}
