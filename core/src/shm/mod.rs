//! Rings in shared memory.
