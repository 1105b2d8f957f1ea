//! The programs of `examples/` that sleep in event loops: by epoll, io_uring and tokio.
#![allow(clippy::duplicate_mod, reason = "each program has its parts by itself, and all are here")]

#[path = "../examples/event_loop_epoll.rs"]
mod by_epoll;
#[path = "../examples/event_loop_tokio.rs"]
mod by_tokio;
#[path = "../examples/event_loop_uring.rs"]
mod by_uring;

#[test]
fn transports_sleep_in_a_set_of_epoll() {
    let sleeps = by_epoll::run();
    assert!(sleeps > 20, "{sleeps}");
}

#[test]
fn transports_sleep_in_a_ring_of_the_kernel() {
    match by_uring::run() {
        Some(sleeps) => assert!(sleeps > 20, "{sleeps}"),
        None => panic!("io_uring is absent: nothing was tested"),
    }
}

#[test]
fn transports_are_tasks_of_tokio() {
    let waits = by_tokio::run();
    assert!(waits > 20, "{waits}");
}
