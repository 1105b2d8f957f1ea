//! What a link does with the memory of both sides: reads, help with the peer's, and lists of what may be
//! mapped.

use rerail_core::endpoint::{PostStatus, RailFault};

use super::copy::{Ends, Reads, Step};
use super::link::Link;
use super::offers::Offers;
use super::reach::{Reach, Seal};
use crate::rail::{RailCounters, Sink};

impl Link {
    /// From now on the sides may read each other's memory, as far as `reach` goes, and map so many bytes of
    /// it.
    pub fn join_memory(&mut self, seal: Seal, reach: Reach, mapped_bytes_max: u64) {
        self.memory = Some((seal, Reads::new(reach, mapped_bytes_max)));
    }

    /// The number of our list of memory that the peer may map.
    pub fn offer(&mut self, number: u64) {
        if self.memory.is_some() {
            self.outbound.offer(number);
        }
    }

    /// Sends the requests and answers that are due about memory that may be mapped (L-19); returns the number
    /// of datagrams.
    pub fn tend_offers(&mut self, offers: &Offers, counters: &mut RailCounters) -> usize {
        let mut sent = 0;
        if let Some((_, reads)) = &mut self.memory {
            reads.maps.follow(self.inbound.offer());
            sent += usize::from(reads.maps.request(&self.socket));
        }
        if let Some(piece) = self.list_requested
            && offers.answer(&self.socket, piece)
        {
            self.list_requested = None;
            sent += 1;
        }
        counters.system_calls += sent as u64;
        sent
    }

    /// The reads that wait here, if any do.
    pub fn reads(&mut self) -> Option<&mut Reads> {
        self.memory.as_mut().map(|(_, reads)| reads).filter(|reads| reads.is_pending())
    }

    /// Carries out reads, as long as they fit into `bytes`, which is reduced to the rest; returns the number
    /// of things done.
    pub fn read(
        &mut self,
        bytes: &mut usize,
        sink: &mut dyn Sink,
        counters: &mut RailCounters,
    ) -> Result<usize, RailFault> {
        let mut count = 0;
        let Self { memory, inbound, outbound, socket, peer, .. } = self;
        let Some((_, reads)) = memory else { return Ok(0) };
        if reads.is_pending() {
            reads.maps.request_list(inbound.offer());
        }
        let mut ends = Ends { inbound, outbound, socket };
        let mut end = Ok(());
        while reads.is_pending() && *bytes > 0 {
            let could = reads.denied().is_none();
            let (step, read) = reads.step(*bytes, &mut ends, &mut counters.system_calls);
            let denied = could && reads.denied().is_some();
            *bytes = bytes.saturating_sub(read);
            counters.bytes_received += read as u64 + reads.take_peer_bytes();
            count += 1;
            match step {
                Step::Some | Step::Ended => {}
                Step::Done(id) => sink.completed(id, PostStatus::Done),
                Step::NoAccess(id) => sink.completed(id, PostStatus::NoAccess),
                Step::Wait => {
                    count -= 1;
                    break;
                }
                Step::Corrupt => {
                    end = Err(RailFault::Corrupt);
                    break;
                }
            }
            if denied {
                sink.no_remote_access(*peer);
            }
        }
        end.map(|()| count)
    }

    /// Whether the peer has requested help with its reads.
    pub fn is_assisting(&self) -> bool {
        self.assist.is_some()
    }

    /// Copies for the peer, up to `bytes` bytes, which are reduced to the rest, or one unit; returns the
    /// number of things done.
    pub fn assist(&mut self, bytes: &mut usize, counters: &mut RailCounters) -> usize {
        let Self { memory: Some((_, reads)), assist: Some(assist), inbound, .. } = self else { return 0 };
        match assist.step(reads.reach(), inbound.claims(), *bytes) {
            Some(copied) => {
                *bytes = bytes.saturating_sub(copied);
                counters.system_calls += 1;
                1
            }
            None => {
                self.assist = None;
                0
            }
        }
    }

    /// Nothing is read or written any more, by either side.
    pub fn end_memory(&mut self) {
        if let Some((_, reads)) = &mut self.memory {
            reads.end(&self.outbound, &self.socket);
        }
        (self.memory, self.assist) = (None, None);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Before the rings are unmapped.
        self.end_memory();
    }
}
