//! Windows, reads, writes, atomics.

use rerail_core::endpoint::{Access, AtomicRequest, ExposeError, GetRequest, Level, PutRequest, Remote, Window};
use rerail_core::ids::{Cookie, OpId, PeerId, WindowId};
use rerail_core::mem::MemRef;
use rerail_core::wire::{AtomicKind, AtomicType};
use rerail_linux::driver::{RequestError, Transport, WindowError};

use super::ledger::{Record, What};
use super::{Errno, Piece, Pieces, Port, Stage};
use crate::abi::*;
use crate::memory::Target;

/// Rounds in which peers' requests may leave a window that is closed.
const CLOSE_ROUNDS_MAX: usize = 100_000;

/// Registered memory.
#[derive(Clone, Copy, Debug)]
pub struct Exposed {
    memory: Piece,
    access: Access,
    key: u64,
    /// The transport's name of it, once that has begun.
    window: Option<WindowId>,
}

/// A read or a write.
#[derive(Debug)]
pub struct OneSided {
    /// Through which endpoint.
    pub endpoint: u32,
    /// The owner of the memory.
    pub peer: u64,
    /// The key of that memory.
    pub key: u64,
    /// Bytes into it.
    pub offset: u64,
    /// Local memory.
    pub pieces: Pieces,
    /// Immediate data of a write, which the peer gets by a completion.
    pub data: Option<u64>,
    /// The data to write where the caller needs its buffer back at once.
    pub copy: Option<Box<[u8]>>,
    /// The caller's.
    pub context: u64,
    /// The call's flags; `None`: those of the endpoint.
    pub flags: Option<u64>,
    /// Whether it never makes a completion (`fi_inject_write`).
    pub silent: bool,
}

/// Registrations that a domain may have.
pub const WINDOWS_MAX: u32 = 32_768;
/// Values of an atomic at most: each is a request of the transport.
pub const ATOMIC_COUNT_MAX: usize = 64;

/// An atomic on values that follow each other.
#[derive(Debug)]
pub struct AtomicCall {
    /// Peer, key, offset, context and flags; no memory.
    pub at: OneSided,
    /// `enum fi_op`.
    pub op: i32,
    /// `enum fi_datatype`.
    pub datatype: i32,
    /// Operand and comparand of each value, in the low bytes: 1 to [`ATOMIC_COUNT_MAX`].
    pub values: Vec<(u64, u64)>,
    /// Where the values before go.
    pub old: Option<Target>,
}

/// What libfabric calls an atomic, as the transport calls it.
pub fn atomic_of(op: i32, datatype: i32) -> Option<(AtomicKind, AtomicType)> {
    let kind = match op {
        FI_MIN => AtomicKind::Min,
        FI_MAX => AtomicKind::Max,
        FI_SUM => AtomicKind::Add,
        FI_PROD => AtomicKind::Mul,
        FI_LOR => AtomicKind::LogicalOr,
        FI_LAND => AtomicKind::LogicalAnd,
        FI_BOR => AtomicKind::Or,
        FI_BAND => AtomicKind::And,
        FI_LXOR => AtomicKind::LogicalXor,
        FI_BXOR => AtomicKind::Xor,
        FI_ATOMIC_READ => AtomicKind::Fetch,
        FI_ATOMIC_WRITE => AtomicKind::Swap,
        FI_CSWAP => AtomicKind::CompareSwap,
        FI_CSWAP_NE => AtomicKind::CompareSwapNe,
        FI_CSWAP_LE => AtomicKind::CompareSwapLe,
        FI_CSWAP_LT => AtomicKind::CompareSwapLt,
        FI_CSWAP_GE => AtomicKind::CompareSwapGe,
        FI_CSWAP_GT => AtomicKind::CompareSwapGt,
        FI_MSWAP => AtomicKind::MaskedSwap,
        _ => return None,
    };
    let of = match datatype {
        FI_INT8 => AtomicType::I8,
        FI_UINT8 => AtomicType::U8,
        FI_INT16 => AtomicType::I16,
        FI_UINT16 => AtomicType::U16,
        FI_INT32 => AtomicType::I32,
        FI_UINT32 => AtomicType::U32,
        FI_INT64 => AtomicType::I64,
        FI_UINT64 => AtomicType::U64,
        FI_FLOAT => AtomicType::F32,
        FI_DOUBLE => AtomicType::F64,
        // More than the 8 bytes of a value (W-18), or two values.
        FI_FLOAT_COMPLEX | FI_DOUBLE_COMPLEX | FI_LONG_DOUBLE | FI_LONG_DOUBLE_COMPLEX => return None,
        _ => return None,
    };
    of.allows(kind).then_some((kind, of))
}

impl Port {
    /// Registers memory; without remote access nothing happens.
    ///
    /// # Errors
    /// `FI_ENOKEY` for a key in use, `FI_ENOMEM` where there are too many.
    pub fn register(&mut self, memory: Piece, access: u64, key: u64) -> Result<u32, Errno> {
        let (read, write) = (access & FI_REMOTE_READ != 0, access & FI_REMOTE_WRITE != 0);
        let access = Access { read, write, atomic: read && write };
        let exposed = Exposed { memory, access, key, window: None };
        if exposed.is_remote() && !self.keys.insert(key) {
            return Err(Errno(FI_ENOKEY));
        }
        let place = self.windows.insert(exposed);
        self.expose(place).inspect_err(|_| self.forget(place))?;
        Ok(place)
    }

    fn forget(&mut self, place: u32) {
        if let Some(exposed) = self.windows.remove(place).filter(Exposed::is_remote) {
            self.keys.remove(&exposed.key);
        }
    }

    /// Exposes memory that was registered before the transport started.
    pub(super) fn expose_all(&mut self) -> Result<(), Errno> {
        let places: Vec<u32> = self.windows.iter().map(|(place, _)| place).collect();
        places.into_iter().try_for_each(|place| self.expose(place))
    }

    fn expose(&mut self, place: u32) -> Result<(), Errno> {
        let Stage::Joined(transport) = &mut self.stage else { return Ok(()) };
        let exposed = self.windows.get_mut(place).filter(|exposed| exposed.is_remote());
        let Some(exposed) = exposed else { return Ok(()) };
        let Exposed { memory, access, key, .. } = *exposed;
        let at = MemRef { region: self.region, offset: memory.address };
        let window = transport.expose(&Window::new(at, memory.len, access, key));
        exposed.window = Some(window.map_err(|error| {
            Errno(match error {
                WindowError::Expose(ExposeError::KeyInUse(_)) => FI_ENOKEY,
                WindowError::Expose(ExposeError::Full) => FI_ENOMEM,
                _ => FI_EINVAL,
            })
        })?);
        Ok(())
    }

    /// Ends a registration.
    ///
    /// # Errors
    /// `FI_EBUSY` while peers' requests are served from it.
    pub fn deregister(&mut self, place: u32) -> Result<(), Errno> {
        let slot = *self.windows.get(place).ok_or(Errno(FI_EINVAL))?;
        if let Some(window) = slot.window {
            for _ in 0..CLOSE_ROUNDS_MAX {
                let Stage::Joined(transport) = &mut self.stage else { break };
                if transport.deregister(window).is_ok() {
                    self.forget(place);
                    return Ok(());
                }
                self.progress();
            }
            if matches!(self.stage, Stage::Joined(_)) {
                return Err(Errno(FI_EBUSY));
            }
        }
        self.forget(place);
        Ok(())
    }

    /// The rank that owns the memory, and whether the caller requests a completion, where there is room for a
    /// request.
    fn admit(&mut self, request: &OneSided, what: What, count: usize) -> Result<(PeerId, bool), Errno> {
        let (flags, needs_event) = self.call(request.endpoint, what, request.flags)?;
        self.pass_fence(flags)?;
        let peer = self.peer(request.endpoint, request.peer)?;
        if self.ledger.others as usize + count <= self.others_max as usize {
            Ok((peer, needs_event && !request.silent))
        } else if count > self.others_max as usize {
            Err(Errno(FI_EINVAL))
        } else {
            Err(Errno(FI_EAGAIN))
        }
    }

    /// A request with `FI_FENCE` waits, as later ones do, until all earlier ones to its peer are complete
    /// (fi_rma(3)): it is taken once those to all peers are.
    pub(super) fn pass_fence(&mut self, flags: u64) -> Result<(), Errno> {
        if flags & FI_FENCE == 0 || self.is_quiet() {
            return Ok(());
        }
        self.progress();
        if self.is_quiet() { Ok(()) } else { Err(Errno(FI_EAGAIN)) }
    }

    fn is_quiet(&self) -> bool {
        self.ledger.others == 0 && self.waiting.is_empty()
    }

    /// Keeps the record of a request, and submits it.
    fn submit_one_sided(
        &mut self,
        (request, peer): (&OneSided, PeerId),
        record: Record,
        submit: impl FnOnce(&mut Transport, Remote, Cookie) -> Result<OpId, RequestError>,
    ) -> Result<(), Errno> {
        let number = self.ledger.records.insert(record);
        let Stage::Joined(transport) = &mut self.stage else { return Err(Errno(FI_EOPBADSTATE)) };
        let at = Remote { peer, window: request.key, offset: request.offset };
        let submitted = submit(transport, at, Cookie(number.into()));
        self.submitted(number, submitted)
    }

    /// Writes into a peer's memory; complete when the bytes are there.
    ///
    /// # Errors
    /// `FI_EAGAIN` where there is no room now; others for good.
    pub fn write(&mut self, mut request: OneSided) -> Result<(), Errno> {
        let (peer, needs_event) = self.admit(&request, What::Write, 1)?;
        let copy = request.copy.take();
        let pieces = match &copy {
            Some(copy) => Pieces::one(copy.as_ptr().addr() as u64, copy.len() as u64),
            None => request.pieces,
        };
        let record = request.record(What::Write, FI_RMA | FI_WRITE);
        let segments = pieces.segments(self.region);
        let data = request.data;
        self.submit_one_sided((&request, peer), Record { copy, needs_event, ..record }, |transport, to, cookie| {
            let (segments, level) = (&segments[..pieces.count], Level::Placed);
            transport.put(&PutRequest { immediate: data, level, cookie, ..PutRequest::new(to, segments) })
        })
    }

    /// Reads from a peer's memory.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn read(&mut self, request: &OneSided) -> Result<(), Errno> {
        let (peer, needs_event) = self.admit(request, What::Read, 1)?;
        let record = request.record(What::Read, FI_RMA | FI_READ);
        let segments = request.pieces.segments(self.region);
        self.submit_one_sided((request, peer), Record { needs_event, ..record }, |transport, from, cookie| {
            let segments = &segments[..request.pieces.count];
            transport.get(&GetRequest { cookie, ..GetRequest::new(from, segments) })
        })
    }

    /// Changes values in a peer's memory, each by itself. The completion is that of the last one.
    ///
    /// # Errors
    /// `FI_EOPNOTSUPP` for unsupported operations, `FI_EAGAIN` where there is no room now; other errors are
    /// permanent.
    pub fn atomic(&mut self, request: AtomicCall) -> Result<(), Errno> {
        let AtomicCall { at: request, op, datatype, values, old } = request;
        let (kind, data_type) = atomic_of(op, datatype).ok_or(Errno(FI_EOPNOTSUPP))?;
        let (what, sort) = if old.is_some() { (What::Read, FI_READ) } else { (What::Write, FI_WRITE) };
        let (peer, needs_event) = self.admit(&request, what, values.len())?;
        let others = (values.len() as u32).checked_sub(1).ok_or(Errno(FI_EINVAL))?;
        let record = Record { old, needs_event, others, ..request.record(what, FI_ATOMIC | sort) };
        self.submit_one_sided((&request, peer), record, |transport, at, Cookie(number)| {
            let mut first = None;
            for (index, (operand, compare)) in (0u64..).zip(values) {
                let at = Remote { offset: at.offset.wrapping_add(index * data_type.bytes()), ..at };
                let cookie = Cookie(number | index << 32);
                let request = AtomicRequest { compare, cookie, ..AtomicRequest::new(at, kind, data_type, operand) };
                let submitted = transport.atomic(&request);
                // There is room for all of them, and the peer is the same: the first one is taken, or none.
                debug_assert!(first.is_none() || submitted.is_ok(), "{submitted:?}");
                first.get_or_insert(submitted?);
            }
            Ok(first.unwrap_or_default())
        })
    }
}

impl OneSided {
    fn record(&self, what: What, flags: u64) -> Record {
        Record::new(self.endpoint, what, self.context, flags)
    }
}

impl Exposed {
    fn is_remote(&self) -> bool {
        self.access.read || self.access.write
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers as in `enum fi_op` and `enum fi_datatype` of libfabric's fi_atomic.h.
    #[test]
    fn all_of_libfabrics_atomics_up_to_masked_swap() {
        for op in FI_MIN..=FI_MSWAP {
            let types: Vec<i32> =
                (FI_INT8..=FI_LONG_DOUBLE_COMPLEX).filter(|of| atomic_of(op, *of).is_some()).collect();
            let is_bitwise = matches!(op, FI_BOR | FI_BAND | FI_BXOR | FI_MSWAP);
            let last = if is_bitwise { FI_UINT64 } else { FI_DOUBLE };
            assert_eq!(types, (FI_INT8..=last).collect::<Vec<_>>(), "{op}");
        }
        assert_eq!(atomic_of(FI_MSWAP + 1, FI_UINT64), None);
        let comparing = (FI_CSWAP..=FI_MSWAP).map(|op| atomic_of(op, FI_INT64).map(|(kind, _)| kind));
        let kinds = [
            AtomicKind::CompareSwap,
            AtomicKind::CompareSwapNe,
            AtomicKind::CompareSwapLe,
            AtomicKind::CompareSwapLt,
            AtomicKind::CompareSwapGe,
            AtomicKind::CompareSwapGt,
            AtomicKind::MaskedSwap,
        ];
        assert!(comparing.eq(kinds.map(Some)));
    }
}
