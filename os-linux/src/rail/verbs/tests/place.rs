//! Where a port is, and what its messages are marked with: tables of GIDs that change (V-19), partitions (V-20).

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

/// The first rail's table changes, and the device tells.
fn change(pair: &mut Pair, gids: &[Gid]) {
    let device = pair.rails[0].device().unwrap();
    device.set_gids(gids);
    device.tell(AsyncEvent::GidChange(1));
    pair.poll();
}

/// What the first rail's connection goes by.
fn route(pair: &Pair, rank: usize) -> (u8, Gid) {
    let route = pair.rails[rank].device().unwrap().address().unwrap().global.unwrap();
    (route.source_index, route.dgid)
}

fn connect(pair: &mut Pair) {
    pair.connect(0);
    pair.settle();
    // Who still believes in what stood hears of the call, and answers when it is said again.
    pair.pass(options().resend_first);
    pair.settle();
    pair.assert_whole();
}

#[test]
fn a_gid_that_is_gone_is_replaced_by_the_next_best() {
    let mut pair = ethernet(&options());
    connect(&mut pair);
    assert_eq!((route(&pair, 0), route(&pair, 1)), ((1, v4(1)), (1, v4(0))));
    // A better one beside it changes nothing, nor does one that is not ours.
    change(&mut pair, &[local(0), v4(0), local(7), v4(8)]);
    pair.assert_whole();
    // The interface has another address.
    change(&mut pair, &[local(0), NONE, NONE, v4(9)]);
    assert_eq!((&pair.told[0].down[..], pair.told[0].moved), (&[MOVED][..], 1));
    assert!(pair.rails[0].address().ends_with("0000000000000000ffffc0000209"), "{}", pair.rails[0].address());
    pair.settle();
    connect(&mut pair);
    assert_eq!((route(&pair, 0), route(&pair, 1)), ((3, v4(1)), (1, v4(9))));
    // It is the same address at another place: no news for anybody, but queue pairs name the place.
    change(&mut pair, &[local(0), NONE, v4(9), NONE]);
    assert_eq!((pair.told[0].down.len(), pair.told[0].moved), (2, 1));
    pair.settle();
    connect(&mut pair);
    assert_eq!((route(&pair, 0), route(&pair, 1)), ((2, v4(1)), (1, v4(9))));
}

#[test]
fn a_port_without_a_gid_is_down_until_it_has_one() {
    let mut pair = ethernet(&options());
    connect(&mut pair);
    change(&mut pair, &[NONE; 4]);
    assert!(pair.told[0].standing, "while the grace lasts");
    pair.pass(options().port_grace);
    assert_eq!(pair.told[0].down, [DOWN]);
    pair.connect(0);
    pair.poll();
    assert_eq!(pair.told[0].down, [DOWN, DOWN]);
    change(&mut pair, &[local(0), NONE, v4(0), NONE]);
    assert_eq!(pair.told[0].backs, 1);
    pair.settle();
    connect(&mut pair);
    assert_eq!(route(&pair, 0), (2, v4(1)));
}

#[test]
fn a_gid_that_was_named_stays_the_one() {
    let mut pair = ethernet(&VerbsOptions { gid_index: Some(1), ..options() });
    connect(&mut pair);
    change(&mut pair, &[local(0), NONE, v4(0), NONE]);
    pair.pass(options().port_grace);
    assert_eq!(pair.told[0].down, [DOWN]);
    // What is at its place later is it.
    change(&mut pair, &[local(0), v4(7), v4(0), NONE]);
    pair.settle();
    connect(&mut pair);
    assert_eq!((route(&pair, 0), route(&pair, 1)), ((1, v4(1)), (1, v4(7))));
}

/// V-12: a device that is opened again may have another table.
#[test]
fn a_device_that_comes_back_has_its_gid_chosen_anew() {
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
        pair.rails = [rail.reopen_with(reopen), other];
        connect(&mut pair);
        pair.rails[0].device().unwrap().tell(AsyncEvent::DeviceFatal);
        pair.poll();
        pair.pass(options().reopen_first);
        assert_eq!((pair.told[0].moved, pair.told[0].backs), (moves, 1));
        connect(&mut pair);
        let known = pair.rails[0].device().unwrap().address().unwrap().global.unwrap();
        assert_eq!((known.source_index, pair.rails[0].port.address.gid), found);
    }
}

#[test]
fn a_port_without_any_gid_is_named_when_a_rail_is_opened() {
    for (gids, named) in [([NONE; 2], None), ([v4(1), NONE], Some(1))] {
        let device = FakeDevice::new(&SharedWire::default(), 16);
        device.set_gids(&gids);
        let identity = Identity { key: JobKey::new([7; 32]), job: 5, me: PeerId(0), secret: JobKey::new([9; 32]) };
        let error = VerbsRail::open(device, 1, VerbsOptions { gid_index: named, ..options() }, identity).unwrap_err();
        assert_eq!(error, VerbsError::NoGid { port: 1 });
    }
}

/// V-11: thousands of calls at once are no thousands of questions to the device.
#[test]
fn calls_that_come_together_ask_the_port_once() {
    let mut pair = Pair::new();
    let asked = |pair: &Pair| pair.rails[0].device().unwrap().asked();
    pair.now = Time(1_000_000_000);
    let before = asked(&pair);
    for _ in 0..10 {
        pair.connect(0);
        pair.rails[0].sever(PeerId(1));
        pair.pass(Nanos::from_micros(999));
    }
    assert_eq!(asked(&pair), before + 1);
    pair.pass(Nanos::from_millis(1));
    pair.connect(0);
    assert_eq!(asked(&pair), before + 2);
    pair.rails[0].sever(PeerId(1));
    pair.poll();
    assert_eq!(pair.rails[0].device().unwrap().handles(), 0);
}

/// V-20: the first key of full membership, or the one that was asked for.
#[test]
fn a_rail_is_in_the_first_partition_that_it_is_a_full_member_of() {
    let open = |keys: &[u16], pkey, gids: &[Gid]| {
        let device = FakeDevice::new(&SharedWire::default(), 16);
        device.set_pkeys(keys);
        device.set_gids(gids);
        let identity = Identity { key: JobKey::new([7; 32]), job: 5, me: PeerId(0), secret: JobKey::new([9; 32]) };
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
    // On Ethernet nobody asks, unless somebody wants to.
    assert_eq!(open(&[0x7fff], None, &[v4(0)]), Ok((0, 0)));
    assert_eq!(open(&[0xffff], Some(0x7fff), &[v4(0)]), Ok((0, 0xffff)));
    let words = [(None, Some(0x7fff)), (None, None), (Some(2), None)]
        .map(|(wanted, limited)| VerbsError::Partition { port: 1, wanted, limited }.to_string());
    assert!(words[0].contains("limited") && words[0].contains("verbs_pkey=0x7fff"), "{words:?}");
    assert!(words[1].contains("no partition") && words[2].contains("0x0002 (verbs_pkey)"), "{words:?}");
}

/// Set-up messages and connections alike are of the class that was asked for.
#[test]
fn everything_is_sent_with_the_level_and_the_class_that_were_asked_for() {
    let options = VerbsOptions { service_level: 3, traffic_class: 104, ..options() };
    let mut pair = ethernet(&options);
    connect(&mut pair);
    for rail in &pair.rails {
        let device = rail.device().unwrap();
        let ways = [vec![device.address().unwrap()], device.ways()].concat();
        assert_eq!(ways.len(), 2);
        assert!(ways.iter().all(|way| (way.service_level, way.global.unwrap().traffic_class) == (3, 104)), "{ways:?}");
    }
}
