//! Moves messages between two endpoints in memory, and nothing else: for counting instructions under a profiler.
//!
//! `message_cost CASE COUNT`: `round-trip` and `round-trip-retained` (COUNT messages there and COUNT back), `one-way`
//! (COUNT messages there). 8 bytes each. `conformance/scripts/instructions.sh` runs it.

#[path = "../benches/support/mod.rs"]
mod support;

use std::process::ExitCode;

use support::pair::{Pair, Regions};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (case, count) = (args.next(), args.next().and_then(|count| count.parse::<u64>().ok()));
    let (Some(case), Some(count)) = (case, count) else {
        eprintln!("usage: message_cost round-trip|round-trip-retained|one-way COUNT");
        return ExitCode::from(2);
    };
    let mut regions = Regions::new();
    let mut pair = Pair::connect(&mut regions, case != "round-trip-retained");
    for _ in 0..count {
        match case.as_str() {
            "one-way" => pair.one_way(0, 8),
            "round-trip" | "round-trip-retained" => pair.round_trip(8),
            _ => {
                eprintln!("no such case: {case}");
                return ExitCode::from(2);
            }
        }
    }
    ExitCode::SUCCESS
}
