//! Opens the rails that the settings name.
//!
//! The order of rail numbers is the loopback, then the kinds in the order of `Settings::rails`; of TCP one
//! rail per interface, of verbs one per port. A job of one needs no rail but the loopback, so none is opened
//! and no port listened on.

use std::error::Error;
use std::net::IpAddr;

use rerail_core::ids::PeerId;
use rerail_core::rail::Place;
use rustix::io::Errno;

use super::{StartError, verbs};
use crate::auth::{self, Credentials};
use crate::bootstrap::JobKey;
use crate::place::{Device, Numbers};
use crate::rail::Rail;
use crate::rail::loopback::Loopback;
use crate::rail::shm::{ShmOptions, ShmRail};
use crate::rail::tcp::{Interface, TcpOptions, TcpRail, interfaces};
use crate::random::random;
use crate::settings::Settings;

/// Why the settings name no rail that can be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum RailError {
    /// There is no such kind.
    #[error("there is no such kind of rail: the kinds are shm, verbs and tcp")]
    Kind,
    /// No interface has this name, or none of its addresses can be used.
    #[error("no interface of this name is up with an address that others can use; there are: {}", .known.join(", "))]
    NoInterface {
        /// Those that there are.
        known: Vec<String>,
    },
    /// The ports after `tcp_port` are used up.
    #[error("there is no port for it: tcp_port is too high for so many rails")]
    Port,
    /// The system refuses to list its interfaces.
    #[error("the system does not list its interfaces: {0}")]
    Interfaces(#[source] Errno),
}

/// Whether a rail can't be opened since there is no such interface.
pub(super) fn is_absent(why: &(dyn Error + Send + Sync + 'static)) -> bool {
    matches!(why.downcast_ref(), Some(RailError::NoInterface { .. }))
}

fn failed(rail: &str, why: impl Error + Send + Sync + 'static) -> StartError {
    StartError::Rail { rail: rail.to_owned(), why: Box::new(why) }
}

/// This process, to the others.
pub(super) struct RankIdentity<'a> {
    pub credentials: &'a Credentials,
    pub job: u64,
    pub rank: PeerId,
}

/// Fresh ones, in no job yet.
pub(super) fn credentials() -> Result<Credentials, StartError> {
    let private = random().map_err(|errno| failed("credentials", errno))?;
    Ok(Credentials::new(private, auth::Secret::new([0; 32])))
}

/// All rails of rank `rank` of `size`, the loopback first.
pub(super) fn open(
    settings: &Settings,
    rank: PeerId,
    size: u32,
    key: &JobKey,
) -> Result<Vec<Box<dyn Rail + Send>>, StartError> {
    let mut rails: Vec<Box<dyn Rail + Send>> = vec![Box::new(Loopback::new(rank))];
    let credentials = credentials()?.in_job(auth::Secret::new(key.key));
    let rank_identity = RankIdentity { credentials: &credentials, job: key.job_id, rank };
    let mut numbers = Numbers::default();
    for kind in settings.rails.iter().filter(|_| size > 1) {
        match kind.as_str() {
            "shm" => rails.push(Box::new(open_shm(settings, size, &rank_identity)?)),
            "verbs" => {
                let opened = verbs::open(settings, size, &rank_identity, &mut numbers)?;
                rails.extend(opened.into_iter().map(|rail| Box::new(rail) as Box<dyn Rail + Send>));
            }
            "tcp" => {
                let opened = open_all_tcp(settings, &rank_identity, &mut numbers)?;
                rails.extend(opened.into_iter().map(|rail| Box::new(rail) as Box<dyn Rail + Send>));
            }
            _ => return Err(failed(kind, RailError::Kind)),
        }
    }
    Ok(rails)
}

/// One TCP rail for each interface that the settings name.
pub(super) fn open_all_tcp(
    settings: &Settings,
    rank_identity: &RankIdentity<'_>,
    numbers: &mut Numbers,
) -> Result<Vec<TcpRail>, StartError> {
    let each = (0..=u8::MAX).zip(chosen(settings)?);
    each.map(|(index, (name, interface))| {
        let device = Device::of_interface(&interface.name);
        let at = (numbers.place(&device), device.numa_distance);
        open_tcp(settings, rank_identity, index, name, &interface, at)
    })
    .collect()
}

/// Sizes of the shared-memory rail.
pub(super) fn shm_options(settings: &Settings, size: u32) -> ShmOptions {
    ShmOptions {
        posts_max: settings.posts,
        slots: settings.shm_slots,
        segment_bytes: settings.shm_segment,
        eager_bytes_max: settings.core.eager_bytes_max.min(settings.shm_segment),
        single_copy: settings.shm_single_copy,
        ring_reads: settings.shm_ring_reads,
        ..ShmOptions::new(size)
    }
}

pub(super) fn open_shm(
    settings: &Settings,
    size: u32,
    rank_identity: &RankIdentity<'_>,
) -> Result<ShmRail, StartError> {
    let options = ShmOptions { host_id: settings.host_id.clone(), ..shm_options(settings, size) };
    ShmRail::open(options, rank_identity.credentials.clone(), rank_identity.job, rank_identity.rank)
        .map_err(|error| failed("shm", error))
}

fn open_tcp(
    settings: &Settings,
    rank_identity: &RankIdentity<'_>,
    index: u8,
    name: String,
    interface: &Interface,
    (place, numa_distance): (Place, u8),
) -> Result<TcpRail, StartError> {
    let port = match settings.tcp_port {
        0 => 0,
        first => first.checked_add(index.into()).ok_or_else(|| failed(&name, RailError::Port))?,
    };
    let buffer = |bytes: u32| (bytes > 0).then_some(bytes as usize);
    let defaults = TcpOptions::new(interface.address, index);
    let options = TcpOptions {
        port,
        name: name.clone(),
        bytes_per_second: interface.bytes_per_second,
        place,
        numa_distance,
        eager_bytes_max: settings.core.eager_bytes_max.min(defaults.segment_bytes),
        posts_max: settings.posts.min(defaults.posts_max),
        user_timeout_ms: u32::try_from(settings.tcp_user_timeout.0 / 1_000_000).unwrap_or(u32::MAX),
        send_buffer_bytes: buffer(settings.tcp_sndbuf),
        receive_buffer_bytes: buffer(settings.tcp_rcvbuf),
        ..defaults
    };
    TcpRail::open(options, rank_identity.credentials.clone(), rank_identity.job, rank_identity.rank)
        .map_err(|error| failed(&name, error))
}

/// The interfaces to use, each with its rail's name.
fn chosen(settings: &Settings) -> Result<Vec<(String, Interface)>, StartError> {
    let known = interfaces(true).map_err(|errno| failed("tcp", RailError::Interfaces(errno)))?;
    if settings.tcp_interfaces.is_empty() {
        let mut each: Vec<&Interface> = Vec::new();
        // One rail per interface, by its first address: a second address is no second path.
        for interface in known.iter().filter(|interface| !interface.loopback) {
            if each.iter().all(|other| other.name != interface.name) {
                each.push(interface);
            }
        }
        return Ok(each.into_iter().map(|interface| (format!("tcp:{}", interface.name), interface.clone())).collect());
    }
    let one = |word: &String| -> Result<(String, Interface), StartError> {
        let name = format!("tcp:{word}");
        if let Ok(address) = word.parse::<IpAddr>() {
            // Addresses that no interface lists may be valid all the same (127.0.0.2); the system decides.
            let listed = known.iter().find(|interface| interface.address == address).cloned();
            let unlisted =
                Interface { name: word.clone(), address, loopback: address.is_loopback(), bytes_per_second: 0 };
            return Ok((name, listed.unwrap_or(unlisted)));
        }
        match known.iter().find(|interface| interface.name == *word) {
            Some(interface) => Ok((name, interface.clone())),
            None => {
                let mut known: Vec<String> = known.iter().map(|interface| interface.name.clone()).collect();
                known.sort();
                known.dedup();
                Err(failed(&name, RailError::NoInterface { known }))
            }
        }
    };
    settings.tcp_interfaces.iter().map(one).collect()
}
