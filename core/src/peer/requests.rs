//! One-sided requests between two processes, both ways: how many are open, and what must be acknowledged
//! before another one takes a place (C-5, R-4, R-5).

use crate::seq::Seq;
use crate::store::List;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests {
    /// Ours without an answer, and those whose answer is not certainly acknowledged.
    open: u16,
    /// Those of them that are answered.
    answered: u16,
    /// An acknowledgment up to here covers all answers.
    answered_until: Seq,
    /// Behind the highest unordered PSN received.
    received_until: Seq,
    /// The peer's whose answer it has not acknowledged.
    admitted: u16,
    /// Answers that a rail holds or the peer has not acknowledged.
    pub serving: u16,
    /// Refusals of the peer's puts, as long as they have slots.
    pub refusals: List,
    /// Those that the peer has not acknowledged: it may take such puts for complete.
    refusing: u16,
    /// The peer acknowledged puts while it was refusing: none of them counts as complete.
    pub is_unconfirmed: bool,
}

impl Requests {
    /// None yet; the peer's PSNs begin at `first`.
    pub(crate) const fn starting_at(first: Seq) -> Requests {
        Requests {
            open: 0,
            answered: 0,
            answered_until: first,
            received_until: first,
            admitted: 0,
            serving: 0,
            refusals: List::EMPTY,
            refusing: 0,
            is_unconfirmed: false,
        }
    }

    /// The peer numbers its packets from `first` on.
    pub(crate) const fn begin_receiving(&mut self, first: Seq) {
        (self.answered_until, self.received_until) = (first, first);
    }

    // ---- ours

    /// An unordered packet was claimed.
    pub(crate) fn received(&mut self, psn: Seq) {
        if !psn.is_before(self.received_until) {
            self.received_until = psn.next();
        }
    }

    /// A request was sent.
    pub(crate) const fn sent(&mut self) {
        self.open += 1;
    }

    /// A request of ours has its answer.
    pub(crate) const fn answered(&mut self) {
        self.answered += 1;
        self.answered_until = self.received_until;
    }

    /// Whether answers wait to be acknowledged.
    pub(crate) const fn has_answers(&self) -> bool {
        self.answered != 0
    }

    /// Whether the next packet acknowledges all answers, so that new requests may take their places;
    /// `acked`: up to where it acknowledges.
    pub(crate) fn answers_are_acknowledged(&self, acked: Seq) -> bool {
        self.answered > 0 && !acked.is_before(self.answered_until)
    }

    /// The next packet acknowledges all answers: they count as open until then (C-5).
    pub(crate) const fn close_answered(&mut self) {
        self.open -= self.answered;
        self.answered = 0;
    }

    /// Whether another one must wait; `max`: as many as the peer serves.
    pub(crate) const fn is_full(&self, max: u16) -> bool {
        self.open >= max
    }

    /// Whether one has no answer.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.open != self.answered
    }

    // ---- the peer's

    /// Room for one more of the peer's; `false`: there is none.
    #[must_use]
    pub(crate) const fn admit(&mut self, max: u16) -> bool {
        let is_admitted = self.admitted < max;
        self.admitted += is_admitted as u16;
        is_admitted
    }

    /// The peer has acknowledged an answer.
    pub(crate) const fn answer_acknowledged(&mut self) {
        self.admitted -= 1;
    }

    /// The peer's requests whose answer it has not acknowledged.
    pub(crate) const fn admitted(&self) -> u16 {
        self.admitted
    }

    /// A put is refused.
    pub(crate) const fn refuse(&mut self) {
        self.refusing += 1;
    }

    /// The peer has acknowledged a refusal.
    pub(crate) const fn refusal_acknowledged(&mut self) {
        self.refusing -= 1;
    }

    /// Whether the peer may take a refused put for complete: packets must warn it.
    pub(crate) const fn is_refusing(&self) -> bool {
        self.refusing > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C-5: an answer keeps its place until a packet acknowledges it.
    #[test]
    fn places_are_free_when_answers_are_acknowledged() {
        let mut requests = Requests::starting_at(Seq(u32::MAX));
        requests.sent();
        requests.sent();
        assert!(requests.is_full(2) && requests.is_waiting() && !requests.has_answers());
        // The answer is packet 0; packet -1 is missing.
        requests.received(Seq(0));
        requests.answered();
        assert!(!requests.answers_are_acknowledged(Seq(u32::MAX)) && !requests.answers_are_acknowledged(Seq(0)));
        // An older packet changes nothing.
        requests.received(Seq(u32::MAX));
        assert!(requests.answers_are_acknowledged(Seq(1)));
        requests.close_answered();
        assert!(!requests.is_full(2) && requests.is_waiting() && !requests.has_answers());
        assert!(!requests.answers_are_acknowledged(Seq(1)), "there is none");
    }

    ///
    #[test]
    fn the_peer_is_admitted_up_to_the_limit() {
        let mut requests = Requests::starting_at(Seq(0));
        assert!(requests.admit(2) && requests.admit(2) && !requests.admit(2));
        assert_eq!(requests.admitted(), 2);
        requests.answer_acknowledged();
        assert!(requests.admit(2));
    }

    ///
    #[test]
    fn a_refusal_warns_until_it_is_acknowledged() {
        let mut requests = Requests::starting_at(Seq(0));
        requests.refuse();
        requests.refuse();
        requests.refusal_acknowledged();
        assert!(requests.is_refusing());
        requests.refusal_acknowledged();
        assert!(!requests.is_refusing());
    }
}
