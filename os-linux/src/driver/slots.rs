//! The rails of an engine by number, and the driver's state of each.

use std::any::Any;
use std::sync::Arc;

use rerail_core::ids::RailId;
use rerail_core::rail::RailKind;

use crate::rail::Rail;
use crate::rail::loopback::Loopback;
use crate::rail::shm::{Link, ShmRail};

/// The driver's state of a rail.
pub(super) struct Slot {
    pub(super) id: RailId,
    pub(super) kind: RailKind,
    /// How many rails of its kind come before it: it meets the peers' rails of this number.
    pub(super) nth: usize,
    pub(super) address: Arc<str>,
    /// Registrations for requests.
    pub(super) registrations: usize,
    /// Nothing happens on it before it is called: the loopback rail, most of the time.
    pub(super) is_calm: bool,
    is_loopback: bool,
}

/// All rails, in the order of their numbers.
// In this order: what each message reads comes first.
#[repr(C)]
pub(super) struct Rails {
    /// Shared memory by its own type and in a place of its own, so that a small message finds it without a
    /// search and costs no call through a table.
    pub(super) shm: Option<Box<ShmRail>>,
    /// Its number.
    pub(super) shm_id: RailId,
    /// `None` for the rail that is `shm`.
    slots: Vec<(Slot, Option<Box<dyn Rail>>)>,
}

impl Rails {
    /// Numbers the rails and queries their constant facts.
    pub(super) fn number(rails: Vec<Box<dyn Rail>>) -> Self {
        let mut all = Rails { shm: None, shm_id: RailId(0), slots: Vec::with_capacity(rails.len()) };
        for (rail, index) in rails.into_iter().zip(0..=u8::MAX) {
            let kind = rail.facts().kind;
            let is_loopback = (&*rail as &dyn Any).is::<Loopback>();
            let nth = all.slots.iter().filter(|(slot, _)| slot.kind == kind).count();
            let slot = Slot {
                id: RailId(index),
                kind,
                nth,
                address: rail.address().into(),
                registrations: 0,
                is_calm: false,
                is_loopback,
            };
            let rail = match all.shm {
                None => all.keep(slot.id, rail),
                Some(_) => Some(rail),
            };
            all.slots.push((slot, rail));
        }
        all
    }

    /// Takes a rail over shared memory to itself, and gives any other back.
    fn keep(&mut self, id: RailId, rail: Box<dyn Rail>) -> Option<Box<dyn Rail>> {
        if !(&*rail as &dyn Any).is::<ShmRail>() {
            return Some(rail);
        }
        let rail: Box<dyn Any> = rail;
        (self.shm, self.shm_id) = (rail.downcast().ok(), id);
        debug_assert!(self.shm.is_some(), "its kind was checked");
        None
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Slot, &dyn Rail)> {
        self.slots.iter().filter_map(|(slot, rail)| match rail {
            Some(rail) => Some((slot, &**rail)),
            None => Some((slot, self.shm.as_deref()? as &dyn Rail)),
        })
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&mut Slot, &mut dyn Rail)> {
        let mut shm = self.shm.as_deref_mut();
        self.slots.iter_mut().filter_map(move |(slot, rail)| match rail {
            Some(rail) => Some((slot, &mut **rail)),
            None => Some((slot, shm.take()? as &mut dyn Rail)),
        })
    }

    /// Polls each but those that are calm; `poll` returns how much was found.
    #[inline(always)]
    pub(super) fn poll_each(&mut self, mut poll: impl FnMut(&mut Slot, &mut dyn Rail) -> usize) {
        for (slot, rail) in &mut self.slots {
            if !slot.is_calm
                && let Some(rail) = either(rail, &mut self.shm)
            {
                let found = poll(slot, rail);
                if slot.is_loopback {
                    slot.is_calm = found == 0;
                }
            }
        }
    }

    /// The last post of a batch was handed to these rails, bit per rail.
    pub(super) fn push(&mut self, mut posted: u64) {
        while posted != 0 {
            // A rail's number is less than 64.
            if let Some((_, rail)) = self.get_mut(RailId(posted.trailing_zeros() as u8)) {
                rail.push();
            }
            posted &= posted - 1;
        }
    }

    pub(super) fn get(&self, id: RailId) -> Option<&dyn Rail> {
        match &self.slots.get(usize::from(id.0))?.1 {
            Some(rail) => Some(&**rail),
            None => Some(self.shm.as_deref()?),
        }
    }

    #[inline(always)]
    /// The link over shared memory that had the last message.
    pub(super) fn recent_link(&mut self) -> Option<&mut Link> {
        self.shm.as_mut()?.recent_link()
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, id: RailId) -> Option<(&mut Slot, &mut dyn Rail)> {
        let (slot, rail) = self.slots.get_mut(usize::from(id.0))?;
        slot.is_calm = false;
        Some((slot, either(rail, &mut self.shm)?))
    }
}

/// The rail of a slot.
#[inline(always)]
fn either<'a>(rail: &'a mut Option<Box<dyn Rail>>, shm: &'a mut Option<Box<ShmRail>>) -> Option<&'a mut dyn Rail> {
    match rail {
        Some(rail) => Some(&mut **rail),
        None => Some(&mut **shm.as_mut()?),
    }
}
