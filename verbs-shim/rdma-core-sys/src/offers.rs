//! `ibv_query_device_ex(3)` and `ibv_modify_cq(3)`: features of newer libraries and devices. Callers pass the
//! size of their struct, so that it may be shorter than the library's.

use crate::types::ibv_device_attr;

/// On-demand paging works (`enum ibv_odp_general_caps`).
pub const IBV_ODP_SUPPORT: u64 = 1 << 0;
/// Of a transport: sends (`enum ibv_odp_transport_cap_bits`).
pub const IBV_ODP_SUPPORT_SEND: u32 = 1 << 0;
/// Receives.
pub const IBV_ODP_SUPPORT_RECV: u32 = 1 << 1;
/// Remote writes.
pub const IBV_ODP_SUPPORT_WRITE: u32 = 1 << 2;
/// Remote reads.
pub const IBV_ODP_SUPPORT_READ: u32 = 1 << 3;
/// Receives of shared queues.
pub const IBV_ODP_SUPPORT_SRQ_RECV: u32 = 1 << 5;
/// [`ibv_modify_cq_attr::moderate`] is given.
pub const IBV_CQ_ATTR_MODERATE: u32 = 1 << 0;

/// The query.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_query_device_ex_input {
    /// None is defined.
    pub comp_mask: u32,
}

/// On-demand paging by transport; nameless in C.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_odp_transport_caps {
    /// RC: `IBV_ODP_SUPPORT_*`.
    pub rc_odp_caps: u32,
    /// UC.
    pub uc_odp_caps: u32,
    /// UD.
    pub ud_odp_caps: u32,
}

/// On-demand paging.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_odp_caps {
    /// [`IBV_ODP_SUPPORT`].
    pub general_caps: u64,
    /// By transport.
    pub per_transport_caps: ibv_odp_transport_caps,
}

/// The most that completion events can be put off.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_cq_moderation_caps {
    /// Completions.
    pub max_cq_count: u16,
    /// Microseconds.
    pub max_cq_period: u16,
}

/// The part of the results of `ibv_query_device_ex` that is used here.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_device_attr_ex {
    /// The results of `ibv_query_device`.
    pub orig_attr: ibv_device_attr,
    /// None is defined.
    pub comp_mask: u32,
    /// On-demand paging.
    pub odp_caps: ibv_odp_caps,
    /// Bits of a completion's time stamp.
    pub completion_timestamp_mask: u64,
    /// Its clock's rate in kHz.
    pub hca_core_clock: u64,
    /// More of `IBV_DEVICE_*`.
    pub device_cap_flags_ex: u64,
    /// `ibv_tso_caps`, `ibv_rss_caps`, `max_wq_type_rq`, `ibv_packet_pacing_caps`, `raw_packet_caps`,
    /// `ibv_tm_caps`.
    pub _before_cq_mod_caps: [u64; 10],
    /// Moderation of completion queues.
    pub cq_mod_caps: ibv_cq_moderation_caps,
    /// Bytes of device memory.
    pub max_dm_size: u64,
    /// `ibv_pci_atomic_caps`.
    pub _pci_atomic_caps: [u16; 3],
    /// XRC's part of the on-demand paging: `IBV_ODP_SUPPORT_*`.
    pub xrc_odp_caps: u32,
}

/// How events of a completion queue are put off.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_moderate_cq {
    /// Completions.
    pub cq_count: u16,
    /// Microseconds.
    pub cq_period: u16,
}

/// A change of a completion queue.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_modify_cq_attr {
    /// [`IBV_CQ_ATTR_MODERATE`].
    pub attr_mask: u32,
    /// The moderation.
    pub moderate: ibv_moderate_cq,
}
