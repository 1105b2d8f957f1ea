//! Two TCP rails carry one message together.

use rerail_core::endpoint::{MessageClass, Policy, RailState, RecvRequest, Selector, SendRequest};
use rerail_core::rail::RailKind;

use super::world::{Fabric, World, pattern, whole};

/// Bytes that each TCP rail of a rank has sent.
fn sent(world: &World, rank: usize) -> Vec<u64> {
    let rails = world.transports[rank].rails();
    rails.filter(|rail| rail.kind == RailKind::Tcp).map(|rail| rail.counters.bytes_sent).collect()
}

fn exchange(world: &mut World, bytes: usize) {
    let source = world.filled(0, bytes, 1);
    let target = world.empty(1, bytes);
    let peer = world.transports[1].rank();
    let recv = world.at(1).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, bytes))).unwrap();
    let send = world.at(0).send(&SendRequest::new(peer, &whole(source, bytes))).unwrap();
    world.complete(0, send).unwrap();
    assert_eq!(world.complete(1, recv).unwrap().bytes, bytes as u64);
    assert!(world.bytes(1, target) == pattern(bytes, 1));
}

/// The default policy depends on the measured speed of the rails: that is tested in virtual time.
#[test]
fn a_large_message_is_carried_by_both_rails() {
    const BYTES: usize = 4 << 20;
    let (mut world, _) = World::new(Fabric::TwoTcp);
    let peers = [world.transports[1].rank(), world.transports[0].rank()];
    for transport in &mut world.transports {
        transport.set_policy(MessageClass::Large, Policy::Even);
    }
    // The first message may find only one of the rails standing.
    exchange(&mut world, BYTES);
    let all_up = |world: &World| {
        world.transports.iter().zip(peers).all(|(transport, peer)| {
            let mut rails = transport.rails().filter(|rail| rail.kind == RailKind::Tcp);
            rails.all(|rail| {
                transport.endpoint().rail_health(peer, rail.id).is_some_and(|health| health.state == RailState::Up)
            })
        })
    };
    world.until("both rails stand at both ends", |world| all_up(world));
    let before = sent(&world, 0);
    exchange(&mut world, BYTES);
    let carried: Vec<u64> = sent(&world, 0).iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(carried.len(), 2);
    let half = BYTES as u64 / 2;
    assert!(carried.iter().all(|bytes| (half..half + half / 16).contains(bytes)), "{carried:?} of {BYTES} bytes");
}

#[test]
fn a_small_message_takes_one_rail() {
    let (mut world, _) = World::new(Fabric::TwoTcp);
    // Connection and first message, then only the second one counts.
    exchange(&mut world, 100);
    let before = sent(&world, 0);
    exchange(&mut world, 1000);
    let carried = sent(&world, 0).iter().zip(before).filter(|(after, before)| **after - before >= 1000).count();
    assert_eq!(carried, 1);
}
