//! Each measuring rank on a processor of its own, for as long as it measures: where two ranks happen to share
//! one, the scheduler is measured and not the transport.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Takes the pinning back when dropped.
pub struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// Pins this thread to the usable processor number `index`; nothing happens where there is none of its
    /// own, or the system refuses.
    pub fn to(index: usize) -> Option<Pinned> {
        let before = sched_getaffinity(None).ok()?;
        Pinned::to_processor(nth(&before, index)?)
    }

    /// Pins this thread to a processor by the system's number of it; `None`: there is none, or the system
    /// refuses.
    pub fn to_processor(processor: usize) -> Option<Pinned> {
        let before = sched_getaffinity(None).ok()?;
        if processor >= CpuSet::MAX_CPU {
            return None;
        }
        let mut alone = CpuSet::new();
        alone.set(processor);
        sched_setaffinity(None, &alone).ok()?;
        Some(Pinned { before })
    }
}

fn nth(set: &CpuSet, index: usize) -> Option<usize> {
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).nth(index)
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Restores the previous processors; if that fails, this thread stays where it is.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinning_ends_with_the_measurement() {
        let before = sched_getaffinity(None).unwrap();
        let pinned = Pinned::to(0).expect("at least one processor is usable");
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        drop(pinned);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        assert!(Pinned::to(CpuSet::MAX_CPU).is_none());
    }
}
