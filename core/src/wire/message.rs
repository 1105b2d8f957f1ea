//! Two-sided kinds: eager, RTS, CTS, FIN and DATA (multirail-2004, 5.3; newmadeleine-2007, 2). Aggregates
//! have their own file.
//!
//! Field maps (body, little-endian): eager `tag u64, immediate u64, operation u64`; RTS the same, then
//! `message_bytes u64` and a key table; CTS `operation u64, target u64, granted_bytes u64, round u16,
//! reserved [u8; 6]` and a key table; FIN `operation u64, placed_bytes u64, count u16, refused u8, reserved
//! u8, round u16, reserved [u8; 2]`; DATA `operation u64, offset u64`; RESUME `target u64, round u16,
//! reserved [u8; 6]`. Rules: `conformance/WIRE.md`, W-10 to W-15, W-27.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::common::{Contents, Packet, ensure, ensure_zero, flag, plain, write};
use super::keys;
use super::repr::{Cts, Data, Fin, MessageHead, Refusal, Resume, Rts, WireError};
use super::short::Short;

/// The envelope in eager, RTS and the records of an aggregate.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct HeadLayout {
    tag: U64,
    immediate: U64,
    operation: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RtsLayout {
    head: HeadLayout,
    message_bytes: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct CtsLayout {
    operation: U64,
    target: U64,
    granted_bytes: U64,
    epoch: U16,
    reserved: [u8; 6],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FinLayout {
    operation: U64,
    placed_bytes: U64,
    count: U16,
    refused: u8,
    padding: u8,
    epoch: U16,
    reserved: [u8; 2],
}

impl HeadLayout {
    /// The meaning, where `flags` marks the fields present; absent ones must be zero (W-6).
    #[inline]
    pub(super) fn meaning(&self, flags: u16) -> Result<MessageHead, WireError> {
        let (has_tag, has_immediate) = (flags & flag::TAG != 0, flags & flag::IMMEDIATE != 0);
        let (tag, immediate) = (self.tag.get(), self.immediate.get());
        ensure("head.tag", has_tag || tag == 0, tag)?;
        ensure("head.immediate", has_immediate || immediate == 0, immediate)?;
        Ok(MessageHead {
            tag: has_tag.then_some(tag),
            immediate: has_immediate.then_some(immediate),
            want_placed: flags & flag::WANT_PLACED != 0,
            operation: self.operation.get(),
        })
    }
}

const _: () = assert!(flag::TAG >> 1 == Short::TAGGED as u16 && flag::IMMEDIATE >> 1 == Short::IMMEDIATE as u16);

impl HeadLayout {
    /// Of a message whose sender waits for no FIN.
    #[inline(always)]
    pub(super) fn short(tag: u64, immediate: u64) -> HeadLayout {
        HeadLayout { tag: U64::new(tag), immediate: U64::new(immediate), operation: U64::new(0) }
    }

    /// Whether absent fields are zero (W-6).
    #[inline(always)]
    pub(super) fn is_canonical(&self, flags: u16) -> bool {
        (flags & flag::TAG != 0 || self.tag.get() == 0) && (flags & flag::IMMEDIATE != 0 || self.immediate.get() == 0)
    }

    /// Tag, immediate data and the flags of [`Short`].
    #[inline(always)]
    pub(super) fn of_short(&self, flags: u16) -> (u64, u64, u8) {
        (self.tag.get(), self.immediate.get(), (flags >> 1) as u8 & Short::FLAGS)
    }

    /// The flags of a header by those of [`Short`].
    #[inline(always)]
    pub(super) const fn flags_of_short(flags: u8) -> u16 {
        (flags as u16) << 1
    }
}

impl From<&MessageHead> for HeadLayout {
    #[inline]
    fn from(head: &MessageHead) -> Self {
        HeadLayout {
            tag: U64::new(head.tag.unwrap_or(0)),
            immediate: U64::new(head.immediate.unwrap_or(0)),
            operation: U64::new(head.operation),
        }
    }
}

impl Packet<'_> {
    /// Of an eager message whose sender waits for no FIN: tag, immediate data, and the flags of [`Short`].
    /// `None`: it waits, or an absent field is not zero (W-6).
    #[inline(always)]
    pub(super) fn short_head(&self) -> Option<(u64, u64, u8)> {
        let layout = self.body_as::<HeadLayout>().ok()?;
        let flags = self.flags();
        let is_short = layout.is_canonical(flags) && flags & flag::WANT_PLACED == 0;
        is_short.then(|| layout.of_short(flags))
    }
}

impl MessageHead {
    #[inline]
    pub(super) const fn flags(&self) -> u16 {
        let tag = if self.tag.is_some() { flag::TAG } else { 0 };
        let immediate = if self.immediate.is_some() { flag::IMMEDIATE } else { 0 };
        let want_placed = if self.want_placed { flag::WANT_PLACED } else { 0 };
        tag | immediate | want_placed
    }

    #[inline]
    pub(crate) fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        packet.body_as::<HeadLayout>()?.meaning(packet.flags())
    }
}

impl Contents for MessageHead {
    #[inline]
    fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        MessageHead::parse(packet)
    }

    #[inline]
    fn emit(&self, body: &mut [u8]) -> Result<(), WireError> {
        write(HeadLayout::from(self), body);
        Ok(())
    }

    #[inline]
    fn flags(&self) -> u16 {
        MessageHead::flags(self)
    }
}

impl Contents for Rts {
    #[inline]
    fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        let (layout, table) = packet.body_before_keys::<RtsLayout>()?;
        Ok(Rts {
            head: layout.head.meaning(packet.flags())?,
            message_bytes: layout.message_bytes.get(),
            keys: keys::parse(table, packet.header_bytes())?,
        })
    }

    #[inline]
    fn emit(&self, body: &mut [u8]) -> Result<(), WireError> {
        let layout = RtsLayout { head: HeadLayout::from(&self.head), message_bytes: U64::new(self.message_bytes) };
        keys::emit(&self.keys, write(layout, body));
        Ok(())
    }

    #[inline]
    fn flags(&self) -> u16 {
        self.head.flags()
    }
}

impl Contents for Cts {
    #[inline]
    fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        let (layout, table) = packet.body_before_keys::<CtsLayout>()?;
        ensure_zero("cts.reserved", &layout.reserved)?;
        Ok(Cts {
            operation: layout.operation.get(),
            target: layout.target.get(),
            granted_bytes: layout.granted_bytes.get(),
            epoch: layout.epoch.get(),
            keys: keys::parse(table, packet.header_bytes())?,
        })
    }

    #[inline]
    fn emit(&self, body: &mut [u8]) -> Result<(), WireError> {
        let layout = CtsLayout {
            operation: U64::new(self.operation),
            target: U64::new(self.target),
            granted_bytes: U64::new(self.granted_bytes),
            epoch: U16::new(self.epoch),
            reserved: [0; 6],
        };
        keys::emit(&self.keys, write(layout, body));
        Ok(())
    }
}

impl Contents for Fin {
    #[inline]
    fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        let layout = packet.body_as::<FinLayout>()?;
        let count = layout.count.get();
        ensure("fin.count", count != 0, count)?; // W-14
        ensure("fin.reserved", layout.padding == 0, layout.padding)?;
        ensure_zero("fin.reserved", &layout.reserved)?;
        Ok(Fin {
            operation: layout.operation.get(),
            count,
            refused: match layout.refused {
                0 => None,
                code => Some(Refusal::from_code(code)?),
            },
            want_placed: packet.flag(flag::WANT_PLACED),
            epoch: layout.epoch.get(),
            placed_bytes: layout.placed_bytes.get(),
        })
    }

    #[inline]
    fn emit(&self, body: &mut [u8]) -> Result<(), WireError> {
        ensure("fin.count", self.count != 0, self.count)?; // W-14
        let layout = FinLayout {
            operation: U64::new(self.operation),
            placed_bytes: U64::new(self.placed_bytes),
            count: U16::new(self.count),
            refused: self.refused.map_or(0, |refused| refused as u8),
            padding: 0,
            epoch: U16::new(self.epoch),
            reserved: [0; 2],
        };
        write(layout, body);
        Ok(())
    }

    #[inline]
    fn flags(&self) -> u16 {
        if self.want_placed { flag::WANT_PLACED } else { 0 }
    }
}

/// A segment's body, behind the common header.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct DataLayout {
    operation: U64,
    offset: U64,
}

impl From<&Data> for DataLayout {
    #[inline(always)]
    fn from(data: &Data) -> DataLayout {
        DataLayout { operation: data.operation.into(), offset: data.offset.into() }
    }
}

impl Contents for Data {
    #[inline]
    fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        let &DataLayout { operation, offset } = packet.body_as()?;
        Ok(Data { operation: operation.into(), offset: offset.into() })
    }

    #[inline]
    fn emit(&self, body: &mut [u8]) -> Result<(), WireError> {
        write(DataLayout::from(self), body);
        Ok(())
    }
}

plain! { Resume {
    target: U64,
    epoch: U16,
    ["resume.reserved"; 6],
} }
