//! The papers' figures, run again: curves, and claims about them.
//!
//! A [`Figure`] is data: what the paper shows, in words and numbers; what was run here; axes, curves and
//! claims. The page that `rerail report` writes and the tests take the same objects, so that what the page
//! shows is what the tests hold.
//!
//! A set of figures is a function of a [`Lab`], which runs simulations on several threads, and of an
//! [`Effort`]. Values are in virtual time: they depend on scenarios and on the transport, never on this
//! machine, its load or the number of threads.
//!
//! | file | holds |
//! |---|---|
//! | `background` | multirail-2004, figure 20: another program on one of two rails, for a while |
//! | `claim` | a statement with a number, and whether it holds |
//! | `collective` | multirail-2004, figures 11 to 14: broadcast and all-to-all |
//! | `lab` | many simulations, run on several threads |
//! | `multirail` | multirail-2004, figures 5 to 8: one rail and two alike |
//! | `newmadeleine` | newmadeleine-2007, figures 2 to 7: segments apart and together, greedily, cut; two
//! unlike networks |
//! | `pairs` | multirail-2004, figures 9 and 10: two processes a node |
//! | `random` | random sets of rails: `balanced` beside every other policy |
//! | `resilient` | resilient-2010, figures 4 and 5, table I, recovery times; one recovery as a picture |
//! | `shiba` | shiba-2005, figures 3 to 7: shared memory beside InfiniBand; reads of its section 3 |
//! | `timeline` | a picture of one history |
//! | `unlike` | multirail-2004, figures 17 to 19: a fast rail and a slow one |

mod background;
mod claim;
mod collective;
mod lab;
mod multirail;
mod newmadeleine;
mod pairs;
mod random;
mod resilient;
mod shiba;
#[cfg(test)]
mod tests;
mod timeline;
mod unlike;

use std::fmt;

use serde::Serialize;

pub use claim::{Claim, Relation};
pub use lab::{Lab, Run, Step};
pub use timeline::{Flight, Mark, Sort, Timeline};

/// A figure of a paper, run again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The paper and its figure: `multirail-2004, figure 7`.
    pub source: String,
    /// What it is about, in a few words.
    pub title: String,
    /// What the paper's figure shows, in words; its numbers are in `stated` and in the claims.
    pub paper: String,
    /// What was run here, and what is different from the paper's.
    pub ours: String,
    /// A picture of one history in place of the plot; `series` is empty then.
    pub timeline: Option<Timeline>,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The curves.
    pub series: Vec<Series>,
    /// Values that the paper states, to be drawn across the plot, in units of `y`.
    pub stated: Vec<Stated>,
    /// What must be so.
    pub claims: Vec<Claim>,
}

impl Figure {
    /// Whether all its claims hold.
    pub fn holds(&self) -> bool {
        self.claims.iter().all(Claim::holds)
    }
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// What it shows.
    pub label: String,
    /// In which unit; `bytes` are written with binary prefixes, as the papers do.
    pub unit: String,
    /// How values lie on it.
    pub scale: Scale,
}

impl Axis {
    /// Bytes of a message, each power of two as far from the next.
    pub fn message_bytes() -> Axis {
        Axis { label: "message".into(), unit: "bytes".into(), scale: Scale::Log2 }
    }
}

/// How values lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// In proportion, from zero.
    Linear,
    /// By their logarithm; ticks at powers of two.
    Log2,
    /// By their logarithm; ticks at powers of ten.
    Log10,
    /// Not numbers: places 0, 1, ... have these names.
    Names(&'static [&'static str]),
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// What it is of.
    pub name: String,
    /// x and y, by x, none of them twice.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// The greatest y; minus infinity where there is no point.
    pub fn peak(&self) -> f64 {
        self.points.iter().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max)
    }

    /// The y at an x, if it was measured there.
    pub fn at(&self, x: f64) -> Option<f64> {
        self.points.iter().find(|point| point.0 == x).map(|point| point.1)
    }

    /// y over the other curve's y wherever both were measured: x and ratio.
    pub fn over<'a>(&'a self, other: &'a Series) -> impl Iterator<Item = (f64, f64)> + 'a {
        self.points.iter().filter_map(|&(x, y)| Some((x, y / other.at(x)?)))
    }
}

/// A value that a paper states.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stated {
    /// Of what.
    pub name: String,
    /// How much, in units of the vertical axis.
    pub value: f64,
}

/// How thoroughly to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Few and smaller messages: seconds, and the same claims.
    Quick,
    /// All sizes.
    Full,
}

/// A set of figures.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    /// The word for it: that of `rerail report`.
    pub name: &'static str,
    /// The paper.
    pub about: &'static str,
    /// Runs its simulations.
    pub figures: fn(&mut Lab<'_>, Effort) -> Result<Vec<Figure>, FigureError>,
}

/// All there are.
pub const SETS: &[Set] = &[
    Set {
        name: "multirail",
        about: "Liu, Vishnu, Panda: Building Multirail InfiniBand Clusters: MPI-Level Design and Performance Evaluation, \
                SC 2004",
        figures: multirail::figures,
    },
    Set {
        name: "newmadeleine",
        about: "Aumage, Brunet, Mercier, Namyst: High-Performance Multi-Rail Support with the NewMadeleine Communication \
                Library, HCW 2007",
        figures: newmadeleine::figures,
    },
    Set {
        name: "resilient",
        about: "Koop, Shamis, Rabinovitz, Panda: Designing High-Performance and Resilient Message Passing on InfiniBand, \
                CAC 2010",
        figures: resilient::figures,
    },
    Set {
        name: "shiba",
        about: "Mietke, Steiger, Mehlan, Hoefler, Rehm: SHIBA: Shared Memory Support for InfiniBand MPICH2 Device, 2005",
        figures: shiba::figures,
    },
    Set {
        name: "lab",
        about: "Random sets of rails: balanced beside every other policy, as rerail lab plays them",
        figures: random::figures,
    },
];

/// Why there is no figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FigureError {
    /// A scenario can't be read.
    Scenario(crate::scenario::ScenarioError),
    /// A simulation did not end clean: what was measured in it means nothing.
    Run {
        /// Which.
        what: String,
        /// The checkers' verdict.
        verdict: String,
    },
    /// A simulation ended well, but measured nothing.
    Nothing {
        /// Which.
        what: String,
    },
}

impl fmt::Display for FigureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FigureError::Scenario(error) => error.fmt(f),
            FigureError::Run { what, verdict } => write!(f, "{what}: {verdict}"),
            FigureError::Nothing { what } => write!(f, "{what}: nothing was measured"),
        }
    }
}

impl std::error::Error for FigureError {}

impl From<crate::scenario::ScenarioError> for FigureError {
    fn from(error: crate::scenario::ScenarioError) -> Self {
        FigureError::Scenario(error)
    }
}
