//! Intrusive doubly linked queues over table indices: O(1) push, pop and unlink, no memory of their own.

/// No index.
pub const NONE: u32 = u32::MAX;

/// The neighbours of an element in one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    prev: u32,
    next: u32,
    linked: bool,
}

impl Link {
    /// Not in a queue.
    pub const UNLINKED: Link = Link { prev: NONE, next: NONE, linked: false };

    /// The element after this one, or [`NONE`].
    pub const fn next(&self) -> u32 {
        self.next
    }

    /// Whether the element is in a queue.
    pub const fn is_linked(&self) -> bool {
        self.linked
    }
}

impl Default for Link {
    fn default() -> Self {
        Link::UNLINKED
    }
}

/// Where the links of a queue's elements live.
pub trait Links {
    /// The link of element `index`.
    fn link(&mut self, index: u32) -> &mut Link;
}

/// Links found by a closure, so that one table may serve several queues.
pub struct By<'t, T: ?Sized, F>(pub &'t mut T, pub F);

impl<T: ?Sized, F: FnMut(&mut T, u32) -> &mut Link> Links for By<'_, T, F> {
    fn link(&mut self, index: u32) -> &mut Link {
        (self.1)(self.0, index)
    }
}

/// A queue: its first and last element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for List {
    fn default() -> Self {
        List::EMPTY
    }
}

impl List {
    /// No elements.
    pub const EMPTY: List = List { head: NONE, tail: NONE, len: 0 };

    /// The first element, or [`NONE`].
    pub const fn head(&self) -> u32 {
        self.head
    }

    /// The last element, or [`NONE`].
    pub const fn tail(&self) -> u32 {
        self.tail
    }

    /// How many elements.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no element.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends `index`, which must not be in a queue by this link.
    #[inline]
    pub fn push_back(&mut self, links: &mut impl Links, index: u32) {
        debug_assert!(!links.link(index).linked, "element {index} is in a queue already");
        *links.link(index) = Link { prev: self.tail, next: NONE, linked: true };
        match self.tail {
            NONE => self.head = index,
            tail => links.link(tail).next = index,
        }
        self.tail = index;
        self.len += 1;
    }

    /// Puts `index` before all others.
    pub fn push_front(&mut self, links: &mut impl Links, index: u32) {
        debug_assert!(!links.link(index).linked, "element {index} is in a queue already");
        *links.link(index) = Link { prev: NONE, next: self.head, linked: true };
        match self.head {
            NONE => self.tail = index,
            head => links.link(head).prev = index,
        }
        self.head = index;
        self.len += 1;
    }

    /// Removes `index` from any position; does nothing where it is not linked.
    #[inline]
    pub fn unlink(&mut self, links: &mut impl Links, index: u32) {
        let Link { prev, next, linked } = *links.link(index);
        if !linked {
            return;
        }
        match prev {
            NONE => self.head = next,
            prev => links.link(prev).next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => links.link(next).prev = prev,
        }
        *links.link(index) = Link::UNLINKED;
        self.len -= 1;
    }

    /// Takes the first element out.
    pub fn pop_front(&mut self, links: &mut impl Links) -> Option<u32> {
        let head = self.head;
        if head == NONE {
            return None;
        }
        self.unlink(links, head);
        Some(head)
    }

    /// The element after `index`, or [`NONE`].
    pub fn next(&self, links: &mut impl Links, index: u32) -> u32 {
        links.link(index).next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec;

    fn link_of(table: &mut [Link], index: u32) -> &mut Link {
        &mut table[index as usize]
    }

    proptest! {
        /// The queue does what a `VecDeque` does.
        #[test]
        fn behaves_like_a_deque(steps in proptest::collection::vec((0u8..4, 0u32..16), 0..200)) {
            let mut table = [Link::UNLINKED; 16];
            let mut links = By(&mut table[..], link_of);
            let mut list = List::EMPTY;
            let mut oracle: VecDeque<u32> = VecDeque::new();
            for (what, index) in steps {
                let inside = oracle.contains(&index);
                match what {
                    0 if !inside => { list.push_back(&mut links, index); oracle.push_back(index); }
                    1 if !inside => { list.push_front(&mut links, index); oracle.push_front(index); }
                    2 => { list.unlink(&mut links, index); oracle.retain(|&i| i != index); }
                    3 => prop_assert_eq!(list.pop_front(&mut links), oracle.pop_front()),
                    _ => {}
                }
                let mut seen = vec![];
                let mut at = list.head();
                while at != NONE { seen.push(at); at = list.next(&mut links, at); }
                prop_assert_eq!(&seen, &oracle.iter().copied().collect::<std::vec::Vec<_>>());
                prop_assert_eq!(list.len() as usize, oracle.len());
            }
        }
    }
}
