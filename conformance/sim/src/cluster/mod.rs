//! Hosts, ranks and the event loop.
//!
//! A [`Cluster`] is one scenario and one seed. It holds an engine of the real driver for every rank, the
//! wires between them, and one order of everything that happens: by time, then by sort, then in the order of
//! being requested. Nothing else decides, so a seed has one history.
//!
//! # A rank's time
//! A polling process sees what became visible `poll_ns` later. It then makes a round of its engine; what that
//! did costs time (`cpu` of the scenario), after which the application receives events and submits; that
//! costs time too. Until then the process sees nothing. What a round does to rails happens at its start, so
//! costs lie between a message's coming and the answer to it, not within a round; but for posts, where an
//! HCA's `cost` sets that they take the processor time: these go out one behind the other, and the round's
//! other costs follow. A process polls again as long as rounds bring something; else it sleeps until
//! something becomes visible to it or a deadline comes, for polling in vain is not worth simulating.
//!
//! # Phases
//! Safety: faults happen. Then everything is healed. Liveness: what was submitted must complete within
//! `limits.convergence`. Rest: engines come to rest, so that what is still in use has leaked.
//!
//! | file | holds |
//! |---|---|
//! | `app` | what runs on ranks, and what checkers see |
//! | `build` | a scenario becomes hosts, wires, rails and engines |
//! | `step` | a rank wakes, makes a round, reports to its application |
//! | `apply` | faults at their moments |
//! | `cuts` | ranks between which there is no way left, and those that can't be found |
//! | `topology` | hosts, buses, HCAs and subnets laid out on a net, and faults of wires |
//! | `devices` | the fabric of software HCAs, and its faults |
//! | `wires` | rings and wires together, as the loop sees them |
//! | `fault`, `place` | the menu of faults |
//! | `admin` | the administrative network |
//! | `wakes` | when ranks wake |
//! | `report` | what a simulation took |
//! | `pingpong` | the simplest workload: pairs of ranks, payload checked |

mod admin;
mod app;
mod apply;
mod build;
mod cuts;
mod devices;
pub mod fault;
mod pingpong;
pub mod place;
mod report;
mod step;
#[cfg(test)]
mod tests;
mod topology;
mod wakes;
mod wires;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rerail_core::time::Time;
use rerail_linux::driver::{Transport, VirtualTime};

use crate::cover::Path;
use crate::rng::Rng;
use crate::scenario::{CpuSpec, Limits, RailSpec};
use crate::trace::{Subject, Trace};
use fault::FaultAt;
use wakes::Wakes;
use wires::Wires;

pub use admin::{AdminNet, Datagram};
pub use app::{App, Cx, Moment, View, Workload};
pub use build::BuildError;
pub use pingpong::PingPong;
pub use report::{Ended, Report};

/// What a run is about at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Faults happen; nothing wrong may.
    Safety,
    /// All is healed; all must complete.
    Liveness,
    /// All is complete; engines come to rest.
    Rest,
}

/// A cluster.
pub struct Cluster {
    ranks: Vec<RankState>,
    wires: Wires,
    admin: AdminNet,
    /// Faults that happen or end.
    queue: BinaryHeap<Reverse<Entry>>,
    wakes: Wakes,
    /// Entries made so far: the last word in their order.
    sequence: u64,
    now: Time,
    phase: Phase,
    cpu: CpuSpec,
    /// What polls take: of the rings, and of the other rails.
    poll_ns: [u64; 2],
    limits: Limits,
    faults: Vec<FaultAt>,
    /// Rails of every rank.
    ways: Vec<RailSpec>,
    /// The address of each rank on each of them, as published at the start.
    first_addresses: Vec<Vec<String>>,
    /// Faults of `faults` that are not healed, by index.
    active: Vec<bool>,
    /// Those that have happened.
    begun: Vec<bool>,
    /// Moments of faults still in the queue.
    faults_left: usize,
    /// Ranks that live and whose app is not done.
    undone: usize,
    /// Slow polls are drawn from here.
    rng: Rng,
    trace: Trace,
    events: u64,
    /// Time at which everything was healed.
    healed: Option<Time>,
    /// Ranks to which something becomes visible, and when; reused.
    woken: Vec<(u32, Time)>,
    killed: Vec<u32>,
    report: Report,
}

/// The real driver, in virtual time.
pub type Engine = Transport<VirtualTime>;

/// A process.
struct RankState {
    // Engines go before the wires that their rails hold on to; a rank's app goes with it.
    engine: Engine,
    app: Box<dyn App>,
    rng: Rng,
    alive: bool,
    /// The app's last answer of `is_done`.
    done: bool,
    /// Nothing is polled until then; [`Time`]'s end: until it is continued.
    paused_until: Time,
    /// The processor is busy until then.
    busy_until: Time,
    /// Turns in a row in which nothing came.
    idle_turns: u64,
    /// The application's timer.
    app_wake: Option<Time>,
    /// Between a round and telling the application.
    is_reporting: bool,
    /// Bytes that the engine had copied when it was last looked at.
    copied: u64,
    /// The gates of the rank's rails, where the scenario has faults that close them.
    gates: Vec<crate::rails::GateHandle>,
    datagrams: Vec<Datagram>,
}

/// What waits for its moment, in the order in which it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: Time,
    what: What,
    sequence: u64,
}

/// Sorts of entries; at equal times the first goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A fault is over.
    Heal(u32),
    /// A fault happens.
    Fault(u32),
}

/// Why the loop stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The time given is over.
    Time,
    /// Nothing is left that could happen.
    Idle,
    /// What was waited for has come.
    Reached,
    /// The workload saw what must not be.
    Workload,
    /// More events than allowed.
    Events,
}

impl Cluster {
    /// Virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Faults of this simulation, by moment; those with `true` have happened and are not over.
    pub fn faults(&self) -> impl Iterator<Item = (&FaultAt, bool)> {
        self.faults.iter().zip(self.active.iter().copied())
    }

    /// Whether any fault has happened that takes something away
    /// ([`Kind::needs_recovery`](fault::Kind::needs_recovery)).
    pub fn needed_recovery(&self) -> bool {
        let mut begun = self.faults.iter().zip(&self.begun).filter(|(_, begun)| **begun);
        begun.any(|(at, _)| at.fault.needs_recovery())
    }

    /// A look at it.
    pub fn view(&self) -> View<'_> {
        View { now: self.now, phase: self.phase, ranks: &self.ranks, wires: &self.wires }
    }

    /// Runs all phases. A simulation runs once.
    pub fn run(&mut self, workload: &mut dyn Workload) -> Ended {
        self.start();
        let ended = self.phases(workload);
        self.trace.note(self.now, Subject::Cluster, format_args!("end: {ended}"));
        if let Ended::Stuck { ranks, .. } = &ended
            && self.trace.is_on()
        {
            for &rank in ranks {
                self.trace_under_way(rank);
            }
        }
        self.finish_report();
        ended
    }

    /// What this rank's endpoint has under way, line by line: for people who look for the reason of a hang.
    fn trace_under_way(&self, rank: u32) {
        let in_flight = format!("{:?}", self.ranks[rank as usize].engine.endpoint());
        for line in in_flight.lines() {
            self.trace.note(self.now, Subject::Rank(rank), format_args!("{line}"));
        }
    }

    fn phases(&mut self, workload: &mut dyn Workload) -> Ended {
        let end = self.limits.safety.time();
        let stop = self.run_until(end, workload, |cluster| cluster.undone == 0 && cluster.faults_left == 0);
        if let Some(ended) = self.ended_by(stop) {
            return ended;
        }
        if stop == Stop::Idle && self.undone > 0 {
            // All wait for faults to end, which they do when the phase ends.
            self.now = end;
        }
        self.heal_all();
        if !workload.at_moment(&self.view(), Moment::Healed) {
            return Ended::Stopped;
        }
        self.enter(Phase::Liveness);
        let end = self.now + self.limits.convergence.nanos();
        let stop = self.run_until(end, workload, |cluster| cluster.undone == 0);
        if let Some(ended) = self.ended_by(stop) {
            return ended;
        }
        if !workload.at_moment(&self.view(), Moment::Done) {
            return Ended::Stopped;
        }
        if self.undone > 0 {
            return Ended::Stuck { ranks: self.undone_ranks(), idle: stop == Stop::Idle };
        }
        self.report.done_ns = self.now.0;
        self.enter(Phase::Rest);
        let end = self.now + self.limits.rest.nanos();
        let stop = self.run_until(end, workload, |_| false);
        if let Some(ended) = self.ended_by(stop) {
            return ended;
        }
        match workload.at_moment(&self.view(), Moment::End) {
            true => Ended::Done,
            false => Ended::Stopped,
        }
    }

    fn ended_by(&self, stop: Stop) -> Option<Ended> {
        match stop {
            Stop::Workload => Some(Ended::Stopped),
            Stop::Events => Some(Ended::TooManyEvents { events: self.events }),
            Stop::Time | Stop::Idle | Stop::Reached => None,
        }
    }

    fn undone_ranks(&self) -> Vec<u32> {
        (0..).zip(&self.ranks).filter(|(_, rank)| rank.alive && !rank.done).map(|(index, _)| index).collect()
    }

    /// Lets things happen until the time given (which it then is), or until `reached`.
    fn run_until(&mut self, end: Time, workload: &mut dyn Workload, reached: impl Fn(&Cluster) -> bool) -> Stop {
        let every = self.limits.inspection_period.nanos();
        let mut at_moment = self.now + every;
        loop {
            if reached(self) {
                return Stop::Reached;
            }
            let Some(next) = self.next_event() else {
                return Stop::Idle;
            };
            if next >= at_moment {
                // Nothing happens between now and then, so one look is as good as many.
                if !workload.at_moment(&self.view(), Moment::Between) {
                    return Stop::Workload;
                }
                at_moment = next.max(at_moment) + every;
            }
            if next > end {
                self.now = end;
                return Stop::Time;
            }
            self.step(next);
            if workload.is_due() && !workload.at_moment(&self.view(), Moment::Due) {
                return Stop::Workload;
            }
            while let Some(rank) = self.killed.pop() {
                if !workload.at_moment(&self.view(), Moment::Killed(rank)) {
                    return Stop::Workload;
                }
            }
            if self.limits.events_max > 0 && self.events > self.limits.events_max {
                return Stop::Events;
            }
        }
    }

    /// When the next thing happens.
    fn next_event(&self) -> Option<Time> {
        let queue = self.queue.peek().map(|Reverse(entry)| entry.at);
        let wake = self.wakes.first().map(|(at, _)| at);
        queue.into_iter().chain(wake).chain(self.wires.next_event()).chain(self.admin.next_event()).min()
    }

    /// What happens at `next`: wires first, then datagrams, then one fault or else one rank that wakes.
    fn step(&mut self, next: Time) {
        self.now = next;
        if self.wires.next_event().is_some_and(|at| at <= next) {
            self.wires.advance(next);
            self.wake_woken();
        }
        while let Some(datagram) = self.admin.receive(next) {
            self.events += 1;
            let to = datagram.to;
            if let Some(rank) = self.ranks.get_mut(to as usize).filter(|rank| rank.alive) {
                rank.datagrams.push(datagram);
                self.wake_at(to, next);
            }
        }
        if let Some(Reverse(entry)) = self.queue.peek().copied().filter(|Reverse(entry)| entry.at <= next) {
            self.queue.pop();
            match entry.what {
                What::Heal(index) => self.end_fault(index),
                What::Fault(index) => self.begin_fault(index),
            }
        } else if let Some((at, rank)) = self.wakes.first().filter(|(at, _)| *at <= next) {
            self.wakes.clear(rank);
            self.wake(rank, at);
        }
    }

    fn push(&mut self, at: Time, what: What) {
        self.sequence += 1;
        self.queue.push(Reverse(Entry { at, what, sequence: self.sequence }));
    }

    /// Something has taken a rare path.
    pub(crate) fn took(&self, path: Path) {
        self.trace.took(path);
    }

    /// What a simulation took so far.
    pub fn report(&self) -> &Report {
        &self.report
    }
}
