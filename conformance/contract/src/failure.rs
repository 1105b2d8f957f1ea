//! How a case fails.

use std::fmt;

use rerail_verbs::contract::{CreateError, DestroyError, ModifyError, PollError, PostError, RegisterError};

use crate::testbed::Need;

/// What a case, or a step of it, comes to.
pub type Check<T = ()> = Result<T, Failure>;

/// Why a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Something else came than the rule demands.
    Wrong {
        /// Of what.
        what: String,
        /// What the rule demands.
        expected: String,
        /// What came.
        came: String,
    },
    /// Nothing came.
    Silent {
        /// What was awaited.
        awaited: String,
    },
    /// A verb refused what it must do.
    Refused {
        /// The verb.
        verb: &'static str,
        /// Its error.
        error: String,
    },
    /// Device or testbed can't do what the case needs: it is not a failure of the device.
    Unsupported(Need),
    /// The testbed broke.
    Testbed(String),
    /// The device panicked.
    Panicked(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Wrong { what, expected, came } => write!(f, "{what}: expected {expected}, came {came}"),
            Failure::Silent { awaited } => write!(f, "awaited {awaited}, nothing came"),
            Failure::Refused { verb, error } => write!(f, "{verb} refused: {error}"),
            Failure::Unsupported(need) => write!(f, "needs {need}"),
            Failure::Testbed(why) => write!(f, "the testbed failed: {why}"),
            Failure::Panicked(message) => write!(f, "the device panicked: {message}"),
        }
    }
}

impl std::error::Error for Failure {}

macro_rules! refused {
    ($($error:ty: $verb:literal),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::Refused { verb: $verb, error: error.to_string() }
            }
        })*
    };
}
refused!(
    CreateError: "a create or query verb",
    RegisterError: "register",
    DestroyError: "a destroy verb",
    ModifyError: "a modify verb",
    PollError: "poll or notify",
    PostError: "a post verb"
);

/// Demands that what came is what the rule demands.
pub(crate) fn same<T: PartialEq + fmt::Debug>(what: impl fmt::Display, came: T, expected: T) -> Check {
    if came == expected {
        return Ok(());
    }
    Err(wrong(what, format!("{expected:?}"), format!("{came:?}")))
}

/// Demands that what came is one of what the rule leaves a choice of.
pub(crate) fn one_of<T: PartialEq + fmt::Debug>(what: impl fmt::Display, came: T, allowed: &[T]) -> Check {
    if allowed.contains(&came) {
        return Ok(());
    }
    Err(wrong(what, format!("one of {allowed:?}"), format!("{came:?}")))
}

/// Demands equal bytes; names the first that differs.
pub(crate) fn same_bytes(what: impl fmt::Display, came: &[u8], expected: &[u8]) -> Check {
    same(format!("{what}: length"), came.len(), expected.len())?;
    match came.iter().zip(expected).position(|(came, expected)| came != expected) {
        None => Ok(()),
        Some(at) => Err(wrong(
            format!("{what}: byte {at} of {}", came.len()),
            format!("{:#04x}", expected[at]),
            format!("{:#04x}", came[at]),
        )),
    }
}

/// Demands that a verb refuses, with such an error.
pub(crate) fn refuses<T: fmt::Debug, E: fmt::Debug>(
    what: impl fmt::Display,
    result: Result<T, E>,
    expected: &str,
    fits: impl FnOnce(&E) -> bool,
) -> Check {
    match result {
        Err(error) if fits(&error) => Ok(()),
        Err(error) => Err(wrong(what, expected, format!("{error:?}"))),
        Ok(made) => Err(wrong(what, expected, format!("success ({made:?})"))),
    }
}

/// The failure of something that came and is not right.
pub(crate) fn wrong(what: impl fmt::Display, expected: impl fmt::Display, came: impl fmt::Display) -> Failure {
    Failure::Wrong { what: what.to_string(), expected: expected.to_string(), came: came.to_string() }
}
