//! Tests of the fabric.

mod shared;
