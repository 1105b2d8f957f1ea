//! Scenarios are read strictly, have the values of their files, and read back as written.

use rerail_core::endpoint::{MessageClass, Policy};
use rerail_core::time::Nanos;

use super::*;
use crate::cluster::fault::{KINDS, Kind, Target, Way};
use crate::cluster::place::Place;

const FULL: &str = r#"
about = "everything"
hosts = 4
ranks_per_host = 2
rails = [
    { kind = "shm" },
    { kind = "hca", hca = 0, port = 0 },
    { kind = "hca", port = 1 },
    { kind = "stream", hca = 1 },
]
squeeze = true
[cpu]
poll_ns = 100
slow_polls_per_thousand = 5
slow_poll_max = "1ms"
[[buses]]
bytes_per_second = 1000000000
half_duplex = true
[[hcas]]
device = "infinihost-pcix"
ports = 2
lmc = 1
subnets = [0, 1]
latency_tx_ns = 1234
cost = { poll_ns = 7, post_ns = 8, pio_bytes_max = 9, pio_bytes_per_second = 10, register_ns = 11, register_page_ns = 12 }
numa = { latency_ns = 13, bytes_per_second = 14 }
[[hcas]]
device = "ethernet-10g"
subnets = [2]
[[subnets]]
latency_ns = 150
planes = [{}, { latency_ns = 10, bytes_per_second = 500000000 }]
[[subnets]]
jitter_ns = 2000
[[subnets]]
[shm]
slots = 8
[quirks]
repeats = "3us"
pinned = true
[admin]
latency = "1ms"
[config]
window = 128
packets_max = 300
ack_delay = "200us"
multiplex = "round-robin"
striping = "binding"
[[faults]]
at = "3ms"
what = "link-down"
where = "host0.hca0.port1"
way = "rx"
until = "5ms"
[[faults]]
at = "1ms"
what = "lose"
where = "host3.hca1.port0"
amount = 7
[random]
per_second = 1000
kinds = ["pause", "jitter", "link-down"]
lasts_max = "3ms"
[workload]
name = "random"
parameters = { messages = 10, kinds = ["send", "put"] }
[limits]
safety = "20ms"
events_max = 1000000
"#;

#[test]
fn full_scenario_is_parsed_and_round_trips() {
    let scenario = Scenario::parse("full.toml", FULL).unwrap();
    assert_eq!(scenario.size(), 8);
    assert_eq!(scenario.rails()[2], RailSpec::Hca { hca: 0, port: 1, path: 0 });
    assert_eq!((scenario.hcas[0].lmc, scenario.hcas[0].latency_tx_ns), (1, Some(1234)));
    assert_eq!(scenario.workload.parameters["messages"].as_integer(), Some(10));
    let config = scenario.core_config(3, 9);
    assert_eq!((config.rank, config.peers_max, config.rails_max), (PeerId(3), 8, 5));
    assert_eq!((config.window, config.packets_max, config.ack_delay), (128, 300, Nanos::from_micros(200)));
    assert_eq!((config.multiplex, config.striping), (Policy::RoundRobin, Policy::Binding));
    let written = scenario.to_toml().unwrap();
    assert_eq!(Scenario::parse("written", &written), Ok(scenario), "{written}");
}

/// Rails of a rank: 0 is the loopback, 1 shared memory where there are several on a host, then HCAs.
#[test]
fn processes_of_a_host_are_bound_in_turn() {
    let bound = |processes: u32| {
        let hcas = "[[hcas]]\n[[hcas]]\n[config]\nbind = 9\nbind_by_local_rank = true";
        let scenario = Scenario::parse("bound.toml", &format!("ranks_per_host = {processes}\n{hcas}")).unwrap();
        (0..4).map(|rank| scenario.core_config(rank, 1).bind).collect::<Vec<_>>()
    };
    assert_eq!((bound(2), bound(1)), (vec![2, 3, 2, 3], vec![1, 1, 1, 1]));
}

#[test]
fn policies_have_names_and_classes() {
    let text = "[config]\npolicy = \"binding\"\npolicy_large = \"adaptive\"\npolicy_one_sided = \"window-round-robin\"";
    let scenario = Scenario::parse("policies.toml", text).unwrap();
    let config = scenario.core_config(0, 1);
    assert_eq!((config.multiplex, config.striping), (Policy::Binding, Policy::Binding));
    let classes: Vec<_> = scenario.config.class_policies().collect();
    assert_eq!(classes, [(MessageClass::Large, Policy::Adaptive), (MessageClass::OneSided, Policy::WindowRoundRobin)]);
    let written = scenario.to_toml().unwrap();
    assert_eq!(Scenario::parse("written", &written), Ok(scenario), "{written}");
    let error = Scenario::parse("wrong.toml", "[config]\npolicy = \"evn\"").unwrap_err().to_string();
    assert!(error.contains("no policy \"evn\"; there are binding, "), "{error}");
}

/// Rail choices and stripings are set by the core's names for them, and written so.
#[test]
fn rail_choices_and_stripings_have_the_names_of_the_core() {
    for (multiplex, striping) in Policy::RAIL_CHOICES.into_iter().zip(Policy::STRIPINGS) {
        let (choice, cut) = (multiplex.name(), striping.name());
        let text = format!("[config]\nmultiplex = \"{choice}\"\nstriping = \"{cut}\"");
        let scenario = Scenario::parse("names.toml", &text).unwrap();
        let config = scenario.core_config(0, 1);
        assert_eq!((config.multiplex, config.striping), (multiplex, striping));
        let written = scenario.to_toml().unwrap();
        assert_eq!(Scenario::parse("written", &written), Ok(scenario), "{written}");
    }
    let error = Scenario::parse("wrong.toml", "[config]\nstriping = \"round-robin\"").unwrap_err().to_string();
    assert!(error.contains("no striping \"round-robin\"; there are binding, even, "), "{error}");
}

#[test]
fn empty_scenario_uses_the_defaults() {
    let scenario = Scenario::parse("empty", "").unwrap();
    assert_eq!(scenario, Scenario::default());
    assert_eq!(scenario.rails(), [RailSpec::Hca { hca: 0, port: 0, path: 0 }]);
    let several = Scenario { ranks_per_host: 2, ..scenario.clone() };
    assert_eq!(several.rails(), [RailSpec::Shm {}, RailSpec::Hca { hca: 0, port: 0, path: 0 }]);
    let ethernet = Scenario { device: "ethernet-10g".into(), ..scenario };
    assert_eq!(ethernet.rails(), [RailSpec::Stream { hca: 0, port: 0 }]);
}

#[test]
fn errors_name_file_key_and_value() {
    for (text, expected) in [
        ("host = 2", ["host", "unknown field"]),
        ("hosts = \"two\"", ["hosts = \"two\"", "expected u32"]),
        ("hosts = 0", ["hosts = 0", "1 to 65536"]),
        ("hosts = 300\nranks_per_host = 300", ["90000 ranks", "1 to 65536"]),
        ("device = \"connectz\"", ["device = \"connectz\"", "connectx"]),
        ("[[hcas]]\nports = 9", ["hcas[0].ports = 9", "1 to 8"]),
        ("[[hcas]]\nlimits = { mtu = 1500 }", ["hcas[0].limits.mtu = 1500", "2048"]),
        ("[[hcas]]\nlmc = 8", ["hcas[0].lmc = 8", "0 to 7"]),
        ("[[hcas]]\nsubnets = [0, 1]", ["hcas[0].subnets", "1 ports"]),
        ("[[buses]]\n[[hcas]]\nbus = 1", ["hcas[0].bus = 1", "1 buses"]),
        ("[[subnets]]\nplanes = []", ["subnets[0].planes", "at least one"]),
        ("rails = [{ kind = \"hca\", hca = 1 }]", ["rails[0].hca = 1", "1 HCAs"]),
        ("rails = [{ kind = \"stream\", port = 1 }]", ["rails[0].port = 1", "1 ports"]),
        ("rails = [{ kind = \"hca\" }, { kind = \"shm\" }]", ["rails[1].kind", "before"]),
        ("rails = [{ kind = \"warp\" }]", ["warp", "unknown variant"]),
        ("rails = [{ kind = \"shm\", port = 0 }]", ["port", "unknown field"]),
        ("[config]\nwindow = 100", ["config.window = 100", "a power of two"]),
        ("[config]\nwindows = 100", ["windows", "unknown field"]),
        ("[config]\nwindow = -1", ["window = -1", "u32"]),
        ("[config]\nack_delay = 5", ["ack_delay = 5", "expected"]),
        ("[config]\nack_delay = \"5 hours\"", ["5 hours", "no span of time"]),
        ("[shm]\ncells = 12", ["shm.cells", "a power of two"]),
        ("[shm]\nslot_bytes = 17", ["shm.slot_bytes", "a multiple of 16"]),
        ("[shm]\nposts_max = 0", ["shm.posts_max", "out of range"]),
        ("[cpu]\nslow_polls_per_thousand = 1001", ["cpu.slow_polls_per_thousand = 1001", "at most 1000"]),
        ("[random]\nper_second = 0", ["random.per_second = 0", "1 to"]),
        ("[random]\nper_second = 1\nkinds = [\"gremlin\"]", ["gremlin", "unknown variant"]),
        ("[[faults]]\nat = \"1ms\"\nwhat = \"gremlin\"\nwhere = \"rank0\"", ["gremlin", "link-down"]),
        ("[[faults]]\nat = \"1ms\"\nwhat = \"kill\"\nwhere = \"port1\"", ["port1", "no place"]),
        (
            "[[faults]]\nat = \"1ms\"\nwhat = \"kill\"\nwhere = \"rank7\"",
            ["faults[0].where = \"rank7\"", "no such place"],
        ),
        ("[[faults]]\nat = \"1ms\"\nwhat = \"kill\"\nwhere = \"subnet0\"", ["kill", "like rank3"]),
        ("[[faults]]\nat = \"1ms\"\nwhat = \"kill\"\nwhere = \"rank0\"\nuntil = \"2ms\"", ["kill", "\"until\""]),
        ("[[faults]]\nat = \"2ms\"\nwhat = \"pause\"\nwhere = \"rank0\"\nuntil = \"2ms\"", ["2ms", "not after"]),
        ("[[faults]]\nat = \"2ms\"\nwhat = \"pause\"\nwhere = \"rank0\"\nway = \"rx\"", ["pause", "\"way\""]),
        ("[[faults]]\nat = \"2ms\"\nwhat = \"pause\"\nwhere = \"rank0\"\namount = 3", ["pause", "\"amount\""]),
        (
            "[[faults]]\nat = \"2ms\"\nwhat = \"slow\"\nwhere = \"host0.hca0.port0\"\namount = 1",
            ["amount = 1", "at least 2"],
        ),
        ("[limits]\ninspection_period = \"0ns\"", ["limits.inspection_period = \"0ns\"", "stand still"]),
    ] {
        let error = Scenario::parse("here.toml", text).expect_err(text).to_string();
        assert!(error.starts_with("here.toml: "), "{text}: {error}");
        for word in expected {
            assert!(error.contains(word), "{text}: \"{word}\" is not in: {error}");
        }
    }
}

#[test]
fn the_schedule_is_the_seed_s() {
    let scenario = Scenario::parse("full.toml", FULL).unwrap();
    let first = scenario.schedule(1);
    assert_eq!(first, scenario.schedule(1));
    assert_ne!(first, scenario.schedule(2));
    assert!(first.is_sorted_by_key(|fault| fault.at));
    // 1000 per second for 20 ms, and the two that are fixed.
    assert!((12..32).contains(&first.len()), "{}", first.len());
    for fault in &first {
        assert!(scenario.has_place(fault.fault.place), "{fault}");
        assert!(fault.at < scenario.limits.safety, "{fault}");
    }
    // A schedule made explicit is the same schedule.
    let explicit = Scenario { faults: first.clone(), random: None, ..scenario };
    assert_eq!(explicit.schedule(99), first);
    assert_eq!(explicit.check(), Ok(()));
    assert_eq!(Scenario::parse("explicit", &explicit.to_toml().unwrap()), Ok(explicit));
}

#[test]
fn squeezed_tables_are_valid_for_every_seed() {
    for seed in 0..500 {
        let scenario = Scenario { squeeze: true, ..Scenario::default() };
        let config = scenario.core_config(1, seed);
        assert_eq!(config.validate(), Ok(()), "seed {seed}: {config:?}");
    }
}

#[test]
fn every_fault_has_one_spelling() {
    let place = |kind: Kind| match kind.target() {
        Target::Rank => Place::Rank(3),
        Target::RankOrAll => Place::Cluster,
        Target::RankHca => Place::RankHca { rank: 3, hca: 1 },
        Target::Hca => Place::Hca { host: 2, hca: 1 },
        Target::Port => Place::Port { host: 2, hca: 1, port: 0 },
        Target::Plane => Place::Plane { subnet: 1, plane: 2 },
        Target::Subnet => Place::Subnet(1),
    };
    for kind in KINDS {
        let usual = crate::cluster::fault::Fault::new(kind, place(kind));
        let mut all = vec![usual];
        if kind == Kind::LinkDown {
            all.push(crate::cluster::fault::Fault { way: Way::Rx, ..usual });
        }
        if kind.amount().is_some() {
            all.push(crate::cluster::fault::Fault { amount: 77, ..usual });
        }
        for fault in all {
            assert_eq!(fault.to_string().parse(), Ok(fault), "{fault}");
        }
        // serde's word is the display's.
        assert_eq!(toml::Value::try_from(kind).unwrap().as_str(), Some(kind.word()));
    }
}

#[test]
fn subnets_follow_ports() {
    let scenario = Scenario::parse("full.toml", FULL).unwrap();
    assert_eq!((scenario.subnet_of(0, 0), scenario.subnet_of(0, 1), scenario.subnet_of(1, 0)), (0, 1, 2));
    assert_eq!(scenario.subnet_count(), 3);
    let plain = Scenario::parse("two", "[[hcas]]\nports = 2\n[[hcas]]\n").unwrap();
    assert_eq!((plain.subnet_of(0, 1), plain.subnet_of(1, 0), plain.subnet_count()), (1, 2, 3));
    let joined = Scenario::parse("one", "[[hcas]]\nports = 2\n[[subnets]]\n").unwrap();
    assert_eq!((joined.subnet_of(0, 1), joined.subnet_count()), (0, 1));
}
