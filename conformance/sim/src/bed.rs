//! The device contract suite's testbed over the software HCA: process A on one HCA, processes B and C on
//! another, one subnet with two paths between them, in virtual time.

use rerail_contract::{End, Fault as Requested, Testbed};
use rerail_core::time::{Nanos, Time};
use rerail_verbs::Gid;
use rerail_verbs::contract::{AddressVector, Device};

use crate::hca::{Fabric, Fault, HcaOptions, SharedFabric, SimDevice};
use crate::net::{BusModel, Direction, HcaId, HcaModel, LinkModel, PlaneModel, PortId, SubnetId, SubnetModel};
use crate::trace::Trace;

/// Longer than all retries of any case take: code 18 with 7 retries is 8.6 s, and a device may take four
/// times that.
const TIMEOUT: Nanos = Nanos::from_millis(120_000);

/// What is under way and needs no further call is complete by then; a link that is down shorter than that is
/// survived.
const IDLE_TIME: Nanos = Nanos::from_millis(200);

/// Links are noticed to be down or up after so long.
const NOTICE: Nanos = Nanos::from_micros(50);

/// LIDs of a port: 2^1, one for each plane.
const LMC: u8 = 1;

/// The bed.
pub struct SimBed {
    fabric: SharedFabric,
    devices: [SimDevice; 3],
    hcas: [HcaId; 2],
    ports: [PortId; 2],
    subnet: SubnetId,
    timeout_at: Time,
    /// The base LID that the subnet manager gives next.
    next_lid: u16,
}

/// A fresh testbed, for [`rerail_contract::run`].
///
/// # Errors
/// None that can be foreseen: a new fabric has room for three processes.
pub fn open() -> Result<Box<dyn Testbed>, String> {
    Ok(Box::new(SimBed::new()?))
}

impl SimBed {
    fn new() -> Result<Self, String> {
        let mut fabric = Fabric::new(1, Trace::off());
        let plane = |latency_ns| PlaneModel { latency_ns, bytes_per_second: 0 };
        let subnet = fabric.add_subnet(&SubnetModel { latency_ns: 200, planes: vec![plane(0), plane(300)] });
        let (mut hcas, mut ports) = (Vec::new(), Vec::new());
        for (index, name) in ["sim-a", "sim-b"].into_iter().enumerate() {
            let host = fabric.add_host();
            let bus = fabric.add_bus(host, BusModel::default());
            let options = HcaOptions { name: name.into(), ..HcaOptions::default() };
            let hca = fabric.add_hca(bus, HcaModel::default(), options);
            ports.push(fabric.add_port(hca, subnet, LinkModel::default(), 2 * (index as u16 + 1), LMC));
            hcas.push(hca);
        }
        let fabric = fabric.shared();
        let open = |hca, owner| SimDevice::open(&fabric, hca, owner).map_err(|error| error.to_string());
        let devices = [open(hcas[0], 0)?, open(hcas[1], 1)?, open(hcas[1], 2)?];
        Ok(SimBed {
            devices,
            hcas: [hcas[0], hcas[1]],
            ports: [ports[0], ports[1]],
            subnet,
            timeout_at: Time(0) + TIMEOUT,
            next_lid: 16,
            fabric,
        })
    }

    const fn side(end: End) -> usize {
        match end {
            End::A => 0,
            End::B | End::C => 1,
        }
    }

    fn now(&self) -> Time {
        self.fabric.borrow().now()
    }
}

impl Testbed for SimBed {
    fn device(&mut self, end: End) -> &mut dyn Device {
        let index = match end {
            End::A => 0,
            End::B => 1,
            End::C => 2,
        };
        &mut self.devices[index]
    }

    fn port(&self, _end: End) -> u8 {
        1
    }

    fn address(&mut self, _from: End, to: End) -> Result<AddressVector, String> {
        let port = self.device(to).port(1).map_err(|error| error.to_string())?;
        Ok(AddressVector { port: 1, dlid: port.lid, ..AddressVector::default() })
    }

    fn has_sibling(&self) -> bool {
        true
    }

    fn shared_file(&mut self) -> Option<[i32; 2]> {
        // A simulated host takes the number for the file.
        Some([7, 7])
    }

    fn begin_wait(&mut self) {
        self.timeout_at = self.now() + TIMEOUT;
    }

    fn pass(&mut self) -> bool {
        let mut fabric = self.fabric.borrow_mut();
        match fabric.next_event() {
            Some(at) if at <= self.timeout_at => {
                fabric.advance(at);
                true
            }
            _ => false,
        }
    }

    fn run_until_idle(&mut self) {
        let until = self.now() + IDLE_TIME;
        self.fabric.borrow_mut().advance(until);
    }

    fn offers(&self, _fault: Requested) -> bool {
        true
    }

    fn inject(&mut self, end: End, fault: Requested) -> Result<(), String> {
        let side = SimBed::side(end);
        let (hca, port) = (self.hcas[side], self.ports[side]);
        let link = |up| Fault::Link { port, direction: Direction::Both, up, noticed_after: Some(NOTICE) };
        let fault = match fault {
            Requested::LinkDown => link(false),
            Requested::LinkUp => link(true),
            Requested::PathDown(offset) => Fault::Path { subnet: self.subnet, plane: offset.into(), up: false },
            Requested::LoseAcks(count) => Fault::LosePortAcks { port, count },
            Requested::LosePackets(packets) => Fault::Lose { port, packets },
            Requested::CorruptPacket => Fault::Corrupt { port, packets: 1 },
            Requested::ChangeLid => {
                self.next_lid += 1 << LMC;
                Fault::Readdress { port, lid: Some(self.next_lid), gid: None }
            }
            Requested::ChangeGid => {
                let gid = Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 0, 0, 0, self.next_lid as u8]);
                Fault::Readdress { port, lid: None, gid: Some(gid) }
            }
            Requested::DeviceFatal => Fault::Kill { hca, reload_after: None },
            Requested::FailRegistration => Fault::RefuseRegistrations { hca, count: 1 },
        };
        self.fabric.borrow_mut().inject(&fault);
        Ok(())
    }
}
