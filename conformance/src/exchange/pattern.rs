//! The payload of every message: a cheap generator keyed by source, target and message.
//!
//! Word `i` is a mix of the key and `i` alone, so sender and receiver make the same bytes without talking,
//! any part can be made by itself, and a message that arrives in place of another one differs from its first
//! bytes on.

/// What identifies a message's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The run's seed.
    pub seed: u64,
    /// The sender's rank (the owner's, for a get).
    pub source: u32,
    /// The receiver's rank (the reader's, for a get).
    pub target: u32,
    /// The message's tag, or the round for one-sided transfers.
    pub tag: u64,
    /// The message's number among those of the same source, target and tag.
    pub number: u64,
}

impl Key {
    /// The generator's start.
    fn stream(&self) -> u64 {
        let ends = u64::from(self.source) << 32 | u64::from(self.target);
        [ends, self.tag, self.number].into_iter().fold(mix(self.seed), |state, part| mix(state ^ part))
    }
}

/// Bijective on 64 bits, every output bit depends on every input bit (a multiply and xor-shift finaliser).
pub const fn mix(value: u64) -> u64 {
    let a = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let b = (a ^ (a >> 31)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let c = (b ^ (b >> 29)).wrapping_mul(0xa24b_aed4_963e_e407);
    c ^ (c >> 32)
}

/// Word `index` of the stream: one multiply less than `mix`, for payloads are long and the key is mixed
/// already.
const fn word(stream: u64, index: u64) -> u64 {
    let a = (stream ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    a ^ (a >> 32)
}

/// Writes the payload's bytes from `offset` on, which must be a multiple of 8.
pub fn fill(key: &Key, offset: u64, into: &mut [u8]) {
    let stream = key.stream();
    let mut index = offset / 8;
    let mut words = into.chunks_exact_mut(8);
    for chunk in &mut words {
        chunk.copy_from_slice(&word(stream, index).to_le_bytes());
        index += 1;
    }
    let rest = words.into_remainder();
    let last = word(stream, index).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

/// The first byte that differs from the payload, if any, and how many do. `bytes` start at `offset` of the
/// payload, a multiple of 8.
pub fn compare(key: &Key, offset: u64, bytes: &[u8]) -> Option<Difference> {
    let stream = key.stream();
    let mut difference: Option<Difference> = None;
    for (index, chunk) in (offset / 8..).zip(bytes.chunks(8)) {
        let wanted = word(stream, index).to_le_bytes();
        if *chunk == wanted[..chunk.len()] {
            continue;
        }
        for (at, (&found, &wanted)) in chunk.iter().zip(&wanted).enumerate() {
            if found != wanted {
                let first = Difference { offset: index * 8 + at as u64, wanted, found, bytes: 0 };
                difference.get_or_insert(first).bytes += 1;
            }
        }
    }
    difference
}

/// How bytes differ from what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Where in the payload the first wrong byte is.
    pub offset: u64,
    /// The byte sent.
    pub wanted: u8,
    /// The byte found.
    pub found: u8,
    /// How many bytes are wrong in all.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { seed: 1, source: 2, target: 3, tag: 4, number: 5 };

    #[test]
    fn filled_pattern_compares_equal_at_every_length() {
        for length in 0..70 {
            let mut bytes = vec![0; length];
            fill(&KEY, 0, &mut bytes);
            assert_eq!(compare(&KEY, 0, &bytes), None, "{length} bytes");
        }
    }

    #[test]
    fn parts_equal_the_whole() {
        let mut whole = [0; 64];
        fill(&KEY, 0, &mut whole);
        let mut part = [0; 13];
        fill(&KEY, 24, &mut part);
        assert_eq!(whole[24..37], part);
        assert_eq!(compare(&KEY, 24, &part), None);
        part[12] ^= 1;
        assert_eq!(compare(&KEY, 24, &part).map(|difference| difference.offset), Some(36));
    }

    #[test]
    fn one_flipped_bit_is_found_at_every_place() {
        let mut bytes = [0; 37];
        fill(&KEY, 0, &mut bytes);
        for at in 0..bytes.len() {
            let sent = bytes[at];
            bytes[at] ^= 0x10;
            let found = Difference { offset: at as u64, wanted: sent, found: sent ^ 0x10, bytes: 1 };
            assert_eq!(compare(&KEY, 0, &bytes), Some(found));
            bytes[at] = sent;
        }
    }

    #[test]
    fn every_part_of_the_key_changes_the_first_bytes() {
        let others = [
            Key { seed: 2, ..KEY },
            Key { source: 3, ..KEY },
            Key { target: 2, ..KEY },
            Key { tag: 5, ..KEY },
            Key { number: 4, ..KEY },
            Key { source: 3, target: 2, ..KEY },
        ];
        let first = |key: &Key| {
            let mut bytes = [0; 8];
            fill(key, 0, &mut bytes);
            bytes
        };
        for other in others {
            assert_ne!(first(&other), first(&KEY), "{other:?}");
        }
    }

    #[test]
    fn repeated_and_shifted_content_is_different() {
        let mut bytes = [0; 64];
        fill(&KEY, 8, &mut bytes);
        let shifted = compare(&KEY, 0, &bytes).expect("the second word is not the first");
        assert_eq!(shifted.offset, 0);
        assert!(shifted.bytes > 48, "nearly all bytes of a shifted message are wrong: {shifted:?}");
    }
}
