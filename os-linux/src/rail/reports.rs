//! A rail's reports to the core, queued until the next poll: they arise where no sink is available.

use std::collections::VecDeque;

use rerail_core::endpoint::{PostStatus, RailFault};
use rerail_core::ids::{PeerId, PostId};

use super::Sink;

/// One report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Completed(PeerId, PostId, PostStatus),
    Up(PeerId),
    Down(PeerId, RailFault),
    Queued(PeerId),
}

impl Report {
    /// The peer that it is about.
    pub(super) fn peer(&self) -> PeerId {
        match *self {
            Report::Completed(peer, ..) | Report::Up(peer) | Report::Down(peer, _) | Report::Queued(peer) => peer,
        }
    }
}

/// Delivers all queued reports in order; returns their number.
#[inline(always)]
pub(super) fn deliver(reports: &mut VecDeque<Report>, sink: &mut dyn Sink) -> usize {
    if reports.is_empty() { 0 } else { deliver_all(reports, sink) }
}

fn deliver_all(reports: &mut VecDeque<Report>, sink: &mut dyn Sink) -> usize {
    let count = reports.len();
    for report in reports.drain(..) {
        match report {
            Report::Completed(_, id, status) => sink.completed(id, status),
            Report::Up(peer) => sink.up(peer),
            Report::Down(peer, fault) => sink.down(peer, fault),
            Report::Queued(peer) => sink.queued(peer),
        }
    }
    count
}
