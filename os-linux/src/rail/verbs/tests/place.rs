//! The address of a port, and the marks of its messages: tables of GIDs that change (V-19), partitions
//! (V-20).

use rerail_verbs::Gid;
use rerail_verbs::contract::AsyncEvent;

use super::*;

const NONE: Gid = Gid([0; 16]);
const DOWN: RailFault = RailFault::Device { code: libc::ENETDOWN };
const MOVED: RailFault = RailFault::Device { code: libc::ENETRESET };

fn local(last: u8) -> Gid {
    Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, last])
}

fn v4(last: u8) -> Gid {
    Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last])
}

/// Two rails on Ethernet, each with a link-local address and one of IPv4.
fn ethernet(options: &VerbsOptions) -> Pair {
    Pair::with(options, |rank, device| device.set_gids(&[local(rank as u8), v4(rank as u8), NONE, NONE]))
}

/// The first rail's table changes, and the device reports it.
fn change(pair: &mut Pair, gids: &[Gid]) {
    let device = pair.rails[0].device().unwrap();
    device.set_gids(gids);
    device.raise(AsyncEvent::GidChange(1));
    pair.poll();
}

/// The address that the first rail's connection uses.
fn route(pair: &Pair, rank: usize) -> (u8, Gid) {
    let route = pair.rails[rank].device().unwrap().address().unwrap().global.unwrap();
    (route.source_index, route.dgid)
}

fn connect(pair: &mut Pair) {
    pair.connect(0);
    pair.run_until_idle();
    // A side that still uses the old connection receives the call, and answers its repetition.
    pair.pass(options().resend_first);
    pair.run_until_idle();
    pair.assert_whole();
}

#[test]
fn removed_gid_is_replaced_by_the_next_best() {
    let mut pair = ethernet(&options());
    connect(&mut pair);
    assert_eq!((route(&pair, 0), route(&pair, 1)), ((1, v4(1)), (1, v4(0))));
    // A better one beside it changes nothing, nor does one that is not ours.
    change(&mut pair, &[local(0), v4(0), local(7), v4(8)]);
    pair.assert_whole();
    // The interface has another address.
    change(&mut pair, &[local(0), NONE, NONE, v4(9)]);
    assert_eq!((&pair.reported[0].down[..], pair.reported[0].moved), (&[MOVED][..], 1));
    assert!(pair.rails[0].address().ends_with("0000000000000000ffffc0000209"), "{}", pair.rails[0].address());
    pair.run_until_idle();
    connect(&mut pair);
    assert_eq!((route(&pair, 0), route(&pair, 1)), ((3, v4(1)), (1, v4(9))));
    // The same address at another index: nothing to announce, but queue pairs name the index.
    change(&mut pair, &[local(0), NONE, v4(9), NONE]);
    assert_eq!((pair.reported[0].down.len(), pair.reported[0].moved), (2, 1));
    pair.run_until_idle();
    connect(&mut pair);
    assert_eq!((route(&pair, 0), route(&pair, 1)), ((2, v4(1)), (1, v4(9))));
}

#[test]
fn a_port_without_a_gid_is_down_until_it_has_one() {
    let mut pair = ethernet(&options());
    connect(&mut pair);
    change(&mut pair, &[NONE; 4]);
    assert!(pair.reported[0].standing, "while the grace lasts");
    pair.pass(options().port_grace);
    assert_eq!(pair.reported[0].down, [DOWN]);
    pair.connect(0);
    pair.poll();
    assert_eq!(pair.reported[0].down, [DOWN, DOWN]);
    change(&mut pair, &[local(0), NONE, v4(0), NONE]);
    assert_eq!(pair.reported[0].backs, 1);
    pair.run_until_idle();
    connect(&mut pair);
    assert_eq!(route(&pair, 0), (2, v4(1)));
}

#[test]
fn a_gid_that_was_named_stays_the_one() {
    let mut pair = ethernet(&VerbsOptions { gid_index: Some(1), ..options() });
    connect(&mut pair);
    change(&mut pair, &[local(0), NONE, v4(0), NONE]);
    pair.pass(options().port_grace);
    assert_eq!(pair.reported[0].down, [DOWN]);
    // A GID that appears at its index later is used.
    change(&mut pair, &[local(0), v4(7), v4(0), NONE]);
    pair.run_until_idle();
    connect(&mut pair);
    assert_eq!((route(&pair, 0), route(&pair, 1)), ((1, v4(1)), (1, v4(7))));
}

/// V-11: on InfiniBand, where a port takes nothing without a global route, it is addressed by its GID too.
#[test]
fn a_global_port_without_its_gid_is_down_and_with_another_is_elsewhere() {
    let mut pair = Pair::with(&options(), |rank, device| {
        device.set_gids(&[local(rank as u8), NONE]);
        device.be_global_infiniband();
    });
    connect(&mut pair);
    assert_eq!((route(&pair, 0), route(&pair, 1)), ((0, local(1)), (0, local(0))));
    change(&mut pair, &[local(7), NONE]);
    assert_eq!((&pair.reported[0].down[..], pair.reported[0].moved), (&[MOVED][..], 1));
    pair.run_until_idle();
    connect(&mut pair);
    assert_eq!((route(&pair, 0), route(&pair, 1)), ((0, local(1)), (0, local(7))));
    change(&mut pair, &[NONE, NONE]);
    assert!(pair.reported[0].standing, "while the grace lasts");
    pair.pass(options().port_grace);
    assert_eq!(pair.reported[0].down, [MOVED, DOWN]);
    change(&mut pair, &[local(7), NONE]);
    pair.run_until_idle();
    connect(&mut pair);
}

/// V-20: without an event for a partition that has moved, the next call finds it.
#[test]
fn moved_partition_without_an_event_is_found_before_a_dial() {
    let mut pair = Pair::new();
    connect(&mut pair);
    let partition = |pair: &Pair| (pair.rails[0].port.partition.index, pair.rails[0].port.partition.key);
    assert_eq!(partition(&pair), (0, 0xffff));
    pair.rails[0].device().unwrap().set_pkeys(&[0x7fff, 0xffff]);
    pair.rails[0].abort(PeerId(1));
    pair.pass(Nanos::from_millis(10));
    assert_eq!(partition(&pair), (0, 0xffff));
    pair.connect(0);
    assert_eq!(partition(&pair), (1, 0xffff));
}

/// A device that is gone has no handles any more, not even those of pending messages.
#[test]
fn removed_device_leaves_no_handles() {
    let mut pair = Pair::new();
    pair.connect(0);
    let held = pair.rails[0].usage();
    assert_eq!((held.handles, held.datagrams, held.connections), (1, 1, 1));
    pair.rails[0].device().unwrap().raise(AsyncEvent::DeviceFatal);
    pair.poll();
    assert!(pair.rails[0].device().is_none());
    let held = pair.rails[0].usage();
    assert_eq!((held.handles, held.datagrams, held.connections), (0, 0, 0));
}

/// Ethernet has eight priorities, InfiniBand sixteen service levels.
#[test]
fn a_service_level_that_ethernet_does_not_have_is_named() {
    let open = |service_level, gids: &[Gid]| {
        let device = FakeDevice::new(&SharedWire::default(), 16);
        device.set_gids(gids);
        let identity = Identity { credentials: credentials(0), job: 5, me: PeerId(0), secret: Secret::new([9; 32]) };
        VerbsRail::open(device, 1, VerbsOptions { service_level, ..options() }, identity).map(drop)
    };
    assert_eq!((open(15, &[]), open(7, &[v4(0)])), (Ok(()), Ok(())));
    let error = VerbsError::Option { field: "service_level", value: 8, min: 0, max: 7 };
    assert_eq!(open(8, &[v4(0)]), Err(error));
}

/// V-12: a device that is opened again may have another table.
#[test]
fn reopened_device_selects_its_gid_again() {
    for (gids, found, moves) in
        [([local(0), v4(9), NONE, NONE], (1, v4(9)), 1), ([local(0), v4(9), NONE, v4(0)], (3, v4(0)), 0)]
    {
        let mut pair = ethernet(&options());
        let wire = pair.wire.clone();
        let [rail, other] = pair.rails;
        let reopen = move || {
            let device = FakeDevice::new(&wire, 16);
            device.set_gids(&gids);
            Ok(device)
        };
        pair.rails = [rail.reopen_with(Box::new(reopen)), other];
        connect(&mut pair);
        pair.rails[0].device().unwrap().raise(AsyncEvent::DeviceFatal);
        pair.poll();
        pair.pass(options().reopen_first);
        assert_eq!((pair.reported[0].moved, pair.reported[0].backs), (moves, 1));
        connect(&mut pair);
        let known = pair.rails[0].device().unwrap().address().unwrap().global.unwrap();
        assert_eq!((known.source_index, pair.rails[0].port.address.gid), found);
    }
}

#[test]
fn a_port_without_any_gid_is_named_when_a_rail_is_opened() {
    for (gids, named, is_infiniband) in
        [([NONE; 2], None, false), ([v4(1), NONE], Some(1), false), ([NONE; 2], None, true)]
    {
        let device = FakeDevice::new(&SharedWire::default(), 16);
        device.set_gids(&gids);
        if is_infiniband {
            device.be_global_infiniband();
        }
        let identity = Identity { credentials: credentials(0), job: 5, me: PeerId(0), secret: Secret::new([9; 32]) };
        let error = VerbsRail::open(device, 1, VerbsOptions { gid_index: named, ..options() }, identity).unwrap_err();
        assert_eq!(error, VerbsError::NoGid { port: 1 });
    }
}

/// V-11: thousands of calls at once are no thousands of questions to the device.
#[test]
fn simultaneous_dials_query_the_port_once() {
    let mut pair = Pair::new();
    let requested = |pair: &Pair| pair.rails[0].device().unwrap().requested();
    pair.now = Time(1_000_000_000);
    let before = requested(&pair);
    for _ in 0..10 {
        pair.connect(0);
        pair.rails[0].abort(PeerId(1));
        pair.pass(Nanos::from_micros(999));
    }
    assert_eq!(requested(&pair), before + 1);
    pair.pass(Nanos::from_millis(1));
    pair.connect(0);
    assert_eq!(requested(&pair), before + 2);
    pair.rails[0].abort(PeerId(1));
    pair.poll();
    assert_eq!(pair.rails[0].device().unwrap().handles(), 0);
}

/// V-20: the first key of full membership, or the requested one.
#[test]
fn a_rail_is_in_the_first_partition_that_it_is_a_full_member_of() {
    let open = |keys: &[u16], pkey, gids: &[Gid]| {
        let device = FakeDevice::new(&SharedWire::default(), 16);
        device.set_pkeys(keys);
        device.set_gids(gids);
        let identity = Identity { credentials: credentials(0), job: 5, me: PeerId(0), secret: Secret::new([9; 32]) };
        let rail = VerbsRail::open(device, 1, VerbsOptions { pkey, ..options() }, identity)?;
        Ok((rail.port.partition.index, rail.port.partition.key))
    };
    let none = |wanted, limited| Err(VerbsError::Partition { port: 1, wanted, limited });
    for (keys, wanted, found) in [
        (&[0xffff][..], None, Ok((0, 0xffff))),
        (&[0x7fff, 0x8000, 0, 0x8001, 0xffff], None, Ok((3, 0x8001))),
        (&[0x7fff, 0x0001], None, none(None, Some(0x7fff))),
        (&[0, 0x8000], None, none(None, None)),
        (&[0xffff, 0x8001, 0x0002], Some(0x8001), Ok((1, 0x8001))),
        (&[0xffff, 0x0002, 0x8002], Some(2), Ok((2, 0x8002))),
        (&[0xffff, 0x0002], Some(2), Ok((1, 0x0002))),
        (&[0xffff, 0x8001], Some(2), none(Some(2), None)),
    ] {
        assert_eq!(open(keys, wanted, &[]), found, "{keys:x?} {wanted:x?}");
    }
    // On Ethernet there is one only: rails of both sorts may have settings for InfiniBand's.
    assert_eq!(open(&[0x7fff], None, &[v4(0)]), Ok((0, 0)));
    assert_eq!(open(&[0xffff], Some(0x7fff), &[v4(0)]), Ok((0, 0)));
    assert_eq!(open(&[0xffff], Some(2), &[v4(0)]), Ok((0, 0)));
    let words = [(None, Some(0x7fff)), (None, None), (Some(2), None)]
        .map(|(wanted, limited)| VerbsError::Partition { port: 1, wanted, limited }.to_string());
    assert!(words[0].contains("limited") && words[0].contains("verbs_pkey=0x7fff"), "{words:?}");
    assert!(words[1].contains("no partition") && words[2].contains("0x0002 (verbs_pkey)"), "{words:?}");
}

/// Set-up messages and connections alike have the requested class.
#[test]
fn service_level_and_traffic_class_are_used_everywhere() {
    let options = VerbsOptions { service_level: 3, traffic_class: 104, ..options() };
    let mut pair = ethernet(&options);
    connect(&mut pair);
    for rail in &pair.rails {
        let device = rail.device().unwrap();
        let address_vectors = [vec![device.address().unwrap()], device.address_vectors()].concat();
        assert_eq!(address_vectors.len(), 2);
        assert!(
            address_vectors
                .iter()
                .all(|address_vector| (address_vector.service_level, address_vector.global.unwrap().traffic_class)
                    == (3, 104)),
            "{address_vectors:?}"
        );
    }
}
