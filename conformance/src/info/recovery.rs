//! What a transport that starts here does about connections that fail: the settings of recovery.

use rerail_linux::settings::Settings;
use serde::Serialize;

/// Settings, in the order in which they are shown.
const NAMES: [&str; 5] = ["recovery", "recovery_timeout", "stall_min", "keepalive", "tcp_user_timeout"];

/// A setting with its value.
#[derive(Clone, Debug, Serialize)]
pub struct Knob {
    pub name: &'static str,
    pub value: String,
    pub doc: &'static str,
}

/// Those of this environment; the error message where it has an invalid setting.
pub fn look() -> Result<Vec<Knob>, String> {
    let knobs = Settings::from_env().map_err(|error| error.to_string())?.describe();
    let named = |name| knobs.iter().find(|knob| knob.name == name);
    let knob = |name| named(name).map(|knob| Knob { name: knob.name, value: knob.value.clone(), doc: knob.doc });
    Ok(NAMES.into_iter().filter_map(knob).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_recovery_is_there() {
        let told: Vec<&str> = look().unwrap().iter().map(|knob| knob.name).collect();
        assert_eq!(told, NAMES);
    }
}
