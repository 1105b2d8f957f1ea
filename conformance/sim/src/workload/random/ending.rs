//! What a simulation shows of itself, for the checkers: objects of devices, how full tables became, what was
//! counted.
//!
//! Each figure comes from two independent sources: the devices count what exists, rails
//! what they hold of it for a time; how many connections that takes is the core's number of subchannels, and
//! what a rail has once is in the scenario; the core counts packets where they leave and where they come; the
//! ledger counts messages.

use std::collections::{BTreeMap, BTreeSet};

use rerail_core::endpoint::{RailState, Stats, Usage};
use rerail_core::ids::{CounterId, PeerId};
use rerail_core::rail::RailKind;
use rerail_core::wire::HEADER_BYTES_MAX;
use rerail_linux::rail::RailUsage;
use rerail_linux::rail::verbs::VerbsOptions;

use crate::check::Ledger;
use crate::cluster::{Engine, View};
use crate::cover::Path;
use crate::hca::Objects;
use crate::scenario::VerbsSpec;

/// What is there, what should be, or may be: for [`Ending`](crate::check::Ending)'s lists.
type Facts = Vec<(String, u64, u64)>;

/// Objects of devices: what should be left, and what is. For so many completions rails may wait still that
/// devices keep back.
pub fn objects(view: &View<'_>, waited_for: u64) -> Facts {
    let mut all = Facts::new();
    let mut owned = 0;
    for rank in 0..view.size() {
        let found = view.objects_of(rank);
        owned += count(&found);
        let engine = view.engine(rank).filter(|_| view.is_alive(rank));
        let holds = engine.map(|engine| Holds {
            rails: held(engine.rails().map(|it| it.usage)),
            pairs: QueuePairs::of(view, rank, engine).and_failed(view.verbs().xrc, waited_for),
        });
        compare(&mut all, rank, &expected(&Made::of(view.verbs()), (found.contexts, found.qps), holds), &found);
        if let Some(engine) = engine {
            all.push((format!("rank {rank}: registrations for requests"), 0, engine.registrations() as u64));
        }
    }
    // Several processes may have one XRC target, or domain: what they have is not what there is.
    if !view.verbs().xrc {
        all.push(("objects of devices in all, and those of processes".into(), owned, view.device_objects() as u64));
    }
    all
}

/// What a rail makes once, by its scenario, where that is not one of each.
struct Made {
    shared_queues: u32,
    domains: u32,
}

impl Made {
    fn of(spec: &VerbsSpec) -> Made {
        if !spec.xrc {
            return Made { shared_queues: 1, domains: 0 };
        }
        // V-17
        let longest = spec.eager_bytes_max.max(spec.segment_bytes) as usize + HEADER_BYTES_MAX;
        let usual = || [256, 512, 1024, 2048, 4096, 8192].into_iter().filter(|size| *size < longest).count();
        let smaller = spec.srq_sizes.as_ref().map_or_else(usual, Vec::len);
        Made { shared_queues: smaller as u32 + 1, domains: 1 }
    }
}

/// How many connected queue pairs the subchannels of a process need over verbs rails: those that stand at
/// least, those that are being opened, or wait for it, too at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct QueuePairs {
    least: u32,
    most: u32,
}

impl QueuePairs {
    fn of(view: &View<'_>, rank: u32, engine: &Engine) -> QueuePairs {
        let by_xrc = view.verbs().xrc;
        let verbs = engine.rails().filter(|rail| rail.kind == RailKind::Verbs);
        let rails = verbs.map(|rail| {
            let state = |peer: u32| Some(engine.endpoint().rail_health(PeerId(peer), rail.id)?.state);
            let hosts = |which: fn(RailState) -> bool| {
                let peers = (0..view.size()).filter(|peer| *peer != rank && state(*peer).is_some_and(which));
                peers.map(|peer| view.host_of(peer)).collect::<Vec<u32>>()
            };
            let stand = QueuePairs::for_peers(by_xrc, &hosts(|state| state == RailState::Up));
            let wanted = QueuePairs::for_peers(by_xrc, &hosts(|state| state != RailState::Idle));
            QueuePairs { least: stand.least, most: wanted.most }
        });
        rails
            .fold(QueuePairs::default(), |sum, it| QueuePairs { least: sum.least + it.least, most: sum.most + it.most })
    }

    /// Beside these, of so many connections that have failed.
    fn and_failed(self, by_xrc: bool, connections: u64) -> QueuePairs {
        let each = if by_xrc { 2 } else { 1 };
        QueuePairs {
            most: self.most.saturating_add(connections.saturating_mul(each).min(u32::MAX.into()) as u32),
            ..self
        }
    }

    /// Those of one rail to peers on these hosts. By RC one each. By XRC a target for each of them, which
    /// sends by it; an initiator for each node, or more where calls did not wait for each other (V-15), one
    /// for each peer at most.
    fn for_peers(by_xrc: bool, hosts: &[u32]) -> QueuePairs {
        let (peers, nodes) = (hosts.len() as u32, hosts.iter().collect::<BTreeSet<_>>().len() as u32);
        if by_xrc {
            QueuePairs { least: peers + nodes, most: 2 * peers }
        } else {
            QueuePairs { least: peers, most: peers }
        }
    }
}

/// What a living process has of devices beside what its rails make once.
struct Holds {
    rails: RailUsage,
    pairs: QueuePairs,
}

fn count(objects: &Objects) -> u64 {
    let Objects { pds, mrs, cqs, qps, srqs, ahs, xrcds, .. } = *objects;
    [pds, mrs, cqs, qps, srqs, ahs, xrcds].into_iter().map(u64::from).sum()
}

/// What a process's rails report that they hold for a time, together.
fn held(rails: impl Iterator<Item = RailUsage>) -> RailUsage {
    rails.fold(RailUsage::default(), |sum, rail| RailUsage {
        registrations: sum.registrations + rail.registrations,
        handles: sum.handles + rail.handles,
        ..sum
    })
}

/// What a process may have of devices, of which so many work: what each verbs rail makes once, and what it
/// holds. Of queue pairs the number that is there, where it is one of those that may be. `None`: the process
/// was killed.
fn expected(made: &Made, (devices, queue_pairs): (u32, u32), holds: Option<Holds>) -> Objects {
    let Some(Holds { rails, pairs }) = holds else { return Objects::default() };
    Objects {
        contexts: devices,
        pds: devices,
        // One for the buffers, ...
        mrs: devices + rails.registrations,
        cqs: devices,
        // ... one for datagrams.
        qps: queue_pairs.clamp(devices + pairs.least, devices + pairs.most),
        srqs: devices * made.shared_queues,
        ahs: rails.handles,
        xrcds: devices * made.domains,
        registered_bytes: 0,
    }
}

fn compare(all: &mut Facts, rank: u32, expected: &Objects, found: &Objects) {
    let sorts = [
        ("devices", expected.contexts, found.contexts),
        ("protection domains", expected.pds, found.pds),
        ("memory regions", expected.mrs, found.mrs),
        ("completion queues", expected.cqs, found.cqs),
        ("queue pairs", expected.qps, found.qps),
        ("shared receive queues", expected.srqs, found.srqs),
        ("address handles", expected.ahs, found.ahs),
        ("XRC domains", expected.xrcds, found.xrcds),
    ];
    all.extend(sorts.map(|(what, wanted, there)| (format!("rank {rank}: {what}"), wanted.into(), there.into())));
}

/// One of each connection, one for datagrams.
const QUEUE_PAIRS: &str = "queue pairs";

/// The same with those that have failed and wait until the device has given back all that it has of them.
const QUEUE_PAIRS_FAILED: &str = "queue pairs, failed ones included";

/// What is bounded, at its worst moment: watched all the time.
#[derive(Debug, Default)]
pub struct Watch {
    /// By rank (`None`: all together) and what: the most that was seen, and the bound at that time.
    worst: BTreeMap<(Option<u32>, &'static str), (u64, u64)>,
}

impl Watch {
    /// Looks at every living rank.
    pub fn at_moment(&mut self, view: &View<'_>, ledger: &Ledger) {
        let mut messages = 0;
        for rank in (0..view.size()).filter(|rank| view.is_alive(*rank)) {
            let Some(engine) = view.engine(rank) else { continue };
            let usage = engine.endpoint().usage();
            messages += u64::from(usage.messages.used);
            self.tables(rank, &usage);
            let found = view.objects_of(rank);
            if found.contexts == 0 {
                continue;
            }
            let peers = u64::from(engine.size() - 1);
            let devices = u64::from(found.contexts);
            // By XRC an initiator and a target, where they are not shared.
            let each = if found.xrcds > 0 { 2 } else { 1 };
            self.note(Some(rank), QUEUE_PAIRS, found.qps.into(), devices * (1 + each * peers));
            // One of each connection, and the one before, from which the device still gives back what it has.
            self.note(Some(rank), QUEUE_PAIRS_FAILED, found.qps.into(), devices * (1 + 2 * each * peers));
            let most = u64::from(VerbsOptions::new(engine.size(), 0).registrations_max);
            let regions = devices * (1 + most);
            self.note(Some(rank), "memory regions", found.mrs.into(), regions);
        }
        // Whatever waits at a receiver was sent, and was not received.
        self.note(None, "messages held", messages, ledger.sent() - ledger.received());
    }

    fn tables(&mut self, rank: u32, usage: &Usage) {
        for (name, table) in usage.tables() {
            self.note(Some(rank), name, table.used.into(), table.capacity.into());
        }
    }

    /// Tables that were full at some time.
    pub fn full(&self) -> impl Iterator<Item = Path> {
        let full = self.worst.iter().filter(|(_, (reached, bound))| reached >= bound && *bound > 0);
        full.filter_map(|((_, what), _)| match *what {
            "packets" => Some(Path::PacketsFull),
            "blocks" => Some(Path::BlocksFull),
            "stripe_sets" => Some(Path::StripesFull),
            "retained" => Some(Path::RetainedFull),
            "unexpected" => Some(Path::UnexpectedFull),
            _ => None,
        })
    }

    /// Keeps what came closest to its bound, or went furthest beyond.
    fn note(&mut self, rank: Option<u32>, what: &'static str, reached: u64, bound: u64) {
        let beyond = |(reached, bound): (u64, u64)| i128::from(reached) - i128::from(bound);
        let worst = self.worst.entry((rank, what)).or_insert((reached, bound));
        if beyond((reached, bound)) > beyond(*worst) {
            *worst = (reached, bound);
        }
    }

    /// All of it. Where no fault happened, there are no failed queue pairs. A device that has kept a
    /// completion back, which it did `kept` times, never reports that it has given everything back, and such
    /// a queue pair waits for a second (`drain_time` of the rail); meanwhile others are made and fail.
    pub fn bounds(&self, fault_level: FaultLevel, kept: u64) -> Facts {
        let name =
            |rank: Option<u32>, what| rank.map_or_else(|| what_of_all(what), |rank| format!("rank {rank}: {what}"));
        let counts = |what| what != QUEUE_PAIRS || fault_level == FaultLevel::Quiet;
        let worst = self.worst.iter().filter(|((_, what), _)| counts(*what));
        let more = |what| if what == QUEUE_PAIRS_FAILED { kept } else { 0 };
        worst.map(|(&(rank, what), &(reached, bound))| (name(rank, what), reached, bound + more(what))).collect()
    }
}

fn what_of_all(what: &str) -> String {
    format!("all ranks: {what}")
}

/// How honest the ranks were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultLevel {
    /// No fault happened.
    Quiet,
    /// Faults happened.
    Rough,
}

/// What every rank counted, in a simulation that has come to rest. `messages`: those sent to a rank.
/// `all_arrive`: no channel was closed, with its last packets on their way.
pub fn statistics(
    stats: &[(u32, Stats)],
    messages: impl Fn(u32) -> u64,
    fault_level: FaultLevel,
    all_arrive: bool,
) -> Facts {
    let mut all = Facts::new();
    for &(rank, stats) in stats {
        let mut bound = |what: &str, reached, bound| all.push((format!("rank {rank}: {what}"), reached, bound));
        bound("messages before their receive", stats.unexpected, messages(rank));
        // Peers here keep to the protocol, and no rail delivers what its checksums show to be wrong.
        bound("malformed packets", stats.malformed_dropped, 0);
        if fault_level == FaultLevel::Quiet {
            bound("packets that came twice", stats.duplicates_dropped, 0);
        }
    }
    if fault_level == FaultLevel::Quiet {
        let sum = |of: fn(&Stats) -> u64| stats.iter().map(|(_, stats)| of(stats)).sum::<u64>();
        let (sent, received) = (sum(|stats| stats.packets_sent), sum(|stats| stats.packets_received));
        all.push(("packets received, of those sent".into(), received, sent));
        if all_arrive {
            all.push(("packets sent, of those received".into(), sent, received));
        }
    }
    all
}

/// Whether a bound holds where a rank lies. What it sends is in no ledger, and some of it is malformed for
/// its receivers.
pub fn holds_with_liar(what: &str) -> bool {
    !["messages held", "messages before their receive", "malformed packets"].iter().any(|of| what.ends_with(of))
}

/// What every completion counter of every living rank shows.
pub fn counters(view: &View<'_>) -> Vec<(u32, u16, u64)> {
    let living =
        (0..view.size()).filter(|rank| view.is_alive(*rank)).filter_map(|rank| Some((rank, view.engine(rank)?)));
    living
        .flat_map(|(rank, engine)| {
            let endpoint = engine.endpoint();
            let shown = move |counter| Some((rank, counter, endpoint.counter(CounterId(counter))?));
            (0..endpoint.config().counters_max).filter_map(shown)
        })
        .collect()
}

#[cfg(test)]
#[path = "ending_tests.rs"]
mod tests;
