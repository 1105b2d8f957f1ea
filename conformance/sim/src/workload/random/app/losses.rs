//! What a rank does about lost peers: takes back what nothing can come for.

use std::collections::BTreeSet;

use rerail_core::endpoint::{Level, Selector, Send, TagMatch};
use rerail_core::ids::PeerId;

use super::super::plan::{Manner, posted_tags};
use super::incoming::Claimed;
use super::{Player, Refused, Shared, Sort};
use crate::check::Ask;
use crate::world::Cx;

impl Player {
    /// Whether a peer of this rank is gone, or this rank is gone for a peer.
    pub(super) fn is_orphaned(&self) -> bool {
        let shared = self.shared.borrow();
        (0..shared.plan.size).any(|peer| shared.ledger.is_parted(self.rank, peer))
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

    /// After peers were lost: what nothing can come for is taken back, and who may not know of a loss finds out.
    pub(super) fn look_after_losses(&mut self, cx: &mut Cx<'_>) {
        if !self.is_orphaned() {
            return;
        }
        let size = self.shared.borrow().plan.size;
        for peer in 0..size {
            let shared = self.shared.borrow();
            let lost = shared.ledger.book(self.rank).losses.iter().any(|loss| loss.peer == peer);
            let ask = shared.ledger.is_parted(self.rank, peer) && !lost && peer != self.rank;
            drop(shared);
            if ask && !self.pinged.contains(&peer) && self.ping(cx, peer) {
                self.pinged.insert(peer);
            }
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
        self.sweep(cx);
        let shared = self.shared.borrow();
        let coming = |class: &usize| {
            let class = &shared.plan.classes[*class];
            class.members.iter().filter(|index| shared.is_coming(**index, self.rank)).count()
        };
        self.claims_left = self.claims.iter().map(coming).sum();
        let messages = shared.plan.messages.iter().enumerate();
        let awaited =
            messages.filter(|(index, message)| message.destination == self.rank && shared.is_coming(*index, self.rank));
        self.awaited = awaited.count();
    }

    /// Sends an empty message to a peer that can't receive it any more, so that this rank finds out. A message, because
    /// requests that the peer left unanswered may be as many as it allows. False: not now.
    fn ping(&mut self, cx: &mut Cx<'_>, peer: u32) -> bool {
        let (tag, level) = (Some(u64::MAX), Level::Acknowledged);
        let name = self.shared.borrow().ledger.next_name(self.rank, peer);
        let send = Send { peer: PeerId(peer), tag, level, cookie: self.cookie(), ..Send::default() };
        let outcome = cx.engine.send(cx.now, &send);
        let ask = Ask::Send { name, len: 0, tag, immediate: false, level };
        let told = (Sort::Send, send.notify, None);
        !matches!(self.entered(cx, outcome, ask, (Vec::new(), false), None, told), Err(Refused::Full))
    }

    /// Receives what lies about unasked: messages of lost peers, whose receives were taken back; and those of other peers
    /// whose receives went to messages of a lost one, once all receives that they could be for are posted.
    fn sweep(&mut self, cx: &mut Cx<'_>) {
        let size = self.shared.borrow().plan.size;
        let lost = |peer: &u32| self.shared.borrow().ledger.is_parted(self.rank, *peer);
        let mut sources: Vec<Option<PeerId>> = (0..size).filter(lost).map(|peer| Some(PeerId(peer))).collect();
        let waiting = self.open.values().any(|open| open.class.is_some());
        // What lies here is for none of those that are posted; so where none is to be posted any more, it is for nobody, and
        // keeps its sender from sending what others wait for.
        if (!waiting || self.claims_left == 0) && self.receives.iter().all(|(_, _, left)| *left == 0) {
            sources.push(None);
        }
        let tags = [TagMatch::Untagged, TagMatch::Tagged { tag: 0, ignore: !0 }];
        let all = sources.into_iter().flat_map(|source| tags.map(|tag| Selector { source, tag }));
        let mut unasked: Vec<_> = all.collect();
        // So it is, turn by turn, with messages of this turn and those before that are not to be claimed: behind them
        // others wait for room.
        if self.receives.iter().all(|(turn, _, left)| *turn > self.turn || *left == 0) {
            let tags = (0..=self.turn).flat_map(posted_tags);
            unasked.extend(tags.map(|tag| Selector { source: None, tag }));
        }
        for selector in unasked {
            while self.claim_one(cx, selector, None) == Claimed::One {}
        }
    }
}

impl Shared {
    /// Whether a message may still come: it is not received, will be sent, and no loss is between its ends.
    pub(super) fn is_coming(&self, index: usize, rank: u32) -> bool {
        let message = &self.plan.messages[index];
        !self.received.contains(&index) && !self.void.contains(&index) && !self.ledger.is_parted(message.source, rank)
    }

    pub(super) fn has_parted(&self, rank: u32) -> bool {
        (0..self.plan.size).any(|peer| self.ledger.is_parted(rank, peer))
    }
}
