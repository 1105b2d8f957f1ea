//! Settings as people write them, right and wrong.

use super::value::{Kind, Value};
use super::*;
use rerail_core::config::Policy;
use rerail_core::time::Nanos;

fn load(env: &[(&str, &str)], file: Option<&str>) -> Result<Settings, SettingsError> {
    let env = env.iter().map(|(variable, value)| (variable.to_string(), value.to_string()));
    Settings::load(env, file.map(|text| ConfigFile { path: "rerail.conf", text }))
}

/// The one message about this.
fn complaint(env: &[(&str, &str)], file: Option<&str>) -> String {
    let error = load(env, file).unwrap_err();
    assert_eq!(error.problems.len(), 1, "{error}");
    error.to_string()
}

#[test]
fn empty_settings_give_the_core_defaults() {
    let settings = load(&[("PATH", "/bin"), ("RERAILED", "x")], None).unwrap();
    assert_eq!(settings, Settings::default());
    for size in [1, 2, 64, 65, 100_000] {
        let rank = PeerId(size - 1);
        assert_eq!(settings.to_core_config(rank, size), Config::new(rank, size));
    }
    assert!(
        settings
            .describe()
            .iter()
            .all(|setting_row| setting_row.source == Source::Default && setting_row.value == setting_row.default)
    );
}

#[test]
fn environment_overrides_the_file_and_values_have_sources() {
    let file = "# of the cluster\nblocks = 512   # each\n\n  eager_max=4K\nsilence_max = 2s\n";
    let mut settings = load(&[("RERAIL_BLOCKS", " 1024 "), ("RERAIL_POLICY", "round-robin")], Some(file)).unwrap();
    assert_eq!((settings.core.blocks_per_peer, settings.core.eager_bytes_max), (1024, 4096));
    assert_eq!((settings.core.silence_max, settings.policy), (Nanos::from_millis(2000), Some(Policy::RoundRobin)));
    settings.set("policy_small", "binding").unwrap();
    let source = |name| settings.source(name).to_string();
    assert_eq!(source("blocks"), "RERAIL_BLOCKS");
    assert_eq!(source("eager_max"), "rerail.conf:4");
    assert_eq!(source("policy_small"), "program");
    assert_eq!(source("windows"), "default");
    let blocks = settings.describe().into_iter().find(|setting_row| setting_row.name == "blocks").unwrap();
    assert_eq!((blocks.value.as_str(), blocks.default.as_str(), blocks.unit), ("1024", "256", "count"));
    assert_eq!(blocks.range, "1 to 16384");
}

/// A value at each end of a setting's range that isn't its default.
fn other_values(setting_row: &SettingRow) -> Vec<Value> {
    match setting_row.kind {
        Kind::Count { min, max, .. } | Kind::Bytes { min, max, .. } | Kind::Span { min, max } => {
            vec![Value::Number(min), Value::Number(max)]
        }
        Kind::Switch => vec![Value::Number(0), Value::Number(1)],
        Kind::Choice(names) => (0..names.len() as u64).map(Value::Number).collect(),
        Kind::List { .. } if setting_row.name == "rails" => vec![Value::List(vec!["tcp".into()]), Value::List(vec![])],
        Kind::List { .. } if setting_row.name == "rails_eligible" => {
            vec![Value::List(vec!["0".into(), "63".into()]), Value::List(vec![])]
        }
        Kind::List { .. } if setting_row.name == "weights" => {
            vec![Value::List(vec!["65535".into(); RAILS_MAX]), Value::List(vec!["0".into()]), Value::List(vec![])]
        }
        Kind::List { .. } if setting_row.name == "verbs_srq_sizes" => {
            vec![Value::List(vec!["256".into(), "16M".into(), "max".into()]), Value::List(vec![])]
        }
        Kind::List { .. } => vec![Value::List(vec!["eth0".into(), "10.0.0.7".into()]), Value::List(vec![])],
        Kind::Word { .. } if setting_row.name == "verbs_pkey" => {
            vec![Value::Word(Some("0x8001".into())), Value::Word(None)]
        }
        Kind::Word { .. } => vec![Value::Word(Some("host-7".into())), Value::Word(None)],
    }
}

/// A multiple near the end, where the end itself isn't allowed.
fn allowed(setting_row: &SettingRow, value: Value) -> Value {
    match setting_row.kind.parse(&setting_row.kind.show(&value)) {
        Ok(value) => value,
        Err(why) => panic!("{}: the end of its range is {why}", setting_row.name),
    }
}

#[test]
fn every_setting_round_trips_over_its_range() {
    for setting_row in SETTING_ROWS {
        let mut changed = 0;
        for value in other_values(setting_row) {
            let mut settings = Settings::default();
            let text = setting_row.kind.show(&allowed(setting_row, value.clone()));
            let mut problems = Vec::new();
            settings.assign(setting_row, &text, Source::Program, &mut problems);
            assert_eq!(problems, [], "{} = {text}", setting_row.name);
            assert_eq!((setting_row.get)(&settings), value, "{} = {text}", setting_row.name);
            // Nothing else has changed, and this has unless it was the default.
            let differing: Vec<&str> = settings
                .describe()
                .into_iter()
                .filter(|other| other.value != other.default)
                .map(|other| other.name)
                .collect();
            assert!(differing.is_empty() || differing == [setting_row.name], "{differing:?}");
            changed += differing.len();
        }
        assert!(changed > 0, "{} can't be changed", setting_row.name);
    }
}

#[test]
fn every_setting_is_documented_and_has_a_unique_name() {
    let described = Settings::default().describe();
    assert_eq!(described.len(), SETTING_ROWS.len());
    for (index, setting_row) in described.iter().enumerate() {
        assert!(setting_row.doc.len() > 15 && setting_row.doc.ends_with('.'), "{}", setting_row.name);
        assert!(!setting_row.range.is_empty() && !setting_row.unit.is_empty(), "{}", setting_row.name);
        assert!(setting_row.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", setting_row.name);
        assert!(described[..index].iter().all(|other| other.name != setting_row.name), "{}", setting_row.name);
        let variable = format!("{PREFIX}{}", setting_row.name.to_ascii_uppercase());
        assert!(!RESERVED.contains(&variable.as_str()), "{variable}");
        assert!(RESERVED_PREFIXES.iter().all(|prefix| !variable.starts_with(prefix)), "{variable}");
    }
}

#[test]
fn every_core_setting_changes_the_core_configuration() {
    // Each changed alone must change the core's configuration, but for those that are the shims'.
    let shims = [
        "preset",
        "posts",
        "rails",
        "memory_budget",
        "peers",
        "callers",
        "host_id",
        "boot_timeout",
        "progress",
        "spin_polls",
    ];
    let of_shims =
        |name: &str| shims.contains(&name) || ["tcp_", "shm_", "verbs_"].iter().any(|of| name.starts_with(of));
    let displayed = |settings: &Settings| (settings.to_core_config(PeerId(0), 1 << 20), settings.policy_small);
    let before = displayed(&Settings::default());
    for setting_row in SETTING_ROWS {
        let arrived = other_values(setting_row).into_iter().any(|value| {
            let mut settings = Settings::default();
            (setting_row.set)(&mut settings, value);
            displayed(&settings) != before
        });
        assert_eq!(arrived, !of_shims(setting_row.name), "{}", setting_row.name);
    }
}

#[test]
fn sets_of_keys_are_a_setting() {
    let bulk = |env: &[(&str, &str)], file| load(env, file).unwrap().to_core_config(PeerId(0), 2).bulk_max;
    assert_eq!(bulk(&[], None), Config::new(PeerId(0), 2).bulk_max);
    assert_eq!(bulk(&[], Some("bulk = 384")), 384);
    assert_eq!(bulk(&[("RERAIL_BULK", "256")], Some("bulk = 384")), 256);
}

#[test]
fn tables_of_packets_and_buckets_follow_peers_and_operations() {
    let tables = |env: &[(&str, &str)]| {
        let config = load(env, None).unwrap().to_core_config(PeerId(0), 1000);
        (config.packets_max, config.match_buckets)
    };
    assert_eq!(tables(&[("RERAIL_CHANNELS", "2"), ("RERAIL_OPERATIONS", "1")]), (2048, 1024));
    assert_eq!(tables(&[("RERAIL_CHANNELS", "65"), ("RERAIL_OPERATIONS", "4100")]), (2080, 2048));
    assert_eq!(tables(&[("RERAIL_CHANNELS", "1048576")]), (32_000, 1024), "no more than the job has ranks");
}

#[test]
fn class_policy_takes_precedence_over_the_general_policy() {
    let config = load(&[("RERAIL_POLICY", "adaptive")], None).unwrap().to_core_config(PeerId(0), 2);
    assert_eq!((config.multiplex, config.striping), (Policy::DEFAULT, Policy::Adaptive));
    let env = [("RERAIL_POLICY", "binding"), ("RERAIL_POLICY_SMALL", "balanced")];
    let settings = load(&env, None).unwrap();
    let config = settings.to_core_config(PeerId(0), 2);
    assert_eq!((config.multiplex, config.striping), (Policy::Binding, Policy::Binding));
    assert_eq!(settings.policy_small, Some(Policy::Balanced));
}

#[test]
fn policies_have_the_names_of_the_core() {
    for policy in Policy::ALL {
        let mut settings = Settings::default();
        settings.set("policy", policy.name()).unwrap();
        assert_eq!(settings.policy, Some(policy));
    }
}

#[test]
fn rails_are_named_by_number_and_weights_begin_with_rail_1() {
    let settings = load(&[("RERAIL_WEIGHTS", "4, 1,1"), ("RERAIL_RAILS_ELIGIBLE", "1,3")], None).unwrap();
    let config = settings.to_core_config(PeerId(0), 2);
    assert_eq!((config.weights[..5].to_vec(), config.rails_eligible), (vec![0, 4, 1, 1, 0], 0b1010));
    for (name, value) in [("weights", "65536"), ("weights", "-1"), ("rails_eligible", "64"), ("rails_eligible", "1,1")]
    {
        assert!(Settings::default().set(name, value).is_err(), "{name} = {value}");
    }
    let long = ["1"; RAILS_MAX + 1].join(",");
    assert!(Settings::default().set("weights", &long).unwrap_err().to_string().contains("at most 64"));
}

#[test]
fn an_unknown_name_is_an_error_with_a_suggestion() {
    let cases = [
        ("RERAIL_BLOKCS", "there is no setting RERAIL_BLOKCS, maybe RERAIL_BLOCKS?"),
        ("RERAIL_TCP_INTERFACE", "there is no setting RERAIL_TCP_INTERFACE, maybe RERAIL_TCP_INTERFACES?"),
        ("RERAIL_blocks", "there is no setting RERAIL_blocks, maybe RERAIL_BLOCKS?"),
        ("RERAIL_CONFG", "there is no setting RERAIL_CONFG, maybe RERAIL_CONFIG?"),
        ("RERAIL_QQQQQQQQ", "there is no setting RERAIL_QQQQQQQQ"),
        ("RERAIL_", "there is no setting RERAIL_"),
    ];
    for (variable, message) in cases {
        assert_eq!(complaint(&[(variable, "1")], None), message);
    }
    let message = complaint(&[], Some("\nstall-min = 1ms"));
    assert_eq!(message, "rerail.conf:2: there is no setting \"stall-min\", maybe stall_min?");
}

#[test]
fn variables_of_the_tool_are_no_settings() {
    let known = [
        "RERAIL_CONFIG",
        "RERAIL_LOG",
        "RERAIL_CASES",
        "RERAIL_KEY",
        "RERAIL_TEST_ROLE",
        "RERAIL_TOOL_X",
        "RERAIL_LAUNCHER_X",
    ];
    for variable in known {
        assert_eq!(load(&[(variable, "anything")], None), Ok(Settings::default()), "{variable}");
    }
}

#[test]
fn bad_value_error_states_the_allowed_range() {
    let cases = [
        ("RERAIL_BULK", "0", "RERAIL_BULK=0: less than 1; allowed: 1 to 268435456"),
        ("RERAIL_BULK", "64K", "RERAIL_BULK=64K: not a number; allowed: 1 to 268435456"),
        ("RERAIL_SEGMENTS", "256", "RERAIL_SEGMENTS=256: more than 255; allowed: 1 to 255"),
        ("RERAIL_SEGMENTS", "-1", "RERAIL_SEGMENTS=-1: not a number; allowed: 1 to 255"),
        ("RERAIL_TCP_SNDBUF", "2G", "RERAIL_TCP_SNDBUF=2G: more than 1G; allowed: 0 to 1G"),
        ("RERAIL_KEEPALIVE", "5", "RERAIL_KEEPALIVE=5: without a unit (ns, us, ms or s); allowed: 0s to 86400s"),
        ("RERAIL_STALL_MIN", "3601s", "RERAIL_STALL_MIN=3601s: more than 3600s; allowed: 0s to 3600s"),
        ("RERAIL_VERBS_XRC", "onn", "RERAIL_VERBS_XRC=onn: not one of the choices, maybe on?; allowed: off, on, auto"),
        ("RERAIL_TCP_BESIDE_SHM", "perhaps", "RERAIL_TCP_BESIDE_SHM=perhaps: neither yes nor no; allowed: yes or no"),
        (
            "RERAIL_RAILS",
            "tcp,ib",
            "RERAIL_RAILS=tcp,ib: \"ib\" is none; allowed: shm, verbs, tcp with commas between them; nothing: no rail to other processes",
        ),
    ];
    for (variable, value, message) in cases {
        assert_eq!(complaint(&[(variable, value)], None), message);
    }
    assert!(complaint(&[("RERAIL_RAILS", "tcp,tcp")], None).contains("\"tcp\" twice"));
    assert!(complaint(&[("RERAIL_HOST_ID", "a b")], None).contains("not allowed"));
    assert!(complaint(&[("RERAIL_TCP_INTERFACES", "10.0.0.1,")], None).contains("\"\" is none"));
}

#[test]
fn sizes_of_receive_queues_ascend_and_end_with_max() {
    for (words, why) in [
        ("256,512", "the last word is 512, and must be max"),
        ("max,256", "the last word is 256, and must be max"),
        ("512,256,max", "the size behind 512 is not larger than it"),
        ("1K,1024,max", "the size behind 1K is not larger than it"),
    ] {
        let displayed = complaint(&[("RERAIL_VERBS_SRQ_SIZES", words)], None);
        assert!(displayed.starts_with(&format!("RERAIL_VERBS_SRQ_SIZES={words}: {why}; allowed: ")), "{displayed}");
    }
    for words in ["", "max", "256,1K,8192,max"] {
        assert!(load(&[("RERAIL_VERBS_SRQ_SIZES", words)], None).is_ok(), "{words}");
    }
}

#[test]
fn interfaces_are_addresses_or_names() {
    let value = "127.0.0.1, eth0.7 ,2001:db8::1";
    let settings = load(&[("RERAIL_TCP_INTERFACES", value)], None).unwrap();
    assert_eq!(settings.tcp_interfaces, ["127.0.0.1", "eth0.7", "2001:db8::1"]);
    assert!(load(&[("RERAIL_TCP_INTERFACES", "fe80::1%eth1")], None).is_err(), "no peer could dial it");
    assert!(load(&[("RERAIL_TCP_INTERFACES", "")], None).unwrap().tcp_interfaces.is_empty());
}

#[test]
fn all_configuration_errors_are_reported_together() {
    let file = "window 512\nblocks = 0\nblocks = 5\nbulk = 128\ncolour = red\npolicy = even\npolicy = even";
    let error = load(&[("RERAIL_BULK", "many"), ("RERAIL_COLOUR", "red")], Some(file)).unwrap_err();
    let expected = [
        "rerail.conf:1: \"window 512\" is not \"name = value\"",
        "rerail.conf:2: blocks = 0: less than 1; allowed: 1 to 16384",
        "rerail.conf:3: blocks is already set in line 2",
        "rerail.conf:5: there is no setting \"colour\"",
        "rerail.conf:7: policy is already set in line 6",
        "RERAIL_BULK=many: not a number; allowed: 1 to 268435456",
        "there is no setting RERAIL_COLOUR",
    ];
    assert_eq!(error.to_string().lines().collect::<Vec<_>>(), expected);
}

#[test]
fn inconsistent_settings_are_an_error() {
    let message = complaint(&[("RERAIL_BLOCKS", "2")], None);
    assert_eq!(message, "eager_max is 8192, with the other settings 0 to 2048 is possible");
    assert!(load(&[("RERAIL_BLOCKS", "2"), ("RERAIL_EAGER_MAX", "2K")], None).is_ok());
}

/// Errors of the core are reported by the names of settings, where there are any.
#[test]
fn core_configuration_errors_use_setting_names() {
    for &(field, setting) in OF_CORE {
        assert!(find(setting).is_some(), "{field}: {setting}");
        assert_eq!(setting_of(field), setting);
    }
    assert_eq!(setting_of("ack_packets"), "ack_packets");
    // The core's configuration made from settings, one field after the other out of its range.
    let good = Settings::default().to_core_config(PeerId(0), 4);
    for config in [
        Config { channels_max: 0, ..good },
        Config { operations_max: 0, ..good },
        Config { segments_max: 0, ..good },
        Config { unexpected_per_peer: 0, ..good },
        Config { blocks_per_peer: 0, ..good },
        Config { eager_bytes_max: u32::MAX, ..good },
        Config { retained_max: u32::MAX, ..good },
        Config { requests_per_peer: 0, ..good },
        Config { bulk_max: 0, ..good },
        Config { windows_max: u32::MAX, ..good },
        Config { connect_timeout: Nanos(0), ..good },
    ] {
        let error = config.validate().unwrap_err();
        assert!(find(setting_of(error.field)).is_some(), "{error}");
    }
}

/// What has no setting is set by a program, and checked with the rest.
#[test]
fn a_program_sets_more_of_the_core() {
    let mut settings = Settings::default();
    settings.core.ack_packets = 129;
    let error = settings.set("blocks", "64").unwrap_err();
    assert_eq!(error.to_string(), "ack_packets is 129, with the other settings 1 to 128 is possible");
    settings.core.window = 512;
    settings.set("blocks", "64").unwrap();
    assert_eq!(settings.to_core_config(PeerId(0), 2).window, 512);
}

#[test]
fn a_refused_set_changes_nothing() {
    let mut settings = Settings::default();
    for (name, value) in [("unexpected", "0"), ("windwo", "64"), ("blocks", "1")] {
        let error = settings.set(name, value).unwrap_err();
        assert_eq!(error.problems.len(), 1, "{error}");
        assert_eq!(settings, Settings::default());
    }
    settings.set("tcp_interfaces", "127.0.0.1,127.0.0.2").unwrap();
    assert_eq!(settings.tcp_interfaces.len(), 2);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Settings::from_env_and(Some("/no/such/rerail.conf")).unwrap_err();
    assert!(error.to_string().starts_with("/no/such/rerail.conf: "), "{error}");
}

#[test]
fn a_preset_counts_where_nothing_else_is_set() {
    let mut settings = load(&[("RERAIL_PRESET", "lean"), ("RERAIL_BLOCKS", "64")], None).unwrap();
    assert_eq!((settings.core.channels_max, settings.core.blocks_per_peer), (256, 64));
    assert_eq!(
        (settings.source("channels").to_string(), settings.source("blocks").to_string()),
        ("preset".into(), "RERAIL_BLOCKS".into())
    );
    settings.set("verbs_sends", "40").unwrap();
    settings.set("preset", "compact").unwrap();
    assert_eq!((settings.verbs_sends, settings.verbs_receives, settings.posts), (40, 128, 16));
    settings.set("preset", "standard").unwrap();
    settings.set("blocks", "256").unwrap();
    settings.set("verbs_sends", "64").unwrap();
    assert_eq!(settings.to_core_config(PeerId(0), 64), Config::new(PeerId(0), 64));
    assert_eq!((settings.posts, settings.source("channels")), (64, Source::Default));
    // What is set by itself may not fit the preset.
    assert!(complaint(&[("RERAIL_PRESET", "lean"), ("RERAIL_EAGER_MAX", "16K")], None).contains("eager_max"));
    for preset in Preset::ALL {
        assert_eq!(load(&[("RERAIL_PRESET", preset.name())], None).unwrap().preset, preset);
    }
}
