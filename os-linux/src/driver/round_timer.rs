//! When a round looks at everything, and when at the rings of shared memory only.
//!
//! A look at the rings costs a few instructions, a look at sockets a system call. So a whole round is due by
//! elapsed time, not by a number of calls: a host that calls once a millisecond gets one each time. While
//! another rail has work, every round is a whole one. The processor's time stamp counter measures elapsed
//! time where there is one; the system's clock costs more than all the rest.

use rerail_core::time::Time;

/// Between whole rounds while nothing but shared memory is in use, in nanoseconds.
const PERIOD_NS: u64 = 8_000;
/// For so long after another rail had something to do every round is a whole one, in nanoseconds.
const BUSY_NS: u64 = 1_000_000;
/// A yield that takes longer than this part of the period was used by another process.
const LONG_PART: u64 = 4;
/// Calls with messages before the counter is read again.
const SKIPS: u32 = 2;
/// The same of those that come one by one.
const CALM: u32 = 2;
/// The counter's rate is measured over at least so long.
const MEASURED_NS: u64 = 20_000;
/// Its readings may take at most this part of that: a process may lose the processor between the counter and
/// the clock.
const SPREAD_PART: u64 = 32;

/// Decides which rounds are whole and which short.
#[derive(Debug)]
#[repr(C)]
pub(super) struct RoundTimer {
    /// The counter at the last whole round, and the ticks until the next one is due; 0: its rate is not
    /// known.
    ticks: u64,
    period: u64,
    /// The next round is a whole one.
    forced: bool,
    /// So many calls with messages need not read the counter: a read not long ago found that no round was
    /// due.
    skips: u32,
    /// So many calls with messages after one without.
    calm: u32,
    /// The period in nanoseconds.
    period_ns: u64,
    /// The counter's rate in ticks for 2^20 ns; 0: not known.
    rate: u64,
    busy_until: Time,
    /// Every round is a whole one.
    always_whole: bool,
    /// Where the measurement of the counter's rate began.
    since: Option<Reading>,
}

/// The counter before a reading of the clock, how far it went until after that, and the clock.
#[derive(Clone, Copy, Debug)]
struct Reading {
    ticks: u64,
    spread: u64,
    time: Time,
}

impl Default for RoundTimer {
    fn default() -> Self {
        RoundTimer {
            ticks: 0,
            period: 0,
            period_ns: PERIOD_NS,
            rate: 0,
            forced: false,
            skips: 0,
            calm: 0,
            busy_until: Time(0),
            always_whole: false,
            since: None,
        }
    }
}

impl RoundTimer {
    /// Bytes at the beginning that nearly every call reads.
    pub(super) const HOT_BYTES: usize = std::mem::offset_of!(RoundTimer, period_ns);

    /// From now on a whole round is due after so many nanoseconds.
    pub(super) fn set_period(&mut self, ns: u64) {
        self.period_ns = ns;
        self.period = u64::try_from((u128::from(self.rate) * u128::from(ns)) >> 20).unwrap_or(u64::MAX);
        (self.skips, self.calm) = (0, 0);
    }

    /// The next round is to look at everything.
    #[inline]
    pub(super) fn force(&mut self) {
        self.forced = true;
    }

    /// A rail that is polled in whole rounds only was used.
    pub(super) fn busy(&mut self, now: Time) {
        self.busy_until = Time(now.0.saturating_add(BUSY_NS));
        self.forced = true;
    }

    /// Whether the next round is a whole one, whatever the time.
    #[inline(always)]
    pub(super) fn is_forced(&self) -> bool {
        self.forced
    }

    /// After a call with a message: whether messages come one by one, and a read of the counter not long ago
    /// found no round due. A read takes some 38 cycles of a small message's 300. A host that calls seldom
    /// finds a round due at each read, and reads at each call.
    #[inline(always)]
    pub(super) fn is_calm(&mut self) -> bool {
        let (left, is_over) = self.calm.overflowing_sub(1);
        self.calm = left;
        !is_over
    }

    /// The same where messages come one after the other.
    #[inline(always)]
    pub(super) fn may_go_on(&mut self) -> bool {
        self.calm = 0;
        let may = self.skips > 0;
        self.skips = self.skips.saturating_sub(1);
        may
    }

    /// Whether a whole round is due.
    #[inline(always)]
    pub(super) fn is_due(&mut self) -> bool {
        (self.skips, self.calm) = (SKIPS, 0);
        self.forced || self.has_passed()
    }

    /// The same after a look that found no message, where none is forced.
    #[inline(always)]
    pub(super) fn is_past(&mut self) -> bool {
        self.calm = CALM;
        self.has_passed()
    }

    #[inline(always)]
    fn has_passed(&self) -> bool {
        ticks().wrapping_sub(self.ticks) >= self.period
    }

    /// Whether `call`, which takes well below a microsecond by itself, has taken so long that another process
    /// must have run.
    pub(super) fn is_long(&self, call: impl FnOnce()) -> bool {
        let before = ticks();
        call();
        ticks().wrapping_sub(before) > self.period / LONG_PART && self.period > 0
    }

    /// Reads the clock; until the counter's rate is known, measures that by it.
    #[inline]
    pub(super) fn read(&mut self, clock: impl FnOnce() -> Time) -> Time {
        if self.rate != 0 {
            return clock();
        }
        let ticks_before = ticks();
        let time = clock();
        self.measure(Reading { ticks: ticks_before, spread: ticks().wrapping_sub(ticks_before), time });
        time
    }

    #[cold]
    fn measure(&mut self, to: Reading) {
        let from = *self.since.get_or_insert(to);
        if to.time.0 < from.time.0.saturating_add(MEASURED_NS) {
            return;
        }
        let ticks = to.ticks.wrapping_sub(from.ticks);
        if from.spread.saturating_add(to.spread) > ticks / SPREAD_PART {
            // From the better of both on.
            self.since = Some(if to.spread < from.spread { to } else { from });
            return;
        }
        let rate = (u128::from(ticks) << 20) / u128::from(to.time.0 - from.time.0);
        self.rate = u64::try_from(rate).unwrap_or(0);
        self.set_period(self.period_ns);
    }

    /// A whole round is over; `others`: a rail had something to do that has no rings.
    pub(super) fn whole(&mut self, now: Time, others: bool) {
        if others {
            self.busy_until = Time(now.0.saturating_add(BUSY_NS));
        }
        self.ticks = ticks();
        (self.skips, self.calm) = (0, 0);
        self.forced = self.always_whole || now < self.busy_until;
    }

    /// From now on every round is a whole one, or not.
    pub(super) fn set_always_whole(&mut self, always: bool) {
        (self.always_whole, self.forced) = (always, true);
    }
}

/// Something that counts up evenly while the machine runs.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks() -> u64 {
    // SAFETY: every processor with 64 bits has the instruction; it reads a counter and nothing else.
    #[allow(unsafe_code)]
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    super::clock::now().0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate of the counter is known: three ticks a nanosecond.
    fn measured(round_timer: &mut RoundTimer) {
        for time in [1_000, 1_000 + MEASURED_NS] {
            round_timer.measure(Reading { ticks: 3 * time, spread: 100, time: Time(time) });
        }
        assert_eq!(round_timer.period, 3 * PERIOD_NS);
    }

    /// A process that loses the processor between the counter and the clock measures again.
    #[test]
    fn readings_that_took_long_do_not_count() {
        let long = 3_000_000;
        for first in [100, long] {
            let mut round_timer = RoundTimer::default();
            let mut read = |at: u64, spread| {
                let time = Time(at + spread / 3);
                round_timer.measure(Reading { ticks: 3 * at, spread, time });
                round_timer.period
            };
            assert_eq!(read(1_000, first), 0);
            assert_eq!(read(2_000_000, long), 0);
            let next = read(4_000_000, 100);
            let last = read(4_000_000 + MEASURED_NS, 100);
            for period in [next, last].into_iter().filter(|period| *period > 0) {
                assert!(period.abs_diff(3 * PERIOD_NS) < 3 * PERIOD_NS / 20, "{period}");
            }
            assert!(last > 0);
        }
    }

    #[test]
    fn full_polls_continue_while_another_rail_is_busy() {
        let mut round_timer = RoundTimer::default();
        assert!(round_timer.is_due(), "no rate is known");
        round_timer.whole(Time(1_000), false);
        assert!(round_timer.is_due());
        measured(&mut round_timer);
        round_timer.whole(Time(1_000 + MEASURED_NS), false);
        assert!(round_timer.period > 0 && !round_timer.forced);
        round_timer.set_period(u64::MAX);
        assert!(!round_timer.is_due(), "never");
        round_timer.set_period(0);
        assert!(round_timer.is_due(), "always");
        round_timer.set_period(PERIOD_NS);
        round_timer.whole(Time(100_000), true);
        assert!(round_timer.is_due(), "a rail had something");
        round_timer.whole(Time(100_000 + BUSY_NS - 1), false);
        assert!(round_timer.is_due(), "not long ago");
        round_timer.whole(Time(100_000 + BUSY_NS), false);
        assert!(!round_timer.forced);
        round_timer.force();
        assert!(round_timer.is_due() && round_timer.is_forced());
    }

    #[test]
    fn time_counter_is_read_again_after_a_few_messages() {
        let mut round_timer = RoundTimer { period: 1 << 40, ..RoundTimer::default() };
        round_timer.ticks = ticks();
        assert!(!round_timer.may_go_on(), "the last read is not known to be a moment ago");
        assert!(!round_timer.is_due());
        let calls = std::iter::from_fn(|| round_timer.may_go_on().then_some(())).count();
        assert_eq!(calls, SKIPS as usize);
        assert!(!round_timer.is_due() && round_timer.may_go_on());
        round_timer.whole(Time(1), false);
        assert!(!round_timer.may_go_on(), "a host that calls seldom has a whole round each time");
    }

    #[test]
    fn a_round_is_due_when_time_has_passed() {
        let mut round_timer = RoundTimer::default();
        measured(&mut round_timer);
        round_timer.whole(Time(1_000 + MEASURED_NS), false);
        round_timer.period = 1 << 40;
        assert!(!round_timer.is_due());
        round_timer.period = 1;
        assert!(round_timer.is_due());
    }
}
