//! Who the ranks are: what a report calls them by, and which way leads from one to another.

use std::fmt;

use rerail_core::endpoint::{LossReason, ProtocolError, RailFault};
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

/// Why a peer is lost, with the rail by its name.
pub fn describe_loss(transport: &Transport, why: LossReason) -> String {
    loss(why, |id| transport.rails().find(|rail| rail.id == id).map(|rail| rail.name.to_owned()))
}

/// As [`describe_loss`], by the names of rails.
fn loss(why: LossReason, name: impl Fn(RailId) -> Option<String>) -> String {
    let rail = |id: RailId| format!("rail {}", name(id).unwrap_or_else(|| id.0.to_string()));
    match why {
        LossReason::NoRail => "no rail reaches it".to_owned(),
        LossReason::RailFailed { rail: id, fault } => format!("{}: {}", rail(id), describe_fault(fault)),
        LossReason::ConnectTimeout => "no connection on any rail within the configured time".to_owned(),
        LossReason::Unreachable { rails, attempts, time, rail: last, fault } => {
            let tried: Vec<_> = (0..64).filter(|bit| rails >> bit & 1 == 1).map(|bit| rail(RailId(bit))).collect();
            format!(
                "no rail leads to it for {:.1} s: {attempts} attempts over {}, the last over {}: {}",
                time.0 as f64 / 1e9,
                tried.join(", "),
                rail(last),
                describe_fault(fault)
            )
        }
        LossReason::Silent => "nothing heard from it for the configured time".to_owned(),
        LossReason::Protocol(error) => format!("it broke the protocol: {}", describe_protocol(error)),
        LossReason::Removed => "removed by this process".to_owned(),
    }
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
    fn an_unreachable_peer_is_told_with_all_that_was_tried() {
        let name = |id: RailId| ["loop", "tcp:eth0", "tcp:eth1"].get(usize::from(id.0)).map(|name| name.to_string());
        let why = LossReason::Unreachable {
            rails: 0b1110,
            attempts: 17,
            time: Nanos::from_millis(12_340),
            rail: RailId(2),
            fault: RailFault::Device { code: 113 },
        };
        assert_eq!(
            loss(why, name),
            "no rail leads to it for 12.3 s: 17 attempts over rail tcp:eth0, rail tcp:eth1, rail 3, the last over rail \
             tcp:eth1: the link failed: No route to host (os error 113)"
        );
        let why = LossReason::RailFailed { rail: RailId(1), fault: RailFault::Gone };
        assert_eq!(loss(why, name), "rail tcp:eth0: nobody listens any more: its process is gone");
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
