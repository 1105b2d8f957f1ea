//! A programme of steps, run by every rank: at each step a rank sends to one rank and receives from another,
//! or either, or neither.
//!
//! A rank has a bounded number of steps under way, and buffers for these. So that bounded ranks never wait
//! for each other in a circle, all must meet their messages in one order: there is an order of all messages
//! of the job, such that every rank's steps follow it. (Then the first message that is not over is under way
//! at both its ends.) So two operations are enough for a rank, one for each message of its oldest step.

use std::cell::RefCell;
use std::rc::Rc;

use rerail_core::endpoint::{Completion, Event, Level, SendRequest};
use rerail_core::ids::PeerId;
use rerail_core::mem::RegionId;
use rerail_core::time::Time;

use super::plain::{Common, Message, Submitted};
use super::{Job, Measured};
use crate::check::{Name, Verdict};
use crate::cluster::{App, Cluster, Cx, Ended, Moment, View, Workload};

/// What a rank does at a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// The rank to which it sends.
    pub(super) to: Option<u32>,
    /// The rank from which it receives.
    pub(super) from: Option<u32>,
    /// The serial number of its messages among those of their pair.
    pub(super) serial: u32,
    /// All steps before must be over first.
    pub(super) after_all: bool,
}

/// The steps of each rank.
pub(super) trait Programme {
    /// Steps of each rank.
    fn steps(&self, rank: u32) -> u64;
    /// One of them.
    fn step(&self, rank: u32, index: u64) -> Step;
}

/// How steps are run.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepParameters {
    /// Bytes of a message.
    pub(super) bytes: u64,
    /// Steps that a rank may have under way; what comes behind the oldest of them by so many waits.
    pub(super) ahead: u64,
    /// Peers are closed when a step with them is over.
    pub(super) close: bool,
    /// Rounds begin at their moments, and are measured.
    pub(super) every: Option<Every>,
}

/// Rounds, all of as many steps, that every rank begins at the same moments, as if by a clock: so
/// nothing of a barrier is in what is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Every {
    /// From one beginning to the next, in nanoseconds of virtual time.
    pub(super) ns: u64,
    /// How many.
    pub(super) rounds: u64,
}

impl Every {
    /// When a round begins.
    fn begins(self, round: u64) -> Time {
        Time((round + 1).saturating_mul(self.ns))
    }

    /// Mean of the times from the beginnings of rounds to their ends, in nanoseconds, but for the first, in
    /// which connections and registrations are made. `None` where a round reached into the next, or did not
    /// end.
    fn mean_ns(self, ends: &[Time]) -> Option<f64> {
        let time = |(round, end): (u64, &Time)| {
            let ns = end.0.checked_sub(self.begins(round).0)?;
            (ns <= self.ns).then_some(ns)
        };
        let times: Vec<u64> = (0..).zip(ends).map(time).collect::<Option<_>>()?;
        let measured = times.get(1..).filter(|measured| !measured.is_empty() && times.len() as u64 == self.rounds)?;
        Some(measured.iter().sum::<u64>() as f64 / measured.len() as f64)
    }
}

/// The workload.
pub(super) struct Steps {
    programme: Rc<dyn Programme>,
    step_parameters: StepParameters,
    common: Common,
    ends: Ends,
}

/// When the last rank had finished each round.
type Ends = Rc<RefCell<Vec<Time>>>;

impl Steps {
    /// All ranks run the programme.
    pub(super) fn new(programme: impl Programme + 'static, step_parameters: StepParameters) -> Self {
        Steps { programme: Rc::new(programme), step_parameters, common: Common::default(), ends: Ends::default() }
    }

    #[cfg(test)]
    pub(super) fn common(&self) -> &Common {
        &self.common
    }
}

impl Workload for Steps {
    fn app(&mut self, rank: u32, _size: u32) -> Box<dyn App> {
        let steps = self.programme.steps(rank);
        let slots = steps.min(self.step_parameters.ahead).max(1) as usize;
        Box::new(Player {
            programme: self.programme.clone(),
            step_parameters: self.step_parameters,
            common: self.common.clone(),
            ends: self.ends.clone(),
            steps,
            next: 0,
            busy: 0,
            slots: vec![Slot::default(); slots],
            region: None,
            failed: false,
        })
    }

    fn at_moment(&mut self, _view: &View<'_>, _moment: Moment) -> bool {
        self.common.is_well()
    }
}

impl Job for Steps {
    fn verdict(&mut self, cluster: &Cluster, ended: &Ended) -> Verdict {
        self.common.verdict(cluster, ended)
    }

    fn measured(&self) -> Vec<Measured> {
        let mean = self.step_parameters.every.and_then(|every| every.mean_ns(&self.ends.borrow()));
        let one = |ns: f64| Measured {
            what: "latency",
            bytes: self.step_parameters.bytes,
            value: ns / 1000.0,
            unit: "us",
            series: Vec::new(),
        };
        mean.map(one).into_iter().collect()
    }
}

/// A step under way.
#[derive(Clone, Copy, Default)]
struct Slot {
    index: u64,
    step: Step,
    send: Half,
    receive: Half,
}

/// One of a step's two messages.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Half {
    /// There is none, or it is over.
    #[default]
    Over,
    /// To be submitted.
    Wanted,
    /// Submitted.
    Open,
}

impl Slot {
    fn is_over(&self) -> bool {
        self.send == Half::Over && self.receive == Half::Over
    }
}

/// A rank.
struct Player {
    programme: Rc<dyn Programme>,
    step_parameters: StepParameters,
    common: Common,
    ends: Ends,
    steps: u64,
    /// The step to be begun next.
    next: u64,
    /// Slots that are not over.
    busy: usize,
    /// Step `n` has slot `n` modulo their number.
    slots: Vec<Slot>,
    /// Per slot what is sent, then what is received.
    region: Option<RegionId>,
    failed: bool,
}

/// The lowest bit of cookies: which half of a step it is; the others are its index.
const RECEIVE: u64 = 1;

impl Player {
    /// Submits what may be under way.
    fn advance(&mut self, cx: &mut Cx<'_>) {
        // Where operations are short, the oldest step has them: later ones may be waiting for it.
        let slots = self.slots.len() as u64;
        for index in self.next.saturating_sub(slots)..self.next {
            let at = (index % slots) as usize;
            if !self.slots[at].is_over() {
                self.submit(cx, at);
            }
        }
        while self.next < self.steps && !self.failed {
            let at = (self.next % self.slots.len() as u64) as usize;
            if !self.slots[at].is_over() {
                return;
            }
            if let Some(begins) = self.begins(self.next).filter(|begins| cx.now < *begins) {
                cx.wake_at(begins);
                return;
            }
            let step = self.programme.step(cx.rank, self.next);
            if step.after_all && self.busy > 0 {
                return;
            }
            let half = |peer: Option<u32>| peer.map_or(Half::Over, |_| Half::Wanted);
            self.slots[at] = Slot { index: self.next, step, send: half(step.to), receive: half(step.from) };
            self.next += 1;
            if !self.slots[at].is_over() {
                self.busy += 1;
                self.submit(cx, at);
            }
        }
    }

    /// Rounds that begin at their moments, and the steps of each; `None`: there are none.
    fn rounds(&self) -> Option<(Every, u64)> {
        let every = self.step_parameters.every?;
        Some((every, (self.steps / every.rounds).max(1)))
    }

    /// When a step may begin, if it is the first of a round that has its moment.
    fn begins(&self, index: u64) -> Option<Time> {
        let (every, steps) = self.rounds()?;
        index.is_multiple_of(steps).then(|| every.begins(index / steps))
    }

    /// A step is over; so may be its round.
    fn note(&self, cx: &Cx<'_>, index: u64) {
        let Some((every, steps)) = self.rounds() else { return };
        let mut ends = self.ends.borrow_mut();
        ends.resize(every.rounds as usize, Time(0));
        let end = &mut ends[(index / steps) as usize];
        *end = cx.now.max(*end);
    }

    /// Submits what a slot has due.
    fn submit(&mut self, cx: &mut Cx<'_>, at: usize) {
        let slot = self.slots[at];
        if let Some(message) = self.received(cx, at).filter(|_| slot.receive == Half::Wanted) {
            self.common.clear(cx, &message);
            let submitted = self.common.receive(cx, &message, slot.index << 1 | RECEIVE);
            self.slots[at].receive = after(submitted);
        }
        if let Some(message) = self.sent(cx, at).filter(|_| slot.send == Half::Wanted) {
            self.common.fill(cx, &message);
            let level = if self.step_parameters.close { Level::Acknowledged } else { Level::Reusable };
            let submitted = self.common.send(cx, &message, slot.index << 1, SendRequest { level, ..message.request() });
            self.slots[at].send = after(submitted);
        }
        self.complete_step(cx, at);
    }

    /// A slot may be over.
    fn complete_step(&mut self, cx: &mut Cx<'_>, at: usize) {
        let slot = self.slots[at];
        if !slot.is_over() {
            return;
        }
        self.busy -= 1;
        self.note(cx, slot.index);
        if !self.step_parameters.close {
            return;
        }
        for peer in slot.step.to.into_iter().chain(slot.step.from.filter(|from| slot.step.to != Some(*from))) {
            if let Err(error) = cx.engine.close_peer(PeerId(peer)) {
                self.common.crash(cx, format!("closing rank {peer}: {error:?}"));
            }
        }
    }

    fn sent(&self, cx: &Cx<'_>, at: usize) -> Option<Message> {
        let (slot, bytes) = (self.slots[at], self.step_parameters.bytes);
        let name = Name::new(cx.rank, slot.step.to?, slot.step.serial);
        Some(Message { name, content: name, bytes, region: self.region?, offset: at as u64 * 2 * bytes })
    }

    fn received(&self, cx: &Cx<'_>, at: usize) -> Option<Message> {
        let (slot, bytes) = (self.slots[at], self.step_parameters.bytes);
        let name = Name::new(slot.step.from?, cx.rank, slot.step.serial);
        Some(Message { name, content: name, bytes, region: self.region?, offset: (at as u64 * 2 + 1) * bytes })
    }

    fn completed(&mut self, cx: &mut Cx<'_>, completion: &Completion) {
        let done = self.common.over(cx, completion);
        let (index, half) = (completion.cookie.0 >> 1, completion.cookie.0 & 1);
        let at = (index % self.slots.len() as u64) as usize;
        if self.slots[at].index != index || self.slots[at].is_over() {
            // It is not waited for: that has been noted.
            return;
        }
        if half == RECEIVE {
            if let (Some(done), Some(message)) = (&done, self.received(cx, at)) {
                self.common.check(cx, &message, completion.cookie.0, done);
            }
            self.slots[at].receive = Half::Over;
        } else {
            self.slots[at].send = Half::Over;
        }
        self.complete_step(cx, at);
    }
}

fn after(submitted: Submitted) -> Half {
    match submitted {
        Submitted::Open => Half::Open,
        Submitted::Full => Half::Wanted,
        Submitted::Never => Half::Over,
    }
}

impl App for Player {
    fn start(&mut self, cx: &mut Cx<'_>) {
        self.region = self.common.alloc(cx, self.slots.len() as u64 * 2 * self.step_parameters.bytes);
        self.failed = self.region.is_none();
        self.advance(cx);
    }

    fn event(&mut self, cx: &mut Cx<'_>, event: Event) {
        if let Some(completion) = self.common.event(cx, event, self.step_parameters.close) {
            self.completed(cx, &completion);
        }
        self.advance(cx);
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        self.advance(cx);
    }

    fn is_done(&self) -> bool {
        self.failed || self.next == self.steps && self.busy == 0
    }
}
