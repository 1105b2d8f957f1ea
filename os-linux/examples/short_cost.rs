//! What a small message costs a process over shared memory, all layers together, for
//! `conformance/scripts/short.sh`, which counts the instructions of the functions `counted_*`: two ranks in
//! one thread take turns in a time of their own, over the real rings. One message there is what one rank does
//! in one round trip: it posts a receive, sends, takes one message, takes its completion, and makes one round
//! that finds nothing; in every 8th it looks at other rings, and in every 13th the whole round is made.
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
//! | `unexpected` | the receive is posted when the message is here |
//! | `tcp` | two TCP rails are open beside |
//! | `idle` | no message: a round that finds nothing, with one connected ring |
//! | `where` | nothing: prints where the counted functions are |

use std::error::Error;

use rerail_core::endpoint::{Notify, RecvRequest, Selector, SendRequest, TagMatch};
use rerail_core::ids::{Cookie, PeerId};
use rerail_core::mem::{RegionId, Seg};
use rerail_core::time::Time;
use rerail_linux::auth::{Credentials, Secret};
use rerail_linux::driver::{Opening, Transport, VirtualTime};
use rerail_linux::rail::Rail;
use rerail_linux::rail::loopback::Loopback;
use rerail_linux::rail::shm::{ShmOptions, ShmRail};
use rerail_linux::rail::tcp::{TcpOptions, TcpRail};
use rerail_linux::settings::Settings;

type Engine = Transport<VirtualTime>;
type Outcome<T> = Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: short_cost 8|168|1024|8192|mpi|any|unexpected|tcp|idle COUNT";
/// Messages before those that are counted.
const FIRST: u32 = 600;
/// Messages to a whole round of both: `Transport` makes one every 8 us, in which there are some 13 round
/// trips.
const WHOLE: u32 = 26;
/// Messages, both ways, to a look at the other rings: `Transport` looks after every eighth round that found a
/// message.
const REST: u32 = 16;
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
    pair.messages(&case, FIRST)?;
    if case.is_idle {
        for _ in 0..count {
            pair.now += 10;
            if counted_idle(&mut pair.engines[0]) != 0 {
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
        ("ring_poll", counted_ring_poll as *const ()),
        ("poll", counted_poll as *const ()),
        ("rest", counted_rest as *const ()),
        ("whole", counted_whole as *const ()),
    ];
    places.iter().for_each(|(name, place)| println!("{name} {:08x}", place.addr()));
    Ok(())
}

#[inline(never)]
fn counted_post(engine: &mut Engine, recv: &RecvRequest<'_>) -> bool {
    engine.recv(recv).is_ok()
}

#[inline(never)]
fn counted_send(engine: &mut Engine, send: &SendRequest<'_>) -> bool {
    engine.send(send).is_ok()
}

/// A round that finds a message, or nothing.
#[inline(never)]
fn counted_ring_poll(engine: &mut Engine) -> usize {
    engine.poll_rings()
}

#[inline(never)]
fn counted_poll(engine: &mut Engine) -> Option<Cookie> {
    engine.poll_short().map(|done| done.cookie)
}

/// Whether other rings have something, now and then.
#[inline(never)]
fn counted_rest(engine: &mut Engine) -> usize {
    engine.rest()
}

/// The whole round, now and then.
#[inline(never)]
fn counted_whole(engine: &mut Engine) -> usize {
    engine.round()
}

#[inline(never)]
fn counted_idle(engine: &mut Engine) -> usize {
    engine.poll_rings()
}

/// What a message looks like.
struct Case {
    bytes: u64,
    ignore: u64,
    immediate: Option<u64>,
    is_mpi: bool,
    is_any: bool,
    is_late: bool,
    is_idle: bool,
    has_tcp: bool,
}

impl Case {
    fn parse(name: &str) -> Option<Case> {
        let bytes = name.parse().unwrap_or(8);
        let is = |wanted| name == wanted;
        let names = ["8", "168", "1024", "8192", "mpi", "any", "unexpected", "tcp", "idle"];
        names.contains(&name).then_some(Case {
            bytes,
            ignore: if is("mpi") { MASK } else { 0 },
            immediate: is("mpi").then_some(3),
            is_mpi: is("mpi"),
            is_any: is("any"),
            is_late: is("unexpected"),
            is_idle: is("idle"),
            has_tcp: is("tcp"),
        })
    }
}

struct Pair {
    engines: [Engine; 2],
    memory: [RegionId; 2],
    now: u64,
}

impl Pair {
    fn open(case: &Case) -> Outcome<Pair> {
        let mut openings = [opening(0, case)?, opening(1, case)?];
        let address_records = openings.each_ref().map(|opening| opening.address_record().to_owned());
        for opening in &mut openings {
            for (rank, address_record) in (0..).zip(&address_records) {
                opening.learn(PeerId(rank), address_record)?;
            }
        }
        let [one, other] = openings;
        let mut engines = [one.join()?, other.join()?];
        let mut memory = [RegionId::default(); 2];
        for (engine, region) in engines.iter_mut().zip(&mut memory) {
            *region = engine.alloc(1 << 20)?;
        }
        let mut pair = Pair { engines, memory, now: 1 };
        pair.connect()?;
        if case.is_mpi {
            pair.clutter()?;
        }
        Ok(pair)
    }

    /// One message each way, by rounds: connections stand, and the probes at start are answered.
    fn connect(&mut self) -> Outcome<()> {
        for from in [0, 1] {
            let segments = [Seg::new(self.memory[from], 0, 8)];
            let send = SendRequest::new(PeerId(1 - from as u32), &segments);
            self.engines[from].send(&send)?;
            let recv = RecvRequest::new(Selector::ANY_UNTAGGED, &segments);
            self.engines[from].recv(&recv)?;
        }
        for _ in 0..20_000 {
            self.now += 1000;
            for engine in &mut self.engines {
                engine.set_time(Time(self.now));
                engine.round();
                while engine.poll_event().is_some() {}
            }
        }
        Ok(())
    }

    /// Eight untagged multi-receives, and a message that no receive matches.
    fn clutter(&mut self) -> Outcome<()> {
        for rank in [0, 1] {
            for n in 0..8 {
                let segments = [Seg::new(self.memory[rank], (n + 1) << 16, 1 << 16)];
                let recv = RecvRequest { multi: Some(4096), ..RecvRequest::new(Selector::ANY_UNTAGGED, &segments) };
                self.engines[rank].recv(&recv)?;
            }
            let segments = [Seg::new(self.memory[rank], 0, 8)];
            let send = SendRequest { tag: Some(99), ..SendRequest::new(PeerId(1 - rank as u32), &segments) };
            self.engines[rank].send(&send)?;
        }
        for _ in 0..100 {
            self.now += 1000;
            for engine in &mut self.engines {
                engine.set_time(Time(self.now));
                engine.round();
                while engine.poll_event().is_some() {}
            }
        }
        Ok(())
    }

    fn shorts(&self) -> (u64, u64) {
        let stats = self.engines.each_ref().map(|engine| engine.stats());
        (stats.iter().map(|s| s.short_sent).sum(), stats.iter().map(|s| s.short_received).sum())
    }

    fn messages(&mut self, case: &Case, count: u32) -> Outcome<()> {
        for n in 0..count {
            let from = (n & 1) as usize;
            let to = 1 - from;
            self.now += 300;
            self.engines.iter_mut().for_each(|engine| engine.set_time(Time(self.now)));
            if !case.is_late {
                self.post(case, to, from)?;
            }
            let segments = [Seg::new(self.memory[from], 0, case.bytes)];
            let send = SendRequest {
                tag: Some(TAG),
                immediate: case.immediate,
                notify: Notify::Silent,
                ..SendRequest::new(PeerId(to as u32), &segments)
            };
            if !counted_send(&mut self.engines[from], &send) {
                return Err("not sent".into());
            }
            counted_ring_poll(&mut self.engines[to]);
            if case.is_late {
                self.post(case, to, from)?;
            }
            if counted_poll(&mut self.engines[to]) != Some(Cookie(42)) {
                return Err("the message is not here".into());
            }
            counted_ring_poll(&mut self.engines[from]);
            if n % REST < 2 {
                counted_rest(&mut self.engines[to]);
            }
            if n % WHOLE == 0 {
                counted_whole(&mut self.engines[0]);
                counted_whole(&mut self.engines[1]);
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
        if counted_post(&mut self.engines[to], &recv) { Ok(()) } else { Err("not posted".into()) }
    }
}

fn opening(rank: u32, case: &Case) -> Outcome<Opening<VirtualTime>> {
    let me = PeerId(rank);
    let mut rails: Vec<Box<dyn Rail>> = vec![Box::new(Loopback::new(me))];
    let options = ShmOptions { host_id: Some("here".to_owned()), ..ShmOptions::new(2) };
    rails.push(Box::new(ShmRail::open(options, Credentials::new([me.0 as u8; 32], Secret::new([7; 32])), 7, me)?));
    if case.has_tcp {
        for index in 0..2 {
            let options = TcpOptions::new("127.0.0.1".parse()?, index);
            rails.push(Box::new(TcpRail::open(
                options,
                Credentials::new([me.0 as u8; 32], Secret::new([7; 32])),
                7,
                me,
            )?));
        }
    }
    let mut config = Settings::default().to_core_config(me, 2);
    config.rails_max = u8::try_from(rails.len())?;
    Ok(Opening::with_clock(config, "here".to_owned(), rails, VirtualTime::default())?)
}
