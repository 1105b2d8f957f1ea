//! Everything between ranks, as the loop sees it: rings, devices and pipes, each with its faults.

use std::cell::RefCell;
use std::rc::Rc;

use rerail_core::time::Time;
use rerail_linux::rail::Rail;

use super::devices::{Devices, is_of_devices};
use super::fault::{Fault, Kind};
use super::place::Place;
use super::topology::{Plan, carries_streams, is_of_wires};
use crate::net::Net;
use crate::rails::{PipeNet, SharedPipes, ShmHub, StreamRail};
use crate::scenario::{RailSpec, Scenario, preset};
use crate::trace::Trace;

/// Rings and wires.
pub(super) struct Wires {
    shm: ShmHub,
    devices: Devices,
    pipes: SharedPipes,
    /// Where places are on the net of the pipes.
    plan: Plan,
}

impl Wires {
    /// Those of a scenario.
    pub(super) fn build(scenario: &Scenario, seed: u64, trace: &Trace) -> Result<Self, String> {
        let hosts = (0..scenario.size()).map(|rank| scenario.host_of(rank)).collect();
        let shm = ShmHub::new(hosts, scenario.ring(), scenario.shm.posts_max, scenario.shm.latency_ns);
        let streams = carries_streams(scenario)?;
        let verbs: Vec<bool> = streams.iter().map(|streams| !streams).collect();
        let devices = Devices::build(scenario, seed, &verbs, trace);
        let mut net = Net::new(seed);
        let plan = Plan::lay_out(scenario, &mut net, &streams);
        plan.settle(&mut net);
        Ok(Wires { shm, devices, pipes: Rc::new(RefCell::new(PipeNet::over(net))), plan })
    }

    /// The `nth` rail of its kind of a rank.
    pub(super) fn rail(
        &mut self,
        scenario: &Scenario,
        rank: u32,
        nth: u8,
        spec: &RailSpec,
    ) -> Result<Box<dyn Rail>, String> {
        match spec {
            RailSpec::Shm {} => Ok(Box::new(self.shm.rail(rank))),
            RailSpec::Hca { hca, .. } => {
                let _ = self.devices.open(rank, *hca)?;
                Err("verbs over a software HCA is not simulated yet".into())
            }
            RailSpec::Stream { hca, port } => {
                let place = (scenario.host_of(rank), *hca, *port);
                let id = self.plan.ports.get(&place).ok_or("there is no such port")?;
                self.pipes.borrow_mut().listen(nth, rank, *id);
                let preset = scenario.hcas().get(*hca as usize).and_then(|hca| preset(&hca.device));
                let rate = preset.map_or(0, |preset| preset.link.bytes_per_second);
                Ok(Box::new(StreamRail::new(self.pipes.clone(), nth, rank, rate)))
            }
        }
    }

    /// When something happens next.
    pub(super) fn next_event(&self) -> Option<Time> {
        self.pipes.borrow().next_event().into_iter().chain(self.devices.next_event()).min()
    }

    /// Tells what is not told it by a driver what time it is: a rank is about to act.
    pub(super) fn set_now(&mut self, now: Time) {
        self.shm.set_now(now);
        self.advance(now);
    }

    /// Lets everything happen that happens until `now`.
    pub(super) fn advance(&mut self, now: Time) {
        self.devices.advance(now);
        self.pipes.borrow_mut().advance(now);
    }

    /// Ranks to whom something becomes visible, and when.
    pub(super) fn take_woken(&mut self, woken: &mut Vec<(u32, Time)>) {
        self.shm.take_woken(woken);
        self.devices.take_woken(woken);
        self.pipes.borrow_mut().take_woken(woken);
    }

    /// Events on the wires so far.
    pub(super) fn events(&self) -> u64 {
        self.devices.events() + self.pipes.borrow().net().stats().events
    }

    /// Bytes of ring memory of all pairs.
    pub(super) fn ring_bytes(&self) -> u64 {
        self.shm.ring_bytes()
    }

    /// Objects of all devices.
    pub(super) fn objects(&self) -> usize {
        self.devices.objects()
    }

    /// A process is gone: its devices, pipes and rings with it.
    pub(super) fn kill(&mut self, rank: u32) {
        self.shm.kill(rank);
        self.devices.kill(rank);
        self.pipes.borrow_mut().kill(rank);
    }

    /// A fault of wires or devices happens.
    pub(super) fn begin(&mut self, now: Time, fault: &Fault, until: Option<Time>) {
        self.devices.begin(now, fault, until);
        let pipes = &mut *self.pipes.borrow_mut();
        match (fault.kind, fault.place) {
            (Kind::StreamReset, Place::Port { host, hca, port }) => {
                if let Some(port) = self.plan.ports.get(&(host, hca, port)) {
                    pipes.reset(*port);
                }
            }
            _ => self.plan.begin(pipes.net_mut(), now, fault, until),
        }
    }

    /// It is over.
    pub(super) fn end(&mut self, now: Time, fault: &Fault) {
        self.devices.end(now, fault);
        self.plan.end(self.pipes.borrow_mut().net_mut(), now, fault);
    }

    /// All faults are over.
    pub(super) fn heal(&mut self, now: Time) {
        self.devices.heal(now);
        self.plan.heal(self.pipes.borrow_mut().net_mut(), now);
    }
}

/// Whether a fault of wires or devices can be simulated.
pub(super) fn knows(kind: Kind) -> bool {
    is_of_wires(kind) || is_of_devices(kind) || kind == Kind::StreamReset
}
