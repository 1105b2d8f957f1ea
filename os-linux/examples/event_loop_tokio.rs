//! Two transports as two tasks of tokio on one thread, by `Transport::next_event`: `cargo run -p rerail-linux
//! --example event_loop_tokio`. Also run as a test (`tests/event_loops.rs`).
#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use player::Player;
use tokio::io::unix::AsyncFd;

#[path = "support/player.rs"]
mod player;

/// What `next_event` needs of an executor.
fn is_readable(fd: &AsyncFd<OwnedFd>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
    fd.poll_read_ready(context).map(|ready| ready.map(|mut ready| ready.clear_ready()))
}

async fn play(mut player: Player, is_first: bool, pending: &Cell<u64>) {
    let fd = player.transport.fd().try_clone_to_owned().expect("one more descriptor");
    // SAFETY: an `OwnedFd` is the same open descriptor for as long as `AsyncFd` owns it.
    let fd = unsafe { AsyncFd::register(fd) }.expect("a descriptor to watch");
    player.begin(is_first);
    loop {
        let readable = |context: &mut Context<'_>| {
            let readable = is_readable(&fd, context);
            pending.set(pending.get() + u64::from(readable.is_pending()));
            readable
        };
        let event = player.transport.next_event(readable).await.expect("a descriptor that can be watched");
        if player.take(event) {
            break;
        }
        // Where events never cease, the other task has its turn all the same.
        tokio::task::yield_now().await;
    }
    // Leaving blocks, and needs the other side to answer.
    tokio::task::spawn_blocking(|| player.end()).await.expect("it leaves in good order");
}

/// Plays, and returns how often a task waited.
pub fn run() -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let pending = Cell::new(0);
    for rail in ["shm", "tcp"] {
        let [first, second] = player::pair(rail);
        runtime.block_on(async { tokio::join!(play(first, true, &pending), play(second, false, &pending)) });
    }
    pending.into_inner()
}

#[allow(dead_code, reason = "a test has its own")]
fn main() {
    println!("all messages came; waited {} times", run());
}
