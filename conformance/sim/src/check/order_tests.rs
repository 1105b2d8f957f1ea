use rerail_core::endpoint::Found;
use rerail_core::ids::PeerId;
use rerail_core::time::Time;

use super::super::fixture::{Story, tagged};
use super::super::verdict::{Corruption, Damage, Verdict};
use super::*;

fn order(story: &Story) -> Option<Disorder> {
    match check(&story.ledger, 1)? {
        Verdict::Order(disorder) => Some(disorder),
        other => panic!("{other}"),
    }
}

#[test]
fn messages_of_one_sender_stay_in_order() {
    for swapped in [false, true] {
        let mut story = Story::new(2);
        let (first, second) = (story.recv(1, tagged(None, 5, 0)), story.recv(1, tagged(Some(0), 5, 0)));
        let (early, late) = (story.send(0, 1, 5), story.send(0, 1, 5));
        let (a, b) = if swapped { (late, early) } else { (early, late) };
        story.got(first, a);
        story.got(second, b);
        let found = order(&story);
        assert_eq!(found.is_some(), swapped, "{found:?}");
        assert!(matches!(found, None | Some(Disorder::Overtaken { .. } | Disorder::PassedBy { .. })), "{found:?}");
    }
}

#[test]
fn completions_are_accepted_in_any_order() {
    let mut story = Story::new(2);
    let (first, second) = (story.recv(1, tagged(None, 5, 0)), story.recv(1, tagged(None, 5, 0)));
    let (early, late) = (story.send(0, 1, 5), story.send(0, 1, 5));
    story.got(second, late);
    story.got(first, early);
    assert_eq!(order(&story), None);
}

#[test]
fn across_senders_there_is_no_order() {
    let mut story = Story::new(3);
    let (first, second) = (story.recv(1, tagged(None, 5, 0)), story.recv(1, tagged(None, 5, 0)));
    let (early, late) = (story.send(0, 1, 5), story.send(2, 1, 5));
    story.got(first, late);
    story.got(second, early);
    assert_eq!(order(&story), None);
}

#[test]
fn an_older_receive_is_not_passed_by() {
    // The wildcard was there first and is free to the end.
    let mut story = Story::new(2);
    let (wild, exact) = (story.recv(1, tagged(None, 0, !0)), story.recv(1, tagged(Some(0), 5, 0)));
    let name = story.send(0, 1, 5);
    story.got(exact, name);
    assert_eq!(order(&story), Some(Disorder::PassedBy { receive: wild, younger: Some(exact), name }));
    // Taken back afterwards it was free all the same.
    story.cancel(1, wild);
    assert!(matches!(order(&story), Some(Disorder::PassedBy { .. } | Disorder::Impossible { .. })));

    // Taken back before, it is not in the way.
    let mut story = Story::new(2);
    let (wild, exact) = (story.recv(1, tagged(None, 0, !0)), story.recv(1, tagged(Some(0), 5, 0)));
    story.cancel(1, wild);
    let name = story.send(0, 1, 5);
    story.got(exact, name);
    assert_eq!(order(&story), None);

    // It takes other tags only.
    let mut story = Story::new(2);
    let (_, exact) = (story.recv(1, tagged(None, 6, 8)), story.recv(1, tagged(Some(0), 5, 0)));
    let name = story.send(0, 1, 5);
    story.got(exact, name);
    assert_eq!(order(&story), None);
}

#[test]
fn matches_of_a_killed_rank_are_unknown() {
    let story = |killed, untold| {
        let mut story = Story::new(2);
        let (_, second) = (story.recv(1, tagged(Some(0), 5, 0)), story.recv(1, tagged(Some(0), 5, 0)));
        if untold {
            story.send(0, 1, 5);
        }
        let name = story.send(0, 1, 5);
        story.got(second, name);
        if killed {
            let at = story.time();
            story.ledger.killed(1, at);
        }
        order(&story)
    };
    assert_eq!(story(true, true), None);
    assert!(matches!(story(true, false), Some(Disorder::PassedBy { .. })), "nothing can have gone there");
    assert!(story(false, true).is_some(), "its end is reported, or it is free");
}

#[test]
fn a_receive_posted_later_cannot_have_come_first() {
    // The older message went to a receive that was posted when the younger one had been reported already.
    let mut story = Story::new(2);
    let first = story.recv(1, tagged(Some(0), 5, 0));
    let (early, late) = (story.send(0, 1, 5), story.send(0, 1, 5));
    story.got(first, late);
    let second = story.recv(1, tagged(Some(0), 5, 0));
    story.got(second, early);
    assert_eq!(order(&story), Some(Disorder::Overtaken { receive: first, name: late, older: early }));
}

#[test]
fn impossible_matching_order_is_detected() {
    // Each sender's message fits the other's receive: the wildcards were matched in a circle.
    let mut story = Story::new(4);
    let wild = story.recv(1, tagged(None, 5, 0));
    let exact = story.recv(1, tagged(Some(2), 5, 0));
    // Rank 2's message was reported for the exact receive before rank 0 sent what the wildcard got.
    let theirs = story.send(2, 1, 5);
    story.got(exact, theirs);
    let ours = story.send(0, 1, 5);
    story.got(wild, ours);
    assert!(matches!(order(&story), Some(Disorder::PassedBy { receive, .. }) if receive == wild));
}

#[test]
fn receive_accepts_only_matching_messages() {
    let mut story = Story::new(2);
    let receive = story.recv(1, tagged(Some(0), 4, 2));
    let name = story.send(0, 1, 5);
    story.got(receive, name);
    assert_eq!(order(&story), Some(Disorder::NotTaken { receive, name }));
    let mut story = Story::new(2);
    let receive = story.recv(1, Selector { source: None, tag: TagMatch::Untagged });
    let name = story.send(0, 1, 0);
    story.got(receive, name);
    assert_eq!(order(&story), Some(Disorder::NotTaken { receive, name }), "tag 0 is a tag");
}

#[test]
fn an_unreceived_older_message_was_overtaken() {
    let mut story = Story::new(2);
    let receive = story.recv(1, tagged(None, 5, 0));
    let (early, late) = (story.send(0, 1, 5), story.send(0, 1, 5));
    story.got(receive, late);
    assert_eq!(order(&story), Some(Disorder::Overtaken { receive, name: late, older: early }));
    // Taken back in time, it is not in the way.
    let at = story.time();
    story.ledger.cancelled(0, at, 0);
    assert_eq!(order(&story), None);
}

#[test]
fn multi_receives_lie_back_to_back_in_order() {
    let all = tagged(None, 0, !0);
    let story = |places: [u64; 3], swap: bool| {
        let mut story = Story::new(2);
        let multi = story.multi(1, all, 64, 16);
        let mut names = [story.send(0, 1, 1), story.send(0, 1, 2), story.send(0, 1, 3)];
        if swap {
            names.swap(0, 1);
        }
        for (index, (place, name)) in places.into_iter().zip(names).enumerate() {
            story.part(multi, name, place, index == 2);
        }
        order(&story)
    };
    assert_eq!(story([0, 16, 32], false), None);
    assert!(story([0, 16, 32], true).is_some(), "the second message lies first");
    assert!(matches!(story([0, 16, 48], false), Some(Disorder::Offset { offset: 48, expected: 32, .. })));
    assert!(matches!(story([0, 16, 16], false), Some(Disorder::Offset { .. })));

    // Of a process that was killed, what was still under way is not reported; what was reported lies apart
    // all the same.
    for (places, is_right) in [([16, 44], true), ([16, 16], false), ([0, 48], false)] {
        let mut story = Story::new(2);
        let multi = story.multi(1, all, 64, 20);
        let _ = story.send(0, 1, 1);
        for place in places {
            let name = story.send(0, 1, 2);
            story.part(multi, name, place, false);
        }
        let now = story.time();
        story.ledger.killed(1, now);
        assert_eq!(order(&story).is_none(), is_right, "{places:?}");
    }

    // Fewer than the minimum were free.
    let mut story = Story::new(2);
    let multi = story.multi(1, all, 40, 16);
    let (first, second, third) =
        (story.send(0, 1, 1), story.send(0, 1, 1), story.send_at(0, 1, Some(1), 8, Default::default()).0);
    story.part(multi, first, 0, false);
    story.part(multi, second, 16, false);
    story.part(multi, third, 32, true);
    assert!(matches!(order(&story), Some(Disorder::Offset { .. })));
}

#[test]
fn multi_receives_number_their_messages() {
    // Events of empty messages come in any order; their numbers are those of the order in which they were
    // sent.
    let story = |told: [(u32, usize); 3]| {
        let mut story = Story::new(2);
        let multi = story.multi(1, tagged(None, 0, !0), 64, 16);
        let names: Vec<_> = (0..3).map(|_| story.send_at(0, 1, Some(1), 0, Default::default()).0).collect();
        for (index, which) in told {
            story.numbered(multi, names[which], index, 0, false);
        }
        order(&story)
    };
    assert_eq!(story([(0, 0), (1, 1), (2, 2)]), None);
    assert_eq!(story([(2, 2), (0, 0), (1, 1)]), None);
    assert!(matches!(story([(0, 1), (1, 0), (2, 2)]), Some(Disorder::Overtaken { .. })), "sent in another order");
    assert!(matches!(story([(0, 0), (0, 1), (1, 2)]), Some(Disorder::Index { index: 0, expected: 1, .. })));
    assert!(matches!(story([(0, 0), (2, 1), (3, 2)]), Some(Disorder::Index { index: 2, expected: 1, .. })));
}

#[test]
fn incomplete_multi_receive_is_not_overtaken() {
    let all = tagged(None, 0, !0);
    for full in [true, false] {
        let mut story = Story::new(2);
        let (multi, next) = (story.multi(1, all, 32, 16), story.recv(1, all));
        let (first, second, third) = (story.send(0, 1, 1), story.send(0, 1, 1), story.send(0, 1, 1));
        story.part(multi, first, 0, false);
        if full {
            story.part(multi, second, 16, true);
            story.got(next, third);
            assert_eq!(order(&story), None);
        } else {
            story.got(next, second);
            assert!(order(&story).is_some());
        }
    }
}

#[test]
fn claims_take_the_oldest_and_nothing_that_a_receive_waits_for() {
    let all = tagged(None, 0, !0);
    let mut story = Story::new(2);
    let (first, second) = (story.send(0, 1, 1), story.send(0, 1, 1));
    let claim = story.claim(1, all, first);
    let receive = story.recv(1, all);
    story.got(receive, second);
    story.got(claim, first);
    assert_eq!(order(&story), None);

    let mut story = Story::new(2);
    let (first, second) = (story.send(0, 1, 1), story.send(0, 1, 1));
    let claim = story.claim(1, all, second);
    let receive = story.recv(1, all);
    story.got(receive, first);
    story.got(claim, second);
    assert!(order(&story).is_some(), "the older one was free when the younger was claimed");

    let mut story = Story::new(2);
    let receive = story.recv(1, all);
    let (first, second) = (story.send(0, 1, 1), story.send(0, 1, 1));
    let claim = story.claim(1, all, first);
    story.got(receive, second);
    story.got(claim, first);
    assert!(order(&story).is_some(), "a receive waited for the claimed message");
}

#[test]
fn a_claim_counts_from_when_it_was_made() {
    // Claimed first; received only after a receive of everything was posted and served.
    let all = tagged(None, 0, !0);
    let mut story = Story::new(2);
    let (first, second) = (story.send(0, 1, 1), story.send(0, 1, 1));
    let claimed = story.claimed(1, first);
    let receive = story.recv(1, all);
    story.got(receive, second);
    let claim = story.ask(1, Ask::Receive { from: all, claimed }, 16);
    story.got(claim, first);
    assert_eq!(order(&story), None);
}

/// Two messages of one sender, one tag and one length, claimed before the first of them is there.
#[test]
fn unnamed_claims_are_identified_by_their_content() {
    let all = tagged(None, 0, !0);
    for named in 0..3 {
        let mut story = Story::new(2);
        let send = |story: &mut Story, at| if named == at { story.send(0, 1, 1) } else { story.send_unnamed(0, 1, 1) };
        let (first, second) = (send(&mut story, 0), send(&mut story, 1));
        story.probe(1, all, first);
        let claims = [story.claim(1, all, first), story.claim(1, all, second)];
        let probed = story.ledger.book(1).probes[0].name;
        assert_eq!(probed, (named == 0).then_some(first), "known by immediate data alone");
        story.got(claims[1], second);
        story.got(claims[0], first);
        assert_eq!(story.ledger.book(1).probes[0].name, Some(first));
        assert_eq!(story.verdict(), Verdict::Clean, "named: {named}");
    }

    // The younger went to the claim that was made first.
    let mut story = Story::new(2);
    let (first, second) = (story.send_unnamed(0, 1, 1), story.send_unnamed(0, 1, 1));
    let claims = [story.claim(1, all, first), story.claim(1, all, second)];
    story.got(claims[0], second);
    story.got(claims[1], first);
    assert!(order(&story).is_some());

    // Another message than the one that was shown.
    let mut story = Story::new(2);
    let (first, second) = (story.send(0, 1, 1), story.send_unnamed(0, 1, 1));
    let claim = story.claim(1, all, first);
    story.got(claim, second);
    assert!(matches!(story.verdict(), Verdict::Corruption(Corruption { damage: Damage::Envelope { .. }, .. })));
}

#[test]
fn probe_result_must_describe_a_sent_message() {
    let mut story = Story::new(2);
    let name = story.send_unnamed(0, 1, 1);
    let shown = story.found(name);
    let wrong = [
        Found { bytes: 17, ..shown },
        Found { tag: Some(2), ..shown },
        Found { tag: None, ..shown },
        Found { peer: PeerId(1), ..shown },
        Found { immediate: Some(name.to_bits()), ..shown },
        Found { immediate: Some(7), ..shown },
    ];
    for (time, found) in (100..).zip(wrong) {
        let mut ledger = story.ledger.clone();
        assert!(!ledger.probed(1, Time(time), tagged(None, 0, !0), &found), "{found:?}");
        assert!(ledger.claimed(1, Time(time), &found).is_none() && ledger.has_findings());
    }
    assert!(story.ledger.claimed(1, Time(99), &shown).is_some());
    let receive = story.recv(1, tagged(None, 0, !0));
    story.got(receive, name);
    assert!(story.ledger.claimed(1, Time(99), &shown).is_none(), "it is received");
}

#[test]
fn probe_reports_only_unmatched_messages() {
    let all = tagged(None, 0, !0);
    let mut story = Story::new(2);
    let (first, second) = (story.send(0, 1, 1), story.send(0, 1, 1));
    story.probe(1, all, first);
    let receives = [story.recv(1, all), story.recv(1, all)];
    story.got(receives[0], first);
    story.got(receives[1], second);
    assert_eq!(order(&story), None);

    let mut story = Story::new(2);
    let (first, second) = (story.send(0, 1, 1), story.send(0, 1, 1));
    story.probe(1, all, second);
    let receives = [story.recv(1, all), story.recv(1, all)];
    story.got(receives[0], first);
    story.got(receives[1], second);
    assert!(order(&story).is_some(), "the first stood before it");

    let mut story = Story::new(2);
    let receive = story.recv(1, all);
    let first = story.send(0, 1, 1);
    story.got(receive, first);
    story.probe(1, all, first);
    assert!(order(&story).is_some(), "it was received already");

    let mut story = Story::new(2);
    let receive = story.recv(1, all);
    let first = story.send(0, 1, 1);
    story.probe(1, all, first);
    story.got(receive, first);
    assert!(order(&story).is_some(), "a receive stood there for it");
}
