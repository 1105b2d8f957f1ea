//! Faults at their moments.

use rerail_core::time::Time;

use super::fault::{FaultAt, Kind, Target};
use super::place::Place;
use super::{Cluster, What, topology};
use crate::trace::Subject;

/// Paused until it is continued.
const FOR_EVER: Time = Time(u64::MAX);

impl Cluster {
    /// Puts the moments of all faults into the queue.
    pub(super) fn plan(&mut self) {
        for index in 0..self.faults.len() {
            self.push(self.faults[index].at.time(), What::Fault(index as u32));
        }
        self.faults_left = self.faults.len();
    }

    pub(super) fn begin_fault(&mut self, index: u32) {
        self.faults_left -= 1;
        let Some(FaultAt { fault, until, .. }) = self.faults.get(index as usize).copied() else { return };
        if self.phase > super::Phase::Safety {
            return;
        }
        self.trace.note(self.now, Subject::Cluster, format_args!("fault: {fault}"));
        self.report.faults += 1;
        self.begun[index as usize] = true;
        self.events += 1;
        let until = topology::ends_at(&fault, self.now, until.map(|until| until.time()));
        if fault.kind.lasts() {
            self.active[index as usize] = true;
            if let Some(until) = until {
                self.faults_left += 1;
                self.push(until, What::Heal(index));
            }
        }
        self.wires.set_now(self.now);
        match (fault.kind, fault.place) {
            (Kind::Kill, Place::Rank(rank)) => self.kill(rank),
            (Kind::Pause, Place::Rank(rank)) => {
                let until = until.unwrap_or(FOR_EVER);
                if let Some(rank) = self.ranks.get_mut(rank as usize) {
                    rank.paused_until = rank.paused_until.max(until);
                }
            }
            (Kind::Lag, Place::Rank(rank)) => {
                let until = until.unwrap_or(FOR_EVER);
                if let Some(rank) = self.ranks.get(rank as usize)
                    && let Some(gate) = self.rng.pick(&rank.gates)
                {
                    gate.close_until(until);
                }
            }
            (Kind::AdminCut, Place::Cluster) => self.admin.set_cut(None, true),
            (Kind::AdminCut, Place::Rank(rank)) => self.admin.set_cut(Some(rank), true),
            _ => self.wires.begin(self.now, &fault, until),
        }
        self.wake_woken();
    }

    pub(super) fn end_fault(&mut self, index: u32) {
        self.faults_left -= 1;
        self.heal(index as usize);
        self.wake_woken();
    }

    /// Ends a fault, unless another one of its sort at its place goes on.
    fn heal(&mut self, index: usize) {
        if !std::mem::take(&mut self.active[index]) {
            return;
        }
        let fault = self.faults[index].fault;
        let others =
            || self.faults.iter().zip(&self.active).filter(|(at, active)| **active && at.fault.kind == fault.kind);
        if others().any(|(at, _)| at.fault.place == fault.place) {
            return;
        }
        self.trace.note(self.now, Subject::Cluster, format_args!("healed: {fault}"));
        match (fault.kind, fault.place) {
            (Kind::Pause, Place::Rank(rank)) => {
                if let Some(state) = self.ranks.get_mut(rank as usize) {
                    state.paused_until = Time(0);
                }
                self.schedule(rank, self.now);
            }
            (Kind::Lag, Place::Rank(rank)) => {
                if let Some(state) = self.ranks.get(rank as usize) {
                    state.gates.iter().for_each(|gate| gate.open());
                }
                self.schedule(rank, self.now);
            }
            (Kind::AdminCut, Place::Cluster) => self.admin.set_cut(None, false),
            (Kind::AdminCut, Place::Rank(rank)) => self.admin.set_cut(Some(rank), false),
            _ => self.wires.end(self.now, &fault),
        }
    }

    /// Ends all faults, and lets none of those that are still to come happen.
    pub(super) fn heal_all(&mut self) {
        self.trace.note(self.now, Subject::Cluster, format_args!("everything is healed"));
        for index in 0..self.faults.len() {
            self.heal(index);
        }
        self.admin.heal();
        self.wires.heal(self.now);
        self.healed = Some(self.now);
        self.wake_woken();
    }

    /// A process is killed: its devices are gone, its memory stays until the simulation ends.
    fn kill(&mut self, index: u32) {
        let Some(rank) = self.ranks.get_mut(index as usize).filter(|rank| rank.alive) else { return };
        rank.alive = false;
        self.wakes.clear(index);
        if !rank.done {
            self.undone -= 1;
        }
        self.wires.kill(index);
        if let Some(observer) = self.trace.observer() {
            observer.borrow_mut().killed(index);
        }
        self.killed.push(index);
    }

    /// Whether the simulation supports a kind of the menu; for those that it can't, scenario files are
    /// refused.
    pub(super) fn knows(kind: Kind) -> bool {
        matches!(kind.target(), Target::Rank | Target::RankOrAll) || super::wires::knows(kind)
    }
}
