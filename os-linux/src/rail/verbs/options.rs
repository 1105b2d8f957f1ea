//! Options of a verbs rail, the memory it will take, and the errors of its opening.

use rerail_core::rail::{Place, RailKind};
use rerail_core::time::Nanos;
use rerail_core::wire::HEADER_BYTES_MAX;
use rerail_verbs::contract::{CreateError, Limits, ModifyError, PostError, RegisterError};
use rerail_verbs::{Moderation, Offers, OnDemand, PortState};

use super::link::{Link, Waiting};
use super::provider::{Provider, SendQueue};
use super::registry::Bounds;
use super::srq::{Queue, Queues, SrqSizes};
use super::wire::SETUP_BYTES_MAX;
use crate::rail::Piece;

/// Bytes in front of every datagram for its global route header (InfiniBand specification, 11.4.1.2).
pub(super) const ROUTE_HEADER_BYTES: usize = 40;
/// Datagrams that may be in flight at once; one more waits, or is sent again later.
pub(super) const DATAGRAM_SENDS: u32 = 16;
/// Most pieces of memory in one request; payload in more pieces is copied.
pub(super) const SGES_MAX: usize = 8;
/// Most bytes sent inline.
pub(super) const INLINE_BYTES_MAX: usize = 512;

/// Sizes and settings of one verbs rail: one port of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsOptions {
    /// Short name for people (`verbs:mlx5_0/1`).
    pub name: String,
    /// The rail's kind: [`RailKind::Verbs`], or [`RailKind::Sim`] over a simulated device.
    pub kind: RailKind,
    /// Which of this process's rails of its kind this is: 0 for the first. Rails of equal index connect.
    pub index: u8,
    /// Processes in the job.
    pub peers: u32,
    /// Largest eager payload in bytes.
    pub eager_bytes_max: u32,
    /// Largest payload in bytes of one packet, one write and one read. Both ends of a connection must have
    /// the same [`message_bytes`](Self::message_bytes).
    pub segment_bytes: u32,
    /// Posts that may be outstanding per peer.
    pub posts_max: u16,
    /// Requests that may be with the device at once, over all peers; each has a buffer. Posts beyond wait.
    pub sends: u16,
    /// Buffers of the shared receive queue, over all peers; by XRC, where it has queues with smaller buffers
    /// too, the memory of all of them: as much as so many buffers for the longest message (V-17).
    pub receives: u16,
    /// Receives for datagrams (connection set-up only). One that finds none posted is lost, and comes again.
    pub datagrams: u16,
    /// Messages up to so many bytes are handed over with the request itself, as far as the device takes them.
    pub inline_bytes: u16,
    /// The fixed time of a message in the device and the fabric, as far as known, in nanoseconds; 0: unknown.
    pub latency_ns: u32,
    /// The processor moves messages up to so many bytes, as far as known; 0: none.
    pub pio_bytes_max: u32,
    /// Peers' memory can be written.
    pub write: bool,
    /// Peers' memory can be read.
    pub read: bool,
    /// Registrations of payload memory that the rail has at once; unused ones are kept for the next post from
    /// there, least recently used out first. 0: none, payload goes through buffers.
    pub registrations_max: u32,
    /// Bytes in all of these.
    pub registrations_bytes: u64,
    /// Keep registrations that peers can *write* to, too, when their keys are given back, as long as all
    /// connections live. Saves registering where peers write (they read, where [`read`](Self::read) is on),
    /// and lets a peer that breaks the rules write to memory that it was let to write to before.
    pub registrations_writable: bool,
    /// Keep registrations of memory that was adopted, too: the host has the transport invalidate such memory
    /// before it is unmapped. Without pinning they are kept anyway: the device follows the process's tables.
    pub registrations_adopted: bool,
    /// Register payload memory without pinning it, where its pages are brought in as the device needs them.
    pub on_demand: OnDemandUse,
    /// How completion events are delayed, for fewer interrupts of sleepers; both 0 or neither.
    pub moderation: Moderation,
    /// Reads of a peer that are served at once, and own ones that are open at once, as far as the device
    /// goes.
    pub reads: u8,
    /// Which of the port's paths: added to its base LID, from 0 to 2^LMC - 1 (InfiniBand specification,
    /// 4.1.3). Rails of several paths may share a port.
    pub path: u8,
    /// Where the port sits among those of this process's other rails.
    pub place: Place,
    /// How far the device is from this process, as the kernel counts it: 10 is local; 0: unknown.
    pub numa_distance: u8,
    /// How far ahead it is fed at least: [`RailFacts::feed_time_min`](rerail_core::rail::RailFacts).
    pub feed_time_min: Nanos,
    /// The partition, by its key (the top bit does not matter); `None`: the first with full membership of the
    /// port (V-20).
    pub pkey: Option<u16>,
    /// Service level of everything that is sent, 0 to 15; on Ethernet a priority, 0 to 7.
    pub service_level: u8,
    /// Traffic class of messages sent with a global route; on Ethernet the IP header's, whose upper six bits
    /// are the DSCP.
    pub traffic_class: u8,
    /// Index of the port's GID that is published; `None`: the one that reaches furthest ([`GidEntry::best`]),
    /// and another one when that is gone (V-19).
    ///
    /// [`GidEntry::best`]: rerail_verbs::GidEntry::best
    pub gid_index: Option<u8>,
    /// A connection not established after this time is given up.
    pub handshake_timeout: Nanos,
    /// A set-up message without an answer is sent again after this time at the latest, or after four of the
    /// shortest round trips measured; then after twice that, and so on.
    pub resend_first: Nanos,
    /// ... but at least this often.
    pub resend_max: Nanos,
    /// How long a disconnected peer may take to receive earlier posts, and a failed queue pair to give its
    /// requests back.
    pub drain_time: Nanos,
    /// Links that are down for no longer are not given up: the device resends lost packets. Nothing is
    /// connected meanwhile. It should be well below the time after which the device's own retries are spent.
    pub port_grace: Nanos,
    /// A broken device is opened again after this time, if that fails after twice that, and so on.
    pub reopen_first: Nanos,
    /// ... but at least this often.
    pub reopen_max: Nanos,
    /// After so long it is given up permanently; `None`: never.
    pub reopen_for: Option<Nanos>,
    /// Time to wait for an acknowledgment, as a code
    /// ([`ack_timeout_ns`](rerail_verbs::contract::ack_timeout_ns)).
    pub ack_timeout: u8,
    /// How often a packet without acknowledgment is sent again: 0 to 7.
    pub retry_count: u8,
    /// How long a sender waits where no receive is posted, as a code
    /// ([`rnr_timer_ns`](rerail_verbs::contract::rnr_timer_ns)). It then retries without end: a peer that
    /// does not poll is slow, not dead.
    pub rnr_timer: u8,
    /// Connect by XRC: processes of one node share the objects that lead there (V-14). All processes of a job
    /// need the same setting.
    pub xrc: Option<XrcOptions>,
}

/// Whether payload memory is registered on demand (`ibv_reg_mr(3)`, `IBV_ACCESS_ON_DEMAND`): registering is
/// cheap then, no limit of locked memory counts, and the first use of a page is slow. The rail's own buffers
/// are pinned in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDemandUse {
    /// It is pinned.
    #[default]
    Never,
    /// On demand; a device that does not offer all that the rail does with it is an error.
    Always,
    /// On demand where that is offered, else pinned.
    WhereOffered,
}

/// How a rail connects by XRC (xrc-2008, V).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcOptions {
    /// Descriptor of a file that the processes of this node have in common, open as long as the rail lives:
    /// it identifies the XRC domain (`ibv_open_xrcd(3)`). A process that may open that file may reach the
    /// rail's queues: only one user should have access.
    pub file: i32,
    /// The identity of this file on this node: device and inode.
    pub file_id: [u64; 2],
    /// How long a call waits for a connection to the same node that is being set up, to share it, before it
    /// makes one of its own; an eighth of [`VerbsOptions::handshake_timeout`] at most.
    pub wait: Nanos,
    /// Which buffers this process has beside those for the longest message; `None`: those of
    /// [`SrqSizes::PAPER`] that are smaller. Processes need not agree on it.
    pub sizes: Option<SrqSizes>,
}

impl XrcOptions {
    /// With a wait of 20 ms and buffers of the paper's sizes.
    pub const fn new(file: i32, file_id: [u64; 2]) -> Self {
        XrcOptions { file, file_id, wait: Nanos::from_millis(20), sizes: None }
    }
}

impl VerbsOptions {
    /// The defaults for rail number `index` in a job of `peers` processes.
    pub fn new(peers: u32, index: u8) -> Self {
        VerbsOptions {
            name: format!("verbs{index}"),
            kind: RailKind::Verbs,
            index,
            peers,
            eager_bytes_max: 8 * 1024,
            segment_bytes: 32 * 1024,
            posts_max: 32,
            sends: 64,
            receives: 128,
            datagrams: 64,
            inline_bytes: 256,
            latency_ns: 0,
            pio_bytes_max: 0,
            write: true,
            read: true,
            registrations_max: 1024,
            registrations_bytes: 4 << 30,
            registrations_writable: false,
            registrations_adopted: false,
            on_demand: OnDemandUse::Never,
            moderation: Moderation::NONE,
            reads: 8,
            path: 0,
            place: Place::default(),
            numa_distance: 0,
            feed_time_min: Nanos(0),
            pkey: None,
            service_level: 0,
            traffic_class: 0,
            gid_index: None,
            handshake_timeout: Nanos::from_millis(10_000),
            resend_first: Nanos::from_micros(500),
            resend_max: Nanos::from_millis(500),
            drain_time: Nanos::from_millis(1_000),
            port_grace: Nanos::from_millis(2),
            reopen_first: Nanos::from_millis(10),
            reopen_max: Nanos::from_millis(1_000),
            reopen_for: None,
            ack_timeout: 14,
            retry_count: 7,
            rnr_timer: 12,
            xrc: None,
        }
    }

    /// The longest message in bytes that goes over a connection: a header and a payload.
    pub fn message_bytes(&self) -> u32 {
        self.eager_bytes_max.max(self.segment_bytes).saturating_add(HEADER_BYTES_MAX as u32)
    }

    /// Bytes that the rail allocates when it is opened: buffers and tables. In addition there are queues of a
    /// few kilobytes per connected peer, and the device's own memory.
    pub fn memory_bytes(&self) -> u64 {
        let nodes = if self.xrc.is_some() { super::peers::NODE_BYTES } else { 0 };
        self.layout().bytes + u64::from(self.peers) * (super::peers::PEER_BYTES + nodes)
    }

    /// The most bytes of a connected peer: this rail's tables, and the send queue of an RC queue pair with
    /// the provider.
    pub fn connection_bytes(&self, provider: Provider) -> u64 {
        let depth = u64::from(self.posts_max) + 2 * u64::from(super::link::REPORTED);
        let queue = SendQueue { depth, sges: SGES_MAX as u64, inline: self.inline_bytes.into() };
        let posts = u64::from(self.posts_max) * (size_of::<Waiting>() + size_of::<Piece>()) as u64;
        provider.send_queue_bytes(queue) + 2 * (size_of::<Link>() as u64 + posts)
    }

    /// The most bytes with the provider that do not grow with connections: the completion queue, and the
    /// shared receive queues.
    pub fn shared_queue_bytes(&self, provider: Provider) -> u64 {
        let layout = self.layout();
        let receives = layout.queues.iter().map(|queue| provider.receive_queue_bytes(queue.count.into()));
        provider.completion_queue_bytes(layout.cq_depth.into()) + receives.sum::<u64>()
    }

    /// Shared receive queues as `(bytes, count)` of their buffers, smallest first: the result of the
    /// budget [`receives`](Self::receives).
    pub fn receive_buffers(&self) -> Vec<(u32, u32)> {
        self.layout().queues.iter().map(|queue| (queue.bytes, queue.count)).collect()
    }

    /// Whether payload memory is registered on demand with a device that offers this. It is read and written
    /// where it lies, by own requests and by those of peers, and never named by a send or a receive.
    pub(super) fn is_on_demand(&self, device: &str, offers: &Offers) -> Result<bool, VerbsError> {
        let (has, transport) =
            if self.xrc.is_some() { (offers.on_demand_xrc, "XRC") } else { (offers.on_demand, "RC") };
        let needed = OnDemand { write: self.write, read: self.read, ..OnDemand::default() };
        let mut missing: Vec<_> = has.missing_features(&needed).collect();
        if !offers.has_on_demand() {
            missing = vec!["registration on demand"];
        }
        match self.on_demand {
            OnDemandUse::Never => Ok(false),
            _ if missing.is_empty() => Ok(true),
            OnDemandUse::WhereOffered => Ok(false),
            OnDemandUse::Always => Err(VerbsError::NoOnDemand { device: device.to_owned(), transport, missing }),
        }
    }

    /// How much may be registered.
    pub(super) fn registry_bounds(&self) -> Bounds {
        Bounds {
            count: self.registrations_max,
            bytes: self.registrations_bytes,
            keep_writable: self.registrations_writable,
            keep_adopted: self.registrations_adopted,
        }
    }

    /// Where the buffers lie in the slab.
    pub(super) fn layout(&self) -> Layout {
        let message = u64::from(self.message_bytes()).next_multiple_of(64);
        let datagram = ((ROUTE_HEADER_BYTES + SETUP_BYTES_MAX) as u64).next_multiple_of(64);
        let queues = super::srq::lay_out(self.srq_sizes(), self.message_bytes(), self.receives);
        let sends = queues.last().map_or(0, Queue::end);
        let datagrams = sends + message * u64::from(self.sends);
        let datagram_sends = datagrams + datagram * u64::from(self.datagrams);
        let bytes = datagram_sends + datagram * u64::from(DATAGRAM_SENDS);
        let receives: u32 = queues.iter().map(|queue| queue.count).sum();
        let cq_depth = u32::from(self.sends) + receives + u32::from(self.datagrams) + DATAGRAM_SENDS;
        Layout {
            message,
            message_bytes: self.message_bytes(),
            datagram,
            queues,
            sends,
            datagrams,
            datagram_sends,
            bytes,
            cq_depth,
        }
    }

    /// Sizes of buffers for messages that are not the longest.
    fn srq_sizes(&self) -> SrqSizes {
        let of = |xrc: XrcOptions| xrc.sizes.unwrap_or(SrqSizes::PAPER.below(self.message_bytes()));
        self.xrc.map_or(SrqSizes::ONE, of)
    }

    /// Against each other and against the device.
    pub(super) fn check(&self, limits: &Limits) -> Result<(), VerbsError> {
        if limits.srqs == 0 {
            return Err(VerbsError::MissingFeature { what: "shared receive queues" });
        }
        macro_rules! fields_within {
            ($($field:ident: $min:expr, $max:expr;)*) => {
                $(within(stringify!($field), self.$field.into(), $min, $max)?;)*
            };
        }
        // With XRC, all may be on one queue pair.
        let sends_max = self.xrc.map_or(u16::MAX.into(), |_| u64::from(limits.queue_depth).min(u16::MAX.into()));
        fields_within! {
            peers: 1, u32::MAX.into();
            eager_bytes_max: 0, 1 << 30;
            segment_bytes: 1, 1 << 30;
            posts_max: 2, limits.queue_depth.into();
            sends: 1, sends_max;
        }
        let sizes = self.srq_sizes();
        let mut least = HEADER_BYTES_MAX as u64;
        for &bytes in sizes.as_slice() {
            within("srq_sizes", bytes.into(), least, u64::from(self.message_bytes()) - 1)?;
            least = u64::from(bytes) + 1;
        }
        within("shared receive queues", sizes.as_slice().len() as u64 + 1, 1, limits.srqs.into())?;
        let counts = super::srq::receives_for(sizes, self.message_bytes(), limits.srq_depth);
        fields_within! {
            receives: counts.0, counts.1;
            datagrams: 1, limits.queue_depth.into();
        }
        within("sends + receives + datagrams", self.layout().cq_depth.into(), 1, limits.cq_depth.into())?;
        within("memory_bytes", self.layout().bytes, 1, limits.mr_bytes.min(isize::MAX as u64))?;
        within("pkey", self.pkey.map_or(1, |key| u64::from(key & 0x7fff)), 1, 0x7fff)?;
        fields_within! {
            reads: self.read.into(), 255;
            service_level: 0, 15;
            ack_timeout: 1, 31;
            retry_count: 0, 7;
            rnr_timer: 0, 31;
        }
        let Moderation { count, period_us } = self.moderation;
        let least = |other: u16| u64::from(other > 0);
        // Without a period, fewer completions than the count would never be reported.
        within("moderation.period_us", period_us.into(), least(count), u16::MAX.into())?;
        within("moderation.count", count.into(), least(period_us), u16::MAX.into())?;
        within("resend_first", self.resend_first.0, 1, self.resend_max.0)?;
        within("reopen_first", self.reopen_first.0, 1, self.reopen_max.0)
    }
}

/// The error of an option unless its value is in range.
pub(super) fn within(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), VerbsError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(VerbsError::Option { field, value, min, max }) }
}

/// Offsets in the slab, and sizes of its buffers, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Of one buffer for a message to send.
    pub message: u64,
    /// Of the longest message: [`VerbsOptions::message_bytes`].
    pub message_bytes: u32,
    /// Of one buffer for a datagram.
    pub datagram: u64,
    /// The buffers of shared receive queues, from 0 on.
    pub queues: Queues,
    pub sends: u64,
    pub datagrams: u64,
    pub datagram_sends: u64,
    /// Of all.
    pub bytes: u64,
    /// Completions that can be open at once. Every request makes one completion at most, and its place (a
    /// send's buffer, a receive's buffer) is used again only when that was polled or its queue pair
    /// destroyed. So the number of places is the bound, and a queue of this depth can't overflow.
    pub cq_depth: u32,
}

/// Why a verbs rail can't be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerbsError {
    /// An option is out of range, by itself or for this device.
    #[error("verbs rail: {field} is {value}, and must be from {min} to {max}")]
    Option {
        /// Which, by its field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The least allowed.
        min: u64,
        /// The greatest allowed.
        max: u64,
    },
    /// The port is not in service.
    #[error("verbs rail: port {port} is {state}")]
    Port {
        /// Its number.
        port: u8,
        /// Its state.
        state: PortState,
    },
    /// The InfiniBand port is in service and has no LID, by which peers would find it.
    #[error("verbs rail: port {port} has no LID (a subnet manager gives them)")]
    NoLid {
        /// Its number.
        port: u8,
    },
    /// The device has none of an object that every rail needs.
    #[error("verbs rail: the device has no {what}")]
    MissingFeature {
        /// The object.
        what: &'static str,
    },
    /// The port is in service, and has no GID, or none at the requested index.
    #[error("verbs rail: port {port} has no such GID in use")]
    NoGid {
        /// Its number.
        port: u8,
    },
    /// The port is a full member of no partition, or no member of the requested one.
    #[error("verbs rail: port {port} is {}", membership(*.wanted, *.limited))]
    Partition {
        /// Its number.
        port: u8,
        /// The requested partition, 15 bits.
        wanted: Option<u16>,
        /// The first key with limited membership.
        limited: Option<u16>,
    },
    /// The rail is to connect by XRC, and the device has none.
    #[error("verbs rail: the device {device} has no XRC (verbs_xrc is on; off or auto connects by RC)")]
    NoXrc {
        /// The device.
        device: String,
    },
    /// On-demand registration is configured, and the device does not offer the operations needed on
    /// such memory.
    #[error("verbs rail: the device {device} lacks, for memory registered on demand and {transport}: {} \
         (verbs_on_demand is on; off or auto pins memory)",
                .missing.join(", "))]
    NoOnDemand {
        /// The device.
        device: String,
        /// RC or XRC.
        transport: &'static str,
        /// The missing operations.
        missing: Vec<&'static str>,
    },
    /// The device refuses the moderation of completion events in the options.
    #[error(
        "verbs rail: the device {device} does not put completion events off so: {why}; it does {} \
         (verbs_moderation; 0: at once)",
        extent(*.most)
    )]
    Moderation {
        /// The device.
        device: String,
        /// The most that it offers; `None`: nothing.
        most: Option<Moderation>,
        /// Its reason.
        why: ModifyError,
    },
    /// There is no memory for the buffers.
    #[error("verbs rail: no memory for buffers of {bytes} bytes")]
    Memory {
        /// The requested size, in bytes.
        bytes: u64,
    },
    /// An object was not made.
    #[error("verbs rail: {what}: {why}")]
    Create {
        /// Which.
        what: &'static str,
        /// The device's reason.
        why: CreateError,
    },
    /// The buffers were not registered.
    #[error("verbs rail: registering the buffers: {0}")]
    Register(#[from] RegisterError),
    /// The queue pair for datagrams was not made ready.
    #[error("verbs rail: queue pair for datagrams: {0}")]
    Modify(#[from] ModifyError),
    /// Receives were not posted.
    #[error("verbs rail: posting receives: {0}")]
    Post(#[from] PostError),
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;

/// A port's partitions, in words, where there is none to use.
fn membership(wanted: Option<u16>, limited: Option<u16>) -> String {
    match (wanted, limited) {
        (Some(wanted), _) => format!("no member of partition {wanted:#06x} (verbs_pkey)"),
        (None, Some(key)) => format!(
            "a limited member only (key {key:#06x}), and limited members don't reach each other; the subnet manager's \
             partitions define the full ones (verbs_pkey={key:#06x}: use it all the same)"
        ),
        (None, None) => "in no partition".to_owned(),
    }
}

/// How far a device puts completion events off, in words.
fn extent(most: Option<Moderation>) -> String {
    match most {
        Some(Moderation { count, period_us }) => format!("by up to {count} completions and {period_us} us"),
        None => "not at all".to_owned(),
    }
}
