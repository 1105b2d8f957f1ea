//! The handshake against honest peers, outsiders, recordings and changed bytes.

use super::*;

const JOB: u64 = 0x7E57;
const ATTEMPTS: Attempts = Attempts { attempt: 4, answers: 2 };
const CALL: Call =
    Call { transport: Transport::Tcp, job: JOB, from: PeerId(3), to: PeerId(5), rail: 1, attempts: ATTEMPTS };
const STATION: Station = Station { transport: Transport::Tcp, job: JOB, me: PeerId(5), rail: 1 };

fn key() -> JobKey {
    JobKey::new([7; 32])
}

fn sent(step: Result<Step, AuthError>) -> Message {
    match step {
        Ok(Step::Send(message)) => message,
        other => panic!("expected a message to send, not {other:?}"),
    }
}

/// A dialler and an acceptor, and the first three messages of their honest exchange.
fn exchange(dialler_nonce: u8, acceptor_nonce: u8) -> (Dialler, Acceptor, [Message; 3]) {
    let (mut dialler, hello) = Dialler::new(key(), CALL, [dialler_nonce; 32]);
    let mut acceptor = Acceptor::new(key(), STATION, [acceptor_nonce; 32]);
    let challenge = sent(acceptor.handle(hello.bytes()));
    let proof = sent(dialler.handle(challenge.bytes()));
    (dialler, acceptor, [hello, challenge, proof])
}

/// H-1 to H-6
#[test]
fn both_sides_of_a_job_find_each_other() {
    let (mut dialler, mut acceptor, [hello, challenge, proof]) = exchange(1, 2);
    assert_eq!((hello.bytes().len(), challenge.bytes().len()), (HELLO_BYTES, CHALLENGE_BYTES));
    assert_eq!((dialler.expects(), acceptor.expects()), (VERDICT_BYTES, PROOF_BYTES));
    let outcome = acceptor.handle(proof.bytes());
    assert!(matches!(outcome, Ok(Step::Authenticated { peer: PeerId(3), rail: 1, attempts: ATTEMPTS })), "{outcome:?}");
    let outcome = dialler.handle(Message::verdict(Verdict::Accepted).bytes());
    assert!(matches!(outcome, Ok(Step::Authenticated { peer: PeerId(5), rail: 1, attempts: ATTEMPTS })), "{outcome:?}");
    assert_eq!((dialler.expects(), acceptor.expects()), (0, 0));
    assert_eq!(dialler.handle(&[]).unwrap_err(), AuthError::Over);
    assert_eq!(acceptor.handle(&[]).unwrap_err(), AuthError::Over);
}

#[test]
fn verdicts_reach_the_dialler() {
    let (mut dialler, ..) = exchange(1, 2);
    assert!(matches!(dialler.handle(Message::verdict(Verdict::Crossing).bytes()), Ok(Step::Crossing)));
    let (mut dialler, ..) = exchange(1, 2);
    let refused = Verdict::Refused(RefusedBecause::Old);
    let refused = dialler.handle(Message::verdict(refused).bytes()).unwrap_err();
    assert_eq!(refused, AuthError::Refused(RefusedBecause::Old));
}

/// H-4
#[test]
fn an_acceptor_without_the_key_is_found_out() {
    let (mut dialler, hello) = Dialler::new(key(), CALL, [1; 32]);
    let mut acceptor = Acceptor::new(JobKey::new([8; 32]), STATION, [2; 32]);
    let challenge = sent(acceptor.handle(hello.bytes()));
    assert_eq!(dialler.handle(challenge.bytes()).unwrap_err(), AuthError::Mac);
    assert_eq!(dialler.expects(), 0);
}

/// H-5
#[test]
fn a_dialler_without_the_key_is_found_out() {
    // It can't pass the challenge as a Dialler; a cheat that skips this check signs with its own key.
    let (_, hello) = Dialler::new(key(), CALL, [1; 32]);
    let mut acceptor = Acceptor::new(key(), STATION, [2; 32]);
    let challenge = sent(acceptor.handle(hello.bytes()));
    let hello: &[u8; HELLO_BYTES] = hello.bytes().try_into().unwrap();
    let challenge: &[u8; CHALLENGE_BYTES] = challenge.bytes().try_into().unwrap();
    let mac = JobKey::new([8; 32]).sign(proof_transcript(hello, challenge));
    assert_eq!(acceptor.handle(&Proof { mac }.emit()).unwrap_err(), AuthError::Mac);
    assert_eq!(acceptor.expects(), 0);
}

/// H-7
#[test]
fn a_recorded_handshake_is_worth_nothing() {
    let (_, _, [hello, challenge, proof]) = exchange(1, 2);
    // To a fresh acceptor, whose nonce is another.
    let mut acceptor = Acceptor::new(key(), STATION, [3; 32]);
    sent(acceptor.handle(hello.bytes()));
    assert_eq!(acceptor.handle(proof.bytes()).unwrap_err(), AuthError::Mac);
    // To a fresh dialler, whose nonce is another.
    let (mut dialler, _) = Dialler::new(key(), CALL, [4; 32]);
    assert_eq!(dialler.handle(challenge.bytes()).unwrap_err(), AuthError::Mac);
}

/// H-5
#[test]
fn a_reflected_mac_proves_nothing() {
    // An outsider calls the acceptor and hands it its own challenge MAC as proof.
    let (_, hello) = Dialler::new(key(), CALL, [1; 32]);
    let mut acceptor = Acceptor::new(key(), STATION, [2; 32]);
    let challenge = sent(acceptor.handle(hello.bytes()));
    let challenge: &[u8; CHALLENGE_BYTES] = challenge.bytes().try_into().unwrap();
    let mac = Challenge::parse(challenge).unwrap().mac;
    assert_eq!(acceptor.handle(&Proof { mac }.emit()).unwrap_err(), AuthError::Mac);
}

#[test]
fn an_oracle_of_the_other_direction_does_not_help() {
    // During a dial 3 -> 5, the outsider opens 5 -> 3 to the dialler's own acceptor with the same nonce, and
    // returns the challenge that it gets there.
    let (mut dialler, hello) = Dialler::new(key(), CALL, [1; 32]);
    let back = Call { from: PeerId(5), to: PeerId(3), ..CALL };
    let (_, reversed) = Dialler::new(key(), back, [1; 32]);
    let mut theirs = Acceptor::new(key(), Station { me: PeerId(3), ..STATION }, [2; 32]);
    assert_eq!(theirs.handle(hello.bytes()).unwrap_err(), AuthError::WrongRank { wanted: PeerId(5) });
    let mut theirs = Acceptor::new(key(), Station { me: PeerId(3), ..STATION }, [2; 32]);
    let challenge = sent(theirs.handle(reversed.bytes()));
    assert_eq!(dialler.handle(challenge.bytes()).unwrap_err(), AuthError::Mac);
}

#[test]
fn no_byte_can_be_changed_on_the_way() {
    for at in 0..HELLO_BYTES {
        let (mut dialler, hello) = Dialler::new(key(), CALL, [1; 32]);
        let mut changed = hello.bytes().to_vec();
        changed[at] ^= 1;
        // Refused at once, or signed as it arrived: then the dialler detects it.
        match Acceptor::new(key(), STATION, [2; 32]).handle(&changed) {
            Err(_) => {}
            Ok(Step::Send(challenge)) => {
                assert_eq!(dialler.handle(challenge.bytes()).unwrap_err(), AuthError::Mac, "hello byte {at}");
            }
            Ok(other) => panic!("hello byte {at}: {other:?}"),
        }
    }
    for at in 0..CHALLENGE_BYTES {
        let (mut dialler, hello) = Dialler::new(key(), CALL, [1; 32]);
        let mut challenge = sent(Acceptor::new(key(), STATION, [2; 32]).handle(hello.bytes())).bytes().to_vec();
        challenge[at] ^= 0x80;
        let refused = dialler.handle(&challenge).unwrap_err();
        assert!(matches!(refused, AuthError::Mac | AuthError::Wire(_)), "challenge byte {at}: {refused:?}");
    }
    for at in 0..PROOF_BYTES {
        let (_, mut acceptor, [_, _, proof]) = exchange(1, 2);
        let mut proof = proof.bytes().to_vec();
        proof[at] ^= 0x10;
        assert_eq!(acceptor.handle(&proof).unwrap_err(), AuthError::Mac, "proof byte {at}");
    }
}

#[test]
fn the_acceptor_says_what_was_wrong_with_a_call() {
    let call = |call: Call| {
        let (_, hello) = Dialler::new(key(), call, [1; 32]);
        Acceptor::new(key(), STATION, [2; 32]).handle(hello.bytes()).unwrap_err()
    };
    assert_eq!(call(Call { job: 9, ..CALL }), AuthError::Job { theirs: 9 });
    assert_eq!(call(Call { to: PeerId(6), ..CALL }), AuthError::WrongRank { wanted: PeerId(6) });
    assert_eq!(call(Call { from: PeerId(5), ..CALL }), AuthError::Own);
    assert_eq!(call(Call { rail: 0, ..CALL }), AuthError::WrongRail { wanted: 0 });
    assert_eq!(call(Call { transport: Transport::Shm, ..CALL }), AuthError::Transport { theirs: Transport::Shm });
}

/// H-1
#[test]
fn messages_of_the_wrong_length_are_refused() {
    let mut acceptor = Acceptor::new(key(), STATION, [2; 32]);
    let short = acceptor.handle(&[0; HELLO_BYTES - 1]).unwrap_err();
    assert_eq!(short, AuthError::Length { given: HELLO_BYTES - 1, expected: HELLO_BYTES });
    let (_, mut acceptor, _) = exchange(1, 2);
    assert!(matches!(acceptor.handle(&[0; PROOF_BYTES + 1]), Err(AuthError::Length { .. })));
}

/// H-8
#[test]
fn crossing_calls_agree_on_one() {
    let (low, high) = (PeerId(2), PeerId(9));
    assert!(keep(true, low, high) && !keep(false, low, high));
    assert!(!keep(true, high, low) && keep(false, high, low));
}

#[test]
fn a_printed_key_shows_nothing() {
    assert_eq!(format!("{:?}", JobKey::new([0x5A; 32])), "JobKey(..)");
    let (dialler, _) = Dialler::new(JobKey::new([0x5A; 32]), CALL, [1; 32]);
    assert!(!format!("{dialler:?}").contains("90, 90"), "the dialler shows its key");
}
