//! Subchannels that are aborted and connected again, in every order.

use super::*;

/// A generator of the tests' own: SplitMix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

fn reported(node: &Node) -> [usize; 4] {
    let Recorder { completed, taken, up, down, .. } = &node.sink;
    [completed.len(), taken.len(), up.len(), down.len()]
}

/// Whether it is established for the core.
fn stands(node: &Node) -> bool {
    node.rail.links.len() == 1
}

/// F-2, L-15
#[test]
fn an_aborted_subchannel_is_silent() {
    let (mut a, mut b) = connected([0, 1]);
    // Completions not reported yet, posts that the ring does not take, packets that are here.
    for number in 0..20 {
        a.send(1, number, 500);
        b.send(0, number, 500);
    }
    let before = reported(&a);
    a.rail.abort(PeerId(1));
    a.memory.iter_mut().for_each(|memory| memory.fill(0));
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!(reported(&a), before);
    assert_eq!(a.rail.ring_bytes(), 0, "its ring is unmapped");
    assert!(!a.rail.is_closing());
    // The packets in the ring when it ended come whole, and no others.
    assert_eq!(b.sink.down, [(PeerId(0), RailFault::Closed)]);
    assert_eq!(b.taken_from(0), (0..4).map(|number| packet(number, 500)).collect::<Vec<_>>());
    b.connect(0);
    run_until_idle(&mut [&mut a, &mut b]);
    a.send(1, 99, 10);
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!(b.taken_from(0)[4..], [packet(99, 10)]);
}

/// F-2, L-15
#[test]
fn abort_at_any_stage() {
    for polls in 0..12 {
        let (mut a, mut b) = (Node::new(0), Node::new(1));
        add_peers(&mut [&mut a, &mut b]);
        a.connect(1);
        for n in 0..polls {
            if n % 2 == 0 {
                b.poll()
            } else {
                a.poll()
            };
        }
        let before = reported(&a);
        a.rail.abort(PeerId(1));
        run_until_idle(&mut [&mut a, &mut b]);
        assert_eq!(reported(&a), before);
        assert!(a.rail.openings.is_empty() && a.rail.links.is_empty());
        assert!(b.rail.openings.is_empty() && b.rail.links.is_empty());
    }
    // While it closes with posts that no ring takes.
    let (mut a, mut b) = connected([0, 1]);
    for number in 0..30 {
        a.send(1, number, 500);
    }
    a.rail.disconnect(PeerId(1));
    assert!(a.rail.is_closing());
    a.rail.abort(PeerId(1));
    assert!(!a.rail.is_closing());
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!(b.sink.taken.len(), 4);
}

/// H-10, L-14: the new connection comes before the old one's end was noticed, and the packets left in its
/// ring come first.
#[test]
fn stale_estimates_are_corrected() {
    for [first, second] in [[0, 1], [1, 0]] {
        let (mut a, mut b) = connected([first, second]);
        b.rail.options.burst = 1;
        for life in 0..4usize {
            for number in 0..4 {
                a.send(second, number, 9);
            }
            a.rail.abort(PeerId(second));
            a.connect(second);
            run_until_idle(&mut [&mut a, &mut b]);
            assert_eq!(b.sink.down, vec![(PeerId(first), RailFault::Closed); life + 1]);
            assert_eq!((b.sink.up.len(), a.sink.up.len(), a.sink.down.len()), (life + 2, life + 2, 0));
            assert_eq!(b.taken_from(first).len(), 4 * (life + 1));
        }
    }
}

/// H-8, H-10, L-16
#[test]
fn any_order_of_dials_and_ends() {
    for seed in 0..300 {
        let mut draw = Draw(seed);
        let mut nodes = [Node::new(2), Node::new(5)];
        let [a, b] = &mut nodes;
        add_peers(&mut [a, b]);
        for _ in 0..120 {
            let at = draw.below(2) as usize;
            let peer = nodes[1 - at].me();
            let node = &mut nodes[at];
            match draw.below(12) {
                0 => node.rail.abort(peer),
                1 => node.rail.disconnect(peer),
                2..5 => node.rail.connect(node.now, peer),
                _ => drop(node.poll()),
            }
        }
        let [a, b] = &mut nodes;
        let mut left = 2_000;
        while !(stands(a) && stands(b) && a.rail.openings.is_empty() && b.rail.openings.is_empty()) {
            assert!(left > 0, "seed {seed}: {:?} {:?}", a.rail, b.rail);
            left -= 1;
            a.connect(5);
            b.connect(2);
            // Dials that wait for a full backlog, or a flush.
            (a.now, b.now) = (a.now + Nanos::from_millis(1), b.now + Nanos::from_millis(1));
            a.rail.check_sockets = true;
            b.rail.check_sockets = true;
            a.poll();
            b.poll();
        }
        run_until_idle(&mut [a, b]);
        let before = (a.sink.up.len(), b.sink.up.len());
        a.sink.taken.clear();
        b.sink.taken.clear();
        a.send(5, 1, 10);
        b.send(2, 2, 20);
        run_until_idle(&mut [a, b]);
        assert_eq!((a.taken_from(5), b.taken_from(2)), (vec![packet(2, 20)], vec![packet(1, 10)]), "seed {seed}");
        assert_eq!(before, (a.sink.up.len(), b.sink.up.len()), "seed {seed}: it stays");
    }
}
