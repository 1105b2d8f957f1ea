//! Simulations of a few ranks: they run, they are the same again, and faults do what they should.

use rerail_core::endpoint::{Event, Loss, LossReason, RailFault};
use rerail_core::time::Time;

use super::fault::Kind;
use super::*;
use crate::rails::{JointCounts, MapCounts};
use crate::scenario::Scenario;

fn scenario(text: &str) -> Scenario {
    Scenario::parse("test", text).unwrap()
}

fn cluster(text: &str, seed: u64, workload: &mut dyn Workload, trace: Trace) -> Cluster {
    Cluster::build(&scenario(text), seed, workload, trace).unwrap_or_else(|error| panic!("{error}"))
}

const SHM: &str = "hosts = 1\nranks_per_host = 4\nrails = [{ kind = \"shm\" }]\n";

/// Every table of every living rank is empty but for channels and timers that watch.
fn assert_idle(cluster: &Cluster) {
    let view = cluster.view();
    for rank in (0..view.size()).filter(|rank| view.is_alive(*rank)) {
        let usage = view.usage(rank).unwrap();
        for (name, table) in usage.tables() {
            if !["channels", "timers", "windows"].contains(&name) {
                assert_eq!(table.used, 0, "rank {rank}: {name}");
            }
        }
    }
}

#[test]
fn ranks_of_a_host_play_ping_pong() {
    // Below and above the limit of eager messages, and below and above a ring's slot.
    for bytes in [1, 3000, 5000, 100_000] {
        let mut workload = PingPong::new(20, bytes);
        let mut cluster = cluster(SHM, 1, &mut workload, Trace::off());
        assert_eq!((cluster.run(&mut workload), workload.failures()), (Ended::Done, 0));
        assert_idle(&cluster);
        let report = cluster.report();
        assert!(report.packets >= 4 * 20 && report.done_ns > 0, "{report:?}");
        // Two rings for each of two pairs.
        let ring = rerail_core::shm::ring_bytes(scenario(SHM).ring()).unwrap() as u64;
        assert_eq!(report.ring_bytes, 4 * ring);
    }
}

#[test]
fn a_rank_without_a_pair_plays_with_itself() {
    let mut workload = PingPong::new(5, 100);
    let mut cluster =
        cluster("hosts = 1\nranks_per_host = 3\nrails = [{ kind = \"shm\" }]", 1, &mut workload, Trace::off());
    assert_eq!(cluster.run(&mut workload), Ended::Done);
}

const STREAM: &str = "hosts = 4\ndevice = \"ethernet-10g\"\n";

#[test]
fn ranks_of_hosts_play_ping_pong_over_streams() {
    for bytes in [1, 3000, 20_000, 1_000_000] {
        let mut workload = PingPong::new(10, bytes);
        let mut cluster = cluster(STREAM, 1, &mut workload, Trace::off());
        assert_eq!((cluster.run(&mut workload), workload.failures()), (Ended::Done, 0), "{bytes} bytes");
        assert_idle(&cluster);
        // 20 messages in a row over a link of 1.25 GB/s take at least their bytes.
        let least = 20 * bytes * 8 / 10;
        assert!(cluster.report().done_ns > least, "{bytes} bytes: {:?}", cluster.report());
    }
}

#[test]
fn two_streams_carry_stripes() {
    let took = |ports: u32| {
        let text = format!("[[hcas]]\ndevice = \"ethernet-10g\"\nports = {ports}\n[config]\nstriping = \"even\"");
        let mut workload = PingPong::new(4, 4_000_000);
        let mut cluster = cluster(&text, 1, &mut workload, Trace::off());
        assert_eq!((cluster.run(&mut workload), workload.failures()), (Ended::Done, 0));
        cluster.report().done_ns
    };
    let (one, two) = (took(1), took(2));
    assert!(two * 10 < one * 6, "one link {one} ns, two links {two} ns");
}

#[test]
fn tcp_rails_tolerate_network_faults() {
    for seed in 0..12 {
        let text = format!(
            "{STREAM}squeeze = true\n[random]\nper_second = 3000\nlasts_max = \"3ms\"\nkinds = \
             [\"jitter\", \"hold\", \"lose\", \"corrupt\", \"load\", \"blink\", \"pause\", \"lag\", \"link-down\", \
             \"plane-down\", \"switch-down\"]\n[limits]\nsafety = \"20ms\"\n"
        );
        let mut workload = PingPong::new(20, 1 + seed * 997 % 30_000);
        let mut cluster = cluster(&text, seed, &mut workload, Trace::off());
        assert_eq!((cluster.run(&mut workload), workload.failures()), (Ended::Done, 0), "seed {seed}");
        assert_idle(&cluster);
        assert!(cluster.report().faults > 10);
    }
}

#[test]
fn a_reset_stream_is_made_anew() {
    let text =
        format!("{STREAM}faults = [{{ at = \"200us\", what = \"stream-reset\", where = \"host0.hca0.port0\" }}]");
    let mut workload = PingPong::new(1000, 100);
    let mut cluster = cluster(&text, 1, &mut workload, Trace::off());
    assert_eq!(cluster.run(&mut workload), Ended::Done);
    assert!(cluster.needed_recovery());
    assert_eq!(workload.failures(), 0);
}

fn trace_text(text: &str, seed: u64) -> Vec<String> {
    let mut workload = PingPong::new(10, 5000);
    let trace = Trace::on();
    let mut cluster = cluster(text, seed, &mut workload, trace.clone());
    assert_eq!(cluster.run(&mut workload), Ended::Done);
    trace.take().iter().map(|line| line.to_string()).collect()
}

const FAULTY: &str = r#"
hosts = 1
ranks_per_host = 4
rails = [{ kind = "shm" }]
squeeze = true
[cpu]
slow_polls_per_thousand = 200
[random]
per_second = 20000
kinds = ["pause", "lag", "admin-cut"]
lasts_max = "100us"
[limits]
safety = "2ms"
"#;

#[test]
fn a_seed_has_one_history() {
    let first = trace_text(FAULTY, 7);
    assert!(first.len() > 100 && first.iter().any(|line| line.contains("fault: pause")), "{first:#?}");
    assert_eq!(first, trace_text(FAULTY, 7));
    let streams = format!("{STREAM}squeeze = true\n[random]\nper_second = 1000\n[limits]\nsafety = \"5ms\"\n");
    assert_eq!(trace_text(&streams, 7), trace_text(&streams, 7));
    assert_ne!(first, trace_text(FAULTY, 8));
}

#[test]
fn runs_with_random_faults_complete() {
    for seed in 0..50 {
        let mut workload = PingPong::new(30, 1 + seed * 331 % 9000);
        let mut cluster = cluster(FAULTY, seed, &mut workload, Trace::off());
        let ended = cluster.run(&mut workload);
        assert_eq!((ended, workload.failures()), (Ended::Done, 0), "seed {seed}");
        assert!(!cluster.needed_recovery());
        assert_idle(&cluster);
    }
}

#[test]
fn higher_costs_make_the_run_longer() {
    let took = |more: &str| {
        let mut workload = PingPong::new(50, 64);
        let mut cluster = cluster(&format!("{SHM}{more}"), 1, &mut workload, Trace::off());
        assert_eq!(cluster.run(&mut workload), Ended::Done);
        cluster.report().done_ns
    };
    // The run's safety phase ends with the last message.
    let plain = took("");
    for more in
        ["[shm]\nlatency_ns = 1000", "[cpu]\npoll_ns = 1000", "[cpu]\nthing_ns = 1000", "[cpu]\nevent_ns = 1000"]
    {
        let slower = took(more);
        // 50 messages each way, one after the other, each with a nanosecond-exact price.
        assert!(slower >= plain + 100 * 900, "{more}: {plain} to {slower}");
    }
}

/// Does nothing but count the peers that were lost, and wake at set times.
struct Idle {
    send_to: Option<u32>,
    lost: std::rc::Rc<std::cell::RefCell<Vec<(u32, Loss, Time)>>>,
}

impl App for Idle {
    fn start(&mut self, cx: &mut Cx<'_>) {
        if let Some(peer) = self.send_to {
            let send = rerail_core::endpoint::SendRequest::new(View::peer(peer), &[]);
            cx.engine.inject(&send, b"hello").unwrap();
        }
    }

    fn event(&mut self, cx: &mut Cx<'_>, event: Event) {
        if let Event::PeerLost { why, .. } = event {
            self.lost.borrow_mut().push((cx.rank, why, cx.now));
        }
    }

    fn is_done(&self) -> bool {
        true
    }
}

#[derive(Default)]
struct Idlers {
    lost: std::rc::Rc<std::cell::RefCell<Vec<(u32, Loss, Time)>>>,
    moments: Vec<Moment>,
}

impl Workload for Idlers {
    fn app(&mut self, rank: u32, _size: u32) -> Box<dyn App> {
        Box::new(Idle { send_to: (rank == 0).then_some(1), lost: self.lost.clone() })
    }

    fn at_moment(&mut self, view: &View<'_>, moment: Moment) -> bool {
        if let Moment::Killed(rank) = moment {
            assert!(!view.is_alive(rank));
        }
        if moment != Moment::Between {
            self.moments.push(moment);
        }
        true
    }
}

#[test]
fn killed_rank_is_reported_lost_and_its_memory_remains() {
    let text = format!("{SHM}faults = [{{ at = \"100us\", what = \"kill\", where = \"rank1\" }}]");
    let mut workload = Idlers::default();
    let mut cluster = cluster(&text, 1, &mut workload, Trace::off());
    assert_eq!(cluster.run(&mut workload), Ended::Done);
    assert!(cluster.needed_recovery());
    let lost = workload.lost.borrow();
    let [(0, why, at)] = lost[..] else { panic!("{lost:?}") };
    assert!(matches!(why.reason, LossReason::RailFailed { fault: RailFault::Closed, .. }), "{why:?}");
    assert!((100_000..110_000).contains(&at.0), "{at:?}");
    assert_eq!(workload.moments, [Moment::Killed(1), Moment::Healed, Moment::Done, Moment::End]);
    assert!(cluster.view().engine(1).is_some());
}

#[test]
fn rank_killed_over_a_network_is_lost_only_to_its_peer() {
    for device in ["connectx", "ethernet-10g"] {
        let text = format!(
            "hosts = 4\ndevice = \"{device}\"\nfaults = [{{ at = \"100us\", what = \"kill\", where = \"rank1\" }}]\n\
             [config]\nrecovery_timeout = \"50ms\""
        );
        let mut workload = PingPong::new(200, 2000);
        let mut cluster = cluster(&text, 1, &mut workload, Trace::off());
        assert_eq!(cluster.run(&mut workload), Ended::Done, "{device}");
        // Its peer's loss, and what that had open.
        assert!((2..=3).contains(&workload.failures()), "{device}: {}", workload.failures());
        assert!(cluster.view().is_done(2) && cluster.view().is_done(3));
    }
}

#[test]
fn paused_rank_makes_no_progress_until_resumed() {
    let done = |text: &str| {
        let mut workload = PingPong::new(10, 10);
        let mut cluster = cluster(&format!("{SHM}{text}"), 1, &mut workload, Trace::off());
        assert_eq!(cluster.run(&mut workload), Ended::Done);
        cluster.report().done_ns
    };
    let pause = |until: &str| format!("faults = [{{ at = \"1us\", what = \"pause\", where = \"rank1\"{until} }}]\n");
    assert!(done("") < 1_000_000);
    let paused = done(&pause(", until = \"2ms\""));
    assert!((2_000_000..3_000_000).contains(&paused), "{paused}");
    // Without an end it goes on when everything is healed, which is when the safety phase is over.
    let healed = done(&format!("{}[limits]\nsafety = \"5ms\"", pause("")));
    assert!((5_000_000..6_000_000).contains(&healed), "{healed}");
}

/// F-11, F-13: a rank that computes for three hours in the midst of transfers loses no connection, nothing is
/// sent twice, and it takes part again at once, with default settings over every kind of rail. Its buffers
/// are full meanwhile.
#[test]
fn rank_computing_for_hours_keeps_its_connections() {
    let stream = "device = \"ethernet-10g\"\n";
    let two_streams = "[[hcas]]\ndevice = \"ethernet-10g\"\nports = 2\n";
    let verbs = "device = \"connectx\"\n";
    let xrc = "ranks_per_host = 2\nrails = [{ kind = \"hca\" }]\nverbs = { xrc = true }\ndevice = \"connectx\"\n";
    for rails in [stream, two_streams, verbs, xrc, SHM] {
        // Over verbs alone, a process that makes no call answers no set-up message: they meet before.
        let met_us = if [verbs, xrc].contains(&rails) { 100 } else { 1 };
        for (bytes, at_us) in [(3000, met_us), (1_000_000, 300)] {
            if rails == SHM && at_us > 1 {
                continue; // It is over by then.
            }
            let text = format!(
                "faults = [{{ at = \"{at_us}us\", what = \"pause\", where = \"rank1\", until = \"7200s\" }}]\n\
                 limits = {{ safety = \"7201s\", inspection_period = \"100s\" }}\n{rails}"
            );
            let mut workload = PingPong::new(60, bytes);
            let mut cluster = cluster(&text, 1, &mut workload, Trace::off());
            let case = format!("{bytes} bytes, from {at_us} us on, {text}");
            assert_eq!((cluster.run(&mut workload), workload.failures()), (Ended::Done, 0), "{case}");
            assert!(cluster.report().done_ns > 7_200_000_000_000, "{case}");
            for rank in 0..cluster.view().size() {
                let view = cluster.view();
                let endpoint = view.engine(rank).unwrap().endpoint();
                let stats = endpoint.stats();
                assert_eq!((stats.replayed, stats.duplicates_dropped), (0, 0), "{case}: {stats:?}");
                for (peer, rail) in (0..cluster.view().size()).flat_map(|peer| (0..3).map(move |rail| (peer, rail))) {
                    let health = endpoint.rail_health(View::peer(peer), rerail_core::ids::RailId(rail));
                    assert_eq!(health.map_or(0, |health| health.failures + health.refusals), 0, "{case}: {rank}");
                }
            }
        }
    }
}

/// Answers a datagram with the next letter; rank 0 begins.
#[derive(Default)]
struct Letters(std::rc::Rc<std::cell::RefCell<Vec<Letter>>>);

/// Time, receiver, contents.
type Letter = (u64, u32, Vec<u8>);

impl Workload for Letters {
    fn app(&mut self, _rank: u32, _size: u32) -> Box<dyn App> {
        Box::new(Letters(self.0.clone()))
    }
}

impl App for Letters {
    fn start(&mut self, cx: &mut Cx<'_>) {
        if cx.rank == 0 {
            cx.wake_at(Time(50_000));
        }
    }

    fn event(&mut self, _cx: &mut Cx<'_>, _event: Event) {}

    fn timer(&mut self, cx: &mut Cx<'_>) {
        cx.send_datagram(1, b"a");
    }

    fn datagram(&mut self, cx: &mut Cx<'_>, from: u32, bytes: &[u8]) {
        self.0.borrow_mut().push((cx.now.0, cx.rank, bytes.to_vec()));
        if bytes < b"d".as_slice() {
            cx.send_datagram(from, &[bytes[0] + 1]);
        }
    }

    fn is_done(&self) -> bool {
        self.0.borrow().len() == 4
    }
}

#[test]
fn the_administrative_network_carries_datagrams_unless_it_is_cut() {
    let run = |text: &str| {
        let mut workload = Letters::default();
        let mut cluster = cluster(&format!("{SHM}{text}"), 1, &mut workload, Trace::off());
        let ended = cluster.run(&mut workload);
        let reported = workload.0.take();
        (ended, reported)
    };
    let (ended, reported) = run("");
    assert_eq!(ended, Ended::Done);
    let letters: Vec<_> = reported.iter().map(|(_, rank, letter)| (*rank, letter[0])).collect();
    assert_eq!(letters, [(1, b'a'), (0, b'b'), (1, b'c'), (0, b'd')]);
    assert!(reported.windows(2).all(|pair| pair[1].0 >= pair[0].0 + 100_000), "{reported:?}");
    let cut = r#"faults = [{ at = "200us", what = "admin-cut", where = "rank1", until = "300us" }]"#;
    let (ended, reported) = run(cut);
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(matches!(ended, Ended::Stuck { idle: true, .. }), "{ended:?}");
}

#[test]
fn impossible_scenario_is_refused() {
    let build = |text: &str| Cluster::build(&scenario(text), 0, &mut Idlers::default(), Trace::off());
    let bad = Scenario { hosts: 0, ..Scenario::default() };
    let error = Cluster::build(&bad, 0, &mut Idlers::default(), Trace::off()).err().unwrap();
    assert!(error.to_string().starts_with("hosts = 0"), "{error}");
    // A scenario with shared memory only can't reach another host.
    let error = build("hosts = 2\nrails = [{ kind = \"shm\" }]").err().unwrap();
    assert!(matches!(error, BuildError::Start { rank: 1, .. }), "{error}");
}

const VERBS: &str = "hosts = 4\ndevice = \"connectx\"\n";

#[test]
fn ranks_of_hosts_play_ping_pong_over_verbs() {
    for bytes in [1, 3000, 20_000, 1_000_000] {
        let mut workload = PingPong::new(10, bytes);
        let mut cluster = cluster(VERBS, 1, &mut workload, Trace::off());
        assert_eq!((cluster.run(&mut workload), workload.failures()), (Ended::Done, 0), "{bytes} bytes");
        assert_idle(&cluster);
        // 20 messages in a row over a link of 2 GB/s.
        assert!(cluster.report().done_ns > 20 * bytes / 2, "{bytes} bytes: {:?}", cluster.report());
        assert!(cluster.view().device_objects() > 8);
    }
}

/// Faults that today's protocols must bear, over HCAs; tables so small that everything runs full.
fn faulty_verbs(more: &str) -> String {
    format!(
        "{VERBS}ranks_per_host = 2\nrails = [{{ kind = \"hca\" }}]\nsqueeze = true\n[random]\nper_second = 4000\n\
         lasts_max = \"2ms\"\n{more}\n[limits]\nsafety = \"6ms\"\n"
    )
}

#[test]
fn verbs_rails_tolerate_lossless_faults() {
    for seed in 0..10 {
        let mut workload = PingPong::new(20, 1 + seed * 1777 % 40_000);
        let mut cluster = cluster(&faulty_verbs(""), seed, &mut workload, Trace::off());
        assert!(!cluster.needed_recovery());
        assert_eq!((cluster.run(&mut workload), workload.failures()), (Ended::Done, 0), "seed {seed}");
        assert_idle(&cluster);
        assert!(cluster.report().faults > 10);
    }
}

#[test]
fn a_seed_has_one_history_over_verbs() {
    let text = faulty_verbs("");
    assert_eq!(trace_text(&text, 3), trace_text(&text, 3));
}

#[test]
fn every_fault_kind_takes_effect_and_the_run_ends() {
    for kind in fault::KINDS {
        let recovery = "[config]\nrecovery = false";
        let text = faulty_verbs(&format!("kinds = [\"{kind}\"]\n{recovery}"));
        // Two ranks of a host whose device is gone would have no way to each other: such simulations are not
        // drawn.
        let alone = matches!(kind, Kind::DeviceFatal | Kind::CqOverflow);
        let text = if alone { text.replace("ranks_per_host = 2", "ranks_per_host = 1") } else { text };
        let mut workload = PingPong::new(100, 5000);
        let mut cluster = cluster(&text, 5, &mut workload, Trace::off());
        let ended = cluster.run(&mut workload);
        assert!(cluster.report().faults > 0, "{kind}");
        if !kind.needs_recovery() {
            assert_eq!((ended, workload.failures()), (Ended::Done, 0), "{kind}");
        }
        // What hits a device before anything is connected does nothing.
        let hits = || {
            (6..12).any(|seed| {
                let mut workload = PingPong::new(100, 5000);
                let mut cluster = self::cluster(&text, seed, &mut workload, Trace::off());
                cluster.run(&mut workload);
                workload.failures() > 0
            })
        };
        if matches!(kind, Kind::AckLost | Kind::RetryExceeded | Kind::QpError | Kind::DeviceFatal | Kind::LateWrite) {
            assert!(workload.failures() > 0 || hits(), "{kind} did nothing");
        }
    }
}

/// multirail-2004, 7.1: 6 us for small messages, 884 MB/s one way, over the whole stack: engine, rail, HCA,
/// bus, link.
#[test]
fn simulated_2004_testbed_matches_the_paper() {
    let took = |rounds: u32, bytes: u64| {
        let mut workload = PingPong::new(rounds, bytes);
        let mut cluster = cluster("device = \"infinihost-pcix\"", 1, &mut workload, Trace::off());
        assert_eq!((cluster.run(&mut workload), workload.failures()), (Ended::Done, 0));
        cluster.report().done_ns
    };
    // What connecting and the end take is in both.
    let small_ns = (took(1100, 4) - took(100, 4)) / 2000;
    assert!((5_700..=6_300).contains(&small_ns), "{small_ns} ns");
    let large_ns = (took(3, 8_000_000) - took(1, 8_000_000)) / 4;
    let mb_per_second = 8_000_000_000 / large_ns;
    assert!((840..=928).contains(&mb_per_second), "{mb_per_second} MB/s");
}

/// A link at a tenth of its rate takes ten times as long, loses nothing, and is as it was when the fault is
/// over.
#[test]
fn a_slow_port_is_slow_until_the_fault_is_over() {
    let took = |faults: &str, bytes: u64| {
        let mut workload = PingPong::new(4, bytes);
        let text = format!("device = \"connectx\"\n{faults}");
        let mut cluster = cluster(&text, 1, &mut workload, Trace::off());
        assert_eq!((cluster.run(&mut workload), workload.failures()), (Ended::Done, 0), "{faults}");
        cluster.report().done_ns
    };
    let slow =
        |more: &str| format!("[[faults]]\nat = \"0ns\"\nwhat = \"slow\"\nwhere = \"host0.hca0.port0\"\n{more}\n");
    let bytes = 1_000_000;
    let usual = took("", bytes);
    let all_along = took(&slow(""), bytes);
    let twice = took(&slow("amount = 2"), bytes);
    // Time of each: a constant part, and 8 messages over the port, whose link counts alone when it is slow.
    assert!((8..11).contains(&(all_along / usual)), "{usual} {all_along}");
    assert!((3..5).contains(&(2 * twice / usual)), "{usual} {twice}");
    // A fifth of the work at a tenth of the rate, the rest at full rate.
    let partly = took(&slow(&format!("until = \"{}ns\"", all_along / 5)), bytes);
    let expected = all_along / 5 + usual * 4 / 5;
    assert!((expected * 9 / 10..expected * 11 / 10).contains(&partly), "{usual} {all_along} {partly} {expected}");
}

/// A message over the rail whose turn it is not waits for its turn, and none is left.
#[test]
fn ranks_find_messages_by_every_policy_of_progress() {
    let time = |progress: &str| {
        let text = format!(
            "ranks_per_host = 2\nhcas = [{{ cost = {{ poll_ns = 1000 }} }}]\nshm = {{ poll_ns = 1000 }}\n\
             cpu = {{ progress = \"{progress}\" }}"
        );
        let mut workload = PingPong::new(20, 5000);
        let mut cluster = cluster(&text, 1, &mut workload, Trace::off());
        assert_eq!((cluster.run(&mut workload), workload.failures()), (Ended::Done, 0), "{progress}");
        assert_idle(&cluster);
        cluster.report().done_ns
    };
    let [timed, toggle, adaptive] = ["timed", "toggle", "adaptive"].map(time);
    assert_eq!(timed, toggle, "both poll all rails each time");
    assert_ne!(adaptive, toggle);
}

/// Copies through rings take the time of the memory's bus, which the ranks of a host share or not.
#[test]
fn copies_through_rings_take_time() {
    let time = |copies: &str| {
        let text = format!("{SHM}shm = {{ slot_bytes = 65536, copies = {{ {copies} }} }}\n");
        let mut workload = PingPong::new(20, 100_000);
        let mut cluster = cluster(&text, 1, &mut workload, Trace::off());
        assert_eq!((cluster.run(&mut workload), workload.failures()), (Ended::Done, 0));
        cluster.report().done_ns
    };
    let rate = "in_bytes_per_second = 1_000_000_000, out_bytes_per_second = 1_000_000_000";
    let (free, apart, shared) = (time(""), time(rate), time(&format!("{rate}, shared = true")));
    // 40 messages one after the other, each copied twice, the second part behind the first.
    let copies_ns = 40 * 2 * 100_000;
    assert!(apart > free && apart < free + copies_ns + copies_ns / 10, "{free} {apart}");
    assert!(apart > copies_ns / 2, "{apart}");
    assert!(shared > apart + apart / 2, "two pairs, one bus: {apart} {shared}");
}

/// Two ranks of a host that read each other's memory, by units of 4096 bytes or alone.
fn read_by_units(joint_unit: u32, more: &str, workload: &mut PingPong) -> Report {
    let text = format!(
        "hosts = 1\nranks_per_host = 2\nrails = [{{ kind = \"shm\" }}]\n\
         [shm]\nread = true\nread_portion = 16384\nread_bytes_per_second = 1_000_000_000\njoint_unit = {joint_unit}\n\
         {more}"
    );
    let mut cluster = cluster(&text, 1, workload, Trace::off());
    assert_eq!((cluster.run(workload), workload.failures()), (Ended::Done, 0));
    assert_idle(&cluster);
    cluster.report().clone()
}

/// L-21, L-22
#[test]
fn both_ranks_copy_a_large_message() {
    let alone = read_by_units(0, "", &mut PingPong::new(20, 400_000));
    let joint = read_by_units(4096, "", &mut PingPong::new(20, 400_000));
    assert_eq!(alone.joint, JointCounts::default());
    // The core tries packets, too.
    assert!(joint.joint.helped >= 20, "{:?}", joint.joint);
    assert!(joint.done_ns < alone.done_ns * 4 / 5, "{} {}", joint.done_ns, alone.done_ns);
}

/// L-23: claims of an owner that is stopped in mid-copy are taken back, and what it writes later is refused.
#[test]
fn claims_of_a_stopped_owner_are_taken_back() {
    let mut all = JointCounts::default();
    for at_us in (200..2_000).step_by(60) {
        let more = format!(
            "[[faults]]\nat = \"{at_us}us\"\nuntil = \"{}us\"\nwhat = \"pause\"\nwhere = \"rank1\"\n",
            at_us + 400
        );
        let JointCounts { helped, taken_back, refused } =
            read_by_units(4096, &more, &mut PingPong::new(20, 400_000)).joint;
        all = JointCounts {
            helped: all.helped + helped,
            taken_back: all.taken_back + taken_back,
            refused: all.refused + refused,
        };
    }
    assert!(all.taken_back > 5 && all.refused > 5 && all.refused <= all.taken_back, "{all:?}");
}

/// L-18 to L-20: large messages come out of mapped memory, in parts, without joint copies.
#[test]
fn large_messages_are_copied_out_of_mapped_memory() {
    let run = |more: &str, bytes| {
        let maps = format!("[shm.maps]\nbytes_max = 250_000\n{more}");
        read_by_units(4096, &maps, &mut PingPong::new(10, bytes))
    };
    let whole = run("", 100_000).mapped;
    assert_eq!((whole.lists, whole.unsafe_files, whole.refused, whole.stale), (2, 0, 0, 0), "a list each");
    assert!(whole.copies > 50, "{whole:?}");
    // Too many bytes for the budget.
    let beyond = run("", 150_000);
    assert_eq!((beyond.mapped.refused, beyond.mapped.copies), (2, 0));
    assert!(beyond.joint.helped > 0);
    let none = read_by_units(4096, "", &mut PingPong::new(10, 100_000)).mapped;
    assert_eq!(none, MapCounts::default());
    for fault in ["unsafe_one_in", "refused_one_in"] {
        let mapped = run(&format!("{fault} = 1"), 100_000).mapped;
        assert_eq!((mapped.copies, mapped.unsafe_files + mapped.refused), (0, 2), "{fault}");
    }
    let busy = run("busy_one_in = 2", 100_000).mapped;
    assert_eq!((busy.lists, busy.refused), (2, 0));
}

/// L-18: memory that comes and goes at the same addresses, so that each message would be read out of the
/// mapping of another one if the list had no number.
#[test]
fn memory_that_has_another_use_is_not_read_by_its_old_mapping() {
    let maps = "[shm.maps]\nbytes_max = 10_000_000\nbusy_one_in = 3\n";
    let mapped = read_by_units(4096, maps, &mut PingPong::new(60, 40_000).renewing(4)).mapped;
    assert!(mapped.lists > 5 && mapped.copies > 50, "{mapped:?}");
}

/// L-18, L-20: a rank that is stopped in mid-copy while the owner dies, or gives the subchannel up: what
/// counts has the right bytes (the workload checks them), the rest is not counted.
#[test]
fn owners_die_in_mid_copy() {
    let mut ended = 0;
    for at_us in (20..400).step_by(10) {
        let text = format!(
            "hosts = 1\nranks_per_host = 2\nrails = [{{ kind = \"shm\" }}]\n\
             [shm]\nread = true\nread_portion = 4096\nread_bytes_per_second = 1_000_000_000\n\
             [shm.maps]\nbytes_max = 1_000_000\n\
             [[faults]]\nat = \"{at_us}us\"\nwhat = \"kill\"\nwhere = \"rank1\"\n"
        );
        let mut workload = PingPong::new(20, 40_000);
        let mut cluster = cluster(&text, 1, &mut workload, Trace::off());
        assert_eq!(cluster.run(&mut workload), Ended::Done);
        ended += u32::from(cluster.report().mapped.copies > 0 && workload.failures() > 0);
    }
    assert!(ended > 10, "{ended}");
}
