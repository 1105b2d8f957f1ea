//! `rerail check`: the device contract suite, on the software HCA or on verbs devices of this machine.

mod bed;
mod compare;
mod known;

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use rerail_contract::{CaseResult, Filter, Outcome, Testbed, run as run_suite};
use rerail_verbs::{Devices, Verbs};
use serde::{Deserialize, Serialize};

use self::bed::{BedParameters, DeviceBed};
use self::known::Known;
use crate::cli::CheckArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Progress, json, write_stdout};

/// The device that is always there.
const SOFTWARE: &str = "sim";

/// The outcome of a case that passes and is in the list of known failures: the list is out of date.
const FIXED: &str = "passed though known to fail";

/// A case, for programs.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct CaseLine {
    name: Cow<'static, str>,
    rule: Cow<'static, str>,
    /// `passed`, `failed`, `known failure`, [`FIXED`] or `unsupported`.
    outcome: Cow<'static, str>,
    why: Option<String>,
}

/// What came of a device.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct CheckReport {
    device: String,
    /// What it runs with: version of this program, of the kernel, of the firmware.
    versions: Vec<String>,
    passed: usize,
    failed: usize,
    known: usize,
    /// Passed, and listed as failures.
    #[serde(default)]
    fixed: usize,
    unsupported: usize,
    cases: Vec<CaseLine>,
}

/// Runs the cases and reports each that did not pass.
pub fn run(args: &CheckArgs) -> Result<Exit, Failure> {
    if !args.compare.is_empty() {
        return compare::run(&args.compare);
    }
    let filter = Filter { names: args.cases.clone() };
    if !rerail_contract::cases().any(|case| filter.takes(case)) {
        return Err(Failure::usage(format!("no case's name contains \"{}\"", args.cases.join("\" or \""))));
    }
    let known = args.known.as_deref().map(Known::read).transpose().map_err(Failure::usage)?.unwrap_or_default();
    let names = devices(args)?;
    let mut reports = Vec::new();
    for name in &names {
        let found = (name != SOFTWARE).then(|| Verbs::open().ok()?.devices().ok()).flatten();
        let report = check(args, &filter, &known, name, found.as_ref());
        if !args.json {
            if names.len() > 1 {
                write_stdout(&format!("{name}:"))?;
            }
            write_stdout(report.text(args.list).trim_end())?;
        }
        reports.push(report);
    }
    if args.json {
        json(&reports)?;
    }
    for report in reports.iter().filter(|report| report.fixed > 0) {
        let file = args.known.as_deref().unwrap_or(Path::new("")).display();
        eprintln!("{}: {} cases pass that {file} lists as failures; take them out", report.device, report.fixed);
    }
    Ok(if reports.iter().all(CheckReport::is_as_expected) { Exit::Ok } else { Exit::Verification })
}

/// Which devices: all that verbs lists, or the one named, if it is there and can be used.
fn devices(args: &CheckArgs) -> Result<Vec<String>, Failure> {
    if !args.all_devices && args.device == SOFTWARE {
        return Ok(vec![SOFTWARE.to_owned()]);
    }
    let what = if args.all_devices { "verbs devices".to_owned() } else { format!("device \"{}\"", args.device) };
    let absent = |why: String| Failure { exit: Exit::Absent, message: format!("{what} can't be checked: {why}") };
    let verbs = Verbs::open().map_err(|why| absent(why.to_string()))?;
    let devices = verbs.devices().map_err(|why| absent(why.to_string()))?;
    let there: Vec<String> = devices.iter().map(|device| device.name()).collect();
    if there.is_empty() {
        return Err(absent("this machine has no verbs device (rerail info prints more)".into()));
    }
    let wanted = if args.all_devices { there.clone() } else { vec![args.device.clone()] };
    for name in &wanted {
        let device = devices
            .find(name)
            .ok_or_else(|| absent(format!("there is no device \"{name}\"; this machine has {}", there.join(", "))))?;
        let context = device.open().map_err(|why| absent(why.to_string()))?;
        let chosen = context.choose(args.port, args.gid_index);
        chosen.map_err(|why| absent(format!("{why}; {}", why.remedy())))?;
    }
    Ok(wanted)
}

fn check(args: &CheckArgs, filter: &Filter, known: &Known, name: &str, devices: Option<&Devices>) -> CheckReport {
    let bed_parameters = BedParameters {
        port: args.port,
        gid_index: args.gid_index,
        timeout: Duration::from_secs(args.timeout_seconds.into()),
        idle_time: Duration::from_millis(args.idle_ms.into()),
    };
    let mut open = || -> Result<Box<dyn Testbed>, String> {
        if name == SOFTWARE {
            return rerail_sim::bed::open();
        }
        let devices = devices.ok_or("the devices can't be listed any more")?;
        Ok(Box::new(DeviceBed::open(devices, name, bed_parameters)?))
    };
    let cases = rerail_contract::cases().filter(|case| filter.takes(case)).count();
    let progress = Progress::steps(!args.json, cases as u64, "cases");
    let mut done = 0;
    let report = run_suite(filter, &mut open, &mut |result| {
        done += 1;
        progress.set(done);
        progress.set_status(|| result.case.name.to_owned());
    });
    progress.finish();
    let lines: Vec<CaseLine> = report.results.iter().map(|result| line(result, known)).collect();
    let count = |wanted: &str| lines.iter().filter(|line| line.outcome == wanted).count();
    CheckReport {
        device: name.to_owned(),
        versions: versions(name, devices),
        passed: count("passed"),
        failed: count("failed"),
        known: count("known failure"),
        fixed: count(FIXED),
        unsupported: count("unsupported"),
        cases: lines,
    }
}

fn versions(name: &str, devices: Option<&Devices>) -> Vec<String> {
    let mut printed = vec![format!("rerail {}", env!("CARGO_PKG_VERSION"))];
    if name != SOFTWARE {
        let system = rustix::system::uname();
        printed.push(format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()));
        let context = devices.and_then(|devices| devices.find(name)?.open().ok());
        printed.extend(context.and_then(|it| it.attributes().ok()).map(|it| format!("firmware {}", it.firmware)));
    }
    printed
}

fn line(result: &CaseResult, known: &Known) -> CaseLine {
    let name = result.case.name;
    let (outcome, why) = match (&result.outcome, known.reason(name)) {
        (Outcome::Passed, None) => ("passed", None),
        (Outcome::Passed, Some(reason)) => (FIXED, Some(format!("listed: {reason}"))),
        (Outcome::Failed(failure), Some(reason)) => ("known failure", Some(format!("{reason} ({failure})"))),
        (Outcome::Failed(failure), None) => ("failed", Some(failure.to_string())),
        (Outcome::Unsupported(need), _) => ("unsupported", Some(need.to_string())),
    };
    CaseLine { name: name.into(), rule: result.case.rule.into(), outcome: outcome.into(), why }
}

impl CheckReport {
    /// All failures are known ones, and all known failures occurred.
    fn is_as_expected(&self) -> bool {
        self.failed + self.fixed == 0
    }

    /// Every case that did not pass, or every one, and the table.
    fn text(&self, list: bool) -> String {
        let mut text = String::new();
        for line in self.cases.iter().filter(|line| list || line.outcome != "passed") {
            let (name, why) = (&line.name, line.why.as_deref().unwrap_or_default());
            text += &match &*line.outcome {
                "failed" => format!("FAILED         {name}: {why} [{}]\n", line.rule),
                "unsupported" => format!("unsupported    {name}: needs {why}\n"),
                "known failure" => format!("known failure  {name}: {why}\n"),
                FIXED => format!("PASSED         {name}: is {why}\n"),
                _ => format!("passed         {name}\n"),
            };
        }
        text += &format!("{:<12} {:>6} {:>6} {:>6} {:>11}\n", "group", "passed", "failed", "known", "unsupported");
        let mut groups: Vec<&str> = self.cases.iter().map(|line| group(&line.name)).collect();
        groups.dedup();
        for name in groups {
            text += &self.row(name, |line| group(&line.name) == name);
        }
        text + &self.row("all", |_| true)
    }

    fn row(&self, name: &str, among: impl Fn(&CaseLine) -> bool) -> String {
        let count = |outcome| self.cases.iter().filter(|line| among(line) && line.outcome == outcome).count();
        let passed = count("passed") + count(FIXED);
        let (failed, known) = (count("failed"), count("known failure"));
        format!("{name:<12} {passed:>6} {failed:>6} {known:>6} {:>11}\n", count("unsupported"))
    }
}

fn group(case: &str) -> &str {
    case.split('/').next().unwrap_or(case)
}

#[cfg(test)]
mod tests {
    use rerail_contract::{Failure, Need};

    use super::*;

    fn lines(known: &Known, outcome: impl Fn() -> Outcome) -> CheckReport {
        let case = rerail_contract::cases().next().unwrap();
        let cases = vec![line(&CaseResult { group: "one", case, outcome: outcome() }, known)];
        let count = |wanted: &str| cases.iter().filter(|line| line.outcome == wanted).count();
        CheckReport {
            device: "one".into(),
            versions: Vec::new(),
            passed: count("passed"),
            failed: count("failed"),
            known: count("known failure"),
            fixed: count(FIXED),
            unsupported: count("unsupported"),
            cases,
        }
    }

    /// A list of known failures is enforced: its cases must fail, or be unsupported by the device.
    #[test]
    fn known_failures_are_required_to_fail() {
        let name = rerail_contract::cases().next().unwrap().name;
        let (none, known) = (Known::default(), Known::of(name, "a reason"));
        let fails =
            || Outcome::Failed(Failure::Wrong { what: "it".into(), expected: "so".into(), came: "thus".into() });
        let passes = || Outcome::Passed;
        for (known, outcome, as_expected, word) in [
            (&none, &fails as &dyn Fn() -> Outcome, false, "FAILED"),
            (&none, &passes, true, ""),
            (&known, &fails, true, "known failure"),
            (&known, &passes, false, "PASSED"),
            (&known, &|| Outcome::Unsupported(Need::Xrc), true, "unsupported"),
        ] {
            let report = lines(known, outcome);
            let text = report.text(false);
            assert_eq!(report.is_as_expected(), as_expected, "{text}");
            assert!(text.starts_with(word), "{text}");
        }
    }
}
