//! What puts and gets cost a process that carries them out itself in a mapped window of a peer (L-26): two
//! ranks in one thread, over the real rings. Windows of 16 are submitted, then their completions taken.
//!
//! ```text
//! access_cost put|get BYTES COUNT
//! ```
//!
//! Prints nanoseconds for each; under `valgrind --tool=callgrind --toggle-collect='*counted_access*'`, the
//! instructions of so many are counted.

use std::error::Error;
use std::time::{Duration, Instant};

use rerail_core::endpoint::{Access, GetRequest, PutRequest, Remote, Window};
use rerail_core::ids::PeerId;
use rerail_core::mem::{MemRef, Seg};
use rerail_linux::auth::{Credentials, Secret};
use rerail_linux::driver::{Opening, Transport};
use rerail_linux::rail::Rail;
use rerail_linux::rail::loopback::Loopback;
use rerail_linux::rail::shm::{ShmOptions, ShmRail};
use rerail_linux::settings::Settings;

type Outcome<T> = Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: access_cost put|get BYTES COUNT";
const KEY: u64 = 7;
/// Requests that are submitted before completions are taken.
const WINDOW: u64 = 16;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [op, bytes, count] = &arguments[..] else { return Err(USAGE.into()) };
    let (is_put, bytes, count) = (op == "put", bytes.parse::<u64>()?, count.parse::<u64>()?);
    let mut openings = [opening(0)?, opening(1)?];
    let records = openings.each_ref().map(|opening| opening.address_record().to_owned());
    for opening in &mut openings {
        for (rank, record) in (0..).zip(&records) {
            opening.learn(PeerId(rank), record)?;
        }
    }
    let [mut origin, mut owner] = openings.map(Opening::join);
    let (origin, owner) =
        (origin.as_mut().map_err(|error| error.to_string())?, owner.as_mut().map_err(|e| e.to_string())?);
    let memory = owner.alloc_window(1 << 20)?;
    let access = Access { read: true, write: true, atomic: false };
    owner.expose(&Window::new(MemRef { region: memory, offset: 0 }, 1 << 20, access, KEY))?;
    let local = origin.alloc(1 << 20)?;
    let mut drive = |origin: &mut Transport| {
        origin.round();
        owner.round();
        while owner.poll_event().is_some() {}
    };
    // Until the window is mapped.
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(300) {
        submit(origin, is_put, Seg::new(local, 0, 8))?;
        (0..100).for_each(|_| drive(origin));
        while origin.poll_event().is_some() {}
    }
    let began = Instant::now();
    for _ in 0..count / WINDOW {
        if counted_access(origin, is_put, Seg::new(local, 0, bytes)) != WINDOW {
            return Err("requests were not complete at once".into());
        }
    }
    println!("{:.1} ns", began.elapsed().as_nanos() as f64 / count as f64);
    Ok(())
}

fn submit(transport: &mut Transport, is_put: bool, seg: Seg) -> Outcome<()> {
    let remote = Remote { peer: PeerId(1), window: KEY, offset: 0 };
    if is_put {
        transport.put(&PutRequest::new(remote, &[seg]))?;
    } else {
        transport.get(&GetRequest::new(remote, &[seg]))?;
    }
    Ok(())
}

/// A window of requests; returns how many are complete.
#[inline(never)]
fn counted_access(transport: &mut Transport, is_put: bool, seg: Seg) -> u64 {
    for _ in 0..WINDOW {
        if submit(transport, is_put, seg).is_err() {
            return 0;
        }
    }
    transport.poll_shorts().len() as u64
}

fn opening(rank: u32) -> Outcome<Opening> {
    let me = PeerId(rank);
    let credentials = Credentials::new([me.0 as u8; 32], Secret::new([7; 32]));
    let options = ShmOptions { host_id: Some("here".to_owned()), ..ShmOptions::new(2) };
    let rails: Vec<Box<dyn Rail + Send>> =
        vec![Box::new(Loopback::new(me)), Box::new(ShmRail::open(options, credentials, 7, me)?)];
    let mut config = Settings::default().to_core_config(me, 2);
    config.rails_max = u8::try_from(rails.len())?;
    Ok(Opening::with_rails(config, "here".to_owned(), rails, 1 << 20)?)
}
