//! Where a transport reads the time: from the system, beside which it can sleep, or from its owner.

use std::time::Duration;

use rerail_core::time::Time;

use super::Transport;
use super::wait::Waiter;
use crate::bootstrap::Bootstrap;

/// Where a transport reads the time, which must not go back. The express path of small messages does not
/// read it.
pub trait Clock {
    /// Whether a request is posted when it is submitted, if its rails are idle; otherwise
    /// [`push`](Transport::push) or the next round posts it.
    const POSTS_AT_ONCE: bool;

    /// How work beside the express path reads the time: it measures large messages, which take less than
    /// passes between two rounds. `None`: it has the time of the round before.
    const READ: Option<fn() -> Time> = None;

    /// The time.
    fn now(&self) -> Time;
}

/// The system: its monotonic clock, descriptors to sleep on, and the launcher.
pub struct System {
    pub(super) waiter: Waiter,
    pub(super) boot: Option<Box<dyn Bootstrap>>,
    /// How long a step of it may take; `None`: as long as it takes.
    pub(super) boot_limit: Option<Duration>,
}

/// When polling gives the processor to others.
pub(super) struct Spin {
    /// Rounds without result in a row.
    pub(super) idle_rounds: u32,
    /// After so many, every further one yields.
    pub(super) idle_rounds_max: u32,
    /// The setting: as many as that while no other process uses the processor.
    rounds_max: u32,
}

/// Rounds before the processor is yielded where others wait for it: the peer may be one of these.
const SHARED_ROUNDS: u32 = 8;

impl Spin {
    pub(super) fn new(rounds_max: u32) -> Self {
        Spin { idle_rounds: 0, idle_rounds_max: rounds_max, rounds_max }
    }

    /// The next round without result yields the processor.
    pub(super) const fn yields(&self) -> bool {
        self.idle_rounds >= self.idle_rounds_max
    }

    /// The processor was yielded; `is_shared`: something else has run meanwhile.
    pub(super) fn yielded(&mut self, is_shared: bool) {
        self.idle_rounds_max = match is_shared {
            true => self.rounds_max.min(SHARED_ROUNDS),
            // What ran once may have been none of the job's.
            false => self.idle_rounds_max.saturating_mul(2).min(self.rounds_max),
        };
    }
}

impl Clock for System {
    const POSTS_AT_ONCE: bool = true;
    const READ: Option<fn() -> Time> = Some(now);

    fn now(&self) -> Time {
        now()
    }
}

/// A time that the owner sets: of simulations, and of hosts with a clock of their own.
#[derive(Clone, Copy, Debug, Default)]
pub struct VirtualTime(pub Time);

impl Clock for VirtualTime {
    const POSTS_AT_ONCE: bool = false;

    fn now(&self) -> Time {
        self.0
    }
}

impl Transport<VirtualTime> {
    /// Sets the time for the calls that follow. It must not go back.
    pub fn set_time(&mut self, now: Time) {
        self.clock.0 = now;
    }
}

/// The system's monotonic clock.
pub(super) fn now() -> Time {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Neither is negative: the clock counts up from the machine's start.
    Time((time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_that_others_wait_for_is_yielded_sooner() {
        for (setting, shared) in [(1000, SHARED_ROUNDS), (4, 4), (0, 0)] {
            let mut spin = Spin::new(setting);
            assert_eq!(spin.idle_rounds_max, setting);
            spin.yielded(false);
            assert_eq!(spin.idle_rounds_max, setting);
            spin.yielded(true);
            spin.yielded(true);
            assert_eq!(spin.idle_rounds_max, shared);
            (0..10).for_each(|_| spin.yielded(false));
            assert_eq!(spin.idle_rounds_max, setting, "no other process is there any more");
        }
    }
}
