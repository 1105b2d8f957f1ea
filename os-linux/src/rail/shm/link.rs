//! One connected peer: a ring each way, a queue for posts that found the ring full, and the socket.
//!
//! Invariants: the queue is in post order and posts pass it only where it is empty, so packets arrive in order (L-2).
//! What waits there is bounded by `posts_max`, for the core counts (L-4). A fault ends the link; the rail reports it
//! once (L-5).

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rerail_core::endpoint::{Arrival, PostStatus, RailFault};
use rerail_core::ids::{PeerId, PostId};
use rerail_core::shm::PushError;
use rerail_core::wire::HEADER_BYTES_MAX;

use super::copy::{Reads, Step};
use super::reach::{Reach, Seal};
use super::segment::{Inbound, Outbound, copy_to};
use super::socket::{self, BELL, Received};
use crate::rail::{Outgoing, Piece, RailCounters, Sink};

/// Pieces of memory that a post usually has at most: what lies in one buffer, or in a few blocks.
const PIECES: usize = 8;

/// Doorbells taken from a socket in one go. More of them stay for the next look.
const BELLS_MAX: usize = 16;

#[derive(Debug)]
struct Queued {
    id: PostId,
    header: heapless::Vec<u8, HEADER_BYTES_MAX>,
    payload: Payload,
}

#[derive(Debug)]
enum Payload {
    /// The caller's memory, valid until completion.
    Pieces(Vec<Piece>),
    /// A copy, after which the caller's memory is free.
    Owned(Vec<u8>),
}

/// A connected peer.
#[derive(Debug)]
pub struct Link {
    pub peer: PeerId,
    /// Its name in the epoll set.
    pub token: u64,
    pub socket: OwnedFd,
    inbound: Inbound,
    outbound: Outbound,
    /// What this process reads from the peer's memory, and what the peer sees that it may read from ours.
    pub memory: Option<(Seal, Reads)>,
    queue: VecDeque<Queued>,
    /// Lists for queued posts.
    spare: Vec<Vec<Piece>>,
    /// The other side is gone; so many messages may still lie in the ring, and no honest peer left more.
    gone: Option<u32>,
    /// What ends the link at the next poll.
    pub fault: Option<RailFault>,
}

impl Link {
    /// With room for `posts_max` posts that wait for the ring: a full ring costs no allocation.
    pub fn new(
        peer: PeerId,
        token: u64,
        socket: OwnedFd,
        inbound: Inbound,
        outbound: Outbound,
        posts_max: u16,
    ) -> Self {
        let posts_max = usize::from(posts_max);
        Link {
            peer,
            token,
            socket,
            inbound,
            outbound,
            memory: None,
            queue: VecDeque::with_capacity(posts_max),
            spare: (0..posts_max).map(|_| Vec::with_capacity(PIECES)).collect(),
            gone: None,
            fault: None,
        }
    }

    /// From now on the sides may read each other's memory, as far as `reach` goes.
    pub fn join_memory(&mut self, seal: Seal, reach: Reach) {
        self.memory = Some((seal, Reads::new(reach)));
    }

    /// The reads that wait here, if any do.
    pub fn reads(&mut self) -> Option<&mut Reads> {
        self.memory.as_mut().map(|(_, reads)| reads).filter(|reads| reads.is_pending())
    }

    /// Carries out reads, as long as they fit into `bytes`, which becomes what is left of it; returns how many things
    /// happened.
    pub fn read(&mut self, bytes: &mut usize, sink: &mut dyn Sink, counters: &mut RailCounters) -> usize {
        let mut count = 0;
        while let Some(reads) = self.reads()
            && *bytes > 0
        {
            let could = reads.denied().is_none();
            let (step, read) = reads.step(*bytes);
            let denied = could && reads.denied().is_some();
            *bytes -= read;
            counters.system_calls += 1;
            counters.bytes_received += read as u64;
            count += 1;
            match step {
                Step::Some | Step::Ended => {}
                Step::Done(id) => sink.completed(id, PostStatus::Done),
                Step::NoAccess(id) => sink.completed(id, PostStatus::NoAccess),
            }
            if denied {
                sink.no_remote_access(self.peer);
            }
        }
        count
    }

    /// Takes a post; `true`: it has gone out.
    pub fn post(&mut self, outgoing: &Outgoing<'_>, counters: &mut RailCounters) -> bool {
        if self.fault.is_some() {
            return false;
        }
        if self.queue.is_empty() {
            match self.outbound.push(outgoing.header, outgoing.payload) {
                Ok(()) => {
                    let bytes = outgoing.payload.iter().map(|piece| piece.len as u64).sum::<u64>();
                    count_sent(counters, outgoing.header.len() as u64 + bytes);
                    self.ring(counters);
                    return true;
                }
                Err(PushError::Full) => {}
                Err(error) => {
                    self.fault = Some(fault_of(error));
                    return false;
                }
            }
        }
        let Ok(header) = heapless::Vec::from_slice(outgoing.header) else {
            debug_assert!(false, "a header of {} bytes", outgoing.header.len());
            self.fault = Some(RailFault::Corrupt);
            return false;
        };
        let mut pieces = self.spare.pop().unwrap_or_default();
        pieces.extend_from_slice(outgoing.payload);
        self.queue.push_back(Queued { id: outgoing.id, header, payload: Payload::Pieces(pieces) });
        false
    }

    /// Moves waiting posts into the ring, as far as there is room; returns how many. `done` hears of each.
    pub fn pump(&mut self, counters: &mut RailCounters, mut done: impl FnMut(PostId)) -> Result<usize, RailFault> {
        let mut moved = 0;
        while let Some(first) = self.queue.front() {
            let mut whole = [Piece { start: std::ptr::null_mut(), len: 0 }];
            let pieces = match &first.payload {
                Payload::Pieces(pieces) => &pieces[..],
                Payload::Owned(bytes) => {
                    whole[0] = Piece { start: bytes.as_ptr().cast_mut(), len: bytes.len() };
                    &whole[..]
                }
            };
            match self.outbound.push(&first.header, pieces) {
                Ok(()) => {
                    let bytes = pieces.iter().map(|piece| piece.len as u64).sum::<u64>();
                    count_sent(counters, first.header.len() as u64 + bytes);
                    done(first.id);
                    if let Some(Queued { payload: Payload::Pieces(mut pieces), .. }) = self.queue.pop_front() {
                        pieces.clear();
                        self.spare.push(pieces);
                    }
                    moved += 1;
                }
                Err(PushError::Full) => break,
                Err(error) => return Err(fault_of(error)),
            }
        }
        if moved > 0 {
            self.ring(counters);
        }
        Ok(moved)
    }

    /// Whether posts wait for room.
    pub fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Copies the payloads of waiting posts, for their memory is about to go back to the caller; reads are void.
    pub fn own_queue(&mut self) {
        self.memory = None;
        for queued in &mut self.queue {
            if let Payload::Pieces(pieces) = &queued.payload {
                queued.payload = Payload::Owned(super::segment::gather(pieces));
            }
        }
    }

    /// Takes up to `burst` messages; returns how many.
    pub fn receive(
        &mut self,
        burst: u32,
        sink: &mut dyn Sink,
        pieces: &mut Vec<Piece>,
        counters: &mut RailCounters,
    ) -> Result<usize, RailFault> {
        let mut taken = 0;
        while taken < burst {
            if self.gone == Some(0) {
                return Err(RailFault::Closed);
            }
            let Some(front) = self.inbound.front().map_err(|_| RailFault::Corrupt)? else {
                if self.gone.is_some() {
                    return Err(RailFault::Closed);
                }
                break;
            };
            let payload_bytes = front.payload_bytes();
            counters.packets_received += 1;
            counters.bytes_received += front.header().len() as u64 + u64::from(payload_bytes);
            match sink.arrival(self.peer, front.header()) {
                Arrival::Done | Arrival::Discard | Arrival::Address { .. } => {}
                Arrival::Close => return Err(RailFault::Corrupt),
                Arrival::Place { id, memory } => {
                    // The header promised at least this much.
                    if memory.len() > u64::from(payload_bytes) {
                        return Err(RailFault::Corrupt);
                    }
                    let (mut at, mut wanted) = (0, true);
                    while at < payload_bytes && wanted {
                        pieces.clear();
                        wanted = sink.place(id, at.into(), pieces);
                        let before = at;
                        for piece in pieces.iter().take_while(|_| wanted) {
                            at += copy_to(&front, at, *piece) as u32;
                        }
                        if at == before {
                            // The buffer is shorter than the payload: the rest is skipped.
                            break;
                        }
                    }
                    if wanted {
                        sink.placed(id);
                    }
                }
            }
            front.release();
            self.gone = self.gone.map(|left| left - 1);
            taken += 1;
        }
        counters.system_calls += self.answer();
        Ok(taken as usize)
    }

    /// Takes doorbells (L-13), and notices the other side's end (L-14); `slots` is how many messages may be left then.
    pub fn look(&mut self, slots: u32, counters: &mut RailCounters) -> Result<(), RailFault> {
        for _ in 0..BELLS_MAX {
            if self.gone.is_some() {
                break;
            }
            let mut byte = [0];
            counters.system_calls += 1;
            match socket::receive(&self.socket, &mut byte, false) {
                Received::Datagram(1, None) if byte == [BELL] => {}
                Received::Nothing => break,
                Received::End => self.gone = Some(slots),
                Received::Datagram(..) | Received::Excess => return Err(RailFault::Corrupt),
            }
        }
        Ok(())
    }

    /// The other side is known to be gone: what is in the ring now is all that comes.
    pub fn end(&mut self, slots: u32) {
        self.gone.get_or_insert(slots);
    }

    /// Frees up to `burst` messages unseen.
    pub fn discard(&mut self, burst: u32) -> Result<usize, RailFault> {
        for taken in 0..burst {
            match self.inbound.front().map_err(|_| RailFault::Corrupt)? {
                Some(front) => front.release(),
                None => {
                    self.answer();
                    return Ok(taken as usize);
                }
            }
        }
        self.answer();
        Ok(burst as usize)
    }

    /// Bytes of the ring from which this process receives.
    pub fn ring_bytes(&self) -> usize {
        self.inbound.len()
    }

    /// Whether the other side is gone, as far as was noticed.
    pub fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// Prepares for sleeping; `false`: there is work.
    pub fn arm(&mut self, counters: &mut RailCounters) -> bool {
        let sleep = self.fault.is_none()
            && self.reads().is_none()
            && self.gone.is_none()
            && self.inbound.arm()
            && (self.queue.is_empty() || self.outbound.arm());
        // A look at an empty ring may have given slots back.
        counters.system_calls += self.answer();
        sleep
    }

    /// Ends what `arm` began.
    pub fn disarm(&mut self) {
        self.inbound.disarm();
        self.outbound.disarm();
    }

    /// Wakes the other side where it waits for slots that were freed; returns the system calls.
    fn answer(&mut self) -> u64 {
        let rings = self.inbound.must_ring();
        if rings {
            socket::ring(&self.socket);
        }
        rings.into()
    }

    fn ring(&mut self, counters: &mut RailCounters) {
        if self.outbound.must_ring() {
            counters.system_calls += 1;
            socket::ring(&self.socket);
        }
    }
}

fn count_sent(counters: &mut RailCounters, bytes: u64) {
    counters.packets_sent += 1;
    counters.bytes_sent += bytes;
}

fn fault_of(error: PushError) -> RailFault {
    // The facts of the rail keep packets below a slot's size, so a long one is our bug.
    debug_assert!(!matches!(error, PushError::TooLong { .. }), "{error:?}");
    RailFault::Corrupt
}
