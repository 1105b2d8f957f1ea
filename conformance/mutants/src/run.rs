//! A run: which mutants, one build, every mutant judged, and what it came to.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::Options;
use crate::compile;
use crate::equivalent;
use crate::generate;
use crate::judge::{Bench, Fate, on_all_processors};
use crate::mutant::{Mutant, Source};
use crate::patches::{self, Patch};
use crate::report::{self, Outcome};
use crate::tree::Places;

/// Files of which every line is mutated: what decides what goes out again, what is matched, what is counted.
const FILES: [&str; 40] = [
    "endpoint/aggregate.rs",
    "endpoint/arrive.rs",
    "endpoint/bulk.rs",
    "endpoint/complete.rs",
    "endpoint/express.rs",
    "endpoint/frames.rs",
    "endpoint/lifecycle.rs",
    "endpoint/line.rs",
    "endpoint/matching.rs",
    "endpoint/packets.rs",
    "endpoint/recover.rs",
    "endpoint/rendezvous.rs",
    "endpoint/replay.rs",
    "endpoint/retry_epoch.rs",
    "endpoint/serve.rs",
    "endpoint/slots.rs",
    "fast/mod.rs",
    "fast/ring.rs",
    "fast/express_budget.rs",
    "peer/replay.rs",
    "peer/requests.rs",
    "peer/silence.rs",
    "peer/work.rs",
    "rail/set.rs",
    "rel/ack.rs",
    "rel/blocks.rs",
    "rel/credit.rs",
    "rel/link.rs",
    "rel/retain.rs",
    "seq/mod.rs",
    "seq/recv_window.rs",
    "seq/reorder.rs",
    "seq/sent_window.rs",
    "seq/serial.rs",
    "tag/entry.rs",
    "tag/mod.rs",
    "tag/pattern.rs",
    "tag/posted.rs",
    "tag/shapes.rs",
    "tag/unexpected.rs",
];

/// Survivors are written so often.
const WRITE_EVERY: Duration = Duration::from_secs(30);

/// All mutants, numbered, and the patches of those that are written by hand.
struct All {
    sources: Vec<Source>,
    mutants: Vec<Mutant>,
    patches: Vec<Patch>,
}

fn all(places: &Places) -> Result<All, String> {
    let mut sources = Vec::new();
    read_sources(&places.core(), "", &mut sources)?;
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    let patches = patches::read(&places.root.join("conformance/mutants/patches"))?;
    let mut mutants = Vec::new();
    for (index, patch) in patches.iter().enumerate() {
        mutants.push(patches::mutant_of(patch, index, &sources)?);
    }
    for file in FILES {
        let source = sources.iter().find(|source| source.path == file);
        let source = source.ok_or_else(|| format!("there is no core/src/{file}"))?;
        mutants.extend(generate::mutants_of(source)?);
    }
    (1..).zip(&mut mutants).for_each(|(id, mutant)| mutant.id = id);
    Ok(All { sources, mutants, patches })
}

fn read_sources(folder: &Path, prefix: &str, sources: &mut Vec<Source>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if entry.path().is_dir() {
            read_sources(&entry.path(), &format!("{path}/"), sources)?;
        } else if name.ends_with(".rs") {
            sources.push(Source { path, text: fs::read_to_string(entry.path()).map_err(failed)? });
        }
    }
    Ok(())
}

/// Mutants that the options name.
fn chosen<'a>(options: &Options, all: &'a All, places: &Places) -> Result<Vec<&'a Mutant>, String> {
    let contains =
        |words: &[String], text: &str| words.is_empty() || words.iter().any(|word| text.contains(word.as_str()));
    let mut chosen: Vec<&Mutant> = all.mutants.iter().collect();
    chosen.retain(|mutant| contains(&options.file, &mutant.file) && contains(&options.name, &mutant.name));
    chosen.retain(|mutant| !options.written || mutant.written.is_some());
    if options.again {
        let path = places.state.join("last.json");
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let last: Vec<Outcome> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let survived = last.iter().filter(|outcome| matches!(outcome.fate, Fate::Survived { .. }));
        let names: HashSet<&str> = survived.map(|outcome| outcome.name.as_str()).collect();
        chosen.retain(|mutant| names.contains(mutant.name.as_str()));
    }
    if let Some(count) = options.sample {
        let mut generated: Vec<&Mutant> = chosen.iter().copied().filter(|mutant| mutant.written.is_none()).collect();
        generated.sort_by_key(|mutant| die(options.seed, &mutant.name));
        let kept: HashSet<u32> = generated.iter().take(count).map(|mutant| mutant.id).collect();
        chosen.retain(|mutant| mutant.written.is_some() || kept.contains(&mutant.id));
    }
    match chosen.is_empty() {
        true => Err("no mutant is like that".to_owned()),
        false => Ok(chosen),
    }
}

/// A number that a seed and a name decide (FNV-1a), the same on every machine.
fn die(seed: u64, name: &str) -> u64 {
    let bytes = seed.to_le_bytes().into_iter().chain(name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn bar(total: usize, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(total as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg:24} [{bar:32}] {pos}/{len} {elapsed}, {eta} left") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what.to_owned());
    bar
}

/// Runs; `false`: the bar is not reached, or something is not as it must be.
pub fn run(options: &Options) -> Result<bool, String> {
    let begun = Instant::now();
    let places = Places::new();
    let all = all(&places)?;
    let equivalent = equivalent::read(&places.root.join("conformance/mutants/equivalent.toml"))?;
    if let Some(name) = equivalent.keys().find(|name| all.mutants.iter().all(|mutant| mutant.name != **name)) {
        return Err(format!("equivalent.toml lists a mutant that does not exist: {name}"));
    }
    let chosen = chosen(options, &all, &places)?;
    if options.list {
        for mutant in &chosen {
            println!("core/src/{}:{}: {}", mutant.file, mutant.line, mutant.name);
            if let Some(patch) = mutant.written.map(|index| &all.patches[index]) {
                println!("    {} ({})", patch.wrong, patch.rule);
            }
        }
        return Ok(true);
    }
    let announce = |what: &str| eprintln!("[{:4} s] {what}", begun.elapsed().as_secs());
    announce(&format!("{} mutants, {} of them chosen", all.mutants.len(), chosen.len()));
    // A sample is built alone, which takes less; else all are, so that the next run finds them built.
    let woven: Vec<Mutant> = match options.sample {
        Some(_) if !options.whole => chosen.iter().map(|mutant| (*mutant).clone()).collect(),
        _ => all.mutants.clone(),
    };
    let built = compile::build(&places, &all.sources, &woven, &announce)?;
    announce("tests and simulations without a mutant");
    let progress = bar(0, "without a mutant");
    let bench = Bench::new(&built, options.seeds, &options.without, &places.state, &|| progress.inc(1))?;
    progress.finish_and_clear();
    let [(tests, of_tests), (seeds, of_seeds)] = bench.size();
    announce(&format!(
        "{tests} tests take {of_tests:.1?}, {seeds} seeds {of_seeds:.1?}; {} mutants to judge",
        chosen.len()
    ));
    let progress = bar(chosen.len(), "mutants");
    let done: Mutex<(BTreeMap<u32, Outcome>, Instant)> = Mutex::new((BTreeMap::new(), Instant::now()));
    on_all_processors(&chosen, |mutant| {
        let fate = bench.judge(mutant.id)?;
        let outcome = outcome(mutant, fate, &equivalent);
        let mut done = done.lock().expect("no worker panics");
        done.0.insert(mutant.id, outcome);
        if done.1.elapsed() > WRITE_EVERY {
            done.1 = Instant::now();
            keep(&places, options, &done.0.values().cloned().collect::<Vec<_>>())?;
        }
        progress.inc(1);
        Ok(())
    })?;
    progress.finish_and_clear();
    let mut outcomes: Vec<Outcome> = done.into_inner().expect("no worker panics").0.into_values().collect();
    keep(&places, options, &outcomes)?;
    announce("simulations that patches demand");
    let hunts: Vec<(&Mutant, &Patch)> = chosen
        .iter()
        .filter_map(|mutant| Some((*mutant, &all.patches[mutant.written?])))
        .filter(|(_, patch)| patch.hunt.is_some())
        .collect();
    let found =
        on_all_processors(&hunts, |(mutant, patch)| Ok(patch.hunt.as_ref().map(|hunt| bench.hunt(mutant.id, hunt))))?;
    // Found by the simulations of its patch, where the others did not find it.
    for ((mutant, _), result) in hunts.iter().zip(&found) {
        let outcome = outcomes.iter_mut().find(|outcome| outcome.name == mutant.name);
        if let (Some(Ok(found)), Some(outcome)) = (result, outcome)
            && !outcome.fate.is_killed()
        {
            outcome.fate = Fate::Simulation { seed: found.seed, verdict: found.verdict.clone() };
        }
    }
    keep(&places, options, &outcomes)?;
    let table = report::table(&outcomes);
    let mut is_good = true;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&outcomes).map_err(|error| error.to_string())?);
    } else {
        print!("{table}\n{}", report::survivors(&outcomes));
    }
    for ((mutant, _), result) in hunts.iter().zip(found) {
        match result {
            Some(Err(why)) => {
                is_good = false;
                eprintln!("{}: {why}", mutant.name);
            }
            Some(Ok(found)) if !options.json => {
                println!("{}: seed {}: {} ({})", mutant.name, found.seed, found.checker, found.verdict);
            }
            _ => {}
        }
    }
    for outcome in outcomes.iter().filter(|outcome| outcome.equivalent.is_some()) {
        if outcome.fate.is_killed() {
            is_good = false;
            eprintln!("listed as equivalent, and killed: {}: {:?}", outcome.name, outcome.fate);
        }
    }
    for outcome in outcomes.iter().filter(|outcome| outcome.written && outcome.fate == Fate::NotCompiled) {
        is_good = false;
        let of_name = all.mutants.iter().find(|mutant| mutant.name == outcome.name);
        let why = of_name.and_then(|mutant| built.complaints.get(&mutant.id)).map_or("", String::as_str);
        eprintln!("written by hand, and does not compile: {}: {why}", outcome.name);
    }
    // Those that are written by hand are all to be found.
    let survives = |outcome: &&Outcome| {
        outcome.written && outcome.equivalent.is_none() && matches!(outcome.fate, Fate::Survived { .. })
    };
    for outcome in outcomes.iter().filter(survives) {
        is_good = false;
        eprintln!("written by hand, and not killed: {}", outcome.name);
    }
    if options.write {
        write(&places, &table)?;
    }
    let rate = report::sum(&outcomes).rate();
    announce(&format!("{rate:.1} % killed, {} % demanded", options.bar));
    Ok(is_good && rate >= options.bar)
}

fn outcome(mutant: &Mutant, fate: Fate, equivalent: &BTreeMap<String, String>) -> Outcome {
    Outcome {
        name: mutant.name.clone(),
        file: mutant.file.clone(),
        line: mutant.line,
        original: mutant.original.clone(),
        mutated: mutant.mutated.clone(),
        fate,
        equivalent: equivalent.get(&mutant.name).cloned(),
        written: mutant.written.is_some(),
    }
}

/// Keeps what is known so far.
fn keep(places: &Places, options: &Options, outcomes: &[Outcome]) -> Result<(), String> {
    let path = places.state.join("last.json");
    let text = serde_json::to_string_pretty(outcomes).map_err(|error| error.to_string())?;
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    if let Some(path) = &options.survivors {
        fs::write(path, report::survivors(outcomes)).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Writes the table to its place in the documentation.
fn write(places: &Places, table: &str) -> Result<(), String> {
    let path = places.root.join("conformance/mutants/results.txt");
    fs::write(&path, table).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Patches are found, names are unique, and what is listed as equivalent exists.
    #[test]
    fn every_patch_applies_and_every_name_is_one_mutants() {
        let places = Places::new();
        let all = all(&places).unwrap();
        let names: HashSet<&str> = all.mutants.iter().map(|mutant| mutant.name.as_str()).collect();
        assert_eq!(names.len(), all.mutants.len(), "two mutants have one name");
        let equivalent = equivalent::read(&places.root.join("conformance/mutants/equivalent.toml")).unwrap();
        let missing: Vec<&String> = equivalent.keys().filter(|name| !names.contains(name.as_str())).collect();
        assert!(missing.is_empty(), "these do not exist: {missing:#?}");
        let documents = ["conformance/WIRE.md", "conformance/PROTOCOL.md"];
        let protocol = documents.map(|path| fs::read_to_string(places.root.join(path)).unwrap()).concat();
        for patch in &all.patches {
            assert!(patch.wrong.ends_with('.'), "{}: a sentence", patch.name);
            for rule in patch.rule.split(", ").filter(|rule| !rule.is_empty()) {
                assert!(protocol.contains(&format!("- **{rule}**")), "{}: there is no rule {rule}", patch.name);
            }
        }
    }

    #[test]
    fn a_seed_decides_a_sample() {
        assert_eq!(die(1, "a"), die(1, "a"));
        assert_ne!(die(1, "a"), die(2, "a"));
    }
}
