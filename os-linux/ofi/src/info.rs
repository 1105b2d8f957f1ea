//! The provider's description of itself: one endpoint type as requested by the caller's hints, or none.
//!
//! Structures are allocated by `calloc` because libfabric frees them with `free`; each has a zeroed tail,
//! since later versions of libfabric read fields that this one does not have.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use crate::abi::info::{DomainAttr, EpAttr, FabricAttr, Info, RxAttr, TxAttr};
use crate::abi::*;
use crate::port::{PIECES_MAX, WINDOWS_MAX};

/// Zeroed bytes behind each structure.
const TAIL_BYTES: usize = 256;

/// Name of fabric and domain.
const NAME: &CStr = c"rerail";

/// All of its capabilities.
const CAPS: u64 = TX_CAPS | RX_CAPS | FI_DIRECTED_RECV | FI_SOURCE | FI_LOCAL_COMM | FI_REMOTE_COMM;
const SORTS: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
const TX_CAPS: u64 = SORTS | FI_SEND | FI_READ | FI_WRITE | FI_FENCE;
const RX_CAPS: u64 = SORTS | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE;

/// Flags that calls without flags may have by default.
const TX_FLAGS: u64 =
    FI_COMPLETION | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
const RX_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;

/// Longest injected message in bytes. The core's limit is its setting `eager_max`, which may be lower.
const INJECT_BYTES: usize = 4096;
const REQUESTS: usize = 4096;
const OBJECTS: usize = 64;

/// The requests of hints; zero or `None`: none.
#[derive(Clone, Copy, Debug, Default)]
struct Hints {
    caps: u64,
    addr_format: u32,
    tx: Option<TxAttr>,
    rx: Option<RxAttr>,
    ep: Option<EpAttr>,
    domain: Option<DomainAttr>,
    /// Whether fabric and domain are left open, or named as ours.
    names_fit: bool,
}

impl Hints {
    /// Whether the provider meets the hints.
    fn are_met(&self) -> bool {
        let within = |requested: u64, offered: u64| requested & !offered == 0;
        let tx = self.tx.is_none_or(|tx| {
            within(tx.caps, TX_CAPS | CAPS)
                && within(tx.op_flags, TX_FLAGS)
                && within(tx.msg_order, FI_ORDER_SAS)
                && tx.comp_order == 0
                && tx.inject_size <= INJECT_BYTES
                && tx.size <= REQUESTS
                && tx.iov_limit <= PIECES_MAX
                && tx.rma_iov_limit <= 1
        });
        let rx = self.rx.is_none_or(|rx| {
            within(rx.caps, RX_CAPS | CAPS)
                && within(rx.op_flags, RX_FLAGS)
                && within(rx.msg_order, FI_ORDER_SAS)
                && rx.comp_order == 0
                && rx.size <= REQUESTS
                && rx.iov_limit <= PIECES_MAX
        });
        let ep = self.ep.is_none_or(|ep| {
            matches!(ep.ep_type, 0 | FI_EP_RDM)
                && matches!(ep.protocol, 0 | PROTOCOL)
                && ep.msg_prefix_size == 0
                && ep.max_order_raw_size == 0
                && ep.max_order_war_size == 0
                && ep.max_order_waw_size == 0
                // More than one, or shared ones.
                && ep.tx_ctx_cnt <= 1
                && ep.rx_ctx_cnt <= 1
                && ep.auth_key_size == 0
        });
        let domain = self.domain.is_none_or(|domain| {
            domain.data_progress != FI_PROGRESS_AUTO
                && domain.mr_mode != FI_MR_BASIC
                && domain.mr_key_size <= size_of::<u64>()
                && domain.cq_data_size <= size_of::<u64>()
                && domain.max_ep_stx_ctx == 0
                && domain.max_ep_srx_ctx == 0
                && domain.mr_iov_limit <= 1
                && domain.auth_key_size == 0
        });
        within(self.caps, CAPS) && self.addr_format == FI_FORMAT_UNSPEC && self.names_fit && tx && rx && ep && domain
    }

    /// The capabilities to offer: the requested ones, with what they imply; without a request, all.
    fn caps(&self) -> u64 {
        let requested = if self.caps & SORTS == 0 { self.caps | CAPS } else { self.caps };
        let mut caps = requested | FI_LOCAL_COMM | FI_REMOTE_COMM;
        if requested & (FI_MSG | FI_TAGGED) != 0 && requested & (FI_SEND | FI_RECV) == 0 {
            caps |= FI_SEND | FI_RECV;
        }
        let directions = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        if requested & (FI_RMA | FI_ATOMIC) != 0 && requested & directions == 0 {
            caps |= directions;
        }
        caps
    }
}

/// The protocol of this provider.
const PROTOCOL: u32 = FI_PROV_SPECIFIC | 0x7265;

/// `fi_getinfo`.
pub unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    _flags: u64,
    hints: *const Info,
    info: *mut *mut Info,
) -> c_int {
    // Names are opaque bytes: no host and service lead to one.
    if !node.is_null() || !service.is_null() {
        return -FI_ENODATA;
    }
    // SAFETY: hints are null or a whole `fi_info` with attributes that are null or whole; libfabric checks
    // them.
    let parse_hints = unsafe { parse_hints(hints) };
    if !parse_hints.are_met() {
        return -FI_ENODATA;
    }
    match describe(version, &parse_hints) {
        Some(described) => {
            // SAFETY: libfabric passes room for the answer.
            unsafe { *info = described };
            0
        }
        None => -FI_ENOMEM,
    }
}

/// # Safety
/// `hints` is null or a whole `fi_info` with whole attributes.
unsafe fn parse_hints(hints: *const Info) -> Hints {
    // SAFETY: the caller's promise.
    let Some(hints) = (unsafe { hints.as_ref() }) else { return Hints { names_fit: true, ..Hints::default() } };
    // SAFETY: each attribute is null or whole; names are null or strings.
    unsafe {
        let fits = |name: *mut c_char| name.is_null() || CStr::from_ptr(name) == NAME;
        let domain_fits = hints.domain_attr.as_ref().is_none_or(|domain| fits(domain.name));
        let fabric_fits = hints.fabric_attr.as_ref().is_none_or(|fabric| fits(fabric.name));
        Hints {
            caps: hints.caps,
            addr_format: hints.addr_format,
            tx: hints.tx_attr.as_ref().copied(),
            rx: hints.rx_attr.as_ref().copied(),
            ep: hints.ep_attr.as_ref().copied(),
            domain: hints.domain_attr.as_ref().copied(),
            names_fit: domain_fits && fabric_fits,
        }
    }
}

/// A zeroed structure with a tail; null: no memory.
fn zeroed<T>() -> *mut T {
    // SAFETY: any size can be requested.
    unsafe { libc::calloc(1, size_of::<T>() + TAIL_BYTES) }.cast()
}

/// A copy of a string that `free` frees.
fn copied(text: &CStr) -> *mut c_char {
    // SAFETY: it is a string.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// The description; `None`: no memory.
fn describe(api_version: u32, parse_hints: &Hints) -> Option<*mut Info> {
    let info = zeroed::<Info>();
    let (tx, rx, ep) = (zeroed::<TxAttr>(), zeroed::<RxAttr>(), zeroed::<EpAttr>());
    let (domain, fabric) = (zeroed::<DomainAttr>(), zeroed::<FabricAttr>());
    let (domain_name, fabric_name) = (copied(NAME), copied(NAME));
    let parts: [*mut c_void; 8] = [
        info.cast(),
        tx.cast(),
        rx.cast(),
        ep.cast(),
        domain.cast(),
        fabric.cast(),
        domain_name.cast(),
        fabric_name.cast(),
    ];
    if parts.iter().any(|part| part.is_null()) {
        // SAFETY: each is null or was allocated above, and has no other owner.
        parts.iter().for_each(|part| unsafe { libc::free(*part) });
        return None;
    }
    let caps = parse_hints.caps();
    let requested = parse_hints.domain.unwrap_or(DomainAttr { threading: FI_THREAD_SAFE, ..NO_DOMAIN });
    let or = |requested: c_int, otherwise: c_int| if requested == 0 { otherwise } else { requested };
    // SAFETY: all were allocated above, are aligned for any type and large enough, and are written once.
    unsafe {
        tx.write(TxAttr {
            caps: caps & TX_CAPS,
            mode: 0,
            op_flags: parse_hints.tx.map_or(0, |tx| tx.op_flags),
            msg_order: FI_ORDER_SAS,
            comp_order: 0,
            inject_size: INJECT_BYTES,
            size: REQUESTS,
            iov_limit: PIECES_MAX,
            rma_iov_limit: 1,
            tclass: 0,
        });
        rx.write(RxAttr {
            caps: caps & RX_CAPS,
            mode: 0,
            op_flags: parse_hints.rx.map_or(0, |rx| rx.op_flags),
            msg_order: FI_ORDER_SAS,
            comp_order: 0,
            total_buffered_recv: 0,
            size: REQUESTS,
            iov_limit: PIECES_MAX,
        });
        ep.write(EpAttr {
            ep_type: FI_EP_RDM,
            protocol: PROTOCOL,
            protocol_version: 1,
            max_msg_size: isize::MAX as usize,
            msg_prefix_size: 0,
            max_order_raw_size: 0,
            max_order_war_size: 0,
            max_order_waw_size: 0,
            mem_tag_format: TAG_FORMAT,
            tx_ctx_cnt: 1,
            rx_ctx_cnt: 1,
            auth_key_size: 0,
            auth_key: ptr::null_mut(),
        });
        domain.write(DomainAttr {
            name: domain_name,
            threading: or(requested.threading, FI_THREAD_SAFE),
            control_progress: or(requested.control_progress, FI_PROGRESS_MANUAL),
            data_progress: FI_PROGRESS_MANUAL,
            resource_mgmt: or(requested.resource_mgmt, FI_RM_ENABLED),
            av_type: or(requested.av_type, FI_AV_TABLE),
            // Offsets and keys of the caller: no mode is required.
            mr_mode: if requested.mr_mode == FI_MR_SCALABLE { FI_MR_SCALABLE } else { 0 },
            mr_key_size: size_of::<u64>(),
            cq_data_size: size_of::<u64>(),
            cq_cnt: OBJECTS,
            ep_cnt: OBJECTS,
            tx_ctx_cnt: OBJECTS,
            rx_ctx_cnt: OBJECTS,
            max_ep_tx_ctx: 1,
            max_ep_rx_ctx: 1,
            cntr_cnt: OBJECTS,
            mr_iov_limit: 1,
            caps: FI_LOCAL_COMM | FI_REMOTE_COMM,
            mr_cnt: WINDOWS_MAX as usize,
            ..NO_DOMAIN
        });
        fabric.write(FabricAttr {
            fabric: ptr::null_mut(),
            name: fabric_name,
            prov_name: ptr::null_mut(),
            prov_version: crate::PROVIDER_VERSION,
            api_version,
        });
        info.write(Info {
            next: ptr::null_mut(),
            caps,
            mode: 0,
            addr_format: FI_FORMAT_UNSPEC,
            src_addrlen: 0,
            dest_addrlen: 0,
            src_addr: ptr::null_mut(),
            dest_addr: ptr::null_mut(),
            handle: ptr::null_mut(),
            tx_attr: tx,
            rx_attr: rx,
            ep_attr: ep,
            domain_attr: domain,
            fabric_attr: fabric,
            nic: ptr::null_mut(),
        });
    }
    Some(info)
}

/// A domain without any request.
const NO_DOMAIN: DomainAttr = DomainAttr {
    domain: ptr::null_mut(),
    name: ptr::null_mut(),
    threading: 0,
    control_progress: 0,
    data_progress: 0,
    resource_mgmt: 0,
    av_type: 0,
    mr_mode: 0,
    mr_key_size: 0,
    cq_data_size: 0,
    cq_cnt: 0,
    ep_cnt: 0,
    tx_ctx_cnt: 0,
    rx_ctx_cnt: 0,
    max_ep_tx_ctx: 0,
    max_ep_rx_ctx: 0,
    max_ep_stx_ctx: 0,
    max_ep_srx_ctx: 0,
    cntr_cnt: 0,
    mr_iov_limit: 0,
    caps: 0,
    mode: 0,
    auth_key: ptr::null_mut(),
    auth_key_size: 0,
    max_err_data: 0,
    mr_cnt: 0,
    tclass: 0,
};
