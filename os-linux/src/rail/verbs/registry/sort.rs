//! Purposes of registrations, and which serve which requests.

use rerail_core::endpoint::Registration;
use rerail_verbs::contract::Access;

use super::Bounds;

/// Permitted accesses to registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Own writes read it.
    Source,
    /// Own reads write it.
    Target,
    /// Peers read it.
    Readable,
    /// Peers write it.
    Writable,
}

impl Sort {
    pub const COUNT: usize = 4;

    pub fn access(self, on_demand: bool) -> Access {
        Access {
            on_demand,
            local_write: matches!(self, Sort::Target | Sort::Writable),
            remote_write: self == Sort::Writable,
            remote_read: self == Sort::Readable,
            remote_atomic: false,
        }
    }

    pub fn what(self) -> Registration {
        match self {
            Sort::Source | Sort::Target => Registration::Own,
            Sort::Readable => Registration::Readable,
            Sort::Writable => Registration::Writable,
        }
    }

    pub fn has_key(self) -> bool {
        matches!(self, Sort::Readable | Sort::Writable)
    }

    /// The sorts that serve a request for this sort, the likeliest first. Posts share no registration that
    /// peers may write to: it has to end when the key is given back.
    pub fn served_by(self, bounds: &Bounds) -> &'static [Sort] {
        match (self, bounds.keep_writable) {
            (Sort::Source, false) => &[Sort::Readable, Sort::Source, Sort::Target],
            (Sort::Source, true) => &[Sort::Readable, Sort::Source, Sort::Target, Sort::Writable],
            (Sort::Target, false) => &[Sort::Target],
            (Sort::Target, true) => &[Sort::Target, Sort::Writable],
            (Sort::Readable, _) => &[Sort::Readable],
            (Sort::Writable, false) => &[],
            (Sort::Writable, true) => &[Sort::Writable],
        }
    }
}
