//! `rerail explain --memory`: the most memory that a process of a job takes, by what takes it.

use rerail_linux::settings::{Preset, Settings, Source};
use rerail_linux::{JobShape, MemoryNeed};
use serde::Serialize;

use crate::cli::ExplainArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Align, Table, bytes, json, write_stdout};

/// One purpose.
#[derive(Clone, Debug, Serialize)]
struct Line {
    what: &'static str,
    bytes: u64,
    /// With as many channels as processes.
    bytes_all_connected: Option<u64>,
    settings: &'static str,
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
struct Lines {
    ranks: u32,
    per_node: u32,
    /// Which one the settings have; where these have none, and do not fit, the first one that does.
    preset: &'static str,
    channels: u32,
    items: Vec<Line>,
    bytes: u64,
    /// `None`: the tables would be too large.
    bytes_all_connected: Option<u64>,
    budget: Option<u64>,
    fits: bool,
}

/// Prints it. Exits with 1 where the budget is exceeded.
pub fn run(args: &ExplainArgs) -> Result<Exit, Failure> {
    let mut settings = Settings::from_env().map_err(Failure::usage)?;
    if let Some(preset) = &args.preset {
        settings.set("preset", preset).map_err(Failure::usage)?;
    }
    let budget = args.budget.or(Some(settings.memory_budget).filter(|&budget| budget > 0));
    let lines = lines(args, &settings, budget)?;
    let lines = match lines.fits || settings.source("preset") != Source::Default {
        true => lines,
        false => smaller(args, &settings, budget)?.unwrap_or(lines),
    };
    if args.run.json {
        json(&lines)?
    } else {
        write_stdout(&render(&lines))?
    }
    Ok(if lines.fits { Exit::Ok } else { Exit::Verification })
}

/// With the first preset that fits.
fn smaller(args: &ExplainArgs, settings: &Settings, budget: Option<u64>) -> Result<Option<Lines>, Failure> {
    for preset in Preset::ALL {
        let mut settings = settings.clone();
        settings.set("preset", preset.name()).map_err(Failure::usage)?;
        let lines = lines(args, &settings, budget)?;
        if lines.fits {
            return Ok(Some(lines));
        }
    }
    Ok(None)
}

fn lines(args: &ExplainArgs, settings: &Settings, budget: Option<u64>) -> Result<Lines, Failure> {
    let ranks = args.ranks.unwrap_or(1);
    let rails_of = |kind: &str, named: usize| match settings.rails.iter().any(|rail| rail == kind) {
        true => named.max(1) as u32,
        false => 0,
    };
    let job = JobShape {
        size: ranks,
        per_node: args.per_node,
        tcp_rails: rails_of("tcp", settings.tcp_interfaces.len()),
        verbs_rails: rails_of("verbs", settings.verbs_devices.len()),
    };
    let need = MemoryNeed::of(settings, job).map_err(Failure::usage)?;
    let mut all = settings.clone();
    all.core.channels_max = ranks;
    let all = MemoryNeed::of(&all, job).ok();
    let of_all = |what| all.as_ref()?.items.iter().find(|item| item.what == what).map(|item| item.bytes);
    Ok(Lines {
        ranks,
        per_node: args.per_node,
        preset: settings.preset.name(),
        channels: settings.core.channels_max.min(ranks),
        items: need
            .items
            .iter()
            .map(|item| Line {
                what: item.what,
                bytes: item.bytes,
                bytes_all_connected: of_all(item.what),
                settings: item.settings,
            })
            .collect(),
        bytes: need.bytes(),
        bytes_all_connected: all.as_ref().map(MemoryNeed::bytes),
        budget,
        fits: budget.is_none_or(|budget| need.bytes() <= budget),
    })
}

fn render(lines: &Lines) -> String {
    let columns = [
        ("what", Align::Left),
        ("bytes at most", Align::Right),
        ("all connected", Align::Right),
        ("settings", Align::Left),
    ];
    let mut table = Table::new(&columns);
    let all = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
    for line in &lines.items {
        let cells = [line.what, &line.bytes.to_string(), &all(line.bytes_all_connected), line.settings];
        table.row(cells.map(str::to_owned));
    }
    table.row(["all".to_owned(), lines.bytes.to_string(), all(lines.bytes_all_connected)]);
    let Lines { ranks, per_node, channels, preset, .. } = lines;
    let job = format!(
        "{ranks} processes, {per_node} on each host, at most {channels} connected to each process, \
         setting preset = {preset}"
    );
    let verdict = match lines.budget {
        None => String::new(),
        Some(budget) if lines.fits => format!("\nThat fits in {}.", bytes(budget)),
        Some(budget) => {
            let largest = lines.items.iter().max_by_key(|line| line.bytes);
            let largest = largest.map_or(String::new(), |line| format!("{} (setting {})", line.what, line.settings));
            format!("\nThat does not fit in {}: the largest item is {largest}.", bytes(budget))
        }
    };
    format!("{job}\n\n{}\n{verdict}", table.render()).trim_end().to_owned()
}
