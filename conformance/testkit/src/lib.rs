//! Harnesses and oracles of the core, each the body of a property test and of a fuzz target: bytes in, a
//! panic where a guarantee is broken. They use only the core's public API.
//!
//! | module | what it compares |
//! |---|---|
//! | [`endpoint`] | endpoints in one process, over rails that delay, split and reorder; garbage |
//! | [`seq`] | sequence numbers, windows and queues beside sets and maps that never wrap |
//! | [`shm`] | the ring beside a queue, and between two sides of which one writes anything |
//! | [`tag`] | matching beside two vectors |
//! | [`wire`] | parsing beside emitting, and a sample of every packet |

pub mod corpus;
pub mod endpoint;
pub mod region;
pub mod seq;
pub mod shm;
pub mod tag;
pub mod wire;
