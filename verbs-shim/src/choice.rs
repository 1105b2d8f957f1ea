//! Which port of a device and which of its GIDs to use: the requested one if it can be used, else the first
//! that can.

use crate::Context;
use crate::error::QueryError;
use crate::gid::GidEntry;
use crate::port::{LinkLayer, Port, PortState};

/// A port that can be used, and the GID to use it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The port.
    pub port: Port,
    /// Index of the GID in the port's table; 0 on InfiniBand unless another was requested.
    pub gid_index: u8,
}

/// Why a device offers no such port or GID.
#[derive(Debug, thiserror::Error)]
pub enum ChoiceError {
    /// It has no port of that number.
    #[error("{device} has no port {port}: it has {ports}")]
    NoPort {
        /// The device.
        device: String,
        /// The number.
        port: u8,
        /// How many it has; they count from 1.
        ports: u8,
    },
    /// The port is not active.
    #[error("{device} port {port} is not active: it is {state}")]
    PortDown {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// Its state.
        state: PortState,
        /// The type of its link.
        link_layer: LinkLayer,
    },
    /// None of its ports is active.
    #[error("{device} has no active port:{}", states(.ports))]
    NoActivePort {
        /// The device.
        device: String,
        /// Number and state of each.
        ports: Vec<(u8, PortState)>,
    },
    /// The requested GID is not in use, or the port has none.
    #[error("{device} port {port}{}", match .index {
        Some(index) => format!(": GID index {index} is not in use"),
        None => " has no GID".to_owned(),
    })]
    NoGid {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// The type of its link.
        link_layer: LinkLayer,
        /// The requested index; `None`: any.
        index: Option<u8>,
        /// Those that are in use.
        used: Vec<GidEntry>,
    },
    /// The query failed.
    #[error("{0}")]
    Query(#[from] QueryError),
}

impl Context {
    /// Chooses a port and a GID: the requested ones, which must then be there, or the first active port and
    /// the GID that reaches furthest (on Ethernet: RoCE v2 before v1, an IPv4 address before others, a
    /// link-local one last).
    ///
    /// # Errors
    /// [`ChoiceError`] lists the alternatives.
    pub fn choose(&self, port: Option<u8>, gid_index: Option<u8>) -> Result<Choice, ChoiceError> {
        let port = match port {
            Some(number) => self.active_port(number)?,
            None => self.first_active_port()?,
        };
        let used = self.gids(&port)?;
        let found = match gid_index {
            Some(index) => used.iter().find(|entry| entry.index == u32::from(index)),
            None => GidEntry::best(&used, port.link_layer),
        };
        match found.and_then(|entry| u8::try_from(entry.index).ok()) {
            Some(gid_index) => Ok(Choice { port, gid_index }),
            None => Err(ChoiceError::NoGid {
                device: self.name().to_owned(),
                port: port.number,
                link_layer: port.link_layer,
                index: gid_index,
                used,
            }),
        }
    }

    fn active_port(&self, number: u8) -> Result<Port, ChoiceError> {
        let device = || self.name().to_owned();
        let ports = self.attributes()?.ports;
        if !(1..=ports).contains(&number) {
            return Err(ChoiceError::NoPort { device: device(), port: number, ports });
        }
        let port = self.port(number)?;
        if port.state != PortState::Active {
            let (state, link_layer) = (port.state, port.link_layer);
            return Err(ChoiceError::PortDown { device: device(), port: number, state, link_layer });
        }
        Ok(port)
    }

    fn first_active_port(&self) -> Result<Port, ChoiceError> {
        let (mut seen, mut refused) = (Vec::new(), None);
        for port in self.each_port()? {
            match port {
                Ok(port) if port.state == PortState::Active => return Ok(port),
                Ok(port) => seen.push((port.number, port.state)),
                Err(why) => refused = refused.or(Some(why)),
            }
        }
        match refused {
            Some(why) if seen.is_empty() => Err(ChoiceError::Query(why)),
            _ => Err(ChoiceError::NoActivePort { device: self.name().to_owned(), ports: seen }),
        }
    }
}

impl ChoiceError {
    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            ChoiceError::NoPort { ports: 1, .. } => "choose port 1".to_owned(),
            ChoiceError::NoPort { ports, .. } => format!("choose a port from 1 to {ports}"),
            ChoiceError::PortDown { state: PortState::Initialising | PortState::Armed, .. } => {
                "start a subnet manager (opensm) on this subnet".to_owned()
            }
            ChoiceError::PortDown { link_layer: LinkLayer::Ethernet, .. } => {
                "ip link set INTERFACE up, and look at the cable".to_owned()
            }
            ChoiceError::PortDown { .. } => "look at the cable and the switch".to_owned(),
            ChoiceError::NoActivePort { ports, .. } => {
                let waits = |state: &PortState| matches!(state, PortState::Initialising | PortState::Armed);
                match ports.iter().any(|(_, state)| waits(state)) {
                    true => "start a subnet manager (opensm) on this subnet".to_owned(),
                    false => "look at the cables; on Ethernet: ip link set INTERFACE up".to_owned(),
                }
            }
            ChoiceError::NoGid { used, link_layer: LinkLayer::InfiniBand, .. } if used.is_empty() => {
                "an InfiniBand port has a GID by itself: look at the kernel's messages (dmesg) and ibv_devinfo -v"
                    .to_owned()
            }
            ChoiceError::NoGid { used, .. } if used.is_empty() => {
                "give the network interface an address: ip address add ADDRESS/LENGTH dev INTERFACE".to_owned()
            }
            ChoiceError::NoGid { used, .. } => {
                let shown: Vec<String> = used.iter().take(8).map(shown).collect();
                format!("choose one that is in use: {}", shown.join(", "))
            }
            ChoiceError::Query(_) => "look at the kernel's messages (dmesg): the device may be gone".to_owned(),
        }
    }
}

/// The ports' states, in words.
fn states(ports: &[(u8, PortState)]) -> String {
    ports.iter().map(|(number, state)| format!(" {number} is {state}")).collect()
}

fn shown(entry: &GidEntry) -> String {
    match entry.kind {
        Some(kind) => format!("{} ({}, {kind})", entry.index, entry.gid),
        None => format!("{} ({})", entry.index, entry.gid),
    }
}
