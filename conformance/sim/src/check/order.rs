//! MPI's matching rule, as an oracle that is slow and plain (rules M-1 to M-8 of `conformance/PROTOCOL.md`).
//!
//! The oracle never sees a message being matched. It has bounds: not before the receive was posted and the
//! message was sent, not after the receive's completion was reported. And it derives which matches must have
//! come before which:
//!
//! * a receive got a message: every older message of the same sender that it also takes was matched before (a
//!   message does not overtake);
//! * a message went to a receive: every receive that was posted before and takes it too was matched before,
//!   or taken back (a receive is not passed by). A multi-receive must have completed all of its
//!   messages;
//! * messages of one multi-receive were matched in the order of their numbers (M-9), which is also that of
//!   their places;
//! * a claim matches at once; what a probe found was not matched then, and what it would have found first,
//!   was.
//!
//! What was observed is right where some order of the matches keeps all bounds and all of these; that is:
//! where the graph has no cycle, and the earliest possible times, carried along it, keep the bounds.

use rerail_core::endpoint::{Selector, TagMatch};

use super::identity::Name;
use super::ledger::{Ledger, Message, Request, Submission};
use super::verdict::{Disorder, Verdict};

/// Whether a receive with this selector takes the message (M-2 to M-4).
pub(super) fn takes(from: &Selector, message: &Message) -> bool {
    let source = from.source.is_none_or(|source| source.0 == message.name.source());
    let tag = match (from.tag, message.tag) {
        (TagMatch::Untagged, None) => true,
        (TagMatch::Tagged { tag: wanted, ignore }, Some(tag)) => wanted & !ignore == tag & !ignore,
        (TagMatch::Untagged, Some(_)) | (TagMatch::Tagged { .. }, None) => false,
    };
    source && tag
}

/// A match, or a probe that found something.
struct Node {
    name: Name,
    /// `None` for probes.
    receive: Option<u32>,
    earliest: u64,
    latest: u64,
    after: Vec<usize>,
}

/// A receive in the order of posting.
struct Posted<'a> {
    number: u32,
    entry: &'a Request,
    from: Selector,
    multi: bool,
    /// Its matches, those of a multi-receive in the order of their numbers.
    nodes: Vec<usize>,
}

struct Graph<'a> {
    ledger: &'a Ledger,
    rank: u32,
    nodes: Vec<Node>,
    receives: Vec<Posted<'a>>,
    /// Node of each received message.
    of: std::collections::BTreeMap<Name, usize>,
}

/// Looks for matches that the rule forbids, at one receiver.
pub(super) fn check(ledger: &Ledger, rank: u32) -> Option<Verdict> {
    let mut graph = Graph { ledger, rank, nodes: Vec::new(), receives: Vec::new(), of: Default::default() };
    graph.check().err().map(Verdict::Order)
}

impl Graph<'_> {
    fn check(&mut self) -> Result<(), Disorder> {
        self.enter();
        self.check_places()?;
        for at in 0..self.receives.len() {
            for index in 0..self.receives[at].nodes.len() {
                let node = self.receives[at].nodes[index];
                let from = self.receives[at].from;
                self.not_overtaken(node, &from)?;
                self.not_passed_by(node, at)?;
            }
        }
        self.probes()?;
        self.carry()
    }

    /// Receives and their matches.
    fn enter(&mut self) {
        let book = self.ledger.book(self.rank);
        // A claim takes its place when it is made, not when the message is received.
        let posted = |entry: &Request| match entry.submission {
            Submission::Receive { claimed: Some(claim), .. } => claim.at,
            _ => entry.submitted,
        };
        let mut requests: Vec<(u32, &Request)> = (0..).zip(&book.requests).collect();
        requests.sort_by_key(|(_, entry)| posted(entry));
        for (number, entry) in requests {
            let (from, multi) = match entry.submission {
                Submission::Receive { from, .. } => (from, false),
                Submission::Multi { from, .. } => (from, true),
                _ => continue,
            };
            let is_claim = matches!(entry.submission, Submission::Receive { claimed: Some(_), .. });
            let mut parts = entry.parts.clone();
            parts.sort_by_key(|part| part.index);
            let mut nodes: Vec<usize> = Vec::new();
            for part in parts {
                let Some(message) = self.ledger.message(part.name) else { continue };
                let after = nodes.last().copied();
                let earliest = posted(entry).stamp.max(message.sent.stamp);
                let latest = if is_claim { earliest } else { part.reported.stamp };
                self.of.insert(part.name, self.nodes.len());
                nodes.push(self.nodes.len());
                self.nodes.push(Node {
                    name: part.name,
                    receive: Some(number),
                    earliest,
                    latest,
                    after: after.into_iter().collect(),
                });
            }
            self.receives.push(Posted { number, entry, from, multi, nodes });
        }
    }

    /// Messages of a multi-receive lie back to back in the order of their numbers, and none where less than
    /// the minimum was free (M-8, M-9).
    fn check_places(&self) -> Result<(), Disorder> {
        for receive in &self.receives {
            let receive_number = receive.number;
            for &node in &receive.nodes {
                let name = self.nodes[node].name;
                let message = self.ledger.message(name).filter(|message| !takes(&receive.from, message));
                if message.is_some() {
                    return Err(Disorder::NotTaken { receive: receive_number, name });
                }
            }
            let Submission::Multi { min, .. } = receive.entry.submission else { continue };
            // What failed with its peer, or was under way when the process was killed, leaves a gap that
            // can't be reconstructed.
            let book = self.ledger.book(self.rank);
            let has_gaps = !book.losses.is_empty() || book.killed.is_some();
            let mut parts = receive.entry.parts.clone();
            parts.sort_by_key(|part| part.index);
            let failed = |index: &u32| receive.entry.failed_indexes.contains(index);
            let (mut end, mut expected) = (0, 0);
            for part in parts {
                while failed(&expected) {
                    expected += 1;
                }
                if has_gaps {
                    expected = expected.max(part.index);
                }
                if part.index != expected || failed(&part.index) {
                    let (name, index) = (part.name, part.index);
                    return Err(Disorder::Index { receive: receive_number, name, index, expected });
                }
                expected += 1;
                let last_start = receive.entry.len() - min;
                if part.offset < end || part.offset > last_start || part.offset > end && !has_gaps {
                    let (name, offset, expected) = (Some(part.name), part.offset, end.min(last_start));
                    return Err(Disorder::Offset { receive: receive_number, name, offset, expected });
                }
                end = part.offset + part.bytes;
            }
        }
        Ok(())
    }

    /// Older messages of the sender that the selector takes were matched before.
    fn not_overtaken(&mut self, node: usize, from: &Selector) -> Result<(), Disorder> {
        let name = self.nodes[node].name;
        let Some(pair) = self.ledger.messages.get(&(name.source(), self.rank)) else { return Ok(()) };
        for older in pair.iter().take(name.serial() as usize) {
            if !takes(from, older) || older.taken_back.is_some() {
                continue;
            }
            match self.of.get(&older.name) {
                Some(&before) => self.nodes[node].after.push(before),
                // What was under way between peers that parted may have been matched and lost.
                None if self.ledger.is_parted(self.rank, name.source()) => {}
                None => {
                    let receive = self.nodes[node].receive.unwrap_or(u32::MAX);
                    return Err(Disorder::Overtaken { receive, name, older: older.name });
                }
            }
        }
        Ok(())
    }

    /// Receives that were posted before the `at`-th and take the message were matched before, or taken back.
    fn not_passed_by(&mut self, node: usize, at: usize) -> Result<(), Disorder> {
        let name = self.nodes[node].name;
        let Some(message) = self.ledger.message(name).copied() else { return Ok(()) };
        for older in 0..at {
            let receive = &self.receives[older];
            if !takes(&receive.from, &message) || self.is_claim(older) {
                continue;
            }
            let over = receive.entry.ended.is_some() || !receive.entry.has_report();
            match (receive.nodes.last(), receive.entry.cancelled) {
                (None, Some(cancelled)) => {
                    self.nodes[node].earliest = self.nodes[node].earliest.max(cancelled.stamp);
                }
                // A multi-receive that was taken back may have been full before.
                (Some(_), cancelled) if over || !receive.multi || cancelled.is_some() => {
                    let before = receive.nodes.clone();
                    self.nodes[node].after.extend(before);
                }
                (None, None) if receive.entry.failed_with_peer() || !receive.entry.has_report() => {}
                // The process was killed before the match could be reported.
                (_, None) if !over && self.has_undelivered(receive) => {}
                _ => {
                    let younger = self.nodes[node].receive;
                    return Err(Disorder::PassedBy { receive: receive.number, younger, name });
                }
            }
        }
        Ok(())
    }

    /// Whether the rank was killed while a message that the receive takes may have been on its way into its
    /// buffer.
    fn has_undelivered(&self, receive: &Posted<'_>) -> bool {
        let mut to_it = self.ledger.messages.iter().filter(|((_, destination), _)| *destination == self.rank);
        let undelivered = |message: &Message| message.receipt.is_none() && takes(&receive.from, message);
        self.ledger.book(self.rank).killed.is_some() && to_it.any(|(_, pair)| pair.iter().any(undelivered))
    }

    fn is_claim(&self, at: usize) -> bool {
        matches!(self.receives[at].entry.submission, Submission::Receive { claimed: Some(_), .. })
    }

    /// What a probe found was free then; what stood before it was not.
    fn probes(&mut self) -> Result<(), Disorder> {
        for probe in &self.ledger.book(self.rank).probes {
            // What was found and lost with its peer before it was there: which it was is not known.
            let Some(name) = probe.name else { continue };
            let node = self.nodes.len();
            let stamp = probe.at.stamp;
            self.nodes.push(Node { name, receive: None, earliest: stamp, latest: stamp, after: Vec::new() });
            self.not_overtaken(node, &probe.from)?;
            let posted = self.receives.iter().take_while(|receive| receive.entry.submitted.stamp < stamp).count();
            // A receive that was taken back later stood there all the same.
            let message = self.ledger.message(name).copied();
            for receive in &self.receives[..posted] {
                let late = receive.entry.cancelled.is_some_and(|cancelled| cancelled.stamp > stamp);
                if late && receive.nodes.is_empty() && message.is_some_and(|message| takes(&receive.from, &message)) {
                    return Err(Disorder::PassedBy { receive: receive.number, younger: None, name });
                }
            }
            self.not_passed_by(node, posted)?;
            if let Some(&matched) = self.of.get(&name) {
                self.nodes[matched].after.push(node);
            }
        }
        Ok(())
    }

    /// Carries the earliest times along, in the order that the graph demands (Kahn's algorithm).
    fn carry(&mut self) -> Result<(), Disorder> {
        let mut waits: Vec<usize> = self.nodes.iter().map(|node| node.after.len()).collect();
        let mut next: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (node, facts) in self.nodes.iter().enumerate() {
            for &before in &facts.after {
                next[before].push(node);
            }
        }
        let mut ready: Vec<usize> = (0..waits.len()).filter(|&node| waits[node] == 0).collect();
        let mut done = 0;
        while let Some(node) = ready.pop() {
            done += 1;
            if self.nodes[node].earliest > self.nodes[node].latest {
                return Err(self.blame(node));
            }
            for &later in &next[node] {
                self.nodes[later].earliest = self.nodes[later].earliest.max(self.nodes[node].earliest);
                waits[later] -= 1;
                if waits[later] == 0 {
                    ready.push(later);
                }
            }
        }
        if done == self.nodes.len() {
            return Ok(());
        }
        let knot = (0..waits.len()).find(|&node| waits[node] > 0 && self.is_in_cycle(node));
        Err(self.blame(knot.unwrap_or_default()))
    }

    fn is_in_cycle(&self, start: usize) -> bool {
        let mut seen = vec![false; self.nodes.len()];
        let mut stack = self.nodes[start].after.clone();
        while let Some(node) = stack.pop() {
            if node == start {
                return true;
            }
            if !std::mem::replace(&mut seen[node], true) {
                stack.extend(&self.nodes[node].after);
            }
        }
        false
    }

    /// Describes what is wrong with a match as plainly as possible: which of its predecessors can't have come
    /// before.
    fn blame(&self, node: usize) -> Disorder {
        let this = &self.nodes[node];
        let receive = this.receive.unwrap_or(u32::MAX);
        for &before in &this.after {
            let other = &self.nodes[before];
            let contradicts = other.earliest > this.latest || other.after.contains(&node);
            match (other.receive, contradicts) {
                (Some(_), true) if other.name.source() == this.name.source() && other.name < this.name => {
                    return Disorder::Overtaken { receive, name: this.name, older: other.name };
                }
                (Some(older), true) if older != receive => {
                    return Disorder::PassedBy { receive: older, younger: this.receive, name: this.name };
                }
                _ => {}
            }
        }
        Disorder::Impossible { receive, name: this.name }
    }
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
