//! Unsequenced kinds: ack, connect, reconnect and probe. Credit and bye have no body.
//!
//! Field maps (body, little-endian): ack `ordered_beyond u64, unordered_beyond u64`; connect `window u32,
//! eager_bytes_max u32, block_bytes u32, requests_max u16, rail u8, reserved u8`; reconnect `step u8, rail u8, lid u16,
//! incarnation u32, nonce u64, qp_number u32, reserved u32, gid [u8; 16], mac [u8; 16]`; probe `nonce u64`.
//! Rules: `conformance/PROTOCOL.md`, W-20 to W-25.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::codec::write;
use super::common::{Packet, ensure, flag};
use super::repr::{Ack, COMMON_BYTES, Connect, Probe, Reconnect, WireError};

/// Bytes of a reconnect packet that its MAC covers: all before the MAC, common header included (W-23).
pub const RECONNECT_SIGNED_BYTES: usize = COMMON_BYTES + size_of::<ReconnectLayout>() - 16;

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
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ReconnectLayout {
    step: u8,
    rail: u8,
    lid: U16,
    incarnation: U32,
    nonce: U64,
    qp_number: U32,
    reserved: U32,
    gid: [u8; 16],
    mac: [u8; 16],
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
    /// Whether the terms can be met is not asked here: rule G-3 says who judges them.
    pub(super) fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        let layout = packet.body_as::<ConnectLayout>()?;
        ensure("connect.reserved", layout.reserved == 0, layout.reserved)?;
        Ok(Connect {
            window: layout.window.get(),
            eager_bytes_max: layout.eager_bytes_max.get(),
            block_bytes: layout.block_bytes.get(),
            requests_max: layout.requests_max.get(),
            rail: layout.rail,
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
        };
        write(layout, body);
    }

    pub(super) const fn flags(&self) -> u16 {
        if self.answer { flag::ANSWER } else { 0 }
    }
}

impl Reconnect {
    pub(super) fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        let layout = packet.body_as::<ReconnectLayout>()?;
        ensure("reconnect.reserved", layout.reserved.get() == 0, layout.reserved.get())?;
        Ok(Reconnect {
            step: layout.step,
            rail: layout.rail,
            incarnation: layout.incarnation.get(),
            nonce: layout.nonce.get(),
            qp_number: layout.qp_number.get(),
            lid: layout.lid.get(),
            gid: layout.gid,
            mac: layout.mac,
        })
    }

    pub(super) fn emit(&self, body: &mut [u8]) {
        let layout = ReconnectLayout {
            step: self.step,
            rail: self.rail,
            lid: U16::new(self.lid),
            incarnation: U32::new(self.incarnation),
            nonce: U64::new(self.nonce),
            qp_number: U32::new(self.qp_number),
            reserved: U32::ZERO,
            gid: self.gid,
            mac: self.mac,
        };
        write(layout, body);
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
