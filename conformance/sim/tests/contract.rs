//! The software HCA keeps the device contract: every case of the suite, group by group, none unsupported.

use rerail_contract::{Filter, Outcome, groups, run};

/// A failing case is reported with what was expected, what came, and the rule.
fn check(group: &str) {
    let filter = Filter::containing(&format!("{group}/"));
    let report = run(&filter, &mut rerail_sim::bed::open, &mut |result| println!("{result}"));
    assert!(!report.results.is_empty(), "no case in group {group}");
    let bad: Vec<String> = report
        .results
        .iter()
        .filter(|result| result.outcome != Outcome::Passed)
        .map(|result| result.to_string())
        .collect();
    assert!(bad.is_empty(), "{} of {} cases:\n{}", bad.len(), report.results.len(), bad.join("\n"));
}

macro_rules! group_tests {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*

        /// No group is forgotten above.
        #[test]
        fn all_groups_are_run() {
            let named = [$(stringify!($name)),*];
            for group in groups() {
                assert!(named.contains(&group.name), "group {} is not run", group.name);
            }
        }
    };
}

group_tests!(
    states, posting, send, signal, ordering, rdma, atomics, limits, protection, retry, srq, xrc, ud, handles, paths,
    events, lifetime,
);
