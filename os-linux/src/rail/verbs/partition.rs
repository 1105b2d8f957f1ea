//! The partition that a rail is in (InfiniBand specification, 10.9). Rule V-20.
//!
//! Two ports can communicate where they have a key of the same partition, and one of them at least is a full
//! member. A job's processes are peers, so each needs full membership; two limited members can't reach each
//! other.

use rerail_verbs::contract::{CreateError, Device};
use rerail_verbs::{LinkLayer, Port};

use super::options::VerbsError;

/// The top bit of a key: full membership.
const FULL: u16 = 0x8000;

/// A key, and its index in the port's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    pub index: u16,
    /// 0: unknown.
    pub key: u16,
    /// It is no longer in the table, which was reported.
    pub lost: bool,
}

impl Partition {
    /// The default, where the table can't be queried, or need not be.
    pub const FIRST: Partition = Partition { index: 0, key: 0, lost: false };
}

/// Chooses the key of full membership that comes first in a port's table; `wanted` names its partition, and
/// then a limited one will do. On Ethernet there is one partition, and all are full members, whatever the
/// setting for InfiniBand rails.
///
/// # Errors
/// [`VerbsError::Partition`] where there is none; the device's reason, where its table can't be queried and
/// `wanted` is given.
pub(super) fn choose(device: &impl Device, port: &Port, wanted: Option<u16>) -> Result<Partition, VerbsError> {
    if port.link_layer == LinkLayer::Ethernet {
        return Ok(Partition::FIRST);
    }
    let mut limited = None;
    for index in 0..u16::MAX {
        let key = match device.pkey(port.number, index) {
            Ok(key) => key,
            Err(CreateError::OutOfRange { .. }) => break,
            // The default, as without a query.
            Err(why) if wanted.is_none() && why != CreateError::DeviceGone => {
                tracing::debug!(device = device.name(), port = port.number, %why, "partition keys can't be queried");
                return Ok(Partition::FIRST);
            }
            Err(why) => return Err(VerbsError::Create { what: "partition key", why }),
        };
        let partition = key & !FULL;
        if partition == 0 || wanted.is_some_and(|wanted| wanted & !FULL != partition) {
            continue;
        }
        if key & FULL != 0 {
            return Ok(Partition { index, key, lost: false });
        }
        limited.get_or_insert(Partition { index, key, lost: false });
    }
    match limited {
        Some(limited) if wanted.is_some() => {
            let key = format_args!("{:#06x}", limited.key);
            tracing::warn!(device = device.name(), %key, "limited membership: other such members are not reached");
            Ok(limited)
        }
        _ => Err(VerbsError::Partition {
            port: port.number,
            wanted: wanted.map(|wanted| wanted & !FULL),
            limited: limited.map(|limited| limited.key),
        }),
    }
}
