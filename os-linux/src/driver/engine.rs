//! The loop without a clock: rails, core and memory. [`Transport`](super::Transport) adds the time.

use rerail_core::config::Config;
use rerail_core::endpoint::{AtOnce, Event, Loss};
use rerail_core::ids::PeerId;
use rerail_core::rail::RailKind;
use rerail_core::time::Time;

use super::drive::Scratch;
use super::record::{AddressRecord, AddressRecordError};
use super::slots::{Rails, Slot};
use crate::memory::{Core, Memory};

/// What a transport drives. `drive` holds its rounds, `express` the short way of small messages.
// In this order: rails, which hold addresses of pieces, are dropped before the memory that these point to;
// and what each message reads of both is in one cache line.
#[repr(C, align(64))]
pub(super) struct Engine {
    pub(super) rails: Rails,
    pub(super) memory: Memory,
    pub(super) core: Core,
    /// Those that short messages go over: bit per rail.
    pub(super) quick_rails: u64,
    /// Another one had something in the last round.
    pub(super) others_moved: bool,
    /// The last message that was sent at its submission.
    pub(super) at_once: AtOnce,
    pub(super) config: Config,
    pub(super) scratch: Scratch,
    /// When the last round was, or slow-path work: the express path uses it as the time.
    pub(super) last: Time,
    /// [`Clock::READ`](super::Clock::READ).
    pub(super) read_clock: Option<fn() -> Time>,
    /// An event taken from the core to check whether there is one.
    pub(super) next_event: Option<Event>,
    /// The logical host: processes of one may share memory.
    pub(super) host: String,
    /// Whether peers with which memory is shared are reached over other rails too.
    pub(super) others_beside_shm: bool,
    /// Peers with a connection, existing or requested: `finish` closes these.
    pub(super) met: PeerSet,
    /// Peers that were lost, and why: reported again at the end.
    pub(super) lost: Vec<(PeerId, Loss)>,
}

const _: () = assert!(std::mem::offset_of!(Engine, memory) + Memory::HOT_BYTES <= 64);

impl Engine {
    /// Passes a peer's addresses to the rails; returns those that reach it, bit i for rail i.
    pub(super) fn reach(
        &mut self,
        peer: PeerId,
        address_record: &AddressRecord<'_>,
    ) -> Result<u64, AddressRecordError> {
        let own = peer == self.config.rank;
        let near = address_record.host == self.host;
        // A process reaches itself by the shortest path only.
        let within = |kind| if own { kind == RailKind::Loop } else { near && kind == RailKind::Shm };
        let mut mask = self.set_addresses(peer, address_record, within)?;
        if !own && (mask == 0 || self.others_beside_shm) {
            mask |= self.set_addresses(peer, address_record, |kind| !matches!(kind, RailKind::Loop | RailKind::Shm))?;
        }
        Ok(mask)
    }

    /// The same for the rails of some kinds.
    fn set_addresses(
        &mut self,
        peer: PeerId,
        address_record: &AddressRecord<'_>,
        wanted: impl Fn(RailKind) -> bool,
    ) -> Result<u64, AddressRecordError> {
        let mut mask = 0;
        for (Slot { id, kind, nth, .. }, rail) in self.rails.iter_mut().filter(|(slot, _)| wanted(slot.kind)) {
            let Some(address) = address_record.nth(*kind, *nth) else { continue };
            let reached = rail.add_peer(peer, address).map_err(|error| {
                let rail = rail.name().to_owned();
                AddressRecordError::Address { rail, address: error.address, why: error.why }
            })?;
            if let Some(key) = &address_record.key {
                rail.trust(peer, key);
            }
            mask |= u64::from(reached) << id.0;
        }
        Ok(mask)
    }

    /// The next event of the core; keeps which peers to close, and which are lost.
    #[inline]
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        let event = if self.next_event.is_none() { self.core.poll_event() } else { self.next_event.take() };
        if let Some(event) = &event
            && !matches!(event, Event::Completed(_))
        {
            self.note(event);
        }
        event
    }

    #[cold]
    fn note(&mut self, event: &Event) {
        match *event {
            Event::PeerUp { peer } => self.met.insert(peer),
            Event::PeerClosed { peer } => self.met.remove(peer),
            Event::PeerLost { peer, why } => {
                self.met.remove(peer);
                self.lost.push((peer, why));
            }
            Event::Completed(_) | Event::Written(_) => {}
        }
    }

    /// Whether [`poll_event`](Self::poll_event) has something.
    pub(super) fn has_event(&mut self) -> bool {
        if self.next_event.is_none() {
            self.next_event = self.core.poll_event();
        }
        self.next_event.is_some()
    }
}

/// One bit per rank.
#[derive(Debug)]
pub(super) struct PeerSet {
    words: Vec<u64>,
}

impl PeerSet {
    pub(super) fn new(peers: u32) -> Self {
        PeerSet { words: vec![0; (peers as usize).div_ceil(64)] }
    }

    pub(super) fn insert(&mut self, peer: PeerId) {
        if let Some(word) = self.words.get_mut(peer.0 as usize / 64) {
            *word |= 1 << (peer.0 % 64);
        }
    }

    pub(super) fn remove(&mut self, peer: PeerId) {
        if let Some(word) = self.words.get_mut(peer.0 as usize / 64) {
            *word &= !(1 << (peer.0 % 64));
        }
    }

    pub(super) fn contains(&self, peer: PeerId) -> bool {
        self.words.get(peer.0 as usize / 64).is_some_and(|word| word & (1 << (peer.0 % 64)) != 0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = PeerId> {
        self.words.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(|(index, word)| {
            let word = *word;
            (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| PeerId(index as u32 * 64 + bit))
        })
    }
}
