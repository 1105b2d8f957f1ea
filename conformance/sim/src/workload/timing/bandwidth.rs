//! Windows of messages one way, or both ways at once; a short reply ends each window.
//!
//! Receives are posted a whole window ahead, before the reply that lets the next window begin. All sends are
//! from one buffer, so messages of one size have one content; immediate data and tag distinguish them.

use std::rc::Rc;

use rerail_core::endpoint::{Completion, Event};
use rerail_core::mem::RegionId;
use rerail_core::time::Time;

use super::series::Series;
use super::{Spans, measured, partner};
use crate::check::{Name, Verdict};
use crate::cluster::{App, Cluster, Cx, Ended, Moment, View, Workload};
use crate::scenario::Scenario;
use crate::workload::exchange::BYTES_MAX;
use crate::workload::plain::{Common, Message, Submitted};
use crate::workload::{Job, Measured, Parameters, WorkloadError, fit_operations};

/// Memory that receives may take at a rank; where a window needs more, its messages share buffers.
const RECEIVE_BYTES_MAX: u64 = 4 << 20;

/// Bytes of a reply.
const REPLY: u64 = 8;

/// The workload.
pub(in crate::workload) struct Bandwidth {
    plan: Rc<Plan>,
    spans: Spans,
    series: Series,
    pub(in crate::workload) common: Common,
}

struct Plan {
    sizes: Vec<u64>,
    /// Messages of a window.
    window: u64,
    /// Windows of each size that are measured; one more goes before.
    windows: u64,
    both: bool,
    /// Every second pair sends the other way: one of two senders is on each side (multirail-2004, figure 9).
    apart: bool,
    /// Receive buffers, each for the largest message.
    buffers: u64,
}

impl Plan {
    /// Windows of each size.
    fn each(&self) -> u64 {
        1 + self.windows
    }

    /// Windows in all.
    fn total(&self) -> u64 {
        self.each() * self.sizes.len() as u64
    }

    fn largest(&self) -> u64 {
        self.sizes.iter().copied().max().unwrap_or(1)
    }
}

impl Bandwidth {
    /// Parameters: see the module above.
    pub(in crate::workload) fn new(
        scenario: &Scenario,
        seed: u64,
        parameters: &mut Parameters,
    ) -> Result<Self, WorkloadError> {
        let sizes = parameters.numbers("bytes", &[1 << 20], 1, BYTES_MAX)?;
        let window = parameters.number("window", 64, 1, 1024)?;
        let windows = parameters.number("windows", 10, 1, 1 << 16)?;
        let both = parameters.flag("both", false)?;
        let apart = parameters.flag("apart", false)?;
        // The receives of a whole window are posted before the reply goes out that lets it begin; a sender
        // waits for the reply meanwhile.
        fit_operations((scenario, seed), ("window", window), |window| window + 1 + u64::from(both))?;
        let largest = sizes.iter().copied().max().unwrap_or(1);
        let buffers = (RECEIVE_BYTES_MAX / largest).clamp(1, window);
        let plan = Plan { sizes, window, windows, both, apart, buffers };
        if 2 * plan.total() * window > u64::from(Name::SERIALS_MAX) {
            let why = format!("workload.parameters: {} windows of {window} messages are too many", plan.total());
            return Err(WorkloadError { why });
        }
        let spans = Spans::new(plan.sizes.len());
        let series = Series::new(parameters, plan.sizes.len())?;
        Ok(Bandwidth { plan: Rc::new(plan), spans, series, common: Common::default() })
    }
}

impl Workload for Bandwidth {
    fn app(&mut self, rank: u32, size: u32) -> Box<dyn App> {
        let partner = partner(rank, size);
        let turned = self.plan.apart && partner.is_some_and(|(peer, _)| rank.min(peer) % 2 == 1);
        let begins = partner.is_some_and(|(_, begins)| begins != turned);
        Box::new(Player {
            common: self.common.clone(),
            peer: partner.map_or(rank, |(peer, _)| peer),
            region: None,
            over: partner.is_none(),
            out: Out { active: partner.is_some() && (begins || self.plan.both), ..Out::default() },
            into: Into {
                active: partner.is_some() && (!begins || self.plan.both),
                busy: vec![false; self.plan.window as usize],
                ..Into::default()
            },
            plan: self.plan.clone(),
            spans: self.spans.clone(),
            series: self.series.clone(),
        })
    }

    fn at_moment(&mut self, _view: &View<'_>, _moment: Moment) -> bool {
        self.common.is_well()
    }
}

impl Job for Bandwidth {
    fn verdict(&mut self, cluster: &Cluster, ended: &Ended) -> Verdict {
        self.common.verdict(cluster, ended)
    }

    fn measured(&self) -> Vec<Measured> {
        let plan = &self.plan;
        let value = |size: usize| {
            let (ranks, ns) = self.spans.all_ends_ns(size)?;
            let bytes = ranks as u64 * plan.sizes[size] * plan.window * plan.windows;
            // Bytes per nanosecond are thousands of MB/s.
            Some(bytes as f64 * 1000.0 / ns as f64)
        };
        let series = |size| self.series.samples(size);
        measured("bandwidth", "MB/s", &plan.sizes, value, series)
    }
}

/// One end.
struct Player {
    plan: Rc<Plan>,
    spans: Spans,
    series: Series,
    common: Common,
    peer: u32,
    /// What is sent; the reply that is sent; that which is received; receive buffers.
    region: Option<RegionId>,
    /// There is nothing to do, or nothing more can be done.
    over: bool,
    out: Out,
    into: Into,
}

/// Windows that this end sends.
#[derive(Default)]
struct Out {
    active: bool,
    /// The window under way.
    window: u64,
    /// Messages submitted, of all windows.
    sent: u64,
    /// Of these are not over.
    open: u64,
    /// The receive of this window's reply is posted.
    awaited: bool,
    /// This window's reply has come.
    replied: bool,
    /// When measuring began.
    began: Time,
}

/// Windows that this end receives.
#[derive(Default)]
struct Into {
    active: bool,
    /// Receives posted, of all windows.
    posted: u64,
    /// Those of a window that are not over.
    busy: Vec<bool>,
    /// Messages received.
    received: u64,
    /// Replies submitted.
    replies: u64,
    /// The last of them is not over.
    replying: bool,
}

/// What a cookie is of, in its low bits; above them is the message's or reply's number.
const SEND: u64 = 0;
const RECEIVE: u64 = 1;
const REPLY_SEND: u64 = 2;
const REPLY_RECEIVE: u64 = 3;

impl Player {
    /// A message, by its number; `outwards` or not.
    fn data(&self, rank: u32, number: u64, outwards: bool) -> Option<Message> {
        let plan = &self.plan;
        let size = number / plan.window / plan.each();
        let bytes = *plan.sizes.get(size as usize)?;
        let (from, to) = if outwards { (rank, self.peer) } else { (self.peer, rank) };
        let buffer = number % plan.window % plan.buffers;
        let offset = if outwards { 0 } else { plan.largest() * (1 + buffer) + 2 * REPLY };
        let (name, content) = (Name::new(from, to, 2 * number as u32), Name::new(from, to, size as u32));
        Some(Message { name, content, bytes, region: self.region?, offset })
    }

    /// The reply to a window, `outwards` or not.
    fn reply(&self, rank: u32, window: u64, outwards: bool) -> Option<Message> {
        let (from, to) = if outwards { (rank, self.peer) } else { (self.peer, rank) };
        let offset = self.plan.largest() + if outwards { 0 } else { REPLY };
        let name = Name::new(from, to, 2 * window as u32 + 1);
        Some(Message { name, content: name, bytes: REPLY, region: self.region?, offset })
    }

    /// Whether it is submitted; a peer that is gone ends everything.
    fn is_open(&mut self, submitted: Submitted) -> bool {
        self.over |= submitted == Submitted::Never;
        submitted == Submitted::Open
    }

    fn advance(&mut self, cx: &mut Cx<'_>) {
        if self.into.active && !self.over {
            self.post(cx);
            self.answer(cx);
        }
        if self.out.active && !self.over {
            self.send(cx);
        }
    }

    /// Posts receives, a window ahead.
    fn post(&mut self, cx: &mut Cx<'_>) {
        let plan = self.plan.clone();
        while self.into.posted < plan.total() * plan.window && !self.over {
            let (number, slot) = (self.into.posted, (self.into.posted % plan.window) as usize);
            let Some(message) = self.data(cx.rank, number, false).filter(|_| !self.into.busy[slot]) else { return };
            if plan.buffers == plan.window {
                self.common.clear(cx, &message);
            }
            let submitted = self.common.receive(cx, &message, number << 2 | RECEIVE);
            if !self.is_open(submitted) {
                return;
            }
            self.into.busy[slot] = true;
            self.into.posted += 1;
        }
    }

    /// Replies to a window that has come, once the next one's receives are posted.
    fn answer(&mut self, cx: &mut Cx<'_>) {
        let (window, plan) = (self.into.replies, self.plan.clone());
        let next_posted = self.into.posted >= ((window + 2) * plan.window).min(plan.total() * plan.window);
        let due = window < plan.total() && self.into.received >= (window + 1) * plan.window;
        if self.into.replying || !due || !next_posted {
            return;
        }
        let Some(message) = self.reply(cx.rank, window, true) else { return };
        self.common.fill(cx, &message);
        let submitted = self.common.send(cx, &message, window << 2 | REPLY_SEND, message.request());
        if self.is_open(submitted) {
            self.into.replying = true;
            self.into.replies += 1;
        }
    }

    /// Sends what the window has left; begins the next one when it is over.
    fn send(&mut self, cx: &mut Cx<'_>) {
        let plan = self.plan.clone();
        while self.out.window < plan.total() && !self.over {
            let (window, end) = (self.out.window, (self.out.window + 1) * plan.window);
            if !self.out.awaited {
                let Some(message) = self.reply(cx.rank, window, false) else { return };
                self.common.clear(cx, &message);
                let submitted = self.common.receive(cx, &message, window << 2 | REPLY_RECEIVE);
                if !self.is_open(submitted) {
                    return;
                }
                self.out.awaited = true;
            }
            while self.out.sent < end {
                let Some(message) = self.data(cx.rank, self.out.sent, true) else { return };
                if self.out.sent == window * plan.window {
                    self.begin(cx, window, &message);
                }
                let submitted = self.common.send(cx, &message, self.out.sent << 2 | SEND, message.request());
                if !self.is_open(submitted) {
                    return;
                }
                self.out.sent += 1;
                self.out.open += 1;
            }
            if self.out.open > 0 || !self.out.replied {
                return;
            }
            if (window + 1).is_multiple_of(plan.each()) {
                self.spans.add((window / plan.each()) as usize, self.out.began, cx.now);
            }
            (self.out.window, self.out.awaited, self.out.replied) = (window + 1, false, false);
        }
    }

    /// A window begins; nothing is open that would need the buffer.
    fn begin(&mut self, cx: &mut Cx<'_>, window: u64, message: &Message) {
        match window % self.plan.each() {
            0 => self.common.fill(cx, message),
            1 => self.out.began = cx.now,
            _ => {}
        }
    }

    /// For the series: a message has come. Its size's first window is not measured, but its last message is
    /// what the next one is counted from.
    fn note(&self, cx: &Cx<'_>) {
        let plan = &self.plan;
        let (window, nth) = ((self.into.received - 1) / plan.window, (self.into.received - 1) % plan.window);
        let size = (window / plan.each()) as usize;
        let warm = !window.is_multiple_of(plan.each());
        if warm || nth + 1 == plan.window {
            self.series.add(size, cx.rank, cx.now, warm.then(|| plan.sizes[size]));
        }
    }

    fn completed(&mut self, cx: &mut Cx<'_>, completion: &Completion) {
        let done = self.common.over(cx, completion);
        self.over |= done.is_none();
        let Some(done) = done else { return };
        let (number, cookie) = (completion.cookie.0 >> 2, completion.cookie.0);
        match cookie & 3 {
            SEND => self.out.open -= 1,
            REPLY_SEND => self.into.replying = false,
            RECEIVE => {
                if let Some(message) = self.data(cx.rank, number, false) {
                    self.common.check(cx, &message, cookie, &done);
                }
                self.into.busy[(number % self.plan.window) as usize] = false;
                self.into.received += 1;
                self.note(cx);
            }
            _ => {
                if let Some(message) = self.reply(cx.rank, number, false) {
                    self.common.check(cx, &message, cookie, &done);
                }
                self.out.replied = true;
            }
        }
    }
}

impl App for Player {
    fn start(&mut self, cx: &mut Cx<'_>) {
        if self.over {
            return;
        }
        self.region = self.common.alloc(cx, (1 + self.plan.buffers) * self.plan.largest() + 2 * REPLY);
        self.over = self.region.is_none();
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
        let (plan, out, into) = (&self.plan, &self.out, &self.into);
        let sent = !out.active || out.window == plan.total();
        let received = !into.active || into.replies == plan.total() && !into.replying;
        self.over || sent && received
    }
}
