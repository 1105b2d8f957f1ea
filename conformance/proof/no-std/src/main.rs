//! A freestanding program in which two endpoints of `rerail-core` talk to each other.
//!
//! That it links proves that the core needs neither `std` nor `alloc` nor libc: there is none. That it exits
//! with 0 proves that the core works so: eager messages both ways, a rendezvous striped over two rails, a
//! put, a get and an atomic, all verified byte by byte. `run.sh` builds it, runs it, and looks through its
//! symbols.
#![no_std]
#![no_main]

mod bare;
mod exchange;
mod host;
mod wire;

use core::fmt::Write;

/// What the program came to: one line, and the exit code. Called by `_start`.
fn main() -> i32 {
    let mut line = bare::Line::new();
    let written = match exchange::run() {
        Ok(report) => writeln!(line, "no-std: {report}"),
        Err(failure) => writeln!(line, "no-std: FAILED: {failure}"),
    };
    bare::write_stdout(line.as_bytes());
    match (written, line.starts_with("no-std: FAILED")) {
        (Ok(()), false) => 0,
        (Ok(()), true) => 1,
        (Err(_), _) => 2,
    }
}
