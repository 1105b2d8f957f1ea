//! `rerail perf` as a user runs it: launched, as a pair that meets at an address, and over time.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

const KEY: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0";
const TWO_RAILS: &str = "127.0.0.1,127.0.0.2";

fn rerail() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rerail"));
    // A launcher around the tests is none of the tool's business.
    for name in ["PMI_FD", "PMI_PORT", "PMI_SIZE", "PMI_RANK"] {
        command.env_remove(name);
    }
    command
}

fn result(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}\n{stderr}");
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
}

fn numbers(list: &Value, field: &str) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|entry| entry[field].as_u64().unwrap()).collect()
}

/// Two processes that meet at an address: what the one that connects prints.
fn pair(options: &[&str]) -> Value {
    let two = |command: &mut Command| {
        command.env("RERAIL_KEY", KEY).env("RERAIL_RAILS", "tcp").args(["--interfaces", TWO_RAILS]);
    };
    let mut listener = rerail();
    listener.args(["perf", "--listen", "127.0.0.1:0"]).stderr(Stdio::piped());
    two(&mut listener);
    let mut listener = listener.spawn().unwrap();
    let mut lines = BufReader::new(listener.stderr.take().unwrap()).lines();
    let first_line = lines.next().unwrap().unwrap();
    let address = first_line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{first_line}")).to_owned();
    let mut connector = rerail();
    connector.args(["perf", "--json", "--connect", &address]).args(options);
    two(&mut connector);
    let result = result(&mut connector);
    assert!(listener.wait().unwrap().success());
    result
}

#[test]
fn policy_determines_the_bytes_of_each_rail() {
    let carried = |policy: &[&str]| {
        let report = pair(
            &[&["bandwidth", "--sizes", "256K", "--window", "4", "--iterations", "4", "--verify"], policy].concat(),
        );
        assert_eq!((report["verified"].as_bool(), report["path"].as_str()), (Some(true), Some("tcp")));
        // Both rails count the size's messages and the whole run's.
        let (size, whole) = (&report["sizes"][0]["rails"], &report["rails"]);
        let (size, whole) = (numbers(size, "bytes"), numbers(whole, "bytes"));
        assert!(size.len() == 2 && whole.iter().zip(&size).all(|(whole, size)| whole >= size), "{report}");
        size
    };
    let even = carried(&["--policy", "even"]);
    assert!(even[0].abs_diff(even[1]) < even[0] / 4, "{even:?}");
    let weighted = carried(&["--policy", "weighted", "--weights", "3,1"]);
    assert!(weighted[0] > 2 * weighted[1] && weighted[1] > 0, "{weighted:?}");
    let bound = carried(&["--policy", "binding"]);
    assert!(bound[1] < bound[0] / 100, "{bound:?}");
    let large = carried(&["--policy", "even", "--policy-small", "binding"]);
    assert!(large[0].abs_diff(large[1]) < large[0] / 4, "{large:?}");
}

#[test]
fn paired_perf_uses_the_options_of_the_connecting_side() {
    let report = pair(&["latency", "--sizes", "0,64", "--iterations", "20"]);
    assert_eq!(report["measure"], "latency");
    assert_eq!(numbers(&report["sizes"], "messages"), [20, 20]);
    let report = pair(&["bandwidth", "--op", "put", "--sizes", "4K", "--iterations", "2", "--window", "2", "--verify"]);
    assert_eq!((report["operation"].as_str(), report["verified"].as_bool()), (Some("put"), Some(true)));
}

#[test]
fn samples_over_time_add_up_and_can_be_judged_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for measure in ["bandwidth", "bidirectional"] {
        let steady =
            pair(&[measure, "--sizes", "64K", "--window", "4", "--seconds", "1", "--interval", "50", "--verify"]);
        assert_eq!(steady["measure"], measure);
        let samples = steady["samples"].as_array().unwrap();
        let number = |value: &Value| value.as_f64().unwrap();
        let (mut moved, mut before) = (0.0, 0.0);
        for sample in samples {
            let passed = number(&sample["at"]) - before;
            assert!(passed > 0.0, "{sample}");
            moved += passed * (number(&sample["sent"]) + number(&sample["received"]));
            before = number(&sample["at"]);
        }
        let total = number(&steady["bytes_per_second"]) * number(&steady["seconds"]);
        // What was complete after the last sample is in the total alone.
        assert!(moved > 0.0 && moved <= total * 1.000_001, "{moved} of {total}");
        assert_eq!(measure == "bidirectional", samples.iter().any(|sample| number(&sample["received"]) > 0.0));
        let file = folder.path().join(format!("{measure}.json"));
        std::fs::write(&file, steady.to_string()).unwrap();
        files.push(file);
    }
    let svg = folder.path().join("plot.svg");
    let judge = |sums: &str| {
        let mut command = rerail();
        command.arg("series").args(&files).args(["--sums", sums, "--svg"]).arg(&svg);
        command.output().unwrap().status.code()
    };
    assert_eq!(judge("0=0.000001"), Some(0));
    assert!(std::fs::read_to_string(&svg).unwrap().contains("bidirectional"));
    assert_eq!(judge("0=100000000"), Some(1), "no rail carries so much");
    assert_eq!(judge("1=5,0=5"), Some(2));
}

#[test]
fn mixed_messages_are_counted_and_verified_both_ways() {
    for path in ["shm", "tcp"] {
        let options = ["perf", "mixed", "--verify", "--seconds", "1", "--window", "16", "--path", path, "--json"];
        let printed = result(rerail().args(options));
        let side = |side: usize, field: &str| printed["sides"][side][field].as_u64().unwrap();
        for (one, other) in [(0, 1), (1, 0)] {
            assert!(side(one, "sent") > 0 && side(one, "sent") == side(other, "received"), "{printed}");
            assert!(side(one, "adds") > 0 && side(one, "adds") == side(other, "added_here"), "{printed}");
            for wrong in ["lost", "duplicated", "late", "different"] {
                assert_eq!(side(one, wrong), 0, "{printed}");
            }
            let rails = printed["sides"][one]["rails"].as_array().unwrap();
            assert!(rails.iter().any(|rail| rail["health"]["state"] == "up"), "{printed}");
        }
    }
}

#[test]
fn explain_lists_the_bytes_of_every_rail() {
    let shares = |explained: &Value| numbers(&explained["rails"], "bytes");
    let options =
        ["explain", "--path", "tcp", "--size", "8,1M", "--policy", "weighted", "--weights", "0,3,1", "--json"];
    let printed = result(rerail().args(options));
    assert_eq!((printed[0]["route"].as_str(), printed[1]["route"].as_str()), (Some("eager"), Some("cut")), "{printed}");
    // Shared memory does not reach the other logical host.
    assert_eq!(printed[1]["rails"][0]["why"], "not connected to this peer");
    assert_eq!(shares(&printed[1]), [0, 768 << 10, 256 << 10]);
    let rail = &printed[1]["rails"][1]["health"];
    assert_eq!((rail["state"].as_str(), rail["failures"].as_u64()), (Some("up"), Some(0)), "{printed}");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/multirail-2004-4x-1x.toml");
    let printed = result(rerail().args(["explain", "--scenario", file, "--size", "12K,4M", "--json"]));
    let (small, large) = (shares(&printed[0]), shares(&printed[1]));
    assert!(small[0] == 12 << 10 && small[1] == 0, "{printed}");
    assert!(large.iter().sum::<u64>() == 4 << 20 && large[0] > 3 * large[1] && large[1] > large[0] / 5, "{printed}");
    assert!(printed[1]["finish_ns"].as_u64() < printed[1]["alone"]["finish_ns"].as_u64(), "{printed}");
}

#[test]
fn explain_lists_what_takes_memory_and_judges_the_budget() {
    let explain = |budget: &str, channels: &str| {
        let mut command = rerail();
        command.env("RERAIL_RAILS", "shm,verbs").env("RERAIL_CHANNELS", channels);
        command.args(["explain", "--memory", "--ranks", "4096", "--per-node", "8", "--budget", budget, "--json"]);
        let output = command.output().unwrap();
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), printed)
    };
    let (code, printed) = explain("1G", "64");
    assert_eq!((code, printed["fits"].as_bool()), (Some(0), Some(true)), "{printed}");
    let sum: u64 = numbers(&printed["items"], "bytes").iter().sum();
    assert_eq!(printed["bytes"].as_u64(), Some(sum), "{printed}");
    let rings = printed["items"].as_array().unwrap().iter().find(|item| item["what"] == "rings of shared memory");
    assert_eq!(rings.unwrap()["bytes"].as_u64(), Some(7 * 594_944), "{printed}");
    let (code, printed) = explain("8M", "256");
    assert_eq!((code, printed["fits"].as_bool()), (Some(1), Some(false)), "{printed}");
}

#[test]
fn explain_finds_the_preset_by_which_a_job_of_32_768_fits() {
    let explain = |more: &[&str]| {
        let mut command = rerail();
        command.args(["explain", "--memory", "--ranks", "32768", "--json"]).args(more);
        let output = command.output().unwrap();
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), printed["preset"].as_str().unwrap().to_owned(), printed["channels"].as_u64())
    };
    let found = |code, preset: &str| (Some(code), preset.to_owned(), Some(if preset == "standard" { 64 } else { 256 }));
    assert_eq!(explain(&["--per-node", "8", "--budget", "54M"]), found(0, "compact"));
    assert_eq!(explain(&["--per-node", "8", "--budget", "54M", "--preset", "standard"]), found(1, "standard"));
    assert_eq!(explain(&["--per-node", "16", "--budget", "40M"]), found(0, "lean"));
    assert_eq!(explain(&["--per-node", "8", "--budget", "4M"]), found(1, "standard"));
}

#[test]
fn invalid_perf_options_are_a_usage_error() {
    for options in [
        &["latency", "--seconds", "1"][..],
        &["bandwidth", "--op", "put", "--seconds", "1"],
        &["bandwidth", "--seconds", "1", "--sizes", "8,16"],
        &["mixed", "--op", "put"],
        &["mixed", "--iterations", "5"],
        &["--policy", "evn"],
        &["--connect", "127.0.0.1:1"],
        &["--connect", "127.0.0.1:1", "--listen", "127.0.0.1:0"],
    ] {
        let output = rerail().arg("perf").args(options).env_remove("RERAIL_KEY").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Sends and gets out of memory that the other rank maps, to the byte.
#[test]
fn mapped_memory_is_read_to_the_byte() {
    for op in ["send", "get"] {
        let options = ["bandwidth", "--op", op, "--mapped", "--verify", "--sizes", "40001,300K,1M", "--window", "3"];
        let report = result(rerail().args(["perf", "--json", "--iterations", "10"]).args(options));
        assert_eq!((report["verified"].as_bool(), report["path"].as_str()), (Some(true), Some("shm")));
    }
}

/// Batches of puts and gets, of one pair and of two; rounds of more ranks than there may be processors.
#[test]
fn batches_measure_accesses_and_rounds_of_all_ranks() {
    let batch = ["--batch", "3", "--iterations", "2", "--warmup", "1", "--json"];
    for options in [
        &["latency", "--op", "put", "--sizes", "0,8,100000"][..],
        &["rate", "--op", "get", "--sizes", "8,100000", "--window", "4"],
        &["latency", "--op", "get", "--sizes", "1000", "--pairs", "2", "--mapped"],
        &["meet", "--sizes", "0,8,100000", "--pairs", "3"],
        &["all", "--sizes", "8,100000", "--pairs", "3"],
    ] {
        let report = result(rerail().arg("perf").args(options).args(batch));
        let sizes = report["sizes"].as_array().unwrap();
        assert!(!sizes.is_empty() && sizes.iter().all(|line| line["batches"]["median_ns"].as_f64() > Some(0.0)));
    }
    for wrong in [&["meet", "--op", "put"][..], &["latency", "--pairs", "2"], &["mixed", "--batch", "2"]] {
        assert_eq!(rerail().arg("perf").args(wrong).output().unwrap().status.code(), Some(2), "{wrong:?}");
    }
}
