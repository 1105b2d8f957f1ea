//! Mutants that nothing can find, because they change nothing that is promised: `equivalent.toml`, each with
//! its reason.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EquivalentFile {
    #[serde(default)]
    equivalent: Vec<Equivalent>,
}

/// Mutants that are equivalent for one reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Equivalent {
    names: Vec<String>,
    reason: String,
}

/// Names, and the reason of each.
pub fn read(path: &Path) -> Result<BTreeMap<String, String>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let file: EquivalentFile = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut found = BTreeMap::new();
    for Equivalent { names, reason } in file.equivalent {
        if reason.trim().is_empty() {
            return Err(format!("{}: {names:?} have no reason", path.display()));
        }
        for name in names {
            if found.insert(name.clone(), reason.clone()).is_some() {
                return Err(format!("{}: {name} is listed twice", path.display()));
            }
        }
    }
    Ok(found)
}
