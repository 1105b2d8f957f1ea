//! A device's codes as the numbers of [`RailFault::Device`]: errno for verbs; for completions, `enum
//! ibv_wc_status` plus 4096.

use rerail_core::endpoint::RailFault;
use rerail_verbs::contract::{AsyncEvent, CreateError, ModifyError, PostError, PostReason, RegisterError, Status};

/// The device is broken (`EIO`).
pub(super) const BROKEN: i32 = libc::EIO;

/// The port is down (`ENETDOWN`).
pub(super) const PORT_DOWN: i32 = libc::ENETDOWN;
/// The port has another address (`ENETRESET`).
pub(super) const PORT_MOVED: i32 = libc::ENETRESET;

/// A connection that shared a queue pair with this one has ended (`ECONNABORTED`).
pub(super) const SHARED: i32 = libc::ECONNABORTED;

/// Added to a completion's status: no errno is so large, and 12 is `ENOMEM` as well as retries that are
/// spent.
const STATUS_BASE: i32 = 4096;

/// How a work request ended, as the code of a fault.
pub(super) fn of_status(status: Status) -> RailFault {
    RailFault::Device { code: STATUS_BASE.saturating_add(status.number()) }
}

/// How the work request ended by which a verbs rail's connection failed: of a code of [`RailFault::Device`].
/// `None`: the code is an errno.
pub fn status_of(code: i32) -> Option<Status> {
    let number = code.checked_sub(STATUS_BASE).filter(|number| *number >= 0)?;
    Some(Status::from(number))
}

/// A queue pair's own event: as the equivalent completion.
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
        RegisterError::NoIova | RegisterError::NoOnDemand => libc::EOPNOTSUPP,
        RegisterError::DeviceGone => BROKEN,
        RegisterError::System { code } => *code,
    };
    RailFault::Device { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_no_errno_and_can_be_had_back() {
        for status in (0..=77).map(Status::from) {
            let RailFault::Device { code } = of_status(status) else { panic!("{status:?}") };
            assert_eq!(status_of(code), Some(status));
        }
        assert_eq!(of_status(Status::RetryExceeded), RailFault::Device { code: 4108 });
        assert_eq!((status_of(BROKEN), status_of(4095), status_of(-1), status_of(i32::MIN)), (None, None, None, None));
    }
}
