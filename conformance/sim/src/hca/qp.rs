//! A queue pair's insides: its two queues, and the state of its requester and its responder.
//!
//! Packet sequence numbers are 64 bits wide inside, so that they compare; on the wire they have 24 bits, and
//! [`widen`] finds the number meant.

use std::collections::VecDeque;

use rerail_core::time::Time;
use rerail_verbs::contract::{QpCaps, QpChange, QpInfo, QpKind, QpState, SendOp, Sge, Status};

use super::body::{Nak, RequestOp};
use super::object::RecvWork;

#[derive(Debug)]
pub(super) struct Qp {
    pub number: u32,
    pub kind: QpKind,
    pub state: QpState,
    /// Counts resets: what was on its way in an earlier life does not count any more.
    pub life: u32,
    pub pd: Option<u32>,
    pub send_cq: Option<u32>,
    pub recv_cq: Option<u32>,
    pub srq: Option<u32>,
    /// XRC targets: the domain itself.
    pub domain: Option<u32>,
    pub caps: QpCaps,
    pub signal_all: bool,
    /// As last set.
    pub attributes: QpChange,
    /// The names that processes have for it.
    pub names: Vec<u32>,
    /// It stands in the service ring of its port.
    pub in_ring: bool,
    /// The last packet was an answer: requests and answers take turns.
    pub answered_last: bool,
    pub requester: Requester,
    pub responder: Responder,
    /// When the earliest alarm in the heap goes off.
    pub alarm: Option<Time>,
    /// Completions and requests that faults make go wrong.
    pub faults: QpFaults,
}

#[derive(Debug, Default)]
pub(super) struct QpFaults {
    /// Work requests to lose without a trace: (identifier or any, how many).
    pub swallow: Vec<(Option<u64>, u32)>,
    /// Completions to lose: the request is carried out.
    pub lose_completion: Vec<(Option<u64>, u32)>,
    /// The next request fails at once.
    pub fail_next: Option<Status>,
    /// Acknowledgments that it sends and that are lost.
    pub lose_acks: u32,
}

/// The send queue, and where its packets are.
#[derive(Debug, Default)]
pub(super) struct Requester {
    /// Requests that are not complete, oldest first.
    pub queue: VecDeque<SendWork>,
    /// Position of the oldest; positions count all requests of this life.
    pub base: u64,
    /// Requests before this position are free places again: the completion of one at or behind them was
    /// polled.
    pub freed: u64,
    /// The next packet to go: position of its request, packet within it.
    pub next: (u64, u32),
    /// Requests from this position on were never begun.
    pub begun: u64,
    /// The PSN of the next request to begin.
    pub next_psn: u64,
    /// All packets before this PSN are acknowledged (reads and atomics need their answers beside that).
    pub acked: u64,
    /// Retries left, of the two kinds.
    pub retries_left: u8,
    pub rnr_left: u8,
    /// Nothing is sent before this time: the peer had no receive.
    pub rnr_until: Option<Time>,
    /// When the processor has posted the next request, or carried its next packet over, where that is waited
    /// for.
    pub doorbell: Option<Time>,
    /// When to send again; `None`: nothing is waited for.
    pub deadline: Option<Time>,
    /// The request that is to fail once those before it are complete.
    pub failing: Option<(u64, Status)>,
    /// The request that the peer has refused, while answers to those before it are on their way.
    pub refused: Option<(u64, Status)>,
    /// Going to [`QpState::Sqd`] is not over.
    pub draining: bool,
    /// No notification of it is due any more.
    pub drain_reported: bool,
    /// Where an answer was missing when it was last requested again of the peer: request once.
    pub gap: Option<(u64, u32)>,
}

/// A posted send.
#[derive(Debug)]
pub(super) struct SendWork {
    pub id: u64,
    pub op: SendOp,
    pub sges: Vec<Sge>,
    /// Inline data, copied while posting.
    pub inline: Option<Vec<u8>>,
    pub signaled: bool,
    pub solicited: bool,
    pub fence: bool,
    /// Of the whole message.
    pub bytes: u32,
    /// UD: port, address and destination, as they were when posted.
    pub datagram: Option<SendDatagram>,
    pub srq_number: Option<u32>,
    /// First PSN, and packets (of a read: answers), once it was begun.
    pub first_psn: u64,
    pub packets: u32,
    /// Reads, atomics: answers that have arrived and that are in memory.
    pub answered: u32,
    pub landed: u32,
    /// Swallowed by a fault.
    pub swallowed: bool,
    /// The processor has carried it over: the HCA does not read it from memory.
    pub by_pio: bool,
    /// When the processor begins to post it, in picoseconds; what of it the HCA has when depends on what that
    /// costs.
    pub posted_ps: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SendDatagram {
    pub address: rerail_verbs::contract::AddressVector,
    pub qp: u32,
    pub qkey: u32,
}

impl SendWork {
    /// Whether it waits for answers and not only for an acknowledgment.
    pub fn is_read(&self) -> bool {
        matches!(self.op, SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
    }

    /// The PSN after its last.
    pub fn end_psn(&self) -> u64 {
        self.first_psn + u64::from(self.packets)
    }
}

impl Requester {
    /// The request at a position.
    pub fn at(&self, position: u64) -> Option<&SendWork> {
        self.queue.get(position.checked_sub(self.base)? as usize)
    }

    /// The request at a position.
    pub fn at_mut(&mut self, position: u64) -> Option<&mut SendWork> {
        self.queue.get_mut(position.checked_sub(self.base)? as usize)
    }

    /// The packet of this PSN: position of its request, packet within it. One that was begun and is not over.
    pub fn packet_of(&self, psn: u64) -> Option<(u64, u32)> {
        let mut begun = (self.base..self.begun).filter_map(|position| Some((position, self.at(position)?)));
        let (position, work) = begun.find(|(_, work)| (work.first_psn..work.end_psn()).contains(&psn))?;
        Some((position, (psn - work.first_psn) as u32))
    }

    /// The position after the last request.
    pub fn end(&self) -> u64 {
        self.base + self.queue.len() as u64
    }

    /// Whether everything that this request waits for from the peer has come.
    pub fn is_answered(&self, position: u64) -> bool {
        self.at(position).is_some_and(|work| {
            position < self.begun
                && (work.swallowed
                    || if work.is_read() { work.answered == work.packets } else { self.acked >= work.end_psn() })
        })
    }

    /// The oldest packet that has to be requested of the peer again: position, packet within the request.
    pub fn oldest_open(&self) -> Option<(u64, u32)> {
        for position in self.base..self.begun {
            let work = self.at(position)?;
            if self.is_answered(position) {
                continue;
            }
            if work.is_read() {
                return Some((position, work.answered));
            }
            return Some((position, self.acked.saturating_sub(work.first_psn) as u32));
        }
        None
    }

    /// Reads and atomics that were begun and not answered, at positions before `before`.
    pub fn reads_open(&self, before: u64) -> u32 {
        let begun = (self.base..self.begun.min(before)).filter_map(|position| self.at(position));
        begun.filter(|work| work.is_read() && !work.swallowed && work.answered < work.packets).count() as u32
    }
}

/// What comes from the peer.
#[derive(Debug, Default)]
pub(super) struct Responder {
    /// The receives of its own queue.
    pub queue: VecDeque<RecvWork>,
    /// Receives posted whose completion was not polled.
    pub held: u32,
    /// The PSN that must come next.
    pub expected: u64,
    /// A request to go back, or to wait, was sent to the peer: it is sent once.
    pub reported: bool,
    /// A first packet has come in [`QpState::Rtr`].
    pub established: bool,
    /// A message whose last packet has not come.
    pub message: Option<Message>,
    /// Receives whose message has arrived and is not in memory yet, oldest first.
    pub arrived: VecDeque<Arrived>,
    /// Answers that wait their turn.
    pub replies: VecDeque<Reply>,
    /// The last reads and atomics, for when they are requested again.
    pub served: VecDeque<Served>,
    /// Writes into memory that were requested, and that are done: a read waits for those before it.
    pub requests: u64,
    pub landed: u64,
    /// The receives are to be flushed once what has arrived is in memory.
    pub flushing: bool,
}

/// A message between its first packet and its last.
#[derive(Debug)]
pub(super) struct Message {
    /// Bytes that have come.
    pub got: u32,
    pub kind: MessageKind,
}

#[derive(Debug)]
pub(super) enum MessageKind {
    Send { work: RecvWork },
    Write { mr: u32, address: u64, bytes: u32 },
}

/// A receive whose completion waits for memory.
#[derive(Debug)]
pub(super) struct Arrived {
    pub work: RecvWork,
    pub completion: rerail_verbs::contract::Completion,
    pub solicited: bool,
    /// Writes into memory that come before it ([`Responder::landed`]).
    pub after: u64,
}

/// An answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    Ack {
        psn: u64,
    },
    Nak {
        psn: u64,
        nak: Nak,
    },
    Rnr {
        psn: u64,
    },
    /// Packets of what was read, beginning with `psn`; not before writes up to `after` are in memory.
    Read {
        psn: u64,
        mr: u32,
        address: u64,
        bytes: u32,
        after: u64,
    },
    Atomic {
        psn: u64,
        mr: u32,
        op: RequestOp,
        after: u64,
    },
    /// An atomic that was done before.
    Replay {
        psn: u64,
        before: u64,
    },
}

/// A read or an atomic that was served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    pub psn: u64,
    /// Packets of its answer.
    pub packets: u32,
    /// Of an atomic: the value before, once it was done.
    pub atomic: Option<Option<u64>>,
}

impl Message {
    /// The receive that it is filling.
    pub fn into_receive(self) -> Option<RecvWork> {
        match self.kind {
            MessageKind::Send { work } => Some(work),
            MessageKind::Write { .. } => None,
        }
    }
}

impl Qp {
    /// As [`query_qp`](rerail_verbs::contract::Device::query_qp) reports it.
    pub fn info(&self) -> QpInfo {
        QpInfo {
            kind: self.kind,
            state: self.state,
            caps: self.caps,
            attributes: QpChange { state: None, current: None, drain_notify: None, ..self.attributes },
            draining: self.requester.draining,
        }
    }

    /// Payload of one packet.
    pub fn mtu(&self) -> u32 {
        u32::from(self.attributes.path_mtu.unwrap_or(256))
    }

    /// Whether packets for it are taken.
    pub fn receives(&self) -> bool {
        matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }
}

/// Packets of so many bytes: an empty message is one packet.
pub(super) const fn packets(bytes: u32, mtu: u32) -> u32 {
    if bytes == 0 { 1 } else { bytes.div_ceil(mtu) }
}

/// Bits of a PSN on the wire.
pub(super) const PSN_BITS: u32 = 24;
/// The PSN's bits.
pub(super) const PSN_MASK: u64 = (1 << PSN_BITS) - 1;

/// A first PSN as it is counted inside: with room below, for what comes late.
pub(super) const fn first_psn(psn: u32) -> u64 {
    (1 << PSN_BITS) + psn as u64
}

/// The number closest to `near` that ends in these 24 bits; of two as near, the smaller.
pub(super) const fn widen(near: u64, psn: u32) -> u64 {
    let ahead = (psn as u64).wrapping_sub(near) & PSN_MASK;
    if ahead < 1 << (PSN_BITS - 1) || near < (1 << PSN_BITS) { near + ahead } else { near + ahead - (1 << PSN_BITS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_widen_around_the_expected_one() {
        let near = first_psn(0xff_fffe);
        assert_eq!(widen(near, 0xff_fffe), near);
        assert_eq!(widen(near, 0), near + 2);
        assert_eq!(widen(near + 3, 0xff_fffd), near - 1);
        assert_eq!(widen(near, ((near + (1 << 23) - 1) & PSN_MASK) as u32), near + (1 << 23) - 1);
        assert_eq!(widen(near, ((near + (1 << 23)) & PSN_MASK) as u32), near - (1 << 23));
    }

    #[test]
    fn an_empty_message_is_a_packet() {
        assert_eq!([0, 1, 256, 257, 512].map(|bytes| packets(bytes, 256)), [1, 1, 1, 2, 2]);
    }
}
