//! When to acknowledge: on any packet of the reverse direction (piggyback), explicitly after so many packets
//! or bytes, at once where the peer requests it, and at the latest after a delay (resilient-2010, IV.A; rules
//!

use crate::time::{Nanos, Time};

/// The settings.
#[derive(Clone, Copy, Debug)]
pub struct AckPolicy {
    /// Packets after which an explicit acknowledgment is sent.
    pub packets: u16,
    /// Payload bytes after which one is sent.
    pub bytes: u32,
    /// Time after which one is sent.
    pub delay: Nanos,
}

/// What is received and not yet acknowledged on one channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckState {
    packets: u16,
    /// 0 or 1: as wide as its neighbour, so that both are compared at once.
    due: u16,
    bytes: u32,
    /// When the last packet with an acknowledgment went.
    sent_at: Time,
}

/// What the owner has to do after [`AckState::received`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckVerdict {
    /// Send an acknowledgment now, on any packet to the peer.
    Now,
    /// See that a timer runs until then.
    By(Time),
}

impl AckState {
    /// A sequenced packet has been received whole (again, where it is a duplicate).
    #[inline(always)]
    pub fn received(&mut self, policy: &AckPolicy, now: Time, bytes: u32, at_once: bool) -> AckVerdict {
        self.packets = self.packets.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.due |= u16::from(at_once || self.packets >= policy.packets || self.bytes >= policy.bytes);
        if self.is_due() { AckVerdict::Now } else { AckVerdict::By(now + policy.delay) }
    }

    /// The delay has expired, or credits must be announced.
    pub fn make_due(&mut self) {
        self.due = 1;
    }

    /// Whether an explicit acknowledgment is due.
    pub const fn is_due(&self) -> bool {
        self.due != 0
    }

    /// Whether something waits to be acknowledged.
    pub const fn is_pending(&self) -> bool {
        self.packets > 0
    }

    /// Whether nothing waits to be acknowledged or announced, so [`sent`](Self::sent) would change nothing.
    #[inline(always)]
    pub const fn is_clear(&self) -> bool {
        self.packets as u32 | (self.due as u32) << 16 == 0
    }

    /// Packets of at most `bytes_each` bytes that [`count`](Self::count) may count before one makes an
    /// acknowledgment due.
    pub fn quiet(&self, policy: &AckPolicy, bytes_each: u32) -> u32 {
        if self.is_due() {
            return 0;
        }
        let packets = u32::from(policy.packets.saturating_sub(self.packets)).saturating_sub(1);
        let bytes = policy.bytes.saturating_sub(self.bytes).saturating_sub(1);
        packets.min(bytes / bytes_each.max(1))
    }

    /// Whether one is due after what was [counted](Self::count).
    pub fn is_due_by(&mut self, policy: &AckPolicy) -> bool {
        self.due |= u16::from(self.packets >= policy.packets || self.bytes >= policy.bytes);
        self.is_due()
    }

    /// As [`received`](Self::received), where [`is_due_by`](Self::is_due_by) is called in time.
    #[inline(always)]
    pub fn count(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += bytes;
    }

    /// A packet with the current acknowledgment was sent.
    pub const fn sent(&mut self, now: Time) {
        *self = AckState { packets: 0, due: 0, bytes: 0, sent_at: now };
    }

    /// The timer has expired, which may have run since before the last acknowledgment: whether one is due, or
    /// until when it may wait. `None`: nothing waits.
    pub fn timed_out(&mut self, policy: &AckPolicy, now: Time) -> Option<AckVerdict> {
        if !self.is_pending() {
            return None;
        }
        // What waits was received after the last acknowledgment.
        let until = self.sent_at + policy.delay;
        if until > now {
            return Some(AckVerdict::By(until));
        }
        self.make_due();
        Some(AckVerdict::Now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: AckPolicy = AckPolicy { packets: 3, bytes: 1000, delay: Nanos(50) };

    /// by packets, by bytes, at once; else by the delay.
    #[test]
    fn due_by_packets_bytes_demand_or_delay() {
        let mut ack = AckState::default();
        assert_eq!(ack.received(&POLICY, Time(10), 1, false), AckVerdict::By(Time(60)));
        assert_eq!(ack.received(&POLICY, Time(11), 1, false), AckVerdict::By(Time(61)));
        assert_eq!(ack.received(&POLICY, Time(12), 1, false), AckVerdict::Now);
        ack.sent(Time(0));
        assert!(!ack.is_due() && !ack.is_pending());
        assert_eq!(ack.received(&POLICY, Time(13), 1000, false), AckVerdict::Now);
        ack.sent(Time(0));
        assert_eq!(ack.received(&POLICY, Time(14), 0, true), AckVerdict::Now);
        ack.sent(Time(0));
        assert_eq!(ack.received(&POLICY, Time(15), 0, false), AckVerdict::By(Time(65)));
        ack.make_due();
        assert!(ack.is_due());
    }

    /// packets after the delay don't begin another one.
    #[test]
    fn due_acknowledgment_stays_due_until_sent() {
        let mut ack = AckState::default();
        ack.make_due();
        assert_eq!(ack.received(&POLICY, Time(10), 0, false), AckVerdict::Now);
        assert!(ack.is_due() && ack.is_pending());
        ack.sent(Time(0));
        assert_eq!(ack.received(&POLICY, Time(11), 0, false), AckVerdict::By(Time(61)));
    }

    /// the timer of a packet that is acknowledged already counts for the next one from then on.
    #[test]
    fn a_timer_that_runs_on_waits_for_a_whole_delay() {
        let mut ack = AckState::default();
        assert_eq!(ack.timed_out(&POLICY, Time(60)), None);
        ack.received(&POLICY, Time(10), 1, false);
        ack.sent(Time(20));
        assert_eq!(ack.timed_out(&POLICY, Time(60)), None);
        ack.received(&POLICY, Time(30), 1, false);
        assert_eq!(ack.timed_out(&POLICY, Time(60)), Some(AckVerdict::By(Time(70))));
        assert!(!ack.is_due());
        assert_eq!(ack.timed_out(&POLICY, Time(70)), Some(AckVerdict::Now));
        assert!(ack.is_due());
    }
}
