//! The objects of an HCA beside queue pairs. Each belongs to the process (the open device) that made it; XRC
//! domains are shared by name.

use std::collections::{BTreeSet, VecDeque};

use rerail_verbs::Moderation;
use rerail_verbs::contract::{Access, AddressVector, AsyncEvent, Completion, CqId, Sge};

use super::dma::Memory;

/// An open device: what one process has of an HCA.
#[derive(Debug)]
pub(super) struct Context {
    /// The process that is woken when something becomes visible.
    pub owner: u32,
    /// The device broke while this was open: nothing works any more.
    pub gone: bool,
    pub events: VecDeque<AsyncEvent>,
    pub cq_events: VecDeque<CqId>,
}

#[derive(Debug)]
pub(super) struct Pd {
    pub context: u32,
    /// Registrations, queues and handles that use it.
    pub users: u32,
}

#[derive(Debug)]
pub(super) struct MrEntry {
    pub context: u32,
    pub pd: u32,
    pub lkey: u32,
    pub access: Access,
    /// Bytes that it pins.
    pub pins: u64,
    pub memory: Memory,
}

#[derive(Debug)]
pub(super) struct Cq {
    pub context: u32,
    pub depth: u32,
    /// Queues that complete into it.
    pub users: u32,
    pub entries: VecDeque<Cqe>,
    pub notify: Notify,
    pub moderation: Moderation,
    /// Completions that a deferred event is to report.
    pub notices_due: u16,
    /// The number of this deferral: the alarm of an earlier one has no effect.
    pub round: u32,
    /// It was full when one more came.
    pub broken: bool,
}

/// Whether an event is to report the next completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notify {
    Off,
    Solicited,
    Any,
}

/// A completion in its queue, and the place in a work queue that is free once it was polled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cqe {
    pub completion: Completion,
    pub solicited: bool,
    pub qp: u32,
    pub life: u32,
    pub frees: Frees,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frees {
    /// All sends before this position.
    Sends(u64),
    Recv,
    SharedRecv {
        srq: u32,
    },
}

#[derive(Debug)]
pub(super) struct SharedQueue {
    pub context: u32,
    pub pd: u32,
    pub depth: u32,
    pub sges: u32,
    pub queue: VecDeque<RecvWork>,
    /// Receives that messages have taken from it.
    pub taken: u64,
    /// Requests posted whose completion was not polled.
    pub held: u32,
    /// 0: disarmed.
    pub limit: u32,
    /// Queue pairs that take from it by being made with it.
    pub users: u32,
    pub xrc: Option<XrcQueue>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct XrcQueue {
    /// The domain itself, not a process's name for it.
    pub domain: u32,
    pub domain_name: u32,
    pub cq: u32,
    pub number: u32,
}

/// A posted receive.
#[derive(Debug)]
pub(super) struct RecvWork {
    pub id: u64,
    pub sges: Vec<Sge>,
    /// The shared queue that it comes from.
    pub srq: Option<u32>,
}

impl RecvWork {
    /// Bytes that it takes.
    pub fn capacity(&self) -> u64 {
        self.sges.iter().map(|sge| u64::from(sge.len())).sum()
    }
}

#[derive(Debug)]
pub(super) struct Handle {
    pub context: u32,
    pub pd: u32,
    pub address: AddressVector,
}

/// A process's name for an XRC domain.
#[derive(Debug)]
pub(super) struct DomainName {
    pub context: u32,
    pub domain: u32,
    /// Queues and queue pairs of this process that use it.
    pub users: u32,
}

/// An XRC domain: lives as long as some process has a name for it.
#[derive(Debug)]
pub(super) struct Domain {
    /// The file that it is found by; a simulated host takes the descriptor's number for the file.
    pub file: Option<i32>,
    pub names: u32,
    /// Its shared receive queues.
    pub queues: BTreeSet<u32>,
}

/// A process's name for a queue pair: one, but for XRC targets that several processes have open.
#[derive(Debug)]
pub(super) struct QpName {
    pub context: u32,
    pub qp: u32,
    /// XRC targets: the process's name of the domain.
    pub domain_name: Option<u32>,
}

/// The pieces of memory behind `skip` bytes of a list, for `len` bytes; fewer where the list is shorter.
pub(super) fn cut(sges: &[Sge], skip: u64, len: u64) -> Vec<Sge> {
    let (mut skip, mut len, mut out) = (skip, len, Vec::with_capacity(1));
    for sge in sges {
        if len == 0 {
            break;
        }
        let here = u64::from(sge.len());
        if skip >= here {
            skip -= here;
            continue;
        }
        let take = len.min(here - skip);
        out.push(sge.part(skip as u32, take as u32));
        (skip, len) = (0, len - take);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sge_list_is_sliced_by_offset_and_length() {
        // SAFETY: no device is given them.
        let sge = |address, len| unsafe { Sge::new(address, len, 1) };
        let list = [sge(100, 10), sge(0, 0), sge(200, 5), sge(300, 20)];
        assert_eq!(cut(&list, 0, 10), [sge(100, 10)]);
        assert_eq!(cut(&list, 8, 10), [sge(108, 2), sge(200, 5), sge(300, 3)]);
        assert_eq!(cut(&list, 15, 1), [sge(300, 1)]);
        assert_eq!(cut(&list, 30, 100), [sge(315, 5)]);
        assert_eq!(cut(&list, 0, 0), []);
    }
}
