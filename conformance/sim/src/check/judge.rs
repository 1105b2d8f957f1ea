//! The verdict: all checkers over a ledger whose story has ended.

use rerail_core::endpoint::{LossReason, OpError};
use rerail_core::time::Time;

use super::arrivals::Peek;
use super::identity::Difference;
use super::ledger::{Ledger, Request};
use super::patience::{Patience, open, starved, waiting};
use super::verdict::{Corruption, Crash, Damage, Leak, Lost, PeerLoss, Unhealed, Verdict};
use super::{once, order};

/// How a run ended, beside what the ledger knows: what the world saw.
#[derive(Clone, Debug)]
pub struct Ending {
    /// When.
    pub at: Time,
    /// Every app was done and nothing was under way any more.
    pub converged: bool,
    /// Nothing moved any more when patience ended: what has not come then never will.
    pub quiet: bool,
    /// What made it impossible to go on.
    pub crash: Option<Crash>,
    /// When each rank was first hit by a fault that only recovery can heal, as of [`World::blows`](crate::world::World::blows):
    /// from then on it may lose peers, and be lost.
    pub blows: Vec<Time>,
    /// Ranks whose devices kept back completions: what waits for these, waits until there is a deadline for it.
    pub unheard: Vec<u32>,
    /// Entries in use of the ranks' tables that should be empty: rank, table, entries.
    pub tables: Vec<(u32, &'static str, u32)>,
    /// Objects of devices: what, how many should be left, how many are.
    pub objects: Vec<(String, u64, u64)>,
    /// What is bounded: what, the largest seen, the bound.
    pub bounds: Vec<(String, u64, u64)>,
    /// Completion counters: rank, counter, what it shows.
    pub counters: Vec<(u32, u16, u64)>,
    /// How long requests may wait while others go through.
    pub patience: Patience,
}

/// Says what a run came to. `memory` is asked for windows only.
pub fn judge(ledger: &Ledger, ending: &Ending, memory: &dyn WindowMemory) -> Verdict {
    if let Some(crash) = &ending.crash {
        return Verdict::Crash(crash.clone());
    }
    let mut findings = ledger.findings.clone();
    let ranks = ledger.books.len() as u32;
    findings.extend((0..ranks).filter_map(|rank| order::check(ledger, rank)));
    findings.extend((0..ranks).filter_map(|rank| unexplained(ledger, rank)));
    let losses = losses(ledger);
    let mut unhealed = Vec::new();
    if let Some(loss) = losses.iter().find(|loss| !ending.excuses(loss)) {
        findings.push(Verdict::Lost(Lost::Peer(*loss)));
    }
    if ending.converged {
        findings.extend((0..ranks).filter_map(|rank| windows(ledger, ending.at, rank, memory)));
        findings.extend(once::lost_message(ledger));
        findings.extend((0..ranks).filter_map(|rank| once::untold(ledger, rank)));
        let counters = ending.counters.iter();
        findings.extend(counters.filter_map(|&(rank, counter, counted)| once::counter(ledger, rank, counter, counted)));
        findings.extend((0..ranks).filter_map(|rank| starved(ledger, rank, ending.patience)));
        findings.extend(leaks(ledger, ending));
    } else {
        findings.extend(once::waited_for(ledger).filter(|_| ending.quiet));
        let healable = |entry: &Request, rank: u32| {
            let cut = |rank: u32| ending.unheard.contains(&rank);
            let peer = entry.ask.peer();
            let deaf = |peer| ledger.book(peer).killed.is_some() || ledger.is_given_up_unawares(rank, peer);
            cut(rank) || peer.is_some_and(|peer| cut(peer) || deaf(peer))
        };
        match waiting(ledger, ending.at, &|entry, rank| !(ending.is_hit() && healable(entry, rank))) {
            Some(stuck) => findings.push(stuck),
            None => unhealed = open(ledger, &|_, _| true),
        }
    }
    findings.extend(bounds(ending));
    let gravest = findings.into_iter().min_by_key(gravity);
    match gravest {
        Some(finding) => finding,
        None if losses.is_empty() && unhealed.is_empty() => Verdict::Clean,
        None => Verdict::NeedsRecovery(Unhealed { losses, waiting: unhealed }),
    }
}

impl Ending {
    /// Whether a fault had hit either side when a peer was given up.
    fn excuses(&self, loss: &PeerLoss) -> bool {
        excuses(&self.blows, loss)
    }

    fn is_hit(&self) -> bool {
        self.blows.iter().any(|blow| *blow < Time(u64::MAX))
    }
}

/// Whether a fault that only recovery can heal had hit either side when a peer was given up.
pub fn excuses(blows: &[Time], loss: &PeerLoss) -> bool {
    [loss.rank, loss.peer].into_iter().filter_map(|rank| blows.get(rank as usize)).any(|blow| *blow <= loss.at)
}

/// Memory of windows, at the end.
pub trait WindowMemory: Peek {
    /// A cell of a rank's window; `None` where there is no such window (any more).
    fn cell(&self, rank: u32, cell: u32) -> Option<u64>;

    /// Looks at all other memory of the rank that checkers care for: buffers that are over, guards, windows that may not
    /// be written.
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
        Verdict::Doubled(_) => 2,
        Verdict::Order(_) => 3,
        Verdict::Lost(_) => 4,
        Verdict::Stuck(_) => 5,
        Verdict::Leak(_) => 6,
        Verdict::NeedsRecovery(_) => 7,
        Verdict::Clean => 8,
    }
}

/// Peers given up, with how many requests each took along.
fn losses(ledger: &Ledger) -> Vec<PeerLoss> {
    let all = ledger.books.iter().flat_map(|book| {
        book.losses.iter().map(|loss| {
            let with_it = |result| matches!(result, Err(OpError::PeerLost { peer, .. }) if peer.0 == loss.peer);
            let ended = book.requests.iter().filter_map(|entry| entry.ended);
            PeerLoss { requests: ended.filter(|(_, result)| with_it(*result)).count() as u32, ..*loss }
        })
    });
    // What nobody killed is no peer that was lost: a killed process is lost for good, with or without recovery.
    let killed = |rank: u32| ledger.book(rank).killed.is_some();
    all.filter(|loss| !killed(loss.peer) && !killed(loss.rank)).collect()
}

/// A request that ended with its peer, though the rank never heard that the peer is gone, or with another reason.
fn unexplained(ledger: &Ledger, rank: u32) -> Option<Verdict> {
    let book = ledger.book(rank);
    book.requests.iter().zip(0..).find_map(|(entry, request)| {
        let (told, result) = entry.ended?;
        let error = result.err()?;
        let explained = match error {
            OpError::PeerLost { peer, why } => {
                let names_it = |loss: &PeerLoss| loss.peer == peer.0 && loss.why == why && names_cause(why);
                book.losses.iter().any(names_it)
            }
            OpError::PeerClosed { peer } => book.closed.contains(&peer.0),
            _ => true,
        };
        let damage = Damage::Error { request, error };
        (!explained).then_some(Verdict::Corruption(Corruption { rank, at: told.at, damage }))
    })
}

/// Whether a reason says what happened to the rails; what a peer did against the protocol is never a reason among honest
/// peers.
fn names_cause(why: LossReason) -> bool {
    match why {
        LossReason::RailFailed { .. }
        | LossReason::NoRail
        | LossReason::ConnectTimeout
        | LossReason::Silent
        | LossReason::Unreachable { .. } => true,
        LossReason::Protocol(_) | LossReason::Removed => false,
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

/// Where memory that nobody may write has been: `expected` against what is there.
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
