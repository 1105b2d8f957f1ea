//! Policies by name, chosen at run time, over rails that take time.

use super::timed::{MB, Timed, line, sorts};
use super::*;
use crate::rail::weights::WEIGHT_TOTAL;

/// Shares of the payload in percent.
fn shares(timed: &Timed<'_>) -> Vec<u64> {
    let carried: Vec<_> = timed.carried();
    let all: u64 = carried.iter().sum();
    carried.iter().map(|bytes| (bytes * 100 + all / 2) / all).collect()
}

/// Rails of small messages in the order of their posts.
fn turns(timed: &Timed<'_>) -> Vec<usize> {
    timed.posts.iter().filter(|post| post.rank == 0 && post.len == 8).map(|post| post.rail).collect()
}

fn three(config: &Config, test: impl Fn(&mut Timed<'_>)) {
    for facts in sorts() {
        let mut regions = regions(config, 2);
        let mut timed = Timed::new(&mut regions, config, &[facts; 3], &[line(400), line(200), line(100)]);
        timed.stream(1, 1, 8);
        timed.posts.clear();
        test(&mut timed);
    }
}

/// P-5: every policy that multiplexes, set by name while messages flow.
#[test]
fn small_messages_follow_the_policy() {
    let weights = std::array::from_fn(|rail| [2, 0, 1].get(rail).copied().unwrap_or(0));
    let config = Config { weights, window_messages: 3, bind: 1, ..small() };
    three(&config, |timed| {
        for (name, order) in [
            ("binding", [1, 1, 1, 1, 1, 1]),
            ("round-robin", [0, 1, 2, 0, 1, 2]),
            ("weighted-round-robin", [0, 2, 0, 0, 2, 0]),
            ("window-round-robin", [0, 0, 0, 1, 1, 1]),
        ] {
            let policy = Policy::named(name).unwrap();
            timed.endpoints[0].set_policy(MessageClass::Small, policy);
            assert_eq!(timed.endpoints[0].class_policy(MessageClass::Small).multiplex, policy);
            timed.posts.clear();
            timed.stream(6, 1, 8);
            assert_eq!(turns(timed), order, "{name}");
        }
    });
    assert_eq!(Policy::named("fastest"), None);
    assert_eq!(
        Policy::RAIL_CHOICES.len() + Policy::STRIPINGS.len(),
        Policy::ALL.len() + 6,
        "binding, balanced and strategies are both"
    );
}

/// P-5: every policy that stripes, set by name while messages flow; small messages go their own way.
#[test]
fn large_messages_follow_the_policy() {
    let weights = std::array::from_fn(|rail| [1, 2, 2].get(rail).copied().unwrap_or(0));
    let config = Config { weights, multiplex: Policy::Binding, ..small() };
    three(&config, |timed| {
        for (name, expected) in [("binding", [100, 0, 0]), ("even", [33, 33, 33]), ("weighted", [20, 40, 40])] {
            for endpoint in &mut timed.endpoints {
                endpoint.set_policy(MessageClass::Large, Policy::named(name).unwrap());
            }
            timed.posts.clear();
            timed.stream(4, 2, 1 << 20);
            assert_eq!(shares(timed), expected, "{name}");
        }
        timed.posts.clear();
        timed.stream(5, 1, 8);
        assert_eq!(turns(timed), [0; 5]);
    });
}

/// P-6: which rails are eligible and how many are used are two settings; one rail is better than none.
#[test]
fn eligible_rails_and_rail_count_are_separate_settings() {
    three(&Config { striping: Policy::Even, ..small() }, |timed| {
        // Rates are known: the fastest of those that are eligible are used.
        timed.stream(2, 1, 1 << 20);
        for (eligible, used, expected) in
            [(0b111, 2, [50, 50, 0]), (0b110, 64, [0, 50, 50]), (0b110, 1, [0, 100, 0]), (0b1000, 64, [33, 33, 33])]
        {
            for endpoint in &mut timed.endpoints {
                endpoint.set_rails(MessageClass::Large, eligible, used);
            }
            timed.posts.clear();
            timed.stream(4, 1, 1 << 20);
            assert_eq!(shares(timed), expected, "{eligible:b}, {used}");
        }
        timed.endpoints[0].set_rails(MessageClass::Small, 0b100, 64);
        timed.posts.clear();
        timed.stream(3, 1, 8);
        assert_eq!(turns(timed), [2; 3]);
        // No more rails than may be used help each other either.
        for endpoint in &mut timed.endpoints {
            endpoint.set_policy(MessageClass::Large, Policy::Balanced);
            endpoint.set_rails(MessageClass::Large, 0b111, 2);
        }
        timed.posts.clear();
        timed.stream(4, 1, 1 << 20);
        assert_eq!(shares(timed), [67, 33, 0]);
    });
}

/// P-7: adaptive striping finds the rates of rails from equal weights, one message at a time or several,
/// however late completions are noticed, and follows when a rail slows down ten-fold and recovers. Ten
/// messages have to do.
#[test]
fn adaptive_weights_follow_the_rails() {
    let config = Config { striping: Policy::Adaptive, ..small() };
    for facts in sorts() {
        for (window, poll) in [(1, 1), (1, 50_000), (6, 1), (6, 50_000)] {
            let mut regions = regions(&config, 2);
            let mut timed = Timed::new(&mut regions, &config, &[facts; 2], &[line(800), line(200)]);
            timed.poll = poll;
            let mover = usize::from(facts.caps.read);
            for (fast, slow) in [(800, 200), (80, 200), (800, 200)] {
                timed.lines = vec![line(fast), line(slow)];
                timed.stream(10, window, 4 << 20);
                let took = timed.stream(8, window, 4 << 20);
                let best = 8 * (4 << 20) * 1_000_000_000 / ((fast + slow) * MB);
                assert!(
                    took < best + best / 50 + 8 * (6 * poll + 30_000),
                    "{window} at once, {fast}:{slow}: {took} for {best}"
                );
                let weights = [0, 1].map(|rail| timed.endpoints[mover].rail_stats(RailId(rail)).unwrap().weight);
                let rest: u32 = WEIGHT_TOTAL - weights.iter().sum::<u32>();
                assert_eq!(rest, 0, "{weights:?}");
                let changed = timed.endpoints[mover].rail_stats(RailId(0)).unwrap().changed;
                assert!(changed.is_some());
            }
        }
    }
}

/// P-7: weights can be set at any time, and are where adaptive ones begin.
#[test]
fn weights_can_be_set() {
    three(&small(), |timed| {
        for endpoint in &mut timed.endpoints {
            endpoint.set_policy(MessageClass::Large, Policy::Adaptive);
            endpoint.set_alpha(0);
            endpoint.set_weights(Time(timed.now), &[3, 1, 0]);
        }
        timed.stream(3, 1, 1 << 20);
        assert_eq!(shares(timed), [75, 25, 0]);
        let stats = timed.endpoints[0].rail_stats(RailId(0)).unwrap();
        assert_eq!(stats.weight, WEIGHT_TOTAL / 4 * 3);
        let quarter = u64::from(WEIGHT_TOTAL / 4 * 3);
        assert!(matches!(stats.changed, Some(Change { why: Why::Set | Why::Measured, .. })), "{stats:?} {quarter}");
    });
}

/// P-8: balanced striping gets the sum of the rails' rates after the first message, leaves a rail alone that
/// does not pay, and follows when a rail slows down ten-fold and recovers.
#[test]
fn balanced_stripes_complete_together() {
    let config = Config { striping: Policy::Balanced, ..small() };
    for facts in sorts() {
        for window in [1, 6] {
            let mut regions = regions(&config, 2);
            let mut timed = Timed::new(&mut regions, &config, &[facts; 2], &[line(800), line(200)]);
            for (fast, slow) in [(800, 200), (80, 200), (800, 200)] {
                timed.lines = vec![line(fast), line(slow)];
                timed.stream(10, window, 4 << 20);
                let took = timed.stream(12, window, 4 << 20);
                let best = 12 * (4 << 20) * 1_000_000_000 / ((fast + slow) * MB);
                assert!(
                    took < best + best * 3 / 100 + 12 * 30_000,
                    "{window} at once, {fast}:{slow}: {took} for {best}"
                );
            }
        }
        let mut regions = regions(&config, 2);
        let mut timed = Timed::new(&mut regions, &config, &[facts; 2], &[line(1000), line(10)]);
        timed.stream(4, 1, 1 << 20);
        timed.posts.clear();
        timed.stream(8, 1, 64 << 10);
        assert_eq!(shares(&timed), [100, 0]);
    }
}
