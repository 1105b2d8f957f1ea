//! Two ranks of one process over the first device of libibverbs, by the settings (`RERAIL_*`): messages
//! of all sizes both ways, every byte looked at. For `conformance/scripts/device-quirks.sh`, whose libibverbs
//! does what real devices do.
//!
//! Ends with 1 and the reason where the rail can't be opened or is lost.

#[path = "support/two_ranks.rs"]
mod two_ranks;

use std::error::Error;
use std::time::{Duration, Instant};

use rerail_core::endpoint::{Event, RecvRequest, Selector, SendRequest};
use rerail_core::ids::PeerId;
use rerail_core::mem::{RegionId, Seg};
use rerail_linux::driver::{Options, Transport};
use rerail_linux::settings::Settings;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Bytes of messages: none, what goes inline, what may come inside a completion, what is copied, what is
/// registered.
const SIZES: [usize; 9] = [0, 1, 8, 32, 64, 200, 4096, 65_536, 1 << 20];
/// Messages of each size, from each side.
const COUNT: usize = 40;
/// Longer than all of it takes on any machine; ends what hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() {
    if let Err(why) = exchange() {
        eprintln!("{why}");
        std::process::exit(1);
    }
}

fn exchange() -> Outcome<()> {
    let options = Options { settings: Settings::from_env()? };
    let room = SIZES.into_iter().max().unwrap_or(0) + COUNT * 8;
    let (mut ranks, memory) = two_ranks::open(&options, room)?;
    let deadline = Instant::now() + TIMEOUT;
    let mut bytes = 0;
    for size in SIZES {
        for turn in 0..COUNT {
            let from = turn % 2;
            let (to, mark) = (1 - from, (turn + size) as u8);
            let start = turn * 8;
            fill(&mut ranks[from], memory[from], start, size, mark)?;
            fill(&mut ranks[to], memory[to], start, size, !mark)?;
            let segments = [Seg::new(memory[to], start as u64, size as u64)];
            ranks[to].recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &segments))?;
            let segments = [Seg::new(memory[from], start as u64, size as u64)];
            ranks[from].send(&SendRequest::new(PeerId(to as u32), &segments))?;
            let mut left = 2;
            while left > 0 {
                for rank in &mut ranks {
                    left -= over(rank)?;
                }
                if Instant::now() > deadline {
                    return Err(format!("a message of {size} bytes has not come").into());
                }
            }
            let came = &ranks[to].bytes(memory[to])?[start..start + size];
            if !came.iter().enumerate().all(|(at, byte)| *byte == mark.wrapping_add(at as u8)) {
                return Err(format!("a message of {size} bytes came otherwise than it was sent").into());
            }
            bytes += size;
        }
    }
    println!("OK {} messages, {bytes} bytes", SIZES.len() * COUNT);
    Ok(())
}

fn fill(rank: &mut Transport, region: RegionId, start: usize, size: usize, mark: u8) -> Outcome<()> {
    let bytes = rank.bytes_mut(region)?;
    bytes[start..start + size].iter_mut().enumerate().for_each(|(at, byte)| *byte = mark.wrapping_add(at as u8));
    Ok(())
}

/// One round; how many requests are over.
fn over(rank: &mut Transport) -> Outcome<usize> {
    rank.progress();
    let mut over = 0;
    while let Some(event) = rank.poll_event() {
        match event {
            Event::Completed(completion) => {
                completion.result.map_err(|why| format!("a request failed: {why:?}"))?;
                over += 1;
            }
            Event::PeerLost { .. } => return Err(format!("{event:?}").into()),
            _ => {}
        }
    }
    Ok(over)
}
