//! `rerail sim`, `rerail soak` and `rerail check`: simulated clusters, one or many, and the device contract.

mod check;
mod memory;
mod one;
mod report;
mod soak;

pub use check::run as check;
pub use one::run as sim;
pub use soak::run as soak;
