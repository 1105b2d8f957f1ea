//! Objects and their tables of operations. A slot that the provider does not fill answers `-FI_ENOSYS`:
//! callers look at no slot before they call it.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use libc::iovec;

use super::FI_ENOSYS;
use super::data::{
    AtomicAttr, AvAttr, CntrAttr, CqAttr, CqErrEntry, EqAttr, Ioc, MrAttr, Msg, MsgAtomic, MsgRma, MsgTagged,
};
use super::info::Info;

type Ptr = *mut c_void;
type Const = *const c_void;
type Desc = *mut *mut c_void;

/// What an operation answers that the provider does not have.
trait Absent {
    const ABSENT: Self;
}

impl Absent for c_int {
    const ABSENT: Self = -FI_ENOSYS;
}

impl Absent for isize {
    const ABSENT: Self = -(FI_ENOSYS as isize);
}

impl Absent for u64 {
    const ABSENT: Self = 0;
}

impl Absent for *const c_char {
    const ABSENT: Self = ptr::null();
}

macro_rules! tables {
    ($($(#[$doc:meta])* $table:ident { $($field:ident($($arg:ty),*) -> $result:ty;)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        pub struct $table {
            /// Bytes of the table.
            pub size: usize,
            $(#[doc = concat!("`", stringify!($field), "`")] pub $field: unsafe extern "C" fn($($arg),*) -> $result,)*
        }

        impl $table {
            /// Every operation is absent.
            pub const ABSENT: Self = Self {
                size: size_of::<Self>(),
                $($field: {
                    unsafe extern "C" fn absent($(_: $arg),*) -> $result {
                        <$result as Absent>::ABSENT
                    }
                    absent
                },)*
            };
        }
    )*};
}

tables! {
    /// Of every object.
    Ops {
        close(*mut Fid) -> c_int;
        bind(*mut Fid, *mut Fid, u64) -> c_int;
        control(*mut Fid, c_int, Ptr) -> c_int;
        ops_open(*mut Fid, *const c_char, u64, *mut Ptr, Ptr) -> c_int;
        tostr(*const Fid, *mut c_char, usize) -> c_int;
        ops_set(*mut Fid, *const c_char, u64, Ptr, Ptr) -> c_int;
    }
    /// Of a fabric.
    FabricOps {
        domain(*mut FidFabric, *mut Info, *mut *mut FidDomain, Ptr) -> c_int;
        passive_ep(*mut FidFabric, *mut Info, *mut Ptr, Ptr) -> c_int;
        eq_open(*mut FidFabric, *mut EqAttr, *mut *mut FidEq, Ptr) -> c_int;
        wait_open(*mut FidFabric, Ptr, *mut Ptr) -> c_int;
        trywait(*mut FidFabric, *mut *mut Fid, c_int) -> c_int;
        domain2(*mut FidFabric, *mut Info, *mut *mut FidDomain, u64, Ptr) -> c_int;
    }
    /// Of a domain.
    DomainOps {
        av_open(*mut FidDomain, *mut AvAttr, *mut *mut FidAv, Ptr) -> c_int;
        cq_open(*mut FidDomain, *mut CqAttr, *mut *mut FidCq, Ptr) -> c_int;
        endpoint(*mut FidDomain, *mut Info, *mut *mut FidEp, Ptr) -> c_int;
        scalable_ep(*mut FidDomain, *mut Info, *mut *mut FidEp, Ptr) -> c_int;
        cntr_open(*mut FidDomain, *mut CntrAttr, *mut *mut FidCntr, Ptr) -> c_int;
        poll_open(*mut FidDomain, Ptr, *mut Ptr) -> c_int;
        stx_ctx(*mut FidDomain, Ptr, *mut Ptr, Ptr) -> c_int;
        srx_ctx(*mut FidDomain, Ptr, *mut *mut FidEp, Ptr) -> c_int;
        query_atomic(*mut FidDomain, c_int, c_int, *mut AtomicAttr, u64) -> c_int;
        query_collective(*mut FidDomain, c_int, Ptr, u64) -> c_int;
        endpoint2(*mut FidDomain, *mut Info, *mut *mut FidEp, u64, Ptr) -> c_int;
    }
    /// Registration.
    MrOps {
        reg(*mut Fid, Const, usize, u64, u64, u64, u64, *mut *mut FidMr, Ptr) -> c_int;
        regv(*mut Fid, *const iovec, usize, u64, u64, u64, u64, *mut *mut FidMr, Ptr) -> c_int;
        regattr(*mut Fid, *const MrAttr, u64, *mut *mut FidMr) -> c_int;
    }
    /// Of an address vector.
    AvOps {
        insert(*mut FidAv, Const, usize, *mut u64, u64, Ptr) -> c_int;
        insertsvc(*mut FidAv, *const c_char, *const c_char, *mut u64, u64, Ptr) -> c_int;
        insertsym(*mut FidAv, *const c_char, usize, *const c_char, usize, *mut u64, u64, Ptr) -> c_int;
        remove(*mut FidAv, *mut u64, usize, u64) -> c_int;
        lookup(*mut FidAv, u64, Ptr, *mut usize) -> c_int;
        straddr(*mut FidAv, Const, *mut c_char, *mut usize) -> *const c_char;
        av_set(*mut FidAv, Ptr, *mut Ptr, Ptr) -> c_int;
    }
    /// Of a completion queue.
    CqOps {
        read(*mut FidCq, Ptr, usize) -> isize;
        readfrom(*mut FidCq, Ptr, usize, *mut u64) -> isize;
        readerr(*mut FidCq, *mut CqErrEntry, u64) -> isize;
        sread(*mut FidCq, Ptr, usize, Const, c_int) -> isize;
        sreadfrom(*mut FidCq, Ptr, usize, *mut u64, Const, c_int) -> isize;
        signal(*mut FidCq) -> c_int;
        strerror(*mut FidCq, c_int, Const, *mut c_char, usize) -> *const c_char;
    }
    /// Of a counter.
    CntrOps {
        read(*mut FidCntr) -> u64;
        readerr(*mut FidCntr) -> u64;
        add(*mut FidCntr, u64) -> c_int;
        set(*mut FidCntr, u64) -> c_int;
        wait(*mut FidCntr, u64, c_int) -> c_int;
        adderr(*mut FidCntr, u64) -> c_int;
        seterr(*mut FidCntr, u64) -> c_int;
    }
    /// Of an event queue.
    EqOps {
        read(*mut FidEq, *mut u32, Ptr, usize, u64) -> isize;
        readerr(*mut FidEq, Ptr, u64) -> isize;
        write(*mut FidEq, u32, Const, usize, u64) -> isize;
        sread(*mut FidEq, *mut u32, Ptr, usize, c_int, u64) -> isize;
        strerror(*mut FidEq, c_int, Const, *mut c_char, usize) -> *const c_char;
    }
    /// Of an endpoint.
    EpOps {
        cancel(*mut Fid, Ptr) -> isize;
        getopt(*mut Fid, c_int, c_int, Ptr, *mut usize) -> c_int;
        setopt(*mut Fid, c_int, c_int, Const, usize) -> c_int;
        tx_ctx(*mut FidEp, c_int, Ptr, *mut *mut FidEp, Ptr) -> c_int;
        rx_ctx(*mut FidEp, c_int, Ptr, *mut *mut FidEp, Ptr) -> c_int;
        rx_size_left(*mut FidEp) -> isize;
        tx_size_left(*mut FidEp) -> isize;
    }
    /// Names and connections of an endpoint.
    CmOps {
        setname(*mut Fid, Ptr, usize) -> c_int;
        getname(*mut Fid, Ptr, *mut usize) -> c_int;
        getpeer(*mut FidEp, Ptr, *mut usize) -> c_int;
        connect(*mut FidEp, Const, Const, usize) -> c_int;
        listen(Ptr) -> c_int;
        accept(*mut FidEp, Const, usize) -> c_int;
        reject(Ptr, *mut Fid, Const, usize) -> c_int;
        shutdown(*mut FidEp, u64) -> c_int;
        join(*mut FidEp, Const, u64, *mut Ptr, Ptr) -> c_int;
    }
    /// Untagged messages.
    MsgOps {
        recv(*mut FidEp, Ptr, usize, Ptr, u64, Ptr) -> isize;
        recvv(*mut FidEp, *const iovec, Desc, usize, u64, Ptr) -> isize;
        recvmsg(*mut FidEp, *const Msg, u64) -> isize;
        send(*mut FidEp, Const, usize, Ptr, u64, Ptr) -> isize;
        sendv(*mut FidEp, *const iovec, Desc, usize, u64, Ptr) -> isize;
        sendmsg(*mut FidEp, *const Msg, u64) -> isize;
        inject(*mut FidEp, Const, usize, u64) -> isize;
        senddata(*mut FidEp, Const, usize, Ptr, u64, u64, Ptr) -> isize;
        injectdata(*mut FidEp, Const, usize, u64, u64) -> isize;
    }
    /// Tagged messages.
    TaggedOps {
        recv(*mut FidEp, Ptr, usize, Ptr, u64, u64, u64, Ptr) -> isize;
        recvv(*mut FidEp, *const iovec, Desc, usize, u64, u64, u64, Ptr) -> isize;
        recvmsg(*mut FidEp, *const MsgTagged, u64) -> isize;
        send(*mut FidEp, Const, usize, Ptr, u64, u64, Ptr) -> isize;
        sendv(*mut FidEp, *const iovec, Desc, usize, u64, u64, Ptr) -> isize;
        sendmsg(*mut FidEp, *const MsgTagged, u64) -> isize;
        inject(*mut FidEp, Const, usize, u64, u64) -> isize;
        senddata(*mut FidEp, Const, usize, Ptr, u64, u64, u64, Ptr) -> isize;
        injectdata(*mut FidEp, Const, usize, u64, u64, u64) -> isize;
    }
    /// Reads and writes.
    RmaOps {
        read(*mut FidEp, Ptr, usize, Ptr, u64, u64, u64, Ptr) -> isize;
        readv(*mut FidEp, *const iovec, Desc, usize, u64, u64, u64, Ptr) -> isize;
        readmsg(*mut FidEp, *const MsgRma, u64) -> isize;
        write(*mut FidEp, Const, usize, Ptr, u64, u64, u64, Ptr) -> isize;
        writev(*mut FidEp, *const iovec, Desc, usize, u64, u64, u64, Ptr) -> isize;
        writemsg(*mut FidEp, *const MsgRma, u64) -> isize;
        inject(*mut FidEp, Const, usize, u64, u64, u64) -> isize;
        writedata(*mut FidEp, Const, usize, Ptr, u64, u64, u64, u64, Ptr) -> isize;
        injectdata(*mut FidEp, Const, usize, u64, u64, u64, u64) -> isize;
    }
    /// Atomics.
    AtomicOps {
        write(*mut FidEp, Const, usize, Ptr, u64, u64, u64, c_int, c_int, Ptr) -> isize;
        writev(*mut FidEp, *const Ioc, Desc, usize, u64, u64, u64, c_int, c_int, Ptr) -> isize;
        writemsg(*mut FidEp, *const MsgAtomic, u64) -> isize;
        inject(*mut FidEp, Const, usize, u64, u64, u64, c_int, c_int) -> isize;
        readwrite(*mut FidEp, Const, usize, Ptr, Ptr, Ptr, u64, u64, u64, c_int, c_int, Ptr) -> isize;
        readwritev(
            *mut FidEp, *const Ioc, Desc, usize, *mut Ioc, Desc, usize, u64, u64, u64, c_int, c_int, Ptr
        ) -> isize;
        readwritemsg(*mut FidEp, *const MsgAtomic, *mut Ioc, Desc, usize, u64) -> isize;
        compwrite(
            *mut FidEp, Const, usize, Ptr, Const, Ptr, Ptr, Ptr, u64, u64, u64, c_int, c_int, Ptr
        ) -> isize;
        compwritev(
            *mut FidEp, *const Ioc, Desc, usize, *const Ioc, Desc, usize, *mut Ioc, Desc, usize, u64, u64, u64,
            c_int, c_int, Ptr
        ) -> isize;
        compwritemsg(
            *mut FidEp, *const MsgAtomic, *const Ioc, Desc, usize, *mut Ioc, Desc, usize, u64
        ) -> isize;
        writevalid(*mut FidEp, c_int, c_int, *mut usize) -> c_int;
        readwritevalid(*mut FidEp, c_int, c_int, *mut usize) -> c_int;
        compwritevalid(*mut FidEp, c_int, c_int, *mut usize) -> c_int;
    }
    /// Collectives, of which the provider has none.
    CollectiveOps {
        barrier(*mut FidEp, u64, Ptr) -> isize;
        broadcast(*mut FidEp, Ptr, usize, Ptr, u64, u64, c_int, u64, Ptr) -> isize;
        alltoall(*mut FidEp, Const, usize, Ptr, Ptr, Ptr, u64, c_int, u64, Ptr) -> isize;
        allreduce(*mut FidEp, Const, usize, Ptr, Ptr, Ptr, u64, c_int, c_int, u64, Ptr) -> isize;
        allgather(*mut FidEp, Const, usize, Ptr, Ptr, Ptr, u64, c_int, u64, Ptr) -> isize;
        reduce_scatter(*mut FidEp, Const, usize, Ptr, Ptr, Ptr, u64, c_int, c_int, u64, Ptr) -> isize;
        reduce(*mut FidEp, Const, usize, Ptr, Ptr, Ptr, u64, u64, c_int, c_int, u64, Ptr) -> isize;
        scatter(*mut FidEp, Const, usize, Ptr, Ptr, Ptr, u64, u64, c_int, u64, Ptr) -> isize;
        gather(*mut FidEp, Const, usize, Ptr, Ptr, Ptr, u64, u64, c_int, u64, Ptr) -> isize;
        msg(*mut FidEp, Const, *mut Ioc, Desc, usize, u64) -> isize;
        barrier2(*mut FidEp, u64, u64, Ptr) -> isize;
    }
}

/// The front of every object.
#[repr(C)]
pub struct Fid {
    /// Its class.
    pub fclass: usize,
    /// The caller's.
    pub context: *mut c_void,
    /// Its operations.
    pub ops: *const Ops,
}

/// A fabric.
#[repr(C)]
pub struct FidFabric {
    /// The front.
    pub fid: Fid,
    /// Its operations.
    pub ops: *const FabricOps,
    /// The interface that the caller was written for.
    pub api_version: u32,
}

/// A domain.
#[repr(C)]
pub struct FidDomain {
    /// The front.
    pub fid: Fid,
    /// Its operations.
    pub ops: *const DomainOps,
    /// Registration.
    pub mr: *const MrOps,
}

/// An address vector.
#[repr(C)]
pub struct FidAv {
    /// The front.
    pub fid: Fid,
    /// Its operations.
    pub ops: *const AvOps,
}

/// Registered memory.
#[repr(C)]
pub struct FidMr {
    /// The front.
    pub fid: Fid,
    /// What requests name it by.
    pub mem_desc: *mut c_void,
    /// What peers name it by.
    pub key: u64,
}

/// A completion queue.
#[repr(C)]
pub struct FidCq {
    /// The front.
    pub fid: Fid,
    /// Its operations.
    pub ops: *const CqOps,
}

/// A counter.
#[repr(C)]
pub struct FidCntr {
    /// The front.
    pub fid: Fid,
    /// Its operations.
    pub ops: *const CntrOps,
}

/// An event queue.
#[repr(C)]
pub struct FidEq {
    /// The front.
    pub fid: Fid,
    /// Its operations.
    pub ops: *const EqOps,
}

/// An endpoint.
#[repr(C)]
pub struct FidEp {
    /// The front.
    pub fid: Fid,
    /// Its operations.
    pub ops: *const EpOps,
    /// Names.
    pub cm: *const CmOps,
    /// Untagged messages.
    pub msg: *const MsgOps,
    /// Reads and writes.
    pub rma: *const RmaOps,
    /// Tagged messages.
    pub tagged: *const TaggedOps,
    /// Atomics.
    pub atomic: *const AtomicOps,
    /// Collectives.
    pub collective: *const CollectiveOps,
}
