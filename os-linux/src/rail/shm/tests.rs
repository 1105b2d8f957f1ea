//! Rails against each other in one process, against dishonest peers, and against a process that is killed.

mod access;
mod descriptors;
mod gate;
mod gets;
mod hostile;
mod joint;
mod killed;
mod offers;
mod reads;
mod recover;
mod traffic;

use std::collections::HashMap;

use rerail_core::endpoint::{Arrival, PostKind, PostStatus, RailFault, Span};
use rerail_core::ids::{Key, PeerId, PlaceId, PostId};
use rerail_core::shm::RingConfig;
use rerail_core::time::{Nanos, Time};

use super::*;
use crate::auth::testing::{credentials, meet};

const JOB: u64 = 0x5417BA;

fn options() -> ShmOptions {
    ShmOptions { cells: 4, slots: 4, segment_bytes: 1024, eager_bytes_max: 1024, posts_max: 1000, ..ShmOptions::new(8) }
}

/// A sink that records its calls.
#[derive(Default)]
struct Recorder {
    /// Whole packets: sender, header, payload.
    taken: Vec<(PeerId, Vec<u8>, Vec<u8>)>,
    open: HashMap<u32, (PeerId, Vec<u8>, Vec<u8>)>,
    places: u32,
    completed: Vec<PostId>,
    /// Reads with an invalid key, and peers whose memory can't be read.
    unread: Vec<PostId>,
    closed: Vec<PeerId>,
    up: Vec<PeerId>,
    down: Vec<(PeerId, RailFault)>,
    /// Bytes of the pieces that placements are given in.
    piece_bytes: usize,
    /// Placements take no more than this.
    capacity: Option<usize>,
    /// Placements are aborted after so many bytes.
    aborted_after: Option<u64>,
    /// Packets with this first header byte make the sink request the end.
    close_on: Option<u8>,
    queued: Vec<PeerId>,
}

// SAFETY: `place` returns memory that this recorder owns, without other references until `placed`.
unsafe impl Sink for Recorder {
    fn arrival(&mut self, peer: PeerId, header: &[u8]) -> Arrival {
        assert!(self.up.contains(&peer), "a packet of {peer:?}, which is not up");
        assert!(self.open.is_empty(), "one packet at a time");
        if self.close_on.is_some_and(|byte| header.first() == Some(&byte)) {
            return Arrival::Close;
        }
        let bytes = header.get(4..8).map_or(0, |b| u32::from_le_bytes(b.try_into().unwrap()) as usize);
        if bytes == 0 || bytes > 1 << 20 {
            self.taken.push((peer, header.into(), Vec::new()));
            return Arrival::Done;
        }
        self.places += 1;
        let memory = vec![0; bytes.min(self.capacity.unwrap_or(bytes))];
        self.open.insert(self.places, (peer, header.into(), memory));
        Arrival::Place { id: PlaceId(Key { index: self.places, generation: 1 }), memory: Span::EMPTY }
    }

    fn place(&mut self, id: PlaceId, from: u64, pieces: &mut Vec<Piece>) -> bool {
        assert!(pieces.is_empty());
        if self.aborted_after.is_some_and(|after| from >= after) {
            self.open.remove(&id.0.index);
            return false;
        }
        let (_, _, memory) = self.open.get_mut(&id.0.index).expect("an open placement");
        let step = if self.piece_bytes == 0 { usize::MAX } else { self.piece_bytes };
        // No more than three pieces at once, so that the rail has to call again.
        for part in memory[from as usize..].chunks_mut(step).take(3) {
            pieces.push(Piece { start: part.as_mut_ptr(), len: part.len() });
        }
        true
    }

    fn placed(&mut self, id: PlaceId) {
        self.taken.push(self.open.remove(&id.0.index).expect("an open placement"));
    }

    fn completed(&mut self, id: PostId, status: PostStatus) {
        match status {
            PostStatus::Done | PostStatus::Taken => self.completed.push(id),
            PostStatus::NoAccess => self.unread.push(id),
            PostStatus::Failed => panic!("a post failed on a subchannel that stands"),
        }
    }

    fn up(&mut self, peer: PeerId) {
        self.up.push(peer);
    }

    fn no_remote_access(&mut self, peer: PeerId) {
        assert!(self.up.contains(&peer), "{peer:?} is not up");
        self.closed.push(peer);
    }

    fn down(&mut self, peer: PeerId, fault: RailFault) {
        self.open.clear();
        self.down.push((peer, fault));
    }

    fn queued(&mut self, peer: PeerId) {
        self.queued.push(peer);
    }

    fn reset(&mut self) {}

    fn moved(&mut self) {}
    fn back(&mut self) {}
}

/// A process of the job.
struct Node {
    rail: ShmRail,
    sink: Recorder,
    now: Time,
    posts: u32,
    /// Payloads, kept until the test ends.
    memory: Vec<Box<[u8]>>,
}

impl Node {
    fn new(rank: u32) -> Self {
        Node::with(rank, options())
    }

    fn with(rank: u32, options: ShmOptions) -> Self {
        Node::of(rank, options, credentials(rank))
    }

    fn of(rank: u32, options: ShmOptions, credentials: Credentials) -> Self {
        let rail = ShmRail::open(options, credentials, JOB, PeerId(rank)).unwrap();
        Node { rail, sink: Recorder::default(), now: Time(1), posts: 0, memory: Vec::new() }
    }

    fn me(&self) -> PeerId {
        self.rail.me
    }

    fn poll(&mut self) -> usize {
        self.rail.poll(self.now, &mut self.sink)
    }

    fn connect(&mut self, peer: u32) {
        self.rail.connect(self.now, PeerId(peer));
    }

    /// Posts a packet whose header and payload follow from `number`; the payload is in two pieces.
    fn send(&mut self, to: u32, number: u32, payload_bytes: usize) -> PostId {
        self.posts += 1;
        let id = PostId(Key { index: self.posts, generation: 3 });
        let (header, payload) = packet(number, payload_bytes);
        self.memory.push(payload.into());
        let memory = self.memory.last_mut().unwrap();
        let (first, second) = memory.split_at_mut(payload_bytes / 3);
        let pieces = [first, second].map(|part| Piece { start: part.as_mut_ptr(), len: part.len() });
        let (peer, kind, header) = (PeerId(to), PostKind::Send, &header[..]);
        // SAFETY: `self.memory` keeps the payload until the rail is gone.
        unsafe { self.rail.post(Outgoing { id, peer, kind, header, payload: &pieces, extent: 0 }) };
        id
    }

    fn taken_from(&self, peer: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
        let of = |(from, header, payload): &(PeerId, Vec<u8>, Vec<u8>)| {
            (from.0 == peer).then(|| (header.clone(), payload.clone()))
        };
        self.sink.taken.iter().filter_map(of).collect()
    }
}

fn packet(number: u32, payload_bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let mut header = number.to_le_bytes().to_vec();
    header.extend((payload_bytes as u32).to_le_bytes());
    header.resize(8 + number as usize * 7 % 249, number as u8);
    (header, (0..payload_bytes).map(|i| (i as u32).wrapping_mul(number | 1) as u8).collect())
}

/// Adds the rank as a peer of `node`; its address does not matter.
fn expect(node: &mut Node, rank: u32) {
    let known = node.rail.peers.entry(PeerId(rank)).or_default();
    known.key = Some(credentials(rank).public().fingerprint());
}

fn add_peers(nodes: &mut [&mut Node]) {
    for a in 0..nodes.len() {
        for b in (0..nodes.len()).filter(|&b| b != a) {
            let (peer, address) = (nodes[b].me(), nodes[b].rail.address());
            meet(&mut nodes[a].rail, peer.0, &address);
        }
    }
}

/// Polls all in turn until `over`; a test in which that never comes fails instead of hanging.
fn run(nodes: &mut [&mut Node], mut over: impl FnMut(&mut [&mut Node]) -> bool) {
    for _ in 0..200_000 {
        if over(nodes) {
            return;
        }
        for node in nodes.iter_mut() {
            node.poll();
        }
    }
    panic!("what the test waits for does not come");
}

/// Polls all in turn until nothing has happened for longer than the rails leave their sockets alone.
fn run_until_idle(nodes: &mut [&mut Node]) {
    let mut quiet = 0;
    while quiet < 200 {
        let moved: usize = nodes.iter_mut().map(|node| node.poll()).sum();
        quiet = if moved == 0 { quiet + 1 } else { 0 };
    }
}

fn connected(ranks: [u32; 2]) -> (Node, Node) {
    let (mut a, mut b) = (Node::new(ranks[0]), Node::new(ranks[1]));
    add_peers(&mut [&mut a, &mut b]);
    a.connect(ranks[1]);
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!((&a.sink.up[..], &b.sink.up[..]), (&[PeerId(ranks[1])][..], &[PeerId(ranks[0])][..]));
    (a, b)
}

const A_WHILE: Nanos = Nanos::from_millis(100_000);
