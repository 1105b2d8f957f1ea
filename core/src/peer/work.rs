//! Pending work on the subchannels of a channel, rail by rail: connections to make and to end, and the
//! unsequenced frames that no message carries.
//!
//! Sets of rails instead of flags of subchannels, so that one look at a channel finds out whether there is
//! any ([`RailWork::is_pending`]).

use crate::ids::RailId;
use crate::rail::set::RailSet;

/// See the module. A rail is in `dial` or `redial`, never in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RailWork {
    /// To dial now.
    dial: RailSet,
    /// To dial at the subchannel's redial time.
    redial: RailSet,
    /// Up, and our CONNECT was not sent (G-1).
    connect: RailSet,
    /// To disconnect.
    disconnect: RailSet,
    /// Their connection is to be aborted.
    abort: RailSet,
    /// Of a channel that is over: a late connect of the peer, which BYE answers (G-10).
    late: RailSet,
    /// A FENCE or its answer is pending: the connection is dead at this end (F-3).
    pub fences: RailSet,
    /// A stall probe is pending (F-11).
    pub probes: RailSet,
    /// The peer's probe waits for its answer (G-6).
    pub answers: RailSet,
    /// An address update is pending (F-12).
    pub addresses: RailSet,
}

/// The next step with the connection of a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionStep {
    Disconnect,
    Dial,
    /// Send CONNECT, if that was not sent.
    Connect,
}

impl RailWork {
    /// Whether there is any. A redial waits for its time, a late connect for the peer: they are none.
    pub(crate) const fn is_pending(&self) -> bool {
        let connections = self.dial.0 | self.disconnect.0 | self.connect.0 | self.abort.0;
        connections | self.fences.0 | self.probes.0 | self.addresses.0 | self.answers.0 != 0
    }

    /// Rails with a step to take.
    pub(crate) const fn connections(&self) -> RailSet {
        self.dial.with(self.disconnect).with(self.connect).with(self.abort)
    }

    /// Whether a connection exists, is being made, or will be, as far as it is recorded here.
    pub(crate) const fn has_connections(&self) -> bool {
        self.disconnect.0 | self.late.0 | self.abort.0 | self.dial.0 | self.redial.0 != 0
    }

    /// Whether the rail's connection is to be aborted; from now on it is.
    pub(crate) const fn take_abort(&mut self, rail: RailId) -> bool {
        self.abort.take(rail)
    }

    /// Takes the next step of a rail. `is_over`: the channel is over, so a connection that is made is a late
    /// one.
    pub(crate) const fn take_step(&mut self, rail: RailId, is_over: bool) -> ConnectionStep {
        if self.disconnect.take(rail) {
            return ConnectionStep::Disconnect;
        }
        if !self.dial.take(rail) {
            return ConnectionStep::Connect;
        }
        if is_over {
            self.late.insert(rail);
        }
        ConnectionStep::Dial
    }

    // ---- what happens to a connection

    /// The channel is new: all these rails are dialled.
    pub(crate) const fn dial_all(&mut self, rails: RailSet) {
        self.dial = rails;
    }

    /// Our CONNECT was sent.
    pub(crate) const fn connect_sent(&mut self, rail: RailId) {
        self.connect.remove(rail);
    }

    /// A connection is up. `connect`: our CONNECT is to be sent on it.
    pub(crate) const fn up(&mut self, rail: RailId, connect: bool) {
        self.cancel_dial(rail);
        self.abort.remove(rail);
        if connect {
            self.connect.insert(rail);
        }
    }

    /// A connection is down.
    pub(crate) const fn down(&mut self, rail: RailId) {
        self.connect.remove(rail);
    }

    /// A connection that carried packets is lost, with an answer that it had to carry (G-6).
    pub(crate) const fn lost(&mut self, rail: RailId) {
        self.down(rail);
        self.answers.remove(rail);
    }

    /// It is to be aborted.
    pub(crate) const fn abort(&mut self, rail: RailId) {
        self.abort.insert(rail);
    }

    /// It is to be closed.
    pub(crate) const fn disconnect(&mut self, rail: RailId) {
        self.disconnect.insert(rail);
    }

    // ---- dialling

    pub(crate) const fn dial_now(&mut self, rail: RailId) {
        self.dial.insert(rail);
    }

    pub(crate) const fn dial_later(&mut self, rail: RailId) {
        self.redial.insert(rail);
    }

    /// The rail's redial time has come. `is_down`: no connection exists.
    pub(crate) const fn redial_due(&mut self, rail: RailId, is_down: bool) {
        self.redial.remove(rail);
        if is_down {
            self.dial.insert(rail);
        }
    }

    pub(crate) const fn cancel_dial(&mut self, rail: RailId) {
        self.dial.remove(rail);
        self.redial.remove(rail);
    }

    /// No rail is dialled any more.
    pub(crate) const fn cancel_dials(&mut self) {
        (self.dial, self.redial) = (RailSet::EMPTY, RailSet::EMPTY);
    }

    /// Whether a rail is to be dialled, now or later.
    pub(crate) const fn will_dial(&self) -> bool {
        self.dial.0 | self.redial.0 != 0
    }

    /// Whether the rail is to be dialled now.
    pub(crate) const fn dials(&self, rail: RailId) -> bool {
        self.dial.contains(rail)
    }

    /// Rails that wait for their redial time.
    pub(crate) const fn redials(&self) -> RailSet {
        self.redial
    }

    // ---- the end of the channel, and connections behind it

    /// The channel is over: of its work only the ends of connections remain.
    pub(crate) const fn end(&mut self) {
        self.cancel_dials();
        (self.connect, self.fences, self.probes) = (RailSet::EMPTY, RailSet::EMPTY, RailSet::EMPTY);
    }

    /// The channel is parked: of its work only the ends of connections remain.
    pub(crate) const fn park(&mut self) {
        self.end();
        (self.answers, self.addresses) = (RailSet::EMPTY, RailSet::EMPTY);
    }

    /// Rails whose connections are still to be closed.
    pub(crate) const fn is_closing(&self) -> bool {
        self.disconnect.0 | self.abort.0 != 0
    }

    /// The peer has made a new connection where one was to be closed: that one is over.
    pub(crate) const fn is_replaced(&mut self, rail: RailId) {
        self.disconnect.remove(rail);
        self.abort.remove(rail);
    }

    /// Rails with a late connect.
    pub(crate) const fn late(&self) -> RailSet {
        self.late
    }

    /// The peer has made a late connect: CONNECT and BYE are sent on it, no dial is needed.
    pub(crate) const fn late_connect(&mut self, rail: RailId) {
        self.late.insert(rail);
        self.connect.insert(rail);
        self.disconnect.remove(rail);
        self.abort.remove(rail);
        self.cancel_dial(rail);
    }

    /// A late connect has ended.
    pub(crate) const fn late_ended(&mut self, rail: RailId) {
        self.late.remove(rail);
        self.connect.remove(rail);
        self.disconnect.remove(rail);
    }

    /// Dials these rails, but not those with a late connect.
    pub(crate) const fn dial_late(&mut self, rails: RailSet) {
        self.dial = self.dial.with(rails.without(self.late));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAIL: RailId = RailId(3);
    const OTHER: RailId = RailId(63);

    #[test]
    fn steps_are_taken_once_and_in_order() {
        let mut work = RailWork::default();
        work.dial_all(RailSet(1 << RAIL.0));
        work.disconnect(RAIL);
        work.abort(RAIL);
        assert_eq!(work.connections(), RailSet(1 << RAIL.0));
        assert!(work.take_abort(RAIL) && !work.take_abort(RAIL));
        assert_eq!(work.take_step(RAIL, false), ConnectionStep::Disconnect);
        assert_eq!(work.take_step(RAIL, false), ConnectionStep::Dial);
        assert_eq!(work.take_step(RAIL, false), ConnectionStep::Connect);
        assert!(!work.is_pending() && !work.has_connections());
    }

    /// G-10: a connection that a channel makes when it is over is a late one.
    #[test]
    fn dial_after_the_channel_end_is_a_late_dial() {
        let mut work = RailWork::default();
        work.dial_now(RAIL);
        work.dial_now(OTHER);
        assert_eq!(work.take_step(RAIL, true), ConnectionStep::Dial);
        assert_eq!(work.take_step(OTHER, false), ConnectionStep::Dial);
        assert_eq!(work.late(), RailSet(1 << RAIL.0));
        work.dial_late(RailSet(1 << RAIL.0 | 1 << OTHER.0));
        assert!(!work.dials(RAIL) && work.dials(OTHER));
        work.late_ended(RAIL);
        assert!(work.late().is_empty());
    }

    /// F-8: a pause ends by its time, or by a connection that the peer has made.
    #[test]
    fn redials() {
        let mut work = RailWork::default();
        work.dial_later(RAIL);
        assert!(work.will_dial() && !work.is_pending() && !work.dials(RAIL));
        work.redial_due(RAIL, true);
        assert!(work.dials(RAIL) && work.redials().is_empty());
        work.dial_later(OTHER);
        work.redial_due(OTHER, false);
        assert!(!work.dials(OTHER), "a connection exists already");
        work.up(RAIL, true);
        assert!(!work.will_dial());
        assert_eq!(work.take_step(RAIL, false), ConnectionStep::Connect);
        work.connect_sent(RAIL);
        assert!(!work.is_pending());
    }

    #[test]
    fn channel_end_keeps_only_connection_closes() {
        let mut work = RailWork::default();
        work.dial_all(RailSet(0b111));
        work.dial_later(OTHER);
        work.up(RailId(0), true);
        work.fences.insert(RAIL);
        work.probes.insert(RAIL);
        work.disconnect(RAIL);
        work.abort(OTHER);
        work.end();
        assert_eq!(work.connections(), RailSet(1 << RAIL.0 | 1 << OTHER.0));
        assert!(!work.will_dial());
    }

    /// Each kind of work is found by the one look.
    #[test]
    fn one_look_finds_all() {
        let cases: [fn(&mut RailWork); 8] = [
            |work| work.dial_now(RAIL),
            |work| work.up(RAIL, true),
            |work| work.disconnect(RAIL),
            |work| work.abort(RAIL),
            |work| work.fences.insert(RAIL),
            |work| work.probes.insert(RAIL),
            |work| work.answers.insert(RAIL),
            |work| work.addresses.insert(RAIL),
        ];
        for add in cases {
            let mut work = RailWork::default();
            add(&mut work);
            assert!(work.is_pending(), "{work:?}");
        }
    }
}
