//! The loopback rail against a sink that records its calls.

use super::*;
use rerail_core::endpoint::Span;
use rerail_core::ids::{Key, PlaceId};

const ME: PeerId = PeerId(3);

fn post_id(index: u32) -> PostId {
    PostId(Key { index, generation: 1 })
}

#[derive(Debug, PartialEq, Eq)]
enum Reported {
    Arrival(Vec<u8>),
    Placed,
    Completed(PostId, PostStatus),
    Up,
    Down(RailFault),
}

/// The sink's answer to an arrival.
enum Answer {
    Discard,
    Close,
    Place,
    /// A placement that is aborted when its memory is requested.
    Aborted,
}

struct Log {
    reported: Vec<Reported>,
    answer: Answer,
    target: Vec<u8>,
    /// The target is handed out in pieces of so many bytes.
    piece_bytes: usize,
}

impl Log {
    fn new(answer: Answer) -> Self {
        Log { reported: Vec::new(), answer, target: vec![0; 10], piece_bytes: 4 }
    }
}

// SAFETY: `place` returns memory that this recorder owns, without other references until `placed`.
unsafe impl Sink for Log {
    fn arrival(&mut self, peer: PeerId, header: &[u8]) -> Arrival {
        assert_eq!(peer, ME);
        self.reported.push(Reported::Arrival(header.to_vec()));
        match self.answer {
            Answer::Discard => Arrival::Discard,
            Answer::Close => Arrival::Close,
            Answer::Place | Answer::Aborted => Arrival::Place { id: PlaceId::default(), memory: Span::EMPTY },
        }
    }

    fn place(&mut self, _id: PlaceId, from: u64, pieces: &mut Vec<Piece>) -> bool {
        assert_eq!(from, 0);
        pieces.extend(
            self.target.chunks_mut(self.piece_bytes).map(|chunk| Piece { start: chunk.as_mut_ptr(), len: chunk.len() }),
        );
        !matches!(self.answer, Answer::Aborted)
    }

    fn placed(&mut self, _id: PlaceId) {
        self.reported.push(Reported::Placed);
    }

    fn completed(&mut self, id: PostId, status: PostStatus) {
        self.reported.push(Reported::Completed(id, status));
    }

    fn up(&mut self, peer: PeerId) {
        assert_eq!(peer, ME);
        self.reported.push(Reported::Up);
    }

    fn down(&mut self, peer: PeerId, fault: RailFault) {
        assert_eq!(peer, ME);
        self.reported.push(Reported::Down(fault));
    }

    fn reset(&mut self) {}

    fn moved(&mut self) {}
    fn back(&mut self) {}
}

fn connected() -> Loopback {
    let mut rail = Loopback::new(ME);
    rail.connect(Time(0), ME);
    let mut log = Log::new(Answer::Discard);
    assert_eq!(rail.poll(Time(0), &mut log), 1);
    assert_eq!(log.reported, [Reported::Up]);
    rail
}

/// Sends a payload that stays valid until the rail has finished with it: it is leaked.
fn send(rail: &mut Loopback, id: u32, header: &[u8], payload: &[u8], piece_bytes: usize) {
    let payload = payload.to_vec().leak();
    let pieces: Vec<Piece> =
        payload.chunks_mut(piece_bytes).map(|chunk| Piece { start: chunk.as_mut_ptr(), len: chunk.len() }).collect();
    let (id, kind) = (post_id(id), PostKind::Send);
    // SAFETY: the payload was leaked.
    unsafe { rail.post(Outgoing { id, peer: ME, kind, header, payload: &pieces, extent: 0 }) };
}

#[test]
fn payload_is_placed_before_the_post_completes() {
    let mut rail = connected();
    send(&mut rail, 1, b"head", b"0123456789", 3);
    let mut log = Log::new(Answer::Place);
    assert_eq!(rail.poll(Time(0), &mut log), 1);
    let done = Reported::Completed(post_id(1), PostStatus::Done);
    assert_eq!(log.reported, [Reported::Arrival(b"head".to_vec()), Reported::Placed, done]);
    assert_eq!(log.target, *b"0123456789");
    let counters = rail.counters();
    assert_eq!((counters.packets_sent, counters.bytes_sent), (1, 14));
    assert_eq!((counters.packets_received, counters.bytes_received), (1, 14));
}

#[test]
fn a_poll_ends_after_a_while_because_others_wait() {
    let mut rail = connected();
    let payload = vec![7; 3 << 20];
    for id in 1..=5 {
        send(&mut rail, id, b"a", &payload, payload.len());
    }
    let mut log = Log::new(Answer::Discard);
    assert_eq!(rail.poll(Time(0), &mut log), 2);
    assert!(!rail.arm());
    assert_eq!((rail.poll(Time(0), &mut log), rail.poll(Time(0), &mut log)), (2, 1));
    assert!(rail.arm());
}

#[test]
fn payload_beyond_the_loopback_target_is_skipped() {
    let mut rail = connected();
    send(&mut rail, 1, b"a", &[1; 30], 30);
    send(&mut rail, 2, b"b", &[2; 3], 30);
    let mut log = Log::new(Answer::Place);
    assert_eq!(rail.poll(Time(0), &mut log), 2);
    assert_eq!(log.target, [2, 2, 2, 1, 1, 1, 1, 1, 1, 1], "the second packet lies over the first one's start");
}

#[test]
fn aborted_loopback_placement_is_skipped() {
    let mut rail = connected();
    send(&mut rail, 1, b"a", &[1; 4], 4);
    let mut log = Log::new(Answer::Aborted);
    rail.poll(Time(0), &mut log);
    assert_eq!(log.reported, [Reported::Arrival(b"a".to_vec()), Reported::Completed(post_id(1), PostStatus::Done)]);
    assert_eq!(log.target, [0; 10]);
}

#[test]
fn closing_the_loopback_drops_later_packets() {
    let mut rail = connected();
    send(&mut rail, 1, b"a", &[1; 4], 4);
    send(&mut rail, 2, b"b", &[1; 4], 4);
    let mut log = Log::new(Answer::Close);
    rail.poll(Time(0), &mut log);
    assert_eq!(log.reported, [Reported::Arrival(b"a".to_vec()), Reported::Down(RailFault::Corrupt)]);
    assert_eq!(rail.poll(Time(0), &mut log), 0);
    rail.connect(Time(0), ME);
    let mut log = Log::new(Answer::Place);
    rail.poll(Time(0), &mut log);
    assert_eq!(log.reported, [Reported::Up], "nothing of before the close is left");
}

#[test]
fn disconnecting_is_silent_and_voids_posts() {
    let mut rail = connected();
    send(&mut rail, 1, b"a", &[1; 4], 4);
    rail.disconnect(ME);
    send(&mut rail, 2, b"b", &[1; 4], 4);
    let mut log = Log::new(Answer::Place);
    assert_eq!(rail.poll(Time(0), &mut log), 0);
    assert!(log.reported.is_empty());
}

#[test]
fn a_write_fails_because_the_rail_does_not_offer_it() {
    let mut rail = connected();
    let to = rerail_core::wire::RemoteKey::default();
    let (id, kind) = (post_id(1), PostKind::Write { to });
    // SAFETY: there is no payload.
    unsafe { rail.post(Outgoing { id, peer: ME, kind, header: &[], payload: &[], extent: 0 }) };
    let mut log = Log::new(Answer::Place);
    rail.poll(Time(0), &mut log);
    assert_eq!(log.reported, [Reported::Completed(post_id(1), PostStatus::Failed), Reported::Down(RailFault::Corrupt)]);
}

#[test]
fn it_reaches_itself_only() {
    let mut rail = Loopback::new(ME);
    let address = rail.address();
    assert_eq!(rail.add_peer(ME, &address), Ok(true));
    assert_eq!(rail.add_peer(PeerId(0), &address), Ok(false));
    assert!(rail.add_peer(ME, "elsewhere").is_err());
    rail.connect(Time(0), PeerId(0));
    assert_eq!(rail.poll(Time(0), &mut Log::new(Answer::Place)), 0);
}

#[test]
fn loopback_prevents_sleep_while_work_is_pending() {
    let mut rail = Loopback::new(ME);
    assert!(rail.arm());
    rail.connect(Time(0), ME);
    assert!(!rail.arm());
    rail.poll(Time(0), &mut Log::new(Answer::Discard));
    assert!(rail.arm());
    send(&mut rail, 1, b"a", &[1; 4], 4);
    assert!(!rail.arm());
    rail.poll(Time(0), &mut Log::new(Answer::Discard));
    assert!(rail.arm());
}

/// F-2, L-15
#[test]
fn a_severed_one_is_silent_and_can_be_connected_anew() {
    let mut rail = connected();
    send(&mut rail, 1, b"head", b"0123456789", 3);
    rail.abort(ME);
    let mut log = Log::new(Answer::Place);
    assert_eq!((rail.poll(Time(0), &mut log), rail.arm()), (0, true));
    // While it opens, too.
    rail.connect(Time(0), ME);
    rail.abort(ME);
    assert_eq!(rail.poll(Time(0), &mut log), 0);
    assert!(log.reported.is_empty());
    rail.connect(Time(0), ME);
    send(&mut rail, 2, b"head", b"0123456789", 3);
    rail.poll(Time(0), &mut log);
    assert_eq!(log.reported, [Reported::Up], "posts to other peers have no completion");
}
