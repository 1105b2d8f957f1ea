//! The wire: one queue of packets per direction and rail, in this program's own memory.
//!
//! A packet holds its header and where its payload lies at the sender; the payload is copied once, on
//! delivery, and only then is the post complete. So a queue never holds more than the `posts_max` that the
//! core counts.

use heapless::{Deque, Vec};
use rerail_core::ids::PostId;
use rerail_core::mem::Seg;
use rerail_core::wire::HEADER_BYTES_MAX;

/// Rails between the two hosts.
pub const RAILS: usize = 2;
/// Packets under way in one direction of a rail.
pub const POSTS_MAX: usize = 8;
/// Pieces of one payload.
pub const PIECES_MAX: usize = 16;

/// A packet under way.
pub struct Packet {
    /// For the sender's completion.
    pub id: PostId,
    /// The header.
    pub header: Vec<u8, HEADER_BYTES_MAX>,
    /// The payload, in the sender's memory.
    pub payload: Vec<Seg, PIECES_MAX>,
}

/// One rail.
#[derive(Default)]
pub struct Link {
    /// Both ends were notified that it is up.
    pub up: bool,
    /// Packets from host 0 and from host 1.
    pub queues: [Deque<Packet, POSTS_MAX>; 2],
    /// Payload bytes carried from host 0 and from host 1.
    pub payload_bytes: [u64; 2],
}
