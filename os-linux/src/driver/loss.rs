//! Why a peer is lost, in words: with the rails by their names, and the reasons of devices and of the system.

use std::fmt::{self, Formatter};

use rerail_core::endpoint::{Loss, RailFault};
use rerail_core::ids::RailId;
use rerail_verbs::contract::Status;
use rustix::io::Errno;

use super::{Clock, Transport};
use crate::rail::verbs::status_of;

impl<C: Clock> Transport<C> {
    /// Why a peer is lost, over which rails, and which attempts preceded: a sentence for people. The
    /// `Display` of a [`Loss`] gives the same with rails and devices' reasons as numbers.
    pub fn describe_loss(&self, why: Loss) -> String {
        describe(why, |rail| self.rail_name(rail))
    }

    /// The names of rails: bit `n` is rail `n`, as in `Loss::rails` and `Loss::attempts`. A rail that does
    /// not exist is named by its number.
    pub fn rail_names(&self, rails: u64) -> Vec<String> {
        (0..64).filter(|bit| rails >> bit & 1 == 1).map(|bit| self.rail_name(RailId(bit))).collect()
    }

    fn rail_name(&self, id: RailId) -> String {
        self.engine.rails.get(id).map_or_else(|| id.0.to_string(), |rail| rail.name().to_owned())
    }
}

/// A rail's report about a connection, with the device's or the system's reason as text.
pub fn describe_fault(fault: RailFault) -> String {
    match fault {
        RailFault::Device { code } => match status_of(code) {
            Some(Status::RetryExceeded) => {
                "the link failed: the other side's device has not acknowledged (transport retry counter exceeded)"
                    .to_owned()
            }
            Some(status) => format!("the link failed: a work request ended with {status}"),
            None if code == Errno::IO.raw_os_error() => {
                "the link failed: a verbs device was removed or had a fatal error; the rail goes on when the device is \
                 back (`rdma link`, `rerail info`)"
                    .to_owned()
            }
            None => format!("the link failed: {}", std::io::Error::from_raw_os_error(code)),
        },
        other => other.to_string(),
    }
}

fn describe(why: Loss, name: impl Fn(RailId) -> String) -> String {
    struct LossText<N>(Loss, N);

    impl<N: Fn(RailId) -> String> fmt::Display for LossText<N> {
        fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
            let LossText(why, name) = self;
            why.describe(f, |rail, f| f.write_str(&name(rail)), |fault, f| f.write_str(&describe_fault(fault)))
        }
    }

    LossText(why, name).to_string()
}

#[cfg(test)]
mod tests {
    use rerail_core::endpoint::{LossReason, ProtocolError};
    use rerail_core::time::Nanos;

    use super::*;

    #[test]
    fn lost_peer_message_lists_all_connection_attempts() {
        let name = |id: RailId| {
            let names = ["loop", "tcp:eth0", "tcp:eth1"];
            names.get(usize::from(id.0)).map_or_else(|| id.0.to_string(), |name| name.to_string())
        };
        let fault = RailFault::Device { code: 113 };
        let described = |reason, rails, millis, failed: &[u32]| {
            describe(Loss::new(reason, rails, Nanos::from_millis(millis), failed.iter().copied()), name)
        };
        assert_eq!(
            described(LossReason::Unreachable { rail: RailId(2), fault }, 0b1110, 12_340, &[9, 700, 0]),
            "no rail leads to it, at last rail tcp:eth1: the link failed: No route to host (os error 113); no rail was \
             ready for 12.3 s; connections that failed: 9 over tcp:eth0, 700 over tcp:eth1, none over 3"
        );
        let gone = RailFault::Gone;
        assert_eq!(
            described(LossReason::RailFailed { rail: RailId(1), fault: gone }, 0b110, 2, &[2, 1]),
            "rail tcp:eth0: no process listens there any more: the peer's process is gone; no rail was ready for 2.0 ms; \
             connections that failed: 2 over tcp:eth0, 1 over tcp:eth1"
        );
        assert_eq!(
            described(LossReason::Protocol(ProtocolError::Credit), 0x1ff << 1, 0, &[300, 0, 0, 0, 0, 0, 0, 3, 4]),
            "it broke the protocol: it sent more than was granted; connections that failed: 255 or more over tcp:eth0, \
             none over tcp:eth1, none over 3, none over 4, none over 5, none over 6, none over 7, 7 over 8 and 9"
        );
    }

    /// A verbs device's code is no errno, and an unplugged device is reported as such.
    #[test]
    fn device_fault_is_described_by_its_own_message() {
        for (code, words) in [
            (4096 + 12, "has not acknowledged"),
            (4096 + 10, "a work request ended with remote access error"),
            (Errno::IO.raw_os_error(), "removed or had a fatal error"),
            (Errno::NOMEM.raw_os_error(), "Cannot allocate memory"),
        ] {
            let described = describe_fault(RailFault::Device { code });
            assert!(described.contains(words), "{code}: {described}");
        }
    }
}
