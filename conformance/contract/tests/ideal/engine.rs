//! What happens in a tick.

use rerail_verbs::contract::*;

use super::objects::{Fabric, Local, Receive, Work};

/// How an attempt went.
enum Attempt {
    Done(u32),
    Unanswered,
    NotReady,
    Failed(Status),
}

impl Fabric {
    /// Every queue pair does at most one request.
    pub fn tick(&mut self) {
        // Every period is over with the tick in which it began.
        let due: Vec<u32> = self.cqs.iter().filter(|(_, cq)| cq.notices_due > 0).map(|(name, _)| *name).collect();
        due.into_iter().for_each(|name| self.notify(CqId(name)));
        let numbers: Vec<u32> = self.qps.keys().copied().collect();
        for number in numbers {
            self.work(number);
        }
    }

    fn work(&mut self, number: u32) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let runs = |work: &Work| qp.state == QpState::Rts || (qp.state == QpState::Sqd && work.before_drain);
        if self.ports[qp.hca].dead || !qp.sends.front().is_some_and(runs) {
            return;
        }
        let Some(mut work) = qp.sends.pop_front() else { return };
        if work.wait > 0 {
            work.wait -= 1;
            qp.sends.push_front(work);
            return;
        }
        let (kind, attrs) = (qp.init.kind, qp.attrs);
        let attempt =
            if kind == QpKind::Ud { self.datagram(number, &mut work) } else { self.attempt(number, &mut work) };
        let status = match attempt {
            Attempt::Done(bytes) => {
                self.send_done(number, &work, Status::Success, bytes);
                self.drained(number);
                return;
            }
            Attempt::Failed(status) => status,
            Attempt::NotReady => {
                work.refusals += 1;
                let most = u32::from(attrs.rnr_retry.unwrap_or(0));
                if most == 7 || work.refusals <= most {
                    work.wait = 3;
                    return self.qps.get_mut(&number).into_iter().for_each(|qp| qp.sends.push_front(take(&mut work)));
                }
                Status::RnrRetryExceeded
            }
            Attempt::Unanswered => {
                work.tries += 1;
                let timeout = attrs.timeout.unwrap_or(0);
                if timeout == 0 || work.tries <= u32::from(attrs.retry_count.unwrap_or(0)) {
                    work.wait = if timeout == 0 { 1000 } else { 1 << timeout.saturating_sub(10) };
                    return self.qps.get_mut(&number).into_iter().for_each(|qp| qp.sends.push_front(take(&mut work)));
                }
                Status::RetryExceeded
            }
        };
        self.send_done(number, &work, status, 0);
        self.fail(number, if kind == QpKind::Ud { QpState::Sqe } else { QpState::Error });
    }

    /// Reports a drained send queue.
    pub fn drained(&mut self, number: u32) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        if qp.state == QpState::Sqd && qp.drain_notify && !qp.sends.iter().any(|work| work.before_drain) {
            qp.drain_notify = false;
            let (owner, name) = qp.holders[0];
            self.events[owner].push_back(AsyncEvent::SqDrained(QpId(name)));
        }
    }

    /// To ERR or SQE: what is open is flushed.
    pub fn fail(&mut self, number: u32, to: QpState) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let was = std::mem::replace(&mut qp.state, to);
        let (sends, holders, init) = (std::mem::take(&mut qp.sends), qp.holders.clone(), qp.init);
        sends.into_iter().for_each(|work| self.send_done(number, &work, Status::Flushed, 0));
        if to == QpState::Error {
            let receives = self.qps.get_mut(&number).map(|qp| std::mem::take(&mut qp.receives)).unwrap_or_default();
            receives.into_iter().for_each(|it| self.recv_failed(number, None, &it, Status::Flushed));
            if init.srq.is_some() && was != QpState::Error {
                self.events[holders[0].0].push_back(AsyncEvent::QpLastWqe(QpId(holders[0].1)));
            }
        }
    }

    fn event(&mut self, number: u32, event: fn(QpId) -> AsyncEvent) {
        for (owner, name) in self.qps.get(&number).map(|qp| qp.holders.clone()).unwrap_or_default() {
            self.events[owner].push_back(event(QpId(name)));
        }
    }

    pub fn send_done(&mut self, number: u32, work: &Work, status: Status, bytes: u32) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        qp.silent += 1;
        if status == Status::Success && !work.signaled && !qp.init.signal_all {
            return;
        }
        let frees = std::mem::take(&mut qp.silent);
        let kind = match work.op {
            SendOp::Send { .. } => CompletionKind::Send,
            SendOp::Write { .. } => CompletionKind::Write,
            SendOp::Read { .. } => CompletionKind::Read,
            SendOp::CompareSwap { .. } => CompletionKind::CompareSwap,
            SendOp::FetchAdd { .. } => CompletionKind::FetchAdd,
        };
        let Some(cq) = qp.init.send_cq else { return };
        self.complete(cq, blank(work.id, status, kind, number, bytes), false, frees);
    }

    fn recv_failed(&mut self, number: u32, cq: Option<CqId>, receive: &Receive, status: Status) {
        let own = self.qps.get(&number).and_then(|qp| qp.init.recv_cq);
        let Some(cq) = cq.or(own) else { return };
        self.complete(cq, blank(receive.id, status, CompletionKind::Recv, number, 0), false, 0);
    }

    fn complete(&mut self, name: CqId, completion: Completion, solicited: bool, frees: u32) {
        let Some(cq) = self.cqs.get_mut(&name.0) else { return };
        if cq.queue.len() as u32 >= cq.depth {
            if !std::mem::replace(&mut cq.broken, true) {
                self.events[cq.owner].push_back(AsyncEvent::CqError(name));
            }
            return;
        }
        let urgent = solicited || completion.status != Status::Success;
        cq.queue.push_back((completion, frees));
        if cq.armed[0] || (cq.armed[1] && urgent) {
            cq.notices_due += 1;
            if cq.notices_due >= cq.moderation.count.max(1) {
                self.notify(name);
            }
        }
    }

    fn notify(&mut self, name: CqId) {
        let Some(cq) = self.cqs.get_mut(&name.0) else { return };
        (cq.armed, cq.notices_due) = ([false; 2], 0);
        self.cq_events[cq.owner].push_back(name);
    }

    /// The bytes of local memory, or why not.
    fn gather(&self, pd: u32, owner: usize, local: &Local) -> Result<Vec<u8>, Status> {
        let sges = match local {
            Local::Inline(bytes) => return Ok(bytes.clone()),
            Local::Memory(sges) => sges,
        };
        let mut bytes = Vec::new();
        for sge in sges.iter().filter(|sge| sge.len() > 0) {
            let (mr, offset) = self.local(pd, owner, sge, false)?;
            bytes.extend(mr.read(offset, sge.len() as usize));
        }
        Ok(bytes)
    }

    fn local(&self, pd: u32, owner: usize, sge: &Sge, writes: bool) -> Result<(super::memory::Start, u64), Status> {
        let mr = self.mrs.get(&(sge.lkey() >> 8)).filter(|_| sge.lkey() & 0xff == 0x11);
        let mr = mr.filter(|mr| mr.owner == owner && mr.pd == pd && (mr.access.local_write || !writes));
        let offset = mr.and_then(|mr| inside(mr.iova, mr.len, sge.address(), u64::from(sge.len())));
        mr.zip(offset).map(|(mr, offset)| (mr.start, offset)).ok_or(Status::LocalProtection)
    }

    fn scatter(&self, pd: u32, owner: usize, sges: &[Sge], bytes: &[u8]) -> Result<(), Status> {
        let mut places = Vec::new();
        for sge in sges.iter().filter(|sge| sge.len() > 0) {
            places.push((self.local(pd, owner, sge, true)?, sge.len() as usize));
        }
        let mut rest = bytes;
        for ((start, offset), len) in places {
            let (now, later) = rest.split_at(len.min(rest.len()));
            start.write(offset, now);
            rest = later;
        }
        Ok(())
    }

    /// Which adapter a packet comes to.
    fn reach(&mut self, from: usize, to: &AddressVector) -> Option<usize> {
        let port = &mut self.ports[from];
        if port.lose_packets > 0 {
            port.lose_packets -= 1;
            return None;
        }
        let found = (0..2).find(|hca| (self.ports[*hca].lid..self.ports[*hca].lid + 2).contains(&to.dlid))?;
        let path = to.dlid - self.ports[found].lid;
        let up = [from, found].iter().all(|hca| self.ports[*hca].up && !self.ports[*hca].dead);
        (up && self.dead_path != Some(path)).then_some(found)
    }

    fn datagram(&mut self, number: u32, work: &mut Work) -> Attempt {
        let (pd, owner, hca, own_key) = {
            let qp = &self.qps[&number];
            (qp.init.pd.map_or(0, |pd| pd.0), qp.holders[0].0, qp.hca, qp.attrs.qkey.unwrap_or(0))
        };
        let bytes = match self.gather(pd, owner, &work.local) {
            Ok(bytes) if bytes.len() > 2048 => return Attempt::Failed(Status::LocalLength),
            Ok(bytes) => bytes,
            Err(status) => return Attempt::Failed(status),
        };
        let Some((address, to, qkey)) = work.to else { return Attempt::Failed(Status::LocalOperation) };
        let qkey = if qkey >> 31 == 1 { own_key } else { qkey };
        let done = Attempt::Done(0);
        let Some(there) = self.reach(hca, &address) else { return done };
        let Some(peer) = self.qps.get(&to).filter(|peer| peer.hca == there && peer.init.kind == QpKind::Ud) else {
            return done;
        };
        let ready = !matches!(peer.state, QpState::Reset | QpState::Init | QpState::Error);
        if !ready || peer.attrs.qkey != Some(qkey) {
            return done;
        }
        let mut whole = vec![0; 40];
        if let Some(global) = address.global {
            whole[8..24].copy_from_slice(&self.gid(hca).0);
            whole[24..40].copy_from_slice(&global.dgid.0);
        }
        whole.extend(bytes);
        let immediate = if let SendOp::Send { immediate } = work.op { immediate } else { None };
        let came = Completion {
            immediate,
            source_qp: number,
            source_lid: self.ports[hca].lid + u16::from(address.source_path_bits),
            global: address.global.is_some(),
            ..blank(0, Status::Success, CompletionKind::Recv, to, whole.len() as u32)
        };
        if self.fits(to, None, whole.len()) {
            // A receive that fails is the receiver's concern alone.
            let _ = self.receive(to, None, &whole, came, work.solicited);
        }
        done
    }

    /// Whether the next receive is there and long enough.
    fn fits(&self, number: u32, srq: Option<u32>, len: usize) -> bool {
        let next = self.next_receive(number, srq);
        next.is_some_and(|next| next.sges.iter().map(|sge| sge.len() as usize).sum::<usize>() >= len)
    }

    fn next_receive(&self, number: u32, srq: Option<u32>) -> Option<&Receive> {
        let qp = self.qps.get(&number)?;
        match srq.or(qp.init.srq.map(|srq| srq.0)) {
            Some(srq) => self.srqs.get(&srq)?.queue.front(),
            None => qp.receives.front(),
        }
    }

    /// Takes the next receive and fills it; the error is what the sender sees.
    fn receive(
        &mut self,
        number: u32,
        srq: Option<u32>,
        bytes: &[u8],
        came: Completion,
        solicited: bool,
    ) -> Result<(), Status> {
        let fits = came.kind == CompletionKind::RecvWrite || self.fits(number, srq, bytes.len());
        let qp = self.qps.get_mut(&number).ok_or(Status::RemoteOperation)?;
        let (mut pd, mut owner, mut cq) = (qp.init.pd.map_or(0, |pd| pd.0), qp.holders[0].0, qp.init.recv_cq);
        let receive = match srq.or(qp.init.srq.map(|srq| srq.0)) {
            None => qp.receives.pop_front(),
            Some(name) => {
                let srq = self.srqs.get_mut(&name).ok_or(Status::RemoteOperation)?;
                (pd, owner) = (srq.pd, srq.owner);
                cq = srq.init.xrc.map(|xrc| xrc.cq).or(cq);
                let receive = srq.queue.pop_front();
                if (srq.queue.len() as u32) < srq.limit {
                    srq.limit = 0;
                    self.events[owner].push_back(AsyncEvent::SrqLimit(SrqId(name)));
                }
                receive
            }
        };
        let (Some(receive), Some(cq)) = (receive, cq) else { return Err(Status::RemoteOperation) };
        if !fits {
            self.recv_failed(number, Some(cq), &receive, Status::LocalLength);
            return Err(Status::RemoteInvalid);
        }
        if came.kind == CompletionKind::Recv
            && let Err(status) = self.scatter(pd, owner, &receive.sges, bytes)
        {
            self.recv_failed(number, Some(cq), &receive, status);
            return Err(Status::RemoteOperation);
        }
        self.complete(cq, Completion { id: receive.id, ..came }, solicited, 0);
        Ok(())
    }

    fn attempt(&mut self, number: u32, work: &mut Work) -> Attempt {
        let qp = &self.qps[&number];
        let (pd, owner, hca) = (qp.init.pd.map_or(0, |pd| pd.0), qp.holders[0].0, qp.hca);
        let (Some(address), Some(to)) = (qp.attrs.address, qp.attrs.destination) else {
            return Attempt::Failed(Status::LocalOperation);
        };
        let xrc = qp.init.kind == QpKind::XrcInitiator;
        let bytes = match self.gather(pd, owner, &work.local) {
            Ok(bytes) => bytes,
            Err(status) => return Attempt::Failed(status),
        };
        let Some(there) = self.reach(hca, &address) else { return Attempt::Unanswered };
        let kind = if xrc { QpKind::XrcTarget } else { QpKind::Rc };
        let ready = |state| matches!(state, QpState::Rtr | QpState::Rts | QpState::Sqd);
        let Some(peer) = self.qps.get(&to).filter(|it| it.hca == there && it.init.kind == kind && ready(it.state))
        else {
            return Attempt::Unanswered;
        };
        if peer.attrs.destination != Some(number) {
            return Attempt::Unanswered;
        }
        if work.done {
            return Attempt::Done(bytes.len() as u32);
        }
        let (mut peer_pd, mut peer_owner) = (peer.init.pd.map_or(0, |pd| pd.0), peer.holders[0].0);
        let (rights, domain) = (peer.attrs.access.unwrap_or_default(), peer.init.domain);
        let mut srq = None;
        if xrc {
            let identity = |domain: XrcdId| self.xrcds.get(&domain.0).map(|it| it.identity);
            let found = work.srq_number.and_then(|number| self.srqs.get(&number).map(|it| (number, it)));
            let Some((name, found)) =
                found.filter(|(_, it)| it.init.xrc.and_then(|xrc| identity(xrc.domain)) == domain.and_then(identity))
            else {
                return self.refuse(to, Status::RemoteInvalid, Some(AsyncEvent::QpRequestError));
            };
            (peer_pd, peer_owner, srq) = (found.pd, found.owner, Some(name));
        }
        let refused = (Status::RemoteInvalid, Some(AsyncEvent::QpRequestError as fn(QpId) -> AsyncEvent));
        let immediate = match work.op {
            SendOp::Send { immediate } | SendOp::Write { immediate, .. } => immediate,
            _ => None,
        };
        let takes = matches!(work.op, SendOp::Send { .. }) || immediate.is_some();
        if takes && self.next_receive(to, srq).is_none() {
            return Attempt::NotReady;
        }
        let remote = |at: Remote, len: usize, right: fn(Access) -> bool| {
            let mr = self.mrs.get(&(at.rkey >> 8)).filter(|mr| at.rkey & 0xff == 0x11 && right(mr.access));
            let mr = mr.filter(|mr| mr.owner == peer_owner && mr.pd == peer_pd)?;
            Some((mr.start, inside(mr.iova, mr.len, at.address, len as u64)?))
        };
        let access = (Status::RemoteAccess, Some(AsyncEvent::QpAccessError as fn(QpId) -> AsyncEvent));
        let result = match work.op {
            SendOp::Send { .. } => Ok(()),
            SendOp::Write { .. } if bytes.is_empty() => Ok(()),
            SendOp::Write { .. } if !rights.remote_write => Err(refused),
            SendOp::Write { to: at, .. } => match remote(at, bytes.len(), |it| it.remote_write) {
                None => Err(access),
                Some((start, offset)) => {
                    start.write(offset, &bytes);
                    Ok(())
                }
            },
            SendOp::Read { .. } if bytes.is_empty() => Ok(()),
            SendOp::Read { .. } if !rights.remote_read => Err(refused),
            SendOp::Read { from } => match remote(from, bytes.len(), |it| it.remote_read) {
                None => Err(access),
                Some((start, offset)) => {
                    let Local::Memory(sges) = &work.local else { return Attempt::Failed(Status::LocalOperation) };
                    if let Err(status) = self.scatter(pd, owner, sges, &start.read(offset, bytes.len())) {
                        return Attempt::Failed(status);
                    }
                    Ok(())
                }
            },
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } if !rights.remote_atomic => Err(refused),
            SendOp::CompareSwap { at, .. } | SendOp::FetchAdd { at, .. } => {
                match remote(at, 8, |it| it.remote_atomic) {
                    _ if at.address % 8 != 0 => Err(refused),
                    None => Err(access),
                    Some((start, offset)) => {
                        let old = u64::from_ne_bytes(start.read(offset, 8).try_into().unwrap_or_default());
                        let new = match work.op {
                            SendOp::FetchAdd { add, .. } => old.wrapping_add(add),
                            SendOp::CompareSwap { compare, swap, .. } if compare == old => swap,
                            _ => old,
                        };
                        let Local::Memory(sges) = &work.local else { return Attempt::Failed(Status::LocalOperation) };
                        if let Err(status) = self.scatter(pd, owner, sges, &old.to_ne_bytes()) {
                            return Attempt::Failed(status);
                        }
                        start.write(offset, &new.to_ne_bytes());
                        Ok(())
                    }
                }
            }
        };
        if let Err((status, event)) = result {
            return self.refuse(to, status, event);
        }
        if takes {
            let kind = match work.op {
                SendOp::Send { .. } => CompletionKind::Recv,
                _ => CompletionKind::RecvWrite,
            };
            let came = Completion { immediate, ..blank(0, Status::Success, kind, to, bytes.len() as u32) };
            if let Err(status) = self.receive(to, srq, &bytes, came, work.solicited) {
                return self.refuse(to, status, None);
            }
        }
        work.done = true;
        let answers = &mut self.ports[there];
        for lost in [&mut answers.lose_acks, &mut answers.lose_packets] {
            if *lost > 0 {
                *lost -= 1;
                return Attempt::Unanswered;
            }
        }
        Attempt::Done(bytes.len() as u32)
    }

    /// The peer answers with an error, and fails.
    fn refuse(&mut self, peer: u32, status: Status, event: Option<fn(QpId) -> AsyncEvent>) -> Attempt {
        event.into_iter().for_each(|event| self.event(peer, event));
        self.fail(peer, QpState::Error);
        Attempt::Failed(status)
    }

    pub fn gid(&self, hca: usize) -> rerail_verbs::Gid {
        let mut gid = [0xfe; 16];
        gid[15] = hca as u8 + 1;
        gid[14] = self.ports[hca].gids;
        rerail_verbs::Gid(gid)
    }
}

fn take(work: &mut Work) -> Work {
    Work {
        local: std::mem::replace(&mut work.local, Local::Inline(Vec::new())),
        ..Work { to: work.to, local: Local::Inline(Vec::new()), ..*work }
    }
}

/// Where in registered memory a range lies.
fn inside(iova: u64, len: u64, address: u64, bytes: u64) -> Option<u64> {
    let offset = address.checked_sub(iova)?;
    (offset <= len && bytes <= len - offset).then_some(offset)
}

fn blank(id: u64, status: Status, kind: CompletionKind, qp: u32, bytes: u32) -> Completion {
    Completion { id, status, kind, bytes, immediate: None, qp, source_qp: 0, source_lid: 0, global: false }
}
