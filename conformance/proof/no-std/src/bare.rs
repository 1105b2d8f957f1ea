//! What an operating system's libraries would bring: the entry point, two system calls, the panic handler,
//! and the memory functions that the compiler calls by name.
//!
//! x86-64 Linux only. The memory functions are written with string instructions, because a loop would be
//! compiled into a call of the very function that it is in.

use core::arch::{asm, global_asm};
use core::panic::PanicInfo;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("the entry point and the system calls are those of x86-64 Linux");

/// A line of output.
pub type Line = heapless::String<256>;

// The stack pointer is 16-byte aligned at entry; a call leaves it as a function expects it.
global_asm!(".globl _start", "_start:", "xor ebp, ebp", "and rsp, -16", "call {start}", "ud2", start = sym start);

extern "C" fn start() -> ! {
    exit(crate::main())
}

const WRITE: usize = 1;
const EXIT_GROUP: usize = 231;

/// Writes to standard output; what can't be written is lost.
pub fn write_stdout(bytes: &[u8]) {
    let mut result = WRITE;
    // SAFETY: `write` reads `bytes.len()` bytes from a live slice; the kernel changes rax, rcx and r11 only.
    unsafe {
        asm!("syscall", inlateout("rax") result, in("rdi") 1usize, in("rsi") bytes.as_ptr(), in("rdx") bytes.len(),
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    let _ = result;
}

/// Ends the program.
pub fn exit(code: i32) -> ! {
    // SAFETY: `exit_group` doesn't return.
    unsafe { asm!("syscall", in("rax") EXIT_GROUP, in("rdi") code as usize, options(noreturn, nostack)) }
}

#[panic_handler]
fn panicked(info: &PanicInfo<'_>) -> ! {
    let mut line = Line::new();
    // A message that doesn't fit is cut; the exit code is sufficient.
    let _ = core::fmt::Write::write_fmt(&mut line, format_args!("no-std: PANIC: {info}"));
    write_stdout(line.as_bytes());
    write_stdout(b"\n");
    exit(3)
}

/// Named by the unwind tables of the precompiled `core`; never called, for a panic ends the program.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// # Safety
/// As C's `memcpy`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller's promise; the direction flag is clear by the calling convention.
    unsafe {
        asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// As C's `memmove`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= len {
        // SAFETY: the caller's promise; `to` doesn't lie inside of `from`, so copying upwards overwrites
        // nothing unread.
        return unsafe { memcpy(to, from, len) };
    }
    // SAFETY: the caller's promise; `len > 0` here. Copies downwards and clears the direction flag again.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rcx") len => _, inout("rdi") to.add(len - 1) => _,
            inout("rsi") from.add(len - 1) => _, options(nostack));
    }
    to
}

/// # Safety
/// As C's `memset`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
    // SAFETY: the caller's promise; the direction flag is clear by the calling convention.
    unsafe {
        asm!("rep stosb", inout("rcx") len => _, inout("rdi") to => _, in("al") byte as u8,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// As C's `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, len: usize) -> i32 {
    for at in 0..len {
        // SAFETY: the caller's promise: `len` bytes can be read at both.
        let (l, r) = unsafe { (left.add(at).read(), right.add(at).read()) };
        if l != r {
            return i32::from(l) - i32::from(r);
        }
    }
    0
}

/// # Safety
/// As C's `bcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { memcmp(left, right, len) }
}
