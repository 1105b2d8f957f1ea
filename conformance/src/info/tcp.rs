//! Network interfaces as TCP rails.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::Path;

use rerail_linux::place;
use rerail_linux::rail::tcp::interfaces;
use rustix::io::Errno;
use serde::Serialize;

use super::Obstacle;

/// One address of an interface, or an interface without a usable one.
#[derive(Clone, Debug, Serialize)]
pub struct Port {
    /// The interface's name.
    pub interface: String,
    /// Its address.
    pub address: Option<String>,
    /// Reaches only this machine: a rail only where it is named.
    pub loopback: bool,
    /// The kernel's word for its state.
    pub state: String,
    /// The largest packet.
    pub mtu_bytes: Option<u64>,
    /// The driver's report of its speed.
    pub bytes_per_second: Option<u64>,
    /// Where its device sits; nothing of a virtual interface.
    pub device: Device,
    /// Why it can't be a rail.
    pub obstacle: Option<Obstacle>,
}

/// Where a device sits: equal words mean that it is shared.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// The card's port.
    pub port: Option<String>,
    /// The card.
    pub hca: Option<String>,
    /// The root port before it.
    pub bus: Option<String>,
    /// Its NUMA node.
    pub numa_node: Option<u32>,
    /// How far that is from this process; 10 is local.
    pub numa_distance: Option<u8>,
    /// Bus and card, for people.
    #[serde(skip)]
    pub way: Option<String>,
}

impl Device {
    fn of(interface: &str) -> Self {
        let device = place::Device::of_interface(interface);
        let way = device.describe();
        let place::Device { port, hca, bus, numa_node, numa_distance } = device;
        Device { port, hca, bus, numa_node, numa_distance: Some(numa_distance).filter(|far| *far > 0), way }
    }
}

/// Looks at all interfaces, those that are down too.
pub fn detect() -> Result<Vec<Port>, Errno> {
    let usable = interfaces(true)?;
    let mut ports: Vec<Port> = usable
        .iter()
        .map(|found| Port {
            interface: found.name.clone(),
            address: Some(found.address.to_string()),
            loopback: found.loopback,
            state: state(&found.name),
            mtu_bytes: mtu(&found.name),
            bytes_per_second: Some(found.bytes_per_second).filter(|&speed| speed > 0),
            device: Device::of(&found.name),
            obstacle: None,
        })
        .collect();
    let known: BTreeSet<&str> = usable.iter().map(|found| found.name.as_str()).collect();
    let mut others: Vec<String> = std::fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !known.contains(name.as_str()) && is_interface(name))
        .collect();
    others.sort();
    ports.extend(others.into_iter().map(without_address));
    Ok(ports)
}

/// Files such as `bonding_masters` stand beside the interfaces.
fn is_interface(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).join("operstate").exists()
}

fn without_address(name: String) -> Port {
    let state = state(&name);
    let obstacle = if state == "down" {
        Obstacle::new(format!("{name} is down"), format!("ip link set {name} up; then give it an address"))
    } else {
        let why = format!("{name} has no address that another host could name");
        Obstacle::new(why, format!("ip address add ADDRESS/LENGTH dev {name}"))
    };
    let mtu_bytes = mtu(&name);
    let device = Device::of(&name);
    Port {
        interface: name,
        address: None,
        loopback: false,
        state,
        mtu_bytes,
        bytes_per_second: None,
        device,
        obstacle: Some(obstacle),
    }
}

fn attribute(name: &str, attribute: &str) -> Option<String> {
    let path = Path::new("/sys/class/net").join(name).join(attribute);
    read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn state(name: &str) -> String {
    attribute(name, "operstate").unwrap_or_else(|| "unknown".to_owned())
}

fn mtu(name: &str) -> Option<u64> {
    attribute(name, "mtu")?.parse().ok()
}
