//! Memory that the application unmaps and maps again between requests: the device never gets the pages that
//! were there before.

use rerail_verbs::contract::PdId;

use super::super::super::registry::{Bounds, Registry};
use super::super::fake::{FakeDevice, Mapped, SharedWire};
use crate::rail::{MemoryKey, Piece};

const PAGE: usize = 4096;
const BYTES: usize = 4 * PAGE;

/// A device that pins pages, and an adopted address range.
struct Remapped {
    device: FakeDevice,
    registry: Registry,
    memory: Option<Mapped>,
    start: *mut u8,
}

impl Remapped {
    fn new(keep_adopted: bool) -> Self {
        let device = FakeDevice::new(&SharedWire::default(), 16);
        device.pin();
        let bounds = Bounds { count: 8, bytes: 1 << 30, keep_writable: true, keep_adopted };
        let mut registry = Registry::new(PdId(1), false, bounds);
        let memory = Mapped::shared(std::ptr::null_mut(), BYTES);
        let start = memory.start;
        registry.adopt(Piece { start, len: BYTES });
        Remapped { device, registry, memory: Some(memory), start }
    }

    /// Other pages at the same address, full of `byte`.
    fn remap(&mut self, byte: u8) {
        self.memory = None;
        let memory = Mapped::shared(self.start, BYTES);
        assert_eq!(memory.start, self.start, "the same address");
        memory.fill(byte);
        self.memory = Some(memory);
    }

    fn piece(&self, page: usize, pages: usize) -> Piece {
        Piece { start: self.start.wrapping_add(page * PAGE), len: pages * PAGE }
    }

    /// What a post of these pages moves, by whose registration.
    fn post(&mut self, page: usize, pages: usize, write: bool) -> (u32, u8) {
        let piece = self.piece(page, pages);
        let (place, sge) = self.registry.acquire(&mut self.device, piece, piece.len, write).expect("there is room");
        let seen = self.device.seen(&sge);
        assert!(seen.iter().all(|byte| *byte == seen[0]));
        (place, seen[0])
    }

    fn release(&mut self, place: u32) {
        self.registry.release(&mut self.device, place);
    }

    fn send(&mut self, write: bool) -> u8 {
        let (place, seen) = self.post(0, 4, write);
        self.release(place);
        seen
    }

    fn expose(&mut self, write: bool) -> MemoryKey {
        let piece = self.piece(0, 4);
        self.registry.register(&mut self.device, piece, write).expect("there is room")
    }
}

#[test]
fn remapped_memory_is_registered_again() {
    for write in [false, true] {
        let mut memory = Remapped::new(false);
        for byte in 1..5 {
            memory.remap(byte);
            assert_eq!(memory.send(write), byte);
            let key = memory.expose(write);
            memory.registry.deregister(&mut memory.device, key);
            assert_eq!(memory.device.registrations(), 0, "nothing outlives its request");
        }
        memory.registry.disown(memory.piece(0, 4));
        memory.send(write);
        assert_eq!(memory.device.registrations(), 1, "of other memory it is kept");
        memory.registry.clear(&mut memory.device);
    }
}

/// With the setting it is kept, and `forget` needed; the first half shows that this test finds old pages.
#[test]
fn kept_registrations_of_adopted_memory_have_old_pages_until_forgotten() {
    let mut memory = Remapped::new(true);
    memory.remap(1);
    assert_eq!(memory.send(false), 1);
    memory.remap(2);
    assert_eq!(memory.send(false), 1, "pinned");
    let gone = memory.piece(0, 4);
    memory.registry.forget(&mut memory.device, gone);
    assert_eq!(memory.send(false), 2);
    memory.registry.clear(&mut memory.device);
}

/// A device that follows the page tables needs no call.
#[test]
fn registrations_on_demand_are_kept_of_adopted_memory() {
    let mut memory = Remapped::new(false);
    memory.registry.set_on_demand(true);
    for byte in 1..5 {
        memory.remap(byte);
        assert_eq!((memory.send(false), memory.device.registrations()), (byte, 1));
    }
    memory.registry.clear(&mut memory.device);
}

/// Stripes of one message, and messages at the same time, share a registration; after the first of them is
/// over nothing more does, as its part may be mapped anew while others go on.
#[test]
fn a_registration_is_shared_until_its_first_user_leaves() {
    let mut memory = Remapped::new(false);
    memory.remap(1);
    let (whole, _) = memory.post(0, 4, false);
    let (part, _) = memory.post(1, 1, false);
    assert_eq!(whole, part);
    memory.release(part);
    let (other, _) = memory.post(1, 1, false);
    assert_ne!(whole, other);
    assert_eq!(memory.device.registrations(), 2);
    memory.release(whole);
    memory.release(other);
    assert_eq!(memory.device.registrations(), 0);
    // A key and a post.
    let key = memory.expose(false);
    let (shared, _) = memory.post(0, 1, false);
    memory.registry.deregister(&mut memory.device, key);
    assert_ne!(memory.post(0, 1, false).0, shared);
}
