//! Buffers in a region of a rank's memory, with guards around them and poison everywhere else.
//!
//! Invariant: every byte of the region that is not inside a buffer under way is [`POISON`]. A write past a
//! buffer's end, a late write into a buffer that was given back (design, section 3),
//! or a write to memory that no request named breaks it; the verdict names the last owner of that memory.
//! Memory is reused as late as possible.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use rerail_core::time::Time;

use super::identity::{Difference, POISON, first_not};

/// Bytes of poison on each side of a buffer.
const GUARD_BYTES: u64 = 64;

/// Buffers start at multiples of this, plus what the caller requests.
const ALIGN: u64 = 64;

/// How many former owners of memory are remembered.
const FORMER_MAX: usize = 4096;

/// A buffer: bytes of the region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// Where it starts.
    pub offset: u64,
    /// Its length; may be 0.
    pub len: u64,
}

impl Extent {
    /// As a range of a region's bytes.
    pub fn range(self) -> std::ops::Range<usize> {
        self.offset as usize..(self.offset + self.len) as usize
    }
}

/// A byte that was written and should not have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scar {
    /// Bytes from the region's start.
    pub offset: u64,
    /// What is there instead of poison.
    pub found: u8,
    /// The request that the place belonged to last, and when it gave it up.
    pub former: Option<(u32, Time)>,
    /// The request whose guard it is.
    pub guard_of: Option<u32>,
}

impl fmt::Display for Scar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {} of the rank's buffers was written ({:#04x})", self.offset, self.found)?;
        if let Some(request) = self.guard_of {
            write!(f, ", beside the buffer of its request {request}")?;
        }
        if let Some((request, at)) = self.former {
            write!(f, ", after its request {request} was over at {} ns", at.0)?;
        }
        Ok(())
    }
}

/// A part of a region. Buffers of one zone leave no holes in another.
#[derive(Clone, Copy, Debug)]
struct Zone {
    from: u64,
    to: u64,
    /// Where to look for room next.
    cursor: u64,
}

/// The owners of a region's bytes.
#[derive(Clone, Debug)]
pub struct Arena {
    /// From the region's start on.
    zones: Vec<Zone>,
    /// Buffers with their guards, by start of the front guard: end of the back guard, buffer, owner.
    active: BTreeMap<u64, (u64, Extent, u32)>,
    /// Former owners, oldest first.
    former: VecDeque<(Extent, u32, Time)>,
    in_use: u64,
    in_use_max: u64,
}

impl Arena {
    /// Takes all of `region`, which is poisoned, as one zone.
    pub fn new(region: &mut [u8]) -> Self {
        Self::with_zones(region, &[region.len() as u64])
    }

    /// Takes all of `region`, which is poisoned, as zones of so many bytes.
    pub fn with_zones(region: &mut [u8], bytes: &[u64]) -> Self {
        region.fill(POISON);
        let mut to = 0;
        let zone_of = |bytes: &u64| {
            let from = to;
            to += bytes;
            Zone { from, to, cursor: from }
        };
        let zones = bytes.iter().map(zone_of).collect();
        assert_eq!(to, region.len() as u64, "the zones are the region");
        Arena { zones, active: BTreeMap::new(), former: VecDeque::new(), in_use: 0, in_use_max: 0 }
    }

    /// A buffer of `len` bytes for request `owner` in a zone, starting `skew` bytes (less than 64) behind an
    /// aligned address. `Ok(None)`: no room.
    ///
    /// # Errors
    /// The place where it would lie was written since it was given back.
    pub fn take(
        &mut self,
        region: &[u8],
        zone: usize,
        len: u64,
        skew: u64,
        owner: u32,
    ) -> Result<Option<Extent>, Scar> {
        let need = Self::need(len, skew);
        let Zone { from, to, cursor } = self.zones[zone];
        let Some(start) = self.room(need, cursor, to).or_else(|| self.room(need, from, to)) else {
            return Ok(None);
        };
        self.zones[zone].cursor = start + need;
        self.take_at(region, start, len, skew, owner)
    }

    /// Bytes that a buffer of `len` bytes takes at most, with its guards.
    pub const fn bytes_for(len: u64) -> u64 {
        Self::need(len, ALIGN)
    }

    const fn need(len: u64, skew: u64) -> u64 {
        (GUARD_BYTES + skew + len + GUARD_BYTES).next_multiple_of(ALIGN)
    }

    fn take_at(&mut self, region: &[u8], start: u64, len: u64, skew: u64, owner: u32) -> Result<Option<Extent>, Scar> {
        let need = Self::need(len, skew);
        if let Some(bad) = first_not(POISON, &region[start as usize..(start + need) as usize]) {
            return Err(self.scar(start, bad));
        }
        let extent = Extent { offset: start + GUARD_BYTES + skew, len };
        self.active.insert(start, (start + need, extent, owner));
        self.in_use += need;
        self.in_use_max = self.in_use_max.max(self.in_use);
        Ok(Some(extent))
    }

    fn room(&self, need: u64, from: u64, to: u64) -> Option<u64> {
        let mut at = match self.active.range(..=from).next_back() {
            Some((_, (end, ..))) => from.max(*end),
            None => from,
        };
        // The zone is used up to its end, and what was found is the next one's.
        if at >= to {
            return None;
        }
        for (&start, &(end, ..)) in self.active.range(at..to) {
            if start - at >= need {
                return Some(at);
            }
            at = end;
        }
        (to.saturating_sub(at) >= need).then_some(at)
    }

    /// Gives a buffer back: from now on no rank may write there.
    ///
    /// # Errors
    /// Its guards were written; it is given back all the same.
    pub fn give_back(&mut self, region: &mut [u8], extent: Extent, now: Time) -> Result<(), Scar> {
        let found = self.active.range(..=extent.offset).next_back().map(|(start, held)| (*start, *held));
        let Some((start, (end, held, owner))) = found.filter(|(_, (_, held, _))| *held == extent) else {
            unreachable!("{extent:?} is not under way");
        };
        let whole = self.guards(region, start, end, held, owner);
        self.active.remove(&start);
        self.in_use -= end - start;
        region[start as usize..end as usize].fill(POISON);
        if self.former.len() == FORMER_MAX {
            self.former.pop_front();
        }
        self.former.push_back((extent, owner, now));
        whole
    }

    fn guards(&self, region: &[u8], start: u64, end: u64, held: Extent, owner: u32) -> Result<(), Scar> {
        for (from, to) in [(start, held.offset), (held.offset + held.len, end)] {
            if let Some(bad) = first_not(POISON, &region[from as usize..to as usize]) {
                return Err(Scar { guard_of: Some(owner), ..self.scar(from, bad) });
            }
        }
        Ok(())
    }

    fn scar(&self, start: u64, bad: Difference) -> Scar {
        let offset = start + bad.at;
        let was = |(extent, ..): &&(Extent, u32, Time)| (extent.offset..extent.offset + extent.len).contains(&offset);
        let former = self.former.iter().rev().find(was).map(|(_, owner, at)| (*owner, *at));
        Scar { offset, found: bad.found, former, guard_of: None }
    }

    /// Looks at every byte outside of buffers under way.
    ///
    /// # Errors
    /// The first that was written.
    pub fn inspect(&self, region: &[u8]) -> Result<(), Scar> {
        let mut at = 0;
        for (&start, &(end, held, owner)) in &self.active {
            if let Some(bad) = first_not(POISON, &region[at as usize..start as usize]) {
                return Err(self.scar(at, bad));
            }
            self.guards(region, start, end, held, owner)?;
            at = end;
        }
        match first_not(POISON, &region[at as usize..]) {
            Some(bad) => Err(self.scar(at, bad)),
            None => Ok(()),
        }
    }

    /// Buffers under way.
    pub fn len(&self) -> usize {
        self.active.len()
    }

    /// Whether no buffer is under way.
    pub fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// The most bytes that were in use at once, guards included.
    pub fn in_use_max(&self) -> u64 {
        self.in_use_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_apart_and_memory_rests_before_it_is_used_again() {
        let mut region = vec![0; 4096];
        let mut arena = Arena::new(&mut region);
        let first = arena.take(&region, 0, 100, 3, 0).unwrap().unwrap();
        let second = arena.take(&region, 0, 0, 0, 1).unwrap().unwrap();
        assert!(first.offset % 64 == 3 && second.offset >= first.offset + 100 + 2 * GUARD_BYTES);
        arena.give_back(&mut region, first, Time(5)).unwrap();
        let third = arena.take(&region, 0, 100, 0, 2).unwrap().unwrap();
        assert!(third.offset > second.offset, "the place of the first rests");
        assert!(arena.take(&region, 0, 4096, 0, 3).unwrap().is_none());
        assert_eq!(arena.len(), 2);
        // Round the end, into the gap of the first.
        let mut taken = 0;
        while arena.take(&region, 0, 64, 0, 9).unwrap().is_some() {
            taken += 1;
        }
        assert!(taken > 10 && arena.in_use_max() <= 4096);
        arena.inspect(&region).unwrap();
    }

    #[test]
    fn full_arena_zone_leaves_other_zones_usable() {
        let second = Arena::bytes_for(1000);
        // The first is used up to its very end.
        let first = 8 * Arena::bytes_for(0);
        let mut region = vec![0; (first + second) as usize];
        let mut arena = Arena::with_zones(&mut region, &[first, second]);
        while arena.take(&region, 0, 64, 0, 0).unwrap().is_some() {}
        let kept = arena.take(&region, 1, 1000, 0, 1).unwrap().unwrap();
        assert!(kept.offset >= first && kept.offset + kept.len <= first + second);
        assert_eq!(arena.take(&region, 1, 1000, 0, 2).unwrap(), None);
        assert_eq!(arena.take(&region, 0, 64, 0, 2).unwrap(), None);
        arena.give_back(&mut region, kept, Time(5)).unwrap();
        assert!(arena.take(&region, 0, 64, 0, 0).unwrap().is_none());
        assert!(arena.take(&region, 1, 1000, 0, 2).unwrap().is_some());
        arena.inspect(&region).unwrap();
    }

    #[test]
    fn overrun_late_and_stray_writes_are_detected() {
        let mut region = vec![0; 4096];
        let mut arena = Arena::new(&mut region);
        let extent = arena.take(&region, 0, 100, 0, 7).unwrap().unwrap();
        region[extent.range()].fill(1);
        arena.inspect(&region).unwrap();
        region[extent.range().end] = 1;
        assert_eq!(arena.inspect(&region).unwrap_err().guard_of, Some(7));
        assert_eq!(arena.give_back(&mut region, extent, Time(5)).unwrap_err().guard_of, Some(7));
        arena.inspect(&region).unwrap();

        region[extent.range().start + 3] = 9;
        let scar = arena.inspect(&region).unwrap_err();
        assert_eq!((scar.offset, scar.former), (extent.offset + 3, Some((7, Time(5)))));
        // Found as well by the next owner of the place.
        let mut found = None;
        for owner in 0..20 {
            if let Err(scar) = arena.take(&region, 0, 100, 0, owner) {
                found = Some(scar);
                break;
            }
        }
        assert_eq!(found, Some(scar));

        let mut region = vec![0; 4096];
        let arena = Arena::new(&mut region);
        region[4000] = 0;
        assert_eq!(arena.inspect(&region).unwrap_err().former, None);
    }
}
