//! Processes of a job for tests of rails.

use rerail_core::ids::PeerId;

use super::{Credentials, PeerKey, Secret};
use crate::rail::Rail;

/// Those of each rank, always the same.
pub(crate) fn credentials(rank: u32) -> Credentials {
    let mut private = [0x42; 32];
    // Not at either end, where a private key has bits that do not count.
    private[8..12].copy_from_slice(&rank.to_le_bytes());
    Credentials::new(private, Secret::new([7; 32]))
}

/// Passes a rail a peer's address and key.
pub(crate) fn meet(rail: &mut dyn Rail, peer: u32, address: &str) {
    assert_eq!(rail.add_peer(PeerId(peer), address), Ok(true), "rank {peer} at {address}");
    rail.trust(PeerId(peer), &PeerKey::Whole(credentials(peer).public()));
}
