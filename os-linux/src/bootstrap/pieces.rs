//! Values on a board with short keys and values, as those of PMI-1 and PMI-2: rank `r`'s key `k` becomes
//! `k.r`; its value is escaped and starts with the number of pieces (`1:...`); further pieces are `k.r.1`,
//! `k.r.2` and so on.

use super::line::{escape, unescape};
use super::{BootError, KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Room for the number of pieces and its colon.
const HEAD_BYTES: usize = 6;

/// The longest name of a piece: a key, a rank, a number and two dots.
pub(super) const PIECE_KEY_BYTES_MAX: usize = KEY_BYTES_MAX + 1 + 10 + 1 + 5;

/// The least room for a value's piece with which we still work.
pub(super) const PIECE_BYTES_MIN: usize = 32;

/// Puts a value in pieces of at most `piece_bytes_max` bytes, the first piece first.
pub(super) fn put(
    rank: u32,
    key: &str,
    value: &str,
    piece_bytes_max: usize,
    mut put_piece: impl FnMut(&str, &str) -> Result<(), BootError>,
) -> Result<(), BootError> {
    let escaped = escape(value);
    let (first, rest) = escaped.split_at(escaped.len().min(piece_bytes_max - HEAD_BYTES));
    let pieces = 1 + rest.len().div_ceil(piece_bytes_max);
    let name = format!("{key}.{rank}");
    put_piece(&name, &format!("{pieces}:{first}"))?;
    for (index, piece) in rest.as_bytes().chunks(piece_bytes_max).enumerate() {
        let piece = std::str::from_utf8(piece).expect("escaped text is ASCII");
        put_piece(&format!("{name}.{}", index + 1), piece)?;
    }
    Ok(())
}

/// Collects the pieces of a value; `None`: there is none.
pub(super) fn get(
    rank: u32,
    key: &str,
    mut get_piece: impl FnMut(&str) -> Result<Option<String>, BootError>,
) -> Result<Option<String>, BootError> {
    let bad = |why| BootError::Value { rank, key: key.into(), why };
    let name = format!("{key}.{rank}");
    let Some(first) = get_piece(&name)? else { return Ok(None) };
    let (count, first) = first.split_once(':').ok_or_else(|| bad("no number of pieces"))?;
    let count: u16 = count.parse().map_err(|_| bad("bad number of pieces"))?;
    let mut escaped = first.to_string();
    for index in 1..count {
        let piece = get_piece(&format!("{name}.{index}"))?;
        escaped.push_str(&piece.ok_or_else(|| bad("a piece is missing"))?);
        if escaped.len() > 3 * VALUE_BYTES_MAX {
            return Err(bad("too long"));
        }
    }
    unescape(&escaped).map(Some).map_err(bad)
}
