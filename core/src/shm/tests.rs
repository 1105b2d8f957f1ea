//! The layout of words and slots, and rings with positions that wrap. `conformance/testkit` tests all other
//! properties of rings from outside.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::boxed::Box;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

use super::layout::{CELL_BYTES, CELLS_AT, CONSTANTS_AT, HEAD_AT, LIST_AT, PRODUCER_WAITS_AT, SLEEPING_AT};
use super::*;
use crate::wire::{Counts, Short};

const SMALL: RingConfig = RingConfig { cells: 4, slots: 4, slot_bytes: 512 };

/// L-11
#[test]
fn shared_ring_fields_are_on_separate_cache_lines() {
    let places = [HEAD_AT, SLEEPING_AT, PRODUCER_WAITS_AT, CONSTANTS_AT, LIST_AT, CELLS_AT];
    assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 128));
    for slot_bytes in (256..=32 * 1024).step_by(16) {
        let config = RingConfig { cells: 2, slots: 2, slot_bytes };
        let stride = config.stride();
        assert!(stride >= slot_bytes as usize && stride <= slot_bytes as usize + 127);
        assert_eq!(stride / 64 % 2, 1, "an even number of lines visits half of the sets only");
        assert_eq!((stride % 64, config.annex_at() % LINE_BYTES), (0, 0));
    }
    assert_eq!(ring_bytes(SMALL), Some(1024 + 4 * 192 + 4 * 576));
    assert_eq!((CELL_BYTES, SHORT_INLINE_BYTES), (192, 168));
}

#[repr(C, align(128))]
#[derive(Clone, Copy)]
struct Line([u8; LINE_BYTES]);

/// Memory of a ring, and both of its ends, to be dropped before it.
fn ring(config: RingConfig) -> (Box<[Line]>, Consumer<Mapped>, Producer<Mapped>) {
    let len = ring_bytes(config).unwrap();
    let mut lines: Box<[Line]> = vec![Line([0; LINE_BYTES]); len.div_ceil(LINE_BYTES)].into();
    let base = NonNull::new(lines.as_mut_ptr().cast()).unwrap();
    // SAFETY: the memory is zero, long enough, and used through the two ends, or atomically, alone.
    let consumer = unsafe { Consumer::create(base, len, config) }.unwrap();
    // SAFETY: as above.
    let producer = unsafe { Producer::attach(base, len, config) }.unwrap();
    (lines, consumer, producer)
}

/// Message `n`: in its cell or in the annex, with a header or short. Payload, and whether it is short.
fn message(n: u32) -> (Vec<u8>, bool) {
    let len = [0, 8, 40, 150, 300, 480][n as usize % 6];
    (vec![n as u8; len], n.wrapping_mul(0x9E37_79B9) >> 31 == 0)
}

/// Puts message `n` in, and returns whether the consumer must be woken; `None`: the ring is full.
fn push(producer: &mut Producer<Mapped>, n: u32) -> Option<bool> {
    let (payload, is_short) = message(n);
    let pushed = if is_short {
        let short = Short { counts: Counts::new(n, 0, 0), len: payload.len() as u16, ..Short::default() };
        // SAFETY: the payload is a slice that lives through the call, and as long as in the header.
        unsafe { producer.push_short(&short, payload.as_ptr()) }
    } else {
        // SAFETY: the piece is a slice that lives through the call.
        unsafe { producer.push(&n.to_le_bytes(), [(payload.as_ptr(), payload.len())]) }.map(|()| producer.must_ring())
    };
    assert!(pushed.is_ok() || pushed == Err(PushError::Full), "message {n}: {pushed:?}");
    pushed.ok()
}

/// Takes the oldest message out, which must be message `n`; `false`: there is none.
fn pop(consumer: &mut Consumer<Mapped>, n: u32) -> bool {
    let (payload, is_short) = message(n);
    let Some(front) = consumer.front().expect("an honest ring is never corrupt") else { return false };
    let mut found = vec![0; front.payload_bytes() as usize];
    assert_eq!(front.read(0, &mut found), payload.len());
    match front.short() {
        Some(short) => assert!(is_short && short.counts.psn() == n, "message {n}: {short:?}"),
        None => assert!(!is_short && front.header() == n.to_le_bytes(), "message {n}: {:?}", front.header()),
    }
    assert_eq!(found, payload, "message {n}");
    front.release();
    true
}

/// L-11 to L-13: a ring is a bounded queue that wakes its consumer, also while its positions and those of its
/// annex pass 2^32.
#[test]
fn ring_works_as_a_queue_when_positions_wrap() {
    let rings = [(2, 2), (4, 3), (32, 5), (256, 64)];
    // Miri takes its time.
    for (cells, slots) in rings.into_iter().take(if cfg!(miri) { 2 } else { 4 }) {
        let config = RingConfig { cells, slots, slot_bytes: 512 };
        let len = ring_bytes(config).unwrap();
        let mut lines: Box<[Line]> = vec![Line([0; LINE_BYTES]); len.div_ceil(LINE_BYTES)].into();
        let base = NonNull::new(lines.as_mut_ptr().cast()).unwrap();
        // SAFETY: the memory is zero, long enough, and used through the two ends alone, which end before it.
        let mut consumer = unsafe { Consumer::create(base, len, config) }.unwrap();
        // SAFETY: as above.
        let mut producer = unsafe { Producer::attach(base, len, config) }.unwrap();
        let (position, annex) = (0u32.wrapping_sub(3 * cells), 0u32.wrapping_sub(3 * slots));
        consumer.skip_to(position, annex);
        producer.skip_to(position, annex);
        let (mut queue, mut next, mut draw) = (VecDeque::new(), 0, 2004u32);
        // Well past the wrap of both.
        while next < 12 * cells + 40 * slots {
            draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let mut asleep = queue.is_empty();
            assert!(!asleep || !pop(&mut consumer, next) && consumer.arm());
            for _ in 0..=(draw >> 16) % (cells + 2) {
                let Some(wakes) = push(&mut producer, next) else { break };
                assert_eq!(wakes, core::mem::take(&mut asleep), "message {next}");
                queue.push_back(next);
                next += 1;
            }
            assert!(!queue.is_empty(), "an empty ring has room");
            assert!(queue.len() <= cells as usize);
            for _ in 0..=(draw >> 8) % (cells + 2) {
                let Some(n) = queue.pop_front() else { break };
                assert!(pop(&mut consumer, n), "message {n} of a ring of {cells} cells is lost");
            }
            assert_eq!(consumer.has_message(), !queue.is_empty());
        }
        let annexed = (0..next).filter(|&n| message(n).0.len() > 168).count() as u32;
        assert!(next > 6 * cells && annexed > 6 * slots, "both have wrapped");
    }
}

/// L-12, L-13: a cell is free when its message has been released, not when it was found.
#[test]
fn cell_is_kept_until_its_message_is_released() {
    let (_lines, mut consumer, mut producer) = ring(SMALL);
    let mut next = 0;
    while push(&mut producer, next).is_some() {
        next += 1;
    }
    for n in 0..20 {
        let front = consumer.front().unwrap().expect("the ring is full");
        assert_eq!(push(&mut producer, next), None, "message {n} is being read");
        front.release();
        assert!(push(&mut producer, next).is_some(), "message {n} has been read");
        next += 1;
    }
}

/// L-13: a cell that is passed, and may still be read, is not the producer's before something is released.
#[test]
fn cell_is_kept_while_it_is_passed() {
    let config = RingConfig { cells: 16, slots: 2, slot_bytes: 512 };
    let (_lines, mut consumer, mut producer) = ring(config);
    let mut sent = 0u32;
    let mut send = |producer: &mut Producer<Mapped>| {
        let short = Short { counts: Counts::new(sent, 0, 0), len: 8, ..Short::default() };
        // SAFETY: 8 bytes can be read there.
        let is_sent = unsafe { producer.push_short(&short, u64::from(sent).to_le_bytes().as_ptr()) }.is_ok();
        sent += u32::from(is_sent);
        is_sent
    };
    while send(&mut producer) {}
    let mut passed = 0;
    for n in 0..100 {
        let word = consumer.front_word().expect("the ring is full");
        assert!(consumer.front_inline(word).is_some(), "message {n}");
        if consumer.pass_short() {
            assert!(!send(&mut producer), "message {n} is being copied");
            passed += 1;
        } else {
            consumer.release_short();
            while send(&mut producer) {}
        }
    }
    assert!(passed > 50, "most are passed: {passed}");
}

std::thread_local! {
    /// Whether the system has memory.
    static HAS_MEMORY: Cell<bool> = const { Cell::new(true) };
}

/// # Safety
/// None is needed: nothing is touched.
unsafe fn populate(_start: NonNull<u8>, _len: usize) -> bool {
    HAS_MEMORY.get()
}

/// L-12: where the system has no memory for the due cell, a peer that writes to the last one leads the
/// consumer nowhere; the messages come when there is memory again.
#[test]
fn a_cell_without_memory_is_not_reached() {
    let config = RingConfig { cells: 64, slots: 2, slot_bytes: 512 };
    let (mut lines, mut consumer, mut producer) = ring(config);
    let base = lines.as_mut_ptr().cast::<u8>();
    consumer.populate_by(populate);
    producer.populate_by(populate);
    let ready = (config.first_bytes() - CELLS_AT) as u32 / CELL_BYTES as u32;
    let send = |producer: &mut Producer<Mapped>, n: u32| {
        let short = Short { counts: Counts::new(n, 0, 0), len: 8, ..Short::default() };
        // SAFETY: 8 bytes can be read there.
        unsafe { producer.push_short(&short, n.to_le_bytes().repeat(2).as_ptr()) }.unwrap();
    };
    let take = |consumer: &mut Consumer<Mapped>| {
        let (short, _) = consumer.front_word().and_then(|first| consumer.front_short(first))?;
        consumer.release_short();
        Some(short.counts.psn())
    };
    for n in 0..ready {
        send(&mut producer, n);
    }
    HAS_MEMORY.set(false);
    for n in 0..ready {
        assert_eq!(take(&mut consumer), Some(n));
    }
    // SAFETY: a word of the last cell, aligned; all accesses are atomic.
    let last = unsafe { &*base.add(CELLS_AT + (ready as usize - 1) * CELL_BYTES).cast::<AtomicU64>() };
    let honest = last.load(Ordering::Relaxed);
    last.store(honest + 1, Ordering::Relaxed);
    let first = consumer.front_word().expect("it looks like the message that is due");
    assert!(consumer.front_short(first).is_none() && consumer.front_inline(first).is_none());
    assert!(matches!(consumer.front(), Ok(None)));
    last.store(honest, Ordering::Relaxed);
    HAS_MEMORY.set(true);
    send(&mut producer, ready);
    assert!(matches!(consumer.front(), Ok(Some(_))));
    assert_eq!((take(&mut consumer), take(&mut consumer)), (Some(ready), None));
}

/// L-18: the consumer finds each number that the producer writes, in both directions of change, and nothing
/// else of the ring has changed.
#[test]
fn a_consumer_finds_every_number_of_a_list() {
    let config = RingConfig { cells: 4, slots: 2, slot_bytes: 256 };
    let (_lines, mut consumer, mut producer) = ring(config);
    assert_eq!(consumer.offer(), 0);
    for number in [1, 2, u64::MAX, 0, 3] {
        producer.offer(number);
        assert_eq!(consumer.offer(), number);
        assert!(!consumer.has_message() && matches!(consumer.front(), Ok(None)));
    }
}

/// L-25, L-26: a consumer finds what the producer lists, and the producer's announcement of a put.
#[test]
fn a_consumer_finds_the_windows_of_a_list() {
    let config = RingConfig { cells: 4, slots: 2, slot_bytes: 256 };
    let (_lines, mut consumer, mut producer) = ring(config);
    let mut list = WindowList::default();
    let window = |key| {
        let range = OfferedRange { start: key * 4096, bytes: 100 };
        ListedWindow { key, range, gets: key.is_multiple_of(2), puts: !key.is_multiple_of(3) }
    };
    for key in 1..=WINDOWS_MAX as u64 {
        assert_eq!((consumer.windows(), consumer.window(key)), (list.number(), None));
        assert!(list.add(window(key), true) || key == 3 || key == 9, "window {key}");
        producer.list_windows(&list, true);
        let listed = (list.number(), window(key));
        assert_eq!(consumer.window(key), (key != 3 && key != 9).then_some(listed));
    }
    list.remove(4);
    producer.list_windows(&list, true);
    assert_eq!((consumer.window(4), consumer.window(5)), (None, Some((list.number(), window(5)))));
    producer.list_windows(&list, false);
    assert_eq!(consumer.window(2), Some((list.number(), ListedWindow { puts: false, ..window(2) })));
    assert_eq!(consumer.window(5), None, "for puts alone");
    producer.list_windows(&WindowList::default(), true);
    assert_eq!((consumer.windows(), consumer.window(5)), (0, None));
    assert_eq!(consumer.putting(), 0);
    producer.begin_put(7);
    assert_eq!(consumer.putting(), 7);
    producer.end_put();
    assert_eq!(consumer.putting(), 0);
    assert!(!consumer.has_message() && matches!(consumer.front(), Ok(None)));
}
