//! Making a failing scenario smaller: fewer faults, fewer ranks, fewer messages, until nothing can be left
//! out without the failure going away. What is kept is a scenario of its own, to be read and replayed.

use crate::scenario::Scenario;

/// A way to make a scenario smaller; `None`: it can't be made so.
type Cut = fn(&Scenario) -> Option<Scenario>;

/// Makes `scenario` smaller as long as `fails` returns that it still fails in the same way, within
/// `tries_max` runs. Returns the smallest found and the runs made. `seed` is the one that it fails with: the
/// faults that it draws are made explicit first.
pub fn shrink(
    scenario: &Scenario,
    seed: u64,
    tries_max: u32,
    mut fails: impl FnMut(&Scenario) -> bool,
) -> (Scenario, u32) {
    let mut tries = 0;
    let mut best = scenario.clone();
    let explicit = Scenario { faults: scenario.schedule(seed), random: None, ..scenario.clone() };
    let leaves_ways = explicit.leaves_ways();
    let mut attempt = |candidate: &Scenario| {
        // A rank that cannot be found any more is another failure, and none of the core's.
        if leaves_ways && !candidate.leaves_ways() {
            return false;
        }
        tries += 1;
        // What is kept must be readable as a file.
        tries <= tries_max && candidate.check().is_ok() && fails(candidate)
    };
    // The seed decides more than the schedule; where the failure hangs on that, the scenario stays as it was.
    if attempt(&explicit) {
        best = explicit;
        fewer_faults(&mut best, &mut attempt);
    }
    loop {
        let smaller = CUTS.iter().filter_map(|cut| cut(&best)).find(|candidate| attempt(candidate));
        match smaller {
            Some(candidate) => best = candidate,
            None => break,
        }
    }
    fewer_faults(&mut best, &mut attempt);
    (best, tries.min(tries_max))
}

/// Leaves out runs of faults, long ones first, then shorter ones, down to single ones (delta debugging).
fn fewer_faults(best: &mut Scenario, fails: &mut impl FnMut(&Scenario) -> bool) {
    let mut chunk = best.faults.len();
    while chunk > 0 {
        let mut at = 0;
        while at < best.faults.len() {
            let mut candidate = best.clone();
            candidate.faults.drain(at..(at + chunk).min(best.faults.len()));
            if fails(&candidate) {
                *best = candidate;
            } else {
                at += chunk;
            }
        }
        chunk /= 2;
    }
}

/// What is tried, the most promising first.
const CUTS: &[Cut] = &[
    |scenario| half_of(scenario, "messages"),
    |scenario| half_of(scenario, "rounds"),
    |scenario| half_of(scenario, "bytes_max"),
    |scenario| {
        let hosts = scenario.hosts.checked_sub(1).filter(|hosts| *hosts > 0)?;
        Some(without_lost_places(Scenario { hosts, ..scenario.clone() }))
    },
    |scenario| {
        let ranks_per_host = scenario.ranks_per_host.checked_sub(1).filter(|ranks| *ranks > 0)?;
        Some(without_lost_places(Scenario { ranks_per_host, ..scenario.clone() }))
    },
    |scenario| without_rail(scenario, scenario.rails().len().checked_sub(1)?),
    |scenario| without_rail(scenario, 0),
    |scenario| Some(Scenario { liar: Some(scenario.liar.as_ref()?.fewer_lies(0)?), ..scenario.clone() }),
    |scenario| Some(Scenario { liar: Some(scenario.liar.as_ref()?.fewer_lies(1)?), ..scenario.clone() }),
    |scenario| scenario.squeeze.then(|| Scenario { squeeze: false, ..scenario.clone() }),
    |scenario| {
        (scenario.cpu.slow_polls_per_thousand > 0).then(|| {
            let mut without_faults = scenario.clone();
            without_faults.cpu.slow_polls_per_thousand = 0;
            without_faults
        })
    },
];

/// Without one of several rails; a stream stays where it is the only one that can report what has moved.
fn without_rail(scenario: &Scenario, index: usize) -> Option<Scenario> {
    let mut rails = scenario.rails();
    rails.remove(index);
    let smaller = Scenario { rails, ..scenario.clone() };
    let moves = scenario.faults.iter().any(|at| at.fault.kind.moves());
    let loses_stream = scenario.has_stream() && !smaller.has_stream();
    (!smaller.rails.is_empty() && (!moves || !loses_stream)).then_some(smaller)
}

/// Without the faults at places that are gone.
fn without_lost_places(mut scenario: Scenario) -> Scenario {
    let whole = scenario.clone();
    scenario.faults.retain(|fault| whole.has_place(fault.fault.place));
    scenario
}

fn half_of(scenario: &Scenario, parameter: &str) -> Option<Scenario> {
    let value = scenario.workload.parameters.get(parameter)?.as_integer()?;
    let mut smaller = scenario.clone();
    smaller.workload.parameters.insert(parameter.to_owned(), toml::Value::Integer((value > 1).then_some(value / 2)?));
    Some(smaller)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::RailSpec;

    fn scenario(faults: &str) -> Scenario {
        let text = format!(
            "hosts = 4\nranks_per_host = 3\nsqueeze = true\n[workload]\nname = \"random\"\nparameters = {{ messages = 100 }}\n{faults}"
        );
        Scenario::parse("test", &text).unwrap()
    }

    /// A failure that hangs on two of eight faults, two hosts and six messages shrinks to just these, and
    /// what they need.
    #[test]
    fn shrinking_keeps_only_what_the_failure_needs() {
        let faults: String = (0..8)
            .map(|i| {
                format!("[[faults]]\nat = \"{}us\"\nuntil = \"900us\"\nwhat = \"pause\"\nwhere = \"rank{i}\"\n", i + 1)
            })
            .collect();
        let start = scenario(&faults);
        let messages = |scenario: &Scenario| scenario.workload.parameters["messages"].as_integer().unwrap();
        let (least, tries) = shrink(&start, 1, 1000, |candidate| {
            let has =
                |rank: u32| candidate.faults.iter().any(|fault| fault.fault.to_string() == format!("pause rank{rank}"));
            candidate.hosts >= 2 && messages(candidate) >= 6 && has(2) && has(5)
        });
        assert_eq!(least.faults.len(), 2);
        // Six ranks, because a fault is at rank 5.
        assert_eq!((least.hosts, least.ranks_per_host, messages(&least), least.squeeze), (2, 3, 6, false));
        assert_eq!(least.check(), Ok(()));
        assert!(tries < 100, "{tries} runs");
        let (same, tries) = shrink(&start, 1, 10, |_| false);
        assert_eq!((same, tries), (start, 10));
    }

    /// Where both ends of a rail move, what can report it stays: a stream, or shared memory within the first
    /// host.
    #[test]
    fn no_rank_becomes_one_that_cannot_be_found() {
        let rails = |kinds: &[&str]| {
            let rail = |kind: &&str| match *kind {
                "shm" => "[[rails]]\nkind = \"shm\"\n".to_owned(),
                kind => format!("[[rails]]\nkind = \"{kind}\"\nhca = 0\nport = 0\n"),
            };
            kinds.iter().map(rail).collect::<String>()
        };
        let fault = "[[faults]]\nat = \"1us\"\nuntil = \"2us\"\nwhat = \"device-fatal\"\nwhere = \"host0.hca0\"\n";
        let kinds = |scenario: &Scenario| {
            let kind = |rail: &RailSpec| match rail {
                RailSpec::Shm {} => "shm",
                RailSpec::Stream { .. } => "stream",
                RailSpec::Hca { .. } => "hca",
            };
            scenario.rails().iter().map(kind).collect::<Vec<_>>()
        };
        for (from, fault, to) in [
            (["shm", "hca"], fault, ["shm"].as_slice()),
            (["hca", "stream"], fault, &["stream"]),
            (["stream", "hca"], fault, &["stream"]),
            (["hca", "stream"], "", &["hca"]),
        ] {
            let start = scenario(&(rails(&from) + fault));
            let (least, _) = shrink(&start, 1, 1000, |candidate| {
                candidate.faults.len() == start.faults.len() && candidate.ranks_per_host == 3
            });
            assert_eq!(kinds(&least), to, "{from:?}");
        }
    }
}
