//! Ports that go down, come back, and may come back elsewhere. Rule V-11.
//!
//! A device reports its ports' changes by events, and each causes a query of the port's state: an event's
//! content may be outdated when it is read. A link that is down for a moment costs nothing, because the
//! device repeats requests; so connections are ended only when it has been down for `port_grace`, which is
//! far below the time that the device's own retries take. A port that is back with another LID has moved. On
//! Ethernet, or where it requires a global route, so has one with another GID, or with the same at another
//! index of its table. Queue pairs of peers then send to the old address, or ours name the old index, so all
//! connections end at once. A port that is addressed by GID and has none is down. The port is queried before
//! a call too, unless that was done in the last 10 ms: events may be late, or never come.

use rerail_core::endpoint::RailFault;
use rerail_core::time::{Nanos, Time};
use rerail_verbs::contract::{CreateError, Device};
use rerail_verbs::{Gid, GidEntry, Port, PortState};

use super::address::Address;
use super::options::VerbsError;
use super::partition::{self, Partition};
use super::{VerbsRail, codes};

/// Before a call the port is not queried again that soon: each query is a command to the device, and
/// thousands of peers are called at once.
const PORT_CHECK_MIN: Nanos = Nanos::from_millis(10);

/// The port is down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    /// When connections are ended; `None`: they are.
    pub until: Option<Time>,
}

impl<D: Device> VerbsRail<D> {
    /// Queries the port's state and address, unless that was just done.
    pub(super) fn recheck_port(&mut self) {
        let due = self.port_checked_at.is_none_or(|port_checked_at| port_checked_at + PORT_CHECK_MIN <= self.now);
        if due || self.outage.is_some() {
            self.check_port();
        }
    }

    /// Queries the port's state and address.
    pub(super) fn check_port(&mut self) {
        let number = self.port.number;
        self.port_checked_at = Some(self.now);
        let known = (self.port.gid_index, self.port.address.gid);
        let named = self.options.gid_index;
        let requested =
            self.device.port(number).and_then(|port| Ok((port, gid_of(&*self.device, &port, named, Some(known))?)));
        let (port, (gid_index, gid)) = match requested {
            Ok(found) => found,
            Err(CreateError::DeviceGone) => {
                self.broken = true;
                return;
            }
            Err(why) => {
                tracing::debug!(rail = %self.options.name, %why, "the port's state can't be queried");
                return;
            }
        };
        if !is_usable(&port, &gid) {
            self.outage.get_or_insert(Outage { until: Some(self.now + self.options.port_grace) });
            return;
        }
        // During the grace period nothing has ended, and nothing waits.
        self.revival.back_due |= self.outage.is_some_and(|outage| outage.until.is_none());
        self.outage = None;
        let before = self.port.address;
        self.port.address.lid = self.lid_of(&port);
        (self.port.address.lmc, self.port.address.gid) = (port.lmc, gid);
        self.port.mtu = port.mtu_bytes.unwrap_or(self.port.mtu);
        let by_gid = before.ethernet || before.global;
        let moved = by_gid && known != (gid_index, gid) || !before.ethernet && before.lid != self.port.address.lid;
        self.port.gid_index = gid_index;
        if moved {
            tracing::info!(rail = %self.options.name, address = %self.port.address, "the port has another address");
            // Others behind the same port have moved with it, without a way to notify us.
            let after = self.port.address;
            self.peers.moved(&before, &after);
            self.fail_all(RailFault::Device { code: codes::PORT_MOVED });
        }
        self.check_partition(&port);
    }

    /// Where the port's partition key is another one than ours, all queue pairs are in the wrong partition.
    /// They end, but for the one for datagrams, which keeps its number and so our address (V-20).
    fn check_partition(&mut self, port: &Port) {
        let Partition { index, key, .. } = self.port.partition;
        if key == 0 {
            return;
        }
        if self.device.pkey(port.number, index).is_ok_and(|now| now == key) {
            self.port.partition.lost = false;
            return;
        }
        match partition::choose(&*self.device, port, self.options.pkey) {
            Ok(now) => {
                tracing::warn!(rail = %self.options.name, ?now, "the port has another partition key");
                self.port.partition = now;
                self.datagrams.note_failure();
                self.fail_all(RailFault::Device { code: codes::PORT_MOVED });
            }
            Err(VerbsError::Create { why: CreateError::DeviceGone, .. }) => self.broken = true,
            // When there is one again, another event reports it, or the next call finds it. It is
            // reported once.
            Err(why) if !std::mem::replace(&mut self.port.partition.lost, true) => {
                tracing::warn!(rail = %self.options.name, %why, "the port has no such partition key any more");
            }
            Err(_) => {}
        }
    }

    /// Ends connections over a port that has been down for too long; returns how many things happened.
    pub(super) fn end_grace(&mut self) -> usize {
        if self.outage.is_none_or(|outage| outage.until.is_none_or(|until| until > self.now)) {
            return 0;
        }
        // Possibly no event reported that it is back.
        self.check_port();
        if let Some(outage) = self.outage.as_mut() {
            outage.until = None;
            tracing::warn!(rail = %self.options.name, "the port is down");
            self.fail_all(RailFault::Device { code: codes::PORT_DOWN });
        }
        1
    }

    /// Whether the port or the queue pair for datagrams is at an address that was not announced. While the
    /// port is down it has none.
    pub(super) fn has_moved(&self) -> bool {
        !self.broken && self.outage.is_none() && self.port.address != self.announced
    }

    /// The LID of this rail's path (V-10); a port that is not ready has none.
    pub(super) fn lid_of(&self, port: &Port) -> u16 {
        port.lid | u16::from(self.options.path)
    }
}

/// Whether something can be sent over a port; on InfiniBand, whether it has its LID, on Ethernet and where it
/// requires a global route, a GID.
pub(super) fn is_usable(port: &Port, gid: &Gid) -> bool {
    let is_ethernet = Address::is_ethernet(port.link_layer);
    let has_lid = is_ethernet || port.lid != 0;
    let has_gid = !(is_ethernet || port.needs_global) || *gid != Gid::default();
    port.state == PortState::Active && has_lid && has_gid
}

/// The GID by which a port is used, and its index (V-19): the configured one; or the one in use as long as it
/// is there, at any index; or the best one. Zero: there is none.
pub(super) fn gid_of(
    device: &impl Device,
    port: &Port,
    named: Option<u8>,
    known: Option<(u8, Gid)>,
) -> Result<(u8, Gid), CreateError> {
    if let Some(index) = named {
        return Ok((index, device.gid(port.number, index)?));
    }
    if let Some((index, gid)) = known.filter(|(_, gid)| *gid != Gid::default())
        && device.gid(port.number, index).is_ok_and(|now| now == gid)
    {
        return Ok((index, gid));
    }
    let used = device.gids(port.number)?;
    let same: Vec<_> = used.iter().filter(|entry| known.is_some_and(|(_, gid)| gid == entry.gid)).copied().collect();
    let best = GidEntry::best(&same, port.link_layer).or(GidEntry::best(&used, port.link_layer));
    let found = best.and_then(|entry| Some((u8::try_from(entry.index).ok()?, entry.gid)));
    Ok(found.unwrap_or((known.map_or(0, |(index, _)| index), Gid::default())))
}
