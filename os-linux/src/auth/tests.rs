//! The handshake against honest peers, outsiders, other members of the job, recordings and changed bytes.

use super::testing::credentials;
use super::*;

const JOB: u64 = 0x7E57;
const ATTEMPTS: Attempts = Attempts { attempt: 4, answers: 2 };
const CALL: Call =
    Call { transport: Transport::Tcp, job: JOB, from: PeerId(3), to: PeerId(5), rail: 1, attempts: ATTEMPTS };
const STATION: Station = Station { transport: Transport::Tcp, job: JOB, me: PeerId(5), rail: 1 };

fn fingerprint(rank: u32) -> Fingerprint {
    credentials(rank).public().fingerprint()
}

/// A process of another job.
fn unknown_process() -> Credentials {
    Credentials::new([0x66; 32], Secret::new([8; 32]))
}

/// A dial of rank 3 to rank 5.
fn dialler(fresh: u8) -> (Dialler, Message) {
    Dialler::new(&credentials(3), CALL, fingerprint(5), [fresh; 32])
}

fn acceptor(fresh: u8) -> Acceptor {
    Acceptor::new(credentials(5), STATION, [fresh; 32])
}

fn sent(step: Result<Step, AuthError>) -> Message {
    match step {
        Ok(Step::Send(message)) => message,
        other => panic!("expected a message to send, not {other:?}"),
    }
}

/// A dialler and an acceptor, and the first three messages of their honest exchange.
fn exchange(dialler_fresh: u8, acceptor_fresh: u8) -> (Dialler, Acceptor, [Message; 3]) {
    let (mut dialler, opening) = dialler(dialler_fresh);
    let mut acceptor = acceptor(acceptor_fresh);
    let answer = sent(acceptor.handle(opening.bytes()));
    let proof = sent(dialler.handle(answer.bytes()));
    (dialler, acceptor, [opening, answer, proof])
}

/// Both sides of an exchange that has come to the acceptor's ruling.
fn proved() -> (Dialler, Acceptor) {
    let (dialler, mut acceptor, [_, _, proof]) = exchange(1, 2);
    assert!(matches!(acceptor.handle(proof.bytes()), Ok(Step::Authenticated { .. })));
    (dialler, acceptor)
}

/// H-1 to H-6
#[test]
fn both_sides_of_a_job_find_each_other() {
    let (mut dialler, mut acceptor, [opening, answer, proof]) = exchange(1, 2);
    let lengths = [opening, answer, proof].map(|message| message.bytes().len());
    assert_eq!(lengths, [OPENING_BYTES, ANSWER_BYTES, PROOF_BYTES]);
    assert_eq!(lengths, [80, 96, 128], "as in PROTOCOL.md");
    assert_eq!((dialler.expects(), acceptor.expects()), (RULING_BYTES, PROOF_BYTES));
    match acceptor.handle(proof.bytes()) {
        Ok(Step::Authenticated { peer: PeerId(3), key, rail: 1, attempts: ATTEMPTS }) => {
            assert_eq!(key, fingerprint(3))
        }
        other => panic!("{other:?}"),
    }
    let ruling = acceptor.ruling(Verdict::Accepted).unwrap();
    match dialler.handle(ruling.bytes()) {
        Ok(Step::Authenticated { peer: PeerId(5), key, rail: 1, attempts: ATTEMPTS }) => {
            assert_eq!(key, fingerprint(5))
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((dialler.expects(), acceptor.expects()), (0, 0));
    assert_eq!(dialler.handle(&[]).unwrap_err(), AuthError::Over);
    assert_eq!(acceptor.handle(&[]).unwrap_err(), AuthError::Over);
    assert_eq!(acceptor.ruling(Verdict::Accepted).unwrap_err(), AuthError::Over, "one ruling");
}

/// H-6
#[test]
fn rulings_reach_the_dialler_unchanged_or_not_at_all() {
    let (mut dialler, mut acceptor) = proved();
    assert!(matches!(dialler.handle(acceptor.ruling(Verdict::Crossing).unwrap().bytes()), Ok(Step::Crossing)));
    let (mut dialler, mut acceptor) = proved();
    let refused = acceptor.ruling(Verdict::Refused(RefusedBecause::Old)).unwrap();
    assert_eq!(dialler.handle(refused.bytes()).unwrap_err(), AuthError::Refused(RefusedBecause::Old));
    for at in 0..RULING_BYTES {
        let (mut dialler, mut acceptor) = proved();
        let mut changed = acceptor.ruling(Verdict::Accepted).unwrap().bytes().to_vec();
        changed[at] ^= 1;
        assert_eq!(dialler.handle(&changed).unwrap_err(), AuthError::Proof, "ruling byte {at}");
    }
}

/// H-3: before any key is computed with the stranger's.
#[test]
fn a_dialler_without_the_secret_is_refused_at_its_first_message() {
    let (mut theirs, opening) = Dialler::new(&unknown_process(), CALL, fingerprint(5), [1; 32]);
    let mut acceptor = acceptor(2);
    let refused = acceptor.handle(opening.bytes()).unwrap_err();
    assert_eq!((refused, acceptor.expects()), (AuthError::Proof, 0));
    let refusal = refused.refusal().unwrap();
    let rejected = AuthError::Rejected(RefusedBecause::Proof);
    assert_eq!(theirs.handle(refusal.bytes()).unwrap_err(), rejected);
    assert!(!rejected.is_refusal(), "nothing proves that the peer sent it");
}

/// H-4
#[test]
fn an_acceptor_without_the_secret_or_the_key_is_found_out() {
    // It can't read the opening; what it answers regardless is nothing.
    let (mut dialler_of_3, _) = dialler(1);
    assert_eq!(dialler_of_3.handle(&[0x11; ANSWER_BYTES]).unwrap_err(), AuthError::Proof);
    assert_eq!(dialler_of_3.expects(), 0);
    // Another member of the job at the peer's address.
    let (mut dialler_of_3, opening) = dialler(1);
    let mut other = Acceptor::new(credentials(6), STATION, [2; 32]);
    let answer = sent(other.handle(opening.bytes()));
    let found = fingerprint(6);
    assert_eq!(dialler_of_3.handle(answer.bytes()).unwrap_err(), AuthError::Impostor { found });
}

/// H-5: a member of the job that claims to be another one is detected.
#[test]
fn a_member_can_not_take_the_name_of_another() {
    // Rank 6 calls rank 5 as rank 3.
    let (mut impostor, opening) = Dialler::new(&credentials(6), CALL, fingerprint(5), [1; 32]);
    let mut acceptor = acceptor(2);
    let answer = sent(acceptor.handle(opening.bytes()));
    let proof = sent(impostor.handle(answer.bytes()));
    match acceptor.handle(proof.bytes()) {
        Ok(Step::Authenticated { peer: PeerId(3), key, .. }) => assert_eq!(key, fingerprint(6)),
        other => panic!("{other:?}"),
    }
    assert_ne!(fingerprint(6), fingerprint(3));
}

/// H-7
#[test]
fn a_recorded_handshake_is_worth_nothing() {
    let (_, _, [opening, answer, proof]) = exchange(1, 2);
    // To a fresh acceptor, whose keys are others.
    let mut fresh = acceptor(3);
    sent(fresh.handle(opening.bytes()));
    assert_eq!(fresh.handle(proof.bytes()).unwrap_err(), AuthError::Proof);
    // To a fresh dialler, whose keys are others.
    let (mut fresh, _) = dialler(4);
    assert_eq!(fresh.handle(answer.bytes()).unwrap_err(), AuthError::Proof);
}

#[test]
fn an_oracle_of_the_other_direction_does_not_help() {
    // During a dial 3 -> 5, a third process passes 3's own opening to 3's acceptor, and its answer to the
    // dial.
    let (mut dialler, opening) = dialler(1);
    let at_home = || Acceptor::new(credentials(3), Station { me: PeerId(3), ..STATION }, [2; 32]);
    assert_eq!(at_home().handle(opening.bytes()).unwrap_err(), AuthError::WrongRank { addressed: PeerId(5) });
    let back = Call { from: PeerId(5), to: PeerId(3), ..CALL };
    let (_, reversed) = Dialler::new(&credentials(6), back, fingerprint(3), [1; 32]);
    let answer = sent(at_home().handle(reversed.bytes()));
    assert_eq!(dialler.handle(answer.bytes()).unwrap_err(), AuthError::Proof);
}

#[test]
fn any_changed_handshake_byte_is_detected() {
    for at in 0..OPENING_BYTES {
        let mut changed = dialler(1).1.bytes().to_vec();
        changed[at] ^= 1;
        assert!(acceptor(2).handle(&changed).is_err(), "opening byte {at}");
    }
    for at in 0..ANSWER_BYTES {
        let (mut dialler, opening) = dialler(1);
        let mut answer = sent(acceptor(2).handle(opening.bytes())).bytes().to_vec();
        answer[at] ^= 1;
        assert_eq!(dialler.handle(&answer).unwrap_err(), AuthError::Proof, "answer byte {at}");
    }
    for at in 0..PROOF_BYTES {
        let (_, mut acceptor, [_, _, proof]) = exchange(1, 2);
        let mut proof = proof.bytes().to_vec();
        proof[at] ^= 0x10;
        assert_eq!(acceptor.handle(&proof).unwrap_err(), AuthError::Proof, "proof byte {at}");
    }
}

#[test]
fn acceptor_reports_why_a_dial_is_refused() {
    let call = |call: Call| {
        let (_, opening) = Dialler::new(&credentials(3), call, fingerprint(5), [1; 32]);
        acceptor(2).handle(opening.bytes()).unwrap_err()
    };
    assert_eq!(call(Call { job: 9, ..CALL }), AuthError::Job { theirs: 9 });
    assert_eq!(call(Call { to: PeerId(6), ..CALL }), AuthError::WrongRank { addressed: PeerId(6) });
    assert_eq!(call(Call { from: PeerId(5), ..CALL }), AuthError::Own);
    assert_eq!(call(Call { rail: 0, ..CALL }), AuthError::WrongRail { addressed: 0 });
    assert_eq!(call(Call { transport: Transport::Shm, ..CALL }), AuthError::Transport { theirs: Transport::Shm });
    assert!(AuthError::Over.refusal().is_none(), "garbage gets no answer");
}

/// H-1
#[test]
fn messages_of_the_wrong_length_are_refused() {
    let short = acceptor(2).handle(&[0; OPENING_BYTES - 1]).unwrap_err();
    assert_eq!(short, AuthError::Length { given: OPENING_BYTES - 1, expected: OPENING_BYTES });
    let (_, mut acceptor, _) = exchange(1, 2);
    assert!(matches!(acceptor.handle(&[0; PROOF_BYTES + 1]), Err(AuthError::Length { .. })));
}

/// H-3, H-5, H-9: between processes without a job, a call is for those who have the acceptor's name.
#[test]
fn dial_by_name_requires_the_acceptor_name() {
    let named = |rank: u32| credentials(rank).by_name([rank as u8; NAME_BYTES], Secret::new([0; 32]));
    let (from, to) = named(3).numbers((PeerId(0), PeerId(1)), &fingerprint(5));
    assert_eq!((from, to), (fingerprint(3).number(), fingerprint(5).number()));
    assert_eq!(named(5).number(PeerId(0)), to);
    let (call, station) = (Call { job: 0, from, to, ..CALL }, Station { job: 0, me: to, ..STATION });
    let acceptor = || Acceptor::new(named(5), station, [2; 32]);

    let (mut dialler, opening) = Dialler::new(&named(3), call, fingerprint(5), [1; 32]);
    let mut accepts = acceptor();
    let answer = sent(accepts.handle(opening.bytes()));
    let proof = sent(dialler.handle(answer.bytes()));
    match accepts.handle(proof.bytes()) {
        Ok(Step::Authenticated { peer, key, .. }) => assert_eq!((peer, key), (from, fingerprint(3))),
        other => panic!("{other:?}"),
    }
    assert_eq!(accepts.name(), &[3; NAME_BYTES]);

    // With the number, but another fingerprint; with a job's secret; to a process that has a job.
    let (_, opening) = Dialler::new(&named(3), call, fingerprint(6), [1; 32]);
    assert_eq!(acceptor().handle(opening.bytes()).unwrap_err(), AuthError::Proof);
    let (_, opening) = Dialler::new(&credentials(3), call, fingerprint(5), [1; 32]);
    assert_eq!(acceptor().handle(opening.bytes()).unwrap_err(), AuthError::Proof);
    let (_, opening) = Dialler::new(&named(3), CALL, fingerprint(5), [1; 32]);
    assert_eq!(self::acceptor(2).handle(opening.bytes()).unwrap_err(), AuthError::Proof);
}

/// The number that stands for none is no process's (S-11).
#[test]
fn numbers_are_parts_of_fingerprints() {
    let of = |first: u32| {
        let mut bytes = [7; FINGERPRINT_BYTES];
        bytes[..4].copy_from_slice(&first.to_le_bytes());
        Fingerprint(bytes).number()
    };
    assert_eq!([of(0), of(0x0403_0201), of(u32::MAX)], [0, 0x0403_0201, u32::MAX - 1].map(PeerId));
}

/// H-8
#[test]
fn crossing_calls_agree_on_one() {
    let (low, high) = (PeerId(2), PeerId(9));
    assert!(keep(true, low, high) && !keep(false, low, high));
    assert!(!keep(true, high, low) && keep(false, high, low));
}

#[test]
fn printed_credentials_show_no_secret() {
    assert_eq!(format!("{:?}", Secret::new([0x5A; 32])), "Secret(..)");
    let secret = Credentials::new([0x5A; 32], Secret::new([0x5A; 32]));
    let (dialler, _) = Dialler::new(&secret, CALL, fingerprint(5), [0x5A; 32]);
    let acceptor = Acceptor::new(secret.clone(), STATION, [0x5A; 32]);
    for shown in [format!("{secret:?}"), format!("{dialler:?}"), format!("{acceptor:?}")] {
        assert!(!shown.contains("90, 90") && !shown.contains("5a, 5a"), "{shown}");
    }
}
