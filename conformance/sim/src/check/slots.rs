//! What slots of windows may hold: puts are not ordered among each other, so between two puts that overlap in
//! time either may win, byte by byte; a put that was over before another began may not come back.

use std::collections::BTreeMap;
use std::ops::Range;

use super::identity::{Content, Difference};

/// One put into a slot.
#[derive(Clone, Copy, Debug)]
struct Version {
    content: Content,
    /// Rank and request; `None` for what was there from the start.
    by: Option<(u32, u32)>,
    submitted: u64,
    /// When its completion was reported.
    done: Option<u64>,
}

/// All slots of all windows. A slot is put as a whole.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    slots: BTreeMap<(u32, u32), Vec<Version>>,
}

impl Slots {
    /// A slot, with what it holds from the start.
    pub fn open(&mut self, target: u32, slot: u32, content: Content) {
        let first = Version { content, by: None, submitted: 0, done: Some(0) };
        self.slots.insert((target, slot), vec![first]);
    }

    pub(super) fn put(&mut self, target: u32, slot: u32, content: Content, by: (u32, u32), submitted: u64) {
        let version = Version { content, by: Some(by), submitted, done: None };
        self.slots.entry((target, slot)).or_default().push(version);
    }

    /// Takes out the slots that are not to be judged.
    pub(super) fn forget(&mut self, is_forgotten: impl Fn(u32, u32) -> bool) {
        self.slots.retain(|(target, slot), _| !is_forgotten(*target, *slot));
    }

    pub(super) fn withdraw(&mut self, target: u32, slot: u32, by: (u32, u32)) {
        if let Some(versions) = self.slots.get_mut(&(target, slot)) {
            versions.retain(|version| version.by != Some(by));
        }
    }

    pub(super) fn done(&mut self, target: u32, slot: u32, by: (u32, u32), stamp: u64) {
        let versions = self.slots.get_mut(&(target, slot)).into_iter().flatten();
        // What was flushed is done with the first flush.
        let ours = versions.filter(|version| version.by == Some(by));
        ours.for_each(|version| version.done = version.done.or(Some(stamp)));
    }

    /// What the slot may hold at some time of `between`.
    fn possible(&self, target: u32, slot: u32, between: Range<u64>) -> Vec<Content> {
        let Some(versions) = self.slots.get(&(target, slot)) else { return Vec::new() };
        // One that began after this one was over, and was over before the time began, has wiped it out.
        let wiped = |version: &Version| {
            let over = |later: &Version| {
                version.done.is_some_and(|done| later.submitted > done)
                    && later.done.is_some_and(|done| done < between.start)
            };
            versions.iter().any(over)
        };
        let possible = versions.iter().filter(|version| version.submitted < between.end && !wiped(version));
        possible.map(|version| version.content).collect()
    }

    /// The first of `bytes`, read from `offset` on at some time of `between`, that the slot cannot have held.
    pub(super) fn first_impossible(
        &self,
        target: u32,
        slot: u32,
        offset: u64,
        bytes: &[u8],
        between: Range<u64>,
    ) -> Option<(u64, u8)> {
        let possible = self.possible(target, slot, between);
        if possible.iter().any(|content| content.first_difference(offset, bytes).is_none()) {
            return None;
        }
        let places = (offset..).zip(bytes);
        places
            .map(|(at, byte)| (at, *byte))
            .find(|(at, byte)| possible.iter().all(|content| content.byte(*at) != *byte))
    }

    /// Where a put that is over is missing, and nothing that may have replaced it is there.
    pub(super) fn first_missing(
        &self,
        target: u32,
        slot: u32,
        by: (u32, u32),
        bytes: &[u8],
        now: u64,
    ) -> Option<Difference> {
        let versions = self.slots.get(&(target, slot))?;
        let put = versions.iter().find(|version| version.by == Some(by))?;
        // Reported as done or flushed: as good as done before anything that comes now.
        let after = |version: &&Version| {
            version.by == Some(by)
                || version.submitted > put.submitted
                || version.done.is_none_or(|done| done > put.submitted)
        };
        let allowed: Vec<Content> = versions
            .iter()
            .filter(|version| version.submitted < now)
            .filter(after)
            .map(|version| version.content)
            .collect();
        if allowed.iter().rev().any(|content| content.first_difference(0, bytes).is_none()) {
            return None;
        }
        let places = (0u64..).zip(bytes);
        let (at, found) = places
            .map(|(at, byte)| (at, *byte))
            .find(|(at, byte)| allowed.iter().all(|content| content.byte(*at) != *byte))?;
        Some(Difference { at, expected: put.content.byte(at), found })
    }

    /// Slots of a rank's window.
    pub(super) fn of(&self, target: u32) -> impl Iterator<Item = u32> {
        self.slots.range((target, 0)..=(target, u32::MAX)).map(|((_, slot), _)| *slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(seed: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Content(seed).fill(0, &mut bytes);
        bytes
    }

    #[test]
    fn overwritten_window_content_does_not_reappear() {
        let mut slots = Slots::default();
        slots.open(0, 0, Content(1));
        assert_eq!(slots.first_impossible(0, 0, 0, &content(1, 30), 1..2), None);
        assert!(slots.first_impossible(0, 0, 0, &content(2, 30), 1..2).is_some());
        slots.put(0, 0, Content(2), (1, 0), 10);
        slots.done(0, 0, (1, 0), 20);
        // While it was under way either; afterwards only the new one.
        assert_eq!(slots.first_impossible(0, 0, 0, &content(1, 30), 9..15), None);
        assert_eq!(slots.first_impossible(0, 0, 0, &content(2, 30), 9..15), None);
        assert_eq!(slots.first_impossible(0, 0, 0, &content(2, 30), 21..22), None);
        assert!(slots.first_impossible(0, 0, 0, &content(1, 30), 21..22).is_some());
        assert!(slots.first_impossible(0, 0, 0, &content(2, 30), 5..9).is_some(), "not before it was put");
    }

    #[test]
    fn overlapping_puts_may_mix() {
        let mut slots = Slots::default();
        slots.open(0, 3, Content(1));
        slots.put(0, 3, Content(2), (1, 0), 10);
        slots.put(0, 3, Content(3), (2, 0), 11);
        slots.done(0, 3, (1, 0), 20);
        slots.done(0, 3, (2, 0), 21);
        let mixed = [&content(2, 16)[..8], &content(3, 16)[8..]].concat();
        assert_eq!(slots.first_impossible(0, 3, 0, &mixed, 30..31), None);
        let (at, _) = slots.first_impossible(0, 3, 0, &[&mixed[..8], &content(1, 16)[8..]].concat(), 30..31).unwrap();
        assert!(at >= 8);
        assert_eq!(slots.first_impossible(0, 3, 8, &content(3, 16)[8..], 30..31), None, "from an offset on");
    }

    #[test]
    fn a_put_that_is_done_is_there() {
        let mut slots = Slots::default();
        slots.open(0, 0, Content(1));
        slots.put(0, 0, Content(2), (1, 5), 10);
        assert_eq!(slots.first_missing(0, 0, (1, 5), &content(2, 20), 12), None);
        assert!(slots.first_missing(0, 0, (1, 5), &content(1, 20), 12).is_some());
        slots.done(0, 0, (1, 5), 12);
        slots.put(0, 0, Content(3), (1, 6), 13);
        assert_eq!(slots.first_missing(0, 0, (1, 5), &content(3, 20), 14), None, "replaced");
        slots.withdraw(0, 0, (1, 6));
        assert!(slots.first_impossible(0, 0, 0, &content(3, 20), 14..15).is_some());
    }
}
