//! What the software HCA does, behaviour by behaviour.

mod basic;
mod datagram;
mod errors;
mod fixture;
mod queues;
mod retry;
mod shared;
