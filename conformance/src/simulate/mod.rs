//! `rerail sim`, `rerail soak`, `rerail check` and `rerail lab`: simulated clusters, one or many, the device contract, and
//! policies over random sets of rails.

mod check;
mod lab;
mod memory;
mod one;
mod report;
mod soak;

pub use check::run as check;
pub use lab::run as lab;
pub use one::{read, run as sim};
pub use soak::run as soak;
