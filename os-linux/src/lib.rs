//! Linux driver of the rerail message transport: rails, memory, clock and bootstrap around `rerail-core`.
//!
//! An embedder needs [`driver::Transport`] and one of [`bootstrap`]'s ways into a job; the knobs are
//! [`settings`]. Who has rails of their own implements [`rail::Rail`] and hands them to [`driver::Opening`].
//! It starts no thread, installs no signal handler and keeps no global state.

pub mod auth;
pub mod bootstrap;
pub mod driver;
mod memory;
pub mod place;
pub mod rail;
mod random;
pub mod settings;

/// The examples of the README are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
