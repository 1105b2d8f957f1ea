//! The device contract suite.
