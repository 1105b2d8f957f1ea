//! A rail that writes what goes over it to the trace, and is otherwise the rail inside.
//!
//! Packets are written with what identifies their message: the immediate (which carries the identity that the
//! workload gave it), operations at both ends, lane and PSN, acknowledgments.
//! [`message_history`](super::message_history) reads it back.

use rerail_core::endpoint::{Arrival, PostKind, PostStatus, RailFault, Registration};
use rerail_core::ids::{PeerId, PlaceId, PostId};
use rerail_core::time::{Nanos, Time};
use rerail_core::wire::{Body, Repr, Short};
use rerail_linux::rail::{DirectAccess, MemoryKey, Outgoing, Piece, Rail, ShortPlace, Sink};

use super::{Subject, Trace};
use crate::rails::forward::{forward, forward_sink};

/// The wrapper.
pub struct Tap {
    inner: Box<dyn Rail>,
    trace: Trace,
    rank: u32,
    /// The last time that the driver passed.
    now: Time,
}

impl Tap {
    /// Around a rail of a rank; where the trace is off, the rail itself.
    pub fn around(inner: Box<dyn Rail>, trace: &Trace, rank: u32) -> Box<dyn Rail> {
        match trace.is_on() {
            true => Box::new(Tap { inner, trace: trace.clone(), rank, now: Time(0) }),
            false => inner,
        }
    }

    /// Notes a post in the trace.
    fn note_post(&self, outgoing: &Outgoing<'_>) {
        let Outgoing { id, peer, kind, header, payload, .. } = outgoing;
        let bytes: usize = payload.iter().map(|piece| piece.len).sum();
        let post = id.0.to_bits();
        match kind {
            PostKind::Send => {
                let described = Described { header, from: self.rank, to: peer.0 };
                self.note(format_args!("post {post:x} to rank {}: {described}", peer.0));
            }
            PostKind::Write { to } => {
                self.note(format_args!("post {post:x} to rank {}: WRITE {bytes} bytes, key {:x}", peer.0, to.key));
            }
            PostKind::Read { from } => {
                self.note(format_args!("post {post:x} to rank {}: READ {bytes} bytes, key {:x}", peer.0, from.key));
            }
        }
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        self.trace.note(self.now, Subject::Rank(self.rank), format_args!("{}: {what}", self.inner.name()));
    }
}

impl Rail for Tap {
    forward!(add_peer, facts, forget, next_timeout);

    fn connect(&mut self, now: Time, peer: PeerId) {
        self.now = now;
        self.note(format_args!("connect to rank {}", peer.0));
        self.inner.connect(now, peer);
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.note(format_args!("disconnect from rank {}", peer.0));
        self.inner.disconnect(peer);
    }

    fn abort(&mut self, peer: PeerId) {
        self.note(format_args!("abort rank {}", peer.0));
        self.inner.abort(peer);
    }

    unsafe fn post_small(&mut self, outgoing: Outgoing<'_>) -> bool {
        self.note_post(&outgoing);
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.inner.post_small(outgoing) }
    }

    unsafe fn post(&mut self, outgoing: Outgoing<'_>) {
        self.note_post(&outgoing);
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.inner.post(outgoing) }
    }

    unsafe fn post_short(&mut self, peer: PeerId, short: &Short, payload: *const u8) -> bool {
        // SAFETY: the caller's promise is the one demanded.
        let is_out = unsafe { self.inner.post_short(peer, short, payload) };
        let fate = if is_out { "" } else { "; no room" };
        self.note(format_args!("to rank {}: {}{fate}", peer.0, DescribedShort(short)));
        is_out
    }

    unsafe fn access(&mut self, access: &DirectAccess<'_>) -> bool {
        // SAFETY: the caller's promise is the one demanded.
        let is_done = unsafe { self.inner.access(access) };
        let &DirectAccess { peer, is_put, window, offset, pieces } = access;
        let bytes: usize = pieces.iter().map(|piece| piece.len).sum();
        let (what, fate) = (if is_put { "put" } else { "get" }, if is_done { "done" } else { "left to the peer" });
        self.note(format_args!("{what} of {bytes} bytes at {offset} of window {window:x} of rank {}: {fate}", peer.0));
        is_done
    }

    unsafe fn register(&mut self, memory: Piece, write: bool) -> Result<MemoryKey, RailFault> {
        // SAFETY: the caller's promise is the one demanded.
        let key = unsafe { self.inner.register(memory, write) };
        match &key {
            Ok(key) => self.note(format_args!("registered {} bytes, key {:x}", memory.len, key.key)),
            Err(fault) => self.note(format_args!("registration of {} bytes failed: {fault:?}", memory.len)),
        }
        key
    }

    fn deregister(&mut self, key: MemoryKey) {
        self.note(format_args!("deregistered key {:x}", key.key));
        self.inner.deregister(key);
    }

    fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        self.now = now;
        let Tap { inner, trace, rank, .. } = self;
        // The name can't be borrowed while the rail is polled.
        let name = inner.name().to_owned();
        inner.poll(now, &mut TapSink { sink, trace, rank: *rank, now, name: &name })
    }
}

struct TapSink<'a> {
    sink: &'a mut dyn Sink,
    trace: &'a Trace,
    rank: u32,
    now: Time,
    name: &'a str,
}

impl TapSink<'_> {
    fn note(&self, what: std::fmt::Arguments<'_>) {
        self.trace.note(self.now, Subject::Rank(self.rank), format_args!("{}: {what}", self.name));
    }
}

// SAFETY: every answer is that of the sink inside.
unsafe impl Sink for TapSink<'_> {
    forward_sink!();

    fn arrival(&mut self, peer: PeerId, header: &[u8]) -> Arrival {
        let answer = self.sink.arrival(peer, header);
        let fate = match &answer {
            Arrival::Done => "taken".to_owned(),
            Arrival::Discard => "payload dropped".to_owned(),
            Arrival::Address { rail } => format!("of rail {}", rail.0),
            Arrival::Place { id, memory } => format!("{} bytes to place {:x}", memory.len(), id.0.to_bits()),
            Arrival::Close => "breaks the protocol".to_owned(),
        };
        let described = Described { header, from: peer.0, to: self.rank };
        self.note(format_args!("from rank {}: {described}; {fate}", peer.0));
        answer
    }

    fn whole(&mut self, peer: PeerId, header: &[u8]) -> ShortPlace {
        let place = self.sink.whole(peer, header);
        if !matches!(place, ShortPlace::Packet) {
            let described = Described { header, from: peer.0, to: self.rank };
            self.note(format_args!("from rank {}: {described}; received at once", peer.0));
        }
        place
    }

    fn placed(&mut self, id: PlaceId) {
        self.note(format_args!("place {:x} filled", id.0.to_bits()));
        self.sink.placed(id);
    }

    fn short(&mut self, peer: PeerId, short: &Short) -> ShortPlace {
        let place = self.sink.short(peer, short);
        let fate = if matches!(place, ShortPlace::Packet) { "as a packet" } else { "taken" };
        self.note(format_args!("from rank {}: {}; {fate}", peer.0, DescribedShort(short)));
        place
    }

    fn completed(&mut self, id: PostId, status: PostStatus) {
        self.note(format_args!("post {:x} is over: {status:?}", id.0.to_bits()));
        self.sink.completed(id, status);
    }

    fn up(&mut self, peer: PeerId) {
        self.note(format_args!("up to rank {}", peer.0));
        self.sink.up(peer);
    }

    fn no_remote_access(&mut self, peer: PeerId) {
        self.note(format_args!("no remote access to rank {}", peer.0));
        self.sink.no_remote_access(peer);
    }

    fn down(&mut self, peer: PeerId, fault: RailFault) {
        self.note(format_args!("down to rank {}: {fault:?}", peer.0));
        self.sink.down(peer, fault);
    }

    fn registered(&mut self, what: Registration, bytes: u64, took: Nanos) {
        self.note(format_args!("had to register {bytes} bytes ({what:?}) for {} ns", took.0));
        self.sink.registered(what, bytes, took);
    }

    fn reset(&mut self) {
        self.note(format_args!("reset"));
        self.sink.reset();
    }

    fn moved(&mut self) {
        self.note(format_args!("moved"));
        self.sink.moved();
    }

    fn back(&mut self) {
        self.note(format_args!("back"));
        self.sink.back();
    }
}

/// A short message in one line.
struct DescribedShort<'a>(&'a Short);

impl std::fmt::Display for DescribedShort<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short = self.0;
        write!(f, "SHORT {} bytes", short.len)?;
        message(f, short.immediate())?;
        let limits = short.counts.limits();
        write!(f, ", psn {}, limits {}/{}", short.counts.psn(), limits.0, limits.1)
    }
}

/// A header in one line. An operation is written with the rank that it belongs to.
struct Described<'a> {
    header: &'a [u8],
    from: u32,
    to: u32,
}

impl std::fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let repr = match Repr::parse(self.header) {
            Ok(repr) => repr,
            Err(error) => return write!(f, "MALFORMED ({error})"),
        };
        let Repr { common, body } = &repr;
        let Described { from, to, .. } = self;
        match body {
            Body::Eager(head) => {
                write!(f, "EAGER {} bytes, op {from}:{:x}", common.payload_bytes, head.operation)?;
                message(f, head.immediate)?;
            }
            Body::Aggregate { count } => write!(f, "AGGREGATE of {count}")?,
            Body::Rts(rts) => {
                write!(f, "RTS op {from}:{:x}", rts.head.operation)?;
                message(f, rts.head.immediate)?;
            }
            Body::Cts(cts) => {
                write!(f, "CTS op {to}:{:x}, op {from}:{:x}, {} bytes", cts.operation, cts.target, cts.granted_bytes)?;
            }
            Body::Fin(fin) => write!(f, "FIN op {to}:{:x}, {} bytes", fin.operation, fin.placed_bytes)?,
            Body::Data(data) => {
                write!(f, "DATA op {to}:{:x} at {}, {} bytes", data.operation, data.offset, common.payload_bytes)?;
            }
            Body::Put(put) => {
                write!(f, "PUT op {from}:{:x} at {}, {} bytes", put.operation, put.offset, common.payload_bytes)?
            }
            Body::PutImmediate(put) => {
                let bytes = common.payload_bytes;
                write!(
                    f,
                    "PUT-IMMEDIATE op {from}:{:x} at {}, {bytes} of {} bytes",
                    put.operation, put.offset, put.bytes
                )?;
                message(f, Some(put.immediate))?;
            }
            Body::Get(get) => write!(f, "GET op {from}:{:x} at {}, {} bytes", get.operation, get.offset, get.bytes)?,
            Body::Atomic(atomic) => write!(f, "ATOMIC op {from}:{:x} {:?}", atomic.operation, atomic.kind)?,
            Body::AtomicReply(reply) => write!(f, "ATOMIC-REPLY op {to}:{:x} old {}", reply.operation, reply.old)?,
            Body::Ack(ack) => write!(f, "ACK beyond {:x} {:x}", ack.ordered_beyond, ack.unordered_beyond)?,
            Body::Credit => f.write_str("CREDIT")?,
            Body::Connect(connect) => write!(f, "CONNECT{}", if connect.answer { " (answer)" } else { "" })?,
            Body::Fence(fence) => write!(
                f,
                "FENCE rail {} connection {} ({}){}",
                fence.rail,
                fence.connection,
                fence.peer_connection,
                if fence.answer { " answer" } else { "" }
            )?,
            Body::Resume(resume) => write!(f, "RESUME {:x} epoch {}", resume.target, resume.epoch)?,
            Body::Probe(probe) => write!(f, "PROBE{}", if probe.answer { " (answer)" } else { "" })?,
            Body::Bye => f.write_str("BYE")?,
            Body::Park(park) => write!(f, "PARK {} ({:?})", park.request, park.step)?,
            Body::Address(address) => write!(f, "ADDRESS rail {} at {}", address.rail, address.text.as_str())?,
        }
        if let Some(lane) = body.lane() {
            write!(f, " [{lane:?} {}]", common.psn)?;
        }
        write!(f, " acks {}/{}", common.ack_ordered, common.ack_unordered)
    }
}

fn message(f: &mut std::fmt::Formatter<'_>, immediate: Option<u64>) -> std::fmt::Result {
    match immediate {
        Some(id) => write!(f, ", msg {id:x}"),
        None => Ok(()),
    }
}
