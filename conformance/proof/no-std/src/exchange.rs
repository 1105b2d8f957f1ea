//! What the two hosts do, and that it came out right.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use rerail_core::endpoint::{
    Access, AtomicRequest, FlushRequest, GetRequest, Level, PutRequest, RecvRequest, Remote, Selector, SendRequest,
    TagMatch, Window,
};
use rerail_core::ids::{Cookie, PeerId};
use rerail_core::mem::{MemRef, Seg};
use rerail_core::time::Time;
use rerail_core::wire::{AtomicKind, AtomicType};

use crate::host::{Failure, Host, Memory, STEP, USER, deliver, drive, events, next_timeout};
use crate::wire::{Link, RAILS};

/// Bytes of the message that goes by rendezvous.
const LARGE_BYTES: usize = 100 * 1024;
/// Bytes of the small messages, the put and the get.
const SMALL_BYTES: usize = 1000;
/// Where host 0 receives the small message, and where host 1 does.
const SMALL_AT: usize = 128 * 1024;
/// Where the window on host 1 starts, and where host 0 gets to.
const WINDOW_AT: usize = 160 * 1024;
const WINDOW_BYTES: usize = 16 * 1024;
const WINDOW_KEY: u64 = 0x5eed_0f00_d5ee_d0f1;
/// The window's number that the atomic changes.
const NUMBER_AT: usize = 8192;
const NUMBER: u64 = 40;
const ADDED: u64 = 2;
/// Rounds after which the hosts count as stuck; the exchange takes some hundred.
const ROUNDS_MAX: u32 = 100_000;

static mut MEMORY: [Memory; 2] = [const { Memory::new() }; 2];
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The hosts' memory, once.
fn memory() -> Option<&'static mut [Memory; 2]> {
    if TAKEN.swap(true, Ordering::Relaxed) {
        return None;
    }
    let memory = &raw mut MEMORY;
    // SAFETY: the flag lets one caller through in the life of the program, so this is the only reference ever
    // made.
    Some(unsafe { &mut *memory })
}

/// What was done.
pub struct Report {
    state_bytes: usize,
    per_rail: [u64; RAILS],
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.per_rail;
        write!(
            f,
            "eager both ways, {LARGE_BYTES} bytes by rendezvous over two rails ({first} + {second}), put, get and \
             fetch-add: all bytes right; {} bytes of state per endpoint",
            self.state_bytes
        )
    }
}

/// Runs the exchange.
pub fn run() -> Result<Report, Failure> {
    let mut cluster = Cluster::new()?;
    cluster.eager()?;
    let per_rail = cluster.rendezvous()?;
    cluster.one_sided()?;
    let state_bytes = crate::host::config(PeerId(0)).memory_bytes().map_err(Failure::Config)?;
    Ok(Report { state_bytes, per_rail })
}

struct Cluster<'m> {
    hosts: [Host<'m>; 2],
    links: [Link; RAILS],
    now: Time,
    /// Requests submitted so far on both hosts, each of which is to end well.
    submitted: u32,
}

/// Byte `at` of a message: unlike its neighbours, and unlike the same byte of another message.
const fn pattern(message: u8, at: usize) -> u8 {
    (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8).wrapping_add(message)
}

fn user(at: usize, len: usize) -> [Seg; 1] {
    [Seg::new(USER, at as u64, len as u64)]
}

fn tagged(tag: u64) -> Selector {
    Selector { source: None, tag: TagMatch::Tagged { tag, ignore: 0 } }
}

impl Cluster<'static> {
    fn new() -> Result<Self, Failure> {
        let [first, second] = memory().ok_or(Failure::Refused("memory twice"))?;
        let now = Time(0);
        let hosts = [Host::new(0, first, now)?, Host::new(1, second, now)?];
        Ok(Cluster { hosts, links: Default::default(), now, submitted: 0 })
    }
}

impl Cluster<'_> {
    /// A small message each way; one is expected, the other one comes before its receive.
    fn eager(&mut self) -> Result<(), Failure> {
        for at in [0, 1] {
            self.fill(at, 0, SMALL_BYTES, at as u8);
        }
        self.recv(1, 7, SMALL_AT, SMALL_BYTES)?;
        self.send(0, 7, SMALL_BYTES)?;
        self.send(1, 8, SMALL_BYTES)?;
        self.run_until_complete()?;
        self.recv(0, 8, SMALL_AT, SMALL_BYTES)?;
        self.run_until_complete()?;
        self.check(1, SMALL_AT, SMALL_BYTES, 0, "eager to host 1")?;
        self.check(0, SMALL_AT, SMALL_BYTES, 1, "unexpected eager to host 0")
    }

    /// A large message; both rails must have carried a fair part. Returns the bytes on each.
    fn rendezvous(&mut self) -> Result<[u64; RAILS], Failure> {
        self.fill(0, 0, LARGE_BYTES, 2);
        let before = self.carried();
        self.recv(1, 9, 0, LARGE_BYTES)?;
        self.send(0, 9, LARGE_BYTES)?;
        self.run_until_complete()?;
        self.check(1, 0, LARGE_BYTES, 2, "rendezvous to host 1")?;
        let mut carried = self.carried();
        for (rail, before) in carried.iter_mut().zip(before) {
            *rail -= before;
        }
        let all: u64 = carried.iter().sum();
        equal("rendezvous bytes over all rails", all, LARGE_BYTES as u64)?;
        for bytes in carried {
            if bytes < LARGE_BYTES as u64 / 3 {
                return Err(Failure::Number { what: "bytes on a rail", got: bytes, wanted: LARGE_BYTES as u64 / 2 });
            }
        }
        Ok(carried)
    }

    /// Host 0 puts into host 1's window, gets it back, and adds to a number in it.
    fn one_sided(&mut self) -> Result<(), Failure> {
        self.hosts[1].payload.user[WINDOW_AT + NUMBER_AT..][..8].copy_from_slice(&NUMBER.to_ne_bytes());
        let window = Window::new(
            MemRef { region: USER, offset: WINDOW_AT as u64 },
            WINDOW_BYTES as u64,
            Access { read: true, write: true, atomic: true },
            WINDOW_KEY,
        );
        self.hosts[1].endpoint.expose(&window).map_err(|_| Failure::Refused("expose"))?;
        let at = |offset: usize| Remote { peer: PeerId(1), window: WINDOW_KEY, offset: offset as u64 };

        self.fill(0, 0, SMALL_BYTES, 3);
        let from = user(0, SMALL_BYTES);
        let put = PutRequest { level: Level::Placed, ..PutRequest::new(at(512), &from) };
        self.hosts[0].endpoint.put(self.now, &put).map_err(|_| Failure::Refused("put"))?;
        self.submitted += 1;
        let flush = FlushRequest::new(PeerId(1));
        self.hosts[0].endpoint.flush(self.now, &flush).map_err(|_| Failure::Refused("flush"))?;
        self.submitted += 1;
        self.run_until_complete()?;
        self.check(1, WINDOW_AT + 512, SMALL_BYTES, 3, "put to host 1")?;

        let into = user(WINDOW_AT, SMALL_BYTES);
        let get = GetRequest::new(at(512), &into);
        self.hosts[0].endpoint.get(self.now, &get).map_err(|_| Failure::Refused("get"))?;
        self.submitted += 1;
        self.run_until_complete()?;
        self.check(0, WINDOW_AT, SMALL_BYTES, 3, "get from host 1")?;

        let add = AtomicRequest::new(at(NUMBER_AT), AtomicKind::Add, AtomicType::U64, ADDED);
        self.hosts[0].endpoint.atomic(self.now, &add).map_err(|_| Failure::Refused("atomic"))?;
        self.submitted += 1;
        self.run_until_complete()?;
        equal("old value of the fetch-add", self.hosts[0].old, NUMBER)?;
        let new = &self.hosts[1].payload.user[WINDOW_AT + NUMBER_AT..][..8];
        equal("new value of the fetch-add", new.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)), NUMBER + ADDED)
    }

    fn send(&mut self, from: usize, tag: u64, len: usize) -> Result<(), Failure> {
        let peer = PeerId(1 - from as u32);
        let payload = user(0, len);
        let send = SendRequest { tag: Some(tag), cookie: Cookie(tag), ..SendRequest::new(peer, &payload) };
        self.hosts[from].endpoint.send(self.now, &send).map_err(|_| Failure::Refused("send"))?;
        self.submitted += 1;
        Ok(())
    }

    fn recv(&mut self, at: usize, tag: u64, offset: usize, len: usize) -> Result<(), Failure> {
        let into = user(offset, len);
        let recv = RecvRequest { cookie: Cookie(tag), ..RecvRequest::new(tagged(tag), &into) };
        self.hosts[at].endpoint.recv(self.now, &recv).map_err(|_| Failure::Refused("recv"))?;
        self.submitted += 1;
        Ok(())
    }

    /// Runs both hosts until all requests have ended and nothing moves any more.
    fn run_until_complete(&mut self) -> Result<(), Failure> {
        for _ in 0..ROUNDS_MAX {
            let mut any = false;
            for at in [0, 1] {
                any |= drive(&mut self.hosts, at, &mut self.links, self.now)?;
                any |= events(&mut self.hosts[at])?;
                for rail in 0..RAILS {
                    any |= deliver(&mut self.hosts, at, rail, &mut self.links, self.now)?;
                }
            }
            if !any && self.done() == self.submitted {
                return Ok(());
            }
            self.now = match (any, next_timeout(&self.hosts)) {
                (false, None) => return Err(self.stuck()),
                (false, Some(at)) => at.max(self.now + STEP),
                (true, _) => self.now + STEP,
            };
            for host in &mut self.hosts {
                if host.endpoint.next_timeout().is_some_and(|at| at <= self.now) {
                    host.endpoint.handle_timeout(self.now);
                }
            }
        }
        Err(self.stuck())
    }

    fn done(&self) -> u32 {
        self.hosts[0].done + self.hosts[1].done
    }

    fn stuck(&self) -> Failure {
        Failure::Stuck { done: self.done(), submitted: self.submitted }
    }

    fn carried(&self) -> [u64; RAILS] {
        core::array::from_fn(|rail| self.links[rail].payload_bytes.iter().sum())
    }

    fn fill(&mut self, host: usize, at: usize, len: usize, message: u8) {
        for (i, byte) in self.hosts[host].payload.user[at..][..len].iter_mut().enumerate() {
            *byte = pattern(message, i);
        }
    }

    fn check(&self, host: usize, at: usize, len: usize, message: u8, what: &'static str) -> Result<(), Failure> {
        let bytes = &self.hosts[host].payload.user[at..][..len];
        match bytes.iter().enumerate().position(|(i, &byte)| byte != pattern(message, i)) {
            None => Ok(()),
            Some(at) => Err(Failure::Bytes { what, at }),
        }
    }
}

fn equal(what: &'static str, got: u64, wanted: u64) -> Result<(), Failure> {
    if got == wanted { Ok(()) } else { Err(Failure::Number { what, got, wanted }) }
}
