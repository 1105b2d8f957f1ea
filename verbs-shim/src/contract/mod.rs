//! The device contract: the project's interface to an InfiniBand device.
//!
//! One trait, [`Device`], with the objects and verbs of the InfiniBand specification (volume 1, chapters 10
//! and 11) as Rust types. The software HCA of the simulator implements it, libibverbs will, and one suite of
//! cases runs on either (`conformance/contract`). The rail that carries the core's packets uses only this
//! trait.
//!
//! | file | holds |
//! |---|---|
//! | `device` | the trait |
//! | `object` | names of objects and their parameters |
//! | `qp` | queue pairs: kinds, states, attributes |
//! | `transition` | which attributes each change of a queue pair's state demands and allows |
//! | `work` | work requests and their completions |
//! | `event` | asynchronous events |
//! | `error` | the errors of each verb |
//!
//! Invariants that every device keeps:
//!
//! * Nothing blocks. An operation that takes time shows its result later as a completion or an event.
//! * An object in use by others can't be destroyed ([`DestroyError::Busy`]); the name of a destroyed object
//!   names nothing.
//! * A refused verb has changed nothing, except that [`PostError`] gives the number of requests taken before
//!   the bad one.
//! * Bad arguments are reported, never undefined: the caller's only obligation is [`Device::register`]'s.

mod device;
mod error;
mod event;
mod object;
mod qp;
mod transition;
mod work;

pub use device::Device;
pub use error::{CreateError, DestroyError, Kind, ModifyError, PollError, PostError, PostReason, RegisterError};
pub use event::AsyncEvent;
pub use object::{
    Access, AhId, CqId, CqInit, Limits, Mr, MrId, PdId, Qp, QpId, Srq, SrqId, SrqInit, XrcSrqInit, XrcdFile, XrcdId,
};
pub use qp::{AddressVector, Attr, Attrs, GlobalRoute, QpCaps, QpChange, QpInfo, QpInit, QpKind, QpState};
pub use qp::{ack_timeout_ns, rnr_timer_ns};
pub use transition::{TransitionError, check_transition, demanded, optional};
pub use work::{Completion, CompletionKind, Datagram, Payload, RecvWr, Remote, SendOp, SendWr, Sge, Status};
