//! InfiniBand and RoCE devices, or why there are none.

use serde::Serialize;

use super::Obstacle;

/// What verbs offers here.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verbs {
    /// The devices.
    pub devices: Vec<Device>,
    /// Why there are none.
    pub obstacle: Option<Obstacle>,
}

/// A device.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its identifier.
    pub guid: String,
    /// Its firmware's version.
    pub firmware: String,
    /// Whether it can do XRC.
    pub xrc: bool,
    /// Its ports.
    pub ports: Vec<Port>,
    /// Why nothing more is known.
    pub obstacle: Option<Obstacle>,
}

/// A port of a device.
#[derive(Clone, Debug, Serialize)]
pub struct Port {
    /// Its number.
    pub number: u8,
    /// InfiniBand or Ethernet.
    pub link_layer: String,
    /// Its state.
    pub state: String,
    /// Its speed.
    pub mbit_per_second: Option<u32>,
    /// Its addresses.
    pub gids: Vec<String>,
}

/// Asks the library.
pub fn look() -> Verbs {
    let none = |obstacle| Verbs { devices: Vec::new(), obstacle: Some(obstacle) };
    let library = match rerail_verbs::Verbs::open() {
        Ok(library) => library,
        Err(error) => {
            let packages = rerail_verbs::OpenError::PACKAGES.join(" ");
            return none(Obstacle::new(error, format!("apt install {packages} (or the distribution's rdma-core)")));
        }
    };
    let devices = match library.devices() {
        Ok(devices) => devices,
        Err(error) => return none(Obstacle::new(error, "load the driver's modules; check rights on /dev/infiniband")),
    };
    if devices.is_empty() {
        return none(Obstacle::new(
            "libibverbs is there, but the kernel has no RDMA device",
            "load the HCA's driver; without an HCA: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE",
        ));
    }
    Verbs { devices: devices.iter().map(|device| look_at(&device)).collect(), obstacle: None }
}

fn look_at(device: &rerail_verbs::Device<'_>) -> Device {
    let mut seen = Device {
        name: device.name(),
        guid: device.guid().to_string(),
        firmware: "firmware unknown".to_owned(),
        xrc: false,
        ports: Vec::new(),
        obstacle: None,
    };
    let context = match device.open() {
        Ok(context) => context,
        Err(error) => {
            seen.obstacle = Some(Obstacle::new(error, "check rights on /dev/infiniband and the provider's package"));
            return seen;
        }
    };
    match context.attributes() {
        Ok(attributes) => {
            seen.firmware = format!("firmware {}", attributes.firmware);
            seen.xrc = attributes.xrc;
        }
        Err(error) => seen.obstacle = Some(Obstacle::new(error, "check the device with ibv_devinfo")),
    }
    match context.ports() {
        Ok(ports) => {
            seen.ports = ports
                .iter()
                .map(|port| Port {
                    number: port.number,
                    link_layer: port.link_layer.to_string(),
                    state: port.state.to_string(),
                    mbit_per_second: port.mbit_per_second(),
                    gids: context.gids(port).unwrap_or_default().iter().map(|entry| entry.gid.to_string()).collect(),
                })
                .collect();
        }
        Err(error) => seen.obstacle = Some(Obstacle::new(error, "check the device with ibv_devinfo")),
    }
    seen
}
