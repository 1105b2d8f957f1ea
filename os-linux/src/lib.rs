//! Linux driver of the rerail message transport.

pub mod auth;
pub mod bootstrap;
pub mod driver;
mod memory;
pub mod rail;
mod random;
pub mod settings;
