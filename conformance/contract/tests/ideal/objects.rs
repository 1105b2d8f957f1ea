//! All objects of all processes.

use std::collections::{BTreeMap, VecDeque};

use rerail_verbs::Moderation;
use rerail_verbs::contract::*;

use super::memory::Start;

pub struct PortState {
    pub lid: u16,
    pub up: bool,
    pub dead: bool,
    pub gids: u8,
    pub lose_acks: u32,
    pub lose_packets: u32,
    pub fail_registration: bool,
}

pub struct MrObject {
    pub owner: usize,
    pub pd: u32,
    pub start: Start,
    pub len: u64,
    pub iova: u64,
    pub access: Access,
}

pub struct CqObject {
    pub owner: usize,
    pub depth: u32,
    pub queue: VecDeque<(Completion, u32)>,
    pub broken: bool,
    /// Any completion, and solicited ones.
    pub armed: [bool; 2],
    pub moderation: Moderation,
    /// Completions that a deferred event is to report.
    pub notices_due: u16,
}

#[derive(Clone)]
pub struct Receive {
    pub id: u64,
    pub sges: Vec<Sge>,
}

pub struct SrqObject {
    pub owner: usize,
    pub pd: u32,
    pub init: SrqInit,
    pub queue: VecDeque<Receive>,
    pub limit: u32,
}

pub struct XrcdObject {
    pub owner: usize,
    /// Domains of the same file are the same.
    pub identity: u32,
    pub file: Option<i32>,
}

pub enum Local {
    Memory(Vec<Sge>),
    Inline(Vec<u8>),
}

pub struct Work {
    pub id: u64,
    pub op: SendOp,
    pub local: Local,
    pub signaled: bool,
    pub solicited: bool,
    pub to: Option<(AddressVector, u32, u32)>,
    pub srq_number: Option<u32>,
    pub before_drain: bool,
    pub tries: u32,
    pub refusals: u32,
    pub wait: u32,
    /// The peer has done it, and only the acknowledgment is missing.
    pub done: bool,
}

pub struct QpObject {
    /// The process that has it, and its name there.
    pub holders: Vec<(usize, u32)>,
    pub hca: usize,
    pub init: QpInit,
    pub state: QpState,
    pub attrs: QpChange,
    pub sends: VecDeque<Work>,
    pub receives: VecDeque<Receive>,
    pub sends_used: u32,
    /// Sends done without a completion since the last one with.
    pub silent: u32,
    pub drain_notify: bool,
}

pub struct Fabric {
    pub ports: [PortState; 2],
    pub dead_path: Option<u16>,
    pub events: [VecDeque<AsyncEvent>; 3],
    pub cq_events: [VecDeque<CqId>; 3],
    next: u32,
    pub pds: BTreeMap<u32, usize>,
    pub mrs: BTreeMap<u32, MrObject>,
    pub cqs: BTreeMap<u32, CqObject>,
    pub srqs: BTreeMap<u32, SrqObject>,
    pub ahs: BTreeMap<u32, (usize, u32, AddressVector)>,
    pub xrcds: BTreeMap<u32, XrcdObject>,
    /// By number.
    pub qps: BTreeMap<u32, QpObject>,
}

impl Fabric {
    pub fn new() -> Fabric {
        let port = |lid| PortState {
            lid,
            up: true,
            dead: false,
            gids: 1,
            lose_acks: 0,
            lose_packets: 0,
            fail_registration: false,
        };
        Fabric {
            ports: [port(0x10), port(0x20)],
            dead_path: None,
            events: Default::default(),
            cq_events: Default::default(),
            next: 0,
            pds: BTreeMap::new(),
            mrs: BTreeMap::new(),
            cqs: BTreeMap::new(),
            srqs: BTreeMap::new(),
            ahs: BTreeMap::new(),
            xrcds: BTreeMap::new(),
            qps: BTreeMap::new(),
        }
    }

    /// A name that was never given.
    pub fn name(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// The number of the queue pair that a process has by this name.
    pub fn number(&self, process: usize, qp: QpId) -> Option<u32> {
        self.qps.iter().find(|(_, it)| it.holders.contains(&(process, qp.0))).map(|(number, _)| *number)
    }

    /// The users of a protection domain, a completion queue, a shared receive queue, an XRC domain.
    pub fn users(&self, what: Kind, name: u32) -> u32 {
        let qps = self.qps.values().filter(|it| match what {
            Kind::Pd => it.init.pd == Some(PdId(name)),
            Kind::Cq => it.init.send_cq == Some(CqId(name)) || it.init.recv_cq == Some(CqId(name)),
            Kind::Srq => it.init.srq == Some(SrqId(name)),
            Kind::Xrcd => it.init.domain == Some(XrcdId(name)),
            _ => false,
        });
        let srqs = self.srqs.values().filter(|it| match what {
            Kind::Pd => it.pd == name,
            Kind::Cq => it.init.xrc.is_some_and(|xrc| xrc.cq == CqId(name)),
            Kind::Xrcd => it.init.xrc.is_some_and(|xrc| xrc.domain == XrcdId(name)),
            _ => false,
        });
        let mrs = self.mrs.values().filter(|it| what == Kind::Pd && it.pd == name);
        let ahs = self.ahs.values().filter(|it| what == Kind::Pd && it.1 == name);
        (qps.count() + srqs.count() + mrs.count() + ahs.count()) as u32
    }
}
