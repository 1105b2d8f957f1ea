//! The fence that a sleeper makes for both sides: `membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)` (L-13).
//!
//! It reaches the running threads of all processes that have registered for it, so each side of a ring
//! announces in its share whether it has. The command of the private kind would end at the border of the
//! process. A process that registered has also tried the call once: a filter of system calls may let one pass
//! and not the other.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

/// Registers this process, once; whether it can use [`heavy_fence`] and has other processes' fences reach it.
pub fn is_registered() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        let needed = MembarrierQuery::GLOBAL_EXPEDITED | MembarrierQuery::REGISTER_GLOBAL_EXPEDITED;
        membarrier_query().contains(needed)
            && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
            && heavy_fence()
    })
}

/// A fence of this thread and of all running threads of registered processes; `false`: the system refused.
pub fn heavy_fence() -> bool {
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// The fence of both sides of a ring where one of them has no barrier.
pub fn full_fence() -> bool {
    fence(Ordering::SeqCst);
    true
}
