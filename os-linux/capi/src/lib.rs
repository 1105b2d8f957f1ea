//! The transport for C: `include/rerail.h` documents each function; `tests/program.rs` compiles a program
//! against it.
//!
//! No panic crosses to C: a call that panics answers `RERAIL_EPANIC`, and so does every later one of its
//! transport.
#![allow(unsafe_code)]

mod events;
mod names;
mod one_sided;

use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rerail_core::endpoint::{Event as CoreEvent, Written};
use rerail_core::ids::Key;
use rerail_linux::{
    CancelError, Completion, Contacts, Cookie, Name, Notify, OpError, OpId, PeerId, QueueId, RecvRequest, RegionId,
    RequestError, RequestKind, Seg, Selector, SendRequest, Settings, SubmitError, TagMatch, Transport,
};

const EINVAL: c_int = -1;
const EAGAIN: c_int = -2;
const ESTATE: c_int = -3;
const ESYSTEM: c_int = -4;
const EPEER: c_int = -5;
const ETRUNCATED: c_int = -6;
const ECANCELLED: c_int = -7;
const EREFUSED: c_int = -8;
const EPANIC: c_int = -9;

const COMPLETED: u16 = 1;
const PEER_UP: u16 = 2;
const PEER_CLOSED: u16 = 3;
const PEER_LOST: u16 = 4;
const CALLER: u16 = 5;
const WRITTEN: u16 = 6;

const SEND: u16 = 1;
const RECV: u16 = 2;
const PUT: u16 = 3;
const GET: u16 = 4;
const ATOMIC: u16 = 5;
const FLUSH: u16 = 6;

const LAST: u32 = 1;
const IMMEDIATE: u32 = 2;
const TAGGED: u32 = 4;

/// From any rank.
const ANY: u32 = u32::MAX;

/// `rerail_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Event {
    cookie: u64,
    bytes: u64,
    tag: u64,
    immediate: u64,
    status: i32,
    kind: u16,
    request: u16,
    peer: u32,
    flags: u32,
}

#[allow(clippy::large_enum_variant, reason = "there is one for each transport, which is looked at in every call")]
enum Stage {
    Listening(Contacts),
    Joined(Transport),
    Over,
}

/// `rerail`.
pub struct Handle {
    stage: Stage,
    own: Name,
    /// That of the last `RERAIL_CALLER` event.
    caller: Option<Name>,
    /// All of this process's memory.
    region: RegionId,
    /// Completion queues by their number, from 1 on.
    queues: Vec<QueueId>,
    /// Peers to which the next one-sided request is fenced.
    fenced: Vec<u32>,
    error: CString,
    panicked: bool,
}

/// Why a call fails: its number, and the reason in words.
struct Failure(c_int, String);

fn failure(number: c_int, why: impl Display) -> Failure {
    Failure(number, why.to_string())
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let number = match error {
            _ if error.is_full() => EAGAIN,
            RequestError::Submit(SubmitError::PeerGone(_)) => EPEER,
            _ => EINVAL,
        };
        failure(number, error)
    }
}

impl Handle {
    fn open() -> Result<Handle, Failure> {
        let settings = Settings::from_env().map_err(|error| failure(EINVAL, error))?;
        let contacts = Contacts::open(&settings).map_err(|error| failure(ESYSTEM, error))?;
        let own = Name::new(&contacts, None);
        Ok(Handle {
            stage: Stage::Listening(contacts),
            own,
            caller: None,
            region: RegionId(0),
            queues: Vec::new(),
            fenced: Vec::new(),
            error: CString::default(),
            panicked: false,
        })
    }

    fn transport(&mut self) -> Result<&mut Transport, Failure> {
        match &mut self.stage {
            Stage::Joined(transport) => Ok(transport),
            _ => Err(failure(ESTATE, "rerail_join comes first")),
        }
    }

    fn join(&mut self, names: &[Name]) -> Result<(), Failure> {
        let contacts = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Listening(contacts) => contacts,
            stage => {
                self.stage = stage;
                return Err(failure(ESTATE, "the transport has joined already"));
            }
        };
        let mut transport = contacts.join(&self.own, names).map_err(|error| failure(ESYSTEM, error))?;
        // SAFETY: requests and windows name the caller's memory. By the header's contract the caller leaves
        // it mapped and to the transport until the request's last event, or until the window is deregistered.
        // The rails that are opened here keep no memory registered.
        self.region = unsafe { transport.adopt_address_space() }.map_err(|error| failure(ESYSTEM, error))?;
        self.stage = Stage::Joined(transport);
        Ok(())
    }

    fn queue(&self, number: u32) -> Option<QueueId> {
        self.queues.get((number as usize).checked_sub(1)?).copied()
    }

    fn fail(&mut self, Failure(number, why): Failure) -> c_int {
        self.set_error(&why);
        number
    }

    fn set_error(&mut self, why: &str) {
        self.error = CString::new(why.replace('\0', " ")).unwrap_or_default();
    }

    fn event(&mut self, event: CoreEvent) -> Event {
        let about = |kind, peer: PeerId| Event { kind, peer: peer.0, ..Event::default() };
        match event {
            CoreEvent::PeerUp { peer } => about(PEER_UP, peer),
            CoreEvent::PeerClosed { peer } => about(PEER_CLOSED, peer),
            CoreEvent::PeerLost { peer, why } => {
                if let Stage::Joined(transport) = &self.stage {
                    let why = format!("rank {} is lost: {}", peer.0, transport.describe_loss(why));
                    self.set_error(&why);
                }
                Event { status: EPEER, ..about(PEER_LOST, peer) }
            }
            CoreEvent::Written(Written { peer, window: cookie, offset: tag, bytes, immediate, .. }) => {
                Event { cookie, bytes, tag, immediate, flags: IMMEDIATE, ..about(WRITTEN, peer) }
            }
            CoreEvent::Completed(completion) => completed(&completion),
        }
    }
}

fn completed(completion: &Completion) -> Event {
    let request = match completion.kind {
        RequestKind::Send => SEND,
        RequestKind::Recv | RequestKind::MultiRecv => RECV,
        RequestKind::Put => PUT,
        RequestKind::Get => GET,
        RequestKind::Atomic => ATOMIC,
        RequestKind::Flush => FLUSH,
    };
    let mut event = Event { cookie: completion.cookie.0, kind: COMPLETED, request, ..Event::default() };
    let (mut tagged, mut immediate) = (None, None);
    match completion.result {
        Ok(done) => {
            (event.bytes, event.peer, tagged, immediate) = (done.bytes, done.peer.0, done.tag, done.immediate);
            if request == ATOMIC {
                event.immediate = done.old;
            }
        }
        Err(OpError::Truncated { sent, peer, tag, immediate: came, .. }) => {
            (event.status, event.bytes, event.peer) = (ETRUNCATED, sent, peer.0);
            (tagged, immediate) = (tag, came);
        }
        Err(OpError::Cancelled) => event.status = ECANCELLED,
        Err(OpError::PeerLost { peer, .. } | OpError::PeerClosed { peer }) => {
            (event.status, event.peer) = (EPEER, peer.0);
        }
        Err(OpError::Refused { peer, .. }) => (event.status, event.peer) = (EREFUSED, peer.0),
        Err(OpError::Registration { .. }) => event.status = ESYSTEM,
    }
    if let Some(tag) = tagged {
        event.tag = tag;
        event.flags |= TAGGED;
    }
    if let Some(immediate) = immediate {
        event.immediate = immediate;
        event.flags |= IMMEDIATE;
    }
    if completion.last {
        event.flags |= LAST;
    }
    event
}

/// Works with a transport; `failed` is the answer where the pointer is null or the work panics.
///
/// # Safety
/// `handle` is null or came from `rerail_open` and was not closed, and no other call on it is running.
unsafe fn with<R>(handle: *mut Handle, failed: R, work: impl FnOnce(&mut Handle) -> R) -> R {
    // SAFETY: the caller's promise.
    let Some(handle) = (unsafe { handle.as_mut() }) else { return failed };
    if handle.panicked {
        return failed;
    }
    match catch_unwind(AssertUnwindSafe(|| work(&mut *handle))) {
        Ok(result) => result,
        Err(_) => {
            handle.panicked = true;
            failed
        }
    }
}

/// The same for calls that work or fail.
///
/// # Safety
/// As there.
unsafe fn call(handle: *mut Handle, work: impl FnOnce(&mut Handle) -> Result<(), Failure>) -> c_int {
    let answer = |handle: &mut Handle| match work(handle) {
        Ok(()) => 0,
        Err(failure) => handle.fail(failure),
    };
    // SAFETY: the caller's promise.
    unsafe { with(handle, EPANIC, answer) }
}

/// The same for calls with a result, which is written to `to` unless that is null.
///
/// # Safety
/// As there; `to` is null or writable.
unsafe fn answer<T>(handle: *const Handle, to: *mut T, work: impl FnOnce(&mut Handle) -> Result<T, Failure>) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        call(handle.cast_mut(), |handle| {
            let result = work(handle)?;
            if let Some(to) = to.as_mut() {
                *to = result;
            }
            Ok(())
        })
    }
}

/// The same for requests on `count` bytes at `bytes`; the result is the request's number.
///
/// # Safety
/// As there; the bytes are the transport's until the request's last event.
unsafe fn submit(
    handle: *mut Handle,
    request: *mut u64,
    (bytes, count): (*const c_void, usize),
    may_wait: bool,
    work: impl FnOnce(&mut Transport, &[Seg]) -> Result<OpId, RequestError>,
) -> c_int {
    let submitted = |handle: &mut Handle| {
        let segments = [Seg::new(handle.region, bytes.expose_provenance() as u64, count as u64)];
        let transport = handle.transport()?;
        let operation = work(transport, &segments)?;
        if !may_wait {
            transport.push();
        }
        Ok(operation.0.to_bits())
    };
    // SAFETY: the caller's promise.
    unsafe { answer(handle, request, submitted) }
}

/// See the header.
///
/// # Safety
/// `transport` is writable; `why` is null or has room for `why_bytes` characters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_open(transport: *mut *mut Handle, why: *mut c_char, why_bytes: usize) -> c_int {
    let opened = catch_unwind(Handle::open).unwrap_or_else(|_| Err(failure(EPANIC, "an error of the library")));
    match opened {
        Ok(handle) => {
            // SAFETY: the caller's promise.
            unsafe { *transport = Box::into_raw(Box::new(handle)) };
            0
        }
        Err(Failure(number, reason)) => {
            if !why.is_null() && why_bytes > 0 {
                let fits = reason.len().min(why_bytes - 1);
                // SAFETY: the caller's promise.
                unsafe {
                    reason.as_ptr().copy_to_nonoverlapping(why.cast(), fits);
                    *why.add(fits) = 0;
                }
            }
            number
        }
    }
}

/// See the header.
///
/// # Safety
/// That of `with`; `count` bytes at `bytes` do not change until the last event; `request` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_send(
    handle: *mut Handle,
    peer: u32,
    tag: u64,
    immediate: u64,
    bytes: *const c_void,
    count: usize,
    cookie: u64,
    request: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        submit(handle, request, (bytes, count), false, |transport, segments| {
            let (tag, immediate, cookie) = (Some(tag), Some(immediate), Cookie(cookie));
            transport.send(&SendRequest { tag, immediate, cookie, ..SendRequest::new(PeerId(peer), segments) })
        })
    }
}

/// See the header.
///
/// # Safety
/// That of [`rerail_send`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_send_more(
    handle: *mut Handle,
    peer: u32,
    tag: u64,
    immediate: u64,
    bytes: *const c_void,
    count: usize,
    cookie: u64,
    request: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        submit(handle, request, (bytes, count), true, |transport, segments| {
            let (tag, immediate, cookie) = (Some(tag), Some(immediate), Cookie(cookie));
            transport.send(&SendRequest {
                tag,
                immediate,
                cookie,
                more: true,
                ..SendRequest::new(PeerId(peer), segments)
            })
        })
    }
}

/// See the header.
///
/// # Safety
/// That of `with`; `count` bytes at `bytes` are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_inject(
    handle: *mut Handle,
    peer: u32,
    tag: u64,
    immediate: u64,
    bytes: *const c_void,
    count: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        submit(handle, std::ptr::null_mut(), (bytes, 0), false, |transport, _| {
            let payload = if count == 0 { &[] } else { std::slice::from_raw_parts(bytes.cast::<u8>(), count) };
            let (tag, immediate, notify) = (Some(tag), Some(immediate), Notify::Silent);
            transport.inject(&SendRequest { tag, immediate, notify, ..SendRequest::new(PeerId(peer), &[]) }, payload)
        })
    }
}

/// See the header.
///
/// # Safety
/// That of `with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_inject_max(handle: *const Handle) -> usize {
    let limit = |handle: &mut Handle| handle.transport().map_or(0, |transport| transport.config().eager_bytes_max);
    // SAFETY: the caller's promise.
    unsafe { with(handle.cast_mut(), 0, limit) as usize }
}

/// See the header.
///
/// # Safety
/// That of `with`; `count` bytes at `bytes` are the transport's until the last event; `request` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_recv(
    handle: *mut Handle,
    peer: u32,
    tag: u64,
    ignore: u64,
    bytes: *mut c_void,
    count: usize,
    cookie: u64,
    request: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        submit(handle, request, (bytes, count), false, |transport, segments| {
            let source = (peer != ANY).then_some(PeerId(peer));
            let from = Selector { source, tag: TagMatch::Tagged { tag, ignore } };
            transport.recv(&RecvRequest { cookie: Cookie(cookie), ..RecvRequest::new(from, segments) })
        })
    }
}

/// See the header.
///
/// # Safety
/// That of `with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_cancel(handle: *mut Handle, request: u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        call(handle, |handle| {
            handle.transport()?.cancel(OpId(Key::from_bits(request))).map_err(|error| match error {
                CancelError::TooLate => failure(EAGAIN, "too late: the request will complete"),
                CancelError::Unknown => failure(EINVAL, "there is no such request, or it is over"),
            })
        })
    }
}

/// See the header.
///
/// # Safety
/// `handle` came from `rerail_open` and was not closed; the text is read before the next call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_error(handle: *const Handle) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.map_or(c"no transport".as_ptr(), |handle| handle.error.as_ptr())
}

/// See the header.
///
/// # Safety
/// `handle` came from `rerail_open` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_close(handle: *mut Handle, ms: c_int) -> c_int {
    if handle.is_null() {
        return EINVAL;
    }
    // SAFETY: the caller's promise; `rerail_open` has boxed it.
    let handle = unsafe { Box::from_raw(handle) };
    let limit = u64::try_from(ms).ok().map(Duration::from_millis);
    let finish = move || match handle.stage {
        Stage::Joined(transport) => match transport.finish(limit) {
            Ok(shutdown) if shutdown.abandoned.is_empty() => 0,
            Ok(_) => EPEER,
            Err(_) => ESYSTEM,
        },
        _ => 0,
    };
    catch_unwind(AssertUnwindSafe(finish)).unwrap_or(EPANIC)
}

/// Bytes of an event: what the header's must have.
pub const EVENT_BYTES: usize = size_of::<Event>();
