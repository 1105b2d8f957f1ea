//! A process's address record: one line of text with the addresses of its rails.
//!
//! `rerail2;HOST;KEY;KIND@ADDRESS,KIND@ADDRESS,...`: the version, the logical host (processes on one may
//! share memory), the process's public key in hexadecimal digits (half as many: its fingerprint, enough for
//! shared memory and TCP; `-`: its rails prove nothing) and one entry per rail in the order of rail numbers.
//! Host and addresses are printable ASCII without space, `;`, `,` and `=`; so a record survives any
//! launcher's key-value store. Parsing is strict: a record that this process would not have written is an
//! error that names the part.

use rerail_core::rail::RailKind;

use crate::auth::{Fingerprint, PeerKey, PublicKey};
use crate::bootstrap::from_hex;

/// The prefix of every address record of this version.
const VERSION: &str = "rerail2";
/// In place of a key.
const NO_KEY: &str = "-";
/// Longest host or address in bytes.
const WORD_BYTES_MAX: usize = 200;
/// Most rails in a record: the width of a 64-bit mask.
const RAILS_MAX: usize = 64;

/// Why an address record can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRecordError {
    /// It starts with another version.
    #[error("it is of version \"{found}\", not {VERSION}")]
    Version {
        /// The text found.
        found: String,
    },
    /// It has another number of parts than version, host, key and rails.
    #[error("it has {found} parts, not version;host;key;rails")]
    Parts {
        /// How many.
        found: usize,
    },
    /// A host or address is empty, too long, or has a character that may not be there.
    #[error("\"{word}\" is no host or address: 1 to {WORD_BYTES_MAX} printable characters, no space ; , or =")]
    Word {
        /// The word.
        word: String,
    },
    /// The key is neither `-` nor a public key or, without verbs rails, a fingerprint.
    #[error("\"{found}\" is no key: 64 hexadecimal digits, without verbs rails also 32 or -")]
    Key {
        /// The text found.
        found: String,
    },
    /// A rail's entry has no `@`.
    #[error("\"{entry}\" is no rail: kind@address")]
    Entry {
        /// The entry.
        entry: String,
    },
    /// A rail of unknown kind.
    #[error("\"{found}\" is no kind of rail: loop, shm, tcp, verbs")]
    Kind {
        /// The text found.
        found: String,
    },
    /// More rails than can be.
    #[error("it has {found} rails, at most {RAILS_MAX} are possible")]
    Rails {
        /// How many.
        found: usize,
    },
    /// A rail of this process can't use the address.
    #[error("rail {rail} can't use address \"{address}\": {why}")]
    Address {
        /// The rail.
        rail: String,
        /// The address.
        address: String,
        /// The reason.
        why: &'static str,
    },
}

/// The line of text with a process's addresses, parsed. Borrows the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRecord<'a> {
    /// The logical host.
    pub(super) host: &'a str,
    /// The process's key, where its rails prove it.
    pub(super) key: Option<PeerKey>,
    /// Kind and address of each rail.
    pub(super) rails: Vec<(RailKind, &'a str)>,
}

impl<'a> AddressRecord<'a> {
    /// The only text that means this record.
    ///
    /// # Errors
    /// See [`AddressRecordError`].
    pub fn emit(&self) -> Result<String, AddressRecordError> {
        check_word(self.host)?;
        if self.rails.len() > RAILS_MAX {
            return Err(AddressRecordError::Rails { found: self.rails.len() });
        }
        let key = match &self.key {
            None => NO_KEY.to_owned(),
            Some(PeerKey::Whole(key)) => hex::encode(key.0),
            Some(PeerKey::Fingerprint(fingerprint)) => hex::encode(fingerprint.0),
        };
        let mut text = format!("{VERSION};{};{key};", self.host);
        for (index, (kind, address)) in self.rails.iter().enumerate() {
            check_word(address)?;
            if index > 0 {
                text.push(',');
            }
            text.push_str(kind_name(*kind));
            text.push('@');
            text.push_str(address);
        }
        Ok(text)
    }

    /// Reads an address record.
    ///
    /// # Errors
    /// See [`AddressRecordError`].
    pub fn parse(text: &'a str) -> Result<Self, AddressRecordError> {
        // The version is checked first: the rest may have another shape in another version.
        let version = text.split(';').next().unwrap_or_default();
        if version != VERSION {
            return Err(AddressRecordError::Version { found: excerpt(version) });
        }
        let mut parts = text.split(';').skip(1);
        let (Some(host), Some(key), Some(entries), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(AddressRecordError::Parts { found: text.split(';').count() });
        };
        check_word(host)?;
        let wrong = || AddressRecordError::Key { found: excerpt(key) };
        let key = match key {
            NO_KEY => None,
            digits => Some(parse_key(digits).ok_or_else(wrong)?),
        };
        let entries = || entries.split(',').filter(|_| !entries.is_empty());
        let found = entries().count();
        if found > RAILS_MAX {
            return Err(AddressRecordError::Rails { found });
        }
        let rails = entries().map(parse_entry).collect::<Result<_, _>>()?;
        let address_record = AddressRecord { host, key, rails };
        // Their set-up messages bring no key (V-3).
        let has_no_whole_key = !matches!(address_record.key, Some(PeerKey::Whole(_)));
        if has_no_whole_key && address_record.nth(RailKind::Verbs, 0).is_some() {
            Err(wrong())
        } else {
            Ok(address_record)
        }
    }

    /// The address of the `nth` rail of a kind.
    pub(super) fn nth(&self, kind: RailKind, nth: usize) -> Option<&'a str> {
        self.rails.iter().filter(|(of, _)| *of == kind).nth(nth).map(|(_, address)| *address)
    }
}

/// Of the digits that `emit` writes.
fn parse_key(digits: &str) -> Option<PeerKey> {
    if digits.bytes().any(|digit| digit.is_ascii_uppercase()) {
        return None;
    }
    let whole = from_hex(digits).map(|key| PeerKey::Whole(PublicKey(key)));
    whole.or_else(|| from_hex(digits).map(|key| PeerKey::Fingerprint(Fingerprint(key))))
}

fn parse_entry(entry: &str) -> Result<(RailKind, &str), AddressRecordError> {
    let (kind, address) = entry.split_once('@').ok_or_else(|| AddressRecordError::Entry { entry: excerpt(entry) })?;
    let kind = [RailKind::Loop, RailKind::Shm, RailKind::Tcp, RailKind::Verbs]
        .into_iter()
        .find(|candidate| kind_name(*candidate) == kind)
        .ok_or_else(|| AddressRecordError::Kind { found: excerpt(kind) })?;
    check_word(address)?;
    Ok((kind, address))
}

fn kind_name(kind: RailKind) -> &'static str {
    match kind {
        RailKind::Loop => "loop",
        RailKind::Shm => "shm",
        RailKind::Tcp => "tcp",
        RailKind::Verbs => "verbs",
        RailKind::Sim => "sim",
    }
}

fn check_word(word: &str) -> Result<(), AddressRecordError> {
    let allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b';' | b',' | b'=');
    match (1..=WORD_BYTES_MAX).contains(&word.len()) && word.bytes().all(allowed) {
        true => Ok(()),
        false => Err(AddressRecordError::Word { word: excerpt(word) }),
    }
}

/// As much of a stranger's text as an error message should carry.
fn excerpt(text: &str) -> String {
    text.chars().take(WORD_BYTES_MAX).collect::<String>().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RECORD: &str =
        "rerail2;node-a;00112233445566778899aabbccddeeff;loop@self,shm@17/4,tcp@10.0.0.1:4000,tcp@[fe80::1%eth0]:4001";

    #[test]
    fn address_record_is_parsed_and_round_trips() {
        let address_record = AddressRecord::parse(RECORD).unwrap();
        assert_eq!(address_record.host, "node-a");
        let digits: Vec<u8> = (0..16).map(|digit| digit * 0x11).collect();
        assert_eq!(address_record.key, Some(PeerKey::Fingerprint(Fingerprint(digits.try_into().unwrap()))));
        assert_eq!(address_record.rails.len(), 4);
        assert_eq!(address_record.nth(RailKind::Tcp, 1), Some("[fe80::1%eth0]:4001"));
        assert_eq!(address_record.nth(RailKind::Tcp, 2), None);
        assert_eq!(address_record.nth(RailKind::Shm, 0), Some("17/4"));
        assert_eq!(address_record.emit().unwrap(), RECORD);
        let bare = AddressRecord::parse("rerail2;h;-;").unwrap();
        assert!(bare.rails.is_empty() && bare.key.is_none());
        assert_eq!(bare.emit().unwrap(), "rerail2;h;-;");
        let whole = format!("rerail2;h;{};verbs@ib", "0f".repeat(32));
        let address_record = AddressRecord::parse(&whole).unwrap();
        assert_eq!(
            (address_record.key, address_record.emit().unwrap()),
            (Some(PeerKey::Whole(PublicKey([0x0f; 32]))), whole)
        );
    }

    #[test]
    fn errors_name_the_part() {
        let long = "x".repeat(WORD_BYTES_MAX + 1);
        let many = vec!["tcp@a"; RAILS_MAX + 1].join(",");
        let word = |word: &str| AddressRecordError::Word { word: word.into() };
        for (text, error) in [
            ("".to_owned(), AddressRecordError::Version { found: "".into() }),
            ("rerail1;h;tcp@a".to_owned(), AddressRecordError::Version { found: "rerail1".into() }),
            ("rerail2".to_owned(), AddressRecordError::Parts { found: 1 }),
            ("rerail2;h;-".to_owned(), AddressRecordError::Parts { found: 3 }),
            ("rerail2;h;-;tcp@a;more".to_owned(), AddressRecordError::Parts { found: 5 }),
            ("rerail2;h;0011;tcp@a".to_owned(), AddressRecordError::Key { found: "0011".into() }),
            ("rerail2;h;-;verbs@ib".to_owned(), AddressRecordError::Key { found: "-".into() }),
            (
                RECORD.replace("tcp", "verbs"),
                AddressRecordError::Key { found: "00112233445566778899aabbccddeeff".into() },
            ),
            (RECORD.replace("ee", "EE"), AddressRecordError::Key { found: "00112233445566778899aabbccddEEff".into() }),
            ("rerail2;;-;tcp@a".to_owned(), word("")),
            ("rerail2;a b;-;tcp@a".to_owned(), word("a b")),
            ("rerail2;h;-;tcp@a=b".to_owned(), word("a=b")),
            ("rerail2;h;-;tcp@".to_owned(), word("")),
            (format!("rerail2;h;-;tcp@{long}"), word(&long[1..])),
            ("rerail2;h;-;tcp".to_owned(), AddressRecordError::Entry { entry: "tcp".into() }),
            ("rerail2;h;-;tcp@a,".to_owned(), AddressRecordError::Entry { entry: "".into() }),
            ("rerail2;h;-;sim@a".to_owned(), AddressRecordError::Kind { found: "sim".into() }),
            ("rerail2;h;-;TCP@a".to_owned(), AddressRecordError::Kind { found: "TCP".into() }),
            (format!("rerail2;h;-;{many}"), AddressRecordError::Rails { found: RAILS_MAX + 1 }),
        ] {
            assert_eq!(AddressRecord::parse(&text), Err(error), "{text}");
        }
    }

    #[test]
    fn unparsable_address_record_is_not_written() {
        let rails = vec![(RailKind::Tcp, "a,b")];
        assert_eq!(
            AddressRecord { host: "h", key: None, rails }.emit(),
            Err(AddressRecordError::Word { word: "a,b".into() })
        );
        assert_eq!(
            AddressRecord { host: "", key: None, rails: vec![] }.emit(),
            Err(AddressRecordError::Word { word: "".into() })
        );
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_means_itself(text in prop_oneof![
            ".{0,64}",
            "rerail2;[a-z]{0,3};(-|[0-9a-f]{30,33}|[0-9a-f]{64});(loop|shm|tcp|verbs|sim)?@?[a-z=]{0,3}(,(tcp|shm)@[a-z0-9:]{0,8}){0,4};?",
        ]) {
            if let Ok(address_record) = AddressRecord::parse(&text) {
                prop_assert_eq!(address_record.emit().unwrap(), text);
            }
        }
    }
}
