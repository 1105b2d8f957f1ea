//! What is measured, and what must hold of it.

use super::steady::Steady;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Half a round trip.
    Latency,
    /// A message of windows of so many.
    Window(u64),
    /// Puts (`true`) or gets, windows of so many, each window complete before the next one.
    Access(bool, u64),
    /// A round in which ranks exchange messages in pairs that are drawn anew, on two processors.
    Meet,
    /// A round in which every rank sends a message to every other.
    All,
}

/// A row.
pub struct Case {
    /// What `--cases` looks for.
    pub name: String,
    /// What is measured.
    pub measure: Measure,
    /// Of a message.
    pub bytes: u64,
    /// Round trips, windows or rounds between two readings of the clock.
    pub batch: u64,
    /// In memory of the transport's own making: `alloc_shared`, `MPI_Alloc_mem`, `MPI_Win_allocate`.
    pub allocated: bool,
    /// The data is rewritten before each message.
    pub fresh: bool,
    /// Over TCP, one rail on the loopback interface, beside bare sockets; otherwise over shared memory.
    pub tcp: bool,
}

impl Case {
    /// Whether the way of a cache line is a good part of the time.
    pub fn is_small(&self) -> bool {
        !self.tcp && matches!(self.measure, Measure::Latency | Measure::Window(_)) && self.bytes <= 8 << 10
    }

    /// Pairs of ranks that measure at once, unless these are `pairs`.
    pub fn pairs(&self, pairs: u32) -> u32 {
        match self.measure {
            Measure::Meet => 4,
            Measure::All => 8,
            _ => pairs,
        }
    }

    /// Whether there are more ranks than processors, so that none is pinned.
    pub fn is_of_many(&self) -> bool {
        matches!(self.measure, Measure::Meet | Measure::All)
    }

    /// Messages that are under way at once.
    pub fn window(&self) -> u64 {
        match self.measure {
            Measure::Window(window) | Measure::Access(_, window) => window,
            _ => 1,
        }
    }
}

/// A small message.
const SMALL: u64 = 8;
const BYTES_1_MIB: u64 = 1 << 20;
const BYTES_32_MIB: u64 = 32 << 20;
/// From here on messages are measured in allocated memory too.
const LARGE: u64 = 64 << 10;
/// Kinds of memory and data that they are measured in beside ordinary memory and unchanged data: the name,
/// whether it is allocated, whether the data is fresh.
const LARGE_KINDS: [(&str, bool, bool); 3] =
    [("allocated", true, false), ("fresh", false, true), ("allocated_fresh", true, true)];

/// All rows.
pub fn cases() -> Vec<Case> {
    let tcp = false;
    let mut cases = Vec::new();
    for bytes in [8, 168, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 4 << 20, 32 << 20] {
        let batch = ((8 << 20) / bytes.max(2048)).clamp(4, 2000);
        let (name, measure) = (format!("latency_{bytes}"), Measure::Latency);
        if bytes >= LARGE {
            for (what, allocated, fresh) in LARGE_KINDS {
                cases.push(Case { name: format!("{name}_{what}"), measure, bytes, batch, allocated, fresh, tcp });
            }
        }
        cases.push(Case { name, measure, bytes, batch, allocated: false, fresh: false, tcp });
    }
    for window in [1, 8, 64] {
        let (name, measure) = (format!("rate_{SMALL}_window_{window}"), Measure::Window(window));
        cases.push(Case { name, measure, bytes: SMALL, batch: 4096 / window, allocated: false, fresh: false, tcp });
    }
    for bytes in [8 << 10, 64 << 10, 1 << 20, 4 << 20, 32 << 20] {
        let batch = ((16 << 20) / (bytes * 16)).clamp(1, 64);
        let (name, measure) = (format!("bandwidth_{bytes}"), Measure::Window(16));
        if bytes >= LARGE {
            for (what, allocated, fresh) in LARGE_KINDS {
                cases.push(Case { name: format!("{name}_{what}"), measure, bytes, batch, allocated, fresh, tcp });
            }
        }
        cases.push(Case { name, measure, bytes, batch, allocated: false, fresh: false, tcp });
    }
    for (what, is_put) in [("put", true), ("get", false)] {
        for (bytes, window) in
            [8, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 4 << 20].map(|bytes| [(bytes, 1), (bytes, 16)]).concat()
        {
            let batch = ((8 << 20) / (bytes.max(2048) * window)).clamp(2, 2000);
            for (kind, allocated) in [("", false), ("_allocated", true)] {
                let name = format!("{what}_{bytes}_window_{window}{kind}");
                let measure = Measure::Access(is_put, window);
                cases.push(Case { name, measure, bytes, batch, allocated, fresh: false, tcp });
            }
        }
    }
    for (bytes, batch) in [(8, 20), (64 << 10, 4)] {
        for (what, measure) in [("meet_of_8", Measure::Meet), ("all_to_all_of_16", Measure::All)] {
            cases.push(Case {
                name: format!("{what}_{bytes}"),
                measure,
                bytes,
                batch,
                allocated: false,
                fresh: false,
                tcp,
            });
        }
    }
    for (name, measure, batch) in
        [("tcp_latency_8", Measure::Latency, 500), ("tcp_rate_8_window_64", Measure::Window(64), 64)]
    {
        let name = name.to_owned();
        cases.push(Case { name, measure, bytes: SMALL, batch, allocated: false, fresh: false, tcp: true });
    }
    cases
}

/// What must hold of a case, and whether it does.
pub fn bar(case: &Case, ours: f64, best: f64, steady: Option<&Steady>) -> Option<(String, bool)> {
    let ratio = ours / best;
    if case.tcp {
        let most = if case.measure == Measure::Latency { 1.0 } else { 1.0 / 1.5 };
        return Some((format!("{ratio:.2} x, less than {most:.2}"), ratio < most));
    }
    match case.measure {
        Measure::Latency | Measure::Window(64) if case.is_small() => {
            let Some(&Steady { rounds, ratio, beyond }) = steady else {
                return Some(("no round on processors that stay".into(), false));
            };
            if case.measure == Measure::Window(64) {
                let line = format!("rate {:.2} x in {rounds} rounds on the same processors, at least 2", 1.0 / ratio);
                return Some((line, 1.0 / ratio >= 2.0));
            }
            let holds = if case.bytes == SMALL { beyond <= 0.6 } else { ratio <= 1.0 / 0.97 };
            let bar = if case.bytes == SMALL { "at most 0.60" } else { "never behind" };
            let line = format!("{ratio:.2} x, beyond half a cache line's round trip {beyond:.2} x");
            Some((format!("{line}, in {rounds} rounds on the same processors: {bar}"), holds))
        }
        // shiba-2005 and past it.
        Measure::Latency if case.bytes == LARGE => {
            let most = if case.allocated { 0.5 } else { 0.85 };
            Some((format!("{ratio:.2} x, at most {most}"), ratio <= most))
        }
        Measure::Window(16) if case.bytes >= LARGE => {
            let least = match (case.allocated, case.bytes, case.fresh) {
                (true, ..) => 2.0,
                (false, LARGE, _) => 0.97,
                (false, BYTES_32_MIB, _) => 1.6,
                (false, _, true) => 1.1,
                (false, BYTES_1_MIB, false) => 1.4,
                _ => 1.5,
            };
            Some((format!("bandwidth {:.2} x, at least {least}", 1.0 / ratio), 1.0 / ratio >= least))
        }
        Measure::Access(..) | Measure::Meet | Measure::All => Some(("never behind".into(), ratio <= 1.0 / 0.97)),
        Measure::Latency if case.bytes > LARGE => Some(("never behind".into(), ratio <= 1.0 / 0.97)),
        _ => None,
    }
}
