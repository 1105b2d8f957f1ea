//! The papers' figures as a user runs them: the page, the claims, and the same as JSON.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn report(out: &Path, more: &[&str]) -> Output {
    let folder = out.to_str().expect("a path in UTF-8");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rerail"));
    command.args(["report", "--out", folder]).args(more).output().expect("the tool starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Figures 5 to 14 and 17 to 20 of multirail-2004 with few sizes: every claim holds, and the page has what
/// the JSON has.
#[test]
fn multirail_2004_claims_hold_and_are_on_the_page() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("made/where/absent");
    let output = report(&out, &["multirail", "--quick", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)));
    let page = std::fs::read_to_string(out.join("index.html")).expect("the page is there");
    let set = &json["sets"][0];
    assert_eq!((set["name"].as_str(), json["sets"].as_array().map(Vec::len)), (Some("multirail"), Some(1)));
    let figures = set["figures"].as_array().expect("figures");
    let sources: Vec<&str> = figures.iter().filter_map(|figure| figure["source"].as_str()).collect();
    let wanted =
        [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 17, 18, 19, 20].map(|number| format!("multirail-2004, figure {number}"));
    assert_eq!(sources, wanted);
    assert_eq!(page.matches("<svg ").count(), figures.len());

    let mut claims = 0;
    for figure in figures {
        let source = figure["source"].as_str().expect("a source");
        assert!(page.contains(&format!("<h3>{source}: ")), "{source} is not on the page");
        for series in figure["series"].as_array().expect("curves") {
            assert!(series["points"].as_array().is_some_and(|points| points.len() >= 3), "{source}: {series}");
        }
        for claim in figure["claims"].as_array().expect("claims") {
            assert_eq!(claim["holds"], true, "{source}: {claim}");
            assert!(page.contains(&format!("<td>{}</td>", claim["name"].as_str().expect("a name"))), "{claim}");
            claims += 1;
        }
    }
    assert_eq!((json["claims"].as_u64(), json["failed"].as_u64()), (Some(claims), Some(0)));
    assert!(claims >= 8 && page.contains(&format!("All {claims} claims hold.")));
    assert_eq!(output.status.code(), Some(0));

    // The same in the terminal, from fewer threads: the same page to the byte.
    let again = report(&out, &["multirail", "--quick", "--threads", "1"]);
    let printed = text(&again.stdout);
    assert_eq!(again.status.code(), Some(0), "{printed}");
    assert!(printed.contains(&format!("all {claims} claims hold")) && !printed.contains("FAILS"), "{printed}");
    assert_eq!(std::fs::read_to_string(out.join("index.html")).expect("the page is there"), page);
}

/// Figures 3 to 7 of shiba-2005, and the reads of its section 3.
#[test]
fn shiba_2005_claims_hold() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = report(folder.path(), &["shiba", "--quick", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figures = json["sets"][0]["figures"].as_array().expect("figures");
    let sources: Vec<&str> = figures.iter().filter_map(|figure| figure["source"].as_str()).collect();
    let wanted = ["figure 3", "figure 4", "figure 5", "figure 6", "figure 7", "section 3"];
    assert_eq!(sources, wanted.map(|wanted| format!("shiba-2005, {wanted}")));
    assert_eq!((json["failed"].as_u64(), output.status.code()), (Some(0), Some(0)), "{json}");
    assert!(json["claims"].as_u64().is_some_and(|claims| claims >= 20));
}

#[test]
fn invalid_argument_error_lists_the_valid_values() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let unknown = report(folder.path(), &["monorail"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("multirail"), "the names are listed: {}", text(&unknown.stderr));
}
