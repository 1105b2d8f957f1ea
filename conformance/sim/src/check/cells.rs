//! What cells of windows may hold: atomics, judged by their answers and by what is there in the end.
//!
//! Three sorts of cells, each used in a way that makes its rule checkable without knowing the order of
//! execution:
//!
//! * [`Rule::Sum`]: 64-bit fetch-and-add of positive operands. Sorted by old value, each answer must be where
//!   the one before it ended: distinct, complete, and the end is the cell's value.
//! * [`Rule::Chain`]: 64-bit swap and compare-and-swap of values that are all different. Each value is
//!   replaced by at most one operation; following the replacements from the first value leads over every
//!   operation to the last one.
//! * [`Rule::Alone`]: any operation on any integer type, by one origin, one at a time: a plain calculation
//!   gives each old value.

use std::collections::{BTreeMap, BTreeSet};

use rerail_core::wire::{AtomicKind, AtomicType};

use super::verdict::{CellFacts, Duplicated, Lost, Verdict};

/// How a cell is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Sums of many.
    Sum,
    /// Values that replace each other.
    Chain,
    /// One origin's own, all operations.
    Alone,
}

/// What an atomic does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The kind.
    pub kind: AtomicKind,
    /// The type of the value.
    pub data_type: AtomicType,
    /// The operand, in the low bytes.
    pub operand: u64,
    /// The comparand, in the low bytes.
    pub compare: u64,
}

#[derive(Clone, Copy, Debug)]
struct AtomicRequest {
    by: (u32, u32),
    operation: Operation,
    old: Option<u64>,
}

#[derive(Clone, Debug)]
struct Cell {
    rule: Rule,
    first: u64,
    requested: Vec<AtomicRequest>,
}

/// All cells of all windows, 8 bytes each.
#[derive(Clone, Debug, Default)]
pub struct Cells {
    cells: BTreeMap<(u32, u32), Cell>,
}

impl Cells {
    /// A cell, with what it holds from the start.
    pub fn open(&mut self, target: u32, cell: u32, rule: Rule, first: u64) {
        self.cells.insert((target, cell), Cell { rule, first, requested: Vec::new() });
    }

    /// Takes out the cells of a rank, and those that it changes: it is not to be judged.
    pub(super) fn forget(&mut self, rank: u32) {
        let changed =
            |cell: &Cell| cell.rule == Rule::Alone && cell.requested.iter().any(|requested| requested.by.0 == rank);
        self.cells.retain(|(target, _), cell| *target != rank && !changed(cell));
    }

    pub(super) fn requested(&mut self, target: u32, cell: u32, by: (u32, u32), operation: Operation) {
        if let Some(cell) = self.cells.get_mut(&(target, cell)) {
            cell.requested.push(AtomicRequest { by, operation, old: None });
        }
    }

    pub(super) fn withdraw(&mut self, target: u32, cell: u32, by: (u32, u32)) {
        if let Some(cell) = self.cells.get_mut(&(target, cell)) {
            cell.requested.retain(|requested| requested.by != by);
        }
    }

    pub(super) fn answered(&mut self, target: u32, cell: u32, by: (u32, u32), old: u64) {
        let requested = self.cells.get_mut(&(target, cell)).into_iter().flat_map(|cell| &mut cell.requested);
        requested.filter(|requested| requested.by == by).for_each(|requested| requested.old = Some(old));
    }

    /// Cells of a rank's window.
    pub(super) fn of(&self, target: u32) -> impl Iterator<Item = u32> {
        self.cells.range((target, 0)..=(target, u32::MAX)).map(|((_, cell), _)| *cell)
    }

    /// Compares a cell's story with what it holds in the end.
    pub(super) fn check(&self, target: u32, cell: u32, holds: u64) -> Option<Verdict> {
        let history = self.cells.get(&(target, cell))?;
        let facts = |expected, found| CellFacts { target, cell, expected, found };
        match history.rule {
            Rule::Sum => history.check_sum(holds, &facts),
            Rule::Chain => history.check_chain(holds, &facts),
            Rule::Alone => history.check_alone(holds, &facts),
        }
    }
}

type Facts<'a> = &'a dyn Fn(u64, u64) -> CellFacts;

impl Cell {
    /// What was requested and never answered (its peer was lost): whether it was done is undecided.
    fn unknown_outcomes(&self) -> impl Iterator<Item = &AtomicRequest> {
        self.requested.iter().filter(|requested| requested.old.is_none())
    }

    fn check_sum(&self, holds: u64, facts: Facts<'_>) -> Option<Verdict> {
        let mut answers: Vec<(u64, u64)> =
            self.requested.iter().filter_map(|requested| Some((requested.old?, requested.operation.operand))).collect();
        answers.sort_unstable();
        answers.push((holds, 0));
        // Operands are drawn so large that no two sets of them have the same sum.
        let mut unknown_outcomes: Vec<u64> =
            self.unknown_outcomes().map(|requested| requested.operation.operand).collect();
        let mut value = self.first;
        let last = answers.len() - 1;
        for (index, (old, operand)) in answers.into_iter().enumerate() {
            // Too little: two had the same answer, or in the end something that was answered was not done.
            if old < value {
                return Some(match index == last {
                    true => Verdict::Lost(Lost::Atomic(facts(value, old))),
                    false => Verdict::Duplicated(Duplicated::Atomic(facts(value, old))),
                });
            }
            // Too much: something was done that was not requested.
            if !take_sum(&mut unknown_outcomes, old - value) {
                return Some(Verdict::Duplicated(Duplicated::Atomic(facts(value, old))));
            }
            value = old + operand;
        }
        None
    }

    fn check_chain(&self, holds: u64, facts: Facts<'_>) -> Option<Verdict> {
        // Which operation replaced which value; unconfirmed ones may have replaced anything.
        let mut by_old: BTreeMap<u64, u64> = BTreeMap::new();
        let mut written: BTreeSet<u64> = BTreeSet::from([self.first]);
        let unknown_outcomes: BTreeSet<u64> =
            self.unknown_outcomes().map(|requested| requested.operation.operand).collect();
        written.extend(&unknown_outcomes);
        for requested in &self.requested {
            let Some(old) = requested.old else { continue };
            let replaced = requested.operation.kind == AtomicKind::Swap || old == requested.operation.compare;
            if replaced {
                written.insert(requested.operation.operand);
                if by_old.insert(old, requested.operation.operand).is_some() {
                    return Some(Verdict::Duplicated(Duplicated::Atomic(facts(requested.operation.operand, old))));
                }
            }
        }
        let answers = self.requested.iter().filter_map(|requested| requested.old);
        if let Some(wild) = answers.chain([holds]).find(|old| !written.contains(old)) {
            return Some(Verdict::Lost(Lost::Atomic(facts(self.first, wild))));
        }
        if !unknown_outcomes.is_empty() {
            return None;
        }
        let mut value = self.first;
        let mut steps = 0;
        while let Some(&next) = by_old.get(&value).filter(|_| steps < by_old.len()) {
            value = next;
            steps += 1;
        }
        match (steps == by_old.len(), value == holds) {
            (true, true) => None,
            // The last value was written and is not there, or stands there though it was replaced.
            (_, _) if by_old.contains_key(&holds) => Some(Verdict::Duplicated(Duplicated::Atomic(facts(value, holds)))),
            (_, _) => Some(Verdict::Lost(Lost::Atomic(facts(value, holds)))),
        }
    }

    fn check_alone(&self, holds: u64, facts: Facts<'_>) -> Option<Verdict> {
        let mut value = self.first;
        // The last one, where its peer was lost, may or may not have been executed.
        let mut last = None;
        for requested in &self.requested {
            let bytes = requested.operation.data_type.bytes();
            let mask = u64::MAX >> (64 - 8 * bytes);
            let after = value & !mask | requested.operation.apply(value & mask) & mask;
            let Some(old) = requested.old else {
                last = Some(after);
                break;
            };
            if (old ^ value) & mask != 0 {
                return Some(Verdict::Lost(Lost::Atomic(facts(value & mask, old))));
            }
            value = after;
        }
        (value != holds && last != Some(holds)).then(|| Verdict::Lost(Lost::Atomic(facts(value, holds))))
    }
}

/// Takes numbers out of `from` that make up `sum`; `false` where none do.
fn take_sum(from: &mut Vec<u64>, sum: u64) -> bool {
    fn search(from: &[u64], at: usize, sum: u64, taken: &mut Vec<usize>) -> bool {
        if sum == 0 {
            return true;
        }
        for index in at..from.len() {
            let Some(rest) = sum.checked_sub(from[index]) else { continue };
            taken.push(index);
            if search(from, index + 1, rest, taken) {
                return true;
            }
            taken.pop();
        }
        false
    }
    let mut taken = Vec::new();
    let found = search(from, 0, sum, &mut taken);
    taken.into_iter().rev().for_each(|index| {
        from.remove(index);
    });
    found
}

impl Operation {
    /// The value after the operation on `old`; integer types only.
    fn apply(&self, old: u64) -> u64 {
        let bits = 8 * self.data_type.bytes() as u32;
        let signed = matches!(self.data_type, AtomicType::I8 | AtomicType::I16 | AtomicType::I32 | AtomicType::I64);
        // As a number: little-endian, so the low bytes in all cases.
        let number = |value: u64| match signed {
            true => i128::from((value << (64 - bits)) as i64 >> (64 - bits)),
            false => i128::from(value << (64 - bits) >> (64 - bits)),
        };
        let (a, b, c) = (number(old), number(self.operand), number(self.compare));
        let chosen = |swaps| if swaps { b } else { a };
        let result = match self.kind {
            AtomicKind::Fetch => a,
            AtomicKind::Swap => b,
            AtomicKind::CompareSwap => chosen(c == a),
            AtomicKind::Add => a + b,
            AtomicKind::Mul => a.wrapping_mul(b),
            AtomicKind::Min => a.min(b),
            AtomicKind::Max => a.max(b),
            AtomicKind::And => a & b,
            AtomicKind::Or => a | b,
            AtomicKind::Xor => a ^ b,
            AtomicKind::LogicalAnd => i128::from(a != 0 && b != 0),
            AtomicKind::LogicalOr => i128::from(a != 0 || b != 0),
            AtomicKind::LogicalXor => i128::from((a != 0) != (b != 0)),
            AtomicKind::MaskedSwap => a & !c | b & c,
            AtomicKind::CompareSwapNe => chosen(c != a),
            AtomicKind::CompareSwapLe => chosen(c <= a),
            AtomicKind::CompareSwapLt => chosen(c < a),
            AtomicKind::CompareSwapGe => chosen(c >= a),
            AtomicKind::CompareSwapGt => chosen(c > a),
        };
        result as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(rule: Rule, requested: &[(AtomicKind, u64, u64, Option<u64>)]) -> Cells {
        let mut cells = Cells::default();
        cells.open(2, 1, rule, 0);
        for (request, &(kind, operand, compare, old)) in (0..).zip(requested) {
            let operation = Operation { kind, data_type: AtomicType::U64, operand, compare };
            cells.requested(2, 1, (0, request), operation);
            if let Some(old) = old {
                cells.answered(2, 1, (0, request), old);
            }
        }
        cells
    }

    #[test]
    fn sums_add_up() {
        use AtomicKind::Add;
        let good = [(Add, 5, 0, Some(3)), (Add, 3, 0, Some(0)), (Add, 1, 0, Some(8))];
        assert_eq!(cells(Rule::Sum, &good).check(2, 1, 9), None);
        assert!(matches!(cells(Rule::Sum, &good).check(2, 1, 10), Some(Verdict::Duplicated(_))));
        assert!(matches!(cells(Rule::Sum, &good).check(2, 1, 8), Some(Verdict::Lost(_))));
        let twice = [(Add, 5, 0, Some(0)), (Add, 5, 0, Some(0))];
        assert!(matches!(cells(Rule::Sum, &twice).check(2, 1, 10), Some(Verdict::Duplicated(_))));
        let again = [(Add, 5, 0, Some(0)), (Add, 5, 0, Some(10))];
        assert!(matches!(cells(Rule::Sum, &again).check(2, 1, 15), Some(Verdict::Duplicated(_))));
        // Its peer was lost: done or not.
        let unknown_outcome = [(Add, 5, 0, Some(0)), (Add, 4, 0, None)];
        assert_eq!(cells(Rule::Sum, &unknown_outcome).check(2, 1, 5), None);
        assert_eq!(cells(Rule::Sum, &unknown_outcome).check(2, 1, 9), None);
        assert!(matches!(cells(Rule::Sum, &unknown_outcome).check(2, 1, 13), Some(Verdict::Duplicated(_))));
        assert!(
            matches!(cells(Rule::Sum, &unknown_outcome).check(2, 1, 7), Some(Verdict::Duplicated(_))),
            "half of it"
        );
        let twice = [(Add, 5, 0, Some(0)), (Add, 4, 0, Some(9)), (Add, 100, 0, None)];
        assert!(
            matches!(cells(Rule::Sum, &twice).check(2, 1, 13), Some(Verdict::Duplicated(_))),
            "no slack for another"
        );
    }

    #[test]
    fn atomic_swap_chains_are_verified() {
        use AtomicKind::{CompareSwap, Swap};
        let good = [(Swap, 7, 0, Some(0)), (CompareSwap, 8, 7, Some(7)), (CompareSwap, 9, 0, Some(8))];
        assert_eq!(cells(Rule::Chain, &good).check(2, 1, 8), None);
        assert!(matches!(cells(Rule::Chain, &good).check(2, 1, 7), Some(Verdict::Duplicated(_))), "it came back");
        assert!(matches!(cells(Rule::Chain, &good).check(2, 1, 9), Some(Verdict::Lost(_))), "it was never there");
        let forked = [(Swap, 7, 0, Some(0)), (Swap, 8, 0, Some(0))];
        assert!(matches!(cells(Rule::Chain, &forked).check(2, 1, 8), Some(Verdict::Duplicated(_))));
        let broken = [(Swap, 7, 0, Some(0)), (Swap, 8, 0, Some(8))];
        assert!(matches!(cells(Rule::Chain, &broken).check(2, 1, 7), Some(Verdict::Lost(_))));
    }

    #[test]
    fn calculations_agree() {
        use AtomicKind::{Add, And, CompareSwap, Max, Min, Mul};
        let good = [(Add, 10, 0, Some(0)), (Mul, 3, 0, Some(10)), (CompareSwap, 6, 30, Some(30)), (And, 3, 0, Some(6))];
        assert_eq!(cells(Rule::Alone, &good).check(2, 1, 2), None);
        assert!(cells(Rule::Alone, &good).check(2, 1, 6).is_some());
        let unknown_outcome = [(Add, 10, 0, Some(0)), (Mul, 3, 0, None)];
        assert_eq!(cells(Rule::Alone, &unknown_outcome).check(2, 1, 10), None);
        assert_eq!(cells(Rule::Alone, &unknown_outcome).check(2, 1, 30), None);
        assert!(cells(Rule::Alone, &unknown_outcome).check(2, 1, 90).is_some(), "executed twice");
        let operation = |kind, data_type, operand| Operation { kind, data_type, operand, compare: 0 };
        assert_eq!(operation(Min, AtomicType::I8, 0xFF).apply(1) as u8, 0xFF, "-1 is less than 1");
        assert_eq!(operation(Max, AtomicType::U8, 0xFF).apply(1) as u8, 0xFF);
        assert_eq!(operation(Add, AtomicType::U8, 0xFF).apply(2) as u8, 1);
    }
}
