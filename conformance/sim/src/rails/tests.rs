//! Two ranks, a rail between them, and all that may become of subchannels (F-2, L-15 to L-17).

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::rc::Rc;

use rerail_core::endpoint::{Access, Arrival, PostKind, PostStatus, RailFault, Span};
use rerail_core::ids::{Key, PeerId, PlaceId, PostId};
use rerail_core::shm::RingConfig;
use rerail_core::time::Time;
use rerail_core::wire::{Body, Common, Data, RemoteKey, Repr};
use rerail_linux::rail::{DirectAccess, Outgoing, Piece, Rail, Sink};

use super::{MapModel, PipeNet, ReadModel, ShmHub, StreamRail};
use crate::net::{BusModel, Direction, HcaModel, LinkModel, Net, PlaneModel, PortId, SubnetModel};
use crate::rng::Rng;

#[derive(Default)]
struct RecordingSink {
    standing: bool,
    up: usize,
    down: Vec<RailFault>,
    completed: usize,
    /// Numbers of packets that came whole.
    taken: Vec<u64>,
    open: Option<(u64, Vec<u8>)>,
}

// SAFETY: `place` answers with memory that this recorder owns and no other code refers to until `placed`.
unsafe impl Sink for RecordingSink {
    fn arrival(&mut self, _: PeerId, header: &[u8]) -> Arrival {
        assert!(self.standing && self.open.is_none());
        let repr = Repr::parse(header).unwrap();
        let Body::Data(Data { operation, .. }) = repr.body else { panic!("not sent here") };
        self.open = Some((operation, vec![0; repr.common.payload_bytes as usize]));
        let memory = Span::EMPTY;
        Arrival::Place { id: PlaceId(Key { index: 1, generation: 1 }), memory }
    }

    fn place(&mut self, _: PlaceId, from: u64, pieces: &mut Vec<Piece>) -> bool {
        let (_, memory) = self.open.as_mut().expect("an open placement");
        let rest = &mut memory[from as usize..];
        pieces.push(Piece { start: rest.as_mut_ptr(), len: rest.len() });
        true
    }

    fn placed(&mut self, _: PlaceId) {
        let (number, memory) = self.open.take().expect("an open placement");
        assert!(memory.iter().all(|byte| *byte == number as u8), "packet {number} is damaged");
        self.taken.push(number);
    }

    fn completed(&mut self, _: PostId, _: PostStatus) {
        assert!(self.standing);
        self.completed += 1;
    }

    fn up(&mut self, _: PeerId) {
        assert!(!self.standing, "up already");
        (self.standing, self.up) = (true, self.up + 1);
    }

    fn down(&mut self, _: PeerId, fault: RailFault) {
        (self.standing, self.open) = (false, None);
        self.down.push(fault);
    }

    fn reset(&mut self) {}

    fn moved(&mut self) {}
    fn back(&mut self) {}
}

/// What carries: called with the time, it returns when something happens next.
type Ground = Box<dyn FnMut(Time) -> Option<Time>>;

struct Pair {
    rails: [Box<dyn Rail>; 2],
    sinks: [RecordingSink; 2],
    ground: Ground,
    now: Time,
    posts: u32,
    /// Payloads, kept until the test ends.
    memory: Vec<Vec<u8>>,
}

impl Pair {
    fn new(rails: [Box<dyn Rail>; 2], ground: Ground) -> Self {
        Pair { rails, sinks: Default::default(), ground, now: Time(1), posts: 0, memory: Vec::new() }
    }

    fn streams() -> (Self, Rc<RefCell<PipeNet>>) {
        let mut net = Net::new(7);
        let plane = PlaneModel { latency_ns: 0, bytes_per_second: 0 };
        let subnet = net.add_subnet(&SubnetModel { latency_ns: 100, planes: vec![plane] });
        for lid in [2, 3] {
            let host = net.add_host();
            let bus = net.add_bus(host, BusModel::default());
            let hca = net.add_hca(bus, HcaModel::default());
            net.add_port(hca, subnet, LinkModel::default(), lid, 0);
        }
        let mut pipes = PipeNet::over(net);
        pipes.listen(0, 0, PortId(0));
        pipes.listen(0, 1, PortId(1));
        let pipes = Rc::new(RefCell::new(pipes));
        let rail = |rank| Box::new(StreamRail::new(pipes.clone(), 0, rank, 0)) as Box<dyn Rail>;
        let ground = pipes.clone();
        let ground = move |now| {
            ground.borrow_mut().advance(now);
            ground.borrow().next_event()
        };
        (Self::new([rail(0), rail(1)], Box::new(ground)), pipes)
    }

    fn rings() -> (Self, ShmHub) {
        let hub = ShmHub::new(vec![0, 0], RingConfig { cells: 4, slots: 4, slot_bytes: 4096 + 256 }, 8, 100);
        let rail = |rank| Box::new(hub.rail(rank)) as Box<dyn Rail>;
        let ground = hub.clone();
        let ground = move |now| {
            ground.set_now(now);
            let mut woken = Vec::new();
            ground.take_woken(&mut woken);
            woken.iter().map(|(_, at)| *at).max()
        };
        (Self::new([rail(0), rail(1)], Box::new(ground)), hub)
    }

    fn poll(&mut self, rank: usize) -> usize {
        self.rails[rank].poll(self.now, &mut self.sinks[rank])
    }

    /// Polls both; where nothing happens, goes to the time when something does. `false`: never.
    fn step(&mut self) -> bool {
        let next = (self.ground)(self.now);
        let happened = self.poll(0) + self.poll(1);
        let timers = self.rails.iter().filter_map(|rail| rail.next_timeout());
        let Some(next) = next.into_iter().chain(timers).min() else { return happened > 0 };
        if happened == 0 {
            self.now = self.now.max(next);
        }
        true
    }

    fn until(&mut self, come_true: impl Fn(&Pair) -> bool) {
        for _ in 0..100_000 {
            if come_true(self) {
                return;
            }
            self.step();
        }
        panic!("it does not come, at {:?}: {:?} {:?}", self.now, self.sinks[0].down, self.sinks[1].down);
    }

    fn run_until_idle(&mut self) {
        let mut quiet = 0;
        while quiet < 5 {
            quiet = if self.step() { 0 } else { quiet + 1 };
        }
    }

    fn connect(&mut self, rank: usize) {
        self.rails[rank].connect(self.now, PeerId(1 - rank as u32));
    }

    fn abort(&mut self, rank: usize) {
        self.rails[rank].abort(PeerId(1 - rank as u32));
        (self.sinks[rank].standing, self.sinks[rank].open) = (false, None);
    }

    fn send(&mut self, rank: usize, number: u64, bytes: usize) {
        let common = Common { source: rank as u32, payload_bytes: bytes as u32, ..Common::default() };
        let body = Body::Data(Data { operation: number, offset: 0 });
        let header = Repr { common, body }.emit_vec().unwrap();
        let mut payload = vec![number as u8; bytes];
        let pieces = [Piece { start: payload.as_mut_ptr(), len: bytes }];
        self.posts += 1;
        let id = PostId(Key { index: self.posts, generation: 1 });
        let peer = PeerId(1 - rank as u32);
        let (kind, header) = (PostKind::Send, &header[..]);
        // SAFETY: `self.memory` keeps the payload until the rails are gone.
        unsafe { self.rails[rank].post(Outgoing { id, peer, kind, header, payload: &pieces, extent: 0 }) };
        self.memory.push(payload);
    }

    fn both_stand(&self) -> bool {
        self.sinks.iter().all(|sink_record| sink_record.standing)
    }
}

fn each(test: impl Fn(&str, fn() -> Pair)) {
    test("streams", || Pair::streams().0);
    test("rings", || Pair::rings().0);
}

/// F-2, L-15
#[test]
fn an_aborted_subchannel_is_silent() {
    each(|kind, make| {
        let mut pair = make();
        pair.connect(0);
        pair.until(Pair::both_stand);
        for number in 0..8 {
            pair.send(0, number, 4000);
            pair.send(1, number, 4000);
        }
        for _ in 0..3 {
            pair.step();
        }
        let before = (pair.sinks[0].completed, pair.sinks[0].taken.len());
        pair.abort(0);
        pair.memory.iter_mut().for_each(|memory| memory.fill(0xEE));
        pair.run_until_idle();
        assert_eq!((pair.sinks[0].completed, pair.sinks[0].taken.len()), before, "{kind}");
        assert!(pair.sinks[0].down.is_empty() && !pair.rails[0].is_closing(), "{kind}");
        assert_eq!(pair.sinks[1].down, [RailFault::Closed], "{kind}");
        pair.connect(1);
        pair.until(Pair::both_stand);
        pair.send(0, 77, 100);
        pair.until(|pair| pair.sinks[1].taken.last() == Some(&77));
    });
}

/// L-15: what one side has closed does not come up again there when the other side answers.
#[test]
fn a_closed_subchannel_stays_closed() {
    each(|kind, make| {
        let mut pair = make();
        pair.connect(0);
        pair.until(Pair::both_stand);
        pair.send(1, 3, 100);
        pair.rails[0].disconnect(PeerId(1));
        pair.sinks[0].standing = false;
        pair.run_until_idle();
        assert_eq!((pair.sinks[0].up, &pair.sinks[1].down[..]), (1, &[RailFault::Closed][..]), "{kind}");
        pair.connect(1);
        pair.until(Pair::both_stand);
    });
}

/// L-16: the other side still uses the old one.
#[test]
fn stale_estimates_are_corrected() {
    each(|kind, make| {
        let mut pair = make();
        pair.connect(0);
        pair.until(Pair::both_stand);
        for life in 1..6 {
            let rank = life % 2;
            pair.abort(rank);
            pair.connect(rank);
            pair.until(|pair| pair.sinks[1 - rank].up == life + 1 && pair.both_stand());
            assert_eq!(pair.sinks.iter().map(|sink_record| sink_record.down.len()).sum::<usize>(), life, "{kind}");
        }
    });
}

/// L-16
#[test]
fn any_order_of_dials_and_ends() {
    each(|kind, make| {
        for seed in 0..300 {
            let mut rng = Rng::new(seed, "dials and ends");
            let mut pair = make();
            for number in 0..80 {
                let rank = rng.below(2) as usize;
                match rng.below(12) {
                    0 => pair.abort(rank),
                    1 => {
                        pair.rails[rank].disconnect(PeerId(1 - rank as u32));
                        (pair.sinks[rank].standing, pair.sinks[rank].open) = (false, None);
                    }
                    2..5 => pair.connect(rank),
                    5..7 if pair.sinks[rank].standing => pair.send(rank, number, 500),
                    7..9 => drop(pair.poll(rank)),
                    _ => drop(pair.step()),
                }
            }
            for _ in 0..400 {
                pair.connect(0);
                pair.connect(1);
                pair.step();
            }
            assert!(pair.both_stand(), "{kind}, seed {seed}");
            let ups = (pair.sinks[0].up, pair.sinks[1].up);
            pair.send(0, 200, 100);
            pair.send(1, 201, 100);
            pair.until(|pair| pair.sinks[1].taken.contains(&200) && pair.sinks[0].taken.contains(&201));
            assert_eq!(ups, (pair.sinks[0].up, pair.sinks[1].up), "{kind}, seed {seed}: it stays");
        }
    });
}

/// L-16: no process listens any more.
#[test]
fn connect_to_a_killed_process_reports_rail_gone() {
    let (mut pair, pipes) = Pair::streams();
    pipes.borrow_mut().kill(1);
    pair.connect(0);
    pair.until(|pair| pair.sinks[0].down == [RailFault::Gone]);
    let (mut pair, hub) = Pair::rings();
    hub.kill(1);
    pair.connect(0);
    pair.until(|pair| pair.sinks[0].down == [RailFault::Gone]);
}

/// L-17
#[test]
fn a_stream_ends_with_its_link() {
    let (mut pair, pipes) = Pair::streams();
    pair.connect(0);
    pair.until(Pair::both_stand);
    let set = |pair: &mut Pair, up| {
        let now = pair.now;
        pipes.borrow_mut().net_mut().set_link(now, PortId(0), Direction::Both, up, Some(rerail_core::time::Nanos(0)));
    };
    let net_down = RailFault::Device { code: 100 };
    for life in 1..4 {
        set(&mut pair, false);
        pair.until(|pair| !pair.sinks[0].standing);
        assert_eq!(pair.sinks[0].down, [net_down]);
        pair.connect(0);
        pair.until(|pair| pair.sinks[0].down == [net_down; 2]);
        set(&mut pair, true);
        // Its port sees it at its next look.
        for _ in 0..5 {
            pair.step();
        }
        pair.connect(0);
        pair.until(|pair| pair.both_stand() && pair.sinks[1].up == life + 1);
        pair.sinks[0].down.clear();
    }
}

/// L-18, L-20, F-2: a rank that was stopped between its look at the number of the list and its copy does not
/// complete the read once the owner has given the subchannel up, and neither with memory that was withdrawn.
#[test]
fn no_copy_out_of_a_mapping_counts_once_its_memory_has_another_use() {
    let model = ReadModel { portion: 64, bytes_per_second: 0, denied_one_in: 0, refused_one_in: 0, joint_unit: 0 };
    let maps = MapModel { bytes_max: 1 << 20, unsafe_one_in: 0, refused_one_in: 0, busy_one_in: 0 };
    for aborts in [false, true] {
        let (mut pair, hub) = Pair::rings();
        hub.set_reads(model, 1);
        hub.set_maps(maps, 1);
        let mut memory = vec![1_u8; 128];
        let whole = Piece { start: memory.as_mut_ptr(), len: memory.len() };
        pair.rails[1].offer(whole, std::io::stdin().as_fd(), false);
        // SAFETY: the memory is there until the rails are gone.
        let key = unsafe { pair.rails[1].register(whole, false) }.unwrap();
        pair.connect(0);
        pair.until(Pair::both_stand);
        let mut target = vec![0_u8; 128];
        let mut read = |pair: &mut Pair, bytes: usize| {
            let pieces = [Piece { start: target.as_mut_ptr(), len: bytes }];
            pair.posts += 1;
            let id = PostId(Key { index: pair.posts, generation: 1 });
            let kind =
                PostKind::Read { from: RemoteKey { key: key.key, address: key.address, ..RemoteKey::default() } };
            let outgoing = Outgoing { id, peer: PeerId(1), kind, header: &[], payload: &pieces, extent: 0 };
            // SAFETY: the target is there until the rails are gone.
            unsafe { pair.rails[0].post(outgoing) };
        };
        // The list comes with the first read.
        read(&mut pair, 64);
        pair.until(|_| hub.map_counts().lists == 1);
        pair.until(|pair| pair.sinks[0].completed == 1);
        let copies = hub.map_counts().copies;
        read(&mut pair, 64);
        pair.poll(0);
        match aborts {
            true => pair.abort(1),
            false => pair.rails[1].forget(whole),
        }
        pair.poll(0);
        assert_eq!((hub.map_counts().copies, hub.map_counts().stale), (copies, 1), "{aborts}");
        // By its key it is read at once.
        assert_eq!(pair.sinks[0].completed, if aborts { 1 } else { 2 });
        pair.until(|pair| pair.sinks[0].standing != aborts);
        assert!(aborts || target[..64] == memory[..64]);
    }
}

/// L-28: a rank gets out of memory that is not mapped while the window is listed; it puts nothing there.
#[test]
fn ordinary_windows_are_read_until_they_are_withdrawn() {
    let (mut pair, hub) = Pair::rings();
    hub.set_reads(
        ReadModel { portion: 64, bytes_per_second: 0, denied_one_in: 0, refused_one_in: 0, joint_unit: 0 },
        1,
    );
    let mut memory: Vec<u8> = (0..=255).collect();
    let whole = Piece { start: memory.as_mut_ptr(), len: memory.len() };
    pair.rails[1].expose(7, whole, Access { read: true, write: true, atomic: false });
    pair.connect(0);
    pair.until(Pair::both_stand);
    let mut own = [0_u8; 100];
    let mut access = |pair: &mut Pair, is_put, offset, len| {
        let pieces = [Piece { start: own.as_mut_ptr(), len }];
        let access = DirectAccess { peer: PeerId(1), is_put, window: 7, offset, pieces: &pieces };
        // SAFETY: the array outlives the call.
        (unsafe { pair.rails[0].access(&access) }, own)
    };
    let got = (0..50).filter(|_| {
        let (is_done, own) = access(&mut pair, false, 156, 100);
        assert!(!is_done || own[..] == (156..=255).collect::<Vec<u8>>());
        is_done
    });
    assert!((1..50).contains(&got.count()) && hub.map_counts().gets > 0);
    for (is_put, offset, len) in [(true, 0, 100), (false, 157, 100), (false, 0, 8)] {
        assert!((0..20).all(|_| !access(&mut pair, is_put, offset, len).0), "{is_put} {offset} {len}");
    }
    assert!(pair.rails[1].withdraw(7));
    assert!((0..20).all(|_| !access(&mut pair, false, 0, 100).0));
    assert!(memory == (0..=255).collect::<Vec<u8>>());
}

/// L-26, L-27: a rank puts and gets by itself; while it has announced a put, as one that was stopped there,
/// the window is not released: not by the end of the link either.
#[test]
fn no_window_is_released_while_a_put_is_announced() {
    let model = ReadModel { portion: 64, bytes_per_second: 0, denied_one_in: 0, refused_one_in: 0, joint_unit: 0 };
    for (busy_one_in, aborts) in [(0, false), (1, false), (1, true)] {
        let (mut pair, hub) = Pair::rings();
        hub.set_reads(model, 1);
        hub.set_maps(MapModel { bytes_max: 1 << 20, unsafe_one_in: 0, refused_one_in: 0, busy_one_in: 0 }, 1);
        let mut memory = vec![1_u8; 128];
        let whole = Piece { start: memory.as_mut_ptr(), len: memory.len() };
        pair.rails[1].offer(whole, std::io::stdin().as_fd(), true);
        pair.rails[1].expose(7, whole, Access { read: true, write: true, atomic: false });
        pair.connect(0);
        pair.until(Pair::both_stand);
        let mut own = [5_u8; 8];
        let access = |pair: &mut Pair, is_put, offset, own: &mut [u8; 8]| {
            let pieces = [Piece { start: own.as_mut_ptr(), len: own.len() }];
            let access = DirectAccess { peer: PeerId(1), is_put, window: 7, offset, pieces: &pieces };
            // SAFETY: the array outlives the call.
            unsafe { pair.rails[0].access(&access) }
        };
        assert!(!access(&mut pair, true, 0, &mut own), "nothing is mapped yet");
        pair.until(|_| hub.map_counts().lists == 1);
        hub.set_maps(MapModel { bytes_max: 1 << 20, unsafe_one_in: 0, refused_one_in: 0, busy_one_in }, 1);
        assert!(access(&mut pair, true, 120, &mut own) && !access(&mut pair, true, 121, &mut own));
        own.fill(0);
        assert!(access(&mut pair, false, 116, &mut own));
        assert_eq!(own, [1, 1, 1, 1, 5, 5, 5, 5]);
        assert!(access(&mut pair, true, 0, &mut own));
        if aborts {
            pair.abort(1);
        }
        assert_eq!(pair.rails[1].withdraw(7), busy_one_in == 0);
        assert!(!access(&mut pair, true, 8, &mut own));
        pair.poll(0);
        assert!(pair.rails[1].withdraw(7) && memory[..9] == [1, 1, 1, 1, 5, 5, 5, 5, 1]);
    }
}
