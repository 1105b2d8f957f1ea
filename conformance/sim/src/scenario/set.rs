//! Single values of a scenario, set by name: `workload.name=ping-pong`, `config.bulk_max=64`,
//! `limits.safety=5ms`.

use toml::{Table, Value};

use super::{Scenario, ScenarioError};

impl Scenario {
    /// The same scenario with one value set: `key` is a path through the scenario file's tables, the parts
    /// joined by dots, `value` as it would stand in the file; what is no TOML value is taken as a string.
    /// Whether all values go together is checked by [`check`](Self::check), when all are set.
    ///
    /// # Errors
    /// [`ScenarioError`] for an unknown key, a value of another type, or where a part of the path names no
    /// table.
    pub fn set(&self, key: &str, value: &str) -> Result<Self, ScenarioError> {
        let failed = |why: String| ScenarioError { file: format!("{key}={value}"), why };
        let mut whole: Table = self.to_toml()?.parse().map_err(|error: toml::de::Error| failed(error.to_string()))?;
        let mut parts: Vec<&str> = key.split('.').collect();
        let last = parts.pop().unwrap_or_default();
        let mut table = &mut whole;
        for part in parts {
            let entry = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
            table = entry.as_table_mut().ok_or_else(|| failed(format!("{part} is no table")))?;
        }
        table.insert(last.to_owned(), read(value));
        whole.try_into().map_err(|error: toml::de::Error| failed(error.message().to_owned()))
    }
}

/// A value as it would stand in a file, or a string without its quotes.
fn read(text: &str) -> Value {
    let file: Result<Table, _> = format!("value = {text}").parse();
    let value = file.ok().and_then(|mut table| table.remove("value").filter(|_| table.is_empty()));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_set_by_their_path() {
        let cluster = Scenario::default();
        let set = cluster
            .set("workload.name", "bandwidth")
            .and_then(|cluster| cluster.set("workload.parameters.both", "true"));
        let set = set.and_then(|cluster| cluster.set("workload.parameters.bytes", "[8, 4096]")).unwrap();
        assert_eq!(set.workload.name, "bandwidth");
        assert_eq!(set.workload.parameters["both"].as_bool(), Some(true));
        assert_eq!(set.workload.parameters["bytes"].as_array().map(Vec::len), Some(2));
        assert_eq!(set.hosts, cluster.hosts);
        assert_eq!(cluster.set("config.bulk_max", "7").unwrap().config.bulk_max, Some(7));
        assert_eq!(cluster.set("limits.safety", "5ms").unwrap().limits.safety, super::super::Span::from_millis(5));
    }

    #[test]
    fn invalid_scenario_setting_reports_the_reason() {
        let cluster = Scenario::default();
        let why = |key: &str, value: &str| cluster.set(key, value).unwrap_err().to_string();
        assert!(why("hosts.many", "3").contains("hosts is no table"));
        assert!(why("config.bulk", "3").contains("bulk_max"));
        assert!(why("hosts", "none").contains("hosts=none"));
        // One value, not a piece of a file.
        assert!(why("hosts", "2\nranks_per_host = 3").contains("invalid type"));
    }
}
