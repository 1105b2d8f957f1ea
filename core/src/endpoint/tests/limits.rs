//! Sizes that `ARCHITECTURE.md` states, full tables, bad configurations.

use super::*;
use crate::api::config::{ConfigError, Policy};
use crate::endpoint::tables::{KeySet, Peer};
use crate::endpoint::timer::TIMERS;
use crate::fast::{Line, ShortCompletion};
use crate::op::{Message, Op, Packet, ShortRecord, WindowSlot};
use crate::paths::{Part, Path, PeerPaths, StripeSet};
use crate::peer::{Channel, Parked, Sub};
use crate::rail::plan::split::RailState;
use crate::rail::sched::Stripe;
use crate::seq::RecvWindow;
use crate::store::{Arena, Slot};
use crate::tag::{MatchConfig, Matcher};
use crate::wire::AddressText;
use proptest::prelude::*;

/// The figures of `ARCHITECTURE.md`, "What it costs".
#[test]
fn table_entry_sizes_match_the_architecture_document() {
    let architecture = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../ARCHITECTURE.md")).unwrap();
    let sizes = sizes(&Config::new(PeerId(0), 4096));
    for (what, bytes) in [
        ("an idle peer", sizes.idle_peer),
        ("a connected peer", sizes.connected_peer),
        ("an operation", sizes.operation),
        ("an unacknowledged packet", sizes.packet),
    ] {
        let row = std::format!("| {what} | {bytes} |");
        assert!(architecture.contains(&row), "ARCHITECTURE.md lacks the row: {row}");
    }
    // Beside 16 bytes, what a parked channel goes on with (K-5).
    assert!(sizes.idle_peer <= 16 + 128);
}

/// The region's size is exact: that many bytes do, one less doesn't; and peers cost the documented size.
#[test]
fn region_size_is_exact_and_known_before_start() {
    let config = small();
    let bytes = config.memory_bytes().unwrap();
    let mut region = Region::of(&config);
    assert!(Endpoint::new(config, &[TCP], region.take(&config), Time(0)).is_ok());
    let short = &mut region.take(&config)[..bytes - 1];
    let Err(StartError::Region(error)) = Endpoint::new(config, &[TCP], short, Time(0)) else { panic!("started") };
    assert!(matches!(error, crate::store::ArenaError::TooSmall { given, .. } if given == bytes - 1));
    let more = Config { peers_max: config.peers_max + 1000, ..config };
    assert_eq!(more.memory_bytes().unwrap() - bytes, 1000 * sizes(&config).idle_peer);
}

/// One more channel costs what is documented, but for the gaps that align the tables.
#[test]
fn connected_peer_is_the_marginal_cost_of_a_channel() {
    for (rails_max, requests_per_peer, window) in [(1, 1, 64), (2, 16, 256), (8, 16, 256), (64, 3, 1024)] {
        let config = Config { rails_max, requests_per_peer, window, ..Config::new(PeerId(0), 4096) };
        let bytes = |channels_max| with_channels(config, channels_max).memory_bytes().unwrap();
        let documented = sizes(&config).connected_peer;
        for channels in [2, 64, 65, 1000] {
            let more = bytes(channels + 1) - bytes(channels);
            assert!(more.abs_diff(documented) <= 128, "{channels} channels: {more}, documented {documented}");
        }
    }
}

fn with_channels(config: Config, channels_max: u32) -> Config {
    Config { channels_max, ..config }
}

#[test]
fn bad_configurations_name_the_field() {
    for (config, field) in [
        (Config { window: 100, ..small() }, "window"),
        (Config { rails_max: 65, ..small() }, "rails_max"),
        (Config { eager_bytes_max: 64 * 64 + 1, ..small() }, "eager_bytes_max"),
        (Config { rank: PeerId(4), ..small() }, "rank"),
        (Config { ack_packets: 33, ..small() }, "ack_packets"),
        (Config { block_bytes: 65, ..small() }, "block_bytes"),
        (Config { channels_max: 5, ..small() }, "channels_max"),
        (Config { channels_max: 1, ..small() }, "channels_max"),
        (Config { connect_timeout: Nanos(0), ..small() }, "connect_timeout"),
        (Config { redial_min: Nanos(0), ..small() }, "redial_min"),
        (Config { redial_max: Nanos(0), ..small() }, "redial_max"),
        (Config { multiplex: Policy::Even, ..small() }, "multiplex"),
        (Config { striping: Policy::RoundRobin, ..small() }, "striping"),
        (Config { blocks_per_peer: 16384, ..huge() }, "channels_max * blocks_per_peer"),
        (Config { unexpected_per_peer: 16384, ..huge() }, "channels_max * unexpected_per_peer"),
        (Config { rails_max: 64, channels_max: 1 << 20, window: 512, ..huge() }, "channels_max * window"),
        (Config { requests_per_peer: 1024, ..huge() }, "operations_max + 3 * channels_max * requests_per_peer"),
    ] {
        assert!(matches!(config.memory_bytes(), Err(ConfigError { field: f, .. }) if f == field), "{field}");
        assert_eq!(config.pool_bytes().map_err(|e| e.field), Err(field));
    }
}

fn huge() -> Config {
    Config { channels_max: 1 << 18, ..Config::new(PeerId(0), 1 << 20) }
}

#[test]
fn product_limit_error_lists_each_factor() {
    let error = Config { blocks_per_peer: 16384, ..huge() }.validate().unwrap_err();
    assert_eq!(
        std::format!("{error}"),
        "channels_max * blocks_per_peer is 4294967296 (channels_max is 262144, blocks_per_peer is 16384), allowed are 1 \
         to 268435456"
    );
}

/// A policy is only taken for what it decides (P-5), and the error contains its name.
#[test]
fn policy_is_accepted_only_where_it_applies() {
    for policy in Policy::ALL {
        let error = |config: Config| config.validate().map_err(|error| std::format!("{error}"));
        let choice = error(Config { multiplex: policy, ..small() });
        let cut = error(Config { striping: policy, ..small() });
        let name = policy.name();
        let refused = |field, does, what| {
            if does { Ok(()) } else { Err(std::format!("{field} is {name}; it must be a policy that {what}")) }
        };
        assert_eq!(choice, refused("multiplex", policy.chooses_rails(), "chooses rails"));
        assert_eq!(cut, refused("striping", policy.cuts(), "cuts messages"));
    }
}

/// What the tables take, added up in 128 bits: each begins on a multiple of its alignment.
#[derive(Default)]
struct Sum(u128);

impl Sum {
    fn take<T>(&mut self, count: u128) {
        self.0 = self.0.next_multiple_of(align_of::<T>() as u128) + count * size_of::<T>() as u128;
    }
}

/// State and payload pool, by the words of `Tables` and nothing of its arithmetic.
fn sizes_of(config: &Config) -> (u128, u128) {
    fn of(value: impl Into<u128>) -> u128 {
        value.into()
    }
    let c = config;
    let (channels, rails, bulk) = (of(c.channels_max), of(c.rails_max), of(c.bulk_max));
    let (messages, blocks) = (channels * of(c.unexpected_per_peer), channels * of(c.blocks_per_peer));
    let operations = of(c.operations_max) + 1 + 3 * channels * of(c.requests_per_peer);
    let mut sum = Sum::default();
    sum.take::<Peer>(of(c.peers_max));
    sum.take::<Parked>(of(c.peers_max));
    sum.take::<Slot<Channel>>(channels);
    sum.take::<Sub>(channels * rails);
    sum.take::<u32>(channels * 2 * of(c.window));
    sum.take::<u64>(channels * 2 * RecvWindow::words(c.window) as u128);
    sum.take::<u32>(channels * of(c.window));
    sum.take::<u32>(channels * of(TIMERS));
    sum.take::<u32>(channels * of(TIMERS));
    sum.take::<Time>(channels * of(TIMERS));
    sum.take::<Slot<Op>>(operations);
    sum.take::<Seg>(operations * of(c.segments_max));
    sum.take::<Slot<Packet>>(of(c.packets_max));
    sum.take::<Slot<Message>>(messages);
    sum.take::<u32>(blocks);
    sum.take::<u16>(blocks);
    sum.take::<(ShortRecord, u32)>(of(c.retained_max));
    sum.take::<AddressText>(rails);
    sum.take::<Slot<KeySet>>(bulk);
    sum.take::<Slot<WindowSlot>>(of(c.windows_max));
    sum.take::<u32>(of(c.windows_max));
    sum.take::<u64>(of(c.counters_max));
    // No table of the matcher is larger than one of its limits.
    let (posted_max, unexpected_max) = (c.operations_max, u32::try_from(messages).expect("a table's size"));
    let matcher = MatchConfig { posted_max, unexpected_max, buckets: c.match_buckets };
    sum.take::<Line>(0);
    sum.0 += Arena::bytes_of(|arena| Matcher::carve(arena, &matcher)).expect("less than the address space") as u128;
    sum.take::<Line>(channels);
    sum.take::<ShortCompletion>(of(c.operations_max.min(512).next_power_of_two()));
    sum.take::<Path>(channels * rails);
    sum.take::<PeerPaths>(channels);
    sum.take::<RailStats>(rails);
    sum.take::<RailState>(rails);
    sum.take::<Slot<StripeSet>>(bulk);
    sum.take::<Stripe>(bulk * rails);
    sum.take::<Part>(bulk * rails);
    let stride = of(c.eager_bytes_max).next_multiple_of(64);
    (sum.0, blocks * of(c.block_bytes) + of(c.retained_max) * stride)
}

/// Numbers of all magnitudes, those around powers of two oftener.
fn number(bits: u32) -> impl Strategy<Value = u64> {
    (0..=bits, any::<u64>(), 0..4u8).prop_map(move |(shift, noise, kind)| {
        let power = 1u64 << shift.min(63);
        let value = match kind {
            0 => power,
            1 => power - 1,
            2 => power | noise & (power - 1),
            _ => power.saturating_add(1),
        };
        value.min(if bits < 64 { (1 << bits) - 1 } else { u64::MAX })
    })
}

/// A process is one of its own peers: with a single channel, whichever of itself and another it talks to
/// first would keep the other out until `connect_timeout`, and lose it then. Alone it needs no other.
#[test]
fn single_channel_suffices_only_for_a_single_process() {
    for (peers, channels, is_enough) in [(1, 1, true), (2, 1, false), (2, 2, true), (1000, 1, false), (1000, 2, true)] {
        let config = Config { channels_max: channels, ..Config::new(PeerId(0), peers) };
        assert_eq!(config.validate().is_ok(), is_enough, "{channels} channels for {peers} peers");
    }
    let error = Config { channels_max: 1, ..Config::new(PeerId(0), 2) }.validate().unwrap_err();
    assert_eq!(std::format!("{error}"), "channels_max is 1, allowed are 2 to 2");
}

/// Configurations in which no value is out of its range by far: what is wrong with them is what they make
/// together.
fn any_config() -> impl Strategy<Value = Config> {
    let sizes = (number(28), number(21), 0..66u8, number(29), any::<u8>(), number(29), 6..16u32);
    let grants = (number(15), number(15), number(15), number(29), number(11));
    let others = (number(29), number(29), any::<u16>(), 0..29u32, any::<u32>());
    (sizes, grants, others).prop_map(|(sizes, grants, others)| {
        let (peers, channels, rails_max, operations, segments_max, packets, window) = sizes;
        let (unexpected, blocks, block_lines, retained, requests) = grants;
        let (bulk, windows, counters_max, buckets, eager) = others;
        let eager_room = blocks * block_lines * 64;
        Config {
            channels_max: channels.min(peers) as u32,
            rails_max,
            operations_max: operations as u32,
            segments_max,
            packets_max: packets as u32,
            window: 1 << window,
            unexpected_per_peer: unexpected as u16,
            blocks_per_peer: blocks as u16,
            block_bytes: block_lines as u32 * 64,
            eager_bytes_max: eager.min(u32::try_from(eager_room).unwrap_or(u32::MAX)),
            retained_max: retained as u32,
            requests_per_peer: requests as u16,
            bulk_max: bulk as u32,
            windows_max: windows as u32,
            counters_max,
            match_buckets: 1 << buckets,
            ..Config::new(PeerId(0), peers as u32)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Sizes are exact or an error, whatever the values: nothing wraps, nothing panics.
    #[test]
    fn sizes_are_exact_or_an_error(config in any_config()) {
        let (memory, pool) = (config.memory_bytes(), config.pool_bytes());
        if let Err(error) = config.validate() {
            prop_assert_eq!((memory, pool), (Err(error), Err(error)));
        } else {
            let (state, payload) = sizes_of(&config);
            prop_assert_eq!(memory.map(|bytes| bytes as u128).ok(), usize::try_from(state).ok().map(|_| state));
            prop_assert_eq!(pool.map(u128::from), Ok(payload));
        }
    }
}

/// Tables include entries that wait for release, and their capacities are those of the configuration.
#[test]
fn usage_includes_entries_waiting_for_release() {
    let config = small();
    let mut regions = regions(&config, 1);
    let mut region = regions.pop().unwrap();
    let mut endpoint = Endpoint::new(config, &[TCP], region.take(&config), Time(0)).unwrap();
    let idle = endpoint.usage();
    assert!(idle.tables().iter().all(|(_, table)| table.used == 0 && table.capacity > 0), "{idle:?}");
    assert_eq!((idle.operations.capacity, idle.packets.capacity), (config.operations_max + 1, config.packets_max));
    assert_eq!(idle.unacknowledged.capacity, 2 * config.channels_max * config.window);

    endpoint.handle_rail_event(Time(0), RailEvent::Up { peer: PeerId(3), rail: RailId(0) });
    let key = crate::wire::RemoteKey { rail: 0, connection: 0, key: 1, address: 2 };
    endpoint.handle_registered(OpId(Key { index: 1, generation: 1 }), RailId(0), Ok(key));
    let busy = endpoint.usage();
    assert_eq!((busy.refused.used, busy.late_registrations.used), (1, 1));
    assert_eq!(busy.leak(), Some(("late_registrations", busy.late_registrations)));

    let mut actions = heapless::Vec::new();
    while endpoint.poll_actions(Time(0), &mut actions) > 0 {}
    assert_eq!(endpoint.usage(), idle);
}
