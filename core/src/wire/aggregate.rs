//! Several small messages to one peer in one packet (newmadeleine-2007, 3.3).
//!
//! Body: `count u16, reserved [u8; 6]`. Payload: `count` records back to back and nothing behind them; each
//! is `flags u16, reserved u16, bytes u32, tag u64, immediate u64, operation u64`, then `bytes` bytes of
//! message, without padding, so that a gather list can name the messages where they lie.
//!
//! An aggregate is good as a whole or not at all (W-11): walk [`Records`] once before any of it takes effect;
//! it is `Clone` for that.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use super::common::{Packet, ensure, ensure_zero, flag, write};
use super::message::HeadLayout;
use super::repr::{MessageHead, WireError};

/// Bytes of a record in front of its message.
pub const RECORD_BYTES: usize = 32;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AggregateLayout {
    count: U16,
    reserved: [u8; 6],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RecordLayout {
    flags: U16,
    reserved: [u8; 2],
    bytes: U32,
    head: HeadLayout,
}

/// The record before a message in an aggregate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHead {
    /// Envelope.
    pub head: MessageHead,
    /// Bytes of the message.
    pub bytes: u32,
}

/// A message in an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Envelope.
    pub head: MessageHead,
    /// The message.
    pub payload: &'a [u8],
}

/// The messages of an aggregate, in the order in which they were sent. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    left: u16,
    rest: &'a [u8],
}

impl RecordHead {
    /// Reads it. Errors: `record.flags`, `record.reserved`, `head.tag`, `head.immediate`.
    #[inline]
    pub fn parse(bytes: &[u8; RECORD_BYTES]) -> Result<Self, WireError> {
        let layout: &RecordLayout = transmute_ref!(bytes);
        let flags = layout.flags.get();
        ensure("record.flags", flags & !flag::HEAD == 0, flags)?; // W-5
        ensure_zero("record.reserved", &layout.reserved)?;
        Ok(RecordHead { head: layout.head.meaning(flags)?, bytes: layout.bytes.get() })
    }

    /// Writes it.
    #[inline]
    pub fn emit(&self) -> [u8; RECORD_BYTES] {
        transmute!(RecordLayout {
            flags: U16::new(self.head.flags()),
            reserved: [0; 2],
            bytes: U32::new(self.bytes),
            head: HeadLayout::from(&self.head),
        })
    }
}

impl<'a> Records<'a> {
    /// The records in `payload`, the whole payload of an aggregate of `count`.
    #[inline]
    pub const fn new(count: u16, payload: &'a [u8]) -> Self {
        Records { left: count, rest: payload }
    }

    fn take(&mut self) -> Result<Record<'a>, WireError> {
        let short = WireError { field: "record", value: self.rest.len() as u64 };
        let (front, rest) = self.rest.split_first_chunk().ok_or(short)?;
        let RecordHead { head, bytes } = RecordHead::parse(front)?;
        let over = WireError { field: "record.bytes", value: u64::from(bytes) };
        let bytes = usize::try_from(bytes).map_err(|_| over)?;
        let (payload, rest) = rest.split_at_checked(bytes).ok_or(over)?;
        self.rest = rest;
        Ok(Record { head, payload })
    }
}

/// Errors: those of [`RecordHead::parse`], and `record` (ends too soon; the value is the bytes left),
/// `record.bytes` (runs past the payload), `record.trailing` (bytes behind the last record; the value is how
/// many).
impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let item = match (self.left, self.rest.len()) {
            (0, 0) => return None,
            (0, trailing) => Err(WireError { field: "record.trailing", value: trailing as u64 }),
            _ => self.take(),
        };
        *self = match item {
            Ok(_) => Records { left: self.left - 1, rest: self.rest },
            Err(_) => Records { left: 0, rest: &[] },
        };
        Some(item)
    }
}

impl core::iter::FusedIterator for Records<'_> {}

/// Reads the body: how many records.
#[inline]
pub(super) fn parse(packet: &Packet<'_>) -> Result<u16, WireError> {
    let layout = packet.body_as::<AggregateLayout>()?;
    ensure_zero("aggregate.reserved", &layout.reserved)?;
    check(layout.count.get(), packet.payload_bytes())
}

/// Writes the body.
#[inline]
pub(super) fn emit(count: u16, payload_bytes: u32, body: &mut [u8]) -> Result<(), WireError> {
    let count = U16::new(check(count, payload_bytes)?);
    write(AggregateLayout { count, reserved: [0; 6] }, body);
    Ok(())
}

/// At least one record, and room for the heads of all (W-11).
#[inline]
fn check(count: u16, payload_bytes: u32) -> Result<u16, WireError> {
    let heads_bytes = u32::from(count) * RECORD_BYTES as u32;
    ensure("aggregate.count", count != 0 && heads_bytes <= payload_bytes, count)?;
    Ok(count)
}
