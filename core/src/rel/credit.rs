//! Credits: a peer may send only what is sure to find room (rules C-1 to C-4).
//!
//! Two grants per channel, both cumulative: messages of the ordered lane that may wait here unmatched, and blocks for
//! their payloads. Both travel in every packet's common header as 16-bit serial numbers.

use crate::seq::Seq;

/// What this side has granted to the peer.
#[derive(Clone, Copy, Debug)]
pub struct Grants {
    messages_received: u32,
    messages_released: u32,
    blocks_received: u32,
    blocks_released: u32,
    messages_told: u32,
    blocks_told: u32,
    messages_max: u32,
    blocks_max: u32,
}

/// The peer sent more than it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditExceeded;

impl Grants {
    /// Grants of `messages_max` messages, the first of which has the number `first`, and `blocks_max` blocks.
    pub const fn new(first: Seq, messages_max: u16, blocks_max: u16) -> Self {
        Grants {
            messages_received: first.0,
            messages_released: first.0,
            blocks_received: 0,
            blocks_released: 0,
            messages_told: first.0,
            blocks_told: 0,
            messages_max: messages_max as u32,
            blocks_max: blocks_max as u32,
        }
    }

    /// A message with a payload of `blocks` blocks has come (C-3).
    pub fn received(&mut self, blocks: u32) -> Result<(), CreditExceeded> {
        if self.messages_held() >= self.messages_max || self.blocks_held() + blocks > self.blocks_max {
            return Err(CreditExceeded);
        }
        self.messages_received = self.messages_received.wrapping_add(1);
        self.blocks_received = self.blocks_received.wrapping_add(blocks);
        Ok(())
    }

    /// A message and `blocks` blocks don't need room here any more.
    pub fn released(&mut self, blocks: u32) {
        self.messages_released = self.messages_released.wrapping_add(1);
        self.blocks_released = self.blocks_released.wrapping_add(blocks);
    }

    /// Messages of the peer that hold room now.
    pub const fn messages_held(&self) -> u32 {
        self.messages_received.wrapping_sub(self.messages_released)
    }

    /// Blocks that the peer's messages hold now.
    pub const fn blocks_held(&self) -> u32 {
        self.blocks_received.wrapping_sub(self.blocks_released)
    }

    /// The limits as they go on the wire: messages, blocks.
    pub const fn limits(&self) -> (u16, u16) {
        (
            self.messages_released.wrapping_add(self.messages_max) as u16,
            self.blocks_released.wrapping_add(self.blocks_max) as u16,
        )
    }

    /// The limits went out.
    pub fn told(&mut self) {
        self.messages_told = self.messages_released;
        self.blocks_told = self.blocks_released;
    }

    /// Whether the peer should hear of the limits without waiting for other traffic (C-4): a quarter of a grant came free.
    pub const fn worth_telling(&self) -> bool {
        let messages = self.messages_released.wrapping_sub(self.messages_told);
        let blocks = self.blocks_released.wrapping_sub(self.blocks_told);
        messages * 4 >= self.messages_max || (blocks > 0 && blocks * 4 >= self.blocks_max)
    }
}

/// What the peer has granted to this side.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    message_limit: Seq,
    block_limit: Seq,
    blocks_used: Seq,
}

impl Allowance {
    /// Nothing granted; the first message has the number `first`.
    pub const fn new(first: Seq) -> Self {
        Allowance { message_limit: first, block_limit: Seq(0), blocks_used: Seq(0) }
    }

    /// Takes the limits of a packet that came; says whether one grew. `oldest` is the first ordered PSN that the packet
    /// does not acknowledge; the caller drops limits of packets that acknowledge less than was acknowledged before, so
    /// that 16 bits suffice: a grant is at most 2^14 and counts from what is released, which is at most 2^14 behind
    /// `oldest` and at most a window (2^15) ahead of it.
    pub fn update(&mut self, oldest: Seq, message_limit: u16, block_limit: u16) -> bool {
        let before = *self;
        let messages = Seq::extend16(oldest, message_limit);
        if self.message_limit.is_before(messages) {
            self.message_limit = messages;
        }
        let blocks = Seq::extend16(Seq(self.blocks_used.0.wrapping_sub(1 << 14)), block_limit);
        if self.block_limit.is_before(blocks) {
            self.block_limit = blocks;
        }
        self.message_limit != before.message_limit || self.block_limit != before.block_limit
    }

    /// Whether the message with number `psn` may be sent.
    pub fn message_allowed(&self, psn: Seq) -> bool {
        psn.is_before(self.message_limit)
    }

    /// Whether a payload of `blocks` blocks may be sent eagerly.
    pub fn blocks_allowed(&self, blocks: u32) -> bool {
        !self.block_limit.is_before(self.blocks_used.add(blocks))
    }

    /// A payload of `blocks` blocks went out.
    pub fn use_blocks(&mut self, blocks: u32) {
        self.blocks_used = self.blocks_used.add(blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// C-1 to C-4: a sender that asks its allowance is never refused by the grants, in any interleaving of
        /// messages, releases and lost or late limits; and it is never stuck once all is released and told.
        #[test]
        fn an_honest_sender_is_never_refused(
            steps in proptest::collection::vec((0u8..3, 0u32..5), 1..2000),
            messages_max in 1u16..40,
            blocks_max in 4u16..40,
        ) {
            let mut grants = Grants::new(Seq(0), messages_max, blocks_max);
            let mut allowance = Allowance::new(Seq(0));
            let (mut psn, mut held) = (Seq(0), std::collections::VecDeque::new());
            for (what, blocks) in steps {
                match what {
                    0 if allowance.message_allowed(psn) && allowance.blocks_allowed(blocks) => {
                        allowance.use_blocks(blocks);
                        prop_assert!(grants.received(blocks).is_ok());
                        held.push_back(blocks);
                        psn = psn.next();
                    }
                    1 => if let Some(blocks) = held.pop_front() { grants.released(blocks) },
                    2 => { let (m, b) = grants.limits(); allowance.update(psn, m, b); grants.told(); }
                    _ => {}
                }
            }
            for blocks in held.drain(..) { grants.released(blocks) }
            let (m, b) = grants.limits();
            allowance.update(psn, m, b);
            prop_assert!(allowance.message_allowed(psn) && allowance.blocks_allowed(4));
            prop_assert!(!allowance.message_allowed(psn.add(messages_max.into())));
        }

        /// C-3: whoever exceeds a grant is told off, whatever came before.
        #[test]
        fn a_dishonest_sender_is_refused(messages_max in 1u16..40, blocks_max in 1u16..40) {
            let mut grants = Grants::new(Seq(0), messages_max, blocks_max);
            for _ in 0..messages_max { prop_assert!(grants.received(0).is_ok()); }
            prop_assert_eq!(grants.received(0), Err(CreditExceeded));
            grants.released(0);
            prop_assert_eq!(grants.received(u32::from(blocks_max) + 1), Err(CreditExceeded));
        }
    }
}
