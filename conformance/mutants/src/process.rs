//! A program with a mutant in it runs, and is ended as soon as it has printed enough, or has taken more than
//! it may.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

/// Memory of a program.
const BYTES_MAX: u64 = 8 << 30;

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code.
    Code(i32),
    /// By a signal: it crashed.
    Signal(i32),
    /// It took more processor time than it may.
    Hung,
    /// A line of it was enough.
    Enough,
}

/// A program's run.
pub struct Run<'a> {
    pub program: &'a Path,
    pub arguments: Vec<String>,
    /// What is switched on; 0: nothing.
    pub mutant: u32,
    /// Where it writes which mutants it has reached.
    pub reached: Option<&'a Path>,
    /// Processor time that it may take.
    pub time_max: Duration,
}

impl Run<'_> {
    /// Runs it; `enough` sees its lines and returns whether it may be ended.
    pub fn watch(&self, mut enough: impl FnMut(&str) -> bool) -> Result<End, String> {
        let fail = |error: std::io::Error| format!("{}: {error}", self.program.display());
        let mut command = Command::new(self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.env("RERAIL_MUTANT", self.mutant.to_string()).env("RUST_BACKTRACE", "0");
        // What a test has found must not change what the next mutant's tests do.
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
        match self.reached {
            Some(path) => command.env("RERAIL_REACHED", path),
            None => command.env_remove("RERAIL_REACHED"),
        };
        let mut child = command.spawn().map_err(fail)?;
        let pid = Pid::from_child(&child);
        // Processor time, not the clock's: how busy the machine is decides nothing.
        let seconds = self.time_max.as_secs().max(1);
        for (resource, soft, hard) in [(Resource::Cpu, seconds, seconds + 5), (Resource::As, BYTES_MAX, BYTES_MAX)] {
            let limit = Rlimit { current: Some(soft), maximum: Some(hard) };
            // It may be over already.
            let _ = prlimit(Some(pid), resource, limit);
        }
        let mut is_enough = false;
        if let Some(output) = child.stdout.take() {
            for line in BufReader::new(output).lines() {
                // A test may print what is no text.
                let Ok(line) = line else { continue };
                if enough(&line) {
                    is_enough = true;
                    let _ = child.kill();
                    break;
                }
            }
        }
        let status = child.wait().map_err(fail)?;
        Ok(match (is_enough, status.code(), status.signal()) {
            (true, ..) => End::Enough,
            (_, Some(code), _) => End::Code(code),
            (_, _, Some(signal)) if signal == Signal::XCPU.as_raw() => End::Hung,
            (_, _, signal) => End::Signal(signal.unwrap_or_default()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> End {
        let arguments = vec!["-c".to_owned(), script.to_owned()];
        let shell = Path::new("/bin/sh");
        let run = Run { program: shell, arguments, mutant: 0, reached: None, time_max: Duration::from_secs(1) };
        run.watch(|line| line == "enough").unwrap()
    }

    #[test]
    fn exit_code_signal_output_limit_and_hang_are_distinguished() {
        assert_eq!(run("exit 3"), End::Code(3));
        assert_eq!(run("kill -SEGV $$"), End::Signal(11));
        assert_eq!(run("echo enough; sleep 60"), End::Enough);
        assert_eq!(run("while :; do :; done"), End::Hung);
    }
}
