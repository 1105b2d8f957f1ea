//! The state machine of set-up against everything that can happen to datagrams, over a fake device; the whole
//! rail over the software HCA is tested in `conformance/sim/tests/verbs_rail.rs`.

mod fake;
mod place;
mod quiet;
mod registrations;

use proptest::prelude::*;
use rerail_core::endpoint::{Arrival, PostKind, PostStatus};
use rerail_core::ids::{Key, PlaceId, PostId};
use rerail_core::time::Nanos;
use rerail_core::wire::{Body, Common, MessageHead, Repr};

use rerail_verbs::contract::ModifyError;
use rerail_verbs::{Moderation, Offers};

use super::wire::{SETUP_BYTES, Setup, SetupKind};
use super::*;
use crate::auth::Secret;
use crate::auth::testing::{credentials, meet};
use fake::{FakeDevice, Flying, SharedWire};

/// A rail's reports.
#[derive(Debug, Default)]
struct Reported {
    up: usize,
    down: Vec<RailFault>,
    standing: bool,
    arrived: usize,
    moved: usize,
    backs: usize,
    done: usize,
    taken: usize,
}

// SAFETY: `place` returns no memory.
unsafe impl Sink for Reported {
    fn arrival(&mut self, _: PeerId, _: &[u8]) -> Arrival {
        assert!(self.standing, "a packet of a peer that is not up");
        self.arrived += 1;
        Arrival::Done
    }

    fn place(&mut self, _: PlaceId, _: u64, _: &mut Vec<Piece>) -> bool {
        false
    }

    fn placed(&mut self, _: PlaceId) {}

    fn completed(&mut self, _: PostId, status: PostStatus) {
        self.done += usize::from(status == PostStatus::Done);
        self.taken += usize::from(status == PostStatus::Taken);
    }

    fn up(&mut self, _: PeerId) {
        assert!(!self.standing, "up twice");
        self.standing = true;
        self.up += 1;
    }

    fn down(&mut self, _: PeerId, fault: RailFault) {
        self.standing = false;
        self.down.push(fault);
    }

    fn reset(&mut self) {}

    fn moved(&mut self) {
        self.moved += 1;
    }

    fn back(&mut self) {
        self.backs += 1;
    }
}

/// Two rails, ranks 0 and 1, with LIDs 16 and 17.
struct Pair {
    wire: SharedWire,
    rails: [VerbsRail<FakeDevice>; 2],
    reported: [Reported; 2],
    now: Time,
    posts: u32,
}

fn options() -> VerbsOptions {
    VerbsOptions {
        eager_bytes_max: 256,
        segment_bytes: 256,
        resend_first: Nanos::from_millis(1),
        resend_max: Nanos::from_millis(8),
        handshake_timeout: Nanos::from_millis(100),
        ..VerbsOptions::new(2, 0)
    }
}

impl Pair {
    fn new() -> Self {
        Self::with(&options(), |_, _| {})
    }

    /// Devices of ranks with something more.
    fn with(options: &VerbsOptions, change: impl Fn(u32, &FakeDevice)) -> Self {
        let wire = SharedWire::default();
        let rail = |rank: u32| {
            let device = FakeDevice::new(&wire, 16 + rank as u16);
            change(rank, &device);
            let secret = Secret::new([rank as u8; 32]);
            let identity = Identity { credentials: credentials(rank), job: 5, me: PeerId(rank), secret };
            VerbsRail::open(device, 1, options.clone(), identity).unwrap()
        };
        let mut rails = [rail(0), rail(1)];
        let addresses = [rails[0].address(), rails[1].address()];
        for rank in 0..2 {
            meet(&mut rails[rank], 1 - rank as u32, &addresses[1 - rank]);
        }
        Pair { wire, rails, reported: Default::default(), now: Time(0), posts: 0 }
    }

    fn connect(&mut self, rank: usize) {
        self.rails[rank].connect(self.now, PeerId(1 - rank as u32));
    }

    fn poll(&mut self) {
        for _ in 0..4 {
            for (rail, reported) in self.rails.iter_mut().zip(&mut self.reported) {
                rail.poll(self.now, reported);
            }
        }
    }

    /// Takes the datagrams that were sent since.
    fn take(&mut self) -> Vec<Flying> {
        std::mem::take(&mut self.wire.borrow_mut().flying)
    }

    fn deliver(&mut self, datagram: &Flying) {
        self.wire.borrow_mut().deliver(datagram);
        self.poll();
    }

    /// Delivers everything until no message is left.
    fn run_until_idle(&mut self) {
        for _ in 0..20 {
            for datagram in self.take() {
                self.deliver(&datagram);
            }
        }
        assert!(self.take().is_empty(), "they send for ever");
    }

    fn pass(&mut self, span: Nanos) {
        self.now = self.now + span;
        self.poll();
    }

    fn send(&mut self, from: usize) {
        self.posts += 1;
        let common = Common { source: from as u32, ..Common::default() };
        let header = Repr { common, body: Body::Bye }.emit_vec().unwrap();
        let id = PostId(Key { index: self.posts, generation: 1 });
        let peer = PeerId(1 - from as u32);
        let (kind, header) = (PostKind::Send, &header[..]);
        // SAFETY: there is no payload.
        unsafe { self.rails[from].post(Outgoing { id, peer, kind, header, payload: &[], extent: 0 }) };
        self.poll();
    }

    /// Rank 0 sends a small message.
    fn send_small(&mut self) {
        self.posts += 1;
        let common = Common { source: 0, payload_bytes: 8, ..Common::default() };
        let header = Repr { common, body: Body::Eager(MessageHead::default()) }.emit_vec().unwrap();
        let id = PostId(Key { index: self.posts, generation: 1 });
        let mut bytes = *b"8 bytes.";
        let payload = &[Piece { start: bytes.as_mut_ptr(), len: bytes.len() }];
        let (peer, kind) = (PeerId(1), PostKind::Send);
        // SAFETY: the payload is copied, inline or into the slab, before the call returns.
        let is_over =
            unsafe { self.rails[0].post_small(Outgoing { id, peer, kind, header: &header, payload, extent: 0 }) };
        self.reported[0].taken += usize::from(is_over);
    }

    /// Both sides are up, with one queue pair each beside that for datagrams, and messages get through.
    fn assert_whole(&mut self) {
        assert!(self.reported[0].standing && self.reported[1].standing, "{:?}", self.reported);
        assert_eq!((self.rails[0].device().unwrap().qps(), self.rails[1].device().unwrap().qps()), (2, 2));
        for rank in 0..2 {
            let before = self.reported[1 - rank].arrived;
            self.send(rank);
            assert_eq!(self.reported[1 - rank].arrived, before + 1, "{:?}", self.reported);
        }
    }
}

fn kind_of(datagram: &Flying) -> SetupKind {
    Setup::parse(&datagram.bytes).unwrap().kind
}

/// V-4, with the number of messages.
#[test]
fn three_messages_make_a_connection() {
    let mut pair = Pair::new();
    pair.connect(0);
    let request = pair.take();
    assert!(matches!(kind_of(&request[0]), SetupKind::Request(_)) && request.len() == 1);
    pair.deliver(&request[0]);
    let reply = pair.take();
    assert!(matches!(kind_of(&reply[0]), SetupKind::Reply { .. }) && reply.len() == 1);
    assert!(!pair.reported[0].standing && !pair.reported[1].standing);
    pair.deliver(&reply[0]);
    let ready = pair.take();
    assert!(matches!(kind_of(&ready[0]), SetupKind::Ready { .. }) && ready.len() == 1);
    assert!(pair.reported[0].standing && !pair.reported[1].standing, "the dialler completes first");
    // V-4: messages that overtake READY wait for it.
    pair.send(0);
    assert_eq!(pair.reported[1].arrived, 0);
    pair.deliver(&ready[0]);
    assert_eq!(pair.reported[1].arrived, 1);
    pair.assert_whole();
    pair.pass(Nanos::from_millis(1000));
    assert!(pair.take().is_empty(), "neither side has more to send");
}

/// V-10: ports of which one or both require a global route.
#[test]
fn ports_that_need_a_global_route_connect() {
    for needing in [vec![0], vec![1], vec![0, 1]] {
        for caller in [0, 1] {
            let change = |rank: u32, device: &FakeDevice| needing.contains(&rank).then(|| device.need_global());
            let mut pair = Pair::with(&options(), |rank, device| _ = change(rank, device));
            pair.connect(caller);
            pair.run_until_idle();
            pair.assert_whole();
        }
    }
}

/// A device may report more inline bytes than its queue pairs take: packets go through the rail's
/// buffers then.
#[test]
fn smaller_inline_limit_than_requested_is_accepted() {
    let mut pair = Pair::new();
    pair.rails.iter().for_each(|rail| rail.device.give_inline(8));
    pair.connect(0);
    pair.run_until_idle();
    pair.assert_whole();
    assert_eq!(pair.reported.each_ref().map(|reported| (reported.up, reported.down.len())), [(1, 0), (1, 0)]);
}

/// V-4: repetitions change nothing.
#[test]
fn repeated_messages_change_nothing() {
    let mut pair = Pair::new();
    pair.connect(0);
    let mut all = Vec::new();
    for _ in 0..3 {
        let sent = pair.take();
        for datagram in &sent {
            pair.deliver(datagram);
            pair.deliver(datagram);
        }
        all.extend(sent);
    }
    pair.run_until_idle();
    for _ in 0..2 {
        all.iter().for_each(|datagram| pair.deliver(datagram));
        all.iter().rev().for_each(|datagram| pair.deliver(datagram));
        pair.run_until_idle();
    }
    pair.assert_whole();
    assert!(pair.reported.iter().all(|reported| reported.up == 1 && reported.down.is_empty()));
}

/// V-3: one wrong byte, anywhere, and the message is ignored.
#[test]
fn changed_messages_are_counted_and_dropped() {
    for at in 0..SETUP_BYTES {
        let mut pair = Pair::new();
        pair.connect(0);
        let mut changed = pair.take().remove(0);
        changed.bytes[at] ^= 0x40;
        pair.deliver(&changed);
        assert_eq!(pair.rails[1].counters().unauthenticated, 1, "byte {at}");
        assert!(pair.take().is_empty() && pair.rails[1].device().unwrap().qps() == 1, "byte {at}");
    }
    let mut pair = Pair::new();
    pair.connect(0);
    let mut short = pair.take().remove(0);
    short.bytes.pop();
    pair.deliver(&short);
    assert_eq!(pair.rails[1].counters().unauthenticated, 1);
}

/// V-3: a recorded request costs a queue pair for a while, and nothing is reported to the core.
#[test]
fn a_recorded_request_is_worth_nothing() {
    let mut pair = Pair::new();
    pair.connect(0);
    let recorded = pair.take().remove(0);
    pair.rails[0].disconnect(PeerId(1));
    pair.take();
    pair.deliver(&recorded);
    assert_eq!(pair.rails[1].device().unwrap().qps(), 2);
    // Rank 0 answers the reply: it has no such connection (V-7).
    pair.run_until_idle();
    assert_eq!(pair.rails[1].device().unwrap().qps(), 1);
    // A second one is ignored (V-6).
    pair.deliver(&recorded);
    assert_eq!((pair.rails[1].device().unwrap().qps(), pair.take().len()), (1, 0));
    assert!(pair.reported.iter().all(|reported| reported.up == 0 && reported.down.is_empty()));
}

/// V-3: the same without an answer.
#[test]
fn incoming_dial_that_is_never_completed_is_abandoned() {
    let mut pair = Pair::new();
    pair.connect(0);
    let recorded = pair.take().remove(0);
    pair.rails[0].disconnect(PeerId(1));
    pair.deliver(&recorded);
    for _ in 0..200 {
        pair.pass(Nanos::from_millis(1));
        pair.take();
    }
    assert_eq!(pair.rails[1].device().unwrap().qps(), 1);
    assert!(pair.reported.iter().all(|reported| reported.up == 0 && reported.down.is_empty()));
}

/// V-5: a call that lost against the other's comes late, on an established connection: it ends nothing (V-6).
#[test]
fn late_message_of_a_yielded_dial_keeps_the_connection() {
    for late in [0, 1] {
        let mut pair = Pair::new();
        pair.connect(0);
        pair.connect(1);
        let sent = pair.take();
        assert_eq!(sent.len(), 2);
        // The other one first; the late one is in flight all the time.
        pair.deliver(&sent[1 - late]);
        for _ in 0..60 {
            for datagram in pair.take().into_iter().filter(|datagram| *datagram != sent[late]) {
                pair.deliver(&datagram);
            }
            pair.pass(Nanos::from_millis(1));
        }
        pair.deliver(&sent[late]);
        pair.run_until_idle();
        pair.assert_whole();
        assert!(
            pair.reported.iter().all(|reported| reported.up == 1 && reported.down.is_empty()),
            "{late}: {:?}",
            pair.reported
        );
    }
}

/// V-5: the lower rank's call is answered.
#[test]
fn of_crossing_calls_the_lower_ranks_wins() {
    let mut pair = Pair::new();
    pair.connect(0);
    pair.connect(1);
    let sent = pair.take();
    sent.iter().for_each(|datagram| pair.deliver(datagram));
    let answers = pair.take();
    assert!(answers.len() == 1 && answers[0].from == 17, "{answers:?}");
    assert!(matches!(kind_of(&answers[0]), SetupKind::Reply { .. }));
    pair.deliver(&answers[0]);
    pair.run_until_idle();
    pair.assert_whole();
}

/// V-9: READY was lost, and the caller has sent all of its messages: the called gets both nevertheless.
#[test]
fn early_disconnect_waits_until_the_peer_is_ready() {
    let mut pair = Pair::new();
    pair.connect(0);
    for _ in 0..2 {
        let sent = pair.take();
        pair.deliver(&sent[0]);
    }
    pair.take();
    pair.send(0);
    pair.rails[0].disconnect(PeerId(1));
    pair.poll();
    assert!(pair.rails[0].is_closing());
    pair.pass(Nanos::from_millis(2));
    pair.run_until_idle();
    assert_eq!((pair.reported[1].up, pair.reported[1].arrived), (1, 1));
    // The called sends nothing, so only the time ends it.
    assert!(pair.rails[0].is_closing());
    pair.pass(options().drain_time);
    pair.run_until_idle();
    assert!(!pair.rails[0].is_closing());
    assert_eq!(pair.reported[1].down, [RailFault::Closed]);
}

/// V-6, V-7: a reply of an earlier attempt does not answer the next one.
#[test]
fn a_stale_reply_is_refused() {
    let mut pair = Pair::new();
    pair.connect(0);
    let request = pair.take().remove(0);
    pair.deliver(&request);
    let stale = pair.take().remove(0);
    pair.rails[0].disconnect(PeerId(1));
    pair.take();
    pair.connect(0);
    pair.deliver(&stale);
    assert!(!pair.reported[0].standing);
    pair.run_until_idle();
    // The new request ended the called's connection; it is sent again.
    for _ in 0..20 {
        pair.pass(Nanos::from_millis(1));
        pair.run_until_idle();
    }
    pair.assert_whole();
    assert!(pair.reported.iter().all(|reported| reported.up == 1 && reported.down.is_empty()), "{:?}", pair.reported);
}

/// Another process of the job, which may claim to be `rank`.
fn third(pair: &Pair, rank: u32) -> VerbsRail<FakeDevice> {
    let device = FakeDevice::new(&pair.wire, 18);
    let secret = Secret::new([9; 32]);
    let identity = Identity { credentials: credentials(2), job: 5, me: PeerId(rank), secret };
    let mut third = VerbsRail::open(device, 1, VerbsOptions { peers: 3, ..options() }, identity).unwrap();
    meet(&mut third, 0, &pair.rails[0].address());
    third
}

/// V-3: a message for another process, which had this address, is not answered.
#[test]
fn a_call_for_another_process_is_not_answered() {
    let mut pair = Pair::new();
    let mut third = third(&pair, 2);
    assert_eq!(pair.rails[0].add_peer(PeerId(1), &third.address()), Ok(true));
    pair.connect(0);
    let request = pair.take().remove(0);
    pair.wire.borrow_mut().deliver(&request);
    third.poll(Time(0), &mut Reported::default());
    assert!(pair.take().is_empty());
    assert_eq!(third.counters().unauthenticated, 1);
    for _ in 0..200 {
        pair.pass(Nanos::from_millis(1));
        pair.take();
    }
    assert_eq!(pair.reported[0].down, [RailFault::TimedOut]);
}

/// V-3: a member of the job that claims to be another one is refused, whatever it sends and whichever process
/// has its key.
#[test]
fn a_member_that_claims_to_be_another_ends_nothing() {
    let mut pair = Pair::new();
    pair.connect(1);
    pair.run_until_idle();
    let mut impostor = third(&pair, 1);
    // Its attempts are newer than those of the true rank 1 (V-6).
    for attempt in 1..=4 {
        impostor.connect(Time(0), PeerId(0));
        let requests = pair.take();
        assert!(matches!(kind_of(&requests[0]), SetupKind::Request(_)));
        for request in &requests {
            pair.deliver(request);
        }
        assert_eq!(pair.rails[0].counters().unauthenticated, attempt);
        impostor.abort(PeerId(0));
        for refusal in pair.take() {
            pair.wire.borrow_mut().deliver(&refusal);
        }
        impostor.poll(Time(0), &mut Reported::default());
    }
    pair.run_until_idle();
    pair.assert_whole();
    assert!(pair.reported.iter().all(|reported| reported.up == 1 && reported.down.is_empty()), "{:?}", pair.reported);
}

/// V-3: without a peer's key nothing is sent to it, and what it sends is dropped.
#[test]
fn peer_without_a_key_is_refused() {
    let mut pair = Pair::new();
    let mut third = third(&pair, 2);
    third.trust(PeerId(0), &PeerKey::Fingerprint(credentials(0).public().fingerprint()));
    let (mut other, wire) = (self::third(&pair, 2), pair.wire.clone());
    assert_eq!(other.add_peer(PeerId(1), &pair.rails[1].address()), Ok(true));
    other.connect(Time(0), PeerId(1));
    assert!(pair.take().is_empty(), "no key, no message");
    other.connect(Time(0), PeerId(0));
    let request = pair.take().remove(0);
    wire.borrow_mut().deliver(&request);
    pair.poll();
    assert_eq!(pair.rails[0].counters().unauthenticated, 1, "rank 0 has no peer of rank 2");
    assert!(pair.take().is_empty());
}

/// The rail's own buffers are pinned, payload is as the device offers it; a missing feature is an error with
/// its name.
#[test]
fn registration_and_moderation_follow_the_options() {
    let moderation = Moderation { count: 8, period_us: 50 };
    let open = |offers, options| {
        let wire = SharedWire::default();
        let device = FakeDevice::new(&wire, 16);
        device.set_offers(offers);
        let secret = Secret::new([9; 32]);
        let identity = Identity { credentials: credentials(0), job: 5, me: PeerId(0), secret };
        VerbsRail::open(device, 1, options, identity)
    };
    let wanting = |on_demand| VerbsOptions { on_demand, ..options() };
    let mut memory = vec![0u8; 4096];
    let piece = Piece { start: memory.as_mut_ptr(), len: memory.len() };
    for (on_demand, offers, unpinned) in [
        (OnDemandUse::Always, Offers::WHOLE, 1),
        (OnDemandUse::WhereOffered, Offers::WHOLE, 1),
        (OnDemandUse::WhereOffered, Offers::default(), 0),
        (OnDemandUse::Never, Offers::WHOLE, 0),
    ] {
        let mut rail = open(offers, wanting(on_demand)).unwrap();
        assert_eq!(rail.device.unpinned(), 0, "its own buffers");
        // SAFETY: `memory` outlives the rail.
        let key = unsafe { rail.register(piece, true) }.unwrap();
        assert_eq!(rail.device.unpinned(), unpinned, "{on_demand:?} {offers:?}");
        rail.deregister(key);
    }
    let error = open(Offers::default(), wanting(OnDemandUse::Always)).unwrap_err();
    let missing = vec!["registration on demand"];
    assert_eq!(error, VerbsError::NoOnDemand { device: "fake".into(), transport: "RC", missing });

    let moderated = || VerbsOptions { moderation, ..options() };
    let rail = open(Offers::WHOLE, moderated()).unwrap();
    assert_eq!(rail.device.moderated(), [moderation]);
    assert_eq!(open(Offers::WHOLE, options()).unwrap().device.moderated(), []);
    for (most, field, value, max, words) in [
        (None, "count", 8, 0, "it does not at all"),
        (Some(Moderation { count: 128, period_us: 16 }), "period_us", 50, 16, "by up to 128 completions and 16 us"),
    ] {
        let error = open(Offers { moderation: most, ..Offers::WHOLE }, moderated()).unwrap_err();
        let why = ModifyError::OutOfRange { field, value, min: 0, max };
        assert_eq!(error, VerbsError::Moderation { device: "fake".into(), most, why });
        let text = error.to_string();
        assert!(text.contains("device fake") && text.contains(words) && text.contains("verbs_moderation"), "{text}");
    }
}

/// The fate of the datagrams on their way, and events between.
#[derive(Clone, Debug)]
enum Act {
    Connect(usize),
    /// One is delivered, taken away or left.
    Deliver(usize, bool),
    Lose(usize),
    Pass(u64),
    Disconnect(usize),
    /// One that was sent at any time.
    Replay(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0usize..2).prop_map(Act::Connect),
        12 => (any::<usize>(), any::<bool>()).prop_map(|(which, take)| Act::Deliver(which, take)),
        3 => any::<usize>().prop_map(Act::Lose),
        4 => (0u64..20).prop_map(Act::Pass),
        1 => (0usize..2).prop_map(Act::Disconnect),
        2 => any::<usize>().prop_map(Act::Replay),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    /// V-4 to V-7: whatever was lost, repeated, delayed or recorded: once the wire works and both sides
    /// request it, there is a connection, and nothing is left of any other.
    #[test]
    fn in_the_end_there_is_one_connection(acts in proptest::collection::vec(act(), 0..60)) {
        let mut pair = Pair::new();
        let (mut flying, mut recorded): (Vec<Flying>, Vec<Flying>) = Default::default();
        for act in acts {
            match act {
                Act::Connect(rank) => pair.connect(rank),
                Act::Deliver(which, take) if !flying.is_empty() => {
                    let which = which % flying.len();
                    let datagram = if take { flying.remove(which) } else { flying[which].clone() };
                    pair.deliver(&datagram);
                }
                Act::Lose(which) if !flying.is_empty() => {
                    let which = which % flying.len();
                    flying.remove(which);
                }
                Act::Pass(millis) => pair.pass(Nanos::from_millis(millis)),
                Act::Disconnect(rank) => {
                    pair.rails[rank].disconnect(PeerId(1 - rank as u32));
                    pair.reported[rank].standing = false;
                    pair.poll();
                }
                Act::Replay(which) if !recorded.is_empty() => {
                    let datagram = recorded[which % recorded.len()].clone();
                    pair.deliver(&datagram);
                }
                _ => {}
            }
            let sent = pair.take();
            recorded.extend(sent.iter().cloned());
            flying.extend(sent);
        }
        // A side that finds the other's end gone, by sending, calls again, as the core's user might.
        for round in 0..400 {
            for datagram in pair.take() {
                pair.deliver(&datagram);
            }
            if pair.reported[0].standing && pair.reported[1].standing {
                let before = [pair.reported[0].arrived, pair.reported[1].arrived];
                pair.send(0);
                pair.send(1);
                if pair.reported[0].arrived > before[0] && pair.reported[1].arrived > before[1] {
                    break;
                }
            }
            for rank in 0..2 {
                if !pair.reported[rank].standing {
                    pair.connect(rank);
                } else if round % 20 == 19 {
                    pair.send(rank);
                }
            }
            pair.pass(Nanos::from_millis(5));
        }
        pair.run_until_idle();
        pair.assert_whole();
    }
}
