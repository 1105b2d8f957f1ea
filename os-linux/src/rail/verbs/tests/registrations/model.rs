//! The registry against a slow and obvious model: a list of registrations, each a row of booleans, one per
//! byte of a small memory. After every step the device holds exactly the model's registrations, oldest first.

use proptest::prelude::*;

use super::Bench;
use crate::rail::MemoryKey;

/// Bytes of the memory.
const BYTES: usize = 48;

#[derive(Clone, Copy, Debug)]
enum Act {
    Acquire { at: usize, len: usize, more: usize, write: bool },
    Release(usize),
    Expose { at: usize, len: usize, write: bool },
    GiveBack(usize),
    Forget { at: usize, len: usize },
    Fence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Source,
    Target,
    Readable,
    Writable,
}

#[derive(Clone, Debug)]
struct Row {
    number: usize,
    map: [bool; BYTES],
    sort: Sort,
    posts: u32,
    keys: u32,
    hidden: bool,
    /// The application may unmap it once no request names it.
    transient: bool,
    idle_since: usize,
}

impl Row {
    fn start(&self) -> usize {
        self.map.iter().position(|byte| *byte).expect("not empty")
    }

    fn len(&self) -> usize {
        self.map.iter().filter(|byte| **byte).count()
    }

    fn is_idle(&self) -> bool {
        self.posts + self.keys == 0
    }

    fn holds(&self, map: &[bool; BYTES]) -> bool {
        (0..BYTES).all(|byte| self.map[byte] || !map[byte])
    }

    fn lies_in(&self, map: &[bool; BYTES]) -> bool {
        (0..BYTES).all(|byte| map[byte] || !self.map[byte])
    }

    fn meets(&self, map: &[bool; BYTES]) -> bool {
        (0..BYTES).any(|byte| map[byte] && self.map[byte])
    }
}

fn range(at: usize, len: usize) -> [bool; BYTES] {
    std::array::from_fn(|byte| byte >= at && byte < at + len)
}

struct Model {
    rows: Vec<Row>,
    count: usize,
    bytes: usize,
    keep_writable: bool,
    /// What the application maps and unmaps.
    adopted: [bool; BYTES],
    steps: usize,
    made: usize,
}

impl Model {
    fn obtain(&mut self, at: usize, len: usize, extent: usize, sort: Sort) -> Option<usize> {
        let serving: &[Sort] = match sort {
            Sort::Source => &[Sort::Readable, Sort::Source, Sort::Target, Sort::Writable],
            Sort::Target => &[Sort::Target, Sort::Writable],
            Sort::Readable => &[Sort::Readable],
            Sort::Writable => &[Sort::Writable],
        };
        let wanted = range(at, len);
        for sort in serving {
            // Of several, none lies in another: the one that starts last.
            let serves = |row: &&Row| row.sort == *sort && !row.hidden && row.holds(&wanted);
            if let Some(row) = self.rows.iter().filter(serves).max_by_key(|row| row.start()) {
                return Some(row.number);
            }
        }
        let mut order: Vec<&Row> = self.rows.iter().filter(|row| row.sort == sort && !row.hidden).collect();
        order.sort_by_key(|row| row.start());
        let mut grown = range(at, extent);
        for row in order.into_iter().filter(|row| row.is_idle() && row.meets(&range(at, extent))) {
            let both = std::array::from_fn(|byte| grown[byte] || row.map[byte]);
            if both.iter().filter(|byte| **byte).count() <= 2 * extent {
                grown = both;
            }
        }
        [grown, range(at, extent), wanted].into_iter().find_map(|map| self.make(map, sort))
    }

    fn make(&mut self, map: [bool; BYTES], sort: Sort) -> Option<usize> {
        let len = map.iter().filter(|byte| **byte).count();
        let busy = || self.rows.iter().filter(|row| !row.is_idle());
        if busy().count() >= self.count || busy().map(Row::len).sum::<usize>() + len > self.bytes {
            return None;
        }
        self.rows.retain(|row| row.sort != sort || row.hidden || !row.is_idle() || !row.lies_in(&map));
        while self.rows.len() >= self.count || self.rows.iter().map(Row::len).sum::<usize>() + len > self.bytes {
            let oldest = self.rows.iter().filter(|row| row.is_idle()).map(|row| row.idle_since).min();
            self.rows.retain(|row| !row.is_idle() || Some(row.idle_since) != oldest);
        }
        let hidden = sort == Sort::Writable && !self.keep_writable;
        if !hidden {
            let inside = self.rows.iter_mut().filter(|row| row.sort == sort && row.lies_in(&map));
            inside.for_each(|row| row.hidden = true);
        }
        self.made += 1;
        let number = self.made;
        let transient = (0..BYTES).any(|byte| map[byte] && self.adopted[byte]);
        self.rows.push(Row { number, map, sort, posts: 0, keys: 0, hidden, transient, idle_since: 0 });
        Some(number)
    }

    fn row(&mut self, number: usize) -> &mut Row {
        self.rows.iter_mut().find(|row| row.number == number).expect("in use")
    }

    /// After something was given back.
    fn complete_release(&mut self, number: usize) {
        let steps = self.steps;
        let row = self.row(number);
        row.hidden |= row.transient;
        if row.is_idle() {
            row.idle_since = steps;
        }
        self.rows.retain(|row| !row.is_idle() || !row.hidden);
    }

    fn forget(&mut self, gone: &[bool; BYTES]) -> Vec<usize> {
        let ends = |row: &Row| row.meets(gone) && (row.is_idle() || row.posts == 0 && row.lies_in(gone));
        let ended = self.rows.iter().filter(|row| ends(row)).map(|row| row.number).collect();
        self.rows.retain(|row| !ends(row));
        self.rows.iter_mut().filter(|row| row.meets(gone)).for_each(|row| row.hidden = true);
        ended
    }

    fn fence(&mut self) {
        self.rows.retain(|row| row.sort != Sort::Writable || !row.is_idle());
        self.rows.iter_mut().filter(|row| row.sort == Sort::Writable).for_each(|row| row.hidden = true);
    }
}

/// Runs the acts on both and compares after each.
fn run(acts: &[Act], count: usize, bytes: usize, keep_writable: bool, adopted: [usize; 2]) {
    let mut bench = Bench::bounded(count as u32, bytes as u64, keep_writable);
    if adopted[1] > 0 {
        let piece = bench.piece(adopted[0], adopted[1]);
        bench.registry.adopt(piece);
    }
    let adopted = range(adopted[0], adopted[1]);
    let base = bench.memory.as_ptr().addr();
    let mut model = Model { rows: Vec::new(), count, bytes, keep_writable, adopted, steps: 0, made: 0 };
    let mut posts: Vec<(u32, usize)> = Vec::new();
    let mut keys: Vec<(MemoryKey, usize)> = Vec::new();
    for act in acts {
        model.steps += 1;
        match *act {
            Act::Acquire { at, len, more, write } => {
                let sort = if write { Sort::Target } else { Sort::Source };
                let expected = model.obtain(at, len, len + more, sort);
                let place = bench.try_acquire(at, len, len + more, write);
                assert_eq!(place.is_some(), expected.is_some(), "{act:?}");
                if let Some((place, number)) = place.zip(expected) {
                    model.row(number).posts += 1;
                    posts.push((place, number));
                }
            }
            Act::Release(which) if !posts.is_empty() => {
                let (place, number) = posts.swap_remove(which % posts.len());
                bench.release(place);
                model.row(number).posts -= 1;
                model.complete_release(number);
            }
            Act::Expose { at, len, write } => {
                let expected = model.obtain(at, len, len, if write { Sort::Writable } else { Sort::Readable });
                let key = bench.try_expose(at, len, write);
                assert_eq!(key.is_some(), expected.is_some(), "{act:?}");
                if let Some((key, number)) = key.zip(expected) {
                    model.row(number).keys += 1;
                    keys.push((key, number));
                }
            }
            Act::GiveBack(which) if !keys.is_empty() => {
                let (key, number) = keys.swap_remove(which % keys.len());
                bench.give_back(key);
                model.row(number).keys -= 1;
                model.complete_release(number);
            }
            Act::Forget { at, len } => {
                bench.forget(at, len);
                let ended = model.forget(&range(at, len));
                // Their keys may still be given back, to no effect.
                keys.retain(|(key, number)| {
                    let over = ended.contains(number);
                    if over {
                        bench.give_back(*key);
                    }
                    !over
                });
            }
            Act::Fence => {
                bench.registry.fence(&mut bench.device);
                model.fence();
            }
            Act::Release(_) | Act::GiveBack(_) => {}
        }
        let held: Vec<_> =
            model.rows.iter().map(|row| (base + row.start(), row.len() as u64, row.sort == Sort::Writable)).collect();
        assert_eq!(bench.device.registered(), held, "after {act:?}");
        let counters = bench.counters();
        assert_eq!(counters.registrations as usize, model.made);
        assert_eq!(counters.registered_bytes, held.iter().map(|(_, bytes, _)| bytes).sum::<u64>());
        assert_eq!(bench.registry.len() as usize, held.len());
        let fits = model.rows.len() <= count && model.rows.iter().map(Row::len).sum::<usize>() <= bytes;
        assert!(fits, "the bounds hold");
        let safe = |row: &Row| keep_writable || row.sort != Sort::Writable || row.keys > 0;
        assert!(model.rows.iter().all(safe), "what peers can write ends with its key");
        let unmapped = |row: &Row| row.is_idle() && row.meets(&adopted);
        assert!(!model.rows.iter().any(unmapped), "nothing of adopted memory is kept");
    }
    for (place, number) in posts {
        // Until the end everything in use is there.
        assert!(model.rows.iter().any(|row| row.number == number));
        bench.release(place);
    }
    keys.into_iter().for_each(|(key, _)| bench.give_back(key));
    bench.forget(0, BYTES);
    assert_eq!(bench.count(), 0);
}

fn any_act() -> impl Strategy<Value = Act> {
    let memory = || (0..BYTES - 1).prop_flat_map(|at| (Just(at), 1..=(BYTES - at).min(20)));
    prop_oneof![
        4 => (memory(), 0..20usize, any::<bool>()).prop_map(|((at, len), more, write)| {
            Act::Acquire { at, len, more: more.min(BYTES - at - len), write }
        }),
        4 => any::<usize>().prop_map(Act::Release),
        3 => (memory(), any::<bool>()).prop_map(|((at, len), write)| Act::Expose { at, len, write }),
        3 => any::<usize>().prop_map(Act::GiveBack),
        1 => memory().prop_map(|(at, len)| Act::Forget { at, len }),
        1 => Just(Act::Fence),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn registration_cache_matches_its_list_model(
        acts in proptest::collection::vec(any_act(), 1..60),
        count in 1usize..12,
        bytes in 8usize..400,
        keep_writable in any::<bool>(),
        adopted in (0..BYTES, 0..BYTES).prop_map(|(at, len)| [at, len.min(BYTES - at)]),
    ) {
        run(&acts, count, bytes, keep_writable, adopted);
    }
}
