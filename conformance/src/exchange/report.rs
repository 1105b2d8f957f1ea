//! The report of an exchange: what each rank brings, all of it together, and how it is shown.

use std::collections::BTreeMap;

use rerail_core::rail::RailKind;
use serde::{Deserialize, Serialize};

use super::measure::Measured;
use super::plan::Kind;
use super::verify::{Count, Problem, Tally};
use crate::exit::Exit;
use crate::output::stats::Latency;
use crate::output::{Align, Table, bad, bold, bytes, good, microseconds, rate};
use crate::session::{Attempts, Path, Session};

/// What one rank brings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankReport {
    /// The rank.
    pub rank: u32,
    /// What it verified.
    pub tally: Tally,
    /// What it measured.
    pub measured: Vec<Measured>,
    /// Its rails' counters.
    pub rails: Vec<RailReport>,
    /// Peers that it lost.
    pub lost: Vec<Loss>,
}

/// A rail's counters, of one rank or of all together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RailReport {
    /// The rail's name.
    pub name: String,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent, headers included.
    pub bytes: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// System calls for both.
    pub system_calls: u64,
    /// Subchannels refused or closed because of what the other side sent.
    pub refused: u64,
}

/// A lost peer, as one rank saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The rank that lost it.
    pub seen_by: u32,
    /// The lost rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// The way to it.
    pub path: Path,
    /// The reported reason, as text.
    pub why: String,
    /// How long no rail to it had been ready before it was given up; 0: one was until then.
    pub unready_ns: u64,
    /// What had been tried by then.
    pub attempts: Vec<Attempts>,
}

impl Loss {
    /// Rank, place, reason.
    pub fn describe(&self) -> String {
        let Loss { rank, host, pid, path, why, .. } = self;
        format!("rank {rank} ({host}, pid {pid}, over {path}) is lost: {why}")
    }
}

/// The rails of this process.
pub fn rails(session: &Session) -> Vec<RailReport> {
    let rails = session.transport().rails().map(|rail| {
        let counters = rail.counters;
        // A real device's name is more specific than its kind; addresses distinguish loopback rails.
        let name = if rail.kind == RailKind::Tcp && !rail.name.contains(':') {
            format!("tcp:{}", rail.name)
        } else {
            rail.name.to_owned()
        };
        RailReport {
            name,
            packets: counters.packets_sent,
            bytes: counters.bytes_sent,
            packets_received: counters.packets_received,
            bytes_received: counters.bytes_received,
            system_calls: counters.system_calls,
            refused: counters.unauthenticated + counters.corrupt,
        }
    });
    rails.collect()
}

/// All ranks' reports together.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether the run passed: nothing wrong and no rank lost.
    pub ok: bool,
    /// The exit code.
    pub exit: u8,
    /// Processes.
    pub ranks: u32,
    /// Their hosts.
    pub hosts: Vec<String>,
    /// The seed, to run the same again.
    pub seed: u64,
    /// Rounds.
    pub rounds: u64,
    /// Wall time in seconds, from the first barrier on.
    pub seconds: f64,
    /// Messages and transfers verified.
    pub messages: u64,
    /// Bytes verified.
    pub bytes: u64,
    /// By what was checked.
    pub checks: Vec<CheckLine>,
    /// By path.
    pub paths: Vec<PathLine>,
    /// By rail, over all ranks.
    pub rails: Vec<RailReport>,
    /// The first problems.
    pub problems: Vec<Problem>,
    /// All problems.
    pub problems_total: u64,
    /// Operations that ended because a peer was lost.
    pub cut_short: u64,
    /// Lost peers, as each survivor saw them.
    pub lost: Vec<Loss>,
    /// Ranks without a report that are not lost.
    pub silent: Vec<u32>,
}

/// One check.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CheckLine {
    /// Its name.
    pub check: Kind,
    /// What it is about.
    pub claim: &'static str,
    /// What was counted.
    #[serde(flatten)]
    pub count: Count,
}

/// One path.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PathLine {
    /// Which.
    pub path: Path,
    /// What was counted.
    #[serde(flatten)]
    pub count: Count,
    /// Latency of small messages.
    pub latency: Option<Latency>,
    /// Bytes per second of large messages.
    pub bytes_per_second: Option<f64>,
}

/// The frame of a report: the facts that don't come from the ranks.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Processes.
    pub ranks: u32,
    /// Their hosts, by rank.
    pub hosts: Vec<String>,
    /// The seed.
    pub seed: u64,
    /// Rounds.
    pub rounds: u64,
    /// Wall time in seconds.
    pub seconds: f64,
}

impl Report {
    /// Merges the ranks' reports; `None`: that rank's did not come.
    pub fn merge(frame: Frame, reports: &[Option<RankReport>]) -> Report {
        let Frame { ranks, hosts, seed, rounds, seconds } = frame;
        let mut tally = Tally::default();
        let mut lost: Vec<Loss> = Vec::new();
        let mut measured: BTreeMap<Path, Measured> = BTreeMap::new();
        let mut rails: Vec<RailReport> = Vec::new();
        for report in reports.iter().flatten() {
            tally.merge(&report.tally);
            lost.extend(report.lost.iter().cloned());
            measured.extend(report.measured.iter().map(|one| (one.path, *one)));
            report.rails.iter().for_each(|rail| add_rail(&mut rails, rail));
        }
        let is_lost = |rank| lost.iter().any(|loss| loss.rank == rank);
        let silent: Vec<u32> = (0..ranks).filter(|&rank| reports[rank as usize].is_none() && !is_lost(rank)).collect();
        let exit = if tally.problems_total > 0 {
            Exit::Verification
        } else if !lost.is_empty() || !silent.is_empty() {
            Exit::PeerLost
        } else {
            Exit::Ok
        };
        let check = |kind: Kind| {
            let count = tally.checks.get(&kind).copied()?;
            Some(CheckLine { check: kind, claim: kind.claim(), count })
        };
        let path = |path: Path| {
            let measured = measured.get(&path);
            let count = tally.paths.get(&path).copied()?;
            let latency = measured.and_then(|measured| measured.latency);
            let bytes_per_second = measured.and_then(|measured| measured.bytes_per_second);
            Some(PathLine { path, count, latency, bytes_per_second })
        };
        Report {
            ok: exit == Exit::Ok,
            exit: exit.code(),
            ranks,
            hosts,
            seed,
            rounds,
            seconds,
            messages: tally.messages(),
            bytes: tally.bytes(),
            checks: Kind::ALL.into_iter().filter_map(check).collect(),
            paths: Path::ALL.into_iter().filter_map(path).collect(),
            rails,
            problems: tally.problems,
            problems_total: tally.problems_total,
            cut_short: tally.cut_short,
            lost,
            silent,
        }
    }

    /// How the process should end.
    pub fn exit(&self) -> Exit {
        [Exit::Ok, Exit::Verification, Exit::PeerLost]
            .into_iter()
            .find(|exit| exit.code() == self.exit)
            .unwrap_or(Exit::Verification)
    }

    /// For people.
    pub fn render(&self) -> String {
        let mut parts = vec![self.paths_table(), self.rails_table(), self.checks_table()];
        if !self.lost.is_empty() || !self.silent.is_empty() {
            parts.push(self.losses());
        }
        if !self.problems.is_empty() {
            parts.push(self.problem_list());
        }
        parts.push(self.verdict());
        parts.join("\n\n")
    }

    fn paths_table(&self) -> String {
        let mut table = Table::new(&[
            ("path", Align::Left),
            ("messages", Align::Right),
            ("bytes", Align::Right),
            ("median us", Align::Right),
            ("p99 us", Align::Right),
            ("MB/s", Align::Right),
        ]);
        for line in &self.paths {
            let time = |pick: fn(&Latency) -> u64| {
                line.latency.as_ref().map_or("-".to_owned(), |latency| microseconds(pick(latency)))
            };
            table.row([
                line.path.name().to_owned(),
                line.count.messages.to_string(),
                bytes(line.count.bytes),
                time(|latency| latency.median_ns),
                time(|latency| latency.p99_ns),
                line.bytes_per_second.map_or("-".to_owned(), rate),
            ]);
        }
        format!("{}\n{}", bold("Paths (verified; latency of 8 B, bandwidth of large messages)"), table.render())
    }

    fn rails_table(&self) -> String {
        let mut table = Table::new(&[
            ("rail", Align::Left),
            ("packets", Align::Right),
            ("bytes", Align::Right),
            ("system calls", Align::Right),
            ("refused", Align::Right),
        ]);
        for rail in &self.rails {
            table.row([
                rail.name.clone(),
                rail.packets.to_string(),
                bytes(rail.bytes),
                rail.system_calls.to_string(),
                rail.refused.to_string(),
            ]);
        }
        format!("{}\n{}", bold("Rails (sent by all ranks, headers and measurements included)"), table.render())
    }

    fn checks_table(&self) -> String {
        let mut table = Table::new(&[
            ("check", Align::Left),
            ("messages", Align::Right),
            ("bytes", Align::Right),
            ("result", Align::Left),
            ("what", Align::Left),
        ]);
        for line in &self.checks {
            let result = match line.count.problems {
                0 => good("ok"),
                problems => bad(&format!("{problems} wrong")),
            };
            table.row([
                line.check.name().to_owned(),
                line.count.messages.to_string(),
                bytes(line.count.bytes),
                result,
                line.claim.to_owned(),
            ]);
        }
        format!("{}\n{}", bold("Checks"), table.render())
    }

    fn losses(&self) -> String {
        let mut lines = vec![bold("Lost")];
        lines.extend(self.lost.iter().map(|loss| format!("rank {} reports: {}", loss.seen_by, loss.describe())));
        lines.extend(self.silent.iter().map(|rank| format!("rank {rank} brought no report")));
        if self.cut_short > 0 {
            lines.push(format!("{} operations ended with it; all others were verified", self.cut_short));
        }
        lines.join("\n")
    }

    fn problem_list(&self) -> String {
        let mut lines = vec![bold("Problems")];
        lines.extend(self.problems.iter().map(Problem::to_string));
        let more = self.problems_total - self.problems.len() as u64;
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        lines.join("\n")
    }

    fn verdict(&self) -> String {
        let amount = format!(
            "{} messages, {} verified between {} ranks in {:.1} s",
            self.messages,
            bytes(self.bytes),
            self.ranks,
            self.seconds
        );
        match self.exit() {
            Exit::Ok => format!("{} {amount}: nothing lost, duplicated, out of order or different.", good("OK")),
            Exit::PeerLost => format!("{} {amount}: nothing else is wrong.", bad("PEER LOST")),
            _ => format!(
                "{} {amount}: {} problems. The same again: --seed {}",
                bad("FAILED"),
                self.problems_total,
                self.seed
            ),
        }
    }
}

/// Adds a rank's rail to the rail of the same name.
fn add_rail(rails: &mut Vec<RailReport>, rail: &RailReport) {
    match rails.iter_mut().find(|known| known.name == rail.name) {
        None => rails.push(rail.clone()),
        Some(known) => {
            known.packets += rail.packets;
            known.bytes += rail.bytes;
            known.packets_received += rail.packets_received;
            known.bytes_received += rail.bytes_received;
            known.system_calls += rail.system_calls;
            known.refused += rail.refused;
        }
    }
}
