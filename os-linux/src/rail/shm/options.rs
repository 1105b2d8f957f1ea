//! Options of a shared-memory rail, and the errors of its start.

use rerail_core::endpoint::PostStatus;
use rerail_core::ids::{PeerId, PostId};
use rerail_core::shm::{RingConfig, RingConfigError, ring_bytes};
use rerail_core::time::Nanos;
use rerail_core::wire::HEADER_BYTES_MAX;
use rustix::io::Errno;

use super::link::{Link, POST_BYTES};
use super::ring_reads::{RingReader, RingReads};
use super::segment::page_size;
use super::setup::Peer;
use crate::auth::Fingerprint;

/// Bytes of a post that is to be reported.
const DONE_BYTES: u64 = size_of::<(PeerId, PostId, PostStatus)>() as u64;

/// Sizes and limits of a [`ShmRail`](super::ShmRail). A connected peer costs one ring of at most about
/// `cells * 192 + slots * (segment_bytes + 320)` bytes in each direction, of which the pages exist that were
/// used: one at first. An idle peer costs none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShmOptions {
    /// Which of this process's shared-memory rails this is: 0 for the first. Rails of equal index connect.
    pub index: u8,
    /// Processes of the job: a peer that claims this rank or a higher one is refused.
    pub peers_max: u32,
    /// Name of the host, in order to treat parts of one machine as hosts of their own; `None`: the kernel's
    /// boot id and network namespace. Printable ASCII without spaces, `;`, `,`, `=` and `/`, at most 80
    /// bytes.
    pub host_id: Option<String>,
    /// Messages in a ring: a power of two from 2 to 65,536.
    pub cells: u32,
    /// Messages of more than 168 bytes in a ring: 2 to 65,536, and no more than make a ring of 1 GiB.
    pub slots: u32,
    /// Largest payload of one packet in bytes: a multiple of 16, at most 4 MiB, the same in all processes of
    /// a host.
    pub segment_bytes: u32,
    /// Largest eager payload in bytes: at most `segment_bytes`.
    pub eager_bytes_max: u32,
    /// Whether payload of large messages is read from the sender's memory where the system allows it.
    pub single_copy: bool,
    /// The most bytes of one peer's memory that are mapped here, of what it has allocated to be mapped; 0:
    /// none is.
    pub mapped_bytes_max: u64,
    /// Posts that may be outstanding per peer: those that find the ring full wait in a queue of this length.
    pub posts_max: u16,
    /// Messages that one poll takes from one peer before it looks at the next.
    pub burst: u32,
    /// Which of these are taken where they are packets of large messages.
    pub ring_reads: RingReads,
    /// Connections are checked (a system call) in every so many polls, and in each while one is being set
    /// up.
    pub polls_per_check: u32,
    /// A connection that is not set up after this time is closed.
    pub handshake_timeout: Nanos,
    /// After a disconnect, the peer has this time to make room for earlier posts.
    pub flush_timeout: Nanos,
    /// Incoming connections that may be unauthenticated at once; one more closes the oldest of them.
    pub pending_max: usize,
}

impl ShmOptions {
    /// Defaults for a job of `peers_max` processes: at most about half a mebibyte per peer and direction.
    pub fn new(peers_max: u32) -> Self {
        ShmOptions {
            index: 0,
            peers_max,
            host_id: None,
            cells: 256,
            slots: 64,
            segment_bytes: 8 * 1024,
            eager_bytes_max: 8 * 1024,
            single_copy: true,
            mapped_bytes_max: 64 << 30,
            posts_max: 64,
            burst: 32,
            ring_reads: RingReads::Burst,
            polls_per_check: 64,
            handshake_timeout: Nanos::from_millis(10_000),
            flush_timeout: Nanos::from_millis(1_000),
            pending_max: 64,
        }
    }

    /// The rings that peers are offered.
    pub(super) fn ring(&self) -> RingConfig {
        let slot_bytes = self.segment_bytes.saturating_add(HEADER_BYTES_MAX as u32);
        RingConfig { cells: self.cells, slots: self.slots, slot_bytes }
    }

    /// The reader of a new ring.
    pub(super) fn reader(&self) -> RingReader {
        RingReader::new(self.ring_reads, u64::from(self.slots) * u64::from(self.segment_bytes))
    }

    /// Bytes of the ring of a connected peer, of each direction: at first (one page) and at most, once all of
    /// it was used.
    pub fn ring_bytes(&self) -> (u64, u64) {
        let most = ring_bytes(self.ring()).map_or(u64::MAX, |bytes| bytes as u64);
        (page_size() as u64, most)
    }

    /// The most bytes of a connected peer in this process's tables, apart from its ring.
    pub fn connection_bytes(&self) -> u64 {
        2 * size_of::<Link>() as u64 + u64::from(self.posts_max) * (POST_BYTES + DONE_BYTES)
    }

    /// The most bytes of a peer whose address is known.
    pub fn peer_bytes(&self) -> u64 {
        // Tables are at least half full; the socket's name is short.
        2 * size_of::<(PeerId, Peer, Fingerprint, PeerId, u32)>() as u64 + 128
    }

    pub(super) fn check(&self) -> Result<(), ShmError> {
        self.ring().check().map_err(ShmError::Ring)?;
        if self.segment_bytes > SEGMENT_BYTES_MAX {
            return Err(ShmError::Option { name: "segment_bytes", value: self.segment_bytes.into() });
        }
        if ring_bytes(self.ring()).is_none_or(|bytes| bytes > RING_BYTES_MAX) {
            return Err(ShmError::Option { name: "slots", value: self.slots.into() });
        }
        if self.eager_bytes_max > self.segment_bytes {
            return Err(ShmError::Option { name: "eager_bytes_max", value: self.eager_bytes_max.into() });
        }
        for (name, value) in [
            ("posts_max", u64::from(self.posts_max)),
            ("burst", self.burst.into()),
            ("polls_per_check", self.polls_per_check.into()),
            ("pending_max", self.pending_max as u64),
        ] {
            if value == 0 {
                return Err(ShmError::Option { name, value });
            }
        }
        match &self.host_id {
            Some(id) if !is_host_id(id) => Err(ShmError::HostId(id.clone())),
            _ => Ok(()),
        }
    }
}

/// Largest `segment_bytes`.
const SEGMENT_BYTES_MAX: u32 = 4 << 20;
/// Most bytes of a ring, ours or a peer's.
pub(super) const RING_BYTES_MAX: usize = 1 << 30;

/// Whether a host id is valid in an address.
pub(super) fn is_host_id(id: &str) -> bool {
    (1..=80).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic() && !b";,=/".contains(&byte))
}

/// Why a shared-memory rail can't be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShmError {
    /// Slots or segment size are out of range.
    #[error(
        "ring: {} is {}, not in {} to {}, no power of two (cells) or no multiple of 16",
        .0.field,
        .0.value,
        .0.min,
        .0.max
    )]
    Ring(RingConfigError),
    /// An option is out of range.
    #[error("option {name} can't be {value}")]
    Option {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: u64,
    },
    /// This host id is invalid in an address.
    #[error("{0:?} can't be a host id")]
    HostId(String),
    /// The system refused.
    #[error("{what}: {errno}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's reason.
        #[source]
        errno: Errno,
    },
}
