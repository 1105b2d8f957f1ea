//! Opens the verbs rails: one for each port of each device that the settings name, or of all that can be
//! used.
//!
//! Where the settings don't name verbs, unusable devices are skipped (and reported to the log); a
//! program that does not need verbs devices starts where there are none. Where they do, it is an error
//! with its remedy.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rerail_core::time::Nanos;
use rerail_verbs::contract::{CreateError, Device as _};
use rerail_verbs::{
    ChoiceError, Context, DeviceError, Devices, Foreign, IbDevice, ListError, Moderation, OpenError, QueryError, Verbs,
};
use rustix::io::Errno;

use super::StartError;
use super::domain_file::DomainFile;
use super::rails::RankIdentity;
use crate::auth::Secret;
use crate::place::{Device, Numbers};
use crate::rail::verbs::{Identity, SrqSizes, VerbsError, VerbsOptions, VerbsRail, XrcOptions};
use crate::random;
use crate::settings::{SRQ_SIZE_MAX, Settings, Source, Xrc, parse_bytes, parse_pkey};

/// Rounds in which a rail looks for asynchronous events once: a few dozen microseconds on a machine with
/// hardware.
const EVENT_INTERVAL: u32 = 64;
/// How far ahead a device without hardware behind it is fed. Its work is done by the processors that this
/// process runs on, so it has no use for a late choice between rails, and each completion that is waited for
/// by itself, for the next part to be given, costs a sleep, a wake-up and another start of its tasks
/// (`conformance/BENCHMARKS.md`).
const SOFTWARE_FEED_TIME: Nanos = Nanos(5_000_000);

/// The longest acknowledgment timeout by default: 4.096 us * 2^18, about a second.
const ACK_TIMEOUT_MAX: u8 = 18;

/// What `verbs_moderation` delays an interrupt by at most, in microseconds: a few messages' time.
const MODERATION_US: u16 = 16;

/// Why a verbs rail can't be opened.
#[derive(Debug, thiserror::Error)]
enum RailError {
    #[error("{0}")]
    Library(#[from] OpenError),
    #[error("{0}")]
    List(#[from] ListError),
    #[error("there is no verbs device that can be used (rerail info prints why)")]
    None,
    #[error("no device of this name; there are: {}", .known.join(", "))]
    NoDevice { known: Vec<String> },
    #[error("{0}")]
    Foreign(Foreign),
    #[error("{0}")]
    Device(#[from] DeviceError),
    #[error("{}; {}", .0, .0.remedy())]
    Choice(#[from] ChoiceError),
    #[error("{0}")]
    Query(#[from] QueryError),
    #[error("{0}")]
    Rail(#[from] VerbsError),
    #[error("{0}")]
    Sizes(#[from] SizesError),
    #[error("the system gives no random bytes: {0}")]
    Random(#[from] Errno),
    #[error("the file in /dev/shm that the XRC domain is found by can't be used: {0} (verbs_xrc)")]
    Domain(#[from] io::Error),
}

impl RailError {
    /// Whether something required is absent: the library, a device, or a feature of all devices.
    fn is_absent(&self) -> bool {
        use RailError::{Foreign, Library, List, NoDevice, None, Rail};
        match self {
            Library(_) | List(_) | None | NoDevice { .. } | Foreign(_) => true,
            Rail(why) => matches!(why, VerbsError::NoXrc { .. } | VerbsError::NoOnDemand { .. }),
            _ => false,
        }
    }
}

/// Whether a rail of verbs can't be opened because something it needs is not on this machine.
pub(super) fn is_absent(why: &(dyn Error + Send + Sync + 'static)) -> bool {
    why.downcast_ref::<RailError>().is_some_and(RailError::is_absent)
}

/// Whether the settings name verbs: an unusable device is an error then.
fn is_requested(settings: &Settings) -> bool {
    let by_rails = settings.source("rails") != Source::Default;
    by_rails || !settings.verbs_devices.is_empty() || settings.verbs_xrc == Xrc::On
}

/// The errors of `verbs_srq_sizes`, for any rail.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum SizesError {
    #[error("verbs_srq_sizes: buffers of several sizes are for connections by XRC, and verbs_xrc is off")]
    NoXrc,
    #[error("verbs_srq_sizes: the last size is {word}, and must be {SRQ_SIZE_MAX}, that of the longest packet")]
    Last { word: String },
    #[error("verbs_srq_sizes: {word} is no size in bytes, and can only be the last")]
    Size { word: String },
    #[error("verbs_srq_sizes: {count} sizes before the last, {} are possible", SrqSizes::MAX)]
    Many { count: usize },
}

/// The sizes that the settings name; `None`: none, which leaves it to the rail.
fn srq_sizes(settings: &Settings) -> Result<Option<SrqSizes>, SizesError> {
    let Some((last, smaller)) = settings.verbs_srq_sizes.split_last() else { return Ok(None) };
    if last != SRQ_SIZE_MAX {
        return Err(SizesError::Last { word: last.clone() });
    }
    if settings.verbs_xrc == Xrc::Off && !smaller.is_empty() {
        return Err(SizesError::NoXrc);
    }
    let size = |word: &String| {
        let bytes = parse_bytes(word).ok().and_then(|bytes| u32::try_from(bytes).ok());
        bytes.ok_or_else(|| SizesError::Size { word: word.clone() })
    };
    let bytes = smaller.iter().map(size).collect::<Result<Vec<u32>, _>>()?;
    SrqSizes::new(&bytes).map(Some).ok_or(SizesError::Many { count: bytes.len() })
}

/// The device that an entry of `verbs_devices` names: `mlx5_0`, `mlx5_0/2` (port 2), `mlx5_0/1/3` (port 1 by
/// GID 3).
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedPort {
    device: String,
    port: Option<u8>,
    gid_index: Option<u8>,
}

impl NamedPort {
    fn parse(word: &str) -> NamedPort {
        let mut parts = word.split('/');
        let device = parts.next().unwrap_or_default().to_owned();
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        NamedPort { device, port: number(), gid_index: number() }
    }
}

/// Opens them all.
pub(super) fn open(
    settings: &Settings,
    size: u32,
    rank_identity: &RankIdentity<'_>,
    numbers: &mut Numbers,
) -> Result<Vec<VerbsRail<IbDevice>>, StartError> {
    let requested = is_requested(settings);
    let failed = |name: &str, why: RailError| StartError::Rail { rail: name.to_owned(), why: Box::new(why) };
    let devices = match list(settings.verbs_fork) {
        Ok(devices) => devices,
        Err(why) if requested => return Err(failed("verbs", why)),
        Err(why) => {
            tracing::debug!(%why, "no verbs rails");
            return Ok(Vec::new());
        }
    };
    let named_ports: Vec<NamedPort> = match settings.verbs_devices.is_empty() {
        false => settings.verbs_devices.iter().map(|word| NamedPort::parse(word)).collect(),
        true => every_port(&devices),
    };
    let mut file = None;
    let (mut rails, mut first) = (Vec::new(), None);
    for named_port in named_ports {
        let index = u8::try_from(rails.len()).unwrap_or(u8::MAX);
        let mut name = format!("verbs:{}", named_port.device);
        let opened =
            open_one(settings, size, rank_identity, &devices, &named_port, &mut name, index, numbers, &mut file);
        match opened {
            Ok(rail) => rails.push(rail),
            Err(why) if !settings.verbs_devices.is_empty() => return Err(failed(&name, why)),
            // Errors in the settings, or in devices that the settings name.
            Err(why @ (RailError::Domain(_) | RailError::Sizes(_) | RailError::Rail(VerbsError::NoXrc { .. }))) => {
                return Err(failed(&name, why));
            }
            Err(why) => {
                tracing::warn!(rail = %name, %why, "this device is not used");
                first.get_or_insert((name, why));
            }
        }
    }
    if rails.is_empty() && requested {
        // The first device's error is more informative than the fact that none can be used.
        let (name, why) = first.unwrap_or(("verbs".to_owned(), RailError::None));
        return Err(failed(&name, why));
    }
    Ok(rails)
}

fn list(fork: bool) -> Result<Devices, RailError> {
    let library = Verbs::open()?;
    // Before any other call into the library. If it fails, all else works.
    if let Some(why) = fork.then(|| library.make_forks_safe().err()).flatten() {
        tracing::warn!(%why, "after a fork, registered memory may be wrong in this process or its child (verbs_fork)");
    }
    let devices = library.devices()?;
    if devices.is_empty() { Err(RailError::None) } else { Ok(devices) }
}

/// Every active port of every device; devices whose ports can't be queried are named without a port, for
/// the message.
fn every_port(devices: &Devices) -> Vec<NamedPort> {
    let mut named_ports = Vec::new();
    for device in devices.iter() {
        let name = device.name();
        if device.foreign().is_some() {
            named_ports.push(NamedPort { device: name, port: None, gid_index: None });
            continue;
        }
        let context = device.open().ok();
        let Some(ports) = context.as_ref().and_then(|context| context.each_port().ok()) else {
            named_ports.push(NamedPort { device: name, port: None, gid_index: None });
            continue;
        };
        let requested = ports.filter_map(|port| {
            port.inspect_err(|why| tracing::warn!(device = %name, %why, "this port is not used")).ok()
        });
        let active = requested.filter(|port| port.state == rerail_verbs::PortState::Active);
        named_ports.extend(active.map(|port| NamedPort {
            device: name.clone(),
            port: Some(port.number),
            gid_index: None,
        }));
    }
    named_ports
}

#[allow(clippy::too_many_arguments, reason = "what a rail is made of, handed through once")]
fn open_one(
    settings: &Settings,
    size: u32,
    rank_identity: &RankIdentity<'_>,
    devices: &Devices,
    named_port: &NamedPort,
    name: &mut String,
    index: u8,
    numbers: &mut Numbers,
    domain: &mut Option<Arc<DomainFile>>,
) -> Result<VerbsRail<IbDevice>, RailError> {
    let found = devices
        .find(&named_port.device)
        .ok_or_else(|| RailError::NoDevice { known: devices.iter().map(|device| device.name()).collect() })?;
    if let Some(why) = found.foreign() {
        return Err(RailError::Foreign(why));
    }
    let context: Context = found.open()?;
    let choice = context.choose(named_port.port, named_port.gid_index)?;
    *name = format!("verbs:{}/{}", named_port.device, choice.port.number);
    let relaxed = settings.verbs_relaxed_ordering;
    // A device that can't be queried for this is reported below.
    let ack_delay = context.attributes().map_or(0, |attributes| attributes.ack_delay);
    let ack_timeout = ack_timeout(settings, ack_delay);
    let device = prepared(context, relaxed)?;
    if settings.verbs_xrc == Xrc::On && !device.limits().xrc {
        return Err(RailError::Rail(VerbsError::NoXrc { device: named_port.device.clone() }));
    }
    let file =
        domain_for(settings.verbs_xrc, device.limits().xrc, name, domain, || DomainFile::open(rank_identity.job))?;
    let sizes = srq_sizes(settings)?;
    let place = Device::of_verbs(&named_port.device, choice.port.number);
    let moderation = match settings.verbs_moderation {
        0 => Moderation::NONE,
        count => Moderation { count, period_us: MODERATION_US },
    };
    let options = VerbsOptions {
        name: name.clone(),
        write: settings.verbs_write,
        read: settings.verbs_read,
        registrations_max: settings.verbs_registrations,
        registrations_adopted: settings.verbs_keep_adopted,
        on_demand: settings.verbs_on_demand,
        moderation,
        ack_timeout,
        pkey: settings.verbs_pkey.as_deref().and_then(parse_pkey),
        service_level: settings.verbs_service_level,
        traffic_class: settings.verbs_traffic_class,
        gid_index: named_port.gid_index,
        xrc: file.as_ref().map(|file| XrcOptions { sizes, ..XrcOptions::new(file.descriptor(), file.id()) }),
        numa_distance: place.numa_distance,
        feed_time_min: if place.hca.is_none() { SOFTWARE_FEED_TIME } else { Nanos(0) },
        place: numbers.place(&place),
        ..sized(settings, size, index)
    };
    let RankIdentity { credentials, job, rank } = *rank_identity;
    let secret = Secret::new(random::random()?);
    let identity = Identity { credentials: credentials.clone(), job, me: rank, secret };
    let rail = VerbsRail::open(device, choice.port.number, options, identity)?;
    let device = named_port.device.clone();
    Ok(rail.reopen_with(Box::new(move || {
        // The domain is found by it again: it stays open as long as the rail is there.
        let _open = &file;
        again(&device, relaxed)
    })))
}

/// The defaults for rail number `index` with the sizes of the settings.
pub(super) fn sized(settings: &Settings, size: u32, index: u8) -> VerbsOptions {
    let defaults = VerbsOptions::new(size, index);
    VerbsOptions {
        eager_bytes_max: settings.core.eager_bytes_max.min(settings.verbs_segment).min(settings.verbs_eager),
        segment_bytes: settings.verbs_segment,
        posts_max: settings.posts.min(defaults.posts_max),
        sends: settings.verbs_sends,
        receives: settings.verbs_receives,
        inline_bytes: settings.verbs_inline,
        ..defaults
    }
}

/// The file through which a rail finds its XRC domain, one for all rails, opened for the first that can use
/// it; `None`: the rail connects by RC. A failure is an error only where the settings require XRC.
fn domain_for<F>(
    xrc: Xrc,
    has_xrc: bool,
    rail: &str,
    domain: &mut Option<Arc<F>>,
    open: impl FnOnce() -> io::Result<F>,
) -> io::Result<Option<Arc<F>>> {
    if xrc == Xrc::Off || !has_xrc {
        if xrc == Xrc::Auto {
            tracing::info!(rail, "the device has no XRC, connections are RC");
        }
        return Ok(None);
    }
    if domain.is_none() {
        match open() {
            Ok(file) => *domain = Some(Arc::new(file)),
            Err(why) if xrc == Xrc::On => return Err(why),
            Err(why) => tracing::warn!(rail, %why, "no file for the XRC domain in /dev/shm, connections are RC"),
        }
    }
    Ok(domain.clone())
}

/// A timeout shorter than the peer's acknowledgment delay resends data that has arrived. The peers' devices
/// matter; ours stands in for them. A long timeout delays the detection of a dead peer: the default is at
/// most a second, eight times.
fn ack_timeout(settings: &Settings, ack_delay: u8) -> u8 {
    let own = settings.verbs_ack_timeout;
    match settings.source("verbs_ack_timeout") {
        Source::Default => own.max(ack_delay.saturating_add(1).min(ACK_TIMEOUT_MAX)),
        _ => own,
    }
}

/// A device as rails use it.
fn prepared(context: Context, relaxed: bool) -> Result<IbDevice, QueryError> {
    let mut device = IbDevice::new(context)?;
    device.set_relaxed_ordering(relaxed);
    device.set_event_interval(EVENT_INTERVAL);
    Ok(device)
}

/// Opens the device of that name again after it broke or was unplugged. For libibverbs it may be another
/// device by now, so the device list is read again.
fn again(name: &str, relaxed: bool) -> Result<IbDevice, CreateError> {
    let devices = Verbs::open().ok().and_then(|verbs| verbs.devices().ok());
    let context = devices.and_then(|devices| devices.find(name)?.open().ok());
    context.and_then(|context| prepared(context, relaxed).ok()).ok_or(CreateError::DeviceGone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::testing::credentials;

    #[test]
    fn device_setting_names_a_device_a_port_and_a_gid() {
        let named_ports = |device: &str, port, gid_index| NamedPort { device: device.into(), port, gid_index };
        assert_eq!(NamedPort::parse("mlx5_0"), named_ports("mlx5_0", None, None));
        assert_eq!(NamedPort::parse("mlx5_0/2"), named_ports("mlx5_0", Some(2), None));
        assert_eq!(NamedPort::parse("rxe0/1/3"), named_ports("rxe0", Some(1), Some(3)));
    }

    /// No file is made for devices without XRC; its absence ends the start only where the settings
    /// require XRC.
    #[test]
    fn the_domain_is_found_by_one_file_which_auto_can_do_without() {
        let refused = || -> io::Result<u8> { Err(io::ErrorKind::PermissionDenied.into()) };
        let never = || -> io::Result<u8> { panic!("there is no use for it") };
        let mut none = None;
        assert_eq!(domain_for(Xrc::Off, true, "a", &mut none, never).unwrap(), None);
        assert_eq!(domain_for(Xrc::Auto, false, "a", &mut none, never).unwrap(), None);
        assert_eq!(domain_for(Xrc::Auto, true, "a", &mut none, refused).unwrap(), None);
        assert_eq!(
            domain_for(Xrc::On, true, "a", &mut none, refused).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
        let mut one = None;
        for xrc in [Xrc::Auto, Xrc::On] {
            assert_eq!(domain_for(xrc, true, "a", &mut one, || Ok(3)).unwrap().as_deref(), Some(&3));
        }
        assert_eq!(domain_for(Xrc::On, true, "a", &mut one, never).unwrap().as_deref(), Some(&3));
    }

    #[test]
    fn ack_timeout_follows_the_device_delay_unless_configured() {
        let mut settings = Settings::default();
        let waited = |settings: &Settings| [0, 13, 14, 16, 17, 31].map(|delay| ack_timeout(settings, delay));
        assert_eq!(waited(&settings), [14, 14, 15, 17, 18, 18]);
        settings.set("verbs_ack_timeout", "14").unwrap();
        assert_eq!(waited(&settings), [14; 6]);
    }

    #[test]
    fn a_partition_key_is_written_as_people_write_it() {
        let keys = ["0x8001", "0x1", "32769", "1", "0XFFFF"].map(parse_pkey);
        assert_eq!(keys, [Some(1), Some(1), Some(1), Some(1), Some(0x7fff)]);
        let mut settings = Settings::default();
        for wrong in ["0x8000", "0", "0x10000", "65536", "-1", "+1", "8001h"] {
            assert!(settings.set("verbs_pkey", wrong).is_err(), "{wrong}");
        }
        settings.set("verbs_pkey", "0x8001").unwrap();
        assert!(
            settings.set("verbs_service_level", "16").is_err() && settings.set("verbs_traffic_class", "256").is_err()
        );
    }

    /// V-17: the entries of the setting; errors in them name the setting.
    #[test]
    fn sizes_of_receive_buffers_are_read_and_end_with_the_longest() {
        let read = |xrc: &str, words: &str| {
            let mut settings = Settings::default();
            settings.set("verbs_xrc", xrc).unwrap();
            // As a program may set them that does not go by the table of settings.
            settings.verbs_srq_sizes = words.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect();
            srq_sizes(&settings)
        };
        let sizes = |bytes: &[u32]| Ok(SrqSizes::new(bytes));
        assert_eq!(read("on", ""), Ok(None));
        assert_eq!(read("on", "max"), sizes(&[]));
        assert_eq!(read("auto", "256,1K,8192,max"), sizes(&[256, 1024, 8192]));
        assert_eq!(read("off", "max"), sizes(&[]));
        assert_eq!(read("off", "256,max"), Err(SizesError::NoXrc));
        assert_eq!(read("on", "256,1024"), Err(SizesError::Last { word: "1024".into() }));
        assert_eq!(read("on", "300,301,302,303,304,305,306,307,max"), Err(SizesError::Many { count: 8 }));
        assert_eq!(read("on", "max,256"), Err(SizesError::Last { word: "256".into() }));
        let errors = [SizesError::NoXrc, SizesError::Size { word: "max".into() }, SizesError::Many { count: 8 }];
        assert!(errors.into_iter().all(|error| error.to_string().starts_with("verbs_srq_sizes: ")));
        let mut settings = Settings::default();
        for words in ["255,max", "17M,max", "eth0,max", "256,256,max", "-1,max"] {
            assert!(settings.set("verbs_srq_sizes", words).is_err(), "{words}");
        }
    }

    /// Required where there is none: an error with its remedy.
    #[test]
    fn missing_device_is_an_error_only_if_required() {
        let mut settings = Settings::default();
        let rank_identity = RankIdentity { credentials: &credentials(0), job: 1, rank: rerail_core::ids::PeerId(0) };
        settings.set("verbs_devices", "no_such_device0").unwrap();
        let error = open(&settings, 2, &rank_identity, &mut Numbers::default()).unwrap_err();
        assert!(matches!(error, StartError::Rail { .. }), "{error:?}");
        assert!(error.is_absent());
    }

    /// XRC is required: on a machine without such devices the start fails.
    #[test]
    fn xrc_is_required_only_by_its_own_setting() {
        for (xrc, requested) in [("off", false), ("auto", false), ("on", true)] {
            let mut settings = Settings::default();
            settings.set("verbs_xrc", xrc).unwrap();
            assert_eq!(is_requested(&settings), requested, "{xrc}");
        }
        let mut settings = Settings::default();
        settings.set("rails", "shm,verbs,tcp").unwrap();
        assert!(is_requested(&settings));
        let device = "rxe0".to_owned();
        let why = RailError::Rail(VerbsError::NoXrc { device });
        assert!(is_absent(&why) && !is_absent(&RailError::Sizes(SizesError::NoXrc)));
    }
}
