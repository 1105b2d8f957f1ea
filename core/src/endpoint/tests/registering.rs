//! The cost of registering memory, and its consequences (P-15).

use super::lone::{Lone, PEER_RAIL};
use super::timed::{MB, Timed, line, sorts};
use super::*;
use crate::wire::{Body, Cts, Fence, MessageHead, Resume, Rts};

fn config() -> Config {
    Config { striping: Policy::Balanced, multiplex: Policy::Balanced, window: 256, ..small() }
}

/// Expensive enough that a tenth of a message is sooner moved than registered: 1 us a page.
const DEAR: (u64, u64) = (3_000, 1_000);

const LEN: u64 = 4 << 20;

/// A fast rail and one of a tenth of its rate, both of which register before peers can write or read.
fn unlike<'m>(regions: &'m mut [Region], config: &Config, facts: RailFacts) -> Timed<'m> {
    // The process with the memory moves nothing and measures nothing; rails are not sampled at start here.
    let rail = |rate| RailFacts { segment_bytes_max: 64 * 1024, posts_max: 64, bytes_per_second: rate * MB, ..facts };
    let mut timed = Timed::new(regions, config, &[rail(800), rail(80)], &[line(800), line(80)]);
    timed.registering = vec![(0, 0), DEAR];
    timed
}

/// P-15: no registration is requested of a rail whose part would not pay for it, and it takes no part; now
/// and then one is requested, at a cost that was saved up for.
#[test]
fn rail_whose_registration_costs_too_much_is_not_used() {
    let [_, write, read] = sorts();
    for facts in [write, read] {
        let config = config();
        let mut regions = regions(&config, 2);
        let mut timed = unlike(&mut regions, &config, facts);
        timed.keeps = false;
        timed.stream(8, 1, LEN);
        timed.made.clear();
        timed.posts.clear();
        let took = timed.stream(128, 1, LEN);
        let alone = 128 * LEN * 1_000_000_000 / (800 * MB);
        assert!(took < alone + alone / 50, "{took} ns, alone {alone}");
        let costly_rails = timed.made.iter().filter(|rail| rail.0 == 1).count();
        assert!((1..=16).contains(&costly_rails), "it registers now and then: {costly_rails} times");
        let route = timed.endpoints[0].explain(Time(timed.now), PeerId(1), MessageClass::Large, LEN).unwrap();
        let [_, share] = &route.shares[..] else { panic!("{route:?}") };
        if facts.caps.read {
            assert_eq!((share.bytes, share.verdict), (0, Verdict::RegistrationDoesNotPay));
            assert!(share.registering.0.abs_diff(DEAR.0 + LEN / 4096 * DEAR.1) < 50_000, "{share:?}");
        }
        assert_eq!(timed.endpoints.iter().find_map(|endpoint| endpoint.usage().leak()), None);
    }
}

/// P-15: memory that stays registered costs nothing, and every rail takes part.
#[test]
fn memory_that_is_used_again_is_worth_every_rail() {
    let [_, write, read] = sorts();
    for facts in [write, read] {
        let config = config();
        let mut regions = regions(&config, 2);
        let mut timed = unlike(&mut regions, &config, facts);
        // New memory first, then the same again and again.
        timed.keeps = false;
        timed.stream(8, 1, LEN);
        timed.keeps = true;
        timed.stream(32, 1, LEN);
        timed.posts.clear();
        let took = timed.stream(32, 1, LEN);
        let both = 32 * LEN * 1_000_000_000 / (880 * MB);
        assert!(took < both + both / 20, "{took} ns, both together {both}");
        assert!(timed.carried()[1] > LEN);
    }
}

/// P-15, F-7: if no rail with a key is left, the receiver registers with those that it had left out, and
/// sends their keys in the next epoch.
#[test]
fn excluded_rails_carry_the_rest_when_no_key_is_left() {
    let config = config();
    let facts = |rate| RailFacts { bytes_per_second: rate * MB, ..PUT };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[facts(800), facts(80)]);
    lone.endpoint.handle_registration_cost(RailId(1), Registration::Writable, 1 << 20, Nanos(10_000_000));
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.recv(1, 60_000);
    lone.feed(Body::Rts(Rts { head, message_bytes: 60_000, ..Rts::default() }), 0);
    // The operation, the round, the rails with keys; and it has come.
    let target = |lone: &mut Lone<'_>| {
        let cts = lone.sent().into_iter().find_map(|packet| match packet.body {
            Body::Cts(Cts { target, epoch, keys, .. }) => Some((packet.common.psn, target, epoch, keys)),
            _ => None,
        });
        let (psn, target, epoch, keys) = cts.expect("a CTS");
        lone.acks[1] = psn + 1;
        (target, epoch, keys.iter().map(|key| key.rail).collect::<Vec<_>>())
    };
    let (operation, epoch, keys) = target(&mut lone);
    assert_eq!((epoch, keys), (0, vec![0]));
    lone.feed_on(0, Body::Credit, 0, |_| {});
    let fault = RailEvent::Down { peer: PeerId(1), rail: RailId(0), fault: RailFault::TimedOut };
    lone.endpoint.handle_rail_event(Time(lone.now), fault);
    lone.sent();
    let fence =
        Fence { rail: PEER_RAIL, peer_rail: 0, connection: 1, peer_connection: 1, answer: true, ..Fence::default() };
    lone.feed_on(1, Body::Fence(fence), 0, |_| {});
    lone.feed_on(1, Body::Resume(Resume { target: operation, epoch: 1 }), 0, |_| {});
    let (_, epoch, keys) = target(&mut lone);
    assert_eq!((epoch, keys), (1, vec![0, 1]));
    // And no more of it is requested, however often.
    lone.feed_on(1, Body::Resume(Resume { target: operation, epoch: 2 }), 0, |_| {});
    let (_, epoch, keys) = target(&mut lone);
    assert_eq!((epoch, keys), (2, vec![0, 1]));
}
