//! Planted bugs are found: every wrong belief of [`Planted`], held by all ranks of a world, is caught by a checker within a
//! stated number of seeds, and none of these seeds raises an alarm without it.
//!
//! `conformance/PLANTED.md` has the table; `cargo test -p rerail-sim --test mutants -- --nocapture` prints it anew.
//! `RERAIL_MUTANT=high-water` runs one alone and tells its finding in full.

use rerail_core::config::Striping;
use rerail_core::endpoint::Planted;
use rerail_sim::check::{Damage, Lost, Verdict};
use rerail_sim::scenario::{Scenario, Span};
use rerail_sim::soak::{Menu, run, run_planted, world_of};
use rerail_sim::trace::Trace;
use rerail_sim::world::fault::Kind;

/// What is stuck is so for good, and virtual time costs as much as real time does where ranks keep trying.
const CONVERGENCE: Span = Span::from_millis(200);

/// Where a bug is looked for.
#[derive(Clone, Copy)]
enum Worlds {
    /// Those that seeds draw, without faults.
    Calm,
    /// The same, with messages alone: findings are about them.
    Messages,
    /// The same, and large messages are always cut, in equal parts.
    Striped,
    /// The same without faults, and nobody asks rails how they are.
    Unwatched,
    /// Those that seeds draw, with faults that end connections.
    Broken,
    /// Those that seeds draw, in which one sort of connection breaks, and nothing else.
    Only(Kind),
    /// One scenario file; the seed draws the traffic.
    File(&'static str, &'static str),
}

impl Worlds {
    fn name(self) -> &'static str {
        match self {
            Worlds::Calm => "drawn, no faults",
            Worlds::Messages => "drawn, no faults, messages only",
            Worlds::Striped => "drawn, no faults, even striping",
            Worlds::Unwatched => "drawn, no faults, no deadlines",
            Worlds::Broken => "drawn, `qp-error` and `stream-reset`",
            Worlds::Only(Kind::QpError) => "drawn, `qp-error`",
            Worlds::Only(_) => "drawn, `stream-reset`",
            Worlds::File(name, _) => name,
        }
    }

    fn of(self, seed: u64) -> Scenario {
        let mut scenario = match self {
            Worlds::File(name, text) => Scenario::parse(name, text).expect("a scenario of this repository"),
            Worlds::Broken => world_of(seed, &Menu::Only(vec![Kind::QpError, Kind::StreamReset])),
            Worlds::Only(kind) => world_of(seed, &Menu::Only(vec![kind])),
            _ => world_of(seed, &Menu::Calm),
        };
        if let Worlds::Messages = self {
            scenario.workload.parameters.insert("one_sided".into(), toml::Value::Boolean(false));
        }
        if let Worlds::Striped = self {
            scenario.config.striping = Some(Striping::Even);
        }
        if let Worlds::Unwatched = self {
            scenario.config.stall_min = Some(Span::from_millis(0));
        }
        match self {
            // Who is given up is given up by then.
            Worlds::Broken => scenario.config.recovery_timeout = Some(Span::from_millis(100)),
            _ => scenario.limits.convergence = CONVERGENCE,
        }
        scenario
    }
}

/// A line of the table.
struct Mutant {
    bug: Planted,
    worlds: Worlds,
    /// It is found by this seed at the latest, counted from 1.
    within: u64,
    /// Whether a verdict is one that the bug's documentation speaks of.
    is_finding: fn(&Verdict) -> bool,
}

const REPLAY: Worlds =
    Worlds::File("`mutants/replay-unfenced.toml`", include_str!("../../scenarios/mutants/replay-unfenced.toml"));
const REPEATS: Worlds =
    Worlds::File("`mutants/no-generation.toml`", include_str!("../../scenarios/mutants/no-generation.toml"));

const ROUNDS: Worlds = Worlds::File("`mutants/rounds.toml`", include_str!("../../scenarios/mutants/rounds.toml"));
const SKIPPED: Worlds = Worlds::File(
    "`regressions/resume-after-fin.toml`",
    include_str!("../../scenarios/regressions/resume-after-fin.toml"),
);
const ATOMICS: Worlds =
    Worlds::File("`mutants/atomic-again.toml`", include_str!("../../scenarios/mutants/atomic-again.toml"));

/// A receive is told of bytes that are not there yet, or of others.
fn is_early(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Corruption(found) => {
            matches!(found.damage, Damage::Message { .. } | Damage::Stranger { .. } | Damage::Ghost(_))
        }
        _ => false,
    }
}

fn mutant(bug: Planted) -> Mutant {
    let (worlds, within, is_finding): (_, _, fn(&Verdict) -> bool) = match bug {
        Planted::HighWater => {
            (Worlds::Calm, 4, |verdict| matches!(verdict, Verdict::Stuck(_) | Verdict::Lost(_) | Verdict::Order(_)))
        }
        Planted::FinBeforeData => (Worlds::Calm, 4, |verdict| match verdict {
            Verdict::Corruption(found) => {
                matches!(found.damage, Damage::Message { .. } | Damage::Stranger { .. } | Damage::Ghost(_))
            }
            _ => false,
        }),
        Planted::CompletionOnCqe => (Worlds::Messages, 16, |verdict| match verdict {
            Verdict::Corruption(found) => matches!(found.damage, Damage::NotPlaced { .. }),
            Verdict::Lost(lost) => matches!(lost, Lost::Acknowledged { .. } | Lost::Put { .. }),
            _ => false,
        }),
        Planted::ReplayUnfenced => (REPLAY, 8, |verdict| match verdict {
            Verdict::Corruption(found) => matches!(found.damage, Damage::Ghost(_)),
            _ => false,
        }),
        Planted::AckForgotten => {
            (Worlds::Unwatched, 8, |verdict| matches!(verdict, Verdict::Stuck(_) | Verdict::Leak(_)))
        }
        Planted::WeightsDontSum => (Worlds::Striped, 16, |verdict| {
            matches!(verdict, Verdict::Stuck(_) | Verdict::Corruption(_) | Verdict::Order(_))
        }),
        Planted::NoGeneration => (REPEATS, 4, |verdict| match verdict {
            Verdict::Corruption(found) => {
                matches!(found.damage, Damage::Message { .. } | Damage::Stranger { .. } | Damage::Ghost(_))
            }
            _ => false,
        }),
        Planted::ArrivalOrder => (Worlds::Calm, 16, |verdict| matches!(verdict, Verdict::Order(_))),
        Planted::NewestFirst => (Worlds::Calm, 16, |verdict| matches!(verdict, Verdict::Order(_))),
        Planted::CreditIgnored => (Worlds::Calm, 8, |verdict| match verdict {
            Verdict::Corruption(found) => matches!(found.damage, Damage::Error { .. }),
            Verdict::Lost(lost) => matches!(lost, Lost::Peer(_)),
            _ => false,
        }),
        Planted::RetainedKept => (Worlds::Calm, 2, |verdict| matches!(verdict, Verdict::Leak(_))),
        Planted::RedialNever => (Worlds::Broken, 16, |verdict| matches!(verdict, Verdict::Lost(Lost::Peer(_)))),
        Planted::ResumeKeepsFins => (ROUNDS, 4, is_early),
        Planted::FinOfAnyRound => (ROUNDS, 2, is_early),
        Planted::VoidNotUnclaimed => (Worlds::Only(Kind::StreamReset), 2, |verdict| {
            matches!(verdict, Verdict::Stuck(_) | Verdict::Lost(_) | Verdict::Order(_))
        }),
        Planted::AtomicAgain => (ATOMICS, 4, |verdict| matches!(verdict, Verdict::Doubled(_))),
        Planted::ResumeSkipped => (SKIPPED, 1, |verdict| matches!(verdict, Verdict::Stuck(_) | Verdict::Order(_))),
        Planted::RetainedEarly => (Worlds::Only(Kind::QpError), 16, is_early),
    };
    Mutant { bug, worlds, within, is_finding }
}

/// Where the search begins: at 1, or shortly before the first seed that finds what few seeds find, for these worlds take time.
fn from(bug: Planted) -> u64 {
    match bug {
        Planted::AtomicAgain => 34,
        Planted::ResumeKeepsFins => 31,
        Planted::FinOfAnyRound => 17,
        Planted::VoidNotUnclaimed => 25,
        Planted::ResumeSkipped => 24,
        _ => 1,
    }
}

/// Seeds as the table names them.
fn seeds(mutant: &Mutant) -> String {
    match from(mutant.bug) {
        1 => mutant.within.to_string(),
        from => format!("{} from {from}", mutant.within),
    }
}

/// The first seed that finds it, and the verdict. `Err`: why not.
fn hunt(mutant: &Mutant) -> Result<(u64, Verdict), String> {
    let name = mutant.bug.name();
    let from = from(mutant.bug);
    for seed in from..from + mutant.within {
        let world = mutant.worlds.of(seed);
        let (sane, ..) = run(&world, seed, Trace::off());
        if !sane.is_good() {
            return Err(format!("{name}: seed {seed} raises an alarm without the bug: {sane}"));
        }
        let (verdict, ..) = run_planted(&world, seed, Trace::off(), mutant.bug);
        if verdict.is_good() {
            continue;
        }
        return match (mutant.is_finding)(&verdict) {
            true => Ok((seed, verdict)),
            false => Err(format!("{name}: seed {seed} finds what the bug does not do: {verdict}")),
        };
    }
    Err(format!("{name}: not found within {} seeds", mutant.within))
}

/// The checker that found it, as the table names it.
fn checker(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Corruption(found) => match found.damage {
            Damage::Message { .. } | Damage::Stranger { .. } => "payload at completion",
            Damage::Ghost(_) => "memory after completion",
            Damage::NotPlaced { .. } => "payload placed at the peer",
            Damage::Error { .. } => "reasons of errors",
            _ => "memory",
        },
        Verdict::Order(_) => "order of matching",
        Verdict::Stuck(_) => "liveness",
        Verdict::Leak(_) => "tables empty at rest",
        Verdict::Lost(_) => "nothing lost",
        Verdict::Doubled(_) => "exactly once",
        Verdict::Impossible(_) => "none",
        Verdict::Crash(_) => "the world goes on",
        Verdict::Clean => "none",
    }
}

#[test]
fn every_planted_bug_is_found() {
    let alone = std::env::var("RERAIL_MUTANT").ok();
    let chosen = |bug: &Planted| alone.as_deref().is_none_or(|name| bug.name() == name);
    let mut missed = Vec::new();
    println!("| bug | worlds | found by (verdict) | within seeds | first seed |\n|---|---|---|---|---|");
    for mutant in Planted::ALL.into_iter().filter(chosen).map(mutant) {
        match hunt(&mutant) {
            Ok((seed, verdict)) => {
                let (name, worlds, within) = (mutant.bug.name(), mutant.worlds.name(), seeds(&mutant));
                let found = format!("{} ({})", checker(&verdict), verdict.word());
                println!("| `{name}` | {worlds} | {found} | {within} | {seed} |");
                if !row(name).contains(&found) {
                    missed.push(format!("{name}: found by {found}, and PLANTED.md says otherwise: {}", row(name)));
                }
                if alone.is_some() {
                    println!("\n{verdict}");
                }
            }
            Err(why) => missed.push(why),
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// A bug's row in the documentation.
fn row(name: &str) -> &'static str {
    let begin = format!("| `{name}` |");
    include_str!("../../PLANTED.md").lines().find(|line| line.starts_with(&begin)).unwrap_or("no row")
}

/// The table in the documentation speaks of every bug, and of the same worlds and numbers as this file.
#[test]
fn the_table_is_in_the_documentation() {
    let table = include_str!("../../PLANTED.md");
    for mutant in Planted::ALL.map(mutant) {
        let name = format!("| `{}` |", mutant.bug.name());
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with(&name)).collect();
        assert_eq!(rows.len(), 1, "{name}");
        let (worlds, within) = (format!("| {} |", mutant.worlds.name()), format!("| {} |", seeds(&mutant)));
        assert!(rows[0].contains(&worlds) && rows[0].contains(&within), "{}", rows[0]);
    }
}
