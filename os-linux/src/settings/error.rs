//! Errors in settings: all of them at once, each with its place and the allowed values.

use std::fmt;

/// Where a value comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The default.
    #[default]
    Default,
    /// The setting `preset`.
    Preset,
    /// A line of the file.
    File {
        /// Its path.
        path: String,
        /// The line, from 1.
        line: usize,
    },
    /// A variable of the environment.
    Environment {
        /// Its name.
        variable: String,
    },
    /// The program itself, through [`Settings::set`](super::Settings::set).
    Program,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::Preset => f.write_str("preset"),
            Source::File { path, line } => write!(f, "{path}:{line}"),
            Source::Environment { variable } => f.write_str(variable),
            Source::Program => f.write_str("program"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// There is no such setting.
    Unknown {
        /// Its place.
        source: Source,
        /// The name as written (in the environment with its prefix).
        name: String,
        /// The most similar right name, written the same way.
        most_similar: Option<String>,
    },
    /// The value can't be used.
    Value {
        /// Its place.
        source: Source,
        /// The setting.
        name: &'static str,
        /// The value as written.
        value: String,
        /// The reason.
        why: String,
        /// The allowed values.
        allowed: String,
    },
    /// A line of the file is not `name = value`.
    Line {
        /// Its place.
        source: Source,
        /// The line.
        text: String,
    },
    /// The file has a setting twice.
    Twice {
        /// The second place.
        source: Source,
        /// The setting.
        name: &'static str,
        /// The line of the first.
        first_line: usize,
    },
    /// Values that are each right don't go together.
    Conflict {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: u64,
        /// The least value that goes with the others.
        min: u64,
        /// The greatest value that goes with the others.
        max: u64,
        /// Further requirements; empty: none.
        also: &'static str,
    },
    /// The file can't be read.
    File {
        /// Its path.
        path: String,
        /// The system's error.
        why: String,
    },
    /// A variable is not UTF-8.
    Encoding {
        /// The variable, with what is not UTF-8 replaced.
        variable: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Unknown { source, name, most_similar } => {
                match source {
                    Source::Environment { .. } => write!(f, "there is no setting {name}")?,
                    _ => write!(f, "{source}: there is no setting {name:?}")?,
                }
                match most_similar {
                    Some(most_similar) => write!(f, ", maybe {most_similar}?"),
                    None => Ok(()),
                }
            }
            Problem::Value { source, name, value, why, allowed } => {
                match source {
                    Source::Environment { variable } => write!(f, "{variable}={value}")?,
                    _ => write!(f, "{source}: {name} = {value}")?,
                }
                write!(f, ": {why}; allowed: {allowed}")
            }
            Problem::Line { source, text } => write!(f, "{source}: {text:?} is not \"name = value\""),
            Problem::Twice { source, name, first_line } => {
                write!(f, "{source}: {name} is already set in line {first_line}")
            }
            Problem::Conflict { setting, value, min, max, also } => {
                write!(f, "{setting} is {value}, with the other settings {min} to {max} is possible")?;
                if also.is_empty() { Ok(()) } else { write!(f, " ({also})") }
            }
            Problem::File { path, why } => write!(f, "{path}: {why}"),
            Problem::Encoding { variable } => write!(f, "{variable} is not UTF-8"),
        }
    }
}

/// All that is wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// The errors, in order of place; at least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SettingsError {}
