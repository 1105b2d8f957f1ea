//! Probes and claims: messages that were found, some of them before they can be identified.
//!
//! A probe or a claim shows a message's envelope: sender, tag, length, and immediate data where it has any.
//! Its name is known at once only from the latter. Without it, two messages of one sender with one tag and
//! length look alike until their payloads are there; so a claim without a name gets it with the message, and
//! lends it to the probe before it. Guessing ("the oldest that is not received") took the second of two such
//! claims for the first.

use rerail_core::endpoint::{Found, Selector};
use rerail_core::time::Time;

use super::identity::Name;
use super::ledger::{Ledger, Message, Moment};
use super::verdict::Damage;

/// A message that a probe found.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The selector of the probe.
    pub from: Selector,
    /// What was found; `None`: not identified (yet).
    pub name: Option<Name>,
    /// When.
    pub at: Moment,
}

/// A message that was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which; `None`: its payload will identify it.
    pub name: Option<Name>,
    /// Its sender.
    pub source: u32,
    /// Its tag.
    pub tag: Option<u64>,
    /// Its length in bytes.
    pub len: u64,
    /// When it was claimed.
    pub at: Moment,
    /// The probe that found it at that very moment, by number.
    probe: Option<usize>,
}

impl Claim {
    /// Whether the message may be the one that was claimed.
    pub(super) fn fits(&self, message: &Message) -> bool {
        let envelope = (message.name.source(), message.tag, message.len) == (self.source, self.tag, self.len);
        envelope && message.immediate == self.name.is_some() && self.name.is_none_or(|name| name == message.name)
    }
}

impl Ledger {
    /// Enters what a probe found. False: no rank sent anything of the sort, which is a finding.
    pub fn probed(&mut self, rank: u32, at: Time, from: Selector, found: &Found) -> bool {
        let Ok(name) = self.found(rank, at, found) else { return false };
        let at = self.moment(at);
        self.books[rank as usize].probes.push(Probe { from, name, at });
        true
    }

    /// Enters that a message was claimed; the claim goes into the
    /// [`Submission::Receive`](super::Submission::Receive) that receives it. `None`: no rank sent anything of
    /// the sort, which is a finding.
    pub fn claimed(&mut self, rank: u32, at: Time, found: &Found) -> Option<Claim> {
        let name = self.found(rank, at, found).ok()?;
        let at = self.moment(at);
        let probes = &self.books[rank as usize].probes;
        let probe = probes.len().checked_sub(1).filter(|last| probes[*last].at.stamp + 1 == at.stamp);
        Some(Claim { name, source: found.peer.0, tag: found.tag, len: found.bytes, at, probe })
    }

    /// The message that an envelope identifies, as far as it does.
    fn found(&mut self, rank: u32, at: Time, found: &Found) -> Result<Option<Name>, ()> {
        let (peer, bytes) = (found.peer.0, found.bytes);
        if self.is_liar(rank) || self.is_liar(peer) {
            return Ok(None);
        }
        let name = found.immediate.map(Name::from_bits);
        let fits = |message: &&Message| {
            let envelope = (message.tag, message.len, message.immediate) == (found.tag, bytes, name.is_some());
            // Whether one with a name was free is decided by the checker of the order.
            let free = name.is_some() || message.receipt.is_none();
            envelope && free && message.taken_back.is_none() && name.is_none_or(|name| name == message.name)
        };
        let known = self.messages.get(&(peer, rank)).is_some_and(|pair| pair.iter().any(|message| fits(&message)));
        if !known {
            self.corrupt(rank, at, Damage::UnknownMessage { receive: u32::MAX, name, peer, bytes });
            return Err(());
        }
        Ok(name)
    }

    /// A claimed message is there, and with it its name, which the probe before did not have.
    pub(super) fn name_claim(&mut self, rank: u32, claim: &Claim, name: Name) {
        if let Some(probe) = claim.probe.and_then(|probe| self.books[rank as usize].probes.get_mut(probe)) {
            probe.name.get_or_insert(name);
        }
    }
}
