//! Processes without ranks or a common secret: each has a name, and inserts those of others when it learns
//! them.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rerail_linux::driver::{InsertError, NAME_BYTES, Name, RemoveError};
use rerail_linux::settings::Callers;
use rerail_linux::{
    Cookie, Event, OpId, Options, PeerId, RecvRequest, RegionId, RequestError, Seg, Selector, SendRequest, Settings,
    Transport,
};

const LIMIT: Duration = Duration::from_secs(20);
/// Bytes of a region: room for what a test sends and receives.
const ROOM: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fabric {
    Shm,
    Tcp,
    Both,
}

const FABRICS: [Fabric; 3] = [Fabric::Shm, Fabric::Tcp, Fabric::Both];

fn settings(fabric: Fabric, callers: Callers) -> Settings {
    let mut settings = Settings::default();
    settings.rails = match fabric {
        Fabric::Shm => vec!["shm".into()],
        Fabric::Tcp => vec!["tcp".into()],
        Fabric::Both => vec!["shm".into(), "tcp".into()],
    };
    settings.tcp_interfaces = vec!["127.0.0.1".into()];
    settings.tcp_beside_shm = true;
    settings.callers = callers;
    settings.core.redial_max = rerail_core::time::Nanos::from_millis(20);
    settings
}

/// With room for two others.
fn three(fabric: Fabric, callers: Callers) -> Settings {
    let mut settings = settings(fabric, callers);
    settings.peers = 3;
    settings
}

/// A transport that would take more than `memory_budget` does not start, and names what takes most.
#[test]
fn a_transport_over_its_memory_budget_does_not_start() {
    let mut settings = three(Fabric::Shm, Callers::Hold);
    settings.memory_budget = 1 << 20;
    let refused = Transport::open_named(&Options { settings: settings.clone() }).unwrap_err().to_string();
    for part in ["memory_budget is 1048576", "the largest item is ", "setting "] {
        assert!(refused.contains(part), "{refused}");
    }
    settings.memory_budget = 64 << 20;
    Transport::open_named(&Options { settings }).expect("three processes take less");
}

struct Node {
    transport: Transport,
    memory: RegionId,
    name: Name,
    closed: Vec<PeerId>,
    lost: Vec<PeerId>,
    completed: Vec<(OpId, Result<rerail_linux::Done, rerail_linux::OpError>)>,
    /// Messages that wait for a channel: to which peer, the tag, how long.
    waiting: VecDeque<(PeerId, u64, u64)>,
}

impl Node {
    fn open(settings: Settings) -> Node {
        let mut transport = Transport::open_named(&Options { settings }).expect("rails of this machine");
        let memory = transport.alloc(ROOM).expect("memory");
        let name = transport.name().expect("it was opened by name");
        Node {
            transport,
            memory,
            name,
            closed: Vec::new(),
            lost: Vec::new(),
            completed: Vec::new(),
            waiting: VecDeque::new(),
        }
    }

    fn insert(&mut self, other: &Name) -> PeerId {
        self.transport.insert(other).expect("a name that was not known")
    }

    fn drive(&mut self) {
        self.transport.progress();
        for _ in 0..self.waiting.len() {
            let Some((peer, tag, bytes)) = self.waiting.pop_front() else { break };
            match self.try_send(peer, tag, bytes) {
                Err(error) if error.is_full() => self.waiting.push_back((peer, tag, bytes)),
                sent => drop(sent.expect("a peer")),
            }
        }
        while let Some(event) = self.transport.poll_event() {
            match event {
                Event::Completed(completion) => self.completed.push((completion.operation, completion.result)),
                Event::PeerClosed { peer } => self.closed.push(peer),
                Event::PeerLost { peer, .. } => self.lost.push(peer),
                Event::PeerUp { .. } | Event::Written(_) => {}
            }
        }
    }

    fn send(&mut self, peer: PeerId, tag: u64, bytes: u64) -> OpId {
        self.try_send(peer, tag, bytes).expect("a peer")
    }

    fn try_send(&mut self, peer: PeerId, tag: u64, bytes: u64) -> Result<OpId, RequestError> {
        // An earlier message may still be under way from there.
        self.transport.write(Seg::new(self.memory, 0, 8).at, &tag.to_le_bytes()).expect("the region");
        let segments = [Seg::new(self.memory, 0, bytes)];
        let send = SendRequest { tag: Some(tag), cookie: Cookie(tag), ..SendRequest::new(peer, &segments) };
        self.transport.send(&send)
    }

    fn recv(&mut self, from: Option<PeerId>, tag: u64) -> OpId {
        let segments = [Seg::new(self.memory, (ROOM / 2) as u64, (ROOM / 2) as u64)];
        let from = Selector { source: from, ..Selector::tagged(tag) };
        self.transport.recv(&RecvRequest::new(from, &segments)).expect("a receive")
    }

    fn result(&self, operation: OpId) -> Option<Result<rerail_linux::Done, rerail_linux::OpError>> {
        self.completed.iter().find(|(completed, _)| *completed == operation).map(|(_, result)| *result)
    }

    fn refused(&self) -> u64 {
        self.transport.rails().map(|rail| rail.counters.unauthenticated).sum()
    }
}

/// Drives all until something is so.
fn until(nodes: &mut [&mut Node], what: &str, mut is_so: impl FnMut(&mut [&mut Node]) -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so(nodes) {
        nodes.iter_mut().for_each(|node| node.drive());
        if Instant::now() >= end {
            for node in nodes.iter() {
                println!("{:#?}, refused {}, lost {:?}", node.transport, node.refused(), node.lost);
            }
            panic!("{what}: not within {LIMIT:?}");
        }
    }
}

/// One message from `a` to `b`, by these numbers.
fn message(a: &mut Node, b_of_a: PeerId, b: &mut Node, a_of_b: PeerId, tag: u64, bytes: u64) {
    let (send, recv) = (a.send(b_of_a, tag, bytes), b.recv(Some(a_of_b), tag));
    until(&mut [a, b], "a message", |nodes| nodes[0].result(send).is_some() && nodes[1].result(recv).is_some());
    assert_eq!(a.result(send).unwrap().map(|done| done.bytes), Ok(bytes));
    assert_eq!(b.result(recv).unwrap().map(|done| (done.peer, done.bytes)), Ok((a_of_b, bytes)));
    let received = b.transport.part(&Seg::new(b.memory, (ROOM / 2) as u64, 8));
    assert_eq!(received, Ok(&tag.to_le_bytes()[..]));
}

fn both_ways(a: &mut Node, b_of_a: PeerId, b: &mut Node, a_of_b: PeerId, tag: u64) {
    for bytes in [8, 5_000, 300_000] {
        message(a, b_of_a, b, a_of_b, tag, bytes);
        message(b, a_of_b, a, b_of_a, tag + 1, bytes);
    }
}

/// The name of a process that answers nowhere.
fn absent(fabric: Fabric) -> Name {
    Node::open(settings(fabric, Callers::Refuse)).name
}

/// Numbers are local: both have other peers before, and number each other differently.
#[test]
fn two_that_insert_each_other_exchange_messages() {
    for fabric in FABRICS {
        let [mut a, mut b] = [(); 2].map(|()| Node::open(settings(fabric, Callers::Refuse)));
        for _ in 0..3 {
            a.insert(&absent(fabric));
        }
        let (b_of_a, a_of_b) = (a.insert(&b.name.clone()), b.insert(&a.name.clone()));
        assert_eq!((b_of_a, a_of_b), (PeerId(4), PeerId(1)), "{fabric:?}");
        assert_eq!(a.transport.insert(&b.name), Ok(b_of_a), "the same");
        assert_eq!((a.transport.name_of(b_of_a), b.transport.name_of(a_of_b)), (Some(b.name), Some(a.name)));
        both_ways(&mut a, b_of_a, &mut b, a_of_b, 10);
        let (own, name) = (PeerId(0), a.name);
        assert_eq!((a.transport.insert(&name), a.transport.name_of(own)), (Ok(own), Some(name)));
        assert_eq!((a.refused(), b.refused()), (0, 0));
    }
}

/// H-11: a caller that is not inserted waits for the host's answer, and its message with it.
#[test]
fn a_caller_is_inserted_after_its_first_message() {
    for fabric in FABRICS {
        let [mut a, mut b] = [(); 2].map(|()| Node::open(settings(fabric, Callers::Hold)));
        b.insert(&absent(fabric));
        let b_of_a = a.insert(&b.name.clone());
        let sends: Vec<OpId> = (0..50).map(|tag| a.send(b_of_a, tag, 100)).collect();
        let mut caller = None;
        until(&mut [&mut a, &mut b], "a call", |nodes| {
            caller = nodes[1].transport.poll_caller();
            caller.is_some()
        });
        assert_eq!(caller, Some(a.name), "{fabric:?}");
        let a_of_b = b.insert(&a.name.clone());
        let recvs: Vec<OpId> = (0..50).map(|tag| b.recv(Some(a_of_b), tag)).collect();
        until(&mut [&mut a, &mut b], "all messages", |nodes| {
            sends.iter().all(|send| nodes[0].result(*send).is_some())
                && recvs.iter().all(|recv| nodes[1].result(*recv).is_some())
        });
        both_ways(&mut b, a_of_b, &mut a, b_of_a, 100);
        assert!(a.lost.is_empty() && b.lost.is_empty());
    }
}

/// H-11: a refused caller calls again, and is accepted once its name is inserted, also without a question.
#[test]
fn a_refused_caller_that_is_inserted_later_loses_nothing() {
    for fabric in FABRICS {
        for callers in [Callers::Refuse, Callers::Hold] {
            let mut a = Node::open(settings(fabric, Callers::Refuse));
            let mut b = Node::open(settings(fabric, callers));
            let b_of_a = a.insert(&b.name.clone());
            let send = a.send(b_of_a, 7, 3000);
            until(&mut [&mut a, &mut b], "refusals", |nodes| {
                while let Some(name) = nodes[1].transport.poll_caller() {
                    nodes[1].transport.refuse(&name);
                }
                nodes[1].refused() >= 3
            });
            let a_of_b = b.insert(&a.name.clone());
            let recv = b.recv(Some(a_of_b), 7);
            until(&mut [&mut a, &mut b], "the message", |nodes| {
                nodes[0].result(send).is_some() && nodes[1].result(recv).is_some()
            });
            assert_eq!(b.result(recv).unwrap().map(|done| done.bytes), Ok(3000), "{fabric:?} {callers:?}");
        }
    }
}

/// H-11: by `callers` = `accept` no process needs to insert a caller.
#[test]
fn peers_not_inserted_are_accepted_if_the_setting_allows() {
    for fabric in FABRICS {
        let mut a = Node::open(settings(fabric, Callers::Refuse));
        let mut b = Node::open(settings(fabric, Callers::Accept));
        let b_of_a = a.insert(&b.name.clone());
        let (send, recv) = (a.send(b_of_a, 3, 100), b.recv(None, 3));
        until(&mut [&mut a, &mut b], "the message", |nodes| {
            nodes[0].result(send).is_some() && nodes[1].result(recv).is_some()
        });
        let a_of_b = b.result(recv).unwrap().expect("a message").peer;
        assert_eq!(b.transport.name_of(a_of_b), Some(a.name), "{fabric:?}");
        assert_eq!(b.transport.insert(&a.name), Ok(a_of_b));
        both_ways(&mut a, b_of_a, &mut b, a_of_b, 10);
    }
}

/// All orders: who inserts first, whether it sends before the other has inserted it, and both at once.
#[test]
fn calls_that_cross_become_one() {
    for fabric in FABRICS {
        for round in 0..12 {
            let [mut a, mut b] = [(); 2].map(|()| Node::open(settings(fabric, Callers::Hold)));
            let (b_of_a, a_of_b);
            if round % 2 == 0 {
                (b_of_a, a_of_b) = (a.insert(&b.name.clone()), b.insert(&a.name.clone()));
                a.send(b_of_a, 1, 10);
                b.send(a_of_b, 1, 10);
            } else {
                b_of_a = a.insert(&b.name.clone());
                a.send(b_of_a, 1, 10);
                (0..round).for_each(|_| a.drive());
                (0..round / 4).for_each(|_| b.drive());
                a_of_b = b.insert(&a.name.clone());
                b.send(a_of_b, 1, 10);
            }
            both_ways(&mut a, b_of_a, &mut b, a_of_b, 10);
            assert!(a.lost.is_empty() && b.lost.is_empty(), "{fabric:?} {round}");
        }
    }
}

/// A third process that neither inserted is refused by both, and counted; a name that carries another
/// process's key leads nowhere.
#[test]
fn unknown_processes_and_forged_names_are_refused() {
    for fabric in FABRICS {
        let [mut a, mut b, mut third] = [(); 3].map(|()| Node::open(settings(fabric, Callers::Refuse)));
        let (b_of_a, a_of_b) = (a.insert(&b.name.clone()), b.insert(&a.name.clone()));
        both_ways(&mut a, b_of_a, &mut b, a_of_b, 10);
        for other in [a.name, b.name] {
            let peer = third.insert(&other);
            third.send(peer, 10, 100);
        }
        // The addresses of the third with the key of `b`.
        let mut bytes: [u8; NAME_BYTES] = *third.name.bytes();
        bytes[10..26].copy_from_slice(&b.name.bytes()[10..26]);
        let fake = Name::parse(bytes).expect("well formed");
        assert_eq!(a.transport.insert(&fake), Err(InsertError::Key));
        let mut fourth = Node::open(settings(fabric, Callers::Refuse));
        let peer = fourth.insert(&fake);
        let lost = fourth.send(peer, 10, 100);
        until(&mut [&mut a, &mut b, &mut third, &mut fourth], "refusals by all three", |nodes| {
            nodes.iter().zip([3, 3, 1]).all(|(node, refusals)| node.refused() >= refusals)
        });
        assert!(fourth.result(lost).is_none_or(|result| result.is_err()), "{fabric:?}");
        both_ways(&mut a, b_of_a, &mut b, a_of_b, 20);
        for node in [&a, &b] {
            assert!(node.lost.is_empty() && node.closed.is_empty(), "{fabric:?}");
            assert_eq!(node.transport.rails().map(|rail| rail.counters.corrupt).sum::<u64>(), 0);
        }
        assert!(third.completed.is_empty(), "nothing of it has arrived");
    }
}

/// A removed peer is a stranger; when both have removed each other they can meet again, under new numbers,
/// any number of times.
#[test]
fn removed_peers_meet_again() {
    for fabric in FABRICS {
        let [mut a, mut b] = [(); 2].map(|()| Node::open(three(fabric, Callers::Hold)));
        for round in 0..6 {
            let (b_of_a, a_of_b) = (a.insert(&b.name.clone()), b.insert(&a.name.clone()));
            both_ways(&mut a, b_of_a, &mut b, a_of_b, 10);
            // It is not received.
            a.send(b_of_a, 99, 10);
            a.transport.remove(b_of_a).expect("a peer");
            assert_eq!(a.transport.insert(&b.name).err(), Some(InsertError::Leaving(b_of_a)));
            until(&mut [&mut a, &mut b], "BYE", |nodes| !nodes[1].closed.is_empty());
            b.transport.remove(a_of_b).expect("a peer");
            until(&mut [&mut a, &mut b], "both are removed", |nodes| {
                nodes[0].transport.name_of(b_of_a).is_none() && nodes[1].transport.name_of(a_of_b).is_none()
            });
            assert_eq!(a.transport.remove(b_of_a), Err(RemoveError::Unknown(b_of_a)));
            assert_eq!((a.closed.len(), b.closed.len()), (1, 1), "{fabric:?} {round}");
            assert!(a.lost.is_empty() && b.lost.is_empty());
            for node in [&mut a, &mut b] {
                node.closed.clear();
                node.completed.clear();
            }
        }
    }
}

#[test]
fn a_full_table_names_its_setting() {
    let fabric = Fabric::Shm;
    let mut a = Node::open(three(fabric, Callers::Refuse));
    let first = a.insert(&absent(fabric));
    a.insert(&absent(fabric));
    let third = absent(fabric);
    let full = a.transport.insert(&third).unwrap_err();
    assert_eq!(full, InsertError::Full { peers_max: 3 });
    assert!(full.to_string().contains("setting peers"), "{full}");
    a.transport.remove(first).expect("a peer");
    assert_eq!(a.transport.insert(&third), Ok(first), "an idle peer is removed at once");
    assert_eq!(a.transport.remove(PeerId(0)), Err(RemoveError::Own));
}

/// Three processes that insert each other in different orders, while messages already arrive.
#[test]
fn everybody_inserts_everybody_while_messages_arrive() {
    const NODES: usize = 6;
    for fabric in [Fabric::Shm, Fabric::Tcp] {
        let mut nodes: Vec<Node> = (0..NODES).map(|_| Node::open(settings(fabric, Callers::Hold))).collect();
        let names: Vec<Name> = nodes.iter().map(|node| node.name).collect();
        let mut recvs = Vec::new();
        for step in 1..NODES {
            for (index, node) in nodes.iter_mut().enumerate() {
                // Each in another order.
                let other = (index + step * (1 + 4 * (index % 2))) % NODES;
                let peer = node.insert(&names[other]);
                node.send(peer, index as u64, 2000);
                recvs.push((index, node.recv(Some(peer), other as u64)));
            }
            nodes.iter_mut().for_each(|node| (0..50).for_each(|_| node.drive()));
        }
        let mut all: Vec<&mut Node> = nodes.iter_mut().collect();
        until(&mut all, "all messages", |nodes| {
            recvs.iter().all(|(index, recv)| nodes[*index].result(*recv).is_some())
        });
        for (index, recv) in recvs {
            assert_eq!(nodes[index].result(recv).unwrap().map(|done| done.bytes), Ok(2000));
        }
        assert!(nodes.iter().all(|node| node.lost.is_empty()), "{fabric:?}");
    }
}

/// A row of drawn numbers (Marsaglia, xorshift).
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        (1..items.len()).for_each(|at| items.swap(at, self.below(at + 1)));
    }
}

/// Bytes of messages.
const SIZES: [u64; 3] = [8, 2_000, 20_000];

/// Processes that have many more peers than channels.
struct Crowd {
    nodes: Vec<Node>,
    drawn: Drawn,
    settings: Settings,
}

impl Crowd {
    fn new(size: usize, fabric: Fabric, seed: u64) -> Crowd {
        let mut settings = settings(fabric, Callers::Hold);
        settings.set("preset", "lean").expect("a preset");
        settings.core.channels_max = 16.min(size as u32 / 2);
        settings.peers = size as u32;
        let nodes = (0..size).map(|_| Node::open(settings.clone())).collect();
        Crowd { nodes, drawn: Drawn(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), settings }
    }

    fn drive_some(&mut self) {
        for _ in 0..4 {
            let node = self.drawn.below(self.nodes.len());
            self.nodes[node].drive();
        }
    }

    /// Each inserts the others that it does not have, in an order of its own, sends to each at once and
    /// receives of each. Gives how many did.
    fn meet(&mut self) -> usize {
        let names: Vec<Name> = self.nodes.iter().map(|node| node.name).collect();
        let mut due: Vec<(usize, usize)> = Vec::new();
        for (at, node) in self.nodes.iter_mut().enumerate() {
            node.completed.clear();
            let mut others: Vec<usize> =
                (0..names.len()).filter(|other| node.transport.peer_of(&names[*other]).is_none()).collect();
            self.drawn.shuffle(&mut others);
            due.extend(others.into_iter().map(|other| (at, other)));
        }
        // Of each node in its order, the nodes among each other in any.
        let met = due.len();
        let mut turns: Vec<usize> = due.iter().map(|(at, _)| *at).collect();
        self.drawn.shuffle(&mut turns);
        let mut rest: Vec<VecDeque<usize>> = vec![Default::default(); names.len()];
        due.iter().for_each(|(at, other)| rest[*at].push_back(*other));
        let mut receives = HashSet::new();
        for at in turns {
            let other = rest[at].pop_front().expect("as many turns as names");
            let node = &mut self.nodes[at];
            let peer = node.insert(&names[other]);
            let bytes = SIZES[other % 3];
            receives.insert((at, node.recv(Some(peer), other as u64)));
            node.waiting.push_back((peer, at as u64, bytes));
            node.drive();
            self.drive_some();
        }
        // A send and a receive of each.
        let end = Instant::now() + LIMIT + Duration::from_millis(20) * met as u32;
        while self.nodes.iter().map(|node| node.completed.len()).sum::<usize>() < 2 * met {
            self.nodes.iter_mut().for_each(Node::drive);
            if Instant::now() >= end {
                let waits = |node: &&Node| node.completed.len() < 2 * names.len() - 2;
                self.nodes.iter().filter(waits).take(2).for_each(|node| println!("{:#?}", node.transport));
                panic!("messages are missing");
            }
        }
        for (at, node) in self.nodes.iter().enumerate() {
            assert!(node.lost.is_empty() && node.closed.is_empty(), "{:?} {:?}", node.lost, node.closed);
            for (operation, result) in &node.completed {
                let done = result.expect("nothing is lost");
                if receives.contains(&(at, *operation)) {
                    let tag = done.tag.expect("a tagged message") as usize;
                    assert_eq!((node.transport.name_of(done.peer), done.bytes), (Some(names[tag]), SIZES[at % 3]));
                }
            }
        }
        met
    }

    /// Every second one and all others forget each other; of those, each second one ends, and another one
    /// starts in its place.
    fn half_leaves(&mut self) {
        let names: Vec<Name> = self.nodes.iter().map(|node| node.name).collect();
        let mut partings: Vec<(usize, usize)> = Vec::new();
        for at in (1..names.len()).step_by(2) {
            let others = (0..names.len()).filter(|other| *other != at);
            partings.extend(others.flat_map(|other| [(at, other), (other, at)]));
        }
        self.drawn.shuffle(&mut partings);
        for (at, other) in partings {
            let node = &mut self.nodes[at];
            if let Some(peer) = node.transport.peer_of(&names[other]) {
                match node.transport.remove(peer) {
                    Ok(()) | Err(RemoveError::Unknown(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            self.drive_some();
        }
        let end = Instant::now() + LIMIT + Duration::from_millis(20) * (names.len() * names.len()) as u32;
        let parted = |nodes: &[Node]| {
            (1..names.len()).step_by(2).all(|at| {
                let of_others = nodes.iter().enumerate().filter(|(other, _)| *other != at);
                let known_of = |node: &Node, name: &Name| node.transport.peer_of(name).is_some();
                of_others
                    .into_iter()
                    .all(|(other, node)| !known_of(node, &names[at]) && !known_of(&nodes[at], &names[other]))
            })
        };
        while !parted(&self.nodes) {
            self.nodes.iter_mut().for_each(Node::drive);
            assert!(Instant::now() < end, "some are not removed");
        }
        self.nodes.iter_mut().for_each(|node| node.closed.clear());
        for at in (1..names.len()).step_by(4) {
            self.nodes[at] = Node::open(self.settings.clone());
        }
    }
}

/// `RERAIL_TEST_PROCESSES` (16 by default) insert each other in drawn orders, while messages arrive of those
/// that are not inserted yet; half of them leave and come again, some as new processes. Each has at most 16
/// channels. `RERAIL_TEST_SEED` draws, `RERAIL_TEST_FABRIC` (`shm`, `tcp`; both by default) chooses.
#[test]
fn a_crowd_meets_by_name_and_half_of_it_comes_again() {
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"));
    let (size, seed) = (number("RERAIL_TEST_PROCESSES", 16), number("RERAIL_TEST_SEED", 1));
    let only = std::env::var("RERAIL_TEST_FABRIC").ok();
    for (fabric, name) in [(Fabric::Shm, "shm"), (Fabric::Tcp, "tcp")] {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let began = Instant::now();
        let mut crowd = Crowd::new(size as usize, fabric, seed);
        let first = crowd.meet();
        crowd.half_leaves();
        let again = crowd.meet();
        assert!(first == (size * (size - 1)) as usize && again > 0);
        println!("{fabric:?}: {size} processes, {first} and then {again} messages in {:.1?}", began.elapsed());
    }
}

/// In place of a launcher: the folder where each process writes its name, and its part.
const FOLDER: &str = "RERAIL_TEST_NAMES";
const PART: &str = "RERAIL_TEST_NAMES_PART";

fn publish(folder: &Path, part: &str, name: &Name) {
    let unfinished = folder.join(format!("{part}.new"));
    std::fs::write(&unfinished, name.bytes()).expect("the folder can be written to");
    std::fs::rename(unfinished, folder.join(part)).expect("the folder can be written to");
}

fn read(folder: &Path, part: &str) -> Name {
    let end = Instant::now() + LIMIT;
    loop {
        if let Ok(bytes) = std::fs::read(folder.join(part)) {
            return Name::parse(bytes.try_into().expect("64 bytes")).expect("a name");
        }
        assert!(Instant::now() < end, "{part} has not started");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Part of the next test, in a process of its own.
#[test]
fn in_a_process_of_its_own() {
    let (Ok(folder), Ok(part)) = (std::env::var(FOLDER), std::env::var(PART)) else { return };
    let (folder, [fabric, part]) = (PathBuf::from(folder), part.split('-').collect::<Vec<_>>().try_into().unwrap());
    let fabric = FABRICS.into_iter().find(|known| format!("{known:?}") == fabric).expect("a fabric");
    let mut node = Node::open(settings(fabric, Callers::Refuse));
    publish(&folder, part, &node.name.clone());
    let [a, b] = ["a", "b"].map(|part| read(&folder, part));
    if part == "third" {
        for name in [a, b] {
            let peer = node.insert(&name);
            node.send(peer, 5, 100);
        }
        // Until it is killed.
        loop {
            node.drive();
            // With errors, once the others have ended.
            assert!(node.completed.iter().all(|(_, result)| result.is_err()));
        }
    }
    let other = if part == "a" { b } else { a };
    let peer = node.insert(&other);
    for tag in 0..200 {
        let bytes = [8, 5_000, 300_000][tag as usize % 3];
        let (send, recv) = (node.send(peer, tag, bytes), node.recv(Some(peer), tag));
        until(&mut [&mut node], "a message each way", |nodes| {
            nodes[0].result(send).is_some() && nodes[0].result(recv).is_some()
        });
        assert_eq!(node.result(recv).unwrap().map(|done| done.bytes), Ok(bytes));
    }
    // Both go on, so that each is there for the other's last message.
    until(&mut [&mut node], "the third is refused", |nodes| nodes[0].refused() >= 2);
    assert!(node.lost.is_empty());
    std::fs::write(folder.join(format!("{part}.done")), []).expect("the folder can be written to");
    let end = Instant::now() + LIMIT;
    while !["a.done", "b.done"].iter().all(|file| folder.join(file).exists()) && Instant::now() < end {
        node.drive();
    }
    node.transport.finish(Some(Duration::from_secs(1))).expect("it closes");
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processes started apart exchange names through files and talk; a third, which neither has inserted, is
/// refused by both.
#[test]
fn processes_started_apart_find_each_other_by_files() {
    for fabric in FABRICS {
        let folder = std::env::temp_dir().join(format!("rerail-names-{}-{fabric:?}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        let start = |part: &str| {
            let child = Command::new(std::env::current_exe().expect("a test has a path"))
                .args(["--exact", "in_a_process_of_its_own", "--nocapture", "--test-threads=1"])
                .envs([(FOLDER, folder.display().to_string()), (PART, format!("{fabric:?}-{part}"))])
                .spawn();
            Killed(child.expect("it starts"))
        };
        let third = start("third");
        let mut pair = [start("a"), start("b")];
        for Killed(child) in &mut pair {
            let status = child.wait().expect("it was started");
            assert!(status.success(), "{fabric:?}: {status}");
        }
        drop(third);
        std::fs::remove_dir_all(&folder).expect("the test's own folder");
    }
}
