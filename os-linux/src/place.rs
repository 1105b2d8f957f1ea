//! The location of devices, from sysfs: the hardware they share with each other, and their distance from this
//! process.
//!
//! A device's directory is the path to it: `/sys/devices/pci0000:ae/0000:ae:00.0/0000:af:00.1/...` is
//! function 1 of the card `0000:af:00` behind the root port `0000:ae:00.0` (Linux,
//! Documentation/PCI/sysfs-pci.rst, and Documentation/ABI/testing/sysfs-class-net for `dev_port`). A virtual
//! function counts as its physical one: it shares card and port with it. NUMA distances are those of the
//! firmware's table (Documentation/ABI/stable/sysfs-devices-node). Missing values are not guessed: 0 stands
//! for unknown.

use std::fs;
use std::path::{Path, PathBuf};

use rerail_core::rail::Place;

/// Every node's distance to itself, by definition.
pub(crate) const NUMA_LOCAL: u8 = 10;

/// A device among others: see [`Device::of_interface`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The port: function of the card, and number of the port where a function has several.
    pub port: Option<String>,
    /// The card: its PCI address without the function.
    pub hca: Option<String>,
    /// The root port that all its data cross.
    pub bus: Option<String>,
    /// The NUMA node that it is attached to.
    pub numa_node: Option<u32>,
    /// How far that is from the processors that this process may run on, as the kernel counts it: 10 is
    /// local; 0: unknown, or they are on several nodes.
    pub numa_distance: u8,
}

impl Device {
    /// The device of a network interface; unknown for virtual ones.
    pub fn of_interface(name: &str) -> Self {
        Machine::this().interface(name)
    }

    /// The device of a port of a verbs device; unknown for software ones.
    pub fn of_verbs(name: &str, port: u8) -> Self {
        Machine::this().verbs(name, port)
    }

    /// Bus and card for people: `0000:ae:00.0 > 0000:af:00`.
    pub fn describe(&self) -> Option<String> {
        let hca = self.hca.as_ref()?;
        Some(self.bus.iter().chain([hca]).cloned().collect::<Vec<_>>().join(" > "))
    }
}

/// The core's numbers for hardware that devices share: equal for the same one, from 1.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    ports: Vec<String>,
    hcas: Vec<String>,
    buses: Vec<String>,
}

impl Numbers {
    /// A device's place among those of earlier calls.
    pub fn place(&mut self, device: &Device) -> Place {
        Place {
            port: number(&mut self.ports, device.port.as_ref()),
            hca: number(&mut self.hcas, device.hca.as_ref()),
            bus: number(&mut self.buses, device.bus.as_ref()),
        }
    }
}

fn number(known: &mut Vec<String>, name: Option<&String>) -> u16 {
    let Some(name) = name else { return 0 };
    let place = known.iter().position(|other| other == name).unwrap_or_else(|| {
        known.push(name.clone());
        known.len() - 1
    });
    u16::try_from(place + 1).unwrap_or(0)
}

/// The kernel's directories.
struct Machine {
    sys: PathBuf,
    /// `/proc/self/status`.
    status: PathBuf,
}

impl Machine {
    fn this() -> Self {
        Machine { sys: "/sys".into(), status: "/proc/self/status".into() }
    }

    fn interface(&self, name: &str) -> Device {
        let class = self.sys.join("class/net").join(name);
        let port = text(&class.join("dev_port")).unwrap_or("0".to_owned());
        self.device(&class, &port)
    }

    /// Ports of verbs devices count from 1, those of network interfaces from 0: port 1 of a card is one by
    /// either name.
    fn verbs(&self, name: &str, port: u8) -> Device {
        let class = self.sys.join("class/infiniband").join(name);
        self.device(&class, &port.saturating_sub(1).to_string())
    }

    fn device(&self, class: &Path, port: &str) -> Device {
        let Ok(device) = fs::canonicalize(class.join("device")) else { return Device::default() };
        let pci_folders = pci_path(&device);
        let Some(function) = pci_folders.last() else { return Device::default() };
        let numa_node = self.node_of(function);
        let numa_distance = self.distance(numa_node);
        // A virtual function's card and port are its physical one's.
        let physical = fs::canonicalize(function.join("physfn")).unwrap_or_else(|_| function.clone());
        let Some(address) = file_name(&physical) else { return Device::default() };
        let hca = address.split_once('.').map(|(address_record, _)| address_record.to_owned());
        // Without a root port before the card, it shares its path with no other.
        let bus = pci_folders.first().filter(|_| pci_folders.len() > 1).and_then(|root| file_name(root));
        Device { port: Some(format!("{address}/{port}")), hca, bus, numa_node, numa_distance }
    }

    fn node_of(&self, function: &Path) -> Option<u32> {
        let reported = text(&function.join("numa_node")).and_then(|node| node.parse().ok());
        // -1 means that the firmware gives no node; where there is one node only, it is that.
        reported.or_else(|| <[u32; 1]>::try_from(self.nodes()).ok().map(|[only]| only))
    }

    fn nodes(&self) -> Vec<u32> {
        list(&text(&self.sys.join("devices/system/node/online")).unwrap_or_default())
    }

    /// From the node of all processors that this process may use.
    fn distance(&self, to: Option<u32>) -> u8 {
        let Some(to) = to else { return 0 };
        let status = fs::read_to_string(&self.status).unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(list);
        let Some(allowed) = allowed.filter(|allowed| !allowed.is_empty()) else { return 0 };
        let nodes = self.nodes();
        let node = |node: u32| self.sys.join(format!("devices/system/node/node{node}"));
        let holds_all = |from: &&u32| {
            let cpus = list(&text(&node(**from).join("cpulist")).unwrap_or_default());
            allowed.iter().all(|cpu| cpus.contains(cpu))
        };
        let Some(from) = nodes.iter().find(holds_all) else { return 0 };
        let Some(column) = nodes.iter().position(|node| *node == to) else { return 0 };
        let row = text(&node(*from).join("distance")).unwrap_or_default();
        row.split_whitespace().nth(column).and_then(|distance| distance.parse().ok()).unwrap_or(0)
    }
}

/// The PCI functions on the way to a device, from the root on.
fn pci_path(device: &Path) -> Vec<PathBuf> {
    let mut pci_folders: Vec<PathBuf> =
        device.ancestors().filter(|part| is_pci_function(part)).map(Path::to_owned).collect();
    pci_folders.reverse();
    pci_folders
}

/// `0000:af:00.1`: domain, bus, device, function in hexadecimal digits.
fn is_pci_function(path: &Path) -> bool {
    let Some(name) = file_name(path) else { return false };
    let mut parts = name.split([':', '.']);
    let mut hex = |digits: std::ops::RangeInclusive<usize>| {
        parts.next().is_some_and(|part| digits.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    hex(4..=8) && hex(2..=2) && hex(2..=2) && hex(1..=1) && parts.next().is_none()
}

fn file_name(path: &Path) -> Option<String> {
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The kernel's lists of numbers: `0-3,8,10-11`. Other text is left out.
fn list(text: &str) -> Vec<u32> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests;
