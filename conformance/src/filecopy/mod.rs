//! `rerail send` and `rerail recv`: a file from one terminal or host to another, over all rails at once.
//!
//! Rank 0 receives, rank 1 sends. The sender makes an [`offer`]; the receiver accepts or refuses with a
//! reason. Then the file is sent as large messages, several in flight, each striped over all rails; both
//! sides compute its SHA-256 on the way. The sender's digest comes last; the receiver compares, names the
//! file, and gives its verdict. A verdict may come at any time before: that ends the transfer (the disk is
//! full).
//!
//! Trust: the two share a key, but a sender must still not be able to write anywhere but to a new file in the
//! receiver's folder, nor to make it hold more memory than the receiver's own limits.

mod offer;
mod recv;
mod send;
mod target;

use std::path::Path;
use std::time::{Duration, Instant};

use rerail_core::mem::{RegionId, Seg};
use rerail_linux::bootstrap::Bootstrap;
use rerail_linux::settings::Settings;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::cli::TransferArgs;
use crate::exit::Failure;
use crate::output::{self, bytes, good, rate};
use crate::session::{self, Session, SessionError};

pub use recv::run as recv;
pub use send::run as send;

/// Tag of the file's messages.
const DATA: u64 = 1;
/// Bytes hashed between two polls of the rails, so that they never run dry meanwhile.
const PIECE_BYTES: usize = 128 << 10;
/// How long to wait at most for the peer's BYE.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// What a transfer came to.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The file: the source for the sender, the destination for the receiver.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// From the first byte to the verdict.
    pub seconds: f64,
    /// Bytes per second.
    pub rate: f64,
    /// The digest that both sides computed.
    pub sha256: String,
    /// What each rail carried, headers included.
    pub rails: Vec<RailShare>,
}

/// A rail's part.
#[derive(Clone, Debug, Serialize)]
pub struct RailShare {
    /// Its name.
    pub name: String,
    /// Bytes sent by it (sender) or received (receiver).
    pub bytes: u64,
    /// Bytes per second that it was last measured to move from here; 0: not measured.
    pub measured: u64,
}

impl Summary {
    fn print(&self, as_json: bool, verb: &str) -> Result<(), Failure> {
        if as_json {
            return output::json_line(self);
        }
        let shares: Vec<String> =
            self.rails.iter().map(|share| format!("{} {}", share.name, bytes(share.bytes))).collect();
        output::write_stdout(&format!(
            "{} {verb} {}: {} in {:.2} s, {} MB/s ({})\nsha256 {}",
            good("OK"),
            self.file,
            bytes(self.bytes),
            self.seconds,
            rate(self.rate),
            shares.join(", "),
            self.sha256
        ))
    }
}

/// The session of a pair.
fn open(args: &TransferArgs, boot: Box<dyn Bootstrap>) -> Result<Session, Failure> {
    let mut settings = Settings::from_env().map_err(Failure::usage)?;
    if !args.interfaces.is_empty() {
        settings.set("tcp_interfaces", &args.interfaces.join(",")).map_err(Failure::usage)?;
    }
    session::start(settings, boot, Duration::from_secs(args.stall_seconds))
}

/// A ring of message buffers, one region.
#[derive(Clone, Copy, Debug)]
struct Ring {
    region: RegionId,
    chunk_bytes: u64,
    depth: u64,
}

impl Ring {
    fn new(session: &mut Session, chunk_bytes: u64, depth: u64) -> Result<Ring, SessionError> {
        Ok(Ring { region: session.alloc(chunk_bytes * depth)?, chunk_bytes, depth })
    }

    /// The buffer of message `number`, which has so many bytes.
    fn seg(&self, number: u64, bytes: u64) -> Seg {
        Seg::new(self.region, number % self.depth * self.chunk_bytes, bytes)
    }
}

/// Hashes bytes of a region piece by piece, while the rails go on.
fn hash_while_driving(session: &mut Session, hash: &mut Sha256, seg: Seg) {
    let mut at = 0;
    while at < seg.len {
        let len = (seg.len - at).min(PIECE_BYTES as u64);
        hash.update(session.bytes(Seg::new(seg.at.region, seg.at.offset + at, len)));
        at += len;
        session.poll();
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The peer is gone: its name, and the reason.
fn gone(session: &Session, peer: u32, when: &str) -> Failure {
    Failure::peer_lost(match session.lost().get(&peer) {
        Some(&why) => format!("{when}: {}", session.describe_lost(peer, why)),
        None => format!("{when}: the other side left"),
    })
}

/// What rails have carried so far.
fn carried(session: &Session, sent: bool) -> Vec<RailShare> {
    let rails = session.transport().rails().map(|rail| RailShare {
        name: rail.name.to_owned(),
        bytes: if sent { rail.counters.bytes_sent } else { rail.counters.bytes_received },
        measured: rail.stats.bytes_per_second,
    });
    rails.filter(|share| share.name != "loop").collect()
}

fn summary(path: &Path, length: u64, start: Instant, sha256: String, rails: Vec<RailShare>) -> Summary {
    let seconds = start.elapsed().as_secs_f64();
    let rails = rails.into_iter().filter(|share| share.bytes > 0).collect();
    let file = path.display().to_string();
    Summary { file, bytes: length, seconds, rate: length as f64 / seconds.max(1e-9), sha256, rails }
}
