//! What the paper states of figures 2 to 7, and what follows from its words. Sizes are those of all segments
//! together.

use super::SMALL_MAX;
use crate::figures::{Claim, Relation, Series};

/// By how much an absolute value of the testbed may be missed: the simulator's constants are fitted to it.
const ABSOLUTE: f64 = 0.05;

/// What aggregation may lose at its worst size, 1 KiB. A frame that the processor moves is at the NIC when
/// its last byte is: two segments of half a frame are moved and sent at the same time, one chunk of a frame
/// is moved and then sent. That is the simulator's grain, of 1 KiB, and nothing of the paper's.
const GRAIN: f64 = 0.07;

/// What four of the smallest segments take together, of what they take apart.
const GAIN: f64 = 0.7;

/// What is seen of sizes of a series over another: the greatest, or the least.
fn extreme(ratios: impl Iterator<Item = f64>, greatest: bool) -> f64 {
    if greatest { ratios.fold(f64::NEG_INFINITY, f64::max) } else { ratios.fold(f64::INFINITY, f64::min) }
}

fn claim(name: &str, relation: Relation, expected: f64, tolerance: f64, measured: f64, unit: &'static str) -> Claim {
    Claim { name: name.into(), expected, relation, tolerance, measured, unit }
}

/// Figures 2 and 3; of the series, the second and third have two segments, the fourth and fifth four: apart,
/// aggregated.
pub(super) fn raw(series: &[Series], large: &Series, latency: f64, bandwidth: f64) -> Vec<Claim> {
    let [one, two_apart, two, four_apart, four] = series else { return Vec::new() };
    let worst = |aggregated: &Series, other: &Series| {
        extreme(aggregated.over(other).filter(|point| point.0 < SMALL_MAX as f64).map(|point| point.1), true)
    };
    let least = |series: &Series| series.points.first().map_or(f64::NAN, |point| point.1);
    let over = |segments: u32, apart, aggregated| {
        let name = format!("{segments} segments below 16K: aggregated over apart, the worst size");
        claim(&name, Relation::AtMost, 1.0, GRAIN, worst(aggregated, apart), "")
    };
    let gains = format!("smallest size: 4 segments aggregated over apart (no number is stated; ours: {GAIN})");
    vec![
        claim("smallest latency", Relation::About, latency, ABSOLUTE, least(one), "us"),
        claim("greatest bandwidth", Relation::About, bandwidth, ABSOLUTE, large.peak(), "MB/s"),
        over(2, two_apart, two),
        over(4, four_apart, four),
        claim(&gains, Relation::AtMost, GAIN, 0.0, least(four) / least(four_apart), ""),
    ]
}

/// Figure 3: "the gain of aggregating small packets on Quadrics is even bigger than on Myri-10G".
pub(super) fn bigger_gain(quadrics: &[Series], myri: &[Series]) -> Claim {
    let gain = |series: &[Series]| match series {
        [.., apart, aggregated] => apart.over(aggregated).next().map_or(f64::NAN, |point| point.1),
        _ => f64::NAN,
    };
    let name = "smallest size, 4 segments: the gain over that on Myri-10G";
    claim(name, Relation::AtLeast, 1.0, 0.0, gain(quadrics) / gain(myri), "")
}

/// Figures 4(a) and 5(a): Myri-10G, Quadrics, greedy.
pub(super) fn greedy_small(series: &[Series]) -> Vec<Claim> {
    let [_, quadrics, greedy] = series else { return Vec::new() };
    let to_16k = greedy.over(quadrics).filter(|point| point.0 <= SMALL_MAX as f64).map(|point| point.1);
    let least = extreme(to_16k, false);
    vec![claim("up to 16K: greedy over Quadrics alone, the best size: no gain", Relation::AtLeast, 1.0, 0.0, least, "")]
}

/// Figures 4(b) and 5(b): Myri-10G, Quadrics, greedy, in MB/s.
pub(super) fn greedy_large(series: &[Series], segments: u32) -> Vec<Claim> {
    let [myri, _, greedy] = series else { return Vec::new() };
    // "Greater than 16KB, that is, for segments greater than 8KB".
    let from = u64::from(segments) * (8 << 10);
    let above = greedy.over(myri).filter(|point| point.0 > from as f64).map(|point| point.1);
    let (name, slack) = match segments {
        2 => ("greatest bandwidth", 0.021),
        _ => ("greatest bandwidth: \"rather high\", as with 2 segments", 0.05),
    };
    vec![
        claim(
            "segments above 8K: greedy over Myri-10G alone, the worst size: a gain",
            Relation::AtLeast,
            1.0,
            0.0,
            extreme(above, false),
            "",
        ),
        claim(name, Relation::AtLeast, 1675.0, slack, greedy.peak(), "MB/s"),
    ]
}

/// Figure 6: Quadrics alone, aggregate over both, greedy.
pub(super) fn aggregation(series: &[Series], poll_us: f64) -> Vec<Claim> {
    let [alone, both, greedy] = series else { return Vec::new() };
    let gap = |&(bytes, us): &(f64, f64)| alone.at(bytes).map(|alone| us - alone);
    let small = both.points.iter().filter(|point| point.0 < SMALL_MAX as f64);
    let gaps: Vec<f64> = small.filter_map(gap).collect();
    let against = both.over(greedy).filter(|point| point.0 < SMALL_MAX as f64).map(|point| point.1);
    vec![
        claim(
            "below 16K: more than Quadrics alone by a poll of Myri-10G, the worst size",
            Relation::AtMost,
            poll_us,
            0.5,
            extreme(gaps.iter().copied(), true),
            "us",
        ),
        claim("below 16K: over greedy, the worst size", Relation::AtMost, 1.0, 0.0, extreme(against, true), ""),
    ]
}

/// Figure 7: Myri-10G, Quadrics, greedy, split, in MB/s.
pub(super) fn splitting(series: &[Series]) -> Vec<Claim> {
    let [.., greedy, split] = series else { return Vec::new() };
    let above = split.over(greedy).filter(|point| point.0 >= 2.0 * SMALL_MAX as f64).map(|point| point.1);
    vec![
        claim("from 32K on: over greedy, the worst size", Relation::AtLeast, 1.0, 0.0, extreme(above, false), ""),
        claim("greatest bandwidth: 95 % of the bus", Relation::AtLeast, 1900.0, 0.0, split.peak(), "MB/s"),
    ]
}
