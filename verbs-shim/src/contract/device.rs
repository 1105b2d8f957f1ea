//! The trait.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use super::{
    Access, AddressVector, AhId, AsyncEvent, Completion, CqId, CqInit, CreateError, DestroyError, Kind, Limits,
    ModifyError, Mr, MrId, PdId, PollError, PostError, Qp, QpChange, QpId, QpInfo, QpInit, RecvWr, RegisterError,
    SendWr, Srq, SrqId, SrqInit, XrcdFile, XrcdId,
};
use crate::{Gid, GidEntry, Moderation, Offers, Port};

/// An open device: its verbs (InfiniBand specification, chapter 11). Dropping it destroys all that was made
/// with it.
#[allow(unused_variables, reason = "defaults need no arguments")]
pub trait Device {
    /// The function that opens the device again after it has broken: boxed, and `Send` where the device is.
    type Opener: FnMut() -> Result<Self, CreateError>
    where
        Self: Sized;
    /// Its name, for people.
    fn name(&self) -> &str;
    /// Its limits.
    fn limits(&self) -> Limits;
    /// Its optional features; none by default.
    fn offers(&self) -> Offers {
        Offers::default()
    }
    /// A port as it is now; ports count from 1.
    fn port(&self, port: u8) -> Result<Port, CreateError>;
    /// An entry of a port's table of GIDs; all zeros where the entry is not in use.
    fn gid(&self, port: u8, index: u8) -> Result<Gid, CreateError>;
    /// An entry of a port's table of partition keys: the top bit is set for full membership, 15 bits name the
    /// partition; 0 where the entry is not in use (InfiniBand specification, 10.9). By default, there is the
    /// default partition alone.
    fn pkey(&self, port: u8, index: u16) -> Result<u16, CreateError> {
        match index {
            0 => Ok(0xffff),
            _ => Err(CreateError::OutOfRange { what: Kind::Pkey, value: index.into(), min: 0, max: 0 }),
        }
    }
    /// The entries of a port's table of GIDs that are in use, in ascending order, as far as address handles
    /// can name them.
    fn gids(&self, port: u8) -> Result<Vec<GidEntry>, CreateError> {
        let mut used = Vec::new();
        for index in 0..self.port(port)?.gid_table_len.min(256) {
            let gid = self.gid(port, index as u8)?;
            if gid != Gid::default() {
                used.push(GidEntry { index, gid, kind: None, interface: None });
            }
        }
        Ok(used)
    }

    /// Makes a protection domain.
    fn alloc_pd(&mut self) -> Result<PdId, CreateError>;
    /// Destroys it; nothing may use it any more.
    fn dealloc_pd(&mut self, pd: PdId) -> Result<(), DestroyError>;

    /// Registers `bytes` bytes of memory at `start`, to be named from address `iova` on. Where
    /// [`Limits::iova`] is false, `iova` must be the memory's own address.
    ///
    /// # Safety
    /// Until [`deregister`](Self::deregister) has returned, or the device is dropped, the memory must stay
    /// mapped, and writable if `access` allows any write. Except at times when the device can't run, no Rust
    /// reference to it may exist while an open work request or a peer may write to it, and no mutable one
    /// while they may read it.
    ///
    /// ```
    /// # use rerail_verbs::contract::{Access, Device, PdId};
    /// fn publish(device: &mut dyn Device, pd: PdId) {
    ///     let address = std::ptr::without_provenance_mut(16);
    ///     // SAFETY: not called.
    ///     let _ = unsafe { device.register(pd, address, 8, 16, Access::default()) };
    /// }
    /// ```
    ///
    /// ```compile_fail,E0133
    /// # use rerail_verbs::contract::{Access, Device, PdId};
    /// fn publish(device: &mut dyn Device, pd: PdId) {
    ///     let address = std::ptr::without_provenance_mut(16);
    ///     let _ = device.register(pd, address, 8, 16, Access::default());
    /// }
    /// ```
    unsafe fn register(
        &mut self,
        pd: PdId,
        start: *mut u8,
        bytes: u64,
        iova: u64,
        access: Access,
    ) -> Result<Mr, RegisterError>;
    /// How long the last successful [`register`](Self::register) blocked the caller, in nanoseconds, for
    /// estimates of the cost of registering; 0: unknown.
    fn registration_ns(&self) -> u64 {
        0
    }
    /// Ends a registration. When this returns, the device does not touch the memory any more; requests that
    /// still name it fail with a protection error.
    fn deregister(&mut self, mr: MrId) -> Result<(), DestroyError>;

    /// Makes a completion queue.
    fn create_cq(&mut self, init: &CqInit) -> Result<CqId, CreateError>;
    /// Destroys it; nothing may use it any more. Completions in it are lost.
    fn destroy_cq(&mut self, cq: CqId) -> Result<(), DestroyError>;
    /// Appends up to `most` completions to `out`, oldest first; returns how many.
    fn poll_cq(&mut self, cq: CqId, most: usize, out: &mut Vec<Completion>) -> Result<usize, PollError>;
    /// Requests one completion event ([`cq_event`](Self::cq_event)) at the next completion that comes from
    /// now on; with `solicited`, at the next solicited or failed one.
    fn request_notify(&mut self, cq: CqId, solicited: bool) -> Result<(), PollError>;
    /// Delays the completion events of a queue: each comes after so many completions, or so long after the
    /// first of them. This means fewer interrupts for a sleeping caller; a polling caller sees completions at
    /// once in any case. [`Moderation::NONE`] ends it.
    ///
    /// # Errors
    /// [`ModifyError::OutOfRange`] beyond the device's [offers](Self::offers); no such queue.
    fn moderate_cq(&mut self, cq: CqId, moderation: Moderation) -> Result<(), ModifyError> {
        moderation.check(None)
    }
    /// The next completion event: which queue has something.
    fn cq_event(&mut self) -> Option<CqId>;

    /// Makes a shared receive queue.
    fn create_srq(&mut self, pd: PdId, init: &SrqInit) -> Result<Srq, CreateError>;
    /// Arms the limit: one [`AsyncEvent::SrqLimit`] when fewer than `limit` requests are left. 0 disarms it.
    fn arm_srq(&mut self, srq: SrqId, limit: u32) -> Result<(), ModifyError>;
    /// Destroys it; nothing may use it any more.
    fn destroy_srq(&mut self, srq: SrqId) -> Result<(), DestroyError>;
    /// Posts receives to a shared queue.
    fn post_srq_recv(&mut self, srq: SrqId, requests: &[RecvWr<'_>]) -> Result<(), PostError>;

    /// Opens an XRC domain.
    fn open_xrcd(&mut self, file: XrcdFile) -> Result<XrcdId, CreateError>;
    /// Closes it; this process may not use it any more.
    fn close_xrcd(&mut self, domain: XrcdId) -> Result<(), DestroyError>;

    /// Makes a queue pair, in [`QpState::Reset`](super::QpState::Reset).
    fn create_qp(&mut self, init: &QpInit) -> Result<Qp, CreateError>;
    /// Opens an XRC target that another process has made, by its number: it lives as long as one of them has
    /// it open.
    fn open_qp(&mut self, domain: XrcdId, number: u32) -> Result<Qp, CreateError>;
    /// Changes a queue pair.
    fn modify_qp(&mut self, qp: QpId, change: &QpChange) -> Result<(), ModifyError>;
    /// A queue pair as it is now.
    fn query_qp(&self, qp: QpId) -> Result<QpInfo, ModifyError>;
    /// Destroys it. Its completions that were not polled are gone from the queues, its open requests make
    /// none.
    fn destroy_qp(&mut self, qp: QpId) -> Result<(), DestroyError>;
    /// Posts sends, in order, with one doorbell.
    fn post_send(&mut self, qp: QpId, requests: &[SendWr<'_>]) -> Result<(), PostError>;
    /// Posts receives, in order.
    fn post_recv(&mut self, qp: QpId, requests: &[RecvWr<'_>]) -> Result<(), PostError>;

    /// Makes an address handle, for datagrams.
    fn create_ah(&mut self, pd: PdId, address: &AddressVector) -> Result<AhId, CreateError>;
    /// How long the last address given to [`create_ah`](Self::create_ah), or with a change to
    /// [`modify_qp`](Self::modify_qp), blocked the caller, in nanoseconds, whether it was found or not; 0:
    /// unknown. On Ethernet the kernel resolves the neighbour meanwhile.
    fn address_ns(&self) -> u64 {
        0
    }
    /// Destroys it; requests that name it are complete.
    fn destroy_ah(&mut self, handle: AhId) -> Result<(), DestroyError>;

    /// The next asynchronous event.
    fn async_event(&mut self) -> Option<AsyncEvent>;
    /// A descriptor that becomes readable when there is a completion event or an asynchronous event; a device
    /// in virtual time has none.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
