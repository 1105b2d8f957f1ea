//! The messages of the two sides about a file, and the receiver's checks of them.

use serde::{Deserialize, Serialize};

/// The version of this exchange.
pub const VERSION: u32 = 1;
/// Most bytes of one message: more would not go faster.
pub const CHUNK_BYTES_MAX: u64 = 64 << 20;
/// Most memory for messages under way.
pub const RING_BYTES_MAX: u64 = 256 << 20;
/// Longest name that is taken, in bytes: leaves room for what a temporary name adds.
const NAME_BYTES_MAX: usize = 200;

/// The sender's offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// [`VERSION`].
    pub version: u32,
    /// The file's name, without a folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Bytes of a message; the last may be shorter.
    pub chunk_bytes: u64,
    /// Messages under way at once.
    pub depth: u64,
}

/// The receiver's answer to the offer, and its verdict at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Go on; at the end: the file is there.
    Good,
    /// No, and why.
    Bad(String),
}

/// The sender's last word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Digest of the sent file, or the reason why the sender can't go on.
    pub sha256: Result<String, String>,
}

impl Offer {
    /// Messages in all.
    pub fn chunks(&self) -> u64 {
        self.bytes.div_ceil(self.chunk_bytes)
    }

    /// Bytes of message `number`.
    pub fn bytes_of(&self, number: u64) -> u64 {
        self.chunk_bytes.min(self.bytes - (number * self.chunk_bytes).min(self.bytes))
    }

    /// Reads an offer and refuses what is out of bounds.
    pub fn parse(text: &[u8]) -> Result<Offer, String> {
        let offer: Offer =
            serde_json::from_slice(text).map_err(|_| "the sender's offer can't be read: it runs another version")?;
        if offer.version != VERSION {
            return Err(format!(
                "the sender offers version {} of the transfer, this receiver has {VERSION}",
                offer.version
            ));
        }
        let ring = offer.chunk_bytes.checked_mul(offer.depth);
        if !(1..=CHUNK_BYTES_MAX).contains(&offer.chunk_bytes)
            || !ring.is_some_and(|ring| (1..=RING_BYTES_MAX).contains(&ring))
        {
            return Err(format!("{} messages of {} bytes under way are too many", offer.depth, offer.chunk_bytes));
        }
        Ok(offer)
    }
}

/// A name that can only be that of a file in the folder it is joined to: no separators, no control
/// characters, not hidden, not too long.
pub fn sanitize(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or_default();
    let mut safe: String =
        last.chars().map(|c| if c.is_control() || c == '\\' || c == '\u{fffd}' { '_' } else { c }).collect();
    while safe.len() > NAME_BYTES_MAX {
        safe.pop();
    }
    let dots = safe.len() - safe.trim_start_matches('.').len();
    safe.replace_range(..dots, &"_".repeat(dots));
    if safe.trim().is_empty() { "unnamed".to_owned() } else { safe }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        Offer { version: VERSION, name: "a".to_owned(), bytes: 10, chunk_bytes: 4, depth: 2 }
    }

    #[test]
    fn names_stay_in_the_folder() {
        for (name, safe) in [
            ("data.bin", "data.bin"),
            ("/etc/passwd", "passwd"),
            ("../../x", "x"),
            ("..", "__"),
            (".", "_"),
            ("", "unnamed"),
            ("a/", "unnamed"),
            (".bashrc", "_bashrc"),
            ("a\nb\0c", "a_b_c"),
            ("x\\y", "x_y"),
            ("äöü", "äöü"),
        ] {
            assert_eq!(sanitize(name), safe, "{name:?}");
        }
        let long = sanitize(&"ä".repeat(300));
        assert!(long.len() <= NAME_BYTES_MAX && long.chars().all(|c| c == 'ä'));
    }

    #[test]
    fn the_last_message_is_the_rest() {
        let offer = offer();
        assert_eq!(offer.chunks(), 3);
        assert_eq!((0..4).map(|number| offer.bytes_of(number)).collect::<Vec<_>>(), [4, 4, 2, 0]);
        assert_eq!(Offer { bytes: 0, ..offer }.chunks(), 0);
    }

    #[test]
    fn offers_out_of_bounds_are_refused() {
        let parse = |offer: &Offer| Offer::parse(&serde_json::to_vec(offer).unwrap());
        assert_eq!(parse(&offer()), Ok(offer()));
        assert!(parse(&Offer { version: 2, ..offer() }).is_err());
        assert!(parse(&Offer { chunk_bytes: 0, ..offer() }).is_err());
        assert!(parse(&Offer { depth: 0, ..offer() }).is_err());
        assert!(parse(&Offer { chunk_bytes: CHUNK_BYTES_MAX + 1, ..offer() }).is_err());
        assert!(parse(&Offer { depth: u64::MAX, ..offer() }).is_err());
        assert!(Offer::parse(b"{}").is_err());
        assert!(Offer::parse(&[0xff; 8]).is_err());
    }
}
