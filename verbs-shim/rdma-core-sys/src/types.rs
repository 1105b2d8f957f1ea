//! C structs as libibverbs lays them out; compared with its headers by `check-layout.sh`.
//!
//! Invariant: a struct that the library fills is never smaller here than the bytes that the function writes.
//! The versions of the functions that [`Functions`](crate::Functions) pins write fixed sizes.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::constants::*;
use crate::objects::*;
use crate::offers::*;
use crate::work::{ibv_recv_wr, ibv_send_wr, ibv_wc};

/// Bytes of a device's name with its final NUL.
pub const IBV_SYSFS_NAME_MAX: usize = 64;
/// Bytes of a sysfs path with its final NUL.
pub const IBV_SYSFS_PATH_MAX: usize = 256;

/// A device as the library lists it; made by the library only.
#[repr(C)]
pub struct ibv_device {
    /// Obsolete.
    pub _ops: [*mut c_void; 2],
    /// `IBV_NODE_*`.
    pub node_type: ibv_node_type,
    /// `IBV_TRANSPORT_*`.
    pub transport_type: ibv_transport_type,
    /// Name of the kernel's device: `mlx5_0`.
    pub name: [c_char; IBV_SYSFS_NAME_MAX],
    /// Name of its character device in `/dev/infiniband`: `uverbs0`.
    pub dev_name: [c_char; IBV_SYSFS_NAME_MAX],
    /// sysfs path of the character device.
    pub dev_path: [c_char; IBV_SYSFS_PATH_MAX],
    /// sysfs path of the device.
    pub ibdev_path: [c_char; IBV_SYSFS_PATH_MAX],
}

/// The table of the data path's functions that a context carries. Entries that nothing calls are plain
/// pointers.
#[repr(C)]
pub struct ibv_context_ops {
    /// Obsolete entries and memory windows.
    pub _before_poll_cq: [*mut c_void; 11],
    /// `ibv_poll_cq`: how many completions were taken, or negative.
    pub poll_cq: Option<unsafe extern "C" fn(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int>,
    /// `ibv_req_notify_cq`: errno.
    pub req_notify_cq: Option<unsafe extern "C" fn(cq: *mut ibv_cq, solicited_only: c_int) -> c_int>,
    /// Obsolete entries.
    pub _before_post_srq_recv: [*mut c_void; 7],
    /// `ibv_post_srq_recv`: errno, and the first request that was not taken.
    pub post_srq_recv:
        Option<unsafe extern "C" fn(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int>,
    /// Obsolete entries.
    pub _before_post_send: [*mut c_void; 4],
    /// `ibv_post_send`: errno, and the first request that was not taken.
    pub post_send:
        Option<unsafe extern "C" fn(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int>,
    /// `ibv_post_recv`: errno, and the first request that was not taken.
    pub post_recv:
        Option<unsafe extern "C" fn(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int>,
    /// Obsolete entries.
    pub _after_post_recv: [*mut c_void; 5],
}

/// An opened device; made by the library only.
#[repr(C)]
pub struct ibv_context {
    /// The device.
    pub device: *mut ibv_device,
    /// Data path.
    pub ops: ibv_context_ops,
    /// Descriptor of the character device.
    pub cmd_fd: c_int,
    /// Descriptor that asynchronous events are read from.
    pub async_fd: c_int,
    /// Completion vectors (interrupts) that there are.
    pub num_comp_vectors: c_int,
    /// The library's.
    pub mutex: libc::pthread_mutex_t,
    /// [`VERBS_ABI_IS_EXTENDED`] where the context is the last part of a [`verbs_context`].
    pub abi_compat: *mut c_void,
}

/// `__VERBS_ABI_IS_EXTENDED`, as a number.
pub const VERBS_ABI_IS_EXTENDED: usize = usize::MAX;

/// The table before an [`ibv_context`]. It grows at its beginning, so only its end is declared; `sz` gives
/// its size. Its functions are called through [`inline`](crate::inline) alone.
#[repr(C)]
pub struct verbs_context {
    /// `ibv_modify_cq`: errno.
    pub modify_cq: Option<unsafe extern "C" fn(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int>,
    /// Work queues, extended completion queues, the library's own.
    pub _before_query_device_ex: [*mut c_void; 9],
    /// `ibv_query_device_ex`: errno; fills no more than `attr_size` bytes.
    pub query_device_ex: Option<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            input: *const ibv_query_device_ex_input,
            attr: *mut ibv_device_attr_ex,
            attr_size: usize,
        ) -> c_int,
    >,
    /// Flows.
    pub _before_open_qp: [*mut c_void; 4],
    /// `ibv_open_qp`.
    pub open_qp: Option<unsafe extern "C" fn(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp>,
    /// `ibv_create_qp_ex`.
    pub create_qp_ex:
        Option<unsafe extern "C" fn(context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
    /// `ibv_get_srq_num`: errno.
    pub get_srq_num: Option<unsafe extern "C" fn(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int>,
    /// `ibv_create_srq_ex`.
    pub create_srq_ex:
        Option<unsafe extern "C" fn(context: *mut ibv_context, attr: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq>,
    /// `ibv_open_xrcd`.
    pub open_xrcd:
        Option<unsafe extern "C" fn(context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd>,
    /// `ibv_close_xrcd`: errno.
    pub close_xrcd: Option<unsafe extern "C" fn(xrcd: *mut ibv_xrcd) -> c_int>,
    /// The library's.
    pub _placeholder: u64,
    /// Bytes of the whole struct, with the context.
    pub sz: usize,
    /// The context.
    pub context: ibv_context,
}

/// The attributes of a device from `ibv_query_device`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_device_attr {
    /// Firmware version, NUL-terminated.
    pub fw_ver: [c_char; 64],
    /// Node GUID, big-endian.
    pub node_guid: u64,
    /// System image GUID, big-endian.
    pub sys_image_guid: u64,
    /// Largest memory region in bytes.
    pub max_mr_size: u64,
    /// Page sizes supported, one bit each.
    pub page_size_cap: u64,
    /// PCI or IEEE vendor.
    pub vendor_id: u32,
    /// Vendor's part number.
    pub vendor_part_id: u32,
    /// Hardware revision.
    pub hw_ver: u32,
    /// Queue pairs.
    pub max_qp: c_int,
    /// Work requests in one queue.
    pub max_qp_wr: c_int,
    /// `IBV_DEVICE_*`.
    pub device_cap_flags: c_uint,
    /// Scatter/gather entries of a work request.
    pub max_sge: c_int,
    /// Scatter/gather entries of an RDMA read.
    pub max_sge_rd: c_int,
    /// Completion queues.
    pub max_cq: c_int,
    /// Entries of one completion queue.
    pub max_cqe: c_int,
    /// Memory regions.
    pub max_mr: c_int,
    /// Protection domains.
    pub max_pd: c_int,
    /// Incoming RDMA reads and atomics of one queue pair.
    pub max_qp_rd_atom: c_int,
    /// Of one EE context.
    pub max_ee_rd_atom: c_int,
    /// Of the device.
    pub max_res_rd_atom: c_int,
    /// Outgoing RDMA reads and atomics of one queue pair.
    pub max_qp_init_rd_atom: c_int,
    /// Of one EE context.
    pub max_ee_init_rd_atom: c_int,
    /// `IBV_ATOMIC_*`.
    pub atomic_cap: ibv_atomic_cap,
    /// EE contexts.
    pub max_ee: c_int,
    /// RD domains.
    pub max_rdd: c_int,
    /// Memory windows.
    pub max_mw: c_int,
    /// Raw IPv6 queue pairs.
    pub max_raw_ipv6_qp: c_int,
    /// Raw Ethertype queue pairs.
    pub max_raw_ethy_qp: c_int,
    /// Multicast groups.
    pub max_mcast_grp: c_int,
    /// Queue pairs of one multicast group.
    pub max_mcast_qp_attach: c_int,
    /// Of all.
    pub max_total_mcast_qp_attach: c_int,
    /// Address handles.
    pub max_ah: c_int,
    /// Fast memory regions.
    pub max_fmr: c_int,
    /// Remaps of one of them.
    pub max_map_per_fmr: c_int,
    /// Shared receive queues.
    pub max_srq: c_int,
    /// Work requests in one of them.
    pub max_srq_wr: c_int,
    /// Scatter/gather entries of one of these.
    pub max_srq_sge: c_int,
    /// Partitions.
    pub max_pkeys: u16,
    /// Local ACK delay: 4.096 us times 2 to the power of this.
    pub local_ca_ack_delay: u8,
    /// Physical ports.
    pub phys_port_cnt: u8,
}

/// The attributes of a port from `ibv_query_port`.
///
/// The exported function fills everything up to and including `flags`; `port_cap_flags2`, and what newer
/// headers put behind it, comes only through the `verbs_context` table.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_port_attr {
    /// `IBV_PORT_*`.
    pub state: ibv_port_state,
    /// `IBV_MTU_*`: the largest possible.
    pub max_mtu: ibv_mtu,
    /// `IBV_MTU_*`: in use.
    pub active_mtu: ibv_mtu,
    /// Entries of the GID table.
    pub gid_tbl_len: c_int,
    /// `IBV_PORT_*_SUP`.
    pub port_cap_flags: u32,
    /// Longest message in bytes.
    pub max_msg_sz: u32,
    /// Packets with a bad P_Key.
    pub bad_pkey_cntr: u32,
    /// Packets with a bad Q_Key.
    pub qkey_viol_cntr: u32,
    /// Entries of the P_Key table.
    pub pkey_tbl_len: u16,
    /// Base local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The subnet manager's.
    pub sm_lid: u16,
    /// LID mask control: the port uses 2 to the power of this LIDs.
    pub lmc: u8,
    /// Virtual lanes.
    pub max_vl_num: u8,
    /// Service level to the subnet manager.
    pub sm_sl: u8,
    /// Subnet propagation delay: 4.096 us times 2 to the power of this.
    pub subnet_timeout: u8,
    /// The subnet manager's reply at initialisation.
    pub init_type_reply: u8,
    /// Lanes, as the bit code of the PortInfo attribute.
    pub active_width: u8,
    /// Speed of one lane, as the bit code of the PortInfo attribute.
    pub active_speed: u8,
    /// Physical state.
    pub phys_state: u8,
    /// `IBV_LINK_LAYER_*`.
    pub link_layer: u8,
    /// `IBV_QPF_*`.
    pub flags: u8,
    /// Not filled by the exported function.
    pub port_cap_flags2: u16,
}

/// `union ibv_gid`: 16 bytes, 8-byte aligned as its `global` view is.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_gid {
    /// In network order: subnet prefix, interface identifier.
    pub raw: [u8; 16],
}

/// One entry of a port's GID table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_gid_entry {
    /// The identifier.
    pub gid: ibv_gid,
    /// Where in the table.
    pub gid_index: u32,
    /// The port.
    pub port_num: u32,
    /// `IBV_GID_TYPE_*`.
    pub gid_type: u32,
    /// Index of the network interface that it belongs to; 0: none.
    pub ndev_ifindex: u32,
}
