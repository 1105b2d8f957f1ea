//! The system calls that take raw pieces of memory, or that rustix does not wrap.
//!
//! Payload memory belongs to the application, which may look at it while it is sent; so no Rust reference to
//! it is ever made: pieces go to the system as the `iovec`s that they are laid out like.
#![allow(unsafe_code)]

use std::mem::{MaybeUninit, align_of, offset_of, size_of};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::options::TcpOptions;
use crate::rail::Piece;
use crate::rail::shm::copy_short;

/// The most pieces that one call takes (`IOV_MAX` of Linux).
pub(super) const PIECES_MAX: usize = 1024;

// A slice of pieces is an array of iovecs.
const _: () =
    assert!(size_of::<Piece>() == size_of::<libc::iovec>() && align_of::<Piece>() == align_of::<libc::iovec>());
const _: () = assert!(offset_of!(Piece, start) == offset_of!(libc::iovec, iov_base));
const _: () = assert!(offset_of!(Piece, len) == offset_of!(libc::iovec, iov_len));

fn result(returned: isize) -> Result<usize, Errno> {
    usize::try_from(returned).map_err(|_| {
        // A negative result always comes with an errno.
        // SAFETY: the library's place for this thread's errno.
        Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
    })
}

/// Sends from `pieces`, at most [`PIECES_MAX`], without waiting and without SIGPIPE; returns the bytes taken.
///
/// # Safety
/// Every piece is readable memory.
pub(super) unsafe fn send(fd: BorrowedFd<'_>, pieces: &[Piece]) -> Result<usize, Errno> {
    // SAFETY: an all-zero msghdr is a valid one: null pointers with zero lengths.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut().cast::<libc::iovec>();
    message.msg_iovlen = pieces.len().min(PIECES_MAX) as _;
    loop {
        // SAFETY: `msg_iov` points to `msg_iovlen` iovecs (layout asserted above) over memory that the caller
        // vouches for; sendmsg writes neither to the array nor to the memory.
        match result(unsafe { libc::sendmsg(fd.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) }) {
            Err(Errno::INTR) => {}
            sent => return sent,
        }
    }
}

/// Most bytes of a [small post](send_small).
pub(super) const SMALL_BYTES_MAX: usize = 512;

/// Sends a header and a payload as [`send`] does, at most [`SMALL_BYTES_MAX`] bytes in all: from one piece of
/// memory, which costs the system less than a list.
///
/// # Safety
/// Every piece of the payload is readable memory.
pub(super) unsafe fn send_small(fd: BorrowedFd<'_>, header: &[u8], payload: &[Piece]) -> Result<usize, Errno> {
    let mut bytes = [MaybeUninit::<u8>::uninit(); SMALL_BYTES_MAX];
    let mut len = 0;
    let header = Piece { start: header.as_ptr().cast_mut(), len: header.len() };
    for piece in std::iter::once(&header).chain(payload) {
        let to = &mut bytes[len..len + piece.len];
        // SAFETY: `to` is as long as the piece, which is readable: a borrowed slice, or what the caller
        // vouches for.
        unsafe { copy_short(piece.start, to.as_mut_ptr().cast(), piece.len) };
        len += piece.len;
    }
    loop {
        // SAFETY: the first `len` bytes were written above.
        let sent =
            unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), len, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
        match result(sent) {
            Err(Errno::INTR) => {}
            sent => return sent,
        }
    }
}

/// Receives into `pieces`, at most [`PIECES_MAX`], from a non-blocking socket; returns the bytes put there, 0
/// at the end of the stream.
///
/// # Safety
/// Every piece is writable memory that nothing else uses during the call.
pub(super) unsafe fn receive(fd: BorrowedFd<'_>, pieces: &[Piece]) -> Result<usize, Errno> {
    let count = pieces.len().min(PIECES_MAX) as libc::c_int;
    let fd = fd.as_raw_fd();
    loop {
        let received = match pieces {
            // Costs the system less.
            // SAFETY: the piece is memory that the caller vouches for.
            [piece] => unsafe { libc::recv(fd, piece.start.cast(), piece.len, libc::MSG_DONTWAIT) },
            // SAFETY: `count` iovecs (layout asserted above) over memory that the caller vouches for.
            _ => unsafe { libc::readv(fd, pieces.as_ptr().cast::<libc::iovec>(), count) },
        };
        match result(received) {
            Err(Errno::INTR) => {}
            received => return received,
        }
    }
}

/// A non-blocking TCP socket of the family of `local`, with the buffer sizes of `options`.
pub(super) fn socket(local: SocketAddr, options: &TcpOptions) -> Result<OwnedFd, Errno> {
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    if local.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    // The window scale is agreed upon in the first packets: sizes are set before connect and before listen.
    if let Some(bytes) = options.send_buffer_bytes {
        sockopt::set_socket_send_buffer_size(&fd, bytes)?;
    }
    if let Some(bytes) = options.receive_buffer_bytes {
        sockopt::set_socket_recv_buffer_size(&fd, bytes)?;
    }
    Ok(fd)
}

/// Closes a connection at once: the system discards its data, and the other side receives a reset (tcp(7),
/// `SO_LINGER` with a time of zero).
pub(super) fn abort(fd: OwnedFd) {
    // Where it can't be set, the close that follows has the same effect, only later.
    let _ = sockopt::set_socket_linger(&fd, Some(Duration::ZERO));
}

/// Lets the system choose the local port of a bound socket when it connects, by the whole pair of addresses;
/// else a large job would run out of ports at bind. Best effort: not all systems have it.
pub(super) fn bind_address_only(fd: BorrowedFd<'_>) {
    let _ = set_option(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
}

/// Sets an option of a socket that rustix does not support.
fn set_option(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> Result<(), Errno> {
    let bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is the c_int pointed to, of the length given.
    let set = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), bytes) };
    result(set as isize).map(drop)
}

/// Bytes that wait in the kernel to be sent for the first time (`SIOCOUTQNSD`).
pub(super) fn unsent(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one c_int to the given address.
    let result_code = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCOUTQNSD as _, &raw mut bytes) };
    result(result_code as isize).map(|_| bytes as u64)
}

/// The options of every connection, opened or accepted: no delay of small packets, a limit on the bytes that
/// the kernel takes ahead, and one on how long the other side's host may be silent.
pub(super) fn set_up(fd: BorrowedFd<'_>, options: &TcpOptions) -> Result<(), Errno> {
    let user_timeout_ms = options.user_timeout_ms;
    sockopt::set_tcp_nodelay(fd, true)?;
    if options.unsent_bytes > 0 {
        // With so many bytes unsent the socket is full, and is writable again at half of them.
        let bytes = libc::c_int::try_from(options.unsent_bytes).unwrap_or(libc::c_int::MAX);
        set_option(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)?;
    }
    if user_timeout_ms > 0 {
        // TCP_USER_TIMEOUT also ends a connection whose window the other side keeps closed, that is, whose
        // process computes. So unacknowledged data is judged by `Silence`, and keep-alive is for the rest:
        // its probes start after a quarter of that time, in whole seconds, and end with it.
        let seconds = u64::from(user_timeout_ms).div_ceil(1_000);
        let (idle, pause) = (seconds.div_ceil(4), (seconds / 5).max(1));
        sockopt::set_tcp_keepidle(fd, Duration::from_secs(idle))?;
        sockopt::set_tcp_keepintvl(fd, Duration::from_secs(pause))?;
        sockopt::set_tcp_keepcnt(fd, u32::try_from((seconds - idle) / pause).unwrap_or(u32::MAX).clamp(2, 100))?;
        sockopt::set_socket_keepalive(fd, true)?;
        limit_retransmission_pause(fd, user_timeout_ms);
    }
    Ok(())
}

/// What the kernel has of the other side's (`TCP_INFO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Silence {
    /// Data was sent again, or two probes of a closed window, and nothing was acknowledged since.
    pub(super) waits: bool,
    /// Data or a probe is on its way, sent once or more.
    pub(super) has_unacknowledged: bool,
    /// Milliseconds since the last acknowledgment came.
    pub(super) last_ms: u32,
}

/// Whether an acknowledgment of the other side's kernel is pending, and since when.
pub(super) fn silence(fd: BorrowedFd<'_>) -> Result<Silence, Errno> {
    // The start of `struct tcp_info` (include/uapi/linux/tcp.h): 8 bytes, then words.
    let mut info = [0u32; 15];
    let mut bytes = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the system writes at most `bytes` bytes to `info`.
    let got = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut bytes)
    };
    result(got as isize)?;
    let [_state, _congestion, repeats, probes] = info[0].to_ne_bytes();
    // tcpi_unacked and tcpi_last_ack_recv.
    let (unacknowledged, last_ms) = (info[6], info[14]);
    let waits = unacknowledged > 0 && repeats > 0 || probes > 1;
    Ok(Silence { waits, has_unacknowledged: unacknowledged > 0 || probes > 0, last_ms })
}

/// `TCP_RTO_MAX_MS` of Linux 6.15, which libc does not name yet (include/uapi/linux/tcp.h).
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// Unacknowledged data, and a SYN without an answer, are sent again after at most an eighth of that time and
/// not after 1, 2, 4, 8 seconds and so on: a path that was down is found to be back soon, and the kernel's
/// own limit of 15 repeats ends nothing before that time. Best effort: older systems don't have it.
fn limit_retransmission_pause(fd: BorrowedFd<'_>, user_timeout_ms: u32) {
    // The kernel takes 1 to 120 s.
    let pause_ms = (user_timeout_ms / 8).clamp(1_000, 120_000) as libc::c_int;
    let _ = set_option(fd, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, pause_ms);
}
