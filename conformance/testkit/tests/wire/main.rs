//! Tests of the wire, by what they show.

mod golden;
mod properties;
mod refusals;
