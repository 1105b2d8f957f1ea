//! The board of a job after its start: keys, fences and barriers of four processes under a launcher, while
//! messages flow. Some ranks reach a barrier only when others answer them out of it.

use std::time::Duration;

use rerail_linux::bootstrap::server::{Launcher, Output};
use rerail_linux::bootstrap::{BootError, from_env};
use rerail_linux::{Options, PeerId, RecvRequest, RegionId, Seg, Selector, SendRequest, Settings, Transport};

/// Set in a process that is a rank.
const ROLE: &str = "RERAIL_TEST_BARRIER";
const RANKS: u32 = 4;
/// Goes by rendezvous: its receiver has to answer before the send completes.
const BYTES: usize = 1 << 20;
const ROUNDS: u64 = 20;
/// Nothing here takes so long unless it hangs.
const HANG: Duration = Duration::from_secs(60);

fn rank() {
    let settings = Settings::from_env().expect("settings");
    let mut transport = Transport::start(Options { settings }, from_env().expect("the launcher")).expect("a job");
    let me = transport.rank().0;
    let memory = transport.alloc(2 * BYTES).expect("memory");
    for round in 0..ROUNDS {
        let key = format!("round-{round}");
        transport.bootstrap().expect("a job").put(&key, &format!("{me} {round}")).expect("a new key");
        if round % 2 == 0 {
            a_message_into_a_barrier(&mut transport, memory, round);
        } else {
            transport.bootstrap().expect("a job").fence().expect("a fence");
        }
        let board = transport.bootstrap().expect("a job");
        for other in 0..RANKS {
            assert_eq!(board.get(other, &key).expect("read").as_deref(), Some(&*format!("{other} {round}")));
        }
    }
    transport.finish(Some(HANG)).expect("left");
}

/// B-2: the receiver posts and enters the barrier; the sender follows when its message has been received.
fn a_message_into_a_barrier(transport: &mut Transport, memory: RegionId, round: u64) {
    let me = transport.rank().0;
    let (from, to) = ((round / 2 % 4) as u32, ((round / 2 + 1) % 4) as u32);
    let byte = round as u8 + 1;
    if me == to {
        let into = [Seg::new(memory, BYTES as u64, BYTES as u64)];
        transport.recv(&RecvRequest::new(Selector::tagged(round).of(PeerId(from)), &into)).expect("a receive");
    } else if me == from {
        transport.bytes_mut(memory).expect("memory")[..BYTES].fill(byte);
        let message = [Seg::new(memory, 0, BYTES as u64)];
        let send = SendRequest { tag: Some(round), ..SendRequest::new(PeerId(to), &message) };
        let send = transport.send(&send).expect("a send");
        transport.wait_for(send, Some(HANG)).expect("complete").result.expect("sent");
    }
    transport.barrier(Some(HANG)).expect("a barrier");
    if me == to {
        assert!(transport.bytes(memory).expect("memory")[BYTES..].iter().all(|&it| it == byte), "round {round}");
    }
    while transport.poll_event().is_some() {}
}

#[test]
fn ranks_are_answered_out_of_a_barrier() {
    if std::env::var_os(ROLE).is_some() {
        return rank();
    }
    let program = std::env::current_exe().expect("a test has a path");
    for rails in ["shm", "tcp"] {
        let launcher = Launcher::new(&program).args(["--nocapture", "--test-threads=1"]).ranks(RANKS);
        let launcher = launcher.env(ROLE, "rank").env("RERAIL_RAILS", rails).env("RERAIL_TCP_INTERFACES", "127.0.0.1");
        let report = launcher.output(Output::Null).spawn().expect("processes").wait().expect("their ends");
        assert_eq!(report.exit_code(), 0, "{rails}");
    }
}

/// A transport without a job has no board.
#[test]
fn without_a_job_there_is_no_barrier() {
    if std::env::var_os(ROLE).is_some() {
        return;
    }
    let mut settings = Settings::default();
    settings.set("rails", "shm").expect("a setting");
    let mut transport = Transport::open_named(&Options { settings }).expect("a transport");
    assert!(matches!(transport.barrier(None), Err(BootError::NoJob)));
}
