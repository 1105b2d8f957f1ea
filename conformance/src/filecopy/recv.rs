//! The receiving side.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rerail_core::endpoint::{RecvRequest, Selector, TagMatch};
use rerail_core::ids::PeerId;
use rerail_core::mem::Seg;
use rerail_linux::bootstrap::BootError;
use rerail_linux::bootstrap::pair::{Pair, PairKey, PairListener};
use sha2::{Digest, Sha256};

use super::offer::{Answer, Ending, Offer, sanitize};
use super::target::{Target, check, place};
use super::{DATA, PIECE_BYTES, Ring, SHUTDOWN_MAX, Summary, carried, gone, hex, open, summary};
use crate::cli::RecvArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Progress, bytes};
use crate::session::{PendingText, Session, Ticket, host_name};

/// The sender's rank.
const PEER: u32 = 1;
/// The listener reports attempts without the key that often. A sender with a valid key has as long for each
/// step of joining.
const ACCEPT: Duration = Duration::from_secs(60);

/// `rerail recv`.
pub fn run(args: &RecvArgs) -> Result<Exit, Failure> {
    let given = args.key.read()?;
    let is_given = given.is_some();
    let key = given.map_or_else(PairKey::generate, Ok).map_err(Failure::usage)?;
    check(&args.out, args.force).map_err(Failure::usage)?;
    let bound = PairListener::bind(&args.listen);
    let listener = bound.map_err(|error| Failure::usage(format!("--listen {}: {error}", args.listen)))?;
    let address = listener.local_addr().map_err(Failure::usage)?;
    eprintln!("listening on {address}");
    if !is_given {
        eprintln!("key {}\nRERAIL_KEY={} rerail send FILE --to {}", key.to_hex(), key.to_hex(), reachable(address));
    }
    loop {
        let since = Instant::now();
        let pair = match listener.accept(&key, ACCEPT) {
            Ok(pair) => pair,
            Err(BootError::Timeout { .. }) => continue,
            Err(error) if since.elapsed() >= ACCEPT => {
                eprintln!("rerail: a connection was refused: {error}");
                continue;
            }
            Err(error) => return Err(Failure::usage(error)),
        };
        match take_file(args, pair) {
            Ok(summary) => summary.print(args.transfer.json, "received")?,
            Err(failure) if args.once => return Err(failure),
            Err(failure) => eprintln!("rerail: {failure}"),
        }
        if args.once {
            return Ok(Exit::Ok);
        }
    }
}

/// What a sender can dial: the machine's name where the listener is on all addresses.
fn reachable(address: SocketAddr) -> String {
    if address.ip().is_unspecified() { format!("{}:{}", host_name(), address.port()) } else { address.to_string() }
}

fn take_file(args: &RecvArgs, pair: Pair) -> Result<Summary, Failure> {
    let mut session = open(&args.transfer, Box::new(pair))?;
    let result = receive(args, &mut session);
    if let Err(failure) = &result
        && session.is_here(PEER)
    {
        // The sender waits for a verdict; if it is gone meanwhile, the failure is reported here all the same.
        let _ = send_text(&mut session, &Answer::Bad(failure.message.clone()));
    }
    let finished = session.into_transport().finish(Some(SHUTDOWN_MAX));
    let summary = result?;
    finished.map_err(Failure::usage)?;
    Ok(summary)
}

fn send_text(session: &mut Session, answer: &Answer) -> Result<(), Failure> {
    // Plain data of this crate's own: serialisation can't fail.
    Ok(session.send_text(PEER, &serde_json::to_vec(answer).unwrap_or_default())?)
}

fn receive(args: &RecvArgs, session: &mut Session) -> Result<Summary, Failure> {
    let received = session.receive_text(PEER)?.ok_or_else(|| gone(session, PEER, "waiting for the offer"))?;
    let offer = Offer::parse(&received).map_err(Failure::usage)?;
    let name = sanitize(&offer.name);
    let target = Target::create(place(&args.out, &name), offer.bytes, args.force).map_err(Failure::usage)?;
    eprintln!("{} ({}) to {}", name, bytes(offer.bytes), target.place().display());
    let ring = Ring::new(session, offer.chunk_bytes, offer.depth)?;
    let before = carried(session, false);
    let progress = Progress::bytes(!args.transfer.json, offer.bytes, &name);
    let mut receiving = Receiving { offer, ring, target, hash: Sha256::new() };
    let mut posted = receiving.post_first(session)?;
    let mut ending = Digest256 { listening: Some(session.listen(PEER)?), sent: None };
    send_text(session, &Answer::Good)?;
    let start = Instant::now();
    receiving.stream(session, &mut posted, &mut ending, &progress)?;
    progress.finish();
    let sent = ending.wait(session)?;
    let Receiving { offer, target, hash, .. } = receiving;
    let sha256 = hex(&hash.finalize());
    if sha256 != sent {
        return Err(Failure::verification(format!("sha256 {sha256} arrived, {sent} was sent: nothing is kept")));
    }
    let path = target.keep().map_err(Failure::usage)?;
    send_text(session, &Answer::Good)?;
    let mut rails = carried(session, false);
    for (now, before) in rails.iter_mut().zip(before) {
        now.bytes -= before.bytes;
    }
    Ok(summary(&path, offer.bytes, start, sha256, rails))
}

/// The sender's last word: the digest, or that it can't go on, which may come at any time.
struct Digest256 {
    listening: Option<PendingText>,
    sent: Option<String>,
}

impl Digest256 {
    /// Takes the word if it is there.
    fn check_digest(&mut self, session: &mut Session) -> Result<(), Failure> {
        match self.listening.take_if(|pending| session.received(pending)) {
            Some(pending) => self.take(session, pending),
            None => Ok(()),
        }
    }

    /// Waits for the word.
    fn wait(mut self, session: &mut Session) -> Result<String, Failure> {
        if let Some(pending) = self.listening.take() {
            self.take(session, pending)?;
        }
        self.sent.ok_or_else(|| Failure::verification("the sender sent no digest"))
    }

    fn take(&mut self, session: &mut Session, pending: PendingText) -> Result<(), Failure> {
        let received =
            session.receive_text_now(pending)?.ok_or_else(|| gone(session, PEER, "waiting for the digest"))?;
        let ending: Ending = serde_json::from_slice(&received)
            .map_err(|_| Failure::verification("the sender's digest can't be read: it runs another version"))?;
        self.sent = Some(ending.sha256.map_err(|why| Failure::usage(format!("the sender gave up: {why}")))?);
        Ok(())
    }
}

struct Receiving {
    offer: Offer,
    ring: Ring,
    target: Target,
    hash: Sha256,
}

impl Receiving {
    fn post(&self, session: &mut Session, number: u64) -> Result<Ticket, Failure> {
        let seg = self.ring.seg(number, self.offer.bytes_of(number));
        let from = Selector { source: Some(PeerId(PEER)), tag: TagMatch::Tagged { tag: DATA, ignore: 0 } };
        Ok(session.recv(RecvRequest::new(from, &[seg]))?)
    }

    /// As many receives as messages can be under way.
    fn post_first(&self, session: &mut Session) -> Result<VecDeque<Ticket>, Failure> {
        (0..self.offer.chunks().min(self.offer.depth)).map(|number| self.post(session, number)).collect()
    }

    /// Takes all messages in order: hashed, written, and their buffers posted again.
    fn stream(
        &mut self,
        session: &mut Session,
        posted: &mut VecDeque<Ticket>,
        ending: &mut Digest256,
        progress: &Progress,
    ) -> Result<(), Failure> {
        for number in 0..self.offer.chunks() {
            let Some(ticket) = posted.pop_front() else { break };
            let wanted = self.offer.bytes_of(number);
            session.touch();
            let outcome = loop {
                if let Some(outcome) = session.take(&ticket) {
                    break outcome;
                }
                ending.check_digest(session)?;
                session.step()?;
            };
            let done = outcome.map_err(|_| gone(session, PEER, "receiving"))?;
            if (done.bytes, done.immediate) != (wanted, Some(number)) {
                let which = done.immediate.map_or("without a number".to_owned(), |number| number.to_string());
                return Err(Failure::verification(format!(
                    "message {which} of {} bytes came in place of message {number} of {wanted} bytes",
                    done.bytes
                )));
            }
            self.take(session, self.ring.seg(number, wanted))?;
            let next = number + self.offer.depth;
            if next < self.offer.chunks() {
                posted.push_back(self.post(session, next)?);
            }
            progress.set(number * self.offer.chunk_bytes);
        }
        Ok(())
    }

    /// Hashes and writes a message piece by piece, while the rails go on.
    fn take(&mut self, session: &mut Session, seg: Seg) -> Result<(), Failure> {
        let mut at = 0;
        while at < seg.len {
            let len = (seg.len - at).min(PIECE_BYTES as u64);
            let piece = session.bytes(Seg::new(seg.at.region, seg.at.offset + at, len));
            self.hash.update(piece);
            self.target.write(piece).map_err(Failure::usage)?;
            at += len;
            session.poll();
        }
        Ok(())
    }
}
