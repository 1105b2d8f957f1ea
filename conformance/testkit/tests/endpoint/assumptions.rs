//! Situations in which wrong assumptions about several rails show: that a FIN is a formality, that a dead
//! rail is silent. Each is a mutant as well (`conformance/mutants/patches/assumptions.toml`).

use super::*;

/// A message of 40,000 bytes is cut in two; its receive lies behind it.
const LARGE: u64 = 40_000;

/// Two ranks with a large message under way from 0 to 1, cookie 1 on both sides.
fn pair<T>(rails: &[RailFacts], seed: u64, course: impl FnOnce(&mut Cluster<'_>) -> T) -> T {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, rails, &[2 * LARGE as usize], seed);
    // A fabric doesn't check whether memory still has its owner.
    cluster.faulty = true;
    fill(&mut cluster, 0, 0, LARGE, 1);
    let send = SendRequest { cookie: Cookie(1), segments: &seg(0, LARGE), ..SendRequest::new(PeerId(1), &[]) };
    cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
    let recv = RecvRequest {
        cookie: Cookie(1),
        segments: &seg(LARGE, LARGE),
        ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
    };
    cluster.nodes[1].endpoint.recv(Time(0), &recv).unwrap();
    course(&mut cluster)
}

/// One random thing happens.
fn step(cluster: &mut Cluster<'_>) {
    cluster.now += 100;
    let rank = cluster.rng.below(2) as usize;
    if cluster.nodes[rank].endpoint.next_timeout().is_some_and(|at| at.0 <= cluster.now) {
        cluster.nodes[rank].endpoint.handle_timeout(Time(cluster.now));
    }
    cluster.act(rank);
    let (from, rail) = (cluster.rng.below(2) as usize, cluster.rng.below(2) as usize);
    cluster.step_link(from, 1 - from, rail);
}

/// Steps until something is so; `false`: it never is.
fn until(cluster: &mut Cluster<'_>, mut is_so: impl FnMut(&mut Cluster<'_>) -> bool) -> bool {
    (0..100_000).any(|_| {
        step(cluster);
        is_so(cluster)
    })
}

fn has_completed(cluster: &Cluster<'_>, rank: usize) -> bool {
    cluster.nodes[rank].events.iter().any(|event| matches!(event, Event::Completed(done) if done.result.is_ok()))
}

/// When a receive by put completes, the last byte is in place.
#[test]
fn fin_arrives_after_its_writes() {
    for seed in 0..20 {
        pair(&[PUT, PUT], seed, |cluster| {
            assert!(until(cluster, |cluster| has_completed(cluster, 1)), "seed {seed}");
            assert_filled(cluster, 1, LARGE, LARGE, 1);
        });
    }
}

/// A write that the dead rail was late with lands nowhere: the other end is ended before the message goes on
/// (F-3). Without the fence some of these seeds have one that lands in a buffer that is the application's
/// again.
#[test]
fn late_write_of_a_dead_rail_changes_no_memory() {
    // Registrations may fail, and then the message doesn't go by put over both.
    let writes =
        |cluster: &mut Cluster<'_>| until(cluster, |cluster| (0..2).all(|rail| cluster.pending_writes(0, 1, rail) > 0));
    let mut broken = 0;
    for seed in 0..50 {
        pair(&[PUT, PUT], seed, |cluster| {
            // Small packets keep to the rail that lives.
            for node in &mut cluster.nodes {
                node.endpoint.set_policy(MessageClass::Small, Policy::named("binding").unwrap());
            }
            if !writes(cluster) {
                return;
            }
            broken += 1;
            (cluster.hold_late_writes, cluster.refuse_one_in) = (true, 1);
            cluster.break_end(0, 1, RailId(1), RailFault::TimedOut);
            assert!(until(cluster, |cluster| has_completed(cluster, 1)), "seed {seed}");
            assert_filled(cluster, 1, LARGE, LARGE, 1);
            assert_eq!(cluster.release_late_writes(), 0, "seed {seed}: a late write has landed");
        });
    }
    assert!(broken > 0, "no message was being written over both rails");
}

/// Every message is acknowledged though no reverse traffic could carry it.
#[test]
fn every_message_is_acknowledged() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[1000], 5);
    for n in 0..14 {
        let recv = RecvRequest {
            cookie: Cookie(n),
            segments: &seg(100, 100),
            ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
        };
        cluster.nodes[1].endpoint.recv(Time(cluster.now), &recv).unwrap();
        let send = SendRequest {
            cookie: Cookie(n),
            level: Level::Acknowledged,
            segments: &seg(0, 100),
            ..SendRequest::new(PeerId(1), &[])
        };
        cluster.nodes[0].endpoint.send(Time(cluster.now), &send).unwrap();
        cluster.run_until_idle();
        assert_eq!((completions(&mut cluster, 1).len(), completions(&mut cluster, 0).len()), (1, 1), "message {n}");
    }
}

/// The last stripe of a message that is cut ends where the message does, by put and by data segments.
#[test]
fn shares_add_up() {
    for rails in [&[PUT, PUT], &[TCP, TCP]] {
        pair(rails, 8, |cluster| {
            cluster.run_until_idle();
            assert!(has_completed(cluster, 1));
            assert_filled(cluster, 1, LARGE, LARGE, 1);
        });
    }
}

/// One message has room at the peer, so one is sent.
#[test]
fn message_credits_limit_the_messages_sent() {
    let config = Config { unexpected_per_peer: 1, ..small() };
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[1000], 5);
    for _ in 0..3 {
        cluster.nodes[0].endpoint.send(Time(0), &SendRequest::new(PeerId(1), &[])).unwrap();
    }
    cluster.run_until_idle();
    for node in &cluster.nodes {
        assert!(!node.events.iter().any(|event| matches!(event, Event::PeerLost { .. })), "{:?}", node.events);
    }
    assert_eq!(cluster.nodes[1].endpoint.stats().unexpected, 1);
}
