//! What goes into the fabric and what comes out of it.

use super::{PortId, SubnetId};

/// A frame that a port is to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<B> {
    /// The port that sends.
    pub from: PortId,
    /// Destination LID, path bits included.
    pub dlid: u16,
    /// Payload and transport headers; the link adds its own (`LinkModel::header_bytes`).
    pub wire_bytes: u32,
    /// What is fetched from memory over the source's bus before the frame can go; 0: nothing (inline data,
    /// headers only).
    pub read_bytes: u32,
    /// An acknowledgment or the like: tiny, takes no place in the transmit stage and no credit, is never
    /// refused, and may overtake other frames of its port until it is on the link. Order with those other
    /// frames is the sender's business: what must stay behind them is not sent as control.
    pub control: bool,
    /// The first frame of a message: the engines take their time per message with it.
    pub first: bool,
    /// What the frame means to sender and receiver; the fabric doesn't look at it.
    pub body: B,
}

/// What happened in the fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<B> {
    /// A frame is in the receiving HCA. What it does about it, it does before the next `step`; without a
    /// `write_memory` by then, the frame's receive buffer is free.
    Arrived {
        /// The receiving port.
        port: PortId,
        /// The LID it was sent to.
        dlid: u16,
        /// Its check sum is wrong: reliable transports treat it as lost, datagrams are dropped.
        corrupt: bool,
        /// The frame's body.
        body: B,
    },
    /// A write that was requested by `write_memory` is in memory.
    Written {
        /// The port of the request.
        port: PortId,
        /// The body of the request.
        body: B,
    },
    /// The port's transmit stage has room again after it refused a frame, or after `request_room`; reported
    /// once.
    Room(PortId),
    /// A timer's moment has come.
    Timer(B),
    /// The port noticed that its link changed.
    LinkState {
        /// The port.
        port: PortId,
        /// Whether its link works, both ways.
        up: bool,
    },
    /// A frame is gone. For traces and counters: no device learns of it.
    Lost {
        /// The port that sent it.
        from: PortId,
        /// The frame's body.
        body: B,
        /// Where it was lost.
        why: LostAt,
    },
}

/// Where a frame was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LostAt {
    /// No port of the subnet has the destination LID.
    NoRoute,
    /// The sender's link is down towards the switch, or went down under the frame.
    Uplink,
    /// The switch is down.
    Switch,
    /// The plane is down, or went down under the frame.
    Plane,
    /// The receiver's link is down, or went down under the frame.
    Downlink,
    /// By decree of a fault.
    Decree,
}

/// Directions of a link, seen from the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the port to the switch.
    Tx,
    /// From the switch to the port.
    Rx,
    /// Both.
    Both,
}

/// A place in the switch that frames pass: where delays, holds and damage apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Where a port's frames come in.
    From(PortId),
    /// A plane's trunk.
    Plane(SubnetId, usize),
    /// Where frames leave to a port.
    To(PortId),
}

/// What happens to a frame that a fault picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Damage {
    /// It vanishes.
    Lose,
    /// It arrives with `corrupt` set.
    Corrupt,
}

/// Which frames a fault picks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// All.
    #[default]
    Any,
    /// Those with `control` unset.
    Data,
    /// Those with `control` set.
    Control,
}

/// A choice of frames: of those that match, the first `skip` go on, the next `count` are damaged, then the
/// choice is over.
#[derive(Clone, Copy, Debug)]
pub struct Pick<B> {
    /// What happens to them.
    pub damage: Damage,
    /// By class.
    pub class: Class,
    /// By body; `None`: whatever it is.
    pub matches: Option<fn(&B) -> bool>,
    /// Matching frames to spare first.
    pub skip: u32,
    /// Matching frames to damage then.
    pub count: u32,
}

impl<B> Pick<B> {
    /// The next `count` frames of a class.
    pub fn next(damage: Damage, class: Class, count: u32) -> Self {
        Pick { damage, class, matches: None, skip: 0, count }
    }
}

/// What the fabric has done so far. Phantom frames of background loads are counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetStats {
    /// Events taken from the heap.
    pub events: u64,
    /// Frames taken by `send`.
    pub frames: u64,
    /// Frames reported as arrived.
    pub arrived: u64,
    /// Most moments in the heap at once.
    pub waiting_max: usize,
    /// Frames reported as lost.
    pub lost: u64,
    /// Writes done.
    pub written: u64,
    /// Phantom frames put into the fabric.
    pub background_frames: u64,
    /// Phantom frames written at their destination.
    pub background_written: u64,
    /// Phantom frames lost.
    pub background_lost: u64,
}
