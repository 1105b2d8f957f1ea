//! The `rerail` tool: exercises, measures and inspects the transport, and copies files with it.

mod check;
mod cli;
mod config;
mod exchange;
mod exit;
mod explain;
mod filecopy;
mod info;
mod interrupt;
mod launch;
mod output;
mod perf;
mod report;
mod series;
mod session;
mod simulate;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use exit::{Exit, Failure};

fn main() -> ExitCode {
    if let Err(why) = start_log() {
        eprintln!("rerail: {why}");
        return Exit::Usage.into();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(reported) if reported.use_stderr() => reported.exit(),
        // Help, or the version.
        Err(reported) => {
            let text = reported.render();
            let text = if std::io::stdout().is_terminal() { text.ansi().to_string() } else { text.to_string() };
            return match output::write_stdout(text.trim_end()) {
                Ok(()) => Exit::Ok.into(),
                Err(failure) => print_failure(&failure),
            };
        }
    };
    match run(cli) {
        Ok(code) => code,
        Err(failure) => print_failure(&failure),
    }
}

fn print_failure(failure: &Failure) -> ExitCode {
    // One write: pieces of several ranks' messages would be mixed, and of one that is killed amid them a
    // piece be left.
    let _ = std::io::stderr().write_all(format!("rerail: {}\n", failure.message).as_bytes());
    failure.exit.into()
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let command = cli.command.unwrap_or(Command::Exchange(cli.exchange));
    if !launches(&command) && !launch::is_launched() {
        interrupt::watch();
    }
    Ok(match command {
        Command::Exchange(args) => exchange::run(&args)?.into(),
        Command::Launch(args) => ExitCode::from(launch::run(&args)?),
        Command::Info(args) => info::run(args)?.into(),
        Command::Config(args) => config::run(args)?.into(),
        Command::Perf(args) => perf::run(&args)?.into(),
        Command::Explain(args) => explain::run(&args)?.into(),
        Command::Series(args) => series::run(&args)?.into(),
        Command::Sim(args) => simulate::sim(&args)?,
        Command::Soak(args) => simulate::soak(&args)?,
        Command::Lab(args) => simulate::lab(&args)?,
        Command::Check(args) => check::run(&args)?.into(),
        Command::Report(args) => report::run(&args)?.into(),
        Command::Send(args) => filecopy::send(&args)?.into(),
        Command::Recv(args) => filecopy::recv(&args)?.into(),
    })
}

/// Whether the command starts ranks through a launcher that takes the signals.
fn launches(command: &Command) -> bool {
    match command {
        Command::Exchange(_) | Command::Launch(_) => true,
        Command::Perf(args) => !perf::ends::is_pair(&args.run.ends),
        Command::Explain(args) => args.scenario.is_none() && !perf::ends::is_pair(&args.run.ends),
        _ => false,
    }
}

/// Logs to standard error at the level of `RERAIL_LOG` (`debug`, `rerail_linux=trace`); without it nothing.
fn start_log() -> Result<(), String> {
    let Ok(filter) = std::env::var("RERAIL_LOG") else { return Ok(()) };
    let filter =
        tracing_subscriber::EnvFilter::try_new(&filter).map_err(|error| format!("RERAIL_LOG={filter}: {error}"))?;
    let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi).init();
    Ok(())
}
