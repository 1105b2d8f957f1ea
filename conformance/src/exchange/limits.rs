//! Settings with which an exchange can't end: values that are valid for other programs, reported before
//! anything starts.
//!
//! The rounds submit all that belongs to them before they wait for any of it, so tables must hold that much.
//! A program that waits in between needs less.

use std::fmt;

use rerail_core::config::Config;
use rerail_linux::settings::Settings;

use super::plan::{Kind, Round, Scope, plan};
use super::rank;
use crate::exit::Failure;
use crate::info::machine::memory_available;
use crate::output::bytes;

/// A setting that is too low.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Low {
    setting: &'static str,
    value: u64,
    least: u64,
    why: String,
}

impl fmt::Display for Low {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Low { setting, value, least, why } = self;
        let variable = setting.to_uppercase();
        write!(f, "{setting} is {value}, but an exchange needs {least} or more, for {why}: RERAIL_{variable}={least}")
    }
}

/// Refuses messages for which this machine has no memory: all ranks run on it, and fill what they allocate.
pub fn check_memory(ranks: u32, bytes_max: u64, quick: bool) -> Result<(), Failure> {
    match memory_available() {
        Some(available) => fits(ranks, bytes_max, quick, available),
        None => Ok(()),
    }
}

fn fits(ranks: u32, bytes_max: u64, quick: bool, available: u64) -> Result<(), Failure> {
    // Of the sizes, the largest alone decides.
    let need = 3 * u64::from(ranks) * rank::memory_max(&plan(&Scope { ranks, bytes_max, quick }), ranks);
    if need <= available {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{ranks} ranks need {} of memory for messages of {}, this machine has {} available: lower --max-bytes or -n",
        bytes(need),
        bytes(bytes_max),
        bytes(available)
    )))
}

/// Refuses settings with which `ranks` ranks on `hosts` logical hosts can't complete the rounds.
pub fn check(settings: &Settings, config: &Config, rounds: &[Round], hosts: u32) -> Result<(), Failure> {
    let ranks = config.peers_max;
    let mut problems: Vec<String> = low(config, rounds).iter().map(Low::to_string).collect();
    if ranks > 1 && hosts > 1 && settings.rails.iter().all(|rail| rail == "shm") {
        problems.push(format!(
            "the {ranks} ranks are {} logical hosts, between which no rail of RERAIL_RAILS={} leads: --hosts 1 makes one \
             host of them; or name tcp as well",
            hosts.min(ranks),
            settings.rails.join(",")
        ));
    }
    if problems.is_empty() { Ok(()) } else { Err(Failure::usage(problems.join("\n"))) }
}

fn low(config: &Config, rounds: &[Round]) -> Vec<Low> {
    let ranks = config.peers_max;
    let most = |of: &dyn Fn(&Round) -> u64| rounds.iter().map(of).max().unwrap_or(0);
    let injects = |round: &Round| if round.kind == Kind::Inject { round.bytes } else { 0 };
    let waits = |round: &Round| match round.kind {
        // Behind them comes the barrier's token.
        Kind::Unexpected | Kind::Claim => round.count + 1,
        _ => 1,
    };
    let open = |round: &Round| {
        let peers = if round.shift.is_some() { 1 } else { u64::from(ranks) };
        let held = match round.kind {
            // These end by themselves, whatever else their rank does.
            Kind::Put | Kind::Get | Kind::Refusal | Kind::FetchAdd | Kind::CompareSwap => 0,
            Kind::MultiReceive => 1,
            _ => round.count,
        };
        // Beside them a barrier's receives, and one of its sends at a time.
        held * peers + u64::from(ranks) + 1
    };
    let has = |kinds: &[Kind]| u64::from(rounds.iter().any(|round| kinds.contains(&round.kind)));
    let pieces = 3 * has(&[Kind::Segments, Kind::Scattered]);
    let windows = has(&[Kind::Put, Kind::Get, Kind::Refusal, Kind::FetchAdd, Kind::CompareSwap]);
    let retained = u64::from(most(&injects) > 0);
    let needs: [(&str, u64, u64, &str); 7] = [
        ("channels", config.channels_max.into(), ranks.into(), "every rank talks to every rank, itself included"),
        ("operations", config.operations_max.into(), most(&open), "the requests of a round, submitted together"),
        ("segments", config.segments_max.into(), pieces, "messages in three pieces"),
        ("unexpected", config.unexpected_per_peer.into(), most(&waits), "messages that come before their receives"),
        ("eager_max", config.eager_bytes_max.into(), most(&injects), "the largest message that is injected"),
        ("retained", config.retained_max.into(), retained, "messages that are injected: each is copied"),
        ("windows", config.windows_max.into(), windows, "the window of puts, gets and atomics"),
    ];
    let low = needs.into_iter().filter(|&(_, value, least, _)| value < least);
    low.map(|(setting, value, least, why)| Low { setting, value, least, why: why.to_owned() }).collect()
}

#[cfg(test)]
mod tests {
    use rerail_core::ids::PeerId;

    use super::super::plan::{Scope, plan};
    use super::*;

    fn complaint(change: impl FnOnce(&mut Config), hosts: u32) -> String {
        let mut config = Config::new(PeerId(0), 4);
        change(&mut config);
        let rounds = plan(&Scope { ranks: 4, bytes_max: 1 << 20, quick: true });
        let complaint = check(&Settings::default(), &config, &rounds, hosts);
        complaint.err().map_or_else(String::new, |failure| failure.message)
    }

    #[test]
    fn the_defaults_are_enough_for_any_number_of_ranks_that_are_connected_at_once() {
        for ranks in 1..=64 {
            for quick in [false, true] {
                let rounds = plan(&Scope { ranks, bytes_max: 64 << 20, quick });
                assert_eq!(low(&Config::new(PeerId(0), ranks), &rounds), [], "{ranks}");
            }
        }
    }

    #[test]
    fn messages_that_do_not_fit_into_memory_are_refused() {
        assert!(fits(4, 1 << 20, true, 8 << 30).is_ok());
        for (ranks, bytes_max) in [(2, 1 << 40), (256, 1 << 40), (256, 64 << 20), (2, 8 << 30)] {
            let complaint = fits(ranks, bytes_max, false, 8 << 30).unwrap_err().message;
            assert!(complaint.contains("lower --max-bytes or -n"), "{complaint}");
        }
    }

    #[test]
    fn insufficient_limit_is_reported_with_its_minimum() {
        assert_eq!(complaint(|_| (), 2), "");
        assert_eq!(
            complaint(|config| config.retained_max = 0, 2),
            "retained is 0, but an exchange needs 1 or more, for messages that are injected: each is copied: \
             RERAIL_RETAINED=1"
        );
        for (change, least) in [
            (
                Box::new(|config: &mut Config| config.channels_max = 3) as Box<dyn FnOnce(&mut Config)>,
                "RERAIL_CHANNELS=4",
            ),
            (Box::new(|config| config.operations_max = 68), "RERAIL_OPERATIONS=69"),
            (Box::new(|config| config.segments_max = 2), "RERAIL_SEGMENTS=3"),
            (Box::new(|config| config.unexpected_per_peer = 8), "RERAIL_UNEXPECTED=9"),
            (Box::new(|config| config.eager_bytes_max = 4095), "RERAIL_EAGER_MAX=4096"),
            (Box::new(|config| config.windows_max = 0), "RERAIL_WINDOWS=1"),
        ] {
            let complaint = complaint(change, 2);
            assert!(complaint.ends_with(least), "{complaint}");
        }
    }

    #[test]
    fn shared_memory_alone_requires_a_single_host() {
        let rounds = plan(&Scope { ranks: 2, bytes_max: 0, quick: true });
        let mut settings = Settings::default();
        settings.set("rails", "shm").unwrap();
        let complaint = |ranks, hosts| check(&settings, &Config::new(PeerId(0), ranks), &rounds, hosts);
        assert!(complaint(2, 2).unwrap_err().message.contains("--hosts 1"));
        assert!(complaint(2, 1).is_ok() && complaint(1, 2).is_ok());
    }
}
