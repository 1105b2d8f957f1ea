//! Shared receive queues, and XRC (InfiniBand specification, 10.2.9 and annex A14; xrc-2008, IV).

use rerail_verbs::contract::{
    Access, AsyncEvent, CqId, CqInit, CreateError, DestroyError, Device, Kind, Mr, Payload, PdId, PostReason, Qp,
    QpInit, QpKind, QpState, RecvWr, Remote, SendOp, SendWr, Srq, SrqInit, Status, XrcSrqInit, XrcdFile, XrcdId,
};

use super::fixture::{End, Pair, Tuning, ends_of, invented, ok, pair, poll, register, way};
use crate::hca::SimDevice;

#[test]
fn srq_is_shared_and_its_limit_event_is_raised() {
    let pair = pair();
    let tuning = Tuning { srq: true, ..Tuning::default() };
    let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| tuning.srq = true);
    let mut c = End::new(&pair, 0, QpKind::Rc, &tuning);
    let caps = tuning.caps;
    let cqs = (Some(b.send_cq), Some(b.recv_cq));
    let init = QpInit {
        kind: QpKind::Rc,
        pd: Some(b.pd),
        send_cq: cqs.0,
        recv_cq: cqs.1,
        srq: b.srq,
        domain: None,
        caps,
        signal_all: false,
    };
    let second = b.device.create_qp(&init).unwrap();
    for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
        b.device.modify_qp(second.id, &way(QpKind::Rc, to, c.qp.number, 16, &tuning)).unwrap();
    }
    c.connect(second.number, 32, &tuning);
    let srq = b.srq.unwrap();
    for id in 0..4 {
        b.recv(id, id * 100, 100);
    }
    b.device.arm_srq(srq, 3).unwrap();
    a.send(10, 0, 50);
    pair.run_until_idle();
    assert_eq!(b.events(), []);
    c.send(11, 0, 60);
    pair.run_until_idle();
    // Two are left, fewer than three; it is reported once.
    assert_eq!(b.events(), [AsyncEvent::SrqLimit(srq)]);
    a.send(12, 0, 70);
    pair.run_until_idle();
    assert_eq!(b.events(), []);
    let received = b.received();
    let by: Vec<_> = received.iter().map(|completion| (completion.id, completion.qp, completion.bytes)).collect();
    assert_eq!(by, [(0, b.qp.number, 50), (1, second.number, 60), (2, b.qp.number, 70)]);
    // A limit above what there is is reported at once.
    b.device.arm_srq(srq, 2).unwrap();
    assert_eq!(b.events(), [AsyncEvent::SrqLimit(srq)]);
    assert!(b.device.arm_srq(srq, 65).is_err());
}

/// A broken queue pair takes nothing along: its shared queue keeps the requests, an event reports that it
/// takes no more.
#[test]
fn shared_receives_are_not_flushed() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| tuning.srq = true);
    b.recv(1, 0, 100);
    a.post(2, SendOp::Write { to: Remote { address: 0, rkey: 1 }, immediate: None }, 0, 1);
    pair.run_until_idle();
    assert_eq!(b.received(), []);
    assert_eq!(b.events(), [AsyncEvent::QpLastWqe(b.qp.id), AsyncEvent::QpAccessError(b.qp.id)]);
    let (srq, sges) = (b.srq.unwrap(), [b.sge(0, 8)]);
    let refused = b.device.post_recv(b.qp.id, &[RecvWr { id: 9, sges: &sges }]).unwrap_err();
    assert!(matches!(refused.why, PostReason::Operation { .. }));
    assert_eq!(b.device.destroy_srq(srq), Err(DestroyError::Busy { what: Kind::Srq, users: 1 }));
    b.device.destroy_qp(b.qp.id).unwrap();
    b.device.destroy_srq(srq).unwrap();
}

/// A process with an XRC shared receive queue in the host's domain.
struct Receiver {
    device: SimDevice,
    pd: PdId,
    domain: XrcdId,
    cq: CqId,
    srq: Srq,
    mr: Mr,
    memory: Box<[u8]>,
}

impl Receiver {
    fn new(pair: &Pair, owner: u32) -> Receiver {
        let mut device = SimDevice::open(&pair.fabric, pair.hcas[1], owner).unwrap();
        let pd = device.alloc_pd().unwrap();
        let file = XrcdFile::Shared { file: 7, create: true, exclusive: false };
        let domain = device.open_xrcd(file).unwrap();
        let cq = device.create_cq(&CqInit { depth: 16 }).unwrap();
        let init = SrqInit { depth: 16, sges: 1, xrc: Some(XrcSrqInit { domain, cq }) };
        let srq = device.create_srq(pd, &init).unwrap();
        let mut memory = vec![0; 4096].into_boxed_slice();
        let mr = register(&mut device, pd, &mut memory, 0, Access::ALL);
        Receiver { device, pd, domain, cq, srq, mr, memory }
    }

    fn recv(&mut self, id: u64) {
        let sges = [invented(id * 64, 64, self.mr.lkey)];
        self.device.post_srq_recv(self.srq.id, &[RecvWr { id, sges: &sges }]).unwrap();
    }

    fn target(&mut self, peer: u32, tuning: &Tuning) -> Qp {
        let domain = Some(self.domain);
        let init = QpInit {
            kind: QpKind::XrcTarget,
            pd: None,
            send_cq: None,
            recv_cq: None,
            srq: None,
            domain,
            caps: Default::default(),
            signal_all: false,
        };
        let target = self.device.create_qp(&init).unwrap();
        for to in [QpState::Init, QpState::Rtr] {
            self.device.modify_qp(target.id, &way(QpKind::XrcTarget, to, peer, 16, tuning)).unwrap();
        }
        target
    }
}

fn xrc_send(end: &mut End, id: u64, number: u32, len: u32) {
    let sges = [end.sge(0, len)];
    let op = SendOp::Send { immediate: None };
    let request = SendWr { srq_number: Some(number), ..SendWr::new(id, op, Payload::Memory(&sges)) };
    end.device.post_send(end.qp.id, &[request]).unwrap();
}

/// One connection reaches every process of a host (xrc-2008, IV.B and figure 2).
#[test]
fn one_target_delivers_to_all_processes() {
    let pair = pair();
    let tuning = Tuning::default();
    let (mut x, mut y) = (Receiver::new(&pair, 10), Receiver::new(&pair, 11));
    let mut a = End::new(&pair, 0, QpKind::XrcInitiator, &tuning);
    let target = x.target(a.qp.number, &tuning);
    a.connect(target.number, 32, &tuning);
    let opened = y.device.open_qp(y.domain, target.number).unwrap();
    assert_eq!(opened.number, target.number);
    a.fill(0, b"for x and y");
    x.recv(1);
    y.recv(2);
    let (nx, ny) = (x.srq.number.unwrap(), y.srq.number.unwrap());
    assert_ne!(nx, ny);
    xrc_send(&mut a, 20, ny, 11);
    xrc_send(&mut a, 21, nx, 5);
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), [ok(20), ok(21)]);
    let (at_x, at_y) = (poll(&mut x.device, x.cq), poll(&mut y.device, y.cq));
    assert_eq!((ends_of(&at_x), ends_of(&at_y)), (vec![ok(1)], vec![ok(2)]));
    assert_eq!((at_y[0].bytes, at_y[0].qp), (11, target.number));
    assert_eq!(&y.memory[128..139], b"for x and y");
    let mut woken = Vec::new();
    pair.fabric.borrow_mut().take_woken(&mut woken);
    assert_eq!(woken, [0, 10, 11]);

    // Keys are those of the protection domain of the queue that a packet names.
    let sges = [a.sge(0, 4)];
    let to = Remote { address: 1000, rkey: y.mr.rkey };
    let write = SendOp::Write { to, immediate: None };
    let request = SendWr { srq_number: Some(ny), ..SendWr::new(22, write, Payload::Memory(&sges)) };
    a.device.post_send(a.qp.id, &[request]).unwrap();
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), [ok(22)]);
    assert_eq!(&y.memory[1000..1004], b"for ");

    // The maker goes; the target lives as long as a process has it open.
    drop(x);
    y.recv(3);
    xrc_send(&mut a, 23, ny, 4);
    pair.run_until_idle();
    assert_eq!((ends_of(&a.sent()), ends_of(&poll(&mut y.device, y.cq))), (vec![ok(23)], vec![ok(3)]));
    // A queue that is gone, or never was: the connection breaks, its holder receives the reason.
    xrc_send(&mut a, 24, nx, 4);
    pair.run_until_idle();
    assert_eq!((ends_of(&a.sent()), a.state()), (vec![(24, Status::RemoteInvalid)], QpState::Error));
    assert_eq!(y.device.async_event(), Some(AsyncEvent::CommEstablished(opened.id)));
    assert_eq!(y.device.async_event(), Some(AsyncEvent::QpRequestError(opened.id)));
    assert_eq!(y.device.close_xrcd(y.domain), Err(DestroyError::Busy { what: Kind::Xrcd, users: 2 }));
    y.device.destroy_qp(opened.id).unwrap();
    y.device.destroy_srq(y.srq.id).unwrap();
    y.device.close_xrcd(y.domain).unwrap();
    assert_eq!(y.device.dealloc_pd(y.pd), Err(DestroyError::Busy { what: Kind::Pd, users: 1 }));
    let objects = pair.fabric.borrow().objects(pair.hcas[1]);
    assert_eq!((objects.qps, objects.srqs, objects.xrcds, objects.contexts), (0, 0, 0, 1));
}

#[test]
fn domains_are_found_by_their_file() {
    let pair = pair();
    let mut x = Receiver::new(&pair, 1);
    let mut other = SimDevice::open(&pair.fabric, pair.hcas[1], 2).unwrap();
    let shared = |file, create, exclusive| XrcdFile::Shared { file, create, exclusive };
    assert_eq!(other.open_xrcd(shared(8, false, false)), Err(CreateError::System { code: 2 }));
    assert_eq!(other.open_xrcd(shared(7, true, true)), Err(CreateError::System { code: 17 }));
    let same = other.open_xrcd(shared(7, false, false)).unwrap();
    let own = other.open_xrcd(XrcdFile::Private).unwrap();
    let target = x.target(1, &Tuning::default());
    assert!(other.open_qp(own, target.number).is_err());
    assert!(other.open_qp(same, target.number).is_ok());
    assert!(other.open_qp(same, target.number + 1).is_err());
    assert!(other.open_qp(x.domain, target.number).is_err(), "another process's name");
}
