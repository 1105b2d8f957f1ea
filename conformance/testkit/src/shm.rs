//! Bodies of the ring's property tests and of its fuzz target: input bytes in, a panic where a promise is
//! broken.
//!
//! The first byte chooses: honest sides against a queue that is obviously right, or a consumer and a producer
//! with memory that the input writes to between any two steps. Every step consumes input, so a run ends with
//! it; a step that did not return would show as a hang.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rerail_core::shm::{Consumer, Front, LINE_BYTES, Mapped, Producer, PushError, RingConfig, copy_short, ring_bytes};
use rerail_core::wire::{Counts, HEADER_BYTES_MAX, Short};

// The layout of a ring by L-11, independent of the code under test.

/// Where the consumer's heads lie.
pub const HEAD_AT: usize = 0;
/// Where the constants lie.
pub const CONSTANTS_AT: usize = 384;
/// Where the first cell starts.
pub const CELLS_AT: usize = 1024;
/// Bytes of a cell.
pub const CELL_BYTES: usize = 192;
/// The kind of a short message.
pub const SHORT: u8 = 1;
/// The kind of a packet.
pub const PACKET: u8 = 2;
/// The kind of a note (L-21).
pub const NOTE: u8 = 3;

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    match input.byte() {
        Some(mode) if mode % 2 == 0 => drop(honest(&mut input)),
        Some(_) => drop(hostile(&mut input)),
        None => {}
    }
}

struct Input<'d>(&'d [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn half(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes([self.byte()?, self.byte()?]))
    }

    fn word(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes([self.byte()?, self.byte()?, self.byte()?, self.byte()?]))
    }

    fn config(&mut self) -> Option<RingConfig> {
        Some(RingConfig {
            cells: 2 << (self.byte()? % 5),
            slots: 2 + u32::from(self.byte()? % 7),
            slot_bytes: HEADER_BYTES_MAX as u32 + 16 * u32::from(self.byte()?),
        })
    }
}

#[repr(C, align(128))]
#[derive(Clone, Copy)]
struct Line([u8; LINE_BYTES]);

/// Lines that only rings and this module access.
struct Lines {
    base: NonNull<Line>,
    count: usize,
}

// SAFETY: a pointer to memory that it owns, accessed by the rules of rings.
unsafe impl Send for Lines {}
// SAFETY: as above; what two threads touch at once is touched atomically.
unsafe impl Sync for Lines {}

impl Drop for Lines {
    fn drop(&mut self) {
        let lines = std::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.count);
        // SAFETY: it came out of `Box::into_raw` with this length.
        drop(unsafe { Box::from_raw(lines) });
    }
}

/// Zeroed ring memory, with a line behind it that no access may reach.
pub struct Memory {
    lines: Arc<Lines>,
    /// Bytes of the ring.
    pub len: usize,
}

const GUARD: u8 = 0xA5;

/// One end of a ring, which keeps the memory.
pub struct End<R> {
    ring: R,
    _memory: Arc<Lines>,
}

impl<R> Deref for End<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.ring
    }
}

impl<R> DerefMut for End<R> {
    fn deref_mut(&mut self) -> &mut R {
        &mut self.ring
    }
}

impl Memory {
    /// For a ring that is cut like this, which must be allowed.
    pub fn new(config: RingConfig) -> Self {
        let len = ring_bytes(config).expect("it fits the address space");
        let mut lines = vec![Line([0; LINE_BYTES]); len.div_ceil(LINE_BYTES) + 1].into_boxed_slice();
        let count = lines.len();
        lines.as_flattened_bytes()[len..].fill(GUARD);
        let base = NonNull::new(Box::into_raw(lines).cast()).expect("a box is somewhere");
        Memory { lines: Arc::new(Lines { base, count }), len }
    }

    /// Its first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.lines.base.cast()
    }

    /// Where cell `position % cells` starts.
    pub fn cell_at(&self, config: RingConfig, position: u32) -> usize {
        CELLS_AT + (position % config.cells) as usize * CELL_BYTES
    }

    /// Writes a cell's first word with the turn number of message `position`, as a peer that publishes it.
    pub fn publish(&self, config: RingConfig, position: u32, len: u16, kind: u8, flags: u8) {
        let [l, m] = len.to_le_bytes();
        let [a, b, c, d] = position.wrapping_add(1).to_le_bytes();
        let first = u64::from_le_bytes([a, b, c, d, l, m, kind, flags]);
        self.wide(self.cell_at(config, position)).store(first, Ordering::Release);
    }

    /// The word of 64 bits at `at`.
    pub fn wide(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len);
        // SAFETY: as in `word`.
        unsafe { &*self.base().as_ptr().add(at).cast() }
    }

    /// The word of 32 bits at `at`.
    pub fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len);
        // SAFETY: in bounds and aligned (asserted); rings and this harness touch words atomically; slot bytes
        // are touched without atomics, but by the same thread only.
        unsafe { &*self.base().as_ptr().add(at).cast() }
    }

    fn check_guard(&self) {
        for at in self.len..self.lines.count * LINE_BYTES {
            // SAFETY: inside the allocation.
            assert_eq!(unsafe { self.base().as_ptr().add(at).read() }, GUARD, "byte {at} behind the ring was written");
        }
    }

    /// The consumer of the ring that it makes here.
    pub fn consumer(&self, config: RingConfig) -> End<Consumer<Mapped>> {
        // SAFETY: the memory is zero, and the end keeps it.
        let ring = unsafe { Consumer::create(self.base(), self.len, config) }.expect("a ring fits");
        End { ring, _memory: self.lines.clone() }
    }

    /// The producer of the ring that is here.
    pub fn producer(&self, config: RingConfig) -> End<Producer<Mapped>> {
        // SAFETY: a consumer has made the ring, and the end keeps the memory.
        let ring = unsafe { Producer::attach(self.base(), self.len, config) }.expect("a ring is here");
        End { ring, _memory: self.lines.clone() }
    }
}

/// Both ends of a ring in this process's memory, for measuring.
pub struct Both {
    producer: End<Producer<Mapped>>,
    consumer: End<Consumer<Mapped>>,
}

impl Both {
    /// An empty ring.
    pub fn new(config: RingConfig) -> Self {
        let memory = Memory::new(config);
        let consumer = memory.consumer(config);
        Both { producer: memory.producer(config), consumer }
    }

    /// Pushes a packet, and checks whether the consumer needs a doorbell; `false`: it does not fit, now or
    /// ever.
    pub fn push(&mut self, header: &[u8], payload: &[u8]) -> bool {
        // SAFETY: the piece is a slice that lives through the call.
        let pushed = unsafe { self.producer.push(header, [(payload.as_ptr(), payload.len())]) };
        pushed.is_ok() && !self.producer.must_ring()
    }

    /// Pushes a short message, and checks whether the consumer needs a doorbell; `false`: it does not fit,
    /// now or ever.
    #[inline]
    pub fn push_short(&mut self, short: &Short, payload: &[u8]) -> bool {
        assert!(payload.len() >= usize::from(short.len));
        // SAFETY: the payload is a slice that lives through the call, and long enough.
        let pushed = unsafe { self.producer.push_short(short, payload.as_ptr()) };
        pushed == Ok(false)
    }

    /// Whether a message is there.
    #[inline]
    pub fn has_message(&self) -> bool {
        self.consumer.has_message()
    }

    /// Takes a short message out and copies its payload, which must fit; returns a number made of the header.
    #[inline]
    pub fn pop_short(&mut self, into: &mut [u8]) -> Option<u64> {
        let (short, from) = front_short(&mut self.consumer)?;
        assert!(into.len() >= usize::from(short.len));
        // SAFETY: the ring's memory has `short.len` bytes there until the release, and the slice has them
        // too.
        unsafe { copy_short(from, into.as_mut_ptr(), short.len.into()) };
        self.consumer.release_short();
        let Short { counts, tag, immediate, .. } = short;
        Some(counts.bits() ^ tag ^ immediate)
    }

    /// Takes a packet out and copies its payload, as far as it fits; returns the bytes of header and payload.
    pub fn pop(&mut self, into: &mut [u8]) -> Option<(usize, usize)> {
        let front = self.consumer.front().ok()??;
        let bytes = (front.header().len(), front.read(0, into));
        front.release();
        let _ = self.consumer.must_ring();
        Some(bytes)
    }
}

trait FlattenedBytes {
    fn as_flattened_bytes(&mut self) -> &mut [u8];
}

impl FlattenedBytes for [Line] {
    fn as_flattened_bytes(&mut self) -> &mut [u8] {
        // SAFETY: a Line is LINE_BYTES bytes without padding.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), size_of_val(self)) }
    }
}

/// Pushes `payload` in two pieces.
pub fn push(producer: &mut Producer<Mapped>, header: &[u8], payload: &[u8]) -> Result<(), PushError> {
    let (first, second) = payload.split_at(payload.len() / 3);
    // SAFETY: the pieces are slices that live through the call.
    unsafe { producer.push(header, [first, second].map(|piece| (piece.as_ptr(), piece.len()))) }
}

/// Reads a [`Front`]'s payload in pieces of `step` bytes.
pub fn read_all(front: &Front<'_, Mapped>, step: usize) -> Vec<u8> {
    let mut payload = vec![0; front.payload_bytes() as usize];
    let mut at = 0;
    while at < payload.len() {
        let end = payload.len().min(at + step);
        assert_eq!(front.read(at as u32, &mut payload[at..end]), end - at);
        at = end;
    }
    payload
}

/// Pushes a short message; the payload's length goes into the header.
pub fn push_short(producer: &mut Producer<Mapped>, short: &Short, payload: &[u8]) -> Result<bool, PushError> {
    let short = Short { len: payload.len().try_into().expect("a short payload"), ..*short };
    // SAFETY: the payload is a slice that lives through the call.
    unsafe { producer.push_short(&short, payload.as_ptr()) }
}

/// The payload of a short message that `front_short` has found.
fn short_payload(short: &Short, from: *const u8) -> Vec<u8> {
    let mut payload = vec![0; short.len.into()];
    // SAFETY: the ring's memory has as many bytes there, and the vector too.
    unsafe { copy_short(from, payload.as_mut_ptr(), payload.len()) };
    payload
}

/// A message as it should come out: header, or the words of a short one, and payload.
#[derive(Debug, PartialEq)]
enum Pushed {
    Packet(Vec<u8>, Vec<u8>),
    Note(Vec<u8>),
    Short(Short, Vec<u8>),
}

impl Pushed {
    fn any(input: &mut Input<'_>, count: u8, is_short: bool) -> Option<Self> {
        let payload_of = |bytes: u16| (0..bytes % 5000).map(|i| count ^ (i as u8)).collect::<Vec<u8>>();
        if !is_short {
            let (most, more) = (usize::from(input.byte()?), input.byte()?);
            let header = vec![count; most + usize::from(more % 3)];
            return Some(match more {
                0xF0.. => Pushed::Note(header),
                _ => Pushed::Packet(header, payload_of(input.half()?)),
            });
        }
        let flags = input.byte()? & Short::FLAGS;
        // Most are small.
        let bytes = if input.byte()? % 4 == 0 { input.half()? } else { u16::from(input.byte()?) };
        let payload = payload_of(bytes);
        let word = u64::from(count).wrapping_mul(0x0101_0101_0101_0101);
        let short = Short {
            counts: Counts::new(word as u32, !(word as u16), word as u16),
            tag: if flags & Short::TAGGED != 0 { word } else { 0 },
            immediate: if flags & Short::IMMEDIATE != 0 { !word } else { 0 },
            len: payload.len() as u16,
            flags,
        };
        Some(Pushed::Short(short, payload))
    }

    fn fits(&self, config: RingConfig) -> bool {
        match self {
            Pushed::Packet(header, payload) => {
                header.len() <= HEADER_BYTES_MAX
                    && payload.len() <= config.payload_bytes_max(header.len() as u32) as usize
            }
            Pushed::Note(note) => note.len() <= HEADER_BYTES_MAX,
            Pushed::Short(short, payload) => {
                payload.len() <= config.slot_bytes as usize && payload.len() == short.len.into()
            }
        }
    }

    /// The rule again, independent of the ring's code.
    fn needs_annex(&self) -> bool {
        match self {
            Pushed::Packet(header, payload) => header.len().div_ceil(8) * 8 + payload.len() > 192 - 16,
            Pushed::Note(note) => note.len().div_ceil(8) * 8 > 192 - 16,
            Pushed::Short(short, payload) => payload.len() + if short.immediate().is_some() { 8 } else { 0 } > 192 - 24,
        }
    }

    fn push(&self, producer: &mut Producer<Mapped>) -> Result<bool, PushError> {
        match self {
            Pushed::Packet(header, payload) => push(producer, header, payload).map(|()| producer.must_ring()),
            Pushed::Note(note) => producer.push_note(note).map(|()| producer.must_ring()),
            Pushed::Short(short, payload) => push_short(producer, short, payload),
        }
    }
}

/// What is in the ring, and the producer's knowledge of it at worst.
#[derive(Default)]
struct Oracle {
    queue: VecDeque<Pushed>,
    annexed: u32,
}

impl Oracle {
    /// Whether a ring may call itself full for this message: freed cells are published by quarters, or
    /// sixty-four at a time, and slots by quarters, so it may show up to so many too few.
    fn may_refuse(&self, config: RingConfig, needs_annex: bool) -> bool {
        let hidden = (config.cells / 4).clamp(1, 64) - 1;
        let no_cell = self.queue.len() as u32 + hidden >= config.cells;
        no_cell || needs_annex && self.annexed + config.slots.div_ceil(4) > config.slots
    }

    fn took(&mut self) {
        let item = self.queue.pop_front().expect("it was looked at");
        self.annexed -= u32::from(item.needs_annex());
    }
}

/// Both sides honest: the ring is a bounded queue, in any order of pushes, polls and releases.
fn honest(input: &mut Input<'_>) -> Option<()> {
    let config = input.config()?;
    let memory = Memory::new(config);
    let (mut consumer, mut producer) = (memory.consumer(config), memory.producer(config));
    // With all the memory, or with some that is found as it is used, or that sometimes is not found.
    let start = input.byte()? % 4;
    let patchy = start == 3;
    if start >= 2 {
        CALLS.set(if patchy { 0 } else { u32::MAX });
        consumer.populate_by(populate);
        producer.populate_by(populate);
    }
    let mut oracle = Oracle::default();
    let (mut count, mut asleep, mut producer_waits) = (0u8, false, false);
    // The message refused last needed the annex.
    let mut refused = false;
    loop {
        match input.byte()? % 8 {
            step @ 0..=3 => {
                count = count.wrapping_add(1);
                let item = Pushed::any(input, count, step >= 2)?;
                let needs_annex = item.needs_annex();
                let room = if needs_annex { producer.room() } else { producer.short_room() }.unwrap();
                match item.push(&mut producer) {
                    Ok(must_ring) => {
                        assert!(item.fits(config) && (patchy || room > 0));
                        oracle.queue.push_back(item);
                        oracle.annexed += u32::from(needs_annex);
                        assert!(oracle.queue.len() <= config.cells as usize && oracle.annexed <= config.slots);
                        assert_eq!(must_ring, std::mem::take(&mut asleep));
                    }
                    Err(PushError::Full) => {
                        assert!(patchy || room == 0 && oracle.may_refuse(config, needs_annex));
                        refused = needs_annex;
                    }
                    Err(PushError::TooLong { max, .. }) => {
                        assert!(!item.fits(config) && max == config.slot_bytes);
                    }
                    Err(PushError::Corrupt(error)) => panic!("corrupt: {error:?}"),
                }
            }
            4 => {
                let (keep, step) = (input.byte()?, 1 + usize::from(input.byte()?));
                assert!(patchy || consumer.has_message() != oracle.queue.is_empty());
                match (consumer.front().unwrap(), oracle.queue.front()) {
                    (Some(front), Some(item)) => {
                        let payload = read_all(&front, step);
                        assert_eq!(front.read(payload.len() as u32, &mut [0]), 0);
                        let found = match front.short() {
                            Some(short) => Pushed::Short(*short, payload),
                            None if front.is_note() => Pushed::Note(front.header().to_vec()),
                            None => Pushed::Packet(front.header().to_vec(), payload),
                        };
                        assert_eq!(found, *item);
                        if keep % 4 != 0 {
                            front.release();
                            oracle.took();
                            if answer(&mut consumer, &mut producer, producer_waits, patchy) {
                                producer_waits = false;
                            }
                        }
                    }
                    (None, None) => {
                        assert!(patchy || producer.room().unwrap() > 0, "an empty ring has room");
                        if answer(&mut consumer, &mut producer, producer_waits, patchy) {
                            producer_waits = false;
                        }
                    }
                    (None, Some(_)) if patchy => assert!(!consumer.is_empty() || consumer.has_message()),
                    (front, item) => panic!("ring: {}, queue: {}", front.is_some(), item.is_some()),
                }
            }
            5 => {
                let keep = input.byte()?;
                let found = front_short(&mut consumer);
                match (found, oracle.queue.front()) {
                    (Some((short, from)), item) => {
                        assert_eq!(Some(&Pushed::Short(short, short_payload(&short, from))), item);
                        if keep % 4 != 0 {
                            let must_fence = consumer.release_short();
                            oracle.took();
                            let rings = answer(&mut consumer, &mut producer, producer_waits, patchy);
                            assert!(must_fence || !rings, "nothing was given back, and the producer is woken");
                            producer_waits &= !rings;
                        }
                    }
                    (None, item) => assert!(patchy || !matches!(item, Some(Pushed::Short(..)))),
                }
            }
            6 => {
                let sleep = consumer.arm();
                assert!(sleep == oracle.queue.is_empty() || patchy && !sleep, "it sleeps with a message before it");
                asleep = sleep;
                if answer(&mut consumer, &mut producer, producer_waits, patchy) {
                    producer_waits = false;
                }
            }
            _ => {
                producer_waits = producer.arm();
                assert!(!producer_waits || oracle.may_refuse(config, refused));
            }
        }
        memory.check_guard();
    }
}

/// Rings where it must; a producer that sleeps is woken when there may be room for what it waits with, and
/// only then.
fn answer(
    consumer: &mut Consumer<Mapped>,
    producer: &mut Producer<Mapped>,
    producer_waits: bool,
    patchy: bool,
) -> bool {
    let rings = consumer.must_ring();
    assert!(producer_waits || !rings, "it was awake");
    assert!(rings || !producer_waits || patchy || producer.is_full(), "it has room and sleeps");
    rings
}

std::thread_local! {
    /// Number of requests for memory; from [`u32::MAX`] on it is always there.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Every second or third time there is none.
fn populate(_start: NonNull<u8>, _len: usize) -> bool {
    let calls = CALLS.get();
    CALLS.set(calls.saturating_add(1));
    calls == u32::MAX || calls % 5 % 2 == 1
}

/// Everything in shared memory is the input's to write, at any time: no panic, no access out of bounds, a
/// dead ring stays dead, and each call handles at most one message.
fn hostile(input: &mut Input<'_>) -> Option<()> {
    let config = input.config()?;
    let memory = Memory::new(config);
    let (mut consumer, mut producer) = (memory.consumer(config), memory.producer(config));
    let mut position = 0u32;
    let (mut consumer_error, mut producer_error) = (None, None);
    let mut buffer = vec![GUARD; config.slot_bytes as usize + 64];
    loop {
        let cell = memory.cell_at(config, position);
        match input.byte()? % 8 {
            // Any word of the memory.
            0 => {
                let at = usize::from(input.half()?) * 4 % (memory.len / 4 * 4);
                memory.word(at).store(input.word()?, Ordering::Relaxed);
            }
            // A message with the right turn number, and anything else.
            1 => {
                let (len, kind, flags) = (input.half()?, input.byte()?, input.byte()?);
                memory.publish(config, position, len, kind, flags);
            }
            // What lies behind the first word.
            2 => {
                let at = cell + 8 + 4 * usize::from(input.byte()? % 6);
                memory.word(at).store(input.word()?, Ordering::Relaxed);
            }
            // Honest-looking small ones.
            3 => {
                let (len, flags) = (input.byte()?.into(), input.byte()? & Short::FLAGS);
                memory.wide(cell + 16).store(0, Ordering::Relaxed);
                memory.publish(config, position, len, SHORT, flags);
            }
            4 => {
                memory.wide(cell + 8).store(u64::from(input.byte()?) % 192, Ordering::Relaxed);
                memory.publish(config, position, u16::from(input.byte()? % 64), PACKET, 0);
            }
            5 => {
                match (consumer.front(), consumer_error) {
                    (Ok(_), Some(error)) => panic!("alive again after {error:?}"),
                    (Ok(None), None) => {}
                    (Ok(Some(front)), None) => {
                        let (header, payload) = (front.header().len(), front.payload_bytes() as usize);
                        assert!(header <= HEADER_BYTES_MAX);
                        assert!(header + payload <= config.slot_bytes as usize);
                        assert!(front.short().is_none_or(|short| short.flags & !Short::FLAGS == 0));
                        // The lengths change under our feet: the reader has its own copies.
                        memory.wide(cell).store(u64::MAX, Ordering::Relaxed);
                        memory.wide(cell + 8).store(u64::MAX, Ordering::Relaxed);
                        buffer.fill(GUARD);
                        assert_eq!(front.read(0, &mut buffer), payload);
                        assert!(buffer[payload..].iter().all(|&byte| byte == GUARD));
                        assert_eq!(front.read(payload as u32, &mut buffer), 0);
                        assert_eq!(front.read(u32::MAX, &mut buffer), 0);
                        front.release();
                        position = position.wrapping_add(1);
                    }
                    (Err(error), before) => {
                        assert!(before.is_none_or(|before| before == error));
                        consumer_error = Some(error);
                    }
                }
                consumer.must_ring();
                if consumer.arm() {
                    consumer.disarm();
                }
            }
            6 => {
                let found = front_short(&mut consumer);
                if let Some((short, from)) = found {
                    assert!(consumer_error.is_none() && short.flags & !Short::FLAGS == 0);
                    let len = usize::from(short.len);
                    assert!(len <= config.slot_bytes as usize);
                    let from_base = from.addr() - memory.base().addr().get();
                    assert!(from_base >= CELLS_AT && from_base + len <= memory.len, "{from_base} {len}");
                    // The payload's address and length don't follow what is written now.
                    memory.wide(cell).store(u64::MAX, Ordering::Relaxed);
                    drop(short_payload(&short, from));
                    consumer.release_short();
                    position = position.wrapping_add(1);
                }
            }
            _ => {
                // The constants are never looked at again.
                memory.word(CONSTANTS_AT + 8).store(input.word()?, Ordering::Relaxed);
                let item = Pushed::any(input, 7, input.0.len().is_multiple_of(2))?;
                match item.push(&mut producer) {
                    Ok(_) => assert!(producer_error.is_none() && item.fits(config)),
                    Err(PushError::Full) => assert!(producer_error.is_none() && producer.room() == Ok(0)),
                    Err(PushError::TooLong { .. }) => assert!(!item.fits(config)),
                    Err(PushError::Corrupt(error)) => {
                        assert!(producer_error.is_none_or(|before| before == error));
                        assert!(["head", "annex_head"].contains(&error.field));
                        producer_error = Some(error);
                    }
                }
                producer.must_ring();
                if producer.arm() {
                    producer.disarm();
                }
            }
        }
        memory.check_guard();
    }
}

/// The short message that is due, if one is: see [`Consumer::front_short`].
pub fn front_short(consumer: &mut Consumer<Mapped>) -> Option<(Short, *const u8)> {
    let first = consumer.front_word()?;
    consumer.front_short(first)
}

/// The short message that is due, if one is, with its payload. It stays.
pub fn short_message(consumer: &mut Consumer<Mapped>) -> Option<(Short, Vec<u8>)> {
    front_short(consumer).map(|(short, from)| (short, short_payload(&short, from)))
}
