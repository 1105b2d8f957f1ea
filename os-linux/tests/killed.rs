//! A rank that is killed amid full rings and sockets: the others report it lost by name and rail, finish what
//! they can, have the memory of its requests back at once, and nothing of it is left in this process or in
//! the system.
//!
//! The only test of this program, because it counts the process's descriptors and mappings. Rank 2 is the
//! program itself, started again.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use rerail_core::config::Config;
use rerail_core::endpoint::{
    Completion, Done, Event, Loss, LossReason, OpError, RailFault, RecvRequest, Selector, SendRequest,
};
use rerail_core::ids::{Cookie, PeerId};
use rerail_core::mem::Seg;
use rerail_linux::auth::{Credentials, Secret};
use rerail_linux::driver::{Opening, Transport};
use rerail_linux::rail::Rail;
use rerail_linux::rail::loopback::Loopback;
use rerail_linux::rail::shm::{ShmOptions, ShmRail};
use rerail_linux::rail::tcp::{TcpOptions, TcpRail};

const RANKS: u32 = 3;
const KILLED: PeerId = PeerId(2);
const FABRIC: &str = "RERAIL_TEST_KILLED";
const LARGE: usize = 16 << 20;

fn opening(rank: u32, fabric: &str) -> Opening {
    let (me, key) = (PeerId(rank), Credentials::new([rank as u8; 32], Secret::new([3; 32])));
    let rail: Box<dyn Rail + Send> = match fabric {
        "shm" => Box::new(ShmRail::open(ShmOptions::new(RANKS), key, 9, me).unwrap()),
        _ => {
            let buffer = Some(64 * 1024);
            let options = TcpOptions::new([127, 0, 0, 1].into(), 0);
            let options = TcpOptions { send_buffer_bytes: buffer, receive_buffer_bytes: buffer, ..options };
            Box::new(TcpRail::open(options, key, 9, me).unwrap())
        }
    };
    let rails = vec![Box::new(Loopback::new(me)) as Box<dyn Rail + Send>, rail];
    Opening::with_rails(Config::new(me, RANKS), "here".to_owned(), rails, 1).unwrap()
}

fn learn(mut opening: Opening, address_records: &[String]) -> Transport {
    for (rank, address_record) in address_records.iter().enumerate() {
        opening.learn(PeerId(rank as u32), address_record).unwrap();
    }
    opening.join().unwrap()
}

/// Rank 2: takes the beginning of a large message, reports it, and does nothing more.
fn doomed(fabric: &str) {
    let opening = opening(KILLED.0, fabric);
    println!("\ncard {}", opening.address_record());
    let address_records: Vec<String> = std::io::stdin().lines().take(RANKS as usize).map(Result::unwrap).collect();
    let mut transport = learn(opening, &address_records);
    let memory = transport.alloc(LARGE).unwrap();
    transport.recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &[Seg::new(memory, 0, LARGE as u64)])).unwrap();
    let mut first = [0];
    while first == [0] {
        transport.progress();
        transport.read(Seg::new(memory, 0, 1).at, &mut first).unwrap();
    }
    println!("\nbegun");
    // Until it is killed, or its parent is gone.
    let _ = std::io::stdin().read(&mut [0]);
}

/// What is counted before and after, by a name for people.
fn census() -> [(&'static str, usize); 3] {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let shm = std::fs::read_dir("/dev/shm").map_or(0, |entries| {
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().contains("rerail")).count()
    });
    [
        ("descriptors", std::fs::read_dir("/proc/self/fd").unwrap().count()),
        ("mapped rings", maps.lines().filter(|line| line.contains("rerail-ring")).count()),
        ("names in /dev/shm", shm),
    ]
}

/// Ranks 0 and 1 in this thread, and what they have reported.
struct Cluster {
    ranks: [Transport; 2],
    done: HashMap<(usize, u64), Result<Done, OpError>>,
    lost: Vec<(usize, PeerId, Loss)>,
}

impl Cluster {
    fn step(&mut self) {
        for (rank, transport) in self.ranks.iter_mut().enumerate() {
            transport.progress();
            while let Some(event) = transport.poll_event() {
                match event {
                    Event::Completed(Completion { cookie, result, .. }) => {
                        assert!(self.done.insert((rank, cookie.0), result).is_none(), "reported twice");
                    }
                    Event::PeerLost { peer, why } => self.lost.push((rank, peer, why)),
                    Event::PeerUp { .. } | Event::PeerClosed { .. } | Event::Written(_) => {}
                }
            }
        }
    }

    /// A large message from rank 0 to rank 1 with this cookie, from and to the regions given.
    fn exchange(&mut self, cookie: u64, memory: [rerail_core::mem::RegionId; 2]) {
        let segments = memory.map(|region| [Seg::new(region, 0, LARGE as u64)]);
        let from = Selector { source: Some(PeerId(0)), ..Selector::ANY_UNTAGGED };
        let recv = RecvRequest { cookie: Cookie(cookie), segments: &segments[1], ..RecvRequest::new(from, &[]) };
        self.ranks[1].recv(&recv).unwrap();
        let send = SendRequest { cookie: Cookie(cookie), segments: &segments[0], ..SendRequest::new(PeerId(1), &[]) };
        self.ranks[0].send(&send).unwrap();
    }
}

fn a_killed_rank_leaves_nothing(fabric: &str) {
    let before = census();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(FABRIC, fabric)
        .args(["--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let openings = [0, 1].map(|rank| opening(rank, fabric));
    let mut address_records = openings.each_ref().map(|opening| opening.address_record().to_owned()).to_vec();
    address_records.push(output.find_map(|line| line.strip_prefix("card ").map(str::to_owned)).unwrap());
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", address_records.join("\n")).unwrap();
    let ranks = openings.map(|opening| learn(opening, &address_records));
    let mut cluster = Cluster { ranks, done: HashMap::new(), lost: Vec::new() };

    // Rank 1 is connected to rank 2 as well, and waits for it.
    cluster.ranks[1]
        .inject(&SendRequest { cookie: Cookie(1), tag: Some(1), ..SendRequest::new(KILLED, &[]) }, b"hello")
        .unwrap();
    let from = Selector { source: Some(KILLED), ..Selector::ANY_UNTAGGED };
    cluster.ranks[1].recv(&RecvRequest { cookie: Cookie(2), ..RecvRequest::new(from, &[]) }).unwrap();
    let doomed = cluster.ranks[0].alloc(LARGE).unwrap();
    cluster.ranks[0].bytes_mut(doomed).unwrap().fill(0xAB);
    let segments = [Seg::new(doomed, 0, LARGE as u64)];
    cluster.ranks[0].send(&SendRequest { cookie: Cookie(3), ..SendRequest::new(KILLED, &segments) }).unwrap();
    let (line, lines) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || output.find(|text| text == "begun").map(|text| line.send(text)));
        while lines.try_recv().is_err() {
            cluster.step();
        }
    });
    // Until all that it takes is taken: the rest waits in rails, in the memory of the request.
    let sent = |cluster: &Cluster| cluster.ranks[0].rails().map(|rail| rail.counters.bytes_sent).sum::<u64>();
    let mut full = (sent(&cluster), 0);
    while full.1 < 1000 {
        cluster.step();
        full = if sent(&cluster) == full.0 { (full.0, full.1 + 1) } else { (sent(&cluster), 0) };
    }
    assert!(full.0 < LARGE as u64, "the whole message fits into rings and sockets");
    assert_eq!(cluster.done.get(&(0, 3)), None);

    let memory = [0, 1].map(|rank| cluster.ranks[rank].alloc(LARGE).unwrap());
    cluster.ranks[0].bytes_mut(memory[0]).unwrap().fill(0xCD);
    cluster.exchange(10, memory);
    child.kill().unwrap();
    child.wait().unwrap();
    while cluster.lost.len() < 2 {
        cluster.step();
    }
    // The memory is the caller's again, and gone: a rail that still used it would crash or send an error.
    cluster.ranks[0].free(doomed).unwrap();
    for &(rank, peer, why) in &cluster.lost {
        assert_eq!(peer, KILLED);
        let LossReason::RailFailed { rail, fault } = why.reason else { panic!("{why:?} names no rail") };
        assert!(matches!(fault, RailFault::Closed | RailFault::Gone | RailFault::Device { .. }), "{fault:?}");
        let name = cluster.ranks[rank].rails().find(|info| info.id == rail).unwrap().name;
        assert!(name.starts_with(fabric), "{name}");
        let waiting = (rank, [3, 2][rank]);
        assert_eq!(cluster.done[&waiting], Err(OpError::PeerLost { peer, why }));
    }
    while !(cluster.done.contains_key(&(0, 10)) && cluster.done.contains_key(&(1, 10))) {
        cluster.step();
    }
    cluster.exchange(11, memory);
    while !(cluster.done.contains_key(&(0, 11)) && cluster.done.contains_key(&(1, 11))) {
        cluster.step();
    }
    for key in [(0, 10), (1, 10), (0, 11), (1, 11)] {
        assert!(cluster.done[&key].is_ok(), "{key:?}: {:?}", cluster.done[&key]);
    }
    assert!(cluster.ranks[1].bytes(memory[1]).unwrap().iter().all(|&byte| byte == 0xCD));
    // Between two ranks of one process a ring is mapped by both; those to rank 2 are gone.
    let rings = if fabric == "shm" { 4 } else { 0 };
    assert_eq!(census()[1], ("mapped rings", rings));
    drop((cluster, stdin));
    assert_eq!(census(), before);
}

#[test]
fn killed_rank_is_reported_and_leaves_no_resources() {
    match std::env::var(FABRIC) {
        Ok(fabric) => doomed(&fabric),
        Err(_) => ["shm", "tcp"].into_iter().for_each(a_killed_rank_leaves_nothing),
    }
}
