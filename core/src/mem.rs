//! How the core names memory: by region, offset and length. It never touches a payload byte.

/// A region of memory that the caller knows under this number (registered, mapped or owned by the shim).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RegionId(pub u32);

impl RegionId {
    /// The payload pool: [`Config::pool_bytes`](crate::config::Config::pool_bytes) bytes that the shim
    /// provides for retained and unexpected payloads. Only the core hands out ranges of it.
    pub const POOL: RegionId = RegionId(u32::MAX);
}

/// A place in memory: `offset` bytes into `region`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MemRef {
    /// The region.
    pub region: RegionId,
    /// Bytes from the region's start.
    pub offset: u64,
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
