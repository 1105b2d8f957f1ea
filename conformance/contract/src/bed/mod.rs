//! What cases work with: two ends, memory, time.
//!
//! | file | holds |
//! |---|---|
//! | `mod` | the bed itself: devices, memory, waiting |
//! | `queue` | queue pairs: made, brought to a state, connected |
//! | `request` | short names for work requests, posting |
//! | `expect` | awaiting completions and events, and demanding their contents |

pub(crate) mod expect;
pub(crate) mod queue;
pub(crate) mod request;

use rerail_verbs::contract::{
    Access, AddressVector, AsyncEvent, CqId, CqInit, DestroyError, Device, Limits, Mr, PdId, RegisterError, Remote, Sge,
};
use rerail_verbs::{LinkLayer, Offers, OnDemand};

use crate::failure::{Check, Failure};
use crate::memory::Memory;
use crate::testbed::{End, Fault, Need, Testbed};

/// The place where one case runs.
pub struct Bed<'t> {
    testbed: Box<dyn Testbed + 't>,
    memory: Memory,
    /// The protection domain of each end that cases use when they name none, once it is made.
    pds: [Option<PdId>; 3],
    /// Asynchronous events of each end that no case has taken yet.
    events: [Vec<AsyncEvent>; 3],
}

/// Registered memory of an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub end: End,
    pub mr: Mr,
    /// Bytes registered.
    pub len: usize,
    /// The address of its first byte at the device.
    pub iova: u64,
    buffer: usize,
}

/// A piece that is registered nowhere, for cases of protection. Only to be sent from: devices read it or
/// refuse, and write nothing to it.
pub fn forged(address: u64, len: u32, lkey: u32) -> Sge {
    // SAFETY: no driver reads the memory of a request that is not inline by itself; the device checks the
    // key.
    unsafe { Sge::new(address, len, lkey) }
}

impl Region {
    /// All of it.
    pub fn all(&self) -> Sge {
        self.part(0, self.len)
    }

    /// Part of it, or, for cases of protection, more.
    pub fn part(&self, offset: usize, len: usize) -> Sge {
        // SAFETY: inside the registration; or, for cases of protection, outside of it, which every device
        // under test is to refuse and to leave alone: the pieces beside are the bed's own (see `memory`).
        unsafe { Sge::new(self.iova + offset as u64, len as u32, self.mr.lkey) }
    }

    /// As the peer names it, from `offset` on.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { address: self.iova + offset as u64, rkey: self.mr.rkey }
    }
}

impl<'t> Bed<'t> {
    pub(crate) fn new(testbed: Box<dyn Testbed + 't>) -> Self {
        Bed { testbed, memory: Memory::default(), pds: [None; 3], events: Default::default() }
    }

    /// The device of an end.
    pub fn device(&mut self, end: End) -> &mut dyn Device {
        self.testbed.device(end)
    }

    /// What the device of an end can do.
    pub fn limits(&mut self, end: End) -> Limits {
        self.device(end).limits()
    }

    /// The port of an end.
    pub fn port(&self, end: End) -> u8 {
        self.testbed.port(end)
    }

    /// Whether device and testbed have this.
    pub(crate) fn offers(&mut self, need: Need) -> bool {
        let both = [End::A, End::B].map(|end| self.limits(end));
        match need {
            Need::Srq => both.iter().all(|limits| limits.srqs > 0),
            Need::Xrc => both.iter().all(|limits| limits.xrc),
            Need::Atomics => both.iter().all(|limits| limits.atomics),
            Need::Iova => both.iter().all(|limits| limits.iova),
            Need::OnDemand => self.both_offer(|offers| offers.on_demand == OnDemand::WHOLE),
            Need::Moderation => {
                self.both_offer(|offers| offers.moderation.is_some_and(|most| most.count >= 2 && most.period_us >= 1))
            }
            Need::Inline => both.iter().all(|limits| limits.inline_bytes >= 16),
            Need::Gather => both.iter().all(|limits| limits.sges >= 2),
            Need::Paths => self.both_ports(|port| port.lmc > 0),
            Need::Lids => self.both_ports(|port| port.link_layer == LinkLayer::InfiniBand),
            Need::Gids => [End::A, End::B].into_iter().all(|end| {
                let port = self.port(end);
                self.device(end).gid(port, 0).is_ok_and(|gid| gid.0 != [0; 16])
            }),
            Need::Sibling => self.testbed.has_sibling() && self.testbed.shared_file().is_some(),
            Need::Fault(fault) => self.testbed.offers(fault),
            Need::Other(_) => true,
        }
    }

    fn both_offer(&mut self, holds: impl Fn(&Offers) -> bool) -> bool {
        [End::A, End::B].into_iter().all(|end| holds(&self.device(end).offers()))
    }

    fn both_ports(&mut self, holds: impl Fn(&rerail_verbs::Port) -> bool) -> bool {
        [End::A, End::B].into_iter().all(|end| {
            let port = self.port(end);
            self.device(end).port(port).is_ok_and(|port| holds(&port))
        })
    }

    /// Descriptors of the file that B and C share.
    pub(crate) fn shared_file(&mut self) -> Check<[i32; 2]> {
        self.testbed.shared_file().ok_or(Failure::Unsupported(Need::Sibling))
    }

    /// How `from` reaches `to`, over the LID with this offset from the base LID.
    pub(crate) fn address(&mut self, from: End, to: End, path: u16) -> Check<AddressVector> {
        let base = self.testbed.address(from, to).map_err(Failure::Testbed)?;
        Ok(AddressVector { dlid: base.dlid + path, ..base })
    }

    /// Makes a fault.
    pub(crate) fn inject(&mut self, end: End, fault: Fault) -> Check {
        self.testbed.inject(end, fault).map_err(Failure::Testbed)
    }

    /// The protection domain of an end that is used where none is named.
    pub(crate) fn pd(&mut self, end: End) -> Check<PdId> {
        if let Some(pd) = self.pds[end as usize] {
            return Ok(pd);
        }
        let pd = self.device(end).alloc_pd()?;
        self.pds[end as usize] = Some(pd);
        Ok(pd)
    }

    /// A completion queue of this depth.
    pub(crate) fn cq(&mut self, end: End, depth: u32) -> Check<CqId> {
        Ok(self.device(end).create_cq(&CqInit { depth })?)
    }

    /// Every access that the device of this end supports.
    pub(crate) fn every_access(&mut self, end: End) -> Access {
        Access { remote_atomic: self.limits(end).atomics, ..Access::ALL }
    }

    /// Zeroed memory with every access.
    pub(crate) fn region(&mut self, end: End, len: usize) -> Check<Region> {
        let (pd, access) = (self.pd(end)?, self.every_access(end));
        self.region_with(end, pd, len, access)
    }

    /// Memory with every access and this content.
    pub(crate) fn filled(&mut self, end: End, bytes: &[u8]) -> Check<Region> {
        let region = self.region(end, bytes.len())?;
        self.write(&region, 0, bytes);
        Ok(region)
    }

    /// Zeroed memory with these rights in this domain.
    pub(crate) fn region_with(&mut self, end: End, pd: PdId, len: usize, access: Access) -> Check<Region> {
        let buffer = self.memory.allocate(len);
        let iova = self.memory.address(buffer);
        let mr = self.memory.register((end, self.testbed.device(end)), pd, (buffer, len), iova, access)?;
        Ok(Region { end, mr, len, iova, buffer })
    }

    /// Memory under an address of the case's choice, with every access.
    pub(crate) fn region_at(&mut self, end: End, iova: u64, len: usize) -> Check<Region> {
        let (pd, access) = (self.pd(end)?, self.every_access(end));
        let buffer = self.memory.allocate(len);
        let mr = self.memory.register((end, self.testbed.device(end)), pd, (buffer, len), iova, access)?;
        Ok(Region { end, mr, len, iova, buffer })
    }

    /// The first half of a region's memory, registered once more, for itself.
    pub(crate) fn first_half(&mut self, whole: &Region) -> Check<Region> {
        let (pd, access) = (self.pd(whole.end)?, self.every_access(whole.end));
        let len = whole.len / 2;
        let place = (whole.buffer, len);
        let mr = self.memory.register((whole.end, self.testbed.device(whole.end)), pd, place, whole.iova, access)?;
        Ok(Region { mr, len, ..*whole })
    }

    /// Registers new memory and returns the device's answer.
    pub(crate) fn try_register(&mut self, end: End, pd: PdId, len: usize, access: Access) -> Result<Mr, RegisterError> {
        let buffer = self.memory.allocate(len);
        let iova = self.memory.address(buffer);
        self.memory.register((end, self.testbed.device(end)), pd, (buffer, len), iova, access)
    }

    /// Ends a registration; its bytes can still be looked at.
    pub(crate) fn deregister(&mut self, region: &Region) -> Result<(), DestroyError> {
        self.memory.deregister(region.end, self.testbed.device(region.end), region.mr.id)
    }

    /// Puts bytes into a region's memory.
    pub(crate) fn write(&mut self, region: &Region, offset: usize, bytes: &[u8]) {
        self.memory.write(region.buffer, offset, bytes);
    }

    /// Bytes of a region's memory.
    pub(crate) fn read(&self, region: &Region, offset: usize, len: usize) -> Vec<u8> {
        self.memory.read(region.buffer, offset, len)
    }

    /// The 8 bytes at `offset` of a region, in native byte order.
    pub(crate) fn word(&self, region: &Region, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.read(region, offset, 8));
        u64::from_ne_bytes(bytes)
    }

    /// Polls until something comes, as long as the testbed has time.
    pub(crate) fn wait<T>(
        &mut self,
        awaited: impl FnOnce() -> String,
        mut poll: impl FnMut(&mut Self) -> Check<Option<T>>,
    ) -> Check<T> {
        self.testbed.begin_wait();
        loop {
            if let Some(came) = poll(self)? {
                return Ok(came);
            }
            if !self.testbed.pass() {
                // What came with the last step still counts.
                return poll(self)?.ok_or_else(|| Failure::Silent { awaited: awaited() });
            }
        }
    }

    /// Lets all that is under way happen.
    pub(crate) fn run_until_idle(&mut self) {
        self.testbed.run_until_idle();
    }
}

impl Drop for Bed<'_> {
    fn drop(&mut self) {
        self.memory.close(&mut *self.testbed);
    }
}

/// Bytes that depend on their place: `seed` makes streams differ.
pub(crate) fn pattern(seed: u8, len: usize) -> Vec<u8> {
    let byte = |i: usize| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ (i as u8) ^ seed;
    (0..len).map(byte).collect()
}
