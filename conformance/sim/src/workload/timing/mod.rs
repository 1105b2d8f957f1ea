//! Latency and bandwidth between pairs of ranks, in virtual time.
//!
//! Rank r of the first half of the job is paired with rank r + size/2, so that pairs cross hosts; an odd rank
//! out does nothing. What happens before everything is warm (connections, registered memory) is not measured.
//!
//! | name | parameters |
//! |---|---|
//! | `ping-pong` | `bytes` [8], `rounds` 50, `warm_up` 5, `segments` 1: messages that a turn sends at once,
//! `bytes` in all |
//! | `bandwidth` | `bytes` [1 MiB], `window` 64, `windows` 10, `both` false, `apart` false, `series` none |
//! | `one-sided` | `operation` "put" or "get", `bytes` 1024, `window` 16: under way at once, `count` 1000;
//! measures nothing |
//!
//! With `apart` every second pair sends the other way; `series` is "message", or an interval like "1ms".

mod bandwidth;
mod onesided;
mod pingpong;
mod series;

use std::cell::RefCell;
use std::rc::Rc;

use rerail_core::time::Time;

pub(super) use bandwidth::Bandwidth;
pub(super) use onesided::OneSided;
pub(super) use pingpong::PingPong;

use super::plain::span_ns;
use super::{Measured, Sample};

/// The partner of a rank, and whether this one begins.
fn partner(rank: u32, size: u32) -> Option<(u32, bool)> {
    let half = size / 2;
    match rank {
        rank if rank < half => Some((rank + half, true)),
        rank if rank < 2 * half => Some((rank - half, false)),
        _ => None,
    }
}

/// What ranks measured, by index of the size of messages.
#[derive(Clone, Debug, Default)]
struct Spans(Rc<RefCell<Vec<Vec<Span>>>>);

/// From one moment to another.
type Span = (Time, Time);

impl Spans {
    fn new(sizes: usize) -> Self {
        Spans(Rc::new(RefCell::new(vec![Vec::new(); sizes])))
    }

    /// A rank was at it from one moment to another.
    fn add(&self, size: usize, from: Time, to: Time) {
        self.0.borrow_mut()[size].push((from, to));
    }

    /// The mean of all ranks' times in nanoseconds; `None` where no rank came to an end.
    fn mean_ns(&self, size: usize) -> Option<f64> {
        let spans = &self.0.borrow()[size];
        let sum: u64 = spans.iter().map(|(from, to)| span_ns(*from, *to)).sum();
        (!spans.is_empty()).then(|| sum as f64 / spans.len() as f64)
    }

    /// How many ranks were at it, and the time from the first one's beginning to the last one's end, in
    /// nanoseconds.
    fn all_ends_ns(&self, size: usize) -> Option<(usize, u64)> {
        let spans = &self.0.borrow()[size];
        let from = spans.iter().map(|(from, _)| *from).min()?;
        let to = spans.iter().map(|(_, to)| *to).max()?;
        Some((spans.len(), span_ns(from, to)))
    }
}

/// One entry for each size of messages that was measured, each with its series.
fn measured(
    what: &'static str,
    unit: &'static str,
    sizes: &[u64],
    value: impl Fn(usize) -> Option<f64>,
    series: impl Fn(usize) -> Vec<Sample>,
) -> Vec<Measured> {
    let one = |(index, bytes): (usize, &u64)| {
        Some(Measured { what, bytes: *bytes, value: value(index)?, unit, series: series(index) })
    };
    sizes.iter().enumerate().filter_map(one).collect()
}
