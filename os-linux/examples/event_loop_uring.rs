//! Two transports in event loops by io_uring: `cargo run -p rerail-linux --example event_loop_uring`.
//! Also a test (`tests/event_loops.rs`).
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use io_uring::{IoUring, opcode, types};
use rerail_linux::{Event, Transport};

#[path = "support/player.rs"]
mod player;
#[path = "support/threads.rs"]
mod threads;

/// The caller's loop: one poll of the transport's descriptor for each sleep.
fn next(transport: &mut Transport, ring: &mut IoUring, sleeps: &AtomicU64) -> Event {
    loop {
        transport.progress();
        if let Some(event) = transport.poll_event() {
            return event;
        }
        if transport.arm().expect("a timer") {
            let fd = types::Fd(transport.fd().as_raw_fd());
            let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
            // SAFETY: the entry names no memory, and its descriptor is open as long as the transport lives.
            unsafe { ring.submission().push(&poll) }.expect("room for one entry");
            while ring.completion().next().is_none() {
                // Interrupted by a signal: the poll is still with the kernel.
                let _ = ring.submit_and_wait(1);
            }
            sleeps.fetch_add(1, Relaxed);
            transport.disarm();
        }
    }
}

/// Plays, and returns how often a loop slept; `None`: the kernel or its settings offer no io_uring.
pub fn run() -> Option<u64> {
    IoUring::new(4).ok()?;
    let sleeps = AtomicU64::new(0);
    let make = |_: &Transport| IoUring::new(4).expect("one was there before");
    threads::play(make, |transport, ring| next(transport, ring, &sleeps));
    Some(sleeps.into_inner())
}

#[allow(dead_code, reason = "a test has its own")]
fn main() {
    match run() {
        Some(sleeps) => println!("all messages came; slept {sleeps} times"),
        None => {
            eprintln!("io_uring is absent");
            std::process::exit(69);
        }
    }
}
