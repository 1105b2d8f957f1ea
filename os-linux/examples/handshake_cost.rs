//! What it costs the processor to authenticate: whole handshakes of both sides, in memory.
//!
//! ```sh
//! cargo run --release -p rerail-linux --example handshake_cost
//! ```

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use rerail_core::ids::PeerId;
use rerail_core::wire::handshake::{Transport, Verdict};
use rerail_linux::auth::{Acceptor, Attempts, Call, Credentials, Dialler, Secret, Station, Step};

const COUNT: u32 = 1000;
const JOB: u64 = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let [a, b] = [1, 2].map(|rank: u8| Credentials::new([rank; 32], Secret::new([9; 32])));
    let unknown_process = Credentials::new([3; 32], Secret::new([8; 32]));
    let attempts = Attempts { attempt: 1, answers: 0 };
    let call = Call { transport: Transport::Tcp, job: JOB, from: PeerId(0), to: PeerId(1), rail: 0, attempts };
    let station = Station { transport: Transport::Tcp, job: JOB, me: PeerId(1), rail: 0 };

    let began = Instant::now();
    for count in 0..COUNT {
        let (mut dialler, opening) = Dialler::new(&a, call, b.public().fingerprint(), fresh(count));
        let mut acceptor = Acceptor::new(b.clone(), station, fresh(!count));
        let Step::Send(answer) = acceptor.handle(opening.bytes())? else { return Err("no answer".into()) };
        let Step::Send(proof) = dialler.handle(answer.bytes())? else { return Err("no proof".into()) };
        let Step::Authenticated { key, .. } = acceptor.handle(proof.bytes())? else { return Err("no peer".into()) };
        let ruling = acceptor.ruling(Verdict::Accepted)?;
        let Step::Authenticated { .. } = dialler.handle(ruling.bytes())? else { return Err("no end".into()) };
        if key != a.public().fingerprint() {
            return Err("another process".into());
        }
    }
    let whole = began.elapsed() / COUNT;

    let (_, opening) = Dialler::new(&unknown_process, call, b.public().fingerprint(), fresh(0));
    let began = Instant::now();
    for count in 0..COUNT {
        let mut acceptor = Acceptor::new(b.clone(), station, fresh(count));
        if black_box(acceptor.handle(opening.bytes())).is_ok() {
            return Err("a stranger was answered".into());
        }
    }
    let refused = began.elapsed() / COUNT;
    println!("a connection, both sides: {:.0} us; refusing a stranger: {:.0} us", micros(whole), micros(refused));
    Ok(())
}

fn fresh(count: u32) -> [u8; 32] {
    let mut bytes = [0x5A; 32];
    bytes[8..12].copy_from_slice(&count.to_le_bytes());
    bytes
}

fn micros(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
