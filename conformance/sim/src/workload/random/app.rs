//! One rank of a random world: submits its part of the plan, as far as tables and memory let it, and enters everything
//! into the ledger.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use rerail_core::endpoint::{
    Access, Atomic, Completion, Event, Flush, Get, Level, Notify, OpError, Put, Recv, Remote, Selector, Send, TagMatch,
    Window,
};
use rerail_core::ids::{Cookie, OpId, PeerId};
use rerail_core::mem::{MemRef, RegionId, Seg};
use rerail_core::time::{Nanos, Time};
use rerail_core::wire::{AtomicKind, AtomicType, Refusal};
use rerail_linux::driver::RequestError;

use super::plan::{ALONE, CHAIN, Manner, Plan, SUM, Step};
use crate::check::{Arena, Ask, BLANK, Content, Corruption, Damage, Extent, Ledger, Operation, Rule, Scar, Verdict};
use crate::rng::Rng;
use crate::world::{App, Cx, Phase};

/// Sends that a rank has open, at most; and one-sided requests.
const SENDS_MAX: usize = 6;
const STEPS_MAX: usize = 3;

/// Tables that are full are tried again after so long.
const AGAIN: Nanos = Nanos::from_micros(20);

/// How often a rank whose peers are lost looks for what can't come any more.
const LOOK_AGAIN: Nanos = Nanos::from_micros(500);

/// What all ranks of a world share: the programme, the ledger, and where memory lies.
pub struct Shared {
    pub plan: Plan,
    pub ledger: Ledger,
    /// Messages that will not be sent, because their receiver was given up before.
    pub void: BTreeSet<usize>,
    /// Messages received, by index in the plan.
    pub received: BTreeSet<usize>,
    /// By name: index in the plan.
    pub index: BTreeMap<u64, usize>,
    pub ranks: Vec<Option<Memory>>,
}

/// A rank's memory.
pub struct Memory {
    pub window: RegionId,
    pub receive: (RegionId, Arena),
    pub send: (RegionId, Arena),
}

/// An open request.
struct Open {
    operation: OpId,
    /// Its buffers, and whether they are receive buffers.
    extents: Vec<Extent>,
    receiving: bool,
    class: Option<usize>,
    sort: Sort,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Send,
    Receive,
    /// A one-sided request on a place that only one request may use at a time.
    Step(Option<(u32, u32, bool)>),
    Vain,
}

/// Why something was not submitted.
enum Refused {
    /// Later.
    Full,
    /// Never: the peer is gone.
    Gone,
}

/// A rank.
pub struct Player {
    rank: u32,
    shared: Rc<RefCell<Shared>>,
    sends: VecDeque<usize>,
    steps: VecDeque<Step>,
    /// Classes by turn, with the receives still to be posted.
    receives: VecDeque<(u32, usize, usize)>,
    turn: u32,
    claims: Vec<usize>,
    claims_left: usize,
    open: BTreeMap<u32, Open>,
    values: u64,
    pinged: BTreeSet<u32>,
    failed: bool,
}

impl Player {
    pub fn new(rank: u32, shared: Rc<RefCell<Shared>>) -> Self {
        let (sends, steps, receives, claims, claims_left) = {
            let shared = shared.borrow();
            let plan = &shared.plan;
            let own = || plan.classes.iter().enumerate().filter(|(_, class)| class.destination == rank);
            let mut receives: Vec<(u32, usize, usize)> = own()
                .filter(|(_, class)| class.manner != Manner::Claimed)
                .map(|(index, class)| match class.manner {
                    Manner::Multi => (0, index, 1),
                    Manner::AtStart => (0, index, class.members.len()),
                    _ => (class.turn, index, class.members.len()),
                })
                .collect();
            // What is posted at the start comes first.
            receives.sort_by_key(|(turn, index, _)| (*turn, plan.classes[*index].manner == Manner::Posted, *index));
            let claims: Vec<usize> =
                own().filter(|(_, class)| class.manner == Manner::Claimed).map(|(index, _)| index).collect();
            let left = claims.iter().map(|index| plan.classes[*index].members.len()).sum();
            (plan.sends[rank as usize].clone(), plan.steps[rank as usize].clone(), receives, claims, left)
        };
        Player {
            rank,
            shared,
            sends: sends.into(),
            steps: steps.into(),
            receives: receives.into(),
            turn: 0,
            claims,
            claims_left,
            open: BTreeMap::new(),
            values: 0,
            pinged: BTreeSet::new(),
            failed: false,
        }
    }

    fn window_key(rank: u32) -> u64 {
        0x5757_0000_0000 | u64::from(rank)
    }

    /// Memory, windows, and what the windows hold at first.
    fn lay_out(&mut self, cx: &mut Cx<'_>) {
        let shared = &mut *self.shared.borrow_mut();
        let plan = &shared.plan;
        let bytes = [plan.window_bytes(), plan.receive_bytes(self.rank), send_bytes(plan)];
        let regions: Vec<RegionId> = bytes.iter().filter_map(|bytes| cx.engine.alloc(*bytes as usize).ok()).collect();
        let [window, receive, send] = regions[..] else {
            panic!("the machine has no {bytes:?} bytes for a rank");
        };
        for slot in 0..plan.slots.len() as u32 {
            let content = first_content(self.rank, slot);
            let at = plan.slot_at(slot) as usize;
            let memory = cx.engine.bytes_mut(window).expect("just made");
            content.fill(0, &mut memory[at..at + plan.slots[slot as usize] as usize]);
        }
        let access = Access { read: true, write: true, atomic: true };
        let at = MemRef { region: window, offset: 0 };
        let window_of = Window { at, len: plan.window_bytes(), access, key: Player::window_key(self.rank) };
        cx.engine.expose(&window_of).expect("a table for windows");
        let receive = (receive, Arena::new(cx.engine.bytes_mut(receive).expect("just made")));
        let send = (send, Arena::new(cx.engine.bytes_mut(send).expect("just made")));
        shared.ranks[self.rank as usize] = Some(Memory { window, receive, send });
    }

    /// Submits what can be submitted now.
    fn pump(&mut self, cx: &mut Cx<'_>) {
        if self.failed {
            return;
        }
        let mut full = self.post_receives(cx);
        full |= self.claim(cx);
        loop {
            let count = |player: &Player, sends: bool| {
                player.open.values().filter(|open| (open.sort == Sort::Send) == sends && !open.receiving).count()
            };
            let (may_send, may_step) = (
                !self.sends.is_empty() && count(self, true) < SENDS_MAX,
                !self.steps.is_empty() && count(self, false) < STEPS_MAX,
            );
            let send = match (may_send, may_step) {
                (false, false) => break,
                (true, true) => cx.rng.one_in(2),
                (send, _) => send,
            };
            let done = if send { self.send_next(cx) } else { self.step_next(cx) };
            if !done {
                full = true;
                break;
            }
        }
        if full || self.claims_left > 0 {
            cx.wake_at(cx.now + AGAIN);
        }
        if cx.phase != Phase::Safety && !self.is_done() {
            cx.wake_at(cx.now + LOOK_AGAIN);
        }
    }

    /// A buffer; `None`: no room now.
    fn take(&mut self, cx: &mut Cx<'_>, receiving: bool, len: u64, owner: u32) -> Option<Extent> {
        let skew = cx.rng.below(8);
        let shared = &mut *self.shared.borrow_mut();
        let memory = shared.ranks[self.rank as usize].as_mut()?;
        let (region, arena) = if receiving { &mut memory.receive } else { &mut memory.send };
        match arena.take(cx.engine.bytes(*region)?, len, skew, owner) {
            Ok(extent) => extent,
            Err(scar) => {
                ghost(&mut shared.ledger, self.rank, cx.now, scar);
                self.failed = true;
                None
            }
        }
    }

    fn give_back(&mut self, cx: &mut Cx<'_>, receiving: bool, extents: &[Extent]) {
        let shared = &mut *self.shared.borrow_mut();
        let Some(memory) = shared.ranks[self.rank as usize].as_mut() else { return };
        let (region, arena) = if receiving { &mut memory.receive } else { &mut memory.send };
        for extent in extents {
            let Some(bytes) = cx.engine.bytes_mut(*region) else { return };
            if let Err(scar) = arena.give_back(bytes, *extent, cx.now) {
                ghost(&mut shared.ledger, self.rank, cx.now, scar);
                self.failed = true;
            }
        }
    }

    fn region(&self, receiving: bool) -> RegionId {
        let shared = self.shared.borrow();
        let memory = shared.ranks[self.rank as usize].as_ref().expect("laid out at the start");
        if receiving { memory.receive.0 } else { memory.send.0 }
    }

    /// Buffers of `len` bytes in all, in one piece or more.
    fn pieces(&mut self, cx: &mut Cx<'_>, receiving: bool, len: u64, one: bool) -> Option<Vec<Extent>> {
        let owner = self.shared.borrow().ledger.next_request(self.rank);
        let most = u64::from(cx.engine.config().segments_max).min(3);
        let count = if one || len < 2 { 1 } else { 1 + cx.rng.below(most) };
        let (mut extents, mut left) = (Vec::new(), len);
        for index in 0..count {
            let part = if index + 1 == count { left } else { cx.rng.below(left + 1) };
            match self.take(cx, receiving, part, owner) {
                Some(extent) => extents.push(extent),
                None => {
                    self.give_back(cx, receiving, &extents);
                    return None;
                }
            }
            left -= part;
        }
        Some(extents)
    }

    fn segs(&self, receiving: bool, extents: &[Extent]) -> Vec<Seg> {
        let region = self.region(receiving);
        extents.iter().map(|extent| Seg::new(region, extent.offset, extent.len)).collect()
    }

    fn fill(&self, cx: &mut Cx<'_>, extents: &[Extent], content: Content) {
        let region = self.region(false);
        let Some(bytes) = cx.engine.bytes_mut(region) else { return };
        let mut offset = 0;
        for extent in extents {
            content.fill(offset, &mut bytes[extent.range()]);
            offset += extent.len;
        }
    }

    /// Enters what was accepted; or gives its buffers back.
    #[allow(clippy::too_many_arguments, reason = "one request, in full")]
    fn entered(
        &mut self,
        cx: &mut Cx<'_>,
        outcome: Result<OpId, RequestError>,
        ask: Ask,
        (extents, receiving): (Vec<Extent>, bool),
        class: Option<usize>,
        sort: Sort,
    ) -> Result<u32, Refused> {
        match outcome {
            Ok(operation) => {
                let segs = self.segs(receiving, &extents);
                let what = describe(&ask);
                let request = self.shared.borrow_mut().ledger.submitted(self.rank, cx.now, ask, &segs, Notify::Event);
                let id = operation.0.to_bits();
                cx.trace.note(
                    cx.now,
                    crate::trace::Who::Rank(self.rank),
                    format_args!("request {request}: {what}, op {}:{id:x}", self.rank),
                );
                self.open.insert(request, Open { operation, extents, receiving, class, sort });
                Ok(request)
            }
            Err(error) => {
                self.give_back(cx, receiving, &extents);
                match error {
                    error if error.is_full() => Err(Refused::Full),
                    RequestError::Submit(rerail_core::endpoint::SubmitError::PeerGone(_)) => Err(Refused::Gone),
                    error => panic!("rank {} submitted what is refused: {error}", self.rank),
                }
            }
        }
    }

    fn cookie(&self) -> Cookie {
        Cookie(self.shared.borrow().ledger.next_request(self.rank).into())
    }

    /// Posts the receives of this turn; and of the next ones, once those of this one are over. True: tables are full.
    fn post_receives(&mut self, cx: &mut Cx<'_>) -> bool {
        loop {
            let Some(&mut (turn, class, left)) = self.receives.front_mut() else { return false };
            let posted = self.open.values().any(|open| {
                open.class.is_some_and(|class| self.shared.borrow().plan.classes[class].manner == Manner::Posted)
            });
            if turn > self.turn {
                if posted && !self.is_orphaned() {
                    return false;
                }
                self.turn = turn;
            }
            if left == 0 || self.surplus(class) > 0 {
                self.receives.pop_front();
                continue;
            }
            let (selector, capacity, multi) = {
                let shared = self.shared.borrow();
                let class = &shared.plan.classes[class];
                (class.selector, class.capacity, class.manner == Manner::Multi)
            };
            let Some(extents) = self.pieces(cx, true, capacity, multi) else { return true };
            self.blank(cx, &extents);
            let segs = self.segs(true, &extents);
            let recv = Recv {
                from: selector,
                segments: &segs,
                multi: multi.then_some(1),
                cookie: self.cookie(),
                ..Recv::default()
            };
            let outcome = cx.engine.recv(cx.now, &recv);
            let ask = match multi {
                true => Ask::Multi { from: selector, min: 1 },
                false => Ask::Receive { from: selector, claimed: None },
            };
            match self.entered(cx, outcome, ask, (extents, true), Some(class), Sort::Receive) {
                Ok(_) => {
                    if let Some(front) = self.receives.front_mut() {
                        front.2 -= 1;
                    }
                }
                Err(Refused::Full) => return true,
                // Its only sender is gone.
                Err(Refused::Gone) => {
                    self.receives.pop_front();
                }
            }
        }
    }

    fn blank(&self, cx: &mut Cx<'_>, extents: &[Extent]) {
        let region = self.region(true);
        if let Some(bytes) = cx.engine.bytes_mut(region) {
            extents.iter().for_each(|extent| bytes[extent.range()].fill(BLANK));
        }
    }

    /// Whether a peer of this rank is gone, or this rank is gone for a peer.
    fn is_orphaned(&self) -> bool {
        let shared = self.shared.borrow();
        (0..shared.plan.size).any(|peer| shared.ledger.is_parted(self.rank, peer))
    }

    /// Receives of a class, posted or to be posted, that nothing can come for any more.
    fn surplus(&self, class: usize) -> usize {
        let shared = self.shared.borrow();
        let entry = &shared.plan.classes[class];
        if entry.manner == Manner::Multi {
            let coming = entry.members.iter().any(|index| shared.is_coming(*index, self.rank));
            return usize::from(!coming && shared.has_parted(self.rank));
        }
        let coming = entry.members.iter().filter(|index| shared.is_coming(**index, self.rank)).count();
        let posted = self.open.values().filter(|open| open.class == Some(class)).count();
        let left = self.receives.iter().find(|(_, of, _)| *of == class).map_or(0, |(_, _, left)| *left);
        (posted + left).saturating_sub(coming)
    }

    /// Looks for messages that are received by claiming them. True: tables are full.
    fn claim(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.claims_left == 0 {
            return false;
        }
        let claims = self.claims.clone();
        for class in claims {
            loop {
                let selector = self.shared.borrow().plan.classes[class].selector;
                // Looked at first, for once claimed there must be room to receive it.
                let Some(found) = cx.engine.probe(&selector) else { break };
                let Some(extents) = self.pieces(cx, true, found.bytes, false) else { return true };
                self.blank(cx, &extents);
                if self.shared.borrow_mut().ledger.probed(self.rank, cx.now, selector, &found).is_none() {
                    self.failed = true;
                    return false;
                }
                let Some((message, found)) = cx.engine.claim(&selector) else {
                    self.give_back(cx, true, &extents);
                    break;
                };
                let Some(claimed) = self.shared.borrow_mut().ledger.claimed(self.rank, cx.now, &found) else {
                    self.failed = true;
                    return false;
                };
                let segs = self.segs(true, &extents);
                loop {
                    let recv = Recv { from: selector, segments: &segs, cookie: self.cookie(), ..Recv::default() };
                    let outcome = cx.engine.recv_claimed(cx.now, message, &recv);
                    if matches!(&outcome, Err(error) if error.is_full()) {
                        // Nothing else may be claimed meanwhile: what is claimed is this rank's to receive.
                        cx.engine.round(cx.now);
                        self.take_events(cx);
                        continue;
                    }
                    let ask = Ask::Receive { from: selector, claimed: Some(claimed) };
                    let _ = self.entered(cx, outcome, ask, (extents, true), Some(class), Sort::Receive);
                    break;
                }
                self.claims_left -= 1;
            }
        }
        false
    }

    fn take_events(&mut self, cx: &mut Cx<'_>) {
        while let Some(event) = cx.engine.poll_event() {
            self.heard(cx, event);
        }
    }

    /// Submits the next send. False: not now.
    fn send_next(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(&index) = self.sends.front() else { return true };
        let message = self.shared.borrow().plan.messages[index];
        let name = self.shared.borrow().ledger.next_name(self.rank, message.destination);
        let content = Content::from(name);
        let ask =
            Ask::Send { name, len: message.len, tag: message.tag, immediate: message.immediate, level: message.level };
        let mut send = Send {
            peer: PeerId(message.destination),
            tag: message.tag,
            immediate: message.immediate.then_some(name.to_bits()),
            level: message.level,
            cookie: self.cookie(),
            ..Send::default()
        };
        let outcome = if message.inject {
            let mut payload = vec![0; message.len as usize];
            content.fill(0, &mut payload);
            let outcome = cx.engine.inject(cx.now, &send, &payload);
            self.entered(cx, outcome, ask, (Vec::new(), false), None, Sort::Send)
        } else {
            let Some(extents) = self.pieces(cx, false, message.len, false) else { return false };
            self.fill(cx, &extents, content);
            let segs = self.segs(false, &extents);
            send.segments = &segs;
            let outcome = cx.engine.send(cx.now, &send);
            self.entered(cx, outcome, ask, (extents, false), None, Sort::Send)
        };
        match outcome {
            Ok(_) => {
                self.shared.borrow_mut().index.insert(name.to_bits(), index);
            }
            Err(Refused::Full) => return false,
            Err(Refused::Gone) => {
                self.shared.borrow_mut().void.insert(index);
            }
        }
        self.sends.pop_front();
        true
    }

    fn remote(&self, target: u32, offset: u64) -> Remote {
        Remote { peer: PeerId(target), window: Player::window_key(target), offset }
    }

    /// Submits the next other request. False: not now.
    fn step_next(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(&step) = self.steps.front() else { return true };
        // Of one place's requests, only one is under way: puts are not ordered among each other.
        let place = match step {
            Step::Put { target, slot } | Step::Get { target, slot } => Some((target, slot, false)),
            Step::Atomic { target, cell } if cell >= ALONE => Some((target, cell, true)),
            // A target has slots for as many refusals of puts as for requests of a peer, which may be one (ARCHITECTURE.md,
            // Known limits).
            Step::BadPut { target, .. } => Some((target, u32::MAX, false)),
            _ => None,
        };
        if place.is_some() && self.open.values().any(|open| open.sort == Sort::Step(place)) {
            return false;
        }
        self.values += 1;
        let fresh = u64::from(self.rank) << 40 | self.values << 8 | 7;
        let outcome = match step {
            Step::Put { target, slot } => {
                let (bytes, at) = self.slot(slot);
                let content = Content(fresh);
                let Some(extents) = self.pieces(cx, false, bytes, false) else { return false };
                self.fill(cx, &extents, content);
                let segs = self.segs(false, &extents);
                let put = Put { to: self.remote(target, at), segments: &segs, cookie: self.cookie(), ..Put::default() };
                let outcome = cx.engine.put(cx.now, &put);
                let ask = Ask::Put { target, slot, content, bad: None };
                self.entered(cx, outcome, ask, (extents, false), None, Sort::Step(place))
            }
            Step::Get { target, slot } => {
                let (bytes, at) = self.slot(slot);
                let offset = cx.rng.below(bytes);
                let len = cx.rng.below(bytes - offset + 1);
                // Into receive memory, where late writes are looked for.
                let Some(extents) = self.pieces(cx, true, len, false) else { return false };
                self.blank(cx, &extents);
                let segs = self.segs(true, &extents);
                let from = self.remote(target, at + offset);
                let get = Get { from, segments: &segs, cookie: self.cookie(), ..Get::default() };
                let outcome = cx.engine.get(cx.now, &get);
                let ask = Ask::Get { target, slot, offset, bad: None };
                self.entered(cx, outcome, ask, (extents, true), None, Sort::Step(place))
            }
            Step::Atomic { target, cell } => {
                let operation = self.operation(cell, fresh, cx.rng);
                let atomic = Atomic {
                    at: self.remote(target, u64::from(cell) * 8),
                    kind: operation.kind,
                    data_type: operation.data_type,
                    operand: operation.operand,
                    compare: operation.compare,
                    cookie: self.cookie(),
                    ..Atomic::default()
                };
                let outcome = cx.engine.atomic(cx.now, &atomic);
                let ask = Ask::Atomic { target, cell, operation, bad: None };
                self.entered(cx, outcome, ask, (Vec::new(), false), None, Sort::Step(place))
            }
            Step::Flush { target } => {
                let flush = Flush { peer: PeerId(target), cookie: self.cookie(), ..Flush::default() };
                let outcome = cx.engine.flush(cx.now, &flush);
                self.entered(cx, outcome, Ask::Flush { target }, (Vec::new(), false), None, Sort::Step(None))
            }
            Step::BadPut { target, beyond } => {
                let Some(extents) = self.pieces(cx, false, 32, true) else { return false };
                let content = Content(fresh);
                self.fill(cx, &extents, content);
                let segs = self.segs(false, &extents);
                let mut to = self.remote(target, self.shared.borrow().plan.window_bytes() + 8);
                let bad = if beyond { Refusal::OutOfRange } else { Refusal::NoWindow };
                if !beyond {
                    to.window ^= 1 << 50;
                    to.offset = 0;
                }
                let put = Put { to, segments: &segs, cookie: self.cookie(), ..Put::default() };
                let outcome = cx.engine.put(cx.now, &put);
                let ask = Ask::Put { target, slot: 0, content, bad: Some(bad) };
                self.entered(cx, outcome, ask, (extents, false), None, Sort::Step(place))
            }
            Step::Vain => self.in_vain(cx),
        };
        match outcome {
            Ok(_) | Err(Refused::Gone) => {
                self.steps.pop_front();
                true
            }
            Err(Refused::Full) => false,
        }
    }

    /// A receive for a tag that nobody sends, taken back at once.
    fn in_vain(&mut self, cx: &mut Cx<'_>) -> Result<u32, Refused> {
        let selector = Selector { source: None, tag: TagMatch::Tagged { tag: u64::MAX - self.values, ignore: 0 } };
        let Some(extents) = self.pieces(cx, true, 16, true) else { return Err(Refused::Full) };
        self.blank(cx, &extents);
        let segs = self.segs(true, &extents);
        let recv = Recv { from: selector, segments: &segs, cookie: self.cookie(), ..Recv::default() };
        let outcome = cx.engine.recv(cx.now, &recv);
        let ask = Ask::Receive { from: selector, claimed: None };
        let request = self.entered(cx, outcome, ask, (extents, true), None, Sort::Vain)?;
        self.take_back(cx, request);
        Ok(request)
    }

    fn take_back(&mut self, cx: &mut Cx<'_>, request: u32) {
        let Some(open) = self.open.get(&request) else { return };
        if cx.engine.cancel(cx.now, open.operation).is_ok() {
            self.shared.borrow_mut().ledger.cancelled(self.rank, cx.now, request);
        }
    }

    fn slot(&self, slot: u32) -> (u64, u64) {
        let shared = self.shared.borrow();
        (shared.plan.slots[slot as usize], shared.plan.slot_at(slot))
    }

    fn operation(&self, cell: u32, fresh: u64, rng: &mut Rng) -> Operation {
        let u64s = |kind, operand, compare| Operation { kind, data_type: AtomicType::U64, operand, compare };
        match cell {
            SUM => u64s(AtomicKind::Add, rng.within(1, 1000), 0),
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
                ];
                u64s(*rng.pick(&kinds).unwrap_or(&AtomicKind::Add), rng.draw(), 0)
            }
        }
    }

    fn heard(&mut self, cx: &mut Cx<'_>, event: Event) {
        match event {
            Event::Completed(completion) => self.completed(cx, &completion),
            Event::PeerUp { .. } => {}
            Event::PeerClosed { peer } => self.shared.borrow_mut().ledger.peer_closed(self.rank, peer.0),
            Event::PeerLost { peer, why } => {
                self.shared.borrow_mut().ledger.peer_lost(self.rank, cx.now, peer.0, why);
            }
        }
    }

    fn completed(&mut self, cx: &mut Cx<'_>, completion: &Completion) {
        // A peer's loss is told after its requests' ends: it is entered first.
        if let Err(OpError::PeerLost { peer, why }) = completion.result
            && !self.shared.borrow().ledger.book(self.rank).losses.iter().any(|loss| loss.peer == peer.0)
        {
            self.shared.borrow_mut().ledger.peer_lost(self.rank, cx.now, peer.0, why);
        }
        let request = u32::try_from(completion.cookie.0).ok().filter(|request| self.open.contains_key(request));
        let memory = request.and_then(|request| self.open.get(&request)).map_or_else(Vec::new, |open| {
            let region = self.region(open.receiving);
            let bytes = cx.engine.bytes(region).unwrap_or_default();
            open.extents.iter().flat_map(|extent| &bytes[extent.range()]).copied().collect()
        });
        let told = self.shared.borrow_mut().ledger.told(self.rank, cx.now, completion, &memory);
        if let Some(name) = told.name {
            let shared = &mut *self.shared.borrow_mut();
            if let Some(index) = shared.index.get(&name.to_bits()) {
                shared.received.insert(*index);
            }
        }
        cx.trace.note(
            cx.now,
            crate::trace::Who::Rank(self.rank),
            format_args!(
                "request {} is over: {:?}, op {}:{:x}",
                completion.cookie.0,
                completion.result,
                self.rank,
                completion.operation.0.to_bits()
            ),
        );
        if told.over
            && let Some(open) = self.open.remove(&told.request)
        {
            self.give_back(cx, open.receiving, &open.extents);
        }
        self.failed |= self.shared.borrow().ledger.has_findings();
    }

    /// After peers were lost: what nothing can come for is taken back, and who may not know of a loss finds out.
    fn look_after_losses(&mut self, cx: &mut Cx<'_>) {
        if !self.is_orphaned() {
            return;
        }
        let size = self.shared.borrow().plan.size;
        for peer in 0..size {
            let shared = self.shared.borrow();
            let lost = shared.ledger.book(self.rank).losses.iter().any(|loss| loss.peer == peer);
            let ask = shared.ledger.is_parted(self.rank, peer) && !lost && peer != self.rank;
            drop(shared);
            if ask && !self.pinged.contains(&peer) {
                self.pinged.insert(peer);
                self.steps.push_front(Step::Get { target: peer, slot: super::plan::CONSTANT });
            }
        }
        let classes: BTreeSet<usize> = self.open.values().filter_map(|open| open.class).collect();
        for class in classes {
            let surplus = self.surplus(class);
            let left = self.receives.iter_mut().find(|(_, of, _)| *of == class);
            let unposted = left.map_or(0, |(_, _, left)| {
                let drop = surplus.min(*left);
                *left -= drop;
                drop
            });
            let requests: Vec<u32> =
                self.open.iter().filter(|(_, open)| open.class == Some(class)).map(|(request, _)| *request).collect();
            for request in requests.into_iter().rev().take(surplus - unposted) {
                self.take_back(cx, request);
            }
        }
        let shared = self.shared.borrow();
        let coming = |class: &usize| {
            let class = &shared.plan.classes[*class];
            class.members.iter().filter(|index| shared.is_coming(**index, self.rank)).count()
        };
        self.claims_left = self.claims.iter().map(coming).sum();
    }
}

impl Shared {
    /// Whether a message may still come: it is not received, will be sent, and no loss is between its ends.
    fn is_coming(&self, index: usize, rank: u32) -> bool {
        let message = &self.plan.messages[index];
        !self.received.contains(&index) && !self.void.contains(&index) && !self.ledger.is_parted(message.source, rank)
    }

    fn has_parted(&self, rank: u32) -> bool {
        (0..self.plan.size).any(|peer| self.ledger.is_parted(rank, peer))
    }
}

impl App for Player {
    fn start(&mut self, cx: &mut Cx<'_>) {
        self.lay_out(cx);
        self.pump(cx);
    }

    fn event(&mut self, cx: &mut Cx<'_>, event: Event) {
        self.heard(cx, event);
        self.pump(cx);
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        if cx.phase != Phase::Safety {
            self.look_after_losses(cx);
        }
        self.pump(cx);
    }

    fn phase(&mut self, cx: &mut Cx<'_>, phase: Phase) {
        if phase == Phase::Liveness {
            self.look_after_losses(cx);
        }
        self.pump(cx);
    }

    fn is_done(&self) -> bool {
        self.failed
            || self.open.is_empty()
                && self.sends.is_empty()
                && self.steps.is_empty()
                && self.receives.iter().all(|(_, _, left)| *left == 0)
                && self.claims_left == 0
    }
}

/// Enters what windows hold at first. Before any rank begins, because the first may ask for memory of the last.
pub fn open_windows(plan: &Plan, ledger: &mut Ledger) {
    for rank in 0..plan.size {
        for slot in 0..plan.slots.len() as u32 {
            ledger.slots().open(rank, slot, first_content(rank, slot));
        }
        for cell in 0..ALONE + plan.size {
            let rule = match cell {
                SUM => Rule::Sum,
                CHAIN => Rule::Chain,
                _ => Rule::Alone,
            };
            ledger.cells().open(rank, cell, rule, 0);
        }
    }
}

/// What a slot holds at first.
fn first_content(rank: u32, slot: u32) -> Content {
    Content(u64::from(rank) << 32 | u64::from(slot) | 1 << 63)
}

/// Bytes of buffers for what a rank sends and puts.
fn send_bytes(plan: &Plan) -> u64 {
    let most = plan.messages.iter().map(|message| message.len).max().unwrap_or(0);
    (most + 1024) * (SENDS_MAX as u64 + 1) * 2 + (1 << 16)
}

fn ghost(ledger: &mut Ledger, rank: u32, at: Time, scar: Scar) {
    ledger.find(Verdict::Corruption(Corruption { rank, at, damage: Damage::Ghost(scar) }));
}

/// A request, for the trace.
fn describe(ask: &Ask) -> String {
    match ask {
        Ask::Send { name, len, level, .. } => {
            let level = match level {
                Level::Reusable => "reusable",
                Level::Acknowledged => "acknowledged",
                Level::Placed => "placed",
            };
            format!("send msg {:x} to rank {}, {len} bytes, {level}", name.to_bits(), name.destination())
        }
        Ask::Receive { from, claimed: None } => format!("receive from {:?}", from),
        Ask::Receive { claimed: Some((name, _)), .. } => format!("receive of claimed msg {:x}", name.to_bits()),
        ask => match ask.peer() {
            Some(peer) => format!("{} at rank {peer}", ask.word()),
            None => ask.word().to_owned(),
        },
    }
}
