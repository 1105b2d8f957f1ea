//! InfiniBand and RoCE devices, or why there are none.

use rerail_linux::rail::verbs::VerbsOptions;
use rerail_linux::settings::Settings;
use rerail_verbs::DeviceError;
use serde::Serialize;

use super::Obstacle;
use crate::output::bytes;

/// What verbs offers here.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verbs {
    /// The devices.
    pub devices: Vec<Device>,
    /// Why there are none.
    pub obstacle: Option<Obstacle>,
}

/// A device.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its identifier.
    pub guid: String,
    /// Its firmware's version.
    pub firmware: String,
    /// Whether it can do XRC: rails connect by it where `verbs_xrc` is on or auto.
    pub xrc: bool,
    /// Whether RC can read and write remote memory that is registered on demand (`verbs_on_demand`).
    pub on_demand: bool,
    /// The most that it puts completion events off: completions, microseconds (`verbs_moderation`).
    pub moderation: Option<(u16, u16)>,
    /// Its ports.
    pub ports: Vec<Port>,
    /// The port and the index of the GID that would be used.
    pub used: Option<(u8, u8)>,
    /// Why there are no further details.
    pub obstacle: Option<Obstacle>,
}

/// A port of a device.
#[derive(Clone, Debug, Serialize)]
pub struct Port {
    /// Its number.
    pub number: u8,
    /// InfiniBand or Ethernet.
    pub link_layer: String,
    /// Its state.
    pub state: String,
    /// Its speed.
    pub mbit_per_second: Option<u32>,
    /// Its addresses.
    pub gids: Vec<(u32, String)>,
}

/// Queries the library.
pub fn detect() -> Verbs {
    let none = |obstacle| Verbs { devices: Vec::new(), obstacle: Some(obstacle) };
    let library = match rerail_verbs::Verbs::open() {
        Ok(library) => library,
        Err(error) => {
            let packages = rerail_verbs::OpenError::PACKAGES.join(" ");
            return none(Obstacle::new(error, format!("apt install {packages} (or the distribution's rdma-core)")));
        }
    };
    let devices = match library.devices() {
        Ok(devices) => devices,
        Err(error) => return none(Obstacle::new(error, "load the driver's modules; check rights on /dev/infiniband")),
    };
    let known = known_to_the_kernel();
    if devices.is_empty() && !known.is_empty() {
        return none(Obstacle::new(
            format!("the kernel has {}, but libibverbs has no driver for it", known.join(", ")),
            "apt install ibverbs-providers (or the distribution's rdma-core); modprobe ib_uverbs",
        ));
    }
    if devices.is_empty() {
        return none(Obstacle::new(
            "libibverbs is there, but the kernel has no RDMA device",
            "load the HCA's driver; without an HCA: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE",
        ));
    }
    Verbs { devices: devices.iter().map(|device| describe_device(&device)).collect(), obstacle: None }
}

/// A GID by its index, with its kind.
fn describe(entry: &rerail_verbs::GidEntry) -> (u32, String) {
    let kind = entry.kind.map(|kind| format!(", {kind}")).unwrap_or_default();
    (entry.index, format!("{}{kind}", entry.gid))
}

fn describe_device(device: &rerail_verbs::Device<'_>) -> Device {
    let mut seen = Device {
        name: device.name(),
        guid: device.guid().to_string(),
        firmware: "firmware unknown".to_owned(),
        xrc: false,
        on_demand: false,
        moderation: None,
        ports: Vec::new(),
        used: None,
        obstacle: None,
    };
    if let Some(why) = device.foreign() {
        seen.obstacle = Some(Obstacle::new(why, "use its network interface by TCP"));
        return seen;
    }
    let context = match device.open() {
        Ok(context) => context,
        Err(error) => {
            let remedy = match &error {
                DeviceError::PermissionDenied { path, .. } => {
                    format!("chmod 666 {path} (or a udev rule that does it), or run as a member of its group")
                }
                DeviceError::NoNode { .. } => {
                    "modprobe ib_uverbs; give a container --device=/dev/infiniband".to_owned()
                }
                DeviceError::System { .. } => "look at the kernel's messages (dmesg)".to_owned(),
            };
            seen.obstacle = Some(Obstacle::new(error, remedy));
            return seen;
        }
    };
    match context.attributes() {
        Ok(attributes) => {
            seen.firmware = format!("firmware {}", attributes.firmware);
            seen.xrc = attributes.xrc;
            let offers = context.offers();
            seen.on_demand = offers.on_demand.read && offers.on_demand.write;
            seen.moderation = offers.moderation.map(|most| (most.count, most.period_us));
        }
        Err(error) => seen.obstacle = Some(Obstacle::new(error, "check the device with ibv_devinfo")),
    }
    // A port that can't be queried is reported, and the others are used.
    for port in context.each_port().into_iter().flatten() {
        match port {
            Ok(port) => seen.ports.push(Port {
                number: port.number,
                link_layer: port.link_layer.to_string(),
                state: port.state.to_string(),
                mbit_per_second: port.mbit_per_second(),
                gids: context.gids(&port).unwrap_or_default().iter().map(describe).collect(),
            }),
            Err(error) => seen.obstacle = Some(Obstacle::new(error, "check the device with ibv_devinfo")),
        }
    }
    match context.choose(None, None) {
        Ok(choice) => seen.used = Some((choice.port.number, choice.gid_index)),
        Err(why) if seen.obstacle.is_none() => seen.obstacle = Some(Obstacle::new(&why, why.remedy())),
        Err(_) => {}
    }
    if seen.obstacle.is_none() {
        seen.obstacle = locked_memory();
    }
    seen
}

/// Whether so much memory may be locked as a rail's buffers take by default. The limit does not apply to
/// root.
fn locked_memory() -> Option<Obstacle> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current?;
    let wanted = VerbsOptions { segment_bytes: Settings::default().verbs_segment, ..VerbsOptions::new(1, 0) };
    let wanted = wanted.memory_bytes().next_multiple_of(1 << 20);
    if limit >= wanted || rustix::process::geteuid().is_root() {
        return None;
    }
    Some(Obstacle::new(
        format!("{} of memory may be locked, a rail's buffers are {}", bytes(limit), bytes(wanted)),
        "ulimit -l unlimited; for good: memlock in /etc/security/limits.conf (LimitMEMLOCK= of a systemd service)",
    ))
}

/// Devices in the kernel's list, whatever the library reports.
fn known_to_the_kernel() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
