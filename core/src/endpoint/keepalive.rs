//! Keep-alive (F-13): who waits for a peer, and owes it nothing, hears that it is gone.
//!
//! Deadlines of rails (F-11) begin with something that a rail has or a peer has not acknowledged. Where there
//! is no such thing, a rail that says nothing when the peer's process dies (verbs: its queue pair is gone,
//! and nobody tells) is as good as one that is idle. So a peer of which nothing was heard for `keepalive` is
//! asked by a probe. That gives every rail something to do, and what a rail does about a peer that is not
//! there any more is known: its device gives up (InfiniBand specification, 9.7.6.1.3: retries), its kernel
//! does (TCP: reset, user time-out), or it never gets rid of the probe (F-11). All rails are asked, because
//! all of them must be seen to fail before the peer is given up (F-9).
//!
//! Silence by itself ends nothing here: a process that computes for an hour answers no probe, and each waits
//! in one of its receive buffers. So one that does not answer is asked again after as long as it has been
//! silent then.
//!
//! A receive alone calls nobody: its peer may be one of many, and who sends calls. But one that is gone
//! before it ever called would be waited for without end. So who has not called by the next look, `keepalive`
//! later at most, is called.
//!
//! A look at all channels, now and then, instead of a timer for each: the timers that every message sets and
//! cancels stay few, and a message costs nothing for being heard.

use super::Endpoint;
use super::channel::{Asked, ChannelState, Sub};
use crate::ids::PeerId;
use crate::rail::rails_of;
use crate::store::NONE;
use crate::time::{Nanos, Time};

/// No channel has a connection that could be silent.
pub(super) const NEVER: Time = Time(u64::MAX);

/// Who is due within this part of `keepalive` is asked together with who is due now: a process that sleeps
/// wakes once for many peers, and all channels are looked at that rarely.
const TOGETHER: u64 = 4;

/// A process asks no more often than once in this time on average, however short `keepalive` is and however
/// many peers and rails there are: a question and its answer cost about 1 us at either end, so keep-alive
/// takes a hundredth of a processor at most. Peers need no bound of their own for the answers: a rail that
/// owes one is not asked again.
const QUESTION_GAP: Nanos = Nanos::from_micros(100);

/// So many peers are called in one look: receives may wait for thousands.
const CALLS_TOGETHER: u32 = 16;

impl Endpoint<'_> {
    /// Changes [`Config::keepalive`](crate::config::Config::keepalive); `Nanos(0)`: nobody is asked from now
    /// on.
    pub fn set_keepalive(&mut self, now: Time, keepalive: Nanos) {
        self.config.keepalive = keepalive;
        self.keepalive_at = if keepalive.0 > 0 { (now + keepalive).max(self.keepalive_from) } else { NEVER };
    }

    /// A connection is ready: from now on its peer's silence is looked at.
    pub(super) fn expect_signs(&mut self, now: Time) {
        let keepalive = self.config.keepalive;
        if keepalive.0 > 0 {
            self.keepalive_at = self.keepalive_at.min((now + keepalive).max(self.keepalive_from));
        }
    }

    /// Asks the peers of which nothing was heard, and finds out when to look again.
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
        // Who is heard again meanwhile is due again as soon as anybody.
        self.keepalive_at =
            if next == NEVER { NEVER } else { next.clamp(soon, now + keepalive).max(self.keepalive_from) };
    }

    /// A receive waits for a peer that nobody has called yet: if it does not call, it is called (F-13).
    #[inline]
    pub(super) fn expect_caller(&mut self, now: Time, source: PeerId) {
        if self.t.peers.get(source.0 as usize).is_some_and(|peer| peer.channel == NONE) {
            self.expect_signs(now);
        }
    }

    /// Calls the peers for whose messages receives wait and that have not called themselves: a few at a time,
    /// and where peers outnumber channels half of these are left for those that do call, and for sends. Says
    /// whether some are left.
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

    /// Whether nothing but a probe would tell that the peer is gone: connections to it stand, and none that
    /// ends with its process (F-9).
    fn may_be_silent(&mut self, channel: u32) -> bool {
        if matches!(self.t.channels.at(channel).state(), ChannelState::Leaving | ChannelState::Over(_)) {
            return false;
        }
        let up = (0u8..).zip(self.t.subs_of(channel)).filter(|(_, sub)| sub.is_up());
        let up = up.fold(0u64, |mask, (rail, _)| mask | 1 << rail);
        up != 0 && !rails_of(up).any(|rail| self.paths.rails[usize::from(rail.0)].caps.lossless)
    }

    /// When the peer is to be asked, unless something is heard before.
    fn sign_due(&self, channel: u32) -> Time {
        let (slot, keepalive) = (self.t.channels.at(channel), self.config.keepalive);
        if slot.kept > slot.last_received {
            slot.kept + keepalive.max(slot.kept - slot.last_received)
        } else {
            slot.last_received + keepalive
        }
    }

    /// Asks on every rail that is not being judged by a question already, and returns on how many.
    pub(super) fn ask_for_sign(&mut self, now: Time, channel: u32) -> u32 {
        let mut questions = 0;
        let judges = self.config.recovery && self.config.stall_min.0 > 0;
        for rail in rails_of(self.paths.peer(channel).rooms.ready) {
            // It owes the answer, or a post before the question is still to complete, which another question
            // would be behind again and again (F-11).
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
    /// Whether it is asked for a sign of life and has given none.
    pub(super) fn owes_sign(&self) -> bool {
        self.asked.is_some_and(|asked| asked.keeps_alive && asked.answered.is_none() && self.last_received <= asked.at)
    }
}
