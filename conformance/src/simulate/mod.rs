//! `rerail sim`, `rerail soak` and `rerail lab`: simulated clusters, one or many, and policies over random
//! sets of rails.

mod lab;
mod one;
mod report;
mod soak;

pub use lab::run as lab;
pub use one::{read, run as sim};
pub use soak::run as soak;
