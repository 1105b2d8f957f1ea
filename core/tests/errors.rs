//! Every public error of the core states in a sentence what is wrong, and no two messages are equal.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use rerail_core::config::{Config, ConfigError};
use rerail_core::endpoint::{
    CancelError, DeregisterError, ExposeError, Full, Loss, LossReason, OpError, PeerError, ProtocolError, RailFault,
    SetAddressError, StartError, SubmitError,
};
use rerail_core::ids::{CounterId, PeerId, RailId};
use rerail_core::rel::credit::CreditExceeded;
use rerail_core::seq::Seq;
use rerail_core::seq::{AckError, ReorderError};
use rerail_core::shm::{AttachError, PushError, RingConfigError, RingError};
use rerail_core::store::ArenaError;
use rerail_core::tag::MatchFull;
use rerail_core::time::Nanos;
use rerail_core::wire::{AddressError, EmitError, Refusal, WireError};

/// Each message, with the error that has it.
#[derive(Default)]
struct Checked {
    by: BTreeMap<String, String>,
    types: Vec<&'static str>,
}

impl Checked {
    fn check(&mut self, name: &'static str, error: &dyn Error) {
        let text = error.to_string();
        assert!(text.contains(' ') && !text.contains('{') && text.trim() == text, "{name}: {text:?}");
        // Not the names of Rust's variants.
        assert!(!text.starts_with(char::is_uppercase) && !text.ends_with('.'), "{name}: {text:?}");
        let label = format!("{name}: {error:?}");
        if let Some(other) = self.by.insert(text.clone(), label.clone()) {
            panic!("{other} and {label} have the same message: {text}");
        }
        if !self.types.contains(&name) {
            self.types.push(name);
        }
    }
}

/// One error for each variant. A variant that is not here does not compile.
macro_rules! check {
    ($checked:ident, $name:ident { $($pattern:pat => $sample:expr),* $(,)? }) => {
        let _exhaustive = |error: &$name| match error { $($pattern => (),)* };
        $( let sample: $name = $sample; assert!(matches!(sample, $pattern)); $checked.check(stringify!($name), &sample); )*
    };
}

#[test]
fn every_error_speaks_for_itself() {
    let mut checked = Checked::default();
    let (peer, rail) = (PeerId(3), RailId(2));
    let config = Config { window: 3, ..Config::new(PeerId(0), 4) }.validate().unwrap_err();
    let wire = WireError { field: "kind", value: 77 };
    let ring = RingError { field: "head", value: 5 };
    let ring_config = RingConfigError { field: "slots", value: 1, min: 2, max: 9 };
    let loss = Loss::new(LossReason::Silent, 0b110, Nanos::from_millis(12_340), [9, 700]);
    check!(checked, ConfigError { ConfigError { .. } => config });
    check!(checked, ArenaError {
        ArenaError::TooSmall { .. } => ArenaError::TooSmall { needed: 10, given: 9 },
        ArenaError::Misaligned { .. } => ArenaError::Misaligned { off_by: 8 },
    });
    check!(checked, StartError {
        StartError::Config(_) => StartError::Config(config),
        StartError::Region(_) => StartError::Region(ArenaError::Misaligned { off_by: 8 }),
        StartError::RailFacts { .. } => StartError::RailFacts { rail },
        StartError::Rails { .. } => StartError::Rails { given: 9, max: 8 },
    });
    check!(checked, PeerError {
        PeerError::OutOfRange { .. } => PeerError::OutOfRange { peer, peers_max: 2 },
        PeerError::Known(_) => PeerError::Known(peer),
        PeerError::InUse(_) => PeerError::InUse(peer),
        PeerError::Unknown(_) => PeerError::Unknown(peer),
        PeerError::NoSuchRail { .. } => PeerError::NoSuchRail { rails: 0b100 },
    });
    check!(checked, AddressError {
        AddressError::Empty => AddressError::Empty,
        AddressError::TooLong { .. } => AddressError::TooLong { bytes: 1000 },
        AddressError::Byte { .. } => AddressError::Byte { at: 1, byte: 0 },
    });
    check!(checked, SetAddressError {
        SetAddressError::NoSuchRail(_) => SetAddressError::NoSuchRail(rail),
        SetAddressError::Address(_) => SetAddressError::Address(AddressError::Empty),
    });
    check!(checked, Full {
        Full::Operations => Full::Operations,
        Full::Channels => Full::Channels,
        Full::Retained => Full::Retained,
    });
    check!(checked, SubmitError {
        SubmitError::Full(_) => SubmitError::Full(Full::Channels),
        SubmitError::UnknownPeer(_) => SubmitError::UnknownPeer(peer),
        SubmitError::PeerGone(_) => SubmitError::PeerGone(peer),
        SubmitError::Segments { .. } => SubmitError::Segments { given: 5, max: 4 },
        SubmitError::TooLong { .. } => SubmitError::TooLong { bytes: 9000, max: 8192 },
        SubmitError::UnknownCounter(_) => SubmitError::UnknownCounter(CounterId(7)),
        SubmitError::UnknownMessage => SubmitError::UnknownMessage,
        SubmitError::BadMulti => SubmitError::BadMulti,
        SubmitError::BadAtomic => SubmitError::BadAtomic,
    });
    check!(checked, CancelError {
        CancelError::Unknown => CancelError::Unknown,
        CancelError::TooLate => CancelError::TooLate,
    });
    check!(checked, ExposeError {
        ExposeError::Full => ExposeError::Full,
        ExposeError::KeyInUse(_) => ExposeError::KeyInUse(9),
        ExposeError::UnknownCounter(_) => ExposeError::UnknownCounter(CounterId(9)),
        ExposeError::TooLong { .. } => ExposeError::TooLong { bytes: u64::MAX },
    });
    check!(checked, DeregisterError {
        DeregisterError::Unknown => DeregisterError::Unknown,
        DeregisterError::Busy => DeregisterError::Busy,
    });
    check!(checked, Refusal {
        Refusal::NoWindow => Refusal::NoWindow,
        Refusal::OutOfRange => Refusal::OutOfRange,
        Refusal::NoAccess => Refusal::NoAccess,
        Refusal::BadAtomic => Refusal::BadAtomic,
    });
    check!(checked, RailFault {
        RailFault::Closed => RailFault::Closed,
        RailFault::Refused => RailFault::Refused,
        RailFault::Gone => RailFault::Gone,
        RailFault::Unauthenticated => RailFault::Unauthenticated,
        RailFault::TimedOut => RailFault::TimedOut,
        RailFault::Device { .. } => RailFault::Device { code: 113 },
        RailFault::Corrupt => RailFault::Corrupt,
    });
    check!(checked, ProtocolError {
        ProtocolError::Wire(_) => ProtocolError::Wire(wire),
        ProtocolError::WrongSource { .. } => ProtocolError::WrongSource { named: 4 },
        ProtocolError::Sequence { .. } => ProtocolError::Sequence { psn: 8 },
        ProtocolError::Credit => ProtocolError::Credit,
        ProtocolError::TooLong { .. } => ProtocolError::TooLong { bytes: 70_000 },
        ProtocolError::NotConnected => ProtocolError::NotConnected,
        ProtocolError::OutOfRange { .. } => ProtocolError::OutOfRange { offset: 6 },
        ProtocolError::BadParameters => ProtocolError::BadParameters,
    });
    check!(checked, LossReason {
        LossReason::RailFailed { .. } => LossReason::RailFailed { rail, fault: RailFault::Gone },
        LossReason::ConnectTimeout => LossReason::ConnectTimeout,
        LossReason::Unreachable { .. } => LossReason::Unreachable { rail, fault: RailFault::Gone },
        LossReason::Silent => LossReason::Silent,
        LossReason::Protocol(_) => LossReason::Protocol(ProtocolError::Credit),
    });
    checked.check("Loss", &loss);
    check!(checked, OpError {
        OpError::Truncated { .. } => OpError::Truncated { sent: 9, capacity: 4, peer, tag: Some(7), immediate: Some(8) },
        OpError::Cancelled => OpError::Cancelled,
        OpError::PeerLost { .. } => OpError::PeerLost { peer, why: loss },
        OpError::PeerClosed { .. } => OpError::PeerClosed { peer },
        OpError::Refused { .. } => OpError::Refused { peer, why: Refusal::NoAccess },
        OpError::Registration { .. } => OpError::Registration { rail },
    });
    check!(checked, WireError { WireError { .. } => wire });
    check!(checked, EmitError {
        EmitError::NoRoom { .. } => EmitError::NoRoom { needed: 40, room: 39 },
        EmitError::Field(_) => EmitError::Field(wire),
    });
    check!(checked, MatchFull {
        MatchFull::Posted { .. } => MatchFull::Posted { max: 5 },
        MatchFull::Unexpected { .. } => MatchFull::Unexpected { max: 5 },
    });
    check!(checked, AckError { AckError { .. } => AckError { named: Seq(5), next: Seq(4) } });
    check!(checked, ReorderError {
        ReorderError::Old { .. } => ReorderError::Old { seq: Seq(1), esn: Seq(2) },
        ReorderError::Beyond { .. } => ReorderError::Beyond { seq: Seq(99), esn: Seq(2), window: 64 },
        ReorderError::Occupied { .. } => ReorderError::Occupied { seq: Seq(3), value: 1 },
    });
    check!(checked, CreditExceeded { CreditExceeded => CreditExceeded });
    check!(checked, RingConfigError { RingConfigError { .. } => ring_config });
    check!(checked, RingError { RingError { .. } => ring });
    check!(checked, PushError {
        PushError::Full => PushError::Full,
        PushError::TooLong { .. } => PushError::TooLong { bytes: 300, max: 256 },
        PushError::Corrupt(_) => PushError::Corrupt(ring),
    });
    check!(checked, AttachError {
        AttachError::Config(_) => AttachError::Config(ring_config),
        AttachError::TooSmall { .. } => AttachError::TooSmall { needed: 10, given: 9 },
        AttachError::Misaligned { .. } => AttachError::Misaligned { off_by: 8 },
        AttachError::Constant { .. } => AttachError::Constant { field: "slots", found: 1, expected: 2 },
    });
    for name in declared(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        assert!(checked.types.contains(&&*name), "{name} is a public error that this test does not check");
    }
}

/// Names of public types that end in `Error`.
fn declared(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            names.extend(declared(&entry));
            continue;
        }
        for line in std::fs::read_to_string(&entry).unwrap_or_default().lines() {
            let declared = line.strip_prefix("pub enum ").or_else(|| line.strip_prefix("pub struct "));
            let name = declared.map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default());
            names.extend(name.filter(|name| name.ends_with("Error")).map(str::to_owned));
        }
    }
    names
}

#[test]
fn lost_peer_message_lists_all_connection_attempts() {
    let described = |reason, rails, nanos, failed: &[u32]| {
        Loss::new(reason, rails, Nanos(nanos), failed.iter().copied()).to_string()
    };
    let fault = RailFault::Device { code: 113 };
    assert_eq!(
        described(LossReason::Unreachable { rail: RailId(2), fault }, 0b1110, 12_340_000_000, &[9, 700, 0]),
        "no rail leads to it, at last rail 2: the link failed: the device or the system reports 113; no rail was ready \
         for 12.3 s; connections that failed: 9 over 1, 700 over 2, none over 3"
    );
    assert_eq!(
        described(LossReason::Protocol(ProtocolError::Credit), 0x1ff << 1, 950_000, &[300, 0, 0, 0, 0, 0, 0, 3, 4]),
        "it broke the protocol: it sent more than was granted; no rail was ready for 1.0 ms; connections that failed: 255 \
         or more over 1, none over 2, none over 3, none over 4, none over 5, none over 6, none over 7, 7 over 8 and 9"
    );
}

/// What the README's `main` may use `?` on.
#[test]
fn errors_convert_to_boxed_errors() {
    fn any() -> Result<(), Box<dyn Error>> {
        Err(PeerError::Unknown(PeerId(9)))?;
        Err(DeregisterError::Busy)?;
        Ok(())
    }
    assert_eq!(any().unwrap_err().to_string(), "rank 9 was never added: add it first");
}
