//! Subchannels that are aborted and connected again, in every order.

use super::*;

/// A generator of the tests' own: SplitMix64.
pub(super) struct Draw(pub u64);

impl Draw {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

impl Host {
    /// As the core does it: from here on the subchannel is none.
    fn abort(&mut self, peer: PeerId) {
        self.rail.abort(peer);
        self.sink.standing.retain(|standing| *standing != peer);
        self.sink.open.clear();
    }
}

/// F-2, L-15: nothing of it is reported any more, and no memory is touched, whatever arrives or was pending.
#[test]
fn an_aborted_subchannel_is_silent() {
    let mut cluster = Cluster::new([small(), small()]);
    cluster.join(0, 1);
    // Completions not reported yet, posts that no socket takes, and a packet that is here in part.
    for number in 0..20 {
        cluster.hosts[0].send(PeerId(1), number, 100_000, 1000);
        cluster.hosts[1].send(PeerId(0), number, 100_000, 1000);
    }
    for _ in 0..20 {
        cluster.poll();
    }
    assert!(!cluster.hosts[0].sink.open.is_empty(), "a packet is under way");
    let reported = |host: &Host| (host.sink.completed.len(), host.sink.taken.len(), host.sink.down.len());
    let before = reported(&cluster.hosts[0]);
    cluster.hosts[0].abort(PeerId(1));
    // Reads are forbidden now.
    for memory in &mut cluster.hosts[0].memory {
        memory.fill(0);
    }
    cluster.until(|hosts| !hosts[1].sink.down.is_empty());
    assert_eq!(cluster.hosts[1].sink.down, [(PeerId(0), RailFault::Closed)]);
    cluster.hosts[1].numbers_from(PeerId(0));
    assert_eq!(reported(&cluster.hosts[0]), before);
    assert!(!cluster.hosts[0].rail.is_closing());
    cluster.join(1, 0);
    cluster.ping(0, 1, 99);
}

/// F-2, L-15: while it opens, while it closes, and where there is none.
#[test]
fn abort_at_any_stage() {
    let mut cluster = Cluster::new([options(), options()]);
    cluster.hosts[0].abort(PeerId(1));
    let now = cluster.now;
    cluster.hosts[0].rail.connect(now, PeerId(1));
    cluster.hosts[0].abort(PeerId(1));
    for _ in 0..50 {
        cluster.round();
    }
    let quiet = &cluster.hosts[0].sink;
    assert_eq!((quiet.up.len(), quiet.down.len()), (0, 0));
    // A failure not reported yet.
    cluster.hosts[0].rail.connect(now, PeerId(77));
    cluster.hosts[0].abort(PeerId(77));
    cluster.poll();
    assert_eq!(cluster.hosts[0].sink.down.len(), 0);
    cluster.join(0, 1);
    cluster.hosts[0].rail.disconnect(PeerId(1));
    assert!(cluster.hosts[0].rail.is_closing());
    cluster.hosts[0].abort(PeerId(1));
    assert!(!cluster.hosts[0].rail.is_closing());
    assert_eq!(cluster.hosts[0].rail.pending.iter().count(), 0);
}

/// H-10: the other side still uses the old connection; the new one notifies it that the old one is over.
#[test]
fn stale_estimates_are_corrected() {
    let mut cluster = Cluster::new([options(), options()]);
    for (from, to) in [(0, 1), (1, 0), (0, 1), (1, 0)] {
        if !cluster.hosts[0].sink.standing.contains(&PeerId(1)) {
            cluster.join(from, to);
        }
        let (ups, downs) = (cluster.hosts[to].sink.up.len(), cluster.hosts[to].sink.down.len());
        cluster.hosts[from].abort(PeerId(to as u32));
        let now = cluster.now;
        cluster.hosts[from].rail.connect(now, PeerId(to as u32));
        cluster.until(|hosts| hosts[to].sink.up.len() > ups && hosts[from].sink.standing.contains(&PeerId(to as u32)));
        assert_eq!(cluster.hosts[to].sink.down.len(), downs + 1);
        cluster.ping(0, 1, 1000 + ups as u64);
        for host in &mut cluster.hosts {
            host.sink.taken.clear();
        }
    }
}

/// H-8, H-10, L-16: whatever both sides do, and in whatever order they are polled, one connection is
/// established on both in the end.
#[test]
fn any_order_of_dials_and_ends() {
    for seed in 0..60 {
        let mut draw = Draw(seed);
        let mut cluster = Cluster::new([options(), options()]);
        // The core's part: the sides that wait for an answer to their connect.
        let mut requested = [false; 2];
        for _ in 0..150 {
            let at = draw.below(2) as usize;
            let peer = PeerId(1 - at as u32);
            let now = cluster.now;
            let host = &mut cluster.hosts[at];
            let downs = host.sink.down.len();
            match draw.below(10) {
                0 => {
                    host.abort(peer);
                    requested[at] = false;
                }
                1 => {
                    host.rail.disconnect(peer);
                    host.sink.standing.clear();
                    requested[at] = false;
                }
                2..4 if !requested[at] && host.sink.standing.is_empty() => {
                    host.rail.connect(now, peer);
                    requested[at] = true;
                }
                _ => drop(host.rail.poll(now, &mut host.sink)),
            }
            let host = &cluster.hosts[at];
            requested[at] &= host.sink.standing.is_empty() && host.sink.down.len() == downs;
        }
        // From here on both request it, and dial again at each report of a failure.
        let now = cluster.now;
        for _ in 0..ROUNDS_MAX {
            for (at, host) in cluster.hosts.iter_mut().enumerate() {
                host.rail.connect(now, PeerId(1 - at as u32));
            }
            cluster.round();
            if cluster.hosts.iter().all(|host| !host.sink.standing.is_empty() && host.rail.pending.is_empty()) {
                break;
            }
        }
        assert!(
            cluster.hosts.iter().all(|host| host.rail.connections.iter().count() == 1),
            "seed {seed}: {cluster:#?}"
        );
        cluster.ping(0, 1, 7777);
        let ups: Vec<usize> = cluster.hosts.iter().map(|host| host.sink.up.len()).collect();
        for _ in 0..20 {
            cluster.round();
        }
        // And it stays.
        assert_eq!(ups, cluster.hosts.iter().map(|host| host.sink.up.len()).collect::<Vec<_>>(), "seed {seed}");
    }
}
