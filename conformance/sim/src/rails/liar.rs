//! A rail of a rank that lies: an authenticated member of the job whose packets are well-formed and false.
//!
//! The endpoint behind it is an honest one. Of its packets some are altered on their way out, and forged ones
//! go out beside them, at the drawn moments and rates of a [`LiarSpec`]. All rails of the rank share what the
//! liar has learned, so that it can lie on one about what it saw on another. The rail below takes a few more
//! posts than are announced to the endpoint: these are for the forged packets, whose completions the endpoint
//! never sees.
//!
//! All packets parse, with numbers near true ones: ids of operations seen, next to these, or of others; PSNs,
//! connection numbers, retry epochs, nonces, keys and windows now or formerly in use. Two things that a peer
//! may do are kept out of the checks: writes to a window that the liar may write (it puts only into its own
//! slots, and forged puts and atomics miss every window), and its messages to receives from any source
//! (receives name theirs; `keepalive` is set).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rerail_core::endpoint::{Arrival, PostKind, PostStatus, RailFault};
use rerail_core::ids::{Key, PeerId, PostId};
use rerail_core::rail::RailFacts;
use rerail_core::time::Time;
use rerail_core::wire::Repr;
use rerail_linux::rail::{AddressError, Outgoing, Piece, Rail, Sink};

use super::forward::{forward, forward_sink};
use super::insert::Insertions;
use super::lies::{Knowledge, Lie, PAYLOAD_MAX};
use crate::rng::Rng;
use crate::scenario::LiarSpec;

/// Posts of forged packets have ids from here on; no packet table is so large.
const FORGED_FROM: u32 = 0xFF00_0000;

/// Posts per peer that are kept for forged packets, where the rail takes so many.
const FORGED_MAX: u16 = 3;

/// What all rails of the liar share.
pub struct Liar {
    spec: LiarSpec,
    rng: Rng,
    peers: BTreeMap<u32, Knowledge>,
    forged: u32,
}

impl Liar {
    /// The liar of a simulation.
    pub fn of(spec: &LiarSpec, seed: u64) -> Rc<RefCell<Liar>> {
        let (spec, rng) = (spec.clone(), Rng::new(seed, "liar"));
        Rc::new(RefCell::new(Liar { spec, rng, peers: BTreeMap::new(), forged: 0 }))
    }

    /// A rail of a rank, with what the liar has to do with it.
    pub fn wrap(this: &Rc<RefCell<Liar>>, inner: Box<dyn Rail>, rank: u32, rail: usize) -> Box<dyn Rail> {
        let is_liar = this.borrow().spec.rank == rank;
        if is_liar { LiarRail::around(inner, this, rail) } else { SpiedRail::around(inner, this, rank) }
    }

    fn lies_now(&mut self, now: Time, per_thousand: u32) -> bool {
        now >= self.spec.from.time() && self.rng.below(1000) < u64::from(per_thousand)
    }

    fn pick(&mut self, alters: bool) -> Option<Lie> {
        let fit: Vec<Lie> = self.spec.lies.iter().copied().filter(|lie| lie.alters() == alters).collect();
        self.rng.pick(&fit).copied()
    }
}

/// A connection to a peer has died, and forged packets with it.
fn lose(liar: &RefCell<Liar>, peer: u32) {
    if let Some(known) = liar.borrow_mut().peers.get_mut(&peer) {
        known.lanes.iter_mut().for_each(Insertions::lose);
    }
}

/// A rail of an honest rank: the liar learns the ids of operations that the rank has with others. Ids are
/// small numbers, so what it might guess is what it learns here.
pub struct SpiedRail {
    inner: Box<dyn Rail>,
    liar: Rc<RefCell<Liar>>,
    rank: u32,
}

impl SpiedRail {
    /// Around a rail of a rank.
    pub fn around(inner: Box<dyn Rail>, liar: &Rc<RefCell<Liar>>, rank: u32) -> Box<dyn Rail> {
        Box::new(SpiedRail { inner, liar: liar.clone(), rank })
    }
}

impl Rail for SpiedRail {
    forward!(access, add_peer, connect, disconnect, abort, register, deregister, forget, next_timeout);

    fn facts(&self) -> RailFacts {
        // The liar learns from whole headers.
        RailFacts { short_bytes_max: 0, ..self.inner.facts() }
    }

    unsafe fn post(&mut self, outgoing: Outgoing<'_>) {
        if let Ok(repr) = Repr::parse(outgoing.header) {
            let liar = &mut *self.liar.borrow_mut();
            if outgoing.peer.0 != liar.spec.rank {
                liar.peers.entry(self.rank).or_default().spy(&repr);
            }
        }
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.inner.post(outgoing) }
    }

    fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        self.inner.poll(now, sink)
    }
}

/// The rail.
pub struct LiarRail {
    inner: Box<dyn Rail>,
    liar: Rc<RefCell<Liar>>,
    /// Its number among the rank's rails.
    rail: usize,
    /// Peers to which the subchannel is up, with the forged posts that are not over.
    open: BTreeMap<u32, u16>,
    /// Addresses of the peers' rails, as they were published.
    addresses: BTreeMap<u32, String>,
    now: Time,
    kept: u16,
    /// Payload of forged packets.
    junk: Box<[u8]>,
}

impl LiarRail {
    /// Around a rail.
    pub fn around(inner: Box<dyn Rail>, liar: &Rc<RefCell<Liar>>, rail: usize) -> Box<dyn Rail> {
        let kept = FORGED_MAX.min(inner.facts().posts_max / 3);
        Box::new(LiarRail {
            inner,
            liar: liar.clone(),
            rail,
            open: BTreeMap::new(),
            addresses: BTreeMap::new(),
            now: Time(0),
            kept,
            junk: vec![0xEE; PAYLOAD_MAX as usize].into(),
        })
    }

    /// Sends a packet that the endpoint never made, or writes where it should not.
    fn forge(&mut self, peer: u32) {
        let shared = self.liar.clone();
        let liar = &mut *shared.borrow_mut();
        if self.open.get(&peer).is_none_or(|open| *open >= self.kept) {
            return;
        }
        let Some(lie) = liar.pick(false) else { return };
        let Liar { rng, peers, .. } = &mut *liar;
        let Some(known) = peers.get_mut(&peer) else { return };
        if lie == Lie::Write {
            if self.inner.facts().caps.write
                && let Some((to, bytes)) = known.key(self.rail, rng)
            {
                self.send(liar, peer, PostKind::Write { to }, &[], bytes);
            }
            return;
        }
        let others: Vec<String> =
            self.addresses.iter().filter(|(of, _)| **of != peer).map(|(_, address)| address.clone()).collect();
        let Some(forged) = known.forge(lie, self.rail, &others, rng) else { return };
        // What can't be written would be a number that never comes.
        if forged.emit_vec().is_ok()
            && let Some(repr) = known.number(forged)
        {
            self.send_packet(liar, peer, &repr);
        }
    }

    /// Forged packets with numbers must arrive, as true ones.
    fn repeat(&mut self, peer: u32) {
        let shared = self.liar.clone();
        let liar = &mut *shared.borrow_mut();
        while self.open.get(&peer).is_some_and(|open| *open < self.kept) {
            let Some(known) = liar.peers.get_mut(&peer) else { return };
            let Some(repr) = known.lanes.iter_mut().find_map(Insertions::again) else { return };
            self.send_packet(liar, peer, &repr);
        }
    }

    fn send_packet(&mut self, liar: &mut Liar, peer: u32, repr: &Repr) {
        if let Ok(header) = repr.emit_vec() {
            self.send(liar, peer, PostKind::Send, &header, repr.common.payload_bytes as usize);
        }
    }

    fn send(&mut self, liar: &mut Liar, peer: u32, kind: PostKind, header: &[u8], bytes: usize) {
        let facts = self.inner.facts();
        if kind == PostKind::Send && bytes as u64 > u64::from(facts.segment_bytes_max.min(facts.eager_bytes_max)) {
            // No rail takes more than it announces.
            return;
        }
        liar.forged = liar.forged.wrapping_add(1);
        *self.open.entry(peer).or_default() += 1;
        let id = PostId(Key { index: FORGED_FROM | liar.forged & 0xFF_FFFF, generation: peer + 1 });
        let payload = [Piece { start: self.junk.as_mut_ptr(), len: bytes }];
        let payload = if bytes == 0 { &payload[..0] } else { &payload };
        let extent = if kind == PostKind::Send { 0 } else { bytes };
        // SAFETY: the junk is as large as any packet and lives as long as the rail.
        unsafe { self.inner.post(Outgoing { id, peer: PeerId(peer), kind, header, payload, extent }) };
    }

    /// The subchannel to a peer is over.
    fn ended(&mut self, peer: u32) {
        self.open.remove(&peer);
        lose(&self.liar, peer);
    }

    fn may_forge(&mut self, peer: u32) {
        let lies = {
            let liar = &mut *self.liar.borrow_mut();
            let rate = liar.spec.forged_per_thousand;
            liar.lies_now(self.now, rate)
        };
        self.repeat(peer);
        if lies {
            self.forge(peer);
        }
    }
}

impl Rail for LiarRail {
    forward!(access, connect, register, deregister, forget, next_timeout);

    fn facts(&self) -> RailFacts {
        let facts = self.inner.facts();
        // What it sends is numbered anew by packets.
        RailFacts { posts_max: facts.posts_max - self.kept, short_bytes_max: 0, ..facts }
    }

    fn add_peer(&mut self, peer: PeerId, address: &str) -> Result<bool, AddressError> {
        self.addresses.insert(peer.0, address.to_owned());
        self.inner.add_peer(peer, address)
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.ended(peer.0);
        self.inner.disconnect(peer);
    }

    fn abort(&mut self, peer: PeerId) {
        self.ended(peer.0);
        self.inner.abort(peer);
    }

    unsafe fn post(&mut self, outgoing: Outgoing<'_>) {
        let peer = outgoing.peer.0;
        let Ok(mut repr) = Repr::parse(outgoing.header) else {
            // A remote write or read has no header.
            // SAFETY: the caller's promise is the one demanded.
            return unsafe { self.inner.post(outgoing) };
        };
        let header = {
            let liar = &mut *self.liar.borrow_mut();
            let rate = liar.spec.altered_per_thousand;
            let lie = if liar.lies_now(self.now, rate) { liar.pick(true) } else { None };
            let Liar { rng, peers, .. } = liar;
            let known = peers.entry(peer).or_default();
            known.sent(self.rail, &mut repr);
            let truth = repr.emit_vec();
            let altered = lie.and_then(|lie| {
                known.alter(lie, &mut repr, rng);
                repr.emit_vec().ok()
            });
            altered.or(truth.ok())
        };
        let header = header.as_deref().unwrap_or(outgoing.header);
        // SAFETY: the payload is the caller's, and another header does not change what happens to it.
        unsafe { self.inner.post(Outgoing { header, ..outgoing }) };
        self.may_forge(peer);
    }

    fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        self.now = now;
        let mut sink_record =
            RecordingSink { sink, liar: &self.liar, rail: self.rail, open: &mut self.open, came: Vec::new() };
        let done = self.inner.poll(now, &mut sink_record);
        for peer in sink_record.came {
            self.may_forge(peer);
        }
        done
    }
}

/// Hands everything on but what belongs to forged packets, and listens.
struct RecordingSink<'a> {
    sink: &'a mut dyn Sink,
    liar: &'a RefCell<Liar>,
    rail: usize,
    open: &'a mut BTreeMap<u32, u16>,
    /// Peers from which something came.
    came: Vec<u32>,
}

// SAFETY: every answer is that of the sink inside.
unsafe impl Sink for RecordingSink<'_> {
    forward_sink!(placed, short, no_remote_access, registered, reset, moved, back);

    fn arrival(&mut self, peer: PeerId, header: &[u8]) -> Arrival {
        let Ok(mut repr) = Repr::parse(header) else { return self.sink.arrival(peer, header) };
        self.came.push(peer.0);
        let is_shifted = self.liar.borrow_mut().peers.entry(peer.0).or_default().received(self.rail, &mut repr);
        match repr.emit_vec() {
            Ok(shifted) if is_shifted => self.sink.arrival(peer, &shifted),
            _ => self.sink.arrival(peer, header),
        }
    }

    fn completed(&mut self, id: PostId, status: PostStatus) {
        if id.0.index < FORGED_FROM {
            return self.sink.completed(id, status);
        }
        if let Some(open) = self.open.get_mut(&(id.0.generation - 1)) {
            *open = open.saturating_sub(1);
        }
    }

    fn up(&mut self, peer: PeerId) {
        self.open.insert(peer.0, 0);
        self.sink.up(peer);
    }

    fn down(&mut self, peer: PeerId, fault: RailFault) {
        self.open.remove(&peer.0);
        lose(self.liar, peer.0);
        self.sink.down(peer, fault);
    }
}
