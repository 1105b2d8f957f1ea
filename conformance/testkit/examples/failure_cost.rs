//! The cost of a rail failure with all its connections, and of other events for all peers at once: one
//! endpoint and peers that get packets one by one, no rail, no system call. Prints a line per case; times
//! differ between machines, and, by connection, should not differ between job sizes.
//!
//! `failure_cost [PEERS [OPERATIONS [BUSY]]]`: PEERS peers (1024), each over two rails; room for OPERATIONS
//! operations (16384); BUSY of the peers (16) have eight small messages in flight without acknowledgment, and
//! as many receives pending without a sender.

use std::process::ExitCode;
use std::time::Instant;

use rerail_core::config::Config;
use rerail_core::endpoint::{
    Action, Arrival, Endpoint, PostStatus, RailEvent, RailFault, RecvRequest, Selector, SendRequest, TagMatch,
};
use rerail_core::ids::{PeerId, RailId};
use rerail_core::mem::{RegionId, Seg};
use rerail_core::rail::{RailFacts, RailKind};
use rerail_core::time::Time;
use rerail_core::wire::{Body, Common, Connect, Repr};
use rerail_testkit::region::Region;

const RAILS: u8 = 2;
/// Messages to a busy peer.
const MESSAGES: u64 = 8;

fn main() -> ExitCode {
    let mut numbers = [1024, 16_384, 16];
    for (index, given) in std::env::args().skip(1).enumerate() {
        match (numbers.get_mut(index), given.parse()) {
            (Some(number), Ok(given)) if given > 0 || index == 2 => *number = given,
            _ => {
                eprintln!("usage: failure_cost [PEERS [OPERATIONS [BUSY]]]");
                return ExitCode::from(2);
            }
        }
    }
    let [peers, operations, busy] = numbers;
    let config = config(peers, operations);
    let mut region = Region::of(&config);
    println!("{peers} peers over {RAILS} rails, {operations} operations at most, {busy} peers busy");
    println!("{:<34} {:>12} {:>14} {:>14}", "what", "us in all", "ns/peer", "longest, us");
    let mut cluster = Cluster::new(&config, &mut region);
    cluster.timed("all connect", peers, |cluster, peer| {
        cluster.endpoint.add_peer(peer, u64::MAX >> (64 - RAILS)).expect("there is room");
        for rail in 0..RAILS {
            cluster.endpoint.handle_rail_event(cluster.now, RailEvent::Up { peer, rail: RailId(rail) });
            cluster.greet(peer, rail, 1);
        }
    });
    cluster.load(busy.min(peers));
    for rail in (0..RAILS).rev() {
        let what = if rail > 0 { "a rail of two fails" } else { "the last rail fails" };
        cluster.timed(what, peers, |cluster, peer| {
            let fault = RailFault::Device { code: 1 };
            cluster.endpoint.handle_rail_event(cluster.now, RailEvent::Down { peer, rail: RailId(rail), fault });
        });
    }
    for rail in 0..RAILS {
        cluster.timed("a rail comes back", peers, |cluster, peer| {
            cluster.endpoint.handle_rail_event(cluster.now, RailEvent::Up { peer, rail: RailId(rail) });
            cluster.greet(peer, rail, 2);
        });
    }
    // Every other peer dies, the rest is taken leave of.
    cluster.timed("every other process dies", peers, |cluster, peer| {
        for rail in (0..RAILS).filter(|_| peer.0 % 2 == 0).map(RailId) {
            cluster.endpoint.handle_rail_event(cluster.now, RailEvent::Down { peer, rail, fault: RailFault::Gone });
        }
    });
    cluster.timed("the others are closed", peers, |cluster, peer| {
        if peer.0 % 2 == 1 && u64::from(peer.0) > u64::from(busy) {
            cluster.endpoint.close_peer(peer).expect("it is there");
        }
    });
    ExitCode::SUCCESS
}

fn config(peers: u32, operations: u32) -> Config {
    Config {
        channels_max: peers + 1,
        operations_max: operations,
        packets_max: operations,
        unexpected_per_peer: 8,
        blocks_per_peer: 8,
        eager_bytes_max: 1024,
        rails_max: RAILS,
        window: 64,
        ..Config::new(PeerId(0), peers + 1)
    }
}

struct Cluster<'m> {
    endpoint: Endpoint<'m>,
    actions: heapless::Vec<Action, 16>,
    now: Time,
}

impl<'m> Cluster<'m> {
    fn new(config: &Config, region: &'m mut Region) -> Cluster<'m> {
        let facts = RailFacts {
            kind: RailKind::Verbs,
            eager_bytes_max: 1024,
            segment_bytes_max: 64 << 10,
            posts_max: 32,
            ..RailFacts::UNKNOWN
        };
        let endpoint = Endpoint::new(*config, &[facts; RAILS as usize], region.take(config), Time(0)).expect("starts");
        Cluster { endpoint, actions: heapless::Vec::new(), now: Time(1) }
    }

    /// The peer's CONNECT, on its connection of this number.
    fn greet(&mut self, peer: PeerId, rail: u8, connection: u32) {
        let peer_parameters = Connect {
            window: 64,
            eager_bytes_max: 1024,
            block_bytes: 1024,
            requests_max: 2,
            rail,
            connection,
            first_number: 0,
            parked: 0,
            answer: false,
        };
        let common = Common { source: peer.0, message_limit: 32, block_limit: 64, ..Common::default() };
        let header = Repr { common, body: Body::Connect(peer_parameters) }.emit_vec().expect("a good header");
        let arrival = self.endpoint.handle_arrival(self.now, peer, RailId(rail), &header);
        assert_eq!(arrival, Arrival::Done, "{peer:?} rail {rail}");
    }

    /// Small messages to the first `busy` peers, and receives from them.
    fn load(&mut self, busy: u32) {
        let segments = [Seg::new(RegionId(0), 0, 8)];
        for peer in (1..=busy).map(PeerId) {
            let from = Selector { source: Some(peer), tag: TagMatch::Tagged { tag: 7, ignore: 0 } };
            for _ in 0..MESSAGES {
                let send = SendRequest { tag: Some(7), ..SendRequest::new(peer, &segments) };
                self.endpoint.send(self.now, &send).expect("there is room");
                let recv = RecvRequest::new(from, &segments);
                self.endpoint.recv(self.now, &recv).expect("there is room");
            }
            self.drive();
        }
    }

    /// Carries out the endpoint's actions; rails complete all posts at once.
    fn drive(&mut self) {
        while self.endpoint.poll_actions(self.now, &mut self.actions) > 0 {
            for action in self.actions.drain(..) {
                if let Action::Post(post) = action {
                    self.endpoint.handle_completion(self.now, post.id, PostStatus::Done);
                }
            }
        }
    }

    /// Does something for each peer, and what follows from it. Not inlined: a profiler counts what is called
    /// from here.
    #[inline(never)]
    fn timed(&mut self, what: &str, peers: u32, mut step: impl FnMut(&mut Self, PeerId)) {
        self.now.0 += 1_000_000;
        let (begun, mut longest) = (Instant::now(), 0);
        for peer in (1..=peers).map(PeerId) {
            let before = begun.elapsed();
            step(self, peer);
            longest = longest.max((begun.elapsed() - before).as_nanos());
        }
        let before = begun.elapsed();
        self.drive();
        while self.endpoint.poll_event().is_some() {}
        longest = longest.max((begun.elapsed() - before).as_nanos());
        let all = begun.elapsed().as_nanos();
        println!(
            "{what:<34} {:>12.1} {:>14} {:>14.1}",
            all as f64 / 1e3,
            all / u128::from(peers),
            longest as f64 / 1e3
        );
    }
}
