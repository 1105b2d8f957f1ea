//! Names of messages, and contents that follow from names: a payload contains what it should be.
//!
//! A name travels as immediate data, and as the first 8 bytes of every payload that is long enough. All other
//! bytes are mixed from the name and their place, so a byte of the right message at the wrong place is as
//! wrong as one of another.

use std::fmt;

/// Bytes of buffers without an owner: what is found there must be this; else a rank wrote late.
pub const POISON: u8 = 0xDB;

/// Bytes of a receive buffer before anything came.
pub const BLANK: u8 = 0xB1;

const RANK_BITS: u32 = 20;
const SERIAL_BITS: u32 = 24;

/// A message's name: sender, receiver, and its number among the messages from the one to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(u64);

impl Name {
    /// Ranks that names can distinguish.
    pub const RANKS_MAX: u32 = 1 << RANK_BITS;
    /// Messages of one pair that names can distinguish.
    pub const SERIALS_MAX: u32 = 1 << SERIAL_BITS;

    /// The `serial`-th message from `source` to `destination`.
    ///
    /// # Panics
    /// Where a number does not fit ([`RANKS_MAX`](Self::RANKS_MAX), [`SERIALS_MAX`](Self::SERIALS_MAX)):
    /// workloads fit their sizes.
    pub fn new(source: u32, destination: u32, serial: u32) -> Self {
        assert!(source < Self::RANKS_MAX && destination < Self::RANKS_MAX && serial < Self::SERIALS_MAX);
        let ranks = u64::from(source) << RANK_BITS | u64::from(destination);
        Name(ranks << SERIAL_BITS | u64::from(serial))
    }

    /// As it travels. The serial number stands lowest, so that even one byte of payload distinguishes
    /// neighbours.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// From what travelled; any number is a name, whether a message has it is decided by the ledger.
    pub const fn from_bits(bits: u64) -> Self {
        Name(bits)
    }

    /// The sender's rank.
    pub const fn source(self) -> u32 {
        (self.0 >> (RANK_BITS + SERIAL_BITS)) as u32
    }

    /// The receiver's rank.
    pub const fn destination(self) -> u32 {
        (self.0 >> SERIAL_BITS) as u32 & (Self::RANKS_MAX - 1)
    }

    /// Its number among the pair's messages, from 0.
    pub const fn serial(self) -> u32 {
        self.0 as u32 & (Self::SERIALS_MAX - 1)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message {} from rank {} to rank {}", self.serial(), self.source(), self.destination())
    }
}

/// Bytes that follow from a seed: a message's name, or what a workload names a put by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Content(pub u64);

impl From<Name> for Content {
    fn from(name: Name) -> Self {
        Content(name.0)
    }
}

impl Content {
    /// Eight bytes, the `index`-th of the content; the first eight are the seed itself.
    const fn word(self, index: u64) -> [u8; 8] {
        if index == 0 {
            return self.0.to_le_bytes();
        }
        let mut z = self.0 ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    }

    /// The byte at `at`.
    pub const fn byte(self, at: u64) -> u8 {
        self.word(at / 8)[(at % 8) as usize]
    }

    /// Writes the content's bytes from `offset` on.
    pub fn fill(self, offset: u64, into: &mut [u8]) {
        let (head, rest) = into.split_at_mut(to_next_word(offset, into.len()));
        head.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = self.byte(at));
        let first = offset.div_ceil(8);
        let (words, tail) = rest.as_chunks_mut::<8>();
        words.iter_mut().zip(first..).for_each(|(word, index)| *word = self.word(index));
        tail.copy_from_slice(&self.word(first + words.len() as u64)[..tail.len()]);
    }

    /// Where `bytes` differ first from the content's bytes from `offset` on.
    pub fn first_difference(self, offset: u64, bytes: &[u8]) -> Option<Difference> {
        // Whole words first: most bytes are as they should be.
        let (head, rest) = bytes.split_at(to_next_word(offset, bytes.len()));
        let differs = |(byte, at): (&u8, u64)| *byte != self.byte(at);
        let start = if head.iter().zip(offset..).any(differs) {
            0
        } else {
            let (words, _) = rest.as_chunks::<8>();
            let well = words.iter().zip(offset.div_ceil(8)..).take_while(|(word, index)| **word == self.word(*index));
            head.len() + 8 * well.count()
        };
        let at = start + bytes[start..].iter().zip(offset + start as u64..).position(differs)?;
        Some(Difference { at: at as u64, expected: self.byte(offset + at as u64), found: bytes[at] })
    }
}

/// How many of `len` bytes from `offset` on come before the next whole word.
fn to_next_word(offset: u64, len: usize) -> usize {
    ((8 - offset % 8) as usize % 8).min(len)
}

/// A byte that is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Bytes from the start of what was compared.
    pub at: u64,
    /// What should be there.
    pub expected: u8,
    /// What is there.
    pub found: u8,
}

/// Where `bytes` are not all `expected`.
pub fn first_not(expected: u8, bytes: &[u8]) -> Option<Difference> {
    // Whole lines first: most memory is as it should be.
    let (lines, _) = bytes.as_chunks::<64>();
    let is_odd = |line: &[u8; 64]| line.iter().fold(0, |odd, found| odd | (found ^ expected)) != 0;
    let start = 64 * lines.iter().position(is_odd).unwrap_or(lines.len());
    let at = start + bytes[start..].iter().position(|byte| *byte != expected)?;
    Some(Difference { at: at as u64, expected, found: bytes[at] })
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = match self.found {
            POISON => " (a buffer that was given back)",
            BLANK => " (nothing was written)",
            _ => "",
        };
        write!(f, "byte {} is {:#04x}{known} instead of {:#04x}", self.at, self.found, self.expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_name_bits_round_trip() {
        let name = Name::new(1_048_575, 77, 16_777_215);
        assert_eq!((name.source(), name.destination(), name.serial()), (1_048_575, 77, 16_777_215));
        assert_eq!(Name::from_bits(name.to_bits()), name);
    }

    #[test]
    fn content_is_the_same_however_it_is_cut() {
        let content = Content::from(Name::new(1, 2, 3));
        let mut whole = [0; 100];
        content.fill(0, &mut whole);
        assert_eq!(whole[..8], Name::new(1, 2, 3).to_bits().to_le_bytes());
        for start in 0..40 {
            assert_eq!(content.first_difference(start as u64, &whole[start..]), None);
            assert_eq!(content.byte(start as u64), whole[start]);
        }
        whole[61] ^= 1;
        let found = content.first_difference(10, &whole[10..]).unwrap();
        assert_eq!((found.at, found.found), (51, whole[61]));
        assert!(Content(5).first_difference(0, &whole).is_some());
    }

    #[test]
    fn the_first_odd_byte_is_found() {
        let mut bytes = [POISON; 300];
        assert_eq!(first_not(POISON, &bytes), None);
        for at in [299, 256, 255, 64, 0] {
            bytes[at] = 7;
            assert_eq!(first_not(POISON, &bytes).unwrap().at, at as u64);
        }
    }
}
