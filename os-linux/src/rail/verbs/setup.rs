//! Connecting (rules V-1 to V-6). Both sides do the same, whoever began: make a queue pair, call the other, and believe a
//! call that answers the own nonce; then the own queue pair can receive, which the next call says. Who knows that both
//! can, is up.
//!
//! ```text
//!  A: call(nonce a)            ->                B: makes its queue pair
//!  A: believes, can receive    <-                B: call(nonce b, echo a)
//!  A: call(a, echo b, ready)   ->                B: believes, can receive, is up
//!  A: is up                    <-                B: call(b, echo a, ready, done)
//! ```
//!
//! Calls are lost, doubled and delayed; each is repeated until its side is up. Calls of earlier attempts answer no nonce
//! that is in use, and are worth nothing.

use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_core::time::Time;
use rerail_verbs::contract::{
    Access, Datagram, Device, Payload, QpCaps, QpChange, QpInit, QpKind, QpState, SendOp, SendRequest,
};

use super::flow::{Work, id_of};
use super::link::{Link, Posted, Stage};
use super::slab::Slab;
use super::wire::{CALL_BYTES, Call};
use super::{Address, QKEY, VerbsRail};

impl<D: Device> VerbsRail<D> {
    /// The core wants a connection.
    pub(super) fn call_peer(&mut self, now: Time, peer: PeerId) {
        if let Some(link) = self.links.get_mut(&peer.0) {
            match link.stage {
                // One that is being left is no use any more: a new one takes its place.
                Stage::Closing { .. } => self.drop_link(peer),
                _ => {
                    link.told = true;
                    return;
                }
            }
        }
        let known = self.peers.get(peer.0 as usize).copied().flatten();
        let Some(address) = known.filter(|_| !self.dead) else {
            self.downs.push_back((peer, RailFault::Refused));
            return;
        };
        match self.make_link(now, peer) {
            Ok(()) => {
                if let Some(link) = self.links.get_mut(&peer.0) {
                    link.told = true;
                }
                self.call(now, peer, address);
            }
            Err(fault) => self.downs.push_back((peer, fault)),
        }
    }

    /// A queue pair and buffers for a peer.
    fn make_link(&mut self, now: Time, peer: PeerId) -> Result<(), RailFault> {
        if self.links.len() >= self.options.connections_max as usize {
            return Err(RailFault::Device { code: rustix::io::Errno::NOBUFS.raw_os_error() });
        }
        let posts = u32::from(self.options.posts_max);
        let limits = self.device.limits();
        let caps = QpCaps {
            send_depth: posts,
            recv_depth: 0,
            send_sges: limits.sges.clamp(1, 4),
            recv_sges: 1,
            inline_bytes: 0,
        };
        let init = QpInit {
            kind: QpKind::Rc,
            pd: Some(self.pd),
            send_cq: Some(self.cq),
            recv_cq: Some(self.cq),
            srq: Some(self.srq.id),
            domain: None,
            caps,
            signal_all: true,
        };
        let no_memory = RailFault::Device { code: rustix::io::Errno::NOMEM.raw_os_error() };
        let qp = self.device.create_qp(&init).map_err(|_| no_memory)?;
        let slots = (u64::from(posts), self.options.slot_bytes());
        let send = match Slab::new(&mut self.device, self.pd, slots, &mut self.addresses) {
            Ok(send) => send,
            Err(_) => {
                // It was made a moment ago, and nothing uses it.
                let _ = self.device.destroy_qp(qp.id);
                return Err(no_memory);
            }
        };
        let access = Access {
            local_write: true,
            remote_write: self.options.write,
            remote_read: self.options.read,
            remote_atomic: false,
        };
        let change = QpChange {
            pkey_index: Some(0),
            port: Some(self.options.port),
            access: Some(access),
            ..QpChange::to(QpState::Init)
        };
        let (nonce, psn) = self.fresh(peer);
        let link = Link {
            stage: Stage::Calling,
            qp,
            send,
            posts: (0..posts).map(|_| Posted::Nothing).collect(),
            free: (0..posts).rev().collect(),
            told: false,
            nonce,
            peer_nonce: 0,
            psn,
            call_at: None,
            give_up_at: now + self.options.handshake_timeout,
        };
        if self.device.modify_qp(qp.id, &change).is_err() {
            link.destroy(&mut self.device);
            return Err(no_memory);
        }
        self.by_qp.insert(qp.number, peer.0);
        self.links.insert(peer.0, link);
        Ok(())
    }

    /// A nonce and a first PSN that nobody can guess (V-3).
    fn fresh(&mut self, peer: PeerId) -> (u64, u32) {
        self.calls += 1;
        let mut text = [0; 48];
        text[..32].copy_from_slice(&self.options.salt);
        text[32..36].copy_from_slice(&self.rank.0.to_le_bytes());
        text[36..40].copy_from_slice(&peer.0.to_le_bytes());
        text[40..].copy_from_slice(&self.calls.to_le_bytes());
        let drawn = self.key.seal(b"rerail verbs nonce", &text);
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| drawn[at + index]));
        // 0 stands for "not known".
        (long(0).max(1), long(8) as u32 & 0xff_ffff)
    }

    /// Says what this side knows, and when to say it again.
    fn call(&mut self, now: Time, peer: PeerId, address: Address) {
        let again = now + self.options.call_again;
        let Some(link) = self.links.get_mut(&peer.0) else { return };
        let call = Call {
            job: self.job,
            from: self.rank,
            to: peer,
            qp: link.qp.number,
            psn: link.psn,
            nonce: link.nonce,
            echo: link.peer_nonce,
            ready: link.stage != Stage::Calling,
            done: link.stage == Stage::Up,
            mtu: self.mtu,
        };
        link.call_at = (link.stage != Stage::Up).then_some(again);
        let bytes = call.emit(&self.key);
        // A datagram that can't go now is one that was lost.
        let _ = self.send_datagram(peer, address, &bytes);
    }

    fn send_datagram(&mut self, peer: PeerId, address: Address, bytes: &[u8; CALL_BYTES]) -> Option<()> {
        let handle = match self.handles.get(&peer.0) {
            Some(handle) => *handle,
            None => {
                let vector = self.vector_to(address);
                let handle = self.device.create_ah(self.pd, &vector).ok()?;
                self.handles.insert(peer.0, handle);
                handle
            }
        };
        let slot = self.datagrams_free.pop()?;
        self.datagrams_out.fill(slot, bytes, &[]);
        let sges = [self.datagrams_out.sge(slot, CALL_BYTES as u64)];
        let request = SendRequest {
            datagram: Some(Datagram { handle, qp: address.qp, qkey: QKEY }),
            ..SendRequest::new(
                id_of(Work::DatagramOut, 0, slot),
                SendOp::Send { immediate: None },
                Payload::Memory(&sges),
            )
        };
        if self.device.post_send(self.ud.id, &[request]).is_err() {
            self.datagrams_free.push(slot);
            return None;
        }
        Some(())
    }

    /// A datagram has come. Whatever is not a call of this job to this rank is counted and dropped (V-3).
    pub(super) fn called(&mut self, now: Time, bytes: &[u8], up: &mut Vec<PeerId>) {
        let call = match Call::parse(bytes, &self.key) {
            Ok(Some(call)) if call.job == self.job && call.to == self.rank && call.from != self.rank => call,
            Ok(_) => {
                self.counters.unauthenticated += 1;
                return;
            }
            Err(_) => {
                self.counters.corrupt += 1;
                return;
            }
        };
        let peer = call.from;
        let Some(address) = self.peers.get(peer.0 as usize).copied().flatten() else {
            self.counters.unauthenticated += 1;
            return;
        };
        if !self.links.contains_key(&peer.0) {
            // A call that is part of an attempt that is over here (V-5) begins no new one.
            if call.echo != 0 || self.make_link(now, peer).is_err() {
                return;
            }
        }
        let Some(link) = self.links.get_mut(&peer.0) else { return };
        if call.echo != link.nonce {
            // It answers nothing of this attempt, so it may be old: it is told this attempt's nonce, no more (V-4).
            if link.stage == Stage::Calling && call.echo == 0 {
                link.peer_nonce = call.nonce;
                self.call(now, peer, address);
            }
            return;
        }
        if link.stage == Stage::Calling {
            link.peer_nonce = call.nonce;
            if self.make_ready(peer, address, &call).is_err() {
                self.fail(peer, RailFault::Device { code: rustix::io::Errno::IO.raw_os_error() });
                return;
            }
        }
        let Some(link) = self.links.get_mut(&peer.0) else { return };
        if call.nonce != link.peer_nonce {
            return;
        }
        if link.stage == Stage::Ready && call.ready {
            self.stand(peer, up);
        }
        // Who is not done yet waits for a word of this side (V-4).
        if !call.done {
            self.call(now, peer, address);
        }
    }

    /// The peer's queue pair is known: the own one can receive and send.
    fn make_ready(
        &mut self,
        peer: PeerId,
        address: Address,
        call: &Call,
    ) -> Result<(), rerail_verbs::contract::ModifyError> {
        let vector = self.vector_to(address);
        let limits = self.device.limits();
        let Some(link) = self.links.get_mut(&peer.0) else { return Ok(()) };
        let receive = QpChange {
            address: Some(vector),
            path_mtu: Some(self.mtu.min(call.mtu)),
            destination: Some(call.qp),
            recv_psn: Some(call.psn),
            reads_served: Some(limits.reads_served.min(16)),
            // 0.64 ms: long enough for a receiver to refill, short enough not to be felt.
            rnr_timer: Some(12),
            ..QpChange::to(QpState::Rtr)
        };
        let send = QpChange {
            timeout: Some(self.options.timeout),
            retry_count: Some(self.options.retry_count),
            rnr_retry: Some(self.options.rnr_retry),
            send_psn: Some(link.psn),
            reads_open: Some(limits.reads_open.min(16)),
            ..QpChange::to(QpState::Rts)
        };
        self.device.modify_qp(link.qp.id, &receive)?;
        self.device.modify_qp(link.qp.id, &send)?;
        link.stage = Stage::Ready;
        Ok(())
    }

    /// Both can receive.
    pub(super) fn stand(&mut self, peer: PeerId, up: &mut Vec<PeerId>) {
        let Some(link) = self.links.get_mut(&peer.0) else { return };
        link.stage = Stage::Up;
        link.call_at = None;
        link.told = true;
        if let Some(handle) = self.handles.remove(&peer.0) {
            // Another call, should one be needed, makes another handle.
            let _ = self.device.destroy_ah(handle);
        }
        up.push(peer);
    }

    /// Calls again, gives up, closes (V-6).
    pub(super) fn run_timers(&mut self, now: Time) -> usize {
        let due: Vec<u32> = self
            .links
            .iter()
            .filter(|(_, link)| link.next_timeout().is_some_and(|at| at <= now))
            .map(|(peer, _)| *peer)
            .collect();
        for &rank in &due {
            let peer = PeerId(rank);
            let Some(link) = self.links.get_mut(&rank) else { continue };
            match link.stage {
                Stage::Closing { until: Time(0) } => {
                    // The goodbye was said before this poll: now there is a time.
                    link.stage = Stage::Closing { until: now + self.options.linger };
                    link.give_up_at = now + self.options.handshake_timeout;
                }
                Stage::Closing { .. } => {
                    if link.open_posts() == 0 || now >= link.give_up_at {
                        self.drop_link(peer);
                    } else {
                        link.stage = Stage::Closing { until: now + self.options.linger };
                    }
                }
                _ if now >= link.give_up_at => self.fail(peer, RailFault::TimedOut),
                _ => {
                    if let Some(address) = self.peers.get(rank as usize).copied().flatten() {
                        self.call(now, peer, address);
                    }
                }
            }
        }
        due.len()
    }

    /// A connection is over by a fault: told once, where it was known to the core.
    pub(super) fn fail(&mut self, peer: PeerId, fault: RailFault) {
        let told = self.links.get(&peer.0).is_some_and(|link| link.told);
        self.drop_link(peer);
        if told {
            self.downs.push_back((peer, fault));
        }
    }

    /// Destroys a connection without a word.
    pub(super) fn drop_link(&mut self, peer: PeerId) {
        if let Some(handle) = self.handles.remove(&peer.0) {
            let _ = self.device.destroy_ah(handle);
        }
        if let Some(link) = self.links.remove(&peer.0) {
            self.by_qp.remove(&link.qp.number);
            link.destroy(&mut self.device);
        }
    }
}
