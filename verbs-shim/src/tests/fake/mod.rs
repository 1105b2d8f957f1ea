//! A libibverbs of this process's own making: two devices behind the same table of functions.
//!
//! `mlx9_0`: InfiniBand, two ports with LMC, the second of which can't be queried. `rxe9`: RoCE, one port,
//! sparse GID table. Counts objects handed out and given back, per thread, so that tests may run side by
//! side.
#![allow(unsafe_code)]

pub(super) mod objects;

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::mem::{offset_of, zeroed};
use std::ptr::null_mut;

use rdma_core_sys::*;

/// How `ibv_get_device_list` and `ibv_open_device` behave, and the objects handed out.
#[derive(Clone, Copy, Default)]
pub(super) struct Machine {
    /// Error number of `ibv_get_device_list`; 0: none.
    pub(super) list_errno: c_int,
    /// Error number of `ibv_open_device`; 0: none.
    pub(super) open_errno: c_int,
    /// Error number of `_ibv_query_gid_ex` for a non-empty entry; 0: none.
    pub(super) gid_errno: c_int,
    /// Error number of `_ibv_query_gid_table`; 0: none.
    pub(super) gid_table_errno: c_int,
    /// Calls of functions that query GIDs.
    pub(super) gid_calls: u32,
    /// The on-demand operations of `mlx9_0`: `IBV_ODP_SUPPORT_*`.
    pub(super) on_demand: u32,
    /// The port of `rxe9` is active.
    pub(super) up: bool,
    /// Calls of `ibv_fork_init`, and its error number; 0: none.
    pub(super) fork_inits: u32,
    pub(super) fork_errno: c_int,
    /// Flags of the first port of `mlx9_0`: `IBV_QPF_*`.
    pub(super) port_flags: u8,
    /// Lists not given back.
    pub(super) lists: i32,
    /// Contexts not closed.
    pub(super) contexts: i32,
}

thread_local! {
    static MACHINE: Cell<Machine> = Cell::default();
}

pub(super) fn machine() -> Machine {
    MACHINE.get()
}

pub(super) fn set(change: impl FnOnce(&mut Machine)) {
    let mut machine = MACHINE.get();
    change(&mut machine);
    MACHINE.set(machine);
}

pub(super) const FUNCTIONS: Functions = Functions {
    get_device_list,
    free_device_list,
    get_device_guid,
    open_device,
    close_device,
    query_device,
    query_port,
    query_gid,
    query_pkey: Some(query_pkey),
    query_gid_ex: Some(query_gid_ex),
    query_gid_table: Some(query_gid_table),
    reg_mr_iova2: Some(objects::reg_mr_iova2),
    fork_init: Some(fork_init),
    alloc_pd: objects::alloc_pd,
    dealloc_pd: objects::dealloc_pd,
    reg_mr: objects::reg_mr,
    dereg_mr: objects::dereg_mr,
    create_comp_channel: objects::create_comp_channel,
    destroy_comp_channel: objects::destroy_comp_channel,
    create_cq: objects::create_cq,
    destroy_cq: objects::destroy_cq,
    get_cq_event: objects::get_cq_event,
    ack_cq_events: objects::ack_cq_events,
    create_srq: objects::create_srq,
    modify_srq: objects::modify_srq,
    query_srq: objects::query_srq,
    destroy_srq: objects::destroy_srq,
    create_qp: objects::create_qp,
    modify_qp: objects::modify_qp,
    query_qp: objects::query_qp,
    destroy_qp: objects::destroy_qp,
    create_ah: objects::create_ah,
    destroy_ah: objects::destroy_ah,
    get_async_event: objects::get_async_event,
    ack_async_event: objects::ack_async_event,
};

const DEVICES: usize = 2;
pub(super) const COMP_VECTORS: c_int = 3;
pub(super) const INFINIBAND_GID: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 0, 0x12, 0x34];
pub(super) const ROCE_GID: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7];

unsafe extern "C" fn fork_init() -> c_int {
    set(|machine| machine.fork_inits += 1);
    machine().fork_errno
}

fn fail<T>(errno: c_int) -> *mut T {
    // SAFETY: the location is this thread's.
    unsafe { *libc::__errno_location() = errno };
    null_mut()
}

fn put(into: &mut [c_char], text: &str) {
    for (to, byte) in into.iter_mut().zip(text.bytes()) {
        *to = c_char::from_ne_bytes([byte]);
    }
}

fn device(index: usize) -> *mut ibv_device {
    // SAFETY: integers, and pointers that are not followed.
    let mut device: Box<ibv_device> = Box::new(unsafe { zeroed() });
    device.node_type = IBV_NODE_CA;
    device.transport_type = [IBV_TRANSPORT_IB, 99][index];
    put(&mut device.name, ["mlx9_0", "rxe9"][index]);
    put(&mut device.dev_name, ["uverbs0", "uverbs1"][index]);
    Box::into_raw(device)
}

/// The device's index, from the first letter of its name.
///
/// # Safety
/// `device` comes from [`device`].
unsafe fn index_of(device: *mut ibv_device) -> usize {
    // SAFETY: the caller's promise.
    usize::from(unsafe { (*device).name[0] } == c_char::from_ne_bytes([b'r']))
}

unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    if machine().list_errno != 0 {
        return fail(machine().list_errno);
    }
    set(|machine| machine.lists += 1);
    // SAFETY: the caller gave a place for the count.
    unsafe { *count = DEVICES as c_int };
    Box::into_raw(Box::new([device(0), device(1), null_mut()])).cast()
}

unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    set(|machine| machine.lists -= 1);
    // SAFETY: the list comes from `get_device_list`, once.
    let list = unsafe { Box::from_raw(list.cast::<[*mut ibv_device; DEVICES + 1]>()) };
    for &device in &list[..DEVICES] {
        // SAFETY: made by `device`, and in no other list.
        drop(unsafe { Box::from_raw(device) });
    }
}

unsafe extern "C" fn get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: a device of the list.
    [0x0002_c903_0000_1234_u64, 0][unsafe { index_of(device) }].to_be()
}

/// The context remembers the device by number, in `cmd_fd`: as with the library, it outlives the list.
unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    if machine().open_errno != 0 {
        return fail(machine().open_errno);
    }
    set(|machine| machine.contexts += 1);
    // SAFETY: integers, and pointers that are not followed.
    let mut table: Box<verbs_context> = Box::new(unsafe { zeroed() });
    // SAFETY: a device of the list.
    let index = unsafe { index_of(device) };
    table.context.cmd_fd = index as c_int;
    objects::furnish(&mut table.context);
    table.context.num_comp_vectors = COMP_VECTORS;
    if index == 0 {
        // As of a library that is newer than these declarations.
        table.sz = size_of::<verbs_context>() + 64;
        table.context.abi_compat = std::ptr::without_provenance_mut(VERBS_ABI_IS_EXTENDED);
        table.query_device_ex = Some(query_device_ex);
        table.modify_cq = Some(objects::modify_cq);
    }
    // SAFETY: a part of the table, through the pointer to the whole.
    unsafe { &raw mut (*Box::into_raw(table)).context }
}

unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    // SAFETY: a place for the answer; its other half is the query.
    let (attr, input) = unsafe { (&mut *attr, &*input) };
    assert_eq!((attr_size, input.comp_mask), (size_of::<ibv_device_attr_ex>(), 0));
    attr.odp_caps.general_caps = IBV_ODP_SUPPORT;
    attr.odp_caps.per_transport_caps.rc_odp_caps = machine().on_demand;
    attr.xrc_odp_caps = machine().on_demand & IBV_ODP_SUPPORT_WRITE;
    attr.cq_mod_caps = ibv_cq_moderation_caps { max_cq_count: 128, max_cq_period: 16 };
    // SAFETY: the caller's promise.
    unsafe { query_device(context, &mut attr.orig_attr) }
}

unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    set(|machine| machine.contexts -= 1);
    objects::strip(context);
    // SAFETY: made by `open_device`, closed once.
    drop(unsafe { Box::from_raw(context.byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>()) });
    0
}

unsafe extern "C" fn query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: an open context, and a place for the answer.
    let (index, attr) = unsafe { ((*context).cmd_fd as usize, &mut *attr) };
    put(&mut attr.fw_ver, "20.31.1014");
    attr.node_guid = 0x0002_c903_0000_1234_u64.to_be();
    attr.max_qp = 131_072;
    attr.max_mr_size = 1 << 40;
    (attr.max_qp_wr, attr.max_sge, attr.max_cq, attr.max_cqe) = (1024, 4, 100, 4096);
    (attr.max_mr, attr.max_pd, attr.max_ah) = (100, 100, 100);
    (attr.max_qp_rd_atom, attr.max_qp_init_rd_atom) = (16, 300);
    (attr.max_srq, attr.max_srq_wr, attr.max_srq_sge) = ([-1, 8][index], 64, 3);
    attr.atomic_cap = [IBV_ATOMIC_HCA, 7][index];
    attr.device_cap_flags = [IBV_DEVICE_XRC, 0][index];
    attr.phys_port_cnt = [2, 1][index];
    0
}

unsafe extern "C" fn query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int {
    // SAFETY: an open context, and a place for the answer.
    let (index, attr) = unsafe { ((*context).cmd_fd as usize, &mut *attr) };
    match (index, port) {
        (0, 1) => {
            attr.state = IBV_PORT_ACTIVE;
            attr.max_mtu = IBV_MTU_4096;
            attr.active_mtu = IBV_MTU_2048;
            attr.gid_tbl_len = 3;
            attr.pkey_tbl_len = 3;
            (attr.lid, attr.flags) = (0x12, machine().port_flags);
            attr.sm_lid = 1;
            attr.lmc = 2;
            attr.max_msg_sz = 1 << 30;
            attr.active_width = 2;
            attr.active_speed = 32;
            attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
            0
        }
        (0, 2) => libc::EIO,
        (1, 1) => {
            attr.state = if machine().up { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN };
            attr.active_mtu = 17;
            attr.gid_tbl_len = 4;
            // As irdma has it, though Ethernet has no LIDs.
            (attr.lid, attr.lmc, attr.flags) = (1, 1, IBV_QPF_GRH_REQUIRED);
            attr.active_width = 3;
            attr.active_speed = 1;
            attr.link_layer = IBV_LINK_LAYER_ETHERNET;
            0
        }
        _ => libc::EINVAL,
    }
}

/// The table: InfiniBand has one entry, RoCE has one at index 2.
fn gid(index: usize, entry: u32) -> Option<[u8; 16]> {
    match (index, entry) {
        (0, 0) => Some(INFINIBAND_GID),
        (1, 2) => Some(ROCE_GID),
        _ => None,
    }
}

unsafe extern "C" fn query_gid(context: *mut ibv_context, _port: u8, entry: c_int, into: *mut ibv_gid) -> c_int {
    set(|machine| machine.gid_calls += 1);
    // SAFETY: an open context, and a place for the answer.
    unsafe { (*into).raw = gid((*context).cmd_fd as usize, entry as u32).unwrap_or_default() };
    0
}

/// InfiniBand: the default partition's limited membership, nothing, full membership of another one.
unsafe extern "C" fn query_pkey(context: *mut ibv_context, _port: u8, index: c_int, into: *mut u16) -> c_int {
    // SAFETY: an open context.
    let device = unsafe { (*context).cmd_fd as usize };
    let table: &[u16] = [&[0x7fff_u16, 0, 0x8001][..], &[0xffff]][device];
    let Some(key) = table.get(index as usize) else {
        fail::<u16>(libc::ENOENT);
        return -1;
    };
    // SAFETY: a place for the answer.
    unsafe { *into = key.to_be() };
    0
}

unsafe extern "C" fn query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    gid_index: u32,
    into: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    assert_eq!((flags, entry_size), (0, size_of::<ibv_gid_entry>()));
    set(|machine| machine.gid_calls += 1);
    // SAFETY: an open context.
    let index = unsafe { (*context).cmd_fd as usize };
    let Some(raw) = gid(index, gid_index) else { return libc::ENODATA };
    if machine().gid_errno != 0 {
        return machine().gid_errno;
    }
    let gid_type = [IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V2][index];
    let ndev_ifindex = [0, 5][index];
    // SAFETY: a place for the answer, of the size asserted above.
    unsafe { *into = ibv_gid_entry { gid: ibv_gid { raw }, gid_index, port_num: port, gid_type, ndev_ifindex } };
    0
}

/// All ports' entries, the last port first: the manual page promises no order. The second port of `mlx9_0`
/// has one, too.
unsafe extern "C" fn query_gid_table(
    context: *mut ibv_context,
    into: *mut ibv_gid_entry,
    room: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    assert_eq!((flags, entry_size), (0, size_of::<ibv_gid_entry>()));
    set(|machine| machine.gid_calls += 1);
    if machine().gid_table_errno != 0 {
        return -(machine().gid_table_errno as isize);
    }
    // SAFETY: an open context.
    let index = unsafe { (*context).cmd_fd as usize };
    let entry = |port_num, gid_index, raw| ibv_gid_entry {
        gid: ibv_gid { raw },
        gid_index,
        port_num,
        gid_type: [IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V2][index],
        ndev_ifindex: [0, 5][index],
    };
    let entries = match index {
        0 => vec![entry(2, 1, [0xAA; 16]), entry(1, 2, [0; 16]), entry(1, 0, INFINIBAND_GID)],
        _ => vec![entry(1, 2, ROCE_GID)],
    };
    if entries.len() > room {
        return -(libc::EINVAL as isize);
    }
    for (at, entry) in entries.iter().enumerate() {
        // SAFETY: there is room for so many.
        unsafe { into.add(at).write(*entry) };
    }
    entries.len() as isize
}
