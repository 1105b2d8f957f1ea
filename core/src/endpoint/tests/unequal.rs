//! Two ends with different numbers: connections, rails, operations and places in memory have other numbers on
//! either side, so that a confusion of the two shows.

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::recovery::{down, region, up};
use super::*;
use crate::wire::{Body, Connect, Cts, Data, Fence, Fin, MessageHead, RemoteKey, Repr, Resume, Rts};

/// The peer's number of its first connection on our rail 0; each further rail has the next one. Ours are 1.
const THEIRS: u32 = 41;

/// The destination of a message at the peer; its source lies at 0.
const TARGET: u64 = 1 << 20;

fn connect(rail: u8, connection: u32) -> Body {
    Body::Connect(Connect { rail: PEER_RAIL + rail, connection, answer: true, ..PEER_PARAMETERS })
}

fn unequal<'m>(region: &'m mut Region, rails: &[RailFacts]) -> Lone<'m> {
    let mut lone = Lone::up(region, &small(), rails);
    for rail in 0..rails.len() as u8 {
        assert_eq!(lone.feed_on(rail, connect(rail, THEIRS + u32::from(rail)), 0, |_| {}), Arrival::Done);
    }
    lone.sent();
    assert_eq!(lone.endpoint.poll_event(), Some(Event::PeerUp { peer: PeerId(1) }));
    lone
}

/// The peer's FENCE for the first connection of our rail.
fn fence(rail: u8, answer: bool) -> Fence {
    let connection = THEIRS + u32::from(rail);
    Fence { rail: PEER_RAIL + rail, peer_rail: rail, connection, peer_connection: 1, answer, ..Fence::default() }
}

fn fences(packets: &[Repr]) -> Vec<Fence> {
    let fence = |packet: &Repr| match packet.body {
        Body::Fence(fence) => Some(fence),
        _ => None,
    };
    packets.iter().filter_map(fence).collect()
}

/// Sequenced packets: number, bytes and body.
fn sequenced(packets: &[Repr]) -> Vec<(u32, u32, Body)> {
    let mine = packets.iter().filter(|packet| packet.body.lane().is_some());
    mine.map(|packet| (packet.common.psn, packet.common.payload_bytes, packet.body.clone())).collect()
}

/// Memory of all sends that had any, in the order of sending.
fn memory(lone: &mut Lone<'_>) -> Vec<Vec<Seg>> {
    let posts = std::mem::take(&mut lone.posts);
    let sends = posts.into_iter().filter(|(_, kind, memory)| *kind == PostKind::Send && !memory.is_empty());
    sends.map(|(_, _, memory)| memory).collect()
}

/// Remote writes so far: rail, offset in the message, bytes. Checks the destination of each.
fn writes(lone: &mut Lone<'_>) -> Vec<(u8, u64, u64)> {
    let write = |(rail, kind, memory): (RailId, PostKind, Vec<Seg>)| match kind {
        PostKind::Write { to } => {
            let [piece] = memory[..] else { panic!("in pieces: {memory:?}") };
            let offset = to.address - TARGET;
            assert_eq!(piece.at.offset, offset, "the bytes of another place");
            Some((rail.0, offset, piece.len))
        }
        _ => None,
    };
    std::mem::take(&mut lone.posts).into_iter().filter_map(write).collect()
}

/// The bytes that some writes cover, in one list of disjoint ranges.
fn covered(writes: impl Iterator<Item = (u8, u64, u64)>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = writes.map(|(_, offset, len)| (offset, offset + len)).collect();
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if last.1 >= start => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

const LARGE: u64 = 40_000;

/// A message over all rails in equal parts; its RTS was sent.
fn announce(lone: &mut Lone<'_>) -> u64 {
    lone.endpoint.set_policy(MessageClass::Large, Policy::named("even").unwrap());
    lone.endpoint.set_policy(MessageClass::Small, Policy::named("binding").unwrap());
    lone.send(1, LARGE);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    lone.acks[0] = 1;
    lone.posts.clear();
    rts.head.operation
}

/// The CTS of a retry epoch, with keys for some rails, of connections with these numbers.
fn cts(operation: u64, epoch: u16, keys: &[(u8, u32)]) -> Body {
    let key = |&(rail, connection): &(u8, u32)| RemoteKey {
        rail: PEER_RAIL + rail,
        connection: connection as u16,
        key: 7,
        address: TARGET,
    };
    Body::Cts(Cts { operation, target: 88, granted_bytes: LARGE, epoch, keys: keys.iter().map(key).collect() })
}

/// Keys for the first connection of each of so many rails.
fn first_keys(rails: u8) -> Vec<(u8, u32)> {
    (0..rails).map(|rail| (rail, THEIRS + u32::from(rail))).collect()
}

fn fin_epochs(packets: &[Repr]) -> Vec<(u32, u16, u16)> {
    let fin = |packet: &Repr| match packet.body {
        Body::Fin(Fin { operation: 88, epoch, count, .. }) => Some((packet.common.psn, epoch, count)),
        _ => None,
    };
    packets.iter().filter_map(fin).collect()
}

fn resumes(packets: &[Repr]) -> Vec<Body> {
    packets.iter().map(|packet| packet.body.clone()).filter(|body| matches!(body, Body::Resume(_))).collect()
}

/// F-3: a FENCE names a connection by both numbers and both rails, each with its owner's number.
#[test]
fn a_fence_names_both_ends() {
    let mut region = region();
    let mut lone = unequal(&mut region, &[TCP, TCP]);
    lone.endpoint.set_policy(MessageClass::Small, Policy::named("round-robin").unwrap());
    (0..2).for_each(|n| lone.send(n, 10));
    lone.sent();
    down(&mut lone, 1, RailFault::TimedOut);
    let requested =
        Fence { rail: 1, peer_rail: PEER_RAIL + 1, connection: 1, peer_connection: THEIRS + 1, ..fence(1, false) };
    let is_request = |fence: &Fence| Fence { ordered_beyond: 0, unordered_beyond: 0, ..*fence } == requested;
    let sent_frames = fences(&lone.sent());
    assert!(sent_frames.len() == 1 && is_request(&sent_frames[0]), "{sent_frames:?}");
    // Of other connections: both numbers must be right, and each in its place.
    let others = [
        Fence { connection: 1, peer_connection: THEIRS + 1, ..fence(1, true) },
        Fence { connection: THEIRS, ..fence(1, true) },
        Fence { peer_connection: 0, ..fence(1, true) },
        Fence { peer_connection: 2, ..fence(1, true) },
    ];
    for other in others {
        lone.feed(Body::Fence(other), 0);
        assert_eq!(sequenced(&lone.sent()), [], "{other:?}");
    }
    lone.feed(Body::Fence(fence(1, true)), 0);
    assert_eq!(sequenced(&lone.sent()).len(), 1);
}

/// F-3, F-4: a peer reports that its end is dead: the answer names the same connection, from our side. An
/// earlier or later connection of that rail is unaffected.
#[test]
fn fence_aborts_only_its_own_connection() {
    let mut region = region();
    let mut lone = unequal(&mut region, &[TCP, TCP]);
    lone.closed.clear();
    for connection in [THEIRS, THEIRS + 2, 1] {
        lone.feed(Body::Fence(Fence { connection, ..fence(1, false) }), 0);
        assert_eq!((fences(&lone.sent()), &lone.closed), (vec![], &vec![]), "connection {connection}");
    }
    lone.feed(Body::Fence(fence(1, false)), 0);
    let sent_frames = fences(&lone.sent());
    assert_eq!(lone.closed, [RailId(1)]);
    let answer = Fence {
        rail: 1,
        peer_rail: PEER_RAIL + 1,
        connection: 1,
        peer_connection: THEIRS + 1,
        answer: true,
        ..sent_frames[0]
    };
    assert_eq!(sent_frames, [answer]);
}

/// F-5: a put, and a message by data segments, of several packets are replayed unchanged: offsets, lengths,
/// and source memory.
#[test]
fn every_segment_is_retransmitted_unchanged() {
    for is_put in [true, false] {
        let mut region = region();
        let mut lone = unequal(&mut region, &[TCP]);
        let bytes = 3 * u64::from(TCP.segment_bytes_max) + 100;
        let offset = |body: &Body| match *body {
            Body::Put(put) => put.offset - 64,
            Body::Data(Data { operation: 88, offset }) => offset,
            ref other => panic!("{other:?}"),
        };
        if is_put {
            let to = Remote { peer: PeerId(1), window: 3, offset: 64 };
            let put = PutRequest { cookie: Cookie(1), segments: &seg(1000, bytes), ..PutRequest::new(to, &[]) };
            lone.endpoint.put(Time(0), &put).unwrap();
        } else {
            let send =
                SendRequest { cookie: Cookie(1), segments: &seg(1000, bytes), ..SendRequest::new(PeerId(1), &[]) };
            lone.endpoint.send(Time(0), &send).unwrap();
            let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
            lone.acks[0] = 1;
            let operation = rts.head.operation;
            lone.feed(Body::Cts(Cts { operation, target: 88, granted_bytes: bytes, ..Cts::default() }), 0);
        }
        lone.posts.clear();
        let first = sequenced(&lone.sent());
        let pieces = memory(&mut lone);
        assert!(first.len() > 3 && pieces.len() == first.len(), "{first:?}");
        let mut at = 0;
        for ((_, len, body), memory) in first.iter().zip(&pieces) {
            assert_eq!((offset(body), memory), (at, &seg(1000 + at, u64::from(*len)).to_vec()));
            at += u64::from(*len);
        }
        assert_eq!(at, bytes);
        // The first is acknowledged; the others are replayed.
        lone.acks[1] = 1;
        lone.feed(Body::Credit, 0);
        down(&mut lone, 0, RailFault::TimedOut);
        up(&mut lone, 0);
        lone.feed(connect(0, THEIRS + 7), 0);
        lone.posts.clear();
        assert_eq!(sequenced(&lone.sent()), first[1..]);
        assert_eq!(memory(&mut lone), pieces[1..]);
    }
}

/// F-7: the bytes written again are those written over the rail that died, all of them and no others.
#[test]
fn the_whole_range_is_written_again() {
    for lost in [0, 1] {
        let mut region = region();
        let mut lone = unequal(&mut region, &[PUT, PUT]);
        let operation = announce(&mut lone);
        lone.feed(cts(operation, 0, &first_keys(2)), 0);
        assert_eq!(fin_epochs(&lone.sent()).len(), 2);
        let first = writes(&mut lone);
        assert_eq!(covered(first.iter().copied()), [(0, LARGE)]);
        let of_lost = covered(first.iter().copied().filter(|(rail, ..)| *rail == lost));
        let other = 1 - lost;
        down(&mut lone, lost, RailFault::TimedOut);
        lone.feed_on(other, Body::Fence(fence(lost, true)), 0, |_| {});
        assert_eq!(resumes(&lone.sent()), [Body::Resume(Resume { target: 88, epoch: 1 })]);
        lone.posts.clear();
        lone.feed_on(other, cts(operation, 1, &first_keys(2)), 0, |_| {});
        let sent = lone.sent();
        let again = writes(&mut lone);
        assert!(again.iter().all(|(rail, ..)| *rail == other));
        assert_eq!(covered(again.into_iter()), of_lost, "of {first:?}");
        // Both parts have writes without an acknowledged FIN.
        let rounds: Vec<(u16, u16)> = fin_epochs(&sent).into_iter().map(|(_, epoch, count)| (epoch, count)).collect();
        assert_eq!(rounds, [(1, 2), (1, 2)]);
    }
}

/// F-7: an acknowledgment of a RESUME with the number of a lost FIN does not show which of the two arrived:
/// unconfirmed data is written again.
#[test]
fn an_acknowledged_resume_confirms_no_writes() {
    let mut region = region();
    let mut lone = unequal(&mut region, &[PUT, PUT]);
    let operation = announce(&mut lone);
    lone.feed(cts(operation, 0, &first_keys(2)), 0);
    let next = fin_epochs(&lone.sent()).iter().map(|&(psn, ..)| psn + 1).max().unwrap();
    let first = writes(&mut lone);
    let of_lost = covered(first.iter().copied().filter(|(rail, ..)| *rail == 1));
    down(&mut lone, 1, RailFault::TimedOut);
    lone.feed(Body::Fence(fence(1, true)), 0);
    assert_eq!(resumes(&lone.sent()), [Body::Resume(Resume { target: 88, epoch: 1 })]);
    lone.acks[1] = next;
    lone.feed(Body::Credit, 0);
    lone.sent();
    lone.posts.clear();
    lone.feed(cts(operation, 1, &first_keys(1)), 0);
    lone.sent();
    let again = covered(writes(&mut lone).into_iter());
    assert!(of_lost.iter().all(|lost| again.iter().any(|wrote| wrote.0 <= lost.0 && lost.1 <= wrote.1)), "{again:?}");
}

/// F-7: a RESUME with a number of its own is replayed unchanged, and its acknowledgment triggers nothing
/// more.
#[test]
fn resume_is_retransmitted_unchanged() {
    let mut region = region();
    let mut lone = unequal(&mut region, &[PUT, TCP]);
    let operation = announce(&mut lone);
    lone.busy = true;
    lone.feed_on(1, cts(operation, 0, &first_keys(1)), 0, |_| {});
    assert_eq!(fin_epochs(&lone.sent()), [], "no FIN is out that could be lost");
    lone.busy = false;
    down(&mut lone, 0, RailFault::TimedOut);
    lone.feed_on(1, Body::Fence(fence(0, true)), 0, |_| {});
    let requested: Vec<_> = sequenced(&lone.sent());
    let [(number, 0, Body::Resume(Resume { target: 88, epoch: 1 }))] = requested[..] else { panic!("{requested:?}") };
    for connection in [7, 8] {
        down(&mut lone, 1, RailFault::TimedOut);
        up(&mut lone, 1);
        lone.feed_on(1, connect(1, THEIRS + 1 + connection), 0, |_| {});
        assert_eq!(sequenced(&lone.sent()), requested);
    }
    lone.acks[1] = number + 1;
    lone.feed_on(1, Body::Credit, 0, |_| {});
    assert_eq!(sequenced(&lone.sent()), [], "its answer is on the way");
}

/// F-7, X-11: an epoch without any key makes all of it data, even if a rail is up that could write.
#[test]
fn a_round_without_keys_is_data_though_a_rail_could_write() {
    let mut region = region();
    let mut lone = unequal(&mut region, &[PUT, PUT, TCP]);
    let operation = announce(&mut lone);
    lone.feed_on(2, cts(operation, 0, &first_keys(2)), 0, |_| {});
    lone.sent();
    down(&mut lone, 1, RailFault::TimedOut);
    lone.feed_on(2, Body::Fence(fence(1, true)), 0, |_| {});
    assert_eq!(resumes(&lone.sent()).len(), 1);
    lone.posts.clear();
    lone.feed_on(2, cts(operation, 1, &[]), 0, |_| {});
    lone.sent();
    let posts = std::mem::take(&mut lone.posts);
    assert!(posts.iter().all(|(_, kind, _)| *kind == PostKind::Send));
    let bytes: u64 = posts.iter().flat_map(|(_, _, memory)| memory).map(|piece| piece.len).sum();
    assert_eq!(bytes, LARGE);
}

/// F-7: a receiver that begins an epoch unasked counts anew: the FIN of one rail's writes is sent once more,
/// of that epoch, over that rail, and nothing is written again.
#[test]
fn unrequested_epoch_gets_its_fin() {
    let mut region = region();
    let mut lone = unequal(&mut region, &[TCP, PUT]);
    let operation = announce(&mut lone);
    lone.feed(cts(operation, 0, &[(1, THEIRS + 1)]), 0);
    let first: Vec<(u16, u16)> = fin_epochs(&lone.sent()).iter().map(|&(_, epoch, count)| (epoch, count)).collect();
    assert_eq!((first, covered(writes(&mut lone).into_iter())), (vec![(0, 1)], vec![(0, LARGE)]));
    lone.rails.clear();
    lone.feed(cts(operation, 1, &[(1, THEIRS + 1)]), 0);
    let again: Vec<(u16, u16)> = fin_epochs(&lone.sent()).iter().map(|&(_, epoch, count)| (epoch, count)).collect();
    assert_eq!((again, writes(&mut lone)), (vec![(1, 1)], vec![]));
    assert!(lone.rails.iter().all(|rail| *rail == RailId(1)), "{:?}", lone.rails);
}

/// without recovery a written message is complete for its sender when its rails have completed the
/// writes and the FIN; with it, when the receiver reports so.
#[test]
fn without_recovery_the_writes_are_the_end() {
    for (recovery, granted_bytes) in [(false, 3000), (true, 3000), (false, 1000), (true, 1000)] {
        let config = Config { recovery, ..small() };
        let mut own = Region::of(&config);
        let mut lone = Lone::connected(&mut own, &config, &[PUT]);
        lone.send(1, 3000);
        let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
        lone.acks[0] = 1;
        let key = RemoteKey { rail: PEER_RAIL, connection: 1, key: 7, address: TARGET };
        let keys = [key].into_iter().collect();
        let cts = Cts { operation: rts.head.operation, target: 88, granted_bytes, keys, epoch: 0 };
        lone.feed(Body::Cts(cts), 0);
        assert_eq!(fin_epochs(&lone.sent()).len(), 1);
        lone.sent();
        let mut done = lone.completed();
        assert_eq!(done.len(), usize::from(!recovery));
        if recovery {
            let fin = Fin { operation: rts.head.operation, count: 1, placed_bytes: granted_bytes, ..Fin::default() };
            lone.acks[1] = 1;
            lone.feed(Body::Fin(fin), 0);
            lone.sent();
            done = lone.completed();
        }
        assert_eq!(done[&1].unwrap().bytes, granted_bytes, "what the receive takes");
    }
}

/// F-7: bytes that a rail had not written yet when it died are written too.
#[test]
fn the_rest_of_a_part_is_written_too() {
    let mut region = region();
    let mut lone = unequal(&mut region, &[PUT, PUT]);
    let operation = announce(&mut lone);
    lone.busy = true;
    lone.feed(cts(operation, 0, &first_keys(2)), 0);
    lone.sent();
    let first = writes(&mut lone);
    let part = |rail: u8| covered(first.iter().copied().filter(|(on, ..)| *on == rail));
    assert!(covered(first.iter().copied()) != [(0, LARGE)], "all is written, so that the test proves nothing");
    let begun = part(1);
    down(&mut lone, 1, RailFault::TimedOut);
    lone.busy = false;
    for index in 0..lone.endpoint.t.packets.capacity() {
        if let Some(key) = lone.endpoint.t.packets.key_at(index)
            && lone.endpoint.t.packets.at(index).posted
        {
            lone.endpoint.handle_completion(Time(0), PostId(key), PostStatus::Done);
        }
    }
    lone.feed(Body::Fence(fence(1, true)), 0);
    let sent = lone.sent();
    assert_eq!(resumes(&sent), [Body::Resume(Resume { target: 88, epoch: 1 })]);
    let between = writes(&mut lone);
    lone.feed(cts(operation, 1, &first_keys(1)), 0);
    lone.sent();
    let again = writes(&mut lone);
    let of_first =
        first.iter().chain(&between).copied().filter(|(rail, offset, _)| {
            *rail == 0 && begun.iter().all(|&(start, end)| *offset < start || end <= *offset)
        });
    assert_eq!(covered(of_first.chain(again)), [(0, LARGE)]);
}

/// F-7: an epoch does not begin while another dead connection's writes may still land: the next one does.
#[test]
fn a_round_waits_for_every_fence() {
    let mut region = region();
    let mut lone = unequal(&mut region, &[PUT, PUT, PUT]);
    let operation = announce(&mut lone);
    lone.feed_on(2, cts(operation, 0, &first_keys(2)), 0, |_| {});
    assert_eq!(fin_epochs(&lone.sent()).len(), 2);
    assert_eq!(covered(writes(&mut lone).into_iter()), [(0, LARGE)]);
    down(&mut lone, 1, RailFault::TimedOut);
    lone.feed_on(2, Body::Fence(fence(1, true)), 0, |_| {});
    assert_eq!(resumes(&lone.sent()), [Body::Resume(Resume { target: 88, epoch: 1 })]);
    // Before the receiver's answer the other one dies, and its writes may still land.
    down(&mut lone, 0, RailFault::TimedOut);
    lone.sent();
    lone.posts.clear();
    let key = [(2, THEIRS + 2)];
    lone.feed_on(2, cts(operation, 1, &key), 0, |_| {});
    assert_eq!((resumes(&lone.sent()), writes(&mut lone)), (vec![], vec![]));
    lone.feed_on(2, Body::Fence(fence(0, true)), 0, |_| {});
    assert!(resumes(&lone.sent()).contains(&Body::Resume(Resume { target: 88, epoch: 2 })));
    lone.feed_on(2, cts(operation, 2, &key), 0, |_| {});
    let sent = lone.sent();
    assert_eq!(covered(writes(&mut lone).into_iter()), [(0, LARGE)]);
    assert!(fin_epochs(&sent).iter().all(|&(_, epoch, _)| epoch == 2), "{sent:?}");
}

/// F-7: a receiver that has had the FIN also acknowledges a RESUME in place of it, and answers nothing.
/// Another part without a key must not wait for that answer: the epoch is requested once more, under a number
/// of its own.
#[test]
fn keyless_stripe_requests_its_own_epoch() {
    for is_acknowledged_first in [false, true] {
        let mut region = region();
        let mut lone = unequal(&mut region, &[RailFacts { posts_max: 2, ..PUT }, PUT, TCP]);
        let operation = announce(&mut lone);
        // A small message fills rail 0, so that nothing is written over it.
        lone.stuck = 0b1;
        lone.send(2, 8);
        assert_eq!((lone.sent().len(), lone.rails.last()), (1, Some(&RailId(0))));
        lone.feed_on(2, cts(operation, 0, &first_keys(2)), 0, |_| {});
        let fins = fin_epochs(&lone.sent());
        let &[(number, 0, 2)] = &fins[..] else { panic!("one part is whole: {fins:?}") };
        assert!(writes(&mut lone).iter().all(|(rail, ..)| *rail == 1));
        down(&mut lone, 1, RailFault::TimedOut);
        lone.feed_on(2, Body::Fence(fence(1, true)), 0, |_| {});
        let epoch = Body::Resume(Resume { target: 88, epoch: 1 });
        assert!(sequenced(&lone.sent()).contains(&(number, 0, epoch.clone())));
        let acknowledge = |lone: &mut Lone<'_>, next: u32| {
            lone.acks[1] = next;
            lone.feed_on(2, Body::Credit, 0, |_| {});
        };
        if is_acknowledged_first {
            acknowledge(&mut lone, number + 1);
        }
        down(&mut lone, 0, RailFault::TimedOut);
        lone.feed_on(2, Body::Fence(fence(0, true)), 0, |_| {});
        if !is_acknowledged_first {
            assert_eq!(resumes(&lone.sent()), [], "one of the two is on its way");
            acknowledge(&mut lone, number + 1);
        }
        let sent = sequenced(&lone.sent());
        assert!(sent.contains(&(number + 1, 0, epoch)), "{sent:?}");
        acknowledge(&mut lone, number + 2);
        assert_eq!(resumes(&lone.sent()), [], "once is enough");
        lone.posts.clear();
        lone.feed_on(2, cts(operation, 1, &[]), 0, |_| {});
        let data = lone.sent();
        let bytes: u64 = memory(&mut lone).iter().flatten().map(|piece| piece.len).sum();
        assert_eq!(bytes, LARGE, "{data:?}");
    }
}

/// F-7: an acknowledgment of a FIN of the last epoch confirms nothing of this one: bytes written in this
/// epoch, and lost, are unconfirmed.
#[test]
fn a_fin_of_the_round_before_confirms_nothing() {
    let mut region = region();
    let mut lone = unequal(&mut region, &[PUT, PUT, TCP]);
    let operation = announce(&mut lone);
    lone.feed_on(2, cts(operation, 0, &first_keys(2)), 0, |_| {});
    let old = fin_epochs(&lone.sent());
    assert_eq!(old.len(), 2);
    down(&mut lone, 1, RailFault::TimedOut);
    lone.feed_on(2, Body::Fence(fence(1, true)), 0, |_| {});
    assert_eq!(resumes(&lone.sent()).len(), 1);
    lone.posts.clear();
    lone.feed_on(2, cts(operation, 1, &first_keys(1)), 0, |_| {});
    let new = fin_epochs(&lone.sent());
    assert!(new.len() == 2 && new.iter().all(|&(_, epoch, _)| epoch == 1), "{new:?}");
    // Late: the FINs of round 0 have arrived, and RESUME, but none of round 1.
    lone.acks[1] = new[0].0;
    lone.feed_on(2, Body::Credit, 0, |_| {});
    down(&mut lone, 0, RailFault::TimedOut);
    lone.feed_on(2, Body::Fence(fence(0, true)), 0, |_| {});
    let resumed = resumes(&lone.sent());
    assert_eq!(resumed, [2, 2].map(|epoch| Body::Resume(Resume { target: 88, epoch })));
    // No rail is left that writes: all of it is sent as data.
    lone.posts.clear();
    lone.feed_on(2, cts(operation, 2, &[]), 0, |_| {});
    let data = lone.sent();
    let bytes: u64 = memory(&mut lone).iter().flatten().map(|piece| piece.len).sum();
    assert_eq!(bytes, LARGE, "{data:?}");
}

/// F-7, X-10: keys are invalid once their connection is dead, though the number of a later one may look like
/// it.
#[test]
fn keys_end_with_their_connection() {
    // A key has 16 bits of a connection's number.
    let alike = |connection: u32| connection + (1 << 16);
    // Of a CTS, held by the writer.
    let mut own = region();
    let mut lone = unequal(&mut own, &[PUT, PUT]);
    let operation = announce(&mut lone);
    lone.stuck = 0b10;
    lone.feed(cts(operation, 0, &first_keys(2)), 0);
    lone.sent();
    lone.stuck = 0;
    down(&mut lone, 1, RailFault::TimedOut);
    lone.sent();
    up(&mut lone, 1);
    lone.posts.clear();
    lone.feed_on(1, connect(1, alike(THEIRS + 1)), 0, |_| {});
    lone.sent();
    let again = writes(&mut lone);
    assert!(again.iter().all(|(rail, ..)| *rail == 0), "by an old key: {again:?}");
    // Of an RTS whose receive is posted later.
    let mut own = region();
    let mut lone = unequal(&mut own, &[GET]);
    let key = RemoteKey { rail: PEER_RAIL, connection: THEIRS as u16, key: 7, address: TARGET };
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.feed(Body::Rts(Rts { head, message_bytes: 3000, keys: [key].into_iter().collect() }), 0);
    lone.sent();
    down(&mut lone, 0, RailFault::TimedOut);
    up(&mut lone, 0);
    lone.feed(connect(0, alike(THEIRS)), 0);
    lone.sent();
    lone.recv(1, 3000);
    let sent = lone.sent();
    assert_eq!(lone.transfers, 0, "read by an old key");
    assert!(sent.iter().any(|packet| matches!(packet.body, Body::Cts(_))), "{sent:?}");
}

/// F-5: reads of a rail that died are repeated over another one: the same bytes, the same source and
/// destination.
#[test]
fn lost_reads_are_repeated_with_the_same_memory() {
    let mut region = region();
    let mut lone = unequal(&mut region, &[GET, GET]);
    lone.endpoint.set_policy(MessageClass::Large, Policy::named("even").unwrap());
    let into = 5000;
    lone.recv(1, LARGE);
    let keys = first_keys(2).into_iter().map(|(rail, connection)| RemoteKey {
        rail: PEER_RAIL + rail,
        connection: connection as u16,
        key: 7 + u64::from(rail),
        address: TARGET,
    });
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.stuck = 0b10;
    lone.feed(Body::Rts(Rts { head, message_bytes: LARGE, keys: keys.collect() }), 0);
    lone.sent();
    let reads = |lone: &mut Lone<'_>| -> Vec<(u8, u64, u64)> {
        let read = |(rail, kind, memory): (RailId, PostKind, Vec<Seg>)| match kind {
            PostKind::Read { from } => {
                assert_eq!(from.key, 7 + u64::from(rail.0), "the key of another rail");
                assert_eq!((memory.len(), memory[0].at.offset - into), (1, from.address - TARGET));
                Some((rail.0, from.address - TARGET, memory[0].len))
            }
            _ => None,
        };
        std::mem::take(&mut lone.posts).into_iter().filter_map(read).collect()
    };
    let first = reads(&mut lone);
    let of_lost = covered(first.iter().copied().filter(|(rail, ..)| *rail == 1));
    assert!(!of_lost.is_empty() && of_lost[0].0 > 0, "{first:?}");
    assert_eq!(lone.completed().len(), 0);
    down(&mut lone, 1, RailFault::TimedOut);
    lone.sent();
    let again = reads(&mut lone);
    assert!(again.iter().all(|(rail, ..)| *rail == 0), "{again:?}");
    let of_first = first.into_iter().filter(|(rail, ..)| *rail == 0);
    assert_eq!(covered(of_first.chain(again)), [(0, LARGE)]);
    assert!(lone.completed()[&1].is_ok());
}

/// F-5: a replayed CTS names our connections as they are now.
#[test]
fn keys_go_out_again_with_the_connection_of_now() {
    let mut region = region();
    let mut lone = unequal(&mut region, &[PUT]);
    lone.recv(1, 3000);
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.feed(Body::Rts(Rts { head, message_bytes: 3000, ..Rts::default() }), 0);
    let connections = |packets: &[Repr]| -> Vec<u16> {
        let keys = packets.iter().filter_map(|packet| match &packet.body {
            Body::Cts(cts) => cts.keys.first().map(|key| key.connection),
            _ => None,
        });
        keys.collect()
    };
    assert_eq!(connections(&lone.sent()), [1]);
    down(&mut lone, 0, RailFault::TimedOut);
    up(&mut lone, 0);
    lone.feed(connect(0, THEIRS + 3), 0);
    assert_eq!(connections(&lone.sent()), [2]);
}

/// F-3: a FENCE request sent over a connection that died is repeated over the next.
#[test]
fn fence_request_is_repeated_over_the_next_connection() {
    let mut region = region();
    let mut lone = unequal(&mut region, &[TCP, TCP]);
    down(&mut lone, 1, RailFault::TimedOut);
    assert_eq!(fences(&lone.sent()).len(), 1);
    down(&mut lone, 0, RailFault::TimedOut);
    lone.sent();
    up(&mut lone, 0);
    lone.feed(connect(0, THEIRS + 3), 0);
    let again = fences(&lone.sent());
    assert_eq!(again.iter().map(|fence| (fence.rail, fence.answer)).collect::<Vec<_>>(), [(1, false)]);
}
