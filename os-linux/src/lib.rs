//! Linux driver of the rerail message transport.

pub mod auth;
pub mod bootstrap;
pub mod rail;
