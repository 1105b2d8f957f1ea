//! The verdict: all checkers over a ledger whose story has ended.

use rerail_core::endpoint::{LossReason, OpError};
use rerail_core::time::Time;

use super::arrivals::Peek;
use super::identity::Difference;
use super::ledger::{Ledger, Request, Submission};
use super::timeout::{Timeouts, waiting, waiting_too_long};
use super::verdict::{Corruption, Crash, Damage, Leak, Lost, PeerLoss, Verdict};
use super::{once, order};

/// How a run ended, beside what the ledger contains: what the simulation recorded.
#[derive(Clone, Debug)]
pub struct Ending {
    /// When.
    pub at: Time,
    /// Every app was done and nothing was under way any more.
    pub converged: bool,
    /// Nothing moved any more when the time was over: what has not come then never will.
    pub quiet: bool,
    /// What made it impossible to go on.
    pub crash: Option<Crash>,
    /// Ranks between which no way was left for good: they may lose each other. As of
    /// [`Cluster::cuts`](crate::cluster::Cluster::cuts).
    pub cuts: Vec<Cut>,
    /// Ranks that a peer that has never met them can't find. As of
    /// [`Cluster::hidden`](crate::cluster::Cluster::hidden).
    pub hidden: Vec<Hidden>,
    /// Entries in use of the ranks' tables that should be empty: rank, table, entries.
    pub tables: Vec<(u32, &'static str, u32)>,
    /// Objects of devices: what, how many should be left, how many are.
    pub objects: Vec<(String, u64, u64)>,
    /// What is bounded: what, the largest seen, the bound.
    pub bounds: Vec<(String, u64, u64)>,
    /// Completion counters: rank, counter, what it shows.
    pub counters: Vec<(u32, u16, u64)>,
    /// How long requests may wait while others go through.
    pub timeout: Timeouts,
}

/// Returns the verdict on a run. `memory` is used for windows only.
pub fn judge(ledger: &Ledger, ending: &Ending, memory: &dyn WindowMemory) -> Verdict {
    if let Some(crash) = &ending.crash {
        return Verdict::Crash(crash.clone());
    }
    if let Some(liar) = ledger.liar {
        return ledger.as_requested(judge(&ledger.without(liar), ending, memory));
    }
    let mut findings = ledger.findings.clone();
    let ranks = ledger.books.len() as u32;
    findings.extend((0..ranks).filter_map(|rank| order::check(ledger, rank)));
    findings.extend((0..ranks).filter_map(|rank| unexplained(ledger, rank)));
    findings.extend(unexcused(ledger, ending).map(|loss| Verdict::Lost(Lost::Peer(loss))));
    if ending.converged {
        findings.extend((0..ranks).filter_map(|rank| windows(ledger, ending.at, rank, memory)));
        findings.extend(once::lost_message(ledger));
        findings.extend((0..ranks).filter_map(|rank| once::unreported(ledger, rank)));
        let counters = ending.counters.iter();
        findings.extend(counters.filter_map(|&(rank, counter, counted)| once::counter(ledger, rank, counter, counted)));
        findings.extend((0..ranks).filter_map(|rank| waiting_too_long(ledger, rank, ending.timeout)));
        findings.extend(leaks(ledger, ending));
    } else {
        findings.extend(once::waited_for(ledger).filter(|_| ending.quiet));
        findings.push(waiting(ledger, ending.at));
    }
    findings.extend(bounds(ending));
    findings.into_iter().min_by_key(gravity).unwrap_or(Verdict::Clean)
}

/// Two ranks between which the simulation has left no way for good: every rail that led from one to the other
/// went over a device that never came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The two.
    pub ranks: [u32; 2],
    /// When the last way was gone.
    pub since: Time,
}

impl Cut {
    /// Whether a loss is what had to come of it.
    pub fn excuses(&self, loss: &PeerLoss) -> bool {
        let [one, other] = self.ranks;
        self.since <= loss.at && ((one, other) == (loss.rank, loss.peer) || (other, one) == (loss.rank, loss.peer))
    }
}

/// A rank that is elsewhere than in its address record, on every rail that leads to it from another rank,
/// where no stream leads from one to the other that could report it (F-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hidden {
    /// The one that has moved.
    pub rank: u32,
    /// The one that has its first addresses only.
    pub from: u32,
    /// When the last of its rails began to move.
    pub since: Time,
    /// Whether it calls the sources of its receives (F-13).
    pub calls_sources: bool,
}

impl Hidden {
    /// Whether a loss is what had to come of it: the two were never connected, and the one that has moved had
    /// no request that would have made it call.
    pub fn excuses(&self, loss: &PeerLoss, ledger: &Ledger) -> bool {
        let calls = |entry: &Request| {
            let is_receive = matches!(entry.submission, Submission::Receive { .. } | Submission::Multi { .. });
            let is_call = entry.submission.peer() == Some(self.from) && (self.calls_sources || !is_receive);
            is_call && entry.submitted.at <= loss.at
        };
        (self.rank, self.from) == (loss.peer, loss.rank)
            && self.since <= loss.at
            && !ledger.have_met(self.rank, self.from)
            && !ledger.book(self.rank).requests.iter().any(calls)
    }
}

/// Memory of windows, at the end.
pub trait WindowMemory: Peek {
    /// A cell of a rank's window; `None` where there is no such window (any more).
    fn cell(&self, rank: u32, cell: u32) -> Option<u64>;

    /// Looks at all other memory of the rank that checkers care for: buffers that are over, guards, windows
    /// that may not be written.
    ///
    /// # Errors
    /// The first thing that is wrong.
    fn inspect(&self, rank: u32) -> Result<(), Damage>;
}

/// The gravest is the least. Of what is equally grave, the first that was found counts.
pub fn gravity(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Impossible(_) => 0,
        Verdict::Crash(_) => 0,
        Verdict::Corruption(_) => 1,
        Verdict::Duplicated(_) => 2,
        Verdict::Order(_) => 3,
        Verdict::Lost(_) => 4,
        Verdict::Stuck(_) => 5,
        Verdict::Leak(_) => 6,
        Verdict::Clean => 7,
    }
}

/// A peer that was given up, though it was neither killed before nor out of reach for good, nor could not be
/// found; with how many requests it took along.
fn unexcused(ledger: &Ledger, ending: &Ending) -> Option<PeerLoss> {
    let all = ledger.books.iter().flat_map(|book| {
        book.losses.iter().map(|loss| {
            let with_it = |result| matches!(result, Err(OpError::PeerLost { peer, .. }) if peer.0 == loss.peer);
            let ended = book.requests.iter().filter_map(|entry| entry.ended);
            PeerLoss { requests: ended.filter(|(_, result)| with_it(*result)).count() as u32, ..*loss }
        })
    });
    let killed = |loss: &PeerLoss| ledger.book(loss.peer).killed.is_some_and(|at| at <= loss.at);
    let is_cut = |loss: &PeerLoss| ending.cuts.iter().any(|cut| cut.excuses(loss));
    let is_hidden = |loss: &PeerLoss| ending.hidden.iter().any(|hidden| hidden.excuses(loss, ledger));
    let mut wrong = all.filter(|loss| !killed(loss) && !is_cut(loss) && !is_hidden(loss));
    wrong.next()
}

/// A request that ended with its peer, though the peer's loss was never reported to the rank, or with another
/// reason.
fn unexplained(ledger: &Ledger, rank: u32) -> Option<Verdict> {
    let book = ledger.book(rank);
    book.requests.iter().zip(0..).find_map(|(entry, request)| {
        let (reported, result) = entry.ended?;
        let error = result.err()?;
        let explained = match error {
            OpError::PeerLost { peer, why } => {
                let names_it = |loss: &PeerLoss| loss.peer == peer.0 && loss.why == why && names_cause(why.reason);
                book.losses.iter().any(names_it)
            }
            OpError::PeerClosed { peer } => book.closed.contains(&peer.0),
            _ => true,
        };
        let damage = Damage::Error { request, error };
        (!explained).then_some(Verdict::Corruption(Corruption { rank, at: reported.at, damage }))
    })
}

/// Whether a reason names what happened to the rails; what a peer did against the protocol is never a reason
/// among honest peers.
fn names_cause(reason: LossReason) -> bool {
    match reason {
        LossReason::RailFailed { .. }
        | LossReason::ConnectTimeout
        | LossReason::Silent
        | LossReason::Unreachable { .. } => true,
        LossReason::Protocol(_) => false,
    }
}

fn windows(ledger: &Ledger, at: Time, rank: u32, memory: &dyn WindowMemory) -> Option<Verdict> {
    if ledger.book(rank).killed.is_some() {
        return None;
    }
    if let Err(damage) = memory.inspect(rank) {
        return Some(Verdict::Corruption(Corruption { rank, at, damage }));
    }
    let cells = ledger.cells.of(rank).filter_map(|cell| ledger.cells.check(rank, cell, memory.cell(rank, cell)?));
    let slots = ledger.slots.of(rank).filter_map(|slot| {
        let bytes = memory.slot(rank, slot)?;
        let (byte, found) = ledger.slots.first_impossible(rank, slot, 0, bytes, u64::MAX - 1..u64::MAX)?;
        let damage = Damage::Window { slot, at: byte, found };
        Some(Verdict::Corruption(Corruption { rank, at, damage }))
    });
    slots.chain(cells).next()
}

fn leaks(ledger: &Ledger, ending: &Ending) -> Option<Verdict> {
    let alive = |rank: u32| ledger.books.get(rank as usize).is_none_or(|book| book.killed.is_none());
    let table = ending.tables.iter().find(|(rank, _, used)| *used > 0 && alive(*rank));
    let objects = ending.objects.iter().find(|(_, before, after)| after != before);
    let table = table.map(|&(rank, table, used)| Leak::Table { rank, table, used });
    let objects = objects.map(|(what, before, after)| {
        let (what, before, after) = (what.clone(), *before, *after);
        Leak::Objects { what, before, after }
    });
    table.or(objects).map(Verdict::Leak)
}

fn bounds(ending: &Ending) -> Option<Verdict> {
    let over = ending.bounds.iter().find(|(_, reached, bound)| reached > bound)?;
    let (what, reached, bound) = over.clone();
    Some(Verdict::Leak(Leak::Bound { what, reached, bound }))
}

/// No memory at all: for ledgers without windows.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMemory;

impl Peek for NoMemory {
    fn peek(&self, _: u32, _: rerail_core::mem::Seg) -> Option<&[u8]> {
        None
    }

    fn slot(&self, _: u32, _: u32) -> Option<&[u8]> {
        None
    }
}

impl WindowMemory for NoMemory {
    fn cell(&self, _: u32, _: u32) -> Option<u64> {
        None
    }

    fn inspect(&self, _: u32) -> Result<(), Damage> {
        Ok(())
    }
}

/// Where memory that no rank may write has been: `expected` against what is there.
pub fn protected(expected: &[u8], found: &[u8]) -> Result<(), Damage> {
    let differ = expected.iter().zip(found).position(|(expected, found)| expected != found);
    match differ {
        Some(at) => {
            let (expected, found) = (expected[at], found[at]);
            Err(Damage::Protected(Difference { at: at as u64, expected, found }))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
