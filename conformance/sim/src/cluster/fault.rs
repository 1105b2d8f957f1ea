//! The menu of faults: what may go wrong in a simulation, where, and when it is over.
//!
//! A fault is written in three words, `what where` and what else it needs, and reads back as the same:
//! `link-down host0.hca0.port0 rx`, `kill rank3`, `plane-down subnet0.plane1`. What each means for a device:
//! [`crate::hca`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::place::{Place, PlaceError};
use crate::scenario::Span;

/// Which way of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Both.
    #[default]
    Both,
    /// What the port sends.
    Tx,
    /// What the port receives.
    Rx,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    // Lossless: devices repeat what is lost.
    /// Frames of a port take up to `amount` nanoseconds longer, each differently.
    Jitter,
    /// Frames of a port are kept in the switch, and delivered when it is over.
    Hold,
    /// `amount` frames of a port are lost; the device repeats them within its retry limits.
    Lose,
    /// `amount` datagrams to a port come with a broken check sum.
    Corrupt,
    /// Phantom traffic shares a port's link.
    Load,
    /// A port's link has 1/`amount` of its data rate (at least 2): a link that retrained to fewer lanes or a
    /// lower speed.
    Slow,
    /// A process does not poll.
    Pause,
    /// Rails of a process do not take in what came, one of them only: reordering between rails.
    Lag,
    /// The administrative network is cut.
    AdminCut,
    /// Registrations of memory fail.
    RegistrationFails,
    /// The port's link is down for a millisecond at most, so short that retries bear it and no rank notices.
    Blink,
    /// The events of a port come `amount` nanoseconds late; 0: never.
    PortEvents,

    // Those that take a subchannel, a device or a process away.
    /// A port's link is down.
    LinkDown,
    /// A path (the LIDs of one plane) is down.
    PlaneDown,
    /// A switch is down.
    SwitchDown,
    /// Link down, and up again with another LID and GID.
    Renumber,
    /// The next `amount` acknowledgments of a queue pair are lost after delivery; its peer's gives up.
    AckLost,
    /// `amount` work requests of a queue pair are carried out, and their completions never come.
    NeverCompletes,
    /// A send ends with "retry exceeded".
    RetryExceeded,
    /// A queue pair goes to error on this end only.
    QpError,
    /// The device is gone (DEVICE_FATAL); `until`: it comes back.
    DeviceFatal,
    /// No queue pair can be made.
    OutOfQps,
    /// No memory region can be made, and requested ones fail.
    OutOfMrs,
    /// The device has no memory for any object.
    OutOfMemory,
    /// Completion queues overflow.
    CqOverflow,
    /// A queue pair breaks, and what it still had under way is written late.
    LateWrite,
    /// Streams through a port are reset.
    StreamReset,
    /// A process is killed.
    Kill,
}

/// Every kind, in the order of the menu.
pub const KINDS: [Kind; 28] = [
    Kind::Jitter,
    Kind::Hold,
    Kind::Lose,
    Kind::Corrupt,
    Kind::Load,
    Kind::Slow,
    Kind::Pause,
    Kind::Lag,
    Kind::AdminCut,
    Kind::RegistrationFails,
    Kind::Blink,
    Kind::PortEvents,
    Kind::LinkDown,
    Kind::PlaneDown,
    Kind::SwitchDown,
    Kind::Renumber,
    Kind::AckLost,
    Kind::NeverCompletes,
    Kind::RetryExceeded,
    Kind::QpError,
    Kind::DeviceFatal,
    Kind::OutOfQps,
    Kind::OutOfMrs,
    Kind::OutOfMemory,
    Kind::CqOverflow,
    Kind::LateWrite,
    Kind::StreamReset,
    Kind::Kill,
];

impl Kind {
    /// Its word in scenario files.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Jitter => "jitter",
            Kind::Hold => "hold",
            Kind::Lose => "lose",
            Kind::Corrupt => "corrupt",
            Kind::Load => "load",
            Kind::Slow => "slow",
            Kind::Pause => "pause",
            Kind::Lag => "lag",
            Kind::AdminCut => "admin-cut",
            Kind::RegistrationFails => "registration-fails",
            Kind::Blink => "blink",
            Kind::PortEvents => "port-events",
            Kind::LinkDown => "link-down",
            Kind::PlaneDown => "plane-down",
            Kind::SwitchDown => "switch-down",
            Kind::Renumber => "renumber",
            Kind::AckLost => "ack-lost",
            Kind::NeverCompletes => "never-completes",
            Kind::RetryExceeded => "retry-exceeded",
            Kind::QpError => "qp-error",
            Kind::DeviceFatal => "device-fatal",
            Kind::OutOfQps => "out-of-qps",
            Kind::OutOfMrs => "out-of-mrs",
            Kind::OutOfMemory => "out-of-memory",
            Kind::CqOverflow => "cq-overflow",
            Kind::LateWrite => "late-write",
            Kind::StreamReset => "stream-reset",
            Kind::Kill => "kill",
        }
    }

    /// Whether it may take a subchannel, a device or a process away, so that the core must recover; else
    /// devices bear it.
    pub const fn needs_recovery(self) -> bool {
        match self {
            Kind::Jitter
            | Kind::Hold
            | Kind::Lose
            | Kind::Corrupt
            | Kind::Load
            | Kind::Slow
            | Kind::Pause
            | Kind::Lag
            | Kind::AdminCut
            | Kind::RegistrationFails
            | Kind::Blink
            | Kind::PortEvents => false,
            Kind::LinkDown
            | Kind::PlaneDown
            | Kind::SwitchDown
            | Kind::Renumber
            | Kind::AckLost
            | Kind::NeverCompletes
            | Kind::RetryExceeded
            | Kind::QpError
            | Kind::DeviceFatal
            | Kind::OutOfQps
            | Kind::OutOfMrs
            | Kind::OutOfMemory
            | Kind::CqOverflow
            | Kind::LateWrite
            | Kind::StreamReset
            | Kind::Kill => true,
        }
    }

    /// Whether rails have other addresses after it. (Completion queues are those of a whole device; a process
    /// that has lost one opens the device anew.)
    pub const fn moves(self) -> bool {
        matches!(self, Kind::DeviceFatal | Kind::Renumber | Kind::CqOverflow)
    }

    /// What it happens to.
    pub const fn target(self) -> Target {
        match self {
            Kind::Pause | Kind::Lag | Kind::Kill => Target::Rank,
            Kind::AdminCut => Target::RankOrAll,
            Kind::PlaneDown => Target::Plane,
            Kind::SwitchDown => Target::Subnet,
            Kind::Jitter
            | Kind::Hold
            | Kind::Lose
            | Kind::Corrupt
            | Kind::Load
            | Kind::Slow
            | Kind::Blink
            | Kind::PortEvents
            | Kind::LinkDown
            | Kind::Renumber
            | Kind::StreamReset => Target::Port,
            Kind::DeviceFatal => Target::Hca,
            // A process's use of one of its devices.
            Kind::RegistrationFails
            | Kind::AckLost
            | Kind::NeverCompletes
            | Kind::RetryExceeded
            | Kind::QpError
            | Kind::OutOfQps
            | Kind::OutOfMrs
            | Kind::OutOfMemory
            | Kind::CqOverflow
            | Kind::LateWrite => Target::RankHca,
        }
    }

    /// Whether it lasts (`until` means something) or is over the moment it has happened.
    pub const fn lasts(self) -> bool {
        !matches!(
            self,
            Kind::Lose
                | Kind::Corrupt
                | Kind::AckLost
                | Kind::NeverCompletes
                | Kind::RetryExceeded
                | Kind::QpError
                | Kind::StreamReset
                | Kind::Kill
        )
    }

    /// Whether an amount belongs to it, and the one that it has where none is given.
    pub const fn amount(self) -> Option<u64> {
        match self {
            Kind::Jitter => Some(20_000),
            Kind::Lose | Kind::Corrupt | Kind::NeverCompletes => Some(1),
            // More than a queue pair repeats.
            Kind::AckLost => Some(100),
            Kind::PortEvents => Some(5_000_000),
            // Ten-fold.
            Kind::Slow => Some(10),
            _ => None,
        }
    }

    /// The smallest amount that means something.
    pub const fn amount_min(self) -> u64 {
        match self {
            Kind::Slow => 2,
            _ => 0,
        }
    }

    /// Whether menus of faults that are not listed one by one have it. Seeds draw by place in the menu, so a
    /// kind that came later stays out: the simulations of all seeds stay what they were.
    pub const fn is_in_menus(self) -> bool {
        !matches!(self, Kind::Slow)
    }
}

/// Sorts of places that faults happen at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process: `rank3`.
    Rank,
    /// A process or all of them: `rank3`, `cluster`.
    RankOrAll,
    /// A process's use of its n-th device: `rank3.hca0`.
    RankHca,
    /// A device: `host0.hca1`.
    Hca,
    /// A port: `host0.hca1.port0`.
    Port,
    /// A path: `subnet0.plane1`.
    Plane,
    /// A switch: `subnet0`.
    Subnet,
}

/// A fault: what and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: Kind,
    /// Where.
    pub place: Place,
    /// Which way, for [`Kind::LinkDown`].
    pub way: Way,
    /// Nanoseconds of jitter, frames to lose, parts of a rate: see the kinds.
    pub amount: u64,
}

impl Fault {
    /// A fault with the usual amount, both ways.
    pub const fn new(kind: Kind, place: Place) -> Self {
        let amount = match kind.amount() {
            Some(amount) => amount,
            None => 0,
        };
        Fault { kind, place, way: Way::Both, amount }
    }

    /// See [`Kind::needs_recovery`].
    pub const fn needs_recovery(&self) -> bool {
        self.kind.needs_recovery()
    }
}

/// A fault at its moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "FaultLine", into = "FaultLine")]
pub struct FaultAt {
    /// When it happens.
    pub at: Span,
    /// The fault.
    pub fault: Fault,
    /// When it is over; `None`: when everything is healed.
    pub until: Option<Span>,
}

/// Why something is no fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// No such kind.
    Kind {
        /// What stands there.
        found: String,
    },
    /// The place is none.
    Place(PlaceError),
    /// This kind does not happen at such a place.
    Target {
        /// The kind.
        kind: Kind,
        /// What stands there.
        place: Place,
    },
    /// It would end before it happens.
    Until {
        /// When it happens.
        at: Span,
        /// When it is to end.
        until: Span,
    },
    /// A key that this kind has no use for.
    Useless {
        /// The kind.
        kind: Kind,
        /// The key.
        key: &'static str,
    },
    /// An amount too small to mean anything.
    Amount {
        /// The kind.
        kind: Kind,
        /// What stands there.
        found: u64,
    },
    /// A word after kind and place that has no meaning.
    Word {
        /// The word.
        found: String,
    },
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultError::Kind { found } => {
                let words: Vec<_> = KINDS.iter().map(|kind| kind.word()).collect();
                write!(f, "what = \"{found}\" is no fault; there are: {}", words.join(", "))
            }
            FaultError::Place(error) => write!(f, "where: {error}"),
            FaultError::Target { kind, place } => {
                let example = match kind.target() {
                    Target::Rank => "rank3",
                    Target::RankOrAll => "rank3 or `world`",
                    Target::RankHca => "rank3.hca0",
                    Target::Hca => "host0.hca1",
                    Target::Port => "host0.hca1.port0",
                    Target::Plane => "subnet0.plane1",
                    Target::Subnet => "subnet0",
                };
                write!(f, "{} can't happen at where = \"{place}\": it needs a place like {example}", kind.word())
            }
            FaultError::Until { at, until } => write!(f, "until = \"{until}\" is not after at = \"{at}\""),
            FaultError::Useless { kind, key } => write!(f, "{} has no use for \"{key}\"", kind.word()),
            FaultError::Amount { kind, found } => {
                write!(f, "amount = {found} is too small for {}: at least {}", kind.word(), kind.amount_min())
            }
            FaultError::Word { found } => write!(f, "\"{found}\" has no meaning: tx, rx or an amount may stand there"),
        }
    }
}

impl std::error::Error for FaultError {}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Kind {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let found = KINDS.into_iter().find(|kind| kind.word() == text);
        found.ok_or_else(|| FaultError::Kind { found: text.chars().take(40).collect() })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.place)?;
        match self.way {
            Way::Both => {}
            Way::Tx => f.write_str(" tx")?,
            Way::Rx => f.write_str(" rx")?,
        }
        if self.kind.amount().is_some_and(|usual| usual != self.amount) {
            write!(f, " {}", self.amount)?;
        }
        Ok(())
    }
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let mut words = text.split_whitespace();
        let kind = words.next().unwrap_or_default().parse()?;
        let place = words.next().unwrap_or_default().parse().map_err(FaultError::Place)?;
        let mut fault = Fault::new(kind, place);
        for word in words {
            match (word, word.parse()) {
                ("tx", _) => fault.way = Way::Tx,
                ("rx", _) => fault.way = Way::Rx,
                (_, Ok(amount)) => fault.amount = amount,
                (_, Err(_)) => return Err(FaultError::Word { found: word.chars().take(40).collect() }),
            }
        }
        fault.checked()
    }
}

impl Fault {
    /// The fault, if it can be.
    fn checked(self) -> Result<Self, FaultError> {
        let Fault { kind, place, way, amount } = self;
        let fits = matches!(
            (kind.target(), place),
            (Target::Rank | Target::RankOrAll, Place::Rank(_))
                | (Target::RankOrAll, Place::Cluster)
                | (Target::RankHca, Place::RankHca { .. })
                | (Target::Hca, Place::Hca { .. })
                | (Target::Port, Place::Port { .. })
                | (Target::Plane, Place::Plane { .. })
                | (Target::Subnet, Place::Subnet(_))
        );
        if !fits {
            return Err(FaultError::Target { kind, place });
        }
        if way != Way::Both && kind != Kind::LinkDown {
            return Err(FaultError::Useless { kind, key: "way" });
        }
        if amount != 0 && kind.amount().is_none() {
            return Err(FaultError::Useless { kind, key: "amount" });
        }
        if amount < kind.amount_min() {
            return Err(FaultError::Amount { kind, found: amount });
        }
        Ok(self)
    }
}

/// A fault as it stands in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultLine {
    at: Span,
    what: String,
    r#where: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    way: Option<Way>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    amount: Option<u64>,
}

impl TryFrom<FaultLine> for FaultAt {
    type Error = FaultError;

    fn try_from(line: FaultLine) -> Result<Self, FaultError> {
        let kind = line.what.parse()?;
        let place = line.r#where.parse().map_err(FaultError::Place)?;
        let usual = Fault::new(kind, place);
        let way = line.way.unwrap_or_default();
        let fault = Fault { way, amount: line.amount.unwrap_or(usual.amount), ..usual }.checked()?;
        if let Some(until) = line.until {
            if !kind.lasts() {
                return Err(FaultError::Useless { kind, key: "until" });
            }
            if until <= line.at {
                return Err(FaultError::Until { at: line.at, until });
            }
        }
        Ok(FaultAt { at: line.at, fault, until: line.until })
    }
}

impl From<FaultAt> for FaultLine {
    fn from(FaultAt { at, fault, until }: FaultAt) -> FaultLine {
        FaultLine {
            at,
            what: fault.kind.to_string(),
            r#where: fault.place.to_string(),
            until,
            way: Some(fault.way).filter(|way| *way != Way::Both),
            amount: Some(fault.amount).filter(|amount| fault.kind.amount().is_some_and(|usual| usual != *amount)),
        }
    }
}

impl fmt::Display for FaultAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.fault, self.at)?;
        match self.until {
            Some(until) => write!(f, " until {until}"),
            None => Ok(()),
        }
    }
}
