//! Rails that are open before this process has its rank and its job: for hosts that publish an address
//! first and receive their peers' addresses later, as libfabric's do.
//!
//! Peers that connect meanwhile wait in the kernel's queue, so nothing is lost and no readiness handshake
//! is needed. Only rails whose address does not depend on the rank can be opened so: shared memory and
//! TCP, no verbs.

use rerail_core::ids::PeerId;

use super::rails::{self, Who};
use super::{Opening, StartError};
use crate::auth::{self, Credentials, Fingerprint};
use crate::bootstrap::JobKey;
use crate::place::Numbers;
use crate::rail::Rail;
use crate::rail::loopback::Loopback;
use crate::rail::shm::ShmRail;
use crate::rail::tcp::TcpRail;
use crate::settings::Settings;

/// Open rails without an identity.
#[derive(Debug)]
pub struct Contacts {
    settings: Settings,
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
        let nobody = Who { credentials: &credentials, job: 0, rank: PeerId(0) };
        let wanted = |kind: &str| settings.rails.iter().any(|named| named == kind);
        let shm = wanted("shm").then(|| rails::open_shm(settings, 1, &nobody)).transpose()?;
        let tcp = match wanted("tcp") {
            true => rails::open_all_tcp(settings, &nobody, &mut Numbers::default())?,
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

    /// Gives the rails their identity. The caller passes the address records of all ranks next.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn identify(self, rank: PeerId, size: u32, key: &JobKey) -> Result<Opening, StartError> {
        let Contacts { settings, credentials, shm, tcp } = self;
        let credentials = credentials.in_job(auth::Secret::new(key.key));
        let mut rails: Vec<Box<dyn Rail + Send>> = vec![Box::new(Loopback::new(rank))];
        if size > 1 {
            if let Some(mut shm) = shm {
                shm.identify(credentials.clone(), key.job_id, rank, size);
                rails.push(Box::new(shm));
            }
            for mut tcp in tcp {
                tcp.identify(credentials.clone(), key.job_id, rank);
                rails.push(Box::new(tcp));
            }
        }
        Opening::of_settings(&settings, rank, size, rails)
    }
}
