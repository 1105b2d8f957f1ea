//! Datagrams in and out: set-up messages on the one queue pair whose number every peer has.
//!
//! A few can be sent at once; further messages wait, one per link, the newest. An answer to a process without
//! a link is dropped where there is no room: that process repeats its request.
//!
//! The queue pair's number is published, so when it fails, the same one is used again: once it has given
//! everything back, nothing of its earlier use can arrive any more.

use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_verbs::contract::{
    AhId, Completion, Datagram, Device, Payload, PostError, QpChange, QpState, SendOp, SendWr, Sge, Status,
};

use super::link::Phase;
use super::options::{DATAGRAM_SENDS, ROUTE_HEADER_BYTES};
use super::receive::{REFILL, requests};
use super::wire::{Nonce, SETUP_BYTES_MAX, Setup, SetupKind, mac_of, seal, signed};
use super::{Tag, VerbsRail};

/// The buffers' owners.
#[derive(Debug)]
pub(super) struct Datagrams {
    /// Send buffers that are free.
    free_sends: Vec<u32>,
    /// Address handles of those that are not, and those among them that end with the last message by them.
    handles: [Option<AhId>; DATAGRAM_SENDS as usize],
    ending: Vec<AhId>,
    /// Receive buffers that are not posted, and how many there are.
    free_receives: Vec<u32>,
    receives: usize,
    /// The queue pair is in the error state.
    failed: bool,
}

impl Datagrams {
    pub fn new(receives: u16) -> Self {
        Datagrams {
            free_sends: (0..DATAGRAM_SENDS).collect(),
            handles: [None; DATAGRAM_SENDS as usize],
            ending: Vec::new(),
            free_receives: (0..receives.into()).collect(),
            receives: receives.into(),
            failed: false,
        }
    }

    /// The queue pair has failed.
    pub fn note_failure(&mut self) {
        self.failed = true;
    }

    /// Whether all receive buffers are posted and the queue pair works.
    pub fn is_ready(&self) -> bool {
        !self.failed && self.free_receives.is_empty()
    }

    /// Messages being sent.
    pub fn in_flight(&self) -> u32 {
        self.handles.iter().flatten().count() as u32
    }

    /// Whether a pending message uses a handle, which then ends with it.
    pub fn keep_while_used(&mut self, handle: AhId) -> bool {
        let is_used = self.handles.contains(&Some(handle));
        if is_used && !self.ending.contains(&handle) {
            self.ending.push(handle);
        }
        is_used
    }

    /// A message is complete; returns its handle, if that ends now.
    fn through(&mut self, place: u32) -> Option<AhId> {
        let handle = self.handles.get_mut(place as usize)?.take()?;
        self.free_sends.push(place);
        let at = self.ending.iter().position(|ending| *ending == handle)?;
        (!self.handles.contains(&Some(handle))).then(|| self.ending.swap_remove(at))
    }

    /// Handles that end with the last message by them.
    pub fn ending(&self) -> u32 {
        self.ending.len() as u32
    }

    /// Whether it has given everything back since.
    fn is_empty(&self) -> bool {
        self.free_receives.len() == self.receives && self.free_sends.len() == self.handles.len()
    }
}

impl<D: Device> VerbsRail<D> {
    /// Sends a link's message at the next opportunity.
    pub(super) fn queue_message(&mut self, index: u32) {
        if let Some(link) = self.links.get_mut(index)
            && !std::mem::replace(&mut link.is_send_due, true)
        {
            self.due_links.push_back(index);
        }
    }

    /// Sends waiting messages, as far as there are buffers; returns their number.
    pub(super) fn send_due_messages(&mut self) -> usize {
        let mut sent = 0;
        while !self.datagrams.free_sends.is_empty()
            && let Some(index) = self.due_links.pop_front()
        {
            let Some(link) = self.links.get_mut(index) else { continue };
            if std::mem::take(&mut link.is_send_due) {
                let (peer, nonce, due_message) = (link.peer, link.nonce, link.due_message);
                let attempt = if link.attempt != 0 { link.attempt } else { self.attempts };
                match self.send_setup((peer, Some(index)), attempt, nonce, due_message) {
                    Ok(is_out) => sent += usize::from(is_out),
                    Err(fault) => self.drop_address(index, fault),
                }
                self.give_handle_back(index);
            }
        }
        sent
    }

    /// There is no path to the peer: a call or an answer has failed (V-18); the messages of an established
    /// connection are hints.
    fn drop_address(&mut self, index: u32, fault: RailFault) {
        if self.links.get(index).is_some_and(|link| matches!(link.phase, Phase::Calling | Phase::Called)) {
            self.fail(index, Some(fault));
        }
    }

    /// Sends one message to a peer, if there is room: by the handle of a link, or by one of its own. `Err`:
    /// there is no path.
    pub(super) fn send_setup(
        &mut self,
        (peer, link): (PeerId, Option<u32>),
        attempt: u32,
        nonce: Nonce,
        kind: SetupKind,
    ) -> Result<bool, RailFault> {
        let can = !self.datagrams.failed && self.outage.is_none();
        let Some(known) = self.peers.get(peer).copied().filter(|_| can) else { return Ok(false) };
        let Some(address_vector) = self.address_vector(peer) else { return Ok(false) };
        if self.datagrams.free_sends.is_empty() {
            return Ok(false);
        }
        let link = link.filter(|index| self.links.get(*index).is_some());
        let handle = self.handle_for(&address_vector, link)?;
        let Some(place) = self.datagrams.free_sends.pop() else { return Ok(false) };
        let identity = &self.identity;
        let setup = Setup {
            rail: self.options.index,
            job: identity.job,
            from: identity.me.0,
            to: peer.0,
            attempt: attempt.max(1),
            at: self.port.address.peer_addresses(),
            nonce,
            kind,
        };
        let mut message = setup.emit();
        let secret = self.peers.secret(peer, &identity.credentials);
        let Some(mac) = secret.map(|secret| secret.sign(signed(&message))) else { return Ok(false) }; // V-3
        seal(&mut message, &mac);
        let at = self.layout.datagram_sends + u64::from(place) * self.layout.datagram;
        self.slab.put(at, &message);
        let sges = [self.slab.sge(at, message.len() as u32)];
        let request = SendWr {
            datagram: Some(Datagram { handle, qp: known.qp, qkey: self.port.qkey }),
            ..SendWr::new(Tag::DatagramSend.id(place, 0), SendOp::Send { immediate: None }, Payload::Memory(&sges))
        };
        match self.device.post_send(self.objects.ud.id, &[request]) {
            Ok(()) => self.datagrams.handles[place as usize] = Some(handle),
            Err(why) => {
                tracing::debug!(rail = %self.options.name, %why, "set-up message not sent");
                self.datagrams.free_sends.push(place);
            }
        }
        match link {
            Some(index) => self.give_handle_back(index),
            None => self.drop_handle(handle),
        }
        Ok(self.datagrams.handles[place as usize].is_some())
    }

    /// A datagram is out, or will never be.
    pub(super) fn datagram_sent(&mut self, place: u32, status: Status) {
        if let Some(handle) = self.datagrams.through(place) {
            let _ = self.device.destroy_ah(handle);
        }
        match status {
            Status::Success => {}
            Status::Flushed => self.datagrams.failed = true,
            _ => {
                // Sends are in error then, receives are not; the message is sent again later.
                let change = QpChange { current: Some(QpState::Sqe), ..QpChange::to(QpState::Rts) };
                self.datagrams.failed |= self.device.modify_qp(self.objects.ud.id, &change).is_err();
            }
        }
    }

    /// Sets a failed queue pair up again, once that is possible.
    pub(super) fn restart_datagrams(&mut self) {
        if !self.datagrams.failed {
            return;
        }
        let ud = self.objects.ud.id;
        // Where it is in error already, nothing happens.
        let _ = self.device.modify_qp(ud, &QpChange::to(QpState::Error));
        if !self.datagrams.is_empty() {
            return;
        }
        let restarted = self.device.modify_qp(ud, &QpChange::to(QpState::Reset)).and_then(|()| self.start_datagrams());
        tracing::info!(rail = %self.options.name, ?restarted, "queue pair for datagrams had failed");
        match restarted {
            Ok(()) => self.datagrams.failed = false,
            Err(_) => self.broken = true,
        }
    }

    /// A datagram has arrived: returns the set-up message in it, if it is for this process and from the one
    /// that it names.
    pub(super) fn datagram_received(&mut self, place: u32, completion: &Completion) -> Option<Setup> {
        self.datagrams.free_receives.push(place);
        if completion.status != Status::Success {
            self.datagrams.failed = true;
            return None;
        }
        let setup = self.read_datagram(place, completion.bytes);
        if setup.is_none() {
            self.counters.unauthenticated += 1;
        }
        setup
    }

    fn read_datagram(&mut self, place: u32, bytes: u32) -> Option<Setup> {
        let len = (bytes as usize).checked_sub(ROUTE_HEADER_BYTES)?;
        let mut message = [0; SETUP_BYTES_MAX];
        let message = message.get_mut(..len)?;
        let at = self.layout.datagrams + u64::from(place) * self.layout.datagram;
        self.slab.get(at + ROUTE_HEADER_BYTES as u64, message);
        let setup = Setup::parse(message).ok()?; // V-1
        let secret = self.peers.secret(PeerId(setup.from), &self.identity.credentials)?;
        secret.verify(signed(message), mac_of(message)).ok()?; // V-3
        Some(setup)
    }

    /// Posts all receives for datagrams that are free.
    pub(super) fn refill_datagrams(&mut self) -> Result<(), PostError> {
        if self.datagrams.free_receives.is_empty() {
            return Ok(());
        }
        let mut sges = [Sge::default(); REFILL];
        while !self.datagrams.failed && !self.datagrams.free_receives.is_empty() {
            let first = self.datagrams.free_receives.len().saturating_sub(REFILL);
            let free = &self.datagrams.free_receives[first..];
            for (sge, place) in sges.iter_mut().zip(free) {
                let at = self.layout.datagrams + u64::from(*place) * self.layout.datagram;
                *sge = self.slab.sge(at, (ROUTE_HEADER_BYTES + SETUP_BYTES_MAX) as u32);
            }
            self.device.post_recv(self.objects.ud.id, &requests(Tag::DatagramReceive, free, &sges))?;
            self.datagrams.free_receives.truncate(first);
        }
        Ok(())
    }
}
