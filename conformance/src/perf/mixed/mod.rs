//! Messages of mixed sizes both ways for so many seconds, every byte verified and every message counted: to
//! run while rails fail and come back.
//!
//! Each side sends numbered messages, small ones and large ones in a fixed irregular order, and puts, reads
//! back and counts up memory of the other side. A message carries its number beside its payload, which is
//! made from the number; so loss, duplication, corruption and a wrong order are each found and distinguished.
//! Pauses of arrivals are noted with their time, so that they can be compared with events of the network.

mod access;
mod ledger;
mod report;

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rerail_core::endpoint::{RecvRequest, Selector, SendRequest, TagMatch};
use rerail_core::ids::PeerId;
use rerail_core::mem::Seg;

use super::kernel::{Buffers, KernelError, Pair};
use super::rails::Rails;
use crate::cli::PerfArgs;
use crate::exchange::describe;
use crate::exchange::pattern::{self, Key, mix};
use crate::exit::Failure;
use crate::session::{Outcome, Session, Ticket};

use access::Accesses;
use ledger::Ledger;
pub use report::Mixed;
use report::{Pause, Side};

/// Tag of the messages.
const DATA: u64 = 1 << 42;
/// Sizes without `--sizes`: of nothing, eager ones up to the limit, and large ones of one and of many
/// segments.
const SIZES: [u64; 10] = [0, 8, 100, 1 << 10, 4000, 8 << 10, 9000, 64 << 10, 300_000, 1 << 20];
/// Most memory for messages, each way.
const BUFFER_BYTES: u64 = 256 << 20;
/// Time without `--seconds`.
const SECONDS: u64 = 10;
/// The report lists so many problems; all are counted.
const PROBLEMS_KEPT: usize = 20;
/// So many pauses are noted at most: both accounts are brought over in one piece.
const PAUSES_KEPT: usize = 5000;
/// Pauses from this length on are noted.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// After the other side has announced its end, missing messages have this long to arrive.
const LATE_MAX: Duration = Duration::from_secs(30);

/// Longer than any fault of a script lasts, and than the largest message takes over the slowest rail.
const STILL_MAX: Duration = Duration::from_secs(60);

/// Runs between two ranks that call it at the same time with the same arguments; both get the whole result.
pub fn run(args: &PerfArgs, session: &mut Session, pair: Pair) -> Result<Mixed, Failure> {
    let sizes = if args.sizes.is_empty() { SIZES.to_vec() } else { args.sizes.clone() };
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let stride = largest.next_multiple_of(64).max(64);
    let window = args.window.min(BUFFER_BYTES / stride).max(1);
    let buffers = Buffers { verify: true, ..Buffers::allocate(session, stride * window, args.mapped)? };
    let accesses = Accesses::prepare(session)?;
    let rails = Rails::since_now(session);
    let started_unix_ns = unix_ns();
    let time = Duration::from_secs(args.seconds.unwrap_or(SECONDS));
    let run = Run {
        sizes: &sizes,
        stride,
        window,
        buffers,
        out: Outgoing { flights: Vec::new(), free: (0..window).rev().collect(), begun: 0 },
        into: VecDeque::new(),
        ledger: Ledger::default(),
        accesses,
        side: Side::of(session.rank()),
        moved_at: Instant::now(),
        completions: 0,
        session: &mut *session,
    };
    let peer = run.peer();
    let mut side = run.carry_through(time).map_err(|error| super::failure(session, largest, error))?;
    side.close(session, rails.lines(session));
    // The printing side has both sides' accounts. Listens before it sends: long texts wait for a receive, and
    // both sides send at once.
    let text = serde_json::to_vec(&side).unwrap_or_default();
    let pending = session.listen(peer)?;
    session.send_text(peer, &text)?;
    let received = session.receive_text_now(pending)?;
    let received = received.ok_or_else(|| super::failure(session, largest, KernelError::PeerGone))?;
    let other = serde_json::from_slice(&received)
        .map_err(|_| Failure::usage("the other side's result can't be read: it runs another version"))?;
    let sides = if session.rank() == pair.first { [side, other] } else { [other, side] };
    Ok(Mixed { path: session.path(peer), sizes, window, seconds: time.as_secs(), started_unix_ns, sides })
}

/// Nanoseconds since 1970, as in a script's clock.
fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// One side at work.
struct Run<'s> {
    session: &'s mut Session,
    sizes: &'s [u64],
    stride: u64,
    window: u64,
    buffers: Buffers,
    out: Outgoing,
    /// Receives in the order in which they were posted, each with its place in memory.
    into: VecDeque<(Ticket, u64)>,
    ledger: Ledger,
    accesses: Accesses,
    side: Side,
    /// When something was last complete, and how much until then.
    moved_at: Instant,
    completions: u64,
}

/// What is being sent.
struct Outgoing {
    flights: Vec<(Ticket, u64)>,
    /// Places in memory that are free.
    free: Vec<u64>,
    begun: u64,
}

impl Run<'_> {
    fn peer(&self) -> u32 {
        1 - self.session.rank()
    }

    /// The size of a message, which both sides derive from its number.
    fn size(&self, number: u64) -> u64 {
        self.sizes[(mix(number) % self.sizes.len() as u64) as usize]
    }

    fn key(source: u32, target: u32, number: u64) -> Key {
        Key { seed: 0, source, target, tag: DATA, number }
    }

    fn carry_through(mut self, time: Duration) -> Result<Side, KernelError> {
        for slot in 0..self.window {
            self.post(slot)?;
        }
        let peer = self.peer();
        let mut ending = Some(self.session.listen(peer)?);
        self.session.barrier(0)?;
        let start = Instant::now();
        self.moved_at = start;
        let (mut end_sent, mut expected, mut heard_at) = (false, None, start);
        loop {
            self.session.step()?;
            let is_on = start.elapsed() < time;
            self.land()?;
            self.send(is_on)?;
            self.arrive()?;
            self.accesses.go_on(self.session, &mut self.side, is_on)?;
            self.note();
            if self.moved_at.elapsed() > STILL_MAX {
                // Rails may be busy with each other all the time without completing a request.
                return Err(self.session.stalled(self.moved_at.elapsed(), false).into());
            }
            if !is_on && !end_sent && self.out.flights.is_empty() && self.accesses.is_idle() {
                self.session.send_text(peer, &self.out.begun.to_le_bytes())?;
                end_sent = true;
            }
            if ending.is_some_and(|ending| self.session.received(&ending)) {
                let received = ending.take().map(|ending| self.session.receive_text_now(ending)).transpose()?.flatten();
                let count = received.and_then(|text| text.try_into().ok()).ok_or(KernelError::PeerGone)?;
                expected = Some(u64::from_le_bytes(count));
                heard_at = Instant::now();
            }
            if let Some(expected) = expected
                && end_sent
                && (self.ledger.taken >= expected || heard_at.elapsed() > LATE_MAX)
            {
                return self.wait_all(expected, start.elapsed());
            }
        }
    }

    /// Posts a receive into a place.
    fn post(&mut self, slot: u64) -> Result<(), KernelError> {
        let seg = Seg::new(self.buffers.incoming, slot * self.stride, self.stride);
        let from = Selector { source: Some(PeerId(self.peer())), tag: TagMatch::Tagged { tag: DATA, ignore: 0 } };
        let ticket = self.session.recv(RecvRequest::new(from, &[seg]))?;
        self.into.push_back((ticket, slot));
        Ok(())
    }

    /// Frees the places of complete messages.
    fn land(&mut self) -> Result<(), KernelError> {
        let over: Vec<_> = self.out.flights.extract_if(.., |(ticket, _)| self.session.is_over(ticket)).collect();
        for (ticket, slot) in over {
            self.session.wait(ticket)?.map_err(|_| KernelError::PeerGone)?;
            self.out.free.push(slot);
        }
        Ok(())
    }

    /// Sends as long as there are places, and time.
    fn send(&mut self, is_on: bool) -> Result<(), KernelError> {
        let (me, peer) = (self.session.rank(), self.peer());
        while is_on && let Some(slot) = self.out.free.pop() {
            let number = self.out.begun;
            let seg = Seg::new(self.buffers.outgoing, slot * self.stride, self.size(number));
            pattern::fill(&Self::key(me, peer, number), 0, self.session.bytes_mut(seg));
            let send = SendRequest {
                tag: Some(DATA),
                immediate: Some(number),
                segments: &[seg],
                ..SendRequest::new(PeerId(peer), &[])
            };
            let ticket = self.session.send(send)?;
            self.out.flights.push((ticket, slot));
            self.out.begun += 1;
        }
        Ok(())
    }

    /// Judges what has come, in the order of receives.
    fn arrive(&mut self) -> Result<(), KernelError> {
        while let Some(&(ticket, slot)) = self.into.front()
            && let Some(outcome) = self.session.take(&ticket)
        {
            self.into.pop_front();
            self.judge(outcome, slot)?;
            self.post(slot)?;
        }
        Ok(())
    }

    /// Judges one message.
    fn judge(&mut self, outcome: Outcome, slot: u64) -> Result<(), KernelError> {
        let done = match outcome {
            Ok(done) => done,
            Err(rerail_core::endpoint::OpError::Truncated { sent, .. }) => {
                self.side.wrong(|side| &mut side.different, format!("a message of {sent} B, which was not sent"));
                return Ok(());
            }
            Err(_) => return Err(KernelError::PeerGone),
        };
        self.side.received += 1;
        self.side.bytes += done.bytes;
        let Some(number) = done.immediate else {
            self.side.wrong(|side| &mut side.different, "a message without its number".to_owned());
            return Ok(());
        };
        let before = self.ledger.duplicated;
        if let Some(what) = self.ledger.take(number) {
            let is_duplicate = self.ledger.duplicated > before;
            self.side.wrong(|side| if is_duplicate { &mut side.duplicated } else { &mut side.late }, what);
        }
        let wanted = self.size(number);
        if done.bytes != wanted {
            let what = format!("message {number} has {} B, was sent with {wanted}", done.bytes);
            self.side.wrong(|side| &mut side.different, what);
            return Ok(());
        }
        let seg = Seg::new(self.buffers.incoming, slot * self.stride, wanted);
        let key = Self::key(self.peer(), self.session.rank(), number);
        if let Some(difference) = pattern::compare(&key, 0, self.session.bytes(seg)) {
            let what = format!("message {number} of {wanted} B: {}", describe(&difference));
            self.side.wrong(|side| &mut side.different, what);
        }
        Ok(())
    }

    /// Notes pauses.
    fn note(&mut self) {
        let completions = self.session.completions();
        if completions == std::mem::replace(&mut self.completions, completions) {
            return;
        }
        let now = Instant::now();
        let pause = now - std::mem::replace(&mut self.moved_at, now);
        if pause >= PAUSE_MIN && self.side.pauses.len() < PAUSES_KEPT {
            let ms = pause.as_millis() as u64;
            self.side.pauses.push(Pause { from_unix_ns: unix_ns() - pause.as_nanos() as u64, ms });
        }
        self.side.longest_pause_ms = self.side.longest_pause_ms.max(pause.as_millis() as u64);
    }

    /// Everything that was sent is here, or will never be.
    fn wait_all(mut self, expected: u64, took: Duration) -> Result<Side, KernelError> {
        // After this nothing of the other side is in flight any more.
        self.session.barrier(0)?;
        for (ticket, slot) in std::mem::take(&mut self.into) {
            // Too late where something has come for it: then it is a message too many.
            let _ = self.session.cancel(&ticket);
            match self.session.wait(ticket)? {
                Err(rerail_core::endpoint::OpError::Cancelled) => {}
                outcome => self.judge(outcome, slot)?,
            }
        }
        let missing = self.ledger.missing(expected);
        if let Some(first) = self.ledger.first_missing(expected) {
            self.side
                .wrong(|side| &mut side.lost, format!("message {first} never came, nor did {} others", missing - 1));
            self.side.lost = missing;
        }
        let invented = self.ledger.invented(expected);
        if invented > 0 {
            self.side.wrong(|side| &mut side.different, format!("{invented} messages that were not sent"));
        }
        self.accesses.wait_all(self.session, &mut self.side)?;
        (self.side.sent, self.side.seconds) = (self.out.begun, took.as_secs_f64());
        Ok(self.side)
    }
}

/// What a request's failure means here.
fn gone(outcome: Outcome) -> Result<rerail_core::endpoint::Done, KernelError> {
    outcome.map_err(|_| KernelError::PeerGone)
}
