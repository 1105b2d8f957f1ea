//! A libfabric provider over the rerail message transport, so that Open MPI, MPICH and other runtimes of
//! libfabric run over it unmodified.
//!
//! ```text
//! FI_PROVIDER_PATH=/folder FI_PROVIDER=rerail mpirun --mca pml cm --mca mtl ofi program
//! ```
//!
//! `FI_PROVIDER_PATH` is a folder that has the library as `librerail-fi.so`, and no other provider. The rails
//! are shared memory and TCP, not verbs: only rails whose address does not depend on the rank.
//!
//! | module | holds |
//! |---|---|
//! | [`abi`] | libfabric's binary interface: structures and tables, without behaviour |
//! | `info` | the provider's description of itself (`fi_getinfo`) |
//! | `object` | libfabric's objects: from a call of C to a call of the port, one object a file |
//! | `port` | a domain without raw pointers: names, requests, completions over one transport |
//! | `launcher` | hints of the environment |
//! | `memory` | the caller's memory, where the provider touches it |
//!
//! Nothing is linked against libfabric: it loads this library and calls [`fi_prov_ini`]. No panic crosses to
//! C: a call that panics returns an error, and so does every later one of its domain. There is no thread and
//! no global state but the description that the entry point returns.
#![allow(unsafe_code)]

pub mod abi;
mod info;
mod launcher;
mod memory;
mod object;
mod port;

use std::cell::UnsafeCell;
use std::ptr;

use abi::info::Provider;
use abi::version;

/// Version of the provider.
const PROVIDER_VERSION: u32 = version(0, 1);

/// The newest interface that callers may request: libfabric skips a provider that is older than the request,
/// and none for being newer. The parts that the provider uses are the same in 1.17 to 2.6.
const API_VERSION: u32 = version(2, 6);

/// The description that libfabric reads; libfabric uses its `context` for itself.
struct Description(UnsafeCell<Provider>);

// SAFETY: the provider never reads it; libfabric, which gets a pointer, guards what it writes by its own
// lock.
unsafe impl Sync for Description {}

static DESCRIPTION: Description = Description(UnsafeCell::new(Provider {
    version: PROVIDER_VERSION,
    fi_version: API_VERSION,
    context: [ptr::null_mut(); 4],
    name: c"rerail".as_ptr(),
    getinfo: info::getinfo,
    fabric: object::fabric::open,
    cleanup,
}));

unsafe extern "C" fn cleanup() {}

/// What libfabric calls after it has loaded the library.
// SAFETY: the name is libfabric's for the entry of a provider; no other library that is linked to a program
// defines it, as providers are opened one by one with local symbols.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut Provider {
    DESCRIPTION.0.get()
}
