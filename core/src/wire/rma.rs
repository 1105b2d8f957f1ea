//! One-sided kinds: put, get, atomic and the atomic's answer. A get is answered by DATA, a refusal by FIN.
//!
//! Field maps (body, little-endian): put `window u64, offset u64, operation u64`; get `window u64, offset
//! u64, bytes u64, operation u64`; atomic `window u64, offset u64, operation u64, operand u64, compare u64,
//! kind u8, data_type u8, reserved [u8; 6]`; atomic reply `operation u64, old u64`. Rules:
//! `conformance/PROTOCOL.md`, W-16 to W-19.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::common::{Packet, ensure_zero, write};
use super::repr::{Atomic, AtomicKind, AtomicReply, AtomicType, Get, Put, WireError};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PutLayout {
    window: U64,
    offset: U64,
    operation: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct GetLayout {
    window: U64,
    offset: U64,
    bytes: U64,
    operation: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AtomicLayout {
    window: U64,
    offset: U64,
    operation: U64,
    operand: U64,
    compare: U64,
    kind: u8,
    data_type: u8,
    reserved: [u8; 6],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AtomicReplyLayout {
    operation: U64,
    old: U64,
}

impl Put {
    #[inline]
    pub(super) fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        let layout = packet.body_as::<PutLayout>()?;
        Ok(Put { window: layout.window.get(), offset: layout.offset.get(), operation: layout.operation.get() })
    }

    #[inline]
    pub(super) fn emit(&self, body: &mut [u8]) {
        let layout = PutLayout {
            window: U64::new(self.window),
            offset: U64::new(self.offset),
            operation: U64::new(self.operation),
        };
        write(layout, body);
    }
}

impl Get {
    #[inline]
    pub(super) fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        let layout = packet.body_as::<GetLayout>()?;
        Ok(Get {
            window: layout.window.get(),
            offset: layout.offset.get(),
            bytes: layout.bytes.get(),
            operation: layout.operation.get(),
        })
    }

    #[inline]
    pub(super) fn emit(&self, body: &mut [u8]) {
        let layout = GetLayout {
            window: U64::new(self.window),
            offset: U64::new(self.offset),
            bytes: U64::new(self.bytes),
            operation: U64::new(self.operation),
        };
        write(layout, body);
    }
}

impl Atomic {
    /// Whether the combination of kind and type exists is not checked here: the target refuses it.
    #[inline]
    pub(super) fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        let layout = packet.body_as::<AtomicLayout>()?;
        ensure_zero("atomic.reserved", &layout.reserved)?;
        Ok(Atomic {
            window: layout.window.get(),
            offset: layout.offset.get(),
            operation: layout.operation.get(),
            operand: layout.operand.get(),
            compare: layout.compare.get(),
            kind: AtomicKind::from_code(layout.kind)?,
            data_type: AtomicType::from_code(layout.data_type)?,
        })
    }

    #[inline]
    pub(super) fn emit(&self, body: &mut [u8]) {
        let layout = AtomicLayout {
            window: U64::new(self.window),
            offset: U64::new(self.offset),
            operation: U64::new(self.operation),
            operand: U64::new(self.operand),
            compare: U64::new(self.compare),
            kind: self.kind as u8,
            data_type: self.data_type as u8,
            reserved: [0; 6],
        };
        write(layout, body);
    }
}

impl AtomicReply {
    #[inline]
    pub(super) fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        let layout = packet.body_as::<AtomicReplyLayout>()?;
        Ok(AtomicReply { operation: layout.operation.get(), old: layout.old.get() })
    }

    #[inline]
    pub(super) fn emit(&self, body: &mut [u8]) {
        write(AtomicReplyLayout { operation: U64::new(self.operation), old: U64::new(self.old) }, body);
    }
}

impl AtomicKind {
    /// All kinds, in the order of their codes on the wire.
    pub const ALL: [AtomicKind; 13] = [
        AtomicKind::Fetch,
        AtomicKind::Swap,
        AtomicKind::CompareSwap,
        AtomicKind::Add,
        AtomicKind::Min,
        AtomicKind::Max,
        AtomicKind::And,
        AtomicKind::Or,
        AtomicKind::Xor,
        AtomicKind::Mul,
        AtomicKind::LogicalAnd,
        AtomicKind::LogicalOr,
        AtomicKind::LogicalXor,
    ];

    #[inline]
    fn from_code(code: u8) -> Result<Self, WireError> {
        let error = WireError { field: "atomic.kind", value: u64::from(code) };
        Self::ALL.get(usize::from(code)).copied().ok_or(error)
    }
}

impl AtomicType {
    /// All types, in the order of their codes on the wire.
    pub const ALL: [AtomicType; 10] = [
        AtomicType::I8,
        AtomicType::U8,
        AtomicType::I16,
        AtomicType::U16,
        AtomicType::I32,
        AtomicType::U32,
        AtomicType::I64,
        AtomicType::U64,
        AtomicType::F32,
        AtomicType::F64,
    ];

    #[inline]
    fn from_code(code: u8) -> Result<Self, WireError> {
        let error = WireError { field: "atomic.data_type", value: u64::from(code) };
        Self::ALL.get(usize::from(code)).copied().ok_or(error)
    }
}

const _: () = {
    let mut at = 0;
    while at < AtomicKind::ALL.len() {
        assert!(AtomicKind::ALL[at] as usize == at, "a code is its place in the list");
        at += 1;
    }
    at = 0;
    while at < AtomicType::ALL.len() {
        assert!(AtomicType::ALL[at] as usize == at, "a code is its place in the list");
        at += 1;
    }
};
