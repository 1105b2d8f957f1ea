//! What the parts of a fabric are made of: rates in bytes per second, times in nanoseconds, all integers.

/// An I/O bus of a host (multirail-2004, 3.1: PCI-X, 1 GB/s shared by both directions; PCI Express, one lane
/// set each way).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusModel {
    /// Bytes that it moves per second; 0: without limit.
    pub bytes_per_second: u64,
    /// Added to every frame that is fetched from memory (a read of PCI-X is a split transaction).
    pub read_ns_per_frame: u64,
    /// Added to every frame that is written to memory.
    pub write_ns_per_frame: u64,
    /// Reads and writes share it.
    pub half_duplex: bool,
}

/// The engine of an HCA, through which the frames of all its ports go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HcaModel {
    /// Bytes that it moves per second, both directions together; 0: without limit.
    pub bytes_per_second: u64,
    /// Time that it is occupied by each message that it sends, beside its bytes.
    pub ns_per_message_tx: u64,
    /// Time that it is occupied by each message that it receives, beside its bytes.
    pub ns_per_message_rx: u64,
    /// From doorbell and memory to the wire; occupies nothing.
    pub latency_tx_ns: u64,
    /// From the wire to the transport's decision; occupies nothing.
    pub latency_rx_ns: u64,
}

/// A port's link, full duplex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkModel {
    /// Data bytes per second each way, line code taken off; not 0.
    pub bytes_per_second: u64,
    /// Bytes that every frame has beside those that its sender counts (LRH, ICRC, VCRC, gaps).
    pub header_bytes: u32,
    /// From one end to the other.
    pub latency_ns: u64,
}

/// One of the ways through a subnet's switches: low bits of the destination LID (LMC) choose it
/// (multirail-2004, 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneModel {
    /// Added to the latency of the switch.
    pub latency_ns: u64,
    /// Bytes per second of the trunk that all traffic of the plane shares; 0: without limit.
    pub bytes_per_second: u64,
}

/// A subnet: switches, and the planes through them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetModel {
    /// From any port to any other, links not counted.
    pub latency_ns: u64,
    /// At least one.
    pub planes: Vec<PlaneModel>,
}

impl Default for BusModel {
    /// One that is never in the way.
    fn default() -> Self {
        BusModel { bytes_per_second: 0, read_ns_per_frame: 0, write_ns_per_frame: 0, half_duplex: false }
    }
}

impl Default for HcaModel {
    /// One that costs half a microsecond each way and has no limits.
    fn default() -> Self {
        HcaModel {
            bytes_per_second: 0,
            ns_per_message_tx: 0,
            ns_per_message_rx: 0,
            latency_tx_ns: 500,
            latency_rx_ns: 500,
        }
    }
}

impl Default for LinkModel {
    /// 4x SDR: 10 Gbit/s with 8/10 line code.
    fn default() -> Self {
        LinkModel { bytes_per_second: 1_000_000_000, header_bytes: 12, latency_ns: 50 }
    }
}

impl Default for SubnetModel {
    /// One switch, one plane.
    fn default() -> Self {
        SubnetModel { latency_ns: 200, planes: vec![PlaneModel { latency_ns: 0, bytes_per_second: 0 }] }
    }
}
