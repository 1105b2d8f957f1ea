//! The ring's algorithm, over any memory that is [`Cells`] (rules L-11 to L-13).
//!
//! Positions count messages from 0, modulo 2^32; message `p` lies in slot `p % slots` and is there once the slot's turn
//! number is `p + 1`. Each side keeps its position privately; a value in shared memory is only ever compared with it.
//!
//! Orders, each pair proved under loom in `model`:
//! - turn: `Release` after the message is written, `Acquire` before it is read;
//! - head: `Release` after slots were read, `Acquire` before they are written again;
//! - `sleeping` against turn and `starved` against head: each side stores its own word, passes a sequentially consistent
//!   fence, then loads the other's. So one of the two sees the other: a sleeper sees the message, or the other side sees
//!   the sleeper and rings. Both sides write these two words, by exchanges only, so that each word has one history.
//!
//! Bounds: a push writes one slot, a look at the front reads one slot; nothing here loops on a shared value.
#![allow(unsafe_code)]

use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::layout::{PAYLOAD_ALIGN, RingConfig};
use crate::wire::HEADER_BYTES_MAX;

/// A 32-bit word in shared memory.
pub trait Word {
    /// Atomic load.
    fn load(&self, order: core::sync::atomic::Ordering) -> u32;
    /// Atomic store.
    fn store(&self, value: u32, order: core::sync::atomic::Ordering);
    /// Atomic exchange.
    fn swap(&self, value: u32, order: core::sync::atomic::Ordering) -> u32;
}

/// The memory of a ring: words that both sides see, and the bytes of the slots.
pub trait Cells {
    /// The words.
    type Word: Word;
    /// How the ring is cut: this side's own knowledge, not shared.
    fn config(&self) -> RingConfig;
    /// Messages freed by the consumer.
    fn head(&self) -> &Self::Word;
    /// Not 0: the consumer sleeps and wants a doorbell.
    fn sleeping(&self) -> &Self::Word;
    /// Not 0: the producer waits for room and wants a doorbell.
    fn starved(&self) -> &Self::Word;
    /// The turn number of slot `slot`, which is below `config().slots`.
    fn turn(&self, slot: u32) -> &Self::Word;
    /// The bytes of slot `slot`'s header.
    fn header_bytes(&self, slot: u32) -> &Self::Word;
    /// The bytes of slot `slot`'s payload.
    fn payload_bytes(&self, slot: u32) -> &Self::Word;
    /// A sequentially consistent fence.
    fn fence(&self);
    /// Copies `len` bytes from `from` into slot `slot`, from byte `at` on.
    ///
    /// # Safety
    /// `from` can be read for `len` bytes, `slot < slots`, `at + len <= slot_bytes`.
    unsafe fn copy_in(&self, slot: u32, at: u32, from: *const u8, len: usize);
    /// Copies `len` bytes out of slot `slot`, from byte `at` on, to `to`.
    ///
    /// # Safety
    /// `to` can be written for `len` bytes, `slot < slots`, `at + len <= slot_bytes`.
    unsafe fn copy_out(&self, slot: u32, at: u32, to: *mut u8, len: usize);
}

/// What stands in shared memory is nothing that an honest peer writes. The ring is dead from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: u32,
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in shared memory is {}, which no honest peer writes", self.field, self.value)
    }
}

impl core::error::Error for RingError {}

/// Why a message was not pushed. Nothing of it is visible to the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// All slots are taken.
    Full,
    /// It does not fit into a slot.
    TooLong {
        /// Bytes of header and payload, as far as they were counted.
        bytes: u64,
        /// Bytes of a slot.
        max: u32,
    },
    /// The peer corrupted the ring.
    Corrupt(RingError),
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PushError::Full => f.write_str("all slots of the ring are taken: try again when the peer has emptied one"),
            PushError::TooLong { bytes, max } => write!(f, "{bytes} bytes do not fit into a slot of {max}"),
            PushError::Corrupt(error) => write!(f, "the ring is dead: {error}"),
        }
    }
}

impl core::error::Error for PushError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            PushError::Corrupt(error) => Some(error),
            PushError::Full | PushError::TooLong { .. } => None,
        }
    }
}

/// A position and the slot that goes with it; no division where the position moves.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    position: u32,
    slot: u32,
}

impl Cursor {
    const START: Cursor = Cursor { position: 0, slot: 0 };

    fn advance(&mut self, slots: u32) {
        self.position = self.position.wrapping_add(1);
        self.slot = if self.slot + 1 == slots { 0 } else { self.slot + 1 };
    }

    /// The turn number of the message at this position.
    const fn turn(&self) -> u32 {
        self.position.wrapping_add(1)
    }
}

/// The side that writes.
#[derive(Debug)]
pub struct Producer<C> {
    cells: C,
    config: RingConfig,
    tail: Cursor,
    /// The consumer's head as last seen and checked.
    head_seen: u32,
    dead: Option<RingError>,
}

impl<C: Cells> Producer<C> {
    /// The producer of a fresh ring.
    pub fn over(cells: C) -> Self {
        let config = cells.config();
        Producer { cells, config, tail: Cursor::START, head_seen: 0, dead: None }
    }

    /// As if `position` messages had passed already, in order to test where positions wrap.
    #[cfg(all(any(test, feature = "harness"), not(loom)))]
    pub(super) fn skip_to(&mut self, position: u32) {
        self.tail.position = position;
        self.head_seen = position;
    }

    /// The memory.
    pub fn cells(&self) -> &C {
        &self.cells
    }

    /// How many messages fit now. Looks at the consumer's index only where its own knowledge says zero.
    pub fn room(&mut self) -> Result<u32, RingError> {
        if let Some(error) = self.dead {
            return Err(error);
        }
        let known = self.room_known();
        if known > 0 {
            return Ok(known);
        }
        let head = self.cells.head().load(Acquire);
        let taken = self.tail.position.wrapping_sub(self.head_seen);
        // An honest head moves forward only and never passes the tail (L-12).
        if head.wrapping_sub(self.head_seen) > taken {
            let error = RingError { field: "head", value: head };
            self.dead = Some(error);
            return Err(error);
        }
        self.head_seen = head;
        Ok(self.room_known())
    }

    fn room_known(&self) -> u32 {
        // `head_seen` is within `slots` behind the tail: checked at every update, and a push takes one only where room is.
        self.config.slots - self.tail.position.wrapping_sub(self.head_seen)
    }

    /// Appends a message: `header`, then the bytes of all pieces as one payload. Then ask
    /// [`must_ring`](Self::must_ring).
    ///
    /// # Safety
    /// Every piece can be read for its length.
    pub unsafe fn push(
        &mut self,
        header: &[u8],
        pieces: impl IntoIterator<Item = (*const u8, usize)>,
    ) -> Result<(), PushError> {
        let max = self.config.slot_bytes;
        if self.room().map_err(PushError::Corrupt)? == 0 {
            return Err(PushError::Full);
        }
        if header.len() > HEADER_BYTES_MAX {
            return Err(PushError::TooLong { bytes: header.len() as u64, max });
        }
        let slot = self.tail.slot;
        // SAFETY: the header is a slice; it is at most HEADER_BYTES_MAX long, and no slot is smaller (checked with the
        // configuration); the cursor's slot is below `slots`.
        unsafe { self.cells.copy_in(slot, 0, header.as_ptr(), header.len()) };
        let start = (header.len() as u32).next_multiple_of(PAYLOAD_ALIGN);
        let mut at = start;
        for (from, len) in pieces {
            if len > (max - at) as usize {
                return Err(PushError::TooLong { bytes: u64::from(at).saturating_add(len as u64), max });
            }
            // SAFETY: the caller vouches for the piece; `at + len <= slot_bytes` was just checked, `at <= slot_bytes`
            // holds since the start; the cursor's slot is below `slots`.
            unsafe { self.cells.copy_in(slot, at, from, len) };
            at += len as u32;
        }
        self.cells.header_bytes(slot).store(header.len() as u32, Relaxed);
        self.cells.payload_bytes(slot).store(at - start, Relaxed);
        self.cells.turn(slot).store(self.tail.turn(), Release);
        self.tail.advance(self.config.slots);
        Ok(())
    }

    /// Whether the consumer must be woken (L-13) for what was pushed since the last call: `true` once each time that it
    /// fell asleep.
    pub fn must_ring(&mut self) -> bool {
        self.cells.fence();
        wake(self.cells.sleeping())
    }

    /// Prepares for sleeping until there is room; `false`: there is room already (or the ring is dead), don't sleep.
    pub fn arm(&mut self) -> bool {
        self.cells.starved().swap(1, Relaxed);
        self.cells.fence();
        let sleep = matches!(self.room(), Ok(0));
        if !sleep {
            self.disarm();
        }
        sleep
    }

    /// Ends what [`arm`](Self::arm) began.
    pub fn disarm(&mut self) {
        self.cells.starved().swap(0, Relaxed);
    }
}

/// The side that reads.
#[derive(Debug)]
pub struct Consumer<C> {
    cells: C,
    config: RingConfig,
    head: Cursor,
    /// Messages freed since `head` was last published.
    unpublished: u32,
    /// `head` was published since the last [`must_ring`](Self::must_ring).
    freed: bool,
    /// The front's header, copied before anybody looks at it.
    header: [u8; HEADER_BYTES_MAX],
    dead: Option<RingError>,
}

impl<C: Cells> Consumer<C> {
    /// The consumer of a fresh ring.
    pub fn over(cells: C) -> Self {
        let config = cells.config();
        Consumer {
            cells,
            config,
            head: Cursor::START,
            unpublished: 0,
            freed: false,
            header: [0; HEADER_BYTES_MAX],
            dead: None,
        }
    }

    /// As if `position` messages had passed already, in order to test where positions wrap.
    #[cfg(all(any(test, feature = "harness"), not(loom)))]
    pub(super) fn skip_to(&mut self, position: u32) {
        self.head.position = position;
        self.cells.head().store(position, Release);
    }

    /// The memory.
    pub fn cells(&self) -> &C {
        &self.cells
    }

    /// The oldest message, if there is one. Looks at one cache line where there is none.
    pub fn front(&mut self) -> Result<Option<Front<'_, C>>, RingError> {
        if let Some(error) = self.dead {
            return Err(error);
        }
        let slot = self.head.slot;
        let turn = self.cells.turn(slot).load(Acquire);
        if turn != self.head.turn() {
            // Nothing yet: then it is what stood there a round ago, or the 0 of a slot that was never written (L-12).
            if turn != 0 && turn != self.head.turn().wrapping_sub(self.config.slots) {
                return Err(self.kill(RingError { field: "turn", value: turn }));
            }
            // The producer may be waiting for exactly these slots.
            self.publish();
            return Ok(None);
        }
        // Read once each; from here on only the private copies count (L-12).
        let header_bytes = self.cells.header_bytes(slot).load(Relaxed);
        let payload_bytes = self.cells.payload_bytes(slot).load(Relaxed);
        let wrong = if header_bytes > HEADER_BYTES_MAX as u32 {
            Some(RingError { field: "header_bytes", value: header_bytes })
        } else if payload_bytes > self.config.payload_bytes_max(header_bytes) {
            Some(RingError { field: "payload_bytes", value: payload_bytes })
        } else {
            None
        };
        if let Some(error) = wrong {
            return Err(self.kill(error));
        }
        // SAFETY: `header_bytes` is at most the array's length and at most `slot_bytes`; the slot is below `slots`.
        unsafe { self.cells.copy_out(slot, 0, self.header.as_mut_ptr(), header_bytes as usize) };
        Ok(Some(Front { consumer: self, header_bytes, payload_bytes }))
    }

    fn kill(&mut self, error: RingError) -> RingError {
        *self.dead.insert(error)
    }

    /// Whether the producer waits for room and must be woken for slots that were freed since the last call.
    pub fn must_ring(&mut self) -> bool {
        if !core::mem::take(&mut self.freed) {
            return false;
        }
        self.cells.fence();
        wake(self.cells.starved())
    }

    /// Prepares for sleeping until there is a message; `false`: there is one already (or the ring is dead), don't
    /// sleep. May free slots: ask [`must_ring`](Self::must_ring) before sleeping.
    pub fn arm(&mut self) -> bool {
        self.cells.sleeping().swap(1, Relaxed);
        self.cells.fence();
        let sleep = matches!(self.front(), Ok(None));
        if !sleep {
            self.disarm();
        }
        sleep
    }

    /// Ends what [`arm`](Self::arm) began.
    pub fn disarm(&mut self) {
        self.cells.sleeping().swap(0, Relaxed);
    }

    fn release(&mut self) {
        self.head.advance(self.config.slots);
        self.unpublished += 1;
        // Publishing by quarters spares the producer, where it waits for room, most of the traffic on this line.
        if self.unpublished * 4 >= self.config.slots {
            self.publish();
        }
    }

    fn publish(&mut self) {
        if self.unpublished > 0 {
            self.unpublished = 0;
            self.freed = true;
            self.cells.head().store(self.head.position, Release);
        }
    }
}

/// The oldest message of a ring. Dropped without [`release`](Self::release) it stays the oldest.
#[derive(Debug)]
pub struct Front<'c, C> {
    consumer: &'c mut Consumer<C>,
    header_bytes: u32,
    payload_bytes: u32,
}

impl<C: Cells> Front<'_, C> {
    /// The header: a private copy, nobody else changes it.
    pub fn header(&self) -> &[u8] {
        &self.consumer.header[..self.header_bytes as usize]
    }

    /// Bytes of payload.
    pub fn payload_bytes(&self) -> u32 {
        self.payload_bytes
    }

    /// Copies payload bytes, from byte `from` on, to `to`; returns how many there were, at most `len`. The peer may
    /// change the payload while it is copied: what arrives is bytes, no more.
    ///
    /// # Safety
    /// `to` can be written for `len` bytes.
    pub unsafe fn copy_to(&self, from: u32, to: *mut u8, len: usize) -> usize {
        let left = self.payload_bytes.saturating_sub(from);
        let len = len.min(left as usize);
        if len > 0 {
            let at = self.header_bytes.next_multiple_of(PAYLOAD_ALIGN) + from;
            // SAFETY: the caller vouches for `to`; `from + len <= payload_bytes`, which was checked against the slot's
            // size together with the rounded-up header; the slot is below `slots`.
            unsafe { self.consumer.cells.copy_out(self.consumer.head.slot, at, to, len) };
        }
        len
    }

    /// As [`copy_to`](Self::copy_to), into a slice.
    pub fn read(&self, from: u32, to: &mut [u8]) -> usize {
        // SAFETY: a slice can be written for its length.
        unsafe { self.copy_to(from, to.as_mut_ptr(), to.len()) }
    }

    /// Gives the slot back to the producer. Then ask [`Consumer::must_ring`].
    pub fn release(self) {
        self.consumer.release();
    }
}

/// Clears a sleeper's flag; whether it was set. The exchange is made only where the plain load says so, for the word's
/// line is then shared by both sides' caches while nobody sleeps.
fn wake(flag: &impl Word) -> bool {
    flag.load(Relaxed) != 0 && flag.swap(0, Relaxed) != 0
}
