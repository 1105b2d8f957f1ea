//! `rerail exchange`: every kind of message at every size between all pairs of ranks, every byte verified.
//!
//! | file | holds |
//! |---|---|
//! | `plan` | the rounds, the same at every rank |
//! | `limits` | settings with which they can't end |
//! | `pattern` | payloads |
//! | `rank` | a rank: memory, the loop over rounds, judgement |
//! | `two_sided`, `matching`, `one_sided` | what rounds do |
//! | `measure` | latency and bandwidth per path |
//! | `verify`, `report` | counts, problems, tables, JSON |
//! | `rank_message` | the ranks' messages to the launcher while they run |
//! | `supervise` | the launcher's side |

mod limits;
mod matching;
mod measure;
mod one_sided;
pub mod pattern;
mod plan;
mod rank;
mod rank_message;
mod report;
mod supervise;
mod two_sided;
mod verify;

use std::time::{Duration, Instant};

use rerail_core::ids::PeerId;
use rerail_linux::bootstrap;
use rerail_linux::settings::Settings;

use crate::cli::ExchangeArgs;
use crate::exit::{Exit, Failure};
use crate::launch;
use crate::output;
use crate::session::{self, Session, SessionError};

use plan::{Round, Scope, Transfer, plan};
use rank::{SelfKill, Worker};
use rank_message::RankMessage;
use report::{Frame, Loss, RankReport, Report};

pub use verify::describe;

/// How long a rank waits at most for its peers' BYEs.
const SHUTDOWN_MAX: Duration = Duration::from_secs(10);

/// Launches the ranks, or is one of them.
pub fn run(args: &ExchangeArgs) -> Result<Exit, Failure> {
    if launch::is_launched() { run_rank(args) } else { supervise::run(args) }
}

fn run_rank(args: &ExchangeArgs) -> Result<Exit, Failure> {
    let settings = Settings::from_env().map_err(Failure::usage)?;
    let boot = bootstrap::from_env().map_err(Failure::usage)?;
    let rounds = plan(&Scope { ranks: boot.size(), bytes_max: args.bytes_max(), quick: args.quick });
    // Only the launcher has the ranks' hosts, if it is not this program.
    limits::check(&settings, &settings.to_core_config(PeerId(boot.rank()), boot.size()), &rounds, 1)?;
    let mut session = session::start(settings, boot, Duration::from_secs(args.stall_seconds))?;
    if let Some(rank) = args.kill_rank.filter(|&rank| rank >= session.size()) {
        return Err(Failure::usage(format!("--kill-rank {rank}: there are {} ranks", session.size())));
    }
    let listening = std::env::var_os(rank_message::LISTENING).is_some();
    if listening {
        session.on_loss(|rank, text| {
            let _ = output::write_stdout(&RankMessage::Lost { rank, text: text.to_owned() }.line());
        });
    }
    let self_kill = args.kill_rank.zip(args.after_round);
    let self_kill = self_kill.map(|(rank, round)| SelfKill { rank, after_round: u64::from(round) });
    check_self_kill(args.after_round.filter(|_| args.kill_rank.is_some()), rounds.len())?;
    let (exit, session) = exchange(args, session, &rounds, self_kill, listening)?;
    // Peers that are gone by now were reported, or have shut down.
    session.into_transport().finish(Some(SHUTDOWN_MAX)).map_err(Failure::usage)?;
    Ok(exit)
}

/// Refuses a death after the last round.
fn check_self_kill(after_round: Option<u32>, rounds: usize) -> Result<(), Failure> {
    match after_round.filter(|&after| after as usize >= rounds) {
        Some(after) => {
            Err(Failure::usage(format!("--after-round {after}: there are {rounds} rounds, so {} at most", rounds - 1)))
        }
        None => Ok(()),
    }
}

fn exchange(
    args: &ExchangeArgs,
    session: Session,
    rounds: &[Round],
    self_kill: Option<SelfKill>,
    listening: bool,
) -> Result<(Exit, Session), SessionError> {
    let mut worker = Worker::new(session, rounds, args.seed, self_kill)?;
    worker.barrier()?;
    let start = Instant::now();
    let (total, teller) = (rounds.len() as u64, worker.me() == 0 && listening);
    worker.run(rounds, |done, round| {
        if teller {
            let what = format!("{} {}", round.kind.name(), output::bytes(round.bytes));
            let _ = output::write_stdout(&RankMessage::Round { done, total, what }.line());
        }
    })?;
    if let Some(SelfKill { rank, .. }) = self_kill {
        judge_losses(&mut worker, rank);
    }
    let measured = worker.measure(args.quick, args.bytes_max())?;
    let seconds = start.elapsed().as_secs_f64();
    let (mut session, tally) = (worker.session, worker.tally);
    let rank = session.rank();
    let own = RankReport { rank, tally, measured, rails: report::rails(&session), lost: losses(&session) };
    // The lowest rank alive reports; the last barrier gave all ranks the same list of the living.
    let reporter = session.living().first().copied().unwrap_or(rank);
    let text = serde_json::to_vec(&own).unwrap_or_default();
    let texts = session.collect(reporter, &text)?;
    let mut exit = own_exit(&own);
    if rank == reporter {
        let reports: Vec<Option<RankReport>> =
            texts.iter().map(|text| text.as_deref().and_then(|text| serde_json::from_slice(text).ok())).collect();
        let hosts = session.rank_infos().iter().map(|rank_info| rank_info.host.clone()).collect();
        let frame = Frame { ranks: session.size(), hosts, seed: args.seed, rounds: total, seconds };
        let report = Report::merge(frame, &reports);
        exit = report.exit();
        // A reader that is gone does not change the result.
        let _ = if args.json { output::json(&report) } else { output::write_stdout(&report.render()) };
    }
    Ok((exit, session))
}

/// With a death that was ordered, exactly that one rank must be lost.
fn judge_losses(worker: &mut Worker, killed: u32) {
    let lost: Vec<u32> = worker.session.lost().keys().copied().collect();
    if worker.me() != killed && lost != [killed] {
        let none = Transfer { source: worker.me(), target: killed, number: 0, bytes: 0 };
        worker.wrong(&none, format!("rank {killed} was killed, but ranks {lost:?} are reported lost"));
    }
}

fn own_exit(report: &RankReport) -> Exit {
    if report.tally.problems_total > 0 {
        Exit::Verification
    } else if !report.lost.is_empty() {
        Exit::PeerLost
    } else {
        Exit::Ok
    }
}

/// The peers that this rank has lost.
fn losses(session: &Session) -> Vec<Loss> {
    let lost = session.lost().iter().map(|(&rank, &why)| {
        let rank_info = session.rank_info(rank);
        Loss {
            seen_by: session.rank(),
            rank,
            host: rank_info.host.clone(),
            pid: rank_info.pid,
            path: session.path(rank),
            why: session.transport().describe_loss(why),
            unready_ns: why.time.0,
            attempts: session::attempts(session.transport(), why),
        }
    });
    lost.collect()
}
