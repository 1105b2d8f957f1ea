//! The rail of a process to itself (rules X-12, L-2).
//!
//! A posted packet waits in a queue; polling moves its payload from the source straight to the place that the
//! endpoint names, without a copy in between, and then reports the post complete. So the memory of a post is
//! read before its completion and never after it.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use rerail_core::endpoint::{Arrival, PostKind, PostStatus, RailFault};
use rerail_core::ids::{PeerId, PostId};
use rerail_core::rail::{Caps, RailFacts, RailKind};
use rerail_core::time::Time;
use rerail_core::wire::HEADER_BYTES_MAX;

use super::{AddressError, Outgoing, Piece, Rail, RailCounters, RailUsage, Sink};
use crate::memory::copy_pieces;
use crate::place::NUMA_LOCAL;

/// The address that every process has on this rail.
const ADDRESS: &str = "self";
/// Posts that may be outstanding.
const POSTS_MAX: u16 = 64;
/// Largest eager payload in bytes: a copy through the pool and one out of it cost more than the handshake
/// above this.
const EAGER_BYTES_MAX: u32 = 256 * 1024;
/// Largest payload of one packet in bytes.
const SEGMENT_BYTES_MAX: u32 = 4 * 1024 * 1024;
/// After so many bytes a poll ends: other rails come first.
const POLL_BYTES_MAX: u64 = SEGMENT_BYTES_MAX as u64;

struct Packet {
    id: PostId,
    kind: PostKind,
    header: heapless::Vec<u8, HEADER_BYTES_MAX>,
    /// Where this packet's pieces start in `Loopback::pieces` and how many they are.
    pieces: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    Closed,
    /// The next poll reports `up`.
    Opening,
    Open,
}

/// A queue from this process to itself.
pub struct Loopback {
    me: PeerId,
    link: Link,
    packets: VecDeque<Packet>,
    /// The pieces of all packets, in the packets' order.
    pieces: VecDeque<Piece>,
    // Reused at each packet.
    source: Vec<Piece>,
    target: Vec<Piece>,
    counters: RailCounters,
}

impl Loopback {
    /// For the process of this rank.
    pub fn new(me: PeerId) -> Self {
        Loopback {
            me,
            link: Link::Closed,
            packets: VecDeque::with_capacity(usize::from(POSTS_MAX)),
            pieces: VecDeque::with_capacity(usize::from(POSTS_MAX)),
            source: Vec::new(),
            target: Vec::new(),
            counters: RailCounters::default(),
        }
    }

    fn clear(&mut self) {
        self.link = Link::Closed;
        self.packets.clear();
        self.pieces.clear();
    }

    /// Delivers queued packets, up to the limit of one poll.
    #[inline(never)]
    fn deliver_all(&mut self, sink: &mut dyn Sink) -> usize {
        let mut done = 0;
        if self.link == Link::Opening {
            self.link = Link::Open;
            sink.up(self.me);
            done += 1;
        }
        let enough = self.counters.bytes_received + POLL_BYTES_MAX;
        while self.counters.bytes_received < enough
            && let Some(packet) = self.packets.pop_front()
        {
            done += 1;
            if packet.kind != PostKind::Send || packet.header.is_empty() {
                // This rail offers neither writes nor reads, and packets have headers.
                self.pieces.drain(..packet.pieces);
                sink.completed(packet.id, PostStatus::Failed);
                self.clear();
                sink.down(self.me, RailFault::Corrupt);
            } else if self.deliver(&packet, sink) {
                sink.completed(packet.id, PostStatus::Done);
            } else {
                self.counters.corrupt += 1;
                self.clear();
                sink.down(self.me, RailFault::Corrupt);
            }
        }
        done
    }

    /// Delivers one packet; `false`: the endpoint requests that the subchannel be closed.
    fn deliver(&mut self, packet: &Packet, sink: &mut dyn Sink) -> bool {
        self.source.clear();
        self.source.extend(self.pieces.drain(..packet.pieces));
        self.counters.packets_received += 1;
        self.counters.bytes_received += bytes_of(&packet.header, &self.source);
        match sink.arrival(self.me, &packet.header) {
            Arrival::Done | Arrival::Discard | Arrival::Address { .. } => true,
            Arrival::Close => false,
            Arrival::Place { id, .. } => {
                self.target.clear();
                if sink.place(id, 0, &mut self.target) {
                    // SAFETY: the source is memory of a post that is not complete, the target that of an open
                    // placement: both are valid until then by the seam's contract, and no references to their
                    // bytes exist while the driver polls.
                    unsafe { copy_pieces(&self.source, &self.target) };
                    sink.placed(id);
                }
                true
            }
        }
    }
}

fn bytes_of(header: &[u8], pieces: &[Piece]) -> u64 {
    header.len() as u64 + pieces.iter().map(|piece| piece.len as u64).sum::<u64>()
}

impl Rail for Loopback {
    fn name(&self) -> &str {
        "loop"
    }

    fn facts(&self) -> RailFacts {
        RailFacts {
            kind: RailKind::Loop,
            caps: Caps { lossless: true, ..Caps::default() },
            eager_bytes_max: EAGER_BYTES_MAX,
            segment_bytes_max: SEGMENT_BYTES_MAX,
            posts_max: POSTS_MAX,
            bytes_per_second: 0,
            numa_distance: NUMA_LOCAL,
            ..RailFacts::UNKNOWN
        }
    }

    fn address(&self) -> String {
        ADDRESS.to_owned()
    }

    fn add_peer(&mut self, peer: PeerId, address: &str) -> Result<bool, AddressError> {
        if address != ADDRESS {
            return Err(AddressError { address: address.to_owned(), why: "the loopback rail's address is \"self\"" });
        }
        Ok(peer == self.me)
    }

    fn connect(&mut self, _now: Time, peer: PeerId) {
        if peer == self.me && self.link == Link::Closed {
            self.link = Link::Opening;
        }
    }

    fn disconnect(&mut self, peer: PeerId) {
        if peer == self.me {
            self.clear();
        }
    }

    fn abort(&mut self, peer: PeerId) {
        self.disconnect(peer);
    }

    unsafe fn post(&mut self, outgoing: Outgoing<'_>) {
        if self.link != Link::Open || outgoing.peer != self.me {
            // The core expects no completion of a post to a subchannel that is down.
            return;
        }
        let header = heapless::Vec::from_slice(outgoing.header).unwrap_or_default();
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += bytes_of(outgoing.header, outgoing.payload);
        self.pieces.extend(outgoing.payload);
        self.packets.push_back(Packet { id: outgoing.id, kind: outgoing.kind, header, pieces: outgoing.payload.len() });
    }

    fn poll(&mut self, _now: Time, sink: &mut dyn Sink) -> usize {
        if self.packets.is_empty() && self.link != Link::Opening {
            return 0;
        }
        self.deliver_all(sink)
    }

    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn arm(&mut self) -> bool {
        self.packets.is_empty() && self.link != Link::Opening
    }

    fn disarm(&mut self) {}

    fn counters(&self) -> RailCounters {
        self.counters
    }

    fn usage(&self) -> RailUsage {
        RailUsage::default()
    }
}

#[cfg(test)]
mod tests;
