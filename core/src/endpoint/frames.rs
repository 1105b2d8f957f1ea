//! Frames that belong to a channel and not to a request: opening and closing subchannels, CONNECT,
//! acknowledgments, probes, BYE.

use super::Endpoint;
use super::packets::{Actions, STEP, Step};
use super::timer::Timer;
use crate::api::action::{Action, Span, SpanOf};
use crate::ids::RailId;
use crate::mem::{MemRef, RegionId};
use crate::op::OpKind;
use crate::paths::{Answered, DEFER, SampleProbe};
use crate::peer::{Channel, ChannelState, ConnectionStep, Sub};
use crate::rail::rails_of;
use crate::rel::link::State;
use crate::time::Time;
use crate::wire::{self, Body, Connect, Probe};

impl Endpoint<'_> {
    /// Subchannels to open and close, and the CONNECT that is sent first on each (G-1, L-3).
    pub(super) fn pump_connections(&mut self, now: Time, channel: u32, out: &mut Actions) -> Step {
        let &Channel { peer, work, .. } = self.channel(channel);
        for rail in work.connections().iter() {
            if out.len() + STEP > out.capacity() {
                return Step::Sent;
            }
            let slot = self.channel_mut(channel);
            if slot.work.take_abort(rail) {
                let _ = out.push(Action::Abort { peer, rail });
            }
            // At most one more action: there is room for it.
            let is_over = slot.is_over();
            match slot.work.take_step(rail, is_over) {
                ConnectionStep::Disconnect => {
                    let dials = slot.work.dials(rail) && !is_over;
                    let _ = out.push(Action::Disconnect { peer, rail });
                    if dials {
                        self.activate(channel);
                    }
                }
                ConnectionStep::Dial => {
                    let sub = self.sub_mut(channel, rail);
                    if sub.link.state() == State::Down {
                        sub.link.dial();
                        let _ = out.push(Action::Connect { peer, rail });
                    }
                }
                ConnectionStep::Connect => self.send_connect(now, channel, rail, out),
            }
        }
        Step::Idle
    }

    /// Sends CONNECT, if it was not sent on this connection and the rail has room for it.
    fn send_connect(&mut self, now: Time, channel: u32, rail: RailId, out: &mut Actions) {
        let peer = self.channel(channel).peer;
        let first_number = self.first_number(peer).0;
        let sub = self.sub_mut(channel, rail);
        if !sub.is_up() || sub.connect_sent {
            return;
        }
        let body = Body::Connect(Connect {
            connection: sub.link.pair().mine,
            answer: sub.link.state() == State::Ready, // G-2
            window: self.config.window,
            eager_bytes_max: self.config.eager_bytes_max,
            block_bytes: self.config.block_bytes,
            requests_max: self.config.requests_per_peer,
            rail: rail.0,
            first_number,
            parked: self.t.channels.at(channel).park.times,
        });
        if self.send_frame(now, channel, rail, body, Span::EMPTY, out) {
            self.sub_mut(channel, rail).connect_sent = true;
            self.channel_mut(channel).park.is_announced = true;
            self.channel_mut(channel).work.connect_sent(rail);
            self.refresh(channel, rail);
        }
    }

    /// Probes of silent rails (F-11).
    pub(super) fn pump_stall_probes(&mut self, now: Time, channel: u32, out: &mut Actions) {
        for rail in self.channel(channel).work.probes.iter() {
            let sub = self.sub(channel, rail);
            let nonce = sub.stall_probe.map(|stall_probe| stall_probe.nonce()).filter(|_| sub.is_ready());
            if let Some(nonce) = nonce {
                if out.len() + STEP > out.capacity() {
                    return self.activate(channel);
                }
                if !self.send_frame(now, channel, rail, Body::Probe(Probe { nonce, answer: false }), Span::EMPTY, out) {
                    // Behind the frame that the rail has.
                    continue;
                }
            }
            self.channel_mut(channel).work.probes.remove(rail);
        }
    }

    /// Acknowledgments, limits and probes that no packet has carried (A-2, C-4, L-3).
    pub(super) fn pump_frames(&mut self, now: Time, channel: u32, out: &mut Actions) {
        let slot = self.channel(channel);
        if slot.work.answers.is_empty() && !slot.silence.probe_due && !slot.ack.is_due() {
            return;
        }
        let ready = self.paths.ready(channel);
        for rail in rails_of(ready) {
            if out.len() + STEP > out.capacity() {
                self.activate(channel);
                return;
            }
            let slot = self.channel(channel);
            let body = if slot.work.answers.contains(rail) {
                // The answer returns on the rail of the probe (G-6).
                let nonce = self.sub(channel, rail).probe_nonce;
                Body::Probe(Probe { nonce, answer: true })
            } else if slot.silence.probe_due {
                Body::Probe(Probe { nonce: slot.silence.last_received.0, answer: false }) // G-9
            } else if !slot.ack.is_due() {
                if slot.work.answers.is_empty() {
                    return;
                }
                continue;
            } else if slot.ack.is_pending() {
                let (ordered_beyond, unordered_beyond) = self.beyond(channel);
                Body::Ack(wire::Ack { ordered_beyond, unordered_beyond })
            } else {
                Body::Credit // C-4
            };
            let is_ack = matches!(body, Body::Ack(_) | Body::Credit);
            if is_ack && self.t.channels.at(channel).ring.is_some_and(|ring| ring != rail) {
                continue; // S-12
            }
            let (answers, is_probe) = match body {
                Body::Probe(Probe { answer, .. }) => (answer, !answer),
                _ => (false, false),
            };
            if self.send_frame(now, channel, rail, body, Span::EMPTY, out) {
                self.stats.acks_explicit += u64::from(is_ack);
                let slot = self.channel_mut(channel);
                if answers {
                    slot.work.answers.remove(rail);
                }
                slot.silence.probe_due &= !is_probe;
            }
        }
    }

    /// Shutdown: when all is acknowledged, BYE on every subchannel; when BYE is sent, the end (G-7).
    pub(super) fn pump_bye(&mut self, now: Time, channel: u32, out: &mut Actions) {
        let slot = self.channel(channel);
        if !matches!(slot.state(), ChannelState::Closing | ChannelState::Leaving) {
            return;
        }
        let leaving = slot.state() == ChannelState::Leaving;
        if !leaving && (!slot.is_quiet() || self.has_transfers(channel)) {
            return;
        }
        let ready = self.paths.ready(channel);
        if !leaving && self.is_early(channel, ready) {
            // Wait until a rail comes back, the peer's CONNECT arrives, or the peer is given up (F-9, F-11,
            // G-4).
            return self.watch_rails(now, channel);
        }
        let mut out_yet = true;
        for rail in 0..self.paths.rails.len() as u8 {
            if ready >> rail & 1 == 0 {
                continue;
            }
            let &Sub { bye_sent, frame_posted, .. } = self.sub(channel, RailId(rail));
            if !bye_sent {
                out_yet = false;
                if out.len() + STEP > out.capacity() {
                    self.activate(channel);
                } else if self.send_frame(now, channel, RailId(rail), Body::Bye, Span::EMPTY, out) {
                    self.t.sub(channel, RailId(rail)).bye_sent = true;
                    let slot = self.channel_mut(channel);
                    if slot.state() == ChannelState::Closing {
                        slot.enter(ChannelState::Leaving);
                    }
                }
            } else if frame_posted {
                out_yet = false;
            }
        }
        if out_yet {
            // If no rail is left that BYE was for, the last of them may still have held it.
            self.end_left(now, channel, leaving && ready == 0);
        }
    }

    /// Whether it is too early for BYE: no rail is ready, and one is being opened or comes back; or a
    /// lossless rail is up without the peer's CONNECT. The peer may have ours already, and would treat an end
    /// without BYE as a failure.
    fn is_early(&mut self, channel: u32, ready: u64) -> bool {
        let has_no_path = self.channel(channel).silence.outage().is_some();
        let mut states = self.t.subs_of(channel).iter().map(|sub| sub.link.state());
        if ready == 0 {
            return has_no_path || states.any(|state| state != State::Down);
        }
        self.paths.rails.iter().zip(states).any(|(facts, state)| facts.caps.lossless && state == State::Up)
    }

    /// Whether a message to the peer is incomplete, or one of the peer's is on its way into a receive. Scans
    /// every operation: for the end of a channel only.
    fn has_transfers(&self, channel: u32) -> bool {
        let mut ops = self.t.ops_of(channel);
        while let Some(op) = self.t.next_of(&mut ops) {
            let op = self.op(op);
            let moves = match op.kind() {
                OpKind::Send => !op.is_through(),
                // The answer to a put waits for the caller, who takes its event.
                OpKind::Recv | OpKind::Part | OpKind::ServePut => !op.completed,
                _ => false,
            };
            if moves {
                return true;
            }
        }
        false
    }

    /// Sends the pending probe to a rail whose latency and rate are being sampled (P-12).
    #[inline]
    pub(super) fn pump_samples(&mut self, now: Time, channel: u32, out: &mut Actions) {
        if let Some(sample_probe) = self.paths.sample_probe(channel) {
            self.send_sample_probe(now, channel, &sample_probe, out);
        }
    }

    fn send_sample_probe(&mut self, now: Time, channel: u32, sample_probe: &SampleProbe, out: &mut Actions) {
        let &SampleProbe { rail, len, nonce, is_first } = sample_probe;
        if is_first {
            self.t.set_timer(channel, Timer::Sample, now + self.config.sampling_time_max);
        }
        let at = MemRef { region: RegionId::POOL, offset: 0 };
        let payload = if len == 0 { Span::EMPTY } else { Span { of: SpanOf::At(at), offset: 0, len } };
        if self.send_frame(now, channel, rail, Body::Probe(Probe { nonce, answer: false }), payload, out) {
            self.paths.sample_sent(now);
        }
    }

    /// A probe of the peer has arrived; it may interfere with ours.
    pub(super) fn defer_samples(&mut self, now: Time, channel: u32, nonce: u64) {
        let is_later = self.source > self.channel(channel).source;
        if self.paths.defer_samples(channel, is_later, nonce) {
            self.t.set_timer(channel, Timer::Sample, now + DEFER);
        }
    }

    /// A probe has been answered.
    pub(super) fn probe_answered(&mut self, now: Time, channel: u32, nonce: u64) {
        match self.paths.answered(now, channel, nonce) {
            Answered::Unmoved => {}
            Answered::Next => self.activate(channel),
            Answered::Over(learnt) => self.sample_is_over(channel, learnt),
        }
    }

    /// The sample of a rail has timed out.
    pub(super) fn sample_timed_out(&mut self, channel: u32) {
        let learnt = self.paths.sample_timed_out(channel);
        self.sample_is_over(channel, learnt);
    }

    fn sample_is_over(&mut self, channel: u32, learnt: Option<RailId>) {
        if let Some(rail) = learnt {
            let mut walk = self.t.channels.walk();
            while let Some(channel) = self.t.channels.step(&mut walk) {
                self.paths.begin_path(channel, rail);
            }
        }
        self.end_sample(channel);
    }
}
