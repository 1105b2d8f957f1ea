//! Memory exposed to peers.

use crate::api::request::Access;
use crate::mem::Seg;

/// Memory of peers or our own, exposed window or service.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowSlot {
    pub seg: Seg,
    pub access: Access,
    pub key: u64,
    /// Gets and atomics being served, and puts being placed.
    pub users: u32,
}
