//! Which attributes each change of a queue pair's state demands and allows (InfiniBand specification,
//! 11.2.5.2, tables 91 to 95; `ibv_modify_qp(3)`). One table for the software HCA and for libibverbs, so that
//! an illegal change is an error that names the missing or extra attribute, not `EINVAL`.

use super::qp::{Attr, Attrs, QpChange, QpKind, QpState};

/// Why a change of a queue pair is illegal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransitionError {
    /// No such step for this transport.
    #[error("a {kind:?} queue pair can't go from {from} to {to}")]
    Step {
        /// The transport.
        kind: QpKind,
        /// The state it is in.
        from: QpState,
        /// The requested state.
        to: QpState,
    },
    /// The caller assumes another state.
    #[error("the queue pair is in {actual}, and the change is for one in {named}")]
    Current {
        /// The state it is in.
        actual: QpState,
        /// The state that the caller named.
        named: QpState,
    },
    /// Attributes that the step demands were not given.
    #[error("to go from {from} to {to}, these must be given too: {attrs:?}")]
    Missing {
        /// The state it is in.
        from: QpState,
        /// The requested state.
        to: QpState,
        /// Which.
        attrs: Attrs,
    },
    /// Attributes were given that the step doesn't allow.
    #[error("on the way from {from} to {to}, these can't be changed: {attrs:?}")]
    NotAllowed {
        /// The state it is in.
        from: QpState,
        /// The requested state.
        to: QpState,
        /// Which.
        attrs: Attrs,
    },
}

/// Checks a change against the table: of a queue pair of this kind, in state `from`.
pub fn check_transition(kind: QpKind, from: QpState, change: &QpChange) -> Result<(), TransitionError> {
    let to = change.state.unwrap_or(from);
    if let Some(named) = change.current.filter(|named| *named != from) {
        return Err(TransitionError::Current { actual: from, named });
    }
    let (Some(demanded), Some(optional)) = (demanded(kind, from, to), optional(kind, from, to)) else {
        return Err(TransitionError::Step { kind, from, to });
    };
    let given = change.attrs();
    let missing = demanded.without(given);
    if !missing.is_empty() {
        return Err(TransitionError::Missing { from, to, attrs: missing });
    }
    let surplus = given.without(demanded | optional);
    if !surplus.is_empty() {
        return Err(TransitionError::NotAllowed { from, to, attrs: surplus });
    }
    Ok(())
}

/// The attributes that a step demands; `None`: there is no such step.
pub const fn demanded(kind: QpKind, from: QpState, to: QpState) -> Option<Attrs> {
    use Attr::*;
    use QpKind::*;
    use QpState::*;
    const PATH: &[Attr] = &[AddressVector, PathMtu, DestinationQp, RecvPsn];
    const PATH_SERVED: &[Attr] = &[AddressVector, PathMtu, DestinationQp, RecvPsn, ReadsServed, RnrTimer];
    Some(Attrs::of(match (kind, from, to) {
        (_, _, Reset | Error) => &[],
        (Ud, Reset, Init) => &[PkeyIndex, Port, Qkey],
        (Rc | XrcInitiator | XrcTarget, Reset, Init) => &[PkeyIndex, Port, Access],
        (_, Init, Init) => &[],
        (Ud, Init, Rtr) => &[],
        (XrcInitiator, Init, Rtr) => PATH,
        (Rc | XrcTarget, Init, Rtr) => PATH_SERVED,
        (Ud, Rtr, Rts) => &[SendPsn],
        (XrcTarget, Rtr, Rts) => &[Timeout, SendPsn],
        (Rc | XrcInitiator, Rtr, Rts) => &[Timeout, RetryCount, RnrRetry, SendPsn, ReadsOpen],
        (_, Rts, Rts) | (_, Rts, Sqd) | (_, Sqd, Rts) | (_, Sqd, Sqd) => &[],
        (Ud, Sqe, Rts) => &[],
        _ => return None,
    }))
}

/// The attributes that a step allows beside those that it demands; `None`: there is no such step.
pub const fn optional(kind: QpKind, from: QpState, to: QpState) -> Option<Attrs> {
    use Attr::*;
    use QpKind::*;
    use QpState::*;
    Some(Attrs::of(match (kind, from, to) {
        (_, _, Reset) => &[],
        (_, _, Error) => &[],
        (_, Reset, Init) => &[],
        (Ud, Init, Init) => &[PkeyIndex, Port, Qkey],
        (_, Init, Init) => &[PkeyIndex, Port, Access],
        (Ud, Init, Rtr) => &[PkeyIndex, Qkey],
        (_, Init, Rtr) => &[PkeyIndex, Access],
        (Ud, Rtr | Rts | Sqd | Sqe, Rts) => &[CurrentState, Qkey],
        (XrcInitiator, Rtr | Rts | Sqd, Rts) => &[CurrentState, Access],
        (_, Rtr | Rts | Sqd, Rts) => &[CurrentState, Access, RnrTimer],
        (_, Rts, Sqd) => &[DrainNotify],
        (Ud, Sqd, Sqd) => &[PkeyIndex, Qkey],
        (Rc, Sqd, Sqd) => {
            &[PkeyIndex, Port, Access, AddressVector, Timeout, RetryCount, RnrRetry, ReadsOpen, ReadsServed, RnrTimer]
        }
        (XrcInitiator, Sqd, Sqd) => &[PkeyIndex, Port, Access, AddressVector, Timeout, RetryCount, RnrRetry, ReadsOpen],
        (XrcTarget, Sqd, Sqd) => &[PkeyIndex, Port, Access, AddressVector, Timeout, ReadsServed, RnrTimer],
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Demands and allowances name the same steps and no attribute twice.
    #[test]
    fn the_table_is_consistent() {
        let mut steps = 0;
        for kind in [QpKind::Rc, QpKind::Ud, QpKind::XrcInitiator, QpKind::XrcTarget] {
            for from in QpState::ALL {
                for to in QpState::ALL {
                    let (demanded, optional) = (demanded(kind, from, to), optional(kind, from, to));
                    assert_eq!(demanded.is_some(), optional.is_some(), "{kind:?} {from} {to}");
                    let (Some(demanded), Some(optional)) = (demanded, optional) else { continue };
                    steps += 1;
                    assert_eq!(demanded.without(optional), demanded, "{kind:?} {from} {to}");
                }
            }
        }
        // Per kind: 7 to RESET, 7 to ERR, and 8 along the way; UD has SQE to RTS.
        assert_eq!(steps, 4 * (7 + 7 + 8) + 1);
    }

    /// The whole set is reported at once, and illegal attributes by name.
    #[test]
    fn errors_name_the_attributes() {
        let bare = QpChange::to(QpState::Init);
        let missing = check_transition(QpKind::Rc, QpState::Reset, &bare).unwrap_err();
        let attrs = Attrs::of(&[Attr::Access, Attr::PkeyIndex, Attr::Port]);
        assert_eq!(missing, TransitionError::Missing { from: QpState::Reset, to: QpState::Init, attrs });
        assert_eq!(missing.to_string(), "to go from RESET to INIT, these must be given too: {Access, PkeyIndex, Port}");
        let surplus = QpChange { qkey: Some(1), ..QpChange::to(QpState::Error) };
        assert!(matches!(
            check_transition(QpKind::Rc, QpState::Rts, &surplus),
            Err(TransitionError::NotAllowed { attrs, .. }) if attrs == Attrs::of(&[Attr::Qkey])
        ));
        let skip = QpChange::to(QpState::Rts);
        assert_eq!(
            check_transition(QpKind::Rc, QpState::Init, &skip),
            Err(TransitionError::Step { kind: QpKind::Rc, from: QpState::Init, to: QpState::Rts })
        );
        let wrong = QpChange { current: Some(QpState::Rts), ..QpChange::to(QpState::Rts) };
        assert!(matches!(
            check_transition(QpKind::Ud, QpState::Sqe, &wrong),
            Err(TransitionError::Current { actual: QpState::Sqe, named: QpState::Rts })
        ));
    }
}
