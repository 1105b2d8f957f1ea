//! Bandwidth over virtual time: what a run looked like, beside what it came to (multirail-2004, figure 20:
//! "we print out the bandwidth every second").
//!
//! Made of the moments at which completions were reported to receivers. Between two such moments of a
//! rank the bytes of the second one are taken to have come evenly: messages of a window are under way
//! together, and where one ends is chance. Messages that are reported to a rank at one moment are one such
//! step.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rerail_core::time::Time;

use crate::scenario::Span;
use crate::workload::{Parameters, Sample, WorkloadError};

/// Samples of a size; what comes after them is not reported.
const SAMPLES_MAX: u64 = 1 << 16;

/// The shortest interval.
const INTERVAL_MIN: Span = Span::from_micros(1);

/// How a series is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Every {
    /// A sample for each message, at its completion, of the time since the one before it at the same rank.
    Message,
    /// A sample for each interval of so many nanoseconds of virtual time that lies within the run, at its
    /// end, of all ranks together.
    Interval(u64),
}

/// The series of a run, by index of the size of messages. Without a cut it keeps nothing.
#[derive(Clone, Debug)]
pub(super) struct Series {
    every: Option<Every>,
    steps: Rc<RefCell<Vec<ByRank>>>,
}

/// The steps of each rank, in their order.
type ByRank = BTreeMap<u32, Vec<Step>>;

/// Bytes that were reported to a rank at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    after: Time,
    at: Time,
    bytes: u64,
    messages: u64,
}

impl Series {
    /// The parameter `series`: "message", or an interval of time.
    pub fn new(parameters: &mut Parameters, sizes: usize) -> Result<Self, WorkloadError> {
        let every = match parameters.text("series")? {
            None => None,
            Some(text) if text == "message" => Some(Every::Message),
            Some(text) => match text.parse::<Span>() {
                Ok(span) if span >= INTERVAL_MIN => Some(Every::Interval(span.0)),
                _ => {
                    let why = format!(
                        "workload.parameters.series = \"{text}\": \"message\" or an interval from {INTERVAL_MIN} on"
                    );
                    return Err(WorkloadError { why });
                }
            },
        };
        Ok(Self::of(every, sizes))
    }

    fn of(every: Option<Every>, sizes: usize) -> Self {
        Series { every, steps: Rc::new(RefCell::new(vec![BTreeMap::new(); sizes])) }
    }

    /// A message's completion was reported to a rank; `None`: where it counts from, with no bytes of its own.
    pub fn add(&self, size: usize, rank: u32, at: Time, bytes: Option<u64>) {
        if self.every.is_none() {
            return;
        }
        let steps = &mut self.steps.borrow_mut()[size];
        let steps = steps.entry(rank).or_default();
        let after = match (bytes, steps.last_mut()) {
            (Some(bytes), Some(last)) if last.at == at && last.messages > 0 => {
                last.bytes += bytes;
                last.messages += 1;
                return;
            }
            (Some(_), Some(last)) => last.at,
            _ => at,
        };
        steps.push(Step { after, at, bytes: bytes.unwrap_or(0), messages: u64::from(bytes.is_some()) });
    }

    /// The series of a size in MB/s (10^6), by time.
    pub fn samples(&self, size: usize) -> Vec<Sample> {
        let steps = &self.steps.borrow()[size];
        let steps = || steps.values().flatten().filter(|step| step.messages > 0 && step.at > step.after);
        match self.every {
            None => Vec::new(),
            Some(Every::Message) => {
                let mut samples: Vec<Sample> = Vec::new();
                for step in steps() {
                    let sample = Sample { at_ns: step.at.0, value: mb_per_second(step.bytes as f64, step.span_ns()) };
                    samples.extend((0..step.messages).map(|_| sample));
                }
                samples.sort_by_key(|sample| sample.at_ns);
                samples.truncate(SAMPLES_MAX as usize);
                samples
            }
            Some(Every::Interval(span_ns)) => {
                let (first, last) = (steps().map(|step| step.after.0).min(), steps().map(|step| step.at.0).max());
                let (Some(first), Some(last)) = (first, last) else { return Vec::new() };
                // Whole intervals alone, counted from the origin of time.
                let (first, last) = (first.div_ceil(span_ns), last / span_ns);
                let mut came = vec![0.0; last.saturating_sub(first).min(SAMPLES_MAX) as usize];
                for step in steps() {
                    for interval in (step.after.0 / span_ns).max(first)..=step.at.0 / span_ns {
                        let Some(came) = came.get_mut((interval - first) as usize) else { break };
                        let from = step.after.0.max(interval * span_ns);
                        let until = step.at.0.min((interval + 1) * span_ns);
                        *came += step.bytes as f64 * until.saturating_sub(from) as f64 / step.span_ns() as f64;
                    }
                }
                let sample = |(interval, came): (u64, f64)| Sample {
                    at_ns: (interval + 1) * span_ns,
                    value: mb_per_second(came, span_ns),
                };
                (first..).zip(came).map(sample).collect()
            }
        }
    }
}

impl Step {
    fn span_ns(&self) -> u64 {
        self.at.0 - self.after.0
    }
}

/// Bytes per nanosecond are thousands of MB/s.
fn mb_per_second(bytes: f64, ns: u64) -> f64 {
    bytes * 1000.0 / ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 bytes in 100 ns, 200 in 100 ns by two messages reported at once, 300 in 600 ns; from 50 on.
    fn series(every: Every) -> Vec<(u64, f64)> {
        let series = Series::of(Some(every), 1);
        series.add(0, 3, Time(50), None);
        for (at, bytes) in [(150, 100), (250, 100), (250, 100), (850, 300)] {
            series.add(0, 3, Time(at), Some(bytes));
        }
        series.samples(0).iter().map(|sample| (sample.at_ns, sample.value)).collect()
    }

    #[test]
    fn series_reports_each_message() {
        assert_eq!(series(Every::Message), [(150, 1000.0), (250, 2000.0), (250, 2000.0), (850, 500.0)]);
    }

    #[test]
    fn series_divides_bytes_among_intervals() {
        // 50 of the first and 100 of the second step; 100 of it and 25 of the third; then a half of a byte
        // per nanosecond.
        let expected =
            [(200, 1500.0), (300, 1250.0), (400, 500.0), (500, 500.0), (600, 500.0), (700, 500.0), (800, 500.0)];
        assert_eq!(series(Every::Interval(100)), expected);
        assert_eq!(series(Every::Interval(1000)), [], "no whole interval");
    }

    #[test]
    fn series_combines_ranks_and_is_empty_if_disabled() {
        let both = Series::of(Some(Every::Interval(100)), 1);
        for rank in 0..2 {
            both.add(0, rank, Time(0), None);
            both.add(0, rank, Time(200), Some(100));
        }
        assert_eq!(both.samples(0).iter().map(|sample| sample.value).collect::<Vec<_>>(), [1000.0, 1000.0]);
        let none = Series::of(None, 1);
        none.add(0, 0, Time(0), None);
        none.add(0, 0, Time(10), Some(1));
        assert!(none.samples(0).is_empty() && none.steps.borrow()[0].is_empty());
    }
}
