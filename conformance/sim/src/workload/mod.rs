//! What ranks do together, by name, and what it comes to.
//!
//! | name | what it is | file |
//! |---|---|---|
//! | `random` | all sorts of requests between all ranks, drawn from the seed, under all checkers | `random` |
//! | `ping-pong` | pairs of ranks, one message to and fro | `timing` |
//! | `bandwidth` | windows of messages, one way or both ways | `timing` |
//! | `one-sided` | puts or gets, some under way | `timing` |
//! | `all-to-all` | every rank one message to every other | `exchange` |
//! | `broadcast` | from rank 0 down a binomial tree | `exchange` |
//! | `stencil` | neighbours in a grid of two or three dimensions | `exchange` |
//! | `many-to-many` | random peers, again and again (xrc-2008, VI.D) | `exchange` |
//! | `nas-is`, `nas-cg`, ... `namd-apoa1`, ... | the communication pairs of xrc-2008's tables II and III |
//! `applications` |
//!
//! | file | holds |
//! |---|---|
//! | `plain` | what workloads with a fixed programme have in common: payloads, open requests, findings |
//! | `steps` | a programme of steps, run by every rank |
//! | `graph` | the peers of each process in xrc-2008's applications |

mod applications;
#[cfg(test)]
mod cost_tests;
mod exchange;
#[cfg(test)]
mod failure_tests;
mod graph;
#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod path_tests;
mod plain;
mod random;
mod steps;
#[cfg(test)]
mod tests;
mod timing;

use std::fmt;

pub(crate) use graph::application;

use crate::check::{Deliveries, Verdict};
use crate::cluster::{Cluster, Ended, Report, Workload};
use crate::scenario::{Scenario, WorkloadSpec};
use crate::trace::Trace;

/// The parameter of the workload "random" by which some of the puts are of copies.
pub const COPIED_PUTS: &str = "copied_puts";

/// A workload with a verdict.
pub trait Job: Workload {
    /// Called once when the simulation has stopped.
    fn verdict(&mut self, cluster: &Cluster, ended: &Ended) -> Verdict;
    /// Which messages came to which receives, as far as the workload keeps a ledger.
    fn deliveries(&self) -> Deliveries {
        Deliveries::default()
    }
    /// What it measured, in virtual time.
    fn measured(&self) -> Vec<Measured> {
        Vec::new()
    }
}

/// Something measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What: "bandwidth", "latency".
    pub what: &'static str,
    /// Bytes of a message.
    pub bytes: u64,
    /// How much.
    pub value: f64,
    /// Of what: "MB/s" (10^6), "us".
    pub unit: &'static str,
    /// How it was over virtual time, in the same unit, where that was requested of the workload.
    pub series: Vec<Sample>,
}

/// A value at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The end of the time that it is of, in nanoseconds of virtual time.
    pub at_ns: u64,
    /// How much.
    pub value: f64,
}

/// Why a scenario's workload can't be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadError {
    /// Key, value, and what is allowed.
    pub why: String,
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for WorkloadError {}

/// Parameters of a workload, taken one by one: what is left over is an error.
pub(crate) struct Parameters {
    workload: String,
    left: toml::Table,
}

impl Parameters {
    fn new(spec: &WorkloadSpec) -> Self {
        Parameters { workload: spec.name.clone(), left: spec.parameters.clone() }
    }

    /// A number of `least..=most`; `usual` where it is absent.
    pub(crate) fn number(&mut self, key: &str, usual: u64, least: u64, most: u64) -> Result<u64, WorkloadError> {
        let Some(value) = self.left.remove(key) else { return Ok(usual) };
        let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
        number.filter(|number| (least..=most).contains(number)).ok_or_else(|| WorkloadError {
            why: format!("workload.parameters.{key} = {value}: {} takes {least} to {most}", self.workload),
        })
    }

    /// Numbers of `least..=most`; `usual` where they are absent.
    pub(crate) fn numbers(
        &mut self,
        key: &str,
        usual: &[u64],
        least: u64,
        most: u64,
    ) -> Result<Vec<u64>, WorkloadError> {
        let Some(value) = self.left.remove(key) else { return Ok(usual.to_vec()) };
        let number = |value: &toml::Value| value.as_integer().and_then(|number| u64::try_from(number).ok());
        let list = value.as_array().and_then(|list| list.iter().map(number).collect::<Option<Vec<u64>>>());
        let fits = |list: &Vec<u64>| !list.is_empty() && list.iter().all(|number| (least..=most).contains(number));
        list.filter(fits).ok_or_else(|| WorkloadError {
            why: format!("workload.parameters.{key} = {value}: {} takes a list of {least} to {most}", self.workload),
        })
    }

    /// A yes or no; `usual` where it is absent.
    pub(crate) fn flag(&mut self, key: &str, usual: bool) -> Result<bool, WorkloadError> {
        let Some(value) = self.left.remove(key) else { return Ok(usual) };
        value.as_bool().ok_or_else(|| WorkloadError {
            why: format!("workload.parameters.{key} = {value}: {} takes true or false", self.workload),
        })
    }

    /// A text; `None` where it is absent.
    pub(crate) fn text(&mut self, key: &str) -> Result<Option<String>, WorkloadError> {
        let Some(value) = self.left.remove(key) else { return Ok(None) };
        let text = value.as_str().map(str::to_owned).ok_or_else(|| WorkloadError {
            why: format!("workload.parameters.{key} = {value}: {} takes a text", self.workload),
        })?;
        Ok(Some(text))
    }

    fn end(self) -> Result<(), WorkloadError> {
        match self.left.iter().next() {
            None => Ok(()),
            Some((key, value)) => Err(WorkloadError {
                why: format!("workload.parameters.{key} = {value}: {} has no such parameter", self.workload),
            }),
        }
    }
}

/// The least `config.operations_max` of a simulation's ranks.
fn operations_least(scenario: &Scenario, seed: u64) -> u64 {
    // Without a squeeze all ranks have the same.
    let ranks = if scenario.squeeze { scenario.size() } else { 1 };
    (0..ranks).map(|rank| scenario.core_config(rank, seed).operations_max).min().unwrap_or(u32::MAX).into()
}

/// With a `parameter` of this value a rank needs so many operations at once, or it waits for ever: else an
/// error with how many are needed, and what value there are enough for.
fn fit_operations(
    (scenario, seed): (&Scenario, u64),
    (parameter, value): (&str, u64),
    needed: impl Fn(u64) -> u64,
) -> Result<(), WorkloadError> {
    let (name, operations, all) = (&scenario.workload.name, operations_least(scenario, seed), needed(value));
    if all <= operations {
        return Ok(());
    }
    let less = match (1..value).rev().find(|less| needed(*less) <= operations) {
        Some(less) => format!("{parameter} to {less} or less, or "),
        None => String::new(),
    };
    let why = format!(
        "workload.parameters.{parameter} = {value}: a rank of {name} needs {all} operations for it, and \
         config.operations_max is {operations}; set {less}config.operations_max to {all} or more"
    );
    Err(WorkloadError { why })
}

/// As [`fit_operations`], where no parameter sets how many are needed.
fn need_operations(scenario: &Scenario, seed: u64, needed: u64) -> Result<(), WorkloadError> {
    let (name, operations) = (&scenario.workload.name, operations_least(scenario, seed));
    if needed <= operations {
        return Ok(());
    }
    let why = format!(
        "config.operations_max = {operations}: a rank of {name} needs {needed} operations; set as many or more"
    );
    Err(WorkloadError { why })
}

/// Demands a channel for every rank, the rank itself included, where each may talk to each and none is
/// closed: peers that find no channel free call again until `connect_timeout` (F-8), and nothing frees one.
fn need_channels(scenario: &Scenario) -> Result<(), WorkloadError> {
    let (name, size, channels) = (&scenario.workload.name, scenario.size(), scenario.core_config(0, 0).channels_max);
    if channels >= size {
        return Ok(());
    }
    let why = format!(
        "config.channels_max = {channels}: any two of the {size} ranks of {name} may talk to each other, and each to itself; \
         set {size}"
    );
    Err(WorkloadError { why })
}

/// Workloads apart from [`graph::APPLICATIONS`].
const NAMES: [&str; 9] =
    ["random", "ping-pong", "bandwidth", "one-sided", "all-to-all", "broadcast", "stencil", "many-to-many", "incast"];

/// The workload of a scenario.
///
/// # Errors
/// [`WorkloadError`] for an unknown name or parameter, or a value out of range.
pub fn make(scenario: &Scenario, seed: u64) -> Result<Box<dyn Job>, WorkloadError> {
    let mut parameters = Parameters::new(&scenario.workload);
    let job: Box<dyn Job> = match scenario.workload.name.as_str() {
        "random" => Box::new(random::Random::new(scenario, seed, &mut parameters)?),
        "ping-pong" => Box::new(timing::PingPong::new(scenario, seed, &mut parameters)?),
        "bandwidth" => Box::new(timing::Bandwidth::new(scenario, seed, &mut parameters)?),
        "one-sided" => Box::new(timing::OneSided::new(scenario, &mut parameters)?),
        "all-to-all" => Box::new(exchange::all_to_all(scenario, seed, &mut parameters)?),
        "broadcast" => Box::new(exchange::broadcast(scenario, &mut parameters)?),
        "stencil" => Box::new(exchange::stencil(scenario, seed, &mut parameters)?),
        "incast" => Box::new(exchange::incast(scenario, &mut parameters)?),
        "many-to-many" => Box::new(exchange::many_to_many(scenario, seed, &mut parameters)?),
        name => {
            let Some(application) = graph::application(name) else {
                let applications: Vec<&str> = graph::APPLICATIONS.iter().map(|application| application.name).collect();
                let known = format!("{}, {}", NAMES.join(", "), applications.join(", "));
                return Err(WorkloadError { why: format!("workload.name = \"{name}\" is none of {known}") });
            };
            Box::new(applications::application(application, scenario, seed, &mut parameters)?)
        }
    };
    parameters.end()?;
    Ok(job)
}

/// Builds a simulation, runs its workload through all phases, and returns the verdict.
pub fn run_checked(scenario: &Scenario, seed: u64, trace: Trace) -> (Verdict, Report, Vec<Measured>) {
    match run(scenario, seed, trace) {
        Ok((job, verdict, report)) => (verdict, report, job.measured()),
        Err(why) => (Verdict::Impossible(why), Report::default(), Vec::new()),
    }
}

/// As [`run_checked`], with which messages came to which receives.
pub fn run_delivered(scenario: &Scenario, seed: u64, trace: Trace) -> (Verdict, Report, Deliveries) {
    match run(scenario, seed, trace) {
        Ok((job, verdict, report)) => (verdict, report, job.deliveries()),
        Err(why) => (Verdict::Impossible(why), Report::default(), Deliveries::default()),
    }
}

/// `Err`: why there is no such simulation.
fn run(scenario: &Scenario, seed: u64, trace: Trace) -> Result<(Box<dyn Job>, Verdict, Report), String> {
    let mut job = make(scenario, seed).map_err(|error| error.to_string())?;
    let mut cluster = Cluster::build(scenario, seed, &mut *job, trace).map_err(|error| error.to_string())?;
    let ended = cluster.run(&mut *job);
    let verdict = job.verdict(&cluster, &ended);
    let report = cluster.report().clone();
    Ok((job, verdict, report))
}
