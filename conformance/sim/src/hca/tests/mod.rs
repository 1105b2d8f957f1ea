//! What the software HCA does, behaviour by behaviour.

mod basic;
mod datagram;
mod errors;
mod faults;
mod fixture;
mod queues;
mod random;
mod retry;
mod shared;
mod speed;
mod states;
