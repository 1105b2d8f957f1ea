//! Keep-alive (F-13): detects dead peers when nothing is in flight.
//!
//! Deadlines of rails (F-11) start with a post at a rail or a packet that the peer has not acknowledged.
//! Without either, a rail that reports nothing when the peer's process dies (verbs: its queue pair is gone
//! without notice) looks idle. So a peer that was silent for `keepalive` is probed. That gives every rail
//! some work, and its reaction to a dead peer is known: its device gives up (InfiniBand specification,
//! 9.7.6.1.3: retries), its kernel does (TCP: reset, user time-out), or it never completes the probe (F-11).
//! All rails are probed, because all of them must fail before the peer is given up (F-9).
//!
//! Silence by itself ends nothing: a process that computes for an hour answers no probe, and each probe waits
//! in one of its receive buffers. So a peer that does not answer is probed again after the length of its
//! silence so far.
//!
//! A receive alone dials no peer: the message may come from any of many, and the sender dials. But a receive
//! from a peer that died before it dialled would wait forever. So at the next check, `keepalive` later at
//! most, the core dials a source that has not dialled.
//!
//! One check of all channels now and then replaces a timer for each: the timers that every message sets and
//! cancels stay few, and a received message costs nothing here.

use super::Endpoint;
use super::channel::{Asked, ChannelState, Sub};
use crate::ids::PeerId;
use crate::rail::rails_of;
use crate::store::NONE;
use crate::time::{Nanos, Time};

/// No channel has a connection that could be silent.
pub(super) const NEVER: Time = Time(u64::MAX);

/// Peers due within this fraction of `keepalive` are probed together with those due now: a sleeping process
/// wakes once for many peers, and channels are checked rarely.
const TOGETHER: u64 = 4;

/// The minimum average time between probes of a process, for any `keepalive` and any number of peers and
/// rails: a probe and its answer cost about 1 us at either end, so keep-alive takes at most a hundredth of a
/// processor. Answers need no bound: a rail with a pending answer is not probed again.
const QUESTION_GAP: Nanos = Nanos::from_micros(100);

/// Peers dialled in one check: receives may wait for thousands.
const CALLS_TOGETHER: u32 = 16;

impl Endpoint<'_> {
    /// Changes [`Config::keepalive`](crate::config::Config::keepalive); `Nanos(0)`: no peer is probed from
    /// now on.
    pub fn set_keepalive(&mut self, now: Time, keepalive: Nanos) {
        self.config.keepalive = keepalive;
        self.keepalive_at = if keepalive.0 > 0 { (now + keepalive).max(self.keepalive_from) } else { NEVER };
    }

    /// A connection is ready: from now on the silence of its peer is checked.
    pub(super) fn expect_signs(&mut self, now: Time) {
        let keepalive = self.config.keepalive;
        if keepalive.0 > 0 {
            self.keepalive_at = self.keepalive_at.min((now + keepalive).max(self.keepalive_from));
        }
    }

    /// Probes silent peers, and computes the time of the next check.
    #[cold]
    pub(super) fn keep_alive(&mut self, now: Time) {
        let keepalive = self.config.keepalive;
        let soon = now + Nanos(keepalive.0.div_ceil(TOGETHER));
        let (mut next, mut questions) = (NEVER, 0);
        let mut walk = self.t.channels.walk();
        while let Some(channel) = self.t.channels.step(&mut walk) {
            self.fold_line(channel);
            if !self.may_be_silent(channel) {
                continue;
            }
            if self.sign_due(channel) <= soon {
                self.t.channels.at_mut(channel).kept = now;
                questions += self.ask_for_sign(now, channel);
            }
            next = next.min(self.sign_due(channel));
        }
        if self.call_sources(now) {
            next = next.min(now + keepalive);
        }
        self.keepalive_from = now + Nanos(u64::from(questions) * QUESTION_GAP.0);
        // A packet that arrives meanwhile makes its peer due no earlier than `now + keepalive`.
        self.keepalive_at =
            if next == NEVER { NEVER } else { next.clamp(soon, now + keepalive).max(self.keepalive_from) };
    }

    /// A receive waits for a peer without a connection: if the peer does not dial, the core does (F-13).
    #[inline]
    pub(super) fn expect_caller(&mut self, now: Time, source: PeerId) {
        if self.t.peers.get(source.0 as usize).is_some_and(|peer| peer.channel == NONE) {
            self.expect_signs(now);
        }
    }

    /// Dials the peers that receives wait for and that have not dialled: a few at a time. If peers outnumber
    /// channels, half of the channels are left for incoming connections and sends. Returns whether some peers
    /// are left.
    fn call_sources(&mut self, now: Time) -> bool {
        let mut calls = CALLS_TOGETHER;
        let channels = self.t.channels.capacity();
        let left_free = if channels as usize >= self.t.peers.len() { 0 } else { channels / 2 };
        let mut walk = self.t.matcher.posted_walk();
        while let Some(source) = self.t.matcher.next_source(&mut walk) {
            let is_known = self.t.peers.get(source.0 as usize).is_some_and(|peer| peer.channel != NONE || peer.gone);
            if is_known {
                continue;
            }
            let is_room = self.t.channels.room() > left_free;
            if calls == 0 || !is_room || self.open_channel(now, source).is_none() {
                return true;
            }
            calls -= 1;
        }
        false
    }

    /// Whether only a probe can detect that the peer is gone: connections to it are up, and none that ends
    /// with its process (F-9).
    fn may_be_silent(&mut self, channel: u32) -> bool {
        if matches!(self.t.channels.at(channel).state(), ChannelState::Leaving | ChannelState::Over(_)) {
            return false;
        }
        let up = (0u8..).zip(self.t.subs_of(channel)).filter(|(_, sub)| sub.is_up());
        let up = up.fold(0u64, |mask, (rail, _)| mask | 1 << rail);
        up != 0 && !rails_of(up).any(|rail| self.paths.rails[usize::from(rail.0)].caps.lossless)
    }

    /// When the peer is to be probed, unless a packet arrives before.
    fn sign_due(&self, channel: u32) -> Time {
        let (slot, keepalive) = (self.t.channels.at(channel), self.config.keepalive);
        if slot.kept > slot.last_received {
            slot.kept + keepalive.max(slot.kept - slot.last_received)
        } else {
            slot.last_received + keepalive
        }
    }

    /// Probes every rail without a pending probe, and returns their number.
    pub(super) fn ask_for_sign(&mut self, now: Time, channel: u32) -> u32 {
        let mut questions = 0;
        let judges = self.config.recovery && self.config.stall_min.0 > 0;
        for rail in rails_of(self.paths.peer(channel).rooms.ready) {
            // The answer is pending, or an earlier post is still to complete; another probe would queue
            // behind that again and again (F-11).
            let is_busy = self.paths.path(channel, rail).under_way > 0;
            let asked = self.t.sub(channel, rail).asked;
            let is_judged = asked.is_some_and(|asked| asked.answered.is_none() || is_busy);
            if !(judges && is_judged) {
                self.ask_rail(channel, rail, Asked { keeps_alive: true, is_common: true, ..Asked::first(now) });
                questions += 1;
            }
        }
        questions
    }
}

impl Sub {
    /// Whether a keepalive probe on it is pending without any arrival since.
    pub(super) fn owes_sign(&self) -> bool {
        self.asked.is_some_and(|asked| asked.keeps_alive && asked.answered.is_none() && self.last_received <= asked.at)
    }
}
