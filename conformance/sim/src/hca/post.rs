//! Posting work requests (InfiniBand specification, 10.3.1 for what each state takes, 11.4.1;
//! `ibv_post_send(3)`, `ibv_post_recv(3)`).

use rerail_verbs::contract::{Kind, Payload, PostError, PostReason, QpId, QpKind, QpState, RecvWr, SendOp, SendWr};

use super::core::{Cx, Hca};
use super::object::RecvWork;
use super::qp::{Qp, SendDatagram, SendWork};

impl Hca {
    pub fn post_send(
        &mut self,
        cx: &mut Cx<'_>,
        context: u32,
        id: QpId,
        requests: &[SendWr<'_>],
    ) -> Result<(), PostError> {
        let refuse = |index, why| Err(PostError { index, why });
        let Some(name) = self.qp_named(context, id) else {
            return if requests.is_empty() { Ok(()) } else { refuse(0, unknown_qp(id)) };
        };
        let (owner, cost) = (self.contexts.get(context).map_or(0, |context| context.owner), self.cost);
        let mut outcome = Ok(());
        for (index, request) in requests.iter().enumerate() {
            match self.check_send(context, name, request) {
                Err(why) => {
                    outcome = refuse(index, why);
                    break;
                }
                Ok(datagram) => {
                    if let Some(qp) = self.qps.get_mut(name) {
                        let mut work = send_work(request, datagram);
                        work.by_pio = cost.is_pio(work.bytes) && !work.is_read();
                        let carried = if work.by_pio { work.bytes } else { 0 };
                        work.posted_ps = cx.processors.spend(owner, cx.now, cost.post_ps(carried));
                        qp.requester.queue.push_back(work);
                    }
                }
            }
        }
        // In an error state they end at once; else they wait for their turn.
        self.retire(cx, name);
        self.ring(name);
        outcome
    }

    /// Whether a send can be taken; for a datagram, where it goes.
    fn check_send(&self, context: u32, name: u32, request: &SendWr<'_>) -> Result<Option<SendDatagram>, PostReason> {
        let Some(qp) = self.qps.get(name) else {
            return Err(PostReason::Operation { why: "the queue pair is gone" });
        };
        if qp.kind == QpKind::XrcTarget {
            return Err(PostReason::Operation { why: "an XRC target has no send queue" });
        }
        if matches!(qp.state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(PostReason::State { state: qp.state });
        }
        if qp.requester.end() - qp.requester.freed.min(qp.requester.end()) >= u64::from(qp.caps.send_depth) {
            return Err(PostReason::Full { depth: qp.caps.send_depth });
        }
        match request.payload {
            Payload::Memory(sges) if sges.len() > qp.caps.send_sges as usize => {
                return Err(PostReason::Sges { given: sges.len(), max: qp.caps.send_sges });
            }
            Payload::Inline(parts) => {
                let bytes = parts.iter().map(|part| part.len()).sum();
                if bytes > qp.caps.inline_bytes as usize {
                    return Err(PostReason::Inline { bytes, max: qp.caps.inline_bytes });
                }
            }
            Payload::Memory(_) => {}
        }
        self.check_operation(qp, request).map_err(|why| PostReason::Operation { why })?;
        let Some(datagram) = &request.datagram else { return Ok(None) };
        let handle = self.handles.get(datagram.handle.0).filter(|handle| handle.context == context);
        let handle = handle.ok_or(PostReason::UnknownHandle { name: datagram.handle.0 })?;
        if handle.address.port != qp.port() {
            return Err(PostReason::Operation { why: "the address handle is for another port than the queue pair" });
        }
        // The top bit stands for the queue's own key (10.2.5).
        let own = datagram.qkey >> 31 == 1;
        let qkey = if own { qp.attributes.qkey.unwrap_or(0) } else { datagram.qkey };
        Ok(Some(SendDatagram { address: handle.address, qp: datagram.qp, qkey }))
    }

    /// What this transport and this device can't do.
    fn check_operation(&self, qp: &Qp, request: &SendWr<'_>) -> Result<(), &'static str> {
        let inline = matches!(request.payload, Payload::Inline(_));
        let atomic = matches!(request.op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
        let delivers = matches!(request.op, SendOp::Send { .. } | SendOp::Write { immediate: Some(_), .. });
        if qp.kind == QpKind::Ud && !matches!(request.op, SendOp::Send { .. }) {
            return Err("a UD queue pair can only send");
        }
        if (qp.kind == QpKind::Ud) != request.datagram.is_some() {
            return Err("UD requests, and no others, name where they go");
        }
        if qp.kind == QpKind::XrcInitiator && delivers && request.srq_number.is_none() {
            return Err("an XRC request that takes a receive names the shared receive queue");
        }
        if qp.kind != QpKind::XrcInitiator && request.srq_number.is_some() {
            return Err("only XRC requests name a shared receive queue");
        }
        if inline && (atomic || matches!(request.op, SendOp::Read { .. })) {
            return Err("reads and atomics need memory for what comes back");
        }
        if atomic && !self.limits.atomics {
            return Err("the device offers no atomics");
        }
        if atomic
            && !matches!(request.payload, Payload::Memory(sges) if sges.iter().map(|sge| u64::from(sge.len())).sum::<u64>() == 8)
        {
            return Err("an atomic brings back 8 bytes");
        }
        Ok(())
    }

    pub fn post_recv(
        &mut self,
        cx: &mut Cx<'_>,
        context: u32,
        id: QpId,
        requests: &[RecvWr<'_>],
    ) -> Result<(), PostError> {
        let refuse = |index, why| Err(PostError { index, why });
        let Some(name) = self.qp_named(context, id) else {
            return if requests.is_empty() { Ok(()) } else { refuse(0, unknown_qp(id)) };
        };
        let mut outcome = Ok(());
        for (index, request) in requests.iter().enumerate() {
            let Some(qp) = self.qps.get_mut(name) else { break };
            let shared = qp.srq.is_some() || matches!(qp.kind, QpKind::XrcInitiator | QpKind::XrcTarget);
            let why = if shared {
                PostReason::Operation { why: "the queue pair has no receive queue of its own" }
            } else if qp.state == QpState::Reset {
                PostReason::State { state: qp.state }
            } else if request.sges.len() > qp.caps.recv_sges as usize {
                PostReason::Sges { given: request.sges.len(), max: qp.caps.recv_sges }
            } else if qp.responder.held >= qp.caps.recv_depth {
                PostReason::Full { depth: qp.caps.recv_depth }
            } else {
                qp.responder.held += 1;
                qp.responder.queue.push_back(RecvWork { id: request.id, sges: request.sges.to_vec(), srq: None });
                continue;
            };
            outcome = refuse(index, why);
            break;
        }
        self.flush_receives(cx, name);
        outcome
    }
}

fn unknown_qp(id: QpId) -> PostReason {
    PostReason::Unknown { what: Kind::Qp, name: id.0 }
}

/// A request as the send queue holds it: inline data are copied now.
fn send_work(request: &SendWr<'_>, datagram: Option<SendDatagram>) -> SendWork {
    let (sges, inline) = match request.payload {
        Payload::Memory(sges) => (sges.to_vec(), None),
        Payload::Inline(parts) => (Vec::new(), Some(parts.concat())),
    };
    let bytes = match &inline {
        Some(data) => data.len() as u64,
        None => sges.iter().map(|sge| u64::from(sge.len())).sum(),
    };
    SendWork {
        id: request.id,
        op: request.op,
        sges,
        inline,
        signaled: request.signaled,
        solicited: request.solicited,
        fence: request.fence,
        bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        datagram,
        srq_number: request.srq_number,
        first_psn: 0,
        packets: 0,
        answered: 0,
        landed: 0,
        swallowed: false,
        by_pio: false,
        posted_ps: 0,
    }
}
