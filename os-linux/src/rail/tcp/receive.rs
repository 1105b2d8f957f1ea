//! The receive side of a connection: from a stream of bytes to packets, with bulk payload read straight to
//! its place.
//!
//! Small packets are cheap many at a time: one call fills the staging buffer, and headers and payloads are
//! taken from there. Large ones are cheap without a copy: one `readv` takes the rest of a segment into its
//! destination *and* the next header into staging, so that a stream of segments costs about one call each and
//! no copy in user space. Which of the two a connection expects follows from its last packets. All staged
//! bytes are consumed before the next call but for an unfinished header, so one staging buffer serves all
//! connections of a rail.
//!
//! Invariants: bytes are placed only in memory that the sink has given; memory is requested again before
//! every use; a header is never longer than `HEADER_BYTES_MAX`.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use rerail_core::endpoint::{Arrival, RailFault};
use rerail_core::ids::{PeerId, PlaceId};
use rerail_core::wire::{self, HEADER_BYTES_MAX, WireError};
use rustix::io::Errno;

use super::conn::fault_of;
use super::sys;
use crate::rail::{Piece, RailCounters, ShortPlace, Sink};

/// Bytes of the staging buffer.
pub(super) const STAGING_BYTES: usize = 64 * 1024;
/// A payload of so many bytes is read by a call of its own.
const LARGE_BYTES: u64 = 16 * 1024;
/// After so many small packets in a row, the next is expected to be small.
const SMALL_RUN: u8 = 4;
/// Calls per [`Receiver::receive`], and bytes after which it ends: the other connections come first.
const CALLS_MAX: usize = 16;
const BYTES_MAX: usize = 1024 * 1024;

/// Buffers that all connections of a rail share.
#[derive(Debug)]
pub(super) struct Scratch {
    staging: Box<[u8]>,
    /// Pieces of a call under construction; sends use it too.
    pub(super) pieces: Vec<Piece>,
    /// Payload bytes that went through staging instead of straight to their place.
    pub(super) copied_bytes: u64,
}

impl Scratch {
    pub(super) fn new() -> Self {
        let staging = vec![0; STAGING_BYTES].into_boxed_slice();
        Scratch { staging, pieces: Vec::with_capacity(sys::PIECES_MAX), copied_bytes: 0 }
    }

    /// The staging buffer, for bytes to be discarded.
    pub(super) fn staging(&mut self) -> &mut [u8] {
        &mut self.staging
    }
}

/// The position of a connection in its stream.
#[derive(Debug)]
pub(super) struct Receiver {
    at: At,
    /// The first bytes of an unfinished header.
    partial: heapless::Vec<u8, HEADER_BYTES_MAX>,
    /// Packets since the last large one, up to [`SMALL_RUN`].
    small_run: u8,
    /// Bytes of the last large packet's header: the next one's are expected to be as many.
    large_header_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Header,
    /// So many bytes of payload are still to come.
    Payload {
        left: u64,
        to: To,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    /// Into the placement, from its byte `from` on.
    Place { id: PlaceId, from: u64 },
    /// The placement is full; the rest is skipped before it is reported.
    Full { id: PlaceId },
    /// Nowhere.
    Skip,
}

/// How far a receive came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// All that was there is taken: wait until the socket is readable.
    Drained,
    /// There may be more, but the others come first.
    More,
    /// The stream is over.
    Over(RailFault),
}

/// One connection's reading, for the time of a poll.
pub(super) struct Reading<'a> {
    pub(super) peer: PeerId,
    pub(super) scratch: &'a mut Scratch,
    pub(super) sink: &'a mut dyn Sink,
    pub(super) counters: &'a mut RailCounters,
    /// How many things happened.
    pub(super) happened: usize,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Receiver { at: At::Header, partial: heapless::Vec::new(), small_run: SMALL_RUN, large_header_bytes: 0 }
    }

    /// Takes the socket's data, up to the limits. `to_the_end`: a short read is not the end, an error or the
    /// end of the stream is known to follow.
    pub(super) fn receive(&mut self, fd: BorrowedFd<'_>, to_the_end: bool, reading: &mut Reading<'_>) -> Received {
        let mut budget = BYTES_MAX;
        for _ in 0..CALLS_MAX {
            let Wanted { direct, staged } = self.wanted_bytes(reading);
            let kept = self.partial.len();
            reading.counters.system_calls += 1;
            // SAFETY: the pieces are memory of the open placement, valid until the next call into the sink,
            // and a part of the staging buffer that nothing refers to during the call.
            let received = match unsafe { sys::receive(fd, &reading.scratch.pieces) } {
                Ok(0) => return Received::Over(RailFault::Closed),
                Ok(received) => received,
                Err(Errno::AGAIN) => return Received::Drained,
                Err(errno) => return Received::Over(fault_of(errno)),
            };
            reading.counters.bytes_received += received as u64;
            self.take_direct(received.min(direct), reading);
            if received > direct {
                reading.scratch.staging[..kept].copy_from_slice(&self.partial);
                self.partial.clear();
                if let Err(fault) = self.take_staged(kept + received - direct, reading) {
                    return Received::Over(fault);
                }
            }
            if received < direct + staged && !to_the_end {
                return Received::Drained;
            }
            budget = budget.saturating_sub(received);
            if budget == 0 {
                break;
            }
        }
        Received::More
    }

    /// Makes the list of pieces for the next call: the rest of a payload's place, then staging.
    fn wanted_bytes(&mut self, reading: &mut Reading<'_>) -> Wanted {
        let Reading { scratch, sink, .. } = reading;
        scratch.pieces.clear();
        let mut direct = 0;
        let mut skipped = 0;
        let mut clipped = false;
        if let At::Payload { left, to } = &mut self.at {
            if let To::Place { id, from } = *to {
                if !sink.place(id, from, &mut scratch.pieces) {
                    *to = To::Skip;
                    scratch.pieces.clear();
                }
                // One entry of the list stays free for staging.
                clipped = scratch.pieces.len() >= sys::PIECES_MAX;
                scratch.pieces.truncate(sys::PIECES_MAX - 1);
                direct = clip(&mut scratch.pieces, *left);
                if direct == 0 && *to != To::Skip {
                    *to = To::Full { id };
                }
            }
            skipped = if clipped { 0 } else { *left - direct as u64 };
        }
        // Where staging would start amid the place, it must stay away; where bytes are to be skipped, they
        // need room.
        let kept = self.partial.len();
        let staged = match () {
            () if clipped => 0,
            () if skipped > 0 || self.small_run >= SMALL_RUN => STAGING_BYTES - kept,
            () => self.header_bytes_expected() - kept,
        };
        if staged > 0 {
            scratch.pieces.push(Piece { start: scratch.staging[kept..].as_mut_ptr(), len: staged });
        }
        Wanted { direct, staged }
    }

    /// Bytes of the header that comes next or is here in part; more than are here.
    fn header_bytes_expected(&self) -> usize {
        match wire::header_len(&self.partial) {
            Ok(Some(bytes)) if bytes > self.partial.len() => bytes,
            _ if self.large_header_bytes > self.partial.len() => self.large_header_bytes,
            _ => HEADER_BYTES_MAX,
        }
    }

    /// `bytes` of payload are in their place.
    fn take_direct(&mut self, bytes: usize, reading: &mut Reading<'_>) {
        if let At::Payload { left, to: To::Place { from, .. } } = &mut self.at {
            *left -= bytes as u64;
            *from += bytes as u64;
            self.finish_payload(reading);
        }
    }

    /// Reports a payload whose last byte has arrived.
    fn finish_payload(&mut self, reading: &mut Reading<'_>) {
        if let At::Payload { left: 0, to } = self.at {
            if let To::Place { id, .. } | To::Full { id } = to {
                reading.sink.placed(id);
            }
            reading.happened += 1;
            self.at = At::Header;
        }
    }

    /// Consumes the first `bytes` of staging, but for the beginning of a header, which is kept.
    fn take_staged(&mut self, bytes: usize, reading: &mut Reading<'_>) -> Result<(), RailFault> {
        let mut at = 0;
        while at < bytes {
            match self.at {
                At::Payload { left, to } => {
                    let take = (bytes - at).min(usize::try_from(left).unwrap_or(usize::MAX));
                    let to = match to {
                        To::Place { id, from } => place_staged(id, from, at, take, reading),
                        other => other,
                    };
                    self.at = At::Payload { left: left - take as u64, to };
                    at += take;
                    self.finish_payload(reading);
                }
                At::Header => {
                    let corrupt = |reading: &mut Reading<'_>| {
                        reading.counters.corrupt += 1;
                        RailFault::Corrupt
                    };
                    let here = &reading.scratch.staging[at..bytes];
                    match wire::header_len(here) {
                        Ok(Some(len)) if len <= here.len() => {
                            at += len + self.take_header(at, len, bytes, reading)?;
                        }
                        Ok(_) => {
                            // The beginning of a header, hence shorter than the longest.
                            let kept = self.partial.extend_from_slice(here);
                            return kept.map_err(|_| corrupt(reading));
                        }
                        // W-26
                        Err(WireError { field, value }) => {
                            tracing::warn!(peer = reading.peer.0, field, value, "no packet: connection closed");
                            return Err(corrupt(reading));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Hands a whole header to the sink and notes the treatment of its payload. Returns how many bytes of
    /// that, which ends before `end` then, were taken.
    fn take_header(
        &mut self,
        at: usize,
        len: usize,
        end: usize,
        reading: &mut Reading<'_>,
    ) -> Result<usize, RailFault> {
        let header = &reading.scratch.staging[at..at + len];
        let left = u64::from(wire::payload_len(header));
        if left >= LARGE_BYTES {
            self.small_run = 0;
            self.large_header_bytes = len;
        } else {
            self.small_run = (self.small_run + 1).min(SMALL_RUN);
        }
        reading.counters.packets_received += 1;
        reading.happened += 1;
        if left <= (end - at - len).min(LARGE_BYTES as usize) as u64 {
            match reading.sink.whole(reading.peer, header) {
                ShortPlace::Copy(to) => {
                    let payload = &reading.scratch.staging[at + len..][..left as usize];
                    // SAFETY: the sink guarantees that all of the payload fits there, in memory that nothing
                    // refers to until the next call into it, hence not our buffer.
                    unsafe { std::ptr::copy_nonoverlapping(payload.as_ptr(), to, payload.len()) };
                    reading.scratch.copied_bytes += left;
                    reading.happened += 1;
                    return Ok(payload.len());
                }
                ShortPlace::Done => return Ok(0),
                ShortPlace::Packet => {}
            }
        }
        let to = match reading.sink.arrival(reading.peer, header) {
            Arrival::Done | Arrival::Discard | Arrival::Address { .. } => To::Skip,
            Arrival::Place { id, .. } => To::Place { id, from: 0 },
            Arrival::Close => {
                reading.counters.corrupt += 1;
                return Err(RailFault::Corrupt);
            }
        };
        self.at = At::Payload { left, to };
        self.finish_payload(reading);
        Ok(0)
    }
}

/// The contents of the list of pieces from [`Receiver::wanted_bytes`].
struct Wanted {
    /// Bytes of payload memory.
    direct: usize,
    /// Bytes of staging behind them.
    staged: usize,
}

/// Shortens a list of pieces to `bytes` in all; returns how many bytes it then has.
fn clip(pieces: &mut Vec<Piece>, bytes: u64) -> usize {
    let mut room = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut total = 0;
    for piece in pieces.iter_mut() {
        piece.len = piece.len.min(room);
        room -= piece.len;
        total += piece.len;
    }
    pieces.retain(|piece| piece.len > 0);
    total
}

/// Copies `take` staged payload bytes from `at` on to their place; returns where the payload goes on.
fn place_staged(id: PlaceId, from: u64, at: usize, take: usize, reading: &mut Reading<'_>) -> To {
    let Reading { scratch, sink, .. } = reading;
    scratch.pieces.clear();
    if !sink.place(id, from, &mut scratch.pieces) {
        return To::Skip;
    }
    let bytes = clip(&mut scratch.pieces, take as u64);
    let mut source = scratch.staging[at..at + bytes].as_ptr();
    for piece in &scratch.pieces {
        // SAFETY: the pieces' lengths add up to `bytes`, so `source` stays inside the staging buffer; the
        // sink guarantees that each piece is memory of the placement, valid until the next call into it,
        // hence not of our buffer.
        unsafe {
            std::ptr::copy_nonoverlapping(source, piece.start, piece.len);
            source = source.add(piece.len);
        }
    }
    scratch.copied_bytes += bytes as u64;
    if bytes < take { To::Full { id } } else { To::Place { id, from: from + bytes as u64 } }
}
