//! The ring under loom: every interleaving and every value that the memory model allows, with two cells and
//! two slots.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p rerail-core --lib --release shm::model`
//!
//! The machine is the one that runs over mapped memory; only its cells are loom's. The bytes of cells and
//! slots are in loom's checked cells, so a byte that is written while it may be read, or read before it is
//! written, fails the model; so does a sleeper that is never woken (loom reports the deadlock).
//!
//! The heavy fence is an axiom about the kernel: between its call and its return, each other thread of the
//! two processes passes a sequentially consistent fence, at an arbitrary point of its program, or does not
//! run. So the model's heavy fence requests one from the other thread and waits until that has made it or
//! ended; the other thread checks for the request where it would otherwise make a fence of its own, before
//! that, and behind. loom tries all of these.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering;
use std::sync::Arc;
use std::vec::Vec;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::cells::{Cells, PushError, Word};
use super::claims::{Claimed, OwnerClaims, ReaderClaims};
use super::consumer::Consumer;
use super::layout::{CELL_BYTES, RingConfig};
use super::producer::Producer;
use crate::wire::{Counts, Short};

const CONFIG: RingConfig = RingConfig { cells: 2, slots: 2, slot_bytes: 256 };
/// Of a message that needs the annex.
const LONG: usize = 200;

macro_rules! word {
    ($atomic:ty, $value:ty) => {
        impl Word<$value> for $atomic {
            fn load(&self, order: Ordering) -> $value {
                <$atomic>::load(self, order)
            }

            fn store(&self, value: $value, order: Ordering) {
                <$atomic>::store(self, value, order);
            }

            fn swap(&self, value: $value, order: Ordering) -> $value {
                <$atomic>::swap(self, value, order)
            }

            fn replace(&self, current: $value, value: $value, order: Ordering) -> bool {
                <$atomic>::compare_exchange(self, current, value, order, Ordering::Relaxed).is_ok()
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);

struct Cell {
    words: [AtomicU64; 4],
    /// Bytes from 16 on.
    bytes: UnsafeCell<[u8; CELL_BYTES - 16]>,
}

/// How the two sides see each other's words.
enum Fences {
    /// Both make one.
    Both,
    /// The sleeper makes one for both.
    Heavy {
        requested: AtomicU32,
        made: AtomicU32,
        /// The other thread has ended.
        over: AtomicU32,
    },
    /// The sleeper makes one for itself alone, which is not enough.
    Own,
}

struct Shared {
    head: AtomicU64,
    sleeping: AtomicU32,
    producer_waits: AtomicU32,
    offer: AtomicU64,
    claims: AtomicU64,
    windows: AtomicU64,
    putting: AtomicU64,
    cells: Vec<Cell>,
    slots: Vec<UnsafeCell<[u8; CONFIG.slot_bytes as usize]>>,
    fences: Fences,
}

#[derive(Clone)]
struct Modelled(Arc<Shared>);

#[derive(Clone, Copy, Debug)]
enum Place {
    /// Of this cell, from byte 16 + this on.
    Cell(usize, usize),
    Annex(usize),
}

impl Modelled {
    fn new(fences: Fences) -> Self {
        let word = || AtomicU32::new(0);
        let cell = |_| Cell {
            words: core::array::from_fn(|_| AtomicU64::new(0)),
            bytes: UnsafeCell::new([0; CELL_BYTES - 16]),
        };
        Modelled(Arc::new(Shared {
            head: AtomicU64::new(0),
            sleeping: word(),
            producer_waits: word(),
            offer: AtomicU64::new(0),
            claims: AtomicU64::new(0),
            windows: AtomicU64::new(0),
            putting: AtomicU64::new(0),
            cells: (0..CONFIG.cells).map(cell).collect(),
            slots: (0..CONFIG.slots).map(|_| UnsafeCell::new([0; CONFIG.slot_bytes as usize])).collect(),
            fences,
        }))
    }

    fn heavy() -> Fences {
        Fences::Heavy { requested: AtomicU32::new(0), made: AtomicU32::new(0), over: AtomicU32::new(0) }
    }

    /// A point of the program of the thread that makes no fences: here the kernel may have it make one.
    fn point(&self) {
        if let Fences::Heavy { requested, made, .. } = &self.0.fences
            && requested.swap(0, Ordering::Relaxed) == 1
        {
            fence(Ordering::SeqCst);
            made.store(1, Ordering::Relaxed);
        }
    }

    /// That thread has ended.
    fn end(&self) {
        if let Fences::Heavy { over, .. } = &self.0.fences {
            over.store(1, Ordering::Release);
        }
    }
}

impl Cells for Modelled {
    type Flag = AtomicU32;
    type Wide = AtomicU64;
    type Cell = usize;
    type Place = Place;

    fn config(&self) -> RingConfig {
        CONFIG
    }

    fn head(&self) -> &AtomicU64 {
        &self.0.head
    }

    fn sleeping(&self) -> &AtomicU32 {
        &self.0.sleeping
    }

    fn producer_waits(&self) -> &AtomicU32 {
        &self.0.producer_waits
    }

    fn offer(&self) -> &AtomicU64 {
        &self.0.offer
    }

    fn claims(&self) -> &AtomicU64 {
        &self.0.claims
    }

    fn windows(&self) -> &AtomicU64 {
        &self.0.windows
    }

    fn window(&self, _: usize, _: usize) -> &AtomicU64 {
        unreachable!("the words of a list are guarded by its number, of which the models are")
    }

    fn putting(&self) -> &AtomicU64 {
        &self.0.putting
    }

    fn cell(&self, index: u32) -> usize {
        index as usize
    }

    fn next(&self, cell: usize) -> usize {
        cell + 1
    }

    fn word(&self, cell: usize, index: u32) -> &AtomicU64 {
        &self.0.cells[cell].words[index as usize]
    }

    fn inline(&self, cell: usize, at: u32) -> Place {
        Place::Cell(cell, at as usize - 16)
    }

    fn annex(&self, slot: u32) -> Place {
        Place::Annex(slot as usize)
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn populate_cells(&self, _from: u32, _count: u32) -> bool {
        true
    }

    fn populate_slot(&self, _slot: u32) -> bool {
        true
    }

    fn light_fence(&self) {
        match self.0.fences {
            Fences::Both => fence(Ordering::SeqCst),
            Fences::Heavy { .. } => self.point(),
            Fences::Own => {}
        }
    }

    fn heavy_fence(&self) -> bool {
        fence(Ordering::SeqCst);
        if let Fences::Heavy { requested, made, over } = &self.0.fences {
            requested.swap(1, Ordering::Relaxed);
            while made.swap(0, Ordering::Relaxed) == 0 && over.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            fence(Ordering::SeqCst);
        }
        true
    }

    unsafe fn copy_in(&self, place: Place, at: u32, from: *const u8, len: usize) {
        // SAFETY: the caller vouches for `from`.
        let from = unsafe { core::slice::from_raw_parts(from, len) };
        let at = at as usize;
        match place {
            Place::Cell(cell, start) => self.0.cells[cell].bytes.with_mut(|bytes| {
                // SAFETY: loom fails the model where another thread may hold the cell.
                unsafe { (&mut *bytes)[start + at..][..len].copy_from_slice(from) }
            }),
            Place::Annex(slot) => self.0.slots[slot].with_mut(|bytes| {
                // SAFETY: as above.
                unsafe { (&mut *bytes)[at..][..len].copy_from_slice(from) }
            }),
        }
    }

    unsafe fn copy_out(&self, place: Place, at: u32, to: *mut u8, len: usize) {
        // SAFETY: the caller vouches for `to`; the place has as many bytes.
        unsafe { core::ptr::copy_nonoverlapping(self.bytes(place).add(at as usize), to, len) };
    }

    fn bytes(&self, place: Place) -> *const u8 {
        // The look is what loom checks against the writes before and behind; the bytes are read before the
        // release.
        match place {
            Place::Cell(cell, start) => self.0.cells[cell].bytes.with(|bytes| bytes.cast::<u8>().wrapping_add(start)),
            Place::Annex(slot) => self.0.slots[slot].with(|bytes| bytes.cast::<u8>()),
        }
    }
}

/// Kinds of message; each carries its number wherever it can.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A packet in its cell.
    Packet,
    /// A short message in its cell.
    Short,
    /// A short message with its payload in the annex.
    Annexed,
}

fn short_of(n: u8, len: usize) -> Short {
    Short {
        counts: Counts::new(n.into(), 0, 0),
        tag: n.into(),
        flags: Short::TAGGED,
        len: len as u16,
        ..Short::default()
    }
}

/// `Ok(true)`: the consumer must be woken.
fn push(producer: &mut Producer<Modelled>, kind: Kind, n: u8) -> Result<bool, PushError> {
    let payload = [n; LONG];
    match kind {
        Kind::Packet => {
            // SAFETY: the piece is the payload's first byte, alive through the call.
            unsafe { producer.push(&[n], [(payload.as_ptr(), 1)]) }?;
            Ok(producer.must_ring())
        }
        // SAFETY: the payload is alive through the call.
        Kind::Short => unsafe { producer.push_short(&short_of(n, 1), payload.as_ptr()) },
        // SAFETY: as above.
        Kind::Annexed => unsafe { producer.push_short(&short_of(n, LONG), payload.as_ptr()) },
    }
}

/// The front message, checked to be number `n`, and released; `false`: none there.
fn pop(consumer: &mut Consumer<Modelled>, kind: Kind, n: u8) -> bool {
    let len = match kind {
        Kind::Packet => {
            let Some(front) = consumer.front().expect("an honest ring is never corrupt") else { return false };
            let mut payload = [0];
            assert_eq!((front.header(), front.payload_bytes(), front.short()), (&[n][..], 1, None));
            assert_eq!(front.read(0, &mut payload), 1);
            assert_eq!(payload, [n]);
            front.release();
            return true;
        }
        Kind::Short => 1,
        Kind::Annexed => LONG,
    };
    let Some((short, from)) = consumer.front_word().and_then(|first| consumer.front_short(first)) else {
        // A consumer that finds nothing looks twice, and publishes what it freed.
        assert!(!consumer.has_message() || consumer.front().expect("an honest ring is never corrupt").is_some());
        return false;
    };
    assert_eq!(short, short_of(n, len));
    // SAFETY: the message is not released yet.
    let payload = unsafe { core::slice::from_raw_parts(from, len) };
    assert!(payload.iter().all(|&byte| byte == n));
    consumer.release_short();
    true
}

/// A doorbell that counts as an auto-reset event.
struct Bell(Mutex<bool>, Condvar);

impl Bell {
    fn new() -> Arc<Self> {
        Arc::new(Bell(Mutex::new(false), Condvar::new()))
    }

    fn ring(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.0.lock().unwrap();
        while !*rung {
            rung = self.1.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// Three messages through two cells, both sides polling: each arrives once, whole, in order.
fn nothing_is_lost(kinds: [Kind; 3]) {
    loom::model(move || {
        let cells = Modelled::new(Fences::Both);
        let (mut producer, mut consumer) = (Producer::over(cells.clone()), Consumer::over(cells));
        let sender = thread::spawn(move || {
            for (n, kind) in (1..).zip(kinds) {
                while let Err(error) = push(&mut producer, kind, n) {
                    assert_eq!(error, PushError::Full);
                    thread::yield_now();
                }
            }
        });
        for (n, kind) in (1..).zip(kinds) {
            while !pop(&mut consumer, kind, n) {
                thread::yield_now();
            }
        }
        assert!(!consumer.has_message());
        sender.join().unwrap();
    });
}

#[test]
fn no_packet_is_lost_duplicated_or_torn() {
    nothing_is_lost([Kind::Packet; 3]);
}

#[test]
fn no_short_message_is_lost_duplicated_or_torn() {
    nothing_is_lost([Kind::Short; 3]);
}

#[test]
fn no_annex_slot_is_used_too_early() {
    nothing_is_lost([Kind::Annexed; 3]);
}

#[test]
fn kinds_follow_each_other() {
    nothing_is_lost([Kind::Short, Kind::Packet, Kind::Annexed]);
}

/// A consumer that sleeps whenever it finds nothing gets every message. With the heavy fence, which
/// multiplies the states by its waiting, the test uses one.
fn the_consumer_wakes(fences: fn() -> Fences, kind: Kind, messages: u8) {
    loom::model(move || {
        let cells = Modelled::new(fences());
        let (mut producer, mut consumer) = (Producer::over(cells.clone()), Consumer::over(cells.clone()));
        let bell = Bell::new();
        let theirs = bell.clone();
        let sender = thread::spawn(move || {
            for n in 1..=messages {
                cells.point();
                if push(&mut producer, kind, n).unwrap() {
                    theirs.ring();
                }
            }
            cells.point();
            cells.end();
        });
        for n in 1..=messages {
            while !pop(&mut consumer, kind, n) {
                if consumer.arm() {
                    bell.wait();
                    consumer.disarm();
                }
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn no_wake_up_of_the_consumer_is_lost() {
    the_consumer_wakes(|| Fences::Both, Kind::Packet, 2);
    the_consumer_wakes(|| Fences::Both, Kind::Short, 2);
}

#[test]
fn no_wake_up_of_the_consumer_is_lost_with_the_heavy_fence() {
    the_consumer_wakes(Modelled::heavy, Kind::Short, 1);
}

/// That the model can fail: without the other side's fence a sleeper is missed.
#[test]
#[should_panic(expected = "deadlock")]
fn missing_producer_fence_loses_a_consumer_wake_up() {
    the_consumer_wakes(|| Fences::Own, Kind::Short, 1);
}

/// A producer that sleeps whenever the ring is full gets every cell and slot back; as many as are needed.
fn the_producer_wakes(fences: fn() -> Fences, kind: Kind, messages: u8) {
    loom::model(move || {
        let cells = Modelled::new(fences());
        let (mut producer, mut consumer) = (Producer::over(cells.clone()), Consumer::over(cells.clone()));
        push(&mut producer, kind, 1).unwrap();
        push(&mut producer, kind, 2).unwrap();
        let bell = Bell::new();
        let theirs = bell.clone();
        let receiver = thread::spawn(move || {
            for n in 1..=messages {
                cells.point();
                assert!(pop(&mut consumer, kind, n));
                if consumer.must_ring() {
                    theirs.ring();
                }
            }
            cells.point();
            cells.end();
        });
        for n in 3..3 + messages {
            while let Err(error) = push(&mut producer, kind, n) {
                assert_eq!(error, PushError::Full);
                if producer.arm() {
                    bell.wait();
                    producer.disarm();
                }
            }
        }
        receiver.join().unwrap();
    });
}

#[test]
fn no_wake_up_of_the_producer_is_lost() {
    the_producer_wakes(|| Fences::Both, Kind::Short, 2);
    the_producer_wakes(|| Fences::Both, Kind::Annexed, 2);
}

#[test]
fn no_wake_up_of_the_producer_is_lost_with_the_heavy_fence() {
    the_producer_wakes(Modelled::heavy, Kind::Short, 1);
}

/// That the model can fail: without the other side's fence a sleeper is missed.
#[test]
#[should_panic(expected = "deadlock")]
fn missing_consumer_fence_loses_a_producer_wake_up() {
    the_producer_wakes(|| Fences::Own, Kind::Short, 1);
}

/// Both sides copy units of a message (L-22), each into a checked cell; the owner reports what it has
/// written (L-23), and the reader withdraws the rest after `most` claims of its own. No unit is written by
/// both, and what counts as complete is there.
fn both_copy(units: u32, most: u32) {
    loom::model(move || {
        let word = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let bytes: Arc<Vec<UnsafeCell<u8>>> = Arc::new((0..units).map(|_| UnsafeCell::new(0)).collect());
        let mut reader = ReaderClaims::offer(&word.0, 1, units);
        let (theirs, target) = (word.clone(), bytes.clone());
        let owner = thread::spawn(move || {
            let mut owner = OwnerClaims::new(1, units).unwrap();
            while let Some(Claimed { first, count }) = owner.take(&theirs.0, |_| 1) {
                for unit in first..first + count {
                    // SAFETY: loom fails the model where the other side may write it, too.
                    target[unit as usize].with_mut(|byte| unsafe { *byte = 2 });
                }
                theirs.1.store(owner.token(), Ordering::Release);
            }
            owner.leave(&theirs.0);
        });
        for _ in 0..most {
            let Some(Claimed { first, count }) = reader.take(&word.0, |_| 1).unwrap() else { break };
            for unit in first..first + count {
                // SAFETY: as above.
                bytes[unit as usize].with_mut(|byte| unsafe { *byte = 1 });
            }
        }
        reader.withdraw(&word.0).unwrap();
        let finished = loop {
            reader.read_state(&word.0).unwrap();
            let finished = word.1.load(Ordering::Acquire);
            if reader.back() == 0 || finished == reader.token() {
                break finished;
            }
            thread::yield_now();
        };
        let split = (reader.front(), if reader.back() == 0 { units } else { reader.finished_from(finished) });
        for (unit, byte) in bytes.iter().enumerate() {
            // SAFETY: as above.
            let byte = byte.with(|byte| unsafe { *byte });
            let expected = if (unit as u32) < split.0 { 1 } else { u8::from(unit as u32 >= split.1) * 2 };
            assert_eq!(byte, expected, "unit {unit} of {units}, {split:?}");
        }
        // The next message: the owner, late, has no effect on it.
        let mut next = ReaderClaims::offer(&word.0, 2, units);
        assert_eq!(next.take(&word.0, |_| units), Ok(Some(Claimed { first: 0, count: units })));
        owner.join().unwrap();
        assert_eq!(next.read_state(&word.0).map(|_| (next.back(), next.has_left())), Ok((0, false)));
    });
}

#[test]
fn each_unit_is_copied_by_one_side() {
    both_copy(3, 3);
    both_copy(3, 1);
}

/// A reader copies out of memory that its owner offers (L-18, L-20), while the owner withdraws it and gives
/// it another use. `fence_of_owner`: it makes the fence between the two.
fn the_owner_withdraws(fence_of_owner: bool) {
    loom::model(move || {
        let cells = Modelled::new(Fences::Both);
        let (mut owner, reader) = (Producer::over(cells.clone()), Consumer::over(cells));
        let byte = Arc::new(AtomicU32::new(1));
        owner.offer(1);
        let theirs = byte.clone();
        let thread = thread::spawn(move || {
            owner.offer(2);
            if fence_of_owner {
                fence(Ordering::SeqCst);
            }
            theirs.store(2, Ordering::Relaxed);
        });
        if reader.offer() == 1 {
            let copied = byte.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            assert!(reader.offer() != 1 || copied == 1, "a copy counts that has another use's bytes");
        }
        thread.join().unwrap();
    });
}

#[test]
fn a_copy_out_of_a_mapping_that_counts_has_the_bytes_of_the_offer() {
    the_owner_withdraws(true);
}

/// That the model can fail.
#[test]
#[should_panic(expected = "another use's bytes")]
fn missing_owner_fence_lets_a_reader_copy_reused_memory() {
    the_owner_withdraws(false);
}

/// A peer puts into a window while its owner removes that from its list and gives the memory another use, if
/// no put is announced (L-26, L-27). `fence_of_owner`: it makes the fence between the two; `heavy`: that is
/// the one for both sides. loom finds an access to the memory by both at once.
fn the_window_is_withdrawn(fence_of_owner: bool, heavy: bool) {
    loom::model(move || {
        let fences = || if heavy { Modelled::heavy() } else { Fences::Both };
        // What the owner writes, and what the peer writes.
        let (own, theirs) = (Modelled::new(Fences::Own), Modelled::new(fences()));
        own.windows().store(1, Ordering::Release);
        let memory = Arc::new(UnsafeCell::new(0));
        let (list, cells, target) = (Consumer::over(own.clone()), theirs.clone(), memory.clone());
        let thread = thread::spawn(move || {
            let mut peer = Producer::over(cells.clone());
            peer.begin_put(1);
            if list.windows() == 1 {
                target.with_mut(|bytes| unsafe { *bytes = 1 });
            }
            peer.end_put();
            cells.end();
        });
        own.windows().store(2, Ordering::Release);
        let is_passed = if fence_of_owner { theirs.heavy_fence() } else { true };
        if is_passed && Consumer::over(theirs).putting() == 0 {
            memory.with_mut(|bytes| unsafe { *bytes = 2 });
        }
        thread.join().unwrap();
    });
}

#[test]
fn no_put_reaches_a_window_that_was_released() {
    the_window_is_withdrawn(true, false);
    the_window_is_withdrawn(true, true);
}

/// That the model can fail.
#[test]
#[should_panic]
fn missing_owner_fence_lets_a_put_reach_released_memory() {
    the_window_is_withdrawn(false, false);
}
