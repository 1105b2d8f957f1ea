//! The ways to peers: how they are addressed, the handles that set-up messages go by, and ways that are not
//! tried for a while.
//!
//! On Ethernet a device resolves the neighbour's address in the kernel, when a handle is made and when a
//! queue pair is made ready to receive. That blocks the caller: without an answer, for a second and more
//! (`rdma_resolve_ip` in `ib_uverbs`'s `create_ah` and `modify_qp`). So a handle is made once for each call
//! and kept for its repetitions, but not for longer: devices have fewer handles than a job has peers. A call
//! fails with the error at once, and a path that took long to fail is not retried for a multiple of that
//! time, twice as much each time (V-18).

use std::collections::BTreeMap;

use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_core::time::{Nanos, Time};
use rerail_verbs::contract::{AddressVector, AhId, Device};

use super::{VerbsRail, codes};

/// A faster failure does not count as blocking.
const SLOW: Nanos = Nanos::from_millis(5);
/// A path that failed slowly is first not retried for so many times the duration of the failure.
const REST_MIN: u64 = 2;
/// ... and at last: one path blocks the process for at most a seventeenth of its time.
const REST_MAX: u64 = 16;

/// Ways that rest.
#[derive(Debug, Default)]
pub(super) struct Ways {
    resting: BTreeMap<AddressVector, Rest>,
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Time,
    /// In multiples of the last attempt's duration.
    times: u64,
    why: RailFault,
    word: Word,
}

/// Whether a message from the other end arrived while a path rests. That ends the rest, once: a process that
/// receives and can't answer would otherwise resolve at each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    None,
    Taken,
    Spent,
}

impl<D: Device> VerbsRail<D> {
    /// The path to a peer, where one was announced.
    pub(super) fn way(&self, peer: PeerId) -> Option<AddressVector> {
        let mut way = self.peers.vector(peer, self.port.number, self.options.path, self.port.gid_index)?;
        way.service_level = self.options.service_level;
        if let Some(route) = &mut way.global {
            route.traffic_class = self.options.traffic_class;
        }
        Some(way)
    }

    /// Why the path to a peer failed, if it rests.
    pub(super) fn rests(&self, way: &AddressVector) -> Option<RailFault> {
        let rests = |rest: &&Rest| self.now < rest.until && rest.word != Word::Taken;
        self.ways.resting.get(way).filter(rests).map(|rest| rest.why)
    }

    /// The device has resolved a path, with or without success.
    pub(super) fn note_search(&mut self, way: &AddressVector, found: Result<(), RailFault>) {
        let took = self.device.address_ns();
        match found {
            Ok(()) => drop(self.ways.resting.remove(way)),
            Err(why) if took >= SLOW.0 => {
                // No more entries than hosts without an answer, and none for longer than twice its rest.
                let now = self.now;
                self.ways.resting.retain(|_, rest| now.0 < rest.until.0.saturating_add(took.saturating_mul(REST_MAX)));
                let before = self.ways.resting.get(way);
                let times = before.map_or(REST_MIN, |rest| (rest.times * 2).min(REST_MAX));
                let was_taken = before.is_some_and(|rest| rest.word == Word::Taken);
                let word = if was_taken { Word::Spent } else { Word::None };
                let until = self.now + Nanos(took.saturating_mul(1 + times));
                tracing::info!(rail = %self.options.name, ?way, took, ?why, "the way to a peer was not found");
                self.ways.resting.insert(*way, Rest { until, times, why, word });
            }
            Err(_) => {}
        }
    }

    /// A message from the other end of a path has arrived.
    pub(super) fn hear_from(&mut self, way: &AddressVector) {
        if let Some(rest) = self.ways.resting.get_mut(way).filter(|rest| rest.word == Word::None) {
            rest.word = Word::Taken;
        }
    }

    /// The handle for a path: that of the link if it has one, or a new one, which the link keeps. Without a
    /// link it is the caller's, to be given to [`drop_handle`](Self::drop_handle).
    pub(super) fn handle_for(&mut self, way: &AddressVector, link: Option<u32>) -> Result<AhId, RailFault> {
        let kept = link.and_then(|index| self.links.get(index)).and_then(|link| link.handle);
        if let Some((handle, _)) = kept.filter(|(_, of)| of == way) {
            return Ok(handle);
        }
        if let Some(why) = self.rests(way) {
            return Err(why);
        }
        let made = self.device.create_ah(self.objects.pd, way).map_err(|why| {
            tracing::debug!(rail = %self.options.name, %why, "no address handle");
            codes::of_create(&why)
        });
        self.note_search(way, made.map(drop));
        let handle = made?;
        if let Some(link) = link.and_then(|index| self.links.get_mut(index))
            && let Some((old, _)) = link.handle.replace((handle, *way))
        {
            self.drop_handle(old);
        }
        Ok(handle)
    }

    /// An established link without a message needs no handle any more; a repeated READY makes one again.
    pub(super) fn give_handle_back(&mut self, index: u32) {
        let link = self.links.get_mut(index).filter(|link| link.stands && !link.is_saying);
        if let Some((handle, _)) = link.and_then(|link| link.handle.take()) {
            self.drop_handle(handle);
        }
    }

    /// Destroys a handle, once no message uses it.
    pub(super) fn drop_handle(&mut self, handle: AhId) {
        if self.datagrams.keep_while_used(handle) {
            return;
        }
        if self.device.is_open() {
            let _ = self.device.destroy_ah(handle);
        }
    }
}
