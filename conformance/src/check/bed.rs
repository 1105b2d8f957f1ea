//! The contract suite's testbed over a device of this machine, in real time.
//!
//! All three ends are openings of one device, each with a context of its own, as three processes would have
//! them: what goes from one to another passes through the device, on most without leaving it. Fresh for each
//! case.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rerail_contract::{End, Testbed};
use rerail_verbs::contract::{AddressVector, Device, GlobalRoute};
use rerail_verbs::{Choice, Devices, IbDevice, LinkLayer};

/// Hops that a packet may take: as many as the kernel's own packets.
const HOPS: u8 = 64;

/// How the device is used.
#[derive(Clone, Copy, Debug)]
pub struct BedParameters {
    /// Port; `None`: the first active one.
    pub port: Option<u8>,
    /// Index of the GID; `None`: the one that reaches furthest.
    pub gid_index: Option<u8>,
    /// Waiting for something is given up after so long.
    pub timeout: Duration,
    /// After this time pending work is complete.
    pub idle_time: Duration,
}

/// The bed.
pub struct DeviceBed {
    devices: [IbDevice; 3],
    choice: Choice,
    bed_parameters: BedParameters,
    until: Instant,
    /// The same file, opened for B and for C.
    shared: Option<[File; 2]>,
}

impl DeviceBed {
    /// Opens the device three times.
    pub fn open(devices: &Devices, name: &str, bed_parameters: BedParameters) -> Result<DeviceBed, String> {
        let device = devices.find(name).ok_or_else(|| format!("there is no device {name} any more"))?;
        let open = || device.open().map_err(|error| error.to_string());
        let first = open()?;
        let choice = first.choose(bed_parameters.port, bed_parameters.gid_index).map_err(|error| error.to_string())?;
        let take = |context| IbDevice::new(context).map_err(|error| error.to_string());
        let devices = [take(first)?, take(open()?)?, take(open()?)?];
        Ok(DeviceBed { devices, choice, bed_parameters, until: Instant::now(), shared: None })
    }
}

impl Testbed for DeviceBed {
    fn device(&mut self, end: End) -> &mut dyn Device {
        &mut self.devices[end as usize]
    }

    fn port(&self, _end: End) -> u8 {
        self.choice.port.number
    }

    fn address(&mut self, _from: End, to: End) -> Result<AddressVector, String> {
        let number = self.choice.port.number;
        let device = &self.devices[to as usize];
        // Read each time: both may change.
        let port = device.port(number).map_err(|error| error.to_string())?;
        let plain = AddressVector { port: number, dlid: port.lid, ..AddressVector::default() };
        if port.link_layer != LinkLayer::Ethernet {
            return Ok(plain);
        }
        let dgid = device.gid(number, self.choice.gid_index).map_err(|error| error.to_string())?;
        let route = GlobalRoute { dgid, source_index: self.choice.gid_index, hop_limit: HOPS, traffic_class: 0 };
        Ok(AddressVector { global: Some(route), ..plain })
    }

    fn has_sibling(&self) -> bool {
        true
    }

    fn shared_file(&mut self) -> Option<[i32; 2]> {
        if self.shared.is_none() {
            let path = std::env::temp_dir().join(format!("rerail-check-{}", std::process::id()));
            let open = || File::options().read(true).write(true).create(true).truncate(false).open(&path);
            let files = open().and_then(|first| Ok([first, open()?]));
            // Opened twice, the name is not needed any more.
            let _ = std::fs::remove_file(&path);
            self.shared = files.ok();
        }
        self.shared.as_ref().map(|files| [files[0].as_raw_fd(), files[1].as_raw_fd()])
    }

    fn begin_wait(&mut self) {
        self.until = Instant::now() + self.bed_parameters.timeout;
    }

    fn pass(&mut self) -> bool {
        std::thread::sleep(Duration::from_micros(20));
        Instant::now() < self.until
    }

    fn run_until_idle(&mut self) {
        std::thread::sleep(self.bed_parameters.idle_time);
    }
}
