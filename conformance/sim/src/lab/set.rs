//! Sets of rails as a seed draws them: how fast, how far, what they share, how their load changes, and what
//! is declared to the core of all that.
//!
//! The draws of each concern come from a stream of their own, so that a change to one leaves the others as
//! they are.

use std::fmt;

use rerail_core::rail::{Caps, Place, RailFacts, RailKind};
use serde::Serialize;

use crate::rng::Rng;

/// Most rails of a set.
pub const RAILS_MAX: usize = 8;

/// Largest payload of one packet, write or read, in bytes.
pub const SEGMENT_BYTES: u32 = 256 * 1024;

/// Largest eager payload, in bytes.
pub const EAGER_BYTES: u32 = 8 * 1024;

/// By what large messages travel on all rails of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sort {
    /// The receiver reads them.
    Read,
    /// The sender writes them.
    Write,
    /// Data segments.
    Data,
}

/// What is declared to the core of the rails' rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Declared {
    /// Nothing.
    Nothing,
    /// What is true.
    Truth,
    /// Rates up to four times too high or too low, each rail by another factor.
    Wrong,
}

/// One rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rail {
    /// What it moves alone, each way, in bytes per second.
    pub bytes_per_second: u64,
    /// From the last byte's departure to its arrival, in nanoseconds.
    pub latency_ns: u64,
    /// What each post costs it before the first byte, in nanoseconds.
    pub post_ns: u64,
    /// The rate that is declared to the core; 0: none.
    pub declared: u64,
    /// The place that is declared to the core.
    pub place: Place,
}

/// Where a bottleneck lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// A port that several paths cross.
    Port,
    /// An HCA's slot.
    Hca,
    /// A bus.
    Bus,
    /// Somewhere between the hosts: it can't be declared.
    Trunk,
}

/// What several rails share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bottleneck {
    /// Where.
    pub at: At,
    /// Bit per rail.
    pub rails: u64,
    /// What it carries, in bytes per second; each way, or both ways together.
    pub bytes_per_second: u64,
    /// Both ways share it.
    pub half_duplex: bool,
}

/// A change of a rail's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// It comes with this measured message, counted from 0; of a stream when it is submitted.
    pub message: u64,
    /// So long after that, in thousandths of the time that the message takes on all rails together at their
    /// best.
    pub after_permille: u64,
    /// Which rail.
    pub rail: usize,
    /// What is left of its rate, in thousandths.
    pub permille: u64,
}

/// A set of rails between two processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailSet {
    /// What decided it.
    pub seed: u64,
    /// By what large messages travel.
    pub sort: Sort,
    /// The rails, 2 to [`RAILS_MAX`].
    pub rails: Vec<Rail>,
    /// What they share.
    pub shared: Vec<Bottleneck>,
    /// Whether it is declared to the core which rails share what.
    pub is_placement_declared: bool,
    /// What is declared of rates.
    pub declared: Declared,
    /// How their load changes; none: it does not.
    pub changes: Vec<Change>,
}

/// About uniform on a logarithmic scale: of `low..=high`, both at least 1.
fn spread(rng: &mut Rng, low: u64, high: u64) -> u64 {
    // A random octave, then a random place in it, until it fits: no logarithm, so no rounding of one.
    let (first, last) = (low.max(1).ilog2(), high.max(1).ilog2());
    loop {
        let octave = 1u64 << rng.within(first.into(), last.into());
        let drawn = octave + rng.below(octave);
        if (low..=high).contains(&drawn) {
            return drawn;
        }
    }
}

impl RailSet {
    /// The set of a seed.
    pub fn drawn(seed: u64) -> RailSet {
        let rng = &mut Rng::new(seed, "lab rails");
        let count = rng.within(2, RAILS_MAX as u64) as usize;
        let best = spread(rng, 400_000_000, 25_000_000_000);
        // Alike, somewhat unlike, or as unlike as it gets.
        let apart = *rng.pick(&[1, 4, 16, 50, 50]).unwrap_or(&1);
        let near = spread(rng, 500, 8_000);
        let farther = *rng.pick(&[1, 4, 16]).unwrap_or(&1);
        let mut rails: Vec<Rail> = (0..count)
            .map(|index| Rail {
                bytes_per_second: if index == 0 {
                    best
                } else {
                    best / 1000 * 1000 / spread(rng, 1000, apart * 1000).max(1) * 1000
                },
                latency_ns: spread(rng, near, near * farther),
                post_ns: spread(rng, 50, 1_000),
                declared: 0,
                place: Place::default(),
            })
            .collect();
        // The best rail may be any.
        let first = rng.below(count as u64) as usize;
        rails.swap(0, first);
        let sort = *rng.pick(&[Sort::Read, Sort::Write, Sort::Data]).unwrap_or(&Sort::Data);
        let mut set = RailSet {
            seed,
            sort,
            rails,
            shared: Vec::new(),
            is_placement_declared: false,
            declared: Declared::Nothing,
            changes: Vec::new(),
        };
        set.share(&mut Rng::new(seed, "lab groups"));
        set.declare(&mut Rng::new(seed, "lab facts"));
        set.load(&mut Rng::new(seed, "lab load"));
        set
    }

    /// Half of the sets share something: paths of a port, ports of an HCA, HCAs of a bus, all of them a
    /// trunk.
    fn share(&mut self, rng: &mut Rng) {
        if rng.one_in(2) {
            return;
        }
        self.is_placement_declared = rng.below(3) < 2;
        let count = self.rails.len();
        let mut first = 0;
        let groups = rng.within(1, 2);
        for group in 1..=groups {
            let left = count - first;
            let at = *rng.pick(&[At::Port, At::Hca, At::Hca, At::Bus, At::Trunk]).unwrap_or(&At::Hca);
            let size = if at == At::Trunk { left } else { rng.within(2, left.max(2) as u64) as usize };
            if left < 2 || (at == At::Trunk && group > 1) {
                return;
            }
            let members = first..first + size;
            let sum: u64 = self.rails[members.clone()].iter().map(|rail| rail.bytes_per_second).sum();
            let bytes_per_second = sum / 1000 * rng.within(350, 950);
            let rails = members.clone().fold(0, |mask, rail| mask | 1 << rail);
            let half_duplex = at == At::Bus && rng.one_in(2);
            self.shared.push(Bottleneck { at, rails, bytes_per_second, half_duplex });
            for (number, rail) in (1..).zip(members) {
                let group = group as u16;
                let place = match at {
                    At::Port => Place { port: 1, hca: group, bus: 0 },
                    At::Hca => Place { port: number, hca: group, bus: 0 },
                    At::Bus => Place { port: 1, hca: number, bus: group },
                    At::Trunk => Place::default(),
                };
                self.rails[rail].place = if self.is_placement_declared { place } else { Place::default() };
            }
            first += size;
        }
    }

    /// What is declared to the core of rates.
    fn declare(&mut self, rng: &mut Rng) {
        self.declared = *rng
            .pick(&[
                Declared::Nothing,
                Declared::Nothing,
                Declared::Nothing,
                Declared::Truth,
                Declared::Truth,
                Declared::Truth,
                Declared::Wrong,
            ])
            .unwrap_or(&Declared::Nothing);
        for rail in &mut self.rails {
            rail.declared = match self.declared {
                Declared::Nothing => 0,
                Declared::Truth => rail.bytes_per_second,
                Declared::Wrong => rail.bytes_per_second / 1000 * spread(rng, 250, 4_000),
            };
        }
    }

    /// In every fourth set one or two rails slow down while messages are measured, and recover, or are slow
    /// at first.
    fn load(&mut self, rng: &mut Rng) {
        if !rng.one_in(4) {
            return;
        }
        for _ in 0..rng.within(1, 2) {
            let rail = rng.below(self.rails.len() as u64) as usize;
            let permille = *rng.pick(&[100, 250, 500, 750]).unwrap_or(&500);
            let message = rng.within(0, 8);
            let back = message + rng.within(2, 8);
            self.changes.push(Change { message, after_permille: rng.below(1000), rail, permille });
            self.changes.push(Change { message: back, after_permille: rng.below(1000), rail, permille: 1000 });
        }
        self.changes.sort_by_key(|change| (change.message, change.after_permille, change.rail));
    }

    /// What is declared to the core of the rails.
    pub fn facts(&self) -> Vec<RailFacts> {
        let caps = Caps { read: self.sort == Sort::Read, write: self.sort == Sort::Write, ..Caps::default() };
        let facts = |rail: &Rail| RailFacts {
            kind: RailKind::Sim,
            caps: Caps { registration: self.sort != Sort::Data, ..caps },
            eager_bytes_max: EAGER_BYTES,
            segment_bytes_max: SEGMENT_BYTES,
            posts_max: 64,
            bytes_per_second: rail.declared,
            place: rail.place,
            ..RailFacts::UNKNOWN
        };
        self.rails.iter().map(facts).collect()
    }

    /// The rates of all rails together, in bytes per second, whatever they share.
    pub fn sum(&self) -> u64 {
        self.rails.iter().map(|rail| rail.bytes_per_second).sum()
    }
}

impl fmt::Display for RailSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.sort {
            Sort::Read => "reads",
            Sort::Write => "writes",
            Sort::Data => "data segments",
        };
        let declared = match self.declared {
            Declared::Nothing => "rates undeclared",
            Declared::Truth => "rates declared",
            Declared::Wrong => "rates declared wrong",
        };
        write!(f, "{} rails, large messages by {by}, {declared}", self.rails.len())?;
        let mega = |rate: u64| rate as f64 / 1e6;
        for (index, rail) in self.rails.iter().enumerate() {
            let Rail { bytes_per_second, latency_ns, post_ns, declared, .. } = *rail;
            let us = latency_ns as f64 / 1e3;
            write!(f, "\n  rail {index}: {:.0} MB/s, {us:.1} us, {post_ns} ns a post", mega(bytes_per_second))?;
            if self.declared == Declared::Wrong {
                write!(f, ", declared {:.0} MB/s", mega(declared))?;
            }
        }
        for Bottleneck { at, rails, bytes_per_second, half_duplex } in &self.shared {
            let names: Vec<String> =
                (0..64).filter(|rail| rails >> rail & 1 == 1).map(|rail| rail.to_string()).collect();
            let what = match at {
                At::Port => "a port",
                At::Hca => "an HCA",
                At::Bus => "a bus",
                At::Trunk => "a trunk",
            };
            let ways = if *half_duplex { "both ways together" } else { "each way" };
            let known = if self.is_placement_declared && *at != At::Trunk { "declared" } else { "undeclared" };
            write!(
                f,
                "\n  rails {} share {what} of {:.0} MB/s {ways} ({known})",
                names.join(", "),
                mega(*bytes_per_second)
            )?;
        }
        for Change { message, after_permille, rail, permille } in &self.changes {
            let (at, part) = (*after_permille as f64 / 1e3, *permille as f64 / 10.0);
            write!(f, "\n  message {message} + {at:.2}: rail {rail} at {part:.0} %")?;
        }
        Ok(())
    }
}
