//! Byte pipes between processes over the simulated wires, as TCP gives them: connected, in order, without
//! loss.
//!
//! What the kernels of all hosts do, in one table: segments of at most [`SEGMENT_BYTES`], cumulative
//! acknowledgments, a receive window, go-back-N when nothing was acknowledged for a while, a reset when
//! nothing was for long. There is one pipe per pair of processes and rail, whichever side dials first, so
//! dials that cross need no arbitration. A process that dials after its end was over gets a new pipe, and the
//! other side, where it still uses the old one, is notified of that by the dial; an older pipe is never
//! dialled again. Left out, because the wires lose nothing on their own: congestion control, selective
//! acknowledgments, segments out of order (they are dropped and repeated).
//!
//! Invariants: `base <= next <= base + tx + 1`, the one being the end's own number; bytes leave `tx` only
//! when acknowledged; what the peer may send ends at `granted`, so a process that doesn't read holds at most
//! [`RECEIVE_BYTES`] of a peer's.

use std::collections::{BTreeMap, VecDeque};

use rerail_core::endpoint::RailFault;
use rerail_core::time::{Nanos, Time};

use crate::net::{Frame, Net, Outcome, PortId};

/// Bytes of a segment.
pub const SEGMENT_BYTES: usize = 8192;
/// Bytes that wait to be sent or acknowledged, at most.
pub const SEND_BYTES: usize = 256 * 1024;
/// Bytes that wait to be read, at most.
pub const RECEIVE_BYTES: u64 = 256 * 1024;
/// Bytes of TCP's and IP's headers (RFC 9293, RFC 791).
const HEADER_BYTES: u32 = 40;
/// What is not acknowledged by then is sent again; twice as long each time.
const REPEAT_AFTER_NS: u64 = 5_000_000;
/// At most.
const REPEAT_AFTER_MAX_NS: u64 = 200_000_000;
/// A pipe with something to acknowledge on which nothing came for so long is reset. A closed window is no
/// silence: the probes of its state are answered.
const GIVE_UP_NS: u64 = 5_000_000_000;
/// What is reported where the port has no link (`ENETDOWN`).
const NET_DOWN: RailFault = RailFault::Device { code: 100 };

/// What travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pipe: u32,
    /// The side that sent it; for a timer, the side that it is for.
    side: usize,
    kind: Kind,
    /// The sender has taken everything before this.
    ack: u64,
    /// The sender has room for everything before this.
    granted: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Dial,
    Accepted,
    Data {
        at: u64,
        bytes: Vec<u8>,
    },
    End {
        at: u64,
    },
    Ack,
    Reset,
    /// Not on any wire: time to look whether something must be repeated.
    Repeat,
}

/// Where a side stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has not dialled the pipe, and the other's dial has not come.
    Idle,
    /// It waits for the other's answer.
    Dialing,
    /// Bytes flow.
    Open,
    /// It is over for this side, for this reason.
    Over(RailFault),
}

#[derive(Debug)]
struct Side {
    rank: u32,
    port: PortId,
    state: State,
    /// Bytes not acknowledged; the first is number `base`.
    tx: VecDeque<u8>,
    base: u64,
    /// The next byte to send.
    next: u64,
    /// The number of its end, once its process has closed it; what comes for it then is dropped.
    end_at: Option<u64>,
    /// What the other side has room for.
    allowed: u64,
    rx: VecDeque<u8>,
    /// The next byte expected.
    expected: u64,
    /// The other side has ended; all its bytes are in `rx` or read.
    ended: bool,
    /// What was last announced to the other side.
    granted: u64,
    /// Something was acknowledged, or sent when nothing was under way, at this time.
    progress: Time,
    /// Something came from the other side's kernel.
    last_received: Time,
    repeat_ns: u64,
    timer: bool,
    /// Waits for room in its port.
    waiting: bool,
    /// Listed in the bells of its process.
    rung: bool,
}

#[derive(Debug)]
struct Pipe {
    /// Which rail of its ranks it belongs to.
    rail: u8,
    /// The lower rank's, the higher rank's.
    sides: [Side; 2],
}

/// One end of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PipeEnd {
    pipe: u32,
    side: usize,
}

/// All pipes, and the wires that they run over.
pub struct PipeNet {
    net: Net<Segment>,
    now: Time,
    pipes: Vec<Pipe>,
    by_pair: BTreeMap<(u8, u32, u32), u32>,
    /// Ports of processes, by rail.
    ports: BTreeMap<(u8, u32), PortId>,
    dead: Vec<u32>,
    /// Ports without a link.
    down: Vec<PortId>,
    /// Ends that wait for room, by port, in the order of their coming.
    waiting: BTreeMap<PortId, VecDeque<PipeEnd>>,
    /// Ends where something has changed, by rail and process.
    bells: BTreeMap<(u8, u32), Vec<(u32, PipeEnd)>>,
    woken: Vec<(u32, Time)>,
}

impl PipeNet {
    /// Pipes over a net that is built already and that is not used otherwise.
    pub fn over(net: Net<Segment>) -> Self {
        PipeNet {
            net,
            now: Time(0),
            pipes: Vec::new(),
            by_pair: BTreeMap::new(),
            ports: BTreeMap::new(),
            dead: Vec::new(),
            down: Vec::new(),
            waiting: BTreeMap::new(),
            bells: BTreeMap::new(),
            woken: Vec::new(),
        }
    }

    /// The wires, for faults.
    pub fn net_mut(&mut self) -> &mut Net<Segment> {
        &mut self.net
    }

    /// The wires.
    pub fn net(&self) -> &Net<Segment> {
        &self.net
    }

    /// A process listens on a port.
    pub fn listen(&mut self, rail: u8, rank: u32, port: PortId) {
        self.ports.insert((rail, rank), port);
    }

    /// Sets the time of what is done without one.
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// When something happens next.
    pub fn next_event(&self) -> Option<Time> {
        self.net.next_event()
    }

    /// Moves the processes to which something became visible.
    pub fn take_woken(&mut self, woken: &mut Vec<(u32, Time)>) {
        woken.append(&mut self.woken);
    }

    /// Moves the ends of a process where something has changed, each with its peer.
    pub fn take_bells(&mut self, rail: u8, rank: u32) -> Vec<(u32, PipeEnd)> {
        let bells = self.bells.remove(&(rail, rank)).unwrap_or_default();
        bells.iter().for_each(|(_, end)| self.side_mut(*end).rung = false);
        bells
    }

    /// Lets everything happen that happens until `now`.
    pub fn advance(&mut self, now: Time) {
        while let Some((at, outcome)) = self.net.step(now) {
            self.now = at;
            match outcome {
                Outcome::Arrived { corrupt: false, body, .. } => self.arrived(body),
                Outcome::Timer(segment) => self.repeat(PipeEnd { pipe: segment.pipe, side: segment.side }),
                Outcome::Room(port) => self.room(port),
                // A broken check sum is a loss, and losses are repeated.
                Outcome::Arrived { .. } | Outcome::Lost { .. } => {}
                Outcome::LinkState { port, up } => self.link_state(port, up),
                Outcome::Written { .. } => {}
            }
        }
        self.now = now;
    }

    /// A port has noticed that its link is down, which ends its own ends of all pipes (L-17), or up.
    fn link_state(&mut self, port: PortId, up: bool) {
        self.down.retain(|down| *down != port);
        if up {
            return;
        }
        self.down.push(port);
        for pipe in 0..self.pipes.len() as u32 {
            for side in 0..2 {
                let end = PipeEnd { pipe, side };
                if self.side(end).port == port && self.side(end).state != State::Idle {
                    self.finish(end, NET_DOWN);
                }
            }
        }
    }

    /// Dials the pipe to a peer, a new one where this end of the last one is over; its state shows what
    /// comes of it.
    pub fn dial(&mut self, rail: u8, rank: u32, peer: u32) -> Option<PipeEnd> {
        let mut end = self.end(rail, rank, peer)?;
        let side = self.side(end);
        if matches!(side.state, State::Over(_)) || side.end_at.is_some() {
            self.by_pair.remove(&(rail, rank.min(peer), rank.max(peer)));
            end = self.end(rail, rank, peer)?;
        }
        if self.down.contains(&self.side(end).port) {
            self.side_mut(end).state = State::Over(NET_DOWN);
            return Some(end);
        }
        let now = self.now;
        let side = self.side_mut(end);
        if side.state == State::Idle {
            side.state = State::Dialing;
            side.progress = now;
            self.send(end, Kind::Dial);
            self.set_timer(end);
        }
        Some(end)
    }

    /// The end of a process of its pipe to a peer, which is made where there is none.
    fn end(&mut self, rail: u8, rank: u32, peer: u32) -> Option<PipeEnd> {
        let pair = (rail, rank.min(peer), rank.max(peer));
        let side = usize::from(rank > peer);
        if let Some(pipe) = self.by_pair.get(&pair) {
            return Some(PipeEnd { pipe: *pipe, side });
        }
        let new = |rank, port| Side {
            rank,
            port,
            state: State::Idle,
            tx: VecDeque::new(),
            base: 0,
            next: 0,
            end_at: None,
            rung: false,
            allowed: 0,
            rx: VecDeque::new(),
            expected: 0,
            ended: false,
            granted: RECEIVE_BYTES,
            progress: Time(0),
            last_received: Time(0),
            repeat_ns: REPEAT_AFTER_NS,
            timer: false,
            waiting: false,
        };
        let low = new(pair.1, *self.ports.get(&(rail, pair.1))?);
        let high = new(pair.2, *self.ports.get(&(rail, pair.2))?);
        let pipe = self.pipes.len() as u32;
        self.pipes.push(Pipe { rail, sides: [low, high] });
        self.by_pair.insert(pair, pipe);
        Some(PipeEnd { pipe, side })
    }

    fn side(&self, end: PipeEnd) -> &Side {
        &self.pipes[end.pipe as usize].sides[end.side]
    }

    fn side_mut(&mut self, end: PipeEnd) -> &mut Side {
        &mut self.pipes[end.pipe as usize].sides[end.side]
    }

    /// Where an end stands. `Over(Closed)` for an orderly end comes when everything has been read.
    pub fn state(&self, end: PipeEnd) -> State {
        let side = self.side(end);
        match side.state {
            State::Open if side.ended && side.rx.is_empty() => State::Over(RailFault::Closed),
            state => state,
        }
    }

    /// Takes bytes to send, as many as there is room for; returns how many.
    pub fn write(&mut self, end: PipeEnd, bytes: &[u8]) -> usize {
        let now = self.now;
        let side = self.side_mut(end);
        if side.state != State::Open || side.end_at.is_some() {
            return 0;
        }
        let len = bytes.len().min(SEND_BYTES - side.tx.len());
        if side.tx.is_empty() {
            side.progress = now;
        }
        side.tx.extend(&bytes[..len]);
        self.pump(end);
        len
    }

    /// Moves up to `max` bytes that have come to `out`; returns how many.
    pub fn read(&mut self, end: PipeEnd, max: usize, out: &mut Vec<u8>) -> usize {
        let side = self.side_mut(end);
        let len = max.min(side.rx.len());
        let (front, back) = side.rx.as_slices();
        let of_front = len.min(front.len());
        out.extend_from_slice(&front[..of_front]);
        out.extend_from_slice(&back[..len - of_front]);
        side.rx.drain(..len);
        // A sender that stands still is notified of room once there is room for something.
        let room = side.expected + RECEIVE_BYTES - side.rx.len() as u64;
        if side.state == State::Open && room >= side.granted + RECEIVE_BYTES / 2 {
            self.send(end, Kind::Ack);
        }
        len
    }

    /// The process has finished: what was written still goes out, and then the peer sees the end.
    pub fn close(&mut self, end: PipeEnd) {
        let side = self.side_mut(end);
        match side.state {
            State::Open => {
                side.end_at = Some(side.base + side.tx.len() as u64);
                side.rx.clear();
                self.pump(end);
            }
            State::Idle | State::Dialing => {
                side.state = State::Over(RailFault::Closed);
                self.send(end, Kind::Reset);
            }
            State::Over(_) => {}
        }
    }

    /// The process ends it: nothing of it is sent or taken any more, and the peer sees a reset.
    pub fn abort(&mut self, end: PipeEnd) {
        let side = self.side_mut(end);
        if matches!(side.state, State::Over(_)) {
            return;
        }
        side.state = State::Over(RailFault::Closed);
        (side.tx, side.rx) = Default::default();
        self.send(end, Kind::Reset);
    }

    /// Whether the process may take this end as a connection: open, the pair's newest, and not closed here.
    pub fn is_standing(&self, end: PipeEnd) -> bool {
        self.state(end) == State::Open && self.is_newest(end) && self.side(end).end_at.is_none()
    }

    /// Whether it is the pair's newest.
    fn is_newest(&self, end: PipeEnd) -> bool {
        let Pipe { rail, sides: [low, high] } = &self.pipes[end.pipe as usize];
        self.by_pair.get(&(*rail, low.rank, high.rank)) == Some(&end.pipe)
    }

    /// A process is gone; its kernel resets its pipes.
    pub fn kill(&mut self, rank: u32) {
        self.dead.push(rank);
        for pipe in 0..self.pipes.len() as u32 {
            for side in 0..2 {
                let end = PipeEnd { pipe, side };
                if self.side(end).rank == rank && !matches!(self.side(end).state, State::Over(_)) {
                    self.finish(end, RailFault::Closed);
                    self.send(end, Kind::Reset);
                }
            }
        }
    }

    /// Resets every pipe through a port, at both ends.
    pub fn reset(&mut self, port: PortId) {
        for pipe in 0..self.pipes.len() as u32 {
            let sides = &self.pipes[pipe as usize].sides;
            if sides.iter().any(|side| side.port == port) {
                self.finish(PipeEnd { pipe, side: 0 }, RailFault::Closed);
                self.finish(PipeEnd { pipe, side: 1 }, RailFault::Closed);
            }
        }
    }

    /// It is over for an end; its process learns of it.
    fn finish(&mut self, end: PipeEnd, fault: RailFault) {
        let side = self.side_mut(end);
        if matches!(side.state, State::Over(_)) {
            return;
        }
        side.state = State::Over(fault);
        (side.tx, side.rx) = Default::default();
        self.ring(end);
    }

    fn ring(&mut self, end: PipeEnd) {
        let Pipe { rail, sides } = &mut self.pipes[end.pipe as usize];
        if std::mem::replace(&mut sides[end.side].rung, true) {
            return;
        }
        let (rank, peer) = (sides[end.side].rank, sides[1 - end.side].rank);
        let bells = self.bells.entry((*rail, rank)).or_default();
        if bells.is_empty() {
            self.woken.push((rank, self.now));
        }
        bells.push((peer, end));
    }

    /// Sends a segment that takes no room of its port.
    fn send(&mut self, end: PipeEnd, kind: Kind) {
        let frame = self.frame(end, kind);
        // Control frames are never refused.
        let sent = self.net.send(self.now, Frame { control: true, ..frame });
        debug_assert!(sent.is_ok(), "a control frame was refused");
    }

    fn frame(&mut self, end: PipeEnd, kind: Kind) -> Frame<Segment> {
        let far = self.side(PipeEnd { side: 1 - end.side, ..end }).port;
        let side = self.side_mut(end);
        side.granted = side.expected + RECEIVE_BYTES - side.rx.len() as u64;
        let payload = if let Kind::Data { bytes, .. } = &kind { bytes.len() as u32 } else { 0 };
        let (from, ack, granted) = (side.port, side.expected + u64::from(side.ended), side.granted);
        let body = Segment { pipe: end.pipe, side: end.side, kind, ack, granted };
        let dlid = self.net.lid(far).0;
        Frame { from, dlid, wire_bytes: HEADER_BYTES + payload, read_bytes: payload, control: false, first: true, body }
    }

    /// Sends what may be sent and has room.
    fn pump(&mut self, end: PipeEnd) {
        loop {
            let side = self.side(end);
            let (State::Open, false) = (side.state, side.waiting) else { return };
            let stop = side.base + side.tx.len() as u64;
            let kind = if side.next < stop.min(side.allowed) {
                let from = (side.next - side.base) as usize;
                let len = SEGMENT_BYTES.min((stop.min(side.allowed) - side.next) as usize);
                Kind::Data { at: side.next, bytes: side.tx.range(from..from + len).copied().collect() }
            } else if side.end_at == Some(side.next) {
                Kind::End { at: stop }
            } else {
                return;
            };
            let port = side.port;
            if !self.net.has_room(port) {
                self.net.request_room(port);
                self.side_mut(end).waiting = true;
                self.waiting.entry(port).or_default().push_back(end);
                return;
            }
            let len = if let Kind::Data { bytes, .. } = &kind { bytes.len() as u64 } else { 1 };
            let frame = self.frame(end, kind);
            let sent = self.net.send(self.now, frame);
            debug_assert!(sent.is_ok(), "a port with room refused a frame");
            self.side_mut(end).next += len;
            self.set_timer(end);
        }
    }

    /// A port has room again: one segment for each end that waits, in turn.
    fn room(&mut self, port: PortId) {
        let waiting = self.waiting.remove(&port).unwrap_or_default();
        for end in waiting {
            self.side_mut(end).waiting = false;
            self.pump(end);
        }
    }

    fn set_timer(&mut self, end: PipeEnd) {
        let now = self.now;
        let side = self.side_mut(end);
        if std::mem::replace(&mut side.timer, true) {
            return;
        }
        let at = Time(now.0.saturating_add(side.repeat_ns));
        self.net.at(at, Segment { pipe: end.pipe, side: end.side, kind: Kind::Repeat, ack: 0, granted: 0 });
    }

    /// Repeats what has not been acknowledged for too long.
    fn repeat(&mut self, end: PipeEnd) {
        let now = self.now;
        let side = self.side_mut(end);
        side.timer = false;
        let dialing = side.state == State::Dialing;
        let open = side.state == State::Open && (side.next > side.base || !side.tx.is_empty());
        if !dialing && !open {
            return;
        }
        let silent_ns = (now - side.progress).0;
        if now - side.progress.max(side.last_received) >= Nanos(GIVE_UP_NS) {
            self.finish(end, RailFault::TimedOut);
            self.send(end, Kind::Reset);
            return;
        }
        if silent_ns >= side.repeat_ns {
            side.repeat_ns = (side.repeat_ns * 2).min(REPEAT_AFTER_MAX_NS);
            match dialing {
                true => self.send(end, Kind::Dial),
                false => {
                    // A closed window is probed with its first byte, as TCP's persist timer does.
                    side.allowed = side.allowed.max(side.base + 1);
                    side.next = side.base;
                    self.pump(end);
                }
            }
        }
        self.set_timer(end);
    }

    fn arrived(&mut self, segment: Segment) {
        let end = PipeEnd { pipe: segment.pipe, side: 1 - segment.side };
        if segment.kind == Kind::Reset {
            let far = self.side(PipeEnd { side: 1 - end.side, ..end }).rank;
            let fault = match self.side(end).state {
                State::Dialing if self.dead.contains(&far) => RailFault::Gone,
                State::Dialing => RailFault::Refused,
                _ => RailFault::Closed,
            };
            return self.finish(end, fault);
        }
        let is_old_dial = segment.kind == Kind::Dial && !self.is_newest(end);
        if self.dead.contains(&self.side(end).rank) || matches!(self.side(end).state, State::Over(_)) || is_old_dial {
            return self.send(end, Kind::Reset);
        }
        let now = self.now;
        let side = self.side_mut(end);
        side.allowed = side.allowed.max(segment.granted);
        side.last_received = now;
        if segment.ack > side.base {
            let acked = (segment.ack - side.base).min(side.tx.len() as u64);
            side.tx.drain(..acked as usize);
            side.base += acked;
            // The end's own number, when that is acknowledged, is all that is left.
            if segment.ack > side.base {
                side.base = segment.ack;
            }
            side.next = side.next.max(side.base);
            side.progress = now;
            side.repeat_ns = REPEAT_AFTER_NS;
            self.ring(end);
        }
        let side = self.side_mut(end);
        match segment.kind {
            Kind::Dial => {
                if matches!(side.state, State::Idle | State::Dialing) {
                    side.state = State::Open;
                    self.ring(end);
                }
                self.send(end, Kind::Accepted);
            }
            Kind::Accepted => {
                if side.state == State::Dialing {
                    side.state = State::Open;
                    side.progress = now;
                    side.repeat_ns = REPEAT_AFTER_NS;
                    self.ring(end);
                }
            }
            Kind::Data { at, bytes } => {
                // The answer to a dial may be lost; bytes imply the same.
                if side.state == State::Dialing {
                    side.state = State::Open;
                }
                let room = RECEIVE_BYTES.saturating_sub(side.rx.len() as u64);
                if at <= side.expected && !side.ended {
                    let new = bytes.get((side.expected - at) as usize..).unwrap_or_default();
                    let new = &new[..new.len().min(room as usize)];
                    side.expected += new.len() as u64;
                    if side.end_at.is_none() {
                        side.rx.extend(new);
                        self.ring(end);
                    }
                }
                self.send(end, Kind::Ack);
            }
            Kind::End { at } => {
                if at == side.expected {
                    side.ended = true;
                    self.ring(end);
                }
                self.send(end, Kind::Ack);
            }
            Kind::Ack | Kind::Reset | Kind::Repeat => {}
        }
        self.pump(end);
    }
}
