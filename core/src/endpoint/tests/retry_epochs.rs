//! Retry epochs where more than one thing fails (F-7): which FINs count, when the next epoch is requested,
//! and what waits meanwhile.

use super::lone::Lone;
use super::recovery::{connect, down, fence, fins, put_over_both, region, up};
use super::replay::{deny, drain};
use super::single_puts::{cts, is_resume, put_over_one, written};
use super::*;
use crate::wire::{Body, Cts, Fence, Fin, MessageHead, Repr, Resume, Rts};

const BYTES: u64 = 40_000;

/// Rails that write two segments at a time: one post is kept for frames.
const NARROW: RailFacts = RailFacts { posts_max: 3, transfer_bytes_max: 5000, ..PUT };

fn resumes(packets: &[Repr]) -> Vec<(u32, u16)> {
    let resume = |packet: &Repr| match packet.body {
        Body::Resume(Resume { target: 88, epoch }) => Some((packet.common.psn, epoch)),
        _ => None,
    };
    packets.iter().filter_map(resume).collect()
}

/// FINs of the message among packets: PSN, round, count.
fn numbered(packets: &[Repr]) -> Vec<(u32, u16, u16)> {
    let fin = |packet: &Repr| match packet.body {
        Body::Fin(Fin { operation: 88, epoch, count, .. }) => Some((packet.common.psn, epoch, count)),
        _ => None,
    };
    packets.iter().filter_map(fin).collect()
}

/// The peer has all of the message.
fn finish(lone: &mut Lone<'_>, rail: u8, operation: u64) {
    lone.feed_on(rail, Body::Fin(Fin { operation, count: 1, placed_bytes: BYTES, ..Fin::default() }), 0, |_| {});
    lone.sent();
    assert_eq!(lone.completed()[&1].map(|done| done.bytes), Ok(BYTES));
}

/// Rails 0 and 1 write, rail 2 can't; FINs of both, as `(psn, rail)`.
fn both_fins<'m>(region: &'m mut Region) -> (Lone<'m>, u64, Vec<(u32, u8)>) {
    let mut lone = Lone::connected(region, &small(), &[PUT, PUT, TCP]);
    let operation = put_over_both(&mut lone);
    (lone.rails, lone.posts) = (vec![], vec![]);
    lone.feed_on(2, cts(operation, 0, &[(0, 1), (1, 1)]), 0, |_| {});
    let sent = lone.sent();
    let by: Vec<RailId> =
        lone.posts.iter().filter(|(_, kind, _)| *kind == PostKind::Send).map(|&(rail, ..)| rail).collect();
    let is_fin =
        |(packet, rail): (&Repr, &RailId)| matches!(packet.body, Body::Fin(_)).then_some((packet.common.psn, rail.0));
    let fins: Vec<(u32, u8)> = sent.iter().zip(&by).filter_map(is_fin).collect();
    assert_eq!(fins.len(), 2, "{sent:?}");
    (lone, operation, fins)
}

/// F-5, F-7, W-14: the lost FIN of an epoch that is over is repeated as a FIN of that epoch, however often,
/// and the lost one of the epoch that runs as RESUME; without keys the same, and with a count that is
/// allowed.
#[test]
fn a_fin_of_an_older_epoch_stays_a_fin() {
    for keyed in [true, false] {
        let mut region = region();
        let (mut lone, operation, old) = both_fins(&mut region);
        let psn_of = |rail| old.iter().find(|&&(_, by)| by == rail).unwrap().0;
        down(&mut lone, 0, RailFault::TimedOut);
        lone.sent();
        lone.feed_on(2, Body::Fence(fence(0, true)), 0, |_| {});
        assert_eq!(resumes(&lone.sent()), [(psn_of(0), 1)]);
        let keys: &[(u8, u16)] = if keyed { &[(1, 1)] } else { &[] };
        lone.feed_on(2, cts(operation, 1, keys), 0, |_| {});
        let new: Vec<u32> = numbered(&lone.sent()).iter().map(|&(psn, ..)| psn).collect();
        assert_eq!(new.len(), if keyed { 2 } else { 0 });
        down(&mut lone, 1, RailFault::TimedOut);
        lone.sent();
        lone.feed_on(2, Body::Fence(fence(1, true)), 0, |_| {});
        let mut again = lone.sent();
        for connection in 2..4 {
            let fins = numbered(&again);
            let stale: Vec<_> = fins.iter().filter(|(psn, ..)| *psn == psn_of(1)).collect();
            assert!(matches!(stale[..], [&(_, 0, 1..)]), "{again:?}");
            assert!(keyed || *stale[0] == (psn_of(1), 0, 1), "W-14: {stale:?}");
            let requests: Vec<_> = resumes(&again).into_iter().filter(|&(psn, _)| psn != psn_of(0)).collect();
            let expected: Vec<_> = new.iter().map(|&psn| (psn, 2)).collect();
            assert_eq!(requests, expected);
            down(&mut lone, 2, RailFault::TimedOut);
            up(&mut lone, 2);
            lone.sent();
            lone.feed_on(2, connect(2, connection), 0, |_| {});
            again = lone.sent();
        }
    }
}

/// F-7: where nothing is left to confirm or to write, the new epoch has a FIN all the same: the receiver
/// counts anew, and would wait for ever.
#[test]
fn an_epoch_has_at_least_one_fin() {
    let mut region = region();
    let (mut lone, operation, fins) = both_fins(&mut region);
    lone.acks[1] = fins.iter().map(|&(psn, _)| psn + 1).max().unwrap();
    lone.feed_on(2, cts(operation, 1, &[(0, 1), (1, 1)]), 0, |_| {});
    let writes = lone.transfers;
    let again = lone.sent();
    let [(psn, 1, 1)] = numbered(&again)[..] else { panic!("{again:?}") };
    assert_eq!(lone.transfers, writes);
    // Lost, it is repeated as it was: there is nothing unconfirmed behind it.
    let by = lone.rails.last().unwrap().0;
    down(&mut lone, by, RailFault::TimedOut);
    lone.sent();
    lone.feed_on(2, Body::Fence(fence(by, true)), 0, |_| {});
    assert_eq!(numbered(&lone.sent()), [(psn, 1, 1)]);
    finish(&mut lone, 2, operation);
}

/// F-7: the writes behind an acknowledged FIN are confirmed, in every epoch: the rail may fail.
#[test]
fn writes_confirmed_by_an_acknowledged_fin_stay_confirmed() {
    for (epoch, first) in [(0, 0), (0, 1), (255, 0), (255, 1)] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[PUT, PUT, TCP]);
        let operation = put_over_both(&mut lone);
        lone.feed_on(2, cts(operation, 0, &[(0, 1), (1, 1)]), 0, |_| {});
        let mut sent = lone.sent();
        if epoch != 0 {
            let op = lone.endpoint.t.ops.indices().next().unwrap();
            lone.endpoint.t.ops.at_mut(op).epoch = epoch;
            lone.feed_on(2, cts(operation, epoch + 1, &[(0, 1), (1, 1)]), 0, |_| {});
            sent = lone.sent();
            assert_eq!(fins(&sent).len(), 2);
        }
        lone.acks[1] = numbered(&sent)[1].0 + 1;
        lone.feed_on(2, Body::Credit, 0, |_| {});
        for rail in [first, 1 - first] {
            down(&mut lone, rail, RailFault::TimedOut);
            lone.sent();
            lone.feed_on(2, Body::Fence(fence(rail, true)), 0, |_| {});
            assert_eq!(resumes(&lone.sent()), [], "epoch {epoch}, rail {rail}");
        }
        finish(&mut lone, 2, operation);
        assert_eq!(lone.endpoint.usage().operations.used, 0);
    }
}

/// F-7, X-11: what FENCE confirms of one rail keeps nothing of another one from being requested anew.
#[test]
fn a_fin_that_a_fence_reports_confirms_its_part() {
    for lost in [0, 1] {
        let other = 1 - lost;
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[NARROW, NARROW, TCP]);
        let operation = put_over_both(&mut lone);
        lone.stuck = 1 << other;
        lone.feed_on(2, cts(operation, 0, &[(0, 1), (1, 1)]), 0, |_| {});
        let sent = lone.sent();
        let [(psn, 0, 2)] = numbered(&sent)[..] else { panic!("{sent:?}") };
        down(&mut lone, lost, RailFault::TimedOut);
        lone.sent();
        // The FIN is there, and one before it is not.
        assert_eq!(psn, 0);
        lone.acks[1] = u32::MAX;
        lone.feed_on(2, Body::Fence(Fence { unordered_beyond: 1, ..fence(lost, true) }), 0, |_| {});
        lone.acks[1] = 0;
        assert_eq!(resumes(&lone.sent()), []);
        deny(&mut lone, other);
        drain(&mut lone);
        let sent = lone.sent();
        assert!(sent.iter().any(is_resume(1)), "rail {lost}: {sent:?}");
    }
}

/// F-7, X-11: a RESUME in the place of a FIN that the peer had has no effect there. Once it is acknowledged,
/// what can't be written any more is requested by another one.
#[test]
fn a_resume_without_effect_is_followed_by_another() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[NARROW, NARROW, TCP]);
    let operation = put_over_both(&mut lone);
    lone.stuck = 0b01;
    lone.feed_on(2, cts(operation, 0, &[(0, 1), (1, 1)]), 0, |_| {});
    let sent = lone.sent();
    let [(psn, 0, 2)] = numbered(&sent)[..] else { panic!("{sent:?}") };
    down(&mut lone, 1, RailFault::TimedOut);
    lone.sent();
    lone.feed_on(2, Body::Fence(fence(1, true)), 0, |_| {});
    assert_eq!(resumes(&lone.sent()), [(psn, 1)]);
    deny(&mut lone, 0);
    drain(&mut lone);
    assert_eq!(resumes(&lone.sent()), [], "the one on its way may bring keys");
    lone.acks[1] = psn + 1;
    lone.feed_on(2, Body::Credit, 0, |_| {});
    let sent = lone.sent();
    assert!(matches!(resumes(&sent)[..], [(_, 1)]), "{sent:?}");
    lone.feed_on(2, cts(operation, 1, &[]), 0, |_| {});
    let bytes: u64 = lone.sent().iter().map(|packet| u64::from(packet.common.payload_bytes)).sum();
    assert_eq!(bytes, BYTES);
    finish(&mut lone, 2, operation);
}

/// F-7: that waits for the fence of later failures: an acknowledgment of the RESUME of an epoch that has
/// begun does not confirm the next.
#[test]
fn the_next_epoch_waits_for_its_own_fence() {
    for is_acknowledged_late in [false, true] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[NARROW, NARROW, TCP]);
        let operation = put_over_both(&mut lone);
        lone.stuck = 0b01;
        lone.feed_on(2, cts(operation, 0, &[(0, 1), (1, 1)]), 0, |_| {});
        let sent = lone.sent();
        let [(psn, 0, 2)] = numbered(&sent)[..] else { panic!("{sent:?}") };
        down(&mut lone, 1, RailFault::TimedOut);
        up(&mut lone, 1);
        lone.sent();
        lone.feed_on(1, connect(1, 2), 0, |_| {});
        assert_eq!(resumes(&lone.sent()), [(psn, 1)]);
        lone.acks[1] = psn + u32::from(!is_acknowledged_late);
        lone.stuck = 0b11;
        lone.feed_on(2, cts(operation, 1, &[(0, 1), (1, 2)]), 0, |_| {});
        assert_eq!(numbered(&lone.sent()), []);
        down(&mut lone, 1, RailFault::TimedOut);
        deny(&mut lone, 0);
        drain(&mut lone);
        lone.sent();
        lone.acks[1] = psn + 1;
        lone.feed_on(2, Body::Credit, 0, |_| {});
        assert_eq!(resumes(&lone.sent()), [], "rail 1 may still write");
        lone.feed_on(2, Body::Fence(Fence { connection: 2, peer_connection: 2, ..fence(1, true) }), 0, |_| {});
        assert!(matches!(resumes(&lone.sent())[..], [(_, 2)]));
    }
}

/// F-7: an epoch that is requested by two failures is requested once.
#[test]
fn resume_waiting_for_room_is_sent_once() {
    let mut region = region();
    let rail = RailFacts { posts_max: 2, ..TCP };
    let mut lone = Lone::connected(&mut region, &small(), &[NARROW, NARROW, rail]);
    let operation = put_over_both(&mut lone);
    lone.stuck = 0b111;
    lone.feed_on(2, cts(operation, 0, &[(0, 1), (1, 1)]), 0, |_| {});
    lone.sent();
    // What is left of the room of rail 2.
    let to = Remote { peer: PeerId(1), window: 3, offset: 8 };
    let put = PutRequest { cookie: Cookie(2), segments: &seg(0, 100), ..PutRequest::new(to, &[]) };
    lone.endpoint.put(Time(0), &put).unwrap();
    assert_eq!(lone.sent().len(), 1);
    for rail in [0, 1] {
        down(&mut lone, rail, RailFault::TimedOut);
        lone.feed_on(2, Body::Fence(fence(rail, true)), 0, |_| {});
        assert_eq!(resumes(&lone.sent()), [], "there is no room");
    }
    drain(&mut lone);
    let sent = lone.sent();
    assert!(matches!(resumes(&sent)[..], [(_, 1)]), "{sent:?}");
    lone.feed_on(2, cts(operation, 1, &[]), 0, |_| {});
    let bytes: u64 = lone.sent().iter().map(|packet| u64::from(packet.common.payload_bytes)).sum();
    assert_eq!(bytes, BYTES);
    finish(&mut lone, 2, operation);
}

/// F-7: nor is it requested where its CTS is here before the request has left.
#[test]
fn a_cts_answers_the_resume_that_waits() {
    let mut region = region();
    let rail = RailFacts { posts_max: 2, ..TCP };
    let mut lone = Lone::connected(&mut region, &small(), &[NARROW, NARROW, rail]);
    let operation = put_over_both(&mut lone);
    lone.stuck = 0b10;
    lone.feed_on(2, cts(operation, 0, &[(0, 1), (1, 1)]), 0, |_| {});
    let sent = lone.sent();
    let [(psn, 0, 2)] = numbered(&sent)[..] else { panic!("{sent:?}") };
    down(&mut lone, 0, RailFault::TimedOut);
    lone.sent();
    lone.feed_on(2, Body::Fence(fence(0, true)), 0, |_| {});
    assert_eq!(resumes(&lone.sent()), [(psn, 1)]);
    lone.stuck = 0b110;
    let to = Remote { peer: PeerId(1), window: 3, offset: 8 };
    let put = PutRequest { cookie: Cookie(2), segments: &seg(0, 100), ..PutRequest::new(to, &[]) };
    lone.endpoint.put(Time(0), &put).unwrap();
    assert_eq!(lone.sent().len(), 1);
    down(&mut lone, 1, RailFault::TimedOut);
    lone.feed_on(2, Body::Fence(fence(1, true)), 0, |_| {});
    assert_eq!(resumes(&lone.sent()), [], "there is no room");
    lone.feed_on(2, cts(operation, 1, &[]), 0, |_| {});
    drain(&mut lone);
    let sent = lone.sent();
    assert_eq!(resumes(&sent), []);
    let is_data = |packet: &&Repr| matches!(packet.body, Body::Data(_));
    let bytes: u64 = sent.iter().filter(is_data).map(|packet| u64::from(packet.common.payload_bytes)).sum();
    assert_eq!(bytes, BYTES);
    finish(&mut lone, 2, operation);
    let op = lone.endpoint.t.ops.indices().find(|&op| lone.endpoint.t.ops.at(op).len == BYTES).unwrap();
    assert_eq!(lone.endpoint.t.ops.at(op).control, crate::op::Control::None);
}

/// F-7: an epoch may begin while other rails of the message still write.
#[test]
fn an_epoch_begins_while_rails_write() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[NARROW, NARROW, TCP]);
    let operation = put_over_both(&mut lone);
    lone.stuck = 0b10;
    lone.feed_on(2, cts(operation, 0, &[(0, 1), (1, 1)]), 0, |_| {});
    assert_eq!(numbered(&lone.sent()).len(), 1);
    down(&mut lone, 0, RailFault::TimedOut);
    lone.sent();
    lone.feed_on(2, Body::Fence(fence(0, true)), 0, |_| {});
    assert_eq!(resumes(&lone.sent()).len(), 1);
    lone.feed_on(2, cts(operation, 1, &[(1, 1)]), 0, |_| {});
    lone.posts.clear();
    drain(&mut lone);
    let sent = lone.sent();
    assert_eq!(fins(&sent), [(1, 2), (1, 2)], "{sent:?}");
    assert_eq!(written(&mut lone), [0, BYTES - 10_000], "rail 1 has written two segments before");
    lone.acks[1] = numbered(&sent)[1].0 + 1;
    finish(&mut lone, 2, operation);
    assert_eq!(lone.endpoint.usage().operations.used, 0);
}

/// F-7: one byte that was written is unconfirmed like many.
#[test]
fn a_single_byte_is_written_again() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[PUT, TCP]);
    let operation = put_over_one(&mut lone);
    let one = |epoch, connection| match cts(operation, epoch, &[(0, connection)]) {
        Body::Cts(cts) => Body::Cts(Cts { granted_bytes: 1, ..cts }),
        other => other,
    };
    lone.feed_on(1, one(0, 1), 0, |_| {});
    assert_eq!(fins(&lone.sent()), [(0, 1)]);
    assert_eq!(written(&mut lone), [1, 0]);
    down(&mut lone, 0, RailFault::TimedOut);
    up(&mut lone, 0);
    lone.sent();
    lone.feed_on(0, connect(0, 2), 0, |_| {});
    assert!(lone.sent().iter().any(is_resume(1)));
    lone.feed_on(1, one(1, 2), 0, |_| {});
    assert_eq!(fins(&lone.sent()), [(1, 1)]);
    assert_eq!(written(&mut lone), [1, 0]);
}

/// F-5: the numbers of lost FINs are replayed though the peer has confirmed the message: one of an earlier
/// epoch may never have arrived, and its window would stall.
#[test]
fn numbers_of_fins_go_out_again_after_the_end() {
    let mut region = region();
    let (mut lone, operation, old) = both_fins(&mut region);
    finish(&mut lone, 2, operation);
    for rail in 0..2 {
        down(&mut lone, rail, RailFault::TimedOut);
    }
    lone.sent();
    for rail in 0..2 {
        lone.feed_on(2, Body::Fence(fence(rail, true)), 0, |_| {});
        let sent = lone.sent();
        let psns = sent.iter().filter(|packet| packet.body.lane().is_some()).map(|packet| packet.common.psn);
        let expected = old.iter().filter(|&&(_, by)| by == rail).map(|&(psn, _)| psn);
        assert_eq!(psns.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}

/// F-7: a receiver whose CTS has not left answers the newest RESUME with it, once.
#[test]
fn a_cts_that_waits_is_of_the_newest_epoch() {
    let mut region = region();
    let rail = RailFacts { posts_max: 2, ..PUT };
    let mut lone = Lone::connected(&mut region, &small(), &[rail]);
    lone.recv(1, 3000);
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.feed(Body::Rts(Rts { head, message_bytes: 3000, ..Rts::default() }), 0);
    let Body::Cts(Cts { target, .. }) = lone.sent_one().body else { panic!("no CTS") };
    lone.stuck = 1;
    lone.send(2, 8);
    assert_eq!(lone.sent().len(), 1);
    for epoch in 1..3 {
        lone.feed(Body::Resume(Resume { target, epoch }), 0);
        assert_eq!(lone.sent().len(), 0, "there is no room");
    }
    drain(&mut lone);
    let sent = lone.sent();
    let rounds = sent.iter().filter_map(|packet| match packet.body {
        Body::Cts(Cts { epoch, .. }) => Some(epoch),
        _ => None,
    });
    assert_eq!(rounds.collect::<Vec<_>>(), [2]);
}
