//! A handshake of two processes (PROTOCOL, H) in which one message is changed, or one side is not the process
//! that it claims to be. The oracle: what is changed in any byte is refused by the side that gets it; a side
//! is accepted only for the key that it holds; else both sides end as they should.

use rerail_core::ids::PeerId;
use rerail_core::wire::handshake::{RefusedBecause, Transport, Verdict};
use rerail_linux::auth::{
    Acceptor, Attempts, AuthError, Call, Credentials, Dialler, Fingerprint, MESSAGE_BYTES_MAX, Secret, Station, Step,
};

use crate::corpus::Seeds;

const JOB: u64 = 7;
const ATTEMPTS: Attempts = Attempts { attempt: 1, answers: 0 };

/// The process at one end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The process of that rank.
    Honest,
    /// Another process of the job.
    Member,
    /// It does not hold the job's secret.
    Outsider,
}

impl Role {
    fn from_byte(byte: u8) -> Self {
        // Most are honest.
        match byte % 8 {
            6 => Role::Member,
            7 => Role::Outsider,
            _ => Role::Honest,
        }
    }

    fn credentials(self, rank: u8) -> Credentials {
        match self {
            Role::Honest => Credentials::new([0x10 + 8 * rank; 32], Secret::new([9; 32])),
            Role::Member => Credentials::new([0x80; 32], Secret::new([9; 32])),
            Role::Outsider => Credentials::new([0x90; 32], Secret::new([8; 32])),
        }
    }

    fn fingerprint(self, rank: u8) -> Fingerprint {
        self.credentials(rank).public().fingerprint()
    }
}

struct Input<'d>(&'d [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }
}

/// What is done to one of the four messages.
struct Change<'d> {
    message: u8,
    way: u8,
    input: Input<'d>,
    /// The message before it, which the side that gets it has sent.
    before: Vec<u8>,
    done: bool,
}

impl Change<'_> {
    /// The bytes that arrive in place of message `number`, of which `replayed` is that of another handshake.
    fn apply(&mut self, number: u8, message: &[u8], replayed: &[u8]) -> Vec<u8> {
        let mut bytes = message.to_vec();
        if number == self.message {
            match self.way {
                1 => {
                    let at = usize::from(self.input.byte()) % bytes.len();
                    bytes[at] ^= self.input.byte();
                }
                2 => bytes.truncate(usize::from(self.input.byte())),
                3 => bytes.extend((0..self.input.byte()).map(|_| 0)),
                4 => bytes.iter_mut().for_each(|byte| *byte = self.input.byte()),
                5 => bytes = std::mem::take(&mut self.before),
                6 => bytes = replayed.to_vec(),
                7 => bytes = self.input.0.to_vec(),
                _ => {}
            }
        }
        self.before = message.to_vec();
        self.done = bytes != message;
        bytes
    }
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (caller, called) = (Role::from_byte(input.byte()), Role::from_byte(input.byte()));
    let verdict = match input.byte() % 4 {
        0 => Verdict::Crossing,
        1 => Verdict::Refused(RefusedBecause::Full),
        _ => Verdict::Accepted,
    };
    let (message, way) = (input.byte() % 4, input.byte() % 9);
    let mut change = Change { message, way, input, before: Vec::new(), done: false };
    // Another handshake of the same two, whose messages a listener has kept.
    let mut kept = Vec::new();
    meet((caller, called), verdict, [0x30, 0x40], &[], &mut |_, message| {
        kept.push(message.to_vec());
        (message.to_vec(), false)
    });
    let (none, opening) = (Vec::new(), kept[0].clone());
    meet((caller, called), verdict, [0x50, 0x60], &opening, &mut |number, message| {
        let bytes = change.apply(number, message, kept.get(usize::from(number)).unwrap_or(&none));
        (bytes, change.done)
    });
}

/// Takes a message and its number to the other side: what arrives, and whether it was changed.
type Carry<'c> = dyn FnMut(u8, &[u8]) -> (Vec<u8>, bool) + 'c;

/// One handshake; `carry` delivers a message, and reports whether it was changed. `replayed`: the opening of
/// another one.
fn meet((caller, called): (Role, Role), verdict: Verdict, fresh: [u8; 2], replayed: &[u8], carry: &mut Carry<'_>) {
    let call =
        Call { transport: Transport::Tcp, job: JOB, from: PeerId(0), to: PeerId(1), rail: 0, attempts: ATTEMPTS };
    let station = Station { transport: Transport::Tcp, job: JOB, me: PeerId(1), rail: 0 };
    let wanted = Role::Honest.fingerprint(1);
    let [mine, theirs] = fresh.map(|byte| [byte; 32]);
    let (mut dialler, opening) = Dialler::new(&caller.credentials(0), call, wanted, mine);
    let mut acceptor = Acceptor::new(called.credentials(1), station, theirs);

    let (bytes, changed) = carry(0, opening.bytes());
    let same_job = (caller == Role::Outsider) == (called == Role::Outsider);
    let answer = match acceptor.handle(&bytes) {
        Ok(Step::Send(answer)) if !changed && same_job => answer,
        // A recorded opening is answered, with keys that its sender does not have.
        Ok(Step::Send(answer)) if bytes == replayed && same_job => {
            assert!(matches!(dialler.handle(answer.bytes()), Err(AuthError::Proof)));
            return over_dialler(&mut dialler);
        }
        Err(error) if changed || !same_job => return over_acceptor(&mut acceptor, &error),
        outcome => panic!("opening, changed: {changed}: {outcome:?}"),
    };
    let (bytes, changed) = carry(1, answer.bytes());
    let proof = match dialler.handle(&bytes) {
        Ok(Step::Send(proof)) if !changed && called == Role::Honest => proof,
        Err(AuthError::Impostor { found }) if !changed && called != Role::Honest => {
            assert_eq!(found, called.fingerprint(1));
            return over_dialler(&mut dialler);
        }
        Err(_) if changed => return over_dialler(&mut dialler),
        outcome => panic!("answer, changed: {changed}: {outcome:?}"),
    };
    let (bytes, changed) = carry(2, proof.bytes());
    match acceptor.handle(&bytes) {
        Ok(Step::Authenticated { peer, key, rail, attempts }) if !changed => {
            assert_eq!((peer, key, rail, attempts), (PeerId(0), caller.fingerprint(0), 0, ATTEMPTS));
            assert_eq!(key == Role::Honest.fingerprint(0), caller == Role::Honest, "the caller finds it out");
        }
        Err(error) if changed => return over_acceptor(&mut acceptor, &error),
        outcome => panic!("proof, changed: {changed}: {outcome:?}"),
    }
    let ruling = acceptor.ruling(verdict).expect("it is due");
    assert_eq!(acceptor.ruling(verdict).err(), Some(AuthError::Over));
    let (bytes, changed) = carry(3, ruling.bytes());
    match (dialler.handle(&bytes), verdict) {
        (Err(_), _) if changed => {}
        (Ok(Step::Authenticated { peer, key, .. }), Verdict::Accepted) if !changed => {
            assert_eq!((peer, key), (PeerId(1), wanted));
        }
        (Ok(Step::Crossing), Verdict::Crossing) if !changed => {}
        (Err(AuthError::Refused(why)), Verdict::Refused(refused_for)) if !changed => assert_eq!(why, refused_for),
        (outcome, _) => panic!("ruling, changed: {changed}: {outcome:?}"),
    }
    over_dialler(&mut dialler);
}

/// A failed handshake takes nothing more, and answers nothing but a short refusal.
fn over_acceptor(acceptor: &mut Acceptor, error: &AuthError) {
    assert!(error.refusal().is_none_or(|refusal| refusal.bytes().len() < MESSAGE_BYTES_MAX));
    assert_eq!(acceptor.expects(), 0);
    assert_eq!(acceptor.handle(&[]).err(), Some(AuthError::Over));
    assert_eq!(acceptor.ruling(Verdict::Accepted).err(), Some(AuthError::Over));
}

fn over_dialler(dialler: &mut Dialler) {
    assert_eq!(dialler.expects(), 0);
    assert_eq!(dialler.handle(&[]).err(), Some(AuthError::Over));
}

/// Each way of changing each message, and each pair of processes.
pub fn seeds() -> Seeds {
    let mut seeds = Seeds::new();
    for message in 0..4 {
        for way in 0..9 {
            seeds.push((format!("message-{message}-way-{way}"), vec![0, 0, 2, message, way, 5, 1, 2, 3]));
        }
    }
    for (caller, called) in [(0, 6), (6, 0), (0, 7), (7, 0), (6, 6), (7, 7)] {
        seeds.push((format!("from-{caller}-to-{called}"), vec![caller, called, 3, 0, 0]));
    }
    for verdict in 0..2 {
        seeds.push((format!("verdict-{verdict}"), vec![0, 0, verdict, 0, 0]));
    }
    seeds
}
