//! Unsequenced kinds: ack, connect, fence and probe. Credit and bye have no body.
//!
//! Field maps (body, little-endian): ack `ordered_beyond u64, unordered_beyond u64`; connect `window u32,
//! eager_bytes_max u32, block_bytes u32, requests_max u16, rail u8, reserved u8, connection u32, first_number
//! u32`; fence `rail u8, peer_rail u8, reserved [u8; 6], connection u32, peer_connection u32, ordered_beyond
//! u64, unordered_beyond u64`; probe `nonce u64`. Rules: `conformance/PROTOCOL.md`, W-20 to W-25. Address has
//! a file of its own.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::common::{Packet, ensure, ensure_zero, flag, write};
use super::repr::{Ack, Connect, Fence, Probe, WireError};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AckLayout {
    ordered_beyond: U64,
    unordered_beyond: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ConnectLayout {
    window: U32,
    eager_bytes_max: U32,
    block_bytes: U32,
    requests_max: U16,
    rail: u8,
    reserved: u8,
    connection: U32,
    first_number: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FenceLayout {
    rail: u8,
    peer_rail: u8,
    reserved: [u8; 6],
    connection: U32,
    peer_connection: U32,
    ordered_beyond: U64,
    unordered_beyond: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ProbeLayout {
    nonce: U64,
}

impl Ack {
    #[inline]
    pub(super) fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        let layout = packet.body_as::<AckLayout>()?;
        Ok(Ack { ordered_beyond: layout.ordered_beyond.get(), unordered_beyond: layout.unordered_beyond.get() })
    }

    #[inline]
    pub(super) fn emit(&self, body: &mut [u8]) {
        let layout = AckLayout {
            ordered_beyond: U64::new(self.ordered_beyond),
            unordered_beyond: U64::new(self.unordered_beyond),
        };
        write(layout, body);
    }
}

impl Connect {
    /// Whether the parameters can be met is not checked here but by rule G-3.
    pub(super) fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        let layout = packet.body_as::<ConnectLayout>()?;
        ensure("connect.reserved", layout.reserved == 0, layout.reserved)?;
        Ok(Connect {
            window: layout.window.get(),
            eager_bytes_max: layout.eager_bytes_max.get(),
            block_bytes: layout.block_bytes.get(),
            requests_max: layout.requests_max.get(),
            rail: layout.rail,
            connection: layout.connection.get(),
            first_number: layout.first_number.get(),
            answer: packet.flag(flag::ANSWER),
        })
    }

    pub(super) fn emit(&self, body: &mut [u8]) {
        let layout = ConnectLayout {
            window: U32::new(self.window),
            eager_bytes_max: U32::new(self.eager_bytes_max),
            block_bytes: U32::new(self.block_bytes),
            requests_max: U16::new(self.requests_max),
            rail: self.rail,
            reserved: 0,
            connection: U32::new(self.connection),
            first_number: U32::new(self.first_number),
        };
        write(layout, body);
    }

    pub(super) const fn flags(&self) -> u16 {
        if self.answer { flag::ANSWER } else { 0 }
    }
}

impl Fence {
    pub(super) fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        let layout = packet.body_as::<FenceLayout>()?;
        ensure_zero("fence.reserved", &layout.reserved)?;
        Ok(Fence {
            rail: layout.rail,
            peer_rail: layout.peer_rail,
            connection: layout.connection.get(),
            peer_connection: layout.peer_connection.get(),
            ordered_beyond: layout.ordered_beyond.get(),
            unordered_beyond: layout.unordered_beyond.get(),
            answer: packet.flag(flag::ANSWER),
        })
    }

    pub(super) fn emit(&self, body: &mut [u8]) {
        let layout = FenceLayout {
            rail: self.rail,
            peer_rail: self.peer_rail,
            reserved: [0; 6],
            connection: U32::new(self.connection),
            peer_connection: U32::new(self.peer_connection),
            ordered_beyond: U64::new(self.ordered_beyond),
            unordered_beyond: U64::new(self.unordered_beyond),
        };
        write(layout, body);
    }

    pub(super) const fn flags(&self) -> u16 {
        if self.answer { flag::ANSWER } else { 0 }
    }
}

impl Probe {
    pub(super) fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        let layout = packet.body_as::<ProbeLayout>()?;
        Ok(Probe { nonce: layout.nonce.get(), answer: packet.flag(flag::ANSWER) })
    }

    pub(super) fn emit(&self, body: &mut [u8]) {
        write(ProbeLayout { nonce: U64::new(self.nonce) }, body);
    }

    pub(super) const fn flags(&self) -> u16 {
        if self.answer { flag::ANSWER } else { 0 }
    }
}
