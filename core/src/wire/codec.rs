//! From bytes to meaning and back, for all kinds: [`Repr::parse`] and [`Repr::emit`].
//!
//! Invariant (canonical form, W-7): every accepted header has exactly one meaning and every meaning exactly
//! one header: `parse(emit(r)) == r` and `emit(parse(b)) == b`.

use super::aggregate;
use super::common::{CommonLayout, Kind, Packet, key_table_bytes, write};
use super::repr::*;
use heapless::Vec;

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
    match body {
        Body::Eager(head) => head.emit(out),
        Body::Aggregate { count } => aggregate::emit(*count, common.payload_bytes, out)?,
        Body::Rts(rts) => rts.emit(out),
        Body::Cts(cts) => cts.emit(out),
        Body::Fin(fin) => fin.emit(out)?,
        Body::Data(data) => data.emit(out),
        Body::Put(put) => put.emit(out),
        Body::Get(get) => get.emit(out),
        Body::Atomic(atomic) => atomic.emit(out),
        Body::AtomicReply(reply) => reply.emit(out),
        Body::Resume(resume) => resume.emit(out),
        Body::Ack(ack) => ack.emit(out),
        Body::Connect(connect) => connect.emit(out),
        Body::Fence(fence) => fence.emit(out),
        Body::Probe(probe) => probe.emit(out),
        Body::Address(address) => address.emit(out)?,
        Body::Credit | Body::Bye => {}
    }
    Ok(header_bytes)
}

/// The header of a packet, into a buffer that is empty; there is always room. On an error, its content is
/// undefined.
#[inline]
pub(crate) fn emit_into(common: &Common, body: &Body, header: &mut Vec<u8, HEADER_BYTES_MAX>) -> Result<(), EmitError> {
    if let Body::Eager(head) = body {
        // The header of most packets is of one size: it is written as a whole, not cleared and written.
        let mut bytes = [0; COMMON_BYTES + Kind::Eager.fixed_bytes()];
        let layout = CommonLayout::new(common, Kind::Eager, head.flags(), bytes.len())?;
        head.emit(write(layout, &mut bytes));
        let _ = header.extend_from_slice(&bytes);
        return Ok(());
    }
    let needed = body.header_bytes();
    // Only as many bytes are touched as the header has.
    header.resize(needed, 0).map_err(|_| EmitError::NoRoom { needed, room: HEADER_BYTES_MAX })?;
    emit(common, body, header)?;
    Ok(())
}

impl Packet<'_> {
    /// The fields beside the common header, checked against the rules of its kind.
    #[inline(always)]
    pub(crate) fn body(&self) -> Result<Body, WireError> {
        let packet = self;
        Ok(match packet.kind() {
            Kind::Eager => Body::Eager(MessageHead::parse(packet)?),
            Kind::Aggregate => Body::Aggregate { count: aggregate::parse(packet)? },
            Kind::Rts => Body::Rts(Rts::parse(packet)?),
            Kind::Cts => Body::Cts(Cts::parse(packet)?),
            Kind::Fin => Body::Fin(Fin::parse(packet)?),
            Kind::Data => Body::Data(Data::parse(packet)?),
            Kind::Put => Body::Put(Put::parse(packet)?),
            Kind::Get => Body::Get(Get::parse(packet)?),
            Kind::Atomic => Body::Atomic(Atomic::parse(packet)?),
            Kind::AtomicReply => Body::AtomicReply(AtomicReply::parse(packet)?),
            Kind::Resume => Body::Resume(Resume::parse(packet)?),
            Kind::Ack => Body::Ack(Ack::parse(packet)?),
            Kind::Credit => Body::Credit,
            Kind::Connect => Body::Connect(Connect::parse(packet)?),
            Kind::Fence => Body::Fence(Fence::parse(packet)?),
            Kind::Probe => Body::Probe(Probe::parse(packet)?),
            Kind::Bye => Body::Bye,
            Kind::Address => Body::Address(Address::parse(packet)?),
        })
    }
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

    /// The kind.
    #[inline]
    pub const fn kind(&self) -> Kind {
        match self {
            Body::Eager(_) => Kind::Eager,
            Body::Aggregate { .. } => Kind::Aggregate,
            Body::Rts(_) => Kind::Rts,
            Body::Cts(_) => Kind::Cts,
            Body::Fin(_) => Kind::Fin,
            Body::Data(_) => Kind::Data,
            Body::Put(_) => Kind::Put,
            Body::Get(_) => Kind::Get,
            Body::Atomic(_) => Kind::Atomic,
            Body::AtomicReply(_) => Kind::AtomicReply,
            Body::Resume(_) => Kind::Resume,
            Body::Ack(_) => Kind::Ack,
            Body::Credit => Kind::Credit,
            Body::Connect(_) => Kind::Connect,
            Body::Fence(_) => Kind::Fence,
            Body::Probe(_) => Kind::Probe,
            Body::Bye => Kind::Bye,
            Body::Address(_) => Kind::Address,
        }
    }

    #[inline]
    const fn flags(&self) -> u16 {
        match self {
            Body::Eager(head) => head.flags(),
            Body::Rts(rts) => rts.head.flags(),
            Body::Fin(fin) => fin.flags(),
            Body::Connect(connect) => connect.flags(),
            Body::Fence(fence) => fence.flags(),
            Body::Probe(probe) => probe.flags(),
            _ => 0,
        }
    }
}
