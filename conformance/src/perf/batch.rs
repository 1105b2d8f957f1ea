//! The loops of MPI's benchmarks (`perf --batch`): every receive is posted inside the time that is measured,
//! and the clock is read once for a batch, so that neither is left out of a small message's time nor added to
//! it. All messages have the same memory, as in the peers' own benchmarks.
//!
//! `conformance/peers/mpi_bench.c` holds the same loops in MPI, line by line; `conformance/scripts/peers.sh`
//! compares the two. They call the transport directly, so that the bookkeeping of the tool's session is not
//! measured.

use std::time::Instant;

use rerail_core::endpoint::{Event, GetRequest, PutRequest, RecvRequest, Remote, Selector, SendRequest, TagMatch};
use rerail_core::ids::{Cookie, PeerId};
use rerail_core::mem::Seg;
use rerail_linux::driver::Transport;
use serde::{Deserialize, Serialize};

use crate::session::{Session, SessionError};

use super::kernel::{Access, Buffers, KernelError, Pair};

/// Tag of measured messages.
const DATA: u64 = 1 << 42;
/// Tag of the answer to a window.
const ANSWER: u64 = 1 << 43;
/// Cookie of receives; sends have 0.
const RECEIVE: Cookie = Cookie(1);
/// Looks without an event between two looks at the clock.
const CHECK_INTERVAL: u32 = 1 << 16;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batches {
    /// Round trips, or windows, between two readings of the clock.
    pub batch: u64,
    /// Batches that are measured.
    pub count: u64,
    /// Batches before that.
    pub warmup: u64,
}

/// The result of the batches, in nanoseconds for each message (half a round trip, or one message of a
/// window).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Batches that were measured.
    pub batches: u64,
    /// Messages of each batch.
    pub messages: u64,
    /// The median batch.
    pub median_ns: f64,
    /// The fastest batch.
    pub min_ns: f64,
    /// The slowest batch.
    pub max_ns: f64,
}

impl Spread {
    /// Of times for each message; `None` where there are none.
    fn of(mut ns: Vec<f64>, messages: u64) -> Option<Spread> {
        ns.sort_unstable_by(f64::total_cmp);
        let (min_ns, max_ns) = (*ns.first()?, *ns.last()?);
        Some(Spread { batches: ns.len() as u64, messages, median_ns: ns[ns.len() / 2], min_ns, max_ns })
    }
}

/// What several pairs came to at once: the median of their medians, the fastest and the slowest batch of all.
pub fn of_pairs(spreads: &[Spread]) -> Option<Spread> {
    let medians = Spread::of(spreads.iter().map(|spread| spread.median_ns).collect(), 0)?;
    let sum = |of: fn(&Spread) -> u64| spreads.iter().map(of).sum();
    Some(Spread {
        batches: sum(|spread| spread.batches),
        messages: spreads[0].messages,
        median_ns: medians.median_ns,
        min_ns: spreads.iter().map(|spread| spread.min_ns).fold(f64::INFINITY, f64::min),
        max_ns: spreads.iter().map(|spread| spread.max_ns).fold(0.0, f64::max),
    })
}

/// Windows of puts or gets, each window complete before the next one; the result is the first rank's. The
/// owner of the memory waits for a message meanwhile.
pub fn accesses(
    session: &mut Session,
    pair: Pair,
    buffers: Buffers,
    (access, bytes, window): (Access, u64, u64),
    batches: Batches,
) -> Result<Option<Spread>, KernelError> {
    let first = session.rank() == pair.first;
    let mut end = End::new(session, pair, buffers, (bytes, false));
    if !first {
        end.recv(ANSWER)?;
        end.until(0, 1)?;
        return Ok(None);
    }
    let spread = measure(first, window * batches.batch, batches, || {
        for _ in 0..batches.batch {
            let (sent, received) = (end.sent, end.received);
            (0..window).try_for_each(|_| end.access(access))?;
            // Those that needed no peer are complete.
            end.take()?;
            end.until(sent + window, received)?;
        }
        Ok(())
    });
    let sent = end.sent;
    end.send(ANSWER, 0)?;
    end.until(sent + 1, 0)?;
    spread
}

/// One of the two ends.
struct End<'s> {
    transport: &'s mut Transport,
    peer: PeerId,
    buffers: Buffers,
    bytes: u64,
    /// The data is rewritten before each message.
    fresh: bool,
    sent: u64,
    received: u64,
}

/// Half round trips; the result is the first rank's.
pub fn ping_pong(
    session: &mut Session,
    pair: Pair,
    buffers: Buffers,
    (bytes, fresh): (u64, bool),
    batches: Batches,
) -> Result<Option<Spread>, KernelError> {
    let first = session.rank() == pair.first;
    let mut end = End::new(session, pair, buffers, (bytes, fresh));
    let messages = 2 * batches.batch;
    measure(first, messages, batches, || {
        for _ in 0..batches.batch {
            let (sent, received) = (end.sent, end.received);
            end.recv(DATA)?;
            if first {
                end.send(DATA, bytes)?;
                end.until(sent, received + 1)?;
            } else {
                end.until(sent, received + 1)?;
                end.send(DATA, bytes)?;
            }
            end.until(sent + 1, received + 1)?;
        }
        Ok(())
    })
}

/// Windows of messages to the second rank, each answered by an empty message; the result is the first rank's.
pub fn windows(
    session: &mut Session,
    pair: Pair,
    buffers: Buffers,
    (bytes, window, fresh): (u64, u64, bool),
    batches: Batches,
) -> Result<Option<Spread>, KernelError> {
    let first = session.rank() == pair.first;
    let mut end = End::new(session, pair, buffers, (bytes, fresh));
    let messages = window * batches.batch;
    measure(first, messages, batches, || {
        for _ in 0..batches.batch {
            let (sent, received) = (end.sent, end.received);
            if first {
                for number in 0..window {
                    end.send(DATA, bytes)?;
                    if fresh {
                        end.until(sent + number + 1, received)?;
                    }
                }
                end.until(sent + window, received)?;
                end.recv(ANSWER)?;
                end.until(sent + window, received + 1)?;
            } else {
                for _ in 0..window {
                    end.recv(DATA)?;
                }
                end.until(sent, received + window)?;
                end.send(ANSWER, 0)?;
                end.until(sent + 1, received + window)?;
            }
        }
        Ok(())
    })
}

/// Times batches; the result is the first rank's.
pub fn measure(
    first: bool,
    messages: u64,
    batches: Batches,
    mut batch: impl FnMut() -> Result<(), KernelError>,
) -> Result<Option<Spread>, KernelError> {
    let mut ns = Vec::with_capacity(batches.count as usize);
    for _ in 0..batches.warmup {
        batch()?;
    }
    for _ in 0..batches.count {
        let start = Instant::now();
        batch()?;
        ns.push(start.elapsed().as_nanos() as f64 / messages as f64);
    }
    Ok(Spread::of(ns, messages).filter(|_| first))
}

impl<'s> End<'s> {
    fn new(session: &'s mut Session, pair: Pair, buffers: Buffers, (bytes, fresh): (u64, bool)) -> End<'s> {
        let other = pair.other(session.rank());
        let (transport, peer) = (session.transport_mut(), PeerId(other));
        End { transport, peer, buffers, bytes, fresh, sent: 0, received: 0 }
    }

    fn send(&mut self, tag: u64, bytes: u64) -> Result<(), KernelError> {
        let segments = [Seg::new(self.buffers.outgoing, 0, bytes)];
        // Not while a message before it is still under way from there.
        if self.fresh
            && let Ok(memory) = self.transport.part_mut(&segments[0])
        {
            memory.fill(self.sent as u8);
        }
        let send = SendRequest { tag: Some(tag), cookie: Cookie(0), ..SendRequest::new(self.peer, &segments) };
        self.transport.send(&send).map_err(SessionError::Request)?;
        Ok(())
    }

    fn access(&mut self, access: Access) -> Result<(), KernelError> {
        let here = if access.put { self.buffers.outgoing } else { self.buffers.incoming };
        let segments = [Seg::new(here, 0, self.bytes)];
        let remote = Remote { peer: self.peer, window: access.window, offset: 0 };
        match access.put {
            // A put is complete when it is placed, whatever the level.
            true => self.transport.put(&PutRequest { cookie: Cookie(0), ..PutRequest::new(remote, &segments) }),
            false => self.transport.get(&GetRequest { cookie: Cookie(0), ..GetRequest::new(remote, &segments) }),
        }
        // Its id would be copied, which takes half as long as a small put.
        .map(drop)
        .map_err(SessionError::Request)?;
        Ok(())
    }

    fn recv(&mut self, tag: u64) -> Result<(), KernelError> {
        let segments = [Seg::new(self.buffers.incoming, 0, self.bytes)];
        let from = Selector { source: Some(self.peer), tag: TagMatch::Tagged { tag, ignore: 0 } };
        let recv = RecvRequest { cookie: RECEIVE, ..RecvRequest::new(from, &segments) };
        self.transport.recv(&recv).map_err(SessionError::Request)?;
        Ok(())
    }

    /// Takes what is complete.
    #[inline]
    fn take(&mut self) -> Result<(), KernelError> {
        let shorts = self.transport.poll_shorts();
        let received = shorts.iter().filter(|done| done.cookie == RECEIVE).count() as u64;
        let is_short = !shorts.is_empty();
        self.sent += shorts.len() as u64 - received;
        self.received += received;
        // What else there is comes when no short messages do.
        while !is_short && let Some(event) = self.transport.poll_event() {
            match event {
                Event::Completed(done) if done.result.is_err() => return Err(KernelError::PeerGone),
                Event::Completed(done) if done.cookie == RECEIVE => self.received += 1,
                Event::Completed(_) => self.sent += 1,
                Event::PeerUp { .. } | Event::Written(_) => {}
                Event::PeerClosed { .. } | Event::PeerLost { .. } => return Err(KernelError::PeerGone),
            }
        }
        Ok(())
    }

    /// Drives the transport until so many sends and receives are complete.
    fn until(&mut self, sent: u64, received: u64) -> Result<(), KernelError> {
        let mut polls = 0u32;
        while self.sent < sent || self.received < received {
            self.transport.progress();
            self.take()?;
            polls += 1;
            if polls.is_multiple_of(CHECK_INTERVAL) {
                // Where there are fewer processors than ranks, the other end may be waiting for this one's.
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_names_the_median_and_both_ends() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0], 10).unwrap();
        assert_eq!(spread, Spread { batches: 3, messages: 10, median_ns: 2.0, min_ns: 1.0, max_ns: 3.0 });
        assert_eq!(Spread::of(Vec::new(), 10), None);
        let other = Spread { median_ns: 4.0, min_ns: 0.5, max_ns: 9.0, ..spread };
        let third = Spread { median_ns: 5.0, ..spread };
        let all = Spread { batches: 9, messages: 10, median_ns: 4.0, min_ns: 0.5, max_ns: 9.0 };
        assert_eq!(of_pairs(&[spread, other, third]), Some(all));
        assert_eq!(of_pairs(&[]), None);
    }
}
