//! Small messages are compared on processors that stay: a virtual machine's two are neighbours in one second
//! and far apart in the next, and a cache line's way between them is most of a small message's time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rustix::thread::{CpuSet, sched_setaffinity};

use super::{Outcome, Peer, Times, best, spread};

/// The two processors are where they were, for a virtual machine, if the round trip of a cache line before
/// and after differ by no more than this factor.
const SAME_PLACE: f64 = 1.25;

/// The round trip of a cache line beside each of the times of a small message; `None`: it was another one
/// before than after, as the two processors have moved.
pub type Lines = BTreeMap<(usize, Peer), Vec<Option<f64>>>;

/// A small message of ours beside the best peer's, by rounds in which both had the same two processors: a
/// virtual machine's are neighbours in one second and far apart in the next.
pub struct Steady {
    pub rounds: usize,
    /// Median of the ratios of the two times.
    pub ratio: f64,
    /// The same without half a round trip of a cache line.
    pub beyond: f64,
}

impl Steady {
    pub fn of(times: &Times, lines: &Lines, case: usize) -> Option<Steady> {
        let (_, _, peer) = best(times, case)?;
        let samples = |peer| Some(times.get(&(case, peer))?.iter().zip(lines.get(&(case, peer))?));
        let pairs = samples(Peer::Rerail)?.zip(samples(peer)?).filter_map(|((ours, line), (best, other))| {
            let (line, other) = ((*line)?, (*other)?);
            is_same_place(line, other).then_some((ours, best, (line + other) / 4.0))
        });
        let (ratios, beyond): (Vec<f64>, Vec<f64>) =
            pairs.map(|(ours, best, half)| (ours / best, (ours - half) / (best - half).max(1.0))).unzip();
        let (ratio, ..) = spread(&ratios)?;
        let (beyond, ..) = spread(&beyond)?;
        Some(Steady { rounds: ratios.len(), ratio, beyond })
    }
}

pub fn is_same_place(line: f64, other: f64) -> bool {
    line.max(other) <= SAME_PLACE * line.min(other)
}

/// What was measured of cache lines.
pub fn all_of(lines: &Lines) -> Vec<f64> {
    lines.values().flatten().flatten().copied().collect()
}

/// Nanoseconds for a cache line from one processor to the other and back.
pub fn cache_line_round_trip(pins: [usize; 2]) -> Outcome<f64> {
    const TRIPS: u32 = 200_000;
    let word = AtomicU32::new(0);
    let pin = |processor: usize| {
        let mut alone = CpuSet::new();
        alone.set(processor);
        sched_setaffinity(None, &alone)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            pin(pins[1])?;
            for trip in 0..TRIPS {
                while word.load(Ordering::Acquire) != 2 * trip + 1 {
                    std::hint::spin_loop();
                }
                word.store(2 * trip + 2, Ordering::Release);
            }
            Ok::<(), rustix::io::Errno>(())
        });
        let first = scope.spawn(|| {
            pin(pins[0])?;
            let mut start = Instant::now();
            for trip in 0..TRIPS {
                if trip == TRIPS / 10 {
                    start = Instant::now();
                }
                word.store(2 * trip + 1, Ordering::Release);
                while word.load(Ordering::Acquire) != 2 * trip + 2 {
                    std::hint::spin_loop();
                }
            }
            Ok::<f64, rustix::io::Errno>(start.elapsed().as_nanos() as f64 / f64::from(TRIPS - TRIPS / 10))
        });
        let time = first.join().map_err(|_| "the measuring thread panicked")?;
        other.join().map_err(|_| "the answering thread panicked")??;
        Ok(time?)
    })
}
