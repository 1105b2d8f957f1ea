//! A process that runs out of descriptors.

use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::traffic::readable;
use super::*;

const CHILD: &str = "RERAIL_TEST_SHM_DESCRIPTORS";

/// The process of the test below, with a limit of its own; does nothing where it is run by itself.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none_or(|which| which != "1") {
        return;
    }
    let mut me = Node::new(0);
    let callers = [socket::dial(&me.rail.socket_name).unwrap(), socket::dial(&me.rail.socket_name).unwrap()];
    let limit = getrlimit(Resource::Nofile);
    // Not one more.
    let next = rustix::io::dup(&callers[0]).unwrap();
    let first_free = std::os::fd::AsRawFd::as_raw_fd(&next) as u64;
    drop(next);
    setrlimit(Resource::Nofile, Rlimit { current: Some(first_free), ..limit }).unwrap();
    me.poll();
    assert!(me.rail.arm());
    assert!(!readable(&me), "a connection that can't be accepted keeps no process awake");
    me.rail.disarm();
    assert_eq!((me.rail.counters().shortages, me.rail.counters().shortage), (1, Some(Errno::MFILE)));
    let again = me.rail.next_timeout().unwrap();
    setrlimit(Resource::Nofile, limit).unwrap();
    me.poll();
    assert!(me.rail.openings.is_empty());
    me.now = again;
    run_until_idle(&mut [&mut me]);
    assert_eq!(me.rail.openings.len(), 2);
    println!("{CHILD} passed");
}

/// Two that are connected but for the last step, the descriptor of the dialler's ring in the acceptor's
/// socket, when `limit` comes into force; returns the acceptor's counters and reports.
fn at_the_last_step(limit: impl FnOnce()) -> (RailCounters, Vec<(PeerId, RailFault)>) {
    let large = || ShmOptions { slots: 1 << 12, segment_bytes: 1 << 14, ..options() };
    let (mut a, mut b) = (Node::with(0, large()), Node::with(1, large()));
    add_peers(&mut [&mut a, &mut b]);
    a.connect(1);
    while !b.rail.openings.values().any(Opening::is_proved) {
        a.poll();
        b.poll();
    }
    b.connect(0);
    run(&mut [&mut a], |nodes| nodes[0].sink.up == [PeerId(1)]);
    limit();
    run(&mut [&mut b], |nodes| !nodes[0].sink.down.is_empty());
    (b.rail.counters(), b.sink.down)
}

/// Each in a process where `RLIMIT_NOFILE` or `RLIMIT_AS` affects no other test.
#[test]
fn no_room_for_the_ring() {
    let Ok(which) = std::env::var(CHILD) else { return };
    let errno = if which == "memory" { Errno::NOMEM } else { Errno::MFILE };
    let (counters, down) = at_the_last_step(|| {
        let lower = |resource, current| {
            let limit = getrlimit(resource);
            setrlimit(resource, Rlimit { current: Some(current), ..limit }).unwrap();
        };
        if which == "memory" {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
            // The mapped memory, and half of a ring.
            lower(Resource::As, pages * 4096 + (32 << 20));
        } else {
            let next = rustix::io::dup(std::io::stderr()).unwrap();
            let first_free = std::os::fd::AsRawFd::as_raw_fd(&next) as u64;
            drop(next);
            lower(Resource::Nofile, first_free);
        }
    });
    assert_eq!((counters.shortages, counters.shortage), (1, Some(errno)));
    assert_eq!(down, [(PeerId(0), RailFault::Device { code: errno.raw_os_error() })]);
    println!("{CHILD} passed");
}

/// Not `Corrupt`: the peer has done its part, and the shortage is here.
#[test]
fn shortage_for_the_peer_ring_is_reported_by_its_cause() {
    for which in ["files", "memory"] {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "rail::shm::tests::descriptors::no_room_for_the_ring", "--nocapture"])
            .env(CHILD, which)
            .output()
            .unwrap();
        let child_output = String::from_utf8_lossy(&child.stdout);
        let why = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success() && child_output.contains("passed"), "{which}: {child_output}{why}");
    }
}

#[test]
fn a_process_without_a_free_descriptor_does_not_spin_and_lets_callers_in_later() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rail::shm::tests::descriptors::child", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let child_output = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && child_output.contains("passed"),
        "{child_output}{}",
        String::from_utf8_lossy(&child.stderr)
    );
}
