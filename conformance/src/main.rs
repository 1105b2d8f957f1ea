//! The `rerail` tool.
fn main() {}
