//! The suite can fail: an ideal device is broken in one way at a time, and a case must find each.

mod flawed;
mod ideal;

use flawed::{Flaw, Flawed};
use ideal::IdealBed;
use rerail_contract::{Filter, Need, Outcome, run};

/// Each flaw, and a case that finds it.
const TABLE: &[(Flaw, &str)] = &[
    (Flaw::IllegalStepsAreTaken, "states/rc-from-init"),
    (Flaw::MissingAttributesAreExcused, "states/rc-attributes"),
    (Flaw::StateIsWrongInQueries, "states/made-in-reset"),
    (Flaw::ValuesAreNotChecked, "states/values-out-of-range"),
    (Flaw::PostsInAnyState, "posting/reset-takes-nothing"),
    (Flaw::DrainIsNotReported, "posting/sqd-tells-when-drained"),
    (Flaw::WrongIndexOfBadRequest, "posting/list-up-to-the-bad-one"),
    (Flaw::ImmediateIsLost, "send/immediate"),
    (Flaw::BytesAreWrong, "send/delivers-bytes"),
    (Flaw::ReceivesCompleteTwice, "send/ids-come-back"),
    (Flaw::LastByteIsLost, "send/delivers-bytes"),
    (Flaw::PollReturnsMoreThanRequested, "send/poll-takes-no-more-than-asked"),
    (Flaw::UnsignaledCompletes, "signal/unsignaled-makes-no-completion"),
    (Flaw::SignalAllIsIgnored, "signal/all-makes-every-completion"),
    (Flaw::InlineHasNoLimit, "signal/inline-too-long"),
    (Flaw::EverythingIsSolicited, "signal/solicited-only"),
    (Flaw::NoticesRepeat, "signal/notify-once"),
    (Flaw::NoNotices, "signal/notify-at-the-next"),
    (Flaw::ModeratedForEver, "signal/moderated-notice-comes"),
    (Flaw::ValuesAreNotChecked, "limits/moderation"),
    (Flaw::OnDemandIsLost, "protection/on-demand"),
    (Flaw::FlushBackwards, "ordering/flush-of-receives"),
    (Flaw::FlushOfUnsignaledIsSilent, "ordering/flush-tells-unsignaled"),
    (Flaw::FlushedInsteadOfCause, "ordering/first-error-then-flush"),
    (Flaw::WritesTakeReceives, "rdma/write-is-silent"),
    (Flaw::ReadsAreLost, "rdma/read"),
    (Flaw::AddsAreLost, "atomics/fetch-and-add"),
    (Flaw::SwapsAlways, "atomics/swap-of-another-value"),
    (Flaw::QueuesAreDeeper, "limits/send-queue-full"),
    (Flaw::MorePieces, "limits/send-pieces"),
    (Flaw::OverflowIsHidden, "limits/cq-overflow"),
    (Flaw::RangesAreLonger, "protection/rkey-beyond-its-range"),
    (Flaw::EveryRightIsGiven, "protection/write-without-the-right"),
    (Flaw::QueuePairGivesEveryRight, "protection/queue-pair-without-writes"),
    (Flaw::OneDomainForAll, "protection/lkey-of-another-domain"),
    (Flaw::KeysOutliveMemory, "protection/rkey-ended"),
    (Flaw::AccessErrorIsNotReported, "protection/error-event-at-the-peer"),
    (Flaw::RnrForEver, "retry/receive-never-posted"),
    (Flaw::RetriesForEver, "retry/peer-destroyed"),
    (Flaw::NoRnrRetry, "retry/waits-for-the-receive"),
    (Flaw::LimitIsNotReported, "srq/limit-event"),
    (Flaw::LimitIsTooEarly, "srq/limit-event"),
    (Flaw::LastRequestIsNotReported, "srq/last-request-event"),
    (Flaw::SrqIsOneNumberForAll, "xrc/several-queues-over-one-connection"),
    (Flaw::KeyOfDatagramsIsNotChecked, "ud/wrong-key-is-dropped"),
    (Flaw::HeaderIsNotCounted, "ud/delivers-bytes"),
    (Flaw::SourceIsNotReported, "ud/tells-the-sender"),
    (Flaw::HandlesOutlive, "handles/stale"),
    (Flaw::OneLidPerPort, "paths/source-path-bits"),
    (Flaw::LinkIsNotReported, "events/port-error-and-active"),
    (Flaw::FatalIsNotReported, "events/device-fatal"),
    (Flaw::EventsOfNothing, "events/none-when-all-is-well"),
    (Flaw::BusyIsDestroyed, "lifetime/domain-busy"),
    (Flaw::DestroyedTwice, "lifetime/stale-names"),
];

#[test]
fn every_flaw_is_found() {
    let mut missed = Vec::new();
    for (flaw, expected) in TABLE {
        let mut open = || Ok(Box::new(IdealBed::new(|device| Box::new(Flawed::new(device, *flaw)))) as _);
        let report = run(&Filter::all(), &mut open, &mut |_| {});
        let found: Vec<_> = report.failures().map(|(case, _)| case.name).collect();
        println!("{flaw:?}: {} cases, {:?}", found.len(), found.first());
        if !found.contains(expected) {
            missed.push(format!("{flaw:?}: {expected} passes; {found:?} fail"));
        }
    }
    assert!(missed.is_empty(), "not found:\n{}", missed.join("\n"));
}

/// Each group has a flaw that one of its cases finds.
#[test]
fn every_group_finds_something() {
    for group in rerail_contract::groups() {
        let finds = |case: &str| case.split('/').next() == Some(group.name);
        assert!(TABLE.iter().any(|(_, case)| finds(case)), "no flaw for {}", group.name);
    }
}

/// A device that has not what a case needs neither passes nor fails it; the results of all others are the
/// same as before.
#[test]
fn missing_device_feature_is_reported_as_unsupported() {
    let mut open = || Ok(Box::new(IdealBed::new(|device| Box::new(Flawed::new(device, Flaw::OwnAddressesOnly)))) as _);
    let report = run(&Filter::all(), &mut open, &mut |_| {});
    let other: Vec<_> = report.results.iter().filter(|result| result.outcome != Outcome::Passed).collect();
    let reported: Vec<_> = other.iter().map(|result| (result.case.name, &result.outcome)).collect();
    assert_eq!(reported, [("rdma/own-addresses", &Outcome::Unsupported(Need::Iova))]);
}
