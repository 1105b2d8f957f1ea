//! Tests of the fabric.
