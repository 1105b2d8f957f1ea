//! A line by itself: what each step changes, field by field.

use super::*;

const PEER: PeerId = PeerId(3);

/// Numbers about to wrap, and room for two messages; two messages may come before limits must be sent.
const OPEN: Line = Line {
    credits: 2,
    spare: 1,
    plain_max: 10,
    next: u32::MAX,
    next_folded: u32::MAX,
    bytes_max: 100,
    block_bytes: 10,
    expected: u32::MAX,
    expected_folded: u32::MAX,
    message_limit: u16::MAX,
    block_limit: u16::MAX - 1,
    checks_due_in: 2 * COST - 1,
    rail: 1,
    receives_on: 1,
    peer: PEER,
    receives_from: PEER,
    ..Line::CLOSED
};

/// Limits are sent after four messages or eight blocks.
fn own() -> Own {
    Own::new(10, 4, 8)
}

/// Nothing is counted in it.
const NOTHING: Fold = Fold {
    sent: 0,
    blocks_sent: 0,
    received: 0,
    kept: 0,
    blocks_received: 0,
    peer_limits: (0, 0),
    is_announced: false,
    rail: RailId(1),
};

fn short(psn: u32, len: u16) -> Short {
    Short { counts: Counts::new(psn, 8, 9), len, ..Short::default() }
}

const SENDING: Sending = Sending {
    next: 7,
    limits: (5, 6),
    messages_left: 3,
    blocks_left: 10,
    bytes_max: 100_000,
    block_bytes: 10,
    rail: RailId(2),
};

/// All that a message takes, field by field.
#[test]
fn a_message_takes_a_number_a_credit_and_its_blocks() {
    let mut line = OPEN;
    assert!(!line.is_ahead());
    let sent = line.send(Some(4), None, 11, &own()).unwrap();
    let counts = Counts::new(u32::MAX, u16::MAX, u16::MAX - 1);
    assert_eq!(sent, Short { counts, tag: 4, len: 11, flags: Short::TAGGED, ..Short::default() });
    let one = Line { credits: 1, spare: 0, next: 0, blocks_sent: 2, checks_due_in: 4 * COST - 1, ..OPEN };
    assert_eq!((line, line.is_ahead()), (one, true));
    // A header with our limits counts as an announcement.
    (line.block_limit, line.checks_due_in) = (3, 1);
    let sent = line.send(None, Some(6), 0, &own()).unwrap();
    let counts = Counts::new(0, u16::MAX, 3);
    assert_eq!(sent, Short { counts, immediate: 6, flags: Short::IMMEDIATE, ..Short::default() });
    let two = Line { credits: 0, next: 1, block_limit: 3, ..one };
    assert_eq!(line, two);
    assert_eq!((line.send(None, None, 0, &own()), line), (None, two), "out of credits");
    assert_eq!(line.fold(&own()), Fold { sent: 2, blocks_sent: 2, is_announced: true, ..NOTHING });
    assert_eq!((line.fold(&own()), line.is_ahead()), (NOTHING, false));
    let both = { OPEN }.send(Some(4), Some(6), 1, &own()).unwrap();
    assert_eq!((both.tag, both.immediate, both.flags), (4, 6, Short::TAGGED | Short::IMMEDIATE));
}

/// What is too long, or needs more blocks than there are, changes nothing.
#[test]
fn message_that_does_not_fit_leaves_the_line_unchanged() {
    for (line, len) in [
        (OPEN, 31),
        (Line { spare: 100, ..OPEN }, 101),
        (Line { credits: 0, ..OPEN }, 1),
        (Line { credits: 0, spare: 9, ..OPEN }, 11),
    ] {
        let mut after = line;
        assert_eq!((after.send(None, None, len, &own()), after), (None, line));
    }
    // The block of the other credit is used, too.
    let mut line = OPEN;
    assert!(line.send(None, None, 30, &own()).is_some());
    assert_eq!((line.credits, line.spare, line.blocks_sent), (0, 0, 3));
    assert!(Line { spare: 9, ..OPEN }.send(None, None, 100, &own()).is_some());
}

/// Every credit covers a block too, and the blocks beyond them are for longer messages.
#[test]
fn peer_grants_are_divided_into_credits_and_spare_blocks() {
    for (messages_left, blocks_left, credits, spare) in
        [(3, 10, 3, 7), (10, 3, 3, 0), (1, 10, 1, 9), (TURN + 36, TURN + 36, TURN, 36)]
    {
        let mut line = Line { checks_due_in: 2, ..Line::CLOSED };
        assert!(line.open_sending(&Sending { messages_left, blocks_left, ..SENDING }));
        assert_eq!((line.credits, line.spare, line.blocks_left()), (credits, spare, credits + spare));
        assert_eq!((line.next, line.next_folded, line.limits(), line.rail), (7, 7, (5, 6), 2));
        assert_eq!((line.bytes_max, line.block_bytes, line.plain_max), (65_535, 10, 10));
        assert_eq!((line.checks_due_in, line.is_ahead()), (2, false));
    }
    let mut line = OPEN;
    assert!(line.open_sending(&Sending { bytes_max: 4, ..SENDING }));
    assert_eq!(line.plain_max, 4);
    for sending in [Sending { messages_left: 0, ..SENDING }, Sending { blocks_left: 0, ..SENDING }] {
        let mut line = OPEN;
        assert!(!line.open_sending(&sending) && line.send(None, None, 0, &own()).is_none());
        assert_eq!(line.checks_due_in, OPEN.checks_due_in - FORCED);
    }
}

#[test]
fn refused_express_message_is_not_counted() {
    let mut line = OPEN;
    line.send(None, None, 10, &own()).unwrap();
    let refused = line.send(None, None, 20, &own()).unwrap();
    line.credits = 5;
    line.unsend(&refused);
    let Fold { sent, blocks_sent, .. } = line.fold(&own());
    assert_eq!((line.credits, line.next, sent, blocks_sent), (0, 0, 1, 1));
    let empty = { OPEN }.send(None, None, 0, &own()).unwrap();
    line.unsend(&empty);
    assert_eq!(line.fold(&own()).blocks_sent, 0);
}

#[test]
fn the_next_number_is_expected_on_the_lines_rail_while_it_is_open() {
    let expects = |line: Line, rail, psn| { line }.expects(RailId(rail), Counts::new(psn, 8, 9));
    assert!(expects(OPEN, 1, u32::MAX) && OPEN.receives_on() == Some(RailId(1)));
    assert!(!expects(OPEN, 0, u32::MAX) && !expects(OPEN, 1, 0));
    let mut closed = OPEN;
    closed.close_receiving();
    assert!(!expects(closed, 1, u32::MAX) && closed.receives_on().is_none());
    closed.open_receiving(RailId(2), 7, (5, 6));
    assert!(expects(closed, 2, 7) && !expects(closed, 1, 7) && !closed.is_ahead());
    assert_eq!(closed.limits(), (5, 6));
    // What the peer grants counts with the message that is expected, and with no other.
    let mut line = OPEN;
    assert!(!line.expects(RailId(1), Counts::new(0, 8, 9)) && line == OPEN);
    assert!(line.expects(RailId(1), Counts::new(u32::MAX, 8, 9)));
    assert_eq!(line, Line { peer_limits: (8, 9), ..OPEN });
    // The same, by its sender.
    let mut line = OPEN;
    for (peer, psn) in [(PEER, 0), (PeerId(4), u32::MAX), (NO_PEER, u32::MAX)] {
        assert!(!line.expects_from(peer, Counts::new(psn, 8, 9)) && line == OPEN);
    }
    assert!(line.expects_from(PEER, Counts::new(u32::MAX, 8, 9)));
    assert_eq!(line, Line { peer_limits: (8, 9), ..OPEN });
    line.close_receiving();
    assert!(!line.expects_from(PEER, Counts::new(u32::MAX, 8, 9)) && line.is_of(PEER) && !line.is_of(NO_PEER));
    line.open_receiving(RailId(2), 7, (5, 6));
    assert!(line.expects_from(PEER, Counts::new(7, 8, 9)) && Line::of(PEER).is_of(PEER));
}

fn receive(line: &mut Line, short: &Short) -> bool {
    assert!(line.expects(RailId(1), short.counts));
    takes(line, short.len, &own())
}

fn takes(line: &mut Line, len: u16, own: &Own) -> bool {
    line.receive(len, own) && line.check(len, own)
}

/// Limits grow with each message received, and are announced after so many messages, or so many blocks.
#[test]
fn received_message_extends_the_grant() {
    let mut line = OPEN;
    assert!(!receive(&mut line, &short(u32::MAX, 10)));
    let one = Line {
        expected: 0,
        message_limit: 0,
        block_limit: u16::MAX,
        peer_limits: (8, 9),
        checks_due_in: COST - 1,
        ..OPEN
    };
    assert_eq!((line, line.is_ahead(), line.must_announce()), (one, true, false));
    assert!(receive(&mut line, &short(0, 0)) && line.must_announce(), "four messages");
    assert_eq!((line.block_limit, line.blocks_beyond), (u16::MAX, -1));
    line.announced(&own());
    assert!(!line.must_announce() && line.checks_due_in == i32::from(own().announce_after));
    let both = Fold { received: 2, blocks_received: 1, peer_limits: (8, 9), ..NOTHING };
    // None of our messages announces what was received.
    assert_eq!(line.fold(&own()), both);
    assert_eq!(line.fold(&own()), Fold { peer_limits: (8, 9), ..NOTHING });
    let mut line = Line { checks_due_in: 4 * COST - 1, ..OPEN };
    assert!(!receive(&mut line, &short(u32::MAX, 51)), "six blocks");
    assert_eq!((line.blocks_beyond, line.block_limit, line.checks_due_in), (5, 4, COST - 1));
    assert!(receive(&mut line, &short(0, 11)) && line.must_announce(), "eight");
}

/// A message that waits is counted apart, and grants nothing before it is released; then limits grow, and are
/// announced, as if it had been received.
#[test]
fn waiting_message_extends_the_grant_when_released() {
    let mut line = OPEN;
    assert!(line.expects(RailId(1), Counts::new(u32::MAX, 8, 9)) && !line.keep());
    assert_eq!(line, Line { expected: 0, kept: 1, peer_limits: (8, 9), ..OPEN });
    assert_eq!(line.fold(&own()), Fold { received: 1, kept: 1, peer_limits: (8, 9), ..NOTHING });
    assert_eq!(line.fold(&own()), Fold { peer_limits: (8, 9), ..NOTHING });
    assert!(!line.release(1));
    let one = Line { message_limit: 0, block_limit: u16::MAX, checks_due_in: COST - 1, ..OPEN };
    assert_eq!((line.limits(), line.checks_due_in), (one.limits(), one.checks_due_in));
    assert!(line.release(0) && line.must_announce(), "four messages");
    assert_eq!(line.limits(), (1, u16::MAX));
    // While a request waits for room the tables are checked after each message.
    let mut line = Line { checks_due_in: -FORCED, ..OPEN };
    assert!(line.keep() && !Line { checks_due_in: 0, ..OPEN }.keep());
    assert!(!Line { checks_due_in: COST, ..OPEN }.release(0) && Line { checks_due_in: COST - 1, ..OPEN }.release(0));
}

/// While sending is blocked the tables are checked after each message, and limits are still announced when
/// they must be.
#[test]
fn tables_are_checked_per_message_while_sending_is_blocked() {
    let mut line = OPEN;
    line.stop_sending();
    line.stop_sending();
    assert_eq!(line, Line { credits: 0, checks_due_in: OPEN.checks_due_in - FORCED, ..OPEN });
    assert!(receive(&mut line, &short(u32::MAX, 0)) && !line.must_announce());
    assert!(receive(&mut line, &short(0, 0)) && line.must_announce());
    line.announced(&own());
    assert!(!line.must_announce() && line.checks_due_in == 4 * COST - 1 - FORCED);
    assert!(receive(&mut line, &short(1, 0)) && !line.must_announce());
    assert!(line.open_sending(&SENDING));
    assert_eq!(line.checks_due_in, 3 * COST - 1);
    assert!(!receive(&mut line, &short(2, 0)));
}

/// Limits that the tables raise, and messages that they count, are not announced again.
#[test]
fn limits_announced_by_the_tables_are_counted_once() {
    let mut line = OPEN;
    line.grant(1, 2);
    assert_eq!((line.limits(), line.is_ahead()), ((0, 0), false));
    assert!(!line.is_ahead());
    for (messages, blocks, after, cost) in [(7, 14, 7, 32), (14, 7, 7, 64), (1, 1, 1, 64), (9, 8, 8, 64), (0, 0, 1, 64)]
    {
        let own = Own::new(10, messages, blocks);
        line.announced(&own);
        assert_eq!((line.checks_due_in, own.block_cost), (after * COST - 1, cost));
    }
    assert_eq!(Own::new(10, u16::MAX, u16::MAX).announce_after, u16::MAX, "then earlier than it must be");
}

/// C-4: a quarter of the blocks brings an announcement, however they divide.
#[test]
fn half_of_the_blocks_is_announced() {
    for blocks in 1..200u16 {
        let own = Own::new(10, 4, blocks);
        let mut line = OPEN;
        line.announced(&own);
        assert!(takes(&mut line, 10 * blocks, &own), "{blocks} blocks");
    }
}

/// A message of two blocks, where many are granted, brings an announcement no nearer than one of a block.
#[test]
fn blocks_that_abound_cost_nothing() {
    let own = Own::new(10, 128, 256);
    let mut line = OPEN;
    line.announced(&own);
    let received = (0..).map(|n| short(u32::MAX.wrapping_add(n), 20));
    let count = received.take_while(|short| !takes(&mut line, short.len, &own)).count();
    assert_eq!(count, 127);
}
