//! `rerail check --compare`: the outcomes of several devices side by side, as a document
//! (`conformance/DEVICES.md`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{CheckReport, FIXED};
use crate::exit::{Exit, Failure};
use crate::output::{json_fault, write_stdout};

/// Reads reports that `--json` has printed, and prints a table of them.
pub fn run(files: &[PathBuf]) -> Result<Exit, Failure> {
    let mut reports = Vec::new();
    for file in files {
        let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
        let fault = |error| wrong(&format!("not what `rerail check --json` prints: {}", json_fault(&error)));
        let report: Vec<CheckReport> = serde_json::from_str(&text).map_err(fault)?;
        reports.extend(report);
    }
    write_stdout(document(&reports).trim_end())?;
    Ok(Exit::Ok)
}

fn document(reports: &[CheckReport]) -> String {
    let columns = columns(reports);
    let mut rows =
        vec![["group".to_owned(), "cases".to_owned()].into_iter().chain(columns.iter().map(|it| names(it))).collect()];
    let row = |name: &str, group: &str, cases: usize| -> Vec<String> {
        let cells = columns.iter().map(|alike| tally(alike[0], group));
        [name.to_owned(), cases.to_string()].into_iter().chain(cells).collect()
    };
    rows.extend(rerail_contract::groups().iter().map(|group| row(group.name, group.name, group.cases.len())));
    rows.push(row("all", "", rerail_contract::cases().count()));
    let mut text = format!("```text\n{}```\n", aligned(&rows));

    text += "\n## Cases that do not pass\n";
    for alike in &columns {
        let (mut counts, mut unexpected): (BTreeMap<String, usize>, Vec<String>) = Default::default();
        for case in rerail_contract::cases() {
            let why = match outcome(alike[0], case.name) {
                ("passed", _) => continue,
                ("unsupported", Some(need)) => format!("needs {need}"),
                // Their reasons are in the list of known failures.
                ("known failure", _) => "known failures".to_owned(),
                (outcome, why) => {
                    unexpected.push(format!("* `{}`: {outcome}: {}\n", case.name, why.unwrap_or("no reason given")));
                    continue;
                }
            };
            *counts.entry(why).or_default() += 1;
        }
        if !counts.is_empty() || !unexpected.is_empty() {
            let counts: Vec<String> = counts.iter().map(|(why, count)| format!("* {why}: {count}\n")).collect();
            text += &format!("\n{}:\n\n{}{}", names(alike), counts.concat(), unexpected.concat());
        }
    }
    text
}

/// The rows with their columns one below the other.
fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column)));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// The devices, those with the same outcome of every case together.
fn columns(reports: &[CheckReport]) -> Vec<Vec<&CheckReport>> {
    let mut columns: Vec<Vec<&CheckReport>> = Vec::new();
    for report in reports {
        let same = |alike: &&mut Vec<&CheckReport>| {
            rerail_contract::cases().all(|case| comparable(alike[0], case.name) == comparable(report, case.name))
        };
        match columns.iter_mut().find(same) {
            Some(alike) => alike.push(report),
            None => columns.push(vec![report]),
        }
    }
    columns
}

/// A case's outcome, and why, unless that is the observation of a known failure.
fn comparable<'r>(report: &'r CheckReport, case: &str) -> (&'r str, Option<&'r str>) {
    let (outcome, why) = outcome(report, case);
    (outcome, why.filter(|_| outcome != "known failure"))
}

fn names(alike: &[&CheckReport]) -> String {
    alike.iter().map(|report| report.device.as_str()).collect::<Vec<_>>().join(", ")
}

/// A case's outcome on a device, and why.
fn outcome<'r>(report: &'r CheckReport, case: &str) -> (&'r str, Option<&'r str>) {
    match report.cases.iter().find(|line| line.name == case) {
        Some(line) => (&line.outcome, line.why.as_deref()),
        None => ("not run", None),
    }
}

/// How the cases of a group ended: `all passed`, or `12 passed, 1 known failure`.
fn tally(report: &CheckReport, group: &str) -> String {
    let lines: Vec<_> = report.cases.iter().filter(|line| line.name.starts_with(group)).collect();
    let count = |outcome: &str| lines.iter().filter(|line| line.outcome == outcome).count();
    if !lines.is_empty() && count("passed") == lines.len() {
        return "all passed".to_owned();
    }
    let counts = ["passed", "known failure", "failed", FIXED, "unsupported"].map(|outcome| (outcome, count(outcome)));
    let plural = |outcome: &str, count| if outcome == "known failure" && count > 1 { "s" } else { "" };
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let counts: Vec<String> =
        counts.map(|(outcome, count)| format!("{count} {outcome}{}", plural(outcome, count))).collect();
    if counts.is_empty() { "none run".to_owned() } else { counts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::CaseLine;

    fn report(device: &str, outcome: impl Fn(&str) -> (&'static str, Option<&'static str>)) -> CheckReport {
        let line = |case: &rerail_contract::Case| {
            let (outcome, why) = outcome(case.name);
            CaseLine {
                name: case.name.into(),
                rule: case.rule.into(),
                outcome: outcome.into(),
                why: why.map(String::from),
            }
        };
        let cases = rerail_contract::cases().map(line).collect();
        CheckReport {
            device: device.into(),
            versions: Vec::new(),
            passed: 0,
            failed: 0,
            known: 0,
            fixed: 0,
            unsupported: 0,
            cases,
        }
    }

    /// Devices with the same outcomes share a column, and each kind of outcome has one row.
    #[test]
    fn devices_with_equal_outcomes_share_a_column() {
        let first = rerail_contract::cases().next().expect("a case").name;
        let fails = |why| move |case: &str| if case == first { ("known failure", Some(why)) } else { ("passed", None) };
        let good = report("good", |_| ("passed", None));
        let text = document(&[good, report("a", fails("seen so")), report("b", fails("seen otherwise"))]);
        let head: Vec<&str> = text.lines().nth(1).unwrap_or_default().split("  ").filter(|it| !it.is_empty()).collect();
        assert_eq!(head.iter().map(|it| it.trim()).collect::<Vec<_>>(), ["group", "cases", "good", "a, b"]);
        assert!(text.ends_with("\na, b:\n\n* known failures: 1\n") && !text.contains("seen"), "{text}");
        let (all, needs) =
            (rerail_contract::cases().count(), document(&[report("c", |_| ("unsupported", Some("XRC")))]));
        assert!(needs.ends_with(&format!("\nc:\n\n* needs XRC: {all}\n")), "{needs}");
        let fails =
            document(&[report("d", |case| if case == first { ("failed", Some("so")) } else { ("passed", None) })]);
        assert!(fails.ends_with(&format!("\nd:\n\n* `{first}`: failed: so\n")), "{fails}");
    }
}
