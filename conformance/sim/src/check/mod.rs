//! Independent checkers: what must hold, whatever the implementation is.
//!
//! Apps enter into a [`Ledger`] what they submit and what is reported to them; checkers read that and the
//! ranks' memory, and nothing of the transport. [`judge`] returns the verdict.
//!
//! | what must hold | where | verdict |
//! |---|---|---|
//! | every message is received once, every completion reported once, counters count each request once |
//! `ledger`, `arrivals`, `once` | `Duplicated`, Lost |
//! | MPI's order of matching, wildcards, probes and claims, places in multi-receive buffers | `order` | Order
//! |
//! | the express path changes nothing that MPI decides | `deliveries` | Order |
//! | payloads, lengths, tags, immediate data as sent; nothing behind them; source buffers untouched |
//! `arrivals` | Corruption |
//! | no rank writes into memory that is not, or no longer, named: guards and poison | `memory` | Corruption |
//! | a send of level Placed is in the receiver's buffer when it is reported, a put in the window | `arrivals`
//! | Corruption, Lost |
//! | windows hold what was put, gets bring it, refused accesses change nothing | `slots` | Corruption |
//! | atomics happen once, and their answers make one history | `cells` | `Duplicated`, Lost |
//! | requests fail only with a peer that was lost, which fails only by a fault | `judge` | Corruption, Lost |
//! | everything ends, no request starves | `timeout` | Stuck |
//! | tables are empty, device objects given back, bounds kept | `judge` | Leak |
//!
//! Buffers of sends are poisoned as soon as their completion is reported, so that a completion that comes too
//! early shows as corruption at the receiver.

mod arrivals;
mod cells;
mod claims;
mod deliveries;
mod display;
#[cfg(test)]
mod fixture;
mod identity;
mod judge;
mod ledger;
mod liar;
mod memory;
mod notices;
mod once;
mod order;
mod slots;
mod timeout;
mod verdict;

use std::cell::RefCell;
use std::rc::Rc;

pub use arrivals::Peek;
pub use cells::{Cells, Operation, Rule};
pub use claims::{Claim, Probe};
pub use deliveries::Deliveries;
pub use identity::{BLANK, Content, Difference, Name, POISON, first_not};
pub use judge::{Cut, Ending, Hidden, NoMemory, WindowMemory, gravity, judge, protected};
pub use ledger::{Book, Ledger, Message, Moment, Part, Reported, Request, Submission};
pub use memory::{Arena, Extent, Scar};
pub use notices::COUNTED;
pub use slots::Slots;
pub use timeout::Timeouts;
pub use verdict::{
    CellFacts, Corruption, Crash, Damage, Disorder, Duplicated, Leak, Lost, PeerLoss, RequestFacts, Stuck, Verdict,
};

/// The one ledger of a simulation, in the hands of all its apps.
pub type SharedLedger = Rc<RefCell<Ledger>>;
