//! Rails that move: a device that was reopened, a port with another LID or GID. Rule F-12.
//!
//! If only one end has moved, it dials, and its connection carries the new address. If both have moved,
//! neither can reach the other: so the new address is sent over every other subchannel that is up, and over
//! each that comes up later, since the original address was published once, before the start. Only rails
//! interpret addresses; this module stores and sends them.

use super::action::{Arrival, Span};
use super::channel::ChannelState;
use super::packets::Actions;
use super::pump::STEP;
use super::{Endpoint, SetAddressError};
use crate::ids::{PeerId, RailId};
use crate::rail::rails_of;
use crate::rel::link::State;
use crate::time::Time;
use crate::wire::{Address, AddressText, Body};

impl Endpoint<'_> {
    /// Sets the new address of a rail of this process: every peer that it reaches is notified, now and
    /// whenever a subchannel to it comes up. Setting the same address again has no effect.
    ///
    /// # Errors
    /// [`SetAddressError`]; nothing has happened then.
    pub fn set_address(&mut self, rail: RailId, text: &[u8]) -> Result<(), SetAddressError> {
        if usize::from(rail.0) >= self.paths.rails.len() {
            return Err(SetAddressError::NoSuchRail(rail));
        }
        let text = AddressText::new(text).map_err(SetAddressError::Address)?;
        let known = &mut self.t.addresses[usize::from(rail.0)];
        if *known == text {
            return Ok(());
        }
        *known = text;
        self.moved |= 1 << rail.0;
        for peer in 0..self.t.peers.len() as u32 {
            self.call_unnotified(self.latest, PeerId(peer), 1 << rail.0);
        }
        let mut walk = self.t.channels.walk();
        while let Some(channel) = self.t.channels.step(&mut walk) {
            if self.t.channels.at(channel).is_over() {
                continue;
            }
            for by in (0..self.paths.rails.len() as u8).map(RailId) {
                // If the peer's CONNECT is pending, its arrival triggers the updates.
                if self.t.sub(channel, by).link.state() == State::Ready {
                    self.owe_addresses(channel, by, 1 << rail.0);
                }
            }
        }
        Ok(())
    }

    /// A subchannel is up again: announces the moves since the start over it.
    pub(super) fn tell_addresses(&mut self, channel: u32, by: RailId) {
        if self.moved != 0 {
            self.owe_addresses(channel, by, self.moved);
        }
    }

    /// Marks address updates as pending. A rail that is up does not announce itself: the peer has its
    /// address.
    fn owe_addresses(&mut self, channel: u32, by: RailId, moved: u64) {
        let reached = self.t.peers[self.t.channels.at(channel).peer.0 as usize].rails;
        let sub = self.t.sub(channel, by);
        sub.unannounced |= moved & reached & !(1 << by.0);
        if sub.unannounced != 0 {
            self.t.channels.at_mut(channel).tellers |= 1 << by.0;
            self.activate(channel);
        }
    }

    /// Sends one address after the other over each subchannel, behind its current unsequenced frame (L-3).
    pub(super) fn pump_addresses(&mut self, now: Time, channel: u32, out: &mut Actions) {
        if self.t.channels.at(channel).state() == ChannelState::Leaving {
            // Nothing follows BYE (G-7).
            return;
        }
        for by in rails_of(self.t.channels.at(channel).tellers) {
            let sub = self.t.sub(channel, by);
            let (untold, is_ready) = (sub.unannounced, sub.is_ready());
            let Some(rail) = rails_of(untold).next() else {
                // The connection ended before everything was announced.
                self.t.channels.at_mut(channel).tellers &= !(1 << by.0);
                continue;
            };
            if out.len() + STEP > out.capacity() {
                return self.activate(channel);
            }
            let text = self.t.addresses[usize::from(rail.0)];
            let body = Body::Address(Address { rail: rail.0, text });
            if is_ready && self.send_frame(now, channel, by, body, Span::EMPTY, out) {
                self.t.sub(channel, by).unannounced &= !(1 << rail.0);
                self.t.channels.at_mut(channel).tellers &= !(u64::from(untold.is_power_of_two()) << by.0);
            }
            // Otherwise it is checked again when the frame is complete or the connection is up.
        }
    }

    /// The peer announces the address of one of its rails.
    pub(super) fn arrive_address(&mut self, now: Time, channel: u32, address: &Address) -> Arrival {
        let meets = |(_, sub): &(u8, &super::channel::Sub)| sub.link.was_met() && sub.peer_rail == address.rail;
        let found = (0..self.paths.rails.len() as u8).zip(self.t.subs_of(channel).iter()).find(meets);
        let Some(rail) = found.map(|(rail, _)| RailId(rail)) else {
            self.stats.stale_dropped += 1;
            return Arrival::Done;
        };
        let waits = self.t.channels.at(channel).redials >> rail.0 & 1 == 1;
        let sub = self.t.sub(channel, rail);
        if waits && sub.link.state() == State::Down && now < sub.redial_at {
            sub.redial_at = now;
            self.set_redial_timer(channel);
        }
        Arrival::Address { rail }
    }
}
