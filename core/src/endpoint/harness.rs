//! Bodies of the endpoint's property tests and fuzz target.
