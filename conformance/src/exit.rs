//! How the tool ends: exit codes and the failure that carries one.
//!
//! The codes are part of the interface (scripts and the integration tests depend on them), so they stand in one place.

use std::fmt;
use std::process::ExitCode;

/// The exit codes, as printed by `rerail --help`.
pub const EXIT_CODES: &str = "\
Exit codes:
   0  all is well
   1  verification failed: bytes lost, doubled, late in order or different
   2  wrong use or configuration
   3  a peer was lost
  69  something that is needed is absent on this machine";

/// The exit codes of the contract suite.
pub const CHECK_EXIT_CODES: &str = "\
Exit codes:
   0  every case passed, or asks for what the device can't do, or its failure is known (--known)
   1  a case failed
   2  wrong use
  69  there is no such device on this machine";

/// The exit codes of simulated clusters.
pub const SIM_EXIT_CODES: &str = "\
Exit codes (soak: the gravest of crash, corruption, doubled, order, lost, stuck and leak):
   0  clean
   2  wrong use or configuration
  20  crash: a panic
  21  lost: something promised never happened
  22  doubled: something happened twice
  23  order: a message went to a receive that had no right to it
  24  corruption: wrong bytes
  25  leak: something was not given back
  26  stuck: something waits for ever
  27  soak: time was over (--minutes) before all worlds were run; those that were are clean
  28  soak: a rare path was never taken (--demand-coverage); all simulations are clean";

/// The exit codes of the lab.
pub const LAB_EXIT_CODES: &str = "\
Exit codes:
   0  all that is demanded of the balanced policy holds
   1  it does not, or a message never came
   2  wrong use";

/// The exit codes of reports.
pub const REPORT_EXIT_CODES: &str = "\
Exit codes:
   0  all claims hold
   1  a claim does not hold, or a simulated cluster did not end clean
   2  wrong use, or the page can't be written";

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
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
