//! Names of objects, and their parameters.

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
    };
}

name!(
    /// A protection domain.
    PdId
);
name!(
    /// A registered piece of memory.
    MrId
);
name!(
    /// A completion queue.
    CqId
);
name!(
    /// A queue pair.
    QpId
);
name!(
    /// A shared receive queue.
    SrqId
);
name!(
    /// An address handle.
    AhId
);
name!(
    /// An XRC domain.
    XrcdId
);

/// The limits of a device (`ibv_query_device`) that its user needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Ports; they count from 1.
    pub ports: u8,
    /// Queue pairs.
    pub qps: u32,
    /// Work requests that one queue holds.
    pub queue_depth: u32,
    /// Pieces of memory that one work request names.
    pub sges: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Entries of one completion queue.
    pub cq_depth: u32,
    /// Registered pieces of memory.
    pub mrs: u32,
    /// Bytes of one of them.
    pub mr_bytes: u64,
    /// Protection domains.
    pub pds: u32,
    /// Shared receive queues; 0: the device has none.
    pub srqs: u32,
    /// Work requests that one of them holds.
    pub srq_depth: u32,
    /// Address handles.
    pub ahs: u32,
    /// Reads and atomics of its peer that one queue pair serves at once.
    pub reads_served: u8,
    /// Reads and atomics that one queue pair has open at once.
    pub reads_open: u8,
    /// Bytes that can be sent inline, at most. Decreases when a queue pair was made that takes less than
    /// requested: verbs has no attribute that gives the limit beforehand.
    pub inline_bytes: u32,
    /// Atomics on 8 bytes are offered.
    pub atomics: bool,
    /// XRC domains, queue pairs and shared receive queues are offered.
    pub xrc: bool,
    /// Memory can be registered under addresses of the caller's choice
    /// ([`Device::register`](super::Device::register)). No device of libibverbs: its providers take the
    /// addresses of requests for pointers.
    pub iova: bool,
}

/// Permitted accesses to registered memory beside local reads (InfiniBand specification, 10.6.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The device may write it for its owner: receives, results of reads and atomics.
    pub local_write: bool,
    /// Peers may write it; needs `local_write`.
    pub remote_write: bool,
    /// Peers may read it.
    pub remote_read: bool,
    /// Peers may do atomics on it; needs `local_write`.
    pub remote_atomic: bool,
    /// Not an access right: registers without pinning the memory. Pages are brought in when the device needs
    /// them, and requests that name memory unmapped meanwhile fail (`ibv_reg_mr(3)`, `IBV_ACCESS_ON_DEMAND`).
    /// Requests of kinds that the device does not [offer](crate::OnDemand) on such memory fail, too. For a
    /// queue pair it has no meaning.
    pub on_demand: bool,
}

impl Access {
    /// Every right.
    pub const ALL: Access =
        Access { local_write: true, remote_write: true, remote_read: true, remote_atomic: true, on_demand: false };
    /// Local reads and writes.
    pub const LOCAL: Access =
        Access { local_write: true, remote_write: false, remote_read: false, remote_atomic: false, on_demand: false };
}

/// A registered piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mr {
    /// Its name.
    pub id: MrId,
    /// Its key in own work requests.
    pub lkey: u32,
    /// Its key for peers.
    pub rkey: u32,
}

/// A queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qp {
    /// Its name.
    pub id: QpId,
    /// Its number (24 bits), used by peers and completions.
    pub number: u32,
}

/// A shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Srq {
    /// Its name.
    pub id: SrqId,
    /// Its number, where it is one for XRC, used by senders.
    pub number: Option<u32>,
}

/// The parameters of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqInit {
    /// Completions that it must hold; the device may give more.
    pub depth: u32,
}

/// The parameters of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqInit {
    /// Receive requests that it must hold.
    pub depth: u32,
    /// Pieces of memory that one of them may name.
    pub sges: u32,
    /// For XRC; `None`: an ordinary one.
    pub xrc: Option<XrcSrqInit>,
}

/// The parameters of a shared receive queue for XRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcSrqInit {
    /// Target queue pairs of this domain deliver into it.
    pub domain: XrcdId,
    /// Where its completions go.
    pub cq: CqId,
}

/// How an XRC domain is found by the other processes of a host (`ibv_open_xrcd`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XrcdFile {
    /// Not at all: one process's own.
    Private,
    /// By an open file: processes that open the same one (the same inode) share a domain, which exists as
    /// long as a process has it open.
    Shared {
        /// The file's descriptor. A simulated host takes the number itself for the file.
        file: i32,
        /// Make the domain where there is none.
        create: bool,
        /// With `create`: refuse where there is one.
        exclusive: bool,
    },
}
