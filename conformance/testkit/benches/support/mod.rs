//! What benchmarks and the counted example share: two endpoints in one process and nothing between them.

pub mod pair;
