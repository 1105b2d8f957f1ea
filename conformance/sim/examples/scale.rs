//! How large simulations may be: builds one, runs it, and prints what it took.
//!
//! `cargo run --release -p rerail-sim --example scale -- HOSTS RANKS_PER_HOST ROUNDS KIND BYTES DEVICE`, KIND
//! one of shm, hca, stream.

use std::time::Instant;

use rerail_sim::cluster::{Cluster, PingPong};
use rerail_sim::scenario::{RailSpec, Scenario};
use rerail_sim::trace::Trace;

/// Bytes of this process that are in memory.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = pages.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    resident.unwrap_or(0) * 4096
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |nth: usize, usual| arguments.get(nth).and_then(|text| text.parse().ok()).unwrap_or(usual);
    let kind = arguments.get(3).map_or("shm", |kind| kind);
    let rail = match kind {
        "hca" => RailSpec::Hca { hca: 0, port: 0, path: 0 },
        "stream" => RailSpec::Stream { hca: 0, port: 0 },
        _ => RailSpec::Shm {},
    };
    let device = arguments.get(5).cloned().unwrap_or_else(|| "ideal".into());
    let scenario = Scenario {
        hosts: number(0, 1),
        ranks_per_host: number(1, 1000),
        rails: vec![rail],
        device,
        ..Scenario::default()
    };
    let mut workload = PingPong::new(number(2, 100), number(4, 64).into());
    let before = resident_bytes();
    let clock = Instant::now();
    let mut cluster = match Cluster::build(&scenario, 1, &mut workload, Trace::off()) {
        Ok(cluster) => cluster,
        Err(error) => return println!("{error}"),
    };
    let built = clock.elapsed();
    let idle = resident_bytes();
    let clock = Instant::now();
    let ended = cluster.run(&mut workload);
    let ran = clock.elapsed();
    let (report, ranks) = (cluster.report(), u64::from(scenario.size()));
    println!("{ended}, {} failures: {report:?}", workload.failures());
    println!("built in {built:?}, ran in {ran:?}: {:.0} events per second", report.events as f64 / ran.as_secs_f64());
    let (idle, end) = ((idle - before) / ranks, (resident_bytes() - before) / ranks);
    println!("{idle} bytes of memory per rank before the start, {end} at the end");
}
