//! A rail of a rank that lies: an authenticated member of the job whose packets are well-formed and false.
//!
//! The endpoint behind it is an honest one. Of its packets some are altered on their way out, and forged ones go out
//! beside them, at the drawn moments and rates of a [`LiarSpec`]. All rails of the rank share what the liar knows, so that
//! it can lie on one about what it saw on another. The rail below takes a few more posts than the endpoint is told of:
//! these are for the forged packets, whose completions the endpoint never sees.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rerail_core::endpoint::{Arrival, PostKind, PostStatus, RailFault, Registration};
use rerail_core::ids::{Key, PeerId, PlaceId, PostId};
use rerail_core::rail::RailFacts;
use rerail_core::time::{Nanos, Time};
use rerail_core::wire::Repr;
use rerail_linux::rail::{AddressError, Outgoing, Piece, Rail, Sink};

use super::forward::forward;
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
    /// A liar of a simulation; `None` where the rank is honest.
    pub fn of(spec: Option<&LiarSpec>, seed: u64, rank: u32) -> Option<Rc<RefCell<Liar>>> {
        let spec = spec.filter(|spec| spec.rank == rank)?.clone();
        let rng = Rng::new(seed, "liar");
        Some(Rc::new(RefCell::new(Liar { spec, rng, peers: BTreeMap::new(), forged: 0 })))
    }

    fn lies_now(&mut self, now: Time, per_thousand: u32) -> bool {
        now >= self.spec.from.time() && self.rng.below(1000) < u64::from(per_thousand)
    }

    fn pick(&mut self, alters: bool) -> Option<Lie> {
        let fit: Vec<Lie> = self.spec.lies.iter().copied().filter(|lie| lie.alters() == alters).collect();
        self.rng.pick(&fit).copied()
    }
}

/// The rail.
pub struct LiarRail {
    inner: Box<dyn Rail>,
    liar: Rc<RefCell<Liar>>,
    /// Its number among the rank's rails.
    rail: usize,
    /// Peers to whom the subchannel stands, with the forged posts that are not over.
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
        let liar = &mut *self.liar.borrow_mut();
        let Some(open) = self.open.get_mut(&peer).filter(|open| **open < self.kept) else { return };
        let Some(lie) = liar.pick(false) else { return };
        let Liar { rng, peers, forged, .. } = liar;
        let Some(known) = peers.get(&peer) else { return };
        let (kind, header, bytes) = if lie == Lie::Write {
            if !self.inner.facts().caps.write {
                return;
            }
            let Some((to, bytes)) = known.key(self.rail, rng) else { return };
            (PostKind::Write { to }, Vec::new(), bytes)
        } else {
            let others: Vec<String> =
                self.addresses.iter().filter(|(of, _)| **of != peer).map(|(_, address)| address.clone()).collect();
            let Some(repr) = known.forge(lie, self.rail, &others, rng) else { return };
            let Ok(header) = repr.emit_vec() else { return };
            (PostKind::Send, header.to_vec(), repr.common.payload_bytes as usize)
        };
        *forged = forged.wrapping_add(1);
        *open += 1;
        let id = PostId(Key { index: FORGED_FROM | *forged & 0xFF_FFFF, generation: peer + 1 });
        let payload = [Piece { start: self.junk.as_mut_ptr(), len: bytes }];
        let payload = if bytes == 0 { &payload[..0] } else { &payload };
        let extent = if kind == PostKind::Send { 0 } else { bytes };
        self.inner.post(Outgoing { id, peer: PeerId(peer), kind, header: &header, payload, extent });
    }

    fn may_forge(&mut self, peer: u32) {
        let lies = {
            let liar = &mut *self.liar.borrow_mut();
            let rate = liar.spec.forged_per_thousand;
            liar.lies_now(self.now, rate)
        };
        if lies {
            self.forge(peer);
        }
    }
}

impl Rail for LiarRail {
    forward!(
        name,
        address,
        connect,
        register,
        deregister,
        forget,
        next_timeout,
        is_closing,
        wait_fd,
        wait_fd_changes,
        arm,
        disarm,
        counters,
        usage
    );

    fn facts(&self) -> RailFacts {
        let facts = self.inner.facts();
        RailFacts { posts_max: facts.posts_max - self.kept, ..facts }
    }

    fn add_peer(&mut self, peer: PeerId, address: &str) -> Result<bool, AddressError> {
        self.addresses.insert(peer.0, address.to_owned());
        self.inner.add_peer(peer, address)
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.open.remove(&peer.0);
        self.inner.disconnect(peer);
    }

    fn sever(&mut self, peer: PeerId) {
        self.open.remove(&peer.0);
        self.inner.sever(peer);
    }

    fn post(&mut self, outgoing: Outgoing<'_>) {
        let peer = outgoing.peer.0;
        let Ok(mut repr) = Repr::parse(outgoing.header) else {
            // A remote write or read has no header.
            return self.inner.post(outgoing);
        };
        let altered = {
            let liar = &mut *self.liar.borrow_mut();
            liar.peers.entry(peer).or_default().sent(self.rail, &repr);
            let rate = liar.spec.altered_per_thousand;
            let lie = if liar.lies_now(self.now, rate) { liar.pick(true) } else { None };
            lie.and_then(|lie| {
                let Liar { rng, peers, .. } = liar;
                peers.get(&peer)?.alter(lie, &mut repr, rng);
                repr.emit_vec().ok()
            })
        };
        match &altered {
            Some(header) => self.inner.post(Outgoing { header, ..outgoing }),
            None => self.inner.post(outgoing),
        }
        self.may_forge(peer);
    }

    fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        self.now = now;
        let mut ear = Ear { sink, liar: &self.liar, rail: self.rail, open: &mut self.open, came: Vec::new() };
        let done = self.inner.poll(now, &mut ear);
        for peer in ear.came {
            self.may_forge(peer);
        }
        done
    }
}

/// Hands everything on but what belongs to forged packets, and listens.
struct Ear<'a> {
    sink: &'a mut dyn Sink,
    liar: &'a RefCell<Liar>,
    rail: usize,
    open: &'a mut BTreeMap<u32, u16>,
    /// Peers of whom something came.
    came: Vec<u32>,
}

impl Sink for Ear<'_> {
    fn arrival(&mut self, peer: PeerId, header: &[u8]) -> Arrival {
        if let Ok(repr) = Repr::parse(header) {
            self.liar.borrow_mut().peers.entry(peer.0).or_default().received(self.rail, &repr);
            self.came.push(peer.0);
        }
        self.sink.arrival(peer, header)
    }

    fn place(&mut self, id: PlaceId, from: u64, pieces: &mut Vec<Piece>) -> bool {
        self.sink.place(id, from, pieces)
    }

    fn placed(&mut self, id: PlaceId) {
        self.sink.placed(id);
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
        self.sink.down(peer, fault);
    }

    fn registered(&mut self, what: Registration, bytes: u64, took: Nanos) {
        self.sink.registered(what, bytes, took);
    }

    fn reset(&mut self) {
        self.sink.reset();
    }

    fn moved(&mut self) {
        self.sink.moved();
    }

    fn back(&mut self) {
        self.sink.back();
    }
}
