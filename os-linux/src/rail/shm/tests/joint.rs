//! Joint copies: every byte right, whichever side copies it; nothing written behind the end of a read; peers
//! that stop, die or lie.

use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rerail_core::shm::{CLAIM_UNITS_MAX, Claimed, OwnerClaims};
use rustix::process::{Pid, Signal, kill_process};
use zerocopy::{FromBytes, IntoBytes};

use super::super::copy::BYTES_PER_POLL;
use super::super::gate;
use super::super::joint::{CLAIM_TIMEOUT, JOINT_BYTES_MAX, JOINT_BYTES_MIN, REST, Request};
use super::super::reach::{Reach, Seal};
use super::super::segment::{Inbound, Outbound};
use super::hostile::join_with;
use super::reads::{at, pattern, whole};
use super::*;

/// Polls a node so often.
fn poll_times(node: &mut Node, times: usize) {
    for _ in 0..times {
        node.poll();
    }
}

/// L-21, L-22: whichever side comes first, at odd sizes and alignments.
#[test]
fn joint_copy_is_correct_for_any_division_of_work() {
    let (mut a, mut b) = connected([0, 1]);
    let sizes = [JOINT_BYTES_MIN, JOINT_BYTES_MIN + 1, 65_537, 3 * BYTES_PER_POLL + 77, 9 * BYTES_PER_POLL - 4095];
    let mut helped = 0;
    for (n, size) in sizes.into_iter().enumerate() {
        for (skip_source, skip_target) in [(0, 0), (1, 0), (0, 3), (4095, 4093)] {
            for (polls_a, polls_b) in [(1, 1), (3, 1), (1, 3), (0, 1), (40, 1)] {
                let source = pattern(size + skip_source, n as u8);
                let mut target = vec![0xEE; size + skip_target + 5];
                let (id, before) = (b.posts + 1, a.rail.counters().system_calls);
                b.read(0, at(&source[skip_source..]), &[whole(&mut target[skip_target..][..size])]);
                while b.sink.completed.last().is_none_or(|done| done.0.index != id) {
                    poll_times(&mut b, polls_b);
                    poll_times(&mut a, polls_a);
                }
                helped += usize::from(a.rail.counters().system_calls > before);
                assert!(target[skip_target..][..size] == source[skip_source..], "{size} bytes");
                assert!(target[..skip_target].iter().chain(&target[skip_target + size..]).all(|byte| *byte == 0xEE));
                run_until_idle(&mut [&mut a, &mut b]);
            }
        }
    }
    // The first eight of a size class are joint, whatever was measured.
    assert!(helped >= 6, "{helped}");
    assert!(b.sink.down.is_empty() && b.sink.unread.is_empty());
}

/// Each large piece is a copy of its own.
#[test]
fn pieces_of_all_sizes_are_filled_by_both() {
    let (mut a, mut b) = connected([0, 1]);
    let lens: Vec<usize> =
        (0..40).map(|i| [0, 1, 70_001, 4096, JOINT_BYTES_MIN, BYTES_PER_POLL + 3, 31][i % 7]).collect();
    let source = pattern(lens.iter().sum(), 9);
    let mut targets: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
    let pieces: Vec<Piece> = targets.iter_mut().map(|target| whole(target)).collect();
    let id = b.read(0, at(&source), &pieces);
    run(&mut [&mut a, &mut b], |nodes| nodes[1].sink.completed == [id]);
    assert!(targets.concat() == source);
}

/// Both directions at once, and packets between.
#[test]
fn both_sides_read_at_once() {
    let (mut a, mut b) = connected([0, 1]);
    let sources = [pattern(5_000_001, 1), pattern(3_000_077, 2)];
    let mut targets = sources.each_ref().map(|source| vec![0; source.len()]);
    let [to_b, to_a] = &mut targets;
    let (of_b, of_a) = (b.read(0, at(&sources[0]), &[whole(to_b)]), a.read(1, at(&sources[1]), &[whole(to_a)]));
    for number in 0..50 {
        a.send(1, number, 900);
        b.send(0, number, 900);
        b.poll();
        a.poll();
    }
    run_until_idle(&mut [&mut a, &mut b]);
    assert!(a.sink.completed.contains(&of_a) && b.sink.completed.contains(&of_b));
    assert!(targets == sources);
    assert_eq!((a.taken_from(1).len(), b.taken_from(0).len()), (50, 50));
}

/// An owner whose memory is not there is no better off than the reader: the read fails, and nothing else.
#[test]
fn memory_that_is_not_there_ends_the_read_only() {
    let (mut a, mut b) = connected([0, 1]);
    let (len, page) = (4 * BYTES_PER_POLL, 4096);
    // SAFETY: a new mapping; a part of it is unmapped at once.
    let base = unsafe {
        let (flags, rights) = (rustix::mm::MapFlags::PRIVATE, rustix::mm::ProtFlags::READ);
        let base = rustix::mm::mmap_anonymous(std::ptr::null_mut(), len + page, rights, flags).unwrap();
        rustix::mm::munmap(base.byte_add(len), page).unwrap();
        base.addr() as u64
    };
    let mut target = vec![0xEE; len + 100];
    for from in [base + page as u64, base + len as u64 - 60_000, u64::MAX - 100_000_000] {
        let id = b.read(0, from, &[whole(&mut target[..len])]);
        run(&mut [&mut a, &mut b], |nodes| nodes[1].sink.unread.last() == Some(&id));
        target[..len].fill(0xEE);
        run_until_idle(&mut [&mut a, &mut b]);
        assert!(target.iter().all(|byte| *byte == 0xEE), "nothing is written behind the end");
    }
    let honest = pattern(len, 1);
    let good = b.read(0, at(&honest), &[whole(&mut target[..len])]);
    run(&mut [&mut a, &mut b], |nodes| nodes[1].sink.completed == [good]);
    assert!(target[..len] == honest && b.sink.down.is_empty() && a.sink.down.is_empty());
}

/// A peer that plays its side by hand: rank 1, in this process.
struct Player {
    socket: OwnedFd,
    inbound: Inbound,
    outbound: Outbound,
    seal: Seal,
}

impl Player {
    fn join(node: &mut Node) -> Self {
        let seal = Seal::new().unwrap();
        let (socket, inbound, outbound) = join_with(node, 1, Some(&seal));
        Player { socket, inbound, outbound, seal }
    }

    /// The request of `node` for a piece.
    fn request(&mut self) -> Request {
        loop {
            let front = self.inbound.front().unwrap().expect("a note");
            let note = front.is_note().then(|| Request::read_from_bytes(front.header()).unwrap());
            front.release();
            if let Some(request) = note {
                assert_eq!(request.pass, self.seal.pass());
                return request;
            }
        }
    }

    /// Where the other side, which is this process, is.
    fn reach(&self) -> Reach {
        Reach::of_this_process(&self.seal)
    }

    fn word(&self) -> &std::sync::atomic::AtomicU64 {
        self.inbound.claims()
    }
}

/// A node, its player, and a read of the node's that is in progress, with the player's request.
fn begun(source: &[u8], target: &mut [u8]) -> (Node, Player, Request, OwnerClaims) {
    let mut node = Node::new(0);
    let mut player = Player::join(&mut node);
    node.read(1, at(source), &[whole(target)]);
    node.poll();
    let request = player.request();
    assert_eq!((request.from.get(), request.bytes.get()), (at(source), source.len() as u64));
    let units = source.len().div_ceil(4096) as u32;
    let claims = OwnerClaims::new(request.generation.get(), units).unwrap();
    (node, player, request, claims)
}

/// Polls until `over`, for as long as it takes to take claims back.
fn until(node: &mut Node, mut over: impl FnMut(&mut Node) -> bool) {
    let since = Instant::now();
    while !over(node) {
        assert!(since.elapsed() < Duration::from_secs(20), "what the test waits for does not come");
        node.poll();
    }
}

/// L-23: a claim that is not finished is taken back: the read completes, by this side's copies, and what the
/// owner writes later does not come.
#[test]
fn a_claim_that_is_not_finished_is_taken_back() {
    let (source, mut target) = (pattern(1_000_003, 3), vec![0; 1_000_003]);
    let (mut node, mut player, request, mut claims) = begun(&source, &mut target);
    let since = Instant::now();
    let Claimed { first, count } = claims.take(player.word(), |_| 60).unwrap();
    for _ in 0..20 {
        node.poll();
        let is_late = since.elapsed() >= CLAIM_TIMEOUT;
        assert!(is_late || node.sink.completed.is_empty(), "not before the claim is finished or taken back");
    }
    until(&mut node, |node| node.sink.completed.len() == 1);
    assert!(target == source);
    target.fill(0xEE);
    let start = u64::from(first) * 4096;
    let ranges = (request.from.get() + start, request.to.get() + start, 4096 * count as usize / 2);
    let reach = player.reach();
    let late = |token| gate::write(&reach, request.gate.get(), token, ranges);
    assert_eq!(late(claims.token()), Err(Errno::FAULT));
    assert!(target.iter().all(|byte| *byte == 0xEE));
    // Until the owner has come back, no further help is requested.
    let requests_help = |node: &mut Node, player: &mut Player, target: &mut Vec<u8>| {
        let done = node.sink.completed.len();
        node.read(1, at(&source), &[whole(target)]);
        until(node, |node| node.sink.completed.len() > done);
        assert!(*target == source);
        let mut notes = 0;
        while let Some(front) = player.inbound.front().unwrap() {
            notes += usize::from(front.is_note());
            front.release();
        }
        notes
    };
    assert_eq!(requests_help(&mut node, &mut player, &mut target), 0);
    assert_eq!(late(claims.token()), Err(Errno::FAULT));
    claims.leave(player.word());
    // Nor at once then: of the pieces that it rests for, one has passed.
    for _ in 1..*REST.start() {
        assert_eq!(requests_help(&mut node, &mut player, &mut target), 0);
    }
    assert_eq!(requests_help(&mut node, &mut player, &mut target), 1);
}

/// F-2, L-23, L-24: after the end of a subchannel nothing is written, whatever was claimed; not even when
/// the rail is gone.
#[test]
fn nothing_is_written_after_the_end_of_a_subchannel() {
    for end in 0..4 {
        let (source, mut target) = (pattern(1_000_003, 3), vec![0; 1_000_003]);
        let (mut node, player, request, mut claims) = begun(&source, &mut target);
        let Claimed { first, count } = claims.take(player.word(), |_| 60).unwrap();
        let (player, mut node) = match end {
            0 => {
                node.rail.abort(PeerId(1));
                (Some(player), Some(node))
            }
            1 => {
                node.rail.disconnect(PeerId(1));
                (Some(player), Some(node))
            }
            2 => {
                drop(player);
                until(&mut node, |node| !node.sink.down.is_empty());
                assert_eq!(node.sink.down, [(PeerId(1), RailFault::Closed)]);
                (None, Some(node))
            }
            _ => {
                drop(node);
                (Some(player), None)
            }
        };
        target.fill(0xEE);
        let seal = Seal::new().unwrap();
        let reach = player.as_ref().map_or_else(|| Reach::of_this_process(&seal), Player::reach);
        let start = u64::from(first) * 4096;
        let ranges = (request.from.get() + start, request.to.get() + start, 4096 * count as usize / 2);
        assert_eq!(gate::write(&reach, request.gate.get(), claims.token(), ranges), Err(Errno::FAULT), "end {end}");
        if let Some(node) = &mut node {
            run_until_idle(&mut [node]);
            assert!(node.sink.completed.is_empty());
        }
        assert!(target.iter().all(|byte| *byte == 0xEE), "end {end}");
    }
}

/// L-22: what no honest owner writes to the word ends the subchannel, and nothing was reported.
#[test]
fn invalid_claim_word_is_reported_corrupt() {
    let lies: [fn(u64) -> u64; 5] = [
        |word| word + 1,
        |word| word - 1,
        // Claims beyond the front.
        |word| word | u64::from(CLAIM_UNITS_MAX) << 20,
        // Another generation.
        |word| word + (1 << 40),
        |word| word | 1 << 62,
    ];
    for (n, lie) in lies.into_iter().enumerate() {
        let (source, mut target) = (pattern(2_000_003, 3), vec![0; 2_000_003]);
        let (mut node, player, ..) = begun(&source, &mut target);
        let word = player.word().load(Ordering::SeqCst);
        player.word().store(lie(word), Ordering::SeqCst);
        until(&mut node, |node| !node.sink.down.is_empty());
        assert_eq!(node.sink.down, [(PeerId(1), RailFault::Corrupt)], "lie {n}");
        assert!(node.sink.completed.is_empty());
    }
}

/// L-22: a claim that goes back, as by a peer that claims twice.
#[test]
fn a_claim_that_is_undone_is_corrupt() {
    let (source, mut target) = (pattern(2_000_003, 3), vec![0; 2_000_003]);
    let (mut node, player, _, mut claims) = begun(&source, &mut target);
    let before = player.word().load(Ordering::SeqCst);
    claims.take(player.word(), |_| 60).unwrap();
    node.poll();
    player.word().store(before + 64, Ordering::SeqCst);
    until(&mut node, |node| !node.sink.down.is_empty());
    assert_eq!(node.sink.down, [(PeerId(1), RailFault::Corrupt)]);
}

/// L-23: a peer that reports as written what it has not written spoils its own message, and nothing else.
#[test]
fn a_lie_about_the_end_costs_the_liars_message_only() {
    let (source, mut memory) = (pattern(1_000_003, 3), vec![0xEE; 1_000_003 + 20]);
    let (mut node, player, request, mut claims) = begun(&source, &mut memory[10..1_000_013]);
    claims.take(player.word(), |_| 60).unwrap();
    // Its one byte is a lie about all.
    let one = (request.from.get(), request.to.get(), 1);
    gate::write(&player.reach(), request.gate.get(), claims.token(), one).unwrap();
    until(&mut node, |node| node.sink.completed.len() == 1);
    assert!(memory[..10].iter().chain(&memory[1_000_013..]).all(|byte| *byte == 0xEE));
    assert!(memory[10..700_000] == source[..699_990]);
    // A token of another message or claim is none.
    for token in [0, claims.token() + (1 << 20), claims.token() + (1 << 40), u64::MAX] {
        let (source, mut target) = (pattern(1_000_003, 4), vec![0; 1_000_003]);
        let (mut node, player, request, mut claims) = begun(&source, &mut target);
        claims.take(player.word(), |_| 60).unwrap();
        let one = (request.from.get(), request.to.get(), 1);
        gate::write(&player.reach(), request.gate.get(), token, one).unwrap();
        claims.leave(player.word());
        until(&mut node, |node| node.sink.completed.len() == 1);
        assert!(target == source, "token {token:x}");
    }
}

/// L-21: a request that no honest reader makes ends the subchannel; nothing is written for it.
#[test]
fn a_request_of_no_honest_reader_is_corrupt() {
    let good = |player: &Player, node: &Node| Request {
        pass: player_pass(node),
        generation: 1.into(),
        zero: 0.into(),
        from: at(&[0; 8]).into(),
        to: (player.seal.address()).into(),
        bytes: 4096.into(),
        gate: 4096.into(),
    };
    let lies: [fn(&mut Request); 9] = [
        |request| request.pass[3] ^= 1,
        |request| request.pass = [0; 16],
        |request| request.generation = 0.into(),
        |request| request.generation = (1 << 22).into(),
        |request| request.zero = 1.into(),
        |request| request.bytes = 0.into(),
        |request| request.bytes = (JOINT_BYTES_MAX as u64 + 1).into(),
        |request| request.from = (u64::MAX - 100).into(),
        |request| request.to = (u64::MAX - 100).into(),
    ];
    for (n, lie) in lies.into_iter().enumerate() {
        let mut node = Node::new(0);
        let mut player = Player::join(&mut node);
        let mut request = good(&player, &node);
        lie(&mut request);
        player.outbound.push_note(request.as_bytes()).unwrap();
        run_until_idle(&mut [&mut node]);
        assert_eq!(node.sink.down, [(PeerId(1), RailFault::Corrupt)], "lie {n}");
    }
    let mut node = Node::new(0);
    let mut player = Player::join(&mut node);
    player.outbound.push_note(&good(&player, &node).as_bytes()[..55]).unwrap();
    run_until_idle(&mut [&mut node]);
    assert_eq!(node.sink.down, [(PeerId(1), RailFault::Corrupt)]);
    // With the pass, but to a gate that is none: the node leaves the copy, and stands.
    let mut node = Node::new(0);
    let mut player = Player::join(&mut node);
    let request = good(&player, &node);
    rerail_core::shm::ReaderClaims::offer(player.outbound.claims(), 1, 1);
    player.outbound.push_note(request.as_bytes()).unwrap();
    run_until_idle(&mut [&mut node]);
    assert!(node.sink.down.is_empty());
    assert_eq!(player.outbound.claims().load(Ordering::SeqCst) >> 63, 1);
    drop(player.socket);
}

/// The secret behind a node's seal.
fn player_pass(node: &Node) -> [u8; 16] {
    let index = node.rail.link_index(PeerId(1)).expect("a link");
    node.rail.links[index].memory.as_ref().expect("memory").0.pass()
}

const ADDRESS: &str = "RERAIL_TEST_SHM_JOINT";
const ROLE: &str = "RERAIL_TEST_SHM_JOINT_ROLE";
const BYTES: usize = 16 * BYTES_PER_POLL + 777;

/// The other process of the tests below; nothing where it is run by itself. It polls until it is killed.
#[test]
fn child() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let is_reader = std::env::var(ROLE).is_ok_and(|role| role == "reader");
    let mut me = Node::new(1);
    meet(&mut me.rail, 0, &address);
    me.connect(0);
    let (source, mut target) = (pattern(BYTES, 5), vec![0; BYTES]);
    let since = Instant::now();
    let (mut seen, mut downs) = (0, 0);
    while since.elapsed() < Duration::from_secs(120) {
        me.poll();
        if me.sink.up.len() > seen {
            seen = me.sink.up.len();
            // The header has only the address of its memory.
            let mut header = vec![0u8; 8];
            header.extend(at(&source).to_le_bytes());
            let (id, kind) = (PostId(Key { index: 1, generation: 1 }), PostKind::Send);
            let outgoing = Outgoing { id, peer: PeerId(0), kind, header: &header, payload: &[], extent: 0 };
            // SAFETY: there is no payload.
            unsafe { me.rail.post(outgoing) };
        }
        if me.sink.down.len() > downs {
            downs = me.sink.down.len();
            me.connect(0);
        }
        if is_reader && let Some((_, header, _)) = me.sink.taken.pop() {
            let from = u64::from_le_bytes(header[8..16].try_into().unwrap());
            for _ in 0..1000 {
                me.read(0, from, &[whole(&mut target)]);
            }
        }
    }
}

fn start(me: &mut Node, role: &str) -> Child {
    expect(me, 1);
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rail::shm::tests::joint::child"])
        .env(ADDRESS, me.rail.address())
        .env(ROLE, role)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Where the memory of the process lies that has just connected.
fn memory_of_child(me: &mut Node) -> u64 {
    until(me, |me| !me.sink.taken.is_empty());
    u64::from_le_bytes(me.sink.taken.pop().unwrap().1[8..16].try_into().unwrap())
}

/// F-2: whenever a subchannel is aborted, the other process, which copies meanwhile, writes nothing from
/// then on.
#[test]
fn a_process_that_copies_writes_nothing_after_an_abort() {
    let mut me = Node::new(0);
    let mut child = start(&mut me, "owner");
    let source = pattern(BYTES, 5);
    let (mut target, mut helped, untouched) = (vec![0; BYTES], 0, vec![0xEE; BYTES]);
    for round in 0..100 {
        let address = memory_of_child(&mut me);
        target.fill(0);
        me.read(1, address, &[whole(&mut target)]);
        for _ in 0..1 + round % 9 {
            me.poll();
        }
        me.rail.abort(PeerId(1));
        helped += usize::from(target[BYTES - 1] == source[BYTES - 1] && target[BYTES - 2] == source[BYTES - 2]);
        target.fill(0xEE);
        std::thread::sleep(Duration::from_micros(300));
        assert!(target == untouched, "round {round}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(helped > 0, "it never copied");
}

/// L-23: a process is stopped at any moment of a copy: the read completes without it, and what it does when
/// it goes on changes nothing. Then it is killed.
#[test]
fn process_stopped_during_a_joint_copy_does_not_block_it() {
    let mut me = Node::new(0);
    let mut child = start(&mut me, "owner");
    let (source, address) = (pattern(BYTES, 5), memory_of_child(&mut me));
    let (mut target, untouched) = (vec![0; BYTES], vec![0xEE; BYTES]);
    for round in 0..40 {
        let (done, pid) = (me.sink.completed.len(), Pid::from_child(&child));
        target.fill(0);
        me.read(1, address, &[whole(&mut target)]);
        for _ in 0..round % 8 {
            me.poll();
        }
        kill_process(pid, Signal::STOP).unwrap();
        until(&mut me, |me| me.sink.completed.len() > done);
        assert!(target == source, "round {round}");
        target.fill(0xEE);
        kill_process(pid, Signal::CONT).unwrap();
        std::thread::sleep(Duration::from_micros(300));
        assert!(target == untouched, "round {round}");
    }
    for polls in [3, 1, 5] {
        me.read(1, address, &[whole(&mut target)]);
        poll_times(&mut me, polls);
    }
    child.kill().unwrap();
    until(&mut me, |me| !me.sink.down.is_empty());
    target.fill(0xEE);
    child.wait().unwrap();
    assert_eq!(me.sink.down, [(PeerId(1), RailFault::Closed)]);
    assert!(target.iter().all(|byte| *byte == 0xEE) && me.rail.links.is_empty());
}

/// A reader that is killed while this process copies for it: it is reported, and no more.
#[test]
fn a_reader_that_is_killed_in_mid_copy_is_reported() {
    let mut me = Node::new(0);
    let mut child = start(&mut me, "reader");
    let source = pattern(BYTES, 6);
    until(&mut me, |me| !me.sink.up.is_empty());
    let mut header = vec![0u8; 8];
    header.extend(at(&source).to_le_bytes());
    let (id, kind) = (PostId(Key { index: 1, generation: 1 }), PostKind::Send);
    let outgoing = Outgoing { id, peer: PeerId(1), kind, header: &header, payload: &[], extent: 0 };
    // SAFETY: there is no payload.
    unsafe { me.rail.post(outgoing) };
    let calls = me.rail.counters().system_calls;
    until(&mut me, |me| me.rail.counters().system_calls > calls + 2000);
    child.kill().unwrap();
    until(&mut me, |me| !me.sink.down.is_empty());
    assert_eq!(me.sink.down, [(PeerId(1), RailFault::Closed)]);
    child.wait().unwrap();
}
