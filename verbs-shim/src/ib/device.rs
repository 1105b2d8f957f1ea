//! The trait, verb by verb.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use super::attributes::access_bits;
use super::{IbDevice, code, create_error, in_range, means_gone};
use crate::context::gids;
use crate::contract::*;
use crate::{Gid, GidEntry, Moderation, Offers, Port};

impl Device for IbDevice {
    type Opener = Box<dyn FnMut() -> Result<Self, CreateError> + Send>;

    fn name(&self) -> &str {
        &self.name
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn offers(&self) -> Offers {
        self.offers
    }

    fn port(&self, port: u8) -> Result<Port, CreateError> {
        self.has_port(port)?;
        self.alive()?;
        self.handle.query_port(port).map(|attr| Port::new(port, &attr)).map_err(|error| create_error(&error))
    }

    fn gid(&self, port: u8, index: u8) -> Result<Gid, CreateError> {
        self.has_port(port)?;
        self.alive()?;
        let found = self.handle.query_gid(port, index.into());
        if let Ok(Some(entry)) = found {
            return Ok(Gid(entry.gid.raw));
        }
        // The length of the table needs another query: made only where it matters.
        let entries = self.port(port)?.gid_table_len;
        in_range(Kind::Gid, index.into(), 0, u64::from(entries).saturating_sub(1))?;
        found.map(|_| Gid::default()).map_err(|error| create_error(&error))
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, CreateError> {
        self.has_port(port)?;
        self.alive()?;
        match self.handle.query_pkey(port, index) {
            None => Err(CreateError::Unsupported { what: "asking for partition keys" }),
            Some(Ok(key)) => Ok(key),
            Some(Err(error)) => {
                let attr = self.handle.query_port(port).map_err(|error| create_error(&error))?;
                in_range(Kind::Pkey, index.into(), 0, u64::from(attr.pkey_tbl_len).saturating_sub(1))?;
                Err(create_error(&error))
            }
        }
    }

    fn gids(&self, port: u8) -> Result<Vec<GidEntry>, CreateError> {
        let port = self.port(port)?;
        let mut entries = gids(&self.handle, &self.name, &port).map_err(|(_, error)| create_error(&error))?;
        entries.retain(|entry| entry.index < 256);
        Ok(entries)
    }

    fn alloc_pd(&mut self) -> Result<PdId, CreateError> {
        self.make_pd()
    }

    fn dealloc_pd(&mut self, pd: PdId) -> Result<(), DestroyError> {
        self.end_pd(pd)
    }

    unsafe fn register(
        &mut self,
        pd: PdId,
        start: *mut u8,
        bytes: u64,
        iova: u64,
        access: Access,
    ) -> Result<Mr, RegisterError> {
        if self.gone {
            return Err(RegisterError::DeviceGone);
        }
        let Some(raw) = self.pds.get(pd.0) else { return Err(RegisterError::UnknownPd { name: pd.0 }) };
        let max = self.limits.mr_bytes.min(isize::MAX as u64);
        let address = start.addr() as u64;
        let fits = (1..=max).contains(&bytes) && address.checked_add(bytes).is_some();
        let Some(length) = usize::try_from(bytes).ok().filter(|_| fits) else {
            return Err(RegisterError::Length { bytes, max });
        };
        if (access.remote_write || access.remote_atomic) && !access.local_write {
            return Err(RegisterError::Access);
        }
        if access.on_demand && !self.offers.has_on_demand() {
            return Err(RegisterError::NoOnDemand);
        }
        if iova != address {
            return Err(RegisterError::NoIova);
        }
        let Some(name) = self.mrs.reserve() else { return Err(RegisterError::Exhausted { limit: self.limits.mrs }) };
        let on_demand = if access.on_demand { rdma_core_sys::IBV_ACCESS_ON_DEMAND } else { 0 };
        let flags = access_bits(access) | on_demand | self.registration_flags;
        let begun = Instant::now();
        // SAFETY: the caller guarantees the memory.
        let registered = unsafe { self.handle.reg_mr(raw, start, length, flags) };
        match registered {
            Ok(mr) => {
                self.registration_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                let (lkey, rkey) = mr.keys();
                self.mrs.put(name, (mr, pd));
                Ok(Mr { id: MrId(name), lkey, rkey })
            }
            Err(error) => {
                self.mrs.release(name);
                match code(&error) {
                    code if means_gone(code) => Err(RegisterError::DeviceGone),
                    code => Err(RegisterError::System { code }),
                }
            }
        }
    }

    fn registration_ns(&self) -> u64 {
        self.registration_ns
    }

    fn deregister(&mut self, mr: MrId) -> Result<(), DestroyError> {
        self.end_mr(mr)
    }

    fn create_cq(&mut self, init: &CqInit) -> Result<CqId, CreateError> {
        self.make_cq(init)
    }

    fn destroy_cq(&mut self, cq: CqId) -> Result<(), DestroyError> {
        self.end_cq(cq)
    }

    #[inline]
    fn poll_cq(&mut self, cq: CqId, most: usize, out: &mut Vec<Completion>) -> Result<usize, PollError> {
        self.poll(cq, most, out)
    }

    fn request_notify(&mut self, cq: CqId, solicited: bool) -> Result<(), PollError> {
        self.notify(cq, solicited)
    }

    fn moderate_cq(&mut self, cq: CqId, moderation: Moderation) -> Result<(), ModifyError> {
        self.moderate(cq, moderation)
    }

    fn cq_event(&mut self) -> Option<CqId> {
        self.next_cq_event()
    }

    fn create_srq(&mut self, pd: PdId, init: &SrqInit) -> Result<Srq, CreateError> {
        self.make_srq(pd, init)
    }

    fn arm_srq(&mut self, srq: SrqId, limit: u32) -> Result<(), ModifyError> {
        self.set_limit(srq, limit)
    }

    fn destroy_srq(&mut self, srq: SrqId) -> Result<(), DestroyError> {
        self.end_srq(srq)
    }

    fn post_srq_recv(&mut self, srq: SrqId, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.receive_shared(srq, requests)
    }

    fn open_xrcd(&mut self, file: XrcdFile) -> Result<XrcdId, CreateError> {
        self.make_xrcd(file)
    }

    fn close_xrcd(&mut self, domain: XrcdId) -> Result<(), DestroyError> {
        self.end_xrcd(domain)
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<Qp, CreateError> {
        self.make_qp(init)
    }

    fn open_qp(&mut self, domain: XrcdId, number: u32) -> Result<Qp, CreateError> {
        self.find_qp(domain, number)
    }

    fn modify_qp(&mut self, qp: QpId, change: &QpChange) -> Result<(), ModifyError> {
        match change.address {
            Some(_) => self.timed(|device| device.change_qp(qp, change)),
            None => self.change_qp(qp, change),
        }
    }

    fn query_qp(&self, qp: QpId) -> Result<QpInfo, ModifyError> {
        self.ask_qp(qp)
    }

    fn destroy_qp(&mut self, qp: QpId) -> Result<(), DestroyError> {
        self.end_qp(qp)
    }

    #[inline]
    fn post_send(&mut self, qp: QpId, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        self.send(qp, requests)
    }

    fn post_recv(&mut self, qp: QpId, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.receive(qp, requests)
    }

    fn create_ah(&mut self, pd: PdId, address: &AddressVector) -> Result<AhId, CreateError> {
        self.timed(|device| device.make_ah(pd, address))
    }

    fn address_ns(&self) -> u64 {
        self.address_ns
    }

    fn destroy_ah(&mut self, handle: AhId) -> Result<(), DestroyError> {
        self.end_ah(handle)
    }

    #[inline]
    fn async_event(&mut self) -> Option<AsyncEvent> {
        if self.pace.passes() {
            return None;
        }
        self.next_async_event()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wait.as_fd())
    }
}

impl IbDevice {
    /// Does something with an address, and notes how long it took.
    fn timed<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        let begun = Instant::now();
        let result = run(self);
        self.address_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        result
    }
}
