//! The device behind the contract, over the fake library.
#![allow(unsafe_code)]

use rdma_core_sys::*;

use super::fake::objects::{alive, reset, script};
use super::{fake, open};
use crate::IbDevice;
use crate::contract::*;

fn device() -> IbDevice {
    reset();
    IbDevice::new(open("rxe9")).unwrap()
}

/// A device with a queue pair in a state.
fn with_qp(state: QpState) -> (IbDevice, PdId, CqId, QpId) {
    let mut device = device();
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(&CqInit { depth: 16 }).unwrap());
    let qp = device.create_qp(&init(pd, cq)).unwrap().id;
    script(|script| script.state = Some(state as i32));
    // The device's report is trusted, but for posting, where the last state set is.
    if state != QpState::Reset {
        device.modify_qp(qp, &QpChange::to(QpState::Error)).unwrap();
    }
    (device, pd, cq, qp)
}

fn init(pd: PdId, cq: CqId) -> QpInit {
    QpInit {
        kind: QpKind::Rc,
        pd: Some(pd),
        send_cq: Some(cq),
        recv_cq: Some(cq),
        srq: None,
        domain: None,
        caps: QpCaps { send_depth: 16, recv_depth: 16, send_sges: 2, recv_sges: 1, inline_bytes: 32 },
        signal_all: false,
    }
}

#[test]
fn device_limits_hold_for_sends_reads_and_receives() {
    let limits = device().limits();
    assert_eq!((limits.sges, limits.srqs, limits.inline_bytes), (3, 8, 128));
    assert_eq!((limits.reads_served, limits.reads_open), (16, 255));
    assert!(!limits.iova && !limits.xrc && limits.atomics);
    drop(
        IbDevice::new(open("mlx9_0")).map(|device| assert_eq!((device.limits().srqs, device.limits().xrc), (0, true))),
    );
    assert_eq!(alive(), [""; 0]);
    assert_eq!(fake::machine().contexts, 0);
}

/// If a device makes queue pairs for any length and gives less, the limit is the given length; if later queue
/// pairs take less than the first, that one.
#[test]
fn inline_limit_is_the_size_the_device_grants() {
    for given in [0, 20] {
        reset();
        script(|script| script.inline_given = Some(given));
        assert_eq!(IbDevice::new(open("rxe9")).unwrap().limits().inline_bytes, given);
    }
    let (mut device, pd, cq, qp) = with_qp(QpState::Rts);
    assert_eq!((device.limits().inline_bytes, device.query_qp(qp).unwrap().caps.inline_bytes), (128, 32));
    script(|script| script.inline_given = Some(16));
    device.create_qp(&init(pd, cq)).unwrap();
    assert_eq!(device.limits().inline_bytes, 16);
}

#[test]
fn dropping_a_device_destroys_all_its_objects() {
    let (mut device, pd, _, _) = with_qp(QpState::Reset);
    let srq = device.create_srq(pd, &SrqInit { depth: 4, sges: 1, xrc: None }).unwrap();
    assert_eq!(srq.number, None);
    device.create_ah(pd, &AddressVector { port: 1, ..AddressVector::default() }).unwrap();
    let mut memory = vec![0u8; 64];
    // SAFETY: the fake library touches no memory that is registered.
    let mr = unsafe { device.register(pd, memory.as_mut_ptr(), 64, memory.as_ptr() as u64, Access::ALL) }.unwrap();
    assert_eq!((mr.lkey, mr.rkey), (7, 9));
    assert_eq!(alive(), ["ah", "channel", "cq", "mr", "pd", "qp", "srq"]);
    drop(device);
    assert_eq!(alive(), [""; 0]);
    assert_eq!(fake::machine().contexts, 0);
}

#[test]
fn busy_object_is_not_destroyed_and_failed_destroy_keeps_it() {
    let (mut device, pd, cq, qp) = with_qp(QpState::Reset);
    assert_eq!(device.dealloc_pd(pd), Err(DestroyError::Busy { what: Kind::Pd, users: 1 }));
    assert_eq!(device.destroy_cq(cq), Err(DestroyError::Busy { what: Kind::Cq, users: 1 }));
    script(|script| script.destroy_errno = libc::EBUSY);
    assert_eq!(device.destroy_qp(qp), Err(DestroyError::System { code: libc::EBUSY }));
    script(|script| script.destroy_errno = 0);
    assert!(device.query_qp(qp).is_ok());
    device.destroy_qp(qp).unwrap();
    assert_eq!(device.destroy_qp(qp), Err(DestroyError::Unknown { what: Kind::Qp, name: qp.0 }));
    device.destroy_cq(cq).unwrap();
    device.dealloc_pd(pd).unwrap();
    script(|script| script.make_errno = libc::ENOMEM);
    assert_eq!(device.alloc_pd(), Err(CreateError::System { code: libc::ENOMEM }));
    script(|script| script.make_errno = 0);
    assert_ne!(device.alloc_pd(), Ok(pd), "another name");
}

#[test]
fn an_illegal_change_never_reaches_the_library() {
    let (mut device, _, _, qp) = with_qp(QpState::Reset);
    let attrs = Attrs::of(&[Attr::PkeyIndex, Attr::Port, Attr::Access]);
    let missing = TransitionError::Missing { from: QpState::Reset, to: QpState::Init, attrs };
    assert_eq!(device.modify_qp(qp, &QpChange::to(QpState::Init)), Err(ModifyError::Transition(missing)));
    let init =
        QpChange { pkey_index: Some(0), port: Some(9), access: Some(Access::ALL), ..QpChange::to(QpState::Init) };
    let error = ModifyError::OutOfRange { field: "port", value: 9, min: 1, max: 1 };
    assert_eq!(device.modify_qp(qp, &init), Err(error));
    assert!(script(|script| script.changes.is_empty()));
    device.modify_qp(qp, &QpChange { port: Some(1), ..init }).unwrap();
    let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    let (attr, given) = script(|script| script.changes[0]);
    assert_eq!((given, attr.qp_state, attr.port_num, attr.qp_access_flags), (mask, IBV_QPS_INIT, 1, 15));
}

/// A query is a command to the device, as a change is: the state that was set is taken as true, until the
/// device refuses.
#[test]
fn queue_pair_state_is_queried_only_when_it_may_have_changed() {
    let (mut device, _, _, qp) = with_qp(QpState::Reset);
    let queries = || script(|script| std::mem::take(&mut script.queries));
    assert_eq!(queries(), 0, "nor when it is made");
    let init =
        QpChange { pkey_index: Some(0), port: Some(1), access: Some(Access::ALL), ..QpChange::to(QpState::Init) };
    device.modify_qp(qp, &init).unwrap();
    assert_eq!(queries(), 0);
    // It is in error by itself, and reports it only at the next change.
    script(|script| {
        script.state = Some(IBV_QPS_ERR);
        script.refuse_changes_unless = Some(IBV_QPS_SQE);
    });
    let rtr = QpChange {
        address: Some(AddressVector { port: 1, ..AddressVector::default() }),
        path_mtu: Some(1024),
        destination: Some(3),
        recv_psn: Some(4),
        reads_served: Some(1),
        rnr_timer: Some(12),
        ..QpChange::to(QpState::Rtr)
    };
    let error = device.modify_qp(qp, &rtr).unwrap_err();
    assert!(matches!(error, ModifyError::Transition(_)), "{error:?}");
    assert_eq!(queries(), 1);
    // A refusal in the state that we estimate has its own reason.
    script(|script| script.state = Some(IBV_QPS_INIT));
    assert_eq!(device.modify_qp(qp, &rtr), Err(ModifyError::System { code: libc::EINVAL }));
    // A change of attributes alone goes from where it is.
    script(|script| (script.state, script.refuse_changes_unless) = (Some(IBV_QPS_RTS), None));
    queries();
    device.modify_qp(qp, &QpChange { rnr_timer: Some(3), ..QpChange::default() }).unwrap();
    assert_eq!((queries(), script(|script| script.changes.last().unwrap().0.qp_state)), (1, IBV_QPS_RTS));
}

#[test]
fn partition_keys_are_read_up_to_the_table_end() {
    reset();
    let device = IbDevice::new(open("mlx9_0")).unwrap();
    assert_eq!([0, 1, 2].map(|index| device.pkey(1, index)), [Ok(0x7fff), Ok(0), Ok(0x8001)]);
    let error = CreateError::OutOfRange { what: Kind::Pkey, value: 3, min: 0, max: 2 };
    assert_eq!(device.pkey(1, 3), Err(error));
    assert!(matches!(device.pkey(3, 0), Err(CreateError::OutOfRange { what: Kind::Port, .. })));
}

/// Linux has no step from RESET to ERR.
#[test]
fn reset_to_error_passes_through_init() {
    let (mut device, _, _, qp) = with_qp(QpState::Reset);
    device.modify_qp(qp, &QpChange::to(QpState::Error)).unwrap();
    let states = script(|script| script.changes.iter().map(|(attr, _)| attr.qp_state).collect::<Vec<_>>());
    assert_eq!(states, [IBV_QPS_INIT, IBV_QPS_ERR]);
}

#[test]
fn send_list_uses_one_doorbell_up_to_the_first_bad_request() {
    let (mut device, _, _, qp) = with_qp(QpState::Rts);
    // SAFETY: the fake library looks at no memory.
    let sge = [unsafe { Sge::new(0x1000, 8, 7) }];
    let three = [sge[0]; 3];
    let send = SendOp::Send { immediate: Some(0x0102_0304) };
    let write = SendOp::Write { to: Remote { address: 0x2000, rkey: 5 }, immediate: None };
    let words: [&[u8]; 2] = [b"in", b"line"];
    let good = [
        SendWr::new(1, send, Payload::Memory(&sge)),
        SendWr { signaled: false, solicited: true, ..SendWr::new(2, write, Payload::Inline(&words)) },
    ];
    let list = [good[0], good[1], SendWr::new(3, send, Payload::Memory(&three)), good[0]];
    let error = PostError { index: 2, why: PostReason::Sges { given: 3, max: 2 } };
    // Its sizes are the requested ones; the depth is as the device has rounded it up.
    assert_eq!(device.query_qp(qp).unwrap().caps.send_depth, 31);
    assert_eq!(device.post_send(qp, &list), Err(error));
    let seen = script(|script| script.sends.clone());
    assert_eq!(seen.len(), 2);
    assert_eq!((seen[0].id, seen[0].opcode, seen[0].immediate), (1, IBV_WR_SEND_WITH_IMM, 0x0102_0304));
    assert_eq!((seen[0].flags, &seen[0].pieces), (IBV_SEND_SIGNALED, &vec![8]));
    assert_eq!((seen[1].opcode, seen[1].remote), (IBV_WR_RDMA_WRITE, (0x2000, 5)));
    assert_eq!((seen[1].flags, &seen[1].inline[..]), (IBV_SEND_SOLICITED | IBV_SEND_INLINE, &b"inline"[..]));
    assert_eq!(script(|script| script.doorbells), 1);
}

#[test]
fn long_lists_go_in_batches_and_a_refusal_names_its_place() {
    let (mut device, _, _, qp) = with_qp(QpState::Rts);
    let list: Vec<SendWr<'_>> =
        (0..150).map(|id| SendWr::new(id, SendOp::Send { immediate: None }, Payload::Memory(&[]))).collect();
    device.post_send(qp, &list).unwrap();
    let seen = script(|script| std::mem::take(&mut script.sends));
    assert!(seen.iter().map(|seen| seen.id).eq(0..150));
    assert_eq!(seen.iter().map(|seen| seen.doorbell).max(), Some(2));
    for (errno, why) in [
        (libc::ENOMEM, PostReason::Full { depth: 31 }),
        (libc::EIO, PostReason::DeviceGone),
        (libc::EINVAL, PostReason::System { code: libc::EINVAL }),
    ] {
        script(|script| script.refuse_post = Some((100, errno)));
        assert_eq!(device.post_send(qp, &list), Err(PostError { index: 100, why }));
    }
    let receives: Vec<RecvWr<'_>> = (0..150).map(|id| RecvWr { id, sges: &[] }).collect();
    let error = PostError { index: 100, why: PostReason::Full { depth: 16 } };
    script(|script| script.refuse_post = Some((100, libc::ENOMEM)));
    assert_eq!(device.post_recv(qp, &receives), Err(error));
    assert_eq!(script(|script| script.receives.len()), 100);
}

#[test]
fn post_in_an_invalid_state_fails_without_a_library_call() {
    let (mut device, _, _, qp) = with_qp(QpState::Reset);
    let request = SendWr::new(1, SendOp::Send { immediate: None }, Payload::Memory(&[]));
    let error = PostError { index: 0, why: PostReason::State { state: QpState::Reset } };
    assert_eq!(device.post_send(qp, &[request]), Err(error.clone()));
    assert_eq!(device.post_recv(qp, &[RecvWr { id: 1, sges: &[] }]), Err(error));
    assert_eq!(script(|script| (script.doorbells, script.receives.len())), (0, 0));
}

#[test]
fn completions_are_those_of_the_library() {
    let (mut device, _, cq, qp) = with_qp(QpState::Rts);
    let number = 2; // The first one was made to find out how much goes inline.
    let wc = ibv_wc { wr_id: 5, qp_num: number, ..ibv_wc::default() };
    script(|script| {
        script.completions.push_back(ibv_wc {
            opcode: IBV_WC_RECV_RDMA_WITH_IMM,
            byte_len: 12,
            imm_data: 0x0a0b_u32.to_be(),
            wc_flags: IBV_WC_WITH_IMM | IBV_WC_GRH,
            ..wc
        });
        script.completions.push_back(ibv_wc { status: IBV_WC_RETRY_EXC_ERR, ..wc });
        script.completions.push_back(ibv_wc { status: 77, ..wc });
    });
    let mut out = Vec::new();
    assert_eq!(device.poll_cq(cq, 2, &mut out), Ok(2));
    assert_eq!((out[0].kind, out[0].bytes, out[0].immediate), (CompletionKind::RecvWrite, 12, Some(0x0a0b)));
    assert!(out[0].global && out[0].status == Status::Success);
    assert_eq!((out[1].status, out[1].immediate), (Status::RetryExceeded, None));
    assert_eq!(device.poll_cq(cq, 2, &mut out), Ok(1));
    assert_eq!(out[2].status, Status::Other(77));
    assert_eq!(device.poll_cq(CqId(0), 1, &mut out), Err(PollError::Unknown { name: 0 }));

    // Those of a queue pair that is destroyed go with it, those of others stay and come first.
    script(|script| {
        script.completions.push_back(wc);
        script.completions.push_back(ibv_wc { wr_id: 6, qp_num: 99, ..wc });
    });
    device.destroy_qp(qp).unwrap();
    script(|script| script.completions.push_back(ibv_wc { wr_id: 7, qp_num: 99, ..wc }));
    out.clear();
    assert_eq!(device.poll_cq(cq, 10, &mut out), Ok(2));
    assert!(out.iter().map(|completion| completion.id).eq([6, 7]));
}

#[test]
fn events_name_their_objects_and_are_acknowledged() {
    let (mut device, _, cq, qp) = with_qp(QpState::Rts);
    assert_eq!((device.async_event(), device.cq_event()), (None, None));
    script(|script| {
        script.events.extend([
            (IBV_EVENT_QP_FATAL, qp.0),
            (IBV_EVENT_PORT_ERR, 1),
            (IBV_EVENT_CQ_ERR, cq.0),
            (IBV_EVENT_DEVICE_FATAL, 0),
        ]);
        script.cq_events.extend([cq.0, 12_345, cq.0]);
    });
    assert_eq!(device.async_event(), Some(AsyncEvent::QpFatal(qp)));
    assert_eq!(device.async_event(), Some(AsyncEvent::PortError(1)));
    assert_eq!(device.async_event(), Some(AsyncEvent::CqError(cq)));
    assert_eq!(device.poll_cq(cq, 1, &mut Vec::new()), Err(PollError::Overflow));
    assert!(device.alloc_pd().is_ok());
    assert_eq!(device.async_event(), Some(AsyncEvent::DeviceFatal));
    assert_eq!(script(|script| script.events_acknowledged), 4);
    // From now on nothing can be had.
    assert_eq!(device.alloc_pd(), Err(CreateError::DeviceGone));
    assert_eq!(device.query_qp(qp), Err(ModifyError::DeviceGone));
    let request = SendWr::new(1, SendOp::Send { immediate: None }, Payload::Memory(&[]));
    assert_eq!(device.post_send(qp, &[request]), Err(PostError { index: 0, why: PostReason::DeviceGone }));
    // Events of destroyed queues are ignored; events read are acknowledged before the queue goes.
    assert_eq!((device.cq_event(), device.cq_event(), device.cq_event()), (Some(cq), Some(cq), None));
    drop(device);
    assert_eq!(script(|script| script.cq_events_acknowledged), 2);
}

#[test]
fn event_checks_are_rare_unless_an_event_is_expected() {
    let (mut device, _, cq, _) = with_qp(QpState::Rts);
    let comes = |device: &mut IbDevice| {
        script(|script| script.events.push_back((IBV_EVENT_PORT_ERR, 1)));
        (1..100).find(|_| device.async_event().is_some())
    };
    assert_eq!(comes(&mut device), Some(1));
    device.set_event_interval(10);
    assert_eq!((device.async_event(), comes(&mut device)), (None, Some(10)));
    assert_eq!((device.async_event(), device.cq_event(), comes(&mut device)), (None, None, Some(1)));
    assert_eq!(device.async_event(), None);
    script(|script| script.completions.push_back(ibv_wc { status: IBV_WC_WR_FLUSH_ERR, ..ibv_wc::default() }));
    assert_eq!(device.poll_cq(cq, 1, &mut Vec::new()), Ok(1));
    assert_eq!(comes(&mut device), Some(1));
}

#[test]
fn registrations_are_checked_before_the_library_sees_them() {
    let mut device = device();
    let pd = device.alloc_pd().unwrap();
    let mut memory = vec![0u8; 64];
    let (start, own) = (memory.as_mut_ptr(), memory.as_ptr() as u64);
    // SAFETY: the fake library touches no memory that is registered.
    let mut register = |bytes, iova, access| unsafe { device.register(pd, start, bytes, iova, access) };
    assert!(matches!(register(0, own, Access::ALL), Err(RegisterError::Length { bytes: 0, .. })));
    assert!(matches!(register(u64::MAX, own, Access::ALL), Err(RegisterError::Length { .. })));
    let no_local = Access { local_write: false, ..Access::ALL };
    assert_eq!(register(64, own, no_local), Err(RegisterError::Access));
    for address in [own % 4096, own ^ 1, own + (1 << 20)] {
        assert_eq!(register(64, address, Access::ALL), Err(RegisterError::NoIova), "providers follow it as a pointer");
    }
    assert!(register(64, own, Access::ALL).is_ok());
    assert_eq!(script(|script| script.access), 15);
    device.set_relaxed_ordering(true);
    // SAFETY: as above.
    unsafe { device.register(pd, start, 64, own, Access::LOCAL) }.unwrap();
    assert_eq!(script(|script| script.access), 1 | IBV_ACCESS_RELAXED_ORDERING);
    script(|script| script.make_errno = libc::ENOMEM);
    // SAFETY: as above.
    let refused = unsafe { device.register(pd, start, 64, own, Access::LOCAL) };
    assert!(refused.unwrap_err().to_string().contains("ulimit -l"));
}

#[test]
fn unsupported_feature_is_not_requested_from_the_device() {
    let (mut device, pd, cq, _) = with_qp(QpState::Reset);
    assert_eq!(device.open_xrcd(XrcdFile::Private), Err(CreateError::Unsupported { what: "XRC" }));
    let xrc = QpInit { kind: QpKind::XrcInitiator, recv_cq: None, ..init(pd, cq) };
    assert_eq!(device.create_qp(&xrc), Err(CreateError::Unsupported { what: "XRC" }));
    assert!(device.wait_fd().is_some());
}

/// Flags of a registration.
pub(super) fn registered(device: &mut IbDevice) -> u32 {
    registered_as(device, Access::LOCAL).unwrap()
}

/// The same of one with this access.
pub(super) fn registered_as(device: &mut IbDevice, access: Access) -> Result<u32, RegisterError> {
    let pd = device.alloc_pd().unwrap();
    let mut memory = [0u8; 64];
    let start = memory.as_mut_ptr();
    let at = start.addr() as u64;
    // SAFETY: the fake library touches no memory, and the registration ends before this memory does.
    let mr = unsafe { device.register(pd, start, 64, at, access) };
    if let Ok(mr) = &mr {
        device.deregister(mr.id).unwrap();
    }
    device.dealloc_pd(pd).unwrap();
    mr.map(|_| script(|script| script.access))
}

/// A node's processes spread their interrupts; a device with one vector, or none reported, has the first.
#[test]
fn processes_take_completion_vectors_in_turn() {
    let of = |vectors| [4_000, 4_001, 4_002, 4_003].map(|process| crate::ffi::vector_of(process, vectors));
    assert_eq!(of(3), [1, 2, 0, 1]);
    assert_eq!(of(64), [32, 33, 34, 35]);
    assert_eq!((of(1), of(0), of(-1)), ([0; 4], [0; 4], [0; 4]));
    assert_eq!(crate::ffi::vector_of(u32::MAX, i32::MAX), 1);
}
