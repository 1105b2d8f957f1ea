//! The handshake of a stream between two processes (TCP and shared-memory rails): four messages of fixed
//! size, before anything else is parsed.
//!
//! ```text
//! dialler                         acceptor
//!   opening = Hello + Noise 1 ------->       dialler's identity, peer's identity, number of the dial
//!          <----------------  answer = Noise 2
//!   proof = Noise 3 ----------------->
//!          <----------------  ruling         a Verdict, encrypted: accepted, crossing or refused
//! ```
//!
//! The Hello is readable by anyone, and is the prologue of a Noise handshake (`XXpsk0`, Noise revision 34):
//! both sides have proved at its end that they hold the job's secret, and each its own private key, over this
//! Hello. Nothing here computes any of that: the caller does. A successful parse means that a message is well
//! formed, never that it is genuine.
//!
//! Invariants: little-endian; a fixed size per message; reserved bytes are zero; `emit(parse(b)) == b` for
//! all accepted `b`. Rules: `conformance/PROTOCOL.md`, H-1 to H-6, H-10.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use super::common::{ensure, ensure_zero};
use super::repr::{VERSION, WireError, coded};

/// The first four bytes of a [`Hello`], read as a little-endian number: `RERL`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"RERL");
/// Bytes of a [`Hello`] on the wire.
pub const HELLO_BYTES: usize = 32;
/// Bytes of a [`Verdict`], readable.
pub const VERDICT_BYTES: usize = 8;

/// The Noise protocol (H-3). The job's secret enters first, so a dialler without it is refused for the price
/// of a hash, before any key is computed.
pub const NOISE: &str = "Noise_XXpsk0_25519_ChaChaPoly_BLAKE2s";
/// Bytes of a public key.
pub const KEY_BYTES: usize = 32;
/// Bytes that encryption adds.
const TAG_BYTES: usize = 16;
/// Bytes of the dialler's first message: the Hello, a public key of this handshake, a tag.
pub const OPENING_BYTES: usize = HELLO_BYTES + KEY_BYTES + TAG_BYTES;
/// Bytes of the acceptor's answer: a public key of this handshake, its own public key, encrypted, and a tag.
pub const ANSWER_BYTES: usize = KEY_BYTES + (KEY_BYTES + TAG_BYTES) + TAG_BYTES;
/// Bytes of a process's name.
pub const NAME_BYTES: usize = 64;
/// Bytes of the dialler's proof: its own public key and its name, both encrypted, each with a tag.
pub const PROOF_BYTES: usize = (KEY_BYTES + TAG_BYTES) + (NAME_BYTES + TAG_BYTES);
/// Bytes of the acceptor's ruling: a [`Verdict`], encrypted.
pub const RULING_BYTES: usize = VERDICT_BYTES + TAG_BYTES;

coded! {
    /// What sort of stream the handshake opens; keeps a handshake of one sort from being passed off as the
    /// other's.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Transport in "hello.transport" {
        /// A TCP connection that becomes a subchannel.
        #[default]
        Tcp = 1,
        /// A local socket over which a shared-memory segment is passed.
        Shm = 2,
    }
}

/// The dialler's first message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// What the stream is for.
    pub transport: Transport,
    /// The dialler's index among its rails of this sort.
    pub rail: u8,
    /// The job that both must belong to.
    pub job: u64,
    /// Number of the dialler: its rank, or a part of its fingerprint (rule H-9).
    pub from: u32,
    /// That of the process that it connects to.
    pub to: u32,
    /// The dialler's number of this dial. Its rail numbers its dials upwards from 1 (rule H-10).
    pub attempt: u32,
    /// The newest dial of the acceptor's that the dialler has accepted; 0: none.
    pub answers: u32,
}

/// The acceptor's last word. Packets follow an accepted handshake only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The stream is open: the next byte in either direction is the first of a packet.
    Accepted,
    /// Both sides dialled at once and this stream lost (rule H-8): use the other one. Not a failure.
    Crossing,
    /// The stream is closed.
    Refused(RefusedBecause),
}

coded! {
    /// Why an acceptor refused.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RefusedBecause in "verdict.reason" {
        /// The dialler did not prove that it is the process that it claims to be.
        Proof = 1,
        /// The dialler belongs to another job.
        Job = 2,
        /// The dialler's rank is not expected, or it dialled another rank than the acceptor's.
        Rank = 3,
        /// No such rail, or the stream is for another sort of rail.
        Rail = 4,
        /// The dial is not newer than the last one that the acceptor has of the dialler.
        Old = 5,
        /// The acceptor has no room now.
        Full = 6,
        /// The acceptor is leaving.
        Closing = 7,
        /// The acceptor does not accept a process of the dialler's name (rule H-11).
        Unknown = 8,
    }
}

impl Hello {
    /// Reads a Hello. Errors: `hello.magic`, `hello.version`, `hello.transport`, `hello.reserved`,
    /// `hello.attempt`.
    pub fn parse(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, WireError> {
        let layout: &HelloLayout = transmute_ref!(bytes);
        ensure("hello.magic", layout.magic.get() == MAGIC, layout.magic.get())?;
        ensure("hello.version", layout.version == VERSION, layout.version)?;
        let transport = Transport::from_code(layout.transport)?;
        ensure("hello.reserved", layout.reserved == 0, layout.reserved)?;
        ensure("hello.attempt", layout.attempt.get() != 0, layout.attempt.get())?;
        Ok(Hello {
            transport,
            rail: layout.rail,
            job: layout.job.get(),
            from: layout.from.get(),
            to: layout.to.get(),
            attempt: layout.attempt.get(),
            answers: layout.answers.get(),
        })
    }

    /// Writes it.
    pub fn emit(&self) -> [u8; HELLO_BYTES] {
        transmute!(HelloLayout {
            magic: U32::new(MAGIC),
            version: VERSION,
            transport: self.transport as u8,
            rail: self.rail,
            reserved: 0,
            job: U64::new(self.job),
            from: U32::new(self.from),
            to: U32::new(self.to),
            attempt: U32::new(self.attempt),
            answers: U32::new(self.answers),
        })
    }
}

impl Verdict {
    /// Reads a Verdict. Errors: `verdict.code`, `verdict.reason`, `verdict.reserved`.
    pub fn parse(bytes: &[u8; VERDICT_BYTES]) -> Result<Verdict, WireError> {
        let layout: &VerdictLayout = transmute_ref!(bytes);
        ensure_zero("verdict.reserved", &layout.reserved)?;
        let verdict = match layout.code {
            1 => Verdict::Accepted,
            2 => Verdict::Crossing,
            3 => Verdict::Refused(RefusedBecause::from_code(layout.reason)?),
            other => return Err(WireError { field: "verdict.code", value: u64::from(other) }),
        };
        ensure("verdict.reason", verdict.codes().1 == layout.reason, layout.reason)?;
        Ok(verdict)
    }

    /// Writes it.
    pub fn emit(&self) -> [u8; VERDICT_BYTES] {
        let (code, reason) = self.codes();
        transmute!(VerdictLayout { code, reason, reserved: [0; 6] })
    }

    const fn codes(self) -> (u8, u8) {
        match self {
            Verdict::Accepted => (1, 0),
            Verdict::Crossing => (2, 0),
            Verdict::Refused(why) => (3, why as u8),
        }
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HelloLayout {
    magic: U32,
    version: u8,
    transport: u8,
    rail: u8,
    reserved: u8,
    job: U64,
    from: U32,
    to: U32,
    attempt: U32,
    answers: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct VerdictLayout {
    code: u8,
    reason: u8,
    reserved: [u8; 6],
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            transport: Transport::Shm,
            rail: 2,
            job: 0x1122_3344_5566_7788,
            from: 7,
            to: 0x0102_0304,
            attempt: 0x0A0B_0C0D,
            answers: 6,
        }
    }

    // H-2: offsets as in the field map.
    #[test]
    fn hello_matches_its_golden_bytes() {
        let bytes = hello().emit();
        assert_eq!(bytes[..8], [b'R', b'E', b'R', b'L', 1, 2, 2, 0]);
        assert_eq!(bytes[8..16], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!(bytes[16..24], [7, 0, 0, 0, 4, 3, 2, 1]);
        assert_eq!(bytes[24..32], [0x0D, 0x0C, 0x0B, 0x0A, 6, 0, 0, 0]);
        assert_eq!(Hello::parse(&bytes), Ok(hello()));
    }

    // H-6
    #[test]
    fn handshake_verdict_matches_its_golden_bytes() {
        assert_eq!(Verdict::Accepted.emit(), [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Verdict::Crossing.emit(), [2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Verdict::Refused(RefusedBecause::Closing).emit(), [3, 7, 0, 0, 0, 0, 0, 0]);
    }

    // H-6: of all codes and reasons, exactly ten pairs are verdicts, and each is distinct.
    #[test]
    fn every_code_and_reason() {
        let mut accepted = 0;
        for code in 0..=255 {
            for reason in 0..=255 {
                let bytes = [code, reason, 0, 0, 0, 0, 0, 0];
                if let Ok(verdict) = Verdict::parse(&bytes) {
                    assert_eq!(verdict.emit(), bytes);
                    accepted += 1;
                }
            }
        }
        assert_eq!(accepted, 10);
    }

    // H-1
    #[test]
    fn errors_name_the_field() {
        let damaged = |at: usize, value: u8| {
            let mut bytes = hello().emit();
            bytes[at] = value;
            Hello::parse(&bytes)
        };
        assert_eq!(damaged(0, 0), Err(WireError { field: "hello.magic", value: 0x4C52_4500 }));
        assert_eq!(damaged(4, 2), Err(WireError { field: "hello.version", value: 2 }));
        assert_eq!(damaged(5, 3), Err(WireError { field: "hello.transport", value: 3 }));
        assert_eq!(damaged(7, 1), Err(WireError { field: "hello.reserved", value: 1 }));
        let unnumbered = Hello { attempt: 0, ..hello() }.emit();
        assert_eq!(Hello::parse(&unnumbered), Err(WireError { field: "hello.attempt", value: 0 }));
        let refused = |bytes| Verdict::parse(&bytes).map_err(|error| (error.field, error.value));
        assert_eq!(refused([1, 1, 0, 0, 0, 0, 0, 0]), Err(("verdict.reason", 1)));
        assert_eq!(refused([3, 0, 0, 0, 0, 0, 0, 0]), Err(("verdict.reason", 0)));
        assert_eq!(refused([1, 0, 0, 0, 0, 0, 0, 4]), Err(("verdict.reserved", 4 << 40)));
    }
}
