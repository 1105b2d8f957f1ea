//! What a message costs in the core: `cargo bench -p rerail-testkit --bench messages`.

mod support;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use support::pair::{Pair, Regions};

/// A message there and one back: two submissions on each side, everything that rails report, and
/// acknowledgments that ride along.
fn round_trip(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("endpoint/round_trip");
    group.throughput(Throughput::Elements(2));
    for (name, lossless) in [("lossless", true), ("retained", false)] {
        for bytes in [0, 8, 1024] {
            let mut regions = Regions::new();
            let mut pair = Pair::connect(&mut regions, lossless, 1, None, true);
            group.bench_function(format!("{name}/{bytes}"), |bench| bench.iter(|| pair.round_trip(bytes)));
        }
    }
    group.finish();
}

/// Messages one way: acknowledgments are frames of their own, one for many.
fn one_way(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("endpoint/one_way");
    group.throughput(Throughput::Elements(1));
    let mut regions = Regions::new();
    let mut pair = Pair::connect(&mut regions, true, 1, None, true);
    group.bench_function("lossless/8", |bench| bench.iter(|| pair.one_way(0, 8)));
    group.finish();
}

criterion_group!(benches, round_trip, one_way);
criterion_main!(benches);
