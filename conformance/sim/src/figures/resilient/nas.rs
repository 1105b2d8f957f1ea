//! resilient-2010, figure 5 and table I: the NAS kernels' patterns, in what time with reliability on and off,
//! and how much memory holds copies of messages.
//!
//! The patterns (pairs of processes and sizes of messages) are those of 64 processes
//! ([`crate::workload`]); the paper ran 256. They compute nothing, so all their time is communication, and
//! what reliability costs is not hidden behind anything.

use std::cell::Cell;
use std::rc::Rc;

use rerail_core::endpoint::Event;

use super::{KEY_SETS, Rendezvous, at_most, configure, greatest, testbed};
use crate::check::Verdict;
use crate::cluster::{App, Cluster, Cx, Moment, Phase, View, Workload};
use crate::figures::lab::SEED;
use crate::figures::{Axis, Claim, Effort, Figure, FigureError, Lab, Run, Scale, Series, Stated};
use crate::scenario::{Scenario, WorkloadSpec};
use crate::trace::Trace;
use crate::workload::{Job, application, make};

/// A kernel as table I has it.
struct Kernel {
    /// The workload here.
    workload: &'static str,
    /// Table I: megabytes a process with reliability, and without.
    paper: [f64; 2],
    /// How many sizes of messages its times are means over.
    sizes: u32,
    /// Rounds of the longer of the two simulations that a time is the difference of.
    rounds: u32,
}

/// Their names in the order of table I.
const NAMES: &[&str] = &["BT", "CG", "FT", "IS", "LU", "MG", "SP"];

const KERNELS: [Kernel; 7] = [
    Kernel { workload: "nas-bt", sizes: 11, rounds: 9, paper: [3.46, 3.20] },
    Kernel { workload: "nas-cg", sizes: 11, rounds: 9, paper: [6.92, 6.48] },
    Kernel { workload: "nas-ft", sizes: 3, rounds: 3, paper: [0.07, 0.07] },
    Kernel { workload: "nas-is", sizes: 7, rounds: 7, paper: [0.01, 0.01] },
    Kernel { workload: "nas-lu", sizes: 11, rounds: 9, paper: [1.65, 1.53] },
    Kernel { workload: "nas-mg", sizes: 11, rounds: 9, paper: [0.16, 0.13] },
    Kernel { workload: "nas-sp", sizes: 11, rounds: 9, paper: [5.33, 4.95] },
];

/// How a kernel is run: the configuration, and how many exchanges a process may have under way.
type Setting = ((Rendezvous, bool), u32);

/// Exchanges under way where reliability is held to its bound: as many as a kernel has neighbours or more (BT
/// and SP send to all six at once and then wait for all).
const MANY: u32 = 8;

/// Exchanges under way where what waiting for one costs is not hidden behind others.
const FEW: u32 = 2;

const SETTINGS: [Setting; 6] = [
    ((Rendezvous::Put, false), MANY),
    ((Rendezvous::Put, true), MANY),
    ((Rendezvous::Get, false), MANY),
    ((Rendezvous::Get, true), MANY),
    ((Rendezvous::Put, false), FEW),
    ((Rendezvous::Put, true), FEW),
];

/// What reliability may cost: the paper's was up to 4 % with RPut, 1.5 % with RGet.
const OVERHEAD: f64 = 1.0;

/// "No process requires more than 0.45 MB of memory for the additional reliability semantics" (VI.C).
const MEMORY: f64 = 0.45;

/// The largest message that is kept: worse than any mix of a kernel's messages.
const KEPT_MAX: u64 = 8 << 10;

/// Sizes of messages lie so many thousandths of the kernel's typical size apart. What a put rendezvous waits
/// for depends on which side comes a moment earlier: a round with reliability differs from one without by 0.2
/// % to 0.6 % (a standard deviation, with the rounds of [`KERNELS`]) from size to size, either way. So what
/// is reported for a kernel is the mean over sizes, with its standard error. Much of what scatters is when
/// the last process comes to its end: longer simulations are better than more.
const APART: u64 = 9;

/// So many sizes of messages, in thousandths of the typical size, which is the first; the others lie around
/// it.
fn thousandths(count: u32) -> impl Iterator<Item = u64> {
    (0..u64::from(count)).map(|index| {
        let off = APART * index.div_ceil(2);
        if index % 2 == 1 { 1000 + off } else { 1000 - off }
    })
}

/// Rounds of the shorter simulation: what connecting takes is in both, and so not in the difference.
const SHORT: u32 = 1;

/// Kernels by their places, each with how many sizes of messages.
struct Plan {
    kernels: Vec<usize>,
    sizes: Vec<u32>,
}

impl Plan {
    fn new(effort: Effort) -> Plan {
        match effort {
            Effort::Quick => Plan { kernels: vec![1, 4], sizes: vec![1; 2] },
            Effort::Full => Plan {
                kernels: (0..KERNELS.len()).collect(),
                sizes: KERNELS.iter().map(|kernel| kernel.sizes).collect(),
            },
        }
    }
}

/// What a simulation took.
struct Taken {
    done_ns: u64,
    /// Mean over processes of the most copies that each held at a time.
    copies: f64,
    /// The most of any process.
    copies_max: u32,
    /// Bytes of a copy's place.
    place_bytes: u32,
}

impl Taken {
    fn megabytes(&self, copies: f64) -> f64 {
        copies * f64::from(self.place_bytes) / 1e6
    }
}

/// Figure 5 and table I.
///
/// # Errors
/// [`FigureError`] where a simulation did not end clean.
pub(super) fn figures(lab: &mut Lab<'_>, effort: Effort) -> Result<Vec<Figure>, FigureError> {
    let plan = Plan::new(effort);
    let mut runs = Vec::new();
    for (&kernel, &sizes) in plan.kernels.iter().zip(&plan.sizes) {
        for thousandths in thousandths(sizes) {
            let bytes = application(KERNELS[kernel].workload).map(|known| known.bytes * thousandths / 1000);
            for setting in SETTINGS {
                for rounds in [SHORT, KERNELS[kernel].rounds] {
                    runs.push(run(kernel, setting, rounds, bytes)?);
                }
            }
        }
    }
    let taken = lab.each(&runs, at_moment)?;
    let mut rest = &taken[..];
    let mut take = |sizes: &u32| rest.split_off(..SETTINGS.len() * 2 * *sizes as usize).unwrap_or(&[]);
    let kernels: Vec<&[Taken]> = plan.sizes.iter().map(&mut take).collect();
    let mut largest = Vec::new();
    for &kernel in &plan.kernels {
        for reliable in [false, true] {
            largest.push(run(kernel, ((Rendezvous::Get, reliable), MANY), KERNELS[kernel].rounds, Some(KEPT_MAX))?);
        }
    }
    let largest = lab.each(&largest, at_moment)?;
    Ok(vec![figure_5(&plan, &kernels), table_1(&plan, &kernels, &largest)])
}

fn run(kernel: usize, (configuration, ahead): Setting, rounds: u32, bytes: Option<u64>) -> Result<Run, FigureError> {
    let mut scenario = testbed(8, 8, 1)?;
    let name = configure(&mut scenario, configuration);
    // As many copies as a process of a real job may keep, so that it isn't the table's size that is seen.
    (scenario.config.retained_max, scenario.config.operations_max) = (Some(512), Some(1024));
    let mut parameters = toml::Table::new();
    parameters.insert("rounds".into(), rounds.into());
    parameters.insert("ahead".into(), ahead.into());
    if let Some(bytes) = bytes {
        parameters.insert("bytes".into(), (bytes as i64).into());
    }
    let workload = KERNELS[kernel].workload;
    scenario.workload = WorkloadSpec { name: workload.into(), parameters };
    Ok(Run { what: format!("{workload}, {name}, {rounds} rounds"), scenario })
}

/// Runs a simulation, and looks at its processes whenever an event is reported to them.
fn at_moment(run: &Run) -> Result<Taken, FigureError> {
    let failed = |verdict: String| FigureError::Run { what: run.what.clone(), verdict };
    let mut watched = Watched::new(&run.scenario).map_err(failed)?;
    let mut cluster =
        Cluster::build(&run.scenario, SEED, &mut watched, Trace::off()).map_err(|error| failed(error.to_string()))?;
    let ended = cluster.run(&mut watched);
    match watched.job.verdict(&cluster, &ended) {
        Verdict::Clean if watched.is_short.get() => return Err(failed("no set of keys was left".into())),
        Verdict::Clean => {}
        other => return Err(failed(other.to_string())),
    }
    let most: Vec<u32> = watched.most.iter().map(|most| most.get()).collect();
    Ok(Taken {
        done_ns: cluster.report().done_ns,
        copies: most.iter().sum::<u32>() as f64 / most.len().max(1) as f64,
        copies_max: most.iter().copied().max().unwrap_or(0),
        place_bytes: run.scenario.core_config(0, SEED).eager_bytes_max,
    })
}

/// A job whose processes' copies are counted. A copy is made when a process submits or receives an event, and
/// is held at least until the completion of what it sent is reported: looking at every event misses no more
/// than what came and went between.
struct Watched {
    job: Box<dyn Job>,
    most: Vec<Rc<Cell<u32>>>,
    /// A process was seen without a free set of keys: messages may have gone another way than the figure
    /// shows.
    is_short: Rc<Cell<bool>>,
}

impl Watched {
    fn new(scenario: &Scenario) -> Result<Watched, String> {
        let job = make(scenario, SEED).map_err(|error| error.to_string())?;
        Ok(Watched { job, most: Vec::new(), is_short: Rc::default() })
    }
}

impl Workload for Watched {
    fn app(&mut self, rank: u32, size: u32) -> Box<dyn App> {
        let most = Rc::new(Cell::new(0));
        self.most.push(most.clone());
        Box::new(WatchedApp { app: self.job.app(rank, size), most, is_short: self.is_short.clone() })
    }

    fn is_due(&self) -> bool {
        self.job.is_due()
    }

    fn at_moment(&mut self, view: &View<'_>, moment: Moment) -> bool {
        self.job.at_moment(view, moment)
    }
}

struct WatchedApp {
    app: Box<dyn App>,
    most: Rc<Cell<u32>>,
    is_short: Rc<Cell<bool>>,
}

impl App for WatchedApp {
    fn start(&mut self, cx: &mut Cx<'_>) {
        self.app.start(cx);
    }

    fn event(&mut self, cx: &mut Cx<'_>, event: Event) {
        let usage = cx.engine.endpoint().usage();
        self.most.set(self.most.get().max(usage.retained.used));
        self.is_short.set(self.is_short.get() || usage.key_sets.used == usage.key_sets.capacity);
        self.app.event(cx, event);
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        self.app.timer(cx);
    }

    fn datagram(&mut self, cx: &mut Cx<'_>, from: u32, bytes: &[u8]) {
        self.app.datagram(cx, from, bytes);
    }

    fn phase(&mut self, cx: &mut Cx<'_>, phase: Phase) {
        self.app.phase(cx, phase);
    }

    fn is_done(&self) -> bool {
        self.app.is_done()
    }
}

/// Microseconds of a round, by sizes of messages, of each configuration of a kernel.
fn rounds_us(kernel: &Kernel, taken: &[Taken]) -> Vec<Vec<f64>> {
    let rounds = f64::from(kernel.rounds - SHORT);
    let more_ns = |clusters: &[Taken]| clusters[1].done_ns.saturating_sub(clusters[0].done_ns) as f64;
    let of_size = |taken: &[Taken]| taken.chunks(2).map(|clusters| more_ns(clusters) / rounds / 1000.0).collect();
    taken.chunks(SETTINGS.len() * 2).map(of_size).collect()
}

/// A mean and its standard error.
struct Mean {
    value: f64,
    /// NaN of a single value.
    error: f64,
}

impl Mean {
    fn of(values: &[f64]) -> Mean {
        let count = values.len() as f64;
        let value = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|one| (one - value).powi(2)).sum();
        Mean { value, error: (squares / (count - 1.0) / count).sqrt() }
    }
}

/// Percent of time more in the configuration behind `off` than in that: the mean over all sizes.
fn percent_more(times: &[Vec<f64>], off: usize) -> Mean {
    let percents: Vec<f64> = times.iter().map(|times| 100.0 * (times[off + 1] / times[off] - 1.0)).collect();
    Mean::of(&percents)
}

/// The settings without reliability, by their places in [`SETTINGS`]; that with it follows each.
const OFF: [(&str, usize); 3] = [("RPut-Rel", 0), ("RGet-Rel", 2), ("RPut-Rel, two under way", 4)];

fn figure_5(plan: &Plan, kernels: &[&[Taken]]) -> Figure {
    let times: Vec<Vec<Vec<f64>>> =
        plan.kernels.iter().zip(kernels).map(|(kernel, taken)| rounds_us(&KERNELS[*kernel], taken)).collect();
    let series = OFF.map(|(name, off)| {
        let points =
            plan.kernels.iter().zip(&times).map(|(kernel, times)| (*kernel as f64, percent_more(times, off).value));
        Series { name: name.into(), points: points.collect() }
    });
    let claim = |series: &Series| -> Claim {
        let most = greatest(series.points.iter().map(|point| point.1));
        at_most(format!("{}: time more than without, the worst kernel", series.name), OVERHEAD, most, "%")
    };
    let reported = plan.kernels.iter().zip(&times).map(|(kernel, times)| {
        let mean = |setting: usize| Mean::of(&times.iter().map(|times| times[setting]).collect::<Vec<_>>()).value;
        let pair = |(_, off): (&str, usize)| {
            let Mean { value, error } = percent_more(times, off);
            let error = if error.is_nan() { String::new() } else { format!(" +-{error:.2}") };
            format!("{:.0}, {:.0} ({value:+.2}{error} %)", mean(off), mean(off + 1))
        };
        format!("{} {}", NAMES[*kernel], OFF.map(pair).join(", "))
    });
    let rounds = || plan.kernels.iter().map(|kernel| KERNELS[*kernel].rounds - SHORT);
    Figure {
        source: "resilient-2010, figure 5".into(),
        title: "NAS kernels with reliability on and off".into(),
        paper: "Time of the NAS kernels, 256 processes: \"nearly unnoticeable overhead in the RGet-Rel cases\"; SP, with many \
                large messages, shows most: 4 % for RPut-Rel, for a reliable RPut needs an acknowledgment more, 1.5 % for \
                RGet-Rel."
            .into(),
        ours: format!(
            "The communication pairs of the kernels, 64 processes on 8 nodes, messages of a typical size, no computing: a round \
             of messages between all pairs that talk, mean of {} to {} after {SHORT}; and mean over messages of {} to {} sizes \
             within 5 % of that. Up to {MANY} exchanges are under way at a process, which has sets of keys for {KEY_SETS} \
             messages. A reliable RPut ends with a word of the receiver's, which waits behind what its rail was given of its \
             own messages; processes that have only {FEW} exchanges under way feel it, as the third series shows, for which \
             nothing is claimed. \
             Microseconds of a round without and with reliability, in parentheses the mean over sizes of the time more and its \
             standard error (RPut, RGet, and with {FEW} under way RPut): {}.",
            rounds().min().unwrap_or(0),
            rounds().max().unwrap_or(0),
            plan.sizes.iter().min().unwrap_or(&0),
            plan.sizes.iter().max().unwrap_or(&0),
            reported.collect::<Vec<_>>().join("; ")
        ),
        timeline: None,
        x: Axis { label: "kernel".into(), unit: String::new(), scale: Scale::Names(NAMES) },
        y: Axis { label: "time more with reliability".into(), unit: "%".into(), scale: Scale::Linear },
        stated: vec![
            Stated { name: "paper: most, RPut-Rel".into(), value: 4.0 },
            Stated { name: "paper: most, RGet-Rel".into(), value: 1.5 },
        ],
        claims: series[..2].iter().map(claim).collect(),
        series: series.into(),
    }
}

fn table_1(plan: &Plan, kernels: &[&[Taken]], largest: &[Taken]) -> Figure {
    let series = |name: &str, of: &dyn Fn(usize) -> f64| Series {
        name: name.into(),
        points: plan.kernels.iter().enumerate().map(|(place, kernel)| (*kernel as f64, of(place))).collect(),
    };
    let paper = |place: usize| KERNELS[plan.kernels[place]].paper;
    // RGet and RGet-Rel, the longer simulations.
    let ours = |place: usize| [&kernels[place][5], &kernels[place][7]];
    let large = |place: usize| [&largest[2 * place], &largest[2 * place + 1]];
    let mean = |taken: &Taken| taken.megabytes(taken.copies);
    let most = |taken: &Taken| taken.megabytes(f64::from(taken.copies_max));
    let more = |[off, on]: [&Taken; 2]| mean(on) - mean(off);
    let places = || 0..plan.kernels.len();
    let claims = vec![
        at_most(
            "more memory a process, mean, the worst kernel",
            MEMORY,
            greatest(places().map(|at| more(ours(at)))),
            "MB",
        ),
        at_most(
            "the same with messages of 8 KiB, the largest that are kept",
            MEMORY,
            greatest(places().map(|at| more(large(at)))),
            "MB",
        ),
        at_most(
            "all copies of the process that had most (the settings allow 4.19 MB)",
            MEMORY,
            greatest(places().flat_map(|at| [most(ours(at)[1]), most(large(at)[1])])),
            "MB",
        ),
    ];
    Figure {
        source: "resilient-2010, table I".into(),
        title: "Memory for copies of messages".into(),
        paper: "Average maximum memory per process for buffering of messages, with the resilient design and without it \
                (Normal): no process needs more than 0.45 MB more. Large messages go by rendezvous and are not buffered."
            .into(),
        ours: "The most copies that a process held at a time, each in a place of 8 KiB however short the message, mean of 64 \
               processes; RGet. The kernels' typical messages but LU's are larger and never copied, so the same patterns were \
               run with messages of 8 KiB, each of which is: more than any mix of the kernels' messages takes."
            .into(),
        timeline: None,
        x: Axis { label: "kernel".into(), unit: String::new(), scale: Scale::Names(NAMES) },
        y: Axis { label: "memory a process".into(), unit: "MB".into(), scale: Scale::Linear },
        stated: vec![Stated { name: "paper: most that it is more".into(), value: MEMORY }],
        claims,
        series: vec![
            series("paper, reliable", &|place| paper(place)[0]),
            series("paper, normal", &|place| paper(place)[1]),
            series("ours, reliable", &|place| mean(ours(place)[1])),
            series("ours, normal", &|place| mean(ours(place)[0])),
            series("ours, 8 KiB, reliable", &|place| mean(large(place)[1])),
            series("ours, 8 KiB, normal", &|place| mean(large(place)[0])),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_lie_around_the_typical_one() {
        assert_eq!(thousandths(1).collect::<Vec<_>>(), [1000]);
        assert_eq!(thousandths(4).collect::<Vec<_>>(), [1000, 1009, 991, 1018]);
        let most = KERNELS.iter().map(|kernel| kernel.sizes).max().unwrap();
        assert!(thousandths(most).all(|thousandths| (950..=1050).contains(&thousandths)));
    }

    #[test]
    fn mean_includes_its_standard_error() {
        let Mean { value, error } = Mean::of(&[1.0, 2.0, 3.0, 6.0]);
        assert_eq!(value, 3.0);
        assert!((error - (14.0f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12, "{error}");
        assert!(Mean::of(&[5.0]).error.is_nan());
    }
}
