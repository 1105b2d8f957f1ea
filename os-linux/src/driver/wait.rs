//! Sleeping without losing a wake-up.
//!
//! One epoll descriptor stands for everything that can wake the transport: the rails' descriptors and a timer
//! that is set to the earliest deadline of core and rails. The core's state changes only through calls on the
//! transport, so it is checked first. Then each rail arms: it requests a wake-up and *afterwards* looks once
//! more for work. Later arrivals make the descriptor readable. A rail whose device was opened again has
//! another descriptor: each sleep checks for that first; closing the old one removes it from the set
//! (`epoll(7)`).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rerail_core::time::Time;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use super::clock::now;
use super::slots::Rails;
use super::{Transport, WaitError};

/// Why [`Transport::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// There is something to do: drive the transport.
    Work,
    /// The time given is over.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

/// The descriptors to sleep on.
pub(super) struct Waiter {
    epoll: OwnedFd,
    timer: OwnedFd,
    armed: bool,
    /// Which of its descriptors each rail is waited for by:
    /// [`Rail::wait_fd_changes`](crate::rail::Rail::wait_fd_changes); `None`: by none yet.
    followed: Vec<Option<u32>>,
    /// Rounds until the rails' are waited for by none again; 0: that is so, or the transport sleeps.
    rounds_left: u32,
    /// The timer's deadline; `None`: off.
    timer_due: Option<Time>,
}

/// After so many rounds without a sleep the next one is not near: sets in a set cost more for each arrival
/// than taking them out, and in again.
const AWAKE_ROUNDS: u32 = 256;

impl Waiter {
    pub(super) fn new(rails: &Rails) -> Result<Self, WaitError> {
        let failed = |call| move |errno| WaitError { call, errno };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("epoll_create1"))?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(failed("timerfd_create"))?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&epoll, &timer, data, epoll::EventFlags::IN).map_err(failed("epoll_ctl"))?;
        // The rails' come with the first sleep.
        let followed = rails.iter().map(|_| None).collect();
        Ok(Waiter { epoll, timer, armed: false, followed, rounds_left: 0, timer_due: None })
    }

    /// Takes the descriptors that are others than before.
    fn follow(&mut self, rails: &Rails) -> Result<(), WaitError> {
        for ((_, rail), followed) in rails.iter().zip(&mut self.followed) {
            let changes = Some(rail.wait_fd_changes());
            if changes == *followed {
                continue;
            }
            if let Some(fd) = rail.wait_fd() {
                match epoll::add(&self.epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN) {
                    // Changed twice, and here already.
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(WaitError { call: "epoll_ctl", errno }),
                }
            }
            *followed = changes;
        }
        self.rounds_left = AWAKE_ROUNDS;
        Ok(())
    }

    /// A whole round is over.
    #[inline]
    pub(super) fn note_round(&mut self, rails: &Rails) {
        if self.rounds_left > 0 {
            self.leave_after(rails);
        }
    }

    #[cold]
    fn leave_after(&mut self, rails: &Rails) {
        self.rounds_left -= 1;
        if self.rounds_left > 0 {
            return;
        }
        for ((_, rail), followed) in rails.iter().zip(&mut self.followed) {
            if followed.take().is_some()
                && let Some(fd) = rail.wait_fd()
            {
                // One that is not there has been closed meanwhile.
                let _ = epoll::delete(&self.epoll, fd);
            }
        }
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed
    }

    /// Sets the timer; a deadline that is past fires at once. Setting also takes back an expiry that was not
    /// read.
    fn set_timer(&mut self, due: Option<Time>) -> Result<(), WaitError> {
        // All zeros means off; a deadline at the clock's origin is moved to 1 ns.
        let Time(ns) = due.map_or(Time(0), |due| due.max(Time(1)));
        let value = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)
            .map_err(|errno| WaitError { call: "timerfd_settime", errno })?;
        self.timer_due = due;
        Ok(())
    }
}

impl Transport {
    /// One descriptor for the caller's event loop, the same for the transport's whole life: readable when
    /// there is work, provided that [`arm`](Self::arm) returned that the caller may sleep.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.clock.waiter.epoll.as_fd()
    }

    /// Prepares for sleeping on [`fd`](Self::fd). `true`: sleep now, and call [`disarm`](Self::disarm) after
    /// waking. `false`: there is something to do already (a round to drive or an event to take), and nothing
    /// is armed.
    ///
    /// # Errors
    /// Where the system refuses to set the timer, or to wait for a descriptor that is new.
    pub fn arm(&mut self) -> Result<bool, WaitError> {
        if self.has_backlog() {
            self.disarm();
            return Ok(false);
        }
        self.arm_past_backlog()
    }

    /// As [`arm`](Self::arm), where events that were set aside are no reason to stay awake.
    pub(super) fn arm_past_backlog(&mut self) -> Result<bool, WaitError> {
        self.disarm();
        let now = now();
        if self.engine.carry_out(now) > 0 {
            return Ok(false);
        }
        let due = self.next_timeout();
        if self.has_new_event() || due.is_some_and(|due| due <= now) {
            return Ok(false);
        }
        if due != self.clock.waiter.timer_due {
            self.clock.waiter.set_timer(due)?;
        }
        self.clock.waiter.follow(&self.engine.rails)?;
        let rails = &mut self.engine.rails;
        let busy = rails.iter_mut().position(|(_, rail)| !rail.arm());
        if let Some(busy) = busy {
            rails.iter_mut().take(busy).for_each(|(_, rail)| rail.disarm());
            return Ok(false);
        }
        (self.clock.waiter.armed, self.clock.waiter.rounds_left) = (true, 0);
        Ok(true)
    }

    /// Ends the effect of [`arm`](Self::arm). [`progress`](Self::progress) does it too.
    pub fn disarm(&mut self) {
        // The wake-up may have any cause.
        self.round_timer.force();
        if !self.clock.waiter.armed {
            return;
        }
        (self.clock.waiter.armed, self.clock.waiter.rounds_left) = (false, AWAKE_ROUNDS);
        self.engine.rails.iter_mut().for_each(|(_, rail)| rail.disarm());
        // An expired timer keeps the descriptor readable; a pending one may serve the next sleep.
        if self.clock.waiter.timer_due.is_some_and(|due| due <= now()) {
            // Turning a timer off can't fail; if it did, the next sleep would only end early.
            let off = self.clock.waiter.set_timer(None);
            debug_assert!(off.is_ok(), "{off:?}");
        }
    }

    /// Sleeps until there is something to do, at most for `timeout` (`None`: for ever). Does not drive the
    /// transport: call [`progress`](Self::progress) and take events before and after.
    ///
    /// # Errors
    /// Where the system refuses to set the timer or to wait.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Woken, WaitError> {
        if self.arm()? { self.sleep_until_ready(timeout) } else { Ok(Woken::Work) }
    }

    /// Sleeps, after [`arm`](Self::arm) returned that the caller may.
    pub(super) fn sleep_until_ready(&mut self, timeout: Option<Duration>) -> Result<Woken, WaitError> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let ready = poll(&mut [PollFd::new(&self.clock.waiter.epoll, PollFlags::IN)], timeout.as_ref());
        self.disarm();
        match ready {
            Ok(0) => Ok(Woken::TimedOut),
            Ok(_) => Ok(Woken::Work),
            Err(Errno::INTR) => Ok(Woken::Interrupted),
            Err(errno) => Err(WaitError { call: "poll", errno }),
        }
    }
}
