//! The shapes of selector that are in use: a message is looked up once for each.
//!
//! Programs use few (a tag from one source, a tag from any, any tag of a communicator), so the table is
//! small; what does not fit is for the caller to keep elsewhere.

use super::pattern::Shape;

/// Shapes of selector that are looked up by hash at once. Receives of further shapes are matched one selector
/// at a time.
pub const SHAPES_MAX: usize = 16;

/// So many shapes that no receive has any more are remembered at least: programs come back to them.
const WARM: u32 = 4;

/// Which shapes are in use, and by how many groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shapes {
    shapes: [Shape; SHAPES_MAX],
    /// Groups of each shape.
    users: [u32; SHAPES_MAX],
    /// The places that have a shape, untagged and tagged: bit per place, all with users among them.
    used: [u16; 2],
    /// The only shape of each domain, untagged and tagged.
    sole: [Sole; 2],
    /// Receives of shapes that have no place are posted.
    others: bool,
    /// Messages are not to be matched by the only shape.
    stopped: bool,
}

/// The only shape of a domain and its place. Where there are several, or none, or receives elsewhere: a shape
/// that no receive has, and a place that is not used.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct Sole {
    pub(super) shape: Shape,
    place: u64,
}

/// The place of no receive.
const NOT_ONE: u64 = u8::MAX as u64;

const _: () = assert!(SHAPES_MAX == u16::BITS as usize);

impl Sole {
    const NONE: Sole = Sole { shape: Shape::NONE, place: NOT_ONE };

    /// The place, if there is one.
    #[inline(always)]
    pub(super) fn place(&self) -> Option<u8> {
        if self.place == NOT_ONE { None } else { Some(self.place as u8) }
    }

    /// The place, or that of no receive.
    #[inline(always)]
    pub(super) const fn at(&self) -> u64 {
        self.place
    }
}

impl Shapes {
    pub(super) const fn new() -> Self {
        Shapes {
            shapes: [Shape::BLANK; SHAPES_MAX],
            users: [0; SHAPES_MAX],
            used: [0; 2],
            sole: [Sole::NONE; 2],
            others: false,
            stopped: false,
        }
    }

    /// The place that the shape has.
    #[inline(always)]
    pub(super) fn find(&self, shape: &Shape) -> Option<u8> {
        let mut used = self.used(shape.tagged());
        while used != 0 {
            let place = used.trailing_zeros() as u8;
            if self.at(place) == shape {
                return Some(place);
            }
            used &= used - 1;
        }
        None
    }

    /// The place that the shape has, or is given now. `None`: all are taken.
    pub(super) fn place_for(&mut self, shape: Shape) -> Option<u8> {
        let known = self.find(&shape);
        if known.is_some() {
            return known;
        }
        if self.all().count_ones() >= WARM {
            self.sweep();
        }
        let place = self.all().trailing_ones() as u8;
        *self.shapes.get_mut(usize::from(place))? = shape;
        self.used[usize::from(shape.tagged())] |= 1 << place;
        self.find_sole();
        Some(place)
    }

    /// One more group of the shape at a place.
    #[inline(always)]
    pub(super) fn hold(&mut self, place: u8) {
        self.users[usize::from(place) % SHAPES_MAX] += 1;
    }

    /// One group less. A place without any keeps its shape for a while, as the next receive is mostly of the
    /// same one.
    #[inline(always)]
    pub(super) fn release(&mut self, place: u8) {
        self.users[usize::from(place) % SHAPES_MAX] -= 1;
    }

    /// Frees the places that have no group, so that no message is looked for there.
    fn sweep(&mut self) {
        for place in 0..SHAPES_MAX as u8 {
            if self.is_idle(place) {
                self.used = self.used.map(|used| used & !(1 << place));
            }
        }
        self.find_sole();
    }

    /// Receives are posted of shapes that have no place, or there are none any more.
    #[cold]
    pub(super) fn set_others(&mut self, others: bool) {
        self.others = others;
        self.find_sole();
    }

    /// Whether [`sole`](Self::sole) is to have a shape where there is only one.
    pub(super) fn stop(&mut self, stopped: bool) {
        self.stopped = stopped;
        self.find_sole();
    }

    pub(super) const fn is_stopped(&self) -> bool {
        self.stopped
    }

    fn find_sole(&mut self) {
        let is_one = |used: u16| used.is_power_of_two() && !self.others && !self.stopped;
        self.sole = self.used.map(|used| match is_one(used) {
            true => Sole { shape: *self.at(used.trailing_zeros() as u8), place: used.trailing_zeros().into() },
            false => Sole::NONE,
        });
    }

    /// The shape of all posted receives of a domain, where that is one. Else its place is that of no receive.
    #[inline(always)]
    pub(super) fn sole(&self, tagged: bool) -> &Sole {
        &self.sole[usize::from(tagged)]
    }

    /// Whether a place has no group.
    pub(super) fn is_idle(&self, place: u8) -> bool {
        self.users[usize::from(place) % SHAPES_MAX] == 0
    }

    /// The shape at a place.
    #[inline(always)]
    pub(super) fn at(&self, place: u8) -> &Shape {
        &self.shapes[usize::from(place) % SHAPES_MAX]
    }

    /// The places that have a shape of a domain: bit per place.
    #[inline(always)]
    pub(super) const fn used(&self, tagged: bool) -> u16 {
        self.used[tagged as usize]
    }

    const fn all(&self) -> u16 {
        self.used[0] | self.used[1]
    }
}

#[cfg(test)]
mod tests {
    use super::super::pattern::Pattern;
    use super::*;
    use crate::api::request::{Selector, TagMatch};

    fn shape(number: u32) -> Shape {
        let tag = TagMatch::Tagged { tag: 0, ignore: 1 << number };
        Pattern::of_selector(&Selector { source: None, tag }).shape()
    }

    #[test]
    fn a_few_shapes_without_receives_are_remembered_and_no_more() {
        let mut shapes = Shapes::new();
        for number in 0..WARM {
            assert_eq!(shapes.place_for(shape(number)), Some(number as u8));
        }
        assert_eq!((shapes.used(true), shapes.used(false)), (0b1111, 0));
        assert_eq!(shapes.find(&shape(2)), Some(2));
        shapes.hold(1);
        assert_eq!(shapes.place_for(shape(WARM)), Some(0), "places without receives are free then");
        assert_eq!(shapes.used(true), 0b11);
        assert_eq!((shapes.find(&shape(1)), shapes.find(&shape(2))), (Some(1), None));
    }
}
