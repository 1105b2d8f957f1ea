//! Short names for work requests, and posting.

use rerail_verbs::contract::{AhId, Datagram, Payload, PostError, RecvWr, Remote, SendOp, SendWr, Sge, SrqId};

use super::queue::{QKEY, Queue};
use super::{Bed, Region};
use crate::failure::Check;
use crate::testbed::End;

/// A send, signaled.
pub(crate) fn send(id: u64, from: &[Sge]) -> SendWr<'_> {
    SendWr::new(id, SendOp::Send { immediate: None }, Payload::Memory(from))
}

/// A send with 32 bits for the peer's completion.
pub(crate) fn send_imm(id: u64, from: &[Sge], immediate: u32) -> SendWr<'_> {
    SendWr::new(id, SendOp::Send { immediate: Some(immediate) }, Payload::Memory(from))
}

/// A write.
pub(crate) fn write(id: u64, from: &[Sge], to: Remote) -> SendWr<'_> {
    SendWr::new(id, SendOp::Write { to, immediate: None }, Payload::Memory(from))
}

/// A write that the peer learns of.
pub(crate) fn write_imm(id: u64, from: &[Sge], to: Remote, immediate: u32) -> SendWr<'_> {
    SendWr::new(id, SendOp::Write { to, immediate: Some(immediate) }, Payload::Memory(from))
}

/// A read.
pub(crate) fn read(id: u64, into: &[Sge], from: Remote) -> SendWr<'_> {
    SendWr::new(id, SendOp::Read { from }, Payload::Memory(into))
}

/// A fetch-and-add.
pub(crate) fn fetch_add(id: u64, old: &[Sge], at: Remote, add: u64) -> SendWr<'_> {
    SendWr::new(id, SendOp::FetchAdd { at, add }, Payload::Memory(old))
}

/// A compare-and-swap.
pub(crate) fn compare_swap(id: u64, old: &[Sge], at: Remote, compare: u64, swap: u64) -> SendWr<'_> {
    SendWr::new(id, SendOp::CompareSwap { at, compare, swap }, Payload::Memory(old))
}

/// A send of bytes that are copied while posting.
pub(crate) fn send_inline<'a>(id: u64, pieces: &'a [&'a [u8]]) -> SendWr<'a> {
    SendWr::new(id, SendOp::Send { immediate: None }, Payload::Inline(pieces))
}

/// A datagram.
pub(crate) fn datagram(id: u64, from: &[Sge], handle: AhId, to: Queue) -> SendWr<'_> {
    SendWr { datagram: Some(Datagram { handle, qp: to.number, qkey: QKEY }), ..send(id, from) }
}

/// The same, without a completion of its success.
pub(crate) fn unsignaled(request: SendWr<'_>) -> SendWr<'_> {
    SendWr { signaled: false, ..request }
}

/// The same, for a shared receive queue with this number (XRC).
pub(crate) fn to_srq(number: u32, request: SendWr<'_>) -> SendWr<'_> {
    SendWr { srq_number: Some(number), ..request }
}

impl Bed<'_> {
    /// Posts a send request.
    pub(crate) fn post(&mut self, queue: Queue, request: SendWr<'_>) -> Check {
        Ok(self.try_post(queue, &[request])?)
    }

    /// Posts send requests, and returns the device's answer.
    pub(crate) fn try_post(&mut self, queue: Queue, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        self.device(queue.end).post_send(queue.id, requests)
    }

    /// Posts a receive.
    pub(crate) fn recv(&mut self, queue: Queue, id: u64, into: &[Sge]) -> Check {
        Ok(self.try_recv(queue, id, into)?)
    }

    /// Posts a receive, and returns the device's answer.
    pub(crate) fn try_recv(&mut self, queue: Queue, id: u64, into: &[Sge]) -> Result<(), PostError> {
        self.device(queue.end).post_recv(queue.id, &[RecvWr { id, sges: into }])
    }

    /// Posts a receive to a shared queue.
    pub(crate) fn srq_recv(&mut self, end: End, srq: SrqId, id: u64, into: &[Sge]) -> Check {
        Ok(self.device(end).post_srq_recv(srq, &[RecvWr { id, sges: into }])?)
    }

    /// Posts receives with the ids `ids`, of all of `into` each.
    pub(crate) fn recvs(&mut self, queue: Queue, ids: std::ops::Range<u64>, into: &Region) -> Check {
        ids.into_iter().try_for_each(|id| self.recv(queue, id, &[into.all()]))
    }

    /// An address handle of `from`'s own protection domain, for datagrams to `to`.
    pub(crate) fn handle(&mut self, from: End, to: End) -> Check<AhId> {
        let (pd, address) = (self.pd(from)?, self.address(from, to, 0)?);
        Ok(self.device(from).create_ah(pd, &address)?)
    }
}
