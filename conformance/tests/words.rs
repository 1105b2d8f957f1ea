//! Prose as a test: which words documents, comments and strings may not use; how long documents may be, how
//! wide their lines, whether their links lead somewhere, and that a rule of the protocol is at most three
//! sentences.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "words/source.rs"]
mod source;

/// Words of all documents together, as `wc -w` counts them.
const WORDS_MAX: usize = 21_500;

/// Columns of a line of prose. Tables and blocks of code may be wider.
const COLUMNS_MAX: usize = 110;

/// Lines of a document.
const LINES_MAX: usize = 700;

/// The documents that contain rules.
const RULES: [&str; 2] = ["conformance/WIRE.md", "conformance/PROTOCOL.md"];

/// Sentences of a rule, field maps and tables not counted.
const SENTENCES_MAX: usize = 3;

/// Words that are not the field's, with what to write instead. Forms are listed one by one: only whole words
/// count.
const NOT_OURS: &[(&[&str], &str)] = &[
    (&["farewell", "farewells", "goodbye", "goodbyes"], "shutdown, BYE"),
    (&["belief", "beliefs", "believe", "believed", "believes", "thinks"], "estimate"),
    (&["soonest", "nearest"], "lowest-latency"),
    (&["recut", "recuts"], "rebalance"),
    (&["thief", "thieves", "victim", "victims"], "work stealing"),
    (&["parcel", "parcels"], "aggregate"),
    (&["tell", "told", "tells", "hear", "hears", "heard", "untold", "unsaid"], "reported, received"),
    (&["patience"], "timeout"),
    (&["stranded"], "no usable path"),
    (&["sever", "severs", "severed", "severing"], "abort"),
    (&["chores"], "slow-path work"),
    (&["starved"], "waiting for a slot"),
    (&["conceal", "concealed"], "deregister"),
    (&["whereabouts"], "peer address"),
    (&["knocking", "stirred"], "accept pending, dirty"),
    (&["doubled"], "duplicated"),
    (&["world", "worlds"], "simulation"),
    (&["whoever", "whom", "somebody", "nobody", "anybody", "everybody"], "a named subject"),
    (&["says", "said", "speaks", "knows"], "returns, contains, sends, has"),
    (&["asks", "wants", "owes"], "requests, needs, has to send"),
    (&["knob", "knobs"], "setting"),
    (&["whim", "whims"], "race"),
    (&["settle", "settles", "settled", "settling", "conclude", "concludes", "concluded"], "complete"),
    (&["doubt", "doubts", "doubtful"], "unconfirmed"),
    (&["introduce", "introduces", "introduced"], "address update"),
    (&["terms"], "parameters"),
    (&["asked"], "requested, queried"),
    (&["pace", "paces"], "ns per MiB, rate"),
];

#[derive(Clone)]
struct Document {
    /// Path from the project's root, with `/`.
    path: String,
    text: String,
}

impl Document {
    /// Lines with their numbers, without blocks of code.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut in_block = false;
        self.text.lines().enumerate().filter_map(move |(i, line)| {
            let is_fence = line.trim_start().starts_with("```");
            in_block ^= is_fence;
            (!is_fence && !in_block).then_some((i + 1, line))
        })
    }

    /// The anchors of its headings, as GitHub makes them.
    fn anchors(&self) -> impl Iterator<Item = String> {
        let heads = self.lines().filter(|(_, line)| line.starts_with('#'));
        heads.map(|(_, line)| {
            let title = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            title.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
        })
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the project").to_path_buf()
}

fn documents() -> Vec<Document> {
    files_of("md", "README.md")
}

/// All files of the project with this extension; `one` is among them.
fn files_of(extension: &str, one: &str) -> Vec<Document> {
    let mut found = Vec::new();
    collect(&root(), extension, &mut found);
    let is_there = found.iter().any(|document| document.path == one);
    assert!(is_there, "the project is not where this test looks for it: no {one}");
    found
}

fn collect(folder: &Path, extension: &str, found: &mut Vec<Document>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && !["target", "corpus", "artifacts", "coverage"].contains(&name.as_str()) {
                collect(&path, extension, found);
            }
        } else if path.extension().is_some_and(|it| it == extension) {
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let path = path.strip_prefix(root()).expect("found below the root").to_string_lossy().replace('\\', "/");
            found.push(Document { path, text });
        }
    }
}

/// The line with what stands between backticks left out, which is code and not prose.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// What to write instead of the words of a line that are not the field's.
fn not_ours(line: &str) -> Vec<(String, &'static str)> {
    let line = without_code(line).to_lowercase();
    let words = line.split(|c: char| !c.is_alphanumeric());
    words.filter_map(|word| Some((word.to_string(), instead_of(word)?))).collect()
}

/// What to write instead of a word that is not the field's.
fn instead_of(word: &str) -> Option<&'static str> {
    NOT_OURS.iter().find(|(forms, _)| forms.contains(&word)).map(|(_, instead)| *instead)
}

/// The words of a source file's comments and strings that are not the field's, with their lines.
fn not_ours_in(file: &Document, prose: impl Fn(&str) -> Vec<(usize, String)>) -> Vec<String> {
    let mut findings = Vec::new();
    for (i, line) in prose(&file.text) {
        for word in source::words(&line) {
            if let Some(instead) = instead_of(&word) {
                findings.push(format!("{}:{i}: \"{word}\"; write: {instead}", file.path));
            }
        }
    }
    findings
}

/// Sentences of a text: what ends them, and then a space or nothing.
fn sentences(text: &str) -> usize {
    let text = without_code(text);
    let ends = text.split_whitespace().filter(|word| word.trim_end_matches(')').ends_with(['.', '?', '!']));
    ends.count()
}

/// The targets of a line's links.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// Fails with one line per finding.
fn none(rule: &str, findings: Vec<String>) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}

#[test]
fn documents_are_short() {
    let words = |document: &Document| document.text.split_whitespace().count();
    let documents = documents();
    let sum: usize = documents.iter().map(words).sum();
    let each: Vec<String> = documents.iter().map(|it| format!("{:6} {}", words(it), it.path)).collect();
    assert!(sum <= WORDS_MAX, "{sum} words, where {WORDS_MAX} must do:\n{}", each.join("\n"));
    let lines = documents.iter().map(|document| (&document.path, document.text.lines().count()));
    let long = lines.filter(|&(_, lines)| lines > LINES_MAX).map(|(path, lines)| format!("{path}: {lines} lines"));
    none(&format!("a document has at most {LINES_MAX} lines"), long.collect());
}

#[test]
fn lines_are_narrow() {
    let mut findings = Vec::new();
    for document in documents() {
        for (i, line) in document.lines().filter(|(_, line)| !line.trim_start().starts_with('|')) {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX {
                findings.push(format!("{}:{i}: {columns} columns", document.path));
            }
        }
    }
    none(&format!("prose has at most {COLUMNS_MAX} columns"), findings);
}

#[test]
fn documents_use_the_words_of_the_field() {
    let mut findings = Vec::new();
    for document in documents().iter() {
        for (i, line) in document.lines() {
            for (word, instead) in not_ours(line) {
                findings.push(format!("{}:{i}: \"{word}\"; write: {instead}", document.path));
            }
        }
    }
    none("readers search for the field's words", findings);
}

#[test]
fn sources_use_the_words_of_the_field() {
    let rust = files_of("rs", "conformance/tests/words.rs");
    let shell = files_of("sh", "conformance/scripts/short.sh");
    let mut findings: Vec<String> = rust.iter().flat_map(|file| not_ours_in(file, source::of_rust)).collect();
    findings.extend(shell.iter().flat_map(|file| not_ours_in(file, source::of_shell)));
    let toml = files_of("toml", "Cargo.toml");
    findings.extend(toml.iter().flat_map(|file| not_ours_in(file, source::of_shell)));
    let c = [files_of("c", "os-linux/capi/tests/names.c"), files_of("h", "os-linux/capi/include/rerail.h")].concat();
    findings.extend(c.iter().flat_map(|file| not_ours_in(file, source::of_rust)));
    let text = files_of("txt", "conformance/devices/rxe.txt");
    let lines = |text: &str| (1..).zip(text.lines().map(String::from)).collect();
    let is_prose = |file: &&Document| !["fixtures", "proptest-regressions"].iter().any(|it| file.path.contains(it));
    findings.extend(text.iter().filter(is_prose).flat_map(|file| not_ours_in(file, lines)));
    none("readers search for the field's words", findings);
}

#[test]
fn links_lead_somewhere() {
    let documents = documents();
    let mut findings = Vec::new();
    for document in &documents {
        let folder = document.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (i, line) in document.lines() {
            for target in links(line).filter(|target| !target.contains("://")) {
                let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = match (file, folder) {
                    ("", _) => document.path.clone(),
                    (file, "") => file.to_string(),
                    (file, folder) => format!("{folder}/{file}"),
                };
                let is_there = root().join(&path).exists();
                let linked = documents.iter().find(|document| document.path == path);
                let has_anchor = linked.is_none_or(|linked| linked.anchors().any(|it| it == anchor));
                if !is_there || !anchor.is_empty() && !has_anchor {
                    findings.push(format!("{}:{i}: {target}", document.path));
                }
            }
        }
    }
    none("links to nothing", findings);
}

#[test]
fn rules_are_at_most_three_sentences() {
    let documents = documents();
    let with_rules = documents.iter().filter(|document| RULES.contains(&document.path.as_str()));
    let mut rules: Vec<(&str, String)> = Vec::new();
    let mut is_rule = false;
    for (_, line) in with_rules.flat_map(Document::lines) {
        if let Some((rule, text)) = line.strip_prefix("- **").and_then(|rest| rest.split_once("**")) {
            rules.push((rule, text.to_string()));
            is_rule = true;
        } else if line.starts_with('#') {
            is_rule = false;
        } else if let Some((_, text)) = rules.last_mut().filter(|_| is_rule && line.starts_with("  ")) {
            *text += line;
        }
    }
    assert!(rules.len() > 150, "{} rules found", rules.len());
    let long = rules.iter().filter(|(_, text)| sentences(text) > SENTENCES_MAX);
    none("rules of more than three sentences", long.map(|(rule, _)| rule.to_string()).collect());
}

/// What is prose in a source, and what is code. The samples are no sources themselves.
#[test]
fn comments_and_strings_are_prose() {
    let found = |prose: Vec<(usize, String)>| {
        let mut found = Vec::new();
        for (i, line) in prose {
            found.extend(source::words(&line).filter(|word| instead_of(word).is_some()).map(|word| (i, word)));
        }
        found
    };
    let expected = |words: &[(usize, &str)]| words.iter().map(|&(i, word)| (i, word.to_string())).collect::<Vec<_>>();
    let rust = [(1, "told"), (1, "whom"), (2, "world"), (3, "worlds"), (4, "said"), (5, "nobody")];
    let rust = [&rust[..], &[(7, "knob"), (12, "world")]].concat();
    assert_eq!(found(source::of_rust(include_str!("words/sample.rust"))), expected(&rust));
    let shell = [(2, "told"), (3, "knob"), (3, "whom"), (6, "whim"), (11, "victim"), (11, "world")];
    assert_eq!(found(source::of_shell(include_str!("words/sample.shell"))), expected(&shell));
}

/// The helpers above decide what the rules see.
#[test]
fn rule_helpers_detect_sample_violations() {
    let found = |line| not_ours(line).into_iter().map(|(word, _)| word).collect::<Vec<_>>();
    let line = ["Told", "of", "worlds,", "`duplicated`", "and", "re-told"].join(" ");
    assert_eq!(found(&line), ["told", "worlds", "told"]);
    assert!(found("the underworld of `worlds.toml`").is_empty());
    assert_eq!(sentences("One (4.1). Two: `a. b`; three (see 5.2.) Four"), 2);
    assert_eq!(links("[a](b.md#c) and [d](e)").collect::<Vec<_>>(), ["b.md#c", "e"]);
    let text = "# A: b\nx\n```\n# no\n```\n## C's `d`\n".to_string();
    let document = Document { path: String::new(), text };
    assert_eq!(document.anchors().collect::<Vec<_>>(), ["a-b", "cs-d"]);
    assert_eq!(document.lines().map(|(i, _)| i).collect::<Vec<_>>(), [1, 2, 6]);
}
