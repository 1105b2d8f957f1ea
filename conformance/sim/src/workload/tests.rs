//! Workloads with a fixed programme run on small clusters, detect what is wrong, and measure what a testbed
//! measured.

use rerail_core::config::Policy;

use super::plain::Common;
use super::steps::Steps;
use super::timing::{Bandwidth, OneSided, PingPong};
use super::{Job, Measured, Parameters, make, run_checked};
use crate::check::{Damage, Name, Verdict};
use crate::cluster::Cluster;
use crate::cluster::fault::Kind;
use crate::scenario::Scenario;
use crate::soak::{FaultMenu, draw_scenario};
use crate::trace::Trace;

fn scenario(cluster: &str, workload: &str, parameters: &str) -> Scenario {
    let text = format!("{cluster}\n[workload]\nname = \"{workload}\"\nparameters = {{ {parameters} }}\n");
    Scenario::parse("test", &text).unwrap_or_else(|error| panic!("{error}"))
}

fn run(cluster: &str, workload: &str, parameters: &str) -> Vec<Measured> {
    let (verdict, report, measured) = run_checked(&scenario(cluster, workload, parameters), 1, Trace::off());
    assert_eq!(verdict, Verdict::Clean, "{workload} {parameters} on {cluster}: {report:?}");
    measured
}

const STREAMS: &str = "hosts = 4\ndevice = \"ethernet-10g\"";
const HCAS: &str = "hosts = 3\ndevice = \"connectx\"";
const NODES: &str = "hosts = 2\nranks_per_host = 4\ndevice = \"connectx\"";
const ONE: &str = "hosts = 1\nranks_per_host = 1";

/// Eager, over one packet, and with samples.
const SIZES: [u64; 3] = [8, 20_000, 200_000];

#[test]
fn timings_are_clean_and_measure() {
    for cluster in [STREAMS, HCAS, NODES] {
        for (workload, parameters) in [
            ("ping-pong", "bytes = [1, 20000, 200000], rounds = 3, warm_up = 1"),
            ("bandwidth", "bytes = [1, 20000, 200000], window = 5, windows = 2"),
            ("bandwidth", "bytes = [1, 20000, 200000], window = 30, windows = 1, both = true"),
        ] {
            let measured = run(cluster, workload, parameters);
            assert_eq!(measured.iter().map(|one| one.bytes).collect::<Vec<_>>(), [1, 20_000, 200_000]);
            assert!(measured.iter().all(|one| one.value > 0.0), "{measured:?}");
        }
    }
}

#[test]
fn puts_and_gets_are_clean() {
    for cluster in [STREAMS, HCAS, NODES] {
        for (operation, bytes) in [("put", 1), ("put", 20_000), ("put", 200_000), ("get", 1000), ("get", 200_000)] {
            run(cluster, "one-sided", &format!("operation = \"{operation}\", bytes = {bytes}, window = 5, count = 17"));
        }
    }
    run(ONE, "one-sided", "");
}

#[test]
fn ping_pong_needs_no_parameters_and_no_partner() {
    let scenario = Scenario::default();
    let (verdict, _, measured) = run_checked(&scenario, 1, Trace::off());
    assert_eq!((verdict, measured.len()), (Verdict::Clean, 1));
    assert!(run(ONE, "ping-pong", "").is_empty());
    assert!(run(ONE, "bandwidth", "").is_empty());
}

/// Several messages a turn, each checked: apart, and together where a strategy does so.
#[test]
fn turns_of_several_segments_are_clean() {
    for cluster in [STREAMS, HCAS, NODES] {
        let parameters = "bytes = [8, 20000, 200000], rounds = 3, warm_up = 1, segments = 4";
        let apart = run(cluster, "ping-pong", parameters);
        let aggregated = format!("config = {{ multiplex = \"aggregate\", nic_depth = 1 }}\n{cluster}");
        let aggregated = run(&aggregated, "ping-pong", parameters);
        for measured in [&apart, &aggregated] {
            assert_eq!(measured.iter().map(|one| one.bytes).collect::<Vec<_>>(), [8, 20_000, 200_000]);
        }
        assert_ne!(aggregated[0].value, apart[0].value, "nothing went together");
    }
}

#[test]
fn exchanges_are_clean() {
    for cluster in [STREAMS, HCAS, NODES, ONE] {
        for bytes in SIZES {
            for (workload, parameters) in [
                ("all-to-all", "ahead = 2"),
                ("all-to-all", "close = true"),
                ("broadcast", "rounds = 3"),
                ("stencil", "rounds = 3"),
                ("stencil", "rounds = 2, dims = 3, ahead = 1"),
                ("many-to-many", "peers = 2, times = 3"),
                ("many-to-many", "times = 2"),
            ] {
                run(cluster, workload, &format!("bytes = {bytes}, {parameters}"));
            }
        }
    }
}

#[test]
fn closing_peers_allows_more_ranks_than_channels() {
    let cluster = "hosts = 24\ndevice = \"connectx\"\nconfig = { channels_max = 12 }";
    run(cluster, "all-to-all", "close = true");
}

/// The same schedule and the same tables as in `scenarios/all-to-all-4096.toml`, with fewer ranks: every rank
/// meets more peers than it has channels, one after another, each over a queue pair of its own that is gone
/// afterwards.
#[test]
fn the_large_all_to_all_is_clean_with_fewer_ranks() {
    let text = include_str!("../../../scenarios/all-to-all-4096.toml");
    let large = Scenario::parse("all-to-all-4096.toml", text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(large.size(), 4096);
    let small = Scenario { hosts: 4, ..large };
    let (verdict, report, _) = run_checked(&small, 1, Trace::off());
    assert_eq!((verdict, report.ranks), (Verdict::Clean, 64), "{report:?}");
    let channels = small.core_config(0, 1).channels_max;
    assert!(channels < report.ranks, "{channels} channels are enough to keep all peers");
    // From every rank to every other a message of its own and its acknowledgment at least, and hello; and a
    // BYE of one of the two, for a side that receives one sends none (G-7).
    let pairs = u64::from(report.ranks) * u64::from(report.ranks - 1);
    assert!(report.packets >= 3 * pairs + pairs / 2, "{report:?}");
}

#[test]
fn an_application_is_clean() {
    let cluster = "hosts = 8\nranks_per_host = 8\ndevice = \"connectx\"";
    run(cluster, "nas-ep", "rounds = 2");
    run(cluster, "nas-lu", "");
    let few = make(&scenario(NODES, "nas-ep", ""), 1).err().map(|error| error.why).unwrap_or_default();
    assert!(few.contains("64"), "{few}");
}

#[test]
fn parameters_that_there_are_not_are_refused() {
    for (workload, parameters) in [
        ("ping-pong", "window = 3"),
        ("ping-pong", "bytes = [10], segments = 4"),
        ("bandwidth", "bytes = [0]"),
        ("bandwidth", "window = 1024, windows = 60000"),
        ("one-sided", "operation = \"swap\""),
        ("stencil", "dims = 4"),
        ("all-to-all", "close = 1"),
        ("nobody", ""),
    ] {
        assert!(make(&scenario(NODES, workload, parameters), 1).is_err(), "{workload} {parameters}");
    }
}

/// A simulation whose ranks could never submit what they wait for is refused before it starts, by an error
/// that names which value is wrong, what it may be and what else to do; with just enough operations it comes
/// to its end.
#[test]
fn too_few_operations_are_an_error() {
    let cluster = |operations: u64| format!("config = {{ operations_max = {operations} }}\n{NODES}");
    let window = "workload.parameters.window = 20: a rank of bandwidth needs";
    let exchange = "needs 2 operations; set as many or more";
    for (workload, parameters, needed, why) in [
        ("bandwidth", "bytes = [8, 20000], window = 20, windows = 2", 21, format!("{window} 21 operations")),
        (
            "bandwidth",
            "bytes = [8, 20000], window = 20, windows = 2, both = true",
            22,
            "set window to 19 or less, or".into(),
        ),
        ("ping-pong", "bytes = [160, 160000], segments = 16, rounds = 3", 17, "operations_max to 17 or more".into()),
        (
            "all-to-all",
            "bytes = 20000, rounds = 5, ahead = 8",
            2,
            format!("config.operations_max = 1: a rank of all-to-all {exchange}"),
        ),
        ("all-to-all", "close = true", 8, "set ahead to 3 or less, or".into()),
        ("stencil", "bytes = 20000, rounds = 3", 2, exchange.into()),
        ("many-to-many", "bytes = 20000, times = 3", 2, exchange.into()),
        ("random", "", 23, "config.operations_max = 22: a rank of random needs 23".into()),
    ] {
        let error = make(&scenario(&cluster(needed - 1), workload, parameters), 1).err().map(|error| error.why);
        assert!(
            error.as_ref().is_some_and(|error| error.contains(&why)),
            "{workload} {parameters}: {error:?}, not {why}"
        );
        run(&cluster(needed), workload, parameters);
    }
    run(&cluster(1), "broadcast", "bytes = 20000");
    run(&cluster(1), "one-sided", "operation = \"get\", count = 50");
    // Of squeezed tables the smallest decides: ranks have 24 to 64 operations.
    let squeezed = format!("squeeze = true\n{NODES}");
    assert!(make(&scenario(&squeezed, "bandwidth", "window = 64"), 1).is_err());
    assert!(make(&scenario(&squeezed, "bandwidth", "window = 23"), 1).is_ok());
}

/// Where all ranks may talk to all and no peer is closed, each has a channel for every rank. The simulation
/// of this seed, two ranks on one host with one channel each, lost a peer: rank 1's channel to itself had
/// taken its only one, so it refused rank 0's calls until `connect_timeout` was over.
#[test]
fn too_few_channels_are_an_error() {
    let two = "hosts = 1\nranks_per_host = 2\nrails = [{ kind = \"shm\" }]";
    let three = "hosts = 3\ndevice = \"connectx\"";
    for (cluster, channels, why) in [
        (two, 1, "config.channels_max = 1 is out of range: 2 to 2"),
        (
            three,
            2,
            "config.channels_max = 2: any two of the 3 ranks of random may talk to each other, and each to itself; set 3",
        ),
    ] {
        let small = format!("config = {{ channels_max = {channels} }}\n{cluster}");
        let text = format!("{small}\nworkload = {{ name = \"random\" }}");
        let error = match Scenario::parse("few channels", &text) {
            Err(error) => error.to_string(),
            Ok(scenario) => run_checked(&scenario, 229_330_652_545_756, Trace::off()).0.to_string(),
        };
        assert!(error.contains(why), "{error}, not {why}");
        let enough = format!("config = {{ channels_max = {} }}\n{cluster}", channels + 1);
        run(&enough, "random", "messages = 20");
    }
}

/// A payload of rank 0's first message to rank 1 with a wrong byte.
fn assert_sees<J: Job>(scenario: &Scenario, name: Name, mut job: J, common: impl Fn(&J) -> &Common) {
    common(&job).spoil(name);
    let mut cluster = Cluster::build(scenario, 1, &mut job, Trace::off()).unwrap_or_else(|error| panic!("{error}"));
    let ended = cluster.run(&mut job);
    let verdict = job.verdict(&cluster, &ended);
    let Verdict::Corruption(corruption) = &verdict else { panic!("{verdict}") };
    assert!(matches!(corruption.damage, Damage::Message { name: found, .. } if found == name), "{verdict}");
}

#[test]
fn a_wrong_byte_is_seen() {
    let first = Name::new(0, 1, 0);
    for bytes in SIZES {
        let list = scenario("hosts = 2", "", &format!("bytes = [{bytes}]"));
        let one = scenario("hosts = 2", "", &format!("bytes = {bytes}"));
        let parameters = |scenario: &Scenario| Parameters::new(&scenario.workload);
        let job = PingPong::new(&list, 1, &mut parameters(&list)).unwrap();
        assert_sees(&list, first, job, |job| &job.common);
        let job = Bandwidth::new(&list, 1, &mut parameters(&list)).unwrap();
        assert_sees(&list, first, job, |job| &job.common);
        for operation in ["put", "get"] {
            let parameters = |text| format!("bytes = {bytes}, count = 1, operation = \"{text}\"");
            let once = scenario("hosts = 2", "", &parameters(operation));
            let job = OneSided::new(&once, &mut Parameters::new(&once.workload)).unwrap();
            assert_sees(&once, first, job, |job| &job.common);
        }
        let job = super::exchange::all_to_all(&one, 1, &mut parameters(&one)).unwrap();
        assert_sees(&one, first, job, Steps::common);
        let job = super::exchange::many_to_many(&one, 1, &mut parameters(&one)).unwrap();
        assert_sees(&one, first, job, Steps::common);
    }
}

/// The first value measured on the testbed of multirail-2004.
fn on_testbed(workload: &str, parameters: &str) -> f64 {
    let text = include_str!("../../../scenarios/multirail-2004.toml");
    let mut scenario = Scenario::parse("multirail-2004.toml", text).unwrap();
    let spec = format!("[workload]\nname = \"{workload}\"\nparameters = {{ {parameters} }}\n");
    scenario.workload = Scenario::parse("test", &spec).unwrap().workload;
    let (verdict, _, measured) = run_checked(&scenario, 1, Trace::off());
    assert_eq!(verdict, Verdict::Clean);
    measured[0].value
}

/// Two pairs over one HCA a node, whose bus both directions share: from one node both together have what one
/// direction may have, from both nodes what both may have.
#[test]
fn senders_apart_use_both_directions() {
    let text =
        include_str!("../../../scenarios/multirail-2004.toml").replace("hosts = 2", "hosts = 2\nranks_per_host = 2");
    let value = |apart: bool| {
        let mut scenario = Scenario::parse("two a node", &text).unwrap();
        let spec = format!("[workload]\nname = \"bandwidth\"\nparameters = {{ windows = 1, apart = {apart} }}\n");
        scenario.workload = Scenario::parse("test", &spec).unwrap().workload;
        let (verdict, _, measured) = run_checked(&scenario, 1, Trace::off());
        assert_eq!(verdict, Verdict::Clean);
        measured[0].value
    };
    let (aggregated, apart) = (value(false), value(true));
    println!("{aggregated:.0} {apart:.0}");
    assert!((aggregated / 884.0 - 1.0).abs() < 0.05 && (apart / 943.0 - 1.0).abs() < 0.05, "{aggregated} {apart}");
}

/// Rounds that begin at their moments are measured, whatever there is between them; those that do not fit are
/// not.
#[test]
fn rounds_are_measured_from_their_beginnings() {
    let value = |workload: &str, every: &str| {
        let measured = run(NODES, workload, &format!("bytes = 20000, rounds = 3, every = \"{every}\""));
        measured.first().map(|one| (one.what, one.bytes, one.value))
    };
    for workload in ["all-to-all", "broadcast"] {
        let long = value(workload, "20ms");
        assert!(long.is_some_and(|(what, bytes, us)| (what, bytes) == ("latency", 20_000) && us > 10.0), "{long:?}");
        assert_eq!(value(workload, "1us"), None, "{workload}: rounds overlap");
        assert_eq!(run(NODES, workload, "rounds = 3"), [], "{workload}: not requested");
    }
    // Down one more stage of the tree takes longer.
    let latency = |hosts: u32| run(&format!("hosts = {hosts}"), "broadcast", "rounds = 2, every = \"20ms\"")[0].value;
    assert!(latency(2) < latency(4) && latency(4) < latency(8));
    for wrong in ["rounds = 1, every = \"1ms\"", "rounds = 2, every = \"soon\"", "rounds = 2, every = \"0us\""] {
        assert!(make(&scenario(NODES, "broadcast", wrong), 1).is_err(), "{wrong}");
    }
}

/// multirail-2004, 6.1: what one rail brings, within 5 %.
#[test]
fn one_rail_is_as_fast_as_on_the_testbed() {
    for (workload, parameters, published) in [
        ("ping-pong", "bytes = [8]", 6.0),
        ("bandwidth", "window = 64, windows = 1", 884.0),
        ("bandwidth", "window = 64, windows = 1, both = true", 943.0),
    ] {
        let value = on_testbed(workload, parameters);
        println!("{workload} {parameters}: {value:.2}, published {published}");
        let off = (value / published - 1.0).abs();
        assert!(off < 0.05, "{workload} {parameters}: {value:.2} instead of {published}");
    }
}

/// A value measured on the testbed of newmadeleine-2007, over these of its two rails: 0 is Myri-10G, 1 is
/// Quadrics. The first rail carries all that is not striped.
fn on_two_networks(rails: &[u32], parameters: &str) -> f64 {
    let text = include_str!("../../../scenarios/newmadeleine-2007.toml");
    let mut scenario = Scenario::parse("newmadeleine-2007.toml", text).unwrap();
    scenario.config.striping = Some(Policy::Even);
    scenario.config.multiplex = Some(Policy::Binding);
    scenario.rails = rails.iter().map(|hca| crate::scenario::RailSpec::Hca { hca: *hca, port: 0, path: 0 }).collect();
    let spec = format!("[workload]\nname = \"ping-pong\"\nparameters = {{ {parameters} }}\n");
    scenario.workload = Scenario::parse("test", &spec).unwrap().workload;
    let (verdict, _, measured) = run_checked(&scenario, 1, Trace::off());
    assert_eq!(verdict, Verdict::Clean);
    measured[0].value
}

const SMALL: &str = "bytes = [4]";
const LARGE: &str = "bytes = [8388608], rounds = 2, warm_up = 1";

/// newmadeleine-2007, 3.1: what each rail brings alone in a ping-pong, within 5 %.
#[test]
fn two_networks_are_as_fast_as_on_the_testbed() {
    for (rail, latency_us, mb_per_second) in [(0, 2.8, 1200.0), (1, 1.7, 850.0)] {
        let small = on_two_networks(&[rail], SMALL);
        let large = 8_388_608.0 / on_two_networks(&[rail], LARGE);
        println!("rail {rail}: {small:.2} us, published {latency_us}; {large:.0} MB/s, published {mb_per_second}");
        assert!((small / latency_us - 1.0).abs() < 0.05, "rail {rail}: {small:.2} us instead of {latency_us}");
        assert!((large / mb_per_second - 1.0).abs() < 0.05, "rail {rail}: {large:.0} MB/s instead of {mb_per_second}");
    }
}

/// newmadeleine-2007, 3.3 and figure 6: with a second network that carries nothing of them, small messages
/// take a poll of it longer. And 3.2: the bus carries more than either network alone (even striping: twice
/// the slower one, 1675 MB/s).
#[test]
fn a_second_network_costs_a_poll_and_brings_bandwidth() {
    let gap_us = on_two_networks(&[1, 0], SMALL) - on_two_networks(&[1], SMALL);
    println!("a poll of the other network: {gap_us:.3} us");
    assert!((0.29..0.5).contains(&gap_us), "{gap_us}");
    let both = 8_388_608.0 / on_two_networks(&[0, 1], LARGE);
    println!("both: {both:.0} MB/s");
    assert!((both / 1675.0 - 1.0).abs() < 0.05, "{both}");
}

/// K-1, K-6: all ranks meet though each has a fifth of the channels that it would need, over all sorts of
/// rails.
#[test]
fn more_ranks_than_channels_meet_and_park() {
    for cluster in [
        "hosts = 24\ndevice = \"connectx\"",
        "hosts = 24\ndevice = \"ethernet-10g\"",
        "hosts = 6\nranks_per_host = 4\ndevice = \"connectx\"",
        "hosts = 1\nranks_per_host = 24\nrails = [{ kind = \"shm\" }]",
    ] {
        let few = format!("config = {{ channels_max = 5 }}\n{cluster}");
        run(&few, "all-to-all", "rounds = 3, ahead = 72");
        run(&few, "all-to-all", "bytes = 200000, rounds = 2, ahead = 48");
    }
    run("config = { channels_max = 32 }\nhosts = 72\ndevice = \"connectx\"", "all-to-all", "ahead = 72");
}

/// K-1, K-3: channels whose messages wait for receives are parked too: more senders than the receiver has
/// channels, with messages that it receives in the opposite order.
#[test]
fn more_senders_than_channels_wait_for_receives() {
    for cluster in [
        "hosts = 34\ndevice = \"connectx\"",
        "hosts = 34\ndevice = \"ethernet-10g\"",
        "hosts = 1\nranks_per_host = 34\nrails = [{ kind = \"shm\" }]",
    ] {
        run(&format!("config = {{ channels_max = 32 }}\n{cluster}"), "incast", "");
        run(&format!("config = {{ channels_max = 4 }}\n{cluster}"), "incast", "bytes = 200000, rounds = 3");
        run(&format!("config = {{ channels_max = 4 }}\n{cluster}"), "incast", "bytes = 8");
    }
}

/// The same with faults of all kinds but kills, on drawn clusters.
#[test]
fn more_ranks_than_channels_meet_under_faults() {
    let seeds = std::env::var("RERAIL_PARK_SEEDS").map_or(60, |seeds| seeds.parse().unwrap_or(60));
    let first = std::env::var("RERAIL_PARK_FIRST").map_or(0, |seed| seed.parse().unwrap_or(0));
    let kinds = FaultMenu::All.kinds().into_iter().filter(|kind| *kind != Kind::Kill);
    let fault_menu = FaultMenu::Only(kinds.collect());
    // Known limits: a peer without a channel does not find a verbs rail that has another address; a queue
    // pair with a post that never completes holds the next connection up for longer than some peers wait.
    let limits = [Kind::Renumber, Kind::DeviceFatal, Kind::CqOverflow, Kind::NeverCompletes];
    let kinds = fault_menu.kinds().into_iter().filter(|kind| !limits.contains(kind));
    let for_incast = FaultMenu::Only(kinds.collect());
    for seed in first..first + seeds {
        let mut cluster = draw_scenario(seed, if seed % 4 == 1 { &for_incast } else { &fault_menu });
        (cluster.squeeze, cluster.uneven) = (false, false);
        (cluster.hosts, cluster.ranks_per_host) = if cluster.ranks_per_host > 1 { (3, 3) } else { (9, 1) };
        cluster.config.channels_max = Some(3);
        cluster.config.operations_max = Some(256);
        let bytes = if seed % 3 == 0 { 40_000 } else { 8 };
        let all = scenario("", "all-to-all", &format!("bytes = {bytes}, rounds = 3, ahead = 27"));
        let one = scenario("", "incast", &format!("bytes = {bytes}, rounds = {}", if bytes < 40_000 { 1 } else { 9 }));
        let is_incast = seed % 4 == 1;
        if is_incast {
            // A message of each sender is to fit into half of the channels' shares (K-1).
            let config = &mut cluster.config;
            config.unexpected_per_peer = Some(32);
            config.blocks_per_peer = config.blocks_per_peer.max(Some(9));
        }
        cluster.workload = if is_incast { one } else { all }.workload;
        let (verdict, report, _) = run_checked(&cluster, seed, Trace::off());
        assert_eq!(verdict, Verdict::Clean, "seed {seed}: {report:?}\n{}", cluster.to_toml().unwrap_or_default());
    }
}
