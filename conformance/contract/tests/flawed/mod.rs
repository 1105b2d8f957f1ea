//! A device that breaks the contract in one way.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use rerail_verbs::contract::*;
use rerail_verbs::{Gid, Moderation, Offers, Port};

/// What is wrong with the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    IllegalStepsAreTaken,
    MissingAttributesAreExcused,
    StateIsWrongInQueries,
    ValuesAreNotChecked,
    PostsInAnyState,
    DrainIsNotReported,
    WrongIndexOfBadRequest,
    ImmediateIsLost,
    BytesAreWrong,
    ReceivesCompleteTwice,
    LastByteIsLost,
    PollReturnsMoreThanRequested,
    UnsignaledCompletes,
    SignalAllIsIgnored,
    InlineHasNoLimit,
    EverythingIsSolicited,
    NoticesRepeat,
    NoNotices,
    ModeratedForEver,
    OnDemandIsLost,
    FlushBackwards,
    FlushOfUnsignaledIsSilent,
    FlushedInsteadOfCause,
    WritesTakeReceives,
    ReadsAreLost,
    AddsAreLost,
    SwapsAlways,
    QueuesAreDeeper,
    MorePieces,
    OverflowIsHidden,
    RangesAreLonger,
    EveryRightIsGiven,
    QueuePairGivesEveryRight,
    OneDomainForAll,
    KeysOutliveMemory,
    AccessErrorIsNotReported,
    RnrForEver,
    RetriesForEver,
    NoRnrRetry,
    LimitIsNotReported,
    LimitIsTooEarly,
    LastRequestIsNotReported,
    SrqIsOneNumberForAll,
    KeyOfDatagramsIsNotChecked,
    HeaderIsNotCounted,
    SourceIsNotReported,
    HandlesOutlive,
    OneLidPerPort,
    LinkIsNotReported,
    FatalIsNotReported,
    EventsOfNothing,
    BusyIsDestroyed,
    DestroyedTwice,
    /// No flaw: memory has its own address alone, as on the devices of libibverbs.
    OwnAddressesOnly,
}

/// The wrapper.
pub struct Flawed<D> {
    inner: D,
    flaw: Flaw,
    /// Completions taken from a queue and held back.
    held: Vec<(CqId, VecDeque<Completion>)>,
    /// Ids of unsignaled sends.
    silent: Vec<u64>,
    last_notice: Option<CqId>,
    first_pd: Option<PdId>,
    first_srq: Option<u32>,
    reported: bool,
    is_moderated: bool,
}

impl<D: Device> Flawed<D> {
    pub fn new(inner: D, flaw: Flaw) -> Self {
        let (held, silent) = (Vec::new(), Vec::new());
        let (last_notice, first_pd, first_srq) = (None, None, None);
        Flawed { inner, flaw, held, silent, last_notice, first_pd, first_srq, reported: false, is_moderated: false }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    fn pd_for(&self, pd: PdId) -> PdId {
        if self.has(Flaw::OneDomainForAll) { self.first_pd.unwrap_or(pd) } else { pd }
    }

    /// What destroying really does.
    fn destroyed(&self, result: Result<(), DestroyError>) -> Result<(), DestroyError> {
        match result {
            Err(DestroyError::Busy { .. }) if self.has(Flaw::BusyIsDestroyed) => Ok(()),
            Err(DestroyError::Unknown { .. }) if self.has(Flaw::DestroyedTwice) => Ok(()),
            result => result,
        }
    }

    /// One completion as the flaw makes it; `None`: it is swallowed.
    fn spoil(&self, mut it: Completion) -> Option<Completion> {
        let receive = it.kind == CompletionKind::Recv;
        match self.flaw {
            Flaw::ImmediateIsLost => it.immediate = None,
            Flaw::BytesAreWrong if receive => it.bytes += 1,
            Flaw::HeaderIsNotCounted if receive && it.source_qp != 0 => it.bytes -= 40,
            Flaw::SourceIsNotReported => it.source_qp = 0,
            Flaw::FlushedInsteadOfCause if it.status != Status::Success => it.status = Status::Flushed,
            Flaw::FlushOfUnsignaledIsSilent if it.status == Status::Flushed && self.silent.contains(&it.id) => {
                return None;
            }
            _ => {}
        }
        Some(it)
    }

    fn send<'a>(&mut self, request: &SendWr<'a>, shorter: &'a mut Vec<Sge>) -> SendWr<'a> {
        let mut request = *request;
        if !request.signaled {
            self.silent.push(request.id);
        }
        match (self.flaw, request.op) {
            (Flaw::UnsignaledCompletes, _) => request.signaled = true,
            (Flaw::EverythingIsSolicited, _) => request.solicited = true,
            (Flaw::WritesTakeReceives, SendOp::Write { to, immediate: None }) => {
                request.op = SendOp::Write { to, immediate: Some(0) };
            }
            (Flaw::ReadsAreLost, SendOp::Read { from }) => {
                request.op = SendOp::Read { from };
                request.payload = Payload::Memory(&[]);
            }
            (Flaw::AddsAreLost, SendOp::FetchAdd { at, .. }) => request.op = SendOp::FetchAdd { at, add: 0 },
            (Flaw::SwapsAlways, SendOp::CompareSwap { at, swap, .. }) => {
                request.op = SendOp::FetchAdd { at, add: swap };
            }
            (Flaw::KeyOfDatagramsIsNotChecked, _) => {
                request.datagram = request.datagram.map(|it| Datagram { qkey: 0x1234, ..it });
            }
            (Flaw::LastByteIsLost, SendOp::Send { .. }) => {
                if let Payload::Memory([first]) = request.payload {
                    shorter.push(first.part(0, first.len().saturating_sub(1)));
                    request.payload = Payload::Memory(shorter);
                }
            }
            _ => {}
        }
        request
    }
}

impl<D: Device> Device for Flawed<D> {
    type Opener = Box<dyn FnMut() -> Result<Self, CreateError>>;

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn limits(&self) -> Limits {
        let limits = self.inner.limits();
        Limits { iova: limits.iova && !self.has(Flaw::OwnAddressesOnly), ..limits }
    }

    fn offers(&self) -> Offers {
        self.inner.offers()
    }

    fn port(&self, port: u8) -> Result<Port, CreateError> {
        self.inner.port(port)
    }

    fn gid(&self, port: u8, index: u8) -> Result<Gid, CreateError> {
        self.inner.gid(port, index)
    }

    fn alloc_pd(&mut self) -> Result<PdId, CreateError> {
        let pd = self.inner.alloc_pd()?;
        self.first_pd.get_or_insert(pd);
        Ok(pd)
    }

    fn dealloc_pd(&mut self, pd: PdId) -> Result<(), DestroyError> {
        let result = self.inner.dealloc_pd(pd);
        self.destroyed(result)
    }

    unsafe fn register(
        &mut self,
        pd: PdId,
        start: *mut u8,
        bytes: u64,
        iova: u64,
        access: Access,
    ) -> Result<Mr, RegisterError> {
        if !self.limits().iova && iova != start.addr() as u64 {
            return Err(RegisterError::NoIova);
        }
        let more = if self.has(Flaw::RangesAreLonger) { 64 } else { 0 };
        let access = match self.flaw {
            Flaw::EveryRightIsGiven => Access::ALL,
            Flaw::OnDemandIsLost if access.on_demand => Access { remote_write: false, ..access },
            _ => access,
        };
        // SAFETY: the caller's promise; the suite's buffers have more than 64 bytes of slack (`SLACK_BYTES`).
        unsafe { self.inner.register(self.pd_for(pd), start, bytes + more, iova, access) }
    }

    fn deregister(&mut self, mr: MrId) -> Result<(), DestroyError> {
        if self.has(Flaw::KeysOutliveMemory) && !std::mem::replace(&mut self.reported, true) {
            // The suite frees the memory when the case is over, and no ideal device runs after that.
            return Ok(());
        }
        let result = self.inner.deregister(mr);
        self.destroyed(result)
    }

    fn create_cq(&mut self, init: &CqInit) -> Result<CqId, CreateError> {
        let depth = if self.has(Flaw::OverflowIsHidden) { init.depth.max(1024) } else { init.depth };
        self.inner.create_cq(&CqInit { depth })
    }

    fn destroy_cq(&mut self, cq: CqId) -> Result<(), DestroyError> {
        let result = self.inner.destroy_cq(cq);
        self.destroyed(result)
    }

    fn poll_cq(&mut self, cq: CqId, most: usize, out: &mut Vec<Completion>) -> Result<usize, PollError> {
        let mut taken = Vec::new();
        self.inner.poll_cq(cq, usize::MAX, &mut taken)?;
        if self.has(Flaw::FlushBackwards) && taken.iter().all(|it| it.status == Status::Flushed) {
            taken.reverse();
        }
        let spoilt: Vec<Completion> = taken.into_iter().filter_map(|it| self.spoil(it)).collect();
        if !self.held.iter().any(|(held, _)| *held == cq) {
            self.held.push((cq, VecDeque::new()));
        }
        let flaw = self.flaw;
        let Some((_, held)) = self.held.iter_mut().find(|(held, _)| *held == cq) else { return Ok(0) };
        for it in spoilt {
            held.push_back(it);
            if flaw == Flaw::ReceivesCompleteTwice && it.kind == CompletionKind::Recv {
                held.push_back(it);
            }
        }
        let most = if flaw == Flaw::PollReturnsMoreThanRequested { usize::MAX } else { most };
        let count = most.min(held.len());
        out.extend(held.drain(..count));
        Ok(count)
    }

    fn request_notify(&mut self, cq: CqId, solicited: bool) -> Result<(), PollError> {
        self.inner.request_notify(cq, solicited)
    }

    fn moderate_cq(&mut self, cq: CqId, moderation: Moderation) -> Result<(), ModifyError> {
        self.is_moderated |= moderation != Moderation::NONE;
        match self.inner.moderate_cq(cq, moderation) {
            Err(ModifyError::OutOfRange { .. }) if self.has(Flaw::ValuesAreNotChecked) => Ok(()),
            result => result,
        }
    }

    fn cq_event(&mut self) -> Option<CqId> {
        let event = self.inner.cq_event();
        match self.flaw {
            Flaw::NoNotices => None,
            Flaw::ModeratedForEver if self.is_moderated => None,
            Flaw::NoticesRepeat => {
                let again = self.last_notice.take();
                self.last_notice = event;
                event.or(again)
            }
            _ => event,
        }
    }

    fn create_srq(&mut self, pd: PdId, init: &SrqInit) -> Result<Srq, CreateError> {
        let mut init = *init;
        if self.has(Flaw::QueuesAreDeeper) {
            init.depth = if init.depth == 0 { 0 } else { init.depth + 1 };
        }
        let mut srq = self.inner.create_srq(self.pd_for(pd), &init)?;
        if self.has(Flaw::SrqIsOneNumberForAll) {
            self.first_srq = self.first_srq.or(srq.number);
            srq.number = srq.number.and(self.first_srq);
        }
        Ok(srq)
    }

    fn arm_srq(&mut self, srq: SrqId, limit: u32) -> Result<(), ModifyError> {
        let more = u32::from(self.has(Flaw::LimitIsTooEarly) && limit > 0);
        self.inner.arm_srq(srq, limit + more)
    }

    fn destroy_srq(&mut self, srq: SrqId) -> Result<(), DestroyError> {
        let result = self.inner.destroy_srq(srq);
        self.destroyed(result)
    }

    fn post_srq_recv(&mut self, srq: SrqId, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.inner.post_srq_recv(srq, requests)
    }

    fn open_xrcd(&mut self, file: XrcdFile) -> Result<XrcdId, CreateError> {
        self.inner.open_xrcd(file)
    }

    fn close_xrcd(&mut self, domain: XrcdId) -> Result<(), DestroyError> {
        let result = self.inner.close_xrcd(domain);
        self.destroyed(result)
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<Qp, CreateError> {
        let mut init = QpInit { pd: init.pd.map(|pd| self.pd_for(pd)), ..*init };
        match self.flaw {
            Flaw::SignalAllIsIgnored => init.signal_all = false,
            Flaw::InlineHasNoLimit => init.caps.inline_bytes += 8,
            Flaw::QueuesAreDeeper => init.caps.send_depth += 1,
            Flaw::MorePieces => init.caps.send_sges += 1,
            _ => {}
        }
        self.inner.create_qp(&init)
    }

    fn open_qp(&mut self, domain: XrcdId, number: u32) -> Result<Qp, CreateError> {
        self.inner.open_qp(domain, number)
    }

    fn modify_qp(&mut self, qp: QpId, change: &QpChange) -> Result<(), ModifyError> {
        let mut change = *change;
        match self.flaw {
            Flaw::RnrForEver => change.rnr_retry = change.rnr_retry.map(|_| 7),
            Flaw::NoRnrRetry => change.rnr_retry = change.rnr_retry.map(|_| 0),
            Flaw::RetriesForEver => change.timeout = change.timeout.map(|_| 0),
            Flaw::QueuePairGivesEveryRight => change.access = change.access.map(|_| Access::ALL),
            _ => {}
        }
        match self.inner.modify_qp(qp, &change) {
            Err(ModifyError::Transition(TransitionError::Step { .. })) if self.has(Flaw::IllegalStepsAreTaken) => {
                Ok(())
            }
            Err(ModifyError::Transition(TransitionError::Missing { .. }))
                if self.has(Flaw::MissingAttributesAreExcused) =>
            {
                Ok(())
            }
            Err(ModifyError::OutOfRange { .. }) if self.has(Flaw::ValuesAreNotChecked) => Ok(()),
            result => result,
        }
    }

    fn query_qp(&self, qp: QpId) -> Result<QpInfo, ModifyError> {
        let mut info = self.inner.query_qp(qp)?;
        match self.flaw {
            Flaw::StateIsWrongInQueries => info.state = QpState::Rts,
            Flaw::QueuesAreDeeper => info.caps.send_depth -= 1,
            Flaw::MorePieces => info.caps.send_sges -= 1,
            Flaw::InlineHasNoLimit => info.caps.inline_bytes -= 8,
            _ => {}
        }
        Ok(info)
    }

    fn destroy_qp(&mut self, qp: QpId) -> Result<(), DestroyError> {
        let result = self.inner.destroy_qp(qp);
        self.destroyed(result)
    }

    fn post_send(&mut self, qp: QpId, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        for (index, request) in requests.iter().enumerate() {
            let mut shorter = Vec::new();
            let request = self.send(request, &mut shorter);
            match self.inner.post_send(qp, &[request]) {
                Err(PostError { why: PostReason::State { .. }, .. }) if self.has(Flaw::PostsInAnyState) => {}
                Err(error) => {
                    let index = if self.has(Flaw::WrongIndexOfBadRequest) { 0 } else { index };
                    return Err(PostError { index, ..error });
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn post_recv(&mut self, qp: QpId, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        match self.inner.post_recv(qp, requests) {
            Err(PostError { why: PostReason::State { .. }, .. }) if self.has(Flaw::PostsInAnyState) => Ok(()),
            result => result,
        }
    }

    fn create_ah(&mut self, pd: PdId, address: &AddressVector) -> Result<AhId, CreateError> {
        let source_path_bits = if self.has(Flaw::OneLidPerPort) { 0 } else { address.source_path_bits };
        self.inner.create_ah(self.pd_for(pd), &AddressVector { source_path_bits, ..*address })
    }

    fn destroy_ah(&mut self, handle: AhId) -> Result<(), DestroyError> {
        if self.has(Flaw::HandlesOutlive) { Ok(()) } else { self.inner.destroy_ah(handle) }
    }

    fn async_event(&mut self) -> Option<AsyncEvent> {
        let hidden = |event: &AsyncEvent| match self.flaw {
            Flaw::DrainIsNotReported => matches!(event, AsyncEvent::SqDrained(_)),
            Flaw::AccessErrorIsNotReported => matches!(event, AsyncEvent::QpAccessError(_)),
            Flaw::LimitIsNotReported => matches!(event, AsyncEvent::SrqLimit(_)),
            Flaw::LastRequestIsNotReported => matches!(event, AsyncEvent::QpLastWqe(_)),
            Flaw::LinkIsNotReported => matches!(event, AsyncEvent::PortError(_) | AsyncEvent::PortActive(_)),
            Flaw::FatalIsNotReported => matches!(event, AsyncEvent::DeviceFatal),
            _ => false,
        };
        if self.flaw == Flaw::EventsOfNothing && !std::mem::replace(&mut self.reported, true) {
            return Some(AsyncEvent::DeviceFatal);
        }
        self.inner.async_event().filter(|event| !hidden(event))
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }
}
