//! Posting and polling: the hot path. No allocation, no lock of ours, one call of the provider for each
//! [`BATCH`].
//!
//! Safety argument, beside that of the folder: requests point into the caller's lists, which are borrowed for
//! the whole of the call, and into the scratch, which is boxed and filled before the call; a provider reads
//! them before it returns (`ibv_post_send(3)`). The device checks keys and addresses.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr::null_mut;

use rdma_core_sys::*;

use super::objects::{Ah, Cq, Qp, Srq};
use crate::contract::{Completion, CompletionKind, Payload, RecvWr, SendOp, SendWr, Sge, Status};

/// Requests that go with one doorbell; completions that are taken with one call.
const BATCH: usize = 64;

/// Pieces of inline data in a batch. More than any queue pair takes in one request.
const PIECES: usize = 256;

/// A piece of memory of the contract is one of the library.
const _: () = {
    assert!(size_of::<Sge>() == size_of::<ibv_sge>() && align_of::<Sge>() == align_of::<ibv_sge>());
    assert!(offset_of!(Sge, address) == offset_of!(ibv_sge, addr));
    assert!(offset_of!(Sge, len) == offset_of!(ibv_sge, length));
    assert!(offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey));
};

/// Room for a batch to the provider or back. A device has one.
pub(crate) struct Scratch {
    sends: Box<[ibv_send_wr; BATCH]>,
    receives: Box<[ibv_recv_wr; BATCH]>,
    completions: Box<[ibv_wc; BATCH]>,
    pieces: Box<[ibv_sge; PIECES]>,
}

// SAFETY: its pointers lead into it or to objects of the device that holds it, which belong to no thread, and
// they are not followed between calls.
unsafe impl Send for Scratch {}

/// Posting stopped: how many requests were taken, and the error number.
pub(crate) type Stopped = (usize, c_int);

impl Scratch {
    /// Completions that one call takes at most.
    pub(crate) const BATCH: usize = BATCH;

    pub(crate) fn new() -> Self {
        let send = ibv_send_wr {
            wr_id: 0,
            next: null_mut(),
            sg_list: null_mut(),
            num_sge: 0,
            opcode: 0,
            send_flags: 0,
            imm_data: 0,
            wr: ibv_wr { atomic: ibv_wr_atomic { remote_addr: 0, compare_add: 0, swap: 0, rkey: 0 } },
            remote_srqn: 0,
            _bind_mw_or_tso: [null_mut(); 6],
        };
        let receive = ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: null_mut(), num_sge: 0 };
        Scratch {
            sends: Box::new([send; BATCH]),
            receives: Box::new([receive; BATCH]),
            completions: Box::new([ibv_wc::default(); BATCH]),
            pieces: Box::new([ibv_sge::default(); PIECES]),
        }
    }

    /// Posts sends. `handle` gives the address handle of a datagram; the requests have passed the caller's
    /// checks.
    #[inline]
    pub(crate) fn post_send<'h>(
        &mut self,
        qp: &Qp,
        requests: &[SendWr<'_>],
        handle: impl Fn(&SendWr<'_>) -> Option<&'h Ah>,
    ) -> Result<(), Stopped> {
        if let [request] = requests
            && !matches!(request.payload, Payload::Inline(inline) if inline.len() > PIECES)
        {
            // The usual list.
            self.fill_send(0, 0, request, handle(request));
            return self.ring(qp, 1).map_err(|(_, error)| (0, error));
        }
        let mut done = 0;
        while done < requests.len() {
            let (mut count, mut pieces) = (0, 0);
            for request in requests[done..].iter().take(BATCH) {
                let inline = match request.payload {
                    Payload::Inline(inline) => inline.len(),
                    Payload::Memory(_) => 0,
                };
                if pieces + inline > PIECES {
                    break;
                }
                self.fill_send(count, pieces, request, handle(request));
                (count, pieces) = (count + 1, pieces + inline);
            }
            if count == 0 {
                return Err((done, libc::EINVAL));
            }
            self.ring(qp, count).map_err(|(at, error)| (done + at, error))?;
            done += count;
        }
        Ok(())
    }

    /// Posts a message in one piece that goes with the request; the provider's error number, or 0. The
    /// request has passed the caller's checks.
    #[inline(always)]
    pub(crate) fn post_inline(&mut self, qp: &Qp, request: &SendWr<'_>) -> c_int {
        let Payload::Inline([piece]) = request.payload else { return libc::EINVAL };
        let sge = &mut self.pieces[0];
        (sge.addr, sge.length) = (piece.as_ptr().expose_provenance() as u64, piece.len() as u32);
        let mut flags = IBV_SEND_INLINE;
        flags |= if request.signaled { IBV_SEND_SIGNALED } else { 0 };
        flags |= if request.solicited { IBV_SEND_SOLICITED } else { 0 };
        flags |= if request.fence { IBV_SEND_FENCE } else { 0 };
        let (list, wr) = (self.pieces.as_mut_ptr(), &mut self.sends[0]);
        (wr.wr_id, wr.next, wr.sg_list, wr.num_sge) = (request.id, null_mut(), list, 1);
        (wr.opcode, wr.send_flags, wr.imm_data, wr.remote_srqn) = (IBV_WR_SEND, flags, 0, 0);
        let mut bad = null_mut();
        // SAFETY: the queue pair is live; a list of one request, whose piece is borrowed.
        unsafe { ibv_post_send(qp.0.as_ptr(), wr, &mut bad) }
    }

    /// Hands the first `count` requests over.
    #[inline]
    fn ring(&mut self, qp: &Qp, count: usize) -> Result<(), Stopped> {
        self.link_sends(count);
        let (first, mut bad) = (self.sends.as_mut_ptr(), null_mut());
        // SAFETY: the queue pair is live; a list of `count` requests, filled by the caller.
        match unsafe { ibv_post_send(qp.0.as_ptr(), first, &mut bad) } {
            0 => Ok(()),
            error => Err((place(first.cast_const(), bad, count), error)),
        }
    }

    /// Request number `at` of the batch.
    fn fill_send(&mut self, at: usize, pieces: usize, request: &SendWr<'_>, handle: Option<&Ah>) {
        let wr = &mut self.sends[at];
        let mut flags = 0;
        let mut flag = |on: bool, bit| flags |= if on { bit } else { 0 };
        flag(request.signaled, IBV_SEND_SIGNALED);
        flag(request.solicited, IBV_SEND_SOLICITED);
        flag(request.fence, IBV_SEND_FENCE);
        match request.payload {
            Payload::Memory(sges) => {
                wr.sg_list = sges.as_ptr().cast::<ibv_sge>().cast_mut();
                wr.num_sge = sges.len() as c_int;
            }
            Payload::Inline(inline) => {
                flag(true, IBV_SEND_INLINE);
                for (to, piece) in self.pieces[pieces..].iter_mut().zip(inline) {
                    *to = ibv_sge {
                        addr: piece.as_ptr().expose_provenance() as u64,
                        length: piece.len() as u32,
                        lkey: 0,
                    };
                }
                wr.sg_list = self.pieces[pieces..].as_mut_ptr();
                wr.num_sge = inline.len() as c_int;
            }
        }
        (wr.wr_id, wr.send_flags) = (request.id, flags);
        wr.remote_srqn = request.srq_number.unwrap_or(0);
        let with = |immediate: Option<u32>, plain, immediately| match immediate {
            None => (plain, 0),
            Some(immediate) => (immediately, immediate.to_be()),
        };
        match request.op {
            SendOp::Send { immediate } => {
                (wr.opcode, wr.imm_data) = with(immediate, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM);
                if let Some((to, handle)) = request.datagram.zip(handle) {
                    wr.wr.ud = ibv_wr_ud { ah: handle.0.as_ptr(), remote_qpn: to.qp, remote_qkey: to.qkey };
                }
            }
            SendOp::Write { to, immediate } => {
                (wr.opcode, wr.imm_data) = with(immediate, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM);
                wr.wr.rdma = ibv_wr_rdma { remote_addr: to.address, rkey: to.rkey };
            }
            SendOp::Read { from } => {
                (wr.opcode, wr.imm_data) = (IBV_WR_RDMA_READ, 0);
                wr.wr.rdma = ibv_wr_rdma { remote_addr: from.address, rkey: from.rkey };
            }
            SendOp::CompareSwap { at, compare, swap } => {
                (wr.opcode, wr.imm_data) = (IBV_WR_ATOMIC_CMP_AND_SWP, 0);
                wr.wr.atomic = ibv_wr_atomic { remote_addr: at.address, compare_add: compare, swap, rkey: at.rkey };
            }
            SendOp::FetchAdd { at, add } => {
                (wr.opcode, wr.imm_data) = (IBV_WR_ATOMIC_FETCH_AND_ADD, 0);
                wr.wr.atomic = ibv_wr_atomic { remote_addr: at.address, compare_add: add, swap: 0, rkey: at.rkey };
            }
        }
    }

    /// Makes a list of the first `count` requests, all through one pointer, which the provider walks.
    fn link_sends(&mut self, count: usize) {
        let first = self.sends.as_mut_ptr();
        for at in 0..count {
            let next = if at + 1 < count { first.wrapping_add(at + 1) } else { null_mut() };
            // SAFETY: `at` is below the length of the array.
            unsafe { (*first.add(at)).next = next };
        }
    }

    /// Posts receives to a queue pair.
    pub(crate) fn post_recv(&mut self, qp: &Qp, requests: &[RecvWr<'_>]) -> Result<(), Stopped> {
        self.receive(requests, |first, bad| {
            // SAFETY: the queue pair is live; a list of whole requests.
            unsafe { ibv_post_recv(qp.0.as_ptr(), first, bad) }
        })
    }

    /// Posts receives to a shared queue.
    pub(crate) fn post_srq_recv(&mut self, srq: &Srq, requests: &[RecvWr<'_>]) -> Result<(), Stopped> {
        self.receive(requests, |first, bad| {
            // SAFETY: the shared queue is live; a list of whole requests.
            unsafe { ibv_post_srq_recv(srq.0.as_ptr(), first, bad) }
        })
    }

    fn receive(
        &mut self,
        requests: &[RecvWr<'_>],
        post: impl Fn(*mut ibv_recv_wr, &mut *mut ibv_recv_wr) -> c_int,
    ) -> Result<(), Stopped> {
        for (batch, chunk) in requests.chunks(BATCH).enumerate() {
            let first = self.receives.as_mut_ptr();
            for (at, request) in chunk.iter().enumerate() {
                let next = if at + 1 < chunk.len() { first.wrapping_add(at + 1) } else { null_mut() };
                let sg_list = request.sges.as_ptr().cast::<ibv_sge>().cast_mut();
                let wr = ibv_recv_wr { wr_id: request.id, next, sg_list, num_sge: request.sges.len() as c_int };
                // SAFETY: a chunk is no longer than the array.
                unsafe { first.add(at).write(wr) };
            }
            let mut bad = null_mut();
            let error = post(first, &mut bad);
            if error != 0 {
                return Err((batch * BATCH + place(first.cast_const(), bad, chunk.len()), error));
            }
        }
        Ok(())
    }

    /// Takes up to `most` completions, one call's worth at most. `Err`: the provider's error number.
    #[inline(always)]
    pub(crate) fn poll(&mut self, cq: &Cq, most: usize) -> Result<&[ibv_wc], c_int> {
        let most = most.min(BATCH);
        // SAFETY: the queue is live; there is room for so many.
        let count = unsafe { ibv_poll_cq(cq.0.as_ptr(), most as c_int, self.completions.as_mut_ptr()) };
        if count == 0 {
            return Ok(&[]);
        }
        let count = usize::try_from(count).map_err(|_| count.wrapping_neg())?.min(most);
        Ok(&self.completions[..count])
    }
}

impl Cq {
    /// Puts events off: until so many completions are there, or so long after the first of them, in
    /// microseconds.
    pub(crate) fn moderate(&self, count: u16, period_us: u16) -> Result<(), c_int> {
        let moderate = ibv_moderate_cq { cq_count: count, cq_period: period_us };
        let mut attr = ibv_modify_cq_attr { attr_mask: IBV_CQ_ATTR_MODERATE, moderate };
        // SAFETY: the queue is live, the attributes are whole.
        match unsafe { ibv_modify_cq(self.0.as_ptr(), &mut attr) } {
            0 => Ok(()),
            error => Err(error),
        }
    }

    /// Requests an event.
    pub(crate) fn request_notify(&self, solicited: bool) -> Result<(), c_int> {
        // SAFETY: the queue is live.
        match unsafe { ibv_req_notify_cq(self.0.as_ptr(), solicited.into()) } {
            0 => Ok(()),
            error => Err(error),
        }
    }
}

/// The number of requests before the bad one; where the provider names none of the list, it took none.
fn place<T>(first: *const T, bad: *mut T, count: usize) -> usize {
    let at = (bad.addr().wrapping_sub(first.addr())) / size_of::<T>();
    if at < count { at } else { 0 }
}

/// A completion in the contract's form.
#[inline]
pub(crate) fn completion(wc: &ibv_wc) -> Completion {
    Completion {
        id: wc.wr_id,
        status: if wc.status == IBV_WC_SUCCESS { Status::Success } else { Status::from(wc.status) },
        kind: kind(wc.opcode),
        bytes: wc.byte_len,
        immediate: (wc.wc_flags & IBV_WC_WITH_IMM != 0).then(|| u32::from_be(wc.imm_data)),
        qp: wc.qp_num,
        source_qp: wc.src_qp,
        source_lid: wc.slid,
        global: wc.wc_flags & IBV_WC_GRH != 0,
    }
}

/// Only a success has one that means something.
#[inline]
fn kind(opcode: ibv_wc_opcode) -> CompletionKind {
    match opcode {
        IBV_WC_RDMA_WRITE => CompletionKind::Write,
        IBV_WC_RDMA_READ => CompletionKind::Read,
        IBV_WC_COMP_SWAP => CompletionKind::CompareSwap,
        IBV_WC_FETCH_ADD => CompletionKind::FetchAdd,
        IBV_WC_RECV => CompletionKind::Recv,
        IBV_WC_RECV_RDMA_WITH_IMM => CompletionKind::RecvWrite,
        _ => CompletionKind::Send,
    }
}
