//! Linux driver of the rerail message transport.

pub mod auth;
pub mod bootstrap;
pub mod driver;
mod memory;
pub mod rail;
pub mod settings;

/// The examples of the README are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
