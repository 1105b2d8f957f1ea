//! The exchange between four processes on two logical hosts, as a user runs it.

use std::process::Command;

use serde_json::Value;

fn rerail() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rerail"));
    // A launcher around the tests is none of the tool's business.
    for name in ["PMI_FD", "PMI_PORT", "PMI_SIZE", "PMI_RANK"] {
        command.env_remove(name);
    }
    command
}

#[test]
fn quick_exchange_verifies_every_kind_over_every_path() {
    let output = rerail().args(["exchange", "--quick", "--seed", "7", "--json"]).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}\n{stderr}");
    let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
    assert_eq!(report["ok"], true);
    assert_eq!(report["ranks"], 4);
    assert_eq!(report["seed"], 7);
    assert_eq!(report["hosts"], serde_json::json!(["host0", "host0", "host1", "host1"]));
    assert_eq!(report["problems_total"], 0);
    assert_eq!(report["lost"], serde_json::json!([]));
    let names = |list: &str, field: &str| -> Vec<String> {
        let entries = report[list].as_array().expect("a list");
        entries.iter().map(|entry| entry[field].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names("paths", "path"), ["loop", "shm", "tcp"]);
    assert_eq!(names("checks", "check").len(), 17);
    for path in report["paths"].as_array().unwrap() {
        assert!(path["messages"].as_u64().unwrap() > 0 && path["bytes"].as_u64().unwrap() > 0, "{path}");
        assert!(path["latency"]["median_ns"].as_u64().unwrap() > 0, "{path}");
        assert!(path["bytes_per_second"].as_f64().unwrap() > 0.0, "{path}");
    }
    // Large messages are striped: both TCP rails carried a fair part.
    let rails = report["rails"].as_array().unwrap();
    let tcp: Vec<u64> = rails
        .iter()
        .filter(|rail| rail["name"].as_str().unwrap().starts_with("tcp"))
        .map(|rail| rail["bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(tcp.len(), 2, "{rails:?}");
    assert!(tcp.iter().all(|&bytes| bytes > tcp.iter().sum::<u64>() / 10), "{tcp:?}");
}

#[test]
fn single_rank_exchanges_with_itself() {
    let output = rerail().args(["exchange", "-n", "1", "--max-bytes", "64K", "--quick", "--json"]).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}\n{stderr}");
    let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
    assert_eq!(report["paths"].as_array().unwrap().len(), 1);
}

#[test]
fn usage_error_has_its_own_exit_code() {
    for arguments in
        [&["exchange", "-n", "0"][..], &["exchange", "--max-bytes", "8T"], &["perf", "speed"], &["frobnicate"]]
    {
        let output = rerail().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn info_and_config_print_json() {
    for (command, field) in [("info", "machine"), ("config", "settings")] {
        let output = rerail().args([command, "--json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{command}");
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(!value[field].is_null(), "{command}: {value}");
    }
}

#[test]
fn settings_with_which_it_can_not_end_are_refused_with_the_least_value_that_is_enough() {
    for (name, value, message) in [
        ("RERAIL_RETAINED", "0", "RERAIL_RETAINED=1"),
        ("RERAIL_UNEXPECTED", "1", "RERAIL_UNEXPECTED=9"),
        ("RERAIL_CHANNELS", "1", "RERAIL_CHANNELS=2"),
        ("RERAIL_RAILS", "shm", "--hosts 1"),
    ] {
        let output = rerail().args(["exchange", "--quick", "-n", "2"]).env(name, value).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {stderr}");
        assert!(stderr.starts_with("rerail: ") && stderr.contains(message), "{name}: {stderr}");
    }
}

/// The least values are enough: an exchange with all of them ends well.
#[test]
fn the_least_settings_are_enough() {
    let mut command = rerail();
    command.args(["exchange", "--quick", "-n", "2", "--max-bytes", "64K"]).env("RERAIL_RAILS", "tcp");
    for (name, value) in [
        ("RETAINED", "1"),
        ("UNEXPECTED", "9"),
        ("CHANNELS", "2"),
        ("OPERATIONS", "35"),
        ("SEGMENTS", "3"),
        ("EAGER_MAX", "4K"),
        ("WINDOWS", "1"),
    ] {
        command.env(format!("RERAIL_{name}"), value);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What can't be written is not all well.
#[test]
fn help_and_version_that_can_not_be_written_are_an_error() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for arguments in [&["--help"][..], &["--version"], &["exchange", "--help"], &["help", "soak"], &["config"]] {
        let output = rerail().args(arguments).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("standard output"), "{arguments:?}");
        assert_eq!(rerail().args(arguments).output().unwrap().status.code(), Some(0), "{arguments:?}");
    }
}
