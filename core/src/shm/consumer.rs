//! The side that reads. Orders and bounds: see the module's top.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::cells::{Cells, RingError, Word, wake};
use super::layout::{
    First, NOTE, PACKET, PACKET_AT, RingConfig, SHORT, SHORT_AT, SHORT_INLINE_BYTES, packet_at, short_extra,
};
use super::windows::{ListedWindow, WINDOWS_MAX};
use crate::wire::{Counts, HEADER_BYTES_MAX, Short, ShortSource};

/// The side that reads.
#[derive(Debug)]
pub struct Consumer<C: Cells> {
    cells: C,
    config: RingConfig,
    /// [`RingConfig::short_bytes_max`].
    short_bytes_max: u16,
    /// Every so many cells, less 1, the next one is not simply the one behind: [`RingConfig::cells`], or in
    /// the first lap [`RingConfig::populated_cells`].
    mask: u32,
    /// There is no memory for the due cell yet; `cell` is the one before.
    skips_slots: bool,
    /// There was no memory for the due annex slot.
    no_slot: bool,
    /// [`RingConfig::publish_period`], less 1.
    publish_mask: u32,
    /// The smaller of both: in between only the next cell becomes due. 0 while the last message read lies in
    /// the annex.
    edge_mask: u32,
    /// Where the next message comes.
    cell: C::Cell,
    /// The turn number that it will have: messages released, and 1, modulo 2^32.
    due: u32,
    /// The annex slot that is used next.
    slot: u32,
    /// Annex slots released, modulo 2^32.
    annex_head: u32,
    /// Slots with usable memory, from the first on.
    slots_ready: u32,
    /// The heads as last published.
    published: (u32, u32),
    /// The message that was looked at last lies in the annex.
    in_annex: bool,
    /// Heads were published since the last [`must_ring`](Self::must_ring).
    freed: bool,
    dead: Option<RingError>,
    /// The kind bits of a short message's first word; bits that no word has once the ring is dead, and while
    /// the due cell can't be looked at.
    kind: u64,
    /// The front's header, copied before anything in it is looked at.
    header: [u8; HEADER_BYTES_MAX],
}

impl<C: Cells> Consumer<C> {
    /// The consumer of a fresh ring.
    pub(super) fn over(cells: C) -> Self {
        let config = cells.config();
        let mut consumer = Consumer {
            cell: cells.cell(0),
            cells,
            config,
            short_bytes_max: config.short_bytes_max(),
            mask: 0,
            skips_slots: false,
            no_slot: false,
            publish_mask: config.publish_period() - 1,
            edge_mask: 0,
            due: 1,
            slot: 0,
            annex_head: 0,
            slots_ready: 0,
            published: (0, 0),
            in_annex: false,
            freed: false,
            dead: None,
            kind: IS_SHORT,
            header: [0; HEADER_BYTES_MAX],
        };
        consumer.begin();
        consumer
    }

    /// At position 0, with what is usable then.
    pub(super) fn begin(&mut self) {
        let whole = self.cells.is_whole();
        self.mask = if whole { self.config.cells } else { self.config.populated_cells() } - 1;
        self.edge_mask = self.mask & self.publish_mask;
        self.slots_ready = if whole { self.config.slots } else { 0 };
    }

    /// The memory.
    pub(super) fn cells_mut(&mut self) -> &mut C {
        &mut self.cells
    }

    /// Whether a message is there, or the ring is dead by what stood where one is due. A load and a
    /// comparison; of a turn number that no honest peer writes only [`front`](Self::front) finds out.
    #[inline(always)]
    pub fn has_message(&self) -> bool {
        self.cells.word(self.cell, 0).load(Relaxed) as u32 == self.due
    }

    /// The first word of the message that is due, if one is there or the ring is dead: for
    /// [`front_short`](Self::front_short).
    #[inline(always)]
    pub fn front_word(&self) -> Option<u64> {
        let first = self.cells.word(self.cell, 0).load(Acquire);
        (first as u32 == self.due).then_some(first)
    }

    /// The message behind the first word that [`front_word`](Self::front_word) has just returned, if it is a
    /// short one: its header, and where its payload is until it is released. `None`: it is no short one, or
    /// something is wrong; [`front`](Self::front) reports what.
    ///
    /// The peer may change the payload while it is copied: what arrives is bytes, no more.
    #[inline(always)]
    pub fn front_short(&mut self, first: u64) -> Option<(Short, *const u8)> {
        if first & KIND != self.kind {
            return None;
        }
        let (short, place) = self.short_of(self.cell, First::of(first)).ok()?;
        Some((short, self.cells.bytes(place)))
    }

    /// As [`front_short`](Self::front_short), but also `None` where the payload lies in the annex.
    #[inline(always)]
    pub fn front_inline(&self, first: u64) -> Option<Inline<'_, C>> {
        let First { len, flags, .. } = First::of(first);
        if first & KIND != self.kind || inline_at(len, flags).is_none() {
            return None;
        }
        Some(Inline { cells: &self.cells, cell: self.cell, len, flags })
    }

    /// Gives the cell of the short message that [`front_short`](Self::front_short) has just found back to the
    /// producer. Freed cells are published in batches: `true` if they may have been, so call
    /// [`must_ring`](Self::must_ring).
    #[inline(always)]
    pub fn release_short(&mut self) -> bool {
        if self.pass_short() {
            return false;
        }
        self.release_slowly();
        true
    }

    /// As [`release_short`](Self::release_short), where nothing is published: the cell's content may be read
    /// until something else is released. `false`: no effect, there is something to publish.
    #[inline(always)]
    pub fn pass_short(&mut self) -> bool {
        let head = self.due;
        if head & self.edge_mask == 0 {
            return false;
        }
        self.due = head.wrapping_add(1);
        self.cell = self.cells.next(self.cell);
        true
    }

    #[inline(never)]
    fn release_slowly(&mut self) {
        self.release();
    }

    /// What a short message is. Every word is loaded once, and its value checked before it is used (L-12);
    /// from there on only the private copies count.
    #[inline(always)]
    fn fields_of(&self, cell: C::Cell, first: First) -> Result<Short, Wrong> {
        let First { len, flags, .. } = first;
        let counts = Counts::of_bits(self.cells.word(cell, 1).load(Relaxed));
        let tag = self.cells.word(cell, 2).load(Relaxed);
        if flags & Short::TAGGED == 0 && tag != 0 {
            return Err(Wrong::Ring(RingError { field: "tag", value: tag as u32 }));
        }
        let has_immediate = flags & Short::IMMEDIATE != 0;
        let immediate = if has_immediate { self.cells.word(cell, 3).load(Relaxed) } else { 0 };
        Ok(Short { counts, tag, immediate, len, flags })
    }

    /// As [`fields_of`](Self::fields_of), and where its payload lies.
    #[inline(always)]
    fn short_of(&mut self, cell: C::Cell, first: First) -> Result<(Short, C::Place), Wrong> {
        let short = self.fields_of(cell, first)?;
        let place = match inline_at(short.len, short.flags) {
            Some(at) => self.cells.inline(cell, at),
            None => self.short_annex(short.len)?,
        };
        Ok((short, place))
    }

    /// The oldest message, if there is one. Reads one cache line where there is none; then also publishes
    /// freed cells.
    pub fn front(&mut self) -> Result<Option<Front<'_, C>>, RingError> {
        if let Some(error) = self.dead {
            return Err(error);
        }
        if self.skips_slots {
            self.publish();
            self.cell = self.turn_over();
            if self.skips_slots {
                return Ok(None);
            }
        }
        let first = First::of(self.cells.word(self.cell, 0).load(Acquire));
        let turn = first.turn;
        if turn != self.due {
            // Nothing yet: then it is the turn of a lap ago, or the 0 of a cell that was never written
            // (L-12).
            if turn != 0 && turn != self.due.wrapping_sub(self.config.cells) {
                return Err(self.kill(RingError { field: "turn", value: turn }));
            }
            // The producer may be waiting for exactly these cells.
            self.publish();
            return Ok(None);
        }
        let found = match first.kind {
            PACKET | NOTE => self.packet_of(first),
            _ => self.check_short(first).and_then(|()| self.short_of(self.cell, first)).map(|(short, place)| {
                let payload_bytes = short.len.into();
                Found { short: Some(short), is_note: false, header_bytes: 0, payload_bytes, payload: place, at: 0 }
            }),
        };
        match found {
            Ok(found) => Ok(Some(Front { consumer: self, found })),
            Err(Wrong::NoMemory) => Ok(None),
            Err(Wrong::Ring(error)) => Err(self.kill(error)),
        }
    }

    /// Whether the kind of a message is short.
    fn check_short(&mut self, First { kind, flags, .. }: First) -> Result<(), Wrong> {
        if kind != SHORT {
            return Err(Wrong::Ring(RingError { field: "kind", value: kind.into() }));
        }
        if flags & !Short::FLAGS != 0 {
            return Err(Wrong::Ring(RingError { field: "flags", value: flags.into() }));
        }
        self.in_annex = false;
        Ok(())
    }

    /// The annex slot of a short message.
    #[inline(never)]
    fn short_annex(&mut self, len: u16) -> Result<C::Place, Wrong> {
        if len > self.short_bytes_max {
            return Err(Wrong::Ring(RingError { field: "short_bytes", value: len.into() }));
        }
        (self.in_annex, self.edge_mask) = (true, 0);
        self.annex()
    }

    /// The due annex slot.
    fn annex(&mut self) -> Result<C::Place, Wrong> {
        // In the first lap.
        if self.slot == self.slots_ready {
            self.no_slot = !self.cells.populate_slot(self.slot);
            if self.no_slot {
                return Err(Wrong::NoMemory);
            }
            self.slots_ready += 1;
        }
        Ok(self.cells.annex(self.slot))
    }

    /// Checks a packet's lengths and copies its header, as [`short_of`](Self::short_of).
    fn packet_of(&mut self, first: First) -> Result<Found<C::Place>, Wrong> {
        let payload_bytes = self.cells.word(self.cell, 1).load(Relaxed);
        let header_bytes = u32::from(first.len);
        if first.flags != 0 {
            return Err(Wrong::Ring(RingError { field: "flags", value: first.flags.into() }));
        }
        if header_bytes > HEADER_BYTES_MAX as u32 {
            return Err(Wrong::Ring(RingError { field: "header_bytes", value: header_bytes }));
        }
        let is_note = first.kind == NOTE;
        let most = if is_note { 0 } else { self.config.payload_bytes_max(header_bytes) };
        if payload_bytes > u64::from(most) {
            let value = u32::try_from(payload_bytes).unwrap_or(u32::MAX);
            return Err(Wrong::Ring(RingError { field: "payload_bytes", value }));
        }
        let payload_bytes = payload_bytes as u32;
        let place = packet_at(header_bytes, payload_bytes);
        self.in_annex = place.is_err();
        let (payload, at) = match place {
            Ok(at) => (self.cells.inline(self.cell, PACKET_AT), at - PACKET_AT),
            Err(at) => (self.annex()?, at),
        };
        // SAFETY: `header_bytes` is at most the array's length, and `packet_at` ensures that it ends inside
        // the cell, or it is at most a slot's length.
        unsafe { self.cells.copy_out(payload, 0, self.header.as_mut_ptr(), header_bytes as usize) };
        Ok(Found { short: None, is_note, header_bytes, payload_bytes, payload, at })
    }

    fn kill(&mut self, error: RingError) -> RingError {
        self.kind = NOTHING;
        *self.dead.insert(error)
    }

    /// Whether there is no message and nothing is wrong: as [`front`](Self::front), in few instructions.
    /// `false`: call `front`.
    #[inline]
    pub fn is_quiet(&mut self) -> bool {
        let turn = self.cells.word(self.cell, 0).load(Relaxed) as u32;
        // As in `front`: what stood there a lap ago, or the 0 of a cell that was never written (L-12).
        let is_old = turn != self.due && (turn == 0 || turn == self.due.wrapping_sub(self.config.cells));
        if !is_old || self.skips_slots || self.dead.is_some() {
            return false;
        }
        self.publish();
        true
    }

    /// Whether the producer waits for room and must be woken for the cells freed since the last call.
    #[inline]
    pub fn must_ring(&mut self) -> bool {
        if !core::mem::take(&mut self.freed) {
            return false;
        }
        self.cells.light_fence();
        wake(self.cells.producer_waits())
    }

    /// What the producer last passed to [`Producer::offer`](super::Producer::offer); 0 at first.
    pub fn offer(&self) -> u64 {
        self.cells.offer().load(Acquire)
    }

    /// The number of the producer's list of windows; 0: there is none now.
    #[inline(always)]
    pub fn windows(&self) -> u64 {
        self.cells.windows().load(Acquire)
    }

    /// The window of this key in the producer's list, with the list's number (L-25).
    pub fn window(&self, key: u64) -> Option<(u64, ListedWindow)> {
        let number = self.windows();
        let words = |index| core::array::from_fn(|word| self.cells.window(index, word).load(Acquire));
        let mut listed = (0..WINDOWS_MAX).filter_map(|index| ListedWindow::of(words(index)));
        let found = listed.find(|window| window.key == key)?;
        // Else it was about to become another list.
        (number != 0 && self.windows() == number).then_some((number, found))
    }

    /// The list by which the producer writes to this side's memory at the moment; 0: it does not (L-26).
    pub fn putting(&self) -> u64 {
        self.cells.putting().load(Acquire)
    }

    /// The side that copies each part of a message that the producer reads out of this side's memory (L-22).
    pub fn claims(&self) -> &C::Wide {
        self.cells.claims()
    }

    /// Prepares for sleeping until there is a message; `false`: there is one already (or the ring is dead),
    /// don't sleep. May free cells: call [`must_ring`](Self::must_ring) before sleeping.
    pub fn arm(&mut self) -> bool {
        self.raise();
        let sleep = self.cells.heavy_fence() && self.is_empty();
        if !sleep {
            self.disarm();
        }
        sleep
    }

    /// The first half of [`arm`](Self::arm), for a caller that has many rings and makes one heavy fence for
    /// all: sets the sleeping flag. After the fence call [`is_empty`](Self::is_empty).
    pub fn raise(&mut self) {
        self.cells.sleeping().swap(1, Relaxed);
    }

    /// Whether there is no message, nothing is wrong, and a doorbell will come with the next. May free cells,
    /// as [`front`](Self::front).
    pub fn is_empty(&mut self) -> bool {
        // Where there is no memory, one may be there unseen.
        matches!(self.front(), Ok(None)) && !self.skips_slots && !self.no_slot
    }

    /// Ends what [`arm`](Self::arm) began.
    pub fn disarm(&mut self) {
        self.cells.sleeping().swap(0, Relaxed);
    }

    #[inline(always)]
    fn release(&mut self) {
        let head = self.due;
        self.due = head.wrapping_add(1);
        self.cell = if head & self.mask == 0 { self.turn_over() } else { self.cells.next(self.cell) };
        if self.in_annex {
            self.release_annex();
        }
        // Publishing in batches spares the producer, where it waits for room, most of the traffic on this
        // line.
        if head & self.publish_mask == 0 {
            self.publish();
        }
        self.edge_mask = self.mask & self.publish_mask;
    }

    #[cold]
    #[inline(never)]
    fn turn_over(&mut self) -> C::Cell {
        let index = self.due.wrapping_sub(1) & (self.config.cells - 1);
        if index == 0 {
            // The first lap is over, at the latest.
            self.mask = self.config.cells - 1;
        }
        let count = self.config.populated_cells().min(self.config.cells - index);
        self.skips_slots = index != 0 && !self.cells.populate_cells(index, count);
        // Blind, it stays at the last cell, whose content no honest peer changes.
        self.kind = if self.skips_slots { NOTHING } else { IS_SHORT };
        if self.skips_slots { self.cell } else { self.cells.cell(index) }
    }

    #[inline(never)]
    fn release_annex(&mut self) {
        self.in_annex = false;
        self.annex_head = self.annex_head.wrapping_add(1);
        self.slot = if self.slot + 1 == self.config.slots { 0 } else { self.slot + 1 };
        // By quarters.
        if u64::from(self.annex_head.wrapping_sub(self.published.1)) * 4 >= u64::from(self.config.slots) {
            self.publish();
        }
    }

    #[inline]
    fn publish(&mut self) {
        let heads = (self.due.wrapping_sub(1), self.annex_head);
        if heads != self.published {
            self.published = heads;
            self.freed = true;
            self.cells.head().store(u64::from(heads.0) | u64::from(heads.1) << 32, Release);
        }
    }
}

/// What a short message has beside its length, turn and the flags that there are.
const KIND: u64 = First { turn: 0, len: 0, kind: u8::MAX, flags: !Short::FLAGS }.bits();
/// What a short message has of this,
const IS_SHORT: u64 = First { turn: 0, len: 0, kind: SHORT, flags: 0 }.bits();
/// and what no message has.
const NOTHING: u64 = !KIND;

/// Where in its cell the payload of a short message starts; `None`: it lies in the annex.
#[inline(always)]
const fn inline_at(len: u16, flags: u8) -> Option<u32> {
    let extra = short_extra(flags);
    if len as u32 + extra <= SHORT_INLINE_BYTES { Some(SHORT_AT + extra) } else { None }
}

/// A short message with its payload in its cell, not read yet.
#[derive(Debug)]
pub struct Inline<'c, C: Cells> {
    cells: &'c C,
    cell: C::Cell,
    len: u16,
    flags: u8,
}

impl<C: Cells> Inline<'_, C> {
    /// Where the payload is until the message is released.
    #[inline(always)]
    pub fn payload(&self) -> *const u8 {
        self.cells.bytes(self.cells.inline(self.cell, SHORT_AT + short_extra(self.flags)))
    }
}

/// Every word is loaded once (L-12).
impl<C: Cells> ShortSource for Inline<'_, C> {
    #[inline(always)]
    fn bytes(&self) -> u16 {
        self.len
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        self.flags
    }

    #[inline(always)]
    fn counts(&self) -> Counts {
        Counts::of_bits(self.cells.word(self.cell, 1).load(Relaxed))
    }

    #[inline(always)]
    fn tag(&self) -> Option<u64> {
        let tag = self.cells.word(self.cell, 2).load(Relaxed);
        if self.flags & Short::TAGGED == 0 && tag != 0 { None } else { Some(tag) }
    }

    #[inline(always)]
    fn immediate(&self) -> u64 {
        if self.flags & Short::IMMEDIATE != 0 { self.cells.word(self.cell, 3).load(Relaxed) } else { 0 }
    }
}

/// Why a message can't be taken.
#[derive(Debug)]
enum Wrong {
    /// The system has no memory for the annex slot yet.
    NoMemory,
    Ring(RingError),
}

/// The parts of a message that were read: private copies, checked.
#[derive(Debug)]
struct Found<P> {
    short: Option<Short>,
    is_note: bool,
    header_bytes: u32,
    payload_bytes: u32,
    payload: P,
    /// Where in that place the payload starts.
    at: u32,
}

/// The oldest message of a ring. Dropped without [`release`](Self::release) it stays the oldest.
#[derive(Debug)]
pub struct Front<'c, C: Cells> {
    consumer: &'c mut Consumer<C>,
    found: Found<C::Place>,
}

impl<C: Cells> Front<'_, C> {
    /// The header of a short message; `None`: it is a packet.
    pub fn short(&self) -> Option<&Short> {
        self.found.short.as_ref()
    }

    /// Whether it is a note to the rail of this side; its header is the note.
    pub fn is_note(&self) -> bool {
        self.found.is_note
    }

    /// A packet's header: a private copy, nothing else changes it. Empty where it is a short message.
    pub fn header(&self) -> &[u8] {
        &self.consumer.header[..self.found.header_bytes as usize]
    }

    /// Bytes of payload.
    pub fn payload_bytes(&self) -> u32 {
        self.found.payload_bytes
    }

    /// Copies payload bytes, from byte `from` on, to `to`; returns how many there were, at most `len`. The
    /// peer may change the payload while it is copied: what arrives is bytes, no more.
    ///
    /// # Safety
    /// `to` can be written for `len` bytes.
    pub unsafe fn copy_to(&self, from: u32, to: *mut u8, len: usize) -> usize {
        let Found { payload_bytes, payload, at, .. } = self.found;
        let left = payload_bytes.saturating_sub(from);
        let len = len.min(left as usize);
        if len > 0 {
            // SAFETY: the caller vouches for `to`; `from + len <= payload_bytes`, which was checked to end
            // inside the cell or slot.
            unsafe { self.consumer.cells.copy_out(payload, at + from, to, len) };
        }
        len
    }

    /// As [`copy_to`](Self::copy_to), into a slice.
    pub fn read(&self, from: u32, to: &mut [u8]) -> usize {
        // SAFETY: a slice can be written for its length.
        unsafe { self.copy_to(from, to.as_mut_ptr(), to.len()) }
    }

    /// Gives the cell back to the producer. Then call [`Consumer::must_ring`].
    pub fn release(self) {
        self.consumer.release();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    impl<C: Cells> Consumer<C> {
        /// As if `position` messages had passed already, a multiple of the cells, and `annex` annex slots, a
        /// multiple of the slots.
        pub(in crate::shm) fn skip_to(&mut self, position: u32, annex: u32) {
            debug_assert!(position.is_multiple_of(self.config.cells));
            self.due = position.wrapping_add(1);
            self.annex_head = annex;
            self.publish();
            self.freed = false;
        }
    }
}
