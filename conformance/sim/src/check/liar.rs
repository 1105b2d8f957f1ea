//! Simulations with a liar: what honest ranks do among each other is judged as ever, and what is between them
//! and the liar is not, but for three things. Its requests end, and end once; nothing is written beside their
//! buffers; and nothing of them is left behind.

use rerail_core::endpoint::{Completion, OpError};
use rerail_core::time::Time;

use super::ledger::{Book, Ledger, Request, Submission};
use super::verdict::{Corruption, Stuck, Verdict};

impl Ledger {
    /// One rank lies: see [`LiarSpec`](crate::scenario::LiarSpec).
    pub fn set_liar(&mut self, rank: u32) {
        self.liar = Some(rank);
    }

    /// Whether any rank lies.
    pub fn has_liar(&self) -> bool {
        self.liar.is_some()
    }

    /// Whether a rank is the liar.
    pub fn is_liar(&self, rank: u32) -> bool {
        self.liar == Some(rank)
    }

    /// Whether a completion is the liar's, or of a request at it.
    pub(super) fn is_of_liar(&self, rank: u32, entry: &Request, completion: &Completion) -> bool {
        let Some(liar) = self.liar else { return false };
        let from = match (completion.result, &entry.submission) {
            (Ok(done), Submission::Receive { .. } | Submission::Multi { .. }) => Some(done.peer.0),
            (Err(OpError::Truncated { peer, .. } | OpError::PeerLost { peer, .. }), _) => Some(peer.0),
            (Err(OpError::PeerClosed { peer } | OpError::Refused { peer, .. }), _) => Some(peer.0),
            _ => None,
        };
        rank == liar || entry.submission.peer().or(from) == Some(liar) && from.is_none_or(|from| from == liar)
    }

    /// Whether a finding is about the liar's own memory, where the answers to its lies lie.
    pub(super) fn is_about_liar(&self, finding: &Verdict) -> bool {
        matches!(finding, Verdict::Corruption(Corruption { rank, .. }) if self.is_liar(*rank))
    }

    /// What the honest ranks have among each other: the liar's book is that of a process that was never
    /// there, its messages are none, and requests at it are requests of another sort that were taken back.
    pub(super) fn without(&self, liar: u32) -> Ledger {
        let mut honest = self.clone();
        honest.messages.retain(|(source, destination), _| *source != liar && *destination != liar);
        honest.slots.forget(|target, slot| target == liar || slot == liar + 1);
        honest.cells.forget(liar);
        for book in &mut honest.books {
            book.losses.retain(|loss| loss.peer != liar);
            book.requests.iter_mut().filter(|entry| entry.submission.peer() == Some(liar)).for_each(|entry| {
                entry.submission = Submission::Flush { target: liar };
                entry.parts.clear();
                if let Some((_, result @ Err(_))) = &mut entry.ended {
                    *result = Err(OpError::Cancelled);
                }
            });
        }
        if let Some(book) = honest.books.get_mut(liar as usize) {
            *book = Book { killed: Some(Time(0)), ..Book::default() };
        }
        honest.liar = None;
        honest
    }

    /// A verdict on [`without`](Self::without) that names requests at the liar as what they were.
    pub(super) fn as_requested(&self, mut verdict: Verdict) -> Verdict {
        let requests = match &mut verdict {
            Verdict::Stuck(Stuck::Waiting { requests, .. }) => &mut requests[..],
            Verdict::Stuck(Stuck::WaitingTooLong { request, .. }) => std::slice::from_mut(request),
            _ => &mut [],
        };
        requests.iter_mut().for_each(|request| *request = self.facts(request.rank, request.request));
        verdict
    }
}

#[cfg(test)]
mod tests {
    use rerail_core::endpoint::{Done, Loss, LossReason, ProtocolError};
    use rerail_core::ids::PeerId;
    use rerail_core::time::Nanos;

    use super::super::fixture::{Fixture, tagged, why};
    use super::super::{Duplicated, Ending, Lost, NoMemory, judge};
    use super::*;

    const LIAR: u32 = 2;

    fn fixture() -> Fixture {
        let mut fixture = Fixture::new(3);
        fixture.ledger.set_liar(LIAR);
        fixture
    }

    /// What comes of a liar may be anything: a message that was not sent, an error that names what it did, a
    /// loss.
    #[test]
    fn traffic_with_a_liar_is_not_judged() {
        let mut fixture = fixture();
        let request = fixture.recv(0, tagged(Some(LIAR), 7, 0));
        let done = Done { bytes: 16, tag: Some(9), ..Done::of(PeerId(LIAR)) };
        fixture.report(0, request, Ok(done), &[0xEE; 16]);
        let request = fixture.recv(0, tagged(Some(LIAR), 7, 0));
        let reason = LossReason::Protocol(ProtocolError::BadParameters);
        let lost = Loss::new(reason, 1, Nanos(0), [1]);
        fixture.report(0, request, Err(OpError::PeerLost { peer: PeerId(LIAR), why: lost }), &[0; 16]);
        let at = fixture.time();
        fixture.ledger.peer_lost(0, at, LIAR, lost);
        assert_eq!(fixture.verdict(), Verdict::Clean);
    }

    /// What is between others is: a message that comes twice, one that does not come, a peer that is lost.
    /// And a request at the liar ends once, like any other.
    #[test]
    fn liar_does_not_excuse_errors_between_other_ranks() {
        let mut twice = fixture();
        let name = twice.send(0, 1, 7);
        for _ in 0..2 {
            let request = twice.recv(1, tagged(Some(0), 7, 0));
            twice.got(request, name);
        }
        let verdict = twice.verdict();
        assert!(matches!(verdict, Verdict::Duplicated(Duplicated::Message { .. })), "{verdict}");

        let mut missing = fixture();
        missing.send(0, 1, 7);
        let verdict = missing.verdict();
        assert!(matches!(verdict, Verdict::Lost(Lost::Message { .. })), "{verdict}");

        let mut parted = fixture();
        let at = parted.time();
        parted.ledger.peer_lost(0, at, 1, why());
        let verdict = parted.verdict();
        assert!(matches!(verdict, Verdict::Lost(Lost::Peer(loss)) if loss.peer == 1), "{verdict}");

        let mut reported_twice = fixture();
        let request = reported_twice.recv(0, tagged(Some(LIAR), 7, 0));
        for _ in 0..2 {
            reported_twice.report(0, request, Ok(Done::of(PeerId(LIAR))), &[0; 16]);
        }
        let verdict = reported_twice.verdict();
        assert!(matches!(verdict, Verdict::Duplicated(Duplicated::Completion { .. })), "{verdict}");
    }
    /// A request at the liar that never ends is named as what it is.
    #[test]
    fn request_waiting_for_a_liar_is_listed_as_stuck() {
        let mut fixture = fixture();
        let request = fixture.recv(0, tagged(Some(LIAR), 7, 0));
        let ending = Ending { converged: false, quiet: false, ..fixture.ending() };
        let Verdict::Stuck(Stuck::Waiting { requests, count: 1, .. }) = judge(&fixture.ledger, &ending, &NoMemory)
        else {
            panic!("no request waits");
        };
        assert_eq!(requests, [fixture.ledger.facts(0, request)]);
        assert_eq!((requests[0].kind, requests[0].peer), ("receive", Some(LIAR)));
    }
}
