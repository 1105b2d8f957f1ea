//! The verbs.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use rerail_verbs::contract::*;
use rerail_verbs::{Gid, LinkLayer, Moderation, Offers, Port, PortState as State};

use super::memory::Start;
use super::objects::*;

/// A process's opening of an ideal device.
pub struct Ideal {
    fabric: Rc<RefCell<Fabric>>,
    process: usize,
    hca: usize,
}

const LIMITS: Limits = Limits {
    ports: 1,
    qps: 1000,
    queue_depth: 1024,
    sges: 4,
    cqs: 1000,
    cq_depth: 4096,
    mrs: 1000,
    mr_bytes: 1 << 30,
    pds: 1000,
    srqs: 1000,
    srq_depth: 1024,
    ahs: 1000,
    reads_served: 4,
    reads_open: 4,
    inline_bytes: 64,
    atomics: true,
    xrc: true,
    iova: true,
};

fn range(what: Kind, value: u32, min: u32, max: u32) -> Result<(), CreateError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(CreateError::OutOfRange { what, value: value.into(), min: min.into(), max: max.into() })
}

impl Ideal {
    pub fn new(fabric: Rc<RefCell<Fabric>>, process: usize, hca: usize) -> Ideal {
        Ideal { fabric, process, hca }
    }

    fn alive(&self) -> Result<(), CreateError> {
        if self.fabric.borrow().ports[self.hca].dead { Err(CreateError::DeviceGone) } else { Ok(()) }
    }

    fn has_port(&self, port: u8) -> Result<(), CreateError> {
        range(Kind::Port, port.into(), 1, 1)
    }

    fn exists(&self, what: Kind, name: u32) -> Result<(), CreateError> {
        let fabric = self.fabric.borrow();
        let owner = match what {
            Kind::Pd => fabric.pds.get(&name).copied(),
            Kind::Cq => fabric.cqs.get(&name).map(|it| it.owner),
            Kind::Srq => fabric.srqs.get(&name).map(|it| it.owner),
            Kind::Xrcd => fabric.xrcds.get(&name).map(|it| it.owner),
            Kind::Mr => fabric.mrs.get(&name).map(|it| it.owner),
            Kind::Ah => fabric.ahs.get(&name).map(|it| it.0),
            _ => None,
        };
        if owner == Some(self.process) { Ok(()) } else { Err(CreateError::Unknown { what, name }) }
    }

    fn unused(&self, what: Kind, name: u32) -> Result<(), DestroyError> {
        self.exists(what, name).map_err(|_| DestroyError::Unknown { what, name })?;
        match self.fabric.borrow().users(what, name) {
            0 => Ok(()),
            users => Err(DestroyError::Busy { what, users }),
        }
    }

    fn number(&self, qp: QpId) -> Result<u32, ModifyError> {
        let found = self.fabric.borrow().number(self.process, qp);
        found.ok_or(ModifyError::Unknown { what: Kind::Qp, name: qp.0 })
    }

    /// The queue pair for a post, or why there is none.
    fn posting(&self, qp: QpId) -> Result<u32, PostReason> {
        if self.fabric.borrow().ports[self.hca].dead {
            return Err(PostReason::DeviceGone);
        }
        self.number(qp).map_err(|_| PostReason::Unknown { what: Kind::Qp, name: qp.0 })
    }

    fn one_send(&self, name: QpId, request: &SendWr<'_>) -> Result<(), PostReason> {
        let number = self.posting(name)?;
        let mut fabric = self.fabric.borrow_mut();
        let handle = request.datagram.map(|it| (it, fabric.ahs.get(&it.handle.0).copied()));
        let Some(qp) = fabric.qps.get_mut(&number) else { return Ok(()) };
        let wrong = |why| Err(PostReason::Operation { why });
        let is_send = matches!(request.op, SendOp::Send { .. });
        match qp.init.kind {
            QpKind::XrcTarget => return wrong("a target sends nothing"),
            QpKind::Ud if !is_send => return wrong("datagrams only"),
            QpKind::Ud if request.datagram.is_none() => return wrong("no address"),
            _ => {}
        }
        if matches!(qp.state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(PostReason::State { state: qp.state });
        }
        let local = match request.payload {
            Payload::Memory(sges) if sges.len() > qp.init.caps.send_sges as usize => {
                return Err(PostReason::Sges { given: sges.len(), max: qp.init.caps.send_sges });
            }
            Payload::Memory(sges) => Local::Memory(sges.to_vec()),
            Payload::Inline(pieces) => {
                let bytes: Vec<u8> = pieces.concat();
                if bytes.len() > qp.init.caps.inline_bytes as usize {
                    return Err(PostReason::Inline { bytes: bytes.len(), max: qp.init.caps.inline_bytes });
                }
                Local::Inline(bytes)
            }
        };
        let to = match handle {
            None => None,
            Some((it, Some((owner, _, address)))) if owner == self.process => Some((address, it.qp, it.qkey)),
            Some((it, _)) => return Err(PostReason::UnknownHandle { name: it.handle.0 }),
        };
        if qp.sends_used >= qp.init.caps.send_depth {
            return Err(PostReason::Full { depth: qp.init.caps.send_depth });
        }
        qp.sends_used += 1;
        let work = Work {
            id: request.id,
            op: request.op,
            local,
            signaled: request.signaled,
            solicited: request.solicited,
            to,
            srq_number: request.srq_number,
            before_drain: false,
            tries: 0,
            refusals: 0,
            wait: 0,
            done: false,
        };
        if matches!(qp.state, QpState::Error | QpState::Sqe) {
            fabric.send_done(number, &work, Status::Flushed, 0);
        } else {
            qp.sends.push_back(work);
        }
        Ok(())
    }

    fn one_receive(&self, name: QpId, request: &RecvWr<'_>) -> Result<(), PostReason> {
        let number = self.posting(name)?;
        let mut fabric = self.fabric.borrow_mut();
        let Some(qp) = fabric.qps.get_mut(&number) else { return Ok(()) };
        if !matches!(qp.init.kind, QpKind::Rc | QpKind::Ud) || qp.init.srq.is_some() {
            return Err(PostReason::Operation { why: "no receive queue of its own" });
        }
        if qp.state == QpState::Reset {
            return Err(PostReason::State { state: qp.state });
        }
        let caps = qp.init.caps;
        if request.sges.len() > caps.recv_sges as usize {
            return Err(PostReason::Sges { given: request.sges.len(), max: caps.recv_sges });
        }
        if qp.receives.len() as u32 >= caps.recv_depth {
            return Err(PostReason::Full { depth: caps.recv_depth });
        }
        qp.receives.push_back(Receive { id: request.id, sges: request.sges.to_vec() });
        if qp.state == QpState::Error {
            fabric.fail(number, QpState::Error);
        }
        Ok(())
    }

    fn values(&self, change: &QpChange) -> Result<(), ModifyError> {
        let check = |field, value: Option<u64>, min: u64, max: u64| match value {
            Some(value) if !(min..=max).contains(&value) => Err(ModifyError::OutOfRange { field, value, min, max }),
            _ => Ok(()),
        };
        check("port", change.port.map(u64::from), 1, 1)?;
        check("destination", change.destination.map(u64::from), 0, (1 << 24) - 1)?;
        check("recv_psn", change.recv_psn.map(u64::from), 0, (1 << 24) - 1)?;
        check("send_psn", change.send_psn.map(u64::from), 0, (1 << 24) - 1)?;
        check("rnr_timer", change.rnr_timer.map(u64::from), 0, 31)?;
        check("timeout", change.timeout.map(u64::from), 0, 31)?;
        check("retry_count", change.retry_count.map(u64::from), 0, 7)?;
        check("rnr_retry", change.rnr_retry.map(u64::from), 0, 7)?;
        check("reads_open", change.reads_open.map(u64::from), 0, LIMITS.reads_open.into())?;
        check("reads_served", change.reads_served.map(u64::from), 0, LIMITS.reads_served.into())?;
        let mtu = change.path_mtu.filter(|mtu| !mtu.is_power_of_two()).map(|_| 0);
        check("path_mtu", mtu.or(change.path_mtu.map(u64::from)), 256, 4096)
    }
}

impl Device for Ideal {
    type Opener = Box<dyn FnMut() -> Result<Self, CreateError>>;

    fn name(&self) -> &str {
        "ideal"
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    fn offers(&self) -> Offers {
        Offers { moderation: Some(Moderation { count: 16, period_us: 100 }), ..Offers::WHOLE }
    }

    fn port(&self, port: u8) -> Result<Port, CreateError> {
        self.has_port(port)?;
        let at = &self.fabric.borrow().ports[self.hca];
        Ok(Port {
            number: 1,
            state: if at.up { State::Active } else { State::Down },
            link_layer: LinkLayer::InfiniBand,
            lid: at.lid,
            lmc: 1,
            needs_global: false,
            manager_lid: 1,
            gid_table_len: 2,
            mtu_bytes: Some(2048),
            mtu_bytes_max: Some(4096),
            message_bytes_max: 1 << 30,
            lanes: Some(4),
            lane_mbit_per_second: Some(2500),
        })
    }

    fn gid(&self, port: u8, index: u8) -> Result<Gid, CreateError> {
        self.has_port(port)?;
        range(Kind::Gid, index.into(), 0, 1)?;
        Ok(if index == 0 { self.fabric.borrow().gid(self.hca) } else { Gid::default() })
    }

    fn alloc_pd(&mut self) -> Result<PdId, CreateError> {
        self.alive()?;
        let mut fabric = self.fabric.borrow_mut();
        let name = fabric.name();
        fabric.pds.insert(name, self.process);
        Ok(PdId(name))
    }

    fn dealloc_pd(&mut self, pd: PdId) -> Result<(), DestroyError> {
        self.unused(Kind::Pd, pd.0)?;
        self.fabric.borrow_mut().pds.remove(&pd.0);
        Ok(())
    }

    unsafe fn register(
        &mut self,
        pd: PdId,
        start: *mut u8,
        bytes: u64,
        iova: u64,
        access: Access,
    ) -> Result<Mr, RegisterError> {
        self.exists(Kind::Pd, pd.0).map_err(|_| RegisterError::UnknownPd { name: pd.0 })?;
        let mut fabric = self.fabric.borrow_mut();
        if std::mem::take(&mut fabric.ports[self.hca].fail_registration) {
            return Err(RegisterError::System { code: 12 });
        }
        if bytes == 0 {
            return Err(RegisterError::Length { bytes, max: LIMITS.mr_bytes });
        }
        if (access.remote_write || access.remote_atomic) && !access.local_write {
            return Err(RegisterError::Access);
        }
        let name = fabric.name();
        let mr = MrObject { owner: self.process, pd: pd.0, start: Start(start), len: bytes, iova, access };
        fabric.mrs.insert(name, mr);
        let key = name << 8 | 0x11;
        Ok(Mr { id: MrId(name), lkey: key, rkey: key })
    }

    fn deregister(&mut self, mr: MrId) -> Result<(), DestroyError> {
        self.unused(Kind::Mr, mr.0)?;
        self.fabric.borrow_mut().mrs.remove(&mr.0);
        Ok(())
    }

    fn create_cq(&mut self, init: &CqInit) -> Result<CqId, CreateError> {
        self.alive()?;
        range(Kind::Depth, init.depth, 1, LIMITS.cq_depth)?;
        let mut fabric = self.fabric.borrow_mut();
        let name = fabric.name();
        let (owner, depth, queue) = (self.process, init.depth, VecDeque::new());
        let (moderation, notices_due) = (Moderation::NONE, 0);
        fabric
            .cqs
            .insert(name, CqObject { owner, depth, queue, broken: false, armed: [false; 2], moderation, notices_due });
        Ok(CqId(name))
    }

    fn destroy_cq(&mut self, cq: CqId) -> Result<(), DestroyError> {
        self.unused(Kind::Cq, cq.0)?;
        self.fabric.borrow_mut().cqs.remove(&cq.0);
        Ok(())
    }

    fn poll_cq(&mut self, cq: CqId, most: usize, out: &mut Vec<Completion>) -> Result<usize, PollError> {
        self.exists(Kind::Cq, cq.0).map_err(|_| PollError::Unknown { name: cq.0 })?;
        let mut fabric = self.fabric.borrow_mut();
        let mut count = 0;
        while count < most {
            let Some(queue) = fabric.cqs.get_mut(&cq.0).filter(|queue| !queue.broken) else {
                return Err(PollError::Overflow);
            };
            let Some((completion, frees)) = queue.queue.pop_front() else { break };
            if let Some(qp) = fabric.qps.get_mut(&completion.qp) {
                qp.sends_used -= frees;
            }
            out.push(completion);
            count += 1;
        }
        Ok(count)
    }

    fn request_notify(&mut self, cq: CqId, solicited: bool) -> Result<(), PollError> {
        self.exists(Kind::Cq, cq.0).map_err(|_| PollError::Unknown { name: cq.0 })?;
        let mut fabric = self.fabric.borrow_mut();
        fabric.cqs.get_mut(&cq.0).into_iter().for_each(|it| it.armed[usize::from(solicited)] = true);
        Ok(())
    }

    fn moderate_cq(&mut self, cq: CqId, moderation: Moderation) -> Result<(), ModifyError> {
        self.exists(Kind::Cq, cq.0).map_err(|_| ModifyError::Unknown { what: Kind::Cq, name: cq.0 })?;
        moderation.check(self.offers().moderation)?;
        let mut fabric = self.fabric.borrow_mut();
        fabric.cqs.get_mut(&cq.0).into_iter().for_each(|it| it.moderation = moderation);
        Ok(())
    }

    fn cq_event(&mut self) -> Option<CqId> {
        self.fabric.borrow_mut().cq_events[self.process].pop_front()
    }

    fn create_srq(&mut self, pd: PdId, init: &SrqInit) -> Result<Srq, CreateError> {
        self.alive()?;
        self.exists(Kind::Pd, pd.0)?;
        range(Kind::Depth, init.depth, 1, LIMITS.srq_depth)?;
        range(Kind::Sges, init.sges, 0, LIMITS.sges)?;
        if let Some(xrc) = init.xrc {
            self.exists(Kind::Xrcd, xrc.domain.0)?;
            self.exists(Kind::Cq, xrc.cq.0)?;
        }
        let mut fabric = self.fabric.borrow_mut();
        let name = fabric.name();
        let (owner, queue) = (self.process, VecDeque::new());
        fabric.srqs.insert(name, SrqObject { owner, pd: pd.0, init: *init, queue, limit: 0 });
        Ok(Srq { id: SrqId(name), number: init.xrc.map(|_| name) })
    }

    fn arm_srq(&mut self, srq: SrqId, limit: u32) -> Result<(), ModifyError> {
        self.exists(Kind::Srq, srq.0).map_err(|_| ModifyError::Unknown { what: Kind::Srq, name: srq.0 })?;
        let mut fabric = self.fabric.borrow_mut();
        let Some(srq) = fabric.srqs.get_mut(&srq.0) else { return Ok(()) };
        let max = u64::from(srq.init.depth);
        if u64::from(limit) > max {
            return Err(ModifyError::OutOfRange { field: "limit", value: limit.into(), min: 0, max });
        }
        srq.limit = limit;
        Ok(())
    }

    fn destroy_srq(&mut self, srq: SrqId) -> Result<(), DestroyError> {
        self.unused(Kind::Srq, srq.0)?;
        self.fabric.borrow_mut().srqs.remove(&srq.0);
        Ok(())
    }

    fn post_srq_recv(&mut self, srq: SrqId, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        let mut fabric = self.fabric.borrow_mut();
        for (index, request) in requests.iter().enumerate() {
            let refuse = |why| Err(PostError { index, why });
            let Some(queue) = fabric.srqs.get_mut(&srq.0).filter(|it| it.owner == self.process) else {
                return refuse(PostReason::Unknown { what: Kind::Srq, name: srq.0 });
            };
            if request.sges.len() > queue.init.sges as usize {
                return refuse(PostReason::Sges { given: request.sges.len(), max: queue.init.sges });
            }
            if queue.queue.len() as u32 >= queue.init.depth {
                return refuse(PostReason::Full { depth: queue.init.depth });
            }
            queue.queue.push_back(Receive { id: request.id, sges: request.sges.to_vec() });
        }
        Ok(())
    }

    fn open_xrcd(&mut self, file: XrcdFile) -> Result<XrcdId, CreateError> {
        self.alive()?;
        let mut fabric = self.fabric.borrow_mut();
        let name = fabric.name();
        let (mut identity, mut of) = (name, None);
        if let XrcdFile::Shared { file, create, exclusive } = file {
            of = Some(file);
            match fabric.xrcds.values().find(|it| it.file == of).map(|it| it.identity) {
                Some(_) if create && exclusive => return Err(CreateError::System { code: 17 }),
                None if !create => return Err(CreateError::System { code: 2 }),
                Some(known) => identity = known,
                None => {}
            }
        }
        fabric.xrcds.insert(name, XrcdObject { owner: self.process, identity, file: of });
        Ok(XrcdId(name))
    }

    fn close_xrcd(&mut self, domain: XrcdId) -> Result<(), DestroyError> {
        self.unused(Kind::Xrcd, domain.0)?;
        self.fabric.borrow_mut().xrcds.remove(&domain.0);
        Ok(())
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<Qp, CreateError> {
        self.alive()?;
        let (sends, receives) = (init.kind != QpKind::XrcTarget, matches!(init.kind, QpKind::Rc | QpKind::Ud));
        let shape = init.pd.is_some() == sends
            && init.send_cq.is_some() == sends
            && init.recv_cq.is_some() == receives
            && init.domain.is_some() == (init.kind == QpKind::XrcTarget);
        if !shape {
            return Err(CreateError::Mismatch { why: "parts that this transport has not, or none that it has" });
        }
        init.pd.map_or(Ok(()), |it| self.exists(Kind::Pd, it.0))?;
        init.send_cq.map_or(Ok(()), |it| self.exists(Kind::Cq, it.0))?;
        init.recv_cq.map_or(Ok(()), |it| self.exists(Kind::Cq, it.0))?;
        init.srq.map_or(Ok(()), |it| self.exists(Kind::Srq, it.0))?;
        init.domain.map_or(Ok(()), |it| self.exists(Kind::Xrcd, it.0))?;
        range(Kind::Depth, init.caps.send_depth.max(init.caps.recv_depth), 0, LIMITS.queue_depth)?;
        range(Kind::Sges, init.caps.send_sges.max(init.caps.recv_sges), 0, LIMITS.sges)?;
        range(Kind::InlineBytes, init.caps.inline_bytes, 0, LIMITS.inline_bytes)?;
        let mut fabric = self.fabric.borrow_mut();
        let number = fabric.name();
        let qp = QpObject {
            holders: vec![(self.process, number)],
            hca: self.hca,
            init: *init,
            state: QpState::Reset,
            attrs: QpChange::default(),
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            sends_used: 0,
            silent: 0,
            drain_notify: false,
        };
        fabric.qps.insert(number, qp);
        Ok(Qp { id: QpId(number), number })
    }

    fn open_qp(&mut self, domain: XrcdId, number: u32) -> Result<Qp, CreateError> {
        self.exists(Kind::Xrcd, domain.0)?;
        let mut fabric = self.fabric.borrow_mut();
        let name = fabric.name();
        let unknown = CreateError::Unknown { what: Kind::Qp, name: number };
        let qp = fabric.qps.get_mut(&number).filter(|it| it.init.kind == QpKind::XrcTarget).ok_or(unknown)?;
        qp.holders.push((self.process, name));
        Ok(Qp { id: QpId(name), number })
    }

    fn modify_qp(&mut self, name: QpId, change: &QpChange) -> Result<(), ModifyError> {
        let number = self.number(name)?;
        let mut fabric = self.fabric.borrow_mut();
        let Some(qp) = fabric.qps.get_mut(&number) else { return Ok(()) };
        check_transition(qp.init.kind, qp.state, change)?;
        self.values(change)?;
        let to = change.state.unwrap_or(qp.state);
        let (old, new) = (qp.attrs, *change);
        qp.attrs = QpChange {
            state: None,
            current: None,
            drain_notify: None,
            access: new.access.or(old.access),
            pkey_index: new.pkey_index.or(old.pkey_index),
            port: new.port.or(old.port),
            qkey: new.qkey.or(old.qkey),
            address: new.address.or(old.address),
            path_mtu: new.path_mtu.or(old.path_mtu),
            timeout: new.timeout.or(old.timeout),
            retry_count: new.retry_count.or(old.retry_count),
            rnr_retry: new.rnr_retry.or(old.rnr_retry),
            recv_psn: new.recv_psn.or(old.recv_psn),
            reads_open: new.reads_open.or(old.reads_open),
            rnr_timer: new.rnr_timer.or(old.rnr_timer),
            send_psn: new.send_psn.or(old.send_psn),
            reads_served: new.reads_served.or(old.reads_served),
            destination: new.destination.or(old.destination),
        };
        match to {
            QpState::Error => {
                fabric.fail(number, QpState::Error);
                return Ok(());
            }
            QpState::Reset => {
                qp.attrs = QpChange::default();
                qp.sends.clear();
                qp.receives.clear();
                (qp.sends_used, qp.silent) = (0, 0);
                fabric.cqs.values_mut().for_each(|cq| cq.queue.retain(|(it, _)| it.qp != number));
            }
            QpState::Sqd if qp.state != QpState::Sqd => {
                qp.sends.iter_mut().for_each(|work| work.before_drain = true);
                qp.drain_notify = change.drain_notify == Some(true);
            }
            _ => {}
        }
        fabric.qps.get_mut(&number).into_iter().for_each(|qp| qp.state = to);
        fabric.drained(number);
        Ok(())
    }

    fn query_qp(&self, name: QpId) -> Result<QpInfo, ModifyError> {
        let number = self.number(name)?;
        let qp = &self.fabric.borrow().qps[&number];
        let draining = qp.state == QpState::Sqd && qp.sends.iter().any(|work| work.before_drain);
        Ok(QpInfo { kind: qp.init.kind, state: qp.state, caps: qp.init.caps, attributes: qp.attrs, draining })
    }

    fn destroy_qp(&mut self, name: QpId) -> Result<(), DestroyError> {
        let unknown = DestroyError::Unknown { what: Kind::Qp, name: name.0 };
        let number = self.number(name).map_err(|_| unknown)?;
        let mut fabric = self.fabric.borrow_mut();
        let Some(qp) = fabric.qps.get_mut(&number) else { return Ok(()) };
        qp.holders.retain(|holder| *holder != (self.process, name.0));
        if qp.holders.is_empty() {
            fabric.qps.remove(&number);
            fabric.cqs.values_mut().for_each(|cq| cq.queue.retain(|(it, _)| it.qp != number));
        }
        Ok(())
    }

    fn post_send(&mut self, qp: QpId, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        for (index, request) in requests.iter().enumerate() {
            self.one_send(qp, request).map_err(|why| PostError { index, why })?;
        }
        Ok(())
    }

    fn post_recv(&mut self, qp: QpId, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        for (index, request) in requests.iter().enumerate() {
            self.one_receive(qp, request).map_err(|why| PostError { index, why })?;
        }
        Ok(())
    }

    fn create_ah(&mut self, pd: PdId, address: &AddressVector) -> Result<AhId, CreateError> {
        self.alive()?;
        self.exists(Kind::Pd, pd.0)?;
        self.has_port(address.port)?;
        let mut fabric = self.fabric.borrow_mut();
        let name = fabric.name();
        fabric.ahs.insert(name, (self.process, pd.0, *address));
        Ok(AhId(name))
    }

    fn destroy_ah(&mut self, handle: AhId) -> Result<(), DestroyError> {
        self.unused(Kind::Ah, handle.0)?;
        self.fabric.borrow_mut().ahs.remove(&handle.0);
        Ok(())
    }

    fn async_event(&mut self) -> Option<AsyncEvent> {
        self.fabric.borrow_mut().events[self.process].pop_front()
    }
}
