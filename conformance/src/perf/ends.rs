//! The two processes of a measurement: launched as a job, or a pair that meets at an address.
//!
//! The process of a pair that connects measures; it sends the parameters to the other, so that they are given
//! once. The policies are each side's own: they apply to its own sends.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rerail_linux::bootstrap::pair::{PairKey, PairListener};
use rerail_linux::bootstrap::{self, Bootstrap};
use rerail_linux::settings::Settings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cli::{EndsArgs, Measure, Operation, PerfArgs, RunArgs, WaysArgs};
use crate::exit::Failure;
use crate::session::{self, Session};

/// How long the listening process waits for the other.
const ACCEPT: Duration = Duration::from_secs(3600);

/// The parameters of the measurement, which one process sends to the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    measure: Measure,
    op: Operation,
    sizes: Vec<u64>,
    iterations: Option<u64>,
    warmup: Option<u64>,
    window: u64,
    batch: Option<u64>,
    verify: bool,
    mapped: bool,
    fresh: bool,
    seconds: Option<u64>,
    interval: u64,
}

impl Plan {
    /// From the command line.
    pub fn of(args: &PerfArgs) -> Plan {
        Plan {
            measure: args.measure,
            op: args.op,
            sizes: args.sizes.clone(),
            iterations: args.iterations,
            warmup: args.warmup,
            window: args.window,
            batch: args.batch,
            verify: args.verify,
            mapped: args.mapped,
            fresh: args.fresh,
            seconds: args.seconds,
            interval: args.interval,
        }
    }

    /// Into the command line's place.
    pub fn give(self, args: &mut PerfArgs) {
        let Plan { measure, op, sizes, iterations, warmup, window, batch, verify, mapped, fresh, seconds, interval } =
            self;
        *args = PerfArgs {
            measure,
            op,
            sizes,
            iterations,
            warmup,
            window,
            batch,
            verify,
            mapped,
            fresh,
            seconds,
            interval,
            ..args.clone()
        };
    }
}

/// Whether this process meets another one, instead of launching.
pub fn is_pair(ends: &EndsArgs) -> bool {
    ends.listen.is_some() || ends.connect.is_some()
}

/// The session, and the rank that measures.
pub fn open(run: &RunArgs) -> Result<(Session, u32), Failure> {
    let RunArgs { ways, ends, .. } = run;
    let settings = settings(ways)?;
    if !is_pair(ends) {
        let boot = bootstrap::from_env().map_err(Failure::usage)?;
        return Ok((session::start(settings, boot, run.stall())?, 0));
    }
    let boot: Box<dyn Bootstrap> = match (&ends.listen, &ends.connect) {
        (Some(address), _) => {
            let bound = PairListener::bind(address);
            let listener = bound.map_err(|error| Failure::usage(format!("--listen {address}: {error}")))?;
            let here = listener.local_addr().map_err(Failure::usage)?;
            let given = ends.key.read()?;
            let is_given = given.is_some();
            let key = given.map_or_else(PairKey::generate, Ok).map_err(Failure::usage)?;
            eprintln!("listening on {here}");
            if !is_given {
                eprintln!("the other side: RERAIL_KEY={} rerail perf --connect {here}", key.to_hex());
            }
            Box::new(listener.accept(&key, ACCEPT).map_err(Failure::usage)?)
        }
        (None, connect) => {
            let to = connect.as_deref().unwrap_or_default();
            let why = "--connect needs what the other side was given or printed: RERAIL_KEY or --key-file";
            let key = ends.key.read()?.ok_or_else(|| Failure::usage(why))?;
            Box::new(session::dial(to, &key)?)
        }
    };
    Ok((session::start(settings, boot, run.stall())?, 1))
}

/// Rank 1 of a pair sends `plan`, and rank 0 receives it.
pub fn agree<T: Serialize + DeserializeOwned>(session: &mut Session, plan: &mut T) -> Result<(), Failure> {
    if session.rank() == 1 {
        // Plain data of this crate's own: serialisation can't fail.
        return Ok(session.send_text(0, &serde_json::to_vec(plan).unwrap_or_default())?);
    }
    let received =
        session.receive_text(1)?.ok_or_else(|| Failure::peer_lost("the other side left before it sent the plan"))?;
    *plan = serde_json::from_slice(&received)
        .map_err(|_| Failure::usage("the other side's plan can't be read: it runs another command or version"))?;
    Ok(())
}

/// Whether the settings of the environment and of the command line are right, before ranks are started with
/// them.
pub fn check(ways: &WaysArgs) -> Result<(), Failure> {
    settings(ways).map(drop)
}

/// The settings of the environment, with the rail options of the command line.
fn settings(ways: &WaysArgs) -> Result<Settings, Failure> {
    let mut settings = Settings::from_env().map_err(Failure::usage)?;
    let policies = [("policy", &ways.policy), ("policy_small", &ways.policy_small)];
    for (name, policy) in policies {
        if let Some(policy) = policy {
            settings.set(name, policy).map_err(Failure::usage)?;
        }
    }
    if let Some(weights) = &ways.weights {
        settings.set("weights", weights).map_err(Failure::usage)?;
    }
    if !ways.interfaces.is_empty() {
        settings.set("tcp_interfaces", &ways.interfaces.join(",")).map_err(Failure::usage)?;
    }
    if !ways.devices.is_empty() {
        settings.set("verbs_devices", &ways.devices.join(",")).map_err(Failure::usage)?;
    }
    Ok(settings)
}

/// A bare socket to the other process, and whether this one measures; `None`: there is no other process.
pub fn bare(args: &PerfArgs) -> std::io::Result<Option<(TcpStream, bool)>> {
    if let Some(address) = &args.run.ends.listen {
        return Ok(Some((TcpListener::bind(address)?.accept()?.0, false)));
    }
    let Some(to) = &args.run.ends.connect else { return Ok(None) };
    let connected = session::with_retries(|| TcpStream::connect(to), std::io::Error::kind)?;
    Ok(Some((connected, true)))
}
