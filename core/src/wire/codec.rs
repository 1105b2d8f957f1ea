//! From bytes to meaning and back, for all kinds: [`Repr::parse`] and [`Repr::emit`].
//!
//! Invariant (canonical form, W-7): every accepted header has exactly one meaning and every meaning exactly
//! one header: `parse(emit(r)) == r` and `emit(parse(b)) == b`.

use super::aggregate;
use super::common::{CommonLayout, Contents, Kind, News, Packet, key_table_bytes, write};
use super::message::{DataLayout, HeadLayout};
use super::repr::*;
use heapless::Vec;
use zerocopy::{Immutable, IntoBytes};

impl Repr {
    /// Reads the header that `bytes` starts with; payload may stand behind it and is not looked at.
    ///
    /// The error names the first field that breaks a rule, as in the field map, and its value.
    // A result of this size is copied wherever it is not inlined, for every packet that arrives.
    #[inline(always)]
    pub fn parse(bytes: &[u8]) -> Result<Repr, WireError> {
        let packet = Packet::new_checked(bytes)?;
        let body = packet.body()?;
        Ok(Repr { common: packet.common(), body })
    }

    /// Bytes of the header: common part and body, without payload.
    #[inline]
    pub fn header_bytes(&self) -> usize {
        self.body.header_bytes()
    }

    /// Writes the header to the front of `out` and returns its length. On an error, the content of `out` is
    /// undefined.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        emit(&self.common, &self.body, out)
    }

    /// As [`emit`](Self::emit), into a buffer of its own; there is always room.
    #[inline]
    pub fn emit_vec(&self) -> Result<Vec<u8, HEADER_BYTES_MAX>, EmitError> {
        let mut header = Vec::new();
        emit_into(&self.common, &self.body, &mut header)?;
        Ok(header)
    }
}

/// As [`Repr::emit`], of the parts.
#[inline]
fn emit(common: &Common, body: &Body, out: &mut [u8]) -> Result<usize, EmitError> {
    let header_bytes = body.header_bytes();
    let room = out.len();
    let header = out.get_mut(..header_bytes).ok_or(EmitError::NoRoom { needed: header_bytes, room })?;
    let layout = CommonLayout::new(common, body.kind(), body.flags(), header_bytes)?;
    let out = write(layout, header);
    body.emit(common.payload_bytes, out)?;
    Ok(header_bytes)
}

/// The header of a packet, into a buffer that is empty; there is always room. On an error, its content is
/// undefined.
#[inline]
pub(crate) fn emit_into(common: &Common, body: &Body, header: &mut Vec<u8, HEADER_BYTES_MAX>) -> Result<(), EmitError> {
    // The headers of most packets are of one size: written as a whole, not cleared and written.
    if let Body::Eager(head) = body {
        let _ = header.extend_from_slice(&eager_header(common, head));
        return Ok(());
    }
    if let Body::Data(data) = body {
        let _ = header.extend_from_slice(&data_header(common, data));
        return Ok(());
    }
    let needed = body.header_bytes();
    // Only as many bytes are touched as the header has.
    header.resize(needed, 0).map_err(|_| EmitError::NoRoom { needed, room: HEADER_BYTES_MAX })?;
    emit(common, body, header)?;
    Ok(())
}

/// Bytes of the header of an eager message.
pub const EAGER_BYTES: usize = COMMON_BYTES + Kind::Eager.fixed_bytes();

/// Bytes of the header of a segment.
const DATA_BYTES: usize = COMMON_BYTES + Kind::Data.fixed_bytes();

/// The header of an eager message.
#[inline(always)]
fn eager_header(common: &Common, head: &MessageHead) -> [u8; EAGER_BYTES] {
    whole(CommonLayout::lay_out(common, Kind::Eager, head.flags(), EAGER_BYTES), head.into())
}

/// The header of a segment.
#[inline(always)]
fn data_header(common: &Common, data: &Data) -> [u8; DATA_BYTES] {
    #[derive(IntoBytes, Immutable)]
    #[repr(C)]
    struct Whole(CommonLayout, DataLayout);
    zerocopy::transmute!(Whole(CommonLayout::lay_out(common, Kind::Data, 0, DATA_BYTES), data.into()))
}

#[inline(always)]
fn whole(common: CommonLayout, head: HeadLayout) -> [u8; EAGER_BYTES] {
    #[derive(IntoBytes, Immutable)]
    #[repr(C)]
    struct Whole(CommonLayout, HeadLayout);
    zerocopy::transmute!(Whole(common, head))
}

/// The header of an eager message whose sender waits for no FIN; the flags are those of
/// [`Short`](super::Short).
#[inline(always)]
pub(crate) fn short_header(common: &Common, tag: u64, immediate: u64, flags: u8) -> [u8; EAGER_BYTES] {
    whole(
        CommonLayout::lay_out(common, Kind::Eager, HeadLayout::flags_of_short(flags), EAGER_BYTES),
        HeadLayout::short(tag, immediate),
    )
}

/// The meaning of a header that is one of an eager message whose sender waits for no FIN: the common part,
/// and tag, immediate data and the flags of [`Short`](super::Short). `None`: it is another, or wrong.
#[inline(always)]
pub(crate) fn eager(header: &[u8]) -> Option<(Common, u64, u64, u8)> {
    let packet = Packet::new_eager(header.try_into().ok()?)?;
    let (tag, immediate, flags) = packet.short_head()?;
    Some((packet.common(), tag, immediate, flags))
}

/// The meaning of a header that is one of a segment; `None`: it is another, or wrong.
#[inline(always)]
pub(crate) fn segment(header: &[u8]) -> Option<(Common, Data)> {
    let header: &[u8; DATA_BYTES] = header.try_into().ok()?;
    let packet = Packet::new_of(Kind::Data, header)?;
    Some((packet.common(), Data::parse(&packet).ok()?))
}

/// The header of an eager message that requests nothing, of which only what a caller needs is read.
#[derive(Clone, Copy)]
pub(crate) struct PlainEager<'a> {
    packet: Packet<'a>,
    head: &'a HeadLayout,
}

impl<'a> PlainEager<'a> {
    /// `None`: it is another, or wrong.
    #[inline(always)]
    pub(crate) fn of(header: &'a [u8]) -> Option<PlainEager<'a>> {
        let packet = Packet::new_tagged(header.try_into().ok()?)?;
        let head = packet.body_as::<HeadLayout>().ok()?;
        head.is_canonical(packet.flags()).then_some(PlainEager { packet, head })
    }

    /// Whether source and number are these.
    #[inline(always)]
    pub(crate) fn is_numbered(&self, source: u32, psn: u32) -> bool {
        self.packet.is_numbered(source, psn)
    }

    /// Its acknowledgments and limits.
    #[inline(always)]
    pub(crate) fn news(&self) -> News {
        self.packet.news()
    }

    /// Bytes of payload.
    #[inline(always)]
    pub(crate) fn payload_bytes(&self) -> u32 {
        self.packet.payload_bytes()
    }

    /// Tag and immediate data, 0 where there is none, and the flags of [`Short`](super::Short).
    #[inline(always)]
    pub(crate) fn head(&self) -> (u64, u64, u8) {
        self.head.of_short(self.packet.flags())
    }
}

/// The acknowledgments and limits of an eager header that was [accepted](eager).
pub(crate) fn news(header: &[u8]) -> News {
    header.try_into().ok().and_then(Packet::new_eager).map_or(News::default(), |packet| packet.news())
}

/// Reads and writes bodies: those of the listed kinds by their types, those of the other kinds here.
macro_rules! bodies {
    ($($kind:ident($body:ty)),*) => {
        impl Packet<'_> {
            /// The fields beside the common header, checked against the rules of its kind.
            #[inline(always)]
            pub(crate) fn body(&self) -> Result<Body, WireError> {
                Ok(match self.kind() {
                    $(Kind::$kind => Body::$kind(<$body as Contents>::parse(self)?),)*
                    Kind::Aggregate => Body::Aggregate { count: aggregate::parse(self)? },
                    Kind::Credit => Body::Credit,
                    Kind::Bye => Body::Bye,
                })
            }
        }

        impl Body {
            /// Writes it behind the common header.
            #[inline]
            fn emit(&self, payload_bytes: u32, out: &mut [u8]) -> Result<(), WireError> {
                match self {
                    $(Body::$kind(body) => Contents::emit(body, out),)*
                    Body::Aggregate { count } => aggregate::emit(*count, payload_bytes, out),
                    Body::Credit | Body::Bye => Ok(()),
                }
            }

            /// The kind.
            #[inline]
            pub const fn kind(&self) -> Kind {
                match self {
                    $(Body::$kind(_) => Kind::$kind,)*
                    Body::Aggregate { .. } => Kind::Aggregate,
                    Body::Credit => Kind::Credit,
                    Body::Bye => Kind::Bye,
                }
            }

            #[inline]
            fn flags(&self) -> u16 {
                match self {
                    $(Body::$kind(body) => Contents::flags(body),)*
                    Body::Aggregate { .. } | Body::Credit | Body::Bye => 0,
                }
            }
        }
    };
}

bodies! {
    Eager(MessageHead), Rts(Rts), Cts(Cts), Fin(Fin), Data(Data), Put(Put), PutImmediate(PutImmediate),
    Get(Get), Atomic(Atomic), AtomicReply(AtomicReply), Resume(Resume), Ack(Ack), Connect(Connect), Fence(Fence), Probe(Probe),
    Address(Address), Park(Park)
}

impl Body {
    /// Bytes of the header of a packet with this body.
    #[inline]
    fn header_bytes(&self) -> usize {
        let keys = match self {
            Body::Rts(rts) => key_table_bytes(rts.keys.len()),
            Body::Cts(cts) => key_table_bytes(cts.keys.len()),
            _ => 0,
        };
        COMMON_BYTES + self.kind().fixed_bytes() + keys
    }
}
