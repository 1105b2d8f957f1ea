//! Whether a run kept up with its rails.
//!
//! A phase lasts from one change of the rails' sum to the next. It is *recovered* at the start of the first
//! half second in which the mean is high enough, so that one lucky interval does not count; its bandwidth is
//! the mean from [`Targets::within`] after the change on, or half of a shorter phase.

use serde::Serialize;

/// So long a mean must be high enough, in seconds; a phase that is shorter counts as a whole.
const LASTING: f64 = 0.5;

/// The targets, as parts of the sum and in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Targets {
    /// Of each phase, once the change is over: of the later half of a phase that is short.
    pub steady: f64,
    /// After a change...
    pub recovered: f64,
    /// ... within so long.
    pub within: f64,
}

/// The time from one change to the next.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// Its start, in seconds.
    pub from: f64,
    /// What the rails could carry.
    pub sum: f64,
    /// The carried bandwidth.
    pub carried: f64,
    /// How long after the change that was enough; `None`: never.
    pub recovered_after: Option<f64>,
    /// Whether it comes up to the targets.
    pub holds: bool,
}

/// The phases that begin at the times of `sums`. `points`: ends of intervals and the rates in them, from time
/// 0 on, by time.
pub fn judge(points: &[(f64, f64)], sums: &[(f64, f64)], targets: &Targets) -> Vec<Phase> {
    let end = points.last().map_or(0.0, |point| point.0);
    let ends = sums.iter().skip(1).map(|sum| sum.0).chain([end]);
    let phase = |(&(from, sum), to): (&(f64, f64), f64)| {
        let to = to.min(end);
        let carried = mean(points, from + targets.within.min((to - from) / 2.0), to);
        let recovered_after = points
            .iter()
            .map(|point| point.0)
            .chain([from])
            .filter(|&start| start >= from && start + LASTING.min(to - from) <= to)
            .filter(|&start| mean(points, start, (start + LASTING).min(to)) >= targets.recovered * sum)
            .map(|start| start - from)
            .min_by(f64::total_cmp);
        let holds = carried >= targets.steady * sum && recovered_after.is_some_and(|after| after <= targets.within);
        Phase { from, sum, carried, recovered_after, holds }
    };
    sums.iter().zip(ends).map(phase).collect()
}

/// The mean rate between two moments.
fn mean(points: &[(f64, f64)], from: f64, to: f64) -> f64 {
    let starts = [0.0].into_iter().chain(points.iter().map(|point| point.0));
    let part = |(start, &(end, rate)): (f64, &(f64, f64))| (end.min(to) - start.max(from)).max(0.0) * rate;
    starts.zip(points).map(part).sum::<f64>() / (to - from).max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: Targets = Targets { steady: 0.95, recovered: 0.9, within: 1.0 };

    /// A rate by time, in intervals of a tenth of a second.
    fn run(seconds: u32, rate: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        (1..=seconds * 10).map(|n| (f64::from(n) / 10.0, rate(f64::from(n - 1) / 10.0 + 0.001))).collect()
    }

    #[test]
    fn run_that_follows_the_rate_change_passes() {
        let points = run(6, |at| if at < 3.0 { 100.0 } else { 40.0 });
        let phases = judge(&points, &[(0.0, 100.0), (3.0, 40.0)], &TARGETS);
        assert!(phases.iter().all(|phase| phase.holds), "{phases:?}");
        assert!((phases[1].carried - 40.0).abs() < 1e-6, "{phases:?}");
    }

    #[test]
    fn a_slow_recovery_is_timed_and_missed() {
        let points = run(8, |at| if (3.0..=5.0).contains(&at) { 50.0 } else { 100.0 });
        let phases = judge(&points, &[(0.0, 100.0), (3.0, 100.0)], &TARGETS);
        assert!(phases[0].holds && !phases[1].holds);
        let after = phases[1].recovered_after.unwrap();
        assert!((1.8..2.05).contains(&after), "{after}");
    }

    #[test]
    fn one_lucky_interval_is_no_recovery() {
        let points = run(4, |at| if at < 2.0 || (2.5..2.6).contains(&at) { 100.0 } else { 50.0 });
        let phases = judge(&points, &[(0.0, 100.0), (2.0, 100.0)], &TARGETS);
        assert_eq!(phases[1].recovered_after, None);
    }

    #[test]
    fn steady_throughput_below_the_target_fails() {
        let phases = judge(&run(4, |_| 94.0), &[(0.0, 100.0)], &TARGETS);
        assert!(!phases[0].holds && phases[0].recovered_after == Some(0.0));
    }

    #[test]
    fn a_short_phase_is_judged_by_its_later_half() {
        let phases = judge(&run(1, |at| if at < 0.5 { 0.0 } else { 100.0 }), &[(0.0, 100.0)], &TARGETS);
        assert!((phases[0].carried - 100.0).abs() < 1e-6, "{phases:?}");
    }

    #[test]
    fn no_samples_are_no_bandwidth() {
        assert_eq!(judge(&[], &[(0.0, 1.0)], &TARGETS)[0].recovered_after, None);
    }
}
