//! Both ends of a verbs rail move at the same moment, and only a stream is left between them: rule F-12.

use rerail_core::time::Time;
use rerail_sim::cluster::{App, Cluster, Ended, Moment, PingPong, View, Workload};
use rerail_sim::scenario::Scenario;
use rerail_sim::trace::Trace;

/// Rails by their numbers; 0 is the way to oneself.
const VERBS: usize = 1;

const ROUNDS: u32 = 8_000;
/// When the faults begin, and when they are over, in nanoseconds.
const FROM: u64 = 2_000_000;
const UNTIL: u64 = 7_000_000;
/// What a device takes at most to be opened again once it can be, what a rail waits at most until it is
/// dialled, and a connection's set-up, with much to spare: well below the end of the game.
const RECOVERY: u64 = 40_000_000;

/// The game, and what the verbs rail of each rank has sent by when.
struct Watched {
    game: PingPong,
    seen: Vec<(Time, [u64; 2])>,
}

fn packets(view: &View<'_>, rail: usize) -> [u64; 2] {
    [0, 1].map(|rank| view.engine(rank).and_then(|engine| engine.rails().nth(rail)).unwrap().counters.packets_sent)
}

impl Workload for Watched {
    fn app(&mut self, rank: u32, size: u32) -> Box<dyn App> {
        self.game.app(rank, size)
    }

    fn at_moment(&mut self, view: &View<'_>, _: Moment) -> bool {
        self.seen.push((view.now, packets(view, VERBS)));
        true
    }
}

impl Watched {
    /// What the verbs rails had sent at the last look up to a moment.
    fn by(&self, moment: u64) -> [u64; 2] {
        self.seen.iter().rfind(|(at, _)| at.0 <= moment).unwrap().1
    }
}

/// Ping-pong between two hosts, with a fault at both; every message arrives, and the verbs rails carry most
/// of them again when it is over.
fn both_move(what: &str, place: &str) {
    let fault = |host: u32| {
        format!("{{ at = \"{FROM}ns\", until = \"{UNTIL}ns\", what = \"{what}\", where = \"host{host}.{place}\" }}")
    };
    let text = format!(
        "hosts = 2\nfaults = [{}, {}]\n[[hcas]]\n[[hcas]]\ndevice = \"ethernet-10g\"\n[[rails]]\nkind = \"hca\"\nhca = 0\n\
         [[rails]]\nkind = \"stream\"\nhca = 1\n[limits]\ninspection_period = \"100us\"\n",
        fault(0),
        fault(1)
    );
    for seed in 1..3 {
        let mut workload = Watched { game: PingPong::new(ROUNDS, 64), seen: Vec::new() };
        let mut cluster = Cluster::build(&Scenario::parse("moved", &text).unwrap(), seed, &mut workload, Trace::off())
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((cluster.run(&mut workload), workload.game.failures()), (Ended::Done, 0), "{what}, seed {seed}");
        let (begun, over, later) = (workload.by(FROM), workload.by(UNTIL), workload.by(UNTIL + RECOVERY));
        let end = packets(&cluster.view(), VERBS);
        for rank in 0..2 {
            let it = format!("{what}, seed {seed}, rank {rank}: {begun:?} {over:?} {later:?} {end:?}");
            assert!(begun[rank] > 100, "it carried messages: {it}");
            assert!(over[rank] < begun[rank] + 100, "it did not while the fault lasted: {it}");
            assert!(later[rank] > over[rank] + 100, "it does again: {it}");
            assert!(end[rank] > u64::from(ROUNDS) / 3, "and most of the rest: {it}");
        }
    }
}

// F-12
#[test]
fn two_devices_that_break_at_once_find_each_other() {
    both_move("device-fatal", "hca0");
}

// F-12
#[test]
fn two_ports_that_are_renumbered_at_once_find_each_other() {
    both_move("renumber", "hca0.port0");
}
