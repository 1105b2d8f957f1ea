//! PMIx, by the launcher's client library: Open MPI's `mpirun`, `srun --mpi=pmix`, PRRTE.
//!
//! PMIx has no wire protocol that clients may use by themselves, so its library is opened at run time
//! (`libpmix.so.2`), once a process, and never closed. It starts a thread of its own, which is why it is used
//! only where the environment offers nothing else. Types and numbers are those of version 4's headers
//! (`pmix_common.h`), which versions 2 to 5 share for what is used here.
//!
//! Fences are begun, and their end is polled for: so each ends within its limit (B-1), whatever the library
//! does. After a timeout the library may still report the end of that fence, so what it writes to is leaked.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use rustix::thread::{Timespec, nanosleep};

use super::io::Limit;
use super::pmi1::{answer_limit, number};
use super::{BootError, Bootstrap, OwnKeys, check_key, check_rank};

/// The library, under the names that Linux has it by.
const LIBRARIES: [&str; 2] = ["libpmix.so.2", "libpmix.so"];

/// `PMIX_RANK_WILDCARD`: the job as a whole.
const WILDCARD: u32 = u32::MAX - 1;
/// `PMIX_GLOBAL`: for processes of every host.
const GLOBAL: u8 = 3;
/// Types of values.
const BOOL: u16 = 1;
const STRING: u16 = 3;
const UINT32: u16 = 14;
/// Status codes.
const SUCCESS: c_int = 0;
const NOT_FOUND: c_int = -46;
const SUCCEEDED_AT_ONCE: c_int = -157;
/// No status: a fence goes on.
const PENDING: c_int = c_int::MIN;

/// The longest pause between two looks for the end of a fence.
const PAUSE_MAX: Duration = Duration::from_millis(1);

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone)]
struct Proc {
    namespace: [c_char; 256],
    rank: u32,
}

/// `pmix_value_t`: the union's largest member has three words.
#[repr(C)]
#[derive(Clone, Copy)]
struct Value {
    kind: u16,
    data: [u64; 3],
}

/// `pmix_info_t`.
#[repr(C)]
struct Info {
    key: [c_char; 512],
    flags: u32,
    value: Value,
}

impl Info {
    /// A switch that is on.
    fn on(key: &CStr) -> Info {
        let mut info =
            Info { key: [0; 512], flags: 0, value: Value { kind: BOOL, data: [u64::from(1u8.to_le()), 0, 0] } };
        for (to, from) in info.key.iter_mut().zip(key.to_bytes()) {
            *to = *from as c_char;
        }
        info
    }
}

type Done = unsafe extern "C" fn(c_int, *mut c_void);

/// The functions that are used.
#[derive(Clone, Copy)]
struct Functions {
    init: unsafe extern "C" fn(*mut Proc, *mut Info, usize) -> c_int,
    put: unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int,
    commit: unsafe extern "C" fn() -> c_int,
    fence: unsafe extern "C" fn(*const Proc, usize, *const Info, usize, Done, *mut c_void) -> c_int,
    get: unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int,
    finalize: unsafe extern "C" fn(*const Info, usize) -> c_int,
    abort: unsafe extern "C" fn(c_int, *const c_char, *mut Proc, usize) -> c_int,
    explain: unsafe extern "C" fn(c_int) -> *const c_char,
    version: unsafe extern "C" fn() -> *const c_char,
}

impl Functions {
    /// Opens the library; `Err`: why it is not there.
    fn open() -> Result<Functions, String> {
        let mut why = String::new();
        let open = |name| {
            // SAFETY: the initialisers of libpmix do nothing that this process must prepare for.
            unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }
        };
        // Its plugins find its symbols in it.
        let library = LIBRARIES.into_iter().find_map(|name| open(name).map_err(|error| why = error.to_string()).ok());
        let library = library.ok_or(why)?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the field's type is the prototype in `pmix.h`, and the library is never closed.
                *unsafe { library.get($name) }.map_err(|error| error.to_string())?
            };
        }
        let functions = Functions {
            init: function!(b"PMIx_Init"),
            put: function!(b"PMIx_Put"),
            commit: function!(b"PMIx_Commit"),
            fence: function!(b"PMIx_Fence_nb"),
            get: function!(b"PMIx_Get"),
            finalize: function!(b"PMIx_Finalize"),
            abort: function!(b"PMIx_Abort"),
            explain: function!(b"PMIx_Error_string"),
            version: function!(b"PMIx_Get_version"),
        };
        std::mem::forget(library);
        Ok(functions)
    }

    fn check(&self, doing: &'static str, status: c_int) -> Result<(), BootError> {
        if matches!(status, SUCCESS | SUCCEEDED_AT_ONCE) {
            return Ok(());
        }
        // SAFETY: any status is allowed.
        let text = unsafe { (self.explain)(status) };
        // SAFETY: the library returns a constant string.
        let message = if text.is_null() { "" } else { unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default() };
        Err(BootError::Refused { doing, code: status.into(), message: message.to_owned() })
    }
}

/// The version of this machine's library; `Err`: why it can't be used.
pub fn library_version() -> Result<String, String> {
    let functions = Functions::open()?;
    // SAFETY: no arguments; it may be called before the library is initialised.
    let text = unsafe { (functions.version)() };
    // SAFETY: the library returns a constant string.
    Ok(if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() })
}

/// A process's seat at a PMIx server.
pub struct Pmix {
    functions: Functions,
    own: Proc,
    job: String,
    size: u32,
    answer_max: Option<Duration>,
    keys: OwnKeys,
    is_over: bool,
}

impl fmt::Debug for Pmix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pmix").field("job", &self.job).field("rank", &self.own.rank).finish_non_exhaustive()
    }
}

impl Pmix {
    /// Joins the job of the environment (`PMIX_NAMESPACE`, `PMIX_RANK`). `RERAIL_BOOT_TIMEOUT` limits the
    /// time of each fence. Once a process: the library has one seat. Joining itself has no limit but the
    /// library's.
    ///
    /// # Errors
    /// [`BootError::Library`] where there is no library; else the library's error.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Self, BootError> {
        let answer_max = answer_limit(&var)?;
        number(&var, "PMIX_RANK", "a rank", WILDCARD - 1)?;
        let functions = Functions::open().map_err(|why| BootError::Library { library: LIBRARIES[0], why })?;
        let mut own = Proc { namespace: [0; 256], rank: 0 };
        // SAFETY: `own` is written, and there are no further arguments.
        functions.check("joining (PMIx_Init)", unsafe { (functions.init)(&mut own, ptr::null_mut(), 0) })?;
        // SAFETY: the library has written a string, which ends within the array: its last byte is still 0.
        let job = unsafe { CStr::from_ptr(own.namespace.as_ptr()) }.to_string_lossy().into_owned();
        let mut pmix = Pmix { functions, own, job, size: 0, answer_max, keys: OwnKeys::default(), is_over: false };
        const SIZE: &str = "asking for the job's size (PMIx_Get)";
        let size = pmix.value(SIZE, WILDCARD, c"pmix.job.size")?.filter(|value| value.kind == UINT32);
        pmix.size = size.map_or(0, |value| value.data[0] as u32);
        if pmix.own.rank >= pmix.size {
            return Err(BootError::Rank { rank: pmix.own.rank, size: pmix.size });
        }
        Ok(pmix)
    }

    fn running(&self) -> Result<(), BootError> {
        if self.is_over { Err(BootError::Over) } else { Ok(()) }
    }

    /// A value of a rank that has come with a fence, without its string; `None`: there is none.
    fn value(&self, doing: &'static str, rank: u32, key: &CStr) -> Result<Option<Value>, BootError> {
        self.with_value(doing, rank, key, |value| *value)
    }

    fn with_value<T>(
        &self,
        doing: &'static str,
        rank: u32,
        key: &CStr,
        read: impl FnOnce(&Value) -> T,
    ) -> Result<Option<T>, BootError> {
        let of = Proc { rank, ..self.own.clone() };
        // What fences have collected is here; waiting for more has no end.
        let here = Info::on(c"pmix.optional");
        let mut value = ptr::null_mut();
        // SAFETY: all arguments live through the call, which writes `value` where it succeeds.
        let status = unsafe { (self.functions.get)(&of, key.as_ptr(), &here, 1, &mut value) };
        if status == NOT_FOUND {
            return Ok(None);
        }
        self.functions.check(doing, status)?;
        // SAFETY: the library has made a value and given it away.
        let Some(found) = (unsafe { value.as_ref() }) else { return Ok(None) };
        let result = read(found);
        let string = (found.kind == STRING).then_some(found.data[0] as usize as *mut c_void);
        // SAFETY: both are from the C library's allocator (PMIX_VALUE_RELEASE in the header), and not used
        // any more.
        unsafe {
            libc::free(string.unwrap_or(ptr::null_mut()));
            libc::free(value.cast());
        }
        Ok(Some(result))
    }

    fn wait_for_all(&mut self, limit: Limit, meanwhile: &mut dyn FnMut()) -> Result<(), BootError> {
        const DOING: &str = "waiting for the other ranks (PMIx_Fence)";
        self.running()?;
        // SAFETY: no arguments.
        let committed = unsafe { (self.functions.commit)() };
        self.functions.check("publishing (PMIx_Commit)", committed)?;
        let all: &mut (Proc, Info, AtomicI32) = Box::leak(Box::new((
            Proc { rank: WILDCARD, ..self.own.clone() },
            Info::on(c"pmix.collect"),
            AtomicI32::new(PENDING),
        )));
        let all: *mut (Proc, Info, AtomicI32) = all;
        // SAFETY: just made, and freed below only when the library has finished with it.
        let (of, collect, status) = unsafe { (&(*all).0, &(*all).1, &(*all).2) };
        let begun =
            // SAFETY: the arguments live until the fence is over; `ended` takes the last one.
            unsafe { (self.functions.fence)(of, 1, collect, 1, ended, ptr::from_ref(status).cast_mut().cast()) };
        if begun != SUCCESS {
            status.store(begun, Ordering::Release);
        }
        let mut pause = Duration::from_micros(10);
        let result = loop {
            match status.load(Ordering::Acquire) {
                PENDING => {}
                over => break self.functions.check(DOING, over),
            }
            if let Err(error) = limit.left(DOING) {
                // The library may still write to it: it stays.
                self.is_over = true;
                return Err(error);
            }
            meanwhile();
            rest(pause);
            pause = (2 * pause).min(PAUSE_MAX);
        };
        // SAFETY: made by `Box` above; the library has reported the end, after which it uses none of it.
        drop(unsafe { Box::from_raw(all) });
        self.is_over |= result.is_err();
        result
    }
}

/// Gives the processor to the library's thread for a while.
fn rest(pause: Duration) {
    let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
    let _ = nanosleep(&pause);
}

/// The library reports the end of a fence, on its own thread.
unsafe extern "C" fn ended(status: c_int, to: *mut c_void) {
    // SAFETY: it is what `wait_for_all` gave, which it leaves alone until this store.
    let to = unsafe { &*to.cast::<AtomicI32>() };
    // No status of the library is the one that means "pending".
    to.store(if status == PENDING { -1 } else { status }, Ordering::Release);
}

/// A key or text for the library; none of ours has a zero byte.
fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

impl Bootstrap for Pmix {
    fn rank(&self) -> u32 {
        self.own.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn job_name(&self) -> &str {
        &self.job
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), BootError> {
        self.running()?;
        self.keys.claim(key, value)?;
        let escaped = c_string(&super::line::escape(value));
        let mut value = Value { kind: STRING, data: [escaped.as_ptr().addr() as u64, 0, 0] };
        // SAFETY: the arguments live through the call, in which the library copies them.
        let status = unsafe { (self.functions.put)(GLOBAL, c_string(key).as_ptr(), &mut value) };
        self.functions.check("publishing (PMIx_Put)", status)
    }

    fn fence(&mut self) -> Result<(), BootError> {
        self.wait_for_all(Limit::new(self.answer_max), &mut || {})
    }

    fn barrier(&mut self, limit: Option<Duration>, meanwhile: &mut dyn FnMut()) -> Result<(), BootError> {
        self.wait_for_all(Limit::new(limit), meanwhile)
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<String>, BootError> {
        self.running()?;
        check_rank(rank, self.size)?;
        check_key(key)?;
        let bad = |why| BootError::Value { rank, key: key.into(), why };
        let text = self.with_value("reading (PMIx_Get)", rank, &c_string(key), |value| {
            let start = value.data[0] as usize as *const c_char;
            // SAFETY: the value of a string is one, until it is freed.
            (value.kind == STRING && !start.is_null()).then(|| unsafe { CStr::from_ptr(start) }.to_bytes().to_vec())
        })?;
        let Some(text) = text else { return Ok(None) };
        let text = text.and_then(|text| String::from_utf8(text).ok()).ok_or_else(|| bad("no text"))?;
        super::line::unescape(&text).map(Some).map_err(bad)
    }

    fn finalize(&mut self) -> Result<(), BootError> {
        self.running()?;
        self.is_over = true;
        // SAFETY: no arguments.
        self.functions.check("leaving (PMIx_Finalize)", unsafe { (self.functions.finalize)(ptr::null(), 0) })
    }

    fn abort(&mut self, why: &str) {
        if !self.is_over {
            self.is_over = true;
            let why = c_string(why);
            // SAFETY: no process is named, which means all; the text lives through the call.
            unsafe { (self.functions.abort)(1, why.as_ptr(), ptr::null_mut(), 0) };
        }
    }

    fn limit(&mut self, answer_max: Option<Duration>) {
        self.answer_max = answer_max;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of version 4's `pmix_proc_t`, `pmix_value_t` and `pmix_info_t`.
    const _: () = assert!(size_of::<Proc>() == 260 && size_of::<Value>() == 32 && size_of::<Info>() == 552);

    #[test]
    fn a_switch_is_a_key_and_a_byte() {
        let info = Info::on(c"pmix.collect");
        assert_eq!(
            info.key[..13],
            c"pmix.collect".to_bytes_with_nul().iter().map(|&b| b as c_char).collect::<Vec<_>>()
        );
        assert_eq!((info.value.kind, info.value.data), (BOOL, [1, 0, 0]));
    }

    #[test]
    fn a_rank_that_is_none_is_named() {
        let error = Pmix::from_vars(|name| (name == "PMIX_RANK").then(|| "x".into())).unwrap_err().to_string();
        assert!(error.contains("PMIX_RANK=\"x\""), "{error}");
    }
}
