//! The endpoint: submit work, feed what happened, poll what to do.
#![allow(unused_variables, clippy::todo, missing_docs)]

pub mod action;
pub mod error;
pub mod event;
pub mod request;

use core::mem::MaybeUninit;

pub use action::*;
pub use error::*;
pub use event::*;
pub use request::*;

use crate::config::Config;
use crate::ids::*;
use crate::rail::RailFacts;
use crate::time::Time;
use crate::wire::RemoteKey;

pub struct Endpoint<'m> {
    config: Config,
    memory: core::marker::PhantomData<&'m mut [MaybeUninit<u8>]>,
}

/// What a rail reports beside packets and completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailEvent {
    /// The subchannel stands: packets may be posted.
    Up { peer: PeerId, rail: RailId },
    /// The subchannel is down. Posts on it that are not completed never will be.
    Down { peer: PeerId, rail: RailId, fault: RailFault },
}

/// A message found by probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub peer: PeerId,
    pub tag: Option<u64>,
    pub immediate: Option<u64>,
    pub bytes: u64,
}

/// How a post ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostStatus {
    /// The rail doesn't need the payload memory any more (send, write), or has filled it (read).
    Done,
    /// It failed; the rail also reports the subchannel down.
    Failed,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub packets_sent: u64,
    pub packets_received: u64,
    pub duplicates_dropped: u64,
    pub malformed_dropped: u64,
    pub stale_dropped: u64,
    pub out_of_order: u64,
    pub unexpected: u64,
    pub acks_explicit: u64,
    pub credits_explicit: u64,
}

impl<'m> Endpoint<'m> {
    pub fn new(
        config: Config,
        rails: &[RailFacts],
        region: &'m mut [MaybeUninit<u8>],
        now: Time,
    ) -> Result<Self, StartError> {
        todo!()
    }

    // ---- submit
    /// `rails`: bit i says that rail i reaches the peer.
    pub fn add_peer(&mut self, peer: PeerId, rails: u64) -> Result<(), PeerError> {
        todo!()
    }
    /// Says goodbye once all that was submitted is acknowledged; `PeerClosed` follows.
    pub fn close_peer(&mut self, now: Time, peer: PeerId) -> Result<(), PeerError> {
        todo!()
    }
    pub fn send(&mut self, now: Time, send: &Send<'_>) -> Result<OpId, SubmitError> {
        todo!()
    }
    /// As `send`, but the caller copies the payload into the span at once, and its own buffer is free.
    pub fn inject(&mut self, now: Time, send: &Send<'_>) -> Result<(OpId, Span), SubmitError> {
        todo!()
    }
    pub fn recv(&mut self, now: Time, recv: &Recv<'_>) -> Result<OpId, SubmitError> {
        todo!()
    }
    pub fn probe(&self, selector: &Selector) -> Option<Found> {
        todo!()
    }
    pub fn claim(&mut self, selector: &Selector) -> Option<(MessageId, Found)> {
        todo!()
    }
    pub fn recv_claimed(&mut self, now: Time, message: MessageId, recv: &Recv<'_>) -> Result<OpId, SubmitError> {
        todo!()
    }
    pub fn cancel(&mut self, now: Time, operation: OpId) -> Result<(), CancelError> {
        todo!()
    }
    pub fn put(&mut self, now: Time, put: &Put<'_>) -> Result<OpId, SubmitError> {
        todo!()
    }
    pub fn get(&mut self, now: Time, get: &Get<'_>) -> Result<OpId, SubmitError> {
        todo!()
    }
    pub fn atomic(&mut self, now: Time, atomic: &Atomic) -> Result<OpId, SubmitError> {
        todo!()
    }
    pub fn flush(&mut self, now: Time, flush: &Flush) -> Result<OpId, SubmitError> {
        todo!()
    }
    pub fn expose(&mut self, window: &Window) -> Result<WindowId, ExposeError> {
        todo!()
    }
    pub fn conceal(&mut self, window: WindowId) -> Result<(), ConcealError> {
        todo!()
    }
    /// Whether an operation that is not over, or a window, names this region.
    pub fn uses_region(&self, region: crate::mem::RegionId) -> bool {
        todo!()
    }
    pub fn counter(&self, counter: CounterId) -> Option<u64> {
        todo!()
    }
    pub fn stats(&self) -> Stats {
        todo!()
    }

    // ---- feed
    /// `header`: the first `wire::stream::header_len` bytes of a packet from that subchannel.
    pub fn handle_arrival(&mut self, now: Time, peer: PeerId, rail: RailId, header: &[u8]) -> Arrival {
        todo!()
    }
    /// The payload is where it was to go.
    pub fn handle_placed(&mut self, now: Time, id: PlaceId) {
        todo!()
    }
    /// The memory of an unfinished placement; `None` where the id is stale (then skip the payload).
    pub fn place_memory(&self, id: PlaceId) -> Option<Span> {
        todo!()
    }
    pub fn handle_completion(&mut self, now: Time, id: PostId, status: PostStatus) {
        todo!()
    }
    pub fn handle_atomic(&mut self, now: Time, operation: OpId, old: u64) {
        todo!()
    }
    pub fn handle_registered(&mut self, now: Time, operation: OpId, rail: RailId, key: Result<RemoteKey, RailFault>) {
        todo!()
    }
    pub fn handle_rail_event(&mut self, now: Time, event: RailEvent) {
        todo!()
    }
    pub fn handle_timeout(&mut self, now: Time) {
        todo!()
    }

    // ---- poll
    /// Fills `actions` from the front; returns how many. Poll until 0.
    pub fn poll_actions(&mut self, now: Time, actions: &mut heapless::Vec<Action, 16>) -> usize {
        todo!()
    }
    pub fn poll_event(&mut self) -> Option<Event> {
        todo!()
    }
    pub fn next_timeout(&self) -> Option<Time> {
        todo!()
    }

    /// The pieces of a span.
    pub fn segments(&self, span: Span) -> Segments<'_> {
        todo!()
    }
}
