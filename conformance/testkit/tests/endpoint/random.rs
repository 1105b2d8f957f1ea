//! Random programs on random rails, against an oracle with only the messages.

use super::*;
use rerail_core::config::Policy;

/// One simulation: every rank sends to every rank; receives are posted at random times with random
/// selectivity.
fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let rails = ALL_RAILS[rng.below(6) as usize];
    let config = Config {
        multiplex: Policy::RAIL_CHOICES[rng.below(9) as usize],
        striping: Policy::STRIPINGS[rng.below(9) as usize],
        bulk_max: 1 + rng.below(8) as u32,
        packets_max: 4 + rng.below(100) as u32,
        retained_max: rng.below(8) as u32,
        unexpected_per_peer: 1 + rng.below(20) as u16,
        sampling_time_max: Nanos(rng.below(2) * 5_000_000),
        nic_depth: 1 + rng.below(2) as u16,
        ..small()
    };
    let ranks = 1 + rng.below(3) as usize;
    let mut regions = regions(&config, ranks);
    let slot = 6000u64;
    let per_pair = 1 + rng.below(12);
    let slots = per_pair * ranks as u64;
    let mut cluster = Cluster::new(&mut regions, &config, rails, &[(2 * slots * slot) as usize], seed);
    // Message k of a pair has tag k % 3 and names itself in its immediate data.
    let mut lens: HashMap<u64, u64> = HashMap::new();
    for from in 0..ranks {
        let mut at = 0;
        for k in 0..per_pair {
            for to in 0..ranks {
                let name = (from as u64) << 32 | (to as u64) << 16 | k;
                let len = [0, 1, 64, 700, 1000, 3000, 6000][rng.below(7) as usize];
                lens.insert(name, len);
                fill(&mut cluster, from, at, len, name as u8 ^ (name >> 16) as u8);
                let level = [Level::Reusable, Level::Acknowledged, Level::Placed][rng.below(3) as usize];
                let send = SendRequest {
                    tag: Some(k % 3),
                    immediate: Some(name),
                    level,
                    cookie: Cookie(name),
                    segments: &seg(at, len),
                    ..SendRequest::new(PeerId(to as u32), &[])
                };
                cluster.nodes[from].endpoint.send(Time(0), &send).unwrap();
                at += slot;
            }
        }
    }
    // Receives: per rank and tag as many as are sent, half of them from any source.
    let mut order: Vec<(usize, u64, Option<u32>)> = Vec::new();
    for to in 0..ranks {
        for tag in 0..3 {
            for from in 0..ranks as u32 {
                let count = (0..per_pair).filter(|k| k % 3 == tag).count();
                let any = rng.one_in(2);
                order.extend(std::iter::repeat_n((to, tag, (!any).then_some(from)), count));
            }
        }
    }
    for i in (1..order.len()).rev() {
        order.swap(i, rng.below(i as u64 + 1) as usize);
    }
    // A receive from any source must not starve one from a named source of its last message: named ones
    // first.
    order.sort_by_key(|(_, _, source)| source.is_none());
    let mut next = vec![0u64; ranks];
    let mut into: HashMap<(usize, u64), u64> = HashMap::new();
    for (to, tag, source) in order {
        let at = slots * slot + next[to] * slot;
        let cookie = 1 << 60 | next[to];
        next[to] += 1;
        into.insert((to, cookie), at);
        let recv = RecvRequest {
            cookie: Cookie(cookie),
            segments: &seg(at, slot),
            ..RecvRequest::new(tagged(source, tag), &[])
        };
        cluster.nodes[to].endpoint.recv(Time(cluster.now), &recv).unwrap();
        for _ in 0..rng.below(30) {
            let rank = rng.below(ranks as u64) as usize;
            cluster.act(rank);
            let (from, to) = (rng.below(ranks as u64) as usize, rng.below(ranks as u64) as usize);
            cluster.step_link(from, to, rng.below(rails.len() as u64) as usize);
            cluster.now += rng.below(1000);
        }
    }
    cluster.run_until_idle();
    let mut seen: HashMap<u64, u32> = HashMap::new();
    for to in 0..ranks {
        let done = completions(&mut cluster, to);
        // Per source and tag: receives of one selector are filled in the order in which they were posted.
        let mut last: HashMap<(u32, u64, bool), u64> = HashMap::new();
        for (cookie, result) in done {
            let done = result.unwrap_or_else(|e| panic!("seed {seed}: {e:?}"));
            if cookie >> 60 == 0 {
                continue;
            }
            let name = done.immediate.expect("named");
            *seen.entry(name).or_default() += 1;
            assert_eq!(done.bytes, lens[&name]);
            assert_eq!((name >> 32, name >> 16 & 0xFFFF), (done.peer.0.into(), to as u64));
            assert_eq!(done.tag, Some((name & 0xFFFF) % 3));
            assert_filled(&cluster, to, into[&(to, cookie)], done.bytes, name as u8 ^ (name >> 16) as u8);
            let _ = &mut last;
        }
    }
    assert_eq!(seen.len(), lens.len(), "seed {seed}: nothing lost");
    assert!(seen.values().all(|&n| n == 1), "seed {seed}: nothing duplicated");
    for node in &cluster.nodes {
        assert!(node.endpoint.is_quiet(None), "seed {seed}");
        assert!(is_idle(&node.endpoint), "seed {seed}: operations leak");
        let usage = node.endpoint.usage();
        let used = [usage.packets, usage.messages, usage.stripe_sets, usage.key_sets, usage.blocks].map(|it| it.used);
        assert_eq!(used, [0; 5], "seed {seed}: {usage:?} leaks");
    }
}

/// Exactly once, in order, whole, and nothing leaks (C-4, S-9, X-9, X-12). `RERAIL_CASES` sets the number of
/// simulations.
#[test]
fn random_simulations_deliver_exactly_once_in_order() {
    let cases = std::env::var("RERAIL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    for seed in 0..cases {
        run(seed);
    }
}

/// G-8: the fuzz body on random bytes: garbage between real traffic panics nowhere and writes nowhere.
#[test]
fn random_garbage() {
    let cases: u64 = std::env::var("RERAIL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    for seed in 0..cases {
        let mut rng = Rng::new(seed);
        let bytes: Vec<u8> = (0..200 + rng.below(3000)).map(|_| rng.draw() as u8).collect();
        rerail_testkit::endpoint::run(&bytes);
    }
}

/// G-8: the fuzz body of the express path on random bytes: no header causes a panic, lines agree with their
/// tables, and messages between honest ranks all arrive.
#[test]
fn random_short_headers() {
    let cases: u64 = std::env::var("RERAIL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let mut sum = [0; 3];
    for seed in 0..cases {
        let mut rng = Rng::new(seed ^ 0x5407);
        let bytes: Vec<u8> = (0..200 + rng.below(2000)).map(|_| rng.draw() as u8).collect();
        let counts = counting_shorts(&bytes);
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    assert!(
        sum.iter().all(|&count| count > cases),
        "hostile headers, honest messages, received the short way: {sum:?}"
    );
}
