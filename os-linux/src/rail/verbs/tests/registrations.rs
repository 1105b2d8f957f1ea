//! Which registrations are shared, and when they end.

mod model;
mod remapped;

use rerail_verbs::contract::PdId;

use super::super::registry::{Bounds, Registry};
use super::fake::{FakeDevice, SharedWire};
use crate::rail::{MemoryKey, Piece, RailCounters};

const BYTES: usize = 16384;

pub struct Bench {
    device: FakeDevice,
    registry: Registry,
    memory: Vec<u8>,
}

impl Bench {
    fn bounded(count: u32, bytes: u64, keep_writable: bool) -> Self {
        Self::over(false, Bounds { count, bytes, keep_writable, keep_adopted: false })
    }

    /// On a device that allows addresses of our choice, or as those of libibverbs are.
    fn over(iova: bool, bounds: Bounds) -> Self {
        let device = FakeDevice::new(&SharedWire::default(), 16);
        Bench { device, registry: Registry::new(PdId(1), iova, bounds), memory: vec![0; BYTES] }
    }

    fn new(count: u32) -> Self {
        Self::bounded(count, 1 << 30, false)
    }

    fn piece(&mut self, at: usize, len: usize) -> Piece {
        Piece { start: self.memory[at..at + len].as_mut_ptr(), len }
    }

    fn try_expose(&mut self, at: usize, len: usize, write: bool) -> Option<MemoryKey> {
        let piece = self.piece(at, len);
        self.registry.register(&mut self.device, piece, write).ok()
    }

    fn expose(&mut self, at: usize, len: usize, write: bool) -> MemoryKey {
        self.try_expose(at, len, write).expect("there is room")
    }

    fn give_back(&mut self, key: MemoryKey) {
        self.registry.deregister(&mut self.device, key);
    }

    /// The registration's number, for a post in a part of `extent` bytes.
    fn try_acquire(&mut self, at: usize, len: usize, extent: usize, write: bool) -> Option<u32> {
        let piece = self.piece(at, len);
        let (place, sge) = self.registry.acquire(&mut self.device, piece, extent, write)?;
        assert_eq!(sge.len() as usize, len);
        Some(place)
    }

    fn acquire(&mut self, at: usize, len: usize, write: bool) -> u32 {
        self.try_acquire(at, len, len, write).expect("there is room")
    }

    fn release(&mut self, place: u32) {
        self.registry.release(&mut self.device, place);
    }

    fn forget(&mut self, at: usize, len: usize) {
        let memory = self.piece(at, len);
        self.registry.forget(&mut self.device, memory);
    }

    fn count(&self) -> usize {
        self.device.registrations()
    }

    fn counters(&self) -> RailCounters {
        let mut counters = RailCounters::default();
        self.registry.count(&mut counters);
        counters
    }
}

#[test]
fn posts_share_a_covering_registration() {
    let mut bench = Bench::new(8);
    let whole = bench.acquire(100, 1000, false);
    assert_eq!(bench.acquire(100, 1000, false), whole);
    assert_eq!(bench.acquire(600, 500, false), whole);
    // Over the end, and for writing.
    let more = bench.acquire(600, 501, false);
    let written = bench.acquire(100, 1000, true);
    assert!(more != whole && written != whole && bench.count() == 3);
    [whole, whole, whole, more, written].into_iter().for_each(|place| bench.release(place));
    assert_eq!(bench.count(), 3, "they are kept");
    // Writable memory may also be read, where no other registration exists.
    bench.forget(0, 100 + 1000 + 1);
    assert_eq!(bench.count(), 0);
    let written = bench.acquire(100, 1000, true);
    assert_eq!(bench.acquire(200, 10, false), written);
    let counters = bench.counters();
    assert_eq!((counters.registration_hits, counters.registration_misses, counters.registrations), (3, 4, 4));
    assert_eq!((counters.registration_evictions, counters.registered_bytes), (0, 1000));
}

/// Segment after segment of a part: one registration.
#[test]
fn a_part_is_registered_once() {
    let mut bench = Bench::new(8);
    let (part, segment) = (8192, 512);
    for round in 0..3 {
        let mut places = Vec::new();
        for at in (0..part).step_by(segment) {
            places.push(bench.try_acquire(at, segment, part - at, true).unwrap());
        }
        places.into_iter().for_each(|place| bench.release(place));
        let counters = bench.counters();
        assert_eq!((counters.registrations, counters.registration_hits), (1, (round + 1) * 16 - 1));
    }
    assert_eq!(bench.counters().registered_bytes, part as u64);
    // Where the part is more than may be registered, its segments are.
    let mut bench = Bench::bounded(8, 1024, false);
    let first = bench.try_acquire(0, 512, part, true).unwrap();
    let second = bench.try_acquire(512, 512, part - 512, true).unwrap();
    assert_eq!(bench.try_acquire(1024, 512, part - 1024, true), None, "both are in use");
    bench.release(first);
    assert!(bench.try_acquire(1024, 512, part - 1024, true).is_some() && bench.count() == 2);
    bench.release(second);
}

/// Own writes share registrations that peers may read, which are kept; nothing shares those that peers may
/// write, and they are not.
#[test]
fn remotely_writable_registrations_are_not_shared() {
    let mut bench = Bench::new(8);
    let readable = bench.expose(0, 4096, false);
    let shared = bench.acquire(0, 100, false);
    assert_eq!(bench.count(), 1);
    let own = bench.acquire(0, 100, true);
    assert_eq!(bench.count(), 2, "a read needs one that can be written");
    bench.give_back(readable);
    bench.release(shared);
    assert_eq!(bench.expose(0, 4096, false), readable, "kept");
    assert_eq!(bench.expose(96, 1000, false), MemoryKey { address: readable.address + 96, ..readable });
    assert_eq!(bench.count(), 2);
    bench.release(own);
    bench.forget(0, 4096);
    assert_eq!(bench.count(), 0);

    let writable = bench.expose(0, 4096, true);
    let other = bench.expose(0, 4096, true);
    assert_ne!(writable.key, other.key);
    let own = bench.acquire(0, 100, true);
    assert_eq!(bench.count(), 3);
    bench.give_back(writable);
    assert_eq!(bench.count(), 2);
    // A key that is over names nothing.
    bench.give_back(writable);
    assert_eq!(bench.count(), 2);
    bench.give_back(other);
    bench.release(own);
    assert!(bench.device.registered().iter().all(|(_, _, remote_write)| !remote_write));
}

/// The setting keeps them, until a connection ends.
#[test]
fn writable_registrations_are_kept_until_a_connection_ends() {
    let mut bench = Bench::bounded(8, 1 << 30, true);
    let key = bench.expose(0, 4096, true);
    bench.give_back(key);
    assert_eq!(bench.expose(0, 4096, true), key);
    let own = bench.acquire(10, 10, true);
    assert_eq!(bench.count(), 1);
    bench.expose(8192, 10, true);
    bench.expose(9000, 10, true);
    bench.registry.fence(&mut bench.device);
    assert_eq!(bench.count(), 3, "all in use");
    bench.give_back(key);
    bench.release(own);
    assert_eq!(bench.count(), 2, "but not kept any more");
    let again = bench.expose(0, 4096, true);
    assert_ne!(again, key);
    bench.give_back(again);
    bench.registry.fence(&mut bench.device);
    assert_eq!(bench.count(), 2);
}

#[test]
fn least_recently_used_idle_registration_is_evicted_first() {
    let mut bench = Bench::bounded(3, 1000, false);
    let [a, b, c] = [0, 300, 600].map(|at| bench.acquire(at, 300, false));
    assert_eq!(bench.try_acquire(2000, 1, 1, false), None, "full");
    assert_eq!(bench.try_expose(2000, 1, true), None, "full");
    [b, a, c].into_iter().for_each(|place| bench.release(place));
    // The oldest, b, is used once more and so the newest.
    let again = bench.acquire(350, 10, false);
    assert_eq!(again, b);
    bench.release(again);
    bench.acquire(2000, 300, false);
    assert_eq!((bench.count(), bench.counters().registration_evictions), (3, 1), "too many: a");
    bench.acquire(3000, 200, false);
    assert_eq!((bench.count(), bench.counters().registration_evictions), (3, 2), "too many: c");
    assert_eq!(bench.acquire(300, 300, false), b);
    assert_eq!(bench.try_acquire(4000, 1, 1, false), None);
    bench.release(b);
    bench.acquire(4000, 400, false);
    assert_eq!(bench.counters().registered_bytes, 900);
    // Longer than all together may be.
    let mut bench = Bench::bounded(3, 1000, false);
    assert_eq!(bench.try_expose(0, 1001, false), None);
    assert!(bench.try_expose(0, 1000, false).is_some());
}

/// A shortage of the system is resolved by giving something back; a refusal for another reason would remain,
/// so nothing is given back for it.
#[test]
fn only_for_room_something_is_given_back() {
    for (errno, left, kept) in [(libc::ENOMEM, 2, 1), (libc::ENOSPC, 2, 1), (libc::EAGAIN, 2, 1), (libc::EINVAL, 3, 3)]
    {
        let mut bench = Bench::new(8);
        for at in [0, 300, 600] {
            let place = bench.acquire(at, 100, false);
            bench.release(place);
        }
        bench.device.refuse_beyond(2, errno);
        assert_eq!(bench.try_acquire(2000, 100, 100, false).is_some(), kept == 1, "{errno}");
        assert_eq!((bench.count(), bench.counters().registration_evictions), (left, 3 - kept), "{errno}");
    }
}

/// A buffer that is used from different places on ends up in one registration.
#[test]
fn overlapping_registrations_become_one() {
    let mut bench = Bench::new(8);
    let use_once = |bench: &mut Bench, at, len| {
        let place = bench.acquire(at, len, false);
        bench.release(place);
        bench.count()
    };
    assert_eq!(use_once(&mut bench, 1000, 1000), 1);
    assert_eq!(use_once(&mut bench, 1500, 1000), 1);
    assert_eq!(use_once(&mut bench, 1000, 1500), 1);
    assert_eq!((bench.counters().registrations, bench.counters().registered_bytes), (2, 1500));
    // It would more than double the requested bytes, or only touches.
    assert_eq!(use_once(&mut bench, 2400, 200), 2);
    assert_eq!(use_once(&mut bench, 0, 1000), 3);
    // All inside go; those in use at their last user's end.
    let held = bench.acquire(0, 10, false);
    assert_eq!(use_once(&mut bench, 0, 4000), 2);
    bench.release(held);
    assert_eq!(bench.count(), 1);
}

#[test]
fn forgotten_memory_is_deregistered() {
    let mut bench = Bench::new(8);
    let (a, b, c) = (bench.acquire(0, 100, false), bench.acquire(200, 100, false), bench.acquire(400, 100, false));
    [a, b].into_iter().for_each(|place| bench.release(place));
    let key = bench.expose(210, 10, true);
    assert_eq!(bench.count(), 4);
    // Touches the second, and all of the exposed one, and the one in use, which stays.
    bench.forget(205, 200);
    assert_eq!(bench.count(), 2);
    bench.give_back(key);
    assert_eq!(bench.count(), 2);
    let other = bench.acquire(450, 10, false);
    assert_ne!(other, c, "no search finds it");
    bench.release(c);
    bench.release(other);
    assert_eq!(bench.count(), 2);
    bench.registry.clear(&mut bench.device);
    assert_eq!((bench.count(), bench.registry.len()), (0, 0));
    bench.release(c);
}

/// A key stays good for the memory that was not forgotten.
#[test]
fn an_exposed_registration_outlives_the_end_of_a_part_of_its_memory() {
    let mut bench = Bench::new(8);
    let whole = bench.expose(0, 1000, false);
    let part = bench.expose(0, 100, false);
    assert_eq!(bench.count(), 1);
    bench.forget(500, 500);
    assert_eq!(bench.count(), 1);
    bench.give_back(whole);
    assert_eq!(bench.count(), 1, "the other one's");
    bench.give_back(part);
    assert_eq!(bench.count(), 0);
}

/// Memory mapped again has its earlier address, and a device may give the key again: an old key given back
/// late is not taken for the new one.
#[test]
fn late_deregistration_of_an_old_key_keeps_the_new_one() {
    let mut bench = Bench::new(8);
    bench.device.reuse_keys();
    let old = bench.expose(0, 4096, true);
    assert_eq!(old.address, bench.memory.as_ptr().addr() as u64);
    bench.forget(0, 4096);
    let new = bench.expose(0, 4096, true);
    assert_eq!((new.key as u32, new.address), (old.key as u32, old.address), "to the peer they are the same");
    bench.give_back(old);
    assert_eq!(bench.count(), 1);
    // Neither does one from before the device was opened again.
    bench.registry.clear(&mut bench.device);
    bench.registry = bench.registry.renewed(PdId(1), false);
    let newest = bench.expose(0, 4096, true);
    assert_eq!((newest.key as u32, newest.address), (new.key as u32, new.address));
    bench.give_back(new);
    assert_eq!(bench.count(), 1);
    bench.give_back(newest);
    assert_eq!(bench.count(), 0);
}

/// Nothing on the wire depends on the address of memory, but for its place in a page, where a device
/// allows that.
#[test]
fn addresses_come_from_a_counter() {
    let mut bench = Bench::over(true, Bounds { count: 8, bytes: 1 << 30, keep_writable: false, keep_adopted: false });
    let start = bench.memory.as_ptr().addr() % 4096;
    let keys = [bench.expose(0, 4096, false), bench.expose(0, 10, true), bench.expose(5000, 10, true)];
    let addresses = keys.map(|key| key.address);
    assert_eq!(addresses[0], (1 << 32) + start as u64);
    assert!(addresses.iter().all(|address| address % 4096 == start as u64 || *address == addresses[2]));
    assert_eq!(addresses[2] % 4096, (start as u64 + 5000) % 4096);
    // A free page at least between the end of one and the start of the next.
    assert!(addresses[1] >= addresses[0] + 4096 + 4096 && addresses[2] > addresses[1] + 10 + 4096);
    assert!(addresses[2] < (1 << 32) + 10 * 4096);
}

/// All payload memory, or none: registrations on demand are kept, shared and given back as pinned ones are.
#[test]
fn payload_memory_is_registered_on_demand() {
    let mut bench = Bench::new(8);
    let pinned = bench.acquire(0, 100, false);
    assert_eq!(bench.device.unpinned(), 0);
    bench.registry.set_on_demand(true);
    assert_eq!(bench.acquire(0, 100, false), pinned, "it is kept");
    let key = bench.expose(1000, 100, true);
    let place = bench.acquire(3000, 100, true);
    assert_eq!((bench.device.unpinned(), bench.count()), (2, 3));
    bench.give_back(key);
    bench.release(place);
    assert_eq!((bench.device.unpinned(), bench.count()), (1, 2));
    // A device that was opened again may offer less.
    bench.registry.clear(&mut bench.device);
    bench.registry = bench.registry.renewed(PdId(1), true);
    bench.acquire(3000, 100, true);
    assert_eq!(bench.device.unpinned(), 0);
}
