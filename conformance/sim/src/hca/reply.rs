//! Answers of a responder, in the order of the requests (InfiniBand specification, 9.7.5): acknowledgments go
//! at once when nothing is before them, what was read goes packet by packet in the queue pair's turn.

use super::body::{AckCode, Load, Nak, RequestOp};
use super::core::{Cx, Hca};
use super::qp::Reply;
use super::service::Outgoing;

impl Hca {
    /// One more answer.
    pub fn reply(&mut self, cx: &mut Cx<'_>, name: u32, reply: Reply) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        let replies = &mut qp.responder.replies;
        match (replies.back_mut(), reply) {
            // A later acknowledgment includes an earlier one.
            (Some(Reply::Ack { psn: waiting }), Reply::Ack { psn }) => *waiting = psn,
            _ => replies.push_back(reply),
        }
        self.send_acks(cx, name);
        self.ring(name);
    }

    /// Sends the acknowledgments at the head.
    fn send_acks(&mut self, cx: &mut Cx<'_>, name: u32) {
        loop {
            let Some(qp) = self.qps.get_mut(name) else { return };
            let rnr = AckCode::Rnr(qp.attributes.rnr_timer.unwrap_or(0));
            let (psn, code) = match qp.responder.replies.front() {
                Some(Reply::Ack { psn }) => (*psn, AckCode::Ok),
                Some(Reply::Nak { psn, nak }) => (*psn, AckCode::Nak(*nak)),
                Some(Reply::Rnr { psn }) => (*psn, rnr),
                _ => return,
            };
            qp.responder.replies.pop_front();
            self.acknowledge(cx, name, psn, code);
        }
    }

    /// The next packet of an answer that carries data.
    pub fn next_answer(&mut self, cx: &mut Cx<'_>, name: u32) -> Option<Outgoing> {
        self.send_acks(cx, name);
        let qp = self.qps.get_mut(name)?;
        let (mtu, landed) = (qp.mtu(), qp.responder.landed);
        let reply = *qp.responder.replies.front()?;
        match reply {
            Reply::Read { after, .. } | Reply::Atomic { after, .. } if after > landed => None,
            Reply::Read { psn, mr, address, bytes, after } => {
                let len = bytes.min(mtu);
                let mut data = Vec::new();
                // A registration that has ended gives nothing: the peer's request fails (9.9.3).
                if len > 0 && !self.mrs.get(mr).is_some_and(|mr| mr.memory.read(address, len, &mut data)) {
                    self.refuse_answer(cx, name, psn);
                    return None;
                }
                let qp = self.qps.get_mut(name)?;
                let first = qp.responder.served.iter().any(|served| served.psn == psn);
                if bytes > len {
                    let address = address.wrapping_add(len.into());
                    let rest = Reply::Read { psn: psn + 1, mr, address, bytes: bytes - len, after };
                    *qp.responder.replies.front_mut()? = rest;
                } else {
                    qp.responder.replies.pop_front();
                }
                Some(Outgoing { psn, load: Load::ReadResponse { data }, read_bytes: len, first, control: false })
            }
            Reply::Atomic { psn, mr, op, .. } => {
                let memory = self.mrs.get(mr).map(|mr| &mr.memory);
                let before = match op {
                    RequestOp::CompareSwap { at, compare, swap } => {
                        let swap = |value| if value == compare { swap } else { value };
                        memory.and_then(|memory| memory.replace(at.address, swap))
                    }
                    RequestOp::FetchAdd { at, add } => {
                        memory.and_then(|memory| memory.replace(at.address, |value| value.wrapping_add(add)))
                    }
                    _ => None,
                };
                let Some(before) = before else {
                    self.refuse_answer(cx, name, psn);
                    return None;
                };
                let qp = self.qps.get_mut(name)?;
                qp.responder.replies.pop_front();
                if let Some(served) = qp.responder.served.iter_mut().find(|served| served.psn == psn) {
                    served.atomic = Some(Some(before));
                }
                Some(atomic_answer(psn, before))
            }
            Reply::Replay { psn, before } => {
                qp.responder.replies.pop_front();
                Some(atomic_answer(psn, before))
            }
            Reply::Ack { .. } | Reply::Nak { .. } | Reply::Rnr { .. } => None,
        }
    }

    /// What was granted when the request came is no longer there.
    fn refuse_answer(&mut self, cx: &mut Cx<'_>, name: u32, psn: u64) {
        let entered = self.enter_error(cx, name);
        self.acknowledge(cx, name, psn, AckCode::Nak(Nak::Access));
        if entered {
            self.qp_event(cx, name, rerail_verbs::contract::AsyncEvent::QpAccessError);
        }
    }
}

fn atomic_answer(psn: u64, before: u64) -> Outgoing {
    Outgoing { psn, load: Load::AtomicResponse { before }, read_bytes: 8, first: true, control: false }
}
