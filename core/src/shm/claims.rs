//! The word by which two processes share the copying of one message (L-22): its reader claims from the front,
//! its owner from the back, until both meet.
//!
//! ```text
//! bits  0..20  front       units that the reader has claimed
//!      20..40  back        units that the owner has claimed
//!      40..62  generation  of the message
//!      62      withdrawn   by the reader: nothing more is to be claimed
//!      63      left        by the owner: it claims nothing more, and copies nothing any more
//! ```
//!
//! Invariants: a unit is claimed once, because a claim is one exchange of the whole word, and an exchange
//! fails after any other. Each side keeps its own state privately, and takes from the word what the other
//! side may have changed: the reader finds its own half as it left it, the owner's half never smaller and
//! never past its own, or it gives up with a [`RingError`].

use core::sync::atomic::Ordering::{AcqRel, Acquire};

use super::cells::{RingError, Word};

/// The most units of a message.
pub const CLAIM_UNITS_MAX: u32 = (1 << BITS) - 1;
/// Generations are below this.
pub const CLAIM_GENERATIONS: u32 = 1 << 22;

const BITS: u32 = 20;
const GENERATION_AT: u32 = 2 * BITS;
const WITHDRAWN: u64 = 1 << 62;
const LEFT: u64 = 1 << 63;

/// The fields of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    front: u32,
    back: u32,
    generation: u32,
    withdrawn: bool,
    left: bool,
}

impl State {
    const fn of(bits: u64) -> Self {
        State {
            front: bits as u32 & CLAIM_UNITS_MAX,
            back: (bits >> BITS) as u32 & CLAIM_UNITS_MAX,
            generation: (bits >> GENERATION_AT) as u32 & (CLAIM_GENERATIONS - 1),
            withdrawn: bits & WITHDRAWN != 0,
            left: bits & LEFT != 0,
        }
    }

    const fn bits(self) -> u64 {
        let flags = (self.withdrawn as u64) << 62 | (self.left as u64) << 63;
        (self.front as u64) | (self.back as u64) << BITS | (self.generation as u64) << GENERATION_AT | flags
    }
}

/// Names one claim of an owner in all that it does: not 0, and another one for each.
const fn token_of(generation: u32, back: u32) -> u64 {
    State { front: 0, back, generation, withdrawn: false, left: false }.bits()
}

/// Units of a message: the first, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Where they start.
    pub first: u32,
    /// How many they are.
    pub count: u32,
}

/// The reader's half.
#[derive(Clone, Debug)]
pub struct ReaderClaims {
    generation: u32,
    units: u32,
    front: u32,
    back: u32,
    left: bool,
    withdrawn: bool,
}

impl ReaderClaims {
    /// Writes the word for a new message. No claim of an earlier one is in progress.
    pub fn offer(word: &impl Word<u64>, generation: u32, units: u32) -> Self {
        debug_assert!(generation > 0 && generation < CLAIM_GENERATIONS && units <= CLAIM_UNITS_MAX);
        // An exchange, as all writes to it: so the word has one history, and what the owner does late to
        // the word of an earlier message fails.
        word.swap(token_of(generation, 0), AcqRel);
        ReaderClaims { generation, units, front: 0, back: 0, left: false, withdrawn: false }
    }

    /// Claims the next units: as many as `most` returns of those that are unclaimed. `None`: all are claimed.
    pub fn take(&mut self, word: &impl Word<u64>, most: impl Fn(u32) -> u32) -> Result<Option<Claimed>, RingError> {
        loop {
            let seen = self.read_state(word)?;
            let unclaimed = self.units - self.front - self.back;
            if unclaimed == 0 {
                return Ok(None);
            }
            let count = most(unclaimed).clamp(1, unclaimed);
            let next = State { front: self.front + count, ..State::of(seen) };
            if word.replace(seen, next.bits(), Acquire) {
                let first = self.front;
                self.front += count;
                return Ok(Some(Claimed { first, count }));
            }
        }
    }

    /// Has the owner claim nothing more.
    pub fn withdraw(&mut self, word: &impl Word<u64>) -> Result<(), RingError> {
        while !self.withdrawn {
            let seen = self.read_state(word)?;
            self.withdrawn = word.replace(seen, seen | WITHDRAWN, Acquire);
        }
        Ok(())
    }

    /// Takes what the owner has done to the word, checked.
    pub fn read_state(&mut self, word: &impl Word<u64>) -> Result<u64, RingError> {
        let seen = word.load(Acquire);
        let state = State::of(seen);
        let is_ours = (state.generation, state.front) == (self.generation, self.front)
            && state.withdrawn == self.withdrawn
            && (state.left || !self.left);
        // Neither less than before, nor past what this side has; from a side that has left, no more.
        let is_back =
            state.back >= self.back && state.back <= self.units - self.front && !(self.left && state.back > self.back);
        if !is_ours || !is_back {
            return Err(RingError { field: "claims", value: state.back });
        }
        (self.back, self.left) = (state.back, state.left);
        Ok(seen)
    }

    /// Units that this side has claimed.
    pub const fn front(&self) -> u32 {
        self.front
    }

    /// Whether nothing was unclaimed at the last look.
    pub const fn is_all_claimed(&self) -> bool {
        self.front + self.back == self.units
    }

    /// Units that the owner had claimed at the last look.
    pub const fn back(&self) -> u32 {
        self.back
    }

    /// Whether the owner had left at the last look.
    pub const fn has_left(&self) -> bool {
        self.left
    }

    /// Names the owner's last claim.
    pub const fn token(&self) -> u64 {
        token_of(self.generation, self.back)
    }

    /// Where the units start whose copies the owner has finished, the last of which it names so. A name that
    /// is none of its claims' names nothing.
    pub const fn finished_from(&self, token: u64) -> u32 {
        let back = State::of(token).back;
        if token == token_of(self.generation, back) && back <= self.back { self.units - back } else { self.units }
    }
}

/// The owner's half.
#[derive(Debug)]
pub struct OwnerClaims {
    generation: u32,
    units: u32,
    back: u32,
}

/// Attempts of the owner to change the word: a reader that writes it all the time harms its own
/// transfer only.
const TRIES_MAX: u32 = 64;

impl OwnerClaims {
    /// Of a message that the reader has named; `None`: there is no such one.
    pub const fn new(generation: u32, units: u32) -> Option<Self> {
        let exists = generation > 0 && generation < CLAIM_GENERATIONS && units > 0 && units <= CLAIM_UNITS_MAX;
        if exists { Some(OwnerClaims { generation, units, back: 0 }) } else { None }
    }

    /// Claims units at the back: as many as `most` returns of those that are unclaimed. `None`: nothing more
    /// is to be claimed of this message.
    pub fn take(&mut self, word: &impl Word<u64>, most: impl Fn(u32) -> u32) -> Option<Claimed> {
        for _ in 0..TRIES_MAX {
            let seen = word.load(Acquire);
            let state = State::of(seen);
            // Whatever the reader may have written: this side's own half is private.
            let is_over = state.generation != self.generation || state.back != self.back;
            let unclaimed = self.units.checked_sub(self.back)?.checked_sub(state.front)?;
            if is_over || state.withdrawn || state.left || unclaimed == 0 {
                return None;
            }
            let count = most(unclaimed).clamp(1, unclaimed);
            let back = self.back + count;
            if word.replace(seen, State { back, ..state }.bits(), Acquire) {
                self.back = back;
                return Some(Claimed { first: self.units - back, count });
            }
        }
        None
    }

    /// This side copies nothing of this message any more.
    pub fn leave(&self, word: &impl Word<u64>) {
        for _ in 0..TRIES_MAX {
            let seen = word.load(Acquire);
            // Else it is another message's.
            if State::of(seen).generation != self.generation || word.replace(seen, seen | LEFT, AcqRel) {
                return;
            }
        }
    }

    /// Names the last claim.
    pub const fn token(&self) -> u64 {
        token_of(self.generation, self.back)
    }

    /// Units claimed.
    pub const fn back(&self) -> u32 {
        self.back
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    /// Each unit is claimed once, whichever side comes first, and both see the end.
    #[test]
    fn each_unit_is_claimed_once() {
        for turns in 0u32..256 {
            let (word, units) = (AtomicU64::new(0), 11);
            let mut reader = ReaderClaims::offer(&word, 5, units);
            let mut owner = OwnerClaims::new(5, units).unwrap();
            let mut owners = [None; 11];
            let mut turn = 0;
            loop {
                let is_reader = turns >> (turn % 8) & 1 == 0;
                turn += 1;
                let most = |left: u32| left / 3;
                let claimed = match is_reader {
                    true => reader.take(&word, most).unwrap(),
                    false => owner.take(&word, most),
                };
                let Some(Claimed { first, count }) = claimed else { break };
                for unit in first..first + count {
                    assert_eq!(owners[unit as usize].replace(is_reader), None, "turns {turns:b}");
                }
            }
            reader.read_state(&word).unwrap();
            assert_eq!((owner.take(&word, |_| 1), reader.take(&word, |_| 1)), (None, Ok(None)));
            assert_eq!(reader.token(), owner.token());
            assert_eq!(reader.finished_from(owner.token()), reader.front());
            assert!(owners.iter().all(Option::is_some));
            let is_split = (0..units as usize).all(|unit| owners[unit] == Some((unit as u32) < reader.front()));
            assert!(is_split, "the reader's are in front");
        }
    }

    #[test]
    fn withdrawn_or_abandoned_units_are_not_claimed() {
        let word = AtomicU64::new(0);
        let (mut reader, mut owner) = (ReaderClaims::offer(&word, 1, 10), OwnerClaims::new(1, 10).unwrap());
        assert_eq!(owner.take(&word, |_| 3), Some(Claimed { first: 7, count: 3 }));
        reader.withdraw(&word).unwrap();
        assert_eq!((owner.take(&word, |_| 1), reader.back(), reader.has_left()), (None, 3, false));
        owner.leave(&word);
        reader.read_state(&word).unwrap();
        assert!(reader.has_left());
        assert_eq!((reader.finished_from(token_of(1, 3)), reader.finished_from(token_of(1, 2))), (7, 8));
        assert_eq!(reader.finished_from(token_of(2, 3)), 10, "another message's claim");
        // A message later, nothing of the one before counts.
        let mut stale = OwnerClaims::new(1, 10).unwrap();
        let mut reader = ReaderClaims::offer(&word, 2, 10);
        assert_eq!(stale.take(&word, |_| 1), None);
        stale.leave(&word);
        assert_eq!((reader.take(&word, |_| 4), reader.has_left()), (Ok(Some(Claimed { first: 0, count: 4 })), false));
        assert_eq!(reader.finished_from(token_of(1, 4)), 10);
        assert_eq!(reader.finished_from(token_of(2, 4)), 10, "it has claimed none");
        assert_eq!(reader.finished_from(0), 10);
    }

    /// L-22: whatever the owner writes to the word, the reader claims each unit at most once, in order, or
    /// finds that no honest peer did this.
    #[test]
    fn invalid_claim_word_from_the_owner_is_an_error() {
        let honest = State { front: 4, back: 3, generation: 7, withdrawn: false, left: false };
        let lies = [
            State { front: 3, ..honest },
            State { front: 5, ..honest },
            State { back: 2, ..honest },
            State { back: 7, ..honest },
            State { back: CLAIM_UNITS_MAX, ..honest },
            State { generation: 6, ..honest },
            State { withdrawn: true, ..honest },
        ];
        for lie in lies {
            let word = AtomicU64::new(0);
            let (mut reader, mut owner) = (ReaderClaims::offer(&word, 7, 10), OwnerClaims::new(7, 10).unwrap());
            reader.take(&word, |_| 4).unwrap();
            owner.take(&word, |_| 3).unwrap();
            reader.read_state(&word).unwrap();
            assert_eq!(State::of(word.load(Relaxed)), honest);
            word.store(lie.bits(), Relaxed);
            assert!(reader.take(&word, |_| 1).is_err(), "{lie:?}");
            assert!(reader.withdraw(&word).is_err() && reader.read_state(&word).is_err(), "{lie:?}");
        }
        // One that has left does not come back, and claims nothing.
        for lie in [State { left: false, ..honest }, State { left: true, back: 4, ..honest }] {
            let word = AtomicU64::new(0);
            let (mut reader, mut owner) = (ReaderClaims::offer(&word, 7, 10), OwnerClaims::new(7, 10).unwrap());
            reader.take(&word, |_| 4).unwrap();
            owner.take(&word, |_| 3).unwrap();
            owner.leave(&word);
            reader.read_state(&word).unwrap();
            word.store(lie.bits(), Relaxed);
            assert!(reader.take(&word, |_| 1).is_err(), "{lie:?}");
        }
    }

    /// Whatever the reader writes to the word, the owner claims units of the message and each once.
    #[test]
    fn owner_claims_stay_within_the_message_for_any_claim_word() {
        let (word, units) = (AtomicU64::new(0), 50);
        let mut bits = 0x9E37_79B9_7F4A_7C15u64;
        for _ in 0..2_000 {
            let mut owner = OwnerClaims::new(9, units).unwrap();
            let mut first = units;
            for _ in 0..20 {
                bits = bits.wrapping_mul(0x5851_F42D_4C95_7F2D).rotate_left(23) ^ 0x1405;
                let mut state = State { generation: 9, ..State::of(bits) };
                (state.front, state.left) = (state.front % 64, false);
                state.back = if bits >> 60 == 0 { state.back } else { units - first };
                word.store(state.bits(), Relaxed);
                if let Some(claimed) = owner.take(&word, |left| left / 4) {
                    assert_eq!(claimed.first + claimed.count, first);
                    assert!(claimed.count > 0 && claimed.first >= state.front);
                    first = claimed.first;
                }
            }
        }
        assert!(OwnerClaims::new(0, 1).is_none() && OwnerClaims::new(1, 0).is_none());
        assert!(OwnerClaims::new(CLAIM_GENERATIONS, 1).is_none() && OwnerClaims::new(1, 1 << 20).is_none());
    }
}
