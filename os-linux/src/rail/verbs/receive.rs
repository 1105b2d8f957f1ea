//! Messages: from the shared receive queue to their place, and the queue's refilling.
//!
//! Each message is one packet, header and payload. It is copied out of its buffer at once; buffers go back to the queue
//! when a quarter of them is free. A peer can send before its READY is here (V-4): such messages keep their buffers until
//! it has come, and are nobody's if it never does.

use std::collections::VecDeque;

use rerail_core::endpoint::{Arrival, RailFault};
use rerail_core::time::Time;
use rerail_core::wire::{HEADER_BYTES_MAX, stream};
use rerail_verbs::contract::{Completion, Device, PostError, RecvRequest, Sge, Status};

use super::link::Phase;
use super::{Tag, VerbsRail, codes};
use crate::rail::Sink;

/// Receives posted with one call.
const REFILL: usize = 16;

/// Who has which buffer of the shared receive queue.
#[derive(Debug)]
pub(super) struct Receives {
    /// Not posted.
    free: Vec<u32>,
    /// So many free ones are posted again.
    refill_at: usize,
    /// Filled before their peer was known to be authentic: buffer, bytes, link.
    held: VecDeque<(u32, u32, u32)>,
}

impl Receives {
    pub fn new(receives: u16) -> Self {
        Receives {
            free: (0..receives.into()).collect(),
            refill_at: usize::from(receives).div_ceil(4),
            held: VecDeque::new(),
        }
    }

    /// Whether buffers are to be posted again.
    pub fn is_low(&self) -> bool {
        self.free.len() >= self.refill_at
    }
}

impl<D: Device> VerbsRail<D> {
    /// A receive is over.
    pub(super) fn message_received(&mut self, place: u32, completion: &Completion, sink: &mut dyn Sink) {
        let index = self.by_number.get(&completion.qp).copied();
        let Some((index, link)) = index.and_then(|index| Some((index, self.links.get_mut(index)?))) else {
            // Of a queue pair that is gone.
            self.receives.free.push(place);
            return;
        };
        if !matches!(completion.status, Status::Success) {
            self.receives.free.push(place);
            self.fail(index, Some(codes::of_status(completion.status)));
        } else if matches!(link.phase, Phase::Called) {
            self.receives.held.push_back((place, completion.bytes, index));
        } else {
            if !std::mem::replace(&mut link.heard, true) && matches!(link.phase, Phase::Closing) {
                self.closing.push(index);
                self.calm_until = Time(0);
            }
            self.deliver_message(place, completion.bytes, index, sink);
        }
    }

    /// What came before READY is taken now; without a sink, it is dropped.
    pub(super) fn release_held(&mut self, index: u32, mut sink: Option<&mut dyn Sink>) {
        for _ in 0..self.receives.held.len() {
            let Some((place, bytes, link)) = self.receives.held.pop_front() else { return };
            match &mut sink {
                _ if link != index => self.receives.held.push_back((place, bytes, link)),
                Some(sink) => self.deliver_message(place, bytes, index, *sink),
                None => self.receives.free.push(place),
            }
        }
    }

    fn deliver_message(&mut self, place: u32, bytes: u32, index: u32, sink: &mut dyn Sink) {
        let taken = self.place_message(place, bytes, index, sink);
        self.receives.free.push(place);
        if !taken {
            self.counters.corrupt += 1;
            if let Some(link) = self.links.get_mut(index) {
                link.is_deaf = true;
            }
            self.fail(index, Some(RailFault::Corrupt));
        }
    }

    /// Takes one message to the core; `false`: it is no packet, or the core wants the subchannel closed.
    fn place_message(&mut self, place: u32, bytes: u32, index: u32, sink: &mut dyn Sink) -> bool {
        let Some(link) = self.links.get(index).filter(|link| link.stands && !link.is_deaf) else { return true };
        let peer = link.peer;
        let at = self.layout.receives + u64::from(place) * self.layout.message;
        let bytes = bytes as usize;
        let front = &mut self.scratch.header[..bytes.min(HEADER_BYTES_MAX)];
        self.slab.get(at, front);
        let Ok(Some(len)) = stream::header_len(front) else { return false };
        let Some(header) = front.get(..len) else { return false };
        let payload = stream::payload_len(header) as usize;
        if len + payload != bytes {
            return false; // V-8
        }
        self.counters.packets_received += 1;
        self.counters.bytes_received += bytes as u64;
        match sink.arrival(peer, header) {
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

    /// Posts the free buffers again: where they are many, or whatever their number.
    pub(super) fn refill(&mut self, all: bool) -> Result<(), PostError> {
        if !all && !self.receives.is_low() {
            return Ok(());
        }
        let mut sges = [Sge::default(); REFILL];
        while !self.receives.free.is_empty() {
            let first = self.receives.free.len().saturating_sub(REFILL);
            let free = &self.receives.free[first..];
            for (sge, place) in sges.iter_mut().zip(free) {
                let at = self.layout.receives + u64::from(*place) * self.layout.message;
                *sge = self.slab.sge(at, self.options.message_bytes());
            }
            let requests: heapless::Vec<RecvRequest<'_>, REFILL> = (free.iter().zip(&sges))
                .map(|(place, sge)| RecvRequest { id: Tag::Receive.id(*place, 0), sges: std::slice::from_ref(sge) })
                .collect();
            self.device.post_srq_recv(self.objects.srq, &requests)?;
            self.receives.free.truncate(first);
        }
        Ok(())
    }
}
