//! The wire: every packet twice, as a checked view over bytes ([`Packet`]) and as a meaning ([`Repr`]).
//!
//! A packet is a header (32 common bytes and the body of its kind) and a payload that the core never looks
//! into. Little-endian throughout. No bytes make anything here panic: they parse to exactly one meaning,
//! which emits exactly these bytes, or to a [`WireError`] that names the field and its value.
//!
//! | file | holds |
//! |---|---|
//! | [`repr`] | what packets mean |
//! | `common` | the common header, kinds, flags, the checked view; packets in a stream of bytes |
//! | `message` | eager, RTS, CTS, FIN, DATA |
//! | [`aggregate`] | several small messages in one packet |
//! | `keys` | the key table of RTS and CTS |
//! | `rma` | put, get, atomic, atomic reply |
//! | [`control`] | ack, credit, connect, fence, probe, bye |
//! | [`address`] | address |
//! | `short` | the header of the express path |
//! | `codec` | parse and emit over all kinds |
//! | [`handshake`] | what opens a stream, before the first packet |
//!
//! ```
//! use rerail_core::wire::{Body, Common, MessageHead, Repr};
//!
//! let head = MessageHead { tag: Some(7), operation: 1, ..Default::default() };
//! let sent = Repr { common: Common { source: 3, payload_bytes: 5, ..Default::default() }, body:
//! Body::Eager(head) }; let header = sent.emit_vec().unwrap();
//! assert_eq!(Repr::parse(&header), Ok(sent));
//! ```
//!
//! Numbered rules: `conformance/WIRE.md`.

pub mod address;
pub mod aggregate;
mod codec;
mod common;
pub mod control;
pub mod handshake;
mod keys;
mod message;
pub mod repr;
mod rma;
mod short;

pub use codec::EAGER_BYTES;
pub(crate) use codec::{PlainEager, eager, emit_into, news, segment, short_header};
pub(crate) use common::News;

pub use common::{Kind, Packet, header_len, payload_len};
pub use repr::*;
pub use short::{Counts, Short, ShortSource};
