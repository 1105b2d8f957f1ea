//! `rerail sim`: one simulation, from a seed or a file.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use rerail_sim::check::Verdict;
use rerail_sim::cluster::Report;
use rerail_sim::scenario::{HcaSpec, RailSpec, RandomFaults, Scenario, Span};
use rerail_sim::soak::{self, FaultMenu};
use rerail_sim::trace::{Line, Trace, message_history};
use rerail_sim::workload::Measured;

use super::report::{RunReport, Took, replay};
use crate::cli::{RailArg, SimArgs};
use crate::exit::Failure;
use crate::output::{Align, Table, bad, bold, bytes, dim, good, json, write_stdout};

/// Runs one simulation and reports the result; the exit code is the verdict.
pub fn run(args: &SimArgs) -> Result<ExitCode, Failure> {
    let scenario = scenario(args)?;
    if args.print {
        write_stdout(scenario.to_toml().map_err(Failure::usage)?.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let traced = args.trace || args.message.is_some();
    let trace = if traced { Trace::on() } else { Trace::off() };
    let started = Instant::now();
    let (verdict, report, measured) = soak::run(&scenario, args.seed, trace.clone());
    let took = Took { seconds: started.elapsed().as_secs_f64(), peak_bytes: peak_resident_bytes() };
    if let Verdict::Impossible(why) = verdict {
        return Err(Failure::usage(why));
    }
    if traced {
        print_trace(&trace.take(), args.message)?;
    }
    match args.json {
        true => json(&RunReport::new(args.seed, &verdict, &report, &measured, took))?,
        false => {
            write_stdout(&render(args.seed, &scenario, &verdict, &report, took))?;
            if !measured.is_empty() {
                write_stdout(&measurements(&measured))?;
            }
        }
    }
    Ok(ExitCode::from(verdict.exit_code()))
}

/// The trace, or the lines of one message.
fn print_trace(lines: &[Line], message: Option<u64>) -> Result<(), Failure> {
    let printed: Vec<String> = match message {
        None => lines.iter().map(Line::to_string).collect(),
        Some(id) => {
            let message_history = message_history(lines, id);
            if message_history.is_empty() {
                return Err(Failure::usage(format!(
                    "message {id:x} does not occur in this simulation: `--trace` lists the messages that do"
                )));
            }
            let start = message_history[0].at;
            let line = |line: &&Line| format!("{:>12.3} us  {line}", (line.at - start).0 as f64 / 1000.0);
            message_history.iter().map(line).collect()
        }
    };
    write_stdout(&printed.join("\n"))
}

/// The scenario of the arguments.
fn scenario(args: &SimArgs) -> Result<Scenario, Failure> {
    let mut scenario = match &args.scenario {
        Some(file) => read(file)?,
        None => soak::draw_scenario(args.seed, args.faults.as_ref().unwrap_or(&FaultMenu::Lossless)),
    };
    if let (Some(_), Some(faults)) = (&args.scenario, &args.faults) {
        scenario.random = match faults.kinds() {
            kinds if kinds.is_empty() => None,
            kinds => Some(RandomFaults {
                echoes_per_hundred: 0,
                per_second: 200,
                kinds,
                lasts_max: Span::from_millis(2),
                from: Span::from_micros(0),
                until: None,
            }),
        };
    }
    for (key, value) in &args.set {
        scenario = scenario.set(key, value).map_err(Failure::usage)?;
    }
    if let Some(ranks) = args.ranks {
        let each = scenario.ranks_per_host.min(ranks);
        if !ranks.is_multiple_of(each) {
            return Err(Failure::usage(format!(
                "{ranks} ranks do not fill hosts of {each}: a multiple of {each} does, or another --set ranks_per_host=N"
            )));
        }
        (scenario.hosts, scenario.ranks_per_host) = (ranks / each, each);
    }
    if !args.rails.is_empty() {
        set_rails(&mut scenario, &args.rails);
    }
    if let Some(minutes) = args.minutes {
        scenario.limits.safety = Span::from_millis(minutes.saturating_mul(60_000));
    }
    // The composed scenario is checked as a file would be.
    let text = scenario.to_toml().map_err(Failure::usage)?;
    Scenario::parse("command line", &text).map_err(Failure::usage)
}

/// A scenario file.
pub fn read(file: &Path) -> Result<Scenario, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    Scenario::parse(&file.display().to_string(), &text).map_err(Failure::usage)
}

/// Rails by their words: each `hca` and `stream` is a device of its own.
fn set_rails(scenario: &mut Scenario, words: &[RailArg]) {
    let device = scenario.hcas().first().map_or_else(|| scenario.device.clone(), |hca| hca.device.clone());
    scenario.hcas.clear();
    scenario.subnets.clear();
    scenario.rails.clear();
    for word in words {
        let hca = scenario.hcas.len() as u32;
        scenario.rails.push(match word {
            RailArg::Shm => RailSpec::Shm {},
            RailArg::Hca => RailSpec::Hca { hca, port: 0, path: 0 },
            RailArg::Stream => RailSpec::Stream { hca, port: 0 },
        });
        if *word != RailArg::Shm {
            scenario.hcas.push(HcaSpec { device: device.clone(), ..HcaSpec::default() });
        }
    }
}

fn render(seed: u64, scenario: &Scenario, verdict: &Verdict, report: &Report, took: Took) -> String {
    let printed = verdict.to_string();
    let (head, facts) = printed.split_once('\n').unwrap_or((&printed, ""));
    let head = if verdict.is_good() { good(head) } else { bad(head) };
    let ms = report.virtual_ns as f64 / 1e6;
    let (seconds, rate) = (took.seconds, took.events_per_second(report) / 1e6);
    let mut text = String::new();
    if !scenario.about.is_empty() {
        text += &format!("{}\n", dim(&scenario.about));
    }
    text += &format!("{}  {head}\n", bold(&format!("seed {seed}")));
    if !facts.is_empty() {
        text += &format!("{facts}\n");
    }
    text += &format!(
        "{} ranks, {} faults, {ms:.3} ms of virtual time in {seconds:.2} s: {} events, {rate:.2} million a second\n",
        report.ranks, report.faults, report.events
    );
    text += &format!(
        "a rank's tables take {}, its payload pool {}, its rings {}",
        bytes(report.state_bytes),
        bytes(report.pool_bytes),
        bytes(report.ring_bytes_per_rank())
    );
    if let (Some(peak), Some(of_rank)) = (took.peak_bytes, took.peak_bytes_per_rank(report)) {
        text += &format!("\npeak memory of this process {}: {} a rank", bytes(peak), bytes(of_rank));
    }
    text
}

/// What the workload measured, in virtual time.
fn measurements(measured: &[Measured]) -> String {
    let mut table = Table::new(&[
        ("measured", Align::Left),
        ("bytes", Align::Right),
        ("value", Align::Right),
        ("unit", Align::Left),
    ]);
    for Measured { what, bytes, value, unit, .. } in measured {
        table.row([(*what).to_owned(), bytes.to_string(), format!("{value:.2}"), (*unit).to_owned()]);
    }
    table.render()
}

/// How to see this simulation again, for messages.
pub fn how_to_replay(seed: u64, faults: &FaultMenu) -> String {
    replay(seed, &faults.to_string())
}

/// Most bytes of this process that were in memory at once (`VmHWM`, proc_pid_status(5)); `None` where the
/// kernel does not report it.
fn peak_resident_bytes() -> Option<u64> {
    peak_of(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// The line `VmHWM:   1234 kB`; the kernel's kB are 1024 bytes.
fn peak_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_in_bytes() {
        let status = "Name:\trerail\nVmPeak:\t  900 kB\nVmHWM:\t    12 kB\nVmRSS:\t    8 kB\n";
        assert_eq!(peak_of(status), Some(12 * 1024));
        assert_eq!(peak_of("Name:\trerail\n"), None);
        assert_eq!(peak_of("VmHWM:\t many kB\n"), None);
    }

    #[test]
    fn this_process_has_one_that_grows() {
        let before = peak_resident_bytes().expect("Linux has /proc");
        let filled = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = peak_resident_bytes().expect("Linux has /proc");
        assert!(after >= before && after >= filled.len() as u64, "{before} {after}");
    }
}
