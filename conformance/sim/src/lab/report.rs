//! What cases came to: verdicts, shares, and the worst.

use std::fmt;

use rerail_core::endpoint::Policy;
use serde::Serialize;

use super::case::{Case, Contender, Pattern};
use super::optimum::Optimum;
use super::set::{Declared, RailSet};

/// What is demanded of `balanced`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Demand {
    /// Never more than 3 % slower than the best rail alone.
    Single,
    /// At least 97 % of the best policy.
    Policy,
    /// At least 97 % of the best fixed split, in 95 % of the cases.
    Optimum,
}

impl Demand {
    /// All of them.
    pub const ALL: [Demand; 3] = [Demand::Single, Demand::Policy, Demand::Optimum];

    /// What `balanced` is compared with.
    pub const fn name(self) -> &'static str {
        match self {
            Demand::Single => "best rail",
            Demand::Policy => "best policy",
            Demand::Optimum => "best split",
        }
    }

    /// The least that it must reach of that.
    pub const fn least(self) -> f64 {
        match self {
            Demand::Single => 1.0 / 1.03,
            Demand::Policy | Demand::Optimum => 0.97,
        }
    }

    /// The share of cases in which it must.
    pub const fn share(self) -> f64 {
        match self {
            Demand::Single | Demand::Policy => 1.0,
            Demand::Optimum => 0.95,
        }
    }
}

/// A class of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    /// Eager.
    Eager,
    /// Announced, and not cut by any contender.
    Whole,
    /// Up to 2 MiB.
    Middle,
    /// Above.
    Large,
}

impl Size {
    /// That of a message.
    pub const fn of(bytes: u64) -> Size {
        match bytes {
            0..=8_192 => Size::Eager,
            8_193..32_768 => Size::Whole,
            32_768..=2_097_152 => Size::Middle,
            _ => Size::Large,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Size::Eager => "up to 8 KiB",
            Size::Whole => "below 32 KiB",
            Size::Middle => "up to 2 MiB",
            Size::Large => "up to 64 MiB",
        }
    }
}

/// What a case came to.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The seed of its rails.
    pub seed: u64,
    /// Bytes of a message.
    pub bytes: u64,
    /// How messages followed each other.
    pub pattern: Pattern,
    /// Each contender's time, in nanoseconds: of one message on average, or of all.
    pub times: Vec<(Contender, f64)>,
    /// That of the best fixed split, where there is a model.
    pub optimum_ns: Option<f64>,
    /// The load changes.
    pub changes: bool,
    /// Rails share something.
    pub shares: bool,
    /// The rails that share something were declared to the core.
    pub is_placement_declared: bool,
    /// The rates that were declared to it.
    pub declared: Declared,
}

impl Outcome {
    /// From what was played.
    pub fn new(case: &Case, times: Vec<(Contender, f64)>, optimum: Option<Optimum>) -> Outcome {
        let RailSet { seed, ref shared, ref changes, is_placement_declared, declared, .. } = case.set;
        Outcome {
            seed,
            bytes: case.bytes,
            pattern: case.pattern,
            times,
            optimum_ns: optimum.map(|optimum| optimum.ns),
            changes: !changes.is_empty(),
            shares: !shared.is_empty(),
            is_placement_declared,
            declared,
        }
    }

    /// The time of `balanced`.
    pub fn balanced_ns(&self) -> f64 {
        let balanced = Contender::Policy(Policy::Balanced);
        self.times.iter().find(|(subject, _)| *subject == balanced).map_or(f64::INFINITY, |(_, ns)| *ns)
    }

    /// The best of those that a demand compares with, and its time.
    pub fn best(&self, demand: Demand) -> Option<(String, f64)> {
        if demand == Demand::Optimum {
            return self.optimum_ns.map(|ns| ("best split".to_owned(), ns));
        }
        let takes = |subject: &Contender| demand == Demand::Policy || matches!(subject, Contender::Single(_));
        let times = self.times.iter().filter(|(subject, _)| takes(subject));
        times.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(subject, ns)| (subject.to_string(), *ns))
    }

    /// What `balanced` reached of the best, 1 being as good; `None` where there is nothing to compare with.
    pub fn reached(&self, demand: Demand) -> Option<f64> {
        Some(self.best(demand)?.1 / self.balanced_ns())
    }

    /// Whether a demand is met; where there is nothing to compare with it is.
    pub fn meets(&self, demand: Demand) -> bool {
        self.reached(demand).is_none_or(|reached| reached >= demand.least())
    }
}

/// How often a demand is met among some cases.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Shares {
    /// The demand.
    pub demand: Demand,
    /// Cases that can be compared.
    pub cases: usize,
    /// Those in which it is met.
    pub met: usize,
    /// The least that was reached.
    pub worst: f64,
    /// What was reached on average (geometric).
    pub mean: f64,
}

impl Shares {
    /// Of some cases.
    pub fn of<'a>(demand: Demand, outcomes: impl Iterator<Item = &'a Outcome>) -> Shares {
        let mut shares = Shares { demand, cases: 0, met: 0, worst: f64::INFINITY, mean: 1.0 };
        let mut logs = 0.0;
        for reached in outcomes.filter_map(|outcome| outcome.reached(demand)) {
            shares.cases += 1;
            shares.met += usize::from(reached >= demand.least());
            shares.worst = shares.worst.min(reached);
            logs += reached.ln();
        }
        if shares.cases > 0 {
            shares.mean = (logs / shares.cases as f64).exp();
        }
        shares
    }

    /// The share in which it is met; 1 where there are no cases.
    pub fn share(&self) -> f64 {
        if self.cases == 0 { 1.0 } else { self.met as f64 / self.cases as f64 }
    }

    /// Whether it is met as often as is demanded.
    pub fn holds(&self) -> bool {
        self.share() >= self.demand.share()
    }
}

/// All cases of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The first seed.
    pub from: u64,
    /// Sets of rails.
    pub seeds: u64,
    /// In the order of seeds and sizes.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// From outcomes.
    pub fn new(from: u64, seeds: u64, outcomes: Vec<Outcome>) -> Report {
        Report { from, seeds, outcomes }
    }

    /// How often a demand is met in the cases that are chosen.
    pub fn shares(&self, demand: Demand, chosen: impl Fn(&Outcome) -> bool) -> Shares {
        Shares::of(demand, self.outcomes.iter().filter(|outcome| chosen(outcome)))
    }

    /// The cases that are furthest from a demand which they do not meet, worst first.
    pub fn worst(&self, demand: Demand, most: usize) -> Vec<&Outcome> {
        let mut failed: Vec<&Outcome> = self.outcomes.iter().filter(|outcome| !outcome.meets(demand)).collect();
        let reached = |outcome: &Outcome| outcome.reached(demand).unwrap_or(1.0);
        failed.sort_by(|a, b| reached(a).total_cmp(&reached(b)));
        failed.truncate(most);
        failed
    }

    /// Whether all demands hold.
    pub fn holds(&self) -> bool {
        Demand::ALL.iter().all(|&demand| self.shares(demand, |_| true).holds())
    }
}

/// One case, as text.
pub struct CaseTrace<'a> {
    /// The case.
    pub case: &'a Case,
    /// What it came to.
    pub outcome: &'a Outcome,
    /// What each rail carried by `balanced` of the measured messages, in bytes.
    pub carried: &'a [u64],
    /// The best fixed split.
    pub optimum: Option<&'a Optimum>,
}

impl fmt::Display for CaseTrace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CaseTrace { case, outcome, carried, optimum } = self;
        let Case { set, bytes, pattern, measured, .. } = case;
        writeln!(f, "seed {}, {measured} messages of {bytes} bytes, {}: {set}", set.seed, pattern.name())?;
        let best = outcome.best(Demand::Policy).map_or(f64::NAN, |(_, ns)| ns);
        for (subject, ns) in &outcome.times {
            let name = subject.to_string();
            writeln!(f, "  {name:22} {:>14.3} us  {:>6.1} % of the best", ns / 1e3, best / ns * 100.0)?;
        }
        let parts = |of: &[u64]| {
            let sum = of.iter().sum::<u64>().max(1) as f64;
            let part = |part: &u64| format!("{:.1}", *part as f64 / sum * 100.0);
            of.iter().map(part).collect::<Vec<_>>().join(" ")
        };
        if let Some(Optimum { ns, units }) = optimum {
            let name = "best split";
            writeln!(f, "  {name:22} {:>14.3} us  {:>6.1} %: {} %", ns / 1e3, best / ns * 100.0, parts(units))?;
        }
        write!(f, "  balanced carried {} %", parts(carried))
    }
}
