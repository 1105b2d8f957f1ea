//! The names of all policies, in one table: their names in settings, scenario files and command lines, and
//! what each decides. The implementations are in `rail/sched`.

/// A policy: it chooses the rails of packets, or cuts large messages, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Everything on one rail: see [`Config::bind`](super::Config::bind) (multirail-2004, 4.4).
    Binding,
    /// Packets take one rail after the other.
    RoundRobin,
    /// In each round, every rail gets as many packets as its weight
    /// ([`Config::weights`](super::Config::weights)).
    WeightedRoundRobin,
    /// A rail gets [`Config::window_messages`](super::Config::window_messages) packets before the next one
    /// has its turn.
    WindowRoundRobin,
    /// Equal parts on all rails.
    Even,
    /// Parts in proportion to [`Config::weights`](super::Config::weights).
    Weighted,
    /// Parts in proportion to weights that follow the times of the stripes (multirail-2004, 4.5, equation 4).
    /// They begin as [`Config::weights`](super::Config::weights).
    Adaptive,
    /// By path estimates (rate, latency, queued work): a packet takes the rail that is predicted to deliver
    /// it first; messages are cut so that all parts end together, or not at all where cutting does not pay.
    Balanced,
    /// A strategy of NewMadeleine's engine, called when a rail is idle
    /// ([`Config::nic_depth`](super::Config::nic_depth)): each idle rail takes the first pending message,
    /// whole (newmadeleine-2007, 3.2).
    Greedy,
    /// A strategy: small messages, whatever their tags, go together in one packet over the rail of the lowest
    /// latency; large ones greedily (3.3).
    Aggregate,
    /// A strategy: large messages are cut over the rails that are idle, in proportion to their bandwidths;
    /// small ones go greedily (3.4).
    Split,
    /// A strategy: small messages together, large ones cut (3.4, the end).
    NewMadeleine,
}

/// A policy's row in the table.
struct Row {
    policy: Policy,
    name: &'static str,
    chooses_rails: bool,
    cuts: bool,
}

/// Policies that choose rails.
const CHOOSING: usize = 9;

/// Policies that cut messages.
const CUTTING: usize = 9;

/// All policies, in the order of the enum.
const TABLE: [Row; 12] = [
    row(Policy::Binding, "binding", true, true),
    row(Policy::RoundRobin, "round-robin", true, false),
    row(Policy::WeightedRoundRobin, "weighted-round-robin", true, false),
    row(Policy::WindowRoundRobin, "window-round-robin", true, false),
    row(Policy::Even, "even", false, true),
    row(Policy::Weighted, "weighted", false, true),
    row(Policy::Adaptive, "adaptive", false, true),
    row(Policy::Balanced, "balanced", true, true),
    row(Policy::Greedy, "greedy", true, true),
    row(Policy::Aggregate, "aggregate", true, true),
    row(Policy::Split, "split", true, true),
    row(Policy::NewMadeleine, "newmadeleine", true, true),
];

const fn row(policy: Policy, name: &'static str, chooses_rails: bool, cuts: bool) -> Row {
    Row { policy, name, chooses_rails, cuts }
}

impl Policy {
    /// The policy of all messages unless another one is set.
    pub const DEFAULT: Policy = Policy::Balanced;

    /// All of them.
    pub const ALL: [Policy; 12] = some(true, true);

    /// Those that choose the rails of packets.
    pub const RAIL_CHOICES: [Policy; CHOOSING] = some(true, false);

    /// Those that cut messages.
    pub const STRIPINGS: [Policy; CUTTING] = some(false, true);

    /// Its name in settings, on command lines, in scenario files and in reports.
    pub const fn name(self) -> &'static str {
        TABLE[self as usize].name
    }

    /// Whether it chooses the rails of packets: of messages that are not cut, requests, announcements.
    pub const fn chooses_rails(self) -> bool {
        TABLE[self as usize].chooses_rails
    }

    /// Whether it cuts large messages, or decides that they stay whole.
    pub const fn cuts(self) -> bool {
        TABLE[self as usize].cuts
    }

    /// The policy with a name; `None`: no policy has it.
    pub fn named(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// The policies that choose rails, those that cut, or both, in the order of the table; as many as there are.
const fn some<const COUNT: usize>(choosing: bool, cutting: bool) -> [Policy; COUNT] {
    let mut found = [Policy::DEFAULT; COUNT];
    let (mut at, mut count) = (0, 0);
    while at < TABLE.len() {
        let row = &TABLE[at];
        assert!(row.policy as usize == at, "the table has the order of the enum");
        if row.chooses_rails && choosing || row.cuts && cutting {
            found[count] = row.policy;
            count += 1;
        }
        at += 1;
    }
    assert!(count == COUNT, "the number of policies");
    found
}
