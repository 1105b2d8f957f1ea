//! Sampling: latency and rate of each rail, measured once, when it first reaches a peer, by probes of a few
//! sizes that the peer returns at once (P-12; newmadeleine-2007, 3.3: ratios from "a sampling of each
//! network's capabilities" at start).
//!
//! One exchange at a time over all rails and peers, concurrent with other traffic; a sample that other
//! payload has crossed is dropped. A rail that does not answer in time is skipped. With only one rail to a
//! peer no sample is taken.

use super::{Paths, Sampled};
use crate::ids::RailId;
use crate::rail::rate::Rate;
use crate::time::{Nanos, Time};

/// Payloads of the probes, in their order: the first one opens the path, the second measures the latency, the
/// others the rate. Less where a rail takes less in one packet.
const SIZES: [u64; 4] = [0, 0, 8 * 1024, 64 * 1024];

/// Set in the nonces of samples; those of other probes are times.
const NONCE: u64 = 1 << 63;

/// This time must pass after the peer's last sample before this side samples its rails.
pub(crate) const DEFER: Nanos = Nanos::from_micros(500);

/// A rail that is being sampled.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    channel: u32,
    rail: RailId,
    /// Index into [`SIZES`].
    step: usize,
    /// When the probe was sent.
    sent: Option<Time>,
    /// Payload bytes that the rail had carried by then.
    bytes: u64,
    /// Round trips so far.
    took: [u64; SIZES.len()],
}

/// The rail that is sampled, and those that are still to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampler {
    /// Rails not sampled yet: bit per rail.
    unsampled: u64,
    exchange: Option<Exchange>,
    /// Distinguishes samples.
    count: u64,
    /// The peer of this channel samples its own rails at present.
    deferred: Option<u32>,
}

impl Sampler {
    /// For so many rails; no sampling where `time_max` is zero.
    pub(super) const fn new(rails: usize, time_max: Nanos) -> Self {
        let all = if rails == 0 { 0 } else { u64::MAX >> (64 - rails) };
        let unsampled = if time_max.0 == 0 || rails < 2 { 0 } else { all };
        Sampler { unsampled, exchange: None, count: 0, deferred: None }
    }

    /// No sampling is under way or pending: the state after the start.
    const fn is_done(&self) -> bool {
        self.unsampled == 0 && self.exchange.is_none()
    }
}

/// A probe to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleProbe {
    pub rail: RailId,
    /// Bytes of its payload.
    pub len: u64,
    pub nonce: u64,
    /// It is the first to this rail: from now on there is a time for all of them.
    pub is_first: bool,
}

/// What becomes of an exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answered {
    /// It goes on as it was.
    Unmoved,
    /// The next probe is due.
    Next,
    /// It has ended; the rail has a result, if one is given.
    Over(Option<RailId>),
}

impl Paths<'_> {
    /// Whether no rail is being sampled, or will be.
    #[inline]
    pub(crate) fn is_sampled(&self) -> bool {
        self.sampler.is_done()
    }

    /// The probe that is due on a channel, if any: of the rail that is being sampled, or, without one, of the
    /// next.
    #[inline]
    pub(crate) fn sample_probe(&mut self, channel: u32) -> Option<SampleProbe> {
        if self.sampler.is_done() { None } else { self.next_sample_probe(channel) }
    }

    fn next_sample_probe(&mut self, channel: u32) -> Option<SampleProbe> {
        let is_first = self.sampler.exchange.is_none() && self.sampler.deferred.is_none();
        if is_first {
            let ready = self.ready(channel);
            let unsampled = self.sampler.unsampled & ready;
            if unsampled == 0 || ready.is_power_of_two() {
                return None;
            }
            let rail = RailId(unsampled.trailing_zeros() as u8);
            self.sampler.unsampled &= !(1 << rail.0);
            self.sampler.exchange =
                Some(Exchange { channel, rail, step: 0, sent: None, bytes: 0, took: [0; SIZES.len()] });
        }
        match self.sampler.exchange {
            Some(Exchange { channel: sample_sent, rail, step, sent: None, .. }) if sample_sent == channel => {
                let nonce = NONCE | self.sampler.count;
                Some(SampleProbe { rail, len: self.sample_bytes(rail, step), nonce, is_first })
            }
            _ => None,
        }
    }

    /// The probe that was due was sent.
    pub(crate) fn sample_sent(&mut self, now: Time) {
        let rail = self.sampler.exchange.map(|exchange| exchange.rail);
        let bytes = rail.and_then(|rail| self.rail_stats(rail)).map_or(0, |stats| stats.bytes);
        if let Some(exchange) = &mut self.sampler.exchange {
            (exchange.sent, exchange.bytes) = (Some(now), bytes);
        }
    }

    /// A probe of the peer has come. If it is a sample, two concurrent samplings disturb each other: the side
    /// of the higher rank (`is_later`) waits until the other has finished. `true`: from now on, for
    /// [`DEFER`].
    pub(crate) fn defer_samples(&mut self, channel: u32, is_later: bool, nonce: u64) -> bool {
        if nonce & NONCE == 0 || !is_later || self.sampler.is_done() {
            return false;
        }
        if let Some(exchange) = self.sampler.exchange.take_if(|exchange| exchange.channel == channel) {
            self.sampler.unsampled |= 1 << exchange.rail.0;
            self.sampler.count += 1;
        }
        let waits = self.sampler.exchange.is_none();
        if waits {
            self.sampler.deferred = Some(channel);
        }
        waits
    }

    fn sample_bytes(&self, rail: RailId, step: usize) -> u64 {
        SIZES[step].min(self.facts(rail).segment_bytes_max.into()).min(self.settings.pool_bytes)
    }

    /// A probe has been answered.
    pub(crate) fn answered(&mut self, now: Time, channel: u32, nonce: u64) -> Answered {
        let rail = self.sampler.exchange.map(|exchange| exchange.rail);
        let moved = rail.and_then(|rail| self.rail_stats(rail)).map_or(0, |stats| stats.bytes);
        let Some(exchange) = &mut self.sampler.exchange else { return Answered::Unmoved };
        let due = NONCE | self.sampler.count;
        let (Some(sent), true) = (exchange.sent, exchange.channel == channel && nonce == due) else {
            return Answered::Unmoved;
        };
        exchange.took[exchange.step] = (now - sent).0;
        exchange.sent = None;
        self.sampler.count += 1;
        let Exchange { rail, step, bytes, took, .. } = *exchange;
        if moved != bytes {
            // Other traffic was in flight: it will be measured by that.
            return Answered::Over(None);
        }
        if step + 1 < SIZES.len() {
            exchange.step += 1;
            return Answered::Next;
        }
        let [_, empty, small, large] = took;
        let more = self.sample_bytes(rail, 3) - self.sample_bytes(rail, 2);
        let rate = if large > small && more > 0 { Rate::of(more, large - small) } else { Rate::NONE };
        self.sampled(rail, empty, rate);
        Answered::Over(Some(rail))
    }

    /// The time of a rail's sample has expired. Its answers until then count; its rate is below the rate that
    /// would have met the deadline. Returns the rail, if it has a result.
    pub(crate) fn sample_timed_out(&mut self, channel: u32) -> Option<RailId> {
        let exchange = self.sampler.exchange.filter(|exchange| exchange.channel == channel && exchange.step > 1);
        let Exchange { rail, step, took, .. } = exchange?;
        let rate = Rate::of(self.sample_bytes(rail, step), self.settings.sampling_time_max.0);
        self.sampled(rail, took[1], rate);
        Some(rail)
    }

    /// A rail's sample is complete: the round-trip time of an empty packet, and its rate.
    fn sampled(&mut self, rail: RailId, round_trip: u64, rate: Rate) {
        let sampled = Sampled { latency: Nanos(round_trip / 2), bytes_per_second: rate.bytes_per_second() };
        self.figures[rail.index()].sampled = Some(sampled);
    }

    /// Ends a channel's sample: it is answered, its time has expired, or the channel has ended. `true`: one
    /// was under way or pending.
    pub(crate) fn end_sample(&mut self, channel: u32) -> bool {
        let is_sampling = self.sampler.exchange.is_some_and(|exchange| exchange.channel == channel);
        let was = is_sampling || self.sampler.deferred == Some(channel);
        if was {
            self.sampler.exchange = self.sampler.exchange.filter(|_| !is_sampling);
            self.sampler.deferred = None;
        }
        was
    }
}
