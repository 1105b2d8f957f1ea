//! Shared receive queues and XRC domains (InfiniBand specification, 10.2.9, 11.2.3 and annex A14; xrc-2008,
//! IV).

use std::collections::{BTreeSet, VecDeque};

use rerail_verbs::contract::{
    AsyncEvent, CqId, CreateError, DestroyError, Kind, ModifyError, PdId, PostError, PostReason, RecvWr, Srq, SrqId,
    SrqInit, XrcdFile, XrcdId,
};

use super::core::{Cx, Hca, unknown};
use super::memory::{in_range, not_busy, within};
use super::object::{Domain, DomainName, RecvWork, SharedQueue, XrcQueue};
use super::slab::{NAMES_MAX, generation_of, slot_of};

/// Bits of a shared receive queue's number that are its slot.
const SLOT_BITS: u32 = 20;

impl Hca {
    pub fn create_srq(&mut self, context: u32, pd: PdId, init: &SrqInit) -> Result<Srq, CreateError> {
        self.pd_of(context, pd)?;
        if self.limits.srqs == 0 {
            return Err(CreateError::Unsupported { what: "shared receive queues" });
        }
        in_range(Kind::Depth, init.depth.into(), 1, self.limits.srq_depth.into())?;
        in_range(Kind::Sges, init.sges.into(), 1, self.limits.sges.into())?;
        let mut xrc = None;
        if let Some(init) = init.xrc {
            if !self.limits.xrc {
                return Err(CreateError::Unsupported { what: "XRC" });
            }
            let domain = self.domain_of(context, init.domain)?;
            self.cq_of(context, init.cq).ok_or(unknown(Kind::Cq, init.cq.0))?;
            xrc = Some(XrcQueue { domain, domain_name: init.domain.0, cq: init.cq.0, number: 0 });
        }
        within(Kind::Srq, self.srqs.len(), self.limits.srqs)?;
        let name = self.srqs.insert_with(|name| SharedQueue {
            context,
            pd: pd.0,
            depth: init.depth,
            sges: init.sges,
            queue: VecDeque::new(),
            taken: 0,
            held: 0,
            limit: 0,
            users: 0,
            xrc: xrc.map(|xrc| XrcQueue { number: number_of(name), ..xrc }),
        });
        self.pd_of(context, pd)?.users += 1;
        if let Some(xrc) = xrc {
            if let Some(cq) = self.cqs.get_mut(xrc.cq) {
                cq.users += 1;
            }
            if let Some(name) = self.domain_names.get_mut(xrc.domain_name) {
                name.users += 1;
            }
            if let Some(domain) = self.domains.get_mut(xrc.domain) {
                domain.queues.insert(name);
            }
        }
        Ok(Srq { id: SrqId(name), number: xrc.map(|_| number_of(name)) })
    }

    pub fn arm_srq(&mut self, cx: &mut Cx<'_>, context: u32, srq: SrqId, limit: u32) -> Result<(), ModifyError> {
        let found = self.srqs.get_mut(srq.0).filter(|found| found.context == context);
        let found = found.ok_or(ModifyError::Unknown { what: Kind::Srq, name: srq.0 })?;
        if limit > found.depth {
            let (value, max) = (limit.into(), found.depth.into());
            return Err(ModifyError::OutOfRange { field: "limit", value, min: 0, max });
        }
        found.limit = limit;
        self.check_limit(cx, srq.0);
        Ok(())
    }

    pub fn destroy_srq(&mut self, context: u32, srq: SrqId) -> Result<(), DestroyError> {
        let found = self.srqs.get(srq.0).filter(|found| found.context == context);
        let users = found.ok_or(DestroyError::Unknown { what: Kind::Srq, name: srq.0 })?.users;
        not_busy(Kind::Srq, users)?;
        self.remove_srq(srq.0);
        Ok(())
    }

    /// Takes a shared queue away, whichever process uses it.
    pub fn remove_srq(&mut self, srq: u32) {
        let Some(found) = self.srqs.remove(srq) else { return };
        self.release_pd(found.pd);
        if let Some(xrc) = found.xrc {
            if let Some(cq) = self.cqs.get_mut(xrc.cq) {
                cq.users -= 1;
            }
            if let Some(name) = self.domain_names.get_mut(xrc.domain_name) {
                name.users -= 1;
            }
            if let Some(domain) = self.domains.get_mut(xrc.domain) {
                domain.queues.remove(&srq);
            }
        }
    }

    pub fn post_srq_recv(&mut self, context: u32, srq: SrqId, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        for (index, request) in requests.iter().enumerate() {
            let found = self.srqs.get_mut(srq.0).filter(|found| found.context == context);
            let why = match found {
                None => PostReason::Unknown { what: Kind::Srq, name: srq.0 },
                Some(found) if request.sges.len() > found.sges as usize => {
                    PostReason::Sges { given: request.sges.len(), max: found.sges }
                }
                Some(found) if found.held >= found.depth => PostReason::Full { depth: found.depth },
                Some(found) => {
                    found.held += 1;
                    found.queue.push_back(RecvWork { id: request.id, sges: request.sges.to_vec(), srq: Some(srq.0) });
                    continue;
                }
            };
            return Err(PostError { index, why });
        }
        Ok(())
    }

    /// The next receive of a shared queue.
    pub fn take_shared(&mut self, cx: &mut Cx<'_>, srq: u32) -> Option<RecvWork> {
        let found = self.srqs.get_mut(srq)?;
        let work = found.queue.pop_front()?;
        found.taken += 1;
        self.check_limit(cx, srq);
        Some(work)
    }

    /// Fewer than the limit are left: one event (10.2.9.2). So it is too when the limit is set above what
    /// there is.
    fn check_limit(&mut self, cx: &mut Cx<'_>, srq: u32) {
        let Some(found) = self.srqs.get_mut(srq) else { return };
        if (found.queue.len() as u64) < u64::from(found.limit) {
            found.limit = 0;
            let context = found.context;
            self.event(cx, context, AsyncEvent::SrqLimit(SrqId(srq)));
        }
    }

    /// The XRC shared receive queue of that number, in that domain.
    pub fn srq_numbered(&self, domain: u32, number: u32) -> Option<u32> {
        let slot = (number & ((1 << SLOT_BITS) - 1)).checked_sub(1)?;
        let name = self.srqs.name_at(slot)?;
        let xrc = self.srqs.get(name)?.xrc?;
        (xrc.number == number && xrc.domain == domain).then_some(name)
    }

    pub fn open_xrcd(&mut self, context: u32, file: XrcdFile) -> Result<XrcdId, CreateError> {
        if !self.limits.xrc {
            return Err(CreateError::Unsupported { what: "XRC" });
        }
        within(Kind::Xrcd, self.domain_names.len(), NAMES_MAX)?;
        let domain = match file {
            XrcdFile::Private => self.make_domain(None),
            XrcdFile::Shared { file, create, exclusive } => {
                let found = self.domains.names(|domain| domain.file == Some(file)).pop();
                match (found, create) {
                    (Some(_), true) if exclusive => return Err(CreateError::System { code: EEXIST }),
                    (Some(found), _) => found,
                    (None, true) => self.make_domain(Some(file)),
                    (None, false) => return Err(CreateError::System { code: ENOENT }),
                }
            }
        };
        if let Some(domain) = self.domains.get_mut(domain) {
            domain.names += 1;
        }
        Ok(XrcdId(self.domain_names.insert_with(|_| DomainName { context, domain, users: 0 })))
    }

    fn make_domain(&mut self, file: Option<i32>) -> u32 {
        self.domains.insert_with(|_| Domain { file, names: 0, queues: BTreeSet::new() })
    }

    pub fn close_xrcd(&mut self, context: u32, domain: XrcdId) -> Result<(), DestroyError> {
        let found = self.domain_names.get(domain.0).filter(|found| found.context == context);
        let users = found.ok_or(DestroyError::Unknown { what: Kind::Xrcd, name: domain.0 })?.users;
        not_busy(Kind::Xrcd, users)?;
        self.remove_domain_name(domain.0);
        Ok(())
    }

    /// Takes a process's name for a domain away; the last one takes the domain along.
    pub fn remove_domain_name(&mut self, name: u32) {
        let Some(DomainName { domain, .. }) = self.domain_names.remove(name) else { return };
        let Some(found) = self.domains.get_mut(domain) else { return };
        found.names -= 1;
        if found.names == 0 {
            self.domains.remove(domain);
        }
    }

    /// The domain behind a process's name.
    pub fn domain_of(&self, context: u32, domain: XrcdId) -> Result<u32, CreateError> {
        let found = self.domain_names.get(domain.0).filter(|found| found.context == context);
        found.map(|found| found.domain).ok_or(unknown(Kind::Xrcd, domain.0))
    }

    /// A completion queue that the process has.
    pub fn known_cq(&mut self, context: u32, cq: CqId) -> Result<u32, CreateError> {
        self.cq_of(context, cq).map(|_| cq.0).ok_or(unknown(Kind::Cq, cq.0))
    }
}

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;

/// The number that senders name a shared receive queue by: its slot, and some of its generation (24 bits).
fn number_of(name: u32) -> u32 {
    (generation_of(name) << SLOT_BITS | (slot_of(name) + 1)) & 0xff_ffff
}
