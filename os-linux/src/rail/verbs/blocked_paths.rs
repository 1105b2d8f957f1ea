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
const BLOCKED_MIN: u64 = 2;
/// ... and at last: one path blocks the process for at most a seventeenth of its time.
const BLOCKED_MAX: u64 = 16;

/// Ways that rest.
#[derive(Debug, Default)]
pub(super) struct BlockedPaths {
    blocked: BTreeMap<AddressVector, Blocked>,
}

#[derive(Clone, Copy, Debug)]
struct Blocked {
    until: Time,
    /// In multiples of the last attempt's duration.
    times: u64,
    why: RailFault,
    retry: Retry,
}

/// Whether a message from the other end arrived while a path rests. That ends the rest, once: a process that
/// receives and can't answer would otherwise resolve at each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    None,
    Taken,
    Spent,
}

impl<D: Device> VerbsRail<D> {
    /// The path to a peer, where one was announced.
    pub(super) fn address_vector(&self, peer: PeerId) -> Option<AddressVector> {
        let mut address_vector = self.peers.vector(peer, self.port.number, self.options.path, self.port.gid_index)?;
        address_vector.service_level = self.options.service_level;
        if let Some(route) = &mut address_vector.global {
            route.traffic_class = self.options.traffic_class;
        }
        Some(address_vector)
    }

    /// Why the path to a peer failed, if it rests.
    pub(super) fn blocked_by(&self, address_vector: &AddressVector) -> Option<RailFault> {
        let blocked_by = |rest: &&Blocked| self.now < rest.until && rest.retry != Retry::Taken;
        self.blocked_paths.blocked.get(address_vector).filter(blocked_by).map(|rest| rest.why)
    }

    /// The device has resolved a path, with or without success.
    pub(super) fn note_search(&mut self, address_vector: &AddressVector, found: Result<(), RailFault>) {
        let took = self.device.address_ns();
        match found {
            Ok(()) => drop(self.blocked_paths.blocked.remove(address_vector)),
            Err(why) if took >= SLOW.0 => {
                // No more entries than hosts without an answer, and none for longer than twice its rest.
                let now = self.now;
                self.blocked_paths
                    .blocked
                    .retain(|_, rest| now.0 < rest.until.0.saturating_add(took.saturating_mul(BLOCKED_MAX)));
                let before = self.blocked_paths.blocked.get(address_vector);
                let times = before.map_or(BLOCKED_MIN, |rest| (rest.times * 2).min(BLOCKED_MAX));
                let was_taken = before.is_some_and(|rest| rest.retry == Retry::Taken);
                let retry = if was_taken { Retry::Spent } else { Retry::None };
                let until = self.now + Nanos(took.saturating_mul(1 + times));
                tracing::info!(rail = %self.options.name, ?address_vector, took, ?why, "the way to a peer was not found");
                self.blocked_paths.blocked.insert(*address_vector, Blocked { until, times, why, retry });
            }
            Err(_) => {}
        }
    }

    /// A message from the other end of a path has arrived.
    pub(super) fn received_from(&mut self, address_vector: &AddressVector) {
        if let Some(rest) = self.blocked_paths.blocked.get_mut(address_vector).filter(|rest| rest.retry == Retry::None)
        {
            rest.retry = Retry::Taken;
        }
    }

    /// The handle for a path: that of the link if it has one, or a new one, which the link keeps. Without a
    /// link it is the caller's, to be given to [`drop_handle`](Self::drop_handle).
    pub(super) fn handle_for(&mut self, address_vector: &AddressVector, link: Option<u32>) -> Result<AhId, RailFault> {
        let kept = link.and_then(|index| self.links.get(index)).and_then(|link| link.handle);
        if let Some((handle, _)) = kept.filter(|(_, of)| of == address_vector) {
            return Ok(handle);
        }
        if let Some(why) = self.blocked_by(address_vector) {
            return Err(why);
        }
        let made = self.device.create_ah(self.objects.pd, address_vector).map_err(|why| {
            tracing::debug!(rail = %self.options.name, %why, "no address handle");
            codes::of_create(&why)
        });
        self.note_search(address_vector, made.map(drop));
        let handle = made?;
        if let Some(link) = link.and_then(|index| self.links.get_mut(index))
            && let Some((old, _)) = link.handle.replace((handle, *address_vector))
        {
            self.drop_handle(old);
        }
        Ok(handle)
    }

    /// An established link without a message needs no handle any more; a repeated READY makes one again.
    pub(super) fn give_handle_back(&mut self, index: u32) {
        let link = self.links.get_mut(index).filter(|link| link.is_up_reported && !link.is_send_due);
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
