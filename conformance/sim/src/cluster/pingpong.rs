//! The simplest workload: each even rank and the odd one after it send one message to and fro, payload
//! checked.
//!
//! A message's bytes follow from the round and the rank that sends it, so that a byte of another message, or
//! of none, is seen. An odd rank out sends to itself.

use std::cell::Cell;
use std::rc::Rc;

use rerail_core::endpoint::{Completion, Event, RecvRequest, Selector, SendRequest, TagMatch};
use rerail_core::ids::{Cookie, PeerId};
use rerail_core::mem::{RegionId, Seg};

use super::{App, Cx, Workload};
use crate::rails;

/// Ping-pong between pairs of ranks.
#[derive(Clone, Debug)]
pub struct PingPong {
    rounds: u32,
    bytes: u64,
    /// After so many messages a rank takes other memory; 0: never.
    renewed_after: u32,
    failures: Rc<Cell<u32>>,
}

impl PingPong {
    /// So many messages each way, of so many bytes (at least 1).
    pub fn new(rounds: u32, bytes: u64) -> Self {
        PingPong { rounds, bytes: bytes.max(1), renewed_after: 0, failures: Rc::default() }
    }

    /// The same, of ranks that give their memory back after so many messages, and take other memory.
    pub fn renewing(self, renewed_after: u32) -> Self {
        PingPong { renewed_after, ..self }
    }

    /// Requests that failed and peers that were lost, over all ranks.
    pub fn failures(&self) -> u32 {
        self.failures.get()
    }
}

/// What a send's completion carries.
const SENT: Cookie = Cookie(1);

/// The byte at `at` of a rank's message of a round.
fn byte(rank: u32, round: u32, at: u64) -> u8 {
    let mixed = (u64::from(rank) << 32 | u64::from(round)).wrapping_add(at.wrapping_mul(0x9e37_79b9));
    (mixed ^ mixed >> 8 ^ mixed >> 16 ^ mixed >> 32) as u8
}

impl Workload for PingPong {
    fn app(&mut self, rank: u32, size: u32) -> Box<dyn App> {
        let peer = rank ^ 1;
        let peer = if peer < size { peer } else { rank };
        let game = self.clone();
        Box::new(Player { game, peer, memory: None, sent: 0, received: 0, is_due: false, failed: false, open: 0 })
    }
}

/// One end.
struct Player {
    game: PingPong,
    peer: u32,
    /// What is sent, then what is received.
    memory: Option<RegionId>,
    sent: u32,
    received: u32,
    /// A message has come, and the next round has not begun.
    is_due: bool,
    failed: bool,
    /// Requests that are not over.
    open: u32,
}

impl Player {
    fn fail(&mut self) {
        self.failed = true;
        self.game.failures.set(self.game.failures.get() + 1);
    }

    fn send(&mut self, cx: &mut Cx<'_>, region: RegionId) {
        let (rank, round) = (cx.rank, self.sent);
        if let Some(bytes) = rails::region_mut(cx.engine, region) {
            let message = bytes.iter_mut().take(self.game.bytes as usize).zip(0..);
            message.for_each(|(place, at)| *place = byte(rank, round, at));
        }
        let segments = [Seg::new(region, 0, self.game.bytes)];
        let send =
            SendRequest { tag: Some(round.into()), cookie: SENT, ..SendRequest::new(PeerId(self.peer), &segments) };
        match cx.engine.send(&send) {
            Ok(_) => {
                self.sent += 1;
                self.open += 1;
            }
            Err(_) => self.fail(),
        }
    }

    fn receive(&mut self, cx: &mut Cx<'_>, region: RegionId) {
        let segments = [Seg::new(region, self.game.bytes, self.game.bytes)];
        let tag = TagMatch::Tagged { tag: self.received.into(), ignore: 0 };
        let from = Selector { source: Some(PeerId(self.peer)), tag };
        match cx.engine.recv(&RecvRequest::new(from, &segments)) {
            Ok(_) => self.open += 1,
            Err(_) => self.fail(),
        }
    }

    fn completed(&mut self, cx: &mut Cx<'_>, completion: &Completion, region: RegionId) {
        self.open -= 1;
        let Ok(done) = completion.result else {
            self.fail();
            return;
        };
        if completion.cookie == SENT {
            // Its memory is written again when the answer has come.
            self.go_on(cx);
            return;
        }
        let (from, round) = (self.peer, self.received);
        let bytes = rails::region(cx.engine, region).unwrap_or_default();
        let message = bytes.iter().skip(self.game.bytes as usize).zip(0..);
        let wrong = message.filter(|(found, at)| **found != byte(from, round, *at)).count();
        assert_eq!((wrong, done.bytes), (0, self.game.bytes), "rank {}: message {round} of rank {from}", cx.rank);
        self.received += 1;
        self.is_due = true;
        self.go_on(cx);
    }

    /// Begins the next round, once its memory is free.
    fn go_on(&mut self, cx: &mut Cx<'_>) {
        let is_renewed = self.game.renewed_after > 0 && self.received.is_multiple_of(self.game.renewed_after);
        if !self.is_due || is_renewed && self.open > 0 {
            return;
        }
        self.is_due = false;
        if is_renewed && let Some(old) = self.memory.take() {
            cx.engine.free(old).expect("memory without use");
            self.memory = cx.alloc(2 * self.game.bytes as usize).ok();
        }
        let Some(region) = self.memory else { return self.fail() };
        if self.received < self.game.rounds {
            self.receive(cx, region);
        }
        if self.sent < self.game.rounds {
            self.send(cx, region);
        }
    }
}

impl App for Player {
    fn start(&mut self, cx: &mut Cx<'_>) {
        let Ok(region) = cx.alloc(2 * self.game.bytes as usize) else {
            self.fail();
            return;
        };
        self.memory = Some(region);
        if self.game.rounds > 0 {
            self.receive(cx, region);
            if cx.rank <= self.peer {
                self.send(cx, region);
            }
        }
    }

    fn event(&mut self, cx: &mut Cx<'_>, event: Event) {
        match (event, self.memory) {
            (Event::Completed(completion), Some(region)) => self.completed(cx, &completion, region),
            (Event::PeerLost { .. } | Event::PeerClosed { .. }, _) => self.fail(),
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        self.failed || self.open == 0 && self.received == self.game.rounds && self.sent == self.game.rounds
    }
}
