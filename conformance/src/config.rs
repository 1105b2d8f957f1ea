//! `rerail config`: every knob with its value, and where the value comes from.

use rerail_linux::settings::{KnobDescription, Settings, Source};
use serde::Serialize;

use crate::cli::OutputArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Align, Table, bold, dim, json, write_stdout};

/// A knob, for programs.
#[derive(Clone, Debug, Serialize)]
struct Line {
    name: &'static str,
    variable: String,
    value: String,
    default: String,
    unit: &'static str,
    range: String,
    source: String,
    doc: &'static str,
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
struct Lines {
    settings: Vec<Line>,
}

/// Prints the settings that a transport would be started with in this environment.
pub fn run(args: OutputArgs) -> Result<Exit, Failure> {
    let knobs = Settings::from_env().map_err(Failure::usage)?.describe();
    if args.json {
        json(&Lines { settings: knobs.into_iter().map(line).collect() })?;
    } else {
        write_stdout(&render(&knobs))?;
    }
    Ok(Exit::Ok)
}

fn line(knob: KnobDescription) -> Line {
    let KnobDescription { name, value, default, unit, range, source, doc } = knob;
    let variable = format!("RERAIL_{}", name.to_ascii_uppercase());
    Line { name, variable, value, default, unit, range, source: source.to_string(), doc }
}

fn render(knobs: &[KnobDescription]) -> String {
    let mut table = Table::new(&[
        ("setting", Align::Left),
        ("value", Align::Right),
        ("default", Align::Right),
        ("range", Align::Left),
        ("from", Align::Left),
    ]);
    for knob in knobs {
        let set = knob.source != Source::Default;
        let text = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        table.row([
            knob.name.to_owned(),
            if set { bold(&text(&knob.value)) } else { text(&knob.value) },
            text(&knob.default),
            knob.range.clone(),
            knob.source.to_string(),
        ]);
    }
    let mut lines = vec![table.render(), String::new()];
    lines.extend(knobs.iter().map(|knob| format!("{}: {}", bold(knob.name), dim(knob.doc))));
    lines.push(String::new());
    lines.push("Set them in the environment (RERAIL_<NAME>) or in the file that RERAIL_CONFIG names.".to_owned());
    lines.join("\n")
}
