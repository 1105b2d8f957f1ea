//! No request waits for ever, and none waits long while others go on.

use rerail_core::endpoint::Notify;
use rerail_core::time::Time;

use super::ledger::{Ledger, Request, Submission};
use super::verdict::{Stuck, Verdict};

/// How long a request may wait while others of its kind go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Waits up to this are not checked, in nanoseconds.
    pub wait_ns: u64,
    /// So many others of its kind, submitted later, must have been done before a request that waits is a
    /// finding.
    pub others: usize,
}

/// Everything that is not over, oldest first.
pub(super) fn waiting(ledger: &Ledger, at: Time) -> Verdict {
    let mut requests = Vec::new();
    for (rank, book) in (0..).zip(&ledger.books).filter(|(_, book)| book.killed.is_none()) {
        let entries = (0..).zip(&book.requests).filter(|(_, entry)| entry.ended.is_none());
        let entries = entries.filter(|(_, entry)| entry.notify != Notify::Silent);
        requests.extend(entries.map(|(number, _)| ledger.facts(rank, number)));
    }
    requests.sort_by_key(|request| (request.since, request.rank, request.request));
    let count = requests.len();
    requests.truncate(Stuck::SHOWN_MAX);
    Verdict::Stuck(Stuck::Waiting { at, requests, count })
}

/// A request that waited too long though its time had come. The time of a message begins when both sides have
/// requested it: the sender for the message, the receiver for what it got.
pub(super) fn waiting_too_long(ledger: &Ledger, rank: u32, timeout: Timeouts) -> Option<Verdict> {
    let book = ledger.book(rank);
    // Kind, begin, end, request.
    let mut waits: Vec<(&'static str, Time, Time, u32)> = Vec::new();
    for (number, entry) in (0..).zip(&book.requests) {
        let Some((end, Ok(_))) = entry.ended else { continue };
        if let Some(begin) = begin(ledger, entry) {
            waits.push((entry.submission.word(), begin.min(end.at), end.at, number));
        }
    }
    waits.iter().filter(|(_, begin, end, _)| (*end - *begin).0 > timeout.wait_ns).find_map(|wait| {
        let (kind, begin, end, number) = *wait;
        let later = |other: &&(&str, Time, Time, u32)| other.0 == kind && other.1 > begin && other.2 < end;
        let overtaken_by = waits.iter().filter(later).count();
        let request = ledger.facts(rank, number);
        let waited_ns = (end - begin).0;
        (overtaken_by >= timeout.others).then_some(Verdict::Stuck(Stuck::WaitingTooLong {
            request,
            waited_ns,
            overtaken_by,
        }))
    })
}

/// When nothing but the transport stood between a request and its end.
fn begin(ledger: &Ledger, entry: &Request) -> Option<Time> {
    match entry.submission {
        Submission::Send { name, .. } => {
            let receipt = ledger.message(name)?.receipt?;
            let receive = ledger.book(name.destination()).requests.get(receipt as usize)?;
            Some(receive.submitted.at.max(entry.submitted.at))
        }
        Submission::Receive { .. } => {
            let part = entry.parts.first()?;
            let sent = ledger.message(part.name)?.sent.at;
            Some(sent.max(entry.submitted.at))
        }
        // It waits for messages, as long as it takes.
        Submission::Multi { .. } => None,
        Submission::Put { .. }
        | Submission::Get { .. }
        | Submission::Atomic { .. }
        | Submission::Temporary { .. }
        | Submission::Flush { .. } => Some(entry.submitted.at),
    }
}
