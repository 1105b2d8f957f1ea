//! Sizes of the sequencing structures, and which windows they work with.

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
