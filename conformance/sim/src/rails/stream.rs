//! The rail over byte pipes: TCP's framing (`rerail_core::wire`), one pipe per peer.
//!
//! As the real TCP rail, with the kernel's part done by [`PipeNet`]: a post is copied to the pipe's send
//! buffer and over when its last byte is there; headers are found in the stream, and a payload goes to its
//! place as it comes. Connections are not authenticated: no other process is on a simulated network.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use rerail_core::endpoint::{Arrival, PostKind, PostStatus, RailFault};
use rerail_core::ids::{PeerId, PlaceId, PostId};
use rerail_core::rail::{Caps, RailFacts, RailKind};
use rerail_core::time::Time;
use rerail_core::wire;
use rerail_linux::rail::{AddressError, Outgoing, Piece, Rail, RailCounters, RailUsage, ShortPlace, Sink};

use super::memory::{gather, scatter};
use super::pipes::{PipeEnd, PipeNet, RECEIVE_BYTES, State};

/// Bytes read from one pipe in a poll: others come too.
const READ_BYTES: usize = 64 * 1024;

/// One of so many small posts is reported in any case.
const SMALL_REPORTED: u32 = 4;

/// Pipes that the rails of all ranks share.
pub type SharedPipes = Rc<RefCell<PipeNet>>;

#[derive(Debug)]
struct Queued {
    id: PostId,
    /// Header and payload.
    bytes: Vec<u8>,
    /// So many of them are in the pipe.
    sent: usize,
}

/// Where a stream stands.
#[derive(Clone, Copy, Debug)]
enum At {
    Header,
    Payload { left: usize, place: Option<(PlaceId, u64)> },
}

#[derive(Debug)]
struct Link {
    end: PipeEnd,
    reported: bool,
    /// The core disconnected: what is queued goes out, nothing is reported any more.
    closing: bool,
    active: bool,
    /// Small posts so far, and the poll after which one was over at once.
    small: u32,
    quiet_at: u64,
    queue: VecDeque<Queued>,
    /// Bytes read and not understood yet: the start of a header.
    bytes: Vec<u8>,
    at: At,
}

/// A pipe to each peer.
pub struct StreamRail {
    pipes: SharedPipes,
    name: String,
    /// The rail's number among those of its kind.
    nth: u8,
    rank: u32,
    bytes_per_second: u64,
    links: BTreeMap<u32, Link>,
    /// Links with something to look at, in the order in which they got it.
    active: Vec<u32>,
    done: Vec<(u32, PostId)>,
    polls: u64,
    refused: Vec<(u32, RailFault)>,
    pieces: Vec<Piece>,
    counters: RailCounters,
}

impl StreamRail {
    /// The `nth` rail of this kind of a rank that listens already.
    pub fn new(pipes: SharedPipes, nth: u8, rank: u32, bytes_per_second: u64) -> Self {
        StreamRail {
            pipes,
            name: format!("tcp{nth}"),
            nth,
            rank,
            bytes_per_second,
            links: BTreeMap::new(),
            active: Vec::new(),
            done: Vec::new(),
            polls: 0,
            refused: Vec::new(),
            pieces: Vec::new(),
            counters: RailCounters::default(),
        }
    }

    fn link(end: PipeEnd) -> Link {
        Link {
            end,
            reported: false,
            closing: false,
            active: false,
            small: 0,
            quiet_at: 0,
            queue: VecDeque::new(),
            bytes: Vec::new(),
            at: At::Header,
        }
    }

    /// Ends a link at once: what is queued and what is here is dropped (F-2).
    fn drop_link(&mut self, peer: u32) {
        if let Some(link) = self.links.remove(&peer) {
            self.active.retain(|active| *active != peer);
            self.pipes.borrow_mut().abort(link.end);
        }
    }

    fn activate(&mut self, peer: u32) {
        if let Some(link) = self.links.get_mut(&peer)
            && !std::mem::replace(&mut link.active, true)
        {
            self.active.push(peer);
        }
    }

    fn answer_bells(&mut self, sink: &mut dyn Sink, things: &mut usize) {
        let bells = self.pipes.borrow_mut().take_bells(self.nth, self.rank);
        for (peer, end) in bells {
            // A pipe that the peer dialled, unless it is one that was closed here before.
            let stands = self.pipes.borrow().is_standing(end);
            if stands && self.links.get(&peer).is_none_or(|link| link.end != end) {
                self.supersede(peer, sink, things);
                self.links.insert(peer, Self::link(end));
            }
            self.activate(peer);
        }
    }

    /// The peer has dialled anew: it has given up the pipe that stands here, if one does (H-10).
    fn supersede(&mut self, peer: u32, sink: &mut dyn Sink, things: &mut usize) {
        // What had arrived whole comes first (L-5).
        let reported = self.links.get(&peer).is_some_and(|link| link.reported && !link.closing);
        let reads_max = if reported { RECEIVE_BYTES as usize / READ_BYTES + 1 } else { 0 };
        let polled = (0..reads_max).try_for_each(|_| self.poll_end(peer, sink, things));
        self.active.retain(|active| *active != peer);
        let Some(link) = self.links.remove(&peer) else { return };
        self.pipes.borrow_mut().abort(link.end);
        self.report_completed(sink, things);
        if reported {
            *things += 1;
            let fault = polled.err().unwrap_or(RailFault::Closed);
            self.counters.corrupt += u64::from(fault == RailFault::Corrupt);
            sink.down(PeerId(peer), fault);
        }
    }

    fn report_completed(&mut self, sink: &mut dyn Sink, things: &mut usize) {
        for (_, id) in std::mem::take(&mut self.done) {
            *things += 1;
            sink.completed(id, PostStatus::Done);
        }
    }

    /// Looks at a link; `Err`: it is over, and for a link that is not closing, why.
    fn poll_end(&mut self, peer: u32, sink: &mut dyn Sink, things: &mut usize) -> Result<(), RailFault> {
        let Some(link) = self.links.get_mut(&peer) else { return Ok(()) };
        let state = self.pipes.borrow().state(link.end);
        match state {
            State::Idle | State::Dialing => return Ok(()),
            State::Over(fault) => return Err(fault),
            State::Open => {}
        }
        if !link.reported && !link.closing {
            link.reported = true;
            sink.up(PeerId(peer));
            *things += 1;
        }
        let pipes = &mut *self.pipes.borrow_mut();
        *things += link.write(peer, pipes, &mut self.counters, &mut self.done);
        if link.closing {
            link.bytes.clear();
            pipes.read(link.end, usize::MAX, &mut link.bytes);
            return match link.queue.is_empty() {
                true => Err(RailFault::Closed),
                false => Ok(()),
            };
        }
        let read = pipes.read(link.end, READ_BYTES, &mut link.bytes);
        self.counters.bytes_received += read as u64;
        *things += usize::from(read > 0);
        *things += link.understand(PeerId(peer), sink, &mut self.pieces, &mut self.counters)?;
        // Only the pipe shows whether there is more, or whether that was the last.
        match pipes.state(link.end) {
            State::Over(fault) => Err(fault),
            _ if read == READ_BYTES => {
                link.active = true;
                self.active.push(peer);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Link {
    /// Moves queued packets to the pipe, as far as there is room.
    fn write(
        &mut self,
        peer: u32,
        pipes: &mut PipeNet,
        counters: &mut RailCounters,
        done: &mut Vec<(u32, PostId)>,
    ) -> usize {
        let mut things = 0;
        while let Some(first) = self.queue.front_mut() {
            first.sent += pipes.write(self.end, &first.bytes[first.sent..]);
            if first.sent < first.bytes.len() {
                break;
            }
            counters.packets_sent += 1;
            counters.bytes_sent += first.bytes.len() as u64;
            things += 1;
            if !self.closing {
                done.push((peer, first.id));
            }
            self.queue.pop_front();
        }
        things
    }

    /// Takes packets out of what was read.
    fn understand(
        &mut self,
        peer: PeerId,
        sink: &mut dyn Sink,
        pieces: &mut Vec<Piece>,
        counters: &mut RailCounters,
    ) -> Result<usize, RailFault> {
        let (mut used, mut things) = (0, 0);
        loop {
            let here = &self.bytes[used..];
            match self.at {
                At::Header => {
                    let Some(len) = wire::header_len(here).map_err(|_| RailFault::Corrupt)? else { break };
                    let Some(header) = here.get(..len) else { break };
                    counters.packets_received += 1;
                    things += 1;
                    let left = wire::payload_len(header) as usize;
                    if let Some(payload) = here.get(len..len + left) {
                        let taken = match sink.whole(peer, header) {
                            ShortPlace::Copy(start) => {
                                scatter(payload, &[Piece { start, len: left }]);
                                true
                            }
                            ShortPlace::Done => true,
                            ShortPlace::Packet => false,
                        };
                        if taken {
                            used += len + left;
                            continue;
                        }
                    }
                    let place = match sink.arrival(peer, header) {
                        Arrival::Done | Arrival::Discard | Arrival::Address { .. } => None,
                        Arrival::Close => return Err(RailFault::Corrupt),
                        Arrival::Place { id, .. } => Some((id, 0)),
                    };
                    used += len;
                    self.at = At::Payload { left, place };
                }
                At::Payload { left: 0, place } => {
                    if let Some((id, _)) = place {
                        sink.placed(id);
                    }
                    self.at = At::Header;
                }
                At::Payload { left, place } => {
                    let here = &here[..left.min(here.len())];
                    if here.is_empty() {
                        break;
                    }
                    pieces.clear();
                    let place = place.filter(|(id, from)| sink.place(*id, *from, pieces));
                    if place.is_some() {
                        // A place that is shorter than the payload takes what it can.
                        scatter(here, pieces);
                    }
                    used += here.len();
                    let place = place.map(|(id, from)| (id, from + here.len() as u64));
                    self.at = At::Payload { left: left - here.len(), place };
                }
            }
        }
        self.bytes.drain(..used);
        Ok(things)
    }
}

impl Rail for StreamRail {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> RailFacts {
        RailFacts {
            kind: RailKind::Tcp,
            caps: Caps::default(),
            eager_bytes_max: 16 * 1024,
            segment_bytes_max: 128 * 1024,
            posts_max: 16,
            bytes_per_second: self.bytes_per_second,
            ..RailFacts::UNKNOWN
        }
    }

    fn address(&self) -> String {
        format!("pipe{}/{}", self.nth, self.rank)
    }

    fn add_peer(&mut self, peer: PeerId, address: &str) -> Result<bool, AddressError> {
        // Nothing is kept: the pipes have all ranks.
        match address.split_once('/').and_then(|(_, rank)| rank.parse().ok()) == Some(peer.0) {
            true => Ok(peer.0 != self.rank),
            false => Err(AddressError { address: address.to_owned(), why: "it is no pipe of this rank" }),
        }
    }

    fn connect(&mut self, _now: Time, peer: PeerId) {
        match self.links.get(&peer.0) {
            Some(link) if !link.closing => return,
            // What the pipe has of an earlier one still goes out.
            Some(link) => {
                self.pipes.borrow_mut().close(link.end);
                self.links.remove(&peer.0);
                self.active.retain(|active| *active != peer.0);
            }
            None => {}
        }
        match self.pipes.borrow_mut().dial(self.nth, self.rank, peer.0) {
            Some(end) => drop(self.links.insert(peer.0, Self::link(end))),
            None => self.refused.push((peer.0, RailFault::Refused)),
        }
        self.activate(peer.0);
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.refused.retain(|(refused, _)| *refused != peer.0);
        if let Some(link) = self.links.get_mut(&peer.0) {
            link.closing = true;
            link.write(peer.0, &mut self.pipes.borrow_mut(), &mut self.counters, &mut self.done);
            if link.queue.is_empty() {
                self.pipes.borrow_mut().close(link.end);
                self.links.remove(&peer.0);
            }
        }
        self.done.retain(|(of, _)| *of != peer.0);
    }

    fn abort(&mut self, peer: PeerId) {
        self.refused.retain(|(refused, _)| *refused != peer.0);
        self.done.retain(|(of, _)| *of != peer.0);
        self.drop_link(peer.0);
    }

    unsafe fn post_small(&mut self, outgoing: Outgoing<'_>) -> bool {
        let (peer, id) = (outgoing.peer.0, outgoing.id);
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.post(outgoing) }
        let Some(link) = self.links.get_mut(&peer) else { return false };
        link.small = link.small.wrapping_add(1);
        // As the real rail, where the pipe has all of it.
        let is_over = !link.small.is_multiple_of(SMALL_REPORTED)
            && link.quiet_at != self.polls
            && self.done.last() == Some(&(peer, id));
        if is_over {
            self.done.pop();
            link.quiet_at = self.polls;
        }
        is_over
    }

    unsafe fn post(&mut self, outgoing: Outgoing<'_>) {
        let Some(link) = self.links.get_mut(&outgoing.peer.0).filter(|link| link.reported && !link.closing) else {
            // A post to a subchannel that is down is dropped, as the core expects.
            return;
        };
        debug_assert!(outgoing.kind == PostKind::Send, "streams take messages only");
        let mut bytes = outgoing.header.to_vec();
        gather(outgoing.payload, &mut bytes);
        link.queue.push_back(Queued { id: outgoing.id, bytes, sent: 0 });
        if link.queue.len() == 1 {
            link.write(outgoing.peer.0, &mut self.pipes.borrow_mut(), &mut self.counters, &mut self.done);
        }
    }

    fn poll(&mut self, _now: Time, sink: &mut dyn Sink) -> usize {
        self.polls += 1;
        let mut things = 0;
        self.answer_bells(sink, &mut things);
        for (peer, fault) in std::mem::take(&mut self.refused) {
            things += 1;
            sink.down(PeerId(peer), fault);
        }
        for peer in std::mem::take(&mut self.active) {
            if let Some(link) = self.links.get_mut(&peer) {
                link.active = false;
            }
            let Err(fault) = self.poll_end(peer, sink, &mut things) else { continue };
            if let Some(link) = self.links.remove(&peer) {
                self.pipes.borrow_mut().close(link.end);
                if !link.closing {
                    things += 1;
                    self.done.retain(|(of, _)| *of != peer);
                    self.counters.corrupt += u64::from(fault == RailFault::Corrupt);
                    sink.down(PeerId(peer), fault);
                }
            }
        }
        self.report_completed(sink, &mut things);
        things
    }

    fn next_timeout(&self) -> Option<Time> {
        None
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
