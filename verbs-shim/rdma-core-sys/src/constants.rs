//! C enums as integers; values from `infiniband/verbs.h`, compared with it by `check-layout.sh`.

use core::ffi::c_int;

/// `enum ibv_node_type`.
pub type ibv_node_type = c_int;
/// The provider doesn't say.
pub const IBV_NODE_UNKNOWN: ibv_node_type = -1;
/// InfiniBand or RoCE channel adapter.
pub const IBV_NODE_CA: ibv_node_type = 1;
/// InfiniBand switch.
pub const IBV_NODE_SWITCH: ibv_node_type = 2;
/// InfiniBand router.
pub const IBV_NODE_ROUTER: ibv_node_type = 3;
/// iWARP NIC.
pub const IBV_NODE_RNIC: ibv_node_type = 4;
/// usNIC.
pub const IBV_NODE_USNIC: ibv_node_type = 5;
/// usNIC over UDP.
pub const IBV_NODE_USNIC_UDP: ibv_node_type = 6;
/// A device of no standard sort (EFA for one).
pub const IBV_NODE_UNSPECIFIED: ibv_node_type = 7;

/// `enum ibv_transport_type`.
pub type ibv_transport_type = c_int;
/// InfiniBand transport: InfiniBand and RoCE.
pub const IBV_TRANSPORT_IB: ibv_transport_type = 0;
/// iWARP.
pub const IBV_TRANSPORT_IWARP: ibv_transport_type = 1;

/// `enum ibv_atomic_cap`.
pub type ibv_atomic_cap = c_int;
/// No atomics.
pub const IBV_ATOMIC_NONE: ibv_atomic_cap = 0;
/// Atomic among the queue pairs of this device.
pub const IBV_ATOMIC_HCA: ibv_atomic_cap = 1;
/// Atomic with the processors too.
pub const IBV_ATOMIC_GLOB: ibv_atomic_cap = 2;

/// `ibv_device_attr::device_cap_flags`: the device has XRC.
pub const IBV_DEVICE_XRC: u32 = 1 << 20;

/// `enum ibv_port_state`.
pub type ibv_port_state = c_int;
/// No state change.
pub const IBV_PORT_NOP: ibv_port_state = 0;
/// No link.
pub const IBV_PORT_DOWN: ibv_port_state = 1;
/// The link stands, the subnet manager has not configured it.
pub const IBV_PORT_INIT: ibv_port_state = 2;
/// Configured, not yet active.
pub const IBV_PORT_ARMED: ibv_port_state = 3;
/// In service.
pub const IBV_PORT_ACTIVE: ibv_port_state = 4;
/// In service, link down for the moment.
pub const IBV_PORT_ACTIVE_DEFER: ibv_port_state = 5;

/// `enum ibv_mtu`.
pub type ibv_mtu = c_int;
/// 256 bytes.
pub const IBV_MTU_256: ibv_mtu = 1;
/// 512 bytes.
pub const IBV_MTU_512: ibv_mtu = 2;
/// 1024 bytes.
pub const IBV_MTU_1024: ibv_mtu = 3;
/// 2048 bytes.
pub const IBV_MTU_2048: ibv_mtu = 4;
/// 4096 bytes.
pub const IBV_MTU_4096: ibv_mtu = 5;

/// `ibv_port_attr::link_layer`: not told; by convention InfiniBand.
pub const IBV_LINK_LAYER_UNSPECIFIED: u8 = 0;
/// InfiniBand.
pub const IBV_LINK_LAYER_INFINIBAND: u8 = 1;
/// Ethernet (RoCE, iWARP).
pub const IBV_LINK_LAYER_ETHERNET: u8 = 2;

/// `ibv_gid_entry::gid_type`: InfiniBand.
pub const IBV_GID_TYPE_IB: u32 = 0;
/// RoCE version 1: Ethernet frames, one broadcast domain.
pub const IBV_GID_TYPE_ROCE_V1: u32 = 1;
/// RoCE version 2: UDP, routable.
pub const IBV_GID_TYPE_ROCE_V2: u32 = 2;
