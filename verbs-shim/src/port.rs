//! A port: its address in the fabric and the speed of its link (InfiniBand specification, 14.2.5.6,
//! PortInfo).

use rdma_core_sys::{self as sys, ibv_port_attr};

/// A port of a device, as it was when queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number; ports count from 1.
    pub number: u8,
    /// Its state.
    pub state: PortState,
    /// InfiniBand or Ethernet.
    pub link_layer: LinkLayer,
    /// Base local identifier; 0 on Ethernet.
    pub lid: u16,
    /// LID mask control: the port uses `2^lmc` consecutive LIDs, each of which may be another path; 0
    /// on Ethernet.
    pub lmc: u8,
    /// InfiniBand: the port shares its LID with others (as virtual functions do); packets to it or from it
    /// need a global route.
    pub needs_global: bool,
    /// The subnet manager's local identifier.
    pub manager_lid: u16,
    /// Entries of the GID table, those in use and those not.
    pub gid_table_len: u32,
    /// MTU in use, in bytes; `None`: not reported.
    pub mtu_bytes: Option<u16>,
    /// Largest MTU possible, in bytes; `None`: not reported.
    pub mtu_bytes_max: Option<u16>,
    /// Longest message in bytes.
    pub message_bytes_max: u32,
    /// Lanes in use; `None`: an unknown code.
    pub lanes: Option<u8>,
    /// Signalling rate of one lane in Mbit/s; `None`: an unknown code.
    pub lane_mbit_per_second: Option<u32>,
}

impl Port {
    pub(crate) fn new(number: u8, attr: &ibv_port_attr) -> Self {
        let link_layer = match attr.link_layer {
            // Drivers from before RoCE leave it unset.
            sys::IBV_LINK_LAYER_UNSPECIFIED => LinkLayer::InfiniBand,
            code => code.into(),
        };
        // Some drivers report one on Ethernet all the same (irdma: 1).
        let (lid, lmc) = if link_layer == LinkLayer::Ethernet { (0, 0) } else { (attr.lid, attr.lmc) };
        Port {
            number,
            state: PortState::from(attr.state),
            link_layer,
            lid,
            lmc,
            needs_global: link_layer == LinkLayer::InfiniBand && attr.flags & sys::IBV_QPF_GRH_REQUIRED != 0,
            manager_lid: attr.sm_lid,
            gid_table_len: u32::try_from(attr.gid_tbl_len).unwrap_or(0),
            mtu_bytes: mtu_bytes(attr.active_mtu),
            mtu_bytes_max: mtu_bytes(attr.max_mtu),
            message_bytes_max: attr.max_msg_sz,
            lanes: lanes(attr.active_width),
            lane_mbit_per_second: lane_mbit_per_second(attr.active_speed),
        }
    }

    /// Signalling rate of the link in Mbit/s: that of a lane times the lanes. The line code reduces the data
    /// rate: 8/10 up to QDR, 64/66 and better from FDR on.
    pub fn mbit_per_second(&self) -> Option<u32> {
        Some(self.lane_mbit_per_second? * u32::from(self.lanes?))
    }
}

coded! {
    /// A port's state.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum PortState(i32), "state {}" {
        /// No link.
        Down = sys::IBV_PORT_DOWN, "down";
        /// The link is up; the subnet manager has not configured it.
        Initialising = sys::IBV_PORT_INIT, "initialising";
        /// Configured, not yet active.
        Armed = sys::IBV_PORT_ARMED, "armed";
        /// In service.
        Active = sys::IBV_PORT_ACTIVE, "active";
        /// In service; the link is down for the moment.
        ActiveDeferred = sys::IBV_PORT_ACTIVE_DEFER, "active, link down";
    }
}

coded! {
    /// The type of a port's link.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum LinkLayer(u8), "link layer {}" {
        /// InfiniBand: addressed by LID.
        InfiniBand = sys::IBV_LINK_LAYER_INFINIBAND, "InfiniBand";
        /// Ethernet: addressed by GID.
        Ethernet = sys::IBV_LINK_LAYER_ETHERNET, "Ethernet";
    }
}

/// `enum ibv_mtu` in bytes.
pub(crate) fn mtu_bytes(code: i32) -> Option<u16> {
    match code {
        sys::IBV_MTU_256 => Some(256),
        sys::IBV_MTU_512 => Some(512),
        sys::IBV_MTU_1024 => Some(1024),
        sys::IBV_MTU_2048 => Some(2048),
        sys::IBV_MTU_4096 => Some(4096),
        _ => None,
    }
}

/// PortInfo's LinkWidthActive.
fn lanes(code: u8) -> Option<u8> {
    match code {
        1 => Some(1),
        2 => Some(4),
        4 => Some(8),
        8 => Some(12),
        16 => Some(2),
        _ => None,
    }
}

/// PortInfo's LinkSpeedActive and LinkSpeedExtActive, which verbs merges into one code: SDR, DDR, QDR, FDR10,
/// FDR, EDR, HDR, NDR. Rates are those of the names, rounded to the specification's tables.
fn lane_mbit_per_second(code: u8) -> Option<u32> {
    match code {
        1 => Some(2_500),
        2 => Some(5_000),
        4 | 8 => Some(10_000),
        16 => Some(14_000),
        32 => Some(25_000),
        64 => Some(50_000),
        128 => Some(100_000),
        _ => None,
    }
}
