//! Harnesses and oracles, each the body of a property test and of a fuzz target: bytes in, a
//! panic where a guarantee is broken. They use only public APIs.
//!
//! | module | what it compares |
//! |---|---|
//! | [`endpoint`] | endpoints in one process, over rails that delay, split and reorder; garbage |
//! | [`handshake`] | two processes that meet, with changed messages and false claims |
//! | [`names`] | address records, names and set-up datagrams beside writing them |
//! | [`seq`] | sequence numbers, windows and queues beside sets and maps that never wrap |
//! | [`shm`] | the ring beside a queue, and between two sides of which one writes anything |
//! | [`tag`] | matching beside two vectors |
//! | [`wire`] | parsing beside emitting, and a sample of every packet |

pub mod corpus;
pub mod endpoint;
pub mod handshake;
pub mod names;
pub mod region;
pub mod seq;
pub mod shm;
pub mod tag;
pub mod wire;
