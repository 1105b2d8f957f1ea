//! The express path at one end: numbers, limits, and a rail that refuses (W-29).

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::recovery::region;
use super::*;
use crate::peer::ChannelState;
use crate::seq::Seq;
use crate::wire::{Body, Common, Connect, Counts, MessageHead, Repr, Short};

pub(super) fn lone(course: impl FnOnce(&mut Lone<'_>)) {
    let mut region = region();
    course(&mut Lone::connected(&mut region, &small(), &[SHM]));
}

pub(super) fn short(psn: u32) -> Short {
    Short { counts: Counts::new(psn, 32, 64), tag: 7, len: 8, flags: Short::TAGGED, ..Short::default() }
}

pub(super) fn post(lone: &mut Lone<'_>, cookie: u64) {
    let recv = RecvRequest { cookie: Cookie(cookie), segments: &seg(0, 8), ..RecvRequest::new(tagged(None, 7), &[]) };
    lone.endpoint.recv_short(&recv).expect("nothing is special about it");
}

/// A number that is not the next one never uses the express path. On a rail that keeps the order it is a
/// violation only beyond the window; a number received before is a duplicate.
#[test]
fn only_the_next_sequence_number_uses_the_express_path() {
    lone(|lone| {
        post(lone, 1);
        post(lone, 2);
        assert!(matches!(lone.endpoint.arrive_short(PeerId(1), RailId(0), &short(0)), ShortArrival::At(_)));
        for psn in [0, 2, 63, u32::MAX] {
            assert_eq!(lone.endpoint.arrive_short(PeerId(1), RailId(0), &short(psn)), ShortArrival::Slow, "{psn}");
        }
        assert_eq!(lone.endpoint.handle_short(Time(0), PeerId(1), RailId(0), &short(0)), Arrival::Discard);
        assert_eq!(lone.endpoint.stats().duplicates_dropped, 1);
        assert!(matches!(lone.endpoint.arrive_short(PeerId(1), RailId(0), &short(1)), ShortArrival::At(_)));
        let done: Vec<_> = core::iter::from_fn(|| lone.endpoint.poll_short().map(|done| done.cookie.0)).collect();
        assert_eq!(done, [1, 2]);
    });
}

/// C-4: limits that no message carries are sent in a packet of their own, before the peer has used up those
/// it has.
#[test]
fn limits_are_announced_while_nothing_is_sent() {
    lone(|lone| {
        lone.sent();
        // The outgoing path is open, so only the count requests the announcement.
        let send = SendRequest { segments: &seg(0, 8), ..SendRequest::new(PeerId(1), &[]) };
        send_short(&mut lone.endpoint, &send, 8).expect("the way is open");
        let half = u32::from(small().unexpected_per_peer.min(small().blocks_per_peer) / 2);
        for psn in 0..half {
            post(lone, psn.into());
            assert!(matches!(lone.endpoint.arrive_short(PeerId(1), RailId(0), &short(psn)), ShortArrival::At(_)));
        }
        let sent = lone.sent();
        let limits = |packet: &crate::wire::Repr| (packet.common.message_limit, packet.common.block_limit);
        let expected = (small().unexpected_per_peer + half as u16, small().blocks_per_peer + half as u16);
        assert!(sent.iter().any(|packet| limits(packet) == expected), "{sent:?}, expected {expected:?}");
    });
}

/// S-1: a message that the rail refuses has had no number, and is not complete.
#[test]
fn short_message_refused_by_the_rail_uses_no_number() {
    lone(|lone| {
        let send = SendRequest { tag: Some(7), segments: &seg(0, 8), ..SendRequest::new(PeerId(1), &[]) };
        let (_, first, _) = send_short(&mut lone.endpoint, &send, 8).expect("the way is open");
        lone.endpoint.unsend_short(&send, first);
        assert_eq!(lone.endpoint.poll_short(), None);
        let (_, again, _) = send_short(&mut lone.endpoint, &send, 8).expect("open again");
        assert_eq!((first.counts.psn(), again.counts.psn()), (0, 0));
        let (_, next, _) = send_short(&mut lone.endpoint, &send, 8).expect("open");
        assert_eq!(next.counts.psn(), 1);
        assert_eq!(lone.endpoint.stats().short_sent, 2);
    });
}

/// M-1: of receives of several shapes the oldest gets the message, whichever shape is checked first.
#[test]
fn the_oldest_receive_of_any_shape_gets_a_short_message() {
    lone(|lone| {
        let named = Selector { source: Some(PeerId(1)), ..tagged(None, 7) };
        for (cookie, from) in [(1, named), (2, tagged(None, 7)), (3, named), (4, tagged(None, 7))] {
            let recv = RecvRequest { cookie: Cookie(cookie), segments: &seg(0, 8), ..RecvRequest::new(from, &[]) };
            lone.endpoint.recv_short(&recv).expect("nothing is special about it");
        }
        for psn in 0..4 {
            assert!(matches!(lone.endpoint.arrive_short(PeerId(1), RailId(0), &short(psn)), ShortArrival::At(_)));
        }
        let done: Vec<_> = core::iter::from_fn(|| lone.endpoint.poll_short().map(|done| done.cookie.0)).collect();
        assert_eq!(done, [1, 2, 3, 4]);
    });
}

/// M-5, C-4: a short message without a receive waits whole in a block of its sender's grant, which the sender
/// gets back when a receive has taken it.
#[test]
fn a_short_message_waits_for_its_receive() {
    lone(|lone| {
        let limits = |lone: &Lone<'_>| {
            let channel = lone.endpoint.t.channel_of(PeerId(1)).unwrap();
            lone.endpoint.t.channels.at(channel).grants.limits()
        };
        let before = limits(lone);
        let Short { tag, .. } = short(0);
        let ShortArrival::At(first) = lone.endpoint.arrive_short(PeerId(1), RailId(0), &short(0)) else { panic!() };
        let ShortArrival::At(other) = lone.endpoint.arrive_short(PeerId(1), RailId(0), &short(1)) else { panic!() };
        assert!(first.region == RegionId::POOL && other.region == RegionId::POOL && first != other);
        assert_eq!(lone.endpoint.probe(&tagged(None, tag)).map(|found| found.bytes), Some(8));
        // Waiting messages are not granted again by a fold.
        lone.endpoint.fold_line(0);
        assert_eq!((lone.endpoint.stats().unexpected, limits(lone)), (2, before));
        for (cookie, from) in [(1, first), (2, other)] {
            let segments = seg(0, 8);
            let recv = RecvRequest { cookie: Cookie(cookie), ..RecvRequest::new(tagged(None, tag), &segments) };
            assert_eq!(lone.endpoint.recv_short(&recv), None);
            let received = lone.endpoint.recv_waiting(&recv).unwrap();
            assert_eq!(received.from, Seg { at: from, len: 8 });
            let done = *lone.endpoint.poll_short().unwrap();
            assert_eq!((done.cookie, done.operation, done.bytes), (Cookie(cookie), received.operation, 8));
        }
        let recv = RecvRequest { segments: &seg(0, 8), ..RecvRequest::new(tagged(None, tag), &[]) };
        assert_eq!(lone.endpoint.recv_waiting(&recv), None);
        assert!(lone.endpoint.t.messages.is_empty());
        lone.endpoint.fold_line(0);
        assert_eq!(limits(lone), (before.0 + 2, before.1 + 2));
    });
}

/// C-4: room freed by receiving waiting messages is announced as if they had arrived then.
#[test]
fn limits_are_announced_when_messages_that_waited_are_received() {
    lone(|lone| {
        lone.sent();
        let send = SendRequest { segments: &seg(0, 8), ..SendRequest::new(PeerId(1), &[]) };
        send_short(&mut lone.endpoint, &send, 8).expect("the way is open");
        let half = u32::from(small().unexpected_per_peer.min(small().blocks_per_peer) / 2);
        for psn in 0..half {
            assert!(matches!(arrive(lone, &short(psn)), ShortArrival::At(_)));
        }
        assert_eq!(reported(lone), [], "nothing has come free");
        let recv = RecvRequest { segments: &seg(0, 8), ..RecvRequest::new(tagged(None, 7), &[]) };
        for _ in 0..half {
            assert!(lone.endpoint.recv_waiting(&recv).is_some());
        }
        let expected = (small().unexpected_per_peer + half as u16, small().blocks_per_peer + half as u16);
        assert_eq!(reported(lone), [expected]);
    });
}
/// The peer, connected over the rails of `mask`.
fn met<'m>(region: &'m mut Region, config: &Config, rails: &[RailFacts], mask: u64) -> Lone<'m> {
    let mut lone = Lone::over(region, config, rails, mask);
    for rail in (0..rails.len() as u8).filter(|rail| mask >> rail & 1 == 1) {
        let connect = Body::Connect(Connect { rail: PEER_RAIL + rail, ..PEER_PARAMETERS });
        assert_eq!(lone.feed_on(rail, connect, 0, |_| {}), Arrival::Done);
    }
    lone.sent();
    while lone.endpoint.poll_event().is_some() {}
    lone
}

pub(super) fn can_send(lone: &mut Lone<'_>, len: u64) -> bool {
    let send = SendRequest { notify: Notify::Silent, segments: &seg(0, len), ..SendRequest::new(PeerId(1), &[]) };
    match send_short(&mut lone.endpoint, &send, len) {
        None => false,
        Some((_, short, _)) => {
            lone.endpoint.unsend_short(&send, short);
            true
        }
    }
}

pub(super) fn arrive(lone: &mut Lone<'_>, short: &Short) -> ShortArrival {
    lone.endpoint.arrive_short(PeerId(1), RailId(0), short)
}

/// The limits in packets sent now.
fn reported(lone: &mut Lone<'_>) -> Vec<(u16, u16)> {
    lone.sent().iter().map(|packet| (packet.common.message_limit, packet.common.block_limit)).collect()
}

/// A reported send is numbered by the count of these, apart from operations and receives, and numbers don't
/// repeat soon; a silent one by its PSN, as no event has its id.
#[test]
fn ids_of_sends_are_their_count() {
    lone(|lone| {
        let send = SendRequest { segments: &seg(0, 8), ..SendRequest::new(PeerId(1), &[]) };
        for (before, generation) in [(5, 7), (u32::MAX, 1), (3, 5)] {
            lone.endpoint.sent = before;
            let (_, _, id) = send_short(&mut lone.endpoint, &send, 8).expect("the way is open");
            assert_eq!(id, OpId(Key { index: 1 << 30, generation }));
            assert_eq!(lone.endpoint.poll_short().unwrap().operation, id);
        }
        let silent = SendRequest { notify: Notify::Silent, ..send };
        let (_, short, id) = send_short(&mut lone.endpoint, &silent, 8).expect("the way is open");
        assert_eq!((short.counts.psn(), id), (3, OpId(Key { index: 1 << 30, generation: 0 })));
        assert_eq!(lone.endpoint.sent, 5);
    });
}

/// If no completion could be reported, nothing uses the express path; a silent send needs no room.
#[test]
fn unread_completions_close_the_express_path() {
    let config = Config { operations_max: 2, ..small() };
    let mut region = Region::of(&config);
    let lone = &mut Lone::connected(&mut region, &config, &[SHM]);
    let send = SendRequest { segments: &seg(0, 8), ..SendRequest::new(PeerId(1), &[]) };
    post(lone, 1);
    (0..2).for_each(|_| assert!(send_short(&mut lone.endpoint, &send, 8).is_some()));
    assert!(send_short(&mut lone.endpoint, &send, 8).is_none());
    assert_eq!(arrive(lone, &short(0)), ShortArrival::Slow);
    assert!(send_short(&mut lone.endpoint, &SendRequest { notify: Notify::Silent, ..send }, 8).is_some());
    assert!(lone.endpoint.poll_short().is_some());
    assert!(matches!(arrive(lone, &short(0)), ShortArrival::At(_)));
}

/// A silent send that the rail refuses removes no other completion.
#[test]
fn a_refused_silent_send_takes_no_completion_back() {
    lone(|lone| {
        let send = SendRequest { cookie: Cookie(4), segments: &seg(0, 8), ..SendRequest::new(PeerId(1), &[]) };
        send_short(&mut lone.endpoint, &send, 8).expect("the way is open");
        assert!(can_send(lone, 8));
        assert_eq!(lone.endpoint.poll_short().map(|done| done.cookie), Some(Cookie(4)));
        assert_eq!(lone.endpoint.poll_short(), None);
    });
}

/// Tag and immediate data are reported where there are some, zeros among them.
#[test]
fn completion_reports_the_tag_and_immediate_data() {
    lone(|lone| {
        for (tag, immediate) in [(None, None), (Some(0), None), (None, Some(0)), (Some(3), Some(4))] {
            let send = SendRequest { tag, immediate, segments: &seg(0, 8), ..SendRequest::new(PeerId(1), &[]) };
            send_short(&mut lone.endpoint, &send, 8).expect("the way is open");
            let Some(Event::Completed(Completion { result, index, last, .. })) = lone.endpoint.poll_event() else {
                panic!("it is complete")
            };
            let done = result.unwrap();
            assert_eq!((done.tag, done.immediate, done.bytes, index, last), (tag, immediate, 8, 0, true));
        }
    });
}

/// A receive needs no operation only if no more checks are needed: its peer is connected, and no message that
/// it would take waits.
#[test]
fn receives_that_something_is_special_about_need_an_operation() {
    lone(|lone| {
        let of = |tag, source| RecvRequest {
            segments: &[Seg { at: MemRef { region: HEAP, offset: 0 }, len: 8 }],
            ..RecvRequest::new(tagged(source, tag), &[])
        };
        let waits = lone.endpoint.handle_short(Time(0), PeerId(1), RailId(0), &Short { tag: 9, ..short(0) });
        lone.place(waits);
        assert!(lone.endpoint.recv_short(&of(9, None)).is_none(), "a message waits for it");
        assert!(lone.endpoint.recv_short(&of(7, None)).is_some(), "none does");
        assert!(lone.endpoint.recv_short(&of(7, Some(1))).is_some());
        lone.endpoint.add_peer(PeerId(2), 1).unwrap();
        assert!(lone.endpoint.recv_short(&of(7, Some(2))).is_none(), "not connected");
        lone.endpoint.close_peer(PeerId(1)).unwrap();
        assert!(lone.endpoint.recv_short(&of(7, Some(1))).is_none(), "gone");
        lone.endpoint.set_parts_waiting(true);
        assert!(lone.endpoint.recv_short(&of(7, None)).is_none(), "a multi-receive comes first");
        assert_eq!(arrive(lone, &short(1)), ShortArrival::Slow, "and its messages do");
    });
}

/// W-29: flags that no message has don't use the express path; an empty message has nothing to copy.
#[test]
fn short_message_flags_and_rail_are_checked() {
    lone(|lone| {
        (1..4).for_each(|n| post(lone, n));
        assert_eq!(arrive(lone, &Short { flags: 4 | Short::TAGGED, ..short(0) }), ShortArrival::Slow);
        assert_eq!(lone.endpoint.arrive_short(PeerId(1), RailId(1), &short(0)), ShortArrival::Slow);
        assert_eq!(arrive(lone, &Short { len: 0, ..short(0) }), ShortArrival::Done);
        assert!(matches!(arrive(lone, &short(1)), ShortArrival::At(_)));
        assert_eq!(lone.endpoint.stats().short_received, 2);
    });
}

/// Each of these keeps an outgoing message off the express path, and nothing else does.
#[test]
fn every_exclusion_closes_the_express_send_path() {
    let closes = |why: &str, change: &dyn Fn(&mut Lone<'_>)| {
        lone(|lone| {
            assert!(can_send(lone, 8));
            // Closed for now, as after each turn.
            lone.endpoint.close_line(0);
            change(lone);
            assert!(!lone.endpoint.open_short(PeerId(1)), "{why}");
            assert!(!can_send(lone, 8), "{why}");
        });
    };
    closes("state", &|lone| lone.endpoint.t.channels.at_mut(0).enter(ChannelState::Closing));
    closes("something was queued before", &|lone| {
        (0..40).for_each(|n| lone.send(n, 8));
        lone.sent();
        let channel = lone.endpoint.t.channels.at(0);
        assert!(!channel.queues.ordered.is_empty(), "{:?}", lone.endpoint);
        // All sent packets are acknowledged.
        lone.acks[0] = channel.sent[0].next().0;
        lone.limits.0 = lone.acks[0] as u16;
        lone.feed(Body::Credit, 0);
        assert!(lone.endpoint.t.channels.at(0).sent[0].is_empty());
    });
    closes("something is not acknowledged", &|lone| {
        lone.send(1, 8);
        lone.sent();
    });
    closes("room", &|lone| lone.endpoint.paths.peer_mut(0).rooms.room = 0);
    closes("a copy is waited for", &|lone| lone.endpoint.t.channels.at_mut(0).replay.aborted_placements = 1);
    closes("replay", &|lone| lone.endpoint.t.channels.at_mut(0).replay.begin(0, Seq(0)));
    closes("fences", &|lone| lone.endpoint.t.channels.at_mut(0).work.fences.insert(RailId(0)));
    closes("no rail is ready", &|lone| lone.endpoint.paths.peer_mut(0).rooms.ready = 0);
    closes("no parameters", &|lone| lone.endpoint.t.channels.at_mut(0).peer_parameters = None);
    closes("aggregates", &|lone| {
        let aggregate_policy = Policy::named("aggregate").unwrap();
        lone.endpoint.set_policy(MessageClass::Small, aggregate_policy);
    });
}

/// The rail must be lossless, carry short messages, and be the only such one to the peer.
#[test]
fn only_one_rail_that_loses_nothing_carries_short_messages() {
    let tiny = RailFacts { short_bytes_max: 1, ..SHM };
    let none = RailFacts { short_bytes_max: 0, ..SHM };
    let lossy = RailFacts { short_bytes_max: 900, ..TCP };
    let config = small();
    for (rails, mask, len, expected) in [
        (&[TCP, SHM][..], 0b10, 8, true),
        (&[SHM, SHM], 0b11, 8, false),
        (&[SHM, TCP], 0b11, 8, true),
        (&[none, SHM], 0b01, 8, false),
        (&[none, SHM], 0b01, 0, false),
        (&[lossy, SHM], 0b01, 8, false),
        (&[tiny], 0b01, 1, true),
        (&[tiny], 0b01, 2, false),
        (&[SHM], 0b01, 900, true),
        (&[SHM], 0b01, 901, false),
        (&[RailFacts { eager_bytes_max: 300, ..SHM }], 0b01, 300, true),
        (&[RailFacts { eager_bytes_max: 300, ..SHM }], 0b01, 301, false),
    ] {
        let mut region = Region::of(&config);
        let mut lone = met(&mut region, &config, rails, mask);
        assert_eq!(can_send(&mut lone, len), expected, "{mask:b}, {len} bytes");
    }
    let off = Config { express: false, ..config };
    let mut region = Region::of(&off);
    assert!(!can_send(&mut met(&mut region, &off, &[SHM], 1), 8));
}

/// A rail without room carries nothing, whichever it is.
#[test]
fn express_path_needs_room_on_its_own_rail() {
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = met(&mut region, &config, &[TCP, SHM], 0b10);
    for (room, expected) in [(0b01, false), (0b10, true), (0b11, true), (0, false)] {
        lone.endpoint.close_line(0);
        lone.endpoint.paths.peer_mut(0).rooms.room = room;
        assert_eq!(can_send(&mut lone, 8), expected, "{room:b}");
    }
}

/// C-1, C-2: the last message and the last blocks of a grant are used, and no more.
#[test]
fn a_grant_is_used_to_its_end() {
    for (limits, len, count) in
        [((3, 64), 8, 3), ((1, 64), 8, 1), ((32, 4), 100, 2), ((32, 3), 100, 1), ((0, 64), 0, 0)]
    {
        let mut region = region();
        let mut lone = Lone::over(&mut region, &small(), &[SHM], 1);
        lone.limits = limits;
        lone.feed(Body::Connect(Connect { rail: PEER_RAIL, ..PEER_PARAMETERS }), 0);
        lone.sent();
        let send = SendRequest { segments: &seg(0, len), ..SendRequest::new(PeerId(1), &[]) };
        let sent = (0..10).take_while(|_| send_short(&mut lone.endpoint, &send, len).is_some()).count();
        assert_eq!(sent, count, "{limits:?}");
    }
}

/// Each of these keeps an arriving message off the express path, and it uses the normal one.
#[test]
fn every_exclusion_closes_the_express_receive_path() {
    let closes = |why: &str, change: &dyn Fn(&mut Lone<'_>)| {
        lone(|lone| {
            post(lone, 1);
            change(lone);
            assert_eq!(arrive(lone, &short(0)), ShortArrival::Slow, "{why}");
            assert!(lone.endpoint.t.lines[0].receives_on().is_none(), "{why}");
        });
    };
    closes("BYE", &|lone| {
        let slot = lone.endpoint.t.channels.at_mut(0);
        slot.enter(ChannelState::Closing);
        slot.enter(ChannelState::Leaving);
    });
    closes("no parameters", &|lone| lone.endpoint.t.channels.at_mut(0).peer_parameters = None);
    closes("a copy is waited for", &|lone| lone.endpoint.t.channels.at_mut(0).replay.aborted_placements = 1);
    closes("a payload is on its way", &|lone| {
        let half = lone.endpoint.handle_short(Time(0), PeerId(1), RailId(0), &Short { tag: 9, ..short(0) });
        assert!(matches!(half, Arrival::Place { .. }));
        // Nothing else is unusual.
        let channel = lone.endpoint.t.channels.at_mut(0);
        channel.received[0] = crate::seq::RecvWindow::starting_at(channel.reorder.esn());
    });
    closes("a number is missing", &|lone| {
        let slot = lone.endpoint.t.channels.at_mut(0);
        slot.received[0].skip(1);
    });
}

/// C-4: limits are announced once half of the messages, or of the blocks, is received, and then again after
/// as many.
#[test]
fn limits_are_announced_by_halves() {
    // 32 messages and 64 blocks of 64 bytes are granted.
    for (len, every, blocks) in [(8, 16, 1), (200, 8, 4), (129, 11, 3)] {
        lone(|lone| {
            can_send(lone, 8);
            lone.sent();
            for psn in 0..3 * every {
                let recv = RecvRequest { segments: &seg(0, 300), ..RecvRequest::new(tagged(None, 7), &[]) };
                lone.endpoint.recv_short(&recv).expect("nothing is special about it");
                assert!(matches!(arrive(lone, &Short { len, ..short(psn) }), ShortArrival::At(_)));
                let received = psn as u16 + 1;
                let expected = received.is_multiple_of(every as u16).then_some((32 + received, 64 + received * blocks));
                assert_eq!(reported(lone), Vec::from_iter(expected), "{len} bytes, {received}");
                lone.endpoint.poll_short();
                if psn == 1 {
                    // Out of turn: changes nothing.
                    assert_eq!(arrive(lone, &short(77)), ShortArrival::Slow);
                }
            }
            // The next message carries them, too.
            let send = SendRequest { segments: &seg(0, 8), ..SendRequest::new(PeerId(1), &[]) };
            let (_, sent, _) = send_short(&mut lone.endpoint, &send, 8).expect("the way is open");
            let count = 3 * every as u16;
            assert_eq!(sent.counts.limits(), (32 + count, 64 + count * blocks));
        });
    }
    // Of a grant of less than four every message is announced.
    let config = Config { unexpected_per_peer: 3, ..small() };
    let mut own = Region::of(&config);
    let lone = &mut Lone::connected(&mut own, &config, &[SHM]);
    can_send(lone, 8);
    lone.sent();
    for psn in 0..4 {
        post(lone, 1);
        assert!(matches!(arrive(lone, &short(psn)), ShortArrival::At(_)));
        assert_eq!(reported(lone).len(), 1);
        lone.endpoint.poll_short();
    }
}

/// C-4: a peer without grants, most of which are held by waiting messages, gets free ones at once.
#[test]
fn peer_without_grants_gets_free_ones_at_once() {
    let max = small().unexpected_per_peer;
    let waits = |lone: &mut Lone<'_>, psn| arrive_any(lone, &Short { tag: 9, ..short(psn) });
    let limit = |lone: &mut Lone<'_>| lone.sent().iter().map(|packet| packet.common.message_limit).max();
    let matches = |lone: &mut Lone<'_>, psn| {
        let recv = RecvRequest { segments: &seg(0, 8), ..RecvRequest::new(tagged(None, 7), &[]) };
        lone.endpoint.recv(Time(0), &recv).expect("there is room");
        arrive_any(lone, &short(psn));
    };
    // So many messages find their receives; the rest of the grant waits.
    for (matched, is_first) in (1..u32::from(max)).flat_map(|matched| [(matched, true), (matched, false)]) {
        lone(|lone| {
            can_send(lone, 8);
            lone.sent();
            let kinds = |psn: u32| if is_first { psn < matched } else { psn >= u32::from(max) - matched };
            for psn in 0..max.into() {
                if kinds(psn) { matches(lone, psn) } else { waits(lone, psn) }
            }
            let count = limit(lone).map_or(0, |limit| limit - max);
            assert!(count > 0, "{matched} of {max} are free, in front: {is_first}");
            // It has sent them all, and one place comes free.
            for psn in 0..u32::from(count) {
                waits(lone, u32::from(max) + psn);
            }
            lone.sent();
            let recv = RecvRequest { segments: &seg(0, 8), ..RecvRequest::new(tagged(None, 9), &[]) };
            lone.endpoint.recv(Time(0), &recv).expect("there is room");
            assert!(limit(lone) > Some(max + count), "{matched}");
        });
    }
}

/// A short message comes by the express path, or as a packet where that is closed.
fn arrive_any(lone: &mut Lone<'_>, short: &Short) {
    if arrive(lone, short) == ShortArrival::Slow {
        let arrival = lone.endpoint.handle_short(Time(0), PeerId(1), RailId(0), short);
        lone.place(arrival);
    }
}

/// C-1: what a short message grants lets go what waits for it, whichever way the short message takes.
#[test]
fn a_short_message_lets_waiting_messages_go() {
    for is_slow in [false, true] {
        let mut own = region();
        let lone = &mut Lone::over(&mut own, &small(), &[SHM], 1);
        lone.limits = (0, 64);
        lone.feed(Body::Connect(Connect { rail: PEER_RAIL, ..PEER_PARAMETERS }), 0);
        lone.sent();
        lone.send(1, 8);
        assert_eq!(lone.sent(), []);
        let grant = Short { counts: Counts::new(0, 1, 64), ..short(0) };
        if is_slow {
            let placed = lone.endpoint.handle_short(Time(0), PeerId(1), RailId(0), &grant);
            lone.place(placed);
        } else {
            post(lone, 2);
            assert!(matches!(arrive(lone, &grant), ShortArrival::At(_)));
        }
        let sent = lone.sent();
        assert!(matches!(sent[..], [Repr { body: Body::Eager(_), .. }]), "by packet: {is_slow}, {sent:?}");
    }
    // With nothing that waits there is nothing to do.
    lone(|lone| {
        post(lone, 2);
        assert!(matches!(arrive(lone, &short(0)), ShortArrival::At(_)));
        assert!(!lone.endpoint.is_active());
    });
}

/// G-8: a rule violation ends the peer's channel on this path, too.
#[test]
fn protocol_violation_on_the_express_path_ends_the_channel() {
    let by = |lone: &mut Lone<'_>, short: &Short| lone.endpoint.handle_short(Time(0), PeerId(1), RailId(0), short);
    lone(|lone| {
        for psn in 0..32 {
            let placed = by(lone, &Short { len: 0, ..short(psn) });
            assert_eq!(placed, Arrival::Done);
        }
        assert_eq!(by(lone, &Short { len: 0, ..short(32) }), Arrival::Close);
        assert_eq!(lone.offence(), ProtocolError::Credit);
    });
    let mut own = region();
    let lone = &mut Lone::over(&mut own, &small(), &[SHM], 1);
    assert_eq!(by(lone, &short(0)), Arrival::Close);
    assert_eq!(lone.offence(), ProtocolError::NotConnected);
}

/// W-29: on the normal path it equals the packet that it stands for: it acknowledges and requests nothing.
#[test]
fn short_message_on_the_normal_path_equals_its_packet() {
    let config = small();
    let outcome = |is_short: bool| {
        let mut own = Region::of(&config);
        let mut lone = Lone::connected(&mut own, &config, &[SHM]);
        lone.send(5, 8);
        lone.sent();
        let arrival = if is_short {
            let short = Short { immediate: 3, flags: Short::TAGGED | Short::IMMEDIATE, ..short(0) };
            lone.endpoint.handle_short(Time(0), PeerId(1), RailId(0), &short)
        } else {
            let head = MessageHead { tag: Some(7), immediate: Some(3), ..MessageHead::default() };
            lone.feed_on(0, Body::Eager(head), 8, |common: &mut Common| common.message_limit = 32)
        };
        lone.place(arrival);
        let recv = RecvRequest { cookie: Cookie(1), segments: &seg(0, 8), ..RecvRequest::new(tagged(None, 7), &[]) };
        lone.endpoint.recv(Time(0), &recv).unwrap();
        let sent = lone.sent();
        let usage = lone.endpoint.usage();
        let done = lone.completed();
        let channel = lone.endpoint.t.channels.at(0);
        (sent, done, usage, channel.requests.is_unconfirmed, channel.allowance.messages_left())
    };
    assert_eq!(std::format!("{:?}", outcome(true)), std::format!("{:?}", outcome(false)));
}

/// A closed channel leaves no open line to the next peer in its slot.
#[test]
fn a_line_ends_with_its_channel() {
    let mut own = region();
    let lone = &mut Lone::connected(&mut own, &small(), &[SHM]);
    post(lone, 1);
    assert!(matches!(arrive(lone, &short(0)), ShortArrival::At(_)) && can_send(lone, 8));
    let send = SendRequest { segments: &seg(0, 8), ..SendRequest::new(PeerId(1), &[]) };
    send_short(&mut lone.endpoint, &send, 8).expect("open");
    let fault = RailFault::Closed;
    lone.endpoint.handle_rail_event(Time(0), RailEvent::Down { peer: PeerId(1), rail: RailId(0), fault });
    let line = lone.endpoint.t.lines[0];
    assert!(line.credits == 0 && line.receives_on().is_none() && !line.is_ahead(), "{line:?}");
}

/// The effect of a fold on the tables: numbers, credits and grants as if packets had been sent, and the time
/// of the last arrival from the peer.
#[test]
fn express_messages_are_accounted_in_the_tables() {
    let send = SendRequest { notify: Notify::Silent, segments: &seg(0, 100), ..SendRequest::new(PeerId(1), &[]) };
    lone(|lone| {
        lone.now = 77;
        lone.sent();
        lone.endpoint.latest = Time(77);
        let before = lone.endpoint.t.channels.at(0).allowance;
        let reported_limits = lone.endpoint.t.channels.at(0).silence.last_received;
        (0..2).for_each(|_| assert!(send_short(&mut lone.endpoint, &send, 100).is_some()));
        lone.endpoint.fold_line(0);
        let slot = lone.endpoint.t.channels.at(0);
        let mut expected = before;
        expected.use_messages(2);
        expected.use_blocks(4);
        expected.acked(2);
        assert_eq!(std::format!("{:?}", slot.allowance), std::format!("{expected:?}"));
        assert_eq!(
            (slot.sent[0].next().0, slot.sent[0].is_empty(), slot.silence.last_received),
            (2, true, reported_limits)
        );
        assert!(reported_limits < Time(77));
        post(lone, 1);
        assert!(matches!(arrive(lone, &Short { counts: Counts::new(0, 40, 90), ..short(0) }), ShortArrival::At(_)));
        lone.endpoint.fold_line(0);
        let slot = lone.endpoint.t.channels.at(0);
        assert_eq!((slot.received[0].expected().0, slot.reorder.esn().0, slot.silence.last_received), (1, 1, Time(77)));
        assert_eq!((slot.allowance.messages_left(), slot.allowance.blocks_left()), (38, 86));
        assert_eq!(slot.grants.limits(), (33, 65));
        assert_eq!(lone.endpoint.t.sub(0, RailId(0)).last_received, Time(77));
        // The clock of the last batch is behind that of the last arrival.
        lone.endpoint.t.channels.at_mut(0).silence.last_received = Time(100);
        lone.endpoint.t.sub(0, RailId(0)).last_received = Time(100);
        post(lone, 2);
        assert!(matches!(arrive(lone, &short(1)), ShortArrival::At(_)));
        lone.endpoint.fold_line(0);
        assert_eq!(lone.endpoint.t.channels.at(0).silence.last_received, Time(100));
        assert_eq!(lone.endpoint.t.sub(0, RailId(0)).last_received, Time(100));
    });
    // Limits in a short message need no packet: for messages received before it, not later ones.
    for is_reported in [false, true] {
        lone(|lone| {
            for psn in 0..7 {
                post(lone, psn.into());
                assert!(matches!(arrive(lone, &short(psn)), ShortArrival::At(_)));
            }
            if is_reported {
                assert!(send_short(&mut lone.endpoint, &send, 100).is_some());
            }
            lone.endpoint.fold_line(0);
            lone.endpoint.t.channels.at_mut(0).grants.passed(1, 1);
            assert_eq!(lone.endpoint.t.channels.at(0).grants.worth_announcing(), !is_reported);
        });
    }
}

/// C-4: every message sent from then on grants room that comes free in the tables while the line is open; if
/// none is sent, a packet does.
#[test]
fn freed_room_is_granted_by_express_messages() {
    let send = SendRequest { notify: Notify::Silent, segments: &seg(0, 8), ..SendRequest::new(PeerId(1), &[]) };
    let full = |lone: &mut Lone<'_>| {
        assert!(send_short(&mut lone.endpoint, &send, 8).is_some());
        for psn in 0..32 {
            let placed = lone.endpoint.handle_short(Time(0), PeerId(1), RailId(0), &short(psn));
            lone.place(placed);
        }
        lone.sent();
    };
    let take = |lone: &mut Lone<'_>| {
        let recv = RecvRequest { segments: &seg(0, 8), ..RecvRequest::new(tagged(None, 7), &[]) };
        lone.endpoint.recv(Time(0), &recv).unwrap();
        // The copy out of the blocks.
        lone.sent()
    };
    lone(|lone| {
        full(lone);
        for taken in 1..=20 {
            take(lone);
            let (_, sent, _) = send_short(&mut lone.endpoint, &send, 8).expect("the way is open");
            assert_eq!(sent.counts.limits(), (32 + taken, 64 + taken));
        }
    });
    // A message sent earlier does not grant room that comes free later.
    lone(|lone| {
        full(lone);
        let mut limits = vec![];
        for _ in 0..9 {
            limits.extend(take(lone).iter().map(|packet| packet.common.message_limit));
        }
        assert_eq!(limits, [33, 41], "the first, for the peer has nothing else, and a quarter");
    });
}

/// C-4: a rail of a channel that goes down carries no limits.
#[test]
fn a_change_of_rails_announces_nothing() {
    let config = small();
    let mut own = Region::of(&config);
    let mut lone = met(&mut own, &config, &[TCP, TCP, SHM], 0b11);
    lone.endpoint.t.channels.at_mut(0).grants.passed(7, 7);
    lone.endpoint
        .handle_rail_event(Time(0), RailEvent::Down { peer: PeerId(1), rail: RailId(1), fault: RailFault::TimedOut });
    lone.endpoint.t.channels.at_mut(0).grants.passed(1, 1);
    assert!(lone.endpoint.t.channels.at(0).grants.worth_announcing());
}
