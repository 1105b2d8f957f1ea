//! Names that are known, their numbers in address vectors, and their ranks.

use rerail_core::ids::PeerId;

use super::Errno;
use super::ledger::Slab;
use crate::abi::{FI_ADDR_UNSPEC, FI_EINVAL, FI_ENOAV};
use rerail_linux::driver::Name;

/// All names, each once, and the vectors that number them.
#[derive(Default)]
pub struct Names {
    /// In the order in which they were learnt, the own one first.
    known: Vec<Name>,
    /// Rank of each, once the transport has begun.
    ranks: Vec<PeerId>,
    /// Place of each rank.
    places: Vec<u32>,
    vectors: Slab<Vector>,
}

/// An address vector.
#[derive(Default)]
struct Vector {
    /// Place of the name behind each number; `None`: removed.
    numbered: Vec<Option<u32>>,
    /// The first number of the name at each place.
    number_of: Vec<Option<u64>>,
}

impl Names {
    /// Begins with this process's name.
    pub fn begin(&mut self, own: Name) {
        if self.known.is_empty() {
            self.known.push(own);
        }
    }

    /// How many names are known.
    pub fn count(&self) -> usize {
        self.known.len()
    }

    /// Where a name is kept.
    pub fn place(&self, name: &Name) -> Option<u32> {
        self.known.iter().position(|known| known == name).and_then(|place| u32::try_from(place).ok())
    }

    /// Keeps a new name.
    pub fn learn(&mut self, name: Name) -> u32 {
        self.known.push(name);
        (self.known.len() - 1) as u32
    }

    /// All names, in the order in which they were learnt.
    pub fn all(&self) -> &[Name] {
        &self.known
    }

    /// Gives ranks to all names.
    pub fn number(&mut self) {
        let mut sorted = self.known.clone();
        sorted.sort_unstable();
        self.ranks = self.known.iter().map(|name| name.rank_among(&sorted).unwrap_or_default()).collect();
        self.places = vec![0; sorted.len()];
        for (rank, place) in self.ranks.iter().zip(0..) {
            self.places[rank.0 as usize] = place;
        }
    }

    /// Opens a vector.
    pub fn open(&mut self) -> u32 {
        self.vectors.insert(Vector::default())
    }

    /// Closes a vector.
    pub fn close(&mut self, vector: u32) {
        self.vectors.remove(vector);
    }

    /// Puts the name at a place into a vector.
    pub fn insert(&mut self, vector: u32, place: u32) -> Result<u64, Errno> {
        let vector = self.vectors.get_mut(vector).ok_or(Errno(FI_EINVAL))?;
        let number = vector.numbered.len() as u64;
        vector.numbered.push(Some(place));
        let index = place as usize;
        if vector.number_of.len() <= index {
            vector.number_of.resize(index + 1, None);
        }
        vector.number_of[index].get_or_insert(number);
        Ok(number)
    }

    /// Takes a number out of a vector; it is not given again.
    pub fn remove(&mut self, vector: u32, number: u64) -> Result<(), Errno> {
        let vector = self.vectors.get_mut(vector).ok_or(Errno(FI_EINVAL))?;
        let entry = usize::try_from(number).ok().and_then(|number| vector.numbered.get_mut(number));
        let place = entry.and_then(Option::take).ok_or(Errno(FI_EINVAL))?;
        if vector.number_of[place as usize] == Some(number) {
            vector.number_of[place as usize] = None;
        }
        Ok(())
    }

    fn place_of(&self, vector: u32, number: u64) -> Option<u32> {
        *self.vectors.get(vector)?.numbered.get(usize::try_from(number).ok()?)?
    }

    /// The name behind a number.
    pub fn lookup(&self, vector: u32, number: u64) -> Result<&Name, Errno> {
        self.place_of(vector, number).map(|place| &self.known[place as usize]).ok_or(Errno(FI_EINVAL))
    }

    /// The rank behind a number, once the transport has begun.
    #[inline]
    pub fn peer(&self, vector: Option<u32>, number: u64) -> Result<PeerId, Errno> {
        let vector = vector.ok_or(Errno(FI_ENOAV))?;
        let place = self.place_of(vector, number).ok_or(Errno(FI_EINVAL))?;
        self.ranks.get(place as usize).copied().ok_or(Errno(FI_EINVAL))
    }

    /// The number of a rank in a vector, or `FI_ADDR_UNSPEC`.
    #[inline]
    pub fn number_of(&self, vector: Option<u32>, peer: PeerId) -> u64 {
        let place = self.places.get(peer.0 as usize).copied();
        let vector = vector.and_then(|vector| self.vectors.get(vector));
        let number = vector.zip(place).and_then(|(vector, place)| *vector.number_of.get(place as usize)?);
        number.unwrap_or(FI_ADDR_UNSPEC)
    }
}
