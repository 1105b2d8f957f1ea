//! Subchannels with a pending address update, and rails dialled for a received one (F-12).

use super::addresses::{announced, config, dialled, down, text, up};
use super::lone::{Lone, PEER_RAIL};
use super::*;
use crate::wire::{Address, Body};

/// The rails with a pending address update; each of them, and no other, is checked again.
fn announcing_rails(lone: &mut Lone<'_>) -> u64 {
    let channel = lone.endpoint.t.channel_of(PeerId(1)).unwrap();
    lone.endpoint.t.channels.at(channel).work.addresses.0
}

/// F-12: an address is sent over rails that reach the peer and are up; when they have it nothing is pending,
/// and a rail does not announce itself.
#[test]
fn no_address_update_stays_pending() {
    let config = config();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    lone.endpoint.set_address(RailId(0), b"there:1").unwrap();
    assert_eq!((announcing_rails(&mut lone), lone.endpoint.is_active()), (0, false));

    let mut region = Region::of(&config);
    let mut lone = Lone::over(&mut region, &config, &[TCP; 3], 0b101);
    for rail in [0, 2] {
        lone.feed_on(rail, super::recovery::connect(rail, 1), 0, |_| {});
    }
    lone.sent();
    lone.endpoint.set_address(RailId(2), b"there:2").unwrap();
    assert_eq!(announcing_rails(&mut lone), 0b001, "rail 1 does not lead there");
    lone.endpoint.set_address(RailId(0), b"there:0").unwrap();
    assert_eq!(announcing_rails(&mut lone), 0b101);
    lone.busy = true;
    assert_eq!(announced(&mut lone), [(0, 2, text("there:2")), (2, 0, text("there:0"))]);
    assert_eq!(announcing_rails(&mut lone), 0);
}

/// F-12, L-3: when a connection ends before it has sent an address, the others still have it pending and send
/// it; the ended one has nothing pending.
#[test]
fn a_connection_that_ends_takes_no_address_along() {
    for ends in 0..3u8 {
        let config = config();
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP; 3]);
        // Each rail has a frame, and more updates are pending.
        lone.busy = true;
        let (one, two) = if ends == 2 { (0, 1) } else { (1 - ends, 2) };
        lone.endpoint.set_address(RailId(one), b"one").unwrap();
        lone.endpoint.set_address(RailId(ends), b"end").unwrap();
        assert_eq!(announced(&mut lone).len(), 3);
        lone.endpoint.set_address(RailId(two), b"two").unwrap();
        assert_eq!(announced(&mut lone), []);
        assert_eq!(announcing_rails(&mut lone), 0b111 & !(1 << two) | 1 << two & announcing_rails(&mut lone));
        down(&mut lone, ends);
        announced(&mut lone);
        assert_eq!(announcing_rails(&mut lone) >> ends & 1, 0, "rail {ends}");
        assert_eq!(announcing_rails(&mut lone) >> one & 1, 1, "rail {one} still has an address update to send");
        lone.busy = false;
        for id in core::mem::take(&mut lone.held) {
            lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
        }
        assert!(
            announced(&mut lone).contains(&(one, two, text("two"))),
            "rail {one} carries the address of rail {two}"
        );
        assert_eq!(announcing_rails(&mut lone), 0);
        up(&mut lone, ends, 2);
        let again = announced(&mut lone);
        assert_eq!(again, [(ends, one.min(two), again[0].2), (ends, one.max(two), again[1].2)], "all anew");
        assert_eq!(announcing_rails(&mut lone), 0);
    }
}

/// F-12, F-8: of rails with a pending redial the one whose new address has arrived is dialled at once,
/// whichever others wait, and the others are not.
#[test]
fn each_rail_that_waits_is_dialled_for_its_own_address() {
    for rail in 1..3 {
        let config = config();
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP; 3]);
        lone.now = 1;
        for _ in 0..2 {
            down(&mut lone, 1);
            down(&mut lone, 2);
            dialled(&mut lone);
        }
        lone.now += 1;
        assert_eq!(dialled(&mut lone), []);
        let address = Address { rail: PEER_RAIL + rail, text: text("there:1") };
        assert_eq!(lone.feed(Body::Address(address), 0), Arrival::Address { rail: RailId(rail) });
        assert_eq!(dialled(&mut lone), [RailId(rail)]);
        lone.now += config.redial_max.0;
        assert_eq!(dialled(&mut lone), [RailId(3 - rail)]);
    }
}
