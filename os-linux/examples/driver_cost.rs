//! What a small message and a round that finds nothing cost the driver, for
//! `conformance/scripts/driver-instructions.sh`, which counts the instructions of the functions `counted_*`:
//! two ranks in one thread that take turns, in a time of their own, so that neither waits and each run is the
//! same.
//!
//! ```text
//! driver_cost RAIL CASE COUNT        RAIL: verbs, two-verbs, shm; CASE: message, look
//! ```
//! `verbs` is over the first device of libibverbs, which is the loopback that the script builds: it takes
//! what is posted to the other rank at once.

use std::error::Error;

use rerail_core::endpoint::{Event, RecvRequest, Selector, SendRequest};
use rerail_core::ids::PeerId;
use rerail_core::mem::{RegionId, Seg};
use rerail_core::time::Time;
use rerail_linux::auth::{Credentials, Secret};
use rerail_linux::driver::{Opening, Transport, VirtualTime};
use rerail_linux::rail::Rail;
use rerail_linux::rail::loopback::Loopback;
use rerail_linux::rail::shm::{ShmOptions, ShmRail};
use rerail_linux::rail::verbs::{Identity, VerbsOptions, VerbsRail};
use rerail_linux::settings::Settings;
use rerail_verbs::{IbDevice, Verbs};

type Engine = Transport<VirtualTime>;
type Outcome<T> = Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: driver_cost verbs|two-verbs|shm message|look COUNT";
/// Bytes of a message.
const BYTES: u64 = 8;
/// Rounds between two looks for asynchronous events, as the driver sets it: each is a system call.
const EVENT_INTERVAL: u32 = 64;
/// Messages before those that are counted: credits, windows and tables are in their usual state then.
const FIRST: u32 = 500;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rail, case, count] = &arguments[..] else { return Err(USAGE.into()) };
    let count = count.parse()?;
    let mut pair = Pair::open(rail)?;
    pair.messages(FIRST)?;
    match case.as_str() {
        "message" => counted_messages(&mut pair, count),
        "look" => counted_rounds(&mut pair, count),
        _ => Err(USAGE.into()),
    }
}

/// Messages, each from the one that has received the last.
#[inline(never)]
fn counted_messages(pair: &mut Pair, count: u32) -> Outcome<()> {
    pair.messages(count)
}

/// Rounds of an engine that has nothing to do.
#[inline(never)]
fn counted_rounds(pair: &mut Pair, count: u32) -> Outcome<()> {
    for _ in 0..count {
        if pair.step(0)? > 0 {
            return Err("something has happened".into());
        }
    }
    Ok(())
}

/// Two ranks and memory of each.
struct Pair {
    engines: [Engine; 2],
    memory: [RegionId; 2],
    /// In nanoseconds; a round takes one microsecond.
    now: u64,
}

impl Pair {
    fn open(rail: &str) -> Outcome<Pair> {
        let mut openings = [opening(0, rail)?, opening(1, rail)?];
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
            *region = engine.alloc(BYTES as usize)?;
        }
        Ok(Pair { engines, memory, now: 1 })
    }

    fn messages(&mut self, count: u32) -> Outcome<()> {
        for from in [0, 1].into_iter().cycle().take(count as usize) {
            let to = 1 - from;
            let segments = [Seg::new(self.memory[to], 0, BYTES)];
            self.engines[to].recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &segments))?;
            let segments = [Seg::new(self.memory[from], 0, BYTES)];
            self.engines[from].send(&SendRequest::new(PeerId(to as u32), &segments))?;
            // As `Transport::progress` does it: what was submitted goes out first.
            self.engines[from].push();
            let mut left = 2;
            while left > 0 {
                for rank in [to, from] {
                    left -= self.step(rank)?;
                }
            }
        }
        Ok(())
    }

    /// One round; how many requests are over.
    fn step(&mut self, rank: usize) -> Outcome<u64> {
        self.now += 1000;
        let engine = &mut self.engines[rank];
        engine.set_time(Time(self.now));
        engine.round();
        let mut over = 0;
        while let Some(event) = engine.poll_event() {
            if let Event::Completed(completion) = event {
                completion.result.map_err(|why| format!("{why:?}"))?;
                over += 1;
            }
        }
        Ok(over)
    }
}

fn opening(rank: u32, rail: &str) -> Outcome<Opening<VirtualTime>> {
    let me = PeerId(rank);
    let mut rails: Vec<Box<dyn Rail>> = vec![Box::new(Loopback::new(me))];
    match rail {
        "verbs" => rails.push(Box::new(verbs(me, 0)?)),
        "two-verbs" => {
            rails.push(Box::new(verbs(me, 0)?));
            rails.push(Box::new(verbs(me, 1)?));
        }
        "shm" => {
            let options = ShmOptions { host_id: Some("here".to_owned()), ..ShmOptions::new(2) };
            rails.push(Box::new(ShmRail::open(options, credentials(me), 7, me)?));
        }
        _ => return Err(USAGE.into()),
    }
    let mut config = Settings::default().to_core_config(me, 2);
    config.rails_max = u8::try_from(rails.len())?;
    Ok(Opening::with_clock(config, "here".to_owned(), rails, VirtualTime::default())?)
}

/// The private key's first bits do not count.
fn credentials(me: PeerId) -> Credentials {
    Credentials::new([me.0 as u8 + 1; 32], Secret::new([7; 32]))
}

fn verbs(me: PeerId, index: u8) -> Outcome<VerbsRail<IbDevice>> {
    let devices = Verbs::open()?.devices()?;
    let found = devices.iter().next().ok_or("no device")?;
    let mut device = IbDevice::new(found.open()?)?;
    device.set_event_interval(EVENT_INTERVAL);
    let secret = Secret::new([me.0 as u8 * 2 + index; 32]);
    let identity = Identity { credentials: credentials(me), job: 7, me, secret };
    Ok(VerbsRail::open(device, 1, VerbsOptions::new(2, index), identity)?)
}
