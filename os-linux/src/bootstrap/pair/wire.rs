//! The pair's frames: length, body, MAC. Nothing of a body is parsed before its MAC is right.
//!
//! A frame is `length: u32 | body | HMAC-SHA256(session, sender's role, sequence number, body)`,
//! little-endian. Role and sequence number in the MAC keep frames from being reflected, repeated or
//! reordered. The body's first byte is its kind; a fence carries the puts since the last one.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use hmac::Mac;

use crate::bootstrap::error::BootError;
use crate::bootstrap::io::{Limit, Meanwhile};
use crate::bootstrap::{KEY_BYTES_MAX, VALUE_BYTES_MAX, keyed, mac};

/// Longest body: some dozens of the longest values.
pub(super) const BODY_BYTES_MAX: usize = 4 << 20;

const FENCE: u8 = 1;
const BYE: u8 = 2;
const ABORT: u8 = 3;

/// Messages between the sides.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// At the fence, with the keys put since the last one.
    Fence(Vec<(String, String)>),
    /// Leaving.
    Bye,
    /// Aborting, with the reason.
    Abort(String),
}

impl Message {
    /// As bytes.
    pub(super) fn emit(&self) -> Vec<u8> {
        match self {
            Message::Bye => vec![BYE],
            Message::Abort(why) => [&[ABORT], why.as_bytes()].concat(),
            Message::Fence(puts) => {
                let mut body = vec![FENCE];
                for (key, value) in puts {
                    body.push(key.len() as u8);
                    body.extend_from_slice(key.as_bytes());
                    body.extend_from_slice(&(value.len() as u32).to_le_bytes());
                    body.extend_from_slice(value.as_bytes());
                }
                body
            }
        }
    }

    /// From bytes; the error names the reason.
    pub(super) fn parse(body: &[u8]) -> Result<Message, &'static str> {
        let (kind, mut rest) = body.split_first().ok_or("empty frame")?;
        match *kind {
            BYE if rest.is_empty() => Ok(Message::Bye),
            ABORT => Ok(Message::Abort(String::from_utf8_lossy(rest).into_owned())),
            FENCE => {
                let mut puts = Vec::new();
                while let Some((key_bytes, after)) = rest.split_first() {
                    rest = after;
                    let key = text(&mut rest, (*key_bytes).into(), KEY_BYTES_MAX)?;
                    let (value_bytes, after) = rest.split_first_chunk().ok_or("frame ends within a put")?;
                    rest = after;
                    let value = text(&mut rest, u32::from_le_bytes(*value_bytes) as usize, VALUE_BYTES_MAX)?;
                    puts.push((key, value));
                }
                Ok(Message::Fence(puts))
            }
            _ => Err("unknown kind of frame"),
        }
    }

    /// Bytes that a put takes in a fence.
    pub(super) fn put_bytes(key: &str, value: &str) -> usize {
        1 + key.len() + 4 + value.len()
    }
}

fn text(rest: &mut &[u8], bytes: usize, bytes_max: usize) -> Result<String, &'static str> {
    if bytes > bytes_max {
        return Err("key or value too long");
    }
    let (taken, after) = rest.split_at_checked(bytes).ok_or("frame ends within a put")?;
    *rest = after;
    std::str::from_utf8(taken).map(str::to_string).map_err(|_| "not UTF-8")
}

/// A connection, and how long one exchange over it may take.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    limit: Limit,
}

impl Wire {
    /// Takes a connected stream, for a first exchange.
    pub(super) fn new(stream: TcpStream, limit: Limit) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Wire { stream, limit })
    }

    /// The connection, for tests that break it.
    #[cfg(test)]
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Starts an exchange that may take `timeout`; `None`: as long as it takes.
    pub(super) fn start(&mut self, timeout: Option<Duration>) {
        self.limit = Limit::new(timeout);
    }

    /// Fills `bytes`.
    pub(super) fn read(
        &mut self,
        doing: &'static str,
        mut bytes: &mut [u8],
        meanwhile: &mut Meanwhile<'_>,
    ) -> Result<(), BootError> {
        while !bytes.is_empty() {
            let count = self.limit.read(self.stream.as_fd(), bytes, doing, meanwhile)?;
            bytes = &mut bytes[count..];
        }
        Ok(())
    }

    /// Sends all of `bytes`.
    pub(super) fn write(
        &mut self,
        doing: &'static str,
        bytes: &[u8],
        meanwhile: &mut Meanwhile<'_>,
    ) -> Result<(), BootError> {
        self.limit.write(self.stream.as_fd(), bytes, doing, meanwhile)
    }
}

/// Frames over a connection whose two ends have proved that they hold the key.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) wire: Wire,
    session: Session,
    sent: u64,
    received: u64,
    /// This side's rank, the role in the MAC.
    rank: u8,
}

/// The key of one connection.
#[derive(Clone)]
pub(super) struct Session(pub(super) [u8; 32]);

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session(..)")
    }
}

impl Frames {
    pub(super) fn new(wire: Wire, session: Session, rank: u8) -> Self {
        Frames { wire, session, sent: 0, received: 0, rank }
    }

    /// The key of this connection.
    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// Sends a message.
    pub(super) fn send(
        &mut self,
        doing: &'static str,
        message: &Message,
        meanwhile: &mut Meanwhile<'_>,
    ) -> Result<(), BootError> {
        let body = message.emit();
        let tag = mac(&self.session.0, &[&[self.rank], &self.sent.to_le_bytes(), &body]);
        self.sent += 1;
        let frame = [&(body.len() as u32).to_le_bytes(), body.as_slice(), &tag].concat();
        self.wire.write(doing, &frame, meanwhile)
    }

    /// Waits for a message.
    pub(super) fn receive(&mut self, doing: &'static str, meanwhile: &mut Meanwhile<'_>) -> Result<Message, BootError> {
        let protocol = |why: String| BootError::Protocol { doing, why, peer_text: String::new() };
        let mut length = [0; 4];
        self.wire.read(doing, &mut length, meanwhile)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > BODY_BYTES_MAX {
            return Err(protocol(format!("frame of {length} bytes, {BODY_BYTES_MAX} are allowed")));
        }
        let mut body = vec![0; length];
        self.wire.read(doing, &mut body, meanwhile)?;
        let mut tag = [0; 32];
        self.wire.read(doing, &mut tag, meanwhile)?;
        let expected = keyed(&self.session.0, &[&[1 - self.rank], &self.received.to_le_bytes(), &body]);
        expected.verify_slice(&tag).map_err(|_| BootError::Authentication { why: "a frame was forged or damaged" })?;
        self.received += 1;
        Message::parse(&body).map_err(|why| protocol(why.into()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_go_there_and_back() {
        let puts = vec![("a".to_string(), String::new()), ("k".repeat(32), "v".repeat(VALUE_BYTES_MAX))];
        let bytes: usize = puts.iter().map(|(key, value)| Message::put_bytes(key, value)).sum();
        assert_eq!(Message::Fence(puts.clone()).emit().len(), 1 + bytes);
        for message in [Message::Bye, Message::Abort("why not".into()), Message::Fence(vec![]), Message::Fence(puts)] {
            assert_eq!(Message::parse(&message.emit()), Ok(message));
        }
    }

    #[test]
    fn bad_bodies_are_errors() {
        let cases: [(&[u8], &str); 7] = [
            (&[], "empty frame"),
            (&[9], "unknown kind of frame"),
            (&[BYE, 0], "unknown kind of frame"),
            (&[FENCE, 33], "key or value too long"),
            (&[FENCE, 2, b'k'], "frame ends within a put"),
            (&[FENCE, 1, b'k', 0, 0, 0], "frame ends within a put"),
            (&[FENCE, 1, b'k', 1, 0, 1, 0], "key or value too long"),
        ];
        for (body, why) in cases {
            assert_eq!(Message::parse(body), Err(why), "{body:?}");
        }
        assert_eq!(Message::parse(&[FENCE, 1, 0xff, 0, 0, 0, 0]), Err("not UTF-8"));
    }

    proptest! {
        #[test]
        fn no_body_makes_the_parser_panic(body in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(Message::Fence(puts)) = Message::parse(&body) {
                prop_assert_eq!(Message::Fence(puts).emit(), body);
            }
        }
    }
}
