//! Moves short messages through a ring in memory only, to count instructions under a profiler.
//!
//! `ring_cost BYTES COUNT [tagged] [immediate]`: COUNT messages of BYTES bytes each. The work for each of
//! them goes through functions of its own, `at_push`, `at_idle` (a poll of an empty ring) and `at_pop`, so
//! that a profiler separates them: `valgrind --tool=callgrind --toggle-collect='*at_push*'`.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use rerail_core::shm::RingConfig;
use rerail_core::wire::{Counts, Short};
use rerail_testkit::shm::Both;

#[inline(never)]
fn at_push(both: &mut Both, short: &Short, payload: &[u8]) -> bool {
    both.push_short(short, payload)
}

#[inline(never)]
fn at_idle(both: &Both) -> bool {
    both.has_message()
}

#[inline(never)]
fn at_pop(both: &mut Both, into: &mut [u8]) -> Option<u64> {
    both.pop_short(into)
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next()?.parse::<u64>().ok();
    let (Some(bytes), Some(count)) = (number(), number()) else {
        eprintln!("usage: ring_cost BYTES COUNT [tagged] [immediate]");
        return ExitCode::from(2);
    };
    let mut short = Short { len: bytes as u16, ..Short::default() };
    for word in arguments {
        match word.as_str() {
            "tagged" => (short.tag, short.flags) = (7, short.flags | Short::TAGGED),
            "immediate" => (short.immediate, short.flags) = (9, short.flags | Short::IMMEDIATE),
            _ => return ExitCode::from(2),
        }
    }
    let config = RingConfig { cells: 256, slots: 64, slot_bytes: 8192 + 256 };
    if bytes > u64::from(config.short_bytes_max()) {
        return ExitCode::from(2);
    }
    let mut both = Both::new(config);
    let (payload, mut into) = (vec![1; bytes as usize], vec![0; bytes as usize]);
    let start = Instant::now();
    for n in 0..count {
        short.counts = Counts::new(n as u32, 0, 0);
        assert!(!at_idle(black_box(&both)));
        assert!(at_push(&mut both, black_box(&short), black_box(&payload)), "an empty ring has room");
        let found = at_pop(&mut both, black_box(&mut into)).expect("it was pushed");
        assert_eq!(found, short.counts.bits() ^ short.tag ^ short.immediate);
    }
    println!("{count} messages of {bytes} bytes: {:.1} ns each", start.elapsed().as_nanos() as f64 / count as f64);
    ExitCode::SUCCESS
}
