//! Rings between the ranks of a simulated host, on the very code of [`rerail_core::shm`].
//!
//! A [`ShmHub`] is what the kernel is to real processes: it makes the memory of a pair of rings when one of
//! two ranks first connects, hands one end to each, rings doorbells, and records which rank is dead. An idle
//! pair costs nothing; a connected one is looked at only when its doorbell has rung (rule L-13), so that a
//! rank's poll costs what happens to it. Every connect makes rings of its own; a rank that finds new ones of
//! a peer whose old ones stand is notified that they are over. Differences from the real rail, on purpose: no
//! authentication, for all ranks are one process; of two connects that cross, the second finds the first
//! one's ends; bells are no system calls.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;

use rerail_core::endpoint::{Access, Arrival, PostKind, PostStatus, RailFault};
use rerail_core::ids::{PeerId, PostId};
use rerail_core::rail::{Caps, RailFacts, RailKind};
use rerail_core::shm::{PushError, WindowList};
use rerail_core::time::Time;
use rerail_core::wire::{HEADER_BYTES_MAX, Short};
use rerail_linux::rail::shm::RingReader;
use rerail_linux::rail::{
    AddressError, DirectAccess, MemoryKey, Outgoing, Piece, Rail, RailCounters, RailUsage, ShortPlace, Sink,
};

use super::access::Windows;
use super::hub::{End, Hub, ShmHub, Side};
use super::joint::Assist;
use super::memory::{copy_out, gather};
use super::reads::{Reads, Step};

/// Packets taken from one ring in a poll: others come too.
const BURST: usize = 32;

#[derive(Debug)]
struct Queued {
    id: PostId,
    header: heapless::Vec<u8, HEADER_BYTES_MAX>,
    payload: Payload,
}

#[derive(Debug)]
enum Payload {
    /// The caller's memory, valid until completion.
    Pieces(Vec<Piece>),
    /// A copy, after which the caller's memory is free.
    Owned(Vec<u8>),
}

/// A pair of rings in use.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) end: End,
    /// `up` has been reported.
    pub(super) reported: bool,
    /// The rank disconnected: what is queued still goes out, nothing is reported any more.
    pub(super) closing: bool,
    /// Listed in `ShmRail::active`.
    pub(super) active: bool,
    queue: VecDeque<Queued>,
    pub(super) reads: Reads,
    /// The window of a put that is announced.
    pub(super) put: Option<u64>,
    assist: Option<Assist>,
    reader: RingReader,
}

impl Link {
    fn over(mut end: End, rank: u32, hub: &Hub, windows: &WindowList) -> Self {
        end.outbound.offer(hub.offers[rank as usize].number());
        end.outbound.list_windows(windows);
        let (queue, reads) = (VecDeque::new(), Reads::default());
        let ring_bytes = u64::from(hub.ring.slots) * u64::from(hub.ring.payload_bytes_max(HEADER_BYTES_MAX as u32));
        let reader = RingReader::new(hub.ring_reads, ring_bytes);
        Link { end, reported: false, closing: false, active: false, queue, reads, put: None, assist: None, reader }
    }
}

/// Rings to the other ranks of a host.
#[derive(Debug)]
pub struct ShmRail {
    pub(super) hub: ShmHub,
    pub(super) rank: u32,
    facts: RailFacts,
    pub(super) links: BTreeMap<u32, Link>,
    pub(super) windows: Windows,
    /// Links that have something to look at, in the order in which they got it.
    pub(super) active: Vec<u32>,
    /// Posts that have gone out and were not reported yet.
    done: Vec<(u32, PostId)>,
    /// Peers that could not be connected, and why.
    refused: Vec<(u32, RailFault)>,
    pieces: Vec<Piece>,
    counters: RailCounters,
}

impl Drop for ShmRail {
    fn drop(&mut self) {
        let hub = &mut *self.hub.0.borrow_mut();
        hub.grants.clear(self.rank);
        hub.offers[self.rank as usize].clear();
    }
}

/// What a look at a link came to.
enum Polled {
    /// So many things happened; there may be more.
    Some(usize),
    /// So many, and the link sleeps until its bell rings.
    Asleep(usize),
    /// The subchannel is down.
    Down(RailFault),
    /// A disconnected link has nothing left to send.
    Over,
}

impl ShmHub {
    /// The rail of a rank.
    pub fn rail(&self, rank: u32) -> ShmRail {
        let hub = self.0.borrow();
        let facts = RailFacts {
            kind: RailKind::Shm,
            caps: Caps { lossless: true, read: hub.reads.is_some(), ..Caps::default() },
            eager_bytes_max: hub.ring.slot_bytes - HEADER_BYTES_MAX as u32,
            segment_bytes_max: hub.ring.slot_bytes - HEADER_BYTES_MAX as u32,
            short_bytes_max: (hub.ring.slot_bytes - HEADER_BYTES_MAX as u32).min(u16::MAX.into()),
            transfer_bytes_max: u32::MAX,
            posts_max: hub.posts_max,
            bytes_per_second: 0,
            ..RailFacts::UNKNOWN
        };
        ShmRail {
            hub: self.clone(),
            rank,
            facts,
            links: BTreeMap::new(),
            windows: Windows::default(),
            active: Vec::new(),
            done: Vec::new(),
            refused: Vec::new(),
            pieces: Vec::new(),
            counters: RailCounters::default(),
        }
    }
}

impl ShmRail {
    fn activate(&mut self, peer: u32) {
        if let Some(link) = self.links.get_mut(&peer)
            && !std::mem::replace(&mut link.active, true)
        {
            self.active.push(peer);
        }
    }

    /// Takes ends that others made, and doorbells.
    fn answer_bells(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        let (calls, bells) = {
            let mut hub = self.hub.0.borrow_mut();
            let process = &mut hub.ranks[self.rank as usize];
            (std::mem::take(&mut process.calls), std::mem::take(&mut process.bells))
        };
        let mut taken = 0;
        // What its maker has closed again never was.
        for end in calls.into_iter().filter(|end| end.far.get() != Side::Closed) {
            let peer = end.peer;
            taken += 1 + self.supersede(now, peer, sink);
            end.near.set(Side::Open);
            let link = Link::over(end, self.rank, &self.hub.0.borrow(), &self.windows.list);
            self.links.insert(peer, link);
            // The caller's `up` waits for this.
            self.hub.0.borrow_mut().ring(self.rank, peer);
            self.activate(peer);
        }
        for peer in bells {
            self.activate(peer);
        }
        taken
    }

    /// The peer has made new rings: it has given up those that stand here, if any do (H-10).
    fn supersede(&mut self, now: Time, peer: u32, sink: &mut dyn Sink) -> usize {
        let mut things = 0;
        let reported = self.links.get(&peer).is_some_and(|link| link.reported && !link.closing);
        while reported && let Polled::Some(some) = self.poll_end(now, peer, sink) {
            things += some;
            if some == 0 {
                break;
            }
        }
        things += self.report_completed(sink);
        self.close(peer);
        if reported {
            things += 1;
            sink.down(PeerId(peer), RailFault::Closed);
        }
        things
    }

    fn report_completed(&mut self, sink: &mut dyn Sink) -> usize {
        let done = std::mem::take(&mut self.done);
        done.iter().for_each(|(_, id)| sink.completed(*id, PostStatus::Done));
        done.len()
    }

    fn poll_end(&mut self, now: Time, peer: u32, sink: &mut dyn Sink) -> Polled {
        let Some(link) = self.links.get_mut(&peer) else { return Polled::Over };
        link.end_put(&self.hub.0.borrow());
        link.end.inbound.disarm();
        link.end.outbound.disarm();
        let dead = !self.hub.0.borrow().ranks[peer as usize].alive;
        if link.end.far.get() == Side::Called {
            // The peer has not taken its ends; its bell or its death wakes us.
            return match dead {
                true if link.closing => Polled::Over,
                true => Polled::Down(RailFault::Gone),
                false => Polled::Asleep(0),
            };
        }
        let mut things = 0;
        if !link.reported && !link.closing {
            link.reported = true;
            sink.up(PeerId(peer));
            things += 1;
            let reads = self.facts.caps.read;
            if reads && !self.hub.0.borrow_mut().may_read() {
                sink.no_remote_access(PeerId(peer));
            }
        }
        let (gone, closing) = (dead || link.end.far.get() == Side::Closed, link.closing);
        let sent = match gone {
            true => Ok(0),
            false => link.pump(&self.hub, self.rank, &mut self.counters, &mut self.done),
        };
        let received = link.receive(now, (&self.hub, self.rank), sink, &mut self.pieces, &mut self.counters);
        // As a broken seal does, the end of the other side ends all reads.
        let reads = !gone && !closing && link.reads.is_pending();
        let mut read = link.resume(&mut self.hub.0.borrow_mut(), self.rank, sink);
        let mut waits = false;
        if !gone && !closing {
            let tended = link.tend(&mut self.hub.0.borrow_mut(), self.rank);
            read = read.and_then(|read| {
                let tended = tended?;
                waits = tended.1;
                Ok(read + tended.0)
            });
        }
        if reads && read.is_ok() {
            let more = link.read(&mut self.hub.0.borrow_mut(), self.rank, sink);
            read = read.and_then(|read| Ok(read + more?));
        }
        let mut is_assisting = !gone && !closing && link.assist.is_some();
        if is_assisting {
            things += 1;
            is_assisting = link.assist(&mut self.hub.0.borrow_mut(), self.rank);
        }
        let sent = sent.and_then(|sent| Ok(sent + read?));
        let (sent, received) = match (sent, received) {
            (Ok(sent), Ok(received)) => (sent, received),
            (Err(fault), _) | (_, Err(fault)) if !closing => return Polled::Down(fault),
            _ => return Polled::Over,
        };
        things += sent + received;
        let mut hub = self.hub.0.borrow_mut();
        // The query takes the sleeper's flag, so it is made only when there is something to wake it for.
        let bell = sent > 0 && link.end.outbound.must_ring();
        if link.end.inbound.must_ring() || bell {
            hub.ring(self.rank, peer);
        }
        if waits {
            // The socket is busy, and nothing rings: a process whose rail is not armed polls again.
            hub.wake(self.rank);
        }
        if received == BURST || reads || is_assisting || waits {
            return Polled::Some(things);
        }
        if closing && (gone || link.queue.is_empty()) {
            return Polled::Over;
        }
        let left = !link.end.visible.borrow().is_empty();
        if gone && !left {
            return Polled::Down(RailFault::Closed);
        }
        // While packets are on their way here, the link stays active, and `next_timeout` names the moment.
        let sleeps = link.end.inbound.arm() && (link.queue.is_empty() || link.end.outbound.arm());
        // A look at an empty ring may have given slots back.
        if link.end.inbound.must_ring() {
            hub.ring(self.rank, peer);
        }
        match sleeps {
            true => Polled::Asleep(things),
            false => Polled::Some(things),
        }
    }

    /// The list of what peers may map has changed.
    fn renumber(links: &mut BTreeMap<u32, Link>, number: u64) {
        links.values_mut().filter(|link| !link.closing).for_each(|link| link.end.outbound.offer(number));
    }

    /// The link is no more, and the other side learns of it.
    fn close(&mut self, peer: u32) {
        if let Some(mut link) = self.links.remove(&peer) {
            // L-18
            link.end.outbound.offer(0);
            link.end.outbound.list_windows(&WindowList::default());
            link.end_put(&self.hub.0.borrow());
            self.active.retain(|active| *active != peer);
            link.end.near.set(Side::Closed);
            self.hub.0.borrow_mut().ring(self.rank, peer);
            self.keep_put(link);
        }
    }
}

impl Link {
    /// Moves waiting posts into the ring, as far as there is room.
    fn pump(
        &mut self,
        hub: &ShmHub,
        rank: u32,
        counters: &mut RailCounters,
        done: &mut Vec<(u32, PostId)>,
    ) -> Result<usize, RailFault> {
        let mut moved = 0;
        while let Some(first) = self.queue.front() {
            let whole;
            let pieces = match &first.payload {
                Payload::Pieces(pieces) => &pieces[..],
                Payload::Owned(bytes) => {
                    whole = [Piece { start: bytes.as_ptr().cast_mut(), len: bytes.len() }];
                    &whole[..]
                }
            };
            match self.end.outbound.push(&first.header, pieces) {
                Ok(()) => {
                    let visible = hub.0.borrow_mut().copy_in(rank, bytes_of(pieces));
                    self.end.far_visible.borrow_mut().push_back(visible);
                    count_sent(counters, &first.header, pieces);
                    if !self.closing {
                        done.push((self.end.peer, first.id));
                    }
                    self.queue.pop_front();
                    moved += 1;
                }
                Err(PushError::Full) => break,
                Err(error) => return Err(fault_of(error)),
            }
        }
        Ok(moved)
    }

    /// Moves the next portion of what is read; returns how many things happened.
    fn read(&mut self, hub: &mut Hub, rank: u32, sink: &mut dyn Sink) -> Result<usize, RailFault> {
        let Some(model) = hub.reads else { return Ok(0) };
        let (peer, notes) = (self.end.peer, hub.requests.len());
        let ends = (&mut self.end.outbound, self.end.inbound.offer());
        let step = self.reads.step(hub, ends, (rank, peer), &model);
        if hub.requests.len() > notes {
            self.end.far_visible.borrow_mut().push_back(hub.visible());
            hub.ring(rank, peer);
        }
        Self::report(step, sink)
    }

    /// Ends a copy that was begun out of a mapping.
    fn resume(&mut self, hub: &mut Hub, rank: u32, sink: &mut dyn Sink) -> Result<usize, RailFault> {
        let inbound = &self.end.inbound;
        Self::report(self.reads.resume(hub, rank, || inbound.offer()), sink)
    }

    /// Lists of what may be mapped; returns how many things happened, and whether something waits.
    fn tend(&mut self, hub: &mut Hub, rank: u32) -> Result<(usize, bool), RailFault> {
        let End { peer, inbound, mail, far_mail, .. } = &self.end;
        let tended = self.reads.maps.tend(hub, inbound.offer(), (mail, far_mail), (rank, *peer));
        tended.map_err(|()| RailFault::Corrupt)
    }

    fn report(step: Option<Step>, sink: &mut dyn Sink) -> Result<usize, RailFault> {
        match step {
            None | Some(Step::Wait) => return Ok(0),
            Some(Step::Corrupt) => return Err(RailFault::Corrupt),
            Some(Step::Some) => {}
            Some(Step::Done(id)) => sink.completed(id, PostStatus::Done),
            Some(Step::NoAccess(id)) => sink.completed(id, PostStatus::NoAccess),
        }
        Ok(1)
    }

    /// Copies for the peer; `false`: it is over.
    fn assist(&mut self, hub: &mut Hub, rank: u32) -> bool {
        let (Some(model), Some(assist)) = (hub.reads, &mut self.assist) else { return false };
        let goes_on = assist.step(hub, &self.end.inbound, (rank, self.end.peer), model.portion as usize);
        self.assist = self.assist.take().filter(|_| goes_on);
        goes_on
    }

    /// Takes up to [`BURST`] packets that are visible; those of a closing link are dropped.
    fn receive(
        &mut self,
        now: Time,
        (hub, rank): (&ShmHub, u32),
        sink: &mut dyn Sink,
        pieces: &mut Vec<Piece>,
        counters: &mut RailCounters,
    ) -> Result<usize, RailFault> {
        let (mut taken, mut goes_on) = (0, true);
        while goes_on && taken < BURST && self.end.visible.borrow().front().is_none_or(|visible| *visible <= now) {
            let Some(front) = self.end.inbound.front().map_err(|_| RailFault::Corrupt)? else { break };
            taken += 1;
            self.end.visible.borrow_mut().pop_front();
            if self.closing {
                front.release();
                continue;
            }
            if front.is_note() {
                self.assist = Assist::new(&mut hub.0.borrow_mut(), front.header());
                front.release();
                continue;
            }
            let payload_bytes = front.payload_bytes();
            hub.0.borrow_mut().copy_out(rank, payload_bytes as usize);
            goes_on = match front.short() {
                Some(_) => true,
                None => self.reader.goes_on(front.header()),
            };
            counters.packets_received += 1;
            counters.bytes_received += front.header().len() as u64 + u64::from(payload_bytes);
            let peer = PeerId(self.end.peer);
            let arrival = match front.short() {
                None => sink.arrival(peer, front.header()),
                Some(short) => match sink.short(peer, short) {
                    ShortPlace::Copy(start) => {
                        copy_out(&front, 0, Piece { start, len: payload_bytes as usize });
                        Arrival::Done
                    }
                    ShortPlace::Done => Arrival::Done,
                    ShortPlace::Packet => sink.short_packet(peer, short),
                },
            };
            match arrival {
                Arrival::Done | Arrival::Discard | Arrival::Address { .. } => {}
                Arrival::Close => return Err(RailFault::Corrupt),
                Arrival::Place { id, memory } => {
                    if memory.len() > u64::from(payload_bytes) {
                        return Err(RailFault::Corrupt);
                    }
                    pieces.clear();
                    if sink.place(id, 0, pieces) {
                        let mut at = 0;
                        for piece in pieces.iter() {
                            at += copy_out(&front, at, *piece) as u32;
                        }
                        sink.placed(id);
                    }
                }
            }
            front.release();
        }
        Ok(taken)
    }
}

fn count_sent(counters: &mut RailCounters, header: &[u8], payload: &[Piece]) {
    counters.packets_sent += 1;
    counters.bytes_sent += (header.len() + bytes_of(payload)) as u64;
}

fn bytes_of(payload: &[Piece]) -> usize {
    payload.iter().map(|piece| piece.len).sum()
}

fn fault_of(error: PushError) -> RailFault {
    // The facts of the rail keep packets below a slot's size, so a long one is our bug.
    debug_assert!(!matches!(error, PushError::TooLong { .. }), "{error:?}");
    RailFault::Corrupt
}

impl Rail for ShmRail {
    fn name(&self) -> &str {
        "shm"
    }

    fn facts(&self) -> RailFacts {
        self.facts
    }

    fn address(&self) -> String {
        format!("ring/{}", self.rank)
    }

    fn add_peer(&mut self, peer: PeerId, address: &str) -> Result<bool, AddressError> {
        // Nothing is kept: the hub has all ranks.
        if address.strip_prefix("ring/").and_then(|rank| rank.parse().ok()) != Some(peer.0) {
            return Err(AddressError { address: address.to_owned(), why: "it is no ring of this rank" });
        }
        let hub = self.hub.0.borrow();
        let host = |rank: u32| hub.ranks.get(rank as usize).map(|process| process.host);
        Ok(host(peer.0) == host(self.rank))
    }

    fn connect(&mut self, _now: Time, peer: PeerId) {
        match self.links.get(&peer.0) {
            Some(link) if !link.closing => return,
            Some(_) => self.close(peer.0),
            None => {}
        }
        let hub = &mut *self.hub.0.borrow_mut();
        let process = &hub.ranks[self.rank as usize];
        if process.calls.iter().any(|end| end.peer == peer.0 && end.far.get() != Side::Closed) {
            // It has called already: that comes with the next poll.
            return hub.wake(self.rank);
        }
        match hub.call(self.rank, peer.0) {
            Some(end) => {
                self.links.insert(peer.0, Link::over(end, self.rank, hub, &self.windows.list));
            }
            None => {
                let known = hub.ranks.get(peer.0 as usize);
                let gone = known.is_some_and(|process| !process.alive);
                self.refused.push((peer.0, if gone { RailFault::Gone } else { RailFault::Refused }));
            }
        }
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.refused.retain(|(refused, _)| *refused != peer.0);
        self.done.retain(|(of, _)| *of != peer.0);
        let Some(link) = self.links.get_mut(&peer.0) else { return };
        link.closing = true;
        link.end.outbound.offer(0);
        link.end.outbound.list_windows(&WindowList::default());
        (link.reads, link.assist) = (Reads::default(), None);
        for queued in &mut link.queue {
            if let Payload::Pieces(pieces) = &queued.payload {
                let mut bytes = Vec::new();
                gather(pieces, &mut bytes);
                queued.payload = Payload::Owned(bytes);
            }
        }
        self.activate(peer.0);
        self.hub.0.borrow_mut().wake(self.rank);
    }

    fn abort(&mut self, peer: PeerId) {
        self.refused.retain(|(refused, _)| *refused != peer.0);
        self.done.retain(|(of, _)| *of != peer.0);
        self.close(peer.0);
    }

    unsafe fn post(&mut self, outgoing: Outgoing<'_>) {
        let Some(link) = self.links.get_mut(&outgoing.peer.0).filter(|link| link.reported && !link.closing) else {
            // A post to a subchannel that is down is dropped, as the core expects.
            return;
        };
        if outgoing.kind != PostKind::Send {
            let hub = &mut *self.hub.0.borrow_mut();
            let taken = hub.reads.is_some_and(|model| link.reads.post(&outgoing, &model, &mut hub.rng));
            debug_assert!(taken, "ranks read where the rail allows it, and write never");
            hub.wake(self.rank);
            self.active.extend((!std::mem::replace(&mut link.active, true)).then_some(outgoing.peer.0));
            return;
        }
        let Ok(header) = heapless::Vec::from_slice(outgoing.header) else { return };
        if link.queue.is_empty() && link.end.outbound.push(&header, outgoing.payload).is_ok() {
            let visible = self.hub.0.borrow_mut().copy_in(self.rank, bytes_of(outgoing.payload));
            link.end.far_visible.borrow_mut().push_back(visible);
            count_sent(&mut self.counters, &header, outgoing.payload);
            self.done.push((outgoing.peer.0, outgoing.id));
            if link.end.outbound.must_ring() {
                self.hub.0.borrow_mut().ring(self.rank, outgoing.peer.0);
            }
            return;
        }
        let payload = Payload::Pieces(outgoing.payload.to_vec());
        link.queue.push_back(Queued { id: outgoing.id, header, payload });
        self.activate(outgoing.peer.0);
    }

    unsafe fn post_short(&mut self, peer: PeerId, short: &Short, payload: *const u8) -> bool {
        let open = self.links.get_mut(&peer.0).filter(|link| link.reported && !link.closing && link.queue.is_empty());
        let Some(link) = open else { return false };
        // SAFETY: the caller's promise is the one demanded.
        let Ok(must_ring) = (unsafe { link.end.outbound.push_short(short, payload) }) else { return false };
        let visible = self.hub.0.borrow_mut().copy_in(self.rank, short.len.into());
        link.end.far_visible.borrow_mut().push_back(visible);
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += u64::from(short.len);
        if must_ring {
            self.hub.0.borrow_mut().ring(self.rank, peer.0);
        }
        true
    }

    unsafe fn register(&mut self, memory: Piece, write: bool) -> Result<MemoryKey, RailFault> {
        debug_assert!(!write, "no rank writes");
        let hub = &mut *self.hub.0.borrow_mut();
        let address = hub.offers[self.rank as usize].address_of(memory);
        Ok(hub.grants.add(self.rank, memory, address))
    }

    fn deregister(&mut self, key: MemoryKey) {
        self.hub.0.borrow_mut().grants.remove(self.rank, key.key);
    }

    fn offer(&mut self, memory: Piece, _: BorrowedFd<'_>, is_writable: bool) {
        let hub = &mut *self.hub.0.borrow_mut();
        let Some(model) = hub.maps else { return };
        let defect = hub.draws(model.unsafe_one_in).then(|| hub.map_rng.draw());
        if hub.offers[self.rank as usize].add(memory, is_writable, defect) {
            let number = hub.offers[self.rank as usize].number();
            Self::renumber(&mut self.links, number);
        }
    }

    fn forget(&mut self, memory: Piece) {
        let offers = &mut self.hub.0.borrow_mut().offers[self.rank as usize];
        if offers.withdraw(memory) {
            let number = offers.number();
            Self::renumber(&mut self.links, number);
        }
    }

    fn expose(&mut self, key: u64, memory: Piece, access: Access) {
        self.list_window(key, memory, access);
    }

    fn withdraw(&mut self, key: u64) -> bool {
        self.unlist_window(key)
    }

    unsafe fn access(&mut self, access: &DirectAccess<'_>) -> bool {
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.access_now(access) }
    }

    fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        let mut things = self.answer_bells(now, sink);
        for (peer, fault) in std::mem::take(&mut self.refused) {
            things += 1;
            sink.down(PeerId(peer), fault);
        }
        for peer in std::mem::take(&mut self.active) {
            if let Some(link) = self.links.get_mut(&peer) {
                link.active = false;
            }
            match self.poll_end(now, peer, sink) {
                Polled::Some(some) => {
                    things += some;
                    self.activate(peer);
                }
                Polled::Asleep(some) => things += some,
                Polled::Over => self.close(peer),
                Polled::Down(fault) => {
                    things += 1;
                    self.counters.corrupt += u64::from(fault == RailFault::Corrupt);
                    self.done.retain(|(of, _)| *of != peer);
                    self.close(peer);
                    sink.down(PeerId(peer), fault);
                }
            }
        }
        things + self.report_completed(sink)
    }

    fn next_timeout(&self) -> Option<Time> {
        // What lies in a ring of an active link and is not visible yet.
        let links = self.active.iter().filter_map(|peer| self.links.get(peer));
        let dues = links.flat_map(|link| [link.end.visible.borrow().front().copied(), link.reads.deadline()]);
        dues.flatten().min()
    }

    fn is_closing(&self) -> bool {
        self.links.values().any(|link| link.closing)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn arm(&mut self) -> bool {
        self.active.is_empty() && self.done.is_empty() && self.refused.is_empty()
    }

    fn disarm(&mut self) {}

    fn counters(&self) -> RailCounters {
        self.counters
    }

    fn usage(&self) -> RailUsage {
        RailUsage::default()
    }
}
