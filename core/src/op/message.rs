//! A message that waits for its buffer.

use crate::ids::{Key, PeerId, RailId};
use crate::seq::Seq;

/// A message that has arrived and has no buffer yet.
#[derive(Debug, Default)]
pub(crate) struct Message {
    /// Its channel; where that is parked, its peer's number and this bit.
    pub channel: u32,
    pub state: MessageState,
    pub rendezvous: bool,
    pub want_placed: bool,
    pub tag: Option<u64>,
    pub immediate: Option<u64>,
    /// Bytes. For an unopened aggregate: messages.
    pub len: u64,
    /// The sender's operation.
    pub remote: u64,
    /// The rail that carried its announcement.
    pub via: RailId,
    /// First block of a chain, or [`NONE`].
    pub blocks: u32,
    /// Blocks of the chain.
    pub block_count: u16,
    /// Bytes of the chain before the payload.
    pub offset: u32,
    /// The message that follows this one in its packet and waits with it for the packet's turn, or [`NONE`].
    pub next_in_packet: u32,
    /// Key set of the source buffer, or [`NONE`].
    pub keys: u32,
    /// Key in the matcher while unexpected.
    pub unexpected: Key,
    pub used: MessageUse,
    /// The receive that it goes to, once it is [`MessageUse::Received`].
    pub recv: u32,
    /// The PSN of the payload that was being placed in the blocks when its rail died (F-6).
    pub aborted: Option<Seq>,
}

/// See [`Message::channel`]; no table has so many channels.
const PARKED: u32 = 1 << 31;

impl Message {
    /// What [`channel`](Self::channel) is of a message of a parked channel.
    pub(crate) const fn parked_of(peer: PeerId) -> u32 {
        peer.0 | PARKED
    }

    /// The peer of a message of a parked channel.
    pub(crate) const fn parked_peer(&self) -> Option<PeerId> {
        if self.channel & PARKED != 0 { Some(PeerId(self.channel & !PARKED)) } else { None }
    }
}

// Memory per message that may wait.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Message>() == 96);

/// What has become of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MessageUse {
    /// It waits for its turn.
    #[default]
    Early,
    /// It is in the matcher as unexpected.
    Unexpected,
    /// Taken by a matched probe, not yet received.
    Claimed,
    /// It goes to a receive.
    Received,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MessageState {
    /// The payload is on its way into the blocks.
    #[default]
    Placing,
    /// An aggregate is being placed in the blocks: its messages are not known yet.
    Sealed,
    /// It has arrived completely.
    Stored,
}
