//! Regions and copies against the obvious; atomics against plain arithmetic.

use super::*;
use proptest::prelude::*;
use rerail_core::mem::MemRef;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE_BYTES: usize = 4096;

fn memory() -> Memory {
    Memory::new(PAGE_BYTES).unwrap()
}

fn bytes_of(memory: &Memory, region: RegionId) -> Result<&[u8], MemoryError> {
    // SAFETY: no request names it: there is no core.
    unsafe { memory.bytes(&memory.all_of(region)?) }
}

fn bytes_of_mut(memory: &mut Memory, region: RegionId) -> &mut [u8] {
    let all = memory.all_of(region).unwrap();
    // SAFETY: as in `bytes_of`.
    unsafe { memory.bytes_mut(&all).unwrap() }
}

/// Copies of parts, and what two parts have in common.
#[test]
fn parts_are_copied_and_compared() {
    let mut memory = memory();
    let region = memory.alloc(100).unwrap();
    let at = |offset| MemRef { region, offset };
    memory.write(at(90), &[1, 2, 3]).unwrap();
    let mut copy = [0; 4];
    memory.read(at(89), &mut copy).unwrap();
    assert_eq!((copy, memory.read(at(97), &mut copy)), ([0, 1, 2, 3], memory.write(at(97), &[0; 4])));
    assert!(memory.write(at(97), &[0; 4]).is_err());
    let piece = memory.owned(&Seg::new(region, 10, 10)).unwrap();
    for (offset, len, has_common) in [(0, 10, false), (0, 11, true), (12, 1, true), (19, 9, true), (20, 9, false)] {
        assert_eq!(memory.overlap(&piece, &Seg::new(region, offset, len)), has_common, "{offset}");
        let named = MemRef::by_address(region, piece.start.addr() as u64 - 10 + offset);
        assert_eq!(memory.overlap(&piece, &Seg { at: named, len }), has_common, "{offset}");
    }
}

/// What a request names lies below the bit that marks an offset as an address.
#[test]
fn addresses_of_more_than_53_bits_have_no_name() {
    let (mut memory, end) = (Memory::new(PAGE_BYTES).unwrap(), 1usize << 53);
    // SAFETY: nothing of them is touched.
    let [all, high] = [(0, usize::MAX), (end, 8)]
        .map(|(start, len)| unsafe { memory.adopt(std::ptr::without_provenance_mut(start), len) });
    assert_eq!(high, Err(MemoryError::BadLength { bytes: 0 }));
    let all = all.unwrap();
    for (offset, is_named) in [(end as u64 - 8, true), (end as u64 - 7, false), (end as u64 + 4096, false)] {
        assert_eq!(memory.start_of(&Seg::new(all, offset, 8)).is_some(), is_named, "{offset:#x}");
    }
}

#[test]
fn a_new_region_is_zeroed_and_page_aligned() {
    let mut memory = memory();
    let region = memory.alloc(10_000).unwrap();
    let bytes = bytes_of(&memory, region).unwrap();
    assert_eq!(bytes.len(), 10_000);
    assert_eq!(bytes.as_ptr().addr() % PAGE_BYTES, 0);
    assert!(bytes.iter().all(|byte| *byte == 0));
    bytes_of_mut(&mut memory, region)[9_999] = 7;
    assert_eq!(bytes_of(&memory, region).unwrap()[9_999], 7);
}

/// L-18: others can map it for reading, and no process can write to it, or truncate it, by its file: so that
/// references to its bytes may exist here.
#[test]
fn shared_region_is_writable_only_by_its_owner() {
    let mut memory = memory();
    let (region, file) = memory.alloc_shared(10_000, false).unwrap();
    let start = bytes_of(&memory, region).unwrap().as_ptr();
    assert_eq!(start.addr() % PAGE_BYTES, 0);
    assert!(bytes_of(&memory, region).unwrap().iter().all(|byte| *byte == 0));
    bytes_of_mut(&mut memory, region)[9_999] = 7;
    let mut byte = [0];
    assert_eq!((rustix::io::pread(&file, &mut byte, 9_999), byte), (Ok(1), [7]));
    assert_eq!(rustix::io::pwrite(&file, &[1], 0), Err(Errno::PERM));
    for bytes in [0, 9_999, 10_001] {
        assert_eq!(fs::ftruncate(&file, bytes), Err(Errno::PERM));
    }
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: no address is requested, so no existing mapping is touched.
    let mapped = unsafe { mmap(ptr::null_mut(), 10_000, rights, MapFlags::SHARED, &file, 0) };
    assert_eq!(mapped, Err(Errno::PERM));
    assert!(!memory.is_peer_writable(region));
    memory.remove(region).unwrap();
    // One for windows is writable, of a fixed length all the same.
    let (region, file) = memory.alloc_shared(10_000, true).unwrap();
    assert!(memory.is_peer_writable(region));
    assert_eq!(rustix::io::pwrite(&file, &[9], 5_000), Ok(1));
    assert_eq!(bytes_of(&memory, region).unwrap()[5_000], 9);
    assert_eq!(fs::ftruncate(&file, 9_999), Err(Errno::PERM));
    assert_eq!(fs::fcntl_add_seals(&file, SealFlags::FUTURE_WRITE), Err(Errno::PERM));
    memory.remove(region).unwrap();
    assert_eq!(memory.alloc_shared(0, false).unwrap_err(), MemoryError::BadLength { bytes: 0 });
    assert_eq!(memory.alloc_shared(usize::MAX, true).unwrap_err(), MemoryError::BadLength { bytes: usize::MAX });
}

#[test]
fn an_id_of_a_freed_region_names_nothing() {
    let mut memory = memory();
    let first = memory.alloc(100).unwrap();
    memory.remove(first).unwrap();
    let second = memory.alloc(100).unwrap();
    assert_ne!(first, second);
    assert_eq!(bytes_of(&memory, first), Err(MemoryError::Unknown(first)));
    assert_eq!(memory.check(&Seg::new(first, 0, 1)), Err(MemoryError::Unknown(first)));
    assert_eq!(memory.remove(first), Err(MemoryError::Unknown(first)));
    assert_eq!(memory.check(&Seg::new(second, 0, 100)), Ok(()));
}

#[test]
fn no_id_equals_the_pools() {
    let mut memory = memory();
    for _ in 0..3 << GENERATION_BITS {
        let region = memory.alloc(1).unwrap();
        assert_ne!(region, RegionId::POOL);
        memory.remove(region).unwrap();
    }
    assert_eq!(memory.slots.len(), 1, "slots are used again");
}

#[test]
fn ranges_are_checked_to_the_byte() {
    let mut memory = memory();
    let region = memory.alloc(100).unwrap();
    let out = |offset, len| Err(MemoryError::OutOfBounds { region, offset, len, region_bytes: 100 });
    for (offset, len, expected) in [
        (0, 100, Ok(())),
        (100, 0, Ok(())),
        (99, 1, Ok(())),
        (0, 101, out(0, 101)),
        (100, 1, out(100, 1)),
        (101, 0, out(101, 0)),
        (1, u64::MAX, out(1, u64::MAX)),
        (u64::MAX, 1, out(u64::MAX, 1)),
    ] {
        assert_eq!(memory.check(&Seg::new(region, offset, len)), expected, "{offset}+{len}");
    }
}

#[test]
fn callers_can_not_name_the_pool() {
    let memory = memory();
    let pool = Seg::new(RegionId::POOL, 0, 1);
    assert_eq!(memory.check(&pool), Err(MemoryError::Unknown(RegionId::POOL)));
    assert!(memory.resolve(&pool).is_ok());
    assert!(memory.resolve(&Seg::new(RegionId::POOL, PAGE_BYTES as u64, 1)).is_err());
    assert_eq!(bytes_of(&memory, RegionId::POOL), Err(MemoryError::Unknown(RegionId::POOL)));
}

#[test]
fn impossible_regions_are_refused() {
    let mut memory = memory();
    assert_eq!(memory.alloc(0), Err(MemoryError::BadLength { bytes: 0 }));
    assert_eq!(memory.alloc(usize::MAX), Err(MemoryError::BadLength { bytes: usize::MAX }));
    let bytes = isize::MAX as usize;
    assert_eq!(memory.alloc(bytes), Err(MemoryError::System { bytes, errno: Errno::NOMEM }));
    // SAFETY: nothing is named, so nothing is promised.
    let wrapping = unsafe { memory.adopt(ptr::without_provenance_mut(2), usize::MAX) };
    assert_eq!(wrapping, Err(MemoryError::BadLength { bytes: usize::MAX }));
}

#[test]
fn an_adopted_address_space_resolves_offsets_as_addresses() {
    let mut memory = memory();
    let mut local = [1u8, 2, 3, 4];
    let start = (&raw mut local).cast::<u8>();
    // SAFETY: only `local` is named, which outlives the uses below.
    let all = unsafe { memory.adopt(ptr::null_mut(), usize::MAX) }.unwrap();
    assert_eq!(bytes_of(&memory, all), Err(MemoryError::Adopted(all)), "no reference to memory that others use");
    let piece = memory.resolve(&Seg::new(all, start.expose_provenance() as u64, 4)).unwrap();
    assert_eq!((piece.start.addr(), piece.len), (start.addr(), 4));
    memory.remove(all).unwrap();
    assert_eq!(local, [1, 2, 3, 4]);
}

#[test]
fn overlapping_copies_move() {
    let mut memory = memory();
    let region = memory.alloc(8).unwrap();
    bytes_of_mut(&mut memory, region).copy_from_slice(&[0, 1, 2, 3, 4, 5, 6, 7]);
    let from = memory.resolve(&Seg::new(region, 0, 6)).unwrap();
    let to = memory.resolve(&Seg::new(region, 2, 6)).unwrap();
    assert_eq!(memory.copy(&[from], &[to]), 6);
    assert_eq!(bytes_of(&memory, region).unwrap(), [0, 1, 0, 1, 2, 3, 4, 5]);
}

/// Cuts a region into consecutive pieces of these lengths.
fn cut(memory: &Memory, region: RegionId, lens: &[usize]) -> Vec<Piece> {
    let mut at = 0;
    lens.iter()
        .map(|len| {
            let seg = Seg::new(region, at, *len as u64);
            at += *len as u64;
            memory.resolve(&seg).unwrap()
        })
        .collect()
}

proptest! {
    #[test]
    fn scatter_and_gather_keep_the_byte_order(
        from in proptest::collection::vec(0usize..40, 0..6),
        to in proptest::collection::vec(0usize..40, 0..6),
    ) {
        let mut memory = memory();
        let source = memory.alloc(240).unwrap();
        let target = memory.alloc(240).unwrap();
        let bytes: Vec<u8> = (0..240).map(|index| index as u8 + 1).collect();
        bytes_of_mut(&mut memory, source).copy_from_slice(&bytes);
        let copied = memory.copy(&cut(&memory, source, &from), &cut(&memory, target, &to));
        let expected = from.iter().sum::<usize>().min(to.iter().sum());
        prop_assert_eq!(copied, expected);
        let arrived = bytes_of(&memory, target).unwrap();
        prop_assert_eq!(&arrived[..copied], &bytes[..copied]);
        prop_assert!(arrived[copied..].iter().all(|byte| *byte == 0));
    }
}

/// The result of an integer atomic on a value, in arithmetic wide enough for all types; the caller truncates.
fn integer_oracle(kind: AtomicKind, value: i128, operand: i128, compare: i128) -> i128 {
    match kind {
        AtomicKind::Fetch => value,
        AtomicKind::Swap => operand,
        AtomicKind::CompareSwap if value == compare => operand,
        AtomicKind::CompareSwap => value,
        AtomicKind::Add => value + operand,
        AtomicKind::Min => value.min(operand),
        AtomicKind::Max => value.max(operand),
        AtomicKind::And => value & operand,
        AtomicKind::Or => value | operand,
        AtomicKind::Xor => value ^ operand,
        AtomicKind::Mul => value.wrapping_mul(operand),
        AtomicKind::LogicalAnd => i128::from(value != 0 && operand != 0),
        AtomicKind::LogicalOr => i128::from(value != 0 || operand != 0),
        AtomicKind::LogicalXor => i128::from((value != 0) != (operand != 0)),
        AtomicKind::CompareSwapNe => {
            if compare != value {
                operand
            } else {
                value
            }
        }
        AtomicKind::CompareSwapLe => {
            if compare <= value {
                operand
            } else {
                value
            }
        }
        AtomicKind::CompareSwapLt => {
            if compare < value {
                operand
            } else {
                value
            }
        }
        AtomicKind::CompareSwapGe => {
            if compare >= value {
                operand
            } else {
                value
            }
        }
        AtomicKind::CompareSwapGt => {
            if compare > value {
                operand
            } else {
                value
            }
        }
        AtomicKind::MaskedSwap => value & !compare | operand & compare,
    }
}

/// Runs an atomic on a fresh word whose low bytes are `value`; gives the answer and the whole word after.
fn run(kind: AtomicKind, data_type: AtomicType, value: u64, operand: u64, compare: u64) -> (Option<u64>, u64) {
    let mut memory = memory();
    let region = memory.alloc(24).unwrap();
    bytes_of_mut(&mut memory, region).fill(0xa5);
    bytes_of_mut(&mut memory, region)[8..16].copy_from_slice(&value.to_ne_bytes());
    let old = memory.atomic(MemRef { region, offset: 8 }, kind, data_type, operand, compare);
    let bytes = bytes_of(&memory, region).unwrap();
    assert!(bytes[..8].iter().chain(&bytes[16..]).all(|byte| *byte == 0xa5), "neighbours are touched");
    (old, u64::from_ne_bytes(bytes[8..16].try_into().unwrap()))
}

#[test]
fn integer_atomics_match_integer_arithmetic() {
    let signed = [AtomicType::I8, AtomicType::I16, AtomicType::I32, AtomicType::I64];
    let unsigned = [AtomicType::U8, AtomicType::U16, AtomicType::U32, AtomicType::U64];
    let samples = [0, 1, 2, 3, 0x7f, 0x80, 0xff, 0x8000, 0xffff, 1 << 31, u64::from(u32::MAX), 1 << 63, u64::MAX];
    for (data_type, is_signed) in signed.map(|t| (t, true)).into_iter().chain(unsigned.map(|t| (t, false))) {
        let bits = 8 * atomics::bytes_of(data_type) as u32;
        let mask = u64::MAX >> (64 - bits);
        let widen = |raw: u64| {
            let shift = 64 - bits;
            if is_signed { i128::from((raw << shift) as i64 >> shift) } else { i128::from(raw & mask) }
        };
        for kind in AtomicKind::ALL {
            for value in samples {
                for operand in samples {
                    // One comparand that matches, one beside it, and one on the other side of zero.
                    for compare in [value, value ^ 1, !value] {
                        let expected = integer_oracle(kind, widen(value), widen(operand), widen(compare));
                        let expected = value & !mask | expected as u64 & mask;
                        let (old, after) = run(kind, data_type, value, operand, compare);
                        let case = format!("{kind:?} {data_type:?} {value:#x} {operand:#x} {compare:#x}");
                        assert_eq!(old, Some(value & mask), "old value of {case}");
                        assert_eq!(after, expected, "{case}");
                    }
                }
            }
        }
    }
}

#[test]
fn float_atomics_match_float_arithmetic() {
    let wide = |kind, value: f64, operand: f64, compare: f64| {
        let (old, after) = run(kind, AtomicType::F64, value.to_bits(), operand.to_bits(), compare.to_bits());
        assert_eq!(old, Some(value.to_bits()));
        f64::from_bits(after)
    };
    let single = |kind, value: f32, operand: f32, compare: f32| {
        let bits = |value: f32| u64::from(value.to_bits());
        let (old, after) = run(kind, AtomicType::F32, bits(value), bits(operand), bits(compare));
        assert_eq!(old, Some(bits(value)));
        f32::from_bits(after as u32)
    };
    for (kind, value, operand, compare, expected) in [
        (AtomicKind::Fetch, 1.5, 9.0, 0.0, 1.5),
        (AtomicKind::Swap, 1.5, 9.0, 0.0, 9.0),
        (AtomicKind::CompareSwap, 1.5, 9.0, 1.5, 9.0),
        (AtomicKind::CompareSwap, 1.5, 9.0, 2.5, 1.5),
        (AtomicKind::CompareSwap, -0.0, 9.0, 0.0, 9.0),
        (AtomicKind::Add, 1.5, -4.0, 0.0, -2.5),
        (AtomicKind::Mul, 1.5, -4.0, 0.0, -6.0),
        (AtomicKind::Min, 1.5, -4.0, 0.0, -4.0),
        (AtomicKind::Max, 1.5, -4.0, 0.0, 1.5),
        (AtomicKind::Min, 1.5, f64::NAN, 0.0, 1.5),
        (AtomicKind::LogicalAnd, 1.5, 2.0, 0.0, 1.0),
        (AtomicKind::LogicalAnd, 1.5, 0.0, 0.0, 0.0),
        (AtomicKind::LogicalOr, 0.0, 0.0, 0.0, 0.0),
        (AtomicKind::LogicalOr, 0.0, 2.0, 0.0, 1.0),
        (AtomicKind::LogicalXor, 1.5, 2.0, 0.0, 0.0),
        (AtomicKind::LogicalXor, 0.0, 2.0, 0.0, 1.0),
        (AtomicKind::CompareSwapNe, 1.5, 9.0, 1.5, 1.5),
        (AtomicKind::CompareSwapNe, 1.5, 9.0, 2.5, 9.0),
        (AtomicKind::CompareSwapLe, -1.5, 9.0, -1.5, 9.0),
        (AtomicKind::CompareSwapLe, -1.5, 9.0, -1.0, -1.5),
        (AtomicKind::CompareSwapLt, -1.5, 9.0, -2.0, 9.0),
        (AtomicKind::CompareSwapLt, -1.5, 9.0, -1.5, -1.5),
        (AtomicKind::CompareSwapGe, -1.5, 9.0, -1.5, 9.0),
        (AtomicKind::CompareSwapGe, -1.5, 9.0, -2.0, -1.5),
        (AtomicKind::CompareSwapGt, -1.5, 9.0, -1.0, 9.0),
        (AtomicKind::CompareSwapGt, -1.5, 9.0, -1.5, -1.5),
    ] {
        assert_eq!(wide(kind, value, operand, compare), expected, "{kind:?} {value} {operand} {compare}");
        let narrow = single(kind, value as f32, operand as f32, compare as f32);
        assert_eq!(narrow, expected as f32, "{kind:?} {value} {operand} {compare} in single precision");
    }
    assert!(wide(AtomicKind::CompareSwap, f64::NAN, 1.0, f64::NAN).is_nan(), "NaN equals nothing");
    assert_eq!(wide(AtomicKind::CompareSwapNe, f64::NAN, 1.0, f64::NAN), 1.0);
    assert!(wide(AtomicKind::CompareSwapLe, f64::NAN, 1.0, 1.0).is_nan());
    for kind in [AtomicKind::And, AtomicKind::Or, AtomicKind::Xor, AtomicKind::MaskedSwap] {
        assert_eq!(run(kind, AtomicType::F64, 5, 3, 0), (None, 5), "{kind:?} on floating point changes nothing");
        assert_eq!(run(kind, AtomicType::F32, 5, 3, 0), (None, 5));
    }
}

/// neither the owner's own concurrent atomic instructions nor the peers' requests are lost.
#[test]
fn atomics_of_peers_and_of_the_owner_add_up() {
    let mut memory = memory();
    let region = memory.alloc(8).unwrap();
    let word = bytes_of_mut(&mut memory, region).as_mut_ptr().expose_provenance();
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: a page-aligned region of 8 bytes that outlives the scope; meanwhile both sides access
            // it atomically.
            let word = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(word)) };
            barrier.wait();
            for _ in 0..100_000 {
                word.fetch_add(1, Ordering::Relaxed);
            }
        });
        barrier.wait();
        for n in 0..100_000 {
            // An instruction of the processor's, and a loop.
            let (kind, operand) = if n % 2 == 0 { (AtomicKind::Add, 1 << 32) } else { (AtomicKind::Mul, 1) };
            assert!(memory.atomic(MemRef { region, offset: 0 }, kind, AtomicType::U64, operand, 0).is_some());
        }
    });
    let value = u64::from_ne_bytes(bytes_of(&memory, region).unwrap().try_into().unwrap());
    assert_eq!((value >> 32, value as u32), (50_000, 100_000));
}

#[test]
fn an_atomic_out_of_place_changes_nothing() {
    let mut memory = memory();
    let region = memory.alloc(16).unwrap();
    for offset in [1, 4, 9, 12, 16, u64::MAX] {
        let at = MemRef { region, offset };
        assert_eq!(memory.atomic(at, AtomicKind::Add, AtomicType::U64, 1, 0), None, "{offset}");
    }
    assert!(bytes_of(&memory, region).unwrap().iter().all(|byte| *byte == 0));
    assert_eq!(memory.atomic(MemRef { region, offset: 8 }, AtomicKind::Add, AtomicType::U64, 1, 0), Some(0));
}
