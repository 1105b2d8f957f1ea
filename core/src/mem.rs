//! How the core names memory: by region, offset and length. It never touches a payload byte.

/// A region of memory that the caller identifies by this number (registered, mapped or owned by the shim).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RegionId(pub u32);

impl RegionId {
    /// The payload pool: [`Config::pool_bytes`](crate::config::Config::pool_bytes) bytes that the shim
    /// provides for retained and unexpected payloads. Only the core hands out ranges of it.
    pub const POOL: RegionId = RegionId(u32::MAX);
}

/// A place in memory: `offset` bytes into `region`, or, with [`BY_ADDRESS`](Self::BY_ADDRESS), at an address
/// that lies in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MemRef {
    /// The region.
    pub region: RegionId,
    /// Bytes from the region's start, a multiple of 8 where there are atomics, or an address.
    pub offset: u64,
}

impl MemRef {
    /// Bit of an offset: the bits below it are an address. The shim finds the memory of a posted receive
    /// without a table; it makes these names, and must accept them wherever the core names memory.
    pub const BY_ADDRESS: u64 = 1 << 53;

    /// The name of an address in `region`, which is below [`BY_ADDRESS`](Self::BY_ADDRESS).
    pub const fn by_address(region: RegionId, address: u64) -> MemRef {
        MemRef { region, offset: address | MemRef::BY_ADDRESS }
    }

    /// The address, if that names it.
    #[inline(always)]
    pub const fn address(&self) -> Option<u64> {
        if self.offset & MemRef::BY_ADDRESS == 0 { None } else { Some(self.offset & !MemRef::BY_ADDRESS) }
    }
}

/// One contiguous piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Seg {
    /// Where it starts.
    pub at: MemRef,
    /// Its length in bytes.
    pub len: u64,
}

impl Seg {
    /// `len` bytes at `offset` of `region`.
    pub const fn new(region: RegionId, offset: u64, len: u64) -> Self {
        Seg { at: MemRef { region, offset }, len }
    }

    /// `len` bytes at a pointer, of a region that is the whole address space, where offsets are addresses.
    pub fn at_address(region: RegionId, start: *const u8, len: usize) -> Self {
        Seg::new(region, start.expose_provenance() as u64, len as u64)
    }
}
