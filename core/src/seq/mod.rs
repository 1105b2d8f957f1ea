//! Sequencing of one virtual channel: PSN and ESN (multirail-2004, 5.2), the receive window, the out-of-order
//! queue, the sent window.
//!
//! Each structure is a few bytes of state; its storage is a slice that the caller passes with every call, so
//! that the endpoint keeps one flat table for all channels and a channel that is not connected has none. The
//! slice must be the same one each time. All are sized by the *window*: a power of two, [`WINDOW_MIN`] to
//! [`WINDOW_MAX`], the packets of one lane that may be unacknowledged at once. A number's place is its low
//! bits, which stays right across the wrap at 2^32 because the window divides it.

pub mod recv_window;
pub mod reorder;
pub mod sent_window;
pub mod serial;

pub use recv_window::{Claim, RecvWindow};
pub use reorder::{Reorder, ReorderError};
pub use sent_window::{AckError, SentWindow};
pub use serial::Seq;

/// The least window, in packets: one word of bits.
pub const WINDOW_MIN: u32 = 64;
/// The greatest window, in packets: a limit carried as 16 bits can still be distinguished from one that is
/// behind.
pub const WINDOW_MAX: u32 = 32_768;

/// Whether `window` is one that the structures of this module can work with.
pub const fn window_is_valid(window: u32) -> bool {
    window.is_power_of_two() && window >= WINDOW_MIN && window <= WINDOW_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::size_of;
    use std::vec::Vec;

    #[test]
    fn connected_peer_structures_have_the_documented_size() {
        assert_eq!(size_of::<RecvWindow>(), 4);
        assert_eq!(size_of::<Reorder>(), 8);
        assert_eq!(size_of::<SentWindow>(), 12);
        assert_eq!(RecvWindow::words(256) * size_of::<u64>(), 64);
    }

    #[test]
    fn windows_are_powers_of_two_within_bounds() {
        let valid: Vec<u32> = (0..=70_000).filter(|&window| window_is_valid(window)).collect();
        assert_eq!(valid, [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768]);
    }

    #[test]
    fn sequence_numbers_start_at_0_by_default() {
        assert_eq!(RecvWindow::new(), RecvWindow::starting_at(Seq(0)));
        assert_eq!(Reorder::new(), Reorder::starting_at(Seq(0)));
        assert_eq!(SentWindow::new(), SentWindow::starting_at(Seq(0)));
    }
}
