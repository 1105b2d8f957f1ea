//! A device's answers as the numbers of [`RailFault::Device`]: `enum ibv_wc_status` for completions, errno for verbs.

use rerail_core::endpoint::RailFault;
use rerail_verbs::contract::{AsyncEvent, CreateError, ModifyError, PostError, PostReason, RegisterError, Status};

/// The device is broken (`EIO`).
pub(super) const BROKEN: i32 = libc::EIO;

/// The port is down (`ENETDOWN`).
pub(super) const PORT_DOWN: i32 = libc::ENETDOWN;
/// The port has another address (`ENETRESET`).
pub(super) const PORT_MOVED: i32 = libc::ENETRESET;

/// `enum ibv_wc_status`.
pub(super) fn of_status(status: Status) -> RailFault {
    let code = match status {
        Status::Success => 0,
        Status::LocalLength => 1,
        Status::LocalOperation => 2,
        Status::LocalProtection => 4,
        Status::Flushed => 5,
        Status::BadResponse => 7,
        Status::LocalAccess => 8,
        Status::RemoteInvalid => 9,
        Status::RemoteAccess => 10,
        Status::RemoteOperation => 11,
        Status::RetryExceeded => 12,
        Status::RnrRetryExceeded => 13,
        Status::Fatal => 19,
        Status::Other(code) => code,
    };
    RailFault::Device { code }
}

/// A queue pair's own event: as the completion that would say the same.
pub(super) fn of_event(event: AsyncEvent) -> RailFault {
    of_status(match event {
        AsyncEvent::QpRequestError(_) => Status::RemoteInvalid,
        AsyncEvent::QpAccessError(_) => Status::LocalAccess,
        _ => Status::Fatal,
    })
}

pub(super) fn of_create(why: &CreateError) -> RailFault {
    let code = match why {
        CreateError::Exhausted { .. } => libc::ENOMEM,
        CreateError::OutOfRange { .. } | CreateError::Unknown { .. } | CreateError::Mismatch { .. } => libc::EINVAL,
        CreateError::Unsupported { .. } => libc::EOPNOTSUPP,
        CreateError::DeviceGone => BROKEN,
        CreateError::System { code } => *code,
    };
    RailFault::Device { code }
}

pub(super) fn of_modify(why: &ModifyError) -> RailFault {
    let code = match why {
        ModifyError::Unknown { .. } | ModifyError::Transition(_) | ModifyError::OutOfRange { .. } => libc::EINVAL,
        ModifyError::DeviceGone => BROKEN,
        ModifyError::System { code } => *code,
    };
    RailFault::Device { code }
}

pub(super) fn of_post(why: &PostError) -> RailFault {
    let code = match &why.why {
        PostReason::Full { .. } => libc::ENOMEM,
        PostReason::DeviceGone => BROKEN,
        PostReason::System { code } => *code,
        _ => libc::EINVAL,
    };
    RailFault::Device { code }
}

pub(super) fn of_register(why: &RegisterError) -> RailFault {
    let code = match why {
        RegisterError::Exhausted { .. } => libc::ENOMEM,
        RegisterError::UnknownPd { .. } | RegisterError::Length { .. } | RegisterError::Access => libc::EINVAL,
        RegisterError::NoIova => libc::EOPNOTSUPP,
        RegisterError::DeviceGone => BROKEN,
        RegisterError::System { code } => *code,
    };
    RailFault::Device { code }
}
