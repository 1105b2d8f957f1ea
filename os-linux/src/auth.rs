//! Proof that a connecting process is the one that it claims to be, before its other data is read.
//!
//! Each process has a key pair ([`Credentials`]); peers learn its [`Fingerprint`] with its address record or
//! name. All processes of a job hold the job's secret, too, which keeps everyone else out for the price of a
//! hash. The handshake is Noise (`snow`), with the call as its prologue:
//!
//! ```text
//! dialler                                     acceptor
//!   Hello { from, to, job, rail, attempt }, e  ->
//!                                            <-  e, its public key
//!   its public key, its name                 ->
//!                                            <-  Verdict { accepted, crossing, ... }, encrypted
//! ```
//!
//! Invariants: the ephemeral keys of both sides enter all that follows, so recorded messages are worthless
//! later; the whole Hello enters, so no byte of it can be changed on the way; a member of the job can act
//! for itself only, since the acceptor compares the dialler's key with the fingerprint of the peer that the
//! Hello names, and the dialler the acceptor's with that of the peer it dials. Processes that have each
//! other's [names](Credentials::by_name) need no secret of a job: a process that has the acceptor's name can
//! call it. Nothing here does I/O, draws
//! random numbers or reads a clock: the caller moves the bytes, gives fresh random bytes and sets the
//! deadline.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use rerail_core::ids::PeerId;
use rerail_core::wire::WireError;
use rerail_core::wire::handshake::{
    ANSWER_BYTES, HELLO_BYTES, Hello, KEY_BYTES, NAME_BYTES, NOISE, OPENING_BYTES, PROOF_BYTES, RULING_BYTES,
    RefusedBecause, Transport, VERDICT_BYTES, Verdict,
};
use sha2::{Digest, Sha256};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState, TransportState};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Random bytes that are used once: from the system's random source.
pub type Fresh = [u8; 32];

/// The longest message of a handshake in bytes.
pub const MESSAGE_BYTES_MAX: usize = PROOF_BYTES;
const _: () = assert!(OPENING_BYTES <= MESSAGE_BYTES_MAX && ANSWER_BYTES <= MESSAGE_BYTES_MAX);
const _: () = assert!(RULING_BYTES <= MESSAGE_BYTES_MAX);

/// Bytes of a MAC (HMAC-SHA256).
pub(crate) const MAC_BYTES: usize = 32;

/// Bytes of a fingerprint.
pub const FINGERPRINT_BYTES: usize = 16;

/// Starts the transcript of which a fingerprint is the hash.
const FINGERPRINT_LABEL: &[u8] = b"rerail key 1";

/// Starts the transcript of which the secret of those who have a name is the MAC.
const NAME_LABEL: &[u8] = b"rerail name 1";

/// Starts the transcript of which the secret of two processes is the MAC.
const PAIR_LABEL: &[u8] = b"rerail pair 1";

/// A process's public key. Not secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PublicKey(pub [u8; KEY_BYTES]);

impl PublicKey {
    /// What names contain instead of the key, for which they are too short.
    pub fn fingerprint(&self) -> Fingerprint {
        let digest = Sha256::new().chain_update(FINGERPRINT_LABEL).chain_update(self.0).finalize();
        let mut bytes = [0; FINGERPRINT_BYTES];
        bytes.copy_from_slice(&digest[..FINGERPRINT_BYTES]);
        Fingerprint(bytes)
    }
}

/// The first bytes of a public key's hash. Not secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; FINGERPRINT_BYTES]);

impl Fingerprint {
    /// What stands for the process in place of a rank, where processes number each other themselves (H-9).
    pub fn number(&self) -> PeerId {
        let number = u32::from_le_bytes(*self.0.first_chunk().expect("four of sixteen bytes"));
        // The last one stands for none (S-11).
        PeerId(number.min(u32::MAX - 1))
    }
}

/// What is known of a peer's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKey {
    /// From its address record.
    Whole(PublicKey),
    /// From its name: enough for rails whose handshake brings the key.
    Fingerprint(Fingerprint),
}

impl PeerKey {
    /// Its fingerprint.
    pub fn fingerprint(&self) -> Fingerprint {
        match self {
            PeerKey::Whole(key) => key.fingerprint(),
            PeerKey::Fingerprint(fingerprint) => *fingerprint,
        }
    }
}

/// A secret of a job, of two processes or of one. Printing it shows nothing; it is wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret([u8; 32]);

impl Secret {
    /// From 32 bytes that can't be guessed.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Secret(bytes)
    }

    /// The MAC of a transcript: a label that no other transcript has, then parts of fixed size.
    pub(crate) fn sign(&self, transcript: [&[u8]; 3]) -> [u8; MAC_BYTES] {
        keyed(&self.0, &transcript).finalize().into_bytes().into()
    }

    /// Compares in constant time (H-7).
    pub(crate) fn verify(&self, transcript: [&[u8]; 3], mac: &[u8; MAC_BYTES]) -> Result<(), AuthError> {
        keyed(&self.0, &transcript).verify_slice(mac).map_err(|_| AuthError::Proof)
    }
}

/// An unfinished MAC over parts: a label of known text, then parts of fixed size, or one of any size at the
/// end, so that the concatenation has one reading only.
pub(crate) fn keyed(key: &[u8; 32], parts: &[&[u8]]) -> Hmac<Sha256> {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { unreachable!("HMAC takes any key length") };
    parts.iter().for_each(|part| mac.update(part));
    mac
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// This process: its key pair, and the job's secret. Printing it shows neither; both are wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Credentials {
    private: [u8; KEY_BYTES],
    job: Secret,
    #[zeroize(skip)]
    public: PublicKey,
    /// The process's name, where there is no job.
    #[zeroize(skip)]
    name: Option<[u8; NAME_BYTES]>,
}

impl Credentials {
    /// With a private key from the system's random source.
    pub fn new(private: [u8; KEY_BYTES], job: Secret) -> Self {
        let mut pair = curve();
        pair.set(&private);
        let mut public = [0; KEY_BYTES];
        public.copy_from_slice(pair.pubkey());
        Credentials { private, job, public: PublicKey(public), name: None }
    }

    /// The same process in a job whose secret was not known before.
    pub fn in_job(&self, job: Secret) -> Self {
        Credentials { job, name: None, ..self.clone() }
    }

    /// The same process in no job: its secret is for those who have its name, and `secret` if there is one.
    pub fn by_name(&self, name: [u8; NAME_BYTES], secret: Secret) -> Self {
        Credentials { job: secret, name: Some(name), ..self.clone() }
    }

    /// Whether the process is known by its name, not by its rank in a job.
    pub fn is_named(&self) -> bool {
        self.name.is_some()
    }

    /// What a call names as its dialler and its acceptor: their ranks, or parts of their fingerprints (H-9).
    pub fn numbers(&self, ranks: (PeerId, PeerId), theirs: &Fingerprint) -> (PeerId, PeerId) {
        match self.name {
            Some(_) => (self.number(ranks.0), theirs.number()),
            None => ranks,
        }
    }

    /// What a call names as this process (H-9).
    pub fn number(&self, rank: PeerId) -> PeerId {
        if self.is_named() { self.public.fingerprint().number() } else { rank }
    }

    /// The key by which peers authenticate this process.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The job's secret.
    pub fn job(&self) -> &Secret {
        &self.job
    }

    /// The secret of this process and the one that holds the private key to `theirs`: no other process of the
    /// job can compute it (V-3).
    pub fn pair(&self, theirs: &PublicKey) -> Secret {
        let mut curve = curve();
        curve.set(&self.private);
        let mut shared = [0; KEY_BYTES];
        // A key of low order gives zeros: a process that publishes one has no secrets.
        let _ = curve.dh(&theirs.0, &mut shared);
        let (lower, upper) = (self.public.0.min(theirs.0), self.public.0.max(theirs.0));
        let secret = keyed(&self.job.0, &[PAIR_LABEL, &shared, &lower, &upper]).finalize().into_bytes();
        shared.zeroize();
        Secret(secret.into())
    }

    /// The secret of a call to `acceptor` (H-3).
    fn secret(&self, acceptor: &Fingerprint) -> Secret {
        match self.name {
            Some(_) => Secret(self.job.sign([NAME_LABEL, &acceptor.0, &[]])),
            None => self.job.clone(),
        }
    }

    /// `acceptor`: the one that is called; this process where it does not initiate.
    fn noise(&self, hello: &[u8; HELLO_BYTES], fresh: Fresh, acceptor: Option<&Fingerprint>) -> Box<HandshakeState> {
        let secret = self.secret(acceptor.unwrap_or(&self.public.fingerprint()));
        let parts = || {
            let builder = Builder::with_resolver(NOISE.parse()?, Box::new(Primitives { fresh }))
                .prologue(hello)?
                .local_private_key(&self.private)?
                .psk(0, &secret.0)?;
            if acceptor.is_some() { builder.build_initiator() } else { builder.build_responder() }
        };
        // Nothing of it depends on anyone's input.
        Box::new(parts().unwrap_or_else(|error: snow::Error| unreachable!("a sound protocol and keys: {error}")))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("public", &self.public).finish_non_exhaustive()
    }
}

fn curve() -> Box<dyn Dh> {
    let curve = DefaultResolver.resolve_dh(&DHChoice::Curve25519);
    curve.unwrap_or_else(|| unreachable!("the crate's feature for it is enabled"))
}

/// What Noise is made of: snow's, but for the random bytes, of which a handshake needs those of one key.
struct Primitives {
    fresh: Fresh,
}

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.fresh))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// Random bytes for one key.
struct Once(Option<Fresh>);

impl Random for Once {
    fn try_fill_bytes(&mut self, into: &mut [u8]) -> Result<(), snow::Error> {
        match self.0.take() {
            Some(mut fresh) if into.len() == fresh.len() => {
                into.copy_from_slice(&fresh);
                fresh.zeroize();
                Ok(())
            }
            _ => Err(snow::Error::Rng),
        }
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

/// Why a handshake failed. All but [`Refused`](Self::Refused) mean that the other side did not prove its
/// identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The length differs from [`Dialler::expects`] or [`Acceptor::expects`].
    #[error("handshake message of {given} bytes, not {expected}")]
    Length {
        /// Bytes given.
        given: usize,
        /// Bytes that the message has.
        expected: usize,
    },
    /// The bytes are no such message of this version.
    #[error("not a handshake message: {} is {:#x}", .0.field, .0.value)]
    Wire(WireError),
    /// Another sort of rail.
    #[error("the handshake is for another sort of rail: {theirs:?}")]
    Transport {
        /// The dialler's transport.
        theirs: Transport,
    },
    /// Another job.
    #[error("the dialler belongs to job {theirs:#x}")]
    Job {
        /// The number that the dialler named.
        theirs: u64,
    },
    /// The dialler addresses another rank than this process's.
    #[error("the dialler addresses rank {}", .addressed.0)]
    WrongRank {
        /// The rank that it named.
        addressed: PeerId,
    },
    /// The dialler claims to be this process.
    #[error("the dialler claims to be this process")]
    Own,
    /// The dialler addresses another rail of this sort.
    #[error("the dialler addresses rail {addressed}")]
    WrongRail {
        /// The rail that it named.
        addressed: u8,
    },
    /// The other side does not hold the job's secret or the private key, or messages were changed, or
    /// recorded earlier.
    #[error("the other side did not prove that it belongs to the job")]
    Proof,
    /// The acceptor is another process than the one dialled.
    #[error("another process listens at the peer's address: its key is {:02x?}", .found.0)]
    Impostor {
        /// Its fingerprint.
        found: Fingerprint,
    },
    /// The dialler is no peer, and not accepted as one (H-11).
    #[error("a process of an unknown name has called: its key is {:02x?}", .found.0)]
    Unknown {
        /// Its fingerprint.
        found: Fingerprint,
    },
    /// The acceptor did not take this process for a member of the job. Nothing proves that it was the peer
    /// that refused.
    #[error("the acceptor takes this process for no member of its job: {0:?}")]
    Rejected(RefusedBecause),
    /// A message after the end of the handshake.
    #[error("a message after the end of the handshake")]
    Over,
    /// The acceptor refuses.
    #[error("the acceptor refused: {0:?}")]
    Refused(RefusedBecause),
}

impl AuthError {
    /// Whether it is the acceptor's word, not a proof that failed.
    pub fn is_refusal(&self) -> bool {
        matches!(self, AuthError::Refused(_))
    }

    /// What an acceptor answers before it closes, readable by anyone (H-6): enough to find a wrong setting,
    /// too little to find a key. `None`: nothing.
    pub fn refusal(&self) -> Option<Message> {
        let because = match self {
            AuthError::Proof => RefusedBecause::Proof,
            AuthError::Job { .. } => RefusedBecause::Job,
            AuthError::WrongRank { .. } | AuthError::Own => RefusedBecause::Rank,
            AuthError::WrongRail { .. } | AuthError::Transport { .. } => RefusedBecause::Rail,
            _ => return None,
        };
        Some(Message::new(&Verdict::Refused(because).emit()))
    }
}

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

    /// The next message of Noise with `payload`, behind `front`.
    fn noise(front: &[u8], payload: &[u8], noise: &mut HandshakeState) -> Result<Self, AuthError> {
        let mut message = Message::new(front);
        let written = noise.write_message(payload, &mut message.bytes[front.len()..]);
        message.len += written.map_err(|_| AuthError::Proof)?;
        Ok(message)
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
    /// The other side holds the job's secret and the private key to `key`. A dialler has compared that, and
    /// read the verdict: the connection is established. An acceptor compares `key` with the key that it has
    /// of `peer`, decides, and sends a [`ruling`](Acceptor::ruling).
    Authenticated {
        /// The dialler's claim, until the key is compared.
        peer: PeerId,
        /// Its fingerprint.
        key: Fingerprint,
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
pub struct Dialler {
    noise: Noise,
    name: [u8; NAME_BYTES],
    peer: PeerId,
    key: Fingerprint,
    rail: u8,
    attempts: Attempts,
}

/// Which message comes next.
enum Noise {
    /// Acceptor: the opening.
    Opening(Credentials, Fresh),
    /// Dialler: the answer. Acceptor: the proof.
    Handshake(Box<HandshakeState>),
    /// Dialler: the ruling. Acceptor: none, it decides.
    Transport(Box<TransportState>),
    Over,
}

impl Noise {
    fn take(&mut self) -> Noise {
        core::mem::replace(self, Noise::Over)
    }
}

impl Dialler {
    /// Starts a handshake with the process of this fingerprint; the message goes first.
    pub fn new(credentials: &Credentials, call: Call, key: Fingerprint, fresh: Fresh) -> (Self, Message) {
        let Call { transport, job, from, to, rail, attempts } = call;
        let Attempts { attempt, answers } = attempts;
        let hello = Hello { transport, rail, job, from: from.0, to: to.0, attempt, answers }.emit();
        let mut noise = credentials.noise(&hello, fresh, Some(&key));
        let Ok(opening) = Message::noise(&hello, &[], &mut noise) else { unreachable!("the first message has room") };
        let name = credentials.name.unwrap_or([0; NAME_BYTES]);
        (Dialler { noise: Noise::Handshake(noise), name, peer: to, key, rail, attempts }, opening)
    }

    /// Bytes of the message that must come next; 0 when the handshake is over.
    pub fn expects(&self) -> usize {
        match self.noise {
            Noise::Handshake(_) => ANSWER_BYTES,
            Noise::Transport(_) => RULING_BYTES,
            Noise::Opening(..) | Noise::Over => 0,
        }
    }

    /// The meaning of a short message in place of the answer: of [`AuthError::refusal`]. `None`: it is none.
    pub fn rejected(message: &[u8]) -> Option<AuthError> {
        match Verdict::parse(message.try_into().ok()?) {
            Ok(Verdict::Refused(why)) => Some(AuthError::Rejected(why)),
            _ => None,
        }
    }

    /// Takes the acceptor's next message, whole. After an error or an outcome the handshake is over.
    pub fn handle(&mut self, message: &[u8]) -> Result<Step, AuthError> {
        match self.noise.take() {
            Noise::Handshake(mut noise) => {
                if let Some(rejected) = Self::rejected(message) {
                    return Err(rejected);
                }
                let found = read_key(&mut noise, whole::<ANSWER_BYTES>(message)?, &mut [])?; // H-4
                if found != self.key {
                    return Err(AuthError::Impostor { found });
                }
                let proof = Message::noise(&[], &self.name, &mut noise)?; // H-5
                self.noise = transport(*noise)?;
                Ok(Step::Send(proof))
            }
            Noise::Transport(mut noise) => {
                let mut verdict = [0; VERDICT_BYTES];
                let read = noise.read_message(whole::<RULING_BYTES>(message)?, &mut verdict);
                read.map_err(|_| AuthError::Proof)?; // H-6
                match Verdict::parse(&verdict).map_err(AuthError::Wire)? {
                    Verdict::Accepted => {
                        let Dialler { peer, key, rail, attempts, .. } = *self;
                        Ok(Step::Authenticated { peer, key, rail, attempts })
                    }
                    Verdict::Crossing => Ok(Step::Crossing),
                    Verdict::Refused(why) => Err(AuthError::Refused(why)),
                }
            }
            Noise::Opening(..) | Noise::Over => Err(AuthError::Over),
        }
    }
}

impl fmt::Debug for Dialler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialler").field("peer", &self.peer).field("expects", &self.expects()).finish_non_exhaustive()
    }
}

/// The dials that an acceptor accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// The sort of rail.
    pub transport: Transport,
    /// The job's number.
    pub job: u64,
    /// This process, as calls name it.
    pub me: PeerId,
    /// Which of the rails of this sort.
    pub rail: u8,
}

/// The side that is called.
pub struct Acceptor {
    station: Station,
    noise: Noise,
    /// The dialler's claim.
    call: (PeerId, Attempts),
    /// What it sent as its name.
    name: [u8; NAME_BYTES],
}

impl Acceptor {
    /// Waits for the opening of a process that calls this station.
    pub fn new(credentials: Credentials, station: Station, fresh: Fresh) -> Self {
        let call = (station.me, Attempts { attempt: 0, answers: 0 });
        Acceptor { station, noise: Noise::Opening(credentials, fresh), call, name: [0; NAME_BYTES] }
    }

    /// The name that came with the proof, by which the dialler is to be addressed; zeros: none. The caller
    /// compares the key that it names.
    pub fn name(&self) -> &[u8; NAME_BYTES] {
        &self.name
    }

    /// Bytes of the message that must come next; 0 when the handshake is over.
    pub fn expects(&self) -> usize {
        match self.noise {
            Noise::Opening(..) => OPENING_BYTES,
            Noise::Handshake(_) => PROOF_BYTES,
            Noise::Transport(_) | Noise::Over => 0,
        }
    }

    /// Takes the dialler's next message, whole. After an error or an outcome the handshake is over.
    pub fn handle(&mut self, message: &[u8]) -> Result<Step, AuthError> {
        match self.noise.take() {
            Noise::Opening(credentials, fresh) => {
                let opening = whole::<OPENING_BYTES>(message)?;
                let Some((bytes, noised)) = opening.split_first_chunk() else { unreachable!("it is as long") };
                let hello = Hello::parse(bytes).map_err(AuthError::Wire)?;
                self.station.check(&hello)?;
                let mut noise = credentials.noise(bytes, fresh, None);
                noise.read_message(noised, &mut []).map_err(|_| AuthError::Proof)?; // H-3
                let answer = Message::noise(&[], &[], &mut noise)?;
                self.call = (PeerId(hello.from), Attempts { attempt: hello.attempt, answers: hello.answers });
                self.noise = Noise::Handshake(noise);
                Ok(Step::Send(answer))
            }
            Noise::Handshake(mut noise) => {
                let key = read_key(&mut noise, whole::<PROOF_BYTES>(message)?, &mut self.name)?; // H-5
                let (peer, attempts) = self.call;
                self.noise = transport(*noise)?;
                Ok(Step::Authenticated { peer, key, rail: self.station.rail, attempts })
            }
            Noise::Transport(_) | Noise::Over => Err(AuthError::Over),
        }
    }

    /// The last message of an acceptor to which the dialler has proved itself.
    ///
    /// # Errors
    /// [`AuthError::Over`] where it has not, or was answered already.
    pub fn ruling(&mut self, verdict: Verdict) -> Result<Message, AuthError> {
        let Noise::Transport(mut noise) = self.noise.take() else { return Err(AuthError::Over) };
        let mut message = Message::new(&[]);
        message.len = noise.write_message(&verdict.emit(), &mut message.bytes).map_err(|_| AuthError::Over)?;
        Ok(message)
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Acceptor { station, call, .. } = self;
        let mut shown = f.debug_struct("Acceptor");
        shown.field("station", station).field("call", call).field("expects", &self.expects()).finish_non_exhaustive()
    }
}

/// Reads a message of Noise that brings the other side's public key.
fn read_key(noise: &mut HandshakeState, message: &[u8], payload: &mut [u8]) -> Result<Fingerprint, AuthError> {
    noise.read_message(message, payload).map_err(|_| AuthError::Proof)?;
    let public = noise.get_remote_static().and_then(|key| key.first_chunk()).ok_or(AuthError::Proof)?;
    Ok(PublicKey(*public).fingerprint())
}

fn transport(noise: HandshakeState) -> Result<Noise, AuthError> {
    noise.into_transport_mode().map(|noise| Noise::Transport(Box::new(noise))).map_err(|_| AuthError::Proof)
}

impl Station {
    /// Before any key is computed.
    fn check(&self, hello: &Hello) -> Result<(), AuthError> {
        if hello.transport != self.transport {
            Err(AuthError::Transport { theirs: hello.transport })
        } else if hello.job != self.job {
            Err(AuthError::Job { theirs: hello.job })
        } else if hello.to != self.me.0 {
            Err(AuthError::WrongRank { addressed: PeerId(hello.to) })
        } else if hello.from == self.me.0 {
            Err(AuthError::Own)
        } else if hello.rail != self.rail {
            Err(AuthError::WrongRail { addressed: hello.rail })
        } else {
            Ok(())
        }
    }
}

fn whole<const N: usize>(message: &[u8]) -> Result<&[u8; N], AuthError> {
    message.try_into().map_err(|_| AuthError::Length { given: message.len(), expected: N }) // H-1
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
