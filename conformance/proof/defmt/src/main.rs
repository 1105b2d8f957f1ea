//! Drives an endpoint through the life of a peer and lets it log, as a stream of defmt frames on standard
//! output. `tests/decode.rs` reads it.

use std::io::Write;
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rerail_core::config::Config;
use rerail_core::endpoint::{Endpoint, RailEvent, RailFault, SendRequest};
use rerail_core::ids::{PeerId, RailId};
use rerail_core::rail::RailFacts;
use rerail_core::store::arena::REGION_ALIGN;
use rerail_core::time::{Nanos, Time};

/// The frame under construction.
static FRAME: Mutex<(defmt::Encoder, Vec<u8>)> = Mutex::new((defmt::Encoder::new(), Vec::new()));

#[defmt::global_logger]
struct Stdout;

/// One step of the encoder on the frame.
fn encode(step: impl FnOnce(&mut defmt::Encoder, &mut Vec<u8>)) {
    let (encoder, frame) = &mut *FRAME.lock().expect("no logging call panics");
    step(encoder, frame);
}

// SAFETY: this program has one thread, so that one frame is acquired, written and released after the other.
unsafe impl defmt::Logger for Stdout {
    fn acquire() {
        encode(|encoder, frame| encoder.start_frame(|bytes| frame.extend_from_slice(bytes)));
    }

    unsafe fn flush() {}

    unsafe fn release() {
        encode(|encoder, frame| encoder.end_frame(|bytes| frame.extend_from_slice(bytes)));
        let frame = std::mem::take(&mut FRAME.lock().expect("no logging call panics").1);
        std::io::stdout().write_all(&frame).expect("standard output takes the log");
    }

    unsafe fn write(bytes: &[u8]) {
        encode(|encoder, frame| encoder.write(bytes, |bytes| frame.extend_from_slice(bytes)));
    }
}

/// A time for each line: here one microsecond apart.
static NOW_US: AtomicU64 = AtomicU64::new(0);
defmt::timestamp!("{=u64:us}", NOW_US.fetch_add(1, Ordering::Relaxed));

/// A peer is connected, its only rail fails twice, and never comes back.
fn main() {
    let config = Config { rails_max: 1, ..Config::new(PeerId(0), 4) };
    let facts = RailFacts { eager_bytes_max: 4096, segment_bytes_max: 8192, posts_max: 8, ..RailFacts::default() };
    let needed = config.memory_bytes().expect("the configuration is valid") + REGION_ALIGN;
    let mut memory = vec![MaybeUninit::uninit(); needed];
    let start = memory.as_ptr().align_offset(REGION_ALIGN);
    let mut now = Time(0);
    let mut endpoint = Endpoint::new(config, &[facts], &mut memory[start..], now).expect("the endpoint starts");

    let (peer, rail) = (PeerId(3), RailId(0));
    endpoint.add_peer(peer, 1).expect("rank 3 of 4 may be added");
    endpoint.send(now, &SendRequest::new(peer, &[])).expect("an empty message can be sent");
    poll(&mut endpoint, now);
    endpoint.handle_rail_event(now, RailEvent::Up { peer, rail });
    poll(&mut endpoint, now);
    for _ in 0..2 {
        now = now + Nanos::from_millis(1);
        endpoint.handle_rail_event(now, RailEvent::Down { peer, rail, fault: RailFault::Device { code: 110 } });
        poll(&mut endpoint, now);
    }
    while let Some(due) = endpoint.next_timeout() {
        now = now.max(due);
        endpoint.handle_timeout(now);
        poll(&mut endpoint, now);
    }
}

/// Takes the endpoint's actions, and does not execute them.
fn poll(endpoint: &mut Endpoint<'_>, now: Time) {
    let mut actions = heapless::Vec::new();
    while endpoint.poll_actions(now, &mut actions) > 0 {
        actions.clear();
    }
    while endpoint.poll_event().is_some() {}
}
