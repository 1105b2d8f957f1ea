//! Threads: a transport for each, as runtimes have one for each virtual communication interface; and one
//! transport under several.

use std::sync::{Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use rerail_linux::{
    Cookie, Event, Name, Notify, Options, PeerId, RecvRequest, Seg, Selector, SendRequest, Settings, Transport,
};

const LIMIT: Duration = Duration::from_secs(60);
const THREADS: usize = 8;
/// From each thread to each other one.
const MESSAGES: u64 = 100;
/// Bytes of the longest message: beyond the eager limit.
const BYTES_MAX: u64 = 40_000;

fn settings(rails: &[&str]) -> Settings {
    let mut settings = Settings::default();
    settings.rails = rails.iter().map(|rail| rail.to_string()).collect();
    settings.tcp_interfaces = vec!["127.0.0.1".to_owned()];
    settings.spin_polls = 10;
    settings
}

fn open(rails: &[&str]) -> Transport {
    Transport::open_named(&Options { settings: settings(rails) }).expect("rails of this machine")
}

fn bytes_of(message: u64) -> u64 {
    16 + message * 7919 % (BYTES_MAX - 16)
}

/// One thread's part: all messages to all others, and all of theirs.
fn exchange(own: u64, transport: &mut Transport, peers: &[(u64, PeerId)]) {
    let memory = transport.alloc(((1 + peers.len()) as u64 * BYTES_MAX) as usize).unwrap();
    let into = |at: usize| Seg::new(memory, (1 + at) as u64 * BYTES_MAX, BYTES_MAX);
    let receive = |transport: &mut Transport, at: usize, message: u64| {
        let from = Selector::tagged(message).of(peers[at].1);
        let cookie = Cookie(1 + at as u64 * MESSAGES + message);
        transport.recv(&RecvRequest { cookie, ..RecvRequest::new(from, &[into(at)]) }).unwrap();
    };
    (0..peers.len()).for_each(|at| receive(transport, at, 0));
    let (mut sent, mut received) = (0, 0);
    let mut is_sending = false;
    let end = Instant::now() + LIMIT;
    let all = peers.len() as u64 * MESSAGES;
    while sent < all || received < all {
        if !is_sending && sent < all {
            let (message, (_, peer)) = (sent / peers.len() as u64, peers[sent as usize % peers.len()]);
            let text: Vec<u8> = [own, message].iter().flat_map(|word| word.to_le_bytes()).collect();
            transport.write(Seg::new(memory, 0, 16).at, &text).unwrap();
            let segments = [Seg::new(memory, 0, bytes_of(message))];
            transport.send(&SendRequest { tag: Some(message), ..SendRequest::new(peer, &segments) }).unwrap();
            is_sending = true;
        }
        transport.progress();
        while let Some(event) = transport.poll_event() {
            let Event::Completed(completion) = event else {
                // One that has all may leave before the others.
                assert!(matches!(event, Event::PeerUp { .. } | Event::PeerClosed { .. }), "{event:?}");
                continue;
            };
            let done = completion.result.unwrap();
            let Some(receive_of) = completion.cookie.0.checked_sub(1) else {
                (sent, is_sending) = (sent + 1, false);
                continue;
            };
            let (at, message) = ((receive_of / MESSAGES) as usize, receive_of % MESSAGES);
            assert_eq!((done.bytes, done.peer), (bytes_of(message), peers[at].1));
            let mut text = [0; 16];
            transport.read(into(at).at, &mut text).unwrap();
            let text = bytemuck::cast::<_, [u64; 2]>(text);
            assert_eq!(text, [peers[at].0, message]);
            received += 1;
            if message + 1 < MESSAGES {
                receive(transport, at, message + 1);
            }
        }
        assert!(Instant::now() < end, "thread {own}: {sent} sent, {received} received of {all}");
    }
}

/// No state is shared, whatever rails they meet over.
#[test]
fn eight_transports_on_eight_threads_exchange_messages() {
    for rails in [&["shm"][..], &["tcp"], &["shm", "tcp"]] {
        let (names, all) = (Mutex::new(vec![None; THREADS]), Barrier::new(THREADS));
        std::thread::scope(|scope| {
            for own in 0..THREADS {
                let (names, all) = (&names, &all);
                scope.spawn(move || {
                    let mut transport = open(rails);
                    names.lock().unwrap()[own] = transport.name();
                    all.wait();
                    let names: Vec<Option<Name>> = names.lock().unwrap().clone();
                    let others = names.iter().enumerate().filter(|(other, _)| *other != own);
                    let peers: Vec<(u64, PeerId)> = others
                        .map(|(other, name)| (other as u64, transport.insert(&name.expect("all are there")).unwrap()))
                        .collect();
                    exchange(own as u64, &mut transport, &peers);
                    transport.finish(Some(LIMIT)).unwrap();
                });
            }
        });
    }
}

/// A transport is `Send`, so a lock makes it one for many threads. The thread that holds it takes all events
/// and passes them on.
#[test]
fn one_transport_under_several_threads_keeps_their_requests_apart() {
    let mut transports = [open(&["shm"]), open(&["shm"])];
    let names = [0, 1].map(|at: usize| transports[at].name().unwrap());
    let peers = [0, 1].map(|at: usize| transports[at].insert(&names[1 - at]).unwrap());
    let memory = transports.each_mut().map(|transport| transport.alloc(THREADS * 16).unwrap());
    let transports = transports.map(Mutex::new);
    let (mut completed, mut to_wait): (Vec<_>, Vec<_>) = (0..2 * THREADS).map(|_| mpsc::channel::<u64>()).unzip();
    // By side and thread.
    let completed: Vec<_> = [completed.split_off(THREADS), completed].into_iter().rev().collect();
    std::thread::scope(|scope| {
        for side in [1, 0] {
            for thread in (0..THREADS).rev() {
                let own = to_wait.pop().unwrap();
                let (transport, completed) = (&transports[side], completed[side].clone());
                let (peer, seg) = (peers[side], Seg::new(memory[side], thread as u64 * 16, 16));
                scope.spawn(move || {
                    let end = Instant::now() + LIMIT;
                    for message in 0..MESSAGES {
                        let mut locked = transport.lock().unwrap();
                        let (tag, cookie) = (Some(thread as u64), Cookie(thread as u64));
                        if side == 0 {
                            locked.write(seg.at, &[message; 2].map(u64::to_le_bytes).concat()).unwrap();
                            let segments = [seg];
                            let send = SendRequest::new(peer, &segments);
                            locked.send(&SendRequest { tag, cookie, notify: Notify::Event, ..send }).unwrap();
                        } else {
                            let from = Selector::tagged(thread as u64);
                            locked.recv(&RecvRequest { cookie, ..RecvRequest::new(from, &[seg]) }).unwrap();
                        }
                        drop(locked);
                        while own.try_recv().is_err() {
                            let mut locked = transport.lock().unwrap();
                            locked.progress();
                            while let Some(event) = locked.poll_event() {
                                if let Event::Completed(completion) = event {
                                    completion.result.unwrap();
                                    completed[completion.cookie.0 as usize].send(1).unwrap();
                                }
                            }
                            drop(locked);
                            std::thread::yield_now();
                            assert!(Instant::now() < end, "side {side}, thread {thread}: message {message}");
                        }
                        if side == 1 {
                            let mut text = [0; 16];
                            transport.lock().unwrap().read(seg.at, &mut text).unwrap();
                            assert_eq!(bytemuck::cast::<_, [u64; 2]>(text), [message; 2]);
                        }
                    }
                });
            }
        }
    });
    let transports = transports.map(|transport| transport.into_inner().unwrap());
    std::thread::scope(|scope| {
        for transport in transports {
            scope.spawn(|| transport.finish(Some(LIMIT)).unwrap());
        }
    });
}
