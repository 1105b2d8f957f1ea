//! What matching costs, and where its tables end.

use super::*;
use crate::selector::TagMatch;
use crate::store::arena::REGION_ALIGN;
use core::mem::MaybeUninit;
use std::vec;
use std::vec::Vec;

const LARGE: MatchConfig = MatchConfig { posted_max: 4200, unexpected_max: 4200, buckets: 4096 };

fn tagged(source: Option<u32>, tag: u64, ignore: u64) -> Selector {
    Selector { source: source.map(PeerId), tag: TagMatch::Tagged { tag, ignore } }
}

/// Carves a matcher of just the bytes that it asks for, and hands it over.
fn with_matcher<R>(config: &MatchConfig, body: impl FnOnce(Matcher<'_>) -> R) -> R {
    let bytes = Matcher::layout(Sizer::new(), config).bytes().expect("a small configuration");
    let mut region = vec![MaybeUninit::uninit(); bytes + REGION_ALIGN];
    let skip = region.as_ptr().align_offset(REGION_ALIGN);
    let mut arena = Arena::new(&mut region[skip..skip + bytes]).expect("aligned");
    body(Matcher::carve(&mut arena, config).expect("the layout says that it fits"))
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
    let (one, two) = (Posted::layout(Sizer::new(), 8, 1), Posted::layout(Sizer::new(), 16, 1));
    assert_eq!(two.bytes().unwrap() - one.bytes().unwrap(), 8 * 72);
}

#[test]
fn thousands_of_receives_match_in_few_steps_in_the_worst_order() {
    with_matcher(&LARGE, |mut matcher| {
        for tag in 0..4096 {
            matcher.post(&tagged(Some(1), tag, 0), tag as u32).unwrap();
        }
        let (total, worst) = steps_in_reverse(&mut matcher, |matcher, tag| {
            let (key, recv) = matcher.find_posted(PeerId(1), Some(tag)).unwrap();
            assert_eq!((matcher.unpost(key), recv), (Some(tag as u32), tag as u32));
        });
        assert!(total <= 2 * 4096 && worst <= 10, "{total} steps, at worst {worst}");
        assert_eq!(matcher.posted_count(), 0);
    });
}

#[test]
fn wildcards_cost_one_more_lookup_for_each_shape() {
    with_matcher(&LARGE, |mut matcher| {
        // Ten shapes that don't match, posted first, ten times each.
        for shape in 0..100 {
            matcher.post(&tagged(None, 1 << 62 | shape << 32, (1 << (shape % 10)) - 1), u32::MAX).unwrap();
        }
        for tag in 0..4096 {
            matcher.post(&tagged(Some(1), tag, 0), tag as u32).unwrap();
        }
        let (total, worst) = steps_in_reverse(&mut matcher, |matcher, tag| {
            let (key, recv) = matcher.find_posted(PeerId(1), Some(tag)).unwrap();
            assert_eq!((matcher.unpost(key), recv), (Some(tag as u32), tag as u32));
        });
        assert!(total <= 12 * 4096 && worst <= 40, "{total} steps, at worst {worst}");
        assert_eq!(matcher.posted_count(), 100);
    });
}

#[test]
fn equal_receives_are_one_step_to_all_others() {
    let bucket_of = |tag| super::pattern::hash(tag, 0) >> (super::pattern::HASH_BITS - 1);
    let other = (8..).find(|&tag| bucket_of(tag) == bucket_of(7)).unwrap();
    with_matcher(&MatchConfig { buckets: 1, ..LARGE }, |mut matcher| {
        for recv in 0..4096 {
            matcher.post(&tagged(None, 7, 0), recv).unwrap();
        }
        let late = matcher.post(&tagged(None, other, 0), 9999).unwrap();
        // The group that came last is looked at first.
        let before = matcher.posted.steps();
        assert_eq!(matcher.find_posted(PeerId(5), Some(other)), Some((late, 9999)));
        assert_eq!(matcher.posted.steps() - before, 1);
        assert_eq!(matcher.find_posted(PeerId(5), Some(7)).unwrap().1, 0);
        assert_eq!(matcher.posted.steps() - before, 3);
        for recv in 0..4096 {
            let (key, found) = matcher.find_posted(PeerId(5), Some(7)).unwrap();
            assert_eq!((found, matcher.unpost(key)), (recv, Some(recv)));
        }
    });
}

#[test]
fn thousands_of_unexpected_messages_are_taken_in_few_steps_in_the_worst_order() {
    with_matcher(&LARGE, |mut matcher| {
        for tag in 0..4096 {
            matcher.store(PeerId(tag as u32 % 7), Some(tag), tag as u32).unwrap();
        }
        let (total, worst) = steps_in_reverse(&mut matcher, |matcher, tag| {
            let (key, message) = matcher.find_unexpected(&tagged(Some(tag as u32 % 7), tag, 0)).unwrap();
            assert_eq!((matcher.take_unexpected(key), message), (Some(tag as u32), tag as u32));
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
            matcher.post(&tagged(Some(1), tag, 0), tag as u32).unwrap();
            matcher.store(PeerId(1), Some(tag), tag as u32).unwrap();
        }
        let before = matcher.posted.steps();
        matcher.find_posted(PeerId(1), Some(tags[0])).unwrap();
        assert_eq!(matcher.posted.steps() - before, 256, "they do collide");
        for &tag in tags.iter().rev().step_by(2).chain(tags.iter().step_by(2)) {
            let (key, recv) = matcher.find_posted(PeerId(1), Some(tag)).unwrap();
            assert_eq!((matcher.unpost(key), recv), (Some(tag as u32), tag as u32));
            let (key, message) = matcher.find_unexpected(&tagged(Some(1), tag, 0)).unwrap();
            assert_eq!((matcher.take_unexpected(key), message), (Some(tag as u32), tag as u32));
        }
        assert_eq!((matcher.posted_count(), matcher.unexpected_count()), (0, 0));
    });
}

#[test]
fn shapes_beyond_the_table_keep_the_order_and_come_in_when_there_is_room() {
    let config = MatchConfig { posted_max: 64, unexpected_max: 1, buckets: 16 };
    with_matcher(&config, |mut matcher| {
        let crowd: Vec<Key> = (0..SHAPES_MAX as u32)
            .map(|number| matcher.post(&tagged(None, u64::MAX, 1 << number), number).unwrap())
            .collect();
        let any = tagged(None, 0, u64::MAX);
        matcher.post(&any, 100).unwrap();
        assert_eq!(matcher.find_posted(PeerId(3), Some(u64::MAX)).unwrap().1, 0, "all match, the first was first");
        matcher.unpost(crowd[0]).unwrap();
        // The shape has a place now, but the one that waits aside is older.
        matcher.post(&any, 101).unwrap();
        for recv in [100, 101] {
            let (key, found) = matcher.find_posted(PeerId(3), Some(0)).unwrap();
            assert_eq!((found, matcher.unpost(key)), (recv, Some(recv)));
        }
        assert_eq!(matcher.find_posted(PeerId(3), Some(0)), None);
    });
}

#[test]
fn a_shape_that_nobody_uses_any_more_makes_room_for_another() {
    with_matcher(&LARGE, |mut matcher| {
        for mask in 0..100 {
            for key in [0, 1 << 40].map(|tag| matcher.post(&tagged(None, tag, mask), 0).unwrap()) {
                matcher.unpost(key).unwrap();
            }
        }
        for tag in 0..4096 {
            matcher.post(&tagged(Some(1), tag, 0), tag as u32).unwrap();
        }
        let (total, _) = steps_in_reverse(&mut matcher, |matcher, tag| {
            assert_eq!(matcher.find_posted(PeerId(1), Some(tag)).unwrap().1, tag as u32);
        });
        assert!(total <= 2 * 4096, "{total} steps");
    });
}

#[test]
fn both_tables_say_when_they_are_full() {
    let config = MatchConfig { posted_max: 1, unexpected_max: 2, buckets: 3 };
    with_matcher(&config, |mut matcher| {
        let key = matcher.post(&Selector::ANY_UNTAGGED, 5).unwrap();
        assert_eq!(matcher.post(&Selector::ANY_UNTAGGED, 6), Err(MatchFull::Posted { max: 1 }));
        assert_eq!(matcher.unpost(key), Some(5));
        assert_eq!(matcher.unpost(key), None, "the key is dead");
        matcher.post(&Selector::ANY_UNTAGGED, 6).unwrap();
        matcher.store(PeerId(0), None, 1).unwrap();
        matcher.store(PeerId(0), None, 2).unwrap();
        assert_eq!(matcher.store(PeerId(0), None, 3), Err(MatchFull::Unexpected { max: 2 }));
    });
}

/// M-2
#[test]
fn untagged_and_tag_zero_are_different_things() {
    let config = MatchConfig { posted_max: 4, unexpected_max: 4, buckets: 1 };
    with_matcher(&config, |mut matcher| {
        let source = Some(PeerId(2));
        matcher.post(&Selector { source, tag: TagMatch::Untagged }, 1).unwrap();
        assert_eq!(matcher.find_posted(PeerId(2), Some(0)), None);
        matcher.store(PeerId(2), Some(0), 9).unwrap();
        assert_eq!(matcher.find_unexpected(&Selector { source, tag: TagMatch::Untagged }), None);
        assert_eq!(matcher.find_unexpected(&Selector::ANY_UNTAGGED), None);
        assert_eq!(matcher.find_unexpected(&tagged(None, 5, u64::MAX)).unwrap().1, 9);
    });
}
