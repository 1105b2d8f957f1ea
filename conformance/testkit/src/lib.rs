//! Harnesses and oracles of the core, each the body of a property test and of a fuzz target: bytes in, a
//! panic where a promise is broken. They use what the core offers to any embedder, and nothing else.
//!
//! | module | beside what |
//! |---|---|
//! | [`seq`] | sequence numbers, windows and queues beside sets and maps that never wrap |
//! | [`shm`] | the ring beside a queue, and between two sides of which one writes anything |
//! | [`tag`] | matching beside two vectors |

pub mod corpus;
pub mod region;
pub mod seq;
pub mod shm;
pub mod tag;
