//! What each rail carried and was seen to do, as the core counts it.

use rerail_core::endpoint::{Change, RailHealth, RailState, RailStats, Why};
use rerail_core::ids::PeerId;
use rerail_core::rail::RailKind;
use rerail_linux::driver::{RailInfo, describe_fault};
use rerail_linux::rail::RailCounters;
use serde::{Deserialize, Serialize};

use crate::output::{Align, Table, bytes, microseconds, rate};
use crate::session::Session;

/// A rail's figures: what it carried since the last figures, and its present estimates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RailLine {
    /// Its number.
    pub rail: u8,
    /// Its name.
    pub name: String,
    /// Payload that it was given here.
    pub bytes: u64,
    /// Messages with a part on this rail.
    pub messages: u64,
    /// Packets, those without payload included.
    pub packets: u64,
    /// Its weight of 65,536.
    pub weight: u32,
    /// Bytes per second that it was last measured to move; 0: not measured.
    pub bytes_per_second: u64,
    /// From post to completion of a lone packet beside what its bytes take; 0: not measured.
    pub latency_ns: u64,
    /// Why its weight or rate was last changed; empty: it never was.
    pub changed: String,
    /// How long ago that was, in seconds.
    pub changed_ago: Option<f64>,
    /// Its health towards the other rank; absent: it has no connection.
    #[serde(default)]
    pub health: Option<Health>,
    /// Its use of registered memory; absent: it registers none.
    #[serde(default)]
    pub memory: Option<RegisteredMemory>,
}

/// Payload memory that a rail pins and maps for its device, and keeps for the next message from there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegisteredMemory {
    /// Posts and requests with memory that was registered already.
    pub hits: u64,
    /// Those with memory that had to be registered.
    pub misses: u64,
    /// The part of them all that were hits, from 0 to 1; absent: there were none.
    pub hit_rate: Option<f64>,
    /// Registrations that went to make room for others.
    pub evictions: u64,
    /// Bytes that are registered at the moment: pinned, but for rails with `verbs_on_demand`.
    pub pinned_bytes: u64,
    /// What a registration of 1 MiB that has to be made is taken to cost, in nanoseconds; 0: not measured.
    pub miss_1m_ns: u64,
}

impl RegisteredMemory {
    /// Since some counters; `None` for a rail that never registered anything.
    pub fn since(before: &RailCounters, rail: &RailInfo<'_>) -> Option<RegisteredMemory> {
        let now = &rail.counters;
        if now.registration_hits + now.registration_misses == 0 {
            return None;
        }
        let hits = now.registration_hits - before.registration_hits;
        let misses = now.registration_misses - before.registration_misses;
        Some(RegisteredMemory {
            hits,
            misses,
            hit_rate: (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64),
            evictions: now.registration_evictions - before.registration_evictions,
            pinned_bytes: now.registered_bytes,
            miss_1m_ns: rail.stats.registering.time(1 << 20).0,
        })
    }
}

/// Registered memory of rails as a table, by their names; empty where none registers any.
pub fn render_memory<'a>(rails: impl Iterator<Item = (String, Option<&'a RegisteredMemory>)>) -> String {
    let mut table = Table::new(&[
        ("registered memory", Align::Left),
        ("hits", Align::Right),
        ("misses", Align::Right),
        ("hit rate", Align::Right),
        ("evictions", Align::Right),
        ("pinned B", Align::Right),
        ("us to register 1 MiB", Align::Right),
    ]);
    let mut is_empty = true;
    for (name, memory) in rails {
        let Some(memory) = memory else { continue };
        is_empty = false;
        table.row([
            name,
            memory.hits.to_string(),
            memory.misses.to_string(),
            memory.hit_rate.map_or("-".to_owned(), |rate| format!("{:.1} %", 100.0 * rate)),
            memory.evictions.to_string(),
            memory.pinned_bytes.to_string(),
            if memory.miss_1m_ns == 0 { "-".to_owned() } else { microseconds(memory.miss_1m_ns) },
        ]);
    }
    if is_empty { String::new() } else { table.render() }
}

/// How a rail fares on the way to a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// `up`, `opening`, `down` (and waiting to be opened again) or `idle`.
    pub state: String,
    /// Since when it is up, or not, in seconds ago; absent: it never was up.
    pub since_ago: Option<f64>,
    /// Connections that were up and failed.
    pub failures: u32,
    /// How often it came back.
    pub returns: u32,
    /// Connections that could not be opened.
    pub refusals: u32,
    /// The last fault as reported; empty: nothing ever failed.
    pub fault: String,
}

impl Health {
    /// From the transport's report; `now_ns`: by the clock of its times.
    pub fn of(health: &RailHealth, now_ns: u64) -> Health {
        let state = match health.state {
            RailState::Idle => "idle",
            RailState::Opening => "opening",
            RailState::Up => "up",
            RailState::Down { .. } => "down",
        };
        let since = (health.since.0 > 0).then(|| now_ns.saturating_sub(health.since.0) as f64 / 1e9);
        Health {
            state: state.to_owned(),
            since_ago: since,
            failures: health.failures,
            returns: health.returns,
            refusals: health.refusals,
            fault: health.fault.map_or(String::new(), describe_fault),
        }
    }

    /// For people.
    pub fn sentence(&self) -> String {
        let since = self.since_ago.map_or(String::new(), |ago| format!(" for {ago:.1} s"));
        let mut text = format!("{}{since}", self.state);
        if self.failures + self.refusals > 0 {
            let Health { failures, returns, refusals, fault, .. } = self;
            text += &format!("; failed {failures}, came back {returns}, not to be had {refusals} times; last: {fault}");
        }
        text
    }
}

/// The rails' figures from one moment on.
#[derive(Clone, Debug)]
pub struct Rails {
    before: Vec<(RailStats, RailCounters)>,
}

impl Rails {
    /// From now on.
    pub fn since_now(session: &Session) -> Rails {
        Rails { before: session.transport().rails().map(|rail| (rail.stats, rail.counters)).collect() }
    }

    /// Payload that each rail was given since then, by number, the loopback among them.
    pub fn bytes(&self, session: &Session) -> Vec<u64> {
        let now = session.transport().rails().map(|rail| rail.stats.bytes);
        now.zip(&self.before).map(|(now, (before, _))| now - before.bytes).collect()
    }

    /// What they did since then: of all rails that ever carried a packet to another process.
    pub fn lines(&self, session: &Session) -> Vec<RailLine> {
        let now = monotonic_ns();
        // The figures are those between two ranks; with more ranks there is no single peer.
        let peer = (session.size() == 2).then(|| PeerId(1 - session.rank()));
        let health = |rail| peer.and_then(|peer| session.transport().endpoint().rail_health(peer, rail));
        let used = |rail: &RailInfo<'_>| rail.kind != RailKind::Loop && rail.stats.packets > 0;
        let rails = session.transport().rails().zip(&self.before).filter(|(rail, _)| used(rail));
        let line = |(rail, (before, counters)): (RailInfo<'_>, &(RailStats, RailCounters))| RailLine {
            rail: rail.id.0,
            name: rail.name.to_owned(),
            bytes: rail.stats.bytes - before.bytes,
            messages: rail.stats.messages - before.messages,
            packets: rail.stats.packets - before.packets,
            weight: rail.stats.weight,
            bytes_per_second: rail.stats.bytes_per_second,
            latency_ns: rail.stats.latency.0,
            changed: rail.stats.changed.map_or(String::new(), |change| reason(&change)),
            changed_ago: rail.stats.changed.map(|change| now.saturating_sub(change.at.0) as f64 / 1e9),
            health: health(rail.id).map(|health| Health::of(&health, now)),
            memory: RegisteredMemory::since(counters, &rail),
        };
        rails.map(line).collect()
    }
}

/// The transport's clock.
pub fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Why a weight or rate was changed, in words.
fn reason(change: &Change) -> String {
    let Change { why, from, to, .. } = *change;
    let rates = format!("{} to {} MB/s", rate(from as f64), rate(to as f64));
    match why {
        Why::Measured => format!("first measured: {} MB/s", rate(to as f64)),
        Why::Jump => format!("rate jumped: {rates}"),
        Why::Stripes => format!("stripes' times: weight {from} to {to}"),
        Why::Set => format!("set: weight {from} to {to}"),
        Why::Planned => format!("planned: weight {from} to {to}"),
    }
}

/// As a table; empty where there are no rails.
pub fn render(lines: &[RailLine]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("rail", Align::Left),
        ("share", Align::Right),
        ("bytes", Align::Right),
        ("messages", Align::Right),
        ("weight", Align::Right),
        ("measured MB/s", Align::Right),
        ("latency us", Align::Right),
        ("last change", Align::Left),
        ("health", Align::Left),
    ]);
    let total = lines.iter().map(|line| line.bytes).sum::<u64>().max(1);
    let measured = |value: u64, text: String| if value == 0 { "-".to_owned() } else { text };
    for line in lines {
        let ago = line.changed_ago.map_or(String::new(), |ago| format!(" ({ago:.1} s ago)"));
        table.row([
            format!("{} {}", line.rail, line.name),
            format!("{:.1} %", 100.0 * line.bytes as f64 / total as f64),
            bytes(line.bytes),
            line.messages.to_string(),
            line.weight.to_string(),
            measured(line.bytes_per_second, rate(line.bytes_per_second as f64)),
            measured(line.latency_ns, microseconds(line.latency_ns)),
            format!("{}{ago}", line.changed),
            line.health.as_ref().map_or("-".to_owned(), Health::sentence),
        ]);
    }
    let memory = lines.iter().map(|line| (format!("{} {}", line.rail, line.name), line.memory.as_ref()));
    let memory = render_memory(memory);
    let gap = if memory.is_empty() { "" } else { "\n\n" };
    format!("{}{gap}{memory}", table.render())
}
