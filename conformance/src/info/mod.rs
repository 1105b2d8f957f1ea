//! `rerail info`: what this machine offers a transport, and the obstacles to the rest.

mod launcher;
pub mod machine;
mod shm;
mod tcp;
mod verbs;

use rerail_linux::settings::Settings;
use serde::Serialize;

use crate::cli::OutputArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Align, Table, bad, bold, bytes, dim, good, json, rate, write_stdout};

/// Why something can't be used, and what would help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// The obstacle.
    pub why: String,
    /// What removes it.
    pub remedy: String,
}

impl Obstacle {
    fn new(why: impl ToString, remedy: impl ToString) -> Obstacle {
        Obstacle { why: why.to_string(), remedy: remedy.to_string() }
    }
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
struct Info {
    version: &'static str,
    machine: machine::Machine,
    launcher: launcher::Launchers,
    shm: shm::Shm,
    tcp: Vec<tcp::Port>,
    verbs: verbs::Verbs,
    /// Or the error in the environment's settings.
    recovery: Result<Vec<Setting>, String>,
}

/// Prints it.
pub fn run(args: OutputArgs) -> Result<Exit, Failure> {
    let info = Info {
        version: env!("CARGO_PKG_VERSION"),
        machine: machine::detect(),
        launcher: launcher::detect(),
        shm: shm::detect(),
        tcp: tcp::detect().map_err(|error| Failure::usage(format!("network interfaces can't be listed: {error}")))?,
        verbs: verbs::detect(),
        recovery: recovery(),
    };
    if args.json {
        json(&info)?
    } else {
        write_stdout(&info.render())?
    }
    // The machine is as it is whatever the settings; but nothing starts with wrong ones.
    info.recovery.map(|_| Exit::Ok).map_err(Failure::usage)
}

impl Info {
    fn render(&self) -> String {
        [self.machine(), self.launcher(), self.shm(), self.tcp(), self.verbs(), self.recovery()].join("\n\n")
    }

    fn recovery(&self) -> String {
        let title = bold("Recovery from failures");
        match &self.recovery {
            Ok(described) => {
                // Its meaning; `rerail config` has when to change it.
                let meaning = |setting: &Setting| setting.doc.split(". ").next().unwrap_or_default();
                let line = |it: &Setting| format!("  {} {}\n    {}", it.name, it.value, dim(meaning(it)));
                let lines: Vec<String> = described.iter().map(line).collect();
                format!("{title}\n{}\n  all settings: rerail config", lines.join("\n"))
            }
            Err(_) => format!("{title}\n  {}", bad("not known: settings in the environment are wrong")),
        }
    }

    fn machine(&self) -> String {
        let machine = &self.machine;
        let limit = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), bytes);
        let mut lines = vec![
            bold("Machine"),
            format!("{}, Linux {}, rerail {}", machine.host, machine.kernel, self.version),
            format!("{} processors usable of {}", machine.cpus_usable, machine.cpus),
            format!("memory: {} of {} available", bytes(machine.memory_available_bytes), bytes(machine.memory_bytes)),
            format!("locked memory: {} (raisable to {})", limit(machine.locked_bytes), limit(machine.locked_bytes_max)),
            format!("open files: {} (raisable to {})", count(machine.files), count(machine.files_max)),
        ];
        lines.extend(machine.notes.iter().flat_map(obstacle));
        lines.join("\n")
    }

    fn launcher(&self) -> String {
        let launcher = &self.launcher;
        let library = launcher.pmix.as_ref().map_or_else(|| bad("absent"), |version| version.clone());
        let mut lines = vec![
            bold("Launcher"),
            format!("offered by this environment: {}", launcher.offered),
            format!("protocols: PMI-1, PMI-2, PMIx by its library ({library})"),
        ];
        lines.extend(launcher.obstacle.iter().flat_map(obstacle));
        lines.join("\n")
    }

    fn shm(&self) -> String {
        let mut lines = vec![format!("{} {}", bold("Shared memory"), state(self.shm.usable))];
        let parts = || self.shm.parts.iter().chain([&self.shm.single_copy]);
        lines.extend(parts().map(|part| format!("  {}: {}", part.name, state(part.obstacle.is_none()))));
        let (first, most) = (bytes(self.shm.ring_bytes_first), bytes(self.shm.ring_bytes_max));
        lines.push(format!("  memory of rings: {first} for each peer and direction, growing with use to {most}"));
        lines.extend(parts().filter_map(|part| part.obstacle.as_ref()).flat_map(obstacle));
        lines.join("\n")
    }

    fn tcp(&self) -> String {
        let mut table = Table::new(&[
            ("interface", Align::Left),
            ("address", Align::Left),
            ("state", Align::Left),
            ("MTU", Align::Right),
            ("MB/s", Align::Right),
            ("bus > card", Align::Left),
            ("NUMA", Align::Right),
            ("use", Align::Left),
        ]);
        for port in &self.tcp {
            let verdict = match (&port.obstacle, port.loopback) {
                (None, false) => good("usable"),
                (None, true) => dim("where named"),
                (Some(_), _) => bad("no"),
            };
            table.row([
                port.interface.clone(),
                port.address.clone().unwrap_or("-".to_owned()),
                port.state.clone(),
                port.mtu_bytes.map_or("-".to_owned(), |mtu| mtu.to_string()),
                port.bytes_per_second.map_or("-".to_owned(), |speed| rate(speed as f64)),
                port.device.way.clone().unwrap_or("-".to_owned()),
                port.device.numa_distance.map_or("-".to_owned(), |distance| distance.to_string()),
                verdict,
            ]);
        }
        let mut lines = vec![bold("TCP"), table.render()];
        for port in &self.tcp {
            lines.extend(port.obstacle.iter().flat_map(obstacle));
        }
        lines.join("\n")
    }

    fn verbs(&self) -> String {
        let mut lines = vec![format!("{} {}", bold("Verbs"), state(!self.verbs.devices.is_empty()))];
        lines.extend(self.verbs.obstacle.iter().flat_map(obstacle));
        for device in &self.verbs.devices {
            let xrc = if device.xrc { "XRC" } else { "no XRC" };
            let mut offers = xrc.to_owned();
            if device.on_demand {
                offers.push_str(", memory on demand");
            }
            if let Some((count, us)) = device.moderation {
                offers.push_str(&format!(", moderation up to {count} completions and {us} us"));
            }
            lines.push(format!("  {} ({}, guid {}, {offers})", device.name, device.firmware, device.guid));
            lines.extend(device.obstacle.iter().flat_map(obstacle));
            for port in &device.ports {
                lines.push(format!(
                    "    port {}: {}, {}, {}",
                    port.number,
                    port.link_layer,
                    port.state,
                    port.mbit_per_second.map_or("speed unknown".to_owned(), |speed| format!("{speed} Mbit/s")),
                ));
                let used = device.used.filter(|(number, _)| *number == port.number).map(|(_, index)| index);
                lines.extend(port.gids.iter().map(|(index, gid)| {
                    let mark = if used.map(u32::from) == Some(*index) { "  <- used" } else { "" };
                    format!("      gid {index}: {gid}{mark}")
                }));
            }
        }
        lines.join("\n")
    }
}

fn state(usable: bool) -> String {
    if usable { good("usable") } else { bad("not usable") }
}

fn count(limit: Option<u64>) -> String {
    limit.map_or("unlimited".to_owned(), |limit| limit.to_string())
}

fn obstacle(obstacle: &Obstacle) -> [String; 2] {
    [format!("  {}", obstacle.why), dim(&format!("    remedy: {}", obstacle.remedy))]
}

/// The settings of recovery, in the order in which they are shown.
const RECOVERY: [&str; 5] = ["recovery", "recovery_timeout", "stall_min", "keepalive", "tcp_user_timeout"];

/// A setting with its value.
#[derive(Clone, Debug, Serialize)]
struct Setting {
    name: &'static str,
    value: String,
    doc: &'static str,
}

/// The settings of recovery in this environment; the error message where it has an invalid setting.
fn recovery() -> Result<Vec<Setting>, String> {
    let described = Settings::from_env().map_err(|error| error.to_string())?.describe();
    let named = |name| described.iter().find(|setting| setting.name == name);
    let setting = |name| {
        named(name).map(|setting| Setting { name: setting.name, value: setting.value.clone(), doc: setting.doc })
    };
    Ok(RECOVERY.into_iter().filter_map(setting).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_recovery_is_there() {
        let listed: Vec<&str> = recovery().unwrap().iter().map(|setting| setting.name).collect();
        assert_eq!(listed, RECOVERY);
    }
}
