//! The sending side of a connected queue pair (InfiniBand specification, 9.7.2 to 9.7.8): packets with their
//! sequence numbers, retransmission from the oldest packet that was not answered (go back N), waiting where
//! the peer had no receive. And datagrams, which are over when they are sent.

use rerail_core::time::{Nanos, Time};
use rerail_verbs::contract::{QpKind, QpState, SendOp, Status, ack_timeout_ns, rnr_timer_ns};

use super::body::{AckCode, Body, Landing, Load, Nak, Place, Request, RequestOp};
use super::core::{Cx, Hca};
use super::memory::Touch;
use super::object::cut;
use super::qp::{Qp, SendWork, packets, widen};
use super::service::Outgoing;

/// Packets that may be under way at most: half of what sequence numbers distinguish, less some room.
const WINDOW: u64 = (1 << 23) - 1024;

/// In a long message, every so many packets request an acknowledgment.
const ACK_EVERY: u32 = 64;

/// The longest message (InfiniBand specification, 9.7.7): 2^31 bytes.
pub(super) const MESSAGE_BYTES_MAX: u32 = 1 << 31;

/// What the next request may do.
enum Turn {
    Go,
    Wait,
    Fail(Status),
    Skip,
}

impl Hca {
    /// The next packet of the send queue, if one may go.
    pub fn next_request(&mut self, cx: &mut Cx<'_>, name: u32) -> Option<Outgoing> {
        loop {
            let qp = self.qps.get(name)?;
            let (position, packet) = qp.requester.next;
            let runs = matches!(qp.state, QpState::Rts | QpState::Sqd);
            let halted = qp.requester.failing.is_some() || qp.requester.refused.is_some();
            if !runs || halted || qp.requester.rnr_until.is_some() {
                return None;
            }
            let work = qp.requester.at(position)?;
            let begun = position < qp.requester.begun;
            if begun && (work.swallowed || packet >= work.packets) {
                self.qps.get_mut(name)?.requester.next = (position + 1, 0);
                continue;
            }
            let here_at = self.here_at(qp, work, packet);
            if here_at > cx.now {
                self.qps.get_mut(name)?.requester.doorbell = Some(here_at);
                self.set_alarm(cx, name);
                return None;
            }
            if begun {
                return self.request_packet(cx, name, position, packet);
            }
            match self.may_begin(qp, position, work) {
                Turn::Wait => return None,
                Turn::Fail(status) => {
                    // Those before it end first: then it is its turn again.
                    if position == qp.requester.base {
                        self.qps.get_mut(name)?.faults.fail_next = None;
                        self.fail_send(cx, name, position, status);
                    }
                    return None;
                }
                turn => {
                    let qp = self.qps.get_mut(name)?;
                    let (mtu, kind) = (qp.mtu(), qp.kind);
                    let requester = &mut qp.requester;
                    let first = requester.next_psn;
                    requester.begun = position + 1;
                    let swallowed = matches!(turn, Turn::Skip);
                    let work = requester.at_mut(position)?;
                    let id = work.id;
                    work.swallowed = swallowed;
                    work.first_psn = first;
                    work.packets = match work.op {
                        _ if swallowed => 0,
                        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => 1,
                        _ if kind == QpKind::Ud => 1,
                        _ => packets(work.bytes, mtu),
                    };
                    requester.next_psn += u64::from(requester.at(position)?.packets);
                    if swallowed {
                        self.qps.get_mut(name)?.faults.take_swallowed(id);
                        self.retire(cx, name);
                    }
                }
            }
        }
    }

    /// When the HCA has what it needs for a packet of a request: once it is posted, and by programmed I/O
    /// once the packet's last byte is carried over.
    fn here_at(&self, qp: &Qp, work: &SendWork, packet: u32) -> Time {
        let carried =
            if qp.kind == QpKind::Ud { work.bytes } else { packet.saturating_add(1).saturating_mul(qp.mtu()) };
        self.cost.carried_at(work.posted_ps, if work.by_pio { carried.min(work.bytes) } else { 0 })
    }

    /// Whether a request that was never begun may begin (fence: 10.8.3.3; limit of reads: 9.7.3.3).
    fn may_begin(&self, qp: &Qp, position: u64, work: &SendWork) -> Turn {
        let requester = &qp.requester;
        if qp.state == QpState::Sqd || requester.next_psn - requester.acked > WINDOW {
            return Turn::Wait;
        }
        if let Some(status) = qp.faults.fail_next {
            return Turn::Fail(status);
        }
        if work.fence && requester.reads_open(position) > 0 {
            return Turn::Wait;
        }
        let longest = if qp.kind == QpKind::Ud { self.mtu_bytes.into() } else { MESSAGE_BYTES_MAX };
        if work.bytes > longest {
            return Turn::Fail(Status::LocalLength);
        }
        if work.is_read() {
            let limit = u32::from(qp.attributes.reads_open.unwrap_or(0));
            if limit == 0 {
                return Turn::Fail(Status::LocalOperation);
            }
            if requester.reads_open(position) >= limit {
                return Turn::Wait;
            }
        }
        let touch = if work.is_read() { Touch::LocalWrite } else { Touch::LocalRead };
        if !self.check_list(qp.pd.unwrap_or(0), &work.sges, touch) {
            return Turn::Fail(Status::LocalProtection);
        }
        if qp.faults.swallows(work.id) { Turn::Skip } else { Turn::Go }
    }

    /// Makes one packet of a request that was begun, and moves on behind it.
    fn request_packet(&mut self, cx: &mut Cx<'_>, name: u32, position: u64, packet: u32) -> Option<Outgoing> {
        let qp = self.qps.get(name)?;
        let (mtu, work) = (qp.mtu(), qp.requester.at(position)?);
        let psn = work.first_psn + u64::from(packet);
        let (first, last) = (packet == 0, packet + 1 == work.packets || work.is_read());
        let skip = u64::from(packet) * u64::from(mtu);
        let rest = u64::from(work.bytes) - skip;
        let data = match (&work.inline, work.is_read()) {
            (_, true) => Some(Vec::new()),
            (Some(inline), _) => {
                let skip = skip as usize;
                let end = if qp.kind == QpKind::Ud { inline.len() } else { inline.len().min(skip + mtu as usize) };
                Some(inline[skip..end].to_vec())
            }
            (None, _) => {
                let len = if qp.kind == QpKind::Ud { rest } else { rest.min(mtu.into()) };
                self.gather(qp.pd.unwrap_or(0), &cut(&work.sges, skip, len))
            }
        };
        let Some(data) = data else {
            // The memory was there when the request began, and is not any more.
            self.fail_send(cx, name, position, Status::LocalProtection);
            return None;
        };
        let read_bytes = if work.inline.is_some() || work.by_pio { 0 } else { data.len() as u32 };
        let immediate = match work.op {
            SendOp::Send { immediate } | SendOp::Write { immediate, .. } if last => immediate,
            _ => None,
        };
        if let Some(datagram) = work.datagram {
            let global = datagram.address.global.map(|global| self.global_header(qp, &global, data.len()));
            let (qkey, solicited) = (datagram.qkey, work.solicited);
            let load = Load::Datagram(super::body::DatagramLoad { qkey, immediate, solicited, global, data });
            self.datagram_sent(name, position, psn);
            return Some(Outgoing { psn, load, read_bytes, first: true, control: false });
        }
        let op = match work.op {
            SendOp::Send { .. } => RequestOp::Send,
            SendOp::Write { to, .. } => RequestOp::Write { to, bytes: work.bytes },
            SendOp::Read { from } => {
                let from = rerail_verbs::contract::Remote { address: from.address.wrapping_add(skip), ..from };
                RequestOp::Read { from, bytes: rest as u32 }
            }
            SendOp::CompareSwap { at, compare, swap } => RequestOp::CompareSwap { at, compare, swap },
            SendOp::FetchAdd { at, add } => RequestOp::FetchAdd { at, add },
        };
        let ack = last || packet % ACK_EVERY == ACK_EVERY - 1;
        let (solicited, srq_number) = (work.solicited && last, work.srq_number);
        let request = Request { op, first, last, ack, solicited, immediate, srq_number, data };
        let qp = self.qps.get_mut(name)?;
        qp.requester.next = if last { (position + 1, 0) } else { (position, packet + 1) };
        if ack && qp.requester.deadline.is_none() {
            qp.requester.deadline = ack_deadline(qp, cx.now);
            self.set_alarm(cx, name);
        }
        Some(Outgoing { psn, load: Load::Request(request), read_bytes, first, control: false })
    }

    /// A datagram is over when it is on its way. The completion comes with the next entry of the ring.
    fn datagram_sent(&mut self, name: u32, position: u64, psn: u64) {
        if let Some(qp) = self.qps.get_mut(name) {
            qp.requester.next = (position + 1, 0);
            qp.requester.acked = psn + 1;
        }
    }

    /// An acknowledgment has come.
    pub fn on_ack(&mut self, cx: &mut Cx<'_>, name: u32, psn: u32, code: AckCode) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        let psn = widen(qp.requester.acked, psn);
        if !qp.sends() || psn >= qp.requester.next_psn || psn < qp.requester.acked {
            // Of another life, or late: what it acknowledges is known.
            return;
        }
        let before = if code == AckCode::Ok { psn + 1 } else { psn };
        self.acknowledged(cx, name, before);
        let Some(qp) = self.qps.get_mut(name) else { return };
        match code {
            AckCode::Ok => {}
            AckCode::Rnr(code) => {
                if qp.requester.rnr_left == 0 {
                    self.refused(cx, name, psn, Status::RnrRetryExceeded);
                    return;
                }
                // 7 is without end (9.7.5.2.8).
                if qp.attributes.rnr_retry != Some(7) {
                    qp.requester.rnr_left -= 1;
                }
                if let Some(at) = qp.requester.packet_of(psn) {
                    qp.requester.next = at;
                }
                qp.requester.deadline = None;
                qp.requester.rnr_until = Some(cx.now + Nanos(rnr_timer_ns(code).unwrap_or(0)));
                self.set_alarm(cx, name);
            }
            AckCode::Nak(Nak::Sequence) => {
                let at = qp.requester.packet_of(psn);
                self.go_back(cx, name, at);
            }
            AckCode::Nak(Nak::Invalid) => self.refused(cx, name, psn, Status::RemoteInvalid),
            AckCode::Nak(Nak::Access) => self.refused(cx, name, psn, Status::RemoteAccess),
            AckCode::Nak(Nak::Operation) => self.refused(cx, name, psn, Status::RemoteOperation),
        }
    }

    /// Everything before this PSN has arrived at the peer.
    fn acknowledged(&mut self, cx: &mut Cx<'_>, name: u32, before: u64) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        if before <= qp.requester.acked {
            return;
        }
        qp.requester.acked = before;
        self.progress(cx, name);
    }

    /// The peer has answered something new: all retries are left again, the timer starts anew.
    fn progress(&mut self, cx: &mut Cx<'_>, name: u32) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        qp.restore_retries();
        let waits = qp.requester.oldest_open().is_some_and(|oldest| oldest < qp.requester.next);
        qp.requester.deadline = if waits { ack_deadline(qp, cx.now) } else { None };
        self.set_alarm(cx, name);
        self.retire(cx, name);
        self.check_refused(cx, name);
    }

    /// Sends again from this packet on, if there are retries left.
    fn go_back(&mut self, cx: &mut Cx<'_>, name: u32, to: Option<(u64, u32)>) {
        let (Some(qp), Some(to)) = (self.qps.get_mut(name), to) else { return };
        if qp.requester.retries_left == 0 {
            self.fail_send(cx, name, to.0, Status::RetryExceeded);
            return;
        }
        qp.requester.retries_left -= 1;
        qp.requester.next = to;
        qp.requester.deadline = ack_deadline(qp, cx.now);
        self.set_alarm(cx, name);
        self.ring(name);
    }

    /// The peer has refused the request that this PSN belongs to. What it had answered before may still be on
    /// its way: the refusal counts behind it.
    fn refused(&mut self, cx: &mut Cx<'_>, name: u32, psn: u64, status: Status) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        let Some((position, _)) = qp.requester.packet_of(psn) else { return };
        qp.requester.refused.get_or_insert((position, status));
        self.check_refused(cx, name);
    }

    /// A refusal counts as soon as all reads before it are answered.
    fn check_refused(&mut self, cx: &mut Cx<'_>, name: u32) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        let Some((position, status)) = qp.requester.refused else { return };
        if qp.requester.reads_open(position) == 0 {
            qp.requester.refused = None;
            self.fail_send(cx, name, position, status);
        }
    }

    /// A packet of what was read, or the value before an atomic.
    pub fn on_response(&mut self, cx: &mut Cx<'_>, name: u32, psn: u32, load: Load) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        if !qp.sends() {
            return;
        }
        let (mtu, life, pd) = (qp.mtu(), qp.life, qp.pd.unwrap_or(0));
        let requester = &qp.requester;
        let psn = widen(requester.acked, psn);
        let Some((position, packet)) = requester.packet_of(psn) else { return };
        let Some(work) = requester.at(position).filter(|work| work.is_read()) else { return };
        if packet < work.answered {
            return;
        }
        let missing = (requester.base..position).find(|&before| {
            requester.at(before).is_some_and(|work| work.is_read() && !work.swallowed && work.answered < work.packets)
        });
        if packet > work.answered || missing.is_some() {
            // Something before it is lost: an implied negative acknowledgment (9.7.5.1.3).
            let gap = requester.oldest_open();
            if gap.is_some() && gap != requester.gap {
                qp.requester.gap = gap;
                self.go_back(cx, name, gap);
            }
            return;
        }
        let (data, is_atomic) = match load {
            Load::ReadResponse { data } => (data, false),
            Load::AtomicResponse { before } => (before.to_ne_bytes().to_vec(), true),
            _ => return,
        };
        let skip = u64::from(packet) * u64::from(mtu);
        let expected = if is_atomic { 8 } else { (u64::from(work.bytes) - skip).min(mtu.into()) };
        if data.len() as u64 != expected || is_atomic == matches!(work.op, SendOp::Read { .. }) {
            self.fail_send(cx, name, position, Status::BadResponse);
            return;
        }
        let pieces = cut(&work.sges, skip, expected);
        if !self.check_list(pd, &pieces, Touch::LocalWrite) {
            self.fail_send(cx, name, position, Status::LocalProtection);
            return;
        }
        let Some(qp) = self.qps.get_mut(name) else { return };
        let port = usize::from(qp.port()) - 1;
        if let Some(work) = qp.requester.at_mut(position) {
            work.answered += 1;
        }
        qp.requester.gap = None;
        qp.requester.acked = qp.requester.acked.max(psn + 1);
        let landing = Landing { qp: name, life, place: Place::Response { request: position, pieces }, data };
        let bytes = (landing.data.len() as u32).max(1);
        if let Some(port) = self.ports.get(port) {
            cx.net.write_memory(cx.now, port.id, bytes, Body::Landing(Box::new(landing)));
        }
        self.progress(cx, name);
    }

    /// An answer is to be in memory now.
    pub fn response_landed(&mut self, cx: &mut Cx<'_>, landing: &Landing) {
        let Place::Response { request, pieces } = &landing.place else { return };
        let Some(qp) = self.qps.get(landing.qp).filter(|qp| qp.life == landing.life) else { return };
        // A flushed read's memory is its owner's again.
        if qp.requester.at(*request).is_none() {
            return;
        }
        if !self.scatter(qp.pd.unwrap_or(0), pieces, &landing.data) {
            self.fail_send(cx, landing.qp, *request, Status::LocalProtection);
            return;
        }
        if let Some(work) = self.qps.get_mut(landing.qp).and_then(|qp| qp.requester.at_mut(*request)) {
            work.landed += 1;
        }
        self.retire(cx, landing.qp);
    }

    /// A queue pair's alarm goes off.
    pub fn on_alarm(&mut self, cx: &mut Cx<'_>, name: u32, life: u32) {
        let Some(qp) = self.qps.get_mut(name).filter(|qp| qp.life == life) else { return };
        if qp.alarm.is_some_and(|alarm| alarm <= cx.now) {
            qp.alarm = None;
        }
        if qp.requester.rnr_until.is_some_and(|until| until <= cx.now) {
            qp.requester.rnr_until = None;
            self.ring(name);
        }
        if self.qps.get_mut(name).is_some_and(|qp| qp.requester.doorbell.take_if(|rung| *rung <= cx.now).is_some()) {
            self.ring(name);
        }
        let Some(qp) = self.qps.get_mut(name) else { return };
        if qp.requester.deadline.is_some_and(|deadline| deadline <= cx.now) {
            qp.requester.deadline = None;
            let oldest = qp.requester.oldest_open();
            match qp.requester.refused.take() {
                // The answers before the refusal are lost, and the peer gives no more.
                Some((position, status)) => self.fail_send(cx, name, position, status),
                None => self.go_back(cx, name, oldest),
            }
        }
        self.set_alarm(cx, name);
    }
}

impl Qp {
    /// Whether answers to what it has sent still count.
    fn sends(&self) -> bool {
        matches!(self.state, QpState::Rts | QpState::Sqd)
    }
}

fn ack_deadline(qp: &Qp, now: Time) -> Option<Time> {
    ack_timeout_ns(qp.attributes.timeout.unwrap_or(0)).map(|timeout| now + Nanos(timeout))
}
