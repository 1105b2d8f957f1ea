//! Finding packets in a stream of bytes (TCP): a header, its payload, the next header.
//!
//! The common header contains both lengths, so a reader needs 32 bytes to find the packet's end. These two
//! functions do not validate the whole packet: [`Repr::parse`](super::Repr::parse) does.

use zerocopy::FromBytes;

use super::common::CommonLayout;
use super::repr::WireError;

/// Bytes of the header of the packet that `prefix` starts with, or `None` while fewer than 32 bytes are here.
///
/// At most [`HEADER_BYTES_MAX`](super::HEADER_BYTES_MAX). Errors name `version`, `kind` or `header_bytes`:
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
