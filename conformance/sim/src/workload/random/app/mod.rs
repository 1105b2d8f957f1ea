//! One rank of a random simulation: submits its part of the plan, as far as tables and memory let it, and
//! enters everything into the ledger.

mod closes;
mod forbidden;
mod incoming;
mod losses;
mod memory;
mod outgoing;
mod quiet;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use rerail_core::endpoint::{Completion, Event, Notify, OpError};
use rerail_core::ids::{Cookie, OpId, WindowId};
use rerail_core::mem::RegionId;
use rerail_core::time::{Nanos, Time};
use rerail_linux::driver::RequestError;

use self::incoming::Held;
pub use self::memory::{Memory, open_windows};
use self::outgoing::describe;
use self::quiet::ReportNeed;
use super::plan::{Class, Manner, Plan, Step};
use crate::check::{Extent, Ledger, Submission};
use crate::cluster::{App, Cx, Phase};
use crate::cover::Path;
use crate::rails;
use crate::rng::Rng;

/// Sends that a rank has open, at most.
pub const SENDS_MAX: usize = 6;

/// One-sided requests that it has open, at most.
pub const STEPS_MAX: usize = 3;

/// One pause for so many messages.
const PAUSE_ONE_IN: u64 = 8;

/// Tables that are full are tried again after so long.
const AGAIN: Nanos = Nanos::from_micros(20);

/// How often a rank whose peers are lost looks for what can't come any more.
const RETRY_PAUSE: Nanos = Nanos::from_micros(500);

/// A set of small numbers.
#[derive(Default)]
pub struct Marks(Vec<bool>);

impl Marks {
    fn insert(&mut self, number: usize) {
        if self.0.len() <= number {
            self.0.resize(number + 1, false);
        }
        self.0[number] = true;
    }

    fn contains(&self, number: usize) -> bool {
        self.0.get(number).is_some_and(|is_in| *is_in)
    }
}

/// What all ranks of a simulation share: the programme, the ledger, and where memory lies.
pub struct Shared {
    pub plan: Plan,
    pub ledger: Ledger,
    /// Messages that will not be sent, because their receiver was given up before.
    pub gone_windows: Marks,
    /// Messages received, by index in the plan.
    pub received: Marks,
    /// By name: index in the plan.
    pub index: BTreeMap<u64, usize>,
    pub ranks: Vec<Option<Memory>>,
    /// How requests are reported is drawn from here.
    pub report_draws: Rng,
    /// Messages of two ranks to each other, by [`pair`]: their indices in the plan.
    pub between: BTreeMap<(u32, u32), Vec<usize>>,
    /// Messages to each rank.
    pub to: Vec<Vec<usize>>,
    /// Requests of a rank to a peer's windows that are still to come or under way.
    pub towards: BTreeMap<(u32, u32), u32>,
    /// Accesses to a rank's temporary window that are under way.
    pub temporary: BTreeMap<u32, u32>,
    /// Ranks and peers that they have had to do with: such a peer's end must be reported by the transport.
    pub met: BTreeSet<(u32, u32)>,
    /// Ranks and peers that they have closed.
    pub closed: BTreeSet<(u32, u32)>,
    /// Whether peers are closed when all with them is over.
    pub closes: bool,
    /// Peers are parked now and then.
    pub parks: bool,
    /// Some of the puts are of copies.
    pub copied_puts: bool,
    /// Ranks and peers without a connection: their end is reported when they are called.
    pub parked: BTreeSet<(u32, u32)>,
    /// Ranks send nothing for so long now and then, at most; 0: they go on.
    pub pause_ns: u64,
}

/// Two ranks, whichever is named first.
pub fn pair(one: u32, other: u32) -> (u32, u32) {
    (one.min(other), one.max(other))
}

/// Windows of a rank beside that of its slots and cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowSort {
    All = 0x5757,
    ReadOnly = 0x5858,
    WriteOnly = 0x5959,
    Temporary = 0x5A5A,
    /// There is none.
    Absent = 0x5B5B,
}

impl WindowSort {
    pub(super) const fn key(self, rank: u32) -> u64 {
        (self as u64) << 32 | rank as u64
    }
}

/// An open request.
struct Open {
    operation: OpId,
    /// Its buffers, and whether they are receive buffers.
    extents: Vec<Extent>,
    receiving: bool,
    class: Option<usize>,
    /// The peer that it is bound to.
    peer: Option<u32>,
    sort: Sort,
    notify: Notify,
    /// What its counter showed before, where nothing else reports it.
    counted: Option<u64>,
}

/// The open requests of a rank, by number.
#[derive(Default)]
struct OpenRequests {
    all: BTreeMap<u32, Open>,
    /// Those that count for how many sends, and how many others, are under way at once.
    sends: usize,
    steps: usize,
}

impl OpenRequests {
    fn insert(&mut self, request: u32, open: Open) {
        *self.counter(&open) += usize::from(open.counts());
        self.all.insert(request, open);
    }

    fn remove(&mut self, request: u32) -> Option<Open> {
        let open = self.all.remove(&request)?;
        *self.counter(&open) -= usize::from(open.counts());
        Some(open)
    }

    fn counter(&mut self, open: &Open) -> &mut usize {
        if open.sort == Sort::Send { &mut self.sends } else { &mut self.steps }
    }
}

impl std::ops::Deref for OpenRequests {
    type Target = BTreeMap<u32, Open>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Open {
    /// What waits for a flush must not keep it from being submitted.
    fn counts(&self) -> bool {
        !self.receiving && self.notify != Notify::Silent
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Send,
    Receive,
    /// A one-sided request on a place that only one request may use at a time.
    Step(Option<(u32, u32, bool)>),
    /// The rank that it flushes.
    Flush(u32),
    /// An access to the temporary window of this rank.
    Temporary(u32),
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
    /// When classes that are posted late are.
    late: BTreeMap<usize, Time>,
    /// Until then nothing is sent.
    quiet_until: Time,
    turn: u32,
    claims: Vec<usize>,
    claims_left: usize,
    /// At most one message is claimed and not received.
    held: Option<Held>,
    /// After losses: messages that still have to come.
    awaited: usize,
    open: OpenRequests,
    values: u64,
    /// Receives that are taken back to be posted again.
    retracted: BTreeSet<u32>,
    /// The temporary window, until it is withdrawn.
    temporary: Option<WindowId>,
    /// Memory that peers may map, and that has no use.
    unused: Option<RegionId>,
    /// When it comes and goes: what else is drawn stays as it is.
    offer_draws: Rng,
    /// Processes are gone whose loss must be reported to this rank.
    waits_for_event: bool,
    /// After losses: messages lie about that there was no room for.
    is_unswept: bool,
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
            // What is posted at the start comes first, what is posted late last.
            let place = |class: &Class| (class.manner == Manner::Posted, class.late);
            receives.sort_by_key(|(turn, index, _)| (*turn, place(&plan.classes[*index]), *index));
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
            late: BTreeMap::new(),
            quiet_until: Time(0),
            turn: 0,
            claims,
            claims_left,
            held: None,
            awaited: 0,
            open: OpenRequests::default(),
            values: 0,
            retracted: BTreeSet::new(),
            temporary: None,
            unused: None,
            offer_draws: Rng::new(rank.into(), "offers"),
            waits_for_event: false,
            is_unswept: false,
            failed: false,
        }
    }

    /// Submits what can be submitted now.
    fn pump(&mut self, cx: &mut Cx<'_>) {
        if self.failed {
            return;
        }
        self.poll_counters(cx);
        let mut full = self.post_receives(cx);
        full |= self.claim(cx);
        loop {
            let (may_send, may_step) = (
                !self.sends.is_empty() && cx.now >= self.quiet_until && self.open.sends < SENDS_MAX,
                !self.steps.is_empty() && self.open.steps < STEPS_MAX,
            );
            let send = match (may_send, may_step) {
                (false, false) => break,
                (true, true) => cx.rng.one_in(2),
                (send, _) => send,
            };
            let done = if send { self.send_next(cx) } else { self.step_next(cx) };
            let pause_ns = self.shared.borrow().pause_ns;
            if send && pause_ns > 0 && cx.rng.one_in(PAUSE_ONE_IN) {
                self.quiet_until = cx.now + Nanos(cx.rng.within(1, pause_ns));
            }
            if !done {
                full = true;
                break;
            }
        }
        if cx.now < self.quiet_until {
            cx.wake_at(self.quiet_until);
        }
        if full || self.claims_left > 0 {
            cx.wake_at(cx.now + AGAIN);
        }
        self.close_peers(cx);
        self.park_peers(cx);
        if cx.phase != Phase::Safety && !self.is_done() {
            cx.wake_at(cx.now + RETRY_PAUSE);
        }
    }

    /// Enters what was accepted; or gives its buffers back.
    #[allow(clippy::too_many_arguments, reason = "one request, in full")]
    fn entered(
        &mut self,
        cx: &mut Cx<'_>,
        outcome: Result<OpId, RequestError>,
        submission: Submission,
        (extents, receiving): (Vec<Extent>, bool),
        class: Option<usize>,
        (sort, notify, counted): (Sort, Notify, Option<u64>),
    ) -> Result<u32, Refused> {
        match outcome {
            Ok(operation) => {
                let segs = self.segs(receiving, &extents);
                let what = if cx.trace.is_on() { describe(&submission) } else { String::new() };
                let peer = submission.peer();
                let shared = &mut *self.shared.borrow_mut();
                let request = shared.ledger.submitted(self.rank, cx.now, submission, &segs, notify);
                if let Some(peer) = peer {
                    shared.met.insert((self.rank, peer));
                    if is_one_sided(sort) {
                        *shared.towards.entry((self.rank, peer)).or_default() += 1;
                    }
                }
                if let Sort::Temporary(target) = sort {
                    *shared.temporary.entry(target).or_default() += 1;
                }
                let id = operation.0.to_bits();
                cx.trace.note(
                    cx.now,
                    crate::trace::Subject::Rank(self.rank),
                    format_args!("request {request}: {what}, reported by {notify:?}, op {}:{id:x}", self.rank),
                );
                // A message that was copied is not followed.
                if notify != Notify::Silent || sort != Sort::Send {
                    self.open
                        .insert(request, Open { operation, extents, receiving, class, peer, sort, notify, counted });
                }
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

    fn take_events(&mut self, cx: &mut Cx<'_>) {
        while let Some(event) = cx.engine.poll_event() {
            self.handle_event(cx, event);
        }
    }

    fn handle_event(&mut self, cx: &mut Cx<'_>, event: Event) {
        match event {
            Event::Completed(completion) => self.completed(cx, &completion),
            Event::Written(written) => self.shared.borrow_mut().ledger.written(self.rank, cx.now, &written),
            Event::PeerUp { peer } => {
                let shared = &mut *self.shared.borrow_mut();
                shared.met.insert((self.rank, peer.0));
                shared.ledger.peer_up(self.rank, peer.0);
            }
            Event::PeerClosed { peer } => self.shared.borrow_mut().ledger.peer_closed(self.rank, peer.0),
            Event::PeerLost { peer, why } => {
                if !self.open.values().any(|open| open.peer == Some(peer.0)) {
                    cx.trace.took(Path::LostWhenIdle);
                }
                self.shared.borrow_mut().ledger.peer_lost(self.rank, cx.now, peer.0, why);
            }
        }
    }

    fn completed(&mut self, cx: &mut Cx<'_>, completion: &Completion) {
        // A peer's loss is reported after its requests' ends: it is entered first.
        if let Err(OpError::PeerLost { peer, why }) = completion.result
            && !self.shared.borrow().ledger.book(self.rank).losses.iter().any(|loss| loss.peer == peer.0)
        {
            self.shared.borrow_mut().ledger.peer_lost(self.rank, cx.now, peer.0, why);
        }
        let request = u32::try_from(completion.cookie.0).ok().filter(|request| self.open.contains_key(request));
        let memory = request.and_then(|request| self.open.get(&request)).map_or_else(Vec::new, |open| {
            let region = self.region(open.receiving);
            let bytes = rails::region(cx.engine, region).unwrap_or_default();
            open.extents.iter().map(|extent| &bytes[extent.range()]).collect::<Vec<_>>().concat()
        });
        let reported = self.shared.borrow_mut().ledger.reported(self.rank, cx.now, completion, &memory);
        if let Some(name) = reported.name {
            let shared = &mut *self.shared.borrow_mut();
            if let Some(index) = shared.index.get(&name.to_bits()) {
                shared.received.insert(*index);
            }
        }
        cx.trace.note(
            cx.now,
            crate::trace::Subject::Rank(self.rank),
            format_args!(
                "request {} is over: {:?}, op {}:{:x}",
                completion.cookie.0,
                completion.result,
                self.rank,
                completion.operation.0.to_bits()
            ),
        );
        if reported.over
            && let Some(open) = self.open.remove(reported.request)
        {
            self.give_back(cx, open.receiving, &open.extents);
            self.shared.borrow_mut().is_over(self.rank, &open);
            if self.retracted.remove(&reported.request)
                && let (Some(class), Err(OpError::Cancelled)) = (open.class, completion.result)
            {
                let turn = self.shared.borrow().plan.classes[class].turn;
                self.receives.push_front((turn.min(self.turn), class, 1));
            }
            if let Sort::Flush(target) = open.sort {
                self.flushed(cx, target, reported.request, reported.well);
            }
        }
        self.failed |= self.shared.borrow().ledger.has_findings();
    }
}

/// Whether it is about a peer's window.
const fn is_one_sided(sort: Sort) -> bool {
    matches!(sort, Sort::Step(_) | Sort::Flush(_) | Sort::Temporary(_))
}

impl Shared {
    /// A request of a rank is over.
    fn is_over(&mut self, rank: u32, open: &Open) {
        if let Some(peer) = open.peer.filter(|_| is_one_sided(open.sort)) {
            self.step_over(rank, peer);
        }
        if let Sort::Temporary(target) = open.sort {
            *self.temporary.entry(target).or_default() -= 1;
        }
    }

    /// One request less of a rank to a peer's windows is to come or under way.
    fn step_over(&mut self, rank: u32, peer: u32) {
        if let Some(left) = self.towards.get_mut(&(rank, peer)) {
            *left -= 1;
        }
    }
}

impl App for Player {
    fn start(&mut self, cx: &mut Cx<'_>) {
        self.lay_out(cx);
        self.pump(cx);
    }

    fn event(&mut self, cx: &mut Cx<'_>, event: Event) {
        let lost = matches!(event, Event::PeerLost { .. });
        self.change_offers(cx);
        self.handle_event(cx, event);
        if lost && cx.phase == Phase::Liveness {
            self.handle_losses(cx);
        }
        self.pump(cx);
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        if cx.phase == Phase::Liveness {
            self.handle_losses(cx);
        }
        self.pump(cx);
    }

    fn phase(&mut self, cx: &mut Cx<'_>, phase: Phase) {
        if phase == Phase::Liveness {
            self.handle_losses(cx);
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
                && !self.waits_for_event
                && !self.is_unswept
                && self.held.is_none()
                && self.awaited == 0
    }
}
