//! Rails that are open before this process has a peer: what its name is made from, and transports over
//! them.
//!
//! Peers that connect before the transport starts wait in the kernel's queue, so nothing is lost and no
//! readiness handshake is needed. Only rails whose address does not depend on a rank can be opened so: shared
//! memory and TCP, no verbs.

use rerail_core::ids::PeerId;

use super::named::Named;
use super::rails::{self, RankIdentity};
use super::{Name, Opening, Options, StartError, Transport};
use crate::auth::{self, Credentials, Fingerprint};
use crate::place::Numbers;
use crate::rail::Rail;
use crate::rail::loopback::Loopback;
use crate::rail::shm::ShmRail;
use crate::rail::tcp::TcpRail;
use crate::settings::Settings;

/// Open rails without an identity.
#[derive(Debug)]
pub struct Contacts {
    pub(super) settings: Settings,
    credentials: Credentials,
    shm: Option<ShmRail>,
    tcp: Vec<TcpRail>,
}

impl Contacts {
    /// Opens the shared-memory rail and the TCP rails that the settings name; other kinds are passed over.
    ///
    /// # Errors
    /// [`StartError::Rail`].
    pub fn open(settings: &Settings) -> Result<Self, StartError> {
        let credentials = rails::credentials()?;
        let no_identity = RankIdentity { credentials: &credentials, job: 0, rank: PeerId(0) };
        let wanted = |kind: &str| settings.rails.iter().any(|named| named == kind);
        let shm = wanted("shm").then(|| rails::open_shm(settings, 1, &no_identity)).transpose()?;
        let tcp = match wanted("tcp") {
            true => rails::open_all_tcp(settings, &no_identity, &mut Numbers::default())?,
            false => Vec::new(),
        };
        Ok(Contacts { settings: settings.clone(), credentials, shm, tcp })
    }

    /// The fingerprint of this process's key: peers need it and the addresses to dial this process.
    pub fn fingerprint(&self) -> Fingerprint {
        self.credentials.public().fingerprint()
    }

    /// The shared-memory rail's address, as in an address record.
    pub fn shm_address(&self) -> Option<String> {
        self.shm.as_ref().map(|rail| rail.address())
    }

    /// The TCP rails' addresses, as in an address record.
    pub fn tcp_addresses(&self) -> impl Iterator<Item = String> {
        self.tcp.iter().map(|rail| rail.address())
    }

    /// Starts as `rank`, the number of this process for itself, with room for `peers_max` processes.
    pub(super) fn start(self, own: Name, rank: PeerId, peers_max: u32) -> Result<Transport, StartError> {
        let own_shm = self.shm_address();
        let Contacts { settings, credentials, shm, tcp } = self;
        let credentials = credentials.by_name(*own.bytes(), auth::Secret::new([0; 32]));
        let mut rails: Vec<Box<dyn Rail + Send>> = vec![Box::new(Loopback::new(rank))];
        if let Some(mut shm) = shm {
            shm.identify(credentials.clone(), 0, rank, peers_max);
            rails.push(Box::new(shm));
        }
        for mut tcp in tcp {
            tcp.identify(credentials.clone(), 0, rank);
            rails.push(Box::new(tcp));
        }
        let opening = Opening::of_settings(&settings, rank, peers_max, Some(own.fingerprint().number()), rails)?;
        opening.named(Named::new(own, own_shm, settings.callers))
    }
}

impl Transport {
    /// Opens a transport without rank, size or secret: [`name`](Self::name) is to be published,
    /// [`insert`](Self::insert) takes the names of others. This process is peer 0. Shared memory and TCP
    /// only; capacity and what happens to unknown callers are the settings `peers` and `callers`.
    ///
    /// ```
    /// use rerail_linux::{Options, Settings, Transport};
    ///
    /// let mut settings = Settings::default();
    /// settings.rails = vec!["shm".into()];
    /// let options = Options { settings };
    /// let (mut a, mut b) = (Transport::open_named(&options)?, Transport::open_named(&options)?);
    /// let (name_a, name_b) = (a.name().unwrap(), b.name().unwrap());
    /// let (b_of_a, a_of_b) = (a.insert(&name_b)?, b.insert(&name_a)?);
    /// assert_eq!((a.name_of(b_of_a), b.name_of(a_of_b)), (Some(name_b), Some(name_a)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn open_named(options: &Options) -> Result<Transport, StartError> {
        let contacts = Contacts::open(&options.settings)?;
        let own = Name::new(&contacts, None);
        contacts.join(&own, &[])
    }
}
