//! Random verbs with random, stale and foreign names, random values and random faults: every verb answers,
//! nothing panics, and in the end nothing is left.

use std::collections::BTreeMap;

use rerail_core::time::{Nanos, Time};
use rerail_verbs::contract::{
    Access, AddressVector, AhId, CqId, CqInit, Datagram, Device, MrId, Payload, PdId, QpCaps, QpChange, QpId, QpInit,
    QpKind, QpState, RecvWr, Remote, SendOp, SendWr, Sge, SrqId, SrqInit, Status, XrcSrqInit, XrcdFile, XrcdId,
};

use super::fixture::{Pair, Tuning, invented, pair, try_register, way};
use crate::hca::{Fault, SimDevice};
use crate::net::{Direction, PortId};
use crate::rng::Rng;

/// Names that were given out to one device in all its lives; numbers and keys, to any.
#[derive(Default)]
struct Names {
    pds: Vec<u32>,
    mrs: Vec<u32>,
    keys: Vec<u32>,
    cqs: Vec<u32>,
    srqs: Vec<u32>,
    numbers: Vec<u32>,
    qps: Vec<u32>,
    ahs: Vec<u32>,
    domains: Vec<u32>,
    /// Names and numbers of RC queue pairs.
    made: Vec<(u32, u32)>,
    /// Remote keys that the others don't have yet.
    reported: Vec<u32>,
}

/// One of the first or the last few mostly, sometimes any, sometimes none of them.
fn some(rng: &mut Rng, from: &[u32]) -> u32 {
    let range = match rng.below(40) {
        0 => return rng.draw() as u32,
        1..=3 => 0..from.len(),
        4..=24 => 0..from.len().min(2),
        _ => from.len().saturating_sub(4)..from.len(),
    };
    rng.pick(&from[range]).copied().unwrap_or(0)
}

fn maybe<T>(rng: &mut Rng, value: T) -> Option<T> {
    (!rng.one_in(8)).then_some(value)
}

struct Cluster {
    rng: Rng,
    names: Names,
    memory: Vec<Box<[u8]>>,
    /// How requests ended.
    endings: BTreeMap<Status, u32>,
}

impl Cluster {
    fn kind(&mut self) -> QpKind {
        [QpKind::Rc, QpKind::Rc, QpKind::Ud, QpKind::XrcInitiator, QpKind::XrcTarget][self.rng.below(5) as usize]
    }

    fn make(&mut self, device: &mut SimDevice) {
        let Self { rng, names, memory, .. } = self;
        match rng.below(8) {
            0 => names.pds.extend(device.alloc_pd().map(|pd| pd.0)),
            1 => {
                let pd = PdId(some(rng, &names.pds));
                memory.push(vec![0; 4096].into_boxed_slice());
                let last = memory.len() - 1;
                if let Ok(mr) = try_register(device, pd, &mut memory[last], 0, Access::ALL) {
                    names.mrs.push(mr.id.0);
                    names.keys.push(mr.lkey);
                    names.reported.push(mr.rkey);
                }
            }
            2 => names.cqs.extend(device.create_cq(&CqInit { depth: rng.below(20) as u32 }).map(|cq| cq.0)),
            3 => {
                let (domain, cq) = (XrcdId(some(rng, &names.domains)), CqId(some(rng, &names.cqs)));
                let xrc = rng.one_in(2).then_some(XrcSrqInit { domain, cq });
                let init = SrqInit { depth: rng.below(10) as u32, sges: rng.below(3) as u32, xrc };
                if let Ok(srq) = device.create_srq(PdId(some(rng, &names.pds)), &init) {
                    names.srqs.push(srq.id.0);
                    names.numbers.extend(srq.number);
                }
            }
            4 => {
                let file = match rng.below(3) {
                    0 => XrcdFile::Private,
                    _ => XrcdFile::Shared { file: 1, create: rng.one_in(2), exclusive: rng.one_in(4) },
                };
                names.domains.extend(device.open_xrcd(file).map(|domain| domain.0));
            }
            5 => {
                let address =
                    AddressVector { port: rng.below(3) as u8, dlid: rng.below(50) as u16, ..Default::default() };
                names.ahs.extend(device.create_ah(PdId(some(rng, &names.pds)), &address).map(|ah| ah.0));
            }
            6 => {
                let domain = XrcdId(some(rng, &names.domains));
                let number = some(rng, &names.numbers);
                names.qps.extend(device.open_qp(domain, number).map(|qp| qp.id.0));
            }
            _ => self.make_qp(device),
        }
    }

    fn make_qp(&mut self, device: &mut SimDevice) {
        let kind = self.kind();
        let Self { rng, names, .. } = self;
        let (xrc, target) = (matches!(kind, QpKind::XrcInitiator | QpKind::XrcTarget), kind == QpKind::XrcTarget);
        let depth = rng.below(10) as u32;
        let caps = QpCaps { send_depth: depth, recv_depth: depth, send_sges: 2, recv_sges: 2, inline_bytes: 64 };
        let init = QpInit {
            kind,
            pd: (!target).then_some(PdId(some(rng, &names.pds))),
            send_cq: (!target).then_some(CqId(some(rng, &names.cqs))),
            recv_cq: (!xrc).then_some(CqId(some(rng, &names.cqs))),
            srq: (!xrc && rng.one_in(3)).then_some(SrqId(some(rng, &names.srqs))),
            domain: target.then_some(XrcdId(some(rng, &names.domains))),
            caps,
            signal_all: rng.one_in(2),
        };
        if let Ok(qp) = device.create_qp(&init) {
            names.qps.push(qp.id.0);
            names.numbers.push(qp.number);
            if kind == QpKind::Rc {
                names.made.push((qp.id.0, qp.number));
            }
            // Most go the whole way at once.
            for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
                let peer = some(rng, &names.numbers);
                let tuning = Tuning { timeout: 4, rnr_timer: 1, ..Tuning::default() };
                let dlid = [16, 17, 32, 33, 99][rng.below(5) as usize];
                let change = way(kind, to, peer, dlid, &tuning);
                if rng.one_in(10) || device.modify_qp(qp.id, &change).is_err() {
                    break;
                }
            }
        }
    }

    /// Connects the latest queue pairs of two devices to each other, if they can be.
    fn connect(&mut self, devices: &mut [Option<SimDevice>], sides: [usize; 2], made: [QpId; 2], numbers: [u32; 2]) {
        for (i, side) in sides.into_iter().enumerate() {
            let Some(device) = &mut devices[side] else { continue };
            for to in [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts] {
                let dlid = if sides[1 - i] & 1 == 0 { 16 } else { 32 };
                let tuning = Tuning { timeout: 4, rnr_timer: 1, retry_count: 1, rnr_retry: 1, ..Tuning::default() };
                let change = way(QpKind::Rc, to, numbers[1 - i], dlid, &tuning);
                let _ = device.modify_qp(made[i], &change);
            }
        }
    }

    fn sges(&mut self) -> Vec<Sge> {
        let Self { rng, names, .. } = self;
        let count = rng.below(3);
        let sge = |_| invented(rng.below(4000), rng.below(1500) as u32, some(rng, &names.keys));
        (0..count).map(sge).collect()
    }

    fn post(&mut self, device: &mut SimDevice) {
        let sges = self.sges();
        let Self { rng, names, .. } = self;
        let receive = [RecvWr { id: rng.draw(), sges: &sges }];
        let qp = QpId(some(rng, &names.qps));
        let remote = Remote { address: rng.below(500) * 8, rkey: some(rng, &names.keys) };
        let op = match rng.below(7) {
            0 | 1 => SendOp::Send { immediate: maybe(rng, 1) },
            2 => SendOp::Write { to: remote, immediate: maybe(rng, 1) },
            3 => SendOp::Read { from: remote },
            4 => SendOp::FetchAdd { at: remote, add: 1 },
            5 => {
                let _ = device.post_recv(qp, &receive);
                return;
            }
            _ => {
                let _ = device.post_srq_recv(SrqId(some(rng, &names.srqs)), &receive);
                return;
            }
        };
        let parts = [&[1u8; 80][..rng.below(80) as usize]];
        let payload = if rng.one_in(4) { Payload::Inline(&parts) } else { Payload::Memory(&sges) };
        let handle = AhId(some(rng, &names.ahs));
        let to = Datagram { handle, qp: some(rng, &names.numbers), qkey: super::fixture::QKEY };
        let request = SendWr { fence: rng.one_in(4), ..SendWr::new(rng.draw(), op, payload) };
        let srq_number = Some(some(rng, &names.numbers));
        let forms = [request, SendWr { datagram: Some(to), ..request }, SendWr { srq_number, ..request }];
        for form in forms {
            if device.post_send(qp, &[form, form]).is_ok() {
                return;
            }
        }
    }

    fn change(&mut self, device: &mut SimDevice) {
        let kind = self.kind();
        let Self { rng, names, .. } = self;
        let qp = QpId(some(rng, &names.qps));
        let state = QpState::ALL[rng.below(7) as usize];
        let change = match rng.one_in(2) {
            true => way(kind, state, rng.draw() as u32, rng.draw() as u16, &Tuning::default()),
            false => QpChange { drain_notify: maybe(rng, true), ..QpChange::to(state) },
        };
        let _ = device.modify_qp(qp, &change);
        let _ = device.query_qp(qp);
        let _ = device.arm_srq(SrqId(some(rng, &names.srqs)), rng.below(5) as u32);
        let _ = device.request_notify(CqId(some(rng, &names.cqs)), rng.one_in(2));
    }

    fn destroy(&mut self, device: &mut SimDevice) {
        let Self { rng, names, .. } = self;
        let _ = match rng.below(7) {
            0 => device.dealloc_pd(PdId(some(rng, &names.pds))),
            1 => device.deregister(MrId(some(rng, &names.mrs))),
            2 => device.destroy_cq(CqId(some(rng, &names.cqs))),
            3 => device.destroy_srq(SrqId(some(rng, &names.srqs))),
            4 => device.close_xrcd(XrcdId(some(rng, &names.domains))),
            5 => device.destroy_qp(QpId(some(rng, &names.qps))),
            _ => device.destroy_ah(AhId(some(rng, &names.ahs))),
        };
    }

    fn check_device(&mut self, device: &mut SimDevice) {
        let mut out = Vec::new();
        for cq in self.names.cqs.iter().rev().take(10) {
            let _ = device.poll_cq(CqId(*cq), 50, &mut out);
        }
        for completion in out {
            *self.endings.entry(completion.status).or_default() += 1;
        }
        while device.async_event().is_some() || device.cq_event().is_some() {}
    }

    fn fault(&mut self, pair: &Pair) {
        let Self { rng, names, .. } = self;
        let (hca, port) = (pair.hcas[rng.below(2) as usize], PortId(rng.below(2) as u32));
        let (qp, count) = (some(rng, &names.numbers), rng.below(3) as u32);
        let up = !rng.one_in(3);
        pair.inject(match rng.below(12) {
            0 => Fault::LoseAcks { hca, qp, count },
            1 => Fault::Swallow { hca, qp, id: None, count },
            2 => Fault::LoseCompletions { hca, qp, id: None, count },
            3 => Fault::ExceedRetries { hca, qp },
            4 => Fault::BreakQp { hca, qp },
            5 => Fault::Link { port, direction: Direction::Both, up, noticed_after: Some(Nanos(100)) },
            6 => Fault::Path { subnet: pair.subnet, plane: 1, up },
            7 => Fault::Kill { hca, reload_after: Some(Nanos(10_000)) },
            8 => Fault::RefuseRegistrations { hca, count },
            9 => Fault::Corrupt { port, packets: count },
            10 => Fault::Hold { port, until: Time(pair.now().0 + rng.below(100_000)) },
            _ => Fault::Lose { port, packets: count },
        });
    }
}

#[test]
fn random_verbs_calls_cause_no_panic_and_no_leak() {
    let mut endings = BTreeMap::new();
    for seed in 0..60 {
        let pair = pair();
        let mut cluster = Cluster {
            rng: Rng::new(seed, "hostile"),
            names: Names::default(),
            memory: Vec::new(),
            endings: std::mem::take(&mut endings),
        };
        let open = |side: usize| SimDevice::open(&pair.fabric, pair.hcas[side & 1], side as u32).ok();
        let mut devices: Vec<Option<SimDevice>> = (0..3).map(open).collect();
        let mut names: Vec<Names> = (0..3).map(|_| Names::default()).collect();
        for _ in 0..2500 {
            let which = cluster.rng.below(3) as usize;
            if cluster.rng.one_in(500) {
                devices[which] = None;
            }
            if devices[which].is_none() {
                devices[which] = open(which);
                names[which] = Names::default();
            }
            let other = (which + 1) % 3;
            if cluster.rng.one_in(25) {
                let last = |of: &Names| of.made.last().copied().unwrap_or_default();
                let [(qa, na), (qb, nb)] = [last(&names[which]), last(&names[other])];
                cluster.connect(&mut devices, [which, other], [QpId(qa), QpId(qb)], [na, nb]);
            }
            let Some(device) = &mut devices[which] else { continue };
            cluster.names = std::mem::take(&mut names[which]);
            match cluster.rng.below(20) {
                0..=5 => cluster.make(device),
                6..=13 => cluster.post(device),
                14 => cluster.change(device),
                15 if cluster.rng.one_in(2) => cluster.destroy(device),
                16 | 17 => cluster.check_device(device),
                18 if cluster.rng.one_in(10) => cluster.fault(&pair),
                _ => pair.pass(Nanos(cluster.rng.below(20_000))),
            }
            // Every process has the keys of all others, as if they were sent.
            for key in std::mem::take(&mut cluster.names.reported) {
                names[other].keys.push(key);
                names[(other + 1) % 3].keys.push(key);
            }
            names[which] = std::mem::take(&mut cluster.names);
        }
        devices.clear();
        endings = cluster.endings;
        pair.run_until_idle();
        for hca in pair.hcas {
            assert_eq!(pair.fabric.borrow().objects(hca), Default::default(), "seed {seed}");
        }
    }
    // It was not all refused at the door.
    println!("{endings:?}");
    assert!(endings.len() >= 7 && endings[&Status::Success] > 100, "{endings:?}");
}
