//! What the software HCA does, behaviour by behaviour.

mod basic;
mod errors;
mod fixture;
mod retry;
