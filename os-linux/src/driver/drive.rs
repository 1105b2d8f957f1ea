//! One round of driving: passes the rails' events to the core and the core's actions to rails and memory.
//!
//! Spans are resolved before anything else changes the endpoint: answers to the actions of a batch are
//! collected and fed after it. Nothing is allocated once the reused lists are as long as a request can be.
#![allow(unsafe_code)]

use rerail_core::endpoint::{
    Action, Arrival, AtomicAction, Post, PostKind, PostStatus, RailEvent, RailFault, Registration, ShortArrival, Span,
};
use rerail_core::ids::{OpId, PeerId, PlaceId, PostId, RailId};
use rerail_core::mem::{RegionId, Seg};
use rerail_core::time::{Nanos, Time};
use rerail_core::wire::handshake::NAME_BYTES;
use rerail_core::wire::{Address, AddressText, RemoteKey, Short};
use rustix::io::Errno;

use super::at_once;
use super::engine::Engine;
use super::named::Named;
use super::slots::{Rails, Slot};
use super::turns::Turn;
use crate::auth::Fingerprint;
use crate::memory::{Core, Memory};
use crate::rail::{MemoryKey, Outgoing, Piece, Rail, ShortPlace, Sink};

/// Actions taken from the core at once.
const BATCH: usize = 16;

/// Lists that are reused from batch to batch.
#[derive(Default)]
pub(super) struct Scratch {
    actions: heapless::Vec<Action, BATCH>,
    answers: heapless::Vec<Answer, BATCH>,
    source: Vec<Piece>,
    pub(super) target: Vec<Piece>,
    pub(super) reports: Reports,
}

/// What rails report that is not for the core, and names.
#[derive(Default)]
pub(super) struct Reports {
    /// Something of it is left to do.
    pub(super) is_pending: bool,
    /// Rails whose address has changed, and those whose registrations are gone: bit per rail.
    moved: u64,
    reset: u64,
    /// Peer addresses received and not yet passed on.
    peer_addresses: Vec<PeerAddress>,
    /// The peers' names, where they have names.
    pub(super) named: Option<Box<Named>>,
}

/// Where a peer is, for one of our rails.
#[derive(Debug)]
struct PeerAddress {
    peer: PeerId,
    rail: RailId,
    at: AddressText,
}

/// An answer to the core, passed after a batch; at most one per action.
#[derive(Debug)]
enum Answer {
    Atomic { operation: OpId, old: u64 },
    Registered { operation: OpId, rail: RailId, key: Result<RemoteKey, RailFault> },
    Failed(PostId),
}

impl Engine {
    /// One round of driving: takes the rails' events, runs timers that are due, carries out the core's
    /// actions; returns the number of things done. Time must not go back.
    pub(super) fn round(&mut self, now: Time) -> usize {
        self.others_moved = false;
        let done = self.poll_rails::<false>(now, u64::MAX);
        done + self.after_rails(now)
    }

    /// As [`round`](Self::round), of some of the rails; returns what came by shared memory, what by others,
    /// and what followed.
    #[cold]
    pub(super) fn round_of(&mut self, now: Time, turn: Turn) -> [usize; 3] {
        let (shared, others) = (self.quick_rails, !self.quick_rails);
        self.others_moved = false;
        let [mut of_shared, mut of_others] = [0; 2];
        if turn == Turn::OthersThenShared {
            of_others = self.poll_some(now, others);
        }
        if turn != Turn::Others {
            of_shared = self.poll_some(now, shared);
        }
        if matches!(turn, Turn::Others | Turn::SharedThenOthers) {
            of_others = self.poll_some(now, others);
        }
        [of_shared, of_others, self.after_rails(now)]
    }

    /// Takes the events of some rails, bit per rail.
    #[inline(never)]
    fn poll_some(&mut self, now: Time, wanted: u64) -> usize {
        self.poll_rails::<true>(now, wanted)
    }

    /// Takes the events of all rails, or where `SOME`, of those wanted. Each has its own code: a round of all
    /// is most of what idle rails cost.
    #[inline(always)]
    fn poll_rails<const SOME: bool>(&mut self, now: Time, wanted: u64) -> usize {
        let Engine { rails, core, memory, scratch, quick_rails, others_moved, last, .. } = self;
        let mut done = 0;
        *last = now;
        let reports = &mut scratch.reports;
        let mut sink = CoreSink { core, memory, rail: RailId(0), now, reports };
        rails.poll_each(|slot, rail| {
            if SOME && wanted >> slot.id.0 & 1 == 0 {
                return 1;
            }
            sink.rail = slot.id;
            let count = rail.poll(now, &mut sink);
            if count > 0 {
                done += count;
                *others_moved |= *quick_rails >> slot.id.0 & 1 == 0;
            }
            count
        });
        done
    }

    /// Whether no rail to a peer holds a post, once those are reported that are over.
    #[inline(always)]
    pub(super) fn is_free(&mut self, now: Time, peer: PeerId) -> bool {
        self.core.is_unused(peer) || self.becomes_free(now, peer)
    }

    #[inline(never)]
    fn becomes_free(&mut self, now: Time, peer: PeerId) -> bool {
        let Engine { rails, core, memory, scratch, .. } = self;
        let (id, reports) = (rails.shm_id, &mut scratch.reports);
        let Some(rail) = &mut rails.shm else { return false };
        let mut sink = CoreSink { core, memory, rail: id, now, reports };
        rail.report_posts(&mut sink) > 0 && self.core.is_unused(peer)
    }

    /// What follows from the rails' events, timers that are due, and the core's actions.
    #[inline(always)]
    fn after_rails(&mut self, now: Time) -> usize {
        let mut done = 0;
        if self.scratch.reports.is_pending {
            self.follow_reports();
        }
        let Engine { core, .. } = self;
        if core.is_timeout_due(now) {
            core.handle_timeout(now);
            done += 1;
        }
        done + self.carry_out(now)
    }

    /// Follows reports that are not for the core.
    #[cold]
    fn follow_reports(&mut self) {
        let Engine { rails, core, scratch, .. } = self;
        scratch.reports.is_pending = false;
        let [moved, reset] = [&mut scratch.reports.moved, &mut scratch.reports.reset].map(std::mem::take);
        follow(core, rails, moved, reset);
        // Before anything is dialled (F-12).
        for PeerAddress { peer, rail, at } in scratch.reports.peer_addresses.drain(..) {
            set_peer_address(rails, peer, rail, &at);
        }
        self.tend_names();
    }

    /// Takes messages from the other rings, and does all other work that a ring which is never empty may
    /// delay: to be called after a few calls that found messages.
    #[inline]
    pub(super) fn rest(&mut self) -> usize {
        match &self.rails.shm {
            Some(rail) if rail.has_more() => self.take_rest(),
            _ => 0,
        }
    }

    /// Takes further messages and all other events, and then carries out the core's actions.
    #[inline(never)]
    pub(super) fn take_rest(&mut self) -> usize {
        let Engine { rails, core, memory, scratch, last, read_clock, .. } = self;
        let id = rails.shm_id;
        let Some(rail) = &mut rails.shm else { return 0 };
        let mut done = rail.take_burst(|peer, short| place_short(core, memory, peer, id, short));
        if rail.has_slow_work()
            && let Some((_, rail)) = rails.get_mut(id)
        {
            let now = read_clock.map_or(*last, |read| read());
            *last = now;
            let reports = &mut scratch.reports;
            let mut sink = CoreSink { core, memory, rail: id, now, reports };
            done += rail.poll(now, &mut sink);
        }
        if self.core.is_active() || self.scratch.reports.is_pending { done + self.carry_on() } else { done }
    }

    /// Carries out the actions that follow from news; there are seldom any.
    fn carry_on(&mut self) -> usize {
        if self.scratch.reports.is_pending { self.round(self.last) } else { self.carry_out(self.last) }
    }

    /// Carries out the core's actions until none is left; returns their number. A [`round`](Self::round) does
    /// it too; alone it sends submitted requests without looking at the rails.
    #[inline]
    pub(super) fn carry_out(&mut self, now: Time) -> usize {
        // Most rounds find nothing.
        let (core, actions) = (&mut self.core, &mut self.scratch.actions);
        let first = if core.may_have_work(now) { core.poll_actions(now, actions) } else { 0 };
        if first == 0 { 0 } else { self.carry_out_batches(now, first) }
    }

    /// Carries out a batch that was taken, and all after it.
    fn carry_out_batches(&mut self, now: Time, first: usize) -> usize {
        let Engine { rails, core, memory, scratch, .. } = self;
        let (mut count, mut done) = (first, 0);
        while count > 0 {
            done += count;
            let Scratch { actions, answers, source, target, .. } = scratch;
            let mut posted = 0;
            for action in &*actions {
                let answer = match action {
                    Action::Post(post) if hand_over(rails, core, memory, post, source) => {
                        posted |= 1 << post.rail.0;
                        continue;
                    }
                    Action::Post(post) => Answer::Failed(post.id),
                    Action::Copy { from, to } => {
                        copy(core, memory, (*from, source), (*to, target));
                        continue;
                    }
                    Action::Pack { head, from, to } => {
                        pack(core, memory, head, (*from, source), (*to, target));
                        continue;
                    }
                    Action::Atomic(atomic) => perform(memory, atomic),
                    Action::Register { operation, rail, memory: span, write } => {
                        let key = register(rails, core, memory, (*rail, *span, *write), source);
                        Answer::Registered { operation: *operation, rail: *rail, key }
                    }
                    Action::Deregister { .. }
                    | Action::Connect { .. }
                    | Action::Disconnect { .. }
                    | Action::Abort { .. } => {
                        apply_rail_action(rails, now, action);
                        continue;
                    }
                };
                // One answer per action, and the lists are equally long.
                let pushed = answers.push(answer);
                debug_assert!(pushed.is_ok());
            }
            rails.push(posted);
            for answer in answers.iter() {
                match answer {
                    Answer::Atomic { operation, old } => core.handle_atomic(*operation, *old),
                    Answer::Registered { operation, rail, key } => core.handle_registered(*operation, *rail, *key),
                    Answer::Failed(id) => core.handle_completion(now, *id, PostStatus::Failed),
                }
            }
            answers.clear();
            count = if core.has_actions() { core.poll_actions(now, actions) } else { 0 };
        }
        done
    }
}

/// Rare rail actions that have no answer.
#[cold]
fn apply_rail_action(rails: &mut Rails, now: Time, action: &Action) {
    let (Action::Connect { rail, .. }
    | Action::Disconnect { rail, .. }
    | Action::Abort { rail, .. }
    | Action::Deregister { rail, .. }) = action
    else {
        return;
    };
    let Some((slot, rail)) = rails.get_mut(*rail) else { return };
    match action {
        Action::Connect { peer, .. } => rail.connect(now, *peer),
        Action::Disconnect { peer, .. } => rail.disconnect(*peer),
        Action::Abort { peer, .. } => rail.abort(*peer),
        Action::Deregister { key, .. } => {
            rail.deregister(MemoryKey { key: key.key, address: key.address });
            slot.registrations -= 1;
        }
        _ => {}
    }
}

/// Announces a rail's new address to the peers (F-12).
fn announce(core: &mut Core, slot: &mut Slot, rail: &dyn Rail) {
    let address = rail.address();
    let result = core.set_address(slot.id, address.as_bytes());
    tracing::debug!(rail = rail.name(), %address, ?result, "moved");
    debug_assert!(result.is_ok(), "a rail's address is one word: {address:?}");
    slot.address = address.into();
}

/// Passes a peer's new address to a rail (F-12). An unusable address changes nothing: the peer supplied it.
fn set_peer_address(rails: &mut Rails, peer: PeerId, rail: RailId, at: &AddressText) {
    let Some((_, rail)) = rails.get_mut(rail) else { return };
    let used = rail.add_peer(peer, at.as_str());
    tracing::debug!(rail = rail.name(), peer = peer.0, address = at.as_str(), ?used, "a peer has moved");
}

/// Hands a post to its rail; `false`: that is impossible.
fn hand_over(rails: &mut Rails, core: &Core, memory: &Memory, post: &Post, pieces: &mut Vec<Piece>) -> bool {
    let whole = resolve(core, memory, post.payload, pieces);
    let extent = match (pieces.as_slice(), post.kind) {
        (_, PostKind::Send) => 0,
        ([piece], _) if post.extent_bytes == post.payload.len() => piece.len,
        // The next segment lies in the same piece of the caller's memory.
        ([_], _) => core.segments(post.extent()).next().map_or(0, |seg| seg.len as usize),
        _ => 0,
    };
    match rails.get_mut(post.rail) {
        Some((_, rail)) if whole => {
            let (id, peer, kind, header) = (post.id, post.peer, post.kind, &post.header);
            let outgoing = Outgoing { id, peer, kind, header, payload: pieces, extent };
            // SAFETY: the pieces were resolved within their regions, which stay mapped as long as the core
            // names them: until the post's completion, the subchannel's end, or the answer to `Disconnect` or
            // `Abort`. No references to their bytes exist while the transport is driven.
            unsafe { rail.post(outgoing) };
            true
        }
        _ => false,
    }
}

/// The address ranges of a span, and nothing else in the list; `false`: a part of it lies in no region.
pub(super) fn resolve(core: &Core, memory: &Memory, span: Span, pieces: &mut Vec<Piece>) -> bool {
    pieces.clear();
    if let Some(seg) = core.sole_segment(span) {
        debug_assert!(core.segments(span).eq([seg]), "two answers for one span");
        return memory.resolve_into(&seg, pieces);
    }
    let mut left = span.len();
    let mut segments = core.segments(span);
    while left > 0
        && let Some(seg) = segments.next()
    {
        if !memory.resolve_into(&seg, pieces) {
            return false;
        }
        left = left.saturating_sub(seg.len);
    }
    true
}

fn copy(core: &Core, memory: &Memory, from: (Span, &mut Vec<Piece>), to: (Span, &mut Vec<Piece>)) {
    let ((from, source), (to, target)) = (from, to);
    // The list is for payload in several pieces.
    let whole = |span| memory.resolve(&core.sole_segment(span)?).ok();
    let copied = match (whole(from), whole(to)) {
        (Some(source), Some(target)) => memory.copy(&[source], &[target]),
        _ => {
            resolve(core, memory, from, source);
            resolve(core, memory, to, target);
            memory.copy(source, target)
        }
    };
    debug_assert_eq!(copied as u64, from.len(), "the core requested a copy between unequal lengths");
}

/// Writes a message's header, and the message behind it.
fn pack(core: &Core, memory: &Memory, head: &[u8], from: (Span, &mut Vec<Piece>), to: (Span, &mut Vec<Piece>)) {
    let ((from, source), (to, target)) = (from, to);
    resolve(core, memory, from, source);
    resolve(core, memory, to, target);
    let mut copied = memory.fill(head, target);
    skip(target, head.len() as u64);
    copied += memory.copy(source, target);
    debug_assert_eq!(copied as u64, to.len(), "the core requested a copy between unequal lengths");
}

fn perform(memory: &Memory, atomic: &AtomicAction) -> Answer {
    let AtomicAction { operation, at, kind, data_type, operand, compare } = *atomic;
    // `expose` and the core's own checks exclude a failure here; zero is the least surprising answer if one
    // occurs.
    let old = memory.atomic(at, kind, data_type, operand, compare);
    debug_assert!(old.is_some(), "the core requested an impossible atomic: {atomic:?}");
    Answer::Atomic { operation, old: old.unwrap_or(0) }
}

/// Registers the memory of a request with its rail.
fn register(
    rails: &mut Rails,
    core: &Core,
    memory: &Memory,
    (rail, span, write): (RailId, Span, bool),
    pieces: &mut Vec<Piece>,
) -> Result<RemoteKey, RailFault> {
    let whole = resolve(core, memory, span, pieces);
    match (rails.get_mut(rail), pieces.as_slice()) {
        // A key names one range.
        (Some((slot, at)), [piece]) if whole => {
            // SAFETY: the piece lies in one region, which is freed only when the core names it nowhere any
            // more, that is after `Deregister`; `Engine::free` then has every rail forget it.
            let MemoryKey { key, address } = unsafe { at.register(*piece, write) }?;
            slot.registrations += 1;
            Ok(RemoteKey { rail: rail.0, connection: 0, key, address })
        }
        _ => Err(RailFault::Device { code: Errno::INVAL.raw_os_error() }),
    }
}

/// Follows what has happened to rails themselves: bit per rail.
#[cold]
fn follow(core: &mut Core, rails: &mut Rails, moved: u64, reset: u64) {
    for (slot, rail) in rails.iter_mut() {
        if reset >> slot.id.0 & 1 == 1 {
            slot.registrations = 0;
        }
        if moved >> slot.id.0 & 1 == 1 {
            announce(core, slot, rail);
        }
    }
}

/// Takes a rail's reports to the core.
struct CoreSink<'a> {
    core: &'a mut Core,
    memory: &'a Memory,
    rail: RailId,
    now: Time,
    reports: &'a mut Reports,
}

// SAFETY: the pieces are those of an open placement: memory of a receive, a window or the pool, resolved
// within its region. It stays mapped while the core names it, and no references to its bytes exist while the
// transport is driven.
unsafe impl Sink for CoreSink<'_> {
    fn arrival(&mut self, peer: PeerId, header: &[u8]) -> Arrival {
        let arrival = self.core.handle_arrival(self.now, peer, self.rail, header);
        if let Arrival::Address { rail } = arrival
            && let Some(Address { text, .. }) = Address::in_header(header)
        {
            self.reports.peer_addresses.push(PeerAddress { peer, rail, at: text });
            self.reports.is_pending = true;
        }
        arrival
    }

    fn whole(&mut self, peer: PeerId, header: &[u8]) -> ShortPlace {
        at_once::place_whole(self.core, self.memory, self.now, (peer, self.rail), header)
    }

    fn place(&mut self, id: PlaceId, from: u64, pieces: &mut Vec<Piece>) -> bool {
        let Some(span) = self.core.place_memory(id) else {
            pieces.clear();
            return false;
        };
        let whole = resolve(self.core, self.memory, span, pieces);
        if from > 0 {
            skip(pieces, from);
        }
        whole
    }

    fn placed(&mut self, id: PlaceId) {
        let memory = self.memory;
        self.core.handle_placed(self.now, id, &|at, bytes| {
            let read = memory.peek(at, bytes);
            debug_assert!(read, "the core requested bytes outside the pool: {at:?}");
        });
    }

    fn short(&mut self, peer: PeerId, short: &Short) -> ShortPlace {
        place_short(self.core, self.memory, peer, self.rail, short)
    }

    fn short_packet(&mut self, peer: PeerId, short: &Short) -> Arrival {
        self.core.handle_short(self.now, peer, self.rail, short)
    }

    fn completed(&mut self, id: PostId, status: PostStatus) {
        self.core.handle_completion(self.now, id, status);
    }

    fn up(&mut self, peer: PeerId) {
        self.core.handle_rail_event(self.now, RailEvent::Up { peer, rail: self.rail });
    }

    fn no_remote_access(&mut self, peer: PeerId) {
        self.core.handle_rail_event(self.now, RailEvent::NoRemoteAccess { peer, rail: self.rail });
    }

    fn down(&mut self, peer: PeerId, fault: RailFault) {
        self.core.handle_rail_event(self.now, RailEvent::Down { peer, rail: self.rail, fault });
    }

    fn queued(&mut self, peer: PeerId) {
        self.core.handle_rail_event(self.now, RailEvent::Queued { peer, rail: self.rail });
    }

    fn registered(&mut self, what: Registration, bytes: u64, took: Nanos) {
        self.core.handle_registration_cost(self.rail, what, bytes, took);
    }

    fn reset(&mut self) {
        self.reports.reset |= 1 << self.rail.0;
        self.reports.is_pending = true;
        self.core.handle_rail_event(self.now, RailEvent::Reset { rail: self.rail });
    }

    fn moved(&mut self) {
        self.reports.moved |= 1 << self.rail.0;
        self.reports.is_pending = true;
    }

    fn unknown_caller(&mut self, name: &[u8; NAME_BYTES], key: Fingerprint) -> bool {
        self.reports.is_pending = true;
        self.reports.named.as_mut().is_some_and(|named| named.unknown_caller(name, key))
    }

    fn back(&mut self) {
        self.core.handle_rail_event(self.now, RailEvent::Back { rail: self.rail });
    }
}

/// Where a short message goes.
#[inline(always)]
fn place_short(core: &mut Core, memory: &Memory, peer: PeerId, rail: RailId, short: &Short) -> ShortPlace {
    place(memory, short, core.arrive_short(peer, rail, short))
}

/// The place that the core names for a short message.
#[inline(always)]
pub(super) fn place(memory: &Memory, short: &Short, arrival: ShortArrival) -> ShortPlace {
    match arrival {
        ShortArrival::At(at) => {
            let seg = Seg { at, len: short.len.into() };
            let start = match at.region {
                // An unexpected message is stored there.
                RegionId::POOL => memory.start_in_pool(&seg),
                _ => memory.start_of_named(&seg),
            };
            start.map_or(ShortPlace::Done, ShortPlace::Copy)
        }
        ShortArrival::Done => ShortPlace::Done,
        ShortArrival::Slow => ShortPlace::Packet,
    }
}

/// Takes the first `bytes` bytes off the pieces.
fn skip(pieces: &mut Vec<Piece>, mut bytes: u64) {
    let mut gone = 0;
    for piece in pieces.iter_mut() {
        let len = bytes.min(piece.len as u64);
        *piece = Piece { start: piece.start.wrapping_add(len as usize), len: piece.len - len as usize };
        bytes -= len;
        if piece.len > 0 {
            break;
        }
        gone += 1;
    }
    pieces.drain(..gone);
}
