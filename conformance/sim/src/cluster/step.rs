//! A rank wakes, makes a round, reports to its application.

use rerail_core::time::{Nanos, Time};

use super::{Cluster, Cx, Phase, RankState};
use crate::trace::Subject;

impl Cluster {
    /// Something becomes visible to a rank at a moment.
    pub(super) fn wake_at(&mut self, rank: u32, visible: Time) {
        let mut delay = self.cpu.poll_ns;
        let per_thousand = u64::from(self.cpu.slow_polls_per_thousand);
        if per_thousand > 0 && self.rng.below(1000) < per_thousand {
            delay += self.rng.within(1, self.cpu.slow_poll_max.0.max(1));
        }
        if let Some(rank) = self.ranks.get_mut(rank as usize)
            && rank.idle_turns < rank.engine.turns_of_all()
        {
            // It may have been in the middle of its turns, behind the one that takes this.
            rank.idle_turns = 0;
        }
        self.schedule(rank, Time(visible.0.saturating_add(delay)));
    }

    /// A rank wakes at a moment, or later where it is busy or paused, or earlier where it wakes anyway.
    pub(super) fn schedule(&mut self, index: u32, at: Time) {
        let Some(rank) = self.ranks.get(index as usize).filter(|rank| rank.alive) else { return };
        let at = at.max(rank.busy_until).max(rank.paused_until);
        if at.0 == u64::MAX || self.wakes.of(index).is_some_and(|wake| wake <= at) {
            return;
        }
        self.wakes.set(index, at);
    }

    /// Wakes all ranks to which something becomes visible on the wires.
    pub(super) fn wake_woken(&mut self) {
        let mut woken = std::mem::take(&mut self.woken);
        self.wires.take_woken(&mut woken);
        for (rank, visible) in woken.drain(..) {
            self.wake_at(rank, visible);
        }
        self.woken = woken;
    }

    /// A rank's moment has come.
    pub(super) fn wake(&mut self, index: u32, at: Time) {
        let Some(rank) = self.ranks.get(index as usize).filter(|rank| rank.alive) else { return };
        if rank.paused_until > at {
            self.schedule(index, at);
            return;
        }
        self.events += 1;
        match rank.is_reporting {
            true => self.deliver_events(index, at),
            false => self.round(index, at),
        }
    }

    /// A round of the engine; it is reported to the application when its cost is over.
    fn round(&mut self, index: u32, now: Time) {
        self.wires.set_now(now);
        let rank = &mut self.ranks[index as usize];
        rank.engine.set_time(now);
        let [rings, others] = self.poll_ns;
        if rank.idle_turns >= rank.engine.turns_of_all() {
            // It was polled all the while, in vain.
            let turn_ns = (self.cpu.round_ns + (rings + others) / 2).max(1);
            rank.engine.pass_turns(now.0.saturating_sub(rank.busy_until.0) / turn_ns);
            rank.idle_turns = 0;
        }
        let polls = rank.engine.polls();
        let done = rank.engine.take_turn() as u64;
        rank.idle_turns = if done > 0 { 0 } else { rank.idle_turns + 1 };
        self.report.rounds += 1;
        let mut cost = self.cpu.round_ns + done * self.cpu.thing_ns;
        cost = cost.saturating_add(u64::from(polls[0]) * rings + u64::from(polls[1]) * others);
        cost = cost.saturating_add(self.wires.take_spent_ns(index));
        if let Some(rate) = Some(self.cpu.copy_bytes_per_second).filter(|rate| *rate > 0) {
            let copied = rank.engine.stats().bytes_copied;
            let bytes = copied - std::mem::replace(&mut rank.copied, copied);
            cost = cost.saturating_add((u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64);
        }
        let mut deliver_events = rank.engine.has_event() || !rank.datagrams.is_empty();
        // The first event's price comes before the application's answer to it, that of the others after.
        cost = cost.saturating_add(u64::from(deliver_events) * self.cpu.event_ns);
        rank.busy_until = Time(now.0.saturating_add(cost));
        deliver_events |= rank.app_wake.is_some_and(|due| due <= rank.busy_until);
        rank.is_reporting = deliver_events;
        let again = deliver_events || done > 0 || rank.idle_turns < rank.engine.turns_of_all();
        let again = again.then_some(rank.busy_until);
        self.wake_woken();
        self.reschedule(index, again);
    }

    /// The application receives events, datagrams and its timer, and submits.
    fn deliver_events(&mut self, index: u32, now: Time) {
        self.ranks[index as usize].is_reporting = false;
        self.call(index, now, |rank, mut cx| {
            let mut reported = 0;
            while let Some(event) = cx.engine.poll_event() {
                rank.app.event(&mut cx, event);
                reported += 1;
            }
            for datagram in rank.datagrams.drain(..) {
                rank.app.datagram(&mut cx, datagram.from, &datagram.bytes);
                reported += 1;
            }
            if rank.timer_due {
                rank.app.timer(&mut cx);
                reported += 1;
            }
            reported
        });
    }

    /// Calls an application, carries out what it submitted, and charges for both.
    pub(super) fn call(&mut self, index: u32, now: Time, what: impl FnOnce(Called<'_>, Cx<'_>) -> u64) {
        self.wires.set_now(now);
        let size = self.ranks.len() as u32;
        let (phase, trace, admin) = (self.phase, self.trace.clone(), &mut self.admin);
        let rank = &mut self.ranks[index as usize];
        let timer_due = rank.app_wake.is_some_and(|due| due <= now);
        if timer_due {
            rank.app_wake = None;
        }
        rank.engine.set_time(now);
        let mut spent_ns = 0;
        let RankState { engine, app, rng, app_wake, datagrams, .. } = rank;
        let cx = Cx {
            now,
            rank: index,
            size,
            phase,
            engine,
            rng,
            trace: &trace,
            admin,
            is_mapped: self.wires.is_mapped(),
            wake: app_wake,
            spent_ns: &mut spent_ns,
        };
        let reported = what(Called { app: &mut **app, datagrams, timer_due }, cx);
        let actions = rank.engine.push() as u64;
        let cost = reported.saturating_sub(1) * self.cpu.event_ns + actions * self.cpu.thing_ns;
        let cost = cost.saturating_add(self.wires.take_spent_ns(index));
        // A change of phase is reported to busy ranks too.
        rank.busy_until = Time(rank.busy_until.max(now).0.saturating_add(cost).saturating_add(spent_ns));
        let done = rank.app.is_done();
        match (std::mem::replace(&mut rank.done, done), done) {
            (false, true) => self.undone -= 1,
            (true, false) => self.undone += 1,
            _ => {}
        }
        // What was submitted is handled at once; events that came of it are reported next time.
        let again = (reported > 0 || actions > 0 || rank.engine.has_event()).then_some(rank.busy_until);
        self.wake_woken();
        self.reschedule(index, again);
    }

    /// The rank's next wake-up: now again, or at the next deadline.
    fn reschedule(&mut self, index: u32, again: Option<Time>) {
        let rank = &self.ranks[index as usize];
        let next = again.into_iter().chain(rank.engine.next_timeout()).chain(rank.app_wake).min();
        if let Some(next) = next {
            self.schedule(index, next);
        }
    }

    /// The first call of every application.
    pub(super) fn start(&mut self) {
        self.trace.note(self.now, Subject::Cluster, format_args!("start: {} ranks", self.ranks.len()));
        for index in 0..self.ranks.len() as u32 {
            self.call(index, self.now, |rank, mut cx| {
                rank.app.start(&mut cx);
                1
            });
        }
    }

    /// The phase changes, and every living application is notified.
    pub(super) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.trace.note(self.now, Subject::Cluster, format_args!("phase: {phase:?}"));
        for index in 0..self.ranks.len() as u32 {
            if self.ranks[index as usize].alive {
                if phase == Phase::Rest {
                    // A simulation in which all is over does not go on because its ranks probe each other
                    // whether they live.
                    let engine = &mut self.ranks[index as usize].engine;
                    engine.set_time(self.now);
                    engine.set_keepalive(Nanos(0));
                }
                self.call(index, self.now, |rank, mut cx| {
                    rank.app.phase(&mut cx, phase);
                    if rank.timer_due {
                        rank.app.timer(&mut cx);
                    }
                    1
                });
            }
        }
    }
}

/// What a call of an application is about.
pub(super) struct Called<'a> {
    pub(super) app: &'a mut dyn super::App,
    pub(super) datagrams: &'a mut Vec<super::Datagram>,
    pub(super) timer_due: bool,
}
