use rerail_core::endpoint::{Done, Level, Notify};
use rerail_core::ids::{CounterId, PeerId};
use rerail_core::mem::{RegionId, Seg};
use rerail_core::wire::{AtomicKind, AtomicType, Refusal};

use super::super::fixture::{Story, tagged, why};
use super::super::identity::{BLANK, Content, POISON};
use super::super::ledger::Ask;
use super::super::verdict::{Doubled, Stuck};
use super::super::{Operation, Rule};
use super::*;

/// No rank reaches another.
fn all_cut() -> Vec<Cut> {
    [[0, 1], [0, 2], [2, 1]].map(|ranks| Cut { ranks, since: Time(0) }).into()
}

/// One message, sent and received well.
fn good() -> Story {
    let mut story = Story::new(2);
    let receive = story.recv(1, tagged(Some(0), 5, 0));
    let name = story.send(0, 1, 5);
    story.got(receive, name);
    story
}

#[test]
fn correct_run_is_judged_clean() {
    assert_eq!(good().verdict(), Verdict::Clean);
    assert_eq!(good().verdict().exit_code(), 0);
}

#[test]
fn exit_codes_differ_and_verdicts_speak() {
    let story = good();
    let name = super::super::Name::new(0, 1, 0);
    let at = Time(9);
    let facts = story.ledger.facts(0, 0);
    let loss = PeerLoss { rank: 0, peer: 1, why: why(), at, requests: 2 };
    let all = [
        Verdict::Clean,
        Verdict::Crash(Crash { rank: Some(3), at, message: "out of bounds".into() }),
        Verdict::Lost(Lost::Peer(loss)),
        Verdict::Doubled(Doubled::Message { name, first: 1, second: 2, at }),
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
    let mut story = good();
    let again = story.recv(1, tagged(Some(0), 5, 0));
    story.got(again, super::super::Name::new(0, 1, 0));
    assert!(matches!(story.verdict(), Verdict::Doubled(Doubled::Message { first: 0, second: 1, .. })));
}

#[test]
fn repeated_completion_is_judged_duplicated() {
    let mut story = good();
    story.tell(0, 0, Ok(Done::default()), &[]);
    assert!(matches!(story.verdict(), Verdict::Doubled(Doubled::Completion { rank: 0, request: 0, .. })));
    let mut story = good();
    story.tell(0, 77, Ok(Done::default()), &[]);
    assert!(matches!(story.verdict(), Verdict::Doubled(Doubled::Completion { request: 77, .. })));
}

#[test]
fn undelivered_message_is_judged_lost() {
    let mut story = good();
    let name = story.send(0, 1, 5);
    assert!(matches!(story.verdict(), Verdict::Lost(Lost::Message { name: lost, .. }) if lost == name));
    // While a receive waits for it and nothing moves any more, too.
    story.recv(1, tagged(Some(0), 5, 0));
    let ending = Ending { converged: false, ..story.ending() };
    assert!(matches!(judge(&story.ledger, &ending, &NoMemory), Verdict::Lost(_)));
    // Things still move: then it is only late.
    let ending = Ending { quiet: false, ..ending };
    assert!(matches!(judge(&story.ledger, &ending, &NoMemory), Verdict::Stuck(Stuck::Waiting { count: 1, .. })));
}

/// The loss of a killed process must be reported to a rank that waits for it, as for any other.
#[test]
fn waiting_request_is_judged_stuck_if_its_peer_was_killed() {
    for killed in [false, true] {
        let mut story = good();
        story.send_at(0, 1, Some(5), 8, Level::Acknowledged);
        if killed {
            let now = story.time();
            story.ledger.killed(1, now);
        }
        let ending = Ending { converged: false, quiet: false, ..story.ending() };
        let verdict = judge(&story.ledger, &ending, &NoMemory);
        assert!(matches!(verdict, Verdict::Stuck(Stuck::Waiting { count: 1, .. })), "{verdict}");
    }
}

#[test]
fn a_message_taken_back_does_not_come() {
    let mut story = Story::new(2);
    let receive = story.recv(1, tagged(Some(0), 5, 0));
    let (name, request) = story.send_at(0, 1, Some(5), 16, Level::Reusable);
    story.cancel(0, request);
    assert!(!story.ledger.has_findings());
    story.got(receive, name);
    assert!(matches!(story.verdict(), Verdict::Doubled(Doubled::Cancelled { .. })));
}

#[test]
fn uncompleted_send_of_a_received_message_is_judged_lost() {
    let mut story = Story::new(2);
    let receive = story.recv(1, tagged(Some(0), 5, 0));
    let (name, _) = story.send_at(0, 1, Some(5), 16, Level::Reusable);
    story.got(receive, name);
    assert!(matches!(story.verdict(), Verdict::Lost(Lost::Completion(facts)) if facts.rank == 0));
}

#[test]
fn counters_count_each_request_once() {
    let mut story = good();
    let at = story.time();
    let (name, count) = (story.ledger.next_name(0, 1), Notify::Counter(CounterId(3)));
    let ask = Ask::Send { name, len: 0, tag: Some(5), immediate: true, level: Level::Reusable };
    story.ledger.submitted(0, at, ask, &[], count);
    let receive = story.recv(1, tagged(Some(0), 5, 0));
    story.tell(1, receive, Ok(story.done(name)), &[BLANK; 16]);
    let judge_with = |counted| {
        let ending = Ending { counters: vec![(0, 3, counted), (0, 4, 0)], ..story.ending() };
        judge(&story.ledger, &ending, &NoMemory)
    };
    assert_eq!(judge_with(1), Verdict::Clean);
    assert!(matches!(judge_with(0), Verdict::Lost(Lost::Counted { .. })));
    assert!(matches!(judge_with(2), Verdict::Doubled(Doubled::Counted { .. })));
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
        let mut story = Story::new(3);
        let receive = story.ask(1, Ask::Receive { from: tagged(Some(0), 5, 0), claimed: None }, 20);
        let name = story.send(0, 1, 5);
        let mut memory = [BLANK; 20];
        Content::from(name).fill(0, &mut memory[..16]);
        let mut done = story.done(name);
        change(&mut done, &mut memory);
        story.tell(1, receive, Ok(done), &memory);
        story.verdict()
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
    assert!(matches!(damage(receive_with(&|done, _| done.immediate = Some(9))), Damage::Stranger { .. }));
    assert!(matches!(damage(receive_with(&|done, _| done.bytes = 200)), Damage::Stranger { .. }));
}

#[test]
fn delivered_multi_receive_part_stays_unmodified() {
    for late in [None, Some(0), Some(15)] {
        let mut story = Story::new(2);
        let multi = story.multi(1, tagged(None, 0, !0), 32, 16);
        let (first, second) = (story.send(0, 1, 1), story.send(0, 1, 1));
        story.part(multi, first, 0, false);
        let mut memory = [0; 32];
        Content::from(first).fill(0, &mut memory[..16]);
        Content::from(second).fill(0, &mut memory[16..]);
        if let Some(at) = late {
            memory[at] ^= 1;
        }
        let done = Done { offset: 16, released: true, ..story.done(second) };
        story.tell_at(1, multi, 1, Ok(done), &memory);
        match late {
            None => assert_eq!(story.verdict(), Verdict::Clean),
            Some(_) => assert!(matches!(damage(story.verdict()), Damage::Message { name, .. } if name == first)),
        }
    }
}

#[test]
fn truncation_reports_sent_length_and_capacity() {
    let truncate = |sent, capacity, wrong: bool| {
        let mut story = Story::new(2);
        let receive = story.ask(1, Ask::Receive { from: tagged(Some(0), 5, 0), claimed: None }, 12);
        let name = story.send(0, 1, 5);
        let mut memory = [BLANK; 12];
        Content::from(name).fill(0, &mut memory);
        memory[11] ^= u8::from(wrong);
        let error = OpError::Truncated { sent, capacity, peer: PeerId(0), tag: Some(5), immediate: None };
        story.tell(1, receive, Err(error), &memory);
        story.verdict()
    };
    assert_eq!(truncate(16, 12, false), Verdict::Clean);
    assert!(matches!(damage(truncate(17, 12, false)), Damage::Envelope { field: "length", .. }));
    assert!(matches!(damage(truncate(16, 12, true)), Damage::Message { .. }));
}

/// A multi-receive of 64 bytes is taken back after messages failed with their peer and 8 bytes came behind
/// them; the bytes `written` belong to a message.
fn taken_back(failed: usize, written: &[usize]) -> Verdict {
    let mut story = Story::new(3);
    let from = rerail_core::endpoint::Selector::ANY_UNTAGGED;
    let multi = story.multi(2, from, 64, 1);
    let (lost, cut) = (story.send_at(0, 2, None, 16, Level::Placed).1, story.send_at(0, 2, None, 8, Level::Placed).1);
    let (name, sent) = story.send_at(1, 2, None, 8, Level::Reusable);
    story.sent(1, sent, name, 8);
    let error = Err(OpError::PeerLost { peer: PeerId(0), why: why() });
    for _ in 0..failed {
        story.part_told(2, multi, error, &[BLANK; 64]);
    }
    let mut memory = vec![BLANK; 64];
    let offset = 16 * failed as u64;
    Content::from(name).fill(0, &mut memory[offset as usize..][..8]);
    let done = Done { offset, ..story.done(name) };
    story.part_told(2, multi, Ok(done), &memory);
    written.iter().for_each(|at| memory[*at] = 1);
    for request in [lost, cut] {
        story.tell(0, request, Err(OpError::PeerLost { peer: PeerId(2), why: why() }), &[]);
    }
    let now = story.time();
    story.ledger.peer_lost(0, now, 2, why());
    story.ledger.peer_lost(2, now, 0, why());
    story.ledger.cancelled(2, now, multi);
    story.tell(2, multi, Err(OpError::Cancelled), &memory);
    judge(&story.ledger, &Ending { cuts: all_cut(), ..story.ending() }, &NoMemory)
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
    let mut story = Story::new(2);
    let receive = story.recv(1, tagged(Some(0), 5, 0));
    let (name, request) = story.send_at(0, 1, Some(5), 16, Level::Reusable);
    story.tell(0, request, Ok(Done::default()), &[POISON; 16]);
    story.got(receive, name);
    assert!(matches!(damage(story.verdict()), Damage::Source { request: 0, .. }));
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
    let story = |there: bool| {
        let mut story = Story::new(2);
        let receive = story.recv(1, tagged(Some(0), 5, 0));
        let (name, request) = story.send_at(0, 1, Some(5), 16, Level::Placed);
        story.sent(0, request, name, 16);
        let mut memory = windows(0);
        if there {
            Content::from(name).fill(0, &mut memory.buffer);
        }
        story.ledger.settle(Time(9), &memory);
        story.got(receive, name);
        story.verdict()
    };
    assert_eq!(story(true), Verdict::Clean);
    assert!(matches!(damage(story(false)), Damage::NotPlaced { .. }));
}

fn put(story: &mut Story, content: u64, bad: Option<Refusal>) -> u32 {
    story.ask(0, Ask::Put { target: 1, slot: 0, content: Content(content), bad }, 16)
}

#[test]
fn put_data_is_in_the_window_at_completion() {
    for (there, good) in [(7, true), (3, false)] {
        let mut story = Story::new(2);
        story.ledger.slots().open(1, 0, Content(3));
        let request = put(&mut story, 7, None);
        // When it begins, the slot is looked at.
        story.ledger.settle(Time(2), &windows(3));
        story.tell(0, request, Ok(Done::default()), &windows(7).slot);
        story.ledger.settle(Time(9), &windows(there));
        let verdict = judge(&story.ledger, &story.ending(), &windows(7));
        assert_eq!(verdict == Verdict::Clean, good, "{verdict}");
        assert!(good || matches!(verdict, Verdict::Lost(Lost::Put { .. })), "{verdict:?}");
        // The old bytes came back later.
        let verdict = judge(&story.ledger, &story.ending(), &windows(3));
        assert!(matches!(damage(verdict), Damage::Window { .. }));
    }
}

#[test]
fn a_flush_answers_for_silent_puts() {
    for (there, good) in [(7, true), (3, false)] {
        let mut story = Story::new(2);
        story.ledger.slots().open(1, 0, Content(3));
        let ask = Ask::Put { target: 1, slot: 0, content: Content(7), bad: None };
        story.ledger.submitted(0, Time(1), ask, &[Seg::new(RegionId(0), 0, 16)], Notify::Silent);
        let flush = story.ask(0, Ask::Flush { target: 1 }, 0);
        story.tell(0, flush, Ok(Done::default()), &[]);
        story.ledger.settle(Time(9), &windows(there));
        assert_eq!(story.ledger.has_findings(), !good);
        if good {
            // Flushed is done: the old bytes may not come back.
            assert_eq!(judge(&story.ledger, &story.ending(), &windows(7)), Verdict::Clean);
            assert!(matches!(damage(judge(&story.ledger, &story.ending(), &windows(3))), Damage::Window { .. }));
        }
    }
}

#[test]
fn cancelled_put_or_atomic_changes_nothing() {
    let mut story = Story::new(2);
    story.ledger.slots().open(1, 0, Content(3));
    story.ledger.cells().open(1, 0, Rule::Sum, 0);
    let put = put(&mut story, 7, None);
    story.cancel(0, put);
    let operation = Operation { kind: AtomicKind::Add, data_type: AtomicType::U64, operand: 5, compare: 0 };
    let atomic = story.ask(0, Ask::Atomic { target: 1, cell: 0, operation, bad: None }, 0);
    story.cancel(0, atomic);
    assert_eq!(judge(&story.ledger, &story.ending(), &windows(3)), Verdict::Clean);
    assert!(matches!(damage(judge(&story.ledger, &story.ending(), &windows(7))), Damage::Window { .. }));
    let done = Windows { cell: 5, ..windows(3) };
    assert!(matches!(judge(&story.ledger, &story.ending(), &done), Verdict::Doubled(Doubled::Atomic(_))));
}

#[test]
fn cancelled_request_is_reported_whatever_its_notification() {
    let mut story = good();
    let at = story.time();
    let (name, count) = (story.ledger.next_name(0, 1), Notify::Counter(CounterId(3)));
    let ask = Ask::Send { name, len: 0, tag: Some(5), immediate: true, level: Level::Reusable };
    let request = story.ledger.submitted(0, at, ask, &[], count);
    let at = story.time();
    story.ledger.cancelled(0, at, request);
    let judged = |story: &Story, counted| {
        judge(&story.ledger, &Ending { counters: vec![(0, 3, counted)], ..story.ending() }, &NoMemory)
    };
    assert!(matches!(judged(&story, 0), Verdict::Lost(Lost::Completion(facts)) if facts.request == request));
    assert!(matches!(judged(&story, 1), Verdict::Doubled(Doubled::Counted { done: 0, .. })));
    story.tell(0, request, Err(OpError::Cancelled), &[]);
    assert_eq!(judged(&story, 0), Verdict::Clean);
}

#[test]
fn get_result_is_compared_with_the_window_content() {
    for (came, good) in [(3, true), (4, false)] {
        let mut story = Story::new(2);
        story.ledger.slots().open(1, 0, Content(3));
        let get = story.ask(0, Ask::Get { target: 1, slot: 0, offset: 0, bad: None }, 16);
        story.tell(0, get, Ok(Done::default()), &windows(came).slot);
        assert_eq!(story.ledger.has_findings(), !good);
    }
}

#[test]
fn refusals_are_as_they_must_be() {
    let story = |bad, result| {
        let mut story = Story::new(2);
        story.ledger.slots().open(1, 0, Content(3));
        let request = put(&mut story, 7, bad);
        story.tell(0, request, result, &windows(7).slot);
        judge(&story.ledger, &story.ending(), &windows(if bad.is_some() { 3 } else { 7 }))
    };
    let refused = |why| Err(OpError::Refused { peer: PeerId(1), why });
    assert_eq!(story(Some(Refusal::NoAccess), refused(Refusal::NoAccess)), Verdict::Clean);
    assert!(matches!(damage(story(Some(Refusal::NoAccess), refused(Refusal::NoWindow))), Damage::Error { .. }));
    assert!(matches!(
        damage(story(Some(Refusal::NoAccess), Ok(Done::default()))),
        Damage::Refusal { refused: false, .. }
    ));
    assert!(matches!(damage(story(None, refused(Refusal::NoAccess))), Damage::Refusal { refused: true, .. }));
}

#[test]
fn atomics_are_compared_with_the_end() {
    for (holds, good) in [(5, true), (10, false), (0, false)] {
        let mut story = Story::new(2);
        story.ledger.cells().open(1, 0, Rule::Sum, 0);
        let operation = Operation { kind: AtomicKind::Add, data_type: AtomicType::U64, operand: 5, compare: 0 };
        let request = story.ask(0, Ask::Atomic { target: 1, cell: 0, operation, bad: None }, 0);
        story.tell(0, request, Ok(Done::default()), &[]);
        let verdict = judge(&story.ledger, &story.ending(), &Windows { cell: holds, ..windows(0) });
        assert_eq!(verdict == Verdict::Clean, good, "{verdict}");
    }
}

#[test]
fn write_to_protected_memory_is_detected() {
    let story = good();
    let bad = Windows { inside: protected(&[1, 2], &[1, 3]), ..windows(0) };
    assert!(matches!(damage(judge(&story.ledger, &story.ending(), &bad)), Damage::Protected(_)));
}

#[test]
fn peer_loss_is_accepted_only_without_a_usable_path() {
    let lost = |peer| Err(OpError::PeerLost { peer: PeerId(peer), why: why() });
    let mut story = good();
    let (_, request) = story.send_at(0, 1, Some(5), 16, Level::Reusable);
    story.tell(0, request, lost(1), &[0; 16]);
    let excused = Ending { cuts: all_cut(), ..story.ending() };
    assert!(matches!(damage(judge(&story.ledger, &excused, &NoMemory)), Damage::Error { .. }), "not reported");
    let at = story.time();
    story.ledger.peer_lost(0, at, 1, why());
    assert!(matches!(story.verdict(), Verdict::Lost(Lost::Peer(PeerLoss { rank: 0, peer: 1, requests: 1, .. }))));
    assert_eq!(judge(&story.ledger, &excused, &NoMemory), Verdict::Clean);
    for cut in [Cut { ranks: [0, 2], since: Time(0) }, Cut { ranks: [0, 1], since: Time(at.0 + 1) }] {
        let ending = Ending { cuts: vec![cut], ..story.ending() };
        assert!(matches!(judge(&story.ledger, &ending, &NoMemory), Verdict::Lost(Lost::Peer(_))), "{cut:?}");
    }
    // One that has moved unseen, and never met the other, nor had a reason to call.
    let hidden = |rank, from, since| Hidden { rank, from, since, calls_sources: false };
    let excused = |story: &Story, hidden| {
        judge(&story.ledger, &Ending { hidden: vec![hidden], ..story.ending() }, &NoMemory) == Verdict::Clean
    };
    assert!(excused(&story, hidden(1, 0, at)));
    assert!(!excused(&story, hidden(0, 1, at)), "the other has moved");
    assert!(!excused(&story, hidden(1, 2, at)), "another does not find it");
    assert!(!excused(&story, hidden(1, 0, Time(at.0 + 1))), "it moved later");
    for (one, other) in [(0, 1), (1, 0)] {
        let mut met = Story { ledger: story.ledger.clone(), ..good() };
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
    let mut story = Story::new(3);
    let (_, request) = story.send_at(0, 2, Some(5), 16, Level::Reusable);
    story.tell(0, request, lost(1), &[0; 16]);
    assert!(matches!(damage(story.verdict()), Damage::Error { .. }));
}

#[test]
fn acknowledged_outlives_the_sender() {
    #[derive(PartialEq)]
    enum Asked {
        No,
        Elsewhere,
        TakenBackBefore,
        TakenBackAfter,
        ToTheEnd,
    }
    let story = |level, asked: Asked| {
        let mut story = Story::new(2);
        let tag = if asked == Asked::Elsewhere { 6 } else { 5 };
        let receive = (asked != Asked::No).then(|| story.recv(1, tagged(None, tag, 0)));
        let (name, request) = story.send_at(0, 1, Some(5), 16, level);
        if asked == Asked::TakenBackBefore {
            story.cancel(1, receive.unwrap());
        }
        story.sent(0, request, name, 16);
        let at = story.time();
        story.ledger.peer_lost(1, at, 0, why());
        match asked {
            Asked::TakenBackAfter | Asked::Elsewhere => story.cancel(1, receive.unwrap()),
            // The receive that is open to the end reports nothing: that alone is wrong of it.
            Asked::ToTheEnd | Asked::No | Asked::TakenBackBefore => {}
        }
        judge(&story.ledger, &Ending { cuts: all_cut(), ..story.ending() }, &NoMemory)
    };
    let is_lost = |verdict| matches!(verdict, Verdict::Lost(Lost::Acknowledged { .. }));
    assert!(is_lost(story(Level::Acknowledged, Asked::TakenBackAfter)));
    assert!(is_lost(story(Level::Placed, Asked::ToTheEnd)));
    assert!(story(Level::Reusable, Asked::TakenBackAfter).is_good(), "no such promise");
    assert!(story(Level::Acknowledged, Asked::No).is_good(), "it may lie there still");
    assert!(story(Level::Acknowledged, Asked::Elsewhere).is_good());
    assert!(story(Level::Acknowledged, Asked::TakenBackBefore).is_good());
}

#[test]
fn unreleased_resource_is_judged_a_leak() {
    let story = good();
    let leak = |ending: Ending| matches!(judge(&story.ledger, &ending, &NoMemory), Verdict::Leak(_));
    let ending = || story.ending();
    assert!(leak(Ending { tables: vec![(0, "packets", 1)], ..ending() }));
    assert!(!leak(Ending { tables: vec![(0, "packets", 0)], ..ending() }));
    assert!(leak(Ending { objects: vec![("hca 0: memory regions".into(), 1, 2)], ..ending() }));
    assert!(!leak(Ending { objects: vec![("hca 0: memory regions".into(), 1, 1)], ..ending() }));
    assert!(leak(Ending { bounds: vec![("switch buffers".into(), 11, 10)], ..ending() }));
    assert!(!leak(Ending { bounds: vec![("switch buffers".into(), 10, 10)], ..ending() }));
}

#[test]
fn overtaken_request_is_judged_starved() {
    let story = |wait| {
        let mut story = Story::new(2);
        let first = story.recv(1, tagged(Some(0), 5, 0));
        let (slow, slow_request) = story.send_at(0, 1, Some(5), 16, Level::Reusable);
        let second = story.recv(1, tagged(Some(0), 6, 0));
        let quick = story.send(0, 1, 6);
        story.got(second, quick);
        story.now += wait;
        story.sent(0, slow_request, slow, 16);
        story.got(first, slow);
        story.verdict()
    };
    assert_eq!(story(900), Verdict::Clean);
    assert!(matches!(story(2000), Verdict::Stuck(Stuck::Starved { overtaken_by: 1, .. })));
}

#[test]
fn crash_takes_precedence_over_other_verdicts() {
    let story = good();
    let crash = Some(Crash { rank: None, at: Time(1), message: "no device".into() });
    assert!(matches!(judge(&story.ledger, &Ending { crash, ..story.ending() }, &NoMemory), Verdict::Crash(_)));
}
