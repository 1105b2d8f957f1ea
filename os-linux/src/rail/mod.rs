//! The seam between the driver and its rails: one trait, one file per kind of rail.
//!
//! A rail owns sockets, rings or devices and is unaware of messages. It never blocks, starts no thread and
//! reads no clock. The driver calls [`Rail::poll`] with a [`Sink`] through which packets, completions and
//! subchannel events go to the core. The core counts the room for posts (`RailFacts::posts_max` per
//! subchannel), so a post can't be refused (rule L-4). The contract of a rail: `conformance/PROTOCOL.md`, L-1
//! to L-5, L-15, L-16.
//!
//! # Memory
//!
//! Rails read and write memory by address. Safe code can therefore neither give a rail memory ([`Rail::post`]
//! and [`Rail::register`] are unsafe to call) nor name the memory of a payload ([`Sink`] is unsafe to
//! implement). With the keyword `unsafe`, which asserts that the memory is valid, this program compiles:
//!
//! ```
//! # use rerail_core::endpoint::PostKind;
//! # use rerail_core::ids::{PeerId, PostId};
//! # use rerail_linux::rail::{Outgoing, Piece, Rail, loopback::Loopback};
//! let mut target = [1u8; 8];
//! let payload = &[Piece { start: target.as_mut_ptr(), len: 8 }];
//! let (id, peer) = (PostId::default(), PeerId(0));
//! let post = Outgoing { id, peer, kind: PostKind::Send, header: &[1], payload, extent: 0 };
//! let mut rail = Loopback::new(peer);
//! // SAFETY: `target` lives longer than the rail, and is not accessed meanwhile.
//! unsafe { rail.post(post) };
//! ```
//!
//! Without it, it does not, whatever the rail (the same against each kind of rail: `Attacks` below):
//!
//! ```compile_fail,E0133
//! # use rerail_core::endpoint::PostKind;
//! # use rerail_core::ids::{PeerId, PostId};
//! # use rerail_linux::rail::{Outgoing, Piece, Rail, loopback::Loopback};
//! let mut target = [1u8; 8];
//! let payload = &[Piece { start: target.as_mut_ptr(), len: 8 }];
//! let (id, peer) = (PostId::default(), PeerId(0));
//! let post = Outgoing { id, peer, kind: PostKind::Send, header: &[1], payload, extent: 0 };
//! let mut rail = Loopback::new(peer);
//! rail.post(post);
//! ```
//!
//! ```compile_fail,E0133
//! # use rerail_linux::rail::{Piece, Rail};
//! fn publish(rail: &mut dyn Rail) {
//!     let _ = rail.register(Piece { start: std::ptr::without_provenance_mut(16), len: 8 }, true);
//! }
//! ```
//!
//! A sink compiles with `unsafe impl` and not without:
//!
//! ```
//! # use rerail_core::endpoint::{Arrival, PostStatus, RailFault};
//! # use rerail_core::ids::{PeerId, PlaceId, PostId};
//! # use rerail_linux::rail::{Piece, Sink};
//! struct Nowhere;
//! // SAFETY: no memory is answered with.
//! unsafe impl Sink for Nowhere {
//!     fn arrival(&mut self, _: PeerId, _: &[u8]) -> Arrival { Arrival::Discard }
//!     fn place(&mut self, _: PlaceId, _: u64, _: &mut Vec<Piece>) -> bool { false }
//!     fn placed(&mut self, _: PlaceId) {}
//!     fn completed(&mut self, _: PostId, _: PostStatus) {}
//!     fn up(&mut self, _: PeerId) {}
//!     fn down(&mut self, _: PeerId, _: RailFault) {}
//!     fn reset(&mut self) {}
//!     fn moved(&mut self) {}
//!     fn back(&mut self) {}
//! }
//! ```
//!
//! ```compile_fail,E0200
//! # use rerail_core::endpoint::{Arrival, PostStatus, RailFault};
//! # use rerail_core::ids::{PeerId, PlaceId, PostId};
//! # use rerail_linux::rail::{Piece, Sink};
//! struct Anywhere;
//! impl Sink for Anywhere {
//!     fn arrival(&mut self, _: PeerId, _: &[u8]) -> Arrival { Arrival::Discard }
//!     fn place(&mut self, _: PlaceId, _: u64, pieces: &mut Vec<Piece>) -> bool {
//!         pieces.push(Piece { start: std::ptr::without_provenance_mut(16), len: 8 });
//!         true
//!     }
//!     fn placed(&mut self, _: PlaceId) {}
//!     fn completed(&mut self, _: PostId, _: PostStatus) {}
//!     fn up(&mut self, _: PeerId) {}
//!     fn down(&mut self, _: PeerId, _: RailFault) {}
//!     fn reset(&mut self) {}
//!     fn moved(&mut self) {}
//!     fn back(&mut self) {}
//! }
//! ```

mod attempts;
pub mod loopback;
mod reports;
pub mod shm;
pub(crate) mod shortage;
pub mod tcp;
pub mod verbs;

use crate::auth::{Fingerprint, PeerKey, PublicKey};
use std::hash::Hasher;
use std::os::fd::BorrowedFd;

use rerail_core::endpoint::{Access, Arrival, PostKind, PostStatus, RailFault, Registration};
use rerail_core::ids::{PeerId, PlaceId, PostId};
use rerail_core::rail::RailFacts;
use rerail_core::time::{Nanos, Time};
use rerail_core::wire::Short;
use rerail_core::wire::handshake::NAME_BYTES;
use rustix::io::Errno;

/// A hash for numbers that no attacker chooses, as those of queue pairs and ranks: they need spreading only.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32((self.0 as u32) << 8 ^ u32::from(byte)));
    }

    fn write_u32(&mut self, number: u32) {
        // Odd: neighbours differ in the high bits, too, which the tables use to distinguish their entries.
        self.0 = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A piece of this process's memory, in the form that `readv` and `writev` take.
///
/// Safe code can construct one. Code that hands over pieces to be read or written asserts that they are
/// valid, through `unsafe` in [`Rail`] and [`Sink`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Where it starts.
    pub start: *mut u8,
    /// Its length in bytes.
    pub len: usize,
}

// SAFETY: an address and a length; its user asserts that the memory is valid where it is used.
unsafe impl Send for Piece {}

/// Something to hand to a rail: the core's `Post` with its memory resolved.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// Comes back in [`Sink::completed`].
    pub id: PostId,
    /// The subchannel's peer.
    pub peer: PeerId,
    /// Send, write or read.
    pub kind: PostKind,
    /// The packet's header; the rail copies it.
    pub header: &'a [u8],
    /// The payload; stays valid until the rail has reported completion or the subchannel down, or until
    /// [`Rail::disconnect`] returns, whichever comes first.
    pub payload: &'a [Piece],
    /// For a write or read with one piece: this many bytes from its start on belong to the same memory and to
    /// this rail's share, and later posts will name them. For rails that register memory; it may not be
    /// touched. At least the piece's length, else 0.
    pub extent: usize,
}

/// A one-sided request that a rail may carry out by itself.
#[derive(Clone, Copy, Debug)]
pub struct DirectAccess<'a> {
    /// The window's owner.
    pub peer: PeerId,
    /// A put; else a get.
    pub is_put: bool,
    /// The window's key.
    pub window: u64,
    /// Where in the window its bytes are.
    pub offset: u64,
    /// This process's memory.
    pub pieces: &'a [Piece],
}

/// The name of registered memory for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryKey {
    /// The rail's key (an rkey on verbs).
    pub key: u64,
    /// The address that goes with it.
    pub address: u64,
}

/// Where a rail reports to.
///
/// # Safety
/// Rails write to the pieces that [`place`](Self::place) returns. An implementation fills in only memory that
/// is valid for writes, and not referenced, until the next call into the sink; of one placement always the
/// same memory, until [`placed`](Self::placed) is called for it or the subchannel's end is reported.
#[allow(unused_variables, reason = "defaults need no arguments")]
pub unsafe trait Sink {
    /// A packet's header has arrived (`wire::header_len` gives its length). The answer selects the treatment
    /// of its payload.
    fn arrival(&mut self, peer: PeerId, header: &[u8]) -> Arrival;
    /// As [`arrival`](Self::arrival), of a packet whose payload is here, all of it: it is copied to the place
    /// before the next call into the sink, and is received then. [`ShortPlace::Packet`]: nothing has
    /// happened, call `arrival`.
    fn whole(&mut self, peer: PeerId, header: &[u8]) -> ShortPlace {
        ShortPlace::Packet
    }
    /// Fills `pieces` with the memory of an open placement, from its byte `from` on; `false` where it is
    /// aborted: skip the rest of the payload. Pieces are valid until the next call into the sink.
    fn place(&mut self, id: PlaceId, from: u64, pieces: &mut Vec<Piece>) -> bool;
    /// The payload is in place.
    fn placed(&mut self, id: PlaceId);
    /// A short message is here, all of it. The payload is copied, all of it, before the next call into the
    /// sink.
    fn short(&mut self, peer: PeerId, short: &Short) -> ShortPlace {
        ShortPlace::Packet
    }
    /// A short message that is not delivered as one: returns the treatment of its payload, as for a packet.
    fn short_packet(&mut self, peer: PeerId, short: &Short) -> Arrival {
        Arrival::Close
    }
    /// A post is over.
    fn completed(&mut self, id: PostId, status: PostStatus);
    /// The subchannel to `peer` is established and authenticated.
    fn up(&mut self, peer: PeerId);
    /// For an established subchannel: the peer's memory can be neither read nor written over it, whatever
    /// [`Rail::facts`] offers (rule X-11).
    fn no_remote_access(&mut self, peer: PeerId) {}
    /// The subchannel to `peer` is down. Reported once; open posts and placements on it are aborted. The
    /// peer's writes and reads over it no longer reach memory here (rule F-2). It may be connected again.
    fn down(&mut self, peer: PeerId, fault: RailFault);
    /// A dial waits at the peer's kernel for its process, which exists and makes no call. Reported again as
    /// long as that lasts (rule L-16).
    fn queued(&mut self, peer: PeerId) {}
    /// The rail had to register `bytes` of memory, which took `took`; not reported for memory that it had
    /// registered already (rule P-15).
    fn registered(&mut self, what: Registration, bytes: u64, took: Nanos) {}
    /// The device was lost or opened again: all registrations are invalid. Every subchannel is reported
    /// down separately.
    fn reset(&mut self);
    /// [`Rail::address`] has changed: announce it to the peers (rule F-12).
    fn moved(&mut self);
    /// A process that is no peer has called, proved its key and sent `name` with it; of a rail without a job
    /// only. `true`: it waits for the answer, which is [`Rail::trust`] with its key, or [`Rail::refuse`]
    /// (rule H-11).
    fn unknown_caller(&mut self, name: &[u8; NAME_BYTES], key: Fingerprint) -> bool {
        false
    }
    /// The link or the device works again: pending reconnects need not wait any longer (rule F-8).
    fn back(&mut self);
}

/// Where a short message, or the payload of a whole packet, goes.
#[derive(Debug)]
pub enum ShortPlace {
    /// To this memory, which takes all of it.
    Copy(*mut u8),
    /// It is empty, and received.
    Done,
    /// Call [`Sink::short_packet`], or [`Sink::arrival`].
    Packet,
}

/// A rail's counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailCounters {
    /// Packets handed to the system.
    pub packets_sent: u64,
    /// Packets taken from the system.
    pub packets_received: u64,
    /// Payload and header bytes of those that were handed over.
    pub bytes_sent: u64,
    /// Payload and header bytes of those that were taken.
    pub bytes_received: u64,
    /// Connections refused because the other side did not prove that it belongs to the job.
    pub unauthenticated: u64,
    /// Subchannels closed because of bytes that no honest peer writes.
    pub corrupt: u64,
    /// How often this process could neither open nor accept a connection, because it or the system had no
    /// descriptor or no memory left. The rail retries; peers see only silence.
    pub shortages: u64,
    /// The system's error at the last of them.
    pub shortage: Option<Errno>,
    /// Posts and requests that found a registration of their memory, and those that did not (of rails that
    /// register).
    pub registration_hits: u64,
    /// See [`registration_hits`](Self::registration_hits).
    pub registration_misses: u64,
    /// Registrations that went to make room for others.
    pub registration_evictions: u64,
    /// Registrations made.
    pub registrations: u64,
    /// Bytes of payload memory that are registered at the moment.
    pub registered_bytes: u64,
    /// System calls for sending, receiving and checking for received data (zero where there are none).
    pub system_calls: u64,
}

/// The resources that a rail holds at the moment: for leak checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailUsage {
    /// Connections with objects of a device of their own, those being opened or closed included.
    pub connections: u32,
    /// Queue pairs of these; by XRC several may share one, and a target counts where it is open.
    pub queue_pairs: u32,
    /// XRC domains.
    pub domains: u32,
    /// Registrations of payload memory, those kept for later included; the rail's own buffers not.
    pub registrations: u32,
    /// Datagrams in flight.
    pub datagrams: u32,
    /// Address handles: those of connections, and those of datagrams on their way out that are no
    /// connection's any more.
    pub handles: u32,
}

/// Why a peer's address can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressError {
    /// The address as it was published.
    pub address: String,
    /// The reason.
    pub why: &'static str,
}

/// One rail: a way to other processes.
#[allow(unused_variables, reason = "defaults need no arguments")]
pub trait Rail: std::any::Any {
    /// Short name for people: `shm`, `tcp:eth0`, `loop`.
    fn name(&self) -> &str;
    /// Facts for the core.
    fn facts(&self) -> RailFacts;
    /// This process's address on this rail; [`Sink::moved`] reports a change. Published through the
    /// bootstrap: printable ASCII without spaces, `;`, `,` or `=`; at most 200 bytes.
    fn address(&self) -> String;
    /// Takes the address of a peer on its rail of the same kind and index; `Ok(false)`: not reachable by this
    /// rail. For a known peer it is the new address, which holds from the next [`connect`](Self::connect) on
    /// at the latest; established subchannels stay (rule F-12).
    fn add_peer(&mut self, peer: PeerId, address: &str) -> Result<bool, AddressError>;
    /// Takes a peer's key, after its address. A rail that authenticates the other end connects to no other
    /// process than the one that holds the private key (rules H-4, H-5, V-3).
    fn trust(&mut self, peer: PeerId, key: &PeerKey) {}
    /// The caller with this key, which waits for an answer, gets none but a refusal (rule H-11).
    fn refuse(&mut self, key: &Fingerprint) {}
    /// The peer is no peer any more: [`abort`](Self::abort), and its address and key are forgotten.
    fn forget_peer(&mut self, peer: PeerId) {
        self.abort(peer);
    }
    /// The key by which peers' rails authenticate this process; `None`: the rail proves nothing.
    fn public_key(&self) -> Option<PublicKey> {
        None
    }
    /// Starts to open the subchannel; the outcome comes through the sink. Nothing happens if it is open or
    /// opening.
    fn connect(&mut self, now: Time, peer: PeerId);
    /// Closes the subchannel after the queued posts have been sent (bounded effort); nothing more is reported
    /// for it. When this returns, no payload memory of its posts is used any more: unsent payload was copied.
    fn disconnect(&mut self, peer: PeerId);
    /// Ends the subchannel at once, be it open, opening or closing: when this returns, no memory of its posts
    /// and placements is used any more, the peer's writes and reads over it no longer reach this process's
    /// memory, and nothing more is reported for it. It may be connected again (rule F-2).
    fn abort(&mut self, peer: PeerId);
    /// Takes a post. The packet leaves at once, or with others at the next [`push`](Self::push) or poll; its
    /// completion is reported by the next poll.
    ///
    /// # Safety
    /// Every piece of `outgoing.payload` stays valid, for reads (for writes, where `outgoing.kind` is a
    /// read), until the rail has reported the post's completion or the subchannel down, or until
    /// [`disconnect`](Self::disconnect) or [`abort`](Self::abort) has returned, and no references to its
    /// bytes exist while the rail is called. The same holds for `outgoing.extent` bytes from the start of a
    /// sole piece, as long as they are registered.
    unsafe fn post(&mut self, outgoing: Outgoing<'_>);
    /// The last post of a batch was handed over: those that were held back leave now.
    fn push(&mut self) {}
    /// As [`post`](Self::post), of a short message by itself, never held back. A rail that has copied it may
    /// report [`PostStatus::Taken`] by the next poll, without waiting for its device. Or it returns `true`:
    /// the post is over, and nothing is reported. So it answers for one post to a peer between two polls at
    /// most: with further ones it is busy, so that messages gather (newmadeleine-2007, 2).
    ///
    /// # Safety
    /// As there.
    unsafe fn post_small(&mut self, outgoing: Outgoing<'_>) -> bool {
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.post(outgoing) }
        false
    }
    /// Sends a short message at once: when this returns, the peer has it, its memory is free, and no
    /// completion follows. `false`: not sent, for lack of room or because earlier posts wait. Only a rail
    /// whose [`facts`](Self::facts) offer it takes any.
    ///
    /// # Safety
    /// `payload` can be read for `short.len` bytes, and no mutable references to them exist.
    unsafe fn post_short(&mut self, peer: PeerId, short: &Short, payload: *const u8) -> bool {
        false
    }
    /// Registers one contiguous piece of memory, for peers to read from or, with `write`, to write to. The
    /// driver calls it where [`facts`](Self::facts) offer reads or writes, once per request and rail, and
    /// several registrations may cover the same bytes. The default is for rails that need no registration:
    /// the key is the address.
    ///
    /// # Errors
    /// The device's error; the request then continues without this rail's key (rules X-10, X-11).
    ///
    /// # Safety
    /// The memory stays valid, for reads or, with `write`, for writes, until [`deregister`](Self::deregister)
    /// returns or the rail is dropped, and until [`forget`](Self::forget) where the rail keeps registrations.
    unsafe fn register(&mut self, memory: Piece, write: bool) -> Result<MemoryKey, RailFault> {
        Ok(MemoryKey { key: 0, address: memory.start.addr() as u64 })
    }
    /// Ends the registration with `key` from [`register`](Self::register): when this returns, peers can't
    /// change the memory by it any more. (A rail may be configured to keep memory that peers can read, and
    /// optionally memory that they can write, for the next registration, until [`forget`](Self::forget).)
    fn deregister(&mut self, key: MemoryKey) {}
    /// This memory is about to be unmapped or mapped again (or was), and no pending request names it: ends
    /// registrations of it that were kept for later. A registration still in use for adjacent memory ends
    /// with its last user.
    fn forget(&mut self, memory: Piece) {}
    /// The application maps and unmaps this memory (`adopt`), or with `is_over` has it back: unless a setting
    /// allows it, the rail keeps no registration of it that no request uses.
    fn adopt(&mut self, memory: Piece, is_over: bool) {}
    /// This memory is that of a file which peers may map, for reading and, if `is_writable`, for writing,
    /// instead of having the system copy; until [`forget`](Self::forget) is called for it. It is theirs to
    /// use or not.
    fn offer(&mut self, memory: Piece, file: BorrowedFd<'_>, is_writable: bool) {}
    /// A window: peers may access it by themselves, if it lies in memory that is offered (rule L-25).
    fn expose(&mut self, key: u64, memory: Piece, access: Access) {}
    /// The window of this key is to be released; `false`: not yet, for a peer may be writing to it (rule
    /// L-27). No access begins from now on.
    fn withdraw(&mut self, key: u64) -> bool {
        true
    }
    /// Carries a request out at once, without the peer, if its window is within reach (rule L-26). `false`:
    /// it was not, though a get's pieces may have any bytes.
    ///
    /// # Safety
    /// The pieces can be read, those of a get written, until this returns.
    unsafe fn access(&mut self, access: &DirectAccess<'_>) -> bool {
        false
    }
    /// Makes all progress possible without waiting; returns the number of things done.
    fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> usize;
    /// When to poll at the latest even if the descriptor stays silent (handshake time-outs).
    fn next_timeout(&self) -> Option<Time>;
    /// Whether a disconnected peer may still lose earlier posts if the process ended now: continue to poll,
    /// the state ends soon (bounded by [`next_timeout`](Self::next_timeout)).
    fn is_closing(&self) -> bool {
        false
    }
    /// A descriptor that becomes readable when there is something to poll, once [`arm`](Self::arm) was
    /// called.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;
    /// Counts how often [`wait_fd`](Self::wait_fd) has become another descriptor, or one at all: a closed
    /// descriptor's number may be the next one's.
    fn wait_fd_changes(&self) -> u32 {
        0
    }
    /// Prepares for sleeping on the descriptor; `false`: there is work already, don't sleep.
    fn arm(&mut self) -> bool;
    /// Ends the effect of `arm`.
    fn disarm(&mut self);
    /// For people: how this rail treats `peer` in ways that its facts don't show, and why.
    fn remark(&self, peer: PeerId) -> Option<String> {
        None
    }
    /// Counters.
    fn counters(&self) -> RailCounters;
    /// The device resources that it holds; zero, where it has no device.
    fn usage(&self) -> RailUsage;
}

/// Safe code that hands invented memory to each kind of rail: it compiles only with the keyword `unsafe`.
#[cfg(doctest)]
macro_rules! attacks {
    ($($generics:literal $rail:literal: $($call:literal)*;)*) => {
        $($(
            #[doc = concat!(
                "```compile_fail,E0133\nuse rerail_linux::rail::{*, shm::*, tcp::*, verbs::*};\n",
                "fn attack", $generics, "(rail: &mut ", $rail, ", post: Outgoing<'_>, memory: Piece) {\n    let _ = ",
                $call, ";\n}\n```\n\n```\nuse rerail_linux::rail::{*, shm::*, tcp::*, verbs::*};\n",
                "fn attack", $generics, "(rail: &mut ", $rail, ", post: Outgoing<'_>, memory: Piece) {\n",
                "    // SAFETY: not called.\n    let _ = unsafe { ", $call, " };\n}\n```\n"
            )]
        )*)*
        struct Attacks;
    };
}

#[cfg(doctest)]
attacks! {
    "" "ShmRail": "rail.post(post)" "rail.register(memory, true)"
        "rail.post_short(post.peer, unreachable!(), memory.start)";
    "" "TcpRail": "rail.post(post)" "rail.register(memory, true)";
    "<D: rerail_verbs::contract::Device + 'static>" "VerbsRail<D>": "rail.post(post)" "rail.register(memory, true)"
        "rail.post_small(post)";
}
