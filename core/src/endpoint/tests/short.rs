//! The short way at one end: numbers, limits, and a rail that refuses (W-29).

use super::lone::Lone;
use super::recovery::region;
use super::*;
use crate::wire::Short;

fn lone(course: impl FnOnce(&mut Lone<'_>)) {
    let mut region = region();
    course(&mut Lone::connected(&mut region, &small(), &[SHM]));
}

fn short(psn: u32) -> Short {
    Short { psn, message_limit: 32, block_limit: 64, tag: 7, len: 8, flags: Short::TAGGED, ..Short::default() }
}

fn post(lone: &mut Lone<'_>, cookie: u64) {
    let recv = Recv { from: tagged(None, 7), segments: &seg(0, 8), cookie: Cookie(cookie), ..Recv::default() };
    lone.endpoint.recv_short(&recv).expect("nothing is special about it");
}

/// A number that is not the next one never takes the short way, and is an offence on a rail that keeps the order only
/// beyond the window; a number that has come is a duplicate.
#[test]
fn only_the_next_number_takes_the_short_way() {
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

/// C-4: limits that no message takes along go on a packet of their own, before the peer has used what it knows of.
#[test]
fn limits_are_announced_while_nothing_is_sent() {
    lone(|lone| {
        lone.sent();
        // The way out is open, so that nothing but the count asks for the announcement.
        let send = Send { peer: PeerId(1), segments: &seg(0, 8), ..Send::default() };
        send_short(&mut lone.endpoint, &send, 8).expect("the way is open");
        let quarter = u32::from(small().unexpected_per_peer.min(small().blocks_per_peer) / 4).max(1);
        for psn in 0..quarter {
            post(lone, psn.into());
            assert!(matches!(lone.endpoint.arrive_short(PeerId(1), RailId(0), &short(psn)), ShortArrival::At(_)));
        }
        let sent = lone.sent();
        let limits = |packet: &crate::wire::Repr| (packet.common.message_limit, packet.common.block_limit);
        let expected = (small().unexpected_per_peer + quarter as u16, small().blocks_per_peer + quarter as u16);
        assert!(sent.iter().any(|packet| limits(packet) == expected), "{sent:?}, wanted {expected:?}");
    });
}

/// S-1: what the rail refuses has had no number, and is not complete.
#[test]
fn a_message_that_the_rail_refuses_leaves_no_gap() {
    lone(|lone| {
        let send = Send { peer: PeerId(1), tag: Some(7), segments: &seg(0, 8), ..Send::default() };
        let (_, first, _) = send_short(&mut lone.endpoint, &send, 8).expect("the way is open");
        lone.endpoint.unsend_short(&send, first);
        assert_eq!(lone.endpoint.poll_short(), None);
        let (_, again, _) = send_short(&mut lone.endpoint, &send, 8).expect("open again");
        assert_eq!((first.psn, again.psn), (0, 0));
        let (_, next, _) = send_short(&mut lone.endpoint, &send, 8).expect("open");
        assert_eq!(next.psn, 1);
        assert_eq!(lone.endpoint.stats().short_sent, 2);
    });
}
