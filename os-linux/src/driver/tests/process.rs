//! A peer that is a process of its own: this test program, started again for one of its tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rerail_core::ids::PeerId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::cluster::{Cluster, Fabric, rails, small};
use crate::driver::{Opening, Transport};
use crate::rail::Rail;
use crate::rail::loopback::Loopback;

/// Names the fabric on which the process is a peer.
const FABRIC: &str = "RERAIL_TEST_PEER";
const RANKS: u32 = 3;

/// Rank 2. Killed at the latest when the test ends.
pub(super) struct Process {
    child: Child,
    /// Its end notifies the process that its parent is gone.
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

fn opening(rank: PeerId, fabric: Fabric) -> Opening {
    let mut all: Vec<Box<dyn Rail + Send>> = vec![Box::new(Loopback::new(rank))];
    all.extend(rails(rank.0, RANKS, fabric));
    Opening::with_rails(small(rank.0, RANKS), "here".to_owned(), all, 1).unwrap()
}

impl Process {
    pub(super) const RANK: PeerId = PeerId(2);

    /// In the process: its transport, once the others are known. `None`: the test that calls this was not
    /// started by another one, and has nothing to do.
    pub(super) fn transport() -> Option<Transport> {
        let fabric = std::env::var(FABRIC).ok()?;
        let all = [Fabric::Shm, Fabric::Tcp, Fabric::TwoTcp];
        let mut opening = opening(Self::RANK, all.into_iter().find(|it| format!("{it:?}") == fabric).unwrap());
        println!("\ncard {}", opening.address_record());
        for (rank, address_record) in std::io::stdin().lines().take(RANKS as usize).enumerate() {
            opening.learn(PeerId(rank as u32), &address_record.unwrap()).unwrap();
        }
        Some(opening.join().unwrap())
    }

    /// In the process: whether the parent is gone.
    pub(super) fn is_over() -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&std::io::stdin(), PollFlags::IN)], Some(&now)).unwrap() > 0
    }

    /// Starts this program for the test of that name alone.
    fn start(test: &str, fabric: Fabric) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(FABRIC, format!("{fabric:?}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Process { child, stdin, stdout }
    }

    fn address_record(&mut self) -> String {
        let mut lines = self.stdout.by_ref().lines().map(Result::unwrap);
        lines.find_map(|line| line.strip_prefix("card ").map(str::to_owned)).unwrap()
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Killed and waited for already, or on the way out of a failed test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ranks 0 and 1 here, and rank 2 as a process that runs the test of that name.
pub(super) fn two_and_a_process(test: &str, fabric: Fabric) -> (Cluster, Process) {
    let mut process = Process::start(test, fabric);
    let mut openings = [0, 1].map(|rank| opening(PeerId(rank), fabric));
    let address_records =
        [openings[0].address_record().to_owned(), openings[1].address_record().to_owned(), process.address_record()];
    writeln!(process.stdin, "{}", address_records.join("\n")).unwrap();
    for opening in &mut openings {
        for (rank, address_record) in address_records.iter().enumerate() {
            opening.learn(PeerId(rank as u32), address_record).unwrap();
        }
    }
    let cluster = Cluster {
        transports: openings.into_iter().map(|opening| opening.join().unwrap()).collect(),
        events: vec![Default::default(); 2],
        frozen: vec![false; 2],
    };
    (cluster, process)
}
