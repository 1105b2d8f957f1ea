//! Frames that belong to a channel and not to a request: opening and closing subchannels, CONNECT,
//! acknowledgments, probes, BYE.

use super::Endpoint;
use super::action::{Action, Span, SpanOf};
use super::channel::{Channel, ChannelState};
use super::op::OpKind;
use super::packets::{Actions, STEP, Step};
use super::timer::Timer;
use crate::ids::RailId;
use crate::mem::{MemRef, RegionId};
use crate::paths::{Answered, DEFER, Question};
use crate::rail::rails_of;
use crate::rel::link::State;
use crate::time::Time;
use crate::wire::{self, Body, Connect, Probe};

impl Endpoint<'_> {
    /// Subchannels to open and close, and the CONNECT that is sent first on each (G-1, L-3).
    pub(super) fn pump_connections(&mut self, now: Time, channel: u32, out: &mut Actions) -> Step {
        let &Channel { peer, dial_pending, close_pending, connect_pending, abort_pending, .. } =
            self.t.channels.at(channel);
        for rail in rails_of(dial_pending | close_pending | connect_pending | abort_pending) {
            let index = rail.0;
            if out.len() + STEP > out.capacity() {
                return Step::Sent;
            }
            let slot = self.t.channels.at_mut(channel);
            if slot.abort_pending >> index & 1 == 1 {
                slot.abort_pending &= !(1 << index);
                let _ = out.push(Action::Abort { peer, rail });
            }
            // At most one more action: there is room for it.
            let slot = self.t.channels.at_mut(channel);
            if slot.close_pending >> index & 1 == 1 {
                slot.close_pending &= !(1 << index);
                let _ = out.push(Action::Disconnect { peer, rail });
            } else if slot.dial_pending >> index & 1 == 1 {
                slot.dial_pending &= !(1 << index);
                slot.callers |= u64::from(slot.is_over()) << index;
                let sub = self.t.sub(channel, rail);
                if sub.link.state() == State::Down {
                    sub.link.dial();
                    let _ = out.push(Action::Connect { peer, rail });
                }
            } else {
                let sub = self.t.sub(channel, rail);
                if sub.is_up() && !sub.connect_sent {
                    let body = Body::Connect(Connect {
                        window: self.config.window,
                        eager_bytes_max: self.config.eager_bytes_max,
                        block_bytes: self.config.block_bytes,
                        requests_max: self.config.requests_per_peer,
                        rail: index,
                        connection: sub.link.pair().mine,
                        first_number: self.config.first_number,
                        answer: sub.link.state() == State::Ready, // G-2
                    });
                    if self.send_frame(now, channel, rail, body, Span::EMPTY, out) {
                        self.t.sub(channel, rail).connect_sent = true;
                        self.t.channels.at_mut(channel).connect_pending &= !(1 << index);
                        self.refresh(channel, rail);
                    }
                }
            }
        }
        Step::Idle
    }

    /// Probes of silent rails (F-11).
    pub(super) fn pump_questions(&mut self, now: Time, channel: u32, out: &mut Actions) {
        for rail in rails_of(self.t.channels.at(channel).questions) {
            let sub = *self.t.sub(channel, rail);
            let nonce = sub.asked.map(|asked| asked.nonce()).filter(|_| sub.is_ready());
            if let Some(nonce) = nonce {
                if out.len() + STEP > out.capacity() {
                    return self.activate(channel);
                }
                if !self.send_frame(now, channel, rail, Body::Probe(Probe { nonce, answer: false }), Span::EMPTY, out) {
                    // Behind the frame that the rail has.
                    continue;
                }
            }
            self.t.channels.at_mut(channel).questions &= !(1 << rail.0);
        }
    }

    /// Acknowledgments, limits and probes that no packet has carried (A-2, C-4, L-3).
    pub(super) fn pump_frames(&mut self, now: Time, channel: u32, out: &mut Actions) {
        let slot = self.t.channels.at(channel);
        if slot.probe_answers == 0 && !slot.probe_due && !slot.ack.is_due() {
            return;
        }
        let ready = self.paths.ready(channel);
        for rail in rails_of(ready) {
            if out.len() + STEP > out.capacity() {
                self.activate(channel);
                return;
            }
            let slot = self.t.channels.at(channel);
            let body = if slot.probe_answers >> rail.0 & 1 == 1 {
                // The answer returns on the rail of the probe (G-6).
                let nonce = self.t.subs[self.t.sub_index(channel, rail)].probe_nonce;
                Body::Probe(Probe { nonce, answer: true })
            } else if slot.probe_due {
                Body::Probe(Probe { nonce: slot.last_received.0, answer: false }) // G-9
            } else if !slot.ack.is_due() {
                if slot.probe_answers == 0 {
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
            let (answers, asks) = match body {
                Body::Probe(Probe { answer, .. }) => (answer, !answer),
                _ => (false, false),
            };
            if self.send_frame(now, channel, rail, body, Span::EMPTY, out) {
                self.stats.acks_explicit += u64::from(is_ack);
                let slot = self.t.channels.at_mut(channel);
                slot.probe_answers &= !(u64::from(answers) << rail.0);
                slot.probe_due &= !asks;
            }
        }
    }

    /// Shutdown: when all is acknowledged, BYE on every subchannel; when BYE is sent, the end (G-7).
    pub(super) fn pump_goodbye(&mut self, now: Time, channel: u32, out: &mut Actions) {
        let slot = self.t.channels.at(channel);
        if !matches!(slot.state(), ChannelState::Closing | ChannelState::Leaving) {
            return;
        }
        let leaving = slot.state() == ChannelState::Leaving;
        let busy = slot.sent.iter().any(|lane| !lane.is_empty())
            || [&slot.control, &slot.ordered, &slot.requests, &slot.bulk, &slot.one_sided]
                .iter()
                .any(|list| !list.is_empty());
        if !leaving && (busy || self.has_transfers(channel)) {
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
            let sub = *self.t.sub(channel, RailId(rail));
            if !sub.bye_sent {
                out_yet = false;
                if out.len() + STEP > out.capacity() {
                    self.activate(channel);
                } else if self.send_frame(now, channel, RailId(rail), Body::Bye, Span::EMPTY, out) {
                    self.t.sub(channel, RailId(rail)).bye_sent = true;
                    let slot = self.t.channels.at_mut(channel);
                    if slot.state() == ChannelState::Closing {
                        slot.enter(ChannelState::Leaving);
                    }
                }
            } else if sub.frame_posted {
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
        let has_no_path = self.t.channels.at(channel).no_path.is_some();
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
            let op = self.t.ops.at(op);
            let moves = match op.kind() {
                OpKind::Send => !op.is_through(),
                OpKind::Recv | OpKind::Part => !op.completed,
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
        if let Some(question) = self.paths.question(channel) {
            self.ask_question(now, channel, &question, out);
        }
    }

    fn ask_question(&mut self, now: Time, channel: u32, question: &Question, out: &mut Actions) {
        let &Question { rail, len, nonce, is_first } = question;
        if is_first {
            self.t.set_timer(channel, Timer::Sample, now + self.config.sampling_time_max);
        }
        let at = MemRef { region: RegionId::POOL, offset: 0 };
        let payload = if len == 0 { Span::EMPTY } else { Span { of: SpanOf::At(at), offset: 0, len } };
        if self.send_frame(now, channel, rail, Body::Probe(Probe { nonce, answer: false }), payload, out) {
            self.paths.asked(now);
        }
    }

    /// A probe of the peer has arrived; it may interfere with ours.
    pub(super) fn defer_samples(&mut self, now: Time, channel: u32, nonce: u64) {
        let is_later = self.source > self.t.channels.at(channel).source;
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
