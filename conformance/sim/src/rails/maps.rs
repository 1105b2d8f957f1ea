//! Memory that simulated ranks map of each other (L-18 to L-20): lists, numbers and checks are those of
//! `rerail_core::shm`; files, mappings and the sockets that carry them are played here.
//!
//! A copy out of a mapping is begun in one poll and made in the next one, whatever became of its owner
//! meanwhile, as by a thread that was stopped between its look at the number and the copy. What a range holds
//! once it was withdrawn is any bytes. A range that is offered gets the lowest address that is free, so that
//! addresses come again as soon as they can.
//!
//! Faults, as the seed draws them: files that may not be mapped (a copy out of one ends the simulation),
//! mappings that the system refuses, descriptors that are lost, sockets that take nothing, a budget.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use rerail_core::shm::{FileFacts, ListAnswer, ListNumber, ListReader, OFFERS_MAX, OfferedRange};
use rerail_linux::rail::Piece;

use super::hub::Hub;
use super::memory::copy_granted;

/// How ranks map each other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapModel {
    /// Bytes that a rank maps of a peer.
    pub bytes_max: u64,
    /// One file in so many may not be mapped; 0: none.
    pub unsafe_one_in: u64,
    /// One mapping in so many is refused by the system, one descriptor is lost; 0: none.
    pub refused_one_in: u64,
    /// One datagram in so many is not taken by its socket at first; 0: none.
    pub busy_one_in: u64,
}

/// What became of mapped memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCounts {
    /// Lists that came whole.
    pub lists: u64,
    /// Copies that counted.
    pub copies: u64,
    /// Copies that did not.
    pub stale: u64,
    /// Puts and gets that ranks carried out themselves (L-26).
    pub direct: u64,
    /// Gets out of windows that are not mapped, which ranks carried out themselves (L-28).
    pub gets: u64,
    /// Windows that could not be released at once, for a put was under way (L-27).
    pub held: u64,
    /// Files that were not mapped because that is not safe.
    pub unsafe_files: u64,
    /// Mappings that were refused, descriptors that were lost, ranges beyond the budget.
    pub refused: u64,
}

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    NoMemory,
    Shrinks,
    Unsealed,
    Short,
    Holes,
}

const DEFECTS: [Defect; 5] = [Defect::NoMemory, Defect::Shrinks, Defect::Unsealed, Defect::Short, Defect::Holes];

/// The file of a range.
#[derive(Debug)]
pub(super) struct File {
    /// Where its bytes are; `None`: its owner has given them back.
    memory: Cell<Option<Piece>>,
    bytes: u64,
    /// It may be mapped for writing.
    is_writable: bool,
    defect: Option<Defect>,
}

impl File {
    fn facts(&self) -> FileFacts {
        let is_not = |defect| self.defect != Some(defect);
        FileFacts {
            is_memory: is_not(Defect::NoMemory),
            keeps_its_bytes: is_not(Defect::Shrinks),
            is_sealed: is_not(Defect::Unsealed),
            bytes: self.bytes - u64::from(self.defect == Some(Defect::Short)),
            allocated: self.bytes - u64::from(self.defect == Some(Defect::Holes)),
        }
    }

    /// Fills pieces with `len` bytes.
    fn copy(&self, offset: usize, len: usize, pieces: &mut VecDeque<Piece>) {
        assert_eq!(self.defect, None, "a rank is ended by a signal: it reads a mapped file whose bytes may go");
        assert!((offset + len) as u64 <= self.bytes, "a rank is ended by a signal: it reads behind a mapped file");
        let gone = vec![0xDB; len];
        let source = match self.memory.get() {
            Some(memory) => memory.start.wrapping_add(offset),
            None => gone.as_ptr().cast_mut(),
        };
        copy_granted(Piece { start: source, len }, pieces);
    }
}

#[derive(Debug)]
struct Offer {
    range: OfferedRange,
    memory: Piece,
    file: Rc<File>,
}

/// The memory that a rank offers.
#[derive(Debug, Default)]
pub(super) struct Offers {
    list: Vec<Offer>,
    number: ListNumber,
}

/// No memory has such an address.
const ADDRESSES: u64 = 1 << 62;
/// Between two of them.
const STRIDE: u64 = 1 << 40;

impl Offers {
    pub(super) fn number(&self) -> u64 {
        self.number.of_ring(self.list.len())
    }

    /// One more; `false`: there are too many.
    pub(super) fn add(&mut self, memory: Piece, is_writable: bool, defect: Option<u64>) -> bool {
        if self.list.len() >= OFFERS_MAX {
            return false;
        }
        let starts = (0..).map(|index| ADDRESSES + index * STRIDE);
        let is_free = |start: &u64| self.list.iter().all(|offer| offer.range.start != *start);
        let range = OfferedRange { start: starts.into_iter().find(is_free).unwrap_or(0), bytes: memory.len as u64 };
        let defect = defect.map(|drawn| DEFECTS[drawn as usize % DEFECTS.len()]);
        let file = Rc::new(File { memory: Cell::new(Some(memory)), bytes: range.bytes, is_writable, defect });
        self.list.push(Offer { range, memory, file });
        self.number.change();
        true
    }

    /// Withdraws a range; whether it was offered.
    pub(super) fn withdraw(&mut self, memory: Piece) -> bool {
        let is_it = |offer: &Offer| (offer.memory.start, offer.memory.len) == (memory.start, memory.len);
        let Some(index) = self.list.iter().position(is_it) else { return false };
        self.list.remove(index).file.memory.set(None);
        self.number.change();
        true
    }

    /// The rank has no memory any more.
    pub(super) fn clear(&mut self) {
        self.list.drain(..).for_each(|offer| offer.file.memory.set(None));
    }

    /// The address by which peers name memory.
    pub(super) fn address_of(&self, memory: Piece) -> u64 {
        let address = memory.start.addr() as u64;
        let found = self.list.iter().find_map(|offer| {
            let own = OfferedRange { start: offer.memory.start.addr() as u64, bytes: offer.range.bytes };
            Some(offer.range.start + own.offset_of(address, memory.len)? as u64)
        });
        found.unwrap_or(address)
    }

    /// The range of a part of memory that is offered, by the addresses of [`address_of`](Self::address_of),
    /// and whether it may be mapped for writing.
    pub(super) fn find(&self, part: Piece) -> Option<(OfferedRange, bool)> {
        self.list.iter().find_map(|offer| {
            let own = OfferedRange { start: offer.memory.start.addr() as u64, bytes: offer.range.bytes };
            let start = offer.range.start + own.offset_of(part.start.addr() as u64, part.len)? as u64;
            Some((OfferedRange { start, bytes: part.len as u64 }, offer.file.is_writable))
        })
    }

    fn answer(&self, index: u32) -> Answer {
        let number = self.number.of_answer();
        match self.list.get(index as usize) {
            None => (ListAnswer { number, ..ListAnswer::default() }, None),
            Some(offer) => {
                let left = self.list.len() as u32 - 1 - index;
                (ListAnswer { number, range: offer.range, left, has_file: true }, Some(offer.file.clone()))
            }
        }
    }
}

type Answer = (ListAnswer, Option<Rc<File>>);

/// What sockets hold of both sides' requests, for one of them.
#[derive(Debug, Default)]
pub(super) struct Mail {
    /// The index that the peer has requested.
    request: Cell<Option<u32>>,
    answer: RefCell<Option<Answer>>,
}

/// What a rank has mapped of a peer.
#[derive(Debug, Default)]
pub(super) struct Maps {
    reader: ListReader,
    maps: Vec<(OfferedRange, Rc<File>)>,
    /// Of the list that is coming.
    coming: Vec<(OfferedRange, Rc<File>)>,
}

impl Maps {
    /// Something is to be read.
    pub(super) fn meet(&mut self, hub: &Hub, number: u64) {
        if hub.maps.is_some_and(|model| model.bytes_max > 0) {
            self.reader.meet(number);
        }
    }

    /// Takes what has come, sends what is due. Returns how many things happened, and whether something waits
    /// for a socket; `Err`: the peer is not honest.
    pub(super) fn tend(
        &mut self,
        hub: &mut Hub,
        number: u64,
        (near, far): (&Mail, &Mail),
        (rank, peer): (u32, u32),
    ) -> Result<(usize, bool), ()> {
        let Some(model) = hub.maps else { return Ok((0, false)) };
        if !self.reader.is_of(number) {
            self.maps.clear();
        }
        let (mut things, mut waits) = (0, false);
        if let Some(answer) = near.answer.take() {
            things += 1;
            self.take(hub, answer, &model)?;
        }
        if let Some(index) = self.reader.due() {
            waits = hub.draws(model.busy_one_in);
            if !waits {
                far.request.set(Some(index));
                self.reader.request();
                things += 1;
            }
        }
        if let Some(index) = near.request.get() {
            let is_busy = hub.draws(model.busy_one_in);
            waits |= is_busy;
            if !is_busy {
                near.request.set(None);
                far.answer.replace(Some(hub.offers[rank as usize].answer(index)));
                things += 1;
            }
        }
        if things > 0 {
            hub.ring(rank, peer);
        }
        Ok((things, waits))
    }

    fn take(&mut self, hub: &mut Hub, (mut answer, file): Answer, model: &MapModel) -> Result<(), ()> {
        let is_lost = file.is_some() && hub.draws(model.refused_one_in);
        answer.has_file &= !is_lost;
        let taken = self.reader.take(&answer, is_lost).ok_or(())?;
        if taken.is_first {
            self.coming.clear();
        }
        let mapped: u64 = self.coming.iter().map(|(range, _)| range.bytes).sum();
        let is_within = mapped.saturating_add(answer.range.bytes) <= model.bytes_max;
        if let Some(file) = file.filter(|_| taken.is_wanted && is_within) {
            let is_safe = file.facts().may_be_mapped(answer.range.bytes);
            let is_refused = is_safe && hub.draws(model.refused_one_in);
            hub.mapped.unsafe_files += u64::from(!is_safe);
            hub.mapped.refused += u64::from(is_refused);
            if is_safe && !is_refused {
                self.coming.push((answer.range, file));
            }
        } else if answer.range.bytes > 0 {
            hub.mapped.refused += 1;
        }
        if taken.is_last {
            self.maps = std::mem::take(&mut self.coming);
            hub.mapped.lists += 1;
        }
        Ok(())
    }

    fn find(&self, from: u64, len: usize) -> Option<(usize, &Rc<File>)> {
        self.maps.iter().find_map(|(range, file)| Some((range.offset_of(from, len)?, file)))
    }

    /// Whether so many bytes at `from` are mapped.
    pub(super) fn has(&self, from: u64, len: usize) -> bool {
        self.find(from, len).is_some()
    }

    /// Where they are mapped, by the list of this number, and whether for writing; `None`: they are not, or
    /// their owner is gone.
    pub(super) fn direct(&self, number: u64, from: u64, len: usize) -> Option<(Piece, bool)> {
        let (offset, file) = self.find(from, len).filter(|_| self.reader.is_of(number))?;
        let memory = file.memory.get()?;
        Some((Piece { start: memory.start.wrapping_add(offset), len }, file.is_writable))
    }

    /// Whether they may be copied out of the mapping; `number` is the ring's.
    pub(super) fn may_copy(&self, number: u64, from: u64, len: usize) -> bool {
        self.reader.is_of(number) && self.has(from, len)
    }

    /// Copies them, and takes what is filled off the pieces; whether that counts. Else the pieces stay, with
    /// any bytes.
    pub(super) fn copy(
        &self,
        hub: &mut Hub,
        number: impl FnOnce() -> u64,
        (from, len): (u64, usize),
        pieces: &mut VecDeque<Piece>,
    ) -> bool {
        let Some((offset, file)) = self.find(from, len) else { return false };
        let before = pieces.clone();
        file.copy(offset, len, pieces);
        let counts = self.reader.counts(number);
        if !counts {
            *pieces = before;
        }
        hub.mapped.copies += u64::from(counts);
        hub.mapped.stale += u64::from(!counts);
        counts
    }
}
