//! Tables in the caller's memory: carved once, bounded for ever.

pub mod arena;
pub mod list;
pub mod slab;
pub mod timers;

pub use arena::{Arena, ArenaError};
pub use list::{Link, Links, List, NONE};
pub use slab::{Slab, Slot, Walk};
pub use timers::Timers;
