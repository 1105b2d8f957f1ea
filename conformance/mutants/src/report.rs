//! What a run came to, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::judge::Fate;

/// A mutant and what became of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub name: String,
    pub file: String,
    pub line: usize,
    pub original: String,
    pub mutated: String,
    #[serde(flatten)]
    pub fate: Fate,
    /// Why it is listed as equivalent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equivalent: Option<String>,
    /// Whether it is written by hand.
    pub written: bool,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub mutants: u32,
    pub test: u32,
    pub simulation: u32,
    pub hung: u32,
    pub survived: u32,
    pub equivalent: u32,
    pub not_compiled: u32,
}

impl Row {
    fn count(&mut self, outcome: &Outcome) {
        self.mutants += 1;
        match &outcome.fate {
            Fate::Test { .. } => self.test += 1,
            Fate::Simulation { .. } => self.simulation += 1,
            Fate::Hung { .. } => self.hung += 1,
            Fate::Survived { .. } if outcome.equivalent.is_some() => self.equivalent += 1,
            Fate::Survived { .. } => self.survived += 1,
            Fate::NotCompiled => self.not_compiled += 1,
        }
    }

    /// Those that were killed of those that could be, in percent.
    pub fn rate(&self) -> f64 {
        let killed = self.test + self.simulation + self.hung;
        match killed + self.survived {
            0 => 100.0,
            all => f64::from(killed) * 100.0 / f64::from(all),
        }
    }

    fn cells(&self) -> [String; 8] {
        let &Row { mutants, test, simulation, hung, survived, equivalent, not_compiled } = self;
        let counts = [mutants, test, simulation, hung, survived, equivalent, not_compiled].map(|n| n.to_string());
        let [a, b, c, d, e, f, g] = counts;
        [a, b, c, d, e, f, g, format!("{:.1} %", self.rate())]
    }
}

const COLUMNS: [&str; 9] =
    ["file", "mutants", "tests", "simulations", "hung", "survived", "equivalent", "not compiled", "killed"];

/// Rows by file, those that are written by hand apart; the last one is the sum.
fn rows(outcomes: &[Outcome]) -> Vec<(String, Row)> {
    let (mut files, mut all): (BTreeMap<String, Row>, Row) = Default::default();
    for outcome in outcomes {
        let name = if outcome.written { "(hand-written)" } else { outcome.file.as_str() };
        files.entry(name.to_owned()).or_default().count(outcome);
        all.count(outcome);
    }
    files.into_iter().chain(std::iter::once(("all".to_owned(), all))).collect()
}

/// The sum of all rows.
pub fn sum(outcomes: &[Outcome]) -> Row {
    let mut all = Row::default();
    outcomes.iter().for_each(|outcome| all.count(outcome));
    all
}

/// The table, as it is printed and documented.
pub fn table(outcomes: &[Outcome]) -> String {
    let rows: Vec<Vec<String>> =
        rows(outcomes).into_iter().map(|(name, row)| std::iter::once(name).chain(row.cells()).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].len());
        cells.chain(std::iter::once(COLUMNS[column].len())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  "))
    };
    let mut text = line(&mut COLUMNS.into_iter());
    for row in &rows {
        text += &line(&mut row.iter().map(String::as_str));
    }
    text
}

/// Survivors that are not listed, one a line.
pub fn survivors(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes.iter().filter(|outcome| outcome.equivalent.is_none()) {
        if let Fate::Survived { tests, seeds } = outcome.fate {
            let Outcome { name, file, line, .. } = outcome;
            let _ = writeln!(text, "core/src/{file}:{line}: {name}   [{tests} tests and {seeds} seeds come by]");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(fate: Fate, equivalent: Option<&str>) -> Outcome {
        let (name, file) = ("n".to_owned(), "a.rs".to_owned());
        let equivalent = equivalent.map(str::to_owned);
        Outcome { name, file, line: 7, original: "a".into(), mutated: "b".into(), fate, equivalent, written: false }
    }

    #[test]
    fn kill_rate_excludes_equivalent_and_uncompiled_mutants() {
        let survived = Fate::Survived { tests: 1, seeds: 2 };
        let outcomes = [
            outcome(Fate::Test { test: "t".into() }, None),
            outcome(Fate::Hung { by: "tests".into() }, None),
            outcome(Fate::Simulation { seed: 1, verdict: "lost".into() }, None),
            outcome(survived.clone(), None),
            outcome(survived, Some("it is")),
            outcome(Fate::NotCompiled, None),
        ];
        let all = sum(&outcomes);
        assert_eq!((all.mutants, all.survived, all.equivalent, all.not_compiled), (6, 1, 1, 1));
        assert_eq!(all.rate(), 75.0);
        assert!(table(&outcomes).lines().last().unwrap().ends_with("75.0 %"));
        assert_eq!(survivors(&outcomes).lines().count(), 1);
    }
}
