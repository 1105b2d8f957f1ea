//! An authenticated connection: an established subchannel.

use std::os::fd::{AsFd, OwnedFd};

use rerail_core::endpoint::RailFault;
use rerail_core::ids::{PeerId, PostId};
use rerail_core::time::{Nanos, Time};
use rerail_core::wire::HEADER_BYTES_MAX;
use rustix::io::Errno;

use super::options::TcpOptions;
use super::receive::{Reading, Received, Receiver, Scratch};
use super::send::{Flush, SendQueue};
use super::sys::{self, Silence};
use crate::rail::{Outgoing, RailCounters};

/// After so many polls without data, a connection is left to epoll.
const HOT_POLLS: u8 = 250;

/// Of so many small posts so many are reported in any case.
const SMALL_TURN: u16 = 1024;
const SMALL_REPORTED: u16 = 32;

/// Calls of [`Receiver::receive`] for the rest of a connection: more than any receive buffer takes.
const FINISH_MAX: usize = 64;

/// State of the socket, from events and from how the last call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    /// A read may find something.
    pub(super) read: bool,
    /// A write may find room.
    pub(super) write: bool,
    /// An error or the end of the stream lies ahead: read until it is met.
    pub(super) end: bool,
}

/// What the other side's kernel has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerAcked {
    All,
    /// The rest is on its way.
    Some,
    /// Nothing for too long: its host is gone.
    Nothing,
}

/// A socket, its send queue, and the progress of the incoming packet.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) fd: OwnedFd,
    pub(super) peer: PeerId,
    pub(super) ready: Ready,
    /// It is in the rail's list of connections to serve.
    pub(super) listed: bool,
    /// Polls for which it is still tried without an event.
    pub(super) hot_polls: u8,
    send: SendQueue,
    receive: Receiver,
    /// Since when an acknowledgment of the other side's kernel is pending; see [`sys::Silence`].
    silent_since: Option<Time>,
    /// Why sending failed; reported once the received data is delivered.
    broken: Option<RailFault>,
    /// Small posts, in turns, and the poll after which the last one came.
    small: u16,
    quiet_at: u32,
}

/// How serving a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// It continues.
    Open,
    /// It is over; all that arrived is delivered.
    Over(RailFault),
}

impl Connection {
    pub(super) fn new(fd: OwnedFd, peer: PeerId, options: &TcpOptions) -> Self {
        Connection {
            fd,
            peer,
            ready: Ready { read: true, write: true, end: false },
            listed: false,
            hot_polls: 0,
            send: SendQueue::new(options.posts_max, options.unsent_bytes > 0),
            receive: Receiver::new(),
            silent_since: None,
            broken: None,
            small: 0,
            quiet_at: 0,
        }
    }

    /// Whether a small post is not reported, if the system takes it: the first after a poll, apart from some
    /// that the core measures (P-1).
    pub(super) const fn is_next_quiet(&mut self, polls: u32) -> bool {
        self.small = (self.small + 1) % SMALL_TURN;
        let is_first = self.quiet_at != polls;
        self.quiet_at = polls;
        is_first && self.small >= SMALL_REPORTED
    }

    /// Takes a post. One of a small message by itself (`ALONE`) is sent at once, where the system has room;
    /// others wait for the end of their batch, or until they are large together.
    pub(super) fn post<const ALONE: bool>(
        &mut self,
        outgoing: &Outgoing<'_>,
        scratch: &mut Scratch,
        counters: &mut RailCounters,
        done: impl FnMut(PostId),
    ) {
        if self.broken.is_some() {
            return;
        }
        let mut done = done;
        if ALONE
            && self.ready.write
            && let Some(flushed) = self.send.send_small(self.fd.as_fd(), outgoing, counters, &mut done)
        {
            return self.flushed(flushed);
        }
        if !self.send.push(outgoing) {
            // Half a packet is worse than none: the stream would be out of step.
            debug_assert!(false, "a header is at most {HEADER_BYTES_MAX} bytes");
            self.fail(RailFault::Corrupt);
        } else if self.ready.write && (ALONE || self.send.is_large()) {
            self.flush(scratch, counters, done);
        }
    }

    /// Writes as much as the system takes.
    pub(super) fn flush(&mut self, scratch: &mut Scratch, counters: &mut RailCounters, done: impl FnMut(PostId)) {
        let flushed = self.send.flush(self.fd.as_fd(), &mut scratch.pieces, counters, done);
        self.flushed(flushed);
    }

    fn flushed(&mut self, flushed: Result<Flush, Errno>) {
        match flushed {
            Ok(Flush::Empty | Flush::More) => {}
            Ok(Flush::Full) => self.ready.write = false,
            Err(errno) => self.fail(fault_of(errno)),
        }
    }

    fn fail(&mut self, fault: RailFault) {
        self.broken = Some(fault);
        self.ready = Ready { read: true, write: false, end: true };
    }

    /// Whether posts wait for the end of their batch, or for another turn.
    pub(super) fn holds_back(&self) -> bool {
        self.ready.write && !self.send.is_empty()
    }

    /// Whether there is something to do now.
    pub(super) fn has_work(&self) -> bool {
        self.ready.read || self.ready.end || self.holds_back()
    }

    /// Whether the system has posts that are not over: no event reports when they are.
    pub(super) fn is_waiting(&self) -> bool {
        self.broken.is_none() && self.send.holds()
    }

    /// Whether posts wait until the system has room, which an event reports.
    pub(super) fn is_full(&self) -> bool {
        !self.ready.write && !self.send.is_empty()
    }

    /// Whether all posts are with the system.
    pub(super) fn is_flushed(&self) -> bool {
        self.send.is_empty()
    }

    /// Whether sending makes no sense any more.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// What the other side's kernel has acknowledged; nothing counts after `longest`, and `before` is the
    /// time of the last such look. A closed window is no silence: its probes are acknowledged.
    pub(super) fn listen(&mut self, now: Time, before: Time, longest: Nanos) -> PeerAcked {
        let silence = sys::silence(self.fd.as_fd()).ok();
        let has_unacknowledged = silence.is_some_and(|silence| silence.has_unacknowledged);
        self.silent_since = silence.filter(|silence| silence.waits).map(|Silence { last_ms, .. }| {
            let last = Time(now.0.saturating_sub(Nanos::from_millis(last_ms.into()).0));
            last.max(self.silent_since.unwrap_or(before))
        });
        match self.silent_since {
            Some(since) if now - since >= longest => PeerAcked::Nothing,
            None if !has_unacknowledged => PeerAcked::All,
            _ => PeerAcked::Some,
        }
    }

    /// The peer has given it up: takes the data that has arrived, and returns why it is over.
    pub(super) fn finish(&mut self, reading: &mut Reading<'_>) -> RailFault {
        // An honest peer sends nothing more; data of any other one is bounded.
        for _ in 0..FINISH_MAX {
            match self.receive.receive(self.fd.as_fd(), true, reading) {
                Received::More => {}
                Received::Drained => break,
                Received::Over(fault) => return self.broken.unwrap_or(fault),
            }
        }
        self.broken.unwrap_or(RailFault::Closed)
    }

    /// Writes and reads as much as possible within the limits.
    pub(super) fn serve(&mut self, reading: &mut Reading<'_>, mut done: impl FnMut(PostId)) -> Served {
        if self.holds_back() {
            self.flush(reading.scratch, reading.counters, &mut done);
        } else if self.is_waiting()
            && let Err(errno) = self.send.report_taken(self.fd.as_fd(), reading.counters, &mut done)
        {
            self.fail(fault_of(errno));
        }
        let hot = self.hot_polls > 0;
        if !(self.ready.read || self.ready.end || hot) {
            return Served::Open;
        }
        let before = reading.counters.bytes_received;
        let received = self.receive.receive(self.fd.as_fd(), self.ready.end, reading);
        self.hot_polls = match reading.counters.bytes_received == before {
            true => self.hot_polls.saturating_sub(1),
            false => HOT_POLLS,
        };
        match received {
            Received::More => self.ready.read = true,
            Received::Drained => {
                self.ready.read = false;
                if let Some(fault) = self.broken {
                    return Served::Over(fault);
                }
                // An urgent event without an end behind it: wait for the next.
                self.ready.end = false;
            }
            Received::Over(fault) => return Served::Over(self.broken.unwrap_or(fault)),
        }
        Served::Open
    }
}

/// The fault reported to the core for a system's error on an established connection.
pub(super) fn fault_of(errno: Errno) -> RailFault {
    match errno {
        Errno::CONNRESET | Errno::PIPE => RailFault::Closed,
        Errno::TIMEDOUT => RailFault::TimedOut,
        other => RailFault::Device { code: other.raw_os_error() },
    }
}
