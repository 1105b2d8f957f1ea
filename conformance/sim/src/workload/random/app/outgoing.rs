//! Sends, and one-sided requests.

use rerail_core::endpoint::{
    AtomicRequest, FlushRequest, GetRequest, Level, Notify, PutRequest, RecvRequest, Remote, Selector, SendRequest,
    TagMatch,
};
use rerail_core::ids::PeerId;
use rerail_core::wire::{AtomicKind, AtomicType};

use super::super::plan::{ALONE, CHAIN, SUM, Step};
use super::memory::Zone;
use super::{Open, Player, Refused, ReportNeed, Sort, WindowSort};
use crate::check::{Claim, Content, Operation, Submission};
use crate::cluster::Cx;
use crate::rng::Rng;

impl Player {
    /// Submits the next send. False: not now.
    pub(super) fn send_next(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(&index) = self.sends.front() else { return true };
        let message = self.shared.borrow().plan.messages[index];
        let name = self.shared.borrow().ledger.next_name(self.rank, message.destination);
        let content = Content::from(name);
        let submission = Submission::Send {
            name,
            len: message.len,
            tag: message.tag,
            immediate: message.immediate,
            level: message.level,
        };
        let notify = match message {
            _ if message.plain => Notify::Event,
            _ if message.inject => self.notify(cx, ReportNeed::Silent),
            _ => self.notify(cx, ReportNeed::Counter),
        };
        let reported = (Sort::Send, notify, Self::counted(cx, notify));
        let mut send = SendRequest {
            notify,
            tag: message.tag,
            immediate: message.immediate.then_some(name.to_bits()),
            level: message.level,
            cookie: self.cookie(),
            more: index % 4 == 1,
            ..SendRequest::new(PeerId(message.destination), &[])
        };
        let outcome = if message.inject {
            let mut payload = vec![0; message.len as usize];
            content.fill(0, &mut payload);
            let outcome = cx.engine.inject(&send, &payload);
            self.entered(cx, outcome, submission, (Vec::new(), false), None, reported)
        } else {
            let Some(extents) = self.pieces(cx, Zone::Send, message.len, message.plain) else { return false };
            self.fill(cx, &extents, content);
            let segs = self.segs(false, &extents);
            send.segments = &segs;
            let outcome = cx.engine.send(&send);
            self.entered(cx, outcome, submission, (extents, false), None, reported)
        };
        match outcome {
            Ok(_) => {
                self.shared.borrow_mut().index.insert(name.to_bits(), index);
            }
            Err(Refused::Full) => return false,
            Err(Refused::Gone) => {
                self.shared.borrow_mut().gone_windows.insert(index);
            }
        }
        self.sends.pop_front();
        true
    }

    pub(super) fn remote(&self, target: u32, offset: u64) -> Remote {
        Self::remote_in(WindowSort::All, target, offset)
    }

    pub(super) fn remote_in(sort: WindowSort, target: u32, offset: u64) -> Remote {
        Remote { peer: PeerId(target), window: sort.key(target), offset }
    }

    /// Submits the next other request. False: not now.
    pub(super) fn step_next(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(&step) = self.steps.front() else { return true };
        // Of one place's requests, only one is under way: puts are not ordered among each other.
        let place = match step {
            Step::Put { target, slot } | Step::Get { target, slot } => Some((target, slot, false)),
            Step::Atomic { target, cell } if cell >= ALONE => Some((target, cell, true)),
            // A target has slots for as many refusals of puts as for requests of a peer, which may be one
            // (ARCHITECTURE.md, Known limits).
            Step::Forbidden { target, .. } | Step::Temporary { target } => Some((target, u32::MAX, false)),
            _ => None,
        };
        let clashes = |open: &Open| match (step, open.sort) {
            (Step::Forbidden { target, .. } | Step::Temporary { target }, Sort::Temporary(at)) => target == at,
            (_, sort) => place.is_some() && sort == Sort::Step(place),
        };
        if self.open.values().any(clashes) {
            return false;
        }
        self.values += 1;
        let fresh = u64::from(self.rank) << 40 | self.values << 8 | 7;
        let may = match step {
            // A flush behind it reports it.
            Step::Put { .. } => ReportNeed::Silent,
            Step::Get { .. } | Step::Flush { .. } => ReportNeed::Counter,
            _ => ReportNeed::Event,
        };
        let notify = self.notify(cx, may);
        let reported = (Sort::Step(place), notify, Self::counted(cx, notify));
        // Not drawn: older plans stay what they are.
        let fence = self.values.is_multiple_of(5);
        let outcome = match step {
            Step::Put { target, slot } => {
                let (bytes, at) = self.slot(slot);
                let content = Content(fresh);
                let config = cx.engine.config();
                let may_inject = config.retained_max > 0 && bytes <= u64::from(config.eager_bytes_max);
                let inject = may_inject && self.values % 4 == 2 && self.shared.borrow().copied_puts;
                let (mut payload, mut extents) = (vec![0; bytes as usize], Vec::new());
                if inject {
                    content.fill(0, &mut payload);
                } else {
                    let Some(taken) = self.pieces(cx, Zone::Send, bytes, false) else { return false };
                    self.fill(cx, &taken, content);
                    extents = taken;
                }
                let segs = self.segs(false, &extents);
                let immediate = self.values.is_multiple_of(3).then_some(fresh);
                let to = self.remote(target, at);
                let put = PutRequest { immediate, fence, notify, cookie: self.cookie(), ..PutRequest::new(to, &segs) };
                let outcome = if inject { cx.engine.inject_put(&put, &payload) } else { cx.engine.put(&put) };
                let immediate = immediate.is_some();
                let submission = Submission::Put { target, slot, content, immediate, bad: None };
                let outcome = self.entered(cx, outcome, submission, (extents, false), None, reported);
                if inject {
                    self.shared.borrow_mut().ledger.copied(fresh, bytes);
                }
                outcome
            }
            Step::Get { target, slot } => {
                let (bytes, at) = self.slot(slot);
                let offset = cx.rng.below(bytes);
                let len = cx.rng.below(bytes - offset + 1);
                // Into receive memory, where late writes are looked for.
                let Some(extents) = self.pieces(cx, Zone::Receive, len, false) else { return false };
                self.blank(cx, &extents);
                let segs = self.segs(true, &extents);
                let from = self.remote(target, at + offset);
                let get = GetRequest { fence, notify, cookie: self.cookie(), ..GetRequest::new(from, &segs) };
                let outcome = cx.engine.get(&get);
                let submission = Submission::Get { target, slot, offset, bad: None };
                self.entered(cx, outcome, submission, (extents, true), None, reported)
            }
            Step::Atomic { target, cell } => {
                let operation = self.operation(cell, fresh, cx.rng);
                let atomic = AtomicRequest {
                    at: self.remote(target, u64::from(cell) * 8),
                    kind: operation.kind,
                    data_type: operation.data_type,
                    operand: operation.operand,
                    compare: operation.compare,
                    fence,
                    notify,
                    cookie: self.cookie(),
                };
                let outcome = cx.engine.atomic(&atomic);
                let submission = Submission::Atomic { target, cell, operation, bad: None };
                self.entered(cx, outcome, submission, (Vec::new(), false), None, reported)
            }
            Step::Flush { target } => {
                let flush = FlushRequest { peer: PeerId(target), notify, cookie: self.cookie() };
                let outcome = cx.engine.flush(&flush);
                self.entered(
                    cx,
                    outcome,
                    Submission::Flush { target },
                    (Vec::new(), false),
                    None,
                    (Sort::Flush(target), reported.1, reported.2),
                )
            }
            Step::Forbidden { target, what } => return self.forbidden(cx, target, what, fresh, (place, notify)),
            Step::Temporary { target } => return self.temporary(cx, target, fresh, notify),
            Step::Withdraw => {
                let done = self.withdraw(cx);
                if done {
                    self.steps.pop_front();
                }
                return done;
            }
            Step::Retract => {
                self.retract(cx);
                self.steps.pop_front();
                return true;
            }
            Step::Vain => self.in_vain(cx, notify),
        };
        if let (Ok(request), true, Step::Put { .. } | Step::Get { .. } | Step::Atomic { .. }) = (&outcome, fence, step)
        {
            self.shared.borrow_mut().ledger.fence(self.rank, *request);
        }
        match outcome {
            Ok(_) | Err(Refused::Gone) => {
                self.step_done(step);
                match (outcome, step) {
                    (Ok(_), Step::Put { target, .. }) if notify == Notify::Silent => {
                        self.steps.push_front(Step::Flush { target });
                        *self.shared.borrow_mut().towards.entry((self.rank, target)).or_default() += 1;
                    }
                    (Err(_), Step::Flush { target }) => self.flushed(cx, target, u32::MAX, false),
                    _ => {}
                }
                true
            }
            Err(Refused::Full) => false,
        }
    }

    /// A receive for a tag that no rank sends, taken back at once.
    pub(super) fn in_vain(&mut self, cx: &mut Cx<'_>, notify: Notify) -> Result<u32, Refused> {
        let selector = Selector { source: None, tag: TagMatch::Tagged { tag: u64::MAX - self.values, ignore: 0 } };
        let Some(extents) = self.pieces(cx, Zone::Receive, 16, true) else { return Err(Refused::Full) };
        self.blank(cx, &extents);
        let segs = self.segs(true, &extents);
        let recv = RecvRequest { notify, cookie: self.cookie(), ..RecvRequest::new(selector, &segs) };
        let outcome = cx.engine.recv(&recv);
        let submission = Submission::Receive { from: selector, claimed: None };
        let request = self.entered(cx, outcome, submission, (extents, true), None, (Sort::Vain, notify, None))?;
        self.take_back(cx, request);
        Ok(request)
    }

    /// False: too late.
    pub(super) fn take_back(&mut self, cx: &mut Cx<'_>, request: u32) -> bool {
        let Some(open) = self.open.get(&request) else { return false };
        let done = cx.engine.cancel(open.operation).is_ok();
        if done {
            self.shared.borrow_mut().ledger.cancelled(self.rank, cx.now, request);
        }
        done
    }

    pub(super) fn slot(&self, slot: u32) -> (u64, u64) {
        let shared = self.shared.borrow();
        (shared.plan.slots[slot as usize], shared.plan.slot_at(slot))
    }

    pub(super) fn operation(&self, cell: u32, fresh: u64, rng: &mut Rng) -> Operation {
        let u64s = |kind, operand, compare| Operation { kind, data_type: AtomicType::U64, operand, compare };
        match cell {
            // So large that no two sets of them have the same sum.
            SUM => u64s(AtomicKind::Add, rng.within(1, 1 << 40), 0),
            // Swaps of values that are never used twice; a comparison with one that may be there.
            CHAIN if rng.one_in(2) => u64s(AtomicKind::Swap, fresh, 0),
            CHAIN => u64s(AtomicKind::CompareSwap, fresh, 0),
            _ => {
                let kinds = [
                    AtomicKind::Add,
                    AtomicKind::Min,
                    AtomicKind::Max,
                    AtomicKind::And,
                    AtomicKind::Or,
                    AtomicKind::Xor,
                    AtomicKind::MaskedSwap,
                    AtomicKind::CompareSwapNe,
                    AtomicKind::CompareSwapLe,
                    AtomicKind::CompareSwapLt,
                    AtomicKind::CompareSwapGe,
                    AtomicKind::CompareSwapGt,
                ];
                let (kind, operand) = (*rng.pick(&kinds).unwrap_or(&AtomicKind::Add), rng.draw());
                u64s(kind, operand, operand.rotate_left(32))
            }
        }
    }
}

/// A request, for the trace.
pub(super) fn describe(submission: &Submission) -> String {
    match submission {
        Submission::Send { name, len, level, .. } => {
            let level = match level {
                Level::Reusable => "reusable",
                Level::Acknowledged => "acknowledged",
                Level::Placed => "placed",
            };
            format!("send msg {:x} to rank {}, {len} bytes, {level}", name.to_bits(), name.destination())
        }
        Submission::Receive { from, claimed: None } => format!("receive from {:?}", from),
        Submission::Receive { claimed: Some(Claim { name: Some(name), .. }), .. } => {
            format!("receive of claimed msg {:x}", name.to_bits())
        }
        submission => match submission.peer() {
            Some(peer) => format!("{} at rank {peer}", submission.word()),
            None => submission.word().to_owned(),
        },
    }
}
