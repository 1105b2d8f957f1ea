//! Completion queues (InfiniBand specification, 10.8 and 11.2.8; `ibv_create_cq(3)`, `ibv_req_notify_cq(3)`).

use std::collections::VecDeque;

use rerail_core::time::Nanos;
use rerail_verbs::Moderation;
use rerail_verbs::contract::{
    AsyncEvent, Completion, CqId, CqInit, CreateError, DestroyError, Kind, ModifyError, PollError, Status,
};

use super::body::{Alarm, Body, Timer};
use super::core::{Cx, Hca};
use super::memory::{in_range, not_busy, within};
use super::object::{Cq, Cqe, Frees, Notify};
use crate::trace::Subject;

impl Hca {
    pub fn create_cq(&mut self, context: u32, init: &CqInit) -> Result<CqId, CreateError> {
        in_range(Kind::Depth, init.depth.into(), 1, self.limits.cq_depth.into())?;
        within(Kind::Cq, self.cqs.len(), self.limits.cqs)?;
        let entries = VecDeque::new();
        let make = |_| Cq {
            context,
            depth: init.depth,
            users: 0,
            entries,
            notify: Notify::Off,
            moderation: Moderation::NONE,
            notices_due: 0,
            round: 0,
            broken: false,
        };
        Ok(CqId(self.cqs.insert_with(make)))
    }

    pub fn destroy_cq(&mut self, context: u32, cq: CqId) -> Result<(), DestroyError> {
        let found = self.cq_of(context, cq).ok_or(DestroyError::Unknown { what: Kind::Cq, name: cq.0 })?;
        let users = found.users;
        not_busy(Kind::Cq, users)?;
        if let Some(cq) = self.cqs.remove(cq.0) {
            cq.entries.iter().for_each(|entry| self.free_place(entry));
        }
        if let Some(context) = self.contexts.get_mut(context) {
            context.cq_events.retain(|event| *event != cq);
        }
        Ok(())
    }

    pub fn poll_cq(
        &mut self,
        context: u32,
        cq: CqId,
        most: usize,
        out: &mut Vec<Completion>,
    ) -> Result<usize, PollError> {
        let found = self.cq_of(context, cq).ok_or(PollError::Unknown { name: cq.0 })?;
        if found.broken {
            return Err(PollError::Overflow);
        }
        let count = most.min(found.entries.len());
        for _ in 0..count {
            let Some(entry) = self.cq_of(context, cq).and_then(|found| found.entries.pop_front()) else { break };
            self.free_place(&entry);
            out.push(entry.completion);
        }
        Ok(count)
    }

    pub fn request_notify(&mut self, context: u32, cq: CqId, solicited: bool) -> Result<(), PollError> {
        let found = self.cq_of(context, cq).ok_or(PollError::Unknown { name: cq.0 })?;
        // Of two demands the wider one counts (11.4.2.2).
        if found.notify != Notify::Any {
            found.notify = if solicited { Notify::Solicited } else { Notify::Any };
        }
        Ok(())
    }

    pub fn moderate_cq(&mut self, context: u32, cq: CqId, moderation: Moderation) -> Result<(), ModifyError> {
        let most = self.offers.moderation;
        let found = self.cq_of(context, cq).ok_or(ModifyError::Unknown { what: Kind::Cq, name: cq.0 })?;
        moderation.check(most)?;
        found.moderation = moderation;
        Ok(())
    }

    /// Puts a completion into its queue, or finds the queue full: then it is broken, and so is all that
    /// completes there.
    pub fn push(&mut self, cx: &mut Cx<'_>, cq: u32, entry: Cqe) {
        let clamp = self.faults.cq_depth_max;
        let Some(queue) = self.cqs.get_mut(cq) else { return };
        if queue.broken {
            return;
        }
        let (context, depth) = (queue.context, queue.depth.min(clamp.unwrap_or(u32::MAX)) as usize);
        if queue.entries.len() >= depth {
            queue.broken = true;
            self.overflowed.push(cq);
            self.event(cx, context, AsyncEvent::CqError(CqId(cq)));
            return;
        }
        if cx.trace.is_on() {
            let Completion { id, status, kind, bytes, qp, .. } = entry.completion;
            let what = format_args!("qp {qp:#x} completes {kind:?} {id:#x}: {status}, {bytes} bytes");
            cx.trace.note(cx.now, Subject::Device(self.id.0), what);
        }
        queue.entries.push_back(entry);
        let counts = entry.solicited || entry.completion.status != Status::Success;
        let must_report = queue.notify == Notify::Any || queue.notify == Notify::Solicited && counts;
        if let Some(context) = self.contexts.get_mut(context) {
            cx.woken.insert(context.owner);
        }
        if must_report {
            self.schedule_notice(cx, cq);
        }
    }

    /// A completion is to be notified: at once, or as the queue is moderated.
    fn schedule_notice(&mut self, cx: &mut Cx<'_>, cq: u32) {
        let hca = self.id.0;
        let Some(queue) = self.cqs.get_mut(cq) else { return };
        queue.notices_due += 1;
        let Moderation { count, period_us } = queue.moderation;
        if queue.notices_due >= count.max(1) {
            return self.must_report(cx, cq);
        }
        if queue.notices_due == 1 && period_us > 0 {
            queue.round = queue.round.wrapping_add(1);
            let at = cx.now + Nanos::from_micros(period_us.into());
            let what = Alarm::Cq { cq, round: queue.round };
            cx.net.at(at, Body::Timer(Timer { hca, what }));
        }
    }

    /// An event was put off for as long as may be.
    pub fn on_cq_alarm(&mut self, cx: &mut Cx<'_>, cq: u32, round: u32) {
        if self.cqs.get(cq).is_some_and(|queue| queue.notices_due > 0 && queue.round == round) {
            self.must_report(cx, cq);
        }
    }

    fn must_report(&mut self, cx: &mut Cx<'_>, cq: u32) {
        let Some(queue) = self.cqs.get_mut(cq) else { return };
        (queue.notify, queue.notices_due) = (Notify::Off, 0);
        if let Some(context) = self.contexts.get_mut(queue.context) {
            context.cq_events.push_back(CqId(cq));
            cx.woken.insert(context.owner);
        }
    }

    /// Takes all completions of a queue pair out of a queue, unseen.
    pub fn purge(&mut self, cq: u32, qp: u32) {
        let Some(queue) = self.cqs.get_mut(cq) else { return };
        if queue.entries.iter().all(|entry| entry.qp != qp) {
            return;
        }
        let (gone, kept): (VecDeque<_>, VecDeque<_>) = queue.entries.drain(..).partition(|entry| entry.qp == qp);
        queue.entries = kept;
        gone.iter().for_each(|entry| self.free_place(entry));
    }

    /// A completion was taken out: the place of its request is free (`ibv_post_send(3)`: until then it is
    /// not).
    fn free_place(&mut self, entry: &Cqe) {
        let qp = self.qps.get_mut(entry.qp).filter(|qp| qp.life == entry.life);
        match (entry.frees, qp) {
            (Frees::Sends(upto), Some(qp)) => qp.requester.freed = qp.requester.freed.max(upto),
            (Frees::Recv, Some(qp)) => qp.responder.held -= 1,
            (Frees::SharedRecv { srq }, _) => {
                if let Some(srq) = self.srqs.get_mut(srq) {
                    srq.held -= 1;
                }
            }
            _ => {}
        }
    }

    /// The queue pairs that complete into a broken queue go to the error state.
    pub fn fail_users_of(&mut self, cx: &mut Cx<'_>, cq: u32) {
        for qp in self.qps.names(|qp| qp.send_cq == Some(cq) || qp.recv_cq == Some(cq)) {
            if self.enter_error(cx, qp) {
                self.qp_event(cx, qp, AsyncEvent::QpFatal);
            }
        }
    }
}
