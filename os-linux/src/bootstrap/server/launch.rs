//! A running job: the loop that serves its ranks.
//!
//! One step: wait for descriptors, read requests and output, write answers, reap ended processes, apply the
//! policy. Invariant: a rank's requests are answered one by one; as long as an answer waits for room in the
//! socket no further request is read, so a rank can't make us hold more than a line and an answer.

use std::collections::VecDeque;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::Signal;

use super::board::{Answer, Board, Notice};
use super::pipe::LinePipe;
use super::process::Process;
use super::report::{Exit, LaunchEvent, Phase, RankEnd, Report, Stop, Stream};
use super::signals::Signals;
use super::{LaunchError, Launcher, OnFailure, Output, spawn};
use crate::bootstrap::io::timespec;
use crate::bootstrap::line::LineReader;

/// Events that may wait for the caller before output is no longer read.
const EVENTS_MAX: usize = 1024;

/// Our end of a rank's channel.
#[derive(Debug)]
struct Pmi {
    fd: OwnedFd,
    reader: LineReader,
    /// Answers that the socket had no room for.
    unsent: VecDeque<u8>,
}

/// A rank.
#[derive(Debug)]
struct Rank {
    child: Child,
    process: Process,
    pmi: Option<Pmi>,
    out: Option<LinePipe>,
    err: Option<LinePipe>,
    phase: Phase,
    end_requested: bool,
    end: Option<RankEnd>,
}

/// A descriptor and its rank.
#[derive(Clone, Copy, Debug)]
enum Watched {
    Signals,
    Pmi(usize),
    Out(usize),
    Err(usize),
    Process(usize),
}

/// A job whose processes run. Dropping it kills them.
#[derive(Debug)]
pub struct Launch {
    ranks: Vec<Rank>,
    board: Board,
    events: VecDeque<LaunchEvent>,
    on_failure: OnFailure,
    output: Output,
    grace: Duration,
    stop: Option<Stop>,
    /// When ranks that were ordered to end are killed.
    kill_at: Option<Instant>,
    failed_first: Option<u32>,
    // Last, so that signals stay caught until the ranks are dropped.
    signals: Option<Signals>,
}

impl Launch {
    pub(super) fn start(launcher: Launcher, job_name: String) -> Result<Launch, LaunchError> {
        let signals = if launcher.catch_signals {
            Some(Signals::catch().map_err(|source| LaunchError::Io { doing: "catching signals", source })?)
        } else {
            None
        };
        let mut launch = Launch {
            ranks: Vec::with_capacity(launcher.ranks as usize),
            board: Board::new(job_name, launcher.ranks),
            events: VecDeque::new(),
            on_failure: launcher.on_failure,
            output: launcher.output,
            grace: launcher.grace,
            stop: None,
            kill_at: None,
            failed_first: None,
            signals,
        };
        let mask = launch.signals.as_ref().map(Signals::mask_before);
        for rank in 0..launcher.ranks {
            let started = spawn::spawn(&launcher, rank, mask)?;
            launch.ranks.push(Rank {
                child: started.child,
                process: started.process,
                pmi: Some(Pmi { fd: started.pmi, reader: LineReader::default(), unsent: VecDeque::new() }),
                out: started.stdout,
                err: started.stderr,
                phase: Phase::Started,
                end_requested: false,
                end: None,
            });
        }
        Ok(launch)
    }

    /// The job's name.
    pub fn job_name(&self) -> &str {
        self.board.kvsname()
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// The process id of a rank that still runs; `None`: it has ended (its id may be another process's by
    /// now) or isn't in the job.
    pub fn pid(&self, rank: u32) -> Option<u32> {
        self.ranks.get(rank as usize).filter(|rank| rank.end.is_none()).map(|rank| rank.child.id())
    }

    /// Sends a signal to a rank; `false`: it has ended or isn't in the job. Its end counts as its own
    /// failure.
    pub fn signal(&self, rank: u32, signal: Signal) -> bool {
        let rank = self.ranks.get(rank as usize).filter(|rank| rank.end.is_none());
        rank.is_some_and(|rank| rank.process.signal(signal))
    }

    /// Ends all ranks: SIGTERM now, SIGKILL after the grace period.
    pub fn stop(&mut self) {
        self.stop_for(Stop::EndRequested);
    }

    /// How a rank ended; `None`: it runs, or isn't in the job.
    pub fn end(&self, rank: u32) -> Option<RankEnd> {
        self.ranks.get(rank as usize).and_then(|rank| rank.end)
    }

    /// Whether all ranks have ended.
    pub fn is_over(&self) -> bool {
        self.ranks.iter().all(|rank| rank.end.is_some())
    }

    /// The next event. Call until there is none after every step: with [`Output::Lines`] a full queue stops
    /// output from being read.
    pub fn poll_event(&mut self) -> Option<LaunchEvent> {
        self.events.pop_front()
    }

    /// Makes all progress possible without waiting; returns how many descriptors were ready.
    pub fn step(&mut self) -> Result<usize, LaunchError> {
        self.step_for(Some(Duration::ZERO))
    }

    /// Waits until something happens, at most for `timeout` (`None`: no limit), and makes all progress
    /// possible. Returns at once if all ranks have ended.
    pub fn step_for(&mut self, timeout: Option<Duration>) -> Result<usize, LaunchError> {
        let now = Instant::now();
        if let Some(at) = self.kill_at.filter(|at| now >= *at) {
            tracing::debug!(late = ?(now - at), "grace period over, killing");
            self.kill_at = None;
            self.signal_living(Signal::KILL);
        }
        if self.is_over() {
            return Ok(0);
        }
        let grace = self.kill_at.map(|at| at.saturating_duration_since(now));
        let timeout = match (timeout, grace) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let ready = self.wait_for_descriptors(timeout)?;
        let mut answers = Vec::new();
        // Messages before ends: a rank's last message still counts. The order of `Watched` in the list
        // ensures this.
        for (watched, flags) in &ready {
            match *watched {
                Watched::Signals => {
                    while let Some(signal) = self.signals.as_ref().and_then(Signals::take) {
                        self.stop_for(Stop::Signal(signal));
                    }
                }
                Watched::Pmi(rank) => {
                    if flags.contains(PollFlags::OUT) {
                        self.flush(rank, &mut answers);
                    } else {
                        self.read_requests(rank, &mut answers);
                    }
                }
                Watched::Out(rank) => self.read_output(rank, Stream::Out),
                Watched::Err(rank) => self.read_output(rank, Stream::Err),
                Watched::Process(rank) => self.reap(rank, &mut answers)?,
            }
            self.send_answers(&mut answers);
        }
        Ok(ready.len())
    }

    /// Serves the job to its end.
    pub fn wait(self) -> Result<Report, LaunchError> {
        self.wait_with(|_| ())
    }

    /// Serves the job to its end and passes each event on.
    pub fn wait_with(mut self, mut on_event: impl FnMut(LaunchEvent)) -> Result<Report, LaunchError> {
        loop {
            while let Some(event) = self.poll_event() {
                on_event(event);
            }
            if self.is_over() {
                return Ok(self.report());
            }
            self.step_for(None)?;
        }
    }

    /// The job's state: complete once [`is_over`](Self::is_over).
    pub fn report(&self) -> Report {
        let ends = self.ranks.iter().filter_map(|rank| rank.end).collect();
        Report { ends, stop: self.stop.clone(), failed_first: self.failed_first }
    }

    fn wait_for_descriptors(&self, timeout: Option<Duration>) -> Result<Vec<(Watched, PollFlags)>, LaunchError> {
        let mut watched = Vec::new();
        let mut descriptors = Vec::new();
        let mut watch = |what, fd, flags| {
            watched.push(what);
            descriptors.push(PollFd::from_borrowed_fd(fd, flags));
        };
        if let Some(signals) = &self.signals {
            watch(Watched::Signals, signals.as_fd(), PollFlags::IN);
        }
        let room = self.events.len() < EVENTS_MAX;
        for (index, rank) in self.ranks.iter().enumerate() {
            if let Some(pmi) = &rank.pmi {
                let flags = if pmi.unsent.is_empty() { PollFlags::IN } else { PollFlags::OUT };
                watch(Watched::Pmi(index), pmi.fd.as_fd(), flags);
            }
            if let Some(out) = rank.out.as_ref().filter(|_| room) {
                watch(Watched::Out(index), out.as_fd(), PollFlags::IN);
            }
            if let Some(err) = rank.err.as_ref().filter(|_| room) {
                watch(Watched::Err(index), err.as_fd(), PollFlags::IN);
            }
            if rank.end.is_none() {
                watch(Watched::Process(index), rank.process.as_fd(), PollFlags::IN);
            }
        }
        let timeout = timeout.and_then(timespec);
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(errno) => return Err(LaunchError::Io { doing: "waiting for the ranks", source: errno.into() }),
        }
        let flags = descriptors.iter().map(PollFd::revents);
        Ok(watched.into_iter().zip(flags).filter(|(_, flags)| !flags.is_empty()).collect())
    }

    fn read_requests(&mut self, index: usize, answers: &mut Vec<Answer>) {
        let Some(pmi) = &mut self.ranks[index].pmi else { return };
        let mut bytes = [0; 4096];
        match rustix::io::read(&pmi.fd, &mut bytes) {
            Ok(count) if count > 0 => pmi.reader.feed(&bytes[..count]),
            Err(Errno::AGAIN | Errno::INTR) => return,
            _ => return self.close(index, answers),
        }
        self.handle_lines(index, answers);
    }

    /// Handles whole lines as long as the answers can be sent.
    fn handle_lines(&mut self, index: usize, answers: &mut Vec<Answer>) {
        let number = index as u32;
        while let Some(pmi) = self.ranks[index].pmi.as_mut().filter(|pmi| pmi.unsent.is_empty()) {
            let peer_text = match pmi.reader.next() {
                Ok(Some(peer_text)) => peer_text,
                Ok(None) => return,
                Err(_) => {
                    self.events.push_back(LaunchEvent::Malformed { rank: number, why: "line without end".into() });
                    return self.close(index, answers);
                }
            };
            match self.board.handle(number, &peer_text, answers) {
                None => {}
                Some(Notice::Joined) => {
                    self.ranks[index].phase = Phase::Joined;
                    self.events.push_back(LaunchEvent::Joined { rank: number });
                }
                Some(Notice::Finalized) => {
                    self.ranks[index].phase = Phase::Finalized;
                    self.events.push_back(LaunchEvent::Finalized { rank: number });
                }
                Some(Notice::Aborted { code, message }) => self.stop_for(Stop::Aborted { rank: number, code, message }),
                Some(Notice::Malformed(why)) => self.events.push_back(LaunchEvent::Malformed { rank: number, why }),
            }
            self.send_answers(answers);
        }
    }

    fn send_answers(&mut self, answers: &mut Vec<Answer>) {
        for (rank, line) in answers.drain(..) {
            if let Some(pmi) = &mut self.ranks[rank as usize].pmi {
                pmi.unsent.extend(line.as_bytes());
                pmi.unsent.push_back(b'\n');
                // A rank that has gone is noticed when its channel is read.
                let _ = send(pmi);
            }
        }
    }

    /// The socket has room again.
    fn flush(&mut self, index: usize, answers: &mut Vec<Answer>) {
        let Some(pmi) = &mut self.ranks[index].pmi else { return };
        if send(pmi).is_err() {
            return self.close(index, answers);
        }
        self.handle_lines(index, answers);
    }

    /// A rank's channel is closed: nothing waits for it any more.
    fn close(&mut self, index: usize, answers: &mut Vec<Answer>) {
        self.ranks[index].pmi = None;
        self.board.leave(index as u32, answers);
    }

    fn read_output(&mut self, index: usize, stream: Stream) {
        let rank = &mut self.ranks[index];
        let slot = match stream {
            Stream::Out => &mut rank.out,
            Stream::Err => &mut rank.err,
        };
        let Some(pipe) = slot else { return };
        let (events, output) = (&mut self.events, self.output);
        if !pipe.read(|text| hand_on(events, output, index as u32, stream, text)) {
            let pipe = slot.take().expect("it was just read from");
            pipe.drain(|text| hand_on(events, output, index as u32, stream, text));
        }
    }

    /// Takes note of a process's end, after its last words.
    fn reap(&mut self, index: usize, answers: &mut Vec<Answer>) -> Result<(), LaunchError> {
        let number = index as u32;
        if !self.ranks[index].process.has_ended() {
            return Ok(());
        }
        let status = match self.ranks[index].child.try_wait() {
            Ok(Some(status)) => status,
            Ok(None) => return Ok(()),
            Err(source) => return Err(LaunchError::Io { doing: "asking how a rank ended", source }),
        };
        // Bounded: the process has ended, and only a grandchild that holds the channel may still
        // write a little.
        for _ in 0..64 {
            if self.ranks[index].pmi.is_none() {
                break;
            }
            self.read_requests(index, answers);
            self.send_answers(answers);
        }
        self.close(index, answers);
        let rank = &mut self.ranks[index];
        let (events, output) = (&mut self.events, self.output);
        for (pipe, stream) in [(rank.out.take(), Stream::Out), (rank.err.take(), Stream::Err)] {
            if let Some(pipe) = pipe {
                pipe.drain(|text| hand_on(events, output, number, stream, text));
            }
        }
        let end = RankEnd {
            rank: number,
            pid: rank.child.id(),
            exit: Exit::from_status(status),
            phase: rank.phase,
            stopped: rank.end_requested,
        };
        rank.end = Some(end);
        self.events.push_back(LaunchEvent::Exited(end));
        if end.failed() {
            self.failed_first.get_or_insert(number);
            if self.on_failure == OnFailure::KillAll {
                self.stop_for(Stop::RankFailed(number));
            }
        }
        Ok(())
    }

    /// Ends all living ranks. A second reason (a user who presses ^C again) kills at once.
    fn stop_for(&mut self, why: Stop) {
        if self.stop.is_none() {
            self.events.push_back(LaunchEvent::Stopping(why.clone()));
            self.stop = Some(why);
            self.kill_at = Instant::now().checked_add(self.grace);
            self.signal_living(Signal::TERM);
        } else if matches!(why, Stop::Signal(_) | Stop::EndRequested) {
            self.kill_at = None;
            self.signal_living(Signal::KILL);
        }
    }

    fn signal_living(&mut self, signal: Signal) {
        for rank in self.ranks.iter_mut().filter(|rank| rank.end.is_none()) {
            // A process that had ended before the order is a failure of its own.
            let ended = matches!(rank.child.try_wait(), Ok(Some(_)));
            rank.end_requested |= !ended && rank.process.signal(signal);
        }
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        for rank in self.ranks.iter_mut().filter(|rank| rank.end.is_none()) {
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
    }
}

/// Sends as much as the socket takes.
fn send(pmi: &mut Pmi) -> Result<(), Errno> {
    while !pmi.unsent.is_empty() {
        match rustix::net::send(&pmi.fd, pmi.unsent.as_slices().0, SendFlags::NOSIGNAL) {
            Ok(count) => drop(pmi.unsent.drain(..count)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(errno) => {
                pmi.unsent.clear();
                return Err(errno);
            }
        }
    }
    Ok(())
}

/// Prints a line, or makes an event of it.
fn hand_on(events: &mut VecDeque<LaunchEvent>, output: Output, rank: u32, stream: Stream, text: String) {
    if output == Output::Lines {
        events.push_back(LaunchEvent::Line { rank, stream, text });
        return;
    }
    // The launcher's own output may be closed; the job continues.
    let _ = match stream {
        Stream::Out => writeln!(std::io::stdout().lock(), "[{rank}] {text}"),
        Stream::Err => writeln!(std::io::stderr().lock(), "[{rank}] {text}"),
    };
}
