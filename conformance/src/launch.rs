//! `rerail launch`, and what the other subcommands need to launch themselves: ranks on this machine, as
//! logical hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::IsTerminal;

use rerail_linux::bootstrap::Offer;
use rerail_linux::bootstrap::server::{Exit as RankExit, LaunchEvent, Launcher, Output, RankEnd, Report, Stop, Stream};

use crate::cli::LaunchArgs;
use crate::exit::{Exit, Failure, interrupted};
use crate::output::{COLOUR, write_stdout};

/// The local addresses that are the TCP rails between logical hosts.
const LOOPBACK_RAILS: &str = "127.0.0.1,127.0.0.2";

/// Whether a launcher has started this process.
pub fn is_launched() -> bool {
    Offer::of(|name| std::env::var(name).ok()) != Offer::Alone
}

/// This program with the arguments that it was started with. Its ranks write to pipes; colours are for what
/// is behind them.
pub fn self_again() -> Result<Launcher, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::usage(format!("finding this program: {error}")))?;
    let launcher = Launcher::new(program).args(std::env::args_os().skip(1));
    Ok(if std::io::stdout().is_terminal() { launcher.env(COLOUR, "1") } else { launcher })
}

/// Spreads ranks over logical hosts, in blocks. Ranks of different hosts reach each other by two TCP rails
/// over loopback addresses, those of one host by shared memory. One host: the machine as it is. Settings of
/// the environment are kept.
///
/// # Errors
/// More hosts than ranks.
pub fn hosts(launcher: Launcher, ranks: u32, hosts: u32) -> Result<Launcher, Failure> {
    if hosts > ranks {
        return Err(Failure::usage(format!(
            "--hosts {hosts}: there are {ranks} ranks (-n {ranks}), and each host has at least one; give --hosts \
             {ranks} or less, or -n {hosts} or more"
        )));
    }
    let launcher = launcher.ranks(ranks);
    if hosts < 2 {
        return Ok(launcher);
    }
    let launcher = match std::env::var_os("RERAIL_TCP_INTERFACES") {
        Some(_) => launcher,
        None => launcher.env("RERAIL_TCP_INTERFACES", LOOPBACK_RAILS),
    };
    Ok((0..ranks).fold(launcher, |launcher, rank| {
        launcher.rank_env(rank, "RERAIL_HOST_ID", OsStr::new(&format!("host{}", host_of(rank, ranks, hosts))))
    }))
}

/// The logical host of a rank: equal blocks, as near as possible.
pub fn host_of(rank: u32, ranks: u32, hosts: u32) -> u32 {
    (u64::from(rank) * u64::from(hosts.min(ranks)) / u64::from(ranks.max(1))) as u32
}

/// Merges the ranks' standard error and exits for one reader: a rank's messages in one piece, each message
/// once, whichever ranks write it, and no exit for which the rank has given the reason.
#[derive(Debug, Default)]
pub struct Errors {
    /// Logs are requested: lines are shown as they come.
    live: bool,
    lines: BTreeMap<u32, Vec<String>>,
    shown: BTreeSet<String>,
    /// Ends by signals that a terminal sends to all processes: shown unless it sent one to the launcher too.
    by_terminal: Vec<RankEnd>,
}

impl Errors {
    /// Of a job that starts.
    pub fn new() -> Errors {
        Errors { live: std::env::var_os("RERAIL_LOG").is_some(), ..Errors::default() }
    }

    /// A rank has written a line.
    pub fn line(&mut self, rank: u32, text: &str) {
        if self.live {
            eprintln!("[{rank}] {text}");
        } else {
            self.lines.entry(rank).or_default().push(text.to_owned());
        }
    }

    /// A rank has ended. `explained`: its code is reported in another way.
    pub fn ended(&mut self, end: &RankEnd, explained: bool) {
        let printed = self.messages(end);
        if let Some(text) = &printed {
            eprintln!("{text}");
        }
        let reason_given = (printed.is_some() || self.had_messages(end.rank)) && is_ours(end.exit);
        if !end.failed() || explained || reason_given {
            return;
        }
        match end.exit {
            RankExit::Signal(libc::SIGINT | libc::SIGTERM | libc::SIGHUP) => self.by_terminal.push(*end),
            _ => eprintln!("{end}"),
        }
    }

    /// What a rank that has ended has written, if no other has written the same.
    fn messages(&mut self, end: &RankEnd) -> Option<String> {
        let text = self.lines.get(&end.rank)?.join("\n");
        let is_new = self.shown.insert(text.clone());
        // A failure of ours is a sentence that begins so.
        is_new.then(|| match text.strip_prefix("rerail: ") {
            Some(why) => format!("rerail: rank {}: {why}", end.rank),
            None => format!("[{}] {}", end.rank, text.replace('\n', &format!("\n[{}] ", end.rank))),
        })
    }

    fn had_messages(&self, rank: u32) -> bool {
        self.live || self.lines.contains_key(&rank)
    }

    /// The job is over. The code of a signal that ended it.
    pub fn over(&self, report: &Report) -> Option<Exit> {
        if let Some(Stop::Signal(signal)) = report.stop {
            eprintln!("rerail: {}; all ranks were ended", interrupted(signal));
            return Some(Exit::by_signal(signal));
        }
        self.by_terminal.iter().for_each(|end| eprintln!("{end}"));
        None
    }
}

/// Whether a rank ended with a code of the tool's that comes with a message.
fn is_ours(exit: RankExit) -> bool {
    matches!(exit, RankExit::Code(code) if Exit::of_code(code).is_some_and(|exit| exit != Exit::Panic))
}

/// Runs this program's ranks to their end: prints their output, and merges their messages.
pub fn supervise(launcher: Launcher) -> Result<Exit, Failure> {
    let launch = launcher.output(Output::Lines).catch_signals(true).spawn().map_err(Failure::usage)?;
    let mut errors = Errors::new();
    let mut written = Ok(());
    let report = launch.wait_with(|event| match event {
        // The first failure is enough: an incomplete output is a failure.
        LaunchEvent::Line { stream: Stream::Out, text, .. } if written.is_ok() => written = write_stdout(&text),
        LaunchEvent::Line { rank, stream: Stream::Err, text } => errors.line(rank, &text),
        LaunchEvent::Exited(end) => errors.ended(&end, false),
        _ => {}
    });
    let report = report.map_err(Failure::usage)?;
    let exit = errors.over(&report).unwrap_or_else(|| judge(&report));
    written.map(|()| exit)
}

/// The exit of a job of this program's ranks: the gravest of their codes. A lost peer may follow from any
/// other code.
pub fn judge(report: &Report) -> Exit {
    if report.success() {
        return Exit::Ok;
    }
    let codes: Vec<i32> = report.ends.iter().map(|end| end.exit.code()).collect();
    [Exit::Panic, Exit::Verification, Exit::Absent, Exit::Usage]
        .into_iter()
        .find(|exit| codes.contains(&exit.code().into()))
        .unwrap_or(Exit::PeerLost)
}

/// `rerail launch`.
pub fn run(args: &LaunchArgs) -> Result<u8, Failure> {
    let (program, rest) = args.command.split_first().ok_or_else(|| Failure::usage("no program given"))?;
    let launcher = hosts(Launcher::new(program).args(rest), args.ranks, args.hosts)?;
    let launch = launcher.output(Output::Prefix).catch_signals(true).spawn().map_err(Failure::usage)?;
    // Its ranks' lines go where they belong by themselves.
    let mut errors = Errors::default();
    let report = launch.wait_with(|event| match event {
        LaunchEvent::Exited(end) => errors.ended(&end, false),
        LaunchEvent::Stopping(Stop::Signal(_)) => {}
        LaunchEvent::Stopping(why) => eprintln!("all ranks are ended: {why}"),
        LaunchEvent::Malformed { rank, why } => eprintln!("rank {rank}: {why}"),
        _ => {}
    });
    let report = report.map_err(Failure::usage)?;
    if let Some(exit) = errors.over(&report) {
        return Ok(exit.code());
    }
    Ok(u8::try_from(report.exit_code()).unwrap_or(Exit::Verification.code()))
}

#[cfg(test)]
mod tests {
    use rerail_linux::bootstrap::server::Phase;

    use super::*;

    #[test]
    fn hosts_are_equal_blocks() {
        let of = |ranks, hosts| (0..ranks).map(|rank| host_of(rank, ranks, hosts)).collect::<Vec<_>>();
        assert_eq!(of(4, 2), [0, 0, 1, 1]);
        assert_eq!(of(5, 2), [0, 0, 0, 1, 1]);
        assert_eq!(of(2, 4), [0, 1]);
        assert_eq!(of(3, 3), [0, 1, 2]);
    }

    #[test]
    fn more_hosts_than_ranks_are_refused() {
        let printed = hosts(Launcher::new("true"), 2, 3).unwrap_err();
        assert!(
            printed.exit == Exit::Usage && printed.message.starts_with("--hosts 3: there are 2 ranks"),
            "{printed}"
        );
        assert!(hosts(Launcher::new("true"), 3, 3).is_ok());
    }

    #[test]
    fn a_message_of_many_ranks_is_shown_once() {
        let end =
            |rank, code| RankEnd { rank, pid: 1, exit: RankExit::Code(code), phase: Phase::Joined, stopped: false };
        let mut errors = Errors::default();
        for rank in [1, 0] {
            errors.line(rank, "rerail: no device");
            errors.line(rank, "second line");
        }
        errors.line(2, "rerail: another");
        let printed: Vec<_> = [1, 0, 2, 3].map(|rank| errors.messages(&end(rank, 2))).into();
        let first = Some("rerail: rank 1: no device\nsecond line".to_owned());
        assert_eq!(printed, [first, None, Some("rerail: rank 2: another".to_owned()), None]);
        assert!(errors.had_messages(0) && !errors.had_messages(3));
        assert!(is_ours(RankExit::Code(69)) && !is_ours(RankExit::Code(101)) && !is_ours(RankExit::Signal(9)));
    }

    #[test]
    fn the_gravest_code_counts() {
        let report = |codes: &[i32]| {
            let end = |(rank, &code)| RankEnd {
                rank,
                pid: 1,
                exit: RankExit::Code(code),
                phase: Phase::Joined,
                stopped: false,
            };
            let ends: Vec<RankEnd> = (0..).zip(codes).map(end).collect();
            judge(&Report { ends, stop: None, failed_first: Some(0) })
        };
        assert_eq!(report(&[3, 1]), Exit::Verification);
        assert_eq!(report(&[3, 69]), Exit::Absent);
        assert_eq!(report(&[3, 101, 1]), Exit::Panic);
        assert_eq!(report(&[3, 137]), Exit::PeerLost);
    }
}
