//! Puts into, or gets from, the partner's memory: so many under way, one after another.
//!
//! Each works on a place of its own, which the next one takes when it is complete. What a get brings is
//! compared when it is reported, what a put left when all are complete.

use std::cell::RefCell;
use std::rc::Rc;

use rerail_core::endpoint::{Access, Completion, Event, GetRequest, PutRequest, Remote, Window};
use rerail_core::ids::{Cookie, PeerId};
use rerail_core::mem::{MemRef, RegionId, Seg};

use super::partner;
use crate::check::{Corruption, Damage, Name, Verdict};
use crate::cluster::{App, Cluster, Cx, Ended, Moment, View, Workload};
use crate::scenario::Scenario;
use crate::workload::exchange::BYTES_MAX;
use crate::workload::plain::{Common, Message, Submitted, difference};
use crate::workload::{Job, Parameters, WorkloadError};

/// The key of a rank's window is this and its rank.
const KEY: u64 = 0x6f6e_6500_0000;

/// The workload.
pub(in crate::workload) struct OneSided {
    plan: Rc<Plan>,
    regions: Regions,
    pub(in crate::workload) common: Common,
}

/// Each rank's memory: its places in the partner's requests, then those that it moves itself.
type Regions = Rc<RefCell<Vec<Option<RegionId>>>>;

struct Plan {
    is_put: bool,
    bytes: u64,
    /// Under way at once.
    window: u64,
    count: u64,
}

impl Plan {
    /// The number of the last request to a place.
    fn last(&self, place: u64) -> Option<u64> {
        let before = self.count.checked_sub(place + 1)?;
        Some(before / self.window * self.window + place)
    }

    /// Whose payload a request moves: a put's is its own, a get's what lies in its place for good.
    fn content(&self, from: u32, to: u32, number: u64) -> Name {
        Name::new(from, to, if self.is_put { number } else { number % self.window } as u32)
    }
}

impl OneSided {
    /// Parameters: see the module above.
    pub(in crate::workload) fn new(scenario: &Scenario, parameters: &mut Parameters) -> Result<Self, WorkloadError> {
        let operation = parameters.text("operation")?;
        let is_put = match operation.as_deref() {
            None | Some("put") => true,
            Some("get") => false,
            Some(other) => {
                let why = format!("workload.parameters.operation = \"{other}\" is neither put nor get");
                return Err(WorkloadError { why });
            }
        };
        let bytes = parameters.number("bytes", 1024, 1, BYTES_MAX)?;
        let window = parameters.number("window", 16, 1, 1024)?;
        let count = parameters.number("count", 1000, 1, u64::from(Name::SERIALS_MAX) - 1)?;
        let regions = Rc::new(RefCell::new(vec![None; scenario.size() as usize]));
        Ok(OneSided { plan: Rc::new(Plan { is_put, bytes, window, count }), regions, common: Common::default() })
    }

    /// What a rank finds in the places that its partner has put into.
    fn judge(&self, view: &View<'_>, target: u32, origin: u32) {
        let Some(region) = self.regions.borrow()[target as usize] else { return };
        for number in (0..self.plan.window).filter_map(|place| self.plan.last(place)) {
            let (name, at) = (self.plan.content(origin, target, number), number % self.plan.window * self.plan.bytes);
            let bytes = view.peek(target, region, at, self.plan.bytes).unwrap_or_default();
            if let Some(difference) = difference(name, bytes) {
                let damage = Damage::Message { name, receive: number as u32, difference };
                self.common.found(Verdict::Corruption(Corruption { rank: target, at: view.now, damage }));
            }
        }
    }
}

impl Workload for OneSided {
    fn app(&mut self, rank: u32, size: u32) -> Box<dyn App> {
        let partner = partner(rank, size);
        Box::new(Worker {
            plan: self.plan.clone(),
            regions: self.regions.clone(),
            common: self.common.clone(),
            peer: partner.map_or(rank, |(peer, _)| peer),
            over: !partner.is_some_and(|(_, begins)| begins),
            region: None,
            begun: 0,
            through: 0,
            busy: vec![false; self.plan.window as usize],
        })
    }

    fn at_moment(&mut self, view: &View<'_>, moment: Moment) -> bool {
        if moment == Moment::Done && self.plan.is_put {
            let pairs = (0..view.size()).filter_map(|rank| Some((rank, partner(rank, view.size())?)));
            pairs.filter(|(_, (_, begins))| *begins).for_each(|(rank, (peer, _))| self.judge(view, peer, rank));
        }
        self.common.is_well()
    }
}

impl Job for OneSided {
    fn verdict(&mut self, cluster: &Cluster, ended: &Ended) -> Verdict {
        self.common.verdict(cluster, ended)
    }
}

/// One end.
struct Worker {
    plan: Rc<Plan>,
    regions: Regions,
    common: Common,
    peer: u32,
    /// There is nothing to do, or nothing more can be done.
    over: bool,
    region: Option<RegionId>,
    begun: u64,
    through: u64,
    /// Places whose request is not through.
    busy: Vec<bool>,
}

impl Worker {
    /// What a request moves, as it lies here.
    fn message(&self, rank: u32, number: u64) -> Option<Message> {
        let Plan { bytes, window, .. } = *self.plan;
        let content = self.plan.content(rank, self.peer, number);
        let offset = (window + number % window) * bytes;
        Some(Message { name: Name::new(rank, self.peer, number as u32), content, bytes, region: self.region?, offset })
    }

    fn advance(&mut self, cx: &mut Cx<'_>) {
        let plan = self.plan.clone();
        while !self.over && self.begun < plan.count {
            let (number, place) = (self.begun, self.begun % plan.window);
            let free = !self.busy[place as usize];
            let Some(message) = self.message(cx.rank, number).filter(|_| free) else { return };
            let remote =
                Remote { peer: PeerId(self.peer), window: KEY | u64::from(self.peer), offset: place * plan.bytes };
            let segments = [Seg::new(message.region, message.offset, message.bytes)];
            let (kind, result) = if plan.is_put {
                self.common.fill(cx, &message);
                let put = PutRequest { cookie: Cookie(number), ..PutRequest::new(remote, &segments) };
                ("put", cx.engine.put(&put))
            } else {
                self.common.clear(cx, &message);
                let get = GetRequest { cookie: Cookie(number), ..GetRequest::new(remote, &segments) };
                ("get", cx.engine.get(&get))
            };
            match self.common.submitted(cx, kind, self.peer, message.name, number, result.map(drop)) {
                Submitted::Open => {
                    self.busy[place as usize] = true;
                    self.begun += 1;
                }
                Submitted::Full => return,
                Submitted::Never => self.over = true,
            }
        }
    }

    fn completed(&mut self, cx: &mut Cx<'_>, completion: &Completion) {
        let number = completion.cookie.0;
        let Some(_) = self.common.over(cx, completion) else {
            self.over = true;
            return;
        };
        if let Some(message) = self.message(cx.rank, number).filter(|_| !self.plan.is_put) {
            self.common.compare(cx, &message, number as u32);
        }
        self.busy[(number % self.plan.window) as usize] = false;
        self.through += 1;
    }
}

impl App for Worker {
    fn start(&mut self, cx: &mut Cx<'_>) {
        let Plan { is_put, bytes, window, .. } = *self.plan;
        self.region = self.common.alloc(cx, 2 * window * bytes);
        let Some(region) = self.region else {
            self.over = true;
            return;
        };
        self.regions.borrow_mut()[cx.rank as usize] = Some(region);
        for place in (0..window).filter(|_| !is_put) {
            let name = self.plan.content(self.peer, cx.rank, place);
            self.common.fill(cx, &Message { name, content: name, bytes, region, offset: place * bytes });
        }
        let access = Access { read: !is_put, write: is_put, atomic: false };
        let at = MemRef { region, offset: 0 };
        let exposed = Window::new(at, window * bytes, access, KEY | u64::from(cx.rank));
        if let Err(error) = cx.engine.expose(&exposed) {
            self.common.crash(cx, format!("a window: {error}"));
        }
        self.advance(cx);
    }

    fn event(&mut self, cx: &mut Cx<'_>, event: Event) {
        if let Some(completion) = self.common.event(cx, event, false) {
            self.completed(cx, &completion);
        }
        self.over |= self.common.has_lost(cx.rank, self.peer);
        self.advance(cx);
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        self.advance(cx);
    }

    fn is_done(&self) -> bool {
        self.over || self.through == self.plan.count
    }
}
