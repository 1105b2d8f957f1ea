//! Whether the rail's own interface is up (L-17): the kernel reports possible changes through rtnetlink(7).
//!
//! A message only makes us look again, with `getifaddrs`; its contents are not parsed, so none can be
//! misread, and lost ones (the socket's buffer is full) do no harm as long as one more comes, which reports
//! the loss. Where no such socket can be had, or the address is on no interface by itself (most of
//! 127.0.0.0/8), nothing is watched: only the system's time-outs then notice the effect of a dead link on
//! connections.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use super::interfaces::is_running;

/// Links, IPv4 addresses, IPv6 addresses (`RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV6_IFADDR`).
const GROUPS: u32 = (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
/// Messages taken at once; the rest comes with the next event.
const MESSAGES_MAX: usize = 64;

/// The change of an interface since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Down,
    Up,
}

/// An interface that is watched.
#[derive(Debug)]
pub(super) struct Watch {
    socket: OwnedFd,
    local: IpAddr,
    is_up: bool,
}

impl Watch {
    /// Watches the interface that has this address; `None`: watching is impossible.
    pub(super) fn open(local: IpAddr) -> Option<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // NETLINK_ROUTE is protocol 0.
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None).ok()?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUPS)).ok()?;
        // After the bind: later changes make a message.
        is_running(local).ok()?.then_some(Watch { socket, local, is_up: true })
    }

    /// Whether the interface was up at the last look.
    pub(super) fn is_up(&self) -> bool {
        self.is_up
    }

    /// Takes the kernel's messages and looks.
    pub(super) fn poll_link_state(&mut self) -> Option<Turn> {
        for _ in 0..MESSAGES_MAX {
            let mut word = [0; 16];
            match rustix::net::recv(&self.socket, &mut word, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Ok(_) | Err(Errno::INTR | Errno::NOBUFS) => {}
                Err(_) => break,
            }
        }
        // Without an answer from the system, the state is unchanged.
        let before = self.is_up;
        self.is_up = is_running(self.local).unwrap_or(before);
        match (before, self.is_up) {
            (true, false) => Some(Turn::Down),
            (false, true) => Some(Turn::Up),
            _ => None,
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
