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

named! {
    /// The state of a queue pair (InfiniBand specification, 10.3.1; resilient-2010, III.A).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum QpState {
        /// As made: nothing may be posted.
        Reset = "RESET";
        /// Receives may be posted; nothing is processed.
        Init = "INIT";
        /// Ready to receive.
        Rtr = "RTR";
        /// Ready to send.
        Rts = "RTS";
        /// Send queue drained: sends may be posted and wait.
        Sqd = "SQD";
        /// Send queue in error (unreliable transports): sends are flushed, receives go on.
        Sqe = "SQE";
        /// All requests are flushed.
        Error = "ERR";
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

impl QpInit {
    /// Of a transport, without any of the rest.
    pub const fn of(kind: QpKind) -> QpInit {
        let caps = QpCaps { send_depth: 0, recv_depth: 0, send_sges: 0, recv_sges: 0, inline_bytes: 0 };
        QpInit { kind, pd: None, send_cq: None, recv_cq: None, srq: None, domain: None, caps, signal_all: false }
    }
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

/// Declares the attributes of a queue pair: for each the field of [`QpChange`] with its type, the [`Attr`],
/// and the name and number of its bit in the mask of `ibv_modify_qp`.
macro_rules! attributes {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $attr:ident, $mask:literal, $bit:literal;)*) => {
        /// An attribute of a queue pair, by the name that `ibv_modify_qp` has for its mask bit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Attr {
            $(#[doc = $mask] $attr = $bit,)*
        }

        impl Attr {
            /// All of them, in the order of their declaration.
            pub const ALL: [Attr; [$($bit),*].len()] = [$(Attr::$attr),*];
        }

        /// A change of a queue pair (`ibv_modify_qp`): attributes that are `None` stay. The states
        /// determine the required and the allowed attributes:
        /// [`check_transition`](super::check_transition).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct QpChange {
            /// The state to go to; `None`: it stays.
            pub state: Option<QpState>,
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        impl QpChange {
            /// To this state, nothing else.
            pub const fn to(state: QpState) -> QpChange {
                QpChange { state: Some(state), $($field: None,)* }
            }

            /// The attributes that it names, without the state.
            pub fn attrs(&self) -> Attrs {
                let mut named = Attrs::NONE;
                $(if self.$field.is_some() {
                    named |= Attrs::of(&[Attr::$attr]);
                })*
                named
            }
        }
    };
}

attributes! {
    /// The state that the caller assumes.
    current: QpState = CurrentState, "`IBV_QP_CUR_STATE`", 1;
    /// An event reports when the send queue is drained.
    drain_notify: bool = DrainNotify, "`IBV_QP_EN_SQD_ASYNC_NOTIFY`", 2;
    /// The peer's permitted accesses (`local_write` doesn't matter).
    access: Access = Access, "`IBV_QP_ACCESS_FLAGS`", 3;
    /// Partition key, by its index in the port's table.
    pkey_index: u16 = PkeyIndex, "`IBV_QP_PKEY_INDEX`", 4;
    /// The local port.
    port: u8 = Port, "`IBV_QP_PORT`", 5;
    /// Queue key (UD).
    qkey: u32 = Qkey, "`IBV_QP_QKEY`", 6;
    /// How to reach the peer.
    address: AddressVector = AddressVector, "`IBV_QP_AV`", 7;
    /// Bytes of payload in one packet: 256, 512, 1024, 2048 or 4096.
    path_mtu: u16 = PathMtu, "`IBV_QP_PATH_MTU`", 8;
    /// Time to wait for an acknowledgment before sending again, as a code of 5 bits: [`ack_timeout_ns`].
    timeout: u8 = Timeout, "`IBV_QP_TIMEOUT`", 9;
    /// How often to send again when no acknowledgment comes: 0 to 7.
    retry_count: u8 = RetryCount, "`IBV_QP_RETRY_CNT`", 10;
    /// How often to send again when the peer had no receive posted: 0 to 6; 7: without end.
    rnr_retry: u8 = RnrRetry, "`IBV_QP_RNR_RETRY`", 11;
    /// The packet sequence number (24 bits) of the first packet that comes.
    recv_psn: u32 = RecvPsn, "`IBV_QP_RQ_PSN`", 12;
    /// Reads and atomics that this end may have open.
    reads_open: u8 = ReadsOpen, "`IBV_QP_MAX_QP_RD_ATOMIC`", 13;
    /// The wait requested of a peer when no receive is posted, as a code of 5 bits: [`rnr_timer_ns`].
    rnr_timer: u8 = RnrTimer, "`IBV_QP_MIN_RNR_TIMER`", 15;
    /// The packet sequence number (24 bits) of the first packet sent.
    send_psn: u32 = SendPsn, "`IBV_QP_SQ_PSN`", 16;
    /// Reads and atomics of the peer that are served at once.
    reads_served: u8 = ReadsServed, "`IBV_QP_MAX_DEST_RD_ATOMIC`", 17;
    /// Number of the peer's queue pair.
    destination: u32 = DestinationQp, "`IBV_QP_DEST_QPN`", 20;
}

/// A set of attributes: the mask of `ibv_modify_qp`.
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

    /// The mask's bits.
    pub(crate) const fn mask(self) -> i32 {
        self.0.cast_signed()
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
