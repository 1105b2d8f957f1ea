use rerail_core::endpoint::Found;
use rerail_core::ids::PeerId;
use rerail_core::time::Time;

use super::super::fixture::{Fixture, tagged};
use super::super::verdict::{Corruption, Damage, Verdict};
use super::*;

fn order(fixture: &Fixture) -> Option<Disorder> {
    match check(&fixture.ledger, 1)? {
        Verdict::Order(disorder) => Some(disorder),
        other => panic!("{other}"),
    }
}

#[test]
fn messages_of_one_sender_stay_in_order() {
    for swapped in [false, true] {
        let mut fixture = Fixture::new(2);
        let (first, second) = (fixture.recv(1, tagged(None, 5, 0)), fixture.recv(1, tagged(Some(0), 5, 0)));
        let (early, late) = (fixture.send(0, 1, 5), fixture.send(0, 1, 5));
        let (a, b) = if swapped { (late, early) } else { (early, late) };
        fixture.got(first, a);
        fixture.got(second, b);
        let found = order(&fixture);
        assert_eq!(found.is_some(), swapped, "{found:?}");
        assert!(matches!(found, None | Some(Disorder::Overtaken { .. } | Disorder::PassedBy { .. })), "{found:?}");
    }
}

#[test]
fn completions_are_accepted_in_any_order() {
    let mut fixture = Fixture::new(2);
    let (first, second) = (fixture.recv(1, tagged(None, 5, 0)), fixture.recv(1, tagged(None, 5, 0)));
    let (early, late) = (fixture.send(0, 1, 5), fixture.send(0, 1, 5));
    fixture.got(second, late);
    fixture.got(first, early);
    assert_eq!(order(&fixture), None);
}

#[test]
fn across_senders_there_is_no_order() {
    let mut fixture = Fixture::new(3);
    let (first, second) = (fixture.recv(1, tagged(None, 5, 0)), fixture.recv(1, tagged(None, 5, 0)));
    let (early, late) = (fixture.send(0, 1, 5), fixture.send(2, 1, 5));
    fixture.got(first, late);
    fixture.got(second, early);
    assert_eq!(order(&fixture), None);
}

#[test]
fn an_older_receive_is_not_passed_by() {
    // The wildcard was there first and is free to the end.
    let mut fixture = Fixture::new(2);
    let (wild, exact) = (fixture.recv(1, tagged(None, 0, !0)), fixture.recv(1, tagged(Some(0), 5, 0)));
    let name = fixture.send(0, 1, 5);
    fixture.got(exact, name);
    assert_eq!(order(&fixture), Some(Disorder::PassedBy { receive: wild, younger: Some(exact), name }));
    // Taken back afterwards it was free all the same.
    fixture.cancel(1, wild);
    assert!(matches!(order(&fixture), Some(Disorder::PassedBy { .. } | Disorder::Impossible { .. })));

    // Taken back before, it is not in the way.
    let mut fixture = Fixture::new(2);
    let (wild, exact) = (fixture.recv(1, tagged(None, 0, !0)), fixture.recv(1, tagged(Some(0), 5, 0)));
    fixture.cancel(1, wild);
    let name = fixture.send(0, 1, 5);
    fixture.got(exact, name);
    assert_eq!(order(&fixture), None);

    // It takes other tags only.
    let mut fixture = Fixture::new(2);
    let (_, exact) = (fixture.recv(1, tagged(None, 6, 8)), fixture.recv(1, tagged(Some(0), 5, 0)));
    let name = fixture.send(0, 1, 5);
    fixture.got(exact, name);
    assert_eq!(order(&fixture), None);
}

#[test]
fn matches_of_a_killed_rank_are_unknown() {
    let fixture = |killed, unreported| {
        let mut fixture = Fixture::new(2);
        let (_, second) = (fixture.recv(1, tagged(Some(0), 5, 0)), fixture.recv(1, tagged(Some(0), 5, 0)));
        if unreported {
            fixture.send(0, 1, 5);
        }
        let name = fixture.send(0, 1, 5);
        fixture.got(second, name);
        if killed {
            let at = fixture.time();
            fixture.ledger.killed(1, at);
        }
        order(&fixture)
    };
    assert_eq!(fixture(true, true), None);
    assert!(matches!(fixture(true, false), Some(Disorder::PassedBy { .. })), "nothing can have gone there");
    assert!(fixture(false, true).is_some(), "its end is reported, or it is free");
}

#[test]
fn a_receive_posted_later_cannot_have_come_first() {
    // The older message went to a receive that was posted when the younger one had been reported already.
    let mut fixture = Fixture::new(2);
    let first = fixture.recv(1, tagged(Some(0), 5, 0));
    let (early, late) = (fixture.send(0, 1, 5), fixture.send(0, 1, 5));
    fixture.got(first, late);
    let second = fixture.recv(1, tagged(Some(0), 5, 0));
    fixture.got(second, early);
    assert_eq!(order(&fixture), Some(Disorder::Overtaken { receive: first, name: late, older: early }));
}

#[test]
fn impossible_matching_order_is_detected() {
    // Each sender's message fits the other's receive: the wildcards were matched in a circle.
    let mut fixture = Fixture::new(4);
    let wild = fixture.recv(1, tagged(None, 5, 0));
    let exact = fixture.recv(1, tagged(Some(2), 5, 0));
    // Rank 2's message was reported for the exact receive before rank 0 sent what the wildcard got.
    let theirs = fixture.send(2, 1, 5);
    fixture.got(exact, theirs);
    let ours = fixture.send(0, 1, 5);
    fixture.got(wild, ours);
    assert!(matches!(order(&fixture), Some(Disorder::PassedBy { receive, .. }) if receive == wild));
}

#[test]
fn receive_accepts_only_matching_messages() {
    let mut fixture = Fixture::new(2);
    let receive = fixture.recv(1, tagged(Some(0), 4, 2));
    let name = fixture.send(0, 1, 5);
    fixture.got(receive, name);
    assert_eq!(order(&fixture), Some(Disorder::NotTaken { receive, name }));
    let mut fixture = Fixture::new(2);
    let receive = fixture.recv(1, Selector { source: None, tag: TagMatch::Untagged });
    let name = fixture.send(0, 1, 0);
    fixture.got(receive, name);
    assert_eq!(order(&fixture), Some(Disorder::NotTaken { receive, name }), "tag 0 is a tag");
}

#[test]
fn an_unreceived_older_message_was_overtaken() {
    let mut fixture = Fixture::new(2);
    let receive = fixture.recv(1, tagged(None, 5, 0));
    let (early, late) = (fixture.send(0, 1, 5), fixture.send(0, 1, 5));
    fixture.got(receive, late);
    assert_eq!(order(&fixture), Some(Disorder::Overtaken { receive, name: late, older: early }));
    // Taken back in time, it is not in the way.
    let at = fixture.time();
    fixture.ledger.cancelled(0, at, 0);
    assert_eq!(order(&fixture), None);
}

#[test]
fn multi_receives_lie_back_to_back_in_order() {
    let all = tagged(None, 0, !0);
    let fixture = |places: [u64; 3], swap: bool| {
        let mut fixture = Fixture::new(2);
        let multi = fixture.multi(1, all, 64, 16);
        let mut names = [fixture.send(0, 1, 1), fixture.send(0, 1, 2), fixture.send(0, 1, 3)];
        if swap {
            names.swap(0, 1);
        }
        for (index, (place, name)) in places.into_iter().zip(names).enumerate() {
            fixture.part(multi, name, place, index == 2);
        }
        order(&fixture)
    };
    assert_eq!(fixture([0, 16, 32], false), None);
    assert!(fixture([0, 16, 32], true).is_some(), "the second message lies first");
    assert!(matches!(fixture([0, 16, 48], false), Some(Disorder::Offset { offset: 48, expected: 32, .. })));
    assert!(matches!(fixture([0, 16, 16], false), Some(Disorder::Offset { .. })));

    // Of a process that was killed, what was still under way is not reported; what was reported lies apart
    // all the same.
    for (places, is_right) in [([16, 44], true), ([16, 16], false), ([0, 48], false)] {
        let mut fixture = Fixture::new(2);
        let multi = fixture.multi(1, all, 64, 20);
        let _ = fixture.send(0, 1, 1);
        for place in places {
            let name = fixture.send(0, 1, 2);
            fixture.part(multi, name, place, false);
        }
        let now = fixture.time();
        fixture.ledger.killed(1, now);
        assert_eq!(order(&fixture).is_none(), is_right, "{places:?}");
    }

    // Fewer than the minimum were free.
    let mut fixture = Fixture::new(2);
    let multi = fixture.multi(1, all, 40, 16);
    let (first, second, third) =
        (fixture.send(0, 1, 1), fixture.send(0, 1, 1), fixture.send_at(0, 1, Some(1), 8, Default::default()).0);
    fixture.part(multi, first, 0, false);
    fixture.part(multi, second, 16, false);
    fixture.part(multi, third, 32, true);
    assert!(matches!(order(&fixture), Some(Disorder::Offset { .. })));
}

#[test]
fn multi_receives_number_their_messages() {
    // Events of empty messages come in any order; their numbers are those of the order in which they were
    // sent.
    let fixture = |reported: [(u32, usize); 3]| {
        let mut fixture = Fixture::new(2);
        let multi = fixture.multi(1, tagged(None, 0, !0), 64, 16);
        let names: Vec<_> = (0..3).map(|_| fixture.send_at(0, 1, Some(1), 0, Default::default()).0).collect();
        for (index, which) in reported {
            fixture.numbered(multi, names[which], index, 0, false);
        }
        order(&fixture)
    };
    assert_eq!(fixture([(0, 0), (1, 1), (2, 2)]), None);
    assert_eq!(fixture([(2, 2), (0, 0), (1, 1)]), None);
    assert!(matches!(fixture([(0, 1), (1, 0), (2, 2)]), Some(Disorder::Overtaken { .. })), "sent in another order");
    assert!(matches!(fixture([(0, 0), (0, 1), (1, 2)]), Some(Disorder::Index { index: 0, expected: 1, .. })));
    assert!(matches!(fixture([(0, 0), (2, 1), (3, 2)]), Some(Disorder::Index { index: 2, expected: 1, .. })));
}

#[test]
fn incomplete_multi_receive_is_not_overtaken() {
    let all = tagged(None, 0, !0);
    for full in [true, false] {
        let mut fixture = Fixture::new(2);
        let (multi, next) = (fixture.multi(1, all, 32, 16), fixture.recv(1, all));
        let (first, second, third) = (fixture.send(0, 1, 1), fixture.send(0, 1, 1), fixture.send(0, 1, 1));
        fixture.part(multi, first, 0, false);
        if full {
            fixture.part(multi, second, 16, true);
            fixture.got(next, third);
            assert_eq!(order(&fixture), None);
        } else {
            fixture.got(next, second);
            assert!(order(&fixture).is_some());
        }
    }
}

#[test]
fn claims_take_the_oldest_and_nothing_that_a_receive_waits_for() {
    let all = tagged(None, 0, !0);
    let mut fixture = Fixture::new(2);
    let (first, second) = (fixture.send(0, 1, 1), fixture.send(0, 1, 1));
    let claim = fixture.claim(1, all, first);
    let receive = fixture.recv(1, all);
    fixture.got(receive, second);
    fixture.got(claim, first);
    assert_eq!(order(&fixture), None);

    let mut fixture = Fixture::new(2);
    let (first, second) = (fixture.send(0, 1, 1), fixture.send(0, 1, 1));
    let claim = fixture.claim(1, all, second);
    let receive = fixture.recv(1, all);
    fixture.got(receive, first);
    fixture.got(claim, second);
    assert!(order(&fixture).is_some(), "the older one was free when the younger was claimed");

    let mut fixture = Fixture::new(2);
    let receive = fixture.recv(1, all);
    let (first, second) = (fixture.send(0, 1, 1), fixture.send(0, 1, 1));
    let claim = fixture.claim(1, all, first);
    fixture.got(receive, second);
    fixture.got(claim, first);
    assert!(order(&fixture).is_some(), "a receive waited for the claimed message");
}

#[test]
fn a_claim_counts_from_when_it_was_made() {
    // Claimed first; received only after a receive of everything was posted and served.
    let all = tagged(None, 0, !0);
    let mut fixture = Fixture::new(2);
    let (first, second) = (fixture.send(0, 1, 1), fixture.send(0, 1, 1));
    let claimed = fixture.claimed(1, first);
    let receive = fixture.recv(1, all);
    fixture.got(receive, second);
    let claim = fixture.submission(1, Submission::Receive { from: all, claimed }, 16);
    fixture.got(claim, first);
    assert_eq!(order(&fixture), None);
}

/// Two messages of one sender, one tag and one length, claimed before the first of them is there.
#[test]
fn unnamed_claims_are_identified_by_their_content() {
    let all = tagged(None, 0, !0);
    for named in 0..3 {
        let mut fixture = Fixture::new(2);
        let send =
            |fixture: &mut Fixture, at| if named == at { fixture.send(0, 1, 1) } else { fixture.send_unnamed(0, 1, 1) };
        let (first, second) = (send(&mut fixture, 0), send(&mut fixture, 1));
        fixture.probe(1, all, first);
        let claims = [fixture.claim(1, all, first), fixture.claim(1, all, second)];
        let probed = fixture.ledger.book(1).probes[0].name;
        assert_eq!(probed, (named == 0).then_some(first), "known by immediate data alone");
        fixture.got(claims[1], second);
        fixture.got(claims[0], first);
        assert_eq!(fixture.ledger.book(1).probes[0].name, Some(first));
        assert_eq!(fixture.verdict(), Verdict::Clean, "named: {named}");
    }

    // The younger went to the claim that was made first.
    let mut fixture = Fixture::new(2);
    let (first, second) = (fixture.send_unnamed(0, 1, 1), fixture.send_unnamed(0, 1, 1));
    let claims = [fixture.claim(1, all, first), fixture.claim(1, all, second)];
    fixture.got(claims[0], second);
    fixture.got(claims[1], first);
    assert!(order(&fixture).is_some());

    // Another message than the one that was shown.
    let mut fixture = Fixture::new(2);
    let (first, second) = (fixture.send(0, 1, 1), fixture.send_unnamed(0, 1, 1));
    let claim = fixture.claim(1, all, first);
    fixture.got(claim, second);
    assert!(matches!(fixture.verdict(), Verdict::Corruption(Corruption { damage: Damage::Envelope { .. }, .. })));
}

#[test]
fn probe_result_must_describe_a_sent_message() {
    let mut fixture = Fixture::new(2);
    let name = fixture.send_unnamed(0, 1, 1);
    let shown = fixture.found(name);
    let wrong = [
        Found { bytes: 17, ..shown },
        Found { tag: Some(2), ..shown },
        Found { tag: None, ..shown },
        Found { peer: PeerId(1), ..shown },
        Found { immediate: Some(name.to_bits()), ..shown },
        Found { immediate: Some(7), ..shown },
    ];
    for (time, found) in (100..).zip(wrong) {
        let mut ledger = fixture.ledger.clone();
        assert!(!ledger.probed(1, Time(time), tagged(None, 0, !0), &found), "{found:?}");
        assert!(ledger.claimed(1, Time(time), &found).is_none() && ledger.has_findings());
    }
    assert!(fixture.ledger.claimed(1, Time(99), &shown).is_some());
    let receive = fixture.recv(1, tagged(None, 0, !0));
    fixture.got(receive, name);
    assert!(fixture.ledger.claimed(1, Time(99), &shown).is_none(), "it is received");
}

#[test]
fn probe_reports_only_unmatched_messages() {
    let all = tagged(None, 0, !0);
    let mut fixture = Fixture::new(2);
    let (first, second) = (fixture.send(0, 1, 1), fixture.send(0, 1, 1));
    fixture.probe(1, all, first);
    let receives = [fixture.recv(1, all), fixture.recv(1, all)];
    fixture.got(receives[0], first);
    fixture.got(receives[1], second);
    assert_eq!(order(&fixture), None);

    let mut fixture = Fixture::new(2);
    let (first, second) = (fixture.send(0, 1, 1), fixture.send(0, 1, 1));
    fixture.probe(1, all, second);
    let receives = [fixture.recv(1, all), fixture.recv(1, all)];
    fixture.got(receives[0], first);
    fixture.got(receives[1], second);
    assert!(order(&fixture).is_some(), "the first stood before it");

    let mut fixture = Fixture::new(2);
    let receive = fixture.recv(1, all);
    let first = fixture.send(0, 1, 1);
    fixture.got(receive, first);
    fixture.probe(1, all, first);
    assert!(order(&fixture).is_some(), "it was received already");

    let mut fixture = Fixture::new(2);
    let receive = fixture.recv(1, all);
    let first = fixture.send(0, 1, 1);
    fixture.probe(1, all, first);
    fixture.got(receive, first);
    assert!(order(&fixture).is_some(), "a receive stood there for it");
}
