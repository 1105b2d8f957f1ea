//! Local shortages that prevent connections to peers: no descriptor, or no memory. The peers can't
//! observe them.

use rustix::io::Errno;

use super::{Clock, Transport};
use crate::rail::shortage::remedy;

/// Connections that this process could neither open nor accept since it started, because it, or the system,
/// had no descriptor or no memory left. They are retried (F-8): a shortage that ends does no harm. One that
/// goes on keeps requests waiting until the peer is lost (`connect_timeout`, `recovery_timeout`), and its
/// peers receive no reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rail {rail} can't open or accept a connection: {errno}{}", remedy(*.errno))]
pub struct Shortage {
    /// How many over all rails. While it grows, the shortage continues.
    pub times: u64,
    /// Of the rail that failed most often: its name.
    pub rail: String,
    /// The system's last error.
    #[source]
    pub errno: Errno,
}

impl<C: Clock> Transport<C> {
    /// The shortage of this process's connections, past or present; `None`: none so far. Check it where
    /// requests take too long.
    pub fn shortage(&self) -> Option<Shortage> {
        let rails = || self.engine.rails.iter().map(|(_, rail)| (rail.name(), rail.counters()));
        let (rail, worst) = rails().max_by_key(|(_, counters)| counters.shortages)?;
        let times = rails().map(|(_, counters)| counters.shortages).sum();
        Some(Shortage { times, rail: rail.to_owned(), errno: worst.shortage? })
    }
}
