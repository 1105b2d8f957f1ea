//! The cases, a file for each group. A case's name begins with its group's.
//!
//! Each case reads as the rule does: what is set up, what is posted, what must come. It may rely on what
//! simpler cases check; so the first that fails is the one to look at.

mod atomics;
mod events;
mod handles;
mod lifetime;
mod limits;
mod ordering;
mod paths;
mod posting;
mod protection;
mod rdma;
mod retry;
mod send;
mod signal;
mod srq;
mod states;
mod ud;
mod xrc;

use std::fmt;

use crate::bed::Bed;
use crate::failure::Check;
use crate::testbed::Need;

/// One rule, checked.
pub struct Case {
    /// `group/what-must-hold`.
    pub name: &'static str,
    /// Where the rule stands.
    pub rule: &'static str,
    /// What device and testbed must have for the case to be run.
    pub needs: &'static [Need],
    /// The case.
    pub run: fn(&mut Bed<'_>) -> Check,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("rule", &self.rule).finish_non_exhaustive()
    }
}

/// Cases of one concern.
#[derive(Debug)]
pub struct Group {
    /// Its name: what the names of its cases begin with.
    pub name: &'static str,
    /// Simple ones first.
    pub cases: &'static [Case],
}

/// A case without needs.
const fn case(name: &'static str, rule: &'static str, run: fn(&mut Bed<'_>) -> Check) -> Case {
    Case { name, rule, needs: &[], run }
}

/// A case that needs something.
const fn case_if(
    needs: &'static [Need],
    name: &'static str,
    rule: &'static str,
    run: fn(&mut Bed<'_>) -> Check,
) -> Case {
    Case { name, rule, needs, run }
}

/// All groups, in the order in which they are run: what others rely on comes first.
static GROUPS: [Group; 17] = [
    Group { name: "states", cases: states::CASES },
    Group { name: "posting", cases: posting::CASES },
    Group { name: "send", cases: send::CASES },
    Group { name: "signal", cases: signal::CASES },
    Group { name: "ordering", cases: ordering::CASES },
    Group { name: "rdma", cases: rdma::CASES },
    Group { name: "atomics", cases: atomics::CASES },
    Group { name: "limits", cases: limits::CASES },
    Group { name: "protection", cases: protection::CASES },
    Group { name: "retry", cases: retry::CASES },
    Group { name: "srq", cases: srq::CASES },
    Group { name: "xrc", cases: xrc::CASES },
    Group { name: "ud", cases: ud::CASES },
    Group { name: "handles", cases: handles::CASES },
    Group { name: "paths", cases: paths::CASES },
    Group { name: "events", cases: events::CASES },
    Group { name: "lifetime", cases: lifetime::CASES },
];

/// All groups.
pub fn groups() -> &'static [Group] {
    &GROUPS
}

/// All cases, in the order in which they are run.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    GROUPS.iter().flat_map(|group| group.cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are what people filter by and reports are compared by.
    #[test]
    fn names_are_unique_and_grouped_and_every_case_cites_a_rule() {
        let mut names = std::collections::BTreeSet::new();
        for group in groups() {
            assert!(!group.cases.is_empty(), "{} has no case", group.name);
            for case in group.cases {
                assert!(case.name.strip_prefix(group.name).is_some_and(|rest| rest.starts_with('/')), "{case:?}");
                assert!(names.insert(case.name), "{case:?} is there twice");
                let cited = case.rule.contains("IBA ") || case.rule.contains("(3)");
                assert!(cited, "{case:?} cites neither the specification nor a manual page");
            }
        }
        assert!(names.len() >= 110, "{} cases", names.len());
    }
}
