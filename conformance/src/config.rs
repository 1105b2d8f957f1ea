//! `rerail config`: every setting with its value, and where the value comes from.

use rerail_linux::rail::shm::ShmOptions;
use rerail_linux::settings::{SettingDescription, Settings, Source};
use serde::Serialize;

use crate::cli::OutputArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Align, Table, bold, dim, json, write_stdout};

/// Columns of a terminal that is not wide.
const COLUMNS_MAX: usize = 100;

/// A setting, for programs.
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
    let settings = Settings::from_env().map_err(Failure::usage)?;
    let described = settings.describe();
    if args.json {
        json(&Lines { settings: described.into_iter().map(line).collect() })?;
    } else {
        write_stdout(&render(&described, rings(&settings)))?;
    }
    Ok(Exit::Ok)
}

/// Bytes of the ring of a connected peer, in each direction: at first and at most.
fn rings(settings: &Settings) -> (u64, u64) {
    let (slots, segment_bytes) = (settings.shm_slots, settings.shm_segment);
    ShmOptions { slots, segment_bytes, ..ShmOptions::new(1) }.ring_bytes()
}

fn line(setting: SettingDescription) -> Line {
    let SettingDescription { name, value, default, unit, range, source, doc } = setting;
    let variable = format!("RERAIL_{}", name.to_ascii_uppercase());
    Line { name, variable, value, default, unit, range, source: source.to_string(), doc }
}

fn render(described: &[SettingDescription], rings: (u64, u64)) -> String {
    let mut table = Table::new(&[
        ("setting", Align::Left),
        ("value", Align::Right),
        ("default", Align::Right),
        ("from", Align::Left),
    ]);
    for setting in described {
        let set = setting.source != Source::Default;
        let text = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        table.row([
            setting.name.to_owned(),
            if set { bold(&text(&setting.value)) } else { text(&setting.value) },
            text(&setting.default),
            setting.source.to_string(),
        ]);
    }
    let mut lines = vec![table.render(), String::new()];
    let indented = textwrap::Options::new(COLUMNS_MAX).initial_indent("    ").subsequent_indent("    ");
    for setting in described {
        lines.push(bold(setting.name));
        let prose = textwrap::wrap(setting.doc, &indented).into_iter();
        let range = textwrap::wrap(&setting.range, &indented).into_iter();
        lines.extend(prose.chain(range).map(|line| dim(&line)));
    }
    let (first, most) = rings;
    lines.push(String::new());
    lines.push(format!(
        "A ring of shared memory takes {first} bytes at first and {most} at most; memory_budget counts it."
    ));
    lines.push("Set them in the environment (RERAIL_<NAME>) or in the file that RERAIL_CONFIG names.".to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_fits_the_terminal() {
        let text = render(&Settings::default().describe(), rings(&Settings::default()));
        let too_long: Vec<&str> = text.lines().filter(|line| line.chars().count() > COLUMNS_MAX).collect();
        assert!(text.contains("\n    1K to 16M\n") && too_long.is_empty(), "{too_long:#?}");
    }
}
