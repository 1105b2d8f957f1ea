//! InfiniBand and RoCE devices as safe types, over libibverbs opened at run time.
//!
//! A program that contains this crate starts where libibverbs is not installed: the error of [`Verbs::open`]
//! then names the packages to install. Where the library is there and the kernel has no RDMA, there are no
//! devices.
//!
//! ```no_run
//! use rerail_verbs::Verbs;
//!
//! match Verbs::open() {
//!     Err(why) => println!("no verbs: {why}"),
//!     Ok(verbs) => {
//!         for device in verbs.devices()?.iter() {
//!             println!("{} {}", device.name(), device.guid());
//!             match device.open() {
//!                 Err(why) => println!("  {why}"),
//!                 Ok(context) => {
//!                     for port in context.ports()? {
//!                         println!("  port {}: {}, {}", port.number, port.link_layer, port.state);
//!                         for entry in context.gids(&port)? {
//!                             println!("    {} {}", entry.index, entry.gid);
//!                         }
//!                     }
//!                 }
//!             }
//!         }
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Layers: [`rdma_core_sys`] declares the C side; `ffi` alone calls it; the others turn its results into
//! types. [`contract`] is the seam to everything above: the device as a trait, which the simulator's software
//! HCA implements too; [`IbDevice`] is a device of libibverbs behind it. Nothing here panics on a device's
//! data: an unknown number is kept as a number.
#![deny(unsafe_code)]

#[macro_use]
mod coded;
pub mod contract;

mod choice;
mod context;
mod device;
mod error;
mod ffi;
mod gid;
mod ib;
mod offers;
mod port;
#[cfg(test)]
mod tests;

pub use choice::{Choice, ChoiceError};
pub use context::{AtomicReach, Context, DeviceAttributes};
pub use device::{Device, Devices, Foreign, NodeKind, Transport, Verbs};
pub use error::{DeviceError, ListError, OpenError, QueryError};
pub use gid::{Gid, GidEntry, GidKind, Guid};
pub use ib::IbDevice;
pub use offers::{Moderation, Offers, OnDemand};
pub use port::{LinkLayer, Port, PortState};
