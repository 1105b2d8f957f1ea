//! Windows of a process that its peers on the host access by themselves (L-25 to L-27): the list, and a place
//! in it. The words of the ring are those of `Producer::list_windows`, `Consumer::window`.
//!
//! Invariants: a list of other windows has another number; the windows of a list have different keys.

use super::offers::OfferedRange;

/// The most windows in a list.
pub const WINDOWS_MAX: usize = 12;
/// The most of them in memory that no peer can map, so that those that gain more find places.
pub const UNMAPPED_WINDOWS_MAX: usize = 6;

/// Bits of a window's last word.
const GETS: u64 = 1;
const PUTS: u64 = 2;

/// A window in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListedWindow {
    /// Its key.
    pub key: u64,
    /// Where it lies, by its owner's addresses.
    pub range: OfferedRange,
    /// Peers may copy out of it.
    pub gets: bool,
    /// Peers may copy into it.
    pub puts: bool,
}

impl ListedWindow {
    const fn words(&self) -> [u64; 4] {
        let access = if self.gets { GETS } else { 0 } | if self.puts { PUTS } else { 0 };
        [self.key, self.range.start, self.range.bytes, access]
    }

    /// Of the words in a list; `None`: the place is empty.
    pub(super) const fn of([key, start, bytes, access]: [u64; 4]) -> Option<Self> {
        if access & (GETS | PUTS) == 0 {
            return None;
        }
        let range = OfferedRange { start, bytes };
        Some(ListedWindow { key, range, gets: access & GETS != 0, puts: access & PUTS != 0 })
    }

    /// The address of its byte `offset` in its owner's memory. `None`: so many bytes from there on are not in
    /// it.
    pub const fn address_of(&self, offset: u64, bytes: usize) -> Option<u64> {
        match self.range.start.checked_add(offset) {
            Some(from) if self.range.offset_of(from, bytes).is_some() => Some(from),
            _ => None,
        }
    }
}

/// The windows that a process lists.
#[derive(Clone, Debug, Default)]
pub struct WindowList {
    places: [Option<ListedWindow>; WINDOWS_MAX],
    changes: u64,
}

impl WindowList {
    /// What is written to rings: another number for each list, 0 for an empty one.
    pub fn number(&self) -> u64 {
        if self.places.iter().all(Option::is_none) { 0 } else { self.changes }
    }

    /// The words of a place; without `puts`, a window is listed for gets only.
    pub(super) fn words(&self, index: usize, puts: bool) -> [u64; 4] {
        let window = self.places.get(index).copied().flatten();
        window.map_or([0; 4], |window| ListedWindow { puts: window.puts && puts, ..window }.words())
    }

    /// One more, of a key that is not listed, in memory that peers can map or not; `false`: it allows no
    /// access, or there are too many.
    pub fn add(&mut self, window: ListedWindow, is_mapped: bool) -> bool {
        let first = if is_mapped { 0 } else { WINDOWS_MAX - UNMAPPED_WINDOWS_MAX };
        let Some(place) = self.places[first..].iter_mut().find(|place| place.is_none()) else { return false };
        if !window.gets && !window.puts {
            return false;
        }
        *place = Some(window);
        self.changes += 1;
        true
    }

    /// Removes the window of a key; returns it if it was listed. Rings are to get the new list.
    pub fn remove(&mut self, key: u64) -> Option<ListedWindow> {
        let place = self.places.iter_mut().find(|place| place.is_some_and(|window| window.key == key))?;
        self.changes += 1;
        place.take()
    }

    /// Whether a put that is announced by the list of this number may go to a window that is no longer listed
    /// (L-27); 0: none is announced.
    pub fn is_late(&self, putting: u64) -> bool {
        putting != 0 && putting != self.number()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn window(key: u64) -> ListedWindow {
        ListedWindow { key, range: OfferedRange { start: 1000, bytes: 100 }, gets: true, puts: key.is_multiple_of(2) }
    }

    /// L-25
    #[test]
    fn a_window_holds_what_ends_inside_it() {
        assert_eq!(window(1).address_of(0, 100), Some(1000));
        assert_eq!(window(1).address_of(99, 1), Some(1099));
        assert_eq!(window(1).address_of(100, 0), Some(1100));
        for (offset, bytes) in [(0, 101), (99, 2), (101, 0), (u64::MAX, 1), (u64::MAX - 999, 1), (0, usize::MAX)] {
            assert_eq!(window(1).address_of(offset, bytes), None, "{bytes} at {offset}");
        }
    }

    /// L-25
    #[test]
    fn another_list_has_another_number() {
        let mut list = WindowList::default();
        assert_eq!((list.number(), list.words(0, true)), (0, [0; 4]));
        assert!(!list.add(ListedWindow { gets: false, ..window(1) }, true), "no peer may access it");
        assert!((0..WINDOWS_MAX as u64).all(|key| list.add(window(key), true)) && !list.add(window(99), true));
        assert_eq!((list.number(), list.words(2, true)), (12, [2, 1000, 100, 3]));
        assert_eq!(list.words(2, false), [2, 1000, 100, 1]);
        assert_eq!((list.remove(99), list.remove(3), list.number()), (None, Some(window(3)), 13));
        assert_eq!((list.words(3, true), ListedWindow::of(list.words(3, true))), ([0; 4], None));
        assert!(list.add(window(50), true));
        assert_eq!(ListedWindow::of(list.words(3, true)), Some(window(50)));
        let mut one = WindowList::default();
        assert!(one.add(window(1), true));
        assert_eq!((one.remove(1), one.number()), (Some(window(1)), 0));
        assert!(one.add(window(1), true));
        assert_eq!(one.number(), 3);
    }

    /// Windows that can't be mapped leave places to others, which may take all.
    #[test]
    fn half_of_the_places_are_for_windows_that_can_be_mapped() {
        let mut list = WindowList::default();
        assert!((0..UNMAPPED_WINDOWS_MAX as u64).all(|key| list.add(window(key), false)));
        assert!(!list.add(window(98), false));
        let left = (WINDOWS_MAX - UNMAPPED_WINDOWS_MAX) as u64;
        assert!((10..10 + left).all(|key| list.add(window(key), true)) && !list.add(window(99), true));
        assert!(list.remove(0).is_some() && list.add(window(99), true));
    }

    /// L-27
    #[test]
    fn a_put_by_an_older_list_is_late() {
        let mut list = WindowList::default();
        assert!(list.add(window(1), true) && list.add(window(2), true));
        assert!(!list.is_late(0) && !list.is_late(2) && list.is_late(1));
        list.remove(1);
        list.remove(2);
        assert!(!list.is_late(0) && list.is_late(2) && list.is_late(3));
    }
}
