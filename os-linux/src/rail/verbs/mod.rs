//! Verbs rails: one per port of a device, one reliable connection per peer, or extended ones per node.
//!
//! Written against the device contract ([`rerail_verbs::contract`]) and knowing no other device: over the
//! simulator's software HCA it runs in virtual time, over libibverbs on hardware. It makes no system call
//! itself, reads no clock, and on the path of messages it allocates nothing once its queues have grown.
//!
//! | file | holds |
//! |---|---|
//! | `options` | sizes and settings, the slab's layout, why a rail can't be opened |
//! | `open` | objects made once |
//! | `address`, `peers` | addresses as published and as kept |
//! | `blocked_paths` | how the device addresses peers, and paths that are not retried |
//! | `wire` | set-up messages, byte for byte |
//! | `setup` | how connections are established |
//! | `datagrams` | the queue pair that set-up messages go over |
//! | `link` | one peer's connection and its queue pair's states |
//! | `xrc` | connections by XRC: objects shared by the peers on one node, and how that ends |
//! | `send`, `receive` | messages, writes and reads |
//! | `close` | how connections and the rail end |
//! | `poll` | one poll: events, completions, and their consequences |
//! | `outage` | a port that is down, or has moved |
//! | `partition` | the partition key that a rail uses |
//! | `revive` | a device that broke, and is opened again |
//! | `registry` | registrations of payload memory |
//! | `srq` | sizes of receive buffers, and how many of each there are |
//! | `slab` | the buffers, and everything that touches memory by pointer |
//! | `codes` | the device's codes as numbers for the core |
//!
//! Objects: one protection domain; one completion queue, deep enough for every request that can be open (the
//! sum is in `Layout::cq_depth`); one shared receive queue, by XRC one for each size of buffers; one UD queue
//! pair for set-up; an RC queue pair per connected peer, made at the first request. Buffers lie in one
//! registered slab, which bounds the device's requests whatever the number of peers: posts beyond wait.
//! Rules: `conformance/PROTOCOL.md`, L-1 to L-5 and V.
//!
//! When the device breaks, every peer is down and every registration invalid; the device is closed and, where
//! the rail was given a way to ([`VerbsRail::reopen_with`]), opened again. Meanwhile the rail is safe to
//! call, and refuses.

mod address;
mod blocked_paths;
mod close;
mod codes;
mod datagrams;
mod link;
mod open;
mod options;
mod outage;
mod partition;
mod peers;
mod poll;
mod provider;
mod receive;
mod registry;
mod revive;
mod send;
mod setup;
mod slab;
mod srq;
#[cfg(test)]
mod tests;
pub mod wire;
mod xrc;

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::os::fd::BorrowedFd;

use rerail_core::endpoint::{PostStatus, RailFault};
use rerail_core::ids::{PeerId, PostId};
use rerail_core::rail::{Caps, RailFacts};
use rerail_core::time::{Nanos, Time};
use rerail_core::wire::HEADER_BYTES_MAX;
use rerail_verbs::contract::{Completion, Device, QpId};

pub use codes::status_of;
pub use open::Identity;
pub use options::{OnDemandUse, VerbsError, VerbsOptions, XrcOptions};
pub use provider::Provider;
pub use srq::SrqSizes;

use self::address::Address;
use self::blocked_paths::BlockedPaths;
use self::datagrams::Datagrams;
use self::link::{Links, Phase};
use self::open::{Objects, PortFacts};
use self::options::{INLINE_BYTES_MAX, Layout};
use self::outage::Outage;
use self::peers::{NO_LINK, Peers};
use self::receive::Receives;
use self::registry::Registry;
use self::revive::{Held, Revival};
use self::send::Works;
use self::slab::Slab;
use self::xrc::Initiators;
use super::reports::Report;
use super::{AddressError, MemoryKey, Outgoing, Piece, Rail, RailCounters, RailUsage, Sink, Spread};
use crate::auth::{PeerKey, PublicKey};

/// A verbs rail.
pub struct VerbsRail<D: Device> {
    options: VerbsOptions,
    identity: Identity,
    port: PortFacts,
    layout: Layout,
    objects: Objects,
    peers: Peers,
    blocked_paths: BlockedPaths,
    links: Links,
    /// With XRC.
    initiators: Initiators,
    /// Links by the numbers and names of the queue pairs that they receive by; only looked up.
    by_number: HashMap<u32, u32, BuildHasherDefault<Spread>>,
    /// One of them, the last that was looked up.
    last_number: (u32, u32),
    by_name: HashMap<QpId, u32>,
    /// Links with a set-up message to send; with a post that waits.
    due_links: VecDeque<u32>,
    to_feed: VecDeque<u32>,
    /// Links to look at, because something has happened that may have been the last they waited for:
    /// disconnected ones, failed ones.
    closing: Vec<u32>,
    failing: Vec<u32>,
    /// Links in [`Phase::Closing`].
    closings: usize,
    works: Works,
    receives: Receives,
    datagrams: Datagrams,
    registry: Registry,
    /// Reports for the sink at the next opportunity, in order.
    reports: VecDeque<Report>,
    /// Posts that are over because the device has their bytes, for the next poll.
    taken: Vec<(PeerId, PostId)>,
    /// Polls, modulo 2^32.
    polls: u32,
    /// Completions taken from the queue and not handled yet.
    batch: Vec<Completion>,
    /// The last poll ended before the queue was empty.
    unfinished: bool,
    /// Until then a poll has nothing to look for but events and completions, unless something
    /// [stirs](VerbsRail::mark_dirty).
    idle_until: Time,
    /// Reused at each message.
    pieces: Vec<Piece>,
    scratch: Box<Scratch>,
    /// The newest attempt to connect to any peer, and how many nonces were made.
    attempts: u32,
    nonces: u64,
    /// The shortest round trip of a set-up.
    round_trip: Option<Nanos>,
    /// The port is down.
    outage: Option<Outage>,
    /// When the port was queried last.
    port_checked_at: Option<Time>,
    /// The port's address as announced to the peers (F-12).
    announced: Address,
    /// The device is broken: about to be closed, or closed.
    broken: bool,
    /// How and when it is opened again.
    revival: Revival<D>,
    counters: RailCounters,
    /// The time of the last call that brought one.
    now: Time,
    // Order matters: the device, which has the slab's address, goes first.
    device: Held<D>,
    slab: Slab,
}

/// No queue pair has this number: numbers have 24 bits.
const NO_NUMBER: (u32, u32) = (u32::MAX, NO_LINK);

/// Memory that is written before it is read, and so need not be cleared for each message.
struct Scratch {
    header: [u8; HEADER_BYTES_MAX],
    short: [u8; INLINE_BYTES_MAX],
}

impl Scratch {
    fn new() -> Box<Scratch> {
        Box::new(Scratch { header: [0; HEADER_BYTES_MAX], short: [0; INLINE_BYTES_MAX] })
    }
}

/// The kind of a request, in the top bits of its id; below are a generation and a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Work,
    Receive,
    DatagramSend,
    DatagramReceive,
}

impl Tag {
    const GENERATION_MASK: u32 = (1 << 30) - 1;

    fn id(self, place: u32, generation: u32) -> u64 {
        (self as u64) << 62 | u64::from(generation & Self::GENERATION_MASK) << 32 | u64::from(place)
    }

    /// Of an id: tag, place and generation.
    fn of(id: u64) -> (Tag, u32, u32) {
        let tag = match id >> 62 {
            0 => Tag::Work,
            1 => Tag::Receive,
            2 => Tag::DatagramSend,
            _ => Tag::DatagramReceive,
        };
        (tag, id as u32, (id >> 32) as u32 & Self::GENERATION_MASK)
    }
}

impl<D: Device> VerbsRail<D> {
    /// Notes the queue pair by which a link receives.
    fn note_number(&mut self, number: u32, index: u32) {
        self.by_number.insert(number, index);
        self.last_number = NO_NUMBER;
    }

    /// A queue pair is gone.
    fn forget_number(&mut self, number: u32) {
        self.by_number.remove(&number);
        self.last_number = NO_NUMBER;
    }

    /// The link that receives by a queue pair.
    #[inline]
    fn link_of_number(&mut self, number: u32) -> Option<u32> {
        if self.last_number.0 != number {
            self.last_number = (number, *self.by_number.get(&number)?);
        }
        Some(self.last_number.1)
    }

    /// Reports the posts that the device has.
    #[inline(never)]
    fn report_taken(&mut self, sink: &mut dyn Sink) -> usize {
        let taken = self.taken.len();
        for (_, id) in &self.taken {
            sink.completed(*id, PostStatus::Taken);
        }
        self.taken.clear();
        taken
    }

    /// The device, to look at; `None`: it broke and is closed.
    pub fn device(&self) -> Option<&D> {
        self.device.get()
    }
}

impl<D: Device + 'static> Rail for VerbsRail<D> {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn facts(&self) -> RailFacts {
        let VerbsOptions { write, read, .. } = self.options;
        RailFacts {
            kind: self.options.kind,
            caps: Caps { write, read, registration: write || read, lossless: false },
            eager_bytes_max: self.options.eager_bytes_max,
            short_bytes_max: 0,
            segment_bytes_max: self.options.segment_bytes,
            transfer_bytes_max: 0,
            posts_max: self.options.posts_max,
            bytes_per_second: self.port.bytes_per_second,
            latency_ns: self.options.latency_ns,
            pio_bytes_max: self.options.pio_bytes_max,
            place: self.options.place,
            numa_distance: self.options.numa_distance,
            feed_time_min: self.options.feed_time_min,
        }
    }

    fn address(&self) -> String {
        self.port.address.to_string()
    }

    fn add_peer(&mut self, peer: PeerId, address: &str) -> Result<bool, AddressError> {
        let wrong = |why| AddressError { address: address.to_owned(), why };
        let there = Address::parse(address).map_err(wrong)?;
        if there.domain.is_some() != self.options.xrc.is_some() {
            return Err(wrong("one of the two connects by XRC, the other by RC (verbs_xrc)")); // V-14
        }
        if peer == self.identity.me || !self.port.address.reaches(&there) {
            return Ok(false);
        }
        if self.peers.learn(peer, &there) { Ok(true) } else { Err(wrong("of a rank that the job does not have")) }
    }

    fn trust(&mut self, peer: PeerId, key: &PeerKey) {
        if let PeerKey::Whole(key) = key {
            self.peers.trust(peer, *key);
        }
    }

    fn public_key(&self) -> Option<PublicKey> {
        Some(self.identity.credentials.public())
    }

    fn connect(&mut self, now: Time, peer: PeerId) {
        self.now = now;
        self.mark_dirty();
        if self.broken {
            self.reports.push_back(Report::Down(peer, RailFault::Device { code: codes::BROKEN }));
        } else {
            self.dial(peer);
            self.send_due_messages();
        }
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.mark_dirty();
        self.leave(peer);
    }

    fn abort(&mut self, peer: PeerId) {
        self.mark_dirty();
        self.cut(peer);
    }

    unsafe fn post(&mut self, outgoing: Outgoing<'_>) {
        let index = self.peers.get(outgoing.peer).map_or(NO_LINK, |known| known.link);
        // Not up: down is reported, or about to be, and the post with it.
        if self.links.get(index).is_some_and(|link| matches!(link.phase, Phase::Up)) && !self.broken {
            self.take_post(index, &outgoing);
        }
    }

    unsafe fn post_small(&mut self, outgoing: Outgoing<'_>) -> bool {
        let index = self.peers.get(outgoing.peer).map_or(NO_LINK, |known| known.link);
        if self.broken {
            return false;
        }
        self.send_quietly(index, &outgoing).unwrap_or_else(|| {
            // SAFETY: the caller's promise is the one demanded.
            unsafe { self.post(outgoing) }
            false
        })
    }

    unsafe fn register(&mut self, memory: Piece, write: bool) -> Result<MemoryKey, RailFault> {
        if self.broken {
            return Err(RailFault::Device { code: codes::BROKEN });
        }
        self.mark_dirty();
        self.registry.register(&mut *self.device, memory, write).map_err(|why| {
            tracing::debug!(rail = %self.options.name, %why, "memory not registered");
            codes::of_register(&why)
        })
    }

    fn deregister(&mut self, key: MemoryKey) {
        if self.device.is_open() {
            self.registry.deregister(&mut *self.device, key);
        }
    }

    fn forget(&mut self, memory: Piece) {
        if self.device.is_open() {
            self.registry.forget(&mut *self.device, memory);
        }
    }

    fn adopt(&mut self, memory: Piece, is_over: bool) {
        self.forget(memory);
        match is_over {
            false => self.registry.adopt(memory),
            true => self.registry.disown(memory),
        }
    }

    fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        self.now = now;
        self.polls = self.polls.wrapping_add(1);
        let taken = if self.taken.is_empty() { 0 } else { self.report_taken(sink) };
        taken + self.poll_device(sink)
    }

    fn next_timeout(&self) -> Option<Time> {
        let has_work = !self.reports.is_empty() || !self.taken.is_empty() || !self.batch.is_empty() || self.unfinished;
        if has_work
            || self.has_moved()
            || self.revival.reset_due
            || self.revival.back_due
            || self.broken && self.device.is_open()
        {
            return Some(self.now);
        }
        let timer = self.links.next_timer().map(|(due, _)| due);
        let grace = self.outage.as_ref().and_then(|outage| outage.until);
        [timer, grace, self.revival.due()].into_iter().flatten().min()
    }

    fn is_closing(&self) -> bool {
        self.closings > 0
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.device.get()?.wait_fd()
    }

    fn wait_fd_changes(&self) -> u32 {
        self.revival.times
    }

    fn arm(&mut self) -> bool {
        if self.broken {
            return self.reports.is_empty() && !self.revival.reset_due && !self.device.is_open();
        }
        if let Err(why) = self.device.request_notify(self.objects.cq, false) {
            tracing::warn!(rail = %self.options.name, %why, "no notification");
            self.broken = true;
            self.mark_dirty();
            return false;
        }
        // Completions before the request make no event.
        self.collect_batch();
        !self.has_moved()
            && !self.revival.back_due
            && self.batch.is_empty()
            && self.reports.is_empty()
            && self.taken.is_empty()
            && !self.unfinished
            && !self.broken
    }

    fn disarm(&mut self) {
        while self.device.is_open() && self.device.cq_event().is_some() {}
    }

    fn counters(&self) -> RailCounters {
        let mut counters = self.counters;
        self.registry.count(&mut counters);
        counters
    }

    fn usage(&self) -> RailUsage {
        let queue_pairs = match self.options.xrc {
            None => self.links.len(),
            Some(_) => self.links.targets() + self.initiators.len(),
        };
        RailUsage {
            connections: self.links.len(),
            queue_pairs,
            domains: u32::from(self.device.is_open() && self.objects.domain.is_some()),
            registrations: self.registry.len(),
            datagrams: self.datagrams.in_flight(),
            handles: self.links.handles() + self.datagrams.ending(),
        }
    }
}
