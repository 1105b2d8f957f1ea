//! `WIRE.md`, `PROTOCOL.md` and the code agree: rules are numbered without gaps, what is cited exists, what
//! is stated is cited where it is implemented and where it is proved, `PROTOCOL.index` lists where, and the
//! limits are those of the code.
//!
//! A citation is a rule's number anywhere in a source file (`X-3`), or a range of them (`X-3 to X-5`). After
//! citations have moved, `RERAIL_WRITE_INDEX=1 cargo test -p rerail-conformance --test protocol` writes the
//! index anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use rerail_core::config::Config;
use rerail_core::ids::PeerId;
use rerail_core::shm::RingConfig;
use rerail_core::wire::{COMMON_BYTES, HEADER_BYTES_MAX, KEYS_MAX};

/// Set in order to write the index instead of checking it.
const WRITE_INDEX: &str = "RERAIL_WRITE_INDEX";
/// The rules, section by section.
const DOCUMENTS: [&str; 2] = ["WIRE.md", "PROTOCOL.md"];

/// How the index begins.
const INDEX_HEAD: &str = "\
Where the rules of WIRE.md and PROTOCOL.md are implemented and proved: made of their citations in the sources.
Written by: RERAIL_WRITE_INDEX=1 cargo test -p rerail-conformance --test protocol
";

/// A rule's section and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rule(char, u32);

impl Rule {
    fn of(word: &str) -> Option<Rule> {
        let (section, number) = word.split_once('-')?;
        let mut letters = section.chars();
        let letter = letters.next().filter(char::is_ascii_uppercase)?;
        let plain = number.bytes().all(|digit| digit.is_ascii_digit()) && !number.starts_with('0');
        if letters.next().is_some() || !plain {
            return None;
        }
        Some(Rule(letter, number.parse().ok()?))
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

/// What the text states.
struct Protocol {
    text: String,
    /// In the order of the text.
    stated: Vec<Rule>,
}

impl Protocol {
    fn read() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = DOCUMENTS.map(|name| fs::read_to_string(folder.join(name)).expect(name)).concat();
        let heads = text.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**"));
        let stated = heads.filter_map(|(rule, _)| Rule::of(rule)).collect();
        Protocol { text, stated }
    }

    /// The sections: `## X: ...`.
    fn sections(&self) -> BTreeSet<char> {
        let heads = self.text.lines().filter_map(|line| line.strip_prefix("## ")?.split_once(": "));
        heads.filter_map(|(letter, _)| letter.chars().next()).collect()
    }
}

/// The rules that a line names, ranges as all that they hold.
fn named(line: &str, sections: &BTreeSet<char>) -> BTreeSet<Rule> {
    let words: Vec<&str> = line.split(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c))).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let mut found = BTreeSet::new();
    for (at, word) in words.iter().enumerate() {
        let Some(rule) = Rule::of(word).filter(|rule| sections.contains(&rule.0)) else { continue };
        found.insert(rule);
        if words.get(at + 1) == Some(&"to")
            && let Some(last) = words.get(at + 2).and_then(|word| Rule::of(word)).filter(|last| last.0 == rule.0)
        {
            found.extend((rule.1..=last.1).map(|number| Rule(rule.0, number)));
        }
    }
    found
}

/// Where rules are cited.
#[derive(Default)]
struct Citations {
    /// Files that implement each rule.
    code: BTreeMap<Rule, BTreeSet<String>>,
    /// Files that prove it, with the tests; none where it is a body or helper that tests share.
    tests: BTreeMap<Rule, BTreeMap<String, BTreeSet<String>>>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the project").to_path_buf()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("a readable folder").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["target", "corpus", "artifacts", "coverage"].contains(&name.as_str()) {
                sources(&path, found);
            }
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// Whether a whole file is there for tests: bodies that fuzzing shares, oracles and models included.
fn is_for_tests(path: &str) -> bool {
    let mut parts = path.split('/').map(|part| part.trim_end_matches(".rs"));
    let any = parts.any(|part| ["tests", "harness", "oracle", "model"].contains(&part) || part.ends_with("_tests"));
    any || ["fuzz/", "conformance/proof/", "conformance/testkit/"].iter().any(|start| path.starts_with(start))
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let qualifiers = before.split_whitespace().all(|word| ["pub", "const", "pub(super)", "pub(crate)"].contains(&word));
    let end = after.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    (qualifiers && end > 0).then(|| &after[..end])
}

impl Citations {
    fn collect(sections: &BTreeSet<char>) -> Self {
        let mut citations = Citations::default();
        let mut files = Vec::new();
        for start in ["conformance", "core", "fuzz", "os-linux", "verbs-shim"] {
            sources(&root().join(start), &mut files);
        }
        for file in files {
            let path = file.strip_prefix(root()).expect("found below the root").to_string_lossy().replace('\\', "/");
            // This file contains examples of citations.
            if path != "conformance/tests/protocol.rs" {
                citations.read(&path, &fs::read_to_string(&file).expect("a source file"), sections);
            }
        }
        citations
    }

    fn read(&mut self, path: &str, text: &str, sections: &BTreeSet<char>) {
        let mut testing = is_for_tests(path);
        // The function that the line is in, with its indentation. What stands before a test belongs to it;
        // what stands in a helper belongs to the file.
        let mut inside: Option<(&str, usize)> = None;
        let (mut pending, mut is_test) = (BTreeSet::new(), false);
        for line in text.lines() {
            let rules = named(line, sections);
            if !testing {
                for rule in rules {
                    self.code.entry(rule).or_default().insert(path.to_string());
                }
                testing = line.trim_start().starts_with("#[cfg(") && line.contains("test") && !line.contains("feature");
                continue;
            }
            // A module in a file of its own: what follows here is code again.
            if inside.is_none() && !is_for_tests(path) && line.trim_end().ends_with(';') && line.contains("mod ") {
                testing = false;
                continue;
            }
            let indentation = line.len() - line.trim_start().len();
            is_test |= inside.is_none() && line.trim() == "#[test]";
            if inside.is_none()
                && let Some(name) = function(line)
            {
                inside = Some((if is_test { name } else { "" }, indentation));
                if std::mem::take(&mut is_test) {
                    std::mem::take(&mut pending).into_iter().for_each(|rule| self.proves(rule, path, name));
                }
            }
            match inside {
                Some((name, _)) => rules.into_iter().for_each(|rule| self.proves(rule, path, name)),
                None => pending.extend(rules),
            }
            if inside.is_some_and(|(_, start)| indentation == start && line.trim_end().ends_with('}')) {
                inside = None;
            }
        }
        pending.into_iter().for_each(|rule| self.proves(rule, path, ""));
    }

    fn proves(&mut self, rule: Rule, path: &str, test: &str) {
        let tests = self.tests.entry(rule).or_default().entry(path.to_string()).or_default();
        if !test.is_empty() {
            tests.insert(test.to_string());
        }
    }

    /// For each rule the files that implement it and those that prove it, with their tests.
    fn index(&self, stated: &[Rule]) -> String {
        let mut text = String::from(INDEX_HEAD);
        for rule in stated {
            text += &format!("\n{rule}\n");
            for path in self.code.get(rule).into_iter().flatten() {
                text += &format!("  code  {path}\n");
            }
            for (path, tests) in self.tests.get(rule).into_iter().flatten() {
                let tests: Vec<&str> = tests.iter().map(String::as_str).collect();
                text += format!("  test  {path} {}", tests.join(" ")).trim_end();
                text += "\n";
            }
        }
        text
    }
}

fn none(what: &str, findings: Vec<String>) {
    assert!(findings.is_empty(), "{what}:\n  {}", findings.join("\n  "));
}

#[test]
fn rules_are_numbered_without_gaps() {
    let protocol = Protocol::read();
    let mut next: BTreeMap<char, u32> = BTreeMap::new();
    for rule in &protocol.stated {
        let number = next.entry(rule.0).or_insert(1);
        assert_eq!(rule.1, *number, "after {}-{}", rule.0, *number - 1);
        *number += 1;
    }
    assert_eq!(next.into_keys().collect::<BTreeSet<_>>(), protocol.sections(), "each section has rules");
}

#[test]
fn every_rule_that_is_cited_exists() {
    let protocol = Protocol::read();
    let sections = protocol.sections();
    let stated: BTreeSet<Rule> = protocol.stated.iter().copied().collect();
    let citations = Citations::collect(&sections);
    let mut findings = Vec::new();
    for (rule, files) in &citations.code {
        findings.extend(files.iter().filter(|_| !stated.contains(rule)).map(|path| format!("{path}: {rule}")));
    }
    for (rule, files) in &citations.tests {
        findings.extend(files.keys().filter(|_| !stated.contains(rule)).map(|path| format!("{path}: {rule}")));
    }
    for document in ["conformance/WIRE.md", "conformance/PROTOCOL.md", "ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(root().join(document)).expect("a document");
        let unknown = text.lines().flat_map(|line| named(line, &sections)).filter(|rule| !stated.contains(rule));
        findings.extend(unknown.map(|rule| format!("{document}: {rule}")));
    }
    none("there are no such rules", findings);
}

#[test]
fn every_rule_is_implemented_and_proved() {
    let protocol = Protocol::read();
    let citations = Citations::collect(&protocol.sections());
    let mut findings = Vec::new();
    for rule in &protocol.stated {
        if !citations.code.contains_key(rule) {
            findings.push(format!("{rule}: no code cites it"));
        }
        if !citations.tests.contains_key(rule) {
            findings.push(format!("{rule}: no test cites it"));
        }
    }
    none("stated, but", findings);
}

#[test]
fn protocol_index_lists_all_citations() {
    let protocol = Protocol::read();
    let index = Citations::collect(&protocol.sections()).index(&protocol.stated);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("PROTOCOL.index");
    if std::env::var_os(WRITE_INDEX).is_some() {
        fs::write(path, index).expect("PROTOCOL.index can be written");
        return;
    }
    let written = fs::read_to_string(path).expect("PROTOCOL.index");
    let entries = |text: &str| text.split("\n\n").map(String::from).collect::<BTreeSet<_>>();
    let (written, wanted) = (entries(&written), entries(&index));
    let rules = written.symmetric_difference(&wanted).map(|entry| entry.lines().next().unwrap_or_default().to_string());
    let rules: BTreeSet<String> = rules.collect();
    none(
        &format!("citations have moved; {WRITE_INDEX}=1 with this test writes the index anew"),
        rules.into_iter().collect(),
    );
}

/// The code's own error for a value that is too large states the limit.
#[test]
fn the_limits_are_those_of_the_code() {
    let text = Protocol::read().text;
    let rows: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let check = |what: &str, least: u64, greatest: u64| {
        let row = format!("{what} {least} {greatest} ");
        assert!(rows.iter().any(|line| line.starts_with(&row)), "WIRE.md has no such row: {row}");
    };
    check("header bytes", COMMON_BYTES as u64, HEADER_BYTES_MAX as u64);
    check("keys of an RTS or CTS", 0, KEYS_MAX as u64);
    let good = Config::new(PeerId(0), 4);
    let configs = [
        Config { rails_max: u8::MAX, ..good },
        Config { window: u32::MAX, ..good },
        Config { unexpected_per_peer: u16::MAX, ..good },
        Config { blocks_per_peer: u16::MAX, ..good },
        Config { block_bytes: u32::MAX, ..good },
        Config { requests_per_peer: u16::MAX, ..good },
    ];
    for config in configs {
        let error = config.validate().expect_err("too large");
        let also = if error.also.is_empty() { String::new() } else { format!(" ({})", error.also) };
        check(&format!("{}{also}", error.field), error.min, error.max);
    }
    let ring = RingConfig { cells: u32::MAX, slots: u32::MAX, slot_bytes: u32::MAX };
    for ring in [ring, RingConfig { cells: 2, ..ring }, RingConfig { cells: 2, slots: 2, ..ring }] {
        let error = ring.check().expect_err("too large");
        let what = match error.field {
            "cells" => "cells of a ring (a power of two)",
            "slots" => "slots of a ring",
            _ => "slot bytes of a ring",
        };
        check(what, error.min.into(), error.max.into());
    }
}

/// What the tests above see.
#[test]
fn rule_citations_are_found_in_code_and_tests() {
    let sections = BTreeSet::from(['W', 'C']);
    let all = |line| named(line, &sections).iter().map(Rule::to_string).collect::<Vec<_>>();
    assert_eq!(all("(W-3): as by C-1 to C-3, not X-1, W-03, AW-1 or W-1_x"), ["C-1", "C-2", "C-3", "W-3"]);
    let mut citations = Citations::default();
    let text = "//! W-1\nfn f() {} // W-2\n#[cfg(test)]\nmod tests;\n// W-3\n#[cfg(test)]\nmod more {\n    /// W-4\n    \
                #[test]\n    fn four() {\n        // W-5\n    }\n    // W-6\n    const A: u8 = 1;\n    fn help() {\n        // W-7\n    }\n    #[test]\n    \
                fn six() {}\n}\n";
    citations.read("a/src/b.rs", text, &sections);
    let code: Vec<u32> = citations.code.keys().map(|rule| rule.1).collect();
    assert_eq!(code, [1, 2, 3]);
    let tests = citations.tests.values().map(|files| files["a/src/b.rs"].first().map(String::as_str));
    assert_eq!(tests.collect::<Vec<_>>(), [Some("four"), Some("four"), Some("six"), None]);
    assert!(is_for_tests("core/tests/x.rs") && is_for_tests("a/src/b/harness.rs") && !is_for_tests("a/src/latest.rs"));
}
