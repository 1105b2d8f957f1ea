//! The parts of the fabric: their state, and how they are put together. Built once; only LIDs may change
//! later.

use std::collections::VecDeque;

use super::agenda::{Chain, NONE, Ps, Rate, ps};
use super::bus::BusServer;
use super::{BusId, BusModel, HcaId, HcaModel, HostId, LidError, LinkModel, Net, PortId, SubnetId, SubnetModel};

/// Frames in a port's transmit stage, unless set otherwise.
const STAGE_FRAMES: u32 = 8;

/// A port's receive buffer, unless set otherwise.
const BUFFER_BYTES: u32 = 64 << 10;

/// The greatest unicast LID (IB spec vol. 1, 4.1.3).
const LID_MAX: u32 = 0xbfff;

#[derive(Debug)]
pub(super) struct Bus {
    pub host: u32,
    pub bytes_per_second: u64,
    pub rate: Rate,
    /// What loads leave of the rate, from moments on that ascend.
    pub loaded: Vec<(Ps, Rate)>,
    pub read_ps: Ps,
    pub write_ps: Ps,
    pub half_duplex: bool,
    /// Reads and writes; half duplex, the first serves both.
    pub servers: [BusServer; 2],
}

#[derive(Debug)]
pub(super) struct Hca {
    pub bus: u32,
    pub rate: Rate,
    pub message_tx_ps: Ps,
    pub message_rx_ps: Ps,
    pub frame_ps: Ps,
    /// Between its bus and the memory behind it.
    pub memory_rate: Rate,
    pub latency_tx_ps: Ps,
    pub latency_rx_ps: Ps,
    pub stage_frames: u32,
    /// When the part that both directions share is free.
    pub shared_free: Ps,
    pub tx_free: Ps,
    pub rx_free: Ps,
}

#[derive(Debug)]
pub(super) struct Subnet {
    pub latency_ps: Ps,
    pub up: bool,
    /// Index of its first plane; the others follow.
    pub plane: u32,
    pub planes: u32,
    /// Port by LID, as far as LIDs were given out.
    pub lids: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Plane {
    pub rate: Rate,
    pub latency_ps: Ps,
    pub up: bool,
    pub epoch: u32,
    pub gate: u32,
    /// Whether frames stop here at all: it has a latency or a limit, or has ever had a fault.
    pub stop: bool,
    pub free: Ps,
    pub chain: Chain,
}

/// One direction of a link.
#[derive(Debug)]
pub(super) struct Way {
    pub up: bool,
    /// Counts its cuts.
    pub epoch: u32,
    pub chain: Chain,
    pub gate: u32,
}

/// A port's turn at its bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Has nothing to transfer.
    Idle,
    /// In line.
    Waiting,
    /// Being served.
    Served,
}

#[derive(Debug)]
pub(super) struct Port {
    pub hca: u32,
    pub subnet: u32,
    pub base_lid: u16,
    pub lmc: u8,

    /// Own frames before the bus.
    pub staged: Chain,
    /// Own frames between `send` and the switch, control frames apart.
    pub stage_used: u32,
    /// Own frames before the bus that need it: none of theirs are overtaken by frames that need it not.
    pub room_requested: bool,
    pub reader: Turn,
    /// The read being served is of a frame of the HCA's own.
    pub reads_own: bool,
    /// Background loads that start here.
    pub flows: Vec<u32>,
    /// Whose turn among them: 0 the HCA's own, then the loads.
    pub source_turn: u32,
    /// Frames in the transmit engine.
    pub engine: Chain,
    /// Frames that wait for credit.
    pub blocked: Chain,

    pub model: LinkModel,
    pub rate: Rate,
    pub latency_ps: Ps,
    pub uplink: Way,
    pub downlink: Way,
    pub half_duplex: bool,
    /// When uplink and downlink are free; half duplex, the first stands for both.
    pub free: [Ps; 2],

    pub buffer_bytes: u32,
    pub credit_taken: u64,
    /// Ports whose first blocked frame waits for this port's buffer.
    pub credit_line: VecDeque<u32>,
    /// Frames in the receive engine.
    pub receiving: Chain,
    pub writes: Chain,
    pub writer: Turn,

    /// The state of its link that the port has detected.
    pub reported_up: bool,
}

impl Port {
    /// Index into `free` of the downlink.
    pub fn down(&self) -> usize {
        usize::from(!self.half_duplex)
    }
}

impl Way {
    fn new() -> Self {
        Way { up: true, epoch: 0, chain: Chain::default(), gate: NONE }
    }
}

/// An index as an id's number.
fn number(len: usize) -> u32 {
    u32::try_from(len).expect("fewer than 2^32 parts")
}

impl<B> Net<B> {
    /// A host.
    pub fn add_host(&mut self) -> HostId {
        self.hosts += 1;
        HostId(self.hosts - 1)
    }

    /// A bus of a host.
    pub fn add_bus(&mut self, host: HostId, model: BusModel) -> BusId {
        assert!(host.0 < self.hosts, "{host:?} is not of this fabric");
        self.buses.push(Bus {
            host: host.0,
            bytes_per_second: model.bytes_per_second,
            rate: Rate::new(model.bytes_per_second),
            loaded: Vec::new(),
            read_ps: ps(model.read_ns_per_frame),
            write_ps: ps(model.write_ns_per_frame),
            half_duplex: model.half_duplex,
            servers: Default::default(),
        });
        BusId(number(self.buses.len() - 1))
    }

    /// An HCA on a bus.
    pub fn add_hca(&mut self, bus: BusId, model: HcaModel) -> HcaId {
        assert!((bus.0 as usize) < self.buses.len(), "{bus:?} is not of this fabric");
        self.hcas.push(Hca {
            bus: bus.0,
            rate: Rate::new(model.bytes_per_second),
            message_tx_ps: ps(model.ns_per_message_tx),
            message_rx_ps: ps(model.ns_per_message_rx),
            frame_ps: 0,
            memory_rate: Rate::new(0),
            latency_tx_ps: ps(model.latency_tx_ns),
            latency_rx_ps: ps(model.latency_rx_ns),
            stage_frames: STAGE_FRAMES,
            shared_free: 0,
            tx_free: 0,
            rx_free: 0,
        });
        HcaId(number(self.hcas.len() - 1))
    }

    /// A subnet without ports.
    ///
    /// # Panics
    /// Where the model has no plane.
    pub fn add_subnet(&mut self, model: &SubnetModel) -> SubnetId {
        assert!(!model.planes.is_empty(), "a subnet needs a plane");
        self.subnets.push(Subnet {
            latency_ps: ps(model.latency_ns),
            up: true,
            plane: number(self.planes.len()),
            planes: number(model.planes.len()),
            lids: Vec::new(),
        });
        self.planes.extend(model.planes.iter().map(|plane| Plane {
            rate: Rate::new(plane.bytes_per_second),
            latency_ps: ps(plane.latency_ns),
            up: true,
            epoch: 0,
            gate: NONE,
            stop: plane.bytes_per_second > 0 || plane.latency_ns > 0,
            free: 0,
            chain: Chain::default(),
        }));
        SubnetId(number(self.subnets.len() - 1))
    }

    /// A port with its link to a subnet, and the LIDs `base_lid..base_lid + 2^lmc`.
    ///
    /// # Panics
    /// Where [`check_lids`](Self::check_lids) has an error, or the link no rate.
    pub fn add_port(&mut self, hca: HcaId, subnet: SubnetId, model: LinkModel, base_lid: u16, lmc: u8) -> PortId {
        assert!((hca.0 as usize) < self.hcas.len(), "{hca:?} is not of this fabric");
        assert!(model.bytes_per_second > 0, "a link needs a rate");
        let index = number(self.ports.len());
        self.claim_lids(subnet, index, base_lid, lmc);
        self.ports.push(Port {
            hca: hca.0,
            subnet: subnet.0,
            base_lid,
            lmc,
            staged: Chain::default(),
            stage_used: 0,
            room_requested: false,
            reader: Turn::Idle,
            reads_own: false,
            flows: Vec::new(),
            source_turn: 0,
            engine: Chain::default(),
            blocked: Chain::default(),
            model,
            rate: Rate::new(model.bytes_per_second),
            latency_ps: ps(model.latency_ns),
            uplink: Way::new(),
            downlink: Way::new(),
            half_duplex: false,
            free: [0; 2],
            buffer_bytes: BUFFER_BYTES,
            credit_taken: 0,
            credit_line: VecDeque::new(),
            receiving: Chain::default(),
            writes: Chain::default(),
            writer: Turn::Idle,
            reported_up: true,
        });
        PortId(index)
    }

    /// Frames that each port of an HCA may have in its transmit stage at once, between `send` and the switch:
    /// waiting for the bus, in the engine, waiting for credit, on the link. At least 1; 8 unless set
    /// otherwise.
    pub fn set_stage(&mut self, hca: HcaId, frames: u32) {
        self.hcas[hca.0 as usize].stage_frames = frames.max(1);
    }

    /// Time of an HCA's transmit or receive engine for every frame, beside that for messages; 0 unless set
    /// otherwise.
    pub fn set_frame_cost(&mut self, hca: HcaId, ns: u64) {
        self.hcas[hca.0 as usize].frame_ps = ps(ns);
    }

    /// Bytes per second between an HCA's bus and the memory of its host, each way, where that is slower than
    /// the bus: the memory of another NUMA node. The bus is taken for as long as the slower of the two takes.
    /// 0: no limit, as it is unless set otherwise.
    pub fn set_memory_rate(&mut self, hca: HcaId, bytes_per_second: u64) {
        self.hcas[hca.0 as usize].memory_rate = Rate::new(bytes_per_second);
    }

    /// Bytes of a port's receive buffer: the credit that its senders share (IB spec vol. 1, 7.9; there per
    /// hop and virtual lane). A frame that is larger takes all of it. At least 1; 65536 unless set
    /// otherwise.
    pub fn set_receive_buffer(&mut self, port: PortId, bytes: u32) {
        self.ports[port.0 as usize].buffer_bytes = bytes.max(1);
    }

    /// Whether a port's link carries one direction at a time, as InfiniBand's do not; for other wires.
    pub fn set_half_duplex(&mut self, port: PortId, half_duplex: bool) {
        self.ports[port.0 as usize].half_duplex = half_duplex;
    }

    /// Gives a port another base LID, as a subnet manager may after a flap. Frames under way reach it still;
    /// those sent to the old LIDs from now on reach no port.
    ///
    /// # Panics
    /// Where the LIDs are not legal or another port has one.
    pub fn set_lid(&mut self, port: PortId, base_lid: u16) {
        let Port { subnet, lmc, .. } = self.ports[port.0 as usize];
        let lids = &mut self.subnets[subnet as usize].lids;
        lids.iter_mut().filter(|owner| **owner == port.0).for_each(|owner| *owner = NONE);
        self.claim_lids(SubnetId(subnet), port.0, base_lid, lmc);
        self.ports[port.0 as usize].base_lid = base_lid;
    }

    /// Whether a new port of a subnet could have the LIDs `base_lid..base_lid + 2^lmc`.
    ///
    /// # Errors
    /// They are not legal, or a port has one of them.
    pub fn check_lids(&self, subnet: SubnetId, base_lid: u16, lmc: u8) -> Result<(), LidError> {
        if lmc > 7 {
            return Err(LidError::LmcTooLarge { lmc });
        }
        let (first, count) = (u32::from(base_lid), 1u32 << lmc);
        if first == 0 || first + count - 1 > LID_MAX {
            return Err(LidError::OutOfRange { base_lid, lmc });
        }
        if first % count != 0 {
            return Err(LidError::NotAligned { base_lid, lmc });
        }
        let owners = self.subnets[subnet.0 as usize].lids.iter().skip(first as usize).take(count as usize);
        match owners.enumerate().find(|(_, owner)| **owner != NONE) {
            Some((at, &owner)) => Err(LidError::Taken { lid: base_lid + at as u16, by: PortId(owner) }),
            None => Ok(()),
        }
    }

    /// A port's base LID and LMC.
    pub fn lid(&self, port: PortId) -> (u16, u8) {
        let port = &self.ports[port.0 as usize];
        (port.base_lid, port.lmc)
    }

    /// A port's link, with its rate as it is now.
    pub fn link(&self, port: PortId) -> LinkModel {
        self.ports[port.0 as usize].model
    }

    /// Where frames from a port to a LID go: the port that has it, and the plane they take.
    pub fn route(&self, from: PortId, dlid: u16) -> Option<(PortId, usize)> {
        let (to, plane) = self.find_route(from.0, dlid);
        let first = self.subnets[self.ports[from.0 as usize].subnet as usize].plane;
        (to != NONE).then(|| (PortId(to), (plane - first) as usize))
    }

    /// How many planes a subnet has.
    pub fn planes(&self, subnet: SubnetId) -> usize {
        self.subnets[subnet.0 as usize].planes as usize
    }

    /// A port's subnet.
    pub fn subnet_of(&self, port: PortId) -> SubnetId {
        SubnetId(self.ports[port.0 as usize].subnet)
    }

    /// A port's HCA.
    pub fn hca_of(&self, port: PortId) -> HcaId {
        HcaId(self.ports[port.0 as usize].hca)
    }

    /// An HCA's host.
    pub fn host_of(&self, hca: HcaId) -> HostId {
        HostId(self.buses[self.hcas[hca.0 as usize].bus as usize].host)
    }

    /// How many ports there are; their ids count from 0.
    pub fn ports(&self) -> u32 {
        number(self.ports.len())
    }

    /// Port and plane (index in the fabric) of a LID; the port is `NONE` where no port has it.
    pub(super) fn find_route(&self, from: u32, dlid: u16) -> (u32, u32) {
        let subnet = &self.subnets[self.ports[from as usize].subnet as usize];
        let to = subnet.lids.get(usize::from(dlid)).copied().unwrap_or(NONE);
        let lmc = self.ports.get(to as usize).map_or(0, |port| port.lmc);
        let path = u32::from(dlid) & ((1 << lmc) - 1);
        (to, subnet.plane + path % subnet.planes)
    }

    fn claim_lids(&mut self, subnet: SubnetId, port: u32, base_lid: u16, lmc: u8) {
        if let Err(error) = self.check_lids(subnet, base_lid, lmc) {
            panic!("{error}");
        }
        let lids = &mut self.subnets[subnet.0 as usize].lids;
        let (first, end) = (usize::from(base_lid), usize::from(base_lid) + (1 << lmc));
        if lids.len() < end {
            lids.resize(end, NONE);
        }
        lids[first..end].fill(port);
    }
}
