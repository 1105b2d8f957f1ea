//! Asynchronous events (InfiniBand specification, 11.6.3; `ibv_get_async_event(3)`).

use super::object::{CqId, QpId, SrqId};

/// Something that happened to a device, a port or an object, and belongs to no work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A completion queue is full and broken; further completions for it are lost.
    CqError(CqId),
    /// A queue pair went to the error state by an error that no completion can report.
    QpFatal(QpId),
    /// A queue pair went to the error state because of a request of its peer that was invalid.
    QpRequestError(QpId),
    /// A queue pair went to the error state because of a request of its peer that was not allowed.
    QpAccessError(QpId),
    /// A packet came for a queue pair that is ready to receive and not yet to send.
    CommEstablished(QpId),
    /// The send queue of a queue pair is drained.
    SqDrained(QpId),
    /// A queue pair with a shared receive queue went to the error state: it takes no more requests from
    /// there.
    QpLastWqe(QpId),
    /// A shared receive queue holds fewer requests than its limit; the limit is disarmed.
    SrqLimit(SrqId),
    /// A shared receive queue is broken.
    SrqError(SrqId),
    /// A port's link came up.
    PortActive(u8),
    /// A port's link went down.
    PortError(u8),
    /// A port has another LID.
    LidChange(u8),
    /// A port's partition keys changed.
    PkeyChange(u8),
    /// A port's table of GIDs changed.
    GidChange(u8),
    /// A port's subnet manager changed.
    ManagerChange(u8),
    /// The subnet manager requests new registrations.
    Reregister(u8),
    /// The device is broken: destroy everything and open it again.
    DeviceFatal,
    /// A number of `enum ibv_event_type` that is none of these.
    Other(i32),
}
