//! Making, opening and destroying queue pairs (InfiniBand specification, 11.2.5; xrc-2008, IV.B for what XRC
//! needs).

use rerail_verbs::contract::{
    CreateError, DestroyError, Kind, Qp as QpMade, QpCaps, QpChange, QpId, QpInit, QpKind, QpState, XrcdId,
};

use super::core::{Hca, unknown};
use super::memory::{in_range, within};
use super::object::QpName;
use super::qp::{Qp, QpFaults, Requester, Responder};
use super::slab::NAMES_MAX;

/// The parts of a queue pair, by name.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    pd: Option<u32>,
    send_cq: Option<u32>,
    recv_cq: Option<u32>,
    srq: Option<u32>,
    /// The process's name, and the domain itself.
    domain: Option<(u32, u32)>,
}

impl Hca {
    pub fn create_qp(&mut self, context: u32, init: &QpInit) -> Result<QpMade, CreateError> {
        let parts = self.parts(context, init)?;
        let QpCaps { send_depth, recv_depth, send_sges, recv_sges, inline_bytes } = init.caps;
        for depth in [send_depth, recv_depth] {
            in_range(Kind::Depth, depth.into(), 0, self.limits.queue_depth.into())?;
        }
        for sges in [send_sges, recv_sges] {
            in_range(Kind::Sges, sges.into(), 0, self.limits.sges.into())?;
        }
        in_range(Kind::InlineBytes, inline_bytes.into(), 0, self.limits.inline_bytes.into())?;
        within(Kind::Qp, self.qps.len(), self.limits.qps)?;
        within(Kind::Qp, self.qp_names.len(), NAMES_MAX)?;
        let name = self.qps.insert_with(|_| {
            Box::new(Qp {
                number: 0,
                kind: init.kind,
                state: QpState::Reset,
                life: 0,
                pd: parts.pd,
                send_cq: parts.send_cq,
                recv_cq: parts.recv_cq,
                srq: parts.srq,
                domain: parts.domain.map(|(_, domain)| domain),
                caps: init.caps,
                signal_all: init.signal_all,
                attributes: QpChange::default(),
                names: Vec::with_capacity(1),
                in_ring: false,
                answered_last: false,
                requester: Requester::default(),
                responder: Responder::default(),
                alarm: None,
                faults: QpFaults::default(),
            })
        });
        let number = self.number_of_qp(name);
        if let Some(qp) = self.qps.get_mut(name) {
            qp.number = number;
        }
        self.count_users(&parts, 1);
        Ok(QpMade { id: self.name_qp(context, name, parts.domain), number })
    }

    /// One more name for a queue pair.
    fn name_qp(&mut self, context: u32, qp: u32, domain: Option<(u32, u32)>) -> QpId {
        let domain_name = domain.map(|(name, _)| name);
        let name = self.qp_names.insert_with(|_| QpName { context, qp, domain_name });
        if let Some(qp) = self.qps.get_mut(qp) {
            qp.names.push(name);
        }
        if let Some(domain) = domain_name.and_then(|name| self.domain_names.get_mut(name)) {
            domain.users += 1;
        }
        QpId(name)
    }

    /// What a queue pair is made of: all of it there, and nothing that its kind has no use for.
    fn parts(&mut self, context: u32, init: &QpInit) -> Result<Parts, CreateError> {
        let mismatch = |why| Err(CreateError::Mismatch { why });
        let (xrc, target) =
            (matches!(init.kind, QpKind::XrcInitiator | QpKind::XrcTarget), init.kind == QpKind::XrcTarget);
        if xrc && !self.limits.xrc {
            return Err(CreateError::Unsupported { what: "XRC" });
        }
        match init {
            _ if init.pd.is_some() == target => {
                return mismatch("all queue pairs but XRC targets need a protection domain");
            }
            _ if init.send_cq.is_some() == target => {
                return mismatch("all queue pairs but XRC targets need a completion queue for sends");
            }
            _ if init.recv_cq.is_some() == xrc => {
                return mismatch("RC and UD queue pairs need a completion queue for receives, XRC ones have none");
            }
            _ if init.domain.is_some() != target => return mismatch("XRC targets alone belong to an XRC domain"),
            _ if init.srq.is_some() && xrc => {
                return mismatch("XRC packets name their shared receive queue themselves");
            }
            _ => {}
        }
        let mut parts = Parts::default();
        if let Some(pd) = init.pd {
            self.pd_of(context, pd)?;
            parts.pd = Some(pd.0);
        }
        if let Some(cq) = init.send_cq {
            parts.send_cq = Some(self.known_cq(context, cq)?);
        }
        if let Some(cq) = init.recv_cq {
            parts.recv_cq = Some(self.known_cq(context, cq)?);
        }
        if let Some(srq) = init.srq {
            let found = self.srqs.get(srq.0).filter(|found| found.context == context);
            if found.ok_or(unknown(Kind::Srq, srq.0))?.xrc.is_some() {
                return mismatch("a shared receive queue for XRC serves XRC targets alone");
            }
            parts.srq = Some(srq.0);
        }
        if let Some(domain) = init.domain {
            parts.domain = Some((domain.0, self.domain_of(context, domain)?));
        }
        Ok(parts)
    }

    fn count_users(&mut self, parts: &Parts, by: i32) {
        let add = |users: &mut u32| *users = users.wrapping_add_signed(by);
        parts.pd.and_then(|pd| self.pds.get_mut(pd)).into_iter().for_each(|pd| add(&mut pd.users));
        for cq in [parts.send_cq, parts.recv_cq].into_iter().flatten() {
            self.cqs.get_mut(cq).into_iter().for_each(|cq| add(&mut cq.users));
        }
        parts.srq.and_then(|srq| self.srqs.get_mut(srq)).into_iter().for_each(|srq| add(&mut srq.users));
    }

    pub fn open_qp(&mut self, context: u32, domain: XrcdId, number: u32) -> Result<QpMade, CreateError> {
        let own = self.domain_of(context, domain)?;
        let found = self.qp_numbered(number).filter(|qp| self.qps.get(*qp).is_some_and(|qp| qp.domain == Some(own)));
        let qp = found.ok_or(unknown(Kind::Qp, number))?;
        within(Kind::Qp, self.qp_names.len(), NAMES_MAX)?;
        Ok(QpMade { id: self.name_qp(context, qp, Some((domain.0, own))), number })
    }

    pub fn destroy_qp(&mut self, context: u32, id: QpId) -> Result<(), DestroyError> {
        let qp = self.qp_named(context, id).ok_or(DestroyError::Unknown { what: Kind::Qp, name: id.0 })?;
        let name = self.qp_names.remove(id.0);
        if let Some(domain) = name.and_then(|name| self.domain_names.get_mut(name.domain_name?)) {
            domain.users -= 1;
        }
        let Some(found) = self.qps.get_mut(qp) else { return Ok(()) };
        found.names.retain(|name| *name != id.0);
        if !found.names.is_empty() {
            return Ok(());
        }
        self.empty(qp);
        if let Some(qp) = self.qps.remove(qp) {
            let Qp { pd, send_cq, recv_cq, srq, .. } = *qp;
            self.count_users(&Parts { pd, send_cq, recv_cq, srq, domain: None }, -1);
        }
        Ok(())
    }

    /// A queue pair forgets all its work, and queues forget its completions: for RESET and for the end.
    pub fn empty(&mut self, qp: u32) {
        let Some(found) = self.qps.get_mut(qp) else { return };
        found.life += 1;
        found.alarm = None;
        found.requester = Requester::default();
        let responder = std::mem::take(&mut found.responder);
        let (send_cq, recv_cq, xrc) = (found.send_cq, found.recv_cq, found.domain);
        // Requests that it has taken from shared queues are gone; their places are not.
        let taken = responder.queue.into_iter().chain(responder.arrived.into_iter().map(|arrived| arrived.work));
        for srq in taken.chain(responder.message.and_then(|message| message.into_receive())).filter_map(|work| work.srq)
        {
            if let Some(srq) = self.srqs.get_mut(srq) {
                srq.held -= 1;
            }
        }
        for cq in [send_cq, recv_cq].into_iter().flatten() {
            self.purge(cq, qp);
        }
        if let Some(domain) = xrc.and_then(|domain| self.domains.get(domain)) {
            let cq_of = |srq: &u32| Some(self.srqs.get(*srq)?.xrc?.cq);
            let cqs: Vec<u32> = domain.queues.iter().filter_map(cq_of).collect();
            cqs.into_iter().for_each(|cq| self.purge(cq, qp));
        }
    }
}
