//! Simulations over the woven core: what this program does in the copy. Seed after seed, until the first
//! verdict that is not clean.

use std::path::Path;

use rerail_core::config::Policy;
use rerail_sim::check::{Damage, Verdict};
use rerail_sim::scenario::{Scenario, Span};
use rerail_sim::soak::{FaultMenu, draw_scenario, run};
use rerail_sim::trace::Trace;
use rerail_sim::workload::COPIED_PUTS;
use serde::{Deserialize, Serialize};

/// Events of a simulation. The longest of the first 1,000 seeds has a tenth of it.
const EVENTS_MAX: u64 = 4_000_000;

/// A simulation that found something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub seed: u64,
    /// The verdict's word.
    pub verdict: String,
    /// The check that found it.
    pub checker: String,
    pub text: String,
}

/// What is simulated: `drawn FAULTS`, or a file below `conformance/scenarios`; behind it, separated by
/// commas, what is different from what the seed draws.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulations {
    what: What,
    changes: Vec<Change>,
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    Drawn(FaultMenu),
    File(Box<Scenario>),
}

/// What is different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// No one-sided requests.
    Messages,
    /// Large messages are always cut, in equal parts.
    Even,
    /// No rail is watched for stalls.
    Unwatched,
    /// What does not end within 200 ms of virtual time is stuck.
    ShortTimeouts,
    /// A peer is given up after 100 ms.
    GivesUp,
}

impl Simulations {
    /// Parses a description.
    pub fn parse(text: &str) -> Result<Simulations, String> {
        let mut parts = text.split(';').map(str::trim);
        let first = parts.next().unwrap_or_default();
        let what = match first.strip_prefix("drawn ") {
            Some(fault_menu) => What::Drawn(fault_menu.parse::<FaultMenu>().map_err(|error| error.to_string())?),
            None => {
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios").join(first);
                let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                What::File(Box::new(Scenario::parse(first, &text).map_err(|error| error.to_string())?))
            }
        };
        let change = |word: &str| match word {
            "messages" => Ok(Change::Messages),
            "even" => Ok(Change::Even),
            "unwatched" => Ok(Change::Unwatched),
            "impatient" => Ok(Change::ShortTimeouts),
            "gives-up" => Ok(Change::GivesUp),
            other => Err(format!("\"{other}\" is none of messages, even, unwatched, impatient, gives-up")),
        };
        Ok(Simulations { what, changes: parts.map(change).collect::<Result<_, _>>()? })
    }

    fn of(&self, seed: u64) -> Scenario {
        let mut scenario = match &self.what {
            What::Drawn(fault_menu) => draw_scenario(seed, fault_menu),
            What::File(scenario) => (**scenario).clone(),
        };
        // The seeds of hunts were found before some puts were copied.
        scenario.workload.parameters.remove(COPIED_PUTS);
        for change in &self.changes {
            match change {
                Change::Messages => {
                    scenario.workload.parameters.insert("one_sided".into(), toml::Value::Boolean(false));
                }
                Change::Even => scenario.config.striping = Some(Policy::Even),
                Change::Unwatched => scenario.config.stall_min = Some(Span::from_millis(0)),
                Change::ShortTimeouts => scenario.limits.convergence = Span::from_millis(200),
                Change::GivesUp => scenario.config.recovery_timeout = Some(Span::from_millis(100)),
            }
        }
        if scenario.limits.events_max == 0 {
            scenario.limits.events_max = EVENTS_MAX;
        }
        scenario
    }
}

/// Runs the seeds in order; the first finding ends it.
pub fn first_finding(simulations: &Simulations, seeds: impl Iterator<Item = u64>) -> Option<Finding> {
    std::panic::set_hook(Box::new(|_| {}));
    for seed in seeds {
        let (verdict, ..) = run(&simulations.of(seed), seed, Trace::off());
        if !verdict.is_good() {
            let (word, checker) = (verdict.word().to_owned(), checker(&verdict).to_owned());
            return Some(Finding { seed, verdict: word, checker, text: verdict.to_string() });
        }
    }
    None
}

/// What found it.
fn checker(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Corruption(found) => match found.damage {
            Damage::Message { .. } | Damage::UnknownMessage { .. } => "payload at completion",
            Damage::LateWrite(_) => "memory after completion",
            Damage::NotPlaced { .. } => "payload placed at the peer",
            Damage::Error { .. } => "reasons of errors",
            _ => "memory",
        },
        Verdict::Order(_) => "order of matching",
        Verdict::Stuck(_) => "liveness",
        Verdict::Leak(_) => "tables empty at rest",
        Verdict::Lost(_) => "nothing lost",
        Verdict::Duplicated(_) => "exactly once",
        Verdict::Crash(_) => "no panic",
        Verdict::Impossible(_) | Verdict::Clean => "none",
    }
}

/// Seeds as a command line names them: `1-300`, `1,5,7-9`.
pub fn parse_seeds(text: &str) -> Result<Vec<u64>, String> {
    let number = |word: &str| word.parse::<u64>().map_err(|error| format!("\"{word}\": {error}"));
    let mut seeds = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        match part.split_once('-') {
            Some((from, to)) => seeds.extend(number(from)?..=number(to)?),
            None => seeds.push(number(part)?),
        }
    }
    Ok(seeds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulation_set_is_parsed_from_text() {
        for text in ["drawn all", "drawn none; messages; impatient", "mutants/rounds.toml; gives-up"] {
            Simulations::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
        for text in ["drawn everything", "drawn none; nonsense", "mutants/none.toml"] {
            assert!(Simulations::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seeds_are_lists_of_ranges() {
        assert_eq!(parse_seeds("1,5,7-9"), Ok(vec![1, 5, 7, 8, 9]));
        assert!(parse_seeds("x").is_err());
    }

    /// Without a mutant nothing is found.
    #[test]
    fn sane_simulations_are_clean() {
        assert_eq!(first_finding(&Simulations::parse("drawn all").unwrap(), 1..4), None);
    }
}
