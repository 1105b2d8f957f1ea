//! Posting and polling.
//!
//! Requests are checked before the provider receives them, so that errors are named: the whole list, up to
//! the first bad one; those before it are posted. That costs a few comparisons for each.

use rdma_core_sys::{IBV_WC_SUCCESS, ibv_wc};

use super::names::Names;
use super::queue_pairs::depths;
use super::{EventTimer, IbDevice, QpEntry, means_gone, unknown_ah};
use crate::contract::{
    Completion, CqId, Kind, Payload, PollError, PostError, PostReason, QpCaps, QpId, QpKind, QpState, RecvWr, SendOp,
    SendWr,
};
use crate::ffi::{Scratch, completion};

impl IbDevice {
    #[inline(always)]
    pub(super) fn send(&mut self, qp: QpId, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        // The usual list.
        if let [request] = requests
            && let Some(entry) = self.qps.get(qp.0)
            && !self.gone
            && takes_inline(entry, request)
        {
            return match self.scratch.post_inline(&entry.raw, request) {
                0 => Ok(()),
                error => Err(PostError { index: 0, why: refused(error, || depths(&self.handle, entry).0) }),
            };
        }
        self.send_list(qp, requests)
    }

    #[inline(never)]
    fn send_list(&mut self, qp: QpId, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        if requests.is_empty() {
            return Ok(());
        }
        let at = |index, why| Err(PostError { index, why });
        let entry = usable(self.gone, &self.qps, (Kind::Qp, qp.0))?;
        let mut bad = None;
        for (index, request) in requests.iter().enumerate() {
            if let Some(why) = self.wrong_send(entry, request) {
                bad = Some((index, why));
                break;
            }
        }
        let good = &requests[..bad.as_ref().map_or(requests.len(), |(index, _)| *index)];
        let ahs = &self.ahs;
        let handle = |request: &SendWr<'_>| Some(&ahs.get(request.datagram?.handle.0)?.raw);
        if let Err((index, error)) = self.scratch.post_send(&entry.raw, good, handle) {
            return at(index, refused(error, || depths(&self.handle, entry).0));
        }
        bad.map_or(Ok(()), |(index, why)| at(index, why))
    }

    /// The error in a send; checked in the contract's order: impossible operations, state, sizes, handle.
    fn wrong_send(&self, entry: &QpEntry, request: &SendWr<'_>) -> Option<PostReason> {
        match entry.init.kind {
            QpKind::XrcTarget => return Some(PostReason::Operation { why: "an XRC target sends nothing" }),
            QpKind::Ud if !matches!(request.op, SendOp::Send { .. }) => {
                return Some(PostReason::Operation { why: "a datagram queue pair only sends" });
            }
            QpKind::Ud if request.datagram.is_none() => {
                return Some(PostReason::Operation { why: "a datagram needs an address" });
            }
            _ => {}
        }
        if matches!(entry.state, QpState::Reset | QpState::Init | QpState::Rtr) {
            // It may have gone to the error state by itself, which takes and flushes.
            let state = self.state_now(entry).unwrap_or(entry.state);
            if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
                return Some(PostReason::State { state });
            }
        }
        let QpCaps { send_sges, inline_bytes, .. } = entry.init.caps;
        match request.payload {
            Payload::Memory(sges) if sges.len() > send_sges as usize => {
                return Some(PostReason::Sges { given: sges.len(), max: send_sges });
            }
            Payload::Memory(_) => {}
            Payload::Inline(pieces) => {
                let bytes = pieces.iter().map(|piece| piece.len()).sum();
                if bytes > inline_bytes as usize {
                    return Some(PostReason::Inline { bytes, max: inline_bytes });
                }
                if pieces.len() > send_sges as usize {
                    return Some(PostReason::Sges { given: pieces.len(), max: send_sges });
                }
                if matches!(request.op, SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }) {
                    return Some(PostReason::Operation { why: "only sends and writes take inline data" });
                }
            }
        }
        let handle = request.datagram?.handle;
        (entry.init.kind == QpKind::Ud && self.ahs.get(handle.0).is_none()).then(|| unknown_ah(handle))
    }

    pub(super) fn receive(&mut self, qp: QpId, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        if requests.is_empty() {
            return Ok(());
        }
        let at = |index, why| Err(PostError { index, why });
        let entry = usable(self.gone, &self.qps, (Kind::Qp, qp.0))?;
        if !matches!(entry.init.kind, QpKind::Rc | QpKind::Ud) || entry.init.srq.is_some() {
            return at(0, PostReason::Operation { why: "the queue pair has no receive queue of its own" });
        }
        if entry.state == QpState::Reset {
            return at(0, PostReason::State { state: QpState::Reset });
        }
        let (handle, QpCaps { recv_sges, .. }) = (&self.handle, entry.init.caps);
        let depth = || depths(handle, entry).1;
        list(requests, recv_sges, depth, |good| self.scratch.post_recv(&entry.raw, good))
    }

    #[inline(always)]
    pub(super) fn poll(&mut self, cq: CqId, most: usize, out: &mut Vec<Completion>) -> Result<usize, PollError> {
        // Nearly always one call is enough.
        if let Some(entry) = self.cqs.get_mut(cq.0)
            && !entry.is_special
            && most <= Scratch::BATCH
            && let Ok(taken) = self.scratch.poll(&entry.raw, most)
        {
            match taken {
                [] if !self.gone => return Ok(0),
                [] => return Err(PollError::DeviceGone),
                [wc] => {
                    if wc.status != IBV_WC_SUCCESS {
                        self.event_timer.force_next();
                    }
                    out.push(completion(wc));
                    return Ok(1);
                }
                several => return Ok(take(several, &mut self.event_timer, out)),
            }
        }
        self.poll_slowly(cq, most, out)
    }

    #[cold]
    #[inline(never)]
    fn poll_slowly(&mut self, cq: CqId, most: usize, out: &mut Vec<Completion>) -> Result<usize, PollError> {
        let Some(entry) = self.cqs.get_mut(cq.0) else { return Err(PollError::Unknown { name: cq.0 }) };
        if entry.broken {
            return Err(PollError::Overflow);
        }
        let mut count = 0;
        if !entry.kept.is_empty() {
            count = entry.kept.len().min(most);
            out.extend(entry.kept.drain(..count));
            entry.refresh();
        }
        while count < most {
            match self.scratch.poll(&entry.raw, most - count) {
                // Earlier completions are still reported after the device went.
                Ok([]) | Err(_) if count == 0 && self.gone => return Err(PollError::DeviceGone),
                Ok([]) => break,
                Ok(taken) => {
                    let taken = take(taken, &mut self.event_timer, out);
                    count += taken;
                    if taken < Scratch::BATCH {
                        break;
                    }
                }
                Err(_) if count == 0 => return Err(PollError::Overflow),
                Err(_) => break,
            }
        }
        Ok(count)
    }
}

/// Hands completions on; how many. After one that failed, events are looked for.
fn take(taken: &[ibv_wc], event_timer: &mut EventTimer, out: &mut Vec<Completion>) -> usize {
    if taken.iter().any(|wc| wc.status != IBV_WC_SUCCESS) {
        event_timer.force_next();
    }
    out.extend(taken.iter().map(completion));
    taken.len()
}

/// Whether a request is a message in one piece that goes with the request, and one that a queue pair takes.
#[inline(always)]
fn takes_inline(entry: &QpEntry, request: &SendWr<'_>) -> bool {
    let Payload::Inline([piece]) = request.payload else { return false };
    matches!(request.op, SendOp::Send { immediate: None })
        && entry.init.kind == QpKind::Rc
        && entry.state == QpState::Rts
        && piece.len() <= entry.init.caps.inline_bytes as usize
        && entry.init.caps.send_sges > 0
        && request.datagram.is_none()
}

/// The queue of a name, on a device that works.
pub(super) fn usable<T>(gone: bool, names: &Names<T>, (what, name): (Kind, u32)) -> Result<&T, PostError> {
    let found =
        if gone { Err(PostReason::DeviceGone) } else { names.get(name).ok_or(PostReason::Unknown { what, name }) };
    found.map_err(|why| PostError { index: 0, why })
}

/// Posts a list of receives up to the first that has too many pieces.
pub(super) fn list(
    requests: &[RecvWr<'_>],
    sges: u32,
    depth: impl FnOnce() -> u32,
    post: impl FnOnce(&[RecvWr<'_>]) -> Result<(), (usize, i32)>,
) -> Result<(), PostError> {
    let bad = requests.iter().position(|request| request.sges.len() > sges as usize);
    if let Err((index, error)) = post(&requests[..bad.unwrap_or(requests.len())]) {
        return Err(PostError { index, why: refused(error, depth) });
    }
    match bad {
        None => Ok(()),
        Some(index) => {
            let given = requests[index].sges.len();
            Err(PostError { index, why: PostReason::Sges { given, max: sges } })
        }
    }
}

/// Why a provider took no more (`ibv_post_send(3)`: `ENOMEM` is a full queue).
fn refused(error: i32, depth: impl FnOnce() -> u32) -> PostReason {
    match error {
        // mlx4 and others return -1 and set `errno`.
        libc::ENOMEM | -1 => PostReason::Full { depth: depth() },
        code if means_gone(code) => PostReason::DeviceGone,
        code => PostReason::System { code },
    }
}
