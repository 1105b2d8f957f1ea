//! Shortages of this process or its system that prevent another connection.
//!
//! A connection that fails for such a reason is retried (F-8), so the reason must be kept: to peers it looks
//! like silence, and only this process can report it.

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::RailCounters;

/// Whether the system refused for lack of descriptors or memory, which a higher limit would cure.
fn is_shortage(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)
}

impl RailCounters {
    /// Counts a connection that the system refused, if the reason is a shortage. `rail` is the rail's name.
    pub(super) fn note_shortage(&mut self, rail: &str, errno: Errno) {
        if !is_shortage(errno) {
            return;
        }
        if self.shortage != Some(errno) {
            tracing::warn!(rail, %errno, "no connection can be opened or accepted{}", remedy(errno));
        }
        self.shortages += 1;
        self.shortage = Some(errno);
    }
}

/// The remedy where the system refused for lack of descriptors or memory, to be put behind the
/// reason; else empty.
pub(crate) fn remedy(errno: Errno) -> String {
    match errno {
        Errno::MFILE => {
            let limit = getrlimit(Resource::Nofile).current;
            let limit = limit.map_or_else(String::new, |limit| format!(", which is {limit}"));
            format!(": raise this process's limit of open descriptors (ulimit -n){limit}")
        }
        Errno::NFILE => ": raise the system's limit of open descriptors (fs.file-max)".into(),
        Errno::NOMEM | Errno::NOBUFS => match getrlimit(Resource::As).current {
            Some(limit) => format!(
                ": raise the limit of memory that this process may map (ulimit -v), which is {} KiB, or lower shm_slots",
                limit >> 10
            ),
            None => ": free some memory, or lower shm_slots".into(),
        },
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_cured_by_a_higher_limit_are_shortages() {
        let mut counters = RailCounters::default();
        for errno in [Errno::CONNREFUSED, Errno::AGAIN, Errno::HOSTUNREACH, Errno::NETDOWN] {
            counters.note_shortage("shm", errno);
            assert_eq!((counters, remedy(errno)), (RailCounters::default(), String::new()));
        }
        let cases = [(Errno::MFILE, "(ulimit -n)"), (Errno::NFILE, "(fs.file-max)"), (Errno::NOMEM, "memory")];
        for ((errno, words), count) in cases.into_iter().zip(1..) {
            counters.note_shortage("shm", errno);
            assert_eq!((counters.shortages, counters.shortage), (count, Some(errno)));
            assert!(remedy(errno).starts_with(": ") && remedy(errno).contains(words), "{}", remedy(errno));
        }
    }
}
