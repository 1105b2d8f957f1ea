//! Half of a round trip: one message to and fro, again and again; or several of equal size at once, as
//! newmadeleine-2007 (3.1) has them: "the send (resp. recv) sequence is a serie of non-blocking send (resp.
//! non-blocking recv) operations".

use std::rc::Rc;

use rerail_core::endpoint::Event;
use rerail_core::mem::RegionId;
use rerail_core::time::Time;

use super::{Spans, measured, partner};
use crate::check::{Name, Verdict};
use crate::cluster::{App, Cluster, Cx, Ended, Moment, View, Workload};
use crate::scenario::Scenario;
use crate::workload::exchange::BYTES_MAX;
use crate::workload::plain::{Common, Message, Submitted};
use crate::workload::{Job, Measured, Parameters, WorkloadError, fit_operations};

/// Rounds of one size, at most; with [`SIZES_MAX`] sizes their numbers fit in names.
const ROUNDS_MAX: u64 = 1 << 16;

/// Sizes in one run, at most.
const SIZES_MAX: usize = 64;

/// Messages of a turn, at most.
const SEGMENTS_MAX: u64 = 64;

/// The workload.
pub(in crate::workload) struct PingPong {
    plan: Rc<Plan>,
    spans: Spans,
    pub(in crate::workload) common: Common,
}

struct Plan {
    /// Bytes of a turn, all its messages together.
    sizes: Vec<u64>,
    /// Messages of a turn, of equal size.
    segments: u64,
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

    /// Messages of each side.
    fn total(&self) -> u64 {
        self.each() * self.sizes.len() as u64 * self.segments
    }

    fn largest(&self) -> u64 {
        self.sizes.iter().copied().max().unwrap_or(1)
    }
}

impl PingPong {
    /// Parameters: see the module above.
    pub(in crate::workload) fn new(
        scenario: &Scenario,
        seed: u64,
        parameters: &mut Parameters,
    ) -> Result<Self, WorkloadError> {
        let sizes = parameters.numbers("bytes", &[8], 1, BYTES_MAX)?;
        if sizes.len() > SIZES_MAX {
            return Err(WorkloadError { why: format!("workload.parameters.bytes: at most {SIZES_MAX} sizes") });
        }
        let rounds = parameters.number("rounds", 50, 1, ROUNDS_MAX)?;
        let warm_up = parameters.number("warm_up", 5, 0, ROUNDS_MAX)?;
        let segments = parameters.number("segments", 1, 1, SEGMENTS_MAX)?;
        // The receives of a turn are posted before the turn that it answers goes out.
        fit_operations((scenario, seed), ("segments", segments), |segments| segments + 1)?;
        if let Some(bytes) = sizes.iter().find(|bytes| !bytes.is_multiple_of(segments)) {
            let why = format!("workload.parameters.bytes: {bytes} bytes are not {segments} segments of equal size");
            return Err(WorkloadError { why });
        }
        let spans = Spans::new(sizes.len());
        Ok(PingPong { plan: Rc::new(Plan { sizes, segments, rounds, warm_up }), spans, common: Common::default() })
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
            sending: 0,
            posted: 0,
            received: 0,
            began: Time(0),
        })
    }

    fn at_moment(&mut self, _view: &View<'_>, _moment: Moment) -> bool {
        self.common.is_well()
    }
}

impl Job for PingPong {
    fn verdict(&mut self, cluster: &Cluster, ended: &Ended) -> Verdict {
        self.common.verdict(cluster, ended)
    }

    fn measured(&self) -> Vec<Measured> {
        let half_trips = 2 * self.plan.rounds;
        let value = |size| Some(self.spans.mean_ns(size)? / half_trips as f64 / 1000.0);
        measured("latency", "us", &self.plan.sizes, value, |_| Vec::new())
    }
}

/// One end. Messages are counted through; a turn's have numbers next to each other.
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
    /// Those of them that are not over.
    sending: u64,
    /// Receives posted.
    posted: u64,
    /// Messages received.
    received: u64,
    /// When measuring began.
    began: Time,
}

const RECEIVE: u64 = 1;

impl Player {
    /// A message from a rank to another, by number, in the half of this rank's memory that begins `half`
    /// largest turns into it.
    fn message(&self, number: u64, from: u32, to: u32, half: u64) -> Option<Message> {
        let Plan { segments, .. } = *self.plan;
        let bytes = *self.plan.sizes.get((number / segments / self.plan.each()) as usize)? / segments;
        let name = Name::new(from, to, number as u32);
        let offset = half * self.plan.largest() + number % segments * bytes;
        Some(Message { name, content: name, bytes, region: self.region?, offset })
    }

    /// Turns that have come whole.
    fn turns(&self) -> u64 {
        self.received / self.plan.segments
    }

    fn advance(&mut self, cx: &mut Cx<'_>) {
        let (segments, total) = (self.plan.segments, self.plan.total());
        while !self.over && self.posted < total.min((self.turns() + 1) * segments) {
            let Some(message) = self.message(self.posted, self.peer, cx.rank, 1) else { return };
            self.common.clear(cx, &message);
            match self.common.receive(cx, &message, self.posted << 1 | RECEIVE) {
                Submitted::Open => self.posted += 1,
                Submitted::Full => return,
                Submitted::Never => self.over = true,
            }
        }
        // An answer goes out when its turn has come whole, the next turn when the answer has; and none before
        // the last one's buffers are free.
        let until = total.min((self.turns() + u64::from(self.begins)) * segments);
        while !self.over && self.sent < until && (self.sending == 0 || !self.sent.is_multiple_of(segments)) {
            let Some(message) = self.message(self.sent, cx.rank, self.peer, 0) else { return };
            if self.sent % (self.plan.each() * segments) == self.plan.warm_up * segments {
                self.began = cx.now;
            }
            self.common.fill(cx, &message);
            match self.common.send(cx, &message, self.sent << 1, message.request()) {
                Submitted::Open => {
                    self.sending += 1;
                    self.sent += 1;
                }
                Submitted::Full => return,
                Submitted::Never => self.over = true,
            }
        }
    }

    fn completed(&mut self, cx: &mut Cx<'_>, completion: &rerail_core::endpoint::Completion) {
        let done = self.common.over(cx, completion);
        self.over |= done.is_none();
        let number = completion.cookie.0 >> 1;
        if completion.cookie.0 & RECEIVE == 0 {
            self.sending -= 1;
            return;
        }
        if let (Some(done), Some(message)) = (done, self.message(number, self.peer, cx.rank, 1)) {
            self.common.check(cx, &message, completion.cookie.0, &done);
        }
        self.received += 1;
        let each = self.plan.each() * self.plan.segments;
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
        self.over || self.sent == total && self.received == total && self.sending == 0
    }
}
