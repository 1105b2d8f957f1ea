//! Gates: what a fault adds to a place that frames pass. A place without faults has no gate, and costs a
//! comparison.

use rerail_core::time::{Nanos, Time};

use super::agenda::{Chain, Event, NONE, Ps, ps};
use super::{Class, Damage, LostAt, Net, Pick, Place, PortId};

/// One place's faults.
#[derive(Debug)]
pub(super) struct Gate<B> {
    stage: Stage,
    pub subnet: u32,
    /// Frames are kept until then.
    hold_until: Ps,
    held: Chain,
    jitter_ps: Ps,
    picks: Vec<Pick<B>>,
    rates: Vec<DamageRate>,
}

/// Damage by chance.
#[derive(Clone, Copy, Debug)]
struct DamageRate {
    damage: Damage,
    class: Class,
    per_million: u32,
}

/// What follows a gate.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    Input,
    Plane,
    Output,
}

/// What a gate did with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    /// It goes on.
    Open,
    /// It is kept, or gone.
    Shut,
}

impl<B> Net<B> {
    /// Keeps frames for a port in the switch until then: [`hold_at`](Self::hold_at) of [`Place::To`].
    pub fn hold(&mut self, port: PortId, until: Time) {
        self.hold_at(Place::To(port), until);
    }

    /// Frames of a port take up to so much longer, each as the seed draws it; their order stays:
    /// [`jitter_at`](Self::jitter_at) of [`Place::From`].
    pub fn set_jitter(&mut self, port: PortId, max: Nanos) {
        self.jitter_at(Place::From(port), max);
    }

    /// So many data frames of a port, the next ones, are lost.
    pub fn lose_next(&mut self, port: PortId, frames: u32) {
        self.damage_next(Place::From(port), Pick::next(Damage::Lose, Class::Data, frames));
    }

    /// So many data frames of a port, the next ones, arrive corrupt.
    pub fn corrupt_next(&mut self, port: PortId, frames: u32) {
        self.damage_next(Place::From(port), Pick::next(Damage::Corrupt, Class::Data, frames));
    }

    /// Data frames of a port are lost at random, so many in a million.
    pub fn set_loss(&mut self, port: PortId, per_million: u32) {
        self.damage_rate(Place::From(port), Damage::Lose, Class::Data, per_million);
    }

    /// Keeps frames that come to a place, and lets them go on at `until`, in order: frames that the network
    /// delivers long after all ranks have given them up. They give their credit back while they are kept, so
    /// that others pass; phantoms are dropped. Another call moves the end, also to now. What is kept dies
    /// with the switch, with nothing else.
    pub fn hold_at(&mut self, place: Place, until: Time) {
        let gate = self.gate(place);
        let until = ps(until.0);
        self.gates[gate as usize].hold_until = until;
        self.agenda.schedule(until, Event::Release(gate));
    }

    /// Delays each frame that passes a place by 0..=`max`, drawn from the seed; what passes it stays in
    /// order.
    pub fn jitter_at(&mut self, place: Place, max: Nanos) {
        let gate = self.gate(place);
        self.gates[gate as usize].jitter_ps = ps(max.0);
    }

    /// Damages chosen frames at a place. Several choices may stand; a frame falls to the first that matches
    /// it.
    pub fn damage_next(&mut self, place: Place, pick: Pick<B>) {
        if pick.count > 0 {
            let gate = self.gate(place);
            self.gates[gate as usize].picks.push(pick);
        }
    }

    /// Damages so many of a million frames of a class at a place, drawn from the seed; 0: none. Phantoms
    /// count as data.
    pub fn damage_rate(&mut self, place: Place, damage: Damage, class: Class, per_million: u32) {
        let gate = self.gate(place);
        let rates = &mut self.gates[gate as usize].rates;
        rates.retain(|rate| (rate.damage, rate.class) != (damage, class));
        if per_million > 0 {
            rates.push(DamageRate { damage, class, per_million });
        }
    }

    /// Takes all jitter and damage away from a place, and lets go what it keeps.
    pub fn clear(&mut self, place: Place) {
        let index = self.gate(place);
        let gate = &mut self.gates[index as usize];
        gate.jitter_ps = 0;
        gate.rates.clear();
        gate.picks.clear();
        gate.hold_until = self.agenda.clock;
        self.release(index);
    }

    /// The gate of a place, made if there is none.
    fn gate(&mut self, place: Place) -> u32 {
        let new = u32::try_from(self.gates.len()).expect("fewer than 2^32 places");
        let (at, stage, subnet) = match place {
            Place::From(port) => {
                let port = &mut self.ports[port.0 as usize];
                (&mut port.uplink.gate, Stage::Input, port.subnet)
            }
            Place::To(port) => {
                let port = &mut self.ports[port.0 as usize];
                (&mut port.downlink.gate, Stage::Output, port.subnet)
            }
            Place::Plane(subnet, plane) => {
                let index = self.plane_index(subnet, plane);
                let plane = &mut self.planes[index];
                // From now on its frames stop there, so that later ones don't overtake those that jitter
                // delays.
                plane.stop = true;
                (&mut plane.gate, Stage::Plane, subnet.0)
            }
        };
        if *at == NONE {
            *at = new;
            let held = Chain::default();
            let gate = Gate { stage, subnet, hold_until: 0, held, jitter_ps: 0, picks: Vec::new(), rates: Vec::new() };
            self.gates.push(gate);
            return new;
        }
        *at
    }

    /// What this gate adds to a frame's time.
    pub(super) fn jitter(&mut self, gate: u32) -> Ps {
        match self.gates.get(gate as usize) {
            Some(gate) if gate.jitter_ps > 0 => self.rng.within(0, gate.jitter_ps),
            _ => 0,
        }
    }

    /// A frame comes to a gate.
    pub(super) fn pass_gate(&mut self, index: u32, slot: u32) -> Passage {
        if index == NONE {
            return Passage::Open;
        }
        match self.damage(index, slot) {
            Some(Damage::Lose) => {
                self.lose(slot, LostAt::Decree);
                return Passage::Shut;
            }
            Some(Damage::Corrupt) => self.agenda.slot_mut(slot).corrupt = true,
            None => {}
        }
        let gate = &mut self.gates[index as usize];
        // Behind those that are kept even if the moment has come and they haven't gone on yet.
        if self.agenda.clock >= gate.hold_until && gate.held.is_empty() {
            return Passage::Open;
        }
        let frame = self.agenda.slot_mut(slot);
        if frame.flow != NONE {
            self.lose(slot, LostAt::Decree);
            return Passage::Shut;
        }
        let (to, credit) = (frame.to, std::mem::take(&mut frame.credit));
        self.agenda.append(&mut gate.held, slot);
        self.return_credit(to, credit);
        Passage::Shut
    }

    /// A hold may be over.
    pub(super) fn release(&mut self, index: u32) {
        let gate = &mut self.gates[index as usize];
        if self.agenda.clock < gate.hold_until {
            return;
        }
        let stage = gate.stage;
        let mut held = std::mem::take(&mut gate.held);
        while let Some(slot) = self.agenda.remove(&mut held) {
            // Over and above what the buffer has, if others took it: it is in the network already.
            let credit = self.credit_needed(slot);
            self.take_credit(slot, credit);
            self.go_on(stage, slot);
        }
    }

    /// What a gate keeps is gone.
    pub(super) fn drop_held(&mut self, index: u32, why: LostAt) {
        let mut held = std::mem::take(&mut self.gates[index as usize].held);
        while let Some(slot) = self.agenda.remove(&mut held) {
            self.lose(slot, why);
        }
    }

    fn damage(&mut self, index: u32, slot: u32) -> Option<Damage> {
        let frame = self.agenda.slot(slot);
        let gate = &mut self.gates[index as usize];
        if let Some(body) = &frame.body {
            let matches = |pick: &Pick<B>| pick.matches.is_none_or(|matches| matches(body));
            let chosen = gate.picks.iter().position(|pick| pick.class.holds(frame.control) && matches(pick));
            if let Some(at) = chosen {
                let pick = &mut gate.picks[at];
                let damage = pick.damage;
                if pick.skip == 0 {
                    pick.count -= 1;
                    if pick.count == 0 {
                        gate.picks.remove(at);
                    }
                    return Some(damage);
                }
                pick.skip -= 1;
            }
        }
        let rng = &mut self.rng;
        let mut strikes =
            |rate: &&DamageRate| rate.class.holds(frame.control) && rng.below(1_000_000) < u64::from(rate.per_million);
        gate.rates.iter().find(&mut strikes).map(|rate| rate.damage)
    }
}

impl Class {
    fn holds(self, control: bool) -> bool {
        match self {
            Class::Any => true,
            Class::Data => !control,
            Class::Control => control,
        }
    }
}
