//! Making and destroying objects: prerequisites and users.

use std::collections::VecDeque;
use std::io;

use rdma_core_sys::{ibv_qp_cap, ibv_srq_attr};

use super::attributes::{address_to_raw, kind_code};
use super::names::Names;
use super::{CqEntry, IbDevice, QpEntry, SrqEntry, code, create_error, in_range};
use crate::contract::{
    AddressVector, AhId, Attrs, CqId, CqInit, CreateError, DestroyError, Kind, MrId, PdId, Qp, QpCaps, QpId, QpInit,
    QpKind, QpState, Srq, SrqId, SrqInit, XrcdFile, XrcdId,
};
use crate::ffi::QpParts;

/// A name for a new object, or [`CreateError::Exhausted`] where we have no more names.
macro_rules! reserve {
    ($names:expr, $what:expr, $limit:expr) => {
        $names.reserve().ok_or(CreateError::Exhausted { what: $what, limit: $limit })?
    };
}

/// Stores a new object under its name, or releases the name.
macro_rules! settle {
    ($names:expr, $name:expr, $made:expr) => {
        match $made {
            Ok(made) => {
                $names.put($name, made);
                Ok($name)
            }
            Err(error) => {
                $names.release($name);
                Err(create_error(&error))
            }
        }
    };
}

/// Destroys an object without users: it stays under its name where the library refuses.
fn destroy<T>(
    names: &mut Names<T>,
    (what, name): (Kind, u32),
    users: u32,
    destroy: impl FnOnce(T) -> Result<(), (T, io::Error)>,
) -> Result<(), DestroyError> {
    if names.get(name).is_some() && users > 0 {
        return Err(DestroyError::Busy { what, users });
    }
    match names.take(name).map(destroy) {
        None => Err(DestroyError::Unknown { what, name }),
        Some(Ok(())) => {
            names.release(name);
            Ok(())
        }
        Some(Err((item, error))) => {
            names.put(name, item);
            Err(DestroyError::System { code: code(&error) })
        }
    }
}

impl IbDevice {
    pub(super) fn make_pd(&mut self) -> Result<PdId, CreateError> {
        self.alive()?;
        let name = reserve!(self.pds, Kind::Pd, self.limits.pds);
        settle!(self.pds, name, self.handle.alloc_pd()).map(PdId)
    }

    pub(super) fn end_pd(&mut self, pd: PdId) -> Result<(), DestroyError> {
        let users = self.qps.count(|qp| qp.pd == Some(pd))
            + self.srqs.count(|srq| srq.pd == pd)
            + self.mrs.count(|(_, of)| *of == pd)
            + self.ahs.count(|(_, of)| *of == pd);
        destroy(&mut self.pds, (Kind::Pd, pd.0), users, |raw| self.handle.dealloc_pd(raw))
    }

    pub(super) fn end_mr(&mut self, mr: MrId) -> Result<(), DestroyError> {
        destroy(&mut self.mrs, (Kind::Mr, mr.0), 0, |(raw, pd)| {
            self.handle.dereg_mr(raw).map_err(|(raw, error)| ((raw, pd), error))
        })
    }

    pub(super) fn make_cq(&mut self, init: &CqInit) -> Result<CqId, CreateError> {
        self.alive()?;
        in_range(Kind::Depth, init.depth.into(), 1, self.limits.cq_depth.into())?;
        let Some(channel) = &self.channel else { return Err(CreateError::DeviceGone) };
        let name = reserve!(self.cqs, Kind::Cq, self.limits.cqs);
        let entry = |raw| CqEntry { raw, broken: false, events: 0, kept: VecDeque::new() };
        settle!(self.cqs, name, self.handle.create_cq(init.depth, channel, name).map(entry)).map(CqId)
    }

    pub(super) fn end_cq(&mut self, cq: CqId) -> Result<(), DestroyError> {
        let users = self.qps.count(|qp| qp.send_cq == Some(cq) || qp.recv_cq == Some(cq))
            + self.srqs.count(|srq| srq.xrc.is_some_and(|(_, of)| of == cq));
        destroy(&mut self.cqs, (Kind::Cq, cq.0), users, |CqEntry { raw, broken, events, kept }| {
            let again = |raw| CqEntry { raw, broken, events: 0, kept };
            self.handle.destroy_cq(raw, events).map_err(|(raw, error)| (again(raw), error))
        })
    }

    pub(super) fn make_srq(&mut self, pd: PdId, init: &SrqInit) -> Result<Srq, CreateError> {
        self.alive()?;
        if self.limits.srqs == 0 {
            return Err(CreateError::Unsupported { what: "shared receive queues" });
        }
        let pd_raw = self.pds.get(pd.0).ok_or(CreateError::Unknown { what: Kind::Pd, name: pd.0 })?;
        in_range(Kind::Depth, init.depth.into(), 1, self.limits.srq_depth.into())?;
        in_range(Kind::Sges, init.sges.into(), 0, self.limits.sges.into())?;
        let attr = ibv_srq_attr { max_wr: init.depth, max_sge: init.sges, srq_limit: 0 };
        let Some(xrc) = init.xrc else {
            let name = reserve!(self.srqs, Kind::Srq, self.limits.srqs);
            let entry = |(raw, given): (_, ibv_srq_attr)| SrqEntry {
                raw,
                pd,
                depth: given.max_wr,
                sges: given.max_sge.max(init.sges),
                xrc: None,
            };
            let made = self.handle.create_srq(pd_raw, attr, name).map(entry);
            return settle!(self.srqs, name, made).map(|name| Srq { id: SrqId(name), number: None });
        };
        if !self.limits.xrc {
            return Err(CreateError::Unsupported { what: "XRC" });
        }
        let unknown = |what, name| CreateError::Unknown { what, name };
        let domain = self.xrcds.get(xrc.domain.0).ok_or(unknown(Kind::Xrcd, xrc.domain.0))?;
        let cq = &self.cqs.get(xrc.cq.0).ok_or(unknown(Kind::Cq, xrc.cq.0))?.raw;
        let name = reserve!(self.srqs, Kind::Srq, self.limits.srqs);
        let mut number = 0;
        let made = self.handle.create_xrc_srq((pd_raw, domain, cq), attr, name).map(|(raw, given, told)| {
            number = told;
            let sges = given.max_sge.max(init.sges);
            SrqEntry { raw, pd, depth: given.max_wr, sges, xrc: Some((xrc.domain, xrc.cq)) }
        });
        settle!(self.srqs, name, made).map(|name| Srq { id: SrqId(name), number: Some(number) })
    }

    pub(super) fn end_srq(&mut self, srq: SrqId) -> Result<(), DestroyError> {
        let users = self.qps.count(|qp| qp.srq == Some(srq));
        destroy(&mut self.srqs, (Kind::Srq, srq.0), users, |SrqEntry { raw, pd, depth, sges, xrc }| {
            let again = |raw| SrqEntry { raw, pd, depth, sges, xrc };
            self.handle.destroy_srq(raw).map_err(|(raw, error)| (again(raw), error))
        })
    }

    pub(super) fn make_xrcd(&mut self, file: XrcdFile) -> Result<XrcdId, CreateError> {
        self.alive()?;
        if !self.limits.xrc {
            return Err(CreateError::Unsupported { what: "XRC" });
        }
        let file = match file {
            XrcdFile::Private => None,
            XrcdFile::Shared { file, create, exclusive } => {
                let flag = |on: bool, flag| if on { flag } else { 0 };
                Some((file, flag(create, libc::O_CREAT) | flag(create && exclusive, libc::O_EXCL)))
            }
        };
        let name = reserve!(self.xrcds, Kind::Xrcd, u32::MAX);
        settle!(self.xrcds, name, self.handle.open_xrcd(file)).map(XrcdId)
    }

    pub(super) fn end_xrcd(&mut self, domain: XrcdId) -> Result<(), DestroyError> {
        let users = self.qps.count(|qp| qp.domain == Some(domain))
            + self.srqs.count(|srq| srq.xrc.is_some_and(|(of, _)| of == domain));
        destroy(&mut self.xrcds, (Kind::Xrcd, domain.0), users, |raw| self.handle.close_xrcd(raw))
    }

    pub(super) fn make_qp(&mut self, init: &QpInit) -> Result<Qp, CreateError> {
        self.alive()?;
        let is_xrc = matches!(init.kind, QpKind::XrcInitiator | QpKind::XrcTarget);
        if is_xrc && !self.limits.xrc {
            return Err(CreateError::Unsupported { what: "XRC" });
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
        let unknown = |what, name| CreateError::Unknown { what, name };
        let pd = init.pd.map(|it| self.pds.get(it.0).ok_or(unknown(Kind::Pd, it.0))).transpose()?;
        let cq = |it: CqId| self.cqs.get(it.0).map(|entry| &entry.raw).ok_or(unknown(Kind::Cq, it.0));
        let (send_cq, recv_cq) = (init.send_cq.map(cq).transpose()?, init.recv_cq.map(cq).transpose()?);
        let srq = |it: SrqId| self.srqs.get(it.0).ok_or(unknown(Kind::Srq, it.0));
        let srq = init.srq.map(srq).transpose()?;
        let domain = |it: XrcdId| self.xrcds.get(it.0).ok_or(unknown(Kind::Xrcd, it.0));
        let domain = init.domain.map(domain).transpose()?;
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
            srq: srq.map(|entry| &entry.raw),
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
        let made = self.handle.create_qp(&parts).map(|(raw, given, told)| {
            number = told;
            QpEntry {
                raw,
                kind: init.kind,
                number: told,
                caps: QpCaps {
                    send_depth: given.max_send_wr,
                    recv_depth: given.max_recv_wr,
                    send_sges: given.max_send_sge,
                    recv_sges: given.max_recv_sge,
                    inline_bytes: given.max_inline_data,
                },
                pd: init.pd,
                send_cq: init.send_cq,
                recv_cq: init.recv_cq,
                srq: init.srq,
                domain: init.domain,
                state: QpState::Reset,
                set: Attrs::NONE,
            }
        });
        if let Ok(made) = &made
            && made.caps.inline_bytes < caps.inline_bytes
        {
            self.limits.inline_bytes = self.limits.inline_bytes.min(made.caps.inline_bytes);
        }
        settle!(self.qps, name, made).map(|name| Qp { id: QpId(name), number })
    }

    pub(super) fn find_qp(&mut self, domain: XrcdId, number: u32) -> Result<Qp, CreateError> {
        self.alive()?;
        let raw = self.xrcds.get(domain.0).ok_or(CreateError::Unknown { what: Kind::Xrcd, name: domain.0 })?;
        let name = reserve!(self.qps, Kind::Qp, self.limits.qps);
        let entry = |raw| QpEntry {
            raw,
            kind: QpKind::XrcTarget,
            number,
            caps: QpCaps::default(),
            pd: None,
            send_cq: None,
            recv_cq: None,
            srq: None,
            domain: Some(domain),
            state: QpState::Reset,
            set: Attrs::of(&crate::contract::Attr::ALL),
        };
        match settle!(self.qps, name, self.handle.open_qp(raw, number, name).map(entry)) {
            Err(CreateError::System { code: libc::EINVAL | libc::ENOENT }) => {
                Err(CreateError::Unknown { what: Kind::Qp, name: number })
            }
            other => other.map(|name| Qp { id: QpId(name), number }),
        }
    }

    pub(super) fn end_qp(&mut self, qp: QpId) -> Result<(), DestroyError> {
        let Some(entry) = self.qps.take(qp.0) else { return Err(DestroyError::Unknown { what: Kind::Qp, name: qp.0 }) };
        let QpEntry { raw, number, send_cq, recv_cq, .. } = entry;
        match self.handle.destroy_qp(raw) {
            Ok(()) => {
                self.qps.release(qp.0);
                self.sweep(number, send_cq, recv_cq);
                Ok(())
            }
            Err((raw, error)) => {
                self.qps.put(qp.0, QpEntry { raw, ..entry });
                Err(DestroyError::System { code: code(&error) })
            }
        }
    }

    pub(super) fn make_ah(&mut self, pd: PdId, address: &AddressVector) -> Result<AhId, CreateError> {
        self.alive()?;
        let raw = self.pds.get(pd.0).ok_or(CreateError::Unknown { what: Kind::Pd, name: pd.0 })?;
        self.has_port(address.port)?;
        let name = reserve!(self.ahs, Kind::Ah, self.limits.ahs);
        let made = self.handle.create_ah(raw, address_to_raw(address)).map(|raw| (raw, pd));
        settle!(self.ahs, name, made).map(AhId)
    }

    pub(super) fn end_ah(&mut self, handle: AhId) -> Result<(), DestroyError> {
        destroy(&mut self.ahs, (Kind::Ah, handle.0), 0, |(raw, pd)| {
            self.handle.destroy_ah(raw).map_err(|(raw, error)| ((raw, pd), error))
        })
    }
}
