//! Names of things. Ids that leave the core carry a generation, so a late or repeated answer can't name new
//! work.

macro_rules! plain_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name(pub $inner);

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

plain_id!(
    /// A process of the job, by its rank: 0 to `peers_max - 1`.
    PeerId(u32)
);
plain_id!(
    #[derive(Default)]
    /// A rail of this endpoint, in the order in which rails were added.
    RailId(u8)
);

impl PeerId {
    /// Where no process is bound yet; no process has this number (S-11).
    pub(crate) const NONE: PeerId = PeerId(u32::MAX);
}

impl RailId {
    /// Its place in tables by rail.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

plain_id!(
    #[derive(Default)]
    /// What the caller gave a request to find it again; the core does not interpret it.
    Cookie(u64)
);
plain_id!(
    #[derive(Default)]
    /// A counter of this endpoint: 0 to `counters_max - 1`.
    CounterId(u16)
);

/// An index with a generation: the shape of every id that is handed out and comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Key {
    /// The slot.
    pub index: u32,
    /// How often the slot has been used; an older generation is invalid.
    pub generation: u32,
}

impl Key {
    /// As one number, for the wire and for hardware: generation above, index below.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// From [`to_bits`](Self::to_bits). Any number is a key; the table decides whether it is valid.
    pub const fn from_bits(bits: u64) -> Self {
        Key { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

macro_rules! key_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name(pub Key);
    };
}

key_id!(
    /// A submitted operation.
    OpId
);
key_id!(
    /// A packet, write or read handed to a rail: comes back in `handle_completion`.
    PostId
);
key_id!(
    /// The place of an arriving payload: comes back in `handle_placed`.
    PlaceId
);
key_id!(
    /// A claimed unexpected message (matched probe), received later by `recv_claimed`.
    MessageId
);
key_id!(
    /// Memory exposed to one-sided access by peers.
    WindowId
);
