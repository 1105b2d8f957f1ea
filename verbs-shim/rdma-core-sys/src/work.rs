//! Work requests and completions.

use core::ffi::{c_int, c_uint, c_void};

use crate::constants::*;
use crate::objects::ibv_ah;

/// A piece of registered memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_sge {
    /// Where it starts.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Local key.
    pub lkey: u32,
}

/// Remote memory of a read or write.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_wr_rdma {
    /// Where it starts.
    pub remote_addr: u64,
    /// Remote key.
    pub rkey: u32,
}

/// Remote memory and operands of an atomic.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_wr_atomic {
    /// Where it is.
    pub remote_addr: u64,
    /// The value expected, or added.
    pub compare_add: u64,
    /// The new value.
    pub swap: u64,
    /// Remote key.
    pub rkey: u32,
}

/// Where a datagram goes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_wr_ud {
    /// The port.
    pub ah: *mut ibv_ah,
    /// The queue pair.
    pub remote_qpn: u32,
    /// Its queue key.
    pub remote_qkey: u32,
}

/// `wr` of [`ibv_send_wr`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_wr {
    /// Of a read or write.
    pub rdma: ibv_wr_rdma,
    /// Of an atomic.
    pub atomic: ibv_wr_atomic,
    /// Of a datagram.
    pub ud: ibv_wr_ud,
}

/// A send request. The last field stands for a union that is never filled here.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_send_wr {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The next one of the list, or NULL.
    pub next: *mut ibv_send_wr,
    /// Its memory.
    pub sg_list: *mut ibv_sge,
    /// Pieces of it.
    pub num_sge: c_int,
    /// `IBV_WR_*`.
    pub opcode: ibv_wr_opcode,
    /// `IBV_SEND_*`.
    pub send_flags: c_uint,
    /// Immediate data, big-endian.
    pub imm_data: u32,
    /// By operation and transport.
    pub wr: ibv_wr,
    /// `qp_type.xrc.remote_srqn`: number of the shared receive queue.
    pub remote_srqn: u32,
    /// Memory windows and segmentation offload.
    pub _bind_mw_or_tso: [*mut c_void; 6],
}

/// A receive request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_recv_wr {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The next one of the list, or NULL.
    pub next: *mut ibv_recv_wr,
    /// Its memory.
    pub sg_list: *mut ibv_sge,
    /// Pieces of it.
    pub num_sge: c_int,
}

/// A completion.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_wc {
    /// The request's.
    pub wr_id: u64,
    /// `IBV_WC_*`.
    pub status: ibv_wc_status,
    /// `IBV_WC_*`; means something only with success.
    pub opcode: ibv_wc_opcode,
    /// The vendor's error code.
    pub vendor_err: u32,
    /// Bytes received or read.
    pub byte_len: u32,
    /// Immediate data, big-endian, if the flag in `wc_flags` is set.
    pub imm_data: u32,
    /// Number of the queue pair.
    pub qp_num: u32,
    /// Number of the sender's, for datagrams.
    pub src_qp: u32,
    /// `IBV_WC_GRH` and others.
    pub wc_flags: c_uint,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// LID of the sender's port, for datagrams.
    pub slid: u16,
    /// Service level, for datagrams.
    pub sl: u8,
    /// Low bits of the destination's LID, for datagrams.
    pub dlid_path_bits: u8,
}
