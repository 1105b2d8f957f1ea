//! What the exchange does, round by round: every rank computes the same plan from the same few numbers.
//!
//! Rounds are separated by barriers. Small sizes go between all pairs at once; where that would exceed
//! [`ROUND_BYTES`] of one rank's memory, the round is divided into shifts: in shift k rank r sends to rank r
//! + k.

use serde::{Deserialize, Serialize};

/// Payload that one rank sends in one round, unless a single message is larger.
pub const ROUND_BYTES: u64 = 64 << 20;

/// The sizes that an exchange goes through: around every switch of protocol, and up to large.
pub const SIZES: [u64; 13] =
    [0, 1, 8, 63, 64, 1 << 10, 4 << 10, 8 << 10, (8 << 10) + 1, 64 << 10, 1 << 20, 16 << 20, 64 << 20];

/// What a round is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Receives are posted before the sends.
    Posted,
    /// Sends are submitted before the receives, and have arrived.
    Unexpected,
    /// One stream of changing sizes per pair, which must match in order across eager and rendezvous.
    Ordered,
    /// Receives from any source with any tag of the round.
    Wildcard,
    /// Messages without a tag.
    Untagged,
    /// Sends in three pieces into receives of two, cut elsewhere.
    Segments,
    /// Three pieces of odd lengths on each side, cut differently, at odd addresses a few bytes apart.
    Scattered,
    /// The buffer is overwritten as soon as the send is submitted.
    Inject,
    /// One buffer takes message after message.
    MultiReceive,
    /// Receives that are too short.
    Truncation,
    /// Messages found by probe, claimed and received later.
    Claim,
    /// A receive that nothing matches, cancelled.
    Cancel,
    /// Puts, then flush.
    Put,
    /// Gets.
    Get,
    /// Accesses that the target must refuse.
    Refusal,
    /// Every rank adds to a number at every rank.
    FetchAdd,
    /// Every rank increments a number at every rank by compare-and-swap.
    CompareSwap,
}

impl Kind {
    /// Every kind, in the order of the report.
    pub const ALL: [Kind; 17] = [
        Kind::Posted,
        Kind::Unexpected,
        Kind::Ordered,
        Kind::Wildcard,
        Kind::Untagged,
        Kind::Segments,
        Kind::Scattered,
        Kind::Inject,
        Kind::MultiReceive,
        Kind::Truncation,
        Kind::Claim,
        Kind::Cancel,
        Kind::Put,
        Kind::Get,
        Kind::Refusal,
        Kind::FetchAdd,
        Kind::CompareSwap,
    ];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Posted => "posted",
            Kind::Unexpected => "unexpected",
            Kind::Ordered => "ordered",
            Kind::Wildcard => "wildcard",
            Kind::Untagged => "untagged",
            Kind::Segments => "segments",
            Kind::Scattered => "scattered",
            Kind::Inject => "inject",
            Kind::MultiReceive => "multi-receive",
            Kind::Truncation => "truncation",
            Kind::Claim => "claim",
            Kind::Cancel => "cancel",
            Kind::Put => "put",
            Kind::Get => "get",
            Kind::Refusal => "refusal",
            Kind::FetchAdd => "fetch-add",
            Kind::CompareSwap => "compare-swap",
        }
    }

    /// The property that is checked, for the report.
    pub const fn claim(self) -> &'static str {
        match self {
            Kind::Posted => "every byte, in order, receives posted first",
            Kind::Unexpected => "every byte, in order, messages there before the receives",
            Kind::Ordered => "matching order across eager and rendezvous",
            Kind::Wildcard => "any source and tag: each message once, in order per sender",
            Kind::Untagged => "immediates and payloads without tags",
            Kind::Segments => "several pieces, cut differently on both sides",
            Kind::Scattered => "pieces at odd addresses in common pages, nothing between them",
            Kind::Inject => "the buffer is free at once",
            Kind::MultiReceive => "many messages in one buffer, back to back",
            Kind::Truncation => "reported with both sizes; what fits is right; nothing beyond",
            Kind::Claim => "probe is right; the claimed message comes",
            Kind::Cancel => "a cancelled receive takes nothing",
            Kind::Put => "in place after flush, nothing beside",
            Kind::Get => "every byte of a peer's memory",
            Kind::Refusal => "wrong window, range and access are refused, the channel stays",
            Kind::FetchAdd => "the sum is exact, no old value twice",
            Kind::CompareSwap => "the sum is exact under contention",
        }
    }
}

/// One message or one-sided transfer of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The rank that sends (or puts, or owns the memory of a get).
    pub source: u32,
    /// The rank that receives (or owns the memory of a put, or reads).
    pub target: u32,
    /// Its number among those of the pair in this round.
    pub number: u64,
    /// Payload bytes.
    pub bytes: u64,
}

/// A round: its kind, and its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// What it is about.
    pub kind: Kind,
    /// The size in bytes; where sizes vary, the largest.
    pub bytes: u64,
    /// Transfers per pair.
    pub count: u64,
    /// `Some(k)`: only from rank r to rank r + k; `None`: between all pairs.
    pub shift: Option<u32>,
}

impl Round {
    /// The ranks that `rank` sends to.
    pub fn targets(&self, rank: u32, ranks: u32) -> Vec<u32> {
        match self.shift {
            Some(shift) => vec![(rank + shift) % ranks],
            // Each rank starts with itself, so that rank 0 is not the first of all.
            None => (0..ranks).map(|step| (rank + step) % ranks).collect(),
        }
    }

    /// The ranks that send to `rank`.
    pub fn sources(&self, rank: u32, ranks: u32) -> Vec<u32> {
        match self.shift {
            Some(shift) => vec![(rank + ranks - shift % ranks) % ranks],
            None => (0..ranks).map(|step| (rank + step) % ranks).collect(),
        }
    }

    /// The transfers from `source` to `target`, in order.
    pub fn transfers(&self, source: u32, target: u32) -> impl Iterator<Item = Transfer> + '_ {
        (0..self.count).map(move |number| Transfer { source, target, number, bytes: self.size(number) })
    }

    /// The size of message `number`.
    fn size(&self, number: u64) -> u64 {
        match self.kind {
            // Small and large in turn, so that a rendezvous is overtaken by eager messages if order is not
            // kept.
            Kind::Ordered if number.is_multiple_of(2) => self.bytes.saturating_sub(number * 64),
            Kind::Ordered => (number * 61 % 200).min(self.bytes),
            Kind::MultiReceive => (number + 1) * self.bytes / self.count,
            _ => self.bytes,
        }
    }

    /// Payload bytes that one rank sends in this round.
    pub fn bytes_per_rank(&self, ranks: u32) -> u64 {
        let targets = if self.shift.is_some() { 1 } else { u64::from(ranks) };
        let per_pair: u64 = self.transfers(0, 0).map(|transfer| transfer.bytes).sum();
        targets * per_pair
    }
}

/// What a plan is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Processes.
    pub ranks: u32,
    /// No message is larger.
    pub bytes_max: u64,
    /// Fewer repetitions.
    pub quick: bool,
}

/// All rounds of an exchange.
pub fn plan(scope: &Scope) -> Vec<Round> {
    let mut sizes: Vec<u64> = SIZES.into_iter().filter(|&bytes| bytes <= scope.bytes_max).collect();
    if sizes.last() != Some(&scope.bytes_max) {
        sizes.push(scope.bytes_max);
    }
    let mut rounds = Vec::new();
    for kind in [Kind::Posted, Kind::Unexpected] {
        for &bytes in &sizes {
            push(&mut rounds, scope, kind, bytes, repetitions(scope, bytes));
        }
    }
    let up_to = |limit: u64| limit.min(scope.bytes_max);
    push(&mut rounds, scope, Kind::Ordered, up_to(64 << 10), if scope.quick { 16 } else { 48 });
    for bytes in [up_to(64), up_to(64 << 10)] {
        push(&mut rounds, scope, Kind::Wildcard, bytes, 16);
        push(&mut rounds, scope, Kind::Untagged, bytes, 8);
        push(&mut rounds, scope, Kind::Claim, bytes, 2);
        push(&mut rounds, scope, Kind::Truncation, bytes, 4);
    }
    for bytes in [up_to(1 << 10), up_to(256 << 10)] {
        push(&mut rounds, scope, Kind::Segments, bytes, 4);
    }
    for bytes in [0, up_to(8), up_to(4 << 10)] {
        push(&mut rounds, scope, Kind::Inject, bytes, 16);
    }
    push(&mut rounds, scope, Kind::MultiReceive, up_to(4 << 10), 24);
    push(&mut rounds, scope, Kind::Cancel, 0, 1);
    for kind in [Kind::Put, Kind::Get] {
        for &bytes in &sizes {
            push(&mut rounds, scope, kind, bytes, repetitions(scope, bytes).min(4));
        }
    }
    push(&mut rounds, scope, Kind::Refusal, 0, 1);
    push(&mut rounds, scope, Kind::FetchAdd, 8, if scope.quick { 16 } else { 64 });
    push(&mut rounds, scope, Kind::CompareSwap, 8, if scope.quick { 4 } else { 16 });
    for bytes in [13, (8 << 10) + 1, (64 << 10) + 13, (1 << 20) + 4097, (4 << 20) + 5].map(up_to) {
        push(&mut rounds, scope, Kind::Scattered, bytes, repetitions(scope, bytes).clamp(2, 8));
    }
    rounds
}

/// How often a size is sent per pair: often where it is cheap.
fn repetitions(scope: &Scope, bytes: u64) -> u64 {
    let full: u64 = match bytes {
        0..=1024 => 32,
        1025..=65_536 => 8,
        65_537..=1_048_576 => 2,
        _ => 1,
    };
    if scope.quick { full.div_ceil(4) } else { full }
}

fn push(rounds: &mut Vec<Round>, scope: &Scope, kind: Kind, bytes: u64, count: u64) {
    let whole = Round { kind, bytes, count, shift: None };
    if whole.bytes_per_rank(scope.ranks) <= ROUND_BYTES {
        rounds.push(whole);
    } else {
        rounds.extend((0..scope.ranks).map(|shift| Round { shift: Some(shift), ..whole }));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SCOPE: Scope = Scope { ranks: 4, bytes_max: 64 << 20, quick: false };

    #[test]
    fn plan_covers_every_kind_and_every_size_on_every_pair() {
        let rounds = plan(&SCOPE);
        for kind in Kind::ALL {
            assert!(rounds.iter().any(|round| round.kind == kind), "{kind:?}");
        }
        for kind in [Kind::Posted, Kind::Unexpected, Kind::Put, Kind::Get] {
            for bytes in SIZES {
                let mut pairs = BTreeSet::new();
                for round in rounds.iter().filter(|round| round.kind == kind && round.bytes == bytes) {
                    for source in 0..4 {
                        pairs.extend(round.targets(source, 4).into_iter().map(|target| (source, target)));
                    }
                }
                assert_eq!(pairs.len(), 16, "{kind:?} {bytes}");
            }
        }
    }

    #[test]
    fn sources_are_the_inverse_of_targets() {
        for ranks in 1..7 {
            for shift in (0..ranks).map(Some).chain([None]) {
                let round = Round { kind: Kind::Posted, bytes: 1, count: 1, shift };
                for source in 0..ranks {
                    for target in round.targets(source, ranks) {
                        assert!(round.sources(target, ranks).contains(&source), "{ranks} {shift:?}");
                    }
                }
                let out: usize = (0..ranks).map(|rank| round.targets(rank, ranks).len()).sum();
                let back: usize = (0..ranks).map(|rank| round.sources(rank, ranks).len()).sum();
                assert_eq!(out, back);
            }
        }
    }

    #[test]
    fn memory_per_round_is_bounded() {
        for ranks in [1, 2, 4, 16] {
            for round in plan(&Scope { ranks, ..SCOPE }) {
                let bytes = round.bytes_per_rank(ranks);
                assert!(bytes <= ROUND_BYTES.max(round.bytes * round.count), "{round:?}: {bytes}");
            }
        }
    }

    #[test]
    fn small_byte_limit_is_kept_and_used_as_a_size() {
        for bytes_max in [0, 5, 100, 1 << 20] {
            let rounds = plan(&Scope { bytes_max, ..SCOPE });
            let atomics = [Kind::FetchAdd, Kind::CompareSwap];
            let others = rounds.iter().filter(|round| !atomics.contains(&round.kind));
            assert_eq!(others.clone().map(|round| round.bytes).max(), Some(bytes_max));
            // No message is larger than its round's size, as that determines the memory allocated.
            for round in others {
                assert!(round.transfers(0, 1).all(|transfer| transfer.bytes <= round.bytes), "{round:?}");
            }
        }
    }

    #[test]
    fn streams_mix_small_and_large() {
        let round = Round { kind: Kind::Ordered, bytes: 65_536, count: 6, shift: None };
        let sizes: Vec<u64> = round.transfers(0, 1).map(|transfer| transfer.bytes).collect();
        assert_eq!(sizes, [65_536, 61, 65_408, 183, 65_280, 105]);
    }
}
