//! Runs cases and counts what came of them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::bed::Bed;
use crate::cases::{Case, groups};
use crate::failure::Failure;
use crate::testbed::{Need, Testbed};

/// Which cases to run.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Cases whose name contains one of these; none: all.
    pub names: Vec<String>,
}

impl Filter {
    /// All cases.
    pub fn all() -> Filter {
        Filter::default()
    }

    /// Those whose name contains `part`; groups are the beginnings of names.
    pub fn containing(part: &str) -> Filter {
        Filter { names: vec![part.into()] }
    }

    /// Whether this case is among them.
    pub fn takes(&self, case: &Case) -> bool {
        self.names.is_empty() || self.names.iter().any(|part| case.name.contains(part.as_str()))
    }
}

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The device keeps the rule.
    Passed,
    /// It does not.
    Failed(Failure),
    /// It can't do what the case needs, or the testbed can't.
    Unsupported(Need),
}

/// A case that was run.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The group's name.
    pub group: &'static str,
    /// The case.
    pub case: &'static Case,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Cases that passed.
    pub passed: usize,
    /// Cases that failed.
    pub failed: usize,
    /// Cases that could not be run.
    pub unsupported: usize,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order of the suite.
    pub results: Vec<CaseResult>,
}

/// Runs the cases that the filter takes, each on a testbed of its own from `open`; `progress` is called for
/// each at its end.
pub fn run(
    filter: &Filter,
    open: &mut dyn FnMut() -> Result<Box<dyn Testbed>, String>,
    progress: &mut dyn FnMut(&CaseResult),
) -> Report {
    let mut report = Report::default();
    for group in groups() {
        for case in group.cases.iter().filter(|case| filter.takes(case)) {
            let outcome = match open() {
                Ok(testbed) => run_case(case, testbed),
                Err(why) => Outcome::Failed(Failure::Testbed(why)),
            };
            let result = CaseResult { group: group.name, case, outcome };
            progress(&result);
            report.results.push(result);
        }
    }
    report
}

/// Runs one case. A panic of the device or of the case is a failure like others.
pub fn run_case<'t>(case: &Case, testbed: Box<dyn Testbed + 't>) -> Outcome {
    let mut bed = Bed::new(testbed);
    if let Some(need) = case.needs.iter().find(|need| !bed.offers(**need)) {
        return Outcome::Unsupported(*need);
    }
    // What a panic leaves behind is not looked at again: the bed is forgotten, devices and buffers with it.
    match catch_unwind(AssertUnwindSafe(|| (case.run)(&mut bed))) {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(Failure::Unsupported(need))) => Outcome::Unsupported(need),
        Ok(Err(failure)) => Outcome::Failed(failure),
        Err(panic) => {
            std::mem::forget(bed);
            let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Outcome::Failed(Failure::Panicked(text.unwrap_or_else(|| "without a message".into())))
        }
    }
}

impl Report {
    /// No case failed. Those that could not be run don't count: look at [`counts`](Self::counts).
    pub fn is_clean(&self) -> bool {
        self.failures().next().is_none()
    }

    /// Those that failed.
    pub fn failures(&self) -> impl Iterator<Item = (&'static Case, &Failure)> {
        self.results.iter().filter_map(|result| match &result.outcome {
            Outcome::Failed(failure) => Some((result.case, failure)),
            _ => None,
        })
    }

    /// By group, in the order of the suite; groups of which nothing was run are left out.
    pub fn counts(&self) -> Vec<(&'static str, GroupCounts)> {
        let mut table: Vec<(&'static str, GroupCounts)> = Vec::new();
        for result in &self.results {
            if table.last().is_none_or(|(name, _)| *name != result.group) {
                table.push((result.group, GroupCounts::default()));
            }
            let Some((_, counts)) = table.last_mut() else { continue };
            match result.outcome {
                Outcome::Passed => counts.passed += 1,
                Outcome::Failed(_) => counts.failed += 1,
                Outcome::Unsupported(_) => counts.unsupported += 1,
            }
        }
        table
    }
}

impl fmt::Display for CaseResult {
    /// One line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.case.name;
        match &self.outcome {
            Outcome::Passed => write!(f, "passed       {name}"),
            Outcome::Failed(failure) => write!(f, "FAILED       {name}: {failure} [{}]", self.case.rule),
            Outcome::Unsupported(need) => write!(f, "unsupported  {name}: needs {need}"),
        }
    }
}

impl fmt::Display for Report {
    /// A table by group, and the sum.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sum = GroupCounts::default();
        writeln!(f, "{:<12} {:>6} {:>6} {:>11}", "group", "passed", "failed", "unsupported")?;
        for (name, counts) in self.counts() {
            writeln!(f, "{name:<12} {:>6} {:>6} {:>11}", counts.passed, counts.failed, counts.unsupported)?;
            sum.passed += counts.passed;
            sum.failed += counts.failed;
            sum.unsupported += counts.unsupported;
        }
        writeln!(f, "{:<12} {:>6} {:>6} {:>11}", "all", sum.passed, sum.failed, sum.unsupported)
    }
}
