//! Moves messages between two endpoints in memory only, to count instructions under a profiler.
//!
//! `message_cost CASE RAILS POLICY COUNT`: COUNT messages by each of the CASE's sides, over RAILS rails (1 to
//! 8), with a policy by its name for all classes (`default`: as an endpoint begins). Cases: `round-trip` (8
//! bytes there and back, a lossless rail), `round-trip-retained` (a lossy rail), `one-way` (8 bytes there,
//! such rails), `one-way-1M` (1 MiB), `one-way-unreliable` and `one-way-1M-unreliable` (the same without
//! recovery).
//!
//! The calls to the sender's and the receiver's endpoints for the COUNT messages go through functions of
//! their own, `at_first` and `at_second`; connecting and the first messages, which measure the rails for
//! policies, do not. `conformance/scripts/instructions.sh` runs it.

#[path = "../benches/support/mod.rs"]
mod support;

use std::process::ExitCode;

use rerail_core::endpoint::Policy;
use support::pair::{Pair, Regions};

/// Large messages before those that count.
const WARM_UP: u64 = 16;
/// Small ones: as many as it takes until all rails have answered how fast they are (P-12).
const WARM_UP_SMALL: u64 = 32 * 1024;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [case, rails, policy, count] = args.as_slice() else {
        return usage("four arguments needed");
    };
    let (Ok(rails @ 1..=8), Ok(count)) = (rails.parse::<usize>(), count.parse::<u64>()) else {
        return usage("RAILS is 1 to 8, COUNT a number");
    };
    let policy = match (policy.as_str(), Policy::named(policy)) {
        ("default", _) => None,
        (_, Some(policy)) => Some(policy),
        (_, None) => return usage("there is no such policy"),
    };
    let (case, recovery) = match case.strip_suffix("-unreliable") {
        Some(case) => (case, false),
        None => (case.as_str(), true),
    };
    let (bytes, both, lossless) = match case {
        "round-trip" => (8, true, true),
        "round-trip-retained" => (8, true, false),
        "one-way" => (8, false, false),
        "one-way-1M" => (1 << 20, false, false),
        _ => return usage("there is no such case"),
    };
    let mut regions = Regions::new();
    let mut pair = Pair::connect(&mut regions, lossless, rails, policy, recovery);
    let warm_up = if bytes > 8 { WARM_UP } else { WARM_UP_SMALL };
    for round in 0..warm_up + count {
        if round == warm_up {
            pair.count();
        }
        if both { pair.round_trip(bytes) } else { pair.one_way(0, bytes) }
    }
    ExitCode::SUCCESS
}

fn usage(why: &str) -> ExitCode {
    let cases = "round-trip|round-trip-retained|one-way|one-way-1M";
    eprintln!("{why}\nusage: message_cost {cases}[-unreliable] RAILS POLICY COUNT");
    ExitCode::from(2)
}
