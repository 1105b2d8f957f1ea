//! The receiving side of a connected queue pair (InfiniBand specification, 9.7.4 and 9.9.3): checks each
//! packet, moves its data towards memory, and decides what has to be answered. What comes twice is answered
//! again and not done again.

use rerail_verbs::contract::{AsyncEvent, Completion, CompletionKind, QpKind, QpState, Remote, Status};

use super::body::{Body, Landing, Nak, Place, Request, RequestOp};
use super::core::{Cx, Hca};
use super::flush::receive_completion;
use super::memory::Touch;
use super::object::{RecvWork, cut};
use super::qp::{Arrived, Message, MessageKind, Reply, Served, packets, widen};

/// Why a request is not carried out.
enum Refusal {
    /// No receive: the peer shall come again.
    NotReady,
    /// The peer's request is wrong: this queue pair goes to the error state, and so does the peer's.
    Nak(Nak),
    /// The receive in use ends with this status, the peer is notified.
    Receive(Status, Nak),
}

impl Hca {
    /// A request has come for a queue pair.
    pub fn on_request(&mut self, cx: &mut Cx<'_>, name: u32, psn: u32, request: Request) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        if !qp.receives() || !matches!(qp.kind, QpKind::Rc | QpKind::XrcTarget) {
            return;
        }
        if qp.state == QpState::Rtr && !std::mem::replace(&mut qp.responder.established, true) {
            self.qp_event(cx, name, AsyncEvent::CommEstablished);
        }
        let Some(qp) = self.qps.get_mut(name) else { return };
        let responder = &mut qp.responder;
        let psn = widen(responder.expected, psn);
        if psn > responder.expected {
            // Something is missing: reported once, then silence until it comes (9.7.4.1.1).
            if !std::mem::replace(&mut responder.reported, true) {
                let psn = responder.expected;
                self.reply(cx, name, Reply::Nak { psn, nak: Nak::Sequence });
            }
            return;
        }
        if psn < responder.expected {
            self.on_duplicate(cx, name, psn, &request);
            return;
        }
        responder.reported = false;
        let (ack, answers) = (request.ack, packets_of(&request, qp.mtu()));
        match self.carry_out(cx, name, psn, request) {
            Ok(replied) => {
                if let Some(qp) = self.qps.get_mut(name) {
                    qp.responder.expected += answers;
                }
                if ack && !replied {
                    self.reply(cx, name, Reply::Ack { psn });
                }
            }
            Err(Refusal::NotReady) => {
                if let Some(qp) = self.qps.get_mut(name) {
                    qp.responder.reported = true;
                }
                self.reply(cx, name, Reply::Rnr { psn });
            }
            Err(Refusal::Nak(nak)) => {
                if self.fail_responder(cx, name, psn, nak) {
                    let event = match nak {
                        Nak::Access => AsyncEvent::QpAccessError,
                        _ => AsyncEvent::QpRequestError,
                    };
                    self.qp_event(cx, name, event);
                }
            }
            Err(Refusal::Receive(status, nak)) => {
                self.keeping_replies(cx, name, |hca, cx| hca.fail_receive(cx, name, status));
                self.reply(cx, name, Reply::Nak { psn, nak });
            }
        }
    }

    /// A request of the peer sends this queue pair to the error state: what was requested before is still
    /// answered, then the peer receives the reason. `false`: it was in that state.
    fn fail_responder(&mut self, cx: &mut Cx<'_>, name: u32, psn: u64, nak: Nak) -> bool {
        let entered = self.keeping_replies(cx, name, |hca, cx| hca.enter_error(cx, name));
        self.reply(cx, name, Reply::Nak { psn, nak });
        entered
    }

    fn keeping_replies<T>(&mut self, cx: &mut Cx<'_>, name: u32, run: impl FnOnce(&mut Self, &mut Cx<'_>) -> T) -> T {
        let kept = self.qps.get_mut(name).map(|qp| std::mem::take(&mut qp.responder.replies));
        let result = run(self, cx);
        if let (Some(qp), Some(kept)) = (self.qps.get_mut(name), kept) {
            qp.responder.replies = kept;
        }
        result
    }

    /// Carries out the expected packet; `true`: it has its own reply.
    fn carry_out(&mut self, cx: &mut Cx<'_>, name: u32, psn: u64, request: Request) -> Result<bool, Refusal> {
        let broken = Refusal::Nak(Nak::Invalid);
        let Some(qp) = self.qps.get(name) else { return Err(broken) };
        let goes_on = match qp.responder.message.as_ref().map(|message| &message.kind) {
            None => request.first,
            Some(MessageKind::Send { .. }) => !request.first && request.op == RequestOp::Send,
            Some(MessageKind::Write { .. }) => !request.first && matches!(request.op, RequestOp::Write { .. }),
        };
        let oversized =
            request.data.len() > qp.mtu() as usize || !request.last && request.data.len() != qp.mtu() as usize;
        if !goes_on || oversized {
            return Err(broken);
        }
        match request.op {
            RequestOp::Send => self.carry_out_send(cx, name, request).map(|()| false),
            RequestOp::Write { to, bytes } => self.carry_out_write(cx, name, to, bytes, request).map(|()| false),
            RequestOp::Read { from, bytes } => self.accept_read(cx, name, psn, from, bytes, &request).map(|()| true),
            RequestOp::CompareSwap { at, .. } | RequestOp::FetchAdd { at, .. } => {
                self.accept_atomic(cx, name, psn, at, &request).map(|()| true)
            }
        }
    }

    fn carry_out_send(&mut self, cx: &mut Cx<'_>, name: u32, request: Request) -> Result<(), Refusal> {
        if request.first {
            let work = self.take_receive(cx, name, &request)?;
            if let Some(qp) = self.qps.get_mut(name) {
                qp.responder.message = Some(Message { got: 0, kind: MessageKind::Send { work } });
            }
        }
        let Some(qp) = self.qps.get(name) else { return Err(Refusal::Nak(Nak::Invalid)) };
        let Some(Message { got, kind: MessageKind::Send { work } }) = &qp.responder.message else {
            return Err(Refusal::Nak(Nak::Invalid));
        };
        let (got, len) = (*got, request.data.len() as u32);
        if u64::from(got) + u64::from(len) > work.capacity() {
            return Err(Refusal::Receive(Status::LocalLength, Nak::Invalid));
        }
        let pieces = cut(&work.sges, got.into(), len.into());
        let pd = work.srq.and_then(|srq| self.srqs.get(srq)).map(|srq| srq.pd).or(qp.pd).unwrap_or(0);
        if !self.check_list(pd, &pieces, Touch::LocalWrite) {
            return Err(Refusal::Receive(Status::LocalProtection, Nak::Operation));
        }
        let (last, immediate, solicited) = (request.last, request.immediate, request.solicited);
        self.land(cx, name, Place::Receive { pd, pieces }, request.data);
        let Some(qp) = self.qps.get_mut(name) else { return Ok(()) };
        if let Some(message) = &mut qp.responder.message {
            message.got += len;
        }
        if last && let Some(work) = qp.responder.message.take().and_then(Message::into_receive) {
            let bytes = got + len;
            let completion = Completion { bytes, immediate, ..receive_completion(qp.number, work.id) };
            let after = qp.responder.requests;
            qp.responder.arrived.push_back(Arrived { work, completion, solicited, after });
        }
        Ok(())
    }

    fn carry_out_write(
        &mut self,
        cx: &mut Cx<'_>,
        name: u32,
        to: Remote,
        bytes: u32,
        request: Request,
    ) -> Result<(), Refusal> {
        let invalid = Refusal::Nak(Nak::Invalid);
        let Some(qp) = self.qps.get(name) else { return Err(invalid) };
        let len = request.data.len() as u32;
        let (mr, address, bytes, got) = match &qp.responder.message {
            Some(Message { got, kind: MessageKind::Write { mr, address, bytes } }) => (*mr, *address, *bytes, *got),
            _ => {
                let mr = self.check_remote(name, to, bytes, Touch::RemoteWrite, &request)?;
                (mr, to.address, bytes, 0)
            }
        };
        if u64::from(got) + u64::from(len) > bytes.into() || request.last && got + len != bytes {
            return Err(invalid);
        }
        // The receive is taken with the last packet; without one, the packet comes again.
        let work = match request.last && request.immediate.is_some() {
            true => Some(self.take_receive(cx, name, &request)?),
            false => None,
        };
        let (last, immediate, solicited) = (request.last, request.immediate, request.solicited);
        let place = Place::Write { mr, address: address.wrapping_add(got.into()) };
        self.land(cx, name, place, request.data);
        let Some(qp) = self.qps.get_mut(name) else { return Ok(()) };
        let kind = MessageKind::Write { mr, address, bytes };
        qp.responder.message = if last { None } else { Some(Message { got: got + len, kind }) };
        if let Some(work) = work {
            let kind = CompletionKind::RecvWrite;
            let completion = Completion { bytes, immediate, kind, ..receive_completion(qp.number, work.id) };
            let after = qp.responder.requests;
            qp.responder.arrived.push_back(Arrived { work, completion, solicited, after });
        }
        Ok(())
    }

    fn accept_read(
        &mut self,
        cx: &mut Cx<'_>,
        name: u32,
        psn: u64,
        from: Remote,
        bytes: u32,
        request: &Request,
    ) -> Result<(), Refusal> {
        let mr = self.check_remote(name, from, bytes, Touch::RemoteRead, request)?;
        let Some(qp) = self.qps.get_mut(name) else { return Ok(()) };
        let packets = packets(bytes, qp.mtu());
        qp.serve(Served { psn, packets, atomic: None })?;
        let after = qp.responder.requests;
        self.reply(cx, name, Reply::Read { psn, mr, address: from.address, bytes, after });
        Ok(())
    }

    fn accept_atomic(
        &mut self,
        cx: &mut Cx<'_>,
        name: u32,
        psn: u64,
        at: Remote,
        request: &Request,
    ) -> Result<(), Refusal> {
        if !self.limits.atomics || !at.address.is_multiple_of(8) {
            return Err(Refusal::Nak(Nak::Invalid));
        }
        let mr = self.check_remote(name, at, 8, Touch::RemoteAtomic, request)?;
        let Some(qp) = self.qps.get_mut(name) else { return Ok(()) };
        qp.serve(Served { psn, packets: 1, atomic: Some(None) })?;
        let after = qp.responder.requests;
        self.reply(cx, name, Reply::Atomic { psn, mr, op: request.op, after });
        Ok(())
    }

    /// Whether a peer may touch that memory through this queue pair; which registration it is (0 where there
    /// are no bytes, for which no key is looked at: 9.7.4.1.2).
    fn check_remote(&self, name: u32, at: Remote, bytes: u32, touch: Touch, request: &Request) -> Result<u32, Refusal> {
        let Some(qp) = self.qps.get(name) else { return Err(Refusal::Nak(Nak::Invalid)) };
        let access = qp.attributes.access.unwrap_or_default();
        let open = match touch {
            Touch::RemoteRead => access.remote_read,
            Touch::RemoteWrite => access.remote_write,
            _ => access.remote_atomic,
        };
        if !open {
            return Err(Refusal::Nak(CLOSED));
        }
        if bytes == 0 {
            return Ok(0);
        }
        let found = self.pds_of(name, request)?;
        let mr = found.into_iter().find_map(|pd| self.check(pd, at.rkey, at.address, bytes.into(), touch));
        mr.ok_or(Refusal::Nak(Nak::Access))
    }

    /// The protection domains that a peer's keys may belong to. An XRC target has none of its own: that of
    /// the shared receive queue named counts (annex A14); where none is named, those of all queues of its
    /// domain.
    fn pds_of(&self, name: u32, request: &Request) -> Result<Vec<u32>, Refusal> {
        let invalid = || Refusal::Nak(Nak::Invalid);
        let qp = self.qps.get(name).ok_or_else(invalid)?;
        let Some(domain) = qp.domain else { return Ok(qp.pd.into_iter().collect()) };
        let pd = |srq: u32| self.srqs.get(srq).map(|srq| srq.pd);
        match request.srq_number {
            Some(number) => {
                let srq = self.srq_numbered(domain, number).ok_or_else(invalid)?;
                Ok(pd(srq).into_iter().collect())
            }
            None => {
                let domain = self.domains.get(domain).ok_or_else(invalid)?;
                Ok(domain.queues.iter().filter_map(|srq| pd(*srq)).collect())
            }
        }
    }

    /// The receive that a message takes.
    fn take_receive(&mut self, cx: &mut Cx<'_>, name: u32, request: &Request) -> Result<RecvWork, Refusal> {
        let Some(qp) = self.qps.get_mut(name) else { return Err(Refusal::Nak(Nak::Invalid)) };
        let srq = match (qp.domain, request.srq_number) {
            (Some(domain), Some(number)) => Some(self.srq_numbered(domain, number).ok_or(Refusal::Nak(Nak::Invalid))?),
            (Some(_), None) => return Err(Refusal::Nak(Nak::Invalid)),
            (None, _) => qp.srq,
        };
        let work = match srq {
            Some(srq) => self.take_shared(cx, srq),
            None => self.qps.get_mut(name).and_then(|qp| qp.responder.queue.pop_front()),
        };
        work.ok_or(Refusal::NotReady)
    }

    /// A packet that was carried out before (9.7.5.1.2).
    fn on_duplicate(&mut self, cx: &mut Cx<'_>, name: u32, psn: u64, request: &Request) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        let served = qp.responder.served.iter();
        let served = served.copied().find(|served| (served.psn..served.psn + u64::from(served.packets)).contains(&psn));
        match request.op {
            RequestOp::Send | RequestOp::Write { .. } => {
                if request.ack {
                    let psn = qp.responder.expected - 1;
                    self.reply(cx, name, Reply::Ack { psn });
                }
            }
            RequestOp::Read { from, bytes } => {
                if served.is_none_or(|served| served.atomic.is_some()) {
                    return;
                }
                let mtu = qp.mtu();
                let Ok(mr) = self.check_remote(name, from, bytes, Touch::RemoteRead, request) else { return };
                let Some(qp) = self.qps.get_mut(name) else { return };
                let end = psn + u64::from(packets(bytes, mtu));
                let old = |reply: &Reply| matches!(reply, Reply::Read { psn: at, .. } if (psn..end).contains(at));
                qp.responder.replies.retain(|reply| !old(reply));
                let after = qp.responder.requests;
                self.reply(cx, name, Reply::Read { psn, mr, address: from.address, bytes, after });
            }
            RequestOp::CompareSwap { .. } | RequestOp::FetchAdd { .. } => {
                // One that has fallen out of the table gets no answer; one that waits gets its own.
                if let Some(Served { atomic: Some(Some(before)), psn, .. }) = served {
                    self.reply(cx, name, Reply::Replay { psn, before });
                }
            }
        }
    }

    /// Sends data on their way into memory; the completion waits for them, the acknowledgment does not.
    fn land(&mut self, cx: &mut Cx<'_>, name: u32, place: Place, data: Vec<u8>) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        qp.responder.requests += 1;
        let landing = Landing { qp: name, life: qp.life, place, data };
        let port = usize::from(qp.port()) - 1;
        // No data are a write too: that of the completion. So everything stays in order.
        let bytes = (landing.data.len() as u32).max(1);
        if let Some(port) = self.ports.get(port) {
            cx.net.write_memory(cx.now, port.id, bytes, Body::Landing(Box::new(landing)));
        }
    }

    /// Data that came with a request are to be in memory now.
    pub fn request_landed(&mut self, cx: &mut Cx<'_>, landing: &Landing) {
        let Some(qp) = self.qps.get_mut(landing.qp).filter(|qp| qp.life == landing.life) else { return };
        qp.responder.landed += 1;
        let landed = match &landing.place {
            Place::Receive { pd, pieces } => self.scatter(*pd, pieces, &landing.data),
            Place::Write { mr, address } => {
                let memory = self.mrs.get(*mr).map(|mr| &mr.memory);
                landing.data.is_empty() || memory.is_some_and(|memory| memory.write(*address, &landing.data))
            }
            Place::Response { .. } => true,
        };
        if !landed {
            self.failed_landing(cx, landing);
        }
        self.deliver(cx, landing.qp);
        // An answer may have waited for this write.
        self.ring(landing.qp);
    }

    /// The memory is not registered any more: the receive ends with an error, the queue pair is in error.
    fn failed_landing(&mut self, cx: &mut Cx<'_>, landing: &Landing) {
        let Some(qp) = self.qps.get_mut(landing.qp) else { return };
        let receive = matches!(landing.place, Place::Receive { .. });
        let landed = qp.responder.landed;
        match qp.responder.arrived.iter_mut().find(|arrived| arrived.after >= landed) {
            // The process behind an XRC queue is gone with its queue: no process waits, and others share the
            // connection.
            Some(arrived) if arrived.work.srq.is_some_and(|srq| self.srqs.get(srq).is_none()) => return,
            Some(arrived) if receive => arrived.completion.status = Status::LocalAccess,
            _ if receive => {
                // Its message has not all come: it is the one being filled.
                self.fail_receive(cx, landing.qp, Status::LocalAccess);
                return;
            }
            _ => {}
        }
        if self.enter_error(cx, landing.qp) && !receive {
            self.qp_event(cx, landing.qp, AsyncEvent::QpAccessError);
        }
    }
}

/// The answer to a peer that uses an operation which the queue pair's access flags don't allow (9.7.4.1.5:
/// the operation is not supported by this receive queue).
const CLOSED: Nak = Nak::Access;

impl super::qp::Qp {
    /// Remembers a read or an atomic, if one more may be open.
    fn serve(&mut self, served: Served) -> Result<(), Refusal> {
        let most = usize::from(self.attributes.reads_served.unwrap_or(0));
        let open = |reply: &&Reply| matches!(reply, Reply::Read { .. } | Reply::Atomic { .. });
        if self.responder.replies.iter().filter(open).count() >= most {
            return Err(Refusal::Nak(Nak::Invalid));
        }
        while self.responder.served.len() >= most {
            self.responder.served.pop_front();
        }
        self.responder.served.push_back(served);
        Ok(())
    }
}

/// Sequence numbers that a packet takes: a read takes those of its answer.
fn packets_of(request: &Request, mtu: u32) -> u64 {
    match request.op {
        RequestOp::Read { bytes, .. } => packets(bytes, mtu).into(),
        _ => 1,
    }
}
