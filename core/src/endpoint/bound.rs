//! The operations of a channel. A list of them would cost every message, so they are only counted; rare
//! events find them by a scan of the table. A job has thousands of peers, and a failed rail ends a connection
//! to each: nearly all of those have no operation, and need no scan.

use super::tables::Tables;
use crate::store::{NONE, Walk};

/// An iterator over the operations of one channel, in the order of their slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpsOf {
    channel: u32,
    walk: Walk,
    left: u32,
}

impl Tables<'_> {
    /// Binds an operation to a channel; it had none.
    pub(super) fn bind_op(&mut self, op: u32, channel: u32) {
        let slot = self.ops.at_mut(op);
        debug_assert_eq!(slot.channel, NONE, "operation {op} is bound already");
        slot.channel = channel;
        self.channels.at_mut(channel).ops += 1;
    }

    /// An operation outlives its channel.
    pub(super) fn unbind_op(&mut self, op: u32) {
        let channel = core::mem::replace(&mut self.ops.at_mut(op).channel, NONE);
        if channel != NONE {
            self.channels.at_mut(channel).ops -= 1;
        }
    }

    /// Starts a scan of a channel's operations; [`next_of`](Self::next_of) continues it. They may be freed
    /// meanwhile, but no new ones may start.
    pub(super) fn ops_of(&self, channel: u32) -> OpsOf {
        let left = self.channels.at(channel).ops;
        debug_assert_eq!(
            left as usize,
            self.count_ops(channel),
            "the operations of channel {channel} were counted wrong"
        );
        OpsOf { channel, walk: self.ops.walk(), left }
    }

    /// The next one.
    pub(super) fn next_of(&self, ops: &mut OpsOf) -> Option<u32> {
        while ops.left > 0 {
            let op = self.ops.step(&mut ops.walk)?;
            if self.ops.at(op).channel == ops.channel {
                ops.left -= 1;
                return Some(op);
            }
        }
        None
    }

    fn count_ops(&self, channel: u32) -> usize {
        self.ops.indices().filter(|&op| self.ops.at(op).channel == channel).count()
    }
}
