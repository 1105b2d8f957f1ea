//! A device of libibverbs behind the contract.
//!
//! | file | holds |
//! |---|---|
//! | `mod` | the device, its parts, the reporting of errors |
//! | `device` | the trait; making and destroying objects: prerequisites and users |
//! | `queue_pairs` | changing and querying queue pairs |
//! | `work` | posting and polling |
//! | `events` | events and the descriptors to wait on |
//! | `removal` | noticing that the device is removed |
//! | `attributes` | attributes in the library's form and back |
//! | `limits` | the limits of the device |
//! | `names` | names with generations |
//!
//! Parts of the contract that a device may lack are done here: names that end with their objects, counts of
//! users, transitions refused by our own table, limits reported before the kernel returns `EINVAL`, and
//! completions of queue pairs that are gone or were reset taken out of the queues
//! ([`sweep`](IbDevice::sweep)), but for XRC targets, which name no queue.
//!
//! Invariant: all objects made through a device die with it, before its context does ([`Drop`]).

mod attributes;
mod device;
mod events;
mod limits;
mod names;
mod queue_pairs;
mod removal;
mod work;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::{fmt, io};

use self::names::{Entry, Names};
use self::removal::Removal;
use crate::contract::{
    AhId, Attrs, Completion, CreateError, Kind, Limits, ModifyError, PdId, QpInit, QpState, XrcSrqInit,
};
use crate::ffi::{Ah, Channel, Cq, Handle, Mr, Object, Pd, Qp, Scratch, Srq, Xrcd};
use crate::{Context, Offers, QueryError};

/// An open device of libibverbs, as the contract's [`Device`](crate::contract::Device).
///
/// One thread at a time uses it; another device opened on the same hardware is as independent as in another
/// process. Operations that a thread repeats for each message take no lock of this crate's and allocate
/// nothing; the provider's own locks are uncontended.
pub struct IbDevice {
    name: String,
    limits: Limits,
    offers: Offers,
    /// Flags of every registration: relaxed ordering.
    registration_flags: u32,
    /// It had a fatal error, or was unplugged.
    gone: bool,
    /// How long the last registration took.
    registration_ns: u64,
    /// How long the last address kept us.
    address_ns: u64,
    event_timer: EventTimer,
    removal: Option<Removal>,
    scratch: Scratch,
    qps: Names<QpEntry>,
    srqs: Names<Entry<Srq, KnownSrq>>,
    ahs: Names<Entry<Ah, PdId>>,
    mrs: Names<Entry<Mr, PdId>>,
    cqs: Names<Entry<Cq, KnownCq>>,
    xrcds: Names<Entry<Xrcd>>,
    pds: Names<Entry<Pd>>,
    /// Descriptors of both sorts of events together.
    wait: OwnedFd,
    channel: Option<Channel>,
    handle: Handle,
}

/// How often asynchronous events are looked for: each look is a system call, which takes longer than all else
/// of a round that finds nothing.
struct EventTimer {
    /// Calls between two looks, as long as nothing is found.
    pause: u32,
    /// Calls to come that don't look.
    left: u32,
}

impl EventTimer {
    /// Every `calls`-th call looks.
    fn every(calls: u32) -> EventTimer {
        EventTimer { pause: calls.saturating_sub(1), left: 0 }
    }

    /// Whether this call does not look.
    #[inline]
    fn passes(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        true
    }

    /// The next call looks for everything.
    fn force_next(&mut self) {
        self.left = 0;
    }
}

type QpEntry = Entry<Qp, KnownQp>;

struct KnownQp {
    /// As requested, with the sizes that the device gave.
    init: QpInit,
    number: u32,
    /// As last set; the device may have gone on to SQE or ERR by itself.
    state: QpState,
    /// The attributes set since RESET.
    set: Attrs,
}

#[derive(Default)]
struct KnownCq {
    /// It was full when one more came.
    broken: bool,
    /// It is broken, or something is kept.
    is_special: bool,
    /// Events read, for when it is destroyed.
    events: u32,
    /// Completions taken out while those of a dead queue pair were swept away; older than all in the queue.
    kept: VecDeque<Completion>,
}

impl KnownCq {
    /// To be called after either has changed.
    fn refresh(&mut self) {
        self.is_special = self.broken || !self.kept.is_empty();
    }
}

struct KnownSrq {
    pd: PdId,
    depth: u32,
    sges: u32,
    /// Domain and completion queue, where it is one for XRC.
    xrc: Option<XrcSrqInit>,
}

impl IbDevice {
    /// Takes over an open device.
    ///
    /// # Errors
    /// The device's limits can't be queried, or it makes no event channel.
    pub fn new(context: Context) -> Result<IbDevice, QueryError> {
        let offers = context.offers();
        let (name, node, handle) = context.into_parts();
        let failed = |error| QueryError::of_device(name.clone(), error);
        let attr = handle.query_device().map_err(failed)?;
        handle.unblock_events().map_err(failed)?;
        let channel = handle.create_channel().map_err(failed)?;
        let removal = Removal::of_device(&name, &node);
        let wait = events::wait_for(&handle, &channel, removal.as_ref()).map_err(failed)?;
        let limits = limits::limits(&handle, &channel, &attr);
        Ok(IbDevice {
            limits,
            offers,
            registration_flags: 0,
            gone: false,
            registration_ns: 0,
            address_ns: 0,
            event_timer: EventTimer::every(1),
            removal,
            scratch: Scratch::new(),
            qps: Names::new(),
            srqs: Names::new(),
            ahs: Names::new(),
            mrs: Names::new(),
            cqs: Names::new(),
            xrcds: Names::new(),
            pds: Names::new(),
            wait,
            channel: Some(channel),
            handle,
            name,
        })
    }

    /// Registers memory from now on so that writes to it may pass each other on the bus
    /// (`IBV_ACCESS_RELAXED_ORDERING`): faster on some machines, harmless where only completions are relied
    /// on, ignored where unknown.
    pub fn set_relaxed_ordering(&mut self, relaxed: bool) {
        self.registration_flags = if relaxed { rdma_core_sys::IBV_ACCESS_RELAXED_ORDERING } else { 0 };
    }

    /// Asynchronous events are looked for at each `calls`-th call of
    /// [`async_event`](crate::contract::Device::async_event) only, as long as none comes; at the very next
    /// one after a failed completion, and after the device was slept on (which ends with
    /// [`cq_event`](crate::contract::Device::cq_event)). At first: at each.
    pub fn set_event_interval(&mut self, calls: u32) {
        self.event_timer = EventTimer::every(calls);
    }

    fn alive(&self) -> Result<(), CreateError> {
        if self.gone { Err(CreateError::DeviceGone) } else { Ok(()) }
    }

    fn has_port(&self, port: u8) -> Result<(), CreateError> {
        in_range(Kind::Port, port.into(), 1, self.limits.ports.into())
    }
}

impl Drop for IbDevice {
    fn drop(&mut self) {
        // Users before the objects they use. Errors mean that the device is gone; the kernel
        // releases the rest.
        fn end<R: Object, K>(handle: &Handle, names: &mut Names<Entry<R, K>>) {
            names.drain().for_each(|entry| drop(handle.destroy(entry.raw)));
        }
        let handle = &self.handle;
        end(handle, &mut self.qps);
        end(handle, &mut self.srqs);
        end(handle, &mut self.ahs);
        end(handle, &mut self.mrs);
        for entry in self.cqs.drain() {
            handle.ack_cq_events(&entry.raw, entry.events);
            let _ = handle.destroy(entry.raw);
        }
        end(handle, &mut self.xrcds);
        end(handle, &mut self.pds);
        if let Some(channel) = self.channel.take() {
            self.handle.destroy_channel(channel);
        }
    }
}

impl fmt::Debug for IbDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IbDevice").field("name", &self.name).field("gone", &self.gone).finish_non_exhaustive()
    }
}

fn in_range(what: Kind, value: u64, min: u64, max: u64) -> Result<(), CreateError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(CreateError::OutOfRange { what, value, min, max }) }
}

/// The system's number; `EIO` where the library gave none.
fn code(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// The kernel's error once the device is gone (`ib_uverbs`: every command of a disassociated file is `EIO`).
fn means_gone(code: i32) -> bool {
    matches!(code, libc::EIO | libc::ENODEV | libc::ENXIO)
}

fn create_error(error: io::Error) -> CreateError {
    match code(&error) {
        code if means_gone(code) => CreateError::DeviceGone,
        code => CreateError::System { code },
    }
}

fn modify_error(error: io::Error) -> ModifyError {
    match code(&error) {
        code if means_gone(code) => ModifyError::DeviceGone,
        code => ModifyError::System { code },
    }
}

fn unknown_ah(handle: AhId) -> crate::contract::PostReason {
    crate::contract::PostReason::UnknownHandle { name: handle.0 }
}
