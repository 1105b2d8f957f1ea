//! What a scenario must keep beyond the types of its values. Messages name key, value and what is allowed.

use super::{CostSpec, HcaSpec, RailSpec, Scenario, device, settings};
use crate::cluster::place::Place;

/// More ranks than this would not fit the LIDs of a subnet, nor this machine.
const RANKS_MAX: u32 = 1 << 16;

impl Scenario {
    /// Checks every value.
    ///
    /// # Errors
    /// One sentence that names key and value.
    pub fn check(&self) -> Result<(), String> {
        let size = u64::from(self.hosts) * u64::from(self.ranks_per_host);
        if size == 0 || size > RANKS_MAX.into() {
            return Err(format!(
                "hosts = {} times ranks_per_host = {} make {size} ranks: 1 to {RANKS_MAX} are possible",
                self.hosts, self.ranks_per_host
            ));
        }
        let hcas = self.hcas();
        for (index, hca) in hcas.iter().enumerate() {
            self.check_hca(index, hca)?;
        }
        if self.buses.len() > 1 && self.hcas.is_empty() {
            return Err(format!("buses: {} are listed, and no hcas that name theirs", self.buses.len()));
        }
        for (index, subnet) in self.subnets.iter().enumerate() {
            if subnet.planes.is_empty() {
                return Err(format!("subnets[{index}].planes = []: at least one way must lead through"));
            }
        }
        let rails = self.rails();
        if rails.is_empty() || rails.len() > 63 {
            return Err(format!("rails: {} are listed, 1 to 63 are possible", rails.len()));
        }
        for (index, rail) in rails.iter().enumerate() {
            let (RailSpec::Hca { hca, port, .. } | RailSpec::Stream { hca, port }) = rail else {
                if index > 0 {
                    return Err(format!("rails[{index}].kind = \"shm\": shared memory comes before all other rails"));
                }
                continue;
            };
            if let (RailSpec::Stream { .. }, Some(spec)) = (rail, hcas.get(*hca as usize))
                && spec.cost != (CostSpec { poll_ns: spec.cost.poll_ns, ..CostSpec::default() })
            {
                return Err(format!("hcas[{hca}].cost: of a card that carries streams, poll_ns alone is simulated"));
            }
            let ports = hcas.get(*hca as usize).map(|hca| hca.ports);
            match ports {
                None => return Err(format!("rails[{index}].hca = {hca}: hosts have {} HCAs", hcas.len())),
                Some(ports) if *port >= ports => {
                    return Err(format!("rails[{index}].port = {port}: hca {hca} has {ports} ports"));
                }
                Some(_) => {}
            }
            if let (RailSpec::Hca { path, .. }, Some(spec)) = (rail, hcas.get(*hca as usize))
                && u32::from(*path) >= 1 << spec.lmc
            {
                return Err(format!(
                    "rails[{index}].path = {path}: with lmc {}, ports have {} paths",
                    spec.lmc,
                    1 << spec.lmc
                ));
            }
        }
        for (index, fault) in self.faults.iter().enumerate() {
            if !self.has_place(fault.fault.place) {
                return Err(format!("faults[{index}].where = \"{}\": there is no such place", fault.fault.place));
            }
            if fault.at.time() > self.limits.safety.time() {
                let (at, safety) = (fault.at, self.limits.safety);
                return Err(format!(
                    "faults[{index}].at = \"{at}\" is never reached: faults happen until limits.safety = \"{safety}\""
                ));
            }
        }
        for (index, load) in self.loads.iter().enumerate() {
            load.check(self, &format!("loads[{index}]"))?;
            if self.loads[..index].iter().any(|other| other.at == load.at) {
                return Err(format!(
                    "loads[{index}].where = \"{}\": another load is there; give one all the steps",
                    load.at
                ));
            }
        }
        if let Some(random) = &self.random {
            random.check()?;
        }
        if let Some(liar) = &self.liar {
            liar.check(self)?;
        }
        for (key, value, max) in [
            ("cpu.slow_polls_per_thousand", u64::from(self.cpu.slow_polls_per_thousand), 1000),
            ("shm.posts_max", u64::from(self.shm.posts_max).wrapping_sub(1), 4095),
        ] {
            if value > max {
                return Err(format!(
                    "{key} = {value} is out of range: at most {max}, and not 0 where that means nothing"
                ));
            }
        }
        let ring = self.ring();
        ring.check().map_err(|error| {
            let also = if error.field == "cells" { "a power of two" } else { "a multiple of 16" };
            format!("shm.{} makes {}: {} to {}, {also}", error.field, error.value, error.min, error.max)
        })?;
        if self.limits.inspection_period.0 == 0 {
            return Err("limits.inspection_period = \"0ns\": time would stand still".into());
        }
        self.core_config(0, 0).validate().map_err(|error| settings::describe(&error))
    }

    fn check_hca(&self, index: usize, hca: &HcaSpec) -> Result<(), String> {
        if device::preset(&hca.device).is_none() {
            let names: Vec<_> = device::PRESETS.iter().map(|preset| preset.name).collect();
            let key = if self.hcas.is_empty() { "device".to_owned() } else { format!("hcas[{index}].device") };
            return Err(format!("{key} = \"{}\" is unknown; there are: {}", hca.device, names.join(", ")));
        }
        if let Some(mtu) = hca.limits.map(|limits| limits.mtu).filter(|mtu| ![256, 512, 1024, 2048, 4096].contains(mtu))
        {
            return Err(format!("hcas[{index}].limits.mtu = {mtu}: 256, 512, 1024, 2048 and 4096 are possible"));
        }
        if hca.ports == 0 || hca.ports > 8 {
            return Err(format!("hcas[{index}].ports = {}: 1 to 8 are possible", hca.ports));
        }
        if hca.lmc > 7 {
            return Err(format!("hcas[{index}].lmc = {}: 0 to 7 are possible", hca.lmc));
        }
        if !hca.subnets.is_empty() && hca.subnets.len() != hca.ports as usize {
            let (listed, ports) = (hca.subnets.len(), hca.ports);
            return Err(format!("hcas[{index}].subnets lists {listed} for {ports} ports"));
        }
        if !self.buses.is_empty() && hca.bus as usize >= self.buses.len() {
            return Err(format!("hcas[{index}].bus = {}: hosts have {} buses", hca.bus, self.buses.len()));
        }
        let subnets = self.subnets.len() as u32;
        if let Some(subnet) = hca.subnets.iter().find(|subnet| subnets > 0 && **subnet >= subnets) {
            return Err(format!("hcas[{index}].subnets has {subnet}: there are {subnets}"));
        }
        // A subnet has 48K unicast LIDs (InfiniBand Architecture Specification, 4.1.3), 2^lmc for each port.
        let lids = u64::from(self.hosts) << hca.lmc;
        if lids > 0xBFFF - 0x80 {
            return Err(format!("hosts = {} with hcas[{index}].lmc = {} need {lids} LIDs", self.hosts, hca.lmc));
        }
        Ok(())
    }

    /// The subnet of a port; ports of all HCAs of a host are counted through.
    pub(crate) fn subnet_of(&self, hca: usize, port: u32) -> u32 {
        let hcas = self.hcas();
        if let Some(subnet) = hcas.get(hca).and_then(|hca| hca.subnets.get(port as usize)) {
            return *subnet;
        }
        let counted = hcas.iter().take(hca).map(|hca| hca.ports).sum::<u32>() + port;
        match self.subnets.len() as u32 {
            0 => counted,
            // Ports without a subnet of their own go to the last.
            subnets => counted.min(subnets - 1),
        }
    }

    /// How many subnets there are.
    pub(crate) fn subnet_count(&self) -> u32 {
        let ports = self.hcas().into_iter().enumerate();
        let named = ports.flat_map(|(hca, spec)| (0..spec.ports).map(move |port| (hca, port)));
        let highest = named.map(|(hca, port)| self.subnet_of(hca, port) + 1).max().unwrap_or(0);
        highest.max(self.subnets.len() as u32)
    }

    /// How rings are cut: a slot holds the largest header beside its payload.
    pub(crate) fn ring(&self) -> rerail_core::shm::RingConfig {
        let slot_bytes = self.shm.slot_bytes.saturating_add(rerail_core::wire::HEADER_BYTES_MAX as u32);
        rerail_core::shm::RingConfig { cells: self.shm.cells, slots: self.shm.slots, slot_bytes }
    }

    /// Whether a place is in this scenario.
    pub(crate) fn has_place(&self, place: Place) -> bool {
        let hcas = self.hcas();
        let ports_of = |hca: u32| hcas.get(hca as usize).map_or(0, |hca| hca.ports);
        match place {
            Place::Cluster => true,
            Place::Rank(rank) => rank < self.size(),
            Place::RankHca { rank, hca } => rank < self.size() && ports_of(hca) > 0,
            Place::Hca { host, hca } => host < self.hosts && ports_of(hca) > 0,
            Place::Port { host, hca, port } => host < self.hosts && port < ports_of(hca),
            Place::Bus { host, bus } => host < self.hosts && bus < self.bus_count(),
            Place::Subnet(subnet) => subnet < self.subnet_count(),
            Place::Plane { subnet, plane } => {
                let planes = self.subnets.get(subnet as usize).map_or(1, |subnet| subnet.planes.len());
                subnet < self.subnet_count() && (plane as usize) < planes
            }
        }
    }
}
