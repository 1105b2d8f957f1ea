//! Rails that move: a device that was opened again, a port with another LID or GID. Rule F-12.
//!
//! Where only one end has moved, it calls, and its call says where it is. Where both have, neither finds the
//! other: so the new address goes over every other subchannel that stands, and over each that comes to stand
//! from then on, since what it replaces was published once, before the start. What an address means only
//! rails know; here it is kept and told.

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
    /// A rail of this process is at another address than before: every peer that it reaches is told, now and
    /// whenever a subchannel to it comes to stand. The address that was set before is not told again.
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
                // Where the peer's CONNECT is still to come, all is told then.
                if self.t.sub(channel, by).link.state() == State::Ready {
                    self.owe_addresses(channel, by, 1 << rail.0);
                }
            }
        }
        Ok(())
    }

    /// A subchannel stands anew: what has moved since the start is told over it.
    pub(super) fn tell_addresses(&mut self, channel: u32, by: RailId) {
        if self.moved != 0 {
            self.owe_addresses(channel, by, self.moved);
        }
    }

    /// Notes rails to be told of. A rail that stands tells nothing of itself: it was found.
    fn owe_addresses(&mut self, channel: u32, by: RailId, moved: u64) {
        let reached = self.t.peers[self.t.channels.at(channel).peer.0 as usize].rails;
        let sub = self.t.sub(channel, by);
        sub.unannounced |= moved & reached & !(1 << by.0);
        if sub.unannounced != 0 {
            self.t.channels.at_mut(channel).tellers |= 1 << by.0;
            self.activate(channel);
        }
    }

    /// One address after the other over each subchannel, behind whatever unsequenced frame it has (L-3).
    pub(super) fn pump_addresses(&mut self, now: Time, channel: u32, out: &mut Actions) {
        if self.t.channels.at(channel).state() == ChannelState::Leaving {
            // Nothing follows the goodbye (G-7).
            return;
        }
        for by in rails_of(self.t.channels.at(channel).tellers) {
            let sub = self.t.sub(channel, by);
            let (untold, is_ready) = (sub.unannounced, sub.is_ready());
            let Some(rail) = rails_of(untold).next() else {
                // The connection went before everything was told.
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
            // Else, when the frame is through or the connection stands, it is looked at again.
        }
    }

    /// The peer tells where one of its rails is.
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
