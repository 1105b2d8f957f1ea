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
}

impl Shapes {
    pub(super) const fn new() -> Self {
        Shapes { shapes: [Shape::BLANK; SHAPES_MAX], users: [0; SHAPES_MAX] }
    }

    /// The place that the shape has, or could be given.
    pub(super) fn place_for(&self, shape: Shape) -> Option<u8> {
        let has = (0..SHAPES_MAX).find(|&place| self.users[place] > 0 && self.shapes[place] == shape);
        has.or_else(|| self.users.iter().position(|&users| users == 0)).map(|place| place as u8)
    }

    /// One more group of the shape, at the place that was named for it.
    pub(super) fn hold(&mut self, place: u8, shape: Shape) {
        let place = usize::from(place);
        debug_assert!(self.users[place] == 0 || self.shapes[place] == shape);
        self.shapes[place] = shape;
        self.users[place] += 1;
    }

    /// One group less.
    pub(super) fn release(&mut self, place: u8) {
        self.users[usize::from(place)] -= 1;
    }

    /// All in use.
    pub(super) fn active(&self) -> impl Iterator<Item = &Shape> {
        self.shapes.iter().zip(&self.users).filter(|&(_, &users)| users > 0).map(|(shape, _)| shape)
    }
}
