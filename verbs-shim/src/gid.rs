//! Identifiers of nodes and ports, and the entries of a port's GID table (InfiniBand specification, 4.1).

use std::fmt;
use std::net::Ipv6Addr;

use rdma_core_sys::{self as sys, ibv_gid_entry};

/// A globally unique identifier of a node, in network order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Guid(pub [u8; 8]);

impl fmt::Display for Guid {
    /// As rdma-core prints it: `0002:c903:0000:1234`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, h, i] = self.0;
        write!(f, "{a:02x}{b:02x}:{c:02x}{d:02x}:{e:02x}{g:02x}:{h:02x}{i:02x}")
    }
}

/// A global identifier: the address of a port in IPv6 form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IPv4 address that a RoCE GID stands for, where it stands for one.
    pub fn ipv4(&self) -> Option<std::net::Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

/// One entry of a port's GID table that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Where in the table it stands: what an address handle names.
    pub index: u32,
    /// The identifier.
    pub gid: Gid,
    /// The protocol it belongs to; `None`: a library before rdma-core 33 doesn't tell on Ethernet.
    pub kind: Option<GidKind>,
    /// Index of the network interface that it comes from, on RoCE.
    pub interface: Option<u32>,
}

impl GidEntry {
    /// `typed`: the entry's type was told, or can only be InfiniBand.
    pub(crate) fn new(index: u32, entry: &ibv_gid_entry, typed: bool) -> Self {
        let kind = match entry.gid_type {
            sys::IBV_GID_TYPE_IB => GidKind::InfiniBand,
            sys::IBV_GID_TYPE_ROCE_V1 => GidKind::RoceV1,
            sys::IBV_GID_TYPE_ROCE_V2 => GidKind::RoceV2,
            other => GidKind::Other(other),
        };
        GidEntry {
            index,
            gid: Gid(entry.gid.raw),
            kind: typed.then_some(kind),
            interface: (entry.ndev_ifindex != 0).then_some(entry.ndev_ifindex),
        }
    }
}

/// The protocol that a GID belongs to. Both ends of a connection must use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// RoCE version 1.
    RoceV1,
    /// RoCE version 2.
    RoceV2,
    /// A number of `enum ibv_gid_type` that this crate has no name for.
    Other(u32),
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GidKind::InfiniBand => f.write_str("InfiniBand"),
            GidKind::RoceV1 => f.write_str("RoCE v1"),
            GidKind::RoceV2 => f.write_str("RoCE v2"),
            GidKind::Other(number) => write!(f, "GID type {number}"),
        }
    }
}
