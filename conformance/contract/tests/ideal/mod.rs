//! An ideal device, for the suite's own tests: the shortest thing that keeps the contract.
//!
//! Three processes on two adapters in one `Fabric`. Time is a count of ticks; in each, every queue pair does
//! at most one whole request, at once and with no packets in between. Objects of all processes lie in one
//! table each and are looked up by scanning: slow and obvious. The suite must pass here, and must fail on
//! everything that `flaws.rs` breaks.

mod device;
mod engine;
mod memory;
mod objects;

use std::cell::RefCell;
use std::rc::Rc;

use rerail_contract::{End, Fault, Testbed};
use rerail_verbs::contract::{AddressVector, AsyncEvent, Device};

pub use device::Ideal;
pub use objects::Fabric;

/// Ticks of the time-out: twice what all retries of timeout 18 take.
const TIMEOUT: u32 = 4_000;
/// Ticks that `run_until_idle` takes: more than a peer with one retry gets, far fewer than one with seven of
/// timeout 18.
const IDLE_POLLS: u32 = 100;
/// The file that B and C share.
const FILE: i32 = 42;

/// A testbed over ideal devices, each wrapped by the test.
pub struct IdealBed {
    fabric: Rc<RefCell<Fabric>>,
    devices: Vec<Box<dyn Device>>,
    waited: u32,
}

impl IdealBed {
    /// `wrap` makes of each ideal device what the suite is to see.
    pub fn new(wrap: impl Fn(Ideal) -> Box<dyn Device>) -> IdealBed {
        let fabric = Rc::new(RefCell::new(Fabric::new()));
        let devices = [(0, 0), (1, 1), (2, 1)].map(|(process, hca)| wrap(Ideal::new(fabric.clone(), process, hca)));
        IdealBed { fabric, devices: devices.into(), waited: 0 }
    }
}

/// Which adapter an end is on.
fn hca(end: End) -> usize {
    usize::from(end != End::A)
}

impl Testbed for IdealBed {
    fn device(&mut self, end: End) -> &mut dyn Device {
        &mut *self.devices[end as usize]
    }

    fn port(&self, _: End) -> u8 {
        1
    }

    fn address(&mut self, _: End, to: End) -> Result<AddressVector, String> {
        let dlid = self.fabric.borrow().ports[hca(to)].lid;
        Ok(AddressVector { port: 1, dlid, ..AddressVector::default() })
    }

    fn has_sibling(&self) -> bool {
        true
    }

    fn shared_file(&mut self) -> Option<[i32; 2]> {
        Some([FILE, FILE])
    }

    fn begin_wait(&mut self) {
        self.waited = 0;
    }

    fn pass(&mut self) -> bool {
        self.waited += 1;
        self.fabric.borrow_mut().tick();
        self.waited < TIMEOUT
    }

    fn run_until_idle(&mut self) {
        for _ in 0..IDLE_POLLS {
            self.fabric.borrow_mut().tick();
        }
    }

    fn offers(&self, _: Fault) -> bool {
        true
    }

    fn inject(&mut self, end: End, fault: Fault) -> Result<(), String> {
        let mut fabric = self.fabric.borrow_mut();
        let port = &mut fabric.ports[hca(end)];
        let event = match fault {
            Fault::LinkDown => {
                port.up = false;
                AsyncEvent::PortError(1)
            }
            Fault::LinkUp => {
                port.up = true;
                AsyncEvent::PortActive(1)
            }
            Fault::ChangeLid => {
                port.lid += 0x40;
                AsyncEvent::LidChange(1)
            }
            Fault::ChangeGid => {
                port.gids += 1;
                AsyncEvent::GidChange(1)
            }
            Fault::DeviceFatal => {
                port.dead = true;
                AsyncEvent::DeviceFatal
            }
            Fault::PathDown(path) => {
                fabric.dead_path = Some(path.into());
                return Ok(());
            }
            Fault::LoseAcks(count) => {
                port.lose_acks = count;
                return Ok(());
            }
            Fault::LosePackets(count) => {
                port.lose_packets = count;
                return Ok(());
            }
            Fault::CorruptPacket => {
                port.lose_packets = 1;
                return Ok(());
            }
            Fault::FailRegistration => {
                port.fail_registration = true;
                return Ok(());
            }
        };
        let processes: &[usize] = if end == End::A { &[0] } else { &[1, 2] };
        processes.iter().for_each(|process| fabric.events[*process].push_back(event));
        Ok(())
    }
}
