//! Which rare paths simulations take: a soak that never takes one is no test of it.
//!
//! All of it is observed from outside: packets, completions and connections as rails see them ([`Witness`]),
//! tables as [`Usage`](rerail_core::endpoint::Usage) shows them, and what the workload did at a certain
//! moment.

mod observer;
mod witness;

use std::fmt;

pub use observer::Observer;
pub use witness::Witness;

macro_rules! paths {
    ($($path:ident: $words:literal,)*) => {
        /// A path that few simulations take.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Path {
            $( #[doc = $words] $path, )*
        }

        impl Path {
            /// All of them.
            pub const ALL: &[Path] = &[$( Path::$path, )*];

            /// What happened.
            pub const fn words(self) -> &'static str {
                match self { $( Path::$path => $words, )* }
            }
        }
    };
}

paths! {
    EagerReplayed: "a retained eager message is sent again",
    AggregateReplayed: "an aggregate is sent again",
    RtsReplayed: "an RTS is sent again",
    CtsReplayed: "a CTS is sent again",
    FinReplayed: "a FIN is sent again",
    DataReplayed: "a DATA segment behind the first is sent again",
    PutSegmentReplayed: "a segment of a put behind the first is sent again",
    AtomicReplayed: "an atomic, or a get, is sent again",
    NoticeReplayed: "the end of a put with immediate data is sent again",
    ReplyReplayed: "the answer to an atomic is sent again",
    OnAnotherRail: "a packet is sent again on another rail",
    DuplicateAtomic: "an atomic that was executed comes again",
    DuplicatePut: "a segment of a put that is in place comes again",
    DuplicateMessage: "a message comes again",
    Resume: "a RESUME of round 1",
    ResumeAgain: "a RESUME of round 2 or above",
    KeysRefreshed: "a CTS of round 1 or above brings keys",
    FinOfOldRound: "a FIN of a round that is over comes",
    FenceTwoDown: "a FENCE while two rails to the peer are down",
    FenceAnswered: "a FENCE is answered",
    FenceOfOld: "a FENCE comes of a connection that was left for another",
    BothEndsFail: "both ends of a connection fail within 10 us, by themselves",
    Unreachable: "no rail to a peer stands, and one comes back",
    PsnWraps: "PSNs of a lane wrap",
    ConnectionWraps: "the number of a connection wraps",
    ReceivedBeyond: "an ACK names packets beyond the first missing one",
    ReadOpensNothing: "a read finds that its key opens nothing",
    CreditAlone: "limits are sent on a packet of their own",
    PacketsFull: "the table of unacknowledged packets is full",
    RetainedFull: "all places for retained copies are in use",
    UnexpectedFull: "the table of unexpected messages is full",
    BlocksFull: "all blocks for unexpected payloads are in use",
    StripesFull: "all sets of stripes are in use",
    Refused: "a one-sided request is refused",
    RailMoved: "a rail reports a new address",
    DeviceReset: "a device is opened anew under traffic",
    RegistrationFails: "a registration fails",
    ShortWay: "a message takes the short way",
    ShortBesideAnother: "a message takes the short way while another rail to its sender is up",
    ShortAfterAnother: "a message takes the short way after another rail to its sender has failed",
    ShortLeavesTheWay: "a short message finds no receive, or goes on as a packet",
    ShortFindsNoRoom: "a ring has no room for a short message",
    Killed: "a process is killed with connections",
    LostWhenIdle: "a killed peer is noticed by a rank that has nothing under way with it",
    CloseInFlow: "a channel is closed while others carry traffic",
    LateCaller: "a peer calls a channel that is over",
    WindowWithdrawn: "a window is withdrawn while requests to it are under way",
    ClaimBesideCancel: "a receive is cancelled while messages are being claimed",
    CancelLate: "a receive is cancelled too late",
    Parked: "a channel is parked",
    ParkDeclined: "a peer declines to park",
    ParkCrosses: "both sides of a channel park it at once",
    ParkWithdrawn: "a request to park is withdrawn",
    ParkFails: "a connection fails with a PARK under way",
    Resumed: "a parked channel is opened again",
}

/// How many paths there are.
pub const PATHS: usize = Path::ALL.len();

/// How often each path was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    counts: [u64; PATHS],
}

impl Default for Coverage {
    fn default() -> Self {
        Coverage { counts: [0; PATHS] }
    }
}

impl Coverage {
    /// It was taken once more.
    pub fn note(&mut self, path: Path) {
        self.counts[path as usize] += 1;
    }

    /// How often it was taken.
    pub const fn of(&self, path: Path) -> u64 {
        self.counts[path as usize]
    }

    /// Adds one simulation: each path that it took counts once.
    pub fn add_simulation(&mut self, other: &Coverage) {
        for (count, taken) in self.counts.iter_mut().zip(other.counts) {
            *count += u64::from(taken > 0);
        }
    }

    /// All paths with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Path, u64)> {
        Path::ALL.iter().copied().zip(self.counts)
    }

    /// Those that were never taken.
    pub fn missing(&self) -> impl Iterator<Item = Path> {
        self.iter().filter(|(_, count)| *count == 0).map(|(path, _)| path)
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|(path, count)| writeln!(f, "{count:>9}  {}", path.words()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulation counts once for a path, however often it took it.
    #[test]
    fn simulations_are_counted_and_not_events() {
        let (mut all, mut one) = (Coverage::default(), Coverage::default());
        one.note(Path::Resume);
        one.note(Path::Resume);
        all.add_simulation(&one);
        all.add_simulation(&one);
        all.add_simulation(&Coverage::default());
        assert_eq!((one.of(Path::Resume), all.of(Path::Resume)), (2, 2));
        assert_eq!(all.missing().count(), PATHS - 1);
        assert!(all.to_string().contains("        2  a RESUME of round 1\n"));
    }
}
