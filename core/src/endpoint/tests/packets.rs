//! The contents of sent packets, their counters, and the timers that watch them.

use super::lone::{Lone, PEER_RAIL};
use super::recovery::{down, fence, fins, put_over_both, region};
use super::single_puts::{cts, put_over_one};
use super::*;
use crate::wire::{Body, MessageHead, Probe, RemoteKey, Rts};

fn eager() -> Body {
    Body::Eager(MessageHead { operation: 77, ..MessageHead::default() })
}

/// an acknowledgment that went along with a packet is not sent by itself later.
#[test]
fn an_acknowledgment_that_went_along_is_not_sent_again() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    lone.feed(eager(), 0);
    assert_eq!(lone.sent(), [], "it may wait");
    lone.send(1, 8);
    assert_eq!(lone.sent_one().common.ack_ordered, 1);
    lone.now += 100_000_000;
    lone.endpoint.handle_timeout(Time(lone.now));
    assert_eq!(lone.sent(), []);
}

/// neither an acknowledgment nor the FIN of a part demands that it is acknowledged at once.
#[test]
fn acks_and_partial_fins_request_no_acknowledgment() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[PUT, PUT]);
    lone.feed_on(0, eager(), 0, |common| common.ack_now = true);
    let ack = lone.sent_one();
    assert!(matches!(ack.body, Body::Ack(_)) && !ack.common.ack_now, "{ack:?}");
    let operation = put_over_both(&mut lone);
    lone.feed(cts(operation, 0, &[(0, 1), (1, 1)]), 0);
    let sent = lone.sent();
    assert_eq!(fins(&sent), [(0, 2), (0, 2)]);
    assert!(!sent.iter().any(|packet| packet.common.ack_now), "{sent:?}");
}

/// Packets are counted by rail, those without a number included.
#[test]
fn packets_are_counted_by_rail() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    lone.endpoint.set_policy(MessageClass::Small, Policy::named("round-robin").unwrap());
    (0..6).for_each(|n| lone.send(n, 10));
    for _ in 0..3 {
        lone.feed_on(0, eager(), 0, |common| common.ack_now = true);
        lone.sent();
    }
    for rail in 0..2 {
        let posts = lone.rails.iter().filter(|by| by.0 == rail).count() as u64;
        assert!(posts > 3);
        assert_eq!(lone.endpoint.rail_stats(RailId(rail)).map(|rail| rail.packets), Some(posts));
    }
}

/// G-9: where no probe is sent, a peer that has packets to acknowledge has all of `silence_max`.
#[test]
fn without_probes_silence_lasts_as_long_as_it_may() {
    let config = Config { probe_after: Nanos(0), silence_max: Nanos(5_000_000), ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    lone.now = 1000;
    lone.send(1, 10);
    lone.sent_one();
    assert_eq!(lone.endpoint.next_timeout(), Some(Time(5_001_000)));
}

/// Looks at the rails until there is nothing to look at.
fn run_until_idle(lone: &mut Lone<'_>) {
    for _ in 0..5 {
        lone.now += 5_000_000;
        lone.endpoint.handle_timeout(Time(lone.now));
        let sent = lone.sent();
        assert!(!sent.iter().any(|packet| matches!(packet.body, Body::Probe(_))), "{sent:?}");
    }
}

/// Whether a rail is probed in time.
fn is_probed(lone: &mut Lone<'_>, rail: u8) -> bool {
    lone.stuck = 0;
    (0..20).any(|_| {
        lone.now += 1_000_000;
        lone.endpoint.handle_timeout(Time(lone.now));
        lone.rails.clear();
        let sent = lone.sent();
        let is_probe = |body: &Body| matches!(body, Body::Probe(Probe { answer: false, .. }));
        sent.iter().zip(&lone.rails).any(|(packet, by)| is_probe(&packet.body) && by.0 == rail)
    })
}

/// F-11: whatever is handed to rails that had nothing to do is looked after: a packet, a write, a read, and a
/// packet that is repeated.
#[test]
fn every_post_is_covered_by_stall_detection() {
    let config = Config { stall_min: Nanos(4_000_000), ack_delay: Nanos(1_000_000_000), ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    run_until_idle(&mut lone);
    lone.stuck = 1;
    lone.send(1, 10);
    lone.sent_one();
    assert!(is_probed(&mut lone, 0), "a packet");

    let rail = RailFacts { posts_max: 2, ..PUT };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[rail, TCP]);
    let operation = put_over_one(&mut lone);
    lone.feed_on(1, Body::Credit, 0, |_| {});
    run_until_idle(&mut lone);
    lone.stuck = 1;
    lone.feed_on(1, cts(operation, 0, &[(0, 1)]), 0, |_| {});
    assert_eq!((lone.sent().len(), lone.transfers), (0, 1));
    assert!(is_probed(&mut lone, 0), "a write");

    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[GET]);
    run_until_idle(&mut lone);
    lone.stuck = 1;
    announced(&mut lone, 3000);
    assert_eq!((lone.sent().len(), lone.transfers), (0, 1));
    assert!(is_probed(&mut lone, 0), "a read");

    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP, TCP]);
    lone.endpoint.set_policy(MessageClass::Small, Policy::named("binding").unwrap());
    lone.rails.clear();
    lone.send(1, 10);
    lone.sent_one();
    let by = lone.rails[0].0;
    down(&mut lone, by, RailFault::TimedOut);
    run_until_idle(&mut lone);
    lone.feed_on(1 - by, Body::Fence(fence(by, true)), 0, |_| {});
    lone.sent_one();
    assert!(is_probed(&mut lone, 1 - by), "a packet that is repeated");
}

/// The peer announces a message that can be read over rail 0, and there is a receive.
fn announced(lone: &mut Lone<'_>, bytes: u64) {
    lone.recv(1, bytes);
    let key = RemoteKey { rail: PEER_RAIL, connection: 1, key: 7, address: 0 };
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.feed(Body::Rts(Rts { head, message_bytes: bytes, keys: [key].into_iter().collect() }), 0);
}

/// Where a rail both reads and carries packets, what a message took ends with its FIN's post, and not with
/// the read before it; from several of them it is known how long a read takes, and packets have their turn.
#[test]
fn a_read_takes_until_its_fin_is_out() {
    const BYTES: u64 = 16 << 10;
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[COPY]);
    lone.busy = true;
    let mut is_read = true;
    for n in 0..9 {
        announced(&mut lone, BYTES);
        let sent = lone.sent();
        is_read = sent.is_empty();
        assert_eq!(is_read, n < 8, "{sent:?}");
        // The read, and the FIN, which has it from then on.
        for took in [300, 700] {
            lone.now += took;
            let [id] = lone.held[..] else { panic!("one post at a time: {n}") };
            lone.held.clear();
            lone.endpoint.handle_completion(Time(lone.now), id, PostStatus::Done);
            lone.acks[1] += lone.sent().len() as u32;
            if !is_read {
                break;
            }
        }
        lone.completed();
    }
    assert!(!is_read);
    let (by, [read, packets]) = lone.endpoint.copying(PeerId(1), BYTES).unwrap();
    assert_eq!((by, packets), (CopyBy::Packets, 0));
    assert!((990..=1010).contains(&read), "{read}");
}
