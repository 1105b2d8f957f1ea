//! The ranks' information: their names in a report, and the path from one to another.

use std::fmt;

use rerail_core::endpoint::Loss;
use rerail_linux::driver::Transport;
use serde::{Deserialize, Serialize};

/// The information that every rank publishes before it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankInfo {
    /// Its host, logical or real.
    pub host: String,
    /// Its process.
    pub pid: u32,
}

/// The way between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// A rank to itself.
    Loop,
    /// Shared memory.
    Shm,
    /// All TCP rails together.
    Tcp,
    /// Verbs rails, and TCP rails if there are such too.
    Verbs,
}

impl Path {
    /// Every path.
    pub const ALL: [Path; 4] = [Path::Loop, Path::Shm, Path::Tcp, Path::Verbs];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Path::Loop => "loop",
            Path::Shm => "shm",
            Path::Tcp => "tcp",
            Path::Verbs => "verbs",
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The way between two ranks; `shm`: whether shared memory is in use; `far`: the way between hosts.
pub fn path(rank_infos: &[RankInfo], one: u32, other: u32, shm: bool, far: Path) -> Path {
    if one == other {
        Path::Loop
    } else if shm && rank_infos[one as usize].host == rank_infos[other as usize].host {
        Path::Shm
    } else {
        far
    }
}

/// This machine's name, for people.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}

/// Connections that failed before a peer was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// The rail by its name; where a loss does not distinguish them, several.
    pub rails: Vec<String>,
    /// Connections over it that failed since it carried packets last; [`Loss::attempts_max`]: so many or
    /// more.
    pub failed: u32,
}

/// Connections that failed before a peer was lost, by the rails that led to it.
pub fn attempts(transport: &Transport, why: Loss) -> Vec<Attempts> {
    why.attempts().map(|(rails, failed)| Attempts { rails: transport.rail_names(rails), failed }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_decide_the_path() {
        let rank_info = |host: &str| RankInfo { host: host.to_owned(), pid: 1 };
        let rank_infos = [rank_info("a"), rank_info("a"), rank_info("b")];
        assert_eq!(path(&rank_infos, 0, 0, true, Path::Tcp), Path::Loop);
        assert_eq!(path(&rank_infos, 0, 1, true, Path::Tcp), Path::Shm);
        assert_eq!(path(&rank_infos, 0, 1, false, Path::Tcp), Path::Tcp);
        assert_eq!(path(&rank_infos, 1, 2, true, Path::Tcp), Path::Tcp);
    }
}
