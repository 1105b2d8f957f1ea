//! Messages that do not meet their receives when they arrive: out of turn, or where a buffer for many
//! messages finds no operation for one more.

use super::lone::Lone;
use super::*;
use crate::wire::{Body, MessageHead};

const ANY_TAGGED: Selector = Selector { source: None, tag: TagMatch::Tagged { tag: 0, ignore: u64::MAX } };

/// A message with `tag` comes, in whole.
fn arrive(lone: &mut Lone<'_>, tag: u64, len: u32) {
    let arrival = lone.feed(Body::Eager(MessageHead { tag: Some(tag), ..MessageHead::default() }), len);
    lone.place(arrival);
}

/// A buffer of 100 bytes for messages with any tag, down to 50 bytes.
fn post_multi(lone: &mut Lone<'_>, cookie: u64) {
    let recv = RecvRequest {
        multi: Some(50),
        cookie: Cookie(cookie),
        segments: &seg(0, 100),
        ..RecvRequest::new(ANY_TAGGED, &[])
    };
    lone.endpoint.recv(Time(0), &recv).unwrap();
}

fn post(lone: &mut Lone<'_>, cookie: u64, from: Selector) -> OpId {
    let segments = seg(1000 * cookie, 100);
    let recv = RecvRequest { cookie: Cookie(cookie), segments: &segments, ..RecvRequest::new(from, &[]) };
    lone.endpoint.recv(Time(0), &recv).unwrap()
}

/// Completions of messages: cookies, where in the buffer, bytes.
fn received(lone: &mut Lone<'_>) -> Vec<(u64, u64, u64)> {
    let mut out = vec![];
    while let Some(event) = lone.endpoint.poll_event() {
        if let Event::Completed(Completion { cookie, result: Ok(done), .. }) = event {
            out.push((cookie.0, done.offset, done.bytes));
        }
    }
    out
}

/// M-8: while a message waits for an operation, none overtakes it: not one that does not fit behind it, and
/// not one that comes when an operation is free again.
#[test]
fn nothing_overtakes_a_message_that_waits_for_an_operation() {
    let config = Config { operations_max: 2, ..small() };
    for (last, is_freed, expected) in [
        (80, false, [(1, 30, 20), (2, 0, 80)]),
        (80, true, [(1, 30, 20), (2, 0, 80)]),
        (40, true, [(1, 30, 20), (1, 50, 40)]),
    ] {
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP]);
        post_multi(&mut lone, 1);
        post(&mut lone, 2, ANY_TAGGED);
        arrive(&mut lone, 7, 30);
        // All operations are taken until the completion of the first one is read.
        arrive(&mut lone, 8, 20);
        let mut done = if is_freed { received(&mut lone) } else { vec![] };
        arrive(&mut lone, 9, last);
        while done.len() < 3 {
            let before = done.len();
            done.extend(received(&mut lone));
            lone.sent();
            done.extend(received(&mut lone));
            assert!(done.len() > before, "{last}: {done:?}");
        }
        assert_eq!((done[0], &done[1..]), ((1, 0, 30), &expected[..]), "{last}, {is_freed}");
    }
}

/// M-8: messages that were here before a buffer for many, which has no operation for them, are received when
/// one is free.
#[test]
fn multi_receive_takes_earlier_messages_when_operations_free() {
    let config = Config { operations_max: 2, ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    arrive(&mut lone, 7, 30);
    arrive(&mut lone, 7, 10);
    post(&mut lone, 2, Selector::ANY_UNTAGGED);
    post_multi(&mut lone, 1);
    // One part has an operation whatever else waits.
    lone.sent();
    assert_eq!(received(&mut lone), [(1, 0, 30)]);
    lone.sent();
    assert_eq!(received(&mut lone), [(1, 30, 10)]);
}

/// M-1, M-8: a message that closes the buffer, as it does not fit, and that no other receive takes, does not
/// keep those behind it from theirs.
#[test]
fn unmatched_message_does_not_block_later_messages() {
    let config = Config { operations_max: 2, ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    post_multi(&mut lone, 1);
    post(&mut lone, 2, tagged(None, 2));
    arrive(&mut lone, 1, 30);
    arrive(&mut lone, 1, 20);
    arrive(&mut lone, 1, 60);
    arrive(&mut lone, 2, 10);
    assert_eq!(received(&mut lone), [(1, 0, 30)]);
    lone.sent();
    assert_eq!(received(&mut lone), [(1, 30, 20), (2, 0, 10)]);
    assert_eq!(lone.endpoint.probe(&ANY_TAGGED).map(|found| found.bytes), Some(60));
}

/// M-1, M-8: of a peer's messages that wait behind a buffer for many, none is overtaken by a later one: not
/// where that arrives for the receive behind the buffer, and not by a receive posted meanwhile.
#[test]
fn nothing_overtakes_a_message_that_waits_behind_a_buffer() {
    let config = Config { operations_max: 2, ..small() };
    for (is_late, express) in [(false, true), (false, false), (true, true)] {
        let config = Config { express, ..config };
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP]);
        // Tags 6 and 7, and any tag.
        let even = Selector { source: None, tag: TagMatch::Tagged { tag: 6, ignore: 1 } };
        let recv =
            RecvRequest { multi: Some(50), cookie: Cookie(1), segments: &seg(0, 100), ..RecvRequest::new(even, &[]) };
        lone.endpoint.recv(Time(0), &recv).unwrap();
        if !is_late {
            post(&mut lone, 2, ANY_TAGGED);
        }
        arrive(&mut lone, 7, 30);
        if is_late {
            arrive(&mut lone, 7, 20);
        }
        // It waits, and does not fit then: the next receive is to have it.
        arrive(&mut lone, 7, 20);
        arrive(&mut lone, 7, 80);
        arrive(&mut lone, 8, 40);
        let mut done = vec![];
        if is_late {
            // The completions of the buffer are not read: it has no operation for the second message.
            assert_eq!(lone.endpoint.probe(&ANY_TAGGED), None);
        }
        for _ in 0..4 {
            done.extend(received(&mut lone));
            lone.sent();
        }
        if is_late {
            assert_eq!(lone.endpoint.probe(&ANY_TAGGED).map(|found| found.bytes), Some(80));
            continue;
        }
        done.retain(|done| done.2 > 0);
        assert_eq!(done, [(1, 0, 30), (1, 30, 20), (2, 0, 80)]);
        assert_eq!(lone.endpoint.probe(&ANY_TAGGED).map(|found| found.bytes), Some(40));
    }
}

/// a receive that has met its message can't be cancelled, though the message came out of turn and has
/// still to be copied.
#[test]
fn a_receive_that_is_being_copied_to_can_not_be_cancelled() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let [first, second] = [1, 2].map(|cookie| post(&mut lone, cookie, ANY_TAGGED));
    lone.psn[0] = 1;
    arrive(&mut lone, 8, 20);
    lone.psn[0] = 0;
    arrive(&mut lone, 7, 30);
    assert_eq!(lone.endpoint.cancel(second), Err(CancelError::TooLate));
    assert_eq!(lone.endpoint.cancel(first), Err(CancelError::Unknown));
    lone.sent();
    assert_eq!(received(&mut lone), [(1, 0, 30), (2, 0, 20)]);
}
