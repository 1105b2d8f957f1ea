//! Harnesses and oracles of the core, each the body of a property test and of a fuzz target: bytes in, a
//! panic where a promise is broken. They use what the core offers to any embedder, and nothing else.
//!
//! | module | beside what |
//! |---|---|
//! | [`seq`] | sequence numbers, windows and queues beside sets and maps that never wrap |
//! | [`tag`] | matching beside two vectors |

pub mod corpus;
pub mod seq;
pub mod tag;
