//! Protection domains, registrations and access rights (InfiniBand specification, 10.6; 9.7.4.1.2 for
//! the checks of a responder).

use rerail_verbs::contract::{
    Access, AddressVector, AhId, CreateError, DestroyError, Kind, ModifyError, Mr, MrId, PdId, RegisterError, Sge,
};

use super::core::{Cx, Hca, unknown};
use super::dma::Memory;
use super::object::{Handle, MrEntry, Pd};
use super::slab::{generation_of, slot_of};

/// What a request does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    LocalRead,
    LocalWrite,
    RemoteRead,
    RemoteWrite,
    RemoteAtomic,
}

/// Set in remote keys: a local key is never taken for one.
const REMOTE: u32 = 1 << 31;

impl Hca {
    pub fn alloc_pd(&mut self, context: u32) -> Result<PdId, CreateError> {
        within(Kind::Pd, self.pds.len(), self.limits.pds)?;
        Ok(PdId(self.pds.insert_with(|_| Pd { context, users: 0 })))
    }

    pub fn dealloc_pd(&mut self, context: u32, pd: PdId) -> Result<(), DestroyError> {
        let found = self.pds.get(pd.0).filter(|found| found.context == context);
        let users = found.ok_or(DestroyError::Unknown { what: Kind::Pd, name: pd.0 })?.users;
        not_busy(Kind::Pd, users)?;
        self.pds.remove(pd.0);
        Ok(())
    }

    /// A protection domain that the process has.
    pub fn pd_of(&mut self, context: u32, pd: PdId) -> Result<&mut Pd, CreateError> {
        self.pds.get_mut(pd.0).filter(|found| found.context == context).ok_or(unknown(Kind::Pd, pd.0))
    }

    /// What uses a protection domain is gone.
    pub fn release_pd(&mut self, pd: u32) {
        if let Some(pd) = self.pds.get_mut(pd) {
            pd.users -= 1;
        }
    }

    /// Checks a registration; `make` gives the memory once it is granted.
    pub fn register(
        &mut self,
        cx: &mut Cx<'_>,
        context: u32,
        pd: PdId,
        range: (u64, u64, u64),
        access: Access,
        make: impl FnOnce() -> Memory,
    ) -> Result<Mr, RegisterError> {
        let (start, bytes, iova) = range;
        if self.pds.get(pd.0).is_none_or(|found| found.context != context) {
            return Err(RegisterError::UnknownPd { name: pd.0 });
        }
        let max = self.limits.mr_bytes;
        if bytes == 0 || bytes > max || start.checked_add(bytes).is_none() || iova.checked_add(bytes).is_none() {
            return Err(RegisterError::Length { bytes, max });
        }
        if (access.remote_write || access.remote_atomic) && !access.local_write {
            return Err(RegisterError::Access);
        }
        if !self.limits.iova && iova != start {
            return Err(RegisterError::NoIova);
        }
        if access.on_demand && !self.offers.has_on_demand() {
            return Err(RegisterError::NoOnDemand);
        }
        if self.faults.refuse_registrations > 0 {
            self.faults.refuse_registrations -= 1;
            return Err(RegisterError::System { code: ENOMEM });
        }
        // What is registered on demand is not pinned.
        let pins = if access.on_demand { 0 } else { bytes };
        let pinned: u64 = self.faults.pinned_bytes;
        if pins > 0 && self.faults.pinned_max.is_some_and(|max| pinned.saturating_add(pins) > max) {
            return Err(RegisterError::System { code: ENOMEM });
        }
        if self.mrs.len() >= self.limits.mrs {
            return Err(RegisterError::Exhausted { limit: self.limits.mrs });
        }
        let owner = self.contexts.get(context).map_or(0, |context| context.owner);
        let cost_ps = self.cost.register_ps(pins);
        cx.processors.spend(owner, cx.now, cost_ps);
        self.registration_ns = cost_ps.div_ceil(1_000);
        self.faults.pinned_bytes += pins;
        let memory = make();
        let name = self.mrs.insert_with(|name| MrEntry { context, pd: pd.0, lkey: key_of(name), access, pins, memory });
        if let Some(pd) = self.pds.get_mut(pd.0) {
            pd.users += 1;
        }
        Ok(Mr { id: MrId(name), lkey: key_of(name), rkey: key_of(name) | REMOTE })
    }

    pub fn deregister(&mut self, context: u32, mr: MrId) -> Result<(), DestroyError> {
        if self.mrs.get(mr.0).is_none_or(|found| found.context != context) {
            return Err(DestroyError::Unknown { what: Kind::Mr, name: mr.0 });
        }
        self.remove_mr(mr.0);
        Ok(())
    }

    /// Ends a registration, whichever process has it.
    pub fn remove_mr(&mut self, mr: u32) {
        if let Some(entry) = self.mrs.remove(mr) {
            self.faults.pinned_bytes -= entry.pins;
            self.release_pd(entry.pd);
        }
    }

    /// The registration that a key names, if the range lies in it and may be touched so from that protection
    /// domain.
    pub fn check(&self, pd: u32, key: u32, address: u64, bytes: u64, touch: Touch) -> Option<u32> {
        let remote = matches!(touch, Touch::RemoteRead | Touch::RemoteWrite | Touch::RemoteAtomic);
        if (key & REMOTE != 0) != remote {
            return None;
        }
        let name = self.mrs.name_at(((key & !REMOTE) >> 8).checked_sub(1)?)?;
        let mr = self.mrs.get(name).filter(|mr| mr.lkey == key & !REMOTE && mr.pd == pd)?;
        let granted = match touch {
            Touch::LocalRead => true,
            Touch::LocalWrite => mr.access.local_write,
            Touch::RemoteRead => mr.access.remote_read,
            Touch::RemoteWrite => mr.access.remote_write,
            Touch::RemoteAtomic => mr.access.remote_atomic,
        };
        (granted && mr.memory.offset(address, bytes).is_some()).then_some(name)
    }

    /// Whether a list of pieces may be touched so. A piece of no bytes is not looked at.
    pub fn check_list(&self, pd: u32, sges: &[Sge], touch: Touch) -> bool {
        let allowed = |sge: &Sge| self.check(pd, sge.lkey(), sge.address(), sge.len().into(), touch).is_some();
        sges.iter().all(|sge| sge.len() == 0 || allowed(sge))
    }

    /// The bytes of a list of pieces; `None` where one of them may not be read (any more).
    pub fn gather(&self, pd: u32, sges: &[Sge]) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(sges.iter().map(|sge| sge.len() as usize).sum());
        for sge in sges.iter().filter(|sge| sge.len() > 0) {
            let mr = self.check(pd, sge.lkey(), sge.address(), sge.len().into(), Touch::LocalRead)?;
            self.mrs.get(mr)?.memory.read(sge.address(), sge.len(), &mut out).then_some(())?;
        }
        Some(out)
    }

    /// Writes data into a list of pieces; `false` where one of them may not be written (any more).
    pub fn scatter(&self, pd: u32, sges: &[Sge], data: &[u8]) -> bool {
        let mut rest = data;
        for sge in sges.iter().filter(|sge| sge.len() > 0) {
            let Some((here, behind)) = rest.split_at_checked(sge.len() as usize) else { return false };
            let mr = self.check(pd, sge.lkey(), sge.address(), sge.len().into(), Touch::LocalWrite);
            let Some(mr) = mr.and_then(|mr| self.mrs.get(mr)) else { return false };
            if !mr.memory.write(sge.address(), here) {
                return false;
            }
            rest = behind;
        }
        rest.is_empty()
    }

    pub fn create_ah(
        &mut self,
        cx: &mut Cx<'_>,
        context: u32,
        pd: PdId,
        address: &AddressVector,
    ) -> Result<AhId, CreateError> {
        self.pd_of(context, pd)?;
        self.port(address.port)?;
        self.check_address(address).map_err(|error| match error {
            ModifyError::OutOfRange { field: "address.global.source_index", value, min, max } => {
                CreateError::OutOfRange { what: Kind::Gid, value, min, max }
            }
            _ => CreateError::Mismatch { why: "the address has a value that is out of range" },
        })?;
        within(Kind::Ah, self.handles.len(), self.limits.ahs)?;
        self.search(cx, context, address).map_err(|code| CreateError::System { code })?;
        self.pd_of(context, pd)?.users += 1;
        Ok(AhId(self.handles.insert_with(|_| Handle { context, pd: pd.0, address: *address })))
    }

    pub fn destroy_ah(&mut self, context: u32, handle: AhId) -> Result<(), DestroyError> {
        if self.handles.get(handle.0).is_none_or(|found| found.context != context) {
            return Err(DestroyError::Unknown { what: Kind::Ah, name: handle.0 });
        }
        if let Some(handle) = self.handles.remove(handle.0) {
            self.release_pd(handle.pd);
        }
        Ok(())
    }
}

/// `errno` of a refusal for lack of memory.
const ENOMEM: i32 = 12;

/// A local key: slot, and 8 bits of the generation.
fn key_of(name: u32) -> u32 {
    (slot_of(name) + 1) << 8 | generation_of(name) & 0xff
}

/// Whether there may be one more.
pub(super) fn within(what: Kind, have: u32, limit: u32) -> Result<(), CreateError> {
    if have < limit { Ok(()) } else { Err(CreateError::Exhausted { what, limit }) }
}

/// Whether nothing uses it.
pub(super) fn not_busy(what: Kind, users: u32) -> Result<(), DestroyError> {
    if users == 0 { Ok(()) } else { Err(DestroyError::Busy { what, users }) }
}

/// Whether a value is in range.
pub(super) fn in_range(what: Kind, value: u64, min: u64, max: u64) -> Result<(), CreateError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(CreateError::OutOfRange { what, value, min, max }) }
}
