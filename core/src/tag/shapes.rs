//! The shapes of selector that are in use: a message is looked up once for each.
//!
//! Programs use few (a tag from one source, a tag from any, any tag of a communicator), so the table is small; what does
//! not fit is for the caller to keep elsewhere.

use super::pattern::Shape;

/// Shapes of selector that are looked up by hash at once. Receives of further shapes are matched one selector at a time.
pub const SHAPES_MAX: usize = 16;

/// Which shapes are in use, and by how many groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shapes {
    shapes: [Shape; SHAPES_MAX],
    /// Groups of each shape; 0: the place is free.
    users: [u32; SHAPES_MAX],
    /// The places with users: bit per place, so that those without cost nothing.
    used: u16,
}

const _: () = assert!(SHAPES_MAX == u16::BITS as usize);

impl Shapes {
    pub(super) const fn new() -> Self {
        Shapes { shapes: [Shape::BLANK; SHAPES_MAX], users: [0; SHAPES_MAX], used: 0 }
    }

    /// The place that the shape has, or could be given.
    #[inline]
    pub(super) fn place_for(&self, shape: Shape) -> Option<u8> {
        let mut used = self.used;
        while used != 0 {
            let place = used.trailing_zeros() as u8;
            if self.shapes[usize::from(place) % SHAPES_MAX] == shape {
                return Some(place);
            }
            used &= used - 1;
        }
        (self.used != u16::MAX).then(|| self.used.trailing_ones() as u8)
    }

    /// One more group of the shape, at the place that was named for it.
    pub(super) fn hold(&mut self, place: u8, shape: Shape) {
        let index = usize::from(place);
        debug_assert!(self.users[index] == 0 || self.shapes[index] == shape);
        self.shapes[index] = shape;
        self.users[index] += 1;
        self.used |= 1 << place;
    }

    /// One group less.
    pub(super) fn release(&mut self, place: u8) {
        let users = &mut self.users[usize::from(place)];
        *users -= 1;
        if *users == 0 {
            self.used &= !(1 << place);
        }
    }

    /// The shape at a place in use.
    #[inline(always)]
    pub(super) fn at(&self, place: u8) -> &Shape {
        &self.shapes[usize::from(place) % SHAPES_MAX]
    }

    /// The places in use: bit per place.
    #[inline(always)]
    pub(super) const fn used(&self) -> u16 {
        self.used
    }
}
