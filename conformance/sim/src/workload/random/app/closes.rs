//! Peers are closed while others, and perhaps the last acknowledgments to the very same, are still on their
//! way.

use rerail_core::ids::PeerId;

use super::{Player, Sort, pair};
use crate::cluster::{Cx, Phase};
use crate::cover::Path;

/// At one call of a rank in this many it parks a peer.
const PARKS_ONE_IN: u64 = 4;

impl Player {
    /// Closes peers with which everything is over.
    pub(super) fn close_peers(&mut self, cx: &mut Cx<'_>) {
        let closes = self.shared.borrow().closes;
        if !closes || self.failed || cx.phase == Phase::Rest {
            return;
        }
        for peer in (0..cx.size).filter(|peer| *peer != self.rank) {
            let is_closed = self.shared.borrow().closed.contains(&(self.rank, peer));
            if is_closed || !self.is_through_with(peer) {
                continue;
            }
            self.shared.borrow_mut().closed.insert((self.rank, peer));
            if cx.engine.close_peer(PeerId(peer)).is_ok() && cx.phase == Phase::Safety {
                cx.trace.took(Path::CloseInFlow);
            }
        }
    }

    /// Parks one of the peers with which nothing is under way, now and then; notes those that are parked.
    pub(super) fn park_peers(&mut self, cx: &mut Cx<'_>) {
        if !self.shared.borrow().parks {
            return;
        }
        let is_parked = |peer: &u32| cx.engine.endpoint().is_parked(PeerId(*peer));
        let parked: Vec<_> = (0..cx.size).filter(is_parked).map(|peer| (self.rank, peer)).collect();
        let all = &mut self.shared.borrow_mut().parked;
        all.retain(|(rank, _)| *rank != self.rank);
        all.extend(parked);
        if self.failed || cx.phase == Phase::Rest || !cx.rng.one_in(PARKS_ONE_IN) {
            return;
        }
        let from = cx.rng.below(cx.size.into()) as u32;
        for peer in (0..cx.size).map(|step| (from + step) % cx.size) {
            if cx.engine.park(PeerId(peer)) {
                break;
            }
        }
    }

    /// Whether neither has anything to do with the other any more: messages have been received, and requests
    /// to windows are over. Sends may still wait for acknowledgments.
    fn is_through_with(&self, peer: u32) -> bool {
        let shared = &*self.shared.borrow();
        let (here, there) = (self.rank, peer);
        if !shared.met.contains(&(here, there)) || shared.is_gone(here, there) {
            return false;
        }
        let messages = shared.between.get(&pair(here, there));
        let received = messages.is_none_or(|messages| messages.iter().all(|index| shared.received.contains(*index)));
        let left = |pair: (u32, u32)| shared.towards.get(&pair).copied().unwrap_or(0);
        let receives = || self.open.values().any(|open| open.peer == Some(peer) && open.sort != Sort::Send);
        received && left((here, there)) == 0 && left((there, here)) == 0 && !receives()
    }
}
