//! Two ends over the loopback interface, and strangers.

use std::io::{Read, Write};
use std::thread;

use super::*;
use crate::bootstrap::job_key;

/// Long enough that only a hang gets there.
const LONG: Duration = Duration::from_secs(60);

fn key(byte: u8) -> PairKey {
    PairKey([byte; 32])
}

fn listener() -> (PairListener, SocketAddr) {
    let listener = PairListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Runs both ends.
fn both<A: Send, B: Send>(at_0: impl FnOnce(Pair) -> A + Send, at_1: impl FnOnce(Pair) -> B + Send) -> (A, B) {
    let (listener, address) = listener();
    thread::scope(|scope| {
        let one = scope.spawn(move || at_1(Pair::dial(address, &key(7), LONG).unwrap()));
        let zero = at_0(listener.accept(&key(7), LONG).unwrap());
        (zero, one.join().unwrap())
    })
}

#[test]
fn puts_are_seen_after_the_fence_and_keys_agree() {
    let run = |mut pair: Pair| {
        let (rank, other) = (pair.rank(), 1 - pair.rank());
        assert_eq!(pair.size(), 2);
        pair.put("who", &format!("I am {rank}; = \u{20ac}")).unwrap();
        pair.fence().unwrap();
        assert_eq!(pair.get(other, "who").unwrap().unwrap(), format!("I am {other}; = \u{20ac}"));
        assert_eq!(pair.get(rank, "who").unwrap().unwrap(), format!("I am {rank}; = \u{20ac}"));
        assert_eq!(pair.get(other, "later").unwrap(), None);
        pair.put("later", "x").unwrap();
        pair.fence().unwrap();
        assert_eq!(pair.get(other, "later").unwrap().unwrap(), "x");
        let key = job_key(&mut pair).unwrap();
        pair.finalize().unwrap();
        key
    };
    let (zero, one) = both(run, run);
    assert!(zero == one);
    let (again, _) = both(run, run);
    assert!(zero != again, "every connection has its own job key");
    assert!(zero.key != [7; 32]);
}

#[test]
fn long_messages_in_both_directions_do_not_block_each_other() {
    let run = |mut pair: Pair| {
        let value = "v".repeat(crate::bootstrap::VALUE_BYTES_MAX);
        let taken = (0..).take_while(|n| pair.put(&format!("k{n}"), &value).is_ok()).count();
        assert_eq!(taken, 63);
        pair.fence().unwrap();
        assert_eq!(pair.get(1 - pair.rank(), "k62").unwrap(), Some(value));
    };
    both(run, run);
}

/// Each side calls back while it waits, for the other's bytes or for room for its own.
#[test]
fn a_barrier_calls_back_until_the_other_side_is_there() {
    for first in [0, 1] {
        let (calls, seen) = std::sync::mpsc::sync_channel(100);
        let seen = std::sync::Mutex::new(seen);
        let run = |mut pair: Pair| {
            let value = "v".repeat(crate::bootstrap::VALUE_BYTES_MAX);
            while pair.put(&format!("k{}", pair.fresh.len()), &value).is_ok() {}
            let mut count = 0;
            if pair.rank() != first {
                (0..100).for_each(|_| seen.lock().unwrap().recv().unwrap());
            }
            let meanwhile = &mut || {
                count += 1;
                let _ = calls.try_send(());
            };
            pair.barrier(None, meanwhile).unwrap();
            assert!(count >= 100 || pair.rank() != first, "{count}");
            assert_eq!(pair.get(1 - pair.rank(), "k62").unwrap(), Some(value));
        };
        both(run, run);
    }
}

#[test]
fn another_key_is_refused_on_both_sides_and_the_listener_waits_on() {
    let (listener, address) = listener();
    thread::scope(|scope| {
        scope.spawn(move || {
            let error = Pair::dial(address, &key(8), LONG).unwrap_err();
            assert!(matches!(error, BootError::Authentication { .. }), "{error}");
            let mut unknown_process = TcpStream::connect(address).unwrap();
            unknown_process.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            // No answer to a peer with another protocol: the connection just ends.
            let mut answer = Vec::new();
            let _ = unknown_process.read_to_end(&mut answer);
            assert_eq!(answer, b"");
            Pair::dial(address, &key(7), LONG).unwrap().finalize().unwrap();
        });
        let mut pair = listener.accept(&key(7), LONG).unwrap();
        assert!(matches!(pair.fence(), Err(BootError::Closed { .. })));
    });
}

#[test]
fn a_repeated_proof_is_worth_nothing() {
    // An eavesdropper's record of one handshake doesn't open another: the listener's nonce is new.
    let (listener, address) = listener();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut old = TcpStream::connect(address).unwrap();
            let nonce = [3; 32];
            old.write_all(&[MAGIC, nonce.as_slice()].concat()).unwrap();
            let mut hello = [0; 72];
            old.read_exact(&mut hello).unwrap();
            let proof = mac(&[7; 32], &[b"rerail pair dialler ", &nonce, &hello[8..40]]);
            drop(old);
            let mut replay = TcpStream::connect(address).unwrap();
            replay.write_all(&[MAGIC, nonce.as_slice(), &proof].concat()).unwrap();
            let mut rest = Vec::new();
            let _ = replay.read_to_end(&mut rest);
        });
        let mut refused = Vec::new();
        let limit = Limit::new(Some(LONG));
        for _ in 0..2 {
            let stream = loop {
                match listener.listener.accept() {
                    Ok((stream, _)) => break stream,
                    Err(_) => {
                        limit.wait(&listener.listener, PollFlags::IN, "waiting for the other side", &mut None).unwrap()
                    }
                }
            };
            refused.push(Pair::answer(stream, &key(7), limit).map(|_| ()).unwrap_err());
        }
        assert!(matches!(refused[0], BootError::Closed { .. }), "{}", refused[0]);
        assert!(matches!(refused[1], BootError::Authentication { .. }), "{}", refused[1]);
    });
}

#[test]
fn a_forged_frame_is_refused_before_it_is_parsed() {
    let forge = |mut pair: Pair, length: u32, bytes: &[u8]| {
        pair.frames.wire.write("forging", &[&length.to_le_bytes(), bytes].concat(), &mut None).unwrap();
        let _ = pair.frames.receive("waiting for the end", &mut None);
    };
    let (error, _) = both(|mut pair| pair.fence().unwrap_err(), |pair| forge(pair, 1, &[0xff; 33]));
    assert!(matches!(error, BootError::Authentication { .. }), "{error}");
    let (error, _) = both(|mut pair| pair.fence().unwrap_err(), |pair| forge(pair, u32::MAX, &[]));
    assert!(matches!(error, BootError::Protocol { .. }), "{error}");
    assert!(error.to_string().contains("4294967295"), "{error}");
}

#[test]
fn an_abort_reaches_the_other_side() {
    let (error, _) = both(|mut pair| pair.fence().unwrap_err(), |mut pair| pair.abort("disk full"));
    assert!(error.to_string().contains("disk full"), "{error}");
}

#[test]
fn missing_pair_peer_is_an_error_in_time() {
    let (listener, address) = listener();
    let error = listener.accept(&key(7), Duration::from_millis(1)).unwrap_err();
    assert!(matches!(error, BootError::Timeout { waited_ms: 1, .. }), "{error}");
    drop(listener);
    let error = Pair::dial(address, &key(7), LONG).unwrap_err();
    assert!(matches!(error, BootError::Io { .. }), "{error}");
}

#[test]
fn a_silent_side_is_an_error_in_time() {
    let (listener, address) = listener();
    let silent = TcpStream::connect(address).unwrap();
    let error = listener.accept(&key(7), Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, BootError::Timeout { .. }), "{error}");
    drop(silent);
}

#[test]
fn keys_are_read_and_written_as_hexadecimal_and_never_shown() {
    let key = PairKey::generate().unwrap();
    assert!(PairKey::from_hex(&format!("{}\n", key.to_hex())).unwrap() == key);
    assert!(PairKey::generate().unwrap() != key);
    assert!(matches!(PairKey::from_hex("abc"), Err(BootError::Authentication { .. })));
    assert_eq!(format!("{key:?}"), "PairKey(..)");
}

/// Has the connection of a pair reset.
fn reset(pair: Pair) {
    rustix::net::sockopt::set_socket_linger(pair.frames.wire.stream(), Some(Duration::ZERO)).unwrap();
}

/// B-1: a fence notices the connection's end, and later messages belong to no other fence.
#[test]
fn a_fence_whose_connection_is_reset_fails_and_so_do_all_after_it() {
    let fails = |mut pair: Pair| {
        let error = pair.fence().unwrap_err();
        assert!(matches!(error, BootError::Closed { .. }), "{error}");
        assert!(matches!(pair.fence(), Err(BootError::Over)));
        assert!(matches!(pair.get(0, "k"), Err(BootError::Over)));
    };
    both(fails, reset);
    both(reset, fails);
}

/// B-1: a side that stalls is an error in time.
#[test]
fn pair_fence_ends_at_its_timeout() {
    let (listener, address) = listener();
    thread::scope(|scope| {
        let silent = scope.spawn(move || Pair::dial(address, &key(7), LONG).unwrap());
        let mut pair = listener.accept(&key(7), LONG).unwrap();
        let silent = silent.join().unwrap();
        pair.timeout = Duration::from_millis(20);
        let error = pair.fence().unwrap_err();
        assert!(matches!(error, BootError::Timeout { waited_ms: 20, .. }), "{error}");
        drop(silent);
    });
}

/// B-3: a pair's BYE has no answer, so a connection that is gone by then is no failure.
#[test]
fn leaving_needs_no_connection() {
    let (ready, waits) = std::sync::mpsc::channel();
    both(
        move |mut pair| {
            pair.fence().unwrap();
            // The other one is gone.
            let () = waits.recv().unwrap();
            // Any wait is too late.
            pair.timeout = Duration::ZERO;
            pair.finalize().unwrap();
            assert!(matches!(pair.finalize(), Err(BootError::Over)));
        },
        move |mut pair| {
            pair.fence().unwrap();
            reset(pair);
            ready.send(()).unwrap();
        },
    );
}
