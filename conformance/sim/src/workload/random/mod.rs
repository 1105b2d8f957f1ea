//! All sorts of requests between all ranks, drawn from the seed, under all checkers.

mod app;
mod ending;
mod plan;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use rerail_core::mem::Seg;
use rerail_core::time::Nanos;
use rerail_linux::rail::verbs::VerbsOptions;

use super::{Job, Parameters, WorkloadError, need_channels, need_operations};
use crate::check::{
    Crash, Damage, Deliveries, Ending, Ledger, Peek, Timeouts, Verdict, WindowMemory, judge, protected,
};
use crate::cluster::fault::Kind;
use crate::cluster::{App, Cluster, Ended, Moment, View, Workload};
use crate::rails;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::workload::COPIED_PUTS;
use app::{Marks, Player, SENDS_MAX, STEPS_MAX, Shared};
use ending::{FaultLevel, Watch};
use plan::{AT_START_MAX, LoadParameters, Plan, WINDOWS};

/// Messages of a simulation, unless its parameters set another number.
const MESSAGES: u64 = 100;

/// No rank here polls as late as that, and nothing moves as slowly.
const QUIET_STALL_MIN: Nanos = Nanos::from_millis(2);

/// Bytes of the largest of them.
const BYTES_MAX: u64 = 100_000;

/// A rank may have this part of its operations in posted receives of a turn.
const RECEIVES_PART: u64 = 3;

/// With so many operations a rank has one for everything that it has under way at once, whatever waits for
/// what: beside the receives of a turn those of its start, a multi-receive with its messages, a claimed one,
/// sends, one-sided requests.
const OPERATIONS_MIN: u64 = {
    let others = (AT_START_MAX + 1 + 1 + SENDS_MAX + STEPS_MAX) as u64;
    (others * RECEIVES_PART).div_ceil(RECEIVES_PART - 1)
};

/// The workload.
pub struct Random {
    shared: Rc<RefCell<Shared>>,
    timeout_ns: u64,
    /// The simulation rests for longer than rails wait for their devices.
    drains_long: bool,
    watch: Watch,
}

impl Random {
    /// Parameters: `messages`, `bytes_max`, `large_percent`, `plain_percent`, `one_sided`; `receives`: a rank
    /// posts so many at once, at most; `late`: wildcards are posted late; `pause_us`: ranks send nothing for
    /// so long now and then, at most; `closes`: peers are closed when all with them is over; `parks`: idle
    /// ones are parked now and then; `copied_puts`: some of the puts are of copies (`inject_put`).
    pub fn new(scenario: &Scenario, seed: u64, parameters: &mut Parameters) -> Result<Self, WorkloadError> {
        need_operations(scenario, seed, OPERATIONS_MIN)?;
        need_channels(scenario)?;
        let size = scenario.size();
        let configs = (0..size).map(|rank| scenario.core_config(rank, seed));
        let (mut operations, mut eager, mut retained, mut windows) = (u32::MAX, u32::MAX, u32::MAX, u32::MAX);
        for config in configs {
            operations = operations.min(config.operations_max);
            eager = eager.min(config.eager_bytes_max);
            retained = retained.min(config.retained_max);
            windows = windows.min(config.windows_max);
        }
        let load_parameters = LoadParameters {
            size,
            messages: parameters.number("messages", MESSAGES, 0, 1 << 20)?,
            bytes_max: parameters.number("bytes_max", BYTES_MAX, 0, 1 << 26)?,
            large_percent: parameters.number("large_percent", 0, 0, 100)?,
            plain_percent: parameters.number("plain_percent", 0, 0, 100)?,
            late: parameters.flag("late", false)?,
            receives_max: (operations as usize / RECEIVES_PART as usize)
                .min(parameters.number("receives", 64, 1, 64)? as usize),
            eager_bytes_max: eager.into(),
            inject: retained > 0,
            one_sided: parameters.flag("one_sided", true)?,
            liar: scenario.liar.as_ref().map(|liar| liar.rank),
            windows: windows >= WINDOWS,
        };
        let plan =
            Plan::draw(load_parameters, &mut Rng::new(seed, "random workload"), &mut Rng::new(seed, "plain messages"));
        let mut ledger = Ledger::new(size);
        app::open_windows(&plan, &mut ledger);
        if let Some(liar) = load_parameters.liar {
            ledger.set_liar(liar);
        }
        let mut towards = BTreeMap::new();
        for (rank, steps) in (0u32..).zip(&plan.steps) {
            for target in steps.iter().filter_map(|step| step.target()) {
                *towards.entry((rank, target)).or_insert(0) += 1;
            }
        }
        let (mut between, mut to) = (BTreeMap::<_, Vec<usize>>::new(), vec![Vec::new(); size as usize]);
        for (index, message) in plan.messages.iter().enumerate() {
            between.entry(app::pair(message.source, message.destination)).or_default().push(index);
            to[message.destination as usize].push(index);
        }
        let shared = Shared {
            between,
            to,
            towards,
            temporary: BTreeMap::new(),
            met: BTreeSet::new(),
            closed: BTreeSet::new(),
            closes: parameters.flag("closes", false)?,
            parked: BTreeSet::new(),
            parks: parameters.flag("parks", false)?,
            copied_puts: parameters.flag(COPIED_PUTS, false)?,
            pause_ns: parameters.number("pause_us", 0, 0, 1 << 20)? * 1000,
            plan,
            ledger,
            gone_windows: Marks::default(),
            received: Marks::default(),
            index: BTreeMap::new(),
            ranks: (0..size).map(|_| None).collect(),
            report_draws: Rng::new(seed, "how requests are told"),
        };
        let timeout_ns = scenario.limits.convergence.nanos().0;
        let drains_long = scenario.limits.rest.nanos() > VerbsOptions::new(size, 0).drain_time;
        Ok(Random { shared: Rc::new(RefCell::new(shared)), timeout_ns, drains_long, watch: Watch::default() })
    }

    fn judge_due(&self, view: &View<'_>) -> bool {
        let shared = &mut *self.shared.borrow_mut();
        if shared.ledger.has_due() {
            let mut ledger = std::mem::take(&mut shared.ledger);
            ledger.judge_due(view.now, &SlotReader { view, shared });
            shared.ledger = ledger;
        }
        !shared.ledger.has_findings()
    }
}

impl Workload for Random {
    fn app(&mut self, rank: u32, _size: u32) -> Box<dyn App> {
        Box::new(Player::new(rank, self.shared.clone()))
    }

    fn is_due(&self) -> bool {
        self.shared.borrow().ledger.has_due()
    }

    fn at_moment(&mut self, view: &View<'_>, moment: Moment) -> bool {
        if let Moment::Killed(rank) = moment {
            self.shared.borrow_mut().ledger.killed(rank, view.now);
        }
        // Whenever time goes on; several moments of the same time show the same tables.
        if moment != Moment::Due {
            self.watch.at_moment(view, &self.shared.borrow().ledger);
        }
        self.judge_due(view)
    }
}

impl Job for Random {
    fn deliveries(&self) -> Deliveries {
        Deliveries::of(&self.shared.borrow().ledger)
    }

    fn verdict(&mut self, cluster: &Cluster, ended: &Ended) -> Verdict {
        let view = cluster.view();
        let whole = self.judge_due(&view);
        let converged = *ended == Ended::Done || !whole;
        let crash = match ended {
            Ended::TooManyEvents { events } => {
                let message = format!("{events} events and no end: something goes round in circles");
                Some(Crash { rank: None, at: view.now, message })
            }
            _ => None,
        };
        let empty = |name: &str| !["channels", "windows", "timers"].contains(&name);
        let shared = self.shared.borrow();
        let living = (0..view.size()).filter(|rank| view.is_alive(*rank));
        let tables = living.flat_map(|rank| {
            let usage = view.usage(rank).map(|usage| usage.tables().to_vec()).unwrap_or_default();
            usage.into_iter().filter(move |(name, _)| empty(name)).map(move |(name, table)| (rank, name, table.used))
        });
        self.watch.full().for_each(|path| cluster.took(path));
        let ended_well = *ended == Ended::Done;
        // Of queue pairs whose device has not given everything back, a second has made an end.
        let waited_for = if self.drains_long { 0 } else { kept_back(cluster) };
        let mut bounds = self.watch.bounds(fault_level(cluster), kept_back(cluster));
        if ended_well {
            let stats = (0..view.size()).filter_map(|rank| Some((rank, view.engine(rank)?.endpoint().stats())));
            let messages = |rank| shared.ledger.sent_to(rank);
            let all_arrive = !(shared.closes || shared.parks);
            bounds.extend(ending::statistics(&stats.collect::<Vec<_>>(), messages, fault_level(cluster), all_arrive));
        }
        if shared.ledger.has_liar() {
            bounds.retain(|(what, ..)| ending::holds_with_liar(what));
        }
        let ending = Ending {
            at: view.now,
            converged,
            quiet: matches!(ended, Ended::Stuck { idle: true, .. }),
            crash,
            cuts: cluster.cuts(),
            hidden: cluster.hidden(),
            // Only a simulation that has come to rest has given everything back.
            tables: if ended_well { tables.collect() } else { Vec::new() },
            objects: if ended_well { ending::objects(&view, waited_for) } else { Vec::new() },
            bounds,
            counters: ending::counters(&view),
            timeout: Timeouts { wait_ns: self.timeout_ns, others: 50 },
        };
        judge(&shared.ledger, &ending, &SlotReader { view: &view, shared: &shared })
    }
}

/// With deadlines on the scale of faults a process that looks late may be taken for a rail that does nothing,
/// whether faults happen or not.
fn fault_level(cluster: &Cluster) -> FaultLevel {
    let view = cluster.view();
    let is_short = |rank| {
        let stall_min = view.engine(rank).map_or(Nanos(0), |engine| engine.endpoint().config().stall_min);
        stall_min > Nanos(0) && stall_min < QUIET_STALL_MIN
    };
    if cluster.faults().next().is_none() && !(0..view.size()).any(is_short) {
        FaultLevel::Quiet
    } else {
        FaultLevel::Rough
    }
}

/// Completions that faults have kept back, and queues of completions that broke.
fn kept_back(cluster: &Cluster) -> u64 {
    let of = |kind, amount: u64| match kind {
        Kind::NeverCompletes => amount.max(1),
        Kind::CqOverflow => 1,
        _ => 0,
    };
    cluster.faults().map(|(at, _)| of(at.fault.kind, at.fault.amount)).sum()
}

/// The memory of all ranks, as checkers read it.
struct SlotReader<'a> {
    view: &'a View<'a>,
    shared: &'a Shared,
}

impl Peek for SlotReader<'_> {
    fn peek(&self, rank: u32, seg: Seg) -> Option<&[u8]> {
        self.view.peek(rank, seg.at.region, seg.at.offset, seg.len)
    }

    fn slot(&self, rank: u32, slot: u32) -> Option<&[u8]> {
        let window = self.shared.ranks.get(rank as usize)?.as_ref()?.window;
        let bytes = *self.shared.plan.slots.get(slot as usize)?;
        self.view.peek(rank, window, self.shared.plan.slot_at(slot), bytes)
    }
}

impl WindowMemory for SlotReader<'_> {
    fn cell(&self, rank: u32, cell: u32) -> Option<u64> {
        let window = self.shared.ranks.get(rank as usize)?.as_ref()?.window;
        let bytes = self.view.peek(rank, window, u64::from(cell) * 8, 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }

    fn inspect(&self, rank: u32) -> Result<(), Damage> {
        let Some(memory) = self.shared.ranks.get(rank as usize).and_then(Option::as_ref) else { return Ok(()) };
        let Some(engine) = self.view.engine(rank) else { return Ok(()) };
        for (region, arena) in [&memory.receive, &memory.send] {
            if let Some(bytes) = rails::region(engine, *region) {
                arena.inspect(bytes).map_err(Damage::LateWrite)?;
            }
        }
        if let Some((region, withdrawn)) = memory.temporary.zip(memory.withdrawn.as_ref())
            && let Some(bytes) = rails::region(engine, region)
        {
            protected(withdrawn, bytes)?;
        }
        Ok(())
    }
}
