//! Processes that don't keep to the protocol: without the key, and with it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rerail_core::wire::handshake::{RefusedBecause, Transport};
use rustix::fs::{self, MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use zerocopy::IntoBytes;

use super::super::connect::Share;
use super::super::offers::LIST_REQUEST;
use super::super::reach::Seal;
use super::super::segment::{Inbound, Outbound};
use super::super::socket::Received;
use super::*;
use crate::auth::{Attempts, AuthError, Call, Dialler, Secret, Step};

/// One that is broken at once: this process reads nothing.
fn seal() -> Seal {
    Seal::new().unwrap()
}

fn dial(node: &Node) -> OwnedFd {
    let address = node.rail.address();
    socket::dial(address.split_once('/').unwrap().1).unwrap()
}

/// Each call is newer than those before it.
fn call(from: u32, to: PeerId) -> Call {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let attempts = Attempts { attempt: CALLS.fetch_add(1, Ordering::Relaxed) + 1, answers: 0 };
    Call { transport: Transport::Shm, job: JOB, from: PeerId(from), to, rail: 0, attempts }
}

/// The next datagram that `node` sends to `socket`, polling it meanwhile; `None`: it hangs up.
fn answer(node: &mut Node, socket: &OwnedFd, descriptor: bool) -> Option<(Vec<u8>, Option<OwnedFd>)> {
    for _ in 0..1000 {
        node.poll();
        let mut bytes = [0; 256];
        match socket::receive(socket, &mut bytes, descriptor) {
            Received::Datagram(len, fd) => return Some((bytes[..len].into(), fd)),
            Received::End => return None,
            Received::Nothing => {}
            Received::Excess | Received::NoDescriptor => panic!("more than the protocol has"),
        }
    }
    panic!("neither answer nor hang-up");
}

/// Goes through the handshake as rank `rank`; returns the socket, the messages sent, and the ring that `node`
/// offers.
fn prove(node: &mut Node, rank: u32) -> (OwnedFd, Vec<Vec<u8>>, OwnedFd) {
    let socket = dial(node);
    expect(node, rank);
    let me = credentials(node.me().0).public().fingerprint();
    let (mut dialler, hello) = Dialler::new(&credentials(rank), call(rank, node.me()), me, [rank as u8; 32]);
    let mut sent = vec![hello.bytes().to_vec()];
    socket::send(&socket, hello.bytes(), None).unwrap();
    loop {
        let (message, _) = answer(node, &socket, false).unwrap();
        match dialler.handle(&message).unwrap() {
            Step::Send(message) => {
                sent.push(message.bytes().to_vec());
                socket::send(&socket, message.bytes(), None).unwrap();
            }
            Step::Authenticated { .. } => break,
            Step::Crossing => panic!("no other process dials"),
        }
    }
    let (_, memory) = answer(node, &socket, true).unwrap();
    (socket, sent, memory.unwrap())
}

/// As [`prove`], up to an established subchannel: the socket, and both rings.
pub(super) fn join(node: &mut Node, rank: u32) -> (OwnedFd, Inbound, Outbound) {
    join_with(node, rank, None)
}

/// As [`join`], as a process with this seal, which stands.
pub(super) fn join_with(node: &mut Node, rank: u32, stands: Option<&Seal>) -> (OwnedFd, Inbound, Outbound) {
    let (socket, _, memory) = prove(node, rank);
    let ring = options().ring();
    let (inbound, offered) = Inbound::create(ring).unwrap();
    let share = stands.map_or_else(|| Share::of(ring, false, &seal()), |seal| Share::of(ring, false, seal));
    socket::send(&socket, share.as_bytes(), Some(offered.as_fd())).unwrap();
    run_until_idle(&mut [node]);
    assert_eq!(node.sink.up.last(), Some(&PeerId(rank)));
    (socket, inbound, Outbound::open(memory, ring).unwrap())
}

/// Sends one datagram with several descriptors.
fn send_many(socket: &OwnedFd, bytes: &[u8], descriptors: &[std::os::fd::BorrowedFd<'_>]) {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    sendmsg(socket, &[std::io::IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
}

/// Memory in which nothing is wrong with the ring itself, so that only its size and seals can be why it is
/// refused.
fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
    let memory = blank(bytes);
    let (_, honest) = Inbound::create(options().ring()).unwrap();
    let mut constants = [0; 20];
    assert_eq!(rustix::io::pread(&honest, &mut constants, 384), Ok(20));
    assert_eq!(rustix::io::pwrite(&memory, &constants, 384), Ok(20));
    fs::fcntl_add_seals(&memory, seals).unwrap();
    memory
}

fn blank(bytes: u64) -> OwnedFd {
    let memory = fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    fs::ftruncate(&memory, bytes).unwrap();
    memory
}

/// H-4, H-5
#[test]
fn shm_connection_without_the_key_is_refused() {
    let (mut a, mut honest) = connected([0, 1]);
    let mut unknown_process = Node::of(2, options(), Credentials::new([2; 32], Secret::new([8; 32])));
    add_peers(&mut [&mut a, &mut unknown_process]);
    unknown_process.connect(0);
    run_until_idle(&mut [&mut a, &mut unknown_process]);
    assert_eq!(unknown_process.sink.down, [(PeerId(0), RailFault::Unauthenticated)]);
    a.connect(2);
    run_until_idle(&mut [&mut a, &mut unknown_process]);
    assert_eq!(a.sink.down, [(PeerId(2), RailFault::Unauthenticated)]);
    assert_eq!(a.rail.counters().unauthenticated, 2, "its call, and the one to it");
    assert_eq!((a.sink.up.len(), unknown_process.sink.up.len()), (1, 0));
    honest.send(0, 1, 1);
    run_until_idle(&mut [&mut a, &mut honest]);
    assert_eq!(a.sink.taken.len(), 1);
}

/// H-1, H-6
#[test]
fn garbage_before_the_proof_is_refused_at_any_length() {
    let mut a = Node::new(0);
    for (n, len) in [1, 31, 32, 79, 80, 81, 96, 4096, 60_000].into_iter().enumerate() {
        let socket = dial(&a);
        socket::send(&socket, &vec![0x52; len], None).unwrap();
        while let Some((message, fd)) = answer(&mut a, &socket, true) {
            assert!(message.len() <= 8 && fd.is_none(), "no more than a refusal");
        }
        assert_eq!(a.rail.counters().unauthenticated, n as u64 + 1, "{len} bytes");
    }
    assert!(a.rail.openings.is_empty() && a.sink.up.is_empty());
}

/// H-6, H-7
#[test]
fn a_recorded_handshake_is_worth_nothing() {
    let mut a = Node::new(0);
    let (socket, recorded, _memory) = prove(&mut a, 1);
    drop(socket);
    run_until_idle(&mut [&mut a]);
    let before = a.rail.counters().unauthenticated;
    let socket = dial(&a);
    for message in recorded {
        socket::send(&socket, &message, None).unwrap();
    }
    let mut last = Vec::new();
    while let Some((message, fd)) = answer(&mut a, &socket, true) {
        assert!(fd.is_none());
        last = message;
    }
    assert_eq!(last.len(), rerail_core::wire::handshake::VERDICT_BYTES);
    assert_eq!(a.rail.counters().unauthenticated, before + 1);
    assert!(a.sink.up.is_empty());
}

/// H-5: a member of the job, with all its secrets but another's private key.
#[test]
fn impostor_within_the_job_is_refused() {
    let (mut a, mut honest) = connected([0, 1]);
    let socket = dial(&a);
    let newer = Call { attempts: Attempts { attempt: 9, answers: 9 }, ..call(1, PeerId(0)) };
    let (mut impostor, opening) = Dialler::new(&credentials(2), newer, credentials(0).public().fingerprint(), [3; 32]);
    socket::send(&socket, opening.bytes(), None).unwrap();
    let (message, _) = answer(&mut a, &socket, false).unwrap();
    let Ok(Step::Send(proof)) = impostor.handle(&message) else { panic!("a proof is due") };
    socket::send(&socket, proof.bytes(), None).unwrap();
    let (ruling, _) = answer(&mut a, &socket, false).unwrap();
    assert_eq!(impostor.handle(&ruling).unwrap_err(), AuthError::Refused(RefusedBecause::Proof));
    assert_eq!((a.rail.counters().unauthenticated, a.sink.up.len(), a.rail.openings.len()), (1, 1, 0));
    // The connection of the true rank 1 has not ended.
    honest.send(0, 1, 1);
    run_until_idle(&mut [&mut a, &mut honest]);
    assert_eq!((a.sink.taken.len(), a.sink.down.len()), (1, 0));
}

/// H-9, H-10
#[test]
fn a_rank_outside_the_job_and_an_old_dial_are_refused() {
    let mut a = Node::new(0);
    let _first = join(&mut a, 1);
    for rank in [1, 8, u32::MAX] {
        let socket = dial(&a);
        // Its first was newer.
        let old = Call { attempts: Attempts { attempt: 1, answers: 0 }, ..call(rank, PeerId(0)) };
        let me = credentials(0).public().fingerprint();
        let (mut dialler, hello) = Dialler::new(&credentials(rank), old, me, [3; 32]);
        socket::send(&socket, hello.bytes(), None).unwrap();
        let (challenge, _) = answer(&mut a, &socket, false).unwrap();
        let Ok(Step::Send(proof)) = dialler.handle(&challenge) else { panic!("a proof is due") };
        socket::send(&socket, proof.bytes(), None).unwrap();
        let (verdict, _) = answer(&mut a, &socket, false).unwrap();
        assert!(matches!(dialler.handle(&verdict), Err(crate::auth::AuthError::Refused(_))), "rank {rank}");
    }
    assert_eq!((a.sink.up.len(), a.rail.links.len(), a.rail.openings.len()), (1, 1, 0));
}

/// H-7
#[test]
fn pending_unauthenticated_connections_are_limited() {
    let mut a = Node::with(0, ShmOptions { pending_max: 3, ..options() });
    let unknown_processes: Vec<OwnedFd> = (0..20)
        .map(|_| {
            let socket = dial(&a);
            a.rail.check_sockets = true;
            a.poll();
            socket
        })
        .collect();
    assert_eq!((a.rail.openings.len(), a.rail.counters().unauthenticated), (3, 17));
    let _peer = join(&mut a, 1);
    a.now = a.now + A_WHILE;
    run_until_idle(&mut [&mut a]);
    assert_eq!((a.rail.openings.len(), a.rail.next_timeout()), (0, None));
    assert!(a.sink.down.is_empty());
    drop(unknown_processes);
}

/// L-10
#[test]
fn descriptors_before_the_proof_never_get_in() {
    let mut a = Node::new(0);
    let socket = dial(&a);
    let (_, hello) = Dialler::new(&credentials(1), call(1, PeerId(0)), credentials(0).public().fingerprint(), [1; 32]);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    socket::send(&socket, hello.bytes(), Some(writer.as_fd())).unwrap();
    drop(writer);
    assert!(answer(&mut a, &socket, false).is_none());
    assert_eq!(a.rail.counters().unauthenticated, 1);
    // Had the rail kept the writing end, this would not be the pipe's end.
    assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0));
}

/// L-9, L-10: every wrong way to hand over a ring ends the connection, keeps nothing, and is counted.
#[test]
fn invalid_ring_is_not_mapped() {
    let ring = options().ring();
    let bytes = rerail_core::shm::ring_bytes(ring).unwrap() as u64;
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let honest = Share::of(ring, false, &seal());
    let of = |config| Share::of(config, false, &seal());
    let with = |slots, slot_bytes| of(RingConfig { slots, slot_bytes, ..ring });
    let (pipe, _writer) = rustix::pipe::pipe().unwrap();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
    let directory = std::fs::File::open("/").unwrap();
    let stamped = |config| Inbound::create(config).unwrap().1;
    let cases: Vec<(&str, Share, Option<OwnedFd>)> = vec![
        ("no descriptor", honest, None),
        ("a pipe", honest, Some(pipe)),
        ("a file", honest, Some(file.into())),
        ("an eventfd", honest, Some(event)),
        ("a directory", honest, Some(directory.into())),
        ("unsealed memory", honest, Some(memory(bytes, SealFlags::empty()))),
        ("memory that may shrink", honest, Some(memory(bytes, SealFlags::GROW | SealFlags::SEAL))),
        ("memory too small", honest, Some(memory(bytes - 4096, all))),
        ("memory too large", honest, Some(memory(bytes + 4096, all))),
        ("memory without writing", honest, Some(memory(bytes, all | SealFlags::WRITE))),
        (
            "memory without a ring",
            honest,
            Some({
                let blank = blank(bytes);
                fs::fcntl_add_seals(&blank, all).unwrap();
                blank
            }),
        ),
        ("another ring", honest, Some(stamped(RingConfig { slots: 3, ..ring }))),
        ("sizes that overflow", with(u32::MAX, u32::MAX), Some(memory(bytes, all))),
        ("more than is ever mapped", with(65536, 1 << 20), Some(memory(bytes, all))),
        ("other cells", honest, Some(stamped(RingConfig { cells: 2, ..ring }))),
        ("no cells", of(RingConfig { cells: 0, ..ring }), Some(memory(bytes, all))),
        ("cells that are no power of two", of(RingConfig { cells: 3, ..ring }), Some(memory(bytes, all))),
        ("no slots", with(0, ring.slot_bytes), Some(memory(512, all))),
    ];
    let mut a = Node::new(0);
    for (n, (what, share, fd)) in cases.into_iter().enumerate() {
        let (socket, ..) = prove(&mut a, 1);
        socket::send(&socket, share.as_bytes(), fd.as_ref().map(|fd| fd.as_fd())).unwrap();
        assert!(answer(&mut a, &socket, false).is_none(), "{what}");
        assert_eq!(a.rail.counters().corrupt, n as u64 + 1, "{what}");
    }
    assert!(a.sink.up.is_empty() && a.rail.openings.is_empty());
    // Wrong shapes of the datagram.
    let good = || memory(bytes, all);
    let (socket, ..) = prove(&mut a, 1);
    send_many(&socket, honest.as_bytes(), &[good().as_fd(), good().as_fd()]);
    assert!(answer(&mut a, &socket, false).is_none(), "two descriptors");
    let (socket, ..) = prove(&mut a, 1);
    let eight: Vec<OwnedFd> = (0..8).map(|_| good()).collect();
    send_many(&socket, honest.as_bytes(), &eight.iter().map(|fd| fd.as_fd()).collect::<Vec<_>>());
    assert!(answer(&mut a, &socket, false).is_none(), "eight descriptors");
    for len in [1, 16, 24, 47, 49, 60_000] {
        let (socket, ..) = prove(&mut a, 1);
        let mut long = honest.as_bytes().to_vec();
        long.resize(len, 0);
        socket::send(&socket, &long, Some(stamped(ring).as_fd())).unwrap();
        assert!(answer(&mut a, &socket, false).is_none(), "{len} bytes");
    }
    for at in [0, 4, 20] {
        let (socket, ..) = prove(&mut a, 1);
        let mut strange = honest.as_bytes().to_vec();
        strange[at] ^= 2;
        socket::send(&socket, &strange, Some(good().as_fd())).unwrap();
        assert!(answer(&mut a, &socket, false).is_none(), "another magic, version or flag");
    }
    assert_eq!(a.rail.counters().corrupt, 18 + 8 + 3);
    // And the right one still gets in, which is why the others above were wrong for one reason each.
    let (socket, ..) = prove(&mut a, 2);
    socket::send(&socket, honest.as_bytes(), Some(good().as_fd())).unwrap();
    run_until_idle(&mut [&mut a]);
    assert_eq!(a.sink.up, [PeerId(2)]);
    assert_eq!(a.sink.down, []);
}

/// L-13
#[test]
fn after_the_rings_a_socket_carries_doorbells_and_questions_only() {
    for junk in [&b"?"[..], b"!!", b"x", b"x0000", &[0; 4096]] {
        let mut a = Node::new(0);
        let (socket, ..) = join(&mut a, 1);
        (0..40).for_each(|_| socket::ring(&socket));
        socket::send(&socket, &[LIST_REQUEST, 0, 0, 0, 0], None).unwrap();
        run_until_idle(&mut [&mut a]);
        assert_eq!(a.sink.down, []);
        socket::send(&socket, junk, None).unwrap();
        run_until_idle(&mut [&mut a]);
        assert_eq!((a.rail.counters().corrupt, &a.sink.down[..]), (1, &[(PeerId(1), RailFault::Corrupt)][..]));
    }
}

/// A word of a mapped ring, as a dishonest peer sees it.
fn word(base: std::ptr::NonNull<u8>, at: usize) -> &'static AtomicU32 {
    // SAFETY: the tests stay inside the mapping, on multiples of 4, and drop the mapping last.
    unsafe { &*base.as_ptr().add(at).cast() }
}

/// Publishes a packet as message `position` of a mapped ring of four cells, with a header of so many bytes.
fn publish(base: std::ptr::NonNull<u8>, position: u32, header_bytes: u16) {
    let at = 1024 + 192 * (position as usize % 4);
    // SAFETY: as in `word`, on multiples of 8.
    let first: &AtomicU64 = unsafe { &*base.as_ptr().add(at).cast() };
    let packet = 2;
    first.store(u64::from(position + 1) | u64::from(header_bytes) << 32 | packet << 48, Ordering::Release);
}

/// L-11, L-12
#[test]
fn lengths_and_indices_that_no_honest_peer_writes_end_the_subchannel() {
    // Header length, payload length, and the head of the ring that the rail writes to.
    let mut a = Node::new(0);
    let (_socket, _inbound, outbound) = join(&mut a, 1);
    let (base, _) = outbound.raw();
    publish(base, 0, 300);
    run_until_idle(&mut [&mut a]);
    assert_eq!(a.sink.down, [(PeerId(1), RailFault::Corrupt)]);
    let (_socket, _inbound, outbound) = join(&mut a, 2);
    let (base, _) = outbound.raw();
    word(base, 1024 + 8).store(u32::MAX, Ordering::Relaxed);
    publish(base, 0, 0);
    run_until_idle(&mut [&mut a]);
    assert_eq!(a.sink.down[1..], [(PeerId(2), RailFault::Corrupt)]);
    let (_socket, inbound, _outbound) = join(&mut a, 3);
    word(inbound.raw().0, 0).store(77, Ordering::Relaxed);
    for number in 0..5 {
        a.send(3, number, 10);
    }
    run_until_idle(&mut [&mut a]);
    assert_eq!(a.sink.down[2..], [(PeerId(3), RailFault::Corrupt)]);
    assert_eq!(a.rail.counters().corrupt, 3);
}

/// Writes to every word of both rings until stopped; plausible values now and then.
fn scribble(rings: Vec<(std::ptr::NonNull<u8>, usize)>, seed: u64) -> (Arc<AtomicBool>, std::thread::JoinHandle<()>) {
    let stop = Arc::new(AtomicBool::new(false));
    let rings: Vec<(usize, usize)> = rings.into_iter().map(|(base, len)| (base.as_ptr() as usize, len)).collect();
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        let mut state = seed;
        while !stopped.load(Ordering::Relaxed) {
            for &(base, len) in &rings {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let at = if state & 1 == 0 {
                    (state >> 33) as usize % (len / 4) * 4
                } else {
                    512 + 192 * ((state >> 33) as usize % 4)
                };
                let value = if state & 2 == 0 { (state >> 20) as u32 } else { (state >> 40) as u32 % 64 };
                word(std::ptr::NonNull::new(base as *mut u8).unwrap(), at).store(value, Ordering::Relaxed);
            }
        }
    });
    (stop, thread)
}

/// L-12
#[test]
fn peer_that_corrupts_its_rings_does_not_disturb_others() {
    let (mut a, mut honest) = connected([0, 1]);
    for (round, rank) in (2..6).enumerate() {
        let (socket, inbound, outbound) = join(&mut a, rank);
        let (stop, thread) = scribble(vec![inbound.raw(), outbound.raw()], u64::from(rank));
        let taken = a.taken_from(1).len();
        let mut number = 0;
        run(&mut [&mut a, &mut honest], |nodes| {
            if number < 300 {
                nodes[1].send(0, number, 900);
                nodes[0].send(rank, number, 900);
                number += 1;
            }
            // Until the honest traffic is complete and the liar is detected.
            let found = nodes[0].sink.down.len() > round;
            nodes[0].taken_from(1).len() >= taken + 300 && found
        });
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        let expected: Vec<_> = (0..300).map(|number| packet(number, 900)).collect();
        assert_eq!(a.taken_from(1)[taken..], expected);
        assert_eq!(a.sink.down[round], (PeerId(rank), RailFault::Corrupt));
        drop((socket, inbound, outbound));
    }
    assert!(honest.sink.down.is_empty());
}

/// L-14
#[test]
fn drain_of_a_hostile_closed_peer_is_limited_to_one_ring() {
    let mut a = Node::new(0);
    let (socket, _inbound, outbound) = join(&mut a, 1);
    let (base, _) = outbound.raw();
    a.rail.options.burst = 1;
    a.rail.check_sockets = true;
    let mut socket = Some(socket);
    for _ in 0..100 {
        // However much is read, the next four messages are there already.
        for position in a.sink.taken.len()..a.sink.taken.len() + 4 {
            publish(base, position as u32, 0);
        }
        socket.take();
        a.poll();
    }
    assert_eq!(a.sink.down, [(PeerId(1), RailFault::Closed)]);
    assert_eq!(a.sink.taken.len(), 4);
}

/// A wrong seal gives no access, and costs nothing else.
#[test]
fn a_process_whose_seal_is_not_there_is_not_read() {
    let mut a = Node::new(0);
    let _stands = join(&mut a, 1);
    assert_eq!(a.sink.closed, [PeerId(1)]);
    let mut honest = Node::new(2);
    add_peers(&mut [&mut a, &mut honest]);
    honest.connect(0);
    run_until_idle(&mut [&mut a, &mut honest]);
    assert_eq!((&a.sink.closed[..], &honest.sink.closed[..]), (&[PeerId(1)][..], &[][..]));
    assert!(a.sink.down.is_empty());
}
