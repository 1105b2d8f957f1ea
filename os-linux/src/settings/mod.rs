//! Every setting of the transport: its name, default, unit, range, meaning, and where its value came from.
//!
//! Values come from a file of lines `name = value` (`#` starts a comment) and from variables `RERAIL_<NAME>`;
//! the environment overrides the file. Nothing is ignored silently: an unknown name or a bad value is an
//! error that names it and the allowed values and suggests the most similar right one. All errors are
//! reported at once.
//!
//! Invariant: a [`Settings`] that was loaded makes a configuration that the core accepts.

mod error;
mod preset;
mod suggest;
mod table;
mod value;

use std::collections::BTreeMap;
use std::time::Duration;

pub use error::{Problem, SettingsError, Source};
pub use preset::Preset;
use rerail_core::config::{Config, RAILS_MAX};
use rerail_core::ids::PeerId;
pub use table::Settings;
pub(crate) use table::parse_pkey;
use table::{OF_CORE, SETTING_ROWS, SettingRow};
pub(crate) use value::parse_bytes;

use crate::rail::verbs::OnDemandUse;

/// The prefix of all our variables.
const PREFIX: &str = "RERAIL_";

/// The variable that names the file.
const FILE_VARIABLE: &str = "RERAIL_CONFIG";

/// Variables that are ours and no settings of the transport.
const RESERVED: &[&str] = &[FILE_VARIABLE, "RERAIL_LOG", "RERAIL_CASES", "RERAIL_KEY"];

/// Starts of such variables.
const RESERVED_PREFIXES: &[&str] = &["RERAIL_TEST_", "RERAIL_TOOL_", "RERAIL_LAUNCHER_"];

/// Unacknowledged packets, and operations for each bucket of the tag matcher, for which there is room at
/// least: as many as by default.
const PACKETS_PER_CHANNEL: u32 = 32;
const OPERATIONS_PER_BUCKET: u32 = 4;

/// In `verbs_srq_sizes`, the size of the longest packet.
pub(crate) const SRQ_SIZE_MAX: &str = "max";

/// Whether verbs rails connect by XRC (xrc-2008): processes of a node share the objects that lead to
/// another node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Xrc {
    /// By RC: a queue pair for each peer.
    #[default]
    Off,
    /// By XRC; a device that has none is an error.
    On,
    /// By XRC over devices that have it, by RC over others. The devices of all processes must be alike.
    Auto,
}

/// What happens to a process that calls before its name is inserted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Callers {
    /// It is refused.
    Refuse,
    /// It waits for the host's answer, as long as a handshake may take.
    #[default]
    Hold,
    /// Its name is inserted.
    Accept,
}

/// How rails take turns in being polled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Shared memory all the time, all rails 8 us after the last time or while another rail has work.
    #[default]
    Timed,
    /// shiba-2005, 2.3.1: one kind is polled a number of times, then the other. After packets of one kind it
    /// gets more of the next turns, after packets of both each gets half.
    Adaptive,
    /// shiba-2005, 2.3.2: both kinds are polled, first the one that had work in the call before.
    Toggle,
}

/// The contents of a file of settings.
#[derive(Clone, Copy, Debug)]
pub struct ConfigFile<'a> {
    /// Its path, for messages.
    pub path: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// A setting, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingDescription {
    /// Its name in a file; in the environment it is in capitals behind `RERAIL_`.
    pub name: &'static str,
    /// Its value, as it may be written.
    pub value: String,
    /// Its default, as it may be written.
    pub default: String,
    /// Its unit: `count`, `bytes`, `time`, `switch`, `choice`, `list` or `text`.
    pub unit: &'static str,
    /// The allowed values.
    pub range: String,
    /// Where its value came from.
    pub source: Source,
    /// Its meaning.
    pub doc: &'static str,
}

impl Settings {
    /// From this process's environment, and from the file that `RERAIL_CONFIG` names there.
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::from_env_and(None)
    }

    /// From this process's environment and a file; `None`: the one that `RERAIL_CONFIG` names, if any.
    pub fn from_env_and(path: Option<&str>) -> Result<Self, SettingsError> {
        let mut problems = Vec::new();
        let mut env = Vec::new();
        for (variable, value) in std::env::vars_os() {
            if !variable.as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
                continue;
            }
            match (variable.into_string(), value.into_string()) {
                (Ok(variable), Ok(value)) => env.push((variable, value)),
                (Ok(variable), Err(_)) => problems.push(Problem::Encoding { variable }),
                (Err(variable), _) => {
                    problems.push(Problem::Encoding { variable: variable.to_string_lossy().into_owned() });
                }
            }
        }
        // The environment's order is arbitrary; messages come by name.
        env.sort();
        let path = path.or_else(|| {
            let file = env.iter().find(|(variable, _)| variable == FILE_VARIABLE);
            file.map(|(_, path)| path.as_str()).filter(|path| !path.is_empty())
        });
        let text = path.map(|path| (path, std::fs::read_to_string(path)));
        let file = match &text {
            Some((path, Ok(text))) => Some(ConfigFile { path, text }),
            Some((path, Err(error))) => {
                problems.push(Problem::File { path: path.to_string(), why: error.to_string() });
                None
            }
            None => None,
        };
        let mut settings = Settings::default();
        settings.take(env.iter().map(|(variable, value)| (variable.as_str(), value.as_str())), file, &mut problems);
        settings.judge(problems)
    }

    /// From an environment (variables that don't start with `RERAIL_` are passed over) and a file.
    pub fn load(
        env: impl IntoIterator<Item = (String, String)>,
        file: Option<ConfigFile<'_>>,
    ) -> Result<Self, SettingsError> {
        let env: Vec<(String, String)> = env.into_iter().collect();
        let mut settings = Settings::default();
        let mut problems = Vec::new();
        settings.take(env.iter().map(|(variable, value)| (variable.as_str(), value.as_str())), file, &mut problems);
        settings.judge(problems)
    }

    /// Sets one value as it would be written; the program's word beats file and environment. On an error
    /// nothing is changed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingsError> {
        let mut problems = Vec::new();
        let mut changed = self.clone();
        match find(name) {
            Some(setting_row) => changed.assign(setting_row, value.trim(), Source::Program, &mut problems),
            None => problems.push(Problem::Unknown {
                source: Source::Program,
                name: name.into(),
                most_similar: most_similar_name(name).map(str::to_string),
            }),
        }
        *self = changed.judge(problems)?;
        Ok(())
    }

    /// All settings with their values, in an order for people.
    pub fn describe(&self) -> Vec<SettingDescription> {
        let defaults = Settings::default();
        SETTING_ROWS
            .iter()
            .map(|setting_row| SettingDescription {
                name: setting_row.name,
                value: setting_row.kind.show(&(setting_row.get)(self)),
                default: setting_row.kind.show(&(setting_row.get)(&defaults)),
                unit: setting_row.kind.unit(),
                range: setting_row.kind.range(),
                source: self.source(setting_row.name),
                doc: setting_row.doc,
            })
            .collect()
    }

    /// Where a setting's value came from.
    pub fn source(&self, name: &str) -> Source {
        self.sources.get(name).cloned().unwrap_or_default()
    }

    /// `boot_timeout` for [`Bootstrap::limit`](crate::bootstrap::Bootstrap::limit).
    pub fn boot_limit(&self) -> Option<Duration> {
        (self.boot_timeout.0 > 0).then(|| Duration::from_nanos(self.boot_timeout.0))
    }

    /// The core's configuration for a rank of a job. How many rails there are is the driver's to add.
    pub fn to_core_config(&self, rank: PeerId, size: u32) -> Config {
        let core = self.core;
        let channels_max = core.channels_max.min(size);
        let mut config = Config {
            rank,
            peers_max: size,
            channels_max,
            // Tables that follow the number of peers and of operations.
            packets_max: core.packets_max.max(PACKETS_PER_CHANNEL * channels_max),
            match_buckets: core.match_buckets.max((core.operations_max / OPERATIONS_PER_BUCKET).next_power_of_two()),
            ..core
        };
        if let Some(policy) = self.policy {
            config.set_policy(policy);
        }
        if !self.weights.is_empty() {
            // The first one is that of rail 1: rail 0 has no other beside it.
            let weight = |rail: usize| rail.checked_sub(1).and_then(|at| self.weights.get(at).copied());
            config.weights = std::array::from_fn::<_, RAILS_MAX, _>(|rail| weight(rail).unwrap_or(0));
        }
        config
    }

    /// Takes the file's values, then the environment's.
    fn take<'a>(
        &mut self,
        env: impl Iterator<Item = (&'a str, &'a str)>,
        file: Option<ConfigFile<'_>>,
        problems: &mut Vec<Problem>,
    ) {
        if let Some(file) = file {
            self.take_file(file, problems);
        }
        for (variable, value) in env {
            let Some(capitals) = variable.strip_prefix(PREFIX) else { continue };
            let reserved = RESERVED.contains(&variable) || RESERVED_PREFIXES.iter().any(|p| variable.starts_with(p));
            if reserved {
                continue;
            }
            let source = Source::Environment { variable: variable.into() };
            let name = capitals.to_ascii_lowercase();
            match find(&name).filter(|_| capitals == name.to_ascii_uppercase()) {
                Some(setting_row) => self.assign(setting_row, value.trim(), source, problems),
                None => problems.push(Problem::Unknown {
                    source,
                    name: variable.into(),
                    most_similar: most_similar_variable(variable, &name),
                }),
            }
        }
    }

    fn take_file(&mut self, file: ConfigFile<'_>, problems: &mut Vec<Problem>) {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for (line, text) in (1..).zip(file.text.lines()) {
            let source = Source::File { path: file.path.into(), line };
            let text = text.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            let Some((name, value)) = text.split_once('=') else {
                problems.push(Problem::Line { source, text: text.chars().take(80).collect() });
                continue;
            };
            let name = name.trim();
            let Some(setting_row) = find(name) else {
                let most_similar = most_similar_name(name).map(str::to_string);
                problems.push(Problem::Unknown { source, name: name.into(), most_similar });
                continue;
            };
            match seen.insert(setting_row.name, line) {
                Some(first_line) => problems.push(Problem::Twice { source, name: setting_row.name, first_line }),
                None => self.assign(setting_row, value.trim(), source, problems),
            }
        }
    }

    fn assign(&mut self, setting_row: &'static SettingRow, text: &str, source: Source, problems: &mut Vec<Problem>) {
        match setting_row.kind.parse(text) {
            Ok(value) => {
                (setting_row.set)(self, value);
                self.sources.insert(setting_row.name, source);
            }
            Err(why) => problems.push(Problem::Value {
                source,
                name: setting_row.name,
                value: text.into(),
                why,
                allowed: setting_row.kind.range(),
            }),
        }
    }

    /// The settings if nothing is wrong, alone and together.
    fn judge(mut self, mut problems: Vec<Problem>) -> Result<Self, SettingsError> {
        self.take_preset(&mut problems);
        // A wrong value makes dependent values wrong too: reporting these would only confuse.
        if problems.is_empty()
            // How large tables are together follows from the job's size, too, and is checked at the start.
            && let Err(error) = self.to_core_config(PeerId(0), 1).validate()
        {
            let rerail_core::config::ConfigError { field, value, min, max, also, .. } = error;
            problems.push(Problem::Conflict { setting: setting_of(field), value, min, max, also });
        }
        if problems.is_empty() { Ok(self) } else { Err(SettingsError { problems }) }
    }
}

/// The setting that a field of the core's configuration is made from; a field without one is called as it is.
pub(crate) fn setting_of(field: &'static str) -> &'static str {
    OF_CORE.iter().find(|(name, _)| *name == field).map_or(field, |(_, setting)| setting)
}

fn find(name: &str) -> Option<&'static SettingRow> {
    SETTING_ROWS.iter().find(|setting_row| setting_row.name == name)
}

fn most_similar_name(name: &str) -> Option<&'static str> {
    suggest::most_similar(name, SETTING_ROWS.iter().map(|setting_row| setting_row.name))
}

/// The most similar variable: a setting's or a reserved one.
fn most_similar_variable(variable: &str, name: &str) -> Option<String> {
    let reserved: Vec<String> = RESERVED.iter().map(|known| known[PREFIX.len()..].to_ascii_lowercase()).collect();
    let known = SETTING_ROWS.iter().map(|setting_row| setting_row.name).chain(reserved.iter().map(String::as_str));
    let most_similar = format!("{PREFIX}{}", suggest::most_similar(name, known)?.to_ascii_uppercase());
    (most_similar != variable).then_some(most_similar)
}

#[cfg(test)]
mod tests;
