//! What processes of one node share by XRC, and which of them a failure affects (xrc-2008, IV and V;
//! V-14 to V-16).

use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_core::time::{Nanos, Time};
use rerail_linux::auth::Secret;
use rerail_linux::rail::verbs::{Identity, VerbsError, VerbsOptions, VerbsRail, XrcOptions};
use rerail_linux::rail::{Piece, Rail};
use rerail_sim::hca::{Fabric, Fault, HcaOptions, SimDevice};
use rerail_sim::net::{BusModel, HcaModel, LinkModel, PlaneModel, SubnetModel};
use rerail_sim::trace::Trace;

use crate::cluster::{Cluster, FILE, JOB, credentials, draws, options};

/// Number of the first connected queue pair that is made on a node where so many processes have opened the
/// device.
fn first(per_node: u32) -> u32 {
    0x1_0001 + per_node + 1
}

/// Two nodes of so many processes: ranks count from node to node.
fn two_nodes(per_node: u32, options: &VerbsOptions) -> Cluster {
    let options = (0..2 * per_node).map(|_| options.clone());
    Cluster::on_nodes(per_node as usize, options, |_| Secret::new([0x42; 32]), HcaOptions::default())
}

/// All pairs of processes of different nodes.
fn pairs(per_node: u32) -> impl Iterator<Item = (u32, u32)> + Clone {
    (0..per_node).flat_map(move |a| (per_node..2 * per_node).map(move |b| (a, b)))
}

fn both_up(cluster: &Cluster, (a, b): (u32, u32)) -> bool {
    cluster.is_up(a as usize, b) && cluster.is_up(b as usize, a)
}

/// Each process calls all of the other node, all at once.
fn connected(per_node: u32, options: &VerbsOptions) -> Cluster {
    let mut cluster = two_nodes(per_node, options);
    for (a, b) in pairs(per_node) {
        cluster.connect(a as usize, b);
        cluster.connect(b as usize, a);
    }
    cluster.until(|cluster| pairs(per_node).all(|pair| both_up(cluster, pair)));
    cluster.run_until_idle();
    assert!(cluster.hosts.iter().all(|host| host.sink.down.is_empty()));
    cluster
}

/// Sends a packet each way between these.
fn exchange(cluster: &mut Cluster, pairs: impl Iterator<Item = (u32, u32)> + Clone, number: u64) {
    for (a, b) in pairs.clone() {
        cluster.hosts[a as usize].send(PeerId(b), number, 900, 900);
        cluster.hosts[b as usize].send(PeerId(a), number, 10, 10);
    }
    cluster.until(|cluster| {
        let has = |at: u32, from: u32| cluster.hosts[at as usize].numbers_from(PeerId(from)).contains(&number);
        pairs.clone().all(|(a, b)| has(a, b) && has(b, a))
    });
}

/// xrc-2008, table I: the queue pairs of two nodes, each process connected with all of the other node, by RC
/// and by XRC. In the paper's count a queue pair sends and receives, as one of RC does; initiators and
/// targets are apart.
#[test]
fn queue_pairs_by_node_and_not_by_process() {
    for per_node in [1, 2, 4, 8] {
        let by = |xrc| connected(per_node, &VerbsOptions { xrc, ..options(2 * per_node) }).qps();
        let datagrams = 2 * per_node;
        assert_eq!(by(None) - datagrams, 2 * per_node * per_node, "RC: one for each peer");
        let (initiators, targets) = (2 * per_node, 2 * per_node);
        assert_eq!(by(Some(FILE)) - datagrams, initiators + targets, "one for each node, one for each sender");
    }
}

/// Everything goes where it is addressed to: packets of all, writes and reads into one of several processes.
#[test]
fn traffic_between_all() {
    let mut cluster = connected(3, &options(6));
    for number in 0..20 {
        exchange(&mut cluster, pairs(3), number);
    }
    let mut windows: Vec<Vec<u8>> = (0..6).map(|rank| vec![rank as u8; 4096]).collect();
    for (a, b) in pairs(3) {
        let window = &mut windows[b as usize];
        let piece = Piece { start: window.as_mut_ptr(), len: window.len() };
        let key = cluster.hosts[b as usize].register(piece, true).unwrap();
        let written = cluster.hosts[a as usize].write(PeerId(b), key, (a * 6 + b).into(), 4096, 4096);
        cluster.until(|cluster| cluster.hosts[a as usize].is_done(written));
        // A completion is no proof that memory was written.
        cluster.run_until_idle();
        assert!(windows[b as usize] == crate::cluster::payload((a * 6 + b).into(), 4096));
        let window = &mut windows[b as usize];
        let key =
            cluster.hosts[b as usize].register(Piece { start: window.as_mut_ptr(), len: window.len() }, false).unwrap();
        let (read, memory) = cluster.hosts[a as usize].read(PeerId(b), key, 4096, 4096);
        cluster.until(|cluster| cluster.hosts[a as usize].is_done(read));
        assert!(cluster.hosts[a as usize].post_memory(memory) == windows[b as usize]);
    }
    assert!(cluster.hosts.iter().all(|host| host.sink.down.is_empty()));
}

/// A process that calls one after the other makes one initiator, and the node one target.
#[test]
fn later_calls_share() {
    let mut cluster = two_nodes(3, &options(6));
    let bare = cluster.qps();
    for (count, peer) in (3..6).enumerate() {
        cluster.connect(0, peer);
        cluster.until(|cluster| both_up(cluster, (0, peer)));
        // Its own way there, and one way back for each of the others.
        assert_eq!(cluster.qps() - bare, 2 + 2 * (count as u32 + 1));
    }
    exchange(&mut cluster, (3..6).map(|peer| (0, peer)), 1);
}

/// V-16: an initiator that fails takes the links along that use it, each reported once at both ends, and no
/// other one.
#[test]
fn a_broken_initiator_costs_the_links_that_use_it() {
    let mut cluster = two_nodes(3, &options(6));
    for (a, b) in pairs(3) {
        cluster.connect(a as usize, b);
        cluster.until(|cluster| both_up(cluster, (a, b)));
    }
    let hca = cluster.hosts[0].hca;
    cluster.inject(Fault::BreakQp { hca, qp: first(3) });
    cluster.until(|cluster| (3..6).all(|peer| !cluster.is_up(0, peer) && !cluster.is_up(peer as usize, 0)));
    cluster.run_until_idle();
    for (a, b) in pairs(3) {
        assert_eq!(both_up(&cluster, (a, b)), a != 0, "{a} and {b}");
    }
    assert_eq!(cluster.hosts[0].sink.down.len(), 3);
    assert!(cluster.hosts[0].sink.down.iter().all(|(_, fault)| *fault == cluster.hosts[0].sink.down[0].1));
    for peer in 3..6 {
        assert_eq!(cluster.hosts[peer].sink.down, [(PeerId(0), RailFault::Closed)]);
    }
    let before = cluster.qps();
    (3..6).for_each(|peer| cluster.connect(0, peer));
    cluster.until(|cluster| pairs(3).all(|pair| both_up(cluster, pair)));
    assert_eq!(cluster.qps(), before + 2, "one initiator and one target again");
    exchange(&mut cluster, pairs(3), 2);
}

/// V-16: more peers than set-up messages can be on their way at once; each is notified, so none of their
/// initiators has to go.
#[test]
fn failed_shared_initiator_is_reported_to_all_its_peers() {
    let per_node = 40;
    let peers = per_node..2 * per_node;
    let mut cluster = two_nodes(per_node, &options(2 * per_node));
    let initiator = first(per_node);
    for rank in 0..2 {
        peers.clone().for_each(|peer| cluster.connect(rank, peer));
        cluster.until(|cluster| peers.clone().all(|peer| both_up(cluster, (rank as u32, peer))));
    }
    cluster.run_until_idle();
    let hca = cluster.hosts[0].hca;
    cluster.inject(Fault::BreakQp { hca, qp: initiator });
    // Some of them get lost, and are sent again.
    cluster.inject(Fault::Lose { port: cluster.hosts[0].port, packets: 5 });
    cluster.until(|cluster| peers.clone().all(|peer| !cluster.is_up(0, peer)));
    cluster.run_until_idle();
    for peer in peers.clone() {
        assert_eq!(cluster.hosts[peer as usize].sink.down, [(PeerId(0), RailFault::Closed)], "{peer}");
        assert!(both_up(&cluster, (1, peer)), "{peer}");
    }
    exchange(&mut cluster, peers.map(|peer| (1, peer)), 1);
}

/// V-16: a peer that computes for a while has time to report that it is complete.
#[test]
fn a_peer_that_computes_for_a_while_is_waited_for() {
    let mut cluster = connected(3, &options(6));
    let (hca, broken) = (cluster.hosts[0].hca, first(3));
    cluster.inject(Fault::BreakQp { hca, qp: broken });
    let began = cluster.now;
    cluster.until_polling(|host| host < 3, |cluster| cluster.now > began + Nanos::from_millis(2));
    cluster.run_until_idle();
    for (a, b) in pairs(3) {
        assert_eq!(both_up(&cluster, (a, b)), a != 0, "{a} and {b}");
    }
}

/// V-16, F-2: a peer that is aborted loses what it has with this node; the aborting process keeps the rest,
/// and so do all others. No write of the aborted one lands any more.
#[test]
fn a_severed_peer_loses_the_node() {
    let mut cluster = connected(3, &options(6));
    let mut window = vec![0u8; 4096];
    let piece = Piece { start: window.as_mut_ptr(), len: window.len() };
    let key = cluster.hosts[0].register(piece, true).unwrap();
    cluster.hosts[3].write(PeerId(0), key, 1, 4096, 4096);
    cluster.hosts[0].rail.abort(PeerId(3));
    cluster.hosts[0].sink.standing.retain(|peer| *peer != PeerId(3));
    let frozen = window.clone();
    cluster.until(|cluster| (0..3).all(|rank| !cluster.is_up(3, rank) && !cluster.is_up(rank as usize, 3)));
    cluster.run_until_idle();
    assert_eq!(window, frozen);
    for (a, b) in pairs(3) {
        assert_eq!(both_up(&cluster, (a, b)), b != 3, "{a} and {b}");
    }
    (0..3).for_each(|rank| cluster.connect(rank, 3));
    cluster.until(|cluster| pairs(3).all(|pair| both_up(cluster, pair)));
    exchange(&mut cluster, pairs(3), 3);
}

/// V-16: a process that leaves one peer harms no other, whichever made the target that is shared.
#[test]
fn disconnect_of_one_peer_keeps_the_shared_connections() {
    for leaves in [(0, 3), (3, 0), (0, 5), (4, 2)] {
        let mut cluster = connected(3, &options(6));
        let (from, to) = leaves;
        cluster.hosts[from as usize].send(PeerId(to), 9, 0, 1);
        cluster.hosts[from as usize].rail.disconnect(PeerId(to));
        cluster.hosts[from as usize].sink.standing.retain(|peer| *peer != PeerId(to));
        cluster.until(|cluster| !cluster.is_up(to as usize, from));
        cluster.run_until_idle();
        assert_eq!(cluster.hosts[to as usize].numbers_from(PeerId(from)), [9]);
        let pair = (from.min(to), from.max(to));
        let rest = pairs(3).filter(move |other| *other != pair);
        assert!(rest.clone().all(|pair| both_up(&cluster, pair)));
        assert_eq!(cluster.hosts.iter().map(|host| host.sink.down.len()).sum::<usize>(), 1);
        exchange(&mut cluster, rest, 4);
        // It comes again, over what is there.
        let before = cluster.qps();
        cluster.connect(to as usize, from);
        cluster.until(|cluster| both_up(cluster, pair));
        assert_eq!(cluster.qps(), before);
        exchange(&mut cluster, pairs(3), 5);
    }
}

/// V-16: a message that waits for a buffer when its connection ends is no message of the next connection,
/// which would come over the same queue pairs.
#[test]
fn a_late_message_is_not_one_of_the_next_connection() {
    // 1.28 ms: longer than the set-up of a connection.
    let options = VerbsOptions { rnr_timer: 14, ..options(4) };
    let mut cluster = connected(2, &options);
    // Until the next thing that happens is a repetition.
    let soon = |cluster: &mut Cluster, polled: fn(usize) -> bool| {
        let end = cluster.now + Nanos::from_micros(100);
        let is_next = |cluster: &Cluster| cluster.fabric.borrow().next_event().is_some_and(|at| at < end);
        for _ in 0..100 {
            if is_next(cluster) {
                cluster.step(polled);
            } else {
                for (index, host) in cluster.hosts.iter_mut().enumerate() {
                    if polled(index) {
                        host.rail.poll(cluster.now, &mut host.sink);
                    }
                }
            }
        }
    };
    let mut sent = None;
    let number = u64::from(options.receives);
    // One for each buffer, and one more.
    for number in 0..=number {
        sent = Some(cluster.hosts[2].send(PeerId(0), number, 10, 10));
        soon(&mut cluster, |host| host != 0);
    }
    let sent = sent.unwrap();
    for (from, to) in [(0, 2), (2, 0)] {
        assert!(!cluster.hosts[2].is_done(sent), "a buffer was left");
        cluster.hosts[from].rail.disconnect(PeerId(to));
        cluster.hosts[from].sink.standing.retain(|peer| *peer != PeerId(to));
        // The report of the end arrives.
        soon(&mut cluster, |_| true);
        cluster.connect(from, to);
    }
    cluster.until(|cluster| both_up(cluster, (0, 2)));
    cluster.run_until_idle();
    assert!(!cluster.hosts[0].numbers_from(PeerId(2)).contains(&number));
    exchange(&mut cluster, [(0, 2), (1, 2)].into_iter(), 99);
}

/// V-16: where a peer sends bytes that are no packet, the connections that shared an initiator with its own
/// end for another reason: they may be dialled again.
#[test]
fn corrupt_bytes_are_reported_of_their_sender_alone() {
    let mut cluster = connected(3, &options(6));
    cluster.hosts[3].send_raw(PeerId(0), &[0xFF; 40]);
    cluster.step(|host| host == 3);
    // Posts of the receiver are open then.
    cluster.hosts[0].send(PeerId(3), 1, 10, 10);
    cluster.until(|cluster| (3..6).all(|peer| !cluster.is_up(0, peer)));
    cluster.run_until_idle();
    for (peer, fault) in &cluster.hosts[0].sink.down {
        assert_eq!(*fault == RailFault::Corrupt, *peer == PeerId(3), "{peer:?}: {fault:?}");
    }
    assert!((1..3).all(|rank| (4..6).all(|peer| both_up(&cluster, (rank, peer)))));
}

/// All leave: nothing is left but the queue pairs for datagrams.
#[test]
fn last_disconnect_destroys_the_shared_objects() {
    let mut cluster = connected(3, &options(6));
    exchange(&mut cluster, pairs(3), 1);
    for (a, b) in pairs(3) {
        cluster.hosts[a as usize].rail.disconnect(PeerId(b));
    }
    cluster.run_until_idle();
    assert_eq!(cluster.qps(), 6);
    assert!(cluster.hosts[3..].iter().all(|host| host.sink.down.len() == 3));
}

/// A process is killed: a process that sends to it loses its node, and reaches the living ones again.
#[test]
fn killed_process_does_not_block_its_node_permanently() {
    let mut cluster = connected(3, &options(6));
    exchange(&mut cluster, pairs(3), 1);
    cluster.fabric.borrow_mut().kill_owner(3);
    for rank in 0..3 {
        cluster.hosts[rank].send(PeerId(3), 2, 100, 100);
    }
    let alive = pairs(3).filter(|(_, b)| *b != 3);
    cluster.until(|cluster| (0..3).all(|rank| !cluster.is_up(rank, 3)));
    for _ in 0..20_000 {
        for (a, b) in alive.clone() {
            cluster.connect(a as usize, b);
        }
        cluster.step(|host| host != 3);
        if alive.clone().all(|pair| both_up(&cluster, pair)) {
            break;
        }
    }
    let polled: Vec<usize> = (0..6).filter(|rank| *rank != 3).collect();
    for (a, b) in alive.clone() {
        cluster.hosts[a as usize].send(PeerId(b), 7, 100, 100);
    }
    cluster.until_polling(
        |host| polled.contains(&host),
        |cluster| alive.clone().all(|(a, b)| cluster.hosts[b as usize].numbers_from(PeerId(a)).contains(&7)),
    );
}

/// V-15: calls to a node wait for the first one, but not for one that gets no answer.
#[test]
fn unresponsive_peer_delays_other_dials_only_briefly() {
    let mut cluster = two_nodes(2, &options(4));
    cluster.connect(0, 2);
    cluster.connect(0, 3);
    let called = cluster.now;
    cluster.until_polling(|host| host != 2, |cluster| both_up(cluster, (0, 3)));
    let took = cluster.now - called;
    assert!(took >= FILE.wait && took < Nanos(2 * FILE.wait.0), "{took:?}");
    cluster.until(|cluster| both_up(cluster, (0, 2)));
    exchange(&mut cluster, [(0, 2), (0, 3)].into_iter(), 1);
}

/// V-15: calls to a node wait for the oldest that has no answer, not for each one in turn.
#[test]
fn several_unresponsive_peers_delay_others_only_once() {
    let mut cluster = two_nodes(4, &options(8));
    (4..8).for_each(|peer| cluster.connect(0, peer));
    let called = cluster.now;
    cluster.until_polling(|host| !(4..7).contains(&host), |cluster| both_up(cluster, (0, 7)));
    let took = cluster.now - called;
    assert!(took >= FILE.wait && took < Nanos(FILE.wait.0 / 2 * 3), "{took:?}");
    cluster.until(|cluster| (4..8).all(|peer| both_up(cluster, (0, peer))));
    exchange(&mut cluster, (4..8).map(|peer| (0, peer)), 1);
}

/// V-15: of calls that could wait for each other in a ring, one does not.
#[test]
fn calls_in_a_ring_do_not_wait_for_each_other() {
    let mut cluster = two_nodes(2, &options(4));
    let ring = [(0, 2), (2, 1), (1, 3), (3, 0)];
    let called = cluster.now;
    ring.into_iter().for_each(|(from, to)| cluster.connect(from, to));
    cluster.until(|cluster| ring.into_iter().all(|(from, to)| both_up(cluster, (from as u32, to))));
    let took = cluster.now - called;
    assert!(took < Nanos::from_millis(2) && took < FILE.wait, "{took:?}");
}

/// V-15: what one process announces of its domain is wrong; it can open no target of the others, and is
/// connected all the same.
#[test]
fn a_target_that_can_not_be_opened_is_replaced() {
    let elsewhere = XrcOptions { file: 8, ..FILE };
    let own = |rank: u32| if rank == 3 { Some(elsewhere) } else { Some(FILE) };
    let options = (0..4).map(|rank| VerbsOptions { xrc: own(rank), ..options(4) });
    let mut cluster = Cluster::on_nodes(2, options, |_| Secret::new([0x42; 32]), HcaOptions::default());
    for (a, b) in [(0, 2), (0, 3), (3, 1)] {
        cluster.connect(a, b);
        cluster.until(|cluster| both_up(cluster, (a as u32, b)));
    }
    exchange(&mut cluster, [(0, 2), (0, 3), (1, 3)].into_iter(), 1);
    assert!(cluster.hosts.iter().all(|host| host.sink.down.is_empty()));
}

/// Processes of one host that have no file in common are two nodes, and treat each other so.
#[test]
fn without_a_common_file_nothing_is_shared() {
    let own = |rank: u32| XrcOptions::new(7 + rank as i32, [1, rank.into()]);
    let options = (0..4).map(|rank| VerbsOptions { xrc: Some(own(rank)), ..options(4) });
    let mut cluster = Cluster::on_nodes(2, options, |_| Secret::new([0x42; 32]), HcaOptions::default());
    for (a, b) in pairs(2) {
        cluster.connect(a as usize, b);
    }
    cluster.until(|cluster| pairs(2).all(|pair| both_up(cluster, pair)));
    assert_eq!(cluster.qps(), 4 + 2 * 8);
    exchange(&mut cluster, pairs(2), 1);
}

/// V-14: by RC and by XRC don't go together, and that is reported where it is detected.
#[test]
fn rails_of_both_sorts_do_not_connect() {
    let by_xrc = Cluster::pair(&options(2));
    let by_rc = Cluster::pair(&VerbsOptions { xrc: None, ..options(2) });
    for (mut here, there) in [(by_xrc, by_rc)].into_iter().flat_map(|(a, b)| {
        let (at, bt) = (a.hosts[1].rail.address(), b.hosts[1].rail.address());
        [(a, bt), (b, at)]
    }) {
        let wrong = here.hosts[0].rail.add_peer(PeerId(1), &there).unwrap_err();
        assert!(wrong.why.contains("verbs_xrc"), "{}", wrong.why);
    }
}

/// A device without XRC: the error names the device and the setting.
#[test]
fn a_device_without_xrc_is_named() {
    let mut fabric = Fabric::new(1, Trace::off());
    let plane = PlaneModel { latency_ns: 0, bytes_per_second: 0 };
    let subnet = fabric.add_subnet(&SubnetModel { latency_ns: 200, planes: vec![plane] });
    let host = fabric.add_host();
    let bus = fabric.add_bus(host, BusModel::default());
    let mut known = HcaOptions { name: "rxe0".into(), ..HcaOptions::default() };
    known.limits.xrc = false;
    let hca = fabric.add_hca(bus, HcaModel::default(), known);
    fabric.add_port(hca, subnet, LinkModel::default(), 16, 0);
    let fabric = fabric.shared();
    fabric.borrow_mut().advance(Time(1_000));
    let device = SimDevice::open(&fabric, hca, 0).unwrap();
    let key = Secret::new([1; 32]);
    let identity = Identity { credentials: credentials(0, key.clone()), job: JOB, me: PeerId(0), secret: key };
    let error = VerbsRail::open(device, 1, options(1), identity).unwrap_err();
    assert_eq!(error, VerbsError::NoXrc { device: "rxe0".into() });
    let text = error.to_string();
    assert!(text.contains("rxe0") && text.contains("verbs_xrc"), "{text}");
}

/// L-16, V-16: whatever is done to links of two nodes, and whenever, in the end all stand again, nothing is
/// left over, and all buffers are there.
#[test]
fn any_order_of_calls_and_ends_between_nodes() {
    for seed in 0..60u64 {
        let mut draw = draws(seed);
        let all: Vec<(u32, u32)> = pairs(2).collect();
        let mut cluster = two_nodes(2, &options(4));
        for round in 0..150 {
            let (a, b) = all[draw(4) as usize];
            let (at, to) = if draw(2) == 0 { (a as usize, b) } else { (b as usize, a) };
            let gone = |cluster: &mut Cluster| cluster.hosts[at].sink.standing.retain(|peer| *peer != PeerId(to));
            match draw(16) {
                0 => {
                    cluster.hosts[at].rail.abort(PeerId(to));
                    gone(&mut cluster);
                }
                1 => {
                    cluster.hosts[at].rail.disconnect(PeerId(to));
                    gone(&mut cluster);
                }
                2..6 => cluster.connect(at, to),
                6 => cluster.inject(Fault::Lose { port: cluster.hosts[at].port, packets: 1 }),
                7 => {
                    let hca = cluster.hosts[at].hca;
                    let numbers = cluster.fabric.borrow().queue_pairs_of(hca, at as u32);
                    if let Some(qp) = numbers.get(draw(4) as usize) {
                        cluster.inject(Fault::BreakQp { hca, qp: *qp });
                    }
                }
                8 if cluster.is_up(at, to) => {
                    cluster.hosts[at].send(PeerId(to), 1_000 + round, 3_000, 3_000);
                }
                _ => {
                    let polled = draw(6) as usize;
                    cluster.step(|host| host != polled);
                }
            }
        }
        let all_up = |cluster: &Cluster| all.iter().all(|pair| both_up(cluster, *pair));
        for _ in 0..40_000 {
            for (a, b) in &all {
                cluster.connect(*a as usize, *b);
                cluster.connect(*b as usize, *a);
            }
            cluster.step(|_| true);
            if all_up(&cluster) {
                break;
            }
        }
        assert!(all_up(&cluster), "seed {seed}");
        for number in 0..6 {
            exchange(&mut cluster, all.iter().copied(), number);
        }
        cluster.run_until_idle();
        assert!(all_up(&cluster), "seed {seed}");
        for (a, b) in &all {
            cluster.hosts[*a as usize].rail.disconnect(PeerId(*b));
        }
        cluster.run_until_idle();
        assert_eq!(cluster.qps(), 4, "seed {seed}");
    }
}
