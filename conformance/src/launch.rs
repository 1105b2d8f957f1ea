//! `rerail launch`, and what the other subcommands need to launch themselves: ranks on this machine, as logical hosts.

use std::ffi::OsStr;

use rerail_linux::bootstrap::server::{LaunchEvent, Launcher, Output};

use crate::cli::LaunchArgs;
use crate::exit::{Exit, Failure};

/// The local addresses that are the TCP rails between logical hosts.
const LOOPBACK_RAILS: &str = "127.0.0.1,127.0.0.2";

/// Whether a launcher has started this process.
pub fn is_launched() -> bool {
    ["PMI_FD", "PMI_PORT", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"].iter().any(|name| std::env::var_os(name).is_some())
}

/// This program with the arguments that it was started with.
pub fn self_again() -> Result<Launcher, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::usage(format!("finding this program: {error}")))?;
    Ok(Launcher::new(program).args(std::env::args_os().skip(1)))
}

/// Spreads ranks over logical hosts, in blocks. Ranks of different hosts reach each other by two TCP rails over
/// loopback addresses, those of one host by shared memory. One host: the machine as it is. What the environment says
/// already is left alone.
pub fn hosts(launcher: Launcher, ranks: u32, hosts: u32) -> Launcher {
    let launcher = launcher.ranks(ranks);
    if hosts < 2 {
        return launcher;
    }
    let launcher = match std::env::var_os("RERAIL_TCP_INTERFACES") {
        Some(_) => launcher,
        None => launcher.env("RERAIL_TCP_INTERFACES", LOOPBACK_RAILS),
    };
    (0..ranks).fold(launcher, |launcher, rank| {
        launcher.rank_env(rank, "RERAIL_HOST_ID", OsStr::new(&format!("host{}", host_of(rank, ranks, hosts))))
    })
}

/// The logical host of a rank: equal blocks, as near as possible.
pub fn host_of(rank: u32, ranks: u32, hosts: u32) -> u32 {
    (u64::from(rank) * u64::from(hosts.min(ranks)) / u64::from(ranks.max(1))) as u32
}

/// `rerail launch`.
pub fn run(args: &LaunchArgs) -> Result<u8, Failure> {
    let (program, rest) = args.command.split_first().ok_or_else(|| Failure::usage("no program given"))?;
    let launcher = hosts(Launcher::new(program).args(rest), args.ranks, args.hosts);
    let launch = launcher.output(Output::Prefix).catch_signals(true).spawn().map_err(Failure::usage)?;
    let report = launch.wait_with(|event| match event {
        LaunchEvent::Exited(end) if end.failed() => eprintln!("{end}"),
        LaunchEvent::Stopping(why) => eprintln!("all ranks are told to end: {why}"),
        LaunchEvent::Strange { rank, why } => eprintln!("rank {rank}: {why}"),
        _ => {}
    });
    let code = report.map_err(Failure::usage)?.exit_code();
    Ok(u8::try_from(code).unwrap_or(Exit::Verification.code()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_equal_blocks() {
        let of = |ranks, hosts| (0..ranks).map(|rank| host_of(rank, ranks, hosts)).collect::<Vec<_>>();
        assert_eq!(of(4, 2), [0, 0, 1, 1]);
        assert_eq!(of(5, 2), [0, 0, 0, 1, 1]);
        assert_eq!(of(2, 4), [0, 1]);
        assert_eq!(of(3, 3), [0, 1, 2]);
    }
}
