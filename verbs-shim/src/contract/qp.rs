//! Queue pairs: kinds, states and attributes (InfiniBand specification, 10.2.4, 10.3.1 and 11.2.5).

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use super::object::{Access, CqId, PdId, SrqId, XrcdId};
use crate::Gid;

/// The transport of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QpKind {
    /// Reliable connection.
    Rc,
    /// Unreliable datagram.
    Ud,
    /// Sending half of an extended reliable connection.
    XrcInitiator,
    /// Receiving half of an extended reliable connection.
    XrcTarget,
}

/// The state of a queue pair (InfiniBand specification, 10.3.1; resilient-2010, III.A).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QpState {
    /// As made: nothing may be posted.
    Reset,
    /// Receives may be posted; nothing is processed.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drained: sends may be posted and wait.
    Sqd,
    /// Send queue in error (unreliable transports): sends are flushed, receives go on.
    Sqe,
    /// All requests are flushed.
    Error,
}

impl QpState {
    /// All states.
    pub const ALL: [QpState; 7] =
        [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Error];
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QpState::Reset => "RESET",
            QpState::Init => "INIT",
            QpState::Rtr => "RTR",
            QpState::Rts => "RTS",
            QpState::Sqd => "SQD",
            QpState::Sqe => "SQE",
            QpState::Error => "ERR",
        })
    }
}

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCaps {
    /// Send requests that may be open.
    pub send_depth: u32,
    /// Receive requests that may be open; 0 with a shared receive queue.
    pub recv_depth: u32,
    /// Pieces of memory in a send request.
    pub send_sges: u32,
    /// Pieces of memory in a receive request.
    pub recv_sges: u32,
    /// Bytes in an inline send.
    pub inline_bytes: u32,
}

/// The parameters of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpInit {
    /// Its transport.
    pub kind: QpKind,
    /// Protection domain; `None` for an XRC target, which takes that of the shared receive queue addressed.
    pub pd: Option<PdId>,
    /// Where completions of sends go; `None` for an XRC target.
    pub send_cq: Option<CqId>,
    /// Where completions of receives go; `None` for both halves of XRC.
    pub recv_cq: Option<CqId>,
    /// Receives come from here instead of its own queue (RC and UD).
    pub srq: Option<SrqId>,
    /// Domain of an XRC target.
    pub domain: Option<XrcdId>,
    /// Sizes.
    pub caps: QpCaps,
    /// Every send makes a completion, whatever its flag.
    pub signal_all: bool,
}

/// How to reach a port (InfiniBand specification, 11.2.2.1; `ibv_ah_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressVector {
    /// The local port to send from.
    pub port: u8,
    /// LID of the destination; one of `2^lmc` of its port, each of which may be another path. 0 on Ethernet.
    pub dlid: u16,
    /// Low bits of the source LID (LMC).
    pub source_path_bits: u8,
    /// Service level.
    pub service_level: u8,
    /// Global route: needed on Ethernet and between subnets.
    pub global: Option<GlobalRoute>,
}

/// The global part of an [`AddressVector`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GlobalRoute {
    /// GID of the destination.
    pub dgid: Gid,
    /// Which of the local port's GIDs is the source.
    pub source_index: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class; on Ethernet the IP header's, whose upper six bits are the DSCP.
    pub traffic_class: u8,
}

/// An attribute of a queue pair, by the name that `ibv_modify_qp` has for its mask bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Attr {
    /// `IBV_QP_CUR_STATE`
    CurrentState,
    /// `IBV_QP_EN_SQD_ASYNC_NOTIFY`
    DrainNotify,
    /// `IBV_QP_ACCESS_FLAGS`
    Access,
    /// `IBV_QP_PKEY_INDEX`
    PkeyIndex,
    /// `IBV_QP_PORT`
    Port,
    /// `IBV_QP_QKEY`
    Qkey,
    /// `IBV_QP_AV`
    AddressVector,
    /// `IBV_QP_PATH_MTU`
    PathMtu,
    /// `IBV_QP_TIMEOUT`
    Timeout,
    /// `IBV_QP_RETRY_CNT`
    RetryCount,
    /// `IBV_QP_RNR_RETRY`
    RnrRetry,
    /// `IBV_QP_RQ_PSN`
    RecvPsn,
    /// `IBV_QP_MAX_QP_RD_ATOMIC`
    ReadsOpen,
    /// `IBV_QP_MIN_RNR_TIMER`
    RnrTimer,
    /// `IBV_QP_SQ_PSN`
    SendPsn,
    /// `IBV_QP_MAX_DEST_RD_ATOMIC`
    ReadsServed,
    /// `IBV_QP_DEST_QPN`
    DestinationQp,
}

impl Attr {
    /// All of them, in the order of their declaration.
    pub const ALL: [Attr; 17] = [
        Attr::CurrentState,
        Attr::DrainNotify,
        Attr::Access,
        Attr::PkeyIndex,
        Attr::Port,
        Attr::Qkey,
        Attr::AddressVector,
        Attr::PathMtu,
        Attr::Timeout,
        Attr::RetryCount,
        Attr::RnrRetry,
        Attr::RecvPsn,
        Attr::ReadsOpen,
        Attr::RnrTimer,
        Attr::SendPsn,
        Attr::ReadsServed,
        Attr::DestinationQp,
    ];
}

/// A set of attributes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Attrs(u32);

impl Attrs {
    /// None.
    pub const NONE: Attrs = Attrs(0);

    /// These.
    pub const fn of(list: &[Attr]) -> Attrs {
        let (mut bits, mut at) = (0, 0);
        while at < list.len() {
            bits |= 1 << list[at] as u8;
            at += 1;
        }
        Attrs(bits)
    }

    /// Whether it is among them.
    pub const fn contains(self, attr: Attr) -> bool {
        self.0 >> attr as u8 & 1 == 1
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that `other` has not.
    pub const fn without(self, other: Attrs) -> Attrs {
        Attrs(self.0 & !other.0)
    }

    /// One by one.
    pub fn iter(self) -> impl Iterator<Item = Attr> {
        Attr::ALL.into_iter().filter(move |attr| self.contains(*attr))
    }
}

impl BitOr for Attrs {
    type Output = Attrs;
    fn bitor(self, other: Attrs) -> Attrs {
        Attrs(self.0 | other.0)
    }
}

impl BitOrAssign for Attrs {
    fn bitor_assign(&mut self, other: Attrs) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Attrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// A change of a queue pair (`ibv_modify_qp`): attributes that are `None` stay. The states determine the
/// required and the allowed attributes: [`check_transition`](super::check_transition).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpChange {
    /// The state to go to; `None`: it stays.
    pub state: Option<QpState>,
    /// The state that the caller assumes.
    pub current: Option<QpState>,
    /// An event reports when the send queue is drained.
    pub drain_notify: Option<bool>,
    /// The peer's permitted accesses (`local_write` doesn't matter).
    pub access: Option<Access>,
    /// Partition key, by its index in the port's table.
    pub pkey_index: Option<u16>,
    /// The local port.
    pub port: Option<u8>,
    /// Queue key (UD).
    pub qkey: Option<u32>,
    /// How to reach the peer.
    pub address: Option<AddressVector>,
    /// Bytes of payload in one packet: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: Option<u16>,
    /// Time to wait for an acknowledgment before sending again, as a code of 5 bits: [`ack_timeout_ns`].
    pub timeout: Option<u8>,
    /// How often to send again when no acknowledgment comes: 0 to 7.
    pub retry_count: Option<u8>,
    /// How often to send again when the peer had no receive posted: 0 to 6; 7: without end.
    pub rnr_retry: Option<u8>,
    /// The packet sequence number (24 bits) of the first packet that comes.
    pub recv_psn: Option<u32>,
    /// Reads and atomics that this end may have open.
    pub reads_open: Option<u8>,
    /// The wait requested of a peer when no receive is posted, as a code of 5 bits: [`rnr_timer_ns`].
    pub rnr_timer: Option<u8>,
    /// The packet sequence number (24 bits) of the first packet sent.
    pub send_psn: Option<u32>,
    /// Reads and atomics of the peer that are served at once.
    pub reads_served: Option<u8>,
    /// Number of the peer's queue pair.
    pub destination: Option<u32>,
}

impl QpChange {
    /// To this state, nothing else.
    pub const fn to(state: QpState) -> QpChange {
        const { assert!(Attr::ALL.len() == 17, "every attribute has a field here and a line in `attrs`") };
        QpChange {
            state: Some(state),
            current: None,
            drain_notify: None,
            access: None,
            pkey_index: None,
            port: None,
            qkey: None,
            address: None,
            path_mtu: None,
            timeout: None,
            retry_count: None,
            rnr_retry: None,
            recv_psn: None,
            reads_open: None,
            rnr_timer: None,
            send_psn: None,
            reads_served: None,
            destination: None,
        }
    }

    /// The attributes that it names, without the state.
    pub fn attrs(&self) -> Attrs {
        let mut named = Attrs::NONE;
        let mut name = |given: bool, attr| {
            if given {
                named |= Attrs::of(&[attr]);
            }
        };
        name(self.current.is_some(), Attr::CurrentState);
        name(self.drain_notify.is_some(), Attr::DrainNotify);
        name(self.access.is_some(), Attr::Access);
        name(self.pkey_index.is_some(), Attr::PkeyIndex);
        name(self.port.is_some(), Attr::Port);
        name(self.qkey.is_some(), Attr::Qkey);
        name(self.address.is_some(), Attr::AddressVector);
        name(self.path_mtu.is_some(), Attr::PathMtu);
        name(self.timeout.is_some(), Attr::Timeout);
        name(self.retry_count.is_some(), Attr::RetryCount);
        name(self.rnr_retry.is_some(), Attr::RnrRetry);
        name(self.recv_psn.is_some(), Attr::RecvPsn);
        name(self.reads_open.is_some(), Attr::ReadsOpen);
        name(self.rnr_timer.is_some(), Attr::RnrTimer);
        name(self.send_psn.is_some(), Attr::SendPsn);
        name(self.reads_served.is_some(), Attr::ReadsServed);
        name(self.destination.is_some(), Attr::DestinationQp);
        named
    }
}

/// A queue pair as it is (`ibv_query_qp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpInfo {
    /// Its transport.
    pub kind: QpKind,
    /// Its state.
    pub state: QpState,
    /// Its sizes, as the device gave them.
    pub caps: QpCaps,
    /// The attributes as last set (`state` and `current` are `None`).
    pub attributes: QpChange,
    /// Whether the send queue is being drained still ([`QpState::Sqd`]).
    pub draining: bool,
}

/// Nanoseconds for a code of [`QpChange::timeout`]: `4.096 us * 2^code`; `None` for 0, which is for ever, and
/// for codes over 31 (InfiniBand specification, 9.7.6.1.3).
pub const fn ack_timeout_ns(code: u8) -> Option<u64> {
    match code {
        1..=31 => Some(4096 << code),
        _ => None,
    }
}

/// Nanoseconds for a code of [`QpChange::rnr_timer`]; `None` for codes over 31 (InfiniBand specification,
/// table 45).
pub const fn rnr_timer_ns(code: u8) -> Option<u64> {
    // In steps of 10 us. Code 0 is the longest.
    const STEPS: [u64; 32] = [
        65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
    ];
    if code > 31 { None } else { Some(STEPS[code as usize] * 10_000) }
}
