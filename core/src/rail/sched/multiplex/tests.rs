//! The machines against naive versions that look at all 64 rails, one after the other.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

const FREE: u64 = u64::MAX;

fn is(mask: u64, rail: usize) -> bool {
    mask >> rail & 1 == 1
}

/// Masks of a few rails as often as of many, and room for most of them.
fn rails() -> impl Strategy<Value = Candidates> {
    let mask = prop_oneof![any::<u64>(), 0u64..16, Just(u64::MAX), (0u32..64).prop_map(|rail| 1 << rail)];
    (mask.clone(), prop_oneof![Just(FREE), mask]).prop_map(|(up, room)| Candidates { up, room })
}

/// Mostly the same rails for a while, as in life.
fn history() -> impl Strategy<Value = Vec<Candidates>> {
    prop::collection::vec((rails(), 1usize..20), 1..12)
        .prop_map(|spells| spells.into_iter().flat_map(|(rails, times)| vec![rails; times]).collect())
}

/// Searches the rails in turn, from `start` on, once around.
fn around(start: usize, wanted: impl Fn(usize) -> bool) -> Option<usize> {
    (start..64).chain(0..start.min(64)).find(|rail| wanted(*rail))
}

/// Counts of `messages` picks.
fn count(messages: usize, mut pick: impl FnMut() -> Option<RailId>) -> BTreeMap<u8, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..messages {
        *counts.entry(pick().expect("there is room").0).or_default() += 1;
    }
    counts
}

proptest! {
    #[test]
    fn binding_is_its_oracle(rail in 0u8..64, history in history()) {
        let binding = Binding::to(RailId(rail));
        for rails in history {
            let oracle = around(rail.into(), |rail| is(rails.up, rail)).filter(|rail| is(rails.room, *rail));
            prop_assert_eq!(binding.pick(rails), oracle.map(|rail| RailId(rail as u8)));
        }
    }

    /// The processes of a node are spread over the rails as evenly as their number allows.
    #[test]
    fn local_ranks_are_dealt_out(eligible in 1u64.., processes in 1u32..200) {
        let mut counts = [0u32; 64];
        for rank in 0..processes {
            let rail = Binding::by_local_rank(rank, eligible).pick(Candidates { up: eligible, room: FREE }).unwrap();
            counts[usize::from(rail.0)] += 1;
        }
        let share = processes / eligible.count_ones();
        for (rail, count) in counts.iter().enumerate() {
            let fair = if is(eligible, rail) { share..=share + 1 } else { 0..=0 };
            prop_assert!(fair.contains(count), "rail {} has {}", rail, count);
        }
    }

    #[test]
    fn round_robin_is_its_oracle(history in history()) {
        let (mut turn, mut next) = (RoundRobin::default(), 0);
        for rails in history {
            let oracle = around(next, |rail| is(rails.up & rails.room, rail));
            let before = turn;
            let pick = turn.pick(rails);
            prop_assert_eq!(pick, oracle.map(|rail| RailId(rail as u8)));
            match oracle {
                Some(rail) => next = rail + 1,
                None => prop_assert_eq!(turn, before),
            }
        }
    }

    /// The oracle writes the cycle down as a list of turns and walks on it, once around, to a turn that can
    /// be taken.
    #[test]
    fn weighted_round_robin_is_its_oracle(
        weights in prop::collection::vec(0u16..6, 0..=64),
        history in history(),
    ) {
        let weight = |rail: usize| weights.get(rail).copied().unwrap_or(0);
        let mut turns: Vec<(u16, usize)> = Vec::new();
        for round in 0..6 {
            turns.extend((0..64).filter(|rail| weight(*rail) > round).map(|rail| (round, rail)));
        }
        let (mut turn, mut at) = (WeightedRoundRobin::default(), (0, 0));
        for rails in history {
            let before = turn;
            let pick = turn.pick(rails, &weights).map(|rail| usize::from(rail.0));
            let ready = |rail: usize| is(rails.up & rails.room, rail);
            if (0..64).any(|rail| is(rails.up, rail) && weight(rail) > 0) {
                let (past, coming): (Vec<_>, Vec<_>) = turns.iter().partition(|turn| **turn < at);
                let oracle = coming.into_iter().chain(past).find(|(_, rail)| ready(*rail));
                prop_assert_eq!(pick, oracle.map(|(_, rail)| rail));
                at = oracle.map_or(at, |(round, rail)| (round, rail + 1));
            } else {
                let oracle = around(at.1, ready);
                prop_assert_eq!(pick, oracle);
                at = oracle.map_or(at, |rail| (0, rail + 1));
            }
            if pick.is_none() {
                prop_assert_eq!(turn, before);
            }
        }
    }

    /// With room everywhere a cycle carries exactly the weights, wherever in the cycle one starts to count.
    #[test]
    fn a_cycle_carries_the_weights(weights in prop::collection::vec(1u16..300, 1..=64), skip in 0usize..1000) {
        let rails = Candidates { up: u64::MAX >> (64 - weights.len()), room: FREE };
        let mut turn = WeightedRoundRobin::default();
        for _ in 0..skip {
            turn.pick(rails, &weights);
        }
        let cycle = weights.iter().map(|weight| usize::from(*weight)).sum();
        let counts = count(cycle, || turn.pick(rails, &weights));
        for (rail, weight) in weights.iter().enumerate() {
            prop_assert_eq!(counts.get(&(rail as u8)).copied(), Some(usize::from(*weight)));
        }
    }

    /// The oracle keeps a window as the list of turns that are still to be taken, and forgets what led to no
    /// answer.
    #[test]
    fn window_round_robin_is_its_oracle(window in 0u16..9, history in history()) {
        let (mut turn, mut next, mut turns_due) = (WindowRoundRobin::default(), 0, Vec::<usize>::new());
        for rails in history {
            let before = turn;
            let pick = turn.pick(rails, window);
            let (mut list, mut after) = (turns_due.clone(), next);
            list.retain(|rail| is(rails.up, *rail));
            if list.is_empty()
                && let Some(rail) = around(next, |rail| is(rails.up & rails.room, rail))
            {
                list = vec![rail; usize::from(window.max(1))];
                after = rail + 1;
            }
            let oracle = list.pop().filter(|rail| is(rails.room, *rail));
            if oracle.is_some() {
                (turns_due, next) = (list, after);
            }
            prop_assert_eq!(pick, oracle.map(|rail| RailId(rail as u8)));
            if pick.is_none() {
                prop_assert_eq!(turn, before);
            }
        }
    }

    /// Equal weights, windows of one message and round robin are one and the same.
    #[test]
    fn equal_weights_behave_like_round_robin(history in history(), weight in 1u16..9) {
        let mut turns = (RoundRobin::default(), WindowRoundRobin::default());
        for rails in &history {
            prop_assert_eq!(turns.0.pick(*rails), turns.1.pick(*rails, 1));
        }
        let (mut plain, mut weighted) = (RoundRobin::default(), WeightedRoundRobin::default());
        for up in history.iter().map(|rails| rails.up).filter(|up| *up != 0).take(1) {
            for _ in 0..200 {
                let rails = Candidates { up, room: FREE };
                prop_assert_eq!(plain.pick(rails), weighted.pick(rails, &[weight; 64]));
            }
        }
    }

    /// Windows change the order only within W messages: per rail the counts are round robin's, W at a time.
    #[test]
    fn windows_are_fair(up in 1u64.., window in 1u16..50) {
        let mut turn = WindowRoundRobin::default();
        let messages = usize::from(window) * up.count_ones() as usize;
        let counts = count(messages, || turn.pick(Candidates { up, room: FREE }, window));
        prop_assert!(counts.values().all(|count| *count == usize::from(window)));
        prop_assert_eq!(counts.len(), up.count_ones() as usize);
    }
}

#[test]
fn four_to_one_is_interleaved() {
    let mut turn = WeightedRoundRobin::default();
    let rails = Candidates { up: 0b11, room: FREE };
    let picks: Vec<_> = (0..10).map(|_| turn.pick(rails, &[4, 1]).unwrap().0).collect();
    assert_eq!(picks, [0, 1, 0, 0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn rail_failure_moves_only_processes_bound_to_that_rail() {
    let rank = |rank| Binding::by_local_rank(rank, 0b1011);
    assert_eq!([0, 1, 2, 3].map(|it| rank(it).rail), [0, 1, 3, 0]);
    let without_1 = Candidates { up: 0b1001, room: FREE };
    assert_eq!([0, 1, 2].map(|it| rank(it).pick(without_1)), [0, 3, 3].map(|rail| Some(RailId(rail))));
}

#[test]
fn a_window_waits_for_its_rail_and_ends_with_it() {
    let mut turn = WindowRoundRobin::default();
    let up = |up| Candidates { up, room: FREE };
    assert_eq!(turn.pick(up(0b11), 3), Some(RailId(0)));
    assert_eq!(turn.pick(Candidates { up: 0b11, room: 0b10 }, 3), None, "two more go on rail 0");
    assert_eq!(turn.pick(up(0b11), 3), Some(RailId(0)));
    assert_eq!(turn.pick(up(0b10), 3), Some(RailId(1)), "rail 0 is down: a new window");
    assert_eq!(turn.pick(up(0b11), 3), Some(RailId(1)));
    assert_eq!(turn.pick(up(0b11), 1), Some(RailId(0)), "a window that has become smaller is over at once");
}

/// They stand once per channel and class.
#[test]
fn the_states_are_small() {
    assert_eq!(size_of::<Binding>(), 1);
    assert_eq!(size_of::<RoundRobin>(), 1);
    assert_eq!(size_of::<WeightedRoundRobin>(), 4);
    assert_eq!(size_of::<WindowRoundRobin>(), 4);
}
