use rerail_core::endpoint::{Completion, Done, Level, Notify, RequestKind, Written};
use rerail_core::ids::{Cookie, CounterId, PeerId};
use rerail_core::mem::{RegionId, Seg};
use rerail_core::wire::{AtomicKind, AtomicType, Refusal};

use super::super::fixture::{Fixture, tagged, why};
use super::super::identity::{BLANK, Content, POISON};
use super::super::ledger::Submission;
use super::super::notices::COUNTED;
use super::super::verdict::{Duplicated, Stuck};
use super::super::{Operation, Rule};
use super::*;

/// No rank reaches another.
fn all_cut() -> Vec<Cut> {
    [[0, 1], [0, 2], [2, 1]].map(|ranks| Cut { ranks, since: Time(0) }).into()
}

/// One message, sent and received well.
fn good() -> Fixture {
    let mut fixture = Fixture::new(2);
    let receive = fixture.recv(1, tagged(Some(0), 5, 0));
    let name = fixture.send(0, 1, 5);
    fixture.got(receive, name);
    fixture
}

#[test]
fn correct_run_is_judged_clean() {
    assert_eq!(good().verdict(), Verdict::Clean);
    assert_eq!(good().verdict().exit_code(), 0);
}

#[test]
fn exit_codes_differ_and_verdicts_speak() {
    let fixture = good();
    let name = super::super::Name::new(0, 1, 0);
    let at = Time(9);
    let facts = fixture.ledger.facts(0, 0);
    let loss = PeerLoss { rank: 0, peer: 1, why: why(), at, requests: 2 };
    let all = [
        Verdict::Clean,
        Verdict::Crash(Crash { rank: Some(3), at, message: "out of bounds".into() }),
        Verdict::Lost(Lost::Peer(loss)),
        Verdict::Duplicated(Duplicated::Message { name, first: 1, second: 2, at }),
        Verdict::Order(super::super::Disorder::NotTaken { receive: 1, name }),
        Verdict::Corruption(Corruption { rank: 1, at, damage: Damage::NotPlaced { name } }),
        Verdict::Leak(Leak::Table { rank: 0, table: "packets", used: 1 }),
        Verdict::Stuck(Stuck::Waiting { at, requests: vec![facts], count: 1 }),
    ];
    let codes: std::collections::BTreeSet<u8> = all.iter().map(Verdict::exit_code).collect();
    assert_eq!(codes.len(), all.len());
    for verdict in &all {
        assert!(verdict.to_string().starts_with(verdict.word()), "{verdict}");
    }
}

#[test]
fn a_message_received_twice_is_doubled() {
    let mut fixture = good();
    let again = fixture.recv(1, tagged(Some(0), 5, 0));
    fixture.got(again, super::super::Name::new(0, 1, 0));
    assert!(matches!(fixture.verdict(), Verdict::Duplicated(Duplicated::Message { first: 0, second: 1, .. })));
}

#[test]
fn repeated_completion_is_judged_duplicated() {
    let mut fixture = good();
    fixture.report(0, 0, Ok(Done::of(PeerId(0))), &[]);
    assert!(matches!(fixture.verdict(), Verdict::Duplicated(Duplicated::Completion { rank: 0, request: 0, .. })));
    let mut fixture = good();
    fixture.report(0, 77, Ok(Done::of(PeerId(0))), &[]);
    assert!(matches!(fixture.verdict(), Verdict::Duplicated(Duplicated::Completion { request: 77, .. })));
}

#[test]
fn undelivered_message_is_judged_lost() {
    let mut fixture = good();
    let name = fixture.send(0, 1, 5);
    assert!(matches!(fixture.verdict(), Verdict::Lost(Lost::Message { name: lost, .. }) if lost == name));
    // While a receive waits for it and nothing moves any more, too.
    fixture.recv(1, tagged(Some(0), 5, 0));
    let ending = Ending { converged: false, ..fixture.ending() };
    assert!(matches!(judge(&fixture.ledger, &ending, &NoMemory), Verdict::Lost(_)));
    // Things still move: then it is only late.
    let ending = Ending { quiet: false, ..ending };
    assert!(matches!(judge(&fixture.ledger, &ending, &NoMemory), Verdict::Stuck(Stuck::Waiting { count: 1, .. })));
}

/// The loss of a killed process must be reported to a rank that waits for it, as for any other.
#[test]
fn waiting_request_is_judged_stuck_if_its_peer_was_killed() {
    for killed in [false, true] {
        let mut fixture = good();
        fixture.send_at(0, 1, Some(5), 8, Level::Acknowledged);
        if killed {
            let now = fixture.time();
            fixture.ledger.killed(1, now);
        }
        let ending = Ending { converged: false, quiet: false, ..fixture.ending() };
        let verdict = judge(&fixture.ledger, &ending, &NoMemory);
        assert!(matches!(verdict, Verdict::Stuck(Stuck::Waiting { count: 1, .. })), "{verdict}");
    }
}

#[test]
fn a_message_taken_back_does_not_come() {
    let mut fixture = Fixture::new(2);
    let receive = fixture.recv(1, tagged(Some(0), 5, 0));
    let (name, request) = fixture.send_at(0, 1, Some(5), 16, Level::Reusable);
    fixture.cancel(0, request);
    assert!(!fixture.ledger.has_findings());
    fixture.got(receive, name);
    assert!(matches!(fixture.verdict(), Verdict::Duplicated(Duplicated::Cancelled { .. })));
}

#[test]
fn uncompleted_send_of_a_received_message_is_judged_lost() {
    let mut fixture = Fixture::new(2);
    let receive = fixture.recv(1, tagged(Some(0), 5, 0));
    let (name, _) = fixture.send_at(0, 1, Some(5), 16, Level::Reusable);
    fixture.got(receive, name);
    assert!(matches!(fixture.verdict(), Verdict::Lost(Lost::Completion(facts)) if facts.rank == 0));
}

#[test]
fn counters_count_each_request_once() {
    let mut fixture = good();
    let at = fixture.time();
    let (name, count) = (fixture.ledger.next_name(0, 1), Notify::Counter(CounterId(3)));
    let submission = Submission::Send { name, len: 0, tag: Some(5), immediate: true, level: Level::Reusable };
    fixture.ledger.submitted(0, at, submission, &[], count);
    let receive = fixture.recv(1, tagged(Some(0), 5, 0));
    fixture.report(1, receive, Ok(fixture.done(name)), &[BLANK; 16]);
    let judge_with = |counted| {
        let ending = Ending { counters: vec![(0, 3, counted), (0, 4, 0)], ..fixture.ending() };
        judge(&fixture.ledger, &ending, &NoMemory)
    };
    assert_eq!(judge_with(1), Verdict::Clean);
    assert!(matches!(judge_with(0), Verdict::Lost(Lost::Counted { .. })));
    assert!(matches!(judge_with(2), Verdict::Duplicated(Duplicated::Counted { .. })));
}

#[test]
fn counters_count_each_put_into_their_window_once() {
    let mut fixture = good();
    fixture.ledger.count_notices(1, 3);
    let at = fixture.time();
    let submission = Submission::Put { target: 1, slot: 0, content: Content(9), immediate: true, bad: None };
    let put = fixture.ledger.submitted(0, at, submission, &[], Notify::Event);
    let notice = |cookie| Written { peer: PeerId(0), cookie, window: 0, offset: 0, bytes: 0, immediate: 9 };
    fixture.ledger.written(1, at, &notice(COUNTED));
    fixture.report(0, put, Ok(Done::of(PeerId(1))), &[]);
    let judge_with = |counted| {
        let ending = Ending { counters: vec![(1, 3, counted), (1, 4, 0)], ..fixture.ending() };
        judge(&fixture.ledger, &ending, &NoMemory)
    };
    assert!(matches!(judge_with(0), Verdict::Lost(Lost::Counted { .. })));
    assert!(matches!(judge_with(2), Verdict::Duplicated(Duplicated::Counted { .. })));
    assert!(!matches!(judge_with(1), Verdict::Lost(Lost::Counted { .. }) | Verdict::Duplicated(_)));
}

fn damage(verdict: Verdict) -> Damage {
    match verdict {
        Verdict::Corruption(corruption) => corruption.damage,
        other => panic!("{other}"),
    }
}

#[test]
fn wrong_bytes_are_corruption() {
    let receive_with = |change: &dyn Fn(&mut Done, &mut [u8])| {
        let mut fixture = Fixture::new(3);
        let receive = fixture.submission(1, Submission::Receive { from: tagged(Some(0), 5, 0), claimed: None }, 20);
        let name = fixture.send(0, 1, 5);
        let mut memory = [BLANK; 20];
        Content::from(name).fill(0, &mut memory[..16]);
        let mut done = fixture.done(name);
        change(&mut done, &mut memory);
        fixture.report(1, receive, Ok(done), &memory);
        fixture.verdict()
    };
    assert_eq!(receive_with(&|_, _| ()), Verdict::Clean);
    assert!(matches!(damage(receive_with(&|_, memory| memory[15] ^= 1)), Damage::Message { .. }));
    assert!(matches!(damage(receive_with(&|_, memory| memory[16] = 0)), Damage::Behind { .. }));
    assert!(matches!(damage(receive_with(&|done, _| done.tag = Some(6))), Damage::Envelope { field: "tag", .. }));
    assert!(matches!(damage(receive_with(&|done, _| done.peer = PeerId(2))), Damage::Envelope { field: "source", .. }));
    assert!(matches!(damage(receive_with(&|done, _| done.bytes = 12)), Damage::Envelope { field: "length", .. }));
    assert!(matches!(
        damage(receive_with(&|done, _| done.immediate = None)),
        Damage::Envelope { field: "immediate", .. }
    ));
    assert!(matches!(damage(receive_with(&|done, _| done.immediate = Some(9))), Damage::UnknownMessage { .. }));
    assert!(matches!(damage(receive_with(&|done, _| done.bytes = 200)), Damage::UnknownMessage { .. }));
}

#[test]
fn delivered_multi_receive_part_stays_unmodified() {
    for late in [None, Some(0), Some(15)] {
        let mut fixture = Fixture::new(2);
        let multi = fixture.multi(1, tagged(None, 0, !0), 32, 16);
        let (first, second) = (fixture.send(0, 1, 1), fixture.send(0, 1, 1));
        fixture.part(multi, first, 0, false);
        let mut memory = [0; 32];
        Content::from(first).fill(0, &mut memory[..16]);
        Content::from(second).fill(0, &mut memory[16..]);
        if let Some(at) = late {
            memory[at] ^= 1;
        }
        let done = Done { offset: 16, released: true, ..fixture.done(second) };
        fixture.report_at(1, multi, 1, Ok(done), &memory);
        match late {
            None => assert_eq!(fixture.verdict(), Verdict::Clean),
            Some(_) => assert!(matches!(damage(fixture.verdict()), Damage::Message { name, .. } if name == first)),
        }
    }
}

#[test]
fn truncation_reports_sent_length_and_capacity() {
    let truncate = |sent, capacity, wrong: bool| {
        let mut fixture = Fixture::new(2);
        let receive = fixture.submission(1, Submission::Receive { from: tagged(Some(0), 5, 0), claimed: None }, 12);
        let name = fixture.send(0, 1, 5);
        let mut memory = [BLANK; 12];
        Content::from(name).fill(0, &mut memory);
        memory[11] ^= u8::from(wrong);
        let error = OpError::Truncated { sent, capacity, peer: PeerId(0), tag: Some(5), immediate: None };
        fixture.report(1, receive, Err(error), &memory);
        fixture.verdict()
    };
    assert_eq!(truncate(16, 12, false), Verdict::Clean);
    assert!(matches!(damage(truncate(17, 12, false)), Damage::Envelope { field: "length", .. }));
    assert!(matches!(damage(truncate(16, 12, true)), Damage::Message { .. }));
}

/// A multi-receive of 64 bytes is taken back after messages failed with their peer and 8 bytes came behind
/// them; the bytes `written` belong to a message.
fn taken_back(failed: usize, written: &[usize]) -> Verdict {
    let mut fixture = Fixture::new(3);
    let from = rerail_core::endpoint::Selector::ANY_UNTAGGED;
    let multi = fixture.multi(2, from, 64, 1);
    let (lost, cut) =
        (fixture.send_at(0, 2, None, 16, Level::Placed).1, fixture.send_at(0, 2, None, 8, Level::Placed).1);
    let (name, sent) = fixture.send_at(1, 2, None, 8, Level::Reusable);
    fixture.sent(1, sent, name, 8);
    let error = Err(OpError::PeerLost { peer: PeerId(0), why: why() });
    for _ in 0..failed {
        fixture.report_part(2, multi, error, &[BLANK; 64]);
    }
    let mut memory = vec![BLANK; 64];
    let offset = 16 * failed as u64;
    Content::from(name).fill(0, &mut memory[offset as usize..][..8]);
    let done = Done { offset, ..fixture.done(name) };
    fixture.report_part(2, multi, Ok(done), &memory);
    written.iter().for_each(|at| memory[*at] = 1);
    for request in [lost, cut] {
        fixture.report(0, request, Err(OpError::PeerLost { peer: PeerId(2), why: why() }), &[]);
    }
    let now = fixture.time();
    fixture.ledger.peer_lost(0, now, 2, why());
    fixture.ledger.peer_lost(2, now, 0, why());
    fixture.ledger.cancelled(2, now, multi);
    fixture.report(2, multi, Err(OpError::Cancelled), &memory);
    judge(&fixture.ledger, &Ending { cuts: all_cut(), ..fixture.ending() }, &NoMemory)
}

#[test]
fn cancelled_multi_receive_is_written_only_at_messages() {
    assert_eq!(taken_back(0, &[]), Verdict::Clean);
    assert!(matches!(damage(taken_back(0, &[8])), Damage::Behind { difference, .. } if difference.at == 8));
    // A message that failed with its peer may have been written in part, and the next one lies behind it.
    assert_eq!(taken_back(1, &[]), Verdict::Clean);
    assert_eq!(taken_back(1, &[3]), Verdict::Clean);
    assert!(matches!(damage(taken_back(1, &[24])), Damage::Behind { difference, .. } if difference.at == 24));
}

#[test]
fn modified_source_buffer_is_detected() {
    let mut fixture = Fixture::new(2);
    let receive = fixture.recv(1, tagged(Some(0), 5, 0));
    let (name, request) = fixture.send_at(0, 1, Some(5), 16, Level::Reusable);
    fixture.report(0, request, Ok(Done::of(PeerId(0))), &[POISON; 16]);
    fixture.got(receive, name);
    assert!(matches!(damage(fixture.verdict()), Damage::Source { request: 0, .. }));
}

/// Memory of windows as tests need it; all slots hold the same.
struct Windows {
    slot: Vec<u8>,
    cell: u64,
    inside: Result<(), Damage>,
    buffer: Vec<u8>,
}

impl Peek for Windows {
    fn peek(&self, _: u32, seg: Seg) -> Option<&[u8]> {
        self.buffer.get(..seg.len as usize)
    }

    fn slot(&self, _: u32, _: u32) -> Option<&[u8]> {
        Some(&self.slot)
    }
}

impl WindowMemory for Windows {
    fn cell(&self, _: u32, _: u32) -> Option<u64> {
        Some(self.cell)
    }

    fn inspect(&self, _: u32) -> Result<(), Damage> {
        self.inside.clone()
    }
}

fn windows(content: u64) -> Windows {
    let mut slot = vec![0; 16];
    Content(content).fill(0, &mut slot);
    Windows { slot, cell: 0, inside: Ok(()), buffer: vec![BLANK; 16] }
}

#[test]
fn placed_means_in_the_buffer() {
    let fixture = |there: bool| {
        let mut fixture = Fixture::new(2);
        let receive = fixture.recv(1, tagged(Some(0), 5, 0));
        let (name, request) = fixture.send_at(0, 1, Some(5), 16, Level::Placed);
        fixture.sent(0, request, name, 16);
        let mut memory = windows(0);
        if there {
            Content::from(name).fill(0, &mut memory.buffer);
        }
        fixture.ledger.judge_due(Time(9), &memory);
        fixture.got(receive, name);
        fixture.verdict()
    };
    assert_eq!(fixture(true), Verdict::Clean);
    assert!(matches!(damage(fixture(false)), Damage::NotPlaced { .. }));
}

#[test]
fn a_completion_is_about_its_request() {
    for kind in [RequestKind::Send, RequestKind::Put] {
        let mut fixture = Fixture::new(2);
        let (name, request) = fixture.send_at(0, 1, Some(5), 16, Level::Reusable);
        let mut payload = [0; 16];
        Content::from(name).fill(0, &mut payload);
        let completion = fixture.completion(0, request, Ok(Done::of(PeerId(0))), true, 0);
        let at = fixture.time();
        fixture.ledger.reported(0, at, &Completion { kind, ..completion }, &payload);
        let receive = fixture.recv(1, tagged(Some(0), 5, 0));
        fixture.got(receive, name);
        let verdict = fixture.verdict();
        assert_eq!(verdict == Verdict::Clean, kind == RequestKind::Send, "{verdict}");
        assert!(verdict == Verdict::Clean || matches!(damage(verdict), Damage::Kind { kind: RequestKind::Put, .. }));
    }
}

fn put(fixture: &mut Fixture, content: u64, bad: Option<Refusal>) -> u32 {
    fixture.submission(0, Submission::Put { target: 1, slot: 0, content: Content(content), immediate: false, bad }, 16)
}

#[test]
fn put_data_is_in_the_window_at_completion() {
    for (there, good) in [(7, true), (3, false)] {
        let mut fixture = Fixture::new(2);
        fixture.ledger.slots().open(1, 0, Content(3));
        let request = put(&mut fixture, 7, None);
        // When it begins, the slot is looked at.
        fixture.ledger.judge_due(Time(2), &windows(3));
        fixture.report(0, request, Ok(Done::of(PeerId(0))), &windows(7).slot);
        fixture.ledger.judge_due(Time(9), &windows(there));
        let verdict = judge(&fixture.ledger, &fixture.ending(), &windows(7));
        assert_eq!(verdict == Verdict::Clean, good, "{verdict}");
        assert!(good || matches!(verdict, Verdict::Lost(Lost::Put { .. })), "{verdict:?}");
        // The old bytes came back later.
        let verdict = judge(&fixture.ledger, &fixture.ending(), &windows(3));
        assert!(matches!(damage(verdict), Damage::Window { .. }));
    }
}

#[test]
fn a_put_with_immediate_data_is_reported_once_before_it_is_complete() {
    for (reports, bytes) in [(0, 16), (1, 16), (2, 16), (1, 15)] {
        let mut fixture = Fixture::new(2);
        fixture.ledger.slots().open(1, 0, Content(3));
        let submission = Submission::Put { target: 1, slot: 0, content: Content(7), immediate: true, bad: None };
        let request = fixture.submission(0, submission, 16);
        let (peer, cookie, window, offset, immediate) = (PeerId(0), Cookie(0), 0, 0, 7);
        for _ in 0..reports {
            let at = fixture.time();
            fixture.ledger.written(1, at, &Written { peer, cookie, window, offset, bytes, immediate });
        }
        fixture.report(0, request, Ok(Done::of(PeerId(0))), &windows(7).slot);
        fixture.ledger.judge_due(Time(99), &windows(7));
        match judge(&fixture.ledger, &fixture.ending(), &windows(7)) {
            Verdict::Clean => assert_eq!((reports, bytes), (1, 16)),
            Verdict::Lost(Lost::Notice { target: 1, .. }) => assert_eq!(reports, 0),
            Verdict::Duplicated(Duplicated::Notice { target: 1, .. }) => assert_eq!(reports, 2),
            verdict => assert!(matches!(damage(verdict), Damage::Notice { peer: 0, bytes: 15, immediate: 7 })),
        }
    }
}

#[test]
fn a_fence_is_passed_when_all_before_it_is_complete() {
    for in_order in [true, false] {
        let mut fixture = Fixture::new(2);
        fixture.ledger.slots().open(1, 0, Content(3));
        let get = || Submission::Get { target: 1, slot: 0, offset: 0, bad: None };
        let requests = [fixture.submission(0, get(), 16), fixture.submission(0, get(), 16)];
        fixture.ledger.fence(0, requests[1]);
        let order = if in_order { requests } else { [requests[1], requests[0]] };
        for request in order {
            fixture.report(0, request, Ok(Done::of(PeerId(1))), &windows(3).slot);
        }
        let verdict = judge(&fixture.ledger, &fixture.ending(), &windows(3));
        assert_eq!(verdict == Verdict::Clean, in_order, "{verdict}");
        assert!(in_order || matches!(damage(verdict), Damage::Fence { request: 1, earlier: 0 }));
    }
}

#[test]
fn a_flush_answers_for_silent_puts() {
    for (there, good) in [(7, true), (3, false)] {
        let mut fixture = Fixture::new(2);
        fixture.ledger.slots().open(1, 0, Content(3));
        let submission = Submission::Put { target: 1, slot: 0, content: Content(7), immediate: false, bad: None };
        fixture.ledger.submitted(0, Time(1), submission, &[Seg::new(RegionId(0), 0, 16)], Notify::Silent);
        let flush = fixture.submission(0, Submission::Flush { target: 1 }, 0);
        fixture.report(0, flush, Ok(Done::of(PeerId(0))), &[]);
        fixture.ledger.judge_due(Time(9), &windows(there));
        assert_eq!(fixture.ledger.has_findings(), !good);
        if good {
            // Flushed is done: the old bytes may not come back.
            assert_eq!(judge(&fixture.ledger, &fixture.ending(), &windows(7)), Verdict::Clean);
            assert!(matches!(damage(judge(&fixture.ledger, &fixture.ending(), &windows(3))), Damage::Window { .. }));
        }
    }
}

#[test]
fn cancelled_put_or_atomic_changes_nothing() {
    let mut fixture = Fixture::new(2);
    fixture.ledger.slots().open(1, 0, Content(3));
    fixture.ledger.cells().open(1, 0, Rule::Sum, 0);
    let put = put(&mut fixture, 7, None);
    fixture.cancel(0, put);
    let operation = Operation { kind: AtomicKind::Add, data_type: AtomicType::U64, operand: 5, compare: 0 };
    let atomic = fixture.submission(0, Submission::Atomic { target: 1, cell: 0, operation, bad: None }, 0);
    fixture.cancel(0, atomic);
    assert_eq!(judge(&fixture.ledger, &fixture.ending(), &windows(3)), Verdict::Clean);
    assert!(matches!(damage(judge(&fixture.ledger, &fixture.ending(), &windows(7))), Damage::Window { .. }));
    let done = Windows { cell: 5, ..windows(3) };
    assert!(matches!(judge(&fixture.ledger, &fixture.ending(), &done), Verdict::Duplicated(Duplicated::Atomic(_))));
}

#[test]
fn cancelled_request_is_reported_whatever_its_notification() {
    let mut fixture = good();
    let at = fixture.time();
    let (name, count) = (fixture.ledger.next_name(0, 1), Notify::Counter(CounterId(3)));
    let submission = Submission::Send { name, len: 0, tag: Some(5), immediate: true, level: Level::Reusable };
    let request = fixture.ledger.submitted(0, at, submission, &[], count);
    let at = fixture.time();
    fixture.ledger.cancelled(0, at, request);
    let judged = |fixture: &Fixture, counted| {
        judge(&fixture.ledger, &Ending { counters: vec![(0, 3, counted)], ..fixture.ending() }, &NoMemory)
    };
    assert!(matches!(judged(&fixture, 0), Verdict::Lost(Lost::Completion(facts)) if facts.request == request));
    assert!(matches!(judged(&fixture, 1), Verdict::Duplicated(Duplicated::Counted { done: 0, .. })));
    fixture.report(0, request, Err(OpError::Cancelled), &[]);
    assert_eq!(judged(&fixture, 0), Verdict::Clean);
}

#[test]
fn get_result_is_compared_with_the_window_content() {
    for (came, good) in [(3, true), (4, false)] {
        let mut fixture = Fixture::new(2);
        fixture.ledger.slots().open(1, 0, Content(3));
        let get = fixture.submission(0, Submission::Get { target: 1, slot: 0, offset: 0, bad: None }, 16);
        fixture.report(0, get, Ok(Done::of(PeerId(0))), &windows(came).slot);
        assert_eq!(fixture.ledger.has_findings(), !good);
    }
}

#[test]
fn refusals_are_as_they_must_be() {
    let fixture = |bad, result| {
        let mut fixture = Fixture::new(2);
        fixture.ledger.slots().open(1, 0, Content(3));
        let request = put(&mut fixture, 7, bad);
        fixture.report(0, request, result, &windows(7).slot);
        judge(&fixture.ledger, &fixture.ending(), &windows(if bad.is_some() { 3 } else { 7 }))
    };
    let refused = |why| Err(OpError::Refused { peer: PeerId(1), why });
    assert_eq!(fixture(Some(Refusal::NoAccess), refused(Refusal::NoAccess)), Verdict::Clean);
    assert!(matches!(damage(fixture(Some(Refusal::NoAccess), refused(Refusal::NoWindow))), Damage::Error { .. }));
    assert!(matches!(
        damage(fixture(Some(Refusal::NoAccess), Ok(Done::of(PeerId(0))))),
        Damage::Refusal { refused: false, .. }
    ));
    assert!(matches!(damage(fixture(None, refused(Refusal::NoAccess))), Damage::Refusal { refused: true, .. }));
}

#[test]
fn atomics_are_compared_with_the_end() {
    for (holds, good) in [(5, true), (10, false), (0, false)] {
        let mut fixture = Fixture::new(2);
        fixture.ledger.cells().open(1, 0, Rule::Sum, 0);
        let operation = Operation { kind: AtomicKind::Add, data_type: AtomicType::U64, operand: 5, compare: 0 };
        let request = fixture.submission(0, Submission::Atomic { target: 1, cell: 0, operation, bad: None }, 0);
        fixture.report(0, request, Ok(Done::of(PeerId(0))), &[]);
        let verdict = judge(&fixture.ledger, &fixture.ending(), &Windows { cell: holds, ..windows(0) });
        assert_eq!(verdict == Verdict::Clean, good, "{verdict}");
    }
}

#[test]
fn write_to_protected_memory_is_detected() {
    let fixture = good();
    let bad = Windows { inside: protected(&[1, 2], &[1, 3]), ..windows(0) };
    assert!(matches!(damage(judge(&fixture.ledger, &fixture.ending(), &bad)), Damage::Protected(_)));
}

#[test]
fn peer_loss_is_accepted_only_without_a_usable_path() {
    let lost = |peer| Err(OpError::PeerLost { peer: PeerId(peer), why: why() });
    let mut fixture = good();
    let (_, request) = fixture.send_at(0, 1, Some(5), 16, Level::Reusable);
    fixture.report(0, request, lost(1), &[0; 16]);
    let excused = Ending { cuts: all_cut(), ..fixture.ending() };
    assert!(matches!(damage(judge(&fixture.ledger, &excused, &NoMemory)), Damage::Error { .. }), "not reported");
    let at = fixture.time();
    fixture.ledger.peer_lost(0, at, 1, why());
    assert!(matches!(fixture.verdict(), Verdict::Lost(Lost::Peer(PeerLoss { rank: 0, peer: 1, requests: 1, .. }))));
    assert_eq!(judge(&fixture.ledger, &excused, &NoMemory), Verdict::Clean);
    for cut in [Cut { ranks: [0, 2], since: Time(0) }, Cut { ranks: [0, 1], since: Time(at.0 + 1) }] {
        let ending = Ending { cuts: vec![cut], ..fixture.ending() };
        assert!(matches!(judge(&fixture.ledger, &ending, &NoMemory), Verdict::Lost(Lost::Peer(_))), "{cut:?}");
    }
    // One that has moved unseen, and never met the other, nor had a reason to call.
    let hidden = |rank, from, since| Hidden { rank, from, since, calls_sources: false };
    let excused = |fixture: &Fixture, hidden| {
        judge(&fixture.ledger, &Ending { hidden: vec![hidden], ..fixture.ending() }, &NoMemory) == Verdict::Clean
    };
    assert!(excused(&fixture, hidden(1, 0, at)));
    assert!(!excused(&fixture, hidden(0, 1, at)), "the other has moved");
    assert!(!excused(&fixture, hidden(1, 2, at)), "another does not find it");
    assert!(!excused(&fixture, hidden(1, 0, Time(at.0 + 1))), "it moved later");
    for (one, other) in [(0, 1), (1, 0)] {
        let mut met = Fixture { ledger: fixture.ledger.clone(), ..good() };
        met.ledger.peer_up(one, other);
        assert!(!excused(&met, hidden(1, 0, at)), "they have met");
    }
    let early = |receives: bool| {
        let mut early = good();
        let request = match receives {
            true => early.recv(1, tagged(Some(0), 5, 0)),
            false => early.send_at(1, 0, Some(5), 16, Level::Reusable).1,
        };
        let at = early.time();
        early.ledger.peer_lost(0, at, 1, why());
        early.cancel(1, request);
        early
    };
    assert!(!excused(&early(false), hidden(1, 0, Time(0))), "it calls to send");
    assert!(excused(&early(true), hidden(1, 0, Time(0))));
    let calls_sources = Hidden { calls_sources: true, ..hidden(1, 0, Time(0)) };
    assert!(!excused(&early(true), calls_sources), "it dials the ranks that it waits for");
    // A killed process is lost from then on.
    let mut before = good();
    let at = before.time();
    before.ledger.peer_lost(0, at, 1, why());
    before.ledger.killed(1, Time(at.0 + 1));
    assert!(matches!(before.verdict(), Verdict::Lost(Lost::Peer(_))));
    let mut after = good();
    let at = after.time();
    after.ledger.killed(1, at);
    after.ledger.peer_lost(0, at, 1, why());
    assert_eq!(after.verdict(), Verdict::Clean);
    // Another rank's request.
    let mut fixture = Fixture::new(3);
    let (_, request) = fixture.send_at(0, 2, Some(5), 16, Level::Reusable);
    fixture.report(0, request, lost(1), &[0; 16]);
    assert!(matches!(damage(fixture.verdict()), Damage::Error { .. }));
}

#[test]
fn acknowledged_outlives_the_sender() {
    #[derive(PartialEq)]
    enum Cancelling {
        No,
        Elsewhere,
        TakenBackBefore,
        TakenBackAfter,
        ToTheEnd,
    }
    let fixture = |level, requested: Cancelling| {
        let mut fixture = Fixture::new(2);
        let tag = if requested == Cancelling::Elsewhere { 6 } else { 5 };
        let receive = (requested != Cancelling::No).then(|| fixture.recv(1, tagged(None, tag, 0)));
        let (name, request) = fixture.send_at(0, 1, Some(5), 16, level);
        if requested == Cancelling::TakenBackBefore {
            fixture.cancel(1, receive.unwrap());
        }
        fixture.sent(0, request, name, 16);
        let at = fixture.time();
        fixture.ledger.peer_lost(1, at, 0, why());
        match requested {
            Cancelling::TakenBackAfter | Cancelling::Elsewhere => fixture.cancel(1, receive.unwrap()),
            // The receive that is open to the end reports nothing: that alone is wrong of it.
            Cancelling::ToTheEnd | Cancelling::No | Cancelling::TakenBackBefore => {}
        }
        judge(&fixture.ledger, &Ending { cuts: all_cut(), ..fixture.ending() }, &NoMemory)
    };
    let is_lost = |verdict| matches!(verdict, Verdict::Lost(Lost::Acknowledged { .. }));
    assert!(is_lost(fixture(Level::Acknowledged, Cancelling::TakenBackAfter)));
    assert!(is_lost(fixture(Level::Placed, Cancelling::ToTheEnd)));
    assert!(fixture(Level::Reusable, Cancelling::TakenBackAfter).is_good(), "no such promise");
    assert!(fixture(Level::Acknowledged, Cancelling::No).is_good(), "it may lie there still");
    assert!(fixture(Level::Acknowledged, Cancelling::Elsewhere).is_good());
    assert!(fixture(Level::Acknowledged, Cancelling::TakenBackBefore).is_good());
}

#[test]
fn unreleased_resource_is_judged_a_leak() {
    let fixture = good();
    let leak = |ending: Ending| matches!(judge(&fixture.ledger, &ending, &NoMemory), Verdict::Leak(_));
    let ending = || fixture.ending();
    assert!(leak(Ending { tables: vec![(0, "packets", 1)], ..ending() }));
    assert!(!leak(Ending { tables: vec![(0, "packets", 0)], ..ending() }));
    assert!(leak(Ending { objects: vec![("hca 0: memory regions".into(), 1, 2)], ..ending() }));
    assert!(!leak(Ending { objects: vec![("hca 0: memory regions".into(), 1, 1)], ..ending() }));
    assert!(leak(Ending { bounds: vec![("switch buffers".into(), 11, 10)], ..ending() }));
    assert!(!leak(Ending { bounds: vec![("switch buffers".into(), 10, 10)], ..ending() }));
}

#[test]
fn overtaken_request_is_judged_starved() {
    let fixture = |wait| {
        let mut fixture = Fixture::new(2);
        let first = fixture.recv(1, tagged(Some(0), 5, 0));
        let (slow, slow_request) = fixture.send_at(0, 1, Some(5), 16, Level::Reusable);
        let second = fixture.recv(1, tagged(Some(0), 6, 0));
        let quick = fixture.send(0, 1, 6);
        fixture.got(second, quick);
        fixture.now += wait;
        fixture.sent(0, slow_request, slow, 16);
        fixture.got(first, slow);
        fixture.verdict()
    };
    assert_eq!(fixture(900), Verdict::Clean);
    assert!(matches!(fixture(2000), Verdict::Stuck(Stuck::WaitingTooLong { overtaken_by: 1, .. })));
}

#[test]
fn crash_takes_precedence_over_other_verdicts() {
    let fixture = good();
    let crash = Some(Crash { rank: None, at: Time(1), message: "no device".into() });
    assert!(matches!(judge(&fixture.ledger, &Ending { crash, ..fixture.ending() }, &NoMemory), Verdict::Crash(_)));
}
