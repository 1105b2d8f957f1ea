//! Client of the PMI-1 wire protocol of MPICH's hydra, Slurm and [`server`](super::server).
//!
//! Lines go over an inherited descriptor (`PMI_FD`) or a TCP connection (`PMI_PORT`), one question and one
//! answer at a time, blocking, and no longer than a limit (B-1). Source: the dialogue of hydra 4.0.2,
//! recorded in `fixtures/`; there is no standard.
//!
//! Invariant: each answer belongs to the last request. Once one is late, cut off or malformed, the next
//! answer could belong to any request, so no further requests are sent ([`BootError::Over`]); only an abort
//! still is.
//!
//! The board of PMI-1 is one flat table with short keys and values: see `pieces`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::error::excerpt;
use super::io::{Limit, Meanwhile};
use super::line::{Line, LineReader, escape};
use super::pieces::{self, PIECE_BYTES_MIN, PIECE_KEY_BYTES_MAX};
use super::{ANSWER_MAX, BootError, Bootstrap, OwnKeys, check_key, check_rank};
use crate::settings::Settings;

/// The setting that limits an answer's time, as a variable: it is needed before settings are.
const TIMEOUT_VARIABLE: &str = "RERAIL_BOOT_TIMEOUT";

/// Length of a line that every PMI-1 server takes: older ones read into 1024 bytes.
const SENT_LINE_BYTES_MAX: usize = 1000;

/// A launcher that takes no line has so long to take the one with which we abort.
pub(super) const ABORT_MAX: Duration = Duration::from_secs(3);

/// A process's seat at a PMI-1 launcher.
#[derive(Debug)]
pub struct Pmi1 {
    channel: Channel,
    rank: u32,
    size: u32,
    kvsname: String,
    piece_bytes_max: usize,
    keys: OwnKeys,
    over: bool,
}

impl Pmi1 {
    /// Joins over the channel in the environment: `PMI_FD` with `PMI_RANK` and `PMI_SIZE`, or `PMI_PORT`
    /// (`host:port`) with `PMI_ID`, where rank and size come over the wire. `RERAIL_BOOT_TIMEOUT` limits the
    /// time of each answer; without it that is [`ANSWER_MAX`].
    ///
    /// The descriptor is duplicated, not taken; still only one client may use it.
    ///
    /// # Errors
    /// [`BootError::Environment`] names the variable that is missing or malformed; else the launcher's error,
    /// or the lack of an answer ([`BootError::Timeout`], [`BootError::Closed`]).
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Self, BootError> {
        let answer_max = answer_limit(&var)?;
        if var("PMI_FD").is_some() {
            let Seat { fd, rank, size } = Seat::from_vars(&var)?;
            return Self::enter(Channel::new(fd, answer_max), rank, size);
        }
        let port = var("PMI_PORT").ok_or(unfit("PMI_PORT", None, "host:port of a launcher"))?;
        let id = number(&var, "PMI_ID", "the number that the launcher gave this process", u32::MAX)?;
        let stream = Limit::new(answer_max).connect(port, "connecting to the launcher (PMI_PORT)")?;
        Self::join_kvs(Channel::new(stream.into(), answer_max), id)
    }

    /// Joins as `rank` of `size` over a descriptor. Answers may take [`ANSWER_MAX`] unless
    /// [`Bootstrap::limit`] is called.
    ///
    /// # Errors
    /// The launcher's error, or the lack of an answer.
    pub fn join(fd: OwnedFd, rank: u32, size: u32) -> Result<Self, BootError> {
        Self::enter(Channel::new(fd, Some(ANSWER_MAX)), rank, size)
    }

    /// [`join`](Self::join) over a connection on which the launcher sends rank and size.
    ///
    /// # Errors
    /// The same.
    pub fn join_by_id(fd: OwnedFd, id: u32) -> Result<Self, BootError> {
        Self::join_kvs(Channel::new(fd, Some(ANSWER_MAX)), id)
    }

    fn join_kvs(mut channel: Channel, id: u32) -> Result<Self, BootError> {
        const DOING: &str = "introduction (initack)";
        let limit = channel.limit();
        channel.request_until(limit, DOING, &format!("cmd=initack pmiid={id}"), "initack", &mut None)?;
        let (mut rank, mut size) = (None, None);
        // Hydra follows up with size, rank and debug level; the last one ends the introduction.
        for _ in 0..8 {
            let (line, peer_text) = channel.listen(DOING, limit, &mut None)?;
            let value_of = |name| match line.get(name) {
                None => Ok(None),
                Some(_) => match line.number(name).map(u32::try_from) {
                    Ok(Ok(value)) => Ok(Some(value)),
                    _ => Err(protocol_error(DOING, format!("{name} is no number that fits"), &peer_text)),
                },
            };
            if line.cmd() != "set" {
                return Err(protocol_error(DOING, "cmd=set expected".into(), &peer_text));
            }
            rank = value_of("rank")?.or(rank);
            size = value_of("size")?.or(size);
            if line.get("debug").is_some() {
                break;
            }
        }
        match (rank, size) {
            (Some(rank), Some(size)) => Self::enter(channel, rank, size),
            _ => Err(protocol_error(DOING, "neither rank nor size received".into(), b"")),
        }
    }

    fn enter(mut channel: Channel, rank: u32, size: u32) -> Result<Self, BootError> {
        if size == 0 || rank >= size {
            return Err(BootError::Rank { rank, size });
        }
        const INIT: &str = "joining (init)";
        let (line, peer_text) = channel.request(INIT, "cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        let version = line.number("pmi_version").map_err(|why| protocol_error(INIT, why, &peer_text))?;
        if version != 1 {
            return Err(protocol_error(INIT, format!("PMI version 1 expected, not {version}"), &peer_text));
        }

        const MAXES: &str = "asking for limits (get_maxes)";
        let (line, peer_text) = channel.request(MAXES, "cmd=get_maxes", "maxes")?;
        let limit = |name: &'static str, needed: usize| {
            let value = line.number(name).map_err(|why| protocol_error(MAXES, why, &peer_text))?;
            let value = usize::try_from(value).unwrap_or(0);
            if value < needed { Err(BootError::Limit { limit: name, value, needed }) } else { Ok(value) }
        };
        // The limits count the C string's final zero.
        limit("keylen_max", PIECE_KEY_BYTES_MAX + 1)?;
        let value_bytes_max = limit("vallen_max", PIECE_BYTES_MIN + 1)? - 1;

        const NAME: &str = "asking for the job's name (get_my_kvsname)";
        let (line, peer_text) = channel.request(NAME, "cmd=get_my_kvsname", "my_kvsname")?;
        let kvsname = line.get("kvsname").filter(|name| !name.is_empty() && !name.contains(' '));
        let kvsname = kvsname.ok_or_else(|| protocol_error(NAME, "no kvsname".into(), &peer_text))?.to_string();

        let around = put_line(&kvsname, &"k".repeat(PIECE_KEY_BYTES_MAX), "").len() + 1;
        let room = SENT_LINE_BYTES_MAX.saturating_sub(around);
        let kvsname_bytes_max = SENT_LINE_BYTES_MAX.saturating_sub(around - kvsname.len() + PIECE_BYTES_MIN);
        if room < PIECE_BYTES_MIN {
            let why = format!("kvsname has {} bytes, at most {kvsname_bytes_max} can be used", kvsname.len());
            return Err(protocol_error(NAME, why, &peer_text));
        }
        let piece_bytes_max = value_bytes_max.min(room);
        Ok(Pmi1 { channel, rank, size, kvsname, piece_bytes_max, keys: OwnKeys::default(), over: false })
    }

    fn running(&self) -> Result<(), BootError> {
        if self.over || self.channel.is_lost { Err(BootError::Over) } else { Ok(()) }
    }

    fn wait_for_all(&mut self, limit: Limit, meanwhile: &mut Meanwhile<'_>) -> Result<(), BootError> {
        const DOING: &str = "waiting for the other ranks (barrier)";
        self.running()?;
        self.channel.request_until(limit, DOING, "cmd=barrier_in", "barrier_out", meanwhile).map(|_| ())
    }

    fn put_piece(&mut self, key: &str, piece: &str) -> Result<(), BootError> {
        const DOING: &str = "publishing (put)";
        let request_line = put_line(&self.kvsname, key, piece);
        self.channel.request(DOING, &request_line, "put_result").map(|_| ())
    }

    fn get_piece(&mut self, key: &str) -> Result<Option<String>, BootError> {
        const DOING: &str = "reading (get)";
        let request_line = format!("cmd=get kvsname={} key={key}", self.kvsname);
        let (line, peer_text) = self.channel.request(DOING, &request_line, "get_result")?;
        let code = line.number("rc").map_err(|why| protocol_error(DOING, why, &peer_text));
        if self.channel.sense(code)? != 0 {
            // The protocol has one code for "no such key" and for everything else.
            return Ok(None);
        }
        match line.get("value") {
            Some(value) => Ok(Some(value.into())),
            None => self.channel.sense(Err(protocol_error(DOING, "no value".into(), &peer_text))),
        }
    }
}

impl Bootstrap for Pmi1 {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn job_name(&self) -> &str {
        &self.kvsname
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), BootError> {
        self.running()?;
        self.keys.claim(key, value)?;
        let (rank, piece_bytes_max) = (self.rank, self.piece_bytes_max);
        pieces::put(rank, key, value, piece_bytes_max, |name, piece| self.put_piece(name, piece))
    }

    fn fence(&mut self) -> Result<(), BootError> {
        let limit = self.channel.limit();
        self.wait_for_all(limit, &mut None)
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
        self.running()?;
        self.over = true;
        self.channel.request("leaving (finalize)", "cmd=finalize", "finalize_ack").map(|_| ())
    }

    fn abort(&mut self, why: &str) {
        if !self.over {
            self.over = true;
            let mut message = escape(why);
            message.truncate(256);
            // There is no answer, and no alternative if it can't be sent.
            let line = format!("cmd=abort exitcode=1 message={message}");
            let _ = self.channel.write_line("aborting", &line, Limit::new(Some(ABORT_MAX)));
        }
    }

    fn limit(&mut self, answer_max: Option<Duration>) {
        self.channel.answer_max = answer_max;
    }
}

fn put_line(kvsname: &str, key: &str, value: &str) -> String {
    format!("cmd=put kvsname={kvsname} key={key} value={value}")
}

/// What PMI-1 and PMI-2 have in the environment.
#[derive(Debug)]
pub(super) struct Seat {
    /// A duplicate of `PMI_FD`.
    pub fd: OwnedFd,
    pub rank: u32,
    pub size: u32,
}

impl Seat {
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Seat, BootError> {
        let fd = number(&var, "PMI_FD", "the number of an open descriptor", i32::MAX as u32)?;
        let size = number(&var, "PMI_SIZE", "a number of processes, at least 1", u32::MAX)?;
        let rank = number(&var, "PMI_RANK", "a rank below PMI_SIZE", u32::MAX)?;
        let bad_fd = |_| unfit("PMI_FD", Some(&fd.to_string()), "the number of an open descriptor");
        Ok(Seat { fd: duplicate(fd as i32).map_err(bad_fd)?, rank, size })
    }
}

/// The limit of an answer's time before there are settings.
pub(super) fn answer_limit(var: impl Fn(&str) -> Option<String>) -> Result<Option<Duration>, BootError> {
    match var(TIMEOUT_VARIABLE) {
        Some(text) => limit_of(&text),
        None => Ok(Some(ANSWER_MAX)),
    }
}

/// A number from the environment.
pub(super) fn number(
    var: impl Fn(&str) -> Option<String>,
    variable: &'static str,
    expected: &'static str,
    max: u32,
) -> Result<u32, BootError> {
    let text = var(variable).ok_or(unfit(variable, None, expected))?;
    match text.parse() {
        Ok(value) if value <= max => Ok(value),
        _ => Err(unfit(variable, Some(&text), expected)),
    }
}

/// A variable of the environment is missing, or has no such value.
pub(super) fn unfit(variable: &'static str, value: Option<&str>, expected: &'static str) -> BootError {
    BootError::Environment { variable, value: value.map(|text| excerpt(text.as_bytes())), expected }
}

/// A duplicate of an inherited descriptor.
fn duplicate(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: the number is only lent for this call, which fails with EBADF if nothing is open under it; no
    // descriptor of Rust's is closed or replaced by it.
    let lent = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(rustix::io::fcntl_dupfd_cloexec(lent, 3)?)
}

/// A malformed answer, shown up to the value that it may carry: that can be the job's key.
pub(super) fn protocol_error(doing: &'static str, why: String, peer_text: &[u8]) -> BootError {
    const VALUE: &[u8] = b"value=";
    let shown =
        peer_text.windows(VALUE.len()).position(|part| part == VALUE).map_or(peer_text.len(), |at| at + VALUE.len());
    BootError::Protocol { doing, why, peer_text: excerpt(&peer_text[..shown]) }
}

/// An error if the answer carries a code other than 0. Answers without a code are successes.
fn accepted(doing: &'static str, line: &Line, peer_text: &[u8]) -> Result<(), BootError> {
    if line.get("rc").is_none() {
        return Ok(());
    }
    match line.number("rc").map_err(|why| protocol_error(doing, why, peer_text))? {
        0 => Ok(()),
        code => {
            let message = line.get("msg").or(line.get("errmsg")).unwrap_or("no reason given");
            Err(BootError::Refused { doing, code, message: excerpt(message.as_bytes()) })
        }
    }
}

/// The value of [`TIMEOUT_VARIABLE`]: the setting of that name; none: for ever.
fn limit_of(text: &str) -> Result<Option<Duration>, BootError> {
    let settings = Settings::load([(TIMEOUT_VARIABLE.to_owned(), text.to_owned())], None);
    let unfit = |_| unfit(TIMEOUT_VARIABLE, Some(text), "a time of 1ms to a day, or 0");
    settings.map(|settings| settings.boot_limit()).map_err(unfit)
}

/// Requests and answers over a descriptor.
#[derive(Debug)]
struct Channel {
    fd: OwnedFd,
    reader: LineReader,
    answer_max: Option<Duration>,
    /// An answer did not come, or was malformed: later answers match no request.
    is_lost: bool,
}

impl Channel {
    fn new(fd: OwnedFd, answer_max: Option<Duration>) -> Self {
        Channel { fd, reader: LineReader::default(), answer_max, is_lost: false }
    }

    /// For a request sent now.
    fn limit(&self) -> Limit {
        Limit::new(self.answer_max)
    }

    /// One request, one answer of the kind `expected`, its code checked where only success makes sense.
    fn request(
        &mut self,
        doing: &'static str,
        request_line: &str,
        expected: &str,
    ) -> Result<(Line, Vec<u8>), BootError> {
        let limit = self.limit();
        self.request_until(limit, doing, request_line, expected, &mut None)
    }

    /// [`request`](Self::request) with a limit that has begun before.
    fn request_until(
        &mut self,
        limit: Limit,
        doing: &'static str,
        request_line: &str,
        expected: &str,
        meanwhile: &mut Meanwhile<'_>,
    ) -> Result<(Line, Vec<u8>), BootError> {
        let answered = self.write_line(doing, request_line, limit).and_then(|()| {
            let (line, peer_text) = self.listen(doing, limit, meanwhile)?;
            match line.cmd() == expected {
                true => Ok((line, peer_text)),
                false => Err(protocol_error(doing, format!("cmd={expected} expected"), &peer_text)),
            }
        });
        let (line, peer_text) = self.sense(answered)?;
        if expected != "get_result" {
            self.sense(accepted(doing, &line, &peer_text))?;
        }
        Ok((line, peer_text))
    }

    /// Passes the result of reading an answer on. An error is the last one, unless it is the launcher's
    /// explicit refusal.
    fn sense<T>(&mut self, read: Result<T, BootError>) -> Result<T, BootError> {
        self.is_lost |= read.as_ref().is_err_and(|error| !matches!(error, BootError::Refused { .. }));
        read
    }

    fn write_line(&mut self, doing: &'static str, line: &str, limit: Limit) -> Result<(), BootError> {
        limit.write(self.fd.as_fd(), format!("{line}\n").as_bytes(), doing, &mut None)
    }

    fn listen(
        &mut self,
        doing: &'static str,
        limit: Limit,
        meanwhile: &mut Meanwhile<'_>,
    ) -> Result<(Line, Vec<u8>), BootError> {
        loop {
            match self.reader.next() {
                Ok(Some(peer_text)) => {
                    let line = Line::parse(&peer_text).map_err(|why| protocol_error(doing, why, &peer_text))?;
                    return Ok((line, peer_text));
                }
                Ok(None) => {}
                Err(_) => return Err(protocol_error(doing, "no end of line".into(), self.reader.rest())),
            }
            let mut bytes = [0; 1024];
            let count = limit.read(self.fd.as_fd(), &mut bytes, doing, meanwhile)?;
            self.reader.feed(&bytes[..count]);
        }
    }
}

#[cfg(test)]
#[path = "pmi1_tests.rs"]
mod tests;
