//! libibverbs' functions, resolved at run time in the versions that these declarations describe.
//!
//! The library exports old (`IBVERBS_1.0`) and new versions of the same names with different types behind
//! them, so each name is looked up together with its version. The library is never unloaded: its providers
//! keep threads, `atfork` handlers and mapped device pages of their own, which would not survive that.

use core::ffi::{CStr, c_int, c_uint, c_void};
use core::ptr::NonNull;
use std::ffi::OsStr;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::objects::*;
use crate::types::*;

/// The library's name for the dynamic linker.
pub const LIBRARY: &str = "libibverbs.so.1";

/// Versions of the symbols (`nm -D --with-symbol-versions`).
const V1_0: &CStr = c"IBVERBS_1.0";
const V1_1: &CStr = c"IBVERBS_1.1";
const V1_8: &CStr = c"IBVERBS_1.8";
const V1_11: &CStr = c"IBVERBS_1.11";

/// Declares the table of functions, and how it is filled from the library.
macro_rules! functions {
    ($($(#[$doc:meta])* $need:ident $name:ident = $symbol:literal $version:ident
        ($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions. A table with plain pointers, so that tests can fill it without the library.
        ///
        /// Each documents itself in the manual page of its name. "errno" as a result: 0, or a positive error
        /// number.
        #[derive(Clone, Copy)]
        pub struct Functions {
            $($(#[$doc])* pub $name: field!($need unsafe extern "C" fn($($argument: $type),*) $(-> $result)?),)*
        }

        impl Functions {
            /// # Safety
            /// `handle` is that of a libibverbs.
            unsafe fn find_all(handle: Handle) -> Result<Functions, LoadError> {
                // SAFETY: each field's type is the C prototype of that name and version in
                // `infiniband/verbs.h`.
                unsafe { Ok(Functions { $($name: $need(handle, $symbol, $version)?,)* }) }
            }
        }
    };
}

/// The type of a function that the library must have, or may lack.
macro_rules! field {
    (required $function:ty) => { $function };
    (optional $function:ty) => { Option<$function> };
}

functions! {
    /// `ibv_get_device_list`: NULL-terminated array, or NULL with `errno`.
    required get_device_list = c"ibv_get_device_list" V1_1(num_devices: *mut c_int) -> *mut *mut ibv_device;
    /// `ibv_free_device_list`: devices that are not open are gone with it.
    required free_device_list = c"ibv_free_device_list" V1_1(list: *mut *mut ibv_device);
    /// `ibv_get_device_guid`: big-endian; 0 where it is unknown.
    required get_device_guid = c"ibv_get_device_guid" V1_1(device: *mut ibv_device) -> u64;
    /// `ibv_open_device`: NULL with `errno` on failure.
    required open_device = c"ibv_open_device" V1_1(device: *mut ibv_device) -> *mut ibv_context;
    /// `ibv_close_device`.
    required close_device = c"ibv_close_device" V1_1(context: *mut ibv_context) -> c_int;
    /// `ibv_query_device`: errno.
    required query_device = c"ibv_query_device" V1_1(
        context: *mut ibv_context, attr: *mut ibv_device_attr
    ) -> c_int;
    /// `ibv_query_port`: errno. Fills everything up to and including `flags`.
    required query_port = c"ibv_query_port" V1_1(
        context: *mut ibv_context, port_num: u8, attr: *mut ibv_port_attr
    ) -> c_int;
    /// `ibv_query_gid`: -1 on failure. An empty entry is all zero.
    required query_gid = c"ibv_query_gid" V1_1(
        context: *mut ibv_context, port_num: u8, index: c_int, gid: *mut ibv_gid
    ) -> c_int;
    /// `ibv_query_pkey`: -1 on failure. The key is big-endian.
    optional query_pkey = c"ibv_query_pkey" V1_1(
        context: *mut ibv_context, port_num: u8, index: c_int, pkey: *mut u16
    ) -> c_int;
    /// `_ibv_query_gid_ex`: errno, `ENODATA` for an empty entry. Absent before rdma-core 33.
    optional query_gid_ex = c"_ibv_query_gid_ex" V1_11(
        context: *mut ibv_context,
        port_num: u32,
        gid_index: u32,
        entry: *mut ibv_gid_entry,
        flags: u32,
        entry_size: usize
    ) -> c_int;
    /// `_ibv_query_gid_table`: the entries in use of all ports, how many; or a negative error number,
    /// `EINVAL` where `max_entries` is too small. Absent before rdma-core 33.
    optional query_gid_table = c"_ibv_query_gid_table" V1_11(
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        max_entries: usize,
        flags: u32,
        entry_size: usize
    ) -> isize;
    /// `ibv_fork_init`: errno. For the process, permanently; `EINVAL` where memory was registered before and
    /// it is needed.
    optional fork_init = c"ibv_fork_init" V1_1() -> c_int;
    /// `ibv_alloc_pd`: NULL with `errno` on failure, as all that makes something.
    required alloc_pd = c"ibv_alloc_pd" V1_1(context: *mut ibv_context) -> *mut ibv_pd;
    /// `ibv_dealloc_pd`: errno.
    required dealloc_pd = c"ibv_dealloc_pd" V1_1(pd: *mut ibv_pd) -> c_int;
    /// `ibv_reg_mr`.
    required reg_mr = c"ibv_reg_mr" V1_1(
        pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int
    ) -> *mut ibv_mr;
    /// `ibv_reg_mr_iova2`: supports optional access flags. Absent before rdma-core 28.
    optional reg_mr_iova2 = c"ibv_reg_mr_iova2" V1_8(
        pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_uint
    ) -> *mut ibv_mr;
    /// `ibv_dereg_mr`: errno.
    required dereg_mr = c"ibv_dereg_mr" V1_1(mr: *mut ibv_mr) -> c_int;
    /// `ibv_create_comp_channel`.
    required create_comp_channel = c"ibv_create_comp_channel" V1_0(
        context: *mut ibv_context
    ) -> *mut ibv_comp_channel;
    /// `ibv_destroy_comp_channel`: errno.
    required destroy_comp_channel = c"ibv_destroy_comp_channel" V1_0(channel: *mut ibv_comp_channel) -> c_int;
    /// `ibv_create_cq`.
    required create_cq = c"ibv_create_cq" V1_1(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int
    ) -> *mut ibv_cq;
    /// `ibv_destroy_cq`: errno. Waits until all its events are acknowledged.
    required destroy_cq = c"ibv_destroy_cq" V1_1(cq: *mut ibv_cq) -> c_int;
    /// `ibv_get_cq_event`: -1 with `errno` on failure.
    required get_cq_event = c"ibv_get_cq_event" V1_1(
        channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void
    ) -> c_int;
    /// `ibv_ack_cq_events`.
    required ack_cq_events = c"ibv_ack_cq_events" V1_1(cq: *mut ibv_cq, nevents: c_uint);
    /// `ibv_create_srq`.
    required create_srq = c"ibv_create_srq" V1_1(
        pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr
    ) -> *mut ibv_srq;
    /// `ibv_modify_srq`: errno.
    required modify_srq = c"ibv_modify_srq" V1_1(
        srq: *mut ibv_srq, attr: *mut ibv_srq_attr, attr_mask: c_int
    ) -> c_int;
    /// `ibv_query_srq`: errno.
    required query_srq = c"ibv_query_srq" V1_1(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int;
    /// `ibv_destroy_srq`: errno.
    required destroy_srq = c"ibv_destroy_srq" V1_1(srq: *mut ibv_srq) -> c_int;
    /// `ibv_create_qp`.
    required create_qp = c"ibv_create_qp" V1_1(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    /// `ibv_modify_qp`: errno.
    required modify_qp = c"ibv_modify_qp" V1_1(
        qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int
    ) -> c_int;
    /// `ibv_query_qp`: errno.
    required query_qp = c"ibv_query_qp" V1_1(
        qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int, init_attr: *mut ibv_qp_init_attr
    ) -> c_int;
    /// `ibv_destroy_qp`: errno.
    required destroy_qp = c"ibv_destroy_qp" V1_1(qp: *mut ibv_qp) -> c_int;
    /// `ibv_create_ah`.
    required create_ah = c"ibv_create_ah" V1_1(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    /// `ibv_destroy_ah`: errno.
    required destroy_ah = c"ibv_destroy_ah" V1_1(ah: *mut ibv_ah) -> c_int;
    /// `ibv_get_async_event`: -1 with `errno` on failure.
    required get_async_event = c"ibv_get_async_event" V1_1(
        context: *mut ibv_context, event: *mut ibv_async_event
    ) -> c_int;
    /// `ibv_ack_async_event`.
    required ack_async_event = c"ibv_ack_async_event" V1_1(event: *mut ibv_async_event);
}

/// Why the library can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// There is no such file where the dynamic linker looks.
    #[error("{reason}")]
    NotFound {
        /// The linker's words.
        reason: String,
    },
    /// The file is there and can't be loaded: another architecture, or a library that it needs is missing.
    #[error("{reason}")]
    Unloadable {
        /// The linker's words.
        reason: String,
    },
    /// The library lacks a function.
    #[error("the library has no function {name}@{version}")]
    NoSymbol {
        /// The function's name.
        name: &'static str,
        /// The version looked for.
        version: &'static str,
    },
}

impl Functions {
    /// Opens the system's library.
    pub fn load() -> Result<Functions, LoadError> {
        // SAFETY: the name is libibverbs' own. That the administrator's search path leads to a libibverbs is
        // the same trust that every dynamically linked program gives.
        unsafe { Self::load_from(LIBRARY) }
    }

    /// Opens the library at `library`, a path or a name for the dynamic linker to search.
    ///
    /// # Safety
    /// If there is a library of that name, it is libibverbs.
    pub unsafe fn load_from(library: impl AsRef<OsStr>) -> Result<Functions, LoadError> {
        let name = library.as_ref();
        // SAFETY: constructors of libibverbs and of its dependencies (libnl) initialise only their own data,
        // on any thread; the caller guarantees that it is libibverbs.
        let opened = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL | libc::RTLD_NODELETE) };
        let handle = opened.map_err(|error| not_loaded(name, &words(&error)))?.into_raw();
        // SAFETY: the caller guarantees that it is libibverbs.
        unsafe { Self::find_all(handle) }
    }
}

/// The result of `dlopen`; never closed.
type Handle = *mut c_void;

/// The linker's own words; libloading's error keeps them as its source.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Sorts the dynamic linker's error. It is only text, and the same for a missing library as for a missing
/// dependency of this one; then the text contains the other's name.
fn not_loaded(name: &OsStr, reason: &str) -> LoadError {
    let reason = reason.to_owned();
    let about_this_one = reason.contains(&*name.to_string_lossy()) && !reason.contains("needed by");
    if about_this_one && reason.contains("No such file or directory") {
        LoadError::NotFound { reason }
    } else {
        LoadError::Unloadable { reason }
    }
}

/// A function that every libibverbs of the last fifteen years has.
///
/// # Safety
/// As [`find`].
unsafe fn required<F: Copy>(handle: Handle, name: &'static CStr, version: &'static CStr) -> Result<F, LoadError> {
    // SAFETY: the caller's promise.
    unsafe { find(handle, name, version) }.ok_or(LoadError::NoSymbol { name: text(name), version: text(version) })
}

fn text(name: &'static CStr) -> &'static str {
    name.to_str().unwrap_or_default()
}

/// A function that an older libibverbs lacks.
///
/// # Safety
/// As [`find`].
unsafe fn optional<F: Copy>(handle: Handle, name: &CStr, version: &CStr) -> Result<Option<F>, LoadError> {
    // SAFETY: the caller's promise.
    Ok(unsafe { find(handle, name, version) })
}

/// A function by name and version.
///
/// # Safety
/// `F` is the function pointer type of that symbol.
unsafe fn find<F: Copy>(handle: Handle, name: &CStr, version: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a function pointer is one pointer") };
    let address = lookup(handle, name, version)?;
    // SAFETY: `address` is not null and, as the caller guarantees, that of a function of type `F`; its
    // library is never unloaded (RTLD_NODELETE).
    Some(unsafe { core::mem::transmute_copy::<*mut c_void, F>(&address.as_ptr()) })
}

/// The address of a symbol. Only glibc's linker supports versions; others (musl's) take the default one,
/// which is the newest.
fn lookup(handle: Handle, name: &CStr, version: &CStr) -> Option<NonNull<c_void>> {
    #[cfg(target_env = "gnu")]
    // SAFETY: `handle` comes from `dlopen` and is never closed; both strings end in NUL.
    let address = unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
    #[cfg(not(target_env = "gnu"))]
    // SAFETY: `handle` comes from `dlopen` and is never closed; the string ends in NUL.
    let (address, _) = (unsafe { libc::dlsym(handle, name.as_ptr()) }, version);
    NonNull::new(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_not_found() {
        // SAFETY: there is no library of that name.
        let error = unsafe { Functions::load_from("/nonexistent/libibverbs.so.1") }.err().unwrap();
        assert!(matches!(&error, LoadError::NotFound { reason } if reason.contains("/nonexistent/")), "{error:?}");
    }

    #[test]
    fn a_file_that_is_no_library_is_unloadable() {
        let file = std::env::current_exe().unwrap().with_extension("no-library");
        std::fs::write(&file, "not an ELF file, though longer than the header of one would be, all in all").unwrap();
        // SAFETY: no library at all.
        let error = unsafe { Functions::load_from(&file) }.err().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(matches!(error, LoadError::Unloadable { .. }), "{error:?}");
    }

    #[test]
    fn a_missing_dependency_is_not_taken_for_a_missing_library() {
        let gnu = "libnl-3.so.200: cannot open shared object file: No such file or directory";
        let musl = "Error loading shared library libnl-3.so.200: No such file or directory (needed by libibverbs.so.1)";
        for reason in [gnu, musl] {
            assert!(matches!(not_loaded(OsStr::new(LIBRARY), reason), LoadError::Unloadable { .. }), "{reason}");
        }
        let this = "libibverbs.so.1: cannot open shared object file: No such file or directory";
        assert!(matches!(not_loaded(OsStr::new(LIBRARY), this), LoadError::NotFound { .. }));
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn missing_library_symbol_is_reported_by_name() {
        // The C library is certainly loaded, has symbol versions, and none of these names. SAFETY: not
        // libibverbs, but already loaded, so that no constructor runs; none of its functions is called.
        let error = unsafe { Functions::load_from("libc.so.6") }.err().unwrap();
        assert_eq!(error, LoadError::NoSymbol { name: "ibv_get_device_list", version: "IBVERBS_1.1" });
    }
}
