//! Requests that must be refused, that may be refused, and receives that are taken back under way.

use rerail_core::endpoint::{AtomicRequest, GetRequest, Notify, PutRequest, Remote};
use rerail_core::wire::{AtomicKind, AtomicType, Refusal};

use super::super::plan::{Forbidden, Manner, SCRATCH_BYTES, Step};
use super::memory::{TEMPORARY_BYTES, Zone};
use super::{Player, Refused, Sort, WindowSort};
use crate::check::{Content, Operation, Submission};
use crate::cluster::Cx;
use crate::cover::Path;

/// What kind of access.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Put,
    Get,
    Atomic,
}

impl Player {
    /// Submits an access that must be refused. False: not now.
    pub(super) fn forbidden(
        &mut self,
        cx: &mut Cx<'_>,
        target: u32,
        what: Forbidden,
        fresh: u64,
        (place, notify): (Option<(u32, u32, bool)>, Notify),
    ) -> bool {
        let (end, scratch) = {
            let shared = self.shared.borrow();
            (shared.plan.window_bytes(), shared.plan.scratch_at())
        };
        let (absent, read, write) = (WindowSort::Absent, WindowSort::ReadOnly, WindowSort::WriteOnly);
        let (sort, window, offset, len, why) = match what {
            Forbidden::PutWithoutWindow => (Verb::Put, absent, 0, 32, Refusal::NoWindow),
            Forbidden::GetWithoutWindow => (Verb::Get, absent, 0, 32, Refusal::NoWindow),
            Forbidden::AtomicWithoutWindow => (Verb::Atomic, absent, 0, 8, Refusal::NoWindow),
            Forbidden::PutBeyond => (Verb::Put, WindowSort::All, end + 8, 32, Refusal::OutOfRange),
            Forbidden::GetBeyond => (Verb::Get, WindowSort::All, end - 8, 32, Refusal::OutOfRange),
            Forbidden::AtomicBeyond => (Verb::Atomic, WindowSort::All, end, 8, Refusal::OutOfRange),
            Forbidden::PutTooLong => (Verb::Put, WindowSort::All, scratch, SCRATCH_BYTES + 1, Refusal::OutOfRange),
            Forbidden::PutReadOnly => (Verb::Put, read, 0, 1, Refusal::NoAccess),
            Forbidden::AtomicReadOnly => (Verb::Atomic, read, 0, 8, Refusal::NoAccess),
            Forbidden::GetWriteOnly => (Verb::Get, write, 0, 32, Refusal::NoAccess),
        };
        let to = Self::remote_in(window, target, offset);
        let done = self.access(cx, (sort, to, len), fresh, notify, Sort::Step(place), Some(why));
        self.over_or_later(done, Step::Forbidden { target, what })
    }

    /// Accesses the temporary window of a peer. False: not now.
    pub(super) fn temporary(&mut self, cx: &mut Cx<'_>, target: u32, fresh: u64, notify: Notify) -> bool {
        let sort = *cx.rng.pick(&[Verb::Put, Verb::Put, Verb::Get, Verb::Atomic]).unwrap_or(&Verb::Put);
        let len = if sort == Verb::Atomic { 8 } else { TEMPORARY_BYTES };
        let to = Self::remote_in(WindowSort::Temporary, target, 0);
        let done = self.access(cx, (sort, to, len), fresh, notify, Sort::Temporary(target), None);
        self.over_or_later(done, Step::Temporary { target })
    }

    fn over_or_later(&mut self, outcome: Result<u32, Refused>, step: Step) -> bool {
        if matches!(outcome, Err(Refused::Full)) {
            return false;
        }
        self.step_done(step);
        true
    }

    /// The step at the front is submitted, or will never be.
    pub(super) fn step_done(&mut self, step: Step) {
        self.steps.pop_front();
        if let Some(target) = step.target() {
            self.shared.borrow_mut().step_over(self.rank, target);
        }
    }

    fn access(
        &mut self,
        cx: &mut Cx<'_>,
        (kind, to, len): (Verb, Remote, u64),
        fresh: u64,
        notify: Notify,
        sort: Sort,
        bad: Option<Refusal>,
    ) -> Result<u32, Refused> {
        let (target, content) = (to.peer.0, Content(fresh));
        let receiving = kind == Verb::Get;
        let bytes = if kind == Verb::Atomic { 0 } else { len };
        let extents = match bytes {
            0 => Vec::new(),
            _ => self
                .pieces(cx, if receiving { Zone::Receive } else { Zone::Send }, bytes, false)
                .ok_or(Refused::Full)?,
        };
        match receiving {
            true => self.blank(cx, &extents),
            false => self.fill(cx, &extents, content),
        }
        let (segs, cookie) = (self.segs(receiving, &extents), self.cookie());
        let (data_type, operand) = (AtomicType::U64, fresh);
        let operation = Operation { kind: AtomicKind::Add, data_type, operand, compare: 0 };
        let (outcome, submission) = match kind {
            Verb::Put => {
                let immediate = (bad.is_some() && self.values.is_multiple_of(2)).then_some(fresh);
                let put = PutRequest { immediate, notify, cookie, ..PutRequest::new(to, &segs) };
                let immediate = immediate.is_some();
                (cx.engine.put(&put), Submission::Put { target, slot: 0, content, immediate, bad })
            }
            Verb::Get => (
                cx.engine.get(&GetRequest { notify, cookie, ..GetRequest::new(to, &segs) }),
                Submission::Get { target, slot: 0, offset: 0, bad },
            ),
            Verb::Atomic => {
                let atomic =
                    AtomicRequest { notify, cookie, ..AtomicRequest::new(to, AtomicKind::Add, data_type, operand) };
                (cx.engine.atomic(&atomic), Submission::Atomic { target, cell: 0, operation, bad })
            }
        };
        let submission = if bad.is_none() { Submission::Temporary { target } } else { submission };
        self.entered(cx, outcome, submission, (extents, receiving), None, (sort, notify, None))
    }

    /// Takes back one of the receives that are posted, to post it again when that is over.
    pub(super) fn retract(&mut self, cx: &mut Cx<'_>) {
        let may = |request: &u32| {
            let open = &self.open[request];
            let manner = open.class.map(|class| self.shared.borrow().plan.classes[class].manner);
            open.sort == Sort::Receive
                && matches!(manner, Some(Manner::Posted | Manner::AtStart))
                && !self.retracted.contains(request)
        };
        let posted: Vec<u32> = self.open.keys().copied().filter(may).collect();
        let Some(&request) = cx.rng.pick(&posted) else { return };
        if self.take_back(cx, request) {
            self.retracted.insert(request);
            if self.held.is_some() || self.claims_left > 0 {
                cx.trace.took(Path::ClaimBesideCancel);
            }
        } else {
            cx.trace.took(Path::CancelLate);
        }
    }
}
