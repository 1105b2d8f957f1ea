//! What rails report to the core.

use super::event::RailFault;
use crate::ids::{PeerId, RailId};

/// Events that a rail reports besides packets and completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailEvent {
    /// The subchannel is up and the peer is authenticated: packets may be posted.
    Up {
        /// The peer.
        peer: PeerId,
        /// The rail.
        rail: RailId,
    },
    /// The subchannel is down, or could not be opened. Its incomplete posts never complete, and its
    /// placements are aborted.
    Down {
        /// The peer.
        peer: PeerId,
        /// The rail.
        rail: RailId,
        /// Why.
        fault: RailFault,
    },
    /// A dial waits at the peer's kernel for its process: that exists and makes no call, so the time without
    /// a usable path begins anew (F-9).
    Queued {
        /// The peer.
        peer: PeerId,
        /// The rail.
        rail: RailId,
    },
    /// A subchannel that is up can neither read nor write remote memory, though its rail can: access to the
    /// peer's memory depends on the pair. Holds until the subchannel's end.
    NoRemoteAccess {
        /// The peer.
        peer: PeerId,
        /// The rail.
        rail: RailId,
    },
    /// The device behind a rail was lost or recreated: its registrations are aborted, and no peer can use
    /// their keys any more. Each subchannel over it is reported down separately.
    Reset {
        /// The rail.
        rail: RailId,
    },
    /// The link or the device behind a rail works again: subchannels over it that wait for a redial are
    /// redialled at once (F-8).
    Back {
        /// The rail.
        rail: RailId,
    },
}

/// How a post ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostStatus {
    /// The rail doesn't need the payload memory any more (send, write), or has filled it (read).
    Done,
    /// As `Done`, of a short message that the rail has copied: when the device sends it is not known, so that
    /// its time measures nothing (P-1).
    Taken,
    /// It failed; the rail also reports the subchannel down.
    Failed,
    /// A read whose key is invalid, or not valid for this process. The subchannel stays up; the core requests
    /// the data in another way, and does not use the key again.
    NoAccess,
}
