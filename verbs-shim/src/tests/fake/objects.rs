//! Objects of the fake library: made, counted, and following the test's script. Nothing is sent anywhere:
//! posted requests are recorded, completions and events are those that the test puts in.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::zeroed;

use rdma_core_sys::*;

use super::fail;

/// A send as the provider saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub id: u64,
    pub opcode: c_int,
    pub flags: u32,
    pub immediate: u32,
    /// Pieces by length; bytes of inline data.
    pub pieces: Vec<u32>,
    pub inline: Vec<u8>,
    pub remote: (u64, u32),
    /// Calls of the provider before this one's.
    pub doorbell: usize,
}

/// The objects, and the script.
#[derive(Default)]
pub(crate) struct Script {
    /// Objects alive, by the name of their verb.
    pub alive: Vec<&'static str>,
    pub sends: Vec<Seen>,
    pub receives: Vec<u64>,
    pub doorbells: usize,
    /// Posting stops at the request with this id, by this error.
    pub refuse_post: Option<(u64, c_int)>,
    pub completions: VecDeque<ibv_wc>,
    /// The arguments of `ibv_modify_qp`.
    pub changes: Vec<(ibv_qp_attr, c_int)>,
    /// How often queue pairs were queried.
    pub queries: usize,
    /// A queue pair that is not in this state has gone on by itself: changes are refused.
    pub refuse_changes_unless: Option<c_int>,
    /// Kind, and the object's name or the port.
    pub events: VecDeque<(c_int, u32)>,
    pub events_acknowledged: usize,
    pub cq_events: VecDeque<u32>,
    pub cq_events_acknowledged: u32,
    /// Error of everything that makes something; 0: none.
    pub make_errno: c_int,
    /// Error of everything that destroys something; 0: none.
    pub destroy_errno: c_int,
    /// The state that the device reports for every queue pair, where it is not the one last set.
    pub state: Option<c_int>,
    /// Completion queues' moderation as last set: completions, microseconds.
    pub moderated: Option<(u16, u16)>,
    /// The inline bytes of queue pairs, where they are not the requested ones.
    pub inline_given: Option<u32>,
    /// Flags of the last registration.
    pub access: u32,
    qps: Vec<usize>,
    cqs: Vec<usize>,
    next: u32,
}

thread_local! {
    static SCRIPT: RefCell<Script> = RefCell::default();
}

pub(crate) fn script<T>(with_script: impl FnOnce(&mut Script) -> T) -> T {
    SCRIPT.with_borrow_mut(with_script)
}

/// Gives a context the fields of an open one.
pub(super) fn furnish(context: &mut ibv_context) {
    context.ops.poll_cq = Some(poll_cq);
    context.ops.req_notify_cq = Some(req_notify_cq);
    context.ops.post_send = Some(post_send);
    context.ops.post_recv = Some(post_recv);
    context.ops.post_srq_recv = Some(post_srq_recv);
    // SAFETY: a new descriptor.
    context.async_fd = unsafe { libc::eventfd(0, 0) };
}

/// Undoes [`furnish`].
pub(super) fn strip(context: *mut ibv_context) {
    // SAFETY: an open context, whose descriptor is its own.
    unsafe { libc::close((*context).async_fd) };
}

/// A new object of the library, filled by `fill`; NULL where the script orders it.
fn make<T>(what: &'static str, fill: impl FnOnce(&mut T)) -> *mut T {
    let errno = script(|script| script.make_errno);
    if errno != 0 {
        return fail(errno);
    }
    // SAFETY: numbers and pointers.
    let mut object: Box<T> = Box::new(unsafe { zeroed() });
    fill(&mut object);
    script(|script| script.alive.push(what));
    Box::into_raw(object)
}

/// Frees an object, unless the script orders otherwise.
fn end<T>(what: &'static str, object: *mut T) -> c_int {
    let errno = script(|script| script.destroy_errno);
    if errno != 0 {
        return errno;
    }
    script(|script| {
        let at = script.alive.iter().position(|alive| *alive == what).expect("destroyed twice");
        script.alive.remove(at);
        // It is not used any more.
        script.qps.retain(|at| *at != object as usize);
        script.cqs.retain(|at| *at != object as usize);
    });
    // SAFETY: made by `make` with this type, destroyed once: else the count above would not hold.
    drop(unsafe { Box::from_raw(object) });
    0
}

pub(super) unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    make("pd", |pd: &mut ibv_pd| pd.context = context)
}

pub(super) unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    end("pd", pd)
}

pub(super) unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise is the same.
    unsafe { reg_mr_iova2(pd, addr, length, addr as u64, access as u32) }
}

pub(super) unsafe extern "C" fn reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    _iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    script(|script| script.access = access);
    make("mr", |mr: &mut ibv_mr| (mr.pd, mr.addr, mr.length, mr.lkey, mr.rkey) = (pd, addr, length, 7, 9))
}

pub(super) unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    end("mr", mr)
}

pub(super) unsafe extern "C" fn create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    make("channel", |channel: &mut ibv_comp_channel| {
        channel.context = context;
        // SAFETY: a new descriptor.
        channel.fd = unsafe { libc::eventfd(0, 0) };
    })
}

pub(super) unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the channel's own descriptor.
    unsafe { libc::close((*channel).fd) };
    end("channel", channel)
}

pub(super) unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    assert!((0..super::COMP_VECTORS).contains(&vector), "{vector}");
    let cq = make("cq", |cq: &mut ibv_cq| {
        (cq.context, cq.cqe, cq.cq_context, cq.channel) = (context, cqe, cq_context, channel);
    });
    script(|script| script.cqs.push(cq as usize));
    cq
}

pub(super) unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    end("cq", cq)
}

pub(super) unsafe extern "C" fn get_cq_event(
    _channel: *mut ibv_comp_channel,
    _cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    match script(|script| script.cq_events.pop_front()) {
        // SAFETY: a place for the answer.
        Some(name) => unsafe {
            *cq_context = name as usize as *mut c_void;
            0
        },
        None => {
            fail::<c_void>(libc::EAGAIN);
            -1
        }
    }
}

pub(super) unsafe extern "C" fn ack_cq_events(_cq: *mut ibv_cq, count: c_uint) {
    script(|script| script.cq_events_acknowledged += count);
}

pub(super) unsafe extern "C" fn create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: a live domain and a whole request.
    let (context, srq_context) = unsafe { ((*pd).context, (*attr).srq_context) };
    make("srq", |srq: &mut ibv_srq| (srq.context, srq.srq_context, srq.pd) = (context, srq_context, pd))
}

pub(super) unsafe extern "C" fn modify_srq(_srq: *mut ibv_srq, _attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    assert_eq!(mask, IBV_SRQ_LIMIT);
    0
}

/// Every queue has been rounded up to 15.
pub(super) unsafe extern "C" fn query_srq(_srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: a place for the answer.
    unsafe { *attr = ibv_srq_attr { max_wr: 15, max_sge: 1, srq_limit: 0 } };
    0
}

pub(super) unsafe extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    end("srq", srq)
}

/// At most 128 bytes inline; may give less.
pub(super) unsafe extern "C" fn create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: a live domain and a whole request.
    let (context, attr) = unsafe { ((*pd).context, &mut *attr) };
    if attr.cap.max_inline_data > 128 {
        return fail(libc::EINVAL);
    }
    let number = script(|script| {
        attr.cap.max_inline_data = script.inline_given.map_or(attr.cap.max_inline_data, |given| given);
        script.next += 1;
        script.next
    });
    let qp = make("qp", |qp: &mut ibv_qp| {
        (qp.context, qp.qp_context, qp.qp_num, qp.qp_type) = (context, attr.qp_context, number, attr.qp_type);
        (qp.send_cq, qp.recv_cq) = (attr.send_cq, attr.recv_cq);
    });
    script(|script| script.qps.push(qp as usize));
    qp
}

pub(super) unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: a live queue pair and whole attributes.
    unsafe {
        let cur_state = (mask & IBV_QP_CUR_STATE != 0).then_some((*attr).cur_qp_state);
        if script(|script| script.refuse_changes_unless).is_some_and(|state| cur_state != Some(state)) {
            return libc::EINVAL;
        }
        (*qp).state = (*attr).qp_state;
        script(|script| script.changes.push((*attr, mask)));
    }
    0
}

/// Send queues have been rounded up to 31.
pub(super) unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    _init: *mut ibv_qp_init_attr,
) -> c_int {
    script(|script| script.queries += 1);
    // SAFETY: a live queue pair and a place for the answer.
    unsafe {
        *attr = script(|script| script.changes.last().map(|(attr, _)| *attr)).unwrap_or_default();
        (*attr).qp_state = script(|script| script.state).unwrap_or((*qp).state);
        (*attr).cap.max_send_wr = 31;
    }
    0
}

pub(super) unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    end("qp", qp)
}

pub(super) unsafe extern "C" fn create_ah(pd: *mut ibv_pd, _attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    make("ah", |ah: &mut ibv_ah| ah.pd = pd)
}

pub(super) unsafe extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    end("ah", ah)
}

pub(super) unsafe extern "C" fn get_async_event(_context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    let Some((kind, about)) = script(|script| script.events.pop_front()) else {
        fail::<c_void>(libc::EAGAIN);
        return -1;
    };
    let named =
        |list: &[usize], tag: &dyn Fn(usize) -> usize| list.iter().copied().find(|at| tag(*at) == about as usize);
    // SAFETY: a place for the event; objects whose addresses are kept are looked at only while a test keeps
    // them alive.
    unsafe {
        (*event).event_type = kind;
        (*event).element = match kind {
            IBV_EVENT_CQ_ERR => {
                let cq = script(|script| named(&script.cqs, &|at| (*(at as *mut ibv_cq)).cq_context as usize));
                ibv_async_element { cq: cq.unwrap_or(0) as *mut ibv_cq }
            }
            IBV_EVENT_PORT_ERR | IBV_EVENT_DEVICE_FATAL => ibv_async_element { port_num: about as c_int },
            _ => {
                let qp = script(|script| named(&script.qps, &|at| (*(at as *mut ibv_qp)).qp_context as usize));
                ibv_async_element { qp: qp.unwrap_or(0) as *mut ibv_qp }
            }
        };
    }
    0
}

pub(super) unsafe extern "C" fn ack_async_event(_event: *mut ibv_async_event) {
    script(|script| script.events_acknowledged += 1);
}

unsafe extern "C" fn poll_cq(_cq: *mut ibv_cq, most: c_int, wc: *mut ibv_wc) -> c_int {
    let mut count = 0;
    while count < most
        && let Some(completion) = script(|script| script.completions.pop_front())
    {
        // SAFETY: room for `most`.
        unsafe { wc.add(count as usize).write(completion) };
        count += 1;
    }
    count
}

unsafe extern "C" fn req_notify_cq(_cq: *mut ibv_cq, _solicited: c_int) -> c_int {
    0
}

unsafe extern "C" fn post_send(_qp: *mut ibv_qp, mut wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    let doorbell = script(|script| {
        script.doorbells += 1;
        script.doorbells - 1
    });
    while !wr.is_null() {
        // SAFETY: a list of whole requests, as `ibv_post_send(3)` demands.
        let (request, pieces) = unsafe {
            let request = &*wr;
            let pieces: Vec<ibv_sge> = (0..request.num_sge as usize).map(|at| *request.sg_list.add(at)).collect();
            (request, pieces)
        };
        if let Some((_, errno)) = script(|script| script.refuse_post).filter(|(id, _)| *id == request.wr_id) {
            // SAFETY: a place for the answer.
            unsafe { *bad = wr };
            return errno;
        }
        let mut inline = Vec::new();
        if request.send_flags & IBV_SEND_INLINE != 0 {
            for piece in &pieces {
                let at: *const u8 = std::ptr::with_exposed_provenance(piece.addr as usize);
                // SAFETY: inline pieces are memory of the caller's.
                inline.extend_from_slice(unsafe { std::slice::from_raw_parts(at, piece.length as usize) });
            }
        }
        let seen = Seen {
            id: request.wr_id,
            opcode: request.opcode,
            flags: request.send_flags,
            immediate: u32::from_be(request.imm_data),
            pieces: pieces.iter().map(|piece| piece.length).collect(),
            inline,
            // SAFETY: numbers whose bytes were all written at some time.
            remote: unsafe { (request.wr.rdma.remote_addr, request.wr.rdma.rkey) },
            doorbell,
        };
        script(|script| script.sends.push(seen));
        wr = request.next;
    }
    0
}

unsafe extern "C" fn post_recv(_qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    receive(wr, bad)
}

unsafe extern "C" fn post_srq_recv(_srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    receive(wr, bad)
}

fn receive(mut wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    while !wr.is_null() {
        // SAFETY: a list of whole requests, as `ibv_post_recv(3)` demands.
        let request = unsafe { *wr };
        if let Some((_, errno)) = script(|script| script.refuse_post).filter(|(id, _)| *id == request.wr_id) {
            // SAFETY: a place for the answer.
            unsafe { *bad = wr };
            return errno;
        }
        script(|script| script.receives.push(request.wr_id));
        wr = request.next;
    }
    0
}

/// The objects left that no test holds.
pub(crate) fn alive() -> Vec<&'static str> {
    let mut alive = script(|script| script.alive.clone());
    alive.sort_unstable();
    alive
}

/// Resets the state: threads of the test harness are used again.
pub(crate) fn reset() {
    script(|script| *script = Script::default());
}

pub(super) unsafe extern "C" fn modify_cq(_cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: whole attributes.
    let attr = unsafe { *attr };
    assert_eq!(attr.attr_mask, IBV_CQ_ATTR_MODERATE);
    script(|script| script.moderated = Some((attr.moderate.cq_count, attr.moderate.cq_period)));
    0
}
