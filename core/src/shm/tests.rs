//! The ring on ordinary memory: layout, refusals, hostile words, the oracle, and two real threads.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::harness::{Memory, push, read_all, run};
use super::layout::{CONSTANTS_AT, HEAD_AT, SLEEPING_AT, SLOTS_AT, STARVED_AT};
use super::*;

const SMALL: RingConfig = RingConfig { slots: 4, slot_bytes: 512 };

/// L-11
#[test]
fn words_of_different_owners_are_apart_and_slots_spread_over_the_cache() {
    let places = [HEAD_AT, SLEEPING_AT, STARVED_AT, CONSTANTS_AT, SLOTS_AT];
    assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 128));
    for slot_bytes in (256..=32 * 1024).step_by(16) {
        let stride = RingConfig { slots: 2, slot_bytes }.stride();
        assert!(stride >= slot_bytes as usize + 16 && stride <= slot_bytes as usize + 16 + 127);
        assert_eq!(stride / 64 % 2, 1, "an even number of lines visits half of the sets only");
        assert_eq!(stride % 64, 0);
    }
    assert_eq!(ring_bytes(SMALL), Some(512 + 4 * 576));
}

#[test]
fn configurations_out_of_range_are_refused_by_field() {
    let refused = |slots, slot_bytes| RingConfig { slots, slot_bytes }.check().unwrap_err().field;
    assert_eq!(refused(1, 512), "slots");
    assert_eq!(refused(SLOTS_MAX + 1, 512), "slots");
    assert_eq!(refused(2, 240), "slot_bytes");
    assert_eq!(refused(2, 257), "slot_bytes");
    assert_eq!(refused(2, u32::MAX), "slot_bytes");
    assert_eq!(RingConfig { slots: SLOTS_MAX, slot_bytes: 1 << 24 }.check(), Ok(()));
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
    assert_eq!(attach(8, needed - 8, smaller), Some(AttachError::Misaligned { off_by: 8 }));
    assert_eq!(attach(0, needed, smaller), Some(AttachError::Constant { field: "slots", found: 4, expected: 2 }));
    assert_eq!(attach(0, needed, SMALL), None);
    memory.word(CONSTANTS_AT).store(0, Relaxed);
    assert!(matches!(attach(0, needed, SMALL), Some(AttachError::Constant { field: "magic", found: 0, .. })));
}

#[test]
fn a_message_that_does_not_fit_leaves_no_trace() {
    let memory = Memory::new(SMALL);
    let (mut consumer, mut producer) = (memory.consumer(SMALL), memory.producer(SMALL));
    assert_eq!(push(&mut producer, &[1; 17], &[2; 481]), Err(PushError::TooLong { bytes: 513, max: 512 }));
    assert!(matches!(push(&mut producer, &[1; 257], &[]), Err(PushError::TooLong { bytes: 257, .. })));
    assert!(consumer.front().unwrap().is_none());
    assert_eq!(push(&mut producer, &[1; 17], &[2; 480]), Ok(()));
    assert_eq!(read_all(&consumer.front().unwrap().unwrap(), 7), [2; 480]);
}

#[test]
fn a_front_that_is_not_released_stays_and_a_full_ring_says_so() {
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
    assert!(!producer.must_ring(), "nobody sleeps");
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
fn lengths_that_leave_the_slot_kill_the_ring() {
    for (header, payload, field) in [
        (257, 0, "header_bytes"),
        (u32::MAX, 0, "header_bytes"),
        (0, 513, "payload_bytes"),
        (17, 481, "payload_bytes"),
        (256, u32::MAX, "payload_bytes"),
        (1, u32::MAX - 15, "payload_bytes"),
    ] {
        let memory = Memory::new(SMALL);
        let mut consumer = memory.consumer(SMALL);
        memory.word(SLOTS_AT + 4).store(header, Relaxed);
        memory.word(SLOTS_AT + 8).store(payload, Relaxed);
        assert!(consumer.front().unwrap().is_none(), "not published yet");
        memory.word(SLOTS_AT).store(1, Relaxed);
        let value = if field == "header_bytes" { header } else { payload };
        assert_eq!(consumer.front().unwrap_err(), RingError { field, value });
        memory.word(SLOTS_AT + 4).store(0, Relaxed);
        memory.word(SLOTS_AT + 8).store(0, Relaxed);
        assert_eq!(consumer.front().unwrap_err(), RingError { field, value }, "dead is dead");
        assert!(!consumer.arm());
    }
}

/// L-12
#[test]
fn a_turn_number_that_is_neither_old_nor_due_kills_the_ring() {
    // 0: never written; 1 - slots: a round ago, counted from before the start.
    for turn in [0, 1u32.wrapping_sub(SMALL.slots)] {
        let memory = Memory::new(SMALL);
        let mut consumer = memory.consumer(SMALL);
        memory.word(SLOTS_AT).store(turn, Relaxed);
        assert!(consumer.front().unwrap().is_none());
    }
    for turn in [2, 5, u32::MAX] {
        let memory = Memory::new(SMALL);
        let mut consumer = memory.consumer(SMALL);
        memory.word(SLOTS_AT).store(turn, Relaxed);
        let error = RingError { field: "turn", value: turn };
        assert_eq!(consumer.front().unwrap_err(), error);
        memory.word(SLOTS_AT).store(1, Relaxed);
        assert_eq!(consumer.front().unwrap_err(), error, "dead is dead");
        assert!(!consumer.arm());
    }
}

/// L-12
#[test]
fn a_head_that_jumps_kills_the_ring() {
    for head in [5, u32::MAX, 1 << 31] {
        let memory = Memory::new(SMALL);
        let mut producer = memory.producer_of_fresh(SMALL);
        for n in 0..4 {
            push(&mut producer, &[n], &[]).unwrap();
        }
        memory.word(HEAD_AT).store(head, Relaxed);
        assert_eq!(push(&mut producer, &[4], &[]), Err(PushError::Corrupt(RingError { field: "head", value: head })));
        memory.word(HEAD_AT).store(4, Relaxed);
        assert!(producer.room().is_err(), "dead is dead");
        assert!(!producer.arm());
    }
    // Back is as bad as too far.
    let memory = Memory::new(SMALL);
    let mut producer = memory.producer_of_fresh(SMALL);
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

impl Memory {
    fn producer_of_fresh(&self, config: RingConfig) -> Producer<Mapped> {
        let _ = self.consumer(config);
        self.producer(config)
    }
}

/// Two threads, all sizes, both sides sleeping on real wake-ups now and then would need a clock; here both poll.
#[test]
fn two_threads_exchange_every_byte() {
    const MESSAGES: u32 = 20_000;
    let config = RingConfig { slots: 5, slot_bytes: 1024 };
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

/// The committed corpus of the fuzz target.
#[test]
fn corpus_holds() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/ring_consumer");
    let mut seeds = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        run(&std::fs::read(entry.unwrap().path()).unwrap());
        seeds += 1;
    }
    assert!(seeds >= 20, "{seeds} seeds");
}
