//! Client of the PMI-2 wire protocol of Slurm (`srun --mpi=pmi2`) and of MPICH's hydra.
//!
//! One question and one answer at a time over an inherited descriptor, each within a limit (B-1). After a
//! line that agrees on the version, a message is six decimal digits with its length, and then
//! `cmd=name;key=value;...;`, where `;;` stands for a semicolon in a value. Source: MPICH's description of
//! the wire protocol (doc/wiki/developer), checked against hydra 4.0.2 and Slurm 22.05.
//!
//! Invariant: each answer belongs to the last request, as in [`pmi1`](super::pmi1).

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use super::error::excerpt;
use super::io::{Limit, Meanwhile};
use super::line::{Line, LineReader, escape};
use super::pieces;
use super::pmi1::{ABORT_MAX, Seat, answer_limit, protocol_error};
use super::{ANSWER_MAX, BootError, Bootstrap, OwnKeys, check_key, check_rank};

/// Values have at most 1024 bytes with the C string's final zero (`PMI2_MAX_VALLEN`).
const PIECE_BYTES_MAX: usize = 1000;

/// Digits of a message's length.
const LENGTH_BYTES: usize = 6;

/// Longest message that is taken, its length not counted: the limit of MPICH's client.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// A process's seat at a PMI-2 launcher.
#[derive(Debug)]
pub struct Pmi2 {
    fd: OwnedFd,
    /// Bytes that have come and belong to no message yet.
    bytes: Vec<u8>,
    answer_max: Option<Duration>,
    rank: u32,
    size: u32,
    job: String,
    keys: OwnKeys,
    /// The job was left, or an answer did not come or was malformed: later answers match no request.
    is_over: bool,
}

impl Pmi2 {
    /// Joins over the channel in the environment: `PMI_FD` with `PMI_RANK`, `PMI_SIZE` and `PMI_JOBID`.
    /// `RERAIL_BOOT_TIMEOUT` limits the time of each answer. The descriptor is duplicated, not taken; still
    /// only one client may use it.
    ///
    /// # Errors
    /// As [`Pmi1::from_vars`](super::pmi1::Pmi1::from_vars).
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Self, BootError> {
        let Seat { fd, rank, size } = Seat::from_vars(&var)?;
        Self::enter(fd, answer_limit(&var)?, rank, size, &var("PMI_JOBID").unwrap_or_default())
    }

    /// Joins as `rank` of `size` over a descriptor; `job`: the launcher's name for the job, which it may
    /// check. Answers may take [`ANSWER_MAX`] unless [`Bootstrap::limit`] is called.
    ///
    /// # Errors
    /// The launcher's error, or the lack of an answer.
    pub fn join(fd: OwnedFd, rank: u32, size: u32, job: &str) -> Result<Self, BootError> {
        Self::enter(fd, Some(ANSWER_MAX), rank, size, job)
    }

    fn enter(fd: OwnedFd, answer_max: Option<Duration>, rank: u32, size: u32, job: &str) -> Result<Self, BootError> {
        let keys = OwnKeys::default();
        let mut pmi = Pmi2 { fd, bytes: Vec::new(), answer_max, rank, size, job: job.into(), keys, is_over: false };
        pmi.agree_on_version()?;

        const JOIN: &str = "joining (fullinit)";
        let request = format!("pmijobid={};pmirank={rank};threaded=FALSE;", job.replace(';', ";;"));
        let (answer, text) = pmi.request(JOIN, "fullinit", &request)?;
        let number = |name: &str| {
            let value = answer.number(name).map_err(|why| protocol_error(JOIN, why, &text))?;
            u32::try_from(value).map_err(|_| protocol_error(JOIN, format!("{name} is no number that fits"), &text))
        };
        (pmi.rank, pmi.size) = (number("rank")?, number("size")?);
        if pmi.size == 0 || pmi.rank >= pmi.size {
            return Err(BootError::Rank { rank: pmi.rank, size: pmi.size });
        }
        if let Some(job) = pmi.request("asking for the job's name (job-getid)", "job-getid", "")?.0.get("jobid") {
            pmi.job = job.to_owned();
        }
        Ok(pmi)
    }

    /// The line with which every version of PMI begins.
    fn agree_on_version(&mut self) -> Result<(), BootError> {
        const DOING: &str = "joining (init)";
        let limit = Limit::new(self.answer_max);
        limit.write(self.fd.as_fd(), b"cmd=init pmi_version=2 pmi_subversion=0\n", DOING, &mut None)?;
        let mut lines = LineReader::default();
        let text = loop {
            match lines.next() {
                Ok(Some(text)) => break text,
                Ok(None) => {}
                Err(_) => return Err(protocol_error(DOING, "no end of line".into(), lines.rest())),
            }
            let mut bytes = [0; 1024];
            let count = limit.read(self.fd.as_fd(), &mut bytes, DOING, &mut None)?;
            lines.feed(&bytes[..count]);
        };
        let wrong = |why| protocol_error(DOING, why, &text);
        let line = Line::parse(&text).map_err(wrong)?;
        if line.cmd() != "response_to_init" {
            return Err(wrong("cmd=response_to_init expected".into()));
        }
        match line.number("pmi_version").map_err(wrong)? {
            2 => Ok(()),
            other => Err(wrong(format!("PMI version 2 expected, not {other}"))),
        }
    }

    fn running(&self) -> Result<(), BootError> {
        if self.is_over { Err(BootError::Over) } else { Ok(()) }
    }

    /// One request, and its answer, which must report success.
    fn request(&mut self, doing: &'static str, command: &str, pairs: &str) -> Result<(Line, Vec<u8>), BootError> {
        self.request_until(Limit::new(self.answer_max), doing, command, pairs, &mut None)
    }

    fn request_until(
        &mut self,
        limit: Limit,
        doing: &'static str,
        command: &str,
        pairs: &str,
        meanwhile: &mut Meanwhile<'_>,
    ) -> Result<(Line, Vec<u8>), BootError> {
        self.running()?;
        let answered = self
            .send(limit, doing, command, pairs)
            .and_then(|()| self.answer(limit, doing, meanwhile))
            .and_then(|(answer, text)| {
                if answer.cmd().strip_suffix("-response") != Some(command) {
                    return Err(protocol_error(doing, format!("cmd={command}-response expected"), &text));
                }
                match answer.get("rc").map_or(Ok(0), |_| answer.number("rc")) {
                    Ok(0) => Ok((answer, text)),
                    Ok(code) => {
                        let message = answer.get("errmsg").unwrap_or("no reason given");
                        Err(BootError::Refused { doing, code, message: excerpt(message.as_bytes()) })
                    }
                    Err(why) => Err(protocol_error(doing, why, &text)),
                }
            });
        self.is_over |= answered.as_ref().is_err_and(|error| !matches!(error, BootError::Refused { .. }));
        answered
    }

    fn send(&mut self, limit: Limit, doing: &'static str, command: &str, pairs: &str) -> Result<(), BootError> {
        let message = format!("cmd={command};{pairs}");
        let message = format!("{:>LENGTH_BYTES$}{message}", message.len());
        limit.write(self.fd.as_fd(), message.as_bytes(), doing, &mut None)
    }

    /// The next message.
    fn answer(
        &mut self,
        limit: Limit,
        doing: &'static str,
        meanwhile: &mut Meanwhile<'_>,
    ) -> Result<(Line, Vec<u8>), BootError> {
        loop {
            if let Some((digits, rest)) = self.bytes.split_first_chunk::<LENGTH_BYTES>() {
                let length = std::str::from_utf8(digits).ok().and_then(|text| text.trim().parse::<usize>().ok());
                let length = length
                    .filter(|&length| length <= MESSAGE_BYTES_MAX)
                    .ok_or_else(|| protocol_error(doing, "no length of a message".into(), digits))?;
                if rest.len() >= length {
                    let text = rest[..length].to_vec();
                    self.bytes.drain(..LENGTH_BYTES + length);
                    let line = Line::parse_pairs(&text).map_err(|why| protocol_error(doing, why, &text))?;
                    return Ok((line, text));
                }
            }
            let mut bytes = [0; 4096];
            let count = limit.read(self.fd.as_fd(), &mut bytes, doing, meanwhile)?;
            self.bytes.extend_from_slice(&bytes[..count]);
        }
    }

    fn wait_for_all(&mut self, limit: Limit, meanwhile: &mut Meanwhile<'_>) -> Result<(), BootError> {
        const DOING: &str = "waiting for the other ranks (kvs-fence)";
        self.request_until(limit, DOING, "kvs-fence", "", meanwhile).map(|_| ())
    }

    fn put_piece(&mut self, key: &str, piece: &str) -> Result<(), BootError> {
        self.request("publishing (kvs-put)", "kvs-put", &format!("key={key};value={piece};")).map(|_| ())
    }

    fn get_piece(&mut self, key: &str) -> Result<Option<String>, BootError> {
        const DOING: &str = "reading (kvs-get)";
        let request = format!("jobid={};srcid=-1;key={key};", self.job.replace(';', ";;"));
        match self.request(DOING, "kvs-get", &request) {
            Ok((answer, _)) if answer.get("found") == Some("FALSE") => Ok(None),
            Ok((answer, text)) => match answer.get("value") {
                Some(value) => Ok(Some(value.into())),
                None => {
                    self.is_over = true;
                    Err(protocol_error(DOING, "no value".into(), &text))
                }
            },
            // Slurm has a code for it.
            Err(BootError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Bootstrap for Pmi2 {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn job_name(&self) -> &str {
        &self.job
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), BootError> {
        self.running()?;
        self.keys.claim(key, value)?;
        pieces::put(self.rank, key, value, PIECE_BYTES_MAX, |name, piece| self.put_piece(name, piece))
    }

    fn fence(&mut self) -> Result<(), BootError> {
        self.wait_for_all(Limit::new(self.answer_max), &mut None)
    }

    fn barrier(&mut self, limit: Option<Duration>, meanwhile: &mut dyn FnMut()) -> Result<(), BootError> {
        self.wait_for_all(Limit::new(limit), &mut Some(meanwhile))
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<String>, BootError> {
        self.running()?;
        check_rank(rank, self.size)?;
        check_key(key)?;
        pieces::get(rank, key, |name| self.get_piece(name))
    }

    fn finalize(&mut self) -> Result<(), BootError> {
        let left = self.request("leaving (finalize)", "finalize", "").map(|_| ());
        self.is_over = true;
        left
    }

    fn abort(&mut self, why: &str) {
        if !self.is_over {
            self.is_over = true;
            let mut message = escape(why);
            message.truncate(256);
            // There is no answer, and no alternative if it can't be sent.
            let pairs = format!("isworld=TRUE;msg={message};");
            let _ = self.send(Limit::new(Some(ABORT_MAX)), "aborting", "abort", &pairs);
        }
    }

    fn limit(&mut self, answer_max: Option<Duration>) {
        self.answer_max = answer_max;
    }
}

#[cfg(test)]
#[path = "pmi2_tests.rs"]
mod tests;
