//! What is kept of a packet until it is acknowledged: enough to rebuild it (F-5).

use crate::ids::RailId;
use crate::paths::Stamp;

/// A packet, write or read that a rail has or the peer has not acknowledged: enough to rebuild it (F-5).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Packet {
    /// Its operation.
    pub op: u32,
    pub channel: u32,
    /// When it was handed over.
    pub stamp: Stamp,
    /// Bytes of payload.
    pub len: u32,
    /// Their offset in the operation's payload; for a FIN of a part [`PartFin::pack`]ed.
    pub offset: u64,
    pub rail: u8,
    pub what: What,
    /// The rail has it.
    pub posted: bool,
    /// The peer has not acknowledged it.
    pub unacked: bool,
    /// The connection that carried it is dead, and its fate is unknown.
    pub lost: bool,
}

/// The type of a [`Packet`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum What {
    #[default]
    Eager,
    Aggregate,
    Rts,
    Cts,
    /// An answer or a refusal.
    Fin,
    /// Behind the writes of a part.
    PartFin,
    Resume,
    Data,
    Put,
    PutImmediate,
    Get,
    Atomic,
    AtomicReply,
    /// No packet: a remote write.
    Write,
    /// No packet: a remote read.
    Read,
}

const _: () = assert!(size_of::<Packet>() == 32);

/// The part and the retry epoch of a put rendezvous FIN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartFin {
    pub part: RailId,
    pub epoch: u16,
}

impl PartFin {
    pub(crate) const fn pack(self) -> u64 {
        (self.epoch as u64) << 8 | self.part.0 as u64
    }

    pub(crate) const fn unpack(packed: u64) -> PartFin {
        PartFin { part: RailId(packed as u8), epoch: (packed >> 8) as u16 }
    }
}
