//! The seam between the suite and a place where it runs.

use std::fmt;

use rerail_verbs::contract::{AddressVector, Device};

/// A process's end of the testbed: an open device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The one that mostly sends.
    A,
    /// The one that mostly receives. It may be another opening of the same HCA.
    B,
    /// Another process on the HCA of `B`; only where the testbed has one ([`Testbed::has_sibling`]).
    C,
}

impl End {
    /// All of them.
    pub const ALL: [End; 3] = [End::A, End::B, End::C];
}

/// Two open devices that reach each other, and time. Fresh for each case: no object is left from another one.
///
/// Each end is the same device from the first call to the last; dropping the testbed closes them.
pub trait Testbed {
    /// The device of an end. Called for [`End::C`] only where there is one.
    fn device(&mut self, end: End) -> &mut dyn Device;

    /// The port that an end is to use.
    fn port(&self, end: End) -> u8;

    /// How `from` reaches the port of `to`, by its base LID or, where that is needed, by GID.
    fn address(&mut self, from: End, to: End) -> Result<AddressVector, String>;

    /// Whether there is an end C.
    fn has_sibling(&self) -> bool {
        false
    }

    /// A file that the ends B and C may share an XRC domain by: the descriptor for each.
    fn shared_file(&mut self) -> Option<[i32; 2]> {
        None
    }

    /// A wait begins: the time-out of [`pass`](Self::pass) starts anew.
    fn begin_wait(&mut self);

    /// Lets a little time pass: the next event in virtual time, a moment of real time. False: time is
    /// over, which is far beyond what any retry of any case takes, or nothing more can happen.
    fn pass(&mut self) -> bool;

    /// Lets time pass until all that is under way and needs no further call has happened: some fractions of a
    /// second.
    fn run_until_idle(&mut self);

    /// Whether faults of this [kind](Fault::kind) can be made here; parameters don't matter.
    fn offers(&self, fault: Fault) -> bool {
        let _ = fault;
        false
    }

    /// Makes a fault; called only for those that are offered.
    fn inject(&mut self, end: End, fault: Fault) -> Result<(), String> {
        Err(format!("{fault} can't be made at {end:?}"))
    }
}

/// A fault at an end's port or device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The link goes down.
    LinkDown,
    /// The link comes up again.
    LinkUp,
    /// The path over the LID with this offset from the base LID is dead.
    PathDown(u8),
    /// The next so many acknowledgments that this end sends are lost.
    LoseAcks(u32),
    /// The next so many packets with data or requests that this end sends are lost.
    LosePackets(u32),
    /// The next packet that this end sends is damaged on its way.
    CorruptPacket,
    /// The subnet manager gives the port another LID.
    ChangeLid,
    /// An entry of the port's GID table changes.
    ChangeGid,
    /// The device breaks.
    DeviceFatal,
    /// The next registration is refused for lack of memory.
    FailRegistration,
}

impl Fault {
    /// The fault without its parameter.
    pub const fn kind(self) -> &'static str {
        match self {
            Fault::LinkDown | Fault::LinkUp => "link down and up",
            Fault::PathDown(_) => "path down",
            Fault::LoseAcks(_) => "lost acknowledgments",
            Fault::LosePackets(_) => "lost packets",
            Fault::CorruptPacket => "damaged packets",
            Fault::ChangeLid => "change of LID",
            Fault::ChangeGid => "change of GID",
            Fault::DeviceFatal => "device fatal error",
            Fault::FailRegistration => "failing registration",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

/// What a case needs of the device or the testbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Shared receive queues.
    Srq,
    /// XRC.
    Xrc,
    /// Atomics.
    Atomics,
    /// Registration under any address.
    Iova,
    /// Registration on demand, for all requests of RC.
    OnDemand,
    /// Moderation of completion queues, by 2 completions and 1 us at least.
    Moderation,
    /// Inline sends of 16 bytes at least.
    Inline,
    /// Two pieces of memory in a request, at least.
    Gather,
    /// Several LIDs at each port (LMC).
    Paths,
    /// Addressing by LID (not on Ethernet).
    Lids,
    /// The sender's port has a GID at index 0, and so has the receiver's.
    Gids,
    /// Another process on the receiver's device, with a file shared with it.
    Sibling,
    /// This fault.
    Fault(Fault),
    /// Found out while the case ran.
    Other(&'static str),
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Need::Srq => "shared receive queues",
            Need::Xrc => "XRC",
            Need::Atomics => "atomics",
            Need::Iova => "registration under any address",
            Need::OnDemand => "registration on demand",
            Need::Moderation => "moderation of completion queues",
            Need::Inline => "inline sends",
            Need::Gather => "two pieces of memory in a request",
            Need::Paths => "several LIDs at a port",
            Need::Lids => "addressing by LID",
            Need::Gids => "a GID at index 0 of both ports",
            Need::Sibling => "another process on the same device",
            Need::Fault(fault) => return write!(f, "fault: {fault}"),
            Need::Other(what) => what,
        })
    }
}
