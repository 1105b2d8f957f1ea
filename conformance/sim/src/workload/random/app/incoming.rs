//! Receives: posted, and of claimed messages.

use rerail_core::endpoint::{RecvRequest, Selector, SubmitError};
use rerail_core::ids::{MessageId, PeerId};
use rerail_core::time::Nanos;
use rerail_linux::driver::RequestError;

use super::super::plan::Manner;
use super::memory::Zone;
use super::{Extent, Notify, Player, Refused, ReportNeed, Sort};
use crate::check::{Claim, Submission};
use crate::cluster::Cx;

/// How much later than the others of their turn late receives are posted, at most.
const LATE_NS_MAX: u64 = 30_000;

/// A claimed message of a liar gets so much room at most: memory is laid out for the messages of the plan.
const LIARS_BYTES_MAX: u64 = 512;

impl Player {
    /// How a receive is reported. How many messages of a liar come to a multi-receive its counter could not
    /// be checked for.
    fn notify_of(&self, cx: &Cx<'_>, from: Selector) -> Notify {
        let is_liar = from.source.is_some_and(|source| self.shared.borrow().ledger.is_liar(source.0));
        if is_liar { Notify::Event } else { self.notify(cx, ReportNeed::Event) }
    }

    /// Posts the receives of this turn; and of the next ones, once those of this one are over. True: tables
    /// are full.
    pub(super) fn post_receives(&mut self, cx: &mut Cx<'_>) -> bool {
        loop {
            let Some(&mut (turn, class, left)) = self.receives.front_mut() else { return false };
            // One turn at a time, or receives of later ones would take the room that earlier messages need.
            if turn > self.turn {
                if self.is_turn_open() {
                    return false;
                }
                self.turn = turn;
            }
            let left = left - self.surplus(class).min(left);
            if left == 0 {
                self.receives.pop_front();
                continue;
            }
            if self.is_early(cx, class) {
                return false;
            }
            let (selector, capacity, manner, plain) = {
                let shared = self.shared.borrow();
                let class = &shared.plan.classes[class];
                (class.selector, class.capacity, class.manner, class.plain)
            };
            let multi = manner == Manner::Multi;
            let zone = if manner == Manner::Posted { Zone::Turn } else { Zone::Receive };
            let Some(extents) = self.pieces(cx, zone, capacity, multi || plain) else { return true };
            self.blank(cx, &extents);
            let segs = self.segs(true, &extents);
            let notify = if plain { Notify::Event } else { self.notify_of(cx, selector) };
            let recv = RecvRequest {
                from: selector,
                segments: &segs,
                multi: multi.then_some(1),
                notify,
                cookie: self.cookie(),
            };
            let outcome = cx.engine.recv(&recv);
            let submission = match multi {
                true => Submission::Multi { from: selector, min: 1 },
                false => Submission::Receive { from: selector, claimed: None },
            };
            match self.entered(cx, outcome, submission, (extents, true), Some(class), (Sort::Receive, notify, None)) {
                Ok(_) => {
                    if let Some(front) = self.receives.front_mut() {
                        front.2 = left - 1;
                    }
                }
                Err(Refused::Full) => return true,
                // Its only sender is gone.
                Err(Refused::Gone) => {
                    self.receives.pop_front();
                }
            }
        }
    }

    /// Whether receives of a class are to be posted later than now; then the rank wakes when they are.
    fn is_early(&mut self, cx: &mut Cx<'_>, class: usize) -> bool {
        if !self.shared.borrow().plan.classes[class].late {
            return false;
        }
        let due = *self.late.entry(class).or_insert_with(|| cx.now + Nanos(cx.rng.within(1, LATE_NS_MAX)));
        if cx.now < due {
            cx.wake_at(due);
        }
        cx.now < due
    }

    /// Whether a receive of this turn is posted that something may still come for.
    fn is_turn_open(&self) -> bool {
        let shared = self.shared.borrow();
        self.open.values().filter_map(|open| open.class).any(|class| {
            let class = &shared.plan.classes[class];
            class.manner == Manner::Posted && class.members.iter().any(|index| shared.is_coming(*index, self.rank))
        })
    }

    /// Looks for messages that are received by claiming them. True: tables are full.
    pub(super) fn claim(&mut self, cx: &mut Cx<'_>) -> bool {
        if !self.receive_held(cx) {
            return true;
        }
        if self.claims_left == 0 {
            return false;
        }
        let claims = self.claims.clone();
        for class in claims {
            let selector = self.shared.borrow().plan.classes[class].selector;
            loop {
                match self.claim_one(cx, selector, Some(class)) {
                    Claimed::One => self.claims_left = self.claims_left.saturating_sub(1),
                    Claimed::None => break,
                    Claimed::Full => return true,
                }
                if self.failed {
                    return false;
                }
            }
        }
        false
    }

    /// Claims a message that this selector takes, and receives it.
    pub(super) fn claim_one(&mut self, cx: &mut Cx<'_>, selector: Selector, class: Option<usize>) -> Claimed {
        // What is claimed is this rank's to receive, before anything else is.
        if !self.receive_held(cx) {
            return Claimed::Full;
        }
        let Some(found) = cx.engine.probe(&selector) else { return Claimed::None };
        // A liar announces any length.
        let is_liar = self.shared.borrow().ledger.is_liar(found.peer.0);
        let bytes = if is_liar { found.bytes.min(LIARS_BYTES_MAX) } else { found.bytes };
        let pieces = self.pieces(cx, Zone::Receive, bytes, false);
        let pieces = pieces.or_else(|| self.pieces(cx, Zone::Claimed, bytes, true));
        // What lies here unasked has the room of the receive that it was for.
        let Some(extents) = pieces.or_else(|| self.pieces(cx, Zone::Turn, bytes, true)) else {
            return Claimed::Full;
        };
        self.blank(cx, &extents);
        if !self.shared.borrow_mut().ledger.probed(self.rank, cx.now, selector, &found) {
            self.failed = true;
            return Claimed::None;
        }
        let Some((message, found)) = cx.engine.claim(&selector) else {
            self.give_back(cx, true, &extents);
            return Claimed::None;
        };
        let Some(claimed) = self.shared.borrow_mut().ledger.claimed(self.rank, cx.now, &found) else {
            self.failed = true;
            return Claimed::None;
        };
        let notify = self.notify(cx, ReportNeed::Event);
        self.held = Some(Held { message, peer: found.peer, claimed, selector, extents, class, notify });
        self.receive_held(cx);
        Claimed::One
    }

    /// Receives what is claimed and is not received yet. False: there is still no operation for it; that it
    /// could be claimed is no promise of one.
    fn receive_held(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(held) = self.held.take() else { return true };
        let segs = self.segs(true, &held.extents);
        let (from, notify) = (held.selector, held.notify);
        let recv = RecvRequest { notify, cookie: self.cookie(), ..RecvRequest::new(from, &segs) };
        let outcome = cx.engine.recv_claimed(held.message, &recv);
        match outcome {
            Err(error) if error.is_full() => {
                self.held = Some(held);
                return false;
            }
            // It was not here whole when its sender was lost (G-10).
            Err(RequestError::Submit(SubmitError::UnknownMessage))
                if self.shared.borrow().ledger.is_parted(self.rank, held.peer.0) =>
            {
                self.give_back(cx, true, &held.extents);
                return true;
            }
            _ => {}
        }
        let submission = Submission::Receive { from, claimed: Some(held.claimed) };
        let _ = self.entered(cx, outcome, submission, (held.extents, true), held.class, (Sort::Receive, notify, None));
        true
    }
}

/// A claimed message for which there was no operation yet.
pub(super) struct Held {
    message: MessageId,
    peer: PeerId,
    claimed: Claim,
    selector: Selector,
    extents: Vec<Extent>,
    class: Option<usize>,
    notify: Notify,
}

/// What came of looking for a message to claim.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Claimed {
    /// There was one.
    One,
    /// There was none, or what there was is wrong.
    None,
    /// There was no room for it.
    Full,
}
