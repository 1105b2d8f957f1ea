//! Half of a round trip: one message to and fro, again and again.

use std::rc::Rc;

use rerail_core::endpoint::{Event, Send};
use rerail_core::mem::RegionId;
use rerail_core::time::Time;

use super::{Spans, measured, partner};
use crate::check::{Name, Verdict};
use crate::scenario::Scenario;
use crate::workload::exchange::BYTES_MAX;
use crate::workload::plain::{Common, Message, Submitted};
use crate::workload::{Job, Measured, Parameters, WorkloadError};
use crate::world::{App, Cx, Ended, Moment, View, Workload, World};

/// Rounds of one size, at most; with [`SIZES_MAX`] sizes their numbers fit in names.
const ROUNDS_MAX: u64 = 1 << 16;

/// Sizes of messages in one run, at most.
const SIZES_MAX: usize = 64;

/// The workload.
pub(in crate::workload) struct PingPong {
    plan: Rc<Plan>,
    spans: Spans,
    pub(in crate::workload) common: Common,
}

struct Plan {
    sizes: Vec<u64>,
    /// Rounds of each size that are measured.
    rounds: u64,
    /// Rounds of each size before.
    warm_up: u64,
}

impl Plan {
    /// Rounds of each size.
    fn each(&self) -> u64 {
        self.warm_up + self.rounds
    }

    fn total(&self) -> u64 {
        self.each() * self.sizes.len() as u64
    }

    fn largest(&self) -> u64 {
        self.sizes.iter().copied().max().unwrap_or(1)
    }
}

impl PingPong {
    /// Parameters: see the module above.
    pub(in crate::workload) fn new(_scenario: &Scenario, parameters: &mut Parameters) -> Result<Self, WorkloadError> {
        let sizes = parameters.numbers("bytes", &[8], 1, BYTES_MAX)?;
        if sizes.len() > SIZES_MAX {
            return Err(WorkloadError { why: format!("workload.parameters.bytes: at most {SIZES_MAX} sizes") });
        }
        let rounds = parameters.number("rounds", 50, 1, ROUNDS_MAX)?;
        let warm_up = parameters.number("warm_up", 5, 0, ROUNDS_MAX)?;
        let spans = Spans::new(sizes.len());
        Ok(PingPong { plan: Rc::new(Plan { sizes, rounds, warm_up }), spans, common: Common::default() })
    }
}

impl Workload for PingPong {
    fn app(&mut self, rank: u32, size: u32) -> Box<dyn App> {
        let partner = partner(rank, size);
        Box::new(Player {
            plan: self.plan.clone(),
            spans: self.spans.clone(),
            common: self.common.clone(),
            peer: partner.map_or(rank, |(peer, _)| peer),
            begins: partner.is_some_and(|(_, begins)| begins),
            over: partner.is_none(),
            region: None,
            sent: 0,
            sending: false,
            received: 0,
            receiving: false,
            began: Time(0),
        })
    }

    fn look(&mut self, _view: &View<'_>, _moment: Moment) -> bool {
        self.common.is_well()
    }
}

impl Job for PingPong {
    fn verdict(&mut self, world: &World, ended: &Ended) -> Verdict {
        self.common.verdict(world, ended)
    }

    fn measured(&self) -> Vec<Measured> {
        let half_trips = 2 * self.plan.rounds;
        let value = |size| Some(self.spans.mean_ns(size)? / half_trips as f64 / 1000.0);
        measured("latency", "us", &self.plan.sizes, value, |_| Vec::new())
    }
}

/// One end.
struct Player {
    plan: Rc<Plan>,
    spans: Spans,
    common: Common,
    peer: u32,
    /// This end sends first, and measures.
    begins: bool,
    /// There is nothing to do, or nothing more can be done.
    over: bool,
    /// What is sent, then what is received.
    region: Option<RegionId>,
    /// Messages submitted.
    sent: u64,
    /// The last of them is not over.
    sending: bool,
    /// Messages received.
    received: u64,
    /// The next receive is posted.
    receiving: bool,
    /// When measuring began.
    began: Time,
}

const RECEIVE: u64 = 1;

impl Player {
    /// The message of a round from a rank to another, at `offset` largest sizes into this rank's memory.
    fn message(&self, round: u64, from: u32, to: u32, offset: u64) -> Option<Message> {
        let bytes = *self.plan.sizes.get((round / self.plan.each()) as usize)?;
        let name = Name::new(from, to, round as u32);
        Some(Message { name, content: name, bytes, region: self.region?, offset: offset * self.plan.largest() })
    }

    fn advance(&mut self, cx: &mut Cx<'_>) {
        if self.over {
            return;
        }
        if !self.receiving && self.received < self.plan.total() {
            let Some(message) = self.message(self.received, self.peer, cx.rank, 1) else { return };
            self.common.clear(cx, &message);
            match self.common.receive(cx, &message, self.received << 1 | RECEIVE) {
                Submitted::Open => self.receiving = true,
                Submitted::Full => return,
                Submitted::Never => self.over = true,
            }
        }
        // An answer goes out when its message has come, the next message when the answer has.
        let turn = if self.begins { self.sent == self.received } else { self.sent < self.received };
        if !self.sending && turn && self.sent < self.plan.total() && !self.over {
            let Some(message) = self.message(self.sent, cx.rank, self.peer, 0) else { return };
            if self.sent % self.plan.each() == self.plan.warm_up {
                self.began = cx.now;
            }
            self.common.fill(cx, &message);
            match self.common.send(cx, &message, self.sent << 1, Send::default()) {
                Submitted::Open => {
                    self.sending = true;
                    self.sent += 1;
                }
                Submitted::Full => {}
                Submitted::Never => self.over = true,
            }
        }
    }

    fn completed(&mut self, cx: &mut Cx<'_>, completion: &rerail_core::endpoint::Completion) {
        let done = self.common.over(cx, completion);
        self.over |= done.is_none();
        if completion.cookie.0 & RECEIVE == 0 {
            self.sending = false;
            return;
        }
        if let (Some(done), Some(message)) = (done, self.message(self.received, self.peer, cx.rank, 1)) {
            self.common.check(cx, &message, completion.cookie.0, &done);
        }
        self.receiving = false;
        self.received += 1;
        let each = self.plan.each();
        if self.begins && self.received.is_multiple_of(each) {
            self.spans.add((self.received / each - 1) as usize, self.began, cx.now);
        }
    }
}

impl App for Player {
    fn start(&mut self, cx: &mut Cx<'_>) {
        if self.over {
            return;
        }
        self.region = self.common.alloc(cx, 2 * self.plan.largest());
        self.over = self.region.is_none();
        self.advance(cx);
    }

    fn event(&mut self, cx: &mut Cx<'_>, event: Event) {
        if let Some(completion) = self.common.event(cx, event, false) {
            self.completed(cx, &completion);
        }
        self.over |= self.common.has_lost(cx.rank, self.peer);
        self.advance(cx);
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        self.advance(cx);
    }

    fn is_done(&self) -> bool {
        let total = self.plan.total();
        self.over || self.sent == total && self.received == total && !self.sending
    }
}
