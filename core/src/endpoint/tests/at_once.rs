//! Small messages over rails that can lose: sent at submission, kept until acknowledged, received in one
//! call; and each condition that sends them the general way.

use super::lone::{Lone, PEER_PARAMETERS};
use super::recovery::{connect, down, fence, up};
use super::*;
use crate::wire::{Body, Common, Connect, MessageHead, Repr};

const TAG: u64 = 7;
const TWO: [RailFacts; 2] = [TCP, TCP];

fn sending(cookie: u64) -> SendRequest<'static> {
    SendRequest { tag: Some(TAG), cookie: Cookie(cookie), ..SendRequest::new(PeerId(1), &[]) }
}

fn at_once(lone: &mut Lone<'_>, cookie: u64, len: u64) -> Option<AtOnce> {
    posted(lone, cookie, len, false)
}

/// `is_over`: what the rail answers.
fn posted(lone: &mut Lone<'_>, cookie: u64, len: u64, is_over: bool) -> Option<AtOnce> {
    let send = SendRequest { immediate: Some(cookie), ..sending(cookie) };
    let mut sent = AtOnce::default();
    if !lone.endpoint.send_at_once(Time(lone.now), &send, len, &mut sent) {
        return None;
    }
    lone.endpoint.posted_at_once(Time(lone.now), &sent, len, is_over);
    Some(sent)
}

fn complete(lone: &mut Lone<'_>, id: PostId, status: PostStatus) {
    lone.endpoint.handle_completion(Time(lone.now), id, status);
}

/// The peer acknowledges all before `psn`.
fn acknowledge(lone: &mut Lone<'_>, psn: u32) {
    lone.acks[0] = psn;
    assert_eq!(lone.feed(Body::Credit, 0), Arrival::Done);
}

/// Operations and retained copies in use; there are no packets.
fn used(lone: &Lone<'_>) -> [u32; 2] {
    let usage = lone.endpoint.usage();
    assert_eq!(usage.packets.used, 0);
    [usage.operations.used, usage.retained.used]
}

/// the message is complete at once, and everything that it holds is free when it is acknowledged and
/// the rail has completed it, whichever comes first.
#[test]
fn packet_is_kept_until_acknowledged_and_completed() {
    for acknowledged_first in [false, true] {
        for len in [0, 8] {
            let config = small();
            let mut region = Region::of(&config);
            let mut lone = Lone::connected(&mut region, &config, &[TCP]);
            let sent = at_once(&mut lone, 3, len).unwrap();
            let done = Done { bytes: len, tag: Some(TAG), immediate: Some(3), ..Done::of(PeerId(1)) };
            assert_eq!(lone.completed(), BTreeMap::from([(3, Ok(done))]));
            let header = Repr::parse(&sent.header).unwrap();
            let head = MessageHead { tag: Some(TAG), immediate: Some(3), ..MessageHead::default() };
            assert_eq!((header.body, header.common.psn), (Body::Eager(head), 0));
            assert_eq!(header.common.payload_bytes, len as u32);
            assert_eq!(used(&lone), [1; 2]);
            if acknowledged_first {
                acknowledge(&mut lone, 1);
                assert_eq!(used(&lone), [1; 2], "the rail still has it");
                complete(&mut lone, sent.id, PostStatus::Done);
            } else {
                complete(&mut lone, sent.id, PostStatus::Done);
                assert_eq!(used(&lone), [1; 2], "the peer may not have it");
                acknowledge(&mut lone, 1);
            }
            assert_eq!(used(&lone), [0; 2]);
            complete(&mut lone, sent.id, PostStatus::Done);
            assert_eq!(lone.endpoint.stats().stale_dropped, 1, "reported twice");
            assert!(lone.endpoint.is_quiet(None) && lone.endpoint.inconsistency().is_none());
        }
    }
}

/// A-5, F-5: a post that is over when it is made holds nothing of its rail; only the acknowledgment is waited
/// for, and without it the message is sent again. Messages that are not measured are counted.
#[test]
fn a_post_may_be_over_at_once() {
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &TWO);
    for n in 0..3 {
        let sent = posted(&mut lone, n, 8, true).unwrap();
        assert!(lone.endpoint.is_unused(PeerId(1)) && used(&lone) == [1; 2]);
        complete(&mut lone, sent.id, PostStatus::Done);
        assert_eq!(lone.endpoint.stats().stale_dropped, n + 1, "nothing was to be reported");
        acknowledge(&mut lone, n as u32 + 1);
        assert_eq!(used(&lone), [0; 2]);
    }
    let stats = |lone: &Lone<'_>| [0, 1].map(|rail| lone.endpoint.rail_stats(RailId(rail)).unwrap());
    assert_eq!(stats(&lone).iter().map(|rail| rail.messages).sum::<u64>(), 3);
    assert_eq!(stats(&lone).iter().map(|rail| (rail.bytes, rail.backlog)).fold(0, |sum, of| sum + of.0 + of.1), 24);
    // Beside posts that are reported.
    let first = at_once(&mut lone, 3, 8).unwrap();
    let second = posted(&mut lone, 4, 8, true).unwrap();
    assert!(!lone.endpoint.is_unused(PeerId(1)));
    complete(&mut lone, first.id, PostStatus::Done);
    assert!(lone.endpoint.is_unused(PeerId(1)) && used(&lone) == [2; 2]);
    let on = second.rail.0;
    down(&mut lone, on, RailFault::TimedOut);
    lone.posts.clear();
    lone.feed_on(1 - on, Body::Fence(fence(on, true)), 0, |_| {});
    let again: Vec<u32> =
        lone.sent().iter().filter(|packet| packet.body.lane().is_some()).map(|p| p.common.psn).collect();
    assert!(again.contains(&4), "{again:?}");
}

/// each retained copy is free once the peer has its message and no rail does, and not before, in
/// whatever order messages are acknowledged, rails complete them, and others take and give back copies.
#[test]
fn each_copy_is_freed_once() {
    struct Sent {
        copy: MemRef,
        post: Option<PostId>,
        is_acknowledged: bool,
    }
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    let (mut sent, mut others, mut random): (Vec<Sent>, Vec<u32>, u64) = (Vec::new(), Vec::new(), 1);
    let (mut next, mut acknowledged, mut runs) = (0u32, 0u32, 0);
    for step in 0..20_000u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (what, which) = (random >> 33, (random >> 40) as usize);
        match what % 12 {
            0..6 => {
                let is_over = what % 12 > 0 || step % 512 < 256;
                if let Some(new) = posted(&mut lone, step, 8, is_over) {
                    assert!(sent.iter().all(|sent| sent.copy != new.retained), "step {step}: a copy is in use");
                    sent.push(Sent { copy: new.retained, post: (!is_over).then_some(new.id), is_acknowledged: false });
                    next += 1;
                }
            }
            6..8 if !sent.is_empty() => {
                let count = sent.len();
                if let Some(post) = sent[which % count].post.take() {
                    complete(&mut lone, post, PostStatus::Done);
                }
            }
            8 | 9 => {
                let until = acknowledged + which as u32 % (next - acknowledged + 1);
                let (newly, not_yet) = ((until - acknowledged) as usize, (next - until) as usize);
                let all = sent.len();
                for sent in &mut sent[all - newly - not_yet..all - not_yet] {
                    sent.is_acknowledged = true;
                }
                runs += usize::from(newly > 1);
                acknowledged = until;
                lone.limits = (until as u16 + 32, until as u16 + 64);
                acknowledge(&mut lone, until);
            }
            10 => others.extend(lone.endpoint.t.retention.take()),
            _ => others.pop().into_iter().for_each(|place| lone.endpoint.t.retention.give(place)),
        }
        sent.retain(|sent| sent.post.is_some() || !sent.is_acknowledged);
        let held = (sent.len() + others.len()) as u32;
        assert_eq!(lone.endpoint.t.retention.free_len(), config.retained_max - held, "step {step}");
        lone.completed();
    }
    assert!(next > 2000 && runs > 200, "{next} messages, {runs} of several acknowledged at once");
}

/// F-5: after the rail's end the same packet goes over another one: number, tag, immediate data and payload
/// are those of the first; what the peer has is not sent again.
#[test]
fn it_is_sent_again_from_its_copy() {
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &TWO);
    lone.rails.clear();
    let sent: Vec<AtOnce> = (0..3).map(|n| at_once(&mut lone, n, 8 * n).unwrap()).collect();
    let on = sent[0].rail;
    for sent in sent.iter().filter(|sent| sent.rail != on) {
        complete(&mut lone, sent.id, PostStatus::Done);
    }
    let lost: Vec<&AtOnce> = sent.iter().filter(|sent| sent.rail == on).collect();
    down(&mut lone, on.0, RailFault::TimedOut);
    complete(&mut lone, lost[0].id, PostStatus::Done);
    assert_eq!(lone.endpoint.stats().stale_dropped, 1, "its post is over");
    lone.posts.clear();
    lone.feed_on(1 - on.0, Body::Fence(fence(on.0, true)), 0, |_| {});
    let packets: Vec<Repr> = lone.sent().into_iter().filter(|packet| packet.body.lane().is_some()).collect();
    let first: Vec<Repr> = lost.iter().map(|sent| Repr::parse(&sent.header).unwrap()).collect();
    assert_eq!(packets.len(), first.len());
    for (again, before) in packets.iter().zip(&first) {
        assert_eq!((&again.body, again.common.psn), (&before.body, before.common.psn));
        assert_eq!(again.common.payload_bytes, before.common.payload_bytes);
    }
    let memory: Vec<Seg> = lone.posts.iter().flat_map(|(.., memory)| memory.clone()).collect();
    let copies = lost.iter().zip(&first).filter(|(_, repr)| repr.common.payload_bytes > 0);
    let copies: Vec<Seg> =
        copies.map(|(sent, repr)| Seg { at: sent.retained, len: repr.common.payload_bytes.into() }).collect();
    assert_eq!(memory, copies);
    lone.acks[0] = 3;
    lone.feed_on(1 - on.0, Body::Credit, 0, |_| {});
    assert_eq!(used(&lone), [0; 2]);
}

/// F-5, A-5: a completed post proves nothing, so the message is sent again. From then on only its new post
/// counts: a late report of the first one frees nothing.
#[test]
fn only_its_last_post_counts() {
    for completes in [false, true] {
        let config = small();
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &TWO);
        let sent = at_once(&mut lone, 1, 8).unwrap();
        if completes {
            complete(&mut lone, sent.id, PostStatus::Done);
        }
        let (on, other) = (sent.rail.0, 1 - sent.rail.0);
        down(&mut lone, on, RailFault::TimedOut);
        lone.sent();
        lone.stuck = 1 << other;
        lone.feed_on(other, Body::Fence(fence(on, true)), 0, |_| {});
        let again = lone.sent().into_iter().filter(|packet| packet.body.lane().is_some()).count();
        assert_eq!(again, 1, "completed before: {completes}");
        let stale = lone.endpoint.stats().stale_dropped;
        complete(&mut lone, sent.id, PostStatus::Done);
        assert_eq!(lone.endpoint.stats().stale_dropped, stale + 1);
        lone.acks[0] = 1;
        lone.feed_on(other, Body::Credit, 0, |_| {});
        assert_eq!(used(&lone), [1; 2], "the rail still has it");
        for id in core::mem::take(&mut lone.held) {
            complete(&mut lone, id, PostStatus::Done);
        }
        assert_eq!(used(&lone), [0; 2]);
        assert_eq!(lone.endpoint.stats().stale_dropped, stale + 1);
    }
}

/// Peers that are lost keep nothing, be the packet acknowledged or not, with the rail or not.
#[test]
fn the_end_of_the_channel_frees_it() {
    for (acks, completes) in [(0, false), (0, true), (1, false)] {
        let config = Config { recovery: false, ..small() };
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP]);
        let sent = at_once(&mut lone, 1, 8).unwrap();
        if completes {
            complete(&mut lone, sent.id, PostStatus::Done);
        }
        acknowledge(&mut lone, acks);
        assert_eq!(used(&lone), [1; 2]);
        lone.completed();
        down(&mut lone, 0, RailFault::TimedOut);
        assert_eq!(used(&lone), [0; 2]);
        complete(&mut lone, sent.id, PostStatus::Done);
        lone.sent();
        assert!(matches!(lone.endpoint.poll_event(), Some(Event::PeerLost { .. })));
        lone.sent();
        assert_eq!(lone.endpoint.inconsistency(), None);
    }
}

/// A connection that dies leaves nothing of a packet that the peer has.
#[test]
fn dead_rail_releases_acknowledged_packets() {
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    at_once(&mut lone, 1, 8).unwrap();
    acknowledge(&mut lone, 1);
    assert_eq!(used(&lone), [1; 2]);
    down(&mut lone, 0, RailFault::TimedOut);
    assert_eq!(used(&lone), [0; 2]);
    up(&mut lone, 0);
    lone.feed(connect(0, 2), 0);
    assert!(lone.sent().iter().all(|packet| packet.body.lane().is_none()));
}

/// Each of these goes the general way: nothing has happened.
#[test]
fn unusual_send_is_not_sent_immediately() {
    type Change = fn(&mut Lone<'_>);
    let queue: Change = |lone| lone.send(9, 8);
    let leave: Change = |lone| lone.endpoint.close_peer(PeerId(1)).unwrap();
    let cases: [(&str, Config, &[RailFacts], Change, u64); 6] = [
        ("something is queued", small(), &[TCP], queue, 8),
        ("the channel closes", small(), &[TCP], leave, 8),
        ("too long for eager", small(), &[TCP], |_| {}, 1001),
        ("too long for another rail", small(), &[TCP, RailFacts { eager_bytes_max: 7, ..TCP }], |_| {}, 8),
        ("a lossless rail", small(), &[RailFacts { short_bytes_max: 0, ..SHM }], |_| {}, 8),
        ("switched off", Config { express: false, ..small() }, &[TCP], |_| {}, 8),
    ];
    for (why, config, rails, change, len) in cases {
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, rails);
        change(&mut lone);
        let before = lone.endpoint.usage();
        assert_eq!(at_once(&mut lone, 1, len), None, "{why}");
        assert_eq!(lone.endpoint.usage(), before, "{why}");
    }
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    for level in [Level::Acknowledged, Level::Placed] {
        let send = SendRequest { level, ..sending(1) };
        assert!(!lone.endpoint.send_at_once(Time(0), &send, 8, &mut AtOnce::default()), "{level:?}");
    }
    for notify in [Notify::Counter(CounterId(0)), Notify::Both(CounterId(0))] {
        let send = SendRequest { notify, ..sending(1) };
        assert!(!lone.endpoint.send_at_once(Time(0), &send, 8, &mut AtOnce::default()), "{notify:?}");
    }
    assert!(at_once(&mut lone, 1, 8).is_some());
}

/// C-1, C-2, S-3, L-4, A-9: no message goes beyond a grant, a window, a rail's room or a table.
#[test]
fn it_takes_no_more_than_there_is() {
    let roomy = RailFacts { posts_max: 1000, ..TCP };
    let many = Config { packets_max: 1000, retained_max: 1000, nic_depth: 1000, ..small() };
    type Case = (&'static str, Config, RailFacts, (u16, u16), u64, usize);
    let cases: [Case; 7] = [
        ("messages", many, roomy, (5, 64), 8, 5),
        ("blocks", many, roomy, (32, 7), 100, 3),
        ("the window", many, roomy, (1000, 1000), 8, 64),
        ("the rail", many, TCP, (32, 64), 8, 3),
        ("empty copies", Config { retained_max: 16, ..many }, roomy, (1000, 1000), 0, 16),
        ("operations", Config { operations_max: 9, ..many }, roomy, (1000, 1000), 8, 9),
        ("copies", Config { retained_max: 4, ..many }, roomy, (1000, 1000), 8, 4),
    ];
    for (what, config, rail, limits, len, count) in cases {
        let mut region = Region::of(&config);
        let mut lone = Lone::up(&mut region, &config, &[rail]);
        lone.limits = limits;
        lone.feed(Body::Connect(PEER_PARAMETERS), 0);
        lone.sent();
        lone.completed();
        let sent = core::iter::from_fn(|| at_once(&mut lone, 1, len)).take(100);
        let sent: Vec<AtOnce> = sent.inspect(|_| {}).collect();
        assert_eq!(sent.len(), count, "{what}");
        // The last ones request acknowledgments where a table is full.
        let acks_requested = sent.iter().filter(|sent| Repr::parse(&sent.header).unwrap().common.ack_now).count();
        assert_eq!(
            acks_requested > 0,
            matches!(what, "empty copies" | "operations" | "copies"),
            "{what}: {acks_requested} of {count}"
        );
    }
}

/// S-1, C-1, P-5: whatever comes before the next message, or forbids it, counts from the moment on that it is
/// there, also where messages went without a check.
#[test]
fn an_open_road_is_closed_at_once() {
    type Change = fn(&mut Lone<'_>);
    let cases: [(&str, Change); 5] = [
        ("something is queued", |lone| lone.send(9, 8)),
        ("the channel closes", |lone| lone.endpoint.close_peer(PeerId(1)).unwrap()),
        ("the rail is down", |lone| down(lone, 0, RailFault::TimedOut)),
        ("the rail is not for such messages", |lone| lone.endpoint.set_rails(MessageClass::Small, 0b10, 1)),
        ("messages gather", |lone| {
            lone.endpoint.set_policy(MessageClass::Small, Policy::named("aggregate").unwrap());
        }),
    ];
    for (why, change) in cases {
        let config = small();
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP]);
        for n in 0..3 {
            let sent = at_once(&mut lone, n, 8).unwrap();
            complete(&mut lone, sent.id, PostStatus::Done);
        }
        change(&mut lone);
        let before = lone.endpoint.usage();
        let may_go = why == "the rail is not for such messages"; // Another rail is better than none (P-6).
        assert_eq!(at_once(&mut lone, 3, 8).is_some(), may_go, "{why}");
        assert!(may_go || lone.endpoint.usage() == before, "{why}");
    }
}

/// F-5: messages on the rail that is left wait until the lost ones have gone.
#[test]
fn retransmissions_are_sent_before_new_messages() {
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &TWO);
    let on = at_once(&mut lone, 0, 8).unwrap().rail;
    down(&mut lone, on.0, RailFault::TimedOut);
    lone.sent();
    for n in 1..3 {
        let sent = at_once(&mut lone, n, 8).unwrap();
        complete(&mut lone, sent.id, PostStatus::Done);
    }
    lone.feed_on(1 - on.0, Body::Fence(fence(on.0, true)), 0, |_| {});
    assert_eq!(at_once(&mut lone, 3, 8), None);
    lone.sent();
    assert!(at_once(&mut lone, 3, 8).is_some());
}

/// G-9: the checks of silent peers and stalled rails go on while messages go without a check.
#[test]
fn timers_that_expired_are_set_again() {
    let config = Config {
        probe_after: Nanos::from_millis(5),
        silence_max: Nanos::from_millis(50),
        stall_min: Nanos::from_millis(10),
        ..small()
    };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    for round in 0..4 {
        let sent = at_once(&mut lone, round, 8).unwrap();
        complete(&mut lone, sent.id, PostStatus::Done);
        acknowledge(&mut lone, round as u32 + 1);
        while let Some(at) = lone.endpoint.next_obligation() {
            lone.now = lone.now.max(at.0);
            lone.endpoint.handle_timeout(Time(lone.now));
            lone.sent();
        }
    }
    assert!(at_once(&mut lone, 9, 8).is_some());
    assert!(lone.endpoint.next_obligation().is_some(), "no timer checks whether the peer answers");
}

// ---- receiving

fn header(common: Common, head: MessageHead) -> Vec<u8> {
    Repr { common, body: Body::Eager(head) }.emit_vec().unwrap().to_vec()
}

fn arriving(psn: u32, payload_bytes: u32) -> Common {
    Common { source: 1, psn, message_limit: 32, block_limit: 64, payload_bytes, ..Common::default() }
}

const HEAD: MessageHead = MessageHead { tag: Some(TAG), immediate: Some(5), want_placed: false, operation: 0 };

fn receive(lone: &mut Lone<'_>, cookie: u64, at: u64, len: u64) {
    let segments = seg(at, len);
    let recv = RecvRequest { cookie: Cookie(cookie), ..RecvRequest::new(tagged(Some(1), TAG), &segments) };
    lone.endpoint.recv(Time(lone.now), &recv).unwrap();
}

fn arrives(lone: &mut Lone<'_>, header: &[u8]) -> ShortArrival {
    lone.endpoint.arrive_at_once(Time(lone.now), PeerId(1), RailId(0), header)
}

/// S-7, A-3: the expected message with a plain receive is received in one call; acknowledgments follow by
/// count.
#[test]
fn the_next_message_is_received_in_one_call() {
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    for n in 0..8 {
        receive(&mut lone, n, 64 * n, 64);
    }
    for n in 0..8 {
        assert!(lone.sent().is_empty(), "acknowledged before {n}");
        let len = 8 * (n as u32 % 2);
        let to = MemRef { region: HEAP, offset: 64 * n };
        let expected = if len == 0 { ShortArrival::Done } else { ShortArrival::At(to) };
        assert_eq!(arrives(&mut lone, &header(arriving(n as u32, len), HEAD)), expected);
        let done = Done { bytes: len.into(), tag: Some(TAG), immediate: Some(5), ..Done::of(PeerId(1)) };
        assert_eq!(lone.completed(), BTreeMap::from([(n, Ok(done))]));
    }
    let ack = lone.sent_one();
    assert!(matches!(ack.body, Body::Ack(_)) && ack.common.ack_ordered == 8, "{ack:?}");
    assert_eq!(ack.common.message_limit, 32 + 8, "all of the grant is free again");
    // A copy that comes late is a duplicate (S-4).
    assert_eq!(arrives(&mut lone, &header(arriving(7, 8), HEAD)), ShortArrival::Slow);
    lone.psn[0] = 7;
    assert_eq!(lone.feed(Body::Eager(HEAD), 8), Arrival::Discard);
    assert_eq!(lone.endpoint.stats().duplicates_dropped, 1);
    assert_eq!(lone.endpoint.stats().short_received, 8);
}

/// the sender may request an acknowledgment at once.
#[test]
fn an_acknowledgment_is_sent_when_it_is_requested() {
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    receive(&mut lone, 1, 0, 64);
    let common = Common { ack_now: true, ..arriving(0, 8) };
    assert!(matches!(arrives(&mut lone, &header(common, HEAD)), ShortArrival::At(_)));
    assert_eq!(lone.sent_one().common.ack_ordered, 1);
}

/// What is not the next plain message goes the general way, and nothing has happened to it.
#[test]
fn packet_out_of_order_or_unusual_takes_the_general_path() {
    let cases: [(&str, Common, MessageHead, u64); 8] = [
        ("another number", arriving(1, 8), HEAD, 64),
        ("another source", Common { source: 2, ..arriving(0, 8) }, HEAD, 64),
        ("an acknowledgment of nothing", Common { ack_ordered: 9, ..arriving(0, 8) }, HEAD, 64),
        ("too long", arriving(0, 1001), HEAD, 2000),
        ("truncated", arriving(0, 65), HEAD, 64),
        ("no receive", arriving(0, 8), MessageHead { tag: Some(8), ..HEAD }, 64),
        ("untagged", arriving(0, 8), MessageHead { tag: None, ..HEAD }, 64),
        ("a FIN is requested", arriving(0, 8), MessageHead { want_placed: true, operation: 3, ..HEAD }, 64),
    ];
    for (why, common, head, room) in cases {
        let config = small();
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP]);
        receive(&mut lone, 1, 0, room);
        assert_eq!(arrives(&mut lone, &header(common, head)), ShortArrival::Slow, "{why}");
        assert_eq!((lone.endpoint.stats().short_received, lone.completed().len()), (0, 0), "{why}");
        let info = lone.endpoint.channel_info(PeerId(1)).unwrap();
        assert_eq!(info.ordered.expected.0, 0, "{why}");
    }
    // Headers of other kinds, and such as are too short or too long.
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    receive(&mut lone, 1, 0, 64);
    let whole = header(arriving(0, 8), HEAD);
    let probe = Repr { common: Common { source: 1, ..Common::default() }, body: Body::Credit }.emit_vec().unwrap();
    let longer = [&whole[..], &[0]].concat();
    for bytes in [&[][..], &whole[..55], &longer, &probe] {
        assert_eq!(arrives(&mut lone, bytes), ShortArrival::Slow);
    }
    for (at, value) in [(0, 9), (1, 0x22), (2, 0x80), (28, 1), (30, 40)] {
        let mut wrong = whole.clone();
        wrong[at] ^= value;
        assert_eq!(arrives(&mut lone, &wrong), ShortArrival::Slow, "byte {at}");
    }
    // Fields that the flags declare absent are zero (W-6).
    for (flag, absent) in [(1 << 1, "tag"), (1 << 2, "immediate")] {
        let mut wrong = whole.clone();
        wrong[2] &= !flag;
        assert_eq!(arrives(&mut lone, &wrong), ShortArrival::Slow, "{absent}");
    }
    assert!(matches!(arrives(&mut lone, &whole), ShortArrival::At(_)));
}

/// While the payload of an older message is on its way, and before the peer's CONNECT, nothing is taken.
#[test]
fn nothing_overtakes_a_placement() {
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &TWO);
    for n in 0..2 {
        receive(&mut lone, n, 64 * n, 64);
    }
    let first = lone.feed_on(1, Body::Eager(HEAD), 8, |_| {});
    // Neither the next one nor a copy of that one.
    for psn in [1, 0] {
        assert_eq!(arrives(&mut lone, &header(arriving(psn, 8), HEAD)), ShortArrival::Slow);
    }
    lone.place(first);
    assert!(matches!(arrives(&mut lone, &header(arriving(1, 8), HEAD)), ShortArrival::At(_)));
    let mut region = Region::of(&config);
    let mut lone = Lone::up(&mut region, &config, &[TCP]);
    lone.endpoint.recv(Time(0), &RecvRequest::new(Selector::ANY_UNTAGGED, &seg(0, 64))).unwrap();
    let bare = MessageHead::default();
    assert_eq!(arrives(&mut lone, &header(arriving(0, 8), bare)), ShortArrival::Slow);
}

/// C-3: what exceeds a grant is not received, and costs the peer its channel, though its receive is posted.
#[test]
fn a_message_beyond_the_grant_is_not_received() {
    for (unexpected_per_peer, blocks_per_peer, len) in [(1, 64, 8), (32, 16, 64)] {
        let config = Config { unexpected_per_peer, blocks_per_peer, ..small() };
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP]);
        receive(&mut lone, 1, 0, 64);
        // It waits for its receive, and holds all of one grant.
        let other = MessageHead { tag: Some(8), ..HEAD };
        let arrival = lone.feed(Body::Eager(other), if len == 8 { 8 } else { 1000 });
        lone.place(arrival);
        let next = header(arriving(1, len), HEAD);
        assert_eq!(arrives(&mut lone, &next), ShortArrival::Slow);
        assert_eq!(lone.endpoint.handle_arrival(Time(0), PeerId(1), RailId(0), &next), Arrival::Close);
        assert_eq!(lone.offence(), ProtocolError::Credit);
    }
}

/// after an acknowledgment the delay of the next one counts from then on, not from the first message.
#[test]
fn each_acknowledgment_has_its_delay() {
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    (0..6).for_each(|n| receive(&mut lone, n, 64 * n, 64));
    for n in 0..2 {
        assert!(matches!(arrives(&mut lone, &header(arriving(n, 8), HEAD)), ShortArrival::At(_)));
    }
    let sent = at_once(&mut lone, 9, 0).unwrap();
    assert_eq!(Repr::parse(&sent.header).unwrap().common.ack_ordered, 2);
    complete(&mut lone, sent.id, PostStatus::Done);
    acknowledge(&mut lone, 1);
    for n in 2..4 {
        lone.now += 1;
        let common = Common { ack_ordered: 1, ..arriving(n, 8) };
        assert!(matches!(arrives(&mut lone, &header(common, HEAD)), ShortArrival::At(_)));
    }
    lone.endpoint.handle_timeout(Time(config.ack_delay.0 + lone.now - 3));
    assert!(lone.sent().is_empty(), "too early");
    lone.now = lone.now - 1 + config.ack_delay.0;
    lone.endpoint.handle_timeout(Time(lone.now));
    assert_eq!(lone.sent_one().common.ack_ordered, 4);
}

/// A-3, C-4: acknowledgments go by count, and limits when a quarter of the grant is free again, whichever is
/// first.
#[test]
fn acknowledgments_and_grants_are_sent_when_due() {
    for (ack_packets, due) in [(4, 4), (16, 8)] {
        let config = Config { ack_packets, ..small() };
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP]);
        for n in 0..due {
            assert!(lone.sent().is_empty(), "{ack_packets}: before {n}");
            receive(&mut lone, n, 64 * n, 64);
            assert!(matches!(arrives(&mut lone, &header(arriving(n as u32, 8), HEAD)), ShortArrival::At(_)));
        }
        let common = lone.sent_one().common;
        let due = due as u16;
        assert_eq!((common.message_limit, common.block_limit), (32 + due, 64 + due), "{ack_packets}");
    }
}

/// G-10: on a late connection of a channel that is over nothing is acknowledged: the packets that were sent
/// on it are gone.
#[test]
fn a_late_connection_acknowledges_nothing() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let segments = seg(0, 8);
    let send = SendRequest { segments: &segments, level: Level::Placed, ..sending(1) };
    lone.endpoint.send(Time(0), &send).unwrap();
    lone.sent();
    lone.feed(Body::Bye, 0);
    lone.sent();
    up(&mut lone, 0);
    lone.feed(Body::Connect(Connect { connection: 2, ..PEER_PARAMETERS }), 0);
    let common = Common { ack_ordered: 1, ..arriving(0, 8) };
    assert_eq!(arrives(&mut lone, &header(common, HEAD)), ShortArrival::Slow);
    assert_eq!(lone.endpoint.usage().operations.used, 1, "its end is not yet reported");
    lone.completed();
    assert_eq!(lone.endpoint.usage().operations.used, 0);
}

/// K-1: while it is not acknowledged its channel is not parked.
#[test]
fn it_keeps_its_channel() {
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    let sent = at_once(&mut lone, 3, 8).unwrap();
    assert_eq!(lone.completed().len(), 1);
    complete(&mut lone, sent.id, PostStatus::Done);
    assert!(!lone.endpoint.park(Time(lone.now), PeerId(1)));
    acknowledge(&mut lone, 1);
    assert!(lone.endpoint.park(Time(lone.now), PeerId(1)));
}
