//! What looking at rails and copying through rings cost, and the policies of both (shiba-2005, 2.3 and 3).

use rerail_linux::rail::shm::RingReads;
use rerail_linux::settings::Progress;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::rails::MapModel;

/// `rerail_linux::settings::Progress` by its names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgressSpec {
    /// Every round polls all rails: as ranks do whose rails beside shared memory have work.
    #[default]
    Timed,
    /// shiba-2005, 2.3.1. What is visible to a rank that sleeps here finds it at the turn that polling
    /// all the while would have brought it to.
    Adaptive,
    /// shiba-2005, 2.3.2.
    Toggle,
}

impl ProgressSpec {
    /// Whether it is the usual one.
    pub fn is_timed(&self) -> bool {
        *self == ProgressSpec::Timed
    }

    /// The driver's.
    pub fn policy(self) -> Progress {
        match self {
            ProgressSpec::Timed => Progress::Timed,
            ProgressSpec::Adaptive => Progress::Adaptive,
            ProgressSpec::Toggle => Progress::Toggle,
        }
    }
}

/// What copies into rings and out of them take. The bytes go over the memory's bus, one copy after the other:
/// that of the process, or one of the host (`shared`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CopySpec {
    /// Bytes of payload per second that are copied into a ring; 0: in no time.
    pub in_bytes_per_second: u64,
    /// The same out of a ring.
    pub out_bytes_per_second: u64,
    /// All processes of a host have one bus (shiba-2005's Xeon), not one each (its Opteron).
    pub shared: bool,
}

impl CopySpec {
    /// Whether copies take no time.
    pub fn is_free(&self) -> bool {
        *self == CopySpec::default()
    }
}

/// Memory that ranks allocate so that those of their host may map it (L-18), and what fails of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MapSpec {
    /// Bytes that a rank maps of a peer, at most; 0: ranks allocate no such memory.
    pub bytes_max: u64,
    /// One file in so many may not be mapped, as it might shrink, has holes, is no memory, ...; 0: none.
    pub unsafe_one_in: u64,
    /// One mapping in so many is refused, one descriptor in so many is lost; 0: none.
    pub refused_one_in: u64,
    /// One request or answer in so many waits for a socket that is full; 0: none.
    pub busy_one_in: u64,
}

impl MapSpec {
    /// The hub's.
    pub(super) fn model(self) -> MapModel {
        let MapSpec { bytes_max, unsafe_one_in, refused_one_in, busy_one_in } = self;
        MapModel { bytes_max, unsafe_one_in, refused_one_in, busy_one_in }
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.bytes_max == 0
    }
}

/// [`RingReads`] by their names.
pub(super) mod ring_reads {
    use super::*;

    /// For serde.
    pub fn serialize<S: Serializer>(value: &RingReads, serializer: S) -> Result<S::Ok, S::Error> {
        value.name().serialize(serializer)
    }

    /// For serde.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RingReads, D::Error> {
        let name = String::deserialize(deserializer)?;
        let unknown =
            || D::Error::custom(format!("no ring read \"{name}\"; there are {}", RingReads::NAMES.join(", ")));
        RingReads::named(&name).ok_or_else(unknown)
    }

    /// Whether it is the usual one.
    pub fn is_burst(value: &RingReads) -> bool {
        *value == RingReads::Burst
    }
}
