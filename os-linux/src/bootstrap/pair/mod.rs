//! Two processes without a launcher: rank 0 listens on TCP, rank 1 dials.
//!
//! Both hold a [`PairKey`] of 32 bytes. Before anything else is parsed each proves it by an HMAC over both
//! sides' nonces; from these comes a session key with which every later frame is authenticated. Frames are
//! not encrypted, so nothing secret is published: the job's key is derived from the session key and never
//! sent.
//!
//! Handshake (`L`: listener, `D`: dialler; `|` joins bytes):
//! ```text
//! D > magic | nonce D
//! L > magic | nonce L | HMAC(key, "rerail pair listener" | nonce D | nonce L)
//! D > HMAC(key, "rerail pair dialler " | nonce D | nonce L)
//! session = HMAC(key, "rerail pair session " | nonce D | nonce L)
//! ```
//!
//! The connection is used at the start, within the caller's limit (B-1), and for a BYE without an answer
//! (B-3); in between it may fail (B-2).
//!
//! Order at a fence: rank 1 sends first, rank 0 answers, so that two long messages can't block each other.

mod wire;

use std::collections::HashMap;
use std::fmt;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use hmac::Mac;
use rustix::event::PollFlags;

use self::wire::{BODY_BYTES_MAX, Frames, Message, Session, Wire};
use super::error::excerpt;
use super::io::{Limit, Meanwhile};
use super::{BootError, Bootstrap, OwnKeys, check_key, check_rank, from_hex, keyed, mac, random};

const MAGIC: &[u8; 8] = b"rrpair1\n";

/// The longest time that an unauthenticated, silent connection blocks the listener.
const HANDSHAKE_MAX: Duration = Duration::from_secs(3);

const HANDSHAKE: &str = "proving the key to each other";

/// The secret that the two sides of a pair share beforehand.
#[derive(Clone, PartialEq, Eq)]
pub struct PairKey([u8; 32]);

impl PairKey {
    /// A new one from the kernel's generator.
    pub fn generate() -> Result<Self, BootError> {
        random("drawing a key").map(PairKey)
    }

    /// From 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self, BootError> {
        let why = "a key of 64 hexadecimal digits expected";
        from_hex(text.trim()).map(PairKey).ok_or(BootError::Authentication { why })
    }

    /// As 64 hexadecimal digits, to be carried to the other side on a safe channel.
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }
}

impl fmt::Debug for PairKey {
    /// Leaves the key out, so that it can't slip into a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairKey(..)")
    }
}

/// Where rank 0 waits for rank 1.
#[derive(Debug)]
pub struct PairListener {
    listener: TcpListener,
}

impl PairListener {
    /// Listens on an address; port 0: one that is free.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Self, BootError> {
        let doing = "listening for the other side";
        let io = |source| BootError::Io { doing, source };
        let listener = TcpListener::bind(address).map_err(io)?;
        // An attempt may be withdrawn between poll and accept.
        listener.set_nonblocking(true).map_err(io)?;
        Ok(PairListener { listener })
    }

    /// Where it listens, with the port that was chosen.
    pub fn local_addr(&self) -> Result<SocketAddr, BootError> {
        self.listener.local_addr().map_err(|source| BootError::Io { doing: "asking for the own address", source })
    }

    /// Waits for a process that holds the key; `timeout` is for this and for every fence later. Connections
    /// that don't prove it are closed and the wait continues.
    ///
    /// # Errors
    /// After the timeout: the error of the last attempt, or [`BootError::Timeout`].
    pub fn accept(&self, key: &PairKey, timeout: Duration) -> Result<Pair, BootError> {
        let doing = "waiting for the other side to connect";
        let limit = Limit::new(Some(timeout));
        let mut last_error = None;
        loop {
            let left = match limit.left(doing) {
                Ok(left) => left.unwrap_or(HANDSHAKE_MAX),
                Err(late) => return Err(last_error.unwrap_or(late)),
            };
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    match limit.wait(&self.listener, PollFlags::IN, doing, &mut None) {
                        Err(error @ BootError::Io { .. }) => return Err(error),
                        _ => continue,
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
                Err(source) => return Err(BootError::Io { doing, source }),
            };
            match Pair::answer(stream, key, Limit::new(Some(left.min(HANDSHAKE_MAX)))) {
                Ok(frames) => return Ok(Pair::new(frames, 0, timeout)),
                Err(error) => {
                    tracing::warn!(%error, "a connection was refused");
                    last_error = Some(error);
                }
            }
        }
    }
}

/// A job of two.
#[derive(Debug)]
pub struct Pair {
    frames: Frames,
    rank: u32,
    timeout: Duration,
    keys: OwnKeys,
    /// Put since the last fence.
    fresh: Vec<(String, String)>,
    fresh_bytes: usize,
    /// The keys that both sides have put, by rank.
    values: [HashMap<String, String>; 2],
    over: bool,
    /// A fence failed: later messages of the other side belong to one that is over.
    is_lost: bool,
}

impl Pair {
    /// Dials a listener once, as rank 1; trying again is the caller's decision. `timeout` is for connecting
    /// with the handshake, and for every fence later.
    pub fn dial(address: impl ToSocketAddrs, key: &PairKey, timeout: Duration) -> Result<Pair, BootError> {
        let limit = Limit::new(Some(timeout));
        let stream = limit.connect(address, "connecting to the other side")?;
        Ok(Pair::new(Pair::call(stream, key, limit)?, 1, timeout))
    }

    fn new(frames: Frames, rank: u32, timeout: Duration) -> Self {
        Pair {
            frames,
            rank,
            timeout,
            keys: OwnKeys::default(),
            fresh: Vec::new(),
            fresh_bytes: 0,
            values: Default::default(),
            over: false,
            is_lost: false,
        }
    }

    /// The dialler's side of the handshake.
    fn call(stream: TcpStream, key: &PairKey, limit: Limit) -> Result<Frames, BootError> {
        let mut wire = Wire::new(stream, limit).map_err(|source| BootError::Io { doing: HANDSHAKE, source })?;
        let nonce: [u8; 32] = random(HANDSHAKE)?;
        wire.write(HANDSHAKE, &[MAGIC, nonce.as_slice()].concat(), &mut None)?;
        let theirs = read_hello(&mut wire)?;
        let mut proof = [0; 32];
        wire.read(HANDSHAKE, &mut proof, &mut None)?;
        check(key, &[b"rerail pair listener", &nonce, &theirs], &proof)?;
        wire.write(HANDSHAKE, &mac(&key.0, &[b"rerail pair dialler ", &nonce, &theirs]), &mut None)?;
        let session = Session(mac(&key.0, &[b"rerail pair session ", &nonce, &theirs]));
        Ok(Frames::new(wire, session, 1))
    }

    /// The listener's side of the handshake.
    fn answer(stream: TcpStream, key: &PairKey, limit: Limit) -> Result<Frames, BootError> {
        let mut wire = Wire::new(stream, limit).map_err(|source| BootError::Io { doing: HANDSHAKE, source })?;
        let theirs = read_hello(&mut wire)?;
        let nonce: [u8; 32] = random(HANDSHAKE)?;
        let proof = mac(&key.0, &[b"rerail pair listener", &theirs, &nonce]);
        wire.write(HANDSHAKE, &[MAGIC, nonce.as_slice(), &proof].concat(), &mut None)?;
        let mut proof = [0; 32];
        wire.read(HANDSHAKE, &mut proof, &mut None)?;
        check(key, &[b"rerail pair dialler ", &theirs, &nonce], &proof)?;
        let session = Session(mac(&key.0, &[b"rerail pair session ", &theirs, &nonce]));
        Ok(Frames::new(wire, session, 0))
    }

    fn running(&self) -> Result<(), BootError> {
        if self.over || self.is_lost { Err(BootError::Over) } else { Ok(()) }
    }

    /// Both sides' puts since the last fence change places.
    fn exchange(&mut self, limit: Option<Duration>, meanwhile: &mut Meanwhile<'_>) -> Result<(), BootError> {
        const DOING: &str = "exchanging with the other side";
        self.running()?;
        self.frames.wire.start(limit);
        self.fresh_bytes = 0;
        let ours = Message::Fence(std::mem::take(&mut self.fresh));
        if self.rank == 1 {
            self.frames.send(DOING, &ours, meanwhile)?;
        }
        let theirs = match self.frames.receive(DOING, meanwhile)? {
            Message::Fence(puts) => puts,
            Message::Bye => return Err(BootError::Closed { doing: DOING }),
            Message::Abort(why) => {
                self.over = true;
                return Err(BootError::Refused { doing: DOING, code: 1, message: excerpt(why.as_bytes()) });
            }
        };
        if self.rank == 0 {
            self.frames.send(DOING, &ours, meanwhile)?;
        }
        let Message::Fence(ours) = ours else { unreachable!("it was made a fence above") };
        self.values[self.rank as usize].extend(ours);
        self.values[1 - self.rank as usize].extend(theirs);
        Ok(())
    }
}

fn read_hello(wire: &mut Wire) -> Result<[u8; 32], BootError> {
    let mut hello = [0; 40];
    let (magic, nonce) = hello.split_at_mut(MAGIC.len());
    wire.read(HANDSHAKE, magic, &mut None)?;
    if magic != MAGIC {
        let why = "no rerail pair of this version".to_string();
        return Err(BootError::Protocol { doing: HANDSHAKE, why, peer_text: excerpt(magic) });
    }
    wire.read(HANDSHAKE, nonce, &mut None)?;
    Ok((&*nonce).try_into().expect("40 bytes less the magic's eight"))
}

fn check(key: &PairKey, parts: &[&[u8]], proof: &[u8; 32]) -> Result<(), BootError> {
    let why = "the other side holds another key";
    keyed(&key.0, parts).verify_slice(proof).map_err(|_| BootError::Authentication { why })
}

impl Bootstrap for Pair {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        2
    }

    fn job_name(&self) -> &str {
        "pair"
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), BootError> {
        self.running()?;
        // The frame's kind takes a byte too.
        let bytes = self.fresh_bytes + Message::put_bytes(key, value);
        if bytes >= BODY_BYTES_MAX {
            return Err(BootError::ValueTooLong {
                key: excerpt(key.as_bytes()),
                bytes: value.len(),
                bytes_max: BODY_BYTES_MAX - self.fresh_bytes,
            });
        }
        self.keys.claim(key, value)?;
        self.fresh_bytes = bytes;
        self.fresh.push((key.into(), value.into()));
        Ok(())
    }

    fn fence(&mut self) -> Result<(), BootError> {
        let exchanged = self.exchange(Some(self.timeout), &mut None);
        self.is_lost = exchanged.is_err();
        exchanged
    }

    fn barrier(&mut self, limit: Option<Duration>, meanwhile: &mut dyn FnMut()) -> Result<(), BootError> {
        let exchanged = self.exchange(limit, &mut Some(meanwhile));
        self.is_lost = exchanged.is_err();
        exchanged
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<String>, BootError> {
        self.running()?;
        check_rank(rank, 2)?;
        check_key(key)?;
        Ok(self.values[rank as usize].get(key).cloned())
    }

    fn finalize(&mut self) -> Result<(), BootError> {
        self.running()?;
        self.over = true;
        self.frames.wire.start(Some(self.timeout));
        // Only a fence that is not agreed on would wait for this message, and it notices the connection's end
        // as well. So a connection that has failed since, or a side that has left before us, is no failure
        // (B-3).
        if let Err(error) = self.frames.send("leaving", &Message::Bye, &mut None) {
            tracing::debug!(%error, "could not send BYE to the other side");
        }
        Ok(())
    }

    fn abort(&mut self, why: &str) {
        if !self.over {
            self.over = true;
            self.frames.wire.start(Some(HANDSHAKE_MAX));
            // If it can't be sent, there is no alternative.
            let why = Message::Abort(why.chars().take(256).collect());
            let _ = self.frames.send("aborting", &why, &mut None);
        }
    }

    fn shared_secret(&self) -> Option<[u8; 32]> {
        Some(self.frames.session().0)
    }
}

#[cfg(test)]
mod tests;
