//! Objects of a device, and the parameters to make and change them.
//!
//! Objects are made by the library only; where one ends in the library's own fields (mutexes and conditions),
//! only the part before is declared.

use core::ffi::{c_int, c_uint, c_void};

use crate::constants::*;
use crate::types::{ibv_context, ibv_gid};

/// A protection domain.
#[repr(C)]
pub struct ibv_pd {
    /// Its device.
    pub context: *mut ibv_context,
    /// The kernel's name for it.
    pub handle: u32,
}

/// An XRC domain.
#[repr(C)]
pub struct ibv_xrcd {
    /// Its device.
    pub context: *mut ibv_context,
}

/// A memory registration.
#[repr(C)]
pub struct ibv_mr {
    /// Its device.
    pub context: *mut ibv_context,
    /// Its protection domain.
    pub pd: *mut ibv_pd,
    /// The memory.
    pub addr: *mut c_void,
    /// Bytes of it.
    pub length: usize,
    /// The kernel's name for it.
    pub handle: u32,
    /// Local key.
    pub lkey: u32,
    /// Remote key.
    pub rkey: u32,
}

/// A completion event channel.
#[repr(C)]
pub struct ibv_comp_channel {
    /// Its device.
    pub context: *mut ibv_context,
    /// Descriptor that becomes readable with an event.
    pub fd: c_int,
    /// The library's.
    pub refcnt: c_int,
}

/// A completion queue; the declared part.
#[repr(C)]
pub struct ibv_cq {
    /// Its device.
    pub context: *mut ibv_context,
    /// Where its events go.
    pub channel: *mut ibv_comp_channel,
    /// The user's.
    pub cq_context: *mut c_void,
    /// The kernel's name for it.
    pub handle: u32,
    /// Entries.
    pub cqe: c_int,
}

/// A shared receive queue; the declared part.
#[repr(C)]
pub struct ibv_srq {
    /// Its device.
    pub context: *mut ibv_context,
    /// The user's.
    pub srq_context: *mut c_void,
    /// Its protection domain.
    pub pd: *mut ibv_pd,
    /// The kernel's name for it.
    pub handle: u32,
}

/// A queue pair; the declared part.
#[repr(C)]
pub struct ibv_qp {
    /// Its device.
    pub context: *mut ibv_context,
    /// The user's.
    pub qp_context: *mut c_void,
    /// Its protection domain.
    pub pd: *mut ibv_pd,
    /// Where completions of sends go.
    pub send_cq: *mut ibv_cq,
    /// Where completions of receives go.
    pub recv_cq: *mut ibv_cq,
    /// Where receives come from, if not from a queue of its own.
    pub srq: *mut ibv_srq,
    /// The kernel's name for it.
    pub handle: u32,
    /// Its number.
    pub qp_num: u32,
    /// As the library estimates.
    pub state: ibv_qp_state,
    /// `IBV_QPT_*`.
    pub qp_type: ibv_qp_type,
}

/// An address handle.
#[repr(C)]
pub struct ibv_ah {
    /// Its device.
    pub context: *mut ibv_context,
    /// Its protection domain.
    pub pd: *mut ibv_pd,
    /// The kernel's name for it.
    pub handle: u32,
}

/// Sizes of a queue pair.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_qp_cap {
    /// Sends.
    pub max_send_wr: u32,
    /// Receives.
    pub max_recv_wr: u32,
    /// Pieces of memory of a send.
    pub max_send_sge: u32,
    /// Pieces of memory of a receive.
    pub max_recv_sge: u32,
    /// Inline bytes of a send.
    pub max_inline_data: u32,
}

/// The parameters of `ibv_create_qp`.
#[repr(C)]
pub struct ibv_qp_init_attr {
    /// The user's.
    pub qp_context: *mut c_void,
    /// Where completions of sends go.
    pub send_cq: *mut ibv_cq,
    /// Where completions of receives go.
    pub recv_cq: *mut ibv_cq,
    /// Where receives come from, if not from a queue of its own.
    pub srq: *mut ibv_srq,
    /// Sizes; the granted ones come back.
    pub cap: ibv_qp_cap,
    /// `IBV_QPT_*`.
    pub qp_type: ibv_qp_type,
    /// Every send makes a completion.
    pub sq_sig_all: c_int,
}

/// `struct ibv_rx_hash_conf`: for Ethernet.
#[repr(C)]
pub struct ibv_rx_hash_conf {
    /// Function.
    pub rx_hash_function: u8,
    /// Bytes of the key.
    pub rx_hash_key_len: u8,
    /// The key.
    pub rx_hash_key: *mut u8,
    /// Fields hashed.
    pub rx_hash_fields_mask: u64,
}

/// The parameters of `ibv_create_qp_ex`.
#[repr(C)]
pub struct ibv_qp_init_attr_ex {
    /// As in [`ibv_qp_init_attr`].
    pub qp_context: *mut c_void,
    /// As in [`ibv_qp_init_attr`].
    pub send_cq: *mut ibv_cq,
    /// As in [`ibv_qp_init_attr`].
    pub recv_cq: *mut ibv_cq,
    /// As in [`ibv_qp_init_attr`].
    pub srq: *mut ibv_srq,
    /// As in [`ibv_qp_init_attr`].
    pub cap: ibv_qp_cap,
    /// `IBV_QPT_*`.
    pub qp_type: ibv_qp_type,
    /// As in [`ibv_qp_init_attr`].
    pub sq_sig_all: c_int,
    /// `IBV_QP_INIT_ATTR_*`: which of the following mean something.
    pub comp_mask: u32,
    /// Protection domain.
    pub pd: *mut ibv_pd,
    /// XRC domain, of a target.
    pub xrcd: *mut ibv_xrcd,
    /// Not used here.
    pub create_flags: u32,
    /// Not used here.
    pub max_tso_header: u16,
    /// Not used here.
    pub rwq_ind_tbl: *mut c_void,
    /// Not used here.
    pub rx_hash_conf: ibv_rx_hash_conf,
    /// Not used here.
    pub source_qpn: u32,
    /// Not used here.
    pub send_ops_flags: u64,
}

/// The parameters of `ibv_open_qp`.
#[repr(C)]
pub struct ibv_qp_open_attr {
    /// `IBV_QP_OPEN_ATTR_*`: which of the following mean something.
    pub comp_mask: u32,
    /// The queue pair's number.
    pub qp_num: u32,
    /// The domain that it belongs to.
    pub xrcd: *mut ibv_xrcd,
    /// The user's.
    pub qp_context: *mut c_void,
    /// `IBV_QPT_XRC_RECV`.
    pub qp_type: ibv_qp_type,
}

/// The global part of an address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_global_route {
    /// GID of the destination.
    pub dgid: ibv_gid,
    /// Flow label.
    pub flow_label: u32,
    /// Which of the port's own GIDs is the source.
    pub sgid_index: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
}

/// An address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_ah_attr {
    /// The global part, where `is_global`.
    pub grh: ibv_global_route,
    /// LID of the destination.
    pub dlid: u16,
    /// Service level.
    pub sl: u8,
    /// Low bits of the source LID.
    pub src_path_bits: u8,
    /// Rate limit.
    pub static_rate: u8,
    /// Whether `grh` means something.
    pub is_global: u8,
    /// The port to send from.
    pub port_num: u8,
}

/// The attributes of a queue pair.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_qp_attr {
    /// `IBV_QPS_*`.
    pub qp_state: ibv_qp_state,
    /// `IBV_QPS_*`: the state that it is thought to be in.
    pub cur_qp_state: ibv_qp_state,
    /// `IBV_MTU_*`.
    pub path_mtu: ibv_mtu,
    /// Automatic path migration.
    pub path_mig_state: c_int,
    /// Queue key.
    pub qkey: u32,
    /// Packet sequence number of the receive queue.
    pub rq_psn: u32,
    /// Packet sequence number of the send queue.
    pub sq_psn: u32,
    /// Number of the peer's queue pair.
    pub dest_qp_num: u32,
    /// `IBV_ACCESS_*`.
    pub qp_access_flags: c_uint,
    /// Sizes.
    pub cap: ibv_qp_cap,
    /// The address.
    pub ah_attr: ibv_ah_attr,
    /// The alternate address.
    pub alt_ah_attr: ibv_ah_attr,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Of the alternate path.
    pub alt_pkey_index: u16,
    /// An event reports when the send queue is drained.
    pub en_sqd_async_notify: u8,
    /// The send queue is being drained.
    pub sq_draining: u8,
    /// Reads and atomics open at once.
    pub max_rd_atomic: u8,
    /// Reads and atomics served at once.
    pub max_dest_rd_atomic: u8,
    /// RNR timer's code.
    pub min_rnr_timer: u8,
    /// The port.
    pub port_num: u8,
    /// Acknowledgment timeout's code.
    pub timeout: u8,
    /// Retries.
    pub retry_cnt: u8,
    /// Retries after RNR.
    pub rnr_retry: u8,
    /// Of the alternate path.
    pub alt_port_num: u8,
    /// Of the alternate path.
    pub alt_timeout: u8,
    /// In kbit/s.
    pub rate_limit: u32,
}

/// Sizes of a shared receive queue.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_srq_attr {
    /// Receives.
    pub max_wr: u32,
    /// Pieces of memory of one of them.
    pub max_sge: u32,
    /// Its limit.
    pub srq_limit: u32,
}

/// The parameters of `ibv_create_srq`.
#[repr(C)]
pub struct ibv_srq_init_attr {
    /// The user's.
    pub srq_context: *mut c_void,
    /// Sizes; the granted ones come back.
    pub attr: ibv_srq_attr,
}

/// `struct ibv_tm_cap`: tag matching.
#[repr(C)]
pub struct ibv_tm_cap {
    /// Tags.
    pub max_num_tags: u32,
    /// Operations.
    pub max_ops: u32,
}

/// The parameters of `ibv_create_srq_ex`.
#[repr(C)]
pub struct ibv_srq_init_attr_ex {
    /// The user's.
    pub srq_context: *mut c_void,
    /// Sizes; the granted ones come back.
    pub attr: ibv_srq_attr,
    /// `IBV_SRQ_INIT_ATTR_*`: which of the following mean something.
    pub comp_mask: u32,
    /// `IBV_SRQT_*`.
    pub srq_type: c_int,
    /// Protection domain.
    pub pd: *mut ibv_pd,
    /// XRC domain.
    pub xrcd: *mut ibv_xrcd,
    /// Where its completions go.
    pub cq: *mut ibv_cq,
    /// Not used here.
    pub tm_cap: ibv_tm_cap,
}

/// The parameters of `ibv_open_xrcd`.
#[repr(C)]
pub struct ibv_xrcd_init_attr {
    /// `IBV_XRCD_INIT_ATTR_*`.
    pub comp_mask: u32,
    /// The file; -1: none.
    pub fd: c_int,
    /// `O_CREAT`, `O_EXCL`.
    pub oflags: c_int,
}

/// The subject of an event; the event's sort selects the field.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_async_element {
    /// A completion queue.
    pub cq: *mut ibv_cq,
    /// A queue pair.
    pub qp: *mut ibv_qp,
    /// A shared receive queue.
    pub srq: *mut ibv_srq,
    /// A port.
    pub port_num: c_int,
}

/// An asynchronous event.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_async_event {
    /// Its subject.
    pub element: ibv_async_element,
    /// `IBV_EVENT_*`.
    pub event_type: ibv_event_type,
}
