//! The ring on ordinary memory: layout, refusals, hostile words, the oracle, and two real threads.

use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;

use rerail_core::shm::{AttachError, CELLS_MAX, Mapped, Producer, PushError, RingConfig, RingError, SLOTS_MAX};
use rerail_core::wire::{Counts, Short};
use rerail_testkit::shm::{
    CELL_BYTES, CELLS_AT, CONSTANTS_AT, End, HEAD_AT, Memory, NOTE, PACKET, SHORT, front_short, push, push_short,
    read_all, run, short_message,
};

const SMALL: RingConfig = RingConfig { cells: 4, slots: 4, slot_bytes: 512 };

/// Where the annex of a ring starts (L-11).
const fn annex_at(config: RingConfig) -> usize {
    CELLS_AT + CELL_BYTES * config.cells as usize
}

#[test]
fn configurations_out_of_range_are_refused_by_field() {
    let refused = |cells, slots, slot_bytes| RingConfig { cells, slots, slot_bytes }.check().unwrap_err().field;
    for cells in [0, 1, 3, 48, 2 * CELLS_MAX, u32::MAX] {
        assert_eq!(refused(cells, 2, 512), "cells");
    }
    assert_eq!(refused(2, 1, 512), "slots");
    assert_eq!(refused(2, SLOTS_MAX + 1, 512), "slots");
    assert_eq!(refused(2, 2, 240), "slot_bytes");
    assert_eq!(refused(2, 2, 257), "slot_bytes");
    assert_eq!(refused(2, 2, u32::MAX), "slot_bytes");
    assert_eq!(RingConfig { cells: CELLS_MAX, slots: SLOTS_MAX, slot_bytes: 1 << 24 }.check(), Ok(()));
}

#[test]
fn attaching_checks_size_alignment_and_constants() {
    let memory = Memory::new(SMALL);
    let _consumer = memory.consumer(SMALL);
    // SAFETY: the memory lives to the end of the test and is used through rings only.
    let attach = |skip: usize, len, config| unsafe { Producer::attach(memory.base().add(skip), len, config) }.err();
    let needed = memory.len;
    assert_eq!(attach(0, needed - 1, SMALL), Some(AttachError::TooSmall { needed, given: needed - 1 }));
    let smaller = RingConfig { slots: 2, ..SMALL };
    let fewer = RingConfig { cells: 2, ..SMALL };
    assert_eq!(attach(8, needed - 8, smaller), Some(AttachError::Misaligned { off_by: 8 }));
    assert_eq!(attach(0, needed, smaller), Some(AttachError::Constant { field: "slots", found: 4, expected: 2 }));
    assert_eq!(attach(0, needed, fewer), Some(AttachError::Constant { field: "cells", found: 4, expected: 2 }));
    assert_eq!(attach(0, needed, SMALL), None);
    memory.word(CONSTANTS_AT).store(0, Relaxed);
    assert!(matches!(attach(0, needed, SMALL), Some(AttachError::Constant { field: "magic", found: 0, .. })));
}

#[test]
fn oversized_message_leaves_the_ring_unchanged() {
    let memory = Memory::new(SMALL);
    let (mut consumer, mut producer) = (memory.consumer(SMALL), memory.producer(SMALL));
    assert_eq!(push(&mut producer, &[1; 17], &[2; 481]), Err(PushError::TooLong { bytes: 32 + 481, max: 512 }));
    assert!(matches!(push(&mut producer, &[1; 257], &[]), Err(PushError::TooLong { bytes: 272, .. })));
    assert!(consumer.front().unwrap().is_none());
    assert_eq!(push(&mut producer, &[1; 17], &[2; 480]), Ok(()));
    assert_eq!(read_all(&consumer.front().unwrap().unwrap(), 7), [2; 480]);
}

#[test]
fn unreleased_front_stays_and_a_full_ring_refuses_pushes() {
    let memory = Memory::new(SMALL);
    let (mut consumer, mut producer) = (memory.consumer(SMALL), memory.producer(SMALL));
    for n in 0..4 {
        push(&mut producer, &[n], &[]).unwrap();
    }
    assert_eq!(push(&mut producer, &[9], &[]), Err(PushError::Full));
    assert_eq!(consumer.front().unwrap().unwrap().header(), [0]);
    assert_eq!(consumer.front().unwrap().unwrap().header(), [0]);
    assert_eq!(producer.room(), Ok(0));
    consumer.front().unwrap().unwrap().release();
    assert_eq!(producer.room(), Ok(1));
    assert_eq!(consumer.front().unwrap().unwrap().header(), [1]);
}

/// L-13
#[test]
fn flags_make_one_doorbell_each() {
    let memory = Memory::new(SMALL);
    let (mut consumer, mut producer) = (memory.consumer(SMALL), memory.producer(SMALL));
    push(&mut producer, &[1], &[]).unwrap();
    assert!(!producer.must_ring(), "the consumer is awake");
    assert!(!consumer.arm(), "a message is there");
    consumer.front().unwrap().unwrap().release();
    assert!(consumer.arm());
    push(&mut producer, &[2], &[]).unwrap();
    assert!(producer.must_ring());
    assert!(!producer.must_ring(), "it was rung for already");
    for n in 3..6 {
        push(&mut producer, &[n], &[]).unwrap();
    }
    assert!(!consumer.must_ring(), "the producer does not sleep");
    assert!(producer.arm(), "the ring is full");
    assert!(!consumer.must_ring(), "nothing was freed");
    consumer.front().unwrap().unwrap().release();
    assert!(consumer.must_ring());
    assert!(!producer.arm(), "there is room");
}

/// L-12
#[test]
fn length_beyond_cell_or_slot_is_a_ring_error() {
    for (header, payload, field) in [
        (257, 0, "header_bytes"),
        (u16::MAX, 0, "header_bytes"),
        (0, 513, "payload_bytes"),
        (17, 481, "payload_bytes"),
        (256, u64::from(u32::MAX), "payload_bytes"),
        (1, u64::from(u32::MAX) - 15, "payload_bytes"),
        (1, 1 << 32, "payload_bytes"),
        (0, u64::MAX - 7, "payload_bytes"),
    ] {
        let value = if field == "header_bytes" { header.into() } else { payload.min(u32::MAX.into()) as u32 };
        dies(RingError { field, value }, |memory| {
            memory.wide(CELLS_AT + 8).store(payload, Relaxed);
            memory.publish(SMALL, 0, header, PACKET, 0);
        });
    }
    // A note has no payload (L-21).
    dies(RingError { field: "payload_bytes", value: 1 }, |memory| {
        memory.wide(CELLS_AT + 8).store(1, Relaxed);
        memory.publish(SMALL, 0, 8, NOTE, 0);
    });
    for len in [513, u16::MAX] {
        dies(RingError { field: "short_bytes", value: len.into() }, |memory| {
            memory.publish(SMALL, 0, len, SHORT, 0);
        });
    }
}

/// L-12
#[test]
fn kinds_flags_and_tags_that_no_honest_peer_writes_kill_the_ring() {
    for kind in [0, 4, u8::MAX] {
        dies(RingError { field: "kind", value: kind.into() }, |memory| memory.publish(SMALL, 0, 8, kind, 0));
    }
    for flags in [4, 0x80, u8::MAX] {
        dies(RingError { field: "flags", value: flags.into() }, |memory| memory.publish(SMALL, 0, 8, SHORT, flags));
        dies(RingError { field: "flags", value: flags.into() }, |memory| memory.publish(SMALL, 0, 8, PACKET, flags));
        dies(RingError { field: "flags", value: flags.into() }, |memory| memory.publish(SMALL, 0, 8, NOTE, flags));
    }
    for flags in [0, Short::IMMEDIATE] {
        dies(RingError { field: "tag", value: 5 }, |memory| {
            memory.wide(CELLS_AT + 16).store(5, Relaxed);
            memory.publish(SMALL, 0, 8, SHORT, flags);
        });
    }
}

/// The write of `write` to the first cell kills the ring with `error`, and not before; the fast path finds
/// nothing.
fn dies(error: RingError, write: impl FnOnce(&Memory)) {
    let memory = Memory::new(SMALL);
    let mut consumer = memory.consumer(SMALL);
    assert!(consumer.front().unwrap().is_none() && !consumer.has_message());
    write(&memory);
    assert_eq!((consumer.has_message(), front_short(&mut consumer)), (true, None), "{error:?}");
    assert_eq!(consumer.front().unwrap_err(), error);
    memory.publish(SMALL, 0, 0, SHORT, Short::TAGGED);
    assert_eq!(consumer.front().unwrap_err(), error, "dead is dead");
    assert_eq!(front_short(&mut consumer), None, "dead is dead");
    memory.publish(SMALL, 0, 0, 0, 0);
    assert_eq!(front_short(&mut consumer), None, "dead is dead, for what has no kind as well");
    assert!(!consumer.arm());
}

/// L-12
#[test]
fn a_turn_number_that_is_neither_old_nor_due_kills_the_ring() {
    // 0: never written; 1 - cells: a lap ago, counted from before the start.
    for turn in [0, 1u32.wrapping_sub(SMALL.cells)] {
        let memory = Memory::new(SMALL);
        let mut consumer = memory.consumer(SMALL);
        memory.publish(SMALL, 0, 8, SHORT, 0);
        memory.word(CELLS_AT).store(turn, Relaxed);
        assert!(consumer.front().unwrap().is_none() && !consumer.has_message());
    }
    for turn in [2, 5, u32::MAX] {
        let memory = Memory::new(SMALL);
        let mut consumer = memory.consumer(SMALL);
        memory.word(CELLS_AT).store(turn, Relaxed);
        let error = RingError { field: "turn", value: turn };
        // The fast path sees nothing, and leaves it at that.
        assert_eq!((consumer.has_message(), front_short(&mut consumer)), (false, None));
        assert_eq!(consumer.front().unwrap_err(), error);
        memory.publish(SMALL, 0, 8, SHORT, 0);
        assert_eq!(front_short(&mut consumer), None, "dead is dead");
        assert_eq!(consumer.front().unwrap_err(), error);
        assert!(!consumer.arm());
    }
}

/// L-12
#[test]
fn a_head_that_jumps_kills_the_ring() {
    for head in [5, u32::MAX, 1 << 31] {
        let memory = Memory::new(SMALL);
        let mut producer = producer_of_fresh(&memory);
        for n in 0..4 {
            push(&mut producer, &[n], &[]).unwrap();
        }
        memory.word(HEAD_AT).store(head, Relaxed);
        assert_eq!(push(&mut producer, &[4], &[]), Err(PushError::Corrupt(RingError { field: "head", value: head })));
        memory.word(HEAD_AT).store(4, Relaxed);
        assert!(producer.room().is_err() && producer.short_room().is_err(), "dead is dead");
        assert!(push_short(&mut producer, &Short::default(), &[1]).is_err());
        assert!(!producer.arm());
    }
    // The annex has a head of its own.
    for annex_head in [3, u32::MAX] {
        let memory = Memory::new(SMALL);
        let mut producer = producer_of_fresh(&memory);
        for n in 0..2 {
            push(&mut producer, &[n], &[n; 200]).unwrap();
        }
        for n in 2..4 {
            push(&mut producer, &[n], &[]).unwrap();
        }
        memory.word(HEAD_AT).store(1, Relaxed);
        memory.word(HEAD_AT + 4).store(annex_head, Relaxed);
        let error = RingError { field: "annex_head", value: annex_head };
        assert_eq!(producer.short_room(), Err(error));
        assert_eq!(producer.room(), Err(error), "dead is dead");
    }
    // Back is as bad as too far.
    let memory = Memory::new(SMALL);
    let mut producer = producer_of_fresh(&memory);
    for n in 0..4 {
        push(&mut producer, &[n], &[]).unwrap();
    }
    memory.word(HEAD_AT).store(4, Relaxed);
    for n in 0..4 {
        push(&mut producer, &[n], &[]).unwrap();
    }
    memory.word(HEAD_AT).store(3, Relaxed);
    assert_eq!(producer.room(), Err(RingError { field: "head", value: 3 }));
}

fn producer_of_fresh(memory: &Memory) -> End<Producer<Mapped>> {
    let _ = memory.consumer(SMALL);
    memory.producer(SMALL)
}

/// W-29, L-11: the bytes of a cell, one by one. Its words are in the machine's order, so this is one of
/// little-endian ones.
#[cfg(target_endian = "little")]
#[test]
fn a_cell_has_these_bytes() {
    let memory = Memory::new(SMALL);
    let (_consumer, mut producer) = (memory.consumer(SMALL), memory.producer(SMALL));
    let short = Short {
        counts: Counts::new(0x0403_0201, 0x0605, 0x0807),
        tag: 0x1817_1615_1413_1211,
        immediate: 0x2827_2625_2423_2221,
        len: 0,
        flags: Short::TAGGED | Short::IMMEDIATE,
    };
    push_short(&mut producer, &short, b"payload").unwrap();
    push_short(&mut producer, &Short { immediate: 0, flags: Short::TAGGED, ..short }, b"pay").unwrap();
    push(&mut producer, b"header", b"payload").unwrap();
    let bytes = |cell: usize, len| -> Vec<u8> {
        (0..len).map(|i| memory.word(CELLS_AT + 192 * cell + i / 4 * 4).load(Relaxed).to_le_bytes()[i % 4]).collect()
    };
    let words = [1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
    let immediate = [0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28];
    assert_eq!(bytes(0, 39), [&[1, 0, 0, 0, 7, 0, 1, 3], &words[..], &immediate, b"payload"].concat());
    assert_eq!(bytes(1, 27), [&[2, 0, 0, 0, 3, 0, 1, 1], &words[..], b"pay"].concat());
    producer.push_note(b"note").unwrap();
    assert_eq!(bytes(3, 20), [&[4, 0, 0, 0, 4, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], b"note"].concat());
    let packet = [&[3, 0, 0, 0, 6, 0, 2, 0, 7, 0, 0, 0, 0, 0, 0, 0][..], b"header\0\0payload"].concat();
    assert_eq!(bytes(2, 31), packet);
}

/// W-29, L-11: a message that fits its cell leaves the annex alone, and one byte more doesn't.
#[test]
fn message_that_fits_its_cell_does_not_use_the_annex() {
    let tagged = Short { tag: 7, flags: Short::TAGGED, ..Short::default() };
    let immediate = Short { immediate: 9, flags: Short::IMMEDIATE, ..Short::default() };
    for (short, most) in [(Short::default(), 168), (tagged, 168), (immediate, 160)] {
        for len in [0, 1, 8, 40, most, most + 1, 512] {
            let memory = Memory::new(SMALL);
            let (mut consumer, mut producer) = (memory.consumer(SMALL), memory.producer(SMALL));
            let payload: Vec<u8> = (1..=len).map(|i| i as u8 | 1).collect();
            assert_eq!(push_short(&mut producer, &short, &payload), Ok(false));
            let annexed = memory.wide(annex_at(SMALL)).load(Relaxed) != 0;
            assert_eq!((annexed, producer.room()), (len > most, Ok(3)));
            let item = Short { len: len as u16, ..short };
            assert_eq!(short_message(&mut consumer), Some((item, payload.clone())));
            let front = consumer.front().unwrap().expect("it is there until it is released");
            assert_eq!((front.short(), front.header(), read_all(&front, 7)), (Some(&item), &[][..], payload));
        }
        let memory = Memory::new(SMALL);
        let (_consumer, mut producer) = (memory.consumer(SMALL), memory.producer(SMALL));
        let error = PushError::TooLong { bytes: 513, max: 512 };
        assert_eq!(push_short(&mut producer, &short, &[1; 513]), Err(error));
        assert_eq!(producer.short_room(), Ok(4));
    }
    for (header, payload, annexed) in
        [(56, 120, false), (56, 121, true), (49, 120, false), (176, 0, false), (177, 0, true)]
    {
        let memory = Memory::new(SMALL);
        let (mut consumer, mut producer) = (memory.consumer(SMALL), memory.producer(SMALL));
        push(&mut producer, &vec![1; header], &vec![2; payload]).unwrap();
        assert_eq!(memory.wide(annex_at(SMALL)).load(Relaxed) != 0, annexed, "{header} {payload}");
        assert_eq!(front_short(&mut consumer), None, "no short one");
        let front = consumer.front().unwrap().unwrap();
        assert_eq!(
            (front.short(), front.header(), read_all(&front, 7)),
            (None, &vec![1; header][..], vec![2; payload])
        );
    }
}

/// The annex fills up apart from the cells, and a producer that needs a slot of it sleeps until one is free.
#[test]
fn full_annex_blocks_only_messages_that_need_it() {
    let config = RingConfig { cells: 16, slots: 2, slot_bytes: 512 };
    let memory = Memory::new(config);
    let (mut consumer, mut producer) = (memory.consumer(config), memory.producer(config));
    for n in 0..2 {
        assert_eq!(
            push_short(&mut producer, &Short { counts: Counts::new(n, 0, 0), ..Short::default() }, &[n as u8; 300]),
            Ok(false)
        );
    }
    assert_eq!((producer.room(), producer.short_room()), (Ok(0), Ok(14)));
    assert_eq!(push_short(&mut producer, &Short::default(), &[9; 300]), Err(PushError::Full));
    assert_eq!(push(&mut producer, &[9; 40], &[9; 300]), Err(PushError::Full));
    assert!(producer.arm(), "no slot is free");
    push(&mut producer, &[9; 40], &[9; 100]).unwrap();
    assert!(!consumer.must_ring());
    front_short(&mut consumer).expect("a short one");
    consumer.release_short();
    assert!(consumer.must_ring(), "half the annex was freed");
    assert!(!producer.arm(), "a slot is free");
    assert_eq!(push(&mut producer, &[9; 40], &[9; 300]), Ok(()));
    // All the cells are used up by messages without a slot: then it is a cell that it waits for.
    while push_short(&mut producer, &Short::default(), &[1]).is_ok() {}
    assert!(producer.arm());
    for _ in 0..4 {
        consumer.front().unwrap().unwrap().release();
    }
    assert!(consumer.must_ring() && !producer.arm());
}

/// In their first lap both sides request usable memory before they access it, each place once. Where there is
/// none the ring is full to one side and empty to the other, and both stay awake until there is some.
#[test]
fn a_ring_takes_memory_as_it_is_used() {
    use std::cell::RefCell;
    use std::ptr::NonNull;
    std::thread_local! {
        static POPULATED: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
        static REFUSING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    unsafe fn populate(start: NonNull<u8>, len: usize) -> bool {
        POPULATED.with_borrow_mut(|populated| populated.push((start.addr().get(), len)));
        !REFUSING.get()
    }
    let config = RingConfig { cells: 64, slots: 3, slot_bytes: 512 };
    assert_eq!(config.first_bytes(), CELLS_AT + 16 * 192);
    let memory = Memory::new(config);
    let (mut consumer, mut producer) = (memory.consumer(config), memory.producer(config));
    consumer.populate_by(populate);
    producer.populate_by(populate);
    let base = memory.base().addr().get();
    let taken = || POPULATED.take().into_iter().map(|(start, len)| (start - base, len)).collect::<Vec<_>>();
    for lap in 0..2 {
        for n in 0..64u32 {
            let short = Short { counts: Counts::new(n, 0, 0), ..Short::default() };
            let before_next = n > 0 && n.is_multiple_of(16) && lap == 0;
            if before_next {
                // The consumer came here first.
                assert_eq!(taken(), [(CELLS_AT + n as usize * 192, 16 * 192)]);
                REFUSING.set(true);
                assert_eq!((producer.short_room(), producer.is_full()), (Ok(0), false));
                assert_eq!(push_short(&mut producer, &short, &[1; 8]), Err(PushError::Full));
                assert!(!producer.arm());
                assert_eq!(taken(), [(CELLS_AT + n as usize * 192, 16 * 192); 4], "it requests memory each time");
                REFUSING.set(false);
            }
            assert_eq!(push_short(&mut producer, &short, &[1; 8]), Ok(false));
            assert_eq!(taken().len(), usize::from(before_next));
            if n == 31 && lap == 0 {
                // There is none for the next sixteen.
                REFUSING.set(true);
            }
            assert_eq!(front_short(&mut consumer).map(|(short, _)| short.counts.psn()), Some(n));
            consumer.release_short();
            if n == 31 && lap == 0 {
                assert!(consumer.front().unwrap().is_none() && !consumer.has_message() && !consumer.is_empty());
                assert_eq!(taken(), [(CELLS_AT + 32 * 192, 16 * 192); 3]);
                REFUSING.set(false);
                assert!(consumer.front().unwrap().is_none() && consumer.is_empty());
            }
        }
        assert_eq!(producer.short_room(), Ok(64));
    }
    // Of the annex, slot by slot: an odd number of lines of 64 bytes each (L-11).
    let stride = 9 * 64;
    for round in 0..7 {
        let at = annex_at(config) + round % 3 * stride;
        if round < 3 {
            REFUSING.set(true);
            assert_eq!(push(&mut producer, &[1; 20], &[2; 300]), Err(PushError::Full));
            assert!(!producer.is_full() && !producer.arm());
            REFUSING.set(false);
        }
        POPULATED.take();
        push(&mut producer, &[1; 20], &[2; 300]).unwrap();
        assert_eq!(taken(), if round < 3 { vec![(at, stride)] } else { vec![] });
        REFUSING.set(round < 3);
        assert_eq!((consumer.front().unwrap().is_some(), consumer.is_empty()), (round >= 3, false));
        assert!(consumer.has_message() && !consumer.arm());
        REFUSING.set(false);
        POPULATED.take();
        let front = consumer.front().unwrap().expect("a packet");
        assert_eq!(read_all(&front, 100), [2; 300]);
        front.release();
        assert_eq!(taken(), if round < 3 { vec![(at, stride)] } else { vec![] });
    }
}

/// L-13: with a fence of the sleeper's, the side that wakes makes none, and a sleeper with a failed fence
/// stays awake.
#[test]
fn a_sleeper_makes_the_heavy_fence() {
    use std::sync::atomic::AtomicU32;
    static FENCES: AtomicU32 = AtomicU32::new(0);
    let heavy = || {
        FENCES.fetch_add(1, Relaxed);
        true
    };
    let memory = Memory::new(SMALL);
    let (mut consumer, mut producer) = (memory.consumer(SMALL), memory.producer(SMALL));
    consumer.use_heavy_fence(heavy);
    producer.use_heavy_fence(heavy);
    assert!(consumer.arm());
    assert_eq!(FENCES.load(Relaxed), 1);
    assert_eq!(push_short(&mut producer, &Short::default(), &[1]), Ok(true));
    for _ in 0..3 {
        assert_eq!(push_short(&mut producer, &Short::default(), &[1]), Ok(false));
    }
    assert_eq!(FENCES.load(Relaxed), 1, "messages make none");
    assert_eq!(push_short(&mut producer, &Short::default(), &[1]), Err(PushError::Full));
    assert!(producer.arm());
    assert_eq!(FENCES.load(Relaxed), 2);
    assert!(front_short(&mut consumer).is_some());
    consumer.release_short();
    assert!(consumer.must_ring());
    assert_eq!(FENCES.load(Relaxed), 2);
    let memory = Memory::new(SMALL);
    let mut consumer = memory.consumer(SMALL);
    consumer.use_heavy_fence(|| false);
    assert!(!consumer.arm(), "a producer might not see that it sleeps");
}

/// Two threads, all sizes, both sides sleeping on real wake-ups now and then would need a clock; here both
/// poll.
#[test]
fn two_threads_exchange_every_byte() {
    const MESSAGES: u32 = if cfg!(miri) { 40 } else { 20_000 };
    let config = RingConfig { cells: 8, slots: 5, slot_bytes: 1024 };
    let memory = Memory::new(config);
    let (mut consumer, mut producer) = (memory.consumer(config), memory.producer(config));
    let payload_of = |n: u32| -> Vec<u8> { (0..n % 700).map(|i| (i.wrapping_mul(31) ^ n) as u8).collect() };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..MESSAGES {
                while let Err(error) = push(&mut producer, &n.to_le_bytes(), &payload_of(n)) {
                    assert_eq!(error, PushError::Full);
                    std::thread::yield_now();
                }
            }
        });
        for n in 0..MESSAGES {
            let front = loop {
                if consumer.front().unwrap().is_some() {
                    break consumer.front().unwrap().unwrap();
                }
                std::thread::yield_now();
            };
            assert_eq!(front.header(), n.to_le_bytes());
            assert_eq!(read_all(&front, 256), payload_of(n));
            front.release();
        }
    });
}

proptest! {
    /// The ring does what a `VecDeque` of `slots` elements does.
    #[test]
    fn behaves_like_a_queue(steps in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let mut input = vec![0];
        input.extend(steps);
        run(&input);
    }

    /// Arbitrary writes between arbitrary steps.
    #[test]
    fn survives_any_memory(steps in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let mut input = vec![1];
        input.extend(steps);
        run(&input);
    }
}
