//! A statement with a number, and whether it holds.

use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

/// A statement about what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// What is stated.
    pub name: String,
    /// The paper's number, or what follows from its words.
    pub expected: f64,
    /// How what was measured lies to it.
    pub relation: Relation,
    /// By how much it may be missed, as a part of `expected`.
    pub tolerance: f64,
    /// Ours.
    pub measured: f64,
    /// Of both; empty: a ratio.
    pub unit: &'static str,
}

/// How what was measured lies to what is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// Neither more nor less, but for the tolerance.
    About,
    /// Not less; more is better.
    AtLeast,
    /// Not more; less is better.
    AtMost,
}

impl Claim {
    /// Whether it holds; what is not a number never does.
    pub fn holds(&self) -> bool {
        let slack = self.tolerance * self.expected.abs();
        let above = self.measured >= self.expected - slack;
        let below = self.measured <= self.expected + slack;
        match self.relation {
            Relation::About => above && below,
            Relation::AtLeast => above,
            Relation::AtMost => below,
        }
    }
}

impl Relation {
    /// As text.
    pub const fn words(self) -> &'static str {
        match self {
            Relation::About => "about",
            Relation::AtLeast => "at least",
            Relation::AtMost => "at most",
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// Its fields, and whether it holds.
impl Serialize for Claim {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Claim", 7)?;
        out.serialize_field("name", &self.name)?;
        out.serialize_field("expected", &self.expected)?;
        out.serialize_field("relation", &self.relation)?;
        out.serialize_field("tolerance", &self.tolerance)?;
        out.serialize_field("measured", &self.measured)?;
        out.serialize_field("unit", self.unit)?;
        out.serialize_field("holds", &self.holds())?;
        out.end()
    }
}
