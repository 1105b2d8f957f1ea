//! Shared receive queues with buffers of several sizes (xrc-2008, V.A): which queue a packet goes to, what
//! memory that takes, and that queues which run dry hold no peer up for good. Rule V-17.

use rerail_core::ids::PeerId;
use rerail_core::time::Nanos;
use rerail_linux::auth::Secret;
use rerail_linux::rail::Rail;
use rerail_linux::rail::verbs::{SrqSizes, VerbsOptions, XrcOptions};
use rerail_sim::hca::{Fault, HcaOptions, SharedQueueState};

use crate::cluster::{Cluster, FILE, draws, options};

/// These options with buffers of these sizes beside those for the longest packet.
fn sized(sizes: &[u32], options: VerbsOptions) -> VerbsOptions {
    VerbsOptions { xrc: Some(XrcOptions { sizes: SrqSizes::new(sizes), ..FILE }), ..options }
}

/// A rank's queues, smallest buffers first.
fn queues(cluster: &Cluster, rank: usize) -> Vec<SharedQueueState> {
    cluster.fabric.borrow().shared_queues_of(cluster.hosts[rank].hca, rank as u32)
}

fn taken(cluster: &Cluster, rank: usize) -> Vec<u64> {
    queues(cluster, rank).iter().map(|queue| queue.taken).collect()
}

fn posted(cluster: &Cluster, rank: usize) -> Vec<u32> {
    queues(cluster, rank).iter().map(|queue| queue.posted).collect()
}

/// All but one poll for a while, or until nothing happens any more.
fn without(cluster: &mut Cluster, asleep: usize) {
    let until = cluster.now + Nanos::from_millis(3);
    while cluster.now < until && cluster.step(|host| host != asleep) {}
}

/// Bytes in front of the payload of the packets of these tests.
fn header_bytes(options: &VerbsOptions) -> usize {
    let mut cluster = Cluster::connected(options);
    let id = cluster.hosts[0].send(PeerId(1), 0, 0, 1);
    cluster.until(|cluster| cluster.hosts[0].is_done(id));
    cluster.hosts[0].rail.counters().bytes_sent as usize
}

/// V-17: to the byte, the smallest buffers that hold it; by the receiver's sizes, whatever the sender's are.
#[test]
fn packets_use_the_smallest_buffers_that_hold_them() {
    let header = header_bytes(&options(2));
    let all: [&[u32]; 4] = [&[256, 512, 1024, 2048, 4096], &[], &[300], &[256, 257, 258, 259, 1000, 4000, 4351]];
    for (ours, theirs) in all.into_iter().flat_map(|ours| all.map(|theirs| (ours, theirs))) {
        let roomy = VerbsOptions { receives: 64, ..options(2) };
        let mut cluster = Cluster::new([sized(ours, roomy.clone()), sized(theirs, roomy)]);
        cluster.connect(0, 1);
        cluster.until(|cluster| cluster.is_up(0, 1) && cluster.is_up(1, 0));
        let longest = options(2).message_bytes();
        let around = ours.iter().chain(theirs).flat_map(|size| [size - 1, *size, size + 1]);
        for (number, bytes) in (0..).zip(around.chain([header as u32])) {
            for (from, to, sizes) in [(0, 1, theirs), (1, 0, ours)] {
                let before = taken(&cluster, to);
                cluster.hosts[from].send(PeerId(to as u32), number, bytes as usize - header, 100);
                cluster.until(|cluster| cluster.hosts[to].numbers_from(PeerId(from as u32)).contains(&number));
                let rise: Vec<u64> = taken(&cluster, to).iter().zip(before).map(|(now, before)| now - before).collect();
                let place = sizes.iter().chain([&longest]).position(|size| *size >= bytes).unwrap();
                let expected: Vec<u64> = (0..=sizes.len()).map(|at| u64::from(at == place)).collect();
                assert_eq!(rise, expected, "{bytes} bytes into {sizes:?}");
            }
        }
        cluster.run_until_idle();
        assert!(cluster.hosts.iter().all(|host| host.sink.down.is_empty()));
    }
}

/// V-17: each queue is refilled when a quarter of its own buffers is free, whatever there is in the others.
#[test]
fn each_queue_has_its_own_low_water_mark() {
    let options = sized(&[256, 1024], VerbsOptions { receives: 40, ..options(2) });
    let buffers = options.receive_buffers();
    let count = buffers[0].1;
    assert!(count >= 8 && buffers.iter().all(|(_, each)| *each == count));
    let mut cluster = Cluster::connected(&options);
    let full = [count; 3];
    assert_eq!(posted(&cluster, 1), full);
    let mark = count.div_ceil(4);
    // The second time each queue goes through its mark, and the others lack some.
    let (mut number, mut expected) = (0, full);
    for count_sent in [2 * mark, mark + 1, mark + 1] {
        for (queue, bytes) in [(0, 10), (2, 3000), (1, 500)] {
            for _ in 0..count_sent {
                cluster.hosts[0].send(PeerId(1), number, bytes, 100);
                number += 1;
                cluster.until(|cluster| cluster.hosts[1].sink.taken.len() == number as usize);
                cluster.run_until_idle();
                expected[queue] = if expected[queue] - 1 == count - mark { count } else { expected[queue] - 1 };
                assert_eq!(posted(&cluster, 1), expected, "after a packet of {bytes} bytes");
            }
        }
    }
    assert!(mark > 2 && expected == full.map(|full| full - 2));
}

/// xrc-2008, VI: the same memory, registered once and never more of it, takes more packets while no process
/// polls.
#[test]
fn several_buffer_sizes_hold_more_packets_in_the_same_memory() {
    let one = sized(&[], options(2));
    let several = options(2);
    let held = |options: &VerbsOptions| {
        let mut cluster = Cluster::connected(&VerbsOptions { posts_max: 64, sends: 64, ..options.clone() });
        let hca = cluster.hosts[1].hca;
        let registered = |cluster: &Cluster| cluster.fabric.borrow().objects(hca).registered_bytes;
        let before = registered(&cluster);
        // As many of each size as there are buffers of it.
        let buffers = options.receive_buffers();
        let mut sent = 0;
        for (bytes, count) in &buffers {
            for _ in 0..*count {
                cluster.hosts[0].send(PeerId(1), sent, *bytes as usize - 100, 5000);
                sent += 1;
            }
        }
        without(&mut cluster, 1);
        assert_eq!(cluster.hosts[0].sink.completed.len() as u64, sent, "all are taken at once");
        cluster.hosts[0].send(PeerId(1), sent, 10, 10);
        without(&mut cluster, 1);
        assert_eq!(cluster.hosts[0].sink.completed.len() as u64, sent, "one more waits");
        cluster.until(|cluster| cluster.hosts[1].sink.taken.len() as u64 == sent + 1);
        assert_eq!(registered(&cluster), before);
        (registered(&cluster), sent)
    };
    let ((bytes_one, packets_one), (bytes_several, packets_several)) = (held(&one), held(&several));
    assert!(bytes_several <= bytes_one, "{bytes_several} of {bytes_one} bytes");
    assert_eq!(packets_one, 12);
    assert_eq!(packets_several, 24, "{bytes_several} bytes");
}

/// V-17: whatever comes in whatever sizes, to queues of one buffer each and receivers that seldom look: all
/// of it arrives, in order, and no connection ends.
#[test]
fn no_mix_of_sizes_starves() {
    for seed in 0..20 {
        let mut draw = draws(seed + 1);
        let options = VerbsOptions { posts_max: 16, sends: 32, receives: 3, ..options(4) };
        assert!(options.receive_buffers().iter().all(|(_, count)| *count == 1));
        let mut cluster = Cluster::on_nodes(2, vec![options; 4], |_| Secret::new([0x42; 32]), HcaOptions::default());
        let pairs = [(0, 2), (0, 3), (1, 2), (1, 3)];
        for (a, b) in pairs {
            cluster.connect(a, b);
        }
        cluster.until(|cluster| pairs.iter().all(|&(a, b)| cluster.is_up(a, b) && cluster.is_up(b as usize, a as u32)));
        let mut sent = [[0u64; 4]; 4];
        for _ in 0..12 {
            for (a, b) in pairs.map(|(a, b)| (a, b as usize)).into_iter().flat_map(|(a, b)| [(a, b), (b, a)]) {
                // Many of one size now, of another then.
                let bytes = [0, 100, 400, 900, 1900, 4000][draw(6) as usize];
                for _ in 0..draw(8) {
                    cluster.hosts[a].send(PeerId(b as u32), sent[a][b], bytes + draw(20) as usize, 700);
                    sent[a][b] += 1;
                }
            }
            let asleep = draw(5) as usize;
            for _ in 0..draw(60) {
                cluster.step(|host| host != asleep);
            }
        }
        let count = |cluster: &Cluster, at: usize| cluster.hosts[at].sink.taken.len() as u64;
        let due: Vec<u64> = (0..4).map(|to| sent.iter().map(|row| row[to]).sum()).collect();
        cluster.until(|cluster| (0..4).all(|at| count(cluster, at) == due[at]));
        cluster.run_until_idle();
        for (from, to) in (0..4usize).flat_map(|from| (0..4usize).map(move |to| (from, to))) {
            let expected: Vec<u64> = (0..sent[from][to]).collect();
            assert_eq!(cluster.hosts[to].numbers_from(PeerId(from as u32)), expected, "seed {seed}: {from} to {to}");
        }
        assert!(cluster.hosts.iter().all(|host| host.sink.down.is_empty()), "seed {seed}");
        assert!((0..4).all(|rank| posted(&cluster, rank).iter().all(|posted| *posted == 1)), "seed {seed}");
    }
}

/// V-17: a sender that has run one size dry waits for the receiver's next poll; the others' packets of other
/// sizes come.
#[test]
fn empty_receive_queue_blocks_only_packets_of_its_size() {
    let options = VerbsOptions { posts_max: 64, sends: 64, ..options(3) };
    let small = options.receive_buffers()[0].1 as usize;
    let mut cluster = Cluster::new([options.clone(), options.clone(), options]);
    for rank in 0..2 {
        cluster.connect(rank, 2);
        cluster.until(|cluster| cluster.is_up(rank, 2) && cluster.is_up(2, rank as u32));
    }
    for number in 0..3 * small as u64 {
        cluster.hosts[0].send(PeerId(2), number, 10, 10);
    }
    without(&mut cluster, 2);
    assert_eq!(cluster.hosts[0].sink.completed.len(), small);
    assert_eq!(posted(&cluster, 2)[0], 0);
    let other = cluster.hosts[1].send(PeerId(2), 0, 3000, 3000);
    cluster.until_polling(|host| host != 2, |cluster| cluster.hosts[1].is_done(other));
    assert_eq!(cluster.hosts[0].sink.completed.len(), small, "still waiting");
    cluster.until(|cluster| {
        cluster.hosts[0].sink.completed.len() == 3 * small && cluster.hosts[2].sink.taken.len() > 3 * small
    });
    assert!(cluster.hosts.iter().all(|host| host.sink.down.is_empty()));
}

/// V-4, V-17: packets that came before READY keep their buffers, here all there are of their size; READY does
/// not need one.
#[test]
fn packets_that_wait_for_ready_may_take_all_buffers_of_a_size() {
    let options = VerbsOptions { receives: 3, ..options(4) };
    let mut cluster = Cluster::new(vec![options; 4]);
    for rank in 1..4 {
        cluster.connect(rank, 0);
        cluster.until_polling(|host| host == 0 || host == rank, |cluster| cluster.is_up(rank, 0));
        let port = cluster.hosts[rank].port;
        cluster.inject(Fault::Lose { port, packets: 1 });
        for number in 0..3 {
            cluster.hosts[rank].send(PeerId(0), number, 10, 10);
        }
    }
    cluster.until(|cluster| cluster.hosts[0].sink.taken.len() == 9);
    for rank in 1..4 {
        assert_eq!(cluster.hosts[0].numbers_from(PeerId(rank)), [0, 1, 2]);
    }
    assert!(cluster.hosts.iter().all(|host| host.sink.down.is_empty()));
}

/// V-12, V-17: a device that comes back has other queues; peers receive their numbers with the next
/// connection.
#[test]
fn reloaded_device_sends_its_new_queue_numbers() {
    let mut cluster = Cluster::connected(&options(2)).reviving();
    let hca = cluster.hosts[1].hca;
    cluster.inject(Fault::Kill { hca, reload_after: Some(Nanos::from_millis(1)) });
    cluster.until(|cluster| cluster.hosts[1].sink.backs == 1);
    cluster.connect(1, 0);
    cluster.until(|cluster| cluster.hosts[0].sink.up.len() == 2 && cluster.is_up(0, 1) && cluster.is_up(1, 0));
    for (number, bytes) in [(0, 10), (1, 300), (2, 4000)] {
        cluster.hosts[0].send(PeerId(1), number, bytes, 1000);
    }
    cluster.until(|cluster| cluster.hosts[1].sink.taken.len() == 3);
    let taken = taken(&cluster, 1);
    assert_eq!(taken.iter().sum::<u64>(), 3);
    assert!(taken.iter().all(|taken| *taken <= 1));
}

/// Packets of a workload: this many.
const PACKETS: u64 = 400;

/// Bytes of packets that came, and of the buffers that they lay in.
fn lain_in(options: &VerbsOptions, largest: u64) -> (u64, u64) {
    let mut cluster = Cluster::connected(options);
    let mut draw = draws(largest);
    let (start, before) = (cluster.hosts[1].rail.counters().bytes_received, taken(&cluster, 1));
    let header = header_bytes(options) as u64;
    for number in 0..PACKETS {
        // Every power of two up to the largest is equally likely.
        let octave = 1 << draw(largest.ilog2().into());
        let bytes = (octave + draw(octave) + 1).min(largest);
        cluster.hosts[0].send(PeerId(1), number, bytes.saturating_sub(header) as usize, 1 << 20);
        cluster.until(|cluster| cluster.hosts[1].sink.taken.len() as u64 == number + 1);
    }
    let bytes = cluster.hosts[1].rail.counters().bytes_received - start;
    let rise = taken(&cluster, 1).into_iter().zip(before).map(|(now, before)| now - before);
    let buffers = options.receive_buffers();
    (bytes, rise.zip(buffers).map(|(taken, (bytes, _))| taken * u64::from(bytes)).sum())
}

/// The figures of `ARCHITECTURE.md`, "One device contract": what packets take in receive buffers (xrc-2008,
/// figures 6(b) and 7(b)) by one queue and by several, of a rail as the settings make it.
#[test]
fn receive_memory_matches_the_architecture_document() {
    let architecture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md");
    let architecture = std::fs::read_to_string(architecture).unwrap();
    let lines: Vec<String> =
        architecture.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let common = VerbsOptions { segment_bytes: 64 * 1024, ..VerbsOptions::new(2, 0) };
    let several = VerbsOptions { xrc: Some(XrcOptions::new(7, [1, 7])), ..common.clone() };
    let one = sized(&[], common);
    let mut rows = Vec::new();
    let sum = |options: &VerbsOptions| {
        let buffers = options.receive_buffers();
        let bytes: u64 = buffers.iter().map(|(bytes, count)| u64::from(*bytes) * u64::from(*count)).sum();
        (bytes, buffers.iter().map(|(_, count)| count).sum::<u32>())
    };
    let ((bytes_one, count_one), (bytes_several, count_several)) = (sum(&one), sum(&several));
    rows.push(format!("all receive buffers of a rail {count_one}: {bytes_one} {count_several}: {bytes_several}"));
    for (largest, words) in [(256, "256 B"), (1024, "1 KiB"), (8192, "8 KiB"), (65_536, "64 KiB")] {
        let cell = |options: &VerbsOptions| {
            let (packets, buffers) = lain_in(options, largest);
            assert!(packets <= buffers);
            format!("{} ({} %)", buffers / PACKETS, (packets * 200 / buffers).div_ceil(2))
        };
        rows.push(format!("{words} {} {}", cell(&one), cell(&several)));
    }
    rows.iter().for_each(|row| println!("{row}"));
    assert!(rows.iter().any(|row| row == "1 KiB 65792 (0 %) 371 (51 %)"));
    assert!(lines.join(" ").contains("take 371 B each instead of 65,792"), "ARCHITECTURE.md lacks the figures");
}
