//! Posts: from the driver to the device, and back when they are over.
//!
//! A packet is copied, header and payload, into the buffer of its place; a short one is sent with the request
//! itself. A write or read uses the payload's own memory, registered for the time (see `registry`); where
//! that is impossible - too many pieces, no registration left - it goes through the place's buffer as well,
//! which holds any segment. The number of places bounds the device's requests; posts beyond wait in their
//! link, in order (L-2), and links take turns. The core bounds posts per link (L-4). Nothing is allocated
//! once the queues have grown.

use rerail_core::endpoint::{PostKind, PostStatus, RailFault};
use rerail_core::ids::PostId;
use rerail_core::time::Time;
use rerail_verbs::contract::{Completion, Device, Payload, PostError, PostReason, Remote, SendOp, SendWr, Sge, Status};

use super::link::{Ends, Phase, Waiting};
use super::options::{INLINE_BYTES_MAX, SGES_MAX};
use super::slab::{collect, collect_short};
use super::{Report, Tag, VerbsRail, codes};
use crate::rail::{Outgoing, Piece, Sink};

/// Room in the completion queue for quiet sends, which make none unless they fail.
pub(super) const QUIET_MAX: u32 = 1024;
/// Set in the place of a quiet send's id, which is its link.
const QUIET: u32 = 1 << 31;

/// Places for requests.
#[derive(Debug)]
pub(super) struct Works {
    slots: Vec<Work>,
    free: Vec<u32>,
    /// Requests that make no completion unless they fail, for which the completion queue has room.
    quiet_left: u32,
}

/// A request that is with the device.
#[derive(Clone, Debug, Default)]
struct Work {
    /// Counts uses of the place: completions of earlier uses are ignored.
    generation: u32,
    link: u32,
    post: PostId,
    in_use: bool,
    /// Quiet sends just before it, which are done when it is.
    quiet: u16,
    /// Registrations that it names.
    registrations: heapless::Vec<u32, SGES_MAX>,
    /// Where a read into the place's buffer is to be copied.
    pieces: Vec<Piece>,
}

impl Works {
    pub fn new(sends: u16, quiet_left: u32) -> Self {
        let sends = u32::from(sends);
        Works { slots: vec![Work::default(); sends as usize], free: (0..sends).rev().collect(), quiet_left }
    }

    /// Quiet sends that may be added.
    #[cfg(test)]
    pub fn quiet_left(&self) -> u32 {
        self.quiet_left
    }
}

impl<D: Device> VerbsRail<D> {
    /// Takes a post of an open subchannel.
    pub(super) fn take_post(&mut self, index: u32, outgoing: &Outgoing<'_>) {
        let full = self.works.free.is_empty();
        let Some(link) = self.links.get_mut(index) else { return };
        if link.waiting.is_empty() && !full {
            self.submit(index, outgoing.id, outgoing.kind, outgoing.header, (outgoing.payload, outgoing.extent));
            return;
        }
        let Ok(header) = heapless::Vec::from_slice(outgoing.header) else {
            self.fail_post(index, outgoing.id, RailFault::Device { code: libc::EMSGSIZE });
            return;
        };
        link.waiting.push_back(Waiting {
            id: outgoing.id,
            kind: outgoing.kind,
            header,
            pieces: outgoing.payload.len(),
            extent: outgoing.extent,
        });
        link.pieces.extend(outgoing.payload);
        if !std::mem::replace(&mut link.is_listed, true) {
            self.to_feed.push_back(index);
            self.mark_dirty();
        }
    }

    /// Hands a short message over whose bytes go with the request, and which makes no completion: it is over
    /// at once. Returns whether nothing is reported of it; `None`: nothing has happened.
    #[inline]
    pub(super) fn send_quietly(&mut self, index: u32, outgoing: &Outgoing<'_>) -> Option<bool> {
        let link = self.links.get_mut(index)?;
        let [Piece { start, len }] = *outgoing.payload else { return None };
        let (Ends::Rc(qp, _), Phase::Up) = (&link.ends, link.phase) else { return None };
        let (qp, bytes) = (qp.id, outgoing.header.len() + len);
        if bytes > self.port.inline_bytes || !link.waiting.is_empty() || self.works.quiet_left == 0 {
            return None;
        }
        if !link.quiet.passes() {
            return None;
        }
        collect_short(outgoing.header, Piece { start, len }, &mut self.scratch.short);
        let short = [&self.scratch.short[..bytes]];
        let id = Tag::Work.id(QUIET | index, 0);
        let request = SendWr::new(id, SendOp::Send { immediate: None }, Payload::Inline(&short));
        if let Err(why) = self.device.post_send(qp, &[SendWr { signaled: false, ..request }]) {
            self.refused(index, outgoing.id, &why);
            return Some(false);
        }
        link.quiet.open += 1;
        link.quiet.behind += 1;
        self.works.quiet_left -= 1;
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += bytes as u64;
        // The first after a poll.
        let is_over = link.quiet.at != self.polls;
        link.quiet.at = self.polls;
        if !is_over {
            self.taken.push((outgoing.peer, outgoing.id));
        }
        Some(is_over)
    }

    /// Hands waiting posts over, a link's one after the other's; returns how many.
    pub(super) fn feed(&mut self) -> usize {
        let mut fed = 0;
        while !self.works.free.is_empty()
            && let Some(index) = self.to_feed.pop_front()
        {
            let mut pieces = std::mem::take(&mut self.pieces);
            pieces.clear();
            let Some(link) = self.links.get_mut(index) else { continue };
            if !std::mem::take(&mut link.is_listed) {
                continue;
            }
            if let Some(waiting) = link.waiting.pop_front() {
                pieces.extend(link.pieces.drain(..waiting.pieces));
                if !link.waiting.is_empty() {
                    link.is_listed = true;
                    self.to_feed.push_back(index);
                }
                self.submit(index, waiting.id, waiting.kind, &waiting.header, (&pieces, waiting.extent));
                fed += 1;
            }
            self.pieces = pieces;
        }
        fed
    }

    /// Hands a post to the device; there is a place for it.
    fn submit(&mut self, index: u32, id: PostId, kind: PostKind, header: &[u8], (payload, extent): (&[Piece], usize)) {
        let bytes = header.len() + payload.iter().map(|piece| piece.len).sum::<usize>();
        if bytes > self.layout.message_bytes as usize {
            self.fail_post(index, id, RailFault::Device { code: libc::EMSGSIZE });
            return;
        }
        if bytes == 0 {
            // A write or read of nothing is done.
            let Some(peer) = self.links.get(index).map(|link| link.peer) else { return };
            self.reports.push_back(Report::Completed(peer, id, PostStatus::Done));
            self.mark_dirty();
            return;
        }
        let Some(place) = self.works.free.pop() else { unreachable!("the caller has looked") };
        let mut registrations = heapless::Vec::new();
        let mut sges: heapless::Vec<Sge, SGES_MAX> = heapless::Vec::new();
        let short = &mut self.scratch.short;
        let is_read = matches!(kind, PostKind::Read { .. });
        let is_short = !is_read && bytes <= self.port.inline_bytes;
        let mut copied_out = false;
        if is_short {
            short[..header.len()].copy_from_slice(header);
            collect(payload, &mut short[header.len()..bytes]);
        } else if kind == PostKind::Send || !self.name_memory((payload, extent), is_read, &mut registrations, &mut sges)
        {
            let at = self.layout.sends + u64::from(place) * self.layout.message;
            if !is_read {
                self.slab.put(at, header);
                self.slab.gather(at + header.len() as u64, bytes - header.len(), payload);
            }
            copied_out = is_read;
            let _ = sges.push(self.slab.sge(at, bytes as u32));
        }
        let op = match kind {
            PostKind::Send => SendOp::Send { immediate: None },
            PostKind::Write { to } => {
                SendOp::Write { to: Remote { address: to.address, rkey: to.key as u32 }, immediate: None }
            }
            PostKind::Read { from } => SendOp::Read { from: Remote { address: from.address, rkey: from.key as u32 } },
        };
        let short = [&self.scratch.short[..bytes.min(INLINE_BYTES_MAX)]];
        let memory = if is_short { Payload::Inline(&short) } else { Payload::Memory(&sges) };
        let work = &mut self.works.slots[place as usize];
        let Some(link) = self.links.get_mut(index) else { unreachable!("the caller has it") };
        let initiator = link.initiator();
        let (qp, srq_number) = match &link.ends {
            Ends::Rc(qp, _) => (qp.id, None),
            Ends::Xrc(halves) => (self.initiators.qp_of(halves), Some(halves.srqs.holding(bytes))), // V-17
        };
        let request = SendWr::new(Tag::Work.id(place, work.generation), op, memory);
        let request = SendWr { srq_number, ..request };
        let posted = self.device.post_send(qp, &[request]);
        work.registrations = registrations;
        work.pieces.clear();
        if copied_out {
            work.pieces.extend_from_slice(payload);
        }
        match posted {
            Ok(()) => {
                (work.link, work.post, work.in_use) = (index, id, true);
                work.quiet = std::mem::take(&mut link.quiet.behind);
                link.open += 1;
                self.counters.packets_sent += u64::from(kind == PostKind::Send);
                self.counters.bytes_sent += if is_read { 0 } else { bytes as u64 };
            }
            Err(why) => {
                self.free_work(place);
                self.refused(index, id, &why);
                self.break_initiator(initiator, codes::of_post(&why));
            }
        }
    }

    /// The device takes no request.
    #[cold]
    fn refused(&mut self, index: u32, id: PostId, why: &PostError) {
        tracing::debug!(rail = %self.options.name, %why, "post refused");
        self.fail_post(index, id, codes::of_post(why));
        self.broken |= why.why == PostReason::DeviceGone;
        self.mark_dirty();
    }

    /// Finds or makes registrations for all pieces; `false`, and nothing is acquired, where some can't be
    /// had.
    fn name_memory(
        &mut self,
        (payload, extent): (&[Piece], usize),
        write: bool,
        registrations: &mut heapless::Vec<u32, SGES_MAX>,
        sges: &mut heapless::Vec<Sge, SGES_MAX>,
    ) -> bool {
        if payload.len() > self.port.sges {
            return false;
        }
        for piece in payload.iter().filter(|piece| piece.len > 0) {
            let Some((registration, sge)) = self.registry.acquire(&mut *self.device, *piece, extent, write) else {
                registrations.iter().for_each(|place| self.registry.release(&mut *self.device, *place));
                registrations.clear();
                sges.clear();
                self.mark_dirty();
                return false;
            };
            // As long as `SGES_MAX`, which `port.sges` is not over.
            let _ = (registrations.push(registration), sges.push(sge));
        }
        if self.registry.has_unreported() {
            self.mark_dirty();
        }
        true
    }

    /// A post that can't be done ends the subchannel, too.
    fn fail_post(&mut self, index: u32, id: PostId, fault: RailFault) {
        if let Some(link) = self.links.get(index).filter(|link| link.phase == Phase::Up) {
            self.reports.push_back(Report::Completed(link.peer, id, PostStatus::Failed));
        }
        self.fail(index, Some(fault));
    }

    /// A request has come back.
    #[inline]
    pub(super) fn work_completed(&mut self, place: u32, generation: u32, completion: &Completion, sink: &mut dyn Sink) {
        let Some(work) = self.works.slots.get(place as usize) else { return self.quiet_failed(place, completion) };
        if !work.in_use || work.generation != generation {
            return;
        }
        let (index, post, quiet) = (work.link, work.post, work.quiet);
        let Some(link) = self.links.get_mut(index) else { unreachable!("links take their works along") };
        link.open -= 1;
        let is_up = matches!(link.phase, Phase::Up);
        if link.open == 0 && !is_up {
            match link.phase {
                Phase::Closing => self.closing.push(index),
                Phase::Failing(_) => self.failing.push(index),
                _ => {}
            }
            self.idle_until = Time(0); // as `mark_dirty`, which would take the link along
        }
        let succeeded = matches!(completion.status, Status::Success);
        if succeeded && is_up {
            if !work.pieces.is_empty() {
                // A read into the place's buffer.
                let at = self.layout.sends + u64::from(place) * self.layout.message;
                self.slab.scatter(at, completion.bytes.min(self.layout.message_bytes) as usize, &work.pieces);
            }
            link.quiet.open -= quiet;
            self.works.quiet_left += u32::from(quiet);
            self.free_work(place);
            sink.completed(post, PostStatus::Done);
            return;
        }
        let initiator = link.initiator();
        self.free_work(place);
        if !succeeded {
            let fault = codes::of_status(completion.status);
            self.fail(index, Some(fault));
            self.break_initiator(initiator, fault);
        }
    }

    /// A quiet send has come back, which only a failed one does; an earlier link's, where the numbers differ.
    #[cold]
    fn quiet_failed(&mut self, place: u32, completion: &Completion) {
        let index = place & !QUIET;
        if let Some(Ends::Rc(qp, _)) = self.links.get(index).map(|link| &link.ends)
            && qp.number == completion.qp
            && completion.status != Status::Success
        {
            self.fail(index, Some(codes::of_status(completion.status)));
        }
    }

    /// The queue pair of a link is gone, and its quiet sends with it.
    pub(super) fn drop_quiet(&mut self, index: u32) {
        if let Some(link) = self.links.get_mut(index) {
            self.works.quiet_left += u32::from(std::mem::take(&mut link.quiet.open));
        }
    }

    /// Takes completions out of the queue ahead of their turn, as far as they give requests of failed links
    /// back; the others wait for the next poll.
    pub(super) fn reclaim(&mut self) {
        if !self.collect() {
            return;
        }
        let mut batch = std::mem::take(&mut self.batch);
        batch.retain(|completion| {
            let (tag, place, generation) = Tag::of(completion.id);
            let work = self.works.slots.get(place as usize).filter(|work| work.in_use);
            let Some(work) = work.filter(|work| tag == Tag::Work && work.generation == generation) else { return true };
            let Some(link) = self.links.get_mut(work.link) else { unreachable!("links take their works along") };
            if !matches!(link.phase, Phase::Failing(_)) {
                return true;
            }
            link.open -= 1;
            if link.open == 0 {
                self.failing.push(work.link);
            }
            self.free_work(place);
            false
        });
        self.batch = batch;
    }

    /// Releases a place and the objects it named.
    fn free_work(&mut self, place: u32) {
        let work = &mut self.works.slots[place as usize];
        work.in_use = false;
        // 30 bits of it go into the request's id.
        work.generation = (work.generation + 1) & Tag::GENERATION_MASK;
        work.pieces.clear();
        if !work.registrations.is_empty() {
            for registration in std::mem::take(&mut work.registrations) {
                self.registry.release(&mut *self.device, registration);
            }
        }
        self.works.free.push(place);
    }

    /// Whether payload memory is named by a link's open requests.
    pub(super) fn uses_payload(&self, index: u32) -> bool {
        let mut works = self.works.slots.iter().filter(|work| work.in_use && work.link == index);
        works.any(|work| !work.registrations.is_empty())
    }

    /// The payload of these will never be copied: a disconnected link's reads are dropped.
    pub(super) fn forget_targets(&mut self, index: u32) {
        for work in self.works.slots.iter_mut().filter(|work| work.in_use && work.link == index) {
            work.pieces.clear();
        }
    }

    /// Takes back the requests of a queue pair that is destroyed.
    pub(super) fn drop_works(&mut self, index: u32) {
        for place in 0..self.works.slots.len() {
            if self.works.slots[place].in_use && self.works.slots[place].link == index {
                self.free_work(place as u32);
            }
        }
    }
}
