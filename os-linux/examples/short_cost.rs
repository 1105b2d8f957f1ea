//! What a small message costs a process over shared memory, all layers together, for
//! `conformance/scripts/short.sh`, which counts the instructions of the functions `counted_*`: ranks in one
//! thread take turns, over the real rings. One message there is what one rank does in one round trip: it
//! posts a receive, sends, takes one message by a call of `Transport::progress`, takes its completion, and
//! calls that once more in vain. Whole rounds, which are due by time, come after every 13th round trip
//! instead.
//!
//! ```text
//! short_cost CASE COUNT
//! ```
//! | case | message |
//! |---|---|
//! | `8`, `168`, `1024`, `8192` | so many bytes, source and tag named |
//! | `mpi` | as MPI libraries send: a common mask, immediate data, eight multi-receives posted, one message
//! waits unmatched |
//! | `any` | the receive names no source |
//! | `inject` | sent by `Transport::inject` |
//! | `unexpected` | the receive is posted when the message is here |
//! | `tcp` | two TCP rails are open beside |
//! | `idle` | no message: a call of `progress` that finds nothing, with one connected ring |
//! | `rings` | the same, with 9 |
//! | `where` | nothing: prints where the counted functions are |

use std::error::Error;
use std::time::Duration;

use rerail_core::endpoint::{Notify, RecvRequest, Selector, SendRequest, TagMatch};
use rerail_core::ids::{Cookie, PeerId};
use rerail_core::mem::{RegionId, Seg};
use rerail_linux::auth::{Credentials, Secret};
use rerail_linux::driver::{Opening, Transport};
use rerail_linux::rail::Rail;
use rerail_linux::rail::loopback::Loopback;
use rerail_linux::rail::shm::{ShmOptions, ShmRail};
use rerail_linux::rail::tcp::{TcpOptions, TcpRail};
use rerail_linux::settings::Settings;

type Outcome<T> = Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: short_cost 8|168|1024|8192|mpi|any|inject|unexpected|tcp|idle|rings COUNT";
/// Messages before those that are counted.
const FIRST: u32 = 600;
/// Messages to a whole round of both: `Transport` makes one every 8 us, in which there are some 13 round
/// trips.
const WHOLE: u32 = 26;
/// Peers of rank 0 with a ring, of the case `rings`.
const MANY: u32 = 9;
const TAG: u64 = 7;
/// Bits that MPI libraries put into every receive's mask (of MPICH: the protocol's).
const MASK: u64 = 0xf << 60;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [case, count] = &arguments[..] else { return Err(USAGE.into()) };
    if case == "where" {
        return places();
    }
    let count = count.parse()?;
    let case = Case::parse(case).ok_or(USAGE)?;
    // Not on the stack, whose lines are counted apart.
    let mut pair = Box::new(Pair::open(&case)?);
    if !case.is_idle {
        pair.messages(&case, FIRST)?;
    }
    if case.is_idle {
        for _ in 0..count {
            if counted_progress(&mut pair.ranks[0]) != 0 {
                return Err("something has happened".into());
            }
        }
        return Ok(());
    }
    let before = pair.shorts();
    pair.messages(&case, count)?;
    let (sent, received) = pair.shorts();
    if (sent - before.0, received - before.1) != (u64::from(count), u64::from(count)) {
        return Err(format!("{sent} went the short way, {received} came it, of {count}, before: {before:?}").into());
    }
    Ok(())
}

/// Where the counted functions are, as traces of a run write it.
fn places() -> Outcome<()> {
    let places = [
        ("post", counted_post as *const ()),
        ("send", counted_send as *const ()),
        ("progress", counted_progress as *const ()),
        ("poll", counted_poll as *const ()),
        ("whole", counted_whole as *const ()),
    ];
    places.iter().for_each(|(name, place)| println!("{name} {:08x}", place.addr()));
    Ok(())
}

#[inline(never)]
fn counted_post(transport: &mut Transport, recv: &RecvRequest<'_>) -> bool {
    transport.recv(recv).is_ok()
}

#[inline(never)]
fn counted_send(transport: &mut Transport, send: &SendRequest<'_>) -> bool {
    transport.send(send).is_ok()
}

#[inline(never)]
fn counted_inject(transport: &mut Transport, send: &SendRequest<'_>, payload: &[u8]) -> bool {
    transport.inject(send, payload).is_ok()
}

/// A round that finds a message, or nothing.
#[inline(never)]
fn counted_progress(transport: &mut Transport) -> usize {
    transport.progress()
}

#[inline(never)]
fn counted_poll(transport: &mut Transport) -> Option<Cookie> {
    transport.poll_short().map(|done| done.cookie)
}

/// A call in which the whole round is due. Not the same code as [`counted_progress`], which is counted apart.
#[inline(never)]
fn counted_whole(transport: &mut Transport) -> usize {
    std::hint::black_box(transport.progress())
}

/// What a message looks like.
struct Case {
    bytes: u64,
    ignore: u64,
    immediate: Option<u64>,
    is_mpi: bool,
    is_any: bool,
    is_injected: bool,
    is_late: bool,
    is_idle: bool,
    ranks: u32,
    has_tcp: bool,
}

impl Case {
    fn parse(name: &str) -> Option<Case> {
        let bytes = name.parse().unwrap_or(8);
        let is = |wanted| name == wanted;
        let names = ["8", "168", "1024", "8192", "mpi", "any", "inject", "unexpected", "tcp", "idle", "rings"];
        names.contains(&name).then_some(Case {
            bytes,
            ignore: if is("mpi") { MASK } else { 0 },
            immediate: is("mpi").then_some(3),
            is_mpi: is("mpi"),
            is_any: is("any"),
            is_injected: is("inject"),
            is_late: is("unexpected"),
            is_idle: is("idle") || is("rings"),
            ranks: if is("rings") { 1 + MANY } else { 2 },
            has_tcp: is("tcp"),
        })
    }
}

/// Ranks 0 and 1, which exchange messages, and others that are connected.
struct Pair {
    ranks: Vec<Transport>,
    memory: Vec<RegionId>,
}

impl Pair {
    fn open(case: &Case) -> Outcome<Pair> {
        let mut openings = (0..case.ranks).map(|rank| opening(rank, case)).collect::<Outcome<Vec<_>>>()?;
        let records: Vec<String> = openings.iter().map(|opening| opening.address_record().to_owned()).collect();
        for opening in &mut openings {
            for (rank, record) in (0..).zip(&records) {
                opening.learn(PeerId(rank), record)?;
            }
        }
        let mut ranks = openings.into_iter().map(Opening::join).collect::<Result<Vec<_>, _>>()?;
        let memory = ranks.iter_mut().map(|transport| transport.alloc(1 << 20)).collect::<Result<Vec<_>, _>>()?;
        let mut pair = Pair { ranks, memory };
        pair.connect()?;
        if case.is_mpi {
            pair.clutter()?;
        }
        pair.drive(100);
        for transport in &mut pair.ranks {
            transport.set_round_period(Duration::MAX);
            // The period is known after a whole round, and the last one's results are not counted.
            while transport.progress() > 0 {}
        }
        Ok(pair)
    }

    /// So many rounds of all, with what they bring.
    fn drive(&mut self, rounds: u32) {
        for _ in 0..rounds {
            for transport in &mut self.ranks {
                transport.round();
                while transport.poll_event().is_some() {}
            }
        }
    }

    fn send(&mut self, [from, to]: [usize; 2], tag: Option<u64>) -> Outcome<()> {
        let segments = [Seg::new(self.memory[from], 0, 8)];
        let send = SendRequest { tag, ..SendRequest::new(PeerId(to as u32), &segments) };
        self.ranks[from].send(&send)?;
        Ok(())
    }

    fn receive(&mut self, rank: usize) -> Outcome<()> {
        let segments = [Seg::new(self.memory[rank], 0, 8)];
        self.ranks[rank].recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &segments))?;
        Ok(())
    }

    /// One message each way between rank 0 and each other, by rounds: connections stand, and the probes at
    /// start are answered.
    fn connect(&mut self) -> Outcome<()> {
        for other in 1..self.ranks.len() {
            self.send([0, other], None)?;
            self.receive(other)?;
            self.send([other, 0], None)?;
            self.receive(0)?;
        }
        self.drive(1_000);
        Ok(())
    }

    /// Eight untagged multi-receives, and a message that no receive matches.
    fn clutter(&mut self) -> Outcome<()> {
        for rank in [0, 1] {
            for n in 0..8 {
                let segments = [Seg::new(self.memory[rank], (n + 1) << 16, 1 << 16)];
                let recv = RecvRequest { multi: Some(4096), ..RecvRequest::new(Selector::ANY_UNTAGGED, &segments) };
                self.ranks[rank].recv(&recv)?;
            }
            self.send([rank, 1 - rank], Some(99))?;
        }
        self.drive(100);
        Ok(())
    }

    fn shorts(&self) -> (u64, u64) {
        let stats = [0, 1].map(|rank: usize| self.ranks[rank].stats());
        (stats.iter().map(|s| s.short_sent).sum(), stats.iter().map(|s| s.short_received).sum())
    }

    fn messages(&mut self, case: &Case, count: u32) -> Outcome<()> {
        for n in 0..count {
            let from = (n & 1) as usize;
            let to = 1 - from;
            if !case.is_late {
                self.post(case, to, from)?;
            }
            let segments = [Seg::new(self.memory[from], 0, case.bytes)];
            let send = SendRequest {
                tag: Some(TAG),
                immediate: case.immediate,
                notify: Notify::Silent,
                ..SendRequest::new(PeerId(to as u32), if case.is_injected { &[] } else { &segments })
            };
            let is_sent = match case.is_injected {
                true => counted_inject(&mut self.ranks[from], &send, &[0x5a; 8]),
                false => counted_send(&mut self.ranks[from], &send),
            };
            if !is_sent {
                return Err("not sent".into());
            }
            counted_progress(&mut self.ranks[to]);
            if case.is_late {
                self.post(case, to, from)?;
            }
            if counted_poll(&mut self.ranks[to]) != Some(Cookie(42)) {
                return Err("the message is not here".into());
            }
            counted_progress(&mut self.ranks[from]);
            if n % WHOLE == 0 {
                for transport in &mut self.ranks[..2] {
                    transport.set_round_period(Duration::ZERO);
                    counted_whole(transport);
                    transport.set_round_period(Duration::MAX);
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn post(&mut self, case: &Case, to: usize, from: usize) -> Outcome<()> {
        let segments = [Seg::new(self.memory[to], 8192, case.bytes)];
        let source = if case.is_any { None } else { Some(PeerId(from as u32)) };
        let tag = TagMatch::Tagged { tag: TAG, ignore: case.ignore };
        let recv = RecvRequest { cookie: Cookie(42), ..RecvRequest::new(Selector { source, tag }, &segments) };
        if counted_post(&mut self.ranks[to], &recv) { Ok(()) } else { Err("not posted".into()) }
    }
}

fn opening(rank: u32, case: &Case) -> Outcome<Opening> {
    let me = PeerId(rank);
    let credentials = || Credentials::new([me.0 as u8; 32], Secret::new([7; 32]));
    let mut rails: Vec<Box<dyn Rail + Send>> = vec![Box::new(Loopback::new(me))];
    let options = ShmOptions { host_id: Some("here".to_owned()), ..ShmOptions::new(case.ranks) };
    rails.push(Box::new(ShmRail::open(options, credentials(), 7, me)?));
    if case.has_tcp {
        for index in 0..2 {
            let options = TcpOptions::new("127.0.0.1".parse()?, index);
            rails.push(Box::new(TcpRail::open(options, credentials(), 7, me)?));
        }
    }
    let mut config = Settings::default().to_core_config(me, case.ranks);
    config.rails_max = u8::try_from(rails.len())?;
    // More rounds in vain than are counted: the processor is not yielded.
    Ok(Opening::with_rails(config, "here".to_owned(), rails, 1 << 20)?)
}
