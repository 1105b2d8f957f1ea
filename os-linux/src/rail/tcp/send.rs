//! The send side of a connection: a bounded queue of posts (L-4), written in order (L-2) with as few calls as
//! possible.
//!
//! A batch of posts leaves at its end ([`Rail::push`](crate::rail::Rail::push)), by one call, or as soon as
//! they are large together. Headers are copied, payload is referenced. A write that the system takes in part
//! is resumed at the very byte, wherever it broke off. Nothing is allocated once the queues have grown to
//! their working size.
//!
//! A large post is not over when the kernel has taken it - it takes megabytes at once - but when it was sent
//! for the first time: `SIOCOUTQNSD` returns the unsent bytes (tcp(7)). So completions come at the wire's
//! rate, in the steps of the kernel's own packets, and the core measures the wire and the queue before it.
//! `TCP_NOTSENT_LOWAT` alone would bound the kernel's queue, but let completions come in steps of half its
//! value: all posts at once, so that no rail ever looks busy. Bytes sent and not acknowledged do not matter
//! here: a pipe needs them to be full.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use rerail_core::ids::PostId;
use rerail_core::wire::HEADER_BYTES_MAX;
use rustix::io::Errno;

use super::sys;
use crate::rail::{Outgoing, Piece, RailCounters};

/// Calls per [`SendQueue::flush`]: one connection must not keep the others waiting.
const CALLS_MAX: usize = 8;

/// A smaller post is over when the kernel has it: querying its unsent bytes would cost as much as sending it.
const HOLD_BYTES_MIN: u64 = 16 * 1024;
/// So many bytes do not wait for the end of their batch: a call costs little beside their copy.
const LARGE_BYTES: u64 = 256 * 1024;

/// Posts that are not yet with the system, and those that it has to itself.
#[derive(Debug)]
pub(super) struct SendQueue {
    posts: VecDeque<Queued>,
    /// The payload pieces of all posts, in order. The first may have lost its first bytes to a partial write.
    pieces: VecDeque<Piece>,
    /// Bytes that wait.
    waiting: u64,
    /// Bytes of the first post's header that were sent.
    header_sent: usize,
    /// Posts that the system has taken and that are not over, each with where it ends in the stream.
    held: VecDeque<(PostId, u64)>,
    /// Bytes that the system has taken.
    taken: u64,
    /// A large post is over when it is sent, not when it is taken.
    hold: bool,
}

/// Bytes of a post that waits, in queues that are at least half full.
pub(super) const POST_BYTES: u64 = 2 * (size_of::<Queued>() + size_of::<Piece>() + size_of::<(PostId, u64)>()) as u64;

#[derive(Debug)]
struct Queued {
    id: PostId,
    header: heapless::Vec<u8, HEADER_BYTES_MAX>,
    /// How many of `SendQueue::pieces` are its payload.
    pieces: usize,
}

/// Bytes of a packet.
fn bytes_of(outgoing: &Outgoing<'_>) -> usize {
    outgoing.header.len() + outgoing.payload.iter().map(|piece| piece.len).sum::<usize>()
}

/// How far a flush came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// All is with the system.
    Empty,
    /// The system has no room: wait until the socket is writable.
    Full,
    /// There is more, but the others come first.
    More,
}

impl SendQueue {
    /// For so many posts. With `hold` a large one is over when it is sent, else when it is taken.
    pub(super) fn new(posts_max: u16, hold: bool) -> Self {
        let posts = usize::from(posts_max);
        SendQueue {
            posts: VecDeque::with_capacity(posts),
            pieces: VecDeque::with_capacity(posts),
            waiting: 0,
            header_sent: 0,
            held: VecDeque::with_capacity(posts),
            taken: 0,
            hold,
        }
    }

    /// Whether the system has posts that are not over.
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Queries the unsent bytes; calls `done` for posts that are over by that.
    pub(super) fn report_taken(
        &mut self,
        fd: BorrowedFd<'_>,
        counters: &mut RailCounters,
        mut done: impl FnMut(PostId),
    ) -> Result<(), Errno> {
        if self.held.is_empty() {
            return Ok(());
        }
        counters.system_calls += 1;
        let unsent = sys::unsent(fd)?;
        self.end_held(unsent, &mut done);
        Ok(())
    }

    /// Ends the posts that are sent, where so many bytes are unsent.
    fn end_held(&mut self, unsent: u64, done: &mut impl FnMut(PostId)) {
        let over = self.taken.saturating_sub(unsent);
        while let Some((id, _)) = self.held.front().filter(|(_, end)| *end <= over) {
            done(*id);
            self.held.pop_front();
        }
    }

    /// Whether so much waits that it is to be sent now.
    pub(super) fn is_large(&self) -> bool {
        self.waiting >= LARGE_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.posts.is_empty()
    }

    /// Sends a small post at once, where nothing is before it, and calls `done` if the system has taken it.
    /// `None`: nothing has happened, [`push`](Self::push) it.
    pub(super) fn send_small(
        &mut self,
        fd: BorrowedFd<'_>,
        outgoing: &Outgoing<'_>,
        counters: &mut RailCounters,
        done: impl FnOnce(PostId),
    ) -> Option<Result<Flush, Errno>> {
        let bytes = bytes_of(outgoing);
        if bytes > sys::SMALL_BYTES_MAX || !self.posts.is_empty() || self.holds() {
            return None;
        }
        counters.system_calls += 1;
        // SAFETY: as in `write`.
        let sent = match unsafe { sys::send_small(fd, outgoing.header, outgoing.payload) } {
            Ok(sent) => sent,
            Err(Errno::AGAIN) => 0,
            Err(errno) => return Some(Err(errno)),
        };
        counters.bytes_sent += sent as u64;
        if sent == bytes {
            self.taken += sent as u64;
            counters.packets_sent += 1;
            done(outgoing.id);
            return Some(Ok(Flush::Empty));
        }
        let pushed = self.push(outgoing);
        debug_assert!(pushed, "it is short");
        self.advance(sent);
        Some(Ok(Flush::Full))
    }

    /// Appends a post; `false`: its header is longer than any header.
    pub(super) fn push(&mut self, outgoing: &Outgoing<'_>) -> bool {
        let Ok(header) = heapless::Vec::from_slice(outgoing.header) else { return false };
        self.waiting += bytes_of(outgoing) as u64;
        let before = self.pieces.len();
        self.pieces.extend(outgoing.payload.iter().filter(|piece| piece.len > 0));
        self.posts.push_back(Queued { id: outgoing.id, header, pieces: self.pieces.len() - before });
        true
    }

    /// Writes as much as the system takes; calls `done` for every post that is over by that.
    pub(super) fn flush(
        &mut self,
        fd: BorrowedFd<'_>,
        scratch: &mut Vec<Piece>,
        counters: &mut RailCounters,
        mut done: impl FnMut(PostId),
    ) -> Result<Flush, Errno> {
        let (before, held) = (self.taken, self.holds());
        let flushed = self.write(fd, scratch, counters)?;
        let little = !held && self.taken - before < HOLD_BYTES_MIN;
        if little || !self.hold {
            self.end_held(0, &mut done);
        } else {
            self.report_taken(fd, counters, done)?;
        }
        Ok(flushed)
    }

    fn write(
        &mut self,
        fd: BorrowedFd<'_>,
        scratch: &mut Vec<Piece>,
        counters: &mut RailCounters,
    ) -> Result<Flush, Errno> {
        for _ in 0..CALLS_MAX {
            if self.posts.is_empty() {
                return Ok(Flush::Empty);
            }
            let bytes = self.gather(scratch);
            counters.system_calls += 1;
            // SAFETY: header pieces point into `self.posts`, which is not touched before the call returns;
            // payload pieces are readable until the post is reported complete or the subchannel down
            // (`Outgoing::payload`).
            let sent = unsafe {
                match bytes {
                    0..=sys::SMALL_BYTES_MAX => sys::send_small(fd, &[], scratch),
                    _ => sys::send(fd, scratch),
                }
            };
            let sent = match sent {
                Ok(sent) => sent,
                Err(Errno::AGAIN) => return Ok(Flush::Full),
                Err(errno) => return Err(errno),
            };
            counters.bytes_sent += sent as u64;
            let before = self.held.len();
            self.advance(sent);
            counters.packets_sent += (self.held.len() - before) as u64;
            if sent < bytes {
                return Ok(Flush::Full);
            }
        }
        Ok(if self.posts.is_empty() { Flush::Empty } else { Flush::More })
    }

    /// Lists the bytes to send next, header and payload of post after post; returns how many there are.
    fn gather(&self, into: &mut Vec<Piece>) -> usize {
        into.clear();
        let mut skip = self.header_sent;
        let mut payload = self.pieces.iter();
        for post in &self.posts {
            let header = &post.header[skip..];
            skip = 0;
            if !header.is_empty() {
                into.push(Piece { start: header.as_ptr().cast_mut(), len: header.len() });
            }
            into.extend(payload.by_ref().take(post.pieces));
            if into.len() >= sys::PIECES_MAX {
                into.truncate(sys::PIECES_MAX);
                break;
            }
        }
        into.iter().map(|piece| piece.len).sum()
    }

    /// Takes `sent` bytes off the front.
    fn advance(&mut self, mut sent: usize) {
        self.taken += sent as u64;
        self.waiting -= sent as u64;
        while let Some(post) = self.posts.front_mut() {
            let step = sent.min(post.header.len() - self.header_sent);
            self.header_sent += step;
            sent -= step;
            if self.header_sent < post.header.len() {
                return;
            }
            while post.pieces > 0 {
                let Some(piece) = self.pieces.front_mut() else { unreachable!("posts and pieces are pushed together") };
                let step = sent.min(piece.len);
                piece.start = piece.start.wrapping_add(step);
                piece.len -= step;
                sent -= step;
                if piece.len > 0 {
                    return;
                }
                self.pieces.pop_front();
                post.pieces -= 1;
            }
            self.held.push_back((post.id, self.taken - sent as u64));
            self.posts.pop_front();
            self.header_sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rerail_core::endpoint::PostKind;
    use rerail_core::ids::{Key, PeerId};

    fn id(index: usize) -> PostId {
        PostId(Key { index: index as u32, generation: 1 })
    }

    /// The bytes that `gather` lists, up to `limit`.
    fn listed(pieces: &[Piece], limit: usize) -> Vec<u8> {
        // SAFETY: the tests' pieces point into vectors and queues that are alive and not borrowed mutably.
        let all = pieces.iter().flat_map(|p| unsafe { std::slice::from_raw_parts(p.start, p.len) });
        all.take(limit).copied().collect()
    }

    proptest! {
        /// However writes break off, the bytes come out once and in order, and each post is done when its
        /// last byte is.
        #[test]
        fn resumes_anywhere(
            posts in proptest::collection::vec((1usize..64, proptest::collection::vec(0usize..100, 0..4)), 1..12),
            steps in proptest::collection::vec(1usize..90, 1..64),
        ) {
            let mut byte = 0u8;
            let mut fill = |len: usize| -> Vec<u8> { (0..len).map(|_| { byte = byte.wrapping_add(1); byte }).collect() };
            let posts: Vec<(Vec<u8>, Vec<Vec<u8>>)> =
                posts.iter().map(|(h, p)| (fill(*h), p.iter().map(|&len| fill(len)).collect())).collect();
            let mut queue = SendQueue::new(2, false);
            let mut ends = Vec::new();
            let mut stream = Vec::new();
            for (n, (header, payload)) in posts.iter().enumerate() {
                let pieces: Vec<Piece> =
                    payload.iter().map(|p| Piece { start: p.as_ptr().cast_mut(), len: p.len() }).collect();
                let post = Outgoing { id: id(n), peer: PeerId(1), kind: PostKind::Send, header, payload: &pieces, extent: 0 };
                prop_assert!(queue.push(&post));
                stream.extend_from_slice(header);
                payload.iter().for_each(|p| stream.extend_from_slice(p));
                ends.push(stream.len());
            }
            let (mut sent, mut done, mut scratch) = (Vec::new(), 0, Vec::new());
            for step in steps.iter().cycle() {
                let bytes = queue.gather(&mut scratch);
                prop_assert_eq!(bytes, stream.len() - sent.len());
                if bytes == 0 { break; }
                let taken = listed(&scratch, *step);
                sent.extend_from_slice(&taken);
                let mut order = Vec::new();
                queue.advance(taken.len());
                queue.end_held(0, &mut |post| order.push(post));
                for post in order {
                    prop_assert_eq!(post, id(done));
                    prop_assert!(ends[done] <= sent.len());
                    done += 1;
                }
                prop_assert!(done == ends.len() || ends[done] > sent.len());
            }
            prop_assert_eq!(sent, stream);
            prop_assert!(queue.is_empty());
        }
    }

    /// In order.
    #[test]
    fn a_post_is_over_when_it_is_sent() {
        let bytes = [1u8; 1000];
        let payload = [Piece { start: bytes.as_ptr().cast_mut(), len: 1000 }];
        let mut queue = SendQueue::new(4, true);
        for n in 0..3 {
            let post = Outgoing {
                id: id(n),
                peer: PeerId(1),
                kind: PostKind::Send,
                header: &[9; 24],
                payload: &payload,
                extent: 0,
            };
            assert!(queue.push(&post));
        }
        let mut over = Vec::new();
        queue.advance(2048);
        for (unsent, expected) in [(2048, 0), (1025, 0), (1024, 1), (1, 1), (0, 2)] {
            queue.end_held(unsent, &mut |post| over.push(post));
            assert_eq!(over.len(), expected, "{unsent} unsent");
        }
        assert!(!queue.holds() && !queue.is_empty());
        assert_eq!(over, [id(0), id(1)]);
    }

    #[test]
    fn a_call_takes_no_more_pieces_than_the_system_allows() {
        let bytes = [1u8; 4];
        let pieces = vec![Piece { start: bytes.as_ptr().cast_mut(), len: 4 }; 700];
        let mut queue = SendQueue::new(2, false);
        for n in 0..2 {
            let post = Outgoing {
                id: id(n),
                peer: PeerId(1),
                kind: PostKind::Send,
                header: &[9; 32],
                payload: &pieces,
                extent: 0,
            };
            assert!(queue.push(&post));
        }
        let mut scratch = Vec::new();
        assert_eq!(queue.gather(&mut scratch), 2 * 32 + (sys::PIECES_MAX - 2) * 4);
        assert_eq!(scratch.len(), sys::PIECES_MAX);
    }
}
