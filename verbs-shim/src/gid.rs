//! Identifiers of nodes and ports, and the entries of a port's GID table (InfiniBand specification, 4.1).

use std::net::Ipv6Addr;
use std::path::Path;
use std::{fmt, fs};

use rdma_core_sys::{self as sys, ibv_gid_entry};

use crate::port::LinkLayer;

/// The kernel's folder of devices.
pub(crate) const SYSFS: &str = "/sys/class/infiniband";

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
    /// The IPv4 address of an IPv4-mapped RoCE GID; else `None`.
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
    /// Its index in the table: address handles name it.
    pub index: u32,
    /// The identifier.
    pub gid: Gid,
    /// The protocol it belongs to; `None`: neither the library (before rdma-core 33, on Ethernet) nor the
    /// kernel reports it.
    pub kind: Option<GidKind>,
    /// Index of the network interface that it comes from, on RoCE.
    pub interface: Option<u32>,
}

impl GidEntry {
    /// `typed`: the entry's type was reported, or can only be InfiniBand.
    pub(crate) fn new(index: u32, entry: &ibv_gid_entry, typed: bool) -> Self {
        GidEntry {
            index,
            gid: Gid(entry.gid.raw),
            kind: typed.then_some(entry.gid_type.into()),
            interface: (entry.ndev_ifindex != 0).then_some(entry.ndev_ifindex),
        }
    }

    /// The one to use a port by: on InfiniBand the first, on Ethernet the one that reaches furthest (RoCE v2
    /// before v1, an IPv4 address before others, a link-local one last), of equals the first. An address
    /// handle names none beyond 255.
    pub fn best(entries: &[GidEntry], link_layer: LinkLayer) -> Option<&GidEntry> {
        let mut fit = entries.iter().filter(|entry| entry.index < 256);
        if link_layer != LinkLayer::Ethernet {
            return fit.next();
        }
        // Of equals the last is taken: so the earliest must be greatest.
        fit.max_by_key(|entry| (entry.reach(), std::cmp::Reverse(entry.index)))
    }

    /// How far a RoCE GID reaches.
    fn reach(&self) -> (bool, bool, bool) {
        let link_local = self.gid.0[..2] == [0xfe, 0x80];
        (self.kind != Some(GidKind::RoceV1), self.gid.ipv4().is_some(), !link_local)
    }
}

/// The protocol of a GID on Ethernet, as the kernel writes it below `sysfs` (`gid_attrs/types`, since Linux
/// 4.4); `None`: it doesn't.
pub(crate) fn kind_in(sysfs: &Path, device: &str, port: u8, index: u32) -> Option<GidKind> {
    let path = sysfs.join(device).join(format!("ports/{port}/gid_attrs/types/{index}"));
    match fs::read_to_string(path).ok()?.trim_end() {
        "IB/RoCE v1" => Some(GidKind::RoceV1),
        "RoCE v2" => Some(GidKind::RoceV2),
        _ => None,
    }
}

coded! {
    /// The protocol that a GID belongs to. Both ends of a connection must use the same.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum GidKind(u32), "GID type {}" {
        /// InfiniBand.
        InfiniBand = sys::IBV_GID_TYPE_IB, "InfiniBand";
        /// RoCE version 1.
        RoceV1 = sys::IBV_GID_TYPE_ROCE_V1, "RoCE v1";
        /// RoCE version 2.
        RoceV2 = sys::IBV_GID_TYPE_ROCE_V2, "RoCE v2";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gid_kind_is_read_from_sysfs_if_the_library_lacks_it() {
        let root = std::env::temp_dir().join(format!("rerail-gids-{}", std::process::id()));
        let types = root.join("mlx5_9/ports/2/gid_attrs/types");
        fs::create_dir_all(&types).unwrap();
        for (index, text) in [(0, "IB/RoCE v1\n"), (1, "RoCE v2\n"), (2, "something else\n")] {
            fs::write(types.join(format!("{index}")), text).unwrap();
        }
        let reported = [0, 1, 2, 3].map(|index| kind_in(&root, "mlx5_9", 2, index));
        let port_1 = kind_in(&root, "mlx5_9", 1, 0);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!((reported, port_1), ([Some(GidKind::RoceV1), Some(GidKind::RoceV2), None, None], None));
    }

    #[test]
    fn the_gid_that_reaches_furthest_is_best() {
        let v4 = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7]);
        let (local, global) = (Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]), Gid([0x20; 16]));
        let (v1, v2) = (Some(GidKind::RoceV1), Some(GidKind::RoceV2));
        let entry = |(index, gid, kind)| GidEntry { index, gid, kind, interface: None };
        let best = |list: &[(u32, Gid, Option<GidKind>)], layer| {
            let entries: Vec<_> = list.iter().copied().map(entry).collect();
            GidEntry::best(&entries, layer).map(|entry| entry.index)
        };
        let ethernet = LinkLayer::Ethernet;
        assert_eq!(best(&[(0, local, v1), (1, local, v2), (2, v4, v1), (3, v4, v2)], ethernet), Some(3));
        assert_eq!(best(&[(0, local, v2), (1, global, v2), (2, global, v2), (3, v4, v1)], ethernet), Some(1));
        // Where the kind is unknown, the first of a pair, which is v1 with most drivers.
        assert_eq!(best(&[(2, v4, None), (3, v4, None)], ethernet), Some(2));
        assert_eq!(best(&[(1, local, None), (3, v4, None)], LinkLayer::InfiniBand), Some(1));
        assert_eq!(best(&[(256, v4, v2)], ethernet), None);
        assert_eq!(best(&[], ethernet), None);
    }
}
