//! Work requests and their completions (InfiniBand specification, 11.4; `ibv_post_send(3)`,
//! `ibv_poll_cq(3)`).
#![allow(unsafe_code)]

use rdma_core_sys as sys;

use super::object::AhId;

/// A piece of registered memory. Laid out as the library's `ibv_sge`, so that lists of them are handed on as
/// they are.
///
/// Safe code can't invent one:
///
/// ```
/// # use rerail_verbs::contract::Sge;
/// // SAFETY: no device is given it.
/// let piece = unsafe { Sge::new(16, 8, 1) };
/// assert_eq!((piece.address(), piece.len(), piece.lkey()), (16, 8, 1));
/// ```
///
/// ```compile_fail,E0133
/// # use rerail_verbs::contract::Sge;
/// let piece = Sge::new(16, 8, 1);
/// ```
///
/// ```compile_fail,E0451
/// # use rerail_verbs::contract::Sge;
/// let piece = Sge { address: 16, len: 8, lkey: 1 };
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    pub(crate) address: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
}

impl Sge {
    /// `len` bytes from `address` on, an address of the range that the memory was registered under; `lkey` is
    /// the registration's local key.
    ///
    /// # Safety
    /// While a request is open that names the piece, it lies inside a registration with this key, or the
    /// device can detect that it does not. Devices of libibverbs can't: a driver may copy a short message to
    /// the address as it stands (mlx5), without a look at the key. So only a device in software may be given
    /// an invented piece.
    pub const unsafe fn new(address: u64, len: u32, lkey: u32) -> Sge {
        Sge { address, len, lkey }
    }

    /// Where it starts.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Its length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty piece is legal and nothing special")]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Local key of the memory.
    pub const fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The rest of it behind the first `skip` bytes, at most `len` bytes of that.
    #[must_use]
    pub const fn part(&self, skip: u32, len: u32) -> Sge {
        let skip = if skip < self.len { skip } else { self.len };
        let rest = self.len - skip;
        let len = if len < rest { len } else { rest };
        Sge { address: self.address.wrapping_add(skip as u64), len, lkey: self.lkey }
    }
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Where it starts.
    pub address: u64,
    /// Its remote key.
    pub rkey: u32,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The port.
    pub handle: AhId,
    /// Number of the queue pair.
    pub qp: u32,
    /// Its queue key; one with the top bit set selects that of the sending queue pair.
    pub qkey: u32,
}

/// The operation of a send request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Sends a message into a receive of the peer.
    Send {
        /// 32 bits that show in the peer's completion.
        immediate: Option<u32>,
    },
    /// Writes the peer's memory.
    Write {
        /// Where to.
        to: Remote,
        /// With it the peer is notified: it takes a receive, and shows in its completion.
        immediate: Option<u32>,
    },
    /// Reads the peer's memory into the request's own.
    Read {
        /// Where from.
        from: Remote,
    },
    /// Compares 8 bytes of the peer's memory and swaps them where they are equal; the old value goes to the
    /// request's own memory, in native byte order.
    CompareSwap {
        /// Which 8 bytes; the address must be a multiple of 8.
        at: Remote,
        /// The value expected.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Adds to 8 bytes of the peer's memory; the old value goes to the request's own memory.
    FetchAdd {
        /// Which 8 bytes; the address must be a multiple of 8.
        at: Remote,
        /// The value added.
        add: u64,
    },
}

/// The local memory of a send request.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Registered memory, read or written while the request is open.
    Memory(&'a [Sge]),
    /// Any memory, copied while posting: at most [`QpCaps::inline_bytes`](super::QpCaps::inline_bytes) bytes;
    /// for sends and writes.
    Inline(&'a [&'a [u8]]),
}

/// A request for the send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// The operation.
    pub op: SendOp,
    /// The memory.
    pub payload: Payload<'a>,
    /// A completion reports its success (a failure always has one).
    pub signaled: bool,
    /// The peer's completion is a solicited one.
    pub solicited: bool,
    /// Starts only when all reads and atomics before it are done.
    pub fence: bool,
    /// UD: where to.
    pub datagram: Option<Datagram>,
    /// XRC: the number of the shared receive queue that a send or a write with immediate goes to.
    pub srq_number: Option<u32>,
}

impl<'a> SendWr<'a> {
    /// A signaled request without flags.
    pub const fn new(id: u64, op: SendOp, payload: Payload<'a>) -> Self {
        SendWr { id, op, payload, signaled: true, solicited: false, fence: false, datagram: None, srq_number: None }
    }
}

/// A request for a receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// Where the message goes. A datagram is preceded by 40 bytes for its global route header.
    pub sges: &'a [Sge],
}

/// A work request that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's.
    pub id: u64,
    /// How it ended. Unless it is [`Status::Success`], only `id`, `status` and `qp` mean something.
    pub status: Status,
    /// Its operation.
    pub kind: CompletionKind,
    /// Bytes received, or read.
    pub bytes: u32,
    /// The message's immediate data.
    pub immediate: Option<u32>,
    /// Number of the queue pair that it was done by; for XRC receives, of the target.
    pub qp: u32,
    /// UD receives: number of the sender's queue pair.
    pub source_qp: u32,
    /// UD receives: LID of the sender's port.
    pub source_lid: u16,
    /// UD receives: the first 40 bytes hold a global route header.
    pub global: bool,
}

/// The operation of a completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    /// A send.
    Send,
    /// A write.
    Write,
    /// A read.
    Read,
    /// A compare-and-swap.
    CompareSwap,
    /// A fetch-and-add.
    FetchAdd,
    /// A receive that a send has filled.
    Recv,
    /// A receive that a write with immediate has taken.
    RecvWrite,
}

coded! {
    /// How a work request ended (`enum ibv_wc_status`; InfiniBand specification, 11.6.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Status(i32), "status {}" {
        /// Well.
        Success = sys::IBV_WC_SUCCESS, "success";
        /// The message was longer than the receive, or a length is not allowed.
        LocalLength = sys::IBV_WC_LOC_LEN_ERR, "local length error";
        /// Internal inconsistency of the queue pair.
        LocalOperation = sys::IBV_WC_LOC_QP_OP_ERR, "local queue pair operation error";
        /// Local memory that is not registered so.
        LocalProtection = sys::IBV_WC_LOC_PROT_ERR, "local protection error";
        /// The queue pair went to the error state before it was processed.
        Flushed = sys::IBV_WC_WR_FLUSH_ERR, "flushed";
        /// An answer that was not expected.
        BadResponse = sys::IBV_WC_BAD_RESP_ERR, "bad response";
        /// A protection error while received data were written.
        LocalAccess = sys::IBV_WC_LOC_ACCESS_ERR, "local access error";
        /// The peer found the request invalid.
        RemoteInvalid = sys::IBV_WC_REM_INV_REQ_ERR, "remote invalid request";
        /// The peer does not allow that access to that memory.
        RemoteAccess = sys::IBV_WC_REM_ACCESS_ERR, "remote access error";
        /// The peer could not do it.
        RemoteOperation = sys::IBV_WC_REM_OP_ERR, "remote operation error";
        /// The peer did not answer, after all retries.
        RetryExceeded = sys::IBV_WC_RETRY_EXC_ERR, "transport retry counter exceeded";
        /// The peer had no receive posted, after all retries.
        RnrRetryExceeded = sys::IBV_WC_RNR_RETRY_EXC_ERR, "RNR retry counter exceeded";
        /// The device is broken.
        Fatal = sys::IBV_WC_FATAL_ERR, "fatal error";
    }
}
