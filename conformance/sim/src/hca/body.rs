//! What the frames and timers of a fabric carry: packets of InfiniBand by meaning (InfiniBand specification,
//! chapter 9), writes into memory, segments of byte streams, timers of devices.

use rerail_verbs::contract::{Remote, Sge};

/// The body of a frame, of a write into memory or of a timer.
#[derive(Debug)]
pub enum Body {
    /// A packet between HCAs.
    Ib(Box<Packet>),
    /// Data that an HCA moves into its host's memory.
    Landing(Box<Landing>),
    /// A timer of an HCA.
    Timer(Timer),
}

/// A packet.
#[derive(Debug)]
pub struct Packet {
    pub(super) head: Header,
    /// What it is.
    pub(super) load: Load,
}

/// What all packets have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// The LID that it comes from.
    pub source_lid: u16,
    /// Number of the queue pair that it comes from. On the wire, datagrams alone carry it.
    pub source_qp: u32,
    /// Number of the queue pair that it goes to.
    pub destination: u32,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
    /// Key of the partition that the sender is in.
    pub pkey: u16,
}

#[derive(Debug)]
pub(super) enum Load {
    Request(Request),
    Datagram(DatagramLoad),
    /// Part of what was read.
    ReadResponse {
        data: Vec<u8>,
    },
    /// The value before an atomic.
    AtomicResponse {
        before: u64,
    },
    Ack(AckCode),
}

/// A packet of a request of a connected queue pair.
#[derive(Debug)]
pub(super) struct Request {
    pub op: RequestOp,
    /// First packet of its message.
    pub first: bool,
    /// Last packet of its message.
    pub last: bool,
    /// An acknowledgment is requested.
    pub ack: bool,
    pub solicited: bool,
    /// In the last packet.
    pub immediate: Option<u32>,
    /// XRC: the shared receive queue's number.
    pub srq_number: Option<u32>,
    pub data: Vec<u8>,
}

/// What a request does; the extended headers of its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestOp {
    Send,
    /// `to` and `bytes` (of the whole message) count in the first packet.
    Write {
        to: Remote,
        bytes: u32,
    },
    Read {
        from: Remote,
        bytes: u32,
    },
    CompareSwap {
        at: Remote,
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        at: Remote,
        add: u64,
    },
}

#[derive(Debug)]
pub(super) struct DatagramLoad {
    pub qkey: u32,
    pub immediate: Option<u32>,
    pub solicited: bool,
    /// A global route header goes with it.
    pub global: Option<[u8; GRH_BYTES]>,
    pub data: Vec<u8>,
}

/// Bytes of a global route header (InfiniBand specification, 8.3).
pub(super) const GRH_BYTES: usize = 40;

/// The syndrome of an acknowledgment (InfiniBand specification, 9.7.5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckCode {
    /// Everything up to the PSN has arrived.
    Ok,
    /// No receive is posted: try again after the time of this code.
    Rnr(u8),
    Nak(Nak),
}

/// The reason of a negative acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nak {
    /// Packets are missing from this PSN on.
    Sequence,
    Invalid,
    Access,
    Operation,
}

impl Load {
    /// Bytes of payload and of transport headers (InfiniBand specification, 9.2 and 9.3). What is around them
    /// (LRH, checksums) is the link model's.
    pub fn wire_bytes(&self) -> u32 {
        const RETH: usize = 16;
        const ATOMIC_ETH: usize = 28;
        const ATOMIC_ACK_ETH: usize = 8;
        const AETH: usize = 4;
        const BTH: usize = 12;
        const DETH: usize = 8;
        const WORD: usize = 4;
        let bytes = match self {
            Load::Request(request) => {
                let extended = match request.op {
                    RequestOp::Send => 0,
                    RequestOp::Write { .. } => RETH * usize::from(request.first),
                    RequestOp::Read { .. } => RETH,
                    RequestOp::CompareSwap { .. } | RequestOp::FetchAdd { .. } => ATOMIC_ETH,
                };
                let words = usize::from(request.immediate.is_some()) + usize::from(request.srq_number.is_some());
                extended + WORD * words + request.data.len()
            }
            Load::Datagram(load) => {
                let global = if load.global.is_some() { GRH_BYTES } else { 0 };
                DETH + global + WORD * usize::from(load.immediate.is_some()) + load.data.len()
            }
            Load::ReadResponse { data } => AETH + data.len(),
            Load::AtomicResponse { .. } => AETH + ATOMIC_ACK_ETH,
            Load::Ack(_) => AETH,
        };
        (BTH + bytes) as u32
    }

    /// Its name in traces.
    pub fn name(&self) -> &'static str {
        match self {
            Load::Request(request) => match request.op {
                RequestOp::Send => "send",
                RequestOp::Write { .. } => "write",
                RequestOp::Read { .. } => "read request",
                RequestOp::CompareSwap { .. } => "compare and swap",
                RequestOp::FetchAdd { .. } => "fetch and add",
            },
            Load::Datagram(_) => "datagram",
            Load::ReadResponse { .. } => "read response",
            Load::AtomicResponse { .. } => "atomic response",
            Load::Ack(AckCode::Ok) => "ack",
            Load::Ack(AckCode::Rnr(_)) => "rnr nak",
            Load::Ack(AckCode::Nak(Nak::Sequence)) => "nak: sequence",
            Load::Ack(AckCode::Nak(Nak::Invalid)) => "nak: invalid request",
            Load::Ack(AckCode::Nak(Nak::Access)) => "nak: remote access",
            Load::Ack(AckCode::Nak(Nak::Operation)) => "nak: remote operation",
        }
    }
}

/// Data on the way from an HCA into its host's memory, and what is to be reported when they are there.
#[derive(Debug)]
pub struct Landing {
    /// The queue pair, and which of its lives: a reset ends one.
    pub(super) qp: u32,
    pub(super) life: u32,
    pub(super) place: Place,
    pub(super) data: Vec<u8>,
}

#[derive(Debug)]
pub(super) enum Place {
    /// Into a receive's memory, from this protection domain.
    Receive { pd: u32, pieces: Vec<Sge> },
    /// Where a peer writes.
    Write { mr: u32, address: u64 },
    /// Into a read's or an atomic's own memory: the position of its request in the send queue.
    Response { request: u64, pieces: Vec<Sge> },
}

/// A timer of an HCA.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    /// The HCA, by its index in the fabric.
    pub(super) hca: u32,
    pub(super) what: Alarm,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Alarm {
    /// A queue pair may have waited long enough.
    Qp { qp: u32, life: u32 },
    /// The event of a completion queue was put off for long enough.
    Cq { cq: u32, round: u32 },
    /// A port's event is due.
    PortEvent { port: u8, up: bool },
    /// The device comes back.
    Reload { failure: u32 },
}
