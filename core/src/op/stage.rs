//! The state of an operation: its kind, which never changes, and its phase, which changes only as [`ROUTES`]
//! allows. `stage.table` is the whole table.
//!
//! Only [`Stage::enter`] changes a phase. No input can cause an illegal change: arrivals first look for an
//! operation of a certain kind and phase. So an illegal one is our bug: debug builds panic; other builds
//! refuse it, and the phase stays. The operation may then never complete by itself, but its memory is not
//! released early, and it ends with its peer.

/// The kind of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum OpKind {
    /// Free slot.
    #[default]
    None,
    /// A message to a peer.
    Send,
    /// A buffer for one message.
    Recv,
    /// A buffer for many messages.
    MultiRecv,
    /// One message in a multi-receive buffer.
    Part,
    /// One-sided.
    Put,
    Get,
    Atomic,
    Flush,
    /// Answers a peer's get.
    ServeGet,
    /// Answers a peer's atomic.
    ServeAtomic,
    /// Reports a peer's put with immediate data, and answers it.
    ServePut,
    /// Answers a peer's get or atomic, or put with immediate data, with a refusal.
    ServeRefusal,
    /// Answers a peer's put with a refusal.
    RefusePut,
}

/// The progress of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Queued, nothing sent.
    #[default]
    Queued,
    /// Receive: posted in the matcher.
    Posted,
    /// Multi-receive: takes no more messages, and is released with the last one that it has.
    Closing,
    /// Receive: the message is in blocks (or on its way there) and will be copied.
    Copying,
    /// Memory is being registered with `registering` rails.
    Registering,
    /// Send: one eager packet was sent.
    EagerSent,
    /// Send: RTS sent, waits for CTS or FIN. Request: sent, waits for the answer.
    Waiting,
    /// Data flows as packets: out (send, put, serve) or in (receive, get).
    Data,
    /// Data flows by remote writes from here.
    Writing,
    /// Data flows by remote writes from the peer, until all FINs have arrived.
    Written,
    /// Data flows by remote reads from here.
    Reading,
}

const KINDS: usize = OpKind::RefusePut as usize + 1;
const PHASES: usize = Phase::Reading as usize + 1;

/// The phases that may follow a phase of a kind. A kind begins with its first line; it never reaches a phase
/// without a line.
const ROUTES: &[(OpKind, Phase, &[Phase])] = {
    use Phase::{Closing, Copying, Data, EagerSent, Posted, Queued, Reading, Registering, Waiting, Writing, Written};
    &[
        (OpKind::None, Queued, &[]),
        (OpKind::Send, Queued, &[Registering, EagerSent, Waiting]),
        (OpKind::Send, Registering, &[Queued]),
        (OpKind::Send, EagerSent, &[]),
        (OpKind::Send, Waiting, &[Data, Writing]),
        (OpKind::Send, Writing, &[Data]),
        (OpKind::Send, Data, &[]),
        (OpKind::Recv, Queued, &[Posted, Copying, Registering, Data, Reading]),
        (OpKind::Recv, Posted, &[Copying, Registering, Data, Reading]),
        (OpKind::Recv, Copying, &[Data]),
        (OpKind::Recv, Registering, &[Data, Written]),
        (OpKind::Recv, Written, &[Registering, Data]),
        (OpKind::Recv, Reading, &[Registering, Data]),
        (OpKind::Recv, Data, &[]),
        (OpKind::MultiRecv, Queued, &[Posted]),
        (OpKind::MultiRecv, Posted, &[Closing]),
        (OpKind::MultiRecv, Closing, &[]),
        (OpKind::Part, Queued, &[Copying, Registering, Data, Reading]),
        (OpKind::Part, Copying, &[Data]),
        (OpKind::Part, Registering, &[Data, Written]),
        (OpKind::Part, Written, &[Registering, Data]),
        (OpKind::Part, Reading, &[Registering, Data]),
        (OpKind::Part, Data, &[]),
        (OpKind::Put, Data, &[Queued]),
        (OpKind::Put, Queued, &[Waiting]),
        (OpKind::Put, Waiting, &[]),
        (OpKind::Get, Queued, &[Waiting]),
        (OpKind::Get, Waiting, &[]),
        (OpKind::Atomic, Queued, &[Waiting]),
        (OpKind::Atomic, Waiting, &[]),
        (OpKind::Flush, Queued, &[]),
        (OpKind::ServeGet, Data, &[]),
        (OpKind::ServeAtomic, Queued, &[Waiting]),
        (OpKind::ServeAtomic, Waiting, &[]),
        (OpKind::ServePut, Data, &[Waiting]),
        (OpKind::ServePut, Waiting, &[]),
        (OpKind::ServeRefusal, Queued, &[]),
        (OpKind::RefusePut, Queued, &[]),
    ]
};

/// [`ROUTES`] by kind and phase: bit per phase that may follow.
static NEXT: [[u16; PHASES]; KINDS] = {
    let mut next = [[0; PHASES]; KINDS];
    let mut line = 0;
    while line < ROUTES.len() {
        let (kind, phase, after) = ROUTES[line];
        let mut i = 0;
        while i < after.len() {
            next[kind as usize][phase as usize] |= 1 << after[i] as u16;
            i += 1;
        }
        line += 1;
    }
    next
};

/// The first phase of each kind.
static FIRST: [Phase; KINDS] = {
    let mut first = [Phase::Queued; KINDS];
    let mut line = ROUTES.len();
    while line > 0 {
        line -= 1;
        first[ROUTES[line].0 as usize] = ROUTES[line].1;
    }
    first
};

/// An operation's kind and phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stage {
    kind: OpKind,
    phase: Phase,
}

impl Stage {
    /// The beginning of an operation of a kind.
    pub(crate) const fn first(kind: OpKind) -> Stage {
        Stage { kind, phase: FIRST[kind as usize] }
    }

    pub(crate) const fn kind(self) -> OpKind {
        self.kind
    }

    pub(crate) const fn phase(self) -> Phase {
        self.phase
    }

    /// Whether [`ROUTES`] allows a transition to another phase.
    const fn may_enter(self, to: Phase) -> bool {
        NEXT[self.kind as usize][self.phase as usize] >> to as u16 & 1 == 1
    }

    /// Enters another phase. Debug builds panic where [`ROUTES`] forbids it; others refuse it.
    #[inline]
    pub(crate) fn enter(&mut self, to: Phase) {
        let is_legal = self.may_enter(to);
        debug_assert!(is_legal, "{:?} goes from {:?} to {to:?}", self.kind, self.phase);
        if is_legal {
            self.phase = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fmt::Write;
    use std::format;
    use std::string::String;
    use std::vec::Vec;

    const EVERY_KIND: [OpKind; KINDS] = [
        OpKind::None,
        OpKind::Send,
        OpKind::Recv,
        OpKind::MultiRecv,
        OpKind::Part,
        OpKind::Put,
        OpKind::Get,
        OpKind::Atomic,
        OpKind::Flush,
        OpKind::ServeGet,
        OpKind::ServeAtomic,
        OpKind::ServePut,
        OpKind::ServeRefusal,
        OpKind::RefusePut,
    ];

    const EVERY_PHASE: [Phase; PHASES] = [
        Phase::Queued,
        Phase::Posted,
        Phase::Closing,
        Phase::Copying,
        Phase::Registering,
        Phase::EagerSent,
        Phase::Waiting,
        Phase::Data,
        Phase::Writing,
        Phase::Written,
        Phase::Reading,
    ];

    /// `enter` obeys the whole table: phases that a kind can reach, and the successors of each.
    #[test]
    fn the_table() {
        let mut table = String::new();
        for kind in EVERY_KIND {
            let mut reached = Vec::from([Stage::first(kind).phase()]);
            let mut at = 0;
            while at < reached.len() {
                let phase = reached[at];
                let stage = Stage { kind, phase };
                let after: Vec<Phase> = EVERY_PHASE.into_iter().filter(|&to| stage.may_enter(to)).collect();
                let names: Vec<String> = after.iter().map(|to| format!("{to:?}")).collect();
                let line = format!("{:<13}{:<13}{}", format!("{kind:?}"), format!("{phase:?}"), names.join(" "));
                let _ = writeln!(table, "{}", line.trim_end());
                for to in after {
                    if !reached.contains(&to) {
                        reached.push(to);
                    }
                }
                at += 1;
            }
        }
        assert_eq!(table, include_str!("stage.table"), "\n{table}");
    }

    /// One line for each phase that a kind can reach, and no other line.
    #[test]
    fn no_line_is_dead_or_double() {
        let lines = include_str!("stage.table").lines().count();
        assert_eq!(ROUTES.len(), lines);
        let written: BTreeSet<(u8, u8)> = ROUTES.iter().map(|&(kind, phase, _)| (kind as u8, phase as u8)).collect();
        assert_eq!(written.len(), lines);
    }

    /// Transitions missing from the table are refused, with a panic where assertions are on.
    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "Recv goes from Queued to Waiting"))]
    fn an_illegal_change_is_refused() {
        let mut stage = Stage::first(OpKind::Recv);
        stage.enter(Phase::Posted);
        assert_eq!(stage.phase(), Phase::Posted);
        let mut stage = Stage::first(OpKind::Recv);
        stage.enter(Phase::Waiting);
        assert_eq!(stage, Stage::first(OpKind::Recv));
    }
}
