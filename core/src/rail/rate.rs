//! Rates.
