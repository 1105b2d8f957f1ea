//! Sizes that `ARCHITECTURE.md` states, full tables, bad configurations.

use super::*;
use crate::config::ConfigError;

/// The figures of `ARCHITECTURE.md`, "What it costs".
#[test]
fn sizes_are_what_the_architecture_says() {
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
    for (ranks, channels) in [(64, 64), (4096, 64), (65_536, 512)] {
        let config = Config { channels_max: channels, ..Config::new(PeerId(0), ranks) };
        let (state, pool) = (config.memory_bytes().unwrap(), config.pool_bytes().unwrap());
        let row = std::format!("| {ranks} ranks, {channels} active peers | {state} | {pool} |");
        assert!(architecture.contains(&row), "ARCHITECTURE.md lacks the row: {row}");
    }
    assert!(sizes.idle_peer <= 16);
}

/// The region's size is exact: that many bytes do, one less doesn't; and peers cost what they are said to.
#[test]
fn memory_is_known_before_start() {
    let config = small();
    let bytes = config.memory_bytes().unwrap();
    let mut region = Region::of(&config);
    assert!(Endpoint::new(config, &[TCP], region.for_test(&config), Time(0)).is_ok());
    let short = &mut region.for_test(&config)[..bytes - 1];
    let Err(StartError::Region(error)) = Endpoint::new(config, &[TCP], short, Time(0)) else { panic!("started") };
    assert!(matches!(error, crate::store::ArenaError::TooSmall { given, .. } if given == bytes - 1));
    let more = Config { peers_max: config.peers_max + 1000, ..config };
    assert_eq!(more.memory_bytes().unwrap() - bytes, 1000 * sizes(&config).idle_peer);
}

#[test]
fn bad_configurations_name_the_field() {
    for (config, field) in [
        (Config { window: 100, ..small() }, "window"),
        (Config { rails_max: 65, ..small() }, "rails_max"),
        (Config { eager_bytes_max: 64 * 64 + 1, ..small() }, "eager_bytes_max"),
        (Config { rank: PeerId(4), ..small() }, "rank"),
        (Config { ack_packets: 33, ..small() }, "ack_packets"),
    ] {
        assert!(matches!(config.memory_bytes(), Err(ConfigError { field: f, .. }) if f == field), "{field}");
        assert_eq!(config.pool_bytes().map_err(|e| e.field), Err(field));
    }
}

/// Full is a value, and what is full empties again.
#[test]
fn full_tables_refuse_and_recover() {
    let config = Config { operations_max: 8, retained_max: 2, channels_max: 2, ..small() };
    let mut regions = regions(&config, 3);
    let mut world = World::new(&mut regions, &config, &[TCP], &[100_000], 1);
    let send = |peer| Send { peer: PeerId(peer), segments: &[], ..Send::default() };
    for _ in 0..2 {
        world.nodes[0].endpoint.inject(Time(0), &send(1), 10).unwrap();
    }
    assert_eq!(world.nodes[0].endpoint.inject(Time(0), &send(1), 10), Err(SubmitError::Full(Full::Retained)));
    world.nodes[0].endpoint.send(Time(0), &send(2)).unwrap();
    assert_eq!(world.nodes[0].endpoint.send(Time(0), &send(0)), Err(SubmitError::Full(Full::Channels)));
    while world.nodes[0].endpoint.send(Time(0), &send(1)).is_ok() {}
    assert_eq!(world.nodes[0].endpoint.send(Time(0), &send(1)), Err(SubmitError::Full(Full::Operations)));
    world.settle();
    world.nodes[0].endpoint.inject(Time(world.now), &send(1), 10).unwrap();
    let wrong = Send { peer: PeerId(77), ..Send::default() };
    assert_eq!(world.nodes[0].endpoint.send(Time(0), &wrong), Err(SubmitError::UnknownPeer(PeerId(77))));
    let pieces = [Seg::default(); 5];
    let wrong = Send { peer: PeerId(1), segments: &pieces, ..Send::default() };
    assert_eq!(world.nodes[0].endpoint.send(Time(0), &wrong), Err(SubmitError::Segments { given: 5, max: 4 }));
}

/// Counters count instead of events; errors are told all the same.
#[test]
fn counters_and_silence() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut world = World::new(&mut regions, &config, &[TCP], &[10_000], 1);
    let recv = |notify, n| Recv { notify, cookie: Cookie(n), ..Recv::default() };
    let both = [Notify::Counter(CounterId(1)), Notify::Both(CounterId(1)), Notify::Silent, Notify::Event];
    for (n, notify) in both.into_iter().enumerate() {
        world.nodes[1].endpoint.recv(Time(0), &recv(notify, n as u64)).unwrap();
        let send = Send { peer: PeerId(1), notify, segments: &seg(0, 10 * (n as u64 / 3)), ..Send::default() };
        world.nodes[0].endpoint.send(Time(0), &send).unwrap();
    }
    let unknown = Recv { notify: Notify::Counter(CounterId(4)), ..Recv::default() };
    assert_eq!(world.nodes[1].endpoint.recv(Time(0), &unknown), Err(SubmitError::UnknownCounter(CounterId(4))));
    world.settle();
    assert_eq!(world.nodes[1].endpoint.counter(CounterId(1)), Some(2));
    assert_eq!(world.nodes[0].endpoint.counter(CounterId(1)), Some(2));
    let got = completions(&mut world, 1);
    assert_eq!(got.keys().copied().collect::<Vec<_>>(), [1, 3]);
    assert!(matches!(got[&3], Err(OpError::Truncated { .. })));
}

/// Tables show what waits to be given back, and their capacities are what the configuration says.
#[test]
fn usage_tells_of_what_is_to_be_given_back() {
    let config = small();
    let mut regions = regions(&config, 1);
    let mut region = regions.pop().unwrap();
    let mut endpoint = Endpoint::new(config, &[TCP], region.for_test(&config), Time(0)).unwrap();
    let idle = endpoint.usage();
    assert!(idle.tables().iter().all(|(_, table)| table.used == 0 && table.capacity > 0), "{idle:?}");
    assert_eq!((idle.operations.capacity, idle.packets.capacity), (config.operations_max, config.packets_max));
    assert_eq!(idle.unacknowledged.capacity, 2 * config.channels_max * config.window);

    endpoint.handle_rail_event(Time(0), RailEvent::Up { peer: PeerId(3), rail: RailId(0) });
    let key = crate::wire::RemoteKey { rail: 0, connection: 0, key: 1, address: 2 };
    endpoint.handle_registered(Time(0), OpId(Key { index: 1, generation: 1 }), RailId(0), Ok(key));
    let busy = endpoint.usage();
    assert_eq!((busy.refused.used, busy.late_registrations.used), (1, 1));
    assert_eq!(busy.leak(), Some(("late_registrations", busy.late_registrations)));

    let mut actions = heapless::Vec::new();
    while endpoint.poll_actions(Time(0), &mut actions) > 0 {}
    assert_eq!(endpoint.usage(), idle);
}
