//! The side that writes. Orders and bounds: see the module's top.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::cells::{Cells, PushError, RingError, Word, wake};
use super::layout::{
    AHEAD, CELL_BYTES, First, NOTE, PACKET, PACKET_AT, RingConfig, SHORT, SHORT_AT, fits_inline, packet_at, short_extra,
};
use super::windows::{WINDOWS_MAX, WindowList};
use crate::wire::{HEADER_BYTES_MAX, Short};

/// The side that writes.
#[derive(Debug)]
pub struct Producer<C: Cells> {
    cells: C,
    config: RingConfig,
    /// [`RingConfig::cells`], less 1.
    mask: u32,
    /// Where the next message goes.
    cell: C::Cell,
    /// How many messages were written, modulo 2^32.
    tail: u32,
    /// Where `tail` may not go: one ring behind the consumer's head, and where the memory ends that is usable
    /// yet.
    end: u32,
    /// Up to here the next message goes behind the last one without a check: `end`, or where the cells begin
    /// again.
    edge: u32,
    /// The consumer's head as last seen and checked.
    head_seen: u32,
    /// Cells with usable memory, from the first on.
    cells_ready: u32,
    /// The annex slot that is used next.
    slot: u32,
    /// How many annex slots were used, modulo 2^32.
    annex_tail: u32,
    /// The consumer's annex head as last seen and checked.
    annex_seen: u32,
    /// Slots with usable memory, from the first on.
    slots_ready: u32,
    /// The last message refused for lack of room needed an annex slot.
    needs_annex_memory: bool,
    /// There was no memory for it.
    no_memory: bool,
    dead: Option<RingError>,
}

impl<C: Cells> Producer<C> {
    /// The producer of a fresh ring.
    pub(super) fn over(cells: C) -> Self {
        let config = cells.config();
        let mut producer = Producer {
            cell: cells.cell(0),
            cells,
            config,
            mask: config.cells - 1,
            tail: 0,
            end: 0,
            edge: 0,
            head_seen: 0,
            cells_ready: 0,
            slot: 0,
            annex_tail: 0,
            annex_seen: 0,
            slots_ready: 0,
            needs_annex_memory: false,
            no_memory: false,
            dead: None,
        };
        producer.begin();
        producer
    }

    /// At position 0, with what is usable then.
    pub(super) fn begin(&mut self) {
        let whole = self.cells.is_whole();
        self.cells_ready = if whole { self.config.cells } else { self.config.populated_cells() };
        self.slots_ready = if whole { self.config.slots } else { 0 };
        self.end = self.cells_ready;
        self.find_edge();
    }

    /// After a change of `end`, or where the cells begin again.
    fn find_edge(&mut self) {
        let lap_end = (self.tail | self.mask).wrapping_add(1);
        let left = self.cells_known().min(lap_end.wrapping_sub(self.tail));
        self.edge = self.tail.wrapping_add(left);
        if self.tail & self.mask == 0 {
            self.cell = self.cells.cell(0);
        }
    }

    /// The memory.
    pub(super) fn cells_mut(&mut self) -> &mut C {
        &mut self.cells
    }

    /// How many messages fit now, whatever their size. Reads the consumer's indices only where its own copies
    /// give zero.
    pub fn room(&mut self) -> Result<u32, RingError> {
        if self.cells_known().min(self.annex_known()) == 0 {
            self.read_head()?;
        }
        Ok(self.cells_known().min(self.annex_known()))
    }

    /// How many messages fit now that need no annex slot ([`fits_inline`]). Reads the consumer's indices only
    /// where its own copies give zero.
    #[inline]
    pub fn short_room(&mut self) -> Result<u32, RingError> {
        if self.cells_known() == 0 {
            self.read_head()?;
        }
        Ok(self.cells_known())
    }

    /// Whether the consumer has taken all messages, as far as it is honest.
    pub fn is_drained(&self) -> bool {
        self.cells.head().load(Acquire) as u32 == self.tail
    }

    #[inline(always)]
    fn cells_known(&self) -> u32 {
        // `end` is within the ring's length ahead of the tail: checked at every look, and a push takes one
        // only where room is.
        self.end.wrapping_sub(self.tail)
    }

    #[inline(always)]
    fn annex_known(&self) -> u32 {
        // As above.
        self.config.slots - self.annex_tail.wrapping_sub(self.annex_seen)
    }

    /// Looks at the consumer's indices.
    #[cold]
    fn read_head(&mut self) -> Result<(), RingError> {
        if let Some(error) = self.dead {
            return Err(error);
        }
        let heads = self.cells.head().load(Acquire);
        let (head, annex_head) = (heads as u32, (heads >> 32) as u32);
        // Honest heads move forward only and never pass the tails (L-12).
        for (field, value, seen, tail) in
            [("head", head, self.head_seen, self.tail), ("annex_head", annex_head, self.annex_seen, self.annex_tail)]
        {
            if value.wrapping_sub(seen) > tail.wrapping_sub(seen) {
                let error = RingError { field, value };
                self.dead = Some(error);
                // So that every later push comes here.
                self.end = self.tail;
                self.edge = self.tail;
                return Err(error);
            }
        }
        self.head_seen = head;
        self.annex_seen = annex_head;
        self.no_memory = false;
        self.end = head.wrapping_add(self.config.cells);
        // In the first lap.
        if self.cells_ready < self.config.cells {
            if self.tail == self.cells_ready {
                let count = self.config.populated_cells();
                self.no_memory = !self.cells.populate_cells(self.cells_ready, count);
                self.cells_ready += if self.no_memory { 0 } else { count };
            }
            self.end = self.end.min(self.cells_ready);
        }
        self.find_edge();
        Ok(())
    }

    /// The annex slot for the next message.
    fn annex(&mut self) -> Result<C::Place, PushError> {
        self.claim_annex()?;
        Ok(self.cells.annex(self.slot))
    }

    /// An annex slot is free, or why not.
    fn claim_annex(&mut self) -> Result<(), PushError> {
        if self.annex_known() == 0 {
            self.read_head()?;
            if self.annex_known() == 0 {
                self.needs_annex_memory = true;
                return Err(PushError::Full);
            }
        }
        // In the first lap.
        if self.slot == self.slots_ready {
            self.no_memory = !self.cells.populate_slot(self.slot);
            if self.no_memory {
                return Err(PushError::Full);
            }
            self.slots_ready += 1;
        }
        Ok(())
    }

    /// The annex slot has been written.
    fn annex_used(&mut self) {
        self.annex_tail = self.annex_tail.wrapping_add(1);
        self.slot = if self.slot + 1 == self.config.slots { 0 } else { self.slot + 1 };
    }

    /// A cell is free, or why not.
    #[inline(always)]
    fn claim(&mut self) -> Result<(), PushError> {
        if self.has_cell() { Ok(()) } else { self.claim_slowly() }
    }

    #[cold]
    #[inline(never)]
    fn claim_slowly(&mut self) -> Result<(), PushError> {
        if self.cells_known() == 0 {
            self.read_head()?;
        }
        if self.cells_known() > 0 {
            self.find_edge();
            return Ok(());
        }
        self.needs_annex_memory = false;
        Err(PushError::Full)
    }

    /// Makes the message in the due cell visible.
    #[inline(always)]
    fn publish(&mut self, cell: C::Cell, first: First) {
        self.cells.word(cell, 0).store(first.bits(), Release);
        self.tail = first.turn;
        self.cell = self.cells.next(cell);
    }

    /// Appends a packet: `header`, then the bytes of all pieces as one payload. Then call
    /// [`must_ring`](Self::must_ring).
    ///
    /// # Safety
    /// Every piece can be read for its length, and a clone of the iterator yields the same pieces.
    pub unsafe fn push(
        &mut self,
        header: &[u8],
        pieces: impl IntoIterator<Item = (*const u8, usize), IntoIter: Clone>,
    ) -> Result<(), PushError> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.push_as(PACKET, header, pieces) }
    }

    /// Appends a note for the rail of the other side (L-21). Then call [`must_ring`](Self::must_ring).
    pub fn push_note(&mut self, note: &[u8]) -> Result<(), PushError> {
        // SAFETY: there are no pieces.
        unsafe { self.push_as(NOTE, note, []) }
    }

    /// See [`push`](Self::push).
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn push_as(
        &mut self,
        kind: u8,
        header: &[u8],
        pieces: impl IntoIterator<Item = (*const u8, usize), IntoIter: Clone>,
    ) -> Result<(), PushError> {
        let pieces = pieces.into_iter();
        let payload_bytes = pieces.clone().fold(0u64, |sum, (_, len)| sum.saturating_add(len as u64));
        let max = self.config.slot_bytes;
        let start = (header.len() as u64).next_multiple_of(16);
        if header.len() > HEADER_BYTES_MAX || start.saturating_add(payload_bytes) > u64::from(max) {
            return Err(PushError::TooLong { bytes: start.saturating_add(payload_bytes), max });
        }
        self.claim()?;
        let header_bytes = header.len() as u32;
        // Both fit into a slot, so into 32 bits.
        let place = packet_at(header_bytes, payload_bytes as u32);
        let (packet, mut at) = match place {
            Ok(at) => (self.cells.inline(self.cell, PACKET_AT), at - PACKET_AT),
            Err(at) => (self.annex()?, at),
        };
        // SAFETY: the header is a slice. `packet_at` ensures that header and payload fit into the cell; else
        // they fit into the slot, as checked above.
        unsafe { self.cells.copy_in(packet, 0, header.as_ptr(), header.len()) };
        for (from, len) in pieces {
            // SAFETY: the caller vouches for the piece; and for the clone, so all pieces together end where
            // the payload does, see above.
            unsafe { self.cells.copy_in(packet, at, from, len) };
            at += len as u32;
        }
        self.cells.word(self.cell, 1).store(payload_bytes, Relaxed);
        if place.is_err() {
            self.annex_used();
        }
        let turn = self.tail.wrapping_add(1);
        self.publish(self.cell, First { turn, len: header_bytes as u16, kind, flags: 0 });
        Ok(())
    }

    /// Appends a short message with the payload at `from`; `true`: the consumer must be woken (L-13).
    ///
    /// # Safety
    /// `from` can be read for `short.len` bytes.
    pub unsafe fn push_short(&mut self, short: &Short, from: *const u8) -> Result<bool, PushError> {
        self.claim_short(short.len.into(), short.flags & Short::IMMEDIATE != 0)?;
        // SAFETY: the caller's promise is the same, and there is room.
        Ok(unsafe { self.put_short(short, from) })
    }

    /// Whether a short message of `len` bytes can be put in, with or without immediate data.
    #[inline(always)]
    pub fn has_short_room(&mut self, len: u64, immediate: bool) -> bool {
        self.claim_short(len, immediate).is_ok()
    }

    /// Whether a cell is known to be free behind the one that was used last: then
    /// [`finish_inline`](Self::finish_inline) puts in a short message that [fits into it](fits_inline).
    #[inline(always)]
    pub const fn has_cell(&self) -> bool {
        self.edge != self.tail
    }

    /// There is room for a short message of `len` bytes, or why not.
    #[inline(always)]
    fn claim_short(&mut self, len: u64, immediate: bool) -> Result<(), PushError> {
        self.claim()?;
        if fits_inline(len, immediate) {
            return Ok(());
        }
        if len > self.config.short_bytes_max().into() {
            return Err(PushError::TooLong { bytes: len, max: self.config.slot_bytes });
        }
        self.claim_annex()
    }

    /// Writes a short message to the due cell; `true`: the consumer must be woken (L-13).
    ///
    /// # Safety
    /// [`has_short_room`](Self::has_short_room) was `true` for this message since the last one, and `from`
    /// can be read for as many bytes.
    #[inline(always)]
    pub unsafe fn put_short(&mut self, short: &Short, from: *const u8) -> bool {
        if fits_inline(short.len.into(), short.flags & Short::IMMEDIATE != 0) {
            self.begin_inline(short);
            // SAFETY: there is room, so a cell is free.
            return unsafe { self.finish_inline(short.len, short.flags, from) };
        }
        // SAFETY: the caller's promise is the same.
        unsafe { self.fill_annex(short.len, from) };
        self.write_words(short);
        self.publish(self.cell, self.first_of(short.len, short.flags));
        self.must_ring()
    }

    /// Writes a short message with its payload in its cell, but for the payload. Nothing is published before
    /// [`finish_inline`](Self::finish_inline).
    #[inline(always)]
    pub fn begin_inline(&self, short: &Short) {
        self.write_words(short);
    }

    /// Completes the message of [`begin_inline`](Self::begin_inline), with its length and flags; returns as
    /// [`put_short`](Self::put_short).
    ///
    /// # Safety
    /// [`has_cell`](Self::has_cell) was `true` since the last message, the payload
    /// [fits into it](fits_inline), and `from` can be read for as many bytes.
    #[inline(always)]
    pub unsafe fn finish_inline(&mut self, len: u16, flags: u8, from: *const u8) -> bool {
        let at = SHORT_AT + short_extra(flags);
        debug_assert!(at + u32::from(len) <= CELL_BYTES as u32, "{len} bytes, flags {flags}");
        // Read before: the compiler can't exclude that the write changes them.
        let (cell, first) = (self.cell, self.first_of(len, flags));
        // SAFETY: the caller vouches for `from`, and that the payload ends inside the cell.
        unsafe { self.cells.copy_in(self.cells.inline(cell, at), 0, from, len.into()) };
        self.publish(cell, first);
        self.must_ring()
    }

    /// More short messages follow soon: has the line of one fetched.
    #[inline(always)]
    pub fn expect_more(&self) {
        self.cells.will_write::<AHEAD>(self.cell);
    }

    /// One short message follows, but not at once: has its line fetched while an answer is on its way.
    #[inline(always)]
    pub fn expect_one(&self) {
        self.cells.will_write::<0>(self.cell);
    }

    /// Writes what is beside the first word and the payload to the due cell.
    #[inline(always)]
    fn write_words(&self, short: &Short) {
        debug_assert!(short.flags & !Short::FLAGS == 0, "{short:?}");
        debug_assert!(short.tag == 0 || short.flags & Short::TAGGED != 0, "{short:?}");
        self.cells.word(self.cell, 1).store(short.counts.bits(), Relaxed);
        self.cells.word(self.cell, 2).store(short.tag, Relaxed);
        if short.flags & Short::IMMEDIATE != 0 {
            self.cells.word(self.cell, 3).store(short.immediate, Relaxed);
        }
    }

    /// The first word of the next message.
    #[inline(always)]
    fn first_of(&self, len: u16, flags: u8) -> First {
        First { turn: self.tail.wrapping_add(1), len, kind: SHORT, flags }
    }

    /// Writes a short message's payload to the annex, which has room.
    ///
    /// # Safety
    /// As [`put_short`](Self::put_short).
    #[inline]
    unsafe fn fill_annex(&mut self, len: u16, from: *const u8) {
        debug_assert!(
            len <= self.config.short_bytes_max() && self.annex_known() > 0,
            "the caller has checked for room"
        );
        // SAFETY: the caller guarantees `from`, and has checked: a slot is at least `short_bytes_max` long.
        unsafe { self.cells.copy_in(self.cells.annex(self.slot), 0, from, len.into()) };
        self.annex_used();
    }

    /// Whether the consumer must be woken (L-13) for the messages pushed since the last call: `true` once
    /// each time that it went to sleep.
    #[inline(always)]
    pub fn must_ring(&mut self) -> bool {
        self.cells.light_fence();
        wake(self.cells.sleeping())
    }

    /// Prepares for sleeping until there is room for the message that was refused last; `false`: there is
    /// room already (or the ring is dead), don't sleep.
    pub fn arm(&mut self) -> bool {
        self.raise();
        let sleep = self.cells.heavy_fence() && self.is_full();
        if !sleep {
            self.disarm();
        }
        sleep
    }

    /// The first half of [`arm`](Self::arm), for a caller that has many rings and makes one heavy fence for
    /// all: sets the sleeping flag. After the fence call [`is_full`](Self::is_full).
    pub fn raise(&mut self) {
        self.cells.producer_waits().swap(1, Relaxed);
    }

    /// Whether there is no room for the message that was refused last, and a doorbell will come when there is
    /// some. None comes when the system has memory again.
    pub fn is_full(&mut self) -> bool {
        let room = if self.needs_annex_memory { self.room() } else { self.short_room() };
        room == Ok(0) && !self.no_memory
    }

    /// Sets the number of the list of memory that the consumer may map and read (L-18), which it can request;
    /// 0 for none. What was read from memory of the list before counts no more.
    pub fn offer(&mut self, number: u64) {
        self.cells.offer().store(number, Release);
    }

    /// Publishes the list of windows that the consumer may access directly (L-25), without `puts` for gets
    /// only. What was read out of a
    /// window that is no longer listed counts no more; a put to one may be under way until the caller has
    /// passed a heavy fence and found none announced by [`Consumer::putting`](super::Consumer::putting).
    pub fn list_windows(&mut self, list: &WindowList, puts: bool) {
        self.cells.windows().store(0, Relaxed);
        for index in 0..WINDOWS_MAX {
            for (word, value) in list.words(index, puts).into_iter().enumerate() {
                // A reader that sees one of these sees that there is no list.
                self.cells.window(index, word).store(value, Release);
            }
        }
        self.cells.windows().store(list.number(), Release);
    }

    /// Announces a put by the consumer's list of this number (L-26); then the consumer's memory is written if
    /// [`Consumer::windows`](super::Consumer::windows) of the other ring still gives that number.
    #[inline(always)]
    pub fn begin_put(&mut self, number: u64) {
        self.cells.putting().store(number, Relaxed);
        self.cells.light_fence();
    }

    /// The put is over.
    #[inline(always)]
    pub fn end_put(&mut self) {
        self.cells.putting().store(0, Release);
    }

    /// The side that copies each part of a message that this side reads out of the consumer's memory (L-22).
    pub fn claims(&self) -> &C::Wide {
        self.cells.claims()
    }

    /// Ends what [`arm`](Self::arm) began.
    pub fn disarm(&mut self) {
        self.cells.producer_waits().swap(0, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    impl<C: Cells> Producer<C> {
        /// As if `position` messages had passed already, a multiple of the cells, and `annex` annex slots, a
        /// multiple of the slots.
        pub(in crate::shm) fn skip_to(&mut self, position: u32, annex: u32) {
            debug_assert!(position.is_multiple_of(self.config.cells));
            self.tail = position;
            self.head_seen = position;
            self.end = position.wrapping_add(self.config.cells);
            self.find_edge();
            (self.annex_tail, self.annex_seen) = (annex, annex);
        }
    }
}
