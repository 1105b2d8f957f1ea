//! Small sends, most of which make no completion.

use super::super::send::QUIET_MAX;
use super::*;

impl Pair {
    /// What rank 0 may still send quietly, to all.
    fn quiet_left(&self) -> u32 {
        QUIET_MAX - self.rails[0].links.get(0).map_or(0, |link| link.quiet.open.into())
    }
}

fn connected() -> Pair {
    let mut pair = Pair::new();
    pair.connect(0);
    pair.run_until_idle();
    pair
}

/// Every one is over and arrives, and one of 16 reports those before it.
#[test]
fn most_small_sends_are_not_reported() {
    let mut pair = connected();
    for sent in 1..=3000 {
        pair.send_small();
        pair.poll();
        assert_eq!((pair.reported[0].done + pair.reported[0].taken, pair.reported[1].arrived), (sent, sent));
        let link = pair.rails[0].links.get(0).unwrap();
        assert!(link.quiet.open <= link.quiet.max && link.quiet.behind <= link.quiet.open);
        assert_eq!(pair.rails[0].works.quiet_left(), pair.quiet_left());
    }
    assert!((2500..2800).contains(&pair.reported[0].taken), "{:?}", pair.reported[0]);
}

/// Without a poll between them, only so many as the queue has room for.
#[test]
fn they_have_room() {
    let mut pair = connected();
    for _ in 0..40 {
        pair.send_small();
        pair.poll();
    }
    for _ in 0..60 {
        pair.send_small();
        let link = pair.rails[0].links.get(0).unwrap();
        assert!(link.quiet.open <= link.quiet.max);
    }
    pair.poll();
    assert_eq!((pair.reported[0].done + pair.reported[0].taken, pair.reported[1].arrived), (100, 100));
}

/// One that fails ends the link, and the room that it took is free.
#[test]
fn one_that_fails_is_noticed() {
    let mut pair = connected();
    for _ in 0..40 {
        pair.send_small();
        pair.poll();
    }
    pair.rails[1].abort(PeerId(0));
    assert_eq!(pair.reported[0].down, []);
    let done = pair.reported[0].done;
    pair.send_small();
    pair.poll();
    assert_eq!(pair.reported[0].done, done, "it was a quiet one");
    assert_eq!(pair.reported[0].down.len(), 1, "{:?}", pair.reported[0]);
    assert_eq!(pair.rails[0].works.quiet_left(), QUIET_MAX);
}

/// Those of a peer that the core has finished with are not reported; the first after a poll is over at once.
#[test]
fn after_an_abort_nothing_is_reported() {
    let mut pair = connected();
    for _ in 0..40 {
        pair.send_small();
        pair.poll();
    }
    let taken = pair.reported[0].taken + 1;
    pair.send_small();
    pair.send_small();
    assert_eq!(pair.reported[0].taken, taken);
    pair.rails[0].abort(PeerId(1));
    pair.poll();
    assert_eq!(pair.reported[0].taken, taken);
}
