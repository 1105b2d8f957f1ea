//! `rerail explain`: for messages of some sizes, which rails would carry what, and why.
//!
//! The planner itself explains ([`Endpoint::explain`](rerail_core::endpoint::Endpoint::explain)), after some
//! messages have measured the rails: between two processes of this machine, between hosts, or in a simulation
//! when its workload is complete.

mod memory;
pub mod table;

use std::path::Path;
use std::time::Duration;

use rerail_core::endpoint::MessageClass;
use rerail_core::ids::{PeerId, RailId};
use rerail_sim::cluster::Cluster;
use rerail_sim::scenario::Scenario;
use rerail_sim::trace::Trace;
use rerail_sim::workload;
use serde::{Deserialize, Serialize};

use crate::cli::{ClassChoice, ExplainArgs};
use crate::exit::{Exit, Failure};
use crate::launch;
use crate::output::{json, write_stdout};
use crate::perf::kernel::{Buffers, Kernel, Load, Pair};
use crate::perf::rails::{Health, monotonic_ns};
use crate::perf::{self, ends};
use crate::session::Session;
use crate::simulate;

use table::{Explained, Known, render};

/// Messages in flight while the rails are measured.
const WINDOW: u64 = 4;
/// How long to wait at most for the peer's BYE.
const SHUTDOWN_MAX: Duration = Duration::from_secs(10);

/// The parameters of the run, which one process of a pair sends to the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Plan {
    sizes: Vec<u64>,
    after: u64,
}

/// Runs the explanation and prints it.
pub fn run(args: &ExplainArgs) -> Result<Exit, Failure> {
    if args.memory {
        return memory::run(args);
    }
    if let Some(file) = &args.scenario {
        print(args, &simulated(args, file)?)?;
        return Ok(Exit::Ok);
    }
    if !ends::is_pair(&args.run.ends) && !launch::is_launched() {
        ends::check(&args.run.ways)?;
        return perf::supervise(args.path, 1);
    }
    let (mut session, first) = ends::open(&args.run)?;
    if session.size() != 2 {
        return Err(Failure::usage(format!("explain runs between 2 ranks, {} were launched", session.size())));
    }
    let mut plan = Plan { sizes: args.size.clone(), after: args.after };
    if ends::is_pair(&args.run.ends) {
        ends::agree(&mut session, &mut plan)?;
    }
    let pair = Pair { first, second: 1 - first };
    warm_up(&plan, &mut session, pair)?;
    if session.rank() == first {
        print(args, &explain_all(args, &session, pair.second)?)?;
    }
    session.barrier(0)?;
    session.into_transport().finish(Some(SHUTDOWN_MAX)).map_err(Failure::usage)?;
    Ok(Exit::Ok)
}

fn print(args: &ExplainArgs, explained: &[Explained]) -> Result<(), Failure> {
    if args.run.json { json(&explained) } else { write_stdout(&render(explained)) }
}

/// Sends messages of each size, so that the transport measures its rails.
fn warm_up(plan: &Plan, session: &mut Session, pair: Pair) -> Result<(), Failure> {
    let largest = plan.sizes.iter().copied().max().unwrap_or(0);
    let buffers = Buffers::allocate(session, largest.next_multiple_of(64).max(64) * WINDOW, false)?;
    // A channel is up in any case.
    session.barrier(0)?;
    for &bytes in &plan.sizes {
        let load = Load { bytes, window: WINDOW, warmup: 0, windows: plan.after.div_ceil(WINDOW) };
        let sent = Kernel::new(session, pair, buffers).stream(&load, false);
        sent.map_err(|error| perf::failure(session, bytes, error))?;
    }
    Ok(())
}

fn class(args: &ExplainArgs) -> MessageClass {
    match args.class {
        // What is too large for it is explained as a large one.
        ClassChoice::Message => MessageClass::Small,
        ClassChoice::OneSided => MessageClass::OneSided,
    }
}

/// The transport's answers.
fn explain_all(args: &ExplainArgs, session: &Session, peer: u32) -> Result<Vec<Explained>, Failure> {
    let transport = session.transport();
    let rails = transport.rails().map(|rail| Known::of(&rail).remarked(transport.remark(PeerId(peer), rail.id)));
    let rails: Vec<_> = rails.collect();
    let now = monotonic_ns();
    let health = |rail| Some(Health::of(&transport.endpoint().rail_health(PeerId(peer), rail)?, now));
    explained(args, &rails, health, |class, bytes| transport.explain(PeerId(peer), class, bytes))
}

/// Rank 0's answers about rank 1, at the end of a simulation.
fn simulated(args: &ExplainArgs, file: &Path) -> Result<Vec<Explained>, Failure> {
    let scenario = scenario(args, file)?;
    if scenario.size() < 2 {
        return Err(Failure::usage(format!("{}: a cluster of one rank has no way to explain", file.display())));
    }
    let mut job = workload::make(&scenario, args.seed).map_err(Failure::usage)?;
    let mut cluster = Cluster::build(&scenario, args.seed, &mut *job, Trace::off()).map_err(Failure::usage)?;
    let ended = cluster.run(&mut *job);
    let verdict = job.verdict(&cluster, &ended);
    if !verdict.is_good() {
        return Err(Failure::verification(format!("the simulation did not end clean: {verdict}")));
    }
    let view = cluster.view();
    let now = view.now;
    let engine = view.engine(0).ok_or_else(|| Failure::usage("the simulation has no rank 0"))?;
    let rails: Vec<_> = engine.rails().map(|rail| Known::of(&rail)).collect();
    let health = |rail| Some(Health::of(&engine.endpoint().rail_health(PeerId(1), rail)?, now.0));
    explained(args, &rails, health, |class, bytes| engine.endpoint().explain(now, PeerId(1), class, bytes))
}

/// The scenario, with the policies of the command line.
fn scenario(args: &ExplainArgs, file: &Path) -> Result<Scenario, Failure> {
    let mut scenario = simulate::read(file)?;
    let ways = &args.run.ways;
    let values = [
        ("config.policy", ways.policy.clone()),
        ("config.policy_small", ways.policy_small.clone()),
        // Scenarios count from rail 0, the process itself.
        ("config.weights", ways.weights.as_ref().map(|weights| format!("[0,{weights}]"))),
    ];
    for (key, value) in values {
        if let Some(value) = value {
            scenario = scenario.set(key, &value).map_err(Failure::usage)?;
        }
    }
    Ok(scenario)
}

/// Answers for all sizes.
fn explained(
    args: &ExplainArgs,
    rails: &[Known],
    health: impl Fn(RailId) -> Option<Health>,
    explanation_of: impl Fn(MessageClass, u64) -> Option<rerail_core::endpoint::Explanation>,
) -> Result<Vec<Explained>, Failure> {
    let one = |&bytes: &u64| {
        let explanation = explanation_of(class(args), bytes);
        let explanation = explanation.ok_or_else(|| Failure::peer_lost("no connection to the peer is up any more"))?;
        Ok(Explained::new(bytes, rails, &explanation, &health))
    };
    args.size.iter().map(one).collect()
}
