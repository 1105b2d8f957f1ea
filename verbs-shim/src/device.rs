//! The library and the devices that it lists.

use std::{fmt, io};

use rdma_core_sys::{self as sys, Functions};

use crate::context::Context;
use crate::error::{DeviceError, ListError, OpenError};
use crate::ffi::{self, List};
use crate::gid::Guid;

/// libibverbs, loaded. Cheap to copy: the library stays for as long as the process lives.
#[derive(Clone, Copy)]
pub struct Verbs {
    functions: Functions,
}

impl Verbs {
    /// Loads the system's libibverbs.
    pub fn open() -> Result<Verbs, OpenError> {
        match Functions::load() {
            Ok(functions) => Ok(Verbs { functions }),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets this process fork while memory is registered (`ibv_fork_init(3)`): without it, on kernels that
    /// don't copy pinned pages at a fork (before 5.12), the next write of this process to such a page, or of
    /// a child, leaves the device with the other copy. A permanent switch of the library for the whole
    /// process, to be set before any registration; it queries the kernel, and does nothing where that is not
    /// needed (rdma-core 35 and later). Where it has an effect, children don't have registered pages, and
    /// huge pages can be registered only with `RDMAV_HUGEPAGES_SAFE` in the environment.
    ///
    /// # Errors
    /// The library's: `EINVAL` where memory was registered in this process before, `ENOSYS` where the library
    /// or the kernel does not support it.
    pub fn make_forks_safe(&self) -> io::Result<()> {
        ffi::fork_init(&self.functions)
    }

    /// The devices that are there now. Where the kernel has no RDMA there are none, which is no error.
    pub fn devices(&self) -> Result<Devices, ListError> {
        List::fetch(&self.functions).map(|list| Devices { list }).map_err(ListError)
    }

    /// Over other functions than the library's.
    #[cfg(test)]
    pub(crate) fn over(functions: Functions) -> Verbs {
        Verbs { functions }
    }
}

impl fmt::Debug for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verbs")
    }
}

/// A snapshot of the machine's RDMA devices.
pub struct Devices {
    list: List,
}

impl Devices {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them, in the library's order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Device<'_>> {
        (0..self.len()).map(|index| Device { list: &self.list, index })
    }

    /// The device of that name.
    pub fn find(&self, name: &str) -> Option<Device<'_>> {
        self.iter().find(|device| device.name() == name)
    }
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A device that can be opened.
#[derive(Clone, Copy)]
pub struct Device<'l> {
    list: &'l List,
    index: usize,
}

impl Device<'_> {
    /// The kernel's name for it: `mlx5_0`, `rxe0`.
    pub fn name(&self) -> String {
        self.list.name(self.index)
    }

    /// The character device that opening it needs.
    pub fn node_path(&self) -> String {
        format!("/dev/infiniband/{}", self.list.node_name(self.index))
    }

    /// Its node GUID; all zero where the library has none.
    pub fn guid(&self) -> Guid {
        Guid(self.list.guid(self.index))
    }

    /// The type of its node.
    pub fn node_kind(&self) -> NodeKind {
        self.list.kinds(self.index).0.into()
    }

    /// Its transport protocol.
    pub fn transport(&self) -> Transport {
        self.list.kinds(self.index).1.into()
    }

    /// The type of a device without InfiniBand or RoCE; `None`: it supports one of them.
    pub fn foreign(&self) -> Option<Foreign> {
        Foreign::of(self.node_kind(), self.transport())
    }

    /// Opens it. The context lives on its own: the list may go.
    pub fn open(&self) -> Result<Context, DeviceError> {
        match self.list.open(self.index) {
            Ok(handle) => Ok(Context::new(self.name(), self.node_path(), handle)),
            Err(error) => Err(DeviceError::new(self.name(), self.node_path(), error)),
        }
    }
}

impl fmt::Debug for Device<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.name()).field("guid", &self.guid()).finish()
    }
}

coded! {
    /// The sort of a node.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NodeKind(i32), "node type {}" {
        /// InfiniBand or RoCE adapter.
        ChannelAdapter = sys::IBV_NODE_CA, "channel adapter";
        /// InfiniBand switch.
        Switch = sys::IBV_NODE_SWITCH, "switch";
        /// InfiniBand router.
        Router = sys::IBV_NODE_ROUTER, "router";
        /// iWARP adapter.
        Rnic = sys::IBV_NODE_RNIC, "iWARP adapter";
        /// No standard sort.
        Unspecified = sys::IBV_NODE_UNSPECIFIED, "no standard sort";
    }
}

coded! {
    /// A device's transport.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Transport(i32), "transport {}" {
        /// InfiniBand's: on InfiniBand and RoCE.
        InfiniBand = sys::IBV_TRANSPORT_IB, "InfiniBand";
        /// iWARP.
        Iwarp = sys::IBV_TRANSPORT_IWARP, "iWARP";
    }
}

named! {
    /// Types of devices without InfiniBand or RoCE: they can carry no rail.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Foreign {
        /// iWARP.
        Iwarp = "an iWARP adapter connects by rdma_cm only, and rerail does not";
        /// Its vendor's own transport (EFA, usNIC).
        Vendor = "the device supports neither InfiniBand nor RoCE but its vendor's own transport";
    }
}

impl Foreign {
    /// `None`: it supports InfiniBand or RoCE.
    pub(crate) fn of(node: NodeKind, transport: Transport) -> Option<Foreign> {
        match (node, transport) {
            (NodeKind::Rnic, _) | (_, Transport::Iwarp) => Some(Foreign::Iwarp),
            (NodeKind::Unspecified, _) | (_, Transport::Other(_)) => Some(Foreign::Vendor),
            (_, Transport::InfiniBand) => None,
        }
    }
}
