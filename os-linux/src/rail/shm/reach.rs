//! Whether this process can read a peer's memory, and the proof at each read that it still is that peer's.
//!
//! The kernel reuses process ids, and an `exec` or an abandoned connection leaves the id as it is. So each
//! subchannel has a *seal*: 16 random bytes in private memory, whose address and value are sent to the peer
//! with the ring (`connect::Share`). A read takes the seal last, in the same system call as the payload: if
//! it has the agreed value, then the memory read was this process's, and this end of the subchannel had not
//! ended, when the payload was read. A side that gives up a subchannel breaks its seal before it gives memory
//! back (F-2).
//!
//! The id comes from the kernel (`SO_PEERCRED`), in this process's PID namespace. Yama, a system call filter
//! or a container decide whether it may be used; the first read of the seal finds out. The library never
//! calls `PR_SET_PTRACER`: the owner of a process decides which processes may read its memory.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::io::Errno;

use super::copy;
use crate::rail::Piece;
use crate::random::random;

/// 64-bit words of a seal.
const WORDS: usize = 2;

/// Bytes of a seal.
pub const SEAL_BYTES: usize = WORDS * 8;

/// Bytes of the secret behind a seal, which is never sent: a peer that has it has read this process's
/// memory.
pub const PASS_BYTES: usize = WORDS * 8;

/// This side's seal of one subchannel: broken when it is dropped.
#[derive(Debug)]
pub struct Seal {
    /// The seal, and the pass.
    words: Box<[AtomicU64; 2 * WORDS]>,
}

impl Seal {
    /// A new one, unlike all others.
    pub fn new() -> Result<Self, Errno> {
        let mut words = [0; 2 * WORDS];
        for word in &mut words {
            *word = u64::from_ne_bytes(random()?);
        }
        Ok(Seal { words: Box::new(words.map(AtomicU64::new)) })
    }

    /// Where it lies.
    pub fn address(&self) -> u64 {
        self.words.as_ptr().addr() as u64
    }

    /// Its value.
    pub fn value(&self) -> [u8; SEAL_BYTES] {
        self.read(0)
    }

    /// The pass.
    pub fn pass(&self) -> [u8; PASS_BYTES] {
        self.read(WORDS)
    }

    fn read(&self, first: usize) -> [u8; SEAL_BYTES] {
        bytemuck::cast::<[u64; WORDS], _>(std::array::from_fn(|word| self.words[first + word].load(Ordering::Relaxed)))
    }

    /// From now on no read of the peer's counts.
    pub fn break_now(&self) {
        self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        // Later writes to memory that the peer may be reading come after this.
        fence(Ordering::SeqCst);
    }
}

impl Drop for Seal {
    fn drop(&mut self) {
        self.break_now();
    }
}

/// Why a process's memory can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// This process's settings turn it off (`shm_single_copy`).
    #[error("shm_single_copy is off")]
    Off,
    /// The peer is in a PID namespace that this process can't see into.
    #[error("the peer's PID namespace is not visible here")]
    Namespace,
    /// The kernel refused.
    #[error("process_vm_readv: {0}")]
    System(Errno),
    /// Yama lets processes read their descendants at most; its `ptrace_scope` is this.
    #[error("kernel.yama.ptrace_scope is {0}")]
    Yama(u8),
    /// The memory of that process is not the peer's.
    #[error("the process behind the socket is not the one whose memory was named")]
    UnrelatedProcess,
}

impl Denied {
    /// The remedy.
    pub const fn remedy(self) -> &'static str {
        match self {
            Denied::Off => "set shm_single_copy (RERAIL_SHM_SINGLE_COPY) to on",
            Denied::Namespace => {
                "run the processes of a host in one PID namespace (containers: --pid=host or a shared one)"
            }
            Denied::System(Errno::NOSYS) => {
                "a kernel with CONFIG_CROSS_MEMORY_ATTACH, and a system call filter that allows process_vm_readv"
            }
            Denied::System(_) => {
                "run all processes as one user in one user namespace, dumpable, with kernel.yama.ptrace_scope=0 \
                 (or prctl(PR_SET_PTRACER) by the application), and let the system call filter allow process_vm_readv"
            }
            Denied::Yama(_) => {
                "sysctl kernel.yama.ptrace_scope=0, CAP_SYS_PTRACE, or prctl(PR_SET_PTRACER) by the application"
            }
            Denied::UnrelatedProcess => "let the process that opened the connection keep it, without fork",
        }
    }
}

/// Whether processes of this user can read each other's memory here, as far as one of them can determine: a
/// pair determines it when it connects.
///
/// # Errors
/// The obstacle.
pub fn single_copy() -> Result<(), Denied> {
    let seal = Seal::new().map_err(Denied::System)?;
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let reach = Reach { pid: me, seal_address: seal.address(), seal: seal.value(), ..Reach::none(Denied::Off) };
    match copy::read(&reach, 0, &[]) {
        Ok(()) => {}
        Err(copy::Failure::System(errno)) => return Err(Denied::System(errno)),
        Err(copy::Failure::Unsealed) => return Err(Denied::UnrelatedProcess),
    }
    // A process may always read itself; others, by the scope. No file: no Yama.
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    match scope.ok().and_then(|scope| scope.trim().parse().ok()) {
        Some(scope @ 1..) if scope > 2 || !rustix::process::geteuid().is_root() => Err(Denied::Yama(scope)),
        _ => Ok(()),
    }
}

/// A peer's memory.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    pid: i32,
    seal_address: u64,
    seal: [u8; SEAL_BYTES],
    /// What was read behind the seal.
    pass: [u8; PASS_BYTES],
    /// It can't be read.
    pub denied: Option<Denied>,
}

impl Reach {
    /// Without a peer.
    pub const fn none(why: Denied) -> Self {
        Reach { pid: 0, seal_address: 0, seal: [0; SEAL_BYTES], pass: [0; PASS_BYTES], denied: Some(why) }
    }

    /// For a peer in this process, which has this seal.
    #[cfg(test)]
    pub fn of_this_process(seal: &Seal) -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Reach { pid, seal_address: seal.address(), seal: seal.value(), pass: seal.pass(), denied: None }
    }

    /// For the peer at the other end of `socket`, which announced `seal`. Tries once whether it can be read.
    pub fn probe(socket: &OwnedFd, seal_address: u64, seal: [u8; SEAL_BYTES]) -> Self {
        // Processes of another namespace have number 0 here.
        let (pid, denied) = match copy::pid_of_peer(socket) {
            Ok(0) => (0, Some(Denied::Namespace)),
            Ok(pid) => (pid, None),
            Err(errno) => (0, Some(Denied::System(errno))),
        };
        let mut reach = Reach { pid, seal_address, seal, pass: [0; PASS_BYTES], denied };
        if denied.is_none() {
            let mut pass = [0; PASS_BYTES];
            let piece = Piece { start: pass.as_mut_ptr(), len: PASS_BYTES };
            reach.denied = match copy::read(&reach, seal_address.wrapping_add(SEAL_BYTES as u64), &[piece]) {
                Ok(()) => {
                    reach.pass = pass;
                    None
                }
                Err(copy::Failure::System(errno)) => Some(Denied::System(errno)),
                Err(copy::Failure::Unsealed) => Some(Denied::UnrelatedProcess),
            };
        }
        reach
    }

    pub(super) const fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) const fn seal_address(&self) -> u64 {
        self.seal_address
    }

    pub(super) const fn pass(&self) -> &[u8; PASS_BYTES] {
        &self.pass
    }

    pub(super) const fn seal(&self) -> &[u8; SEAL_BYTES] {
        &self.seal
    }
}
