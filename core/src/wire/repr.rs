//! What packets mean. Layouts, parsing and emitting stand beside this file, one file per family.

use core::fmt;

use heapless::Vec;

/// Declares an enum of numbers on the wire, one byte each; a number that is none of them is an error of the
/// field of that name.
macro_rules! coded {
    (
        $(#[$meta:meta])*
        pub enum $name:ident in $field:literal { $($(#[$doc:meta])* $variant:ident = $code:literal,)* }
    ) => {
        $(#[$meta])*
        #[repr(u8)]
        pub enum $name {
            $($(#[$doc])* $variant = $code,)*
        }

        impl $name {
            /// All of them, in the order of their codes on the wire.
            pub const ALL: [$name; [$($code),*].len()] = [$($name::$variant),*];

            /// The one with a code.
            #[inline]
            pub(super) const fn from_code(code: u8) -> Result<Self, WireError> {
                match code {
                    $($code => Ok(Self::$variant),)*
                    other => Err(WireError { field: $field, value: other as u64 }),
                }
            }
        }
    };
}
pub(super) use coded;

/// The version of this code, and the only one it accepts.
pub const VERSION: u8 = 1;
/// Bytes of the header that every packet starts with.
pub const COMMON_BYTES: usize = 32;
/// The most bytes that a header (common part and body) takes in this implementation.
pub const HEADER_BYTES_MAX: usize = 256;
/// The most remote keys that one packet carries in this implementation; the format itself has no such limit
/// but its 8-bit count.
pub const KEYS_MAX: usize = 8;
/// The longest address of a rail, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 200;

/// The header that every packet starts with: 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Common {
    /// Rank of the sender.
    pub source: u32,
    /// Sequence number in the lane that the kind belongs to; 0 for unsequenced kinds.
    pub psn: u32,
    /// Cumulative acknowledgment of the ordered lane: the first PSN not received.
    pub ack_ordered: u32,
    /// Cumulative acknowledgment of the unordered lane: the first PSN not received.
    pub ack_unordered: u32,
    /// Low 16 bits of the first ordered PSN that the peer may not send yet.
    pub message_limit: u16,
    /// Cumulative count (mod 2^16) of unexpected-payload blocks that the peer may use.
    pub block_limit: u16,
    /// Bytes of payload behind the header.
    pub payload_bytes: u32,
    /// Acknowledge at once, don't wait for the delay.
    pub ack_now: bool,
    /// The sender has refused a put and has no confirmation yet that the peer was notified: puts that this
    /// packet acknowledges may be among the refused ones.
    pub refusing: bool,
}

/// A remote key: how rail `rail` of the packet's sender reaches a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteKey {
    /// Rail number at the packet's sender.
    pub rail: u8,
    /// The connection of that rail when the packet was sent, as its sender numbers them (F-1), modulo 2^16:
    /// on another one the key may belong to other memory (F-7).
    pub connection: u16,
    /// The rail's key for the memory (an rkey on verbs).
    pub key: u64,
    /// Address that goes with the key.
    pub address: u64,
}

/// The keys of one buffer, for the rails that may carry it.
pub type RemoteKeys = Vec<RemoteKey, KEYS_MAX>;

/// What identifies a message to the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageHead {
    /// Tag, or `None` for an untagged message.
    pub tag: Option<u64>,
    /// 8 bytes of immediate data.
    pub immediate: Option<u64>,
    /// The sender requests [`Fin`] once the payload is in the receiver's buffer.
    pub want_placed: bool,
    /// The sender's operation.
    pub operation: u64,
}

/// Request to send (rendezvous).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rts {
    /// Envelope.
    pub head: MessageHead,
    /// Length of the whole message in bytes.
    pub message_bytes: u64,
    /// Keys of the source buffer, for rails that can be read from; empty: only put or data segments are
    /// possible.
    pub keys: RemoteKeys,
}

/// Clear to send (rendezvous): the receiver has matched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cts {
    /// The sender's operation, from the RTS.
    pub operation: u64,
    /// The receiver's operation: goes into DATA and FIN.
    pub target: u64,
    /// How many bytes fit; fewer than the message's where the receiver truncates.
    pub granted_bytes: u64,
    /// How often the transfer was begun anew; 0 at first (F-7).
    pub epoch: u16,
    /// Keys of the destination, for rails that can be written to; empty: send data segments.
    pub keys: RemoteKeys,
}

/// End of a transfer, as seen by the side that moved the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fin {
    /// The operation at the packet's receiver that is concerned.
    pub operation: u64,
    /// How many FINs belong to this transfer (one per subchannel used, multirail-2004 5.3); 1 but for put
    /// rendezvous.
    pub count: u16,
    /// Why the peer could not do its part; `None`: success.
    pub refused: Option<Refusal>,
    /// Put rendezvous: the sender requests a FIN in return once all have come, and keeps the message until
    /// then.
    pub want_placed: bool,
    /// Put rendezvous: the round of the transfer that it belongs to (F-7); else 0.
    pub epoch: u16,
    /// Bytes that were placed.
    pub placed_bytes: u64,
}

coded! {
    /// Why a peer refused a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    #[cfg_attr(feature = "defmt", derive(defmt::Format))]
    pub enum Refusal in "fin.refused" {
        /// No such window, or not any more.
        #[error("no window there has this key, or not any more")]
        NoWindow = 1,
        /// Beyond the window's end.
        #[error("the access goes beyond the end of the window")]
        OutOfRange = 2,
        /// The window does not allow this access.
        #[error("the window does not allow this kind of access")]
        NoAccess = 3,
        /// The combination of operation and type does not exist, or the address is not aligned for the type.
        #[error("the operation does not exist for this type, or the address is not aligned for it")]
        BadAtomic = 4,
    }
}

/// A segment of a message or of a get's answer, for rails without RDMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// The operation at the packet's receiver.
    pub operation: u64,
    /// Where the payload belongs in the message, in bytes.
    pub offset: u64,
}

/// One-sided put, one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// Key of the target's window.
    pub window: u64,
    /// Offset into the window in bytes.
    pub offset: u64,
    /// The origin's operation: named in a FIN where the put is refused.
    pub operation: u64,
}

/// End of a put with immediate data: behind the other packets of the put, or with its whole payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutImmediate {
    /// Key of the target's window.
    pub window: u64,
    /// Where the put starts in the window, in bytes.
    pub offset: u64,
    /// The origin's operation: named in the FIN that answers.
    pub operation: u64,
    /// Bytes of the whole put.
    pub bytes: u64,
    /// Immediate data.
    pub immediate: u64,
}

/// One-sided get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Get {
    /// Key of the target's window.
    pub window: u64,
    /// Offset into the window in bytes.
    pub offset: u64,
    /// Bytes requested.
    pub bytes: u64,
    /// The origin's operation: goes into the answer's DATA.
    pub operation: u64,
}

coded! {
    /// What an atomic does to the target: `target = op(target, operand)`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum AtomicKind in "atomic.kind" {
        /// Reads without change.
        #[default]
        Fetch = 0,
        /// Stores the operand.
        Swap = 1,
        /// Stores the operand if `compare` equals the target.
        CompareSwap = 2,
        /// Adds, wrapping.
        Add = 3,
        /// The lesser of both.
        Min = 4,
        /// The greater of both.
        Max = 5,
        /// Bitwise and (integers).
        And = 6,
        /// Bitwise or (integers).
        Or = 7,
        /// Bitwise exclusive or (integers).
        Xor = 8,
        /// Product, wrapping.
        Mul = 9,
        /// Logical and: 1 where both are non-zero.
        LogicalAnd = 10,
        /// Logical or: 1 where either is non-zero.
        LogicalOr = 11,
        /// Logical exclusive or: 1 where exactly one is non-zero.
        LogicalXor = 12,
        /// Stores the operand if `compare` differs from the target.
        CompareSwapNe = 13,
        /// Stores the operand if `compare` is not above the target.
        CompareSwapLe = 14,
        /// Stores the operand if `compare` is below the target.
        CompareSwapLt = 15,
        /// Stores the operand if `compare` is not below the target.
        CompareSwapGe = 16,
        /// Stores the operand if `compare` is above the target.
        CompareSwapGt = 17,
        /// Stores the operand's bits that are set in `compare` (integers).
        MaskedSwap = 18,
    }
}

coded! {
    /// The type that an atomic works on.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum AtomicType in "atomic.data_type" {
        /// Signed 8 bits.
        I8 = 0,
        /// Unsigned 8 bits.
        U8 = 1,
        /// Signed 16 bits.
        I16 = 2,
        /// Unsigned 16 bits.
        U16 = 3,
        /// Signed 32 bits.
        I32 = 4,
        /// Unsigned 32 bits.
        U32 = 5,
        /// Signed 64 bits.
        I64 = 6,
        /// Unsigned 64 bits.
        #[default]
        U64 = 7,
        /// IEEE 754 single.
        F32 = 8,
        /// IEEE 754 double.
        F64 = 9,
    }
}

/// Atomic on a remote value of up to 8 bytes; operands little-endian in the low bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Atomic {
    /// Key of the target's window.
    pub window: u64,
    /// Offset into the window in bytes.
    pub offset: u64,
    /// The origin's operation.
    pub operation: u64,
    /// Operand.
    pub operand: u64,
    /// Comparand of compare-and-swap.
    pub compare: u64,
    /// What to do.
    pub kind: AtomicKind,
    /// On what type.
    pub data_type: AtomicType,
}

/// Answer to an atomic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicReply {
    /// The origin's operation.
    pub operation: u64,
    /// The value before, in the low bytes.
    pub old: u64,
}

/// Selective acknowledgment, beside the cumulative one in the common header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Bit i: ordered PSN `ack_ordered + 1 + i` is received.
    pub ordered_beyond: u64,
    /// Bit i: unordered PSN `ack_unordered + 1 + i` is received.
    pub unordered_beyond: u64,
}

/// First packet on a subchannel, in both directions: the limits of its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connect {
    /// Packets of one lane that may be unacknowledged at once.
    pub window: u32,
    /// Largest eager payload that is accepted, in bytes.
    pub eager_bytes_max: u32,
    /// Bytes of one unexpected-payload block.
    pub block_bytes: u32,
    /// Gets and atomics that may be unanswered at once.
    pub requests_max: u16,
    /// This rail's number at the sender (keys in RTS and CTS refer to it).
    pub rail: u8,
    /// The sender's number of this connection; each new one on the rail has the next number (F-1).
    pub connection: u32,
    /// The number of the sender's first packet of each lane, and of the first message that it grants (S-1,
    /// C-1); its connections have numbers behind it (F-1).
    pub first_number: u32,
    /// How often the sender has parked this channel, counted from 1 to 255 and on with 1; 0: never.
    pub parked: u8,
    /// An answer to a Connect (else the peer must answer with its own).
    pub answer: bool,
}

/// One step of the agreement to park a channel (rule K-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Park {
    /// Number of the request, counted by the side that makes it.
    pub request: u32,
    /// The step.
    pub step: ParkStep,
}

coded! {
    /// What a [`Park`] does.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum ParkStep in "park.step" {
        /// A request: from now on its sender sends no sequenced packet, until the outcome.
        #[default]
        Request = 0,
        /// The answer of a peer whose channel is idle: its sender sends no sequenced packet, until the end of
        /// the connection or until the request is withdrawn.
        Agree = 1,
        /// The answer of a peer whose channel is in use.
        Decline = 2,
        /// The request is withdrawn by the side that made it.
        Withdraw = 3,
    }
}

/// The sender's end of a connection is dead: nothing that was sent over it has any effect there any more
/// (F-3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    /// The connection's rail, by the sender's number.
    pub rail: u8,
    /// The connection's rail, by the receiver's number.
    pub peer_rail: u8,
    /// The connection, by the sender's number (see [`Connect::connection`]).
    pub connection: u32,
    /// The connection, by the receiver's number.
    pub peer_connection: u32,
    /// Bit i: ordered PSN `ack_ordered + 1 + i` is received, as in [`Ack`].
    pub ordered_beyond: u64,
    /// Bit i: unordered PSN `ack_unordered + 1 + i` is received.
    pub unordered_beyond: u64,
    /// An answer (else the receiver must answer when its own end is dead too).
    pub answer: bool,
}

/// The writes of a rail are unconfirmed: the receiver of a put rendezvous is to begin a new round (F-7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// The receiver's operation, from the CTS.
    pub target: u64,
    /// The round that is to begin.
    pub epoch: u16,
}

/// Requests (or is) a sign of life on one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// Repeated in the answer.
    pub nonce: u64,
    /// This is the answer.
    pub answer: bool,
}

/// Where a rail of the sender's is from now on (F-12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// The rail, by the sender's number (see [`Connect::rail`]).
    pub rail: u8,
    /// Its address.
    pub text: AddressText,
}

/// The address of a rail as it is published: from 1 to [`ADDRESS_BYTES_MAX`] bytes of printable ASCII without
/// space, `;`, `,` and `=`. The default is empty: no address, which is never sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AddressText {
    pub(super) len: u8,
    /// Zero behind `len`, so that equal texts are equal.
    pub(super) bytes: [u8; ADDRESS_BYTES_MAX],
}

/// Why bytes are no address of a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// There are none.
    #[error("an empty address")]
    Empty,
    /// There are more than [`ADDRESS_BYTES_MAX`].
    #[error("an address of {bytes} bytes, more than {ADDRESS_BYTES_MAX}")]
    TooLong {
        /// Bytes given.
        bytes: usize,
    },
    /// One that no address has.
    #[error("an address with byte {byte:#04x} at {at}")]
    Byte {
        /// Its position.
        at: usize,
        /// Its value.
        byte: u8,
    },
}

/// Whether an address may have it: what separates the words of an address record has another meaning.
const fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b';' | b',' | b'=')
}

impl AddressText {
    /// Takes an address.
    ///
    /// # Errors
    /// The rule that it breaks, where it is no address.
    pub fn new(text: &[u8]) -> Result<Self, AddressError> {
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        let mut bytes = [0; ADDRESS_BYTES_MAX];
        let Some(front) = bytes.get_mut(..text.len()) else {
            return Err(AddressError::TooLong { bytes: text.len() });
        };
        if let Some(at) = text.iter().position(|byte| !is_allowed(*byte)) {
            return Err(AddressError::Byte { at, byte: text[at] });
        }
        front.copy_from_slice(text);
        Ok(AddressText { len: text.len() as u8, bytes })
    }

    /// The text; empty for the default.
    pub fn as_str(&self) -> &str {
        // ASCII only, by `new`.
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl Default for AddressText {
    fn default() -> Self {
        AddressText { len: 0, bytes: [0; ADDRESS_BYTES_MAX] }
    }
}

impl fmt::Debug for AddressText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The body of a packet. Lanes: ordered (PSN order is processing order), unordered (sequenced, processed at
/// once), unsequenced (idempotent).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Ordered: a whole message.
    Eager(MessageHead),
    /// Ordered: several small messages in one payload; each is a record of head, length, bytes.
    Aggregate {
        /// How many messages.
        count: u16,
    },
    /// Ordered: announces a message.
    Rts(Rts),
    /// Unordered.
    Cts(Cts),
    /// Unordered.
    Fin(Fin),
    /// Unordered.
    Data(Data),
    /// Unordered.
    Put(Put),
    /// Unordered.
    PutImmediate(PutImmediate),
    /// Unordered.
    Get(Get),
    /// Unordered.
    Atomic(Atomic),
    /// Unordered.
    AtomicReply(AtomicReply),
    /// Unordered.
    Resume(Resume),
    /// Unsequenced.
    Ack(Ack),
    /// Unsequenced: only the common header's limits.
    Credit,
    /// Unsequenced.
    Connect(Connect),
    /// Unsequenced.
    Fence(Fence),
    /// Unsequenced.
    Probe(Probe),
    /// Unsequenced: orderly shutdown of the sender; nothing follows.
    Bye,
    /// Unsequenced: a rail has moved.
    Address(Address),
    /// Unsequenced: the channel is to be parked.
    Park(Park),
}

/// A packet's header, meaning and all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The common part.
    pub common: Common,
    /// The kind and what belongs to it.
    pub body: Body,
}

/// How a packet is sequenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Processed in PSN order: what takes part in matching.
    Ordered,
    /// Sequenced for exactly-once, processed on arrival.
    Unordered,
}

impl Body {
    /// The lane of this kind; `None` for unsequenced kinds.
    pub const fn lane(&self) -> Option<Lane> {
        self.kind().lane()
    }
}

/// Why bytes are no packet: which field, and what stood there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[error("bad value {value} in field {field}")]
pub struct WireError {
    /// The field's name in the field map.
    pub field: &'static str,
    /// Its value, or the number of bytes where they end too soon.
    pub value: u64,
}

/// Why a header can't be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// The buffer is too small.
    #[error("the header takes {needed} bytes of {room}")]
    NoRoom {
        /// Bytes of the header.
        needed: usize,
        /// Bytes of the buffer.
        room: usize,
    },
    /// The field has a value that no parser accepts.
    #[error("the header can't be written: {0}")]
    Field(#[from] WireError),
}
