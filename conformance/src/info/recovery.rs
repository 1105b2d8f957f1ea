//! What a transport that starts here does about connections that fail: the settings of recovery.

use rerail_linux::settings::Settings;
use serde::Serialize;

/// Settings, in the order in which they are shown.
const NAMES: [&str; 5] = ["recovery", "recovery_timeout", "stall_min", "keepalive", "tcp_user_timeout"];

/// A setting with its value.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    pub name: &'static str,
    pub value: String,
    pub doc: &'static str,
}

/// Those of this environment; the error message where it has an invalid setting.
pub fn detect() -> Result<Vec<Setting>, String> {
    let described = Settings::from_env().map_err(|error| error.to_string())?.describe();
    let named = |name| described.iter().find(|setting| setting.name == name);
    let setting = |name| {
        named(name).map(|setting| Setting { name: setting.name, value: setting.value.clone(), doc: setting.doc })
    };
    Ok(NAMES.into_iter().filter_map(setting).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_recovery_is_there() {
        let listed: Vec<&str> = detect().unwrap().iter().map(|setting| setting.name).collect();
        assert_eq!(listed, NAMES);
    }
}
