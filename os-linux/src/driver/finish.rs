//! Orderly shutdown: everything submitted is acknowledged, every peer has received BYE, then the
//! launcher.

use std::time::{Duration, Instant};

use rerail_core::endpoint::{Event, Loss};
use rerail_core::ids::PeerId;
use rerail_core::time::{Nanos, Time};

use super::clock::now;
use super::engine::PeerSet;
use super::{Transport, WaitError};
use crate::bootstrap::BootError;

/// The minimum wait for the launcher's answer to BYE, even where the peers have used up the deadline.
/// A working launcher answers far sooner, and a process that ends without the answer counts as failed.
const LAUNCHER_BYE_MIN: Duration = Duration::from_secs(1);

/// How the peers that this process had to do with were left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// Peers that were left in good order; not those that had closed before.
    pub closed: u32,
    /// Peers that were lost, before or during shutdown, in the order of the reports.
    pub lost: Vec<(PeerId, Loss)>,
    /// Peers that had not acknowledged everything when the deadline came.
    pub abandoned: Vec<PeerId>,
}

/// Why a transport could not be finished. The rails are closed all the same.
#[derive(Debug, thiserror::Error)]
pub enum FinishError {
    /// The system refused to wait.
    #[error("could not wait for the peers' BYE: {0}")]
    Wait(#[from] WaitError),
    /// The launcher refused BYE, or had already exited. The peers were left before, as in `shutdown`:
    /// requests submitted to the peers that it counts as closed have arrived (B-3).
    #[error(
        "{} peers were left in good order ({} were lost, {} abandoned), but the launcher could not be notified: {error}",
        .shutdown.closed,
        .shutdown.lost.len(),
        .shutdown.abandoned.len()
    )]
    Boot {
        /// Why BYE to the launcher failed.
        #[source]
        error: BootError,
        /// How the peers were left.
        shutdown: Shutdown,
    },
}

impl Transport {
    /// Closes every peer that this process communicated with, once all requests submitted to it are
    /// acknowledged; then leaves the job. Events that were not taken are dropped: take the completions that
    /// matter before. A peer's requests that still need this process fail: where that can be, agree first (a
    /// barrier). `deadline`: the longest wait for peers and then for the launcher, which has a second of its
    /// own where the peers have left less; `None`: until each peer has answered or is lost. A peer that lives
    /// but is not driven does neither, unless `Config::silence_max` is set: give a deadline where that can
    /// be.
    ///
    /// # Errors
    /// Where the system refuses to wait or the launcher refuses BYE. The wait for a launcher that
    /// does not answer ends after the setting `boot_timeout` or at the deadline, whichever is sooner.
    pub fn finish(mut self, deadline: Option<Duration>) -> Result<Shutdown, FinishError> {
        let since = Instant::now();
        let span = deadline.map(|span| Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)));
        let shutdown = self.shut_down_peers(span.map(|span| now() + span))?;
        match self.clock.boot.take() {
            Some(mut boot) => {
                if let Some(deadline) = deadline {
                    let left = deadline.saturating_sub(since.elapsed()).max(LAUNCHER_BYE_MIN);
                    boot.limit(Some(self.clock.boot_limit.map_or(left, |limit| limit.min(left))));
                }
                match boot.finalize() {
                    Ok(()) => Ok(shutdown),
                    Err(error) => Err(FinishError::Boot { error, shutdown }),
                }
            }
            None => Ok(shutdown),
        }
    }

    fn shut_down_peers(&mut self, until: Option<Time>) -> Result<Shutdown, WaitError> {
        let mut shutdown = Shutdown::default();
        self.queues = None;
        // Records the peers that connected or were lost since the last call.
        self.progress();
        while self.poll_event().is_some() {}
        let no_peers = PeerSet::new(self.size());
        let mut waiting = std::mem::replace(&mut self.engine.met, no_peers);
        for peer in waiting.iter().collect::<Vec<_>>() {
            // Nothing is outstanding with a parked one, and it gets no BYE (K-5).
            let is_parked = self.engine.core.is_parked(peer);
            if self.close_peer(peer).is_err() || is_parked {
                waiting.remove(peer);
                shutdown.closed += u32::from(is_parked);
            }
        }
        loop {
            self.progress();
            while let Some(event) = self.poll_event() {
                match event {
                    Event::PeerClosed { peer } if waiting.contains(peer) => {
                        waiting.remove(peer);
                        shutdown.closed += 1;
                    }
                    // The engine keeps why.
                    Event::PeerLost { peer, .. } => waiting.remove(peer),
                    _ => {}
                }
            }
            let time = now();
            if waiting.iter().next().is_none() || until.is_some_and(|until| until <= time) {
                shutdown.abandoned = waiting.iter().collect();
                shutdown.lost = std::mem::take(&mut self.engine.lost);
                break;
            }
            self.sleep(until, time)?;
        }
        // Sends the last posts; no BYE is lost because its sender ended too early.
        loop {
            self.progress();
            while self.poll_event().is_some() {}
            let time = now();
            if !self.is_closing() || until.is_some_and(|until| until <= time) {
                return Ok(shutdown);
            }
            self.sleep(until, time)?;
        }
    }

    fn sleep(&mut self, until: Option<Time>, time: Time) -> Result<(), WaitError> {
        self.wait(until.map(|until| Duration::from_nanos((until - time).0))).map(drop)
    }
}
