//! `rerail check`: the device contract suite, on the software HCA or on a verbs device.

use rerail_contract::{Filter, Outcome, run as run_suite};
use serde::Serialize;

use crate::cli::CheckArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Progress, json, write_stdout};

/// The device that is always there.
const SOFTWARE: &str = "sim";

/// A case, for programs.
#[derive(Clone, Debug, Serialize)]
struct CaseLine {
    name: &'static str,
    rule: &'static str,
    outcome: &'static str,
    why: Option<String>,
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
struct CheckReport {
    device: String,
    passed: usize,
    failed: usize,
    unsupported: usize,
    cases: Vec<CaseLine>,
}

/// Runs the cases and tells of each that did not pass.
pub fn run(args: &CheckArgs) -> Result<Exit, Failure> {
    if args.device != SOFTWARE {
        return Err(Failure { exit: Exit::Absent, message: absent(&args.device) });
    }
    let filter = Filter { names: args.cases.clone() };
    let cases = rerail_contract::cases().filter(|case| filter.takes(case)).count();
    if cases == 0 {
        return Err(Failure::usage(format!("no case's name contains \"{}\"", args.cases.join("\" or \""))));
    }
    let progress = Progress::steps(!args.json, cases as u64, "cases");
    let mut done = 0;
    let report = run_suite(&filter, &mut rerail_sim::bed::open, &mut |result| {
        done += 1;
        progress.set(done);
        progress.say(|| result.case.name.to_owned());
    });
    progress.finish();
    let count = |wanted: fn(&Outcome) -> bool| report.results.iter().filter(|result| wanted(&result.outcome)).count();
    if args.json {
        json(&CheckReport {
            device: args.device.clone(),
            passed: count(|outcome| matches!(outcome, Outcome::Passed)),
            failed: count(|outcome| matches!(outcome, Outcome::Failed(_))),
            unsupported: count(|outcome| matches!(outcome, Outcome::Unsupported(_))),
            cases: report.results.iter().map(line).collect(),
        })?;
    } else {
        let mut text = String::new();
        for result in &report.results {
            if args.list || !matches!(result.outcome, Outcome::Passed) {
                text += &format!("{result}\n");
            }
        }
        text += &report.to_string();
        write_stdout(text.trim_end())?;
    }
    Ok(if report.is_clean() { Exit::Ok } else { Exit::Verification })
}

fn line(result: &rerail_contract::CaseResult) -> CaseLine {
    let (outcome, why) = match &result.outcome {
        Outcome::Passed => ("passed", None),
        Outcome::Failed(failure) => ("failed", Some(failure.to_string())),
        Outcome::Unsupported(need) => ("unsupported", Some(need.to_string())),
    };
    CaseLine { name: result.case.name, rule: result.case.rule, outcome, why }
}

/// Why a device of this machine can't be checked.
fn absent(device: &str) -> String {
    let here = match rerail_verbs::Verbs::open() {
        Err(why) => format!("{why}"),
        Ok(verbs) => match verbs.devices() {
            Err(why) => why.to_string(),
            Ok(devices) => {
                let names: Vec<String> = devices.iter().map(|device| device.name()).collect();
                match names.is_empty() {
                    true => "this machine has no verbs device".to_owned(),
                    false => format!("this machine has {}", names.join(", ")),
                }
            }
        },
    };
    format!(
        "device \"{device}\" is not checked: {here}; queues of verbs devices are not driven yet, only the software HCA \
         (--device {SOFTWARE}) is"
    )
}
