//! Signs of life: when the peer was last received, which probes are pending, and since when no rail leads to
//! it (F-9, F-11, F-13, G-9).

use crate::api::event::RailFault;
use crate::ids::RailId;
use crate::time::{Nanos, Time};

/// Of a peer, over all rails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    /// When a packet of the peer last arrived.
    pub last_received: Time,
    /// When the last keepalive probe was sent (F-13).
    probed: Time,
    /// A probe for an overdue acknowledgment is pending (G-9).
    pub probe_due: bool,
    /// Since when no rail is ready.
    outage: Option<Outage>,
    /// The end of that time has been put off, since this process was suspended.
    is_put_off: bool,
}

/// What has happened since the last rail was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    pub since: Time,
    /// The rail that failed last, and how.
    pub rail: RailId,
    pub fault: RailFault,
}

impl Silence {
    /// Of a channel that is opened now.
    pub(crate) const fn since(now: Time) -> Silence {
        Silence { last_received: now, probed: Time(0), probe_due: false, outage: None, is_put_off: false }
    }

    /// A packet has arrived by the express path, which records no time: `latest` is the last one known.
    pub(crate) fn received_by(&mut self, latest: Time) {
        self.last_received = self.last_received.max(latest);
    }

    /// A keepalive probe is sent.
    pub(crate) const fn probed(&mut self, now: Time) {
        self.probed = now;
    }

    /// When the peer is to be probed, unless a packet arrives before: pauses double while it is silent.
    pub(crate) fn probe_at(&self, keepalive: Nanos) -> Time {
        if self.probed > self.last_received {
            self.probed + keepalive.max(self.probed - self.last_received)
        } else {
            self.last_received + keepalive
        }
    }

    // ---- outages

    pub(crate) const fn outage(&self) -> Option<Outage> {
        self.outage
    }

    /// A rail has failed and none is ready; returns whether one was until now.
    pub(crate) fn outage_begins(&mut self, now: Time, rail: RailId, fault: RailFault) -> bool {
        let is_first = self.outage.is_none();
        let since = self.outage.map_or(now, |before| before.since);
        self.outage = Some(Outage { since, rail, fault });
        is_first
    }

    /// A rail is ready; returns whether none was until now.
    pub(crate) const fn outage_ends(&mut self) -> bool {
        self.is_put_off = false;
        self.outage.take().is_some()
    }

    /// Puts the end of an outage off, once; `false`: it was already.
    pub(crate) const fn put_off(&mut self) -> bool {
        let is_first = !self.is_put_off;
        self.is_put_off = true;
        is_first
    }
}

/// A stall probe on a rail (F-11).
#[derive(Clone, Copy, Debug)]
pub(crate) struct StallProbe {
    /// When.
    pub at: Time,
    /// Time of the first one.
    pub since: Time,
    /// When the answer came.
    pub answered: Option<Time>,
    /// Number of repeats: the peer was active elsewhere and did not answer here.
    pub repeats: u8,
    /// It is a keepalive probe: sent whether or not the rail has work (F-13).
    pub keeps_alive: bool,
    /// The other rails were probed at the same time.
    pub is_common: bool,
}

/// In the nonces of stall probes. Those of samples have the bit above it.
pub(crate) const NONCE: u64 = 1 << 62;

impl StallProbe {
    /// The first probe.
    pub(crate) const fn first(now: Time) -> StallProbe {
        StallProbe { at: now, since: now, answered: None, repeats: 0, keeps_alive: false, is_common: false }
    }

    /// The nonce of its probe.
    pub(crate) const fn nonce(&self) -> u64 {
        NONCE | self.at.0 & (NONCE - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEPALIVE: Nanos = Nanos(100);

    /// F-13: pauses double while nothing arrives.
    #[test]
    fn a_silent_peer_is_probed_less_and_less() {
        let mut silence = Silence::since(Time(1_000));
        assert_eq!(silence.probe_at(KEEPALIVE), Time(1_100));
        silence.probed(Time(1_100));
        assert_eq!(silence.probe_at(KEEPALIVE), Time(1_200));
        silence.probed(Time(1_200));
        assert_eq!(silence.probe_at(KEEPALIVE), Time(1_400));
        silence.received_by(Time(1_250));
        silence.received_by(Time(1_150));
        assert_eq!(silence.probe_at(KEEPALIVE), Time(1_350));
    }

    /// F-9: the time counts from the first failure; the last one is reported.
    #[test]
    fn an_outage_has_a_beginning_and_a_last_fault() {
        let mut silence = Silence::since(Time(0));
        assert!(silence.outage_begins(Time(5), RailId(0), RailFault::Closed));
        assert!(!silence.outage_begins(Time(9), RailId(1), RailFault::TimedOut));
        let outage = Outage { since: Time(5), rail: RailId(1), fault: RailFault::TimedOut };
        assert_eq!(silence.outage(), Some(outage));
        assert!(silence.put_off() && !silence.put_off());
        assert!(silence.outage_ends() && !silence.outage_ends());
        assert!(silence.put_off(), "each outage may be put off once");
    }
}
