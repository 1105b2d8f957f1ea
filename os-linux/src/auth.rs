//! Proof that a connecting process belongs to the job, before its other data is read.
//!
//! Both sides hold the [`JobKey`] from the launcher and prove it to each other without sending it (design,
//! 5):
//!
//! ```text
//! dialler                                     acceptor
//!   Hello { who, whom, job, rail, nonce_d }  ->
//!                                            <-  Challenge { nonce_a, HMAC(key, label 1 | Hello | nonce_a) }
//!   Proof { HMAC(key, label 2 | Hello | Challenge) }  ->
//!                                            <-  Verdict { accepted, crossing, ... }
//! ```
//!
//! Invariants: the nonces of both sides enter both MACs, so recorded messages are worthless later; each role
//! has its own label, so a MAC sent back to its maker proves nothing; the whole Hello enters them, so no byte
//! of it can be changed on the way. MACs are compared in constant time. Nothing here does I/O, draws random
//! numbers or reads a clock: the caller moves the bytes, gives fresh nonces and sets the deadline.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use rerail_core::ids::PeerId;
use rerail_core::wire::WireError;
use rerail_core::wire::handshake::{
    CHALLENGE_BYTES, Challenge, HELLO_BYTES, Hello, MAC_BYTES, NONCE_BYTES, PROOF_BYTES, Proof, RefusedBecause,
    Transport, VERDICT_BYTES, Verdict, challenge_transcript, proof_transcript,
};
use sha2::Sha256;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A number that is used once: from the system's random source, never twice.
pub type Nonce = [u8; NONCE_BYTES];

/// The longest message of a handshake in bytes.
pub const MESSAGE_BYTES_MAX: usize = CHALLENGE_BYTES;
const _: () = assert!(HELLO_BYTES <= MESSAGE_BYTES_MAX && PROOF_BYTES <= MESSAGE_BYTES_MAX);
const _: () = assert!(VERDICT_BYTES <= MESSAGE_BYTES_MAX);

/// The secret that all processes of a job share. Printing it shows nothing; it is wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct JobKey([u8; 32]);

impl JobKey {
    /// A key from the launcher's 32 bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        JobKey(bytes)
    }

    fn mac(&self, transcript: [&[u8]; 3]) -> Hmac<Sha256> {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { unreachable!("HMAC takes any key length") };
        // A label of known text, then parts of fixed size: the concatenation has one reading only.
        transcript.iter().for_each(|part| mac.update(part));
        mac
    }

    /// The MAC of a transcript: a label that no other transcript has, then parts of fixed size.
    pub(crate) fn sign(&self, transcript: [&[u8]; 3]) -> [u8; MAC_BYTES] {
        self.mac(transcript).finalize().into_bytes().into()
    }

    /// Compares in constant time (H-7).
    pub(crate) fn verify(&self, transcript: [&[u8]; 3], mac: &[u8; MAC_BYTES]) -> Result<(), AuthError> {
        self.mac(transcript).verify_slice(mac).map_err(|_| AuthError::Mac)
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(..)")
    }
}

/// The two ends of a dial and its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The sort of rail.
    pub transport: Transport,
    /// The job's number. Not secret; it keeps jobs on one host apart with a clear message.
    pub job: u64,
    /// The dialler.
    pub from: PeerId,
    /// The acceptor.
    pub to: PeerId,
    /// Which of the rails of this sort.
    pub rail: u8,
    /// Which dial it is.
    pub attempts: Attempts,
}

/// The numbers of a dial among those of its pair of rails (H-10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// The dialler's number of it; not 0.
    pub attempt: u32,
    /// The newest dial of the acceptor's that the dialler has accepted; 0: none.
    pub answers: u32,
}

/// Why a handshake failed. All but [`Refused`](Self::Refused) mean that the other side did not prove that it
/// belongs to the job; that one is its word, which no MAC protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// The length differs from [`Dialler::expects`] or [`Acceptor::expects`].
    Length {
        /// Bytes given.
        given: usize,
        /// Bytes that the message has.
        expected: usize,
    },
    /// The bytes are no such message of this version.
    Wire(WireError),
    /// Another sort of rail.
    Transport {
        /// The dialler's transport.
        theirs: Transport,
    },
    /// Another job.
    Job {
        /// The number that the dialler named.
        theirs: u64,
    },
    /// The dialler addresses another rank than this process's.
    WrongRank {
        /// The rank that it named.
        wanted: PeerId,
    },
    /// The dialler claims to be this process.
    Own,
    /// The dialler addresses another rail of this sort.
    WrongRail {
        /// The rail that it named.
        wanted: u8,
    },
    /// The MAC is wrong: the other side does not have the key, or messages were changed, or recorded earlier.
    Mac,
    /// A message after the end of the handshake.
    Over,
    /// The acceptor refuses.
    Refused(RefusedBecause),
}

impl AuthError {
    /// Whether it is the acceptor's word, not a proof that failed.
    pub fn is_refusal(&self) -> bool {
        matches!(self, AuthError::Refused(_))
    }
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthError::Length { given, expected } => write!(f, "handshake message of {given} bytes, not {expected}"),
            AuthError::Wire(WireError { field, value }) => write!(f, "not a handshake message: {field} is {value:#x}"),
            AuthError::Transport { theirs } => write!(f, "the handshake is for another sort of rail: {theirs:?}"),
            AuthError::Job { theirs } => write!(f, "the dialler belongs to job {theirs:#x}"),
            AuthError::WrongRank { wanted } => write!(f, "the dialler wants rank {}", wanted.0),
            AuthError::Own => write!(f, "the dialler claims to be this process"),
            AuthError::WrongRail { wanted } => write!(f, "the dialler wants rail {wanted}"),
            AuthError::Mac => write!(f, "the other side did not prove that it knows the job's key"),
            AuthError::Over => write!(f, "a message after the end of the handshake"),
            AuthError::Refused(why) => write!(f, "the acceptor refused: {why:?}"),
        }
    }
}

impl std::error::Error for AuthError {}

/// A message to send, whole.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    bytes: [u8; MESSAGE_BYTES_MAX],
    len: usize,
}

impl Message {
    fn new(bytes: &[u8]) -> Self {
        let mut message = Message { bytes: [0; MESSAGE_BYTES_MAX], len: bytes.len() };
        message.bytes[..bytes.len()].copy_from_slice(bytes);
        message
    }

    /// The acceptor's last message: its decision.
    pub fn verdict(verdict: Verdict) -> Self {
        Message::new(&verdict.emit())
    }

    /// The bytes to send.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The result of a message.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Send this; `expects` gives the answer's length.
    Send(Message),
    /// The other side has proved that it belongs to the job. An acceptor now decides and sends a
    /// [`verdict`](Message::verdict); a dialler has read one: the connection is established.
    Authenticated {
        /// Its rank.
        peer: PeerId,
        /// Which rail of this sort.
        rail: u8,
        /// Which dial it is.
        attempts: Attempts,
    },
    /// Dialler: the acceptor has dialled too, and its connection is the one to [`keep`]. Close this one.
    Crossing,
}

/// Of two connections between processes that dialled each other at the same moment, both sides keep the one
/// that the lower rank dialled (H-8).
pub fn keep(dialled_by_me: bool, me: PeerId, peer: PeerId) -> bool {
    dialled_by_me == (me < peer)
}

/// The side that opens the connection.
#[derive(Debug)]
pub struct Dialler {
    key: JobKey,
    peer: PeerId,
    rail: u8,
    attempts: Attempts,
    hello: [u8; HELLO_BYTES],
    awaits: DiallerAwaits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiallerAwaits {
    Challenge,
    Verdict,
    Nothing,
}

impl Dialler {
    /// Starts a handshake with a fresh nonce; the message goes first.
    pub fn new(key: JobKey, call: Call, nonce: Nonce) -> (Self, Message) {
        let Call { transport, job, from, to, rail, attempts } = call;
        let Attempts { attempt, answers } = attempts;
        let hello = Hello { transport, rail, job, from: from.0, to: to.0, attempt, answers, nonce }.emit();
        (Dialler { key, peer: to, rail, attempts, hello, awaits: DiallerAwaits::Challenge }, Message::new(&hello))
    }

    /// Bytes of the message that must come next; 0 when the handshake is over.
    pub fn expects(&self) -> usize {
        match self.awaits {
            DiallerAwaits::Challenge => CHALLENGE_BYTES,
            DiallerAwaits::Verdict => VERDICT_BYTES,
            DiallerAwaits::Nothing => 0,
        }
    }

    /// Takes the acceptor's next message, whole. After an error or an outcome the handshake is over.
    pub fn handle(&mut self, message: &[u8]) -> Result<Step, AuthError> {
        match core::mem::replace(&mut self.awaits, DiallerAwaits::Nothing) {
            DiallerAwaits::Challenge => {
                let bytes = whole(message)?;
                let challenge = Challenge::parse(bytes).map_err(AuthError::Wire)?;
                self.key.verify(challenge_transcript(&self.hello, bytes), &challenge.mac)?; // H-4
                self.awaits = DiallerAwaits::Verdict;
                let mac = self.key.sign(proof_transcript(&self.hello, bytes));
                Ok(Step::Send(Message::new(&Proof { mac }.emit())))
            }
            DiallerAwaits::Verdict => match Verdict::parse(whole(message)?).map_err(AuthError::Wire)? {
                Verdict::Accepted => {
                    Ok(Step::Authenticated { peer: self.peer, rail: self.rail, attempts: self.attempts })
                }
                Verdict::Crossing => Ok(Step::Crossing),
                Verdict::Refused(why) => Err(AuthError::Refused(why)),
            },
            DiallerAwaits::Nothing => Err(AuthError::Over),
        }
    }
}

/// The dials that an acceptor accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// The sort of rail.
    pub transport: Transport,
    /// The job's number.
    pub job: u64,
    /// This process.
    pub me: PeerId,
    /// Which of the rails of this sort.
    pub rail: u8,
}

/// The side that is called.
#[derive(Debug)]
pub struct Acceptor {
    key: JobKey,
    station: Station,
    nonce: Nonce,
    awaits: AcceptorAwaits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AcceptorAwaits {
    Hello,
    Proof { peer: PeerId, attempts: Attempts, hello: [u8; HELLO_BYTES], challenge: [u8; CHALLENGE_BYTES] },
    Nothing,
}

impl Acceptor {
    /// Waits for the Hello of a process that calls this station; `nonce` is fresh.
    pub fn new(key: JobKey, station: Station, nonce: Nonce) -> Self {
        Acceptor { key, station, nonce, awaits: AcceptorAwaits::Hello }
    }

    /// Bytes of the message that must come next; 0 when the handshake is over.
    pub fn expects(&self) -> usize {
        match self.awaits {
            AcceptorAwaits::Hello => HELLO_BYTES,
            AcceptorAwaits::Proof { .. } => PROOF_BYTES,
            AcceptorAwaits::Nothing => 0,
        }
    }

    /// Takes the dialler's next message, whole. After an error or an outcome the handshake is over.
    pub fn handle(&mut self, message: &[u8]) -> Result<Step, AuthError> {
        match core::mem::replace(&mut self.awaits, AcceptorAwaits::Nothing) {
            AcceptorAwaits::Hello => {
                let bytes = whole(message)?;
                let hello = Hello::parse(bytes).map_err(AuthError::Wire)?;
                self.station.check(&hello)?;
                // The MAC covers the challenge up to its own place, so it is emitted twice.
                let unsigned = Challenge { nonce: self.nonce, mac: [0; MAC_BYTES] }.emit();
                let mac = self.key.sign(challenge_transcript(bytes, &unsigned));
                let challenge = Challenge { nonce: self.nonce, mac }.emit();
                let attempts = Attempts { attempt: hello.attempt, answers: hello.answers };
                self.awaits = AcceptorAwaits::Proof { peer: PeerId(hello.from), attempts, hello: *bytes, challenge };
                Ok(Step::Send(Message::new(&challenge)))
            }
            AcceptorAwaits::Proof { peer, attempts, hello, challenge } => {
                let proof = Proof::parse(whole(message)?);
                self.key.verify(proof_transcript(&hello, &challenge), &proof.mac)?; // H-5
                Ok(Step::Authenticated { peer, rail: self.station.rail, attempts })
            }
            AcceptorAwaits::Nothing => Err(AuthError::Over),
        }
    }
}

impl Station {
    /// Before anything is signed: a challenge signed for another acceptor would let a relay impersonate that
    /// one.
    fn check(&self, hello: &Hello) -> Result<(), AuthError> {
        if hello.transport != self.transport {
            Err(AuthError::Transport { theirs: hello.transport })
        } else if hello.job != self.job {
            Err(AuthError::Job { theirs: hello.job })
        } else if hello.to != self.me.0 {
            Err(AuthError::WrongRank { wanted: PeerId(hello.to) })
        } else if hello.from == self.me.0 {
            Err(AuthError::Own)
        } else if hello.rail != self.rail {
            Err(AuthError::WrongRail { wanted: hello.rail })
        } else {
            Ok(())
        }
    }
}

fn whole<const N: usize>(message: &[u8]) -> Result<&[u8; N], AuthError> {
    message.try_into().map_err(|_| AuthError::Length { given: message.len(), expected: N }) // H-1
}

#[cfg(test)]
mod tests;
