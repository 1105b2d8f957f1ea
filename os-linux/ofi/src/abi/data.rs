//! Messages, completions and the attributes of queues.

use std::ffi::{c_int, c_void};

use libc::iovec;

/// A message.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Msg {
    /// Its pieces.
    pub msg_iov: *const iovec,
    /// Registrations of the pieces.
    pub desc: *mut *mut c_void,
    /// How many pieces.
    pub iov_count: usize,
    /// The other side.
    pub addr: u64,
    /// Comes back in the completion.
    pub context: *mut c_void,
    /// Immediate data.
    pub data: u64,
}

/// A tagged message.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MsgTagged {
    /// Its pieces.
    pub msg_iov: *const iovec,
    /// Registrations of the pieces.
    pub desc: *mut *mut c_void,
    /// How many pieces.
    pub iov_count: usize,
    /// The other side.
    pub addr: u64,
    /// The tag.
    pub tag: u64,
    /// Bits that don't matter.
    pub ignore: u64,
    /// Comes back in the completion.
    pub context: *mut c_void,
    /// Immediate data.
    pub data: u64,
}

/// A piece of a peer's memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RmaIov {
    /// Bytes from the start of the registered memory.
    pub addr: u64,
    /// Length in bytes.
    pub len: usize,
    /// Key.
    pub key: u64,
}

/// Values in a peer's memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RmaIoc {
    /// Bytes from the start of the registered memory.
    pub addr: u64,
    /// How many values.
    pub count: usize,
    /// Key.
    pub key: u64,
}

/// Values.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ioc {
    /// Where.
    pub addr: *mut c_void,
    /// How many.
    pub count: usize,
}

/// A read or a write.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MsgRma {
    /// Pieces of local memory.
    pub msg_iov: *const iovec,
    /// Registrations of the pieces.
    pub desc: *mut *mut c_void,
    /// How many pieces.
    pub iov_count: usize,
    /// The other side.
    pub addr: u64,
    /// Pieces of the peer's memory.
    pub rma_iov: *const RmaIov,
    /// How many.
    pub rma_iov_count: usize,
    /// Comes back in the completion.
    pub context: *mut c_void,
    /// Immediate data.
    pub data: u64,
}

/// An atomic.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MsgAtomic {
    /// Operands.
    pub msg_iov: *const Ioc,
    /// Registrations of these.
    pub desc: *mut *mut c_void,
    /// How many pieces.
    pub iov_count: usize,
    /// The other side.
    pub addr: u64,
    /// Values in the peer's memory.
    pub rma_iov: *const RmaIoc,
    /// How many pieces.
    pub rma_iov_count: usize,
    /// `enum fi_datatype`.
    pub datatype: c_int,
    /// `enum fi_op`.
    pub op: c_int,
    /// Comes back in the completion.
    pub context: *mut c_void,
    /// Immediate data.
    pub data: u64,
}

/// What `fi_query_atomic` answers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AtomicAttr {
    /// Values of one request.
    pub count: usize,
    /// Bytes of a value.
    pub size: usize,
}

/// A completion; shorter formats are the front of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CqTaggedEntry {
    /// The caller's.
    pub op_context: *mut c_void,
    /// What it was.
    pub flags: u64,
    /// Bytes.
    pub len: usize,
    /// Where in a multi-receive.
    pub buf: *mut c_void,
    /// Immediate data.
    pub data: u64,
    /// The tag.
    pub tag: u64,
}

/// A completion with an error.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CqErrEntry {
    /// The caller's.
    pub op_context: *mut c_void,
    /// What it was.
    pub flags: u64,
    /// Bytes.
    pub len: usize,
    /// Where in a multi-receive.
    pub buf: *mut c_void,
    /// Immediate data.
    pub data: u64,
    /// The tag.
    pub tag: u64,
    /// Bytes that found no room.
    pub olen: usize,
    /// Why.
    pub err: c_int,
    /// Why, as the provider counts it.
    pub prov_errno: c_int,
    /// More about it.
    pub err_data: *mut c_void,
    /// Bytes of that.
    pub err_data_size: usize,
}

/// A completion queue to open.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CqAttr {
    /// Completions that must fit.
    pub size: usize,
    /// Flags.
    pub flags: u64,
    /// `enum fi_cq_format`.
    pub format: c_int,
    /// `enum fi_wait_obj`.
    pub wait_obj: c_int,
    /// Processor for interrupts.
    pub signaling_vector: c_int,
    /// When to wake.
    pub wait_cond: c_int,
    /// A set to wait on.
    pub wait_set: *mut c_void,
}

/// A counter to open.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CntrAttr {
    /// What is counted.
    pub events: c_int,
    /// `enum fi_wait_obj`.
    pub wait_obj: c_int,
    /// A set to wait on.
    pub wait_set: *mut c_void,
    /// Flags.
    pub flags: u64,
}

/// An address vector to open.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AvAttr {
    /// `enum fi_av_type`.
    pub av_type: c_int,
    /// Bits for receiving contexts.
    pub rx_ctx_bits: c_int,
    /// Names that will come.
    pub count: usize,
    /// Endpoints of a node.
    pub ep_per_node: usize,
    /// Name of a shared vector.
    pub name: *const std::ffi::c_char,
    /// Where that is mapped.
    pub map_addr: *mut c_void,
    /// Flags.
    pub flags: u64,
}

/// An event queue to open.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EqAttr {
    /// Events that must fit.
    pub size: usize,
    /// Flags.
    pub flags: u64,
    /// `enum fi_wait_obj`.
    pub wait_obj: c_int,
    /// Processor for interrupts.
    pub signaling_vector: c_int,
    /// A set to wait on.
    pub wait_set: *mut c_void,
}

/// Memory to register.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MrAttr {
    /// Its pieces.
    pub mr_iov: *const iovec,
    /// How many.
    pub iov_count: usize,
    /// What is allowed.
    pub access: u64,
    /// Offset of its first byte.
    pub offset: u64,
    /// The key.
    pub requested_key: u64,
    /// The caller's.
    pub context: *mut c_void,
    /// Bytes of `auth_key`.
    pub auth_key_size: usize,
    /// Key of the caller.
    pub auth_key: *mut u8,
    /// `enum fi_hmem_iface`.
    pub iface: c_int,
    /// Device of that.
    pub device: u64,
}
