//! Detection: rails that stall, and peers that are silent.
//!
//! # Deadlines (F-11)
//!
//! Some rails fail without a report: a work request never completes, a reported packet never arrives, or the
//! other end disappears without notice.
//!
//! A rail that has had work for a while without any arrival is probed; the probe returns on the same rail
//! (G-6). A subchannel keeps its order (L-2), so the answer decides: packets posted before the probe have
//! arrived, or are lost. Without an answer the rail is given up only if packets from the peer arrived on
//! another one meanwhile: a computing process answers on none, and its rails are not at fault. If the other
//! rails are silent because everything waits for this one, they are probed as well.
//!
//! An active rail may still have lost a packet that the peer waits for. So an old unacknowledged first packet
//! of a lane triggers a probe when it exceeds the transit time of its rail, whatever else the rail delivers.
//!
//! # Keep-alive (F-13)
//!
//! Deadlines start with a post at a rail or a packet that the peer has not acknowledged. Without either, a
//! rail that reports nothing when the peer's process dies (verbs: its queue pair is gone without notice)
//! looks idle. So a peer that was silent for `keepalive` is probed. That gives every rail some work, and its
//! reaction to a dead peer is known: its device gives up (InfiniBand specification, 9.7.6.1.3: retries), its
//! kernel does (TCP: reset, user time-out), or it never completes the probe (F-11). All rails are probed,
//! because all of them must fail before the peer is given up (F-9).
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

use super::timer::Timer;
use super::{Endpoint, LossReason, RailFault};
use crate::ids::{PeerId, RailId};
use crate::op::record_of;
use crate::paths::Stamp;
use crate::peer::{ChannelState, ORDERED, StallProbe, Sub, UNORDERED};
use crate::rail::rails_of;
use crate::rail::rate::Rate;
use crate::rel::link::State;
use crate::store::NONE;
use crate::time::{Nanos, Time};

/// Any rail moves this much in the shortest deadline; with more bytes, a rail without a known rate gets the
/// maximum time.
const UNMEASURED_BYTES_MAX: u64 = 16 * 1024;

/// The peer's CONNECT must arrive within this many of the shortest deadlines.
const SET_UP_TIMEOUT: u64 = 10;

/// A deadline is this multiple of the estimated time of a rail.
const TIMEOUT: u64 = 8;

/// Probes of a rail that delivers packets but no answer are repeated this often: its packets may be older
/// than the probe.
const REPEATS_MAX: u8 = 3;

/// A peer that computes reads whenever it sends: a frame that a rail still has after packets of the peer came
/// so often, with silence between them, and that without a completion, stays there.
const TURNS_MAX: u8 = 16;

/// The first unacknowledged packet of a lane.
#[derive(Clone, Copy)]
struct Missing {
    /// The rail that has or had it.
    rail: RailId,
    /// Since when.
    stamp: Stamp,
}

impl Endpoint<'_> {
    /// Maximum idle time of a rail, within the bounds of the configuration: from its time for one post, or
    /// for its unit of completion reports. Later posts don't count, as every completion ends the silence.
    fn deadline(&self, channel: u32, rail: RailId) -> Nanos {
        let facts = self.paths.facts(rail);
        let reported_at_once = self.rate_of_silence(channel, rail).bytes_in(facts.feed_time_min.0);
        self.timeout(channel, rail, reported_at_once.max(facts.segment_bytes_max.into()))
    }

    /// Maximum transit time of a packet that was posted behind all others of its rail.
    fn transit_deadline(&self, channel: u32, rail: RailId) -> Nanos {
        self.timeout(channel, rail, u64::MAX)
    }

    /// The rate for judging a rail's silence: the last measurement with any peer, if that is more than its
    /// estimate towards this one. A returning rail gets little load (F-8), but is not slow.
    fn rate_of_silence(&self, channel: u32, rail: RailId) -> Rate {
        let measured = self.paths.figures[usize::from(rail.0)].bytes_per_second;
        Rate(self.paths.estimated_rate(channel, rail).0.max(Rate::from_bytes_per_second(measured).0))
    }

    fn timeout(&self, channel: u32, rail: RailId, bytes_max: u64) -> Nanos {
        let path = self.paths.path(channel, rail);
        let moving = match self.rate_of_silence(channel, rail) {
            Rate::NONE if path.backlog > UNMEASURED_BYTES_MAX => u64::MAX,
            Rate::NONE => 0,
            rate => rate.time_ns(path.backlog.min(bytes_max)),
        };
        let needed = moving.saturating_add(path.latency.into()).saturating_mul(TIMEOUT);
        Nanos(needed.clamp(self.config.stall_min.0, self.config.stall_max.0.max(self.config.stall_min.0)))
    }

    /// Checks all rails of a channel.
    pub(super) fn check_rails(&mut self, now: Time, channel: u32) {
        let slot = self.channel(channel);
        match slot.state() {
            ChannelState::Over(_) => return self.check_late_connects(now, channel),
            ChannelState::Leaving => return self.check_byes(now, channel),
            _ if !self.config.recovery => return,
            _ => {}
        }
        let mut next = self.check_connects(now, channel);
        if self.channel(channel).is_over() {
            return;
        }
        let missing = [ORDERED, UNORDERED].map(|lane| self.first_missing(channel, lane));
        for rail in rails_of(self.paths.peer(channel).rooms.ready) {
            if self.paths.facts(rail).caps.lossless {
                // It fails with the peer's process, and reports that itself (F-9).
                continue;
            }
            let recheck = self.check_rail(now, channel, rail, &missing);
            next = next.into_iter().chain(recheck).min();
            if self.channel(channel).is_over() {
                return;
            }
        }
        if let Some(next) = next {
            self.t.set_timer(channel, Timer::Watch, now + next);
        }
    }

    /// Checks the connections without the peer's CONNECT. Returns the time until the next check.
    fn check_connects(&mut self, now: Time, channel: u32) -> Option<Nanos> {
        let mut next = None;
        let is_closing = self.channel(channel).state() == ChannelState::Closing;
        let ready = self.t.subs_of(channel).iter().filter(|sub| sub.link.state() == State::Ready);
        let received_at = ready.map(|sub| sub.last_received).max();
        let (soon, lone_max) = (self.config.stall_min, self.config.stall_lone);
        for rail in (0..self.paths.rails.len() as u8).map(RailId) {
            let lossless = self.paths.facts(rail).caps.lossless;
            let sub = self.sub_mut(channel, rail);
            // A lossless one fails with the peer's process; BYE waits for it as for a sole rail (G-7).
            if sub.link.state() != State::Up || lossless && !(is_closing && lone_max.0 > 0) {
                continue;
            }
            // A peer that makes calls without sending CONNECT may have left this connection already; one that
            // is silent everywhere computes.
            let makes_calls = received_at > Some(sub.last_received);
            let few = Nanos(soon.0.saturating_mul(SET_UP_TIMEOUT));
            let set_up_max = if makes_calls && !lossless { few } else { lone_max };
            if set_up_max.0 == 0 || now - sub.last_received < set_up_max {
                let recheck = if set_up_max.0 == 0 { few } else { soon };
                next = next.into_iter().chain([recheck]).min();
                continue;
            }
            self.abort(now, channel, rail, RailFault::TimedOut);
            if self.channel(channel).is_over() {
                break;
            }
        }
        next
    }

    /// Checks one ready rail. Returns the time until the next check; `None`: it has no work.
    fn check_rail(&mut self, now: Time, channel: u32, rail: RailId, missing: &[Option<Missing>]) -> Option<Nanos> {
        let (deadline, transit) = (self.deadline(channel, rail), self.transit_deadline(channel, rail));
        let sub = self.sub(channel, rail);
        let &Sub { frame_posted, last_received, stall_probe, ready_at, .. } = sub;
        let is_keepalive_pending = sub.is_keepalive_pending();
        let (posts, last) = (self.paths.path(channel, rail).in_flight, self.paths.path(channel, rail).last);
        let waits = missing.iter().flatten().filter(|missing| missing.rail == rail);
        let waits = waits.map(|missing| missing.stamp.age(now)).max();
        let is_overdue = waits.is_some_and(|waits| waits >= transit);
        let slot = self.channel(channel);
        let parks = slot.state() == ChannelState::Parking && slot.park.waits_on(rail);
        let is_busy = posts > 0 || frame_posted || waits.is_some() || parks;
        if !is_busy && !is_keepalive_pending {
            self.sub_mut(channel, rail).stall_probe = None;
            return None;
        }
        // A keepalive probe is answered soon. Check twice per deadline: work that begins just after a check
        // must not get two deadlines.
        let recheck = Nanos(if is_busy { deadline.0 / 2 } else { self.config.stall_min.0 });
        if self.is_frame_stuck(now, channel, rail, deadline) {
            self.abort(now, channel, rail, RailFault::TimedOut);
            return Some(recheck);
        }
        let seen = last_received.max(last);
        match stall_probe {
            None if now - seen.max(ready_at) >= deadline || is_overdue => {
                self.probe_first(now, channel, rail, seen.max(ready_at));
            }
            None => {}
            // Reads may lie behind an answer, and every completion shows progress.
            Some(StallProbe { answered: Some(answered), .. }) if now - answered.max(last) < deadline => {}
            Some(StallProbe { at, answered: Some(_), .. }) => {
                // PARK was posted before the probe, so the peer had it and what it did came first, or it is
                // lost.
                if parks || self.has_post_before(now, channel, rail, at) {
                    self.abort(now, channel, rail, RailFault::TimedOut);
                } else {
                    self.sub_mut(channel, rail).stall_probe = None;
                }
            }
            // It makes progress, though not on this: probe again when it stops.
            Some(stall_probe) if !is_overdue && seen > stall_probe.at => self.sub_mut(channel, rail).stall_probe = None,
            Some(stall_probe) => {
                let is_delivering = last_received > stall_probe.at;
                if now - stall_probe.at >= if is_delivering { transit } else { deadline } {
                    self.judge_silence(now, channel, rail, stall_probe, is_delivering);
                }
            }
        }
        Some(recheck)
    }

    /// Whether a rail is stuck on an unsequenced frame, though it goes on to deliver others: no probe can be
    /// sent behind it. One that delivers nothing for a while belongs to a peer that computes.
    fn is_frame_stuck(&mut self, now: Time, channel: u32, rail: RailId, deadline: Nanos) -> bool {
        let last = self.paths.path(channel, rail).last;
        let sub = self.sub_mut(channel, rail);
        let (generation, since) = sub.frame_seen;
        if !sub.frame_posted {
            return false;
        }
        if generation != sub.frame_generation || last > since {
            (sub.frame_seen, sub.frame_turns) = ((sub.frame_generation, now), 0);
            return false;
        }
        let has_arrival = sub.last_received > since;
        if !has_arrival || now - sub.last_received >= deadline {
            sub.frame_seen = (sub.frame_generation, now);
            sub.frame_turns += u8::from(has_arrival);
            return sub.frame_turns >= TURNS_MAX;
        }
        now - since >= Nanos(deadline.0.saturating_mul(2))
    }

    /// Probes a rail that has done nothing since `seen`. Also probes the others if they have been silent for
    /// longer: everything may wait for this one, so that they have nothing to send.
    fn probe_first(&mut self, now: Time, channel: u32, rail: RailId, seen: Time) {
        let others = rails_of(self.paths.peer(channel).rooms.ready & !(1 << rail.0));
        let are_silent = others.map(|other| self.sub_mut(channel, other).last_received).max() < Some(seen);
        let stall_probe = StallProbe { keeps_alive: are_silent, is_common: are_silent, ..StallProbe::first(now) };
        self.probe_rail(channel, rail, stall_probe);
        if are_silent {
            self.probe_all_rails(now, channel);
        }
    }

    /// A rail's time to answer is over. `is_delivering`: it has delivered something else.
    fn judge_silence(&mut self, now: Time, channel: u32, rail: RailId, stall_probe: StallProbe, is_delivering: bool) {
        let mut others = rails_of(self.paths.peer(channel).rooms.ready & !(1 << rail.0));
        let lives = is_delivering || others.any(|other| self.sub_mut(channel, other).last_received > stall_probe.at);
        let repeats_max = if is_delivering { REPEATS_MAX } else { 1 };
        let lone_max = self.config.stall_lone;
        let is_lone = lone_max.0 > 0 && now - stall_probe.since >= lone_max && !is_delivering;
        if lives && stall_probe.repeats >= repeats_max || is_lone {
            self.abort(now, channel, rail, RailFault::TimedOut);
        } else if lives {
            // The peer may just have resumed, and read this rail last.
            let repeats = stall_probe.repeats.saturating_add(1);
            self.probe_rail(channel, rail, StallProbe { at: now, repeats, ..stall_probe });
            if stall_probe.keeps_alive {
                // An idle peer sends nothing by itself: probe the others once more, too.
                self.probe_all_rails(now, channel);
            }
        } else if !stall_probe.is_common {
            // The others may have fallen silent since the probe: they have delivered all they had.
            self.sub_mut(channel, rail).stall_probe =
                Some(StallProbe { keeps_alive: true, is_common: true, ..stall_probe });
            self.probe_all_rails(now, channel);
        } else {
            // F-13: the probed packet is with the rail, or with a process that computes.
            self.sub_mut(channel, rail).stall_probe = Some(StallProbe { keeps_alive: false, ..stall_probe });
        }
    }

    fn probe_rail(&mut self, channel: u32, rail: RailId, stall_probe: StallProbe) {
        self.sub_mut(channel, rail).stall_probe = Some(stall_probe);
        let slot = self.channel_mut(channel);
        slot.work.probes.insert(rail);
        self.activate(channel);
    }

    /// A probe has returned on its rail.
    pub(super) fn rail_answered(&mut self, now: Time, channel: u32, rail: RailId, nonce: u64) {
        let sub = self.sub_mut(channel, rail);
        let Some(stall_probe) = sub.stall_probe.as_mut().filter(|stall_probe| nonce == stall_probe.nonce()) else {
            return;
        };
        stall_probe.answered = Some(now);
        let stall_probe_at = stall_probe.at;
        let missing = [ORDERED, UNORDERED].map(|lane| self.first_missing(channel, lane));
        let is_before = |missing: &Missing| missing.rail == rail && is_before(missing.stamp, stall_probe_at, now);
        if missing.iter().flatten().any(is_before) {
            // It was posted before the probe; the probe arrived and it did not.
            self.abort(now, channel, rail, RailFault::TimedOut);
        }
    }

    /// The first packet of a lane that the peer has not acknowledged, unless its connection is dead.
    fn first_missing(&mut self, channel: u32, lane: usize) -> Option<Missing> {
        let (slot, slots) = self.t.sent(channel, lane);
        let (_, handle) = slot.sent[lane].next_held(slots, slot.sent[lane].oldest())?;
        if let Some(index) = record_of(handle) {
            let record = self.t.retention.record(index);
            return (!record.is_lost()).then_some(Missing { rail: RailId(record.rail), stamp: Stamp::of(record.at) });
        }
        let index = handle;
        let packet = self.packet(index);
        (!packet.lost).then_some(Missing { rail: RailId(packet.rail), stamp: packet.stamp })
    }

    /// Whether a rail still has a post that it got before `at`.
    fn has_post_before(&self, now: Time, channel: u32, rail: RailId, at: Time) -> bool {
        self.t.packets.indices().any(|index| {
            let packet = self.packet(index);
            packet.channel == channel && packet.rail == rail.0 && packet.posted && is_before(packet.stamp, at, now)
        }) || self.t.channels.at(channel).shorts > 0
            && self.t.retention.records().any(|record| {
                record.channel == channel
                    && record.rail == rail.0
                    && record.is_posted()
                    && is_before(Stamp::of(record.at), at, now)
            })
    }

    /// Rails that cannot send BYE or the frames before it (G-7). While the peer has received BYE on another
    /// rail, such a rail gets the stall timeout (F-11); otherwise the longer timeout of a sole rail.
    fn check_byes(&mut self, now: Time, channel: u32) {
        let ready = self.paths.peer(channel).rooms.ready;
        let is_out = rails_of(ready).any(|rail| {
            let sub = self.sub(channel, rail);
            sub.bye_sent && !sub.frame_posted
        });
        let is_bye_received = is_out || self.channel(channel).bye_received;
        let lone_max = self.config.stall_lone;
        for rail in rails_of(ready) {
            let &Sub { frame_posted, frame_seen: (generation, since), frame_generation, .. } = self.sub(channel, rail);
            let deadline = if is_bye_received { self.transit_deadline(channel, rail) } else { lone_max };
            if !frame_posted || deadline.0 == 0 {
                continue;
            }
            if generation != frame_generation {
                self.sub_mut(channel, rail).frame_seen = (frame_generation, now);
            } else if now - since >= deadline {
                self.abort(now, channel, rail, RailFault::TimedOut);
                if self.t.channels.key_at(channel).is_none() || self.channel(channel).is_over() {
                    return;
                }
            }
        }
        self.t.set_timer(channel, Timer::Watch, now + self.config.stall_min);
    }

    /// The peer has left an acknowledgment pending for too long (G-9).
    pub(super) fn watch(&mut self, now: Time, channel: u32) {
        let slot = self.channel(channel);
        let last_received = slot.silence.last_received;
        if slot.is_over() || slot.sent.iter().all(|lane| lane.is_empty()) {
            return;
        }
        let (probe, max) = (self.config.probe_after, self.config.silence_max);
        let lost_at = last_received + max;
        if max.0 > 0 && now >= lost_at {
            self.give_up(now, channel, LossReason::Silent);
            return;
        }
        let mut next = if max.0 > 0 { lost_at } else { Time(u64::MAX) };
        if probe.0 > 0 {
            if now >= last_received + probe {
                self.channel_mut(channel).silence.probe_due = true;
                self.activate(channel);
                next = next.min(now + probe);
            } else {
                next = next.min(last_received + probe);
            }
        }
        self.t.set_timer(channel, Timer::Silence, next);
    }
}

/// Whether a packet was posted before `at`, which is not after `now`.
fn is_before(stamp: Stamp, at: Time, now: Time) -> bool {
    stamp.age(now) > Stamp::of(at).age(now)
}

/// No channel has a connection that could be silent.
pub(super) const NEVER: Time = Time(u64::MAX);

/// Peers due within this fraction of `keepalive` are probed together with those due now: a sleeping process
/// wakes once for many peers, and channels are checked rarely.
const DUE_PART: u64 = 4;

/// The minimum average time between probes of a process, for any `keepalive` and any number of peers and
/// rails: a probe and its answer cost about 1 us at either end, so keep-alive takes at most a hundredth of a
/// processor. Answers need no bound: a rail with a pending answer is not probed again.
const PROBE_GAP: Nanos = Nanos::from_micros(100);

/// Peers dialled in one check: receives may wait for thousands.
const DIALS_MAX: u32 = 16;

impl Endpoint<'_> {
    /// Changes [`Config::keepalive`](crate::config::Config::keepalive); `Nanos(0)`: no peer is probed from
    /// now on.
    pub fn set_keepalive(&mut self, now: Time, keepalive: Nanos) {
        self.config.keepalive = keepalive;
        self.keepalive_at = if keepalive.0 > 0 { (now + keepalive).max(self.keepalive_from) } else { NEVER };
    }

    /// Probes silent peers, and computes the time of the next check.
    #[cold]
    pub(super) fn keep_alive(&mut self, now: Time) {
        let keepalive = self.config.keepalive;
        let soon = now + Nanos(keepalive.0.div_ceil(DUE_PART));
        let (mut next, mut probe_count) = (NEVER, 0);
        let mut walk = self.t.channels.walk();
        while let Some(channel) = self.t.channels.step(&mut walk) {
            self.fold_line(channel);
            if !self.may_be_silent(channel) {
                continue;
            }
            if self.sign_due(channel) <= soon {
                self.channel_mut(channel).silence.probed(now);
                probe_count += self.probe_all_rails(now, channel);
            }
            next = next.min(self.sign_due(channel));
        }
        if self.call_sources(now) {
            next = next.min(now + keepalive);
        }
        self.keepalive_from = now + Nanos(u64::from(probe_count) * PROBE_GAP.0);
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
    /// channels, half of those that messages of parked channels leave is left for incoming connections and
    /// sends. Returns whether some peers are left.
    fn call_sources(&mut self, now: Time) -> bool {
        let mut calls = DIALS_MAX;
        let channels = if self.are_channels_short() { self.t.channels.capacity() } else { 0 };
        let mut walk = self.t.matcher.posted.walk();
        while let Some(source) = self.t.matcher.posted.next_source(&mut walk) {
            let is_known = self.t.peers.get(source.0 as usize).is_some_and(|peer| peer.channel != NONE || peer.gone);
            if is_known {
                continue;
            }
            let room = self.room_for_channels(source);
            let is_room = room > channels.saturating_sub(self.t.channels.room() - room) / 2;
            if calls == 0 {
                return true;
            }
            if !is_room || self.open_channel(now, source).is_none() {
                // The source may not find this process any more.
                self.make_room(now);
                return true;
            }
            calls -= 1;
        }
        false
    }

    /// Whether only a probe can detect that the peer is gone: connections to it are up, and none that ends
    /// with its process (F-9).
    fn may_be_silent(&mut self, channel: u32) -> bool {
        if matches!(self.channel(channel).state(), ChannelState::Leaving | ChannelState::Over(_)) {
            return false;
        }
        let up = (0u8..).zip(self.t.subs_of(channel)).filter(|(_, sub)| sub.is_up());
        let up = up.fold(0u64, |mask, (rail, _)| mask | 1 << rail);
        up != 0 && !rails_of(up).any(|rail| self.paths.facts(rail).caps.lossless)
    }

    /// When the peer is to be probed, unless a packet arrives before.
    fn sign_due(&self, channel: u32) -> Time {
        self.channel(channel).silence.probe_at(self.config.keepalive)
    }

    /// Probes every rail without a pending probe, and returns their number.
    fn probe_all_rails(&mut self, now: Time, channel: u32) -> u32 {
        let mut probe_count = 0;
        let judges = self.config.recovery && self.config.stall_min.0 > 0;
        for rail in rails_of(self.paths.peer(channel).rooms.ready) {
            // The answer is pending, or an earlier post is still to complete; another probe would queue
            // behind that again and again (F-11).
            let is_busy = self.paths.path(channel, rail).in_flight > 0;
            let stall_probe = self.sub_mut(channel, rail).stall_probe;
            let is_judged = stall_probe.is_some_and(|stall_probe| stall_probe.answered.is_none() || is_busy);
            if !(judges && is_judged) {
                self.probe_rail(
                    channel,
                    rail,
                    StallProbe { keeps_alive: true, is_common: true, ..StallProbe::first(now) },
                );
                probe_count += 1;
            }
        }
        probe_count
    }
}
