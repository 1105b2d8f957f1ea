//! The state machine of a queue pair as one table: which state takes what (InfiniBand specification, 10.3.1;
//! figure 124 of it, and resilient-2010, figure 1), and which values a change may have.

use rerail_verbs::contract::{
    AddressVector, Datagram, Device, GlobalRoute, ModifyError, Payload, PostReason, QpChange, QpKind, QpState, RecvWr,
    SendOp, SendWr, Status,
};

use super::fixture::{End, Pair, QKEY, Tuning, invented, pair, poll, way};

/// A queue pair of that kind in that state, and its peer, ready.
fn in_state(pair: &Pair, kind: QpKind, state: QpState) -> [End; 2] {
    let tuning = Tuning { retry_count: 1, ..Tuning::default() };
    let [mut a, mut b] = [0, 1].map(|side| End::new(pair, side, kind, &tuning));
    b.connect(a.qp.number, 16, &tuning);
    let path: &[QpState] = match state {
        QpState::Reset => &[],
        QpState::Init => &[QpState::Init],
        QpState::Rtr => &[QpState::Init, QpState::Rtr],
        _ => &[QpState::Init, QpState::Rtr, QpState::Rts],
    };
    for &to in path {
        a.step(to, b.qp.number, 32, &tuning);
    }
    match state {
        QpState::Sqd | QpState::Error => a.to(state),
        // A send that fails by itself.
        QpState::Sqe => assert_eq!(send(&mut a, 32, b.qp.number, 999), Ok(())),
        _ => {}
    }
    pair.run_until_idle();
    a.sent();
    assert_eq!(a.state(), state);
    [a, b]
}

fn send(end: &mut End, dlid: u16, to: u32, lkey: u32) -> Result<(), PostReason> {
    let sge = end.sge(0, 8);
    let sges = [invented(sge.address(), sge.len(), if lkey == 0 { sge.lkey() } else { lkey })];
    let mut request = SendWr::new(1, SendOp::Send { immediate: None }, Payload::Memory(&sges));
    if end.kind == QpKind::Ud {
        let address = AddressVector { port: 1, dlid, ..AddressVector::default() };
        let handle = end.device.create_ah(end.pd, &address).unwrap();
        request.datagram = Some(Datagram { handle, qp: to, qkey: QKEY });
    }
    end.device.post_send(end.qp.id, &[request]).map_err(|error| error.why)
}

fn recv(end: &mut End) -> Result<(), PostReason> {
    let sges = [end.sge(1000, 100)];
    end.device.post_recv(end.qp.id, &[RecvWr { id: 2, sges: &sges }]).map_err(|error| error.why)
}

/// What comes of a posted request.
fn trace_text(refused: Result<(), PostReason>, completed: Option<Status>) -> &'static str {
    match (refused, completed) {
        (Err(PostReason::State { .. }), _) => "refused",
        (Err(_), _) => "other refusal",
        (Ok(()), None) => "kept",
        (Ok(()), Some(Status::Success)) => "done",
        (Ok(()), Some(Status::Flushed)) => "flushed",
        (Ok(()), Some(_)) => "failed",
    }
}

fn row(kind: QpKind, state: QpState) -> String {
    let first = |completions: Vec<rerail_verbs::contract::Completion>| completions.first().map(|first| first.status);
    let sent = {
        let pair = pair();
        let [mut a, mut b] = in_state(&pair, kind, state);
        recv(&mut b).unwrap();
        let posted = send(&mut a, 32, b.qp.number, 0);
        pair.run_until_idle();
        trace_text(posted, first(a.sent()))
    };
    let pair = pair();
    let [mut a, mut b] = in_state(&pair, kind, state);
    let posted = recv(&mut a);
    pair.run_until_idle();
    let received = trace_text(posted.clone(), first(poll(&mut a.device, a.recv_cq)));
    send(&mut b, 16, a.qp.number, 0).unwrap();
    pair.run_until_idle();
    let packet = match (first(poll(&mut a.device, a.recv_cq)), first(b.sent())) {
        (Some(Status::Success), Some(Status::Success)) => "delivered",
        (None, Some(Status::RetryExceeded)) => "silence",
        (None, Some(Status::Success)) => "dropped",
        other => panic!("{other:?}"),
    };
    let steps: Vec<String> = QpState::ALL
        .into_iter()
        .filter(|&to| {
            let pair = super::fixture::pair();
            let [mut a, b] = in_state(&pair, kind, state);
            // With the attributes of the way to RTS, or with none.
            let full = way(kind, to, b.qp.number, 32, &Tuning::default());
            [full, QpChange::to(to)].iter().any(|change| a.device.modify_qp(a.qp.id, change).is_ok())
        })
        .map(|to| to.to_string())
        .collect();
    let (kind, state, steps) = (format!("{kind:?}"), state.to_string(), steps.join(" "));
    format!("{kind:2} {state:5} | send {sent:7} | receive {received:7} | packet {packet:9} | to {steps}\n")
}

#[test]
fn the_whole_table() {
    let mut table = String::new();
    for state in QpState::ALL.into_iter().filter(|state| *state != QpState::Sqe) {
        table += &row(QpKind::Rc, state);
    }
    for state in QpState::ALL {
        table += &row(QpKind::Ud, state);
    }
    println!("{table}");
    assert_eq!(table, include_str!("states.txt"));
}

/// What is refused changes nothing, and names the field.
#[test]
fn values_are_checked() {
    let pair = pair();
    let [mut a, _b] = in_state(&pair, QpKind::Rc, QpState::Init);
    let before = a.device.query_qp(a.qp.id).unwrap();
    let good = way(QpKind::Rc, QpState::Rtr, 5, 32, &Tuning::default());
    let address = good.address.unwrap();
    let global = Some(GlobalRoute { source_index: 4, ..GlobalRoute::default() });
    let bad = [
        ("path_mtu", QpChange { path_mtu: Some(1000), ..good }),
        ("path_mtu", QpChange { path_mtu: Some(4096), ..good }),
        ("path_mtu", QpChange { path_mtu: Some(128), ..good }),
        ("destination", QpChange { destination: Some(1 << 24), ..good }),
        ("recv_psn", QpChange { recv_psn: Some(1 << 24), ..good }),
        ("reads_served", QpChange { reads_served: Some(17), ..good }),
        ("rnr_timer", QpChange { rnr_timer: Some(32), ..good }),
        ("pkey_index", QpChange { pkey_index: Some(1), ..good }),
        ("address.port", QpChange { address: Some(AddressVector { port: 2, ..address }), ..good }),
        ("address.dlid", QpChange { address: Some(AddressVector { dlid: 0, ..address }), ..good }),
        ("address.dlid", QpChange { address: Some(AddressVector { dlid: 0xc000, ..address }), ..good }),
        ("address.service_level", QpChange { address: Some(AddressVector { service_level: 16, ..address }), ..good }),
        ("address.global.source_index", QpChange { address: Some(AddressVector { global, ..address }), ..good }),
    ];
    for (name, change) in bad {
        let refused = a.device.modify_qp(a.qp.id, &change).unwrap_err();
        assert!(matches!(refused, ModifyError::OutOfRange { field, .. } if field == name), "{name}: {refused:?}");
        assert_eq!(a.device.query_qp(a.qp.id).unwrap(), before);
    }
    a.device.modify_qp(a.qp.id, &good).unwrap();
    let good = way(QpKind::Rc, QpState::Rts, 5, 32, &Tuning::default());
    let bad = [
        ("timeout", QpChange { timeout: Some(32), ..good }),
        ("retry_count", QpChange { retry_count: Some(8), ..good }),
        ("rnr_retry", QpChange { rnr_retry: Some(8), ..good }),
        ("send_psn", QpChange { send_psn: Some(u32::MAX), ..good }),
        ("reads_open", QpChange { reads_open: Some(17), ..good }),
    ];
    for (name, change) in bad {
        let refused = a.device.modify_qp(a.qp.id, &change).unwrap_err();
        assert!(matches!(refused, ModifyError::OutOfRange { field, .. } if field == name), "{name}: {refused:?}");
    }
    a.device.modify_qp(a.qp.id, &good).unwrap();
    let info = a.device.query_qp(a.qp.id).unwrap();
    assert_eq!((info.state, info.attributes.timeout, info.attributes.destination), (QpState::Rts, Some(8), Some(5)));
}
