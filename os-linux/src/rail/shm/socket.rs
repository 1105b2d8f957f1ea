//! Local sockets: one abstract listener per rail, one connection per peer, datagrams that keep their borders.
//!
//! A connection stays open as long as the peer is connected. It carries the handshake, then one descriptor
//! each way, then doorbells and now and then a list of memory that may be mapped (`offers`); its end is how
//! the death of a peer is noticed.
//!
//! The doorbell is a byte on this socket and not an eventfd of the peer's: `MSG_DONTWAIT` belongs to the
//! call, whereas a peer that shares an eventfd's description can turn its `O_NONBLOCK` off and have our next
//! write block for ever. A doorbell can also be dropped when the buffer is full: there are doorbells in it
//! already.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// A listener under an abstract name (L-8): it belongs to the network namespace and vanishes with the
/// process.
pub fn listen(name: &str) -> Result<OwnedFd, Errno> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// A connection to the listener of that name; `AGAIN`: its backlog is full.
pub fn dial(name: &str) -> Result<OwnedFd, Errno> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// The next incoming connection; `AGAIN`: there is none.
pub fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    net::accept_with(listener, FLAGS)
}

/// Sends one datagram, with a descriptor or without.
pub fn send(socket: &OwnedFd, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor]);
    if let Some(descriptors) = &descriptors {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SEND).map(drop)
}

/// Sends a doorbell.
pub fn ring(socket: &OwnedFd) {
    // Full: it rings already. Gone: the next look at the socket reports it.
    let _ = net::send(socket, &[BELL], SEND);
}

/// The one byte that a doorbell is (L-13).
pub const BELL: u8 = b'!';

/// The result of a look at a socket.
#[derive(Debug)]
pub enum Received {
    /// One datagram, of so many bytes, with these descriptors.
    Datagram(usize, Option<OwnedFd>),
    /// The other side is gone.
    End,
    /// Longer than the buffer, or with more descriptors than are allowed here. No descriptor of it was kept.
    Excess,
    /// A descriptor was due, and this process has no room for one more: it is lost.
    NoDescriptor,
    /// Nothing yet.
    Nothing,
}

/// Takes one datagram. Descriptors that come with it are never installed in this process unless `descriptor`
/// announces that one is due (L-10): without room for them the kernel drops them.
pub fn receive(socket: &OwnedFd, bytes: &mut [u8], descriptor: bool) -> Received {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let room = if descriptor { &mut space[..] } else { &mut [] };
    let mut control = RecvAncillaryBuffer::new(room);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = match net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags) {
        Ok(message) => message,
        Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
        Err(_) => return Received::End,
    };
    let (mut first, mut count) = (None, 0);
    for item in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = item {
            // Padding may leave room for more than the requested one; all but a single one are closed here.
            for descriptor in descriptors {
                count += 1;
                first.get_or_insert(descriptor);
            }
        }
    }
    // Room for a descriptor, none installed, and still cut off: the kernel had no number for it.
    if descriptor && count == 0 && message.flags.contains(ReturnFlags::CTRUNC) {
        return Received::NoDescriptor;
    }
    if count > 1 || message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Received::Excess;
    }
    match message.bytes {
        0 => Received::End,
        len => Received::Datagram(len, first),
    }
}
