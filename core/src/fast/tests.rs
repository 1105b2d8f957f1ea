//! A line by itself: what each step changes, field by field.

use super::*;

/// Numbers about to wrap, and room for two messages; two messages were received since limits went out last.
const OPEN: Line = Line {
    credits: 2,
    blocks: 3,
    next: u32::MAX,
    next_folded: u32::MAX,
    bytes_max: 100,
    block_bytes: 10,
    expected: u32::MAX,
    expected_folded: u32::MAX,
    message_limit: u16::MAX,
    block_limit: u16::MAX - 1,
    announce_in: 2,
    announce_after: 4,
    announce_blocks_in: 6,
    announce_blocks_after: 6,
    own_block_bytes: 10,
    rail: 1,
    receives_on: 1,
    ..Line::CLOSED
};

/// Nothing is counted in it.
const NOTHING: Fold = Fold {
    sent: 0,
    blocks_sent: 0,
    received: 0,
    blocks_received: 0,
    peer_limits: (0, 0),
    is_announced: false,
    rail: RailId(1),
};

fn short(psn: u32, len: u16) -> Short {
    Short { psn, message_limit: 8, block_limit: 9, len, ..Short::default() }
}

#[test]
fn blocks_are_counted_whole() {
    let of = |len| blocks_of(len, 10);
    assert_eq!([0, 1, 9, 10, 11, 20, 21].map(of), [0, 1, 1, 1, 2, 2, 3]);
}

/// All that a message takes, field by field.
#[test]
fn a_message_takes_a_number_a_credit_and_its_blocks() {
    let mut line = OPEN;
    assert!(!line.is_ahead());
    let sent = line.send(Some(4), None, 11).unwrap();
    let head = Short { psn: u32::MAX, message_limit: u16::MAX, block_limit: u16::MAX - 1, ..Short::default() };
    assert_eq!(sent, Short { tag: 4, len: 11, flags: Short::TAGGED, ..head });
    let one = Line { credits: 1, blocks: 1, next: 0, blocks_sent: 2, announce_in: 4, ..OPEN };
    assert_eq!((line, line.is_ahead()), (one, true));
    // What it says of our limits counts as an announcement.
    (line.block_limit, line.announce_blocks_in) = (3, 1);
    let sent = line.send(None, Some(6), 0).unwrap();
    assert_eq!(sent, Short { psn: 0, block_limit: 3, immediate: 6, flags: Short::IMMEDIATE, ..head });
    let two = Line { credits: 0, next: 1, block_limit: 3, ..one };
    assert_eq!(line, two);
    assert_eq!((line.send(None, None, 0), line), (None, two), "out of credits");
    assert_eq!(line.fold(), Fold { sent: 2, blocks_sent: 2, is_announced: true, ..NOTHING });
    assert_eq!((line.fold(), line.is_ahead()), (NOTHING, false));
    let both = { OPEN }.send(Some(4), Some(6), 1).unwrap();
    assert_eq!((both.tag, both.immediate, both.flags), (4, 6, Short::TAGGED | Short::IMMEDIATE));
}

/// What is too long, or needs more blocks than there are, changes nothing.
#[test]
fn what_does_not_fit_changes_nothing() {
    for (line, len) in [(OPEN, 31), (Line { blocks: 100, ..OPEN }, 101), (Line { credits: 0, ..OPEN }, 1)] {
        let mut after = line;
        assert_eq!((after.send(None, None, len), after), (None, line));
    }
    assert!({ OPEN }.send(None, None, 30).is_some());
    assert!(Line { blocks: 10, ..OPEN }.send(None, None, 100).is_some());
}

#[test]
fn what_the_rail_refuses_is_not_counted() {
    let mut line = OPEN;
    line.send(None, None, 10).unwrap();
    let refused = line.send(None, None, 20).unwrap();
    line.credits = 5;
    line.unsend(&refused);
    let Fold { sent, blocks_sent, .. } = line.fold();
    assert_eq!((line.credits, line.next, sent, blocks_sent), (0, 0, 1, 1));
}

#[test]
fn the_next_number_is_expected_on_the_lines_rail_while_it_is_open() {
    let expects = |line: Line, rail, psn| line.expects(RailId(rail), psn);
    assert!(expects(OPEN, 1, u32::MAX) && OPEN.receives_on() == Some(RailId(1)));
    assert!(!expects(OPEN, 0, u32::MAX) && !expects(OPEN, 1, 0));
    let mut closed = OPEN;
    closed.close_receiving();
    assert!(!expects(closed, 1, u32::MAX) && closed.receives_on().is_none());
    closed.open_receiving(RailId(2), 7, (5, 6), 10);
    assert!(expects(closed, 2, 7) && !expects(closed, 1, 7) && !closed.is_ahead());
    assert_eq!(closed.limits(), (5, 6));
}

/// Limits grow by what was received, and are announced after so many messages, or so many blocks.
#[test]
fn what_is_received_is_granted_again() {
    let mut line = OPEN;
    assert!(!line.receive(&short(u32::MAX, 11)));
    let one = Line {
        expected: 0,
        blocks_received: 2,
        message_limit: 0,
        block_limit: 0,
        peer_limits: [8, 9],
        announce_in: 1,
        announce_blocks_in: 4,
        ..OPEN
    };
    assert_eq!((line, line.is_ahead(), line.must_announce()), (one, true, false));
    assert!(line.receive(&short(0, 0)) && line.must_announce(), "four messages");
    line.announced();
    assert!(!line.must_announce());
    let both = Fold { received: 2, blocks_received: 2, peer_limits: (8, 9), ..NOTHING };
    // What was received is told by no message of ours.
    assert_eq!(line.fold(), both);
    assert_eq!(line.fold(), Fold { peer_limits: (8, 9), ..NOTHING });
    let mut line = Line { announce_in: 100, ..OPEN };
    assert!(!line.receive(&short(0, 50)), "five blocks");
    assert!(line.receive(&short(1, 1)) && line.must_announce(), "six");
    // Who waits for room hears of every message.
    let mut line = Line { credits: 0, ..OPEN };
    assert!(line.receive(&short(0, 0)) && !line.must_announce());
}

/// Limits that the tables raise, and messages that they count, are no news.
#[test]
fn what_the_tables_know_is_counted_once() {
    let mut line = OPEN;
    line.grant(1, 2);
    assert_eq!((line.limits(), line.is_ahead()), ((0, 0), false));
    line.skip();
    assert!(line.expects(RailId(1), 0) && !line.is_ahead());
    line.announce_after(7, u16::MAX);
    assert_eq!((line.announce_in, line.announce_blocks_in), (7, i16::MAX));
}
