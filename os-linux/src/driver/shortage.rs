//! What keeps this process from its peers, and only this process knows: no descriptor, or no memory, for a
//! connection.

use std::fmt;

use rustix::io::Errno;

use super::{Engine, Transport};
use crate::rail::shortage::remedy;

/// Connections that this process could neither open nor accept since it started, because it, or the system,
/// had no descriptor or no memory left. They are tried again (F-8): a shortage that ends does no harm. One
/// that goes on keeps requests waiting until the peer is lost (`connect_timeout`, `recovery_timeout`), and
/// its peers know no reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// How many over all rails. A number that grows: it goes on.
    pub times: u64,
    /// Of the rail that failed most often: its name.
    pub rail: String,
    /// What the system said there at last.
    pub errno: Errno,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortage { rail, errno, .. } = self;
        write!(f, "rail {rail} can't open or accept a connection: {errno}{}", remedy(*errno))
    }
}

impl std::error::Error for Shortage {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.errno)
    }
}

impl Engine {
    /// What this process lacks for its connections, or lacked; `None`: nothing so far. To be looked at where
    /// requests take too long.
    pub fn shortage(&self) -> Option<Shortage> {
        let rails = || self.rails.iter().map(|(_, rail)| (rail.name(), rail.counters()));
        let (rail, worst) = rails().max_by_key(|(_, counters)| counters.shortages)?;
        let times = rails().map(|(_, counters)| counters.shortages).sum();
        Some(Shortage { times, rail: rail.to_owned(), errno: worst.shortage? })
    }
}

impl Transport {
    /// What this process lacks for its connections: [`Engine::shortage`].
    pub fn shortage(&self) -> Option<Shortage> {
        self.engine.shortage()
    }
}
