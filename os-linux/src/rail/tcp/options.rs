//! Options of a TCP rail.

use std::net::{IpAddr, SocketAddr};

use rerail_core::rail::Place;
use rerail_core::time::Nanos;
use rustix::io::Errno;

/// Sizes and settings of one TCP rail: one local address, and through it one network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// The interface's address: listened on, and the source of every connection that this rail opens, so that
    /// rails really use different interfaces.
    pub local: IpAddr,
    /// The port to listen on; 0: the system chooses.
    pub port: u16,
    /// Which of this process's TCP rails this is: 0 for the first. Rails of equal index connect.
    pub index: u8,
    /// Short name for people (`tcp:eth0`).
    pub name: String,
    /// Bandwidth that the interface is estimated to have, in bytes per second; 0: unknown.
    pub bytes_per_second: u64,
    /// Where the interface's device sits among those of this process's other rails.
    pub place: Place,
    /// How far that is from this process, as the kernel counts it: 10 is local; 0: unknown.
    pub numa_distance: u8,
    /// Largest payload of one packet in bytes.
    pub segment_bytes: u32,
    /// Largest eager payload in bytes.
    pub eager_bytes_max: u32,
    /// Posts that may be outstanding per peer.
    pub posts_max: u16,
    /// A connection that is not authenticated after this time is closed, unless it was dialled and waits at
    /// the peer's kernel for its process.
    pub handshake_timeout: Nanos,
    /// Milliseconds after which a connection is given up whose other side's kernel does not answer: neither
    /// unacknowledged bytes nor probes (`TCP_INFO`, checked by polls), nor keep-alive probes where nothing is
    /// sent. 0: the system's default.
    pub user_timeout_ms: u32,
    /// Have the kernel report when the interface goes down, and end all connections at once then instead of
    /// waiting for their time-outs; nothing is dialled while it is down.
    pub watch: bool,
    /// `SO_SNDBUF` in bytes; `None`: the system adapts it.
    pub send_buffer_bytes: Option<usize>,
    /// `SO_RCVBUF` in bytes; `None`: the system adapts it.
    pub receive_buffer_bytes: Option<usize>,
    /// A connection takes no more while so many bytes of it wait in the kernel to be sent for the first time
    /// (`TCP_NOTSENT_LOWAT`, tcp(7)), however much room its send buffer has; and a large post is over when it
    /// is sent. Bytes sent and not acknowledged do not count, so this costs no bandwidth; but rates measured
    /// here are those of the wire, and payload not handed over can still take another rail (P-10). 0: the
    /// kernel takes as much as its buffer holds, and with that a post is over.
    pub unsent_bytes: u32,
    /// Incoming connections that may be unauthenticated at once; one more closes the oldest of them.
    pub pending_max: u16,
}

impl TcpOptions {
    /// The defaults for the TCP rail number `index` on address `local`.
    pub fn new(local: IpAddr, index: u8) -> Self {
        TcpOptions {
            local,
            port: 0,
            index,
            name: format!("tcp{index}"),
            bytes_per_second: 0,
            place: Place::default(),
            numa_distance: 0,
            segment_bytes: 256 * 1024,
            eager_bytes_max: 8 * 1024,
            posts_max: 32,
            handshake_timeout: Nanos::from_millis(10_000),
            user_timeout_ms: 5_000,
            watch: true,
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
            unsent_bytes: 256 * 1024,
            pending_max: 64,
        }
    }
}

/// Why a TCP rail can't be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("TCP rail on {local}: {what}: {errno}")]
pub struct TcpError {
    /// The call that failed (`bind`, `listen`, ...).
    pub what: &'static str,
    /// The address concerned.
    pub local: SocketAddr,
    /// The system's reason.
    #[source]
    pub errno: Errno,
}
