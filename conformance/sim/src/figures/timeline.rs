//! A picture of one history: rails as lanes, packets between them, and what else happened, over virtual time.

use serde::Serialize;

/// A history.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// Names of the lanes, from top to bottom.
    pub lanes: Vec<String>,
    /// Parts of time that are shown beside each other, in microseconds, ascending; what lies between is left
    /// out.
    pub windows: Vec<(f64, f64)>,
    /// Packets.
    pub flights: Vec<Flight>,
    /// What happened at a lane.
    pub marks: Vec<Mark>,
}

/// A packet on its way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flight {
    /// What it is.
    pub sort: Sort,
    /// From which lane.
    pub from: usize,
    /// To which.
    pub to: usize,
    /// When it was handed over, in microseconds.
    pub sent_us: f64,
    /// When it was taken; `None`: never.
    pub taken_us: Option<f64>,
}

/// Sorts of packets, as the picture distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sort {
    /// Payload, for the first time.
    Payload,
    /// A packet again, under its own number.
    Replay,
    /// FENCE: the question whether the peer's end is dead.
    Fence,
    /// FENCE: the answer.
    Answer,
    /// CONNECT.
    Connect,
    /// Anything else: acknowledgments, credits, rendezvous.
    Other,
}

impl Sort {
    /// All, in the order of the legend.
    pub const ALL: [Sort; 6] = [Sort::Payload, Sort::Replay, Sort::Fence, Sort::Answer, Sort::Connect, Sort::Other];

    /// As in the legend.
    pub const fn words(self) -> &'static str {
        match self {
            Sort::Payload => "payload",
            Sort::Replay => "replay",
            Sort::Fence => "FENCE",
            Sort::Answer => "FENCE, answer",
            Sort::Connect => "CONNECT",
            Sort::Other => "acknowledgments and others",
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// At which lane; `None`: across all.
    pub lane: Option<usize>,
    /// When, in microseconds.
    pub at_us: f64,
    /// What, in a word or two.
    pub name: String,
}
