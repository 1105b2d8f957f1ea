//! What the software HCA does, behaviour by behaviour.

mod basic;
mod cost;
mod datagram;
mod errors;
mod faults;
mod fixture;
mod hostile;
mod queues;
mod random;
mod retry;
mod shared;
mod speed;
mod states;
