//! Time and wires.
