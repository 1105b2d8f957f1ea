//! A connection to one peer: its queue pair, its send buffers, the posts under way.

use rerail_core::ids::PostId;
use rerail_core::time::Time;
use rerail_verbs::contract::{Device, MrId, Qp};

use super::slab::Slab;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The peer's queue pair is not known.
    Calling,
    /// This end can receive; the peer may not yet.
    Ready,
    /// Both can.
    Up,
    /// A goodbye has been said: what was posted goes out, until then.
    Closing {
        /// When it is over at the latest.
        until: Time,
    },
}

/// Something that a device is busy with.
#[derive(Debug)]
pub enum Posted {
    /// A free place.
    Nothing,
    /// A packet, in the send buffer of the same number.
    Packet(PostId),
    /// A write or read, with the registrations made for it.
    Transfer(PostId, Vec<MrId>),
}

/// A connection.
#[derive(Debug)]
pub struct Link {
    pub stage: Stage,
    pub qp: Qp,
    pub send: Slab,
    /// By send buffer.
    pub posts: Vec<Posted>,
    pub free: Vec<u32>,
    /// The core asked for it, or was told of it: it must hear of its end.
    pub told: bool,
    /// This end's nonce and the peer's (0: not known).
    pub nonce: u64,
    pub peer_nonce: u64,
    pub psn: u32,
    /// When to call again.
    pub call_at: Option<Time>,
    /// When to give up.
    pub give_up_at: Time,
}

impl Link {
    /// Posts that the device has.
    pub fn open_posts(&self) -> usize {
        self.posts.len() - self.free.len()
    }

    /// When it wants attention.
    pub fn next_timeout(&self) -> Option<Time> {
        match self.stage {
            Stage::Calling | Stage::Ready => Some(self.call_at.map_or(self.give_up_at, |at| at.min(self.give_up_at))),
            Stage::Up => None,
            Stage::Closing { until } => Some(until),
        }
    }

    /// Destroys the queue pair, and with it everything that is under way; then frees the memory.
    pub fn destroy<D: Device + ?Sized>(self, device: &mut D) {
        // A device that has failed has no queue pair left to destroy.
        let _ = device.destroy_qp(self.qp.id);
        for posted in self.posts {
            if let Posted::Transfer(_, registrations) = posted {
                for mr in registrations {
                    let _ = device.deregister(mr);
                }
            }
        }
        self.send.free(device);
    }
}
