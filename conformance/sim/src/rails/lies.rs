//! What a liar has learned, and the lies that it makes of that.
//!
//! Every lie is a packet that parses. Its numbers are near the true ones: operation ids that were seen in
//! packets of this peer (or lie beside them), the next PSN, the numbers of connections that stand or stood,
//! keys that were given. Offsets into windows are an exception: the memory of a window is its peers' to
//! write, so a put or an atomic that the target must carry out would be no lie. Altered ones lead out of the
//! window, or to no window.

use rerail_core::ids::Key;
use rerail_core::wire::{
    Ack, Address, AddressText, Atomic, AtomicReply, Body, Common, Connect, Cts, Data, Fence, Fin, Get, Lane,
    MessageHead, Probe, Put, PutImmediate, Refusal, RemoteKey, RemoteKeys, Repr, Resume, Rts,
};
use serde::{Deserialize, Serialize};

use super::insert::Insertions;
use super::numbers::{outside, ugly, ugly16, ugly32};
use crate::rng::Rng;

/// Sorts of lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lie {
    /// Altered packets: acknowledgments.
    Acks,
    /// Altered packets: credits of messages and blocks.
    Credits,
    /// Altered packets: the PSN.
    Psn,
    /// Altered packets: the source.
    Source,
    /// Altered packets: any field of the body.
    Body,
    /// Forged: FIN.
    Fin,
    /// Forged: CTS, with keys of any receive.
    Cts,
    /// Forged: RESUME.
    Resume,
    /// Forged: DATA.
    Data,
    /// Forged: answers to atomics.
    Reply,
    /// Forged: messages and announcements.
    Message,
    /// Forged: FENCE.
    Fence,
    /// Forged: CONNECT.
    Connect,
    /// Forged: probes and answers to them.
    Probe,
    /// Forged: ADDRESS, with the addresses of others.
    Address,
    /// Forged: BYE.
    Bye,
    /// Forged: puts, gets and atomics that must be refused.
    OneSided,
    /// Remote writes with keys that were given for another message, or at another address.
    Write,
    /// Forged: ACK and CREDIT with acknowledgments of what never came.
    Status,
}

/// All of them.
pub const LIES: [Lie; 19] = [
    Lie::Acks,
    Lie::Credits,
    Lie::Psn,
    Lie::Source,
    Lie::Body,
    Lie::Fin,
    Lie::Cts,
    Lie::Resume,
    Lie::Data,
    Lie::Reply,
    Lie::Message,
    Lie::Fence,
    Lie::Connect,
    Lie::Probe,
    Lie::Address,
    Lie::Bye,
    Lie::OneSided,
    Lie::Write,
    Lie::Status,
];

impl Lie {
    /// Whether it alters packets of the liar's own; else it is a packet more.
    pub const fn alters(self) -> bool {
        matches!(self, Lie::Acks | Lie::Credits | Lie::Psn | Lie::Source | Lie::Body)
    }
}

/// So many things of a sort are remembered.
const REMEMBERED: usize = 24;

/// Bytes of payload of a forged packet, at most.
pub const PAYLOAD_MAX: u64 = 3000;

/// The last so many of something that was seen.
#[derive(Clone, Debug)]
struct Seen<T>(Vec<T>);

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Seen(Vec::new())
    }
}

impl<T: Copy + PartialEq> Seen<T> {
    fn note(&mut self, what: T) {
        if !self.0.contains(&what) {
            if self.0.len() == REMEMBERED {
                self.0.remove(0);
            }
            self.0.push(what);
        }
    }

    fn any(&self, rng: &mut Rng) -> Option<T> {
        // Newer ones more often.
        let half = if rng.one_in(2) { self.0.len() / 2 } else { 0 };
        rng.pick(&self.0[half..]).copied()
    }
}

/// A connection by a rail of the liar's: that rail and the peer's, each with its number of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Link {
    here: (u8, u32),
    there: (u8, u32),
}

/// What a liar has learned of a peer.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    /// Ids of operations of the peer's.
    theirs: Seen<u64>,
    /// Ids of the liar's own.
    ours: Seen<u64>,
    /// Keys that the peer gave, and those that were given to it.
    keys: Seen<RemoteKey>,
    given: Seen<RemoteKey>,
    windows: Seen<u64>,
    links: Vec<Link>,
    nonces: Seen<u64>,
    epoch: u16,
    /// The last header that went to the peer: credits, acknowledgments.
    last: Option<Common>,
    /// Ids of operations that the peer has with others.
    pub unknown_processes: Vec<u64>,
    /// Forged messages: the endpoint did not count their credits.
    messages: u16,
    /// Forged packets by lane.
    pub lanes: [Insertions; 2],
    /// Our own parameters.
    peer_parameters: Option<Connect>,
}

impl Knowledge {
    /// A packet of the liar's own over its rail of this number, as its endpoint made it; its number is
    /// shifted.
    pub fn sent(&mut self, rail: usize, repr: &mut Repr) {
        self.last = Some(repr.common);
        if let Some(lane) = repr.body.lane() {
            repr.common.psn = self.lanes[usize::from(lane != Lane::Ordered)].outgoing(repr.common.psn);
        }
        match &repr.body {
            Body::Eager(head) => self.ours.note(head.operation),
            Body::Rts(rts) => {
                self.ours.note(rts.head.operation);
                rts.keys.iter().for_each(|key| self.given.note(*key));
            }
            Body::Cts(cts) => {
                self.theirs.note(cts.operation);
                self.ours.note(cts.target);
                cts.keys.iter().for_each(|key| self.given.note(*key));
            }
            Body::Put(put) => {
                self.ours.note(put.operation);
                self.windows.note(put.window);
            }
            Body::PutImmediate(put) => self.ours.note(put.operation),
            Body::Get(get) => self.ours.note(get.operation),
            Body::Atomic(atomic) => self.ours.note(atomic.operation),
            Body::Connect(connect) => {
                self.link(rail).here = (connect.rail, connect.connection);
                self.peer_parameters = Some(*connect);
            }
            _ => {}
        }
    }

    /// A packet of the peer's; its acknowledgments and credits are shifted back. Returns whether they were.
    pub fn received(&mut self, rail: usize, repr: &mut Repr) -> bool {
        self.learn(rail, repr);
        let [ordered, unordered] = &mut self.lanes;
        let common = &mut repr.common;
        common.ack_ordered = ordered.incoming(common.ack_ordered);
        common.ack_unordered = unordered.incoming(common.ack_unordered);
        common.message_limit = common.message_limit.wrapping_sub(self.messages);
        let is_shifted = ordered.len() + unordered.len() > 0;
        if is_shifted {
            // Bits that would have to be shifted each by another number. Without them something goes out once
            // more.
            match &mut repr.body {
                Body::Ack(ack) => *ack = Ack::default(),
                Body::Fence(fence) => (fence.ordered_beyond, fence.unordered_beyond) = (0, 0),
                _ => {}
            }
        }
        is_shifted
    }

    /// A forged packet gets its number, if its kind has one.
    pub fn number(&mut self, repr: Repr) -> Option<Repr> {
        let Some(lane) = repr.body.lane() else { return Some(repr) };
        let messages = match &repr.body {
            Body::Eager(_) | Body::Rts(_) => 1,
            Body::Aggregate { count } => *count,
            _ => 0,
        };
        let repr = self.lanes[usize::from(lane != Lane::Ordered)].insert(repr)?;
        self.messages = self.messages.wrapping_add(messages);
        Some(repr)
    }

    /// Notes an operation of the peer's with another rank.
    pub fn spy(&mut self, repr: &Repr) {
        let operation = match &repr.body {
            Body::Eager(head) => head.operation,
            Body::Rts(rts) => rts.head.operation,
            Body::Cts(cts) => cts.target,
            Body::Put(put) => put.operation,
            Body::PutImmediate(put) => put.operation,
            Body::Get(get) => get.operation,
            Body::Atomic(atomic) => atomic.operation,
            _ => return,
        };
        if self.unknown_processes.len() == REMEMBERED {
            self.unknown_processes.remove(0);
        }
        self.unknown_processes.push(operation);
    }

    fn learn(&mut self, rail: usize, repr: &Repr) {
        match &repr.body {
            Body::Eager(head) => self.theirs.note(head.operation),
            Body::Rts(rts) => {
                self.theirs.note(rts.head.operation);
                rts.keys.iter().for_each(|key| self.keys.note(*key));
            }
            Body::Cts(cts) => {
                self.theirs.note(cts.target);
                self.epoch = cts.epoch;
                cts.keys.iter().for_each(|key| self.keys.note(*key));
            }
            Body::Fin(fin) => self.epoch = fin.epoch,
            Body::Put(put) => self.theirs.note(put.operation),
            Body::PutImmediate(put) => self.theirs.note(put.operation),
            Body::Get(get) => self.theirs.note(get.operation),
            Body::Atomic(atomic) => self.theirs.note(atomic.operation),
            Body::Resume(resume) => self.epoch = resume.epoch,
            Body::Connect(connect) => self.link(rail).there = (connect.rail, connect.connection),
            Body::Probe(probe) => self.nonces.note(probe.nonce),
            _ => {}
        }
    }

    fn link(&mut self, rail: usize) -> &mut Link {
        if self.links.len() <= rail {
            self.links.resize(rail + 1, Link::default());
        }
        &mut self.links[rail]
    }

    /// An operation of the peer's: one that was seen, the next one in its slot, or one beside it.
    fn operation(&self, rng: &mut Rng) -> u64 {
        if rng.one_in(3)
            && let Some(id) = rng.pick(&self.unknown_processes)
        {
            return *id;
        }
        let Some(seen) = self.theirs.any(rng) else { return Key { index: 0, generation: 1 }.to_bits() };
        let Key { index, generation } = Key::from_bits(seen);
        let key = match rng.below(8) {
            0 => Key { index: index.wrapping_add(rng.within(1, 4) as u32), generation },
            1 => Key { index: index.wrapping_sub(rng.within(1, 4) as u32), generation },
            2 => Key { index, generation: generation.wrapping_add(rng.within(1, 2) as u32) },
            3 => Key { index: rng.below(64) as u32, generation: rng.within(1, 3) as u32 },
            _ => Key { index, generation },
        };
        key.to_bits()
    }

    fn own(&self, rng: &mut Rng) -> u64 {
        self.ours.any(rng).unwrap_or(1 << 32)
    }

    /// Keys as they were given, or with another address, rail or connection.
    fn keys(&self, rng: &mut Rng) -> RemoteKeys {
        let mut keys = RemoteKeys::new();
        for _ in 0..rng.below(3) {
            let Some(mut key) = self.given.any(rng) else { break };
            match rng.below(6) {
                0 => key.address = ugly(rng, key.address),
                1 => key.key = ugly(rng, key.key),
                2 => key.rail = ugly(rng, key.rail.into()) as u8,
                3 => key.connection = ugly(rng, key.connection.into()) as u16,
                _ => {}
            }
            let _ = keys.push(key);
        }
        keys
    }

    /// A key of the peer's memory, for a remote write, and how many bytes to write. Over a rail of this
    /// number only: keys are those of rails.
    pub fn key(&self, rail: usize, rng: &mut Rng) -> Option<(RemoteKey, usize)> {
        let mut key = self.keys.any(rng)?;
        let there = self.links.get(rail)?.there;
        if key.rail != there.0 {
            return None;
        }
        match rng.below(4) {
            0 => key.address = key.address.wrapping_add(rng.within(1, 100_000)),
            1 => key.address = key.address.wrapping_sub(rng.within(1, 10_000)),
            _ => {}
        }
        Some((key, rng.within(1, PAYLOAD_MAX) as usize))
    }

    /// Alters a packet of the liar's own.
    pub fn alter(&self, lie: Lie, repr: &mut Repr, rng: &mut Rng) {
        let Repr { common, body } = repr;
        match lie {
            Lie::Acks => {
                let ack = if rng.one_in(2) { &mut common.ack_ordered } else { &mut common.ack_unordered };
                *ack = ugly32(rng, *ack);
            }
            Lie::Credits => {
                let limit = if rng.one_in(2) { &mut common.message_limit } else { &mut common.block_limit };
                *limit = ugly16(rng, *limit);
            }
            Lie::Psn if body.lane().is_some() => common.psn = ugly32(rng, common.psn),
            Lie::Source => common.source = ugly32(rng, common.source),
            Lie::Body => {
                if rng.one_in(4) {
                    common.ack_now = !common.ack_now;
                    common.refusing = rng.one_in(2);
                }
                self.alter_body(body, rng);
            }
            _ => {}
        }
    }

    fn alter_body(&self, body: &mut Body, rng: &mut Rng) {
        match body {
            Body::Eager(head) => self.alter_head(head, rng),
            Body::Aggregate { count } => *count = ugly16(rng, *count),
            Body::Rts(rts) => match rng.below(3) {
                0 => self.alter_head(&mut rts.head, rng),
                1 => rts.message_bytes = ugly(rng, rts.message_bytes),
                _ => rts.keys = self.keys(rng),
            },
            Body::Cts(cts) => match rng.below(5) {
                0 => cts.operation = self.operation(rng),
                1 => cts.target = self.own(rng),
                2 => cts.granted_bytes = ugly(rng, cts.granted_bytes),
                3 => cts.epoch = ugly16(rng, cts.epoch),
                _ => cts.keys = self.keys(rng),
            },
            Body::Fin(fin) => match rng.below(6) {
                0 => fin.operation = self.operation(rng),
                1 => fin.count = ugly16(rng, fin.count),
                2 => fin.refused = refusal(rng),
                3 => fin.want_placed = !fin.want_placed,
                4 => fin.epoch = ugly16(rng, fin.epoch),
                _ => fin.placed_bytes = ugly(rng, fin.placed_bytes),
            },
            Body::Data(data) if rng.one_in(2) => data.operation = self.operation(rng),
            Body::Data(data) => data.offset = ugly(rng, data.offset),
            Body::Put(put) => match rng.below(3) {
                0 => put.window ^= 1 << rng.within(40, 63),
                1 => put.offset = outside(rng),
                _ => put.operation = self.own(rng),
            },
            Body::PutImmediate(put) => match rng.below(4) {
                0 => put.window ^= 1 << rng.within(40, 63),
                1 => put.offset = outside(rng),
                2 => put.bytes = ugly(rng, put.bytes),
                _ => put.operation = self.own(rng),
            },
            Body::Get(get) => match rng.below(4) {
                0 => get.window ^= 1 << rng.within(40, 63),
                1 => get.offset = ugly(rng, get.offset),
                2 => get.bytes = ugly(rng, get.bytes),
                _ => get.operation = self.own(rng),
            },
            Body::Atomic(atomic) => match rng.below(3) {
                0 => atomic.window ^= 1 << rng.within(40, 63),
                1 => atomic.offset = outside(rng),
                _ => atomic.operation = self.own(rng),
            },
            Body::AtomicReply(reply) if rng.one_in(2) => reply.operation = self.operation(rng),
            Body::AtomicReply(reply) => reply.old = rng.draw(),
            Body::Resume(resume) if rng.one_in(2) => resume.target = self.operation(rng),
            Body::Resume(resume) => resume.epoch = ugly16(rng, resume.epoch),
            Body::Ack(ack) => (ack.ordered_beyond, ack.unordered_beyond) = (rng.draw(), rng.draw()),
            Body::Connect(connect) => alter_connect(connect, rng),
            Body::Fence(fence) => alter_fence(fence, rng),
            Body::Probe(probe) if rng.one_in(2) => probe.nonce = ugly(rng, probe.nonce),
            Body::Probe(probe) => probe.answer = !probe.answer,
            Body::Address(address) => address.rail = ugly(rng, address.rail.into()) as u8,
            Body::Credit | Body::Bye | Body::Park(_) => {}
        }
    }

    fn alter_head(&self, head: &mut MessageHead, rng: &mut Rng) {
        match rng.below(4) {
            // The upper bits stay: no receive of the checked programmes takes every tag.
            0 => head.tag = head.tag.map(|tag| tag ^ 1 << rng.below(44)),
            1 => head.immediate = Some(rng.draw()),
            2 => head.want_placed = !head.want_placed,
            _ => head.operation = self.own(rng),
        }
    }

    /// A packet that the liar's endpoint never made, and how many bytes of payload it has; `None`: nothing is
    /// known that it could be made of.
    pub fn forge(&self, lie: Lie, rail: usize, others: &[String], rng: &mut Rng) -> Option<Repr> {
        let mut common = self.last?;
        (common.psn, common.payload_bytes) = (0, 0);
        let mut payload = 0;
        let body = match lie {
            Lie::Fin => Body::Fin(Fin {
                operation: self.operation(rng),
                count: *rng.pick(&[1, 1, 1, 2, 0, u16::MAX])?,
                refused: refusal(rng),
                want_placed: rng.one_in(2),
                epoch: self.an_epoch(rng),
                placed_bytes: ugly(rng, 4096),
            }),
            Lie::Cts => Body::Cts(Cts {
                operation: self.operation(rng),
                target: self.own(rng),
                granted_bytes: ugly(rng, 20_000),
                epoch: self.an_epoch(rng),
                keys: self.keys(rng),
            }),
            Lie::Resume => Body::Resume(Resume { target: self.operation(rng), epoch: self.an_epoch(rng) }),
            Lie::Data => {
                payload = rng.below(PAYLOAD_MAX);
                let offset = if rng.one_in(2) { rng.below(10_000) } else { ugly(rng, 0) };
                Body::Data(Data { operation: self.operation(rng), offset })
            }
            Lie::Reply => Body::AtomicReply(AtomicReply { operation: self.operation(rng), old: rng.draw() }),
            Lie::Message => {
                payload = rng.below(PAYLOAD_MAX);
                let tag = (!rng.one_in(4)).then(|| rng.draw() >> 20);
                let immediate = rng.one_in(2).then(|| rng.draw());
                let head = MessageHead { tag, immediate, want_placed: rng.one_in(2), operation: self.own(rng) };
                match rng.below(3) {
                    0 => Body::Eager(head),
                    1 => Body::Aggregate { count: ugly16(rng, 2) },
                    _ => {
                        payload = 0;
                        Body::Rts(Rts { head, message_bytes: ugly(rng, 30_000), keys: self.keys(rng) })
                    }
                }
            }
            Lie::Fence => {
                let Link { here, there } = *rng.pick(&self.links)?;
                let mut fence = Fence {
                    rail: here.0,
                    peer_rail: there.0,
                    connection: here.1,
                    peer_connection: there.1,
                    ordered_beyond: if rng.one_in(2) { rng.draw() } else { 0 },
                    unordered_beyond: if rng.one_in(2) { rng.draw() } else { 0 },
                    answer: rng.one_in(2),
                };
                if rng.one_in(2) {
                    alter_fence(&mut fence, rng);
                }
                Body::Fence(fence)
            }
            Lie::Connect => {
                let mut connect = self.peer_parameters?;
                let here = self.links.get(rail)?.here;
                (connect.rail, connect.connection) = here;
                alter_connect(&mut connect, rng);
                Body::Connect(connect)
            }
            Lie::Probe => {
                let nonce = self.nonces.any(rng).unwrap_or(0);
                let nonce = if rng.one_in(2) { nonce } else { ugly(rng, nonce) };
                let answer = rng.one_in(2);
                payload = if answer { 0 } else { rng.below(PAYLOAD_MAX) };
                Body::Probe(Probe { nonce, answer })
            }
            Lie::Address => {
                let text = AddressText::new(rng.pick(others)?.as_bytes()).ok()?;
                let rail = rng.pick(&self.links)?.here.0;
                Body::Address(Address { rail, text })
            }
            Lie::Bye => Body::Bye,
            Lie::OneSided => {
                let known = self.windows.any(rng).unwrap_or(7);
                let (window, offset) = match rng.below(3) {
                    0 => (known ^ 1 << rng.within(40, 63), rng.below(4096)),
                    _ => (known, outside(rng)),
                };
                let operation = self.own(rng);
                match rng.below(4) {
                    0 => {
                        payload = rng.below(PAYLOAD_MAX);
                        Body::Put(Put { window, offset, operation })
                    }
                    3 => {
                        let (bytes, immediate) = (rng.below(PAYLOAD_MAX), rng.draw());
                        payload = *rng.pick(&[0, bytes, bytes, 1]).unwrap_or(&0);
                        Body::PutImmediate(PutImmediate { window, offset, operation, bytes, immediate })
                    }
                    1 => Body::Get(Get { window, offset, bytes: ugly(rng, 64), operation }),
                    _ => Body::Atomic(Atomic { window, offset, operation, operand: rng.draw(), ..Atomic::default() }),
                }
            }
            Lie::Status => {
                let mut status = Repr { common, body: Body::Credit };
                self.alter(if rng.one_in(2) { Lie::Acks } else { Lie::Credits }, &mut status, rng);
                common = status.common;
                match rng.below(2) {
                    0 => Body::Ack(Ack { ordered_beyond: rng.draw(), unordered_beyond: rng.draw() }),
                    _ => Body::Credit,
                }
            }
            Lie::Write | Lie::Acks | Lie::Credits | Lie::Psn | Lie::Source | Lie::Body => return None,
        };
        common.payload_bytes = payload as u32;
        Some(Repr { common, body })
    }

    fn an_epoch(&self, rng: &mut Rng) -> u16 {
        match rng.below(4) {
            0 => self.epoch,
            1 => self.epoch.wrapping_add(1),
            2 => self.epoch.wrapping_add(2),
            _ => ugly16(rng, self.epoch),
        }
    }
}

fn refusal(rng: &mut Rng) -> Option<Refusal> {
    let all = [Refusal::NoWindow, Refusal::OutOfRange, Refusal::NoAccess, Refusal::BadAtomic];
    rng.one_in(3).then(|| *rng.pick(&all).unwrap_or(&Refusal::NoWindow))
}

fn alter_connect(connect: &mut Connect, rng: &mut Rng) {
    match rng.below(8) {
        0 => connect.window = ugly32(rng, connect.window),
        1 => connect.eager_bytes_max = ugly32(rng, connect.eager_bytes_max),
        2 => connect.block_bytes = ugly32(rng, connect.block_bytes),
        3 => connect.requests_max = ugly16(rng, connect.requests_max),
        4 => connect.rail = ugly(rng, connect.rail.into()) as u8,
        5 | 6 => connect.connection = ugly32(rng, connect.connection),
        _ => connect.answer = !connect.answer,
    }
}

fn alter_fence(fence: &mut Fence, rng: &mut Rng) {
    match rng.below(5) {
        0 => fence.rail = ugly(rng, fence.rail.into()) as u8,
        1 => fence.peer_rail = ugly(rng, fence.peer_rail.into()) as u8,
        2 => fence.connection = ugly32(rng, fence.connection),
        3 => fence.peer_connection = ugly32(rng, fence.peer_connection),
        _ => fence.answer = !fence.answer,
    }
}
