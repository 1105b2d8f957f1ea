//! Names of processes: 64 bytes, as many as libfabric's runtimes carry (`FI_NAME_MAX`). They are made from
//! the rails that are open before rank and job are known ([`Contacts`]).
//!
//! ```text
//!  0   version           1 byte
//!  1   rank              3 bytes, big-endian: the launcher's, or all ones; names sort by it
//!  4   host              6 bytes: hash of the host's identity; equal where memory may be shared
//! 10   fingerprint       16 bytes: of the process's key
//! 26   local socket      16 bytes: unique part of its name on this host; zeros: no shared memory
//! 42   TCP contacts      22 bytes: 4 or 6, address, port; as many as fit
//! ```
//!
//! A name is sufficient to connect to the process, and necessary: the fingerprint in it is what a caller
//! proves first (H-3). Only its owner can prove the key of which it is the fingerprint.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use rerail_core::rail::RailKind;
use sha2::{Digest, Sha256};

use super::record::{AddressRecord, AddressRecordError};
use super::{Contacts, StartError, Transport};
use crate::auth::{Fingerprint, PeerKey};
use crate::settings::Source;
use rerail_core::ids::PeerId;

pub use rerail_core::wire::handshake::NAME_BYTES;

const VERSION: u8 = 2;
const RANK: usize = 1;
const HOST: usize = 4;
const FINGERPRINT: usize = 10;
const SOCKET: usize = 26;
const CONTACTS: usize = 42;

/// The rank of a process that no launcher has numbered.
const NO_RANK: u32 = 0xff_ffff;

/// A process's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name([u8; NAME_BYTES]);

/// Why bytes are no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAName;

impl Name {
    /// The name of the process that these contacts belong to; `rank`: the launcher's, where there is one.
    pub fn new(contacts: &Contacts, rank: Option<u32>) -> Name {
        let mut name = [0; NAME_BYTES];
        name[0] = VERSION;
        let rank = rank.filter(|rank| *rank < NO_RANK).unwrap_or(NO_RANK);
        name[RANK..HOST].copy_from_slice(&rank.to_be_bytes()[1..]);
        name[FINGERPRINT..SOCKET].copy_from_slice(&contacts.fingerprint().0);
        if let Some((host, _, suffix)) = contacts.shm_address().as_deref().and_then(split_shm) {
            name[HOST..FINGERPRINT].copy_from_slice(&Sha256::digest(host)[..FINGERPRINT - HOST]);
            name[SOCKET..CONTACTS].copy_from_slice(&suffix.to_be_bytes());
        }
        let mut at = CONTACTS;
        for address in contacts.tcp_addresses() {
            // A zone means nothing to others. Contacts are numbered, so none is left out before another.
            let Ok(address) = address.parse::<SocketAddr>() else { break };
            let (kind, ip) = match address.ip() {
                IpAddr::V4(ip) => (4, ip.octets().to_vec()),
                IpAddr::V6(ip) => (6, ip.octets().to_vec()),
            };
            let entry = [&[kind], &ip[..], &address.port().to_be_bytes()].concat();
            let Some(room) = name.get_mut(at..at + entry.len()) else { break };
            room.copy_from_slice(&entry);
            at += entry.len();
        }
        Name(name)
    }

    /// A name from its bytes.
    ///
    /// # Errors
    /// [`NotAName`] where this version would not have written them.
    pub fn parse(bytes: [u8; NAME_BYTES]) -> Result<Name, NotAName> {
        let name = Name(bytes);
        let well = bytes[0] == VERSION && bytes[FINGERPRINT..SOCKET] != [0; 16] && name.contacts().is_some();
        if well { Ok(name) } else { Err(NotAName) }
    }

    /// The bytes.
    pub const fn bytes(&self) -> &[u8; NAME_BYTES] {
        &self.0
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        Fingerprint(self.0[FINGERPRINT..SOCKET].try_into().expect("sixteen bytes"))
    }

    fn socket(&self) -> u128 {
        u128::from_be_bytes(self.0[SOCKET..CONTACTS].try_into().expect("sixteen bytes"))
    }

    /// The TCP contacts; `None`: there are bytes that are none.
    pub(super) fn contacts(&self) -> Option<Vec<SocketAddr>> {
        let mut rest = &self.0[CONTACTS..];
        let mut contacts = Vec::new();
        while let [kind, behind @ ..] = rest {
            let (ip, after): (IpAddr, _) = match kind {
                4 => (behind.first_chunk::<4>().copied()?.into(), &behind[4..]),
                6 => (behind.first_chunk::<16>().copied()?.into(), &behind[16..]),
                0 if behind.iter().all(|byte| *byte == 0) => break,
                _ => return None,
            };
            let port = u16::from_be_bytes(after.first_chunk::<2>().copied()?);
            contacts.push(SocketAddr::new(ip, port));
            rest = &after[2..];
        }
        Some(contacts)
    }

    /// The address record of the process of this name, as a process of the name `own` and the local address
    /// `own_shm` reads it.
    pub(super) fn address_record(&self, own: &Name, own_shm: Option<&str>) -> Result<String, AddressRecordError> {
        let near = self.0[HOST..FINGERPRINT] == own.0[HOST..FINGERPRINT] && self.socket() != 0;
        let (mut host, mut shm) = ("elsewhere", None);
        if let Some((own_host, prefix, _)) = own_shm.and_then(split_shm).filter(|_| near) {
            host = own_host;
            shm = Some(format!("{prefix}{:032x}", self.socket()));
        }
        let tcp: Vec<String> = self.contacts().unwrap_or_default().iter().map(SocketAddr::to_string).collect();
        let mut rails = vec![(RailKind::Loop, "self")];
        rails.extend(shm.as_deref().map(|address| (RailKind::Shm, address)));
        rails.extend(tcp.iter().map(|address| (RailKind::Tcp, &**address)));
        AddressRecord { host, key: Some(PeerKey::Fingerprint(self.fingerprint())), rails }.emit()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rank = u32::from_be_bytes([0, self.0[1], self.0[2], self.0[3]]);
        f.debug_struct("Name")
            .field("rank", &(rank != NO_RANK).then_some(rank))
            .field("key", &self.fingerprint())
            .field("contacts", &self.contacts().unwrap_or_default())
            .finish_non_exhaustive()
    }
}

/// Host, everything up to the suffix, and the suffix of a local address: `HOST/SOMETHING-SUFFIX`.
fn split_shm(address: &str) -> Option<(&str, &str, u128)> {
    let (host, _) = address.split_once('/')?;
    let at = address.rfind('-')? + 1;
    let suffix = u128::from_str_radix(&address[at..], 16).ok()?;
    Some((host, &address[..at], suffix))
}

impl Contacts {
    /// Starts with the names of all processes of a job, `own` among them, in any order: the number of each,
    /// its rank, is the place of its name in sorted order, so that processes with the same names agree on all
    /// ranks without communication. Makes no connection. More names can be inserted later, up to the setting
    /// `peers` where that is set. Without names: as [`Transport::open_named`], this process is number 0.
    ///
    /// # Errors
    /// See [`StartError`]; [`StartError::MissingAddressRecord`] where `own` is not among the names.
    pub fn join(self, own: &Name, names: &[Name]) -> Result<Transport, StartError> {
        if names.is_empty() {
            let room = self.settings.peers;
            return self.start(*own, PeerId(0), room);
        }
        let mut sorted = names.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let size = u32::try_from(sorted.len()).unwrap_or(u32::MAX);
        let rank = own.rank_among(&sorted).ok_or(StartError::MissingAddressRecord(PeerId(size)))?;
        let room = if self.settings.source("peers") == Source::Default { size } else { size.max(self.settings.peers) };
        let mut transport = self.start(*own, rank, room)?;
        for (name, peer) in sorted.iter().zip((0..size).map(PeerId)).filter(|(_, peer)| *peer != rank) {
            let inserted = transport.engine.insert(name, Some(peer));
            inserted.map_err(|error| StartError::Insert { name: Box::new(*name), error })?;
        }
        Ok(transport)
    }
}

impl Name {
    /// The rank of the process of this name, among names in sorted order, each once.
    pub fn rank_among(&self, sorted: &[Name]) -> Option<PeerId> {
        sorted.binary_search(self).ok().and_then(|rank| u32::try_from(rank).ok()).map(PeerId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn contacts(addresses: &[&str]) -> Contacts {
        let mut settings = Settings::default();
        settings.tcp_interfaces = addresses.iter().map(|address| address.to_string()).collect();
        settings.rails = vec!["shm".into(), "tcp".into()];
        Contacts::open(&settings).expect("loopback addresses can be listened on")
    }

    #[test]
    fn process_name_holds_all_connection_data() {
        let [a, b] = [contacts(&["127.0.0.1", "127.0.0.2"]), contacts(&["127.0.0.1"])];
        let [name_a, name_b] = [&a, &b].map(|at| Name::new(at, Some(7)));
        assert_eq!(Name::parse(*name_a.bytes()), Ok(name_a));
        let address_record = name_a.address_record(&name_b, b.shm_address().as_deref()).unwrap();
        let host = a.shm_address().unwrap().split_once('/').unwrap().0.to_owned();
        let tcp: Vec<String> = a.tcp_addresses().map(|address| format!("tcp@{address}")).collect();
        assert_eq!(tcp.len(), 2);
        let key = hex::encode(a.fingerprint().0);
        let expected = format!("rerail2;{host};{key};loop@self,shm@{},{}", a.shm_address().unwrap(), tcp.join(","));
        assert_eq!(address_record, expected);
        // From another host there is no shared memory.
        let far = name_a.address_record(&Name([1; NAME_BYTES]), b.shm_address().as_deref()).unwrap();
        assert_eq!(far, format!("rerail2;elsewhere;{key};loop@self,{}", tcp.join(",")));
        assert_ne!(a.fingerprint(), b.fingerprint());
    }

    #[test]
    fn addresses_that_do_not_fit_are_omitted_from_the_end() {
        let addresses = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"];
        let many = contacts(&addresses);
        let name = Name::new(&many, None);
        let carried: Vec<IpAddr> = name.contacts().unwrap().iter().map(SocketAddr::ip).collect();
        assert_eq!(carried, addresses[..3].iter().map(|ip| ip.parse().unwrap()).collect::<Vec<IpAddr>>());
    }

    #[test]
    fn other_bytes_are_no_names() {
        let mut bytes = *Name::new(&contacts(&["127.0.0.1"]), None).bytes();
        assert!(Name::parse(bytes).is_ok());
        bytes[CONTACTS] = 5;
        assert_eq!(Name::parse(bytes), Err(NotAName));
        bytes[CONTACTS] = 4;
        bytes[0] = 1;
        assert_eq!(Name::parse(bytes), Err(NotAName));
        assert_eq!(Name::parse([0; NAME_BYTES]), Err(NotAName));
        let mut late = [0; NAME_BYTES];
        (late[0], late[FINGERPRINT], late[NAME_BYTES - 1]) = (VERSION, 1, 6);
        assert_eq!(Name::parse(late), Err(NotAName), "bytes behind the last contact");
    }

    #[test]
    fn names_sort_by_rank() {
        let at = contacts(&["127.0.0.1"]);
        let names = [3, 1, 2].map(|rank| Name::new(&at, Some(rank)));
        let mut sorted = names;
        sorted.sort_unstable();
        assert_eq!(sorted, [names[1], names[2], names[0]]);
        assert!(Name::new(&at, None) > sorted[2]);
    }
}
