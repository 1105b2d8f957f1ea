//! Who the ranks are: what a report calls them by, and which way leads from one to another.

use std::fmt;

use rerail_core::endpoint::{Loss, LossReason, ProtocolError, RailFault};
use rerail_core::ids::RailId;
use rerail_linux::driver::Transport;
use rerail_linux::rail::verbs::status_of;
use rerail_verbs::contract::Status;
use serde::{Deserialize, Serialize};

/// What every rank tells the others about itself before it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// Its host, logical or real.
    pub host: String,
    /// Its process.
    pub pid: u32,
}

/// The way between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// A rank to itself.
    Loop,
    /// Shared memory.
    Shm,
    /// All TCP rails together.
    Tcp,
    /// Verbs rails, and TCP rails if there are such too.
    Verbs,
}

impl Path {
    /// Every path.
    pub const ALL: [Path; 4] = [Path::Loop, Path::Shm, Path::Tcp, Path::Verbs];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Path::Loop => "loop",
            Path::Shm => "shm",
            Path::Tcp => "tcp",
            Path::Verbs => "verbs",
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The way between two ranks; `shm`: whether shared memory is in use; `far`: the way between hosts.
pub fn path(people: &[Person], one: u32, other: u32, shm: bool, far: Path) -> Path {
    if one == other {
        Path::Loop
    } else if shm && people[one as usize].host == people[other as usize].host {
        Path::Shm
    } else {
        far
    }
}

/// This machine's name, for people.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}

/// Connections that failed before a peer was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// The rail by its name; where a loss does not tell them apart, several.
    pub rails: Vec<String>,
    /// Connections over it that failed since it carried packets last; [`Loss::attempts_max`]: so many or more.
    pub failed: u32,
}

/// Why a peer is lost, over which rails, and what was tried, with the rails by their names.
pub fn describe_loss(transport: &Transport, why: Loss) -> String {
    loss(why, names(transport))
}

/// Connections that failed before a peer was lost, by the rails that led to it.
pub fn attempts(transport: &Transport, why: Loss) -> Vec<Attempts> {
    attempts_by(why, names(transport))
}

fn names(transport: &Transport) -> impl Fn(RailId) -> String {
    |id| transport.rails().find(|rail| rail.id == id).map_or_else(|| id.0.to_string(), |rail| rail.name.to_owned())
}

fn attempts_by(why: Loss, name: impl Fn(RailId) -> String) -> Vec<Attempts> {
    let names = |rails: u64| (0..64).filter(|bit| rails >> bit & 1 == 1).map(|bit| name(RailId(bit))).collect();
    why.attempts().map(|(rails, failed)| Attempts { rails: names(rails), failed }).collect()
}

/// As [`describe_loss`], by the names of rails.
fn loss(why: Loss, name: impl Fn(RailId) -> String) -> String {
    let rail = |id: RailId, fault| format!("rail {}: {}", name(id), describe_fault(fault));
    let reason = match why.reason {
        LossReason::RailFailed { rail: id, fault } => rail(id, fault),
        LossReason::ConnectTimeout => "no connection on any rail within the configured time".to_owned(),
        LossReason::Unreachable { rail: last, fault } => format!("no rail leads to it, at last {}", rail(last, fault)),
        LossReason::Silent => "nothing heard from it for the configured time".to_owned(),
        LossReason::Protocol(error) => format!("it broke the protocol: {}", describe_protocol(error)),
    };
    let time = match why.time.0 {
        0 => String::new(),
        time @ ..1_000_000_000 => format!("; no rail was ready for {:.1} ms", time as f64 / 1e6),
        time => format!("; no rail was ready for {:.1} s", time as f64 / 1e9),
    };
    let most = why.attempts_max();
    let tried = attempts_by(why, name).into_iter().map(|Attempts { rails, failed }| {
        let number = match failed {
            0 => "none".to_owned(),
            failed if failed >= most => format!("{failed} or more"),
            failed => failed.to_string(),
        };
        format!("{number} over {}", rails.join(" and "))
    });
    format!("{reason}{time}; connections that failed: {}", tried.collect::<Vec<_>>().join(", "))
}

/// What a rail reported of a connection, in words.
pub fn describe_fault(fault: RailFault) -> String {
    match fault {
        RailFault::Closed => "its process is gone, or closed without a goodbye".to_owned(),
        RailFault::Refused => "it refused the connection".to_owned(),
        RailFault::Gone => "nobody listens any more: its process is gone".to_owned(),
        RailFault::Unauthenticated => "it did not prove that it belongs to the job".to_owned(),
        RailFault::TimedOut => "no answer in time".to_owned(),
        RailFault::Device { code } => match status_of(code) {
            Some(Status::RetryExceeded) => {
                "the link failed: the other side's device has not acknowledged (transport retry counter exceeded)"
                    .to_owned()
            }
            Some(status) => format!("the link failed: a work request ended with {status}"),
            None if code == libc::EIO => {
                "the link failed: a verbs device was removed or had a fatal error; the rail goes on \
                when the device is back (`rdma link`, `rerail info`)"
                    .to_owned()
            }
            None => format!("the link failed: {}", std::io::Error::from_raw_os_error(code)),
        },
        RailFault::Corrupt => "it wrote what no honest peer writes".to_owned(),
    }
}

fn describe_protocol(error: ProtocolError) -> String {
    match error {
        ProtocolError::Wire(wire) => format!("field {} holds {}", wire.field, wire.value),
        ProtocolError::WrongSource { named } => format!("a packet names rank {named} as its source"),
        ProtocolError::Sequence { psn } => format!("sequence number {psn} is out of the window"),
        ProtocolError::Credit => "it sent more than was granted".to_owned(),
        ProtocolError::TooLong { bytes } => format!("a payload of {bytes} bytes is over the limit"),
        ProtocolError::NotConnected => "a packet came before the connect".to_owned(),
        ProtocolError::OutOfRange { offset } => format!("a segment at offset {offset} is outside of its transfer"),
        ProtocolError::Terms => "its terms can't be met".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rerail_core::time::Nanos;

    #[test]
    fn a_lost_peer_is_told_with_all_that_was_tried() {
        let name = |id: RailId| {
            let names = ["loop", "tcp:eth0", "tcp:eth1"];
            names.get(usize::from(id.0)).map_or_else(|| id.0.to_string(), |name| name.to_string())
        };
        let fault = RailFault::Device { code: 113 };
        let told = |reason, rails, millis, failed: &[u32]| {
            loss(Loss::new(reason, rails, Nanos::from_millis(millis), failed.iter().copied()), name)
        };
        assert_eq!(
            told(LossReason::Unreachable { rail: RailId(2), fault }, 0b1110, 12_340, &[9, 700, 0]),
            "no rail leads to it, at last rail tcp:eth1: the link failed: No route to host (os error 113); no rail was \
             ready for 12.3 s; connections that failed: 9 over tcp:eth0, 700 over tcp:eth1, none over 3"
        );
        let gone = RailFault::Gone;
        assert_eq!(
            told(LossReason::RailFailed { rail: RailId(1), fault: gone }, 0b110, 2, &[2, 1]),
            "rail tcp:eth0: nobody listens any more: its process is gone; no rail was ready for 2.0 ms; connections that \
             failed: 2 over tcp:eth0, 1 over tcp:eth1"
        );
        assert_eq!(
            told(LossReason::Protocol(ProtocolError::Credit), 0x1ff << 1, 0, &[300, 0, 0, 0, 0, 0, 0, 3, 4]),
            "it broke the protocol: it sent more than was granted; connections that failed: 255 or more over \
             tcp:eth0, none over tcp:eth1, none over 3, none over 4, none over 5, none over 6, none over 7, 7 over 8 and 9"
        );
    }

    /// What a verbs device says is no errno, and an unplugged one is told as such.
    #[test]
    fn a_devices_reason_is_told_in_its_own_words() {
        for (code, words) in [
            (4096 + 12, "has not acknowledged"),
            (4096 + 10, "a work request ended with remote access error"),
            (libc::EIO, "removed or had a fatal error"),
            (libc::ENOMEM, "Cannot allocate memory"),
        ] {
            let told = describe_fault(RailFault::Device { code });
            assert!(told.contains(words), "{code}: {told}");
        }
    }

    #[test]
    fn hosts_decide_the_path() {
        let person = |host: &str| Person { host: host.to_owned(), pid: 1 };
        let people = [person("a"), person("a"), person("b")];
        assert_eq!(path(&people, 0, 0, true, Path::Tcp), Path::Loop);
        assert_eq!(path(&people, 0, 1, true, Path::Tcp), Path::Shm);
        assert_eq!(path(&people, 0, 1, false, Path::Tcp), Path::Tcp);
        assert_eq!(path(&people, 1, 2, true, Path::Tcp), Path::Tcp);
    }
}
