//! The device contract suite: what every InfiniBand device must do, as cases over the trait
//! [`Device`](rerail_verbs::contract::Device).
//!
//! The software HCA runs it in virtual time, a verbs device in real time; a case can't distinguish them. It
//! posts, waits, and looks at completions, events and memory; it measures no time and uses no name or number
//! that a device is free to choose. Where the specification leaves a choice, every choice passes. Each case
//! cites the rule that it checks: "IBA" is the InfiniBand Architecture Specification, volume 1, by section or
//! annex; `name(3)` is a manual page of rdma-core.
//!
//! | module | holds |
//! |---|---|
//! | `testbed` | the seam: what a place must offer for the suite to run there |
//! | `bed` | what cases work with: objects, connections, requests, waiting, expecting |
//! | `memory` | the buffers, the crate's only unsafe code |
//! | `failure` | how a case fails, with what was expected and what came |
//! | `cases` | the cases, a file for each group |
//! | `run` | runs them, each on fresh devices, and counts |
//!
//! The loop of a program that runs the suite:
//!
//! ```
//! use rerail_contract::{Filter, Testbed, run};
//!
//! fn check(open: &mut dyn FnMut() -> Result<Box<dyn Testbed>, String>) -> bool {
//!     let report = run(&Filter::all(), open, &mut |result| println!("{result}"));
//!     print!("{report}");
//!     report.is_clean()
//! }
//! ```

mod bed;
mod cases;
mod failure;
mod memory;
mod run;
mod testbed;

pub use bed::Bed;
pub use cases::{Case, Group, cases, groups};
pub use failure::{Check, Failure};
pub use memory::SLACK_BYTES;
pub use run::{CaseResult, Filter, GroupCounts, Outcome, Report, run, run_case};
pub use testbed::{End, Fault, Need, Testbed};
