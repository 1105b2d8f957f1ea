//! A pending connection: proof first, descriptors after.
//!
//! ```text
//! dialler                       acceptor
//!   opening, proof     ->
//!                      <-       answer, ruling              (`auth`)
//!   Share + memory     ->  <-   Share + memory              (each side: the ring from which it will receive)
//! ```
//!
//! Invariants: until the other side has proved itself, no descriptor of it gets into this process and nothing
//! of it is parsed but the handshake. Of a `Share`, sizes are checked against the kernel's word before
//! anything is mapped. Every datagram has one legal length; a longer one, or one with descriptors where none
//! are due, ends the connection.

use std::os::fd::{AsFd, OwnedFd};

use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_core::shm::{RingConfig, ring_bytes};
use rerail_core::time::Time;
use rerail_core::wire::handshake::{NAME_BYTES, RefusedBecause, Verdict};
use rustix::io::Errno;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::barrier;
use super::options::RING_BYTES_MAX;
use super::reach::{Denied, Reach, SEAL_BYTES, Seal};
use super::segment::{Inbound, Outbound, SegmentError};
use super::socket::{self, Received};
use crate::auth::{Acceptor, Attempts, AuthError, Dialler, Fingerprint, MESSAGE_BYTES_MAX, Message, Step};

/// Datagrams taken from one connection in one go.
const DATAGRAMS_MAX: usize = 4;

/// The message that carries the descriptor of a ring (L-9).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub(super) struct Share {
    magic: U32,
    version: U32,
    cells: U32,
    slots: U32,
    slot_bytes: U32,
    /// [`Share::BARRIER`].
    flags: U32,
    /// Address and value of this side's seal ([`Seal`]).
    seal_address: U64,
    seal: [u8; SEAL_BYTES],
}

impl Share {
    const MAGIC: u32 = u32::from_le_bytes(*b"rshm");
    const VERSION: u32 = 2;
    /// The process has registered for the barrier of the system, and can make it (L-13).
    const BARRIER: u32 = 1;

    pub(super) fn of(config: RingConfig, barrier: bool, seal: &Seal) -> Self {
        Share {
            magic: Self::MAGIC.into(),
            version: Self::VERSION.into(),
            cells: config.cells.into(),
            slots: config.slots.into(),
            slot_bytes: config.slot_bytes.into(),
            flags: if barrier { Self::BARRIER } else { 0 }.into(),
            seal_address: seal.address().into(),
            seal: seal.value(),
        }
    }

    /// The ring described, if the sizes are sane and its slots are as large as ours: then all of our packets
    /// fit, and all of the peer's fit into ours (L-10). How many cells and slots there are is each side's own
    /// affair.
    fn config(&self, ours: u32) -> Result<RingConfig, Failure> {
        let config = RingConfig { cells: self.cells.get(), slots: self.slots.get(), slot_bytes: self.slot_bytes.get() };
        let sane = self.magic.get() == Self::MAGIC
            && self.version.get() == Self::VERSION
            && self.flags.get() & !Self::BARRIER == 0
            && config.check().is_ok()
            && ring_bytes(config).is_some_and(|bytes| bytes <= RING_BYTES_MAX);
        match config.slot_bytes {
            _ if !sane => Err(Failure::Corrupt),
            theirs if theirs != ours => Err(Failure::SlotBytes { ours, theirs }),
            _ => Ok(config),
        }
    }
}

/// A pending connection.
#[derive(Debug)]
pub struct Opening {
    pub socket: OwnedFd,
    /// When it is given up.
    pub deadline: Time,
    /// The other side: the dialled peer, or the authenticated dialler.
    pub peer: Option<PeerId>,
    /// This process dialled.
    pub dialled: bool,
    /// The dialler has proved its key, is no peer, and waits for an answer (H-11).
    pub held: Option<Caller>,
    stage: Stage,
}

/// A dialler that has proved its key: its number, the key, and which dial it is.
pub type Caller = (PeerId, Fingerprint, Attempts);

#[derive(Debug)]
enum Stage {
    Dialling(Dialler),
    Accepting(Acceptor),
    /// Both sides are authenticated; our ring is sent, theirs is due. The flag is the barrier state that we
    /// announced, the seal the one that we named.
    Sharing(Box<Inbound>, bool, Seal),
    /// It went on or failed.
    Over,
}

/// The outcome of an [`Opening`].
#[derive(Debug)]
pub enum Progress {
    /// Nothing yet.
    Waiting,
    /// The dialler calls itself the peer, and has proved which key is its own: [`Opening::accept`] or
    /// [`Opening::refuse`].
    Proved(PeerId, Fingerprint, Attempts),
    /// Our dial crossed theirs, and theirs is the one to keep.
    Crossing,
    /// Both rings are there; the peer's memory is, as far as it can be read.
    Open(Box<Opened>),
    /// It is over.
    Failed(Failure),
}

/// The data that both sides exchanged.
#[derive(Debug)]
pub struct Opened {
    pub rings: Rings,
    /// Ours.
    pub seal: Seal,
    /// Theirs.
    pub reach: Reach,
}

/// The path of packets.
#[derive(Debug)]
pub struct Rings {
    pub inbound: Inbound,
    pub outbound: Outbound,
    /// Both sides use the barrier of the system (L-13).
    pub barrier: bool,
}

/// The parameters of a connection's opening.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// The ring that we offer.
    pub ring: RingConfig,
    /// Whether we read the peer's memory where we can.
    pub single_copy: bool,
}

/// Why a connection did not come to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The other side did not prove that it belongs to the job.
    Unauthenticated,
    /// It is not willing, or hung up during the handshake.
    Refused,
    /// No process listens at the address.
    Gone,
    /// It hung up after the handshake.
    Closed,
    /// It belongs to the job but shared something that is no ring.
    Corrupt,
    /// Its settings give slots of another size to its rings.
    SlotBytes {
        /// Bytes of a slot of ours.
        ours: u32,
        /// Bytes of a slot of its.
        theirs: u32,
    },
    /// Our system could not make a ring.
    System(i32),
}

impl Failure {
    /// The core's form of it.
    pub fn fault(self) -> RailFault {
        match self {
            Failure::Unauthenticated => RailFault::Unauthenticated,
            Failure::Refused => RailFault::Refused,
            Failure::Gone => RailFault::Gone,
            Failure::Closed => RailFault::Closed,
            Failure::Corrupt => RailFault::Corrupt,
            Failure::SlotBytes { .. } => RailFault::Device { code: Errno::MSGSIZE.raw_os_error() },
            Failure::System(code) => RailFault::Device { code },
        }
    }
}

impl Opening {
    /// A dialled connection; sends `hello` now.
    pub fn dialling(
        socket: OwnedFd,
        peer: PeerId,
        dialler: (Dialler, Message),
        deadline: Time,
    ) -> Result<Self, Failure> {
        let (dialler, hello) = dialler;
        socket::send(&socket, hello.bytes(), None).map_err(|_| Failure::Refused)?;
        Ok(Opening { socket, deadline, peer: Some(peer), dialled: true, held: None, stage: Stage::Dialling(dialler) })
    }

    /// A connection that came in.
    pub fn accepting(socket: OwnedFd, acceptor: Acceptor, deadline: Time) -> Self {
        Opening { socket, deadline, peer: None, dialled: false, held: None, stage: Stage::Accepting(acceptor) }
    }

    /// Whether the other side has proved itself.
    pub fn is_proved(&self) -> bool {
        matches!(self.stage, Stage::Sharing(..))
    }

    /// What the dialler sent as its name.
    pub fn caller_name(&self) -> &[u8; NAME_BYTES] {
        match &self.stage {
            Stage::Accepting(acceptor) => acceptor.name(),
            _ => &[0; NAME_BYTES],
        }
    }

    /// Moves as far as the datagrams that are here allow.
    pub fn step(&mut self, offer: Offer) -> Progress {
        for _ in 0..DATAGRAMS_MAX {
            let progress = match self.stage {
                Stage::Sharing(..) => self.take_share(offer),
                _ => self.take_handshake(offer.ring),
            };
            match progress {
                Ok(None) => return Progress::Waiting,
                Ok(Some(Progress::Waiting)) => {}
                Ok(Some(progress)) => return progress,
                Err(failure) => return Progress::Failed(failure),
            }
        }
        Progress::Waiting
    }

    /// Accepts a dialler authenticated as `peer`.
    pub fn accept(&mut self, peer: PeerId, ring: RingConfig) -> Result<(), Failure> {
        self.peer = Some(peer);
        let made = Inbound::create(ring);
        if made.is_err() {
            self.refuse(Verdict::Refused(RefusedBecause::Full));
        }
        let (inbound, memory) = made.map_err(system)?;
        self.rule(Verdict::Accepted)?;
        self.share(inbound, &memory, ring)
    }

    /// Sends a dialler that has proved itself another verdict.
    pub fn refuse(&mut self, verdict: Verdict) {
        // Where it can't be sent, the hang-up has the same meaning.
        let _ = self.rule(verdict);
        self.stage = Stage::Over;
    }

    fn rule(&mut self, verdict: Verdict) -> Result<(), Failure> {
        let Stage::Accepting(acceptor) = &mut self.stage else { return Err(Failure::Refused) };
        let message = acceptor.ruling(verdict).map_err(|_| Failure::Refused)?;
        self.send(&message)
    }

    fn send(&self, message: &Message) -> Result<(), Failure> {
        socket::send(&self.socket, message.bytes(), None).map_err(|_| Failure::Refused)
    }

    fn share(&mut self, inbound: Inbound, memory: &OwnedFd, ring: RingConfig) -> Result<(), Failure> {
        let barrier = barrier::is_registered();
        let seal = Seal::new().map_err(|errno| Failure::System(errno.raw_os_error()))?;
        let share = Share::of(ring, barrier, &seal);
        socket::send(&self.socket, share.as_bytes(), Some(memory.as_fd())).map_err(|_| Failure::Closed)?;
        self.stage = Stage::Sharing(Box::new(inbound), barrier, seal);
        Ok(())
    }

    /// `Ok(None)`: no datagram here.
    fn take_handshake(&mut self, ring: RingConfig) -> Result<Option<Progress>, Failure> {
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        let message = match socket::receive(&self.socket, &mut bytes, false) {
            Received::Datagram(len, _) => &bytes[..len],
            Received::Nothing => return Ok(None),
            Received::End => return Err(Failure::Refused),
            Received::Excess | Received::NoDescriptor => return Err(Failure::Unauthenticated),
        };
        let step = match &mut self.stage {
            Stage::Dialling(dialler) => dialler.handle(message),
            Stage::Accepting(acceptor) => acceptor.handle(message),
            Stage::Sharing(..) | Stage::Over => Err(AuthError::Over),
        };
        match step {
            Ok(Step::Send(message)) => self.send(&message).map(|()| Some(Progress::Waiting)),
            Ok(Step::Crossing) => Ok(Some(Progress::Crossing)),
            Ok(Step::Authenticated { peer, key, attempts, .. }) if !self.dialled => {
                Ok(Some(Progress::Proved(peer, key, attempts)))
            }
            Ok(Step::Authenticated { .. }) => {
                let (inbound, memory) = Inbound::create(ring).map_err(system)?;
                self.share(inbound, &memory, ring).map(|()| Some(Progress::Waiting))
            }
            Err(AuthError::Refused(because)) if because != RefusedBecause::Proof => Err(Failure::Refused),
            Err(error) => {
                if let (Stage::Accepting(_), Some(refusal)) = (&self.stage, error.refusal()) {
                    // Where it can't be sent, the hang-up has the same meaning.
                    let _ = self.send(&refusal);
                }
                self.stage = Stage::Over;
                Err(Failure::Unauthenticated)
            }
        }
    }

    /// `Ok(None)`: no datagram here.
    fn take_share(&mut self, offer: Offer) -> Result<Option<Progress>, Failure> {
        let mut bytes = [0; size_of::<Share>()];
        let (len, memory) = match socket::receive(&self.socket, &mut bytes, true) {
            Received::Datagram(len, Some(memory)) => (len, memory),
            Received::Nothing => return Ok(None),
            Received::End => return Err(Failure::Closed),
            Received::NoDescriptor => return Err(Failure::System(Errno::MFILE.raw_os_error())),
            Received::Datagram(_, None) | Received::Excess => return Err(Failure::Corrupt),
        };
        let share = Share::read_from_bytes(&bytes[..len]).map_err(|_| Failure::Corrupt)?;
        let config = share.config(offer.ring.slot_bytes)?;
        let mut outbound = Outbound::open(memory, config).map_err(|error| match error {
            // The peer's ring is as it should be, and this process can't map it.
            SegmentError::System(errno @ (Errno::NOMEM | Errno::NFILE)) => Failure::System(errno.raw_os_error()),
            _ => Failure::Corrupt,
        })?;
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Sharing(mut inbound, ours, seal) => {
                // Both sides come to the same: a side that makes no fence for a message has a sleeper that
                // does.
                let barrier = ours && share.flags.get() & Share::BARRIER != 0;
                if barrier {
                    inbound.use_barrier();
                    outbound.use_barrier();
                }
                let (address, value) = (share.seal_address.get(), share.seal);
                let reach = match offer.single_copy {
                    true => Reach::probe(&self.socket, address, value),
                    false => Reach::none(Denied::Off),
                };
                let rings = Rings { inbound: *inbound, outbound, barrier };
                Ok(Some(Progress::Open(Box::new(Opened { rings, seal, reach }))))
            }
            _ => Err(Failure::Corrupt),
        }
    }
}

fn system(error: SegmentError) -> Failure {
    match error {
        SegmentError::System(errno) => Failure::System(errno.raw_os_error()),
        _ => Failure::System(0),
    }
}
