//! Requests that are over without an event: reported by a counter alone, or by nothing but a flush behind
//! them.
//!
//! A counter shows how many, not which: so of the requests that are reported by a counter alone, each has one
//! to itself for its time. All that are reported both ways share the last one. A put that is not reported is
//! over with a flush submitted after it; its buffer stays taken until then. A message that is not reported is
//! one whose bytes were copied at once.

use rerail_core::endpoint::{Completion, Done, Notify, RequestKind};
use rerail_core::ids::{CounterId, PeerId};
use rerail_core::time::Nanos;

use super::{Open, Player, Sort};
use crate::cluster::Cx;

/// How often counters are looked at, where any is waited for.
const COUNTER_PERIOD: Nanos = Nanos::from_micros(100);

/// How a request may be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportNeed {
    /// The contents of its completion are needed.
    Event,
    /// Only that it is over is needed.
    Counter,
    /// The caller detects its end in other ways, or needs no report.
    Silent,
}

impl Player {
    /// Draws how a request is reported.
    pub(super) fn notify(&self, cx: &Cx<'_>, may: ReportNeed) -> Notify {
        let Some(last) = cx.engine.config().counters_max.checked_sub(1) else { return Notify::Event };
        let free = |lane: &u16| !self.open.values().any(|open| open.notify == Notify::Counter(CounterId(*lane)));
        match (self.shared.borrow_mut().report_draws.below(5), may) {
            (0, _) => Notify::Both(CounterId(last)),
            (1, ReportNeed::Counter | ReportNeed::Silent) => {
                (0..last).find(free).map_or(Notify::Event, |lane| Notify::Counter(CounterId(lane)))
            }
            (2, ReportNeed::Silent) => Notify::Silent,
            _ => Notify::Event,
        }
    }

    /// What the request's counter shows, where only that reports it.
    pub(super) fn counted(cx: &Cx<'_>, notify: Notify) -> Option<u64> {
        match notify {
            Notify::Counter(counter) => cx.engine.endpoint().counter(counter),
            Notify::Event | Notify::Both(_) | Notify::Silent => None,
        }
    }

    /// Looks at the counters that are waited for.
    pub(super) fn poll_counters(&mut self, cx: &mut Cx<'_>) {
        let moved = |open: &Open| open.counted.is_some_and(|before| Self::counted(cx, open.notify) != Some(before));
        let over: Vec<u32> = self.open.iter().filter(|(_, open)| moved(open)).map(|(request, _)| *request).collect();
        if !over.is_empty() {
            // A counter of a flush must not be trusted before the errors of the puts before it are received.
            self.take_events(cx);
        }
        for request in over {
            self.over(cx, request);
        }
        if self.open.values().any(|open| open.counted.is_some()) {
            cx.wake_at(cx.now + COUNTER_PERIOD);
        }
    }

    /// A flush is over: with it the puts before it that are not reported. One that failed went with its peer,
    /// and so did they, except for those reported that failed before.
    pub(super) fn flushed(&mut self, cx: &mut Cx<'_>, target: u32, flush: u32, well: bool) {
        let before = |open: &Open| {
            open.notify == Notify::Silent && matches!(open.sort, Sort::Step(Some((at, ..))) if at == target)
        };
        let over: Vec<u32> =
            self.open.range(..flush).filter(|(_, open)| before(open)).map(|(request, _)| *request).collect();
        for request in over {
            if well {
                self.over(cx, request);
            } else if let Some(open) = self.open.remove(request) {
                self.shared.borrow_mut().is_over(self.rank, &open);
                self.give_back(cx, open.receiving, &open.extents);
            }
        }
    }

    /// Enters the good end of a request that no event reports.
    fn over(&mut self, cx: &mut Cx<'_>, request: u32) {
        let Some(operation) = self.open.get(&request).map(|open| open.operation) else { return };
        let cookie = rerail_core::ids::Cookie(request.into());
        let result = Ok(Done::of(PeerId(0)));
        let kind = self.shared.borrow().ledger.book(self.rank).requests[request as usize].submission.kind();
        // Only an access to a temporary window has several.
        let kind = kind.unwrap_or(RequestKind::Put);
        self.completed(cx, &Completion { operation, cookie, kind, result, last: true, index: 0 });
    }
}
