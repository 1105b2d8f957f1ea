//! Blocks of the payload pool for messages that can't go to their buffer yet, as chains: a message of any
//! length takes `ceil(length / block)` of them (C-2), so there is no fragmentation and a peer's grant of
//! blocks is always good. The messages of an aggregate lie in one chain, which is free when the last of them
//! is.

use crate::store::{Arena, ArenaError, NONE};

/// The free blocks and the chains.
pub struct Blocks<'m> {
    next: &'m mut [u32],
    /// By the first block of a chain: its users beside one.
    others: &'m mut [u16],
    free: u32,
    free_len: u32,
}

impl<'m> Blocks<'m> {
    /// All free.
    pub fn carve(arena: &mut Arena<'m>, count: u32) -> Result<Self, ArenaError> {
        // Behind the last one: never followed, since `free_len` limits the walk.
        let next = arena.take_with(count as usize, |i| i + 1)?;
        let others = arena.take(count as usize, 0)?;
        Ok(Blocks { next, others, free: if count == 0 { NONE } else { 0 }, free_len: count })
    }

    /// As [`take`](Self::take), of one block or none.
    #[inline(always)]
    pub fn take_one(&mut self, count: u32) -> Option<u32> {
        if count == 0 {
            return Some(NONE);
        }
        if self.free_len == 0 {
            return None;
        }
        let first = self.free;
        let next = self.next.get_mut(first as usize)?;
        self.free = core::mem::replace(next, NONE);
        self.free_len -= 1;
        Some(first)
    }

    /// A chain of `count` blocks, by its first one ([`NONE`] for zero blocks); `None` where fewer are free.
    pub fn take(&mut self, count: u32) -> Option<u32> {
        if count > self.free_len {
            return None;
        }
        if count == 0 {
            return Some(NONE);
        }
        let first = self.free;
        let mut last = first;
        for _ in 1..count {
            last = self.next[last as usize];
        }
        self.free = self.next[last as usize];
        self.next[last as usize] = NONE;
        self.free_len -= count;
        Some(first)
    }

    /// A chain gets `others` users more: so many more have to [`give`](Self::give) it back.
    pub fn share(&mut self, first: u32, others: u16) {
        self.others[first as usize] += others;
    }

    /// Gives a chain back; `false` where it has other users, which keep it. Its inner links stay as they are
    /// until blocks are taken again: the copy out of it, an action of the same batch, can still follow them.
    pub fn give(&mut self, first: u32) -> bool {
        if first == NONE {
            return true;
        }
        let others = &mut self.others[first as usize];
        if *others > 0 {
            *others -= 1;
            return false;
        }
        let mut last = first;
        self.free_len += 1;
        while self.next[last as usize] != NONE {
            last = self.next[last as usize];
            self.free_len += 1;
        }
        self.next[last as usize] = self.free;
        self.free = first;
        true
    }

    /// As [`give`](Self::give), of a chain of one block or none.
    #[inline(always)]
    pub fn give_one(&mut self, first: u32) -> bool {
        if first == NONE {
            return true;
        }
        if self.others[first as usize] > 0 {
            return self.give(first);
        }
        debug_assert_eq!(self.next[first as usize], NONE, "a chain of several");
        self.next[first as usize] = core::mem::replace(&mut self.free, first);
        self.free_len += 1;
        true
    }

    /// How many are free.
    pub const fn free_len(&self) -> u32 {
        self.free_len
    }

    /// The chains: the block after each block.
    pub fn chains(&self) -> &[u32] {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::MaybeUninit;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[repr(align(64))]
    struct Region([MaybeUninit<u8>; 256]);

    proptest! {
        /// Chains have the requested length, never share a block, and no block is lost; one that has several
        /// users stays until the last gives it back.
        #[test]
        fn chains_are_disjoint_and_complete(steps in proptest::collection::vec((any::<bool>(), 0u32..9), 0..100)) {
            let mut region = Region([MaybeUninit::uninit(); 256]);
            let mut blocks = Blocks::carve(&mut Arena::new(&mut region.0).unwrap(), 20).unwrap();
            let mut held: Vec<(u32, u32, u32)> = Vec::new();
            for (take, n) in steps {
                if take {
                    let free = 20 - held.iter().map(|h| h.1).sum::<u32>();
                    match blocks.take(n) {
                        Some(first) => {
                            prop_assert!(n <= free);
                            let users = if n > 0 { n % 3 } else { 0 };
                            if users > 0 {
                                blocks.share(first, users as u16);
                            }
                            held.push((first, n, users));
                        }
                        None => prop_assert!(n > free),
                    }
                } else if !held.is_empty() {
                    let (first, len, users) = held.swap_remove(n as usize % held.len());
                    let chain = |blocks: &Blocks<'_>| {
                        let next = |at: &u32| Some(blocks.chains()[*at as usize]);
                        std::iter::successors(Some(first).filter(|_| len > 0), next).take(len as usize).collect::<Vec<_>>()
                    };
                    let before = chain(&blocks);
                    for _ in 0..users {
                        prop_assert!(!blocks.give(first));
                    }
                    prop_assert!(blocks.give(first));
                    prop_assert_eq!(chain(&blocks), before);
                }
                let mut seen = BTreeSet::new();
                for &(first, n, _) in &held {
                    let (mut at, mut len) = (first, 0);
                    while at != NONE { prop_assert!(seen.insert(at)); at = blocks.chains()[at as usize]; len += 1; }
                    prop_assert_eq!(len, n);
                }
                prop_assert_eq!(blocks.free_len() as usize + seen.len(), 20);
            }
        }
    }

    /// `take_one` and `give_one` treat a block as a chain of one, its other users included.
    #[test]
    fn single_blocks_are_chains_of_one() {
        let mut region = Region([MaybeUninit::uninit(); 256]);
        let mut blocks = Blocks::carve(&mut Arena::new(&mut region.0).unwrap(), 3).unwrap();
        assert_eq!((blocks.take_one(0), blocks.give_one(NONE)), (Some(NONE), true));
        let taken = [0; 3].map(|_| blocks.take_one(1).unwrap());
        assert_eq!((taken.iter().collect::<BTreeSet<_>>().len(), blocks.take_one(1), blocks.free_len()), (3, None, 0));
        blocks.share(taken[1], 1);
        assert_eq!((blocks.give_one(taken[1]), blocks.free_len()), (false, 0));
        assert_eq!((blocks.give_one(taken[1]), blocks.free_len()), (true, 1));
        assert_eq!((blocks.take_one(1), blocks.take_one(1)), (Some(taken[1]), None));
        assert!(taken.iter().all(|block| blocks.give_one(*block)));
        let all = blocks.take(3).unwrap();
        assert_eq!((blocks.free_len(), blocks.give(all), blocks.free_len()), (0, true, 3));
    }

    #[test]
    fn a_chain_that_is_shared_again_has_the_users_of_both() {
        let mut region = Region([MaybeUninit::uninit(); 256]);
        let mut blocks = Blocks::carve(&mut Arena::new(&mut region.0).unwrap(), 5).unwrap();
        let first = blocks.take(3).unwrap();
        blocks.share(first, 1);
        blocks.share(first, 2);
        assert_eq!([0; 4].map(|_| blocks.give(first)), [false, false, false, true]);
        assert_eq!(blocks.free_len(), 5);
    }
}
