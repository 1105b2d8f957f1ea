//! How the tool ends: one table of exit codes, and the failure that carries one.
//!
//! The codes are part of the interface (scripts and the integration tests depend on them). Each `--help`
//! prints the rows of its command from this table, `rerail --help` all of them.

use std::fmt;
use std::process::ExitCode;

use rerail_linux::bootstrap::server::signal_name;
use rerail_linux::driver::StartError;

/// A row: a code, what it means, and the commands that end with it; none: all of them.
type Row = (Codes, &'static str, &'static [&'static str]);

/// The code of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codes {
    One(u8),
    /// 128 and the number of a signal.
    Signals,
    /// Whatever the program that was started ended with.
    Program,
}

/// Every code that the tool ends with.
const TABLE: &[Row] = &[
    (Codes::One(0), "success: whatever was checked is as it should be", &[]),
    (Codes::Program, "that of the first rank that failed", &["launch"]),
    (
        Codes::One(1),
        "a check failed: data lost, duplicated, out of order or different, or nothing was delivered for --stall-seconds",
        &["exchange", "perf", "explain", "send", "recv"],
    ),
    (Codes::One(1), "a process takes more memory than --budget", &["explain"]),
    (Codes::One(1), "a bandwidth is below what --sums demands", &["series"]),
    (Codes::One(1), "a demand on the balanced policy is not met, or a message never arrived", &["lab"]),
    (Codes::One(1), "a case failed that is not listed (--known), or one that is listed passed", &["check"]),
    (Codes::One(1), "a claim does not hold, or a simulated cluster did not end clean", &["report"]),
    (Codes::One(2), "wrong use or configuration, or the system refused something (a file, memory, an address)", &[]),
    (Codes::One(3), "a peer was lost", &["exchange", "perf", "explain", "send", "recv"]),
    (
        Codes::One(20),
        "crash: a panic (soak ends with the gravest of crash, corruption, duplicated, order, lost, stuck, leak)",
        &["sim", "soak"],
    ),
    (Codes::One(21), "lost: something promised never happened", &["sim", "soak"]),
    (Codes::One(22), "duplicated: something happened twice", &["sim", "soak"]),
    (Codes::One(23), "order: a message was matched to a receive that it must not be matched to", &["sim", "soak"]),
    (Codes::One(24), "corruption: wrong bytes", &["sim", "soak"]),
    (Codes::One(25), "leak: something was not released", &["sim", "soak"]),
    (Codes::One(26), "stuck: something never completes", &["sim", "soak"]),
    (Codes::One(27), "--minutes were over before all seeds were run; those that were run are clean", &["soak"]),
    (Codes::One(28), "a rare path was never taken (--demand-coverage); all simulations are clean", &["soak"]),
    (
        Codes::One(69),
        "something that was requested is absent on this machine: a library, a device, a feature, an interface",
        &["exchange", "perf", "explain", "check", "send", "recv"],
    ),
    (Codes::One(101), "a panic: a defect of rerail itself, please report it", &[]),
    (Codes::Signals, "interrupted by a signal: 129 by SIGHUP, 130 by SIGINT (^C), 143 by SIGTERM", &[]),
];

/// The exit codes of a command, for its `--help`; of all commands for an empty name.
pub fn help(command: &str) -> String {
    let mut text = String::from("Exit codes:");
    for (code, meaning, commands) in TABLE {
        if !(command.is_empty() || commands.is_empty() || commands.contains(&command)) {
            continue;
        }
        let code = match code {
            Codes::One(code) => code.to_string(),
            Codes::Signals => "128+N".to_owned(),
            Codes::Program => "any".to_owned(),
        };
        text += &format!("\n  {code:>5}  {meaning}");
        if command.is_empty() && !commands.is_empty() {
            text += &format!(" ({})", commands.join(", "));
        }
    }
    text
}

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Ok,
    /// Something that was checked is wrong.
    Verification,
    /// Wrong use or configuration, or this machine refused something (a file, memory).
    Usage,
    /// A peer was lost.
    PeerLost,
    /// Something that is needed is absent on this machine.
    Absent,
    /// A panic, of a rank that was launched.
    Panic,
    /// This signal ended it.
    Signal(u8),
}

impl Exit {
    /// The number that the process ends with.
    pub const fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Verification => 1,
            Exit::Usage => 2,
            Exit::PeerLost => 3,
            Exit::Absent => 69,
            Exit::Panic => 101,
            Exit::Signal(signal) => 128 + signal,
        }
    }

    /// The end by a signal.
    pub fn by_signal(signal: i32) -> Exit {
        Exit::Signal(u8::try_from(signal).unwrap_or_default() & 0x7f)
    }

    /// Of a rank that was launched: the same code where it is one of this table.
    pub fn of_code(code: i32) -> Option<Exit> {
        [Exit::Ok, Exit::Verification, Exit::Usage, Exit::PeerLost, Exit::Absent, Exit::Panic]
            .into_iter()
            .find(|exit| i32::from(exit.code()) == code)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Reports that a signal ended this command.
pub fn interrupted(signal: i32) -> String {
    match signal_name(signal) {
        Some(name) => format!("interrupted by {name}"),
        None => format!("interrupted by signal {signal}"),
    }
}

/// Why a subcommand could not do its work.
#[derive(Debug)]
pub struct Failure {
    /// The code to end with.
    pub exit: Exit,
    /// One sentence or more for a person: what happened, and what can be done.
    pub message: String,
}

impl Failure {
    /// Wrong use or configuration, or a refusal by the machine.
    pub fn usage(message: impl fmt::Display) -> Self {
        Failure { exit: Exit::Usage, message: message.to_string() }
    }

    /// A check failed.
    pub fn verification(message: impl fmt::Display) -> Self {
        Failure { exit: Exit::Verification, message: message.to_string() }
    }

    /// A peer was lost.
    pub fn peer_lost(message: impl fmt::Display) -> Self {
        Failure { exit: Exit::PeerLost, message: message.to_string() }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Failure {
        let exit = if error.is_absent() { Exit::Absent } else { Exit::Usage };
        Failure { exit, message: error.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// One table: every command's help lists the codes of the table.
    #[test]
    fn every_command_prints_its_rows_of_the_table() {
        let mut cli = Cli::command();
        assert!(cli.render_long_help().to_string().contains(&help("")));
        let commands = cli.get_subcommands().map(|command| command.get_name().to_owned());
        let names: Vec<String> = commands.filter(|name| name != "help").collect();
        for name in &names {
            let help_text = cli.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            assert!(help_text.contains(&help(name)), "{name}: {help_text}");
        }
        for (_, meaning, commands) in TABLE {
            assert!(commands.iter().all(|name| names.iter().any(|known| known == name)), "{meaning}");
        }
    }

    #[test]
    fn codes_that_the_tool_ends_with_are_in_the_table() {
        let listed = |code: u8| TABLE.iter().any(|(row, ..)| *row == Codes::One(code));
        for exit in [Exit::Ok, Exit::Verification, Exit::Usage, Exit::PeerLost, Exit::Absent, Exit::Panic] {
            assert!(listed(exit.code()), "{exit:?}");
            assert_eq!(Exit::of_code(exit.code().into()), Some(exit));
        }
        assert!((20..=27).all(listed));
        assert_eq!(Exit::by_signal(libc::SIGINT).code(), 130);
        assert_eq!(Exit::of_code(130), None);
    }
}
