//! Explanations as people and programs read them.

use rerail_core::endpoint::{Explanation, Route, Share, Verdict};
use rerail_core::ids::RailId;
use rerail_core::rail::RailKind;
use rerail_core::rail::sched::{Properties, of};
use rerail_core::time::Nanos;
use rerail_linux::driver::RailInfo;
use rerail_linux::rail::RailCounters;
use serde::Serialize;

use crate::output::{Align, Table, bold, bytes, dim, microseconds, rate};
use crate::perf::rails::{Health, RegisteredMemory, render_memory};

/// A rail as it is at the moment.
#[derive(Clone, Debug)]
pub struct Known {
    name: String,
    /// The loopback, which no message to another process takes.
    is_loop: bool,
    memory: Option<RegisteredMemory>,
    remark: Option<String>,
}

impl Known {
    /// A rail without facts but its name.
    pub fn named(name: String) -> Known {
        Known { name, is_loop: false, memory: None, remark: None }
    }

    /// From the transport's report.
    pub fn of(rail: &RailInfo<'_>) -> Known {
        let memory = RegisteredMemory::since(&RailCounters::default(), rail);
        Known { name: rail.name.to_owned(), is_loop: rail.kind == RailKind::Loop, memory, remark: None }
    }

    /// With the rail's remark about the peer.
    pub fn remarked(self, remark: Option<String>) -> Known {
        Known { remark, ..self }
    }
}

/// What would become of messages of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    bytes: u64,
    /// `eager`, `whole` or `cut`.
    route: &'static str,
    /// The rules that decide: for one rail, and for a cut.
    multiplex: &'static str,
    striping: &'static str,
    /// The question for the latter.
    #[serde(skip)]
    cut: Properties,
    /// Predictions in nanoseconds from now: as it would go, on the best rail alone, by the best cut.
    finish_ns: Option<u64>,
    alone: Option<Alone>,
    cut_ns: Option<u64>,
    /// Cut in the shares of the message before.
    kept: bool,
    rails: Vec<Part>,
}

/// The best rail alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Alone {
    rail: u8,
    finish_ns: u64,
}

/// One rail's part.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Part {
    rail: u8,
    name: String,
    bytes: u64,
    backlog: u64,
    bytes_per_second: u64,
    /// The same while other rails carry parts of the message.
    contended_bytes_per_second: u64,
    latency_ns: u64,
    /// When its part would be delivered, from now; without a part, all of the message.
    finish_ns: Option<u64>,
    /// What registering memory with it is expected to cost this side.
    registering_ns: u64,
    why: &'static str,
    /// How it fares on the way to the peer.
    health: Option<Health>,
    /// Its use of registered memory since the start; absent: it registers none.
    memory: Option<RegisteredMemory>,
    /// A property towards this peer that its facts don't contain.
    remark: Option<String>,
}

impl Explained {
    /// `rails`: all of them, by number.
    pub fn new(
        bytes: u64,
        rails: &[Known],
        explanation: &Explanation,
        health: impl Fn(RailId) -> Option<Health>,
    ) -> Explained {
        let others = explanation.shares.iter().filter_map(|share| match rails.get(usize::from(share.rail.0)) {
            Some(known) if !known.is_loop => Some((known, share)),
            _ => None,
        });
        let part = |(known, share): (&Known, &rerail_core::endpoint::Share)| Part {
            rail: share.rail.0,
            name: known.name.clone(),
            bytes: share.bytes,
            backlog: share.backlog,
            bytes_per_second: share.bytes_per_second,
            contended_bytes_per_second: share.contended_rate,
            latency_ns: share.latency.0,
            finish_ns: share.finish.map(|finish| finish.0),
            registering_ns: share.registering.0,
            why: why(share, explanation, bytes),
            health: health(share.rail),
            remark: known.remark.clone(),
            memory: known.memory,
        };
        Explained {
            bytes,
            route: match explanation.route {
                Route::Eager => "eager",
                Route::Whole => "whole",
                Route::Cut => "cut",
            },
            multiplex: explanation.multiplex.name(),
            striping: explanation.striping.name(),
            cut: of(explanation.striping).properties(),
            finish_ns: explanation.finish.map(|finish| finish.0),
            alone: explanation.alone.map(|(rail, Nanos(finish_ns))| Alone { rail: rail.0, finish_ns }),
            cut_ns: explanation.cut.map(|cut| cut.0),
            kept: explanation.kept,
            rails: others.map(part).collect(),
        }
    }

    /// What chooses one rail: the rule for one rail, or that for parts, where it found that one is best.
    fn chooser(&self) -> String {
        match (self.striping, self.multiplex) {
            (striping, multiplex) if striping == multiplex => striping.to_owned(),
            (striping, _) if self.alone.is_some() => striping.to_owned(),
            (_, multiplex) => multiplex.to_owned(),
        }
    }

    /// How it would go, in a sentence.
    fn sentence(&self) -> String {
        let size = bytes(self.bytes);
        let mut text = match self.route {
            "eager" => format!("{size}: at once, in one packet, on the rail that {} chooses", self.multiplex),
            "whole" if self.cut.is_bound => {
                format!("{size}: announced, then whole, on the rail it is bound to")
            }
            "whole" => format!("{size}: announced, then whole, on one rail, which {} chooses", self.chooser()),
            _ if self.cut.estimates && self.finish_ns.is_none() => {
                format!("{size}: announced, then in equal parts: {} has not measured all rails yet", self.striping)
            }
            _ if self.kept => {
                format!("{size}: announced, then in parts, in the shares of the last message (new ones gain under 2 %)")
            }
            _ => format!("{size}: announced, then in parts, cut by {}", self.striping),
        };
        if let Some(finish) = self.finish_ns {
            text += &format!("; predicted to be complete after {} us", microseconds(finish));
        }
        let mut others = Vec::new();
        if let Some(Alone { rail, finish_ns }) = &self.alone {
            others.push(format!("rail {rail} alone {} us", microseconds(*finish_ns)));
        }
        if let Some(cut) = self.cut_ns {
            others.push(format!("the best cut {} us", microseconds(cut)));
        }
        if let (Some(Alone { finish_ns: alone, .. }), Some(cut)) = (&self.alone, self.cut_ns) {
            // In both directions: a cut that does not pay may even be later.
            let gain = 100.0 * (*alone as f64 - cut as f64) / (*alone).max(1) as f64;
            others.push(format!("a cut gains {gain:.1} %, and is taken from 3 % on"));
        }
        if others.is_empty() { text } else { format!("{text} ({})", others.join(", ")) }
    }
}

/// Why a rail carries what it carries.
fn why(share: &Share, explanation: &Explanation, bytes: u64) -> &'static str {
    let by_time = of(explanation.multiplex).properties().estimates && share.finish.is_some();
    match share.verdict {
        Verdict::Carries => match explanation.route {
            Route::Cut if explanation.kept => "carries the share that it had before",
            Route::Cut if share.finish.is_some() => "carries what it delivers until all parts end",
            Route::Cut => "carries a part",
            _ if by_time && bytes <= 64 => "carries: no other rail is nearer",
            _ if by_time => "carries: no other rail delivers sooner",
            _ => "carries",
        },
        Verdict::NotUp => "not connected to this peer",
        Verdict::NotEligible => "may not carry this class of messages",
        Verdict::NoRemoteAccess => "can't write or read the peer's memory as others can, or no room for its key",
        Verdict::NotUsed => "not among the rails that are used",
        Verdict::AnotherRail if by_time && bytes <= 64 => "another rail is as near, or nearer (rates count above 64 B)",
        Verdict::AnotherRail if by_time => "another rail delivers as soon, or sooner",
        Verdict::AnotherRail => "another rail's turn",
        Verdict::PartTooSmall => "its part would be too small, or through too late",
        Verdict::RegistrationDoesNotPay => "its part would gain less than registering the memory costs",
        Verdict::CuttingDoesNotPay => "parts would gain too little against one rail alone",
    }
}

/// All sizes, a table for each.
pub fn render(explained: &[Explained]) -> String {
    let one = |one: &Explained| {
        let mut table = Table::new(&[
            ("rail", Align::Left),
            ("bytes", Align::Right),
            ("share", Align::Right),
            ("backlog B", Align::Right),
            ("MB/s alone", Align::Right),
            ("beside others", Align::Right),
            ("latency us", Align::Right),
            ("registering us", Align::Right),
            ("done us", Align::Right),
            ("why", Align::Left),
            ("health", Align::Left),
        ]);
        let known = |value: u64, text: String| if value == 0 { "-".to_owned() } else { text };
        for part in &one.rails {
            table.row([
                format!("{} {}", part.rail, part.name),
                part.bytes.to_string(),
                format!("{:.1} %", 100.0 * part.bytes as f64 / one.bytes.max(1) as f64),
                part.backlog.to_string(),
                known(part.bytes_per_second, rate(part.bytes_per_second as f64)),
                known(part.contended_bytes_per_second, rate(part.contended_bytes_per_second as f64)),
                known(part.latency_ns, microseconds(part.latency_ns)),
                known(part.registering_ns, microseconds(part.registering_ns)),
                part.finish_ns.map_or("-".to_owned(), microseconds),
                part.why.to_owned(),
                part.health.as_ref().map_or("-".to_owned(), Health::sentence),
            ]);
        }
        format!("{}\n{}", bold(&one.sentence()), table.render())
    };
    let mut all: Vec<_> = explained.iter().map(one).collect();
    if explained.iter().any(|one| one.rails.iter().any(|part| part.finish_ns.is_some())) {
        all.push(dim("Times and rates are what the transport has measured up to now. They differ \
             from run to run as the machine's load does; where two ways are nearly as good, so does the choice."));
    }
    // Of the rails, whatever the size.
    let rails = explained.first().into_iter().flat_map(|one| &one.rails);
    let remarks =
        rails.clone().filter_map(|part| Some(format!("{} {}: {}", part.rail, part.name, part.remark.as_ref()?)));
    all.extend(remarks);
    let memory = render_memory(rails.map(|part| (format!("{} {}", part.rail, part.name), part.memory.as_ref())));
    if !memory.is_empty() {
        all.push(memory);
    }
    all.join("\n\n")
}
