//! A process's open device: the contract's trait over a fabric that all devices share.

use rerail_verbs::contract::{
    Access, AddressVector, AhId, AsyncEvent, Completion, CqId, CqInit, CreateError, DestroyError, Device, Kind, Limits,
    ModifyError, Mr, MrId, PdId, PollError, PostError, PostReason, Qp, QpChange, QpId, QpInfo, QpInit, RecvWr,
    RegisterError, SendWr, Srq, SrqId, SrqInit, XrcdFile, XrcdId,
};
use rerail_verbs::{Gid, LinkLayer, Moderation, Offers, Port, PortState};

use super::core::{Cx, Hca};
use super::dma::Memory;
use super::fabric::SharedFabric;
use super::object::Context;
use super::requester::MESSAGE_BYTES_MAX;
use super::slab::NAMES_MAX;
use crate::net::HcaId;

/// A device of a simulated HCA, open in one process. Dropping it is that process's end: its queue pairs are
/// gone, their peers receive nothing. What it shares with others (XRC domains, targets that they have open)
/// stays theirs.
pub struct SimDevice {
    fabric: SharedFabric,
    hca: HcaId,
    context: u32,
    name: String,
}

impl SimDevice {
    /// Opens the device of an HCA for a process. `owner` is what
    /// [`Fabric::take_woken`](super::Fabric::take_woken) calls it.
    ///
    /// # Errors
    /// [`CreateError::DeviceGone`] while the device is broken; `EMFILE` where about a million processes have
    /// it open.
    pub fn open(fabric: &SharedFabric, hca: HcaId, owner: u32) -> Result<SimDevice, CreateError> {
        let (context, name) = fabric.borrow_mut().on_hca(hca, |hca, _| {
            if hca.faults.down {
                return Err(CreateError::DeviceGone);
            }
            if hca.contexts.len() >= NAMES_MAX {
                return Err(CreateError::System { code: EMFILE });
            }
            let make = |_| Context { owner, gone: false, events: Default::default(), cq_events: Default::default() };
            Ok((hca.contexts.insert_with(make), hca.name.clone()))
        })?;
        Ok(SimDevice { fabric: fabric.clone(), hca, context, name })
    }

    /// The HCA.
    pub fn hca(&self) -> HcaId {
        self.hca
    }

    /// The fabric.
    pub fn fabric(&self) -> &SharedFabric {
        &self.fabric
    }

    /// Runs a verb, unless the device is broken.
    fn verb<T, E: Gone>(&self, run: impl FnOnce(&mut Hca, &mut Cx<'_>, u32) -> Result<T, E>) -> Result<T, E> {
        self.fabric.borrow_mut().on_hca(self.hca, |hca, cx| match self.is_gone(hca) {
            true => E::gone(),
            false => run(hca, cx, self.context),
        })
    }

    /// Queries, unless the device is broken.
    fn query<T>(&self, run: impl FnOnce(&Hca) -> Result<T, CreateError>) -> Result<T, CreateError> {
        let fabric = self.fabric.borrow();
        let hca = fabric.hca(self.hca);
        if self.is_gone(hca) { Err(CreateError::DeviceGone) } else { run(hca) }
    }

    fn is_gone(&self, hca: &Hca) -> bool {
        hca.contexts.get(self.context).is_none_or(|context| context.gone)
    }
}

const EMFILE: i32 = 24;
const ENODEV: i32 = 19;

/// The value of an error type for a broken device.
trait Gone: Sized {
    fn gone<T>() -> Result<T, Self>;
}

impl Gone for CreateError {
    fn gone<T>() -> Result<T, Self> {
        Err(CreateError::DeviceGone)
    }
}

impl Gone for RegisterError {
    fn gone<T>() -> Result<T, Self> {
        Err(RegisterError::DeviceGone)
    }
}

impl Gone for ModifyError {
    fn gone<T>() -> Result<T, Self> {
        Err(ModifyError::DeviceGone)
    }
}

impl Gone for PollError {
    fn gone<T>() -> Result<T, Self> {
        Err(PollError::DeviceGone)
    }
}

impl Gone for PostError {
    fn gone<T>() -> Result<T, Self> {
        Err(PostError { index: 0, why: PostReason::DeviceGone })
    }
}

impl Gone for DestroyError {
    /// `ENODEV`: everything was destroyed when the device broke.
    fn gone<T>() -> Result<T, Self> {
        Err(DestroyError::System { code: ENODEV })
    }
}

/// An entry of a port's table.
fn entry<T: Copy>(table: &[T], index: u16, what: Kind) -> Result<T, CreateError> {
    let outside = || CreateError::OutOfRange { what, value: index.into(), min: 0, max: table.len() as u64 - 1 };
    table.get(usize::from(index)).copied().ok_or_else(outside)
}

impl Device for SimDevice {
    type Opener = Box<dyn FnMut() -> Result<Self, CreateError>>;

    fn name(&self) -> &str {
        &self.name
    }

    fn limits(&self) -> Limits {
        self.fabric.borrow().hca(self.hca).limits
    }

    fn offers(&self) -> Offers {
        self.fabric.borrow().hca(self.hca).offers
    }

    fn port(&self, port: u8) -> Result<Port, CreateError> {
        let fabric = self.fabric.borrow();
        let hca = fabric.hca(self.hca);
        if self.is_gone(hca) {
            return Err(CreateError::DeviceGone);
        }
        let found = hca.port(port)?;
        let (lid, lmc) = fabric.net().lid(found.id);
        // Four lanes with 8/10 line code: as near as the models' rates come to a signalling rate.
        let lane = fabric.net().link(found.id).bytes_per_second.saturating_mul(10) / 1_000_000 / 4;
        Ok(Port {
            number: port,
            state: if found.active { PortState::Active } else { PortState::Down },
            link_layer: LinkLayer::InfiniBand,
            lid,
            lmc,
            needs_global: false,
            manager_lid: 1,
            gid_table_len: found.gids.len() as u32,
            mtu_bytes: Some(hca.mtu_bytes),
            mtu_bytes_max: Some(hca.mtu_bytes),
            message_bytes_max: MESSAGE_BYTES_MAX,
            lanes: Some(4),
            lane_mbit_per_second: Some(u32::try_from(lane).unwrap_or(u32::MAX)),
        })
    }

    fn gid(&self, port: u8, index: u8) -> Result<Gid, CreateError> {
        self.query(|hca| entry(&hca.port(port)?.gids, index.into(), Kind::Gid))
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, CreateError> {
        self.query(|hca| entry(&hca.port(port)?.pkeys, index, Kind::Pkey))
    }

    fn alloc_pd(&mut self) -> Result<PdId, CreateError> {
        self.verb(|hca, _, context| hca.alloc_pd(context))
    }

    fn dealloc_pd(&mut self, pd: PdId) -> Result<(), DestroyError> {
        self.verb(|hca, _, context| hca.dealloc_pd(context, pd))
    }

    unsafe fn register(
        &mut self,
        pd: PdId,
        start: *mut u8,
        bytes: u64,
        iova: u64,
        access: Access,
    ) -> Result<Mr, RegisterError> {
        // SAFETY: the caller of this promises what `Memory` requires: until the registration ends, or the
        // device is dropped, which ends it. The value goes into the table of registrations, and goes out of
        // it with that.
        let make = || unsafe { Memory::new(start, bytes, iova, access) };
        self.verb(|hca, cx, context| hca.register(cx, context, pd, (start as u64, bytes, iova), access, make))
    }

    fn registration_ns(&self) -> u64 {
        self.fabric.borrow().hca(self.hca).registration_ns
    }

    fn deregister(&mut self, mr: MrId) -> Result<(), DestroyError> {
        self.verb(|hca, _, context| hca.deregister(context, mr))
    }

    fn create_cq(&mut self, init: &CqInit) -> Result<CqId, CreateError> {
        self.verb(|hca, _, context| hca.create_cq(context, init))
    }

    fn destroy_cq(&mut self, cq: CqId) -> Result<(), DestroyError> {
        self.verb(|hca, _, context| hca.destroy_cq(context, cq))
    }

    fn poll_cq(&mut self, cq: CqId, most: usize, out: &mut Vec<Completion>) -> Result<usize, PollError> {
        self.verb(|hca, _, context| hca.poll_cq(context, cq, most, out))
    }

    fn request_notify(&mut self, cq: CqId, solicited: bool) -> Result<(), PollError> {
        self.verb(|hca, _, context| hca.request_notify(context, cq, solicited))
    }

    fn moderate_cq(&mut self, cq: CqId, moderation: Moderation) -> Result<(), ModifyError> {
        self.verb(|hca, _, context| hca.moderate_cq(context, cq, moderation))
    }

    fn cq_event(&mut self) -> Option<CqId> {
        let take = |hca: &mut Hca| hca.contexts.get_mut(self.context).and_then(|context| context.cq_events.pop_front());
        self.fabric.borrow_mut().on_hca(self.hca, |hca, _| take(hca))
    }

    fn create_srq(&mut self, pd: PdId, init: &SrqInit) -> Result<Srq, CreateError> {
        self.verb(|hca, _, context| hca.create_srq(context, pd, init))
    }

    fn arm_srq(&mut self, srq: SrqId, limit: u32) -> Result<(), ModifyError> {
        self.verb(|hca, cx, context| hca.arm_srq(cx, context, srq, limit))
    }

    fn destroy_srq(&mut self, srq: SrqId) -> Result<(), DestroyError> {
        self.verb(|hca, _, context| hca.destroy_srq(context, srq))
    }

    fn post_srq_recv(&mut self, srq: SrqId, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.verb(|hca, _, context| hca.post_srq_recv(context, srq, requests))
    }

    fn open_xrcd(&mut self, file: XrcdFile) -> Result<XrcdId, CreateError> {
        self.verb(|hca, _, context| hca.open_xrcd(context, file))
    }

    fn close_xrcd(&mut self, domain: XrcdId) -> Result<(), DestroyError> {
        self.verb(|hca, _, context| hca.close_xrcd(context, domain))
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<Qp, CreateError> {
        self.verb(|hca, _, context| hca.create_qp(context, init))
    }

    fn open_qp(&mut self, domain: XrcdId, number: u32) -> Result<Qp, CreateError> {
        self.verb(|hca, _, context| hca.open_qp(context, domain, number))
    }

    fn modify_qp(&mut self, qp: QpId, change: &QpChange) -> Result<(), ModifyError> {
        self.verb(|hca, cx, context| hca.modify_qp(cx, context, qp, change))
    }

    fn query_qp(&self, qp: QpId) -> Result<QpInfo, ModifyError> {
        self.verb(|hca, _, context| hca.query_qp(context, qp))
    }

    fn destroy_qp(&mut self, qp: QpId) -> Result<(), DestroyError> {
        self.verb(|hca, _, context| hca.destroy_qp(context, qp))
    }

    fn post_send(&mut self, qp: QpId, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        self.verb(|hca, cx, context| hca.post_send(cx, context, qp, requests))
    }

    fn post_recv(&mut self, qp: QpId, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.verb(|hca, cx, context| hca.post_recv(cx, context, qp, requests))
    }

    fn create_ah(&mut self, pd: PdId, address: &AddressVector) -> Result<AhId, CreateError> {
        self.verb(|hca, cx, context| hca.create_ah(cx, context, pd, address))
    }

    fn address_ns(&self) -> u64 {
        self.fabric.borrow().hca(self.hca).address_ns
    }

    fn destroy_ah(&mut self, handle: AhId) -> Result<(), DestroyError> {
        self.verb(|hca, _, context| hca.destroy_ah(context, handle))
    }

    fn async_event(&mut self) -> Option<AsyncEvent> {
        let take = |hca: &mut Hca| hca.contexts.get_mut(self.context).and_then(|context| context.events.pop_front());
        self.fabric.borrow_mut().on_hca(self.hca, |hca, _| take(hca))
    }
}

impl Drop for SimDevice {
    fn drop(&mut self) {
        // Must not fail silently: registrations end here.
        self.fabric.borrow_mut().on_hca(self.hca, |hca, _| hca.close(self.context));
    }
}
