//! One connected peer: a ring each way, a queue for posts that found the ring full, and the socket.
//!
//! Invariants: the queue is in post order and posts pass it only where it is empty, so packets arrive in
//! order (L-2). `posts_max` bounds the queue, because the core counts (L-4). A fault ends the link; the rail
//! reports it once (L-5).
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rerail_core::endpoint::{Arrival, LineId, RailFault};
use rerail_core::ids::{PeerId, PostId};
use rerail_core::shm::{Inline, Mapped, PushError};
use rerail_core::wire::{HEADER_BYTES_MAX, Short};

use super::connect::Rings;
use super::copy::Reads;
use super::joint::Assist;
use super::offers::{Answer, ListRequest};
use super::options::ShmOptions;
use super::reach::Seal;
use super::ring_reads::RingReader;
use super::segment::{Inbound, Outbound, copy_short, copy_to};
use super::socket::{self, BELL, Received};
use crate::rail::{Outgoing, Piece, RailCounters, ShortPlace, Sink};

/// The usual upper bound of a post's pieces: one buffer, or a few blocks.
const PIECES: usize = 8;

/// Doorbells taken from a socket in one go. More of them stay for the next look.
const BELLS_MAX: usize = 16;

#[derive(Debug)]
struct Queued {
    id: PostId,
    header: heapless::Vec<u8, HEADER_BYTES_MAX>,
    payload: Payload,
}

/// Bytes of a post that may wait, with the list of its pieces.
pub(super) const POST_BYTES: u64 = (size_of::<Queued>() + size_of::<Vec<Piece>>() + PIECES * size_of::<Piece>()) as u64;

#[derive(Debug)]
enum Payload {
    /// The caller's memory, valid until completion.
    Pieces(Vec<Piece>),
    /// A copy, after which the caller's memory is free.
    Owned(Vec<u8>),
}

/// A connected peer.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Link {
    // What each message needs of it comes first, in one cache line.
    pub peer: PeerId,
    /// The peer's line, if known.
    pub line: LineId,
    /// Counters of the express path; here, as the rail's own counters are elsewhere in memory.
    pub counted: Counted,
    /// Posts wait, or there is a fault: no post may pass.
    is_blocked: bool,
    /// A sleeper makes the barrier of the system.
    pub barrier: bool,
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
    /// Its name in the epoll set.
    pub token: u64,
    pub socket: OwnedFd,
    /// This process's reads from the peer's memory, and the seal that lets the peer read ours.
    pub memory: Option<(Seal, Reads)>,
    /// The piece of our offers that the peer has requested.
    pub(super) list_requested: Option<u32>,
    /// What this process copies for the peer.
    pub(super) assist: Option<Assist>,
    reader: RingReader,
    queue: VecDeque<Queued>,
    /// Lists for queued posts.
    spare: Vec<Vec<Piece>>,
    /// The other side is gone; so many messages may still lie in the ring, and no honest peer left more.
    pub(super) gone: Option<u32>,
    /// The fault that ends the link at the next poll.
    pub(super) fault: Option<RailFault>,
}

/// The counters of a link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    sent: u64,
    received: u64,
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    pub(super) system_calls: u64,
}

impl Counted {
    /// Adds it to the rail's.
    pub fn add_to(&self, counters: &mut RailCounters) {
        counters.packets_sent += self.sent;
        counters.packets_received += self.received;
        counters.bytes_sent += self.bytes_sent;
        counters.bytes_received += self.bytes_received;
        counters.system_calls += self.system_calls;
    }
}

impl Link {
    /// With room for `posts_max` posts that wait for the ring: a full ring costs no allocation.
    pub fn new(peer: PeerId, token: u64, socket: OwnedFd, rings: Rings, options: &ShmOptions) -> Self {
        let Rings { inbound, outbound, barrier } = rings;
        let posts_max = usize::from(options.posts_max);
        Link {
            peer,
            token,
            socket,
            inbound,
            outbound,
            barrier,
            memory: None,
            list_requested: None,
            assist: None,
            reader: options.reader(),
            queue: VecDeque::with_capacity(posts_max),
            spare: (0..posts_max).map(|_| Vec::with_capacity(PIECES)).collect(),
            gone: None,
            fault: None,
            is_blocked: false,
            line: LineId::NONE,
            counted: Counted::default(),
        }
    }

    /// Whether there is something to do that no doorbell reports and no message: posts that wait for room,
    /// reads, or an end.
    #[inline]
    pub fn has_slow_work(&self) -> bool {
        self.is_waiting()
            || self.gone.is_some()
            || self.fault.is_some()
            || self.assist.is_some()
            || self.memory.as_ref().is_some_and(|(_, reads)| reads.is_pending())
    }

    /// Takes a post; `true`: it was sent.
    pub fn post(&mut self, outgoing: &Outgoing<'_>, counters: &mut RailCounters) -> bool {
        if self.fault.is_some() {
            return false;
        }
        if self.queue.is_empty() {
            match self.outbound.push(outgoing.header, outgoing.payload) {
                Ok(()) => {
                    let bytes = outgoing.payload.iter().map(|piece| piece.len as u64).sum::<u64>();
                    count_sent(counters, outgoing.header.len() as u64 + bytes);
                    self.ring(counters);
                    return true;
                }
                Err(PushError::Full) => {}
                Err(error) => {
                    self.fail(fault_of(error));
                    return false;
                }
            }
        }
        let Ok(header) = heapless::Vec::from_slice(outgoing.header) else {
            debug_assert!(false, "a header of {} bytes", outgoing.header.len());
            self.fail(RailFault::Corrupt);
            return false;
        };
        let mut pieces = self.spare.pop().unwrap_or_default();
        pieces.extend_from_slice(outgoing.payload);
        self.queue.push_back(Queued { id: outgoing.id, header, payload: Payload::Pieces(pieces) });
        self.is_blocked = true;
        false
    }

    /// Whether a short message of `len` bytes can go now, with or without immediate data: the ring has room,
    /// and nothing waits before it.
    #[inline]
    pub fn has_room(&mut self, len: u64, immediate: bool) -> bool {
        self.outbound.has_short_room(len, immediate) && !self.is_blocked
    }

    /// As [`has_room`](Self::has_room), for a message whose payload fits into its cell; checks only what
    /// needs no call.
    #[inline(always)]
    pub fn has_cell(&self) -> bool {
        self.outbound.has_cell() && !self.is_blocked
    }

    /// Puts a short message into the ring, for which [`has_room`](Self::has_room) has just found room.
    ///
    /// # Safety
    /// It has, for this message, and `payload` can be read for as many bytes.
    #[inline]
    pub unsafe fn post_short(&mut self, short: &Short, payload: *const u8) {
        // SAFETY: the caller's promise is the same.
        let must_ring = unsafe { self.outbound.put_short(short, payload) };
        self.count_short(short.len);
        if must_ring {
            self.wake();
        }
    }

    /// Begins a message for which [`has_cell`](Self::has_cell) has just found a cell: all but its payload.
    #[inline(always)]
    pub fn begin_inline(&mut self, short: &Short) {
        self.count_short(short.len);
        self.outbound.begin_inline(short);
    }

    /// Sends the message of [`begin_inline`](Self::begin_inline); `true`: the peer must be woken.
    ///
    /// # Safety
    /// The payload fits into a cell ([`fits_inline`](rerail_core::shm::fits_inline)), and `payload` can be
    /// read for as many bytes.
    #[inline(always)]
    pub unsafe fn finish_inline(&mut self, len: u16, flags: u8, payload: *const u8) -> bool {
        // SAFETY: the caller's promise is the same.
        unsafe { self.outbound.finish_inline(len, flags, payload) }
    }

    /// Has the line of a message to come fetched: where `several` follow soon, of a later one.
    #[inline(always)]
    pub fn expect_next(&self, several: bool) {
        if several {
            self.outbound.expect_more();
        } else {
            self.outbound.expect_one();
        }
    }

    #[inline(always)]
    fn count_short(&mut self, bytes: u16) {
        self.counted.sent += 1;
        self.counted.bytes_sent += u64::from(bytes);
    }

    /// Wakes the peer.
    #[cold]
    #[inline(never)]
    pub fn wake(&mut self) {
        self.counted.system_calls += 1;
        socket::ring(&self.socket);
    }

    /// The fault that ends it at the next poll, if any.
    pub fn fault(&self) -> Option<RailFault> {
        self.fault
    }

    /// It ends at the next poll.
    pub fn fail(&mut self, fault: RailFault) {
        (self.fault, self.is_blocked) = (Some(fault), true);
    }

    #[cold]
    #[inline(never)]
    fn ring_bell(&self, counters: &mut RailCounters) {
        counters.system_calls += 1;
        socket::ring(&self.socket);
    }

    /// Whether the ring has a message, or another check is due: a few instructions.
    #[inline(always)]
    pub fn has_message(&self) -> bool {
        self.inbound.has_message()
    }

    /// Moves waiting posts into the ring, as far as there is room; returns how many. Calls `done` for each.
    pub fn pump(&mut self, counters: &mut RailCounters, mut done: impl FnMut(PostId)) -> Result<usize, RailFault> {
        let mut moved = 0;
        while let Some(first) = self.queue.front() {
            let mut whole = [Piece { start: std::ptr::null_mut(), len: 0 }];
            let pieces = match &first.payload {
                Payload::Pieces(pieces) => &pieces[..],
                Payload::Owned(bytes) => {
                    whole[0] = Piece { start: bytes.as_ptr().cast_mut(), len: bytes.len() };
                    &whole[..]
                }
            };
            match self.outbound.push(&first.header, pieces) {
                Ok(()) => {
                    let bytes = pieces.iter().map(|piece| piece.len as u64).sum::<u64>();
                    count_sent(counters, first.header.len() as u64 + bytes);
                    done(first.id);
                    if let Some(Queued { payload: Payload::Pieces(mut pieces), .. }) = self.queue.pop_front() {
                        pieces.clear();
                        self.spare.push(pieces);
                    }
                    moved += 1;
                }
                Err(PushError::Full) => break,
                Err(error) => return Err(fault_of(error)),
            }
        }
        self.is_blocked = self.fault.is_some() || !self.queue.is_empty();
        if moved > 0 {
            self.ring(counters);
        }
        Ok(moved)
    }

    /// Whether posts wait for room.
    pub fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Copies the payloads of waiting posts, for their memory is about to go back to the caller; reads are
    /// aborted.
    pub fn own_queue(&mut self) {
        self.outbound.offer(0);
        self.end_memory();
        for queued in &mut self.queue {
            if let Payload::Pieces(pieces) = &queued.payload {
                queued.payload = Payload::Owned(super::segment::gather(pieces));
            }
        }
    }

    /// Takes a short message, if that is the oldest one; returns its bytes.
    fn receive_short<S: Sink + ?Sized>(
        &mut self,
        sink: &mut S,
        pieces: &mut Vec<Piece>,
    ) -> Result<Option<u64>, RailFault> {
        let Some(first) = self.inbound.front_word() else { return Ok(None) };
        let Some((short, payload)) = self.inbound.front_short(first) else { return Ok(None) };
        match sink.short(self.peer, &short) {
            // SAFETY: the payload lies in the ring until the message is released; the sink's memory takes all
            // of it.
            ShortPlace::Copy(to) => unsafe { copy_short(payload, to, short.len.into()) },
            ShortPlace::Done => {}
            ShortPlace::Packet => {
                let arrival = sink.short_packet(self.peer, &short);
                // SAFETY: as above.
                unsafe { place_short(arrival, payload, short.len.into(), sink, pieces) }?;
            }
        }
        self.inbound.release_short();
        Ok(Some(short.len.into()))
    }

    /// The first 64 bits of the message that is due, if there is one: for [`take_quick`](Self::take_quick).
    #[inline(always)]
    pub fn front_word(&self) -> Option<u64> {
        self.inbound.front_word()
    }

    /// The message behind the word that [`front_word`](Self::front_word) has just returned, if it is a short
    /// one whose payload lies in its cell.
    #[inline(always)]
    pub fn front_inline(&self, word: u64) -> Option<Inline<'_, Mapped>> {
        self.inbound.front_inline(word)
    }

    /// Takes the message that [`front_inline`](Self::front_inline) has given, with `bytes` of payload; these
    /// may be copied yet until anything else is taken. `false`: nothing has happened, and
    /// [`release_short`](Self::release_short) has more to do, once they are copied.
    #[inline(always)]
    pub fn pass_short(&mut self, bytes: u16) -> bool {
        let is_passed = self.inbound.pass_short();
        if is_passed {
            self.count_received(bytes);
        }
        is_passed
    }

    /// Takes the message that is due, if it is a short one and `take` takes it, which gets the payload.
    /// `false`: there is none, or it is for others.
    #[inline(always)]
    pub fn take_front(&mut self, take: impl FnOnce(PeerId, Short, *const u8) -> bool) -> bool {
        let Some(front_word) = self.inbound.front_word() else { return false };
        let Some((short, payload)) = self.inbound.front_short(front_word) else { return false };
        let bytes = short.len;
        if !take(self.peer, short, payload) {
            return false;
        }
        self.release_short(bytes);
        true
    }

    #[inline(always)]
    fn count_received(&mut self, bytes: u16) {
        self.counted.received += 1;
        self.counted.bytes_received += u64::from(bytes);
    }

    /// Gives the cell of a short message with so many bytes back to the peer.
    #[inline(always)]
    pub fn release_short(&mut self, bytes: u16) {
        self.count_received(bytes);
        if self.inbound.release_short() {
            self.answer_short();
        }
    }

    #[cold]
    #[inline(never)]
    fn answer_short(&mut self) {
        self.counted.system_calls += self.answer();
    }

    /// Takes the message that is due, if it is a short one for which `place` has a place at once. `false`: it
    /// is not, or something has gone wrong: for [`receive`](Self::receive).
    #[inline(always)]
    pub fn take_quick(&mut self, front_word: u64, place: &mut impl FnMut(PeerId, &Short) -> ShortPlace) -> bool {
        let Some((short, payload)) = self.inbound.front_short(front_word) else { return false };
        match place(self.peer, &short) {
            // SAFETY: the payload lies in the ring until the message is released; the place takes all of it.
            ShortPlace::Copy(to) => unsafe { copy_short(payload, to, short.len.into()) },
            ShortPlace::Done => {}
            ShortPlace::Packet => return false,
        }
        self.release_short(short.len);
        true
    }

    /// Whether nothing has come and nothing waits: then [`receive`](Self::receive) and all else would find
    /// nothing to do.
    #[inline]
    pub fn is_quiet(&mut self, counters: &mut RailCounters) -> bool {
        if self.has_slow_work() || !self.inbound.is_quiet() {
            return false;
        }
        counters.system_calls += self.answer();
        true
    }

    /// Takes up to `burst` messages, as `ShmOptions::ring_reads` has it; returns how many.
    pub fn receive(
        &mut self,
        burst: u32,
        sink: &mut dyn Sink,
        pieces: &mut Vec<Piece>,
        counters: &mut RailCounters,
    ) -> Result<usize, RailFault> {
        let mut taken = 0;
        while taken < burst {
            if self.gone == Some(0) {
                return Err(RailFault::Closed);
            }
            if let Some(bytes) = self.receive_short(sink, pieces)? {
                counters.packets_received += 1;
                counters.bytes_received += bytes;
                self.gone = self.gone.map(|left| left - 1);
                taken += 1;
                continue;
            }
            let Some(front) = self.inbound.front().map_err(|_| RailFault::Corrupt)? else {
                if self.gone.is_some() {
                    return Err(RailFault::Closed);
                }
                break;
            };
            if front.short().is_some() {
                // Taken above, unless it came just now.
                continue;
            }
            if front.is_note() {
                let seal = self.memory.as_ref().map(|(seal, _)| seal).ok_or(RailFault::Corrupt)?;
                self.assist = Some(Assist::new(front.header(), &seal.pass())?);
                front.release();
                self.gone = self.gone.map(|left| left - 1);
                taken += 1;
                continue;
            }
            let payload_bytes = front.payload_bytes();
            counters.packets_received += 1;
            counters.bytes_received += front.header().len() as u64 + u64::from(payload_bytes);
            match sink.arrival(self.peer, front.header()) {
                Arrival::Done | Arrival::Discard | Arrival::Address { .. } => {}
                Arrival::Close => return Err(RailFault::Corrupt),
                Arrival::Place { id, memory } => {
                    // The header promised at least this much.
                    if memory.len() > u64::from(payload_bytes) {
                        return Err(RailFault::Corrupt);
                    }
                    let (mut at, mut wanted) = (0, true);
                    while at < payload_bytes && wanted {
                        pieces.clear();
                        wanted = sink.place(id, at.into(), pieces);
                        let before = at;
                        for piece in pieces.iter().take_while(|_| wanted) {
                            at += copy_to(&front, at, *piece) as u32;
                        }
                        if at == before {
                            // The buffer is shorter than the payload: the rest is skipped.
                            break;
                        }
                    }
                    if wanted {
                        sink.placed(id);
                    }
                }
            }
            let goes_on = self.reader.goes_on(front.header());
            front.release();
            self.gone = self.gone.map(|left| left - 1);
            taken += 1;
            if !goes_on {
                break;
            }
        }
        counters.system_calls += self.answer();
        Ok(taken as usize)
    }

    /// Takes doorbells (L-13) and what concerns memory that may be mapped (L-19), and notices the other
    /// side's end (L-14); `cells` is how many messages may be left then. Returns the number of answers
    /// of L-19 taken.
    pub fn service(&mut self, cells: u32, counters: &mut RailCounters) -> Result<usize, RailFault> {
        let mut answers = 0;
        for _ in 0..BELLS_MAX {
            if self.gone.is_some() {
                break;
            }
            let mut bytes = [0; size_of::<Answer>()];
            let mut maps = self.memory.as_mut().map(|(_, reads)| &mut reads.maps).filter(|maps| maps.is_due());
            counters.system_calls += 1;
            match (socket::receive(&self.socket, &mut bytes, maps.is_some()), &mut maps) {
                (Received::Datagram(1, None), _) if bytes[0] == BELL => {}
                (Received::Datagram(len, None), _) if ListRequest::piece_of(&bytes[..len]).is_some() => {
                    self.list_requested = ListRequest::piece_of(&bytes[..len]);
                }
                (Received::Datagram(len, file), Some(maps)) => {
                    maps.take_bytes(&bytes[..len], file, false)?;
                    answers += 1;
                }
                (Received::NoDescriptor, Some(maps)) => {
                    maps.take_bytes(&bytes, None, true)?;
                    answers += 1;
                }
                (Received::Nothing, _) => break,
                (Received::End, _) => self.gone = Some(cells),
                _ => return Err(RailFault::Corrupt),
            }
        }
        Ok(answers)
    }

    /// The other side is known to be gone: the messages now in the ring are the last.
    pub fn end(&mut self, cells: u32) {
        self.gone.get_or_insert(cells);
    }

    /// Frees up to `burst` messages unseen.
    pub fn discard(&mut self, burst: u32) -> Result<usize, RailFault> {
        for taken in 0..burst {
            match self.inbound.front().map_err(|_| RailFault::Corrupt)? {
                Some(front) => front.release(),
                None => {
                    self.answer();
                    return Ok(taken as usize);
                }
            }
        }
        self.answer();
        Ok(burst as usize)
    }

    /// Bytes of the ring from which this process receives.
    pub fn ring_bytes(&self) -> usize {
        self.inbound.len()
    }

    /// Whether the other side is known to be gone.
    pub fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// Begins to prepare for sleeping: a fence is due, then [`is_idle`](Self::is_idle).
    pub fn raise(&mut self) {
        self.inbound.raise();
        if !self.queue.is_empty() {
            self.outbound.raise();
        }
    }

    /// Whether there is nothing to do until a doorbell comes.
    pub fn is_idle(&mut self, counters: &mut RailCounters) -> bool {
        let idle = self.fault.is_none()
            && self.reads().is_none()
            && self.assist.is_none()
            && self.gone.is_none()
            && self.inbound.is_empty()
            && (self.queue.is_empty() || self.outbound.is_full());
        // A look at an empty ring may have given cells back.
        counters.system_calls += self.answer();
        idle
    }

    /// Ends the effect of `raise`.
    pub fn disarm(&mut self) {
        self.inbound.disarm();
        self.outbound.disarm();
    }

    /// Wakes the other side if it waits for the freed room; returns the number of system calls.
    #[inline]
    fn answer(&mut self) -> u64 {
        let rings = self.inbound.must_ring();
        if rings {
            socket::ring(&self.socket);
        }
        rings.into()
    }

    fn ring(&mut self, counters: &mut RailCounters) {
        if self.outbound.must_ring() {
            self.ring_bell(counters);
        }
    }
}

/// Puts the payload of a short message where a packet's would go.
///
/// # Safety
/// `payload` can be read for `len` bytes.
#[cold]
unsafe fn place_short<S: Sink + ?Sized>(
    arrival: Arrival,
    payload: *const u8,
    len: usize,
    sink: &mut S,
    pieces: &mut Vec<Piece>,
) -> Result<(), RailFault> {
    let (id, memory) = match arrival {
        Arrival::Done | Arrival::Discard | Arrival::Address { .. } => return Ok(()),
        Arrival::Close => return Err(RailFault::Corrupt),
        Arrival::Place { id, memory } => (id, memory),
    };
    if memory.len() > len as u64 {
        return Err(RailFault::Corrupt);
    }
    let mut at = 0;
    while at < len {
        pieces.clear();
        if !sink.place(id, at as u64, pieces) {
            return Ok(());
        }
        let before = at;
        for piece in &*pieces {
            let bytes = piece.len.min(len - at);
            // SAFETY: pieces that a sink names can be written for their length (its contract), and `at +
            // bytes` is at most the payload's length.
            unsafe { std::ptr::copy_nonoverlapping(payload.add(at), piece.start, bytes) };
            at += bytes;
        }
        if at == before {
            // The buffer is shorter than the payload: the rest is skipped.
            break;
        }
    }
    sink.placed(id);
    Ok(())
}

fn count_sent(counters: &mut RailCounters, bytes: u64) {
    counters.packets_sent += 1;
    counters.bytes_sent += bytes;
}

fn fault_of(error: PushError) -> RailFault {
    // The facts of the rail keep packets below a slot's size, so a long one is our bug.
    debug_assert!(!matches!(error, PushError::TooLong { .. }), "{error:?}");
    RailFault::Corrupt
}
