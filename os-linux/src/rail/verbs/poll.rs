//! One poll: events and completions, and after them their consequences.
//!
//! Most polls find nothing, and most of the others only completions. So other work is looked for only after
//! [`VerbsRail::mark_dirty`] was called, or when a timer is due. Debug builds check in each calm poll that no
//! such call was omitted; in others [`IDLE_MAX`] is the longest delay that an omission would cost.

use rerail_core::endpoint::RailFault;
use rerail_core::time::{Nanos, Time};
use rerail_verbs::contract::{AsyncEvent, Completion, Device, PollError};

use super::link::Phase;
use super::registry::Made;
use super::{Tag, VerbsRail, codes};
use crate::rail::Sink;
use crate::rail::reports::deliver;

/// Completions taken from the queue at once.
const BATCH: usize = 64;
/// Batches per poll: other rails come first then, unless a link has failed, whose last messages are needed.
const BATCHES_MAX: usize = 4;
/// A rail without a call of `mark_dirty` for so long is checked all the same.
const IDLE_MAX: Nanos = Nanos::from_millis(10);
/// Links that events may end in one poll; the rest comes with the next.
const ENDED_MAX: usize = 16;

/// The object that an event reports as ended.
#[derive(Clone, Copy, Debug)]
enum EndedObject {
    Link(u32),
    Initiator(u32),
}

impl<D: Device> VerbsRail<D> {
    /// Takes completions out of the queue, one batch; `false`: there was less than a batch, or the device is
    /// broken.
    #[inline(always)]
    pub(super) fn collect_batch(&mut self) -> bool {
        match self.device.poll_cq(self.objects.cq, BATCH, &mut self.batch) {
            Ok(taken) => taken == BATCH,
            Err(why) => {
                self.note_lost(&why);
                false
            }
        }
    }

    #[cold]
    fn note_lost(&mut self, why: &PollError) {
        tracing::warn!(rail = %self.options.name, %why, "completions lost");
        self.broken = true;
        self.mark_dirty();
    }

    /// Takes all completions out of the queue; `false`: the device is broken.
    pub(super) fn collect(&mut self) -> bool {
        while self.collect_batch() {}
        !self.broken
    }

    /// Takes completions and their contents to the core; returns how many. `more`: whether the last call for
    /// completions filled its batch, so that there may be others.
    #[inline(always)]
    fn harvest(&mut self, more: bool, sink: &mut dyn Sink) -> usize {
        let taken = self.take_batch(sink);
        if !more {
            self.unfinished = false;
            return taken;
        }
        taken + self.harvest_more(sink)
    }

    /// As [`harvest`](Self::harvest), beside other work.
    #[inline(never)]
    fn harvest_also(&mut self, more: bool, sink: &mut dyn Sink) -> usize {
        self.harvest(more, sink)
    }

    /// Takes the batch to the core; returns how many there were.
    #[inline(always)]
    fn take_batch(&mut self, sink: &mut dyn Sink) -> usize {
        // Handling a completion never takes others: the core's actions come after the poll.
        let mut at = 0;
        while let Some(completion) = self.batch.get(at) {
            at += 1;
            let (tag, place, generation) = Tag::of(completion.id);
            if tag == Tag::Receive {
                let &Completion { qp, status, bytes, .. } = completion;
                self.message_received(place, (qp, status, bytes), sink);
            } else {
                let completion = *completion;
                self.take_other(tag, (place, generation), &completion, sink);
            }
            if !self.reports.is_empty() {
                deliver(&mut self.reports, sink);
            }
        }
        self.batch.clear();
        at
    }

    /// As [`take_batch`](Self::take_batch), not the first.
    #[inline(never)]
    fn take_batch_also(&mut self, sink: &mut dyn Sink) -> usize {
        self.take_batch(sink)
    }

    /// Further batches, after a full one.
    #[inline(never)]
    fn harvest_more(&mut self, sink: &mut dyn Sink) -> usize {
        let (mut taken, mut batches, mut more) = (0, 1, true);
        loop {
            if !more || self.broken {
                self.unfinished = false;
                return taken;
            }
            // A failed link's last messages are in a queue of known depth.
            let depth = self.layout.cq_depth as usize / BATCH + 1;
            let batches_max = if self.failing.is_empty() { BATCHES_MAX } else { BATCHES_MAX + depth };
            self.unfinished = batches >= batches_max;
            if self.unfinished {
                self.mark_dirty();
                return taken;
            }
            more = self.collect_batch();
            taken += self.take_batch_also(sink);
            batches += 1;
        }
    }

    #[inline(never)]
    fn take_other(&mut self, tag: Tag, (place, generation): (u32, u32), completion: &Completion, sink: &mut dyn Sink) {
        if tag == Tag::Work {
            return self.work_completed(place, generation, completion, sink);
        }
        self.mark_dirty();
        if tag == Tag::DatagramSend {
            self.datagram_sent(place, completion.status);
        } else if let Some(setup) = self.datagram_received(place, completion) {
            self.handle_setup(&setup, sink);
        }
    }

    /// Takes the events of the device's objects; the first was already taken. Ended links are noted, for
    /// after the completions before them.
    fn take_events(
        &mut self,
        mut next: Option<AsyncEvent>,
        ended_objects: &mut heapless::Vec<(EndedObject, RailFault), ENDED_MAX>,
    ) -> usize {
        let mut taken = 0;
        while !ended_objects.is_full()
            && let Some(event) = next.take().or_else(|| self.device.async_event())
        {
            taken += 1;
            match event {
                AsyncEvent::QpFatal(qp) | AsyncEvent::QpRequestError(qp) | AsyncEvent::QpAccessError(qp) => {
                    if qp == self.objects.ud.id {
                        self.datagrams.note_failure();
                    } else if let Some(index) = self.by_name.get(&qp) {
                        let _ = ended_objects.push((EndedObject::Link(*index), codes::of_event(event)));
                    } else if let Some(out) = self.initiators.find(qp) {
                        let _ = ended_objects.push((EndedObject::Initiator(out), codes::of_event(event)));
                    }
                }
                AsyncEvent::QpLastWqe(qp) => {
                    let Some(&index) = self.by_name.get(&qp) else { continue };
                    let Some(link) = self.links.get_mut(index) else { continue };
                    link.last_receive = true;
                    if matches!(link.phase, Phase::Failing(_)) {
                        self.failing.push(index);
                    } else {
                        // It is in error, even without another report.
                        let _ = ended_objects.push((EndedObject::Link(index), codes::of_event(event)));
                    }
                }
                AsyncEvent::DeviceFatal | AsyncEvent::CqError(_) | AsyncEvent::SrqError(_) => {
                    tracing::warn!(rail = %self.options.name, ?event, "device is broken");
                    self.broken = true;
                }
                AsyncEvent::PortError(port)
                | AsyncEvent::PortActive(port)
                | AsyncEvent::LidChange(port)
                | AsyncEvent::GidChange(port)
                | AsyncEvent::PkeyChange(port)
                    if port == self.port.number =>
                {
                    tracing::info!(rail = %self.options.name, ?event, "port event");
                    self.check_port();
                }
                // No queue pair has an alternate path that it could migrate to.
                _ => tracing::info!(rail = %self.options.name, ?event, "device event"),
            }
        }
        taken
    }

    /// The next poll looks at everything: all code that makes [`is_idle`](Self::is_idle) false calls this.
    pub(super) fn mark_dirty(&mut self) {
        self.idle_until = Time(0);
    }

    /// Whether a poll has only events and completions to look for: the usual case.
    pub(super) fn is_idle(&self) -> bool {
        self.reports.is_empty()
            && !self.broken
            && !self.unfinished
            && self.to_feed.is_empty()
            && self.due_links.is_empty()
            && self.closing.is_empty()
            && self.failing.is_empty()
            && self.outage.is_none()
            && !self.registry.has_unreported()
            && !self.receives.is_low()
            && self.datagrams.is_ready()
            && !self.revival.reset_due
            && !self.revival.back_due
            && self.links.next_timer().is_none_or(|(due, _)| due > self.now)
            && !self.has_moved()
    }

    /// Events and completions, and what they bring.
    #[inline(always)]
    pub(super) fn poll_device(&mut self, sink: &mut dyn Sink) -> usize {
        if self.now >= self.idle_until {
            return self.poll_all(None, sink);
        }
        debug_assert!(self.is_idle(), "something has changed, and was not marked");
        let event = self.device.async_event();
        if event.is_some() {
            return self.poll_all(event, sink);
        }
        let more = self.collect_batch();
        if self.batch.is_empty() && !self.broken { 0 } else { self.poll_idle(more, sink) }
    }

    /// Completions, where no other work precedes them, and their consequences.
    #[inline(always)]
    pub(super) fn poll_idle(&mut self, more: bool, sink: &mut dyn Sink) -> usize {
        let taken = self.harvest(more, sink);
        if self.now < self.idle_until && !self.receives.is_low() { taken } else { self.attend(Some(&[]), taken, sink) }
    }

    /// Everything that there may be to do; `next` is an event that was taken from the device already.
    pub(super) fn poll_all(&mut self, next: Option<AsyncEvent>, sink: &mut dyn Sink) -> usize {
        let mut done = deliver(&mut self.reports, sink);
        for Made { what, bytes, took } in self.registry.take_unreported() {
            sink.registered(what, bytes, took);
        }
        if self.broken {
            self.revive();
        }
        if self.broken {
            return self.attend(None, done, sink);
        }
        let mut ended_objects = heapless::Vec::new();
        done += self.take_events(next, &mut ended_objects);
        let more = self.collect_batch();
        done += self.harvest_also(more, sink);
        self.unfinished |= ended_objects.is_full();
        self.attend(Some(&ended_objects), done, sink)
    }

    /// All work other than events and completions, after these: returns `done` plus its amount.
    /// `ended_objects`: objects that events reported as ended; `None`: the device was broken before.
    fn attend(
        &mut self,
        ended_objects: Option<&[(EndedObject, RailFault)]>,
        mut done: usize,
        sink: &mut dyn Sink,
    ) -> usize {
        if let Some(ended_objects) = ended_objects {
            for (ended_object, fault) in ended_objects {
                match *ended_object {
                    EndedObject::Link(index) => self.fail(index, Some(*fault)),
                    EndedObject::Initiator(out) => self.break_initiator(Some(out), *fault),
                }
            }
            done += self.end_grace();
            self.run_timers();
            done += self.finish_closing();
            if !self.unfinished {
                done += self.finish_failed();
            }
            self.restart_datagrams();
            done += self.feed() + self.send_due_messages();
            if let Err(why) = self.refill(false).and_then(|()| self.refill_datagrams()) {
                self.note_refused(&why);
            }
        }
        if self.broken {
            self.give_up();
        }
        done += deliver(&mut self.reports, sink);
        // After the last subchannel's end: no registration is used any more.
        if std::mem::take(&mut self.revival.reset_due) {
            sink.reset();
            done += 1;
        }
        if self.has_moved() {
            self.announced = self.port.address;
            sink.moved();
            done += 1;
        }
        if std::mem::take(&mut self.revival.back_due) {
            sink.back();
            done += 1;
        }
        self.idle_until = match self.links.next_timer() {
            _ if !self.is_idle() => Time(0),
            Some((due, _)) => due.min(self.now + IDLE_MAX),
            None => self.now + IDLE_MAX,
        };
        done
    }

    fn run_timers(&mut self) {
        while let Some((_, index)) = self.links.next_timer().filter(|(due, _)| *due <= self.now) {
            self.time_out(index);
        }
    }
}
