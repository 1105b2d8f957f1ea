//! Posting, completions and events.

use rerail_core::endpoint::{Arrival, PostKind, PostStatus, RailFault};
use rerail_core::ids::PeerId;
use rerail_core::time::Time;
use rerail_core::wire::{HEADER_BYTES_MAX, stream};
use rerail_verbs::contract::{
    Access, AsyncEvent, Completion, CompletionKind, Device, MrId, Payload, RegisterError, Remote, SendOp, SendRequest,
    Sge, Status,
};
use rustix::io::Errno;

use super::link::{Posted, Stage};
use super::slab;
use super::wire::CALL_BYTES;
use super::{GRH_BYTES, VerbsRail};
use crate::rail::{Outgoing, Sink};

/// Completions taken at once.
const BATCH: usize = 64;

/// What a work request is, in the top bits of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Receive = 1,
    DatagramIn,
    DatagramOut,
    /// A post of a connection.
    Post,
}

/// Ids of work requests: sort, peer, slot.
pub fn id_of(work: Work, peer: u32, slot: u32) -> u64 {
    (work as u64) << 60 | u64::from(peer) << 24 | u64::from(slot)
}

fn work_of(id: u64) -> Option<(Work, u32, u32)> {
    let work = match id >> 60 {
        1 => Work::Receive,
        2 => Work::DatagramIn,
        3 => Work::DatagramOut,
        4 => Work::Post,
        _ => return None,
    };
    Some((work, (id >> 24) as u32, id as u32 & 0xff_ffff))
}

/// A number for a failed registration.
pub fn code_of_registration(error: &RegisterError) -> i32 {
    match error {
        RegisterError::System { code } => *code,
        RegisterError::Exhausted { .. } => Errno::NOMEM.raw_os_error(),
        RegisterError::DeviceGone => Errno::NODEV.raw_os_error(),
        _ => Errno::INVAL.raw_os_error(),
    }
}

/// A number for a failed work request, as `enum ibv_wc_status` counts.
fn code_of(status: Status) -> i32 {
    match status {
        Status::Success => 0,
        Status::LocalLength => 1,
        Status::LocalOperation => 2,
        Status::LocalProtection => 4,
        Status::Flushed => 5,
        Status::BadResponse => 7,
        Status::LocalAccess => 8,
        Status::RemoteInvalid => 9,
        Status::RemoteAccess => 10,
        Status::RemoteOperation => 11,
        Status::RetryExceeded => 12,
        Status::RnrRetryExceeded => 13,
        Status::Fatal => 19,
        Status::Other(code) => code,
    }
}

impl<D: Device> VerbsRail<D> {
    /// Hands a post to the device (V-1). An error is a fault of the subchannel, or (`None`) of this post alone.
    pub(super) fn try_post(&mut self, outgoing: &Outgoing<'_>) -> Result<(), Option<RailFault>> {
        let peer = outgoing.peer.0;
        let Some(link) = self.links.get_mut(&peer) else { return Err(None) };
        if link.stage != Stage::Up {
            return Err(None);
        }
        let Some(slot) = link.free.pop() else { return Err(None) };
        let id = id_of(Work::Post, peer, slot);
        let posted = match outgoing.kind {
            PostKind::Send => {
                let bytes = link.send.fill(slot, outgoing.header, outgoing.payload);
                let wanted = outgoing.header.len() + outgoing.payload.iter().map(|piece| piece.len).sum::<usize>();
                if bytes != wanted as u64 {
                    link.free.push(slot);
                    return Err(None);
                }
                self.counters.bytes_sent += bytes;
                let sges = [link.send.sge(slot, bytes)];
                let request = SendRequest::new(id, SendOp::Send { immediate: None }, Payload::Memory(&sges));
                link.posts[slot as usize] = Posted::Packet(outgoing.id);
                self.device.post_send(link.qp.id, &[request])
            }
            PostKind::Write { to } | PostKind::Read { from: to } => {
                let read = matches!(outgoing.kind, PostKind::Read { .. });
                let remote = Remote { address: to.address, rkey: to.key as u32 };
                let mut registrations: Vec<MrId> = Vec::with_capacity(outgoing.payload.len());
                let mut sges: Vec<Sge> = Vec::with_capacity(outgoing.payload.len());
                for piece in outgoing.payload.iter().filter(|piece| piece.len > 0) {
                    let access = Access { local_write: read, ..Access::default() };
                    match slab::register(&mut self.device, self.pd, *piece, access, &mut self.addresses) {
                        Ok((mr, address)) => {
                            registrations.push(mr.id);
                            sges.push(Sge { address, len: piece.len as u32, lkey: mr.lkey });
                            self.counters.bytes_sent += if read { 0 } else { piece.len as u64 };
                        }
                        Err(error) => {
                            for mr in registrations {
                                // Registered a moment ago, and named by nothing.
                                let _ = self.device.deregister(mr);
                            }
                            link.free.push(slot);
                            return Err(Some(RailFault::Device { code: code_of_registration(&error) }));
                        }
                    }
                }
                let op =
                    if read { SendOp::Read { from: remote } } else { SendOp::Write { to: remote, immediate: None } };
                let request = SendRequest::new(id, op, Payload::Memory(&sges));
                link.posts[slot as usize] = Posted::Transfer(outgoing.id, registrations);
                self.device.post_send(link.qp.id, &[request])
            }
        };
        self.counters.packets_sent += 1;
        // A queue pair that takes no more is one that has failed; its completions will say so, or can't any more.
        posted.map_err(|_| Some(RailFault::Device { code: code_of(Status::Flushed) }))
    }

    /// Takes what the device has completed.
    pub(super) fn take_completions(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        if self.dead {
            return 0;
        }
        let mut done = 0;
        loop {
            let mut batch = std::mem::take(&mut self.completions);
            batch.clear();
            let taken = self.device.poll_cq(self.cq, BATCH, &mut batch);
            for completion in &batch {
                self.completed(now, completion, sink);
            }
            let count = batch.len();
            self.completions = batch;
            done += count;
            if taken.is_err() {
                // The queue is broken, and with it everything that completes through it.
                self.all_fail(Errno::IO.raw_os_error());
                return done + 1;
            }
            if count < BATCH {
                return done;
            }
        }
    }

    fn completed(&mut self, now: Time, completion: &Completion, sink: &mut dyn Sink) {
        match work_of(completion.id) {
            Some((Work::Receive, _, slot)) => self.received(completion, slot, sink),
            Some((Work::DatagramIn, _, slot)) => {
                if completion.status == Status::Success && u64::from(completion.bytes) == GRH_BYTES + CALL_BYTES as u64
                {
                    let mut bytes = [0; CALL_BYTES];
                    self.datagrams_in.read(slot, GRH_BYTES, &mut bytes);
                    let mut up = Vec::new();
                    self.called(now, &bytes, &mut up);
                    up.into_iter().for_each(|peer| sink.up(peer));
                } else if completion.status == Status::Success {
                    self.counters.corrupt += 1;
                }
                if completion.status == Status::Success {
                    // Where it is refused the device is failing, and an event tells.
                    let _ = self.post_datagram_receive(slot);
                }
            }
            Some((Work::DatagramOut, _, slot)) => self.datagrams_free.push(slot),
            Some((Work::Post, peer, slot)) => self.post_over(completion, peer, slot, sink),
            None => debug_assert!(false, "a completion of nothing that was posted: {completion:?}"),
        }
    }

    fn post_over(&mut self, completion: &Completion, peer: u32, slot: u32, sink: &mut dyn Sink) {
        // A completion of an earlier connection to the same peer names another queue pair.
        let Some(link) = self.links.get_mut(&peer).filter(|link| link.qp.number == completion.qp) else { return };
        if completion.status != Status::Success {
            self.fail(PeerId(peer), RailFault::Device { code: code_of(completion.status) });
            return;
        }
        let posted = std::mem::replace(&mut link.posts[slot as usize], Posted::Nothing);
        link.free.push(slot);
        let told = link.stage == Stage::Up;
        let id = match posted {
            Posted::Nothing => return,
            Posted::Packet(id) => id,
            Posted::Transfer(id, registrations) => {
                for mr in registrations {
                    let _ = self.device.deregister(mr);
                }
                id
            }
        };
        if told {
            sink.completed(id, PostStatus::Done);
        }
    }

    fn received(&mut self, completion: &Completion, slot: u32, sink: &mut dyn Sink) {
        let peer = self.by_qp.get(&completion.qp).copied();
        if completion.status != Status::Success {
            // The receive is gone from the shared queue, whoever's message had it.
            let _ = self.post_receive(slot);
            if let Some(peer) = peer {
                self.fail(PeerId(peer), RailFault::Device { code: code_of(completion.status) });
            }
            return;
        }
        if let Some(peer) = peer.filter(|_| completion.kind == CompletionKind::Recv) {
            self.arrived(PeerId(peer), slot, completion.bytes.into(), sink);
        }
        // Where it is refused the device is failing, and an event tells.
        let _ = self.post_receive(slot);
    }

    /// A packet lies in a receive buffer.
    fn arrived(&mut self, peer: PeerId, slot: u32, bytes: u64, sink: &mut dyn Sink) {
        let Some(link) = self.links.get_mut(&peer.0) else { return };
        match link.stage {
            Stage::Ready => {
                // It has come before the call that said so: the peer can send, so it can receive, too (V-4).
                let mut up = Vec::new();
                self.stand(peer, &mut up);
                up.into_iter().for_each(|peer| sink.up(peer));
            }
            Stage::Up => {}
            // Nobody listens any more.
            Stage::Calling | Stage::Closing { .. } => return,
        }
        let mut header = [0; HEADER_BYTES_MAX];
        let read = self.receives.read(slot, 0, &mut header) as u64;
        let len = match stream::header_len(&header[..read.min(bytes) as usize]) {
            Ok(Some(len)) if len as u64 <= bytes && len <= HEADER_BYTES_MAX => len,
            _ => {
                self.counters.corrupt += 1;
                self.fail(peer, RailFault::Corrupt);
                return;
            }
        };
        self.counters.packets_received += 1;
        self.counters.bytes_received += bytes;
        let payload = bytes - len as u64;
        if payload != u64::from(stream::payload_len(&header[..len])) {
            self.counters.corrupt += 1;
            self.fail(peer, RailFault::Corrupt);
            return;
        }
        match sink.arrival(peer, &header[..len]) {
            Arrival::Place { id, .. } => {
                let mut pieces = std::mem::take(&mut self.pieces);
                if sink.place(id, 0, &mut pieces) {
                    self.receives.scatter(slot, len as u64, payload, &pieces);
                    sink.placed(id);
                }
                self.pieces = pieces;
            }
            Arrival::Done | Arrival::Discard => {}
            Arrival::Close => {
                // The core knows, and has given the peer up.
                self.counters.corrupt += 1;
                self.drop_link(peer);
            }
        }
    }

    /// Takes what happened beside work requests.
    pub(super) fn take_events(&mut self) -> usize {
        let mut done = 0;
        while let Some(event) = self.device.async_event() {
            done += 1;
            match event {
                AsyncEvent::QpFatal(qp) | AsyncEvent::QpRequestError(qp) | AsyncEvent::QpAccessError(qp) => {
                    let found = self.links.iter().find(|(_, link)| link.qp.id == qp).map(|(peer, _)| *peer);
                    if let Some(peer) = found {
                        self.fail(PeerId(peer), RailFault::Device { code: code_of(Status::Fatal) });
                    }
                }
                AsyncEvent::DeviceFatal | AsyncEvent::CqError(_) | AsyncEvent::SrqError(_) => {
                    self.all_fail(Errno::NODEV.raw_os_error());
                }
                // Links that are down for a moment are the device's to bear: it sends again until its retries end.
                _ => {}
            }
        }
        done
    }

    /// The device is of no use any more.
    fn all_fail(&mut self, code: i32) {
        self.dead = true;
        let peers: Vec<u32> = self.links.keys().copied().collect();
        for peer in peers {
            self.fail(PeerId(peer), RailFault::Device { code });
        }
    }
}
