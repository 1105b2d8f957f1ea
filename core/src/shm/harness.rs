//! Bodies of the ring's property tests and of its fuzz target: input bytes in, a panic where a promise is broken.
//!
//! The first byte chooses: honest sides against a queue that is obviously right, or a consumer and a producer whose
//! memory the input writes to between any two steps. Every step consumes input, so a run ends with it; a step that did
//! not return would show as a hang.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::boxed::Box;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

use super::layout::{CONSTANTS_AT, LINE_BYTES, SLOTS_AT};
use super::{Consumer, Mapped, Producer, PushError, RingConfig, ring_bytes};
use crate::wire::HEADER_BYTES_MAX;

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
            slots: 2 + u32::from(self.byte()? % 7),
            slot_bytes: HEADER_BYTES_MAX as u32 + 16 * u32::from(self.byte()?),
        })
    }
}

#[repr(C, align(128))]
#[derive(Clone, Copy)]
struct Line([u8; LINE_BYTES]);

/// Zeroed ring memory, with a line behind it that nobody may touch.
pub(super) struct Memory {
    base: NonNull<Line>,
    lines: usize,
    /// Bytes of the ring.
    pub len: usize,
}

const GUARD: u8 = 0xA5;

impl Memory {
    pub fn new(config: RingConfig) -> Self {
        let len = ring_bytes(config).unwrap();
        let mut lines = vec![Line([0; LINE_BYTES]); len.div_ceil(LINE_BYTES) + 1].into_boxed_slice();
        let count = lines.len();
        lines.as_flattened_bytes()[len..].fill(GUARD);
        Memory { base: NonNull::new(Box::into_raw(lines).cast()).unwrap(), lines: count, len }
    }

    pub fn base(&self) -> NonNull<u8> {
        self.base.cast()
    }

    pub fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len);
        // SAFETY: in bounds and aligned (asserted); rings and this harness touch words atomically; slot bytes are
        // touched without atomics, but by the same thread only.
        unsafe { &*self.base().as_ptr().add(at).cast() }
    }

    fn check_guard(&self) {
        for at in self.len..self.lines * LINE_BYTES {
            // SAFETY: inside the allocation.
            assert_eq!(unsafe { self.base().as_ptr().add(at).read() }, GUARD, "byte {at} behind the ring was written");
        }
    }

    pub fn consumer(&self, config: RingConfig) -> Consumer<Mapped> {
        // SAFETY: the memory is zero and outlives the rings of the harness and tests, which drop it last.
        unsafe { Consumer::create(self.base(), self.len, config) }.unwrap()
    }

    pub fn producer(&self, config: RingConfig) -> Producer<Mapped> {
        // SAFETY: as above.
        unsafe { Producer::attach(self.base(), self.len, config) }.unwrap()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let lines = core::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.lines);
        // SAFETY: it came out of `Box::into_raw` with this length.
        drop(unsafe { Box::from_raw(lines) });
    }
}

/// Both ends of a ring in this process's memory, for measuring.
pub struct Both {
    // The memory goes last.
    producer: Producer<Mapped>,
    consumer: Consumer<Mapped>,
    _memory: Memory,
}

impl Both {
    /// An empty ring.
    pub fn new(config: RingConfig) -> Self {
        let memory = Memory::new(config);
        let consumer = memory.consumer(config);
        Both { producer: memory.producer(config), consumer, _memory: memory }
    }

    /// Pushes a packet, and asks whether it must be told; `false`: it does not fit, now or ever.
    pub fn push(&mut self, header: &[u8], payload: &[u8]) -> bool {
        // SAFETY: the piece is a slice that lives through the call.
        let pushed = unsafe { self.producer.push(header, [(payload.as_ptr(), payload.len())]) };
        pushed.is_ok() && !self.producer.must_ring()
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
        unsafe { core::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), size_of_val(self)) }
    }
}

/// Pushes `payload` in two pieces.
pub(super) fn push(producer: &mut Producer<Mapped>, header: &[u8], payload: &[u8]) -> Result<(), PushError> {
    let (first, second) = payload.split_at(payload.len() / 3);
    // SAFETY: the pieces are slices that live through the call.
    unsafe { producer.push(header, [first, second].map(|piece| (piece.as_ptr(), piece.len()))) }
}

/// Reads `Front`'s payload in pieces of `step` bytes.
pub(super) fn read_all(front: &super::Front<'_, Mapped>, step: usize) -> Vec<u8> {
    let mut payload = vec![0; front.payload_bytes() as usize];
    let mut at = 0;
    while at < payload.len() {
        let end = payload.len().min(at + step);
        assert_eq!(front.read(at as u32, &mut payload[at..end]), end - at);
        at = end;
    }
    payload
}

/// Both sides honest: the ring is a bounded queue, in whatever order pushes, looks and releases come, wherever positions
/// wrap.
fn honest(input: &mut Input<'_>) -> Option<()> {
    let config = input.config()?;
    let memory = Memory::new(config);
    let (mut consumer, mut producer) = (memory.consumer(config), memory.producer(config));
    // Up to three rounds before the position wraps, or from zero.
    if input.byte()? % 2 == 0 {
        let start = u32::MAX - 3 * config.slots;
        consumer.skip_to(start);
        producer.skip_to(start);
    }
    let mut oracle: VecDeque<(Vec<u8>, Vec<u8>)> = VecDeque::new();
    let (mut count, mut asleep) = (0u8, false);
    loop {
        match input.byte()? % 6 {
            0..=2 => {
                let header_bytes = usize::from(input.byte()?) + usize::from(input.byte()? % 3);
                let payload_bytes = usize::from(input.half()? % 5000);
                count = count.wrapping_add(1);
                let header = vec![count; header_bytes];
                let payload: Vec<u8> = (0..payload_bytes).map(|i| count ^ (i as u8)).collect();
                let fits = header_bytes <= HEADER_BYTES_MAX
                    && payload_bytes <= config.payload_bytes_max(header_bytes as u32) as usize;
                let room = producer.room().unwrap();
                match push(&mut producer, &header, &payload) {
                    Ok(()) => {
                        assert!(fits && room > 0 && oracle.len() < config.slots as usize);
                        oracle.push_back((header, payload));
                        assert_eq!(producer.must_ring(), core::mem::take(&mut asleep));
                    }
                    // Freed slots are published by quarters, so a full ring may show up to a quarter too few.
                    Err(PushError::Full) => {
                        assert_eq!(room, 0);
                        assert!(oracle.len() as u32 + config.slots.div_ceil(4) > config.slots);
                    }
                    Err(PushError::TooLong { max, .. }) => assert!(!fits && max == config.slot_bytes),
                    Err(PushError::Corrupt(error)) => panic!("corrupt: {error:?}"),
                }
            }
            3 | 4 => {
                let (keep, step) = (input.byte()?, 1 + usize::from(input.byte()?));
                match (consumer.front().unwrap(), oracle.front()) {
                    (Some(front), Some((header, payload))) => {
                        assert_eq!(front.header(), header);
                        assert_eq!(read_all(&front, step), *payload);
                        assert_eq!(front.read(payload.len() as u32, &mut [0]), 0);
                        if keep % 4 != 0 {
                            front.release();
                            oracle.pop_front();
                        }
                    }
                    (None, None) => assert!(producer.room().unwrap() > 0, "an empty ring has room"),
                    (front, _) => panic!("ring has a message: {}, queue: {}", front.is_some(), oracle.len()),
                }
            }
            _ => {
                let sleep = consumer.arm();
                assert_eq!(sleep, oracle.is_empty());
                asleep = sleep;
            }
        }
        memory.check_guard();
    }
}

/// Everything in shared memory is the input's to write, at any time: no panic, no access out of bounds, a dead ring stays
/// dead, and each call handles at most one message.
fn hostile(input: &mut Input<'_>) -> Option<()> {
    let config = input.config()?;
    let memory = Memory::new(config);
    let (mut consumer, mut producer) = (memory.consumer(config), memory.producer(config));
    let stride = config.stride();
    let mut position = 0u32;
    let (mut consumer_error, mut producer_error) = (None, None);
    let mut buffer = vec![GUARD; config.slot_bytes as usize + 64];
    loop {
        match input.byte()? % 8 {
            // Any word of the memory.
            0 | 1 => {
                let at = usize::from(input.half()?) * 4 % (memory.len / 4 * 4);
                memory.word(at).store(input.word()?, Ordering::Relaxed);
            }
            // A message with the right turn number and any lengths.
            2 | 3 => {
                let slot = SLOTS_AT + (position % config.slots) as usize * stride;
                memory.word(slot + 4).store(u32::from(input.half()?), Ordering::Relaxed);
                memory.word(slot + 8).store(input.word()?, Ordering::Relaxed);
                memory.word(slot).store(position.wrapping_add(1), Ordering::Relaxed);
            }
            // An honest-looking small one.
            4 => {
                let slot = SLOTS_AT + (position % config.slots) as usize * stride;
                memory.word(slot + 4).store(u32::from(input.byte()? % 64), Ordering::Relaxed);
                memory.word(slot + 8).store(u32::from(input.byte()?) % 192, Ordering::Relaxed);
                memory.word(slot).store(position.wrapping_add(1), Ordering::Relaxed);
            }
            5 | 6 => {
                let result = consumer.front();
                match (result, consumer_error) {
                    (Ok(_), Some(error)) => panic!("alive again after {error:?}"),
                    (Ok(None), None) => {}
                    (Ok(Some(front)), None) => {
                        let (header, payload) = (front.header().len(), front.payload_bytes() as usize);
                        assert!(header <= HEADER_BYTES_MAX);
                        assert!(header.next_multiple_of(16) + payload <= config.slot_bytes as usize);
                        // The lengths change under our feet: the reader has its own copies.
                        let slot = SLOTS_AT + (position % config.slots) as usize * stride;
                        memory.word(slot + 8).store(u32::MAX, Ordering::Relaxed);
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
            _ => {
                // The constants are never looked at again.
                memory.word(CONSTANTS_AT + 8).store(input.word()?, Ordering::Relaxed);
                match push(&mut producer, &[1; 40], &[2; 100]) {
                    Ok(()) => assert!(producer_error.is_none()),
                    Err(PushError::Full) => assert!(producer_error.is_none() && producer.room() == Ok(0)),
                    Err(PushError::TooLong { .. }) => panic!("140 bytes fit into every slot"),
                    Err(PushError::Corrupt(error)) => {
                        assert!(producer_error.is_none_or(|before| before == error));
                        assert_eq!(error.field, "head");
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
