//! The ring under loom: every interleaving and every value that the memory model allows, with two slots.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p rerail-core --lib --release shm::model`
//!
//! The machine is the one that runs over mapped memory; only its cells are loom's. Slot bytes are in loom's checked
//! cells, so a byte that is written while it may be read, or read before it is written, fails the model; so does a sleeper
//! that nobody wakes (loom reports the deadlock).
#![allow(unsafe_code)]

use core::sync::atomic::Ordering;
use std::sync::Arc;
use std::vec::Vec;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::layout::{PAYLOAD_ALIGN, RingConfig};
use super::machine::{Cells, Consumer, Producer, PushError, Word};

const SLOTS: u32 = 2;
/// Header and payload of the model's messages: one byte each.
const BYTES: usize = PAYLOAD_ALIGN as usize + 1;

impl Word for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        AtomicU32::load(self, order)
    }

    fn store(&self, value: u32, order: Ordering) {
        AtomicU32::store(self, value, order);
    }

    fn swap(&self, value: u32, order: Ordering) -> u32 {
        AtomicU32::swap(self, value, order)
    }
}

struct Slot {
    turn: AtomicU32,
    header_bytes: AtomicU32,
    payload_bytes: AtomicU32,
    bytes: UnsafeCell<[u8; BYTES]>,
}

struct Shared {
    head: AtomicU32,
    sleeping: AtomicU32,
    starved: AtomicU32,
    slots: Vec<Slot>,
}

#[derive(Clone)]
struct Modelled(Arc<Shared>);

impl Modelled {
    fn new() -> Self {
        let word = || AtomicU32::new(0);
        let slots = (0..SLOTS)
            .map(|_| Slot {
                turn: word(),
                header_bytes: word(),
                payload_bytes: word(),
                bytes: UnsafeCell::new([0; BYTES]),
            })
            .collect();
        Modelled(Arc::new(Shared { head: word(), sleeping: word(), starved: word(), slots }))
    }
}

impl Cells for Modelled {
    type Word = AtomicU32;

    fn config(&self) -> RingConfig {
        RingConfig { slots: SLOTS, slot_bytes: 256 }
    }

    fn head(&self) -> &AtomicU32 {
        &self.0.head
    }

    fn sleeping(&self) -> &AtomicU32 {
        &self.0.sleeping
    }

    fn starved(&self) -> &AtomicU32 {
        &self.0.starved
    }

    fn turn(&self, slot: u32) -> &AtomicU32 {
        &self.0.slots[slot as usize].turn
    }

    fn header_bytes(&self, slot: u32) -> &AtomicU32 {
        &self.0.slots[slot as usize].header_bytes
    }

    fn payload_bytes(&self, slot: u32) -> &AtomicU32 {
        &self.0.slots[slot as usize].payload_bytes
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    unsafe fn copy_in(&self, slot: u32, at: u32, from: *const u8, len: usize) {
        self.0.slots[slot as usize].bytes.with_mut(|bytes| {
            // SAFETY: the caller vouches for `from`; loom fails the model where another thread may hold the cell.
            unsafe { (&mut (*bytes))[at as usize..][..len].copy_from_slice(core::slice::from_raw_parts(from, len)) }
        });
    }

    unsafe fn copy_out(&self, slot: u32, at: u32, to: *mut u8, len: usize) {
        self.0.slots[slot as usize].bytes.with(|bytes| {
            // SAFETY: as in `copy_in`.
            unsafe { core::slice::from_raw_parts_mut(to, len).copy_from_slice(&(&(*bytes))[at as usize..][..len]) }
        });
    }
}

fn push(producer: &mut Producer<Modelled>, n: u8) -> Result<(), PushError> {
    // SAFETY: the piece is the byte `n`, alive through the call.
    unsafe { producer.push(&[n], [(&raw const n, 1)]) }
}

/// The front message, checked to be number `n` in header and payload, and released; `false`: none there.
fn pop(consumer: &mut Consumer<Modelled>, n: u8) -> bool {
    let Some(front) = consumer.front().expect("an honest ring is never corrupt") else { return false };
    let mut payload = [0];
    assert_eq!((front.header(), front.payload_bytes()), (&[n][..], 1));
    assert_eq!(front.read(0, &mut payload), 1);
    assert_eq!(payload, [n]);
    front.release();
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

/// Three messages through two slots, both sides polling: each arrives once, whole, in order.
#[test]
fn nothing_is_lost_doubled_or_torn() {
    loom::model(|| {
        let cells = Modelled::new();
        let (mut producer, mut consumer) = (Producer::over(cells.clone()), Consumer::over(cells));
        let sender = thread::spawn(move || {
            for n in 1..=3 {
                while let Err(error) = push(&mut producer, n) {
                    assert_eq!(error, PushError::Full);
                    thread::yield_now();
                }
            }
        });
        for n in 1..=3 {
            while !pop(&mut consumer, n) {
                thread::yield_now();
            }
        }
        assert!(!pop(&mut consumer, 4));
        sender.join().unwrap();
    });
}

/// A consumer that sleeps whenever it finds nothing gets every message.
#[test]
fn no_wake_up_of_the_consumer_is_lost() {
    loom::model(|| {
        let cells = Modelled::new();
        let (mut producer, mut consumer) = (Producer::over(cells.clone()), Consumer::over(cells));
        let bell = Bell::new();
        let theirs = bell.clone();
        let sender = thread::spawn(move || {
            for n in 1..=2 {
                push(&mut producer, n).unwrap();
                if producer.must_ring() {
                    theirs.ring();
                }
            }
        });
        for n in 1..=2 {
            while !pop(&mut consumer, n) {
                if consumer.arm() {
                    bell.wait();
                    consumer.disarm();
                }
            }
        }
        sender.join().unwrap();
    });
}

/// A producer that sleeps whenever the ring is full gets every slot back.
#[test]
fn no_wake_up_of_the_producer_is_lost() {
    loom::model(|| {
        let cells = Modelled::new();
        let (mut producer, mut consumer) = (Producer::over(cells.clone()), Consumer::over(cells));
        push(&mut producer, 1).unwrap();
        push(&mut producer, 2).unwrap();
        let bell = Bell::new();
        let theirs = bell.clone();
        let receiver = thread::spawn(move || {
            for n in 1..=2 {
                assert!(pop(&mut consumer, n));
                if consumer.must_ring() {
                    theirs.ring();
                }
            }
        });
        for n in 3..=4 {
            while let Err(error) = push(&mut producer, n) {
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
