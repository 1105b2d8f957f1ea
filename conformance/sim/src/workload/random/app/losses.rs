//! What a rank does about lost peers: takes back what nothing can come for.

use std::collections::BTreeSet;

use rerail_core::endpoint::{Selector, TagMatch};
use rerail_core::ids::PeerId;

use super::super::plan::{Manner, posted_tags};
use super::incoming::Claimed;
use super::{Player, Shared};
use crate::cluster::Cx;

impl Player {
    /// Whether a peer of this rank is gone, as far as it can detect.
    pub(super) fn is_orphaned(&self) -> bool {
        self.shared.borrow().has_parted(self.rank)
    }

    /// Receives of a class, posted or to be posted, that nothing can come for any more.
    pub(super) fn surplus(&self, class: usize) -> usize {
        let shared = self.shared.borrow();
        let entry = &shared.plan.classes[class];
        if entry.manner == Manner::Multi {
            let coming = entry.members.iter().any(|index| shared.is_coming(*index, self.rank));
            return usize::from(!coming && shared.has_parted(self.rank));
        }
        let coming = entry.members.iter().filter(|index| shared.is_coming(**index, self.rank)).count();
        let posted = self.open.values().filter(|open| open.class == Some(class)).count();
        let left = self.receives.iter().find(|(_, of, _)| *of == class).map_or(0, |(_, _, left)| *left);
        (posted + left).saturating_sub(coming)
    }

    /// After peers were lost: what nothing can come for is taken back. Nothing is sent to detect which are
    /// gone: the transport must report each process that this rank has had to do with.
    pub(super) fn handle_losses(&mut self, cx: &mut Cx<'_>) {
        // A loss is reported before the ends of the requests that it ends: until these are known, receives
        // that had a message of the lost peer look as if they waited for others.
        self.take_events(cx);
        self.waits_for_event = self.shared.borrow().has_event_due(self.rank);
        if !self.is_orphaned() {
            return;
        }
        let classes: BTreeSet<usize> = self.open.values().filter_map(|open| open.class).collect();
        for class in classes {
            let surplus = self.surplus(class);
            let left = self.receives.iter_mut().find(|(_, of, _)| *of == class);
            let unposted = left.map_or(0, |(_, _, left)| {
                let drop = surplus.min(*left);
                *left -= drop;
                drop
            });
            let requests: Vec<u32> =
                self.open.iter().filter(|(_, open)| open.class == Some(class)).map(|(request, _)| *request).collect();
            for request in requests.into_iter().rev().take(surplus - unposted) {
                self.take_back(cx, request);
            }
        }
        // What is open gives its buffers back: there will be room for what lies about still.
        self.is_unswept = self.sweep(cx) && !self.open.is_empty();
        let shared = self.shared.borrow();
        let coming = |class: &usize| {
            let class = &shared.plan.classes[*class];
            class.members.iter().filter(|index| shared.is_coming(**index, self.rank)).count()
        };
        self.claims_left = self.claims.iter().map(coming).sum();
        let gone: Vec<bool> = (0..shared.plan.size).map(|peer| shared.is_gone(self.rank, peer)).collect();
        let messages = &shared.plan.messages;
        let is_awaited = |index: &&usize| !gone[messages[**index].source as usize] && shared.is_due(**index);
        self.awaited = shared.to[self.rank as usize].iter().filter(is_awaited).count();
    }

    /// Receives what lies about unasked: messages of lost peers, whose receives were taken back; and those of
    /// other peers whose receives went to messages of a lost one, once all receives that they could be for
    /// are posted. True: there was no room for one.
    fn sweep(&mut self, cx: &mut Cx<'_>) -> bool {
        let size = self.shared.borrow().plan.size;
        let lost = |peer: &u32| self.shared.borrow().is_gone(self.rank, *peer);
        let mut sources: Vec<Option<PeerId>> = (0..size).filter(lost).map(|peer| Some(PeerId(peer))).collect();
        let waiting = self.open.values().any(|open| open.class.is_some());
        // What lies here is for none of those that are posted; so where none is to be posted any more, it is
        // for none, and keeps its sender from sending what others wait for.
        if (!waiting || self.claims_left == 0) && self.receives.iter().all(|(_, _, left)| *left == 0) {
            sources.push(None);
        }
        let tags = [TagMatch::Untagged, TagMatch::Tagged { tag: 0, ignore: !0 }];
        let all = sources.into_iter().flat_map(|source| tags.map(|tag| Selector { source, tag }));
        let mut unreceived: Vec<_> = all.collect();
        // So it is, turn by turn, with messages of this turn and those before that are not to be claimed, and
        // with untagged ones, whose receives were posted at the start: behind them others wait for room.
        if self.receives.iter().all(|(turn, _, left)| *turn > self.turn || *left == 0) {
            unreceived.push(Selector { source: None, tag: TagMatch::Untagged });
            let tags = (0..=self.turn).flat_map(posted_tags);
            unreceived.extend(tags.map(|tag| Selector { source: None, tag }));
        }
        let mut is_full = false;
        for selector in unreceived {
            let last = loop {
                match self.claim_one(cx, selector, None) {
                    Claimed::One => {}
                    last => break last,
                }
            };
            is_full |= last == Claimed::Full;
        }
        is_full
    }
}

impl Shared {
    /// Whether a message may still come: it is not received, will be sent, and no loss is between its ends.
    pub(super) fn is_coming(&self, index: usize, rank: u32) -> bool {
        self.is_due(index) && !self.is_gone(rank, self.plan.messages[index].source)
    }

    /// Whether a message was not received and will be sent.
    fn is_due(&self, index: usize) -> bool {
        !self.received.contains(index) && !self.gone_windows.contains(index)
    }

    pub(super) fn has_parted(&self, rank: u32) -> bool {
        (0..self.plan.size).any(|peer| self.is_gone(rank, peer))
    }

    /// Whether a peer is gone for a rank: the transport has reported it, or the two have never met, and the
    /// peer was killed or has given this rank up. The transport can't report that; a launcher would.
    pub(super) fn is_gone(&self, rank: u32, peer: u32) -> bool {
        let is_unmet = || !self.met.contains(&(rank, peer)) || self.parked.contains(&(rank, peer));
        let book = self.ledger.book(rank);
        // A liar may send BYE in mid-flow; an honest peer closes when nothing is left, and what then is
        // left is lost.
        let has_left = || self.ledger.is_liar(peer) && book.closed.contains(&peer);
        let has_given_up = || self.ledger.book(peer).losses.iter().any(|loss| loss.peer == rank);
        let is_lost = book.losses.iter().any(|loss| loss.peer == peer) || has_left();
        is_lost || (self.is_killed(peer) || has_given_up()) && is_unmet()
    }

    /// Whether a process is gone that a rank has had to do with, and has not closed, and the transport has
    /// yet to report it.
    fn has_event_due(&self, rank: u32) -> bool {
        let book = self.ledger.book(rank);
        (0..self.plan.size).any(|peer| {
            let known = || book.losses.iter().any(|loss| loss.peer == peer) || book.closed.contains(&peer);
            let is_parked = self.parked.contains(&(rank, peer));
            self.is_killed(peer) && self.met.contains(&(rank, peer)) && !is_parked && !known()
        })
    }

    fn is_killed(&self, rank: u32) -> bool {
        self.ledger.book(rank).killed.is_some()
    }
}
