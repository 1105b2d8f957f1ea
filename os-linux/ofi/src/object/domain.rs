//! Domain: the port and its lock.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{atomic, av, cntr, cq, ep, front, mr};
use crate::abi::info::Info;
use crate::abi::object::{DomainOps, Fid, FidDomain, FidFabric, MrOps, Ops};
use crate::abi::*;
use crate::launcher::Launcher;
use crate::port::Port;

static OPS: Ops = Ops { close, ..Ops::ABSENT };
static DOMAIN_OPS: DomainOps = DomainOps {
    av_open: av::open,
    cq_open: cq::open,
    endpoint: ep::open,
    cntr_open: cntr::open,
    query_atomic: atomic::query,
    ..DomainOps::ABSENT
};
static MR_OPS: MrOps = MrOps { reg: mr::register, regattr: mr::register_with, ..MrOps::ABSENT };

/// A domain.
#[repr(C)]
pub struct Domain {
    front: FidDomain,
    /// Not needed where the caller guarantees to use one thread at a time.
    lock: Option<Mutex<()>>,
    port: UnsafeCell<Port>,
    /// A call has panicked, so the port may be half changed.
    broken: AtomicBool,
    /// Objects that belong to it.
    objects: AtomicUsize,
}

/// `fi_domain`.
pub unsafe extern "C" fn open(
    _: *mut FidFabric,
    info: *mut Info,
    domain: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric gives what `fi_getinfo` gave, or a copy; attributes are null or whole.
    let threading = unsafe { info.as_ref().and_then(|info| info.domain_attr.as_ref()) }.map(|attr| attr.threading);
    let opened = Box::new(Domain {
        front: FidDomain { fid: front(FI_CLASS_DOMAIN, context, &OPS), ops: &DOMAIN_OPS, mr: &MR_OPS },
        lock: (threading != Some(FI_THREAD_DOMAIN)).then(|| Mutex::new(())),
        port: UnsafeCell::new(Port::new(Launcher::from_vars(|name| std::env::var(name).ok()))),
        broken: AtomicBool::new(false),
        objects: AtomicUsize::new(0),
    });
    // SAFETY: libfabric passes room for the object.
    unsafe { *domain = Box::into_raw(opened).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    let domain = fid.cast::<Domain>();
    // SAFETY: the contract of objects.
    if unsafe { (*domain).objects.load(Ordering::Acquire) } > 0 {
        return -FI_EBUSY;
    }
    // SAFETY: the contract of objects; `open` has boxed it, and no object has a pointer to it any more.
    let domain = unsafe { Box::from_raw(domain) };
    match catch_unwind(AssertUnwindSafe(|| drop(domain))) {
        Ok(()) => 0,
        Err(_) => -FI_EOTHER,
    }
}

impl Domain {
    /// From libfabric's pointer.
    ///
    /// # Safety
    /// The pointer is one that [`open`] gave out, of a domain that is not closed; so is the domain as long as
    /// the reference lives.
    pub unsafe fn of<'a>(fid: *mut FidDomain) -> &'a Domain {
        // SAFETY: the caller's promise; a domain begins with its front.
        unsafe { &*fid.cast::<Domain>() }
    }

    /// One object more belongs to it.
    pub fn enter(&self) -> &Self {
        self.objects.fetch_add(1, Ordering::AcqRel);
        self
    }

    /// One object less.
    pub fn leave(&self) {
        self.objects.fetch_sub(1, Ordering::AcqRel);
    }

    /// Works with the port; `panicked` is the answer where that panics, or has panicked before.
    #[inline]
    pub fn with<R>(&self, panicked: R, work: impl FnOnce(&mut Port) -> R) -> R {
        if self.broken.load(Ordering::Relaxed) {
            return panicked;
        }
        let _guard = self.lock.as_ref().map(|lock| lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        // SAFETY: this call has exclusive access to the port: either the lock is held, or the caller has
        // chosen `FI_THREAD_DOMAIN`, which guarantees that only one thread at a time is in any call on the
        // domain and its objects. No call on the port comes back here, as the port has no references to C.
        let port = unsafe { &mut *self.port.get() };
        match catch_unwind(AssertUnwindSafe(|| work(port))) {
            Ok(result) => result,
            Err(_) => {
                self.broken.store(true, Ordering::Relaxed);
                panicked
            }
        }
    }
}
