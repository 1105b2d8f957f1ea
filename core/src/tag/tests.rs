//! What matching costs, and where its tables end.

use super::*;
use crate::api::request::{Selector, TagMatch};
use crate::ids::{Cookie, Key, PeerId};
use crate::mem::{MemRef, RegionId, Seg};
use crate::store::NONE;
use crate::store::arena::REGION_ALIGN;
use core::mem::MaybeUninit;
use std::vec;
use std::vec::Vec;

const LARGE: MatchConfig = MatchConfig { posted_max: 4200, unexpected_max: 4200, buckets: 4096 };

fn tagged(source: Option<u32>, tag: u64, ignore: u64) -> Selector {
    Selector { source: source.map(PeerId), tag: TagMatch::Tagged { tag, ignore } }
}

fn untagged(source: Option<u32>) -> Selector {
    Selector { source: source.map(PeerId), tag: TagMatch::Untagged }
}

/// A plain receive of `len` bytes.
fn plain(number: u64, len: u64) -> Direct {
    let at = MemRef::by_address(RegionId(3), number << 12);
    Direct { to: Seg { at, len }, cookie: Cookie(number) }
}

type Found = (Key, MemRef, Cookie);

fn take_direct(matcher: &mut Matcher<'_>, source: u32, tag: Option<u64>, len: u32) -> Option<Found> {
    let found = matcher.posted.take_direct(PeerId(source), tag.unwrap_or(0), tag.is_some(), len);
    let Match::Direct(taken) = found else { return None };
    Some((taken.key(), taken.at(), taken.cookie()))
}

fn take_next(matcher: &mut Matcher<'_>, source: u32, tag: Option<u64>, len: u32) -> Option<Found> {
    let (source, bits, is_tagged) = (PeerId(source), tag.unwrap_or(0), tag.is_some());
    let taken = match matcher.posted.has_alone() {
        true => matcher.posted.take_alone(source, bits, is_tagged, len)?,
        false => matcher.posted.take_next(source, bits, is_tagged, len)?,
    };
    Some((taken.key(), taken.at(), taken.cookie()))
}

/// Carves a matcher of exactly the bytes that it needs, and passes it on.
fn with_matcher<R>(config: &MatchConfig, body: impl FnOnce(Matcher<'_>) -> R) -> R {
    let bytes = Arena::bytes_of(|arena| Matcher::carve(arena, config)).expect("a small configuration");
    let mut region = vec![MaybeUninit::uninit(); bytes + REGION_ALIGN];
    let skip = region.as_ptr().align_offset(REGION_ALIGN);
    let mut arena = Arena::new(&mut region[skip..skip + bytes]).expect("aligned");
    body(Matcher::carve(&mut arena, config).expect("the region has the size of the layout"))
}

/// Matches `find` for each of 4,096 tags, last first. Gives the groups looked at in all and for the worst
/// message.
fn steps_in_reverse(matcher: &mut Matcher<'_>, mut find: impl FnMut(&mut Matcher<'_>, u64)) -> (u64, u64) {
    let steps = |matcher: &Matcher<'_>| matcher.posted.steps() + matcher.unexpected.steps();
    let (first, mut worst) = (steps(matcher), 0);
    for tag in (0..4096).rev() {
        let before = steps(matcher);
        find(matcher, tag);
        worst = worst.max(steps(matcher) - before);
    }
    (steps(matcher) - first, worst)
}

#[test]
fn a_posted_receive_costs_72_bytes() {
    let bytes = |posted_max| Arena::bytes_of(|arena| Posted::carve(arena, posted_max, 1)).unwrap();
    assert_eq!(bytes(16) - bytes(8), 8 * 72);
}

#[test]
fn thousands_of_receives_match_in_few_steps_in_the_worst_order() {
    with_matcher(&LARGE, |mut matcher| {
        assert_eq!((matcher.posted.steps(), matcher.unexpected.steps()), (0, 0));
        for tag in 0..4096 {
            matcher.posted.post(&tagged(Some(1), tag, 0), tag as u32).unwrap();
        }
        let (total, worst) = steps_in_reverse(&mut matcher, |matcher, tag| {
            let (key, recv) = matcher.posted.find(PeerId(1), Some(tag)).unwrap();
            assert_eq!((matcher.posted.unpost(key), recv), (Some(tag as u32), tag as u32));
        });
        assert!(total <= 2 * 4096 && worst <= 10, "{total} steps, at worst {worst}");
        assert_eq!(matcher.posted.count(), 0);
    });
}

#[test]
fn wildcards_cost_one_more_lookup_for_each_shape() {
    with_matcher(&LARGE, |mut matcher| {
        // Ten shapes that don't match, posted first, ten times each.
        for shape in 0..100 {
            matcher.posted.post(&tagged(None, 1 << 62 | shape << 32, (1 << (shape % 10)) - 1), u32::MAX).unwrap();
        }
        for tag in 0..4096 {
            matcher.posted.post(&tagged(Some(1), tag, 0), tag as u32).unwrap();
        }
        let (total, worst) = steps_in_reverse(&mut matcher, |matcher, tag| {
            let (key, recv) = matcher.posted.find(PeerId(1), Some(tag)).unwrap();
            assert_eq!((matcher.posted.unpost(key), recv), (Some(tag as u32), tag as u32));
        });
        assert!(total <= 12 * 4096 && worst <= 40, "{total} steps, at worst {worst}");
        assert_eq!(matcher.posted.count(), 100);
    });
}

#[test]
fn equal_receives_are_one_step_to_all_others() {
    let bucket_of = |tag| super::pattern::hash(tag, 0) >> (super::pattern::HASH_BITS - 1);
    let other = (8..).find(|&tag| bucket_of(tag) == bucket_of(7)).unwrap();
    with_matcher(&MatchConfig { buckets: 1, ..LARGE }, |mut matcher| {
        for recv in 0..4096 {
            matcher.posted.post(&tagged(None, 7, 0), recv).unwrap();
        }
        let late = matcher.posted.post(&tagged(None, other, 0), 9999).unwrap();
        // The group that came last is looked at first.
        let before = matcher.posted.steps();
        assert_eq!(matcher.posted.find(PeerId(5), Some(other)), Some((late, 9999)));
        assert_eq!(matcher.posted.steps() - before, 1);
        assert_eq!(matcher.posted.find(PeerId(5), Some(7)).unwrap().1, 0);
        assert_eq!(matcher.posted.steps() - before, 3);
        for recv in 0..4096 {
            let (key, found) = matcher.posted.find(PeerId(5), Some(7)).unwrap();
            assert_eq!((found, matcher.posted.unpost(key)), (recv, Some(recv)));
        }
    });
}

#[test]
fn thousands_of_unexpected_messages_are_taken_in_few_steps_in_the_worst_order() {
    with_matcher(&LARGE, |mut matcher| {
        for tag in 0..4096 {
            matcher.unexpected.store(PeerId(tag as u32 % 7), Some(tag), tag as u32).unwrap();
        }
        let (total, worst) = steps_in_reverse(&mut matcher, |matcher, tag| {
            let (key, message) = matcher.unexpected.find(&tagged(Some(tag as u32 % 7), tag, 0)).unwrap();
            assert_eq!((matcher.unexpected.take(key), message), (Some(tag as u32), tag as u32));
        });
        assert!(total <= 2 * 4096 && worst <= 10, "{total} steps, at worst {worst}");
    });
}

#[test]
fn tags_that_all_hash_to_one_bucket_still_match_right() {
    let config = MatchConfig { posted_max: 256, unexpected_max: 256, buckets: 64 };
    let bucket_of = |tag| super::pattern::hash(tag, 1) >> (super::pattern::HASH_BITS - 6);
    let tags: Vec<u64> = (0..).filter(|&tag| bucket_of(tag) == 0).take(256).collect();
    with_matcher(&config, |mut matcher| {
        for &tag in &tags {
            matcher.posted.post(&tagged(Some(1), tag, 0), tag as u32).unwrap();
            matcher.unexpected.store(PeerId(1), Some(tag), tag as u32).unwrap();
        }
        let before = matcher.posted.steps();
        matcher.posted.find(PeerId(1), Some(tags[0])).unwrap();
        assert_eq!(matcher.posted.steps() - before, 256, "they do collide");
        let before = matcher.unexpected.steps();
        for &tag in &tags {
            matcher.unexpected.find(&tagged(Some(1), tag, 0)).unwrap();
        }
        assert_eq!(matcher.unexpected.steps() - before, (1..=256).sum::<u64>(), "one is first, one is last");
        for &tag in tags.iter().rev().step_by(2).chain(tags.iter().step_by(2)) {
            let (key, recv) = matcher.posted.find(PeerId(1), Some(tag)).unwrap();
            assert_eq!((matcher.posted.unpost(key), recv), (Some(tag as u32), tag as u32));
            let (key, message) = matcher.unexpected.find(&tagged(Some(1), tag, 0)).unwrap();
            assert_eq!((matcher.unexpected.take(key), message), (Some(tag as u32), tag as u32));
        }
        assert_eq!((matcher.posted.count(), matcher.unexpected.count()), (0, 0));
    });
}

#[test]
fn shapes_beyond_the_table_keep_the_posting_order() {
    let config = MatchConfig { posted_max: 64, unexpected_max: 1, buckets: 16 };
    with_matcher(&config, |mut matcher| {
        let crowd: Vec<Key> = (0..SHAPES_MAX as u32)
            .map(|number| matcher.posted.post(&tagged(None, u64::MAX, 1 << number), number).unwrap())
            .collect();
        let any = tagged(None, 0, u64::MAX);
        matcher.posted.post(&any, 100).unwrap();
        assert_eq!(matcher.posted.find(PeerId(3), Some(u64::MAX)).unwrap().1, 0, "all match, the first was first");
        matcher.posted.unpost(crowd[0]).unwrap();
        // The shape has a place now, but the one that waits aside is older.
        matcher.posted.post(&any, 101).unwrap();
        for recv in [100, 101] {
            let (key, found) = matcher.posted.find(PeerId(3), Some(0)).unwrap();
            assert_eq!((found, matcher.posted.unpost(key)), (recv, Some(recv)));
        }
        assert_eq!(matcher.posted.find(PeerId(3), Some(0)), None);
    });
}

#[test]
fn unused_pattern_shape_is_replaced() {
    with_matcher(&LARGE, |mut matcher| {
        for mask in 0..100 {
            for key in [0, 1 << 40].map(|tag| matcher.posted.post(&tagged(None, tag, mask), 0).unwrap()) {
                matcher.posted.unpost(key).unwrap();
            }
        }
        for tag in 0..4096 {
            matcher.posted.post(&tagged(Some(1), tag, 0), tag as u32).unwrap();
        }
        let (total, _) = steps_in_reverse(&mut matcher, |matcher, tag| {
            assert_eq!(matcher.posted.find(PeerId(1), Some(tag)).unwrap().1, tag as u32);
        });
        assert!(total <= 2 * 4096, "{total} steps");
    });
}

#[test]
fn full_match_tables_report_their_limits() {
    let config = MatchConfig { posted_max: 1, unexpected_max: 2, buckets: 3 };
    with_matcher(&config, |mut matcher| {
        let key = matcher.posted.post(&Selector::ANY_UNTAGGED, 5).unwrap();
        assert_eq!(matcher.posted.post(&Selector::ANY_UNTAGGED, 6), Err(MatchFull::Posted { max: 1 }));
        assert_eq!(matcher.posted.unpost(key), Some(5));
        assert_eq!(matcher.posted.unpost(key), None, "the key is dead");
        matcher.posted.post(&Selector::ANY_UNTAGGED, 6).unwrap();
        matcher.unexpected.store(PeerId(0), None, 1).unwrap();
        matcher.unexpected.store(PeerId(0), None, 2).unwrap();
        assert_eq!(matcher.unexpected.store(PeerId(0), None, 3), Err(MatchFull::Unexpected { max: 2 }));
    });
}

/// The key of an unexpected message is valid from `store` until the message is taken. It names no later
/// message in the same entry.
#[test]
fn only_the_key_of_a_waiting_message_takes_it() {
    let config = MatchConfig { posted_max: 1, unexpected_max: 1, buckets: 1 };
    with_matcher(&config, |mut matcher| {
        let free = Key { index: 0, generation: 1 };
        assert_eq!((matcher.unexpected.take(free), matcher.unexpected.take(Key::default())), (None, None));
        for message in 0..4 {
            let key = matcher.unexpected.store(PeerId(1), None, message).unwrap();
            assert_eq!((key.index, key.generation % 2), (0, 1), "never 0");
            assert_eq!((matcher.unexpected.take(key), matcher.unexpected.take(key)), (Some(message), None));
            let next = Key { generation: key.generation.wrapping_add(2), ..key };
            assert_eq!(matcher.unexpected.take(next), None, "no message has this key yet");
        }
    });
}

/// M-2
#[test]
fn untagged_and_tag_zero_are_different_things() {
    let config = MatchConfig { posted_max: 4, unexpected_max: 4, buckets: 1 };
    with_matcher(&config, |mut matcher| {
        let source = Some(PeerId(2));
        matcher.posted.post(&Selector { source, tag: TagMatch::Untagged }, 1).unwrap();
        assert_eq!(matcher.posted.find(PeerId(2), Some(0)), None);
        matcher.unexpected.store(PeerId(2), Some(0), 9).unwrap();
        assert_eq!(matcher.unexpected.find(&Selector { source, tag: TagMatch::Untagged }), None);
        assert_eq!(matcher.unexpected.find(&Selector::ANY_UNTAGGED), None);
        assert_eq!(matcher.unexpected.find(&tagged(None, 5, u64::MAX)).unwrap().1, 9);
    });
}

/// M-1, M-2: one untagged shape is in the table, the other one has no place there.
#[test]
fn a_domain_with_receives_aside_is_not_one_of_a_single_shape() {
    let config = MatchConfig { posted_max: 64, unexpected_max: 1, buckets: 1024 };
    with_matcher(&config, |mut matcher| {
        for number in 0..SHAPES_MAX as u32 - 1 {
            matcher.posted.post(&tagged(None, u64::MAX, 1 << number), number).unwrap();
        }
        let first = matcher.posted.post_direct(&untagged(Some(3)), &plain(1, 8)).unwrap();
        let aside = [50, 51].map(|recv| matcher.posted.post(&untagged(None), recv).unwrap());
        let last = matcher.posted.post_direct(&untagged(Some(3)), &plain(2, 8)).unwrap();
        assert_eq!(take_direct(&mut matcher, 3, None, 8).unwrap().0, first);
        for (key, recv) in aside.into_iter().zip([50, 51]) {
            assert_eq!(take_next(&mut matcher, 3, None, 8), None, "an older one is aside");
            assert_eq!(matcher.posted.find(PeerId(3), None), Some((key, recv)));
            assert_eq!(matcher.posted.find(PeerId(5), None), Some((key, recv)));
            assert_eq!(matcher.posted.find(PeerId(5), Some(0)), None, "it takes untagged messages only");
            matcher.posted.unpost(key).unwrap();
        }
        assert_eq!(matcher.posted.find(PeerId(5), None), None);
        assert_eq!(take_next(&mut matcher, 3, None, 8).unwrap().0, last, "a single shape again");
    });
}

#[test]
fn each_receive_aside_is_one_step() {
    let config = MatchConfig { posted_max: 64, unexpected_max: 1, buckets: 64 };
    with_matcher(&config, |mut matcher| {
        for number in 0..SHAPES_MAX as u32 {
            matcher.posted.post(&tagged(None, u64::MAX, 1 << number), number).unwrap();
        }
        let steps = |matcher: &Matcher<'_>, tag| {
            let before = matcher.posted.steps();
            let found = matcher.posted.find(PeerId(9), Some(tag));
            (found.map(|(_, recv)| recv), matcher.posted.steps() - before)
        };
        let (none, second) = (steps(&matcher, 7), steps(&matcher, 1));
        assert_eq!((none.0, second.0), (None, None));
        for tag in 0..3 {
            matcher.posted.post(&tagged(Some(9), tag, 0), 100 + tag as u32).unwrap();
        }
        assert_eq!(steps(&matcher, 7), (None, none.1 + 3));
        assert_eq!(steps(&matcher, 1), (Some(101), second.1 + 2));
    });
}

#[test]
fn a_shape_that_no_receive_has_any_more_costs_a_message_nothing() {
    let config = MatchConfig { posted_max: 64, unexpected_max: 1, buckets: 2 };
    let steps = |first: Option<Selector>| {
        with_matcher(&config, |mut matcher| {
            if let Some(selector) = first {
                matcher.posted.post_direct(&selector, &plain(0, 8)).unwrap();
                take_next(&mut matcher, 1, Some(5), 8).unwrap();
            }
            for tag in 0..32 {
                matcher.posted.post(&tagged(Some(1), tag, 0), tag as u32).unwrap();
            }
            let before = matcher.posted.steps();
            for tag in 0..32 {
                assert_eq!(matcher.posted.find(PeerId(1), Some(tag)).unwrap().1, tag as u32);
            }
            matcher.posted.steps() - before
        })
    };
    assert_eq!(steps(Some(tagged(None, 5, 0))), steps(None));
}

/// M-1, M-3, M-4
#[test]
fn fast_match_takes_a_fitting_receive_and_frees_its_entry() {
    let config = MatchConfig { posted_max: 4, unexpected_max: 1, buckets: 64 };
    with_matcher(&config, |mut matcher| {
        for tag in 0..40 {
            let [first, second] = [0, 1].map(|more| plain(2 * tag + more, 100));
            // Beside one of another pattern, so that they are looked up.
            let other = matcher.posted.post(&tagged(Some(3), tag, 0), 1).unwrap();
            let [key, next] =
                [&first, &second].map(|recv| matcher.posted.post_direct(&tagged(Some(1), tag, 0), recv).unwrap());
            matcher.posted.unpost(other).unwrap();
            assert_eq!(take_next(&mut matcher, 1, Some(tag), 101), None, "too long");
            assert_eq!(take_next(&mut matcher, 2, Some(tag), 100), None, "of another source");
            assert_eq!(take_next(&mut matcher, 1, Some(tag + 1), 100), None, "of another tag");
            assert_eq!(take_next(&mut matcher, 1, None, 100), None, "untagged");
            let before = matcher.posted.steps();
            let found = take_next(&mut matcher, 1, Some(tag), 100);
            assert_eq!(matcher.posted.steps() - before, 1);
            assert_eq!(found, Some((key, first.to.at, first.cookie)), "the older one");
            assert_eq!((matcher.posted.direct(key), matcher.posted.direct(next)), (None, Some(second)));
            let found = take_next(&mut matcher, 1, Some(tag), 99);
            assert_eq!(found, Some((next, second.to.at, second.cookie)));
            assert_eq!((matcher.posted.count(), matcher.posted.room()), (0, 4));
        }
        // Posted by its offset, and behind one of another pattern in the only bucket there is.
        let to = Seg::new(RegionId(3), 7, 100);
        let key = matcher.posted.post_direct(&tagged(Some(1), 5, 0), &Direct { to, cookie: Cookie(8) }).unwrap();
        assert_eq!(take_next(&mut matcher, 1, Some(5), 8), None, "a table is to be searched");
        assert_eq!(take_direct(&mut matcher, 1, Some(5), 8), Some((key, to.at, Cookie(8))));
    });
}

/// M-1: groups behind each other in one bucket.
#[test]
fn fast_match_keeps_hash_chains_correct() {
    let config = MatchConfig { posted_max: 8, unexpected_max: 1, buckets: 2 };
    with_matcher(&config, |mut matcher| {
        let keys =
            [0, 1, 2, 3, 4, 5].map(|tag| matcher.posted.post_direct(&tagged(Some(1), tag, 0), &plain(tag, 8)).unwrap());
        for (tag, key) in (0..).zip(keys) {
            let taken = take_next(&mut matcher, 1, Some(tag), 8).or_else(|| take_direct(&mut matcher, 1, Some(tag), 8));
            assert_eq!(taken.map(|(key, ..)| key), Some(key), "{tag}");
        }
        assert_eq!((matcher.posted.count(), matcher.posted.room()), (0, 8));
    });
}

#[test]
fn direct_receive_keeps_its_memory_exactly_or_is_refused() {
    let config = MatchConfig { posted_max: 2, unexpected_max: 1, buckets: 4 };
    with_matcher(&config, |mut matcher| {
        let direct = |offset, len| {
            let at = MemRef { region: RegionId(u32::MAX), offset };
            Direct { to: Seg { at, len }, cookie: Cookie(u64::MAX) }
        };
        let offsets = [(0, 0), (0xfedc_ba98_7654, 1), (1 << 32, 2), ((1 << 48) - 1, u32::MAX.into())];
        let by_address = offsets.map(|(offset, len)| (offset | MemRef::BY_ADDRESS, len));
        for (offset, len) in [offsets, by_address].concat() {
            let recv = direct(offset, len);
            let key = matcher.posted.post_direct(&untagged(None), &recv).unwrap();
            assert_eq!(matcher.posted.direct(key), Some(recv));
            assert_eq!(matcher.posted.directs().collect::<Vec<_>>(), [(key, recv)]);
            let found = take_direct(&mut matcher, 1, None, len as u32);
            assert_eq!(found, Some((key, recv.to.at, recv.cookie)));
        }
        for (offset, len) in [(1 << 48, 1), (u64::MAX, 1), (0, 1 << 32), (1 << 48, 1 << 32)] {
            assert_eq!(matcher.posted.post_direct(&untagged(None), &direct(offset, len)), None);
        }
        assert_eq!(matcher.posted.count(), 0);
    });
}

#[test]
fn direct_receive_returns_its_selector() {
    let config = MatchConfig { posted_max: 8, unexpected_max: 1, buckets: 4 };
    with_matcher(&config, |mut matcher| {
        for source in [None, Some(4)] {
            for selector in [untagged(source), tagged(source, 0xab00, 0xff), tagged(source, 0, 0)] {
                let key = matcher.posted.post_direct(&selector, &plain(1, 8)).unwrap();
                assert_eq!(matcher.posted.selector(key), Some(selector));
                matcher.posted.unpost(key).unwrap();
                assert_eq!(matcher.posted.selector(key), None, "the key is dead");
                let key = matcher.posted.post(&selector, 5).unwrap();
                assert_eq!(matcher.posted.selector(key), Some(selector));
                assert_eq!(matcher.posted.direct(key), None, "an operation's");
                matcher.posted.unpost(key).unwrap();
            }
        }
    });
}

#[test]
fn only_the_key_of_a_posted_direct_receive_is_promoted() {
    let config = MatchConfig { posted_max: 2, unexpected_max: 1, buckets: 4 };
    with_matcher(&config, |mut matcher| {
        let named = matcher.posted.post(&untagged(None), 5).unwrap();
        assert_eq!((matcher.posted.promote(named, 9), matcher.posted.promoted(named)), (None, None));
        assert_eq!(matcher.posted.find(PeerId(1), None), Some((named, 5)), "still posted");
        let mut dead = matcher.posted.post_direct(&untagged(Some(1)), &plain(1, 8)).unwrap();
        matcher.posted.unpost(dead).unwrap();
        for _ in 0..4 {
            assert_eq!(matcher.posted.promote(dead, 9), None, "nothing is posted");
            let key = matcher.posted.post_direct(&untagged(Some(1)), &plain(2, 8)).unwrap();
            assert_eq!((key.index, key.generation % 2), (dead.index, 1), "never 0");
            assert_eq!(
                (matcher.posted.promote(dead, 9), matcher.posted.direct(dead), matcher.posted.unpost(dead)),
                (None, None, None)
            );
            assert_eq!((matcher.posted.promote(key, 7), matcher.posted.promote(key, 8)), (Some(plain(2, 8)), None));
            assert_eq!((matcher.posted.promoted(key), matcher.posted.promoted(dead)), (Some(7), None));
            matcher.posted.end_promoted(key);
            dead = key;
        }
    });
}

#[test]
fn promoted_receives_take_up_room_until_their_operations_end() {
    let config = MatchConfig { posted_max: 5, unexpected_max: 1, buckets: 4 };
    with_matcher(&config, |mut matcher| {
        let posted = matcher.posted.post_direct(&untagged(None), &plain(0, 8)).unwrap();
        let keys = [1, 2, 3].map(|number| matcher.posted.post_direct(&untagged(None), &plain(number, 8)).unwrap());
        for (key, op) in keys.into_iter().zip(0..) {
            matcher.posted.promote(key, op).unwrap();
        }
        assert_eq!((matcher.posted.count(), matcher.posted.room()), (1, 1));
        matcher.posted.end_promoted(posted);
        assert_eq!((matcher.posted.room(), matcher.posted.direct(posted)), (1, Some(plain(0, 8))), "it is posted");
        for (key, room) in keys.into_iter().zip(2..) {
            for _ in 0..2 {
                matcher.posted.end_promoted(key);
                assert_eq!((matcher.posted.promoted(key), matcher.posted.room()), (None, room), "once only");
            }
        }
    });
}

#[test]
fn a_table_without_room_refuses_every_receive() {
    let config = MatchConfig { posted_max: 0, unexpected_max: 1, buckets: 4 };
    with_matcher(&config, |mut matcher| {
        assert_eq!(matcher.posted.post(&untagged(None), 1), Err(MatchFull::Posted { max: 0 }));
        assert_eq!(matcher.posted.post_direct(&untagged(None), &plain(1, 8)), None);
        assert_eq!((matcher.posted.find(PeerId(1), None), matcher.posted.room()), (None, 0));
        assert_eq!(matcher.posted.directs().count(), 0);
    });
}

/// A plain tagged receive stands beside the table as long as it is the only tagged one, whatever happened to
/// those before it.
#[test]
fn single_pattern_tagged_receives_bypass_the_table() {
    let config = MatchConfig { posted_max: 4, unexpected_max: 1, buckets: 4 };
    with_matcher(&config, |mut matcher| {
        let one = tagged(Some(1), 5, 0);
        let at = |number| MemRef { offset: number << 12 | MemRef::BY_ADDRESS, ..plain(0, 0).to.at };
        let direct = |number, len| Direct { to: Seg { at: at(number), len }, ..plain(number, len) };
        // Multi-receives of the other domain are no matter.
        matcher.posted.post(&untagged(None), 9).unwrap();
        for number in 0..8 {
            let key = matcher.posted.post_direct(&one, &direct(number, 8)).unwrap();
            assert!(matcher.posted.has_alone(), "{number}");
            match number % 4 {
                0 => assert_eq!(take_next(&mut matcher, 1, Some(5), 8), Some((key, at(number), Cookie(number)))),
                1 => assert_eq!(take_direct(&mut matcher, 1, Some(5), 8).map(|found| found.0), Some(key)),
                2 => assert_eq!(matcher.posted.unpost(key), Some(NONE)),
                _ => {
                    matcher.posted.promote(key, 7).unwrap();
                    matcher.posted.end_promoted(key);
                }
            }
            assert!(!matcher.posted.has_alone());
        }
        // Those of one pattern stand together, in their order; one in their midst can be taken back.
        let first = matcher.posted.post_direct(&one, &direct(1, 8)).unwrap();
        assert_eq!(take_next(&mut matcher, 1, Some(5), 9), None, "too long");
        assert_eq!(take_next(&mut matcher, 1, Some(4), 8), None, "of another tag");
        assert_eq!(take_next(&mut matcher, 2, Some(5), 8), None, "of another source");
        assert_eq!(take_next(&mut matcher, 1, None, 8), None, "untagged");
        let second = matcher.posted.post_direct(&one, &direct(2, 8)).unwrap();
        assert!(matcher.posted.has_alone());
        assert_eq!([0; 2].map(|_| take_next(&mut matcher, 1, Some(5), 8).unwrap().0), [first, second]);
        let keys = [1, 2, 3].map(|number| matcher.posted.post_direct(&one, &direct(number, 8)).unwrap());
        assert_eq!((matcher.posted.has_alone(), matcher.posted.unpost(keys[1])), (true, Some(NONE)));
        assert_eq!([0; 2].map(|_| take_direct(&mut matcher, 1, Some(5), 8).unwrap().0), [keys[0], keys[2]]);
        // One of another pattern, or kind, ends that, and the order stays: tag, mask, source.
        for other in [tagged(Some(1), 4, 0), tagged(Some(1), 5, 4), tagged(Some(2), 5, 0), tagged(None, 5, 0)] {
            let keys = [1, 2].map(|number| matcher.posted.post_direct(&one, &direct(number, 8)).unwrap());
            let last = matcher.posted.post_direct(&other, &direct(3, 8)).unwrap();
            assert!(!matcher.posted.has_alone());
            assert_eq!([0; 2].map(|_| take_direct(&mut matcher, 1, Some(5), 8).unwrap().0), keys);
            assert_eq!(matcher.posted.unpost(last), Some(NONE));
        }
        // One with an operation does not.
        let named = matcher.posted.post(&one, 3).unwrap();
        assert!(!matcher.posted.has_alone());
        matcher.posted.unpost(named).unwrap();
        // While nothing is to be matched quickly none does, and afterwards the next one.
        matcher.posted.post_direct(&one, &direct(1, 8)).unwrap();
        matcher.posted.stop(true);
        assert!(!matcher.posted.has_alone());
        take_direct(&mut matcher, 1, Some(5), 8).unwrap();
        let held = matcher.posted.post_direct(&one, &direct(2, 8)).unwrap();
        assert_eq!((matcher.posted.has_alone(), take_next(&mut matcher, 1, Some(5), 8)), (false, None));
        matcher.posted.stop(false);
        matcher.posted.unpost(held).unwrap();
        matcher.posted.post_direct(&one, &direct(3, 8)).unwrap();
        assert!(matcher.posted.has_alone());
        // A receive that was not posted by its address is not taken on the quick path.
        take_next(&mut matcher, 1, Some(5), 8).unwrap();
        let elsewhere = MemRef { offset: 4 << 12, ..at(4) };
        matcher.posted.post_direct(&one, &Direct { to: Seg { at: elsewhere, len: 8 }, ..plain(4, 8) }).unwrap();
        assert_eq!((matcher.posted.has_alone(), take_next(&mut matcher, 1, Some(5), 8)), (true, None));
    });
}
