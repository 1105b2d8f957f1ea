//! Queue pairs: made, brought to a state, connected.

use rerail_verbs::contract::{
    Access, AddressVector, Attr, Attrs, CqId, PdId, QpCaps, QpChange, QpId, QpInfo, QpInit, QpKind, QpState, Srq,
    SrqId, SrqInit, XrcSrqInit, XrcdFile, XrcdId, demanded,
};

use super::Bed;
use crate::failure::{Check, Failure};
use crate::testbed::{End, Need};

/// The queue key of datagram queue pairs.
pub(crate) const QKEY: u32 = 0x1234;

/// Depth of completion queues for which a case sets no other.
const CQ_DEPTH: u32 = 64;

/// A queue pair, with the properties that cases need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub end: End,
    pub id: QpId,
    pub number: u32,
    pub kind: QpKind,
    send_cq: Option<CqId>,
    recv_cq: Option<CqId>,
}

impl Queue {
    /// Where completions of its sends go.
    pub fn send_cq(&self) -> Check<CqId> {
        self.send_cq.ok_or_else(|| Failure::Testbed("a case looks for sends of a queue pair that has none".into()))
    }

    /// Where completions of its receives go.
    pub fn recv_cq(&self) -> Check<CqId> {
        self.recv_cq.ok_or_else(|| Failure::Testbed("a case looks for receives of a queue pair that has none".into()))
    }
}

/// What a queue pair is made with, where it is not the usual.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub kind: QpKind,
    /// Of both queues.
    pub depth: u32,
    pub sges: u32,
    pub inline_bytes: u32,
    pub signal_all: bool,
    pub srq: Option<SrqId>,
    pub domain: Option<XrcdId>,
    /// `None`: the end's own.
    pub pd: Option<PdId>,
    /// For both queues; `None`: a new one for each.
    pub cq: Option<CqId>,
}

impl Spec {
    pub const fn of(kind: QpKind) -> Spec {
        Spec {
            kind,
            depth: 16,
            sges: 1,
            inline_bytes: 0,
            signal_all: false,
            srq: None,
            domain: None,
            pd: None,
            cq: None,
        }
    }

    pub const RC: Spec = Spec::of(QpKind::Rc);
    pub const UD: Spec = Spec::of(QpKind::Ud);
}

/// The parameters of a connection, of both ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpParameters {
    /// What each end allows the other; `None`: everything.
    pub access: Option<Access>,
    pub path_mtu: u16,
    pub timeout: u8,
    pub retry_count: u8,
    pub rnr_retry: u8,
    pub rnr_timer: u8,
    /// Reads that each end has open, and that it serves; less where the device can do less.
    pub reads: u8,
    pub psn: u32,
    /// Offset from the base LID.
    pub path: u16,
}

impl QpParameters {
    /// Patient: nothing that comes late fails.
    pub const USUAL: QpParameters = QpParameters {
        access: None,
        path_mtu: 1024,
        // 67 ms, far over any round trip.
        timeout: 14,
        retry_count: 7,
        rnr_retry: 7,
        // 0.64 ms.
        rnr_timer: 12,
        reads: 4,
        psn: 100,
        path: 0,
    };

    /// For cases that wait for a failure: one retry.
    pub const SHORT_TIMEOUT: QpParameters =
        QpParameters { timeout: 12, retry_count: 1, rnr_retry: 1, ..QpParameters::USUAL };
}

impl Bed<'_> {
    /// Makes a queue pair.
    pub(crate) fn queue(&mut self, end: End, spec: Spec) -> Check<Queue> {
        let init = self.init(end, spec)?;
        let qp = self.device(end).create_qp(&init)?;
        let (send_cq, recv_cq) = (init.send_cq, init.recv_cq);
        Ok(Queue { end, id: qp.id, number: qp.number, kind: spec.kind, send_cq, recv_cq })
    }

    /// What [`queue`](Self::queue) would make one with.
    pub(crate) fn init(&mut self, end: End, spec: Spec) -> Check<QpInit> {
        let (sends, receives) = (spec.kind != QpKind::XrcTarget, matches!(spec.kind, QpKind::Rc | QpKind::Ud));
        let own_receives = receives && spec.srq.is_none();
        let cq = |bed: &mut Self, has: bool| match (has, spec.cq) {
            (false, _) => Ok(None),
            (true, Some(cq)) => Ok(Some(cq)),
            (true, None) => bed.cq(end, CQ_DEPTH).map(Some),
        };
        Ok(QpInit {
            kind: spec.kind,
            pd: match spec.pd {
                _ if !sends => None,
                Some(pd) => Some(pd),
                None => Some(self.pd(end)?),
            },
            send_cq: cq(self, sends)?,
            recv_cq: cq(self, receives)?,
            srq: spec.srq,
            domain: spec.domain,
            caps: QpCaps {
                send_depth: if sends { spec.depth } else { 0 },
                recv_depth: if own_receives { spec.depth } else { 0 },
                send_sges: if sends { spec.sges } else { 0 },
                recv_sges: if own_receives { spec.sges } else { 0 },
                inline_bytes: if sends { spec.inline_bytes } else { 0 },
            },
            signal_all: spec.signal_all,
        })
    }

    /// Every attribute that `queue` may ever be given, for a peer with this number at this address.
    pub(crate) fn attributes(
        &mut self,
        queue: Queue,
        peer: u32,
        address: AddressVector,
        qp_parameters: QpParameters,
    ) -> QpChange {
        let limits = self.limits(queue.end);
        QpChange {
            state: None,
            current: None,
            drain_notify: Some(false),
            access: Some(qp_parameters.access.unwrap_or(self.every_access(queue.end))),
            pkey_index: Some(0),
            port: Some(self.port(queue.end)),
            qkey: Some(QKEY),
            address: Some(address),
            path_mtu: Some(qp_parameters.path_mtu),
            timeout: Some(qp_parameters.timeout),
            retry_count: Some(qp_parameters.retry_count),
            rnr_retry: Some(qp_parameters.rnr_retry),
            recv_psn: Some(qp_parameters.psn),
            reads_open: Some(qp_parameters.reads.min(limits.reads_open)),
            rnr_timer: Some(qp_parameters.rnr_timer),
            send_psn: Some(qp_parameters.psn),
            reads_served: Some(qp_parameters.reads.min(limits.reads_served)),
            destination: Some(peer),
        }
    }

    /// The attributes of `queue` for a connection to `peer`.
    pub(crate) fn attributes_to(&mut self, queue: Queue, peer: Queue, qp_parameters: QpParameters) -> Check<QpChange> {
        let address = self.address(queue.end, peer.end, qp_parameters.path)?;
        Ok(self.attributes(queue, peer.number, address, qp_parameters))
    }

    /// One step to another state, with the attributes that it demands.
    pub(crate) fn step(&mut self, queue: Queue, from: QpState, to: QpState, attributes: &QpChange) -> Check {
        let demanded = demanded(queue.kind, from, to).unwrap_or(Attrs::NONE);
        Ok(self.device(queue.end).modify_qp(queue.id, &only(to, demanded, attributes))?)
    }

    /// From RESET all the way to `to`, one of INIT, RTR, RTS, SQD and ERR.
    pub(crate) fn raise(&mut self, queue: Queue, to: QpState, attributes: &QpChange) -> Check {
        let mut at = QpState::Reset;
        for next in [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd] {
            if at == to || to == QpState::Error {
                break;
            }
            self.step(queue, at, next, attributes)?;
            at = next;
        }
        if to == QpState::Error { self.fail(queue) } else { Ok(()) }
    }

    /// Connects two queue pairs in RESET with each other.
    pub(crate) fn connect(&mut self, a: Queue, b: Queue, qp_parameters: QpParameters) -> Check {
        for (queue, peer) in [(a, b), (b, a)] {
            let attributes = self.attributes_to(queue, peer, qp_parameters)?;
            self.raise(queue, QpState::Rts, &attributes)?;
        }
        Ok(())
    }

    /// A connected pair of RC queue pairs at A and B.
    pub(crate) fn rc(&mut self) -> Check<[Queue; 2]> {
        self.rc_with(Spec::RC, QpParameters::USUAL)
    }

    /// The same with other sizes or other parameters.
    pub(crate) fn rc_with(&mut self, spec: Spec, qp_parameters: QpParameters) -> Check<[Queue; 2]> {
        let pair = [self.queue(End::A, spec)?, self.queue(End::B, spec)?];
        self.connect(pair[0], pair[1], qp_parameters)?;
        Ok(pair)
    }

    /// A UD queue pair that is ready to send.
    pub(crate) fn ud(&mut self, end: End, spec: Spec) -> Check<Queue> {
        let queue = self.queue(end, spec)?;
        let attributes = self.attributes(queue, 0, AddressVector::default(), QpParameters::USUAL);
        self.raise(queue, QpState::Rts, &attributes)?;
        Ok(queue)
    }

    /// A private XRC domain.
    pub(crate) fn domain(&mut self, end: End) -> Check<XrcdId> {
        Ok(self.device(end).open_xrcd(XrcdFile::Private)?)
    }

    /// An XRC shared receive queue in the end's own protection domain, with its completion queue.
    pub(crate) fn xrc_srq(&mut self, end: End, domain: XrcdId) -> Check<(Srq, u32, CqId)> {
        let (pd, cq) = (self.pd(end)?, self.cq(end, CQ_DEPTH)?);
        let init = SrqInit { depth: 16, sges: 1, xrc: Some(XrcSrqInit { domain, cq }) };
        let srq = self.device(end).create_srq(pd, &init)?;
        let number = srq.number.ok_or_else(|| crate::failure::wrong("an XRC SRQ", "a number", "none"))?;
        Ok((srq, number, cq))
    }

    /// An ordinary shared receive queue.
    pub(crate) fn srq(&mut self, end: End, depth: u32) -> Check<SrqId> {
        let pd = self.pd(end)?;
        Ok(self.device(end).create_srq(pd, &SrqInit { depth, sges: 1, xrc: None })?.id)
    }

    /// An XRC initiator at A and a target at B in this domain, connected.
    pub(crate) fn xrc(&mut self, domain: XrcdId, qp_parameters: QpParameters) -> Check<[Queue; 2]> {
        let initiator = self.queue(End::A, Spec::of(QpKind::XrcInitiator))?;
        let target = self.queue(End::B, Spec { domain: Some(domain), ..Spec::of(QpKind::XrcTarget) })?;
        self.connect(initiator, target, qp_parameters)?;
        Ok([initiator, target])
    }

    /// The queue pair as its device reports it.
    pub(crate) fn query(&mut self, queue: Queue) -> Check<QpInfo> {
        Ok(self.device(queue.end).query_qp(queue.id)?)
    }

    /// To ERR.
    pub(crate) fn fail(&mut self, queue: Queue) -> Check {
        Ok(self.device(queue.end).modify_qp(queue.id, &QpChange::to(QpState::Error))?)
    }

    /// At least so many reads or atomics at once, or the case can't be run.
    pub(crate) fn needs_reads(&mut self, count: u8) -> Check {
        let (a, b) = (self.limits(End::A), self.limits(End::B));
        if a.reads_open.min(b.reads_served) >= count {
            return Ok(());
        }
        Err(Failure::Unsupported(Need::Other("several reads at once")))
    }
}

/// A change to `state` with these attributes of `all`.
pub(crate) fn only(state: QpState, attrs: Attrs, all: &QpChange) -> QpChange {
    let mut change = QpChange::to(state);
    for attr in attrs.iter() {
        match attr {
            Attr::CurrentState => change.current = all.current,
            Attr::DrainNotify => change.drain_notify = all.drain_notify,
            Attr::Access => change.access = all.access,
            Attr::PkeyIndex => change.pkey_index = all.pkey_index,
            Attr::Port => change.port = all.port,
            Attr::Qkey => change.qkey = all.qkey,
            Attr::AddressVector => change.address = all.address,
            Attr::PathMtu => change.path_mtu = all.path_mtu,
            Attr::Timeout => change.timeout = all.timeout,
            Attr::RetryCount => change.retry_count = all.retry_count,
            Attr::RnrRetry => change.rnr_retry = all.rnr_retry,
            Attr::RecvPsn => change.recv_psn = all.recv_psn,
            Attr::ReadsOpen => change.reads_open = all.reads_open,
            Attr::RnrTimer => change.rnr_timer = all.rnr_timer,
            Attr::SendPsn => change.send_psn = all.send_psn,
            Attr::ReadsServed => change.reads_served = all.reads_served,
            Attr::DestinationQp => change.destination = all.destination,
        }
    }
    change
}
