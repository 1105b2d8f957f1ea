//! How this environment's launcher is joined, and which protocols there are.

use rerail_linux::bootstrap::{Offer, pmix};
use serde::Serialize;

use super::Obstacle;

/// The ways into a job.
#[derive(Clone, Debug, Serialize)]
pub struct Launchers {
    /// What this environment offers, for people.
    pub offered: String,
    /// The version of libpmix; `None`: it can't be used.
    pub pmix: Option<String>,
    /// Why not.
    pub obstacle: Option<Obstacle>,
}

/// Looks at the environment, and for the library.
pub fn detect() -> Launchers {
    let offered = match Offer::of(|name| std::env::var(name).ok()) {
        Offer::Pmi1 => "PMI-1 (PMI_FD or PMI_PORT)".to_owned(),
        Offer::Pmi2 => "PMI-2 (PMI_FD and PMI_JOBID)".to_owned(),
        Offer::Pmix => "PMIx (PMIX_NAMESPACE and PMIX_RANK)".to_owned(),
        Offer::Alone => "none: a job of one".to_owned(),
        Offer::Unsupported { variable, size } => format!("none that is supported, for {size} processes ({variable})"),
    };
    let library = pmix::library_version();
    let remedy = "install it (Debian: libpmix2); PMI-1 and PMI-2 need no library";
    let obstacle = library.as_ref().err().map(|why| Obstacle::new(format!("PMIx: {why}"), remedy));
    Launchers { offered, pmix: library.ok(), obstacle }
}
