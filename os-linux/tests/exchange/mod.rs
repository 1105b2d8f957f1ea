//! Ranks that exchange numbered messages of small and large sizes with each other, one of them in this
//! process, the others as processes of their own; every byte and number is checked where it arrives.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use rerail_core::config::Config;
use rerail_core::endpoint::{Completion, Event, Loss, OpError, RecvRequest, Selector, SendRequest, TagMatch};
use rerail_core::ids::{Cookie, PeerId};
use rerail_core::mem::{RegionId, Seg};
use rerail_linux::auth::{Credentials, Secret};
use rerail_linux::driver::{Opening, Transport};
use rerail_linux::rail::Rail;
use rerail_linux::rail::loopback::Loopback;
use rerail_linux::rail::shm::{ShmOptions, ShmRail};
use rerail_linux::rail::tcp::{TcpOptions, TcpRail};
use rustix::process::{Pid, Signal, kill_process};

pub const RANKS: u32 = 3;
/// Contains a process's rank and fabric.
const ROLE: &str = "RERAIL_TEST_EXCHANGE";
/// Messages under way from each rank to each other.
const WINDOW: u64 = 4;
/// Sizes in turn: eager, and large ones.
const SIZES: [u64; 3] = [64, 5000, 700_000];
const SIZE_MAX: u64 = 700_000;
/// The pattern is longer than any message by so much: each begins elsewhere in it.
const PATTERN_MORE: usize = 251;
const DATA: u64 = 1;
const END: u64 = 2;
const SEND: u64 = 1 << 60;
const RECV: u64 = 2 << 60;
const ENDING: u64 = 3 << 60;
const ENDED: u64 = 4 << 60;
/// After which silence of a kernel a TCP connection ends.
pub const USER_TIMEOUT: Duration = Duration::from_millis(200);
/// Nothing here takes so long unless it hangs.
const HANG: Duration = Duration::from_secs(300);

fn opening(rank: u32, fabric: &str) -> Opening {
    let me = PeerId(rank);
    let credentials = || Credentials::new([rank as u8; 32], Secret::new([5; 32]));
    let tcp = |index: u8| -> Box<dyn Rail + Send> {
        // Small buffers are soon full.
        let buffer = Some(64 * 1024);
        let options = TcpOptions {
            send_buffer_bytes: buffer,
            receive_buffer_bytes: buffer,
            user_timeout_ms: USER_TIMEOUT.as_millis() as u32,
            ..TcpOptions::new([127, 0, 0, index + 1].into(), index)
        };
        Box::new(TcpRail::open(options, credentials(), 11, me).unwrap())
    };
    let mut rails: Vec<Box<dyn Rail + Send>> = vec![Box::new(Loopback::new(me))];
    match fabric {
        "shm" => rails.push(Box::new(ShmRail::open(ShmOptions::new(RANKS), credentials(), 11, me).unwrap())),
        _ => rails.extend([tcp(0), tcp(1)]),
    }
    Opening::with_rails(Config::new(me, RANKS), "here".to_owned(), rails, 1).unwrap()
}

/// What is under way with one peer.
struct Flow {
    out: [RegionId; WINDOW as usize],
    into: [RegionId; WINDOW as usize],
    /// The send of a slot is not over.
    busy: [bool; WINDOW as usize],
    begun: u64,
    /// Receives posted, and the message that each slot's awaits.
    posted: u64,
    awaited: [u64; WINDOW as usize],
    pub received: u64,
    expected: Option<u64>,
    has_ended: bool,
}

/// One rank.
pub struct Rank {
    pub transport: Transport,
    flows: BTreeMap<u32, Flow>,
    pattern: Vec<u8>,
    is_ending: bool,
    /// Peers that were lost, and why.
    pub lost: Vec<(PeerId, Loss)>,
    /// Requests that ended in a peer's loss: which peer, and why.
    pub failed: Vec<(PeerId, Loss)>,
}

fn size(number: u64) -> u64 {
    SIZES[(number % SIZES.len() as u64) as usize]
}

/// Where in the pattern a message's bytes begin.
fn start_of(from: u32, number: u64) -> usize {
    (number * 7 + u64::from(from) * 61) as usize % PATTERN_MORE
}

impl Rank {
    fn new(opening: Opening, address_records: &[String]) -> Rank {
        let mut opening = opening;
        for (rank, address_record) in address_records.iter().enumerate() {
            opening.learn(PeerId(rank as u32), address_record).unwrap();
        }
        let mut transport = opening.join().unwrap();
        let me = transport.rank().0;
        let mut regions = || std::array::from_fn(|_| transport.alloc(SIZE_MAX as usize).unwrap());
        let flow = |(out, into)| Flow {
            out,
            into,
            busy: [false; WINDOW as usize],
            begun: 0,
            posted: 0,
            awaited: [0; WINDOW as usize],
            received: 0,
            expected: None,
            has_ended: false,
        };
        let flows = (0..RANKS).filter(|&peer| peer != me).map(|peer| (peer, flow((regions(), regions())))).collect();
        let mixed = |at: usize| (at as u32).wrapping_mul(0x9e37_79b1).to_be_bytes()[0];
        let pattern = (0..SIZE_MAX as usize + PATTERN_MORE).map(mixed).collect();
        let mut rank = Rank { transport, flows, pattern, is_ending: false, lost: Vec::new(), failed: Vec::new() };
        for peer in (0..RANKS).filter(|&peer| peer != me) {
            (0..WINDOW).for_each(|slot| rank.post(peer, slot));
            let from = Selector { source: Some(PeerId(peer)), tag: TagMatch::Tagged { tag: END, ignore: 0 } };
            let recv = RecvRequest { cookie: Cookie(ENDED | u64::from(peer) << 32), ..RecvRequest::new(from, &[]) };
            rank.transport.recv(&recv).unwrap();
        }
        rank
    }

    fn post(&mut self, peer: u32, slot: u64) {
        let from = Selector { source: Some(PeerId(peer)), tag: TagMatch::Tagged { tag: DATA, ignore: 0 } };
        let flow = self.flows.get_mut(&peer).unwrap();
        flow.awaited[slot as usize] = flow.posted;
        flow.posted += 1;
        let segments = [Seg::new(flow.into[slot as usize], 0, SIZE_MAX)];
        let cookie = Cookie(RECV | u64::from(peer) << 32 | slot);
        self.transport.recv(&RecvRequest { cookie, ..RecvRequest::new(from, &segments) }).unwrap();
    }

    /// Messages that came from a peer.
    pub fn received(&self, peer: u32) -> u64 {
        self.flows.get(&peer).map_or(0, |flow| flow.received)
    }

    /// No more messages from now on.
    pub fn end(&mut self) {
        self.is_ending = true;
    }

    /// Everything is complete with every rank that lives.
    pub fn is_over(&self) -> bool {
        self.is_ending
            && self.flows.values().all(|flow| {
                flow.has_ended && flow.busy.iter().all(|busy| !busy) && flow.expected == Some(flow.received)
            })
    }

    /// Drives the transport once, sends what can be sent, and judges what came.
    pub fn step(&mut self) {
        let me = self.transport.rank().0;
        let peers: Vec<u32> = self.flows.keys().copied().collect();
        for peer in peers {
            let flow = self.flows.get_mut(&peer).unwrap();
            let (number, slot) = (flow.begun, flow.begun % WINDOW);
            let region = flow.out[slot as usize];
            let is_free = !flow.busy[slot as usize];
            if !self.is_ending && is_free {
                (flow.busy[slot as usize], flow.begun) = (true, number + 1);
                let (from, len) = (start_of(me, number), size(number) as usize);
                let bytes = self.transport.bytes_mut(region).unwrap();
                bytes[..len].copy_from_slice(&self.pattern[from..from + len]);
                let segments = [Seg::new(region, 0, size(number))];
                let cookie = Cookie(SEND | u64::from(peer) << 32 | slot);
                let (tag, immediate, peer) = (Some(DATA), Some(number), PeerId(peer));
                let send = SendRequest { tag, immediate, cookie, ..SendRequest::new(peer, &segments) };
                // A peer that is lost this moment is reported by an event.
                let _ = self.transport.send(&send);
            } else if self.is_ending && !flow.has_ended && flow.busy.iter().all(|busy| !busy) {
                flow.has_ended = true;
                let cookie = Cookie(ENDING | u64::from(peer) << 32);
                let (tag, immediate, peer) = (Some(END), Some(number), PeerId(peer));
                self.transport
                    .inject(&SendRequest { tag, immediate, cookie, ..SendRequest::new(peer, &[]) }, &[])
                    .unwrap();
            }
        }
        self.transport.progress();
        while let Some(event) = self.transport.poll_event() {
            match event {
                Event::Completed(completion) => self.judge(&completion),
                Event::PeerLost { peer, why } => {
                    self.lost.push((peer, why));
                    self.flows.remove(&peer.0);
                }
                Event::PeerUp { .. } | Event::PeerClosed { .. } | Event::Written(_) => {}
            }
        }
    }

    fn judge(&mut self, completion: &Completion) {
        let Cookie(cookie) = completion.cookie;
        let (kind, peer, slot) = (cookie >> 60 << 60, (cookie >> 32) as u32 & 0xff, cookie & 0xffff_ffff);
        let done = match completion.result {
            Ok(done) => done,
            Err(OpError::PeerLost { peer, why }) => return self.failed.push((peer, why)),
            // It has reported that it has all, and left.
            Err(OpError::PeerClosed { .. }) if self.is_over() => return,
            Err(error) => panic!("{error:?}"),
        };
        let Some(flow) = self.flows.get_mut(&peer) else { return };
        match kind {
            SEND => flow.busy[slot as usize] = false,
            ENDED => flow.expected = done.immediate,
            RECV => {
                // Matching is in order: each receive has its message, which is one that was not here before.
                let number = flow.awaited[slot as usize];
                assert_eq!(done.immediate, Some(number), "from rank {peer}");
                assert_eq!(done.bytes, size(number));
                flow.received += 1;
                let bytes = &self.transport.bytes(flow.into[slot as usize]).unwrap()[..done.bytes as usize];
                let from = start_of(peer, number);
                assert!(bytes == &self.pattern[from..from + bytes.len()], "message {number} from rank {peer} differs");
                self.post(peer, slot);
            }
            _ => {}
        }
    }

    /// Steps until something holds.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&Rank) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            self.step();
            assert!(start.elapsed() < HANG, "hangs: {what}; {:#?}", self.transport);
        }
    }
}

/// A rank as a process of its own. Killed at the latest when the test ends.
pub struct Process {
    child: Child,
    stdin: ChildStdin,
    output: Receiver<String>,
    pub lines_received: Vec<String>,
}

impl Process {
    fn start(rank: u32, fabric: &str) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(ROLE, format!("{rank} {fabric}"))
            .args(["--nocapture", "--test-threads=1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (line, output) = channel();
        // Ends with the process.
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|text| line.send(text))
        });
        Process { child, stdin, output, lines_received: Vec::new() }
    }

    /// Takes what it has printed; returns whether a line begins like this.
    pub fn has_printed(&mut self, start: &str) -> bool {
        self.lines_received.extend(self.output.try_iter());
        self.lines_received.iter().any(|line| line.starts_with(start))
    }

    pub fn write_line(&mut self, word: &str) {
        writeln!(self.stdin, "{word}").unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for it; whether it ended well.
    pub fn ended_well(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Stopped ones die of it too. Over already: nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Rank 0 here, ranks 1 and 2 as processes that run this test program.
pub fn start(fabric: &str) -> (Rank, [Process; 2]) {
    let mut others = [1, 2].map(|rank| Process::start(rank, fabric));
    let opening = opening(0, fabric);
    let mut address_records = vec![opening.address_record().to_owned()];
    for other in &mut others {
        let address_record = other.output.iter().find_map(|line| line.strip_prefix("card ").map(str::to_owned));
        address_records.push(address_record.expect("it prints its address record"));
    }
    others.iter_mut().for_each(|other| other.write_line(&address_records.join("\n")));
    (Rank::new(opening, &address_records), others)
}

/// In a process: its part, and `true`. `false`: this is the test itself.
pub fn is_other() -> bool {
    let Ok(role) = std::env::var(ROLE) else { return false };
    let (rank, fabric) = role.split_once(' ').unwrap();
    let opening = opening(rank.parse().unwrap(), fabric);
    println!("\ncard {}", opening.address_record());
    let address_records: Vec<String> = std::io::stdin().lines().take(RANKS as usize).map(Result::unwrap).collect();
    let mut rank = Rank::new(opening, &address_records);
    let (word, words) = channel();
    std::thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).try_for_each(|text| word.send(text)));
    let (mut reported, mut is_over) = (0, false);
    loop {
        rank.step();
        // Once all is over, a rank that leaves first is no loss.
        for (peer, why) in rank.lost.iter().skip(reported).filter(|_| !is_over) {
            println!("\nlost {} {:?}", peer.0, why.reason);
        }
        reported = rank.lost.len();
        match words.try_recv() {
            Ok(word) if word == "end" => rank.end(),
            Ok(_) => {
                let stats = rank.transport.stats();
                println!("\nagain {}", stats.replayed + stats.duplicates_dropped);
                return true;
            }
            Err(TryRecvError::Disconnected) => std::process::exit(1), // Its parent is gone.
            Err(TryRecvError::Empty) => {}
        }
        if rank.is_over() && !is_over {
            is_over = true;
            println!("\nover");
        }
    }
}
