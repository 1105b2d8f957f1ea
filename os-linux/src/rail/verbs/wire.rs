//! The datagrams that set a connection up, byte for byte: rules V-1 to V-4 of `conformance/PROTOCOL.md`.
//!
//! Shorter than the least MTU (256 bytes), so a message is one packet; two lengths, one for messages that
//! list the shared receive queues of XRC, one for all others. Nothing here computes a MAC: [`Setup::emit`]
//! leaves its place zero and [`signed`] returns the covered bytes. A successful parse means that a message is
//! well formed, never that it is genuine.
//!
//! Invariants: little-endian; `emit(parse(b))` is `b` but for the MAC; fields that a kind does not
//! carry are zero.

use rerail_core::wire::WireError;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned, transmute, transmute_ref};

use crate::auth::MAC_BYTES;

/// The first four bytes, read as a little-endian number: `RERV`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"RERV");
/// The version.
pub const VERSION: u8 = 4;
/// Bytes of a message, without the part behind its MAC.
pub const SETUP_BYTES: usize = 176;
/// Bytes before the MAC, which covers these and those behind it.
pub const SIGNED_BYTES: usize = SETUP_BYTES - MAC_BYTES;
/// Starts the MAC's transcript.
pub const SETUP_LABEL: &[u8] = b"rerail verbs set-up 1";
/// Shared receive queues of one process that a message can name beside that of the longest messages (V-17).
pub const SMALLER_MAX: usize = 7;
/// Bytes of a message that names them.
pub const SETUP_BYTES_MAX: usize = SETUP_BYTES + SMALLER_BYTES;
/// Bytes of their list.
const SMALLER_BYTES: usize = SMALLER_MAX * size_of::<SrqLayout>();

/// Numbers of queue pairs and of packets have so many bits.
const NUMBER_BITS: u32 = 24;
/// The first LID that is no port's (InfiniBand specification, 4.1.3).
const LID_END: u16 = 0xC000;

/// A message's bytes.
pub type Message = heapless::Vec<u8, SETUP_BYTES_MAX>;

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;

/// A number that is used once.
pub type Nonce = [u8; NONCE_BYTES];

/// A set-up message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The sender's rail, among its rails of this kind.
    pub rail: u8,
    /// The job.
    pub job: u64,
    /// Rank of the sender.
    pub from: u32,
    /// Rank that it is for.
    pub to: u32,
    /// The newest of the sender's attempts to connect to that rank; they count from 1.
    pub attempt: u32,
    /// Where the sender's port and its queue pair for datagrams are now.
    pub at: PeerAddress,
    /// The sender's nonce of this attempt.
    pub nonce: Nonce,
    /// Its kind and contents.
    pub kind: SetupKind,
}

/// The address for answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerAddress {
    /// Number of the queue pair for datagrams (24 bits, not 0).
    pub qp: u32,
    /// The port's LID, path bits included; 0 on Ethernet.
    pub lid: u16,
    /// The port's GID.
    pub gid: [u8; 16],
}

/// Kind and contents of a set-up message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupKind {
    /// The sender requests a connection.
    Request(SetupParameters),
    /// The sender's queue pair is ready to receive from the one of the request.
    Reply {
        /// The sender's end.
        parameters: SetupParameters,
        /// The nonce of the request.
        answers: Nonce,
    },
    /// The sender's queue pair is ready to send and receive.
    Ready {
        /// The nonce of the reply.
        answers: Nonce,
        /// XRC: number of the target by which the sender receives from the hearer; 0 with RC.
        target: u32,
    },
    /// The sender has no such connection, or refuses one.
    Refusal {
        /// The nonce of the message that is refused, or of the connection that is over.
        answers: Nonce,
        /// Why.
        reason: Reason,
        /// The state of the sender's end.
        left: Left,
    },
}

/// A sender's report on its end of a connection that is over (V-16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// All that it sent on the connection was acknowledged, and it sends no more on it.
    pub drained: bool,
    /// The target by which it received is dead, and with it the initiator of the hearer's that sent there.
    pub target_dead: bool,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetupParameters {
    /// Number of its queue pair (24 bits); with XRC, of its initiator.
    pub qp: u32,
    /// PSN of the first packet that it sends (24 bits).
    pub psn: u32,
    /// Largest packet payload of its port in bytes: 256, 512, 1024, 2048 or 4096.
    pub mtu: u16,
    /// Reads that it serves at once.
    pub reads_served: u8,
    /// Longest message in bytes that it sends and receives.
    pub message_bytes: u32,
    /// Its further parameters for a connection by XRC.
    pub xrc: Option<XrcParameters>,
}

/// One end of a connection by XRC (V-14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XrcParameters {
    /// Its shared receive queues.
    pub srqs: Srqs,
    /// Number of the target that its initiator is connected to already, on the hearer's node; 0: to none yet.
    pub through: u32,
    /// Number of the target by which it receives from the hearer; 0 in a request, where there is none yet.
    pub target: u32,
}

/// The shared receive queues of a process (xrc-2008, V.A: SXRC-MSRQ).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Srqs {
    /// Number of the one whose buffers hold every message (24 bits).
    pub whole: u32,
    /// Those with smaller buffers, ascending; behind the last of them [`Srq::NONE`].
    pub smaller: [Srq; SMALLER_MAX],
}

/// A shared receive queue with buffers that do not hold every message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Srq {
    /// Its number (24 bits).
    pub number: u32,
    /// Bytes of one of its buffers: more than 0, and less than the longest message.
    pub bytes: u32,
}

impl Srq {
    /// None.
    pub const NONE: Srq = Srq { number: 0, bytes: 0 };
}

impl Srqs {
    /// Number of the queue for a message of so many bytes: the one with the smallest buffers that hold it
    /// (V-17).
    #[inline]
    pub fn holding(&self, bytes: usize) -> u32 {
        // Small messages, which are many, find theirs first; with a large one, the copy of thousands of bytes
        // outweighs the search.
        for srq in &self.smaller {
            if bytes <= srq.bytes as usize {
                return srq.number;
            }
            if srq.bytes == 0 {
                break;
            }
        }
        self.whole
    }
}

/// Reasons of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u8)]
pub enum Reason {
    /// The message was for another rail.
    Rail = 2,
    /// Messages are not equally long on both sides.
    Sizes = 3,
    /// The device has no queue pair left.
    Full = 4,
    /// The connection does not exist, or does no more.
    Over = 5,
    /// One side connects by XRC, the other by RC.
    Transport = 6,
    /// The target named does not exist in the hearer's XRC domain, or is another initiator's.
    Target = 7,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SetupLayout {
    magic: U32,
    version: u8,
    kind: u8,
    rail: u8,
    reason: u8,
    job: U64,
    from: U32,
    to: U32,
    attempt: U32,
    qp: U32,
    psn: U32,
    mtu: U16,
    reads_served: u8,
    transport: u8,
    message_bytes: U32,
    datagrams: U32,
    gid: [u8; 16],
    lid: U16,
    left: u8,
    reserved: u8,
    srq: U32,
    through: U32,
    target: U32,
    nonce: Nonce,
    answers: Nonce,
    mac: [u8; MAC_BYTES],
}

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SrqLayout {
    number: U32,
    bytes: U32,
}

/// The bytes that the MAC covers, in this order: the label, the message but for its MAC. The message is one
/// that parses.
pub fn signed(message: &[u8]) -> [&[u8]; 3] {
    let (before, rest) = message.split_at(SIGNED_BYTES);
    [SETUP_LABEL, before, &rest[MAC_BYTES..]] // V-3
}

/// The MAC, of a message that parses.
pub fn mac_of(message: &[u8]) -> &[u8; MAC_BYTES] {
    let mac = message[SIGNED_BYTES..].first_chunk();
    mac.unwrap_or(&[0; MAC_BYTES])
}

/// Writes the MAC into its place.
pub fn seal(message: &mut Message, mac: &[u8; MAC_BYTES]) {
    message[SIGNED_BYTES..SETUP_BYTES].copy_from_slice(mac);
}

impl Setup {
    /// Reads a message. Errors name the field: `setup.magic`, `setup.version`, `setup.kind`, `setup.reason`,
    /// `setup.attempt`, `setup.datagrams`, `setup.lid`, `setup.qp`, `setup.psn`, `setup.mtu`,
    /// `setup.parameters`, `setup.answers`, `setup.reserved`, `setup.transport`, `setup.left`, `setup.srq`,
    /// `setup.through`, `setup.target`, `setup.smaller`; or its length (`setup.bytes`).
    pub fn parse(bytes: &[u8]) -> Result<Setup, WireError> {
        let length = WireError { field: "setup.bytes", value: bytes.len() as u64 };
        let (front, behind) = bytes.split_first_chunk::<SETUP_BYTES>().ok_or(length)?;
        let layout: &SetupLayout = transmute_ref!(front);
        ensure("setup.magic", layout.magic.get() == MAGIC, layout.magic.get().into())?; // V-1
        ensure("setup.version", layout.version == VERSION, layout.version.into())?;
        ensure("setup.reserved", layout.reserved == 0, layout.reserved.into())?;
        ensure("setup.attempt", layout.attempt.get() != 0, 0)?;
        let parameters = SetupParameters {
            qp: layout.qp.get(),
            psn: layout.psn.get(),
            mtu: layout.mtu.get(),
            reads_served: layout.reads_served,
            message_bytes: layout.message_bytes.get(),
            xrc: layout.xrc(behind)?,
        };
        let left = Left { drained: layout.left & 1 != 0, target_dead: layout.left & 2 != 0 };
        let target = layout.target.get();
        let answers = layout.answers;
        let kind = match layout.kind {
            1 => SetupKind::Request(parameters.checked()?),
            2 => SetupKind::Reply { parameters: parameters.checked()?, answers },
            3 => SetupKind::Ready { answers, target },
            4 => SetupKind::Refusal { answers, reason: Reason::from_code(layout.reason)?, left },
            other => return Err(WireError { field: "setup.kind", value: other.into() }),
        };
        let at = PeerAddress { qp: layout.datagrams.get(), lid: layout.lid.get(), gid: layout.gid };
        ensure("setup.datagrams", at.qp >> NUMBER_BITS == 0 && at.qp != 0, at.qp.into())?;
        ensure("setup.lid", at.lid < LID_END, at.lid.into())?;
        // V-2: fields that a kind does not carry are zero.
        let (has_terms, has_answer) = (matches!(layout.kind, 1 | 2), !matches!(kind, SetupKind::Request(_)));
        ensure(
            "setup.terms",
            has_terms || SetupParameters { xrc: None, ..parameters } == SetupParameters::default(),
            parameters.qp.into(),
        )?;
        ensure("setup.left", layout.left < if layout.kind == 4 { 4 } else { 1 }, layout.left.into())?;
        ensure("setup.answers", has_answer || answers == [0; NONCE_BYTES], answers[0].into())?;
        ensure("setup.reason", layout.kind == 4 || layout.reason == 0, layout.reason.into())?;
        Ok(Setup {
            rail: layout.rail,
            job: layout.job.get(),
            from: layout.from.get(),
            to: layout.to.get(),
            attempt: layout.attempt.get(),
            at,
            nonce: layout.nonce,
            kind,
        })
    }

    /// Writes it, with a MAC of zeros.
    pub fn emit(&self) -> Message {
        let none = ([0; NONCE_BYTES], SetupParameters::default());
        let (kind, (answers, parameters), reason) = match self.kind {
            SetupKind::Request(parameters) => (1, (none.0, parameters), 0),
            SetupKind::Reply { parameters, answers } => (2, (answers, parameters), 0),
            SetupKind::Ready { answers, .. } => (3, (answers, none.1), 0),
            SetupKind::Refusal { answers, reason, .. } => (4, (answers, none.1), reason as u8),
        };
        let (xrc, left) = match self.kind {
            SetupKind::Request(parameters) | SetupKind::Reply { parameters, .. } => (parameters.xrc, 0),
            SetupKind::Ready { target, .. } => {
                ((target != 0).then_some(XrcParameters { target, ..XrcParameters::default() }), 0)
            }
            SetupKind::Refusal { left, .. } => (None, u8::from(left.drained) | u8::from(left.target_dead) << 1),
        };
        let names_queues = xrc.is_some() && matches!(kind, 1 | 2);
        let (transport, xrc) = (u8::from(xrc.is_some()), xrc.unwrap_or_default());
        let front: [u8; SETUP_BYTES] = transmute!(SetupLayout {
            magic: U32::new(MAGIC),
            version: VERSION,
            kind,
            rail: self.rail,
            reason,
            job: U64::new(self.job),
            from: U32::new(self.from),
            to: U32::new(self.to),
            attempt: U32::new(self.attempt),
            qp: U32::new(parameters.qp),
            psn: U32::new(parameters.psn),
            mtu: U16::new(parameters.mtu),
            reads_served: parameters.reads_served,
            transport,
            message_bytes: U32::new(parameters.message_bytes),
            datagrams: U32::new(self.at.qp),
            gid: self.at.gid,
            lid: U16::new(self.at.lid),
            left,
            reserved: 0,
            srq: U32::new(xrc.srqs.whole),
            through: U32::new(xrc.through),
            target: U32::new(xrc.target),
            nonce: self.nonce,
            answers,
            mac: [0; MAC_BYTES],
        });
        let mut message = Message::new();
        // As long as they may be together.
        let _ = message.extend_from_slice(&front);
        if names_queues {
            let list = xrc.srqs.smaller.map(|it| SrqLayout { number: it.number.into(), bytes: it.bytes.into() });
            let _ = message.extend_from_slice(list.as_bytes());
        }
        message
    }
}

impl SetupLayout {
    /// Its XRC parameters, some of them behind the MAC: with RC, none.
    fn xrc(&self, behind: &[u8]) -> Result<Option<XrcParameters>, WireError> {
        let length = WireError { field: "setup.bytes", value: (SETUP_BYTES + behind.len()) as u64 };
        let list = match behind {
            [] => [SrqLayout::default(); SMALLER_MAX],
            behind => *<[SrqLayout; SMALLER_MAX]>::ref_from_bytes(behind).map_err(|_| length)?,
        };
        let smaller = list.map(|it| Srq { number: it.number.get(), bytes: it.bytes.get() });
        let srqs = Srqs { whole: self.srq.get(), smaller };
        let found = XrcParameters { srqs, through: self.through.get(), target: self.target.get() };
        let is_xrc = self.transport == 1;
        ensure("setup.transport", is_xrc && self.kind != 4 || self.transport == 0, self.transport.into())?;
        let carries = |kinds: &[u8]| is_xrc && kinds.contains(&self.kind);
        // V-2, V-14
        let srq = srqs.whole;
        ensure("setup.srq", srq >> NUMBER_BITS == 0 && (carries(&[1, 2]) || srq == 0), srq.into())?;
        if behind.is_empty() == carries(&[1, 2]) {
            return Err(length);
        }
        srqs.checked(self.message_bytes.get())?;
        let through = found.through;
        ensure("setup.through", through >> NUMBER_BITS == 0 && (carries(&[1, 2]) || through == 0), through.into())?;
        let has_target = found.target != 0;
        let fits = found.target >> NUMBER_BITS == 0 && has_target == carries(&[2, 3]);
        ensure("setup.target", fits, found.target.into())?;
        Ok(is_xrc.then_some(found))
    }
}

impl Srqs {
    /// V-17: smaller than the longest message, ascending, and zeros behind the last.
    fn checked(&self, message_bytes: u32) -> Result<(), WireError> {
        let mut before = Srq::NONE;
        for (place, &srq) in self.smaller.iter().enumerate() {
            let follows = place == 0 || before != Srq::NONE;
            let fits = srq.number >> NUMBER_BITS == 0 && (before.bytes + 1..message_bytes).contains(&srq.bytes);
            ensure("setup.smaller", srq == Srq::NONE || follows && fits, srq.bytes.into())?;
            before = srq;
        }
        Ok(())
    }
}

impl SetupParameters {
    fn checked(self) -> Result<Self, WireError> {
        ensure("setup.qp", self.qp >> NUMBER_BITS == 0 && self.qp != 0, self.qp.into())?;
        ensure("setup.psn", self.psn >> NUMBER_BITS == 0, self.psn.into())?;
        ensure("setup.mtu", matches!(self.mtu, 256 | 512 | 1024 | 2048 | 4096), self.mtu.into())?;
        Ok(self)
    }
}

impl Reason {
    fn from_code(code: u8) -> Result<Self, WireError> {
        let error = WireError { field: "setup.reason", value: code.into() };
        Self::try_read_from_bytes(&[code]).map_err(|_| error)
    }
}

fn ensure(field: &'static str, holds: bool, value: u64) -> Result<(), WireError> {
    if holds { Ok(()) } else { Err(WireError { field, value }) }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
