//! What an exchange measures beside verifying: each path's latency and bandwidth, between its first pair of
//! ranks.
//!
//! The others wait in a barrier, asleep.

use serde::{Deserialize, Serialize};

use super::rank::Worker;
use crate::output::stats::Latency;
use crate::perf::kernel::{Buffers, Kernel, KernelError, Load, Pair};
use crate::perf::pin::Pinned;
use crate::session::{Path, SessionError};

/// Bytes of a message in the latency measurement.
pub const LATENCY_BYTES: u64 = 8;

/// The measurements of a path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The path.
    pub path: Path,
    /// Half of a round trip of 8 B messages (to itself: the whole way).
    pub latency: Option<Latency>,
    /// Bytes of a message in the bandwidth measurement.
    pub message_bytes: u64,
    /// Bytes per second, one way.
    pub bytes_per_second: Option<f64>,
}

impl Worker {
    /// Measures every path that the job has. Collective. The first rank of each pair has the result.
    pub(super) fn measure(&mut self, quick: bool, bytes_max: u64) -> Result<Vec<Measured>, SessionError> {
        let mut measured = Vec::new();
        for path in Path::ALL {
            self.barrier()?;
            let Some(pair) = self.first_pair(path) else { continue };
            if pair.first != self.me() && pair.second != self.me() {
                continue;
            }
            let result = self.measure_pair(path, pair, quick, bytes_max)?;
            measured.extend(result.filter(|_| pair.first == self.me()));
        }
        self.barrier()?;
        Ok(measured)
    }

    /// The first two living ranks between which the path leads.
    fn first_pair(&self, path: Path) -> Option<Pair> {
        let living = self.session.living();
        let mut pairs = living.iter().flat_map(|&first| living.iter().map(move |&second| Pair { first, second }));
        pairs.find(|pair| self.session.path_between(pair.first, pair.second) == path)
    }

    fn measure_pair(
        &mut self,
        path: Path,
        pair: Pair,
        quick: bool,
        bytes_max: u64,
    ) -> Result<Option<Measured>, SessionError> {
        let message_bytes = bytes_max.clamp(LATENCY_BYTES, 1 << 20);
        let buffers = Buffers::allocate(&mut self.session, message_bytes, false)?;
        let _pinned = Pinned::to(usize::from(pair.first != self.me()));
        let mut kernel = Kernel::new(&mut self.session, pair, buffers);
        let (warmup, iterations) = if quick { (50, 200) } else { (200, 2000) };
        let mut run = || -> Result<(Option<Latency>, f64), KernelError> {
            let mut samples = kernel.ping_pong(LATENCY_BYTES, warmup, iterations)?;
            let load = Load { bytes: message_bytes, window: 16, warmup: 1, windows: if quick { 2 } else { 8 } };
            let seconds = kernel.stream(&load, false)?;
            Ok((Latency::of(&mut samples), (load.messages() * load.bytes) as f64 / seconds.max(1e-9)))
        };
        let result = match run() {
            Ok((latency, rate)) => {
                let bytes_per_second = Some(rate);
                Ok(Some(Measured { path, latency, message_bytes, bytes_per_second }))
            }
            Err(KernelError::Session(error)) => Err(error),
            Err(KernelError::PeerGone | KernelError::Different(_)) => Ok(None),
        };
        if result.is_ok() {
            // What a lost peer left unfinished may still name the memory; it goes with the process.
            let _ = self.session.free(buffers.outgoing);
            let _ = self.session.free(buffers.incoming);
        }
        result
    }
}
