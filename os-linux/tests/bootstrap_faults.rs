//! Two processes whose launcher fails: its connection to one of them is reset or it falls silent while they
//! start, it is gone while they exchange messages, or when they leave. Rules B-1 to B-4.
//!
//! The launcher is this test, over TCP (`PMI_PORT`), so that it can fail without ending the processes, as one
//! on another host does; the processes are this program again. Every message is checked byte by byte.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rerail_core::endpoint::{Event, RecvRequest, Selector, SendRequest};
use rerail_core::ids::{OpId, PeerId};
use rerail_core::mem::Seg;
use rerail_linux::bootstrap::{BootError, from_env};
use rerail_linux::driver::{FinishError, Options, StartError, Transport};
use rerail_linux::settings::Settings;

/// Set in a process that runs as a rank.
const ROLE: &str = "RERAIL_TEST_BOOT";
const RANKS: u32 = 2;
/// Larger than what goes eagerly.
const BYTES: usize = 300_000;
/// Nothing here takes so long unless it hangs.
const HANG: Duration = Duration::from_secs(120);

// ---- a rank

/// What an error of the bootstrap is, for the test to compare.
fn name(error: &BootError) -> String {
    match error {
        BootError::Closed { doing } => format!("closed: {doing}"),
        BootError::Timeout { doing, waited_ms } => format!("timeout after {waited_ms} ms: {doing}"),
        BootError::Absent { rank, key } => format!("absent: {key} of rank {rank}"),
        other => format!("{other:?}"),
    }
}

fn start() -> Result<Transport, BootError> {
    let mut settings = Settings::from_env().unwrap();
    settings.set("rails", "tcp").unwrap();
    settings.set("tcp_interfaces", "127.0.0.1,127.0.0.2").unwrap();
    match Transport::start(Options { settings }, from_env()?) {
        Ok(transport) => Ok(transport),
        Err(StartError::Boot(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

/// Drives until all of these are complete; the immediate data of the one that had some.
fn through(transport: &mut Transport, operations: &[OpId]) -> Option<u64> {
    let (mut left, mut immediate) = (operations.len(), None);
    while left > 0 {
        transport.progress();
        while let Some(event) = transport.poll_event() {
            match event {
                Event::Completed(over) if operations.contains(&over.operation) => {
                    immediate = immediate.or(over.result.unwrap().immediate);
                    left -= 1;
                }
                Event::PeerLost { peer, why } => panic!("rank {} was lost: {why:?}", peer.0),
                _ => {}
            }
        }
    }
    immediate
}

/// Messages to and fro until rank 0 reads `end`; then BYE. Each step is printed as a line.
fn rank() {
    let mut transport = match start() {
        Ok(transport) => transport,
        Err(error) => return println!("\nno start: {}", name(&error)),
    };
    println!("\nstarted");
    let is_first = transport.rank() == PeerId(0);
    let (word, words) = channel();
    std::thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).try_for_each(|text| word.send(text)));
    let memory = [(); 2].map(|()| transport.alloc(BYTES).unwrap());
    let segments = memory.map(|region| [Seg::new(region, 0, BYTES as u64)]);
    let pattern =
        |round: u64| (0..BYTES).map(move |at| (at as u64 * 7 + round * 13).to_le_bytes()[0] ^ (at >> 8) as u8);
    for round in 0_u64.. {
        // The last round is marked as such in the message.
        let is_last = is_first && words.try_recv().is_ok();
        let recv = transport.recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &segments[1])).unwrap();
        let send = |transport: &mut Transport, is_last: bool| {
            let bytes = transport.bytes_mut(memory[0]).unwrap();
            bytes.iter_mut().zip(pattern(round)).for_each(|(byte, of)| *byte = of);
            let peer = PeerId(u32::from(is_first));
            let immediate = Some(round << 1 | u64::from(is_last));
            transport.send(&SendRequest { immediate, ..SendRequest::new(peer, &segments[0]) }).unwrap()
        };
        let output = if is_first {
            let sent = send(&mut transport, is_last);
            through(&mut transport, &[recv, sent])
        } else {
            through(&mut transport, &[recv])
        };
        let output = output.expect("every message is numbered");
        assert_eq!(output >> 1, round);
        assert!(transport.bytes(memory[1]).unwrap().iter().copied().eq(pattern(round)), "round {round} differs");
        if !is_first {
            let sent = send(&mut transport, output & 1 == 1);
            through(&mut transport, &[sent]);
        }
        if round % 20 == 19 {
            println!("\nround {round}");
        }
        if output & 1 == 1 {
            break;
        }
    }
    match transport.finish(None) {
        Ok(shutdown) => println!("\nleft: {} closed, {} lost", shutdown.closed, shutdown.lost.len()),
        Err(FinishError::Boot { error, shutdown }) => {
            println!("\nleft: {} closed, {} lost; {}", shutdown.closed, shutdown.lost.len(), name(&error));
        }
        Err(other) => panic!("{other}"),
    }
}

// ---- the launcher

/// What the launcher does to a rank at one of its questions, instead of an answer.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// Sends nothing any more, to any rank.
    Silence,
    /// Resets the connection.
    Reset,
}

/// The job's board.
#[derive(Default)]
struct Board {
    values: HashMap<String, String>,
    /// Ranks that wait, fences that have opened, ranks that are gone.
    waiting: u32,
    opened: u32,
    gone: u32,
    /// Requests of each kind that each rank has sent.
    requested: HashMap<(u32, String), u32>,
}

impl Board {
    fn open(&mut self) {
        if self.waiting > 0 && self.waiting + self.gone == RANKS {
            (self.waiting, self.opened) = (0, self.opened + 1);
        }
    }
}

/// The launcher: its board, the fault that it will have, and its connections.
struct Launcher {
    board: Mutex<Board>,
    moved: Condvar,
    /// At this rank's so many-th question of a kind.
    fault: Option<(u32, &'static str, u32, Fault)>,
    streams: Mutex<HashMap<u32, TcpStream>>,
}

/// The value of a field of a line.
fn field<'l>(line: &'l str, name: &str) -> &'l str {
    line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
}

/// Has a connection reset: a reader receives its end, and when no thread holds it any more it ends at
/// once.
fn reset(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
    stream.shutdown(Shutdown::Read).unwrap();
}

impl Launcher {
    /// Answers one rank until its connection ends, or the fault comes.
    fn serve(&self, mut stream: TcpStream) {
        let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let mut rank = 0;
        for line in lines {
            let kind = field(&line, "cmd");
            if kind == "initack" {
                rank = field(&line, "pmiid").parse().unwrap();
                self.streams.lock().unwrap().insert(rank, stream.try_clone().unwrap());
            }
            let mut board = self.board.lock().unwrap();
            let count = board.requested.entry((rank, kind.to_owned())).or_default();
            *count += 1;
            let fault = self.fault.filter(|&(at, of, after, _)| (at, of, after) == (rank, kind, *count));
            match fault.map(|(.., fault)| fault) {
                Some(Fault::Silence) => return,
                Some(Fault::Reset) => {
                    drop(board);
                    self.streams.lock().unwrap().remove(&rank);
                    reset(&stream);
                    break;
                }
                None => {}
            }
            let answer = match kind {
                "initack" => format!("cmd=initack\ncmd=set size={RANKS}\ncmd=set rank={rank}\ncmd=set debug=0"),
                "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".into(),
                "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024".into(),
                "get_my_kvsname" => "cmd=my_kvsname kvsname=faults".into(),
                "put" => {
                    let value = line.split_once(" value=").unwrap().1.to_owned();
                    board.values.insert(field(&line, "key").to_owned(), value);
                    "cmd=put_result rc=0".into()
                }
                "get" => match board.values.get(field(&line, "key")) {
                    Some(value) => format!("cmd=get_result rc=0 value={value}"),
                    None => "cmd=get_result rc=-1".into(),
                },
                "barrier_in" => {
                    let before = board.opened;
                    board.waiting += 1;
                    board.open();
                    self.moved.notify_all();
                    board = self.moved.wait_while(board, |board| board.opened == before).unwrap();
                    "cmd=barrier_out rc=0".into()
                }
                "finalize" => "cmd=finalize_ack".into(),
                other => panic!("{other}"),
            };
            drop(board);
            if writeln!(stream, "{answer}").is_err() {
                break;
            }
        }
        let mut board = self.board.lock().unwrap();
        board.gone += 1;
        board.open();
        self.moved.notify_all();
    }
}

/// A rank as a process, killed at the latest when it is dropped.
struct Process {
    child: Child,
    stdin: ChildStdin,
    output: Receiver<String>,
}

impl Process {
    fn start(rank: u32, port: &str, boot_timeout: &str) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--nocapture", "--test-threads=1"])
            // A launcher of this test's own processes may have left its words here.
            .env_remove("PMI_FD")
            .env_remove("PMI_SIZE")
            .env_remove("PMI_RANK")
            .env(ROLE, "rank")
            .env("PMI_PORT", port)
            .env("PMI_ID", rank.to_string())
            .env("RERAIL_BOOT_TIMEOUT", boot_timeout)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (line, output) = channel();
        // Ends with the process.
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|text| line.send(text))
        });
        Process { child, stdin, output }
    }

    /// The next line that begins like this.
    fn expected_text(&self, start: &str) -> String {
        loop {
            let line = self.output.recv_timeout(HANG).unwrap_or_else(|error| panic!("no {start:?}: {error}"));
            if line.starts_with(start) {
                return line;
            }
        }
    }

    /// The number of the last round that it has printed, if it has printed one that was not taken yet.
    fn last_round(&self) -> Option<u64> {
        self.output.try_iter().filter_map(|line| round_in(&line)).last()
    }

    /// Waits until it prints this round, or a later one.
    fn reaches(&self, round: u64) {
        while round_in(&self.expected_text("round")).is_none_or(|reached| reached < round) {}
    }

    /// Waits until it ends, which must be well.
    fn ends(&mut self) {
        // A process that prints nothing more has closed its output: it is about to end.
        loop {
            match self.output.recv_timeout(HANG) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("does not end"),
            }
        }
        let status = self.child.wait().unwrap();
        assert!(status.success(), "ended with {status}");
    }
}

/// The number in a line that reports a round.
fn round_in(line: &str) -> Option<u64> {
    line.strip_prefix("round ")?.parse().ok()
}

impl Drop for Process {
    fn drop(&mut self) {
        // Over already: nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A job whose launcher has a fault, and what becomes of it.
fn job(
    boot_timeout: &str,
    fault: Option<(u32, &'static str, u32, Fault)>,
    of: impl FnOnce(&Arc<Launcher>, &mut [Process; 2]),
) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().to_string();
    let launcher =
        Arc::new(Launcher { board: Mutex::default(), moved: Condvar::new(), fault, streams: Mutex::default() });
    let mut ranks = [0, 1].map(|rank| Process::start(rank, &port, boot_timeout));
    let serving = launcher.clone();
    // A rank that ends before it calls is noticed by the test that waits for its output.
    std::thread::spawn(move || {
        for stream in listener.incoming().take(RANKS as usize).map_while(Result::ok) {
            let launcher = serving.clone();
            std::thread::spawn(move || launcher.serve(stream));
        }
    });
    of(&launcher, &mut ranks);
    ranks.iter_mut().for_each(Process::ends);
}

/// How a rank has left the other one: it may have received its BYE before it sent its own.
const LEFT_LINES: [&str; 2] = ["left: 1 closed, 0 lost", "left: 0 closed, 0 lost"];

/// B-1, B-4: a rank that loses the launcher at a fence reports it; the other one goes on and reports which is
/// missing.
fn a_reset_while_they_start() {
    job("100s", Some((1, "barrier_in", 1, Fault::Reset)), |_, ranks| {
        assert_eq!(ranks[1].expected_text("no start"), "no start: closed: waiting for the other ranks (barrier)");
        assert_eq!(ranks[0].expected_text("no start"), "no start: absent: address of rank 1");
    });
}

/// B-1: a launcher that falls silent is an error of all that wait for it, and not for ever.
fn a_silent_launcher_while_they_start() {
    job("2s", Some((1, "init", 1, Fault::Silence)), |_, ranks| {
        assert_eq!(ranks[1].expected_text("no start"), "no start: timeout after 2000 ms: joining (init)");
        let waiting = "no start: timeout after 2000 ms: waiting for the other ranks (barrier)";
        assert_eq!(ranks[0].expected_text("no start"), waiting);
    });
}

/// B-2, B-3: the launcher's end is not noticed by messages; at the end it is reported, and the peers were
/// left all the same.
fn a_launcher_that_dies_while_messages_flow() {
    job("100s", None, |launcher, ranks| {
        for rank in &mut *ranks {
            rank.expected_text("started");
            rank.reaches(0);
        }
        launcher.streams.lock().unwrap().drain().for_each(|(_, stream)| reset(&stream));
        // What was sent before the reset may wait here still; after so many rounds more they were made
        // without a launcher.
        for rank in &*ranks {
            let before = rank.last_round().unwrap_or_default();
            rank.reaches(before + 200);
        }
        writeln!(ranks[0].stdin, "end").unwrap();
        for rank in ranks {
            let line = rank.expected_text("left");
            assert!(LEFT_LINES.map(|words| format!("{words}; closed: leaving (finalize)")).contains(&line), "{line}");
        }
    });
}

/// B-3: a working launcher receives BYE.
fn a_launcher_that_stays() {
    job("100s", None, |_, ranks| {
        writeln!(ranks[0].stdin, "end").unwrap();
        for rank in ranks {
            let line = rank.expected_text("left");
            assert!(LEFT_LINES.contains(&&*line), "{line}");
        }
    });
}

#[test]
fn launchers_fail() {
    if std::env::var(ROLE).is_ok() {
        return rank();
    }
    a_reset_while_they_start();
    a_silent_launcher_while_they_start();
    a_launcher_that_dies_while_messages_flow();
    a_launcher_that_stays();
}
