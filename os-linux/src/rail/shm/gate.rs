//! The way by which a peer writes to this process's memory (L-23), which this process can close: writes
//! that have not begun by then never begin.
//!
//! A gate is one page. A writer makes one system call (`process_vm_writev`) for each of its claims, with four
//! ranges of the reader's memory: a word of the gate, another word of it, the target, and a third word of it;
//! into each word goes the token of the claim. The kernel looks each range up when it comes to it, and ends
//! the call where one can't be written. Two facts follow.
//!
//! - The third word has the token only after the last byte of the target is written.
//! - The page is made read-only, and then the first word is read. If it has no token without its end, no
//!   write that had not ended before can reach the target any more: the writer comes to the second range,
//!   at the earliest, after this, and is refused there. (One look-up of the page before the change may
//!   still lead to a write of the first word after it; so a single range would prove nothing.) If it has
//!   one, the writer is in its system call, or is refused: it is in the kernel, where no signal stops it;
//!   its claim ends soon, or its process does, or is found stopped, and then it has left the kernel.
//!
//! The page lies (L-24) at an address drawn at random from a part of the address space that nothing else
//! uses. So a writer that was stopped before its call, and finds another process behind the same process id
//! or another program in the same process, is refused at the first range, as by a key of some 30 bits.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::copy;
use super::reach::Reach;
use crate::random::random;

/// Bytes of a gate; the machine's pages are no larger than that.
const BYTES: usize = 64 * 1024;
/// Where its words lie.
const STARTED_AT: u64 = 0;
const PASSED_AT: u64 = 8;
const FINISHED_AT: u64 = 64;

/// Where gates lie: above what programs are linked to and below what the kernel gives out by itself.
const LOWEST: u64 = 1 << 44;
const PLACES: u64 = (1 << 46) / BYTES as u64;
/// Places that are tried.
const TRIES: usize = 4;

/// A gate of this process.
#[derive(Debug)]
pub struct Gate {
    page: NonNull<u8>,
    is_open: bool,
    /// A writer that comes back must find nothing else there.
    must_stay: bool,
}

// SAFETY: memory of the process, whose words are only touched atomically; any thread may use or unmap it.
unsafe impl Send for Gate {}

impl Gate {
    /// An open one; `None`: the address space has no such place.
    pub fn new() -> Option<Self> {
        (0..TRIES).find_map(|_| {
            let place = LOWEST + u64::from_ne_bytes(random().ok()?) % PLACES * BYTES as u64;
            let at = std::ptr::without_provenance_mut::<c_void>(usize::try_from(place).ok()?);
            let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE);
            // SAFETY: a new mapping where nothing is mapped touches no memory in use.
            let page = unsafe { mm::mmap_anonymous(at, BYTES, rights, flags) }.ok()?;
            let gate = Gate { page: NonNull::new(page.cast())?, is_open: true, must_stay: false };
            // An old kernel takes the address as a hint.
            (page.addr() == at.addr()).then_some(gate)
        })
    }

    /// Where writers find it.
    pub fn address(&self) -> u64 {
        self.page.addr().get() as u64
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: the words lie in the mapping, which lives as long as `self`, each at a multiple of 8; they
        // are written by the kernel for another process, and here atomically. Any bits are an integer.
        unsafe { &*self.page.as_ptr().add(at as usize).cast::<AtomicU64>() }
    }

    /// The token of the claim that was written to the end last.
    pub fn finished(&self) -> u64 {
        self.word(FINISHED_AT).load(Ordering::Acquire)
    }

    /// Whether a write may have begun that is not known to have ended. Of use when it is closed.
    pub fn is_passed(&self) -> bool {
        // The end first: what ends between the loads counts as not ended.
        let finished = self.finished();
        self.word(STARTED_AT).load(Ordering::Acquire) != finished
    }

    /// Whether writers get through.
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Closes it.
    pub fn close(&mut self) {
        if self.protect(MprotectFlags::READ) {
            self.is_open = false;
        }
    }

    /// Opens it for new claims; no earlier one is in progress or can still begin.
    pub fn open(&mut self) {
        self.is_open = self.is_open || self.protect(MprotectFlags::READ | MprotectFlags::WRITE);
        if self.is_open {
            for at in [STARTED_AT, PASSED_AT, FINISHED_AT] {
                self.word(at).store(0, Ordering::Relaxed);
            }
            self.must_stay = false;
        }
    }

    /// Its address space is never given back: a writer may still come.
    pub fn keep(&mut self) {
        self.must_stay = true;
    }

    /// No writer comes any more.
    pub fn release(&mut self) {
        self.must_stay = false;
    }

    fn protect(&self, rights: MprotectFlags) -> bool {
        // SAFETY: the mapping is ours; while it can't be written, this process does not write it.
        let is_done = unsafe { mm::mprotect(self.page.as_ptr().cast(), BYTES, rights) }.is_ok();
        fence(Ordering::SeqCst);
        is_done
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let (page, len) = (self.page.as_ptr().cast::<c_void>(), BYTES);
        if self.must_stay {
            // SAFETY: the mapping is ours, and nothing in it is of use any more; its pages go back, its place
            // does not.
            let _ = unsafe { mm::madvise(page, len, Advice::LinuxDontNeed) };
            self.protect(MprotectFlags::empty());
            return;
        }
        // SAFETY: the mapping is ours, and its users are gone. It can't fail for a range that `mmap` gave.
        let _ = unsafe { mm::munmap(page, len) };
    }
}

/// Writes `len` bytes of this process's memory at `from` to `to` of the peer's, through its gate, for the
/// claim that `token` names.
///
/// All addresses may be the peer's choice: what it could not read it does not get, because the caller has its
/// proof that it may read this process's memory; and what is not there is an error of the system call.
pub fn write(reach: &Reach, gate: u64, token: u64, (from, to, len): (u64, u64, usize)) -> Result<(), Errno> {
    let words = [token; 3];
    let word = |index: usize| libc::iovec { iov_base: (&raw const words[index]).cast_mut().cast(), iov_len: 8 };
    let at = |address: u64, len| libc::iovec {
        iov_base: std::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0)),
        iov_len: len,
    };
    let local = [word(0), word(1), at(from, len), word(2)];
    let remote = [
        at(gate.wrapping_add(STARTED_AT), 8),
        at(gate.wrapping_add(PASSED_AT), 8),
        at(to, len),
        at(gate.wrapping_add(FINISHED_AT), 8),
    ];
    let (mine, theirs) = (local.len() as libc::c_ulong, remote.len() as libc::c_ulong);
    // SAFETY: nothing of this process's memory is changed, unless both ends are in one process: then `remote`
    // names what its reader was given to write, and the kernel copies as between two. What can't be read or
    // written is an error.
    let got = unsafe { libc::process_vm_writev(reach.pid(), local.as_ptr(), mine, remote.as_ptr(), theirs, 0) };
    match usize::try_from(got) {
        Err(_) => Err(copy::last_errno()),
        Ok(got) if got == len + 3 * 8 => Ok(()),
        Ok(_) => Err(Errno::FAULT),
    }
}

/// Why a peer that had passed a gate, since closed, is surely not in its system call any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Its end of the connection is closed, or its process has ended: it does not come back.
    Gone,
    /// It is stopped, which a process is only outside of the kernel.
    Stopped,
}

/// What is known of a peer that had passed a gate.
pub fn is_over(reach: &Reach, socket: &OwnedFd) -> Option<Over> {
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A process closes its files when none of its threads is in a system call any more, and a rail that ends
    // does so in the thread that makes the calls.
    let mut hang_up = [PollFd::new(socket, PollFlags::empty())];
    if poll(&mut hang_up, Some(&zero)).is_ok() && hang_up[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
        return Some(Over::Gone);
    }
    // The process's end, where others hold its end of the socket too: it comes after that of all its threads.
    Pid::from_raw(reach.pid())?;
    match has_ended(reach.pid()) {
        true => Some(Over::Gone),
        false => is_stopped(reach.pid()).then_some(Over::Stopped),
    }
}

/// Whether a process has ended, all of its threads.
pub fn has_ended(pid: i32) -> bool {
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    let Some(pid) = Pid::from_raw(pid) else { return false };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => {
            let mut end = [PollFd::new(&process, PollFlags::IN)];
            poll(&mut end, Some(&zero)).is_ok() && !end[0].revents().is_empty()
        }
        Err(errno) => errno == Errno::SRCH,
    }
}

/// Whether all threads of a process are stopped.
fn is_stopped(pid: i32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let mut count = 0;
    for task in tasks {
        let Ok(stat) = task.and_then(|task| std::fs::read_to_string(task.path().join("stat"))) else { return false };
        // Behind the name, which may have brackets too.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if !matches!(state, Some('T' | 't' | 'Z' | 'X')) {
            return false;
        }
        count += 1;
    }
    count > 0
}
