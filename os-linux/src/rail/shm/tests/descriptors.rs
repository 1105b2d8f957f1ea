//! A process that runs out of descriptors.

use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::traffic::readable;
use super::*;

const CHILD: &str = "RERAIL_TEST_SHM_DESCRIPTORS";

/// The process of the test below, whose limit concerns nobody else; nothing where it is run by itself.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
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
    assert!(!readable(&me), "a caller who can't be let in keeps nobody awake");
    me.rail.disarm();
    let again = me.rail.next_timeout().unwrap();
    setrlimit(Resource::Nofile, limit).unwrap();
    me.poll();
    assert!(me.rail.openings.is_empty());
    me.now = again;
    settle(&mut [&mut me]);
    assert_eq!(me.rail.openings.len(), 2);
    println!("{CHILD} passed");
}

#[test]
fn a_process_without_a_free_descriptor_does_not_spin_and_lets_callers_in_later() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rail::shm::tests::descriptors::child", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("passed"), "{said}{}", String::from_utf8_lossy(&child.stderr));
}
