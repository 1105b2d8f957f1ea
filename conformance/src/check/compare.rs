//! `rerail check --compare`: the outcomes of several devices side by side, as a document (`conformance/DEVICES.md`).

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
    let mut text = String::new();
    let names: Vec<&str> = reports.iter().map(|report| report.device.as_str()).collect();
    text += &format!("| group | cases | {} |\n", names.join(" | "));
    text += &format!("|---|---:|{}\n", "---|".repeat(names.len()));
    for group in rerail_contract::groups() {
        let row: Vec<String> = reports.iter().map(|report| tally(report, group.name)).collect();
        text += &format!("| {} | {} | {} |\n", group.name, group.cases.len(), row.join(" | "));
    }
    let row: Vec<String> = reports.iter().map(|report| tally(report, "")).collect();
    text += &format!("| all | {} | {} |\n", rerail_contract::cases().count(), row.join(" | "));

    text += "\n## Where they differ\n\nEvery case that did not pass on all of them.\n\n";
    text += &format!("| case | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for case in rerail_contract::cases() {
        let cells: Vec<(&str, Option<&str>)> = reports.iter().map(|report| outcome(report, case.name)).collect();
        if cells.iter().all(|(outcome, _)| *outcome == "passed") {
            continue;
        }
        let cells: Vec<String> = cells
            .iter()
            .map(|(outcome, why)| match why {
                Some(why) if *outcome == "unsupported" => format!("needs {why}"),
                _ => (*outcome).to_owned(),
            })
            .collect();
        text += &format!("| `{}` | {} |\n", case.name, cells.join(" | "));
        for report in reports {
            if let ("known failure" | "failed" | FIXED, Some(why)) = outcome(report, case.name) {
                reasons.entry(case.name).or_default().push(format!("{}: {why}", report.device));
            }
        }
    }
    if !reasons.is_empty() {
        text += "\n## Why they fail\n\n";
        for (case, why) in reasons {
            text += &format!("* `{case}`: {}\n", why.join("; "));
        }
    }
    text
}

/// A case's outcome on a device, and why.
fn outcome<'r>(report: &'r CheckReport, case: &str) -> (&'r str, Option<&'r str>) {
    match report.cases.iter().find(|line| line.name == case) {
        Some(line) => (&line.outcome, line.why.as_deref()),
        None => ("not run", None),
    }
}

/// How the cases of a group ended: `12 passed, 1 known failure`.
fn tally(report: &CheckReport, group: &str) -> String {
    let mut counts: Vec<(&str, usize)> =
        ["passed", "known failure", "failed", FIXED, "unsupported"].into_iter().map(|word| (word, 0)).collect();
    for line in report.cases.iter().filter(|line| line.name.starts_with(group)) {
        if let Some((_, count)) = counts.iter_mut().find(|(word, _)| *word == line.outcome) {
            *count += 1;
        }
    }
    let told: Vec<String> = counts
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(word, count)| format!("{count} {word}{}", if word == "known failure" && count > 1 { "s" } else { "" }))
        .collect();
    if told.is_empty() { "none run".to_owned() } else { told.join(", ") }
}
