//! The sending side.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use rerail_core::endpoint::SendRequest;
use rerail_core::ids::PeerId;
use rerail_core::mem::Seg;
use sha2::{Digest, Sha256};

use super::offer::{Answer, Ending, Offer, VERSION};
use super::{DATA, PIECE_BYTES, Ring, SHUTDOWN_MAX, Summary, carried, gone, hash_while_driving, hex, open, summary};
use crate::cli::SendArgs;
use crate::exit::{Exit, Failure};
use crate::output::Progress;
use crate::session::{PendingText, Session, Ticket, dial};

/// The receiver's rank.
const PEER: u32 = 0;
/// Bytes of a message.
const CHUNK_BYTES: u64 = 4 << 20;
/// Messages under way.
const DEPTH: u64 = 8;
/// `rerail send`.
pub fn run(args: &SendArgs) -> Result<Exit, Failure> {
    let in_file = |error: std::io::Error| Failure::usage(format!("{}: {error}", args.file.display()));
    let file = File::open(&args.file).map_err(in_file)?;
    let metadata = file.metadata().map_err(in_file)?;
    if !metadata.is_file() {
        return Err(Failure::usage(format!("{} is not a regular file", args.file.display())));
    }
    let name = args.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let bytes = metadata.len();
    let offer = Offer { version: VERSION, name, bytes, chunk_bytes: CHUNK_BYTES, depth: DEPTH };
    let key = args
        .key
        .read()?
        .ok_or_else(|| Failure::usage("send needs the key of the receiver: RERAIL_KEY or --key-file"))?;
    let pair = dial(&args.to, &key)?;
    let mut session = open(&args.transfer, Box::new(pair))?;
    let result = transfer(&mut session, file, &args.file, &offer, args.transfer.json);
    let finished = session.into_transport().finish(Some(SHUTDOWN_MAX));
    let summary = result?;
    summary.print(args.transfer.json, "sent")?;
    finished.map_err(Failure::usage)?;
    Ok(Exit::Ok)
}

fn transfer(session: &mut Session, file: File, path: &Path, offer: &Offer, json: bool) -> Result<Summary, Failure> {
    session.send_text(PEER, &text(offer))?;
    let received = session.receive_text(PEER)?;
    answer(session, received)?;
    let start = Instant::now();
    let before = carried(session, true);
    let progress = Progress::bytes(!json, offer.bytes, &offer.name);
    let mut sending = Sending { file, path, offer, ring: Ring::new(session, offer.chunk_bytes, offer.depth)? };
    // Listens from here on: the receiver may end it at any time.
    let verdict = session.listen(PEER)?;
    let ending = Ending { sha256: sending.stream(session, &verdict, &progress)? };
    progress.finish();
    if !session.received(&verdict) {
        session.send_text(PEER, &text(&ending))?;
    }
    if let Err(why) = &ending.sha256
        && !session.received(&verdict)
    {
        return Err(Failure::usage(why));
    }
    let received = session.receive_text_now(verdict)?;
    answer(session, received)?;
    let sha256 = ending.sha256.map_err(Failure::usage)?;
    let mut rails = carried(session, true);
    for (now, before) in rails.iter_mut().zip(before) {
        now.bytes -= before.bytes;
    }
    Ok(summary(path, offer.bytes, start, sha256, rails))
}

fn text(value: &impl serde::Serialize) -> Vec<u8> {
    // Plain data of this crate's own: serialisation can't fail.
    serde_json::to_vec(value).unwrap_or_default()
}

/// The receiver's answer.
fn answer(session: &Session, received: Option<Vec<u8>>) -> Result<(), Failure> {
    let Some(received) = received else { return Err(gone(session, PEER, "waiting for the receiver")) };
    match serde_json::from_slice(&received) {
        Ok(Answer::Good) => Ok(()),
        Ok(Answer::Bad(why)) => Err(Failure::usage(format!("the receiver refused: {why}"))),
        Err(_) => Err(Failure::verification("the receiver's answer can't be read: it runs another version")),
    }
}

struct Sending<'a> {
    file: File,
    path: &'a Path,
    offer: &'a Offer,
    ring: Ring,
}

impl Sending<'_> {
    /// Sends all messages, or stops where the receiver has given its verdict already. Returns the digest, or
    /// why the file could not be read.
    fn stream(
        &mut self,
        session: &mut Session,
        verdict: &PendingText,
        progress: &Progress,
    ) -> Result<Result<String, String>, Failure> {
        let mut hash = Sha256::new();
        let mut in_flight: VecDeque<Ticket> = VecDeque::new();
        for number in 0..self.offer.chunks() {
            if in_flight.len() as u64 == self.offer.depth && !self.take_completed(session, verdict, &mut in_flight)? {
                return Ok(Err("stopped".to_owned()));
            }
            let seg = self.ring.seg(number, self.offer.bytes_of(number));
            if let Err(why) = self.read(session, seg) {
                return Ok(Err(why));
            }
            let segments = [seg];
            let send =
                SendRequest { tag: Some(DATA), immediate: Some(number), ..SendRequest::new(PeerId(PEER), &segments) };
            in_flight.push_back(session.send(send)?);
            // On its way while it is hashed: sending only reads it.
            hash_while_driving(session, &mut hash, seg);
            progress.set(number * self.offer.chunk_bytes);
        }
        while !in_flight.is_empty() {
            if !self.take_completed(session, verdict, &mut in_flight)? {
                return Ok(Err("stopped".to_owned()));
            }
        }
        if self.file.read(&mut [0]).is_ok_and(|more| more > 0) {
            return Ok(Err(format!("{} has grown while it was sent", self.path.display())));
        }
        Ok(Ok(hex(&hash.finalize())))
    }

    /// Waits for the oldest message. `false`: the receiver's verdict came instead.
    fn take_completed(
        &self,
        session: &mut Session,
        verdict: &PendingText,
        in_flight: &mut VecDeque<Ticket>,
    ) -> Result<bool, Failure> {
        let Some(ticket) = in_flight.pop_front() else { return Ok(true) };
        session.touch();
        loop {
            if let Some(outcome) = session.take(&ticket) {
                return outcome.map(|_| true).map_err(|_| gone(session, PEER, "sending"));
            }
            if session.received(verdict) {
                return Ok(false);
            }
            session.step()?;
        }
    }

    /// Reads the file's next bytes into a buffer, piece by piece while the rails go on.
    fn read(&mut self, session: &mut Session, seg: Seg) -> Result<(), String> {
        let mut at = 0;
        while at < seg.len {
            let len = (seg.len - at).min(PIECE_BYTES as u64);
            let piece = session.bytes_mut(Seg::new(seg.at.region, seg.at.offset + at, len));
            self.file.read_exact(piece).map_err(|error| format!("reading {}: {error}", self.path.display()))?;
            at += len;
            session.poll();
        }
        Ok(())
    }
}
