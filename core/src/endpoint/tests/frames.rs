//! What a rail is asked for while it is busy, spans, and frames at the end of a channel.

use super::lone::Lone;
use super::*;
use crate::wire::{Body, Probe};

/// What tells at once that a span is one piece tells the same as what goes through the pieces.
#[test]
fn a_span_in_one_piece_is_told_at_once() {
    let config = Config { block_bytes: 64, ..small() };
    let mut region = Region::of(&config);
    let mut endpoint = Endpoint::new(config, &[TCP], region.take(&config), Time(0)).unwrap();
    let pieces = [Seg::new(HEAP, 8, 16), Seg::new(HEAP, 100, 8)];
    endpoint.recv(Time(0), &RecvRequest::new(Selector::ANY_UNTAGGED, &pieces)).unwrap();
    let op = (0..config.operations_max).find(|op| endpoint.t.ops.key_at(*op).is_some()).unwrap();
    let at = pieces[1].at;
    for (of, first) in [(SpanOf::Op(op), 16), (SpanOf::At(at), 64), (SpanOf::Blocks(1), 64), (SpanOf::Nothing, 0)] {
        for (offset, len) in [(0, 0), (0, 1), (0, 16), (3, 13), (3, 14), (16, 8), (0, 24), (60, 4)] {
            let whole = if of == SpanOf::Op(op) { 24 } else { 64 };
            if offset + len > whole {
                continue;
            }
            let span = Span { of, offset, len };
            let through: Vec<_> = endpoint.segments(span).collect();
            let at_once = endpoint.sole_segment(span);
            assert_eq!(at_once.is_some(), len > 0 && offset + len <= first, "{span:?}");
            assert!(at_once.is_none_or(|seg| through == [seg]), "{span:?}: {at_once:?}, {through:?}");
        }
    }
}

/// P-3, P-12: a rail whose rate becomes known while it is at work is fed by it from then on.
#[test]
fn a_rate_that_is_heard_of_late_counts_at_once() {
    let facts = RailFacts { posts_max: 8, ..TCP };
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[facts]);
    lone.busy = true;
    for n in 0..3 {
        let to = Remote { peer: PeerId(1), window: 3, offset: 512 * n };
        let put = PutRequest { cookie: Cookie(n), segments: &seg(0, 512), ..PutRequest::new(to, &[]) };
        lone.endpoint.put(Time(0), &put).unwrap();
    }
    lone.sent();
    let feed = |lone: &Lone<'_>| lone.endpoint.paths.peer(0).rooms.feed;
    assert_eq!(feed(&lone), 1, "of a rail of unknown rate that is little");
    let sampled = Sampled { latency: Nanos(1_000), bytes_per_second: 1_000 };
    lone.endpoint.paths.figures[0].sampled = Some(sampled);
    lone.endpoint.paths.begin_path(0, RailId(0));
    assert_eq!(feed(&lone), 0, "at 1 kB/s it is more than enough");
    assert!(lone.endpoint.paths.rooms_are_right(0, lone.endpoint.ready_subs(0)));
}

/// L-3, L-4: of a rail's posts one is kept for unsequenced packets, and of these one is under way at a time.
#[test]
fn a_busy_rail_still_takes_one_frame() {
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    lone.busy = true;
    for n in 0..5 {
        lone.send(n, 0);
    }
    assert_eq!(lone.sent().len(), usize::from(TCP.posts_max) - 1);
    lone.feed(Body::Probe(Probe { nonce: 1, answer: false }), 0);
    assert_eq!(lone.sent_one().body, Body::Probe(Probe { nonce: 1, answer: true }));
    lone.feed(Body::Probe(Probe { nonce: 2, answer: false }), 0);
    assert_eq!(lone.sent(), []);
}

/// The peer of a process that leaves may hang up on one rail before the goodbye is out on all: that is no
/// loss.
#[test]
fn a_hang_up_during_the_goodbye_is_no_loss() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    // A frame is still with the second rail.
    lone.endpoint.t.sub(0, RailId(1)).frame_posted = true;
    let mut actions = heapless::Vec::new();
    lone.endpoint.poll_actions(Time(0), &mut actions);
    assert_eq!(actions.len(), 1);
    for rail in [1, 0] {
        let event = RailEvent::Down { peer: PeerId(1), rail: RailId(rail), fault: RailFault::Closed };
        lone.endpoint.handle_rail_event(Time(0), event);
    }
    let events: Vec<_> = core::iter::from_fn(|| lone.endpoint.poll_event()).collect();
    assert_eq!(events, [Event::PeerClosed { peer: PeerId(1) }]);
}
