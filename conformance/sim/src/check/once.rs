//! Exactly once: every message that was sent is received, every request is reported, every count is right.
//!
//! What came twice is found as it is entered; here is what never came. It is checked at the end, when every
//! rank is done and nothing is under way any more.

use rerail_core::endpoint::{Level, Notify};

use super::ledger::{Ledger, Message, Moment, Submission};
use super::order::takes;
use super::verdict::{Duplicated, Lost, Verdict};

/// A message that was never received and should have been.
pub(super) fn lost_message(ledger: &Ledger) -> Option<Verdict> {
    let all = ledger.messages.values().flatten();
    all.filter(|message| message.receipt.is_none() && message.taken_back.is_none()).find_map(|message| {
        let (name, sent) = (message.name, message.sent.at);
        let completed = completed(ledger, message);
        if !ledger.is_parted(name.source(), name.destination()) {
            return Some(Verdict::Lost(Lost::Message { name, sent, completed: completed.map(|reported| reported.at) }));
        }
        // Acknowledged is a promise that outlives the sender, not the receiver.
        let gone = ledger.book(name.destination()).killed.is_some();
        let reported = completed.filter(|_| message.level != Level::Reusable && !gone)?;
        let completed = reported.at;
        is_missed(ledger, message, reported).then_some(Verdict::Lost(Lost::Acknowledged { name, completed }))
    })
}

/// Whether a receive that takes the message was free after it had been acknowledged: what is acknowledged is
/// in matching, so it would have gone there. Without such a receive it may lie at its receiver still: it was
/// not requested.
fn is_missed(ledger: &Ledger, message: &Message, acknowledged: Moment) -> bool {
    ledger.book(message.name.destination()).requests.iter().any(|entry| {
        let (Submission::Receive { from, claimed: None } | Submission::Multi { from, .. }) = entry.submission else {
            return false;
        };
        let free_until = match (entry.cancelled, entry.ended) {
            (Some(cancelled), _) => cancelled.stamp,
            (None, None) => u64::MAX,
            // It had a message, or one that was lost with its peer.
            (None, Some(_)) => return false,
        };
        entry.parts.is_empty() && free_until > acknowledged.stamp && takes(&from, message)
    })
}

/// When the good completion was reported to the sender.
fn completed(ledger: &Ledger, message: &Message) -> Option<Moment> {
    let entry = &ledger.book(message.name.source()).requests[message.request as usize];
    entry.ended.filter(|(_, result)| result.is_ok()).map(|(reported, _)| reported)
}

/// Messages whose send is complete and for which a receive waits: where nothing moves any more, they are
/// lost.
pub(super) fn waited_for(ledger: &Ledger) -> Option<Verdict> {
    let all = ledger.messages.values().flatten();
    all.filter(|message| message.receipt.is_none() && message.taken_back.is_none()).find_map(|message| {
        let book = ledger.book(message.name.destination());
        if ledger.is_parted(message.name.source(), message.name.destination()) {
            return None;
        }
        let completed = Some(completed(ledger, message)?.at);
        let waits = book.requests.iter().any(|entry| {
            let from = match entry.submission {
                Submission::Receive { from, claimed: None } | Submission::Multi { from, .. } => from,
                _ => return false,
            };
            entry.ended.is_none() && entry.cancelled.is_none() && takes(&from, message)
        });
        waits.then_some(Verdict::Lost(Lost::Message { name: message.name, sent: message.sent.at, completed }))
    })
}

/// A request whose completion should have been reported and was not.
pub(super) fn unreported(ledger: &Ledger, rank: u32) -> Option<Verdict> {
    let book = ledger.book(rank);
    if book.killed.is_some() {
        return None;
    }
    // An end that is not good is reported, however the good one would have been.
    let is_expected = |entry: &super::ledger::Request| entry.has_report() || entry.cancelled.is_some();
    let unreported = book.requests.iter().position(|entry| is_expected(entry) && entry.ended.is_none())?;
    Some(Verdict::Lost(Lost::Completion(ledger.facts(rank, unreported as u32))))
}

/// A counter against the requests, and the peers' puts, that count on it: `counted` is what counter `counter`
/// of the rank shows in the end.
pub(super) fn counter(ledger: &Ledger, rank: u32, counter: u16, counted: u64) -> Option<Verdict> {
    let book = ledger.book(rank);
    let counts = |notify| matches!(notify, Notify::Counter(c) | Notify::Both(c) if c.0 == counter);
    let all: u64 = book
        .requests
        .iter()
        .filter(|entry| counts(entry.notify))
        .map(|entry| match entry.ended {
            // Each message of a multi-receive counts.
            _ if matches!(entry.submission, Submission::Multi { .. }) => entry.parts.len() as u64,
            Some((_, Err(_))) => 0,
            _ if entry.cancelled.is_some() => 0,
            _ => 1,
        })
        .sum();
    let notices = book.notices.filter(|(of, _)| *of == counter).map_or(0, |(_, count)| count);
    let all = all + notices;
    match counted.cmp(&all) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Less => Some(Verdict::Lost(Lost::Counted { rank, counted, done: all })),
        std::cmp::Ordering::Greater => Some(Verdict::Duplicated(Duplicated::Counted { rank, counted, done: all })),
    }
}
