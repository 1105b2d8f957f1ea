//! One build with all mutants that compile. Those that don't are found by the compiler's complaints, and left
//! out.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::mutant::{Mutant, Source};
use crate::tree::{self, Places};
use crate::weave::{self, Woven};

/// Programs with the mutants in them.
pub struct Built {
    /// Tests of the core: its unit tests, and each file of tests of the testkit.
    pub tests: Vec<PathBuf>,
    /// This program, over the woven core.
    pub tool: PathBuf,
    /// Mutants that do not compile.
    pub dropped: BTreeSet<u32>,
    /// Messages of the compiler, in this run.
    pub complaints: BTreeMap<u32, String>,
}

/// What an earlier run has found not to compile.
#[derive(Default, Serialize, Deserialize)]
struct Known {
    /// Names of mutants.
    dropped: HashSet<String>,
    /// Names of functions that constants need.
    constant: BTreeSet<String>,
    /// A number of the core's text.
    text: u64,
}

/// A message of the compiler, as far as it matters here.
#[derive(Deserialize)]
struct Message {
    message: Option<Complaint>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Complaint {
    level: String,
    message: String,
    code: Option<Code>,
    spans: Vec<At>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Clone, Deserialize)]
struct At {
    file_name: String,
    byte_start: usize,
    byte_end: usize,
    is_primary: bool,
}

/// Rounds of leaving out what does not compile.
const ROUNDS_MAX: usize = 40;

/// Weaves the mutants into a copy of the tree and builds it.
pub fn build(
    places: &Places,
    sources: &[Source],
    mutants: &[Mutant],
    announce: &dyn Fn(&str),
) -> Result<Built, String> {
    fs::create_dir_all(&places.tree).map_err(|error| format!("{}: {error}", places.tree.display()))?;
    let memory = places.state.join("dropped.json");
    let text = number_of(sources, mutants);
    let known = fs::read_to_string(&memory).ok().and_then(|text| serde_json::from_str::<Known>(&text).ok());
    let mut known = known.filter(|known| known.text == text).unwrap_or_default();
    known.text = text;
    let named = |known: &Known| -> BTreeSet<u32> {
        mutants.iter().filter(|mutant| known.dropped.contains(&mutant.name)).map(|mutant| mutant.id).collect()
    };
    let mut dropped = named(&known);
    let mut reasons = BTreeMap::new();
    // The compiler's word may stand in a hand-written mutant and be due to one beside it: once those are left
    // out, the hand-written ones are tried again.
    let mut tried_again = false;
    for round in 1.. {
        let woven = weave_all(places, sources, mutants, &dropped, &known.constant)?;
        announce(&format!("checking what compiles, round {round}: {} mutants do not", dropped.len()));
        let complaints = check(places)?;
        if complaints.is_empty() {
            let is_written = |id: &u32| mutants.iter().any(|mutant| mutant.id == *id && mutant.written.is_some());
            if std::mem::replace(&mut tried_again, true) || !dropped.iter().any(is_written) {
                break;
            }
            dropped.retain(|id| !is_written(id));
            continue;
        }
        let more = judge(&complaints, &woven, sources, mutants, &mut known.constant, &mut reasons);
        let before = dropped.len();
        dropped.extend(more);
        if dropped.len() == before || round >= ROUNDS_MAX {
            let first = complaints.first().map_or("", |complaint| &complaint.message);
            return Err(format!("the woven core does not compile, and no mutant is at fault: {first}"));
        }
        known.dropped =
            mutants.iter().filter(|mutant| dropped.contains(&mutant.id)).map(|mutant| mutant.name.clone()).collect();
    }
    let text = serde_json::to_string(&known).map_err(|error| error.to_string())?;
    fs::write(&memory, text).map_err(|error| format!("{}: {error}", memory.display()))?;
    announce("building the core's tests");
    let mut tests = executables(places, &["test", "--no-run", "-p", "rerail-core", "--lib"])?;
    tests.extend(executables(places, &["test", "--no-run", "-p", "rerail-testkit", "--test", "*"])?);
    announce("building the simulator");
    let tools = executables(places, &["build", "-p", "rerail-mutants"])?;
    let tool = tools.into_iter().next().ok_or("cargo names no program that it has built")?;
    Ok(Built { tests, tool, dropped, complaints: reasons })
}

/// Changes with the text of the core and the set of mutants, not with tests in files of their own: what
/// compiles does not depend on these, so that a new test costs no new build of anything else.
fn number_of(sources: &[Source], mutants: &[Mutant]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    let is_test = |source: &&Source| source.path.ends_with("tests.rs") || source.path.contains("/tests/");
    sources.iter().filter(|source| !is_test(source)).for_each(|source| (&source.path, &source.text).hash(&mut hasher));
    mutants.iter().for_each(|mutant| (&mutant.name, mutant.id).hash(&mut hasher));
    hasher.finish()
}

fn weave_all(
    places: &Places,
    sources: &[Source],
    mutants: &[Mutant],
    dropped: &BTreeSet<u32>,
    constant: &BTreeSet<String>,
) -> Result<Vec<Woven>, String> {
    let living: Vec<&Mutant> = mutants.iter().filter(|mutant| !dropped.contains(&mutant.id)).collect();
    let touched: BTreeSet<&str> = living
        .iter()
        .flat_map(|mutant| {
            let edits = mutant.edits.iter().map(|edit| edit.file.as_str());
            edits.chain(mutant.appended.iter().map(|(file, _)| file.as_str()))
        })
        .collect();
    let mut woven = Vec::new();
    for source in sources.iter().filter(|source| touched.contains(source.path.as_str()) || source.path == "lib.rs") {
        let mut file = weave::weave(source, &living, constant);
        if source.path == "lib.rs" {
            file.text += weave::SWITCH;
        }
        woven.push(file);
    }
    let texts: Vec<(String, String)> =
        woven.iter().map(|file| (format!("core/src/{}", file.path), file.text.clone())).collect();
    tree::copy(places, &texts)?;
    Ok(woven)
}

/// Mutants that the complaints are due to.
fn judge(
    complaints: &[Complaint],
    woven: &[Woven],
    sources: &[Source],
    mutants: &[Mutant],
    constant: &mut BTreeSet<String>,
    reasons: &mut BTreeMap<u32, String>,
) -> BTreeSet<u32> {
    let mut at_fault = BTreeSet::new();
    let mut names = BTreeSet::new();
    for complaint in complaints {
        let called = complaint.message.split('`').nth(1).and_then(|path| path.rsplit("::").next());
        if complaint.code.as_ref().is_some_and(|code| code.code == "E0015")
            && let Some(name) = called
        {
            // A function that constants need stays as it was, and has no mutants.
            names.insert(name.to_owned());
            continue;
        }
        for id in blame(complaint, woven) {
            reasons.insert(id, complaint.message.clone());
            at_fault.insert(id);
        }
    }
    for source in sources {
        at_fault.extend(weave::inside_functions(source, mutants, &names));
    }
    constant.extend(names);
    at_fault
}

/// Codes of complaints about what is borrowed, moved or not yet there: what is at fault may stand far before.
const OF_BORROWS: [&str; 8] = ["E0381", "E0382", "E0384", "E0499", "E0502", "E0503", "E0505", "E0506"];

/// Mutants that a complaint is due to, the likeliest.
fn blame(complaint: &Complaint, woven: &[Woven]) -> BTreeSet<u32> {
    let mut spans = complaint.spans.clone();
    spans.sort_by_key(|at| !at.is_primary);
    let file = |at: &At| woven.iter().find(|file| at.file_name == format!("core/src/{}", file.path));
    let of_borrows = complaint.code.as_ref().is_some_and(|code| OF_BORROWS.contains(&code.code.as_str()));
    // Where all of it is.
    let whole = spans.first().and_then(|first| {
        let of_file = spans.iter().filter(|at| at.file_name == first.file_name);
        let start = of_file.clone().map(|at| at.byte_start).min()?;
        Some((file(first)?, start..of_file.map(|at| at.byte_end).max()?))
    });
    let first = |find: &dyn Fn(&Woven, &At) -> BTreeSet<u32>| {
        let found = spans.iter().filter_map(|at| Some(find(file(at)?, at)));
        found.into_iter().find(|ids| !ids.is_empty()).unwrap_or_default()
    };
    let steps: [&dyn Fn() -> BTreeSet<u32>; 4] = [
        &|| match &whole {
            Some((file, range)) if of_borrows => file.going_on(range),
            _ => BTreeSet::new(),
        },
        &|| first(&|file, at| file.in_text(&(at.byte_start..at.byte_end))),
        &|| first(&|file, at| file.at_fault(&(at.byte_start..at.byte_end))),
        &|| whole.as_ref().map(|(file, range)| file.in_lines(range)).unwrap_or_default(),
    ];
    steps.iter().map(|step| step()).find(|ids| !ids.is_empty()).unwrap_or_default()
}

/// Cargo in the copy. Assertions are on: they are what a debug build has, at the speed of a release build.
fn cargo(places: &Places) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(&places.tree).stdin(Stdio::null()).env("CARGO_TARGET_DIR", &places.build);
    command.env("RUSTFLAGS", "--cap-lints=allow").env("CARGO_INCREMENTAL", "0");
    for (name, value) in
        [("DEBUG", "line-tables-only"), ("DEBUG_ASSERTIONS", "true"), ("OVERFLOW_CHECKS", "true"), ("OPT_LEVEL", "2")]
    {
        command.env(format!("CARGO_PROFILE_RELEASE_{name}"), value);
    }
    command
}

fn messages(output: &[u8]) -> Vec<Message> {
    let text = String::from_utf8_lossy(output);
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn check(places: &Places) -> Result<Vec<Complaint>, String> {
    let mut command = cargo(places);
    command.args(["check", "--release", "-p", "rerail-core", "--lib", "--message-format=json", "--quiet"]);
    let output = command.output().map_err(|error| format!("cargo: {error}"))?;
    let complaints: Vec<Complaint> = messages(&output.stdout)
        .into_iter()
        .filter_map(|message| message.message)
        .filter(|complaint| complaint.level == "error" && !complaint.spans.is_empty())
        .collect();
    if complaints.is_empty() && !output.status.success() {
        return Err(format!("cargo check failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(complaints)
}

/// Builds, and gives the programs; there is at least one.
fn executables(places: &Places, arguments: &[&str]) -> Result<Vec<PathBuf>, String> {
    let mut command = cargo(places);
    command.args(arguments).args(["--release", "--message-format=json-render-diagnostics", "--quiet"]);
    let output = command.output().map_err(|error| format!("cargo: {error}"))?;
    let found: Vec<PathBuf> = messages(&output.stdout).into_iter().filter_map(|message| message.executable).collect();
    match output.status.success() && !found.is_empty() {
        true => Ok(found),
        false => Err(format!("cargo {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr))),
    }
}
