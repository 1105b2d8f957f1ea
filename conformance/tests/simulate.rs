//! Simulated clusters and the contract suite, as a user runs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn rerail(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rerail")).args(args).output().expect("the tool starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
}

/// A scenario file of its own for a test, gone with its folder.
struct File(tempfile::TempDir);

impl File {
    fn of(text: &str) -> File {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("world.toml"), text).expect("a file in it");
        File(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("world.toml")
    }

    fn run(&self, more: &[&str]) -> Output {
        let path = self.path();
        rerail(&[&["sim", "--scenario", path.to_str().expect("a path in UTF-8")], more].concat())
    }
}

#[test]
fn same_seed_gives_the_same_trace() {
    let run = || rerail(&["sim", "--seed", "11", "--faults", "all", "--trace"]);
    let trace_text = |output: Output| -> Vec<String> {
        let printed = text(&output.stdout);
        let real = |line: &&str| !line.contains(" of virtual time in ") && !line.starts_with("peak memory of ");
        printed.lines().filter(real).map(str::to_owned).collect()
    };
    let (first, second) = (trace_text(run()), trace_text(run()));
    assert!(first.len() > 100, "{first:?}");
    assert_eq!(first, second);
    let other = trace_text(rerail(&["sim", "--seed", "12", "--faults", "all", "--trace"]));
    assert_ne!(first, other);
}

/// A simulation with a trace is the same as one without.
#[test]
fn tracing_changes_nothing() {
    for seed in ["1", "2", "3", "5", "8"] {
        for faults in ["lossless", "all"] {
            let cluster = ["sim", "--seed", seed, "--faults", faults];
            let (plain, traced) = (rerail(&cluster), rerail(&[&cluster[..], &["--trace"]].concat()));
            assert_eq!(plain.status.code(), traced.status.code(), "seed {seed}, faults {faults}");
            let events = |output: &Output| {
                let printed = text(&output.stdout);
                let line = printed
                    .lines()
                    .rfind(|line| line.contains(" of virtual time in "))
                    .expect("a line of figures")
                    .to_owned();
                let (virtual_time, events) = line.split_once(" of virtual time in ").expect("just seen");
                let events = events.split(": ").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or_default();
                (virtual_time.to_owned(), events.to_owned())
            };
            assert_eq!(events(&plain), events(&traced), "seed {seed}, faults {faults}");
        }
    }
}

#[test]
fn trace_of_one_message_is_part_of_the_full_trace() {
    let all = text(&rerail(&["sim", "--seed", "3", "--trace"]).stdout);
    let line = all.lines().find(|line| line.contains(": send msg ")).expect("a message is sent");
    let id = line.split("msg ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("its name");
    let output = rerail(&["sim", "--seed", "3", "--message", id]);
    let trace_text = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{trace_text}");
    assert!(trace_text.lines().next().is_some_and(|line| line.contains(" send msg ")), "{trace_text}");
    assert!(trace_text.contains("is over: Ok("), "{trace_text}");
    assert!(trace_text.lines().count() < all.lines().count() / 2);
    let none = rerail(&["sim", "--seed", "3", "--message", "ffffffffff"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("does not occur in this simulation"), "{}", text(&none.stderr));
}

/// What `--print` prints is the same simulation as a file.
#[test]
fn drawn_scenario_is_printed_and_runs_identically_from_file() {
    let file = File::of(&text(&rerail(&["sim", "--seed", "5", "--print"]).stdout));
    let (drawn, read) = (json(&rerail(&["sim", "--seed", "5", "--json"])), json(&file.run(&["--seed", "5", "--json"])));
    for field in ["verdict", "events", "virtual_ns", "faults", "ranks"] {
        assert_eq!(drawn[field], read[field], "{field}");
    }
    assert_eq!(drawn["verdict"], "clean");
}

#[test]
fn exit_codes_distinguish_verdicts() {
    let cluster = "hosts = 2\n[[hcas]]\n[[rails]]\nkind = \"hca\"\nhca = 0\nport = 0\n[workload]\nname = \"random\"\n";
    let clean = File::of(cluster).run(&["--json"]);
    assert_eq!((clean.status.code(), json(&clean)["verdict"].as_str()), (Some(0), Some("clean")));
    // A process without recovery loses the peer with the first connection.
    let fault = "[config]\nrecovery = false\n[[faults]]\nat = \"5us\"\nwhat = \"qp-error\"\nwhere = \"rank1.hca0\"\n";
    let lost = File::of(&format!("{cluster}{fault}")).run(&["--json"]);
    assert_eq!((lost.status.code(), json(&lost)["verdict"].as_str()), (Some(21), Some("lost")));
    // A device that is gone and never comes back: nothing leads to the peer any more, and it may be given up.
    let fault = "[config]\nrecovery_timeout = \"1s\"\nconnect_timeout = \"1s\"\n[[faults]]\nat = \"5us\"\nwhat = \"device-fatal\"\nwhere = \"host1.hca0\"\n";
    let cut = File::of(&format!("{cluster}{fault}")).run(&["--json"]);
    assert_eq!((cut.status.code(), json(&cut)["verdict"].as_str()), (Some(0), Some("clean")));
    // A simulation that is not given the time that it needs.
    let limits = "[limits]\nsafety = \"0us\"\nconvergence = \"1us\"\n";
    let stuck = File::of(&format!("{cluster}{limits}")).run(&["--json"]);
    assert_eq!((stuck.status.code(), json(&stuck)["verdict"].as_str()), (Some(26), Some("stuck")));
    assert!(json(&stuck)["facts"].as_str().is_some_and(|facts| facts.contains("are not over at")));
}

#[test]
fn invalid_argument_error_lists_the_valid_values() {
    let unknown = rerail(&["sim", "--faults", "gremlins"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("late-write"), "the kinds are named: {}", text(&unknown.stderr));
    let misspelt = File::of("hosts = 2\nhcsa = []\n").run(&[]);
    assert_eq!(misspelt.status.code(), Some(2));
    let printed = text(&misspelt.stderr);
    assert!(printed.contains("line 2") && printed.contains("`hcas`"), "{printed}");
    let workload = File::of("hosts = 2\n[workload]\nname = \"sort\"\n").run(&[]);
    assert_eq!(workload.status.code(), Some(2));
    assert!(text(&workload.stderr).contains("random"), "the workloads are named: {}", text(&workload.stderr));
    let impossible = File::of("hosts = 2\nrails = [{ kind = \"shm\" }]\n[workload]\nname = \"random\"\n").run(&[]);
    assert_eq!(impossible.status.code(), Some(2), "shared memory alone does not reach another host");
    let late = File::of("hosts = 2\n[[faults]]\nat = \"500s\"\nwhat = \"kill\"\nwhere = \"rank1\"\n").run(&[]);
    assert_eq!(late.status.code(), Some(2));
    assert!(text(&late.stderr).contains("is never reached"), "{}", text(&late.stderr));
    let ranks = File::of("hosts = 2\nranks_per_host = 2\n").run(&["--ranks", "7"]);
    assert_eq!(ranks.status.code(), Some(2));
    assert!(text(&ranks.stderr).contains("ranks_per_host"), "{}", text(&ranks.stderr));
    for zero in [&["soak", "--seeds", "0"][..], &["soak", "--minutes", "0"], &["sim", "--trace", "--json"]] {
        assert_eq!(rerail(zero).status.code(), Some(2), "{zero:?}");
    }
    let absent = rerail(&["sim", "--scenario", "no/such/file.toml"]);
    assert_eq!(absent.status.code(), Some(2));
    assert!(text(&absent.stderr).contains("no/such/file.toml"));
}

#[test]
fn seeds_end_with_the_last_there_is() {
    let refused = rerail(&["soak", "--from", "18446744073709551615", "--seeds", "2"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("18446744073709551615"));
    let last = json(&rerail(&["soak", "--from", "18446744073709551615", "--seeds", "1", "--faults", "none", "--json"]));
    assert_eq!(last["seeds"], 1);
}

#[test]
fn soak_counts_simulations_and_numbers_them_by_seed() {
    let report = json(&rerail(&["soak", "--seeds", "24", "--from", "100", "--json"]));
    assert_eq!((report["seeds"].as_u64(), report["first_seed"].as_u64()), (Some(24), Some(100)));
    assert_eq!(report["verdicts"]["clean"].as_u64(), Some(24));
    assert_eq!(report["findings"].as_array().map(Vec::len), Some(0));
    assert!(report["events"].as_u64().is_some_and(|events| events > 1000));
}

/// Every scenario of the repository runs and comes to what it is for; the large ones with less to do.
#[test]
fn scenario_files_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut seen = 0;
    let files = |folder: &Path| std::fs::read_dir(folder).expect("the folder of scenarios");
    for entry in files(&folder).chain(files(&folder.join("known-failures"))) {
        let path = entry.expect("an entry").path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| name.ends_with(".toml")) else {
            continue;
        };
        let less: &[&str] = match name {
            "all-to-all-4096.toml" => &["--set", "hosts=2"],
            // More ranks than channels still.
            "all-to-all-1000.toml" => &["--set", "hosts=5"],
            "resilient-2010.toml"
            | "shiba-2005.toml"
            | "shiba-2005-opteron.toml"
            | "far-numa-rail.toml"
            | "dear-registration.toml" => &[],
            "xrc-2008.toml" => &["--set", "hosts=2", "--set", "workload.parameters.peers=4"],
            _ => &["--set", "workload.parameters.windows=1"],
        };
        let file = path.to_str().expect("a path in UTF-8");
        let output = rerail(&[&["sim", "--scenario", file], less].concat());
        assert_eq!(output.status.code(), Some(0), "{name}: {}{}", text(&output.stdout), text(&output.stderr));
        seen += 1;
    }
    assert!(seen >= 12, "{seen}");
}

#[test]
fn software_hca_passes_the_contract_suite() {
    let output = rerail(&["check", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let report = &json(&output)[0];
    assert!(report["passed"].as_u64().is_some_and(|passed| passed >= 100), "{}", report["passed"]);
    assert_eq!((report["failed"].as_u64(), report["unsupported"].as_u64()), (Some(0), Some(0)));
    let cases = report["cases"].as_array().expect("cases");
    assert!(cases.iter().all(|case| case["rule"].as_str().is_some_and(|rule| !rule.is_empty())));
    let absent = rerail(&["check", "--device", "no_such_device0"]);
    assert_eq!(absent.status.code(), Some(69), "{}", text(&absent.stderr));
    assert!(text(&absent.stderr).contains("no_such_device0"));
}
