//! Who shares which registration, and when it ends.

use rerail_verbs::contract::PdId;

use super::super::registry::Registry;
use super::fake::{FakeDevice, SharedWire};
use crate::rail::{MemoryKey, Piece};

struct Bench {
    device: FakeDevice,
    registry: Registry,
    memory: Vec<u8>,
}

impl Bench {
    fn new(kept: u16) -> Self {
        let device = FakeDevice::new(&SharedWire::default(), 16);
        Bench { device, registry: Registry::new(PdId(1), true, kept), memory: vec![0; 16384] }
    }

    fn piece(&mut self, at: usize, len: usize) -> Piece {
        Piece { start: self.memory[at..at + len].as_mut_ptr(), len }
    }

    fn expose(&mut self, at: usize, len: usize, write: bool) -> MemoryKey {
        let piece = self.piece(at, len);
        self.registry.register(&mut self.device, piece, write).unwrap()
    }

    /// The registration's number.
    fn acquire(&mut self, at: usize, len: usize, write: bool) -> u32 {
        let piece = self.piece(at, len);
        self.registry.acquire(&mut self.device, piece, write).unwrap().0
    }

    fn release(&mut self, place: u32) {
        self.registry.release(&mut self.device, place);
    }

    fn count(&self) -> usize {
        self.device.registrations()
    }
}

#[test]
fn posts_share_what_covers_them() {
    let mut bench = Bench::new(1);
    let whole = bench.acquire(100, 1000, false);
    assert_eq!(bench.acquire(100, 1000, false), whole);
    assert_eq!(bench.acquire(600, 500, false), whole);
    // Over the end, and for writing.
    let more = bench.acquire(600, 501, false);
    let written = bench.acquire(100, 1000, true);
    assert!(more != whole && written != whole && bench.count() == 3);
    // What may be written may also be read; the oldest that serves is taken.
    [whole, whole, whole, more].into_iter().for_each(|place| bench.release(place));
    // One is kept: that which was used last.
    assert_eq!(bench.count(), 2);
    bench.release(written);
    assert_eq!(bench.count(), 1);
    assert_eq!(bench.acquire(200, 10, false), written);
}

/// Own writes share what peers may read, and keep it; nothing shares what peers may write.
#[test]
fn what_peers_may_write_is_shared_with_nobody() {
    let mut bench = Bench::new(0);
    let readable = bench.expose(0, 4096, false);
    let shared = bench.acquire(0, 100, false);
    assert_eq!(bench.count(), 1);
    let own = bench.acquire(0, 100, true);
    assert_eq!(bench.count(), 2, "a read needs one that can be written");
    bench.registry.deregister(&mut bench.device, readable);
    assert_eq!(bench.count(), 2, "in use");
    bench.release(shared);
    assert_eq!(bench.count(), 1);
    bench.release(own);
    assert_eq!(bench.count(), 0);

    let writable = bench.expose(0, 4096, true);
    let own = bench.acquire(0, 100, false);
    assert_eq!(bench.count(), 2);
    bench.registry.deregister(&mut bench.device, writable);
    assert_eq!(bench.count(), 1);
    bench.release(own);
    assert_eq!(bench.count(), 0);
    // A key that is over names nothing.
    bench.registry.deregister(&mut bench.device, writable);
}

#[test]
fn forgotten_memory_is_not_kept() {
    let mut bench = Bench::new(8);
    let (a, b, c) = (bench.acquire(0, 100, false), bench.acquire(200, 100, false), bench.acquire(400, 100, false));
    [a, b].into_iter().for_each(|place| bench.release(place));
    bench.expose(210, 10, true);
    assert_eq!(bench.count(), 4);
    // Touches the second, and the one in use, which stays.
    let memory = bench.piece(250, 200);
    bench.registry.forget(&mut bench.device, memory);
    assert_eq!(bench.count(), 3);
    let memory = bench.piece(215, 1);
    bench.registry.forget(&mut bench.device, memory);
    assert_eq!(bench.count(), 2);
    bench.release(c);
    bench.registry.clear(&mut bench.device);
    assert_eq!(bench.count(), 0);
}

/// On the wire stands nothing that depends on where memory lies, but for its place in a page.
#[test]
fn addresses_come_from_a_counter() {
    let mut bench = Bench::new(0);
    let start = bench.memory.as_ptr().addr() % 4096;
    let keys = [bench.expose(0, 4096, false), bench.expose(0, 10, false), bench.expose(5000, 10, true)];
    let addresses = keys.map(|key| key.address);
    assert_eq!(addresses[0], (1 << 32) + start as u64);
    assert!(addresses.iter().all(|address| address % 4096 == start as u64 || *address == addresses[2]));
    assert_eq!(addresses[2] % 4096, (start as u64 + 5000) % 4096);
    // A free page at least between the end of one and the start of the next.
    assert!(addresses[1] >= addresses[0] + 4096 + 4096 && addresses[2] > addresses[1] + 10 + 4096);
    assert!(addresses[2] < (1 << 32) + 10 * 4096);
}
