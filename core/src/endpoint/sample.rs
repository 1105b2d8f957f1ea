//! Sampling: how near and how fast each rail is, asked once, when it first reaches a peer, by probes of a few
//! sizes that come back at once (P-12; newmadeleine-2007, 3.3: ratios from "a sampling of each network's
//! capabilities" at start).
//!
//! One exchange at a time over all rails and peers, beside whatever else goes on; what other payload has
//! crossed says nothing and is dropped. A rail that does not answer in time is left alone. Where there is but
//! one rail to a peer there is nothing to choose, and nothing is asked.

use super::Endpoint;
use super::Sampled;
use super::action::{Span, SpanOf};
use super::packets::Actions;
use super::timer::Timer;
use crate::ids::RailId;
use crate::mem::{MemRef, RegionId};
use crate::rail::rate::Rate;
use crate::time::{Nanos, Time};
use crate::wire::{Body, Probe};

/// Payloads of the probes, in their order: the first one finds the way, the second tells the latency, the
/// others the rate. Less where a rail takes less in one packet.
const SIZES: [u64; 4] = [0, 0, 8 * 1024, 64 * 1024];

/// Set in the nonces of samples; those of other probes are times.
const NONCE: u64 = 1 << 63;

/// After the peer's last sample so much time must pass before the rails are asked from here.
const DEFER: Nanos = Nanos::from_micros(500);

/// A rail that is being asked.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    channel: u32,
    rail: RailId,
    /// Index into [`SIZES`].
    step: usize,
    /// When the probe went out.
    sent: Option<Time>,
    /// Payload bytes that the rail had carried by then.
    bytes: u64,
    /// Round trips so far.
    took: [u64; SIZES.len()],
}

/// Who is asked, and who still has to be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sampler {
    /// Rails that were not asked yet: bit per rail.
    wanted: u64,
    exchange: Option<Exchange>,
    /// Tells samples apart.
    count: u64,
    /// The peer of this channel asks its own rails just now.
    deferred: Option<u32>,
}

impl Sampler {
    /// For so many rails; nobody is asked where it may take no time.
    pub(super) const fn new(rails: usize, time_max: Nanos) -> Self {
        let all = if rails == 0 { 0 } else { u64::MAX >> (64 - rails) };
        let wanted = if time_max.0 == 0 || rails < 2 { 0 } else { all };
        Sampler { wanted, exchange: None, count: 0, deferred: None }
    }

    /// Nobody is asked, and nobody has to be: so it is but for the beginning.
    const fn is_done(&self) -> bool {
        self.wanted == 0 && self.exchange.is_none()
    }
}

impl Endpoint<'_> {
    /// Asks the next rail of a channel, where nobody is being asked; sends the probe that is due.
    #[inline]
    pub(super) fn pump_samples(&mut self, now: Time, channel: u32, out: &mut Actions) {
        if !self.sampler.is_done() {
            self.pump_next_sample(now, channel, out);
        }
    }

    fn pump_next_sample(&mut self, now: Time, channel: u32, out: &mut Actions) {
        if self.sampler.exchange.is_none() && self.sampler.deferred.is_none() {
            let ready = self.paths.ready(channel);
            let wanted = self.sampler.wanted & ready;
            if wanted == 0 || ready.is_power_of_two() {
                return;
            }
            let rail = RailId(wanted.trailing_zeros() as u8);
            self.sampler.wanted &= !(1 << rail.0);
            self.sampler.exchange =
                Some(Exchange { channel, rail, step: 0, sent: None, bytes: 0, took: [0; SIZES.len()] });
            self.t.set_timer(channel, Timer::Sample, now + self.config.sampling_time_max);
        }
        let Some(Exchange { channel: asked, rail, step, sent: None, .. }) = self.sampler.exchange else { return };
        if asked != channel {
            return;
        }
        let len = self.sample_bytes(rail, step);
        let at = MemRef { region: RegionId::POOL, offset: 0 };
        let payload = if len == 0 { Span::EMPTY } else { Span { of: SpanOf::At(at), offset: 0, len } };
        let nonce = NONCE | self.sampler.count;
        if self.send_frame(now, channel, rail, Body::Probe(Probe { nonce, answer: false }), payload, out) {
            let bytes = self.paths.figures[usize::from(rail.0)].bytes;
            if let Some(exchange) = &mut self.sampler.exchange {
                (exchange.sent, exchange.bytes) = (Some(now), bytes);
            }
        }
    }

    /// A probe has come that is a sample of the peer's. Two that ask at once are in each other's way: the
    /// higher rank waits until the other is through.
    pub(super) fn defer_samples(&mut self, now: Time, channel: u32, nonce: u64) {
        let is_later = self.config.rank > self.t.channels.at(channel).peer;
        if nonce & NONCE == 0 || !is_later || self.sampler.is_done() {
            return;
        }
        if let Some(exchange) = self.sampler.exchange.take_if(|exchange| exchange.channel == channel) {
            self.sampler.wanted |= 1 << exchange.rail.0;
            self.sampler.count += 1;
        }
        if self.sampler.exchange.is_none() {
            self.sampler.deferred = Some(channel);
            self.t.set_timer(channel, Timer::Sample, now + DEFER);
        }
    }

    fn sample_bytes(&self, rail: RailId, step: usize) -> u64 {
        let most = self.paths.rails[usize::from(rail.0)].segment_bytes_max;
        SIZES[step].min(most.into()).min(self.config.pool_bytes().unwrap_or(0))
    }

    /// A probe has been answered.
    pub(super) fn probe_answered(&mut self, now: Time, channel: u32, nonce: u64) {
        let Some(exchange) = &mut self.sampler.exchange else { return };
        let due = NONCE | self.sampler.count;
        let (Some(sent), true) = (exchange.sent, exchange.channel == channel && nonce == due) else { return };
        exchange.took[exchange.step] = (now - sent).0;
        exchange.sent = None;
        self.sampler.count += 1;
        let Exchange { rail, step, bytes, took, .. } = *exchange;
        if self.paths.figures[usize::from(rail.0)].bytes != bytes {
            // Something else was under way: it will be measured by that.
            return self.end_sample(channel);
        }
        if step + 1 < SIZES.len() {
            exchange.step += 1;
            self.activate(channel);
            return;
        }
        let [_, empty, small, large] = took;
        let more = self.sample_bytes(rail, 3) - self.sample_bytes(rail, 2);
        let rate = if large > small && more > 0 { Rate::of(more, large - small) } else { Rate::NONE };
        self.sampled(rail, Sampled { latency: Nanos(empty / 2), bytes_per_second: rate.bytes_per_second() });
        self.end_sample(channel);
    }

    /// The time of a rail that is asked is over. What it has told until then is told; and as fast as it would
    /// have had to be to answer in time it is not.
    pub(super) fn sample_timed_out(&mut self, channel: u32) {
        if let Some(Exchange { rail, step, took, .. }) =
            self.sampler.exchange.filter(|exchange| exchange.channel == channel && exchange.step > 1)
        {
            let time_max = self.config.sampling_time_max.0;
            let rate = Rate::of(self.sample_bytes(rail, step), time_max);
            let sampled = Sampled { latency: Nanos(took[1] / 2), bytes_per_second: rate.bytes_per_second() };
            self.sampled(rail, sampled);
        }
        self.end_sample(channel);
    }

    /// A rail has told what it can.
    fn sampled(&mut self, rail: RailId, sampled: Sampled) {
        self.paths.figures[usize::from(rail.0)].sampled = Some(sampled);
        let mut walk = self.t.channels.walk();
        while let Some(channel) = self.t.channels.step(&mut walk) {
            self.paths.begin_path(channel, rail);
        }
    }

    /// A channel's rail is not asked any more: it has answered, the time is over, or the channel is.
    pub(super) fn end_sample(&mut self, channel: u32) {
        let is_asked = self.sampler.exchange.is_some_and(|exchange| exchange.channel == channel);
        if is_asked || self.sampler.deferred == Some(channel) {
            self.sampler.exchange = self.sampler.exchange.filter(|_| !is_asked);
            self.sampler.deferred = None;
            self.t.cancel_timer(channel, Timer::Sample);
            self.activate(channel);
        }
    }
}
