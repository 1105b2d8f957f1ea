//! The most memory that a transport takes, by what takes it, and the check against `memory_budget`.
//!
//! Counted are the core's state and pool, what rails allocate, the rings that this process has made (its
//! receiving side; the other side's count there), and what the kernel and a device's library hold for the
//! connections. Payload memory of the program is its own. Everything is an upper bound: rings and socket
//! buffers grow with use.

use std::fmt;

use rerail_core::config::{Config, ConfigError};
use rerail_core::endpoint::sizes;
use rerail_core::ids::PeerId;

use crate::rail::tcp::{TcpOptions, TcpRail};
use crate::rail::verbs::{Provider, VerbsOptions};
use crate::settings::Settings;

use super::{rails, verbs};

/// Queues of a known provider, and of others: the formulas of mlx5 count.
const QUEUES: &str = "queues of verbs devices";
const UNKNOWN_QUEUES: &str = "queues of verbs devices (as mlx5's)";

/// What a job looks like to one of its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobShape {
    /// Processes, this one included.
    pub size: u32,
    /// Processes of this host that are reached by shared memory, this one included.
    pub per_node: u32,
    /// TCP rails.
    pub tcp_rails: u32,
    /// Verbs rails.
    pub verbs_rails: u32,
}

/// Memory for one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryItem {
    /// The purpose.
    pub what: &'static str,
    /// Bytes at most.
    pub bytes: u64,
    /// The settings that it follows from.
    pub settings: &'static str,
}

/// The most memory that a transport takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryNeed {
    /// By purpose.
    pub items: Vec<MemoryItem>,
}

/// A transport would take more memory than `memory_budget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverBudget {
    /// Bytes of all items.
    pub need: u64,
    /// The setting.
    pub budget: u64,
    /// The largest item.
    pub largest: MemoryItem,
}

impl std::error::Error for OverBudget {}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { need, budget, largest: MemoryItem { what, bytes, settings } } = self;
        write!(
            f,
            "the transport would take up to {need} bytes, and memory_budget is {budget}: the largest item is {what} \
             with {bytes} bytes (setting {settings}); rerail explain --memory lists all"
        )
    }
}

impl MemoryNeed {
    /// The need of one process with these settings.
    ///
    /// # Errors
    /// The core refuses the configuration.
    pub fn of(settings: &Settings, job: JobShape) -> Result<MemoryNeed, ConfigError> {
        let JobShape { size, per_node, tcp_rails, verbs_rails } = job;
        let has_shm = settings.rails.iter().any(|kind| kind == "shm");
        let shm_rails = u32::from(has_shm && size > 1);
        let rails = 1 + shm_rails + if size > 1 { tcp_rails + verbs_rails } else { 0 };
        let config =
            Config { rails_max: u8::try_from(rails).unwrap_or(u8::MAX), ..settings.to_core_config(PeerId(0), size) };
        let others = u64::from(config.channels_max.min(size.saturating_sub(1)));
        let near = if has_shm { u64::from(per_node.min(size).saturating_sub(1)) } else { 0 };
        let far = u64::from(size.saturating_sub(1)) - near.min(u64::from(size.saturating_sub(1)));

        let tcp = TcpOptions::new([0; 4].into(), 0);
        let tcp = TcpOptions { posts_max: settings.posts.min(tcp.posts_max), ..tcp };
        // Connecting by XRC, which takes less, is left out.
        let (shm, verbs) = (rails::shm_options(settings, size), verbs::sized(settings, size, 0));
        let known_provider = provider(settings, &verbs);
        let of = known_provider.unwrap_or(Provider::Mlx5);
        let (_, ring) = shm.ring_bytes();
        let sockets = u64::from(tcp_rails) * (socket_bytes(settings) + TcpRail::connection_bytes(&tcp));
        let queues = u64::from(verbs_rails) * verbs.connection_bytes(of);
        // With all channels in use: as many as possible to peers that cost more.
        let beside = if settings.tcp_beside_shm { sockets + queues } else { 0 };
        let near_bytes = ring + shm.connection_bytes() + beside;
        let near_connected = if near_bytes > sockets + queues { near.min(others) } else { others - far.min(others) };
        let far_connected = far.min(others - near_connected);
        let over_tcp = far_connected + if settings.tcp_beside_shm { near_connected } else { 0 };

        let (state, pool) = (config.memory_bytes()? as u64, config.pool_bytes()?);
        let idle = u64::from(size) * sizes(&config).idle_peer as u64;
        let channels = u64::from(config.channels_max) * sizes(&config).connected_peer as u64;
        let blocks = u64::from(config.channels_max) * u64::from(config.blocks_per_peer) * u64::from(config.block_bytes);
        let known = u64::from(size) * u64::from(tcp_rails) * TcpRail::PEER_BYTES + near * shm.peer_bytes();
        let item = |what, bytes, settings| MemoryItem { what, bytes, settings };
        let buffers = u64::from(verbs_rails) * verbs.memory_bytes();
        let all = [
            item("processes of the job", idle + known, "peers"),
            item("channels", channels.min(state - idle.min(state)), "channels, unexpected, requests"),
            item("operations and packets", state.saturating_sub(idle + channels), "operations, bulk, windows"),
            item("blocks for unexpected payload", blocks, "blocks, channels"),
            item("copies until acknowledged", pool - blocks, "retained, eager_max"),
            item("rings of shared memory", near_connected * ring, "shm_slots, shm_segment, channels"),
            item("connections of shared memory", near_connected * shm.connection_bytes(), "channels"),
            item(
                "socket buffers in the kernel",
                over_tcp * u64::from(tcp_rails) * socket_bytes(settings),
                "tcp_sndbuf, tcp_rcvbuf, channels",
            ),
            item(
                "connections of TCP",
                u64::from(tcp_rails) * (over_tcp * TcpRail::connection_bytes(&tcp) + TcpRail::RAIL_BYTES),
                "channels",
            ),
            item("buffers of verbs rails", buffers, "verbs_receives, verbs_sends, verbs_segment"),
            item(
                known_provider.map_or(UNKNOWN_QUEUES, |_| QUEUES),
                over_tcp * queues + u64::from(verbs_rails) * verbs.shared_queue_bytes(of),
                "channels, posts, verbs_inline",
            ),
        ];
        Ok(MemoryNeed { items: all.into_iter().filter(|item| item.bytes > 0).collect() })
    }

    /// Bytes of all items.
    pub fn bytes(&self) -> u64 {
        self.items.iter().map(|item| item.bytes).fold(0, u64::saturating_add)
    }

    /// The item that takes most.
    pub fn largest(&self) -> Option<MemoryItem> {
        self.items.iter().copied().max_by_key(|item| item.bytes)
    }

    /// Refuses what exceeds `budget` bytes; 0: no limit.
    ///
    /// # Errors
    /// [`OverBudget`].
    pub fn check(&self, budget: u64) -> Result<(), OverBudget> {
        match self.largest() {
            Some(largest) if budget > 0 && self.bytes() > budget => {
                Err(OverBudget { need: self.bytes(), budget, largest })
            }
            _ => Ok(()),
        }
    }
}

/// Whose queues count: those of the named devices, else of all, where a connection takes most; `None`: of no
/// listed provider.
fn provider(settings: &Settings, verbs: &VerbsOptions) -> Option<Provider> {
    let named = settings.verbs_devices.iter().filter_map(|name| name.split('/').next()).map(str::to_owned);
    let devices: Vec<String> = match settings.verbs_devices.is_empty() {
        true => Provider::devices(),
        false => named.collect(),
    };
    let all = devices.iter().map(|device| Provider::of_device(device)).collect::<Option<Vec<_>>>()?;
    all.into_iter().max_by_key(|provider| verbs.connection_bytes(*provider))
}

/// What the kernel may hold for one TCP connection: twice what is set (`SO_SNDBUF` in socket(7)), else as
/// much as it may grow to (`tcp_wmem`, `tcp_rmem` in tcp(7)).
fn socket_bytes(settings: &Settings) -> u64 {
    let most = |set: u32, file: &str, otherwise: u64| match set {
        0 => {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            text.split_whitespace().nth(2).and_then(|word| word.parse().ok()).unwrap_or(otherwise)
        }
        bytes => 2 * u64::from(bytes),
    };
    most(settings.tcp_sndbuf, "/proc/sys/net/ipv4/tcp_wmem", 4 << 20)
        + most(settings.tcp_rcvbuf, "/proc/sys/net/ipv4/tcp_rmem", 6 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: JobShape = JobShape { size: 4096, per_node: 8, tcp_rails: 1, verbs_rails: 0 };

    fn settings() -> Settings {
        let mut settings = Settings::default();
        (settings.tcp_sndbuf, settings.tcp_rcvbuf) = (16 * 1024, 32 * 1024);
        settings
    }

    fn bytes_of(need: &MemoryNeed, what: &str) -> u64 {
        need.items.iter().find(|item| item.what == what).map_or(0, |item| item.bytes)
    }

    #[test]
    fn the_core_is_counted_exactly_and_rings_by_neighbour() {
        let need = MemoryNeed::of(&settings(), SHAPE).unwrap();
        let config = Config { rails_max: 3, ..settings().to_core_config(PeerId(0), SHAPE.size) };
        let [known, own] = [TcpRail::PEER_BYTES * 4096, 7 * rails::shm_options(&settings(), 4096).peer_bytes()];
        let core = ["processes of the job", "channels", "operations and packets", "blocks for unexpected payload"]
            .into_iter()
            .chain(["copies until acknowledged"]);
        let core: u64 = core.map(|what| bytes_of(&need, what)).sum();
        assert_eq!(core - known - own, config.memory_bytes().unwrap() as u64 + config.pool_bytes().unwrap());
        assert_eq!(bytes_of(&need, "rings of shared memory"), 7 * 594_944);
        // Of 64 channels seven are to neighbours.
        assert_eq!(bytes_of(&need, "socket buffers in the kernel"), (64 - 7) * 2 * 48 * 1024);
        assert_eq!(need.bytes(), need.items.iter().map(|item| item.bytes).sum());
    }

    #[test]
    fn a_job_of_one_host_has_no_sockets_and_a_spread_one_no_rings() {
        let one_host = MemoryNeed::of(&settings(), JobShape { size: 8, ..SHAPE }).unwrap();
        assert_eq!(bytes_of(&one_host, "socket buffers in the kernel"), 0);
        assert_eq!(bytes_of(&one_host, "rings of shared memory"), 7 * 594_944);
        let spread = MemoryNeed::of(&settings(), JobShape { per_node: 1, ..SHAPE }).unwrap();
        assert_eq!(bytes_of(&spread, "rings of shared memory"), 0);
        // More neighbours than channels.
        let wide = MemoryNeed::of(&settings(), JobShape { per_node: 4096, ..SHAPE }).unwrap();
        assert_eq!(bytes_of(&wide, "rings of shared memory"), 64 * 594_944);
        let mut both = settings();
        both.tcp_beside_shm = true;
        let both = MemoryNeed::of(&both, JobShape { size: 8, ..SHAPE }).unwrap();
        assert_eq!(bytes_of(&both, "socket buffers in the kernel"), 7 * 2 * 48 * 1024);
    }

    #[test]
    fn verbs_rails_count_the_queues_of_the_device() {
        let shape = JobShape { tcp_rails: 0, verbs_rails: 1, ..SHAPE };
        let need = MemoryNeed::of(&settings(), shape).unwrap();
        let options = verbs::sized(&settings(), SHAPE.size, 0);
        let provider = provider(&settings(), &options);
        let (what, of) = provider.map_or((UNKNOWN_QUEUES, Provider::Mlx5), |of| (QUEUES, of));
        let queues = bytes_of(&need, what);
        assert_eq!(queues, 57 * options.connection_bytes(of) + options.shared_queue_bytes(of));
        assert_eq!(bytes_of(&need, "buffers of verbs rails"), options.memory_bytes());
    }

    /// 32,768 processes, 256 of them connected.
    #[test]
    fn presets_take_what_they_promise() {
        let need = |preset: &str, per_node, tcp_rails, verbs_rails| {
            let mut settings = Settings::default();
            settings.set("preset", preset).unwrap();
            assert_eq!(settings.core.channels_max, 256);
            // Not this machine's, which may have larger queues.
            settings.verbs_devices = vec!["none".to_owned()];
            MemoryNeed::of(&settings, JobShape { size: 32_768, per_node, tcp_rails, verbs_rails }).unwrap().bytes()
        };
        const MB: u64 = 1_000_000;
        let all = need("compact", 8, 1, 1);
        assert!(all <= 54 * MB, "{all}");
        for (tcp, verbs) in [(1, 0), (0, 1)] {
            let (compact, lean) = (need("compact", 16, tcp, verbs), need("lean", 16, tcp, verbs));
            assert!(compact <= 40 * MB && lean <= 26 * MB, "TCP {tcp}, verbs {verbs}: {compact} {lean}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_largest_item_and_its_setting() {
        let need = MemoryNeed::of(&settings(), SHAPE).unwrap();
        assert_eq!(need.check(0), Ok(()));
        assert_eq!(need.check(need.bytes()), Ok(()));
        let refused = need.check(need.bytes() - 1).unwrap_err();
        assert_eq!((refused.need, refused.largest), (need.bytes(), need.largest().unwrap()));
        let message = refused.to_string();
        assert!(message.contains(refused.largest.what) && message.contains(refused.largest.settings), "{message}");
    }
}
