//! What a fabric is made of, as numbers: the models that a topology is built from, and the names of its parts.
//!
//! All models are plain integers with their unit last in the name, so that a scenario file can hold them. A rate of 0
//! bytes per second means "no limit", a cost of 0 means "free".

use serde::{Deserialize, Serialize};

/// A host: what buses belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// An I/O bus of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BusId(pub u32);

/// A host channel adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HcaId(pub u32);

/// A subnet: one switch (or a fabric that behaves like one) with its planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubnetId(pub u32);

/// A port of an HCA, with its link to the subnet's switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// A background load that was added to the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// Whether both directions go at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Duplex {
    /// Both directions share the one medium: PCI and PCI-X buses (multirail-2004, 3.1).
    Half,
    /// Each direction has its own: PCI Express (multirail-2004, 3.2), InfiniBand links.
    #[default]
    Full,
}

/// An I/O bus: its masters (the ports' readers and writers) take turns, one frame each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BusModel {
    /// What the wires carry while data moves; per direction where `duplex` is full. 0: no limit.
    pub bytes_per_second: u64,
    /// What a frame's read costs besides its bytes: arbitration, address, the wait for the bridge.
    pub read_ns_per_frame: u64,
    /// What a frame's posted write costs besides its bytes.
    pub write_ns_per_frame: u64,
    /// Whether reads and writes share the wires.
    pub duplex: Duplex,
}

/// An HCA's engines, shared by its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HcaModel {
    /// What goes through the adapter, all ports and both directions together. 0: no limit.
    pub bytes_per_second: u64,
    /// Time of the transmit engine per message, taken with its first frame.
    pub ns_per_message_tx: u64,
    /// Time of the receive engine per message, taken with its first frame.
    pub ns_per_message_rx: u64,
    /// Time of the engine concerned per frame.
    pub ns_per_frame: u64,
    /// Pipeline from the transmit engine to the link: adds latency, takes no throughput.
    pub latency_tx_ns: u64,
    /// Pipeline from the receive engine to [`Outcome::Arrived`](super::Outcome::Arrived).
    pub latency_rx_ns: u64,
    /// Frames that may be in a port's transmit stage at once: waiting for the bus, in the engine, waiting for credit or
    /// for the link. At least 1.
    pub stage_frames: u16,
}

impl Default for HcaModel {
    /// An adapter that costs nothing, with a stage of 8 frames.
    fn default() -> Self {
        HcaModel {
            bytes_per_second: 0,
            ns_per_message_tx: 0,
            ns_per_message_rx: 0,
            ns_per_frame: 0,
            latency_tx_ns: 0,
            latency_rx_ns: 0,
            stage_frames: 8,
        }
    }
}

/// A link between a port and its switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkModel {
    /// Data rate per direction (4x SDR: 1e9, 1x: 250e6). 0: no limit.
    pub bytes_per_second: u64,
    /// What the link adds to each frame's `wire_bytes` (LRH, CRCs, delimiters).
    pub header_bytes: u32,
    /// Cable and transceivers, one way.
    pub latency_ns: u64,
    /// Whether both directions go at once.
    pub duplex: Duplex,
    /// Receive buffer behind the link: the credit that senders to this port share (IB spec vol. 1, 7.9, there per hop and
    /// virtual lane). At least one frame is always granted.
    pub receive_buffer_bytes: u32,
}

impl Default for LinkModel {
    /// A link that costs nothing, with 64 KiB of receive buffer.
    fn default() -> Self {
        LinkModel {
            bytes_per_second: 0,
            header_bytes: 0,
            latency_ns: 0,
            duplex: Duplex::Full,
            receive_buffer_bytes: 64 << 10,
        }
    }
}

/// One of a subnet's planes: what the paths with the same LMC bits have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlaneModel {
    /// The plane's trunk, shared by all frames that take it. 0: no limit.
    pub bytes_per_second: u64,
    /// What this plane's paths take longer than the switch alone.
    pub latency_ns: u64,
}

/// A subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SubnetModel {
    /// From a frame's head at the switch's input to its head at the output.
    pub switch_latency_ns: u64,
    /// The planes; a frame takes the one that its destination LID's path bits name, modulo their number. Empty: one that
    /// costs nothing.
    pub planes: Vec<PlaneModel>,
}

/// Why a port cannot have these LIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LidError {
    /// Unicast LIDs are 1..=0xbfff (IB spec vol. 1, 4.1.3); these reach beyond.
    OutOfRange {
        /// The base LID asked for.
        base_lid: u16,
        /// The mask control asked for.
        lmc: u8,
    },
    /// LMC is 0..=7 (IB spec vol. 1, 4.1.3).
    LmcTooLarge {
        /// The mask control asked for.
        lmc: u8,
    },
    /// The low `lmc` bits of a base LID are 0 (IB spec vol. 1, 4.1.3).
    NotAligned {
        /// The base LID asked for.
        base_lid: u16,
        /// The mask control asked for.
        lmc: u8,
    },
    /// Another port of the subnet has this LID.
    Taken {
        /// The LID.
        lid: u16,
        /// Who has it.
        by: PortId,
    },
}

impl std::fmt::Display for LidError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            LidError::OutOfRange { base_lid, lmc } => {
                write!(f, "base LID {base_lid:#x} with LMC {lmc} leaves the unicast range 1..=0xbfff")
            }
            LidError::LmcTooLarge { lmc } => write!(f, "LMC {lmc} is more than 7"),
            LidError::NotAligned { base_lid, lmc } => write!(f, "base LID {base_lid:#x} has path bits set (LMC {lmc})"),
            LidError::Taken { lid, by } => write!(f, "LID {lid:#x} belongs to port {}", by.0),
        }
    }
}

impl std::error::Error for LidError {}
