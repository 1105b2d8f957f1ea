//! The inline functions of `infiniband/verbs.h`: calls through the tables of a context.
//!
//! The table before a context is newer than the context; its size determines which of its entries exist
//! (`verbs_get_ctx_op` of the header). A missing entry gives the header's error: `EOPNOTSUPP`.

use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr::null_mut;

use crate::objects::*;
use crate::offers::*;
use crate::types::*;
use crate::work::*;

/// The table before a context, if there is one that reaches back to the byte at `offset` of
/// [`verbs_context`].
///
/// # Safety
/// `context` is open.
unsafe fn extended(context: *mut ibv_context, offset: usize) -> Option<*const verbs_context> {
    // SAFETY: an open context, by the caller's promise.
    if unsafe { (*context).abi_compat } as usize != VERBS_ABI_IS_EXTENDED {
        return None;
    }
    let table = context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>().cast_const();
    // SAFETY: the mark above guarantees that at least `sz` lies directly before the context.
    let size = unsafe { (&raw const (*table).sz).read() };
    (size >= size_of::<verbs_context>() - offset).then_some(table)
}

/// An entry of the table before a context.
macro_rules! entry {
    ($context:expr, $name:ident) => {{
        let table = extended($context, offset_of!(verbs_context, $name));
        // The size covers this entry.
        table.and_then(|table| (&raw const (*table).$name).read())
    }};
}

fn unsupported<T>() -> *mut T {
    // SAFETY: the location is this thread's.
    unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
    null_mut()
}

/// The error of a missing entry that posts a list of requests: none of them was taken.
///
/// # Safety
/// `bad_wr` may be written.
unsafe fn none_taken<R>(wr: *mut R, bad_wr: *mut *mut R) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *bad_wr = wr };
    libc::EOPNOTSUPP
}

/// Functions that call an entry of a table; `else`: their result where it is missing.
macro_rules! calls {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty {
        $entry:expr, else $missing:expr
    })*) => {$(
        $(#[$doc])*
        #[inline]
        pub unsafe fn $name($($argument: $type),*) -> $result {
            // SAFETY: a live object has an open context, whose tables the provider has filled, and an entry
            // is looked up as the header does; the rest is the caller's promise.
            unsafe {
                match $entry {
                    Some(entry) => entry($($argument),*),
                    None => $missing,
                }
            }
        }
    )*};
}

/// `ibv_query_device_ex(3)`: errno; `EOPNOTSUPP` where the header would call `ibv_query_device` instead.
/// Fields of `attr` that the library does not fill are left as they are.
///
/// # Safety
/// `context` is open, `attr` whole.
pub unsafe fn ibv_query_device_ex(context: *mut ibv_context, attr: *mut ibv_device_attr_ex) -> c_int {
    let input = ibv_query_device_ex_input::default();
    // SAFETY: the caller's promise; the entry is looked up as the header does, and receives the size
    // of the struct.
    unsafe {
        match entry!(context, query_device_ex) {
            Some(query_device_ex) => query_device_ex(context, &input, attr, size_of::<ibv_device_attr_ex>()),
            None => libc::EOPNOTSUPP,
        }
    }
}

calls! {
    /// `ibv_poll_cq(3)`: how many were taken, or negative.
    ///
    /// # Safety
    /// `cq` is a live completion queue; `wc` has room for `num_entries`.
    fn ibv_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
        (*(*cq).context).ops.poll_cq, else -1
    }

    /// `ibv_req_notify_cq(3)`: errno.
    ///
    /// # Safety
    /// `cq` is a live completion queue.
    fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
        (*(*cq).context).ops.req_notify_cq, else libc::EOPNOTSUPP
    }

    /// `ibv_post_send(3)`: errno, and in `bad_wr` the first request that was not taken.
    ///
    /// # Safety `qp` is a live queue pair; `wr` is a list of whole requests whose lists of pieces, inline
    /// data and address handles are valid.
    fn ibv_post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
        (*(*qp).context).ops.post_send, else none_taken(wr, bad_wr)
    }

    /// `ibv_post_recv(3)`: errno, and in `bad_wr` the first request that was not taken.
    ///
    /// # Safety
    /// `qp` is a live queue pair; `wr` is a list of whole requests whose lists of pieces are valid.
    fn ibv_post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int {
        (*(*qp).context).ops.post_recv, else none_taken(wr, bad_wr)
    }

    /// `ibv_post_srq_recv(3)`: errno, and in `bad_wr` the first request that was not taken.
    ///
    /// # Safety `srq` is a live shared receive queue; `wr` is a list of whole requests whose lists of
    /// pieces are valid.
    fn ibv_post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int {
        (*(*srq).context).ops.post_srq_recv, else none_taken(wr, bad_wr)
    }

    /// `ibv_modify_cq(3)`: errno.
    ///
    /// # Safety
    /// `cq` is a live completion queue, `attr` whole.
    fn ibv_modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
        entry!((*cq).context, modify_cq), else libc::EOPNOTSUPP
    }

    /// `ibv_open_xrcd(3)`: NULL with `errno` on failure.
    ///
    /// # Safety
    /// `context` is open, `attr` whole.
    fn ibv_open_xrcd(context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd {
        entry!(context, open_xrcd), else unsupported()
    }

    /// `ibv_close_xrcd(3)`: errno.
    ///
    /// # Safety
    /// `xrcd` is open, and not used afterwards unless this fails.
    fn ibv_close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
        entry!((*xrcd).context, close_xrcd), else libc::EOPNOTSUPP
    }

    /// `ibv_create_srq_ex(3)` for extended kinds: NULL with `errno` on failure.
    ///
    /// # Safety
    /// `context` is open, `attr` whole, its objects are of this context.
    fn ibv_create_srq_ex(context: *mut ibv_context, attr: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq {
        entry!(context, create_srq_ex), else unsupported()
    }

    /// `ibv_get_srq_num(3)`: errno.
    ///
    /// # Safety
    /// `srq` is a live shared receive queue, `srq_num` may be written.
    fn ibv_get_srq_num(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int {
        entry!((*srq).context, get_srq_num), else libc::EOPNOTSUPP
    }

    /// `ibv_create_qp_ex(3)` for kinds that need more than a protection domain: NULL with `errno` on failure.
    ///
    /// # Safety
    /// `context` is open, `attr` whole, its objects are of this context.
    fn ibv_create_qp_ex(context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
        entry!(context, create_qp_ex), else unsupported()
    }

    /// `ibv_open_qp(3)`: NULL with `errno` on failure.
    ///
    /// # Safety
    /// `context` is open, `attr` whole, its objects are of this context.
    fn ibv_open_qp(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp {
        entry!(context, open_qp), else unsupported()
    }
}
