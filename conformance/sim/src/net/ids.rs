//! The names of a fabric's parts, and what may be wrong with LIDs.

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
    };
}

name!(
    /// A host.
    HostId
);
name!(
    /// An I/O bus of a host.
    BusId
);
name!(
    /// An HCA on a bus.
    HcaId
);
name!(
    /// A port of an HCA, with its link to the subnet's switch.
    PortId
);
name!(
    /// A subnet: one switch (or a fabric that behaves like one) with its planes.
    SubnetId
);

/// Why a port cannot have these LIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LidError {
    /// Unicast LIDs are 1..=0xbfff (IB spec vol. 1, 4.1.3); these reach beyond.
    OutOfRange {
        /// The requested base LID.
        base_lid: u16,
        /// The requested mask control.
        lmc: u8,
    },
    /// LMC is 0..=7 (IB spec vol. 1, 4.1.3).
    LmcTooLarge {
        /// The requested mask control.
        lmc: u8,
    },
    /// The low `lmc` bits of a base LID are 0 (IB spec vol. 1, 4.1.3).
    NotAligned {
        /// The requested base LID.
        base_lid: u16,
        /// The requested mask control.
        lmc: u8,
    },
    /// A port of the subnet has this LID.
    Taken {
        /// The LID.
        lid: u16,
        /// The port that has it.
        by: PortId,
    },
}

impl std::fmt::Display for LidError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            LidError::OutOfRange { base_lid, lmc } => {
                write!(f, "base LID {base_lid:#x} with LMC {lmc} leaves the unicast range 1..=0xbfff")
            }
            LidError::LmcTooLarge { lmc } => write!(f, "LMC {lmc} is more than 7"),
            LidError::NotAligned { base_lid, lmc } => write!(f, "base LID {base_lid:#x} has path bits set (LMC {lmc})"),
            LidError::Taken { lid, by } => write!(f, "LID {lid:#x} belongs to port {}", by.0),
        }
    }
}

impl std::error::Error for LidError {}
