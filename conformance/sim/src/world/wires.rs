//! Everything between ranks, as the loop sees it: rings and the fabric.

use rerail_core::time::Time;

use super::fault::{Fault, Kind};
use crate::rails::ShmHub;

/// Fabric and rings.
pub(super) struct Wires {
    pub(super) shm: ShmHub,
}

impl Wires {
    pub(super) fn next_event(&self) -> Option<Time> {
        None
    }

    /// Tells rails that are not told it by their driver what time it is.
    pub(super) fn set_now(&mut self, now: Time) {
        self.shm.set_now(now);
    }

    pub(super) fn advance(&mut self, now: Time) {
        let _ = now;
    }

    /// Ranks to whom something becomes visible, and when.
    pub(super) fn take_woken(&mut self, woken: &mut Vec<(u32, Time)>) {
        self.shm.take_woken(woken);
    }

    /// Events on the wires so far.
    pub(super) fn events(&self) -> u64 {
        0
    }

    /// Objects of all devices.
    pub(super) fn objects(&self) -> usize {
        0
    }

    /// A process is gone: its devices and rings with it.
    pub(super) fn kill(&mut self, now: Time, rank: u32) {
        let _ = now;
        self.shm.kill(rank);
    }

    /// A fault of fabric or devices happens.
    pub(super) fn begin(&mut self, now: Time, fault: &Fault, until: Option<Time>) {
        let _ = (now, fault, until);
    }

    /// It is over.
    pub(super) fn end(&mut self, now: Time, fault: &Fault) {
        let _ = (now, fault);
    }

    /// All faults are over.
    pub(super) fn heal(&mut self, now: Time) {
        let _ = now;
    }
}

/// Whether a fault of fabric or devices can be simulated.
pub(super) fn knows(kind: Kind) -> bool {
    let _ = kind;
    false
}
