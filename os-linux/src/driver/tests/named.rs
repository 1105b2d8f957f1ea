//! Calls that only look like those of a named peer: a process that has the names of two others can't
//! part them.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rerail_core::endpoint::{Event, RecvRequest, Selector, SendRequest};
use rerail_core::ids::{Cookie, PeerId};
use rerail_core::wire::handshake::{ANSWER_BYTES, NAME_BYTES, RULING_BYTES, RefusedBecause, Transport as Sort};

use crate::auth::{Attempts, AuthError, Call, Credentials, Dialler, Fingerprint, Secret, Step};
use crate::driver::{Name, Options, Transport};
use crate::random::random;
use crate::settings::{Callers, Settings};

const RECEIVED: Cookie = Cookie(1);

/// Two that know each other, and the number of the other one for each.
struct Pair {
    ends: [Transport; 2],
    peers: [PeerId; 2],
    /// Messages that arrived.
    arrived: usize,
}

impl Pair {
    fn open(callers: Callers) -> Pair {
        let mut settings = Settings::default();
        (settings.rails, settings.tcp_interfaces) = (vec!["tcp".into()], vec!["127.0.0.1".into()]);
        settings.callers = callers;
        let options = Options { settings };
        let mut ends = [(); 2].map(|()| Transport::open_named(&options).unwrap());
        let names = ends.each_ref().map(|end| end.name().unwrap());
        let peers = [ends[0].insert(&names[1]).unwrap(), ends[1].insert(&names[0]).unwrap()];
        let mut pair = Pair { ends, peers, arrived: 0 };
        pair.complete_handshake();
        pair
    }

    /// A message each way.
    fn complete_handshake(&mut self) {
        let wanted = self.arrived + 2;
        for (end, peer) in self.ends.iter_mut().zip(self.peers) {
            let from = Selector { source: Some(peer), ..Selector::ANY_UNTAGGED };
            end.recv(&RecvRequest { cookie: RECEIVED, ..RecvRequest::new(from, &[]) }).unwrap();
            end.inject(&SendRequest::new(peer, &[]), &[]).unwrap();
        }
        let until = Instant::now() + Duration::from_secs(20);
        while self.arrived < wanted {
            for end in &mut self.ends {
                end.progress();
                while let Some(event) = end.poll_event() {
                    match event {
                        Event::Completed(completion) => {
                            completion.result.expect("an honest message");
                            self.arrived += usize::from(completion.cookie == RECEIVED);
                        }
                        Event::PeerUp { .. } => {}
                        event => panic!("{event:?}"),
                    }
                }
            }
            assert!(Instant::now() < until, "the two are parted");
        }
    }

    fn refused(&self) -> u64 {
        self.ends[0].rails().map(|rail| rail.counters.unauthenticated).sum()
    }

    /// A dial of the first one: by these credentials, as `from`, with `key` as that of the acceptor. Its end.
    fn attack(&mut self, by: &Credentials, from: PeerId, key: Fingerprint) -> AuthError {
        let name = self.ends[0].name().unwrap();
        let to = name.fingerprint().number();
        let attempts = Attempts { attempt: 99, answers: 99 };
        let call = Call { transport: Sort::Tcp, job: 0, from, to, rail: 0, attempts };
        let (mut dialler, opening) = Dialler::new(by, call, key, random().unwrap());
        let mut stream = TcpStream::connect(name.contacts().unwrap()[0]).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream.write_all(opening.bytes()).unwrap();
        let answer = self.read_reply(&mut stream, ANSWER_BYTES);
        match dialler.handle(&answer) {
            Ok(Step::Send(proof)) => stream.write_all(proof.bytes()).unwrap(),
            Err(error) => return error,
            Ok(step) => panic!("{step:?}"),
        }
        let ruling = self.read_reply(&mut stream, RULING_BYTES);
        dialler.handle(&ruling).expect_err("no stranger is accepted")
    }

    /// Receives so many bytes, or fewer where the other side hangs up, while the two talk.
    fn read_reply(&mut self, stream: &mut TcpStream, count: usize) -> Vec<u8> {
        let (mut reply, mut at) = (vec![0; count], 0);
        while at < count {
            self.complete_handshake();
            match stream.read(&mut reply[at..]) {
                Ok(0) => break,
                Ok(more) => at += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        reply.truncate(at);
        reply
    }
}

/// The name of a process with this key: for the rest it is `like`.
fn name_with(like: &Name, key: Fingerprint) -> [u8; NAME_BYTES] {
    let mut bytes = *like.bytes();
    bytes[10..26].copy_from_slice(&key.0);
    bytes
}

/// H-3, H-5, H-9, H-11: each call is refused and counted, and the two go on talking.
#[test]
fn process_knowing_both_names_cannot_disconnect_two_peers() {
    for callers in [Callers::Refuse, Callers::Hold] {
        let mut pair = Pair::open(callers);
        let [a, b] = pair.ends.each_ref().map(|end| end.name().unwrap());
        let [key_a, key_b] = [a, b].map(|name| name.fingerprint());
        let third = Credentials::new([9; 32], Secret::new([0; 32]));
        let key = third.public().fingerprint();
        let known_as = |bytes| third.by_name(bytes, Secret::new([0; 32]));
        let true_name = name_with(&b, key);

        // It has the first bytes of the fingerprint, as each hello does, not the name.
        let mut part = key_a;
        part.0[15] ^= 1;
        let end = pair.attack(&known_as(true_name), key.number(), part);
        assert_eq!(end, AuthError::Rejected(RefusedBecause::Proof));
        assert_eq!(pair.refused(), 1);

        // In the other one's name, by its number or not, with its own key.
        for from in [key_b.number(), key.number()] {
            let end = pair.attack(&known_as(*b.bytes()), from, key_a);
            assert_eq!(end, AuthError::Refused(RefusedBecause::Unknown), "{callers:?}");
        }
        assert_eq!((pair.refused(), pair.ends[0].poll_caller()), (3, None));

        // A peer by its own name that calls by the number of another one.
        pair.ends[0].insert(&Name::parse(true_name).unwrap()).unwrap();
        let end = pair.attack(&known_as(true_name), key_b.number(), key_a);
        assert_eq!(end, AuthError::Refused(RefusedBecause::Proof));
        assert_eq!(pair.refused(), 4);
        pair.complete_handshake();
        assert_eq!(pair.ends[0].rails().map(|rail| rail.counters.corrupt).sum::<u64>(), 0);
    }
}
