//! Making, changing and destroying objects.
//!
//! Safety argument, beside that of the folder: an object's type can be neither copied nor made elsewhere, and
//! the function that destroys an object takes it, so a live value stands for a live object of the library.
//! The kernel tracks which objects use which others as well: it refuses to destroy one in use, and then the
//! library has freed nothing and the value comes back. Objects don't keep their context open: the values live
//! in [`IbDevice`](crate::ib::IbDevice) beside the [`Handle`] that made them, which goes last.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::ptr::{NonNull, null_mut};

use rdma_core_sys::*;

use super::events::Channel;
use super::{Handle, check};

/// An object of the library that is destroyed by itself.
pub(crate) trait Object {
    /// Destroys it; an error number where that fails.
    ///
    /// # Safety
    /// It is not used again unless this fails.
    unsafe fn destroy(&self, functions: &Functions) -> c_int;
}

macro_rules! object {
    ($($(#[$doc:meta])* $name:ident: $raw:ident, |$functions:ident| $destroy:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name(pub(super) NonNull<$raw>);

        // SAFETY: it belongs to no thread, and libibverbs may be called from any.
        unsafe impl Send for $name {}

        impl Object for $name {
            unsafe fn destroy(&self, $functions: &Functions) -> c_int {
                // SAFETY: the object is live; the rest is the caller's promise.
                unsafe { $destroy(self.0.as_ptr()) }
            }
        }
    )*};
}

object! {
    /// A protection domain.
    Pd: ibv_pd, |functions| (functions.dealloc_pd);
    /// A memory registration.
    Mr: ibv_mr, |functions| (functions.dereg_mr);
    /// A completion queue.
    Cq: ibv_cq, |functions| (functions.destroy_cq);
    /// A shared receive queue.
    Srq: ibv_srq, |functions| (functions.destroy_srq);
    /// A queue pair.
    Qp: ibv_qp, |functions| (functions.destroy_qp);
    /// An address handle.
    Ah: ibv_ah, |functions| (functions.destroy_ah);
    /// An XRC domain.
    Xrcd: ibv_xrcd, |_functions| ibv_close_xrcd;
}

/// The parts of a queue pair.
pub(crate) struct QpParts<'o> {
    /// `IBV_QPT_*`.
    pub kind: ibv_qp_type,
    pub pd: Option<&'o Pd>,
    pub send_cq: Option<&'o Cq>,
    pub recv_cq: Option<&'o Cq>,
    pub srq: Option<&'o Srq>,
    pub domain: Option<&'o Xrcd>,
    pub caps: ibv_qp_cap,
    pub signal_all: bool,
    /// Comes back with events.
    pub name: u32,
}

fn made<T>(raw: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(raw).ok_or_else(io::Error::last_os_error)
}

/// A name as the library keeps it for us, a pointer that is not followed.
pub(super) fn tag(name: u32) -> *mut c_void {
    std::ptr::without_provenance_mut(name as usize)
}

/// The name back.
pub(super) fn untag(tag: *mut c_void) -> u32 {
    tag.addr() as u32
}

fn raw<T>(object: Option<NonNull<T>>) -> *mut T {
    object.map_or(null_mut(), NonNull::as_ptr)
}

/// The completion vector of a process's queues, of so many: interrupts of a node's processes go to as many
/// processors as the device serves, not all to one. A device that reports none has the first.
pub(crate) fn vector_of(process: u32, vectors: c_int) -> c_int {
    let vectors = u32::try_from(vectors).unwrap_or(0);
    process.checked_rem(vectors).unwrap_or(0).cast_signed()
}

impl Handle {
    /// Destroys an object; where that fails, it is still there and comes back.
    pub(crate) fn destroy<T: Object>(&self, object: T) -> Result<(), (T, io::Error)> {
        // SAFETY: the object is not used again unless this fails.
        check(unsafe { object.destroy(&self.functions) }).map_err(|error| (object, error))
    }

    pub(crate) fn alloc_pd(&self) -> io::Result<Pd> {
        // SAFETY: the context is open.
        made(unsafe { (self.functions.alloc_pd)(self.context.as_ptr()) }).map(Pd)
    }

    /// Registers memory under its own address. Optional flags of `access` take effect where the library
    /// supports them.
    ///
    /// # Safety
    /// The memory stays mapped, and writable where `access` allows writes, until the registration has ended.
    pub(crate) unsafe fn reg_mr(&self, pd: &Pd, start: *mut u8, bytes: usize, access: u32) -> io::Result<Mr> {
        let (pd, address, start) = (pd.0.as_ptr(), start.addr() as u64, start.cast());
        // SAFETY: the domain is live; the caller guarantees the memory.
        let mr = unsafe {
            match self.functions.reg_mr_iova2 {
                Some(reg_mr_iova2) => reg_mr_iova2(pd, start, bytes, address, access),
                None => (self.functions.reg_mr)(pd, start, bytes, access.cast_signed()),
            }
        };
        made(mr).map(Mr)
    }

    pub(crate) fn create_cq(&self, depth: u32, channel: &Channel, name: u32) -> io::Result<Cq> {
        let depth = c_int::try_from(depth).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: the context is open; the field is not written after that.
        let vectors = unsafe { (&raw const (*self.context.as_ptr()).num_comp_vectors).read() };
        let vector = vector_of(std::process::id(), vectors);
        let (context, channel) = (self.context.as_ptr(), channel.0.as_ptr());
        // SAFETY: the context is open, the channel is live, the vector is below their number or 0.
        made(unsafe { (self.functions.create_cq)(context, depth, tag(name), channel, vector) }).map(Cq)
    }

    /// So many of a queue's completion events were read. Without this, destroying it never ends.
    pub(crate) fn ack_cq_events(&self, cq: &Cq, events: u32) {
        if events > 0 {
            // SAFETY: the queue is live, and so many of its events were read and not acknowledged.
            unsafe { (self.functions.ack_cq_events)(cq.0.as_ptr(), events) };
        }
    }

    /// The sizes of a shared receive queue: as queried, since not every driver reports the rounded-up sizes
    /// at making (rxe); where the query fails, as reported at making.
    fn srq_sizes(&self, srq: &Srq, reported: ibv_srq_attr) -> ibv_srq_attr {
        let mut attr = ibv_srq_attr::default();
        // SAFETY: the queue is live, there is room for the answer.
        let queried = check(unsafe { (self.functions.query_srq)(srq.0.as_ptr(), &mut attr) });
        if queried.is_ok() && attr.max_wr >= reported.max_wr { attr } else { reported }
    }

    /// A shared receive queue and its sizes; one for XRC with its number.
    pub(crate) fn create_srq(
        &self,
        pd: &Pd,
        xrc: Option<(&Xrcd, &Cq)>,
        attr: ibv_srq_attr,
        name: u32,
    ) -> io::Result<(Srq, ibv_srq_attr, Option<u32>)> {
        let Some((domain, cq)) = xrc else {
            let mut init = ibv_srq_init_attr { srq_context: tag(name), attr };
            // SAFETY: the domain is live, `init` is whole.
            let srq = Srq(made(unsafe { (self.functions.create_srq)(pd.0.as_ptr(), &mut init) })?);
            let given = self.srq_sizes(&srq, init.attr);
            return Ok((srq, given, None));
        };
        let mut init = ibv_srq_init_attr_ex {
            srq_context: tag(name),
            attr,
            comp_mask: IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
            srq_type: IBV_SRQT_XRC,
            pd: pd.0.as_ptr(),
            xrcd: domain.0.as_ptr(),
            cq: cq.0.as_ptr(),
            tm_cap: ibv_tm_cap { max_num_tags: 0, max_ops: 0 },
        };
        // SAFETY: the context is open; objects in `init` are live and of this context.
        let srq = Srq(made(unsafe { ibv_create_srq_ex(self.context.as_ptr(), &mut init) })?);
        let mut number = 0;
        // SAFETY: the queue is live.
        if let Err(error) = check(unsafe { ibv_get_srq_num(srq.0.as_ptr(), &mut number) }) {
            // Without a number it is of no use; an error of destroying it would add no information.
            let _ = self.destroy(srq);
            return Err(error);
        }
        let given = self.srq_sizes(&srq, init.attr);
        Ok((srq, given, Some(number)))
    }

    pub(crate) fn arm_srq(&self, srq: &Srq, limit: u32) -> io::Result<()> {
        let mut attr = ibv_srq_attr { srq_limit: limit, ..Default::default() };
        // SAFETY: the queue is live, `attr` is whole.
        check(unsafe { (self.functions.modify_srq)(srq.0.as_ptr(), &mut attr, IBV_SRQ_LIMIT) })
    }

    /// `file`: its descriptor and `O_*` flags; without one a domain that only this process can use.
    pub(crate) fn open_xrcd(&self, file: Option<(c_int, c_int)>) -> io::Result<Xrcd> {
        let (fd, oflags) = file.unwrap_or((-1, libc::O_CREAT));
        let comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        let mut init = ibv_xrcd_init_attr { comp_mask, fd, oflags };
        // SAFETY: the context is open, `init` is whole; a descriptor that is none is refused by the kernel.
        made(unsafe { ibv_open_xrcd(self.context.as_ptr(), &mut init) }).map(Xrcd)
    }

    /// Makes a queue pair; also the sizes that the device gave, and its number.
    pub(crate) fn create_qp(&self, parts: &QpParts<'_>) -> io::Result<(Qp, ibv_qp_cap, u32)> {
        let (send_cq, recv_cq) = (raw(parts.send_cq.map(|it| it.0)), raw(parts.recv_cq.map(|it| it.0)));
        let (srq, pd) = (raw(parts.srq.map(|it| it.0)), raw(parts.pd.map(|it| it.0)));
        let (qp_context, sq_sig_all) = (tag(parts.name), parts.signal_all.into());
        let (qp, caps) = if let Some(domain) = parts.domain {
            // SAFETY: numbers and pointers, which may be zero and NULL.
            let mut init: ibv_qp_init_attr_ex = unsafe { zeroed() };
            init.qp_context = qp_context;
            init.cap = parts.caps;
            init.qp_type = parts.kind;
            init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
            init.xrcd = domain.0.as_ptr();
            // SAFETY: the context is open; objects in `init` are live and of this context.
            (made(unsafe { ibv_create_qp_ex(self.context.as_ptr(), &mut init) })?, init.cap)
        } else {
            let mut init = ibv_qp_init_attr {
                qp_context,
                send_cq,
                recv_cq,
                srq,
                cap: parts.caps,
                qp_type: parts.kind,
                sq_sig_all,
            };
            if pd.is_null() {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            // SAFETY: the domain is live; objects in `init` are live and of this context.
            (made(unsafe { (self.functions.create_qp)(pd, &mut init) })?, init.cap)
        };
        // SAFETY: a queue pair just made; its number is not written afterwards.
        let number = unsafe { (&raw const (*qp.as_ptr()).qp_num).read() };
        let qp = Qp(qp);
        Ok((qp, caps, number))
    }

    /// Opens an XRC target by its number.
    pub(crate) fn open_qp(&self, domain: &Xrcd, number: u32, name: u32) -> io::Result<Qp> {
        let mut attr = ibv_qp_open_attr {
            comp_mask: IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE,
            qp_num: number,
            xrcd: domain.0.as_ptr(),
            qp_context: tag(name),
            qp_type: IBV_QPT_XRC_RECV,
        };
        // SAFETY: the context is open, the domain is live and of this context.
        made(unsafe { ibv_open_qp(self.context.as_ptr(), &mut attr) }).map(Qp)
    }

    pub(crate) fn modify_qp(&self, qp: &Qp, attr: &mut ibv_qp_attr, mask: c_int) -> io::Result<()> {
        // SAFETY: the queue pair is live, `attr` is whole and holds numbers only.
        check(unsafe { (self.functions.modify_qp)(qp.0.as_ptr(), attr, mask) })
    }

    pub(crate) fn query_qp(&self, qp: &Qp, mask: c_int) -> io::Result<ibv_qp_attr> {
        let mut attr = ibv_qp_attr::default();
        let mut init = MaybeUninit::<ibv_qp_init_attr>::zeroed();
        // SAFETY: the queue pair is live, there is room for both answers.
        check(unsafe { (self.functions.query_qp)(qp.0.as_ptr(), &mut attr, mask, init.as_mut_ptr()) })?;
        Ok(attr)
    }

    pub(crate) fn create_ah(&self, pd: &Pd, mut attr: ibv_ah_attr) -> io::Result<Ah> {
        // SAFETY: the domain is live, `attr` is whole.
        made(unsafe { (self.functions.create_ah)(pd.0.as_ptr(), &mut attr) }).map(Ah)
    }
}

impl Mr {
    /// Local and remote key.
    pub(crate) fn keys(&self) -> (u32, u32) {
        // SAFETY: the registration is live, and is not written.
        unsafe { ((&raw const (*self.0.as_ptr()).lkey).read(), (&raw const (*self.0.as_ptr()).rkey).read()) }
    }
}
