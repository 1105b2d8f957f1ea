//! shiba-2005, figures 3 to 7, and the reads of section 3.
//!
//! The paper's text gives two values, 400 MByte/s and 1 GByte/s, both of messages of 512 KiB, and no sizes
//! of its curves. Nothing of the testbeds is fitted to these: the adapter is that of multirail-2004's
//! figures, and memory follows from the machines' data sheets and the paper's word on memcpy (see
//! `shiba-2005.toml`). Costs of polls and the latency of a cache line are assumptions; no claim lies near
//! what they decide.

use rerail_core::config::Policy;
use rerail_linux::rail::shm::RingReads;

use super::multirail::{megabytes, point};
use super::{Axis, Claim, Effort, Figure, FigureError, Lab, Relation, Run, Scale, Series, Stated};
use crate::scenario::{HcaSpec, ProgressSpec, RailSpec, Scenario, WorkloadSpec};

/// A machine of the paper.
#[derive(Clone, Copy)]
struct Machine {
    name: &'static str,
    file: &'static str,
    text: &'static str,
    /// Bytes of a processor's second-level cache.
    cache_bytes: u64,
}

const XEON: Machine = Machine {
    name: "Xeon",
    file: "shiba-2005.toml",
    text: include_str!("../../../scenarios/shiba-2005.toml"),
    cache_bytes: 512 << 10,
};

const OPTERON: Machine = Machine {
    name: "Opteron",
    file: "shiba-2005-opteron.toml",
    text: include_str!("../../../scenarios/shiba-2005-opteron.toml"),
    cache_bytes: 1 << 20,
};

/// Eager messages of the paper (2.3.3): over InfiniBand, and over shared memory.
const SWITCH: u32 = 8 << 10;
const SHM_SWITCH: u32 = 256 << 10;

/// The size for which the paper states bandwidths.
const STATED_AT: u64 = 512 << 10;

/// By how much a value that is stated may be missed: it is read off a curve, with one digit.
const ABSOLUTE: f64 = 0.15;

/// What paths that do the same may differ by.
const COMPARABLE: f64 = 0.02;

/// How far the better of two rails may be missed where both are there.
const CHOICE: f64 = 0.05;

impl Machine {
    /// Its scenario, for messages of so many bytes. A process that sends and receives such messages again and
    /// again uses both buffers and both rings, each as long as the message: where all that stays in the
    /// caches, only the way from cache to cache is left.
    fn scenario(self, bytes: u64) -> Result<Scenario, FigureError> {
        let mut scenario = Scenario::parse(self.file, self.text)?;
        scenario.config.eager_bytes_max = Some(SWITCH);
        scenario.config.bulk_max = Some(128);
        // The paper's MPI has one rail between two processes; the policies that cut messages are ours.
        (scenario.config.multiplex, scenario.config.striping) = (Some(Policy::Binding), Some(Policy::Binding));
        if 4 * bytes <= self.cache_bytes {
            scenario.shm.copies.out_bytes_per_second = scenario.shm.copies.in_bytes_per_second;
        }
        Ok(scenario)
    }
}

/// Sizes and repetitions.
struct Plan {
    sizes: Vec<u64>,
    broadcast: Vec<u64>,
    rounds: u32,
    kernel_rounds: u32,
}

impl Plan {
    fn new(effort: Effort) -> Plan {
        let powers = |from: u32, to: u32, step: usize| (from..=to).step_by(step).map(|power| 1 << power).collect();
        match effort {
            Effort::Quick => Plan {
                sizes: vec![1 << 3, 1 << 13, 1 << 16, 1 << 18, 1 << 19, 1 << 20],
                broadcast: vec![1 << 10, 1 << 16, 1 << 20],
                rounds: 4,
                kernel_rounds: 4,
            },
            Effort::Full => Plan { sizes: powers(2, 22, 1), broadcast: powers(2, 22, 1), rounds: 16, kernel_rounds: 9 },
        }
    }
}

/// Figures 3 to 7, and one for section 3.
///
/// # Errors
/// [`FigureError`] where a simulation did not end clean.
pub(super) fn figures(lab: &mut Lab<'_>, effort: Effort) -> Result<Vec<Figure>, FigureError> {
    let plan = Plan::new(effort);
    Ok(vec![
        figure_3(lab, &plan)?,
        figure_4(lab, &plan)?,
        figure_5(lab, &plan)?,
        figure_6(lab, &plan)?,
        figure_7(lab, &plan)?,
        section_3(lab, &plan)?,
    ])
}

/// How two processes are joined.
#[derive(Clone, Copy)]
enum Way {
    /// On one node, by shared memory.
    Shm,
    /// On two nodes.
    Infiniband,
    /// On two nodes, by the adapter for PCI Express.
    Express,
    /// On one node, by shared memory and that adapter, as `balanced` chooses.
    Balanced,
}

impl Way {
    fn apply(self, scenario: &mut Scenario) {
        let hca = RailSpec::Hca { hca: 0, port: 0, path: 0 };
        if matches!(self, Way::Express | Way::Balanced) {
            let cost = scenario.hcas[0].cost;
            scenario.hcas = vec![HcaSpec { device: "infinihost3-pcie".into(), cost, ..HcaSpec::default() }];
        }
        let (hosts, rails) = match self {
            Way::Shm => (1, vec![RailSpec::Shm {}]),
            Way::Infiniband | Way::Express => (2, vec![hca]),
            Way::Balanced => (1, vec![RailSpec::Shm {}, hca]),
        };
        (scenario.hosts, scenario.ranks_per_host, scenario.rails) = (hosts, 2 / hosts, rails);
        if matches!(self, Way::Balanced) {
            scenario.shm.others_beside = true;
            (scenario.config.multiplex, scenario.config.striping) = (Some(Policy::Balanced), Some(Policy::Balanced));
        }
    }
}

/// A run in which all ranks begin rounds of `workload` at moments far enough apart.
fn rounds(what: String, mut scenario: Scenario, workload: &str, bytes: u64, rounds: u32) -> Run {
    let mut parameters = toml::Table::new();
    parameters.insert("bytes".into(), (bytes as i64).into());
    parameters.insert("rounds".into(), rounds.into());
    parameters.insert("every".into(), "100ms".into());
    scenario.workload = WorkloadSpec { name: workload.into(), parameters };
    scenario.limits.safety = crate::scenario::Span::from_millis(100 * (u64::from(rounds) + 2));
    Run { what, scenario }
}

/// Curves over sizes: microseconds of a round.
fn curves<T: Copy>(
    lab: &mut Lab<'_>,
    workload: &str,
    (sizes, times): (&[u64], u32),
    kinds: &[(&str, T)],
    make: impl Fn(T, u64) -> Result<Scenario, FigureError>,
) -> Result<Vec<Series>, FigureError> {
    let mut runs = Vec::new();
    for (name, kind) in kinds {
        for bytes in sizes {
            let what = format!("shiba-2005, {workload}, {name}: {bytes} bytes");
            runs.push(rounds(what, make(*kind, *bytes)?, workload, *bytes, times));
        }
    }
    let results = lab.run(&runs)?;
    let series = kinds.iter().zip(results.chunks(sizes.len())).map(|((name, _), results)| Series {
        name: (*name).into(),
        points: results.iter().flatten().map(point).collect(),
    });
    Ok(series.collect())
}

/// Times of an exchange as bandwidth: bytes of a message over its microseconds are MB/s of each direction.
fn to_bandwidth(series: &mut [Series]) {
    series.iter_mut().flat_map(|series| &mut series.points).for_each(|point| point.1 = point.0 / point.1);
}

fn sendrecv(
    lab: &mut Lab<'_>,
    plan: &Plan,
    machine: Machine,
    ways: &[(&str, Way)],
) -> Result<Vec<Series>, FigureError> {
    let mut series = curves(lab, "all-to-all", (&plan.sizes, plan.rounds), ways, |way, bytes| {
        let mut scenario = machine.scenario(bytes)?;
        way.apply(&mut scenario);
        Ok(scenario)
    })?;
    to_bandwidth(&mut series);
    Ok(series)
}

fn claim(name: &str, relation: Relation, expected: f64, tolerance: f64, measured: Option<f64>) -> Claim {
    // What was measured nowhere holds nowhere.
    Claim { name: name.into(), expected, relation, tolerance, measured: measured.unwrap_or(f64::NAN), unit: "" }
}

fn about_stated(name: &str, expected: f64, series: &Series) -> Claim {
    let measured = series.at(STATED_AT as f64);
    Claim { unit: "MB/s", ..claim(name, Relation::About, expected, ABSOLUTE, measured) }
}

/// The least ratio of one curve to another over sizes that `wanted` takes.
fn least(series: &Series, other: &Series, wanted: impl Fn(u64) -> bool) -> Option<f64> {
    series.over(other).filter(|point| wanted(point.0 as u64)).map(|point| point.1).reduce(f64::min)
}

/// The greatest one.
fn most(series: &Series, other: &Series, wanted: impl Fn(u64) -> bool) -> Option<f64> {
    series.over(other).filter(|point| wanted(point.0 as u64)).map(|point| point.1).reduce(f64::max)
}

const WAYS: [(&str, Way); 2] = [("shared memory", Way::Shm), ("InfiniBand, two nodes", Way::Infiniband)];

fn figure_3(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    let series = sendrecv(lab, plan, OPTERON, &WAYS)?;
    let (shm, infiniband) = (&series[0], &series[1]);
    let claims = vec![
        about_stated("512K: shared memory", 1000.0, shm),
        claim(
            "shared memory over InfiniBand, the worst size",
            Relation::AtLeast,
            1.0,
            0.0,
            least(shm, infiniband, |_| true),
        ),
        claim(
            "smallest message: time over InfiniBand's, much better",
            Relation::AtMost,
            0.5,
            0.0,
            infiniband.over(shm).next().map(|point| point.1),
        ),
    ];
    Ok(Figure {
        source: "shiba-2005, figure 3".into(),
        title: "Sendrecv with shared memory on and off, Opteron".into(),
        paper: "MPI_Sendrecv of two processes, by shared memory and by InfiniBand, eager up to 8K by both: bandwidth and latency \
                of shared memory are much better. At 512K the Opteron sustains 1 GByte/s."
            .into(),
        ours: exchange(OPTERON, plan),
        timeline: None,
        x: Axis::message_bytes(),
        y: megabytes(),
        stated: vec![Stated { name: "paper: shared memory at 512K".into(), value: 1000.0 }],
        series,
        claims,
    })
}

fn figure_4(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    let ways = [
        WAYS[0],
        WAYS[1],
        ("InfiniBand on PCI Express, two nodes", Way::Express),
        ("one node, both, balanced", Way::Balanced),
    ];
    let series = sendrecv(lab, plan, XEON, &ways)?;
    let (shm, infiniband, express, balanced) = (&series[0], &series[1], &series[2], &series[3]);
    let large = |bytes: u64| bytes >= STATED_AT;
    let claims = vec![
        about_stated("512K: shared memory", 400.0, shm),
        claim(
            "512K: shared memory over InfiniBand, the same performance",
            Relation::About,
            1.0,
            ABSOLUTE,
            least(shm, infiniband, |bytes| bytes == STATED_AT),
        ),
        claim(
            "the same below 512K, the worst size: better there",
            Relation::AtLeast,
            1.0,
            ABSOLUTE,
            least(shm, infiniband, |bytes| !large(bytes)),
        ),
        claim(
            "the same above 512K, the best size: no longer better",
            Relation::AtMost,
            1.0,
            COMPARABLE,
            most(shm, infiniband, |bytes| bytes > STATED_AT),
        ),
        claim(
            "PCI Express over shared memory from 512K on, the worst size",
            Relation::AtLeast,
            1.0,
            0.0,
            least(express, shm, large),
        ),
        claim("PCI Express over PCI-X, peaks", Relation::AtLeast, 2.0, 0.1, Some(express.peak() / infiniband.peak())),
        claim(
            "one node, both, balanced, over shared memory alone above 256K, the worst size",
            Relation::AtLeast,
            1.0,
            0.0,
            least(balanced, shm, |bytes| bytes > SHM_SWITCH.into()),
        ),
        claim(
            "the same from 8K to 256K",
            Relation::AtLeast,
            1.0,
            CHOICE,
            least(balanced, shm, |bytes| bytes >= SWITCH.into() && bytes <= SHM_SWITCH.into()),
        ),
    ];
    Ok(Figure {
        source: "shiba-2005, figure 4".into(),
        title: "Sendrecv with shared memory on and off, Xeon".into(),
        paper: "As figure 3 for the Xeon, both of whose processors share a bus: at 512K shared memory has the same performance \
                as InfiniBand, 400 MByte/s; it is much better but for larger messages. Adapters on PCI Express achieve twice \
                the bandwidth: there it would be better to switch back to InfiniBand above 256K."
            .into(),
        ours: format!(
            "{} Both values are read off a curve with one digit, hence the tolerances; InfiniBand, as multirail-2004's testbed has \
             it, comes to {:.0} MB/s at 512K here. Balanced has both rails to the process on its node; through the one \
             adapter a message crosses its bus twice. Polling the adapter, too, costs small messages: {:.0} % of the speed over \
             shared memory alone at worst.",
            exchange(XEON, plan),
            infiniband.at(STATED_AT as f64).unwrap_or(f64::NAN),
            100.0 * least(balanced, shm, |_| true).unwrap_or(f64::NAN),
        ),
        timeline: None,
        x: Axis::message_bytes(),
        y: megabytes(),
        stated: vec![Stated { name: "paper: both at 512K".into(), value: 400.0 }],
        series,
        claims,
    })
}

fn figure_5(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    let switches = [("constant, 8K", SWITCH), ("variable, 256K", SHM_SWITCH)];
    let mut series = curves(lab, "all-to-all", (&plan.sizes, plan.rounds), &switches, |switch, bytes| {
        let mut scenario = OPTERON.scenario(bytes)?;
        Way::Shm.apply(&mut scenario);
        // Here an eager message is one packet, so slots are as long in both.
        (scenario.shm.slot_bytes, scenario.shm.slots) = (SHM_SWITCH, 2);
        (scenario.config.block_bytes, scenario.config.blocks_per_peer) = (Some(16 << 10), Some(32));
        scenario.config.eager_bytes_max = Some(switch);
        Ok(scenario)
    })?;
    to_bandwidth(&mut series);
    let (constant, variable) = (&series[0], &series[1]);
    let between = |bytes: u64| bytes > SWITCH.into() && bytes <= SHM_SWITCH.into();
    let claims = vec![
        claim(
            "variable over constant from 8K to 256K, the worst size",
            Relation::AtLeast,
            1.0,
            0.0,
            least(variable, constant, between),
        ),
        claim(
            "the same, the best size: better, not only as good",
            Relation::AtLeast,
            1.0 + COMPARABLE,
            0.0,
            most(variable, constant, between),
        ),
        claim(
            "variable over constant elsewhere, the worst size",
            Relation::AtLeast,
            1.0,
            COMPARABLE,
            least(variable, constant, |bytes| !between(bytes)),
        ),
    ];
    Ok(Figure {
        source: "shiba-2005, figure 5".into(),
        title: "Sendrecv with constant and variable switch from eager to rendezvous".into(),
        paper: "MPI_Sendrecv by shared memory on the Opteron, with the switch at 8K as for InfiniBand and at 256K: a better \
                performance is achieved with a different switch for shared memory. No number is stated."
            .into(),
        ours: format!("{} Rings of two packets of 256K.", exchange(OPTERON, plan)),
        timeline: None,
        x: Axis::message_bytes(),
        y: megabytes(),
        stated: Vec::new(),
        series,
        claims,
    })
}

fn figure_6(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    let policies =
        [("adaptive", ProgressSpec::Adaptive), ("toggle", ProgressSpec::Toggle), ("ours", ProgressSpec::Timed)];
    let series = curves(lab, "broadcast", (&plan.broadcast, plan.rounds), &policies, |policy, bytes| {
        let mut scenario = OPTERON.scenario(bytes)?;
        (scenario.hosts, scenario.cpu.progress) = (3, policy);
        Ok(scenario)
    })?;
    let (adaptive, toggle, ours) = (&series[0], &series[1], &series[2]);
    let large = |bytes: u64| bytes >= 64 << 10;
    let claims = vec![
        claim(
            "toggle over adaptive from 64K on, the worst size",
            Relation::AtMost,
            1.0,
            0.0,
            most(toggle, adaptive, large),
        ),
        claim(
            "ours over adaptive from 64K on, the worst size",
            Relation::AtMost,
            1.0,
            0.0,
            most(ours, adaptive, large),
        ),
        claim("ours over toggle, the worst size", Relation::AtMost, 1.0, COMPARABLE, most(ours, toggle, |_| true)),
    ];
    Ok(Figure {
        source: "shiba-2005, figure 6".into(),
        title: "Broadcast with toggle and adaptive progress".into(),
        paper: "MPI_Bcast on the Opteron with both progress engines: toggle shows a better performance than adaptive for bigger \
                messages, because of the calculations of the latter. No number is stated."
            .into(),
        ours: format!(
            "Time until the slowest of six processes on three nodes has the message, down a binomial tree; mean of {} after one \
             that is not counted. A poll of shared memory or of the adapter takes 100 ns (assumed), the calculations nothing: \
             what adaptive progress loses is polls of the kind that nothing comes by. With smaller messages it is faster where a \
             process expects shared memory alone, and ours takes up to {:.1} % longer. Ours polls all rails while the adapter \
             has work, and rings alone otherwise; the simulation only has the former.",
            plan.rounds - 1,
            100.0 * (most(ours, adaptive, |_| true).unwrap_or(f64::NAN) - 1.0),
        ),
        timeline: None,
        x: Axis::message_bytes(),
        y: Axis { label: "latency".into(), unit: "us".into(), scale: Scale::Log10 },
        stated: Vec::new(),
        series,
        claims,
    })
}

/// Messages of an iteration of LU, class B, of 64 processes on an 8 x 8 grid: its loops have 102^3 points of
/// five numbers. A process sends a row of 13 points to each of two neighbours for each of 100 planes, in the
/// lower and in the upper sweep, and two faces of two layers before.
const LU: [(u64, f64); 2] = [(5 * 8 * 13, 2.0 * 100.0), (5 * 8 * 2 * 13 * 102, 2.0)];

fn figure_7(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    const MACHINES: [Machine; 2] = [XEON, OPTERON];
    let mut runs = Vec::new();
    for machine in MACHINES {
        for on in [false, true] {
            for (bytes, _) in LU {
                for rounds in [1, plan.kernel_rounds] {
                    let mut scenario = machine.scenario(bytes)?;
                    (scenario.hosts, scenario.ranks_per_host) = (32, 2);
                    if !on {
                        scenario.rails = vec![RailSpec::Hca { hca: 0, port: 0, path: 0 }];
                    }
                    let mut parameters = toml::Table::new();
                    parameters.insert("rounds".into(), rounds.into());
                    parameters.insert("bytes".into(), (bytes as i64).into());
                    scenario.workload = WorkloadSpec { name: "nas-lu".into(), parameters };
                    let what = format!("shiba-2005, nas-lu, {}, {bytes} bytes, {rounds} rounds", machine.name);
                    runs.push(Run { what, scenario });
                }
            }
        }
    }
    let done = lab.each(&runs, super::lab::done_ns)?;
    // Milliseconds of an iteration, by machine, off and on.
    let iterations: Vec<f64> = done
        .chunks(2 * LU.len())
        .map(|done| {
            let round = |ends: &[u64]| ends[1].saturating_sub(ends[0]) as f64 / f64::from(plan.kernel_rounds - 1);
            done.chunks(2).zip(LU).map(|(ends, (_, times))| round(ends) * times / 1e6).sum()
        })
        .collect();
    let series = ["InfiniBand alone", "with shared memory"].into_iter().enumerate().map(|(on, name)| Series {
        name: name.into(),
        points: (0..MACHINES.len()).map(|machine| (machine as f64, iterations[2 * machine + on])).collect(),
    });
    let over = |machine: usize| Some(iterations[2 * machine + 1] / iterations[2 * machine]);
    let claims = vec![
        claim("Xeon: time with shared memory over that without", Relation::AtMost, 1.0, CHOICE, over(0)),
        claim("Opteron: the same", Relation::AtMost, 1.0, 0.0, over(1)),
    ];
    Ok(Figure {
        source: "shiba-2005, figure 7".into(),
        title: "Communication of LU, class B".into(),
        paper: "The NAS benchmark LU, class B, on 32 nodes of two processors: almost no effects of shared memory on the Xeon, a \
                little gain on the Opteron, which computes more than 50 % faster."
            .into(),
        ours: "What the kernel's messages take per iteration, without its computing, which the paper's values are mostly: no \
               claim is made about the 50 %, nor how small the gain is. Pairs of xrc-2008's LU; a round of 520 bytes 200 times, \
               one of 106,080 bytes twice (from the kernel's loops), each as the difference of two simulations."
            .into(),
        timeline: None,
        x: Axis { label: "cluster".into(), unit: String::new(), scale: Scale::Names(&["Xeon", "Opteron"]) },
        y: Axis { label: "communication of an iteration".into(), unit: "ms".into(), scale: Scale::Linear },
        stated: Vec::new(),
        series: series.collect(),
        claims,
    })
}

fn section_3(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    let policies = [
        ("single", RingReads::Single),
        ("contiguous", RingReads::Contiguous),
        ("post", RingReads::Post),
        ("immediate", RingReads::Immediate),
        ("ours", RingReads::Burst),
    ];
    let sizes: Vec<u64> = plan.sizes.iter().copied().filter(|bytes| *bytes > SWITCH.into()).collect();
    let mut series = curves(lab, "all-to-all", (&sizes, plan.rounds), &policies, |reads, bytes| {
        let mut scenario = OPTERON.scenario(bytes)?;
        Way::Shm.apply(&mut scenario);
        scenario.shm.ring_reads = reads;
        Ok(scenario)
    })?;
    to_bandwidth(&mut series);
    let at_least = |name: &str, of: usize, other: usize, tolerance: f64| {
        claim(name, Relation::AtLeast, 1.0, tolerance, least(&series[of], &series[other], |_| true))
    };
    let claims = vec![
        at_least("contiguous over single, the worst size", 1, 0, 0.0),
        claim(
            "the same, the best size: better, not only as good",
            Relation::AtLeast,
            1.0 + COMPARABLE,
            0.0,
            most(&series[1], &series[0], |_| true),
        ),
        at_least("post over contiguous, the worst size", 2, 1, 0.0),
        at_least("immediate over contiguous, the worst size", 3, 1, COMPARABLE),
        at_least("ours over immediate, the worst size", 4, 3, COMPARABLE),
        at_least("ours over single, the worst size", 4, 0, 0.0),
    ];
    Ok(Figure {
        source: "shiba-2005, section 3".into(),
        title: "Reads of large messages out of the ring".into(),
        paper: "Reading one packet of each queue in turn can leave a window of one packet. Contiguous-Read takes all remaining \
                packets of a message when its connection is checked next, Progress-Post-Read at once if the message is longer \
                than the queue, Immediate-Read at once. No figure, no number."
            .into(),
        ours: format!("{} Large messages go through the ring in packets of 8K.", exchange(OPTERON, plan)),
        timeline: None,
        x: Axis::message_bytes(),
        y: megabytes(),
        stated: Vec::new(),
        series,
        claims,
    })
}

fn exchange(machine: Machine, plan: &Plan) -> String {
    format!(
        "Two processes that send to each other at once, MB/s of each direction: bytes of a message over the time until the slower \
         one has finished, beginning at one moment; mean of {} after one that is not counted. Simulated nodes (scenario {}): \
         the adapter is multirail-2004's; memory carries three times what a memcpy copies, which is a fourth of its bandwidth \
         (4.2), and a message moves over it four times, once where messages and rings stay in the caches ({} K). Not fitted to \
         the stated values; sizes are our choice.",
        plan.rounds - 1,
        machine.file,
        machine.cache_bytes >> 10,
    )
}
