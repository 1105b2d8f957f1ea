//! A device that breaks, and is opened again (resilient-2010, IV.B.2). Rule V-12.
//!
//! On a fatal event all objects of the device are invalid. All connections end, all registrations are taken
//! back, and the device is closed, which ends its possible accesses to memory; only then it is reported to
//! the core. If the rail has a means to reopen, it opens the device again, with pauses that double: domain,
//! queues and the queue pair for datagrams are made again, the slab is registered again, nothing else: queue
//! pairs and registrations are made on demand. Attempts and nonces continue, so that peers take the next call
//! for a newer one, and it announces our new address (V-2).

use std::ops::{Deref, DerefMut};

use rerail_core::time::{Nanos, Time};
use rerail_verbs::contract::Device;

use super::VerbsRail;
use super::datagrams::Datagrams;
use super::open::{self, Made};
use super::options::{VerbsError, VerbsOptions};
use super::outage::Outage;
use super::receive::Receives;

/// A device that is open, or was.
pub(super) struct Held<D>(Option<D>);

impl<D> Held<D> {
    pub fn new(device: D) -> Self {
        Held(Some(device))
    }

    pub fn is_open(&self) -> bool {
        self.0.is_some()
    }

    pub fn get(&self) -> Option<&D> {
        self.0.as_ref()
    }
}

// All code that uses the device has checked `VerbsRail::broken`, or `is_open`.
impl<D> Deref for Held<D> {
    type Target = D;

    fn deref(&self) -> &D {
        let Some(device) = &self.0 else { unreachable!("a broken rail uses no device") };
        device
    }
}

impl<D> DerefMut for Held<D> {
    fn deref_mut(&mut self) -> &mut D {
        let Some(device) = &mut self.0 else { unreachable!("a broken rail uses no device") };
        device
    }
}

/// How a device comes back.
pub(super) struct Revival<D: Device> {
    reopen: Option<D::Opener>,
    next: Option<Attempt>,
    /// A report to the core is due: registrations are invalid.
    pub reset_due: bool,
    /// A report to the core is due: connections are possible again.
    pub back_due: bool,
    /// How often it has come back.
    pub times: u32,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    due: Time,
    /// The pause behind it.
    pause: Nanos,
    /// After this there is none.
    last: Option<Time>,
}

impl<D: Device> Revival<D> {
    pub const fn never() -> Self {
        Revival { reopen: None, next: None, reset_due: false, back_due: false, times: 0 }
    }

    /// When it is tried next.
    pub fn due(&self) -> Option<Time> {
        self.next.map(|attempt| attempt.due)
    }

    fn plan(&mut self, now: Time, options: &VerbsOptions) {
        self.reset_due = true;
        if self.reopen.is_some() {
            let pause = Nanos(options.reopen_first.0.saturating_mul(2)).min(options.reopen_max);
            let last = options.reopen_for.map(|span| now + span);
            self.next = Some(Attempt { due: now + options.reopen_first, pause, last });
        }
    }

    fn postpone(&mut self, now: Time, options: &VerbsOptions) {
        self.next = self.next.and_then(|Attempt { pause, last, .. }| {
            let due = now + pause;
            let pause = Nanos(pause.0.saturating_mul(2)).min(options.reopen_max);
            last.is_none_or(|last| due <= last).then_some(Attempt { due, pause, last })
        });
    }
}

impl<D: Device> VerbsRail<D> {
    /// Gives the rail a means to open its device again when it has broken: tried after `reopen_first`, then
    /// with pauses that double up to `reopen_max`, for `reopen_for` at most. The broken device is dropped
    /// before. The same port is used.
    #[must_use]
    pub fn reopen_with(mut self, reopen: D::Opener) -> Self {
        self.revival.reopen = Some(reopen);
        self
    }

    /// Drops the device, from which everything was taken back.
    pub(super) fn close_device(&mut self) {
        // Its objects are destroyed with it, and none of it can fail here: it is dead.
        self.device.0 = None;
        // Nor does it report completed messages any more.
        self.datagrams = Datagrams::new(self.options.datagrams);
        self.outage = None;
        self.revival.back_due = false;
        self.revival.plan(self.now, &self.options);
    }

    /// Opens the device again, when that is due.
    pub(super) fn revive(&mut self) {
        if self.device.is_open() || self.revival.due().is_none_or(|due| due > self.now) {
            return;
        }
        let Some(reopen) = &mut self.revival.reopen else { return };
        match reopen().map_err(|why| VerbsError::Create { what: "device", why }).and_then(|device| self.start(device)) {
            Ok(()) => {
                self.revival.next = None;
                tracing::info!(rail = %self.options.name, address = %self.port.address, "the device is back");
            }
            Err(why) => {
                tracing::debug!(rail = %self.options.name, %why, "the device is not back");
                self.device.0 = None;
                self.broken = true;
                self.revival.postpone(self.now, &self.options);
            }
        }
    }

    fn start(&mut self, mut device: D) -> Result<(), VerbsError> {
        let number = self.port.number;
        let domain = self.port.address.domain;
        let before = (&self.registry, (self.port.gid_index, self.port.address.gid));
        let Made { objects, mut port, registry, usable } =
            open::make(&mut device, number, &self.options, (&mut self.slab, self.port.qkey), Some(before))?;
        port.address.domain = domain;
        self.device = Held::new(device);
        self.revival.times = self.revival.times.wrapping_add(1);
        self.broken = false;
        (self.objects, self.port, self.registry) = (objects, port, registry);
        self.receives = Receives::new(&self.layout.queues);
        self.datagrams = Datagrams::new(self.options.datagrams);
        // A port that is down has no connections that could be ended.
        self.outage = (!usable).then_some(Outage { until: None });
        self.start_up()?;
        self.revival.back_due = usable;
        Ok(())
    }
}
