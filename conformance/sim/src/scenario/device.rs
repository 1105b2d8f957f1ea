//! Devices by name: bus, engine, link and limits of adapters that the papers and their successors used.
//!
//! Rates are data rates, line code and framing taken off; sources stand with each. A scenario may set each
//! number anew.

use serde::{Deserialize, Serialize};

use crate::net::{BusModel, HcaModel, LinkModel};

/// Limits of a device that are worth simulating.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceLimits {
    /// Queue pairs of one device; 0: the software HCA's own limit.
    pub queue_pairs: u32,
    /// Memory regions.
    pub memory_regions: u32,
    /// Completion queue entries of one queue.
    pub completion_entries: u32,
    /// Bytes of a path's MTU: 256, 512, 1024, 2048 or 4096.
    pub mtu: u16,
}

impl Default for DeviceLimits {
    fn default() -> Self {
        DeviceLimits { queue_pairs: 0, memory_regions: 0, completion_entries: 0, mtu: 2048 }
    }
}

/// A sort of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name in scenario files.
    pub name: &'static str,
    /// The bus that it usually sits on.
    pub bus: BusModel,
    /// Its engine.
    pub hca: HcaModel,
    /// Its ports' links.
    pub link: LinkModel,
    /// Its limits.
    pub limits: DeviceLimits,
}

/// A bus without limits.
const FREE_BUS: BusModel =
    BusModel { bytes_per_second: 0, read_ns_per_frame: 0, write_ns_per_frame: 0, half_duplex: false };

/// All presets.
pub const PRESETS: [Preset; 6] = [
    // Costs nothing but half a microsecond: for simulations that test protocols, not performance.
    Preset {
        name: "ideal",
        bus: FREE_BUS,
        hca: HcaModel {
            bytes_per_second: 0,
            ns_per_message_tx: 0,
            ns_per_message_rx: 0,
            latency_tx_ns: 250,
            latency_rx_ns: 250,
        },
        link: LinkModel { bytes_per_second: 10_000_000_000, header_bytes: 12, latency_ns: 50 },
        limits: DeviceLimits { queue_pairs: 0, memory_regions: 0, completion_entries: 0, mtu: 4096 },
    },
    // multirail-2004, 3.1 and 6.1: InfiniHost MT23108 on PCI-X 64/133 (1 GB/s both ways together), 4x links
    // of 10 Gbit/s with 8/10 code; 6 us for small messages, 884 MB/s one way, 943 MB/s both ways.
    Preset {
        name: "infinihost-pcix",
        bus: BusModel {
            bytes_per_second: 1_064_000_000,
            read_ns_per_frame: 392,
            write_ns_per_frame: 101,
            half_duplex: true,
        },
        hca: HcaModel {
            bytes_per_second: 0,
            ns_per_message_tx: 200,
            ns_per_message_rx: 200,
            latency_tx_ns: 2_700,
            latency_rx_ns: 2_200,
        },
        link: LinkModel { bytes_per_second: 1_000_000_000, header_bytes: 12, latency_ns: 50 },
        limits: DeviceLimits { queue_pairs: 65_536, memory_regions: 131_072, completion_entries: 65_536, mtu: 2048 },
    },
    // The same adapter for PCI Express x8 (2 GB/s each way), as in xrc-2008's and later clusters of 4x DDR.
    Preset {
        name: "infinihost3-pcie",
        bus: BusModel {
            bytes_per_second: 2_000_000_000,
            read_ns_per_frame: 40,
            write_ns_per_frame: 0,
            half_duplex: false,
        },
        hca: HcaModel {
            bytes_per_second: 0,
            ns_per_message_tx: 150,
            ns_per_message_rx: 150,
            latency_tx_ns: 1_000,
            latency_rx_ns: 900,
        },
        link: LinkModel { bytes_per_second: 2_000_000_000, header_bytes: 12, latency_ns: 50 },
        limits: DeviceLimits { queue_pairs: 65_536, memory_regions: 131_072, completion_entries: 65_536, mtu: 2048 },
    },
    // xrc-2008, V: ConnectX, 4x DDR on PCI Express 1.1 x8; about 1.1 us small-message latency in its time.
    Preset {
        name: "connectx",
        bus: BusModel {
            bytes_per_second: 2_000_000_000,
            read_ns_per_frame: 10,
            write_ns_per_frame: 0,
            half_duplex: false,
        },
        hca: HcaModel {
            bytes_per_second: 0,
            ns_per_message_tx: 60,
            ns_per_message_rx: 60,
            latency_tx_ns: 450,
            latency_rx_ns: 400,
        },
        link: LinkModel { bytes_per_second: 2_000_000_000, header_bytes: 12, latency_ns: 20 },
        limits: DeviceLimits {
            queue_pairs: 262_144,
            memory_regions: 524_288,
            completion_entries: 4_194_303,
            mtu: 2048,
        },
    },
    // NDR: 400 Gbit/s with 64/66 code, on PCI Express 5.0 x16.
    Preset {
        name: "ndr",
        bus: BusModel {
            bytes_per_second: 63_000_000_000,
            read_ns_per_frame: 0,
            write_ns_per_frame: 0,
            half_duplex: false,
        },
        hca: HcaModel {
            bytes_per_second: 0,
            ns_per_message_tx: 5,
            ns_per_message_rx: 5,
            latency_tx_ns: 250,
            latency_rx_ns: 200,
        },
        link: LinkModel { bytes_per_second: 48_000_000_000, header_bytes: 12, latency_ns: 20 },
        limits: DeviceLimits {
            queue_pairs: 262_144,
            memory_regions: 4_194_304,
            completion_entries: 4_194_303,
            mtu: 4096,
        },
    },
    // 10 Gbit/s Ethernet with a kernel's stack behind it: what streams run over.
    Preset {
        name: "ethernet-10g",
        bus: FREE_BUS,
        hca: HcaModel {
            bytes_per_second: 0,
            ns_per_message_tx: 1_000,
            ns_per_message_rx: 1_000,
            latency_tx_ns: 5_000,
            latency_rx_ns: 5_000,
        },
        link: LinkModel { bytes_per_second: 1_250_000_000, header_bytes: 78, latency_ns: 500 },
        limits: DeviceLimits { queue_pairs: 0, memory_regions: 0, completion_entries: 0, mtu: 1024 },
    },
];

/// The preset of a name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
