//! Rails: their capabilities, and how work is spread over them.

pub mod plan;
pub mod rate;
pub mod sched;
pub(crate) mod set;
pub mod weights;

pub use plan::groups::Place;

use crate::ids::RailId;
use crate::time::Nanos;

/// The rails of a mask, in rising order.
pub(crate) fn rails_of(mut mask: u64) -> impl Iterator<Item = RailId> {
    core::iter::from_fn(move || {
        let rail = (mask != 0).then(|| RailId(mask.trailing_zeros() as u8));
        mask &= mask.wrapping_sub(1);
        rail
    })
}

/// What a rail can do; the core adapts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// Remote memory can be written without the peer's software (RDMA write).
    pub write: bool,
    /// Remote memory can be read without the peer's software (RDMA read).
    pub read: bool,
    /// Memory must be registered with the rail before it may be named in a write or read.
    pub registration: bool,
    /// A packet handed over is delivered as long as the peer lives: no copy has to be retained for replay on
    /// another rail (shared memory).
    pub lossless: bool,
}

/// The sort of a rail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RailKind {
    /// This process to itself.
    #[default]
    Loop,
    /// Shared memory.
    Shm,
    /// A TCP connection per peer.
    Tcp,
    /// InfiniBand or RoCE verbs.
    Verbs,
    /// A simulated device.
    Sim,
}

/// Facts of a rail, given once when it is added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailFacts {
    /// The sort.
    pub kind: RailKind,
    /// Its capabilities.
    pub caps: Caps,
    /// Largest eager payload in bytes on this rail; larger messages go by rendezvous (shiba-2005 2.3.3: a
    /// switching point per channel).
    pub eager_bytes_max: u32,
    /// Largest payload of one packet (data segment, put segment) in bytes.
    pub segment_bytes_max: u32,
    /// Largest payload of a short message ([`wire::Short`](crate::wire::Short)) in bytes; 0: the rail carries
    /// none. Only of a rail that loses nothing and keeps the order.
    pub short_bytes_max: u32,
    /// Largest remote write or read in bytes; 0: as a packet's payload.
    pub transfer_bytes_max: u32,
    /// Posts that may be outstanding per subchannel.
    pub posts_max: u16,
    /// Bandwidth that the rail is known or estimated to have, in bytes per second; 0: unknown.
    pub bytes_per_second: u64,
    /// What a packet takes beside its bytes that it is known or estimated to take, in nanoseconds; 0:
    /// unknown.
    pub latency_ns: u32,
    /// Where it sits: what it shares with other rails of this endpoint, and so its shared bottlenecks.
    pub place: Place,
    /// How far its device is from the memory of this process, as the kernel counts it: 10 is local, more is
    /// farther; 0: not known.
    pub numa_distance: u8,
    /// Payloads up to so many bytes are moved by the processor (programmed I/O, inline posts), which
    /// meanwhile serves no other rail; 0: none. No part of a message is cut as small (newmadeleine-2007,
    /// 3.3).
    pub pio_bytes_max: u32,
    /// The rail is fed at least so far ahead, whatever `Config::feed_time` is: its completions come in
    /// bursts, of up to about half of this time's work.
    pub feed_time_min: Nanos,
}

impl RailFacts {
    /// Nothing known and nothing possible: the rest of a literal.
    pub const UNKNOWN: RailFacts = RailFacts {
        kind: RailKind::Loop,
        caps: Caps { write: false, read: false, registration: false, lossless: false },
        eager_bytes_max: 0,
        segment_bytes_max: 0,
        short_bytes_max: 0,
        transfer_bytes_max: 0,
        posts_max: 0,
        bytes_per_second: 0,
        latency_ns: 0,
        place: Place { port: 0, hca: 0, bus: 0 },
        numa_distance: 0,
        pio_bytes_max: 0,
        feed_time_min: Nanos(0),
    };

    /// Largest remote write or read in bytes.
    pub const fn transfer_bytes_max(&self) -> u32 {
        if self.transfer_bytes_max == 0 { self.segment_bytes_max } else { self.transfer_bytes_max }
    }
}
