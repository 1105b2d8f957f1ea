//! An open device: its attributes, ports and GID tables.

use std::fmt;
use std::path::Path;

use rdma_core_sys::{self as sys, ibv_device_attr};

use crate::error::{Query, QueryError};
use crate::ffi::{self, Handle};
use crate::gid::{self, GidEntry, Guid};
use crate::offers::Offers;
use crate::port::{LinkLayer, Port};

/// No device has tables of more entries.
const GIDS_MAX: usize = 1 << 20;

/// An open device. Closed when dropped.
pub struct Context {
    name: String,
    /// Path of its character device.
    node: String,
    handle: Handle,
}

impl Context {
    pub(crate) fn new(name: String, node: String, handle: Handle) -> Self {
        Context { name, node, handle }
    }

    /// Its parts: name, path of the character device, and handle.
    pub(crate) fn into_parts(self) -> (String, String, Handle) {
        (self.name, self.node, self.handle)
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device's attributes.
    pub fn attributes(&self) -> Result<DeviceAttributes, QueryError> {
        let attr = self.handle.query_device().map_err(|error| self.failed(Query::Device, error))?;
        Ok(DeviceAttributes::from(&attr))
    }

    /// Its optional features.
    pub fn offers(&self) -> Offers {
        self.handle.query_offers().map(|attr| Offers::of(&attr)).unwrap_or_default()
    }

    /// One port; ports count from 1.
    pub fn port(&self, number: u8) -> Result<Port, QueryError> {
        let attr = self.handle.query_port(number).map_err(|error| self.failed(Query::Port(number), error))?;
        Ok(Port::new(number, &attr))
    }

    /// All ports. The first one that can't be queried ends it: [`each_port`](Self::each_port) goes on.
    pub fn ports(&self) -> Result<Vec<Port>, QueryError> {
        self.each_port()?.collect()
    }

    /// All ports, each by itself: a failed query of one does not affect the others.
    ///
    /// # Errors
    /// The device does not report how many it has.
    pub fn each_port(&self) -> Result<impl Iterator<Item = Result<Port, QueryError>>, QueryError> {
        Ok((1..=self.attributes()?.ports).map(|number| self.port(number)))
    }

    /// The entries of a port's GID table that are in use, in ascending order.
    pub fn gids(&self, port: &Port) -> Result<Vec<GidEntry>, QueryError> {
        let failed = |(index, error)| self.failed(Query::Gid { port: port.number, index }, error);
        gids(&self.handle, &self.name, port).map_err(failed)
    }

    fn failed(&self, what: Query, error: std::io::Error) -> QueryError {
        QueryError { device: self.name.clone(), what, error }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The entries of a port's GID table that are in use, in ascending order; an error with the index of the
/// entry whose query failed.
pub(crate) fn gids(handle: &Handle, device: &str, port: &Port) -> Result<Vec<GidEntry>, (u32, std::io::Error)> {
    if let Some(entries) = gid_table(handle, port) {
        return Ok(entries);
    }
    let mut entries = Vec::new();
    for index in 0..port.gid_table_len {
        match handle.query_gid(port.number, index) {
            Ok(Some(entry)) => {
                let typed = handle.reports_gid_types() || port.link_layer != LinkLayer::Ethernet;
                let mut entry = GidEntry::new(index, &entry, typed);
                // RoCE v1 and v2 have entries with the same GID, and don't reach each other.
                entry.kind = entry.kind.or_else(|| gid::kind_in(Path::new(gid::SYSFS), device, port.number, index));
                entries.push(entry);
            }
            Ok(None) => {}
            Err(error) => return Err((index, error)),
        }
    }
    Ok(entries)
}

/// The same for the whole device at once, where library, kernel and device support it; a table has a thousand
/// entries, and a query for each is a system call. Errors here are found by the query for each.
fn gid_table(handle: &Handle, port: &Port) -> Option<Vec<GidEntry>> {
    let ports = handle.query_device().ok()?.phys_port_cnt;
    // The size of a port without an answer is unknown; if it has entries in use, there is no room for them.
    let answers = (1..=ports).filter(|number| *number != port.number).map(|number| handle.query_port(number));
    let others = answers.filter_map(|attr| u32::try_from(attr.ok()?.gid_tbl_len).ok());
    let room = others.fold(u64::from(port.gid_table_len), |room, entries| room + u64::from(entries));
    let room = usize::try_from(room).ok().filter(|room| (1..=GIDS_MAX).contains(room))?;
    let table = handle.query_gid_table(room)?.ok()?;
    let of_port =
        table.iter().filter(|entry| entry.port_num == u32::from(port.number) && entry.gid != Default::default());
    let mut entries: Vec<_> = of_port.map(|entry| GidEntry::new(entry.gid_index, entry, true)).collect();
    entries.sort_by_key(|entry| entry.index);
    Some(entries)
}

/// What a device is (`ibv_query_device`). Its limits: [`Device::limits`](crate::contract::Device::limits).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// Version of its firmware.
    pub firmware: String,
    /// GUID of the node.
    pub node_guid: Guid,
    /// GUID of the system (adapter card) that the node belongs to.
    pub system_guid: Guid,
    /// Vendor's IEEE or PCI number.
    pub vendor: u32,
    /// Vendor's number of the part.
    pub part: u32,
    /// Hardware revision.
    pub revision: u32,
    /// Ports; they count from 1.
    pub ports: u8,
    /// How long it may take to acknowledge, as a code of 5 bits: 4.096 us times 2 to the power of this (its
    /// local CA ACK delay); 0: unknown.
    pub ack_delay: u8,
    /// How far its atomics reach.
    pub atomics: AtomicReach,
    /// It has extended reliable connections.
    pub xrc: bool,
}

coded! {
    /// The accesses against which a device's atomics are atomic.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum AtomicReach(i32), "atomics of kind {}" {
        /// It has none.
        None = sys::IBV_ATOMIC_NONE, "none";
        /// Other atomics of this device.
        Device = sys::IBV_ATOMIC_HCA, "of this device";
        /// Also those of processors and other devices.
        Global = sys::IBV_ATOMIC_GLOB, "of all";
    }
}

impl From<&ibv_device_attr> for DeviceAttributes {
    fn from(attr: &ibv_device_attr) -> Self {
        DeviceAttributes {
            firmware: ffi::text(&attr.fw_ver),
            node_guid: Guid(attr.node_guid.to_ne_bytes()),
            system_guid: Guid(attr.sys_image_guid.to_ne_bytes()),
            vendor: attr.vendor_id,
            part: attr.vendor_part_id,
            revision: attr.hw_ver,
            ports: attr.phys_port_cnt,
            ack_delay: attr.local_ca_ack_delay.min(31),
            atomics: attr.atomic_cap.into(),
            xrc: attr.device_cap_flags & sys::IBV_DEVICE_XRC != 0,
        }
    }
}
