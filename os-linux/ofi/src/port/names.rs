//! Address vectors: from `fi_addr_t` to a peer of the transport and back.

use rerail_core::ids::PeerId;

use super::Errno;
use super::ledger::Slab;
use crate::abi::{FI_ADDR_UNSPEC, FI_EINVAL, FI_ENOAV};

/// The vectors that number peers.
#[derive(Default)]
pub struct Names {
    vectors: Slab<Vector>,
    /// Peers that are in no vector any more: their places are free where others need them.
    unnamed: Vec<PeerId>,
}

/// An address vector.
#[derive(Default)]
struct Vector {
    /// The peer behind each number; `None`: removed.
    numbered: Vec<Option<PeerId>>,
    /// The first number of each peer.
    number_of: Vec<Option<u64>>,
}

impl Names {
    /// Opens a vector.
    pub fn open(&mut self) -> u32 {
        self.vectors.insert(Vector::default())
    }

    /// Closes a vector.
    pub fn close(&mut self, vector: u32) {
        let left = self.vectors.remove(vector).map(|vector| vector.numbered).unwrap_or_default();
        left.into_iter().flatten().for_each(|peer| self.note_unnamed(peer));
    }

    /// Puts a peer into a vector.
    pub fn insert(&mut self, vector: u32, peer: PeerId) -> Result<u64, Errno> {
        let entry = self.vectors.get_mut(vector).ok_or(Errno(FI_EINVAL))?;
        let number = entry.numbered.len() as u64;
        entry.numbered.push(Some(peer));
        let index = peer.0 as usize;
        if entry.number_of.len() <= index {
            entry.number_of.resize(index + 1, None);
        }
        entry.number_of[index].get_or_insert(number);
        self.unnamed.retain(|unnamed| *unnamed != peer);
        Ok(number)
    }

    /// Takes a number out of a vector; it is not given again.
    pub fn remove(&mut self, vector: u32, number: u64) -> Result<PeerId, Errno> {
        let entry = self.vectors.get_mut(vector).ok_or(Errno(FI_EINVAL))?;
        let index = usize::try_from(number).map_err(|_| Errno(FI_EINVAL))?;
        let peer = entry.numbered.get_mut(index).and_then(Option::take).ok_or(Errno(FI_EINVAL))?;
        // Another number of the same peer takes its place.
        let other = entry.numbered.iter().position(|numbered| *numbered == Some(peer));
        entry.number_of[peer.0 as usize] = other.map(|number| number as u64);
        self.note_unnamed(peer);
        Ok(peer)
    }

    fn note_unnamed(&mut self, peer: PeerId) {
        let is_named = self.vectors.iter().any(|(_, vector)| vector.numbered.contains(&Some(peer)));
        if !is_named && !self.unnamed.contains(&peer) {
            self.unnamed.push(peer);
        }
    }

    /// Takes the peers that are in no vector any more, unless `is_kept`.
    pub fn take_unnamed(&mut self, mut is_kept: impl FnMut(PeerId) -> bool) -> Vec<PeerId> {
        let (kept, taken) = self.unnamed.drain(..).partition(|peer| is_kept(*peer));
        self.unnamed = kept;
        taken
    }

    /// The peer behind a number.
    #[inline]
    pub fn peer(&self, vector: Option<u32>, number: u64) -> Result<PeerId, Errno> {
        let vector = self.vectors.get(vector.ok_or(Errno(FI_ENOAV))?);
        let numbered = vector.zip(usize::try_from(number).ok());
        numbered.and_then(|(vector, number)| *vector.numbered.get(number)?).ok_or(Errno(FI_EINVAL))
    }

    /// The number of a peer in a vector, or `FI_ADDR_UNSPEC`.
    #[inline]
    pub fn number_of(&self, vector: Option<u32>, peer: PeerId) -> u64 {
        let vector = vector.and_then(|vector| self.vectors.get(vector));
        let number = vector.and_then(|vector| *vector.number_of.get(peer.0 as usize)?);
        number.unwrap_or(FI_ADDR_UNSPEC)
    }
}
