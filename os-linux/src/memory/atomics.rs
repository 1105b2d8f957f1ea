//! Atomics on payload memory, done by the target's processor so that they are atomic towards local code too
//! (rule R-7).
//!
//! Integers use the machine's own instructions; products, logical operations and floating point go through a
//! compare-and-swap loop on the bits. Comparing swaps of floating point compare values (so -0.0 equals 0.0,
//! and a NaN only differs), min and max prefer a number to a NaN.
#![allow(unsafe_code)]

use core::sync::atomic::{
    AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst,
};

use rerail_core::wire::{AtomicKind, AtomicType};

/// Bytes of a value, which is also its alignment.
pub(super) const fn bytes_of(data_type: AtomicType) -> usize {
    match data_type {
        AtomicType::I8 | AtomicType::U8 => 1,
        AtomicType::I16 | AtomicType::U16 => 2,
        AtomicType::I32 | AtomicType::U32 | AtomicType::F32 => 4,
        AtomicType::I64 | AtomicType::U64 | AtomicType::F64 => 8,
    }
}

macro_rules! integer {
    ($at:expr, $kind:expr, $operand:expr, $compare:expr, $cell:ty, $int:ty, $bits:ty) => {{
        // SAFETY: the caller guarantees that the place is valid and aligned for this type and accessed
        // atomically.
        let cell = unsafe { <$cell>::from_ptr($at.cast()) };
        let (operand, compare) = ($operand as $int, $compare as $int);
        let update = |change: fn($int, $int) -> $int| {
            cell.fetch_update(SeqCst, SeqCst, |value| Some(change(value, operand))).unwrap_or_else(|value| value)
        };
        let swap_if = |holds: fn($int, $int) -> bool| {
            let stored = cell.fetch_update(SeqCst, SeqCst, |value| holds(compare, value).then_some(operand));
            stored.unwrap_or_else(|value| value)
        };
        let old: $int = match $kind {
            AtomicKind::Fetch => cell.load(SeqCst),
            AtomicKind::Swap => cell.swap(operand, SeqCst),
            AtomicKind::CompareSwap => {
                cell.compare_exchange(compare, operand, SeqCst, SeqCst).unwrap_or_else(|value| value)
            }
            AtomicKind::Add => cell.fetch_add(operand, SeqCst),
            AtomicKind::Min => cell.fetch_min(operand, SeqCst),
            AtomicKind::Max => cell.fetch_max(operand, SeqCst),
            AtomicKind::And => cell.fetch_and(operand, SeqCst),
            AtomicKind::Or => cell.fetch_or(operand, SeqCst),
            AtomicKind::Xor => cell.fetch_xor(operand, SeqCst),
            AtomicKind::Mul => update(<$int>::wrapping_mul),
            AtomicKind::LogicalAnd => update(|a, b| <$int>::from(a != 0 && b != 0)),
            AtomicKind::LogicalOr => update(|a, b| <$int>::from(a != 0 || b != 0)),
            AtomicKind::LogicalXor => update(|a, b| <$int>::from((a != 0) != (b != 0))),
            AtomicKind::CompareSwapNe => swap_if(|compare, value| compare != value),
            AtomicKind::CompareSwapLe => swap_if(|compare, value| compare <= value),
            AtomicKind::CompareSwapLt => swap_if(|compare, value| compare < value),
            AtomicKind::CompareSwapGe => swap_if(|compare, value| compare >= value),
            AtomicKind::CompareSwapGt => swap_if(|compare, value| compare > value),
            AtomicKind::MaskedSwap => {
                let masked = |value| Some(operand & compare | value & !compare);
                cell.fetch_update(SeqCst, SeqCst, masked).unwrap_or_else(|value| value)
            }
        };
        // The low bytes carry the value; signed values are not extended into the high ones.
        Some(u64::from(old as $bits))
    }};
}

macro_rules! float {
    ($at:expr, $kind:expr, $operand:expr, $compare:expr, $cell:ty, $float:ty, $bits:ty) => {{
        // SAFETY: the caller guarantees that the place is valid and aligned for this type and accessed
        // atomically.
        let cell = unsafe { <$cell>::from_ptr($at.cast()) };
        let operand_bits = $operand as $bits;
        let operand = <$float>::from_bits(operand_bits);
        let compare = <$float>::from_bits($compare as $bits);
        let truth = |holds: bool| if holds { 1.0 } else { 0.0 };
        let update = |change: &dyn Fn($float) -> $float| {
            cell.fetch_update(SeqCst, SeqCst, |bits| Some(change(<$float>::from_bits(bits)).to_bits()))
                .unwrap_or_else(|bits| bits)
        };
        let swap_if = |holds: fn($float, $float) -> bool| {
            let new = |bits| holds(compare, <$float>::from_bits(bits)).then_some(operand_bits);
            cell.fetch_update(SeqCst, SeqCst, new).unwrap_or_else(|bits| bits)
        };
        let old: $bits = match $kind {
            AtomicKind::Fetch => cell.load(SeqCst),
            AtomicKind::Swap => cell.swap(operand_bits, SeqCst),
            AtomicKind::CompareSwap => swap_if(|compare, value| compare == value),
            AtomicKind::CompareSwapNe => swap_if(|compare, value| compare != value),
            AtomicKind::CompareSwapLe => swap_if(|compare, value| compare <= value),
            AtomicKind::CompareSwapLt => swap_if(|compare, value| compare < value),
            AtomicKind::CompareSwapGe => swap_if(|compare, value| compare >= value),
            AtomicKind::CompareSwapGt => swap_if(|compare, value| compare > value),
            AtomicKind::Add => update(&|value| value + operand),
            AtomicKind::Mul => update(&|value| value * operand),
            AtomicKind::Min => update(&|value| value.min(operand)),
            AtomicKind::Max => update(&|value| value.max(operand)),
            AtomicKind::LogicalAnd => update(&|value| truth(value != 0.0 && operand != 0.0)),
            AtomicKind::LogicalOr => update(&|value| truth(value != 0.0 || operand != 0.0)),
            AtomicKind::LogicalXor => update(&|value| truth((value != 0.0) != (operand != 0.0))),
            AtomicKind::And | AtomicKind::Or | AtomicKind::Xor | AtomicKind::MaskedSwap => return None,
        };
        Some(u64::from(old))
    }};
}

/// Performs the atomic and returns the value before, in the low bytes; `None` for a bitwise operation on
/// floating point.
///
/// # Safety
/// `at` must be valid for reads and writes of the type, aligned to its size, and accessed by others
/// atomically only.
pub(super) unsafe fn perform(
    at: *mut u8,
    kind: AtomicKind,
    data_type: AtomicType,
    operand: u64,
    compare: u64,
) -> Option<u64> {
    macro_rules! by_type {
        ($($type:ident: $perform:ident, $cell:ty, $value:ty, $bits:ty;)*) => {
            match data_type {
                $(AtomicType::$type => $perform!(at, kind, operand, compare, $cell, $value, $bits),)*
            }
        };
    }
    by_type! {
        I8: integer, AtomicI8, i8, u8;
        U8: integer, AtomicU8, u8, u8;
        I16: integer, AtomicI16, i16, u16;
        U16: integer, AtomicU16, u16, u16;
        I32: integer, AtomicI32, i32, u32;
        U32: integer, AtomicU32, u32, u32;
        I64: integer, AtomicI64, i64, u64;
        U64: integer, AtomicU64, u64, u64;
        F32: float, AtomicU32, f32, u32;
        F64: float, AtomicU64, f64, u64;
    }
}
