//! The header that every packet starts with, and the checked view over a packet's bytes.
//!
//! Field map (little-endian, bytes): `version 0, kind 1, flags 2..4, source 4..8, psn 8..12, ack_ordered
//! 12..16, ack_unordered 16..20, message_limit 20..22, block_limit 22..24, payload_bytes 24..28, reserved
//! 28..30, header_bytes 30..32`, then the kind's body.
//!
//! Invariants: a [`Packet`] has been checked against all rules that need no look into the body, so its
//! accessors cannot fail; nothing outside `header_bytes` is read. Rules: `conformance/WIRE.md`.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::repr::{
    ADDRESS_BYTES_MAX, COMMON_BYTES, Common, HEADER_BYTES_MAX, KEYS_MAX, Lane, VERSION, WireError, coded,
};

/// Acknowledgments and limits of a packet, to be compared with those of another one. Packed, because a
/// channel has no room for more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(Rust, packed(4))]
pub(crate) struct News {
    acks: u64,
    limits: u32,
}

/// The common header as it is on the wire.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct CommonLayout {
    version: u8,
    kind: u8,
    flags: U16,
    source: U32,
    psn: U32,
    ack_ordered: U32,
    ack_unordered: U32,
    message_limit: U16,
    block_limit: U16,
    payload_bytes: U32,
    reserved: [u8; 2],
    header_bytes: U16,
}

const _: () = assert!(size_of::<CommonLayout>() == COMMON_BYTES);

/// Flags of the common header (W-5). Which of them a kind may carry: [`Kind::flags_allowed`].
pub(super) mod flag {
    pub const ACK_NOW: u16 = 1 << 0;
    pub const TAG: u16 = 1 << 1;
    pub const IMMEDIATE: u16 = 1 << 2;
    pub const WANT_PLACED: u16 = 1 << 3;
    pub const ANSWER: u16 = 1 << 5;
    pub const REFUSING: u16 = 1 << 6;
    pub const HEAD: u16 = TAG | IMMEDIATE | WANT_PLACED;
}

coded! {
    /// The kind of a packet: second byte of the header. The high digit is the lane (W-4).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind in "kind" {
        /// A whole message.
        Eager = 0x10,
        /// Several small messages.
        Aggregate = 0x11,
        /// Request to send.
        Rts = 0x12,
        /// Clear to send.
        Cts = 0x20,
        /// End of a transfer.
        Fin = 0x21,
        /// A segment.
        Data = 0x22,
        /// One-sided put.
        Put = 0x23,
        /// One-sided get.
        Get = 0x24,
        /// Atomic.
        Atomic = 0x25,
        /// Answer to an atomic.
        AtomicReply = 0x26,
        /// Writes are unconfirmed.
        Resume = 0x27,
        /// The end of a put with immediate data.
        PutImmediate = 0x28,
        /// Selective acknowledgment.
        Ack = 0x30,
        /// Limits only.
        Credit = 0x31,
        /// First packet of a subchannel.
        Connect = 0x32,
        /// The end of a connection is dead.
        Fence = 0x33,
        /// Sign of life.
        Probe = 0x34,
        /// BYE.
        Bye = 0x35,
        /// A rail has moved.
        Address = 0x36,
        /// The channel is to be parked.
        Park = 0x37,
    }
}

impl Kind {
    /// The lane; `None` for unsequenced kinds.
    #[inline]
    pub const fn lane(self) -> Option<Lane> {
        match self as u8 >> 4 {
            1 => Some(Lane::Ordered),
            2 => Some(Lane::Unordered),
            _ => None,
        }
    }

    /// Bytes of the body without its key table.
    #[inline]
    pub const fn fixed_bytes(self) -> usize {
        match self {
            Kind::Credit | Kind::Bye => 0,
            Kind::Aggregate | Kind::Probe | Kind::Park => 8,
            Kind::Data | Kind::AtomicReply | Kind::Resume | Kind::Ack => 16,
            Kind::Eager | Kind::Fin | Kind::Put | Kind::Connect => 24,
            Kind::Rts | Kind::Cts | Kind::Get | Kind::Fence => 32,
            Kind::PutImmediate => 40,
            Kind::Atomic => 48,
            Kind::Address => 8 + ADDRESS_BYTES_MAX,
        }
    }

    /// Whether a key table ends the body.
    #[inline]
    pub const fn has_keys(self) -> bool {
        matches!(self, Kind::Rts | Kind::Cts)
    }

    /// Whether a payload may stand behind the header (W-8).
    #[inline]
    pub const fn has_payload(self) -> bool {
        matches!(self, Kind::Eager | Kind::Aggregate | Kind::Data | Kind::Put | Kind::PutImmediate | Kind::Probe)
    }

    /// The flags that may be set (W-5).
    #[inline]
    pub(super) const fn flags_allowed(self) -> u16 {
        flag::ACK_NOW
            | flag::REFUSING
            | match self {
                Kind::Eager | Kind::Rts => flag::HEAD,
                Kind::Fin => flag::WANT_PLACED,
                Kind::Connect | Kind::Fence | Kind::Probe => flag::ANSWER,
                _ => 0,
            }
    }

    /// Whether a header of this kind can be `header_bytes` long, as far as can be checked without its body
    /// (W-3).
    #[inline]
    pub(super) const fn may_take(self, header_bytes: usize) -> bool {
        let fixed = COMMON_BYTES + self.fixed_bytes();
        if self.has_keys() {
            header_bytes.is_multiple_of(8) && header_bytes > fixed && header_bytes <= HEADER_BYTES_MAX
        } else {
            header_bytes == fixed
        }
    }
}

/// Bytes of a key table: count, rails and connections, padded to 8, then 16 for each key (W-9).
#[inline]
pub(super) const fn key_table_bytes(keys: usize) -> usize {
    (1 + 3 * keys).next_multiple_of(8) + 16 * keys
}

const _: () = {
    let rts = COMMON_BYTES + Kind::Rts.fixed_bytes() + key_table_bytes(KEYS_MAX);
    assert!(rts <= HEADER_BYTES_MAX, "the longest header must fit");
    assert!(COMMON_BYTES + Kind::Address.fixed_bytes() <= HEADER_BYTES_MAX);
    // Every kind takes a multiple of 8, so that payloads behind headers in a ring stay aligned.
    let mut at = 0;
    while at < Kind::ALL.len() {
        assert!(Kind::ALL[at].fixed_bytes().is_multiple_of(8));
        at += 1;
    }
};

/// A checked view over a packet's header: version, kind, flags, lengths and the lane's rules hold. The body's
/// own rules are checked by [`Repr::parse`](super::Repr::parse).
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    common: &'a CommonLayout,
    body: &'a [u8],
    kind: Kind,
}

impl<'a> Packet<'a> {
    /// Looks at the packet that starts at `bytes[0]`. Bytes beyond its header are payload and are not looked
    /// at.
    ///
    /// Errors name `header` (ends too soon; the value is the number of bytes), `version`, `kind`,
    /// `header_bytes`, `flags`, `psn`, `payload_bytes` or `reserved`.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Packet<'a>, WireError> {
        let short = WireError { field: "header", value: bytes.len() as u64 };
        let Ok((common, _)) = CommonLayout::ref_from_prefix(bytes) else { return Err(short) };
        let (kind, header_bytes) = common.framing()?;
        let Some(body) = bytes.get(COMMON_BYTES..header_bytes) else { return Err(short) }; // W-3
        let flags = common.flags.get();
        ensure("flags", flags & !kind.flags_allowed() == 0, flags)?; // W-5
        let psn = common.psn.get();
        ensure("psn", psn == 0 || kind.lane().is_some(), psn)?; // W-4
        let payload_bytes = common.payload_bytes.get();
        ensure("payload_bytes", payload_bytes == 0 || kind.has_payload(), payload_bytes)?; // W-8
        ensure_zero("reserved", &common.reserved)?; // W-6
        Ok(Packet { common, body, kind })
    }

    /// As [`new_checked`](Self::new_checked) for the header of a kind of one length with a number and a
    /// payload; `None`: it is another, or wrong.
    #[inline(always)]
    pub(super) fn new_of<const BYTES: usize>(kind: Kind, bytes: &'a [u8; BYTES]) -> Option<Packet<'a>> {
        let (common, body) = CommonLayout::ref_from_prefix(bytes).ok()?;
        // Version and kind, and reserved bytes and length (W-3, W-6), are neighbours: two comparisons.
        let [.., zero, also_zero, low, high] = *common.as_bytes() else { return None };
        let is_of_kind = [common.version, common.kind] == [VERSION, kind as u8]
            && u32::from_le_bytes([zero, also_zero, low, high]) == (bytes.len() as u32) << 16
            && common.flags.get() & !kind.flags_allowed() == 0; // W-5
        is_of_kind.then_some(Packet { common, body, kind })
    }

    /// [`new_of`](Self::new_of) an eager message.
    #[inline(always)]
    pub(super) fn new_eager(bytes: &'a [u8; COMMON_BYTES + Kind::Eager.fixed_bytes()]) -> Option<Packet<'a>> {
        Packet::new_of(Kind::Eager, bytes)
    }

    /// As [`new_eager`](Self::new_eager), of a message with a tag whose header requests nothing, and whose
    /// sender warns of nothing: it has no flags but those of [`Short`](super::Short).
    #[inline(always)]
    pub(super) fn new_tagged(bytes: &'a [u8; COMMON_BYTES + Kind::Eager.fixed_bytes()]) -> Option<Packet<'a>> {
        const fn beginning(flags: u16) -> u32 {
            VERSION as u32 | (Kind::Eager as u32) << 8 | (flags as u32) << 16
        }
        let (common, body) = CommonLayout::ref_from_prefix(bytes).ok()?;
        let [a, b, c, d, .., zero, also_zero, low, high] = *common.as_bytes() else { return None };
        let begins = u32::from_le_bytes([a, b, c, d]);
        let has_kind =
            begins == const { beginning(flag::TAG) } || begins == const { beginning(flag::TAG | flag::IMMEDIATE) };
        let is_whole = u32::from_le_bytes([zero, also_zero, low, high]) == (bytes.len() as u32) << 16;
        (has_kind && is_whole).then_some(Packet { common, body, kind: Kind::Eager })
    }

    /// Whether source and number are these.
    #[inline(always)]
    pub(super) fn is_numbered(&self, source: u32, psn: u32) -> bool {
        self.common.source.get() == source && self.common.psn.get() == psn
    }

    /// Acknowledgments and limits.
    #[inline(always)]
    pub(super) fn news(&self) -> News {
        let CommonLayout { ack_ordered, ack_unordered, message_limit, block_limit, .. } = *self.common;
        News {
            acks: u64::from(ack_ordered.get()) | u64::from(ack_unordered.get()) << 32,
            limits: u32::from(message_limit.get()) | u32::from(block_limit.get()) << 16,
        }
    }

    /// The kind.
    #[inline]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes of the header, body included.
    #[inline]
    pub const fn header_bytes(&self) -> usize {
        COMMON_BYTES + self.body.len()
    }

    /// Bytes of payload behind the header.
    #[inline]
    pub fn payload_bytes(&self) -> u32 {
        self.common.payload_bytes.get()
    }

    /// The common header's meaning.
    #[inline]
    pub fn common(&self) -> Common {
        let layout = self.common;
        Common {
            source: layout.source.get(),
            psn: layout.psn.get(),
            ack_ordered: layout.ack_ordered.get(),
            ack_unordered: layout.ack_unordered.get(),
            message_limit: layout.message_limit.get(),
            block_limit: layout.block_limit.get(),
            payload_bytes: layout.payload_bytes.get(),
            ack_now: self.flag(flag::ACK_NOW),
            refusing: self.flag(flag::REFUSING),
        }
    }

    #[inline]
    pub(super) fn flags(&self) -> u16 {
        self.common.flags.get()
    }

    #[inline]
    pub(super) fn flag(&self, flag: u16) -> bool {
        self.flags() & flag != 0
    }

    /// The body as a layout of exactly its size. The error can't happen for a kind without key table: the
    /// length was checked.
    #[inline]
    pub(super) fn body_as<L: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> Result<&'a L, WireError> {
        L::ref_from_bytes(self.body).map_err(|_| self.bad_length())
    }

    /// The body as a layout and the key table behind it.
    #[inline]
    pub(super) fn body_before_keys<L: FromBytes + KnownLayout + Immutable + Unaligned>(
        &self,
    ) -> Result<(&'a L, &'a [u8]), WireError> {
        L::ref_from_prefix(self.body).map_err(|_| self.bad_length())
    }

    fn bad_length(&self) -> WireError {
        WireError { field: "header_bytes", value: self.header_bytes() as u64 }
    }
}

impl CommonLayout {
    /// Kind and total length of the header (W-2, W-3).
    #[inline]
    pub(super) fn framing(&self) -> Result<(Kind, usize), WireError> {
        ensure("version", self.version == VERSION, self.version)?; // W-1
        let kind = Kind::from_code(self.kind)?;
        let header_bytes = self.header_bytes.get();
        ensure("header_bytes", kind.may_take(usize::from(header_bytes)), header_bytes)?;
        Ok((kind, usize::from(header_bytes)))
    }

    #[inline]
    pub(super) fn payload_bytes(&self) -> u32 {
        self.payload_bytes.get()
    }

    /// Lays out `common` for a packet of `kind`; refuses what a parser would refuse (W-4, W-8).
    #[inline]
    pub(super) fn new(common: &Common, kind: Kind, flags: u16, header_bytes: usize) -> Result<Self, WireError> {
        ensure("psn", common.psn == 0 || kind.lane().is_some(), common.psn)?;
        ensure("payload_bytes", common.payload_bytes == 0 || kind.has_payload(), common.payload_bytes)?;
        Ok(CommonLayout::lay_out(common, kind, flags, header_bytes))
    }

    /// As [`new`](Self::new), where the kind allows a number and a payload.
    #[inline(always)]
    pub(super) fn lay_out(common: &Common, kind: Kind, flags: u16, header_bytes: usize) -> Self {
        let flags = if common.ack_now { flags | flag::ACK_NOW } else { flags };
        let flags = if common.refusing { flags | flag::REFUSING } else { flags };
        debug_assert!(flags & !kind.flags_allowed() == 0 && header_bytes <= HEADER_BYTES_MAX);
        CommonLayout {
            version: VERSION,
            kind: kind as u8,
            flags: U16::new(flags),
            source: U32::new(common.source),
            psn: U32::new(common.psn),
            ack_ordered: U32::new(common.ack_ordered),
            ack_unordered: U32::new(common.ack_unordered),
            message_limit: U16::new(common.message_limit),
            block_limit: U16::new(common.block_limit),
            payload_bytes: U32::new(common.payload_bytes),
            reserved: [0; 2],
            header_bytes: U16::new(header_bytes as u16),
        }
    }
}

/// The body of a kind: what stands between the common header and the payload.
pub(super) trait Contents: Sized {
    /// Reads it; the error names the first field that breaks a rule.
    fn parse(packet: &Packet<'_>) -> Result<Self, WireError>;
    /// Writes it into `body`, which has its length; refuses what no parser accepts.
    fn emit(&self, body: &mut [u8]) -> Result<(), WireError>;
    /// Its flags in the common header.
    #[inline]
    fn flags(&self) -> u16 {
        0
    }
}

/// Lays out a body that consists of its fields, in this order, with codes of enums, reserved bytes and a flag
/// where it has them.
macro_rules! plain {
    ($name:ident {
        $($field:ident: $type:ty,)*
        $([code $coded:ident: $enum:ident],)*
        $([$reserved:literal; $bytes:literal], $($behind:ident: $behind_type:ty,)*)?
        $([flag $flag:ident: $bit:ident],)?
    }) => {
        const _: () = {
            #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
            #[repr(C)]
            struct Layout {
                $($field: $type,)*
                $($coded: u8,)*
                $(reserved: [u8; $bytes], $($behind: $behind_type,)*)?
            }

            impl Contents for $name {
                #[inline]
                fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
                    let layout = packet.body_as::<Layout>()?;
                    let _ = &layout;
                    $(ensure_zero($reserved, &layout.reserved)?;)?
                    Ok($name {
                        $($field: layout.$field.into(),)*
                        $($coded: $enum::from_code(layout.$coded)?,)*
                        $($($behind: layout.$behind.into(),)*)?
                        $($flag: packet.flag(flag::$bit),)?
                    })
                }

                #[inline]
                fn emit(&self, body: &mut [u8]) -> Result<(), WireError> {
                    let layout = Layout {
                        $($field: self.$field.into(),)*
                        $($coded: self.$coded as u8,)*
                        $(reserved: [0; $bytes], $($behind: self.$behind.into(),)*)?
                    };
                    write(layout, body);
                    Ok(())
                }

                $(
                    #[inline]
                    fn flags(&self) -> u16 {
                        if self.$flag { flag::$bit } else { 0 }
                    }
                )?
            }
        };
    };
}
pub(super) use plain;

/// The error of `field` unless `holds`.
#[inline]
pub(super) fn ensure(field: &'static str, holds: bool, value: impl Into<u64>) -> Result<(), WireError> {
    if holds { Ok(()) } else { Err(WireError { field, value: value.into() }) }
}

/// That reserved bytes are zero (W-6); the value of the error is the bytes read little-endian.
#[inline]
pub(super) fn ensure_zero<const N: usize>(field: &'static str, reserved: &[u8; N]) -> Result<(), WireError> {
    const { assert!(N <= 8) };
    if *reserved == [0; N] {
        return Ok(());
    }
    let mut value = [0; 8];
    value[..N].copy_from_slice(reserved);
    Err(WireError { field, value: u64::from_le_bytes(value) })
}

/// Writes `layout` to the front of `out` and returns what is behind it. The callers' `out` has the length
/// [`Repr::header_bytes`], which has room for every layout (checked by the tests for every kind).
#[inline]
pub(super) fn write(layout: impl IntoBytes + Immutable, out: &mut [u8]) -> &mut [u8] {
    let bytes = layout.as_bytes();
    let (front, rest) = out.split_at_mut(bytes.len());
    front.copy_from_slice(bytes);
    rest
}

/// Bytes of the header of the packet that `prefix` starts with, or `None` while fewer than 32 bytes are here.
///
/// At most [`HEADER_BYTES_MAX`]. Errors name `version`, `kind` or `header_bytes`:
/// the stream has no next packet then, and its subchannel must be closed (W-26).
#[inline]
pub fn header_len(prefix: &[u8]) -> Result<Option<usize>, WireError> {
    match CommonLayout::ref_from_prefix(prefix) {
        Ok((common, _)) => common.framing().map(|(_, header_bytes)| Some(header_bytes)),
        Err(_) => Ok(None),
    }
}

/// Bytes of payload behind a header that [`header_len`] has accepted; 0 where fewer than 32 bytes are given.
#[inline]
pub fn payload_len(header: &[u8]) -> u32 {
    CommonLayout::ref_from_prefix(header).map_or(0, |(common, _)| common.payload_bytes())
}
