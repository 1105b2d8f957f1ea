//! The key table that ends an RTS or CTS: for each rail that may carry the buffer, how to reach it.
//!
//! Field map: `count u8`, `rails [u8; count]`, `connections [u16; count]`, zeros up to a multiple of 8, then
//! for each key `key u64, address u64`. The format has no limit but its count; [`KEYS_MAX`] is this
//! implementation's, and its error names it (W-9).

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::common::{ensure, key_table_bytes};
use super::repr::{KEYS_MAX, RemoteKey, RemoteKeys, WireError};

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct KeyLayout {
    key: U64,
    address: U64,
}

/// Reads the table that fills `table` exactly. `header_bytes` is for the error where it doesn't.
#[inline]
pub(super) fn parse(table: &[u8], header_bytes: usize) -> Result<RemoteKeys, WireError> {
    let length = WireError { field: "header_bytes", value: header_bytes as u64 };
    let &count = table.first().ok_or(length)?;
    let keys = usize::from(count);
    ensure("keys.count", keys <= KEYS_MAX, count)?;
    if table.len() != key_table_bytes(keys) {
        return Err(length); // W-3
    }
    let (front, entries) = table.split_at_checked(table.len() - 16 * keys).ok_or(length)?;
    let (rails, rest) = front[1..].split_at_checked(keys).ok_or(length)?;
    let (connections, padding) = rest.split_at_checked(2 * keys).ok_or(length)?;
    if let Some(&byte) = padding.iter().find(|&&byte| byte != 0) {
        return Err(WireError { field: "keys.padding", value: u64::from(byte) }); // W-6
    }
    let entries = <[KeyLayout]>::ref_from_bytes(entries).map_err(|_| length)?;
    let keys = rails.iter().zip(connections.as_chunks::<2>().0).zip(entries);
    let key = |((&rail, &connection), entry): ((&u8, &[u8; 2]), &KeyLayout)| RemoteKey {
        rail,
        connection: u16::from_le_bytes(connection),
        key: entry.key.get(),
        address: entry.address.get(),
    };
    Ok(keys.map(key).collect())
}

/// Writes the table into `table`, which has exactly its length.
#[inline]
pub(super) fn emit(keys: &RemoteKeys, table: &mut [u8]) {
    debug_assert_eq!(table.len(), key_table_bytes(keys.len()));
    let (front, entries) = table.split_at_mut(table.len() - 16 * keys.len());
    front.fill(0);
    front[0] = keys.len() as u8;
    let (rails, connections) = front[1..].split_at_mut(keys.len());
    for ((rail, connection), key) in rails.iter_mut().zip(connections.as_chunks_mut::<2>().0).zip(keys) {
        (*rail, *connection) = (key.rail, key.connection.to_le_bytes());
    }
    for (slot, key) in entries.as_chunks_mut::<16>().0.iter_mut().zip(keys) {
        *slot = zerocopy::transmute!(KeyLayout { key: U64::new(key.key), address: U64::new(key.address) });
    }
}
