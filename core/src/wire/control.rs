//! Unsequenced kinds: ack, connect, fence, probe and park. Credit and bye have no body.
//!
//! Field maps (body, little-endian): ack `ordered_beyond u64, unordered_beyond u64`; connect `window u32,
//! eager_bytes_max u32, block_bytes u32, requests_max u16, rail u8, parked u8, connection u32, first_number
//! u32`; fence `rail u8, peer_rail u8, reserved [u8; 6], connection u32, peer_connection u32, ordered_beyond
//! u64, unordered_beyond u64`; probe `nonce u64`; park `request u32, step u8, reserved [u8; 3]`. Rules:
//! `conformance/WIRE.md`, W-20 to W-25 and W-30. Address has a file of its own.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::common::{Contents, Packet, ensure_zero, flag, plain, write};
use super::repr::{Ack, Connect, Fence, Park, ParkStep, Probe, WireError};

plain! { Ack {
    ordered_beyond: U64,
    unordered_beyond: U64,
} }

// Whether the parameters can be met is not checked here but by rule G-3.
plain! { Connect {
    window: U32,
    eager_bytes_max: U32,
    block_bytes: U32,
    requests_max: U16,
    rail: u8,
    parked: u8,
    connection: U32,
    first_number: U32,
    [flag answer: ANSWER],
} }

plain! { Fence {
    rail: u8,
    peer_rail: u8,
    ["fence.reserved"; 6],
    connection: U32,
    peer_connection: U32,
    ordered_beyond: U64,
    unordered_beyond: U64,
    [flag answer: ANSWER],
} }

plain! { Probe {
    nonce: U64,
    [flag answer: ANSWER],
} }

plain! { Park {
    request: U32,
    [code step: ParkStep],
    ["park.reserved"; 3],
} }
