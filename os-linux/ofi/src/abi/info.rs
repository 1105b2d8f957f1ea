//! `struct fi_info` and what hangs on it.

use std::ffi::{c_char, c_int, c_void};

use super::object::Fid;

/// What `fi_getinfo` gives: a way to communicate.
#[repr(C)]
pub struct Info {
    /// The next way.
    pub next: *mut Info,
    /// Capabilities.
    pub caps: u64,
    /// Demands on the caller.
    pub mode: u64,
    /// Sort of address.
    pub addr_format: u32,
    /// Bytes of `src_addr`.
    pub src_addrlen: usize,
    /// Bytes of `dest_addr`.
    pub dest_addrlen: usize,
    /// This end.
    pub src_addr: *mut c_void,
    /// The other end.
    pub dest_addr: *mut c_void,
    /// An object that this belongs to.
    pub handle: *mut Fid,
    /// Sending.
    pub tx_attr: *mut TxAttr,
    /// Receiving.
    pub rx_attr: *mut RxAttr,
    /// Endpoint.
    pub ep_attr: *mut EpAttr,
    /// Domain.
    pub domain_attr: *mut DomainAttr,
    /// Fabric.
    pub fabric_attr: *mut FabricAttr,
    /// Device.
    pub nic: *mut c_void,
}

/// Sending.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TxAttr {
    /// Capabilities.
    pub caps: u64,
    /// Demands on the caller.
    pub mode: u64,
    /// Flags of calls that take none.
    pub op_flags: u64,
    /// Order of requests.
    pub msg_order: u64,
    /// Order of completions.
    pub comp_order: u64,
    /// Longest injected message in bytes.
    pub inject_size: usize,
    /// Requests that may be under way.
    pub size: usize,
    /// Pieces of a request.
    pub iov_limit: usize,
    /// Remote pieces of a request.
    pub rma_iov_limit: usize,
    /// Traffic class.
    pub tclass: u32,
}

/// Receiving.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RxAttr {
    /// Capabilities.
    pub caps: u64,
    /// Demands on the caller.
    pub mode: u64,
    /// Flags of calls that take none.
    pub op_flags: u64,
    /// Order of requests.
    pub msg_order: u64,
    /// Order of completions.
    pub comp_order: u64,
    /// Bytes kept of unexpected messages.
    pub total_buffered_recv: usize,
    /// Receives that may be posted.
    pub size: usize,
    /// Pieces of a receive.
    pub iov_limit: usize,
}

/// Endpoint.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EpAttr {
    /// `enum fi_ep_type`.
    pub ep_type: c_int,
    /// Protocol.
    pub protocol: u32,
    /// Its version.
    pub protocol_version: u32,
    /// Longest message in bytes.
    pub max_msg_size: usize,
    /// Bytes in front of each message.
    pub msg_prefix_size: usize,
    /// Bytes up to which a read follows a write.
    pub max_order_raw_size: usize,
    /// Bytes up to which a write follows a read.
    pub max_order_war_size: usize,
    /// Bytes up to which a write follows a write.
    pub max_order_waw_size: usize,
    /// Bits of a tag.
    pub mem_tag_format: u64,
    /// Sending contexts.
    pub tx_ctx_cnt: usize,
    /// Receiving contexts.
    pub rx_ctx_cnt: usize,
    /// Bytes of `auth_key`.
    pub auth_key_size: usize,
    /// Key of the caller.
    pub auth_key: *mut u8,
}

/// Domain.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DomainAttr {
    /// An open domain.
    pub domain: *mut c_void,
    /// Its name.
    pub name: *mut c_char,
    /// `enum fi_threading`.
    pub threading: c_int,
    /// `enum fi_progress`.
    pub control_progress: c_int,
    /// `enum fi_progress`.
    pub data_progress: c_int,
    /// `enum fi_resource_mgmt`.
    pub resource_mgmt: c_int,
    /// `enum fi_av_type`.
    pub av_type: c_int,
    /// How memory is registered.
    pub mr_mode: c_int,
    /// Bytes of a key.
    pub mr_key_size: usize,
    /// Bytes of immediate data.
    pub cq_data_size: usize,
    /// Completion queues.
    pub cq_cnt: usize,
    /// Endpoints.
    pub ep_cnt: usize,
    /// Sending contexts.
    pub tx_ctx_cnt: usize,
    /// Receiving contexts.
    pub rx_ctx_cnt: usize,
    /// Sending contexts of an endpoint.
    pub max_ep_tx_ctx: usize,
    /// Receiving contexts of an endpoint.
    pub max_ep_rx_ctx: usize,
    /// Shared sending contexts of an endpoint.
    pub max_ep_stx_ctx: usize,
    /// Shared receiving contexts of an endpoint.
    pub max_ep_srx_ctx: usize,
    /// Counters.
    pub cntr_cnt: usize,
    /// Pieces of registered memory.
    pub mr_iov_limit: usize,
    /// Capabilities.
    pub caps: u64,
    /// Demands on the caller.
    pub mode: u64,
    /// Key of the caller.
    pub auth_key: *mut u8,
    /// Bytes of it.
    pub auth_key_size: usize,
    /// Bytes of error data.
    pub max_err_data: usize,
    /// Registrations.
    pub mr_cnt: usize,
    /// Traffic class.
    pub tclass: u32,
}

/// Fabric.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FabricAttr {
    /// An open fabric.
    pub fabric: *mut c_void,
    /// Its name.
    pub name: *mut c_char,
    /// Filled in by libfabric.
    pub prov_name: *mut c_char,
    /// Version of the provider.
    pub prov_version: u32,
    /// Version of the interface.
    pub api_version: u32,
}

/// What a provider is to libfabric.
#[repr(C)]
pub struct Provider {
    /// Version of the provider.
    pub version: u32,
    /// Version of the interface that it was written for.
    pub fi_version: u32,
    /// libfabric's own.
    pub context: [*mut c_void; 4],
    /// What `FI_PROVIDER` selects.
    pub name: *const c_char,
    /// Describes the ways to communicate.
    pub getinfo: unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const Info, *mut *mut Info) -> c_int,
    /// Opens a fabric.
    pub fabric: unsafe extern "C" fn(*mut FabricAttr, *mut *mut super::object::FidFabric, *mut c_void) -> c_int,
    /// Before the library is unloaded.
    pub cleanup: unsafe extern "C" fn(),
}
