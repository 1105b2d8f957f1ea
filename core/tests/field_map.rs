//! The code of the wire and its rules agree: every field that an error may name stands in the field map, and every rule
//! that is cited exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Folders and files whose citations are checked.
const CITING: &[&str] = &["src/wire"];
/// Letters of the sections.
const SECTIONS: &str = "WSACXMRHG";

fn protocol() -> String {
    fs::read_to_string(Path::new(ROOT).join("../conformance/PROTOCOL.md")).expect("PROTOCOL.md")
}

/// The rules that `text` mentions, such as `W-7`.
fn rules(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let is_rule = |word: &&str| {
        let Some((section, number)) = word.split_once('-') else { return false };
        section.len() == 1 && SECTIONS.contains(section) && number.parse::<u32>().is_ok()
    };
    words.filter(is_rule).map(String::from).collect()
}

/// The rules that the protocol states: `- **W-7** ...`.
fn stated() -> Vec<String> {
    let protocol = protocol();
    let heads = protocol.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**"));
    heads.map(|(rule, _)| String::from(rule)).collect()
}

fn sources(folder: PathBuf) -> Vec<PathBuf> {
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    paths.flat_map(|path| if path.is_dir() { sources(path) } else { vec![path] }).collect()
}

#[test]
fn every_field_of_an_error_is_in_the_field_map() {
    let protocol = protocol();
    for field in rerail_core::wire::harness::FIELDS {
        assert!(protocol.contains(&format!("`{field}`")), "{field} is not in PROTOCOL.md");
    }
}

#[test]
fn rules_are_numbered_without_gaps() {
    let stated = stated();
    for section in SECTIONS.chars() {
        let numbers: Vec<_> = stated.iter().filter(|rule| rule.starts_with(section)).collect();
        assert!(!numbers.is_empty(), "section {section} is empty");
        for (at, rule) in numbers.iter().enumerate() {
            assert_eq!(**rule, format!("{section}-{}", at + 1));
        }
    }
}

#[test]
fn every_rule_that_is_cited_exists() {
    let stated: BTreeSet<String> = stated().into_iter().collect();
    let unknown: Vec<_> = rules(&protocol()).difference(&stated).cloned().collect();
    assert!(unknown.is_empty(), "PROTOCOL.md refers to {unknown:?}");
    let mut cited = 0;
    for file in CITING.iter().flat_map(|folder| sources(Path::new(ROOT).join(folder))) {
        let rules = rules(&fs::read_to_string(&file).expect("a source file"));
        let unknown: Vec<_> = rules.difference(&stated).collect();
        assert!(unknown.is_empty(), "{} cites {unknown:?}", file.display());
        cited += rules.len();
    }
    assert!(cited > 0);
}
