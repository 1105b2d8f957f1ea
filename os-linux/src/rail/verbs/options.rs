//! What a verbs rail is opened with, and why it may not be.

use std::{error, fmt};

use rerail_core::rail::RailKind;
use rerail_core::time::Nanos;
use rerail_verbs::contract::{CreateError, ModifyError, PostError, RegisterError};

/// Sizes and knobs of a verbs rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsOptions {
    /// Short name for people: `verbs:mlx5_0/1`.
    pub name: String,
    /// The sort that the core is told.
    pub kind: RailKind,
    /// The port, from 1.
    pub port: u8,
    /// Which of the port's GIDs goes into the address; used where the port has no LID.
    pub gid_index: u8,
    /// Which of the port's LIDs (LMC): low bits for this rail's own and for its peers'.
    pub path: u8,
    /// Processes in the job.
    pub peers: u32,
    /// Peers that may be connected at once.
    pub connections_max: u32,
    /// Posts that may be outstanding per peer.
    pub posts_max: u16,
    /// Largest eager payload.
    pub eager_bytes_max: u32,
    /// Largest payload of a packet.
    pub segment_bytes_max: u32,
    /// Receive buffers that all peers share, of one packet each.
    pub receives: u32,
    /// Remote memory may be written (RDMA write).
    pub write: bool,
    /// Remote memory may be read (RDMA read).
    pub read: bool,
    /// Time-out for an acknowledgment, as the code of `ibv_modify_qp(3)`.
    pub timeout: u8,
    /// How often the device sends again.
    pub retry_count: u8,
    /// How often it sends again when the peer has no receive; 7: without end.
    pub rnr_retry: u8,
    /// A connection that does not stand by then is given up.
    pub handshake_timeout: Nanos,
    /// A call that is not answered is repeated after so long.
    pub call_again: Nanos,
    /// After a goodbye, how long a connection is kept for what is under way.
    pub linger: Nanos,
    /// What nonces are drawn from beside the job's key: fresh randomness, or a seed where worlds must repeat.
    pub salt: [u8; 32],
}

impl VerbsOptions {
    /// Defaults for a job of `peers` processes; `salt` must be fresh (V-3).
    pub fn new(peers: u32, salt: [u8; 32]) -> Self {
        VerbsOptions {
            name: "verbs".into(),
            kind: RailKind::Verbs,
            port: 1,
            gid_index: 0,
            path: 0,
            peers,
            connections_max: peers.min(64),
            posts_max: 16,
            eager_bytes_max: 8192,
            segment_bytes_max: 8192,
            receives: 256,
            write: true,
            read: true,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            handshake_timeout: Nanos::from_millis(10_000),
            call_again: Nanos::from_millis(20),
            linger: Nanos::from_millis(1),
            salt,
        }
    }

    /// Bytes of a buffer for one packet: header and payload.
    pub(super) fn slot_bytes(&self) -> u64 {
        (rerail_core::wire::HEADER_BYTES_MAX as u64 + u64::from(self.segment_bytes_max.max(self.eager_bytes_max)))
            .next_multiple_of(64)
    }

    /// Registered memory that the rail needs: receives at once, sends as peers connect.
    pub fn memory_bytes(&self) -> u64 {
        let per_peer = u64::from(self.posts_max) * self.slot_bytes();
        u64::from(self.receives) * self.slot_bytes() + u64::from(self.connections_max) * per_peer
    }
}

/// Why a verbs rail could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerbsError {
    /// An object could not be made: which, and why.
    Create {
        /// Which.
        what: &'static str,
        /// Why.
        why: CreateError,
    },
    /// Buffers could not be registered.
    Register(RegisterError),
    /// A queue pair could not be changed.
    Modify(ModifyError),
    /// Receives could not be posted.
    Post(PostError),
    /// The port is not active.
    PortDown {
        /// The port.
        port: u8,
    },
    /// The sizes ask for a deeper completion queue than the device has.
    TooDeep {
        /// Completions that may be waiting at once.
        needed: u64,
        /// Completions that the device can hold.
        limit: u32,
    },
}

impl fmt::Display for VerbsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VerbsError::Create { what, why } => write!(f, "no {what}: {why}"),
            VerbsError::Register(why) => write!(f, "buffers can't be registered: {why}"),
            VerbsError::Modify(why) => why.fmt(f),
            VerbsError::Post(why) => why.fmt(f),
            VerbsError::PortDown { port } => {
                write!(f, "port {port} is not active: is the cable in, does a subnet manager run?")
            }
            VerbsError::TooDeep { needed, limit } => write!(
                f,
                "{needed} completions may wait at once, and the device's queues hold {limit}: lower the number of \
                 connections, posts or receives"
            ),
        }
    }
}

impl error::Error for VerbsError {}
