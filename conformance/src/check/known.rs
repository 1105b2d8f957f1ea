//! Known failures of a device: cases with their reasons, as a file (`conformance/devices`).
//!
//! A line is `case: reason`; `#` begins a comment, a line that begins with a blank continues the one before.

use std::collections::BTreeMap;
use std::path::Path;

/// Reasons by case.
#[derive(Clone, Debug, Default)]
pub struct Known {
    reasons: BTreeMap<String, String>,
}

impl Known {
    /// Reads such a file. The error names the line that is wrong.
    pub fn read(path: &Path) -> Result<Known, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Known::parse(&text).map_err(|(line, why)| format!("{}:{line}: {why}", path.display()))
    }

    fn parse(text: &str) -> Result<Known, (usize, String)> {
        let mut known = Known::default();
        let mut last = None;
        for (number, line) in text.lines().enumerate() {
            let at = |why: String| (number + 1, why);
            let bare = line.trim();
            if bare.is_empty() || bare.starts_with('#') {
                continue;
            }
            if line.starts_with(char::is_whitespace) {
                let reason = last.as_ref().and_then(|case| known.reasons.get_mut(case));
                let reason = reason.ok_or_else(|| at("continues nothing".into()))?;
                *reason += " ";
                *reason += bare;
                continue;
            }
            let (case, reason) = bare.split_once(": ").ok_or_else(|| at("not of the form `case: reason`".into()))?;
            if !rerail_contract::cases().any(|known| known.name == case) {
                return Err(at(format!("there is no case {case}")));
            }
            if known.reasons.insert(case.to_owned(), reason.trim().to_owned()).is_some() {
                return Err(at(format!("{case} is listed twice")));
            }
            last = Some(case.to_owned());
        }
        Ok(known)
    }

    /// One case.
    #[cfg(test)]
    pub fn of(case: &str, reason: &str) -> Known {
        Known { reasons: [(case.to_owned(), reason.to_owned())].into() }
    }

    /// Why this case fails, if that is known.
    pub fn reason(&self, case: &str) -> Option<&str> {
        self.reasons.get(case).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_go_over_several_lines_and_cases_must_exist() {
        let known = Known::parse("# a device\nstates/rc-attributes: it\n  can't: really\n\n").unwrap();
        assert_eq!(known.reason("states/rc-attributes"), Some("it can't: really"));
        assert_eq!(known.reason("states/ud-attributes"), None);
        for (text, line, part) in [
            ("\nstates/nonsense: why", 2, "no case"),
            ("states/rc-attributes", 1, "form"),
            ("  continued", 1, "nothing"),
            ("states/rc-attributes: a\nstates/rc-attributes: b", 2, "twice"),
        ] {
            let (at, why) = Known::parse(text).unwrap_err();
            assert!(at == line && why.contains(part), "{text}: {at} {why}");
        }
    }

    /// The files of this project can be read.
    #[test]
    fn known_failure_files_are_readable() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("devices");
        for file in std::fs::read_dir(folder).unwrap() {
            Known::read(&file.unwrap().path()).unwrap();
        }
    }
}
