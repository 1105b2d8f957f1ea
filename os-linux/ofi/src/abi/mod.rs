//! The part of libfabric's binary interface that the provider uses: libfabric 1.17's headers (`rdma/fabric.h`
//! and its neighbours), written by hand. `tests/layout.rs` compares every size, offset and number here with
//! the C headers.
//!
//! | file | holds |
//! |---|---|
//! | `info` | what `fi_getinfo` describes: capabilities and limits |
//! | `object` | objects (`fid_*`) and their tables of operations |
//! | `data` | messages, completions, attributes of queues |
//!
//! Later versions append: to attributes, with a tail that [`info`] allocates zeroed; and to tables, which
//! contain their own `size`.

pub mod data;
pub mod info;
pub mod object;

use std::ffi::c_int;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$doc])* pub const $name: $type = $value;)*

        /// Every number here under its C name, for the test that compares them with the headers.
        pub const NUMBERS: &[(&str, u64)] = &[$((stringify!($name), $name as u64)),*];
    };
}

numbers! {
    /// Untagged messages.
    FI_MSG: u64 = 1 << 1;
    /// One-sided reads and writes.
    FI_RMA: u64 = 1 << 2;
    /// Tagged messages.
    FI_TAGGED: u64 = 1 << 3;
    /// Atomics.
    FI_ATOMIC: u64 = 1 << 4;
    /// Reads, as initiator.
    FI_READ: u64 = 1 << 8;
    /// Writes, as initiator.
    FI_WRITE: u64 = 1 << 9;
    /// Receives.
    FI_RECV: u64 = 1 << 10;
    /// Sends.
    FI_SEND: u64 = 1 << 11;
    /// Reads, as target.
    FI_REMOTE_READ: u64 = 1 << 12;
    /// Writes, as target.
    FI_REMOTE_WRITE: u64 = 1 << 13;
    /// A buffer that takes several messages; in a completion: it is released.
    FI_MULTI_RECV: u64 = 1 << 16;
    /// Immediate data comes with it.
    FI_REMOTE_CQ_DATA: u64 = 1 << 17;
    /// More requests follow at once.
    FI_MORE: u64 = 1 << 18;
    /// Look for a message without receiving it.
    FI_PEEK: u64 = 1 << 19;
    /// Behind all earlier one-sided requests.
    FI_FENCE: u64 = 1 << 21;
    /// A completion is requested.
    FI_COMPLETION: u64 = 1 << 24;
    /// The buffer is free when the call returns.
    FI_INJECT: u64 = 1 << 25;
    /// Complete when the buffer is free.
    FI_INJECT_COMPLETE: u64 = 1 << 26;
    /// Complete when it can't be lost any more.
    FI_TRANSMIT_COMPLETE: u64 = 1 << 27;
    /// Complete when it is in the peer's buffer.
    FI_DELIVERY_COMPLETE: u64 = 1 << 28;
    /// Complete when a receive has taken it.
    FI_MATCH_COMPLETE: u64 = 1 << 31;
    /// Peers of this host.
    FI_LOCAL_COMM: u64 = 1 << 51;
    /// Peers of other hosts.
    FI_REMOTE_COMM: u64 = 1 << 52;
    /// The sender is reported.
    FI_SOURCE: u64 = 1 << 57;
    /// Receives may name a source.
    FI_DIRECTED_RECV: u64 = 1 << 59;
    /// Take a message out of matching, or receive one that was taken.
    FI_CLAIM: u64 = 1 << 59;
    /// Drop a message.
    FI_DISCARD: u64 = 1 << 58;
    /// Only requests with `FI_COMPLETION` make one.
    FI_SELECTIVE_COMPLETION: u64 = 1 << 59;
    /// Messages of a pair arrive in order.
    FI_ORDER_SAS: u64 = 1 << 8;
    /// No place, no peer.
    FI_ADDR_UNSPEC: u64 = u64::MAX;
    /// A protocol of this provider's own.
    FI_PROV_SPECIFIC: u32 = 1 << 31;

    /// Addresses are opaque bytes.
    FI_FORMAT_UNSPEC: u32 = 0;
    /// Names resolve to opaque numbers.
    FI_AV_MAP: c_int = 1;
    /// Names resolve to their place in the order of insertion.
    FI_AV_TABLE: c_int = 2;
    /// Registration as before version 1.5: virtual addresses, keys of the provider.
    FI_MR_BASIC: c_int = 1;
    /// Registration as before version 1.5: offsets, keys of the caller.
    FI_MR_SCALABLE: c_int = 2;
    /// The provider progresses by itself.
    FI_PROGRESS_AUTO: c_int = 1;
    /// It progresses in calls.
    FI_PROGRESS_MANUAL: c_int = 2;
    /// Calls from any threads.
    FI_THREAD_SAFE: c_int = 1;
    /// One thread at a time in all of a domain.
    FI_THREAD_DOMAIN: c_int = 3;
    /// Queues are not overrun.
    FI_RM_ENABLED: c_int = 2;
    /// Reliable, unconnected.
    FI_EP_RDM: c_int = 3;
    /// No way to sleep on it.
    FI_WAIT_NONE: c_int = 0;
    /// A method private to the provider.
    FI_WAIT_UNSPEC: c_int = 1;

    /// Of objects.
    FI_CLASS_FABRIC: usize = 1;
    /// Of objects.
    FI_CLASS_DOMAIN: usize = 2;
    /// Of objects.
    FI_CLASS_EP: usize = 3;
    /// Of objects.
    FI_CLASS_AV: usize = 11;
    /// Of objects.
    FI_CLASS_MR: usize = 12;
    /// Of objects.
    FI_CLASS_EQ: usize = 13;
    /// Of objects.
    FI_CLASS_CQ: usize = 14;
    /// Of objects.
    FI_CLASS_CNTR: usize = 15;

    /// `fi_control`: an endpoint begins.
    FI_ENABLE: c_int = 6;
    /// Level of endpoint options.
    FI_OPT_ENDPOINT: c_int = 0;
    /// A multi-receive with less room is released.
    FI_OPT_MIN_MULTI_RECV: c_int = 0;

    /// Context only.
    FI_CQ_FORMAT_CONTEXT: c_int = 1;
    /// Flags and length too.
    FI_CQ_FORMAT_MSG: c_int = 2;
    /// Buffer and immediate data too.
    FI_CQ_FORMAT_DATA: c_int = 3;
    /// The tag too.
    FI_CQ_FORMAT_TAGGED: c_int = 4;

    /// Of atomics, in the order of `enum fi_op`.
    FI_MIN: c_int = 0;
    /// Of atomics.
    FI_MAX: c_int = 1;
    /// Of atomics.
    FI_SUM: c_int = 2;
    /// Of atomics.
    FI_PROD: c_int = 3;
    /// Of atomics.
    FI_LOR: c_int = 4;
    /// Of atomics.
    FI_LAND: c_int = 5;
    /// Of atomics.
    FI_BOR: c_int = 6;
    /// Of atomics.
    FI_BAND: c_int = 7;
    /// Of atomics.
    FI_LXOR: c_int = 8;
    /// Of atomics.
    FI_BXOR: c_int = 9;
    /// Of atomics.
    FI_ATOMIC_READ: c_int = 10;
    /// Of atomics.
    FI_ATOMIC_WRITE: c_int = 11;
    /// Of atomics.
    FI_CSWAP: c_int = 12;
    /// Of atomics.
    FI_CSWAP_NE: c_int = 13;
    /// Of atomics.
    FI_CSWAP_LE: c_int = 14;
    /// Of atomics.
    FI_CSWAP_LT: c_int = 15;
    /// Of atomics.
    FI_CSWAP_GE: c_int = 16;
    /// Of atomics.
    FI_CSWAP_GT: c_int = 17;
    /// Of atomics.
    FI_MSWAP: c_int = 18;
    /// Of the types of atomics, in the order of `enum fi_datatype`.
    FI_INT8: c_int = 0;
    /// Of types.
    FI_UINT8: c_int = 1;
    /// Of types.
    FI_INT16: c_int = 2;
    /// Of types.
    FI_UINT16: c_int = 3;
    /// Of types.
    FI_INT32: c_int = 4;
    /// Of types.
    FI_UINT32: c_int = 5;
    /// Of types.
    FI_INT64: c_int = 6;
    /// Of types.
    FI_UINT64: c_int = 7;
    /// Of types.
    FI_FLOAT: c_int = 8;
    /// Of types.
    FI_DOUBLE: c_int = 9;
    /// Of types.
    FI_FLOAT_COMPLEX: c_int = 10;
    /// Of types.
    FI_DOUBLE_COMPLEX: c_int = 11;
    /// Of types.
    FI_LONG_DOUBLE: c_int = 12;
    /// Of types.
    FI_LONG_DOUBLE_COMPLEX: c_int = 13;

    /// Of atomics: the previous value is requested.
    FI_FETCH_ATOMIC: u64 = 1 << 58;
    /// Of atomics: with a comparand.
    FI_COMPARE_ATOMIC: u64 = 1 << 59;

    /// No such thing here.
    FI_ENOSYS: c_int = 38;
    /// Nothing now.
    FI_EAGAIN: c_int = 11;
    /// No room.
    FI_ENOMEM: c_int = 12;
    /// Not allowed.
    FI_EACCES: c_int = 13;
    /// In use.
    FI_EBUSY: c_int = 16;
    /// Arguments that make no sense.
    FI_EINVAL: c_int = 22;
    /// The system failed.
    FI_EIO: c_int = 5;
    /// Nothing fits.
    FI_ENODATA: c_int = 61;
    /// No message fits.
    FI_ENOMSG: c_int = 42;
    /// Too long.
    FI_EMSGSIZE: c_int = 90;
    /// No such option.
    FI_ENOPROTOOPT: c_int = 92;
    /// Not offered.
    FI_EOPNOTSUPP: c_int = 95;
    /// The peer is lost.
    FI_ECONNRESET: c_int = 104;
    /// The peer has closed.
    FI_ESHUTDOWN: c_int = 108;
    /// Cancelled by the caller.
    FI_ECANCELED: c_int = 125;
    /// The time given is over.
    FI_ETIMEDOUT: c_int = 110;
    /// Anything else.
    FI_EOTHER: c_int = 256;
    /// The caller's buffer is too small.
    FI_ETOOSMALL: c_int = 257;
    /// Not now.
    FI_EOPBADSTATE: c_int = 258;
    /// The next completion is an error.
    FI_EAVAIL: c_int = 259;
    /// Flags that are not supported.
    FI_EBADFLAGS: c_int = 260;
    /// No completion queue is bound.
    FI_ENOCQ: c_int = 263;
    /// A message was longer than its buffer.
    FI_ETRUNC: c_int = 265;
    /// The key is in use.
    FI_ENOKEY: c_int = 266;
    /// No address vector is bound.
    FI_ENOAV: c_int = 267;
}

/// The tag may use all bits.
pub const TAG_FORMAT: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// A version as libfabric writes it.
pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}
