//! One-sided kinds: put, get, atomic and the atomic's answer. A get is answered by DATA, a refusal by FIN.
//!
//! Field maps (body, little-endian): put `window u64, offset u64, operation u64`, put-immediate the same and
//! `bytes u64, immediate u64`; get `window u64, offset u64, bytes u64, operation u64`; atomic `window u64,
//! offset u64, operation u64, operand u64, compare u64, kind u8, data_type u8, reserved [u8; 6]`; atomic
//! reply `operation u64, old u64`. Rules: `conformance/WIRE.md`, W-16 to W-19 and W-31.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::common::{Contents, Packet, ensure_zero, plain, write};
use super::repr::{Atomic, AtomicKind, AtomicReply, AtomicType, Get, Put, PutImmediate, WireError};

plain! { Put {
    window: U64,
    offset: U64,
    operation: U64,
} }

plain! { PutImmediate {
    window: U64,
    offset: U64,
    operation: U64,
    bytes: U64,
    immediate: U64,
} }

plain! { Get {
    window: U64,
    offset: U64,
    bytes: U64,
    operation: U64,
} }

plain! { AtomicReply {
    operation: U64,
    old: U64,
} }

// Whether the combination of kind and type exists is not checked here: the target refuses it.
plain! { Atomic {
    window: U64,
    offset: U64,
    operation: U64,
    operand: U64,
    compare: U64,
    [code kind: AtomicKind],
    [code data_type: AtomicType],
    ["atomic.reserved"; 6],
} }
