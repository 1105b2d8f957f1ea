//! Two hosts (or one), a switch between them, and what tests need again and again.

use rerail_core::time::{Nanos, Time};
use rerail_verbs::contract::{
    Access, AddressVector, AsyncEvent, Completion, CqId, CqInit, Device, Limits, Mr, Payload, PdId, Qp, QpCaps,
    QpChange, QpInit, QpKind, QpState, RecvWr, RegisterError, Remote, SendOp, SendWr, Sge, SrqId, Status,
};

use crate::hca::{Fabric, Fault, HcaOptions, SharedFabric, SimDevice};
use crate::net::{BusModel, HcaId, HcaModel, LinkModel, PlaneModel, SubnetId, SubnetModel};
use crate::trace::Trace;

/// Bytes of an end's memory.
pub const BYTES: usize = 256 * 1024;
pub const QKEY: u32 = 0x1111_1111;

/// Two HCAs of one port each in a subnet with two planes; LIDs 16 and 32, LMC 1.
pub struct Pair {
    pub fabric: SharedFabric,
    pub hcas: [HcaId; 2],
    pub subnet: SubnetId,
}

pub fn pair() -> Pair {
    pair_with(Trace::off(), HcaOptions::default(), BusModel { bytes_per_second: 1_000_000_000, ..BusModel::default() })
}

pub fn pair_with(trace: Trace, options: HcaOptions, bus: BusModel) -> Pair {
    let mut fabric = Fabric::new(1, trace);
    let plane = PlaneModel { latency_ns: 0, bytes_per_second: 0 };
    let subnet = fabric.add_subnet(&SubnetModel { latency_ns: 200, planes: vec![plane; 2] });
    let hcas = [16, 32].map(|lid| {
        let host = fabric.add_host();
        let bus = fabric.add_bus(host, bus);
        let hca = fabric.add_hca(bus, HcaModel::default(), options.clone());
        fabric.add_port(hca, subnet, LinkModel::default(), lid, 1);
        hca
    });
    Pair { fabric: fabric.shared(), hcas, subnet }
}

impl Pair {
    pub fn inject(&self, fault: Fault) {
        self.fabric.borrow_mut().inject(&fault);
    }

    /// Lets so much time pass.
    pub fn pass(&self, span: Nanos) {
        let mut fabric = self.fabric.borrow_mut();
        let until = fabric.now() + span;
        fabric.advance(until);
    }

    /// Lets time pass until nothing is due any more, or a second is over.
    pub fn run_until_idle(&self) {
        let mut fabric = self.fabric.borrow_mut();
        let end = fabric.now() + Nanos::from_millis(1000);
        while let Some(next) = fabric.next_event().filter(|next| *next <= end) {
            fabric.advance(next);
        }
    }

    /// What its first HCA can do.
    pub fn limits(&self) -> Limits {
        SimDevice::open(&self.fabric, self.hcas[0], 0).unwrap().limits()
    }

    pub fn now(&self) -> Time {
        self.fabric.borrow().now()
    }

    /// Both ends, with queue pairs of this kind that are connected (or ready, for datagrams).
    pub fn ends(&self, kind: QpKind, tune: impl Fn(&mut Tuning)) -> [End; 2] {
        let mut tuning = Tuning::default();
        tune(&mut tuning);
        let mut ends = [0, 1].map(|side| End::new(self, side, kind, &tuning));
        let numbers = [ends[0].qp.number, ends[1].qp.number];
        for side in 0..2 {
            ends[side].connect(numbers[1 - side], [32, 16][side], &tuning);
        }
        ends
    }
}

/// What tests change of a connection.
#[derive(Clone, Copy)]
pub struct Tuning {
    pub caps: QpCaps,
    pub cq_depth: u32,
    pub signal_all: bool,
    pub mtu: u16,
    pub timeout: u8,
    pub retry_count: u8,
    pub rnr_retry: u8,
    pub rnr_timer: u8,
    pub reads_open: u8,
    pub reads_served: u8,
    pub access: Access,
    pub memory_access: Access,
    pub first_psn: u32,
    pub srq: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            caps: QpCaps { send_depth: 64, recv_depth: 64, send_sges: 4, recv_sges: 4, inline_bytes: 256 },
            cq_depth: 256,
            signal_all: false,
            mtu: 1024,
            // 4.096 us * 2^8: about a millisecond.
            timeout: 8,
            retry_count: 3,
            rnr_retry: 3,
            // 80 us.
            rnr_timer: 7,
            reads_open: 4,
            reads_served: 4,
            access: Access::ALL,
            memory_access: Access::ALL,
            // Wraps around soon.
            first_psn: 0xff_fffd,
            srq: false,
        }
    }
}

/// One end: a device with a domain, a queue pair, its queues and some memory.
pub struct End {
    pub device: SimDevice,
    pub pd: PdId,
    pub send_cq: CqId,
    pub recv_cq: CqId,
    pub srq: Option<SrqId>,
    pub qp: Qp,
    pub mr: Mr,
    pub kind: QpKind,
    memory: Box<[u8]>,
}

impl End {
    pub fn new(pair: &Pair, side: usize, kind: QpKind, tuning: &Tuning) -> End {
        let mut device = SimDevice::open(&pair.fabric, pair.hcas[side], side as u32).unwrap();
        let pd = device.alloc_pd().unwrap();
        let send_cq = device.create_cq(&CqInit { depth: tuning.cq_depth }).unwrap();
        let recv_cq = device.create_cq(&CqInit { depth: tuning.cq_depth }).unwrap();
        let srq = tuning.srq.then(|| {
            let init = rerail_verbs::contract::SrqInit { depth: 64, sges: 2, xrc: None };
            device.create_srq(pd, &init).unwrap().id
        });
        let mut memory = vec![0u8; BYTES].into_boxed_slice();
        let mr = register(&mut device, pd, &mut memory, 0, tuning.memory_access);
        let (send, recv) = (Some(send_cq), Some(recv_cq));
        let (caps, signal_all) = (tuning.caps, tuning.signal_all);
        let init = QpInit { kind, pd: Some(pd), send_cq: send, recv_cq: recv, srq, domain: None, caps, signal_all };
        let init = if kind == QpKind::XrcInitiator { QpInit { recv_cq: None, ..init } } else { init };
        let qp = device.create_qp(&init).unwrap();
        End { device, pd, send_cq, recv_cq, srq, qp, mr, kind, memory }
    }

    /// To RTS, with the peer's number and LID.
    pub fn connect(&mut self, peer: u32, dlid: u16, tuning: &Tuning) {
        for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
            self.step(to, peer, dlid, tuning);
        }
    }

    /// To the next state on the way to RTS.
    pub fn step(&mut self, to: QpState, peer: u32, dlid: u16, tuning: &Tuning) {
        self.device.modify_qp(self.qp.id, &way(self.kind, to, peer, dlid, tuning)).unwrap();
    }

    pub fn state(&self) -> QpState {
        self.device.query_qp(self.qp.id).unwrap().state
    }

    pub fn to(&mut self, state: QpState) {
        self.device.modify_qp(self.qp.id, &QpChange::to(state)).unwrap();
    }

    /// A piece of this end's memory; the first byte has address 0.
    pub fn sge(&self, address: u64, len: u32) -> Sge {
        invented(address, len, self.mr.lkey)
    }

    pub fn remote(&self, address: u64) -> Remote {
        Remote { address, rkey: self.mr.rkey }
    }

    /// Looks at memory: the device does not run meanwhile.
    pub fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        self.memory[at..at + len].to_vec()
    }

    pub fn fill(&mut self, at: usize, data: &[u8]) {
        self.memory[at..at + data.len()].copy_from_slice(data);
    }

    pub fn word(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(at, 8).try_into().unwrap())
    }

    /// Posts a signaled request with one piece of memory.
    pub fn post(&mut self, id: u64, op: SendOp, address: u64, len: u32) {
        let sges = [self.sge(address, len)];
        self.device.post_send(self.qp.id, &[SendWr::new(id, op, Payload::Memory(&sges))]).unwrap();
    }

    pub fn send(&mut self, id: u64, address: u64, len: u32) {
        self.post(id, SendOp::Send { immediate: None }, address, len);
    }

    pub fn recv(&mut self, id: u64, address: u64, len: u32) {
        let sges = [self.sge(address, len)];
        let requests = [RecvWr { id, sges: &sges }];
        match self.srq {
            Some(srq) => self.device.post_srq_recv(srq, &requests).unwrap(),
            None => self.device.post_recv(self.qp.id, &requests).unwrap(),
        }
    }

    pub fn sent(&mut self) -> Vec<Completion> {
        poll(&mut self.device, self.send_cq)
    }

    pub fn received(&mut self) -> Vec<Completion> {
        poll(&mut self.device, self.recv_cq)
    }

    /// Registers memory in this end's domain, from address 2^32 on.
    pub fn try_register(&mut self, memory: &mut [u8]) -> Result<Mr, RegisterError> {
        try_register(&mut self.device, self.pd, memory, 1 << 32, Access::ALL)
    }

    pub fn events(&mut self) -> Vec<AsyncEvent> {
        std::iter::from_fn(|| self.device.async_event()).collect()
    }
}

/// Registers memory from address `iova` on.
pub fn register(device: &mut SimDevice, pd: PdId, memory: &mut [u8], iova: u64, access: Access) -> Mr {
    try_register(device, pd, memory, iova, access).unwrap()
}

/// Registers memory from address `iova` on, if the device does.
pub fn try_register(
    device: &mut SimDevice,
    pd: PdId,
    memory: &mut [u8],
    iova: u64,
    access: Access,
) -> Result<Mr, RegisterError> {
    // SAFETY: the memory is a boxed slice beside the device in the same `End` (or a test's own that lives as
    // long), and it is not accessed while the fabric is stepped.
    unsafe { device.register(pd, memory.as_mut_ptr(), memory.len() as u64, iova, access) }
}

pub fn poll(device: &mut SimDevice, cq: CqId) -> Vec<Completion> {
    let mut out = Vec::new();
    device.poll_cq(cq, usize::MAX, &mut out).unwrap();
    out
}

/// Identifiers and endings.
pub fn ends_of(completions: &[Completion]) -> Vec<(u64, Status)> {
    completions.iter().map(|completion| (completion.id, completion.status)).collect()
}

pub fn ok(id: u64) -> (u64, Status) {
    (id, Status::Success)
}

/// The change to the next state on the way to RTS.
pub fn way(kind: QpKind, to: QpState, peer: u32, dlid: u16, tuning: &Tuning) -> QpChange {
    let mut change = QpChange::to(to);
    let (ud, serves, is_requester) = (
        kind == QpKind::Ud,
        matches!(kind, QpKind::Rc | QpKind::XrcTarget),
        matches!(kind, QpKind::Rc | QpKind::XrcInitiator),
    );
    match to {
        QpState::Init => {
            (change.pkey_index, change.port) = (Some(0), Some(1));
            change.qkey = ud.then_some(QKEY);
            change.access = (!ud).then_some(tuning.access);
        }
        QpState::Rtr if !ud => {
            change.address = Some(AddressVector { port: 1, dlid, ..AddressVector::default() });
            (change.path_mtu, change.destination) = (Some(tuning.mtu), Some(peer));
            change.recv_psn = Some(tuning.first_psn);
            change.reads_served = serves.then_some(tuning.reads_served);
            change.rnr_timer = serves.then_some(tuning.rnr_timer);
        }
        QpState::Rts => {
            change.send_psn = Some(tuning.first_psn);
            change.timeout = (!ud).then_some(tuning.timeout);
            change.retry_count = is_requester.then_some(tuning.retry_count);
            change.rnr_retry = is_requester.then_some(tuning.rnr_retry);
            change.reads_open = is_requester.then_some(tuning.reads_open);
        }
        _ => {}
    }
    change
}

/// Any piece, registered or not.
pub fn invented(address: u64, len: u32, lkey: u32) -> Sge {
    // SAFETY: the software HCA checks key and range before it touches memory.
    unsafe { Sge::new(address, len, lkey) }
}
