//! The core of rerail: all protocol state of a message transport over several rails, and nothing else.
#![no_std]
#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(test, feature = "harness"))]
extern crate std;

pub mod config;
pub mod endpoint;
pub mod ids;
mod log;
pub mod mem;
pub mod rail;
pub mod rel;
pub mod seq;
pub mod shared;
pub mod shm;
pub mod store;
pub mod tag;
pub mod time;
pub mod wire;
