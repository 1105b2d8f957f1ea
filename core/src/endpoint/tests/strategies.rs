//! NewMadeleine's strategies at work: what an idle rail gets.

use super::timed::{Timed, line, sorts};
use super::*;

fn by(strategy: Policy, nic_depth: u16) -> Config {
    Config { multiplex: strategy, striping: strategy, nic_depth, operations_max: 512, ..small() }
}

/// Three rails of unlike rates, warm, under one strategy; by data segments, by writes, by reads.
fn three(strategy: Policy, test: impl Fn(&mut Timed<'_>)) {
    for facts in sorts() {
        let config = by(strategy, 1);
        let mut regions = regions(&config, 2);
        let mut timed = Timed::new(&mut regions, &config, &[facts; 3], &[line(400), line(200), line(100)]);
        timed.stream(6, 6, 256 * 1024);
        timed.posts.clear();
        test(&mut timed);
    }
}

/// P-9, newmadeleine-2007, 3.2: greedy gives each idle rail the first message that waits, whole, and to the
/// fast rail more of them.
#[test]
fn greedy_moves_messages_whole() {
    const LEN: u64 = 256 * 1024;
    three(Policy::Greedy, |timed| {
        timed.stream(3, 3, LEN);
        assert_eq!(timed.carried(), [LEN, LEN, LEN]);
        timed.posts.clear();
        timed.stream(14, 14, LEN);
        let carried = timed.carried();
        assert!(carried.iter().all(|bytes| bytes % LEN == 0), "{carried:?}");
        assert_eq!(carried.iter().sum::<u64>(), 14 * LEN);
        assert!(carried[0] >= 7 * LEN && carried[2] <= 3 * LEN, "{carried:?}");
    });
}

/// P-9, newmadeleine-2007, 3.4: split cuts by the rates that were measured.
#[test]
fn split_cuts_by_rates() {
    const LEN: u64 = 7 * 256 * 1024;
    for strategy in [Policy::Split, Policy::NewMadeleine] {
        three(strategy, |timed| {
            timed.stream(4, 1, LEN);
            timed.posts.clear();
            timed.stream(1, 1, LEN);
            for (carried, share) in timed.carried().into_iter().zip([4, 2, 1]) {
                assert!((carried * 7).abs_diff(LEN * share) < LEN / 10, "{carried} of {LEN}, not {share} in 7");
            }
        });
    }
}

/// P-9, newmadeleine-2007, 3.3: small messages go together over the rail of the lowest latency, and wait for
/// it.
#[test]
fn newmadeleine_uses_the_lowest_latency_rail_and_aggregates() {
    let config = by(Policy::NewMadeleine, 1);
    let rails = [3_000, 1_700, 0].map(|latency_ns| RailFacts { latency_ns, ..TCP });
    let mut region = Region::of(&config);
    let mut lone = super::lone::Lone::connected(&mut region, &config, &rails);
    let posts = |lone: &mut super::lone::Lone<'_>| {
        let (mut posts, mut actions) = (Vec::new(), heapless::Vec::new());
        while lone.endpoint.poll_actions(Time(0), &mut actions) > 0 {
            posts.extend(actions.drain(..).filter_map(|action| match action {
                Action::Post(post) => Some((post.id, post.rail.0)),
                _ => None,
            }));
        }
        posts
    };
    (0..3).for_each(|n| lone.send(n, 10));
    let first = posts(&mut lone);
    assert_eq!(first.len(), 1);
    (3..8).for_each(|n| lone.send(n, 10));
    assert_eq!((first[0].1, posts(&mut lone)), (1, vec![]), "the others are idle, but not as fast");
    lone.endpoint.handle_completion(Time(0), first[0].0, PostStatus::Done);
    let second = posts(&mut lone);
    assert_eq!((second.len(), second[0].1), (1, 1));
    assert_eq!(lone.endpoint.rail_stats(RailId(1)).unwrap().messages, 8);
}
