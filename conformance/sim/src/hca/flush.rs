//! How work requests end: in order per queue, with success or with an error, and what the error states do to
//! the rest (InfiniBand specification, 10.3.1 and 10.10.2; resilient-2010, III).

use rerail_verbs::contract::{AsyncEvent, Completion, CompletionKind, QpKind, QpState, SendOp, Status};

use super::core::{Cx, Hca};
use super::object::{Cqe, Frees, RecvWork};
use super::qp::{Arrived, MessageKind, Qp, Requester, SendWork};

/// What the request at the head of a send queue is to get.
enum Fate {
    Wait,
    Done,
    Failed(Status),
    Flushed,
}

impl Hca {
    /// The request at a position fails, once those before it are complete; the queue pair is in error from
    /// now on.
    pub fn fail_send(&mut self, cx: &mut Cx<'_>, name: u32, position: u64, status: Status) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        if qp.requester.failing.is_none_or(|(earlier, _)| position < earlier) {
            qp.requester.failing = Some((position, status));
        }
        if qp.kind == QpKind::Ud && qp.state != QpState::Error {
            // Unreliable transports go on receiving.
            qp.state = QpState::Sqe;
            self.retire(cx, name);
        } else if !self.enter_error(cx, name) {
            self.retire(cx, name);
        }
    }

    /// A queue pair goes to the error state; `false`: it was there.
    pub fn enter_error(&mut self, cx: &mut Cx<'_>, name: u32) -> bool {
        let Some(qp) = self.qps.get_mut(name) else { return false };
        if qp.state == QpState::Error {
            return false;
        }
        qp.state = QpState::Error;
        qp.requester.deadline = None;
        qp.requester.rnr_until = None;
        qp.requester.draining = false;
        qp.responder.replies.clear();
        // A receive that was being filled comes before those that wait.
        if let Some(work) = qp.responder.message.take().and_then(|message| message.into_receive()) {
            qp.responder.queue.push_front(work);
        }
        qp.responder.flushing = true;
        self.retire(cx, name);
        self.flush_receives(cx, name);
        true
    }

    /// Completes the requests at the head of a send queue that are complete.
    pub fn retire(&mut self, cx: &mut Cx<'_>, name: u32) {
        loop {
            let Some(qp) = self.qps.get_mut(name) else { return };
            let requester = &mut qp.requester;
            let status = match fate(qp.state, requester) {
                Fate::Wait => break,
                Fate::Done => Status::Success,
                Fate::Failed(status) => status,
                Fate::Flushed => Status::Flushed,
            };
            let requester = &mut qp.requester;
            let Some(work) = requester.queue.pop_front() else { break };
            requester.base += 1;
            requester.begun = requester.begun.max(requester.base);
            if requester.next.0 < requester.base {
                requester.next = (requester.base, 0);
            }
            let must_report = status != Status::Success || work.signaled || qp.signal_all;
            let lost = work.swallowed || qp.faults.take_lost_completion(work.id);
            if let (true, false, Some(cq)) = (must_report, lost, qp.send_cq) {
                let entry = send_entry(name, qp, &work, status);
                self.push(cx, cq, entry);
            }
        }
        self.check_drained(cx, name);
        self.ring(name);
    }

    /// Flushes the receives of a queue pair in error, once what had arrived before is in memory.
    pub fn flush_receives(&mut self, cx: &mut Cx<'_>, name: u32) {
        loop {
            let Some(qp) = self.qps.get_mut(name) else { return };
            if qp.state != QpState::Error || !qp.responder.arrived.is_empty() {
                return;
            }
            let Some(work) = qp.responder.queue.pop_front() else { break };
            self.complete_receive(cx, name, &work, Status::Flushed);
        }
        let Some(qp) = self.qps.get_mut(name) else { return };
        if std::mem::take(&mut qp.responder.flushing) && qp.srq.is_some() {
            self.qp_event(cx, name, AsyncEvent::QpLastWqe);
        }
    }

    /// A receive ends without a message.
    pub fn complete_receive(&mut self, cx: &mut Cx<'_>, name: u32, work: &RecvWork, status: Status) {
        let Some(qp) = self.qps.get(name) else { return };
        let completion = Completion { status, ..receive_completion(qp.number, work.id) };
        self.push_receive(cx, name, work, completion, false);
    }

    /// Puts a receive's completion where it belongs: with XRC, the shared receive queue decides where.
    pub fn push_receive(
        &mut self,
        cx: &mut Cx<'_>,
        name: u32,
        work: &RecvWork,
        completion: Completion,
        solicited: bool,
    ) {
        let Some(qp) = self.qps.get(name) else { return };
        let shared = work.srq.and_then(|srq| self.srqs.get(srq));
        let cq = shared.and_then(|srq| srq.xrc).map(|xrc| xrc.cq).or(qp.recv_cq);
        let frees = work.srq.map_or(Frees::Recv, |srq| Frees::SharedRecv { srq });
        let entry = Cqe { completion, solicited, qp: name, life: qp.life, frees };
        if let Some(cq) = cq {
            self.push(cx, cq, entry);
        }
    }

    /// The responder can't go on with what came: the receive in use ends with `status`, the queue pair is in
    /// error.
    pub fn fail_receive(&mut self, cx: &mut Cx<'_>, name: u32, status: Status) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        match qp.responder.message.take().map(|message| message.kind) {
            Some(MessageKind::Send { work }) => {
                // Behind what has arrived and is not in memory yet.
                let completion = Completion { status, ..receive_completion(qp.number, work.id) };
                let after = qp.responder.requests;
                qp.responder.arrived.push_back(Arrived { work, completion, solicited: false, after });
            }
            other => debug_assert!(other.is_none(), "only sends fill a receive"),
        }
        self.enter_error(cx, name);
        self.deliver(cx, name);
    }

    /// Completes the receives whose messages are in memory: those at the head that wait for no write any
    /// more.
    pub fn deliver(&mut self, cx: &mut Cx<'_>, name: u32) {
        loop {
            let Some(qp) = self.qps.get_mut(name) else { return };
            let responder = &mut qp.responder;
            if responder.arrived.front().is_none_or(|arrived| arrived.after > responder.landed) {
                break;
            }
            let Some(arrived) = responder.arrived.pop_front() else { break };
            self.push_receive(cx, name, &arrived.work, arrived.completion, arrived.solicited);
        }
        self.flush_receives(cx, name);
    }
}

fn fate(state: QpState, requester: &Requester) -> Fate {
    let (base, Some(work)) = (requester.base, requester.queue.front()) else { return Fate::Wait };
    if let Some((_, status)) = requester.failing.filter(|(position, _)| *position == base) {
        return Fate::Failed(status);
    }
    if requester.is_answered(base) {
        // Answers of a read that have come go into memory before it ends, one way or the other.
        let there = !work.is_read() || work.swallowed || work.landed == work.packets;
        return if there { Fate::Done } else { Fate::Wait };
    }
    if matches!(state, QpState::Error | QpState::Sqe) { Fate::Flushed } else { Fate::Wait }
}

fn send_entry(name: u32, qp: &Qp, work: &SendWork, status: Status) -> Cqe {
    let kind = match work.op {
        SendOp::Send { .. } => CompletionKind::Send,
        SendOp::Write { .. } => CompletionKind::Write,
        SendOp::Read { .. } => CompletionKind::Read,
        SendOp::CompareSwap { .. } => CompletionKind::CompareSwap,
        SendOp::FetchAdd { .. } => CompletionKind::FetchAdd,
    };
    let bytes = if work.is_read() && status == Status::Success { work.bytes } else { 0 };
    let completion = Completion { status, kind, bytes, ..receive_completion(qp.number, work.id) };
    Cqe { completion, solicited: false, qp: name, life: qp.life, frees: Frees::Sends(qp.requester.base) }
}

/// A receive's completion, but for what came.
pub(super) const fn receive_completion(qp: u32, id: u64) -> Completion {
    Completion {
        id,
        status: Status::Success,
        kind: CompletionKind::Recv,
        bytes: 0,
        immediate: None,
        qp,
        source_qp: 0,
        source_lid: 0,
        global: false,
    }
}
