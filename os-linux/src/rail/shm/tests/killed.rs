//! A process that is killed in the middle of it.

use std::process::Command;

use super::*;

const ADDRESS: &str = "RERAIL_TEST_SHM_ADDRESS";

/// The other process of the test below; nothing where it is run by itself.
#[test]
fn child() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let mut me = Node::new(1);
    meet(&mut me.rail, 0, &address);
    me.connect(0);
    run(&mut [&mut me], |nodes| !nodes[0].sink.up.is_empty());
    for number in 0..3 {
        me.send(0, number, 1000);
    }
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
    unreachable!("killed");
}

fn names_in_dev_shm() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/dev/shm") else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn killed_peer_is_reported_after_its_last_packets() {
    let before = names_in_dev_shm();
    let mut parent = Node::new(0);
    expect(&mut parent, 1);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rail::shm::tests::killed::child"])
        .env(ADDRESS, parent.rail.address())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // The child's end wakes this process as its packets do: no clock is needed.
    while parent.sink.down.is_empty() {
        if parent.poll() == 0 && parent.rail.arm() {
            let fd = parent.rail.wait_fd().unwrap();
            rustix::event::poll(&mut [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)], None).unwrap();
        }
        parent.rail.disarm();
    }
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert_eq!(parent.sink.down, [(PeerId(1), RailFault::Closed)]);
    assert_eq!(parent.taken_from(1), (0..3).map(|number| packet(number, 1000)).collect::<Vec<_>>());
    assert!(names_in_dev_shm().iter().all(|name| before.contains(name) || !name.contains("rerail")));
    assert!(parent.rail.links.is_empty());
    // Its name is free again, and its address has no listener.
    parent.connect(1);
    parent.poll();
    assert_eq!(parent.sink.down[1..], [(PeerId(1), RailFault::Refused)]);
}
