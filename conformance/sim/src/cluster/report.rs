//! How a simulation ended, and what it took.

use std::fmt;

use crate::rails::{JointCounts, MapCounts};

/// How a run ended, as far as the simulation itself can detect; whether that is well, checkers decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every app was done within the bound, and the engines rested.
    Done,
    /// The workload ended the run.
    Stopped,
    /// Apps were not done within `limits.convergence` after everything was healed.
    Stuck {
        /// Their ranks.
        ranks: Vec<u32>,
        /// Nothing was left that could happen: not slow, but dead.
        idle: bool,
    },
    /// More events than `limits.events_max`.
    TooManyEvents {
        /// So many.
        events: u64,
    },
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Done => f.write_str("done"),
            Ended::Stopped => f.write_str("stopped by the workload"),
            Ended::Stuck { ranks, idle } => {
                let how = if *idle { "nothing is left that could happen" } else { "the bound is over" };
                let named: Vec<_> = ranks.iter().take(8).map(u32::to_string).collect();
                let more = if ranks.len() > 8 { ", ..." } else { "" };
                write!(f, "stuck: {} ranks are not done ({}{more}), {how}", ranks.len(), named.join(", "))
            }
            Ended::TooManyEvents { events } => write!(f, "{events} events and no end"),
        }
    }
}

/// What a simulation took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Virtual time at the end, in nanoseconds.
    pub virtual_ns: u64,
    /// Virtual time at which all apps were done; 0: they never were.
    pub done_ns: u64,
    /// Events: rounds of ranks, deliveries, moments of faults, and all that happened on wires.
    pub events: u64,
    /// Packets that cores handed to rails.
    pub packets: u64,
    /// Payload and header bytes that rails sent.
    pub rail_bytes: u64,
    /// Ranks.
    pub ranks: u32,
    /// Bytes of the core's state of one rank (of the largest).
    pub state_bytes: u64,
    /// Bytes of the payload pool of one rank (of the largest).
    pub pool_bytes: u64,
    /// Bytes of ring memory of all pairs.
    pub ring_bytes: u64,
    /// What became of joint copies.
    pub joint: JointCounts,
    /// What became of mapped memory.
    pub mapped: MapCounts,
    /// Faults that happened.
    pub faults: u64,
    /// Rounds of ranks.
    pub rounds: u64,
}

impl Report {
    /// Bytes of ring memory per rank, on average.
    pub fn ring_bytes_per_rank(&self) -> u64 {
        self.ring_bytes.checked_div(self.ranks.into()).unwrap_or(0)
    }
}
