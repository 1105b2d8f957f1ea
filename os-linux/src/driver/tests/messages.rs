//! Two-sided messages on every fabric.

use rerail_core::endpoint::{
    Done, Event, Level, Notify, OpError, RecvRequest, Selector, SendRequest, SubmitError, TagMatch,
};
use rerail_core::ids::{Cookie, CounterId, PeerId};
use rerail_core::mem::Seg;

use super::cluster::{Cluster, Fabric, on_fabrics, pattern, whole};
use crate::driver::{MemoryError, RequestError, Transport};

const MIB: usize = 1 << 20;

on_fabrics! {
    an_eager_message_arrives: Loop Shm Tcp TwoTcp;
    an_empty_message_arrives: Loop Shm Tcp TwoTcp;
    a_large_message_arrives: Loop Shm Tcp TwoTcp;
    a_large_message_in_pieces_arrives: Loop Shm Tcp TwoTcp;
    a_message_may_come_before_its_receive: Loop Shm Tcp TwoTcp;
    an_injected_message_needs_no_buffer: Loop Shm Tcp TwoTcp;
    a_multi_receive_takes_message_after_message: Loop Shm Tcp;
    a_claimed_message_is_received_by_its_claim: Loop Shm Tcp;
    a_cancelled_receive_takes_nothing: Loop Shm Tcp;
    a_short_buffer_truncates: Loop Shm Tcp TwoTcp;
    counters_count_what_makes_no_event: Loop Shm Tcp;
    messages_stay_in_order: Loop Shm Tcp TwoTcp;
    levels_complete: Loop Shm Tcp TwoTcp;
    messages_held_for_more_leave_together: Loop Shm Tcp TwoTcp;
    memory_in_use_is_not_freed: Loop Shm Tcp;
}

/// Held messages (P-16) wait for the first that is not, for a push, or for a round; then they leave in one
/// packet where that costs the same as one message, and keep their order. Over shared memory nothing is held.
fn messages_held_for_more_leave_together(fabric: Fabric) {
    const MESSAGES: usize = 5;
    let (mut cluster, ends) = Cluster::new(fabric);
    exchange(&mut cluster, ends.a, ends.b, 8, 1);
    run_until_idle(&mut cluster);
    let source = cluster.filled(ends.a, 8 * MESSAGES, 9);
    let target = cluster.empty(ends.b, 8 * MESSAGES);
    let at = |region, nth: usize| [Seg::new(region, 8 * nth as u64, 8)];
    let packets =
        |cluster: &mut Cluster| -> u64 { cluster.at(ends.a).rails().map(|rail| rail.counters.packets_sent).sum() };
    type Release = fn(&mut Cluster, usize);
    let releases: [(bool, Release); 3] = [
        (true, |_, _| {}),
        (false, |cluster, a| assert!(cluster.at(a).push() > 0)),
        (false, |cluster, a| assert!(cluster.at(a).progress() > 0)),
    ];
    for (ends_itself, release) in releases {
        let recvs: Vec<_> = (0..MESSAGES)
            .map(|nth| cluster.at(ends.b).recv(&RecvRequest::new(tagged(5), &at(target, nth))).unwrap())
            .collect();
        let before = packets(&mut cluster);
        for nth in 0..MESSAGES {
            let more = nth + 1 < MESSAGES || !ends_itself;
            let segments = at(source, nth);
            let send = SendRequest { tag: Some(5), more, ..SendRequest::new(ends.peer_b(), &segments) };
            cluster.at(ends.a).send(&send).unwrap();
            let left = packets(&mut cluster) - before;
            match fabric {
                Fabric::Shm => assert_eq!(left, nth as u64 + 1, "nothing is held"),
                _ => assert_eq!(left, u64::from(!more), "{nth} of {MESSAGES} held"),
            }
        }
        if fabric != Fabric::Shm {
            release(&mut cluster, ends.a);
            assert_eq!(packets(&mut cluster) - before, 1, "they leave in one packet");
        }
        for (recv, nth) in recvs.into_iter().zip(0..) {
            assert_eq!(cluster.complete(ends.b, recv).unwrap().bytes, 8);
            let [part] = at(target, nth);
            let sent = pattern(8 * MESSAGES, 9);
            assert_eq!(cluster.at(ends.b).part(&part), Ok(&sent[8 * nth..8 * nth + 8]), "message {nth}");
        }
        run_until_idle(&mut cluster);
    }
}

/// Drives until no rank has anything to send, and no rail holds anything.
fn run_until_idle(cluster: &mut Cluster) {
    let is_idle = |transport: &Transport| {
        let core = &transport.engine.core;
        core.is_quiet(None) && !core.has_actions() && (0..2).all(|peer| core.is_unused(PeerId(peer)))
    };
    cluster.until("idle", |cluster| cluster.transports.iter().all(is_idle));
}

fn tagged(tag: u64) -> Selector {
    Selector { source: None, tag: TagMatch::Tagged { tag, ignore: 0 } }
}

fn an_eager_message_arrives(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let source = cluster.filled(ends.a, 1000, 1);
    let target = cluster.empty(ends.b, 2000);
    let recv = RecvRequest { cookie: Cookie(77), segments: &whole(target, 2000), ..RecvRequest::new(tagged(5), &[]) };
    let recv = cluster.at(ends.b).recv(&recv).unwrap();
    let peer = ends.peer_b();
    let send = SendRequest {
        tag: Some(5),
        immediate: Some(99),
        segments: &whole(source, 1000),
        ..SendRequest::new(peer, &[])
    };
    let send = cluster.at(ends.a).send(&send).unwrap();
    assert_eq!(cluster.complete(ends.a, send).unwrap().bytes, 1000);
    let done = cluster.complete(ends.b, recv).unwrap();
    let expected = Done { bytes: 1000, tag: Some(5), immediate: Some(99), ..Done::of(ends.peer_a()) };
    assert_eq!(done, expected);
    assert_eq!(cluster.bytes(ends.b, target)[..1000], pattern(1000, 1));
    assert_eq!(cluster.bytes(ends.b, target)[1000..], [0; 1000]);
}

fn an_empty_message_arrives(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let send =
        cluster.at(ends.a).send(&SendRequest { immediate: Some(3), ..SendRequest::new(ends.peer_b(), &[]) }).unwrap();
    let recv = cluster.at(ends.b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &[])).unwrap();
    cluster.complete(ends.a, send).unwrap();
    let done = cluster.complete(ends.b, recv).unwrap();
    assert_eq!((done.bytes, done.tag, done.immediate), (0, None, Some(3)));
}

/// Sends one message of so many bytes, receive first.
fn exchange(cluster: &mut Cluster, a: usize, b: usize, bytes: usize, seed: u8) {
    let source = cluster.filled(a, bytes, seed);
    let target = cluster.empty(b, bytes);
    let recv = cluster.at(b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, bytes))).unwrap();
    let send = SendRequest { segments: &whole(source, bytes), ..SendRequest::new(PeerId(b as u32), &[]) };
    let send = cluster.at(a).send(&send).unwrap();
    assert_eq!(cluster.complete(b, recv).unwrap().bytes, bytes as u64);
    assert_eq!(cluster.complete(a, send).unwrap().bytes, bytes as u64);
    assert!(cluster.bytes(b, target) == pattern(bytes, seed), "{bytes} bytes arrived wrong");
    cluster.at(a).free(source).unwrap();
    cluster.at(b).free(target).unwrap();
}

fn a_large_message_arrives(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    for (bytes, seed) in [(MIB, 1), (4 * MIB, 2), (MIB + 13, 3)] {
        exchange(&mut cluster, ends.a, ends.b, bytes, seed);
    }
}

fn a_large_message_in_pieces_arrives(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let source = cluster.filled(ends.a, MIB, 4);
    let target = cluster.empty(ends.b, MIB);
    let half = MIB as u64 / 2;
    // Halves swapped at the sender, a gap of 100 bytes and uneven pieces at the receiver.
    let from = [Seg::new(source, half, half), Seg::new(source, 0, half - 100)];
    let to = [Seg::new(target, 0, 1), Seg::new(target, 101, half), Seg::new(target, half + 101, half - 101)];
    let recv = cluster.at(ends.b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &to)).unwrap();
    let send = cluster.at(ends.a).send(&SendRequest::new(ends.peer_b(), &from)).unwrap();
    cluster.complete(ends.a, send).unwrap();
    assert_eq!(cluster.complete(ends.b, recv).unwrap().bytes, MIB as u64 - 100);
    let sent = pattern(MIB, 4);
    let swapped: Vec<u8> = sent[MIB / 2..].iter().chain(&sent[..MIB / 2 - 100]).copied().collect();
    let arrived = cluster.bytes(ends.b, target);
    assert_eq!(arrived[0], swapped[0]);
    assert_eq!(arrived[1..101], [0; 100]);
    assert!(arrived[101..] == swapped[1..], "the pieces arrived wrong");
}

fn a_message_may_come_before_its_receive(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    for (bytes, seed) in [(500, 1), (6000, 2), (MIB, 3)] {
        let source = cluster.filled(ends.a, bytes, seed);
        let peer = ends.peer_b();
        let send = SendRequest { tag: Some(1), segments: &whole(source, bytes), ..SendRequest::new(peer, &[]) };
        let send = cluster.at(ends.a).send(&send).unwrap();
        cluster.until("a probe finds the message", |cluster| cluster.at(ends.b).probe(&tagged(1)).is_some());
        let found = cluster.at(ends.b).probe(&tagged(1)).unwrap();
        assert_eq!((found.peer, found.tag, found.bytes), (ends.peer_a(), Some(1), bytes as u64));
        let target = cluster.empty(ends.b, bytes);
        let recv = RecvRequest { segments: &whole(target, bytes), ..RecvRequest::new(tagged(1), &[]) };
        let recv = cluster.at(ends.b).recv(&recv).unwrap();
        assert_eq!(cluster.complete(ends.b, recv).unwrap().bytes, bytes as u64);
        cluster.complete(ends.a, send).unwrap();
        assert!(cluster.bytes(ends.b, target) == pattern(bytes, seed), "{bytes} bytes arrived wrong");
        assert_eq!(cluster.at(ends.b).probe(&tagged(1)), None);
    }
}

fn an_injected_message_needs_no_buffer(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let target = cluster.empty(ends.b, 3000);
    for bytes in [0, 1, 3000] {
        let mut payload = pattern(bytes, 9);
        let injected = cluster.at(ends.a).inject(&SendRequest::new(ends.peer_b(), &[]), &payload).unwrap();
        payload.fill(0);
        let recv = cluster.at(ends.b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, 3000))).unwrap();
        assert_eq!(cluster.complete(ends.b, recv).unwrap().bytes, bytes as u64);
        cluster.complete(ends.a, injected).unwrap();
        assert_eq!(cluster.bytes(ends.b, target)[..bytes], pattern(bytes, 9));
    }
    if fabric == Fabric::Shm {
        run_until_idle(&mut cluster);
        // By the short way, as a message that is sent.
        for bytes in [8, 1000] {
            let before = cluster.at(ends.a).stats().short_sent;
            let send = SendRequest { notify: Notify::Silent, ..SendRequest::new(ends.peer_b(), &[]) };
            cluster.at(ends.a).inject(&send, &pattern(bytes, 3)).unwrap();
            assert_eq!(cluster.at(ends.a).stats().short_sent, before + 1, "{bytes} bytes");
            let recv =
                cluster.at(ends.b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, 3000))).unwrap();
            assert_eq!(cluster.complete(ends.b, recv).unwrap().bytes, bytes as u64);
            assert_eq!(cluster.bytes(ends.b, target)[..bytes], pattern(bytes, 3));
        }
    }
    let beside = SendRequest { segments: &whole(target, 1), ..SendRequest::new(ends.peer_b(), &[]) };
    assert_eq!(cluster.at(ends.a).inject(&beside, b"x"), Err(RequestError::InjectSegments { given: 1 }));
    let long = vec![0; cluster.at(ends.a).config().eager_bytes_max as usize + 1];
    let refused = cluster.at(ends.a).inject(&SendRequest::new(ends.peer_b(), &[]), &long);
    assert!(matches!(refused, Err(RequestError::Submit(SubmitError::TooLong { .. }))), "{refused:?}");
}

fn a_multi_receive_takes_message_after_message(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let source = cluster.filled(ends.a, 400, 7);
    let target = cluster.empty(ends.b, 1000);
    let recv = RecvRequest {
        multi: Some(300),
        cookie: Cookie(5),
        segments: &whole(target, 1000),
        ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
    };
    cluster.at(ends.b).recv(&recv).unwrap();
    let mut at = 0;
    for (index, bytes) in [100usize, 400, 250].into_iter().enumerate() {
        let send = SendRequest { segments: &whole(source, bytes), ..SendRequest::new(ends.peer_b(), &[]) };
        let send = cluster.at(ends.a).send(&send).unwrap();
        let done = cluster.expect(ends.b, "a part of the multi-receive", |event| match event {
            Event::Completed(completion) if completion.cookie == Cookie(5) => Some(completion.result),
            _ => None,
        });
        let done = done.unwrap();
        assert_eq!((done.bytes, done.offset, done.released), (bytes as u64, at as u64, index == 2));
        // The rest waits for more: only this is lent.
        let part = Seg::new(target, at as u64, bytes as u64);
        assert_eq!(cluster.at(ends.b).part(&part), Ok(&pattern(400, 7)[..bytes]));
        at += bytes;
        cluster.complete(ends.a, send).unwrap();
    }
    cluster.at(ends.b).free(target).unwrap();
}

fn a_claimed_message_is_received_by_its_claim(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let source = cluster.filled(ends.a, 50, 8);
    let target = cluster.empty(ends.b, 50);
    let peer = ends.peer_b();
    let send = SendRequest { tag: Some(1), segments: &whole(source, 50), ..SendRequest::new(peer, &[]) };
    cluster.at(ends.a).send(&send).unwrap();
    let mut claim = None;
    cluster.until("a claim finds the message", |cluster| {
        claim = cluster.at(ends.b).claim(&tagged(1));
        claim.is_some()
    });
    let (message, found) = claim.unwrap();
    assert_eq!(found.bytes, 50);
    assert_eq!(cluster.at(ends.b).probe(&tagged(1)), None, "a claimed message takes no more part in matching");
    let into = RecvRequest { segments: &whole(target, 50), ..RecvRequest::new(Selector::ANY_UNTAGGED, &[]) };
    let recv = cluster.at(ends.b).recv_claimed(message, &into).unwrap();
    assert_eq!(cluster.complete(ends.b, recv).unwrap().tag, Some(1));
    assert_eq!(cluster.bytes(ends.b, target), pattern(50, 8));
    let again = cluster.at(ends.b).recv_claimed(message, &into);
    assert_eq!(again, Err(RequestError::Submit(SubmitError::UnknownMessage)));
}

fn a_cancelled_receive_takes_nothing(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let source = cluster.filled(ends.a, 50, 8);
    let [early, late] = [cluster.empty(ends.b, 50), cluster.empty(ends.b, 50)];
    let recv =
        |region| RecvRequest { segments: Box::leak(Box::new(whole(region, 50))), ..RecvRequest::new(tagged(1), &[]) };
    let cancelled = cluster.at(ends.b).recv(&recv(early)).unwrap();
    cluster.at(ends.b).cancel(cancelled).unwrap();
    assert_eq!(cluster.complete(ends.b, cancelled), Err(OpError::Cancelled));
    cluster.at(ends.b).free(early).unwrap();
    let recv = cluster.at(ends.b).recv(&recv(late)).unwrap();
    let peer = ends.peer_b();
    let send = SendRequest { tag: Some(1), segments: &whole(source, 50), ..SendRequest::new(peer, &[]) };
    cluster.at(ends.a).send(&send).unwrap();
    cluster.complete(ends.b, recv).unwrap();
    assert_eq!(cluster.bytes(ends.b, late), pattern(50, 8));
}

fn a_short_buffer_truncates(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    for (bytes, capacity) in [(1000, 999), (1000, 0), (MIB, 1000), (MIB, MIB - 1)] {
        let source = cluster.filled(ends.a, bytes, 3);
        let target = cluster.empty(ends.b, MIB);
        let recv =
            cluster.at(ends.b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, capacity))).unwrap();
        let (segments, immediate) = (&whole(source, bytes), Some(bytes as u64));
        let send = SendRequest { segments, immediate, ..SendRequest::new(ends.peer_b(), &[]) };
        let send = cluster.at(ends.a).send(&send).unwrap();
        let (sent, capacity) = (bytes as u64, capacity as u64);
        let truncated = OpError::Truncated { sent, capacity, peer: ends.peer_a(), tag: None, immediate };
        assert_eq!(cluster.complete(ends.b, recv), Err(truncated));
        cluster.complete(ends.a, send).unwrap();
        let (fitted, beyond) = cluster.bytes(ends.b, target).split_at(capacity as usize);
        assert!(fitted == &pattern(bytes, 3)[..fitted.len()], "the part that fits arrived wrong");
        assert!(beyond.iter().all(|byte| *byte == 0), "bytes beyond the buffer were written");
    }
    exchange(&mut cluster, ends.a, ends.b, 100, 1);
}

fn counters_count_what_makes_no_event(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let source = cluster.filled(ends.a, 10, 1);
    let target = cluster.empty(ends.b, 10);
    let (sent, received) = (CounterId(1), CounterId(2));
    for _ in 0..3 {
        let notify = Notify::Counter(received);
        cluster
            .at(ends.b)
            .recv(&RecvRequest { notify, ..RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, 10)) })
            .unwrap();
        let notify = Notify::Counter(sent);
        let send = SendRequest { notify, segments: &whole(source, 10), ..SendRequest::new(ends.peer_b(), &[]) };
        cluster.at(ends.a).send(&send).unwrap();
    }
    cluster.until("both counters reach 3", |cluster| {
        cluster.at(ends.a).counter(sent) == Some(3) && cluster.at(ends.b).counter(received) == Some(3)
    });
    let completions = cluster.events.iter().flatten().filter(|event| matches!(event, Event::Completed(_))).count();
    assert_eq!(completions, 0);
    assert_eq!(cluster.at(ends.a).counter(CounterId(8)), None);
}

fn messages_stay_in_order(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    // Sizes go across the limits of every fabric, so that eager and rendezvous mix.
    let sizes = [0usize, 1, 100, 4000, 9000, 70_000, 300_000];
    let source = cluster.filled(ends.a, 300_000, 6);
    let target = cluster.empty(ends.b, 300_000);
    let mut sends = 0..100u64;
    let mut received = 0;
    let mut next = sends.next();
    let mut posted = None;
    while received < 100 {
        if let Some(index) = next {
            let segments = whole(source, sizes[index as usize % sizes.len()]);
            let (peer, notify) = (ends.peer_b(), Notify::Silent);
            let send = SendRequest { immediate: Some(index), notify, ..SendRequest::new(peer, &segments) };
            match cluster.at(ends.a).send(&send) {
                Ok(_) => next = sends.next(),
                Err(error) => assert!(error.is_full(), "{error}"),
            }
        }
        let operation = *posted.get_or_insert_with(|| {
            cluster.at(ends.b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, 300_000))).unwrap()
        });
        cluster.step();
        let done = cluster.take(ends.b, |event| match event {
            Event::Completed(completion) if completion.operation == operation => Some(completion.result),
            _ => None,
        });
        if let Some(done) = done {
            let done = done.unwrap();
            let bytes = sizes[received as usize % sizes.len()];
            assert_eq!((done.immediate, done.bytes), (Some(received), bytes as u64));
            assert!(cluster.bytes(ends.b, target)[..bytes] == pattern(300_000, 6)[..bytes]);
            received += 1;
            posted = None;
        }
    }
}

fn levels_complete(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    for level in [Level::Reusable, Level::Acknowledged, Level::Placed] {
        for bytes in [0, 100, MIB] {
            let source = cluster.filled(ends.a, bytes.max(1), 6);
            let target = cluster.empty(ends.b, bytes.max(1));
            let send = SendRequest { level, segments: &whole(source, bytes), ..SendRequest::new(ends.peer_b(), &[]) };
            let send = cluster.at(ends.a).send(&send).unwrap();
            if level == Level::Placed {
                for _ in 0..1000 {
                    cluster.step();
                }
                assert!(cluster.events[ends.a].iter().all(|event| !matches!(event, Event::Completed(_))));
            }
            let recv =
                cluster.at(ends.b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, bytes))).unwrap();
            cluster.complete(ends.a, send).unwrap();
            assert_eq!(cluster.complete(ends.b, recv).unwrap().bytes, bytes as u64, "{level:?}");
        }
    }
}

fn memory_in_use_is_not_freed(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let source = cluster.filled(ends.a, MIB, 6);
    let target = cluster.empty(ends.b, MIB);
    let recv = cluster.at(ends.b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, MIB))).unwrap();
    assert_eq!(cluster.at(ends.b).free(target), Err(MemoryError::InUse(target)));
    let send = SendRequest { segments: &whole(source, MIB), ..SendRequest::new(ends.peer_b(), &[]) };
    let send = cluster.at(ends.a).send(&send).unwrap();
    assert_eq!(cluster.at(ends.a).free(source), Err(MemoryError::InUse(source)));
    cluster.complete(ends.a, send).unwrap();
    cluster.complete(ends.b, recv).unwrap();
    cluster.at(ends.a).free(source).unwrap();
    cluster.at(ends.b).free(target).unwrap();
    let gone = cluster.at(ends.b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, 1)));
    assert_eq!(gone, Err(RequestError::Memory(MemoryError::Unknown(target))));
}

#[test]
fn a_request_beyond_its_region_is_refused_with_the_numbers() {
    let (mut cluster, ends) = Cluster::new(Fabric::Loop);
    let region = cluster.empty(ends.a, 100);
    let refused = cluster.at(ends.a).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &[Seg::new(region, 90, 11)]));
    let error = MemoryError::OutOfBounds { region, offset: 90, len: 11, region_bytes: 100 };
    assert_eq!(refused, Err(RequestError::Memory(error)));
    assert_eq!(
        error.to_string(),
        format!("11 bytes at offset 90 reach beyond the end of region {:#x}, which has 100 bytes", region.0)
    );
}

/// One round is enough to send it, and over the loopback to have it: it is with its rail before the rails are
/// looked at.
#[test]
fn submitted_request_is_sent_before_the_rails_are_polled() {
    let (mut cluster, ends) = Cluster::new(Fabric::Loop);
    cluster.ping(ends.a, ends.b, 8);
    let source = cluster.filled(ends.a, 8, 2);
    let target = cluster.empty(ends.b, 8);
    let recv = cluster.at(ends.b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, 8))).unwrap();
    cluster.at(ends.a).send(&SendRequest::new(ends.peer_b(), &whole(source, 8))).unwrap();
    cluster.step();
    let over = |event: &Event| matches!(event, Event::Completed(completion) if completion.operation == recv);
    assert!(cluster.events[ends.b].iter().any(over), "{:?}", cluster.events);
}
