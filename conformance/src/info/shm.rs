//! Whether processes of this machine can share memory the way the shared-memory rail does: anonymous files
//! passed over Unix sockets, and a descriptor per process that reports its death.

use rerail_linux::rail::shm::{ShmOptions, single_copy};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use serde::Serialize;

use super::Obstacle;

/// The shared-memory rail's needs.
#[derive(Clone, Debug, Serialize)]
pub struct Shm {
    /// Whether all are met.
    pub usable: bool,
    /// One by one.
    pub parts: Vec<Part>,
    /// Large messages copied once: without it, the ring carries them.
    pub single_copy: Part,
    /// Bytes of a connected peer's ring, of each direction, at first.
    pub ring_bytes_first: u64,
    /// And at most: it grows with use.
    pub ring_bytes_max: u64,
}

/// One need.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// What.
    pub name: &'static str,
    /// Why it is not met.
    pub obstacle: Option<Obstacle>,
}

/// Tries them.
pub fn detect() -> Shm {
    let part = |name, result: Result<(), rustix::io::Errno>, remedy: &str| Part {
        name,
        obstacle: result.err().map(|errno| Obstacle::new(format!("{name}: {errno}"), remedy)),
    };
    let memory = memfd_create("rerail-info", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map(drop);
    let sockets = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map(drop);
    let process = pidfd_open(getpid(), PidfdFlags::empty()).map(drop);
    let parts = vec![
        part(
            "anonymous memory files",
            memory,
            "allow memfd_create (kernel 3.17) in the container's system call filter",
        ),
        part("Unix sockets", sockets, "allow Unix sockets (CONFIG_UNIX, the container's system call filter)"),
        part("process descriptors", process, "allow pidfd_open (kernel 5.3) in the container's system call filter"),
    ];
    let name = "large messages copied once";
    let obstacle = single_copy().err().map(|denied| Obstacle::new(format!("{name}: {denied}"), denied.remedy()));
    let single_copy = Part { name, obstacle };
    let usable = parts.iter().all(|part| part.obstacle.is_none());
    let (ring_bytes_first, ring_bytes_max) = ShmOptions::new(1).ring_bytes();
    Shm { usable, parts, single_copy, ring_bytes_first, ring_bytes_max }
}
