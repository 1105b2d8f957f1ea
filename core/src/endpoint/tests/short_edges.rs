//! Edge cases of the short path: full tables of completions, the first message of a line, requests that have
//! no operation.

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::recovery::region;
use super::short::{arrive, lone, post, short};
use super::*;
use crate::wire::{Body, Common, Connect, Counts, MessageHead, Short, ShortSource};

fn send(cookie: u64) -> SendRequest<'static> {
    const TO: [Seg; 1] = [Seg { at: MemRef { region: HEAP, offset: 0 }, len: 8 }];
    SendRequest { cookie: Cookie(cookie), segments: &TO, ..SendRequest::new(PeerId(1), &[]) }
}

/// C-1: the grants of a message that waits, and after which many do, release waiting messages.
#[test]
fn a_message_that_waits_beside_many_lets_waiting_messages_go() {
    let config = Config { unexpected_per_peer: 1, ..small() };
    let mut own = Region::of(&config);
    let lone = &mut Lone::over(&mut own, &config, &[SHM], 1);
    lone.limits = (0, 64);
    lone.feed(Body::Connect(Connect { rail: PEER_RAIL, ..PEER_PARAMETERS }), 0);
    lone.sent();
    lone.send(1, 8);
    assert_eq!(lone.sent(), []);
    let grant = Short { counts: Counts::new(0, 1, 64), ..short(0) };
    assert!(matches!(arrive(lone, &grant), ShortArrival::At(_)));
    let sent = lone.sent();
    assert!(sent.iter().any(|packet| matches!(packet.body, Body::Eager(_))), "{sent:?}");
}

/// A way out that is closed for lack of room for completions is opened again once some have been read.
#[test]
fn reading_completions_reopens_the_express_send_path() {
    let config = Config { operations_max: 8, ..small() };
    let mut own = Region::of(&config);
    let lone = &mut Lone::connected(&mut own, &config, &[SHM]);
    let count = (0..100).take_while(|&n| send_short(&mut lone.endpoint, &send(n), 8).is_some()).count() as u64;
    assert!((8..100).contains(&count), "{count}");
    for n in 0..count - 1 {
        assert_eq!(lone.endpoint.poll_short().map(|done| done.cookie), Some(Cookie(n)));
    }
    assert!(send_short(&mut lone.endpoint, &send(200), 8).is_some());
    let left: Vec<_> = core::iter::from_fn(|| lone.endpoint.poll_short().map(|done| done.cookie.0)).collect();
    assert_eq!(left, [count - 1, 200]);
}

/// No way is open to a peer without a channel, or to none at all.
#[test]
fn express_path_is_closed_to_unknown_peers() {
    lone(|lone| {
        assert!(lone.endpoint.open_short(PeerId(1)));
        for peer in [2, 3, 4, u32::MAX] {
            assert!(!lone.endpoint.open_short(PeerId(peer)), "{peer}");
        }
    });
}

/// W-29: what the driver tries first takes the next message of an open line at once, and leaves everything
/// else as it is.
#[test]
fn the_next_message_of_an_open_line_is_taken_at_once() {
    lone(|lone| {
        let taken = |lone: &mut Lone<'_>, short: &Short| {
            let place = lone.endpoint.arrive_next(lone.endpoint.line_of(PeerId(1)), PeerId(1), short)?;
            assert!(!place.must_check);
            Some(place.receive.address())
        };
        let post_at = |lone: &mut Lone<'_>, cookie, from, address| {
            let to = seg(0, 64);
            let recv = RecvRequest { cookie: Cookie(cookie), ..RecvRequest::new(from, &to) };
            let posted = lone.endpoint.post_short(&recv, MemRef::by_address(RegionId(0), address));
            assert!(matches!(posted, ShortPost::Posted(_)), "{posted:?}");
        };
        let tagged = Selector { source: Some(PeerId(1)), tag: TagMatch::Tagged { tag: 7, ignore: 0 } };
        (1..3).for_each(|n| post_at(lone, n, tagged, 100 * n));
        assert_eq!(taken(lone, &short(0)), None, "the line is not open");
        assert!(matches!(arrive(lone, &short(0)), ShortArrival::At(_)));
        // Nothing waits for the peer's limits, and something else waits to be sent.
        assert!(lone.endpoint.open_short(PeerId(1)));
        lone.endpoint.activate(0);
        assert!(lone.endpoint.is_active());
        assert_eq!(taken(lone, &short(0)), None, "it has come");
        assert_eq!(taken(lone, &short(2)), None, "it is not its turn");
        assert_eq!(taken(lone, &Short { flags: 0, ..short(1) }), None, "no receive takes it");
        lone.endpoint.set_parts_waiting(true);
        assert_eq!(taken(lone, &short(1)), None, "it would overtake one that waits");
        lone.endpoint.set_parts_waiting(false);
        assert_eq!(lone.endpoint.stats().short_received, 1);
        assert_eq!(taken(lone, &Short { immediate: 9, flags: 3, ..short(1) }), Some(200));
        post_at(lone, 3, Selector::ANY_UNTAGGED, 300);
        assert_eq!(taken(lone, &Short { flags: 0, tag: 0, ..short(2) }), Some(300));
        // Of another peer's line, or none.
        post_at(lone, 4, tagged, 400);
        for (line, peer) in [(LineId::NONE, PeerId(1)), (lone.endpoint.line_of(PeerId(1)), PeerId(2))] {
            assert!(lone.endpoint.arrive_next(line, peer, &short(3)).is_none());
        }
        assert_eq!(taken(lone, &short(3)), Some(400));
        let done = core::iter::from_fn(|| lone.endpoint.poll_short().map(|done| (done.cookie.0, done.flags)));
        assert_eq!(done.collect::<Vec<_>>(), [(1, 1), (2, 3), (3, 0), (4, 1)]);
    });
}

/// A short message, and how often each part of it was read: length, counts, tag, immediate data.
#[derive(Default)]
struct Counted(Short, [core::cell::Cell<u32>; 4]);

impl Counted {
    fn read<T>(&self, part: usize, value: T) -> T {
        self.1[part].set(self.1[part].get() + 1);
        value
    }
}

impl ShortSource for Counted {
    fn bytes(&self) -> u16 {
        self.read(0, self.0.len)
    }

    fn flags(&self) -> u8 {
        // With the length a private copy, and also read by an assertion.
        self.0.flags
    }

    fn counts(&self) -> Counts {
        self.read(1, self.0.counts)
    }

    fn tag(&self) -> Option<u64> {
        self.read(2, Some(self.0.tag))
    }

    fn immediate(&self) -> u64 {
        self.read(3, self.0.immediate)
    }
}

/// L-12: what its sender may still write is read once.
#[test]
fn each_field_of_a_short_message_is_read_once() {
    lone(|lone| {
        for n in 1..3 {
            let to = seg(0, 64);
            let from = Selector { source: Some(PeerId(1)), tag: TagMatch::Tagged { tag: 7, ignore: 0 } };
            let recv = RecvRequest { cookie: Cookie(n), ..RecvRequest::new(from, &to) };
            let posted = lone.endpoint.post_short(&recv, MemRef::by_address(RegionId(0), 100 * n));
            assert!(matches!(posted, ShortPost::Posted(_)), "{posted:?}");
        }
        assert!(matches!(arrive(lone, &short(0)), ShortArrival::At(_)));
        for (psn, read) in [(2, [0, 1, 0, 0]), (1, [1, 1, 1, 1])] {
            let source = Counted(short(psn), Default::default());
            let line = lone.endpoint.line_of(PeerId(1));
            assert_eq!(lone.endpoint.arrive_next(line, PeerId(1), &source).is_some(), psn == 1);
            assert_eq!(source.1.map(core::cell::Cell::into_inner), read);
        }
    });
}

/// What the driver tries first sends a message of one block, as the longer way does, and no other.
#[test]
fn a_message_of_one_block_is_sent_without_a_call() {
    lone(|lone| {
        assert!(lone.endpoint.open_short(PeerId(1)));
        let line = lone.endpoint.line_of(PeerId(1));
        assert_eq!(lone.endpoint.send_next(LineId::NONE, &send(1), 8), None);
        let with_both = SendRequest { tag: Some(7), immediate: Some(9), ..send(1) };
        let (_, sent) = lone.endpoint.send_next(line, &with_both, 64).expect("the way is open");
        assert_eq!((sent.tag(), sent.immediate(), sent.len), (Some(7), Some(9), 64));
        let operation = lone.endpoint.sent_next(&with_both, 64);
        let done = *lone.endpoint.poll_short().expect("its completion");
        assert_eq!((done.operation, done.tag, done.immediate, done.bytes), (operation, 7, 9, 64));
        assert_eq!((done.flags, done.cookie, done.peer), (Short::FLAGS, with_both.cookie, PeerId(1)));
        assert_eq!(lone.endpoint.send_next(line, &send(2), 65), None);
        assert!(lone.endpoint.send_short(&send(2), 65).is_some());
    });
}

/// An empty message has nothing to copy, the first of a line as well.
#[test]
fn messages_of_a_line_may_be_empty() {
    lone(|lone| {
        (0..2).for_each(|n| post(lone, n));
        for psn in 0..2 {
            assert_eq!(arrive(lone, &Short { len: 0, ..short(psn) }), ShortArrival::Done);
            assert_eq!(lone.endpoint.poll_short().map(|done| done.bytes), Some(0));
        }
    });
}

/// C-2: one byte takes a block, and none takes none.
#[test]
fn a_single_byte_takes_a_block() {
    lone(|lone| {
        for (psn, len, limits) in
            [(0, 8, (33, 65)), (1, 1, (34, 66)), (2, 0, (35, 66)), (3, 64, (36, 67)), (4, 65, (37, 69))]
        {
            let recv = RecvRequest { segments: &seg(0, 100), ..RecvRequest::new(tagged(None, 7), &[]) };
            lone.endpoint.recv_short(&recv).expect("nothing is special about it");
            assert_ne!(arrive(lone, &Short { len, ..short(psn) }), ShortArrival::Slow);
            let (_, sent, _) = send_short(&mut lone.endpoint, &send(1), 8).expect("the way is open");
            assert_eq!(sent.counts.limits(), limits, "{len} bytes");
        }
    });
}

/// C-4: a message sent before room came free has not granted that room, though the tables count the message
/// only then.
#[test]
fn room_freed_after_a_sent_message_is_still_announced() {
    lone(|lone| {
        for psn in 0..8 {
            let placed = lone.endpoint.handle_short(Time(0), PeerId(1), RailId(0), &short(psn));
            lone.place(placed);
        }
        lone.sent();
        send_short(&mut lone.endpoint, &send(1), 8).expect("the way is open");
        let take = |lone: &mut Lone<'_>| {
            let recv = RecvRequest { segments: &seg(0, 8), ..RecvRequest::new(tagged(None, 7), &[]) };
            lone.endpoint.recv(Time(0), &recv).unwrap();
            lone.sent()
        };
        // All but the last of a quarter.
        (0..7).for_each(|n| assert_eq!(take(lone), [], "{n}"));
        lone.acks[0] = 1;
        lone.feed(Body::Credit, 0);
        let sent = take(lone);
        let limits: Vec<_> = sent.iter().map(|packet| packet.common.message_limit).collect();
        assert_eq!(limits, [40]);
    });
}

/// A request is open until it is complete, whether its completion has been read or not, and whatever it was
/// kept as meanwhile.
#[test]
fn a_request_is_open_until_it_is_complete() {
    lone(|lone| {
        let segments = seg(0, 8);
        let recv =
            |tag| RecvRequest { cookie: Cookie(tag), segments: &segments, ..RecvRequest::new(tagged(None, tag), &[]) };
        let direct = lone.endpoint.recv_short(&recv(7)).unwrap();
        let promoted = lone.endpoint.recv_short(&recv(9)).unwrap();
        let cancelled = lone.endpoint.recv_short(&recv(8)).unwrap();
        let ordinary = lone.endpoint.recv(Time(0), &recv(6)).unwrap();
        let open = |lone: &Lone<'_>| [direct, promoted, cancelled, ordinary].map(|id| lone.endpoint.is_open(id));
        assert_eq!(open(lone), [true; 4]);
        lone.endpoint.cancel(cancelled).unwrap();
        assert_eq!(open(lone), [true, true, false, true]);
        assert!(matches!(arrive(lone, &short(0)), ShortArrival::At(_)));
        assert_eq!(open(lone), [false, true, false, true]);
        // By packet: the receive gets an operation, which its id still names.
        let head = MessageHead { tag: Some(9), ..MessageHead::default() };
        lone.psn[0] = 1;
        let placed = lone.feed(Body::Eager(head), 8);
        assert_eq!(open(lone), [false, true, false, true]);
        lone.place(placed);
        assert_eq!(open(lone), [false, false, false, true]);
        let placed = lone.feed(Body::Eager(MessageHead { tag: Some(6), ..head }), 8);
        lone.place(placed);
        assert_eq!(open(lone), [false; 4], "nothing was read");
        assert_eq!(lone.completed().into_keys().collect::<Vec<_>>(), [6, 7, 8, 9]);
        assert_eq!(open(lone), [false; 4], "all was");
        let (_, _, sent) = send_short(&mut lone.endpoint, &send(1), 8).expect("the way is open");
        assert!(!lone.endpoint.is_open(sent), "complete when it was submitted");
    });
    let mut own = region();
    let mut lone = Lone::connected(&mut own, &small(), &[TCP]);
    let sent = lone.endpoint.send(Time(0), &SendRequest { level: Level::Acknowledged, ..send(1) }).unwrap();
    lone.sent();
    assert!(lone.endpoint.is_open(sent));
    lone.acks[0] = 1;
    lone.feed(Body::Credit, 0);
    assert!(!lone.endpoint.is_open(sent));
}

/// F-2: a rail that has a new connection, and has not reported the end of the one before, leaves no way open
/// in between; what went over the old one is counted.
#[test]
fn new_connection_closes_the_express_path() {
    lone(|lone| {
        (0..3).for_each(|n| post(lone, n));
        assert!(matches!(arrive(lone, &short(0)), ShortArrival::At(_)));
        send_short(&mut lone.endpoint, &send(2), 8).expect("the way is open");
        assert!(matches!(arrive(lone, &short(1)), ShortArrival::At(_)));
        lone.endpoint.handle_rail_event(Time(0), RailEvent::Up { peer: PeerId(1), rail: RailId(0) });
        assert!(send_short(&mut lone.endpoint, &send(3), 8).is_none());
        assert_eq!(arrive(lone, &short(2)), ShortArrival::Slow);
        let [connect] = &lone.sent()[..] else { panic!("CONNECT alone") };
        assert!(matches!(connect.body, Body::Connect(Connect { connection: 2, .. })), "{connect:?}");
        lone.feed(Body::Connect(Connect { connection: 2, ..PEER_PARAMETERS }), 0);
        lone.sent();
        assert!(matches!(arrive(lone, &short(2)), ShortArrival::At(_)));
        let (_, next, _) = send_short(&mut lone.endpoint, &send(4), 8).expect("open again");
        assert_eq!((next.counts.psn(), next.counts.limits()), (1, (35, 67)));
    });
}

/// Two rails, one in shared memory, and a short message that went on that.
fn beside_another(course: impl FnOnce(&mut Lone<'_>)) {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, SHM]);
    let send = SendRequest { segments: &seg(0, 8), ..SendRequest::new(PeerId(1), &[]) };
    let (rail, short, _) = send_short(&mut lone.endpoint, &send, 8).expect("the path is open");
    assert_eq!((rail, short.counts.psn()), (RailId(1), 0));
    lone.sent();
    lone.rails.clear();
    course(&mut lone);
}

/// S-12: what follows short messages in their lane goes on their rail, whatever the policy.
#[test]
fn the_ordered_lane_keeps_to_the_rail_of_short_messages() {
    beside_another(|lone| {
        lone.endpoint.set_policy(MessageClass::Small, Policy::RoundRobin);
        for cookie in 0..3 {
            lone.send(cookie, 300);
        }
        let sent = lone.sent();
        let on = lone.rails.iter().zip(&sent).filter(|(_, packet)| matches!(packet.body, Body::Eager(_)));
        assert!(on.map(|(rail, _)| *rail).eq([RailId(1); 3]), "{sent:?} on {:?}", lone.rails);
    });
}

/// S-12: limits go on that rail only; on others they count only if the packet acknowledges all.
#[test]
fn limits_keep_to_the_rail_of_short_messages() {
    beside_another(|lone| {
        let left = |lone: &Lone<'_>| lone.endpoint.t.channels.at(0).allowance.messages_left();
        let before = left(lone);
        lone.limits = (40, 64);
        lone.feed_on(0, Body::Credit, 0, |_| {});
        assert_eq!(left(lone), before, "it acknowledges less than went");
        lone.feed_on(1, Body::Credit, 0, |_| {});
        assert_eq!(left(lone), before + 8);
        lone.endpoint.t.channels.at_mut(0).ack.make_due();
        lone.endpoint.activate(0);
        lone.sent();
        assert_eq!(core::mem::take(&mut lone.rails), [RailId(1)]);
        lone.endpoint.t.channels.at_mut(0).ack.make_due();
        lone.endpoint.common(0, RailId(0), 0, 0, false);
        assert!(lone.endpoint.t.channels.at(0).ack.is_due(), "a packet on another rail announces nothing");
    });
}

/// S-12, G-7: BYE on another rail may have overtaken messages; the one behind them counts, or the end.
#[test]
fn bye_counts_behind_short_messages() {
    for is_down in [false, true] {
        beside_another(|lone| {
            while lone.endpoint.poll_event().is_some() {}
            lone.feed_on(0, Body::Bye, 0, |_| {});
            post(lone, 7);
            assert!(matches!(lone.endpoint.arrive_short(PeerId(1), RailId(1), &short(0)), ShortArrival::At(_)));
            match is_down {
                false => assert_eq!(lone.feed_on(1, Body::Bye, 0, |_| {}), Arrival::Done),
                true => {
                    let down = RailEvent::Down { peer: PeerId(1), rail: RailId(1), fault: RailFault::Closed };
                    lone.endpoint.handle_rail_event(Time(0), down);
                }
            }
            let events: Vec<_> = core::iter::from_fn(|| lone.endpoint.poll_event()).collect();
            assert!(events.contains(&Event::PeerClosed { peer: PeerId(1) }), "{events:?}");
        });
    }
}

/// A packet on another rail that may be counted on a line takes the general way.
#[test]
fn packets_on_other_rails_close_the_line() {
    beside_another(|lone| {
        post(lone, 1);
        post(lone, 2);
        assert!(matches!(lone.endpoint.arrive_short(PeerId(1), RailId(1), &short(0)), ShortArrival::At(_)));
        let head = MessageHead { tag: Some(7), ..MessageHead::default() };
        let common =
            Common { source: 1, psn: 1, payload_bytes: 8, message_limit: 32, block_limit: 64, ..Common::default() };
        let header = crate::wire::Repr { common, body: Body::Eager(head) }.emit_vec().unwrap();
        let arrival = lone.endpoint.arrive_at_once(Time(0), PeerId(1), RailId(0), &header);
        assert_eq!(arrival, ShortArrival::Slow);
        let arrival = lone.endpoint.handle_arrival(Time(0), PeerId(1), RailId(0), &header);
        lone.place(arrival);
        assert_eq!(lone.endpoint.shorts().1, 1);
        post(lone, 3);
        assert!(matches!(lone.endpoint.arrive_short(PeerId(1), RailId(1), &short(2)), ShortArrival::At(_)));
    });
}

/// C-4, S-12: a message that is received in one call on another rail grants its room by the next one on the
/// ring.
#[test]
fn room_of_messages_on_other_rails_is_granted_on_the_line() {
    beside_another(|lone| {
        post(lone, 1);
        let head = MessageHead { tag: Some(7), ..MessageHead::default() };
        let common = Common { source: 1, payload_bytes: 8, message_limit: 32, block_limit: 64, ..Common::default() };
        let header = crate::wire::Repr { common, body: Body::Eager(head) }.emit_vec().unwrap();
        let arrival = lone.endpoint.arrive_at_once(Time(0), PeerId(1), RailId(0), &header);
        assert!(matches!(arrival, ShortArrival::At(_)), "{arrival:?}");
        let limits = lone.endpoint.t.channels.at(0).grants.limits();
        let send = SendRequest { segments: &seg(0, 8), ..SendRequest::new(PeerId(1), &[]) };
        let (_, short, _) = send_short(&mut lone.endpoint, &send, 8).expect("the path is open");
        assert_eq!(short.counts.limits(), limits);
    });
}
