//! The trait, verb by verb; here objects are made and destroyed, with a look at their prerequisites and
//! users.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rdma_core_sys::{ibv_qp_cap, ibv_srq_attr};

use super::attributes::{access_bits, address_to_raw, every_bit, from_raw, kind_code, state};
use super::names::{Entry, Names};
use super::work::{list, usable};
use super::{IbDevice, KnownCq, KnownQp, KnownSrq, code, create_error, in_range, means_gone, modify_error};
use crate::context::gids;
use crate::contract::*;
use crate::ffi::{Handle, Object, QpParts};
use crate::{Gid, GidEntry, Moderation, Offers, Port};

/// A name for a new object, or [`CreateError::Exhausted`] where we have no more names.
macro_rules! reserve {
    ($names:expr, $what:expr, $limit:expr) => {
        $names.reserve().ok_or(CreateError::Exhausted { what: $what, limit: $limit })?
    };
}

/// Stores a new object under its name, or releases the name.
macro_rules! finish_removal {
    ($names:expr, $name:expr, $made:expr) => {
        match $made {
            Ok(made) => {
                $names.put($name, made);
                Ok($name)
            }
            Err(error) => {
                $names.release($name);
                Err(create_error(error))
            }
        }
    };
}

/// Destroys an object without users: it stays under its name where the library refuses.
fn destroy<R: Object, K>(
    handle: &Handle,
    names: &mut Names<Entry<R, K>>,
    (what, name): (Kind, u32),
    users: u32,
) -> Result<(), DestroyError> {
    if names.get(name).is_some() && users > 0 {
        return Err(DestroyError::Busy { what, users });
    }
    let Some(Entry { raw, known }) = names.take(name) else { return Err(DestroyError::Unknown { what, name }) };
    handle.destroy(raw).map(|()| names.release(name)).map_err(|(raw, error)| {
        names.put(name, Entry { raw, known });
        DestroyError::System { code: code(&error) }
    })
}

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
        self.handle.query_port(port).map(|attr| Port::new(port, &attr)).map_err(create_error)
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
        found.map(|_| Gid::default()).map_err(create_error)
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, CreateError> {
        self.has_port(port)?;
        self.alive()?;
        match self.handle.query_pkey(port, index) {
            None => Err(CreateError::Unsupported { what: "asking for partition keys" }),
            Some(Ok(key)) => Ok(key),
            Some(Err(error)) => {
                let attr = self.handle.query_port(port).map_err(create_error)?;
                in_range(Kind::Pkey, index.into(), 0, u64::from(attr.pkey_tbl_len).saturating_sub(1))?;
                Err(create_error(error))
            }
        }
    }

    fn gids(&self, port: u8) -> Result<Vec<GidEntry>, CreateError> {
        let port = self.port(port)?;
        let mut entries = gids(&self.handle, &self.name, &port).map_err(|(_, error)| create_error(error))?;
        entries.retain(|entry| entry.index < 256);
        Ok(entries)
    }

    fn alloc_pd(&mut self) -> Result<PdId, CreateError> {
        self.alive()?;
        let name = reserve!(self.pds, Kind::Pd, self.limits.pds);
        let made = self.handle.alloc_pd().map(|raw| Entry { raw, known: () });
        finish_removal!(self.pds, name, made).map(PdId)
    }

    fn dealloc_pd(&mut self, pd: PdId) -> Result<(), DestroyError> {
        let users = self.qps.count(|qp| qp.init.pd == Some(pd))
            + self.srqs.count(|srq| srq.pd == pd)
            + self.mrs.count(|mr| mr.known == pd)
            + self.ahs.count(|ah| ah.known == pd);
        destroy(&self.handle, &mut self.pds, (Kind::Pd, pd.0), users)
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
        let Ok(raw) = named(&self.pds, Kind::Pd, pd.0) else { return Err(RegisterError::UnknownPd { name: pd.0 }) };
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
                self.mrs.put(name, Entry { raw: mr, known: pd });
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
        destroy(&self.handle, &mut self.mrs, (Kind::Mr, mr.0), 0)
    }

    fn create_cq(&mut self, init: &CqInit) -> Result<CqId, CreateError> {
        self.alive()?;
        in_range(Kind::Depth, init.depth.into(), 1, self.limits.cq_depth.into())?;
        let Some(channel) = &self.channel else { return Err(CreateError::DeviceGone) };
        let name = reserve!(self.cqs, Kind::Cq, self.limits.cqs);
        let entry = |raw| Entry { raw, known: KnownCq::default() };
        finish_removal!(self.cqs, name, self.handle.create_cq(init.depth, channel, name).map(entry)).map(CqId)
    }

    fn destroy_cq(&mut self, cq: CqId) -> Result<(), DestroyError> {
        let users = self.qps.count(|qp| qp.init.send_cq == Some(cq) || qp.init.recv_cq == Some(cq))
            + self.srqs.count(|srq| srq.xrc.is_some_and(|xrc| xrc.cq == cq));
        if let Some(entry) = self.cqs.get_mut(cq.0) {
            self.handle.ack_cq_events(&entry.raw, std::mem::take(&mut entry.known.events));
        }
        destroy(&self.handle, &mut self.cqs, (Kind::Cq, cq.0), users)
    }

    #[inline(always)]
    fn poll_cq(&mut self, cq: CqId, most: usize, out: &mut Vec<Completion>) -> Result<usize, PollError> {
        self.poll(cq, most, out)
    }

    fn request_notify(&mut self, cq: CqId, solicited: bool) -> Result<(), PollError> {
        let Some(entry) = self.cqs.get(cq.0) else { return Err(PollError::Unknown { name: cq.0 }) };
        if self.gone {
            return Err(PollError::DeviceGone);
        }
        // Providers refuse for one reason: the device is gone.
        entry.raw.request_notify(solicited).map_err(|_| PollError::DeviceGone)
    }

    fn moderate_cq(&mut self, cq: CqId, moderation: Moderation) -> Result<(), ModifyError> {
        if self.gone {
            return Err(ModifyError::DeviceGone);
        }
        let Some(entry) = self.cqs.get(cq.0) else { return Err(ModifyError::Unknown { what: Kind::Cq, name: cq.0 }) };
        moderation.check(self.offers.moderation)?;
        if self.offers.moderation.is_none() {
            return Ok(());
        }
        let Moderation { count, period_us } = moderation;
        entry.raw.moderate(count, period_us).map_err(|code| modify_error(io::Error::from_raw_os_error(code)))
    }

    fn cq_event(&mut self) -> Option<CqId> {
        self.event_timer.force_next();
        loop {
            let name = self.handle.cq_event(self.channel.as_ref()?)?;
            if let Some(entry) = self.cqs.get_mut(name) {
                // As the library counts: the sum of all that is acknowledged is compared modulo 2^32.
                entry.events = entry.events.wrapping_add(1);
                return Some(CqId(name));
            }
        }
    }

    fn create_srq(&mut self, pd: PdId, init: &SrqInit) -> Result<Srq, CreateError> {
        self.alive()?;
        if self.limits.srqs == 0 {
            return Err(CreateError::Unsupported { what: "shared receive queues" });
        }
        let pd_raw = named(&self.pds, Kind::Pd, pd.0)?;
        in_range(Kind::Depth, init.depth.into(), 1, self.limits.srq_depth.into())?;
        in_range(Kind::Sges, init.sges.into(), 0, self.limits.sges.into())?;
        if init.xrc.is_some() {
            self.has_xrc()?;
        }
        let parts = |xrc: XrcSrqInit| {
            Ok((named(&self.xrcds, Kind::Xrcd, xrc.domain.0)?, named(&self.cqs, Kind::Cq, xrc.cq.0)?))
        };
        let parts = init.xrc.map(parts).transpose()?;
        let attr = ibv_srq_attr { max_wr: init.depth, max_sge: init.sges, srq_limit: 0 };
        let name = reserve!(self.srqs, Kind::Srq, self.limits.srqs);
        let mut number = None;
        let made = self.handle.create_srq(pd_raw, parts, attr, name).map(|(raw, given, reported)| {
            number = reported;
            let sges = given.max_sge.max(init.sges);
            Entry { raw, known: KnownSrq { pd, depth: given.max_wr, sges, xrc: init.xrc } }
        });
        finish_removal!(self.srqs, name, made).map(|name| Srq { id: SrqId(name), number })
    }

    fn arm_srq(&mut self, srq: SrqId, limit: u32) -> Result<(), ModifyError> {
        let entry = self.srqs.get(srq.0).ok_or(ModifyError::Unknown { what: Kind::Srq, name: srq.0 })?;
        if self.gone {
            return Err(ModifyError::DeviceGone);
        }
        let (value, max) = (limit.into(), entry.depth.into());
        let over = ModifyError::OutOfRange { field: "limit", value, min: 0, max };
        if limit > entry.depth {
            return Err(over);
        }
        self.handle.arm_srq(&entry.raw, limit).map_err(|error| match code(&error) {
            libc::EINVAL => over,
            _ => modify_error(error),
        })
    }

    fn destroy_srq(&mut self, srq: SrqId) -> Result<(), DestroyError> {
        let users = self.qps.count(|qp| qp.init.srq == Some(srq));
        destroy(&self.handle, &mut self.srqs, (Kind::Srq, srq.0), users)
    }

    fn post_srq_recv(&mut self, srq: SrqId, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        if requests.is_empty() {
            return Ok(());
        }
        let entry = usable(self.gone, &self.srqs, (Kind::Srq, srq.0))?;
        list(requests, entry.sges, || entry.depth, |good| self.scratch.post_srq_recv(&entry.raw, good))
    }

    fn open_xrcd(&mut self, file: XrcdFile) -> Result<XrcdId, CreateError> {
        self.alive()?;
        self.has_xrc()?;
        let file = match file {
            XrcdFile::Private => None,
            XrcdFile::Shared { file, create, exclusive } => {
                let flag = |on: bool, flag| if on { flag } else { 0 };
                Some((file, flag(create, libc::O_CREAT) | flag(create && exclusive, libc::O_EXCL)))
            }
        };
        let name = reserve!(self.xrcds, Kind::Xrcd, u32::MAX);
        let made = self.handle.open_xrcd(file).map(|raw| Entry { raw, known: () });
        finish_removal!(self.xrcds, name, made).map(XrcdId)
    }

    fn close_xrcd(&mut self, domain: XrcdId) -> Result<(), DestroyError> {
        let users = self.qps.count(|qp| qp.init.domain == Some(domain))
            + self.srqs.count(|srq| srq.xrc.is_some_and(|xrc| xrc.domain == domain));
        destroy(&self.handle, &mut self.xrcds, (Kind::Xrcd, domain.0), users)
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<Qp, CreateError> {
        self.alive()?;
        let is_xrc = matches!(init.kind, QpKind::XrcInitiator | QpKind::XrcTarget);
        if is_xrc {
            self.has_xrc()?;
        }
        let (sends, receives) = (init.kind != QpKind::XrcTarget, !is_xrc);
        let whole = init.pd.is_some() == sends
            && init.send_cq.is_some() == sends
            && init.recv_cq.is_some() == receives
            && init.domain.is_some() == (init.kind == QpKind::XrcTarget)
            && (receives || init.srq.is_none());
        if !whole {
            return Err(CreateError::Mismatch { why: "parts that this transport has not, or none that it has" });
        }
        let pd = init.pd.map(|it| named(&self.pds, Kind::Pd, it.0)).transpose()?;
        let send_cq = init.send_cq.map(|it| named(&self.cqs, Kind::Cq, it.0)).transpose()?;
        let recv_cq = init.recv_cq.map(|it| named(&self.cqs, Kind::Cq, it.0)).transpose()?;
        let srq = init.srq.map(|it| named(&self.srqs, Kind::Srq, it.0)).transpose()?;
        let domain = init.domain.map(|it| named(&self.xrcds, Kind::Xrcd, it.0)).transpose()?;
        let (caps, limits) = (init.caps, &self.limits);
        in_range(Kind::Depth, caps.send_depth.into(), 0, limits.queue_depth.into())?;
        in_range(Kind::Depth, caps.recv_depth.into(), 0, limits.queue_depth.into())?;
        in_range(Kind::Sges, caps.send_sges.into(), 0, limits.sges.into())?;
        in_range(Kind::Sges, caps.recv_sges.into(), 0, limits.sges.into())?;
        in_range(Kind::InlineBytes, caps.inline_bytes.into(), 0, limits.inline_bytes.into())?;
        let name = reserve!(self.qps, Kind::Qp, self.limits.qps);
        let parts = QpParts {
            kind: kind_code(init.kind),
            pd,
            send_cq,
            recv_cq,
            srq,
            domain,
            caps: ibv_qp_cap {
                max_send_wr: caps.send_depth,
                max_recv_wr: caps.recv_depth,
                max_send_sge: caps.send_sges,
                max_recv_sge: caps.recv_sges,
                max_inline_data: caps.inline_bytes,
            },
            signal_all: init.signal_all,
            name,
        };
        let mut number = 0;
        let made = self.handle.create_qp(&parts).map(|(raw, given, reported)| {
            number = reported;
            let caps = QpCaps {
                send_depth: given.max_send_wr,
                recv_depth: given.max_recv_wr,
                send_sges: given.max_send_sge,
                recv_sges: given.max_recv_sge,
                inline_bytes: given.max_inline_data,
            };
            let init = QpInit { caps, ..*init };
            Entry { raw, known: KnownQp { init, number, state: QpState::Reset, set: Attrs::NONE } }
        });
        if let Ok(made) = &made
            && made.init.caps.inline_bytes < caps.inline_bytes
        {
            self.limits.inline_bytes = self.limits.inline_bytes.min(made.init.caps.inline_bytes);
        }
        finish_removal!(self.qps, name, made).map(|name| Qp { id: QpId(name), number })
    }

    fn open_qp(&mut self, domain: XrcdId, number: u32) -> Result<Qp, CreateError> {
        self.alive()?;
        let raw = named(&self.xrcds, Kind::Xrcd, domain.0)?;
        let name = reserve!(self.qps, Kind::Qp, self.limits.qps);
        let init = QpInit { domain: Some(domain), ..QpInit::of(QpKind::XrcTarget) };
        let set = Attrs::of(&Attr::ALL);
        let entry = |raw| Entry { raw, known: KnownQp { init, number, state: QpState::Reset, set } };
        match finish_removal!(self.qps, name, self.handle.open_qp(raw, number, name).map(entry)) {
            Err(CreateError::System { code: libc::EINVAL | libc::ENOENT }) => {
                Err(CreateError::Unknown { what: Kind::Qp, name: number })
            }
            other => other.map(|name| Qp { id: QpId(name), number }),
        }
    }

    fn modify_qp(&mut self, qp: QpId, change: &QpChange) -> Result<(), ModifyError> {
        match change.address {
            Some(_) => self.timed(|device| device.change_qp(qp, change)),
            None => self.change_qp(qp, change),
        }
    }

    fn query_qp(&self, qp: QpId) -> Result<QpInfo, ModifyError> {
        let entry = self.qp(qp)?;
        if self.gone {
            return Err(ModifyError::DeviceGone);
        }
        let raw = self.handle.query_qp(&entry.raw, every_bit()).map_err(modify_error)?;
        let state = state(raw.qp_state);
        Ok(QpInfo {
            kind: entry.init.kind,
            state,
            caps: QpCaps {
                send_depth: entry.init.caps.send_depth.max(raw.cap.max_send_wr),
                recv_depth: entry.init.caps.recv_depth.max(raw.cap.max_recv_wr),
                ..entry.init.caps
            },
            attributes: from_raw(&raw, entry.set),
            draining: state == QpState::Sqd && raw.sq_draining != 0,
        })
    }

    fn destroy_qp(&mut self, qp: QpId) -> Result<(), DestroyError> {
        let queues = self.qps.get(qp.0).map(|entry| (entry.number, entry.init.send_cq, entry.init.recv_cq));
        destroy(&self.handle, &mut self.qps, (Kind::Qp, qp.0), 0)?;
        if let Some((number, send_cq, recv_cq)) = queues {
            self.sweep(number, send_cq, recv_cq);
        }
        Ok(())
    }

    #[inline(always)]
    fn post_send(&mut self, qp: QpId, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        self.send(qp, requests)
    }

    fn post_recv(&mut self, qp: QpId, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.receive(qp, requests)
    }

    fn create_ah(&mut self, pd: PdId, address: &AddressVector) -> Result<AhId, CreateError> {
        self.timed(|device| {
            device.alive()?;
            let raw = named(&device.pds, Kind::Pd, pd.0)?;
            device.has_port(address.port)?;
            let name = reserve!(device.ahs, Kind::Ah, device.limits.ahs);
            let made = device.handle.create_ah(raw, address_to_raw(address)).map(|raw| Entry { raw, known: pd });
            finish_removal!(device.ahs, name, made).map(AhId)
        })
    }

    fn address_ns(&self) -> u64 {
        self.address_ns
    }

    fn destroy_ah(&mut self, handle: AhId) -> Result<(), DestroyError> {
        destroy(&self.handle, &mut self.ahs, (Kind::Ah, handle.0), 0)
    }

    #[inline(always)]
    fn async_event(&mut self) -> Option<AsyncEvent> {
        if self.event_timer.passes() {
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

    fn has_xrc(&self) -> Result<(), CreateError> {
        if self.limits.xrc { Ok(()) } else { Err(CreateError::Unsupported { what: "XRC" }) }
    }
}

/// The object of a name in a request.
fn named<R, K>(names: &Names<Entry<R, K>>, what: Kind, name: u32) -> Result<&R, CreateError> {
    names.get(name).map(|entry| &entry.raw).ok_or(CreateError::Unknown { what, name })
}
