//! Two transports in event loops by epoll: `cargo run -p rerail-linux --example event_loop_epoll`.
//! Also a test (`tests/event_loops.rs`).

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rerail_linux::{Event, Transport};
use rustix::event::epoll;

#[path = "support/player.rs"]
mod player;
#[path = "support/threads.rs"]
mod threads;

/// The caller's loop: its set holds the transport's descriptor, and could hold others.
fn next(transport: &mut Transport, set: &mut OwnedFd, sleeps: &AtomicU64) -> Event {
    loop {
        transport.progress();
        if let Some(event) = transport.poll_event() {
            return event;
        }
        if transport.arm().expect("a timer") {
            let mut room = [MaybeUninit::uninit(); 4];
            // Interrupted by a signal: the next look finds what there is.
            let _ = epoll::wait(&*set, &mut room, None);
            sleeps.fetch_add(1, Relaxed);
            transport.disarm();
        }
    }
}

/// Plays, and returns how often a loop slept.
pub fn run() -> u64 {
    let sleeps = AtomicU64::new(0);
    let make = |transport: &Transport| {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
        let data = epoll::EventData::new_u64(0);
        epoll::add(&set, transport.fd(), data, epoll::EventFlags::IN).expect("a descriptor that can be watched");
        set
    };
    threads::play(make, |transport, set| next(transport, set, &sleeps));
    sleeps.into_inner()
}

#[allow(dead_code, reason = "a test has its own")]
fn main() {
    println!("all messages came; slept {} times", run());
}
