//! A device just real enough for setting connections up and for sends: messages arrive at once, datagrams at
//! the test's command, so that it can lose, repeat, change and record them.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use rerail_verbs::contract::*;
use rerail_verbs::{Gid, LinkLayer, Moderation, Offers, Port, PortState};
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};

/// A datagram that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flying {
    pub from: u16,
    pub to: u16,
    pub qp: u32,
    pub qkey: u32,
    pub bytes: Vec<u8>,
}

/// The network between the devices, by LID.
#[derive(Default)]
pub struct Wire {
    devices: BTreeMap<u16, State>,
    pub flying: Vec<Flying>,
}

#[derive(Default)]
struct State {
    names: u32,
    memory: BTreeMap<u32, Memory>,
    qps: BTreeMap<u32, FakeQp>,
    receives: VecDeque<(u64, Sge)>,
    completions: VecDeque<Completion>,
    events: VecDeque<AsyncEvent>,
    handles: BTreeMap<u32, AddressVector>,
    /// The addresses of all handles ever made.
    address_vectors: Vec<AddressVector>,
    offers: Offers,
    moderated: Vec<Moderation>,
    reuses_keys: bool,
    pins: bool,
    inline_given: Option<u32>,
    refusal: Option<(usize, i32)>,
    needs_global: bool,
    /// Of its port; none: it is InfiniBand.
    gids: Vec<Gid>,
    /// It is InfiniBand with these.
    is_infiniband: bool,
    /// ... and partition keys; none: the default partition's alone.
    pkeys: Vec<u16>,
    /// How often the port was queried.
    requested: u32,
}

struct Memory {
    start: *mut u8,
    bytes: u64,
    iova: u64,
    access: Access,
    /// A second mapping of the pages, which stay when the first one ends: a device's view of pinned memory.
    _pinned: Option<Mapped>,
}

struct FakeQp {
    kind: QpKind,
    state: QpState,
    attributes: QpChange,
    receives: VecDeque<(u64, Sge)>,
}

pub type SharedWire = Rc<RefCell<Wire>>;

/// Pages that are unmapped with it.
pub struct Mapped {
    pub start: *mut u8,
    pub len: usize,
}

impl Mapped {
    /// Zeroed pages that can be mapped a second time, at `at` where that is not null.
    pub fn shared(at: *mut u8, len: usize) -> Mapped {
        let fixed = if at.is_null() { MapFlags::empty() } else { MapFlags::FIXED_NOREPLACE };
        // SAFETY: no existing mapping is touched.
        let mapped =
            unsafe { mmap_anonymous(at.cast(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | fixed) };
        Mapped { start: mapped.expect("memory").cast(), len }
    }

    pub fn fill(&self, byte: u8) {
        // SAFETY: all of it is mapped, and no reference into it exists.
        unsafe { self.start.write_bytes(byte, self.len) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nothing else unmaps it, and its bytes are no longer used.
        unsafe { munmap(self.start.cast(), self.len) }.expect("it is mapped");
    }
}

pub struct FakeDevice {
    wire: SharedWire,
    lid: u16,
}

impl FakeDevice {
    pub fn new(wire: &SharedWire, lid: u16) -> Self {
        wire.borrow_mut().devices.insert(lid, State { names: u32::from(lid) << 8, ..State::default() });
        FakeDevice { wire: wire.clone(), lid }
    }

    fn with<T>(&self, run: impl FnOnce(&mut State) -> T) -> T {
        run(self.wire.borrow_mut().devices.get_mut(&self.lid).expect("made with the device"))
    }

    fn named(&self) -> u32 {
        self.with(|state| {
            state.names += 1;
            state.names
        })
    }

    /// Registrations that exist.
    pub fn registrations(&self) -> usize {
        self.with(|state| state.memory.len())
    }

    /// The registrations: start, bytes, and whether peers can write to it; oldest first.
    pub fn registered(&self) -> Vec<(usize, u64, bool)> {
        self.with(|state| {
            state
                .memory
                .values()
                .map(|memory| (memory.start.addr(), memory.bytes, memory.access.remote_write))
                .collect()
        })
    }

    /// The number of unpinned registrations.
    pub fn unpinned(&self) -> usize {
        self.with(|state| state.memory.values().filter(|memory| memory.access.on_demand).count())
    }

    pub fn set_offers(&self, offers: Offers) {
        self.with(|state| state.offers = offers);
    }

    /// Registrations to come get the least key that is free.
    pub fn reuse_keys(&self) {
        self.with(|state| state.reuses_keys = true);
    }

    /// Registrations to come, of whole pages of shared mappings, keep the pages that are there now, unless
    /// they are on demand.
    pub fn pin(&self) {
        self.with(|state| state.pins = true);
    }

    /// The bytes that an entry names, as the device sees them.
    pub fn seen(&self, sge: &Sge) -> Vec<u8> {
        self.with(|state| state.read(sge))
    }

    /// The port takes nothing without a global route.
    pub fn need_global(&self) {
        self.with(|state| state.needs_global = true);
    }

    /// Whether both ends accept a path.
    fn takes(&self, address: &AddressVector) -> bool {
        let wire = self.wire.borrow();
        let needed = [self.lid, address.dlid].iter().any(|lid| wire.devices.get(lid).is_some_and(|it| it.needs_global));
        // On Ethernet there is no LID, and no other path.
        (needed || address.dlid == 0) == address.global.is_some()
    }

    /// Registrations beyond so many are refused by this error.
    pub fn refuse_beyond(&self, count: usize, errno: i32) {
        self.with(|state| state.refusal = Some((count, errno)));
    }

    /// Later queue pairs take so many bytes inline, whatever they request and the device has reported.
    pub fn give_inline(&self, bytes: u32) {
        self.with(|state| state.inline_given = Some(bytes));
    }

    /// How queues were moderated.
    pub fn moderated(&self) -> Vec<Moderation> {
        self.with(|state| state.moderated.clone())
    }

    /// Its port is Ethernet, with this table of GIDs.
    pub fn set_gids(&self, gids: &[Gid]) {
        self.with(|state| state.gids = gids.to_vec());
    }

    /// Its port is InfiniBand, whatever GIDs it has, and requires a global route.
    pub fn be_global_infiniband(&self) {
        self.with(|state| (state.is_infiniband, state.needs_global) = (true, true));
    }

    pub fn set_pkeys(&self, keys: &[u16]) {
        self.with(|state| state.pkeys = keys.to_vec());
    }

    pub fn raise(&self, event: AsyncEvent) {
        self.with(|state| state.events.push_back(event));
    }

    pub fn requested(&self) -> u32 {
        self.with(|state| state.requested)
    }

    /// How the connected queue pair is addressed.
    pub fn address(&self) -> Option<AddressVector> {
        self.with(|state| state.qps.values().find_map(|qp| qp.attributes.address))
    }

    /// Where the handles led that were made, oldest first.
    pub fn address_vectors(&self) -> Vec<AddressVector> {
        self.with(|state| state.address_vectors.clone())
    }

    pub fn handles(&self) -> usize {
        self.with(|state| state.handles.len())
    }

    pub fn qps(&self) -> usize {
        self.with(|state| state.qps.len())
    }
}

impl State {
    fn inline_limit(&self) -> u32 {
        let is_made = self.qps.values().any(|qp| qp.kind == QpKind::Rc);
        self.inline_given.filter(|_| is_made).unwrap_or(64)
    }

    /// The bytes that an entry names.
    fn read(&self, sge: &Sge) -> Vec<u8> {
        let memory = &self.memory[&sge.lkey()];
        let offset = sge.address() - memory.iova;
        assert!(offset + u64::from(sge.len()) <= memory.bytes, "outside of the registration");
        let mut bytes = vec![0; sge.len() as usize];
        // SAFETY: inside a registration, which the registering caller keeps mapped.
        unsafe { memory.start.add(offset as usize).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }

    fn write(&self, sge: &Sge, skip: u64, bytes: &[u8]) {
        let memory = &self.memory[&sge.lkey()];
        let offset = sge.address() - memory.iova + skip;
        assert!(skip + bytes.len() as u64 <= u64::from(sge.len()) && offset + bytes.len() as u64 <= memory.bytes);
        // SAFETY: as in `read`; the registrations of these tests are all writable.
        unsafe { memory.start.add(offset as usize).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    fn complete(&mut self, id: u64, qp: u32, kind: CompletionKind, status: Status, bytes: usize) {
        self.completions.push_back(Completion {
            id,
            status,
            kind,
            bytes: bytes as u32,
            immediate: None,
            qp,
            source_qp: 0,
            source_lid: 0,
            global: false,
        });
    }

    fn enter_error(&mut self, qp: u32) {
        if let Some(found) = self.qps.get_mut(&qp)
            && found.state != QpState::Error
        {
            found.state = QpState::Error;
            self.events.push_back(AsyncEvent::QpLastWqe(QpId(qp)));
        }
    }
}

impl Wire {
    /// Delivers a datagram; without a receive it is lost.
    pub fn deliver(&mut self, datagram: &Flying) {
        let Some(state) = self.devices.get_mut(&datagram.to) else { return };
        let Some(qp) = state.qps.get_mut(&datagram.qp) else { return };
        if qp.attributes.qkey != Some(datagram.qkey) {
            return;
        }
        let Some((id, sge)) = qp.receives.pop_front() else { return };
        state.write(&sge, 40, &datagram.bytes);
        state.complete(id, datagram.qp, CompletionKind::Recv, Status::Success, 40 + datagram.bytes.len());
    }

    /// The device at an address, as another one sees it.
    fn find(&self, from: u16, address: &AddressVector) -> Option<u16> {
        let Some(route) = address.global.filter(|_| address.dlid == 0) else { return Some(address.dlid) };
        let source = self.devices[&from].gids.get(usize::from(route.source_index))?;
        let is_it = |state: &&State| state.gids.contains(&route.dgid);
        (*source != Gid::default()).then_some(())?;
        self.devices.iter().find(|(_, state)| is_it(state)).map(|(lid, _)| *lid)
    }

    /// A message over a connection, at once; `false`: not acknowledged.
    fn send(&mut self, from: u16, qp: u32, bytes: &[u8]) -> bool {
        let attributes = self.devices[&from].qps[&qp].attributes;
        let (Some(address), Some(destination)) = (attributes.address, attributes.destination) else { return false };
        let Some(to) = self.find(from, &address) else { return false };
        let Some(state) = self.devices.get_mut(&to) else { return false };
        let Some(target) = state.qps.get(&destination) else { return false };
        let ready = matches!(target.state, QpState::Rtr | QpState::Rts)
            && target.attributes.destination == Some(qp)
            && target.attributes.recv_psn == attributes.send_psn;
        let Some((id, sge)) = state.receives.pop_front().filter(|_| ready) else { return false };
        state.write(&sge, 0, bytes);
        state.complete(id, destination, CompletionKind::Recv, Status::Success, bytes.len());
        true
    }
}

impl Device for FakeDevice {
    type Opener = Box<dyn FnMut() -> Result<Self, CreateError>>;

    fn name(&self) -> &str {
        "fake"
    }

    fn limits(&self) -> Limits {
        Limits {
            ports: 1,
            qps: 1000,
            queue_depth: 1000,
            sges: 4,
            cqs: 10,
            cq_depth: 10_000,
            mrs: 1000,
            mr_bytes: 1 << 30,
            pds: 10,
            srqs: 10,
            srq_depth: 1000,
            ahs: 1000,
            reads_served: 4,
            reads_open: 4,
            inline_bytes: self.with(|state| state.inline_limit()),
            atomics: false,
            xrc: false,
            iova: true,
        }
    }

    fn offers(&self) -> Offers {
        self.with(|state| state.offers)
    }

    fn port(&self, number: u8) -> Result<Port, CreateError> {
        let (gids, is_ethernet) = self.with(|state| {
            state.requested += 1;
            (state.gids.len(), !state.gids.is_empty() && !state.is_infiniband)
        });
        Ok(Port {
            number,
            state: PortState::Active,
            link_layer: if is_ethernet { LinkLayer::Ethernet } else { LinkLayer::InfiniBand },
            lid: if is_ethernet { 0 } else { self.lid },
            lmc: 0,
            needs_global: self.with(|state| state.needs_global),
            manager_lid: 1,
            gid_table_len: gids.max(1) as u32,
            mtu_bytes: Some(2048),
            mtu_bytes_max: Some(2048),
            message_bytes_max: 1 << 30,
            lanes: Some(4),
            lane_mbit_per_second: Some(5000),
        })
    }

    fn gid(&self, _: u8, index: u8) -> Result<Gid, CreateError> {
        Ok(self.with(|state| match state.gids.is_empty() {
            true => Gid([0xFE; 16]),
            false => state.gids[usize::from(index)],
        }))
    }

    fn pkey(&self, _: u8, index: u16) -> Result<u16, CreateError> {
        let found = self.with(|state| match state.pkeys.is_empty() {
            true => (index == 0).then_some(0xffff),
            false => state.pkeys.get(usize::from(index)).copied(),
        });
        found.ok_or(CreateError::OutOfRange { what: Kind::Pkey, value: index.into(), min: 0, max: 0 })
    }

    fn alloc_pd(&mut self) -> Result<PdId, CreateError> {
        Ok(PdId(self.named()))
    }

    fn dealloc_pd(&mut self, _: PdId) -> Result<(), DestroyError> {
        Ok(())
    }

    unsafe fn register(
        &mut self,
        _: PdId,
        start: *mut u8,
        bytes: u64,
        iova: u64,
        access: Access,
    ) -> Result<Mr, RegisterError> {
        let refused = self.with(|state| state.refusal.filter(|(count, _)| state.memory.len() >= *count));
        if let Some((_, code)) = refused {
            return Err(RegisterError::System { code });
        }
        let new = self.named();
        let free =
            |state: &mut State| (1..).find(|key| state.reuses_keys && !state.memory.contains_key(key) || *key == new);
        let key = self.with(free).expect("there is the new one");
        let pinned = self.with(|state| state.pins && !access.on_demand).then(|| {
            // SAFETY: the memory is mapped; moving no bytes of it gives its pages another address, too.
            let again = unsafe { mremap(start.cast(), 0, bytes as usize, MremapFlags::MAYMOVE) };
            Mapped { start: again.expect("whole pages of a shared mapping").cast(), len: bytes as usize }
        });
        let start = pinned.as_ref().map_or(start, |pinned| pinned.start);
        self.with(|state| state.memory.insert(key, Memory { start, bytes, iova, access, _pinned: pinned }));
        Ok(Mr { id: MrId(key), lkey: key, rkey: key })
    }

    fn deregister(&mut self, mr: MrId) -> Result<(), DestroyError> {
        self.with(|state| state.memory.remove(&mr.0));
        Ok(())
    }

    fn create_cq(&mut self, _: &CqInit) -> Result<CqId, CreateError> {
        Ok(CqId(self.named()))
    }

    fn destroy_cq(&mut self, _: CqId) -> Result<(), DestroyError> {
        Ok(())
    }

    fn poll_cq(&mut self, _: CqId, most: usize, out: &mut Vec<Completion>) -> Result<usize, PollError> {
        Ok(self.with(|state| {
            let count = most.min(state.completions.len());
            out.extend(state.completions.drain(..count));
            count
        }))
    }

    fn request_notify(&mut self, _: CqId, _: bool) -> Result<(), PollError> {
        Ok(())
    }

    fn moderate_cq(&mut self, _: CqId, moderation: Moderation) -> Result<(), ModifyError> {
        moderation.check(self.offers().moderation)?;
        self.with(|state| state.moderated.push(moderation));
        Ok(())
    }

    fn cq_event(&mut self) -> Option<CqId> {
        None
    }

    fn create_srq(&mut self, _: PdId, _: &SrqInit) -> Result<Srq, CreateError> {
        Ok(Srq { id: SrqId(self.named()), number: None })
    }

    fn arm_srq(&mut self, _: SrqId, _: u32) -> Result<(), ModifyError> {
        Ok(())
    }

    fn destroy_srq(&mut self, _: SrqId) -> Result<(), DestroyError> {
        Ok(())
    }

    fn post_srq_recv(&mut self, _: SrqId, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.with(|state| state.receives.extend(requests.iter().map(|request| (request.id, request.sges[0]))));
        Ok(())
    }

    fn open_xrcd(&mut self, _: XrcdFile) -> Result<XrcdId, CreateError> {
        Err(CreateError::Unsupported { what: "XRC" })
    }

    fn close_xrcd(&mut self, _: XrcdId) -> Result<(), DestroyError> {
        Ok(())
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<Qp, CreateError> {
        let number = self.named();
        let qp = FakeQp {
            kind: init.kind,
            state: QpState::Reset,
            attributes: QpChange::default(),
            receives: VecDeque::new(),
        };
        self.with(|state| state.qps.insert(number, qp));
        Ok(Qp { id: QpId(number), number })
    }

    fn open_qp(&mut self, _: XrcdId, _: u32) -> Result<Qp, CreateError> {
        Err(CreateError::Unsupported { what: "XRC" })
    }

    fn modify_qp(&mut self, qp: QpId, change: &QpChange) -> Result<(), ModifyError> {
        if change.address.is_some_and(|address| !self.takes(&address)) {
            return Err(ModifyError::System { code: libc::EINVAL });
        }
        self.with(|state| {
            let found = state.qps.get_mut(&qp.0).ok_or(ModifyError::Unknown { what: Kind::Qp, name: qp.0 })?;
            check_transition(found.kind, found.state, change)?;
            let old = found.attributes;
            found.attributes = QpChange {
                qkey: change.qkey.or(old.qkey),
                address: change.address.or(old.address),
                recv_psn: change.recv_psn.or(old.recv_psn),
                send_psn: change.send_psn.or(old.send_psn),
                destination: change.destination.or(old.destination),
                ..QpChange::default()
            };
            if change.state == Some(QpState::Error) {
                state.enter_error(qp.0);
            } else {
                found.state = change.state.unwrap_or(found.state);
            }
            Ok(())
        })
    }

    fn query_qp(&self, qp: QpId) -> Result<QpInfo, ModifyError> {
        Err(ModifyError::Unknown { what: Kind::Qp, name: qp.0 })
    }

    fn destroy_qp(&mut self, qp: QpId) -> Result<(), DestroyError> {
        self.with(|state| {
            state.completions.retain(|completion| completion.qp != qp.0);
            state.qps.remove(&qp.0).map(drop).ok_or(DestroyError::Unknown { what: Kind::Qp, name: qp.0 })
        })
    }

    fn post_send(&mut self, qp: QpId, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        let [request] = requests else { panic!("the rail posts one by one") };
        let bytes = match request.payload {
            Payload::Memory(sges) => sges.iter().flat_map(|sge| self.with(|state| state.read(sge))).collect(),
            Payload::Inline(parts) => parts.concat(),
        };
        let (max, is_inline) = (self.limits().inline_bytes, matches!(request.payload, Payload::Inline(_)));
        if is_inline && bytes.len() > max as usize {
            return Err(PostError { index: 0, why: PostReason::Inline { bytes: bytes.len(), max } });
        }
        let mut status = Status::Success;
        let wire = &mut *self.wire.borrow_mut();
        if let Some(Datagram { handle, qp, qkey }) = request.datagram {
            let to = wire.find(self.lid, &wire.devices[&self.lid].handles[&handle.0]).unwrap_or(0);
            wire.flying.push(Flying { from: self.lid, to, qp, qkey, bytes });
        } else if wire.devices[&self.lid].qps[&qp.0].state == QpState::Error {
            status = Status::Flushed;
        } else if !wire.send(self.lid, qp.0, &bytes) {
            status = Status::RetryExceeded;
        }
        let state = wire.devices.get_mut(&self.lid).expect("made with the device");
        if request.signaled || status != Status::Success {
            state.complete(request.id, qp.0, CompletionKind::Send, status, 0);
        }
        if status != Status::Success {
            state.enter_error(qp.0);
        }
        Ok(())
    }

    fn post_recv(&mut self, qp: QpId, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.with(|state| {
            let queue = &mut state.qps.get_mut(&qp.0).expect("the rail has it").receives;
            queue.extend(requests.iter().map(|request| (request.id, request.sges[0])));
        });
        Ok(())
    }

    fn create_ah(&mut self, _: PdId, address: &AddressVector) -> Result<AhId, CreateError> {
        if !self.takes(address) {
            return Err(CreateError::System { code: libc::EINVAL });
        }
        let name = self.named();
        self.with(|state| {
            state.handles.insert(name, *address);
            state.address_vectors.push(*address);
        });
        Ok(AhId(name))
    }

    fn destroy_ah(&mut self, handle: AhId) -> Result<(), DestroyError> {
        self.with(|state| state.handles.remove(&handle.0));
        Ok(())
    }

    fn async_event(&mut self) -> Option<AsyncEvent> {
        self.with(|state| state.events.pop_front())
    }
}
