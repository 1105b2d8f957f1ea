//! Credits: a peer may send only what is guaranteed to find room (rules C-1 to C-4).
//!
//! Two grants per channel, both cumulative: messages of the ordered lane that may wait here unmatched, and
//! blocks for their payloads. Both travel in every packet's common header as 16-bit serial numbers. Messages
//! are counted, not packets: an aggregate brings several under one PSN.

use crate::seq::Seq;

/// What this side has granted to the peer.
#[derive(Clone, Copy, Debug)]
pub struct Grants {
    /// What was released, and the grant.
    messages_limit: u32,
    blocks_limit: u32,
    /// These limits as last sent.
    messages_announced: u32,
    blocks_announced: u32,
    /// Received and not released.
    messages_held: u32,
    blocks_held: u32,
    messages_max: u16,
    blocks_max: u16,
    /// With more messages held it [is crowded](Self::is_crowded).
    roomy_max: u16,
}

/// The peer sent more than it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer sent more messages or blocks than it was granted")]
pub struct CreditExceeded;

impl Grants {
    /// Grants of `messages_max` messages and `blocks_max` blocks, both counted from `first` on.
    pub const fn new(first: Seq, messages_max: u16, blocks_max: u16) -> Self {
        Grants {
            messages_held: 0,
            blocks_held: 0,
            messages_limit: first.0.wrapping_add(messages_max as u32),
            blocks_limit: first.0.wrapping_add(blocks_max as u32),
            messages_announced: first.0.wrapping_add(messages_max as u32),
            blocks_announced: first.0.wrapping_add(blocks_max as u32),
            messages_max,
            blocks_max,
            roomy_max: messages_max.saturating_sub(half(messages_max)),
        }
    }

    /// Messages and blocks received, none of which holds room.
    pub const fn counts(&self) -> [u32; 2] {
        [
            self.messages_limit.wrapping_sub(self.messages_max as u32),
            self.blocks_limit.wrapping_sub(self.blocks_max as u32),
        ]
    }

    /// Grants of the same size whose messages and blocks are counted on from there: nothing is held.
    pub const fn at(&self, [messages, blocks]: [u32; 2]) -> Self {
        let messages_limit = messages.wrapping_add(self.messages_max as u32);
        let blocks_limit = blocks.wrapping_add(self.blocks_max as u32);
        Grants {
            messages_held: 0,
            blocks_held: 0,
            messages_limit,
            blocks_limit,
            messages_announced: messages_limit,
            blocks_announced: blocks_limit,
            ..*self
        }
    }

    /// Whether [`received`](Self::received) would accept so many.
    #[inline]
    pub const fn has_room(&self, messages: u16, blocks: u32) -> bool {
        self.messages_held() + messages as u32 <= self.messages_max as u32
            && self.blocks_held() + blocks <= self.blocks_max as u32
    }

    /// A packet with `messages` messages and a payload of `blocks` blocks has come (C-3).
    pub fn received(&mut self, messages: u16, blocks: u32) -> Result<(), CreditExceeded> {
        if !self.has_room(messages, blocks) {
            return Err(CreditExceeded);
        }
        self.messages_held += messages as u32;
        self.blocks_held += blocks;
        Ok(())
    }

    /// Messages of so many blocks found their buffers at once: nothing of them is held.
    #[inline(always)]
    pub fn passed(&mut self, messages: u32, blocks: u32) {
        self.messages_limit = self.messages_limit.wrapping_add(messages);
        self.blocks_limit = self.blocks_limit.wrapping_add(blocks);
    }

    /// `messages` messages and `blocks` blocks don't need room here any more.
    pub fn released(&mut self, messages: u16, blocks: u32) {
        self.messages_held -= messages as u32;
        self.blocks_held -= blocks;
        self.passed(messages.into(), blocks);
    }

    /// Messages of the peer that hold room now.
    pub const fn messages_held(&self) -> u32 {
        self.messages_held
    }

    /// Blocks that the peer's messages hold now.
    pub const fn blocks_held(&self) -> u32 {
        self.blocks_held
    }

    /// Whether the peer may use up the last announced limits before [`half`] of the grant has come free: so
    /// many messages hold room. Otherwise limits that go to it with each half are never too late (C-4).
    pub const fn is_crowded(&self) -> bool {
        self.messages_held() > self.roomy_max as u32
    }

    /// The limits as they go on the wire: messages, blocks.
    pub const fn limits(&self) -> (u16, u16) {
        (self.messages_limit as u16, self.blocks_limit as u16)
    }

    /// The limits were sent.
    pub fn announced(&mut self) {
        self.messages_announced = self.messages_limit;
        self.blocks_announced = self.blocks_limit;
    }

    /// Whether the limits should go to the peer without waiting for other traffic (C-4): a quarter of a grant
    /// came free, or any message's place and the peer has used all that was announced to it.
    #[inline]
    pub const fn worth_announcing(&self) -> bool {
        let messages = self.messages_limit.wrapping_sub(self.messages_announced);
        let blocks = self.blocks_limit.wrapping_sub(self.blocks_announced);
        messages * 4 >= self.messages_max as u32
            || (blocks > 0 && blocks * 4 >= self.blocks_max as u32)
            || (messages > 0 && self.is_used_up())
    }

    /// Messages of one block at most that may [pass](Self::passed) before the limits are [worth
    /// announcing](Self::worth_announcing); 0 also where one more could not be held (C-3).
    pub fn quiet(&self) -> u32 {
        if !self.has_room(1, 1) {
            return 0;
        }
        let (messages_max, blocks_max) = (u32::from(self.messages_max), u32::from(self.blocks_max));
        let messages = self.messages_limit.wrapping_sub(self.messages_announced);
        let blocks = self.blocks_limit.wrapping_sub(self.blocks_announced);
        let sent = self.sent_of_announced();
        let left = |max: u32, of: u32| (max.saturating_sub(1) / 4).saturating_sub(of);
        left(messages_max, messages).min(left(blocks_max, blocks)).min(messages_max.saturating_sub(sent + 1))
    }

    /// Whether the peer has sent as many messages as it may by the limits announced to it.
    #[inline]
    pub const fn is_used_up(&self) -> bool {
        self.sent_of_announced() >= self.messages_max as u32
    }

    /// Messages that the peer has sent since what was announced to it was released.
    const fn sent_of_announced(&self) -> u32 {
        self.messages_held + self.messages_limit.wrapping_sub(self.messages_announced)
    }
}

/// So much of a grant comes free, of what takes the express path, before the limits go to the peer.
pub const fn half(max: u16) -> u16 {
    if max < 2 { 1 } else { max / 2 }
}

/// Messages between the first one that is not acknowledged and the next one to be sent, at most (C-6).
const UNACKED_MAX: u32 = 1 << 15;

/// What the peer has granted to this side.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    message_limit: Seq,
    messages_used: Seq,
    messages_acked: Seq,
    block_limit: Seq,
    blocks_used: Seq,
}

impl Allowance {
    /// Nothing granted; messages and blocks are counted from `first` on.
    pub const fn new(first: Seq) -> Self {
        Allowance {
            message_limit: first,
            messages_used: first,
            messages_acked: first,
            block_limit: first,
            blocks_used: first,
        }
    }

    /// Messages and blocks used, and the limits of both.
    pub const fn counts(&self) -> ([Seq; 2], [Seq; 2]) {
        ([self.messages_used, self.blocks_used], [self.message_limit, self.block_limit])
    }

    /// With these [`counts`](Self::counts), and every message acknowledged.
    pub const fn at([messages, blocks]: [Seq; 2], [message_limit, block_limit]: [Seq; 2]) -> Self {
        Allowance { message_limit, messages_used: messages, messages_acked: messages, block_limit, blocks_used: blocks }
    }

    /// Whether these limits are the last received ones: [`update`](Self::update) would change nothing.
    pub const fn is_known(&self, message_limit: u16, block_limit: u16) -> bool {
        self.message_limit.0 as u16 == message_limit && self.block_limit.0 as u16 == block_limit
    }

    /// Takes the limits of a received packet; returns whether one grew. The messages that it acknowledges are
    /// counted before ([`acked`](Self::acked)); the caller drops limits of packets that acknowledge less than
    /// was acknowledged before. So 16 bits suffice (C-6): what is released lies at most a grant (2^14) behind
    /// what is acknowledged, so a limit, which is a grant further, is never behind it; and it is at most 2^15
    /// and a grant ahead.
    pub fn update(&mut self, message_limit: u16, block_limit: u16) -> bool {
        self.raise(self.messages_acked, message_limit, block_limit)
    }

    /// As [`update`](Self::update), on a rail that loses nothing and keeps the order: its limits are never
    /// older than those before, however many messages are in flight.
    pub fn update_in_order(&mut self, message_limit: u16, block_limit: u16) -> bool {
        self.raise(Seq(self.messages_used.0.wrapping_sub(1 << 14)), message_limit, block_limit)
    }

    /// Extends both limits from where they can't lie before, and raises them; returns whether one has grown.
    fn raise(&mut self, messages_from: Seq, message_limit: u16, block_limit: u16) -> bool {
        let before = *self;
        let messages = Seq::extend16(messages_from, message_limit);
        if self.message_limit.is_before(messages) {
            self.message_limit = messages;
        }
        let blocks = Seq::extend16(Seq(self.blocks_used.0.wrapping_sub(1 << 14)), block_limit);
        if self.block_limit.is_before(blocks) {
            self.block_limit = blocks;
        }
        self.message_limit != before.message_limit || self.block_limit != before.block_limit
    }

    /// Whether one more message may be sent.
    pub const fn message_allowed(&self) -> bool {
        self.messages_used.is_before(self.message_limit)
            && self.messages_used.distance_from(self.messages_acked) < UNACKED_MAX
    }

    /// How many more messages may be sent.
    pub fn messages_left(&self) -> u32 {
        if !self.message_allowed() {
            return 0;
        }
        let unacked = self.messages_used.distance_from(self.messages_acked);
        self.message_limit.distance_from(self.messages_used).min(UNACKED_MAX - unacked)
    }

    /// How many more blocks may be used.
    pub const fn blocks_left(&self) -> u32 {
        if self.blocks_used.is_before(self.block_limit) { self.block_limit.distance_from(self.blocks_used) } else { 0 }
    }

    /// `messages` messages were sent.
    pub fn use_messages(&mut self, messages: u32) {
        self.messages_used = self.messages_used.add(messages);
    }

    /// The peer has `messages` more messages, and all before them.
    pub fn acked(&mut self, messages: u32) {
        self.messages_acked = self.messages_acked.add(messages);
    }

    /// Whether a payload of `blocks` blocks may be sent eagerly.
    pub fn blocks_allowed(&self, blocks: u32) -> bool {
        !self.block_limit.is_before(self.blocks_used.add(blocks))
    }

    /// A payload of `blocks` blocks was sent.
    pub fn use_blocks(&mut self, blocks: u32) {
        self.blocks_used = self.blocks_used.add(blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// C-1 to C-4, C-6: a sender within its allowance is never refused by the grants, in any interleaving
        /// of packets of one message and of several, acknowledgments, releases and lost or late limits,
        /// wherever the count stands; and it is never stuck once all is released and announced.
        #[test]
        fn an_honest_sender_is_never_refused(
            steps in proptest::collection::vec((0u8..4, 0u32..5, 1u32..9), 1..2000),
            first in any::<u32>(),
            messages_max in 1u16..40,
            blocks_max in 4u16..40,
        ) {
            let mut grants = Grants::new(Seq(first), messages_max, blocks_max);
            let mut allowance = Allowance::new(Seq(first));
            let mut held = std::collections::VecDeque::new();
            let mut unacked = std::collections::VecDeque::new();
            for (what, blocks, messages) in steps {
                match what {
                    0 if allowance.messages_left() >= messages && allowance.blocks_allowed(blocks) => {
                        prop_assert!(allowance.message_allowed() && blocks <= allowance.blocks_left());
                        allowance.use_messages(messages);
                        allowance.use_blocks(blocks);
                        prop_assert!(grants.received(messages as u16, blocks).is_ok());
                        held.push_back((messages as u16, blocks));
                        unacked.push_back(messages);
                    }
                    1 => if let Some((messages, blocks)) = held.pop_front() { grants.released(messages, blocks) },
                    2 => { let (m, b) = grants.limits(); allowance.update(m, b); grants.announced(); }
                    3 => if let Some(messages) = unacked.pop_front() { allowance.acked(messages) },
                    _ => {}
                }
            }
            for (messages, blocks) in held.drain(..) { grants.released(messages, blocks) }
            let (m, b) = grants.limits();
            allowance.update(m, b);
            prop_assert_eq!(allowance.messages_left(), u32::from(messages_max));
            prop_assert_eq!(allowance.blocks_left(), u32::from(blocks_max));
            prop_assert!(allowance.blocks_allowed(4));
        }

        /// C-3: a sender that exceeds a grant is refused, whatever came before.
        #[test]
        fn a_dishonest_sender_is_refused(messages_max in 1u16..40, blocks_max in 1u16..40) {
            let mut grants = Grants::new(Seq(0), messages_max, blocks_max);
            prop_assert_eq!(grants.received(messages_max + 1, 0), Err(CreditExceeded));
            for _ in 0..messages_max { prop_assert!(grants.received(1, 0).is_ok()); }
            prop_assert_eq!(grants.received(1, 0), Err(CreditExceeded));
            grants.released(1, 0);
            prop_assert_eq!(grants.received(1, u32::from(blocks_max) + 1), Err(CreditExceeded));
        }
    }

    /// C-6: a sender with nothing acknowledged stops where 16 bits would not do any more, whatever it was
    /// granted.
    #[test]
    fn unacknowledged_messages_are_bounded() {
        let mut allowance = Allowance::new(Seq(7));
        let mut sent = 0;
        for _ in 0..16 {
            allowance.update(Seq(7).add(sent + (1 << 14)).low16(), 0);
            let left = allowance.messages_left();
            allowance.use_messages(left);
            sent += left;
        }
        assert_eq!((sent, allowance.message_allowed()), (1 << 15, false));
        allowance.acked(1);
        assert_eq!(allowance.messages_left(), 1);
    }

    /// C-4: the limits are sent without other traffic once a quarter of either grant is free, and then not
    /// before another quarter is.
    #[test]
    fn a_quarter_of_either_grant_is_worth_an_update() {
        for (max, quarter) in [(4, 1), (5, 2), (8, 2), (15, 4), (16, 4), (40, 10)] {
            for of_blocks in [false, true] {
                let (messages_max, blocks_max) = if of_blocks { (40, max) } else { (max, 40) };
                let mut grants = Grants::new(Seq(u32::MAX), messages_max, blocks_max);
                let release = |grants: &mut Grants, count| match of_blocks {
                    true => grants.passed(0, count),
                    false => grants.passed(count, 0),
                };
                for _ in 0..3 {
                    release(&mut grants, quarter - 1);
                    assert!(!grants.worth_announcing(), "{} of {max}", quarter - 1);
                    release(&mut grants, 1);
                    assert!(grants.worth_announcing(), "{quarter} of {max}");
                    grants.announced();
                }
            }
        }
        assert!(!Grants::new(Seq(0), 40, 0).worth_announcing(), "no blocks are granted, so none is free");
    }

    #[test]
    fn limits_are_known_after_the_update() {
        let mut allowance = Allowance::new(Seq(0xffff));
        assert!(allowance.is_known(0xffff, 0xffff) && !allowance.is_known(3, 5));
        assert!(allowance.update(3, 5));
        assert!(allowance.is_known(3, 5));
        assert!(!allowance.is_known(4, 5) && !allowance.is_known(3, 4));
        assert!(!allowance.update(3, 5), "no change");
    }

    /// C-4: limits never decrease, so one that is less than what is used up is out of date.
    #[test]
    fn an_old_limit_is_not_taken_for_one_far_ahead() {
        for first in [Seq(0), Seq(u32::MAX - 50)] {
            let mut allowance = Allowance::new(first);
            let update = |allowance: &mut Allowance, ahead| {
                let limit = first.add(ahead).low16();
                allowance.update_in_order(limit, limit)
            };
            assert!(update(&mut allowance, 100));
            allowance.use_messages(100);
            allowance.use_blocks(100);
            assert!(!update(&mut allowance, 60));
            assert_eq!((allowance.messages_left(), allowance.blocks_left()), (0, 0));
            assert!(update(&mut allowance, 107));
            assert_eq!((allowance.messages_left(), allowance.blocks_left()), (7, 7));
        }
    }

    /// C-1: nothing beyond the limits is allowed.
    #[test]
    fn nothing_is_allowed_beyond_the_limits() {
        let mut allowance = Allowance::new(Seq(9));
        allowance.update(11, 11);
        allowance.use_messages(3);
        allowance.use_blocks(3);
        assert!(!allowance.message_allowed() && !allowance.blocks_allowed(0));
        assert_eq!((allowance.messages_left(), allowance.blocks_left()), (0, 0));
    }
}
