//! Peers that are known by name: inserted and removed at any time, numbered by this process alone.
//!
//! A peer's number ([`PeerId`]) means nothing to others. The rails find the peer of a call by the proven key
//! (H-9), the core takes what a peer calls itself from its first CONNECT (S-11). A process that calls and has
//! not been inserted waits for an answer, if the setting `callers` allows (H-11).

use std::collections::{HashMap, VecDeque};

use rerail_core::ids::PeerId;

use super::engine::Engine;
use super::error::{InsertError, RemoveError};
use super::name::Name;
use super::record::AddressRecord;
use super::{Clock, Transport};
use crate::auth::Fingerprint;
use crate::settings::Callers;

/// Most callers that wait for the host to ask for them.
const CALLERS_MAX: usize = 64;

/// The names that a transport has.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) own: Name,
    own_shm: Option<String>,
    policy: Callers,
    /// By number.
    names: Vec<Option<Name>>,
    numbers: HashMap<Fingerprint, PeerId>,
    /// Numbers of removed peers, the one that was freed first before the others: events of a removed peer
    /// that the host has not taken then name no other for as long as possible.
    free: VecDeque<PeerId>,
    /// Peers that are being removed.
    leaving: Vec<PeerId>,
    /// Unknown callers, for the host or, as the setting may be, for insertion.
    callers: VecDeque<Name>,
}

impl Named {
    pub(super) fn new(own: Name, own_shm: Option<String>, policy: Callers) -> Self {
        let (names, numbers) = (Vec::new(), HashMap::new());
        let (free, leaving, callers) = (VecDeque::new(), Vec::new(), VecDeque::new());
        Named { own, own_shm, policy, names, numbers, free, leaving, callers }
    }

    /// H-11: whether a process that is no peer waits for an answer.
    pub(super) fn unknown_caller(&mut self, name: &[u8; 64], key: Fingerprint) -> bool {
        // A peer that this rail does not lead to is no stranger.
        let name = Name::parse(*name).ok().filter(|name| name.fingerprint() == key && !self.numbers.contains_key(&key));
        let Some(name) = name else { return false };
        if self.policy == Callers::Refuse || self.callers.len() >= CALLERS_MAX {
            return false;
        }
        if !self.callers.contains(&name) {
            self.callers.push_back(name);
        }
        true
    }

    /// Whether the driver has something to do about names in the next round.
    fn is_busy(&self) -> bool {
        !self.leaving.is_empty() || self.policy == Callers::Accept && !self.callers.is_empty()
    }

    pub(super) fn has_caller(&self) -> bool {
        self.policy == Callers::Hold && !self.callers.is_empty()
    }

    fn name_of(&self, peer: PeerId) -> Option<&Name> {
        self.names.get(peer.0 as usize)?.as_ref()
    }
}

impl Engine {
    /// Inserts a name, as `peer` or under the next free number.
    pub(super) fn insert(&mut self, name: &Name, peer: Option<PeerId>) -> Result<PeerId, InsertError> {
        let peers_max = self.config.peers_max;
        let Some(named) = &mut self.scratch.reports.named else { return Err(InsertError::Ranks) };
        let key = name.fingerprint();
        if let Some(&known) = named.numbers.get(&key) {
            return match named.name_of(known) {
                Some(same) if same == name && named.leaving.contains(&known) => Err(InsertError::Leaving(known)),
                Some(same) if same == name => Ok(known),
                _ => Err(InsertError::Key),
            };
        }
        if *name != named.own && key.number() == named.own.fingerprint().number() {
            return Err(InsertError::Key);
        }
        let next = PeerId(u32::try_from(named.names.len()).unwrap_or(u32::MAX));
        let peer = peer.or_else(|| named.free.front().copied()).unwrap_or(next);
        if peer.0 >= peers_max {
            return Err(InsertError::Full { peers_max });
        }
        let address_record = name.address_record(&named.own, named.own_shm.as_deref())?;
        let parsed = AddressRecord::parse(&address_record)?;
        let reached = self.reach(peer, &parsed).map_err(InsertError::AddressRecord);
        let added = reached.and_then(|rails| match rails {
            0 => Err(InsertError::Unreachable),
            _ => self.core.add_peer(peer, rails).map_err(InsertError::Peer),
        });
        if let Err(error) = added {
            self.rails.iter_mut().for_each(|(_, rail)| rail.forget_peer(peer));
            return Err(error);
        }
        let Some(named) = &mut self.scratch.reports.named else { return Err(InsertError::Ranks) };
        if named.free.front() == Some(&peer) {
            named.free.pop_front();
        }
        if named.names.len() <= peer.0 as usize {
            named.names.resize(peer.0 as usize + 1, None);
        }
        named.names[peer.0 as usize] = Some(*name);
        named.numbers.insert(key, peer);
        named.callers.retain(|caller| caller != name);
        Ok(peer)
    }

    /// Begins to remove a peer.
    fn remove(&mut self, peer: PeerId) -> Result<(), RemoveError> {
        let Some(named) = &mut self.scratch.reports.named else { return Err(RemoveError::Ranks) };
        if named.name_of(peer).is_none() {
            return Err(RemoveError::Unknown(peer));
        }
        if peer == self.config.rank {
            return Err(RemoveError::Own);
        }
        if !named.leaving.contains(&peer) {
            named.leaving.push(peer);
            self.core.close_peer(peer).map_err(|_| RemoveError::Unknown(peer))?;
        }
        self.tend_names();
        Ok(())
    }

    /// Goes on with peers that are being removed, and inserts callers if the setting is to accept them.
    #[cold]
    pub(super) fn tend_names(&mut self) {
        let Engine { rails, core, scratch, met, lost, .. } = self;
        let Some(named) = &mut scratch.reports.named else { return };
        let Named { names, numbers, free, leaving, .. } = &mut **named;
        leaving.retain(|&peer| {
            if core.remove_peer(peer).is_err() {
                return true;
            }
            rails.iter_mut().for_each(|(_, rail)| rail.forget_peer(peer));
            met.remove(peer);
            lost.retain(|(of, _)| *of != peer);
            if let Some(name) = names.get_mut(peer.0 as usize).and_then(Option::take) {
                numbers.remove(&name.fingerprint());
            }
            free.push_back(peer);
            false
        });
        while let Some(named) = self.scratch.reports.named.as_mut().filter(|named| named.policy == Callers::Accept)
            && let Some(name) = named.callers.pop_front()
        {
            if let Err(error) = self.insert(&name, None) {
                tracing::warn!(?name, %error, "a caller is refused");
                self.refuse(&name);
            }
        }
        let reports = &mut self.scratch.reports;
        reports.is_pending = reports.named.as_ref().is_some_and(|named| named.is_busy());
    }

    fn refuse(&mut self, name: &Name) {
        if let Some(named) = &mut self.scratch.reports.named {
            named.callers.retain(|caller| caller != name);
        }
        let key = name.fingerprint();
        self.rails.iter_mut().for_each(|(_, rail)| rail.refuse(&key));
    }
}

/// # Peers by name
/// A transport that [`open_named`](Transport::open_named) or [`Contacts::join`](super::Contacts::join) has
/// opened addresses processes by their names; the methods below belong to it.
impl<C: Clock> Transport<C> {
    /// This process's name; `None`: the transport was started with ranks.
    pub fn name(&self) -> Option<Name> {
        Some(self.engine.scratch.reports.named.as_ref()?.own)
    }

    /// Makes the process of a name a peer: requests may name it from now on, and what it has sent meanwhile
    /// is received. Makes no connection. The number is this process's own; a name that is inserted has one,
    /// so a second call returns the same.
    ///
    /// # Errors
    /// See [`InsertError`]; nothing has changed then.
    pub fn insert(&mut self, name: &Name) -> Result<PeerId, InsertError> {
        let peer = self.engine.insert(name, None)?;
        // It may wait for an answer.
        self.round_timer.force();
        Ok(peer)
    }

    /// The name of a peer that is inserted.
    pub fn name_of(&self, peer: PeerId) -> Option<Name> {
        self.engine.scratch.reports.named.as_ref()?.name_of(peer).copied()
    }

    /// The peer of a name that is inserted.
    pub fn peer_of(&self, name: &Name) -> Option<PeerId> {
        let named = self.engine.scratch.reports.named.as_ref()?;
        let peer = *named.numbers.get(&name.fingerprint())?;
        named.name_of(peer).filter(|known| *known == name).map(|_| peer)
    }

    /// Closes a peer as [`close_peer`](Self::close_peer) does, then forgets it: it is a stranger again, and
    /// its place and number are free. That takes rounds, and the peer's events must be taken; until then its
    /// name can't be inserted again. Both sides that want to meet again remove each other first. Messages of
    /// it without a receive are dropped.
    ///
    /// # Errors
    /// See [`RemoveError`].
    pub fn remove(&mut self, peer: PeerId) -> Result<(), RemoveError> {
        self.engine.remove(peer)?;
        self.round_timer.force();
        Ok(())
    }

    /// The next process that has called without being inserted, under the name whose key it has proved (the
    /// rest of the name is its own claim). It waits for an answer: [`insert`](Self::insert) or
    /// [`refuse`](Self::refuse), soon. A caller without an answer calls again, and comes here again. Only
    /// with `callers` = `request`.
    pub fn poll_caller(&mut self) -> Option<Name> {
        let named = self.engine.scratch.reports.named.as_mut().filter(|named| named.has_caller())?;
        named.callers.pop_front()
    }

    /// Refuses the process that [`poll_caller`](Self::poll_caller) returned. It may call again.
    pub fn refuse(&mut self, name: &Name) {
        self.engine.refuse(name);
    }
}
