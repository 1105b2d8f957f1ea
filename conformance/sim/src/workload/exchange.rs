//! Programmes that exchange messages between many ranks: all to all, all to one, broadcast, stencil, many to
//! many.
//!
//! | name | parameters |
//! |---|---|
//! | `all-to-all` | `bytes` 8, `rounds` 1, `ahead` 4, `every` none, `close` false: peers are closed when both
//! messages are over |
//! | `incast` | `bytes` 1 MiB, `rounds` 1, `ahead` 1: rank 0 receives from one rank after the other |
//! | `broadcast` | `bytes` 1024, `rounds` 10, `ahead` 16, `every` none |
//! | `stencil` | `dims` 2, `bytes` 8192, `rounds` 10, `ahead` 12 |
//! | `many-to-many` | `peers` 32, `times` 8, `bytes` 1024, `ahead` 64 |
//!
//! `ahead` is how many steps of the programme a rank may have under way; see `steps`. `every` is a time like
//! "10ms": at each multiple of it all ranks begin a round, and the mean time until the slowest rank is
//! through with it is measured, the first round left out.

use super::steps::{Every, Programme, Step, StepParameters, Steps};
use super::{Parameters, WorkloadError, fit_operations, need_operations};
use crate::check::Name;
use crate::rng::Rng;
use crate::scenario::{Scenario, Span};

/// Bytes of a message, at most; ranks have buffers of that size for all steps under way.
pub(super) const BYTES_MAX: u64 = 1 << 30;

/// Steps under way, at most.
pub(super) const AHEAD_MAX: u64 = 1024;

/// Rounds, at most, so that serial numbers fit in names: a round has up to six messages of one pair.
pub(super) const ROUNDS_MAX: u64 = Name::SERIALS_MAX as u64 / 8;

fn step_parameters(parameters: &mut Parameters, bytes: u64, ahead: u64) -> Result<StepParameters, WorkloadError> {
    let bytes = parameters.number("bytes", bytes, 1, BYTES_MAX)?;
    let ahead = parameters.number("ahead", ahead, 1, AHEAD_MAX)?;
    Ok(StepParameters { bytes, ahead, close: false, every: None })
}

/// Operations that a rank needs which sends and receives at a step: one for each message of its oldest, see
/// `steps`.
pub(super) const EXCHANGE: u64 = 2;

/// The parameter `every`, and the rounds to which it applies.
fn every(parameters: &mut Parameters, rounds: u64) -> Result<Option<Every>, WorkloadError> {
    let Some(text) = parameters.text("every")? else { return Ok(None) };
    match text.parse::<Span>() {
        Ok(span) if span.0 > 0 && rounds > 1 => Ok(Some(Every { ns: span.0, rounds })),
        _ => {
            let why = format!("workload.parameters.every = \"{text}\": a time above 0, and `rounds` above 1");
            Err(WorkloadError { why })
        }
    }
}

/// Every rank sends one message to every other, again and again.
pub(super) fn all_to_all(scenario: &Scenario, seed: u64, parameters: &mut Parameters) -> Result<Steps, WorkloadError> {
    need_operations(scenario, seed, EXCHANGE)?;
    let mut step_parameters = step_parameters(parameters, 8, 4)?;
    let rounds = parameters.number("rounds", 1, 1, ROUNDS_MAX)?;
    step_parameters.close = parameters.flag("close", false)?;
    step_parameters.every = every(parameters, rounds)?;
    if step_parameters.close && rounds > 1 {
        return Err(WorkloadError { why: "workload.parameters.close = true: peers are closed after one round".into() });
    }
    if step_parameters.close {
        // A send may wait for a channel; requests of later steps must not take the room meanwhile that it
        // needs then.
        let needed = |ahead: u64| EXCHANGE * ahead.min(scenario.size().into());
        fit_operations((scenario, seed), ("ahead", step_parameters.ahead), needed)?;
    }
    Ok(Steps::new(AllToAll { size: scenario.size(), rounds }, step_parameters))
}

/// Messages from all to rank 0, which has receives for few of them at once.
pub(super) fn incast(scenario: &Scenario, parameters: &mut Parameters) -> Result<Steps, WorkloadError> {
    let step_parameters = step_parameters(parameters, 1 << 20, 1)?;
    let rounds = parameters.number("rounds", 1, 1, ROUNDS_MAX)?;
    Ok(Steps::new(Incast { size: scenario.size(), rounds }, step_parameters))
}

/// A message from rank 0 to all, again and again, down a binomial tree.
pub(super) fn broadcast(scenario: &Scenario, parameters: &mut Parameters) -> Result<Steps, WorkloadError> {
    let mut step_parameters = step_parameters(parameters, 1024, 16)?;
    let rounds = parameters.number("rounds", 10, 1, ROUNDS_MAX)?;
    step_parameters.every = every(parameters, rounds)?;
    Ok(Steps::new(Broadcast { size: scenario.size(), rounds }, step_parameters))
}

/// Every rank with its neighbours in a periodic grid.
pub(super) fn stencil(scenario: &Scenario, seed: u64, parameters: &mut Parameters) -> Result<Steps, WorkloadError> {
    need_operations(scenario, seed, EXCHANGE)?;
    let step_parameters = step_parameters(parameters, 8192, 12)?;
    let rounds = parameters.number("rounds", 10, 1, ROUNDS_MAX)?;
    let dims = parameters.number("dims", 2, 2, 3)?;
    Ok(Steps::new(Stencil { sides: sides(scenario.size(), dims as u32), rounds }, step_parameters))
}

/// Every rank with peers drawn from the seed, which differ from time to time.
pub(super) fn many_to_many(
    scenario: &Scenario,
    seed: u64,
    parameters: &mut Parameters,
) -> Result<Steps, WorkloadError> {
    need_operations(scenario, seed, EXCHANGE)?;
    let step_parameters = step_parameters(parameters, 1024, 64)?;
    let peers = parameters.number("peers", 32, 1, u64::from(Name::RANKS_MAX))?;
    let times = parameters.number("times", 8, 1, 4096)?;
    Ok(Steps::new(ManyToMany::new(scenario.size(), seed, peers as u32, times as u32), step_parameters))
}

/// Step r: with rank xor r where the number of ranks is a power of two, else with the rank that makes r
/// together with this one, modulo their number. Either way, two ranks meet each other in the same step.
struct AllToAll {
    size: u32,
    rounds: u64,
}

impl Programme for AllToAll {
    fn steps(&self, _rank: u32) -> u64 {
        self.rounds * u64::from(self.size)
    }

    fn step(&self, rank: u32, index: u64) -> Step {
        let (size, at) = (self.size, (index % u64::from(self.size)) as u32);
        let partner = match size.is_power_of_two() {
            true => rank ^ at,
            false => (at + size - rank) % size,
        };
        let partner = Some(partner).filter(|partner| *partner != rank);
        Step { to: partner, from: partner, serial: (index / u64::from(size)) as u32, ..Step::default() }
    }
}

/// The last rank first: those that begin early wait longest.
struct Incast {
    size: u32,
    rounds: u64,
}

impl Programme for Incast {
    fn steps(&self, rank: u32) -> u64 {
        self.rounds * if rank == 0 { u64::from(self.size) - 1 } else { 1 }
    }

    fn step(&self, rank: u32, index: u64) -> Step {
        if rank > 0 {
            return Step { to: Some(0), serial: index as u32, ..Step::default() };
        }
        let others = u64::from(self.size) - 1;
        let from = self.size - 1 - (index % others) as u32;
        Step { from: Some(from), serial: (index / others) as u32, ..Step::default() }
    }
}

/// A rank's parent is it without its lowest bit that is set; it sends to its children once the parent's
/// message is there, largest subtree first.
struct Broadcast {
    size: u32,
    rounds: u64,
}

impl Broadcast {
    /// Bits of the largest rank.
    fn bits(&self) -> u32 {
        u32::BITS - self.size.saturating_sub(1).leading_zeros()
    }
}

impl Programme for Broadcast {
    fn steps(&self, _rank: u32) -> u64 {
        self.rounds * (1 + u64::from(self.bits()))
    }

    fn step(&self, rank: u32, index: u64) -> Step {
        let bits = self.bits();
        let (round, at) = (index / u64::from(1 + bits), (index % u64::from(1 + bits)) as u32);
        let serial = round as u32;
        if at == 0 {
            return Step { from: (rank > 0).then_some(rank & rank.wrapping_sub(1)), serial, ..Step::default() };
        }
        let bit = 1 << (bits - at);
        let child = (rank == 0 || bit < rank & rank.wrapping_neg()).then_some(rank + bit);
        let to = child.filter(|child| *child < self.size);
        Step { to, serial, after_all: at == 1 && rank > 0, ..Step::default() }
    }
}

/// A periodic grid, its first axis the fastest. For each axis and direction: to the neighbour there, from the
/// opposite one.
struct Stencil {
    sides: Vec<u32>,
    rounds: u64,
}

/// Sides of a grid of so many ranks, as equal as their factors allow, the longest first.
fn sides(size: u32, dims: u32) -> Vec<u32> {
    let mut left = size;
    let mut sides: Vec<u32> = (2..=dims)
        .rev()
        .map(|dims| {
            // The largest factor that is not beyond the root.
            let within = |side: &u32| u64::from(*side).pow(dims) <= u64::from(left);
            let side = (1..=left).take_while(within).filter(|side| left.is_multiple_of(*side)).last().unwrap_or(1);
            left /= side;
            side
        })
        .collect();
    sides.push(left);
    sides.sort_unstable_by_key(|side| std::cmp::Reverse(*side));
    sides
}

impl Stencil {
    /// The rank so many places on along an axis.
    fn neighbour(&self, rank: u32, axis: usize, by: u32) -> Option<u32> {
        let (stride, side) = (self.sides[..axis].iter().product::<u32>(), self.sides[axis]);
        let at = rank / stride % side;
        Some(rank - at * stride + (at + by) % side * stride).filter(|neighbour| *neighbour != rank)
    }
}

impl Programme for Stencil {
    fn steps(&self, _rank: u32) -> u64 {
        self.rounds * 2 * self.sides.len() as u64
    }

    fn step(&self, rank: u32, index: u64) -> Step {
        let way = (index % (2 * self.sides.len() as u64)) as usize;
        let (axis, up) = (way / 2, way.is_multiple_of(2));
        let (on, back) = (self.neighbour(rank, axis, 1), self.neighbour(rank, axis, self.sides[axis] - 1));
        let (to, from) = if up { (on, back) } else { (back, on) };
        Step { to, from, serial: index as u32, after_all: way == 0 }
    }
}

/// xrc-2008, VI.D: each time every rank sends to so many others and receives from as many. Ranks are shuffled
/// into a ring, and each sends to those at drawn distances along it: so every rank has equally many of both.
struct ManyToMany {
    rings: Vec<Ring>,
    peers: u32,
}

struct Ring {
    /// Ranks in the ring's order.
    ranks: Vec<u32>,
    /// Where each rank is.
    places: Vec<u32>,
    /// Distances, all different.
    distances: Vec<u32>,
}

/// So many of these, in a drawn order.
fn draw(mut from: Vec<u32>, many: u32, rng: &mut Rng) -> Vec<u32> {
    (0..many).map(|_| from.swap_remove(rng.below(from.len() as u64) as usize)).collect()
}

impl ManyToMany {
    fn new(size: u32, seed: u64, peers: u32, times: u32) -> Self {
        let mut rng = Rng::new(seed, "many-to-many");
        let peers = peers.min(size.saturating_sub(1));
        let ring = |_| {
            let ranks = draw((0..size).collect(), size, &mut rng);
            let mut places = vec![0; size as usize];
            ranks.iter().zip(0..).for_each(|(rank, place)| places[*rank as usize] = place);
            Ring { ranks, places, distances: draw((1..size).collect(), peers, &mut rng) }
        };
        ManyToMany { rings: (0..times).map(ring).collect(), peers }
    }
}

impl Programme for ManyToMany {
    fn steps(&self, _rank: u32) -> u64 {
        self.rings.len() as u64 * u64::from(self.peers)
    }

    fn step(&self, rank: u32, index: u64) -> Step {
        let peers = u64::from(self.peers.max(1));
        let (time, at) = (index / peers, (index % peers) as usize);
        let ring = &self.rings[time as usize];
        let (size, distance) = (ring.ranks.len() as u32, ring.distances[at]);
        let place = ring.places[rank as usize];
        let rank_at = |place: u32| Some(ring.ranks[(place % size) as usize]);
        // A pair meets once in each ring.
        let serial = time as u32;
        Step { to: rank_at(place + distance), from: rank_at(place + size - distance), serial, after_all: at == 0 }
    }
}
