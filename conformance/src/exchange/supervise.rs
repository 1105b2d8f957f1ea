//! The launcher's side of an exchange: starts the ranks as logical hosts, shows how far they are, judges how
//! they ended.
//!
//! Where a rank was ordered to kill itself, all is well only if exactly that happened: that rank died by
//! SIGKILL, every other one reported its loss in time, verified the rest, and ended with the code for a lost
//! peer; and nothing is left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use rerail_core::ids::PeerId;
use rerail_linux::bootstrap::server::{
    Exit as RankExit, LaunchEvent, OnFailure, Output, RankEnd, Report, Stop, Stream,
};
use rerail_linux::settings::Settings;

use super::limits;
use super::plan::{Scope, plan};
use super::rank_message::{LISTENING, RankMessage};
use crate::cli::{ExchangeArgs, QUICK_BYTES_MAX};
use crate::exit::{Exit, Failure};
use crate::launch::{self, Errors};
use crate::output::{Progress, bad, bytes, good, write_stdout};

/// Starts the ranks and waits for them.
pub fn run(args: &ExchangeArgs) -> Result<Exit, Failure> {
    if let Some(rank) = args.kill_rank.filter(|&rank| rank >= args.ranks) {
        return Err(Failure::usage(format!("--kill-rank {rank}: there are {} ranks", args.ranks)));
    }
    if let Some(bytes_max) = args.max_bytes.filter(|&most| args.quick && most > QUICK_BYTES_MAX) {
        return Err(Failure::usage(format!(
            "--max-bytes {bytes_max}: --quick ends at {}; leave one of the two out",
            bytes(QUICK_BYTES_MAX)
        )));
    }
    limits::check_memory(args.ranks, args.bytes_max(), args.quick)?;
    let launcher = launch::hosts(launch::self_again()?, args.ranks, args.hosts())?;
    let settings = Settings::from_env().map_err(Failure::usage)?;
    let rounds = plan(&Scope { ranks: args.ranks, bytes_max: args.bytes_max(), quick: args.quick });
    limits::check(&settings, &settings.to_core_config(PeerId(0), args.ranks), &rounds, args.hosts())?;
    super::check_self_kill(args.after_round.filter(|_| args.kill_rank.is_some()), rounds.len())?;
    let before = leftovers();
    let launcher =
        launcher.env(LISTENING, "1").on_failure(OnFailure::LetOthersFinish).output(Output::Lines).catch_signals(true);
    let mut watch = Watch {
        progress: None,
        json: args.json,
        deaths: BTreeMap::new(),
        notices: Vec::new(),
        errors: Errors::new(),
        written: Ok(()),
    };
    let launch = launcher.spawn().map_err(Failure::usage)?;
    let report = launch.wait_with(|event| watch.take(event)).map_err(Failure::usage)?;
    if let Some(progress) = watch.progress.take() {
        progress.finish();
    }
    if let Some(exit) = watch.errors.over(&report) {
        return Ok(exit);
    }
    match args.kill_rank {
        None => watch.written.map(|()| launch::judge(&report)),
        Some(killed) => {
            let left: Vec<String> = leftovers().difference(&before).cloned().collect();
            Ok(judge_kill(args, &report, &watch, killed, &left))
        }
    }
}

/// Observations while the ranks run.
struct Watch {
    progress: Option<Progress>,
    json: bool,
    /// When a rank's process ended.
    deaths: BTreeMap<u32, Instant>,
    /// The reports of losses: reporter, lost rank, time.
    notices: Vec<Notice>,
    errors: Errors,
    /// Whether the report could be written.
    written: Result<(), Failure>,
}

struct Notice {
    by: u32,
    rank: u32,
    at: Instant,
}

impl Watch {
    fn take(&mut self, event: LaunchEvent) {
        match event {
            LaunchEvent::Line { rank, stream: Stream::Out, text } => match RankMessage::parse(&text) {
                Some(RankMessage::Round { done, total, what }) => {
                    let json = self.json;
                    let progress = self.progress.get_or_insert_with(|| Progress::steps(!json, total, ""));
                    progress.set(done);
                    progress.set_status(|| what);
                }
                Some(RankMessage::Lost { rank: lost, text }) => {
                    self.notices.push(Notice { by: rank, rank: lost, at: Instant::now() });
                    eprintln!("rank {rank} reports: {text}");
                }
                None => {
                    if let Some(progress) = self.progress.take() {
                        progress.finish();
                    }
                    if self.written.is_ok() {
                        self.written = write_stdout(&text);
                    }
                }
            },
            LaunchEvent::Line { rank, stream: Stream::Err, text } => self.errors.line(rank, &text),
            LaunchEvent::Exited(end) => {
                self.deaths.insert(end.rank, Instant::now());
                // Codes for lost peers follow from another rank's end, and failed checks stand in the report.
                let reported = [Exit::PeerLost, Exit::Verification].map(|exit| RankExit::Code(exit.code().into()));
                self.errors.ended(&end, reported.contains(&end.exit));
            }
            LaunchEvent::Malformed { rank, why } => eprintln!("rank {rank}: {why}"),
            LaunchEvent::Stopping(Stop::Signal(_)) => {}
            LaunchEvent::Stopping(why) => eprintln!("all ranks are ended: {why}"),
            LaunchEvent::Joined { .. } | LaunchEvent::Finalized { .. } => {}
        }
    }
}

fn judge_kill(args: &ExchangeArgs, report: &Report, watch: &Watch, killed: u32, left: &[String]) -> Exit {
    let mut wrong = Vec::new();
    let survived = RankExit::Code(Exit::PeerLost.code().into());
    for end in &report.ends {
        match end {
            RankEnd { rank, exit: RankExit::Signal(libc::SIGKILL), .. } if *rank == killed => {}
            RankEnd { rank, exit, .. } if *rank != killed && *exit == survived => {
                wrong.extend(judge_notice(args, watch, *rank, killed));
            }
            end => wrong.push(end.to_string()),
        }
    }
    wrong.extend(left.iter().map(|name| format!("left behind: {name}")));
    if wrong.is_empty() {
        let slowest = watch.notices.iter().filter_map(|notice| delay(watch, notice)).max().unwrap_or_default();
        eprintln!(
            "{} rank {killed} was killed; the other {} reported it within {} ms, verified all else, and left nothing \
             behind",
            good("OK"),
            args.ranks - 1,
            slowest.as_millis()
        );
        return Exit::Ok;
    }
    eprintln!("{} rank {killed} was to be killed, and nothing else to happen:", bad("FAILED"));
    wrong.iter().for_each(|line| eprintln!("  {line}"));
    Exit::Verification
}

/// What is wrong with a survivor's report of the loss.
fn judge_notice(args: &ExchangeArgs, watch: &Watch, by: u32, killed: u32) -> Option<String> {
    let Some(notice) = watch.notices.iter().find(|notice| (notice.by, notice.rank) == (by, killed)) else {
        return Some(format!("rank {by} did not report the loss of rank {killed} when it happened"));
    };
    let delay = delay(watch, notice).unwrap_or_default();
    let limit = std::time::Duration::from_secs(args.detect_seconds);
    (delay > limit).then(|| format!("rank {by} reported the loss {} ms late", (delay - limit).as_millis()))
}

/// From the death to the report; zero where the launcher was notified of the death later.
fn delay(watch: &Watch, notice: &Notice) -> Option<std::time::Duration> {
    watch.deaths.get(&notice.rank).map(|&death| notice.at.saturating_duration_since(death))
}

/// Names in /dev/shm that could be ours: segments are anonymous, so there should never be any.
fn leftovers() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("rerail")).map(|name| format!("/dev/shm/{name}")).collect()
}
