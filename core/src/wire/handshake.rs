//! The handshake of a stream between two processes (TCP and shared-memory rails): four messages of fixed
//! size, before anything else is parsed.
//!
//! ```text
//! dialler                         acceptor
//!   Hello  ------------------------->        who I am, whom I want, which dial this is, my nonce
//!          <-------------------  Challenge   your nonce answered, my nonce, my MAC
//!   Proof  ------------------------->        my MAC
//!          <---------------------  Verdict   accepted, crossing or refused
//! ```
//!
//! Nothing here computes a MAC: the caller does, with HMAC-SHA256 over the transcripts that
//! [`challenge_transcript`] and [`proof_transcript`] name, and compares in constant time. Each side's MAC
//! covers both nonces, both ranks and a label of its own, so no MAC can be replayed, reflected, or carried to
//! another pair or rail. A successful parse means that a message is well formed, never that it is genuine.
//!
//! Invariants: little-endian; a fixed size per message; reserved bytes are zero; `emit(parse(b)) == b` for
//! all accepted `b`. Rules: `conformance/PROTOCOL.md`, H-1 to H-6, H-10.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use super::common::{ensure, ensure_zero};
use super::repr::{VERSION, WireError};

/// The first four bytes of a [`Hello`] and of a [`Challenge`], read as a little-endian number: `RERL`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"RERL");
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a MAC (HMAC-SHA256).
pub const MAC_BYTES: usize = 32;
/// Bytes of a [`Hello`] on the wire.
pub const HELLO_BYTES: usize = 64;
/// Bytes of a [`Challenge`] on the wire.
pub const CHALLENGE_BYTES: usize = 72;
/// Bytes of a [`Challenge`] that its MAC covers: all before the MAC.
pub const CHALLENGE_SIGNED_BYTES: usize = CHALLENGE_BYTES - MAC_BYTES;
/// Bytes of a [`Proof`] on the wire.
pub const PROOF_BYTES: usize = 32;
/// Bytes of a [`Verdict`] on the wire.
pub const VERDICT_BYTES: usize = 8;

/// Starts the transcript of a [`Challenge`]'s MAC.
pub const CHALLENGE_LABEL: &[u8] = b"rerail challenge 1";
/// Starts the transcript of a [`Proof`]'s MAC.
pub const PROOF_LABEL: &[u8] = b"rerail proof 1";

/// What sort of stream the handshake opens; keeps a handshake of one sort from being passed off as the
/// other's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Transport {
    /// A TCP connection that becomes a subchannel.
    #[default]
    Tcp = 1,
    /// A local socket over which a shared-memory segment is passed.
    Shm = 2,
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
    /// Rank of the dialler.
    pub from: u32,
    /// Rank that the dialler connects to.
    pub to: u32,
    /// The dialler's number of this dial. Its rail numbers its dials upwards from 1 (rule H-10).
    pub attempt: u32,
    /// The newest dial of the acceptor's that the dialler has accepted; 0: none.
    pub answers: u32,
    /// Fresh random bytes of the dialler.
    pub nonce: [u8; NONCE_BYTES],
}

/// The acceptor's answer to a [`Hello`]; its MAC proves to the dialler that the acceptor belongs to the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    /// Fresh random bytes of the acceptor.
    pub nonce: [u8; NONCE_BYTES],
    /// MAC over [`challenge_transcript`].
    pub mac: [u8; MAC_BYTES],
}

/// The dialler's answer to a [`Challenge`]; its MAC proves to the acceptor that the dialler belongs to the
/// job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// MAC over [`proof_transcript`].
    pub mac: [u8; MAC_BYTES],
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

/// Why an acceptor refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RefusedBecause {
    /// The MAC in the proof is wrong.
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
}

/// The bytes that the MAC in a [`Challenge`] covers, in this order: the label, the Hello as received, the
/// Challenge but for its MAC.
pub fn challenge_transcript<'a>(hello: &'a [u8; HELLO_BYTES], challenge: &'a [u8; CHALLENGE_BYTES]) -> [&'a [u8]; 3] {
    let (signed, _mac) = challenge.split_at(CHALLENGE_SIGNED_BYTES);
    [CHALLENGE_LABEL, hello, signed] // H-4
}

/// The bytes that the MAC in a [`Proof`] covers, in this order: the label, the Hello as sent, the whole
/// Challenge as received.
pub fn proof_transcript<'a>(hello: &'a [u8; HELLO_BYTES], challenge: &'a [u8; CHALLENGE_BYTES]) -> [&'a [u8]; 3] {
    [PROOF_LABEL, hello, challenge] // H-5
}

impl Hello {
    /// Reads a Hello. Errors: `hello.magic`, `hello.version`, `hello.transport`, `hello.reserved`,
    /// `hello.attempt`.
    pub fn parse(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, WireError> {
        let layout: &HelloLayout = transmute_ref!(bytes);
        ensure("hello.magic", layout.magic.get() == MAGIC, layout.magic.get())?;
        ensure("hello.version", layout.version == VERSION, layout.version)?;
        let transport = match layout.transport {
            1 => Transport::Tcp,
            2 => Transport::Shm,
            other => return Err(WireError { field: "hello.transport", value: u64::from(other) }),
        };
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
            nonce: layout.nonce,
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
            nonce: self.nonce,
        })
    }
}

impl Challenge {
    /// Reads a Challenge. Errors: `challenge.magic`, `challenge.version`, `challenge.reserved`.
    pub fn parse(bytes: &[u8; CHALLENGE_BYTES]) -> Result<Challenge, WireError> {
        let layout: &ChallengeLayout = transmute_ref!(bytes);
        ensure("challenge.magic", layout.magic.get() == MAGIC, layout.magic.get())?;
        ensure("challenge.version", layout.version == VERSION, layout.version)?;
        ensure_zero("challenge.reserved", &layout.reserved)?;
        Ok(Challenge { nonce: layout.nonce, mac: layout.mac })
    }

    /// Writes it. An acceptor emits with a zero MAC first, computes the MAC over [`challenge_transcript`] of
    /// that, and emits again.
    pub fn emit(&self) -> [u8; CHALLENGE_BYTES] {
        transmute!(ChallengeLayout {
            magic: U32::new(MAGIC),
            version: VERSION,
            reserved: [0; 3],
            nonce: self.nonce,
            mac: self.mac,
        })
    }
}

impl Proof {
    /// Reads a Proof; any bytes are one.
    pub const fn parse(bytes: &[u8; PROOF_BYTES]) -> Proof {
        Proof { mac: *bytes }
    }

    /// Writes it.
    pub const fn emit(&self) -> [u8; PROOF_BYTES] {
        self.mac
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

impl RefusedBecause {
    const fn from_code(code: u8) -> Result<Self, WireError> {
        Ok(match code {
            1 => Self::Proof,
            2 => Self::Job,
            3 => Self::Rank,
            4 => Self::Rail,
            5 => Self::Old,
            6 => Self::Full,
            7 => Self::Closing,
            other => return Err(WireError { field: "verdict.reason", value: other as u64 }),
        })
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
    nonce: [u8; NONCE_BYTES],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ChallengeLayout {
    magic: U32,
    version: u8,
    reserved: [u8; 3],
    nonce: [u8; NONCE_BYTES],
    mac: [u8; MAC_BYTES],
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
        let nonce = core::array::from_fn(|i| 0xA0 + i as u8);
        Hello {
            transport: Transport::Shm,
            rail: 2,
            job: 0x1122_3344_5566_7788,
            from: 7,
            to: 0x0102_0304,
            attempt: 0x0A0B_0C0D,
            answers: 6,
            nonce,
        }
    }

    fn challenge() -> Challenge {
        Challenge { nonce: [0xC1; NONCE_BYTES], mac: [0x5A; MAC_BYTES] }
    }

    // H-2: offsets as in the field map.
    #[test]
    fn hello_stands_byte_for_byte() {
        let bytes = hello().emit();
        assert_eq!(bytes[..8], [b'R', b'E', b'R', b'L', 1, 2, 2, 0]);
        assert_eq!(bytes[8..16], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!(bytes[16..24], [7, 0, 0, 0, 4, 3, 2, 1]);
        assert_eq!(bytes[24..32], [0x0D, 0x0C, 0x0B, 0x0A, 6, 0, 0, 0]);
        assert_eq!((bytes[32], bytes[63]), (0xA0, 0xBF));
        assert_eq!(Hello::parse(&bytes), Ok(hello()));
    }

    // H-3, H-5, H-6
    #[test]
    fn the_answers_stand_byte_for_byte() {
        let bytes = challenge().emit();
        assert_eq!(bytes[..8], [b'R', b'E', b'R', b'L', 1, 0, 0, 0]);
        assert_eq!((bytes[8], bytes[39], bytes[40], bytes[71]), (0xC1, 0xC1, 0x5A, 0x5A));
        assert_eq!(Challenge::parse(&bytes), Ok(challenge()));
        assert_eq!(Proof { mac: [9; MAC_BYTES] }.emit(), [9; PROOF_BYTES]);
        assert_eq!(Proof::parse(&[9; PROOF_BYTES]), Proof { mac: [9; MAC_BYTES] });
        assert_eq!(Verdict::Accepted.emit(), [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Verdict::Crossing.emit(), [2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Verdict::Refused(RefusedBecause::Closing).emit(), [3, 7, 0, 0, 0, 0, 0, 0]);
    }

    // H-6: of all codes and reasons, exactly nine pairs are verdicts, and each is distinct.
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
        assert_eq!(accepted, 9);
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
        let mut bytes = challenge().emit();
        bytes[6] = 1;
        assert_eq!(Challenge::parse(&bytes), Err(WireError { field: "challenge.reserved", value: 0x100 }));
        let refused = |bytes| Verdict::parse(&bytes).map_err(|error| (error.field, error.value));
        assert_eq!(refused([1, 1, 0, 0, 0, 0, 0, 0]), Err(("verdict.reason", 1)));
        assert_eq!(refused([3, 0, 0, 0, 0, 0, 0, 0]), Err(("verdict.reason", 0)));
        assert_eq!(refused([1, 0, 0, 0, 0, 0, 0, 4]), Err(("verdict.reserved", 4 << 40)));
    }

    // H-4, H-5: every byte that both sides sent is signed, and the two labels keep the directions apart.
    #[test]
    fn transcripts_cover_all_that_was_said() {
        let (hello, challenge) = (hello().emit(), challenge().emit());
        let bytes = |parts: [&[u8]; 3]| parts.iter().map(|part| part.len()).sum::<usize>();
        let signed = challenge_transcript(&hello, &challenge);
        assert_eq!(bytes(signed), CHALLENGE_LABEL.len() + 64 + 40);
        assert_eq!(bytes(proof_transcript(&hello, &challenge)), PROOF_LABEL.len() + 64 + 72);
        assert!(!CHALLENGE_LABEL.starts_with(PROOF_LABEL) && !PROOF_LABEL.starts_with(CHALLENGE_LABEL));
    }
}
