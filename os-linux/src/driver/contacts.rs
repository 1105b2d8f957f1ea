//! Rails that are open before this process knows its rank and its job: for hosts that publish an address
//! first and receive their peers' addresses later, as libfabric's do.
//!
//! Peers that connect meanwhile wait in the kernel's queue, so nothing is lost and no readiness handshake
//! is needed. Only rails whose address does not depend on the rank can be opened so: shared memory and
//! TCP, no verbs.

use rerail_core::ids::PeerId;

use super::{Opening, StartError, rails};
use crate::auth;
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
    shm: Option<ShmRail>,
    tcp: Vec<TcpRail>,
}

impl Contacts {
    /// Opens the shared-memory rail and the TCP rails that the settings name; other kinds are passed over.
    ///
    /// # Errors
    /// [`StartError::Rail`].
    pub fn open(settings: &Settings) -> Result<Self, StartError> {
        let nobody = JobKey { key: [0; 32], job_id: 0 };
        let wanted = |kind: &str| settings.rails.iter().any(|named| named == kind);
        let shm = wanted("shm").then(|| rails::open_shm(settings, PeerId(0), 1, &nobody)).transpose()?;
        let tcp = match wanted("tcp") {
            true => rails::open_all_tcp(settings, PeerId(0), &nobody, &mut Numbers::default())?,
            false => Vec::new(),
        };
        Ok(Contacts { settings: settings.clone(), shm, tcp })
    }

    /// The shared-memory rail's address, as on a card.
    pub fn shm_address(&self) -> Option<String> {
        self.shm.as_ref().map(|rail| rail.address())
    }

    /// The TCP rails' addresses, as on a card.
    pub fn tcp_addresses(&self) -> impl Iterator<Item = String> {
        self.tcp.iter().map(|rail| rail.address())
    }

    /// Gives the rails their identity. The caller passes the cards of all ranks next.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn identify(self, rank: PeerId, size: u32, key: &JobKey) -> Result<Opening, StartError> {
        let Contacts { settings, shm, tcp } = self;
        let mut rails: Vec<Box<dyn Rail + Send>> = vec![Box::new(Loopback::new(rank))];
        if size > 1 {
            if let Some(mut shm) = shm {
                shm.identify(auth::JobKey::new(key.key), key.job_id, rank, size);
                rails.push(Box::new(shm));
            }
            for mut tcp in tcp {
                tcp.identify(auth::JobKey::new(key.key), key.job_id, rank);
                rails.push(Box::new(tcp));
            }
        }
        Opening::of_settings(&settings, rank, size, rails)
    }
}
