//! Messages: from the shared receive queues to their place, and the queues' refilling.
//!
//! Each message is one packet, header and payload. It is copied out of its buffer at once; buffers go back to
//! their queue when a quarter of that queue's is free, whatever the other queues have: that is each queue's
//! low-water mark. A peer can send before its READY is here (V-4): such messages keep their buffers until it
//! has come, and are dropped if it never does.

use std::collections::VecDeque;

use rerail_core::endpoint::{Arrival, RailFault};
use rerail_core::ids::PeerId;
use rerail_core::wire::{self, HEADER_BYTES_MAX};
use rerail_verbs::contract::{Device, PostError, RecvWr, Sge, Status};

use super::link::{Link, Phase};
use super::srq::{QUEUES_MAX, Queue, Queues};
use super::{Tag, VerbsRail, codes};
use crate::rail::{ShortPlace, Sink};

/// Receives posted with one call.
pub(super) const REFILL: usize = 16;

/// Bits of a buffer's number that are its place in its queue; those above are the queue.
const PLACE_BITS: u32 = 24;

/// The owners of the shared receive queues' buffers.
#[derive(Debug)]
pub(super) struct Receives {
    /// In the order of [`Layout::queues`](super::options::Layout).
    queues: heapless::Vec<Free, QUEUES_MAX>,
    /// One bit for each queue that is to be refilled.
    low: u8,
    /// Filled before their peer was authenticated: buffer, bytes, link.
    held: VecDeque<(u32, u32, u32)>,
}

/// A queue's buffers that are not posted.
#[derive(Debug)]
struct Free {
    places: Vec<u32>,
    /// So many are posted again.
    refill_at: usize,
}

impl Receives {
    pub fn new(queues: &Queues) -> Self {
        const { assert!(QUEUES_MAX <= u8::BITS as usize) };
        let numbers = |queue: u32, count: u32| (0..count).map(move |place| queue << PLACE_BITS | place).collect();
        let free = |(queue, layout): (u32, &Queue)| Free {
            places: numbers(queue, layout.count),
            refill_at: layout.count.div_ceil(4) as usize,
        };
        Receives { queues: (0..).zip(queues).map(free).collect(), low: 0, held: VecDeque::new() }
    }

    /// Whether buffers are to be posted again.
    pub fn is_low(&self) -> bool {
        self.low != 0
    }

    /// A buffer is free.
    #[inline]
    fn give_back(&mut self, place: u32) {
        let queue = place >> PLACE_BITS;
        let free = &mut self.queues[queue as usize];
        free.places.push(place);
        if free.places.len() >= free.refill_at {
            self.low |= 1 << queue;
        }
    }
}

/// Requests for buffers, by their places and with their memory.
pub(super) fn requests<'s>(tag: Tag, places: &[u32], sges: &'s [Sge; REFILL]) -> heapless::Vec<RecvWr<'s>, REFILL> {
    let request = |(place, sge): (&u32, &'s Sge)| RecvWr { id: tag.id(*place, 0), sges: std::slice::from_ref(sge) };
    places.iter().zip(sges).map(request).collect()
}

/// Where a buffer lies in the slab.
#[inline]
fn place_of(queues: &Queues, place: u32) -> u64 {
    let queue = &queues[(place >> PLACE_BITS) as usize];
    queue.at + u64::from(place & ((1 << PLACE_BITS) - 1)) * queue.stride
}

impl<D: Device> VerbsRail<D> {
    /// A receive is over: its queue pair's number, status, and bytes.
    #[inline(always)]
    pub(super) fn message_received(
        &mut self,
        place: u32,
        (qp, status, bytes): (u32, Status, u32),
        sink: &mut dyn Sink,
    ) {
        let index = self.link_of_number(qp);
        let Some((index, link)) = index.and_then(|index| Some((index, self.links.get_mut(index)?))) else {
            // Of a queue pair that is gone.
            self.receives.give_back(place);
            return;
        };
        if !matches!(status, Status::Success) {
            self.receives.give_back(place);
            self.fail(index, Some(codes::of_status(status)));
        } else if matches!(link.phase, Phase::Called) {
            self.receives.held.push_back((place, bytes, index));
        } else {
            let from = link.takes_messages();
            if !std::mem::replace(&mut link.confirmed, true) && matches!(link.phase, Phase::Closing) {
                self.closing.push(index);
                self.mark_dirty();
            }
            self.deliver_message(place, bytes, (index, from), sink);
        }
    }

    /// Takes the messages that came before READY; without a sink, drops them.
    pub(super) fn release_held(&mut self, index: u32, mut sink: Option<&mut dyn Sink>) {
        for _ in 0..self.receives.held.len() {
            let Some((place, bytes, link)) = self.receives.held.pop_front() else { return };
            match &mut sink {
                _ if link != index => self.receives.held.push_back((place, bytes, link)),
                Some(sink) => self.deliver_held(place, bytes, index, *sink),
                None => self.receives.give_back(place),
            }
        }
    }

    #[inline(never)]
    fn deliver_held(&mut self, place: u32, bytes: u32, index: u32, sink: &mut dyn Sink) {
        let from = self.links.get(index).and_then(Link::takes_messages);
        self.deliver_message(place, bytes, (index, from), sink);
    }

    /// Takes a message to the core, if one of its link is to come to it: from that peer.
    #[inline(always)]
    fn deliver_message(&mut self, place: u32, bytes: u32, (index, from): (u32, Option<PeerId>), sink: &mut dyn Sink) {
        let taken = from.is_none_or(|peer| self.place_message(place, bytes, peer, sink));
        self.receives.give_back(place);
        if !taken {
            self.note_corrupt(index);
        }
    }

    #[cold]
    fn note_corrupt(&mut self, index: u32) {
        self.counters.corrupt += 1;
        if let Some(link) = self.links.get_mut(index) {
            link.ignores_messages = true;
        }
        self.fail(index, Some(RailFault::Corrupt));
    }

    /// Takes one message to the core; `false`: it is no packet, or the core requests that the
    /// subchannel be closed.
    #[inline(always)]
    fn place_message(&mut self, place: u32, bytes: u32, peer: PeerId, sink: &mut dyn Sink) -> bool {
        let at = place_of(&self.layout.queues, place);
        let bytes = bytes as usize;
        self.slab.get_front(at, bytes, &mut self.scratch.header);
        let front = &self.scratch.header[..bytes.min(HEADER_BYTES_MAX)];
        let Ok(Some(len)) = wire::header_len(front) else { return false };
        let Some(header) = front.get(..len) else { return false };
        let payload = wire::payload_len(header) as usize;
        if len + payload != bytes {
            return false; // V-8
        }
        self.counters.packets_received += 1;
        self.counters.bytes_received += bytes as u64;
        match sink.whole(peer, header) {
            ShortPlace::Copy(start) => {
                self.slab.copy_out(at + len as u64, payload, start);
                return true;
            }
            ShortPlace::Done => return true,
            ShortPlace::Packet => {}
        }
        self.place_packet((at, len, payload), peer, sink)
    }

    /// The same, of one that is not received in one call: its place in the slab, and the bytes of its header
    /// and payload.
    #[inline(never)]
    fn place_packet(&mut self, (at, len, payload): (u64, usize, usize), peer: PeerId, sink: &mut dyn Sink) -> bool {
        match sink.arrival(peer, &self.scratch.header[..len]) {
            Arrival::Done | Arrival::Discard | Arrival::Address { .. } => true,
            Arrival::Close => false,
            Arrival::Place { id, .. } => {
                self.pieces.clear();
                if sink.place(id, 0, &mut self.pieces) {
                    self.slab.scatter(at + len as u64, payload, &self.pieces);
                    sink.placed(id);
                }
                true
            }
        }
    }

    /// Posts the free buffers again: of queues that have many, or of all (V-17).
    pub(super) fn refill(&mut self, all: bool) -> Result<(), PostError> {
        if !all && !self.receives.is_low() {
            return Ok(());
        }
        let mut sges = [Sge::default(); REFILL];
        for (number, (queue, srq)) in self.layout.queues.iter().zip(&self.objects.srqs).enumerate() {
            if !all && self.receives.low & 1 << number == 0 {
                continue;
            }
            let places = &mut self.receives.queues[number].places;
            while !places.is_empty() {
                let first = places.len().saturating_sub(REFILL);
                let free = &places[first..];
                for (sge, place) in sges.iter_mut().zip(free) {
                    *sge = self.slab.sge(place_of(&self.layout.queues, *place), queue.bytes);
                }
                self.device.post_srq_recv(srq.id, &requests(Tag::Receive, free, &sges))?;
                places.truncate(first);
            }
        }
        self.receives.low = 0;
        Ok(())
    }
}
