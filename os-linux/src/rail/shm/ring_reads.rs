//! How many packets of a large message one poll takes out of a ring: ours, and the reads of shiba-2005, 3.
//!
//! The paper's messages are a packet with a header and packets of payload alone. Here every packet has a
//! header, so the first [segment](Kind::Data) behind anything else stands for the one, segments behind it for
//! the others. Short messages are none of these: no policy counts them.

use rerail_core::wire::{Body, Kind, Packet, Repr};

/// Which packets a poll takes from one peer before it looks at the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RingReads {
    /// All that are there, up to `ShmOptions::burst`.
    #[default]
    Burst,
    /// shiba-2005, 3, of the device before: one.
    Single,
    /// 3.1: after the first segment of a message none; in the next poll all its others that are there.
    Contiguous,
    /// 3.2: the others at once, if the message is longer than the ring.
    Post,
    /// 3.3: the others at once.
    Immediate,
}

impl RingReads {
    /// All there are.
    pub const ALL: [RingReads; 5] =
        [RingReads::Burst, RingReads::Single, RingReads::Contiguous, RingReads::Post, RingReads::Immediate];

    /// Their names, in that order.
    pub const NAMES: [&str; 5] = ["burst", "single", "contiguous", "post", "immediate"];

    /// That of a name.
    pub fn named(name: &str) -> Option<Self> {
        let index = Self::NAMES.iter().position(|other| *other == name)?;
        Self::ALL.get(index).copied()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// What is known of one ring's packets.
#[derive(Debug)]
pub struct RingReader {
    policy: RingReads,
    /// Bytes of payload that fit into the ring.
    ring_bytes: u64,
    /// The packet before was a segment.
    is_amid: bool,
    /// Bytes of the message that was announced last.
    announced: u64,
}

impl RingReader {
    /// Of a ring with room for so many bytes of payload.
    pub fn new(policy: RingReads, ring_bytes: u64) -> Self {
        RingReader { policy, ring_bytes, is_amid: false, announced: 0 }
    }

    /// A packet with this header was taken: whether the same poll takes the next one.
    #[inline]
    pub fn goes_on(&mut self, header: &[u8]) -> bool {
        self.policy == RingReads::Burst || self.goes_on_after(header)
    }

    #[cold]
    fn goes_on_after(&mut self, header: &[u8]) -> bool {
        // What is no packet ends the subchannel elsewhere.
        let kind = Packet::new_checked(header).map(|packet| packet.kind()).ok();
        if kind == Some(Kind::Rts)
            && let Ok(Repr { body: Body::Rts(rts), .. }) = Repr::parse(header)
        {
            self.announced = rts.message_bytes;
        }
        let is_segment = kind == Some(Kind::Data);
        let was_amid = std::mem::replace(&mut self.is_amid, is_segment);
        is_segment
            && match self.policy {
                RingReads::Burst => true,
                RingReads::Single => false,
                RingReads::Contiguous => was_amid,
                RingReads::Post => was_amid || self.announced > self.ring_bytes,
                RingReads::Immediate => true,
            }
    }
}

#[cfg(test)]
mod tests {
    use rerail_core::wire::{Common, Data, MessageHead, RemoteKeys, Rts};

    use super::*;

    fn header(body: Body) -> Vec<u8> {
        let common =
            Common { payload_bytes: if matches!(body, Body::Data(_)) { 8192 } else { 0 }, ..Common::default() };
        Repr { common, body }.emit_vec().unwrap().to_vec()
    }

    /// Which packets of a stream with a message of `bytes` are the last ones of their polls.
    fn polls(policy: RingReads, bytes: u64) -> Vec<bool> {
        let mut reader = RingReader::new(policy, 256 << 10);
        let head = MessageHead { operation: 1, ..MessageHead::default() };
        let rts = header(Body::Rts(Rts { head, message_bytes: bytes, keys: RemoteKeys::default() }));
        let segment = |offset| header(Body::Data(Data { operation: 1, offset }));
        let packets = [rts.clone(), segment(0), segment(8192), segment(16_384), rts, segment(0)];
        packets.iter().map(|packet| !reader.goes_on(packet)).collect()
    }

    /// shiba-2005, 3 to 3.3
    #[test]
    fn a_poll_takes_what_its_policy_names() {
        let (small, large) = (64 << 10, 512 << 10);
        for (policy, bytes, ends) in [
            (RingReads::Burst, small, [false; 6]),
            (RingReads::Single, large, [true; 6]),
            (RingReads::Contiguous, large, [true, true, false, false, true, true]),
            (RingReads::Post, small, [true, true, false, false, true, true]),
            (RingReads::Post, large, [true, false, false, false, true, false]),
            (RingReads::Immediate, small, [true, false, false, false, true, false]),
        ] {
            assert_eq!(polls(policy, bytes), ends, "{policy:?}, {bytes} bytes");
        }
    }

    #[test]
    fn policies_have_names() {
        for policy in RingReads::ALL {
            assert_eq!(RingReads::named(policy.name()), Some(policy));
        }
        assert_eq!(RingReads::named("none"), None);
    }
}
